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

Source: text.py, whose texts these are, and binary.py, which reads what is odd.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kv.cursor import at_end
from tidegate.kv.json.binary import DOUBLE, INT64, LITERAL, OBJECT, STRING, UINT64, decode_json
from tidegate.kv.json.levels import Level, read_levels
from tidegate.kv.json.text import quote_json, render_json
from tidegate.kv.row.columns import PADDING, spans, words
from tidegate.model.errors import DecodeError, EncodeError

__all__ = ["json_texts"]

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
        names, odd = _names(data, levels, len(starts))
        if not odd.any():
            return _texts(data, levels, names), odd
    kept = np.flatnonzero(~odd)
    texts, more = _plain(data, starts[kept], ends[kept])
    odd[kept[more]] = True
    places = np.zeros(len(odd), np.int64)
    places[kept] = np.arange(len(kept))
    return texts.take(pa.array(places, mask=odd)), odd


def _names(data: Any, levels: list[Level], documents: int) -> tuple[Any, Any]:
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
