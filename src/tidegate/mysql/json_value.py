"""JSON documents of TiDB: their Python values, the text that TiDB prints, and the binary form in rows.

    None  bool  str  float  list  dict     as in JSON
    int               a signed number of 64 bits
    Unsigned          a number stored without sign; a plain int above 2**63 - 1 is written as one, too
    Opaque            bytes of a MySQL type: CAST(x'..' AS JSON), BIT
    JsonTime          DATE, DATETIME, TIMESTAMP
    JsonDuration      TIME

Text of a document that is not UTF-8 keeps its bytes as surrogates (`surrogateescape`).

    {"b": Unsigned(1), "a": 1.0, "t": JsonTime(..)}   ->   {"a": 1.0, "b": 1, "t": "2024-01-01 00:00:00.000000"}

In the text, keys stand in the order of their UTF-8 bytes; separators are ", " and ": ".  Doubles have at least one
decimal, and an exponent from 1e15 up and below 1e-15; TiDB before 9.0 printed whole ones without decimals and had no
upper bound (`old_floats`).  Times always have six decimals; opaque bytes are "base64:typeN:..".

In the binary form, a value is a type byte and its bytes.  Containers hold offsets, so that a member is found without
reading all.

    type   01 object  03 array  04 literal  09 int64  0a uint64  0b double  0c string  0d opaque
           0e date  0f datetime  10 timestamp  11 duration

    array    count u32 | size u32 | entry * count | values
    object   count u32 | size u32 | (key offset u32, key length u16) * count | entry * count | keys | values
    entry    type u8 | offset u32, or the literal itself in its first byte: 00 null, 01 true, 02 false

    [true]   03 | 01 00 00 00 | 0d 00 00 00 | 04 01 00 00 00
    "abc"    0c | 03 61 62 63                 string: uvarint length, bytes;  opaque: MySQL type u8 in front

Little endian; offsets count from `count`; `size` is that of the whole container.  Keys stand in the order of their
bytes (MySQL sorts by length first).  Times are the core form of packed_time.py, durations i64 nanoseconds and u32
decimals.

Source: TiDB pkg/types/json_binary.go (BinaryJSON, marshalFloat64To, quoteJSONString); recorded values.
"""

import binascii
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from math import isfinite
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from tidegate.model.errors import DecodeError, EncodeError
from tidegate.mysql.encoding import MAX_INT, MAX_UINT, MIN_INT, decode_uvarint, encode_uvarint, take, take_byte
from tidegate.mysql.packed_time import Time, pack_core, render_date, render_duration, render_time, unpack_core


class Unsigned(int):
    """A number whose type has no sign."""

    __slots__ = ()


class Opaque(NamedTuple):
    """Bytes with the code of the MySQL type that they came from."""

    type: int
    data: bytes


class JsonTime(NamedTuple):
    """A time; `type` is the type code inside binary JSON (14 date, 15 datetime, 16 timestamp), `tail` its fsp bits."""

    type: int
    time: Time
    tail: int = 0


class JsonDuration(NamedTuple):
    """A span of time in nanoseconds, and its number of decimals."""

    duration_ns: int
    fsp: int = 0


JsonValue: TypeAlias = (
    "bool | int | float | str | Opaque | JsonTime | JsonDuration | list[JsonValue] | dict[str, JsonValue] | None"
)


_TIME_FSP: Final = 6
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPES: Final = {
    **{code: f"\\u{code:04x}" for code in (*range(0x20), 0x2028, 0x2029)},
    **{ord(char): escape for char, escape in _SHORT.items()},
    **dict.fromkeys(range(0xDC80, 0xDD00), "\\ufffd"),
}


def quote_json(text: str) -> str:
    """Return `text` as a JSON string."""
    return f'"{text.translate(_ESCAPES)}"'


def render_json(document: JsonValue, *, old_floats: bool = False) -> str:
    """Return the text that TiDB prints for `document`."""
    if isinstance(document, list):
        return f"[{', '.join(render_json(item, old_floats=old_floats) for item in document)}]"
    if isinstance(document, dict):
        members = sorted(document.items(), key=lambda member: member[0].encode("utf-8", "surrogatepass"))
        shown = (f"{quote_json(key)}: {render_json(value, old_floats=old_floats)}" for key, value in members)
        return f"{{{', '.join(shown)}}}"
    if isinstance(document, float):
        return _float(document, old=old_floats)
    return _RENDER[type(document)](document)


def _time(value: JsonTime) -> str:
    return f'"{render_date(value.time) if value.type == DATE else render_time(value.time, _TIME_FSP)}"'


def _float(value: float, *, old: bool) -> str:
    if value != 0 and (abs(value) <= 1e-15 if old else not 1e-15 <= abs(value) < 1e15):
        return scientific(repr(value))
    plain = format(Decimal(repr(value)), "f").removesuffix(".0")
    return plain if old or "." in plain else f"{plain}.0"


def scientific(number: str) -> str:
    """Return a number with an exponent, as TiDB prints very large and very small doubles: 1e15, -2.5e-16."""
    sign, digits, exponent = Decimal(number).as_tuple()
    assert isinstance(exponent, int), number
    kept = "".join(map(str, digits)).rstrip("0") or "0"
    mantissa = f"{kept[0]}.{kept[1:]}" if kept[1:] else kept
    return f"{'-' if sign else ''}{mantissa}e{len(digits) + exponent - 1}"


_RENDER: Final[Mapping[type, Callable[..., str]]] = {
    type(None): lambda _value: "null",
    bool: lambda value: "true" if value else "false",
    int: str,
    Unsigned: str,
    str: quote_json,
    Opaque: lambda value: f'"base64:type{value.type}:{binascii.b2a_base64(value.data, newline=False).decode()}"',
    JsonTime: _time,
    JsonDuration: lambda value: f'"{render_duration(*value)}"',
}


CODEC: Final = "json"
OBJECT, ARRAY, LITERAL, INT64, UINT64, DOUBLE = 0x01, 0x03, 0x04, 0x09, 0x0A, 0x0B
STRING, OPAQUE, DATE, DATETIME, TIMESTAMP, DURATION = 0x0C, 0x0D, 0x0E, 0x0F, 0x10, 0x11
MAX_DEPTH: Final = 100
"""TiDB refuses documents that nest deeper."""
_LITERALS: Final = (None, True, False)
_HEAD: Final = struct.Struct("<II")
_KEY: Final = struct.Struct("<IH")
_ENTRY: Final = struct.Struct("<BI")
_INT: Final = struct.Struct("<q")
_UINT: Final = struct.Struct("<Q")
_DOUBLE: Final = struct.Struct("<d")
_DURATION: Final = struct.Struct("<qI")


def encode_json(document: JsonValue) -> bytes:
    """Return the binary JSON of `document`; EncodeError for a value that no document can hold."""
    try:
        kind, body = _encode(document, 0)
        return bytes([kind]) + body
    except (struct.error, ValueError) as error:
        raise EncodeError(f"a number in a JSON document is out of its range: {error}") from error


def decode_json(buf: bytes, offset: int = 0) -> tuple[JsonValue, int]:
    """Return the document that begins at `offset` and the offset after it."""
    return _decode(take_byte(buf, offset, CODEC), buf, offset + 1, 0)


def _encode(value: JsonValue, depth: int) -> tuple[int, bytes]:
    if depth > MAX_DEPTH:
        raise EncodeError(f"a JSON document nests deeper than {MAX_DEPTH}")
    if value is None or value is True or value is False:
        return LITERAL, bytes([_LITERALS.index(value)])
    write = _WRITERS.get(type(value))
    if write is None:
        raise EncodeError(f"JSON holds no {type(value).__name__}")
    return write(value, depth)


def _write_int(value: int, _depth: int) -> tuple[int, bytes]:
    unsigned = isinstance(value, Unsigned)
    if not (0 if unsigned else MIN_INT) <= value <= MAX_UINT:
        raise EncodeError(f"{value} is no {'unsigned ' * unsigned}number of 64 bits")
    return (UINT64, _UINT.pack(value)) if unsigned or value > MAX_INT else (INT64, _INT.pack(value))


def _sized(data: bytes) -> bytes:
    return encode_uvarint(len(data)) + data


def _write_array(items: list[JsonValue], depth: int) -> tuple[int, bytes]:
    entries, values = _lay_out(items, _HEAD.size + _ENTRY.size * len(items), depth)
    body = entries + values
    return ARRAY, _HEAD.pack(len(items), _HEAD.size + len(body)) + body


def _write_object(members: dict[str, JsonValue], depth: int) -> tuple[int, bytes]:
    named = [(key.encode("utf-8", "surrogateescape"), value) for key, value in members.items()]
    ordered = sorted(named, key=itemgetter(0))
    offset = _HEAD.size + (_KEY.size + _ENTRY.size) * len(ordered)
    key_entries = bytearray()
    for key, _ in ordered:
        if len(key) > 0xFFFF:
            raise EncodeError("a JSON key of more than 65,535 bytes")
        key_entries += _KEY.pack(offset, len(key))
        offset += len(key)
    entries, values = _lay_out([value for _, value in ordered], offset, depth)
    body = bytes(key_entries) + entries + b"".join(key for key, _ in ordered) + values
    return OBJECT, _HEAD.pack(len(ordered), _HEAD.size + len(body)) + body


def _lay_out(items: list[JsonValue], offset: int, depth: int) -> tuple[bytes, bytes]:
    """Return the entries of `items` and the bytes of those that are not literals, which begin at `offset`."""
    entries, values = bytearray(), bytearray()
    for item in items:
        kind, body = _encode(item, depth + 1)
        if kind == LITERAL:
            entries += bytes([kind]) + body.ljust(4, b"\0")
        else:
            entries += _ENTRY.pack(kind, offset + len(values))
            values += body
    return bytes(entries), bytes(values)


def _decode(kind: int, buf: bytes, offset: int, depth: int) -> tuple[JsonValue, int]:
    read = _READERS.get(kind)
    if read is None:
        raise DecodeError(f"type {kind:#04x} is none of JSON", CODEC, offset - 1)
    if depth > MAX_DEPTH:
        raise DecodeError(f"a document that nests deeper than {MAX_DEPTH}", CODEC, offset)
    return read(buf, offset, depth)


def _literal(number: int, offset: int) -> JsonValue:
    if number >= len(_LITERALS):
        raise DecodeError(f"literal {number:#04x} is none of null, true, false", CODEC, offset)
    return _LITERALS[number]


def _read_literal(buf: bytes, offset: int, _depth: int) -> tuple[JsonValue, int]:
    return _literal(take_byte(buf, offset, CODEC), offset), offset + 1


def _read_double(buf: bytes, offset: int, _depth: int) -> tuple[JsonValue, int]:
    value: float = _DOUBLE.unpack(take(buf, offset, 8, CODEC))[0]
    if not isfinite(value):
        raise DecodeError("a double that JSON does not have", CODEC, offset)
    return value, offset + 8


def _sized_reader(head: int, make: Callable[[bytes, bytes], JsonValue]) -> "Read":
    """Return a reader of `head` bytes, a length, and that many bytes."""

    def read(buf: bytes, offset: int, _depth: int) -> tuple[JsonValue, int]:
        size, start = decode_uvarint(buf, offset + head)
        return make(take(buf, offset, head, CODEC), take(buf, start, size, CODEC)), start + size

    return read


def _read_duration(buf: bytes, offset: int, _depth: int) -> tuple[JsonValue, int]:
    return JsonDuration(*_DURATION.unpack(take(buf, offset, _DURATION.size, CODEC))), offset + _DURATION.size


def _time_reader(kind: int) -> "Read":
    def read(buf: bytes, offset: int, _depth: int) -> tuple[JsonValue, int]:
        (core,) = _UINT.unpack(take(buf, offset, 8, CODEC))
        return JsonTime(kind, *unpack_core(core)), offset + 8

    return read


def _container(buf: bytes, offset: int, entry_size: int) -> tuple[int, bytes]:
    """Return the number of members of a container, and its bytes; offsets inside count from their start."""
    count, size = _HEAD.unpack(take(buf, offset, _HEAD.size, CODEC))
    body = take(buf, offset, size, CODEC)
    if _HEAD.size + count * entry_size > size:
        raise DecodeError(f"{count} members in {size} bytes", CODEC, offset)
    return count, body


def _members(body: bytes, entries: int, count: int, start: int, depth: int) -> list[JsonValue]:
    """Return the values of `count` entries; they must not overlap, so that no byte is read twice on one level."""
    members: list[JsonValue] = []
    for entry_at in range(entries, entries + _ENTRY.size * count, _ENTRY.size):
        kind, offset = _ENTRY.unpack_from(body, entry_at)
        if kind == LITERAL:
            members.append(_literal(offset & 0xFF, entry_at + 1))
            continue
        if offset < start:
            raise DecodeError("a value that begins inside another one", CODEC, entry_at)
        value, start = _decode(kind, body, offset, depth + 1)
        members.append(value)
    return members


def _read_array(buf: bytes, offset: int, depth: int) -> tuple[JsonValue, int]:
    count, body = _container(buf, offset, _ENTRY.size)
    values_at = _HEAD.size + _ENTRY.size * count
    return _members(body, _HEAD.size, count, values_at, depth), offset + len(body)


def _read_object(buf: bytes, start: int, depth: int) -> tuple[JsonValue, int]:
    count, body = _container(buf, start, _KEY.size + _ENTRY.size)
    entries = _HEAD.size + _KEY.size * count
    values = _members(body, entries, count, entries + _ENTRY.size * count, depth)
    members: dict[str, JsonValue] = {}
    for index, value in enumerate(values):
        offset, size = _KEY.unpack_from(body, _HEAD.size + _KEY.size * index)
        members[take(body, offset, size, CODEC).decode("utf-8", "surrogateescape")] = value
    return members, start + len(body)


Read = Callable[[bytes, int, int], tuple[JsonValue, int]]
_WRITERS: Final[Mapping[type, Callable[..., tuple[int, bytes]]]] = {
    int: _write_int,
    Unsigned: _write_int,
    float: lambda value, _depth: (DOUBLE, _DOUBLE.pack(value)),
    str: lambda value, _depth: (STRING, _sized(value.encode("utf-8", "surrogateescape"))),
    Opaque: lambda value, _depth: (OPAQUE, bytes([value.type]) + _sized(value.data)),
    JsonTime: lambda value, _depth: (value.type, _UINT.pack(pack_core(value.time, value.tail))),
    JsonDuration: lambda value, _depth: (DURATION, _DURATION.pack(*value)),
    list: _write_array,
    dict: _write_object,
}
_READERS: Final[Mapping[int, Read]] = {
    OBJECT: _read_object,
    ARRAY: _read_array,
    LITERAL: _read_literal,
    INT64: lambda buf, offset, _depth: (_INT.unpack(take(buf, offset, 8, CODEC))[0], offset + 8),
    UINT64: lambda buf, offset, _depth: (Unsigned(_UINT.unpack(take(buf, offset, 8, CODEC))[0]), offset + 8),
    DOUBLE: _read_double,
    STRING: _sized_reader(0, lambda _head, data: data.decode("utf-8", "surrogateescape")),
    OPAQUE: _sized_reader(1, lambda head, data: Opaque(head[0], data)),
    DATE: _time_reader(DATE),
    DATETIME: _time_reader(DATETIME),
    TIMESTAMP: _time_reader(TIMESTAMP),
    DURATION: _read_duration,
}
