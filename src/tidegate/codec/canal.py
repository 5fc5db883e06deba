"""TiCDC Canal-JSON, reading: one Kafka message to its events.

    value  {"id":0, "database":…, "table":…, "pkNames":[…]|null, "isDdl":…, "type":…, "es":ms, "ts":ms, "sql":…,
            "sqlType":{…}, "mysqlType":{name: type text}, "old":[{name: text|null}]|null, "data":[{…}]|null,
            "_tidb":{"commitTs":…, "onlyHandleKey":…, "claimCheckLocation":…} or {"watermarkTs":…}}

    isDdl                    a DDL; `type` is Canal's word for it
    type TIDB_WATERMARK      a resolved timestamp
    INSERT, DELETE           the row is in `data`; `old` is ignored (before 5.4 it repeated the row)
    UPDATE                   `data` new, `old` the old row or only what changed; what `old` lacks is taken from `data`

The key of the Kafka message is not read.  Without `_tidb` there is no commit_ts, only `es` (milliseconds).  Members
of `mysqlType` come in random order, those of `data` in table order.  TiCDC sends one row a message, official Canal
several, whose `old` belongs to `data` by position: those give several events.

`mysqlType` determines how the strings of `data` are read; parameters in parentheses may hold any text: int(11),
int(10) unsigned zerofill, decimal(10, 4), enum('a','b)').

    name                                       value
    tinyint smallint mediumint int bigint      int; BOOL arrives as tinyint
    bit year enum set                          int: number, year, index, mask
    float, double                              float
    any name with "binary" or "blob" in it     bytes: the code points U+0000 to U+00FF are the bytes
    all others                                 str; a type that this table does not know is read as VARCHAR

Official Canal sends ENUM and SET as names; with `legacy` those become numbers where mysqlType lists the elements,
and stay text where it does not.

Source: Canal-JSON document, "MySQL Type field" and "Binary and Blob types"; recordings.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from tidegate.codec.compression import decompress
from tidegate.codec.jsontext import parse_json
from tidegate.codec.kept import kept, width
from tidegate.codec.options import DecodeOptions
from tidegate.codec.values import INT_RANGES, MAX_RESOLVED_TS, check_columns, double, float32, integer_range, timestamp
from tidegate.model.errors import DecodeError, redacted_value
from tidegate.model.event import Ddl, Delete, Event, Field, Insert, Resolved, RowChange, Update, Value, Values
from tidegate.model.mysql import NAMED, STRINGS, UNDECLARED, MysqlType, sql_name

CODEC: Final = "canal-json"

Read: TypeAlias = Callable[[str], Value]

NAMES: Final[dict[str, MysqlType]] = {
    **{sql_name(code): code for code in MysqlType if code not in UNDECLARED},
    **{sql_name(code, binary=True): code for code in STRINGS},
    "bool": MysqlType.TINY,
    "boolean": MysqlType.TINY,
    "integer": MysqlType.LONG,
    "real": MysqlType.DOUBLE,
    "numeric": MysqlType.DECIMAL,
}
"""The type code of each name; text and binary kinds share codes, as they do in TiDB."""

SET_MAX: Final = 64
"""Names of a SET: its value has a bit for each."""

_NAME: Final = re.compile(r"\s*([A-Za-z_]+)")
_INTEGER: Final = re.compile(r"-?[0-9]{1,30}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{0,1200})?(?:[eE][-+]?[0-9]{1,4})?")
_ELEMENT: Final = re.compile(r"'((?:[^'\\]|''|\\.)*+)('?)", re.DOTALL)
"""An element and its closing quote, which may be missing, so that no quote is scanned twice."""
_ESCAPE: Final = re.compile(r"''|\\(.)", re.DOTALL)


class ColumnKind(msgspec.Struct, frozen=True):
    """A parsed mysqlType: type code, sign, whether values are bytes, and the reader of non-null values."""

    code: MysqlType
    unsigned: bool
    binary: bool
    read: Read


@kept(lambda mysql_type, _legacy: width([mysql_type, mysql_type]))
def kind_of(mysql_type: str, legacy: bool) -> ColumnKind:  # noqa: FBT001 - by position, as `kept` wants it
    """Return the kind of column that `mysql_type` describes."""
    match = _NAME.match(mysql_type)
    name = match[1].lower() if match else ""
    code = NAMES.get(name, MysqlType.VARCHAR)
    unsigned = "unsigned" in mysql_type.rpartition(")")[2].lower()
    binary = "binary" in name or "blob" in name
    return ColumnKind(
        code, unsigned, binary, _reader(code, mysql_type, unsigned=unsigned, binary=binary, legacy=legacy)
    )


def _reader(code: MysqlType, mysql_type: str, *, unsigned: bool, binary: bool, legacy: bool) -> Read:
    if binary:
        return _latin1
    if legacy and code in NAMED:
        return partial(_named, code, _numbered(_elements(mysql_type)))
    if code in INT_RANGES:
        return partial(_integer, *integer_range(code, unsigned=unsigned))
    return _READERS.get(code, str)


def _integer(low: int, high: int, text: str) -> Value:
    if _INTEGER.fullmatch(text):
        number = int(text)
        if low <= number <= high:
            return number
    raise DecodeError(f"{redacted_value(text)} is not an integer from {low} to {high}", CODEC, 0)


def _double(text: str) -> float:
    if _NUMBER.fullmatch(text):
        return double(float(text), CODEC)
    raise DecodeError(f"{redacted_value(text)} is not a number", CODEC, 0)


def _float(text: str) -> Value:
    return float32(_double(text), CODEC)


def _latin1(text: str) -> Value:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError as error:
        raise DecodeError(f"a binary value with the code point U+{ord(text[error.start]):04X}", CODEC, 0) from error


def _named(code: MysqlType, elements: dict[str, int], text: str) -> Value:
    """Official Canal's ENUM or SET: a number, or names."""
    if _INTEGER.fullmatch(text) and text not in elements:
        return _integer(*integer_range(code, unsigned=True), text)
    if code is MysqlType.ENUM:
        return elements[text] + 1 if text in elements else text
    names = set(text.split(",")) if text else set[str]()
    fits = len(names) <= SET_MAX and all(elements.get(name, SET_MAX) < SET_MAX for name in names)
    return sum(1 << elements[name] for name in names) if fits else text


def _numbered(elements: tuple[str, ...]) -> dict[str, int]:
    """The first index of each name."""
    return {name: len(elements) - 1 - back for back, name in enumerate(reversed(elements))}


def _elements(mysql_type: str) -> tuple[str, ...]:
    """The names of an ENUM or SET as SQL strings; () when none are given."""
    quoted = [text for text, end in _ELEMENT.findall(mysql_type) if end]
    return tuple(_ESCAPE.sub(lambda escape: escape[1] or "'", text) for text in quoted)


_READERS: Final[dict[MysqlType, Read]] = {MysqlType.FLOAT: _float, MysqlType.DOUBLE: _double}
"""Readers of the types that are neither integers nor text."""


OPTIONS: Final = DecodeOptions(protocol=CODEC)
WATERMARK: Final = "TIDB_WATERMARK"

LARGE: Final = 1 << 15
ROW_BYTES: Final = 16
"""The least average size of rows in a message above LARGE bytes; objects of shorter ones would take many times its
size."""

_NEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|(\}\s*+,\s*+\{)', re.DOTALL)
"""A string, which is skipped, or the separator of two objects in a list."""

Image: TypeAlias = dict[str, str | None]


class _Tidb(msgspec.Struct, gc=False):
    commit_ts: int | None = msgspec.field(default=None, name="commitTs")
    watermark_ts: int | None = msgspec.field(default=None, name="watermarkTs")
    only_handle_key: bool | None = msgspec.field(default=None, name="onlyHandleKey")
    claim_check: str | None = msgspec.field(default=None, name="claimCheckLocation")


class _Message(msgspec.Struct, gc=False):
    """A message on the wire. Members without effect are left out."""

    type: str
    database: str | None = None
    table: str | None = None
    pk_names: list[str] | None = msgspec.field(default=None, name="pkNames")
    is_ddl: bool = msgspec.field(default=False, name="isDdl")
    es: int | None = None
    ts: int | None = None
    sql: str | None = None
    mysql_type: dict[str, str] | None = msgspec.field(default=None, name="mysqlType")
    old: list[Image] | None = None
    data: list[Image] | None = None
    tidb: _Tidb | None = msgspec.field(default=None, name="_tidb")


class _Layout(msgspec.Struct, frozen=True):
    fields: tuple[Field, ...]
    kinds: tuple[ColumnKind, ...]


_MESSAGE: Final = msgspec.json.Decoder(_Message)


def decode_canal(key: bytes | None, value: bytes | None, options: DecodeOptions = OPTIONS) -> tuple[Event, ...]:  # noqa: ARG001
    """Return the events of one message; DecodeError for any bytes that are not one.

    One event, save for official Canal's messages of several rows; offsets count from the start of the value."""
    raw = value or b""
    if options.compression != "none":
        raw = decompress(raw, options.compression, CODEC, 0)
    if len(raw) > LARGE and raw.count(b"{") * ROW_BYTES > len(raw):
        objects = sum(match.start(1) >= 0 for match in _NEXT.finditer(raw))  # strings may be full of braces
        if objects * ROW_BYTES > len(raw):
            raise DecodeError(f"{objects + 1} objects in {len(raw)} bytes: rows have {ROW_BYTES} at least", CODEC, 0)
    message = parse_json(_MESSAGE, raw, CODEC, "message", 0)
    if message.is_ddl:
        return (_ddl(message),)
    if message.type == WATERMARK:
        ts = message.tidb.watermark_ts if message.tidb else None
        if ts is None:
            raise DecodeError("a watermark without `_tidb.watermarkTs`", CODEC, 0)
        return (Resolved(timestamp(ts, CODEC, 0, limit=MAX_RESOLVED_TS)),)
    read = _CHANGES.get(message.type)
    if read is None:
        raise DecodeError(f"type {message.type!a:.40} is no row change", CODEC, 0)
    if not message.database or not message.table:
        raise DecodeError("a row change names no table", CODEC, 0)
    if not message.data:
        raise DecodeError("a row change without `data`", CODEC, 0)
    return _rows(message, message.data, read, legacy=options.legacy)


def _ddl(message: _Message) -> Ddl:
    return Ddl(
        schema=message.database or "",
        table=message.table or "",
        query=message.sql or "",
        canal_type=message.type,
        commit_ts=_commit_ts(message),
        es_ms=_ms(message.es),
        build_ms=_ms(message.ts),
    )


def _commit_ts(message: _Message) -> int | None:
    ts = message.tidb.commit_ts if message.tidb else None
    return None if ts is None else timestamp(ts, CODEC, 0)


def _ms(ms: int | None) -> int | None:
    return None if ms is None else timestamp(ms, CODEC, 0)


Shared: TypeAlias = dict[str, Any]
"""The members that all rows of a message share."""

ReadRow: TypeAlias = Callable[[Shared, _Layout, Image, Image | None], RowChange]


def _rows(message: _Message, data: list[Image], read: ReadRow, *, legacy: bool) -> tuple[RowChange, ...]:
    """The events of `data`, which is emptied on the way: a row is held as text or as values, not as both."""
    old = message.old
    if old is not None and len(old) != len(data) and message.type == "UPDATE":
        raise DecodeError(f"{len(old)} old rows next to {len(data)} rows", CODEC, 0)
    tidb = message.tidb
    types = message.mysql_type or {}
    pk_names = tuple(message.pk_names or ())
    shared: Shared = {
        "schema": message.database,
        "table": message.table,
        "commit_ts": _commit_ts(message),
        "pk_names": pk_names,
        "handle_only": tidb is not None and bool(tidb.only_handle_key),
        "claim_check": tidb.claim_check or None if tidb else None,
        "es_ms": _ms(message.es),
        "build_ms": _ms(message.ts),
    }
    rows: list[RowChange] = []
    data.reverse()
    for index in range(len(data)):
        image = data.pop()
        layout = _layout_of(tuple(image), tuple([types.get(name) for name in image]), pk_names, legacy)
        rows.append(read(shared, layout, image, old[index] if old is not None and index < len(old) else None))
    return tuple(rows)


@kept(lambda names, types, pk_names, _legacy: width(names) + sum(len(name or "") for name in types) + width(pk_names))
def _layout_of(
    names: tuple[str, ...],
    types: tuple[str | None, ...],
    pk_names: tuple[str, ...],
    legacy: bool,  # noqa: FBT001 - by position, as `kept` wants it
) -> _Layout:
    check_columns(names, CODEC)
    fields: list[Field] = []
    kinds: list[ColumnKind] = []
    keys = frozenset(pk_names)
    for name, mysql_type in zip(names, types, strict=True):
        if mysql_type is None:
            raise DecodeError(f"column {name!r} has no mysqlType", CODEC, 0)
        kind = kind_of(mysql_type, legacy)
        kinds.append(kind)
        fields.append(
            Field(
                name,
                kind.code,
                mysql_type=mysql_type,
                unsigned=kind.unsigned,
                binary=kind.binary,
                handle=name in keys,
            )
        )
    return _Layout(tuple(fields), tuple(kinds))


def _insert(shared: Shared, layout: _Layout, image: Image, _old: Image | None) -> Insert:
    return Insert(fields=layout.fields, after=_values(layout, image), **shared)


def _delete(shared: Shared, layout: _Layout, image: Image, _old: Image | None) -> Delete:
    return Delete(fields=layout.fields, before=_values(layout, image), **shared)


def _update(shared: Shared, layout: _Layout, image: Image, old: Image | None) -> RowChange:
    if old is None:
        return _insert(shared, layout, image, None)
    if old.keys() != image.keys():
        unknown = old.keys() - image.keys()
        if unknown:
            raise DecodeError(f"column {min(unknown)!r} stands in `old` and not in `data`", CODEC, 0)
    after = _values(layout, image)
    before = after if old == image else _values(layout, image | old)  # as for rows whose key alone came
    return Update(fields=layout.fields, before=before, after=after, **shared)


def _values(layout: _Layout, image: Image) -> Values:
    """The values of an image whose members are in the layout's order."""
    try:
        return tuple(
            [None if text is None else kind.read(text) for kind, text in zip(layout.kinds, image.values(), strict=True)]
        )
    except DecodeError:
        _blame(layout, image)
        raise


def _blame(layout: _Layout, image: Image) -> None:
    """Raises the error of the first bad value with its column in front."""
    for field, kind, text in zip(layout.fields, layout.kinds, image.values(), strict=True):
        try:
            if text is not None:
                kind.read(text)
        except DecodeError as error:
            raise DecodeError(f"column {field.name!r} ({field.mysql_type:.40}): {error.what}", CODEC, 0) from error


_CHANGES: Final[Mapping[str, ReadRow]] = {"INSERT": _insert, "UPDATE": _update, "DELETE": _delete}
