"""Where a feed stands in its target: rows of `tidegate.progress`, moved in the transactions of the data.

    feed   shard   epoch   position            state
    shop   -1      7       checkpoint ts       the checkpoint and the layout, as JSON; `definitions` has the schema
    shop   0       7       commit_ts of its last transaction
    shop   1       7       ..

    a data transaction      BEGIN; UPDATE .. SET position = P WHERE shard = 0 AND epoch = 7 AND position = O;
                            .. rows ..; COMMIT                          one row found, or it ends

The row of the checkpoint is moved from where the writer brought it, too: a database that was restored from a backup
meanwhile stands elsewhere, and is not moved over what it lacks.

A writer that begins raises the epoch of all rows, and waits for transactions that hold one of them.  So what an older
writer still sends finds no row and changes nothing, whenever it arrives.  Within one writer the same holds for what an
earlier try left behind: the position is not the old one any more.  No transaction can be left out either.

    epoch    (7 << 32) + 12        the seventh writer, in its twelfth round

So a writer whose COMMIT got no answer tells its own epochs from those of another.

Shards are numbered by the layout, which stays while one of them is ahead of the checkpoint: which rows a shard has
done is then told by its position alone.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from tidegate.engine.plan import Checkpoint
from tidegate.engine.ports import Standing
from tidegate.expr.syntax.tokens import quote_names
from tidegate.model.errors import Fenced, SinkRefused
from tidegate.mysql import server_sql as sent
from tidegate.objectstore.failpoint import reach
from tidegate.schema.state import SchemaState
from tidegate.sink.sql.connection import TargetSession
from tidegate.sink.sql.options import Atomicity

MAIN: Final = -1
"""The shard whose row holds the checkpoint."""
WRITER: Final = 1 << 32
"""The epochs of a writer: as many as it has rounds, at most."""


class ShardLayout(msgspec.Struct, frozen=True):
    """How rows fall into shards: into how many, and which tables' rows do (`splits`); others stay together, and with
    those that they are tied to (`ties`: table, name of its family)."""

    shards: int = 1
    atomicity: Atomicity = "global"
    splits: tuple[tuple[str, str], ...] = ()
    ties: tuple[tuple[tuple[str, str], tuple[str, str]], ...] = ()


class _State(msgspec.Struct, frozen=True):
    checkpoint: Checkpoint = Checkpoint()
    layout: ShardLayout = ShardLayout()


class TargetProgress:
    """The rows of one feed, as its driver moves them; `session` is the driver's."""

    def __init__(self, feed: str) -> None:
        self._feed = feed.encode()
        self.epoch = self._taken = self._at = 0
        self._state = _State()
        self._known: SchemaState | None = None
        self.is_fresh = True
        """Nothing was written yet."""

    @property
    def layout(self) -> ShardLayout:
        """How the rows of this round fall into shards."""
        return self._state.layout

    def take(self, session: TargetSession) -> Standing:
        """Become the writer of the feed; return where it stands. Of two at once one waits for the other."""
        session.ask(sent.CREATE_DATABASE, sent.CREATE_PROGRESS, sent.CREATE_HOLDS)
        name = self._feed
        session.changed(sent.BEGIN_PROGRESS, name, MAIN)
        session.ask(sent.BEGIN)
        ((epoch, position, state, definitions),) = session.ask(sent.TAKE_PROGRESS, values=(name, MAIN))
        self._taken = self.epoch = (int(epoch) // WRITER + 1) * WRITER
        self._at = int(position)
        session.changed(sent.RAISE_FEED, self.epoch, name)
        session.ask(sent.COMMIT)
        self.is_fresh = state is None
        try:
            self._state = _State() if state is None else msgspec.json.decode(state, type=_State)
        except msgspec.DecodeError as error:
            raise SinkRefused(
                f"tidegate.progress of {session.options.place} holds another release's progress: {error}"
            ) from error
        if definitions is None:
            return Standing(Checkpoint(), SchemaState(), is_new=True)
        self._known = SchemaState.from_json(bytes(definitions))
        return Standing(self._state.checkpoint, self._known)

    def start(self, standing: Standing) -> None:
        """Take notice of where the first round begins."""
        self._state = msgspec.structs.replace(self._state, checkpoint=standing.checkpoint)

    def lay_out(self, session: TargetSession, wanted: ShardLayout) -> None:
        """Raise the epoch, and take `wanted` as layout if no shard is ahead of the checkpoint. Fenced where another
        writer began."""
        self._raise(session)
        rows = session.ask(sent.SHARDS, values=(self._feed,))
        found = {int(shard): int(position) for shard, position in rows}
        behind = max(found.values(), default=0) <= self._state.checkpoint.ts
        layout = wanted if behind else self._state.layout
        if layout == self._state.layout and len(found) == layout.shards:
            return
        state = msgspec.structs.replace(self._state, layout=layout)
        position = self._state.checkpoint.ts
        session.ask(sent.BEGIN)
        self._move(session, sent.MOVE_STATE, msgspec.json.encode(state))
        session.changed(sent.REMOVE_SHARDS, self._feed)
        for shard in range(layout.shards):
            session.changed(sent.ADD_SHARD, self._feed, shard, self.epoch, position)
        session.ask(sent.COMMIT)
        reach("sql/laid-out")
        self._state = state

    def advance(self, session: TargetSession, standing: Standing, also: Callable[[], None] | None = None) -> None:
        """Make `standing` the checkpoint, with what `also` writes. Fenced where another writer began."""
        state = msgspec.structs.replace(self._state, checkpoint=standing.checkpoint)
        values = [standing.checkpoint.ts, msgspec.json.encode(state)]
        move = sent.MOVE
        if standing.state is not self._known:
            move, values = sent.MOVE_ALL, [*values, standing.state.to_json()]
        if also is not None:
            session.ask(sent.BEGIN)
        self._move(session, move, *values, ahead=standing.checkpoint.ts)
        if also is not None:
            also()
            reach("sql/point-written")
            session.ask(sent.COMMIT)
        reach("sql/advanced")
        self._state, self._known, self._at = state, standing.state, standing.checkpoint.ts

    def _move(self, session: TargetSession, move: str, *values: object, ahead: int = 0) -> None:
        """Move the row that holds the checkpoint, from where this run brought it; or it stands at `ahead` already, by a
        try whose COMMIT got no answer."""
        mine = (self._feed, MAIN, self._taken, self.epoch, self._at, ahead or self._at)
        if session.changed(move, *values, *mine) == 1:
            return
        if max((int(epoch) for (epoch,) in session.ask(sent.EPOCH, values=(self._feed,))), default=0) > self.epoch:
            raise Fenced("another run of this changefeed has taken over")
        found = [int(position) for (position,) in session.ask(sent.CHECKPOINT, values=(self._feed,))]
        stands = f"stands at ts {found[0]}" if found else "has no progress of it"
        raise SinkRefused(
            f"{session.options.place} lost what it had confirmed: this run of changefeed {self._feed.decode()} brought "
            f"it to ts {self._at}, and it {stands}: it was restored from a backup, or emptied. Start the changefeed "
            "again: it goes on from there, or says what is missing if the source does not reach back so far"
        )

    def _raise(self, session: TargetSession) -> None:
        """Raise the epoch of all rows, once those who write them have ended or are refused."""
        self.epoch += 1  # first: a try whose COMMIT got no answer may have come through
        session.ask(sent.BEGIN)
        self._move(session, sent.MOVE_EPOCH, self.epoch)
        session.changed(sent.RAISE_SHARDS, self.epoch, self._feed)
        session.ask(sent.COMMIT)
        reach("sql/raised")


def forget(session: TargetSession, feed: str) -> None:
    """Remove what a server holds of a feed: a new one of that name begins anew."""
    for (table,) in session.ask(sent.OWN_TABLES, values=(sent.DATABASE,)):
        own = quote_names(sent.DATABASE, table)
        session.changed(sent.FORGET.format(table=own), feed.encode())


def fence(feed: str, shard: int, epoch: int, before: int, position: int) -> bytes:
    """Return the statement that moves a shard in a data transaction; it has to find one row."""
    name = feed.encode().hex()
    return sent.MOVE_SHARD.format(feed=name, shard=shard, epoch=epoch, before=before, position=position).encode()


def position_of(session: TargetSession, feed: str, shard: int, epoch: int) -> int:
    """Return how far a shard is. Fenced where another writer began."""
    rows = session.ask(sent.SHARD_AT, values=(feed.encode(), shard, epoch))
    if not rows:
        raise Fenced("another run of this changefeed has taken over")
    return int(rows[0][0])
