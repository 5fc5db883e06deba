"""Which parts of one ALTER TABLE may be one job: no two change the same thing, none uses what another changes.

    part                  changes                              uses
    ADD COLUMN c AFTER b  c                                    b
    DROP COLUMN c         c, the indexes on c alone
    MODIFY COLUMN c       c; with new bytes, its indexes too   the column after which it goes
    ADD INDEX i (a, b)    i                                    a, b
    RENAME INDEX i TO j   i, j

Source: TiDB pkg/ddl/multi_schema_change.go (fillMultiSchemaInfo, checkOperateSameColAndIdx).
"""

from collections.abc import Iterator, Sequence
from typing import Final

from tidegate.model.errors import SqlRefused
from tidegate.schema.change.alteration import AlterPart
from tidegate.schema.change.arguments import (
    AddColumnArgs,
    AddIndexArgs,
    DropColumnArgs,
    DropIndexArgs,
    ModifyColumnArgs,
    PositionArgs,
    RenameIndexArgs,
    SetDefaultArgs,
    VisibilityArgs,
)
from tidegate.schema.change.draft import column_of
from tidegate.schema.change.move.column import own_indexes
from tidegate.schema.change.request import ModifyKind
from tidegate.schema.stored.definition import StoredTable

__all__ = ["check_multi_schema"]

_TOGETHER: Final = frozenset({5, 6, 7, 8, 9, 12, 13, 15, 17, 18, 22, 32, 33, 41})
"""Actions that may be parts of a multi-schema change."""


def check_multi_schema(table: StoredTable, parts: Sequence[AlterPart]) -> None:
    """SqlRefused 8200 where parts of a change of `table` cannot be one job."""
    alone = next((part for part in parts if part.action not in _TOGETHER), None)
    if alone is not None:
        raise SqlRefused(8200, f"Unsupported multi schema change for action {alone.action}", "HY000")
    changed: set[str] = set()
    indexes: set[str] = set()
    for part in parts:
        columns, own = set(_columns(part)), set(_indexes(table, part))
        _refuse("column", columns & changed)
        _refuse("index", own & indexes)
        changed |= columns
        indexes |= own
    for place, part in enumerate(parts):
        others = {name for at, other in enumerate(parts) if at != place for name in _columns(other)}
        _refuse("column", others & set(_used(part)))


def _refuse(what: str, names: set[str]) -> None:
    if names:
        raise SqlRefused(8200, f"Unsupported operate same {what} '{min(names)}'", "HY000")


def _columns(part: AlterPart) -> Iterator[str]:
    match part.arguments:
        case AddColumnArgs(column_info=column) | SetDefaultArgs(column):
            yield column.name.lower
        case DropColumnArgs(column_name=name):
            yield name.lower
        case ModifyColumnArgs(column=column, old_column_name=old):
            yield from {column.name.lower, old.lower}


def _indexes(table: StoredTable, part: AlterPart) -> Iterator[str]:
    match part.arguments:
        case AddIndexArgs(index=index):
            yield index.idx_name.lower
        case DropIndexArgs(name) | VisibilityArgs(name):
            yield name.lower
        case RenameIndexArgs(old, new):
            yield from {old.lower, new.lower}
        case DropColumnArgs(name):
            column = column_of(table, name.lower)
            yield from (index.idx_name.lower for index in own_indexes(table, column)) if column is not None else ()
        case ModifyColumnArgs(old_column_name=old, kind=ModifyKind.LOSSY):
            for index in table.index_info or ():
                if any(one.name.lower == old.lower for one in index.idx_cols):
                    yield index.idx_name.lower


def _used(part: AlterPart) -> Iterator[str]:
    match part.arguments:
        case AddIndexArgs(index=index, hidden=hidden):
            yield from (one.name.lower for one in index.idx_cols)
            yield from (name for column in hidden for name in column.dependences or ())
        case AddColumnArgs(position=PositionArgs(relative_column=after), column_info=column):
            yield from column.dependences or ()
            if after is not None:
                yield after.lower
        case ModifyColumnArgs(position=PositionArgs(relative_column=after)) if after is not None:
            yield after.lower
