"""What a changefeed makes of the finished jobs is the schema that the nodes have: definitions, step by step."""

from contextlib import suppress

import pytest

from tests.upstream.ddl.kit import World
from tests.upstream.ddl.test_recorded_statements import Empty, is_ddl, statements
from tidegate.kv.keys import split_mvcc_key, table_span
from tidegate.model.errors import TidegateError
from tidegate.schema.job import Job, JobState, decode_job_row
from tidegate.schema.stored.meta import Meta
from tidegate.schema.stored.snapshot import SchemaHistory, StoredSnapshot, load_all
from tidegate_upstream.tidb.engine import ColumnFamily
from tidegate_upstream.tidb.metadata import MYSQL
from tidegate_upstream.tidb.store_mvcc import WriteKind, decode_write, value_of


def done_jobs(world: World) -> list[tuple[int, Job]]:
    """What the job table's change log shows: (commit_ts, job) of the puts in state done."""
    found = []
    start, end = table_span((1 << 48) - 2)
    for at, record in world.engine.scan(ColumnFamily.WRITE, b""):
        key, commit_ts = split_mvcc_key(at)
        write = decode_write(record)
        if start <= key < end and write.kind is WriteKind.PUT:
            job = decode_job_row(key, value_of(world.engine, key, write))
            if job.state == JobState.DONE:
                found.append((commit_ts, job))
    return sorted(found, key=lambda one: one[0])


def described(snapshot: StoredSnapshot) -> dict[int, object]:
    """Tables of users with what rows depend on."""
    return {
        number: (
            found.schema.lower(),
            found.stored.name.lower,
            [(one.id, one.name.lower, one.type, one.state, one.default) for one in found.stored.cols or []],
            [(one.id, one.idx_name.lower, one.state) for one in found.stored.index_info or []],
            found.stored.physical_ids,
        )
        for number, found in snapshot.tables.items()
        if found.schema_id != MYSQL and not found.stored.is_sequence
    }


@pytest.mark.parametrize(
    "stream", ["partition", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ddl", "interleave"))]
)
def test_the_followed_schema_is_the_stored_one(stream: str) -> None:
    """At the commit of each finished job, for every table of the recorded statements."""
    world, database, checked = Empty(), "test", 0
    first = world.cluster.storage.oracle.next()
    history = SchemaHistory(load_all(Meta(world.cluster.storage.snapshot(first)), first).snapshot)
    for sql, _, commits in statements(stream):
        if sql.startswith("use "):
            database = sql[4:].strip()
        if not is_ddl(sql, commits) or "sequence" in sql:
            continue
        with suppress(TidegateError):
            world.sql(sql, database)
    for commit_ts, job in done_jobs(world):
        history.apply(job, commit_ts)
        stored = load_all(Meta(world.cluster.storage.snapshot(commit_ts)), commit_ts).snapshot
        assert described(history.at(commit_ts)) == described(stored), job.query
        checked += 1

    assert checked > 20
