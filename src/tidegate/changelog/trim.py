"""Upkeep of the changelog: dropping merged rows, folding small files, and removing messages that cannot be applied.

    commit_ts   ──────────────┬───────────────────┬──────────────►
    row files   │a│b│ c │d│e│ │ f │g│h│ i │j│k│l│ │ ...
                └─ dropped ─┘ bound   └─ folded ─┘ checkpoint          bound: engine/retention.py, changelog_bound

    1 drop      row files whose last commit_ts is at or below the bound
    2 drop      control files without anything needed: DDLs below the bound, letters replayed since
    3 fold      many small row files into one, still one table per row group; many small control files into one
    4 sweep     delete files that left the log a grace period ago, and those that no commit ever named

Steps 1 to 3 are commits that leave positions, epoch and frontier as they were, so a landing continues after them as it
does after an append; only the floor rises, which tells readers how far back they can go.  A fold is only committed if
all files that it replaces are still there, so it never adds rows twice.  Earlier slices find their files until the
sweep.  Dead letters are kept until they are replayed, and messages at which the feed halts as long as it does.

A landed message may be refused by a plan or a sink: a value that its column cannot hold, an unreadable DDL.  Its error
has `messages`:

    dead-letter=skip   put_aside: what they hold leaves the changelog, and they become dead letters, in one commit; the
                       round is planned again
    dead-letter=halt   note: they can be listed and shown; the feed ends, and a user skips or replays them

A message leaves as it landed: complete, with its rows of other tables, and a DDL with its repeats.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.changelog import changelog as ledger
from tidegate.changelog.changelog import Changelog, ControlFile, read_control
from tidegate.changelog.files import (
    DEAD,
    HALT,
    REFUSED,
    REPLAYED,
    ChangeSlice,
    ControlFiles,
    LandedFile,
    RowFiles,
    RowGroup,
    groups_of,
)
from tidegate.engine.change import DeadLetter, Place, PlacedDdl
from tidegate.engine.plan import identity
from tidegate.model.errors import SourceError
from tidegate.model.table import TableName
from tidegate.objectstore.deltalog import Lifespans, cut_log, sweep
from tidegate.objectstore.stores import stored_files

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


FLUSH_BYTES: Final = 64 << 20
NOTED_MAX: Final = 100
"""Messages that are kept of one error that ends a feed."""
TRIES: Final = 5

Instead = tuple[dict[TableName, pa.Table], Sequence[PlacedDdl]]


def note(changelog: Changelog, letters: Sequence[DeadLetter]) -> None:
    """Keep refused messages to be looked at, those that are not kept yet."""
    known = {letter.place for control in changelog.controls() for letter in control.refused}
    fresh = [letter for letter in letters[:NOTED_MAX] if letter.place not in known]
    if fresh:
        files = ControlFiles(changelog.uri, FLUSH_BYTES)
        files.add((), [(REFUSED, letter) for letter in fresh])
        ledger.append(changelog.uri, files.close(), rows=0, ddls=0)


def put_aside(changelog: Changelog, letters: Sequence[DeadLetter], instead: Instead | None = None) -> bool:
    """Take out what has landed of the messages of `letters`, which are dead letters then, or are replaced by rows and
    DDLs; False if nothing has landed of them."""
    for _ in range(TRIES):
        changelog.refresh()
        old_rows = _holders(changelog, letters)
        old_controls = _without(changelog, {letter.place for letter in letters})
        if not old_rows and not any(left.ddls != control.ddls for _, control, left in old_controls):
            return False
        rows, controls = RowFiles(changelog.uri, flush_bytes=FLUSH_BYTES), ControlFiles(changelog.uri, FLUSH_BYTES)
        for group in (group for file in old_rows for group in groups_of(changelog.uri, file.path)):
            kept = _kept(_read(changelog.uri, group), letters)
            if kept.num_rows:
                rows.add([(group.name, kept)])
        if instead is None:
            controls.add((), [(DEAD, letter) for letter in letters])
        else:
            rows.add(instead[0].items())
            controls.add(instead[1], ())
        left = rewritten(changelog.uri, [(file, left) for file, _, left in old_controls])
        old = [*old_rows, *(file for file, *_ in old_controls)]
        if ledger.replace(changelog.uri, old, (*rows.close(), *controls.close(), *left)):
            changelog.refresh()
            return True
    raise SourceError(f"{changelog.uri}: files went {TRIES} times in a row while messages were put aside")


def _holders(changelog: Changelog, letters: Sequence[DeadLetter]) -> list[LandedFile]:
    """The row files with rows of the messages."""
    times = [letter.commit_ts for letter in letters if letter.commit_ts is not None]
    low, high = min(times, default=0), max(times, default=(1 << 63) - 1)
    found = []
    for file in changelog.files():
        groups = groups_of(changelog.uri, file.path) if file.part == "rows" else ()
        near = (_read(changelog.uri, group) for group in groups if group.touches(low - 1, high))
        if any(_kept(rows, letters).num_rows < rows.num_rows for rows in near):
            found.append(file)
    return found


def _read(uri: str, group: RowGroup) -> pa.Table:
    return ChangeSlice(uri, group.min_ts - 1, group.max_ts, (group,)).read(group.name)


def _kept(rows: pa.Table, letters: Iterable[DeadLetter]) -> pa.Table:
    """The rows of other messages."""
    for (topic, partition), some in groupby(sorted(one.place for one in letters), lambda at: (at.topic, at.partition)):
        here = pc.and_(pc.equal(rows["topic"], topic), pc.equal(rows["partition"], partition))
        theirs: Any = pc.and_(here, pc.is_in(rows["offset"], pa.array([at.offset for at in some], pa.int64())))
        rows = rows.filter(pc.invert(pc.fill_null(theirs, fill_value=False)))
    return rows


def _without(changelog: Changelog, places: Collection[Place]) -> list[tuple[LandedFile, ControlFile, ControlFile]]:
    """The control files with DDLs of the messages, or with what was noted about them, before and after."""
    files = [file for file in changelog.files() if file.part == "control"]
    controls = list(zip(files, changelog.controls(), strict=True))
    gone = {_known(one) for _, control in controls for one in control.ddls if _message(one.place) in places}
    found = []
    for file, control in controls:
        left = replace(
            control,
            ddls=tuple(one for one in control.ddls if _known(one) not in gone),
            replayed=tuple(place for place in control.replayed if place not in places),
            refused=tuple(letter for letter in control.refused if letter.place not in places),
        )
        if left != control:
            found.append((file, control, left))
    return found


def _known(placed: PlacedDdl) -> tuple[int | None, str]:
    return placed.ddl.commit_ts, identity(placed.ddl)


def _message(place: Place) -> Place:
    return Place(place.topic, place.partition, place.offset)
