"""Row changes of one table as Arrow tables ready to merge: the keys that were touched and the rows that remain.

    commit_ts order │ within a transaction first every old row goes, then every new row comes
    one change per key: the last one wins, so replays and duplicates fall away by themselves

A table without a key keeps every change instead, with its operation, its commit_ts and its old image (old_images.py).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar import as_texts
from tidegate.engine.change import Chunk, Layout
from tidegate.model.errors import SchemaError
from tidegate.model.table import TableInfo
from tidegate.sink.delta.columns import COMMIT_TS, OP, LakeColumn
from tidegate.sink.delta.files import logical_schema
from tidegate.sink.delta.images import ImageReader, Side
from tidegate.sink.delta.keys import distinct, key_order
from tidegate.sink.delta.modes import BEFORE
from tidegate.sink.delta.old_images import with_old_images
from tidegate.sink.delta.options import DeltaOptions

ORDER = "_tidegate_order"
GONE, COME = 0, 1
SIDES: Final[Mapping[str, tuple[Side, ...]]] = {"I": ("after",), "U": ("before", "after"), "D": ("before",)}
"""The images that each operation has."""


@dataclass(frozen=True, slots=True)
class NetChanges:
    """`keys`: every key that was touched, once; `rows`: the whole rows that exist afterwards; `count`: changes read.

    The first keys are those of `rows`, in the same order; the others are of rows that are gone."""

    keys: pa.Table
    rows: pa.Table
    count: int


def if_any(chunks: Iterable[Chunk]) -> Iterator[Chunk] | None:
    """Return the chunks; None where there is none."""
    chunks = iter(chunks)
    first = next(chunks, None)
    return None if first is None else chain((first,), chunks)


def net_changes(
    chunks: Iterable[Chunk], table: TableInfo, columns: Sequence[LakeColumn], options: DeltaOptions
) -> NetChanges:
    """Return what the row changes of a keyed table (at least one) leave of it."""
    keyed = [_stored(name, table, columns) for name in table.handle_key]
    gone: list[pa.Table] = []
    come: list[pa.Table] = []
    count = 0
    for chunk in chunks:
        count += len(chunk)
        for batch, _ in chunk.parts:
            reader = ImageReader(batch, table, options)
            old, new = _leaving(reader), reader.rows("I", "U")
            gone.append(reader.read("before", old, keyed).append_column(ORDER, _rank(reader, old, GONE)))
            come.append(reader.read("after", new, columns).append_column(ORDER, _rank(reader, new, COME)))
    return _last_per_key(gone, come, [column.name for column in keyed], count)


def _leaving(reader: ImageReader) -> Any:
    """Which changes free the old row's key: DELETEs, and UPDATEs that do not keep the key."""
    deletes, updates = reader.rows("D"), reader.rows("U")
    known = [reader.position(name) for name in reader.table.handle_key]
    key = [at for at in known if at is not None]
    if len(key) < len(known) or not updates.any():
        return deletes | updates
    stays = np.ones(int(updates.sum()), np.bool_)
    for at in key:
        before, after = (reader.images(side, updates).column(at) for side in SIDES["U"])
        if before.type != after.type or pa.types.is_floating(before.type):  # 0 and -0 are equal, and two keys here
            before, after = as_texts(before), as_texts(after)
        stays &= pc.fill_null(pc.equal(before, after), fill_value=False).to_numpy(zero_copy_only=False)
    updates[updates] = ~stays
    return deletes | updates


def log_rows(
    chunks: Iterable[Chunk], table: TableInfo, columns: Sequence[LakeColumn], options: DeltaOptions
) -> pa.Table:
    """Return every change of a table without a key, duplicates (same place in time, same images) removed."""
    parts = [logical_schema(columns).empty_table()]
    for chunk in chunks:
        readers = [ImageReader(batch, table, options) for batch, _ in chunk.parts]
        for reader, firsts in zip(readers, _once(readers), strict=True):
            parts.append(_with_old_images(reader, firsts & reader.rows("I", "U"), columns))
            parts.append(_stamped(reader, "before", firsts & reader.rows("D"), columns))
    return pa.concat_tables(parts)


def _stamped(reader: ImageReader, side: Side, some: Any, columns: Sequence[LakeColumn]) -> pa.Table:
    """Images of a log with the operation and the commit_ts of their changes."""
    rows = reader.read(side, some, columns)
    for name, values in ((OP, reader.batch.op.filter(pa.array(some))), (COMMIT_TS, reader.commit_ts(some))):
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), values.cast(rows.schema.field(at).type))
    return rows


def _with_old_images(reader: ImageReader, some: Any, columns: Sequence[LakeColumn]) -> pa.Table:
    """The new images of a log, those of UPDATEs with their old ones beside them."""
    rows = _stamped(reader, "after", some, columns)
    updates = some & reader.rows("U")
    if BEFORE not in rows.column_names or not updates.any():
        return rows
    data = [column for column in columns if column.upstream_id >= 0]
    return with_old_images(rows, reader.read("before", updates, data), pa.array(updates[some]), columns)


def _once(readers: Sequence[ImageReader]) -> list[Any]:
    """For the batch of each reader, which changes are the first of their kind in the chunk: commit_ts, operation,
    layout and images."""
    begins = np.cumsum([0, *(reader.batch.rows for reader in readers)])
    alike: defaultdict[tuple[str, Layout], list[pa.Table]] = defaultdict(list)
    for begin, reader in zip(begins, readers, strict=False):
        layout = Layout(reader.batch.fields, reader.batch.pk_names)
        for op, sides in SIDES.items():
            rows = reader.rows(op)
            images = [reader.images(side, rows) for side in sides]
            values = [as_texts(image.column(at)) for image in images for at in range(len(layout.fields))]
            told = [pa.array(begin + np.flatnonzero(rows)), reader.commit_ts(rows), *values]
            alike[op, layout].append(pa.table(told, names=[str(at) for at in range(len(told))]))
    first = np.zeros(begins[-1], np.bool_)
    for tables in alike.values():
        every = pa.concat_tables(tables)
        found = every.group_by(every.column_names[1:]).aggregate([("0", "min")])
        first[found.column("0_min").to_numpy()] = True
    return np.split(first, begins[1:-1])


def _stored(name: str, table: TableInfo, columns: Sequence[LakeColumn]) -> LakeColumn:
    column = table.column(name)
    found = next((one for one in columns if column is not None and one.upstream_id == column.id), None)
    if found is None:
        raise SchemaError(f"table {table.name} at ts {table.version}: key column {name} is not stored in the lake")
    return found


def _rank(reader: ImageReader, rows: Any, rank: int) -> Any:
    """A number that grows with (commit_ts, rank): commit_ts is below 2**63, so it is doubled as unsigned."""
    ts = reader.commit_ts(rows).cast(pa.uint64())
    return pc.add(pc.multiply(ts, pa.scalar(2, pa.uint64())), pa.scalar(rank, pa.uint64()))


def _last_per_key(gone: list[pa.Table], come: list[pa.Table], key: list[str], count: int) -> NetChanges:
    """One change per key; there is nothing to choose among inserts of different keys."""
    rows = pa.concat_tables(come)
    deletes = pa.concat_tables(gone)
    if not deletes.num_rows and distinct(rows.select(key)):
        return NetChanges(rows.select(key), rows.drop_columns([ORDER]), count)
    events = pa.concat_tables([deletes, rows.select([*key, ORDER])])
    order = key_order(events.select([ORDER]))
    events = (events if order is None else events.take(order)).drop_columns([ORDER])
    numbered = events.append_column("_nth", pa.array(np.arange(events.num_rows)))
    places = np.sort(numbered.group_by(key).aggregate([("_nth", "max")]).column("_nth_max").to_numpy())
    at = places if order is None else order.take(pa.array(places)).to_numpy()
    alive = at >= deletes.num_rows
    keys = events.take(pa.array(np.concatenate([places[alive], places[~alive]])))
    return NetChanges(keys, rows.drop_columns([ORDER]).take(pa.array(at[alive] - deletes.num_rows)), count)
