"""Partitions of rows: which partition a row lies in, and bounds that depend on a session's time zone. Pure.

    RANGE (expr)         first partition whose bound is above the value; NULL in the first
    RANGE COLUMNS (..)   the same, comparing the columns one after the other; NULL below everything
    LIST (expr)          the partition that lists the value; NULL only where NULL is listed; else DEFAULT
    LIST COLUMNS (..)    the same with one value a column
    HASH (expr)          |value mod count|; NULL as 0
    KEY (..)             crc32 of the columns' texts, one after the other, mod count; NULL is one zero byte

DROP, TRUNCATE and EXCHANGE PARTITION do not list the rows that they move, so a consumer computes them.
Texts compare by the sort keys of their column's collation (mysql/collation.py); one whose sort keys are not known is
refused.  KEY is crc32 (IEEE) over the sort key of each value's text, for a number that of its decimal digits.  KEY of
a text whose collation ignores case is refused, and KEY of a TIMESTAMP, which TiDB hashes in the zone of the session
that wrote the row.

A bound may be the text of a moment, in the time zone of the session that wrote it.  `in_zone` replaces it by the number
that TiDB stores, since a later DDL may come in another zone.

    VALUES LESS THAN (UNIX_TIMESTAMP('2024-01-01 00:00:00'))    in +08:00     VALUES LESS THAN (1704038400)

Source: TiDB's table/tables/partition.go (locatePartition); physical table ids in tests/data/codec/partition.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Final, TypeAlias
from zlib import crc32

import msgspec

from tidegate.expr.change import event_value, family_of, type_name
from tidegate.model.errors import EncodeError, SchemaError, TidegateError, UnsupportedError
from tidegate.model.event import Value
from tidegate.model.mysql import Family, MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, ColumnType, PartitionDef, PartitionInfo
from tidegate.mysql.collation import sort_key
from tidegate.mysql.column_value import parse_value
from tidegate.mysql.conversion import float_text
from tidegate.mysql.packed_time import Time
from tidegate.schema.columns import implied_collation
from tidegate.schema.expression import Evaluate, Row, column_reader, compile_expression, integer_of
from tidegate.schema.literal import cast_literal
from tidegate.schema.statement import (
    AddPartitions,
    AlterTable,
    CreateTable,
    PartitionBy,
    ReorganizePartitions,
    Spec,
    Statement,
)

MOMENT: Final = re.compile(r"UNIX_TIMESTAMP\s*\(\s*['\"]", re.IGNORECASE)
"""A bound whose number depends on the time zone."""


def in_zone(statement: Statement, zone: str) -> Statement:
    """Return a statement with its bounds converted from that time zone; unchanged if the zone is unknown."""
    match statement:
        case _ if zone in {"", "UTC", "+00:00"}:
            return statement
        case CreateTable(partition=PartitionInfo() as partition):
            return replace(statement, partition=_partition(partition, zone))
        case AlterTable(specs=specs):
            return replace(statement, specs=tuple(_spec(spec, zone) for spec in specs))
    return statement


def number_of(text: str, zone: str) -> int | None:
    """Return the number of a bound in a session of that time zone; None for a bound that is no number."""
    try:
        return integer_of(compile_expression(text, (), time_zone=zone)({}))
    except TidegateError:
        return None


def _spec(spec: Spec, zone: str) -> Spec:
    match spec:
        case AddPartitions(definitions=definitions) | ReorganizePartitions(definitions=definitions):
            return replace(spec, definitions=_definitions(definitions, zone))
        case PartitionBy(partition):
            return replace(spec, partition=_partition(partition, zone))
    return spec


def _partition(partition: PartitionInfo, zone: str) -> PartitionInfo:
    return msgspec.structs.replace(partition, definitions=_definitions(partition.definitions, zone))


def _definitions(definitions: Sequence[PartitionDef], zone: str) -> tuple[PartitionDef, ...]:
    return tuple(
        msgspec.structs.replace(
            definition,
            less_than=_numbers(definition.less_than, zone),
            in_values=tuple(_numbers(values, zone) for values in definition.in_values),
        )
        for definition in definitions
    )


def _numbers(texts: tuple[str, ...], zone: str) -> tuple[str, ...]:
    numbered = ((text, number_of(text, zone) if MOMENT.search(text) else None) for text in texts)
    return tuple(text if number is None else str(number) for text, number in numbered)


Locate: TypeAlias = Callable[[Row], str | None]
"""A row's values by column name -> the name of its partition; None if no partition fits."""

_Key: TypeAlias = tuple[int, int | float | Decimal | bytes | tuple[int, ...]]
"""A key that sorts as MySQL sorts values of one type: NULL, then values, then MAXVALUE."""
_NULL: Final[_Key] = (0, 0)
_MAXVALUE: Final[_Key] = (2, 0)
_ORDERED: Final = frozenset({Family.DECIMAL, Family.MOMENT, Family.SPAN})
"""Types whose values are texts that do not sort as texts."""


def partition_of(
    info: PartitionInfo,
    columns: tuple[ColumnInfo, ...],
    *,
    time_zone: str = "UTC",
    primary_key: tuple[str, ...] = (),
) -> Locate:
    """Return a function that names the partition of a row.

    `time_zone` is the zone of TIMESTAMP values, `primary_key` is what KEY() without columns means.  Raises
    UnsupportedError for methods, expressions and collations that it cannot follow, SchemaError for columns that do not
    exist.
    """
    method = info.method.upper().removesuffix(" COLUMNS").removeprefix("LINEAR ")
    maker = _METHODS.get(method)
    if maker is None:
        raise UnsupportedError(f"partitions BY {info.method} are not known; the rows' own partition ids are needed")
    if method == "KEY" and not info.columns:
        info = msgspec.structs.replace(info, columns=primary_key)
    return maker(info, _Table(columns, time_zone))


class _Table:
    """The columns of a table, by the names that partition definitions use."""

    def __init__(self, columns: tuple[ColumnInfo, ...], time_zone: str) -> None:
        self.by_name = {lowered(column.name): column for column in columns}
        self.time_zone = time_zone

    def column(self, name: str) -> ColumnInfo:
        """Return the column of that name in any case; raises SchemaError if there is none."""
        column = self.by_name.get(lowered(name.strip("`")))
        if column is None:
            raise SchemaError(f"the partition definition names a column {name!r} that the table lacks")
        return column

    def expression(self, text: str) -> Evaluate:
        """Return the compiled expression over this table's columns."""
        return compile_expression(text, tuple(self.by_name.values()), time_zone=self.time_zone)

    def constant(self, text: str) -> int | None:
        """Return the integer of a bound or list entry."""
        return integer_of(compile_expression(text, (), time_zone=self.time_zone)({}))

    def keys(self, names: tuple[str, ...]) -> Callable[[Row], tuple[_Key, ...]]:
        """Return a function from a row to its sort keys in these columns."""
        parts = [(column_reader(self.column(name).name), self.sort_key(name)) for name in names]
        return lambda row: tuple(key(read(row)) for read, key in parts)

    def sort_key(self, name: str) -> Callable[[Value], _Key]:
        """Return a sort key of values of a column."""
        column = self.column(name)
        return partial(_sort_key, column.type, _text_key(column))

    def bounds(self, names: tuple[str, ...], texts: tuple[str, ...]) -> tuple[_Key, ...]:
        """Return the sort keys of one bound or list entry; raises SchemaError if it does not have one value per column.

        VALUES LESS THAN MAXVALUE without parentheses means MAXVALUE for every column.
        """
        if len(texts) == 1 and _is_max(texts[0]):
            texts *= len(names)
        if len(names) != len(texts):
            raise SchemaError(f"partition columns {names} and their values {texts} differ in number")
        return tuple(map(self.bound, names, texts))

    def bound(self, name: str, text: str) -> _Key:
        """Return the sort key of a bound or list entry of a column."""
        if text.strip().upper() == "MAXVALUE":
            return _MAXVALUE
        column = self.column(name)
        value = compile_expression(text, (), time_zone=self.time_zone)({})
        if value is None:
            return _NULL
        literal = value if isinstance(value, str | bytes) else str(value)
        return self.sort_key(name)(cast_literal(literal, column.type, time_zone=self.time_zone))


def _text_key(column: ColumnInfo) -> Callable[[str], bytes]:
    """Return the sort key function of a text column; UnsupportedError if its collation is not supported."""
    collation = column.collation or implied_collation(column.type.charset)

    def key(text: str) -> bytes:
        try:
            return sort_key(collation, text.encode("utf-8", "surrogateescape"))
        except EncodeError as unknown:
            raise UnsupportedError(
                f"{column.name} of collation {collation} determines the partition of a row: {unknown}; exclude the "
                f"table by a filter rule"
            ) from unknown

    key("")
    return key


def _sort_key(kind: ColumnType, text_key: Callable[[str], bytes], value: Value) -> _Key:
    match value:
        case None:
            return _NULL
        case bytes():
            return 1, value
        case str() if family_of(kind) in _ORDERED:
            parsed = parse_value(kind, value)
            assert isinstance(parsed, int | Decimal | Time), parsed
            return 1, parsed
        case str():
            return 1, text_key(value)
        case _:
            return 1, value


def _range(info: PartitionInfo, table: _Table) -> Locate:
    names = tuple(definition.name for definition in info.definitions)
    if info.columns:
        keys = table.keys(info.columns)
        bounds = [table.bounds(info.columns, definition.less_than) for definition in info.definitions]
        return lambda row: _named(names, 0 if (key := keys(row))[0] == _NULL else bisect_right(bounds, key))
    evaluate = table.expression(info.expr)
    limits = [
        table.constant(bound) for definition in info.definitions for bound in definition.less_than if not _is_max(bound)
    ]
    numbers = [limit for limit in limits if limit is not None]

    def locate(row: Row) -> str | None:
        value = integer_of(evaluate(row))
        return _named(names, 0 if value is None else bisect_right(numbers, value))

    return locate


def _is_max(text: str) -> bool:
    return text.strip().strip("()").upper() == "MAXVALUE"


def _named(names: tuple[str, ...], index: int) -> str | None:
    return names[index] if index < len(names) else None


def _list(info: PartitionInfo, table: _Table) -> Locate:
    default = next((part.name for part in info.definitions if _is_default(part.in_values)), None)
    entries = [
        (entry, definition.name)
        for definition in info.definitions
        for entry in definition.in_values
        if not _is_default((entry,))
    ]
    if info.columns:
        keys = table.keys(info.columns)
        names = {table.bounds(info.columns, entry): name for entry, name in entries}
        return lambda row: names.get(keys(row), default)
    evaluate = table.expression(info.expr)
    homes = {table.constant(entry[0]): name for entry, name in entries}
    return lambda row: homes.get(integer_of(evaluate(row)), default)


def _is_default(entries: tuple[tuple[str, ...], ...]) -> bool:
    return any(len(entry) == 1 and entry[0].strip().upper() == "DEFAULT" for entry in entries)


def _hashed_names(info: PartitionInfo) -> tuple[str, ...]:
    """Return the partition names of HASH and KEY in order; p0, p1, .. if the definition has none."""
    if info.definitions:
        return tuple(definition.name for definition in info.definitions)
    return tuple(f"p{index}" for index in range(max(info.count, 1)))


def _hash(info: PartitionInfo, table: _Table) -> Locate:
    names = _hashed_names(info)
    evaluate = table.expression(info.expr)

    def locate(row: Row) -> str:
        value = integer_of(evaluate(row)) or 0
        signed = (value + (1 << 63)) % (1 << 64) - (1 << 63)
        return names[abs(signed) % len(names)]

    return locate


def _key(info: PartitionInfo, table: _Table) -> Locate:
    names = _hashed_names(info)
    if not info.columns:
        raise UnsupportedError("PARTITION BY KEY() without columns hashes the primary key, which this table lacks")
    parts = [_key_part(table, name) for name in info.columns]

    def locate(row: Row) -> str:
        digest = 0
        for part in parts:
            digest = crc32(part(row), digest)
        return names[digest % len(names)]

    return locate


def _key_part(table: _Table, name: str) -> Callable[[Row], bytes]:
    column = table.column(name)
    if (column.collation or implied_collation(column.type.charset)).endswith("_ci"):
        raise UnsupportedError(
            f"PARTITION BY KEY({column.name}) hashes sort keys of a case-insensitive collation, which is not "
            f"supported; use a _bin collation, or exclude the table by a filter rule"
        )
    if column.type.code is MysqlType.TIMESTAMP:
        raise UnsupportedError(
            f"PARTITION BY KEY({column.name}) hashes a TIMESTAMP in the time zone of the session that wrote the row, "
            f"which is unknown; use a DATETIME, or exclude the table by a filter rule"
        )
    read, text = column_reader(column.name), _hash_text(column)

    def part(row: Row) -> bytes:
        value = read(row)
        return b"\0" if value is None else text(value)

    return part


def _hash_text(column: ColumnInfo) -> Callable[[Value], bytes]:
    """Return the function from a value to the bytes that TiDB hashes; ENUM and SET are hashed by name."""
    kind = column.type
    family = family_of(kind)
    if family in {Family.JSON, Family.VECTOR}:
        raise UnsupportedError(f"a column of type {type_name(kind)} cannot be a partition key")
    if family is Family.FLOAT:
        single = kind.code is MysqlType.FLOAT
        return lambda value: float_text(float(value or 0), single=single).encode()
    if family is Family.BIT:
        size = (max(kind.flen, 1) + 7) // 8
        return lambda value: int(value or 0).to_bytes(size, "big").rstrip(b" ")
    key = _text_key(column)
    if family in {Family.ENUM, Family.SET}:
        return lambda value: key(value if isinstance(value, str) else str(event_value(kind, int(value or 0))))
    return lambda value: value if isinstance(value, bytes) else key(str(value))


_METHODS: Final[Mapping[str, Callable[[PartitionInfo, _Table], Locate]]] = {
    "RANGE": _range,
    "LIST": _list,
    "HASH": _hash,
    "KEY": _key,
}
