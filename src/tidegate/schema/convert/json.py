"""JSON text: parsed loosely enough for what TiDB stores; kv/json/text.py prints it exactly as TiDB does.

    {"b":1, "a" : [1.0,1e20]}   ->   {"a": [1.0, 1e20], "b": 1}

Integers of 64 bits stay integers, all others are doubles.
Source: TiDB's BinaryJSON; recorded values in tests/data/codec/types.
"""

import json
import math
from typing import Final, TypeAlias

from tidegate.kv.json.text import quote_json, render_json
from tidegate.kv.json.value import JsonValue
from tidegate.model.errors import SchemaError

__all__ = ["Json", "parse_json", "quote_json", "render_json"]

Json: TypeAlias = JsonValue

MIN_INT: Final = -(1 << 63)
MAX_UINT: Final = (1 << 64) - 1


def parse_json(text: str) -> Json:
    """Return the document in `text`; raises SchemaError when it is none."""
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
