"""Row changes of one table as Arrow tables ready to merge: the keys that were touched and the rows that remain.

    commit_ts order │ within a transaction first every old row goes, then every new row comes
    one change per key: the last one wins, so replays and duplicates fall away by themselves

A table without a key keeps every change instead, with its operation and commit_ts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.feed.change import Layout, decode_layout
from tidegate.model.errors import SchemaError
from tidegate.model.table import ColumnInfo, TableInfo
from tidegate.sink.delta.columns import COMMIT_TS, OP, StoredColumn
from tidegate.sink.delta.files import logical_schema
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.types import arrow_type, from_text

__all__ = ["Changes", "log_rows", "net_changes"]

ORDER = "_tidegate_order"
GONE, COME = 0, 1
PERMISSIVE = frozenset({"ignore", "try_evolve"})
"""Policies under which a column may keep a type that later values do not fit."""


@dataclass(frozen=True, slots=True)
class Changes:
    """`keys`: every key that was touched. `rows`: the whole rows that exist afterwards. `count`: changes read."""

    keys: pa.Table
    rows: pa.Table
    count: int


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads images of one layout as stored columns."""

    table: TableInfo
    layout: Layout
    options: DeltaOptions

    def position(self, name: str) -> int | None:
        folded = name.lower()
        return next((at for at, field in enumerate(self.layout.fields) if field.name.lower() == folded), None)

    def array(self, images: Any, stored: StoredColumn, column: ColumnInfo | None) -> Any:
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
    key = table.handle_key
    keyed = [_stored(name, table, columns) for name in key]
    gone: list[pa.Table] = []
    come: list[pa.Table] = []
    for layout, part in _by_layout(slice_):
        _check(layout, table, part)
        reader = _Reader(table, layout, options)
        ops = part.column("op")
        old = part.filter(pc.not_equal(ops, "I"))
        gone.append(_read(reader, old, "before", keyed).append_column(ORDER, _rank(old, GONE)))
        new = part.filter(pc.not_equal(ops, "D"))
        come.append(_read(reader, new, "after", columns).append_column(ORDER, _rank(new, COME)))
    return _last_per_key(gone, come, [column.name for column in keyed], slice_.num_rows)


def log_rows(slice_: pa.Table, table: TableInfo, columns: Sequence[StoredColumn], options: DeltaOptions) -> pa.Table:
    """Every change of a table without a key, duplicates (same place in time, same images) removed."""
    parts = [pa.Table.from_pylist([], schema=logical_schema(columns))]
    for layout, part in _by_layout(_once(slice_)):
        _check(layout, table, part)
        reader = _Reader(table, layout, options)
        for ops, image in ((("I", "U"), "after"), (("D",), "before")):
            some = part.filter(pc.is_in(part.column("op"), pa.array(ops)))
            rows = _read(reader, some, image, columns)
            for name, source in ((OP, "op"), (COMMIT_TS, "commit_ts")):
                at = rows.schema.get_field_index(name)
                rows = rows.set_column(at, rows.schema.field(at), some.column(source).cast(rows.schema.field(at).type))
            parts.append(rows)
    return pa.concat_tables(parts)


def _once(slice_: pa.Table) -> pa.Table:
    seen: dict[Any, int] = {}
    names = ("commit_ts", "op", "layout", "before", "after")
    for at, row in enumerate(slice_.select(names).to_pylist()):
        seen.setdefault((row["commit_ts"], row["op"], row["layout"], repr(row["before"]), repr(row["after"])), at)
    return slice_.take(pa.array(sorted(seen.values()), pa.int64()))


def _by_layout(slice_: pa.Table) -> list[tuple[Layout, pa.Table]]:
    layouts = slice_.column("layout")
    return [(decode_layout(text), slice_.filter(pc.equal(layouts, text))) for text in pc.unique(layouts).to_pylist()]


def _stored(name: str, table: TableInfo, columns: Sequence[StoredColumn]) -> StoredColumn:
    column = table.column(name)
    found = next((one for one in columns if column is not None and one.upstream_id == column.id), None)
    if found is None:
        raise SchemaError(f"table {table.name} at ts {table.version}: key column {name} is not stored in the lake")
    return found


def _check(layout: Layout, table: TableInfo, part: pa.Table) -> None:
    """A message may lack columns (selectors, handle-only deletes) but not bring unknown ones."""
    unknown = [field.name for field in layout.fields if table.column(field.name) is None]
    if unknown:
        place = part.select(["topic", "partition", "offset", "commit_ts"]).slice(0, 1).to_pylist()[0]
        raise SchemaError(
            f"table {table.name}: column {unknown[0]} stands in a row at ts {place['commit_ts']} (topic "
            f"{place['topic']} partition {place['partition']} offset {place['offset']}) but not in the definition of "
            f"ts {table.version}; a DDL did not reach the topic: start the feed anew from a topic that has it",
        )


def _read(reader: _Reader, part: pa.Table, image: str, columns: Sequence[StoredColumn]) -> pa.Table:
    images = part.column(image).combine_chunks()
    by_id = {column.id: column for column in reader.table.columns}
    arrays = [reader.array(images, stored, by_id.get(stored.upstream_id)) for stored in columns]
    return pa.Table.from_arrays(arrays, schema=logical_schema(columns))


def _rank(part: pa.Table, rank: int) -> Any:
    """A number that grows with (commit_ts, rank): commit_ts is below 2**63, so it is doubled as unsigned."""
    ts = part.column("commit_ts").cast(pa.uint64())
    return pc.add(pc.multiply(ts, pa.scalar(2, pa.uint64())), pa.scalar(rank, pa.uint64()))


def _last_per_key(gone: list[pa.Table], come: list[pa.Table], key: list[str], count: int) -> Changes:
    rows = pa.concat_tables(come)
    deletes = pa.concat_tables(gone)
    events = pa.concat_tables([rows.select([*key, ORDER]), deletes.select([*key, ORDER])])
    events = events.append_column("_at", pa.array(range(events.num_rows), pa.int64()))
    latest = events.sort_by([(ORDER, "ascending"), ("_at", "descending")])
    latest = latest.append_column("_nth", pa.array(range(latest.num_rows), pa.int64()))
    last = latest.group_by(key).aggregate([("_nth", "max")])
    winners = latest.take(last.column("_nth_max"))
    at = winners.column("_at")
    alive = at.filter(pc.less(at, rows.num_rows))
    return Changes(last.select(key), rows.drop_columns([ORDER]).take(alive), count)
