"""Net changes of a table as statements of many rows, and how many rows each has to change. Pure.

    DELETE FROM t WHERE id IN (1,2)                        all that go, and what shares another unique key
    INSERT INTO t (id,n) VALUES (3,'a'),(4,'b')
    INSERT .. ON DUPLICATE KEY UPDATE n=VALUES(n)          UPDATE of many rows; the server tells how many were there
    UPDATE t SET n='a' WHERE id=5                          of one
    DELETE FROM t WHERE a<=>1 AND n<=>'a' .. LIMIT 1       a table without a key
    REPLACE INTO t (id,n) VALUES ..                        safe mode: whatever is there

A statement has at most so many rows, and so many bytes that the server takes it.

Source: MySQL reference manual, "INSERT ... ON DUPLICATE KEY UPDATE": with CLIENT_FOUND_ROWS a row that stays as it is
counts as one that was there; "mysql_info()": `Records: 3  Duplicates: 2  Warnings: 0`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.expr.syntax.tokens import quote_name
from tidegate.model.event import Field
from tidegate.model.mysql import MysqlType
from tidegate.mysql import server_sql as sent
from tidegate.sink.sql.fold import DELETE, INSERT, UPDATE, Net
from tidegate.sink.sql.literal import around, joined
from tidegate.sink.sql.shape import WrittenTable, is_json, is_text

_FORMS: Final[Mapping[int, str]] = {
    **dict.fromkeys((MysqlType.ENUM, MysqlType.SET, MysqlType.BIT, MysqlType.YEAR), sent.SAME_NUMBER),
    **dict.fromkeys((MysqlType.DATE, MysqlType.DATETIME, MysqlType.TIMESTAMP, MysqlType.TIME), sent.SAME_MOMENT),
}
ROOM_BYTES: Final = 1024
"""What a statement takes beside its rows and names, at most."""


class Counted(Enum):
    """Which number of a statement's answer has to be that of its rows."""

    AFFECTED = "affected rows"
    DUPLICATES = "duplicates"
    NONE = "any"


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement; `rows` is what `counted` has to be."""

    text: bytes
    rows: int
    counted: Counted
    table: str


@dataclass(frozen=True, slots=True)
class StatementLimits:
    """How large a statement may be; `upserts` says that many rows may be updated at once."""

    rows: int
    size_bytes: int
    upserts: bool
    safe: bool


@dataclass(frozen=True, slots=True)
class Texts:
    """The entries of a table's rows as SQL: rows of VALUES, and keys, or conditions that find a row without a key.

    `columns` are the literals of rows that come, by the place of their field; `at` is the place of each entry there."""

    rows: Any
    keys: Any
    columns: Sequence[Any]
    at: Any

    def take(self, entries: Any) -> "Texts":
        """Return the texts of some entries."""
        places = pa.array(entries)
        return Texts(self.rows.take(places), self.keys.take(places), self.columns, self.at[entries])


@dataclass(frozen=True, slots=True)
class RowCheck:
    """A row that is put: `question` asks the server, for each of `columns`, whether it holds what was sent."""

    question: bytes
    columns: Sequence[str]
    table: str


def row_checks(table: WrittenTable, net: Net, texts: Texts, *, documents: bool) -> Iterator[RowCheck]:
    """Return the checks of the rows that are there after one group's net changes."""
    found_by = f"{table.key_columns[0]}=".encode() if len(table.key) == 1 else b""
    select, where, _ = sent.STORED.format(same="\0", table=table.sql, key="\0").encode().split(b"\0")
    for entry in net.entry[net.op != DELETE].tolist():
        values = [column[texts.at[entry]].as_py() for column in texts.columns]
        same = [_same(field, value, documents=documents) for field, value in zip(table.fields, values, strict=True)]
        question = b"".join([select, b",".join(same), where, found_by, texts.keys[entry].as_py()])
        yield RowCheck(question, [field.name for field in table.fields], table.sql)


def _same(field: Field, value: bytes, *, documents: bool) -> bytes:
    """The question whether a column of one row holds a value, to the last byte."""
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
    gone, there = net.op == DELETE, net.op == UPDATE
    if table.meets or not limits.upserts or limits.safe:
        gone = gone | (there & (not limits.safe or table.meets))
        there = there & False
    comes = (net.op != DELETE) & ~there
    yield from _deletes(table, texts.keys.take(pa.array(net.entry[gone])), limits)
    yield from _updates(table, texts.take(net.entry[there]), limits)
    yield from _inserts(table, texts.rows.take(pa.array(net.entry[comes])), limits)


def _deletes(table: WrittenTable, keys: Any, limits: StatementLimits) -> Iterator[Statement]:
    one = len(table.key) == 1
    found_by = sent.DELETE_BY_ONE if one else sent.DELETE
    opening = found_by.format(table=table.sql, key=table.key_columns[0])
    counted = Counted.NONE if limits.safe else Counted.AFFECTED
    for rows, count in packed(keys, b"," if one else b" OR ", limits, len(opening)):
        yield Statement(opening.encode() + rows + (b")" if one else b""), count, counted, table.sql)


def _inserts(table: WrittenTable, rows: Any, limits: StatementLimits) -> Iterator[Statement]:
    put = sent.REPLACE if limits.safe and table.key else sent.INSERT
    counted = Counted.NONE if limits.safe and table.key else Counted.AFFECTED
    opening = put.format(table=table.sql, columns=",".join(table.columns)).encode()
    for text, count in packed(rows, b",", limits, len(opening)):
        yield Statement(opening + text, count, counted, table.sql)


def _updates(table: WrittenTable, texts: Texts, limits: StatementLimits) -> Iterator[Statement]:
    """Return what updates rows; the server tells duplicates of several rows alone, so a lone one goes by its key."""
    opening = sent.INSERT.format(table=table.sql, columns=",".join(table.columns)).encode()
    written = list(zip(table.columns, table.places, strict=True))
    others = [(name, place) for name, place in written if place not in table.key] or written[:1]
    sets = ",".join(sent.UPSERTED.format(column=name) for name, _ in others)
    closing = sent.UPSERT.format(sets=sets).encode()
    done = 0
    for text, count in packed(texts.rows, b",", limits, len(opening) + len(closing)):
        if count > 1:
            yield Statement(opening + text + closing, count, Counted.DUPLICATES, table.sql)
        else:
            values = [name.encode() + b"=" + texts.columns[place][texts.at[done]].as_py() for name, place in others]
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
    start = taken = 0
    for at, length in enumerate(sizes):
        size = length + len(between)
        if at > start and (at - start >= limits.rows or taken + size > most):
            yield between.join(rows.slice(start, at - start).to_pylist()), at - start
            start, taken = at, 0
        taken += size
    if len(rows) > start:
        yield between.join(rows.slice(start).to_pylist()), len(rows) - start


def key_texts(table: WrittenTable, columns: Sequence[Any]) -> Any:
    """Return what finds each row, for `columns` of literals by the place of their field: 5, or (a=5 AND b='x')."""
    if len(table.key) == 1:
        return columns[table.key[0]]
    terms = [
        around(f"{name}=".encode(), columns[place], b"")
        for name, place in zip(table.key_columns, table.key, strict=True)
    ]
    return around(b"(", joined(terms, b" AND "), b")")


def condition_texts(table: WrittenTable, columns: Sequence[Any], *, documents: bool) -> Any:
    """Return the conditions that a row of a table without a key, and its twins alone, meets.

    A text is compared by its collation, which an index may serve, and by its bytes. `documents` says that the server
    compares JSON as documents, not as text."""
    terms: list[Any] = []
    for name, place in zip(table.columns, table.places, strict=True):
        field, values = table.fields[place], columns[place]
        if is_json(field) and documents:
            terms.append(around(sent.SAME_DOCUMENT.format(column=name).encode(), values, sent.AS_DOCUMENT.encode()))
            continue
        terms.append(around(f"{name}<=>".encode(), values, b""))
        if is_text(field) or is_json(field):
            terms.append(around(sent.SAME_BYTES.format(column=name).encode(), values, sent.AS_BYTES.encode()))
    return joined(terms, b" AND ")
