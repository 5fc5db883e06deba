"""Binary JSON of many rows to the texts that TiDB prints: pieces of text, put into their order once for all rows.

    {"a": 1, "list": [2, true]}     level 0        {…}                       pieces 2 + those of its members
                                    level 1        a 1    list […]
                                    level 2                    2    true

    a value's pieces      what stands before it     members, each with theirs     the value, or what closes it
                          {"a":                                                   1
                          , "list":                 [2   , true                   ]

How many pieces lie in each value is summed from the last level up, where each begins from the first level down.  Then
one `take` from the pool of different pieces is the text of all documents.  No Python call is made for a value, except
for doubles, and for texts with characters that are escaped.

Binary JSON of many rows, taken apart level by level: what stands where, for documents whose bytes are in order.

    {"a": 1, "list": [2, true]}     level 0        {
                                    level 1        a 1    list [
                                    level 2                    2    true

The members of a container follow each other in their level, those of earlier containers before them.  Values lie one
behind the other inside their container, and so do the names of an object, as TiDB writes them; that is checked, so
no byte is looked at twice on one level.  A document with anything else, or with a type that has no plain text
(opaque bytes, times), is odd: it is for the general reader, which also says what is wrong.

Source: text.py, whose texts these are, and binary.py, which reads what is odd.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kv.row.columns import PADDING, spans, words
from tidegate.model.errors import DecodeError, EncodeError
from tidegate.mysql.cursor import at_end
from tidegate.mysql.json.binary import ARRAY, DOUBLE, INT64, LITERAL, OBJECT, STRING, UINT64, decode_json
from tidegate.mysql.json.text import quote_json, render_json

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


_CODEC: Final = "binary json"
_BINARY: Final = pa.binary()
_FIXED: Final = pa.array([b"", b"[", b", ", b"]", b"}", b"[]", b"{}", b"null", b"true", b"false"], _BINARY)
_NOTHING, _BRACKET, _COMMA, _CLOSE, _EMPTY, _NULL = 0, 1, 2, 3, 5, 7
"""Places in it; of the closing ones, that for arrays before that for objects."""
_ESCAPED: Final = np.array([not 0x20 <= byte < 0x7F or byte in b'"\\' for byte in range(256)])
_NUMBER_TYPES: Final = {INT64: "<i8", UINT64: "<u8"}


def json_texts(documents: Any) -> Any:
    """Return the texts of stored documents, a binary array without nulls; null for what is none."""
    data = np.concatenate([np.frombuffer(_data(documents), np.uint8), np.zeros(PADDING, np.uint8)])
    ends = np.frombuffer(documents.buffers()[1], np.int32, len(documents) + 1, 4 * documents.offset).astype(np.int64)
    texts, odd = _plain(data, ends[:-1], ends[1:])
    if not odd.any():
        return texts
    rows = np.flatnonzero(odd)
    others = pa.array([_generally(value) for value in documents.take(pa.array(rows)).to_pylist()], pa.string())
    return pc.replace_with_mask(texts, pa.array(odd), others)


def _data(array: Any) -> Any:
    return array.buffers()[2] or b""


def _generally(raw: bytes) -> str | None:
    """The text of one document by the general reader."""
    try:
        document, end = decode_json(raw)
        at_end(raw, end, _CODEC)
        return render_json(document)
    except (DecodeError, EncodeError):
        return None


def _plain(data: Any, starts: Any, ends: Any) -> tuple[Any, Any]:
    """The texts of documents in order, null for the odd ones, and which these are."""
    if not len(starts):
        return pa.array([], pa.string()), np.zeros(0, np.bool_)
    levels, odd = read_levels(data, starts, ends)
    if not odd.any():
        names, odd = _member_names(data, levels, len(starts))
        if not odd.any():
            return _texts(data, levels, names), odd
    kept = np.flatnonzero(~odd)
    texts, more = _plain(data, starts[kept], ends[kept])
    odd[kept[more]] = True
    places = np.zeros(len(odd), np.int64)
    places[kept] = np.arange(len(kept))
    return texts.take(pa.array(places, mask=odd)), odd


def _member_names(data: Any, levels: list[Level], documents: int) -> tuple[Any, Any]:
    """The members' names of all levels as a dictionary, and the documents in which they are not what they have to be:
    texts that ascend within an object."""
    names = pa.concat_arrays([spans(data, level.name_at, level.name_size) for level in levels]).dictionary_encode()
    words = names.dictionary.to_pylist()
    rank = np.zeros(len(words), np.int64)
    rank[sorted(range(len(words)), key=words.__getitem__)] = np.arange(len(words))
    code = names.indices.to_numpy()
    owner = np.concatenate([level.document[level.names] for level in levels])
    follows = np.concatenate([level.names != level.first[level.names] for level in levels])
    odd = np.zeros(documents, np.bool_)
    odd[owner[1:][follows[1:] & (rank[code[1:]] <= rank[code[:-1]])]] = True
    odd[owner[~np.array([_is_text(word) for word in words], np.bool_)[code]]] = True
    return names, odd


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _texts(data: Any, levels: list[Level], names: Any) -> Any:
    """The texts of documents none of which is odd."""
    pool, before, own = _pieces(data, levels, names)
    counts = _counts(levels)
    order = np.zeros(int(counts[0].sum()), np.int64)
    begin = np.zeros(0, np.int64)
    start, at = np.cumsum(counts[0]) - counts[0], 0
    for number, (level, count) in enumerate(zip(levels, counts, strict=True)):
        if number:
            within = np.cumsum(count) - count
            begin = begin[level.owner] + 1 + within - within[level.first]
        else:
            begin = start
        order[begin] = before[at : at + len(count)]
        order[begin + count - 1] = own[at : at + len(count)]
        at += len(count)
    taken = pool.take(pa.array(order))
    bounds = np.frombuffer(taken.buffers()[1], np.int32)[np.append(start, len(order))]
    return pa.Array.from_buffers(pa.string(), len(start), [None, pa.py_buffer(bounds), taken.buffers()[2]])


def _counts(levels: list[Level]) -> list[Any]:
    """How many pieces there are in each value of each level."""
    counts = [np.full(len(level.kind), 2) for level in levels]
    for number in range(len(levels) - 1, 0, -1):
        sums = np.bincount(levels[number].owner, counts[number], len(counts[number - 1]))
        counts[number - 1] += sums.astype(np.int64)
    return counts


def _pieces(data: Any, levels: list[Level], names: Any) -> tuple[Any, Any, Any]:
    """The different pieces, and of all values, level by level, the one before and the one that is their own."""
    kind, at, size = (np.concatenate(column) for column in list(zip(*levels, strict=True))[:3])
    titles = [quote_json(name.decode()).encode() + b": " for name in names.dictionary.to_pylist()]
    pool = [_FIXED, pa.array([start + title for start in (b"{", b", ") for title in titles], _BINARY)]
    known = len(_FIXED) + len(pool[1])
    before = _before(levels, names.indices.to_numpy(), len(titles))
    is_object = kind == OBJECT
    own = np.where(size > 0, _CLOSE, _EMPTY) + is_object
    literals = np.flatnonzero(kind == LITERAL)
    own[literals] = _NULL + data[at[literals]]
    for code, write in (*_NUMBER_TYPES.items(), (DOUBLE, "<f8")):
        rows = np.flatnonzero(kind == code)
        numbers = pa.array(words(data, at[rows]).view(write))
        pool.append(_doubles(numbers) if code == DOUBLE else numbers.cast(pa.string()).view(_BINARY))
        own[rows] = known + np.arange(len(rows))
        known += len(rows)
    texts = [spans(data, level.at[rows], level.size[rows]) for level in levels for rows in [level.kind == STRING]]
    rows = np.flatnonzero(kind == STRING)
    own[rows] = known + np.arange(len(rows))
    return pa.concat_arrays([*pool, _quoted(pa.concat_arrays(texts))]), before, own


def _before(levels: list[Level], code: Any, names: int) -> Any:
    """The pieces before values: nothing, a bracket or a comma, with the name where there is one."""
    found, at = [np.full(len(levels[0].kind), _NOTHING)], 0
    for level in levels[1:]:
        follows = np.arange(len(level.kind)) != level.first
        pieces = np.where(follows, _COMMA, _BRACKET)
        pieces[level.names] = len(_FIXED) + names * follows[level.names] + code[at : at + len(level.names)]
        at += len(level.names)
        found.append(pieces)
    return np.concatenate(found)


def _doubles(numbers: Any) -> Any:
    return pa.array([render_json(number).encode() for number in numbers.to_pylist()], _BINARY)


def _quoted(texts: Any) -> Any:
    """Texts in their quotes."""
    plain = pc.binary_join_element_wise(
        pa.scalar(b'"', _BINARY), texts, pa.scalar(b'"', _BINARY), pa.scalar(b"", _BINARY)
    )
    ends = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1) if len(texts) else np.zeros(1, np.int32)
    every = np.frombuffer(_data(texts), np.uint8)[: ends[-1]]
    escaped = np.zeros(len(texts), np.bool_)
    escaped[np.searchsorted(ends, np.flatnonzero(_ESCAPED[every]), "right") - 1] = True
    if not escaped.any():
        return plain
    raw = texts.filter(pa.array(escaped)).to_pylist()
    others = [quote_json(text.decode("utf-8", "surrogateescape")).encode() for text in raw]
    return pc.replace_with_mask(plain, pa.array(escaped), pa.array(others, _BINARY))
