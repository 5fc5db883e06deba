r"""Compiled loops that match rows with their templates: the positions of values, and the operation of each row.

    text      {"u":{"id":{"t":8,"v":7},"c":{"t":254,"v":"x"}},"p":{"c":{"t":254,"v":"w"}}}
    program   {" KIND ":{ "id":{"t":8,"v": NUMBER },"c":{"t":254,"v": STRING }} ALONE ,"p":{ … }}
    cells     7   "x"   absent   "w"                start, end and marks of each value

A template is compiled to a program (`program.py`).  Each row runs the program of its table. A row whose text differs
stops at that step, which is returned, and its values are ignored. A row that reaches END has the template's text, with
values in between:

    LITERAL   equal bytes
    STRING    a JSON string without control characters, or null; escapes and UTF-8 are checked when it is converted
    NUMBER    characters of numbers, which are checked when they are converted, or null
    DIGITS    an integer that 63 bits hold; a negative one only where its slot is SIGNED
    WORD      INSERT, UPDATE or DELETE
    KIND      u or d
    TYPES     the object `mysqlType`: the members of the template in any order, each once
    CODES     an object of integers, or the one of the template
    OLD       null, which skips the old image, or its beginning
    ALONE     the end, which skips the old image, or `,"p":` of an UPDATE
    OPEN      the brace of an image
    PIECE     a column's name and the text before its value; in an image that may be partial, other text means that the
              column is absent, and the program continues after it
"""

from typing import Any, Final

import numpy as np

from tidegate.model.compiled import compiled, inlined

(LITERAL, PIECE, STRING, NUMBER, DIGITS, WORD, KIND, TYPES, CODES, END, OPEN, OLD, ALONE) = range(13)
"""The kinds of steps, in the order in which `_row` tests them."""

SIGNED: Final = -2
"""The slot of a signed number that is not kept; -1 is that of an unsigned one."""

NULL, ESCAPED, WIDE = 1, 2, 4
"""Marks of a value: null, with a backslash, with a byte beyond ASCII."""

ABSENT: Final = -1
"""The start of a value that an image lacks."""

READ: Final = -1
"""The last step of a row that was read to its end."""

INSERT, UPDATE, DELETE = b"IUD"


ONES, HIGH, SPACES = (np.uint64(0x0101010101010101 * byte) for byte in (1, 0x80, 0x20))
QUOTES, SLASHES = (np.uint64(0x0101010101010101 * byte) for byte in (0x22, 0x5C))
NONE, UNIT, EIGHT = map(np.uint64, (0, 1, 8))
"""Bytes repeated eight times: loops test eight bytes at once, and single ones only after a hit."""

MIX: Final = np.uint64(0x9E3779B97F4A7C15)
"""The factor of hashes, 2^64 divided by the golden ratio."""


HASH: Final = np.uint64(14695981039346656037)
"""The hash of the empty text."""


@inlined
def hashed(state: Any, byte: int) -> Any:
    """Return a hash of 64 bits with one more byte (FNV-1a)."""
    return (state ^ np.uint64(byte)) * np.uint64(1099511628211)


@inlined
def name_hash(words: Any, offset: int, size: int) -> Any:
    """Return the hash for tables of members: 32 bits, of the first and the last eight bytes of a name."""
    first = words[np.uint64(offset)]
    if size < 8:
        return (first & (UNIT << np.uint64(8 * size)) - UNIT) * MIX >> np.uint64(32)
    return (first * MIX ^ words[np.uint64(offset + size - 8)]) * MIX >> np.uint64(32)


@inlined
def text_hash(words: Any, offset: int, end: int) -> Any:
    """Return a hash of 64 bits of a text."""
    total = HASH
    while offset < end:
        word = words[np.uint64(offset)]
        if end - offset < 8:
            word &= (UNIT << np.uint64(8 * (end - offset))) - UNIT
        total = (total ^ word) * MIX
        total ^= total >> np.uint64(32)
        offset += 8
    return total


@inlined
def first_byte(bits: Any) -> Any:
    """Return the index of the lowest byte whose high bit is set; at least one must be."""
    below = (bits - UNIT) & ~bits
    return np.int64((below & ONES) * ONES >> np.uint64(56)) - 1


@inlined
def same_bytes(words: Any, offset: int, pool: Any, begun: int, size: int) -> Any:
    """Return whether `size` bytes of a text and of a pool are equal."""
    source, target = np.uint64(offset), np.uint64(begun)  # offsets that are never negative cost less
    while size >= 8:
        if words[source] != pool[target]:
            return False
        source, target, size = source + EIGHT, target + EIGHT, size - 8
    return size == 0 or (words[source] ^ pool[target]) << np.uint64(64 - 8 * size) == 0


@inlined
def _string_end(text: Any, words: Any, offset: int, limit: int) -> tuple[int, int]:
    """The end of the string at `offset`, and its marks; -1 if it does not end or is invalid JSON."""
    marks, offset, wide = 0, offset + 1, HIGH
    while offset < limit:
        word = words[np.uint64(offset)]
        quotes, slashes = word ^ QUOTES, word ^ SLASHES
        plain = (quotes - ONES) & ~quotes | (slashes - ONES) & ~slashes | (word - SPACES) & ~word
        hits = plain & HIGH | word & wide
        if hits == 0:
            offset += 8
            continue
        offset += first_byte(hits)
        if offset >= limit:
            return -1, 0
        byte = text[np.uint64(offset)]
        offset += 1
        if byte == 34:
            return offset, marks
        if byte == 92:
            marks |= 2
            offset += 1
        elif byte >= 128:
            marks, wide = marks | 4, NONE
        else:
            return -1, 0
    return -1, 0


@compiled
def _number_end(text: Any, offset: int) -> int:
    while True:
        byte = text[np.uint64(offset)]
        if not (48 <= byte <= 57 or byte == 45 or byte == 46 or byte == 43 or byte == 101 or byte == 69):
            return offset
        offset += 1


@compiled
def _is_null(text: Any, offset: int) -> Any:
    return text[offset] == 110 and text[offset + 1] == 117 and text[offset + 2] == 108 and text[offset + 3] == 108


@compiled
def _digits(text: Any, offset: int) -> tuple[int, Any]:
    """End and value of an integer of 63 bits; -1 if there is none."""
    begun, value = offset, np.int64(0)
    while 48 <= text[np.uint64(offset)] <= 57:
        digit = np.int64(text[np.uint64(offset)]) - 48
        if offset - begun >= 18 and (offset - begun > 18 or value > (9223372036854775807 - digit) // 10):
            return -1, 0
        value = value * 10 + digit
        offset += 1
    if offset == begun or (text[begun] == 48 and offset - begun > 1):
        return -1, 0
    return offset, value


@compiled
def _types_end(
    text: Any, words: Any, offset: int, limit: int, pool: Any, members: Any, table: Any, entry: int, mask: int,
    seen: Any, row: int,
) -> int:  # fmt: skip
    """The end of an object with exactly the members of a hash table from `entry` on, in any order; -1 for another
    one."""
    count = 0
    if text[offset] != 123:
        return -1
    while True:
        offset += 1
        begun = offset
        end, marks = _string_end(text, words, offset, limit)
        if end < 0 or marks & 2:
            return -1
        probe = np.int64(name_hash(words, begun + 1, end - begun - 2)) & mask
        while True:
            member = table[entry + probe]
            if member < 0:
                return -1
            if same_bytes(words, begun, pool, members[member, 0], members[member, 1]):
                break
            probe = (probe + 1) & mask
        if seen[member] == row:
            return -1
        seen[member] = row
        count += 1
        offset = begun + members[member, 1]
        if text[offset] == 125:
            return offset + 1 if count == members[member, 2] else -1
        if text[offset] != 44:
            return -1


@compiled
def _codes_end(text: Any, words: Any, offset: int, limit: int) -> int:
    """The end of an object of integers; -1 for anything else."""
    if text[offset] != 123:
        return -1
    while True:
        offset += 1
        end, marks = _string_end(text, words, offset, limit) if text[offset] == 34 else (-1, 0)
        if end < 0 or marks or text[end] != 58:
            return -1
        offset = end + 1
        if text[offset] == 45:
            offset += 1
        end, _ = _digits(text, offset)
        if end < 0:
            return -1
        offset = end
        if text[offset] == 125:
            return offset + 1
        if text[offset] != 44:
            return -1


@inlined
def _value_end(text: Any, words: Any, offset: int, limit: int, code: int) -> tuple[int, int]:
    """The end of a value, and its marks; -1 for an invalid one."""
    if _is_null(text, offset):
        return offset + 4, NULL
    if code == STRING:
        return _string_end(text, words, offset, limit) if text[offset] == 34 else (-1, 0)
    end = _number_end(text, offset)
    return (end, 0) if end > offset else (-1, 0)


@compiled
def _object_end(
    text: Any, words: Any, offset: int, limit: int, code: int, begun: int, size: int,
    pool: Any, members: Any, table: Any, seen: Any, row: int,
) -> int:  # fmt: skip
    """The end of the object of TYPES or CODES; -1 for another one."""
    if code == TYPES:
        return _types_end(text, words, offset, limit, pool, members, table, begun, size, seen, row)
    if same_bytes(words, offset, pool, begun, size):
        return offset + size
    return _codes_end(text, words, offset, limit)


@inlined
def _change(text: Any, words: Any, offset: int, code: int, pool: Any) -> int:
    """The operation of a WORD or a KIND; 0 for none."""
    if code == KIND:
        if text[offset] == 117:
            return INSERT
        return DELETE if text[offset] == 100 else 0
    if same_bytes(words, offset, pool, 0, 6):
        return INSERT
    if same_bytes(words, offset, pool, 6, 6):
        return UPDATE
    return DELETE if same_bytes(words, offset, pool, 12, 6) else 0


@inlined
def _row(
    text: Any, words: Any, row: int, offset: int, limit: int, step: int, steps: Any, pool: Any, members: Any,
    table: Any, seen: Any, cell: int, at_cell: Any, at_end: Any, marks: Any, ops: Any, numbers: Any,
) -> int:  # fmt: skip
    """Run a program from `step` on; return the step that the row does not match, or READ."""
    first = True
    while True:
        code, begun, size, slot, jump = steps[step, 0], steps[step, 1], steps[step, 2], steps[step, 3], steps[step, 4]
        if code == LITERAL:
            if not same_bytes(words, offset, pool, begun, size):
                return step
            offset += size
        elif code == PIECE:
            ahead = offset if first else offset + 1
            if (first or text[offset] == 44) and same_bytes(words, ahead, pool, begun, size):
                offset, first = ahead + size, False
            elif jump:
                at_cell[cell + slot] = ABSENT
                step = jump
                continue
            else:
                return step
        elif code <= NUMBER:
            end, value_marks = _value_end(text, words, offset, limit, code)
            if end < 0:
                return step
            slot_at = cell + slot
            at_cell[slot_at], at_end[slot_at], marks[slot_at] = offset, end, value_marks
            offset = end
        elif code == DIGITS:
            end, value = _digits(text, offset + 1 if slot == SIGNED and text[offset] == 45 else offset)
            if end < 0:
                return step
            if slot >= 0:
                numbers[row, slot] = value
            offset = end
        elif code <= KIND:
            ops[row] = _change(text, words, offset, code, pool)
            if ops[row] == 0:
                return step
            offset += 6 if code == WORD else 1
        elif code <= CODES:
            offset = _object_end(text, words, offset, limit, code, begun, size, pool, members, table, seen, row)
            if offset < 0:
                return step
        elif code == END:
            return READ if offset == limit else step
        else:
            offset, jumps = _branch(text, words, offset, limit, code, begun, size, pool, ops, row)
            if offset < 0:
                return step
            first = True
            if jumps:
                step = jump
                continue
        step += 1


@compiled
def _branch(
    text: Any, words: Any, offset: int, limit: int, code: int, begun: int, size: int, pool: Any, ops: Any, row: int
) -> tuple[int, bool]:
    """The position after OPEN, OLD and ALONE, and whether the old image is skipped; -1 for no match."""
    if code == OPEN:
        return (offset + 1, False) if text[offset] == 123 else (-1, False)
    if code == OLD:
        if not _is_null(text, offset):
            return (offset + 1, False) if text[offset] == 91 else (-1, False)
        if ops[row] == UPDATE:
            ops[row] = INSERT
        return offset + 4, True
    if offset + 1 == limit:
        return offset, True
    if ops[row] != INSERT or not same_bytes(words, offset, pool, begun, size):
        return -1, False
    ops[row] = UPDATE
    return offset + size, False


@compiled
def scan(
    text: Any, words: Any, rows: Any, starts: Any, ends: Any, programs: Any, first_steps: Any, steps: Any, pool: Any,
    members: Any, table: Any, seen: Any, cells: Any, at_cell: Any, at_end: Any, marks: Any,
    ops: Any, numbers: Any, stopped: Any,
) -> None:  # fmt: skip
    """Run the program of each of `rows` on its text.

    text, starts, ends      all texts, and the bounds of each row's
    words                   the eight bytes from each offset of the text on
    programs, first_steps   the program of each row, and the first step of each program
    steps                   (n, 5): step, offset and size of its literal, its cell or number, next step
    pool                    the literals, as eight bytes from each offset on; the words of WORD are the first
    members, table          of TYPES: (n, 3) offset and size of a member, and how many there are; and numbers of members
                            by hash, -1 where none is
    seen                    per member the last row that had it
    cells                   per row its first cell, followed by the others of both images
    at_cell, at_end, marks  per cell, an output, as are
    ops, numbers            per row its operation, and its DIGITS
    stopped                 per row the step at which it differs, or READ"""
    for row in rows:
        program = programs[row]
        stopped[row] = _row(
            text, words, row, starts[row], ends[row], first_steps[program], steps, pool, members, table,
            seen, cells[row], at_cell, at_end, marks, ops, numbers,
        )  # fmt: skip
