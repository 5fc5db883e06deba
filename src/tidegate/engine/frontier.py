"""How far the topics are known: the frontier, and who holds it back.

    topic a  p0  resolved 100      p1  resolved 104
    topic b  p0  resolved  98  <-- slowest                    frontier = 98
             p1  none yet          (added while running)      frontier stays where it was

- The frontier is the least resolved ts of ALL partitions of ALL topics.  Nothing at or below it is still to come,
  except DDLs at the frontier itself: TiCDC may send resolved T and then the DDL of T.
- There is none until every partition has resolved once.
- A partition that appears later says nothing yet, so the frontier waits for it where it stands.
- Nothing goes back: TiCDC repeats old resolved ts after a restart, and they are ignored.

Source: TiCDC's Kafka sink (checkpoint broadcast to every partition of every active topic).
"""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec


class Reached(msgspec.Struct, frozen=True):
    """What is durable of one partition: every message below `offset`; `resolved` is the largest resolved ts among
    them, None if there was none."""

    offset: int
    resolved: int | None = None


Positions: TypeAlias = Mapping[str, Mapping[int, Reached]]
"""Topic -> partition -> what is durable of it."""


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
    """Return the ts up to which everything has arrived, never below `floor`, where it stood before."""
    resolved = [reached.resolved for partitions in positions.values() for reached in partitions.values()]
    known = [ts for ts in resolved if ts is not None]
    if not known or len(known) < len(resolved):
        return floor
    return larger(floor, min(known))


def slowest(positions: Positions) -> Slowest | None:
    """Return the partition with the least resolved ts, one without any first; None when there are no partitions."""
    every = [
        Slowest(topic, partition, reached)
        for topic, partitions in positions.items()
        for partition, reached in partitions.items()
    ]
    return min(every, key=_resolved, default=None)


def larger(one: int | None, other: int | None) -> int | None:
    """Return the larger of two timestamps, either of which may be missing."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def _resolved(one: Slowest) -> int:
    return -1 if one.reached.resolved is None else one.reached.resolved
