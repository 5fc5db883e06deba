"""Values of columns as the text that TiDB prints: DECIMAL, times, JSON and VECTOR, which events carry as text.

    DECIMAL(10,2)     12.50                       as many decimals as the column has, rounded half away from zero
    DATETIME(3)       2024-01-31 01:02:03.450     a TIMESTAMP on the clocks of the zone that is asked for
    TIME(1)           -01:00:00.5
    JSON              {"a": 1}
    VECTOR            [1,2.5,-3]

Source: TiDB pkg/types (String methods); TiCDC's mounter (formatColVal).
"""

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal
from math import inf
from typing import Final

from tidegate.model.errors import EncodeError
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType
from tidegate.mysql.column_value import KvValue
from tidegate.mysql.datum import DecimalDatum, Duration, JsonDatum, Vector
from tidegate.mysql.json.text import render_json
from tidegate.mysql.packed_time import Time, from_utc, render_date, render_duration, render_time

_WIDE: Final = Context(prec=100, rounding=ROUND_HALF_UP)
_SINGLE: Final = struct.Struct("<f")
_SINGLE_DIGITS: Final = 9
"""Nine significant digits name every 32-bit float."""
_DATES: Final = frozenset({MysqlType.DATE, MysqlType.NEWDATE})


def column_text(column_type: ColumnType, value: KvValue, zone: tzinfo = UTC) -> str:
    """Return the text of a DECIMAL, time, JSON or VECTOR; EncodeError for other values."""
    render = _TEXTS.get(type(value))
    if render is None:
        raise EncodeError(f"a {type(value).__name__} is no text")
    return render(column_type, value, zone)


def _time(column_type: ColumnType, value: Time, zone: tzinfo) -> str:
    if column_type.code in _DATES:
        return render_date(value)
    shown = from_utc(value, zone) if column_type.code is MysqlType.TIMESTAMP else value
    return render_time(shown, column_type.decimal)


def _decimal(column_type: ColumnType, value: Decimal, _zone: tzinfo) -> str:
    exponent = value.as_tuple().exponent
    if column_type.decimal >= 0 and isinstance(exponent, int) and -exponent > column_type.decimal:
        value = value.quantize(Decimal(1).scaleb(-column_type.decimal), context=_WIDE)
    return format(value, "f")


def _vector(_type: ColumnType, value: Vector, _zone: tzinfo) -> str:
    return f"[{','.join(_shortest(number) for number in value)}]"


def _shortest(number: float) -> str:
    """The fewest digits that name a 32-bit float, without an exponent."""
    texts = (f"{number:.{digits}g}" for digits in range(1, _SINGLE_DIGITS))
    text = next((text for text in texts if _single(float(text)) == number), f"{number:.{_SINGLE_DIGITS}g}")
    return format(Decimal(text), "f")


def _single(value: float) -> float:
    """The 32-bit float nearest to `value`; infinity beyond them all."""
    try:
        nearest: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
    except OverflowError:
        return inf
    return nearest


_TEXTS: Final[Mapping[type, Callable[..., str]]] = {
    Time: _time,
    Duration: lambda column_type, value, _zone: render_duration(value, column_type.decimal),
    DecimalDatum: lambda column_type, value, zone: _decimal(column_type, value.value, zone),
    Decimal: _decimal,
    JsonDatum: lambda _type, value, _zone: render_json(value.document),
    Vector: _vector,
}
