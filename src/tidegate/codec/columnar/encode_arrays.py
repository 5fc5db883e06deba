r"""Arrow arrays of bytes, put together and taken apart without a look at one value.

    joined([b'{"id":', ids, b',"n":', names, b"}"], 2)     {"id":1,"n":"x"}   {"id":2,"n":null}

    spread(array, present)     a b     present 0 1 0 1     ─→  "" a "" b          offsets only, no byte is copied
    replaced(array, rows, new) a b c   rows 1   new x      ─→  a x c
    together(array, write)     a b c ─→ `a測b測c測` ─→ write ─→ `A測B測C測` ─→ A B C

`together` runs a writer of single texts once over all of them: a mark that the writer leaves alone stands behind each,
and where the marks stand in the result, a text ends.  That is right for a writer that goes character by character, as
all escapes and quotings do.  The mark occurs in no text, and its characters are such that no two marks can overlap.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar.values import Misfit

__all__ = [
    "BINARY",
    "BYTES_MAX",
    "NO_ROWS",
    "Piece",
    "constant",
    "content",
    "joined",
    "joined_present",
    "replaced",
    "spread",
    "together",
]

Piece: TypeAlias = bytes | pa.Array
"""A text that is the same in all rows, or a binary array with one for each; null stands for the JSON null."""

Write: TypeAlias = Callable[[bytes], bytes]

BINARY: Final = pa.binary()
NO_ROWS: Final = pa.array([], BINARY)
BYTES_MAX: Final = (1 << 31) - 1
"""What an array of this kind can hold."""
_NOTHING: Final = pa.scalar(b"", BINARY)
_COMMA: Final = pa.scalar(b",", BINARY)
_MARKS: Final = tuple(mark.encode() for mark in "測試驗證編碼鑿鑑")
"""Marks of `together`: printable for all writers, three different bytes each."""


def joined(pieces: Sequence[Piece], rows: int) -> Any:
    """One text a row: the pieces, one behind the other."""
    merged: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += piece
        elif not isinstance(piece, bytes) or piece:
            merged.append(piece)
    if not merged or (len(merged) == 1 and isinstance(merged[0], bytes)):
        return pa.repeat(pa.scalar(b"".join(merged), BINARY), rows)
    found = [pa.scalar(piece, BINARY) if isinstance(piece, bytes) else piece for piece in merged]
    return pc.binary_join_element_wise(*found, _NOTHING, null_handling="replace", null_replacement="null")


def joined_present(members: Sequence[Any]) -> Any:
    """One text a row: those members that are not null, at least one, with commas between them."""
    return pc.binary_join_element_wise(*members, _COMMA, null_handling="skip")


def constant(texts: Any, codes: Any) -> Piece:
    """The text of each row's number; one text for all rows where that is so."""
    if len(codes) and (codes == codes[0]).all():
        found: bytes = texts[int(codes[0])].as_py()
        return found
    return texts.take(pa.array(codes))


def content(array: Any) -> tuple[Any, bytes]:
    """Where each text ends, after a 0, and all of them in one."""
    _, offsets, data = array.buffers()
    if not len(array) or data is None:
        return np.zeros(len(array) + 1, np.int32), b""
    ends = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset)
    return ends - ends[0], data.slice(int(ends[0]), int(ends[-1] - ends[0])).to_pybytes()


def spread(array: Any, present: Any) -> Piece:
    """A text of `array`, which has no null, for each row of which `present` is true; empty ones for the others."""
    if not len(array):
        return b""
    if len(array) == len(present):
        return array
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset)
    places = np.zeros(len(present) + 1, np.intp)
    np.cumsum(present, out=places[1:])
    return pa.Array.from_buffers(BINARY, len(present), [None, pa.py_buffer(ends[places]), data or pa.py_buffer(b"")])


def replaced(array: Any, rows: Any, others: Any) -> Any:
    """`array` with `others` in `rows`, which ascend."""
    mask = np.zeros(len(array), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(array, pa.array(mask), others)


def together(array: Any, write: Write) -> Any:
    """What `write` makes of each text; null stays null."""
    count = len(array)
    if not count:
        return NO_ROWS
    for mark in _MARKS:
        raw = write(content(joined([array, mark], count))[1])
        found = _apart(raw, write(mark), array)
        if found is not None:
            return found
    raise Misfit("texts that hold every mark")


def _apart(raw: bytes, mark: bytes, array: Any) -> Any:
    """The texts of `raw`, each of which a mark ends, null where `array` is; None when a text holds the mark, too."""
    count = len(array)
    if len(raw) > BYTES_MAX:
        raise Misfit("more bytes than an array can hold")
    every = np.frombuffer(raw + b"\0" * len(mark), np.uint8)
    ends = np.flatnonzero(every == mark[0])
    for at, byte in enumerate(mark[1:], 1):
        ends = ends[every[ends + at] == byte]
    if len(ends) != count:
        return None
    bounds = np.zeros(2 * count, np.int32)
    bounds[1::2] = ends
    bounds[2::2] = ends[:-1] + len(mark)
    texts = pa.Array.from_buffers(BINARY, 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(raw)])
    if not array.null_count:
        return texts.take(_evens(count))
    null = array.is_null().to_numpy(zero_copy_only=False)
    return texts.take(pa.array(np.arange(0, 2 * count, 2), mask=null))


@lru_cache(maxsize=64)
def _evens(count: int) -> Any:
    return pa.array(np.arange(0, 2 * count, 2))
