"""Merging net changes into data files: which files to leave, which to write anew.

    file whose key bounds miss every touched key      stays
    file that holds none of the touched keys          stays
    any other                                         its surviving rows are written anew, with the new rows
    small files, once there are many                  are taken along, so that their number stays bounded

Cost follows the touched files, not the table.  The key lookup is an Arrow hash join on the key columns alone.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.sink.delta.columns import StoredColumn
from tidegate.sink.delta.files import read, write
from tidegate.sink.delta.rows import Changes
from tidegate.spark.deltalog import Action, DataFile, remove

__all__ = ["append", "merge", "rewrite"]

SMALL_ROWS: Final = 100_000
SMALL_FILES_MAX: Final = 8


def merge(
    uri: str,
    files: Sequence[DataFile],
    columns: Sequence[StoredColumn],
    changes: Changes,
) -> list[Action]:
    """The remove and add actions that bring `changes` into the table."""
    key = changes.keys.column_names
    keyed = [column for column in columns if column.name in key]
    keys = changes.keys.select([column.name for column in keyed])
    bounds = _bounds(keyed[0].name, keys)
    survivors: list[pa.Table] = [changes.rows.select([column.name for column in columns])]
    actions: list[Action] = []
    untouched: list[DataFile] = []
    for file in files:
        kept = _surviving(uri, file, columns, keyed, keys) if _may_hold(file, keyed[0].physical, bounds) else None
        if kept is None:
            untouched.append(file)
            continue
        actions.append(remove(file))
        survivors.append(kept)
    small = [file for file in untouched if file.rows < SMALL_ROWS]
    if len(small) > SMALL_FILES_MAX and changes.rows.num_rows:
        actions += [remove(file) for file in small]
        survivors += [read(uri, file, columns) for file in small]
    return actions + list(write(uri, pa.concat_tables(survivors), columns, key))


def append(uri: str, rows: pa.Table, columns: Sequence[StoredColumn]) -> list[Action]:
    """The add actions of rows that touch nothing stored."""
    return list(write(uri, rows.select([column.name for column in columns]), columns, ()))


def rewrite(
    uri: str,
    old: Iterable[DataFile],
    rows: Iterable[pa.Table],
    columns: Sequence[StoredColumn],
    key: Sequence[str],
) -> list[Action]:
    """The actions that replace `old` by `rows`."""
    actions = [remove(file) for file in old]
    for part in rows:
        actions += write(uri, part, columns, key)
    return actions


def _bounds(name: str, keys: pa.Table) -> tuple[Any, Any]:
    column = keys.column(name)
    if keys.num_rows == 0 or pa.types.is_binary(column.type):
        return None, None
    found = pc.min_max(column)
    return found["min"].as_py(), found["max"].as_py()


def _may_hold(file: DataFile, physical: str, bounds: tuple[Any, Any]) -> bool:
    low, high = bounds
    file_low, file_high = file.lows.get(physical), file.highs.get(physical)
    if low is None or file_low is None or file_high is None or type(file_low) is not type(low):
        return True
    return bool(file_low <= high and low <= file_high)


def _surviving(
    uri: str,
    file: DataFile,
    columns: Sequence[StoredColumn],
    keyed: Sequence[StoredColumn],
    keys: pa.Table,
) -> pa.Table | None:
    """The rows of a file whose key was not touched; None when that is all of them."""
    names = [column.name for column in keyed]
    stored = read(uri, file, keyed)
    stored = stored.append_column("_at", pa.array(range(stored.num_rows), pa.int64()))
    left = stored.join(keys, keys=names, join_type="left anti").column("_at")
    if len(left) == stored.num_rows:
        return None
    return read(uri, file, columns).take(left)
