r"""Compiled loops that decode strings and numbers of JSON texts, and the encodings within strings.

    JSON      \" \\ \/ \b \f \n \r \t \u0041 \ud83d\ude80     escapes; UTF-8 is checked
    Go        \a \b \f \n \r \t \v \" \\ \x41 \u0041 \U0001f680    QUOTED: the bytes of a BINARY in Open Protocol
    LATIN1    code points U+0000 to U+00FF                   the same in canal-json
    base64    with its padding                               texts and blobs in Open Protocol

A function writes from an offset and returns the offset of the next byte, or -1 for invalid input.  Encodings within a
string are decoded in place, since the result is never longer.  `data_words` are the eight bytes at each offset of
`data`, `words` those of `text`; both have eight bytes to spare.

Source: RFC 8259, RFC 4648; the rules of `codec/go.py` and `codec/canal.py`.
"""

from typing import Any, Final

import numpy as np

from tidegate.codec.columnar.scan import ESCAPED, HIGH, ONES, SLASHES, WIDE
from tidegate.codec.columnar.values import MAX_NUMBER
from tidegate.model.compiled import compiled, copy


def _meanings(characters: bytes, meant: bytes) -> Any:
    """The meaning of each character, -1 for the others."""
    meanings = np.full(256, -1, np.int64)
    meanings[np.frombuffer(characters, np.uint8)] = np.frombuffer(meant, np.uint8)
    return meanings


BITS: Final = _meanings(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", bytes(range(64)))
"""The six bits of each character of base64."""

WRONG: Final = np.uint64(1 << 62)
SIXES: Final = np.stack(
    [
        np.where(BITS < 0, WRONG.astype(np.int64), bits).astype(np.uint64)
        for bits in (BITS << 2, BITS >> 4 | (BITS & 15) << 12, BITS >> 2 << 8 | (BITS & 3) << 22, BITS << 16)
    ]
)
"""For each of four characters in a row its bits in the three bytes that they mean, the first byte the lowest."""
_BYTE, _U6, _U8, _U16, _U24, _U32 = map(np.uint64, (0xFF, 6, 8, 16, 24, 32))

GO_SHORT: Final = _meanings(b'abfnrtv"\\', b'\a\b\f\n\r\t\v"\\')
JSON_SHORT: Final = _meanings(b'bfnrt"\\/', b'\b\f\n\r\t"\\/')
"""Escapes of one character, in Go's quotes and in JSON."""

TEXT, BASE64, BASE64_TEXT, QUOTED, LATIN1 = range(3, 8)
"""Encodings of a string; convert.py has the conversions of numbers."""


@compiled
def _digits_end(text: Any, offset: int, stop: int) -> int:
    while offset < stop and 48 <= text[offset] <= 57:
        offset += 1
    return offset


@compiled
def number(text: Any, begun: int, stop: int, data: Any, to: int) -> int:
    """Copy a number of JSON's grammar; return the next position, -1 for another text."""
    if stop - begun > MAX_NUMBER:
        return -1
    first = begun + 1 if begun < stop and text[begun] == 45 else begun
    end = _digits_end(text, first, stop)
    if end == first or (text[first] == 48 and end - first > 1):
        return -1
    if end < stop and text[end] == 46:
        first = end + 1
        end = _digits_end(text, first, stop)
        if end == first:
            return -1
    if end < stop and (text[end] == 101 or text[end] == 69):
        end += 1
        if end < stop and (text[end] == 43 or text[end] == 45):
            end += 1
        first = end
        end = _digits_end(text, first, stop)
        if end == first or end - first > 4:
            return -1
    if end != stop:
        return -1
    for byte_at in range(begun, stop):
        data[to] = text[byte_at]
        to += 1
    return to


@compiled
def string(text: Any, words: Any, offset: int, stop: int, mark: int, data: Any, data_words: Any, begun: int) -> int:
    """Copy the meaning of a JSON string, eight bytes at a time; return the next position, -1 for an invalid one."""
    if mark & ESCAPED:
        to = _copy_escaped(text, words, offset, stop, data, data_words, begun)
    else:
        to = copy(words, offset, stop, data_words, begun)
    if to >= 0 and mark & WIDE and not _is_utf8(data, data_words, begun, to):
        return -1
    return to


@compiled
def undo(way: int, data: Any, data_words: Any, begun: int, stop: int) -> int:
    """Undo in place the encoding of a string within JSON; return its end, -1 for an invalid one."""
    if way == QUOTED:
        return _undo_quotes(data, begun, stop)
    if way == LATIN1:
        return _undo_latin1(data, begun, stop)
    stop = _undo_base64(data, data_words, begun, stop)
    if way == BASE64_TEXT and stop >= 0 and not _is_utf8(data, data_words, begun, stop):
        return -1
    return stop


@compiled
def _hex(text: Any, offset: int, stop: int, digits: int) -> Any:
    """The value of hexadecimal digits; -1 for others."""
    if offset + digits > stop:
        return -1
    value: Any = 0
    for byte_at in range(offset, offset + digits):
        byte = np.int64(text[byte_at])
        if 48 <= byte <= 57:
            value = value * 16 + byte - 48
        elif 97 <= byte <= 102:
            value = value * 16 + byte - 87
        elif 65 <= byte <= 70:
            value = value * 16 + byte - 55
        else:
            return -1
    return value


@compiled
def _put_point(data: Any, to: int, point: int) -> int:
    """Write a code point as UTF-8; return the next position."""
    if point < 0x80:
        data[to] = point
        return to + 1
    if point < 0x800:
        data[to], data[to + 1] = 0xC0 | point >> 6, 0x80 | point & 0x3F
        return to + 2
    if point < 0x10000:
        data[to], data[to + 1], data[to + 2] = 0xE0 | point >> 12, 0x80 | point >> 6 & 0x3F, 0x80 | point & 0x3F
        return to + 3
    data[to], data[to + 1] = 0xF0 | point >> 18, 0x80 | point >> 12 & 0x3F
    data[to + 2], data[to + 3] = 0x80 | point >> 6 & 0x3F, 0x80 | point & 0x3F
    return to + 4


@compiled
def _is_utf8(data: Any, words: Any, offset: int, stop: int) -> bool:
    while offset < stop:
        if offset + 8 <= stop and words[np.uint64(offset)] & HIGH == 0:
            offset += 8
            continue
        byte = data[offset]
        if byte < 0x80:
            offset += 1
            continue
        if 0xC2 <= byte <= 0xDF:
            more, low, high = 1, 0x80, 0xBF
        elif 0xE0 <= byte <= 0xEF:
            more, low, high = 2, 0xA0 if byte == 0xE0 else 0x80, 0x9F if byte == 0xED else 0xBF
        elif 0xF0 <= byte <= 0xF4:
            more, low, high = 3, 0x90 if byte == 0xF0 else 0x80, 0x8F if byte == 0xF4 else 0xBF
        else:
            return False
        if offset + more >= stop:
            return False
        if data[offset + 1] < low or data[offset + 1] > high:
            return False
        for byte_at in range(offset + 2, offset + more + 1):
            if data[byte_at] < 0x80 or data[byte_at] > 0xBF:
                return False
        offset += more + 1
    return True


@compiled
def _copy_escaped(text: Any, words: Any, offset: int, stop: int, data: Any, data_words: Any, to: int) -> int:
    """Copy the meaning of a JSON string; return the next position, -1 for a wrong escape."""
    while offset < stop:
        word = words[np.uint64(offset)]
        slashes = word ^ SLASHES
        if offset + 8 <= stop and (slashes - ONES) & ~slashes & HIGH == 0:
            data_words[np.uint64(to)] = word
            to += 8
            offset += 8
            continue
        byte = text[offset]
        while byte != 92 and offset < stop:
            data[to] = byte
            to += 1
            offset += 1
            byte = text[offset]
        if offset >= stop:
            return to
        kind = text[offset + 1]
        offset += 2
        if JSON_SHORT[kind] >= 0:
            data[to] = JSON_SHORT[kind]
        elif kind == 117:
            point = _hex(text, offset, stop, 4)
            offset += 4
            if 0xD800 <= point <= 0xDBFF and offset + 6 <= stop and text[offset] == 92 and text[offset + 1] == 117:
                second = _hex(text, offset + 2, stop, 4)
                offset += 6
                point = 0x10000 + (point - 0xD800) * 0x400 + second - 0xDC00 if 0xDC00 <= second <= 0xDFFF else -1
            if point < 0 or 0xD800 <= point <= 0xDFFF:
                return -1
            to = _put_point(data, to, point) - 1
        else:
            return -1
        to += 1
    return to


@compiled
def _undo_quotes(data: Any, begun: int, stop: int) -> int:
    """Undo Go's quoting."""
    to = offset = begun
    while offset < stop:
        byte = data[offset]
        if byte != 92:
            if byte == 34 or byte == 10:
                return -1
            data[to] = byte
            to += 1
            offset += 1
            continue
        if offset + 1 == stop:
            return -1
        kind = data[offset + 1]
        offset += 2
        if kind == 120:
            value = _hex(data, offset, stop, 2)
            if value < 0:
                return -1
            data[to] = value
            offset += 2
        elif kind == 117 or kind == 85:
            size = 4 if kind == 117 else 8
            value = _hex(data, offset, stop, size)
            if value < 0 or value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
                return -1
            to = _put_point(data, to, value) - 1
            offset += size
        elif GO_SHORT[kind] >= 0:
            data[to] = GO_SHORT[kind]
        else:
            return -1
        to += 1
    return to


@compiled
def _undo_latin1(data: Any, begun: int, stop: int) -> int:
    """Undo Latin-1: code points up to U+00FF to bytes."""
    to = offset = begun
    while offset < stop:
        byte = data[offset]
        if byte < 0x80:
            data[to] = byte
            offset += 1
        elif byte == 0xC2 or byte == 0xC3:
            data[to] = (byte & 3) << 6 | data[offset + 1] & 0x3F
            offset += 2
        else:
            return -1
        to += 1
    return to


@compiled
def _undo_base64(data: Any, words: Any, begun: int, stop: int) -> int:
    if (stop - begun) % 4:
        return -1
    to, offset, wrong = np.uint64(begun), np.uint64(begun), np.uint64(0)
    while offset + _U8 < np.uint64(stop):
        word = words[offset]
        first = (
            SIXES[0, word & _BYTE]
            | SIXES[1, word >> _U8 & _BYTE]
            | SIXES[2, word >> _U16 & _BYTE]
            | SIXES[3, word >> _U24 & _BYTE]
        )
        word >>= _U32
        second = (
            SIXES[0, word & _BYTE]
            | SIXES[1, word >> _U8 & _BYTE]
            | SIXES[2, word >> _U16 & _BYTE]
            | SIXES[3, word >> _U24]
        )
        wrong |= first | second
        words[to] = first | second << _U24
        to, offset = to + _U6, offset + _U8
    if wrong & WRONG:
        return -1
    end, last = np.int64(to), np.int64(offset)
    while last < stop:
        size = 3 if last + 4 < stop or data[last + 3] != 61 else 2 if data[last + 2] != 61 else 1
        number = np.int64(0)
        for index in range(4):
            bits = BITS[data[last + index]] if index <= size else 0
            if bits < 0:
                return -1
            number = number << 6 | bits
        if (size == 1 and number & 0xFFFF) or (size == 2 and number & 0xFF):
            return -1
        for index in range(size):
            data[end + index] = number >> 16 - 8 * index & 0xFF
        end, last = end + size, last + 4
    return int(end)
