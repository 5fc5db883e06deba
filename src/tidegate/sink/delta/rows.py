"""Row changes of one table as Arrow tables ready to merge: the keys that were touched and the rows that remain.

    commit_ts order │ within a transaction first every old row goes, then every new row comes
    one change per key: the last one wins, so replays and duplicates fall away by themselves

A table without a key keeps every change instead, with its operation, its commit_ts and its old image (old_images.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.feed.change import Layout, decode_layout
from tidegate.model.errors import SchemaError
from tidegate.model.table import ColumnInfo, TableInfo
from tidegate.sink.delta.columns import COMMIT_TS, OP, StoredColumn
from tidegate.sink.delta.files import logical_schema
from tidegate.sink.delta.keys import distinct, key_order
from tidegate.sink.delta.modes import BEFORE
from tidegate.sink.delta.old_images import with_old_images
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.types import arrow_type, from_text

__all__ = ["Changes", "ImageReader", "by_layout", "check_columns", "log_rows", "net_changes", "read_images"]

ORDER = "_tidegate_order"
GONE, COME = 0, 1
PIECE_BYTES = 32 << 20
"""Images are converted so many bytes at a time: the steps in between take several times as much."""
PERMISSIVE = frozenset({"ignore", "try_evolve"})
"""Policies under which a column may keep a type that later values do not fit."""


@dataclass(frozen=True, slots=True)
class Changes:
    """`keys`: every key that was touched, once; `rows`: the whole rows that exist afterwards; `count`: changes read.

    The first keys are those of `rows`, in the same order; the others are of rows that are gone."""

    keys: pa.Table
    rows: pa.Table
    count: int


@dataclass(frozen=True, slots=True)
class ImageReader:
    """Reads images of one layout as stored columns."""

    table: TableInfo
    layout: Layout
    options: DeltaOptions

    def position(self, name: str) -> int | None:
        """Where a column stands in the layout, whatever the case of its name."""
        folded = name.lower()
        return next((at for at, field in enumerate(self.layout.fields) if field.name.lower() == folded), None)

    def array(self, images: Any, stored: StoredColumn, column: ColumnInfo | None) -> Any:
        """One stored column of `images`, a list array of texts; nulls where the layout or the table lacks it.

        SchemaError when a value does not fit and the feed is strict."""
        at = self.position(column.name) if column is not None else None
        if column is None or at is None:
            return pa.nulls(len(images), arrow_type(stored.delta))
        texts = pc.list_element(images, at)
        zone, zero_date = self.options.time_zone, self.options.zero_date
        try:
            return from_text(texts, column.type, stored.delta, time_zone=zone, zero_date=zero_date)
        except pa.ArrowInvalid as broken:
            if self.options.schema_change in PERMISSIVE:
                return self.fitting(texts, stored, column)
            raise SchemaError(
                f"table {self.table.name} column {column.name}: a value does not fit the definition of ts "
                f"{self.table.version} ({stored.delta}): {broken}",
            ) from broken

    def fitting(self, texts: Any, stored: StoredColumn, column: ColumnInfo) -> Any:
        """The values that fit the stored type, NULL for the others: the policy gave up on exactness."""
        zone, zero_date = self.options.time_zone, self.options.zero_date
        values = []
        for at in range(len(texts)):
            try:
                one = from_text(texts[at : at + 1], column.type, stored.delta, time_zone=zone, zero_date=zero_date)
                values.append(one[0].as_py())
            except pa.ArrowInvalid:
                values.append(None)
        return pa.array(values, arrow_type(stored.delta))


def net_changes(slice_: pa.Table, table: TableInfo, columns: Sequence[StoredColumn], options: DeltaOptions) -> Changes:
    """What a slice of row changes (ROWS_SCHEMA) leaves of a keyed table."""
    keyed = [_stored(name, table, columns) for name in table.handle_key]
    gone: list[pa.Table] = []
    come: list[pa.Table] = []
    for layout, part in by_layout(slice_):
        check_columns(layout, table, part)
        reader = ImageReader(table, layout, options)
        old = _leaving(part, [reader.position(name) for name in table.handle_key])
        gone.append(read_images(reader, old, "before", keyed).append_column(ORDER, _rank(old, GONE)))
        new = _without(part, "D")
        come.append(read_images(reader, new, "after", columns).append_column(ORDER, _rank(new, COME)))
    return _last_per_key(gone, come, [column.name for column in keyed], slice_.num_rows)


def _without(part: pa.Table, op: str) -> pa.Table:
    ops = part.column("op")
    return part.filter(pc.not_equal(ops, op)) if op in pc.unique(ops).to_pylist() else part


def _leaving(part: pa.Table, key: Sequence[int | None]) -> pa.Table:
    """The changes after which the old row's key is free: all but INSERTs and UPDATEs that keep the key."""
    old = _without(part, "I")
    if not old.num_rows:
        return old
    stays = pc.equal(old.column("op"), "U")
    for at in key:
        if at is None:
            return old
        before, after = (pc.list_element(old.column(image), at) for image in ("before", "after"))
        stays = pc.and_(stays, pc.equal(before, after))
    return old.filter(pc.invert(pc.fill_null(stays, fill_value=False)))


def log_rows(slice_: pa.Table, table: TableInfo, columns: Sequence[StoredColumn], options: DeltaOptions) -> pa.Table:
    """Every change of a table without a key, duplicates (same place in time, same images) removed."""
    parts = [pa.Table.from_pylist([], schema=logical_schema(columns))]
    for layout, part in by_layout(_once(slice_)):
        check_columns(layout, table, part)
        reader = ImageReader(table, layout, options)
        for ops, image in ((("I", "U"), "after"), (("D",), "before")):
            some = part.filter(pc.is_in(part.column("op"), pa.array(ops)))
            rows = read_images(reader, some, image, columns)
            for name, source in ((OP, "op"), (COMMIT_TS, "commit_ts")):
                at = rows.schema.get_field_index(name)
                rows = rows.set_column(at, rows.schema.field(at), some.column(source).cast(rows.schema.field(at).type))
            parts.append(rows if image == "before" else _with_old_images(rows, reader, some, columns))
    return pa.concat_tables(parts)


def _with_old_images(rows: pa.Table, reader: ImageReader, part: pa.Table, columns: Sequence[StoredColumn]) -> pa.Table:
    """The rows of a log, those of UPDATEs with the old image that `part` has of them."""
    known = pc.and_(pc.equal(part.column("op"), "U"), part.column("before").is_valid())
    if BEFORE not in rows.column_names or not pc.any(known).as_py():
        return rows
    data = [column for column in columns if column.upstream_id >= 0]
    return with_old_images(rows, read_images(reader, part.filter(known), "before", data), known, columns)


def _once(slice_: pa.Table) -> pa.Table:
    seen: dict[Any, int] = {}
    names = ("commit_ts", "op", "layout", "before", "after")
    for at, row in enumerate(slice_.select(names).to_pylist()):
        seen.setdefault((row["commit_ts"], row["op"], row["layout"], repr(row["before"]), repr(row["after"])), at)
    return slice_.take(pa.array(sorted(seen.values()), pa.int64()))


def by_layout(slice_: pa.Table) -> list[tuple[Layout, pa.Table]]:
    """Changelog rows parted by the layout of their images."""
    layouts = slice_.column("layout").combine_chunks()
    if not pa.types.is_dictionary(layouts.type):
        layouts = layouts.dictionary_encode()
    texts, used = layouts.dictionary.to_pylist(), pc.unique(layouts.indices).to_pylist()
    if len(used) == 1:
        return [(decode_layout(texts[used[0]]), slice_)]
    return [(decode_layout(texts[one]), slice_.filter(pc.equal(layouts.indices, one))) for one in used]


def _stored(name: str, table: TableInfo, columns: Sequence[StoredColumn]) -> StoredColumn:
    column = table.column(name)
    found = next((one for one in columns if column is not None and one.upstream_id == column.id), None)
    if found is None:
        raise SchemaError(f"table {table.name} at ts {table.version}: key column {name} is not stored in the lake")
    return found


def check_columns(layout: Layout, table: TableInfo, part: pa.Table) -> None:
    """A message may lack columns (selectors, handle-only deletes) but not bring unknown ones."""
    unknown = [field.name for field in layout.fields if table.column(field.name) is None]
    if unknown:
        place = part.select(["topic", "partition", "offset", "commit_ts"]).slice(0, 1).to_pylist()[0]
        raise SchemaError(
            f"table {table.name}: column {unknown[0]} stands in a row at ts {place['commit_ts']} (topic "
            f"{place['topic']} partition {place['partition']} offset {place['offset']}) but not in the definition of "
            f"ts {table.version}; a DDL did not reach the topic: start the feed anew from a topic that has it",
        )


def read_images(reader: ImageReader, part: pa.Table, image: str, columns: Sequence[StoredColumn]) -> pa.Table:
    """The before or after images of `part` as stored columns, one row for each of its rows, piece by piece."""
    schema = logical_schema(columns)
    by_id = {column.id: column for column in reader.table.columns}
    every = part.column(image)
    step = max(1, part.num_rows * PIECE_BYTES // max(1, every.nbytes))
    pieces = [schema.empty_table()]
    for at in range(0, part.num_rows, step):
        images = every.slice(at, step).combine_chunks()
        arrays = [reader.array(images, stored, by_id.get(stored.upstream_id)) for stored in columns]
        pieces.append(pa.Table.from_arrays(arrays, schema=schema))
    return pa.concat_tables(pieces)


def _rank(part: pa.Table, rank: int) -> Any:
    """A number that grows with (commit_ts, rank): commit_ts is below 2**63, so it is doubled as unsigned."""
    ts = part.column("commit_ts").cast(pa.uint64())
    return pc.add(pc.multiply(ts, pa.scalar(2, pa.uint64())), pa.scalar(rank, pa.uint64()))


def _last_per_key(gone: list[pa.Table], come: list[pa.Table], key: list[str], count: int) -> Changes:
    """One change per key; there is nothing to choose among inserts of different keys."""
    rows = pa.concat_tables(come)
    deletes = pa.concat_tables(gone)
    if not deletes.num_rows and distinct(rows.select(key)):
        return Changes(rows.select(key), rows.drop_columns([ORDER]), count)
    events = pa.concat_tables([deletes, rows.select([*key, ORDER])])
    order = key_order(events.select([ORDER]))
    events = (events if order is None else events.take(order)).drop_columns([ORDER])
    numbered = events.append_column("_nth", pa.array(np.arange(events.num_rows)))
    last = numbered.group_by(key).aggregate([("_nth", "max")]).column("_nth_max")
    at = (last if order is None else order.take(last)).to_numpy()
    alive = at >= deletes.num_rows
    places = last.to_numpy()
    keys = events.take(pa.array(np.concatenate([places[alive], places[~alive]])))
    return Changes(keys, rows.drop_columns([ORDER]).take(pa.array(at[alive] - deletes.num_rows)), count)
