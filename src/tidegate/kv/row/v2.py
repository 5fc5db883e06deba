"""Rows of version 2, the form that TiDB has written since 4.0: columns by id, found by binary search, read one by one.

    80 | flags | values u16 | NULLs u16 | ids of values | ids of NULLs | ends of values | values | tail

    flags   1 large: ids and ends are u32; otherwise ids are u8 and ends u16        2 a checksum follows
    large   when an id is above 255 or the values take more than 65,535 bytes
    ids     ascending, values and NULLs apart;  ends count from the first value

    {1: 01, 2: "abc", 3: NULL}    80 00 0200 0100 | 01 02 | 03 | 0100 0400 | 01 616263

    tail    header | crc32 u32 [| crc32 u32]           header: version in bits 0..2; 8 = a second checksum follows

Little endian throughout.  The bytes of a value mean nothing without the column's type: see column_value.py.

Source: TiDB pkg/util/rowcodec (row.go, common.go); docs/design/2018-07-19-row-format.
"""

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from tidegate.model.errors import DecodeError, EncodeError
from tidegate.mysql.cursor import at_end, take, take_byte

CODEC: Final = "row v2"
VERSION_BYTE: Final = 0x80
LARGE, CHECKSUM = 1, 2
HEAD: Final = struct.Struct("<BBHH")
"""Version, flags, and how many values and NULLs there are."""
_MAX_SMALL_ID: Final = 0xFF
_MAX_SMALL_DATA: Final = 0xFFFF
_MAX_ID: Final = 0xFFFF_FFFF
_MAX_COLUMNS: Final = 0xFFFF
_EXTRA: Final = 8
_VERSION: Final = 7
_CRC: Final = struct.Struct("<I")


class RowChecksums(NamedTuple):
    """The checksums of a row; `extra` is that of a neighbouring schema version while a DDL runs."""

    version: int
    checksum: int
    extra: int | None = None


class RawRow(NamedTuple):
    """The bytes of each column by id; None for NULL."""

    values: dict[int, bytes | None]
    tail: RowChecksums | None = None


def encode_raw_row(values: Mapping[int, bytes | None], *, checksum: bool = False) -> bytes:
    """Return the row without its tail; `checksum` announces that one will follow."""
    present = sorted((column_id, value) for column_id, value in values.items() if value is not None)
    nulls = sorted(column_id for column_id, value in values.items() if value is None)
    ids = [column_id for column_id, _ in present] + nulls
    data = b"".join(value for _, value in present)
    if len(ids) > _MAX_COLUMNS or len(data) > _MAX_ID or not all(0 <= column_id <= _MAX_ID for column_id in ids):
        raise EncodeError("a row with too many columns, too many bytes or a column id beyond 32 bits")
    large = len(data) > _MAX_SMALL_DATA or any(column_id > _MAX_SMALL_ID for column_id in ids)
    ends, end = [], 0
    for _, value in present:
        end += len(value)
        ends.append(end)
    id_form, end_form = ("I", "I") if large else ("B", "H")
    flags = LARGE * large | CHECKSUM * checksum
    head = HEAD.pack(VERSION_BYTE, flags, len(present), len(nulls))
    return head + struct.pack(f"<{len(ids)}{id_form}", *ids) + struct.pack(f"<{len(ends)}{end_form}", *ends) + data


def decode_raw_row(buf: bytes) -> RawRow:
    """Return the columns and the checksums of a row."""
    values, end = _columns(buf)
    if not buf[1] & CHECKSUM:
        at_end(buf, end, CODEC)
        return RawRow(values)
    header = take_byte(buf, end, CODEC)
    (first,) = _CRC.unpack(take(buf, end + 1, 4, CODEC))
    end += 5
    extra = None
    if header & _EXTRA:
        (extra,) = _CRC.unpack(take(buf, end, 4, CODEC))
        end += 4
    at_end(buf, end, CODEC)
    if header & ~(_EXTRA | _VERSION):
        raise DecodeError(f"checksum header {header:#04x} has bits that mean nothing", CODEC, end)
    return RawRow(values, RowChecksums(header & _VERSION, first, extra))


def body_of(buf: bytes) -> bytes:
    """Return a row with a tail as far as the checksums of version 1 and 2 cover it: up to and with the tail's header
    byte."""
    _, end = _columns(buf)
    return take(buf, 0, end + 1, CODEC)


def render_tail(tail: RowChecksums) -> bytes:
    """Return the bytes behind the values."""
    if not 0 <= tail.version <= _VERSION or not all(0 <= crc <= _MAX_ID for crc in (tail.checksum, tail.extra or 0)):
        raise EncodeError(f"{tuple(tail)} is no version of a checksum and numbers of 32 bits")
    header = tail.version | (0 if tail.extra is None else _EXTRA)
    return bytes([header]) + _CRC.pack(tail.checksum) + (b"" if tail.extra is None else _CRC.pack(tail.extra))


class _Shape(NamedTuple):
    """What the head of a row says, checked: rows of one statement share it."""

    ids: tuple[int, ...]
    nulls: tuple[int, ...]
    ends: struct.Struct


def _columns(buf: bytes) -> tuple[dict[int, bytes | None], int]:
    data, shape = _head(buf)
    at = len(data)
    ends = shape.ends.unpack(take(buf, at, shape.ends.size, CODEC))
    start = at + shape.ends.size
    values: dict[int, bytes | None] = {}
    before = 0
    for column_id, end in zip(shape.ids, ends, strict=True):
        if end < before:
            raise DecodeError("values that end before they begin", CODEC, at)
        values[column_id] = buf[start + before : start + end]
        before = end
    take(buf, start, before, CODEC)
    if shape.nulls:
        values.update(dict.fromkeys(shape.nulls))
    return values, start + before


def _head(buf: bytes) -> tuple[bytes, _Shape]:
    _, flags, count, null_count = HEAD.unpack(take(buf, 0, HEAD.size, CODEC))
    data = take(buf, 0, HEAD.size + (count + null_count) * (4 if flags & LARGE else 1), CODEC)
    return data, _shape(data)


@lru_cache(maxsize=4096)
def _shape(head: bytes) -> _Shape:
    """The ids in the head of a row, its ends not included; DecodeError for ids that do not ascend or stand twice."""
    version, flags, count, null_count = HEAD.unpack_from(head)
    if version != VERSION_BYTE or flags & ~(LARGE | CHECKSUM):
        raise DecodeError(f"version {version:#04x} with flags {flags:#04x}", CODEC, 0)
    id_form, end_form = ("I", "I") if flags & LARGE else ("B", "H")
    found = struct.unpack_from(f"<{count + null_count}{id_form}", head, HEAD.size)
    ids, nulls = found[:count], found[count:]
    for name, numbers in (("ids", ids), ("ids of NULLs", nulls)):
        if list(numbers) != sorted(set(numbers)):
            raise DecodeError(f"{name} that do not ascend", CODEC, HEAD.size)
    if not set(ids).isdisjoint(nulls):
        raise DecodeError("a column that is NULL and has a value", CODEC, HEAD.size)
    return _Shape(ids, nulls, struct.Struct(f"<{count}{end_form}"))
