"""VERSIONS tables as files: versions that are still valid in some, versions that have ended in others.

    open files      _valid_to is NULL in all rows     merged like the files of a replica
    closed files    _valid_to is set in all rows      never read again, but for the folding of small ones

    round ──► open file with a touched key ──► survivors ──┬──► open file
              new versions, open  ─────────────────────────┘
              the versions that ended, new ones that ended ───► closed file

So a round costs what it costs a replica, whatever the length of the history.  The statistics of `_valid_to` tell the
kinds apart: no NULL among them means closed.  A file that mixes both is taken for an open one, its ended versions stay
as they are, and the next write separates them.

Versions of rows, from the commit that brought a row to the one that replaced or removed it. Pure.

    log of a key      ts 20 comes a     ts 31 a leaves, b comes      ts 40 b leaves
    its versions      a [20, 31)        b [31, 40)
                      ──────────────────────────────────────────────────────────────►

    new changes of a key:   the first one ends the version that is stored open; each one that brings a row begins a
                            version, and the next one of that key ends it

An UPDATE is a new version, whatever it changed.  So is a row that comes again without having left, which happens with
topics that carry no old values.  Files: history_files.py.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.objectstore.deltalog import Action, DataFile, TableSnapshot, remove
from tidegate.sink.delta.changelog_rows import COMES, stamped
from tidegate.sink.delta.columns import LakeColumn
from tidegate.sink.delta.files import FILE_BYTES, is_small, read, within, write
from tidegate.sink.delta.keyless_rows import starts
from tidegate.sink.delta.keys import by_key, match
from tidegate.sink.delta.modes import CHANGE_SEQ, CHANGE_TS, CHANGE_TYPE, OWN_COLUMNS, VALID_FROM, VALID_TO


@dataclass(frozen=True, slots=True)
class News:
    """What a log of changes means for versions.

    `versions` are new, ended or open. Of each key in `keys` the version that is stored open ends at the ts beside it
    in `ends`."""

    versions: pa.Table
    keys: pa.Table
    ends: Any


def news_of(log: pa.Table, key: Sequence[str]) -> News:
    """Return the news of a log (rows as `change_rows` gives them) of a table with that key."""
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


def ended(versions: pa.Table, places: Any, ends: Any) -> pa.Table:
    """Return the versions, those at `places` ended at the ts that `ends` has for each."""
    at = versions.schema.get_field_index(VALID_TO)
    column = versions.column(at)
    values = pc.fill_null(column, 0).to_numpy().copy()
    still = column.is_null().to_numpy().copy()
    values[places], still[places] = ends, False
    return versions.set_column(at, VALID_TO, pa.array(values, pa.int64(), mask=still))


def as_of(versions: pa.Table, ts: int) -> pa.Table:
    """Return the rows that were valid at `ts`, without the columns of ours."""
    begun = pc.less_equal(versions.column(VALID_FROM), ts)
    over = pc.fill_null(pc.less_equal(versions.column(VALID_TO), ts), fill_value=False)
    return versions.filter(pc.and_(begun, pc.invert(over))).drop_columns([VALID_FROM, VALID_TO])


def changes_of(versions: pa.Table) -> pa.Table:
    """Versions as images of a log: each comes at its begin and leaves at its end."""
    gone = versions.filter(versions.column(VALID_TO).is_valid())
    own = [VALID_FROM, VALID_TO]
    comes = stamped(versions.drop_columns(own), "insert", versions.column(VALID_FROM))
    leaves = stamped(gone.drop_columns(own), "delete", gone.column(VALID_TO))
    return pa.concat_tables([leaves, comes])


SMALL_FILES_MAX: Final = 6
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
    """Return the remove and add actions that end versions and bring the `fresh` ones; `key` are the columns with
    bounds."""
    closed = _closed_paths(snapshot, columns)
    kinds: tuple[list[DataFile], list[DataFile]] = [], []
    touched: list[tuple[DataFile, Any, Any]] = []
    for file in snapshot.files():
        found = None if file.path in closed else ending(file)
        if found is None:
            kinds[file.path in closed].append(file)
        else:
            touched.append((file, *found))
    folded = [file for idle in kinds for file in _many_small(idle)]

    def parts() -> Iterator[pa.Table]:
        yield from fresh
        for file, places, ends in touched:
            yield ended(read(snapshot.uri, file, columns), places, ends)
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
        if not news.keys.num_rows or _misses(file, keyed[0].physical, low, high):
            return None
        stored = read(uri, file, [*keyed, *stamp])
        places, numbers = match(stored, news.keys)
        still = stored.column(VALID_TO).is_null().to_numpy()[places]
        places, numbers = places[still], numbers[still]
        return (places, news.ends.to_numpy()[numbers]) if len(places) else None

    return ending


def ending_rows(uri: str, columns: Sequence[LakeColumn], leaves: Callable[[pa.Table], Any], ts: int) -> Ending:
    """Return the open versions of the rows that `leaves` marks, all of them at `ts`."""

    def ending(file: DataFile) -> tuple[Any, Any] | None:
        rows = read(uri, file, columns)
        going = pc.and_(leaves(rows), rows.column(VALID_TO).is_null())
        places = going.to_numpy(zero_copy_only=False).nonzero()[0]
        return (places, ts) if len(places) else None

    return ending


def _closed_paths(snapshot: TableSnapshot, columns: Sequence[LakeColumn]) -> set[str]:
    stamp = next(column.physical for column in columns if column.name == VALID_TO)
    stats = pa.table(snapshot.table.get_add_actions(flatten=True))
    if f"null_count.{stamp}" not in stats.column_names:
        return set()
    counts = zip(stats.column("path").to_pylist(), stats.column(f"null_count.{stamp}").to_pylist(), strict=True)
    return {unquote(path) for path, nulls in counts if nulls == 0}


def _many_small(files: Sequence[DataFile]) -> list[DataFile]:
    small = sorted((file for file in files if is_small(file)), key=lambda file: (file.rows, file.path))
    return [small[at] for at in within(small)[0]] if len(small) > SMALL_FILES_MAX else []


def _gathered(parts: Iterable[pa.Table], columns: Sequence[LakeColumn]) -> Iterator[pa.Table]:
    """The parts as tables of about the size of a file, so that a long history never lies in memory whole."""
    names = [column.name for column in columns]
    waiting: list[pa.Table] = []
    for part in parts:
        waiting.append(part.select(names))
        if sum(one.nbytes for one in waiting) >= FILE_BYTES:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _bounds(column: Any) -> tuple[Any, Any]:
    if not len(column) or pa.types.is_binary(column.type):
        return None, None
    found = pc.min_max(column)
    return found["min"].as_py(), found["max"].as_py()


def _misses(file: DataFile, physical: str, low: Any, high: Any) -> bool:
    """True if the file's bounds rule out every key between `low` and `high`."""
    file_low, file_high = file.lows.get(physical), file.highs.get(physical)
    if low is None or file_low is None or file_high is None or type(file_low) is not type(low):
        return False
    return bool(file_low > high or low > file_high)
