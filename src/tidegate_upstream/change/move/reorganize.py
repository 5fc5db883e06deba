"""REORGANIZE PARTITION, PARTITION BY, REMOVE PARTITIONING and EXCHANGE PARTITION, one state further.

    reorganize    delete-only .. write-reorg     adding_definitions and dropping_definitions stand beside definitions
                  delete-reorg, public           the new ones are in definitions, the old ones still dropping
                  none                           only the new ones; PARTITION BY and REMOVE give the table a new id
    exchange      write-only                     the table takes only rows that fit the partition
                  none                           ids are swapped; one version later the table takes all rows again

A table without partitions is reorganized as one with the single partition pFullTable, whose id is the table's.

Source: TiDB pkg/ddl/partition.go (onReorganizePartition, onExchangeTablePartition).
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import UNSET, Raw

from tidegate.model.errors import SqlRefused
from tidegate.schema.job import AffectedTable, SchemaDiff
from tidegate.schema.stored.arguments import ExchangeArgs, NewPartitionsArgs
from tidegate.schema.stored.definition import Name, StoredPartition, StoredPartitionDef, StoredTable
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.change.draft import Draft, Move, States
from tidegate_upstream.change.move.attribute import counter_kind
from tidegate_upstream.change.move.partition import affected, at_rest, definitions_named, partition_of, under_way
from tidegate_upstream.change.move.table import counters_deleted
from tidegate_upstream.change.outcome import CounterChange, DeleteRange
from tidegate_upstream.change.request import Request

FULL_TABLE: Final = Name("pFullTable", "pfulltable")
_WHOLE_COMMENT: Final = "Intermediate partition during ALTER TABLE ... PARTITION BY ..."
"""What TiDB writes into the definition, to the letter."""
_REORGANIZE: Final = 64
_NONE, _PUBLIC, _WRITE_ONLY = ElementState.NONE, ElementState.PUBLIC, ElementState.WRITE_ONLY
_DELETE_REORG: Final = ElementState.DELETE_REORG


def _reorganize(draft: Draft, request: Request, old: States, new: States) -> None:
    arguments, table = request.arguments, draft.table(request)
    assert isinstance(arguments, NewPartitionsArgs)
    if request.action != _REORGANIZE:
        draft.diff = SchemaDiff(0, request.action, request.schema_id, table.id, old_table_id=table.id)
    if new["new rows"] is _NONE:
        _give_up(draft, request, arguments, table)
    elif new["old rows"] is _NONE:
        _finish(draft, request, table)
    else:
        state = new["new rows"]
        partition = partition_of(table) if request.action == _REORGANIZE else table.partition or _whole(table)
        if old["new rows"] is _NONE:
            partition = _prepared(request, arguments, table, partition)
        elif old["new rows"] is not _PUBLIC and new["new rows"] is _PUBLIC:
            partition, state = _switched(request, partition), _DELETE_REORG
        changed = msgspec.structs.replace(table, partition=under_way(partition, request.action, state))
        draft.update(request, changed)


def _whole(table: StoredTable) -> StoredPartition:
    """A table without partitions as one with a single one."""
    whole = StoredPartitionDef(table.id, FULL_TABLE, comment=_WHOLE_COMMENT)
    return StoredPartition(0, definitions=[whole], num=1)


def _prepared(
    request: Request, arguments: NewPartitionsArgs, table: StoredTable, partition: StoredPartition
) -> StoredPartition:
    """`partition` with what comes and what goes beside it."""
    comes = arguments.part_info
    whole = msgspec.structs.replace(table, partition=partition)
    going = definitions_named(whole, arguments.part_names)
    kept = {one.name.lower for one in partition.definitions or ()} - {one.name.lower for one in going}
    if request.action == _REORGANIZE and (taken := kept & {one.name.lower for one in comes.definitions or ()}):
        raise SqlRefused(1517, f"Duplicate partition name {min(taken)}")
    partition = msgspec.structs.replace(
        partition,
        adding_definitions=comes.definitions,
        dropping_definitions=going,
        ddl_type=comes.type or UNSET,
        ddl_expr=comes.expr or UNSET,
        ddl_columns=comes.columns or UNSET,
    )
    if request.action != _REORGANIZE:
        return msgspec.structs.replace(partition, new_table_id=comes.new_table_id)
    order = [one.id for one in partition.definitions or ()]
    return msgspec.structs.replace(partition, original_partition_ids_order=order)


def _switched(request: Request, partition: StoredPartition) -> StoredPartition:
    """`partition` where the new partitions are read."""
    adding = list(partition.adding_definitions or ())
    going = {one.id for one in partition.dropping_definitions or ()}
    if request.action == _REORGANIZE:
        present = list(partition.definitions or ())
        at = next(place for place, one in enumerate(present) if one.id in going)
        kept = [[one for one in half if one.id not in going] for half in (present[:at], present[at:])]
        definitions = [*kept[0], *adding, *kept[1]]
        return msgspec.structs.replace(partition, definitions=definitions, num=len(definitions))
    columns = None if partition.ddl_columns is UNSET else partition.ddl_columns
    return msgspec.structs.replace(
        partition,
        type=0 if partition.ddl_type is UNSET else partition.ddl_type,
        expr="" if partition.ddl_expr is UNSET else partition.ddl_expr,
        columns=columns,
        ddl_type=partition.type or UNSET,
        ddl_expr=partition.expr or UNSET,
        ddl_columns=partition.columns or UNSET,
        definitions=adding,
        num=len(adding),
    )


def _finish(draft: Draft, request: Request, table: StoredTable) -> None:
    """Only the new partitions are left, of PARTITION BY and REMOVE PARTITIONING below a new table id."""
    partition = partition_of(table)
    come = [one.id for one in partition.adding_definitions or ()]
    gone = [one.id for one in partition.dropping_definitions or ()]
    if request.action == _REORGANIZE:
        draft.update(request, msgspec.structs.replace(table, partition=at_rest(partition)))
        draft.diff = SchemaDiff(0, request.action, request.schema_id, table.id, affected_options=affected(come, gone))
        draft.ranges += [DeleteRange(one) for one in gone]
        return
    assert partition.new_table_id is not UNSET
    new_id = partition.new_table_id
    rest = None
    if partition.type:
        rest = msgspec.structs.replace(at_rest(partition), ddl_type=UNSET, ddl_expr=UNSET, ddl_columns=UNSET)
    fresh = msgspec.structs.replace(table, id=new_id, partition=rest, revision=table.revision + 1, old_schema_id=UNSET)
    draft.remove(request.schema_id, table.id)
    draft.put(request.schema_id, fresh, stamped=True)
    gone += [table.id] if table.id not in gone else []
    draft.ranges += [DeleteRange(one) for one in gone]
    draft.counters += _copied(request.schema_id, table, new_id)
    draft.counters += counters_deleted(request.schema_id, table)
    draft.diff = SchemaDiff(
        0,
        request.action,
        request.schema_id,
        new_id,
        old_table_id=table.id,
        affected_options=affected(come, gone),
    )


def _copied(schema_id: int, table: StoredTable, new_id: int) -> list[CounterChange]:
    home = schema_id if table.old_schema_id is UNSET else table.old_schema_id
    return [CounterChange(kind, schema_id, new_id, 0, like=(home, table.id)) for kind in ("TID", "IID", "TARID")]


def _give_up(draft: Draft, request: Request, arguments: NewPartitionsArgs, table: StoredTable) -> None:
    """The definition as it was; what was copied goes."""
    partition, was = partition_of(table), arguments.part_info
    draft.ranges += [DeleteRange(one.id) for one in partition.adding_definitions or ()]
    rest = None
    if partition.type:
        rest = msgspec.structs.replace(
            at_rest(partition), ddl_type=was.ddl_type, ddl_expr=was.ddl_expr, ddl_columns=was.ddl_columns
        )
    draft.update(request, msgspec.structs.replace(table, partition=rest))


def exchange_shape(table: StoredTable) -> tuple[object, ...]:
    """Return what two tables that exchange rows must have in common."""
    columns = [
        (column.id, column.name.lower, column.type, column.generated_expr_string, column.generated_stored)
        for column in table.cols or ()
    ]
    indexes = sorted(
        (one.id, one.idx_name.lower, one.is_unique, one.is_primary, tuple(part.name.lower for part in one.idx_cols))
        for one in table.index_info or ()
    )
    return columns, indexes, table.pk_is_handle, table.is_common_handle, table.charset, table.collate


def _exchange(draft: Draft, request: Request, old: States, new: States) -> None:
    arguments = request.arguments
    assert isinstance(arguments, ExchangeArgs)
    swapped, fit = new["table swapped"] is _PUBLIC, new["rows fit"]
    own_id = arguments.partition_id if old["table swapped"] is _PUBLIC else request.table_id
    table = draft.find(request.schema_id, own_id)
    parent = draft.find(arguments.pt_schema_id, arguments.pt_table_id)
    if table is None or parent is None:
        raise SqlRefused(1146, f"Table '{request.schema_name}.{request.table_name}' doesn't exist", "42S02")
    if old["rows fit"] is _NONE and not swapped:
        if exchange_shape(parent) != exchange_shape(table):
            raise SqlRefused(1736, "Tables have different definitions", "HY000")
        _check_partition(arguments, parent)
    new_id = own_id
    if swapped and old["table swapped"] is not _PUBLIC:
        new_id = arguments.partition_id
        draft.remove(request.schema_id, own_id)
        draft.counters += _shared_counters(request, arguments, table, parent)
    info = Raw(b"null")
    if fit is _WRITE_ONLY:
        info = _fit_info(arguments.pt_table_id, own_id if swapped else arguments.partition_id)
    draft.put(
        request.schema_id,
        msgspec.structs.replace(table, id=new_id, exchange_partition_info=info, revision=table.revision + 1),
    )
    if new_id != own_id:
        _swap_parent(draft, arguments, parent, own_id)
    draft.diff = SchemaDiff(
        0,
        request.action,
        request.schema_id,
        new_id,
        old_table_id=own_id,
        old_schema_id=request.schema_id,
        affected_options=[AffectedTable(arguments.pt_schema_id, arguments.pt_table_id)],
    )


def _check_partition(arguments: ExchangeArgs, parent: StoredTable) -> None:
    """SqlRefused 1735 where a job before this one has taken the partition away."""
    (found,) = definitions_named(parent, [arguments.partition_name])
    if found.id != arguments.partition_id:
        message = f"Unknown partition 'pid:{arguments.partition_id}' in table '{parent.name.original}'"
        raise SqlRefused(1735, message, "HY000")


def _fit_info(parent_id: int, partition_id: int) -> Raw:
    return Raw(
        msgspec.json.encode(
            {
                "exchange_partition_id": parent_id,
                "exchange_partition_def_id": partition_id,
                "exchange_partition_flag": False,
            }
        )
    )


def _swap_parent(draft: Draft, arguments: ExchangeArgs, parent: StoredTable, new_id: int) -> None:
    """The partitioned table with the other table's id in place of the partition's."""
    partition = partition_of(parent)
    definitions = [
        msgspec.structs.replace(one, id=new_id) if one.id == arguments.partition_id else one
        for one in partition.definitions or ()
    ]
    changed = msgspec.structs.replace(partition, definitions=definitions)
    draft.put(
        arguments.pt_schema_id,
        msgspec.structs.replace(parent, partition=changed, revision=parent.revision + 1),
    )


def _shared_counters(
    request: Request, arguments: ExchangeArgs, table: StoredTable, parent: StoredTable
) -> list[CounterChange]:
    """Both tables go on from the greater of their counters, so that no row meets another's id."""
    found = []
    for kind in dict.fromkeys((counter_kind(table), counter_kind(parent), "TARID")):
        own = (request.schema_id, table.id)
        of_parent = (arguments.pt_schema_id, arguments.pt_table_id)
        found.append(CounterChange(kind, *of_parent, 0, raise_only=True, like=own))
        found.append(CounterChange(kind, request.schema_id, arguments.partition_id, 0, raise_only=True, like=own))
        found.append(CounterChange(kind, request.schema_id, arguments.partition_id, 0, raise_only=True, like=of_parent))
    return found


REORGANIZE_MOVES: Final[Mapping[int, Move]] = {**dict.fromkeys((64, 71, 72), _reorganize), 42: _exchange}
