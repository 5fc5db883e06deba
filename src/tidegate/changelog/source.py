"""The landing loop, which moves a source into the changelog batch by batch, and sources that read from a changelog.

    topic, log, directory ──landing (a thread, its own tasks)──► changelog ──► frontier, DDLs, slices by timestamp
    └ LandedSource ─────────────────────────────────────────────┴─ ChangelogSource: what another feed has landed ──┘

Landing is used where changes arrive without an order, and for lakes whose readers see unmerged changes.

    1 claim    take ownership of the changelog (`claim` in changelog.py) and read its newest State
    2 plan     new data of the source, at most one batch                     driver, every trigger
    3 read     rows to Parquet                                               tasks
    4 commit   files + positions + frontier, one Delta commit                driver
    5 halt     if the next batch cannot be read, the landing ends after the commit, with the reason

The changelog is the only state: a landing starts at the position of the newest commit.  A batch killed before 4 leaves
files that no commit names; killed after it, the batch is complete.  So each change lands exactly once.

The loop (`BatchLoop`) runs in its own thread beside the feed's rounds, with tasks that are cancelled separately.  After
a failure `start` creates a new landing, since a landing starts only once.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from tidegate.changelog.changelog import Changelog, ChangelogTrim, changelog_uri, fenced, note, put_aside
from tidegate.changelog.files import ChangeSlice, State
from tidegate.engine.change import DeadLetter, EventPosition, SourceDdl
from tidegate.engine.ports import Source, Tasks
from tidegate.engine.reading import CaptureProgress, DdlJob, PartitionReached, Reading
from tidegate.engine.retention import Limits, changelog_bound
from tidegate.model.errors import (
    ConfigError,
    EncodeError,
    HistoryLost,
    InputError,
    MadeAnew,
    PoisonMessage,
    SchemaError,
    SinkRefused,
    SourceBehind,
    SourceError,
    TidegateError,
)
from tidegate.model.left_out import LeftOut
from tidegate.model.path_counts import PathCounts
from tidegate.model.table import TableInfo
from tidegate.objectstore.stores import STORE_ERRORS, first_line
from tidegate.objectstore.threads import begin_thread
from tidegate.schema.snapshot import SchemaState

Message: TypeAlias = tuple[bytes | None, bytes | None]
"""Key and value."""

TRIGGER_MS: Final = 300
"""The shortest time between the starts of batches."""
LAST_BATCH_S: Final = 20.0
"""Time limit for the batch in flight at a stop; cancelling a job would fill the log with stack traces."""


@dataclass(frozen=True, slots=True)
class LandingProgress:
    """Totals of one landing since its start; `highs` are the end offsets of the partitions at the last read."""

    batches: int = 0
    messages: int = 0
    rows: int = 0
    ddls: int = 0
    dead_letters: int = 0
    path_counts: PathCounts = field(default_factory=PathCounts)
    """Rows by path."""
    highs: Mapping[tuple[str, int], int] = field(default_factory=dict)


class BatchLoop(ABC):
    """The landing of a source into a changelog; start it once. `reading` may be called before."""

    def __init__(self, feed: str, trigger_ms: int = TRIGGER_MS) -> None:
        self._feed, self._trigger_s = feed, trigger_ms / 1000
        self._thread: threading.Thread | None = None
        self._error: TidegateError | None = None
        self._halt = threading.Event()
        self._late = False
        """True once the time limit of a stop is over: the batch in flight must not be committed."""
        self._state = State()
        self.needed_ts = 0
        """The sink's checkpoint: a new changelog must have all changes above it."""
        self.carried: Container[tuple[str, str]] | None = None
        """The sink's tables at that checkpoint, by key; None if unknown."""
        self.warnings: tuple[str, ...] = ()
        """What whoever runs the feed is told of its begin."""
        self.waits = False
        """True if the source was behind at `start`, which may then be called again."""
        self.skips_dead = False
        """True if a message that cannot be decoded becomes a dead letter instead of ending the feed."""
        self.begin_ts = 0
        """The ts up to which the source has removed what landed; 0: nothing, or it is unknown."""
        self._progress = LandingProgress()

    @abstractmethod
    def _claim(self) -> State:
        """Step 1. Raises errors of the source and its positions."""

    @abstractmethod
    def _batch(self) -> None:
        """Steps 2 to 5 for one batch, which `_land` commits; without new data there is no batch."""

    def prepare(self) -> None:
        """Do what `Source.prepare` does."""
        return

    @abstractmethod
    def idle(self) -> bool:
        """Return True if all data of the source has landed."""

    def ended(self) -> bool:
        """Return True if the writer of the source has ended; False if that is unknown."""
        return False

    def bodies(self, positions: Collection[EventPosition]) -> Mapping[EventPosition, Message]:  # noqa: ARG002
        """Return the messages at `positions` that the source still has; {} for a source without messages."""
        return {}

    def reached(self) -> Sequence[PartitionReached] | None:
        """Return the source's progress; None if the changelog's partitions have it."""
        return None

    def left_out(self) -> Sequence[LeftOut]:
        """Return the tables of the filter that do not land, as far as the source knows."""
        return ()

    def table_ids(self) -> Sequence[int]:
        """Return the physical ids of the tables that land, as far as the source knows."""
        return ()

    def jobs(self) -> tuple[DdlJob, ...]:
        """Return the DDLs that run upstream, as far as the source knows."""
        return ()

    def capture(self) -> CaptureProgress | None:
        """Return the capture that runs beside it."""
        return None

    def start(self, tasks: Tasks) -> None:
        """Claim the changelog and begin. Raises as `_claim` does."""
        assert self._thread is None, "a landing can be started only once"
        self._tasks, self.waits = tasks.aside(f"{self._feed}/land"), False
        try:
            self._state = self._claim()
        except SourceBehind:
            self.waits = True
            raise
        self._thread = begin_thread(self._run, f"{self._feed}/land")

    def stop(self) -> None:
        """Stop after the batch in flight; an uncommitted batch is discarded."""
        self.waits = False
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
        """Return the error that ended the landing; None while it runs or after `stop`."""
        return self._error

    @property
    def epoch(self) -> int:
        return self._state.epoch

    def progress(self) -> LandingProgress:
        """Return the totals since the start."""
        return self._progress

    def _landed(
        self, state: State, highs: Mapping[tuple[str, int], int], path_counts: Iterable[PathCounts] = ()
    ) -> None:
        """Add a commit to the totals; `path_counts` come from its tasks."""
        done, self._state = self._progress, state
        self._progress = LandingProgress(
            batches=done.batches + 1,
            messages=done.messages + state.messages,
            rows=done.rows + state.rows,
            ddls=done.ddls + state.ddls,
            dead_letters=done.dead_letters + state.dead,
            path_counts=sum(path_counts, done.path_counts),
            highs={**done.highs, **highs},
        )

    def _run(self) -> None:
        """Land batches until a stop or an error, which `exception` returns."""
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


TRIM_EVERY_S: Final = 60.0


class ChangelogSource(Source):
    """A source over the existing changelog at `uri`; it neither lands nor trims."""

    def __init__(self, uri: str) -> None:
        self.changelog = Changelog(uri)

    def start(self, tasks: Tasks, checkpoint_ts: int | None) -> int:  # noqa: ARG002  nothing is read beside the rounds
        """Begin after the checkpoint. Raises HistoryLost if the changelog begins later, ConfigError if there is
        none."""
        self.changelog.refresh()
        feed_ts, floor = checkpoint_ts or 0, self.changelog.floor()
        if self.changelog.version < 0:
            raise ConfigError(f"no changelog at {self.changelog.uri}")
        if feed_ts < floor:
            raise HistoryLost(
                f"the changelog at {self.changelog.uri} starts above ts {floor}, but the changefeed is at {feed_ts}"
            )
        return feed_ts

    def stop(self) -> None:
        """Do nothing: there is no landing."""

    def failure(self) -> TidegateError | None:
        return None

    def idle(self) -> bool:
        return not self.changelog.refresh()

    def refresh(self) -> None:
        self.changelog.refresh()

    def frontier(self) -> int | None:
        return self.changelog.frontier()

    def rests_at(self, ts: int) -> int:
        return self.changelog.rests_at(ts)

    def definitions(self, ts: int) -> Sequence[TableInfo]:  # noqa: ARG002  tables land as DDLs
        return ()

    def ddls(self, after: int, upto: int) -> list[SourceDdl]:
        return self.changelog.ddls(after, upto)

    def changes(self, after: int, upto: int) -> ChangeSlice:
        return self.changelog.slice(after, upto)

    def release(self, checkpoint_ts: int) -> None:
        """Do nothing: the landing feed trims."""

    def reading(self) -> Reading:
        return Reading(partitions=self._reached({}))

    def _reached(self, highs: Mapping[tuple[str, int], int]) -> tuple[PartitionReached, ...]:
        return tuple(
            PartitionReached(topic, number, reached.offset, highs.get((topic, number)), reached.resolved)
            for topic, numbers in sorted(self.changelog.positions().items())
            for number, reached in sorted(numbers.items())
            if number >= 0  # below are notes of a source on a whole topic
        )


class LandedSource(ChangelogSource):
    """A source that lands into the changelog at `uri` and reads from it; `make` creates a landing. With `limits` it
    trims the changelog behind the checkpoint, unless a sink that reads it does."""

    def __init__(self, make: Callable[[], BatchLoop], uri: str, *, limits: Limits | None = None) -> None:
        super().__init__(uri)
        self._make, self._limits = make, limits
        self.landing: BatchLoop = make()
        self._trim = ChangelogTrim(uri)
        self._trim_s = time.monotonic() + TRIM_EVERY_S
        self._tasks: Tasks | None = None
        self._refused = 0
        self._carried: Container[tuple[str, str]] | None = None

    def carry(self, state: SchemaState) -> None:
        self._carried = state.tables

    def prepare(self) -> None:
        self.landing.prepare()

    def start(self, tasks: Tasks, checkpoint_ts: int | None) -> int:
        """Start landing at the changelog's positions. Raises errors of the source and its positions."""
        if not self.landing.waits:
            self.landing.stop()
            self.landing = self._make()
        self._tasks = tasks
        self.landing.needed_ts, self.landing.carried = checkpoint_ts or 0, self._carried
        self.landing.start(tasks)
        self.changelog.refresh()
        self._check_kept(checkpoint_ts)
        return checkpoint_ts or 0

    def _check_kept(self, checkpoint_ts: int | None) -> None:
        """Raise MadeAnew for a sink whose checkpoint is below the trimmed part: it has lost progress."""
        floor, home = self.changelog.floor(), self.changelog.uri
        if (checkpoint_ts or 0) >= floor:
            return
        self.landing.stop()
        state, back = "has no progress of this changefeed", "from its first remaining message"
        if checkpoint_ts:
            state, back = f"is at ts {checkpoint_ts}", f"if it still reaches back to ts {checkpoint_ts}"
        raise MadeAnew(
            f"the target {state}, and the changelog {home} was trimmed behind its former checkpoint, up to ts {floor}: "
            f"the target was emptied, restored from a backup or replaced, and would miss the trimmed changes. To "
            f"continue: restore the target to a checkpoint at or above ts {floor}; or remove {home}, and the target's "
            f"remaining tables if its progress is gone: the source is then landed again, {back}; or start a new "
            "changefeed with a new target"
        )

    def stop(self) -> None:
        self.landing.stop()

    def epoch(self) -> int:
        return self.landing.epoch

    def failure(self) -> TidegateError | None:
        return self.landing.exception()

    def replaced(self) -> TidegateError | None:
        mine, newest = self.landing.epoch, self.changelog.state.epoch
        return fenced(self.changelog.uri, mine, newest) if mine < newest else None

    def idle(self) -> bool:
        return self.landing.idle()

    def ended(self) -> bool:
        return self.landing.ended()

    def refused(self, error: TidegateError) -> bool:
        """Put the messages that `error` names aside if the landing may skip dead letters, and return True if it did.
        Otherwise raises `error` with the ways out."""
        if not error.messages or not isinstance(error, SchemaError | InputError | EncodeError | SinkRefused):
            return False
        positions = {EventPosition(*message[:3]): message[3] for message in error.messages}
        bodies = self.landing.bodies(positions)
        letters = [
            DeadLetter(position, error.code, str(error), 0, *bodies.get(position, (None, None)), ts)
            for position, ts in positions.items()
        ]
        if self.landing.skips_dead:
            self._refused += len(letters)
            return put_aside(self.changelog, letters)
        note(self.changelog, letters)
        first, home = letters[0].position, self.changelog.uri.removesuffix(changelog_uri(""))
        position = f"{first.topic}/{first.partition}/{first.offset}"
        more = f" ({len(letters) - 1} more messages like it, see `tidegate dlq list {home}`)" if letters[1:] else ""
        kind = type(error) if len(error.args) == 1 else PoisonMessage
        raise kind(
            f"{error}{more}. To continue: inspect the message with `tidegate dlq show {home} --at {position}`; "
            f"replace its bytes with `tidegate dlq replay {home} --at {position} --value-file FILE`; skip it with "
            f"`tidegate dlq skip {home} --at {position}`; or set dead-letter=skip. Then start the changefeed again"
        ).at(**msgspec.structs.asdict(error.where))

    def release(self, checkpoint_ts: int) -> None:
        if self._limits is None or self._tasks is None or time.monotonic() < self._trim_s:
            return
        self._trim_s = time.monotonic() + TRIM_EVERY_S
        bound = changelog_bound(checkpoint_ts, self.frontier(), self._limits)
        grace, orphans = self._limits.reader_grace_ms, self._limits.orphan_grace_ms
        self._trim.run(bound, self._tasks.run, reader_grace_ms=grace, orphan_grace_ms=orphans)

    def reading(self) -> Reading:
        done: LandingProgress = self.landing.progress()
        reached = self.landing.reached()
        return Reading(
            messages=done.messages,
            rows=done.rows,
            lands=True,
            dead_letters=done.dead_letters + self._refused,
            partitions=self._reached(done.highs) if reached is None else tuple(reached),
            path_counts=done.path_counts,
            left_out=tuple(self.landing.left_out()),
            table_ids=self.landing.table_ids(),
            capture=self.landing.capture(),
            warnings=self.landing.warnings,
            jobs=self.landing.jobs(),
            begin_ts=self.landing.begin_ts,
        )
