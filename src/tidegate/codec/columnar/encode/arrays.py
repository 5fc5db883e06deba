r"""Arrow arrays of bytes, joined and split without a Python call per value.

joined([b'{"id":', ids, b',"n":', names, b"}"], 2)     {"id":1,"n":"x"}   {"id":2,"n":null}

spread(array, present)     a b     present 0 1 0 1     ─→  "" a "" b          offsets only, no byte is copied
replaced(array, rows, new) a b c   rows 1   new x      ─→  a x c
shaped(array, ends, data)  a b null, other bytes  ─→  x yz null
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar.values import Mismatch

Piece: TypeAlias = bytes | pa.Array
"""One text for all rows, or a binary array with one for each; null is the JSON null."""

BINARY: Final = pa.binary()
NO_ROWS: Final = pa.array([], BINARY)
BYTES_MAX: Final = (1 << 31) - 1
"""The capacity of such an array."""
_NOTHING: Final = pa.scalar(b"", BINARY)


def joined(pieces: Sequence[Piece], rows: int) -> Any:
    """Return one text per row: the pieces, concatenated."""
    merged: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += piece
        elif not isinstance(piece, bytes) or piece:
            merged.append(piece)
    if not merged or (len(merged) == 1 and isinstance(merged[0], bytes)):
        return pa.repeat(pa.scalar(b"".join(merged), BINARY), rows)
    arrays = [pa.scalar(piece, BINARY) if isinstance(piece, bytes) else piece for piece in merged]
    return pc.binary_join_element_wise(*arrays, _NOTHING, null_handling="replace", null_replacement="null")


def constant(texts: Any, codes: Any) -> Piece:
    """Return the text of each row's number; a single text if all are equal."""
    if len(codes) and (codes == codes[0]).all():
        text: bytes = texts[int(codes[0])].as_py()
        return text
    return texts.take(pa.array(codes))


def content(array: Any) -> tuple[Any, bytes]:
    """Return the offsets of the texts, and all texts in one."""
    ends, data = seen_content(array)
    return ends, bytes(data)


def seen_content(array: Any) -> tuple[Any, memoryview]:
    """Return the offsets of the texts, and all texts in one, not copied."""
    _, offsets, data = array.buffers()
    if not len(array) or data is None:
        return np.zeros(len(array) + 1, np.int32), memoryview(b"")
    ends = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset)
    return ends - ends[0], memoryview(data).cast("B")[int(ends[0]) : int(ends[-1])]


def spread(array: Any, present: Any) -> Piece:
    """Return the texts of `array`, which has no null, for the rows with `present`; empty texts for the others."""
    if not len(array):
        return b""
    if len(array) == len(present):
        return array
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset)
    ends_at = np.zeros(len(present) + 1, np.intp)
    np.cumsum(present, out=ends_at[1:])
    return pa.Array.from_buffers(BINARY, len(present), [None, pa.py_buffer(ends[ends_at]), data or pa.py_buffer(b"")])


def replaced(array: Any, rows: Any, others: Any) -> Any:
    """`array` with `others` in `rows`, which ascend."""
    mask = np.zeros(len(array), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(array, pa.array(mask), others)


def shaped(array: Any, ends: Any, data: Any) -> Any:
    """`array` with the texts in `data` instead of its own; null stays null."""
    mask = None
    if array.null_count:
        mask = pa.py_buffer(np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
    return pa.Array.from_buffers(BINARY, len(array), [mask, pa.py_buffer(ends), pa.py_buffer(data)])


def text_of(array: Any) -> Any:
    """Texts as their bytes, which are UTF-8."""
    if pa.types.is_large_string(array.type):
        array = array.cast(pa.string())
    if not pa.types.is_string(array.type):
        raise Mismatch(f"texts that come as {array.type}")
    return array.view(BINARY)


def bytes_of(array: Any) -> Any:
    """Return bytes themselves."""
    if not pa.types.is_binary(array.type):
        raise Mismatch(f"bytes that come as {array.type}")
    return array
