"""TiCDC Open Protocol, reading: one Kafka message to its events.

    key     | version = 1 (8) | length (8) | event key JSON | length (8) | event key JSON | ...
    value   |                 | length (8) | event value    | length (8) | event value    | ...

All numbers are big-endian.  Value i belongs to key i; a resolved event has an empty value, and none at all when the
message has run out of bytes.  A message holds rows of any mix of tables, or DDL and resolved events; it may hold no
event.  Each value is compressed on its own, keys never are.

    key JSON   ts, scm, tbl, t = 1 row | 2 DDL | 3 resolved
               rid row id, ptn physical partition id, ohk only handle keys, ccl where the whole event lies
    DDL value  q statement, t TiDB's action code
    row value  u               INSERT, or an UPDATE whose sender leaves old values out
               u and p         UPDATE; `p` may be partial or {}: what it lacks did not change
               d               DELETE; all columns, or the handle key columns alone
    column     {"t": type code, "h": true if handle, "f": flags, "v": value}

    t                          v                                              value
    1 2 3 8 9 13 16 247 248    number                                         int
    4, 5                       number                                         float
    7 10 11 12 14 245 246 225  text                                           str
    15 253 254                 text; quoted by Go's rules when f has BINARY   str, or bytes
    249 250 251 252            base64, TEXT too                               str; bytes when f has BINARY or is absent
    any other                  any scalar                                     as it is

Members come in any order and may stand twice; the last one wins, as in Go.  Classic TiCDC leaves an empty `p` out,
so with only-output-updated-columns an UPDATE that changed no replicated column cannot be told from an INSERT; the
new architecture writes `"p":{}`, which is an UPDATE, but may lose names of columns in `p` (`named_old_image`).

Kept between messages: descriptions of columns, which are the same in all rows of a table and are checked once per
shape (`layout_of`).

Source: Open Protocol document; recordings of both emitters.
"""

import binascii
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from struct import Struct
from typing import Any, Final, TypeAlias

import msgspec

from tidegate.codec.compression import decompress
from tidegate.codec.go import unquote
from tidegate.codec.jsontext import full_of_lists, load_pairs, parse_json
from tidegate.codec.kept import kept, width
from tidegate.codec.options import DecodeOptions
from tidegate.codec.values import (
    INT_RANGES,
    MAX_RESOLVED_TS,
    ColumnForm,
    Form,
    check_columns,
    double,
    float32,
    integer_range,
    timestamp,
)
from tidegate.model.errors import DecodeError, redacted_value
from tidegate.model.event import Ddl, Delete, Event, Field, Insert, Resolved, RowChange, Update, Value, Values
from tidegate.model.mysql import BLOBS, CHARS, FLOATS, PRINTED_TYPES, ColumnFlag, MysqlType
from tidegate.model.table import COLUMNS_MAX

CODEC: Final = "open-protocol"

Read: TypeAlias = Callable[[object], Value]
Shape: TypeAlias = tuple[tuple[str, int, int | None, bool], ...]
"""(name, type, flag, handle) of each column, in message order."""


_PRINTED: Final = PRINTED_TYPES | {MysqlType.JSON}


class OpenColumn(msgspec.Struct, gc=False):
    """One column of an image on the wire."""

    t: int
    v: int | float | str | None = None
    f: int | None = None
    h: bool = False


class WireLayout(msgspec.Struct, frozen=True):
    """A prepared shape: its fields and the reader of each column's values."""

    fields: tuple[Field, ...]
    reads: tuple[Read, ...]


def shape_of(columns: dict[str, OpenColumn]) -> Shape:
    """Return the shape of an image, the key of `layout_of`."""
    return tuple([(name, column.t, column.f, column.h) for name, column in columns.items()])


@kept(lambda shape, _legacy: width(column[0] for column in shape))
def layout_of(shape: Shape, legacy: bool) -> WireLayout:  # noqa: FBT001 - by position, as `kept` wants it
    """Return fields and readers of a shape; DecodeError for columns, a type code or a flag that cannot be."""
    check_columns([column[0] for column in shape], CODEC)
    fields = tuple(_field(*column) for column in shape)
    return WireLayout(fields, tuple(_reader(field, legacy=legacy) for field in fields))


def _field(name: str, code: int, flag: int | None, handle: bool) -> Field:  # noqa: FBT001 - a row of Shape
    if not 0 <= code <= 0xFF:
        raise DecodeError(f"column {name!r} has type code {code}", CODEC, 0)
    if flag is None:
        return Field(name, code, handle=handle)
    if not 0 <= flag < 1 << 31:
        raise DecodeError(f"column {name!r} has flag {flag}", CODEC, 0)
    unsigned, binary = bool(flag & ColumnFlag.UNSIGNED), bool(flag & ColumnFlag.BINARY)
    return Field(name, code, flag, unsigned=unsigned, binary=binary, handle=handle)


@lru_cache(maxsize=4096)
def form_of(field: Field, *, legacy: bool) -> ColumnForm | None:
    """Return the wire form of a column's values; None for types that hold any scalar."""
    if field.type in INT_RANGES:
        return ColumnForm(Form.INTEGER, *integer_range(field.type, unsigned=field.unsigned))
    if field.type in CHARS:
        coded = legacy and field.flag is None
        return ColumnForm(Form.BASE64_TEXT if coded else Form.QUOTED if field.binary else Form.TEXT)
    if field.type in BLOBS:
        return ColumnForm(Form.BASE64 if field.binary or field.flag is None else Form.BASE64_TEXT)
    if field.type in FLOATS:
        return ColumnForm(Form.FLOAT if field.type == MysqlType.FLOAT else Form.DOUBLE)
    return ColumnForm(Form.TEXT) if field.type in _PRINTED else None


def _reader(field: Field, *, legacy: bool) -> Read:
    column = form_of(field, legacy=legacy)
    if column is None:
        return _scalar
    if column.form is Form.INTEGER:
        return partial(_integer, column.low, column.high)
    return _READERS[column.form]


def _integer(low: int, high: int, value: object) -> Value:
    if type(value) is int and low <= value <= high:
        return value
    raise DecodeError(f"{redacted_value(value)} is not an integer from {low} to {high}", CODEC, 0)


def _float(value: object) -> Value:
    if type(value) is float or type(value) is int:
        return float32(double(value, CODEC), CODEC)
    raise _not_a("number", value)


def _double(value: object) -> Value:
    if type(value) is float or type(value) is int:
        return double(value, CODEC)
    raise _not_a("number", value)


def _text(value: object) -> Value:
    if type(value) is str:
        return value
    raise _not_a("string", value)


def _quoted(value: object) -> Value:
    if type(value) is str:
        return unquote(value, CODEC)
    raise _not_a("string", value)


def _base64(value: object) -> bytes:
    if type(value) is not str:
        raise _not_a("string", value)
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except ValueError as error:
        raise DecodeError(f"not base64: {error}", CODEC, 0) from error


def _scalar(value: object) -> Value:
    """A value of a type that is newer than this table, or of the type NULL."""
    if type(value) is str or (type(value) is int and -(1 << 63) <= value < 1 << 64):
        return value
    if type(value) is float:
        return double(value, CODEC)
    raise _not_a("scalar", value)


def _not_a(kind: str, value: object) -> DecodeError:
    return DecodeError(f"{redacted_value(value)} is not a {kind}", CODEC, 0)


_READERS: Final[dict[Form, Read]] = {
    Form.FLOAT: _float,
    Form.DOUBLE: _double,
    Form.TEXT: _text,
    Form.QUOTED: _quoted,
    Form.BASE64: _base64,
    Form.BASE64_TEXT: lambda value: _base64(value).decode("utf-8", "surrogateescape"),
}


_Entry = tuple[str | None, OpenColumn]


def named_old_image(raw: bytes, offset: int) -> tuple[dict[str, OpenColumn], dict[str, OpenColumn]] | None:
    """Return `u` and `p` of a row value, with the names of `p` restored; None when `raw` has no such old image.

    With only-output-updated-columns the new-architecture emitter forgets to open an object for a column that became
    NULL: the members of that column land in `p` itself, again and again under the same names.

        {"u": {"id": {...}, "a": {"t":1,"f":65,"v":null}, "b": {"t":8,"f":65,"v":null}},
         "p": {"t":1,"f":65,"v":127,                       "t":8,"f":65,"v":9}}

    The columns follow from what is left: `u` and `p` are both in table order, an unnamed column is NULL in `u` and
    has the same type, flag and handle there.  Matching from the left and from the right must give the same columns;
    when they differ, more than one reading is possible and the row is refused rather than guessed."""
    if full_of_lists(raw):
        return None
    try:
        row = load_pairs(raw)
        if not isinstance(row, tuple):
            return None
        images = {name: image for name, image in row if isinstance(image, tuple)}
        if {"u", "p"} - images.keys() or not any(not isinstance(member, tuple) for _, member in images["p"]):
            return None
        if max(len(images["u"]), len(images["p"])) > 4 * COLUMNS_MAX:
            return None
        after = {name: _column(dict(column)) for name, column in images["u"]}
        entries = _entries(images["p"])
    except (ValueError, TypeError, RecursionError):
        return None
    if entries is None:
        return None
    columns = list(after.items())
    left = _match(columns, entries)
    right = _match(columns[::-1], entries[::-1])
    if left is None or right is None:
        raise DecodeError("members without a column name in `p` fit no columns of `u`", CODEC, offset)
    if left != right[::-1]:
        raise DecodeError("members without a column name in `p` fit several columns of `u`", CODEC, offset)
    return after, {name: column for name, (_, column) in zip(left, entries, strict=True)}


def _column(members: dict[str, object]) -> OpenColumn:
    return msgspec.convert(members, OpenColumn)


def _entries(pairs: tuple[tuple[str, object], ...]) -> list[_Entry] | None:
    """The columns of `p` in order, unnamed ones with None; None when a stray member belongs to no column."""
    entries: list[tuple[str | None, dict[str, object]]] = []
    for name, member in pairs:
        if isinstance(member, tuple):
            entries.append((name, dict(member)))
        elif name == "t":
            entries.append((None, {"t": member}))
        elif name in {"h", "f", "v"} and entries and entries[-1][0] is None and name not in entries[-1][1]:
            entries[-1][1][name] = member
        else:
            return None
    if any(name is None and members.get("v") is None for name, members in entries):
        return None
    return [(name, _column(members)) for name, members in entries]


def _match(columns: list[tuple[str, OpenColumn]], entries: list[_Entry]) -> list[str] | None:
    """The name of each entry when every one takes the first column that it can; None if one finds none."""
    names: list[str] = []
    index = 0
    for name, old in entries:
        while index < len(columns) and not _fits(name, old, *columns[index]):
            index += 1
        if index == len(columns):
            return None
        names.append(columns[index][0])
        index += 1
    return names


def _fits(old_name: str | None, old: OpenColumn, name: str, new: OpenColumn) -> bool:
    if old_name is not None:
        return old_name == name
    return new.v is None and (new.t, new.f, new.h) == (old.t, old.f, old.h)


class _Row(msgspec.Struct, gc=False):
    u: dict[str, OpenColumn] | None = None
    p: dict[str, OpenColumn] | None = None
    d: dict[str, OpenColumn] | None = None


class _Cell(msgspec.Struct, gc=False):
    """A column whose value is not parsed."""

    v: msgspec.Raw = msgspec.Raw(b"null")


class _Images(msgspec.Struct, gc=False):
    """A row in which to find an invalid value."""

    u: dict[str, _Cell] | None = None
    p: dict[str, _Cell] | None = None
    d: dict[str, _Cell] | None = None


RowKey: TypeAlias = dict[str, Any]
"""The members of a row that are in its key, checked."""

_ROW: Final = msgspec.json.Decoder(_Row)
_IMAGES: Final = msgspec.json.Decoder(_Images)
_CELL: Final = msgspec.json.Decoder(OpenColumn)


def read_row(key: RowKey, raw: bytes, offset: int, *, legacy: bool) -> RowChange:
    """Return the change in `raw`; `offset` is its position in the message."""
    row = _parse(raw, offset)
    new, old, gone = row.u, row.p, row.d
    if gone is not None:
        if new is not None or old is not None:
            raise DecodeError("a row with `d` next to `u` or `p`", CODEC, offset)
        layout = layout_of(shape_of(gone), legacy)
        return Delete(fields=layout.fields, before=_values(layout, gone), **key)
    if new is None:
        raise DecodeError("a row without `u` and `d`", CODEC, offset)
    shape = shape_of(new)
    layout = layout_of(shape, legacy)
    after = _values(layout, new)
    if old is None:
        return Insert(fields=layout.fields, after=after, **key)
    before = _values(layout, old) if shape_of(old) == shape else _filled(new, after, old, legacy=legacy)
    return Update(fields=layout.fields, before=before, after=after, **key)


def _parse(raw: bytes, offset: int) -> _Row:
    try:
        return parse_json(_ROW, raw, CODEC, "row value", offset)
    except DecodeError:
        named = named_old_image(raw, offset)
        if named is None:
            _blame_text(raw, offset)
            raise
        return _Row(u=named[0], p=named[1])


def _blame_text(raw: bytes, offset: int) -> None:
    """Raises an error with the name of the first column whose value is no value at all, such as a list."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        row = _IMAGES.decode(raw)
        for image in (row.u, row.p, row.d):
            for name, cell in (image or {}).items():
                try:
                    _CELL.decode(b'{"t":0,"v":%b}' % bytes(cell.v))
                except msgspec.ValidationError as error:
                    what = str(error).removesuffix(" - at `$.v`")
                    raise DecodeError(f"column {name!r}: {what}", CODEC, offset) from error


def _filled(new: dict[str, OpenColumn], after: Values, old: dict[str, OpenColumn], *, legacy: bool) -> Values:
    """The old image in the order of `new`, columns that it lacks taken from there."""
    unknown = old.keys() - new.keys()
    if unknown:
        raise DecodeError(f"column {min(unknown)!r} stands in `p` and not in `u`", CODEC, 0)
    layout = layout_of(shape_of(old), legacy)
    own = dict(zip(old, _values(layout, old), strict=True))
    return tuple([own.get(name, value) if name in own else value for name, value in zip(new, after, strict=True)])


def _values(layout: WireLayout, columns: dict[str, OpenColumn]) -> Values:
    try:
        return tuple(
            [
                None if column.v is None else read(column.v)
                for read, column in zip(layout.reads, columns.values(), strict=True)
            ]
        )
    except DecodeError:
        _blame(layout, columns)
        raise


def _blame(layout: WireLayout, columns: dict[str, OpenColumn]) -> None:
    """Raises the error of the first bad value with its column in front."""
    for field, read, column in zip(layout.fields, layout.reads, columns.values(), strict=True):
        try:
            if column.v is not None:
                read(column.v)
        except DecodeError as error:
            raise DecodeError(f"column {field.name!r} (type {field.type}): {error.what}", CODEC, 0) from error


OPTIONS: Final = DecodeOptions(protocol=CODEC)
VERSION: Final = 1

_RESOLVED: Final = 3
_LENGTH: Final = Struct(">Q")


class _Key(msgspec.Struct, gc=False):
    ts: int
    t: int
    scm: str | None = None
    tbl: str | None = None
    rid: int | None = None
    ptn: int | None = None
    ohk: bool | None = None
    ccl: str | None = None


class _DdlValue(msgspec.Struct, gc=False):
    q: str
    t: int


ReadEvent: TypeAlias = Callable[[_Key, bytes, int, DecodeOptions], Event]

_KEY: Final = msgspec.json.Decoder(_Key)
_DDL: Final = msgspec.json.Decoder(_DdlValue)


def decode_open(key: bytes | None, value: bytes | None, options: DecodeOptions = OPTIONS) -> tuple[Event, ...]:
    """Return the events of one message, in order; DecodeError for any bytes that are not one.

    The offset of an error counts from the start of the value, or of the key where its text says so."""
    keys, values = key or b"", value or b""
    if len(keys) < _LENGTH.size:
        raise DecodeError(f"a key of {len(keys)} bytes has no protocol version", CODEC, 0)
    version = _LENGTH.unpack_from(keys)[0]
    if version != VERSION:
        raise DecodeError(f"protocol version {version} is not {VERSION}", CODEC, 0)
    events: list[Event] = []
    key_at, value_at, plain = _LENGTH.size, 0, 0
    while key_at < len(keys):
        text, start = _take(keys, key_at, "key")
        head = parse_json(_KEY, text, CODEC, f"key of event {len(events)}", start)
        key_at = start + len(text)
        body, body_start = b"", value_at
        if head.t != _RESOLVED or value_at < len(values):
            body, body_start = _take(values, value_at, "value")
            value_at = body_start + len(body)
        try:
            if body and options.compression != "none":
                body = decompress(body, options.compression, CODEC, body_start, plain)
                plain += len(body)
            events.append(_event(head, body, body_start, options))
        except DecodeError as error:
            raise DecodeError(f"event {len(events)}: {error.what}", CODEC, error.offset or body_start) from error
    if value_at < len(values) and (events or any(values)):
        raise DecodeError(f"the value goes on after its {len(events)} events", CODEC, value_at)
    return tuple(events)


def _take(buffer: bytes, offset: int, name: str) -> tuple[bytes, int]:
    """The length-prefixed bytes at `offset`, and where they start."""
    start = offset + _LENGTH.size
    if start > len(buffer):
        raise DecodeError(f"the {name} ends within a length", CODEC, offset)
    size = _LENGTH.unpack_from(buffer, offset)[0]
    if size > len(buffer) - start:
        raise DecodeError(f"the {name} has {len(buffer) - start} of {size} bytes", CODEC, offset)
    return buffer[start : start + size], start


def _event(head: _Key, body: bytes, offset: int, options: DecodeOptions) -> Event:
    read = _EVENTS.get(head.t)
    if read is None:
        raise DecodeError(f"event type {head.t:#x} is not 1, 2 or 3", CODEC, offset)
    return read(head, body, offset, options)


def _row(head: _Key, body: bytes, offset: int, options: DecodeOptions) -> Event:
    if not head.scm or not head.tbl:
        raise DecodeError("its key names no table", CODEC, offset)
    for number in (head.rid, head.ptn):
        if number is not None and not -(1 << 63) <= number < 1 << 63:
            raise DecodeError(f"row or partition id {number:#x} has more than 64 bits", CODEC, offset)
    key: RowKey = {
        "schema": head.scm,
        "table": head.tbl,
        "commit_ts": timestamp(head.ts, CODEC, offset),
        "row_id": head.rid,
        "partition_id": head.ptn,
        "handle_only": bool(head.ohk),
        "claim_check": head.ccl or None,
    }
    return read_row(key, body, offset, legacy=options.legacy)


def _ddl(head: _Key, body: bytes, offset: int, _options: DecodeOptions) -> Event:
    ddl = parse_json(_DDL, body, CODEC, "DDL value", offset)
    if not 0 <= ddl.t <= 0xFF:
        raise DecodeError(f"DDL type {ddl.t:#x} is not an action code", CODEC, offset)
    commit_ts = timestamp(head.ts, CODEC, offset)
    return Ddl(schema=head.scm or "", table=head.tbl or "", query=ddl.q, commit_ts=commit_ts, type=ddl.t)


def _resolved(head: _Key, body: bytes, offset: int, _options: DecodeOptions) -> Event:
    if body:
        raise DecodeError(f"a resolved event with a value of {len(body)} bytes", CODEC, offset)
    return Resolved(timestamp(head.ts, CODEC, offset, limit=MAX_RESOLVED_TS))


_EVENTS: Final[Mapping[int, ReadEvent]] = {1: _row, 2: _ddl, _RESOLVED: _resolved}
