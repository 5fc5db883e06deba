"""Row changes to Arrow columns, a table at a time.

    Encoder      one row -> Encoded: the values as texts, its layout as a number
    RowColumns   Encoded ... -> one Arrow table of LANDED_SCHEMA

LANDED_SCHEMA is ROWS_SCHEMA with `layout` as a dictionary: a table has few layouts, and each is a text of a kilobyte
or more that must not stand in memory once a row.
"""

from typing import Final, NamedTuple

import pyarrow as pa

from tidegate.feed.change import ROWS_SCHEMA, encode_layout, encode_row
from tidegate.model.event import Field, RowChange
from tidegate.model.table import TableName

__all__ = ["LANDED_SCHEMA", "Encoded", "Encoder", "RowColumns"]

LAYOUT_TYPE: Final = pa.dictionary(pa.int32(), pa.string())
LANDED_SCHEMA: Final = pa.schema(
    [entry.with_type(LAYOUT_TYPE) if entry.name == "layout" else entry for entry in ROWS_SCHEMA]
)
IMAGE: Final = LANDED_SCHEMA.field("after").type
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
        """The row as texts. Raises UnicodeEncodeError for names and values that UTF-8 cannot write."""
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
        """All rows, in the order in which they were added."""
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
