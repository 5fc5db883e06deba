"""Event JSON: one object per event, the same for every protocol.

    {"kind":"row", "op", "schema", "table", "commit_ts", "columns":[…]|null, "pre_columns":[…]|null,
     "pk_names", "row_id", "physical_table_id", "es_ms", "only_handle_key":true, "claim_check":location}
    {"kind":"ddl", "schema", "table", "commit_ts", "type", "canal_type", "es_ms", "query"}
    {"kind":"resolved", "ts"}
    {"kind":"error", "message_index", "offset", "error", "code"}

    column   {"name", "type": MySQL type code, "flag": TiCDC's flags, "value"}

    value    null               any type
             {"i": n}           signed integers, YEAR
             {"u": n}           unsigned integers, BIT, ENUM (index), SET (mask)
             {"f32": x, "s": t} FLOAT: the exact double, and the shortest digits that name the float, as Go prints it
             {"f64": x}         DOUBLE
             {"s": text}        text; DECIMAL, times and JSON as TiDB prints them
             {"b": base64}      binary, and text that is not UTF-8
             {"vec": "[1,2]"}   VECTOR

Members that a message lacks are absent.  Names and statements that are not UTF-8 show U+FFFD for each bad byte; values
never do.

Source: the event lines of the recordings.
"""

import binascii
import json
import re
from collections.abc import Callable
from typing import Final

import msgspec

from tidegate.codec.go import general32
from tidegate.model.errors import TidegateError
from tidegate.model.event import Ddl, Delete, Event, Field, Insert, Resolved, RowChange, Update, Value, Values, images
from tidegate.model.mysql import UNSIGNED_TYPES, MysqlType

Json = dict[str, object]

_UNSEEN: Final = re.compile(b"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]")
"""Characters that JSON allows, but that control a terminal or end a line: see model/name.py."""
_MAX_SIGNED: Final = (1 << 63) - 1


def render(line: object) -> bytes:
    """Return one line of JSON, without its line feed, that is safe for terminals and for readers that also break at
    U+0085, U+2028 and U+2029. Remaining bytes that are not UTF-8 are escaped, too."""
    try:
        text = msgspec.json.encode(line)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(line)).encode()
    return _UNSEEN.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), text)


def event_object(event: Event) -> Json:
    """Return the Event JSON object of `event`."""
    match event:
        case Resolved():
            return {"kind": "resolved", "ts": event.ts}
        case Ddl():
            return _ddl(event)
        case _:
            return _row(event)


def error_object(index: int, error: TidegateError) -> Json:
    """Return the error object of message number `index`, which could not be read."""
    what = {"kind": "error", "message_index": index, "offset": getattr(error, "offset", None)}
    return {**what, "error": _shown(str(error)), "code": error.code}


def _ddl(ddl: Ddl) -> Json:
    return _present(
        {
            "kind": "ddl",
            "schema": _shown(ddl.schema),
            "table": _shown(ddl.table),
            "commit_ts": ddl.commit_ts,
            "type": ddl.type,
            "canal_type": _shown(ddl.canal_type) or None,
            "es_ms": ddl.es_ms,
            "query": _shown(ddl.query),
        }
    )


def _row(row: RowChange) -> Json:
    before, after = images(row)
    marks: Json = {
        "commit_ts": row.commit_ts,
        "es_ms": row.es_ms,
        "physical_table_id": row.partition_id,
        "row_id": row.row_id,
        "pk_names": None if row.pk_names is None else [_shown(name) for name in row.pk_names],
        "only_handle_key": row.handle_only or None,
        "claim_check": None if row.claim_check is None else _shown(row.claim_check),
    }
    return {
        "kind": "row",
        "op": _OPS[type(row)],
        "schema": _shown(row.schema),
        "table": _shown(row.table),
        **_present(marks),
        "columns": _image(row.fields, after),
        "pre_columns": _image(row.fields, before),
    }


def _present(members: Json) -> Json:
    return {name: value for name, value in members.items() if value is not None}


def _image(fields: tuple[Field, ...], values: Values | None) -> list[Json] | None:
    if values is None:
        return None
    return [_column(field, value) for field, value in zip(fields, values, strict=True)]


def _column(field: Field, value: Value) -> Json:
    shown: Json = {"name": _shown(field.name), "type": int(field.type)}
    if field.flag is not None:
        shown["flag"] = field.flag
    shown["value"] = None if value is None else _VALUES[type(value)](field, value)
    return shown


def _integer(field: Field, value: Value) -> Json:
    assert isinstance(value, int)
    unsigned = field.type in UNSIGNED_TYPES or (field.unsigned and field.type != MysqlType.YEAR)
    return {"u" if unsigned or value > _MAX_SIGNED else "i": value}


def _float(field: Field, value: Value) -> Json:
    assert isinstance(value, float)
    return {"f32": value, "s": general32(value)} if field.type == MysqlType.FLOAT else {"f64": value}


def _text(field: Field, value: Value) -> Json:
    assert isinstance(value, str)
    try:
        value.encode()
    except UnicodeEncodeError:
        return _bytes(field, value.encode("utf-8", "surrogateescape"))
    return {"vec" if field.type == MysqlType.VECTOR else "s": value}


def _bytes(_field: Field, value: Value) -> Json:
    assert isinstance(value, bytes)
    return {"b": binascii.b2a_base64(value, newline=False).decode()}


def _shown(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


_OPS: Final[dict[type, str]] = {Insert: "INSERT", Update: "UPDATE", Delete: "DELETE"}
_VALUES: Final[dict[type, Callable[[Field, Value], Json]]] = {int: _integer, float: _float, str: _text, bytes: _bytes}
