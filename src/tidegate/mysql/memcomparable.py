"""Byte strings whose encoded order is their own order, even with something behind them.

    "12345678" + "9"      31 32 33 34 35 36 37 38 | ff    39 00 00 00 00 00 00 00 | f8
                          8 bytes of data           mark  1 byte, 7 of padding      ff - 7

    marker   ff: the group is full and another one follows;  ff - n: the last n bytes of the group are padding
    length   (n // 8 + 1) * 9: a string of 8k bytes ends with a group that is all padding (marker f7)

A decoder refuses a marker below f7 and padding that is not zero, so that a string has one form only.  The compact form,
for values that nobody compares, is a varint length and the bytes.

Source: TiDB pkg/util/codec/bytes.go.
"""

from typing import Final

from tidegate.model.errors import DecodeError
from tidegate.mysql.cursor import take
from tidegate.mysql.number import decode_varint, encode_varint

CODEC: Final = "memcomparable"
_GROUP: Final = 8


def encode_bytes(data: bytes) -> bytes:
    """`data` in groups of eight, each with its marker."""
    whole, rest = divmod(len(data), _GROUP)
    groups = [data[at : at + _GROUP] + b"\xff" for at in range(0, whole * _GROUP, _GROUP)]
    padding = _GROUP - rest
    return b"".join((*groups, data[whole * _GROUP :], bytes(padding), bytes([0xFF - padding])))


def decode_bytes(buf: bytes, at: int = 0) -> tuple[bytes, int]:
    """Return a string and the offset after it; DecodeError for bad markers and padding."""
    out = bytearray()
    while True:
        group = take(buf, at, _GROUP + 1, CODEC)
        padding = 0xFF - group[_GROUP]
        if padding > _GROUP:
            raise DecodeError(f"marker {group[_GROUP]:#x} is below 0xf7", CODEC, at + _GROUP)
        if any(group[_GROUP - padding : _GROUP]):
            raise DecodeError("padding that is not zero", CODEC, at + _GROUP - padding)
        out += group[: _GROUP - padding]
        at += _GROUP + 1
        if padding:
            return bytes(out), at


def encode_compact(data: bytes) -> bytes:
    """Return the length as a signed varint, then the bytes."""
    return encode_varint(len(data)) + data


def decode_compact(buf: bytes, at: int = 0) -> tuple[bytes, int]:
    """Return a string in compact form and the offset after it."""
    size, start = decode_varint(buf, at)
    return take(buf, start, size, CODEC), start + size
