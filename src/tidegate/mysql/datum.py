"""Datums: self-describing values, a flag byte and the value, in one of two forms.

    flag                     key form (sorts as the values do)      value form (short)
    00 NULL                  nothing                                nothing
    01 bytes                 memcomparable groups                   02: varint length, bytes
    03 int                   8 bytes                                08: varint
    04 uint                  8 bytes                                09: uvarint; times 04, rows of version 1 apart
    05 float                 8 bytes                                the same
    06 decimal               precision, scale, digits               the same
    07 duration              int of nanoseconds                     the same (rows of version 1 hold it as 08)
    0a JSON                  binary JSON, which has no order        the same
    14 vector                u32 count, f32 each; little endian     the same
    fa beyond every value    nothing                                the same

    "abc", key     01 61 62 63 00 00 00 00 00 fa
    "abc", value   02 06 61 62 63

The least value that is not NULL is the bare flag 01.  The reader accepts any flag in either form, as TiDB's does.

Source: TiDB pkg/util/codec/codec.go (encode, DecodeOne).
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, Final, NamedTuple, TypeAlias

from tidegate.model.errors import DecodeError, EncodeError
from tidegate.mysql.encoding import (
    DecimalForm,
    decode_bytes,
    decode_compact,
    decode_float,
    decode_int,
    decode_uint,
    decode_uvarint,
    decode_varint,
    encode_bytes,
    encode_compact,
    encode_float,
    encode_int,
    encode_uint,
    encode_uvarint,
    encode_varint,
    form_of,
    read_decimal,
    take,
    take_byte,
    write_decimal,
)
from tidegate.mysql.json_value import JsonValue, Unsigned, decode_json, encode_json

__all__ = [
    "Bound",
    "Datum",
    "DecimalDatum",
    "Duration",
    "JsonDatum",
    "PackedTime",
    "Unsigned",
    "Vector",
    "decode_datum",
    "decode_vector",
    "encode_key",
    "encode_value",
    "encode_vector",
    "read_decimal_datum",
]

CODEC: Final = "datum"
NIL, BYTES, COMPACT, INT, UINT, FLOAT, DECIMAL, DURATION = range(8)
VARINT, UVARINT, JSON, VECTOR, MAX = 0x08, 0x09, 0x0A, 0x14, 0xFA
MAX_DIMENSIONS: Final = 16_383


class Bound(Enum):
    """The ends of key ranges."""

    MIN_NOT_NULL = BYTES
    MAX = MAX


class Duration(int):
    """A span of time in nanoseconds."""

    __slots__ = ()


class PackedTime(int):
    """A time as its packed number; it is a fixed uint in both forms, and is read back as `Unsigned`."""

    __slots__ = ()


class DecimalDatum(NamedTuple):
    """A decimal with its precision and scale; None derives them from the number."""

    value: Decimal
    form: DecimalForm | None = None


class JsonDatum(NamedTuple):
    """A JSON document, wrapped to be distinguished from plain values."""

    document: JsonValue


class Vector(tuple[float, ...]):
    """The 32-bit floats of a VECTOR."""

    __slots__ = ()


Datum: TypeAlias = int | float | bytes | DecimalDatum | JsonDatum | Vector | Bound | None
"""int is signed unless it is `Unsigned`; `Duration` is a kind of its own."""


def encode_key(datums: Iterable[Datum]) -> bytes:
    """Return the form that sorts as the values do, one datum after the other."""
    return b"".join(_lookup(_KEY_FORMS, datum)(datum) for datum in datums)


def encode_value(datums: Iterable[Datum]) -> bytes:
    """Return the short form, one datum after the other."""
    return b"".join(_lookup(_VALUE_FORMS, datum)(datum) for datum in datums)


def decode_datum(buf: bytes, offset: int = 0) -> tuple[Datum, int]:
    """Return a datum in either form and the offset after it; a decimal comes with its form."""
    flag = take_byte(buf, offset, CODEC)
    read = _READERS.get(flag)
    if read is None:
        raise DecodeError(f"flag {flag:#04x} is none of a value", CODEC, offset)
    return read(buf, offset + 1)


def encode_vector(vector: Iterable[float]) -> bytes:
    """Return a vector as its count and 32-bit floats, little endian."""
    floats = tuple(vector)
    try:
        return struct.pack(f"<I{len(floats)}f", len(floats), *floats)
    except OverflowError as error:
        raise EncodeError("a VECTOR holds 32-bit floats") from error


def decode_vector(buf: bytes, offset: int = 0) -> tuple[Vector, int]:
    """Return a vector and the offset after it."""
    count = int.from_bytes(take(buf, offset, 4, CODEC), "little")
    if count > MAX_DIMENSIONS:
        raise DecodeError(f"a VECTOR of {count} dimensions", CODEC, offset)
    floats = struct.unpack(f"<{count}f", take(buf, offset + 4, 4 * count, CODEC))
    if not all(map(isfinite, floats)):
        raise DecodeError("a VECTOR with infinities", CODEC, offset)
    return Vector(floats), offset + 4 + 4 * count


def _lookup(forms: "Mapping[type, Form]", datum: Datum) -> "Form":
    form = forms.get(type(datum))
    if form is None:
        raise EncodeError(f"no key or row holds a {type(datum).__name__}")
    return form


def _decimal(datum: DecimalDatum) -> bytes:
    return bytes([DECIMAL]) + write_decimal(datum.value, datum.form or form_of(datum.value))


def read_decimal_datum(buf: bytes, offset: int) -> tuple[DecimalDatum, int]:
    """Return a number with its precision and scale, and the offset after it."""
    value, form, end = read_decimal(buf, offset)
    return DecimalDatum(value, form), end


def _as(kind: Callable[[Any], Datum], read: Callable[[bytes, int], tuple[Any, int]]) -> "Read":
    def typed(buf: bytes, offset: int) -> tuple[Datum, int]:
        value, end = read(buf, offset)
        return kind(value), end

    return typed


Form = Callable[..., bytes]
Read = Callable[[bytes, int], tuple[Datum, int]]
_SAME: Final[Mapping[type, Form]] = {
    type(None): lambda _datum: b"\x00",
    float: lambda datum: b"\x05" + encode_float(datum),
    DecimalDatum: _decimal,
    Duration: lambda datum: b"\x07" + encode_int(datum),
    PackedTime: lambda datum: b"\x04" + encode_uint(datum),
    JsonDatum: lambda datum: b"\x0a" + encode_json(datum.document),
    Vector: lambda datum: b"\x14" + encode_vector(datum),
    Bound: lambda datum: bytes([datum.value]),
}
_KEY_FORMS: Final[Mapping[type, Form]] = {
    **_SAME,
    bytes: lambda datum: b"\x01" + encode_bytes(datum),
    int: lambda datum: b"\x03" + encode_int(datum),
    Unsigned: lambda datum: b"\x04" + encode_uint(datum),
}
_VALUE_FORMS: Final[Mapping[type, Form]] = {
    **_SAME,
    bytes: lambda datum: b"\x02" + encode_compact(datum),
    int: lambda datum: b"\x08" + encode_varint(datum),
    Unsigned: lambda datum: b"\x09" + encode_uvarint(datum),
}
_READERS: Final[Mapping[int, Read]] = {
    NIL: lambda _buf, offset: (None, offset),
    BYTES: decode_bytes,
    COMPACT: decode_compact,
    INT: decode_int,
    UINT: _as(Unsigned, decode_uint),
    FLOAT: decode_float,
    DECIMAL: read_decimal_datum,
    DURATION: _as(Duration, decode_int),
    VARINT: decode_varint,
    UVARINT: _as(Unsigned, decode_uvarint),
    JSON: _as(JsonDatum, decode_json),
    VECTOR: decode_vector,
    MAX: lambda _buf, offset: (Bound.MAX, offset),
}
