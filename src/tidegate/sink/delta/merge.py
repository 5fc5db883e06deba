"""Merging net changes into data files: which files to leave, which to write anew, and never many at a time.

    touched keys, in order     · ·· ·       ·    ·  · ··· ·
    file a  [────────────]                                       holds two of them: written anew, with what is new
    file b                [──────]                                   between its bounds
    file c                        [────────────────]             holds none: stays
                                                       ▼
    file d                                            [───]      new rows beyond all files that are written anew

Rows lie in a file by key, and a file that has grown too large becomes several, each with a stretch of the keys: so
the bounds in the log tell most files that need not be opened, and of the others only the key columns are read first.
Cost follows the touched files, not the table.

    small files that are touched become one with the new rows; when small ones are many, the untouched are taken along

Memory: the changes, and `FILES_AT_ONCE` files, each at most FILE_BYTES large in memory (one row may be larger), four
times at worst: read, taken, written, compressed.  Whatever the table's size.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from threading import BoundedSemaphore
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from tidegate.objectstore.deltalog import Action, DataFile, remove
from tidegate.sink.delta.columns import LakeColumn
from tidegate.sink.delta.files import is_small, read, within, write
from tidegate.sink.delta.keys import between, by_key, key_order, match
from tidegate.sink.delta.rows import NetChanges

SMALL_FILES_MAX: Final = 8
FILES_AT_ONCE: Final = 2
LARGE_TURNS: Final = BoundedSemaphore(FILES_AT_ONCE)
"""Held while a large file is written anew: tables that are merged side by side share the bound."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Touch:
    """A data file, the places in it whose key is touched, and by which of the ordered changes."""

    file: DataFile
    places: Any
    by: Any
    reach: tuple[int, int]
    """The stretch of the ordered changes that its bounds enclose."""


@dataclass(slots=True)
class _Job:
    """Files that become one run of rows, with the changes that are new among them."""

    touches: list[_Touch] = field(default_factory=list)
    fresh: Any = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class _Merge:
    """What stays the same from file to file."""

    uri: str
    columns: Sequence[LakeColumn]
    keyed: Sequence[LakeColumn]
    keys: pa.Table
    """The touched keys in order."""
    rows: pa.Table
    numbers: Any
    """For each touched key the row that exists afterwards; -1 for none."""

    @property
    def key(self) -> list[str]:
        return [column.name for column in self.keyed]


def merge(
    uri: str,
    files: Sequence[DataFile],
    columns: Sequence[LakeColumn],
    changes: NetChanges,
) -> list[Action]:
    """Return the remove and add actions that bring `changes` into the table."""
    work = _ordered(uri, columns, changes)
    touches = [found for found in _each(lambda file: _touched(work, file), files) if found is not None]
    jobs = _jobs(work, touches, files)
    removed = [remove(touch.file) for job in jobs for touch in job.touches]
    return removed + [action for actions in _each(lambda job: _done(work, job), jobs) for action in actions]


def append(uri: str, rows: pa.Table, columns: Sequence[LakeColumn]) -> list[Action]:
    """Return the add actions of rows that touch nothing stored."""
    return list(write(uri, rows.select([column.name for column in columns]), columns, ()))


def rewrite(
    uri: str,
    old: Iterable[DataFile],
    rows: Iterable[pa.Table],
    columns: Sequence[LakeColumn],
    key: Sequence[str],
) -> list[Action]:
    """Return the actions that replace `old` by `rows`."""
    actions = [remove(file) for file in old]
    for part in rows:
        actions += write(uri, part, columns, key)
    return actions


def _ordered(uri: str, columns: Sequence[LakeColumn], changes: NetChanges) -> _Merge:
    keyed = [column for column in columns if column.name in changes.keys.column_names]
    keys = changes.keys.select([column.name for column in keyed])
    order = key_order(keys)
    numbers = np.arange(keys.num_rows) if order is None else order.to_numpy().astype(np.int64)
    keys = (keys if order is None else keys.take(order)).combine_chunks()
    rows = changes.rows.select([column.name for column in columns]).combine_chunks()  # taken from once a file
    return _Merge(uri, columns, keyed, keys, rows, np.where(numbers < rows.num_rows, numbers, -1))


def _touched(work: _Merge, file: DataFile) -> _Touch | None:
    """What the changes touch in a file; None when that is nothing."""
    physical = work.keyed[0].physical
    begin, end = between(_first(work), file.lows.get(physical), file.highs.get(physical))
    if begin == end:
        return None
    places, by = match(read(work.uri, file, work.keyed), work.keys.slice(begin, end - begin))
    return _Touch(file, places, by + begin, (begin, end)) if len(places) else None


def _first(work: _Merge) -> Any:
    column = work.keys.column(0)
    return column.chunk(0) if column.num_chunks else column


def _jobs(work: _Merge, touches: Sequence[_Touch], files: Sequence[DataFile]) -> list[_Job]:
    """Each large touched file for itself with the new rows between its bounds; the rest of them to the small ones."""
    fresh = work.numbers >= 0
    for touch in touches:
        fresh[touch.by] = False
    jobs: list[_Job] = []
    for touch in sorted(touches, key=lambda one: one.reach[1] - one.reach[0]):
        if is_small(touch.file):
            continue
        bounded = touch.file.lows.get(work.keyed[0].physical) is not None
        begin, end = touch.reach if bounded else (0, 0)
        inside = begin + fresh[begin:end].nonzero()[0]
        fresh[inside] = False
        jobs.append(_Job([touch], inside))
    small = _small([touch for touch in touches if is_small(touch.file)], touches, files, adds=bool(fresh.any()))
    *others, last = [_Job(group) for group in small] or [_Job()]
    last.fresh = fresh.nonzero()[0]
    return [*jobs, *others, *([last] if last.touches or len(last.fresh) else [])]


def _small(
    touched: Sequence[_Touch], touches: Sequence[_Touch], files: Sequence[DataFile], *, adds: bool
) -> list[list[_Touch]]:
    """The small files to write anew, in groups that become one file each."""
    known = {touch.file.path for touch in touches}
    idle = [file for file in files if is_small(file) and file.path not in known]
    none = np.empty(0, np.int64)
    taken = list(touched)
    if len(idle) > SMALL_FILES_MAX and (adds or touched):
        taken += [_Touch(file, none, none, (0, 0)) for file in idle]
    taken.sort(key=lambda touch: -touch.file.size_bytes)
    return [[taken[at] for at in group] for group in within([touch.file for touch in taken])]


def _done(work: _Merge, job: _Job) -> list[Action]:
    """The files that a job becomes."""
    with nullcontext() if all(is_small(touch.file) for touch in job.touches) else LARGE_TURNS:
        return _rewritten(work, job)


def _rewritten(work: _Merge, job: _Job) -> list[Action]:
    stored = [read(work.uri, touch.file, work.columns) for touch in job.touches]
    places, begun = [], 0
    wanted = [job.fresh, *(touch.by[work.numbers[touch.by] >= 0] for touch in job.touches)]
    total = sum(part.num_rows for part in stored)
    news = total + len(job.fresh)
    for touch, part in zip(job.touches, stored, strict=True):
        lives = work.numbers[touch.by] >= 0
        place = begun + np.arange(part.num_rows)
        count = int(lives.sum())
        place[touch.places[lives]] = news + np.arange(count)
        places.append(np.delete(place, touch.places[~lives]))
        begun, news = begun + part.num_rows, news + count
    places.append(total + np.arange(len(job.fresh)))
    come = work.numbers[np.concatenate(wanted)]
    rows = _taken(work.rows, come)
    if stored:
        rows = _taken(pa.concat_tables([*stored, rows]), np.concatenate(places))
        stored.clear()
    return list(write(work.uri, by_key(rows, work.key), work.columns, work.key))


def _taken(rows: pa.Table, places: Any) -> pa.Table:
    """The rows at `places`; no copy when these are all of them."""
    if len(places) == rows.num_rows and np.array_equal(places, np.arange(rows.num_rows)):
        return rows
    return rows.take(pa.array(places))


def _each(work: Callable[[T], R], given: Sequence[T]) -> list[R]:
    """`work` on each, a few side by side: Arrow leaves other threads alone while it computes."""
    if len(given) < 2:
        return [work(one) for one in given]
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        return list(pool.map(work, given))
