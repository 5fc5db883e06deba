"""Upkeep of a lake and its changelog together, between the rounds of a feed or by hand.

    feed       every upkeep-interval, until the engine asks to end, folds and compactions in tasks
    by hand    `tidegate lake upkeep LAKE`, until nothing is left to do, folds and compactions in the process

The feed notes its limits in `_tidegate/limits.json`; by hand they are what holds unless others are given, so that a
lake's promises are the same whoever tidies up.  What only a writer may do, striking dropped tables off the published
state, is left to the feed.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
import obstore
from deltalake.exceptions import DeltaError

from tidegate.changelog.trim import ChangelogTrim, Trimmed
from tidegate.engine.retention import Limits, changelog_bound
from tidegate.model.errors import SinkError, TidegateError
from tidegate.objectstore.stores import store
from tidegate.objectstore.storing import STORE_ERRORS, first_line
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import Snapshot
from tidegate.sink.delta.upkeep import Kept, Runner, Upkeep

FAILURES: Final = (TidegateError, *STORE_ERRORS, DeltaError)
"""What may end a pass without ending the feed: the next pass begins where this one stopped."""
AGAIN_S: Final = 5.0
"""Time to the next pass when this one left work behind."""
LIMITS: Final = "limits.json"


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass did to tables and changelog."""

    kept: Kept
    trimmed: Trimmed

    @property
    def unfinished(self) -> bool:
        """True if there is more to do at once."""
        return self.kept.unfinished or self.trimmed.unfinished


class LakeUpkeep:
    """The upkeep of one lake; `due` says when it is time for a pass. With `notes` the limits are written down."""

    def __init__(
        self,
        options: DeltaOptions,
        limits: Limits,
        *,
        interval_s: float = 0,
        dry_run: bool = False,
        notes: bool = False,
    ) -> None:
        self._options, self._limits, self._interval_s, self._notes = options, limits, interval_s, notes
        self._tables = Upkeep(options, limits, dry_run=dry_run)
        self._changelog = ChangelogTrim(options.changelog_uri, dry_run=dry_run)
        self._next_s = time.monotonic() + interval_s

    def due(self) -> bool:
        """Return True if it is time for a pass."""
        return time.monotonic() >= self._next_s

    def run(
        self, snapshot: Snapshot, frontier: int | None, runner: Runner, *, enough: Callable[[], bool] = lambda: False
    ) -> Pass:
        """Return one pass over the lake whose writer's newest snapshot is `snapshot`."""
        self._next_s = time.monotonic() + self._interval_s
        if self._notes:
            note_limits(self._options, self._limits)
            self._notes = False
        trimmed = self._changelog.run(
            changelog_bound(snapshot.needed_ts, frontier, self._limits),
            runner,
            reader_grace_ms=self._limits.reader_grace_ms,
            orphan_grace_ms=self._limits.orphan_grace_ms,
        )
        done = Pass(self._tables.run(snapshot, runner, enough), trimmed)
        if done.unfinished:
            self._next_s = min(self._next_s, time.monotonic() + AGAIN_S)
        return done


def note_limits(options: DeltaOptions, limits: Limits) -> None:
    """Write the limits into the lake, for upkeep by hand."""
    obstore.put(store(options.control_uri), LIMITS, msgspec.json.encode(limits))


def noted_limits(options: DeltaOptions) -> Limits:
    """Return the limits that the lake's feed noted; the defaults for a lake without any."""
    try:
        return msgspec.json.decode(obstore.get(store(options.control_uri), LIMITS).bytes().to_bytes(), type=Limits)
    except FileNotFoundError:
        return Limits()


def storing_errors(runner: Runner) -> Runner:
    """Return `runner` with what a store says in its jobs as SinkError."""

    def run(work: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
        return runner(partial(_storing, work), jobs)

    return run


def _storing(work: Callable[[Any], Any], job: Any) -> Any:
    try:
        return work(job)
    except STORE_ERRORS as error:
        raise SinkError(f"upkeep: {first_line(error)}") from error
