"""Landing a change log: what the loop of changelog/landing.py does to the log of a TiDB.

    claim    the position, a timestamp; a new one begins with the log, or at start-ts; the schema there
    plan     parts above the position, cut at DDLs and into pieces (splits.py)       driver
    read     a task a piece: rows of its tables, mounted, as files (splits.py)        executors
    commit   rows, DDLs and position of a batch: one commit

A log has no partitions, so the position is the frontier: the ts up to which everything has landed.  Everything behind
it, from the plan of a round to the live view, is what it is for a topic.

A lake needs the tables that were there before its feed began: the definitions at the begin land as CREATE statements
at that very ts, before any row.  Rows it needs as well (`complete`: it replicates tables), so it begins with the log
as long as that has them all, whatever start-ts says: what it holds from start-ts on is the same.

Event filters judge rows here, those behind start-ts alone; DDLs land, and who applies them asks the rules.  Of those
whose transaction is left out (ignore-txn-start-ts) the landing says so: a landed DDL does not tell its start.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from tidegate.changelog import ledger
from tidegate.changelog.changelog import changelog_uri
from tidegate.changelog.files import ControlFiles
from tidegate.changelog.landing import TRIGGER_MS, BatchLoop
from tidegate.changelog.report import LandedFile, State, TaskReport
from tidegate.engine.change import Place, PlacedDdl
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import TableFilter
from tidegate.model.errors import ConfigError, HistoryLost
from tidegate.model.event import Ddl
from tidegate.model.feed_errors import MadeAnew, SourceBehind
from tidegate.model.left_out import LeftOut
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate.source.tidb.changes import LogChanges, MountOptions
from tidegate.source.tidb.ddl import DdlEvent
from tidegate.source.tidb.log import KvLog, SafePoint, without
from tidegate.source.tidb.splits import FLUSH_BYTES, land_split, next_batch
from tidegate.source.tidb.tables import Tables
from tidegate.source.tidb.timeline import Timeline

LOGGER: Final = logging.getLogger(__name__)
BATCH_ROWS: Final = 400_000
_TOPIC: Final = "tidb"
"""As the topic of that name and its partition 0, with timestamps for offsets, a log stood in changelogs that were begun
before positions could be empty."""

Definitions = Callable[[StoredSnapshot, Tables, int], list[Ddl]]
"""The statements that make the databases and replicated tables of a snapshot, as DDLs of a ts."""


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
    ) -> None:
        """`hold_as` names feed and lake to the log (None: the feed alone); `ticdc_texts`: DDLs as TiCDC prints them."""
        super().__init__(feed, trigger_ms)
        self.changelog = changelog_uri(lake)
        self._log, self._definitions, self._start_ts, self._complete = log, definitions, start_ts, complete
        self._mount = mount or MountOptions()
        self._hold = SafePoint(log, hold_as or feed)
        self._events = events or EventFilter()
        left_out = EventFilter(self._events.start_ts)
        force, keeps, bdr = self._mount.force_replicate, self._mount.keeps, self._mount.bdr
        self._timeline = Timeline(
            log, rules, force=force, keeps=keeps, events=left_out, ticdc_texts=ticdc_texts, bdr=bdr
        )
        self._at = 0
        self._check = check
        self._first: tuple[Ddl, ...] = ()
        self._shown: StoredSnapshot | None = None
        self._left_out: tuple[LeftOut, ...] = ()

    def idle(self) -> bool:
        """Return True if nothing but time lies above the position."""
        return not any(part.stored for part in self._log.parts(self._at))

    def _claim(self) -> State:
        """Raises SourceBehind for a log that is not there yet, HistoryLost for one that begins above the position, and
        what is wrong with the expressions of event filters, and what `check` raises, for a table that is there."""
        state = ledger.claim(self.changelog, self._feed, None, self._completed)
        if state.frontier is None and self._at > 0:
            self._first = tuple(self._definitions(self._timeline.snapshot, self._timeline.tables, self._at))
        return state

    def _completed(self, state: State) -> State:
        """No positions; the timeline starts at the frontier, or where a new feed begins."""
        strangers = sorted(set(state.positions) - {_TOPIC})
        if strangers:
            raise ConfigError(
                f"{self.changelog} was landed from topic {strangers[0]!r}; start a fresh feed in a lake of its own"
            )
        parts = self._log.parts(0)
        if not parts:
            raise SourceBehind("the change log is empty: an upstream that writes it makes a file within seconds")
        high = parts[-1].high
        at = self._beginning() if state.frontier is None else state.frontier
        if state.frontier is None and 0 < self.needed_ts < at:
            raise MadeAnew(
                f"the target stands at ts {self.needed_ts}, and the changelog {self.changelog} that led there is gone: "
                f"read anew it begins at ts {at}, so what lies between would be missing. Ways out: put the changelog "
                "back; take away start-ts, if it is what begins so late; or start a fresh changefeed into a fresh "
                "target"
            )
        if at > high:
            raise SourceBehind(f"the change log goes up to {high}, below {at}: its upstream does not write it yet")
        self._hold.at(at)
        self._timeline.start(at, self.carried, self.needed_ts)
        self._tell()
        self._events.verify(self._timeline.tables.replicated(self._timeline.snapshot))
        if self._check is not None:
            self._check(self._timeline.tables.replicated(self._timeline.snapshot))
        self._at = at
        return msgspec.structs.replace(state, positions={})

    def _tell(self) -> None:
        if self._shown is not self._timeline.snapshot:
            self._shown = self._timeline.snapshot
            self._left_out = self._timeline.tables.left_out(self._shown)

    def left_out(self) -> Sequence[LeftOut]:
        """Return the tables without a key that the sink does not have."""
        return self._left_out

    def _beginning(self) -> int:
        """Where a new feed begins. Raises HistoryLost for a lake that would lack the rows from before the log."""
        begin = self._log.begin()
        if self._start_ts is not None and not (self._complete and begin.whole):
            return self._start_ts
        if not begin.whole:
            raise HistoryLost(
                f"the change log was trimmed up to {begin.ts}, so a new lake would lack the rows written before. Let "
                "the upstream begin another log (--log with an empty directory), or go without them by a start-ts"
            )
        return begin.ts

    def _batch(self) -> None:
        low = self._at
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
        ddls = self._placed(batch.events)
        files = [file for one in reports for file in one.files]
        counts = [table for one in reports for table in one.tables]
        report = TaskReport(
            start=low,
            position=batch.high,
            messages=sum(table.rows for table in counts) + len(ddls),
            ddls=len(ddls),
            tables=tuple(counts),
            files=(*files, *self._controls(ddls)),
        )
        self._tell()
        state = ledger.commit_batch(self.changelog, self._state, [report])
        self._first, self._at = (), batch.high
        self._hold.at(batch.high)
        self._landed(state, {}, (one.roads for one in reports))
        corrupt = sum(one.corrupt for one in reports)
        if corrupt:
            LOGGER.warning("%s: the checksums of %d rows up to %d do not fit", self._feed, corrupt, batch.high)

    def _placed(self, events: Sequence[DdlEvent]) -> list[PlacedDdl]:
        """The DDLs of a batch in their order; those of transactions that are left out are marked."""
        found = (*map(DdlEvent, self._first), *events)
        return [PlacedDdl(Place(seq=seq), event.ddl, event.left_out) for seq, event in enumerate(found)]

    def _controls(self, ddls: Sequence[PlacedDdl]) -> tuple[LandedFile, ...]:
        controls = ControlFiles(self.changelog, FLUSH_BYTES)
        controls.add(ddls, ())
        return controls.close()
