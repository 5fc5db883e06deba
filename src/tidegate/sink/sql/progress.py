"""The position of a changefeed in its target: tables of `tidegate`, written in the transactions of the data.

    tidegate.progress          feed   shard   epoch   position
                               shop   -1      7       checkpoint ts, with layout (`state`) and schema (`definitions`)
                               shop   0       7       commit_ts of the shard's last transaction
    tidb_cdc.syncpoint_v1      primary_ts of the upstream, secondary_ts at which a TiDB holds the same rows
    tidegate.holds             feed   holder   position     seen   until (UTC)
                               shop   5f1c..   T or NULL    0      .. + 30 s     requested by a reader
                               shop   5f1c..   T            1      .. + 30 s     the feed waits at T until it is gone

**Progress.** A data transaction begins with UPDATE .. SET position = P WHERE shard = 0 AND epoch = 7 AND position = O,
which must match one row.  A new writer raises the epoch of all rows, and waits for transactions that lock one of them:
late statements of an older writer match no row and change nothing.  Within one writer the position fences earlier
attempts in the same way, and no transaction can be skipped.  The epoch is (7 << 32) + 12 for the seventh writer in its
twelfth round, so a writer whose COMMIT got no answer recognises its own epochs.  The checkpoint advances only from the
value that this run wrote: a database restored from a backup is not advanced past changes that it lacks.  The layout
that numbers shards stays while one of them is ahead of the checkpoint.

**Sync points** are multiples of an interval since 1970 at which a round ends.  The pair is written in the transaction
that moves the checkpoint to it, so a writer that lost its epoch writes none.  Databases without a readable past have
secondary_ts 0.

**Leases** let readers stop a feed at a ts.  The feed reads them between rounds, ends a round at the lowest and sets
`seen` once it is there; position NULL means the next stop.  It passes a ts that a shard or a DDL has already passed,
for example after a crash within a round.  A holder that dies stops renewing, and the feed continues.

Source: TiCDC documentation, "Upstream and Downstream Clusters Data Validation and Snapshot Read"; the table of sync
points and its columns are TiCDC's.
"""

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tidegate.engine.plan import Checkpoint
from tidegate.engine.ports import SinkPosition
from tidegate.expr.tokens import quote_names
from tidegate.model.errors import ConfigError, Fenced, SinkError, SinkRefused
from tidegate.model.kept_state import StateKind, decode_state, encode_state
from tidegate.model.tso import physical_ms
from tidegate.mysql import server_sql as sent
from tidegate.objectstore.failpoint import failpoint
from tidegate.schema.state import SchemaState
from tidegate.sink.sql.connection import Atomicity, SyncPoints, TargetServer, TargetSession
from tidegate.sink.sql.ddl_ledger import last_ddl_ts

MAIN: Final = -1
"""The shard whose row holds the checkpoint."""
WRITER: Final = 1 << 32
"""The epochs of a writer: as many as it has rounds, at most."""


class ShardLayout(msgspec.Struct, frozen=True):
    """The division of rows into shards: their number, and the tables whose rows are divided (`splits`); others stay
    together, and with those that they are tied to (`ties`: table, name of its family)."""

    shards: int = 1
    atomicity: Atomicity = "global"
    splits: tuple[tuple[str, str], ...] = ()
    ties: tuple[tuple[tuple[str, str], tuple[str, str]], ...] = ()


class _State(msgspec.Struct, frozen=True):
    checkpoint: Checkpoint = Checkpoint()
    layout: ShardLayout = ShardLayout()


class TargetProgress:
    """The rows of one feed in `tidegate.progress`, which its driver moves."""

    def __init__(self, feed: str) -> None:
        self._feed = feed.encode()
        self.epoch = self._epoch_taken = self._position_ts = 0
        self._state = _State()
        self._target_schema: SchemaState | None = None
        self.is_fresh = True
        """Nothing was written yet."""

    @property
    def layout(self) -> ShardLayout:
        return self._state.layout

    def take(self, session: TargetSession) -> SinkPosition:
        """Become the writer of the feed; return its position.

        Of two at once one waits for the other. Raises StateTooNew or SinkRefused for a state that cannot be read; the
        writer is then the previous one.
        """
        session.ask(sent.CREATE_DATABASE, sent.CREATE_PROGRESS, sent.CREATE_HOLDS)
        name = self._feed
        session.changed(sent.BEGIN_PROGRESS, name, MAIN)
        session.ask(sent.BEGIN)
        ((epoch, position, state, definitions),) = session.ask(sent.TAKE_PROGRESS, values=(name, MAIN))
        self._state = _State() if state is None else _decoded(session, self._feed, state)
        self._epoch_taken = self.epoch = (int(epoch) // WRITER + 1) * WRITER
        self._position_ts = int(position)
        session.changed(sent.RAISE_FEED, self.epoch, name)
        session.ask(sent.COMMIT)
        self.is_fresh = state is None
        if definitions is None:
            return SinkPosition(Checkpoint(), SchemaState(), is_new=True)
        self._target_schema = SchemaState.from_json(bytes(definitions))
        return SinkPosition(self._state.checkpoint, self._target_schema)

    def start(self, position: SinkPosition) -> None:
        self._state = msgspec.structs.replace(self._state, checkpoint=position.checkpoint)

    def lay_out(self, session: TargetSession, requested: ShardLayout) -> None:
        """Raise the epoch of all rows, once their writers have ended or are fenced; use `requested` as layout if no
        shard is ahead of the checkpoint. Fenced if another writer began."""
        self.epoch += 1  # first: a try whose COMMIT got no answer may have come through
        session.ask(sent.BEGIN)
        self._move(session, sent.MOVE_EPOCH, self.epoch)
        session.changed(sent.RAISE_SHARDS, self.epoch, self._feed)
        session.ask(sent.COMMIT)
        failpoint("sql/raised")
        positions = [int(position) for _, position in session.ask(sent.SHARDS, values=(self._feed,))]
        behind = max(positions, default=0) <= self._state.checkpoint.ts
        layout = requested if behind else self._state.layout
        if layout == self._state.layout and len(positions) == layout.shards:
            return
        state = msgspec.structs.replace(self._state, layout=layout)
        position = self._state.checkpoint.ts
        session.ask(sent.BEGIN)
        self._move(session, sent.MOVE_STATE, encode_state(StateKind.DATABASE, state))
        session.changed(sent.REMOVE_SHARDS, self._feed)
        for shard in range(layout.shards):
            session.changed(sent.ADD_SHARD, self._feed, shard, self.epoch, position)
        session.ask(sent.COMMIT)
        failpoint("sql/laid-out")
        self._state = state

    def advance(
        self, session: TargetSession, position: SinkPosition, shown_ts: int, also: Callable[[], None] | None = None
    ) -> None:
        """Make `position` the checkpoint, which readers see as `shown_ts`, with the writes of `also`. Raises Fenced if
        another writer began."""
        state = msgspec.structs.replace(self._state, checkpoint=position.checkpoint)
        values = [shown_ts, encode_state(StateKind.DATABASE, state)]
        move = sent.MOVE
        if position.state is not self._target_schema:
            move, values = sent.MOVE_ALL, [*values, position.state.to_json()]
        if also is not None:
            session.ask(sent.BEGIN)
        self._move(session, move, *values, ahead=shown_ts)
        if also is not None:
            also()
            failpoint("sql/point-written")
            session.ask(sent.COMMIT)
        failpoint("sql/advanced")
        self._state, self._target_schema, self._position_ts = state, position.state, shown_ts

    def _move(self, session: TargetSession, move: str, *values: object, ahead: int = 0) -> None:
        """Move the row that holds the checkpoint, from where this run brought it; or it stands at `ahead` already, by a
        try whose COMMIT got no answer."""
        mine = (self._feed, MAIN, self._epoch_taken, self.epoch, self._position_ts, ahead or self._position_ts)
        if session.changed(move, *values, *mine) == 1:
            return
        if max((int(epoch) for (epoch,) in session.ask(sent.EPOCH, values=(self._feed,))), default=0) > self.epoch:
            raise Fenced("another run of this changefeed has taken over")
        positions = [int(position) for (position,) in session.ask(sent.CHECKPOINT, values=(self._feed,))]
        state = f"is at ts {positions[0]}" if positions else "has no progress of it"
        raise SinkRefused(
            f"{session.options.address} lost acknowledged writes: this run of changefeed {self._feed.decode()} brought "
            f"it to ts {self._position_ts}, but it {state}: it was restored from a backup, or emptied. Start the "
            "changefeed again: it continues from there, or reports what is missing if the source does not reach back "
            "that far"
        )


def check_kept(session: TargetSession, feed: str) -> None:
    """Raise StateTooNew, SinkRefused for progress of a feed that this release does not read."""
    for (state,) in session.ask(sent.STATE, values=(feed.encode(),)):
        if state is not None:
            _decoded(session, feed.encode(), state)


def _decoded(session: TargetSession, feed: bytes, state: bytes) -> _State:
    where = f"the row of changefeed {feed.decode()} in {sent.PROGRESS} of {session.options.address}"
    try:
        return decode_state(StateKind.DATABASE, state, _State, where)
    except msgspec.DecodeError as error:
        raise SinkRefused(
            f"tidegate.progress of {session.options.address} has the progress of another release: {error}"
        ) from error


def forget(session: TargetSession, feed: str) -> None:
    """Remove a feed's state from a server; a new feed of that name begins anew."""
    for (table,) in session.ask(sent.OWN_TABLES, values=(sent.DATABASE,)):
        own = quote_names(sent.DATABASE, table)
        session.changed(sent.FORGET.format(table=own), feed.encode())


def fence(feed: str, shard: int, epoch: int, before: int, position: int) -> bytes:
    """Return the statement that moves a shard in a data transaction; it must match one row."""
    name = feed.encode().hex()
    return sent.MOVE_SHARD.format(feed=name, shard=shard, epoch=epoch, before=before, position=position).encode()


def position_of(session: TargetSession, feed: str, shard: int, epoch: int) -> int:
    """Return the position of a shard. Raises Fenced where another writer began."""
    rows = session.ask(sent.SHARD_AT, values=(feed.encode(), shard, epoch))
    if not rows:
        raise Fenced("another run of this changefeed has taken over")
    return int(rows[0][0])


LOGGER: Final = logging.getLogger(__name__)
CLUSTER: Final = "default"


class SyncPointTable:
    """The sync points of one changefeed in its target."""

    def __init__(self, feed: str, points: SyncPoints) -> None:
        self._name, self.points = changefeed_name(feed), points
        self._forgotten_ms = 0
        self._is_warned = False

    def create(self, session: TargetSession) -> None:
        session.ask(sent.CREATE_POINTS_DATABASE, sent.CREATE_POINTS)

    def note(self, session: TargetSession, target: TargetServer, primary_ts: int) -> int:
        """Write a sync point within the session's transaction; return the secondary_ts."""
        secondary_ts = 0
        if target.traits.past:
            ((secondary_ts,),) = session.ask(sent.NOW_TS)
        session.changed(sent.NOTE_POINT, CLUSTER, self._name, str(primary_ts), str(secondary_ts))
        now_ms, kept_ms = physical_ms(primary_ts), self.points.retention_ms
        if now_ms - self._forgotten_ms >= kept_ms:
            session.changed(sent.FORGET_POINTS, self._name, kept_ms // 1000)
            self._forgotten_ms = now_ms
        return int(secondary_ts)

    def show(self, session: TargetSession, target: TargetServer, secondary_ts: int) -> None:
        """Let sessions of a TiDB with `tidb_enable_external_ts_read` see the point; say it once where that may not
        be."""
        if not target.has("tidb_external_ts"):
            return
        try:
            session.ask(sent.SHOW_POINT.format(ts=secondary_ts))
        except SinkError as error:
            if not self._is_warned:
                LOGGER.warning("tidb_external_ts is not changed: %s", error)
            self._is_warned = True


def changefeed_name(feed: str) -> str:
    """Return the value of the column `changefeed` for a feed."""
    return f"{CLUSTER}/{feed}"


def secondary_of(session: TargetSession, feed: str, primary_ts: int | None) -> tuple[int, int] | None:
    """Return (primary_ts, secondary_ts) of the sync point at `primary_ts`, of the newest one for None."""
    name = changefeed_name(feed)
    question = sent.NEWEST_POINT if primary_ts is None else sent.POINT_AT
    rows = session.ask(question, values=(name,) if primary_ts is None else (name, str(primary_ts)))
    return (int(rows[0][0]), int(rows[0][1])) if rows else None


LEASE_S: Final = 30


def leased_ts(session: TargetSession, feed: str, ts: int) -> int | None:
    """Return the lowest leased ts that rounds of a feed at `ts` must not pass, and mark leases of `ts` as seen; None:
    no limit."""
    name = feed.encode()
    rows = session.ask(sent.HOLDS_OF, values=(name,))
    leases = [(holder, ts if position is None else int(position), seen) for holder, position, seen in rows]
    if any(position == ts for _, position, _ in leases) and reached(session, feed) > ts:
        leases = [lease for lease in leases if lease[1] != ts]
    for holder, position, seen in leases:
        if position == ts and not seen:
            session.changed(sent.SEE_HOLD, ts, name, holder)
    return min((position for _, position, _ in leases if position >= ts), default=None)


@dataclass(slots=True)
class Lease:
    """A lease of one holder: `ts` is the feed's position, once it waits there."""

    session: TargetSession
    feed: str
    ts: int | None
    holder: str = field(default_factory=lambda: str(uuid.uuid4()))

    def request(self) -> None:
        self.session.changed(sent.ADD_HOLD, self.feed.encode(), self.holder, self.ts, LEASE_S)

    def renew(self) -> None:
        """Renew it for LEASE_S. SinkError where it has expired, so that the feed may have gone on."""
        if not self.session.changed(sent.RENEW_HOLD, LEASE_S, self.feed.encode(), self.holder):
            raise SinkError(f"the hold of changefeed {self.feed} is over: it was not renewed within {LEASE_S} s")

    def stands(self) -> bool:
        """Return True if the feed is at `ts`; renew the lease while it is not. ConfigError if some rows at least
        have passed it."""
        rows = self.session.ask(sent.SELECT_HOLD, values=(self.feed.encode(), self.holder))
        if rows and rows[0][1]:
            self.ts = int(rows[0][0])
            return True
        self.renew()
        reached_ts = reached(self.session, self.feed)
        if self.ts is not None and reached_ts > self.ts:
            raise ConfigError(
                f"changefeed {self.feed} has passed {self.ts}: it is at {reached_ts}; hold it at a later ts"
            )
        return False

    def release(self) -> None:
        self.session.changed(sent.REMOVE_HOLD, self.feed.encode(), self.holder)


@contextmanager
def lease_at(session: TargetSession, feed: str, ts: int | None) -> Iterator[Lease]:
    """Hold a lease at `ts`, or at the feed's next stop, until the block ends."""
    lease = Lease(session, feed, ts)
    lease.request()
    try:
        yield lease
    finally:
        lease.release()


def feeds_of(session: TargetSession) -> list[str]:
    """Return the names of the changefeeds that write to a server."""
    if not session.ask(sent.HAS_TABLE, values=(sent.DATABASE, "progress")):
        return []
    return [bytes(name).decode() for (name,) in session.ask(sent.FEEDS)]


def checkpoint_of(session: TargetSession, feed: str) -> int:
    """Return the checkpoint of a feed. ConfigError for one that has none here."""
    return _position(session, feed, sent.CHECKPOINT)


def reached(session: TargetSession, feed: str) -> int:
    """Return the checkpoint of a feed, or the ts of its last rows or DDL if that is higher. ConfigError for a feed that
    has none here."""
    return max(_position(session, feed, sent.REACHED), last_ddl_ts(session, feed))


def _position(session: TargetSession, feed: str, question: str) -> int:
    rows = session.ask(question, values=(feed.encode(),))
    if not rows:
        raise ConfigError(f"no changefeed {feed} writes to {session.options.address}")
    return int(rows[0][0])
