"""What users ask of parked tables, heard by the feed that runs, or by its next run.

    tidegate table resume LAKE shop.orders ──► _tidegate/resume/<incarnation>, an empty file ──► the feed
                                               taken away ◄── once what came of it is published ◄──┘

A feed that dies in between finds the file again.
"""

import time
from collections.abc import Collection
from typing import Final

import obstore

from tidegate.engine.ports import Parked
from tidegate.model.errors import ConfigError
from tidegate.model.name import lowered
from tidegate.objectstore.lifespan import delete, stored_files
from tidegate.objectstore.stores import store
from tidegate.objectstore.storing import storing
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import Snapshot

RESUME: Final = "resume/"
LOOK_S: Final = 1.0
"""How often the feed looks for requests while tables are parked."""


class Requests:
    """The requests of one lake, as its feed reads them."""

    def __init__(self, options: DeltaOptions) -> None:
        self._uri = options.control_uri
        self._looked_s = float("-inf")
        self._answered: set[str] = set()

    def read(self) -> frozenset[str]:
        """Return the incarnations that are asked for; none when it is too early to look again."""
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_S:
            return frozenset()
        self._looked_s = now_s
        return frozenset(file.path.removeprefix(RESUME) for file in stored_files(self._uri, RESUME))

    def answer(self, group: Parked) -> None:
        """Note that the next snapshot says what came of the requests for these tables."""
        self._answered |= set(group.incarnations)

    def withdraw(self) -> None:
        """Take away the requests that are answered and published."""
        if self._answered:
            delete(self._uri, [f"{RESUME}{incarnation}" for incarnation in sorted(self._answered)])
            self._answered = set()


def ask(options: DeltaOptions, snapshot: Snapshot, names: Collection[str]) -> list[Parked]:
    """Ask for the parked tables of these names, for all if there are none; return those that come with them.

    Raises ConfigError for a name that is not parked."""
    chosen = [group for name in names for group in _parked(snapshot, name)] or list(snapshot.parked)
    with storing(options.control_uri):
        for group in chosen:
            obstore.put(store(options.control_uri), f"{RESUME}{group.incarnations[0]}", b"")
    return chosen


def _parked(snapshot: Snapshot, name: str) -> list[Parked]:
    """The groups with a table of that name, which is one unless it was dropped and made anew."""
    found = [group for group in snapshot.parked if lowered(name) in map(lowered, group.names)]
    if found:
        return found
    parked = ", ".join(one for group in snapshot.parked for one in group.names) or "none"
    raise ConfigError(f"table {name} is not parked; parked tables are: {parked}")
