"""The images of a batch as JSON objects, and where each belongs.

Places    which rows have which image, and where in `before` and `after` it stands
Member    a column made ready: its place, what comes before its value, how values are written
objects   {name: value, …} of a record batch, all columns in all rows
chosen    name: value, … with columns left out here and there, without braces

op        I U D U          rows
after     0 1   2          index into `after`
before      0 1 2          index into `before`
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar.encode.arrays import BINARY, Piece, joined, joined_present, spread
from tidegate.codec.columnar.encode.cells import Cell
from tidegate.codec.columnar.rows import Batch
from tidegate.codec.columnar.values import Misfit

INSERT, UPDATE, DELETE = range(3)
_OPS: Final = pa.array(["I", "U", "D"])
_NULL: Final = pa.scalar(None, BINARY)


class Member(NamedTuple):
    """A column made ready; `tail` follows the value."""

    place: int
    head: bytes
    cell: Cell
    tail: bytes = b""

    def pieces(self, array: Any) -> list[Piece]:
        """Return the member of each of the column's values."""
        return [self.head, *self.cell.pieces(array), self.tail]


@dataclass(frozen=True)
class Places:
    """What each row of a batch is, as numbers."""

    codes: Any

    @classmethod
    def of(cls, batch: Batch) -> "Places":
        """Return the places of a batch; Misfit when its images are not those that its rows say."""
        codes = pc.index_in(batch.op, _OPS).fill_null(-1).to_numpy()
        found = cls(codes)
        sizes = batch.before.num_rows, batch.after.num_rows
        if (codes < 0).any() or sizes != (int(found.has_before.sum()), int(found.has_after.sum())):
            raise Misfit("images that are not those of the rows")
        return found

    @cached_property
    def has_before(self) -> Any:
        """Which rows have an old image."""
        return self.codes != INSERT

    @cached_property
    def has_after(self) -> Any:
        """Which rows have a new image."""
        return self.codes != DELETE

    @cached_property
    def codes_before(self) -> Any:
        """The ops of the rows of `before`."""
        return self.codes[self.has_before]

    @cached_property
    def after_of_before(self) -> Any:
        """The row of `after` that belongs to each row of `before`; null for a DELETE."""
        at = (np.cumsum(self.has_after) - 1)[self.has_before]
        return pa.array(at, mask=self.codes_before == DELETE)


def image_texts(members: Sequence[Member], before: Any, after: Any, masks: Sequence[Any]) -> tuple[Any, Any]:
    """Return the members of each row of `before` and of `after`, record batches, with commas between them, without
    braces.

    `masks` say which members each row of `before` has, [] for all in all.  Both images of a column are one array on
    the way: half the calls."""
    count, rows = before.num_rows, before.num_rows + after.num_rows
    pieces = [member.pieces(_both(before.column(member.place), after.column(member.place))) for member in members]
    if all(mask.all() for mask in masks):
        texts = joined(_with_commas(pieces), rows)
        return texts.slice(0, count), texts.slice(count)
    new = joined(_with_commas([_sliced(piece, count, rows) for piece in pieces]), rows - count)
    return _chosen([_sliced(piece, 0, count) for piece in pieces], masks, count), new


def _both(old: Any, new: Any) -> Any:
    if not len(old) or not len(new):
        return new if len(new) else old
    if old.type != new.type:
        raise Misfit(f"a column that comes as {old.type} and as {new.type}")
    return pa.concat_arrays([old, new])


def _sliced(pieces: Sequence[Piece], start: int, stop: int) -> list[Piece]:
    return [piece if isinstance(piece, bytes) else piece.slice(start, stop - start) for piece in pieces]


def _with_commas(members: Sequence[Sequence[Piece]]) -> list[Piece]:
    pieces: list[Piece] = []
    for number, member in enumerate(members):
        pieces += [b",", *member] if number else member
    return pieces


def _chosen(members: Sequence[Sequence[Piece]], masks: Sequence[Any], rows: int) -> Any:
    """For each row the members whose mask is true there, with commas between them; empty where none is."""
    there = np.logical_or.reduce(masks)
    texts = [
        joined(member, rows) if mask.all() else pc.if_else(pa.array(mask), joined(member, rows), _NULL)
        for member, mask in zip(members, masks, strict=True)
        if mask.any()
    ]
    if not there.all():
        # Arrow 26 leaves a row out of the result in which every argument is null
        texts = [text.filter(pa.array(there)) for text in texts]
    found = spread(joined_present(texts), there) if texts else b""
    return pa.repeat(pa.scalar(found, BINARY), rows) if isinstance(found, bytes) else found


def differing(old: Any, new: Any) -> Any:
    """Return which values of `old` are not those of `new`, where NULL is equal to NULL."""
    unequal = pc.not_equal(old, new).fill_null(False)
    return pc.or_(unequal, pc.xor(old.is_null(), new.is_null())).to_numpy(zero_copy_only=False)
