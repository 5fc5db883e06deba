"""The life of a job, transaction by transaction, is the one that a real TiDB was recorded with."""

from collections.abc import Iterator

import msgspec
import pytest

from tests.kv.kv_recordings import lines, raw, text_of
from tests.upstream.ddl.kit import TEXT, World
from tidegate.kv.keys import decode_meta_key, split_mvcc_key, table_prefix
from tidegate.kv.rows import decode_row
from tidegate.schema.job import parse_job
from tidegate.schema.modify_kind import ModifyKind
from tidegate.schema.stored.definition import StoredTable, StoredType, parse_stored, render_stored
from tidegate_upstream.tidb.engine import ColumnFamily
from tidegate_upstream.tidb.metadata import HISTORY, JOB
from tidegate_upstream.tidb.store_mvcc import WriteKind, decode_write, value_of

OWN = ("DDLProgress", "DDLStep")
"""Keys that only this owner has."""
STATEMENTS = {
    "create database gd": None,
    "alter table a add column c1 int": lambda world: world.add_column(),
    "alter table a drop column c1": lambda world: world.drop_column(),
    "alter table a add index i1(v)": lambda world: world.add_index(),
    "create unique index u1 on a(c3x)": lambda world: world.add_index(unique=True),
    "alter table a modify column v varchar(40)": lambda world: world.modify(
        ModifyKind.LOSSLESS, StoredType(8, 0, 20, 0, "binary", "binary")
    ),
    "rename table a to a2": lambda world: world.rename("a2"),
    "truncate table c": lambda world: world.truncate(),
    "alter table cached modify column x varchar(20)": lambda world: world.modify(ModifyKind.LOSSY, TEXT),
    "drop table cached": lambda world: world.drop_table(),
}


def steps_of(commits: list[set[str]]) -> list[set[str]]:
    """One set for each transaction; a job that only counts rows does not count as a step."""
    found: list[set[str]] = []
    for commit in commits:
        if not found or found[-1] != commit:
            found.append(commit)
    return [one for at, one in enumerate(found) if not (at and len(one) == 1 and one <= found[at - 1])]


def named(key: bytes, value: bytes | None) -> str | None:
    """What was written: the key without its ids, and of a job its states."""
    verb = "put" if value is not None else "delete"
    if key.startswith(b"m"):
        meta = decode_meta_key(key)
        name, field = meta.name.decode().split(":")[0], (meta.field or b"").decode("latin-1").split(":")[0]
        field = "" if name == "DDLJobHistory" else field
        return None if name in OWN or field in ("TID", "IID", "TARID") else f"{verb} {name} {field}"
    if key.startswith(table_prefix(HISTORY.stored.id)):
        return f"{verb} tidb_ddl_history"
    if not key.startswith(table_prefix(JOB.stored.id)):
        return None
    if value is None:
        return "delete tidb_ddl_job"
    meta = decode_row(JOB.layout, key, value).columns[5]
    job = parse_job(meta)
    return f"tidb_ddl_job state {job.state} schema_state {job.schema_state}"


def recorded() -> Iterator[tuple[str, list[set[str]]]]:
    """Statement and the transactions behind it."""
    sql, commits = "", {}
    for line in lines("ddl"):
        if line["kind"] == "sql":
            yield sql, [one for one in commits.values() if one]
            sql, commits = line["sql"], {}
        elif line["kind"] in ("meta", "ddl_job", "ddl_history"):
            value = None if line["op"] == "delete" else raw(line, "value_b64")
            name = named(raw(line, "key_b64"), value)
            commits.setdefault(line["commit_ts"], set()).update({name} - {None})


def ours(world: World, after: int) -> list[set[str]]:
    """The transactions committed after a timestamp."""
    found: dict[int, set[str]] = {}
    engine = world.engine
    for at, record in engine.scan(ColumnFamily.WRITE, b""):
        key, commit_ts = split_mvcc_key(at)
        write = decode_write(record)
        if commit_ts > after and write.kind in (WriteKind.PUT, WriteKind.DELETE):
            name = named(key, value_of(engine, key, write))
            found.setdefault(commit_ts, set()).update({name} - {None})
    return [found[ts] for ts in sorted(found) if found[ts]]


@pytest.fixture(scope="module")
def golden() -> dict[str, list[set[str]]]:
    """The recorded statements, each with its transactions."""
    return dict(recorded())


@pytest.mark.parametrize("sql", STATEMENTS)
def test_each_transaction_writes_what_was_recorded(sql: str, golden) -> None:
    """The same keys in the same transactions, with the same states of the job."""
    world = World()
    after = 0
    request = STATEMENTS[sql]
    if request is not None:
        after = world.cluster.storage.oracle.next()
        world.run(request(world))
    got = ours(world, after)
    if request is None:
        first = next(at for at, one in enumerate(got) if any("tidb_ddl_job" in name for name in one))
        got = got[first : first + 4]

    assert steps_of(got) == steps_of(golden[sql])


def test_ids_and_versions_begin_as_recorded() -> None:
    """The first database of a new TiDB has id 275, its job 276, its version 178, and it is the 71st job that ends."""
    world = World()
    job = world.meta().job(276)

    assert (world.schema_id, job.seq_num, job.binlog.schema_version) == (275, 71, 178)
    assert world.meta().diff(178).type == 1
    assert world.table_id == 277


def test_a_job_is_written_as_tidb_writes_it(golden_jobs) -> None:
    """Members of the row and of its JSON, in TiDB's order, of a CREATE DATABASE."""
    world = World()
    wanted = golden_jobs[276]
    job = world.meta().job(276)
    text = msgspec.json.decode(msgspec.json.encode(job))

    assert list(text) == [name for name in wanted if name not in ("session_vars", "involving_schema_info")]
    same = ("id", "type", "schema_id", "state", "raw_args", "schema_state", "query", "version", "seq_num")
    assert {name: text[name] for name in same} == {name: wanted[name] for name in same}
    assert text["binlog"]["DBInfo"] == wanted["binlog"]["DBInfo"]


@pytest.mark.parametrize("table", [JOB, HISTORY])
def test_the_tables_of_jobs_are_the_recorded_ones(table) -> None:
    """Member by member, but for the moment at which they were made."""
    wanted = parse_stored(
        msgspec.json.encode(msgspec.json.decode(text_of("initial_schema.json"))[table.stored.name.lower]), StoredTable
    )

    assert render_stored(table.stored) == render_stored(msgspec.structs.replace(wanted, update_timestamp=0))


@pytest.fixture(scope="module")
def golden_jobs() -> dict[int, dict[str, object]]:
    """The recorded history by job id."""
    found = {}
    for line in lines("ddl"):
        if line["kind"] == "meta" and decode_meta_key(raw(line, "key_b64")).name == b"DDLJobHistory":
            job = msgspec.json.decode(raw(line, "value_b64"))
            found[job["id"]] = job
    return found
