"""Names of aliases, indexes and documents. Pure.

    alias      shop.orders                               what readers search; it moves from index to index
    index      shop.orders-470606747354005504.1.0-7      of the DDL of that ts, of the writer of epoch 7
    document   17, or 1:a%3Ab                            the values of the row's key

In names of schemas and tables everything but a-z, 0-9, `_` and `-` is written %XX, in lower case as TiDB compares them,
so that no two tables share a name.  Long names end with a digest.

Source: OpenSearch documentation, "Create index", index naming restrictions.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from tidegate.model.event import Value
from tidegate.model.name import lowered
from tidegate.model.table import TableName
from tidegate.sink.documents.row_id import row_id

NAME_MAX: Final = 160
ID_MAX_BYTES: Final = 512
_ESCAPED: Final = re.compile(rb"[^a-z0-9_-]")
_EPOCH: Final = re.compile(r"-(\d+)$")


def alias_of(name: TableName, prefix: str = "") -> str:
    """Return the name by which readers find a table."""
    text = prefix + ".".join(_plain(part) for part in name)
    text = f"%{ord(text[0]):02x}{text[1:]}" if text[0] in "_-" else text
    return text if len(text) <= NAME_MAX else f"{text[: NAME_MAX - 65]}-{_digest(text.encode())}"


def index_name(alias: str, place: str, epoch: int) -> str:
    """Return the name of an index that begins at a place in time."""
    return f"{alias}-{place}-{epoch}"


def epoch_of(index: str) -> int:
    """Return the epoch of the writer that made an index."""
    found = _EPOCH.search(index)
    return int(found[1]) if found else 0


def write_alias(index: str, epoch: int) -> str:
    """Return the name by which the writer of an epoch writes an index: a later one takes it away."""
    return f"{index}.w{epoch}"


def document_id(values: Sequence[Value]) -> str:
    """Return the name of the document of the row whose key columns have these values."""
    found = row_id(values)
    try:
        text = found.decode()
    except UnicodeDecodeError:  # a text that is no UTF-8
        text = ""
    return text if text and len(found) <= ID_MAX_BYTES else f"sha256:{_digest(found)}"


def _plain(part: str) -> str:
    text = lowered(part).encode("utf-8", "surrogatepass")
    return _ESCAPED.sub(lambda hit: b"%%%02x" % hit[0][0], text).decode()


def _digest(text: bytes) -> str:
    return sha256(text).hexdigest()
