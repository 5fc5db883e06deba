"""ADD and DROP of indexes and primary keys, one state further.

    add     none ──► appended, gets its id, its expressions' columns too     .. ──► public: flag bits on its columns
    add PK  write-only also keeps new NULLs out of its columns, which are NOT NULL from public on
    drop    .. ──► none: gone, flag bits and hidden columns with it; its keys are to be deleted

Source: TiDB pkg/ddl/index.go (onCreateIndex, onDropIndex).
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.schema.stored.arguments import AddIndexArgs, DropIndexArgs
from tidegate.schema.stored.definition import StoredIndex, StoredTable
from tidegate.schema.stored.flags import NOT_NULL, PREVENT_NULL
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.change.draft import (
    Draft,
    Move,
    States,
    column_of,
    index_of,
    move_column,
    with_columns,
    with_flag,
    with_index,
    with_index_flags,
    without_index,
)
from tidegate_upstream.change.move.column import append_column
from tidegate_upstream.change.outcome import DeleteRange
from tidegate_upstream.change.request import Request

_NONE, _PUBLIC, _WRITE_ONLY = ElementState.NONE, ElementState.PUBLIC, ElementState.WRITE_ONLY


def append_index(table: StoredTable, index: StoredIndex, state: ElementState) -> StoredTable:
    """`table` with a new index, last, with the next id; SqlRefused 1072 where it names a column that is not there."""
    parts = []
    for part in index.idx_cols:
        column = column_of(table, part.name.lower)
        if column is None:
            raise SqlRefused(1072, f"column does not exist: {part.name.original}", "42000")
        parts.append(msgspec.structs.replace(part, name=column.name, offset=column.offset))
    added = msgspec.structs.replace(index, id=table.max_idx_id + 1, idx_cols=parts, state=state)
    return with_index(msgspec.structs.replace(table, max_idx_id=added.id), added)


def _add(draft: Draft, request: Request, old: States, new: States) -> None:
    arguments = request.arguments
    assert isinstance(arguments, AddIndexArgs)
    table, state, wanted = draft.table(request), new["index"], arguments.index
    if old["index"] is _NONE:
        for column in arguments.hidden:
            table = append_column(table, column, state)
        draft.update(request, append_index(table, wanted, state))
        return
    index = index_of(table, wanted.idx_name.lower)
    assert index is not None
    if wanted.is_primary and old["not null"] is not new["not null"]:
        table = _with_not_null(table, index, new["not null"])
    if state is _NONE:
        table = without_index(table, index)
        table = _without_hidden(table, index)
        draft.ranges += [DeleteRange(physical, index.id) for physical in table.physical_ids]
    else:
        table = with_index(table, msgspec.structs.replace(index, state=state))
        for hidden in arguments.hidden:
            found = column_of(table, hidden.name.lower)
            assert found is not None
            table = move_column(table, msgspec.structs.replace(found, state=state), found.offset)
        if state is _PUBLIC:
            table = with_index_flags(table, index)
    draft.update(request, table)


def _with_not_null(table: StoredTable, index: StoredIndex, state: ElementState) -> StoredTable:
    """`table` with the columns of a primary key kept free of NULL as `state` wants it."""
    columns = table.cols or []
    offsets = [part.offset for part in index.idx_cols]
    if state is _PUBLIC:
        return with_flag(table, offsets, add=NOT_NULL, remove=PREVENT_NULL)
    if state is _NONE:
        return with_flag(table, offsets, remove=PREVENT_NULL)
    if state is _WRITE_ONLY:
        nullable = [offset for offset in offsets if not columns[offset].type.flag & NOT_NULL]
        return with_flag(table, nullable, add=PREVENT_NULL)
    return table


def _without_hidden(table: StoredTable, index: StoredIndex) -> StoredTable:
    """`table` without the hidden columns that only `index` had."""
    names = {part.name.lower for part in index.idx_cols}
    used = {part.name.lower for other in table.index_info or () for part in other.idx_cols}
    rest = [c for c in table.cols or () if not (c.hidden and c.name.lower in names - used)]
    return with_columns(table, rest)


def _drop(draft: Draft, request: Request, _old: States, new: States) -> None:
    arguments = request.arguments
    assert isinstance(arguments, DropIndexArgs)
    table, state = draft.table(request), new["index"]
    index = index_of(table, arguments.index_name.lower)
    if index is None:
        name = arguments.index_name.original
        raise SqlRefused(1091, f"Can't DROP '{name}'; check that column/key exists", "42000")
    if state is not _NONE:
        draft.update(request, with_index(table, msgspec.structs.replace(index, state=state)))
        return
    draft.ranges += [DeleteRange(physical, index.id) for physical in table.physical_ids]
    draft.update(request, _without_hidden(without_index(table, index), index))


INDEX_MOVES: Final[Mapping[int, Move]] = {7: _add, 32: _add, 8: _drop, 33: _drop}
