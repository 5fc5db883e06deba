"""Columnar reader of rows of version 2: many rows at once to one Arrow array per column.

    places of rows --locate--> offset and size of each column's bytes --column_reader--> Arrow array

    80 00 0200 0000 | 01 02 | 0100 0400 | 01 | 61 62 63          80 00 0200 0000 | 01 02 | 0100 0200 | 07 | 78
                      ids     ends        values

    column 2    at 13, size 3                                    at 27, size 1

    MySQL                     Arrow            how
    TINYINT .. BIGINT, YEAR   int64            eight bytes from an offset on, shifted to their size
    UNSIGNED, BIT, ENUM, SET  uint64           the same
    FLOAT, DOUBLE             float64          the sortable form turned back; what is not finite is 0
    binary strings            binary           copied together by offset
    texts                     string           the same; binary if a byte of them is no UTF-8
    DATE, DATETIME, TIMESTAMP string           parts of packed numbers to digits; TIMESTAMP in UTC alone
    DECIMAL                   string           words to digits, if all values have the form of the first
    JSON                      string           below, all at once
    TIME, VECTOR              string           `read`, one by one, equal ones once

    if typed: DATE date32, DATETIME and TIMESTAMP timestamp[us], DECIMAL decimal128, where all values of the column are
    dates that the calendar has, or numbers of its precision and scale; the others as above

Loops that numba compiles go over the rows: no Python call is made for a value, except in the last line, for doubles in
JSON, and for JSON texts with escaped characters.  A reader returns the array and the rows that it cannot read: bytes
that are no value of the type, or a form that it does not know.  Those are null in the array and are to be read one by
one (rows.py), which also reports the error.

Binary JSON is read level by level; the members of a container follow each other in their level:

    {"a": 1, "list": [2, true]}     level 0        {
                                    level 1        a 1    list [
                                    level 2                    2    true

The number of pieces of text of each value is summed from the last level up, the offset of each from the first level
down.  One `take` from the pool of different pieces is then the text of all documents.  It is checked that values and
names lie in order, as TiDB writes them.  Other documents, and types without plain text (opaque bytes, times), are left
to mysql/json_value.py.

Source: rows.py, mysql/column_value.py and mysql/json_value.py, whose checks, values and texts these are.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kv.rows import CHECKSUM, HEAD, LARGE, VERSION_BYTE
from tidegate.model.compiled import compiled, gather, inlined, windows
from tidegate.model.errors import DecodeError, EncodeError
from tidegate.model.mysql import DATES, FLOATS, MOMENTS, NUMBERS, STRINGS, UNSIGNED_TYPES, MysqlType
from tidegate.model.table import ColumnType
from tidegate.mysql.encoding import DecimalForm, at_end, chunk_sizes
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

NULL: Final = -1
MISSING: Final = -2
"""Sizes of values without bytes: NULL, and a column that the row does not have."""
PADDING: Final = 8
"""Bytes after the last value, so that eight may be read wherever a value begins."""
_PADDED: Final = pa.array([bytes(PADDING)], pa.binary())
_HEAD_BYTES: Final = HEAD.size
_IDS_MAX: Final = 2 * 0xFFFF
_EXTRA, _VERSION, _CRC_BYTES = 8, 7, 4
_UNWANTED, _OTHER = -1, -2
"""Lines of columns that no row may have, and of those that nobody asks for."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Values as places in `data`: the offset and the size of each. Loops need PADDING bytes behind the last value."""

    data: Any
    offsets: Any
    size: Any

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def nbytes(self) -> int:
        """The bytes of all values."""
        return int(self.size.sum())

    def to_pylist(self, rows: Any = slice(None)) -> list[bytes]:
        """Return the values, or those of some rows."""
        places = zip(self.offsets[rows].tolist(), self.size[rows].tolist(), strict=True)
        return [self.data[offset : offset + size].tobytes() for offset, size in places]


def slices(*arrays: Any) -> Slices:
    """Return the values of binary arrays, one after the other; null is empty."""
    _, ends, raw = pa.concat_arrays([*arrays, _PADDED]).buffers()
    offsets = np.frombuffer(ends, np.int32)[: sum(map(len, arrays)) + 1].astype(np.int64)
    return Slices(np.frombuffer(raw, np.uint8), offsets[:-1], np.diff(offsets))


class Cells(NamedTuple):
    """Cells of one column: per row the offset in the bytes of all rows, and the size, NULL or MISSING."""

    offsets: Any
    size: Any


class RowCells(NamedTuple):
    """`data` are the bytes of all rows and some padding, `cells` the offsets by column id, `fits` the rows for which
    they are right."""

    data: Any
    cells: Mapping[int, Cells]
    fits: Any


def words(data: Any, offsets: Any) -> Any:
    """Return the eight bytes at each of the `offsets` as little-endian numbers."""
    return windows(data, "<u8")[offsets]


def spans(data: Any, offsets: Any, size: Any, absent: Any = None) -> Any:
    """Return the `size` bytes at each of the `offsets` as a binary array; null where `absent`."""
    ends = np.zeros(len(offsets) + 1, np.int64)
    np.cumsum(size, out=ends[1:])
    text = np.empty(ends[-1] + PADDING, np.uint8)
    gather(windows(data), offsets, ends, windows(text))
    buffers = [
        None if absent is None else _valid(absent),
        pa.py_buffer(ends.astype(np.int32)),
        pa.py_buffer(text[: ends[-1]]),
    ]
    return pa.Array.from_buffers(pa.binary(), len(offsets), buffers)


def locate(rows: Slices, columns: Sequence[int], excluded: Collection[int] = ()) -> RowCells:
    """Return the cells of `columns`; a row that holds one of `excluded` does not fit."""
    count = len(rows)
    ids = np.array([*columns, *excluded], np.int64)
    order = np.argsort(ids)
    lines = np.where(order < len(columns), order, _UNWANTED)
    offsets, size = np.zeros((len(columns), count), np.int32), np.full((len(columns), count), MISSING, np.int32)
    fits, found = np.zeros(count, np.bool_), np.empty(_IDS_MAX, np.int64)
    _locate(rows.data, windows(rows.data), rows.offsets, rows.size, ids[order], lines, found, offsets, size, fits)
    return RowCells(rows.data, {column: Cells(offsets[line], size[line]) for line, column in enumerate(columns)}, fits)


@inlined
def _number(data: Any, offset: int, width: int) -> Any:
    number: Any = np.int64(data[offset])
    if width > 1:
        number |= np.int64(data[offset + 1]) << 8
    if width > 2:
        number |= np.int64(data[offset + 2]) << 16 | np.int64(data[offset + 3]) << 24
    return number


@inlined
def _alike(words: Any, one: int, other: int, size: int) -> bool:
    """Return whether the `size` bytes at two offsets are the same."""
    while size >= PADDING:
        if words[one] != words[other]:
            return False
        one, other, size = one + PADDING, other + PADDING, size - PADDING
    return size == 0 or (words[one] ^ words[other]) << np.uint64(64 - 8 * size) == 0


@inlined
def _head_bytes(data: Any, begin: int, end: int) -> int:
    """Return the size of a row's head up to its last id; 0 if `decode_raw_row` does not accept it."""
    if end - begin < _HEAD_BYTES or data[begin] != VERSION_BYTE or data[begin + 1] & ~(LARGE | CHECKSUM):
        return 0
    id_bytes = 4 if data[begin + 1] & LARGE else 1
    size: int = _HEAD_BYTES + (_number(data, begin + 2, 2) + _number(data, begin + 4, 2)) * id_bytes
    return size if size <= end - begin else 0


@compiled
def _read_head(data: Any, begin: int, column_ids: Any, lines: Any, found: Any) -> bool:
    """Store the line of each id of a head, _OTHER for one that nobody asked for; return whether `decode_raw_row`
    accepts them, and none is unwanted."""
    id_bytes = 4 if data[begin + 1] & LARGE else 1
    count, nulls, ids = _number(data, begin + 2, 2), _number(data, begin + 4, 2), begin + _HEAD_BYTES
    entry, before, beside = 0, -1, 0
    for index in range(count + nulls):
        column = _number(data, ids + index * id_bytes, id_bytes)
        if index == count:
            entry, before = 0, -1
        while index >= count and beside < count and _number(data, ids + beside * id_bytes, id_bytes) < column:
            beside += 1
        is_both = index >= count and beside < count and _number(data, ids + beside * id_bytes, id_bytes) == column
        if column <= before or is_both:
            return False
        while entry < len(column_ids) and column_ids[entry] < column:
            entry += 1
        found[index] = lines[entry] if entry < len(column_ids) and column_ids[entry] == column else _OTHER
        if found[index] == _UNWANTED:
            return False
        before = column
    return True


@inlined
def _locate_cells(
    data: Any, begin: int, end: int, head_bytes: int, end_bytes: int, found: Any, offsets: Any, size: Any, row: int
) -> bool:
    """Store the offsets of a row whose columns have the lines `found`; return whether `decode_raw_row` accepts it.
    Callers pass a constant size of ends, so that numba compiles a loop for each."""
    flags, count, nulls = data[begin + 1], _number(data, begin + 2, 2), _number(data, begin + 4, 2)
    ends = begin + head_bytes
    first = ends + count * end_bytes
    if first > end:
        return False
    done = 0
    for index in range(count):
        stop = _number(data, ends + index * end_bytes, end_bytes)
        if stop < done:
            return False
        if found[index] >= 0:
            offsets[found[index], row], size[found[index], row] = first + done, stop - done
        done = stop
    for index in range(count, count + nulls):
        if found[index] >= 0:
            size[found[index], row] = NULL
    tail_bytes: int = end - first - done
    if flags & CHECKSUM == 0 or tail_bytes < 1:
        return tail_bytes == 0 and flags & CHECKSUM == 0
    header: int = _number(data, first + done, 1)
    return tail_bytes == 1 + _CRC_BYTES * (2 if header & _EXTRA else 1) and header & ~(_EXTRA | _VERSION) == 0


@compiled
def _locate(
    data: Any, words: Any, begins: Any, sizes: Any, column_ids: Any, lines: Any, found: Any, offsets: Any, size: Any,
    fits: Any,
) -> None:  # fmt: skip
    """Store the offsets of all rows. The ids of a row are read where they are not those of the row before.

    begins, sizes       where the rows are in `data`
    column_ids, lines   ids of columns, ascending, and the line of each, or that no row may have it
    found               room for the lines of a row's ids
    offsets, size       (lines, rows): 0 and MISSING at first, and again in a row that does not fit
    fits                which rows do"""
    head = head_bytes = 0
    for row in range(len(begins)):
        begin, end = begins[row], begins[row] + sizes[row]
        if head_bytes == 0 or end - begin < head_bytes or not _alike(words, begin, head, head_bytes):
            head, head_bytes = begin, _head_bytes(data, begin, end)
            if head_bytes > 0 and not _read_head(data, begin, column_ids, lines, found):
                head_bytes = 0
        if head_bytes == 0:
            continue
        if data[begin + 1] & LARGE:
            fits[row] = _locate_cells(data, begin, end, head_bytes, 4, found, offsets, size, row)
        else:
            fits[row] = _locate_cells(data, begin, end, head_bytes, 2, found, offsets, size, row)
        if not fits[row]:
            for line in range(len(offsets)):
                offsets[line, row], size[line, row] = 0, MISSING


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


Read: TypeAlias = Callable[[bytes], Any]


class ReadValues(NamedTuple):
    """The values of a column as an Arrow array, and the rows whose bytes could not be read (null in the array)."""

    array: Any
    unread: Any


ReadColumn: TypeAlias = Callable[[Any, Cells], ReadValues]
"""The bytes of all rows, and the cells of the column in them."""

_SIGN: Final = np.uint64(1 << 63)
_DATE_WIDTH, _TIME_WIDTH = 10, 19
_MAX_FSP: Final = 6
_DIGITS_MAX: Final = 18
"""Number of digits that always fit a signed 64-bit number."""
_ARROW_DIGITS_MAX: Final = 38
_DAY_MICROS: Final = 86_400_000_000
_DAYS_TO_1970: Final = 719_469
"""From the day before March 1st of the year 0 on."""


def arrow_type(kind: ColumnType) -> Any:
    """Return the Arrow type of a column; its arrays may be binary in place of string."""
    if kind.code in NUMBERS:
        return pa.uint64() if _is_unsigned(kind) else pa.int64()
    if kind.code in FLOATS:
        return pa.float64()
    return pa.binary() if kind.code in STRINGS and kind.charset == "binary" else pa.string()


def exact_type(kind: ColumnType) -> Any:
    """Return the Arrow type of a column with DECIMAL and times as what they are, where there is one."""
    if kind.code in MOMENTS:
        return pa.date32() if kind.code in DATES else pa.timestamp("us")
    if kind.code is MysqlType.DECIMAL and 0 <= max(kind.decimal, 0) <= kind.flen <= _ARROW_DIGITS_MAX:
        return pa.decimal128(kind.flen, max(kind.decimal, 0))
    return arrow_type(kind)


def column_reader(kind: ColumnType, read: Read, *, utc: bool = True, typed: bool = False) -> ReadColumn:
    """Return the reader of a column of that type; `read` returns a single value as in the array, or raises
    DecodeError. If `typed`, arrays are of `exact_type` where all values are of it."""
    if kind.code in NUMBERS:
        return partial(_whole, kind=np.uint64 if _is_unsigned(kind) else np.int64)
    if kind.code in FLOATS:
        return _floats
    if kind.code in STRINGS:
        return partial(_binary, texts=kind.charset != "binary")
    if kind.code in MOMENTS and (utc or kind.code is not MysqlType.TIMESTAMP):
        fsp = 0 if kind.code in DATES else min(max(kind.decimal, 0), _MAX_FSP)
        texts = partial(_times, fsp=fsp, kind=kind)
        return partial(_moments, fsp=fsp, exact=exact_type(kind), texts=texts) if typed else texts
    if kind.code is MysqlType.DECIMAL:
        texts = partial(_decimals, kind=kind, read=read)
        is_exact = typed and pa.types.is_decimal(exact_type(kind))
        return partial(_exact_decimals, kind=kind, texts=texts) if is_exact else texts
    return _documents if kind.code is MysqlType.JSON else partial(_one_by_one, read=read)


def _is_unsigned(kind: ColumnType) -> bool:
    return kind.code in UNSIGNED_TYPES or (kind.unsigned and kind.code is not MysqlType.YEAR)


@compiled
def _integers(words: Any, offsets: Any, size: Any, is_signed: bool, numbers: Any, absent: Any, unread: Any) -> None:
    """Read numbers of one, two, four or eight bytes; mark absent and invalid ones."""
    for row in range(len(offsets)):
        width = size[row]
        if width == 1 or width == 2 or width == 4 or width == 8:
            shift = 64 - 8 * width
            left = words[offsets[row]] << np.uint64(shift)
            numbers[row] = np.uint64(np.int64(left) >> np.int64(shift)) if is_signed else left >> np.uint64(shift)
        else:
            numbers[row], absent[row], unread[row] = 0, True, width >= 0


def _numbers(data: Any, cells: Cells, kind: type[np.integer]) -> tuple[Any, Any, Any]:
    """Return numbers, and which rows have none or an invalid one."""
    count = len(cells.offsets)
    numbers, absent, unread = np.empty(count, np.uint64), np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    _integers(windows(data), cells.offsets, cells.size, kind is np.int64, numbers, absent, unread)
    return numbers.view(kind), absent, unread


def _whole(data: Any, cells: Cells, kind: type[np.integer]) -> ReadValues:
    numbers, absent, unread = _numbers(data, cells, kind)
    return ReadValues(pa.array(numbers, mask=absent), unread)


def _floats(data: Any, cells: Cells) -> ReadValues:
    bits = words(data, cells.offsets).byteswap()
    values = np.where(bits & _SIGN, bits ^ _SIGN, ~bits).view(np.float64)
    unread = (cells.size >= 0) & (cells.size != PADDING)
    return ReadValues(pa.array(np.where(np.isfinite(values), values, 0.0), mask=unread | (cells.size < 0)), unread)


def _binary(data: Any, cells: Cells, *, texts: bool = False) -> ReadValues:
    """Read bytes; `texts` as strings if all of them are UTF-8."""
    absent = cells.size < 0
    array = spans(data, cells.offsets, np.where(absent, 0, cells.size), absent)
    if texts:
        with suppress(pa.ArrowInvalid):
            array = array.cast(pa.string())
    return ReadValues(array, np.zeros(len(absent), np.bool_))


def _documents(data: Any, cells: Cells) -> ReadValues:
    """Read JSON documents; equal ones are read once, since an UPDATE mostly keeps them."""
    encoded = _binary(data, cells).array.dictionary_encode()
    texts = json_texts(encoded.dictionary).take(encoded.indices)
    return ReadValues(texts, (cells.size >= 0) & texts.is_null().to_numpy(zero_copy_only=False))


def _times(data: Any, cells: Cells, fsp: int, kind: ColumnType) -> ReadValues:
    width = _DATE_WIDTH if kind.code in DATES else _TIME_WIDTH + (1 + fsp) * (fsp > 0)
    packed, absent, unread = _numbers(data, cells, np.int64)
    text = np.full((len(packed), width), ord("0"), np.uint8)
    _time_texts(packed, absent, fsp, text, unread)
    ends = np.arange(0, width * (len(packed) + 1), width, dtype=np.int32)[: len(packed) + 1]
    return ReadValues(_strings(text, ends, absent | unread), unread)


def _strings(text: Any, ends: Any, absent: Any) -> Any:
    return pa.Array.from_buffers(pa.string(), len(absent), [_valid(absent), pa.py_buffer(ends), pa.py_buffer(text)])


def _valid(absent: Any) -> Any:
    return pa.py_buffer(np.packbits(~absent, bitorder="little")) if absent.any() else None


@inlined
def _put(line: Any, offset: int, digits: int, number: Any) -> None:
    """Write a number with so many digits."""
    for index in range(offset + digits - 1, offset - 1, -1):
        line[index] = 48 + number % 10
        number //= 10


@inlined
def _parts(packed: int) -> tuple[int, int, int, int, int, int, int]:
    """Return the parts of a packed time: year * 13 + month, day, hour, minute, second, microsecond, from the high bits
    on."""
    months, clock = packed >> 46 & 0x3FFFF, packed >> 24 & 0x1FFFF
    return months // 13, months % 13, packed >> 41 & 31, clock >> 12, clock >> 6 & 63, clock & 63, packed & 0xFFFFFF


@compiled
def _time_texts(every: Any, absent: Any, fsp: int, text: Any, unread: Any) -> None:
    """Write packed times."""
    for row in range(len(every)):
        if absent[row]:
            continue
        year, month, day, hour, minute, second, microsecond = _parts(every[row])
        if year > 9999 or hour > 23 or minute > 59 or second > 59 or microsecond > 999_999:
            unread[row] = True
            continue
        line = text[row]
        _put(line, 0, 4, year)
        _put(line, 5, 2, month)
        _put(line, 8, 2, day)
        line[4] = line[7] = 45
        if len(line) == _DATE_WIDTH:
            continue
        _put(line, 11, 2, hour)
        _put(line, 14, 2, minute)
        _put(line, 17, 2, second)
        line[10], line[13], line[16] = 32, 58, 58
        if fsp > 0:
            line[19] = 46
            _put(line, 20, fsp, microsecond // 10 ** (_MAX_FSP - fsp))


def _moments(data: Any, cells: Cells, fsp: int, exact: Any, texts: ReadColumn) -> ReadValues:
    """Times as what they are; as texts where the calendar does not have one of them."""
    packed, absent, unread = _numbers(data, cells, np.int64)
    micros = np.zeros(len(packed), np.int64)
    if unread.any() or not _read_moments(packed, absent, 10 ** (_MAX_FSP - fsp), micros):
        return texts(data, cells)
    values = (micros // _DAY_MICROS).astype(np.int32) if pa.types.is_date(exact) else micros
    return ReadValues(pa.array(values, exact, mask=absent if absent.any() else None), unread)


@compiled
def _read_moments(every: Any, absent: Any, unit: int, micros: Any) -> bool:
    """Store the microseconds since 1970 of packed times, in whole units; return whether the calendar has them all."""
    for row in range(len(every)):
        if absent[row]:
            continue
        year, month, day, hour, minute, second, microsecond = _parts(every[row])
        if year < 1 or year > 9999 or month < 1 or hour > 23 or minute > 59 or second > 59 or microsecond > 999_999:
            return False
        is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        month_days = 30 + ((month + (month >> 3)) & 1) if month != 2 else 29 if is_leap else 28
        if day < 1 or day > month_days:
            return False
        # Days of a year that begins with March, so that a leap day is its last one.
        since = year - (month < 3)
        days = 365 * since + since // 4 - since // 100 + since // 400 + (153 * ((month + 9) % 12) + 2) // 5 + day
        seconds = (days - _DAYS_TO_1970) * 86_400 + hour * 3600 + minute * 60 + second
        micros[row] = seconds * 1_000_000 + microsecond // unit * unit
    return True


def _decimals(data: Any, cells: Cells, kind: ColumnType, read: Read) -> ReadValues:
    """DECIMALs of the column's own scale; others one by one."""
    form = _form(data, cells, kind)
    if form is None:
        return _one_by_one(data, cells, read)
    count = len(cells.offsets)
    text, ends = np.empty(count * (form.precision + 3), np.uint8), np.zeros(count + 1, np.int32)
    done = np.zeros(count, np.bool_)
    _decimal_texts(data, cells.offsets, cells.size, *form, _chunks(form), text, ends, done)
    return _completed(data, cells, read, _strings(text[: ends[-1]], ends, ~done), done)


def _exact_decimals(data: Any, cells: Cells, kind: ColumnType, texts: ReadColumn) -> ReadValues:
    """DECIMALs as what they are, if all have the form of the first; others as texts."""
    form, absent = _form(data, cells, kind), cells.size < 0
    numbers = np.zeros((len(absent), 2), np.uint64)
    if form is None or form.precision > kind.flen:
        return texts(data, cells)
    if not _read_decimals(data, cells.offsets, cells.size, *form, _chunks(form), numbers):
        return texts(data, cells)
    array = pa.Array.from_buffers(exact_type(kind), len(absent), [_valid(absent), pa.py_buffer(numbers)])
    return ReadValues(array, np.zeros(len(absent), np.bool_))


def _form(data: Any, cells: Cells, kind: ColumnType) -> DecimalForm | None:
    """The form of the first value, if it has the column's scale, and both of its parts fit 64 bits."""
    rows = np.flatnonzero(cells.size > 2)
    if not len(rows):
        return None
    first = cells.offsets[rows[0]]
    form = DecimalForm(int(data[first]), int(data[first + 1]))
    whole, scale = form.precision - form.scale, form.scale
    fits = form.precision > 0 and 0 <= whole <= _DIGITS_MAX and scale <= _DIGITS_MAX and scale == kind.decimal
    return form if fits else None


def _chunks(form: DecimalForm) -> Any:
    return np.array(chunk_sizes(form), np.int64)


@inlined
def _decimal(data: Any, begin: int, precision: int, scale: int, chunks: Any) -> tuple[Any, Any, bool, bool]:
    """Return the parts of a number before and behind the point, whether it is negative, and whether all its words have
    as many digits as they may."""
    flip = 0 if data[begin] & 0x80 else 0xFF
    offset, digits_left, whole, fraction, good = begin, precision, np.int64(0), np.int64(0), True
    for chunk in range(len(chunks)):
        digits, part = chunks[chunk, 0], np.int64(0)
        for _ in range(chunks[chunk, 1]):
            byte = np.int64(data[offset]) ^ flip
            part = part << 8 | (byte ^ 0x80 if offset == begin else byte)
            offset += 1
        good = good and part < 10**digits
        if digits_left > scale:
            whole = whole * 10**digits + part
        else:
            fraction = fraction * 10**digits + part
        digits_left -= digits
    return whole, fraction, flip != 0, good


@compiled
def _decimal_texts(
    data: Any, offsets: Any, size: Any, precision: int, scale: int, chunks: Any, text: Any, ends: Any, done: Any
) -> None:
    """Write sign, digits without leading zeros, and `scale` decimals; mark the rows of that precision and scale."""
    width = chunks[:, 1].sum()
    to = 0
    for row in range(len(offsets)):
        begin = offsets[row]
        if size[row] == 2 + width and data[begin] == precision and data[begin + 1] == scale:
            whole, fraction, is_negative, good = _decimal(data, begin + 2, precision, scale, chunks)
            if good:
                if is_negative and (whole or fraction):
                    text[to] = 45
                    to += 1
                places, most = 1, 10
                while places < _DIGITS_MAX and whole >= most:
                    places, most = places + 1, most * 10
                _put(text, to, places, whole)
                to += places
                if scale:
                    text[to] = 46
                    _put(text, to + 1, scale, fraction)
                    to += 1 + scale
                done[row] = True
        ends[row + 1] = to


@compiled
def _read_decimals(data: Any, offsets: Any, size: Any, precision: int, scale: int, chunks: Any, numbers: Any) -> bool:
    """Store the numbers without their point, in 128 bits each, the lower half first; return whether all have that
    precision and scale."""
    width, ten = chunks[:, 1].sum(), np.uint64(10**scale)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for row in range(len(offsets)):
        if size[row] < 0:
            continue
        begin = offsets[row]
        if size[row] != 2 + width or data[begin] != precision or data[begin + 1] != scale:
            return False
        whole, fraction, is_negative, good = _decimal(data, begin + 2, precision, scale, chunks)
        if not good:
            return False
        left, right = np.uint64(whole) >> half, np.uint64(whole) & low
        lower = right * (ten & low)
        middle = left * (ten & low) + (lower >> half)
        cross = right * (ten >> half) + (middle & low)
        upper = left * (ten >> half) + (middle >> half) + (cross >> half)
        lower = (cross << half | lower & low) + np.uint64(fraction)
        upper += np.uint64(lower < np.uint64(fraction))
        if is_negative:
            lower, upper = ~lower + np.uint64(1), ~upper + np.uint64(lower == 0)
        numbers[row, 0], numbers[row, 1] = lower, upper
    return True


def _one_by_one(data: Any, cells: Cells, read: Read) -> ReadValues:
    count = len(cells.offsets)
    return _completed(data, cells, read, pa.nulls(count, pa.string()), np.zeros(count, np.bool_))


def _completed(data: Any, cells: Cells, read: Read, texts: Any, done: Any) -> ReadValues:
    """Return `texts`, with the values that are not `done` read one by one; equal ones are read once."""
    left = (cells.size >= 0) & ~done
    unread = np.zeros(len(left), np.bool_)
    rows = np.flatnonzero(left)
    if not len(rows):
        return ReadValues(texts, unread)
    texts_by_value = dict[bytes, Any]()
    others: list[Any] = []
    for row, offset, size in zip(rows.tolist(), cells.offsets[rows].tolist(), cells.size[rows].tolist(), strict=True):
        value = data[offset : offset + size].tobytes()
        if value not in texts_by_value:
            try:
                texts_by_value[value] = read(value)
            except (DecodeError, EncodeError):
                texts_by_value[value] = None
        others.append(texts_by_value[value])
        unread[row] = texts_by_value[value] is None
    return ReadValues(pc.replace_with_mask(texts, pa.array(left), pa.array(others, pa.string())), unread)
