"""Columnar reader of binary JSON: many documents at once to their texts.

    {"a": 1, "list": [2, true]}     level 0        {
                                    level 1        a 1    list [
                                    level 2                    2    true

Documents are read level by level; the members of a container follow each other in their level.  No Python call is made
for a value, except for doubles, and for texts with escaped characters.

The number of pieces of text of each value is summed from the last level up, the offset of each from the first level
down.  One `take` from the pool of different pieces is then the text of all documents.  It is checked that values and
names lie in order, as TiDB writes them.  Other documents, and types without plain text (opaque bytes, times), are left
to mysql/json_value.py.

Source: mysql/json_value.py, whose checks and texts these are.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kv.slices import PADDING, spans, words
from tidegate.model.errors import DecodeError, EncodeError
from tidegate.mysql.encoding import at_end
from tidegate.mysql.json_value import (
    ARRAY,
    DOUBLE,
    INT64,
    LITERAL,
    OBJECT,
    STRING,
    UINT64,
    decode_json,
    quote_json,
    render_json,
)

_MAX_LEVELS: Final = 32
_WORD, _JSON_COLUMNS_HEAD_BYTES, _KEY_BYTES, _ENTRY_BYTES = 8, 8, 6, 5
_LITERALS: Final = 3
_INFINITE: Final = np.uint64(0x7FF)
"""The exponent of a double that is not finite."""


class Level(NamedTuple):
    """Values of one depth, arrays of one length, and the names of those that are members of objects.

    kind        type of the value
    offsets     the first byte after its head: number, text, number of a literal, head of a container
    size        bytes of a text, members of a container, else 0
    end         the byte after it
    document    the number of its document
    owner       its container, an index in the level above
    first       the first value of the same container, an index in this level
    names       which values have a name; name_at, name_size: where these are
    """

    kind: Any
    offsets: Any
    size: Any
    end: Any
    document: Any
    owner: Any
    first: Any
    names: Any
    name_at: Any
    name_size: Any


class Levels(NamedTuple):
    """The values of documents, level by level; `odd` documents were not read, or only in part."""

    levels: list[Level]
    odd: Any


class _Values(NamedTuple):
    offsets: Any
    size: Any
    end: Any
    good: Any


def read_levels(data: Any, starts: Any, ends: Any) -> Levels:
    """Return the values of documents that are concatenated in `data`, with eight bytes of padding at the end."""
    count = len(starts)
    every, none = np.arange(count), np.zeros(0, np.int64)
    kind = data[np.minimum(starts, len(data) - _WORD)]
    measured = _measured(data, kind, starts + 1, ends)
    odd = ~measured.good | (measured.end != ends)
    levels = [Level(kind, measured.offsets, measured.size, measured.end, every, every, every, none, none, none)]
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


def _measured(data: Any, kind: Any, offsets: Any, bound: Any) -> _Values:
    """Return the extents of the values at `offsets`, and which of them are valid and end at or before `bound`."""
    word = words(data, np.minimum(offsets, len(data) - _WORD))
    low, high = (word & np.uint64(0xFFFF_FFFF)).astype(np.int64), (word >> np.uint64(32)).astype(np.int64)
    is_object, is_text = kind == OBJECT, kind == STRING
    is_container = is_object | (kind == ARRAY)
    head, length, short = _length(low)
    size = np.where(is_container, low, np.where(is_text, length, 0))
    extent = np.where(is_container, high, np.where(is_text, head + length, np.where(kind == LITERAL, 1, _WORD)))
    good = is_container & (
        _JSON_COLUMNS_HEAD_BYTES + size * np.where(is_object, _KEY_BYTES + _ENTRY_BYTES, _ENTRY_BYTES) <= extent
    )
    good |= is_text & short
    good |= (kind == LITERAL) & (low & 0xFF < _LITERALS)
    good |= (kind == INT64) | (kind == UINT64)
    good |= (kind == DOUBLE) & (word >> np.uint64(52) & _INFINITE != _INFINITE)
    end = offsets + extent
    return _Values(offsets + np.where(is_text, head, 0), size, end, good & (end <= bound))


def _length(low: Any) -> tuple[Any, Any, Any]:
    """Decode a length of up to three bytes: its size, the length, and whether it is valid."""
    second, third = low >> 7 & 1, low >> 15 & low >> 7 & 1
    length = (low & 0x7F) | (low >> 1 & 0x3F80) * second | (low >> 2 & 0x1FC000) * third
    return 1 + second + third, length, (low >> 23 & third) == 0


def _members(data: Any, above: Level, containers: Any) -> tuple[Level, Any]:
    """Return the members of `containers`, and which of them have valid offsets."""
    count = above.size[containers]
    owner, first = np.repeat(containers, count), np.repeat(np.cumsum(count) - count, count)
    base, bound, count = above.offsets[owner], above.end[owner], above.size[owner]
    index, of_object = np.arange(len(owner)) - first, above.kind[owner] == OBJECT
    entry = base + _JSON_COLUMNS_HEAD_BYTES + np.where(of_object, _KEY_BYTES * count, 0) + _ENTRY_BYTES * index
    word = words(data, entry)
    kind = (word & np.uint64(0xFF)).astype(np.uint8)
    offset = (word >> np.uint64(8) & np.uint64(0xFFFF_FFFF)).astype(np.int64)
    begin = np.where(kind == LITERAL, entry + 1, base + offset)
    measured = _measured(data, kind, begin, bound)
    heads_end = base + _JSON_COLUMNS_HEAD_BYTES + np.where(of_object, _KEY_BYTES + _ENTRY_BYTES, _ENTRY_BYTES) * count
    good = measured.good & _ascending(kind, begin, measured.end, first, heads_end)
    names = np.flatnonzero(of_object)
    name_at, name_size, fits = _names(data, base[names], index[names], bound[names], heads_end[names])
    good[names] &= fits
    level = Level(
        kind,
        measured.offsets,
        measured.size,
        measured.end,
        above.document[owner],
        owner,
        first,
        names,
        name_at,
        name_size,
    )
    return level, good


def _ascending(kind: Any, begin: Any, end: Any, first: Any, floor: Any) -> Any:
    """Return which values begin behind the previous one of their container, or behind its head; literals are in it."""
    good = np.ones(len(kind), np.bool_)
    rows = np.flatnonzero(kind != LITERAL)
    after = floor[rows]
    follows = first[rows[1:]] == first[rows[:-1]]
    after[1:] = np.where(follows, end[rows[:-1]], after[1:])
    good[rows] = begin[rows] >= after
    return good


def _names(data: Any, base: Any, index: Any, bound: Any, heads_end: Any) -> tuple[Any, Any, Any]:
    """Return offset and size of members' names, and which are contiguous, from the end of the heads on."""
    word = words(data, base + _JSON_COLUMNS_HEAD_BYTES + _KEY_BYTES * index)
    offsets = base + (word & np.uint64(0xFFFF_FFFF)).astype(np.int64)
    size = (word >> np.uint64(32) & np.uint64(0xFFFF)).astype(np.int64)
    due = heads_end.copy()
    due[1:] = np.where(index[1:] > 0, (offsets + size)[:-1], due[1:])
    return offsets, size, (offsets == due) & (offsets + size <= bound)


_CODEC: Final = "binary json"
_BINARY: Final = pa.binary()
_FIXED: Final = pa.array([b"", b"[", b", ", b"]", b"}", b"[]", b"{}", b"null", b"true", b"false"], _BINARY)
_NOTHING, _BRACKET, _COMMA, _CLOSE, _EMPTY, _NULL = 0, 1, 2, 3, 5, 7
"""Places in it; of the closing ones, that for arrays before that for objects."""
_ESCAPED: Final = np.array([not 0x20 <= byte < 0x7F or byte in b'"\\' for byte in range(256)])
_NUMBER_TYPES: Final = {INT64: "<i8", UINT64: "<u8"}


def json_texts(documents: Any) -> Any:
    """Return the JSON texts of stored documents (a binary array without nulls); null for invalid ones."""
    data = np.concatenate([np.frombuffer(_data(documents), np.uint8), np.zeros(PADDING, np.uint8)])
    ends = np.frombuffer(documents.buffers()[1], np.int32, len(documents) + 1, 4 * documents.offset).astype(np.int64)
    texts, odd = _plain(data, ends[:-1], ends[1:])
    if not odd.any():
        return texts
    rows = np.flatnonzero(odd)
    others: list[str | None] = []
    for raw in documents.take(pa.array(rows)).to_pylist():
        try:
            document, end = decode_json(raw)
            at_end(raw, end, _CODEC)
            others.append(render_json(document))
        except (DecodeError, EncodeError):
            others.append(None)
    return pc.replace_with_mask(texts, pa.array(odd), pa.array(others, pa.string()))


def _data(array: Any) -> Any:
    return array.buffers()[2] or b""


def _plain(data: Any, starts: Any, ends: Any) -> tuple[Any, Any]:
    """Return the texts of documents, null for those that the general reader has to read, and which these are."""
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
    indices = np.zeros(len(odd), np.int64)
    indices[kept] = np.arange(len(kept))
    return texts.take(pa.array(indices, mask=odd)), odd


def _member_names(data: Any, levels: list[Level], documents: int) -> tuple[Any, Any]:
    """Return the members' names of all levels as a dictionary array, and the documents with invalid ones: names are
    UTF-8 and ascend within an object."""
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
    pool, before, own = _pieces(data, levels, names)
    counts = _counts(levels)
    order = np.zeros(int(counts[0].sum()), np.int64)
    begin = np.zeros(0, np.int64)
    start, offset = np.cumsum(counts[0]) - counts[0], 0
    for number, (level, count) in enumerate(zip(levels, counts, strict=True)):
        if number:
            within = np.cumsum(count) - count
            begin = begin[level.owner] + 1 + within - within[level.first]
        else:
            begin = start
        order[begin] = before[offset : offset + len(count)]
        order[begin + count - 1] = own[offset : offset + len(count)]
        offset += len(count)
    pieces = pool.take(pa.array(order))
    bounds = np.frombuffer(pieces.buffers()[1], np.int32)[np.append(start, len(order))]
    return pa.Array.from_buffers(pa.string(), len(start), [None, pa.py_buffer(bounds), pieces.buffers()[2]])


def _counts(levels: list[Level]) -> list[Any]:
    """Count the pieces of text of each value, level by level."""
    counts = [np.full(len(level.kind), 2) for level in levels]
    for number in range(len(levels) - 1, 0, -1):
        sums = np.bincount(levels[number].owner, counts[number], len(counts[number - 1]))
        counts[number - 1] += sums.astype(np.int64)
    return counts


def _pieces(data: Any, levels: list[Level], names: Any) -> tuple[Any, Any, Any]:
    """Return the pool of distinct pieces, and per value, level by level, the piece before it and its own."""
    kind, offsets, size = (np.concatenate(column) for column in list(zip(*levels, strict=True))[:3])
    titles = [quote_json(name.decode()).encode() + b": " for name in names.dictionary.to_pylist()]
    pool = [_FIXED, pa.array([start + title for start in (b"{", b", ") for title in titles], _BINARY)]
    size_so_far = len(_FIXED) + len(pool[1])
    before = _before(levels, names.indices.to_numpy(), len(titles))
    is_object = kind == OBJECT
    own = np.where(size > 0, _CLOSE, _EMPTY) + is_object
    literals = np.flatnonzero(kind == LITERAL)
    own[literals] = _NULL + data[offsets[literals]]
    for code, write in (*_NUMBER_TYPES.items(), (DOUBLE, "<f8")):
        rows = np.flatnonzero(kind == code)
        numbers = pa.array(words(data, offsets[rows]).view(write))
        pool.append(_doubles(numbers) if code == DOUBLE else numbers.cast(pa.string()).view(_BINARY))
        own[rows] = size_so_far + np.arange(len(rows))
        size_so_far += len(rows)
    texts = [spans(data, level.offsets[rows], level.size[rows]) for level in levels for rows in [level.kind == STRING]]
    rows = np.flatnonzero(kind == STRING)
    own[rows] = size_so_far + np.arange(len(rows))
    return pa.concat_arrays([*pool, _quoted(pa.concat_arrays(texts))]), before, own


def _before(levels: list[Level], code: Any, names: int) -> Any:
    """Return the piece before each value: nothing, a bracket or a comma, with the member's name."""
    parts, offset = [np.full(len(levels[0].kind), _NOTHING)], 0
    for level in levels[1:]:
        follows = np.arange(len(level.kind)) != level.first
        pieces = np.where(follows, _COMMA, _BRACKET)
        pieces[level.names] = len(_FIXED) + names * follows[level.names] + code[offset : offset + len(level.names)]
        offset += len(level.names)
        parts.append(pieces)
    return np.concatenate(parts)


def _doubles(numbers: Any) -> Any:
    return pa.array([render_json(number).encode() for number in numbers.to_pylist()], _BINARY)


def _quoted(texts: Any) -> Any:
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
