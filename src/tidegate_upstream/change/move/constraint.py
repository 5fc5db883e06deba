"""Foreign keys and checks, one state further; lists in the table.

    add     none ──► appended, gets its id     .. ──► public
    drop    public ──► write-only ──► none: gone

Source: TiDB pkg/ddl/foreign_key.go, pkg/ddl/constraint.go.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.schema.stored.arguments import AddForeignKeyArgs, CheckArgs, CheckNameArgs, DropForeignKeyArgs
from tidegate.schema.stored.definition import Name, StoredCheck, StoredForeignKey
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.change.draft import Draft, Move, States
from tidegate_upstream.change.request import Request

_T = TypeVar("_T", bound=StoredCheck | StoredForeignKey)


def _name(item: StoredCheck | StoredForeignKey) -> str:
    return item.fk_name.lower if isinstance(item, StoredForeignKey) else item.constraint_name.lower


def _appended(items: list[_T], wanted: _T, last_id: int, state: ElementState, refused: SqlRefused) -> list[_T]:
    """`items` and the new one, with the next id; raises `refused` where its name is taken."""
    if any(_name(item) == _name(wanted) for item in items):
        raise refused
    return [*items, msgspec.structs.replace(wanted, id=last_id + 1, state=int(state))]


def _moved(items: list[_T], name: Name, state: ElementState, refused: SqlRefused | None = None) -> list[_T]:
    """`items` with the one of that name in `state`, or gone; raises `refused` where there is none."""
    if refused is not None and all(_name(item) != name.lower for item in items):
        raise refused
    if state is ElementState.NONE:
        return [item for item in items if _name(item) != name.lower]
    return [msgspec.structs.replace(item, state=int(state)) if _name(item) == name.lower else item for item in items]


def _add_key(draft: Draft, request: Request, old: States, new: States) -> None:
    assert isinstance(request.arguments, AddForeignKeyArgs)
    wanted, table, state = request.arguments.fk_info, draft.table(request), new["foreign key"]
    keys, most = table.fk_info or [], table.max_fk_id
    if old["foreign key"] is ElementState.NONE:
        message = f"Duplicate foreign key constraint name '{wanted.fk_name.original}'"
        keys, most = _appended(keys, wanted, most, state, SqlRefused(1826, message, "HY000")), most + 1
    else:
        keys = _moved(keys, wanted.fk_name, state)
    draft.update(request, msgspec.structs.replace(table, fk_info=keys, max_fk_id=most))


def _drop_key(draft: Draft, request: Request, _old: States, new: States) -> None:
    assert isinstance(request.arguments, DropForeignKeyArgs)
    name, table = request.arguments.fk_name, draft.table(request)
    refused = SqlRefused(1091, f"Can't DROP '{name.original}'; check that column/key exists", "42000")
    keys = _moved(table.fk_info or [], name, new["foreign key"], refused)
    draft.update(request, msgspec.structs.replace(table, fk_info=keys))


def _add_check(draft: Draft, request: Request, old: States, new: States) -> None:
    assert isinstance(request.arguments, CheckArgs)
    wanted, table, state = request.arguments.constraint_info, draft.table(request), new["check"]
    checks, most = table.constraint_info or [], table.max_cst_id
    if old["check"] is ElementState.NONE:
        message = f"Duplicate check constraint name '{wanted.constraint_name.original}'."
        checks, most = _appended(checks, wanted, most, state, SqlRefused(3822, message, "HY000")), most + 1
    else:
        checks = _moved(checks, wanted.constraint_name, state)
    draft.update(request, msgspec.structs.replace(table, constraint_info=checks, max_cst_id=most))


def _drop_check(draft: Draft, request: Request, _old: States, new: States) -> None:
    assert isinstance(request.arguments, CheckNameArgs)
    name, table = request.arguments.constraint_name, draft.table(request)
    refused = SqlRefused(3940, f"Constraint '{name.original}' does not exist.", "HY000")
    checks = _moved(table.constraint_info or [], name, new["check"], refused)
    draft.update(request, msgspec.structs.replace(table, constraint_info=checks))


CONSTRAINT_MOVES: Final[Mapping[int, Move]] = {9: _add_key, 10: _drop_key, 43: _add_check, 44: _drop_check}
