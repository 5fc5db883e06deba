"""TiCDC Canal-JSON, reading: one Kafka message to its events.

    value  {"id":0, "database":…, "table":…, "pkNames":[…]|null, "isDdl":…, "type":…, "es":ms, "ts":ms, "sql":…,
            "sqlType":{…}, "mysqlType":{name: type text}, "old":[{name: text|null}]|null, "data":[{…}]|null,
            "_tidb":{"commitTs":…, "onlyHandleKey":…, "claimCheckLocation":…} or {"watermarkTs":…}}

    isDdl                    a DDL; `type` is Canal's word for it
    type TIDB_WATERMARK      a resolved timestamp
    INSERT, DELETE           the row stands in `data`, `old` does not count (before 5.4 it repeated the row)
    UPDATE                   `data` new, `old` the old row or only what changed; what `old` lacks is taken from `data`

The key of the Kafka message is not read.  Without `_tidb` there is no commit_ts: `es` (milliseconds) is all.
Members of `mysqlType` come in random order, those of `data` in table order.  TiCDC sends one row a message, official
Canal several, whose `old` belongs to `data` by position: those give several events.

Source: Canal-JSON document; recordings.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from tidegate.codec.canal.types import CODEC, ColumnKind, kind_of
from tidegate.codec.compression import decompress
from tidegate.codec.jsontext import parse
from tidegate.codec.kept import kept, width
from tidegate.codec.options import DecodeOptions
from tidegate.codec.values import MAX_RESOLVED_TS, check_columns, timestamp
from tidegate.model.errors import DecodeError
from tidegate.model.event import Ddl, Delete, Event, Field, Insert, Resolved, RowChange, Update, Values

OPTIONS: Final = DecodeOptions(protocol=CODEC)
WATERMARK: Final = "TIDB_WATERMARK"

LARGE: Final = 1 << 15
ROW_BYTES: Final = 16
"""A message above LARGE bytes has no rows shorter than this on average: objects would take many times its size."""

_NEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|(\}\s*+,\s*+\{)', re.DOTALL)
"""A string, to pass it, or what stands between two objects of a list."""

Image: TypeAlias = dict[str, str | None]


class _Tidb(msgspec.Struct, gc=False):
    """The TiDB extension."""

    commit_ts: int | None = msgspec.field(default=None, name="commitTs")
    watermark_ts: int | None = msgspec.field(default=None, name="watermarkTs")
    only_handle_key: bool | None = msgspec.field(default=None, name="onlyHandleKey")
    claim_check: str | None = msgspec.field(default=None, name="claimCheckLocation")


class _Message(msgspec.Struct, gc=False):
    """A message as on the wire; members that nothing is made of are left out."""

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
    """The columns of a row made ready: fields and how each is read."""

    fields: tuple[Field, ...]
    kinds: tuple[ColumnKind, ...]
    pk_names: tuple[str, ...]


_MESSAGE: Final = msgspec.json.Decoder(_Message)


def decode(key: bytes | None, value: bytes | None, options: DecodeOptions = OPTIONS) -> tuple[Event, ...]:  # noqa: ARG001
    """Return the events of one message; DecodeError for any bytes that are not one.

    One event, save for official Canal's messages of several rows; offsets count from the start of the value."""
    raw = value or b""
    if options.compression != "none":
        raw = decompress(raw, options.compression, CODEC, 0)
    if len(raw) > LARGE and raw.count(b"{") * ROW_BYTES > len(raw):
        _check_density(raw)
    message = parse(_MESSAGE, raw, CODEC, "message", 0)
    if message.is_ddl:
        return (_ddl(message),)
    if message.type == WATERMARK:
        return (_watermark(message),)
    read = _CHANGES.get(message.type)
    if read is None:
        raise DecodeError(f"type {message.type!a:.40} is no row change", CODEC, 0)
    if not message.database or not message.table:
        raise DecodeError("a row change names no table", CODEC, 0)
    if not message.data:
        raise DecodeError("a row change without `data`", CODEC, 0)
    return _rows(message, message.data, read, legacy=options.legacy)


def _check_density(raw: bytes) -> None:
    """DecodeError for more objects than rows could be; strings may be full of braces."""
    objects = sum(found.start(1) >= 0 for found in _NEXT.finditer(raw))
    if objects * ROW_BYTES > len(raw):
        raise DecodeError(f"{objects + 1} objects in {len(raw)} bytes: rows have {ROW_BYTES} at least", CODEC, 0)


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


def _watermark(message: _Message) -> Resolved:
    ts = message.tidb.watermark_ts if message.tidb else None
    if ts is None:
        raise DecodeError("a watermark without `_tidb.watermarkTs`", CODEC, 0)
    return Resolved(timestamp(ts, CODEC, 0, limit=MAX_RESOLVED_TS))


def _commit_ts(message: _Message) -> int | None:
    ts = message.tidb.commit_ts if message.tidb else None
    return None if ts is None else timestamp(ts, CODEC, 0)


def _ms(ms: int | None) -> int | None:
    return None if ms is None else timestamp(ms, CODEC, 0)


Read: TypeAlias = Callable[["_Carried", _Layout, Image, Image | None], RowChange]


class _Carried(msgspec.Struct, gc=False):
    """What all rows of a message share."""

    schema: str
    table: str
    commit_ts: int | None
    es_ms: int | None
    build_ms: int | None
    handle_only: bool
    claim_check: str | None


def _rows(message: _Message, data: list[Image], read: Read, *, legacy: bool) -> tuple[RowChange, ...]:
    """The events of `data`, which is emptied on the way: a row is held as text or as values, not as both."""
    old = message.old
    if old is not None and len(old) != len(data) and message.type == "UPDATE":
        raise DecodeError(f"{len(old)} old rows next to {len(data)} rows", CODEC, 0)
    tidb = message.tidb
    carried = _Carried(
        message.database or "",
        message.table or "",
        _commit_ts(message),
        _ms(message.es),
        _ms(message.ts),
        tidb is not None and bool(tidb.only_handle_key),
        tidb.claim_check or None if tidb else None,
    )
    types = message.mysql_type or {}
    pk_names = tuple(message.pk_names or ())
    rows: list[RowChange] = []
    data.reverse()
    for index in range(len(data)):
        image = data.pop()
        layout = _layout_of(tuple(image), tuple([types.get(name) for name in image]), pk_names, legacy)
        rows.append(read(carried, layout, image, old[index] if old is not None and index < len(old) else None))
    return tuple(rows)


@kept(lambda names, types, pk_names, _legacy: width(names) + sum(len(one or "") for one in types) + width(pk_names))
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
    return _Layout(tuple(fields), tuple(kinds), pk_names)


def _insert(carried: _Carried, layout: _Layout, image: Image, _old: Image | None) -> Insert:
    return Insert(
        schema=carried.schema,
        table=carried.table,
        fields=layout.fields,
        after=_values(layout, image),
        commit_ts=carried.commit_ts,
        pk_names=layout.pk_names,
        handle_only=carried.handle_only,
        claim_check=carried.claim_check,
        es_ms=carried.es_ms,
        build_ms=carried.build_ms,
    )


def _delete(carried: _Carried, layout: _Layout, image: Image, _old: Image | None) -> Delete:
    return Delete(
        schema=carried.schema,
        table=carried.table,
        fields=layout.fields,
        before=_values(layout, image),
        commit_ts=carried.commit_ts,
        pk_names=layout.pk_names,
        handle_only=carried.handle_only,
        claim_check=carried.claim_check,
        es_ms=carried.es_ms,
        build_ms=carried.build_ms,
    )


def _update(carried: _Carried, layout: _Layout, image: Image, old: Image | None) -> RowChange:
    if old is None:
        return _insert(carried, layout, image, None)
    if old.keys() != image.keys():
        unknown = old.keys() - image.keys()
        if unknown:
            raise DecodeError(f"column {min(unknown)!r} stands in `old` and not in `data`", CODEC, 0)
    after = _values(layout, image)
    return Update(
        schema=carried.schema,
        table=carried.table,
        fields=layout.fields,
        before=after if old == image else _values(layout, image | old),  # as for rows whose key alone came
        after=after,
        commit_ts=carried.commit_ts,
        pk_names=layout.pk_names,
        handle_only=carried.handle_only,
        claim_check=carried.claim_check,
        es_ms=carried.es_ms,
        build_ms=carried.build_ms,
    )


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


_CHANGES: Final[Mapping[str, Read]] = {"INSERT": _insert, "UPDATE": _update, "DELETE": _delete}
