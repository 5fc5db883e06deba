"""Row changes of one table and one layout, as columns.

    StructLayout   what the columns are; how structs of the protocol fall apart into images, and images into values
    PlacedRows     lists of structs, and where each came from           gathered row by row
    Batch          these rows as Arrow arrays                           made column by column

    message  seq  commit_ts  op      before.id  before.n       after.id  after.n
    0        0    5          I                                 1         a
    0        1    5          U       1          a              1         b
    3        0    6          D       1          b

Images are dense: `before` has a row for every U and D, `after` for every I and U, in the order of the batch.
Who asked for texts gets, where all values are plainly their own texts, those instead: row by row in one array.
`(message, seq)` tells the message, by its index in the chunk, and which of its events the row is.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec.structs import astuple

from tidegate.codec.columnar.values import Misfit, as_texts
from tidegate.codec.values import ColumnForm
from tidegate.model.event import Field
from tidegate.model.table import TableInfo

ROWS_ALONE: Final = 400
"""Rows of a layout that are worth arrays of their own."""

Convert: TypeAlias = Callable[[ColumnForm, Sequence[Any]], Any]


@dataclass(frozen=True, slots=True)
class StructImages:
    """The images of some rows as structs, and which change each row makes.

    Old images may lack values that did not change: `beside` has, for every one, the struct that has them all."""

    ops: list[str]
    before: list[Any]
    after: list[Any]
    beside: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class StructLayout:
    """The columns of one layout of a table."""

    schema: str
    table: str
    fields: tuple[Field, ...]
    pk_names: tuple[str, ...] | None
    columns: tuple[ColumnForm, ...]
    values: Callable[[list[Any]], list[Any]]
    convert: Convert
    images: Callable[[list[Any]], StructImages]
    unset: object = None


@dataclass(slots=True)
class PlacedRows:
    """Rows with their places, in arrival order; `partition_id` is empty where the table has no partitions."""

    layout: StructLayout
    message: list[int] = field(default_factory=list)
    seq: list[int] = field(default_factory=list)
    commit_ts: list[int] = field(default_factory=list)
    partition_id: list[int | None] = field(default_factory=list)
    structs: list[Any] = field(default_factory=list)

    def part(self, start: int, stop: int) -> "PlacedRows":
        """Return some of the rows."""
        here = slice(start, stop)
        return PlacedRows(
            self.layout,
            self.message[here],
            self.seq[here],
            self.commit_ts[here],
            self.partition_id[here],
            self.structs[here],
        )


class RowTexts(NamedTuple):
    """Images as texts: the `width` values of the first row, then those of the second, .. in one binary array."""

    values: Any
    width: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Row changes of one table in one layout; see the module's drawing. The waist of the hourglass: engine/change.py.

    `before` and `after` are record batches with a column for each of `fields`, typed by what the wire carries; or
    RowTexts.  `commit_ts`, `partition_id`, `start_ts` and `row_ids` are int64 arrays, one value a row, `op` holds I, U
    or D.  `start_ts` is None where the source does not tell it, `row_ids` (handles that are numbers) where there are
    none, `definition` (of the table at commit_ts - 1) where only `fields` are known, `place` (an Arrow table: topic,
    partition and offset of each row's message) where rows come of no messages or their places are not told."""

    schema: str
    table: str
    fields: tuple[Field, ...]
    pk_names: tuple[str, ...] | None
    message: Any
    seq: Any
    commit_ts: Any
    op: Any
    partition_id: Any
    before: Any
    after: Any
    start_ts: Any = None
    row_ids: Any = None
    definition: TableInfo | None = None
    place: Any = None

    @property
    def rows(self) -> int:
        """How many changes."""
        return len(self.op)

    def part(self, start: int, stop: int) -> "Batch":
        """Return the rows from `start` on that stand before `stop`, with their images. Nothing is copied."""

        def some(column: Any) -> Any:
            return None if column is None else column.slice(start, stop - start)

        op = self.op.to_numpy(zero_copy_only=False)
        before, after = (
            _part_of(images, int(np.count_nonzero(has[:start])), int(np.count_nonzero(has[start:stop])))
            for images, has in ((self.before, op != "I"), (self.after, op != "D"))
        )
        return replace(
            self,
            message=some(self.message),
            seq=some(self.seq),
            commit_ts=some(self.commit_ts),
            op=some(self.op),
            partition_id=some(self.partition_id),
            before=before,
            after=after,
            start_ts=some(self.start_ts),
            row_ids=some(self.row_ids),
            place=some(self.place),
        )


def _part_of(images: Any, start: int, rows: int) -> Any:
    """Some rows of a RecordBatch or of RowTexts."""
    if isinstance(images, RowTexts):
        return RowTexts(images.values.slice(start * images.width, rows * images.width), images.width)
    return images.slice(start, rows)


def batches_of(gathered: Sequence[PlacedRows], *, texts: bool = False) -> list[Batch]:
    """Return the columns of some rows by layout; Misfit when one of them is not what its layout says.

    Calls cost more than values where there are few rows a layout: then columns of one form become one array, whatever
    table they are of, and each table has its stretch of that.  `texts`: images may come as RowTexts."""
    rows = sum(len(one.structs) for one in gathered)
    if len(gathered) == 1 or rows > ROWS_ALONE * len(gathered):
        return [batch_of(one) for one in gathered]
    images = [one.layout.images(one.structs) for one in gathered]
    wanted = [
        (one.layout, values)
        for one, image in zip(gathered, images, strict=True)
        for values in (
            _values(one.layout, image.before, image.beside),
            _values(one.layout, image.after, None),
        )
    ]
    together: dict[tuple[Convert, ColumnForm], list[Sequence[Any]]] = {}
    for layout, columns in wanted:
        for form, values in zip(layout.columns, columns, strict=True):
            together.setdefault((layout.convert, form), []).append(values)
    stretches = {kind: _stretches(*kind, columns, texts=texts) for kind, columns in together.items()}
    image_of = _as_texts if texts else _as_batch
    arrays = iter(
        [image_of(layout, [next(stretches[layout.convert, form]) for form in layout.columns]) for layout, _ in wanted]
    )
    return [_batch(one, image, next(arrays), next(arrays)) for one, image in zip(gathered, images, strict=True)]


def batch_of(rows: PlacedRows) -> Batch:
    """Return the columns of some rows; Misfit when one of them is not what its layout says."""
    images = rows.layout.images(rows.structs)
    return _batch(
        rows,
        images,
        _record_batch(rows.layout, _values(rows.layout, images.before, images.beside)),
        _record_batch(rows.layout, _values(rows.layout, images.after, None)),
    )


def _batch(rows: PlacedRows, images: StructImages, before: Any, after: Any) -> Batch:
    layout = rows.layout
    if min(rows.commit_ts) < 0:
        raise Misfit("a timestamp below zero")
    try:
        commit_ts = pa.array(rows.commit_ts, pa.int64())
    except OverflowError as error:
        raise Misfit("a timestamp of more than 63 bits") from error
    return Batch(
        schema=layout.schema,
        table=layout.table,
        fields=layout.fields,
        pk_names=layout.pk_names,
        message=pa.array(rows.message, pa.int32()),
        seq=pa.array(rows.seq, pa.int32()),
        commit_ts=commit_ts,
        op=pa.array(images.ops, pa.string()),
        partition_id=pa.array(rows.partition_id, pa.int64())
        if rows.partition_id
        else pa.nulls(len(rows.seq), pa.int64()),
        before=before,
        after=after,
    )


def _values(layout: StructLayout, images: list[Any], beside: list[Any] | None) -> list[Any]:
    """The values of each column."""
    columns = layout.values(images)
    if beside is None:
        return columns
    return [
        [other if value is layout.unset else value for value, other in zip(values, others, strict=True)]
        for values, others in zip(columns, layout.values(beside), strict=True)
    ]


def _record_batch(layout: StructLayout, columns: list[Any]) -> Any:
    return _as_batch(
        layout, [layout.convert(form, values) for form, values in zip(layout.columns, columns, strict=True)]
    )


def _as_batch(layout: StructLayout, arrays: list[Any]) -> Any:
    return pa.RecordBatch.from_arrays(arrays, names=[one.name for one in layout.fields])


def _as_texts(_layout: StructLayout, arrays: list[Any]) -> RowTexts:
    return row_texts(arrays)


def row_texts(columns: Sequence[Any]) -> RowTexts:
    """Return columns of texts, at least one, row by row."""
    rows, width = len(columns[0]), len(columns)
    order = np.arange(rows * width, dtype=np.int32).reshape(width, rows).T.ravel()
    return RowTexts(pa.concat_arrays(columns).take(pa.array(order)), width)


def _stretches(convert: Convert, form: ColumnForm, columns: Sequence[Sequence[Any]], *, texts: bool) -> Iterator[Any]:
    """The array of each of several columns of one form, made at once."""
    array, at = convert(form, list(chain.from_iterable(columns))), 0
    if texts:
        array = as_texts(array)
    for values in columns:
        yield array.slice(at, len(values))
        at += len(values)


def transposed(structs: list[Any], width: int) -> list[Any]:
    """Return the members of some structs, a sequence for each."""
    return list(zip(*map(astuple, structs), strict=True)) if structs else [()] * width
