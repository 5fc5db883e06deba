"""What names a row inside its table: a number, or the primary key itself.

    IntHandle(5)           80 00 00 00 00 00 00 05          an integer primary key, or the hidden _tidb_rowid
    CommonHandle           01 61 62 63 .. 03 80 .. 05       ("abc", 5): datums in key form, at least 9 bytes

A common handle is never 8 bytes long, so the length of a key tells the two apart; a short one is padded with zeros, and
its reader stops at the end of its columns.

Source: TiDB pkg/kv/key.go (IntHandle, CommonHandle).
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from tidegate.model.errors import DecodeError
from tidegate.mysql.datum import Datum, decode_datum, encode_key
from tidegate.mysql.number import MAX_INT, encode_int

CODEC: Final = "handle"
MIN_SIZE: Final = 9
_UNSIGNED: Final = 1 << 64


class IntHandle(NamedTuple):
    """A row number; an unsigned key above 2**63 - 1 is negative here."""

    value: int

    @property
    def encoded(self) -> bytes:
        """The end of the row's key."""
        return encode_int(self.value)

    @property
    def unsigned(self) -> int:
        """The number of a key column without sign."""
        return self.value % _UNSIGNED


class CommonHandle(NamedTuple):
    """A primary key as it stands at the end of the row's key."""

    encoded: bytes

    def datums(self, count: int) -> list[Datum]:
        """Return the first `count` columns of the primary key; DecodeError when they are not there or more follows."""
        found: list[Datum] = []
        at = 0
        for _ in range(count):
            datum, at = decode_datum(self.encoded, at)
            found.append(datum)
        if any(self.encoded[at:]) or (at != len(self.encoded) and len(self.encoded) > MIN_SIZE):
            raise DecodeError(f"bytes behind the {count} columns of a handle", CODEC, at)
        return found


Handle: TypeAlias = IntHandle | CommonHandle


def common_handle(datums: Iterable[Datum]) -> CommonHandle:
    """Return the handle of a primary key's values."""
    return CommonHandle(encode_key(datums).ljust(MIN_SIZE, b"\0"))


def unsigned_handle(value: int) -> IntHandle:
    """Return the handle of a number without sign."""
    return IntHandle(value - _UNSIGNED if value > MAX_INT else value)
