"""Values of columns, as bytes of a row and as datums: one row of a table for each MySQL type.

    MySQL                        Python            row v2                        datum
    TINYINT .. BIGINT, YEAR      int               shortest signed of 1 2 4 8    int
    the same UNSIGNED            Unsigned          shortest unsigned             uint
    BIT, ENUM (index), SET (mask) Unsigned         shortest unsigned             uint
    FLOAT, DOUBLE                float             sortable double, big endian   float
    DECIMAL                      DecimalDatum      precision, scale, digits      decimal
    strings, binary strings      bytes             the bytes                     bytes
    DATE, DATETIME, TIMESTAMP    Time              packed, shortest unsigned     uint
    TIME                         Duration          ns, shortest signed           duration; row v1: int
    JSON                         JsonDatum         binary JSON                   json
    VECTOR                       Vector            u32 count, f32 each           vector

Shortest numbers are little endian, and zero takes a byte.  A TIMESTAMP is in UTC here.  A `Decimal` may be given for a
DecimalDatum: it takes the precision and scale of its column.

Source: TiDB pkg/util/rowcodec (encoder.go, decoder.go), pkg/tablecodec (flatten, unflatten).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

from tidegate.model.errors import DecodeError, EncodeError
from tidegate.model.mysql import STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.cursor import at_end
from tidegate.mysql.datum import (
    Datum,
    DecimalDatum,
    Duration,
    JsonDatum,
    Unsigned,
    Vector,
    decode_vector,
    encode_vector,
)
from tidegate.mysql.decimal_bin import DecimalForm, form_of, read_decimal, write_decimal
from tidegate.mysql.json.binary import decode_json, encode_json
from tidegate.mysql.number import MAX_INT, MAX_UINT, MIN_INT, decode_float, encode_float
from tidegate.mysql.packed_time import Time, pack_time, unpack_time

CODEC: Final = "column value"
KvValue: TypeAlias = Datum | Time | Decimal
"""What a column holds; see the table above."""
_SIZES: Final = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class _Kind:
    """How values of one kind become bytes and datums; `own` are the Python types that it takes."""

    own: tuple[type, ...]
    read: Callable[[bytes], Any]
    write: Callable[[Any, ColumnType], bytes]
    datum: Callable[[Any, ColumnType], Datum] = lambda value, _type: value
    undatum: Callable[[Any], Any] = lambda datum: datum
    datums: tuple[type, ...] = ()


def read_value(column_type: ColumnType, data: bytes) -> KvValue:
    """Return the value in these bytes of a row of version 2; DecodeError when the type has none like it."""
    value: KvValue = _kind(column_type, DecodeError).read(data)
    return value


def write_value(column_type: ColumnType, value: KvValue) -> bytes:
    """Return the bytes of a value in a row of version 2; EncodeError when the type has none like it."""
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
    """Return the value that a datum stands for; DecodeError when the type has none like it."""
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
    """A reader of a value that takes all the bytes."""

    def read_all(data: bytes) -> object:
        value, end = read(data, 0)
        at_end(data, end, CODEC)
        return value

    return read_all


def _decimal_at(data: bytes, at: int) -> tuple[DecimalDatum, int]:
    value, form, end = read_decimal(data, at)
    return DecimalDatum(value, form), end


def _decimal_datum(value: Decimal | DecimalDatum, column_type: ColumnType) -> DecimalDatum:
    if isinstance(value, DecimalDatum):
        return value
    own = form_of(value)
    precision = column_type.flen if column_type.flen > 0 else own.precision
    return DecimalDatum(value, DecimalForm(precision, column_type.decimal if column_type.decimal >= 0 else own.scale))


def _write_decimal(value: Decimal | DecimalDatum, column_type: ColumnType) -> bytes:
    number, form = _decimal_datum(value, column_type)
    return write_decimal(number, form or form_of(number))


_INT: Final = _Kind((int,), _read_int, lambda value, _type: write_int(value))
_UINT: Final = _Kind(
    (Unsigned, int),
    read_uint,
    lambda value, _type: write_uint(value),
    lambda value, _type: Unsigned(value),
    datums=(Unsigned,),
)
_FLOAT: Final = _Kind((float,), _whole(decode_float), lambda value, _type: encode_float(value))
_BYTES: Final = _Kind((bytes,), lambda data: data, lambda value, _type: value)
_DECIMAL: Final = _Kind(
    (DecimalDatum, Decimal), _whole(_decimal_at), _write_decimal, _decimal_datum, datums=(DecimalDatum,)
)
_TIME: Final = _Kind(
    (Time,),
    lambda data: unpack_time(read_uint(data)),
    lambda value, _type: write_uint(pack_time(value)),
    lambda value, _type: Unsigned(pack_time(value)),
    unpack_time,
    (Unsigned,),
)
_DURATION: Final = _Kind(
    (Duration, int),
    lambda data: Duration(_read_int(data)),
    lambda value, _type: write_int(value),
    lambda value, _type: Duration(value),
    Duration,
)
_JSON: Final = _Kind(
    (JsonDatum,),
    lambda data: JsonDatum(_whole(decode_json)(data)),
    lambda value, _type: encode_json(value.document),
)
_VECTOR: Final = _Kind((Vector,), _whole(decode_vector), lambda value, _type: encode_vector(value))
_BY_TYPE: Final[Mapping[T, _Kind]] = {
    **dict.fromkeys((T.TINY, T.SHORT, T.INT24, T.LONG, T.LONGLONG, T.YEAR), _INT),
    **dict.fromkeys((T.BIT, T.ENUM, T.SET), _UINT),
    **dict.fromkeys((T.FLOAT, T.DOUBLE), _FLOAT),
    **dict.fromkeys(STRINGS, _BYTES),
    **dict.fromkeys((T.DATE, T.NEWDATE, T.DATETIME, T.TIMESTAMP), _TIME),
    T.DECIMAL: _DECIMAL,
    T.TIME: _DURATION,
    T.JSON: _JSON,
    T.VECTOR: _VECTOR,
}


_KINDS: Final = {
    (int(code), unsigned): _UINT if kind is _INT and unsigned and code is not T.YEAR else kind
    for code, kind in _BY_TYPE.items()
    for unsigned in (False, True)
}


def _kind(column_type: ColumnType, error: type[DecodeError | EncodeError]) -> _Kind:
    kind = _KINDS.get((column_type.code.value, column_type.unsigned))
    if kind is None:
        what = f"type {column_type.code.name} has no stored values"
        raise DecodeError(what, CODEC, 0) if error is DecodeError else EncodeError(what)
    return kind
