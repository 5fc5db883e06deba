"""Row changes of a chunk as SQL statements: the net change of each row, in few statements of many rows.

    chunk ─► entries, table by table ─► net change of each row, by group of transactions ─► statements of many rows

    UPDATE (1,a) to (1,b)    put, existed                      the key stays: one entry
    UPDATE (1,a) to (2,a)    removed (1,a)   put (2,a)         it changes: two entries

Within a transaction all removals come before all puts: a source sends net changes in any order of keys, and a key that
one row gives up may belong to another row afterwards.  Repeats of a change to a table without a key are left out; a
source that numbers rows has none.

    entry       key   put  existed
    INSERT 1    1     yes  no    ─┐
    UPDATE 1    1     yes  yes   ─┴─► INSERT of the last image
    DELETE 2    2     no   yes   ─┐
    INSERT 2    2     yes  no    ─┴─► UPDATE to the last image
    INSERT 3    3     yes  no    ─┐
    DELETE 3    3     no   yes   ─┴─► nothing

The first entry shows whether the row existed before the group, the last one whether it exists afterwards.  Both are
states of the upstream, in which all unique keys were satisfied.  So after deleting the removed rows, and changed rows
that share another unique key, the rest can be inserted in any order, whatever collation, prefix or padding considers
equal.  Keys are compared by their bytes.  Rows of a table without a key are counted: n more or n fewer of each.

    DELETE FROM t WHERE id IN (1,2)                        removed rows, and rows that share another unique key
    INSERT INTO t (id,n) VALUES (3,'a'),(4,'b')
    INSERT .. ON DUPLICATE KEY UPDATE n=VALUES(n)          UPDATE of many rows; the server counts those that existed
    UPDATE t SET n='a' WHERE id=5                          UPDATE of one row
    DELETE FROM t WHERE a<=>1 AND n<=>'a' .. LIMIT 1       a table without a key
    REPLACE INTO t (id,n) VALUES ..                        safe mode

Literals: numbers as digits, also BIT, ENUM, SET and YEAR; a DECIMAL unquoted, since as a text it would be compared as a
DOUBLE; times and JSON as TiDB's texts; binary as x'00ff', without a character set.  Only quote and backslash are
escaped: sessions have neither NO_BACKSLASH_ESCAPES nor a character set other than utf8mb4.

Source: MySQL reference manual, "String Literals"; "INSERT ... ON DUPLICATE KEY UPDATE": with CLIENT_FOUND_ROWS a row
that stays as it is counts as one that existed; "mysql_info()": `Records: 3  Duplicates: 2  Warnings: 0`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property, partial
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar import Batch, typed_batch
from tidegate.engine.change import Chunk
from tidegate.engine.ports import converted
from tidegate.expr.tokens import quote_name, quote_names
from tidegate.model.errors import SinkRefused
from tidegate.model.event import Field
from tidegate.model.mysql import INTEGERS, STRINGS, ColumnFlag, MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo, TableName
from tidegate.mysql import server_sql as sent
from tidegate.sink.row_id import key_indexes

_NULL: Final = pa.scalar(b"NULL", pa.binary())
_NUMBER: Final = r"^-?[0-9]+(\.[0-9]+)?\z"
_EMPTY: Final = pa.scalar(b"", pa.binary())


def literals(column: Any) -> Any:
    """Return the values of an Arrow array as literals, in a binary array without nulls."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        texts = quoted(column.cast(pa.binary()))
    elif pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        texts = around(b"x'", digits(column.cast(pa.binary())), b"'")
    else:
        texts = column.cast(pa.string()).cast(pa.binary())
    return pc.fill_null(texts, _NULL)


def numerals(column: Any) -> Any:
    """Return the texts of DECIMALs as literals; a text that is no number is quoted, for the server to refuse."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return literals(column)
    is_number = pc.match_substring_regex(column, _NUMBER)
    return pc.fill_null(pc.if_else(is_number, column.cast(pa.binary()), literals(column)), _NULL)


def quoted(texts: Any) -> Any:
    """Return texts as quoted and escaped SQL literals."""
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), "'", "\\'")
    return around(b"'", escaped, b"'")


def digits(column: Any) -> Any:
    """Return bytes as hexadecimal digits, all values of a binary array at once; null stays null."""
    if not len(column):
        return column
    _, offsets, values = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    first, last = int(ends[0]), int(ends[-1])
    text = values.slice(first, last - first).to_pybytes().hex().encode() if values is not None else b""
    both = pa.py_buffer(((ends - first) * 2).astype(np.int32))
    texts = pa.Array.from_buffers(pa.binary(), len(column), [None, both, pa.py_buffer(text)])
    return pc.if_else(column.is_null(), pa.scalar(None, pa.binary()), texts)


def around(opening: bytes, texts: Any, closing: bytes) -> Any:
    """Return each of `texts` between two constants; null stays null."""
    return pc.binary_join_element_wise(pa.scalar(opening, pa.binary()), texts, pa.scalar(closing, pa.binary()), _EMPTY)


def joined(columns: list[Any], between: bytes) -> Any:
    """Return, for each row, the texts of `columns` with a constant between them."""
    if len(columns) == 1:
        return columns[0]
    return pc.binary_join_element_wise(*columns, pa.scalar(between, pa.binary()))


def tuples(columns: list[Any]) -> Any:
    """Return, for each row, its literals as a row of VALUES: (1,'a')."""
    return around(b"(", joined(columns, b","), b")")


def to_utc(texts: Any, *, zone: str) -> Any:
    """Return a column of texts in UTC; equal ones are read once."""
    encoded, own = texts.dictionary_encode(), ZoneInfo(zone)
    return pa.array([_moved(text, own) for text in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)


def _moved(text: str | None, zone: ZoneInfo) -> str | None:
    try:
        moment = datetime.fromisoformat(text or "").replace(tzinfo=zone).astimezone(UTC)
    except ValueError:
        return text
    digits = len((text or "").partition(".")[2])
    whole = moment.strftime("%Y-%m-%d %H:%M:%S.%f")
    return whole[: 20 + digits] if digits else whole[:19]


@dataclass(frozen=True)
class WrittenTable:
    """A table as its rows are written: the indexes of the written columns among `fields`, those of its key among them.

    `meets`: rows may share a unique key other than `key`."""

    schema: str
    table: str
    fields: tuple[Field, ...]
    indexes: tuple[int, ...]
    key: tuple[int, ...]
    meets: bool

    @cached_property
    def sql(self) -> str:
        return quote_names(self.schema, self.table)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(quote_name(self.fields[index].name) for index in self.indexes)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return tuple(quote_name(self.fields[index].name) for index in self.key)


def splits(table: TableInfo) -> bool:
    """Return True if rows of a table may be written in parallel."""
    key = [table.column(name) for name in table.handle_key]
    return bool(key) and not meets(table) and all(column is not None and column.type.code in INTEGERS for column in key)


def meets(table: TableInfo) -> bool:
    """Return True if rows may collide in a unique key other than the one by which they are found."""
    key = table.handle_key
    return any((index.unique or index.primary) and index.columns != key for index in table.indexes)


def written_table(table: TableInfo, fields: Sequence[Field]) -> WrittenTable:
    """Return the table for rows with `fields`. SinkRefused for rows that lack a column of the key."""
    generated = {lowered(column.name) for column in table.columns if column.generated is not None}
    indexes = tuple(
        index
        for index, field in enumerate(fields)
        if lowered(field.name) not in generated and not (field.flag and field.flag & ColumnFlag.GENERATED)
    )
    return WrittenTable(*table.name, tuple(fields), indexes, tuple(key_indexes(table, fields)), meets(table))


def is_text(field: Field) -> bool:
    """Return True if a column has a collation, so that equal values may have different bytes."""
    return field.type in STRINGS and not field.binary


def is_json(field: Field) -> bool:
    """Return True if a column holds documents."""
    return field.type == MysqlType.JSON


DELETE: Final = 0
UPDATE: Final = 1
INSERT: Final = 2


class Net(NamedTuple):
    """One net change per row: its kind, its group, and the entry with its values."""

    group: Any
    op: Any
    entry: Any
    times: Any
    """The count of equal rows in tables without a key; else 1."""


def fold_keyed(group: Any, code: Any, put: Any, existed: Any) -> Net:
    """Return the net change of every (group, code), ordered by them. Arrays have one value an entry, in order."""
    both = group * (int(code.max(initial=0)) + 1) + code
    _, first = np.unique(both, return_index=True)
    _, back = np.unique(both[::-1], return_index=True)
    last = len(both) - 1 - back
    was, stays = existed[first], put[last]
    op = np.where(stays, np.where(was, UPDATE, INSERT), DELETE)
    kept = was | stays
    return Net(group[last][kept], op[kept], last[kept], np.ones(int(kept.sum()), np.int64))


def fold_counted(group: Any, code: Any, put: Any) -> Net:
    """Return the change of the count of equal rows, for every (group, code) where it is not 0."""
    both = group * (int(code.max(initial=0)) + 1) + code
    _, first, inverse = np.unique(both, return_index=True, return_inverse=True)
    more = np.zeros(len(first), np.int64)
    np.add.at(more, inverse, np.where(put, 1, -1))
    kept = more != 0
    op = np.where(more > 0, INSERT, DELETE)
    return Net(group[first][kept], op[kept], first[kept], np.abs(more[kept]))


def groups_of(commit_ts: Any, most: int) -> tuple[Any, Sequence[int]]:
    """Return the group of each row and the last commit_ts of every group: whole transactions of at most `most` rows
    together, or a single one. `commit_ts` is ascending."""
    times, counts = np.unique(commit_ts, return_counts=True)
    numbers = np.empty(len(times), np.int64)
    ends: list[int] = []
    rows = most
    for index, count in enumerate(counts.tolist()):
        if rows + count > most and (rows or not ends):
            rows = 0
            ends.append(0)
        rows += count
        numbers[index] = len(ends) - 1
        ends[-1] = int(times[index])
    return numbers[np.searchsorted(times, commit_ts)], ends


_FORMS: Final[Mapping[int, str]] = {
    **dict.fromkeys((MysqlType.ENUM, MysqlType.SET, MysqlType.BIT, MysqlType.YEAR), sent.SAME_NUMBER),
    **dict.fromkeys((MysqlType.DATE, MysqlType.DATETIME, MysqlType.TIMESTAMP, MysqlType.TIME), sent.SAME_MOMENT),
}
ROOM_BYTES: Final = 1024
"""The largest size of a statement beside its rows and names."""


class Counted(Enum):
    """The number of a statement's answer that must equal the number of its rows."""

    AFFECTED = "affected rows"
    DUPLICATES = "duplicates"
    NONE = "any"


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement; `rows` is the expected value of `counted`."""

    text: bytes
    rows: int
    counted: Counted
    table: str


@dataclass(frozen=True, slots=True)
class StatementLimits:
    """The limits of a statement; `upserts`: many rows may be updated at once."""

    rows: int
    size_bytes: int
    upserts: bool
    safe: bool


@dataclass(frozen=True, slots=True)
class Texts:
    """The entries of a table's rows as SQL: rows of VALUES, and keys, or conditions that find a row without a key.

    `columns` are the literals of put rows, by the index of their field; `at` is the index of each entry there."""

    rows: Any
    keys: Any
    columns: Sequence[Any]
    indexes: Any

    def take(self, entries: Any) -> "Texts":
        indexes = pa.array(entries)
        return Texts(self.rows.take(indexes), self.keys.take(indexes), self.columns, self.indexes[entries])


@dataclass(frozen=True, slots=True)
class RowCheck:
    """A check of a put row: `question` queries, for each of `columns`, whether the server stores the sent value."""

    question: bytes
    columns: Sequence[str]
    table: str


def row_checks(table: WrittenTable, net: Net, texts: Texts, *, documents: bool) -> Iterator[RowCheck]:
    """Return the checks of the rows that exist after one group's net changes."""
    found_by = f"{table.key_columns[0]}=".encode() if len(table.key) == 1 else b""
    select, where, _ = sent.STORED.format(same="\0", table=table.sql, key="\0").encode().split(b"\0")
    for entry in net.entry[net.op != DELETE].tolist():
        values = [column[texts.indexes[entry]].as_py() for column in texts.columns]
        same = [_same(field, value, documents=documents) for field, value in zip(table.fields, values, strict=True)]
        question = b"".join([select, b",".join(same), where, found_by, texts.keys[entry].as_py()])
        yield RowCheck(question, [field.name for field in table.fields], table.sql)


def _same(field: Field, value: bytes, *, documents: bool) -> bytes:
    """The condition that a column of one row holds a value, to the last byte."""
    name = quote_name(field.name)
    if is_json(field) and documents:
        return sent.SAME_DOCUMENT.format(column=name).encode() + value + sent.AS_DOCUMENT.encode()
    if is_text(field) or is_json(field):
        return sent.SAME_BYTES.format(column=name).encode() + value + sent.AS_BYTES.encode()
    form = _FORMS.get(field.type, sent.SAME_VALUE)
    left, _, right = form.format(column=name, value="\0").partition("\0")
    return left.encode() + value + right.encode()


def statements(table: WrittenTable, net: Net, texts: Texts, limits: StatementLimits) -> Iterator[Statement]:
    """Return the statements of one group's net changes, in order."""
    if not table.key:
        yield from _keyless(table, net, texts, limits)
        return
    gone, updated = net.op == DELETE, net.op == UPDATE
    if table.meets or not limits.upserts or limits.safe:
        gone = gone | (updated & (not limits.safe or table.meets))
        updated = updated & False
    comes = (net.op != DELETE) & ~updated
    yield from _deletes(table, texts.keys.take(pa.array(net.entry[gone])), limits)
    yield from _updates(table, texts.take(net.entry[updated]), limits)
    yield from _inserts(table, texts.rows.take(pa.array(net.entry[comes])), limits)


def _deletes(table: WrittenTable, keys: Any, limits: StatementLimits) -> Iterator[Statement]:
    is_single = len(table.key) == 1
    found_by = sent.DELETE_BY_ONE if is_single else sent.DELETE
    opening = found_by.format(table=table.sql, key=table.key_columns[0])
    counted = Counted.NONE if limits.safe else Counted.AFFECTED
    for rows, count in packed(keys, b"," if is_single else b" OR ", limits, len(opening)):
        yield Statement(opening.encode() + rows + (b")" if is_single else b""), count, counted, table.sql)


def _inserts(table: WrittenTable, rows: Any, limits: StatementLimits) -> Iterator[Statement]:
    put = sent.REPLACE if limits.safe and table.key else sent.INSERT
    counted = Counted.NONE if limits.safe and table.key else Counted.AFFECTED
    opening = put.format(table=table.sql, columns=",".join(table.columns)).encode()
    for text, count in packed(rows, b",", limits, len(opening)):
        yield Statement(opening + text, count, counted, table.sql)


def _updates(table: WrittenTable, texts: Texts, limits: StatementLimits) -> Iterator[Statement]:
    """Return statements that update rows; the server reports duplicates of several rows alone, so a lone one goes by
    its key."""
    opening = sent.INSERT.format(table=table.sql, columns=",".join(table.columns)).encode()
    written = list(zip(table.columns, table.indexes, strict=True))
    others = [(name, index) for name, index in written if index not in table.key] or written[:1]
    sets = ",".join(sent.UPSERTED.format(column=name) for name, _ in others)
    closing = sent.UPSERT.format(sets=sets).encode()
    done = 0
    for text, count in packed(texts.rows, b",", limits, len(opening) + len(closing)):
        if count > 1:
            yield Statement(opening + text + closing, count, Counted.DUPLICATES, table.sql)
        else:
            values = [
                name.encode() + b"=" + texts.columns[index][texts.indexes[done]].as_py() for name, index in others
            ]
            where = f" WHERE {table.key_columns[0]}=" if len(table.key) == 1 else " WHERE "
            update = sent.UPDATE.format(table=table.sql)
            lone = [update.encode(), b",".join(values), where.encode(), texts.keys[done].as_py()]
            yield Statement(b"".join(lone), 1, Counted.AFFECTED, table.sql)
        done += count


def _keyless(table: WrittenTable, net: Net, texts: Texts, limits: StatementLimits) -> Iterator[Statement]:
    opening = sent.DELETE.format(table=table.sql).encode()
    counted = Counted.NONE if limits.safe else Counted.AFFECTED
    gone = net.op == DELETE
    conditions = texts.keys.take(pa.array(net.entry[gone])).to_pylist()
    for text, times in zip(conditions, net.times[gone].tolist(), strict=True):
        yield Statement(opening + text + b" LIMIT %d" % times, times, counted, table.sql)
    entries = net.entry[net.op == INSERT].repeat(net.times[net.op == INSERT])
    yield from _inserts(table, texts.rows.take(pa.array(entries)), limits)


def packed(rows: Any, between: bytes, limits: StatementLimits, names_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Return `rows` joined, in pieces that are within the limits; a row above them is a piece of its own."""
    sizes = pc.binary_length(rows).to_pylist()
    most = limits.size_bytes - names_bytes - ROOM_BYTES
    start = filled = 0
    for index, length in enumerate(sizes):
        size = length + len(between)
        if index > start and (index - start >= limits.rows or filled + size > most):
            yield between.join(rows.slice(start, index - start).to_pylist()), index - start
            start, filled = index, 0
        filled += size
    if len(rows) > start:
        yield between.join(rows.slice(start).to_pylist()), len(rows) - start


def key_texts(table: WrittenTable, columns: Sequence[Any]) -> Any:
    """Return the condition that finds each row, for `columns` of literals by the index of their field: 5, or (a=5 AND
    b='x')."""
    if len(table.key) == 1:
        return columns[table.key[0]]
    terms = [
        around(f"{name}=".encode(), columns[index], b"")
        for name, index in zip(table.key_columns, table.key, strict=True)
    ]
    return around(b"(", joined(terms, b" AND "), b")")


def condition_texts(table: WrittenTable, columns: Sequence[Any], *, documents: bool) -> Any:
    """Return the conditions that match only a row of a table without a key, and rows equal to it.

    A text is compared by its collation, which an index may serve, and by its bytes. With `documents` the server
    compares JSON as documents, not as text."""
    terms: list[Any] = []
    for name, index in zip(table.columns, table.indexes, strict=True):
        field, values = table.fields[index], columns[index]
        if is_json(field) and documents:
            terms.append(around(sent.SAME_DOCUMENT.format(column=name).encode(), values, sent.AS_DOCUMENT.encode()))
            continue
        terms.append(around(f"{name}<=>".encode(), values, b""))
        if is_text(field) or is_json(field):
            terms.append(around(sent.SAME_BYTES.format(column=name).encode(), values, sent.AS_BYTES.encode()))
    return joined(terms, b" AND ")


class Entries(NamedTuple):
    """Entries of one table, in order; arrays have one value an entry."""

    table: WrittenTable
    number: Any
    commit_ts: Any
    put: Any
    existed: Any
    identity: Any
    """The identity of rows, as text."""
    shard: Any
    texts: Texts

    def of(self, chosen: Any) -> "Entries":
        """Return the entries at some indexes or where a mask is true."""
        indexes = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        arrays = {name: getattr(self, name)[indexes] for name in ("number", "commit_ts", "put", "existed", "shard")}
        return self._replace(**arrays, identity=self.identity.take(pa.array(indexes)), texts=self.texts.take(indexes))


@dataclass(frozen=True)
class EntryReader:
    """Makes entries of chunks. `tables` are the definitions by TableName.key, `shards` the number of shards into which
    the rows of a table fall (1: they stay together)."""

    tables: Mapping[tuple[str, str], TableInfo]
    shards: Mapping[tuple[str, str], int]
    documents: bool = False
    utc: Callable[[Any], Any] | None = None
    """Converts a column of texts of TIMESTAMPs to UTC."""

    def read(self, chunk: Chunk) -> list[Entries]:
        tables: dict[tuple[str, str], list[Entries]] = {}
        for batch, numbers in chunk.parts:
            key = TableName(batch.schema, batch.table).key
            entries = partial(self._entries, numbers=np.asarray(numbers), key=key)
            tables.setdefault(key, []).append(converted(batch, entries))
        return [_merged(parts) for parts in tables.values()]

    def _entries(self, batch: Batch, numbers: Any, key: tuple[str, str]) -> Entries:
        typed = typed_batch(batch)
        table = written_table(self.tables[key], typed.fields)
        before, after = self._side(table, typed.before), self._side(table, typed.after)
        op = typed.op.to_numpy(zero_copy_only=False)
        ts = typed.commit_ts.to_numpy()
        gone, comes = np.flatnonzero(op != "I"), np.flatnonzero(op != "D")
        once = np.ones(len(op), np.bool_)
        if not table.key and batch.repeats:
            once = _once(ts, op, (before.identity, gone), (after.identity, comes))
        same = np.zeros(len(op), np.bool_)
        if table.key:
            was, now = _indexes_of(gone, len(op)), _indexes_of(comes, len(op))
            updates = np.flatnonzero(op == "U")
            old, new = (pa.array(indexes[updates]) for indexes in (was, now))
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
            pa.concat_arrays([getattr(side, name).take(indexes) for side, indexes in sides]).take(pa.array(order))
            for name in ("identity", "rows", "keys", "shard")
        )
        existed = np.where(put, same[row], True)
        images = np.concatenate([np.zeros(len(gone), np.int64), new_at.to_numpy()])
        return Entries(
            table,
            numbers[row[order]],
            ts[row[order]],
            put[order],
            existed[order],
            identity,
            shard.to_numpy(),
            Texts(rows, keys, after.columns, images[order]),
        )

    def _side(self, table: WrittenTable, image: Any) -> "_Side":
        columns = [self._literals(table, image, position) for position in range(len(table.fields))]
        rows = tuples([columns[index] for index in table.indexes])
        shards = self.shards.get(TableName(table.schema, table.table).key, 1)
        if not table.key:
            keys = condition_texts(table, columns, documents=self.documents)
            return _Side(rows, rows, keys, pa.array(np.zeros(len(rows), np.int64)), columns)
        keys = key_texts(table, columns)
        shard = _shard_of([image.column(position) for position in table.key], shards, len(rows))
        return _Side(keys, rows, keys, pa.array(shard), columns)

    def _literals(self, table: WrittenTable, image: Any, index: int) -> Any:
        column = image.column(index)
        if self.utc is not None and table.fields[index].type == MysqlType.TIMESTAMP:
            column = self.utc(column)
        return numerals(column) if table.fields[index].type == MysqlType.DECIMAL else literals(column)


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
    a repeat."""
    codes = [np.zeros(len(op), np.int64) for _ in sides]
    for code, (identity, rows) in zip(codes, sides, strict=True):
        code[rows] = pc.dictionary_encode(identity).indices.to_numpy() + 1
    _, first = np.unique(np.stack([ts, np.where(op == "D", 1, 0), *codes]), axis=1, return_index=True)
    once = np.zeros(len(op), np.bool_)
    once[first] = True
    return once


def _shard_of(keys: Sequence[Any], shards: int, count: int) -> Any:
    """The shard of each key, whose columns are whole numbers."""
    shard = np.zeros(count, np.uint64)
    if shards > 1:
        for column in keys:
            values = column.to_numpy(zero_copy_only=False).astype(np.int64, casting="unsafe").view(np.uint64)
            shard = (shard * np.uint64(31) + values) ^ (shard >> np.uint64(7))
        shard %= np.uint64(shards)
    return shard.astype(np.int64)


def _indexes_of(chosen: Any, rows: int) -> Any:
    """For each of `rows`, its index among the chosen ones."""
    indexes = np.zeros(rows, np.int64)
    indexes[chosen] = np.arange(len(chosen))
    return indexes


def _order(commit_ts: Any, put: Any, row: Any) -> Any:
    """The order of entries: by transaction, what goes first, then by row."""
    return np.lexsort((row, put, commit_ts))


def _merged(parts: Sequence[Entries]) -> Entries:
    """The entries of several layouts of a table, in one order. Layouts of rows that are put differ in flags at most: a
    DDL lies between others, and ends the round. DELETEs may have the key alone."""
    if len(parts) == 1:
        return parts[0]
    putting = [part for part in parts if part.put.any()] or parts[:1]
    table = putting[0].table
    if any(part.table.columns != table.columns for part in putting):
        name = f"{table.schema}.{table.table}"
        raise SinkRefused(
            f"table {name}: its rows have {', '.join(table.columns)} and, without a DDL between them, other columns: "
            f"a filter excluded a DDL, or messages have only some columns"
        ).at(table=name, commit_ts=int(min(part.commit_ts[0] for part in putting)))
    columns = [pa.concat_arrays(each) for each in zip(*(part.texts.columns for part in putting), strict=True)]
    begins = np.cumsum([0, *(len(part.texts.columns[0]) if part.put.any() else 0 for part in parts)])
    rows, keys = (pa.concat_arrays([getattr(part.texts, name) for part in parts]) for name in ("rows", "keys"))
    images = np.concatenate([part.texts.indexes + begin for part, begin in zip(parts, begins, strict=False)])
    number, commit_ts, put, existed, shard = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("number", "commit_ts", "put", "existed", "shard")
    )
    identity, texts = pa.concat_arrays([part.identity for part in parts]), Texts(rows, keys, columns, images)
    whole = Entries(table, number, commit_ts, put, existed, identity, shard, texts)
    return whole.of(_order(commit_ts, put, number))
