"""Encodings of numbers, byte strings and DECIMAL whose order as bytes is the order of the values, and Go's short forms.

A decoder has the form `decode_x(buf, at) -> (value, the offset after it)`.  Only `take` checks lengths: it returns
buf[at : at + size], or raises an error with the offset from the start of `buf`.  `codec` names the layout in errors.

    int     8 bytes, big endian, sign bit flipped         -1 -> 7f ff ff ff ff ff ff ff     0 -> 80 00 ..
    uint    8 bytes, big endian                            1 -> 00 .. 01
    float   the IEEE 754 bits; sign bit set when x >= 0, else all bits inverted            1.5 -> bf f8 00 ..
    desc    the same, every byte inverted: the order turned round
    uvarint 7 bits a byte, lowest first, high bit = more follow; at most 10 bytes          300 -> ac 02
    varint  uvarint of the zigzag: 0, -1, 1, -2 .. become 0, 1, 2, 3 ..                     -1 -> 01

-0.0 is written as 0.0, as TiDB does.  A NaN with a set sign bit would come back as another NaN; TiDB stores none.

Byte strings keep their order even with something behind them (memcomparable):

    "12345678" + "9"      31 32 33 34 35 36 37 38 | ff    39 00 00 00 00 00 00 00 | f8
                          8 bytes of data           mark  1 byte, 7 of padding      ff - 7

    marker   ff: the group is full and another one follows;  ff - n: the last n bytes of the group are padding
    length   (n // 8 + 1) * 9: a string of 8k bytes ends with a group that is all padding (marker f7)
    compact  for values that nobody compares: a varint length and the bytes

A decoder refuses a marker below f7 and padding that is not zero, so that a string has one form only.

DECIMAL takes nine digits in four bytes, the sign in the first bit:

    1234567890.1234 as (14, 4)    1       234567890      1234
                                  81      0d fb 38 d2    04 d2
                                  1 digit 9 digits       4 digits

    digits of a part    leading ones of the integer part, nines; nines of the fraction, trailing ones
    bytes of n digits   0:0  1,2:1  3,4:2  5,6:3  7,8,9:4
    sign                negative: all bytes inverted; then the first bit of the whole is flipped

The scale is part of the value: (10, 2) gives Decimal("12.50").  Minus zero is written as zero.  A stand-alone decimal
has two bytes in front: precision and scale.

Source: TiDB pkg/util/codec (number.go, float.go, bytes.go), pkg/types/mydecimal.go (WriteBin, FromBin); Go
encoding/binary.
"""

import struct
from decimal import Decimal
from typing import Final, NamedTuple

from tidegate.model.errors import DecodeError, EncodeError


def take(buf: bytes, offset: int, size: int, codec: str) -> bytes:
    """Return the `size` bytes at `offset`; DecodeError when they are not all there."""
    end = offset + size
    if size < 0 or end > len(buf):
        raise DecodeError(f"{size} bytes wanted and {max(len(buf) - offset, 0)} left", codec, offset)
    return buf[offset:end]


def take_byte(buf: bytes, offset: int, codec: str) -> int:
    """Return the byte at `offset` as a number; DecodeError at the end."""
    if offset >= len(buf):
        raise DecodeError("1 byte wanted and 0 left", codec, offset)
    return buf[offset]


def at_end(buf: bytes, offset: int, codec: str) -> None:
    """Raise DecodeError when bytes follow `offset`."""
    if offset != len(buf):
        raise DecodeError(f"{len(buf) - offset} bytes follow the last value", codec, offset)


CODEC: Final = "number"
MIN_INT: Final = -(1 << 63)
MAX_INT: Final = (1 << 63) - 1
MAX_UINT: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63
_VARINT_BYTES: Final = 10
"""7 bits in each of 10 bytes hold 64."""
_DOUBLE: Final = struct.Struct(">d")
_INVERTED: Final = bytes(0xFF - byte for byte in range(256))


def invert(data: bytes) -> bytes:
    """Return the bytes with every bit inverted: the ascending form of a value becomes the descending one, and back."""
    return data.translate(_INVERTED)


def encode_int(value: int) -> bytes:
    """Return 8 bytes that sort as signed numbers do; EncodeError beyond 64 bits."""
    if not MIN_INT <= value <= MAX_INT:
        raise EncodeError(f"{value} is no signed 64-bit number")
    return (value + _SIGN).to_bytes(8, "big")


def decode_int(buf: bytes, offset: int = 0) -> tuple[int, int]:
    """Return a signed number of 8 bytes and the offset after it."""
    return int.from_bytes(take(buf, offset, 8, CODEC), "big") - _SIGN, offset + 8


def encode_uint(value: int) -> bytes:
    """Return 8 bytes big endian; EncodeError beyond 64 bits."""
    if not 0 <= value <= MAX_UINT:
        raise EncodeError(f"{value} is no unsigned 64-bit number")
    return value.to_bytes(8, "big")


def decode_uint(buf: bytes, offset: int = 0) -> tuple[int, int]:
    """Return an unsigned number of 8 bytes and the offset after it."""
    return int.from_bytes(take(buf, offset, 8, CODEC), "big"), offset + 8


def encode_float(value: float) -> bytes:
    """Return 8 bytes that sort as doubles do."""
    bits = int.from_bytes(_DOUBLE.pack(0.0 if value == 0 else value), "big")
    bits = MAX_UINT - bits if bits & _SIGN else bits | _SIGN
    return bits.to_bytes(8, "big")


def decode_float(buf: bytes, offset: int = 0) -> tuple[float, int]:
    """Return a double and the offset after it."""
    bits = int.from_bytes(take(buf, offset, 8, CODEC), "big")
    bits = bits - _SIGN if bits & _SIGN else MAX_UINT - bits
    value: float = _DOUBLE.unpack(bits.to_bytes(8, "big"))[0]
    return value, offset + 8


def encode_uvarint(value: int) -> bytes:
    """Return an unsigned varint of 1 to 10 bytes; EncodeError beyond 64 bits."""
    if not 0 <= value <= MAX_UINT:
        raise EncodeError(f"{value} is no unsigned 64-bit number")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_uvarint(buf: bytes, offset: int = 0) -> tuple[int, int]:
    """Return an unsigned number and the offset after it; DecodeError after 10 bytes or beyond 64 bits."""
    value = 0
    for index in range(_VARINT_BYTES):
        byte = take_byte(buf, offset + index, CODEC)
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if value > MAX_UINT:
                break
            return value, offset + index + 1
    raise DecodeError("a varint of more than 64 bits", CODEC, offset)


def encode_varint(value: int) -> bytes:
    """Return the zigzag form; EncodeError beyond 64 bits."""
    if not MIN_INT <= value <= MAX_INT:
        raise EncodeError(f"{value} is no signed 64-bit number")
    return encode_uvarint(value << 1 if value >= 0 else ~(value << 1))


def decode_varint(buf: bytes, offset: int = 0) -> tuple[int, int]:
    """Return a signed number in zigzag form and the offset after it."""
    zigzag, end = decode_uvarint(buf, offset)
    return zigzag >> 1 ^ -(zigzag & 1), end


_MEMCOMPARABLE_CODEC: Final = "memcomparable"
_GROUP: Final = 8


def encode_bytes(data: bytes) -> bytes:
    """Return `data` in groups of eight bytes, each with its marker."""
    whole, rest = divmod(len(data), _GROUP)
    groups = [data[start : start + _GROUP] + b"\xff" for start in range(0, whole * _GROUP, _GROUP)]
    padding = _GROUP - rest
    return b"".join((*groups, data[whole * _GROUP :], bytes(padding), bytes([0xFF - padding])))


def decode_bytes(buf: bytes, offset: int = 0) -> tuple[bytes, int]:
    """Return a string and the offset after it; DecodeError for bad markers and padding."""
    out = bytearray()
    while True:
        group = take(buf, offset, _GROUP + 1, _MEMCOMPARABLE_CODEC)
        padding = 0xFF - group[_GROUP]
        if padding > _GROUP:
            raise DecodeError(f"marker {group[_GROUP]:#x} is below 0xf7", _MEMCOMPARABLE_CODEC, offset + _GROUP)
        if any(group[_GROUP - padding : _GROUP]):
            raise DecodeError("padding that is not zero", _MEMCOMPARABLE_CODEC, offset + _GROUP - padding)
        out += group[: _GROUP - padding]
        offset += _GROUP + 1
        if padding:
            return bytes(out), offset


def encode_compact(data: bytes) -> bytes:
    """Return the length as a signed varint, then the bytes."""
    return encode_varint(len(data)) + data


def decode_compact(buf: bytes, offset: int = 0) -> tuple[bytes, int]:
    """Return a string in compact form and the offset after it."""
    size, start = decode_varint(buf, offset)
    return take(buf, start, size, _MEMCOMPARABLE_CODEC), start + size


_DECIMAL_BIN_CODEC: Final = "decimal"
MAX_PRECISION: Final = 81
"""Maximal number of digits in nine words; a column has at most 65."""
MAX_SCALE: Final = 72
_WORD_DIGITS: Final = 9
_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes that hold 0 to 9 digits."""


class DecimalForm(NamedTuple):
    """The precision and scale of a decimal."""

    precision: int
    scale: int


def form_of(value: Decimal) -> DecimalForm:
    """Return the default form of a number: its own digits, 0.00 as (2, 2)."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), value
    scale = max(-exponent, 0)
    whole = len(digits) + exponent if any(digits) else 0
    return DecimalForm(max(max(whole, 0) + scale, 1), scale)


def encode_decimal(value: Decimal, form: DecimalForm) -> bytes:
    """Return the bytes of `value` in that form; EncodeError when it has more digits on either side of the point."""
    _check(form)
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise EncodeError(f"{value} is no DECIMAL")
    number = int("".join(map(str, digits)))
    shift = exponent + form.scale
    cut = 10 ** max(-shift, 0)
    if shift > form.precision or number % cut:
        raise EncodeError(f"{value} does not fit into DECIMAL{tuple(form)}")
    text = str(number * 10 ** max(shift, 0) // cut).zfill(form.precision)
    if len(text) > form.precision:
        raise EncodeError(f"{value} does not fit into DECIMAL{tuple(form)}")
    chunks = _cut(form)
    ends = [sum(chunks[: index + 1]) for index in range(len(chunks))]
    data = b"".join(
        int(text[end - size : end]).to_bytes(_BYTES[size], "big") for size, end in zip(chunks, ends, strict=True)
    )
    if sign and number:
        data = invert(data)
    return bytes([data[0] ^ 0x80]) + data[1:]


def decode_decimal(buf: bytes, offset: int, form: DecimalForm) -> tuple[Decimal, int]:
    """Return a number of that form and the offset after it; DecodeError for digits that no decimal has."""
    chunks = _cut(form)
    size = sum(_BYTES[digits] for digits in chunks)
    data = take(buf, offset, size, _DECIMAL_BIN_CODEC)
    data = bytes([data[0] ^ 0x80]) + data[1:]
    negative = data[0] >= 0x80
    data = invert(data) if negative else data
    text, start = "", 0
    for digits in chunks:
        width = _BYTES[digits]
        number = int.from_bytes(data[start : start + width], "big")
        if number >= 10**digits:
            raise DecodeError(f"{number} where {digits} digits stand", _DECIMAL_BIN_CODEC, offset + start)
        text += str(number).zfill(digits)
        start += width
    unscaled = -int(text) if negative else int(text)
    return Decimal(f"{unscaled}E-{form.scale}"), offset + size


def write_decimal(value: Decimal, form: DecimalForm) -> bytes:
    """Return a stand-alone decimal: precision, scale, and the number."""
    return bytes(form) + encode_decimal(value, form)


def read_decimal(buf: bytes, offset: int = 0) -> tuple[Decimal, DecimalForm, int]:
    """Return a stand-alone number, its form, and the offset after it."""
    form = DecimalForm(take_byte(buf, offset, _DECIMAL_BIN_CODEC), take_byte(buf, offset + 1, _DECIMAL_BIN_CODEC))
    if not 0 < form.precision <= MAX_PRECISION or not form.scale <= min(form.precision, MAX_SCALE):
        raise DecodeError(
            f"no decimal has {form.precision} digits, {form.scale} of them behind the point", _DECIMAL_BIN_CODEC, offset
        )
    value, end = decode_decimal(buf, offset + 2, form)
    return value, form, end


def _check(form: DecimalForm) -> None:
    if not 0 < form.precision <= MAX_PRECISION or not 0 <= form.scale <= min(form.precision, MAX_SCALE):
        raise EncodeError(f"no decimal has {form.precision} digits, {form.scale} of them behind the point")


def chunk_sizes(form: DecimalForm) -> list[tuple[int, int]]:
    """Return the number of digits and of bytes of each word."""
    return [(digits, _BYTES[digits]) for digits in _cut(form)]


def _cut(form: DecimalForm) -> tuple[int, ...]:
    words, leading = divmod(form.precision - form.scale, _WORD_DIGITS)
    fraction_words, trailing = divmod(form.scale, _WORD_DIGITS)
    chunks = (leading, *(_WORD_DIGITS,) * (words + fraction_words), trailing)
    return tuple(digits for digits in chunks if digits)
