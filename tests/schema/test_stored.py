"""Definitions and DDL jobs as TiDB stores them, and the tables that come of them."""

import contextlib
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.codec_cases import DATA
from tests.golden.codec_cases import lines as golden_lines
from tests.kv.kv_recordings import STREAMS, lines, raw
from tidegate.codec.wire_table import flags_of, wire_table
from tidegate.kv import decode_meta_key
from tidegate.kv.keys import job_field
from tidegate.model.errors import SchemaError, TableNotFound
from tidegate.model.mysql import ActionType
from tidegate.schema.job import Job, JobState, SchemaDiff, decode_job_row, parse_job
from tidegate.schema.stored.definition import (
    Name,
    StoredColumn,
    StoredSchema,
    StoredTable,
    StoredType,
    parse_stored,
    render_stored,
    table_layout,
)
from tidegate.schema.stored.snapshot import SchemaHistory, StoredSnapshot, apply_job, is_circle, table_info

KINDS = {"Table": StoredTable, "DB": StoredSchema}


def history_of(stream: str) -> tuple[SchemaHistory, list[str]]:
    """The schema over time by the job table's rows, and the errors of jobs that contradict it."""
    history, errors = SchemaHistory(), []
    for line in lines(stream):
        if line["kind"] == "ddl_job" and line["value_b64"]:
            try:
                history.apply(decode_job_row(raw(line, "key_b64"), raw(line, "value_b64")), line["commit_ts"])
            except SchemaError as error:
                errors.append(str(error))
    return history, errors


@pytest.mark.parametrize("stream", STREAMS)
def test_definitions_come_back(stream):
    """Every table, database, schema difference and finished job in the schema's keys renders to its own bytes."""
    seen = set()
    for line in lines(stream):
        data = raw(line, "value_b64") if line["kind"] == "meta" else b""
        if data[:1] != b"{":
            continue
        key = decode_meta_key(raw(line, "key_b64"))
        named = KINDS.get((key.field or b"").partition(b":")[0].decode("latin-1"))
        kind = named or (Job if key.name == b"DDLJobHistory" else SchemaDiff)
        seen.add(kind)
        assert render_stored(parse_stored(data, kind)) == data

    assert seen >= {StoredTable, StoredSchema, Job, SchemaDiff}


@pytest.mark.parametrize("stream", STREAMS)
def test_jobs_are_read_from_their_rows(stream):
    """Each row of the job table holds the recorded job; finished ones are the recorded finished ones."""
    done = 0
    for line in lines(stream):
        if line["kind"] != "ddl_job" or not line["value_b64"]:
            continue
        job = decode_job_row(raw(line, "key_b64"), raw(line, "value_b64"))
        assert JobState(job.state).name.lower().replace("_", " ") == line["job_state"].replace("_", " ")
        if line.get("ddl_done"):
            done += 1
            assert json.loads(render_stored(job)) == line["job"]
            assert raw(line, "key_b64")[-8:] == (int.from_bytes(job_field(job.id)) | 1 << 63).to_bytes(8)

    assert done


@pytest.mark.parametrize("stream", STREAMS)
def test_jobs_yield_the_recorded_tables(stream):
    """Applying the finished jobs gives every recorded definition at its version: names, ids, types, flags, keys."""
    history, errors = history_of(stream)
    tables = [line for line in golden_lines(DATA / "codec" / stream / "events.jsonl.gz") if line["kind"] == "table"]

    assert not errors
    assert tables
    for line in tables:
        version = history.at(line["version"]).tables[line["tidb_table_info"]["id"]]
        assert listed(json.loads(render_stored(version.stored))) == listed(line["tidb_table_info"])
        assert (version.schema, version.stored.name.original) == (line["schema"], line["table"])
        info = table_info(version.stored, version.schema, version.version)
        shown = {column["name"]: column for column in line["columns"] if not column["hidden"]}
        assert {column.name: (column.id, int(column.type.code)) for column in info.columns} == {
            name: (column["id"], column["type"]) for name, column in shown.items()
        }
        assert flags_of(info) == {name: column["flag"] for name, column in shown.items()}
        assert {column.name for column in wire_table(info).columns} == {
            name for name, column in shown.items() if column["visible_to_cdc"]
        }


def listed(definition: dict) -> dict:
    """A definition whose empty lists are lists: copying inside TiCDC makes them of null."""
    lists = ("adding_definitions", "dropping_definitions")
    partition = definition["partition"]
    whole = partition and {**partition, **{name: partition[name] or [] for name in lists}}
    return {**definition, "index_info": definition["index_info"] or [], "partition": whole}


@given(text=st.binary(max_size=80) | st.text(max_size=80))
def test_junk_is_no_job(text):
    """Whatever a job_meta holds, it is a job or a SchemaError."""
    with contextlib.suppress(SchemaError):
        assert isinstance(parse_job(text), Job)


NUMBERS = itertools.count(1)
"""Every job has an id of its own."""


def stored(table_id: int, name: str = "t") -> StoredTable:
    """A table with an integer primary key."""
    column = StoredColumn(1, Name.of("Id"), type=StoredType(3, 3, 11, 0, "binary", "binary"))
    return StoredTable(table_id, Name.of(name), cols=[column], pk_is_handle=True)


def job(action: ActionType, table: StoredTable | None = None, **members) -> Job:
    """A finished job."""
    binlog = {"SchemaVersion": 1, "TableInfo": json.loads(render_stored(table)) if table else None}
    binlog |= members.pop("binlog", {})
    return parse_job(
        json.dumps(
            {"id": next(NUMBERS), "type": int(action), "state": 4, "schema_name": "db", "binlog": binlog, **members}
        )
    )


def test_truncated_ids_are_remembered():
    """TRUNCATE gives a new id and remembers the old one, whose late rows nobody wants."""
    snapshot = apply_job(StoredSnapshot(), job(ActionType.CREATE_TABLE, stored(5), schema_id=2, table_id=5), 10)
    after = apply_job(snapshot, job(ActionType.TRUNCATE_TABLE, stored(6), schema_id=2, table_id=5), 20)

    assert snapshot.table_of(5).version == 10
    assert after.table_of(5) is None
    assert after.table_of(6).stored.name.original == "t"
    assert after.truncated == {5}


def test_jobs_that_change_nothing():
    """IF NOT EXISTS leaves version 0, and actions that TiCDC does not follow leave the schema alone."""
    snapshot = apply_job(StoredSnapshot(), job(ActionType.CREATE_TABLE, stored(5), schema_id=2, table_id=5), 10)
    skipped = job(ActionType.CREATE_TABLE, stored(6), schema_id=2, binlog={"SchemaVersion": 0})

    assert apply_job(snapshot, skipped, 20) is snapshot
    assert apply_job(snapshot, job(ActionType.SHARD_ROW_ID, stored(5, "other"), schema_id=2), 20) is snapshot


def test_dropped_databases_take_their_tables_along():
    """DROP DATABASE removes the tables of that database alone."""
    snapshot = StoredSnapshot()
    for table_id, schema_id in ((5, 2), (6, 3)):
        made = job(ActionType.CREATE_TABLE, stored(table_id), schema_id=schema_id, table_id=table_id)
        snapshot = apply_job(snapshot, made, table_id)
    after = apply_job(snapshot, job(ActionType.DROP_SCHEMA, schema_id=2), 20)

    assert set(after.tables) == {6}
    assert set(after.logical) == {6}


@pytest.mark.parametrize("version", [1, 2])
def test_renames_of_several_tables(version):
    """Both forms of a job's arguments say what moves where; a table that moves twice has its last name."""
    snapshot = StoredSnapshot()
    for table_id in (5, 6):
        snapshot = apply_job(snapshot, job(ActionType.CREATE_TABLE, stored(table_id), schema_id=2), table_id)

    def rename(ids: list[int]) -> Job:
        moves = [{"table_id": i, "new_schema_id": 2} for i in ids]
        arguments = {"rename_table_infos": moves} if version == 2 else [[2] * len(ids), [2] * len(ids), [], ids, [], []]
        tables = [json.loads(render_stored(stored(i, f"new{i}"))) for i in ids]
        return job(ActionType.RENAME_TABLES, binlog={"MultipleTableInfos": tables}, raw_args=arguments, version=version)

    after = apply_job(snapshot, rename([5, 6]), 20)

    assert [after.tables[i].stored.name.original for i in (5, 6)] == ["new5", "new6"]
    twice = apply_job(snapshot, rename([5, 6, 5]), 20)
    assert [twice.tables[i].stored.name.original for i in (5, 6)] == ["new5", "new6"]
    assert (is_circle(rename([5, 6])), is_circle(rename([5, 6, 5]))) == (False, True)


def test_contradictions():
    """A job that drops what is not there, lacks its definition or comes too early is a SchemaError with id and ts."""
    history = SchemaHistory()
    history.apply(job(ActionType.CREATE_TABLE, stored(5), schema_id=2), 10)

    for wrong in (job(ActionType.DROP_TABLE, table_id=9), job(ActionType.ADD_COLUMN), job(ActionType.CREATE_SCHEMA)):
        with pytest.raises(SchemaError, match=r"DDL job \d+ at 20"):
            history.apply(wrong, 20)
    with pytest.raises(SchemaError, match="sort jobs"):
        history.apply(job(ActionType.DROP_TABLE, table_id=5), 9)
    with pytest.raises(SchemaError, match="no column for its handle"):
        table_layout(StoredTable(7, Name.of("broken"), pk_is_handle=True))


def test_history_forgets():
    """Snapshots below the oldest needed one are dropped, and asking for them is an error."""
    history = SchemaHistory()
    for ts in (10, 20, 30):
        history.apply(job(ActionType.CREATE_TABLE, stored(ts), schema_id=2), ts)
    history.forget(25)

    assert set(history.at(25).tables) == {10, 20}
    with pytest.raises(SchemaError, match="forgotten"):
        history.at(19)
    assert issubclass(TableNotFound, SchemaError)
