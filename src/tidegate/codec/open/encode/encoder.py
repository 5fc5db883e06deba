"""TiCDC Open Protocol, writing: events to key JSON and value JSON, and those to messages.

    key     | version = 1 (8) | length (8) | key JSON | length (8) | key JSON | …
    value   |                 | length (8) | value    | length (8) | value    | …

    key JSON, classic   ts, scm, tbl, rid, ptn, t, ohk, ccl     names, rid, ohk and ccl only when they are set
              newarch   ts, scm, tbl, t, ohk, ccl, ptn          names always, no rid; a claim check says "ohk":false
    ptn                 only rows of partitioned tables
    DDL value           {"q":statement,"t":TiDB's action code}
    resolved            key {"ts":…,"t":3}, value of length 0

A value may be compressed; then its length is that of the compressed bytes.  Keys never are.

Source: Open Protocol document, "Message format"; recordings of both emitters.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from tidegate.codec.claim import Cut
from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.open.encode.row import TableForm, row_value
from tidegate.codec.open.encode.values import style_of
from tidegate.codec.wire_table import WireTable
from tidegate.model.errors import EncodeError
from tidegate.model.event import Ddl, RowChange

VERSION_BYTES: Final = 8
EVENT_OVERHEAD: Final = 16
"""The two lengths before a key and its value."""

_VERSION: Final = (1).to_bytes(VERSION_BYTES, "big")
_LENGTH: Final = Struct(">Q")
_MAX_TABLES: Final = 4096


class Pair(NamedTuple):
    """One event before it is framed."""

    key: bytes
    value: bytes


class OpenEncoder:
    """Events to pairs, one by one; tables are made ready once."""

    def __init__(self, options: EncodeOptions) -> None:
        self._options = options
        self._quote = style_of(options).quote
        self._ready: dict[tuple[int, int | None], tuple[WireTable, TableForm]] = {}
        self._stale_flags: dict[int, dict[str, int]] = {}

    def row(self, row: RowChange, table: WireTable, cut: Cut) -> Pair:
        """Return a row; `cut` says how much of it and what the key's mark is."""
        if row.commit_ts is None:
            raise EncodeError(f"a row of {row.schema}.{row.table} has no commit_ts, which open-protocol must say")
        value = row_value(row, self._images(row, table), self._options, handles=cut.handles)
        key = self._newarch_key(row, cut) if self._options.newarch else self._classic_key(row, cut)
        return Pair(_encoded(key), _encoded(value))

    def ddl(self, ddl: Ddl) -> Pair:
        """Return a DDL; canal-json's have no action code, and cannot be written."""
        if ddl.commit_ts is None or ddl.type is None:
            raise EncodeError(
                f"the DDL {ddl.query!a:.60} has no commit_ts or action code, which open-protocol must say"
            )
        names = self._names(ddl.schema, ddl.table)
        value = f'{{"q":{self._quote(ddl.query)},"t":{ddl.type}}}'
        return Pair(_encoded(f'{{"ts":{ddl.commit_ts}{names},"t":2}}'), _encoded(value))

    def resolved(self, ts: int) -> Pair:
        """Return a resolved timestamp."""
        return Pair(f'{{"ts":{ts},"t":3}}'.encode(), b"")

    def _images(self, row: RowChange, table: WireTable) -> TableForm:
        """The table made ready; with the fault stale-flags, with the flags that a partition had at first."""
        partition_id = row.partition_id if "stale-flags" in self._options.faults else None
        found = self._ready.get((id(table), partition_id))
        if found is None:
            if max(len(self._ready), len(self._stale_flags)) >= _MAX_TABLES:
                self._ready.clear()
                self._stale_flags.clear()
            flags = None
            if partition_id is not None:
                fresh = {column.name: column.flag for column in table.columns}
                flags = self._stale_flags.setdefault(partition_id, fresh)
            found = self._ready[id(table), partition_id] = table, TableForm(table, self._options, flags)
        return found[1]

    def _classic_key(self, row: RowChange, cut: Cut) -> str:
        parts = [f'{{"ts":{row.commit_ts}{self._names(row.schema, row.table)}']
        if row.row_id:
            parts.append(f',"rid":{row.row_id}')
        if row.partition_id is not None:
            parts.append(f',"ptn":{row.partition_id}')
        parts.append(',"t":1')
        if cut.only_handles:
            parts.append(',"ohk":true')
        if cut.location:
            parts.append(f',"ccl":{self._quote(cut.location)}')
        return "".join((*parts, "}"))

    def _newarch_key(self, row: RowChange, cut: Cut) -> str:
        parts = [f'{{"ts":{row.commit_ts}{self._names(row.schema, row.table)},"t":1']
        if cut.only_handles or (cut.location and "double-ohk" in self._options.faults):
            parts.append(',"ohk":true')
        if cut.location:
            parts.append(f',"ohk":false,"ccl":{self._quote(cut.location)}')
        if row.partition_id is not None:
            parts.append(f',"ptn":{row.partition_id}')
        return "".join((*parts, "}"))

    def _names(self, schema: str, table: str) -> str:
        """The members that name a table; classic leaves out what is empty."""
        if self._options.newarch:
            return f',"scm":{self._quote(schema)},"tbl":{self._quote(table)}'
        return (f',"scm":{self._quote(schema)}' if schema else "") + (f',"tbl":{self._quote(table)}' if table else "")


def pack(pairs: Sequence[Pair]) -> Pair:
    """Return the key and value of the message that holds `pairs`."""
    keys: list[bytes] = [_VERSION]
    values: list[bytes] = []
    for key, value in pairs:
        keys += _LENGTH.pack(len(key)), key
        values += _LENGTH.pack(len(value)), value
    return Pair(b"".join(keys), b"".join(values))


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise EncodeError(f"a text with the lone surrogate {text[error.start]!a}") from error
