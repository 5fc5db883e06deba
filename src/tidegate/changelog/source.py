"""A source whose changes land first: whatever comes without an order, and whatever a lake's readers look at live.

    topic, log, directory ──landing (a thread, its own tasks)──► changelog ──► frontier, DDLs, slices by timestamp
    └ LandedSource ─────────────────────────────────────────────┴─ ChangelogSource: what another feed has landed ──┘

A landing that failed is made anew by `start`, since it starts once; the changelog alone is the truth in between.
"""

import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Final

import msgspec

from tidegate.changelog import ledger
from tidegate.changelog.changelog import Changelog, changelog_uri
from tidegate.changelog.landing import BatchLoop, LandingProgress
from tidegate.changelog.refused import note, put_aside
from tidegate.changelog.slice import ChangeSlice
from tidegate.changelog.trim import ChangelogTrim
from tidegate.engine.change import DeadLetter, Place, PlacedDdl
from tidegate.engine.ports import PartitionReached, Reading, Source, Tasks
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
    TidegateError,
)
from tidegate.model.table import TableInfo
from tidegate.schema.snapshot import SchemaState

TRIM_EVERY_S: Final = 60.0


class ChangelogSource(Source):
    """A source of what has landed at `uri`, as it stands: nobody lands, and nothing is trimmed."""

    def __init__(self, uri: str) -> None:
        self.changelog = Changelog(uri)

    def start(self, tasks: Tasks, checkpoint_ts: int | None) -> int:  # noqa: ARG002  nothing is read beside the rounds
        """Begin behind the checkpoint. HistoryLost where the changelog begins later; ConfigError where none is."""
        self.changelog.refresh()
        at, floor = checkpoint_ts or 0, self.changelog.floor()
        if self.changelog.version < 0:
            raise ConfigError(f"no changelog at {self.changelog.uri}")
        if at < floor:
            raise HistoryLost(f"the changelog at {self.changelog.uri} begins behind ts {floor}, the feed is at {at}")
        return at

    def stop(self) -> None:
        """Do nothing: nothing runs."""

    def failure(self) -> TidegateError | None:
        """Return None: nothing runs that could fail."""
        return None

    def idle(self) -> bool:
        """Return whether nothing has come since the last look."""
        return not self.changelog.refresh()

    def refresh(self) -> None:
        """Read the commits that are new."""
        self.changelog.refresh()

    def frontier(self) -> int | None:
        """Return the ts up to which everything has landed."""
        return self.changelog.frontier()

    def definitions(self, ts: int) -> Sequence[TableInfo]:  # noqa: ARG002  tables land as DDLs
        """Return nothing: the tables of a new feed land as CREATE statements, or are read off rows."""
        return ()

    def ddls(self, after: int, upto: int) -> list[PlacedDdl]:
        """Return each landed DDL with after <= commit_ts <= upto once."""
        return self.changelog.ddls(after, upto)

    def changes(self, after: int, upto: int) -> ChangeSlice:
        """Return the landed rows with after < commit_ts <= upto."""
        return self.changelog.slice(after, upto)

    def release(self, checkpoint_ts: int) -> None:
        """Do nothing: whoever lands trims."""

    def reading(self) -> Reading:
        """Return how far each partition is."""
        return Reading(partitions=self._reached({}))

    def _reached(self, highs: Mapping[tuple[str, int], int]) -> tuple[PartitionReached, ...]:
        return tuple(
            PartitionReached(topic, number, reached.offset, highs.get((topic, number)), reached.resolved)
            for topic, numbers in sorted(self.changelog.positions().items())
            for number, reached in sorted(numbers.items())
            if number >= 0  # below are notes of a source on a whole topic
        )


class LandedSource(ChangelogSource):
    """A source behind a changelog at `uri`; `make` gives a new landing into it.

    With `limits` the source trims the changelog behind the checkpoint; a sink that reads it too does so itself."""

    def __init__(self, make: Callable[[], BatchLoop], uri: str, *, limits: Limits | None = None) -> None:
        super().__init__(uri)
        self._make, self._limits = make, limits
        self.landing: BatchLoop = make()
        self._trim = ChangelogTrim(uri)
        self._trim_s = time.monotonic() + TRIM_EVERY_S
        self._tasks: Tasks | None = None
        self._refused = 0
        self._known: Container[tuple[str, str]] | None = None

    def carry(self, known: SchemaState) -> None:
        """Take notice of the tables that a feed which goes on has."""
        self._known = known.tables

    def start(self, tasks: Tasks, checkpoint_ts: int | None) -> int:
        """Land where the changelog stands. Raises what is wrong with the source and its positions."""
        self.landing.stop()
        self.landing, self._tasks = self._make(), tasks
        self.landing.needed_ts, self.landing.carried = checkpoint_ts or 0, self._known
        self.landing.start(tasks)
        self.changelog.refresh()
        self._check_kept(checkpoint_ts)
        return checkpoint_ts or 0

    def _check_kept(self, checkpoint_ts: int | None) -> None:
        """Raise MadeAnew for a sink that stands below what was trimmed behind its progress: it has lost that since."""
        floor, home = self.changelog.floor(), self.changelog.uri
        if (checkpoint_ts or 0) >= floor:
            return
        self.landing.stop()
        stands, back = "has no progress of this changefeed", "from the first message that it still has"
        if checkpoint_ts:
            stands, back = f"stands at ts {checkpoint_ts}", f"if it still reaches back to ts {checkpoint_ts}"
        raise MadeAnew(
            f"the target {stands}, and the changelog {home} was trimmed behind the checkpoint that it had, up to ts "
            f"{floor}: the target was emptied or restored from a backup, or is another one, and would miss what was "
            f"trimmed. Ways out: restore the target to a checkpoint of ts {floor} or later; or remove "
            f"{home}, and what the target still has of the tables if its progress is gone: the source is then landed "
            f"again, {back}; or start a fresh changefeed into a fresh target"
        )

    def stop(self) -> None:
        """End the landing; what it committed stays."""
        self.landing.stop()

    def epoch(self) -> int:
        """Return the number of the landing."""
        return self.landing.epoch

    def failure(self) -> TidegateError | None:
        """Return why the landing ended by itself."""
        return self.landing.exception()

    def replaced(self) -> TidegateError | None:
        """Return Fenced once a later landing has claimed the changelog."""
        mine, newest = self.landing.epoch, self.changelog.state.epoch
        return ledger.fenced(self.changelog.uri, mine, newest) if mine < newest else None

    def idle(self) -> bool:
        """Return True if everything that the source has at this moment has landed."""
        return self.landing.idle()

    def refused(self, error: TidegateError) -> bool:
        """Put the messages aside that `error` is about, if the landing may skip dead letters; True if it did.

        Raises `error` with the ways out where it may not."""
        if not error.messages or not isinstance(error, SchemaError | InputError | EncodeError | SinkRefused):
            return False
        places = {Place(*message[:3]): message[3] for message in error.messages}
        bodies = self.landing.bodies(places)
        letters = [
            DeadLetter(at, error.code, str(error), 0, *bodies.get(at, (None, None)), ts) for at, ts in places.items()
        ]
        if self.landing.skips_dead:
            self._refused += len(letters)
            return put_aside(self.changelog, letters)
        note(self.changelog, letters)
        first, home = letters[0].place, self.changelog.uri.removesuffix(changelog_uri(""))
        at = f"{first.topic}/{first.partition}/{first.offset}"
        more = f" ({len(letters) - 1} more messages like it, see `tidegate dlq list {home}`)" if letters[1:] else ""
        kind = type(error) if len(error.args) == 1 else PoisonMessage
        raise kind(
            f"{error}{more}. Ways out: look at the message with `tidegate dlq show {home} --at {at}`; give the right "
            f"bytes with `tidegate dlq replay {home} --at {at} --value-file FILE`; leave it out with `tidegate dlq "
            f"skip {home} --at {at}`; or set dead-letter=skip. Then start the feed again"
        ).at(**msgspec.structs.asdict(error.where))

    def release(self, checkpoint_ts: int) -> None:
        """Trim the changelog now and then, if that is the source's to do."""
        if self._limits is None or self._tasks is None or time.monotonic() < self._trim_s:
            return
        self._trim_s = time.monotonic() + TRIM_EVERY_S
        bound = changelog_bound(checkpoint_ts, self.frontier(), self._limits)
        grace, orphans = self._limits.reader_grace_ms, self._limits.orphan_grace_ms
        self._trim.run(bound, self._tasks.run, reader_grace_ms=grace, orphan_grace_ms=orphans)

    def reading(self) -> Reading:
        """Return what has landed since the start, and how far each partition is."""
        done: LandingProgress = self.landing.progress()
        reached = self.landing.reached()
        return Reading(
            messages=done.messages,
            rows=done.rows,
            dead_letters=done.dead_letters + self._refused,
            partitions=self._reached(done.highs) if reached is None else tuple(reached),
            roads=done.roads,
            left_out=tuple(self.landing.left_out()),
        )
