"""Foreign keys and checks, one state further; lists in the table.

    add     none ──► appended, gets its id     .. ──► public
    drop    public ──► write-only ──► none: gone

Source: TiDB pkg/ddl/foreign_key.go, pkg/ddl/constraint.go.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.schema.change.arguments import AddForeignKeyArgs, CheckArgs, CheckNameArgs, DropForeignKeyArgs
from tidegate.schema.change.draft import Draft, Move, States
from tidegate.schema.change.request import Request
from tidegate.schema.f1 import ElementState
from tidegate.schema.stored.definition import StoredCheck, StoredForeignKey, StoredTable

__all__ = ["CONSTRAINT_MOVES"]

_T = TypeVar("_T", StoredCheck, StoredForeignKey)


def _with_keys(table: StoredTable, keys: list[StoredForeignKey]) -> StoredTable:
    return msgspec.structs.replace(table, fk_info=keys)


def _with_checks(table: StoredTable, checks: list[StoredCheck]) -> StoredTable:
    return msgspec.structs.replace(table, constraint_info=checks)


def _add_key(draft: Draft, request: Request, old: States, new: States) -> None:
    assert isinstance(request.arguments, AddForeignKeyArgs)
    wanted, table, state = request.arguments.fk_info, draft.table(request), new["foreign key"]
    keys = list(table.fk_info or ())
    if old["foreign key"] is ElementState.NONE:
        if any(key.fk_name.lower == wanted.fk_name.lower for key in keys):
            raise SqlRefused(1826, f"Duplicate foreign key constraint name '{wanted.fk_name.original}'", "HY000")
        added = msgspec.structs.replace(wanted, id=table.max_fk_id + 1, state=state)
        table = msgspec.structs.replace(_with_keys(table, [*keys, added]), max_fk_id=added.id)
    else:
        table = _with_keys(table, _moved(keys, [k.fk_name.lower == wanted.fk_name.lower for k in keys], state))
    draft.update(request, table)


def _moved(items: list[_T], chosen: list[bool], state: ElementState) -> list[_T]:
    """`items` with the chosen one in `state`, or gone."""
    if state is ElementState.NONE:
        return [item for item, here in zip(items, chosen, strict=True) if not here]
    return [
        msgspec.structs.replace(item, state=int(state)) if here else item
        for item, here in zip(items, chosen, strict=True)
    ]


def _drop_key(draft: Draft, request: Request, _old: States, new: States) -> None:
    assert isinstance(request.arguments, DropForeignKeyArgs)
    name, table = request.arguments.fk_name, draft.table(request)
    keys = list(table.fk_info or ())
    chosen = [key.fk_name.lower == name.lower for key in keys]
    if not any(chosen):
        raise SqlRefused(1091, f"Can't DROP '{name.original}'; check that column/key exists", "42000")
    draft.update(request, _with_keys(table, _moved(keys, chosen, new["foreign key"])))


def _add_check(draft: Draft, request: Request, old: States, new: States) -> None:
    assert isinstance(request.arguments, CheckArgs)
    wanted, table, state = request.arguments.constraint_info, draft.table(request), new["check"]
    checks = list(table.constraint_info or ())
    if old["check"] is ElementState.NONE:
        if any(check.constraint_name.lower == wanted.constraint_name.lower for check in checks):
            raise SqlRefused(3822, f"Duplicate check constraint name '{wanted.constraint_name.original}'.", "HY000")
        added = msgspec.structs.replace(wanted, id=table.max_cst_id + 1, state=state)
        table = msgspec.structs.replace(_with_checks(table, [*checks, added]), max_cst_id=added.id)
    else:
        chosen = [check.constraint_name.lower == wanted.constraint_name.lower for check in checks]
        table = _with_checks(table, _moved(checks, chosen, state))
    draft.update(request, table)


def _drop_check(draft: Draft, request: Request, _old: States, new: States) -> None:
    assert isinstance(request.arguments, CheckNameArgs)
    name, table = request.arguments.constraint_name, draft.table(request)
    checks = list(table.constraint_info or ())
    chosen = [check.constraint_name.lower == name.lower for check in checks]
    if not any(chosen):
        raise SqlRefused(3940, f"Constraint '{name.original}' does not exist.", "HY000")
    draft.update(request, _with_checks(table, _moved(checks, chosen, new["check"])))


CONSTRAINT_MOVES: Final[Mapping[int, Move]] = {9: _add_key, 10: _drop_key, 43: _add_check, 44: _drop_check}
