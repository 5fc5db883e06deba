"""Where a feed from topic to topic goes on: offsets before which everything has been let through and acknowledged.

    partition 0    r5  r9  R8  r7' R10         passed 8:  r5 is out, r9 waits  ──►  go on at r9
    partition 1    r6  R12                     passed 8:  R12 says more than 8 ──►  go on at R12

What stands before the first message that says anything above the ts that has passed is done.  What comes behind it is
read again, so rows may be written twice, never not at all.

    <state>/<changefeed>.place     {"changefeed": "copy", "topic": "shop-canal", "start": "shop/0:120,shop/1:98", ...}
    <state>/<changefeed>.lock      held by the one that runs
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from tidegate.app.topic_checkpoint import only_feed, saved
from tidegate.model.errors import ConfigError, EnvironmentFault
from tidegate.spark.cache import write_whole

__all__ = ["MarkFile", "Marks", "Saved", "as_start"]

Partition = tuple[str, int]


class Marks:
    """Messages by what they say; `safe` tells where to go on."""

    def __init__(self) -> None:
        self._ahead: dict[Partition, deque[tuple[int, int]]] = defaultdict(deque)

    def add(self, partition: Partition, offset: int, ts: int) -> None:
        """The message at `offset` has an event of `ts`, or resolves it."""
        self._ahead[partition].append((offset, ts))

    def safe(self, positions: Mapping[Partition, int], passed: int) -> dict[Partition, int]:
        """The offset of each partition from which nothing is lost once all up to `passed` is written."""
        found = dict(positions)
        for partition, ahead in self._ahead.items():
            while ahead and ahead[0][1] <= passed:
                ahead.popleft()
            if ahead:
                found[partition] = ahead[0][0]
        return found


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says: `start` is the source's parameter, `topics` are those that were written to."""

    changefeed: str
    topic: str
    start: str
    topics: tuple[str, ...] = ()


class MarkFile:
    """What is kept of one changefeed."""

    def __init__(self, directory: Path, changefeed: str, topic: str) -> None:
        self.path = directory / f"{changefeed}.place"
        self._name, self._topic = changefeed, topic

    def held(self) -> AbstractContextManager[None]:
        """Keep other feeds of that name out until the block ends. EnvironmentFault when one runs already."""
        return only_feed(self.path.with_suffix(".lock"))

    def load(self) -> Saved | None:
        """What was saved last. ConfigError for a file that is none of ours or of another topic."""
        found = saved(self.path, Saved, "position")
        if found is None:
            return None
        if found.topic != self._topic:
            raise ConfigError(
                f"{self.path} is of a changefeed into topic {found.topic}, not {self._topic}: give a changefeed-id of "
                "its own"
            )
        return found

    def save(self, start: str, topics: Iterable[str] = ()) -> None:
        """Put these in place of what was there. EnvironmentFault when the disk refuses."""
        try:
            position = Saved(changefeed=self._name, topic=self._topic, start=start, topics=tuple(topics))
            write_whole(self.path, msgspec.json.encode(position).decode())
        except OSError as fault:
            raise EnvironmentFault(f"the position {self.path} cannot be written: {fault.strerror}") from fault


def as_start(positions: Mapping[Partition, int]) -> str:
    """Positions as the source's parameter `start`."""
    return ",".join(f"{topic}/{number}:{offset}" for (topic, number), offset in sorted(positions.items()))
