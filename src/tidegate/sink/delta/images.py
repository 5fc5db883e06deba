"""SideImages of a batch as stored columns: some old or new images, some columns, piece by piece.

    batch     op   before    after          images("before", op == D) ─► ImageReader.table ─► rows of stored columns
              I              1 a
              U    1 a       1 b            an image is found by how many rows before it have one
              D    1 b

Columns are found by name, whatever its case.  Texts and typed values give the same (types.py).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.engine.change import Batch, RowTexts
from tidegate.engine.refused_rows import refused_rows
from tidegate.model.errors import SinkRefused, TidegateError
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, TableInfo
from tidegate.sink.delta.columns import LakeColumn
from tidegate.sink.delta.files import logical_schema
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.types import arrow_type, from_image

Side: TypeAlias = Literal["before", "after"]

PIECE_BYTES: Final = 32 << 20
"""SideImages are converted so many bytes at a time: the steps in between take several times as much."""
LACKING: Final = {"before": "I", "after": "D"}
"""The operation whose rows have no such image."""
PERMISSIVE: Final = frozenset({"ignore", "try_evolve"})
"""Policies under which a column may keep a type that later values do not fit."""


class SideImages(NamedTuple):
    """Some images of one side of a batch: those at the ascending `places` (numpy) of `values`, which are RowTexts or a
    record batch."""

    values: Any
    places: Any

    def column(self, at: int) -> Any:
        """Return the values of the field number `at`: texts (binary), or typed."""
        if isinstance(self.values, RowTexts):
            return self.values.values.take(pa.array(self.places * self.values.width + at))
        column = self.values.column(at)
        return column if len(column) == len(self.places) else column.take(pa.array(self.places))

    def pieces(self) -> Iterator["SideImages"]:
        """Return the images in pieces of about PIECE_BYTES."""
        texts = isinstance(self.values, RowTexts)
        count = len(self.values.values) // self.values.width if texts else self.values.num_rows
        size_bytes = self.values.values.nbytes if texts else self.values.nbytes
        step = max(1, count * PIECE_BYTES // max(1, size_bytes))
        if len(self.places) <= step:
            yield self
            return
        for at in range(0, len(self.places), step):
            places = self.places[at : at + step]
            first, last = int(places[0]), int(places[-1]) + 1
            yield SideImages(_slice(self.values, first, last), places - first)


def _slice(values: Any, first: int, last: int) -> Any:
    if isinstance(values, RowTexts):
        return RowTexts(values.values.slice(first * values.width, (last - first) * values.width), values.width)
    return values.slice(first, last - first)


@dataclass(frozen=True)
class ImageReader:
    """Reads images of a batch as columns of a stored table; `table` is its definition at the time of the batch."""

    batch: Batch
    table: TableInfo
    options: DeltaOptions

    def __post_init__(self) -> None:
        """Raise SchemaError for a batch with a column that the definition does not have, or without the key: rows may
        lack columns (selectors, handle-only deletes) but not bring unknown ones."""
        unknown = next((field.name for field in self.batch.fields if self.table.column(field.name) is None), None)
        if unknown is not None:
            told = self._where(0)
            way_out = "a DDL is missing before it: start the feed anew"
            if "topic" in told:
                way_out = "a DDL did not reach the topic: start the feed anew from a topic that has it"
            raise self._refused(
                f"table {self.table.name}: column {unknown} stands in a row at ts {told['commit_ts']}",
                range(self.batch.rows),
                f" but not in the definition of ts {self.table.version}; {way_out}",
            )
        for name in self.table.handle_key:
            if self.position(name) is None:
                raise self._keyless(name, range(self.batch.rows))

    def _keyless(self, column: str, rows: Iterable[int]) -> TidegateError:
        return self._refused(f"table {self.table.name}: a row has no value in column {column} of the key", rows)

    def _refused(self, what: str, rows: Iterable[int], rest: str = "") -> TidegateError:
        """The error of some rows, with the place of the first in its text, and the messages of all of them."""
        return refused_rows(self.batch, rows, what, rest)

    def _where(self, row: int) -> dict[str, Any]:
        """Table, commit_ts and, where the source has messages, message of a row of the batch."""
        place = {} if self.batch.place is None else self.batch.place.slice(row, 1).to_pylist()[0]
        return {"table": str(self.table.name), "commit_ts": self.batch.commit_ts[row].as_py(), **place}

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {lowered(field.name): at for at, field in reversed(list(enumerate(self.batch.fields)))}

    def position(self, name: str) -> int | None:
        """Return where a column stands in the batch, whatever the case of its name; None where the batch lacks it."""
        return self._positions.get(lowered(name))

    def rows(self, *ops: str) -> Any:
        """Return which rows of the batch make one of these changes, as a mask."""
        found = np.zeros(self.batch.rows, np.bool_)
        for op in ops:
            found |= pc.equal(self.batch.op, op).to_numpy(zero_copy_only=False)
        return found

    def images(self, side: Side, rows: Any) -> SideImages:
        """Return the old or new images of the rows that the mask `rows` has, all of which have one."""
        there = pc.not_equal(self.batch.op, LACKING[side]).to_numpy(zero_copy_only=False)
        return SideImages(getattr(self.batch, side), np.flatnonzero(rows[there]))

    def read(self, side: Side, rows: Any, columns: Sequence[LakeColumn]) -> pa.Table:
        """Return the old or new images of the rows that the mask `rows` has as stored columns, one row for each.

        Columns that the batch or the table lacks are NULL. SchemaError when a value does not fit and the feed is
        strict."""
        schema = logical_schema(columns)
        by_id = {column.id: column for column in self.table.columns}
        pieces, read, numbers = [schema.empty_table()], 0, np.flatnonzero(rows)
        for images in self.images(side, rows).pieces():
            read, at = read + len(images.places), numbers[read:]
            arrays = [self._array(images, at, stored, by_id.get(stored.upstream_id)) for stored in columns]
            pieces.append(pa.Table.from_arrays(arrays, schema=schema))
        return pa.concat_tables(pieces)

    def commit_ts(self, rows: Any) -> Any:
        """Return the commit_ts of the rows that the mask `rows` has."""
        return self.batch.commit_ts if rows.all() else self.batch.commit_ts.filter(pa.array(rows))

    def _array(self, images: SideImages, rows: Any, stored: LakeColumn, column: ColumnInfo | None) -> Any:
        """The images of one column; `rows` says which row of the batch each is of."""
        at = self.position(column.name) if column is not None else None
        if column is None or at is None:
            return pa.nulls(len(images.places), arrow_type(stored.delta))
        values = images.column(at)
        if values.null_count and column.name in self.table.handle_key:
            raise self._keyless(column.name, rows[pc.is_null(values).to_numpy(zero_copy_only=False)])
        zone, zero_date = self.options.time_zone, self.options.zero_date
        exact = self.options.exact_keys and column.name in self.table.handle_key
        convert = partial(
            from_image, column=column.type, delta=stored.delta, time_zone=zone, zero_date=zero_date, exact=exact
        )
        try:
            return convert(values)
        except pa.ArrowInvalid as broken:
            fitting = _fitting(convert, values)
            if self.options.schema_change in PERMISSIVE and not exact:
                return pa.array([None if one is None else one.as_py() for one in fitting], arrow_type(stored.delta))
            raise self._refused(
                f"table {self.table.name} column {column.name}: a value does not fit the definition of ts "
                f"{self.table.version} ({stored.delta}): {broken}",
                _unfit(rows, fitting, values),
            ) from broken
        except SinkRefused as refused:
            raise refused.at(**self._where(_unfit(rows, _fitting(convert, values), values)[0])) from None


def _fitting(convert: Callable[[Any], Any], values: Any) -> list[Any]:
    """Each value as it is stored, None for those that do not fit."""
    fitting = []
    for at in range(len(values)):
        try:
            fitting.append(convert(values[at : at + 1])[0])
        except (pa.ArrowInvalid, SinkRefused):
            fitting.append(None)
    return fitting


def _unfit(rows: Any, fitting: list[Any], values: Any) -> list[int]:
    """Those of `rows` that have a value, and none that fits; all of them if it cannot be told."""
    found = [int(row) for row, one, value in zip(rows, fitting, values, strict=False) if one is None and value.is_valid]
    return found or rows.tolist()
