"""Literals of column definitions as stored values: defaults of ADD COLUMN and bounds of partitions.

    ADD COLUMN g DECIMAL(10,4) DEFAULT 3.14          rows written before it hold   "3.1400"
    ADD COLUMN y BINARY(4)     DEFAULT 'ab'                                        "ab" and two NUL bytes
    ADD COLUMN d VARCHAR(20)   NOT NULL                                            ""   (the zero value)
    ADD COLUMN b INT                                                               None

No row is written when a column is added: rows without it read as its *origin* default, whatever SET DEFAULT says later.
Source: TiDB's GetColOriginDefaultValue and GetZeroValue; rows of tests/data/codec/interleave after each ADD COLUMN.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from tidegate.model.event import Value
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnInfo, ColumnType
from tidegate.model.tso import to_datetime
from tidegate.schema.convert.converter import converter, zone_of
from tidegate.schema.convert.json import parse_json, render_json
from tidegate.schema.convert.number import bit_writer, numeric_prefix
from tidegate.schema.convert.read import Family, elems_of, family_of, text_value
from tidegate.schema.convert.span import render_span
from tidegate.schema.convert.text import byte_writer, decode_bytes, enum_name
from tidegate.schema.convert.time import ZERO, WallClock, fsp_of, moment_writer

__all__ = ["cast_literal", "stored_value", "zero_value"]

LONGEST_TEXT: Final = ColumnType(MysqlType.LONG_BLOB)
LONGEST_BYTES: Final = ColumnType(MysqlType.LONG_BLOB, charset="binary")
_NUMERIC: Final = frozenset({Family.INT, Family.BIT, Family.YEAR, Family.FLOAT, Family.DECIMAL})
_NAMED: Final = frozenset({Family.ENUM, Family.SET})
_BOOLEAN: Final = {"TRUE": "1", "FALSE": "0"}
_NOW: Final = re.compile(
    r"(?:CURRENT_TIMESTAMP|NOW|LOCALTIME|LOCALTIMESTAMP)(?:\s*\(\s*\d?\s*\))?|CURRENT_DATE(?:\s*\(\s*\))?",
    re.IGNORECASE,
)


def zero_value(column: ColumnInfo) -> Value:
    """Return the implicit default of a NOT NULL column."""
    kind = column.type
    return _ZEROS[family_of(kind)](kind)


def _zero_moment(kind: ColumnType) -> Value:
    return "0000-00-00" if kind.code is MysqlType.DATE else moment_writer(kind, zone_of("UTC"))(ZERO)


_ZEROS: Final[Mapping[Family, Callable[[ColumnType], Value]]] = {
    Family.INT: lambda _kind: 0,
    Family.BIT: lambda _kind: 0,
    Family.YEAR: lambda _kind: 0,
    Family.FLOAT: lambda _kind: 0.0,
    Family.DECIMAL: lambda kind: cast_literal("0", kind),
    Family.TEXT: lambda _kind: "",
    Family.BINARY: lambda kind: byte_writer(kind)(b""),
    Family.MOMENT: _zero_moment,
    Family.SPAN: lambda kind: render_span(0, fsp_of(kind)),
    Family.JSON: lambda _kind: "null",
    Family.ENUM: lambda kind: enum_name(elems_of(kind), 1),
    Family.SET: lambda _kind: "",
    Family.VECTOR: lambda _kind: "[]",
}


def stored_value(column: ColumnInfo, *, time_zone: str = "UTC", commit_ts: int = 0) -> Value:
    """Return the value that rows written before the column existed hold.

    `time_zone` and `commit_ts` (of the ADD COLUMN) serve DEFAULT CURRENT_TIMESTAMP alone; TiDB takes the moment when
    the statement started, which no message carries, so that value is as exact as the commit is near.
    """
    default = column.origin_default
    if default is None:
        return None if column.nullable else zero_value(column)
    kind = column.type
    if isinstance(default, str) and family_of(kind) is Family.MOMENT and _NOW.fullmatch(default.strip()):
        now = to_datetime(commit_ts).astimezone(zone_of(time_zone))
        clock = WallClock(*now.timetuple()[:3], now.hour, now.minute, now.second, now.microsecond)
        return moment_writer(kind, zone_of(time_zone))(clock)
    return cast_literal(default, kind, time_zone=time_zone)


def cast_literal(literal: str | bytes, kind: ColumnType, *, time_zone: str = "UTC") -> Value:
    """Return a literal (text of a string or number, bytes of x'..' and b'..') as a value of that type."""
    family = family_of(kind)
    if isinstance(literal, bytes) and family in _NUMERIC | _NAMED:
        literal = (
            str(int.from_bytes(literal[-8:], "big")) if family in _NUMERIC else decode_bytes(literal, kind.charset)
        )
    if family in _NUMERIC and isinstance(literal, str):
        literal = _BOOLEAN.get(literal.strip().upper(), literal)
    if family is Family.BIT:
        return bit_writer(kind)(numeric_prefix(text_value(literal)))
    if family is Family.JSON and isinstance(literal, str):
        return render_json(parse_json(literal))
    source = LONGEST_BYTES if isinstance(literal, bytes) else LONGEST_TEXT
    if family is Family.VECTOR:
        return literal
    rule = converter(source, kind, time_zone=time_zone)
    return literal if rule is None else rule(literal)
