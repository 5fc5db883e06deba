"""Numbers as bytes: forms whose order as bytes is the order of the numbers, and the short forms of Go's binary package.

    int     8 bytes, big endian, sign bit flipped         -1 -> 7f ff ff ff ff ff ff ff     0 -> 80 00 ..
    uint    8 bytes, big endian                            1 -> 00 .. 01
    float   the IEEE 754 bits; sign bit set when x >= 0, else all bits inverted            1.5 -> bf f8 00 ..
    desc    the same, every byte inverted: the order turned round
    uvarint 7 bits a byte, lowest first, high bit = more follow; at most 10 bytes          300 -> ac 02
    varint  uvarint of the zigzag: 0, -1, 1, -2 .. become 0, 1, 2, 3 ..                     -1 -> 01

-0.0 is written as 0.0, as TiDB does.  A NaN with a set sign bit would come back as another NaN: order has no place for
it, and TiDB stores none.

Source: TiDB pkg/util/codec (number.go, float.go); Go encoding/binary.
"""

import struct
from typing import Final

from tidegate.model.errors import DecodeError, EncodeError
from tidegate.mysql.cursor import take, take_byte

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
    """Return every bit turned: the ascending form of a value becomes the descending one, and back."""
    return data.translate(_INVERTED)


def encode_int(value: int) -> bytes:
    """8 bytes that sort as signed numbers do; EncodeError beyond 64 bits."""
    if not MIN_INT <= value <= MAX_INT:
        raise EncodeError(f"{value} is no signed 64-bit number")
    return (value + _SIGN).to_bytes(8, "big")


def decode_int(buf: bytes, at: int = 0) -> tuple[int, int]:
    """Return a signed number of 8 bytes and the offset after it."""
    return int.from_bytes(take(buf, at, 8, CODEC), "big") - _SIGN, at + 8


def encode_uint(value: int) -> bytes:
    """8 bytes big endian; EncodeError beyond 64 bits."""
    if not 0 <= value <= MAX_UINT:
        raise EncodeError(f"{value} is no unsigned 64-bit number")
    return value.to_bytes(8, "big")


def decode_uint(buf: bytes, at: int = 0) -> tuple[int, int]:
    """Return an unsigned number of 8 bytes and the offset after it."""
    return int.from_bytes(take(buf, at, 8, CODEC), "big"), at + 8


def encode_float(value: float) -> bytes:
    """8 bytes that sort as doubles do."""
    bits = int.from_bytes(_DOUBLE.pack(0.0 if value == 0 else value), "big")
    bits = MAX_UINT - bits if bits & _SIGN else bits | _SIGN
    return bits.to_bytes(8, "big")


def decode_float(buf: bytes, at: int = 0) -> tuple[float, int]:
    """Return a double and the offset after it."""
    bits = int.from_bytes(take(buf, at, 8, CODEC), "big")
    bits = bits - _SIGN if bits & _SIGN else MAX_UINT - bits
    value: float = _DOUBLE.unpack(bits.to_bytes(8, "big"))[0]
    return value, at + 8


def encode_uvarint(value: int) -> bytes:
    """1 to 10 bytes; EncodeError beyond 64 bits."""
    if not 0 <= value <= MAX_UINT:
        raise EncodeError(f"{value} is no unsigned 64-bit number")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_uvarint(buf: bytes, at: int = 0) -> tuple[int, int]:
    """Return an unsigned number and the offset after it; DecodeError after 10 bytes or beyond 64 bits."""
    value = 0
    for place in range(_VARINT_BYTES):
        byte = take_byte(buf, at + place, CODEC)
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            if value > MAX_UINT:
                break
            return value, at + place + 1
    raise DecodeError("a varint of more than 64 bits", CODEC, at)


def encode_varint(value: int) -> bytes:
    """Return the zigzag form; EncodeError beyond 64 bits."""
    if not MIN_INT <= value <= MAX_INT:
        raise EncodeError(f"{value} is no signed 64-bit number")
    return encode_uvarint(value << 1 if value >= 0 else ~(value << 1))


def decode_varint(buf: bytes, at: int = 0) -> tuple[int, int]:
    """Return a signed number in zigzag form and the offset after it."""
    zigzag, end = decode_uvarint(buf, at)
    return zigzag >> 1 ^ -(zigzag & 1), end
