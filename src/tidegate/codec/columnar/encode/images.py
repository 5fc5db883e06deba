"""The images of each row of a batch, as indexes into `before` and `after`.

op        I U D U          rows
after     0 1   2          index into `after`
before      0 1 2          index into `before`
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar.encode.arrays import seen_content
from tidegate.codec.columnar.rows import Batch
from tidegate.codec.columnar.values import Mismatch

INSERT, UPDATE, DELETE = range(3)
_CODES: Final = np.full(256, -1)
_CODES[list(b"IUD")] = INSERT, UPDATE, DELETE


@dataclass(frozen=True)
class RowOps:
    """Per row of a batch: operation and positions of its images."""

    codes: Any

    @classmethod
    def of(cls, batch: Batch) -> "RowOps":
        """Return the ops of a batch. Raises Mismatch when its images do not match its operations."""
        ends, letters = seen_content(batch.op)
        if batch.op.null_count or not np.array_equal(ends, np.arange(batch.rows + 1)):
            raise Mismatch("rows whose op is none")
        codes = _CODES[np.frombuffer(letters, np.uint8)]
        ops = cls(codes)
        sizes = batch.before.num_rows, batch.after.num_rows
        if (codes < 0).any() or sizes != (int(ops.has_before.sum()), int(ops.has_after.sum())):
            raise Mismatch("images that are not those of the rows")
        return ops

    @cached_property
    def has_before(self) -> Any:
        return self.codes != INSERT

    @cached_property
    def has_after(self) -> Any:
        return self.codes != DELETE

    @cached_property
    def codes_before(self) -> Any:
        """The ops of the rows of `before`."""
        return self.codes[self.has_before]

    @property
    def images(self) -> Any:
        """The rows of `before` and of `after` that each row has, -1 for none."""
        present = np.stack([self.has_before, self.has_after])
        return np.where(present, np.cumsum(present, axis=1) - 1, -1)

    @cached_property
    def after_of_before(self) -> Any:
        """The row of `after` that belongs to each row of `before`; null for a DELETE."""
        indexes = (np.cumsum(self.has_after) - 1)[self.has_before]
        return pa.array(indexes, mask=self.codes_before == DELETE)


def differing(old: Any, new: Any) -> Any:
    """Return which values of `old` are not those of `new`, where NULL is equal to NULL."""
    unequal = pc.not_equal(old, new).fill_null(False)
    return pc.or_(unequal, pc.xor(old.is_null(), new.is_null())).to_numpy(zero_copy_only=False)
