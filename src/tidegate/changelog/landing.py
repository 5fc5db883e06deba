"""Landing, whatever the source: the loop that moves a source into the changelog, batch by batch, exactly once.

    1 claim    take the changelog over (ledger.py) and read where it stands
    2 plan     what has come since, at most one batch                        driver, every trigger
    3 read     rows to Parquet                                               tasks
    4 commit   files + positions + frontier, one Delta commit                driver
    5 halt     what stands in the way of the next batch ends the landing, behind the commit

The changelog alone is the truth: a landing starts where the newest commit says.  Killed anywhere before 4, a batch
leaves files that nobody knows; killed after it, the batch is done.

The loop has a thread of its own beside the rounds of the feed, and tasks that are cancelled by themselves.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidegate.changelog.report import State
from tidegate.engine.change import Place
from tidegate.engine.ports import PartitionReached, Tasks
from tidegate.model.errors import SourceError, TidegateError
from tidegate.model.left_out import LeftOut
from tidegate.model.roads import RoadCounts
from tidegate.objectstore.storing import STORE_ERRORS, first_line

Message: TypeAlias = tuple[bytes | None, bytes | None]
"""Key and value."""

TRIGGER_MS: Final = 300
"""Batches begin no sooner one after the other."""
LAST_BATCH_S: Final = 20.0
"""How long a stop waits for the batch in flight; a job that is cancelled fills the log with stack traces."""


@dataclass(frozen=True, slots=True)
class LandingProgress:
    """Totals of one landing since its start; `highs` are the ends of the partitions when they were last read."""

    batches: int = 0
    messages: int = 0
    rows: int = 0
    ddls: int = 0
    dead_letters: int = 0
    roads: RoadCounts = field(default_factory=RoadCounts)
    """Rows by the road that they took."""
    highs: Mapping[tuple[str, int], int] = field(default_factory=dict)


class BatchLoop(ABC):
    """A landing of some source into a changelog; start it once. `reading` may be called before it is started."""

    def __init__(self, feed: str, trigger_ms: int = TRIGGER_MS) -> None:
        self._feed, self._trigger_s = feed, trigger_ms / 1000
        self._thread: threading.Thread | None = None
        self._error: TidegateError | None = None
        self._halt = threading.Event()
        self._late = False
        """True once a stop has waited long enough: what is in flight now must not be committed."""
        self._state = State()
        self.needed_ts = 0
        """Where the sink stands: a new changelog has to have all above it."""
        self.carried: Container[tuple[str, str]] | None = None
        """The tables that the sink has there, by their keys; None where that is not known."""
        self.skips_dead = False
        """True if a message that nobody can read is put aside, and does not end the feed."""
        self._progress = LandingProgress()

    @abstractmethod
    def _claim(self) -> State:
        """Step 1. Raises what is wrong with the source and its positions at once."""

    @abstractmethod
    def _batch(self) -> None:
        """Steps 2 to 5 for one batch; `_land` commits it. Nothing to do is no batch."""

    @abstractmethod
    def idle(self) -> bool:
        """Return True if everything that the source has at this moment has landed."""

    def bodies(self, places: Collection[Place]) -> Mapping[Place, Message]:  # noqa: ARG002
        """Return the messages that stand at `places`, as far as the source still has them; none where it has none."""
        return {}

    def reached(self) -> Sequence[PartitionReached] | None:
        """Return how far the source is; None where the partitions of the changelog tell it."""
        return None

    def left_out(self) -> Sequence[LeftOut]:
        """Return the tables of the filter that do not land, as far as the source tells."""
        return ()

    def start(self, tasks: Tasks) -> None:
        """Claim the changelog and begin. Raises as `_claim` does."""
        assert self._thread is None, "a landing starts once"
        self._tasks = tasks.aside(f"{self._feed}/land")
        self._state = self._claim()
        self._thread = threading.Thread(target=self._run, name=f"{self._feed}/land", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the batch in flight; what is committed stays, what is not was never there."""
        self._halt.set()
        if self._thread is None or not self._thread.is_alive():
            return
        self._thread.join(LAST_BATCH_S)
        if self._thread.is_alive():
            self._late = True
            self._tasks.cancel()
            self._thread.join(LAST_BATCH_S)

    def alive(self) -> bool:
        """Return True while batches are being landed."""
        return self._error is None and self._thread is not None and self._thread.is_alive()

    def exception(self) -> TidegateError | None:
        """Why the landing ended by itself; None while it runs or after `stop`."""
        return self._error

    @property
    def epoch(self) -> int:
        """The number of this landing among those of its changelog; 0 before it has claimed."""
        return self._state.epoch

    def progress(self) -> LandingProgress:
        """Return how much was landed since the start."""
        return self._progress

    def _landed(self, state: State, highs: Mapping[tuple[str, int], int], roads: Iterable[RoadCounts] = ()) -> None:
        """Count what a commit brought; `roads` are those of its tasks."""
        done, self._state = self._progress, state
        self._progress = LandingProgress(
            batches=done.batches + 1,
            messages=done.messages + state.messages,
            rows=done.rows + state.rows,
            ddls=done.ddls + state.ddls,
            dead_letters=done.dead_letters + state.dead,
            roads=sum(roads, done.roads),
            highs={**done.highs, **highs},
        )

    def _run(self) -> None:
        """Batches until a stop or an error, which `exception` tells."""
        try:
            while not self._halt.is_set():
                begun_s = time.monotonic()
                self._batch()
                self._halt.wait(max(0.0, begun_s + self._trigger_s - time.monotonic()))
        except TidegateError as failed:
            self._error = None if self._late else failed
        except STORE_ERRORS as failed:
            self._error = None if self._halt.is_set() else SourceError(f"landing failed: {first_line(failed)}")
        except Exception as failed:
            self._error = SourceError(f"landing failed: {failed!r}")
            raise
