r"""Rows of Dumpling's files, SQL and CSV, to columns of texts, by compiled loops.

    SQL    INSERT INTO `t` VALUES                     CSV    "id","name"                   the first line, or none
           (1,'it\'s',x'00ff',NULL),                         1,"a \"b\"",\N
           (2,'b',b'101',0.5);                               2,"c",7

With backslash escapes no value holds a line break, so that each line is a row and a file can be cut at any of them;
without, quotes are doubled, and only who reads from the begin knows which line break ends a row.  Lines of a SQL file
that are no rows are comments and the heads of INSERTs; any other is a fault.

    value                       kind
    NULL, the null text         NULL       unquoted
    x'00ff'  b'101'             HEX, BITS  SQL alone
    with \ or doubled quotes    ESCAPED
    any other                   PLAIN

Source: TiDB documentation, "Dumpling Overview"; Dumpling's writers of SQL and CSV; MySQL's string literals.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.model.compiled import compiled, inlined
from tidegate.model.errors import redacted_value

NULL, PLAIN, ESCAPED, HEX, BITS = range(5)
_LF, _CR, _BACKSLASH, _OPEN, _CLOSE, _COMMA, _SEMICOLON, _SLASH, _INSERT = map(ord, "\n\r\\(),;/I")
_VALUES: Final = np.frombuffer(b"VALUES", np.uint8)
_ESCAPES: Final = np.arange(256, dtype=np.uint8)
_ESCAPES[[*b"0bnrtZ"]] = [*b"\0\b\n\r\t\x1a"]
_NIBBLES: Final = np.full(256, 255, np.uint8)
_NIBBLES[[*b"0123456789abcdefABCDEF"]] = [*range(16), *range(10, 16)]


class Dialect(NamedTuple):
    """How rows are written; `quote` is b"" for a CSV without quotes."""

    sql: bool
    escapes: bool
    separator: bytes = b","
    quote: bytes = b'"'
    null: bytes = b"\\N"


class Scanned(NamedTuple):
    """Columns of the first rows of a text, the offset behind them, and that of a fault; -1 for none."""

    columns: list[Any]
    rows: int
    end: int
    fault: int


def scan(text: Any, begin: int, dialect: Dialect, columns: int, rows_max: int, *, last: bool) -> Scanned:
    """Return the rows of `text`, an array of bytes, from `begin` on, at most `rows_max`. Bytes behind `end` are none if
    rows_max was reached or if the rest is no whole row, which is not a fault unless the text is the `last`."""
    bounds = np.empty((2, columns, rows_max), np.int64)
    kinds = np.empty((columns, rows_max), np.uint8)
    separator, null = (np.frombuffer(word, np.uint8) for word in (dialect.separator, dialect.null))
    quote = dialect.quote[0] if dialect.quote else -1
    rows, end, fault = _scan(
        text, begin, last, dialect.sql, dialect.escapes, quote, separator, null, bounds[0], bounds[1], kinds
    )
    arrays = [
        _column(text, bounds[0, column, :rows], bounds[1, column, :rows], kinds[column, :rows], dialect.escapes, quote)
        for column in range(columns)
    ]
    return Scanned(arrays, rows, end, fault)


def from_hex(texts: Any) -> Any:
    """Return the bytes of a column of hexadecimal texts. Raises ValueError for another text."""
    sizes = np.diff(np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1))
    starts = np.cumsum(sizes, dtype=np.int64) - sizes
    kinds = np.where(texts.is_null().to_numpy(zero_copy_only=False), NULL, HEX).astype(np.uint8)
    data = texts.buffers()[2]
    return _column(np.frombuffer(data or b"", np.uint8), starts, starts + sizes, kinds, False, -1)


def _column(text: Any, starts: Any, stops: Any, kinds: Any, escapes: bool, quote: int) -> Any:
    data = np.empty(int((stops - starts).sum()) + 8, np.uint8)
    offsets = np.empty(len(starts) + 1, np.int32)
    bad = _copy(text, starts, stops, kinds, escapes, quote, _ESCAPES, _NIBBLES, offsets, data)
    if bad >= 0:
        raise ValueError(
            f"row {bad + 1}: {redacted_value(bytes(text[starts[bad] : stops[bad]][:40]), 200)} is not hexadecimal"
        )
    valid = kinds != NULL
    nulls = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(starts), [nulls, pa.py_buffer(offsets), pa.py_buffer(data)])


@inlined
def _is_at(text: Any, position: int, word: Any) -> bool:
    if position < 0 or position + len(word) > len(text):
        return False
    for index in range(len(word)):  # noqa: SIM110
        if text[position + index] != word[index]:
            return False
    return True


@compiled
def _other_line(text: Any, position: int) -> int:
    """The offset behind a line that is no row; -1 if it has no end, -2 if nothing of Dumpling's looks like it."""
    first, begin = text[position], position
    while position < len(text) and text[position] != _LF:
        position += 1
    if position == len(text):
        return -1
    stop = position
    while stop > begin and (text[stop - 1] == _CR or text[stop - 1] == 32):
        stop -= 1
    is_head = first == _INSERT and _is_at(text, stop - len(_VALUES), _VALUES)
    return position + 1 if is_head or first == _SLASH or stop == begin else -2


@compiled
def _quoted(text: Any, position: int, quote: int, escapes: bool) -> tuple[int, int]:
    """The offset of the quote that ends a value, and the value's kind; len(text) if there is none."""
    kind = PLAIN
    while position < len(text):
        byte = text[position]
        if byte == quote:
            if position + 1 >= len(text) or text[position + 1] != quote:
                return position, kind
            position, kind = position + 1, ESCAPED
        elif escapes and byte == _BACKSLASH:
            position, kind = position + 1, ESCAPED
        position += 1
    return len(text), kind


@compiled
def _bare(text: Any, position: int, quote: int, sql: bool, escapes: bool, separator: Any) -> tuple[int, int]:
    """The offset behind a value without quotes, and its kind; a quote in it is a fault of the row."""
    kind = PLAIN
    while position < len(text):
        byte = text[position]
        if byte == _LF or byte == _CR or byte == quote or (sql and byte == _CLOSE):
            return position, kind
        if byte == separator[0] and _is_at(text, position, separator):
            return position, kind
        if escapes and byte == _BACKSLASH:
            position, kind = position + 1, ESCAPED
        position += 1
    return len(text), kind


@compiled
def _row_end(text: Any, position: int, sql: bool, last: bool) -> int:
    """The offset behind what ends a row; -1 if that is to come, -2 if it is something else."""
    if sql:
        for first, second in ((_CLOSE, _CLOSE), (_COMMA, _SEMICOLON)):
            if position >= len(text):
                return -1
            if text[position] != first and text[position] != second:
                return -2
            position += 1
    if position < len(text) and text[position] == _CR:
        position += 1
    if position >= len(text):
        return position if last else -1
    return position + 1 if text[position] == _LF else -2


@compiled
def _scan(
    text: Any, begin: int, last: bool, sql: bool, escapes: bool, quote: int,
    separator: Any, null: Any, starts: Any, stops: Any, kinds: Any,
) -> tuple[int, int, int]:  # fmt: skip
    columns, rows = starts.shape
    size, row, offset = len(text), 0, begin
    while row < rows and offset < size:
        position = offset
        if sql:
            if text[offset] != _OPEN:
                behind = _other_line(text, offset)
                if behind < 0:
                    return row, offset, offset if behind == -2 else -1
                offset = behind
                continue
            position += 1
        for column in range(columns):
            if column > 0:
                if not _is_at(text, position, separator):
                    return row, offset, position if position + len(separator) <= size else -1
                position += len(separator)
            prefix = 0
            if sql and position + 1 < size and text[position + 1] == quote:
                prefix = HEX if text[position] | 32 == 120 else BITS if text[position] | 32 == 98 else 0
                position += prefix > 0
            if position < size and text[position] == quote:
                start = position + 1
                stop, kind = _quoted(text, start, quote, escapes)
                position, kind = stop + 1, prefix if prefix > 0 else kind
            else:
                start = position
                stop, kind = _bare(text, start, quote, sql, escapes, separator)
                position = stop
                if stop - start == len(null) and _is_at(text, start, null):
                    kind = NULL
            starts[column, row], stops[column, row], kinds[column, row] = start, min(stop, size), kind
        end = _row_end(text, position, sql, last) if position <= size else -1
        if end < 0:
            return row, offset, position if end == -2 else -1
        row, offset = row + 1, end
    return row, offset, -1


@compiled
def _copy(
    text: Any, starts: Any, stops: Any, kinds: Any, escapes: bool, quote: int,
    table: Any, nibbles: Any, offsets: Any, data: Any,
) -> int:  # fmt: skip
    """Copy values, as what they stand for, behind each other; return a row that cannot be read, or -1."""
    offset = 0
    for row in range(len(starts)):
        offsets[row] = offset
        kind, position, stop = kinds[row], starts[row], stops[row]
        if kind == PLAIN:
            for index in range(stop - position):
                data[offset + index] = text[position + index]
            offset += stop - position
        elif kind == ESCAPED:
            while position < stop:
                byte = text[position]
                if escapes and byte == _BACKSLASH and position + 1 < stop:
                    position += 1
                    byte = table[text[position]]
                elif byte == quote:
                    position += 1
                data[offset] = byte
                offset, position = offset + 1, position + 1
        elif kind == HEX:
            if (stop - position) % 2 != 0:
                return row
            for index in range(position, stop, 2):
                high, low = nibbles[text[index]], nibbles[text[index + 1]]
                if high > 15 or low > 15:
                    return row
                data[offset] = high << 4 | low
                offset += 1
        elif kind == BITS:
            for index in range(position, stop):
                left = stop - 1 - index
                if index == position or left % 8 == 7:
                    data[offset] = 0
                if text[index] != 48 and text[index] != 49:
                    return row
                data[offset] |= (text[index] & 1) << left % 8
                offset += left % 8 == 0
    offsets[len(starts)] = offset
    return -1
