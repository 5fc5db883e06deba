"""Which of two values is less, as MySQL's rules of comparison have it.

    both text           by the collation
    both numbers        exactly; as doubles when one is a double
    text, number        as doubles
    date, anything      as dates; TIME, anything: as spans; where the other is no date: as texts
    JSON, anything      as JSON documents: null < numbers < strings < objects < arrays < booleans < times
    x'..', number       as numbers

    compare(a, b, ..) -> -1 | 0 | 1 | None (one of them is NULL)
    sort_key_of(value, collation) -> something that sorts, groups and hashes as `compare` says, within one type

Source: MySQL manual, "Type Conversion in Expression Evaluation", "Comparison and Ordering of JSON Values".
"""

from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from tidegate.model.errors import EncodeError
from tidegate.model.table import ColumnType
from tidegate.mysql.collation import sort_key
from tidegate.mysql.context import Context
from tidegate.mysql.json.value import JsonDuration, JsonTime, JsonValue, Opaque
from tidegate.mysql.value.kinds import Duration, JsonDatum, Named, SqlValue, Time, Vector
from tidegate.mysql.value.number import number_of
from tidegate.mysql.value.text import text_of
from tidegate.mysql.value.time import moment_of, parse_time, span_of


def text_key(collation: str) -> Callable[[str], bytes]:
    """Return the bytes by which a text of that collation sorts; characters without a known weight come last, by
    code."""

    @lru_cache(maxsize=4096)
    def key(text: str) -> bytes:
        try:
            return sort_key(collation, text.encode("utf-8", "surrogateescape"))
        except EncodeError:
            return b"".join(_character_key(collation, char) for char in text.rstrip(" "))

    return _KEYS.setdefault(collation, key)


def _character_key(collation: str, char: str) -> bytes:
    try:
        width = len(_letter(collation))
        # Between two letters, so that a space keeps its weight where trailing ones have none.
        return sort_key(collation, f"a{char}a".encode("utf-8", "surrogateescape"))[width:-width]
    except EncodeError:
        return b"\xff\xff" + ord(char).to_bytes(4, "big")


@lru_cache(maxsize=64)
def _letter(collation: str) -> bytes:
    return sort_key(collation, b"a")


_KEYS: Final[dict[str, Callable[[str], bytes]]] = {}


def _order(first: Any, second: Any) -> int:
    return int(first > second) - int(first < second)


def compare(
    first: SqlValue, second: SqlValue, kinds: tuple[ColumnType, ColumnType], collation: str, context: Context
) -> int | None:
    """-1, 0 or 1; None when one is NULL."""
    if first is None or second is None:
        return None
    if type(first) is int and type(second) is int:
        return _order(first, second)
    if isinstance(first, JsonDatum) or isinstance(second, JsonDatum):
        return json_order(_document(first, kinds[0]), _document(second, kinds[1]))
    if isinstance(first, Time | Duration) or isinstance(second, Time | Duration):
        found = _times(first, second, kinds, context)
        if found is not None:
            return found
    if _is_text(first) and _is_text(second):
        return _texts(first, second, kinds, collation)
    if isinstance(first, Vector) and isinstance(second, Vector):
        return _order(tuple(first), tuple(second))
    if isinstance(first, Time | Duration) or isinstance(second, Time | Duration):
        return _texts(first, second, kinds, "utf8mb4_bin")
    return _numbers(first, second, kinds, context)


def _is_text(value: SqlValue) -> bool:
    return isinstance(value, str | bytes)


def _texts(first: SqlValue, second: SqlValue, kinds: tuple[ColumnType, ColumnType], collation: str) -> int:
    left, right = text_of(first, kinds[0]), text_of(second, kinds[1])
    if isinstance(left, str) and isinstance(right, str) and collation != "binary":
        if left == right:
            return 0
        key = text_key(collation)
        return _order(key(left), key(right))
    return _order(_bytes(left), _bytes(right))


def _bytes(text: str | bytes | None) -> bytes:
    assert text is not None
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def _times(first: SqlValue, second: SqlValue, kinds: tuple[ColumnType, ColumnType], context: Context) -> int | None:
    """The order of two values of which one is a date or span; None when the other is a text that is neither."""
    if isinstance(first, Time) or isinstance(second, Time):
        for value, kind in ((first, kinds[0]), (second, kinds[1])):
            if isinstance(value, str | bytes) and parse_time(str(text_of(value, kind))) is None:
                return None
        return _order(moment_of(first, kinds[0], context) or (), moment_of(second, kinds[1], context) or ())
    left, right = span_of(first, kinds[0], context), span_of(second, kinds[1], context)
    return None if left is None or right is None else _order(left, right)


def _numbers(first: SqlValue, second: SqlValue, kinds: tuple[ColumnType, ColumnType], context: Context) -> int:
    left, right = number_of(first, kinds[0], context), number_of(second, kinds[1], context)
    if isinstance(left, float) is not isinstance(right, float):
        left, right = float(left or 0), float(right or 0)
    return _order(left, right)


def _document(value: SqlValue, kind: ColumnType) -> JsonValue:
    if isinstance(value, JsonDatum):
        return value.document
    if value is None or (isinstance(value, int | float) and not isinstance(value, Duration)):
        return value
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, Time):
        return JsonTime(0x0F, value)
    if isinstance(value, Duration):
        return JsonDuration(int(value))
    text = text_of(value, kind)
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


_RANKS: Final[tuple[tuple[type, int], ...]] = (
    (bool, 6),
    (int, 2),
    (float, 2),
    (str, 3),
    (dict, 4),
    (list, 5),
    (JsonTime, 7),
    (JsonDuration, 8),
    (Opaque, 9),
)


def json_key(document: JsonValue) -> tuple[Any, ...]:
    """Return what documents sort, group and hash by."""
    if document is None:
        return (1,)
    rank = next(rank for kind, rank in _RANKS if isinstance(document, kind))
    if isinstance(document, dict):
        return (rank, len(document), tuple((key, json_key(value)) for key, value in sorted(document.items())))
    if isinstance(document, list):
        return (rank, tuple(map(json_key, document)))
    if isinstance(document, str):
        return (rank, document.encode("utf-8", "surrogatepass"))
    if isinstance(document, JsonTime):
        return (rank, tuple(document.time))
    if isinstance(document, JsonDuration):
        return (rank, document.duration_ns)
    return (rank, document.data if isinstance(document, Opaque) else document)


def json_order(first: JsonValue, second: JsonValue) -> int:
    """-1, 0 or 1."""
    return _order(json_key(first), json_key(second))


def sort_key_of(value: SqlValue, collation: str) -> tuple[Any, ...]:
    """Return a key for ORDER BY, GROUP BY and DISTINCT; NULL comes first, then numbers, texts and the others."""
    if value is None:
        return (0,)
    if isinstance(value, Named):
        return (1, value.number)
    if isinstance(value, str):
        return (2, text_key(collation)(value) if collation != "binary" else value.encode("utf-8", "surrogateescape"))
    if isinstance(value, bytes):
        return (2, bytes(value))
    if isinstance(value, JsonDatum):
        return (3, json_key(value.document))
    if isinstance(value, Time | Vector):
        return (4, tuple(value))
    return (1, value)
