"""Values of events as values of columns: the way back from column_text.py.

    MySQL                        event                       column
    integers, YEAR, BIT, ..      int                         int or Unsigned
    FLOAT, DOUBLE                float                       float
    strings, binary strings      str or bytes                bytes, UTF-8
    DECIMAL                      "12.50"                     Decimal, in the form of its column when written
    DATE, DATETIME, TIMESTAMP    "2024-01-31 01:02:03.45"    Time; a TIMESTAMP from the clocks of the zone to UTC
    TIME                         "-01:00:00.5"               Duration
    JSON                         '{"a": 1}'                  JsonDatum: integers of 64 bits exact, others doubles
    VECTOR                       "[1,2.5]"                   Vector

A JSON text has no dates and no opaque bytes: what TiDB printed as a string comes back as one.

Source: TiDB pkg/types (ParseTime, ParseDuration, ParseBinaryJSONFromString), for texts as TiDB prints them.
"""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, tzinfo
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Final

from tidegate.model.errors import EncodeError
from tidegate.model.event import Value
from tidegate.model.mysql import INTEGERS, STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.column_value import KvValue
from tidegate.mysql.datum import Duration, JsonDatum, Unsigned, Vector
from tidegate.mysql.json.value import JsonValue
from tidegate.mysql.number import MAX_UINT, MIN_INT
from tidegate.mysql.packed_time import Time, pack_time, to_utc

_MOMENT: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?", re.ASCII)
_SPAN: Final = re.compile(r"(-?)(\d{2,3}):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?", re.ASCII)
_VECTOR: Final = re.compile(r"\[[-+.,\deE ]*\]", re.ASCII)
_ALWAYS_UNSIGNED: Final = frozenset({T.BIT, T.ENUM, T.SET})
_LONGEST_INT: Final = 20
"""Characters of a 64-bit number; longer ones are doubles."""


def parse_value(kind: ColumnType, value: Value, zone: tzinfo = UTC) -> KvValue:
    """Return the column's value for an event's; EncodeError for what the type does not have."""
    if value is None:
        return None
    parse = _PARSERS.get(kind.code)
    if parse is None:
        raise EncodeError(f"type {kind.code.name} has no stored values")
    try:
        return parse(kind, value, zone)
    except (ValueError, TypeError, RecursionError, InvalidOperation) as error:
        raise EncodeError(f"{value!a:.80} is no value of type {kind.code.name}") from error


def _integer(kind: ColumnType, value: int, _zone: tzinfo) -> KvValue:
    unsigned = kind.code in _ALWAYS_UNSIGNED or (kind.unsigned and kind.code in INTEGERS)
    return Unsigned(value) if unsigned else int(value)


def _string(_kind: ColumnType, value: str | bytes, _zone: tzinfo) -> KvValue:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


def _moment(kind: ColumnType, value: str, zone: tzinfo) -> KvValue:
    found = _MOMENT.fullmatch(value)
    if found is None:
        raise ValueError(value)
    parts = [int(part or 0) for part in found.groups()[:6]]
    time = Time._make([*parts, int((found[7] or "").ljust(6, "0"))])
    pack_time(time)
    return to_utc(time, zone) if kind.code is T.TIMESTAMP else time


def _span(_kind: ColumnType, value: str, _zone: tzinfo) -> KvValue:
    found = _SPAN.fullmatch(value)
    if found is None:
        raise ValueError(value)
    hours, minutes, seconds = (int(found[part]) for part in (2, 3, 4))
    micros = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int((found[5] or "").ljust(6, "0"))
    return Duration(-micros * 1000 if found[1] else micros * 1000)


def parse_document(text: str) -> JsonValue:
    """Return the JSON document in `text`; ValueError when it is none."""
    document: JsonValue = json.loads(text, parse_int=_json_int, parse_float=_json_float, parse_constant=_json_float)
    return document


def _json_int(text: str) -> int | float:
    value = int(text) if len(text) <= _LONGEST_INT else MAX_UINT + 1
    return value if MIN_INT <= value <= MAX_UINT else _json_float(text)


def _json_float(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(text)
    return value


def _vector(_kind: ColumnType, value: str, _zone: tzinfo) -> KvValue:
    if _VECTOR.fullmatch(value) is None:
        raise ValueError(value)
    body = value[1:-1].strip()
    return Vector(map(float, body.split(",")) if body else ())


_PARSERS: Final[Mapping[T, Callable[..., KvValue]]] = {
    **dict.fromkeys((*INTEGERS, T.YEAR, *_ALWAYS_UNSIGNED), _integer),
    **dict.fromkeys((T.FLOAT, T.DOUBLE), lambda _kind, value, _zone: float(value)),
    **dict.fromkeys(STRINGS, _string),
    **dict.fromkeys((T.DATE, T.NEWDATE, T.DATETIME, T.TIMESTAMP), _moment),
    T.DECIMAL: lambda _kind, value, _zone: Decimal(value),
    T.TIME: _span,
    T.JSON: lambda _kind, value, _zone: JsonDatum(parse_document(value)),
    T.VECTOR: _vector,
}
