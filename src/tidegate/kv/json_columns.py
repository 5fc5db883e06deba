"""Binary JSON straight to the text that TiDB prints, for the documents that tables mostly hold.

    object      keys | entries | names | values        {"a": 1, "list": [1, true]}
    array       entries | values

What stands before the values of an object - its names and their order - is the same in many documents, so it is looked
up by its bytes.  Objects, arrays, literals, numbers and texts are read here; a document with anything else, or
with a byte that is not where TiDB puts it, is left to `decode_json` and `render_json`, which also say what is wrong.

Source: binary_json.py and json_text.py, whose texts these are.
"""

import struct
from functools import lru_cache
from math import isfinite
from typing import Final

from tidegate.kv.binary_json import ARRAY, DOUBLE, INT64, LITERAL, OBJECT, STRING, UINT64, decode_json
from tidegate.kv.cursor import at_end
from tidegate.kv.json_text import quote_json, render_json
from tidegate.kv.number import decode_uvarint
from tidegate.model.errors import DecodeError

__all__ = ["json_text"]

_CODEC: Final = "binary json"
_HEAD: Final = struct.Struct("<II")
_INT: Final = struct.Struct("<q")
_UINT: Final = struct.Struct("<Q")
_DOUBLE: Final = struct.Struct("<d")
_ENTRY: Final = struct.Struct("<BI")
_LITERALS: Final = ("null", "true", "false")
_MAX_DEPTH: Final = 64
_SHORT: Final = 0x80
"""Lengths below this take one byte."""
_KEY_BYTES, _ENTRY_BYTES = 6, 5


class _OtherWayError(ValueError):
    """A document for the general reader."""


def json_text(data: bytes) -> str:
    """The text of a stored document. DecodeError and EncodeError as the general reader raises them."""
    try:
        text, end = _value(data[0], data, 1, 0)
        if end == len(data):
            return text
    except (_OtherWayError, DecodeError, UnicodeDecodeError, IndexError, struct.error):
        pass
    document, end = decode_json(data, 0)
    at_end(data, end, _CODEC)
    return render_json(document)


def _value(kind: int, buf: bytes, at: int, depth: int) -> tuple[str, int]:
    if kind == STRING:
        size, start = (buf[at], at + 1) if buf[at] < _SHORT else decode_uvarint(buf, at)
        if start + size > len(buf):
            raise _OtherWayError
        return _quoted(buf[start : start + size].decode("utf-8", "surrogateescape")), start + size
    if kind == INT64:
        return str(_INT.unpack_from(buf, at)[0]), at + 8
    if kind == UINT64:
        return str(_UINT.unpack_from(buf, at)[0]), at + 8
    if kind == LITERAL:
        return _LITERALS[buf[at]], at + 1
    if kind == DOUBLE:
        return _double(_DOUBLE.unpack_from(buf, at)[0]), at + 8
    if kind not in {OBJECT, ARRAY} or depth > _MAX_DEPTH:
        raise _OtherWayError
    count, size = _HEAD.unpack_from(buf, at)
    body = buf[at : at + size]
    if len(body) != size:
        raise _OtherWayError
    return _object(body, count, depth) if kind == OBJECT else _array(body, count, depth), at + size


def _array(body: bytes, count: int, depth: int) -> str:
    return f"[{', '.join(_members(body, _HEAD.size, count, depth))}]"


def _object(body: bytes, count: int, depth: int) -> str:
    places_end = _HEAD.size + _KEY_BYTES * count
    names_at = places_end + _ENTRY_BYTES * count
    offset, size = struct.unpack_from("<IH", body, places_end - _KEY_BYTES) if count else (names_at, 0)
    names = _names(body[_HEAD.size : places_end], body[names_at : offset + size], names_at)
    members = _members(body, places_end, count, depth, offset + size)
    return "{" + ", ".join([name + member for name, member in zip(names, members, strict=True)]) + "}"


@lru_cache(maxsize=4096)
def _names(places: bytes, names: bytes, names_at: int) -> tuple[str, ...]:
    """The members' names with their colons, which lie one behind the other, in the order in which they are shown."""
    found, end = [], 0
    for offset, size in struct.iter_unpack("<IH", places):
        if offset != names_at + end:
            raise _OtherWayError
        found.append(names[end : end + size])
        end += size
    if end != len(names) or found != sorted(set(found)):
        raise _OtherWayError
    return tuple(f"{_quoted(name.decode())}: " for name in found)


def _members(body: bytes, entries: int, count: int, depth: int, start: int | None = None) -> list[str]:
    """The values of `count` entries, each behind the one before."""
    start = entries + _ENTRY_BYTES * count if start is None else start
    found = []
    for kind, offset in _ENTRY.iter_unpack(body[entries : entries + _ENTRY_BYTES * count]):
        if kind == LITERAL:
            found.append(_LITERALS[offset & 0xFF])
            continue
        if offset < start:
            raise _OtherWayError
        text, start = _value(kind, body, offset, depth + 1)
        found.append(text)
    if len(found) != count:
        raise _OtherWayError
    return found


def _double(value: float) -> str:
    if not isfinite(value):
        raise _OtherWayError
    return render_json(value)


def _quoted(text: str) -> str:
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return quote_json(text)
