"""Holds: leases in the target that let a changefeed stand still at a ts, so that its tables can be read there.

    tidegate.holds     feed   holder   position     seen   until (UTC)
                       shop   5f1c..   T or NULL    0      .. + 30 s        asked for, by whoever wants to read
                       shop   5f1c..   T            1      .. + 30 s        the feed stands there until it is gone

A feed looks at them between rounds, lets a round end at the lowest, and says `seen` once it stands there; a position
NULL means where it stands next.  It does not stand at a ts that a shard or a DDL is beyond, as after a crash amid a
round; then it goes on.  A holder renews its lease as long as it lives, so that one that died holds nobody.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from tidegate.model.errors import ConfigError, SinkError
from tidegate.mysql import server_sql as sent
from tidegate.sink.sql.connection import TargetSession
from tidegate.sink.sql.ddl.by_hand import last_ran

LEASE_S: Final = 30


def held_at(session: TargetSession, feed: str, ts: int) -> int | None:
    """Return the ts that rounds of a feed at `ts` must not pass, and tell those who wait for it; None: go on."""
    name = feed.encode()
    rows = session.ask(sent.HOLDS_OF, values=(name,))
    wanted = [(holder, ts if position is None else int(position), seen) for holder, position, seen in rows]
    if any(position == ts for _, position, _ in wanted) and reached(session, feed) > ts:
        wanted = [one for one in wanted if one[1] != ts]
    for holder, position, seen in wanted:
        if position == ts and not seen:
            session.changed(sent.SEE_HOLD, ts, name, holder)
    return min((position for _, position, _ in wanted if position >= ts), default=None)


@dataclass(slots=True)
class Hold:
    """A lease of one holder: `ts` is where the feed stands, once it does."""

    session: TargetSession
    feed: str
    ts: int | None
    holder: str = field(default_factory=lambda: str(uuid.uuid4()))

    def ask(self) -> None:
        """Ask for the hold."""
        self.session.changed(sent.ADD_HOLD, self.feed.encode(), self.holder, self.ts, LEASE_S)

    def renew(self) -> None:
        """Keep it for another while. SinkError where it is over, so that the feed may have gone on."""
        if not self.session.changed(sent.RENEW_HOLD, LEASE_S, self.feed.encode(), self.holder):
            raise SinkError(f"the hold of changefeed {self.feed} is over: it was not renewed within {LEASE_S} s")

    def stands(self) -> bool:
        """Return whether the feed stands at `ts` and does not go on; keep asking. ConfigError if it has passed it, with
        some rows at least."""
        rows = self.session.ask(sent.HOLD, values=(self.feed.encode(), self.holder))
        if rows and rows[0][1]:
            self.ts = int(rows[0][0])
            return True
        self.renew()
        at = reached(self.session, self.feed)
        if self.ts is not None and at > self.ts:
            raise ConfigError(f"changefeed {self.feed} has passed {self.ts}: it is at {at}; hold it at a later ts")
        return False

    def release(self) -> None:
        """Let the feed go on."""
        self.session.changed(sent.REMOVE_HOLD, self.feed.encode(), self.holder)


@contextmanager
def holding(session: TargetSession, feed: str, ts: int | None) -> Iterator[Hold]:
    """Ask for a hold at `ts`, or where the feed stands next, until the block ends."""
    hold = Hold(session, feed, ts)
    hold.ask()
    try:
        yield hold
    finally:
        hold.release()


def feeds_of(session: TargetSession) -> list[str]:
    """Return the names of the changefeeds that write to a server."""
    if not session.ask(sent.HAS_TABLE, values=(sent.DATABASE, "progress")):
        return []
    return [bytes(name).decode() for (name,) in session.ask(sent.FEEDS)]


def stands_at(session: TargetSession, feed: str) -> int:
    """Return the checkpoint of a feed. ConfigError for one that has none here."""
    return _position(session, feed, sent.CHECKPOINT)


def reached(session: TargetSession, feed: str) -> int:
    """Return the checkpoint of a feed, or the ts of its last rows or DDL if that is higher. ConfigError for a feed that
    has none here."""
    return max(_position(session, feed, sent.REACHED), last_ran(session, feed))


def _position(session: TargetSession, feed: str, question: str) -> int:
    rows = session.ask(question, values=(feed.encode(),))
    if not rows:
        raise ConfigError(f"no changefeed {feed} writes to {session.options.place}")
    return int(rows[0][0])
