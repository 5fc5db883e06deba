"""TiCDC Open Protocol, reading: one Kafka message to its events.

    key     | version = 1 (8) | length (8) | event key JSON | length (8) | event key JSON | ...
    value   |                 | length (8) | event value    | length (8) | event value    | ...

All numbers are big-endian.  Value i belongs to key i; a resolved event has an empty value, and none at all when the
message has run out of bytes.  A message holds rows of any mix of tables, or DDL and resolved events; it may hold no
event.  Each value is compressed on its own, keys never are.

    key JSON   ts, scm, tbl, t = 1 row | 2 DDL | 3 resolved
               rid row id, ptn physical partition id, ohk only handle keys, ccl where the whole event lies
    DDL value  q statement, t TiDB's action code

Members come in any order and may stand twice; the last one wins, as in Go.

Source: Open Protocol document, "Message format" and "Event format"; recordings of both emitters.
"""

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final, TypeAlias

import msgspec

from tidegate.codec.compression import decompress
from tidegate.codec.jsontext import parse
from tidegate.codec.open.layout import CODEC
from tidegate.codec.open.row import RowKey, read_row
from tidegate.codec.options import DecodeOptions
from tidegate.codec.values import MAX_RESOLVED_TS, timestamp
from tidegate.model.errors import DecodeError
from tidegate.model.event import Ddl, Event, Resolved

OPTIONS: Final = DecodeOptions(protocol=CODEC)
VERSION: Final = 1

_RESOLVED: Final = 3
_LENGTH: Final = Struct(">Q")


class _Key(msgspec.Struct, gc=False):
    """A key JSON as on the wire."""

    ts: int
    t: int
    scm: str | None = None
    tbl: str | None = None
    rid: int | None = None
    ptn: int | None = None
    ohk: bool | None = None
    ccl: str | None = None


class _DdlValue(msgspec.Struct, gc=False):
    """The value JSON of a DDL event."""

    q: str
    t: int


Read: TypeAlias = Callable[[_Key, bytes, int, DecodeOptions], Event]

_KEY: Final = msgspec.json.Decoder(_Key)
_DDL: Final = msgspec.json.Decoder(_DdlValue)


def decode(key: bytes | None, value: bytes | None, options: DecodeOptions = OPTIONS) -> tuple[Event, ...]:
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
        head = parse(_KEY, text, CODEC, f"key of event {len(events)}", start)
        key_at = start + len(text)
        body, at = b"", value_at
        if head.t != _RESOLVED or value_at < len(values):
            body, at = _take(values, value_at, "value")
            value_at = at + len(body)
        try:
            if body and options.compression != "none":
                body = decompress(body, options.compression, CODEC, at, plain)
                plain += len(body)
            events.append(_event(head, body, at, options))
        except DecodeError as error:
            raise DecodeError(f"event {len(events)}: {error.what}", CODEC, error.offset or at) from error
    if value_at < len(values) and (events or any(values)):
        raise DecodeError(f"the value goes on after its {len(events)} events", CODEC, value_at)
    return tuple(events)


def _take(buffer: bytes, at: int, name: str) -> tuple[bytes, int]:
    """The length-prefixed bytes at `at`, and where they start."""
    start = at + _LENGTH.size
    if start > len(buffer):
        raise DecodeError(f"the {name} ends within a length", CODEC, at)
    size = _LENGTH.unpack_from(buffer, at)[0]
    if size > len(buffer) - start:
        raise DecodeError(f"the {name} has {len(buffer) - start} of {size} bytes", CODEC, at)
    return buffer[start : start + size], start


def _event(head: _Key, body: bytes, at: int, options: DecodeOptions) -> Event:
    read = _EVENTS.get(head.t)
    if read is None:
        raise DecodeError(f"event type {head.t:#x} is not 1, 2 or 3", CODEC, at)
    return read(head, body, at, options)


def _row(head: _Key, body: bytes, at: int, options: DecodeOptions) -> Event:
    if not head.scm or not head.tbl:
        raise DecodeError("its key names no table", CODEC, at)
    for number in (head.rid, head.ptn):
        if number is not None and not -(1 << 63) <= number < 1 << 63:
            raise DecodeError(f"row or partition id {number:#x} has more than 64 bits", CODEC, at)
    commit_ts = timestamp(head.ts, CODEC, at)
    key = RowKey(head.scm, head.tbl, commit_ts, head.rid, head.ptn, bool(head.ohk), head.ccl or None)
    return read_row(key, body, at, legacy=options.legacy)


def _ddl(head: _Key, body: bytes, at: int, _options: DecodeOptions) -> Event:
    ddl = parse(_DDL, body, CODEC, "DDL value", at)
    if not 0 <= ddl.t <= 0xFF:
        raise DecodeError(f"DDL type {ddl.t:#x} is not an action code", CODEC, at)
    commit_ts = timestamp(head.ts, CODEC, at)
    return Ddl(schema=head.scm or "", table=head.tbl or "", query=ddl.q, commit_ts=commit_ts, type=ddl.t)


def _resolved(head: _Key, body: bytes, at: int, _options: DecodeOptions) -> Event:
    if body:
        raise DecodeError(f"a resolved event with a value of {len(body)} bytes", CODEC, at)
    return Resolved(timestamp(head.ts, CODEC, at, limit=MAX_RESOLVED_TS))


_EVENTS: Final[Mapping[int, Read]] = {1: _row, 2: _ddl, _RESOLVED: _resolved}
