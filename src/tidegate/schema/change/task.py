"""The work of a step: which elements are to be filled or looked at before the next one.

    TASKS[action](request, table) -> Task      for the steps whose `work` is BACKFILL or VALIDATE

Source: TiDB pkg/ddl/backfilling.go, partition.go, modify_column.go.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import UNSET

from tidegate.schema.change.arguments import AddIndexArgs, ExchangeArgs, ModifyColumnArgs
from tidegate.schema.change.draft import column_of, index_of
from tidegate.schema.change.flags import PREVENT_NULL
from tidegate.schema.change.move.modify import changing_name, copied_indexes
from tidegate.schema.change.move.partition import partition_of
from tidegate.schema.change.outcome import Task
from tidegate.schema.change.request import ModifyKind, Request
from tidegate.schema.f1 import Work
from tidegate.schema.stored.definition import StoredTable


def _add_index(request: Request, table: StoredTable) -> Task:
    assert isinstance(request.arguments, AddIndexArgs)
    index = index_of(table, request.arguments.index.idx_name.lower)
    assert index is not None
    columns = table.cols or []
    checked = [columns[part.offset] for part in index.idx_cols] if index.is_primary else []
    return Task(
        Work.BACKFILL,
        "index",
        request.schema_id,
        table.id,
        indexes=(index.id,),
        not_null=tuple(column.id for column in checked if column.type.flag & PREVENT_NULL),
    )


def _modify(request: Request, table: StoredTable) -> Task:
    arguments = request.arguments
    assert isinstance(arguments, ModifyColumnArgs)
    old = column_of(table, arguments.old_column_name.lower)
    assert old is not None
    if arguments.kind == ModifyKind.CHECKED:
        return Task(
            Work.VALIDATE,
            "not null",
            request.schema_id,
            table.id,
            not_null=(old.id,) if old.type.flag & PREVENT_NULL else (),
            fit=() if old.changing_type is UNSET else (old.id,),
        )
    growing = column_of(table, changing_name(arguments.column.name.original))
    assert growing is not None
    return Task(
        Work.BACKFILL,
        "new column",
        request.schema_id,
        table.id,
        indexes=tuple(copy.id for _, copy in copied_indexes(table, arguments.old_column_name.lower)),
        columns={growing.id: old.id},
    )


def _copy_rows(request: Request, table: StoredTable) -> Task:
    partition = partition_of(table)
    return Task(
        Work.BACKFILL,
        "new rows",
        request.schema_id,
        table.id,
        partitions=tuple(one.id for one in partition.dropping_definitions or ()),
        targets=tuple(one.id for one in partition.adding_definitions or ()),
    )


def _exchange(request: Request, table: StoredTable) -> Task:
    arguments = request.arguments
    assert isinstance(arguments, ExchangeArgs)
    return Task(
        Work.VALIDATE if arguments.with_validation else Work.NOTHING,
        "rows fit",
        request.schema_id,
        table.id,
        partitions=(arguments.partition_id,),
        targets=(arguments.pt_table_id,),
    )


TASKS: Final[Mapping[int, Callable[[Request, StoredTable], Task]]] = {
    7: _add_index,
    32: _add_index,
    12: _modify,
    42: _exchange,
    **dict.fromkeys((64, 71, 72), _copy_rows),
}
