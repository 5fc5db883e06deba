"""The sink of a database: an equal copy of the upstream in MySQL, MariaDB or TiDB.

    recover   become the writer: raise the epoch of `tidegate.progress`
    run       shards in tasks, each over a connection of its own; a transaction moves its shard's position (progress.py)
    ddl       one by one, when all rows before it are committed: each once, by a ledger (ddl/)
    advance   the checkpoint; where it is a sync point, with the pair (sync_point.py)
    gate      rounds end at sync points, and where somebody holds the feed to read (hold.py)

Guarantee: exactly once, tables without a key included; of equal rows that one transaction brings to such a table a
topic tells one (entries.py).  Progress lives in the target, in the transactions of the data.
A DDL cuts all tables (barrier ALL).

    transaction-atomicity     a reader of the target sees                          side by side
    global                    whole transactions of the upstream                   nothing: one shard
    table                     whole transactions of each table                     tables, families of them (family.py)
    none                      rows                                                 the same, and rows by their key

`global` is the default: most of the time of a shard is the server's, and one shard has transactions of many rows.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final
from zlib import crc32

from tidegate.engine.change import PlacedDdl
from tidegate.engine.filter import TableFilter
from tidegate.engine.pace import Most
from tidegate.engine.plan import Barrier, Round
from tidegate.engine.ports import Changes, Rhythm, Sink, Standing, Tasks, Written
from tidegate.engine.step import Rows, Unit, row_steps
from tidegate.model.errors import SinkError, SinkRefused
from tidegate.model.left_out import NO_KEY
from tidegate.model.table import TableInfo
from tidegate.objectstore.failpoint import reach
from tidegate.schema.state import SchemaState
from tidegate.sink.sql import meet
from tidegate.sink.sql.connection import TargetSession, probe
from tidegate.sink.sql.ddl.by_hand import has_ahead
from tidegate.sink.sql.ddl.ledger import DdlWriter, fence_by_progress
from tidegate.sink.sql.ddl.rewrite import TAKES_ALL
from tidegate.sink.sql.ddl.runner import DdlRunner
from tidegate.sink.sql.family import families_of
from tidegate.sink.sql.hold import held_at, reached
from tidegate.sink.sql.options import SqlOptions
from tidegate.sink.sql.progress import ShardLayout, TargetProgress
from tidegate.sink.sql.shape import splits
from tidegate.sink.sql.sync_point import SyncPoints, SyncPointTable
from tidegate.sink.sql.target import TargetServer
from tidegate.sink.sql.task import ShardJob, write_shard

LOGGER: Final = logging.getLogger(__name__)
LOOK_S: Final = 0.5
"""How often holds are looked for."""


class SqlSink(Sink[Written]):
    """Writes to the server of `options`; `held` keeps another run of the feed on this machine out, `rules` are those of
    the tables that are replicated (None: all)."""

    barrier = Barrier.ALL
    rhythm = Rhythm(most=Most(rows=500_000, size_bytes=256 << 20), idle_s=5.0)

    def __init__(
        self,
        options: SqlOptions,
        *,
        held: Callable[[], AbstractContextManager[None]] = nullcontext,
        rules: TableFilter = TAKES_ALL,
    ) -> None:
        self.options = options
        self._held, self._rules = held, rules
        self._progress = TargetProgress(options.feed)
        self._session: TargetSession | None = None
        self._target: TargetServer | None = None
        self._state = SchemaState()
        self._said: set[str] = set()
        self._points = None if options.sync_point_ms is None else SyncPoints(*options.sync_point_ms)
        self._point_table = None if self._points is None else SyncPointTable(options.feed, self._points)
        self._families: Mapping[tuple[str, str], tuple[str, str]] | None = None
        self._held_ts: int | None = None
        self._looked_s = -LOOK_S

    def held(self) -> AbstractContextManager[None]:
        """Keep another run on this machine out; others are fenced."""
        return self._held()

    def recover(self) -> Standing:
        """Become the writer of the feed; return where it stands."""
        with self._connected() as session:
            standing = self._progress.take(session)
            if self._point_table is not None:
                self._point_table.create(session)
        return standing

    def check(self) -> bool:
        """Open a session."""
        with self._connected():
            return True

    def open(self, standing: Standing) -> None:
        """Take notice of where the first round begins, and of what is there (meet.py). SinkRefused for tables of a new
        feed that the target has not, or not with their columns; AccountRefused for rights to write rows."""
        self._progress.start(standing)
        self._state = standing.state
        takes = [one for one in standing.state.tables.values() if self._rules.matches(*one.name)]
        if not takes:
            return
        self._warn_of(takes)
        with self._connected() as session:
            self._meet(session, takes, standing.checkpoint.ts)

    def _meet(self, session: TargetSession, tables: Sequence[TableInfo], ts: int) -> None:
        target = self._target
        assert target is not None
        for warning in meet.check_rights(session, target, tables):
            self._say(warning)
        if self._progress.is_fresh and (lacking := meet.missing(session, tables)):
            raise SinkRefused(
                f"{self.options.place}: {meet.shown(lacking)}: a replica of tables that have rows begins with a copy "
                "of them, as of the start ts"
            )
        if self._progress.is_fresh or not has_ahead(session, self.options.feed, ts):
            found = meet.differences(session, target, tables)
            if found:
                self._say(
                    f"tables of {self.options.place} are not as the upstream's: {meet.shown(found)}. Rows that do not "
                    "fit will end the changefeed; ALTER the tables there unless that is meant"
                )

    def _warn_of(self, tables: Iterable[TableInfo]) -> None:
        """Name the tables whose rows are told apart by all that they hold."""
        bare = sorted(str(one.name) for one in tables if not one.handle_key)
        if bare:
            self._say(f"{', '.join(bare)}: {NO_KEY}; kept, but a row is found by all its columns: a key is much faster")

    def _say(self, warning: str) -> None:
        if warning not in self._said:
            self._said.add(warning)
            LOGGER.warning(warning)

    def gate(self, checkpoint_ts: int) -> int | None:
        """Return the next sync point or hold. A feed that begins at 0 has none before its first round, or it would have
        them since 1970."""
        if time.monotonic() - self._looked_s >= LOOK_S or self._held_ts == checkpoint_ts:
            with self._connected() as session:
                held_ts = held_at(session, self.options.feed, checkpoint_ts)
            if held_ts is not None and held_ts != self._held_ts:
                LOGGER.warning("changefeed %s is held at %d by a reader of its target", self.options.feed, held_ts)
            self._held_ts, self._looked_s = held_ts, time.monotonic()
        point = None if self._points is None or not checkpoint_ts else self._points.after(checkpoint_ts)
        return min((ts for ts in (self._held_ts, point) if ts is not None), default=None)

    def run(self, tasks: Tasks, units: Sequence[Unit], changes: Changes) -> Sequence[Written]:
        """Write the rows of the units; return when all are committed."""
        steps = row_steps(units)
        if not steps:
            return []
        self._state = self._state.with_unknown(step.table for step in steps)
        with self._connected() as session:
            wanted = self._layout(session, steps, tasks.slots)
            self._progress.lay_out(session, wanted)
            target = self._target
        assert target is not None
        return tasks.run(write_shard, list(self._jobs(steps, changes, target)))

    def ddl(self, placed: PlacedDdl) -> None:
        """Do one DDL, once (ddl/runner.py)."""
        with self._connected():
            target = self._target
        assert target is not None
        feed, epoch = self.options.feed, self._progress.epoch
        writer = DdlWriter(feed, epoch, fence_by_progress(feed, epoch))
        runner = DdlRunner(self._alone, target, writer, LOGGER.warning, self._said, rules=self._rules)
        self._families = None
        before, self._state = self._state, runner.run(placed, self._state)
        self._warn_of(table for key, table in self._state.tables.items() if key not in before.tables)

    def advance(self, planned: Round, results: Sequence[Written]) -> Standing:  # noqa: ARG002  their rows are committed
        """Make the round's end the checkpoint. Fenced where another writer began."""
        standing = Standing(planned.checkpoint, planned.state)
        reach("sql/before-advance")
        with self._connected() as session:
            self._advance(session, standing)
        self._state = planned.state
        return standing

    def _advance(self, session: TargetSession, standing: Standing) -> None:
        ts, points, target = standing.checkpoint.ts, self._point_table, self._target
        if points is None or self._points is None or not self._points.is_one(ts):
            self._progress.advance(session, standing)
            return
        assert target is not None
        if reached(session, self.options.feed) > ts:
            LOGGER.warning("no sync point at %d: an earlier run, with another interval, went further", ts)
            self._progress.advance(session, standing)
            return
        noted: list[int] = []
        self._progress.advance(session, standing, lambda: noted.append(points.note(session, target, ts)))
        points.show(session, target, noted[0])

    def close(self) -> None:
        """End the driver's session."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _layout(self, session: TargetSession, steps: Sequence[Rows], slots: int) -> ShardLayout:
        options = self.options
        shards = max(1, min(options.workers, slots))
        if options.atomicity == "global" or shards == 1:
            return ShardLayout(1, options.atomicity)
        if self._families is None:
            self._families = families_of(session)
        known = set(self._progress.layout.splits)
        if options.atomicity == "none":
            tables = {step.table.name.key: step.table for step in steps}
            tables |= {key: table for key, table in self._state.tables.items() if key in known}
            known = {key for key, table in tables.items() if splits(table)} - self._families.keys()
        else:
            known = set()
        return ShardLayout(shards, options.atomicity, tuple(sorted(known)), tuple(sorted(self._families.items())))

    def _jobs(self, steps: Sequence[Rows], changes: Changes, target: TargetServer) -> Iterator[ShardJob]:
        layout = self._progress.layout
        (after, upto), *others = {(step.after, step.upto) for step in steps}
        assert not others, others
        split, heads = frozenset(layout.splits), dict(layout.ties)

        def is_mine(key: tuple[str, str], shard: int) -> bool:
            return key in split or _shard_of(heads.get(key, key), layout.shards) == shard

        for shard in range(layout.shards):
            mine = [step.table for step in steps if is_mine(step.table.name.key, shard)]
            if mine:
                yield ShardJob(
                    changes,
                    after,
                    upto,
                    tuple(table.name for table in mine),
                    {table.name.key: table for table in mine},
                    split,
                    layout.shards,
                    shard,
                    self._progress.epoch,
                    self.options,
                    target,
                )

    def _alone(self) -> Any:
        """A connection of its own, which waits for answers as long as they take."""
        return TargetSession(self.options, read_s=None).connection

    @contextmanager
    def _connected(self) -> Iterator[TargetSession]:
        """The driver's session, for all but DDLs; after an error the next call makes a new one."""
        if self._session is None:
            session = TargetSession(self.options, read_s=self.options.read_s)
            self._target = self._target or probe(session)
            self._session = session.prepare(self._target)
        try:
            yield self._session
        except SinkError:
            self.close()
            raise


def _shard_of(key: tuple[str, str], shards: int) -> int:
    return crc32("\0".join(key).encode("utf-8", "surrogatepass")) % shards
