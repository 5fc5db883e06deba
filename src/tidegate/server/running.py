"""Running changefeeds on a server: one thread per run, a shared Spark session, and the lease of the owner.

A run (`RunningFeed`) ends by a stop, by its target or by an error, without affecting other changefeeds:

    run ── SparkEnded ──────────────────► Spark is restarted, the run too                      (after RENEW_S)
     │  └─ LATER, before it got going ──► warning, a pause (10 s, doubled each time), the run again
     │  └─ LATER, later ────────────────► failed: the engine has retried already
     │  └─ Fenced ──────────────────────► the run again: a former owner's run may have woken up late
     │  └─ NEVER ───────────────────────► failed
     │  └─ any other error ─────────────► failed, as a bug of Tidegate
     └─ stopped, finished

`OwnedTasks` checks the lease before each job, so a server that was paused starts nothing more when it wakes.  A job in
progress may still claim the sink once; the owner's run then begins again, and it is the one that continues.

    feed a ── tasks, pool a ──┐
    feed b ── tasks, pool b ──┴─► session (FAIR between pools) ── JVM dies ──► both get SparkEnded
                                                                     └─ the first of them starts another one

`SparkHost` starts the session for the first changefeed that needs it.  One that waits for rows needs none, so a server
without work has no JVM.

One server owns the changefeeds at a time, by a lease in the store whose epoch each owner increments:

    owner      writes `owner` every ttl / 4          owns until 0.8 ttl after it began the last write that succeeded
    others     read it as often                      unchanged for ttl and a little: write themselves in, epoch + 1

Each uses its own steady clock, which includes the time that a machine sleeps, so clocks need not agree.  An owner that
was paused finds its lease expired before it does anything, and its next write is refused; sinks fence what was in
flight.  `release` gives the lease up at a stop, so that the next owner need not wait.

Source: TiCDC's changefeed states and retry back-off; its capture session and owner election (capture-session-ttl).
"""

import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.config.changefeed import Changefeed
from tidegate.config.entry import FeedConfig
from tidegate.config.uri import mask_text, mask_value
from tidegate.engine.log_fields import fields
from tidegate.engine.ports import Tasks, WithStart
from tidegate.engine.progress import FeedError, Progress, now
from tidegate.engine.retry_policy import Outage, RetryPolicy, retry
from tidegate.model.errors import Fenced, Retry, TidegateError
from tidegate.objectstore.stores import Changed
from tidegate.server.documents import Documents, StoreAway
from tidegate.server.record import FeedCrashed, FeedId, NotOwner
from tidegate.spark.tasks import SparkEnded, SparkTasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAIR: Final = {"spark.scheduler.mode": "FAIR"}


class SparkHost:
    """Holds the Spark session of a server, which `open_session` starts."""

    def __init__(self, open_session: "Callable[[], SparkSession]") -> None:
        self._open = open_session
        self._lock = threading.Lock()
        self._spark: SparkSession | None = None
        self.starts = 0
        """Number of sessions that were started."""

    def tasks(self, pool: str) -> SparkTasks:
        """Return tasks of a pool; the session is started when they first run."""
        return SparkTasks(open_session=self.session, pool=pool)

    def session(self) -> "SparkSession":
        """Return the running session, or start one."""
        with self._lock:
            if self._spark is None:
                self._spark = self._open()
                self.starts += 1
            return self._spark

    def facts(self) -> dict[str, Any]:
        """Return what Spark says of itself: settings without secrets, what runs, memory; empty before it is started."""
        from tidegate.spark.session import SPARK_FAILURES

        if (spark := self._spark) is None:
            return {"starts": self.starts}
        try:
            context = spark.sparkContext
            tracker, runtime = context.statusTracker(), context._jvm.java.lang.Runtime.getRuntime()  # noqa: SLF001
            return {
                "starts": self.starts,
                "version": spark.version,
                "settings": {name: mask_value(name, value) for name, value in sorted(context.getConf().getAll())},
                "active_jobs": list(tracker.getActiveJobsIds()),
                "active_stages": list(tracker.getActiveStageIds()),
                "heap_bytes": {
                    "max": runtime.maxMemory(),
                    "total": runtime.totalMemory(),
                    "free": runtime.freeMemory(),
                },
            }
        except (*SPARK_FAILURES, AttributeError, OSError) as error:
            return {"starts": self.starts, "error": mask_text(str(error))}

    def renew(self) -> None:
        """Forget the session if it has ended."""
        from tidegate.spark.session import SPARK_FAILURES, forget_session

        with self._lock:
            if self._spark is None:
                return
            try:
                ended = bool(self._spark.sparkContext._jsc.sc().isStopped())  # noqa: SLF001
            except (*SPARK_FAILURES, AttributeError, OSError):
                ended = True
            if ended:
                forget_session()
                self._spark = None


NAME: Final = "owner"
PARTS: Final = 4
SAFE: Final = 0.8
"""Fraction of the ttl for which an owner trusts its lease."""
GRACE: Final = 0.1


def steady_s() -> float:
    """Return seconds of a clock that includes the time in which processes are stopped and machines sleep."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class LeaseHolder(msgspec.Struct, frozen=True, kw_only=True):
    """The lease's document. `server` is empty if nobody owns; `renewed` is for people."""

    epoch: int
    server: str
    address: str
    ttl_s: float
    renewed: str = ""


class Lease:
    """The lease of a server. One thread calls `step`, any thread `owns`."""

    def __init__(self, documents: Documents, server: str, address: str, ttl_s: float) -> None:
        self._documents, self._server, self._address, self.ttl_s = documents, server, address, ttl_s
        self._mine: Any = None
        """The version of the lease that this server wrote last; None while another one owns."""
        self._until_s = 0.0
        self._seen: tuple[Any, float] | None = None
        """The version that others wrote last, and when it was first seen."""
        self.holder: LeaseHolder | None = None
        self._lock = threading.Lock()

    @property
    def step_s(self) -> float:
        """Interval at which `step` must be called."""
        return self.ttl_s / PARTS

    @property
    def epoch(self) -> int:
        """The epoch of the owner seen last; 0 before any."""
        return 0 if self.holder is None else self.holder.epoch

    def owns(self) -> bool:
        """Return True while this server may act as the owner."""
        return self._mine is not None and steady_s() < self._until_s

    def step(self) -> bool:
        """Renew the lease, or acquire an expired one; return whether this server owns. While the store does not answer,
        the lease runs out."""
        with self._lock:
            try:
                if self._mine is not None:
                    self._put(self.epoch, self._mine)
                else:
                    self._acquire()
            except Changed:
                self._mine = None
            except StoreAway:
                pass
        return self.owns()

    def _acquire(self) -> None:
        """Acquire the lease if nobody holds it, or if it has expired."""
        document = self._documents.read(NAME)
        if document is None:
            self._put(1, None)
            return
        self.holder = holder = msgspec.json.decode(document.body, type=LeaseHolder)
        if self._seen is None or self._seen[0] != document.version:
            self._seen = document.version, steady_s()
        silent_s = steady_s() - self._seen[1]
        if not holder.server or silent_s > holder.ttl_s * (1 + GRACE):
            self._put(holder.epoch + 1, document.version)

    def _put(self, epoch: int, version: Any) -> None:
        began_s = steady_s()
        owner = LeaseHolder(epoch=epoch, server=self._server, address=self._address, ttl_s=self.ttl_s, renewed=now())
        self._mine = self._documents.write(NAME, msgspec.json.encode(owner), version)
        self.holder, self._until_s = owner, began_s + SAFE * self.ttl_s

    def release(self) -> None:
        """Give up the lease, if this server holds it."""
        with self._lock:
            if self._mine is None:
                return
            free = LeaseHolder(epoch=self.epoch, server="", address="", ttl_s=self.ttl_s, renewed=now())
            with suppress(Changed, StoreAway):  # it is over, or runs out
                self._documents.write(NAME, msgspec.json.encode(free), self._mine)
            self._mine, self._until_s = None, 0.0


RENEW_S: Final = 1.0
"""Pause before Spark is started again, in case it dies with each job."""


@dataclass(slots=True)
class OwnedTasks(Tasks):
    """Tasks of a server that owns its changefeeds. Raises NotOwner once it does not."""

    tasks: Tasks
    owns: Callable[[], bool]

    @property
    def slots(self) -> int:
        return self.tasks.slots

    def run(self, work: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
        self._check()
        answers = self.tasks.run(work, jobs)
        self._check()
        return answers

    def on_start(self, listener: Callable[[str], None]) -> None:
        if isinstance(self.tasks, WithStart):
            self.tasks.on_start(listener)

    def aside(self, name: str) -> "OwnedTasks":
        return OwnedTasks(self.tasks.aside(name), self.owns)

    def cancel(self) -> None:
        self.tasks.cancel()

    def _check(self) -> None:
        if not self.owns():
            raise NotOwner("another server owns the changefeeds now")


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The outcome of a run: its state, and the error of a failed one."""

    state: str
    error: FeedError | None = None


class RunningFeed:
    """The run of a changefeed. `on_report` is called with the run and each report, one at a time, `on_exit` with the
    run and its outcome."""

    def __init__(
        self,
        feed: FeedId,
        config: FeedConfig,
        spark: SparkHost,
        owns: Callable[[], bool],
        *,
        on_report: Callable[["RunningFeed", Progress], None],
        on_exit: Callable[["RunningFeed", RunEnd], None],
    ) -> None:
        self.id, self._config, self._spark, self._owns = feed, config, spark, owns
        self._on_report, self._on_exit = on_report, on_exit
        self._stop = threading.Event()
        self.is_over = False
        """True once its end was handled, under the changefeed's lock."""
        self._is_running = False
        """True once this try has begun to read and write: from then on the engine itself retries transient errors."""
        self._outcome: RunEnd | None = None
        self.progress: Progress | None = None
        self._thread = threading.Thread(target=self._run, name=str(feed), daemon=True)

    def start(self) -> None:
        """Start the run."""
        self._thread.start()

    def stop(self) -> None:
        """Request the end: work in flight is finished, the checkpoint stored."""
        self._stop.set()

    @property
    def stops(self) -> bool:
        """True once its end was requested."""
        return self._stop.is_set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; return False after `timeout_s`."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self.alive()

    def alive(self) -> bool:
        """Return True while its thread runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        outage = Outage(RetryPolicy(quick=0, stuck_s=self._config.stuck_ms / 1000))
        try:
            with fields(changefeed=str(self.id)):
                self._outcome = retry(self._once, partial(self._survive, outage))
        except TidegateError as error:
            self._outcome = RunEnd("failed", self._shown(error))
        finally:  # also when a defect of ours goes on up: its trace is logged where threads end
            self._on_exit(self, self._outcome or _crashed())

    def _once(self) -> RunEnd:
        if self._stop.is_set():
            return RunEnd("stopped")
        self._is_running = False
        try:
            tasks = OwnedTasks(self._spark.tasks(str(self.id)), self._owns)
            outcome = Changefeed(self._config).run(
                tasks=tasks, on_progress=self._on_progress, stop=self._stop, until=self._config.target_ts
            )
        except NotOwner:
            return RunEnd("stopped")
        return RunEnd("finished" if outcome.state == "finished" else "stopped")

    def _survive(self, outage: Outage, error: TidegateError) -> None:
        """Wait until the next try. Raises `error` if it ends the run."""
        if isinstance(error, SparkEnded):
            self._wait(error, 1, RENEW_S)
            self._spark.renew()
            return
        passes = isinstance(error, Fenced) or (error.retry is Retry.LATER and not self._is_running)
        pause_s = outage.pause_s(error, passes=passes)
        self._wait(error, outage.errors, pause_s)

    def _shown(self, error: TidegateError) -> FeedError:
        """Return the error as the run reported it, with its start."""
        reported = self.progress and self.progress.error
        return reported or FeedError.of(error, since=now())

    def _wait(self, error: TidegateError, tries: int, pause_s: float) -> None:
        """Report a warning, then pause."""
        before = self.progress or Progress("starting")
        since = before.error.since if before.error is not None and tries > 1 else now()
        shown = FeedError.of(error, since=since, tries=tries, next_try_s=pause_s)
        self._report(Progress("starting", "warning", now(), checkpoint_ts=before.checkpoint_ts, error=shown))
        self._stop.wait(pause_s)

    def _on_progress(self, progress: Progress) -> None:
        self._is_running = self._is_running or progress.phase == "running"
        if progress.state == "failed":  # whether it is, is decided here
            self.progress = progress
            return
        self._report(progress)

    def _report(self, progress: Progress) -> None:
        self.progress = progress
        self._on_report(self, progress)


def _crashed() -> RunEnd:
    """Return the outcome of a run that an unexpected error has ended."""
    kind, value, trace = sys.exc_info()
    frames = traceback.extract_tb(trace)
    where = f" ({frames[-1].filename.rpartition('/')[2]}, line {frames[-1].lineno})" if frames else ""
    error = FeedCrashed(f"{'' if kind is None else kind.__name__}: {value}{where}: a defect of Tidegate; see the log")
    return RunEnd("failed", FeedError.of(error, since=now()))
