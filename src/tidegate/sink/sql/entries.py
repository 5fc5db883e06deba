"""Row changes of a chunk, table by table, as entries to fold (fold.py) with their SQL.

    U  (1,a) ─► (1,b)    put, existed                      the key stays: one entry
    U  (1,a) ─► (2,a)    gone (1,a)   put (2,a)            it changes: two
    I          (3,c)     put
    D  (2,a)             gone (2,a)

In a transaction all that goes comes before all that is put: a source tells its net changes, row by row, in any order
of keys, and a key that one row gives up may be another row's afterwards.

    UPDATE t SET id = id + 1 ORDER BY id DESC              gone 1   gone 2   put 2 (row 1)   put 3 (row 2)

A repeat of a change to a table without a key is left out; a source that numbers rows has none.

Entries are numbered by the row of the chunk, so those of several layouts of a table fall into one order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar import Batch, typed_batch
from tidegate.engine.change import Chunk
from tidegate.engine.refused_rows import converted
from tidegate.model.mysql import MysqlType
from tidegate.model.table import TableInfo, TableName
from tidegate.sink.sql.literal import literals, numerals, tuples
from tidegate.sink.sql.shape import WrittenTable, written_table
from tidegate.sink.sql.statement import Texts, condition_texts, key_texts

TimesOf = Callable[[Any], Any]
"""Turns texts of TIMESTAMPs into those of UTC."""


class Entries(NamedTuple):
    """Entries of one table, in order; arrays have one value an entry."""

    table: WrittenTable
    number: Any
    commit_ts: Any
    put: Any
    existed: Any
    identity: Any
    """What tells rows apart, as text."""
    shard: Any
    texts: Texts

    def of(self, chosen: Any) -> "Entries":
        """Return the entries at some places or where a mask is true."""
        places = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        at = pa.array(places)
        return Entries(
            self.table,
            self.number[places],
            self.commit_ts[places],
            self.put[places],
            self.existed[places],
            self.identity.take(at),
            self.shard[places],
            self.texts.take(places),
        )


@dataclass(frozen=True)
class EntryReader:
    """Makes entries of chunks. `tables` are the definitions by TableName.key, `shards` tells into how many shards the
    rows of a table fall (1: they stay together)."""

    tables: Mapping[tuple[str, str], TableInfo]
    shards: Mapping[tuple[str, str], int]
    documents: bool = False
    utc: TimesOf | None = None

    def read(self, chunk: Chunk) -> list[Entries]:
        """Return the entries of each table of a chunk."""
        found: dict[tuple[str, str], list[Entries]] = {}
        for batch, numbers in chunk.parts:
            key = TableName(batch.schema, batch.table).key
            entries = partial(self._entries, numbers=np.asarray(numbers), key=key)
            found.setdefault(key, []).append(converted(batch, entries))
        return [_merged(parts) for parts in found.values()]

    def _entries(self, batch: Batch, numbers: Any, key: tuple[str, str]) -> Entries:
        typed = typed_batch(batch)
        table = written_table(self.tables[key], typed.fields)
        before, after = self._side(table, typed.before), self._side(table, typed.after)
        op = typed.op.to_numpy(zero_copy_only=False)
        ts = typed.commit_ts.to_numpy()
        gone, comes = np.flatnonzero(op != "I"), np.flatnonzero(op != "D")
        once = np.ones(len(op), np.bool_)
        if not table.key and batch.row_ids is None:
            once = _once(ts, op, (before.identity, gone), (after.identity, comes))
        same = np.zeros(len(op), np.bool_)
        if table.key:
            was, now = _places(gone, len(op)), _places(comes, len(op))
            updates = np.flatnonzero(op == "U")
            old, new = (pa.array(places[updates]) for places in (was, now))
            equal = pc.equal(before.identity.take(old), after.identity.take(new))
            same[updates] = equal.to_numpy(zero_copy_only=False)
        leaves, arrives = ~same[gone] & once[gone], once[comes]
        gone, old_at = gone[leaves], pa.array(np.flatnonzero(leaves))
        comes, new_at = comes[arrives], pa.array(np.flatnonzero(arrives))
        row = np.concatenate([gone, comes])
        put = np.concatenate([np.zeros(len(gone), np.bool_), np.ones(len(comes), np.bool_)])
        order = _order(ts[row], put, row)
        sides = [(before, old_at), (after, new_at)]
        identity, rows, keys, shard = (
            _both([getattr(side, name) for side, _ in sides], [at for _, at in sides], order)
            for name in ("identity", "rows", "keys", "shard")
        )
        existed = np.where(put, same[row], True)
        at = np.concatenate([np.zeros(len(gone), np.int64), new_at.to_numpy()])
        return Entries(
            table,
            numbers[row[order]],
            ts[row[order]],
            put[order],
            existed[order],
            identity,
            shard.to_numpy(),
            Texts(rows, keys, after.columns, at[order]),
        )

    def _side(self, table: WrittenTable, image: Any) -> "_Side":
        columns = [self._literals(table, image, at) for at in range(len(table.fields))]
        rows = tuples([columns[place] for place in table.places])
        shards = self.shards.get(TableName(table.schema, table.table).key, 1)
        if not table.key:
            keys = condition_texts(table, columns, documents=self.documents)
            return _Side(rows, rows, keys, pa.array(np.zeros(len(rows), np.int64)), columns)
        keys = key_texts(table, columns)
        shard = _shard_of([image.column(at) for at in table.key], shards, len(rows))
        return _Side(keys, rows, keys, pa.array(shard), columns)

    def _literals(self, table: WrittenTable, image: Any, at: int) -> Any:
        column = image.column(at)
        if self.utc is not None and table.fields[at].type == MysqlType.TIMESTAMP:
            column = self.utc(column)
        return numerals(column) if table.fields[at].type == MysqlType.DECIMAL else literals(column)


class _Side(NamedTuple):
    """The images of one side of a batch: what tells them apart, rows of VALUES, what finds them, their shards, and the
    literals of each field."""

    identity: Any
    rows: Any
    keys: Any
    shard: Any
    columns: Sequence[Any]


def _once(ts: Any, op: Any, *sides: tuple[Any, Any]) -> Any:
    """Which changes of a table without a key are the first of their kind: one of the same ts, operation and images is
    a repeat of a source whose rows have no number."""
    codes = [np.zeros(len(op), np.int64) for _ in sides]
    for code, (identity, rows) in zip(codes, sides, strict=True):
        code[rows] = pc.dictionary_encode(identity).indices.to_numpy() + 1
    _, first = np.unique(np.stack([ts, np.where(op == "D", 1, 0), *codes]), axis=1, return_index=True)
    found = np.zeros(len(op), np.bool_)
    found[first] = True
    return found


def _shard_of(keys: Sequence[Any], shards: int, count: int) -> Any:
    """The shard of each key, whose columns are whole numbers."""
    found = np.zeros(count, np.uint64)
    if shards > 1:
        for column in keys:
            values = column.to_numpy(zero_copy_only=False)
            found = (found * np.uint64(31) + values.astype(np.int64, casting="unsafe").view(np.uint64)) ^ (
                found >> np.uint64(7)
            )
        found %= np.uint64(shards)
    return found.astype(np.int64)


def _places(chosen: Any, rows: int) -> Any:
    """For each of `rows`, its place among the chosen ones."""
    found = np.zeros(rows, np.int64)
    found[chosen] = np.arange(len(chosen))
    return found


def _order(commit_ts: Any, put: Any, row: Any) -> Any:
    """The order of entries: by transaction, what goes first, then by row."""
    return np.lexsort((row, put, commit_ts))


def _both(columns: Sequence[Any], at: Sequence[Any], order: Any) -> Any:
    taken = [column.take(places) for column, places in zip(columns, at, strict=True)]
    return pa.concat_arrays(taken).take(pa.array(order))


def _merged(parts: Sequence[Entries]) -> Entries:
    """The entries of several layouts of a table, in one order. Layouts of rows that are put differ in flags at most: a
    DDL lies between others, and ends the round. DELETEs may have the key alone."""
    if len(parts) == 1:
        return parts[0]
    whole = _chained(parts, np.concatenate([part.number for part in parts]))
    return whole.of(_order(whole.commit_ts, whole.put, whole.number))


def _chained(parts: Sequence[Entries], number: Any) -> Entries:
    """Return the entries of `parts` one behind the other, with the columns of those that put rows."""
    putting = [part for part in parts if part.put.any()] or parts[:1]
    columns = [pa.concat_arrays(each) for each in zip(*(part.texts.columns for part in putting), strict=True)]
    begins = np.cumsum([0, *(len(part.texts.columns[0]) if part.put.any() else 0 for part in parts)])
    return Entries(
        putting[0].table,
        number,
        np.concatenate([part.commit_ts for part in parts]),
        np.concatenate([part.put for part in parts]),
        np.concatenate([part.existed for part in parts]),
        pa.concat_arrays([part.identity for part in parts]),
        np.concatenate([part.shard for part in parts]),
        Texts(
            pa.concat_arrays([part.texts.rows for part in parts]),
            pa.concat_arrays([part.texts.keys for part in parts]),
            columns,
            np.concatenate([part.texts.at + begin for part, begin in zip(parts, begins, strict=False)]),
        ),
    )
