"""MODIFY, CHANGE and RENAME COLUMN.

    same bytes      the column gets its new definition
    checked         new writes obey the new definition (no NULL, `changing_type`) while stored values are looked at
    new bytes       _Col$_a_0 and _Idx$_i_0 grow behind a and i; then they change names with them:

        a  i  |  _Col$_a_0 _Idx$_i_0        delete-only .. write-reorg
        a  i  |  _Tombstone$_a _Tombstone$_i   the old ones, written on until nobody reads them
        a  i

Source: TiDB pkg/ddl/modify_column.go, which stops writing the old column one version earlier (see f1_operations.py).
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.schema.modify_kind import ModifyKind, modify_kind
from tidegate.schema.stored.arguments import ModifyColumnArgs
from tidegate.schema.stored.definition import ChangeState, Name, StoredColumn, StoredIndex, StoredTable
from tidegate.schema.stored.flags import KEYS, NOT_NULL, PREVENT_NULL, PRIMARY
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.change.draft import (
    Draft,
    Move,
    States,
    column_of,
    index_of,
    move_column,
    with_columns,
    with_index,
)
from tidegate_upstream.change.move.column import append_column, place_of
from tidegate_upstream.change.outcome import DeleteRange
from tidegate_upstream.change.request import Request

_NONE, _PUBLIC = ElementState.NONE, ElementState.PUBLIC


def changing_name(name: str) -> str:
    """Return the name of the column that grows behind column `name`."""
    return f"_Col$_{name}_0"


def _copy_name(name: str) -> str:
    """The name of the copy of index `name`."""
    return f"_Idx$_{name}_0"


def tombstone_name(name: str) -> str:
    """Return the name of a column or index that the new one has replaced."""
    return f"_Tombstone$_{name}"


def _arguments(request: Request) -> ModifyColumnArgs:
    assert isinstance(request.arguments, ModifyColumnArgs)
    return request.arguments


def _find(table: StoredTable, name: Name) -> StoredColumn:
    found = column_of(table, name.lower)
    if found is None:
        raise SqlRefused(1054, f"Unknown column '{name.original}' in '{table.name.original}'", "42S22")
    return found


def _replaced(table: StoredTable, old: StoredColumn, arguments: ModifyColumnArgs) -> StoredTable:
    """`table` with the new definition in place of `old`: same id, same keys."""
    new = arguments.column
    column = msgspec.structs.replace(
        new,
        id=old.id,
        state=_PUBLIC,
        origin_default=old.origin_default,
        origin_default_bit=old.origin_default_bit,
        type=msgspec.structs.replace(new.type, flag=new.type.flag | (old.type.flag & KEYS)),
    )
    table = move_column(table, column, place_of(table, arguments.position, old.offset))
    return _renamed(table, old.name, new.name)


def _renamed(table: StoredTable, old: Name, new: Name) -> StoredTable:
    """`table` with the column's new name in its foreign keys and its partitioning."""
    if old.original == new.original:
        return table
    keys = table.fk_info or ()
    if any(name.lower == old.lower for key in keys for name in key.cols):
        keys = [
            msgspec.structs.replace(key, cols=[new if name.lower == old.lower else name for name in key.cols])
            for key in keys
        ]
        table = msgspec.structs.replace(table, fk_info=keys)
    partition = table.partition
    if partition is None or not partition.columns:
        return table
    columns = [new if name.lower == old.lower else name for name in partition.columns]
    return msgspec.structs.replace(table, partition=msgspec.structs.replace(partition, columns=columns))


def _planned(table: StoredTable, arguments: ModifyColumnArgs) -> StoredColumn:
    """The column to change; SqlRefused 8200 where jobs in between have made it one that needs more than was planned."""
    found = _find(table, arguments.old_column_name)
    if modify_kind(table, found, arguments.column) > arguments.kind:
        raise SqlRefused(8200, f"Unsupported modify column: '{found.name.original}' has changed meanwhile; ask again")
    return found


def _lossless(draft: Draft, request: Request, _old: States, _new: States) -> None:
    table, arguments = draft.table(request), _arguments(request)
    draft.update(request, _replaced(table, _planned(table, arguments), arguments))


def _checked(draft: Draft, request: Request, _old: States, new: States) -> None:
    arguments, table = _arguments(request), draft.table(request)
    found = _find(table, arguments.old_column_name)
    state = new["not null"]
    if state is _PUBLIC:
        draft.update(request, _replaced(table, found, arguments))
        return
    found = _unguarded(found) if state is _NONE else guarded(_planned(table, arguments), arguments.column)
    draft.update(request, move_column(table, found, found.offset))


def guarded(old: StoredColumn, new: StoredColumn) -> StoredColumn:
    """`old` while its new values must obey `new` as well."""
    kind = old.type
    if not kind.flag & NOT_NULL and new.type.flag & NOT_NULL:
        kind = msgspec.structs.replace(kind, flag=kind.flag | PREVENT_NULL)
    narrower = (old.type.tp, old.type.flen) != (new.type.tp, new.type.flen)
    changing = msgspec.structs.replace(new.type, flag=new.type.flag | (old.type.flag & KEYS))
    return msgspec.structs.replace(old, type=kind, changing_type=changing if narrower else msgspec.UNSET)


def _unguarded(column: StoredColumn) -> StoredColumn:
    kind = msgspec.structs.replace(column.type, flag=column.type.flag & ~PREVENT_NULL)
    return msgspec.structs.replace(column, type=kind, changing_type=msgspec.UNSET)


def copied_indexes(table: StoredTable, name: str) -> list[tuple[StoredIndex, StoredIndex]]:
    """Return the (index, its copy or tombstone) pairs of column `name` while it changes."""
    pairs = []
    for index in table.index_info or ():
        for other in (_copy_name(index.idx_name.original), tombstone_name(index.idx_name.original)):
            copy = index_of(table, other)
            if copy is not None and any(part.name.lower == lowered(name) for part in index.idx_cols):
                pairs.append((index, copy))
    return pairs


def check_lossy(table: StoredTable, old: StoredColumn) -> None:
    """SqlRefused 8200 where values cannot be converted behind the users' backs."""
    if table.partition is not None:
        raise SqlRefused(8200, "Unsupported modify column: table is partition table", "HY000")
    if old.type.flag & PRIMARY:
        raise SqlRefused(8200, "Unsupported modify column: this column has primary key flag", "HY000")
    if old.generated_expr_string or any(old.name.lower in (one.dependences or ()) for one in table.cols or ()):
        message = "Unsupported modify column: oldCol is referenced by a generated column or is one"
        raise SqlRefused(8200, message, "HY000")


def _lossy(draft: Draft, request: Request, old: States, new: States) -> None:
    table = draft.table(request)
    state = new["new column"]
    if old["new column"] is _NONE:
        table = _grow(table, _arguments(request), state)
    elif state is _NONE:
        table = _shrink(draft, table, _arguments(request))
    elif old["new column"] is not _PUBLIC and state is _PUBLIC:
        table = _swap(table, _arguments(request), new)
    elif state is _PUBLIC:
        table = _fade(draft, table, _arguments(request), new)
    else:
        table = _advance(table, _arguments(request), state)
    draft.update(request, table)


def _grow(table: StoredTable, arguments: ModifyColumnArgs, state: ElementState) -> StoredTable:
    """`table` with the new column and copies of the old one's indexes."""
    old = _find(table, arguments.old_column_name)
    check_lossy(table, old)
    name = Name.of(changing_name(arguments.column.name.original))
    if not old.type.flag & NOT_NULL and arguments.column.type.flag & NOT_NULL:
        kind = msgspec.structs.replace(old.type, flag=old.type.flag | PREVENT_NULL)
        table = move_column(table, msgspec.structs.replace(old, type=kind), old.offset)
    column = arguments.column
    kind = msgspec.structs.replace(column.type, flag=column.type.flag | (old.type.flag & KEYS))
    column = msgspec.structs.replace(column, name=name, type=kind, change_state_info=ChangeState(old.offset))
    table = append_column(table, column, state)
    added = (table.cols or [])[-1]
    for index in list(table.index_info or ()):
        if all(part.offset != old.offset for part in index.idx_cols):
            continue
        parts = [
            msgspec.structs.replace(part, name=name, offset=added.offset) if part.offset == old.offset else part
            for part in index.idx_cols
        ]
        copy = msgspec.structs.replace(
            index,
            id=table.max_idx_id + 1,
            idx_name=Name.of(_copy_name(index.idx_name.original)),
            idx_cols=parts,
            state=state,
        )
        table = with_index(msgspec.structs.replace(table, max_idx_id=copy.id), copy)
    return table


def _advance(table: StoredTable, arguments: ModifyColumnArgs, state: ElementState) -> StoredTable:
    """`table` with the new column and indexes one state further."""
    growing = column_of(table, changing_name(arguments.column.name.original))
    assert growing is not None
    table = move_column(table, msgspec.structs.replace(growing, state=state), growing.offset)
    for _, copy in copied_indexes(table, arguments.old_column_name.lower):
        table = with_index(table, msgspec.structs.replace(copy, state=state))
    return table


def _shrink(draft: Draft, table: StoredTable, arguments: ModifyColumnArgs) -> StoredTable:
    """`table` as it was before the change."""
    growing = column_of(table, changing_name(arguments.column.name.original))
    assert growing is not None
    copies = {copy.id for _, copy in copied_indexes(table, arguments.old_column_name.lower)}
    draft.ranges += [DeleteRange(physical, index_id) for index_id in copies for physical in table.physical_ids]
    indexes = [index for index in table.index_info or () if index.id not in copies]
    table = msgspec.structs.replace(table, index_info=indexes if table.index_info is not None else None)
    table = with_columns(table, [column for column in table.cols or () if column.id != growing.id])
    old = _unguarded(_find(table, arguments.old_column_name))
    return move_column(table, old, old.offset)


def _swap(table: StoredTable, arguments: ModifyColumnArgs, new: States) -> StoredTable:
    """`table` where the new column and its indexes have the names and places of the old ones."""
    old = _find(table, arguments.old_column_name)
    growing = column_of(table, changing_name(arguments.column.name.original))
    assert growing is not None
    pairs = copied_indexes(table, arguments.old_column_name.lower)
    place, last = old.offset, growing.offset
    grown = msgspec.structs.replace(
        growing,
        name=arguments.column.name,
        state=_PUBLIC,
        origin_default=None,
        origin_default_bit=None,
        change_state_info=None,
    )
    gone = msgspec.structs.replace(
        old,
        name=Name.of(tombstone_name(arguments.column.name.original)),
        state=new["old column"],
        change_state_info=ChangeState(last),
    )
    columns = list(table.cols or ())
    columns[place], columns[last] = grown, gone
    table = with_columns(table, columns)
    table = move_column(table, (table.cols or [])[last], len(columns) - 1)
    table = move_column(table, (table.cols or [])[place], place_of(table, arguments.position, place))
    return _with_swapped_indexes(table, pairs, new["old index"])


def _with_swapped_indexes(
    table: StoredTable, pairs: list[tuple[StoredIndex, StoredIndex]], state: ElementState
) -> StoredTable:
    indexes = {index.id: index for index in table.index_info or ()}
    order = [index.id for index in table.index_info or ()]
    for old, copy in pairs:
        at, other = order.index(old.id), order.index(copy.id)
        order[at], order[other] = copy.id, old.id
        name = old.idx_name
        indexes[copy.id] = msgspec.structs.replace(indexes[copy.id], idx_name=name, state=_PUBLIC)
        indexes[old.id] = msgspec.structs.replace(
            indexes[old.id], idx_name=Name.of(tombstone_name(name.original)), state=state
        )
    return msgspec.structs.replace(table, index_info=[indexes[i] for i in order]) if pairs else table


def _fade(draft: Draft, table: StoredTable, arguments: ModifyColumnArgs, new: States) -> StoredTable:
    """`table` with the old column and its indexes one state further, or without them."""
    gone = column_of(table, tombstone_name(arguments.column.name.original))
    assert gone is not None
    ids = {index.id for _, index in copied_indexes(table, arguments.column.name.lower)}
    if new["old column"] is not _NONE:
        for index in list(table.index_info or ()):
            if index.id in ids:
                table = with_index(table, msgspec.structs.replace(index, state=new["old index"]))
        return move_column(table, msgspec.structs.replace(gone, state=new["old column"]), gone.offset)
    draft.ranges += [DeleteRange(physical, index_id) for index_id in sorted(ids) for physical in table.physical_ids]
    indexes = [index for index in table.index_info or () if index.id not in ids]
    table = msgspec.structs.replace(table, index_info=indexes if table.index_info is not None else None)
    return with_columns(table, [column for column in table.cols or () if column.id != gone.id])


_KINDS: Final[Mapping[int, Move]] = {
    ModifyKind.LOSSLESS: _lossless,
    ModifyKind.CHECKED: _checked,
    ModifyKind.LOSSY: _lossy,
}


def _modify(draft: Draft, request: Request, old: States, new: States) -> None:
    _KINDS[_arguments(request).kind](draft, request, old, new)


MODIFY_MOVES: Final[Mapping[int, Move]] = {12: _modify}
