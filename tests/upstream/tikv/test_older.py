"""What TiDB 7.5 and 8.1 send: transcripts written by hand, after what is read in their sources, of which no traffic was
recorded."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.tikv.test_feed_rim import BEGIN, Row, Store, first, resolved, rows
from tests.upstream.tikv.test_capture import WORK, Served, run_feed, served
from tidegate.kv.change_columns import changes_of
from tidegate.kv.keys import table_span
from tidegate.kv.rows import decode_old_row, encode_old_row
from tidegate.model.kv_change import KvChange, KvOp
from tidegate.schema.job import JOB_META, JOB_TABLE
from tidegate.schema.stored.history import defined_by
from tidegate.source.tidb_segment import decode_segment, encode_segment, segments
from tidegate.tikv.stubs import cdcpb_pb2 as cdcpb

_ = served
OF_ALL: Final = (
    *("id", "type", "schema_id", "table_id", "schema_name", "table_name", "state", "warning", "err", "err_count"),
    *("row_count", "raw_args", "schema_state", "snapshot_ver", "real_start_ts", "start_ts", "dependency_id", "query"),
    *("binlog", "version", "reorg_meta", "multi_schema_info", "priority", "seq_num", "charset", "collate"),
    "admin_operator",
)
JOBS: Final = {
    "7.5": OF_ALL,
    "8.1": (*OF_ALL, "involving_schema_info", "trace_info", "bdr_role", "cdc_write_source"),
}
"""The members of a job, of all that TiDB 8.5 writes."""
NEWER: Final = {"affect_column", "condition_expr_string", "global_index_version", "changing_type", "revision"}
"""Members of definitions that they do not have."""
RENAMES: Final = ("old_schema_id", "new_schema_id", "new_table_name", "table_id", "old_schema_name", "old_table_name")


def older(row: KvChange, version: str) -> KvChange:
    """A row of the m-prefix or of the DDL jobs as an older TiDB writes it."""
    start, end = table_span(JOB_TABLE.id)
    if row.value is None or row.op is not KvOp.PUT:
        return row
    if start <= row.key < end:
        columns = dict(decode_old_row(row.value))
        job = json.loads(columns[JOB_META])
        told = {name: job[name] for name in JOBS[version] if name in job}
        columns[JOB_META] = json.dumps(told | old_arguments(job)).encode()
        return msgspec.structs.replace(row, value=encode_old_row(columns))
    if row.key.startswith(b"m") and defined_by(row.key) is not None:
        return msgspec.structs.replace(row, value=json.dumps(without(json.loads(row.value))).encode())
    return row


def old_arguments(job: dict[str, Any]) -> dict[str, Any]:
    """Arguments of version 1: lists; those of a RENAME of several tables count, the others are not read."""
    moves = (job["raw_args"] or {}).get("rename_table_infos")
    return {"version": 1, "raw_args": [[move.get(name) for move in moves] for name in RENAMES] if moves else [1]}


def without(told: Any) -> Any:
    """A definition without newer members."""
    match told:
        case dict():
            return {name: without(value) for name, value in told.items() if name not in NEWER}
        case list():
            return [without(each) for each in told]
    return told


@pytest.mark.parametrize("version", JOBS)
def test_jobs_and_definitions(served: Served, tmp_path: Path, version: str) -> None:
    """A log with the definitions and jobs of an older TiDB brings what that of 8.5 does, also of a RENAME of several
    tables."""
    renames = "RENAME TABLE test.a TO test.a2, test.p TO test.p3"
    ts = served.execute(*WORK, renames, "INSERT INTO test.a2 VALUES (9, 9, 9)")
    served.writer.write(empty=True)
    log = tmp_path / "older"
    log.mkdir()
    for low, high, path in segments(served.own):
        _, found = decode_segment(path.read_bytes())
        (log / path.name).write_bytes(encode_segment(low, high, [older(row, version) for row in found]))
    made = [
        run_feed(tmp_path, name, ts, source=f"tidb://{directory}?ddl-ts=commit")
        for name, directory in (("newer", served.own), ("older", log))
    ]
    assert made[0] == made[1]
    assert {"test.a2", "test.p3"} <= made[0].keys()


def test_a_heartbeat_of_older_stores() -> None:
    """TiKV below 8.5 repeats the PREWRITE of a long value without it when a transaction's time is prolonged: the first
    one has the value."""
    key = {"start_ts": BEGIN + 1, "key": b"k", "op_type": Row.PUT}

    async def play(_store: Store) -> AsyncIterator[Any]:
        yield rows(Row(type=cdcpb.Event.PREWRITE, value=b"long", old_value=b"before", **key))
        beat = cdcpb.Event.Entries(entries=[Row(type=cdcpb.Event.PREWRITE, old_value=b"before", **key)])
        commit = cdcpb.Event.Entries(entries=[Row(type=cdcpb.Event.COMMIT, commit_ts=BEGIN + 3, **key)])
        for entries in (beat, commit):
            yield cdcpb.ChangeDataEvent(events=[cdcpb.Event(region_id=2, request_id=1, entries=entries)])
        yield resolved(BEGIN + 9)

    store = Store(play)
    got = store.run(first)
    changes = [change for event in got[:-1] for change in changes_of(event.rows)]
    (change,) = changes
    assert (change.value, change.old_value, change.commit_ts) == (b"long", b"before", BEGIN + 3)
    assert store.requests[0].header.ticdc_version == "8.5.4"
