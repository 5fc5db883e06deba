"""The recorded SQL on an embedded TiDB, and what a change feed sees of it, beside what was recorded.

    recording ── sql ──► Session ──► store ──► change log ──► rows in commit order ──► mounter, DDL jobs
        └── row events and finished jobs of each statement ──────── the same? ──────────────┘

Ids and timestamps differ; column ids, flags, values, handles and the order of events do not.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec

from tests.kv.kv_recordings import lines
from tidegate.cli.mount import _row
from tidegate.codec.neutral import render
from tidegate.engine.mount import Mounter
from tidegate.kv.keys import RecordKey, decode_table_key
from tidegate.model.errors import SqlRefused, TableNotFound
from tidegate.model.kv_change import KvChange
from tidegate.schema.job import JOB_TABLE, Job, JobState, decode_job_row
from tidegate.schema.stored.snapshot import SchemaHistory, is_circle
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.log_writer import SpanFeed
from tidegate_upstream.tidb.session import Session

ASIDE = {
    "kind",
    "id",
    "table_ref",
    "table_id",
    "physical_table_id",
    "start_ts",
    "commit_ts",
    "row_id",
    "sql",
    "sql_idx",
}
HANDLE = {"handle", "handle_hex"}
HANDLE_KEY = 2
START_MS = 1_700_000_000_000
SYSTEM_IDS = 1 << 47


@dataclass
class Deed:
    """A statement and what it left: row events, and finished jobs as (action, query, whether it changed anything)."""

    sql: str
    refused: bool = False
    rows: list[dict[str, Any]] = field(default_factory=list)
    jobs: list[tuple[int, str, bool]] = field(default_factory=list)


def event(row: dict[str, Any]) -> dict[str, Any]:
    """A row event without ids and timestamps, nor the number of a row that no column shows."""
    image = row["columns"] or row["pre_columns"]
    hidden = row["handle_is_int"] and not any(column["flag"] & HANDLE_KEY for column in image)
    return {name: value for name, value in row.items() if name not in ASIDE | (HANDLE if hidden else set())}


def recorded(stream: str) -> list[Deed]:
    """What was recorded; rows that a lossy change of a column rewrites are left out, as TiKV's change feed does."""
    deeds: list[Deed] = []
    for line in lines(stream):
        if line["kind"] == "sql":
            deeds.append(Deed(line["sql"], bool(line["error"])))
        elif line["kind"] == "record" and line.get("row") and not deeds[-1].sql.startswith("alter"):
            deeds[-1].rows.append(event(line["row"]))
        elif line.get("ddl_done"):
            job, version = line["job"], (line["job"]["binlog"] or {}).get("SchemaVersion", 0)
            deeds[-1].jobs.append((job["type"], job["query"], version != 0))
    return deeds


def replayed(stream: str, first: tuple[str, ...] = ()) -> list[Deed]:
    """What an embedded TiDB makes of the same statements; `first` are run before them."""
    ticks = count(START_MS)
    cluster = Cluster.open(now_ms=lambda: next(ticks))
    session, deeds, ends = Session(cluster.node), [], []
    for sql in (*first, *(line["sql"] for line in lines(stream) if line["kind"] == "sql")):
        deeds.append(Deed(sql))
        try:
            session.execute(sql)
        except SqlRefused:
            deeds[-1].refused = True
        ends.append(cluster.storage.oracle.next())
    history = SchemaHistory()
    mounter = Mounter(history, force_replicate=True)
    seen: set[int] = set()
    for change in changes(cluster):
        _note(change, deeds[bisect_left(ends, change.commit_ts)], history, mounter, seen)
    cluster.close()
    return deeds[len(first) :]


def changes(cluster: Cluster) -> list[KvChange]:
    """All rows of user tables and DDL jobs that were ever committed, in the order of a change feed."""
    log = ChangeLog(cluster.storage.store, cluster.storage.oracle)
    feed = SpanFeed(log, b"t", b"u", 0)
    while not feed.initialized:
        feed.poll()
    log.advance()
    feed.poll()
    rows, _ = feed.take()
    feed.close()
    return rows


def _note(change: KvChange, deed: Deed, history: SchemaHistory, mounter: Mounter, seen: set[int]) -> None:
    key = decode_table_key(change.key)
    if not isinstance(key, RecordKey):
        return
    if key.table_id == JOB_TABLE.id:
        if change.value is not None:
            _finish(decode_job_row(change.key, change.value), change.commit_ts, deed, history, seen)
    elif key.table_id < SYSTEM_IDS:
        try:
            found = mounter.mount(change.key, change.value, change.old_value, change.commit_ts)
        except TableNotFound:
            return  # rows that a reorganisation copies into a partition to come
        if found is not None:
            deed.rows.append(event(msgspec.json.decode(render(_row(found, change.start_ts)))))


def _finish(job: Job, commit_ts: int, deed: Deed, history: SchemaHistory, seen: set[int]) -> None:
    if job.state != JobState.DONE or job.id in seen:
        return
    seen.add(job.id)
    deed.jobs.append((job.type, job.query, bool(job.binlog and job.binlog.schema_version)))
    if not is_circle(job):  # TiCDC, which recorded the rows, fails on one
        history.apply(job, commit_ts)
