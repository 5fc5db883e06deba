"""DDL on partitions: which stored rows go, and which change places.

The lake does not store partitions; the definition says where a row lies (schema/partition.py).
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.feed.step import Exchange, Trim, position_of
from tidegate.model.errors import SinkError
from tidegate.model.table import TableInfo
from tidegate.schema.partition import partition_of
from tidegate.sink.delta.columns import StoredColumn, logical_key, stored_columns
from tidegate.sink.delta.files import logical_schema, read
from tidegate.sink.delta.merge import rewrite
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.position import position
from tidegate.sink.delta.types import arrow_type, to_neutral
from tidegate.spark import deltalog
from tidegate.spark.deltalog import Action, Snapshot

__all__ = ["exchange", "trim"]


def trim(step: Trim, snapshot: Snapshot, options: DeltaOptions) -> list[Action]:
    """The actions that leave the rows outside the named partitions."""
    columns = stored_columns(snapshot)
    rows = _partition_rows(snapshot, columns, step.old, step.partitions, options, keep_inside=False)
    return rewrite(snapshot.uri, snapshot.files(), rows, columns, logical_key(step.old, columns))


def exchange(step: Exchange, table: TableInfo, snapshot: Snapshot, options: DeltaOptions) -> list[Action]:
    """The rows of `table` after the swap; the partner is read as it was just before its own half of it."""
    inside = frozenset({step.partition})
    mine = stored_columns(snapshot)
    partner_info = step.other if table.incarnation == step.partitioned.incarnation else step.partitioned
    partner = _before(step, partner_info, options)
    theirs = stored_columns(partner)
    if table.incarnation == step.partitioned.incarnation:
        outside = _partition_rows(snapshot, mine, step.partitioned, inside, options, keep_inside=False)
        coming = [read(partner.uri, file, theirs) for file in partner.files()]
    else:
        outside = []
        coming = _partition_rows(partner, theirs, step.partitioned, inside, options, keep_inside=True)
    incoming = [_as_columns(rows, mine) for rows in coming]
    return rewrite(snapshot.uri, snapshot.files(), [*outside, *incoming], mine, logical_key(table, mine))


def _before(step: Exchange, table: TableInfo, options: DeltaOptions) -> Snapshot:
    """A partner's snapshot just before its half of the exchange, done or not."""
    uri = options.table_uri(table.incarnation)
    snapshot = deltalog.load(uri)
    while snapshot is not None and position(snapshot, options.feed) >= position_of(step):
        snapshot = deltalog.load(uri, snapshot.version - 1)
    if snapshot is None:
        raise SinkError(f"table {table.name}: its stored rows at {uri} are gone; start the feed anew in an empty lake")
    return snapshot


def _as_columns(rows: pa.Table, columns: Sequence[StoredColumn]) -> pa.Table:
    """Rows of the partner under our columns: an exchange demands equal names, a policy may have left us more."""
    theirs = {name.lower(): name for name in rows.column_names}
    arrays = [
        rows.column(theirs[column.name.lower()])
        if column.name.lower() in theirs
        else pa.nulls(rows.num_rows, arrow_type(column.delta))
        for column in columns
    ]
    return pa.Table.from_arrays(arrays, schema=logical_schema(columns))


def _partition_rows(
    snapshot: Snapshot,
    columns: Sequence[StoredColumn],
    table: TableInfo,
    partitions: Iterable[str],
    options: DeltaOptions,
    *,
    keep_inside: bool,
) -> list[pa.Table]:
    """The rows that lie inside (or outside) the named partitions."""
    if table.partition is None:
        raise SinkError(f"table {table.name} is not partitioned in the definition of ts {table.version}")
    zone = options.time_zone
    locate = partition_of(table.partition, table.columns, time_zone=zone, primary_key=table.handle_key)
    named = {name.lower() for name in partitions}
    by_id = {column.upstream_id: column for column in columns}
    parts: list[pa.Table] = []
    for file in snapshot.files():
        rows = read(snapshot.uri, file, columns)
        values = {
            column.name: to_neutral(rows.column(by_id[column.id].name), column.type, time_zone=zone)
            for column in table.columns
            if column.id in by_id
        }
        inside = [
            (locate(dict(zip(values, row, strict=True))) or "").lower() in named
            for row in zip(*values.values(), strict=True)
        ]
        mask = pa.array(inside, pa.bool_())
        parts.append(rows.filter(mask if keep_inside else pc.invert(mask)))
    return parts
