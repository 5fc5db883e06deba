"""Binary JSON of many rows, taken apart level by level: what stands where, for documents whose bytes are in order.

    {"a": 1, "list": [2, true]}     level 0        {
                                    level 1        a 1    list [
                                    level 2                    2    true

The members of a container follow each other in their level, those of earlier containers before them.  Values lie one
behind the other inside their container, and so do the names of an object, as TiDB writes them; that is checked, so
no byte is looked at twice on one level.  A document with anything else, or with a type that has no plain text
(opaque bytes, times), is odd: it is for the general reader, which also says what is wrong.

Source: binary.py, whose form and checks these are.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from tidegate.kv.json.binary import ARRAY, DOUBLE, INT64, LITERAL, OBJECT, STRING, UINT64
from tidegate.kv.row.columns import words

__all__ = ["Level", "Levels", "read_levels"]

_MAX_LEVELS: Final = 32
_WORD, _HEAD_BYTES, _KEY_BYTES, _ENTRY_BYTES = 8, 8, 6, 5
_LITERALS: Final = 3
_INFINITE: Final = np.uint64(0x7FF)
"""The exponent of a double that is not finite."""


class Level(NamedTuple):
    """Values of one depth, arrays of one length, and the names of those that are members of objects.

    kind        type of the value
    at          its first byte behind its head: number, text, number of a literal, head of a container
    size        bytes of a text, members of a container, else 0
    end         the byte behind it
    document    which it is of
    owner       its container, a place in the level above
    first       the first value of the same container, a place in this level
    names       which values have a name; name_at, name_size: where these are
    """

    kind: Any
    at: Any
    size: Any
    end: Any
    document: Any
    owner: Any
    first: Any
    names: Any
    name_at: Any
    name_size: Any


class Levels(NamedTuple):
    """All values of some documents, and which documents are odd: their values are there in part or not at all."""

    levels: list[Level]
    odd: Any


class _Values(NamedTuple):
    """What `_measured` finds."""

    at: Any
    size: Any
    end: Any
    good: Any


def read_levels(data: Any, starts: Any, ends: Any) -> Levels:
    """Return the values of documents that lie in `data` one behind the other; eight more bytes follow the last."""
    count = len(starts)
    every, none = np.arange(count), np.zeros(0, np.int64)
    kind = data[np.minimum(starts, len(data) - _WORD)]
    found = _measured(data, kind, starts + 1, ends)
    odd = ~found.good | (found.end != ends)
    levels = [Level(kind, found.at, found.size, found.end, every, every, every, none, none, none)]
    while True:
        above = levels[-1]
        containers = np.flatnonzero(np.isin(above.kind, (OBJECT, ARRAY)) & (above.size > 0) & ~odd[above.document])
        if not len(containers):
            return Levels(levels, odd)
        if len(levels) == _MAX_LEVELS:
            odd[above.document[containers]] = True
            return Levels(levels, odd)
        level, good = _members(data, above, containers)
        odd[level.document[~good]] = True
        levels.append(level)


def _measured(data: Any, kind: Any, at: Any, bound: Any) -> _Values:
    """How far values go from `at` on, and which are what they say and end at or before `bound`."""
    word = words(data, np.minimum(at, len(data) - _WORD))
    low, high = (word & np.uint64(0xFFFF_FFFF)).astype(np.int64), (word >> np.uint64(32)).astype(np.int64)
    is_object, is_text = kind == OBJECT, kind == STRING
    is_container = is_object | (kind == ARRAY)
    head, length, short = _length(low)
    size = np.where(is_container, low, np.where(is_text, length, 0))
    extent = np.where(is_container, high, np.where(is_text, head + length, np.where(kind == LITERAL, 1, _WORD)))
    good = is_container & (_HEAD_BYTES + size * np.where(is_object, _KEY_BYTES + _ENTRY_BYTES, _ENTRY_BYTES) <= extent)
    good |= is_text & short
    good |= (kind == LITERAL) & (low & 0xFF < _LITERALS)
    good |= (kind == INT64) | (kind == UINT64)
    good |= (kind == DOUBLE) & (word >> np.uint64(52) & _INFINITE != _INFINITE)
    end = at + extent
    return _Values(at + np.where(is_text, head, 0), size, end, good & (end <= bound))


def _length(low: Any) -> tuple[Any, Any, Any]:
    """A length of up to three bytes: how many it takes, the length, and whether it is one."""
    second, third = low >> 7 & 1, low >> 15 & low >> 7 & 1
    length = (low & 0x7F) | (low >> 1 & 0x3F80) * second | (low >> 2 & 0x1FC000) * third
    return 1 + second + third, length, (low >> 23 & third) == 0


def _members(data: Any, above: Level, containers: Any) -> tuple[Level, Any]:
    """The members of `containers`, and which of them are where they have to be."""
    count = above.size[containers]
    owner, first = np.repeat(containers, count), np.repeat(np.cumsum(count) - count, count)
    base, bound, count = above.at[owner], above.end[owner], above.size[owner]
    place, of_object = np.arange(len(owner)) - first, above.kind[owner] == OBJECT
    entry = base + _HEAD_BYTES + np.where(of_object, _KEY_BYTES * count, 0) + _ENTRY_BYTES * place
    word = words(data, entry)
    kind = (word & np.uint64(0xFF)).astype(np.uint8)
    offset = (word >> np.uint64(8) & np.uint64(0xFFFF_FFFF)).astype(np.int64)
    begin = np.where(kind == LITERAL, entry + 1, base + offset)
    found = _measured(data, kind, begin, bound)
    heads_end = base + _HEAD_BYTES + np.where(of_object, _KEY_BYTES + _ENTRY_BYTES, _ENTRY_BYTES) * count
    good = found.good & _ascending(kind, begin, found.end, first, heads_end)
    names = np.flatnonzero(of_object)
    name_at, name_size, fits = _names(data, base[names], place[names], bound[names], heads_end[names])
    good[names] &= fits
    level = Level(kind, found.at, found.size, found.end, above.document[owner], owner, first, names, name_at, name_size)
    return level, good


def _ascending(kind: Any, begin: Any, end: Any, first: Any, floor: Any) -> Any:
    """Which values begin behind those before them in their container, or behind its head; literals lie in the head."""
    good = np.ones(len(kind), np.bool_)
    rows = np.flatnonzero(kind != LITERAL)
    after = floor[rows]
    follows = first[rows[1:]] == first[rows[:-1]]
    after[1:] = np.where(follows, end[rows[:-1]], after[1:])
    good[rows] = begin[rows] >= after
    return good


def _names(data: Any, base: Any, place: Any, bound: Any, heads_end: Any) -> tuple[Any, Any, Any]:
    """Where members' names are, and which stand one behind the other, from the end of the heads on."""
    word = words(data, base + _HEAD_BYTES + _KEY_BYTES * place)
    at = base + (word & np.uint64(0xFFFF_FFFF)).astype(np.int64)
    size = (word >> np.uint64(32) & np.uint64(0xFFFF)).astype(np.int64)
    due = heads_end.copy()
    due[1:] = np.where(place[1:] > 0, (at + size)[:-1], due[1:])
    return at, size, (at == due) & (at + size <= bound)
