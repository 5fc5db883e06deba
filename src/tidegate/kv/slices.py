"""Values as places in bytes that they share, and the bytes at such places as Arrow arrays.

data       .. k 1 . . v a l u e .. k 2 . . v 2 ..         a page of a scan, or several of them, as they came
offsets       2           18                              keys
size          2           2
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegate.model.compiled import gather, windows

PADDING: Final = 8
"""Bytes after the last value, so that eight may be read wherever a value begins."""
_PADDED: Final = pa.array([bytes(PADDING)], pa.binary())


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


def words(data: Any, offsets: Any) -> Any:
    """Return the eight bytes at each of the `offsets` as little-endian numbers."""
    return windows(data, "<u8")[offsets]


def spans(data: Any, offsets: Any, size: Any, absent: Any = None) -> Any:
    """Return the `size` bytes at each of the `offsets` as a binary array; null where `absent`."""
    ends = np.zeros(len(offsets) + 1, np.int64)
    np.cumsum(size, out=ends[1:])
    text = np.empty(ends[-1] + PADDING, np.uint8)
    gather(windows(data), offsets, ends, windows(text))
    buffers = [validity(absent), pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(text[: ends[-1]])]
    return pa.Array.from_buffers(pa.binary(), len(offsets), buffers)


def validity(absent: Any) -> Any:
    """Return the buffer of an Arrow array in which some rows are null; None if there are none."""
    return None if absent is None or not absent.any() else pa.py_buffer(np.packbits(~absent, bitorder="little"))
