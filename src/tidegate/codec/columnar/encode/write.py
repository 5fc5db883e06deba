r"""Compiled loops that write row texts byte by byte: steps of a row, members of its images, values of its cells.

    steps    {"u":{  after  CHOSEN  before  CHOSEN      the parts of a row
    members  "id":{"t":8,"v":  cell  }  ,  …            the parts of an image
    cells    1 2 null   x "y"                           Arrow's buffers, wherever they begin in `text`

    LITERAL  the same text in all rows
    CHOSEN   one of several texts, by a code of the row
    CELL     a value of the row, after its head if it has one; with a head, null writes nothing
    IMAGE    the members of an image, separated by commas; nothing in a row without that image

A value is null, or it is INTEGER: digits; ESCAPED: characters replaced by a table (characters.py); COPIED: unchanged;
BASE64 with its padding.  A row is begun only if the buffer has room for its fixed texts, and a value only if there is
room for its longest encoding.  A loop without room returns, and is called again with a larger buffer.

`words` are the eight bytes at each offset of `text`, `out_words` those of `out`; both have eight bytes to spare.
"""

from typing import Any, Final

import numpy as np

from tidegate.codec.columnar.scan import HIGH, ONES, QUOTES, SLASHES, SPACES
from tidegate.model.compiled import compiled, copy, inlined

INTEGER, ESCAPED, COPIED, BASE64 = range(4)
LITERAL, CHOSEN, CELL, IMAGE = range(4)

WAY, WIDTH, VALID, DATA, ENDS, TABLE, QUOTED = range(7)
"""The description of a cell: WIDTH in bytes, negative for unsigned; VALID the position of a bit, -1 if nothing is null;
DATA a position, for bytes the one from which ENDS count."""

CODES: Final = 258
"""The size of an escape table: the replacement of each byte, and of U+2028 and U+2029, whose first byte then has no
size."""
GROWTH: Final = 6
"""Bytes that one becomes at most: `\\u003c`."""
SPARE: Final = 32
"""An upper bound for values that do not grow: digits, `null`, quotes, and the excess that `copy` writes."""
_SEPARATOR, _LAST = 0x80, 0xA8
_ANDS, _ANGLES, _TWOS = (np.uint64(0x0101010101010101 * byte) for byte in (0x26, 0x3E, 0x02))
_HUNDRED, _TEN = np.uint64(100), np.uint64(10)
_NULL: Final = np.uint64(int.from_bytes(b"null", "little"))
_PAIRS: Final = np.frombuffer(b"".join(b"%02d" % number for number in range(100)), np.uint8).copy()
_SIXES: Final = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8).copy()


@inlined
def _digits(value: Any, out: Any, to: int) -> int:
    """Write a number without a sign; return the next position."""
    size, most = 1, _TEN
    while size < 20 and value >= most:
        size += 1
        most = most * _TEN if size < 20 else most
    offset = to + size
    while value >= _TEN:
        pair = np.int64(value % _HUNDRED) * 2
        value = value // _HUNDRED
        offset -= 2
        out[offset], out[offset + 1] = _PAIRS[pair], _PAIRS[pair + 1]
    if offset > to:
        out[to] = 48 + np.int64(value)
    return to + size


@inlined
def _integer(word: Any, width: int, out: Any, to: int) -> int:
    """Write the number in the first bytes of a word."""
    shift = np.uint64(64 - 8 * abs(width))
    if width < 0:
        return _digits(word << shift >> shift, out, to)
    signed = np.int64(word << shift) >> np.int64(shift)
    if signed >= 0:
        return _digits(np.uint64(signed), out, to)
    out[to] = 45
    return _digits(np.uint64(-signed), out, to + 1)


@inlined
def _needs_a_look(word: Any) -> Any:
    """True if a word has a byte that some table replaces."""
    quotes, slashes, ands = word ^ QUOTES, word ^ SLASHES, word ^ _ANDS
    angles = (word | _TWOS) ^ _ANGLES
    hits = (quotes - ONES) & ~quotes | (slashes - ONES) & ~slashes | (ands - ONES) & ~ands
    return (hits | (angles - ONES) & ~angles | (word - SPACES) & ~word | word) & HIGH != 0


@compiled
def _escaped(
    text: Any,
    words: Any,
    offset: int,
    stop: int,
    escapes: Any,
    plain: Any,
    table: int,
    out: Any,
    out_words: Any,
    to: int,
) -> int:
    """Copy bytes with replacements; return the next position."""
    first = table * CODES
    while True:
        while offset + 8 <= stop:
            word = words[np.uint64(offset)]
            if _needs_a_look(word):
                break
            out_words[np.uint64(to)] = word
            offset, to = offset + 8, to + 8
        while offset < stop and plain[table, text[np.uint64(offset)]]:
            out[np.uint64(to)] = text[np.uint64(offset)]
            offset, to = offset + 1, to + 1
        if offset >= stop:
            return to
        code, width = np.int64(text[offset]), 1
        if escapes[first + code, 1] == escapes[first + code, 0]:
            if offset + 2 < stop and text[offset + 1] == _SEPARATOR and _LAST <= text[offset + 2] <= _LAST + 1:
                code, width = 256 + np.int64(text[offset + 2]) - _LAST, 3
            else:
                out[to] = code
                to, offset = to + 1, offset + 1
                continue
        to = copy(words, escapes[first + code, 0], escapes[first + code, 1], out_words, to)
        offset += width


@compiled
def _base64(text: Any, offset: int, stop: int, out: Any, to: int) -> int:
    while offset < stop:
        left = stop - offset
        bits = np.int64(text[offset]) << 16
        bits |= np.int64(text[offset + 1]) << 8 if left > 1 else 0
        bits |= np.int64(text[offset + 2]) if left > 2 else 0
        out[to], out[to + 1] = _SIXES[bits >> 18], _SIXES[bits >> 12 & 63]
        out[to + 2] = _SIXES[bits >> 6 & 63] if left > 1 else 61
        out[to + 3] = _SIXES[bits & 63] if left > 2 else 61
        offset, to = offset + 3, to + 4
    return to


@inlined
def _is_null(text: Any, cells: Any, cell: int, index: int) -> Any:
    valid = cells[cell, VALID]
    return valid >= 0 and text[np.uint64((valid + index) >> 3)] >> ((valid + index) & 7) & 1 == 0


@inlined
def _value(
    text: Any, words: Any, cells: Any, cell: int, index: int, escapes: Any, plain: Any, out: Any, out_words: Any,
    to: int, limit: int,
) -> int:  # fmt: skip
    """Write a value; return the next position, -1 without room."""
    if _is_null(text, cells, cell, index):
        out_words[np.uint64(to)] = _NULL
        return to + 4
    way, quoted = cells[cell, WAY], cells[cell, QUOTED]
    if quoted:
        out[to] = 34
        to += 1
    if way == INTEGER:
        width = cells[cell, WIDTH]
        to = _integer(words[np.uint64(cells[cell, DATA] + index * abs(width))], width, out, to)
    else:
        ends = words[np.uint64(cells[cell, ENDS] + 4 * index)]
        offset = cells[cell, DATA] + np.int64(ends & np.uint64(0xFFFFFFFF))
        stop = cells[cell, DATA] + np.int64(ends >> np.uint64(32))
        if to + (GROWTH if way == ESCAPED else 2) * (stop - offset) > limit:
            return -1
        if way == ESCAPED:
            to = _escaped(text, words, offset, stop, escapes, plain, cells[cell, TABLE], out, out_words, to)
        elif way == COPIED:
            to = copy(words, offset, stop, out_words, to)
        else:
            to = _base64(text, offset, stop, out, to)
    if quoted:
        out[to] = 34
        to += 1
    return to


@inlined
def _image(
    text: Any, words: Any, members: Any, cells: Any, first: int, index: int, masks: Any, masked: bool,
    escapes: Any, plain: Any, out: Any, out_words: Any, to: int, limit: int,
) -> int:  # fmt: skip
    """Write the members of an image; return the next position, -1 without room."""
    begun = to
    for member in range(len(members)):
        if masked and not masks[member, index]:
            continue
        if to > begun:
            out[to] = 44
            to += 1
        to = copy(words, members[member, 0], members[member, 1], out_words, to)
        to = _value(text, words, cells, first + member, index, escapes, plain, out, out_words, to, limit)
        if to < 0:
            return -1
        to = copy(words, members[member, 2], members[member, 3], out_words, to)
    return to


@compiled
def write(
    row: int, rows: int, to: int, limit: int, steps: Any, codes: Any, literals: Any, members: Any, cells: Any,
    image_rows: Any, masks: Any, text: Any, words: Any, escapes: Any, plain: Any, out: Any, out_words: Any, ends: Any,
) -> tuple[int, int]:  # fmt: skip
    """Write rows from `row` on; return the first row not written, and its offset.

    row, rows, to, limit    first row and offset; a row begins, and a value ends, before `limit`
    steps, codes, literals  (n, 3): step, and its text or cell; per CHOSEN the row's codes; (n, 2):
                            where texts begin and end
    members, cells          (n, 4): bounds of the texts before and after a value; (n, 7), as above
    image_rows, masks       (2, rows): the old and the new image of each row, -1 for none; which members each old image
                            has, nothing where all have all
    text, words             literals, buffers of cells, texts of escapes
    escapes, plain          where what becomes of a byte begins and ends; whether a byte stays, by table
    out, out_words, ends    the rows, one behind the other, and where each ends, behind a 0"""
    while row < rows and to <= limit:
        offset = to
        for step in range(len(steps)):
            kind, first, second = steps[step, 0], steps[step, 1], steps[step, 2]
            if kind == LITERAL:
                offset = copy(words, first, second, out_words, offset)
            elif kind == CHOSEN:
                code = codes[first, row] + second
                offset = copy(words, literals[code, 0], literals[code, 1], out_words, offset)
            elif kind == CELL:
                if second >= 0:
                    if _is_null(text, cells, first, row):
                        continue
                    offset = copy(words, literals[second, 0], literals[second, 1], out_words, offset)
                offset = _value(text, words, cells, first, row, escapes, plain, out, out_words, offset, limit)
            elif image_rows[first, row] >= 0:
                offset = _image(
                    text, words, members, cells, first * len(members), image_rows[first, row], masks,
                    first == 0 and len(masks) > 0, escapes, plain, out, out_words, offset, limit,
                )  # fmt: skip
            if offset < 0:
                return row, to
        to = offset
        ends[row + 1] = to
        row += 1
    return row, to
