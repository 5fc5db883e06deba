"""A change log whose DDLs come when SQL shows them (`ddl-ts=commit`), not when their jobs finish.

    MODIFY v       delete-only, write-only, write-reorg │ public     tombstone, done
    the log        job running ...                      │ TableInfo  job running, job done
    this one       -                                    │ job done   -
    rows                                                C │ C + 1: rows with a new value of their own

A job counts at the first commit that changes what SQL shows of a table or database (schema/stored/history.py), else
where it is done; its row then has the definition of that commit.  What changes downstream, and when:

    job                               event at
    CREATE, ADD COLUMN, ADD INDEX     done, which is when the element becomes public
    DROP COLUMN, INDEX, TABLE, ..     the first step: the element is no longer public
    MODIFY, rewriting rows            the step that makes the new column public; any other MODIFY when it is done
    several changes in one ALTER      the step that makes all of them visible
    TRUNCATE, RENAME, EXCHANGE        the step that moves the ids or names
    partitions: DROP, TRUNCATE, ..    the step that changes `definitions`; rows of other ids are no table's
    PARTITION BY, REMOVE PARTITIONING the same step, with the id that the table gets when the job is done
    failed or cancelled               none, as SQL never showed it

A log without keys of the schema has each job where it is done, as it is.

A MODIFY that rewrites rows does so silently, and the consumer converts its rows by the DDL's rule.  Rows that were
written meanwhile carry the new value already, which may differ (a TIMESTAMP is in the zone of its writer): they are
read again from (begin of the job, C] and follow the DDL as updates of commit_ts C + 1 and start_ts 0, since a row of
commit_ts C stands before the DDL for every consumer.  Without them a target at C is not yet what SQL shows there: a
changefeed never rests at C (`rests_at`), and shows no checkpoint C.  What is to stop or to be read at C stops and is
read at C + 1; the commit_ts that a lake stores with such a row is C.  The changelog keeps both marks (on the DDL and on
its rows), so a lake far behind its log has them, too.  The old value of such an update is what the DDL's rule makes of
the row, by which a target without keys finds it.

DROP TABLE, DROP DATABASE and TRUNCATE take a table away from SQL at C, while transactions that began on nodes with the
schema from before may still write its rows, until the job takes its next step at D.  RECOVER and FLASHBACK TABLE bring
these back, too.  So the changes in (C, D] stand in front of the DDL, as those of one transaction of commit_ts C, the
net change of each key.  The log seems to end below C until D has come, or its writer has ended.

    t45     r1      │ r2: node 2 has not seen the DROP     │                RECOVER t45: r1, r2
    the log r1      │ r2                                   │ delete-only
    this one r1  r2 C DROP                                 D

Source: recorded jobs, definitions and rows of DDLs under writers; what SQL returned at the same timestamps.
"""

import logging
import time
from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from heapq import merge
from itertools import groupby
from operator import attrgetter
from threading import Lock
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace as change

from tidegate.expr.cast import Target, convert, recast
from tidegate.kv.change_columns import changes_of, joined
from tidegate.kv.keys import table_span
from tidegate.kv.rows import decode_row, encode_row
from tidegate.model.errors import ConfigError
from tidegate.model.kv_change import KvChange, KvOp
from tidegate.model.mysql import ActionType
from tidegate.model.tso import MAX_TS, to_datetime
from tidegate.mysql.conversion import session_zone
from tidegate.mysql.layout import ColumnLayout, TableLayout
from tidegate.mysql.values import Context
from tidegate.schema.job import JOB_META, JOB_TABLE, Binlog, Job, JobState, decode_job_row
from tidegate.schema.stored.definition import StoredTable, column_layout, render_stored, table_layout
from tidegate.schema.stored.history import DefinitionHistory, defined_by
from tidegate.schema.stored.snapshot import REPLICATED, StoredSnapshot, rename_steps
from tidegate.source.tidb_ddl import JOBS, former_names, zone_of_job
from tidegate.source.tidb_log import KvLog, LogBegin, LogPart, Span, Stored, Window
from tidegate.source.tidb_segment import COMMIT, FINISH, SCHEMA, SegmentLog, in_order

LOG: Final = logging.getLogger(__name__)
_SCHEMAS: Final = frozenset({ActionType.CREATE_SCHEMA, ActionType.DROP_SCHEMA, ActionType.MODIFY_SCHEMA_CHARSET})
_REWRITE: Final = frozenset({ActionType.MODIFY_COLUMN, ActionType.MULTI_SCHEMA_CHANGE})
_TAKING: Final = frozenset({ActionType.DROP_SCHEMA, ActionType.DROP_TABLE, ActionType.TRUNCATE_TABLE})
_RENUMBERED: Final = frozenset({ActionType.ALTER_TABLE_PARTITIONING, ActionType.REMOVE_PARTITIONING})
"""They give the table another id when they are done; before that, rows move to partitions of their own."""
_PATIENCE_S: Final = 10.0
_BARE: Final = TableLayout(0, ())
"""The layout with which all columns of a row are unknown, by id."""


class Moved(NamedTuple):
    """Changes in (ts, upto] of tables that a DDL at `ts` takes away from SQL: they stand in front of it."""

    ts: int
    upto: int
    physical_ids: tuple[int, ...]

    @property
    def since(self) -> int:
        return self.ts

    @property
    def rows_ts(self) -> int:
        return self.ts

    def rewritten(self, rows: Any) -> Any | None:
        """Return the net change of each key of a table, as those of one transaction; None if nothing has changed."""
        keys, old_values, ops = (rows.column(name).to_pylist() for name in ("key", "old_value", "op"))
        first: dict[bytes, int] = {}
        last: dict[bytes, int] = {}
        for index, key in enumerate(keys):
            first.setdefault(key, index)
            last[key] = index
        chosen = [key for key in sorted(last) if ops[last[key]] != KvOp.DELETE or old_values[first[key]] is not None]
        old = [old_values[first[key]] for key in chosen]
        return _restamped(rows.take(pa.array([last[key] for key in chosen])), self, old) if chosen else None


class Switch(NamedTuple):
    """New columns that replace others at `ts`, of a job that began at `since`: their rows are those in (since, ts]."""

    ts: int
    since: int
    physical_ids: tuple[int, ...]
    column_ids: frozenset[int]
    layout: TableLayout
    """The table with both the old and the new columns."""
    pairs: list[tuple[ColumnLayout, ColumnLayout]]
    """The old columns, each with the one that replaces it."""
    zone: str
    """The time zone of the DDL's session."""

    def converted(self, key: bytes, value: bytes) -> bytes:
        """Return a row as the DDL's own rule leaves it, whatever new values it carries."""
        row, context = decode_row(self.layout, key, value), Context(to_datetime(self.ts), session_zone(self.zone, UTC))
        columns = dict(row.columns)
        for old, new in self.pairs:
            if new.id in row.stored and (stored := columns.get(old.id)) is not None:
                operand = recast(stored, old.type, new.type, context.zone)
                columns[new.id] = convert(operand, Target("", new.type, new.collation), context).value
        return encode_row(self.layout, row._replace(columns=columns, tail=None))[1]

    @property
    def upto(self) -> int:
        return self.ts

    @property
    def rows_ts(self) -> int:
        return self.ts + 1

    def rewritten(self, rows: Any) -> Any | None:
        """Return the rows of a table that carry a value of a new column, as updates; None if there are none."""
        last = {key: index for index, key in enumerate(rows.column("key").to_pylist())}
        values = rows.column("value").to_pylist()
        chosen = [
            index
            for key, index in sorted(last.items())
            if values[index] and self.column_ids & decode_row(_BARE, key, values[index]).unknown.keys()
        ]
        if not chosen:
            return None
        rows = rows.take(pa.array(chosen))
        return _restamped(
            rows, self, list(map(self.converted, *(rows.column(name).to_pylist() for name in ("key", "value"))))
        )


@dataclass
class ShownLog:
    """`log` with DDLs at the commit that shows them, or, with ddl-ts=finish, as it is. A pickled one has the switches
    that the driver has seen."""

    log: SegmentLog
    last: str = ""
    """The ddl-ts of the changefeed when it last ran; empty if it never did, or where that is not known."""
    switches: list[Switch | Moved] = field(default_factory=list)
    late: set[int] = field(default_factory=set)
    """The timestamps of all switches so far, also of those that nobody reads again."""
    _walk: "_Walk | None" = None
    _waits: tuple[int, float] = 0, 0.0
    """The DDL that is waited for, and when that is said."""

    _lock: Any = field(default_factory=Lock)
    """Threads of the changefeed read DDLs and look whether there are rows."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "switches": list(self.switches), "_walk": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock())

    def settle(self, checkpoint_ts: int | None) -> None:
        """Choose the ddl-ts of a changefeed at its checkpoint, None for a new one: what it was given, else its last
        one, else `commit`; `finish` for one with a checkpoint alone. Raises ConfigError where it cannot change."""
        former = self.last or self.log.ddl_ts
        chosen = self.log.ddl_ts or self.last or (COMMIT if checkpoint_ts is None else FINISH)
        if checkpoint_ts is not None and chosen != former:
            check_switch(self.log, checkpoint_ts, MAX_TS if former else checkpoint_ts)
        self.log, self.last = replace(self.log, ddl_ts=chosen), chosen

    @property
    def finishes(self) -> bool:
        """Return whether DDLs are where their jobs finish."""
        return (self.log.ddl_ts or self.last) == FINISH

    def begin(self) -> LogBegin:
        begin = self.log.begin()
        if self.finishes:
            return begin
        with self._lock:
            self._advanced(begin.ts)
        return begin._replace(snapshot=DefinitionHistory.of(begin.snapshot).snapshot(begin.ts))

    def set_safe_point(self, feed: str, ts: int) -> None:
        with self._lock:
            self.switches[:] = [switch for switch in self.switches if switch.rows_ts > ts]
        self.log.set_safe_point(feed, ts)

    def safe_point(self, feed: str) -> int | None:
        return self.log.safe_point(feed)

    def ended(self) -> bool:
        return self.log.ended()

    def rests_at(self, ts: int) -> int:
        return ts + (ts in self.late)

    def parts(self, low: int, high: int | None = None) -> Sequence[LogPart]:
        parts = []
        for part in self.log.parts(low, high) if high is not None or self._walk is None else self._ready(low):
            rewritten = [
                Stored(stored.table_id, stored.rows, switch.rows_ts, switch.rows_ts, stored.size_bytes)
                for switch in tuple(self.switches)
                if part.low < switch.rows_ts <= part.high
                for below in self.log.parts(switch.since, switch.upto)
                for stored in below.stored
                if stored.table_id in switch.physical_ids
            ]
            parts.append(part._replace(stored=(*part.stored, *rewritten)) if rewritten else part)
        return parts

    def rows(self, low: int, high: int, spans: Sequence[Span]) -> Iterator[KvChange]:
        if tuple(spans) == (JOBS,) and not self.finishes:
            yield from self._jobs(low, high)
            return
        for window in self.windows(low, high, spans):
            yield from merge(*map(changes_of, window), key=in_order)

    def windows(self, low: int, high: int, spans: Sequence[Span]) -> Iterator[Window]:
        for switch in tuple(self.switches):
            if low < switch.rows_ts <= high:
                if low < switch.ts:
                    yield from self.log.windows(low, switch.ts, spans)
                if rows := list(self._rewritten(switch, spans)):
                    yield rows
                low = switch.ts
        yield from self.log.windows(low, high, spans)

    def _ready(self, low: int) -> Sequence[LogPart]:
        """The parts above `low`, below a DDL in front of which more rows may come."""
        parts = self.log.parts(low)
        if not parts or self.finishes:
            return parts
        with self._lock:
            walk = self._advanced(parts[-1].high)
            waits_ts = walk.waits_ts(low)
            if waits_ts is not None and self.log.ended():  # no node of then writes when another one begins
                walk.close(parts[-1].high)
                waits_ts = None
        if waits_ts is None:
            return parts
        if waits_ts != self._waits[0]:
            self._waits = waits_ts, time.monotonic() + _PATIENCE_S
        elif time.monotonic() > self._waits[1]:
            self._waits = waits_ts, float("inf")
            LOG.warning(
                "the changefeed waits below the DDL at %d, which drops or truncates a table: transactions that began "
                "before it may still change rows, and hold back the DDL's job, too (ADMIN SHOW DDL JOBS)",
                waits_ts,
            )
        parts = self.log.parts(low, waits_ts - 1) if low < waits_ts - 1 else ()
        return [*parts[:-1], *(part._replace(high=min(part.high, waits_ts - 1)) for part in parts[-1:])]

    def _advanced(self, high: int) -> "_Walk":
        if self._walk is None:
            self.switches.clear()
            self._walk = _Walk(self.log, self.switches)
        self._walk.advance(high)
        self.late.update(switch.ts for switch in self.switches if switch.rows_ts > switch.ts)
        return self._walk

    def _jobs(self, low: int, high: int) -> list[KvChange]:
        with self._lock:
            if self._walk is not None and low < self._walk.low:
                self._walk = None
            walk = self._advanced(high)
            walk.low, walk.jobs = low, [row for row in walk.jobs if row.commit_ts > low]
            return [row for row in walk.jobs if row.commit_ts <= high]

    def _rewritten(self, switch: Switch | Moved, spans: Sequence[Span]) -> Iterator[Any]:
        """The rows that a DDL brings, table by table."""
        for physical_id in sorted(switch.physical_ids):
            own = table_span(physical_id)
            if not any(start <= own[0] and (not end or own[1] <= end) for start, end in spans):
                continue
            parts = [part for window in self.log.windows(switch.since, switch.upto, (own,)) for part in window]
            if parts and (rows := switch.rewritten(joined(parts))) is not None:
                yield rows


def check_switch(log: KvLog, ts: int, upto: int) -> None:
    """Raise ConfigError if a changefeed at `ts`, whose target may be ahead of that up to `upto`, cannot change its
    ddl-ts: a DDL that SQL shows before its job finishes would be sent twice, or not at all."""
    parts = log.parts(0)
    walk = _Walk(log, [])
    walk.advance(parts[-1].high if parts else walk.low)
    for shown_ts, done_ts, query in walk.early.values():
        if shown_ts <= upto and done_ts > ts:
            ends = "has not finished" if done_ts == MAX_TS else f"finished at {done_ts}"
            raise ConfigError(
                f"ddl-ts cannot be changed now: the changefeed is at {ts}, and the DDL {query!a:.200}, "
                f"which SQL shows since {shown_ts}, {ends}; run the changefeed with its former ddl-ts until it is "
                f"beyond that, then change it"
            ).at(commit_ts=shown_ts)


def _replaced(old: StoredTable, new: StoredTable, job: Job) -> list[tuple[ColumnLayout, ColumnLayout]]:
    """The columns of `old` that others replaced, with these: of their name, or of the one that a CHANGE gives them."""
    old_ids, ids = ({column.id for column in table.cols or []} for table in (old, new))
    gone = {column.name.lower: column for column in old.cols or [] if column.id not in ids}
    come = {column.name.lower: column for column in new.cols or [] if column.id not in old_ids}
    former = former_names(job.query, job.schema_name)
    names = [(former.get(name, name), name) for name in come]
    return [(column_layout(gone[was]), column_layout(come[name])) for was, name in names if was in gone]


def _restamped(rows: Any, switch: Switch | Moved, old_values: list[bytes | None]) -> Any:
    columns = {
        "start_ts": np.zeros(len(rows), np.int64),
        "commit_ts": np.full(len(rows), switch.rows_ts),
        "old_value": pa.array(old_values, rows.schema.field("old_value").type),
    }
    arrays = [columns.get(name, rows.column(name)) for name in rows.schema.names]
    return pa.RecordBatch.from_arrays(list(map(pa.array, arrays)), schema=rows.schema)


class _Walk:
    """The jobs of a log, each where SQL shows it first."""

    def __init__(self, log: KvLog, switches: list[Switch | Moved]) -> None:
        self.low, snapshot, _ = log.begin()
        self.jobs: list[KvChange] = []
        self._log, self._switches, self._at = log, switches, self.low
        self._history = DefinitionHistory.of(snapshot)
        self._snapshot = self._history.snapshot(self._at)
        self._begun: dict[bytes, int] = {}
        self._sent: set[int] = set()
        self._taken: dict[bytes, tuple[int, int, tuple[int, ...]]] = {}
        """By the key of a job that has taken tables away: where, the state then, and the physical ids."""
        self.early: dict[int, tuple[int, int, str]] = {}
        """By job: where SQL showed it, where it finished (MAX_TS: not yet), and its text, if these are two commits."""

    def advance(self, high: int) -> None:
        """Read up to `high`."""
        if high <= self._at:
            return
        rows = self._log.rows(self._at, high, (SCHEMA, JOBS))
        for (commit_ts, _), of_transaction in groupby(rows, key=lambda row: (row.commit_ts, row.start_ts)):
            group = list(of_transaction)
            before, is_defining = self._snapshot, False
            for row in group:
                if row.key[:1] == b"m" and defined_by(row.key) is not None:
                    self._history.change(row.key, row.value if row.op is KvOp.PUT else None, commit_ts)
                    is_defining = True
            if is_defining:
                self._snapshot = self._history.snapshot(commit_ts)
            for row in group:
                if row.key[:1] == b"t":
                    self._follow(row, before)
        self._at = high
        self._history.release(high)

    def waits_ts(self, low: int) -> int | None:
        """Return the ts of the first DDL above `low` in front of which more rows may come."""
        return min((ts for ts, _, _ in self._taken.values() if ts > low), default=None)

    def close(self, upto: int) -> None:
        """End the wait for more rows."""
        for key in list(self._taken):
            self._close(key, upto)

    def _close(self, key: bytes, upto: int) -> None:
        ts, _, physical_ids = self._taken.pop(key)
        insort(self._switches, Moved(ts, upto, physical_ids), key=attrgetter("ts"))

    def _follow(self, row: KvChange, before: StoredSnapshot) -> None:
        job = decode_job_row(row.key, row.value) if row.op is KvOp.PUT and row.value else None
        if row.key in self._taken and (job is None or job.schema_state != self._taken[row.key][1]):
            self._close(row.key, row.commit_ts)
        if job is None or not row.value:
            self._begun.pop(row.key, None)
            return
        after = self._snapshot
        since = self._begun.setdefault(row.key, row.commit_ts - 1)
        if job.id in self.early and job.state == JobState.DONE:
            shown_ts, _, query = self.early[job.id]
            self.early[job.id] = shown_ts, row.commit_ts, query
        is_shown = before.tables != after.tables or before.schemas != after.schemas
        versions = [each.tables[job.table_id].stored for each in (before, after) if job.table_id in each.tables]
        is_moved = job.type not in _RENUMBERED or len({version.physical_ids for version in versions}) > 1
        is_due = job.state == JobState.DONE or (is_shown and is_moved)
        if job.id in self._sent or job.type not in REPLICATED or not is_due:
            return
        self._sent.add(job.id)
        if job.state != JobState.DONE:
            self.early[job.id] = row.commit_ts, MAX_TS, job.query
        gone = before.tables.keys() - after.tables.keys() if job.type in _TAKING else ()
        if gone:  # a log without keys of the schema shows none
            physical_ids = tuple(number for table_id in gone for number in before.tables[table_id].stored.physical_ids)
            self._taken[row.key] = row.commit_ts, job.schema_state, physical_ids
        if is_shown or (job.binlog is not None and job.binlog.schema_version and after.schemas):
            job = change(job, state=JobState.DONE, binlog=_binlog(job, before, after))
        decoded = decode_row(JOB_TABLE, row.key, row.value)
        columns = {**decoded.columns, JOB_META: render_stored(job)}
        self.jobs.append(change(row, value=encode_row(JOB_TABLE, decoded._replace(columns=columns))[1]))
        for table_id, version in after.tables.items() if job.type in _REWRITE else ():
            old = before.tables.get(table_id, version)
            ids, old_ids = ({column.id for column in each.stored.cols or []} for each in (version, old))
            if not (old_ids - ids and ids - old_ids):
                continue
            pairs = _replaced(old.stored, version.stored, job)
            both = table_layout(old.stored)
            both = replace(both, columns=both.columns + tuple(new for _, new in pairs))
            physical_ids, zone = version.stored.physical_ids, zone_of_job(job)
            self._switches.append(
                Switch(row.commit_ts, since, physical_ids, frozenset(ids - old_ids), both, pairs, zone)
            )


def _binlog(job: Job, before: StoredSnapshot, after: StoredSnapshot) -> Binlog:
    """The result of a job, with the definitions that SQL shows now."""
    binlog = job.binlog or Binlog()
    binlog = change(binlog, schema_version=binlog.schema_version or 1)
    if job.type in _SCHEMAS:
        return change(binlog, schema=binlog.schema or after.schemas.get(job.schema_id))
    if job.type == ActionType.RENAME_TABLES:
        return change(binlog, tables=[after.tables[step.table_id].stored for step in rename_steps(job)])
    if binlog.tables:
        return change(binlog, tables=[after.tables[table.id].stored for table in binlog.tables])
    changed = [table_id for table_id, version in after.tables.items() if before.tables.get(table_id) is not version]
    kept = [table_id for table_id in changed if table_id in before.tables]
    named = [] if binlog.table is None else [binlog.table.id]
    named += kept if job.type == ActionType.EXCHANGE_TABLE_PARTITION else [job.table_id]
    table_id = next((each for each in (*named, *changed) if each in after.tables), None)
    table = None if table_id is None else after.tables[table_id].stored
    if table is not None and table.id == job.table_id and job.type in _RENUMBERED:
        arguments = msgspec.json.decode(job.raw_args)
        parts = arguments["part_info"] if isinstance(arguments, dict) else arguments[1]  # a list in version 1
        partition = None if job.type == ActionType.REMOVE_PARTITIONING else table.partition
        table = change(table, id=parts["new_table_id"], partition=partition)
    return change(binlog, table=table)
