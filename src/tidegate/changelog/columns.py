"""Row changes to Arrow columns, a table at a time.

    Encoder      one row -> Encoded: the values as texts, its layout as a number
    RowColumns   Encoded ... -> one Arrow table of LANDED_SCHEMA
    landed_batch typed columns of many rows -> the same, without looking at a row
    landed_part  those of a source without messages -> the same, the place columns null

Texts come row by row already.  Typed columns become texts by a cast each; one `take` lays them row by row:

    a: 1 2 3    b: x y z    ->    1 2 3 x y z    take 0 3 1 4 2 5    ->    [1 x] [2 y] [3 z]

LANDED_SCHEMA is ROWS_SCHEMA with `layout` as a dictionary: a table has few layouts, and each is a text of a kilobyte
or more that must not stand in memory once a row.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar import Batch, RowTexts, as_texts, row_texts
from tidegate.engine.change import ROWS_SCHEMA, ChunkPart, Layout, encode_layout, encode_row
from tidegate.model.event import Field, RowChange
from tidegate.model.table import TableName

LAYOUT_TYPE: Final = pa.dictionary(pa.int32(), pa.string())
LANDED_SCHEMA: Final = pa.schema(
    [entry.with_type(LAYOUT_TYPE) if entry.name == "layout" else entry for entry in ROWS_SCHEMA]
)
IMAGE: Final = LANDED_SCHEMA.field("after").type
_MESSAGE: Final = ("topic", "partition", "offset")
MAX_LAYOUTS: Final = 10_000
"""Layouts remembered by identity; decoders share them between rows, and one that does not must not fill memory."""

Image = list[bytes | None] | None


class Encoded(NamedTuple):
    """One row as its columns hold it."""

    name: TableName
    seq: int
    commit_ts: int
    op: str
    partition_id: int | None
    layout: str
    before: Image
    after: Image


class Encoder:
    """Turns rows into texts and remembers the layouts that it has seen."""

    def __init__(self) -> None:
        self._by_identity: dict[tuple[int, tuple[str, ...] | None], tuple[tuple[Field, ...], str]] = {}
        self._texts: dict[str, str] = {}
        self._names: dict[tuple[str, str], TableName] = {}

    def encode(self, row: RowChange, seq: int) -> Encoded:
        """Return the row as texts. Raises UnicodeEncodeError for names and values that UTF-8 cannot write."""
        op, before, after = encode_row(row)
        ts = row.commit_ts
        assert ts is not None
        return Encoded(self._name(row), seq, ts, op, row.partition_id, self._layout(row), before, after)

    def _name(self, row: RowChange) -> TableName:
        name = self._names.get((row.schema, row.table))
        if name is None:
            name = TableName(row.schema, row.table)
            str(name).encode()
            self._names[name] = name
        return name

    def _layout(self, row: RowChange) -> str:
        """The layout's text, the same object for equal texts."""
        key = id(row.fields), row.pk_names
        known = self._by_identity.get(key)
        if known is not None and known[0] is row.fields:
            return known[1]
        text = encode_layout(row)
        text = self._texts.setdefault(text, text)
        if len(self._by_identity) >= MAX_LAYOUTS:
            self._by_identity.clear()
        self._by_identity[key] = row.fields, text
        return text


class RowColumns:
    """Columns of one table that grow row by row."""

    def __init__(self, topic: str, partition: int, name: TableName) -> None:
        self._constants = topic, partition, name
        self._offsets: list[int] = []
        self._rows: list[Encoded] = []

    def add(self, offset: int, row: Encoded) -> None:
        """Append a row of the message at `offset`."""
        self._offsets.append(offset)
        self._rows.append(row)

    def table(self) -> pa.Table:
        """Return all rows, in the order in which they were added."""
        topic, partition, name = self._constants
        rows = len(self._offsets)
        _, seqs, ts, ops, partition_ids, layouts, befores, afters = zip(*self._rows, strict=True)
        numbers = {text: number for number, text in enumerate(dict.fromkeys(layouts))}
        columns = {
            "topic": pa.repeat(pa.scalar(topic), rows),
            "partition": pa.repeat(pa.scalar(partition, pa.int32()), rows),
            "offset": pa.array(self._offsets, pa.int64()),
            "seq": pa.array(seqs, pa.int32()),
            "commit_ts": pa.array(ts, pa.int64()),
            "op": pa.array(ops, pa.string()),
            "schema": pa.repeat(pa.scalar(name.schema), rows),
            "table": pa.repeat(pa.scalar(name.table), rows),
            "partition_id": pa.array(partition_ids, pa.int64()),
            "layout": pa.DictionaryArray.from_arrays(
                pa.array([numbers[text] for text in layouts], pa.int32()), pa.array(list(numbers), pa.string())
            ),
            "before": pa.array(befores, IMAGE),
            "after": pa.array(afters, IMAGE),
        }
        return pa.Table.from_arrays([columns[entry.name] for entry in LANDED_SCHEMA], schema=LANDED_SCHEMA)


def landed_batch(topic: str, partition: int, offsets: pa.Array, batch: Batch) -> pa.Table:
    """Return the rows of a batch as LANDED_SCHEMA; message i of its chunk stood at `offsets[i]` (int64)."""
    rows = batch.rows
    place = {
        "topic": pa.repeat(pa.scalar(topic), rows),
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), rows),
        "offset": offsets.take(batch.message),
        "seq": batch.seq,
    }
    return _landed(place, batch)


def landed_part(part: ChunkPart) -> pa.Table:
    """Return the rows of a part of a chunk as LANDED_SCHEMA, without a message; `seq` is their number in the chunk."""
    nulls = {name: pa.nulls(part.batch.rows, LANDED_SCHEMA.field(name).type) for name in _MESSAGE}
    return _landed({**nulls, "seq": pa.array(part.numbers, pa.int32())}, part.batch)


def _landed(place: Mapping[str, Any], batch: Batch) -> pa.Table:
    rows = batch.rows
    layout = msgspec.json.encode(Layout(batch.fields, batch.pk_names)).decode()
    columns = {
        **place,
        "commit_ts": batch.commit_ts,
        "op": batch.op,
        "schema": pa.repeat(pa.scalar(batch.schema), rows),
        "table": pa.repeat(pa.scalar(batch.table), rows),
        "partition_id": batch.partition_id,
        "layout": pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), pa.array([layout])),
        "before": _image_lists(batch.before, pc.not_equal(batch.op, "I")),
        "after": _image_lists(batch.after, pc.not_equal(batch.op, "D")),
    }
    return pa.Table.from_arrays([columns[entry.name] for entry in LANDED_SCHEMA], schema=LANDED_SCHEMA)


def _image_lists(images: Any, present: Any) -> Any:
    """A list of texts for each row, null where it has no such image."""
    values, width = images if isinstance(images, RowTexts) else row_texts(list(map(as_texts, images.columns)))
    there = present.to_numpy(zero_copy_only=False)
    ends = np.concatenate(([0], np.cumsum(there, dtype=np.int32) * width)).astype(np.int32)
    offsets = pa.array(ends, pa.int32(), mask=np.append(~there, False))
    return pa.ListArray.from_arrays(offsets, values)
