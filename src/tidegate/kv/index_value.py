"""Values of index entries, as parts: what stands behind a key beyond its columns.

    old        30                                              not unique; the handle is in the key
               handle, 8 bytes, sign bit not flipped           unique
    version 0  tail | [7f len handle] | [7e partition] | [row v2] | zeros up to 10 bytes | [handle, 8 bytes]
    version 1  00 | 7d 01 | [7f len handle] | [7e partition] | [row v2]

    08 | 80 0001 .. 6142 | 00 00 00 00 00 00 00 01       version 0, unique, the string 'aB' restored, handle 1
    00 | 7d 01 | 7f 0013 01 61 .. 05                     version 1, unique, a common handle of 19 bytes

    tail        number of bytes at the end: padding and an int handle
    7f          a common handle, length u16 big endian: of unique entries
    7e          the partition's id as a sortable int: of global indexes
    row v2      the restored data: originals of strings whose sort key loses something

Values of at most 9 bytes are old, but for 00 7d 01 alone.  An `untouched` flag (31 at the end) lives in transactions
alone and never in TiKV.

Source: TiDB pkg/tablecodec (GenIndexValuePortal, SplitIndexValue).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidegate.kv.cursor import take, take_byte
from tidegate.kv.handle import CommonHandle, Handle, IntHandle
from tidegate.kv.number import decode_int, encode_int
from tidegate.kv.row.v2 import VERSION_BYTE, decode_raw_row, encode_raw_row
from tidegate.model.errors import DecodeError, EncodeError

__all__ = ["IndexValue", "decode_index_value", "encode_index_value"]

CODEC: Final = "index value"
NON_UNIQUE: Final = b"0"
_VERSION: Final = 0x7D
_PARTITION: Final = 0x7E
_COMMON_HANDLE: Final = 0x7F
_EMPTY_V1: Final = bytes([0, _VERSION, 1])
MAX_OLD_SIZE: Final = 9
_NEW_SIZE: Final = 10
_HANDLE_SIZE: Final = 8
_MAX_HANDLE: Final = 0xFFFF


class IndexValue(NamedTuple):
    """The parts; `version` is None for the old form, `restored` None without restored data."""

    version: int | None = None
    handle: Handle | None = None
    partition_id: int | None = None
    restored: Mapping[int, bytes | None] | None = None


def encode_index_value(value: IndexValue) -> bytes:
    """Return the bytes of these parts; EncodeError where the version cannot hold them."""
    if value.version is None:
        if value.partition_id is not None or value.restored is not None or isinstance(value.handle, CommonHandle):
            raise EncodeError("the old form of an index value holds a number at most")
        return NON_UNIQUE if value.handle is None else _plain(value.handle)
    middle = _middle(value)
    if value.version == 1:
        if isinstance(value.handle, IntHandle):
            raise EncodeError("an index value of version 1 holds no int handle")
        return _EMPTY_V1 + middle
    if value.version != 0:
        raise EncodeError(f"{value.version} is no version of an index value")
    tail = _plain(value.handle) if isinstance(value.handle, IntHandle) else b""
    tail = bytes(max(0, _NEW_SIZE - 1 - len(middle) - len(tail))) + tail
    return bytes([len(tail)]) + middle + tail


def _plain(handle: Handle) -> bytes:
    assert isinstance(handle, IntHandle)
    return handle.value.to_bytes(_HANDLE_SIZE, "big", signed=True)


def _middle(value: IndexValue) -> bytes:
    parts = []
    if isinstance(value.handle, CommonHandle):
        if len(value.handle.encoded) > _MAX_HANDLE:
            raise EncodeError("a common handle of more than 65,535 bytes")
        parts.append(bytes([_COMMON_HANDLE]) + len(value.handle.encoded).to_bytes(2, "big") + value.handle.encoded)
    if value.partition_id is not None:
        parts.append(bytes([_PARTITION]) + encode_int(value.partition_id))
    if value.restored is not None:
        parts.append(encode_raw_row(value.restored))
    return b"".join(parts)


def decode_index_value(buf: bytes) -> IndexValue:
    """Return the parts of a value; DecodeError for anything else."""
    if len(buf) <= MAX_OLD_SIZE and buf != _EMPTY_V1:
        return _decode_old(buf)
    tail_size = buf[0]
    version, at = 0, 1
    if buf[1] == _VERSION:
        version, at = take_byte(buf, 2, CODEC), 3
    if version > 1 or (version and tail_size) or tail_size > len(buf) - at:
        raise DecodeError(f"version {version} with {tail_size} bytes at the end", CODEC, 0)
    middle, tail = buf[at : len(buf) - tail_size], buf[len(buf) - tail_size :]
    handle, partition_id, restored = _decode_middle(middle, at)
    if tail_size >= _HANDLE_SIZE and handle is None:
        number = int.from_bytes(tail[-_HANDLE_SIZE:], "big", signed=True)
        handle, tail = IntHandle(number), tail[:-_HANDLE_SIZE]
    if any(tail):
        raise DecodeError("padding that is not zero", CODEC, len(buf) - tail_size)
    return IndexValue(version, handle, partition_id, restored)


def _decode_old(buf: bytes) -> IndexValue:
    if buf == NON_UNIQUE:
        return IndexValue()
    if len(buf) != _HANDLE_SIZE:
        raise DecodeError(f"an old value of {len(buf)} bytes", CODEC, 0)
    return IndexValue(handle=IntHandle(int.from_bytes(buf, "big", signed=True)))


def _decode_middle(buf: bytes, base: int) -> tuple[Handle | None, int | None, Mapping[int, bytes | None] | None]:
    at = 0
    handle, partition_id, restored = None, None, None
    if buf[at : at + 1] == bytes([_COMMON_HANDLE]):
        size = int.from_bytes(take(buf, at + 1, 2, CODEC), "big")
        handle = CommonHandle(take(buf, at + 3, size, CODEC))
        at += 3 + size
    if buf[at : at + 1] == bytes([_PARTITION]):
        partition_id, at = decode_int(buf, at + 1)
    if buf[at : at + 1] == bytes([VERSION_BYTE]):
        row = decode_raw_row(buf[at:])
        if row.tail is not None:
            raise DecodeError("restored data with a checksum", CODEC, base + at)
        restored, at = row.values, len(buf)
    if at != len(buf):
        raise DecodeError(f"{buf[at]:#04x} begins no part of a value", CODEC, base + at)
    return handle, partition_id, restored
