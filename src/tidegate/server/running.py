"""One changefeed's run: a thread of its own that ends by a stop, by its target or by an error, and harms no other.

    run ── SparkEnded ──────────────────► Spark is started anew, the run too                   (after RENEW_S)
     │  └─ LATER, before it got going ──► warning, a pause (10 s, twice as long each time), the run again
     │  └─ LATER, later ────────────────► the engine has waited it out already: failed
     │  └─ Fenced ──────────────────────► the run again, as it may be a run of the owner before that woke up late
     │  └─ NEVER ───────────────────────► failed
     │  └─ no error of ours ────────────► failed, as a defect of ours
     └─ stopped, finished

Before each job the lease is looked at (`OwnedTasks`): a server that was paused and wakes starts nothing more.  What it
was amid may still claim the sink once, so the run of the owner begins again: one run goes on, that of the owner.

Source: TiCDC's changefeed states and its back-off between tries.
"""

import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidegate.config.changefeed import Changefeed
from tidegate.config.feed import FeedConfig
from tidegate.engine.ports import Tasks
from tidegate.engine.progress import FeedError, Progress, now
from tidegate.engine.retry_policy import FailureRun, RetryPolicy
from tidegate.model.errors import Fenced, Retry, TidegateError
from tidegate.server.errors import FeedCrashed, NotOwner
from tidegate.server.lease import steady_s
from tidegate.server.record import FeedId
from tidegate.server.spark_host import SparkHost
from tidegate.spark.tasks import SparkEnded

RENEW_S: Final = 1.0
"""Spark that dies with each job is not started without a pause."""


@dataclass(slots=True)
class OwnedTasks(Tasks):
    """Tasks of a server that owns its changefeeds. NotOwner where it no longer does."""

    tasks: Tasks
    owns: Callable[[], bool]

    @property
    def slots(self) -> int:
        """How many run at the same time."""
        return self.tasks.slots

    def run(self, work: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
        """Return the answers of `work` to `jobs`."""
        self._check()
        answers = self.tasks.run(work, jobs)
        self._check()
        return answers

    def aside(self, name: str) -> "OwnedTasks":
        """Return tasks for an activity beside the rounds."""
        return OwnedTasks(self.tasks.aside(name), self.owns)

    def cancel(self) -> None:
        """End the tasks of this activity that run now."""
        self.tasks.cancel()

    def _check(self) -> None:
        if not self.owns():
            raise NotOwner("another server owns the changefeeds now")


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended: the state, and the error of a failed one."""

    state: str
    error: FeedError | None = None


class RunningFeed:
    """The run of one changefeed. `told` hears its reports, `ended` its outcome, both of which run it is, in its
    thread."""

    def __init__(
        self,
        feed: FeedId,
        config: FeedConfig,
        spark: SparkHost,
        owns: Callable[[], bool],
        *,
        told: Callable[["RunningFeed", Progress], None],
        ended: Callable[["RunningFeed", RunEnd], None],
    ) -> None:
        self.id, self._config, self._spark, self._owns = feed, config, spark, owns
        self._told, self._ended = told, ended
        self._stop = threading.Event()
        self._going = False
        """True once the run has begun to read and write: from then on the engine itself waits out what may pass."""
        self._outcome: RunEnd | None = None
        self.progress: Progress | None = None
        self._thread = threading.Thread(target=self._run, name=str(feed), daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Ask for the end: what is in flight is finished, the checkpoint kept."""
        self._stop.set()

    def join(self, timeout_s: float) -> bool:
        """Return True once it has ended, False after `timeout_s`."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self.alive()

    def alive(self) -> bool:
        """Return True while its thread runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._outcome = self._tries()
        finally:  # also when a defect of ours goes on up: its trace is logged where threads end
            self._ended(self, self._outcome or _crashed())

    def _tries(self) -> RunEnd:
        patience = RetryPolicy(quick=0, stuck_s=self._config.stuck_ms / 1000)
        trouble: FailureRun | None = None
        while not self._stop.is_set():
            try:
                tasks = OwnedTasks(self._spark.tasks(str(self.id)), self._owns)
                done = Changefeed(self._config).run(
                    tasks=tasks, on_progress=self._hear, stop=self._stop, until=self._config.target_ts
                )
                return RunEnd("finished" if done.state == "finished" else "stopped")
            except SparkEnded as error:
                self._wait(error, 1, RENEW_S)
                self._spark.renew()
            except NotOwner:
                break
            except TidegateError as error:
                now_s = steady_s()
                trouble = patience.met(trouble, now_s)
                again = isinstance(error, Fenced) or (error.retry is Retry.LATER and not self._going)
                pause_s = patience.pause_s(trouble, now_s) if again else None
                if pause_s is None:
                    return RunEnd("failed", self._shown(error))
                self._wait(error, trouble.errors, pause_s)
        return RunEnd("stopped")

    def _shown(self, error: TidegateError) -> FeedError:
        """The error as the run told it, which knows since when."""
        told = self.progress and self.progress.error
        return told or FeedError.of(error, since=now())

    def _wait(self, error: TidegateError, tries: int, pause_s: float) -> None:
        """Tell a warning, and pause."""
        before = self.progress or Progress("starting")
        since = before.error.since if before.error is not None and tries > 1 else now()
        shown = FeedError.of(error, since=since, tries=tries, next_try_s=pause_s)
        self._report(Progress("starting", "warning", now(), checkpoint_ts=before.checkpoint_ts, error=shown))
        self._stop.wait(pause_s)

    def _hear(self, progress: Progress) -> None:
        self._going = self._going or progress.phase == "running"
        if progress.state == "failed":  # whether it is, is decided here
            self.progress = progress
            return
        self._report(progress)

    def _report(self, progress: Progress) -> None:
        self.progress = progress
        self._told(self, progress)


def _crashed() -> RunEnd:
    """The outcome of a run that a defect of ours has ended."""
    kind, value, trace = sys.exc_info()
    frames = traceback.extract_tb(trace)
    place = f" ({frames[-1].filename.rpartition('/')[2]}, line {frames[-1].lineno})" if frames else ""
    error = FeedCrashed(f"{'' if kind is None else kind.__name__}: {value}{place}: a defect of Tidegate; see the log")
    return RunEnd("failed", FeedError.of(error, since=now()))
