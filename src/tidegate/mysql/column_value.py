"""Values of columns: as bytes of a row, as datums, as the text that TiDB prints, and back from the values of events.

    MySQL                        Python            row v2                        datum                   event
    TINYINT .. BIGINT, YEAR      int               shortest signed of 1 2 4 8    int                     int
    the same UNSIGNED            Unsigned          shortest unsigned             uint                    int
    BIT, ENUM (index), SET (mask) Unsigned         shortest unsigned             uint                    int
    FLOAT, DOUBLE                float             sortable double, big endian   float                   float
    DECIMAL                      DecimalDatum      precision, scale, digits      decimal                 "12.50"
    strings, binary strings      bytes             the bytes                     bytes                   str or bytes
    DATE, DATETIME, TIMESTAMP    Time              packed, shortest unsigned     uint                    text
    TIME                         Duration          ns, shortest signed           duration; row v1: int   "-01:00:00.5"
    JSON                         JsonDatum         binary JSON                   json                    '{"a": 1}'
    VECTOR                       Vector            u32 count, f32 each           vector                  "[1,2.5]"

Shortest numbers are little endian, and zero takes a byte.  A TIMESTAMP is in UTC; as text it is on the clocks of the
`zone` argument.  A `Decimal` is accepted for a DecimalDatum: it takes the precision and scale of its column.

`column_text` prints DECIMAL, times, JSON and VECTOR, which events carry as text:

    DECIMAL(10,2)     12.50                       as many decimals as the column has, rounded half away from zero
    DATETIME(3)       2024-01-31 01:02:03.450
    TIME(1)           -01:00:00.5
    VECTOR            [1,2.5,-3]

`parse_value` is the inverse.  Integers of 64 bits in JSON stay exact, other numbers become doubles.  A JSON text has
no dates and no opaque bytes: what TiDB printed as a string comes back as one.

Source: TiDB pkg/util/rowcodec (encoder.go, decoder.go), pkg/tablecodec (flatten, unflatten), pkg/types (String methods,
ParseTime, ParseDuration, ParseBinaryJSONFromString); TiCDC's mounter (formatColVal).
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from math import isfinite
from typing import Any, Final, TypeAlias

from tidegate.model.errors import DecodeError, EncodeError, redacted_value
from tidegate.model.event import Value
from tidegate.model.mysql import DATES, TYPES, Family, MysqlType
from tidegate.model.table import ColumnType
from tidegate.mysql.conversion import float_text
from tidegate.mysql.datum import (
    Datum,
    DecimalDatum,
    Duration,
    JsonDatum,
    Unsigned,
    Vector,
    decode_vector,
    encode_vector,
    read_decimal_datum,
)
from tidegate.mysql.encoding import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    DecimalForm,
    at_end,
    decode_float,
    encode_float,
    form_of,
    write_decimal,
)
from tidegate.mysql.json_value import JsonValue, decode_json, encode_json, render_json
from tidegate.mysql.packed_time import (
    Time,
    from_utc,
    pack_time,
    render_date,
    render_duration,
    render_time,
    to_utc,
    unpack_time,
)

CODEC: Final = "column value"
KvValue: TypeAlias = Datum | Time | Decimal
"""The value of a column; see the table above."""
_SIZES: Final = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Conversions of the values of one kind; `own` are their Python types, `parse` reads those of events."""

    own: tuple[type, ...]
    read: Callable[[bytes], Any]
    write: Callable[[Any, ColumnType], bytes]
    parse: Callable[[ColumnType, Any, tzinfo], Any]
    datum: Callable[[Any, ColumnType], Datum] = lambda value, _type: value
    undatum: Callable[[Any], Any] = lambda datum: datum
    datums: tuple[type, ...] = ()


def read_value(column_type: ColumnType, data: bytes) -> KvValue:
    """Return the value of a column from its bytes in a row of version 2; DecodeError when they do not fit the type."""
    value: KvValue = _kind(column_type, DecodeError).read(data)
    return value


def write_value(column_type: ColumnType, value: KvValue) -> bytes:
    """Return the bytes of a value in a row of version 2; EncodeError when it does not fit the type."""
    kind = _kind(column_type, EncodeError)
    return kind.write(_own(kind, value, column_type), column_type)


def to_datum(column_type: ColumnType, value: KvValue) -> Datum:
    """Return the datum of a value, for keys; strings without regard to their collation."""
    if value is None:
        return None
    kind = _kind(column_type, EncodeError)
    return kind.datum(_own(kind, value, column_type), column_type)


def old_row_datum(column_type: ColumnType, value: KvValue) -> Datum:
    """Return the datum of a value in a row of version 1, where a duration is a plain number."""
    datum = to_datum(column_type, value)
    return int(datum) if isinstance(datum, Duration) else datum


def from_datum(column_type: ColumnType, datum: Datum) -> KvValue:
    """Return the value of a datum; DecodeError when it does not fit the type."""
    if datum is None:
        return None
    kind = _kind(column_type, DecodeError)
    if type(datum) not in (kind.datums or kind.own):
        raise DecodeError(f"a {type(datum).__name__} in a column of type {column_type.code.name}", CODEC, 0)
    value: KvValue = kind.undatum(datum)
    return value


def _own(kind: _Kind, value: KvValue, column_type: ColumnType) -> KvValue:
    if type(value) not in kind.own:
        raise EncodeError(f"a {type(value).__name__} in a column of type {column_type.code.name}")
    return value


def _read_int(data: bytes) -> int:
    if len(data) not in _SIZES:
        raise DecodeError(f"a number of {len(data)} bytes", CODEC, 0)
    return int.from_bytes(data, "little", signed=True)


def read_uint(data: bytes) -> Unsigned:
    """Return an unsigned number of 1, 2, 4 or 8 bytes."""
    if len(data) not in _SIZES:
        raise DecodeError(f"a number of {len(data)} bytes", CODEC, 0)
    return Unsigned(int.from_bytes(data, "little"))


def write_int(value: int) -> bytes:
    """Return the shortest form of a signed number."""
    if not MIN_INT <= value <= MAX_INT:
        raise EncodeError(f"{value} is no signed 64-bit number")
    size = next(size for size in _SIZES if -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1)
    return value.to_bytes(size, "little", signed=True)


def write_uint(value: int) -> bytes:
    """Return the shortest form of an unsigned number."""
    if not 0 <= value <= MAX_UINT:
        raise EncodeError(f"{value} is no unsigned 64-bit number")
    return value.to_bytes(next(size for size in _SIZES if value < 1 << 8 * size), "little")


def _whole(read: Callable[[bytes, int], tuple[Any, int]]) -> Callable[[bytes], Any]:
    """Return a reader that requires the value to take all the bytes."""

    def read_all(data: bytes) -> object:
        value, end = read(data, 0)
        at_end(data, end, CODEC)
        return value

    return read_all


def _decimal_datum(value: Decimal | DecimalDatum, column_type: ColumnType) -> DecimalDatum:
    if isinstance(value, DecimalDatum):
        return value
    own = form_of(value)
    precision = column_type.flen if column_type.flen > 0 else own.precision
    return DecimalDatum(value, DecimalForm(precision, column_type.decimal if column_type.decimal >= 0 else own.scale))


def _write_decimal(value: Decimal | DecimalDatum, column_type: ColumnType) -> bytes:
    number, form = _decimal_datum(value, column_type)
    return write_decimal(number, form or form_of(number))


def _kind(column_type: ColumnType, error: type[DecodeError | EncodeError]) -> _Kind:
    kind = _KINDS.get((column_type.code, column_type.unsigned))
    if kind is None:
        what = f"type {column_type.code.name} has no stored values"
        raise DecodeError(what, CODEC, 0) if error is DecodeError else EncodeError(what)
    return kind


_WIDE: Final = Context(prec=100, rounding=ROUND_HALF_UP)


def column_text(column_type: ColumnType, value: KvValue, zone: tzinfo = UTC) -> str:
    """Return the text of a DECIMAL, time, JSON or VECTOR; EncodeError for other values."""
    render = _TEXTS.get(type(value))
    if render is None:
        raise EncodeError(f"a {type(value).__name__} is no text")
    return render(column_type, value, zone)


def _time(column_type: ColumnType, value: Time, zone: tzinfo) -> str:
    if column_type.code in DATES:
        return render_date(value)
    shown = from_utc(value, zone) if column_type.code is MysqlType.TIMESTAMP else value
    return render_time(shown, column_type.decimal)


def _decimal(column_type: ColumnType, value: Decimal, _zone: tzinfo) -> str:
    exponent = value.as_tuple().exponent
    if column_type.decimal >= 0 and isinstance(exponent, int) and -exponent > column_type.decimal:
        value = value.quantize(Decimal(1).scaleb(-column_type.decimal), context=_WIDE)
    return format(value, "f")


def _vector(_type: ColumnType, value: Vector, _zone: tzinfo) -> str:
    return f"[{','.join(float_text(number, single=True) for number in value)}]"


_TEXTS: Final[Mapping[type, Callable[..., str]]] = {
    Time: _time,
    Duration: lambda column_type, value, _zone: render_duration(value, column_type.decimal),
    DecimalDatum: lambda column_type, value, zone: _decimal(column_type, value.value, zone),
    Decimal: _decimal,
    JsonDatum: lambda _type, value, _zone: render_json(value.document),
    Vector: _vector,
}


_MOMENT: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?", re.ASCII)
_SPAN: Final = re.compile(r"(-?)(\d{2,3}):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?", re.ASCII)
_VECTOR_TEXT: Final = re.compile(r"\[[-+.,\deE ]*\]", re.ASCII)
_LONGEST_INT: Final = 20
"""Characters of a 64-bit number; longer ones are doubles."""


def parse_value(kind: ColumnType, value: Value, zone: tzinfo = UTC) -> KvValue:
    """Return the column's value of an event's value; EncodeError when it does not fit the type."""
    if value is None:
        return None
    parse = _kind(kind, EncodeError).parse
    try:
        parsed: KvValue = parse(kind, value, zone)
    except (ValueError, TypeError, RecursionError, InvalidOperation) as error:
        raise EncodeError(f"{redacted_value(value, 80)} is no value of type {kind.code.name}") from error
    return parsed


def _parse_moment(kind: ColumnType, value: str, zone: tzinfo) -> KvValue:
    match = _MOMENT.fullmatch(value)
    if match is None:
        raise ValueError(value)
    parts = [int(part or 0) for part in match.groups()[:6]]
    time = Time._make([*parts, int((match[7] or "").ljust(6, "0"))])
    pack_time(time)
    return to_utc(time, zone) if kind.code is MysqlType.TIMESTAMP else time


def _parse_span(_kind: ColumnType, value: str, _zone: tzinfo) -> KvValue:
    match = _SPAN.fullmatch(value)
    if match is None:
        raise ValueError(value)
    hours, minutes, seconds = (int(match[part]) for part in (2, 3, 4))
    micros = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int((match[5] or "").ljust(6, "0"))
    return Duration(-micros * 1000 if match[1] else micros * 1000)


def parse_document(text: str) -> JsonValue:
    """Return the JSON document in `text`; ValueError if it is invalid."""
    document: JsonValue = json.loads(text, parse_int=_whole_number, parse_float=_double, parse_constant=_double)
    return document


def _whole_number(text: str) -> int | float:
    value = int(text) if len(text) <= _LONGEST_INT else MAX_UINT + 1
    if MIN_INT <= value <= MAX_INT:
        return value
    return Unsigned(value) if 0 <= value <= MAX_UINT else _double(text)


def _double(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(text)
    return value


def _parse_vector(_kind: ColumnType, value: str, _zone: tzinfo) -> KvValue:
    if _VECTOR_TEXT.fullmatch(value) is None:
        raise ValueError(value)
    body = value[1:-1].strip()
    return Vector(map(float, body.split(",")) if body else ())


_INT: Final = _Kind((int,), _read_int, lambda value, _type: write_int(value), lambda _type, value, _zone: int(value))
_UINT: Final = _Kind(
    (Unsigned, int),
    read_uint,
    lambda value, _type: write_uint(value),
    lambda _type, value, _zone: Unsigned(value),
    lambda value, _type: Unsigned(value),
    datums=(Unsigned,),
)
_FAMILIES: Final[Mapping[Family, _Kind]] = {
    **dict.fromkeys((Family.INT, Family.YEAR), _INT),
    **dict.fromkeys((Family.BIT, Family.ENUM, Family.SET), _UINT),
    Family.FLOAT: _Kind(
        (float,),
        _whole(decode_float),
        lambda value, _type: encode_float(value),
        lambda _type, value, _zone: float(value),
    ),
    Family.TEXT: _Kind(
        (bytes,),
        lambda data: data,
        lambda value, _type: value,
        lambda _type, value, _zone: value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape"),
    ),
    Family.DECIMAL: _Kind(
        (DecimalDatum, Decimal),
        _whole(read_decimal_datum),
        _write_decimal,
        lambda _type, value, _zone: Decimal(value),
        _decimal_datum,
        datums=(DecimalDatum,),
    ),
    Family.MOMENT: _Kind(
        (Time,),
        lambda data: unpack_time(read_uint(data)),
        lambda value, _type: write_uint(pack_time(value)),
        _parse_moment,
        lambda value, _type: Unsigned(pack_time(value)),
        unpack_time,
        (Unsigned,),
    ),
    Family.SPAN: _Kind(
        (Duration, int),
        lambda data: Duration(_read_int(data)),
        lambda value, _type: write_int(value),
        _parse_span,
        lambda value, _type: Duration(value),
        Duration,
    ),
    Family.JSON: _Kind(
        (JsonDatum,),
        lambda data: JsonDatum(_whole(decode_json)(data)),
        lambda value, _type: encode_json(value.document),
        lambda _type, value, _zone: JsonDatum(parse_document(value)),
    ),
    Family.VECTOR: _Kind((Vector,), _whole(decode_vector), lambda value, _type: encode_vector(value), _parse_vector),
}
_KINDS: Final = {
    (code, unsigned): _UINT if unsigned and record.family is Family.INT else _FAMILIES[record.family]
    for code, record in TYPES.items()
    if record.family in _FAMILIES
    for unsigned in (False, True)
}
