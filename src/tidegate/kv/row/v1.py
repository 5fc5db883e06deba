"""Rows of version 1: column ids and values in turn, each a datum in value form.

    {1: 1, 2: "abc", 3: NULL}     08 02 | 08 02    08 04 | 02 06 61 62 63    08 06 | 00
                                  id 1    1        id 2    "abc"             id 3    NULL

    no column at all              00

Times stand as their packed number, durations as nanoseconds, ENUM, SET and BIT as unsigned numbers.  The first byte is
08 or 00 and never 80, which tells this version from the second.  Columns stand in the order in which they were given.

Source: TiDB pkg/tablecodec (EncodeOldRow, DecodeRowToDatumMap).
"""

from collections.abc import Mapping
from typing import Final

from tidegate.kv.datum import Datum, decode_datum, encode_value
from tidegate.model.errors import DecodeError

__all__ = ["decode_old_row", "encode_old_row"]

CODEC: Final = "row v1"
_EMPTY: Final = b"\x00"


def encode_old_row(values: Mapping[int, Datum]) -> bytes:
    """Return the row of these columns, in their order."""
    return b"".join(encode_value((column_id, value)) for column_id, value in values.items()) or _EMPTY


def decode_old_row(buf: bytes) -> dict[int, Datum]:
    """Return the columns of a row by id, in their order."""
    if buf == _EMPTY:
        return {}
    found: dict[int, Datum] = {}
    at = 0
    while at < len(buf):
        start = at
        column_id, at = decode_datum(buf, at)
        if type(column_id) is not int or column_id in found:
            raise DecodeError(f"{column_id!r} where a new column id stands", CODEC, start)
        found[column_id], at = decode_datum(buf, at)
    return found
