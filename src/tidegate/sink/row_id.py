"""The identity of a row within its table: the values of its key, `1:a%3Ab` for 1 and "a:b". Pure.

`%`, `:`, `/`, `{`, `}` and control characters are written %XX, bytes in hexadecimal: no two rows share a name.  A text
that is no UTF-8 is named by its own bytes, which no other text has.
"""

import re
from collections.abc import Sequence
from typing import Final

from tidegate.model.errors import SinkRefused
from tidegate.model.event import Field, Value
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo

_ESCAPED: Final = re.compile(rb"[\x00-\x20\x7f%:/{}]")


class RawText(bytes):
    """A text that is no UTF-8."""


def row_id(values: Sequence[Value]) -> bytes:
    """Return the name of the row whose key columns have these values."""
    return b":".join(map(_part, values))


def key_indexes(table: TableInfo, fields: Sequence[Field]) -> list[int]:
    """Return the indexes of the key's columns among `fields`. SinkRefused for rows that lack one."""
    index_of = {lowered(field.name): index for index, field in enumerate(fields)}
    missing = [name for name in table.handle_key if lowered(name) not in index_of]
    if missing:
        raise SinkRefused(f"table {table.name}: its rows lack {', '.join(missing)}, a column of its key")
    return [index_of[lowered(name)] for name in table.handle_key]


def _part(value: Value) -> bytes:
    match value:
        case RawText():
            return escaped(value)
        case bytes():
            return value.hex().encode()
        case str():
            return escaped(value.encode("utf-8", "surrogateescape"))
        case _:
            return repr(value).encode()


def escaped(text: bytes) -> bytes:
    """Return a text without separators, braces and control characters, which are written %XX."""
    return _ESCAPED.sub(lambda hit: b"%%%02X" % hit[0][0], text) if _ESCAPED.search(text) else text
