"""Values among texts, and as a client sees them.

    text_of     what CONCAT, LIKE and comparisons with text take: str, or bytes of binary strings
    render      what the text protocol sends

    1.10 -> "1.10"    1e20 -> "100000000000000000000", to a client "1e20"    DATE "2024-01-31"    TIME(1) "10:20:30.5"
    INT(4) ZEROFILL 7 -> "0007"    JSON {"a": 1}    VECTOR [1,2.5]    ENUM and SET their names

Source: TiDB's types package (ToString) and server (dumpTextRow: exponents from 1e15 up and below 1e-15).
"""

from decimal import Decimal
from typing import Final, TypeAlias

from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.column_text import column_text
from tidegate.mysql.convert.number import float_text, shortest_single
from tidegate.mysql.convert.text import encode_text
from tidegate.mysql.json.text import render_json
from tidegate.mysql.packed_time import render_date, render_duration, render_time
from tidegate.mysql.value.kinds import Duration, JsonDatum, SqlValue, Time, Vector

Text: TypeAlias = str | bytes
_DATES: Final = frozenset({T.DATE, T.NEWDATE})
_VECTOR: Final = ColumnType(T.VECTOR)


def text_of(value: SqlValue, kind: ColumnType) -> Text | None:
    """`value` among texts."""
    if value is None or isinstance(value, str | bytes):
        return value
    match value:
        case Time():
            return render_date(value) if kind.code in _DATES else render_time(value, kind.decimal)
        case Duration():
            return render_duration(value, kind.decimal)
        case int():
            return _padded(value, kind)
        case float():
            return float_text(value, single=kind.code is T.FLOAT)
        case Decimal():
            return format(value, "f")
        case JsonDatum():
            return render_json(value.document)
        case Vector():
            return column_text(_VECTOR, value)
    raise AssertionError(value)


def _padded(value: int, kind: ColumnType) -> str:
    text = str(int(value))
    if kind.code is T.YEAR:
        return text.rjust(4, "0")
    return text.rjust(kind.flen, "0") if kind.zerofill and kind.flen > 0 else text


def string_of(value: SqlValue, kind: ColumnType) -> str | None:
    """Return a value as text, bytes as characters; None for NULL."""
    text = text_of(value, kind)
    return text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text


def octets(value: SqlValue, kind: ColumnType) -> bytes | None:
    """Return the bytes of a text in its character set."""
    text = text_of(value, kind)
    return encode_text(text, kind.charset) if isinstance(text, str) else text


def same_kind(first: Text, second: Text) -> tuple[Text, Text]:
    """Return both as bytes if one is."""
    if isinstance(first, bytes) is isinstance(second, bytes):
        return first, second
    return _bytes(first), _bytes(second)


def _bytes(text: Text) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def render(value: SqlValue, kind: ColumnType) -> Text | None:
    """Return what a client is sent; None for NULL."""
    if isinstance(value, float):
        return _shown(value, single=kind.code is T.FLOAT)
    return text_of(value, kind)


def _shown(value: float, *, single: bool) -> str:
    digits = shortest_single(value) if single else repr(value)
    if value == 0 or 1e-15 <= abs(value) < 1e15:
        return float_text(value, single=single)
    sign, numerals, exponent = Decimal(digits).as_tuple()
    assert isinstance(exponent, int), value
    kept = "".join(map(str, numerals)).rstrip("0")
    mantissa = f"{kept[0]}.{kept[1:]}" if kept[1:] else kept
    return f"{'-' if sign else ''}{mantissa}e{len(numerals) + exponent - 1}"
