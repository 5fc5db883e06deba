"""JSON text: parsed loosely enough for what TiDB stores, printed exactly as TiDB prints it.

    {"b":1, "a" : [1.0,1e20]}   ->   {"a": [1.0, 1e20], "b": 1}

Keys stand in the order of their UTF-8 bytes; separators are ", " and ": "; integers of 64 bits stay integers, all
others are doubles: at least one decimal, and an exponent from 1e15 up and below 1e-15.
Source: TiDB's BinaryJSON (marshalFloat64To, quoteJSONString); recorded values in tests/data/codec/types.
"""

import json
import math
from decimal import Decimal
from typing import Final, TypeAlias

from tidegate.model.errors import SchemaError

__all__ = ["Json", "parse_json", "quote_json", "render_json"]

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

MIN_INT: Final = -(1 << 63)
MAX_UINT: Final = (1 << 64) - 1

_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPES: Final = {
    **{code: f"\\u{code:04x}" for code in (*range(0x20), 0x2028, 0x2029)},
    **{ord(char): escape for char, escape in _SHORT.items()},
}


def parse_json(text: str) -> Json:
    """The document in `text`; raises SchemaError when it is none."""
    try:
        document: Json = json.loads(text, parse_int=_number, parse_float=_float, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"a value that a column change made JSON is no JSON document: {text[:80]!r}") from error
    return document


def _refuse(name: str) -> float:
    raise ValueError(name)


def _float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _number(text: str) -> int | float:
    """64-bit integers stay exact; longer ones are doubles, as in TiDB."""
    if len(text) > 20:
        return _float(text)
    value = int(text)
    return value if MIN_INT <= value <= MAX_UINT else float(value)


def quote_json(text: str) -> str:
    """`text` as a JSON string."""
    return f'"{text.translate(_ESCAPES)}"'


def render_json(document: Json) -> str:
    """The text that TiDB prints for `document`."""
    if document is None:
        return "null"
    if isinstance(document, bool):
        return "true" if document else "false"
    if isinstance(document, int):
        return str(document)
    if isinstance(document, float):
        return _render_float(document)
    if isinstance(document, str):
        return quote_json(document)
    if isinstance(document, list):
        return f"[{', '.join(map(render_json, document))}]"
    members = sorted(document.items(), key=lambda member: member[0].encode("utf-8", "surrogatepass"))
    return f"{{{', '.join(f'{quote_json(key)}: {render_json(value)}' for key, value in members)}}}"


def _render_float(value: float) -> str:
    if value != 0 and not 1e-15 <= abs(value) < 1e15:
        mantissa, _, exponent = repr(value).partition("e")
        if exponent:
            return f"{mantissa}e{int(exponent)}"
        sign, digits, power = _scientific(mantissa)
        return f"{sign}{digits}e{power}"
    plain = format(Decimal(repr(value)), "f")
    return plain if "." in plain else f"{plain}.0"


def _scientific(plain: str) -> tuple[str, str, int]:
    """Sign, mantissa and power of ten of a whole number that Python prints without an exponent (1e15 to 1e16)."""
    sign = "-" if plain.startswith("-") else ""
    whole = plain.lstrip("-").partition(".")
    digits = (whole[0] + whole[2]).rstrip("0") or "0"
    return sign, digits[0] + (f".{digits[1:]}" if digits[1:] else ""), len(whole[0]) - 1
