"""Merging changes into data files: which files stay, which are rewritten, with bounded memory.

    touched keys, in order     · ·· ·       ·    ·  · ··· ·
    file a  [────────────]                                       holds two of them: rewritten, with the new rows
    file b                [──────]                                   between its bounds
    file c                        [────────────────]             holds none: stays
    file d                                            [───]      new rows beyond all rewritten files

Rows lie in a file in key order, and a file that grew too large is split by key range.  The bounds in the log therefore
exclude most files; of the others only the key columns are read first.  Cost follows the touched files, not the table.
Small touched files are combined with the new rows; when there are many small files, untouched ones are included.

Memory: the changes and FILES_AT_ONCE files, each at most FILE_BYTES large (one row may be larger), four times at worst:
read, taken, written, compressed.

A table without a key identifies a row by its image and a number among equal images.  The first of several equal rows
that is deleted is taken to be the first inserted, since the upstream cannot be asked which one it was.  Image and
number serve as the key when such a table gets its first one.

    log       ts 10 insert (5, 1)    ts 20 insert (5, 1)    ts 25 insert (5, 2)    ts 30 delete (5, 1)
    number    0                      1                      0                      0

A VERSIONS table keeps each version of a row, from the commit that wrote it to the one that replaced or removed it:

    log of a key      ts 20 insert a     ts 31 update a to b      ts 40 delete b
    its versions      a [20, 31)         b [31, 40)

The first new change of a key ends its open version; each change with a row begins a version, which the next change of
the key ends.  An UPDATE always begins a version, as does a row that comes again without a DELETE before it (topics
without old values).

    open files      _valid_to is NULL in all rows     merged like the files of a replica
    closed files    _valid_to is set in all rows      never read again, except to compact small ones

A merge rewrites open files with touched keys and writes ended versions to a closed file, so its cost does not depend on
the length of the history.  A file whose statistics of `_valid_to` count no NULL is closed.  A file that mixes both is
treated as open: its ended versions stay as they are, and the next write separates them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from threading import BoundedSemaphore
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.objectstore.deltalog import Action, DataFile, TableSnapshot, remove
from tidegate.objectstore.threads import ContextPool
from tidegate.sink.delta.columns import LakeColumn
from tidegate.sink.delta.files import FILE_BYTES, between, by_key, is_small, key_order, match, read, within, write
from tidegate.sink.delta.options import CHANGE_SEQ, CHANGE_TS, CHANGE_TYPE, OWN_COLUMNS, VALID_FROM, VALID_TO
from tidegate.sink.delta.rows import COMES, NUMBER, NetChanges, stamped

_COMES: Final = "_tidegate_comes"


def numbered(log: pa.Table, image: Sequence[str], comes: Any, order: Sequence[str]) -> pa.Table:
    """Return the log with a number for each row among the inserted, or deleted, rows with equal columns `image`.

    `comes` marks inserted rows; `order` are the columns that order them.
    """
    marked = log.select([*image, *order]).append_column(_COMES, pc.cast(comes, pa.int8()))
    names = [*image, _COMES, *order]
    indexes = pc.sort_indices(marked, sort_keys=[(name, "ascending") for name in names])
    first = starts(marked.select([*image, _COMES]).take(indexes))
    every = np.arange(log.num_rows)
    numbers = np.empty(log.num_rows, np.int64)
    numbers[indexes.to_numpy()] = every - np.maximum.accumulate(np.where(first, every, 0))
    return log.append_column(NUMBER, pa.array(numbers))


def starts(rows: pa.Table) -> Any:
    """Return for each of ordered rows whether it differs from the previous one; NULL equals NULL."""
    first = np.zeros(rows.num_rows, bool)
    first[:1] = True
    for column in rows.columns:
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        after, before = whole[1:], whole[:-1]
        other = pc.fill_null(pc.not_equal(after, before), fill_value=False)
        other = pc.or_(other, pc.xor(after.is_null(), before.is_null()))
        first[1:] |= other.to_numpy(zero_copy_only=False).astype(bool)
    return first


@dataclass(frozen=True, slots=True)
class News:
    """The effect of a log of changes on versions.

    `versions`: new ones, ended or open. `keys`: keys whose open stored version ends at the ts in the same row of
    `ends`.
    """

    versions: pa.Table
    keys: pa.Table
    ends: Any


def news_of(log: pa.Table, key: Sequence[str]) -> News:
    """Return the effect of a log (rows as `change_rows` returns them) on the versions of a table with that key."""
    comes = pc.is_in(log.column(CHANGE_TYPE), pa.array(COMES))
    marked = log.select([*key, CHANGE_TS, CHANGE_SEQ]).append_column("_comes", pc.cast(comes, pa.int8()))
    order = pc.sort_indices(marked, sort_keys=[(name, "ascending") for name in marked.column_names])
    log, comes = log.take(order), comes.take(order)
    keys, begins = log.select(list(key)), log.column(CHANGE_TS)
    first = starts(keys)
    last = np.append(first[1:], [True])[: len(first)]
    nexts = np.append(begins.to_numpy()[1:], [0])[: len(first)]
    rows = log.drop_columns([column.name for column in OWN_COLUMNS["CHANGES"]])
    versions = rows.append_column(VALID_FROM, begins).append_column(VALID_TO, pa.array(nexts, pa.int64(), mask=last))
    firsts = pa.array(first)
    return News(versions.filter(comes), keys.filter(firsts), begins.filter(firsts))


def opened(rows: pa.Table, ts: int) -> pa.Table:
    """Return rows as versions that begin at `ts`."""
    begin = pa.repeat(pa.scalar(ts, pa.int64()), rows.num_rows)
    return rows.append_column(VALID_FROM, begin).append_column(VALID_TO, pa.nulls(rows.num_rows, pa.int64()))


def ended(versions: pa.Table, indexes: Any, ends: Any) -> pa.Table:
    """Return the versions, with those at `indexes` ended at the ts that `ends` has for each."""
    index = versions.schema.get_field_index(VALID_TO)
    column = versions.column(index)
    values = pc.fill_null(column, 0).to_numpy().copy()
    still = column.is_null().to_numpy().copy()
    values[indexes], still[indexes] = ends, False
    return versions.set_column(index, VALID_TO, pa.array(values, pa.int64(), mask=still))


def as_of(versions: pa.Table, ts: int) -> pa.Table:
    """Return the rows that were valid at `ts`, without the additional columns."""
    begun = pc.less_equal(versions.column(VALID_FROM), ts)
    ended = pc.fill_null(pc.less_equal(versions.column(VALID_TO), ts), fill_value=False)
    return versions.filter(pc.and_(begun, pc.invert(ended))).drop_columns([VALID_FROM, VALID_TO])


def changes_of(versions: pa.Table) -> pa.Table:
    """Versions as images of a log: each is inserted at its begin and deleted at its end."""
    gone = versions.filter(versions.column(VALID_TO).is_valid())
    own = [VALID_FROM, VALID_TO]
    comes = stamped(versions.drop_columns(own), "insert", versions.column(VALID_FROM))
    leaves = stamped(gone.drop_columns(own), "delete", gone.column(VALID_TO))
    return pa.concat_tables([leaves, comes])


SMALL_OF_A_KIND_MAX: Final = 6
"""Of either kind; more of them are folded into one, so that upkeep never finds enough to mix the kinds."""

Ending: TypeAlias = Callable[[DataFile], tuple[Any, Any] | None]
"""The numbers of the rows of a file that end, and the ts at which; None when none of them does."""


def merge_versions(
    snapshot: TableSnapshot,
    columns: Sequence[LakeColumn],
    key: Sequence[str],
    fresh: Iterable[pa.Table],
    ending: Ending,
) -> list[Action]:
    """Return the remove and add actions that end versions and add the `fresh` ones; `key` are the columns with
    bounds."""
    closed = _closed_paths(snapshot, columns)
    kinds: tuple[list[DataFile], list[DataFile]] = [], []
    touched: list[tuple[DataFile, Any, Any]] = []
    for file in snapshot.files():
        ending_rows = None if file.path in closed else ending(file)
        if ending_rows is None:
            kinds[file.path in closed].append(file)
        else:
            touched.append((file, *ending_rows))
    folded: list[DataFile] = []
    for idle in kinds:
        small = sorted(filter(is_small, idle), key=lambda file: (file.rows, file.path))
        if len(small) > SMALL_OF_A_KIND_MAX:
            folded += [small[index] for index in within(small)[0]]

    def parts() -> Iterator[pa.Table]:
        yield from fresh
        for file, indexes, ends in touched:
            yield ended(read(snapshot.uri, file, columns), indexes, ends)
        for file in folded:
            yield read(snapshot.uri, file, columns)

    actions = [remove(file) for file in (*(file for file, _, _ in touched), *folded)]
    for part in _gathered(parts(), columns):
        for rows in by_kind(part):
            actions += write(snapshot.uri, by_key(rows, list(key)), columns, key)
    return actions


def open_files(snapshot: TableSnapshot, columns: Sequence[LakeColumn]) -> list[DataFile]:
    """Return the files that may hold versions that are still valid."""
    closed = _closed_paths(snapshot, columns)
    return [file for file in snapshot.files() if file.path not in closed]


def by_kind(versions: pa.Table) -> Iterator[pa.Table]:
    """Return the versions that are still valid, and those that have ended."""
    still = versions.column(VALID_TO).is_null()
    yield versions.filter(still)
    yield versions.filter(pc.invert(still))


def ending_keys(uri: str, columns: Sequence[LakeColumn], key: Sequence[str], news: News) -> Ending:
    """Return the open versions of the keys in `news`."""
    keyed = [column for name in key for column in columns if column.name == name]
    stamp = [column for column in columns if column.name == VALID_TO]
    low, high = _bounds(news.keys.column(0))

    def ending(file: DataFile) -> tuple[Any, Any] | None:
        file_low, file_high = (bounds.get(keyed[0].physical) for bounds in (file.lows, file.highs))
        bounded = low is not None and file_low is not None and file_high is not None and type(file_low) is type(low)
        if not news.keys.num_rows or (bounded and (file_low > high or low > file_high)):
            return None
        stored = read(uri, file, [*keyed, *stamp])
        indexes, numbers = match(stored, news.keys)
        still = stored.column(VALID_TO).is_null().to_numpy()[indexes]
        indexes, numbers = indexes[still], numbers[still]
        return (indexes, news.ends.to_numpy()[numbers]) if len(indexes) else None

    return ending


def ending_rows(uri: str, columns: Sequence[LakeColumn], leaves: Callable[[pa.Table], Any], ts: int) -> Ending:
    """Return the open versions of the rows that `leaves` marks, all ending at `ts`."""

    def ending(file: DataFile) -> tuple[Any, Any] | None:
        rows = read(uri, file, columns)
        going = pc.and_(leaves(rows), rows.column(VALID_TO).is_null())
        indexes = going.to_numpy(zero_copy_only=False).nonzero()[0]
        return (indexes, ts) if len(indexes) else None

    return ending


def _closed_paths(snapshot: TableSnapshot, columns: Sequence[LakeColumn]) -> set[str]:
    stamp = next(column.physical for column in columns if column.name == VALID_TO)
    stats = pa.table(snapshot.table.get_add_actions(flatten=True))
    if f"null_count.{stamp}" not in stats.column_names:
        return set()
    counts = zip(stats.column("path").to_pylist(), stats.column(f"null_count.{stamp}").to_pylist(), strict=True)
    return {unquote(path) for path, nulls in counts if nulls == 0}


def _gathered(parts: Iterable[pa.Table], columns: Sequence[LakeColumn]) -> Iterator[pa.Table]:
    """The parts as tables of about the size of a file, so that a long history never lies in memory whole."""
    names = [column.name for column in columns]
    waiting: list[pa.Table] = []
    for part in parts:
        waiting.append(part.select(names))
        if sum(table.nbytes for table in waiting) >= FILE_BYTES:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _bounds(column: Any) -> tuple[Any, Any]:
    if not len(column) or pa.types.is_binary(column.type):
        return None, None
    bounds = pc.min_max(column)
    return bounds["min"].as_py(), bounds["max"].as_py()


SMALL_FILES_MAX: Final = 8
FILES_AT_ONCE: Final = 2
LARGE_TURNS: Final = BoundedSemaphore(FILES_AT_ONCE)
"""Held while a large file is written anew: tables that are merged side by side share the bound."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Touch:
    file: DataFile
    indexes: Any
    by: Any
    span: tuple[int, int]
    """The stretch of the ordered changes that its bounds enclose."""


@dataclass(slots=True)
class _Job:
    """Files that become one run of rows, with the changes that are new among them."""

    touches: list[_Touch] = field(default_factory=list)
    fresh: Any = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class _Merge:
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
    """Return the remove and add actions that merge `changes` into the table."""
    work = _ordered(uri, columns, changes, with_files=bool(files))
    touches = [touched for touched in _each(lambda file: _touched(work, file), files) if touched is not None]
    jobs = _jobs(work, touches, files)
    removed = [remove(touch.file) for job in jobs for touch in job.touches]
    return removed + [action for actions in _each(lambda job: _done(work, job), jobs) for action in actions]


def append(uri: str, rows: pa.Table, columns: Sequence[LakeColumn], key: Sequence[str] = ()) -> list[Action]:
    """Return the add actions of rows that affect no stored row; `key` are the columns with bounds."""
    return list(write(uri, rows.select([column.name for column in columns]), columns, key))


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


def _ordered(uri: str, columns: Sequence[LakeColumn], changes: NetChanges, *, with_files: bool) -> _Merge:
    keyed = [column for column in columns if column.name in changes.keys.column_names]
    keys = changes.keys.select([column.name for column in keyed])
    order = key_order(keys)
    numbers = np.arange(keys.num_rows) if order is None else order.to_numpy().astype(np.int64)
    keys = (keys if order is None else keys.take(order)).combine_chunks()
    rows = changes.rows.select([column.name for column in columns])
    if with_files or order is not None:
        rows = rows.combine_chunks()  # taken from once a file
    return _Merge(uri, columns, keyed, keys, rows, np.where(numbers < rows.num_rows, numbers, -1))


def _touched(work: _Merge, file: DataFile) -> _Touch | None:
    physical = work.keyed[0].physical
    first = work.keys.column(0)
    first = first.chunk(0) if first.num_chunks else first
    begin, end = between(first, file.lows.get(physical), file.highs.get(physical))
    if begin == end:
        return None
    indexes, by = match(read(work.uri, file, work.keyed), work.keys.slice(begin, end - begin))
    return _Touch(file, indexes, by + begin, (begin, end)) if len(indexes) else None


def _jobs(work: _Merge, touches: Sequence[_Touch], files: Sequence[DataFile]) -> list[_Job]:
    """Each large touched file for itself with the new rows between its bounds; the rest of them to the small ones."""
    fresh = work.numbers >= 0
    for touch in touches:
        fresh[touch.by] = False
    jobs: list[_Job] = []
    for touch in sorted(touches, key=lambda touch: touch.span[1] - touch.span[0]):
        if is_small(touch.file):
            continue
        bounded = touch.file.lows.get(work.keyed[0].physical) is not None
        begin, end = touch.span if bounded else (0, 0)
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
    paths = {touch.file.path for touch in touches}
    idle = [file for file in files if is_small(file) and file.path not in paths]
    none = np.empty(0, np.int64)
    rewritten_files = list(touched)
    if len(idle) > SMALL_FILES_MAX and (adds or touched):
        rewritten_files += [_Touch(file, none, none, (0, 0)) for file in idle]
    rewritten_files.sort(key=lambda touch: -touch.file.size_bytes)
    return [[rewritten_files[index] for index in group] for group in within([touch.file for touch in rewritten_files])]


def _done(work: _Merge, job: _Job) -> list[Action]:
    with nullcontext() if all(is_small(touch.file) for touch in job.touches) else LARGE_TURNS:
        return _rewritten(work, job)


def _rewritten(work: _Merge, job: _Job) -> list[Action]:
    stored = [read(work.uri, touch.file, work.columns) for touch in job.touches]
    indexes, begun = [], 0
    parts = [job.fresh, *(touch.by[work.numbers[touch.by] >= 0] for touch in job.touches)]
    total = sum(part.num_rows for part in stored)
    news = total + len(job.fresh)
    for touch, part in zip(job.touches, stored, strict=True):
        lives = work.numbers[touch.by] >= 0
        index = begun + np.arange(part.num_rows)
        count = int(lives.sum())
        index[touch.indexes[lives]] = news + np.arange(count)
        indexes.append(np.delete(index, touch.indexes[~lives]))
        begun, news = begun + part.num_rows, news + count
    indexes.append(total + np.arange(len(job.fresh)))
    come = work.numbers[np.concatenate(parts)]
    rows = _rows_at(work.rows, come)
    if stored:
        rows = _rows_at(pa.concat_tables([*stored, rows]), np.concatenate(indexes))
        stored.clear()
    return list(write(work.uri, by_key(rows, work.key), work.columns, work.key))


def _rows_at(rows: pa.Table, indexes: Any) -> pa.Table:
    """The rows at `indexes`; no copy when these are all of them."""
    if len(indexes) == rows.num_rows and np.array_equal(indexes, np.arange(rows.num_rows)):
        return rows
    return rows.take(pa.array(indexes))


def _each(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """`work` on each, a few side by side: Arrow leaves other threads alone while it computes."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ContextPool(FILES_AT_ONCE) as pool:
        return list(pool.map(work, items))
