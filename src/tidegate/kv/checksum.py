"""Checksums of rows: what `[integrity]` compares between TiDB and a changefeed.  CRC-32 of IEEE 802.3 throughout.

    version   covers
    0         the public columns in order of id, each as below; NULL adds nothing
    1         the row's bytes up to and with the tail's header byte, then the raw key
    2         the same bytes, then the encoded handle                                    (what TiDB writes now)

    version 0    integers, YEAR, ENUM, SET, BIT     u64, little endian
                 FLOAT, DOUBLE                      bits of the double, little endian; 0 for infinities and NaN
                 strings, binary strings            u32 length and the bytes
                 DECIMAL, times, JSON               u32 length and the text that TiDB prints
                 VECTOR                             as in a row

    (1, "abc", NULL)    01 00 00 00 00 00 00 00 | 03 00 00 00 61 62 63        crc32 95a55a42

Source: TiDB pkg/util/rowcodec/common.go; TiCDC's mounter.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from math import isfinite
from typing import Final

from tidegate.model.errors import EncodeError
from tidegate.model.table import ColumnType
from tidegate.mysql.column_text import column_text
from tidegate.mysql.column_value import KvValue
from tidegate.mysql.datum import DecimalDatum, Duration, JsonDatum, Unsigned, Vector, encode_vector
from tidegate.mysql.packed_time import Time

_UINT: Final = struct.Struct("<Q")
_DOUBLE: Final = struct.Struct("<d")


def column_checksum(columns: Iterable[tuple[ColumnType, KvValue]]) -> int:
    """Return the checksum of version 0 of columns in the order of their ids."""
    checksum = 0
    for column_type, value in columns:
        if value is not None:
            checksum = zlib.crc32(_column_bytes(column_type, value), checksum)
    return checksum


def key_checksum(body: bytes, key_or_handle: bytes) -> int:
    """Return the checksum of version 1 (the raw key) and 2 (the encoded handle); `body` ends with the tail's header
    byte."""
    return zlib.crc32(key_or_handle, zlib.crc32(body))


def _column_bytes(column_type: ColumnType, value: KvValue) -> bytes:
    write = _FORMS.get(type(value))
    if write is None:
        raise EncodeError(f"no checksum covers a {type(value).__name__}")
    return write(column_type, value)


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + data


def _text(column_type: ColumnType, value: KvValue) -> bytes:
    return _sized(column_text(column_type, value).encode("utf-8", "surrogateescape"))


_FORMS: Final[Mapping[type, Callable[..., bytes]]] = {
    int: lambda _type, value: _UINT.pack(value % (1 << 64)),
    Unsigned: lambda _type, value: _UINT.pack(value),
    float: lambda _type, value: _DOUBLE.pack(value if isfinite(value) else 0.0),
    bytes: lambda _type, value: _sized(value),
    Vector: lambda _type, value: encode_vector(value),
    Time: _text,
    Duration: _text,
    DecimalDatum: _text,
    Decimal: _text,
    JsonDatum: _text,
}
