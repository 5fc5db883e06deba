"""Moves of columns, indexes, foreign keys and checks: the definitions after one step of a job.

    column  add     none ──► appended, gets an id      .. ──► public: moved to its position
            drop    public ──► moved last, with an origin default if NOT NULL; indexes on it alone become write-only
                    write-only ──► those indexes are removed, their keys are to be deleted
                    .. ──► none: removed

    index   add     none ──► appended, gets an id, hidden columns too     .. ──► public: sets flags of its columns
            drop    .. ──► none: removed with flags and hidden columns; its keys are to be deleted

    foreign key,    add     none ──► appended, gets an id     .. ──► public
    check           drop    public ──► write-only ──► none: removed

ADD PRIMARY KEY refuses new NULLs in its columns from write-only on; they are NOT NULL from public on.

MODIFY, CHANGE and RENAME COLUMN are of three kinds:

    same bytes      the column gets its new definition
    checked         new writes obey the new definition (no NULL, `changing_type`) while stored values are checked
    new bytes       _Col$_a_0 and _Idx$_i_0 are filled behind a and i, then the names are swapped:

        a  i  |  _Col$_a_0 _Idx$_i_0           delete-only .. write-reorg
        a  i  |  _Tombstone$_a _Tombstone$_i   the old ones, written until no node reads them
        a  i

TiDB stops writing the old column one version earlier; f1.py gives the reason for the difference.

Source: TiDB pkg/ddl/column.go (onAddColumn, onDropColumn), index.go (onCreateIndex, onDropIndex), foreign_key.go,
constraint.go, modify_column.go.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.schema.modify_kind import ModifyKind, modify_kind
from tidegate.schema.stored.arguments import (
    AddColumnArgs,
    AddForeignKeyArgs,
    AddIndexArgs,
    CheckArgs,
    CheckNameArgs,
    DropColumnArgs,
    DropForeignKeyArgs,
    DropIndexArgs,
    ModifyColumnArgs,
    PositionArgs,
)
from tidegate.schema.stored.definition import (
    KEYS,
    NOT_NULL,
    PREVENT_NULL,
    PRIMARY,
    ChangeState,
    ElementState,
    Name,
    StoredCheck,
    StoredColumn,
    StoredForeignKey,
    StoredIndex,
    StoredTable,
)
from tidegate_upstream.change.draft import (
    DeleteRange,
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
from tidegate_upstream.change.make_column import zero_default
from tidegate_upstream.change.request import Request

_NONE, _PUBLIC, _WRITE_ONLY, _DELETE_ONLY = (
    ElementState.NONE,
    ElementState.PUBLIC,
    ElementState.WRITE_ONLY,
    ElementState.DELETE_ONLY,
)


def append_column(table: StoredTable, column: StoredColumn, state: ElementState) -> StoredTable:
    """`table` with a new last column, which gets the next id."""
    columns = list(table.cols or ())
    added = msgspec.structs.replace(column, id=table.max_col_id + 1, offset=len(columns), state=state)
    return msgspec.structs.replace(table, cols=[*columns, added], max_col_id=added.id)


def column_offset(table: StoredTable, position: PositionArgs, stay: int) -> int:
    """Return the offset that a position means for a column now at `stay`; SqlRefused 1054 for an unknown AFTER."""
    if position.tp == 1:
        return 0
    if position.tp != 2 or position.relative_column is None:
        return stay
    after = column_of(table, position.relative_column.lower)
    if after is None or after.state != _PUBLIC:
        name = position.relative_column.original
        raise SqlRefused(1054, f"Unknown column '{name}' in '{table.name.original}'", "42S22")
    return after.offset if stay < after.offset else after.offset + 1


def _add(draft: Draft, request: Request, old: States, new: States) -> None:
    arguments = request.arguments
    assert isinstance(arguments, AddColumnArgs)
    table, state = draft.table(request), new["column"]
    added = column_of(table, arguments.column_info.name.lower)
    if old["column"] is _NONE:
        draft.update(request, append_column(table, arguments.column_info, state))
        return
    assert added is not None
    if state is _NONE:
        draft.update(request, with_columns(table, [column for column in table.cols or () if column is not added]))
        return
    added = msgspec.structs.replace(added, state=state)
    to = column_offset(table, arguments.position, added.offset) if state is _PUBLIC else added.offset
    draft.update(request, move_column(table, added, to))


def own_indexes(table: StoredTable, column: StoredColumn) -> list[StoredIndex]:
    """Return the indexes on that column alone."""
    return [
        index
        for index in table.index_info or ()
        if len(index.idx_cols) == 1 and index.idx_cols[0].name.lower == column.name.lower
    ]


def check_uncovered(table: StoredTable, column: StoredColumn) -> None:
    """Raise SqlRefused 8200 for a column of the primary key, or of an index with other columns."""
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
    dropped = column_of(table, arguments.column_name.lower)
    if dropped is None:
        name = arguments.column_name.original
        raise SqlRefused(1091, f"Can't DROP '{name}'; check that column/key exists", "42000")
    if state is _WRITE_ONLY:
        check_uncovered(table, dropped)
    for index in own_indexes(table, dropped):
        if state is _WRITE_ONLY:
            table = with_index(table, msgspec.structs.replace(index, state=state))
        else:
            table = without_index(table, index)
            draft.ranges += [DeleteRange(physical, index.id) for physical in table.physical_ids]
    dropped = column_of(table, dropped.name.lower)
    assert dropped is not None
    if state is _NONE:
        draft.update(request, with_columns(table, [column for column in table.cols or () if column is not dropped]))
        return
    dropped = msgspec.structs.replace(dropped, state=state)
    if state is _WRITE_ONLY and dropped.type.flag & NOT_NULL and dropped.origin_default is None:
        dropped = msgspec.structs.replace(dropped, origin_default=zero_default(dropped))
    last = len(table.cols or ()) - 1
    draft.update(request, move_column(table, dropped, last if state in (_WRITE_ONLY, _DELETE_ONLY) else dropped.offset))


COLUMN_MOVES: Final[Mapping[int, Move]] = {5: _add, 6: _drop}


_T = TypeVar("_T", bound=StoredCheck | StoredForeignKey)


def _name(item: StoredCheck | StoredForeignKey) -> str:
    return item.fk_name.lower if isinstance(item, StoredForeignKey) else item.constraint_name.lower


def _appended(items: list[_T], new: _T, last_id: int, state: ElementState, refused: SqlRefused) -> list[_T]:
    """Return `items` with `new` and the next id; raises `refused` for a duplicate name."""
    if any(_name(item) == _name(new) for item in items):
        raise refused
    return [*items, msgspec.structs.replace(new, id=last_id + 1, state=int(state))]


def _moved(items: list[_T], name: Name, state: ElementState, refused: SqlRefused | None = None) -> list[_T]:
    """Return `items` with the named one in `state`, or removed; raises `refused` if there is none."""
    if refused is not None and all(_name(item) != name.lower for item in items):
        raise refused
    if state is ElementState.NONE:
        return [item for item in items if _name(item) != name.lower]
    return [msgspec.structs.replace(item, state=int(state)) if _name(item) == name.lower else item for item in items]


def _add_key(draft: Draft, request: Request, old: States, new: States) -> None:
    assert isinstance(request.arguments, AddForeignKeyArgs)
    key, table, state = request.arguments.fk_info, draft.table(request), new["foreign key"]
    keys, most = table.fk_info or [], table.max_fk_id
    if old["foreign key"] is ElementState.NONE:
        message = f"Duplicate foreign key constraint name '{key.fk_name.original}'"
        keys, most = _appended(keys, key, most, state, SqlRefused(1826, message, "HY000")), most + 1
    else:
        keys = _moved(keys, key.fk_name, state)
    draft.update(request, msgspec.structs.replace(table, fk_info=keys, max_fk_id=most))


def _drop_key(draft: Draft, request: Request, _old: States, new: States) -> None:
    assert isinstance(request.arguments, DropForeignKeyArgs)
    name, table = request.arguments.fk_name, draft.table(request)
    refused = SqlRefused(1091, f"Can't DROP '{name.original}'; check that column/key exists", "42000")
    keys = _moved(table.fk_info or [], name, new["foreign key"], refused)
    draft.update(request, msgspec.structs.replace(table, fk_info=keys))


def _add_check(draft: Draft, request: Request, old: States, new: States) -> None:
    assert isinstance(request.arguments, CheckArgs)
    check, table, state = request.arguments.constraint_info, draft.table(request), new["check"]
    checks, most = table.constraint_info or [], table.max_cst_id
    if old["check"] is ElementState.NONE:
        message = f"Duplicate check constraint name '{check.constraint_name.original}'."
        checks, most = _appended(checks, check, most, state, SqlRefused(3822, message, "HY000")), most + 1
    else:
        checks = _moved(checks, check.constraint_name, state)
    draft.update(request, msgspec.structs.replace(table, constraint_info=checks, max_cst_id=most))


def _drop_check(draft: Draft, request: Request, _old: States, new: States) -> None:
    assert isinstance(request.arguments, CheckNameArgs)
    name, table = request.arguments.constraint_name, draft.table(request)
    refused = SqlRefused(3940, f"Constraint '{name.original}' does not exist.", "HY000")
    checks = _moved(table.constraint_info or [], name, new["check"], refused)
    draft.update(request, msgspec.structs.replace(table, constraint_info=checks))


CONSTRAINT_MOVES: Final[Mapping[int, Move]] = {9: _add_key, 10: _drop_key, 43: _add_check, 44: _drop_check}


def append_index(table: StoredTable, index: StoredIndex, state: ElementState) -> StoredTable:
    """`table` with a new last index, which gets the next id; SqlRefused 1072 for an unknown column."""
    parts = []
    for part in index.idx_cols:
        column = column_of(table, part.name.lower)
        if column is None:
            raise SqlRefused(1072, f"column does not exist: {part.name.original}", "42000")
        parts.append(msgspec.structs.replace(part, name=column.name, offset=column.offset))
    added = msgspec.structs.replace(index, id=table.max_idx_id + 1, idx_cols=parts, state=state)
    return with_index(msgspec.structs.replace(table, max_idx_id=added.id), added)


def _index_add(draft: Draft, request: Request, old: States, new: States) -> None:
    arguments = request.arguments
    assert isinstance(arguments, AddIndexArgs)
    table, state, added = draft.table(request), new["index"], arguments.index
    if old["index"] is _NONE:
        for column in arguments.hidden:
            table = append_column(table, column, state)
        draft.update(request, append_index(table, added, state))
        return
    index = index_of(table, added.idx_name.lower)
    assert index is not None
    if added.is_primary and old["not null"] is not new["not null"]:
        table = _with_not_null(table, index, new["not null"])
    if state is _NONE:
        table = without_index(table, index)
        table = _without_hidden(table, index)
        draft.ranges += [DeleteRange(physical, index.id) for physical in table.physical_ids]
    else:
        table = with_index(table, msgspec.structs.replace(index, state=state))
        for hidden in arguments.hidden:
            own = column_of(table, hidden.name.lower)
            assert own is not None
            table = move_column(table, msgspec.structs.replace(own, state=state), own.offset)
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
    names = {part.name.lower for part in index.idx_cols}
    used = {part.name.lower for other in table.index_info or () for part in other.idx_cols}
    rest = [c for c in table.cols or () if not (c.hidden and c.name.lower in names - used)]
    return with_columns(table, rest)


def _index_drop(draft: Draft, request: Request, _old: States, new: States) -> None:
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


INDEX_MOVES: Final[Mapping[int, Move]] = {7: _index_add, 32: _index_add, 8: _index_drop, 33: _index_drop}


def changing_name(name: str) -> str:
    """Return the name of the hidden column that replaces column `name`."""
    return f"_Col$_{name}_0"


def _copy_name(name: str) -> str:
    return f"_Idx$_{name}_0"


def tombstone_name(name: str) -> str:
    """Return the name of a column or index that the new one has replaced."""
    return f"_Tombstone$_{name}"


def _arguments(request: Request) -> ModifyColumnArgs:
    assert isinstance(request.arguments, ModifyColumnArgs)
    return request.arguments


def _find(table: StoredTable, name: Name) -> StoredColumn:
    column = column_of(table, name.lower)
    if column is None:
        raise SqlRefused(1054, f"Unknown column '{name.original}' in '{table.name.original}'", "42S22")
    return column


def _replaced(table: StoredTable, old: StoredColumn, arguments: ModifyColumnArgs) -> StoredTable:
    new = arguments.column
    column = msgspec.structs.replace(
        new,
        id=old.id,
        state=_PUBLIC,
        origin_default=old.origin_default,
        origin_default_bit=old.origin_default_bit,
        type=msgspec.structs.replace(new.type, flag=new.type.flag | (old.type.flag & KEYS)),
    )
    table = move_column(table, column, column_offset(table, arguments.position, old.offset))
    return _renamed(table, old.name, new.name)


def _renamed(table: StoredTable, old: Name, new: Name) -> StoredTable:
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
    """Return the column to change; SqlRefused 8200 if earlier jobs changed it to need more than was planned."""
    column = _find(table, arguments.old_column_name)
    if modify_kind(table, column, arguments.column) > arguments.kind:
        raise SqlRefused(8200, f"Unsupported modify column: '{column.name.original}' has changed meanwhile; retry")
    return column


def _lossless(draft: Draft, request: Request, _old: States, _new: States) -> None:
    table, arguments = draft.table(request), _arguments(request)
    draft.update(request, _replaced(table, _planned(table, arguments), arguments))


def _checked(draft: Draft, request: Request, _old: States, new: States) -> None:
    arguments, table = _arguments(request), draft.table(request)
    column = _find(table, arguments.old_column_name)
    state = new["not null"]
    if state is _PUBLIC:
        draft.update(request, _replaced(table, column, arguments))
        return
    column = _unguarded(column) if state is _NONE else guarded(_planned(table, arguments), arguments.column)
    draft.update(request, move_column(table, column, column.offset))


def guarded(old: StoredColumn, new: StoredColumn) -> StoredColumn:
    """Return `old` with the restriction that new values must fit `new` as well."""
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
    """Raise SqlRefused 8200 for a conversion that could change stored values unnoticed."""
    if table.partition is not None:
        raise SqlRefused(8200, "Unsupported modify column: table is partition table", "HY000")
    if old.type.flag & PRIMARY:
        raise SqlRefused(8200, "Unsupported modify column: this column has primary key flag", "HY000")
    if old.generated_expr_string or any(old.name.lower in (column.dependences or ()) for column in table.cols or ()):
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
    """`table` with the new column and its indexes under the names and offsets of the old ones."""
    old = _find(table, arguments.old_column_name)
    growing = column_of(table, changing_name(arguments.column.name.original))
    assert growing is not None
    pairs = copied_indexes(table, arguments.old_column_name.lower)
    offset, last = old.offset, growing.offset
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
    columns[offset], columns[last] = grown, gone
    table = with_columns(table, columns)
    table = move_column(table, (table.cols or [])[last], len(columns) - 1)
    table = move_column(table, (table.cols or [])[offset], column_offset(table, arguments.position, offset))
    return _with_swapped_indexes(table, pairs, new["old index"])


def _with_swapped_indexes(
    table: StoredTable, pairs: list[tuple[StoredIndex, StoredIndex]], state: ElementState
) -> StoredTable:
    indexes = {index.id: index for index in table.index_info or ()}
    order = [index.id for index in table.index_info or ()]
    for old, copy in pairs:
        position, other = order.index(old.id), order.index(copy.id)
        order[position], order[other] = copy.id, old.id
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
