"""Names of keys: those of rows, of their tombstones and of the feed's progress. Pure.

    template        {schema}:{table}:{pk}
    row             shop:orders:17              shop:pairs:1:a%3Ab      a key of two columns, the second one "a:b"
    look-up         shop:users:by:mail:ann@x            by a unique index (lookups.py)
    tombstone       _tidegate:{shop:orders:17}
    progress        _tidegate:progress:{feed}
    all of a table  shop:orders:*               a pattern for SCAN

In names and values `%`, `:`, `/`, `{`, `}` and control characters are written %XX, and what stands between the parts
of a template begins with `:` or `/`.  So two rows never share a key, a table's pattern finds no other table, and the
braces of a template are its own.

A cluster places a key by what stands in its first braces, or by all of it.  A tombstone has the key in braces, or
the key's own braces, so that the two lie in one slot.

Source: Redis documentation, "Cluster specification", hash tags; "SCAN", patterns.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from string import Formatter
from typing import Final

from tidegate.model.errors import UriInvalid
from tidegate.model.event import Value
from tidegate.model.table import TableName
from tidegate.sink.documents.row_id import escaped, row_id

OWN: Final = b"_tidegate:"
PROGRESS: Final = OWN + b"progress:"
LOOKUP: Final = b"by:"
"""What stands behind the prefix of a table before a look-up, and before no row."""
_PATTERN: Final = re.compile(rb"[*?\[\]\\]")
_PARTS: Final = ("schema", "table", "pk")


@dataclass(frozen=True, slots=True)
class KeyTemplate:
    """The texts before the schema, before the table and before the row's own part of a key."""

    before_schema: bytes
    before_table: bytes
    before_row: bytes

    def prefix(self, name: TableName) -> bytes:
        """Return what the keys of a table begin with."""
        return _prefix(self, name)

    def pattern(self, name: TableName) -> bytes:
        """Return the pattern by which SCAN finds the keys of a table."""
        return escaped_pattern(self.prefix(name)) + b"*"


def escaped_pattern(text: bytes) -> bytes:
    """Return a text as a pattern of SCAN that fits it alone."""
    return _PATTERN.sub(lambda hit: b"\\" + hit[0], text)


def parse_template(text: str) -> KeyTemplate:
    """Return the template that `text` writes; `{{` is a brace of its own. Raises UriInvalid."""
    try:
        parts = [(before, name) for before, name, _, _ in Formatter().parse(text)]
    except ValueError as error:
        raise UriInvalid(f"key-template {text!r}: {error}") from error
    befores = [""]
    names = []
    for before, name in parts:
        befores[-1] += before
        if name is not None:
            names.append(name)
            befores.append("")
    if tuple(names) != _PARTS or befores[-1]:
        raise UriInvalid(
            f"key-template {text!r}: it must name {{schema}}, {{table}} and {{pk}}, in this order, and end"
        )
    if not all(between.lstrip("}")[:1] in {":", "/"} for between in befores[1:3]):
        raise UriInvalid(f"key-template {text!r}: what stands between its parts must begin with ':' or '/'")
    braces = [char for before in befores for char in before if char in "{}"]
    if braces not in ([], ["{", "}"]) or any("{}" in before for before in befores):
        raise UriInvalid(f"key-template {text!r}: it may have one pair of braces of its own, with something in it")
    first = befores[0].encode()
    if first.startswith(OWN):
        raise UriInvalid(f"key-template {text!r}: keys that begin with {OWN.decode()} are the changefeed's own")
    return KeyTemplate(first, *(between.encode() for between in befores[1:3]))


@lru_cache(maxsize=1024)
def _prefix(template: KeyTemplate, name: TableName) -> bytes:
    schema, table = (escaped(part.encode("utf-8", "surrogatepass")) for part in name)
    return template.before_schema + schema + template.before_table + table + template.before_row


def row_key(prefix: bytes, values: Sequence[Value]) -> bytes:
    """Return the key of the row whose key columns have these values."""
    own = row_id(values)
    if len(values) > 1 and own.startswith(LOOKUP):  # what begins so is a look-up
        own = b"%62y:" + own.removeprefix(LOOKUP)
    return prefix + own


def lookup_key(prefix: bytes, index: str, values: Sequence[Value]) -> bytes:
    """Return the key under which the row is found that has these values of a unique index."""
    return prefix + LOOKUP + escaped(index.encode("utf-8", "surrogatepass")) + b":" + row_id(values)


def tombstone_key(key: bytes) -> bytes:
    """Return the key of a row's tombstone, in the row's slot."""
    return OWN + key if b"{" in key else b"%b{%b}" % (OWN, key)


def progress_key(feed: str) -> bytes:
    """Return the key of a feed's progress."""
    return b"%b{%b}" % (PROGRESS, feed.encode())
