"""Several texts joined into one array of bytes, for compiled loops and Arrow arrays."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from tidegate.codec.columnar.values import Misfit

PAD: Final = bytes(1 << 12)
"""Behind the last text, so that a look at the next bytes needs no check."""

TEXT_MAX: Final = 1 << 30
"""Bytes of a text: its places are offsets of Arrow arrays, which have 31 bits."""


class TextRun:
    """Some texts, one behind the other; `starts` and `ends` are their places. Raises Misfit for more than TEXT_MAX."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        sizes = np.fromiter(map(len, parts), np.int64, len(parts))
        self.size = int(sizes.sum())
        if self.size > TEXT_MAX:
            raise Misfit("a text whose places are no 32-bit numbers")
        self.data = b"".join((*parts, PAD))
        self.array = np.frombuffer(self.data, np.uint8)
        self.ends = np.cumsum(sizes)
        self.starts = self.ends - sizes
