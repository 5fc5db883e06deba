"""TiCDC Open Protocol, writing: events to key JSON and value JSON, and those to messages.

    key     | version = 1 (8) | length (8) | key JSON | length (8) | key JSON | …
    value   |                 | length (8) | value    | length (8) | value    | …

    key JSON, classic   ts, scm, tbl, rid, ptn, t, ohk, ccl     names, rid, ohk and ccl only when they are set
              newarch   ts, scm, tbl, t, ohk, ccl, ptn          names always, no rid; a claim check says "ohk":false
    ptn                 only rows of partitioned tables
    DDL value           {"q":statement,"t":TiDB's action code}
    resolved            key {"ts":…,"t":3}, value of length 0
    row value           {"u":{NAME:{"t":type,"h":true,"f":flags,"v":value},…},"p":{…}}      u new, p old, d deleted
              classic   columns in order of their names' bytes; an empty image is left out
              newarch   columns in table order; an empty `p` is {}, an empty `u` or `d` an error

    t                                v
    1 2 3 8 9 13 16 247 248          the number
    4, 5                             the shortest digits of a 32- or 64-bit float
    246 7 10 11 12 14 245 225        a string, as TiDB prints it
    15 253 254                       a string; of a binary column the Go quoting of its bytes, escaped once more
    249 250 251 252                  base64, TEXT too

A value may be compressed; then its length is that of the compressed bytes.  Keys never are.  How strings are
escaped, and the exponents of small floats, differ between the emitters (`Style`).  All of a column but its value is
the same in every row, so a table is prepared once (`TableForm`).

With only-output-updated-columns newarch has a fault in `p` of an UPDATE, one of encoding.FAULTS, which is copied:

    unnamed-null    "p":{"a":{"t":3,"f":65,"v":1}}  arrives as  "p":{"t":3,"f":65,"v":1}   when `a` became NULL

Source: Open Protocol document; recordings of both emitters.
"""

import re
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from tidegate.codec.claim import Cut
from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.go import (
    PRINTED,
    RAW,
    REPAIRED,
    STANDARD,
    FloatText,
    Quote,
    json32,
    json64,
    newarch_json32,
    newarch_json64,
    quote,
)
from tidegate.codec.wire_table import WireColumn, WireTable
from tidegate.codec.zone import shifted_text
from tidegate.model.errors import EncodeError, HandleKeyMissing, redacted_value
from tidegate.model.event import Ddl, Delete, Insert, RowChange, Update, Value, Values
from tidegate.model.mysql import BLOBS, CHARS, NUMBERS, PRINTED_TYPES, MysqlType

Write: TypeAlias = Callable[[Any], str]
"""Writes a value that is not NULL as JSON. Raises TypeError or AttributeError for a value of another type."""


class Style(NamedTuple):
    """The differences between the emitters' values."""

    quote: Quote
    float32: FloatText
    float64: FloatText


def style_of(options: EncodeOptions) -> Style:
    """Return the style of a dialect."""
    if options.newarch:
        return Style(RAW if "raw-bytes" in options.faults else REPAIRED, newarch_json32, newarch_json64)
    return Style(STANDARD, json32, json64)


def writer(column: WireColumn, style: Style, time_zone: str) -> Write:
    """Return the function that writes values of the column."""
    code = column.type.code
    if code in NUMBERS:
        return int.__repr__
    if code in CHARS:
        return _quoted(style.quote) if column.binary else style.quote
    if code in BLOBS:
        return _bytes_base64 if column.binary else lambda value: _bytes_base64(value.encode("utf-8", "surrogateescape"))
    if code == MysqlType.TIMESTAMP and time_zone != "UTC":
        return shifted_text(time_zone)
    if code in PRINTED_TYPES:
        return PRINTED
    return {MysqlType.FLOAT: style.float32, MysqlType.DOUBLE: style.float64}.get(code, style.quote)


def _quoted(outer: Quote) -> Write:
    def write(value: bytes) -> str:
        return outer(quote(value))

    return write


def _bytes_base64(value: bytes) -> str:
    return f'"{b2a_base64(value, newline=False).decode()}"'


_NAME: Final = re.compile(r'"(?:[^"\\]|\\.)*+":\{', re.DOTALL)


def unnamed_null(member: str) -> str:
    """`"name":{members}` without name and braces."""
    match = _NAME.match(member)
    assert match is not None, member
    return member[match.end() : -1]


_MISSING: Final = "no handle key column in table {}; give it a primary key, or a unique key on NOT NULL columns"


class OpenField(NamedTuple):
    """One column: the index of its value, its JSON before the value, and the writer of its values."""

    column: int
    head: str
    write: Write


class TableForm:
    """A table made ready: how each column starts and how its values are written, in message order."""

    def __init__(self, table: WireTable, options: EncodeOptions, flags: Mapping[str, int] | None = None) -> None:
        """`flags` are written to `f` instead of the columns' own, 0 for columns that it lacks."""
        style = style_of(options)
        order = list(range(len(table.columns)))
        if not options.newarch:
            order.sort(key=lambda index: table.columns[index].name.encode("utf-8", "surrogatepass"))
        columns = table.columns
        sent = {column.name: column.flag for column in columns} if flags is None else flags
        heads = [_head(column, sent.get(column.name, 0), style.quote) for column in columns]
        self.parts = [
            OpenField(index, heads[index], writer(columns[index], style, options.time_zone)) for index in order
        ]
        self.handles = [part for part in self.parts if columns[part.column].handle]
        self._columns = table.columns
        self._unnamed = "unnamed-null" in options.faults

    def image(self, values: Values, *, handles: bool = False) -> str:
        """Return the JSON object of an image, optionally of its handle key columns only; "" if it has no column."""
        return self._object(values, self.handles if handles else self.parts)

    def changed(self, before: Values, after: Values, *, handles: bool = False) -> str:
        """Return the object of the old values that are not the new ones; "" when there is none."""
        parts = self.handles if handles else self.parts
        different = [part for part in parts if before[part[0]] != after[part[0]]]
        if not self._unnamed:
            return self._object(before, different)
        return _braced(
            unnamed_null(member) if after[part[0]] is None else member
            for part, member in zip(different, self._members(before, different), strict=True)
        )

    def _object(self, values: Values, parts: list[OpenField]) -> str:
        return _braced(self._members(values, parts))

    def _members(self, values: Values, parts: list[OpenField]) -> list[str]:
        try:
            return [
                head + ("null" if (value := values[index]) is None else write(value)) + "}"
                for index, head, write in parts
            ]
        except (TypeError, AttributeError, UnicodeEncodeError) as error:
            self._blame(values, parts)
            raise EncodeError(f"a value that open-protocol cannot carry: {error}") from error

    def _blame(self, values: Values, parts: list[OpenField]) -> None:
        """Raises the error of the first value that cannot be written, with its column."""
        for index, _, write in parts:
            value: Value = values[index]
            try:
                if value is not None:
                    write(value)
            except (TypeError, AttributeError, UnicodeEncodeError) as error:
                column = self._columns[index]
                raise EncodeError(
                    f"column {column.name!r} (type {int(column.type.code)}) cannot hold {redacted_value(value)}"
                ) from error


def _head(column: WireColumn, flag: int, quote: Quote) -> str:
    """The text of a column before its value."""
    handle = '"h":true,' if column.handle else ""
    return f'{quote(column.name)}:{{"t":{int(column.type.code)},{handle}"f":{flag},"v":'


def _braced(members: Iterable[str]) -> str:
    joined = ",".join(members)
    return f"{{{joined}}}" if joined else ""


def row_value(row: RowChange, images: TableForm, options: EncodeOptions, *, handles: bool) -> str:
    """Return the value JSON of a row, of its handle key columns alone when `handles`."""
    match row:
        case Insert():
            return f'{{"u":{_needed(row, images.image(row.after, handles=handles), options, handles=handles)}}}'
        case Delete():
            only = handles or options.delete_only_output_handle_key_columns
            return f'{{"d":{_needed(row, images.image(row.before, handles=only), options, handles=only)}}}'
        case Update():
            return _update(row, images, options, handles=handles)


def _update(row: Update, images: TableForm, options: EncodeOptions, *, handles: bool) -> str:
    new = _needed(row, images.image(row.after, handles=handles), options, handles=handles)
    if not options.output_old_value:
        return f'{{"u":{new}}}'
    if options.only_output_updated_columns:
        old = images.changed(row.before, row.after, handles=handles)
    else:
        old = images.image(row.before, handles=handles)
    if not old and not options.newarch:
        return f'{{"u":{new}}}'
    return f'{{"u":{new},"p":{old or "{}"}}}'


def _needed(row: RowChange, image: str, options: EncodeOptions, *, handles: bool) -> str:
    if not image and (handles or options.newarch):
        raise HandleKeyMissing(_MISSING.format(f"{row.schema}.{row.table}"))
    if not image:
        raise EncodeError(f"a row of {row.schema}.{row.table} without any column")
    return image


VERSION_BYTES: Final = 8
EVENT_OVERHEAD: Final = 16
"""The two lengths before a key and its value."""

_VERSION: Final = (1).to_bytes(VERSION_BYTES, "big")
_LENGTH: Final = Struct(">Q")
_MAX_TABLES: Final = 4096


class Pair(NamedTuple):
    """One event before framing."""

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
        """Return a row; `cut` selects its columns and the key's mark."""
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
        prepared = self._ready.get((id(table), partition_id))
        if prepared is None:
            if max(len(self._ready), len(self._stale_flags)) >= _MAX_TABLES:
                self._ready.clear()
                self._stale_flags.clear()
            flags = None
            if partition_id is not None:
                fresh = {column.name: column.flag for column in table.columns}
                flags = self._stale_flags.setdefault(partition_id, fresh)
            prepared = self._ready[id(table), partition_id] = table, TableForm(table, self._options, flags)
        return prepared[1]

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
