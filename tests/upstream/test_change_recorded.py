"""All DDL statements that a real TiDB was recorded with, planned and stepped here: definitions are its own bytes.

After each statement the definitions are set to the recorded ones, so that a difference shows once, where it arises.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import msgspec
import pytest
from msgspec import UNSET

from tests.kv.kv_recordings import STREAMS, lines, raw
from tests.upstream.change_world import World
from tidegate.kv import decode_meta_key
from tidegate.schema.job import Job, JobState, SchemaDiff, decode_job_row
from tidegate.schema.stored.definition import StoredSchema, StoredTable, parse_stored, render_stored
from tidegate_upstream.change.draft import StepOutcome
from tidegate_upstream.change.request import Request, operation_of, raw_arguments, request_of

pytestmark = pytest.mark.slow

MULTI_SCHEMA = 61
EXCHANGE, DROP_FOREIGN_KEY, DROP_PARTITION = 42, 10, 20
EXTRA = {EXCHANGE: 3, DROP_FOREIGN_KEY: 2}
"""Action -> the step that TiDB does not have."""
STEPS = {"types": 19, "partition": 73, "ddl": 223, "interleave": 204, "rename_swap": 5}
"""Schema versions whose definitions are compared, byte for byte."""
NOT_OURS = {51, 53, 56, 57, 59, 68, 70}
"""Placement policies, cached tables, resource groups: TiCDC does not replicate them, and we have none."""
OUR_OWN_WAY = {
    ("exchange partition", 2): "the table takes only rows that fit for one version more, see f1_operations.py",
    (
        "drop partition",
        1,
    ): "the partition leaves the definition with the job's done; TiDB marks it for one version first",
    ("drop foreign key", 1): "write-only before it goes, where TiDB removes it at once",
    (
        "modify column, new bytes",
        5,
    ): "the old column is written until the step that removes it; TiDB stops one version earlier",
}
"""(operation, step) -> why the definition at that step is not TiDB's."""


@dataclass
class Version:
    """One recorded schema version: its difference, the definitions that it put, and the start_ts of its transaction."""

    diff: SchemaDiff
    start_ts: int
    puts: dict[bytes, bytes]


@dataclass
class Statement:
    """A recorded statement with what came of it."""

    sql: str
    jobs: dict[int, Job] = field(default_factory=dict)
    done: dict[int, Job] = field(default_factory=dict)
    versions: list[Version] = field(default_factory=list)
    keys: dict[tuple[bytes, bytes], bytes] = field(default_factory=dict)
    """The last values of all keys of definitions; b"" for a key that went."""


def statements(stream: str) -> Iterator[Statement]:
    """The DDL statements of a stream in order."""
    current = Statement("")
    by_ts: dict[int, tuple[int, dict[bytes, bytes]]] = {}
    for line in [*lines(stream), {"kind": "sql", "sql": ""}]:
        if line["kind"] == "sql":
            current.versions = list(versions(by_ts))
            yield current
            current, by_ts = Statement(line["sql"]), {}
        elif line["kind"] == "ddl_job" and line["value_b64"]:
            job = decode_job_row(raw(line, "key_b64"), raw(line, "value_b64"))
            current.jobs.setdefault(job.id, job)
            if job.state == JobState.DONE:
                current.done.setdefault(job.id, job)
        elif line["kind"] == "meta":
            key, value = decode_meta_key(raw(line, "key_b64")), raw(line, "value_b64")
            by_ts.setdefault(line["commit_ts"], (line["start_ts"], {}))[1][key.field or key.name] = value
            if (key.field or b"").startswith((b"Table:", b"DB:")):
                current.keys[key.name, key.field] = value


def versions(by_ts: dict[int, tuple[int, dict[bytes, bytes]]]) -> Iterator[Version]:
    """The schema versions among transactions.  Of a multi-schema change those are left out in which only the job
    changed: TiDB marks its parts as no longer revertible in one that we do not have."""
    for _, (start_ts, values) in sorted(by_ts.items()):
        diffs = [value for name, value in values.items() if name.startswith(b"Diff:")]
        if diffs:
            diff = msgspec.json.decode(diffs[0], type=SchemaDiff)
            puts = {name: value for name, value in values.items() if name.startswith((b"Table:", b"DB:")) and value}
            if diff.type != MULTI_SCHEMA or diff.sub_action_types is not UNSET:
                yield Version(diff, start_ts, puts)


def follow(world: World, statement: Statement) -> None:
    """Set the world to what the statement left behind."""
    for (name, key), value in statement.keys.items():
        number = int(key.partition(b":")[2])
        if key.startswith(b"DB:"):
            if value:
                world.schemas[number] = parse_stored(value, StoredSchema)
            else:
                world.schemas.pop(number, None)
        elif value:
            world.tables[number] = int(name[3:]), parse_stored(value, StoredTable)
        elif world.tables.get(number, (0,))[0] == int(name[3:]):
            world.tables.pop(number, None)


def written(outcome: StepOutcome) -> dict[bytes, bytes]:
    """The definitions that a step puts, by key."""
    tables = {b"Table:%d" % table.id: render_stored(table) for _, table in outcome.puts}
    return tables | {b"DB:%d" % schema.id: render_stored(schema) for schema in outcome.schemas_put}


def comparable(definitions: dict[bytes, bytes], request: Request) -> dict[bytes, bytes]:
    """`definitions` without what counts versions, where TiDB has more of them, or fewer, than we do."""
    if request.action not in (MULTI_SCHEMA, DROP_FOREIGN_KEY):
        return definitions
    return {
        key: render_stored(msgspec.structs.replace(parse_stored(value, StoredTable), revision=0, update_timestamp=0))
        for key, value in definitions.items()
    }


def ids_before(job_id: int, world: World, sql: str, place: int) -> Request:
    """Request number `place` of a statement, with ids as TiDB gives them: counted on, the job's own id comes last."""
    taken = 0

    def count(wanted: int) -> range:
        nonlocal taken
        taken += wanted
        return range(wanted)

    list(world.requests(sql, count))
    world.last_id = job_id - 1 - taken if place == 0 else world.last_id
    return list(world.requests(sql))[place]


def replayed(stream: str) -> Iterator[tuple[World, Statement, Request, Job]]:
    """Each recorded job of ours before its first step, with our own request for it."""
    world = World("")
    for statement in statements(stream):
        words = statement.sql.split()
        if words[:1] == ["use"]:
            world.database = words[1]
        jobs = [job for job in statement.jobs.values() if job.type not in NOT_OURS]
        ddl = words[:1] and words[0].lower() in {
            "create",
            "alter",
            "drop",
            "rename",
            "truncate",
            "recover",
            "flashback",
        }
        if ddl:
            assert len(world.plan(statement.sql).requests) == len(jobs), statement.sql
            requests = [ids_before(job.id, world, statement.sql, place) for place, job in enumerate(jobs)]
            for request, job in zip(requests, jobs, strict=True):
                yield world, statement, request, job
        follow(world, statement)


@pytest.mark.parametrize("stream", STREAMS)
def test_definitions_of_all_steps_are_tidbs(stream):
    """Each step puts the recorded bytes and difference; the finished job holds the recorded definition."""
    seen = 0
    for world, statement, request, job in replayed(stream):
        operation = operation_of(request)
        for at in range(1, len(operation.steps)):
            version = statement.versions[0] if statement.versions else None
            outcome = world.step(request, at, version and version.start_ts)
            if outcome.done:
                check_binlog(outcome, statement.done[job.id], request)
            if outcome.diff is None or EXTRA.get(request.action) == at:
                continue
            assert version is not None
            statement.versions.pop(0)
            assert msgspec.structs.replace(version.diff, version=0) == outcome.diff, (statement.sql, at)
            if (operation.name, at) in OUR_OWN_WAY:
                continue
            seen += 1
            mine, theirs = comparable(written(outcome), request), comparable(version.puts, request)
            assert mine == theirs, (statement.sql, at)
        assert not [left for left in statement.versions if job is list(statement.jobs.values())[-1]], statement.sql
    assert seen == STEPS[stream]


def check_binlog(outcome: StepOutcome, job: Job, request: Request) -> None:
    """What Binlog holds at the job's end."""
    assert job.binlog is not None
    assert job.binlog.schema == outcome.schema
    if request.action == DROP_PARTITION:  # done with its first step, which cannot know when the last one will be
        assert outcome.table is not None
        assert job.binlog.table is not None
        stamp = job.binlog.table.update_timestamp
        outcome = replace(outcome, table=msgspec.structs.replace(outcome.table, update_timestamp=stamp))
    tables = {str(place).encode(): table for place, table in enumerate([outcome.table, *outcome.tables]) if table}
    theirs = {str(place).encode(): t for place, t in enumerate([job.binlog.table, *(job.binlog.tables or ())]) if t}
    assert comparable({key: render_stored(table) for key, table in tables.items()}, request) == comparable(
        {key: render_stored(table) for key, table in theirs.items()}, request
    )


@pytest.mark.parametrize("stream", STREAMS)
def test_jobs_are_tidbs(stream):
    """Each request has the recorded action, ids, names and involved tables, and survives the job's JSON."""
    for world, statement, request, job in replayed(stream):
        involved = None if job.involving_schema_info is UNSET else json.loads(bytes(job.involving_schema_info))
        mine = json.loads(msgspec.json.encode(request.involved)) or None

        assert (request.action, request.schema_id, request.table_id) == (job.type, job.schema_id, job.table_id)
        assert (request.schema_name, request.table_name) == (job.schema_name, job.table_name)
        assert mine == involved
        assert request.query == statement.sql == job.query
        if not request.parts:
            assert request_of(msgspec.structs.replace(job, raw_args=raw_arguments(request))) == request
        for at in range(1, len(operation_of(request).steps)):
            world.step(request, at)


def test_arguments_of_renames_are_tidbs():
    """TiCDC reads one kind of arguments, those of RENAME TABLES: they are the recorded bytes."""
    found = 0
    for stream in STREAMS:
        for world, _, request, job in replayed(stream):
            if request.action == 47:
                found += 1
                assert json.loads(bytes(raw_arguments(request))) == json.loads(bytes(job.raw_args))
            for at in range(1, len(operation_of(request).steps)):
                world.step(request, at)
    assert found == 3


def test_the_recordings_have_every_operation_but_few():
    """The golden comparison covers all actions except those that were never recorded."""
    recorded = {request.action for stream in STREAMS for *_, request, _ in walked(stream)}
    assert {1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26} <= recorded
    assert {32, 33, 34, 35, 36, 39, 40, 41, 42, 43, 44, 45, 47, 61, 64, 65, 67, 71, 72} <= recorded


def walked(stream: str) -> Iterator[tuple[World, Statement, Request, Job]]:
    """`replayed`, every job done."""
    for world, statement, request, job in replayed(stream):
        for at in range(1, len(operation_of(request).steps)):
            world.step(request, at)
        yield world, statement, request, job
