"""JSON documents as TiDB prints them.

    {"b": Unsigned(1), "a": 1.0, "t": JsonTime(..)}   ->   {"a": 1.0, "b": 1, "t": "2024-01-01 00:00:00.000000"}

Keys stand in the order of their UTF-8 bytes; separators are ", " and ": ".  Doubles have at least one decimal, and an
exponent from 1e15 up and below 1e-15; TiDB before 9.0 printed whole ones without decimals and had no upper bound
(`old_floats`).  Times always have six decimals, opaque bytes are `base64:typeN:..` in quotes.

Source: TiDB's BinaryJSON (marshalFloat64To, quoteJSONString); recorded values.
"""

import binascii
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from tidegate.mysql.json.value import JsonDuration, JsonTime, JsonValue, Opaque, Unsigned
from tidegate.mysql.packed_time import render_date, render_duration, render_time

DATE: Final = 0x0E
_TIME_FSP: Final = 6
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPES: Final = {
    **{code: f"\\u{code:04x}" for code in (*range(0x20), 0x2028, 0x2029)},
    **{ord(char): escape for char, escape in _SHORT.items()},
    **dict.fromkeys(range(0xDC80, 0xDD00), "\\ufffd"),
}


def quote_json(text: str) -> str:
    """`text` as a JSON string."""
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
        return _old_float(document) if old_floats else _float(document)
    return _RENDER[type(document)](document)


def _time(value: JsonTime) -> str:
    return f'"{render_date(value.time) if value.type == DATE else render_time(value.time, _TIME_FSP)}"'


def _opaque(value: Opaque) -> str:
    return f'"base64:type{value.type}:{binascii.b2a_base64(value.data, newline=False).decode()}"'


def _float(value: float) -> str:
    if value != 0 and not 1e-15 <= abs(value) < 1e15:
        return _scientific(value)
    plain = format(Decimal(repr(value)), "f")
    return plain if "." in plain else f"{plain}.0"


def _old_float(value: float) -> str:
    if value != 0 and abs(value) <= 1e-15:
        return _scientific(value)
    return format(Decimal(repr(value)), "f").removesuffix(".0")


def _scientific(value: float) -> str:
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int), value
    kept = "".join(map(str, digits)).rstrip("0") or "0"
    mantissa = f"{kept[0]}.{kept[1:]}" if kept[1:] else kept
    return f"{'-' if sign else ''}{mantissa}e{len(digits) + exponent - 1}"


_RENDER: Final[Mapping[type, Callable[..., str]]] = {
    type(None): lambda _value: "null",
    bool: lambda value: "true" if value else "false",
    int: str,
    Unsigned: str,
    str: quote_json,
    Opaque: _opaque,
    JsonTime: _time,
    JsonDuration: lambda value: f'"{render_duration(*value)}"',
}
