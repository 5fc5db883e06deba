"""Look-ups: which row has a value of a unique index.

    shop:users:17                    the row
    shop:users:by:mail:ann@x         key "shop:users:17"       a hash or a document, as rows are

A look-up is a key like that of a row: it has a version, tombstones, and the script of rows compares and writes it.  A
value that goes from one row to another in one transaction is taken away first and put then (version.py).  Look-ups are
sent beside their row.  On one server, and in a cluster whose template keeps a table in one slot, they change in the one
step in which it changes; in other slots each of them changes by itself, a moment before or after.

Of an index the primary key, expressions and virtual columns have none; a value with NULL has none, either.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tidegate.codec.columnar import Batch
from tidegate.model.errors import SinkRefused
from tidegate.model.event import Value
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo
from tidegate.sink.documents.last import last_changes
from tidegate.sink.documents.values import Row, columns_of, key_places
from tidegate.sink.redis.forms import RawBytes
from tidegate.sink.redis.keys import lookup_key, row_key
from tidegate.sink.redis.options import Mode
from tidegate.sink.redis.version import row_versions
from tidegate.sink.redis.write import LOOKUP, LOOKUP_FIELDS, KeyEntry


class UniqueLookup(NamedTuple):
    """A unique index that rows are found by."""

    name: str
    columns: tuple[str, ...]

    def key(self, prefix: bytes, values: Sequence[Value]) -> bytes | None:
        """Return the key for values of its columns; None where one is NULL."""
        return None if None in values else lookup_key(prefix, self.name, values)


def lookups_of(table: TableInfo) -> list[UniqueLookup]:
    """Return the unique indexes of a table, but for the one that names its rows."""
    stored = {lowered(column.name) for column in table.columns if not column.virtual}
    key = [lowered(name) for name in table.handle_key]
    return [
        UniqueLookup(index.name, index.columns)
        for index in table.indexes
        if index.unique and not index.primary and stored.issuperset(map(lowered, index.columns))
        if [lowered(name) for name in index.columns] != key
    ]


def content_of(mode: Mode, key: bytes) -> list[Any]:
    """Return what a look-up holds: the fields of a script's entry."""
    if mode == "hash":
        return [RawBytes(key)]
    return [msgspec.json.encode({LOOKUP_FIELDS[0]: key.decode("utf-8", "replace")})[1:].decode()]


def lookup_entries(table: TableInfo, typed: Batch, prefix: bytes, mode: Mode) -> Iterator[KeyEntry]:
    """Return the look-ups that the rows of a batch change. SinkRefused for rows without a column of theirs."""
    at = {lowered(field.name): place for place, field in enumerate(typed.fields)}
    own = key_places(table, typed.fields)
    for lookup in lookups_of(table):
        missing = [name for name in lookup.columns if lowered(name) not in at]
        if missing:
            raise SinkRefused(
                f"table {table.name}: its rows come without {missing[0]}, of which lookups=true makes keys"
            )
        places = [at[lowered(name)] for name in lookup.columns]
        made = partial(lookup.key, prefix)
        last = last_changes(table, typed, made, places)
        left = columns_of(table, typed.fields, typed.before)
        owners = {
            key: row_key(prefix, values)
            for columns in (left, last.columns)
            for key, values in zip(map(made, _rows(columns, places)), _rows(columns, own), strict=True)
        }
        versions = row_versions(last.commit_ts, pa.array([row is not None for row in last.rows], pa.bool_()))
        for key, version, row in zip(last.keys, versions, last.rows, strict=True):
            if key is not None:
                content = None if row is None else content_of(mode, owners[key])
                yield KeyEntry(key, version, content, LOOKUP, owners[key])


def _rows(columns: Sequence[Sequence[Value]], places: Sequence[int]) -> Iterator[tuple[Value, ...]]:
    return zip(*(columns[at] for at in places), strict=True)


def lookup_keys(table: TableInfo, prefix: bytes, row: Row) -> list[bytes]:
    """Return the keys of the look-ups of a stored row."""
    made = (one.key(prefix, [_value(table, row, name) for name in one.columns]) for one in lookups_of(table))
    return [key for key in made if key is not None]


def _value(table: TableInfo, row: Row, name: str) -> Value:
    column = table.column(name)
    assert column is not None, name
    return row[column.name]
