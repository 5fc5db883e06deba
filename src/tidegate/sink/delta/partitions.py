"""DDL on partitions: which stored rows go, and which change places.

The lake does not store partitions; the definition says where a row lies (schema/partition.py).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from tidegate.engine.plan import Exchange, Trim, position_of
from tidegate.model.errors import ColumnSelectorFailed, SinkRefused
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo
from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import Action, TableSnapshot
from tidegate.schema.partition import partition_of
from tidegate.sink.delta.columns import LakeColumn, stored_columns
from tidegate.sink.delta.files import logical_schema
from tidegate.sink.delta.mode_steps import MOVES, Moving
from tidegate.sink.delta.modes import BEFORE, form_of
from tidegate.sink.delta.old_images import parted, renamed
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.position import no_rows, position
from tidegate.sink.delta.selection import selectors_of, stored_definition
from tidegate.sink.delta.types import arrow_type, to_neutral


def trim(step: Trim, snapshot: TableSnapshot, options: DeltaOptions) -> list[Action]:
    """Return the actions that leave the rows outside the named partitions."""
    columns = stored_columns(snapshot)
    inside = _inside(columns, step.old, step.partitions, options)
    moves = MOVES[form_of(step.old, options.mode)]
    return moves.move(snapshot, step.old, columns, Moving(position_of(step), inside))


def exchange(step: Exchange, table: TableInfo, snapshot: TableSnapshot, options: DeltaOptions) -> list[Action]:
    """Return the rows of `table` after the swap; the partner is read as it was just before its own half of it."""
    mine = stored_columns(snapshot)
    gains_all = table.incarnation == step.partitioned.incarnation
    partner_info = step.other if gains_all else step.partitioned
    partner = _before(step, partner_info, options)
    theirs = stored_columns(partner)
    _check_alike(table, mine, partner_info, theirs, options)
    now = MOVES[form_of(partner_info, options.mode)].now(partner, partner_info, theirs)
    if gains_all:
        leaves = _inside(mine, table, (step.partition,), options)
        coming = now
    else:
        leaves = _everything
        inside = _inside(theirs, partner_info, (step.partition,), options)
        coming = (parted(rows, theirs, inside)[1] for rows in now)
    incoming = (_as_columns(rows, theirs, mine) for rows in coming)
    move = MOVES[form_of(table, options.mode)].move
    return move(snapshot, table, mine, Moving(position_of(step), leaves, incoming))


def _check_alike(
    table: TableInfo,
    mine: Sequence[LakeColumn],
    partner: TableInfo,
    theirs: Sequence[LakeColumn],
    options: DeltaOptions,
) -> None:
    """Raises ColumnSelectorFailed when column selectors leave out of the partner what is stored of the table."""
    selectors, have = selectors_of(options), {lowered(column.name) for column in theirs}
    for column in mine:
        if column.upstream_id < 0 or lowered(column.name) in have:
            continue
        if partner.column(column.name) is not None and not selectors.keeps(partner.name, column.name):
            raise ColumnSelectorFailed(
                f"column selectors choose {column.name} of {table.name} and not of {partner.name}, so the lake lacks "
                "values of the rows that change places; let them choose the same columns of both tables"
            )


def _everything(rows: pa.Table) -> Any:
    return pa.repeat(pa.scalar(value=True), rows.num_rows)


def _before(step: Exchange, table: TableInfo, options: DeltaOptions) -> TableSnapshot:
    """A partner's snapshot just before its half of the exchange, done or not."""
    uri = options.table_uri(table.incarnation)
    snapshot = deltalog.load(uri)
    while snapshot is not None and position(snapshot, options.feed) >= position_of(step):
        snapshot = deltalog.load(uri, snapshot.version - 1)
    if snapshot is None:
        raise no_rows(table, uri)
    return snapshot


def _as_columns(rows: pa.Table, partner: Sequence[LakeColumn], columns: Sequence[LakeColumn]) -> pa.Table:
    """Rows of the partner under our columns: an exchange demands equal names, a policy may have left us more.

    Columns of ours only where the partner's rows bring them: they belong to changes and versions, not to rows."""
    theirs = {lowered(name): name for name in rows.column_names}
    columns = [column for column in columns if column.upstream_id >= 0 or column.name in theirs]
    if BEFORE in rows.column_names:
        names = {lowered(column.name): column.physical for column in columns}
        physical = {one.physical: names[lowered(one.name)] for one in partner if lowered(one.name) in names}
        at = rows.schema.get_field_index(BEFORE)
        rows = rows.set_column(at, rows.schema.field(at), renamed(rows.column(BEFORE), physical))
    arrays = [
        rows.column(theirs[lowered(column.name)])
        if lowered(column.name) in theirs
        else pa.nulls(rows.num_rows, arrow_type(column.delta))
        for column in columns
    ]
    return pa.Table.from_arrays(arrays, schema=logical_schema(columns))


def _inside(
    columns: Sequence[LakeColumn], table: TableInfo, partitions: Iterable[str], options: DeltaOptions
) -> Callable[[pa.Table], Any]:
    """A mask for stored rows: which of them lie in the named partitions."""
    if table.partition is None:
        raise SinkRefused(f"table {table.name} is not partitioned in the definition of ts {table.version}")
    stored_definition(table, options)
    zone = options.time_zone
    locate = partition_of(table.partition, table.columns, time_zone=zone, primary_key=table.handle_key)
    named = {lowered(name) for name in partitions}
    by_id = {column.upstream_id: column for column in columns}

    def inside(rows: pa.Table) -> Any:
        values = {
            column.name: to_neutral(rows.column(by_id[column.id].name), column.type, time_zone=zone)
            for column in table.columns
            if column.id in by_id
        }
        found = [
            lowered(locate(dict(zip(values, row, strict=True))) or "") in named
            for row in zip(*values.values(), strict=True)
        ]
        return pa.array(found, pa.bool_())

    return inside
