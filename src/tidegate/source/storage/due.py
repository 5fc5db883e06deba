"""Which files a batch reads, and where a stream stands behind it: pure rules.

    stream   1 done   2 done   3 missing   4 done   5 waits   6 done         position 5, a gap at 3

A stream's position is its first file that is not done; what is done above it is known while the landing lives, and read
again by the next one, which finds nothing new in it.  A number that is missing below a file that is done is a gap: a
writer crashed there, or is late.  A gap is a partition of its own, number 3 at offset 3, until its file comes.

A file above the number that the index names is loose: it is read like any other, and a position never passes it, since
its writer may still be at it.

A file below the position may be written over: a classic writer numbers by its index, which lags where it could not be
written, or where a stale writer put it back.  So a stream also knows when the newest of what it has passed was changed,
and a file that was changed later is read whatever its number.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tidegate.engine.frontier import Reached
from tidegate.source.storage.listing import PlacedFile
from tidegate.source.storage.plan import FileJob

GAPS_MAX: Final = 100
"""Missing numbers of a stream that are waited for, the last ones."""
LATEST: Final = -1
"""The partition of a stream whose offset is the newest `changed_us` of the files below its position that are done."""
Positions = Mapping[int, Reached]


class Mark(NamedTuple):
    """What is known of a file of a version that was read: `waits` is the least commit_ts that has not landed, None for
    a file that is done."""

    version: str
    waits: int | None
    is_cut: bool = False


def position_of(stands: Positions) -> int:
    """Return the first number of a stream that is not done."""
    return stands[0].offset if 0 in stands else 1


def gaps_of(stands: Positions) -> Iterator[int]:
    """Return the numbers below a stream's position whose files have not come."""
    return (number for number, reached in stands.items() if number and reached.offset == number)


def latest_of(stands: Positions) -> int:
    """Return when the newest file was changed that a stream is done with below its position."""
    return stands[LATEST].offset if LATEST in stands else 0


def is_behind(file: PlacedFile, number: int, stands: Positions) -> bool:
    """Return True for a file below a stream's position that was not changed since."""
    return number < position_of(stands) and file.changed_us <= latest_of(stands)


def is_next(number: int, files: Mapping[int, PlacedFile], stands: Positions) -> bool:
    """Return True for the first file from a stream's position on: once it is done, the position moves."""
    return number == min((one for one in files if one >= position_of(stands)), default=None)


def due(
    files: Mapping[int, PlacedFile], top: int, stands: Positions, marks: Mapping[int, Mark], upto: int
) -> list[FileJob]:
    """Return the files of a stream in which rows up to `upto` may stand that have not landed; those above number `top`
    are loose."""
    gaps = set(gaps_of(stands))
    last = max(files, default=0)
    found = []
    for number in sorted(files):
        if is_behind(files[number], number, stands) and number not in gaps:
            continue
        mark = marks.get(number)
        if mark is not None and mark.version == files[number].version:
            is_followed = mark.is_cut and number < last
            if not is_followed and (mark.waits is None or mark.waits > upto):
                continue
        found.append(FileJob(number, files[number], number == last, number > top))
    return found


def advanced(
    files: Mapping[int, PlacedFile], top: int, stands: Positions, marks: Mapping[int, Mark]
) -> list[tuple[int, int, int]]:
    """Return what moves in a stream: (partition, where it stood, where it stands), a gap first at itself."""
    begin = at = position_of(stands)
    skipped: list[int] = []
    for number in sorted(number for number in files if begin <= number <= top):
        if not _is_done(marks.get(number), files[number]):
            break
        skipped += range(max(at, number - GAPS_MAX), number)
        at = number + 1
    filled = [number for number in gaps_of(stands) if _is_done(marks.get(number), files.get(number))]
    moved = [(0, begin, at)] if at > begin or 0 not in stands else []
    gaps = [*((gap, gap, gap) for gap in skipped[-GAPS_MAX:]), *((gap, gap, gap + 1) for gap in filled)]
    latest = latest_of(stands)
    changed = _latest(files, at, latest, marks)
    return [*moved, *gaps, *([(LATEST, latest, changed)] if changed > latest else [])]


def _latest(files: Mapping[int, PlacedFile], position: int, latest: int, marks: Mapping[int, Mark]) -> int:
    """The newest change below a position, or just before the oldest whose file is not done."""
    new = {number: file for number, file in files.items() if number < position and file.changed_us > latest}
    waiting = [file.changed_us - 1 for number, file in new.items() if not _is_done(marks.get(number), file)]
    return min(waiting, default=max((file.changed_us for file in new.values()), default=latest))


def _is_done(mark: Mark | None, file: PlacedFile | None) -> bool:
    return mark is not None and file is not None and mark.waits is None and mark.version == file.version


def runs(jobs: Sequence[FileJob], most_bytes: int) -> Iterator[tuple[FileJob, ...]]:
    """Return files in runs of about `most_bytes`."""
    run: list[FileJob] = []
    size = 0
    for job in jobs:
        if run and size + job.stored.size_bytes > most_bytes:
            yield tuple(run)
            run, size = [], 0
        run.append(job)
        size += job.stored.size_bytes
    if run:
        yield tuple(run)
