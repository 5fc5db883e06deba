"""ADD COLUMN and DROP COLUMN, one state further.

    add     none ──► appended, gets its id      .. ──► public: to its place
    drop    public ──► last, with an origin default if NOT NULL; indexes on it alone write-only
            write-only ──► last again; those indexes go, their keys are to be deleted
            .. ──► none: gone

Source: TiDB pkg/ddl/column.go (onAddColumn, onDropColumn).
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.schema.stored.arguments import AddColumnArgs, DropColumnArgs, PositionArgs
from tidegate.schema.stored.definition import StoredColumn, StoredIndex, StoredTable
from tidegate.schema.stored.flags import NOT_NULL, PRIMARY
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.change.draft import (
    Draft,
    Move,
    States,
    column_of,
    move_column,
    with_columns,
    with_index,
    without_index,
)
from tidegate_upstream.change.make.column import zero_default
from tidegate_upstream.change.outcome import DeleteRange
from tidegate_upstream.change.request import Request

_NONE, _PUBLIC, _WRITE_ONLY, _DELETE_ONLY = (
    ElementState.NONE,
    ElementState.PUBLIC,
    ElementState.WRITE_ONLY,
    ElementState.DELETE_ONLY,
)


def append_column(table: StoredTable, column: StoredColumn, state: ElementState) -> StoredTable:
    """`table` with a new column, last, with the next id."""
    columns = list(table.cols or ())
    added = msgspec.structs.replace(column, id=table.max_col_id + 1, offset=len(columns), state=state)
    return msgspec.structs.replace(table, cols=[*columns, added], max_col_id=added.id)


def place_of(table: StoredTable, place: PositionArgs, stay: int) -> int:
    """Return the offset that a position means for a column that is at `stay`; SqlRefused 1054 for an unknown AFTER."""
    if place.tp == 1:
        return 0
    if place.tp != 2 or place.relative_column is None:
        return stay
    after = column_of(table, place.relative_column.lower)
    if after is None or after.state != _PUBLIC:
        name = place.relative_column.original
        raise SqlRefused(1054, f"Unknown column '{name}' in '{table.name.original}'", "42S22")
    return after.offset if stay < after.offset else after.offset + 1


def _add(draft: Draft, request: Request, old: States, new: States) -> None:
    arguments = request.arguments
    assert isinstance(arguments, AddColumnArgs)
    table, state = draft.table(request), new["column"]
    found = column_of(table, arguments.column_info.name.lower)
    if old["column"] is _NONE:
        draft.update(request, append_column(table, arguments.column_info, state))
        return
    assert found is not None
    if state is _NONE:
        draft.update(request, with_columns(table, [column for column in table.cols or () if column is not found]))
        return
    found = msgspec.structs.replace(found, state=state)
    to = place_of(table, arguments.position, found.offset) if state is _PUBLIC else found.offset
    draft.update(request, move_column(table, found, to))


def own_indexes(table: StoredTable, column: StoredColumn) -> list[StoredIndex]:
    """Return the indexes on that column alone."""
    return [
        index
        for index in table.index_info or ()
        if len(index.idx_cols) == 1 and index.idx_cols[0].name.lower == column.name.lower
    ]


def check_uncovered(table: StoredTable, column: StoredColumn) -> None:
    """SqlRefused 8200 for a column that cannot go alone: of the primary key, or of an index with others."""
    covering = [
        index
        for index in table.index_info or ()
        if (len(index.idx_cols) > 1 or index.is_primary)
        and any(part.name.lower == column.name.lower for part in index.idx_cols)
    ]
    if covering or (table.pk_is_handle and column.type.flag & PRIMARY):
        name = column.name.original
        message = f"Unsupported drop column '{name}' with composite index covered or Primary Key covered now"
        raise SqlRefused(8200, message, "HY000")


def _drop(draft: Draft, request: Request, _old: States, new: States) -> None:
    arguments = request.arguments
    assert isinstance(arguments, DropColumnArgs)
    table, state = draft.table(request), new["column"]
    found = column_of(table, arguments.column_name.lower)
    if found is None:
        name = arguments.column_name.original
        raise SqlRefused(1091, f"Can't DROP '{name}'; check that column/key exists", "42000")
    if state is _WRITE_ONLY:
        check_uncovered(table, found)
    for index in own_indexes(table, found):
        if state is _WRITE_ONLY:
            table = with_index(table, msgspec.structs.replace(index, state=state))
        else:
            table = without_index(table, index)
            draft.ranges += [DeleteRange(physical, index.id) for physical in table.physical_ids]
    found = column_of(table, found.name.lower)
    assert found is not None
    if state is _NONE:
        draft.update(request, with_columns(table, [column for column in table.cols or () if column is not found]))
        return
    found = msgspec.structs.replace(found, state=state)
    if state is _WRITE_ONLY and found.type.flag & NOT_NULL and found.origin_default is None:
        found = msgspec.structs.replace(found, origin_default=zero_default(found))
    last = len(table.cols or ()) - 1
    draft.update(request, move_column(table, found, last if state in (_WRITE_ONLY, _DELETE_ONLY) else found.offset))


COLUMN_MOVES: Final[Mapping[int, Move]] = {5: _add, 6: _drop}
