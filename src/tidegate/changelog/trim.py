"""Keeping the changelog short: landed rows go once the lake has them, small files become few.

    commit_ts   ──────────────┬───────────────────┬──────────────►
    row files   │a│b│ c │d│e│ │ f │g│h│ i │j│k│l│ │ ...
                └─ dropped ─┘ bound   └─ folded ─┘ checkpoint          bound: engine/retention.py, changelog_bound

    1 drop      row files whose last commit_ts is at or below the bound
    2 drop      control files in which nothing is needed any more: DDLs below the bound, letters replayed since
    3 fold      many small row files into one, a row group a table as ever; many small control files into one
    4 sweep     delete files that left the log a grace period ago, and those that no commit ever named

Steps 1 to 3 are commits that leave positions, epoch and frontier as they were, so a landing goes on behind them as it
does behind an append; only the floor rises, which tells readers how far back they can go.  A fold never adds rows
twice: it is not done unless all that it takes away is still there.  Slices that were made before keep finding their
files until the sweep.

Dead letters stay until they are replayed, and messages that the feed stands at as long as it does.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from tidegate.changelog import ledger
from tidegate.changelog.changelog import Changelog
from tidegate.changelog.control import ControlFile, read_control
from tidegate.changelog.files import DEAD, HALT, REFUSED, REPLAYED, ControlFiles, RowFiles
from tidegate.changelog.report import LandedFile
from tidegate.changelog.slice import ChangeSlice, RowGroup, groups_of
from tidegate.engine.change import DeadLetter, Place
from tidegate.objectstore.lifespan import Lifespans, cut_log, stored_files, sweep

SMALL_BYTES: Final = 2 << 20
SMALL_FILES_MAX: Final = 32
FOLD_BYTES_MAX: Final = 16 << 20
FOLD_ROWS_MAX: Final = 500_000
"""What one fold takes, on disk."""
FOLDS_MAX: Final = 4
"""Folds of one pass; the rest comes with the next."""
FOLD_FLUSH_BYTES: Final = 64 << 20
"""What it holds in memory at once."""
COMMITS_MAX: Final = 2_000
NOTHING: Final = ControlFile((), (), (), ())

Runner: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""Runs a function over some jobs, in workers or here."""


class Fold(msgspec.Struct, frozen=True):
    """Row files that become one."""

    uri: str
    files: tuple[LandedFile, ...]


@dataclass(slots=True)
class Trimmed:
    """What a pass did (with dry_run: would do)."""

    dropped: int = 0
    folded: int = 0
    files: int = 0
    size_bytes: int = 0
    log_files: int = 0
    unfinished: bool = False


class ChangelogTrim:
    """The upkeep of one changelog, pass by pass."""

    def __init__(self, uri: str, *, dry_run: bool = False) -> None:
        self._uri, self._dry_run = uri, dry_run
        self._log = Changelog(uri)
        self._lifespans = Lifespans(uri)
        self._controls: dict[str, ControlFile] = {}

    def run(
        self,
        bound: int,
        runner: Runner,
        *,
        reader_grace_ms: int,
        orphan_grace_ms: int,
        now_ms: int | None = None,
    ) -> Trimmed:
        """Return one pass that drops what lies at or below `bound`; folds are run by `runner`."""
        done = Trimmed()
        self._log.refresh()
        if self._log.version < 0:
            return done
        known = {file.path for file in self._log.files()}
        self._controls = {path: control for path, control in self._controls.items() if path in known}
        self._drop(bound, done)
        if not self._dry_run:
            self._fold(runner, done)
        now_ms = int(time.time() * 1000) if now_ms is None else now_ms
        self._sweep(now_ms - reader_grace_ms, now_ms - orphan_grace_ms, done)
        return done

    def _drop(self, bound: int, done: Trimmed) -> None:
        """Steps 1 and 2, and the fold of control files."""
        files = self._log.files()
        over = [file for file in files if file.part == "rows" and file.max_ts is not None and file.max_ts <= bound]
        controls = {file: self._control(file) for file in files if file.part == "control"}
        left = _left(controls, bound, {halt.place for halt in self._log.state.halted})
        empty = [file for file, control in left.items() if control == NOTHING]
        small = [file for file in left if file not in empty and file.size_bytes <= SMALL_BYTES]
        small = small if len(small) > SMALL_FILES_MAX else []
        done.dropped = len(over) + len(empty)
        if self._dry_run or not (over or empty or small):
            return
        made = rewritten(self._uri, [(file, left[file]) for file in small]) if small else ()
        if ledger.replace(self._uri, [*over, *empty, *small], made, floor=bound if over else None):
            done.folded += len(small)
            self._log.refresh()

    def _control(self, file: LandedFile) -> ControlFile:
        """What a control file says, without its messages; files never change."""
        found = self._controls.get(file.path)
        if found is None:
            found = self._controls[file.path] = read_control(self._uri, file.path)
        return found

    def _fold(self, runner: Runner, done: Trimmed) -> None:
        """Step 3 for row files."""
        folds = _folds(self._uri, self._log.files())
        done.unfinished = len(folds) > FOLDS_MAX
        folds = folds[:FOLDS_MAX]
        for job, made in zip(folds, runner(fold, folds) if folds else (), strict=True):
            if ledger.replace(self._uri, job.files, made):
                done.folded += len(job.files)

    def _sweep(self, readers_ms: int, orphans_ms: int, done: Trimmed) -> None:
        """Step 4."""
        files = stored_files(self._uri)
        if not self._lifespans.advance(self._log.version, COMMITS_MAX):
            done.unfinished = True
            return
        swept = sweep(
            self._lifespans,
            files,
            lambda _: False,
            removed_before_ms=readers_ms,
            orphans_before_ms=orphans_ms,
            dry_run=self._dry_run,
        )
        done.files, done.size_bytes = swept.files, swept.size_bytes
        lowest = self._lifespans.version
        done.log_files = cut_log(self._uri, files, lowest, written_before_ms=readers_ms, dry_run=self._dry_run)


def fold(job: Fold) -> tuple[LandedFile, ...]:
    """Write the rows of some files as one file (more, if they are large), not yet committed."""
    groups = [group for file in job.files for group in groups_of(job.uri, file.path)]
    files = RowFiles(job.uri, flush_bytes=FOLD_FLUSH_BYTES)
    for some in portions(groups):
        low, high = min(group.min_ts for group in some), max(group.max_ts for group in some)
        name = some[0].name
        files.add([(name, ChangeSlice(job.uri, low - 1, high, some).read(name))])
    return files.close()


def portions(groups: Iterable[RowGroup], most_bytes: int = FOLD_FLUSH_BYTES) -> Iterator[tuple[RowGroup, ...]]:
    """Row groups that are read together: those of a table, in order of time, as long as they take `most_bytes`.

    Files say how large they are on disk, and wide rows may be a thousand times as large in memory."""
    held: list[RowGroup] = []
    size_bytes = 0
    for group in sorted(groups, key=lambda one: (one.name.key, one.min_ts, one.path, one.number)):
        size_bytes += group.size_bytes
        if held and (group.name.key != held[0].name.key or size_bytes > most_bytes):
            yield tuple(held)
            held, size_bytes = [], group.size_bytes
        held.append(group)
    if held:
        yield tuple(held)


def _folds(uri: str, files: Sequence[LandedFile]) -> list[Fold]:
    """Small row files that lie next to one another in time, in heaps that one task holds; none when they are few."""
    small = [file for file in files if file.part == "rows" and file.size_bytes <= SMALL_BYTES]
    if len(small) <= SMALL_FILES_MAX:
        return []
    heaps: list[list[LandedFile]] = [[]]
    size_bytes = rows = 0
    for file in sorted(small, key=lambda file: (file.max_ts or 0, file.path)):
        size_bytes, rows = size_bytes + file.size_bytes, rows + file.rows
        if size_bytes > FOLD_BYTES_MAX or rows > FOLD_ROWS_MAX:
            heaps.append([])
            size_bytes, rows = file.size_bytes, file.rows
        heaps[-1].append(file)
    return [Fold(uri, tuple(heap)) for heap in heaps if len(heap) > 1]


def _left(
    controls: Mapping[LandedFile, ControlFile], bound: int, halts: Collection[Place]
) -> dict[LandedFile, ControlFile]:
    """What is still needed of each control file.

    A mark "replayed" stays while any file holds the letter that it is about, so the letter goes first."""
    replayed = {place for control in controls.values() for place in control.replayed}
    letters = {letter.place for control in controls.values() for letter in control.dead}
    return {
        file: ControlFile(
            ddls=tuple(placed for placed in control.ddls if (placed.ddl.commit_ts or 0) >= bound),
            dead=tuple(letter for letter in control.dead if letter.place not in replayed),
            halted=tuple(letter for letter in control.halted if letter.place in halts),
            replayed=tuple(place for place in control.replayed if place in letters),
            refused=tuple(letter for letter in control.refused if (letter.commit_ts or 0) > bound),
        )
        for file, control in controls.items()
    }


def rewritten(uri: str, controls: Sequence[tuple[LandedFile, ControlFile]]) -> tuple[LandedFile, ...]:
    """Write what is left of some control files as one file (more, if letters are large), not yet committed."""
    files = ControlFiles(uri, FOLD_FLUSH_BYTES)
    for file, control in controls:
        marks = [(REPLAYED, _mark(place)) for place in control.replayed]
        files.add(control.ddls, [*_letters(uri, file, control), *marks])
    return files.close()


def _letters(uri: str, file: LandedFile, control: ControlFile) -> list[tuple[str, DeadLetter]]:
    """The letters of `control` with their messages, which only their file has."""
    left = {letter.place for letter in (*control.dead, *control.halted, *control.refused)}
    whole = read_control(uri, file.path, bodies=True) if left else control
    kinds = ((DEAD, whole.dead), (HALT, whole.halted), (REFUSED, whole.refused))
    return [(kind, letter) for kind, letters in kinds for letter in letters if letter.place in left]


def _mark(place: Place) -> DeadLetter:
    return DeadLetter(place, "", "", 0, None, None)
