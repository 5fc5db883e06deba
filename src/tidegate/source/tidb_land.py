"""A TiDB's change log as a source, and landing it in the changelog.

`LogSource` gives the log to the engine directly; `LogLanding` is the landing loop of changelog/source.py for it:

    claim    the position, a timestamp; a new one begins with the log, or at start-ts; the schema there
    plan     parts above the position, cut at DDLs and into splits           driver
    read     one task per split: rows of its tables, mounted, as files       executors
    commit   rows, DDLs and position of a batch: one commit

A log has no partitions, so the position is the frontier: the ts up to which everything has landed.

    parts    ├───────┼───┼─────────────────┼─────┼──┤      files of the log
    DDLs               D1                    D2
    splits   (── p1 ──](p2](───── p3 ──────](p4 ](p5]      cut at DDLs, and where a split has its share of rows
                             ├ tables a c ┤
                             ├ tables b   ┤                one part of many rows: its tables are divided among several

A split has one schema, whose definitions travel with it.  What it reads depends on the log alone, so a batch that is
planned again after a crash lands the same rows.  A row has no message; `seq` is its number in its chunk, so rows of a
table keep their order: by transaction, within one deletes first and updates before inserts.

A lake needs tables that existed before its feed began: their definitions land as CREATE statements at the begin's ts,
before any row.  If it needs their rows as well (`complete`), it begins with the log, provided the log has them all, and
start-ts is ignored: its state from start-ts on is the same.  Event filters apply here to rows above start-ts.  DDLs
land unfiltered; the landing records those of ignore-txn-start-ts, since a landed DDL has no start_ts.

`LogSource` ends segments at a DDL, the target, the frontier, or behind the part with which it exceeds `SEGMENT_ROWS`,
so that a backlog has checkpoints; a part or a transaction is never cut for that.

    checkpoint        DDL              target                 frontier
    ────┼──────────────┼──────────────────┼──────────────────────┼───
        (── segment ───]                                              the DDL follows the rows of its own ts
                       (──── segment ─────]                           nothing above the target

Between two schema changes each replicated table has one definition.  The schema moves with the `after` that is asked
for, never back; looking ahead for the next DDLs moves nothing.  These are all up to the next replicated row, as a range
of rows has one schema.
The frontier also waits at a job that sends no DDL but changes where rows lie (EXCHANGE PARTITION with a filtered
table), and before a DDL that cannot be followed: the rows before that one are read, then `failure` gives the error.
"""

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from tidegate.changelog.changelog import changelog_uri, claim, commit_batch
from tidegate.changelog.files import ControlFiles, LandedFile, RowFiles, State, TableRows, TaskReport, landed_part
from tidegate.changelog.source import TRIGGER_MS, BatchLoop
from tidegate.engine.change import EventPosition, SourceDdl
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import TableFilter
from tidegate.engine.load_plan import begins_above
from tidegate.engine.ports import Source, Tasks
from tidegate.engine.reading import DdlJob, Reading
from tidegate.engine.segment import RUN_DDLS, RUN_TABLES
from tidegate.model.errors import ConfigError, HistoryLost, MadeAnew, SourceBehind, TidegateError
from tidegate.model.event import Ddl
from tidegate.model.left_out import LeftOut
from tidegate.model.path_counts import PathCounts
from tidegate.model.table import TableInfo, TableName
from tidegate.schema.columns import default_collation
from tidegate.schema.snapshot import Database, SchemaState
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate.source.tidb_changes import LogChanges, MountOptions, spans_of
from tidegate.source.tidb_ddl import DdlEvent, Timeline
from tidegate.source.tidb_log import KvLog, LogBegin, LogPart, SafePoint, Tables, definition_of, name_of, without

LOGGER: Final = logging.getLogger(__name__)
BATCH_ROWS: Final = 400_000
_TOPIC: Final = "tidb"
"""The topic name of a log in older changelogs, which have its position as partition 0 of this topic, with timestamps
for offsets."""

Definitions = Callable[[StoredSnapshot, Tables, int], list[Ddl]]
"""Returns the statements that create the databases and replicated tables of a snapshot, as DDLs of a ts."""


Settle = Callable[[int | None], None]
"""Is told the checkpoint of a changefeed that starts, None for a new one, before anything of the log is read."""


def timeline_of(
    log: KvLog, rules: TableFilter, mount: MountOptions, events: EventFilter, *, ticdc_texts: bool
) -> Timeline:
    """Return the timeline of a feed. Only the event filter ignore-txn-start-ts marks its DDLs."""
    return Timeline(
        log,
        rules,
        force=mount.force_replicate,
        keeps=mount.keeps,
        events=EventFilter(events.start_ts),
        ticdc_texts=ticdc_texts,
        bdr=mount.bdr,
    )


def _rows_below(begin: LogBegin, start_ts: int, tables: Iterable[TableVersion]) -> tuple[str, ...]:
    """Return the warning of a new feed whose tables may have rows below its start that the log does not bring."""
    names = [name_of(version) for version in tables] if start_ts > begin.ts or not begin.whole else []
    return (begins_above(names),) if names else ()


class LogLanding(BatchLoop):
    """Lands a change log into the changelog of a lake; start it once."""

    def __init__(
        self,
        log: KvLog,
        lake: str,
        feed: str,
        *,
        rules: TableFilter,
        definitions: Definitions,
        mount: MountOptions | None = None,
        events: EventFilter | None = None,
        start_ts: int | None = None,
        complete: bool = True,
        hold_as: str | None = None,
        check: Callable[[Iterable[TableVersion]], None] | None = None,
        trigger_ms: int = TRIGGER_MS,
        ticdc_texts: bool = False,
        settle: Settle = lambda _: None,
    ) -> None:
        """`hold_as` names feed and lake to the log (None: the feed alone); `ticdc_texts`: DDLs as TiCDC prints them."""
        super().__init__(feed, trigger_ms)
        self.changelog = changelog_uri(lake)
        self._log, self._definitions, self._start_ts, self._complete = log, definitions, start_ts, complete
        self._settle = settle
        self._mount = mount or MountOptions()
        self._safe_point = SafePoint(log, hold_as or feed)
        self._events = events or EventFilter()
        self._timeline = timeline_of(log, rules, self._mount, self._events, ticdc_texts=ticdc_texts)
        self._position_ts = 0
        self._check = check
        self._first: tuple[Ddl, ...] = ()
        self._shown: StoredSnapshot | None = None
        self._left_out: tuple[LeftOut, ...] = ()
        self._table_ids: tuple[int, ...] = ()

    def idle(self) -> bool:
        return not any(part.stored for part in self._log.parts(self._position_ts))

    def ended(self) -> bool:
        return self._log.ended()

    def _claim(self) -> State:
        """Raises SourceBehind for a log that is not there yet, HistoryLost for one that begins above the position, the
        errors of event filter expressions for an existing table, and those of `check`."""
        state = claim(self.changelog, self._feed, None, self._completed)
        if state.frontier is None and self._position_ts > self.needed_ts:  # else the target has these tables
            timeline = self._timeline
            self._first = tuple(self._definitions(timeline.snapshot, timeline.tables, self._position_ts))
            replicated = timeline.tables.replicated(timeline.snapshot)
            self.warnings = _rows_below(self._log.begin(), self._position_ts, replicated)
        elif self.carried is not None:
            replicated = self._timeline.tables.replicated(self._timeline.snapshot)
            names = [name_of(table) for table in replicated if table.version <= self.needed_ts]
            if added := [name for name in names if name.key not in self.carried]:
                self.warnings = (begins_above(added),)
        return state

    def _completed(self, state: State) -> State:
        """Return the state without positions; the timeline starts at the frontier, or at the start of a new feed."""
        strangers = sorted(set(state.positions) - {_TOPIC})
        if strangers:
            raise ConfigError(
                f"{self.changelog} was landed from topic {strangers[0]!r}; start a new changefeed in a separate lake"
            )
        parts = self._log.parts(0)
        if not parts:
            raise SourceBehind("the change log is empty: a running upstream writes a file within seconds")
        self._settle(state.frontier or self.needed_ts or None)
        high = parts[-1].high
        begin_ts = self._beginning() if state.frontier is None else state.frontier
        if state.frontier is None and 0 < self.needed_ts < begin_ts:
            raise MadeAnew(
                f"the target is at ts {self.needed_ts}, but its changelog {self.changelog} is missing: "
                f"read again, the source begins at ts {begin_ts}, so changes between would be missing. To continue: "
                "restore the changelog; remove start-ts, if it is the reason; or start a new changefeed with a new "
                "target"
            )
        if begin_ts > high:
            raise SourceBehind(
                f"the change log goes up to {high}, below {begin_ts}: its upstream has not written it yet"
            )
        self._safe_point.at(begin_ts)
        self._timeline.start(begin_ts, self.carried, self.needed_ts)
        self._tell()
        self._events.verify(self._timeline.tables.replicated(self._timeline.snapshot))
        if self._check is not None:
            self._check(self._timeline.tables.replicated(self._timeline.snapshot))
        self._position_ts = begin_ts
        return msgspec.structs.replace(state, positions={})

    def _tell(self) -> None:
        if self._shown is not self._timeline.snapshot:
            self._shown = self._timeline.snapshot
            self._left_out = self._timeline.tables.left_out(self._shown)
            self._table_ids = tuple(_Replicated.of(self._shown, self._timeline.tables).physical)

    def left_out(self) -> Sequence[LeftOut]:
        return self._left_out

    def table_ids(self) -> Sequence[int]:
        return self._table_ids

    def jobs(self) -> tuple[DdlJob, ...]:
        return self._timeline.running

    def _beginning(self) -> int:
        """The ts where landing begins. Raises HistoryLost for a lake that would lack the rows from before the log."""
        begin = self._log.begin()
        if self._start_ts is not None and not (self._complete and begin.whole):
            return self._start_ts
        if not begin.whole and begin.ts <= self.needed_ts:
            return self.needed_ts  # the target has what lies before
        if not begin.whole:
            raise HistoryLost(
                f"the change log was trimmed up to {begin.ts}, so a new lake would lack the rows written before. Load "
                "them with load-from, let the upstream start another log (--log with an empty directory), or skip them "
                "by a start-ts"
            )
        return begin.ts

    def _batch(self) -> None:
        low = self._position_ts
        parts = self._log.parts(low)
        if not parts:
            return
        self._timeline.read(parts[-1].high)
        batch = next_batch(self._timeline, low, parts, BATCH_ROWS, self._tasks.slots)
        if batch is None:
            return
        log = without(self._log, self._events.start_ts, replicated=self._mount.bdr)
        changes = LogChanges(log, low, batch.high, (), self._mount, self._events)
        reports = self._tasks.run(partial(land_split, self.changelog, changes), batch.pieces)
        if self._late:
            return
        events = (*map(DdlEvent, self._first), *batch.events)
        ddls = [
            SourceDdl(EventPosition(seq=seq), event.ddl, event.left_out, rows_follow=event.rows_follow)
            for seq, event in enumerate(events)
        ]
        controls = ControlFiles(self.changelog, FLUSH_BYTES)
        controls.add(ddls, ())
        files = [file for report in reports for file in report.files]
        counts = [table for report in reports for table in report.tables]
        report = TaskReport(
            start=low,
            position=batch.high,
            messages=sum(table.rows for table in counts) + len(ddls),
            ddls=len(ddls),
            tables=tuple(counts),
            files=(*files, *controls.close()),
        )
        self._tell()
        state = commit_batch(self.changelog, self._state, [report])
        self._first, self._position_ts = (), batch.high
        self._safe_point.at(batch.high)
        self._landed(state, {}, (report.path_counts for report in reports))
        corrupt = sum(report.corrupt for report in reports)
        if corrupt:
            LOGGER.warning("%s: the checksums of %d rows up to %d do not match", self._feed, corrupt, batch.high)


SEGMENT_ROWS: Final = 500_000
"""Rows of a segment: some seconds of work for a core, which a crash repeats at most, beside the part that exceeds
it."""


def end_of_segment(
    checkpoint: int, parts: Sequence[LogPart], stop: int | None, target: int | None, *, rows: int = SEGMENT_ROWS
) -> int | None:
    """Return the end of the next segment; None when there is no new part. `parts` are those above `checkpoint`."""
    if not parts:
        return None
    limits = [parts[-1].high, *(ts for ts in (stop, target) if ts is not None)]
    end, row_count = min(limits), 0
    for part in parts:
        row_count += sum(stored.rows for stored in part.stored)
        if row_count >= rows:
            end = min(end, part.high)
            break
    return end if end > checkpoint else None


def rows_by_table(parts: Sequence[LogPart], low: int, high: int) -> dict[int, int]:
    """Return an upper bound of the rows and index entries of each table id in (low, high]; other tables have none."""
    rows: dict[int, int] = {}
    for part in parts:
        for stored in part.stored:
            if stored.last_ts > low and stored.first_ts <= high:
                rows[stored.table_id] = rows.get(stored.table_id, 0) + stored.rows
    return rows


SHARE_ROWS: Final = 20_000
"""The fewest rows for a task."""


class LogSplit(NamedTuple):
    """Rows of `tables` with commit_ts in (low, high]; `rows` of them at most, index entries counted."""

    low: int
    high: int
    tables: tuple[TableVersion, ...]
    rows: int


class LogBatch(NamedTuple):
    """Everything above a position up to `high`, with the schema changes in between."""

    high: int
    pieces: tuple[LogSplit, ...]
    events: tuple[DdlEvent, ...]


def next_batch(timeline: Timeline, low: int, parts: Sequence[LogPart], rows: int, tasks: int) -> LogBatch | None:
    """Return the batch after `low`, of `rows` rows or a part more; None when there is none. `parts` are those above
    `low`. A DDL that the schema cannot follow ends the batch before it, and is raised at the start of the next one."""
    end = end_of_segment(low, parts, None, None, rows=rows)
    if end is None:
        return None
    row_count = sum(rows_by_table(parts, low, end).values())
    share = max(SHARE_ROWS, row_count // max(tasks, 1))
    next_ts, pieces, events = low, list[LogSplit](), list[DdlEvent]()
    while next_ts < end:
        stop = timeline.stop()
        upto = end if stop is None else min(end, stop)
        tables = {version.stored.id: version for version in timeline.tables.replicated(timeline.snapshot)}
        cut = partial(_pieces, parts, tables=tables, logical=timeline.snapshot.logical, share=share)
        try:
            events += timeline.walk(upto)
        except TidegateError:
            if upto - 1 == low:
                raise
            pieces += cut((next_ts, upto - 1)) if next_ts < upto - 1 else ()
            return LogBatch(upto - 1, tuple(pieces), tuple(events))
        pieces += cut((next_ts, upto))
        next_ts = upto
    return LogBatch(next_ts, tuple(pieces), tuple(events))


def _pieces(
    parts: Sequence[LogPart],
    span: tuple[int, int],
    tables: Mapping[int, TableVersion],
    logical: Mapping[int, int],
    share: int,
) -> Iterator[LogSplit]:
    for low, high in _cut(parts, span, share):
        counts: dict[int, int] = {}
        for physical_id, rows in rows_by_table(parts, low, high).items():
            table_id = logical.get(physical_id, 0)
            if table_id in tables:
                counts[table_id] = counts.get(table_id, 0) + rows
        for dealt in _dealt(counts, share):
            chosen = tuple(tables[table_id] for table_id in dealt)
            yield LogSplit(low, high, chosen, sum(counts[table_id] for table_id in dealt))


def _cut(parts: Sequence[LogPart], span: tuple[int, int], share: int) -> Iterator[tuple[int, int]]:
    """The range cut between parts, each piece with SHARE_ROWS rows, except the last one."""
    begin, high, rows = *span, 0
    for part in parts:
        if part.high <= begin:
            continue
        if part.low >= high:
            break
        rows += sum(stored.rows for stored in part.stored)
        if rows >= share and part.high < high:
            yield begin, part.high
            begin, rows = part.high, 0
    yield begin, high


def _dealt(counts: Mapping[int, int], share: int) -> list[list[int]]:
    hands: list[tuple[int, list[int]]] = []
    for table_id, rows in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if hands and hands[-1][0] + rows <= share:
            hands[-1] = hands[-1][0] + rows, [*hands[-1][1], table_id]
        else:
            hands.append((rows, [table_id]))
    return [dealt for _, dealt in hands]


FLUSH_BYTES: Final = 32 << 20


class SplitReport(NamedTuple):
    """A task's report; `corrupt` rows landed although their checksum is wrong."""

    files: tuple[LandedFile, ...]
    tables: tuple[TableRows, ...]
    corrupt: int
    path_counts: PathCounts


def land_split(changelog: str, log: LogChanges, piece: LogSplit) -> SplitReport:
    """Write the rows of a piece to files of the changelog at that URI; `log` has the options of reading, and its range
    and tables are ignored. Raises the errors of reading, mounting and writing."""
    files, corrupt, path_counts = RowFiles(changelog, flush_bytes=FLUSH_BYTES, messages=piece.rows), 0, PathCounts()
    changes = replace(log, after=piece.low, upto=piece.high, versions=piece.tables)
    for chunk in changes.in_order(list(map(name_of, piece.tables)), piece.low, piece.high):
        files.add([(TableName(part.batch.schema, part.batch.table), landed_part(part)) for part in chunk.parts])
        corrupt += chunk.corrupt
        path_counts.update(chunk.path_counts)
    return SplitReport(files.close(), files.counts(), corrupt, path_counts.of_stage("land"))


class _Stop(NamedTuple):
    """A change of the replicated tables' schema: the DDLs to send, and the schema after them."""

    ts: int
    ddls: tuple[SourceDdl, ...]
    snapshot: StoredSnapshot


class _Failure(NamedTuple):
    ts: int
    error: TidegateError


@dataclass(frozen=True, slots=True)
class _Replicated:
    """The replicated tables of a snapshot, also by physical id."""

    snapshot: StoredSnapshot
    versions: tuple[TableVersion, ...]
    physical: Mapping[int, TableVersion]

    @classmethod
    def of(cls, snapshot: StoredSnapshot, tables: Tables) -> "_Replicated":
        versions = tuple(tables.replicated(snapshot))
        return cls(
            snapshot,
            versions,
            {physical_id: version for version in versions for physical_id in version.stored.physical_ids},
        )


_NOTHING: Final[tuple[StoredSnapshot | None, tuple[LeftOut, ...]]] = None, ()
"""The left-out tables, with the schema they come from."""


class LogSource(Source):
    """Reads a change log. `hold_as` names the feed and its sink in their safe point. `start_ts` is the start of a new
    feed; None: that of the log. DDLs have their users' texts, or with `ticdc_texts` those that TiCDC sends."""

    def __init__(
        self,
        log: KvLog,
        hold_as: str,
        *,
        rules: TableFilter,
        mount: MountOptions,
        events: EventFilter,
        start_ts: int | None,
        ticdc_texts: bool = False,
        settle: Settle = lambda _: None,
    ) -> None:
        self._settle = settle
        self._log, self._rows = log, without(log, events.start_ts, replicated=mount.bdr)
        self._mount, self._events, self._start_ts, self._accept = mount, events, start_ts, rules.matches
        self._safe_point = SafePoint(log, hold_as)
        self._timeline = timeline_of(log, rules, mount, events, ticdc_texts=ticdc_texts)
        self._replicated = _Replicated.of(StoredSnapshot(), self._timeline.tables)
        self._left_out_at = _NOTHING
        self._warnings: tuple[str, ...] = ()
        self._carried: Container[tuple[str, str]] | None = None
        self._stops: deque[_Stop] = deque()
        self._failure: _Failure | None = None
        self._position_ts = 0
        self._high: int | None = None
        self._parts: Sequence[LogPart] = ()

    def start(self, tasks: Tasks, checkpoint_ts: int | None) -> int:  # noqa: ARG002 - nothing is read before it is asked
        """Start with the schema at `checkpoint_ts`, or at the start of a new feed; return that ts.

        Raises SourceBehind for a log that is empty or ends below it, ConfigError where its ddl-ts cannot change,
        HistoryLost for one that begins above it, MadeAnew for a target that lost its progress if the feed's safe point
        is above the begin of a trimmed log, and errors of event filter expressions for an existing table."""
        parts = self._log.parts(0)
        if not parts:
            raise SourceBehind("the change log is empty: a running upstream writes a file within seconds")
        self._settle(checkpoint_ts or None)
        given_ts = self._start_ts if checkpoint_ts is None else checkpoint_ts
        start_ts = parts[0].low if given_ts is None else given_ts
        if start_ts > parts[-1].high:
            raise SourceBehind(
                f"the change log goes up to {parts[-1].high}, below {start_ts}: its upstream has not written it yet"
            )
        last = self._safe_point.last() if given_ts is None else None
        if last is not None and last > start_ts and not self._log.begin().whole:
            raise MadeAnew(
                f"the target has no progress of this changefeed, which was at ts {last} when it last ran, and the "
                f"change log was trimmed up to ts {start_ts}: the target was emptied, or restored from a time before, "
                "and would miss the rows written before that. To continue: restore the target with its progress; "
                f"start at ts {start_ts} without them, with start-ts={start_ts}, or with a copy of them in the target; "
                "or start a new changefeed with a new target"
            )
        self._safe_point.at(start_ts)
        self._timeline.start(start_ts, self._carried, start_ts)
        self._replicated = _Replicated.of(self._timeline.snapshot, self._timeline.tables)
        is_new = checkpoint_ts is None
        self._warnings = _rows_below(self._log.begin(), start_ts, self._replicated.versions) if is_new else ()
        self._events.verify(self._replicated.versions)
        self._stops.clear()
        self._failure = None
        self._left_out_at = _NOTHING
        self._position_ts, self._high, self._parts = start_ts, start_ts, ()
        self.refresh()
        return start_ts

    def stop(self) -> None:
        """Do nothing: there is no background activity."""

    def failure(self) -> TidegateError | None:
        if self._failure is None or self._failure.ts - 1 > self._position_ts:
            return None
        return self._failure.error

    def idle(self) -> bool:
        stored = (stored for part in self._log.parts(self._position_ts) for stored in part.stored)
        return not any(part.last_ts > self._position_ts for part in stored)

    def ended(self) -> bool:
        return self._log.ended()

    def rests_at(self, ts: int) -> int:
        return self._log.rests_at(ts)

    def refresh(self) -> None:
        parts = self._log.parts(self._position_ts)
        if parts:
            self._parts, self._high = parts, parts[-1].high
            self._timeline.read(self._high)
            self._look()

    def frontier(self) -> int | None:
        high = self._high
        if high is not None and self._stops and not self._stops[-1].ddls:
            high = min(high, self._stops[-1].ts)
        if high is not None and self._failure is not None:
            high = min(high, self._failure.ts - 1)
        return high if high is None or self.rests_at(high) == high else high - 1

    def carry(self, state: SchemaState) -> None:
        self._carried = state.tables

    def definitions(self, ts: int) -> list[TableInfo]:
        self._move(ts)
        return [definition_of(version) for version in self._replicated.versions]

    def databases(self, ts: int) -> list[Database]:
        self._move(ts)
        schemas = [each for each in self._replicated.snapshot.schemas.values() if self._accept(each.name.original, "")]
        collations = [each.collate if each.collate != default_collation(each.charset) else "" for each in schemas]
        return [Database(each.name.original, each.charset, own) for each, own in zip(schemas, collations, strict=True)]

    def ddls(self, after: int, upto: int) -> list[SourceDdl]:
        """Return the DDLs with after < commit_ts <= upto in front of the next row. Those that bdr-mode or a filter of
        transactions leaves out are among them, marked; the engine applies the other filters."""
        self._move(after)
        return [ddl for stop in self._stops if stop.ts <= upto for ddl in stop.ddls]

    def changes(self, after: int, upto: int) -> LogChanges:
        """Return the row changes in (after, upto]; `upto` is at or before the last stop that `ddls` tells."""
        self._move(after)
        assert not self._stops or upto <= self._stops[-1].ts, (upto, self._stops[-1].ts)
        spans = spans_of(self._replicated.physical, self._parts, after, upto)
        versions = tuple(version for version in self._replicated.versions if version.stored.id in spans)
        return LogChanges(self._rows, after, upto, versions, self._mount, self._events)

    def release(self, checkpoint_ts: int) -> None:
        self._move(checkpoint_ts)
        self._safe_point.at(checkpoint_ts)

    def reading(self) -> Reading:
        snapshot = self._timeline.snapshot
        if self._left_out_at[0] is not snapshot:
            self._left_out_at = snapshot, self._timeline.tables.left_out(snapshot)
        ids = tuple(self._replicated.physical)
        jobs = self._timeline.running
        return Reading(left_out=self._left_out_at[1], table_ids=ids, warnings=self._warnings, jobs=jobs)

    def _move(self, ts: int) -> None:
        passed = None
        while self._stops and self._stops[0].ts <= ts:
            passed = self._stops.popleft()
            self._look()
        if passed is not None:
            self._replicated = _Replicated.of(passed.snapshot, self._timeline.tables)
        self._position_ts = max(self._position_ts, ts)

    def _look(self) -> None:
        timeline = self._timeline
        while self._failure is None and (ts := timeline.stop()) is not None and self._follows(ts):
            before = timeline.snapshot
            try:
                events = timeline.walk(ts)
            except TidegateError as error:
                self._failure = _Failure(ts, error)
                return
            ddls = [
                SourceDdl(
                    EventPosition(seq=seq), event.ddl, event.left_out, event.previous, rows_follow=event.rows_follow
                )
                for seq, event in enumerate(events)
            ]
            if ddls or self._moves(before, timeline.snapshot):
                self._stops.append(_Stop(ts, tuple(ddls), timeline.snapshot))

    def _follows(self, ts: int) -> bool:
        """Return True unless a replicated row, or what belongs to the last stop, lies between it and `ts`."""
        if not self._stops:
            return True
        last, snapshot = self._stops[-1], self._timeline.snapshot
        most = min(RUN_DDLS, RUN_TABLES // (len(snapshot.tables) + 1))
        if len(self._stops) >= most or not last.ddls or any(ddl.rows_follow for ddl in last.ddls):
            return False
        parts = self._parts[bisect_right(self._parts, last.ts, key=attrgetter("high")) :]
        between = (stored for part in takewhile(lambda part: part.low < ts, parts) for stored in part.stored)
        rows = (snapshot.table_of(each.table_id) for each in between if each.last_ts > last.ts and each.first_ts <= ts)
        return not any(version is not None and self._timeline.tables.replicates(version) for version in rows)

    def _moves(self, before: StoredSnapshot, after: StoredSnapshot) -> bool:
        pairs = ((before, after), (after, before))
        changed = (
            table for earlier, later in pairs for i, table in earlier.tables.items() if later.tables.get(i) is not table
        )
        return any(map(self._timeline.tables.replicates, changed))
