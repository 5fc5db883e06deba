"""What a row of the format `tidegate` is, and the tasks that make such rows.

    form=images      the table's columns, _change_type, _commit_ts, _commit_seq, _commit_time       a row an image
    form=changes     op, commit_ts, before, after: structs of the table's columns, or NULL          a row a change
    all tables       op, schema, table, commit_ts, before, after: maps of texts, or NULL            a row a change

    images    update_preimage 7, a │ update_postimage 7, b       change    UPDATE, {7, a}, {7, b}

`op` is INSERT, UPDATE or DELETE.  In maps bytes are base64.
"""

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType

from tidegate.changelog.slice import ChangeSlice
from tidegate.engine.plan import Rows
from tidegate.engine.ports import ROUND, RoundLimit, round_end
from tidegate.lakes.local import spark_schema
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo
from tidegate.sink.delta.changelog_rows import COMES, NUMBER, change_columns, change_rows, row_columns
from tidegate.sink.delta.columns import LakeColumn, first_schema
from tidegate.sink.delta.modes import CHANGE_TS, CHANGE_TYPE
from tidegate.sink.delta.options import DeltaOptions

TASK_ROWS: Final = 200_000
BATCH_ROWS: Final = 10_000
IMAGES: Final = "images"
CHANGES: Final = "changes"
TEXTS: Final = pa.map_(pa.string(), pa.string())


@dataclass(frozen=True, slots=True)
class ChangeForm:
    """How changes become rows: of `table` with its `columns`, or of all tables where there is none."""

    options: DeltaOptions
    form: str = IMAGES
    table: TableInfo | None = None
    columns: tuple[LakeColumn, ...] = ()

    @classmethod
    def of(cls, table: TableInfo, columns: Iterable[LakeColumn], options: DeltaOptions, form: str) -> "ChangeForm":
        """Return the form of rows of one table with some of the columns of a lake."""
        options = msgspec.structs.replace(options, schema_change="try_evolve")
        return cls(options, form, table, tuple(change_columns(tuple(columns))))

    def schema(self) -> StructType:
        """Return the columns as Spark has them."""
        if self.table is not None and self.form == IMAGES:
            return spark_schema(self.columns)
        image = MapType(StringType(), StringType())
        named = [StructField("schema", StringType()), StructField("table", StringType())]
        if self.table is not None:
            image, named = spark_schema(row_columns(self.columns)), []
        sides = [StructField("before", image), StructField("after", image)]
        return StructType([StructField("op", StringType()), *named, StructField("commit_ts", LongType()), *sides])

    def takes(self, table: TableInfo) -> bool:
        """Return True for a table whose changes are asked for."""
        return self.table is None or lowered(str(table.name)) == lowered(str(self.table.name))

    def columns_in(self, table: TableInfo) -> tuple[LakeColumn, ...]:
        """Return the columns with the ids of a table of the same name: another incarnation numbers them anew."""
        if self.table is None:
            return tuple(change_columns(first_schema(table, self.options).columns))
        if table.incarnation == self.table.incarnation:
            return self.columns
        ids = {lowered(column.name): column.id for column in table.columns}
        return tuple(
            column if column.upstream_id < 0 else replace(column, upstream_id=ids.get(lowered(column.name), 1 << 62))
            for column in self.columns
        )


@dataclass(frozen=True, slots=True)
class ChangeTask(InputPartition):  # type: ignore[misc]  # the library has no types
    """Rows of a table with one definition, all that `changes` hold."""

    table: TableInfo
    changes: ChangeSlice
    form: ChangeForm

    def read(self) -> Iterator[pa.RecordBatch]:
        """Return the rows, each once, in commit order."""
        name, part = self.table.name, self.changes
        columns = self.form.columns_in(self.table)
        images = self.form.table is not None and self.form.form == IMAGES
        chunks = part.batches(name, part.after, part.upto)
        rows = change_rows(chunks, self.table, columns, self.form.options, numbered=not images)
        if not images:
            rows = paired(rows, self.table if self.form.table is None else None)
        yield from rows.to_batches(max_chunksize=BATCH_ROWS)


def tasks_of(step: Rows, changes: ChangeSlice, after: int, form: ChangeForm) -> Iterator[ChangeTask]:
    """Return the tasks of one step above `after`, of about TASK_ROWS each."""
    low = max(step.after, after)
    while low < step.upto:
        part = changes.narrow(step.table.name, low, step.upto)
        end = round_end(part.row_ranges(), step.upto, RoundLimit(TASK_ROWS, ROUND.size_bytes))
        if part.groups:
            yield ChangeTask(step.table, part.narrow(step.table.name, low, end), form)
        low = end


def paired(images: pa.Table, named: TableInfo | None) -> pa.Table:
    """Return one row for each change of some numbered images; with `named` sides are maps of texts, and the table's
    name stands with them."""
    comes = pc.is_in(images.column(CHANGE_TYPE), pa.array(COMES)).to_numpy()
    numbers = images.column(NUMBER).to_numpy()
    every, first = np.unique(numbers, return_index=True)
    every = every[np.argsort(first, kind="stable")]  # in the order of their first images
    places = {side: _places(every, numbers, np.flatnonzero(of)) for side, of in (("before", ~comes), ("after", comes))}
    old, new = (places[side] >= 0 for side in ("before", "after"))
    some = np.where(old, places["before"], places["after"])
    kinds = images.column(CHANGE_TYPE).take(pa.array(some))
    updates = pc.starts_with(kinds, "update").to_numpy()
    op = np.where(updates, "UPDATE", np.where(new, "INSERT", "DELETE"))
    data = images.select(images.column_names[: images.column_names.index(CHANGE_TYPE)])
    rows = {"op": pa.array(op, pa.string())}
    if named is not None:
        rows |= {name: pa.repeat(text, len(every)) for name, text in zip(("schema", "table"), named.name, strict=True)}
    rows["commit_ts"] = images.column(CHANGE_TS).take(pa.array(some))
    for side, at in places.items():
        side_rows = data.take(pa.array(at, mask=at < 0)).combine_chunks()
        rows[side] = _struct(side_rows, at < 0) if named is None else _texts(side_rows, at < 0)
    return pa.table(rows)


def _places(every: Any, numbers: Any, places: Any) -> Any:
    """Where in the images the change of each number has its image of one side; -1 where it has none."""
    order = np.argsort(numbers[places], kind="stable")
    found = np.searchsorted(numbers[places][order], every)
    padded = np.append(order, 0)
    ours = np.append(places, -1)[np.where(found < len(order), padded[found], len(places))]
    return np.where((ours >= 0) & (np.append(numbers, -1)[ours] == every), ours, -1)


def _struct(rows: pa.Table, missing: Any) -> Any:
    batch = rows.to_batches()[0] if rows.num_rows else pa.RecordBatch.from_pylist([], schema=rows.schema)
    return pa.StructArray.from_arrays(batch.columns, fields=list(rows.schema), mask=pa.array(missing))


def _texts(rows: pa.Table, missing: Any) -> Any:
    """A map for each row, from the names of columns to their values as texts."""
    columns = [_text(column) for column in rows.columns]
    width, count = len(columns), rows.num_rows
    order = np.arange(width * count, dtype=np.int64).reshape(width, count).T[~missing].ravel()
    values = pa.concat_arrays([column.combine_chunks() for column in columns]).take(pa.array(order))
    names = pa.array(rows.column_names).take(pa.array(order // max(count, 1)))
    ends = np.concatenate(([0], np.cumsum(~missing) * width)).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(ends, mask=np.append(missing, False)), names, values)


def _text(column: Any) -> Any:
    if pa.types.is_binary(column.type):
        texts = [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    return column.cast(pa.string())
