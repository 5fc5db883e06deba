"""A TiDB's change log as a source: its end is the frontier, its finished DDL jobs are the DDLs.

    log       ├──── part ────┼──── part ────┼──── part ────┤ frontier
    asked                 after
    jobs           J1            J2      J3                   J2: of a table that is not replicated
    schema    ─────┴─ holds ──────────────┴─ next stop        found ahead, once: polling a silent log reads nothing

Between two stops each replicated table has one definition, so `changes` is a value of definitions and timestamps.  The
schema moves with the `after` that is asked for, never back; looking ahead moves nothing.

A log tells all DDLs of a ts at once, and a round ends behind them: those at `after` itself are done, or are older than
the feed, so `ddls` begins above it.

A stop without a DDL to send may still change where rows of a replicated table lie (EXCHANGE PARTITION with a table that
the filter leaves out).  The frontier waits there until a round has come as far.  It also waits before a DDL that cannot
be followed: what precedes that DDL is read, then `failure` tells the error.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidegate.engine.change import Place, PlacedDdl
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import TableFilter
from tidegate.engine.ports import Reading, Source, Tasks
from tidegate.model.errors import TidegateError
from tidegate.model.feed_errors import MadeAnew, SourceBehind
from tidegate.model.left_out import LeftOut
from tidegate.model.table import TableInfo
from tidegate.schema.snapshot import SchemaState
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate.source.tidb.changes import LogChanges, MountOptions, spans_of
from tidegate.source.tidb.log import KvLog, LogPart, SafePoint, without
from tidegate.source.tidb.tables import Tables, definition_of
from tidegate.source.tidb.timeline import Timeline


class _Stop(NamedTuple):
    """Where the schema of the replicated tables changes: the DDLs that are told, and the schema behind them."""

    ts: int
    ddls: tuple[PlacedDdl, ...]
    snapshot: StoredSnapshot


class _Failure(NamedTuple):
    """A DDL that cannot be followed."""

    ts: int
    error: TidegateError


@dataclass(frozen=True, slots=True)
class _Replicated:
    """The tables of a snapshot whose rows are sent, and the same by the ids of their keys."""

    snapshot: StoredSnapshot
    versions: tuple[TableVersion, ...]
    physical: Mapping[int, TableVersion]

    @classmethod
    def of(cls, snapshot: StoredSnapshot, tables: Tables) -> "_Replicated":
        versions = tuple(tables.replicated(snapshot))
        return cls(snapshot, versions, {one: version for version in versions for one in version.stored.physical_ids})


_NOTHING: Final[tuple[StoredSnapshot | None, tuple[LeftOut, ...]]] = None, ()
"""Which tables are left out, by the schema that tells it."""


class LogSource(Source):
    """Reads a change log. `hold_as` names the feed and its sink to the log, which keeps what they need.

    `start_ts` is where a new feed begins; None begins with the log.  DDLs have the texts of their users, or those that
    TiCDC makes of them by `ticdc_texts`."""

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
    ) -> None:
        self._log, self._rows = log, without(log, events.start_ts, replicated=mount.bdr)
        self._mount, self._events, self._start_ts = mount, events, start_ts
        self._hold = SafePoint(log, hold_as)
        left_out = EventFilter(events.start_ts)
        self._timeline = Timeline(
            log,
            rules,
            force=mount.force_replicate,
            keeps=mount.keeps,
            events=left_out,
            ticdc_texts=ticdc_texts,
            bdr=mount.bdr,
        )
        self._replicated = _Replicated.of(StoredSnapshot(), self._timeline.tables)
        self._told = _NOTHING
        self._known: Container[tuple[str, str]] | None = None
        self._next: _Stop | None = None
        self._failure: _Failure | None = None
        self._at = 0
        self._high: int | None = None
        self._parts: Sequence[LogPart] = ()

    def start(self, tasks: Tasks, checkpoint_ts: int | None) -> int:  # noqa: ARG002 - nothing is read before it is asked
        """Take up the schema at `checkpoint_ts`, or where a new feed begins; return that ts.

        Raises SourceBehind for a log that is empty or ends below it, HistoryLost for one that begins above it, and what
        is wrong with expressions of event filters for a table that is there."""
        parts = self._log.parts(0)
        if not parts:
            raise SourceBehind("the change log is empty: an upstream that writes it makes a file within seconds")
        known = self._start_ts if checkpoint_ts is None else checkpoint_ts
        at = parts[0].low if known is None else known
        if at > parts[-1].high:
            raise SourceBehind(
                f"the change log goes up to {parts[-1].high}, below {at}: its upstream does not write it yet"
            )
        if known is None:
            self._check_begun(at)
        self._hold.at(at)
        self._timeline.start(at, self._known, at)
        self._replicated = _Replicated.of(self._timeline.snapshot, self._timeline.tables)
        self._events.verify(self._replicated.versions)
        self._next = self._failure = None
        self._told = _NOTHING
        self._at, self._high, self._parts = at, parts[-1].high, ()
        self.refresh()
        return at

    def _check_begun(self, at: int) -> None:
        """Raise MadeAnew for a target without progress of a feed that has been further than a trimmed log begins."""
        last = self._hold.last()
        if last is None or last <= at or self._log.begin().whole:
            return
        raise MadeAnew(
            f"the target has no progress of this changefeed, which was at ts {last} when it last ran, and the change "
            f"log was trimmed up to ts {at}: the target was emptied, or restored from a time before, and would miss "
            f"the rows written before that. Ways out: restore the target with its progress; begin at ts {at} without "
            f"them, with start-ts={at}, or with a copy of them in the target; or start a fresh changefeed into a fresh "
            "target"
        )

    def stop(self) -> None:
        """Do nothing: no activity goes on by itself."""

    def failure(self) -> TidegateError | None:
        """Return why nothing can be read above the ts that was asked for last: a DDL that cannot be followed."""
        if self._failure is None or self._failure.ts - 1 > self._at:
            return None
        return self._failure.error

    def idle(self) -> bool:
        """Return True if nothing but time lies above the ts that was asked for, or released, last."""
        stored = (stored for part in self._log.parts(self._at) for stored in part.stored)
        return not any(one.last_ts > self._at for one in stored)

    def refresh(self) -> None:
        """Take notice of parts that were written since, and of the finished DDL jobs in them."""
        parts = self._log.parts(self._at)
        if parts:
            self._parts, self._high = parts, parts[-1].high
            self._timeline.read(self._high)
            self._look()

    def frontier(self) -> int | None:
        """Return the end of the log as of the last `refresh`, or where reading waits; None before `start`."""
        found = self._high
        if found is not None and self._next is not None and not self._next.ddls:
            found = min(found, self._next.ts)
        if found is not None and self._failure is not None:
            found = min(found, self._failure.ts - 1)
        return found

    def carry(self, known: SchemaState) -> None:
        """Take notice of the tables that a feed which goes on has: others that had no key stay out."""
        self._known = known.tables

    def definitions(self, ts: int) -> list[TableInfo]:
        """Return the replicated tables at `ts`, as rows above it are mounted."""
        self._move(ts)
        return [definition_of(version) for version in self._replicated.versions]

    def ddls(self, after: int, upto: int) -> list[PlacedDdl]:
        """Return the DDLs of the first stop with after < commit_ts <= upto, in their order.

        Those that bdr-mode leaves out, or event filters by their transaction, are among them, marked; other rules are
        for who applies them."""
        self._move(after)
        return [] if self._next is None or self._next.ts > upto else list(self._next.ddls)

    def changes(self, after: int, upto: int) -> LogChanges:
        """Return the row changes in (after, upto]; `upto` lies at or before the first stop behind `after`."""
        self._move(after)
        assert self._next is None or upto <= self._next.ts, (upto, self._next.ts)
        spans = spans_of(self._replicated.physical, self._parts, after, upto)
        versions = tuple(version for version in self._replicated.versions if version.stored.id in spans)
        return LogChanges(self._rows, after, upto, versions, self._mount, self._events)

    def release(self, checkpoint_ts: int) -> None:
        """Tell the log that what lies at or below is not needed by this feed, and look ahead from there: the frontier
        is that of the stop, or the failure, behind it."""
        self._move(checkpoint_ts)
        self._hold.at(checkpoint_ts)

    def reading(self) -> Reading:
        """Return the tables that are left out: rows are counted by the tasks that read them, and a log has no
        partitions."""
        snapshot = self._timeline.snapshot
        if self._told[0] is not snapshot:
            self._told = snapshot, self._timeline.tables.left_out(snapshot)
        return Reading(left_out=self._told[1])

    def _move(self, ts: int) -> None:
        """Take up the schema at `ts`."""
        while self._next is not None and self._next.ts <= ts:
            self._replicated = _Replicated.of(self._next.snapshot, self._timeline.tables)
            self._next = None
            self._look()
        self._at = max(self._at, ts)

    def _look(self) -> None:
        """Find the next stop, of those that were read."""
        timeline = self._timeline
        while self._next is None and self._failure is None and (ts := timeline.stop()) is not None:
            before = timeline.snapshot
            try:
                events = timeline.walk(ts)
            except TidegateError as error:
                self._failure = _Failure(ts, error)
                return
            ddls = [PlacedDdl(Place(seq=seq), one.ddl, one.left_out, one.previous) for seq, one in enumerate(events)]
            if ddls or self._moves(before, timeline.snapshot):
                self._next = _Stop(ts, tuple(ddls), timeline.snapshot)

    def _moves(self, before: StoredSnapshot, after: StoredSnapshot) -> bool:
        """Whether a replicated table is another one in `after`."""
        pairs = ((before, after), (after, before))
        changed = (one for here, there in pairs for i, one in here.tables.items() if there.tables.get(i) is not one)
        return any(map(self._timeline.tables.replicates, changed))
