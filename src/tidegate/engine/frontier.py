"""The frontier of a source: the least resolved ts of its partitions, and a gate that releases events in commit order.

    topic a  p0  resolved 100      p1  resolved 104
    topic b  p0  resolved  98  <-- slowest                    frontier = 98
             p1  none yet          (added while running)      frontier stays where it was

- The frontier is the least resolved ts of ALL partitions of ALL topics.  Nothing at or below it is still to come,
  except DDLs at the frontier itself: TiCDC may send resolved T and then the DDL of T.
- There is none until every partition has resolved once.
- A partition that appears later has no resolved ts yet; the frontier waits for it and stays where it is.
- A resolved ts never decreases: TiCDC repeats old ones after a restart, and they are ignored.

Source: TiCDC's Kafka sink (checkpoint broadcast to every partition of every active topic).
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from tidegate.model.errors import SchemaError
from tidegate.model.event import Ddl, Resolved, RowChange


class Reached(msgspec.Struct, frozen=True):
    """The durable position of one partition: every message below `offset`; `resolved` is the largest resolved ts among
    them, None if there was none."""

    offset: int
    resolved: int | None = None


Positions: TypeAlias = Mapping[str, Mapping[int, Reached]]
"""Topic -> partition -> its durable position."""


class Slowest(msgspec.Struct, frozen=True):
    """The partition that holds the frontier back."""

    topic: str
    partition: int
    reached: Reached

    def __str__(self) -> str:
        what = "no resolved ts yet" if self.reached.resolved is None else f"resolved ts {self.reached.resolved}"
        return f"topic {self.topic} partition {self.partition}: {what} (read up to offset {self.reached.offset})"


def forward(reached: Reached, offset: int, resolved: int | None) -> Reached:
    """`reached` after reading on to `offset`; a lower resolved ts changes nothing."""
    assert offset >= reached.offset, (offset, reached)
    return Reached(offset, larger(reached.resolved, resolved))


def frontier(positions: Positions, floor: int | None = None) -> int | None:
    """Return the ts up to which everything has arrived; never below `floor`, the frontier so far."""
    resolved = [reached.resolved for partitions in positions.values() for reached in partitions.values()]
    timestamps = [ts for ts in resolved if ts is not None]
    if not timestamps or len(timestamps) < len(resolved):
        return floor
    return larger(floor, min(timestamps))


def slowest(positions: Positions) -> Slowest | None:
    """Return the partition with the least resolved ts, one without any first; None when there are no partitions."""
    every = [
        Slowest(topic, partition, reached)
        for topic, partitions in positions.items()
        for partition, reached in partitions.items()
    ]
    return min(
        every, key=lambda slowest: -1 if slowest.reached.resolved is None else slowest.reached.resolved, default=None
    )


def larger(left: int | None, other: int | None) -> int | None:
    """Return the larger of two timestamps, either of which may be missing."""
    if left is None or other is None:
        return other if left is None else left
    return max(left, other)


Partition = TypeVar("Partition", bound=Hashable)


class _PendingEvent(NamedTuple):
    ts: int
    is_ddl: bool
    number: int
    event: RowChange | Ddl


class WatermarkMerge(Generic[Partition]):
    """Holds the events of these partitions until all have resolved as far, and releases them in commit order.

        released   rows and DDLs up to the least resolved ts of all partitions, by commit_ts, DDLs behind rows of a ts;
                   rows of one partition and one commit_ts in arrival order;
                   a DDL that several partitions bring once, by (commit_ts, schema, table, query);
                   at last the resolved ts itself, whenever it has grown

        partition 0   r5 r7 R8 r9
        partition 1   r6 D6 R8          held          take()  →  r5 r6 D6 r7 R8          held: r9
        partition 2   D6 R10

    A row at or below a resolved ts that was released has been released before: a restart of the sender repeats it,
    and it is skipped.  A DDL at that very ts may still come."""

    def __init__(self, partitions: Iterable[Partition]) -> None:
        self._resolved: dict[Partition, int] = dict.fromkeys(partitions, -1)
        self._waiting: list[_PendingEvent] = []
        self._counts: dict[Partition, int] = dict.fromkeys(self._resolved, 0)
        self._owners: dict[int, Partition] = {}
        self._ddls: set[tuple[int, str, str, str]] = set()
        self._passed = -1
        self._number = 0
        self.repeated = 0
        """Repeated rows and DDLs, which are dropped."""

    def add(self, partition: Partition, event: RowChange | Ddl | Resolved) -> None:
        """Add the next event of a partition. Raises SchemaError for an event without commit timestamp."""
        if isinstance(event, Resolved):
            self._resolved[partition] = max(self._resolved[partition], event.ts)
            return
        if event.commit_ts is None:
            raise SchemaError(
                f"{event.schema}.{event.table}: an event has no commit_ts, so it cannot be ordered (canal-json "
                f"includes it with enable-tidb-extension=true)"
            )
        if not self._is_new(event, event.commit_ts):
            self.repeated += 1
            return
        self._number += 1
        self._waiting.append(_PendingEvent(event.commit_ts, isinstance(event, Ddl), self._number, event))
        self._counts[partition] += 1
        self._owners[self._number] = partition

    def _is_new(self, event: RowChange | Ddl, ts: int) -> bool:
        if not isinstance(event, Ddl):
            return ts > self._passed
        identity = ts, event.schema, event.table, event.query
        if ts < self._passed or identity in self._ddls:
            return False
        self._ddls.add(identity)
        return True

    @property
    def resolved(self) -> int | None:
        """The least resolved ts of all partitions; None while one has none."""
        least = min(self._resolved.values(), default=-1)
        return None if least < 0 else least

    @property
    def waiting(self) -> int:
        """The number of events held back."""
        return len(self._waiting)

    def ahead(self, most: int) -> set[Partition]:
        """Partitions to pause: more than `most` of their events wait for another partition."""
        least = min(self._resolved.values(), default=-1)
        return {key for key, count in self._counts.items() if count > most and self._resolved[key] > least}

    def take(self) -> list[RowChange | Ddl | Resolved]:
        """Return the events to release now, in order."""
        resolved = self.resolved
        if resolved is None:
            return []
        passing = self._out(sorted(event for event in self._waiting if event.ts <= resolved))
        self._waiting = [event for event in self._waiting if event.ts > resolved]
        if resolved <= self._passed:
            return passing
        self._passed = resolved
        self._ddls = {identity for identity in self._ddls if identity[0] >= resolved}
        return [*passing, Resolved(resolved)]

    def rest(self) -> list[RowChange | Ddl | Resolved]:
        """Return all events held back, in order, even if others may arrive between them, and empty the gate."""
        waiting, self._waiting = self._waiting, []
        return self._out(sorted(waiting))

    def _out(self, waiting: list[_PendingEvent]) -> list[RowChange | Ddl | Resolved]:
        for event in waiting:
            self._counts[self._owners.pop(event.number)] -= 1
        return [event.event for event in waiting]
