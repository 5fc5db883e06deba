"""The key and constraint specs of ALTER TABLE, and CREATE and DROP INDEX, which are such specs.

Source: TiDB pkg/ddl/executor.go (CreateIndex, CreatePrimaryKey, DropIndex, RenameIndex, AlterIndexVisibility,
CreateForeignKey, CreateCheckConstraint).
"""

from collections.abc import Iterator

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.model.table import TableName
from tidegate.schema.definition import AddCheck, AlterCheck, DropConstraint, DropForeignKey, IndexDef, RemoveTtl
from tidegate.schema.spec import (
    AddForeignKey,
    AddIndex,
    DropIndex,
    DropPrimaryKey,
    NoChange,
    RenameIndex,
    SetVisibility,
)
from tidegate.schema.stored.arguments import (
    AddForeignKeyArgs,
    AddIndexArgs,
    CheckArgs,
    CheckNameArgs,
    DropForeignKeyArgs,
    DropIndexArgs,
    RenameIndexArgs,
    TtlArgs,
    VisibilityArgs,
)
from tidegate.schema.stored.definition import Name
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.change.alteration import Alteration, AlterPart
from tidegate_upstream.change.draft import index_of, known_index
from tidegate_upstream.change.make.index import chosen_name, covers, make_foreign_key, make_index
from tidegate_upstream.change.make.partition import check_keys
from tidegate_upstream.change.make.table import made_check


def add_index(alteration: Alteration, spec: AddIndex) -> Iterator[AlterPart]:
    """ADD INDEX, UNIQUE, PRIMARY KEY."""
    table, index = alteration.table, spec.index
    if index.foreign:
        yield from add_foreign_key(alteration, AddForeignKey(index))
        return
    if index.primary:
        _check_primary(alteration, index)
    if not index.columns:
        raise SqlRefused(8200, "Unsupported VECTOR and COLUMNAR indexes", "HY000")
    name = chosen_name(index, (one.idx_name.lower for one in table.index_info or ()))
    if index_of(table, name) is not None:
        alteration.pass_over(1061, f"Duplicate key name '{name}'", "42000", accepted=spec.if_not_exists)
        return
    yield _index_part(alteration, index, name, if_not_exists=spec.if_not_exists)


def _check_primary(alteration: Alteration, index: IndexDef) -> None:
    table = alteration.table
    if table.pk_is_handle or any(one.is_primary for one in table.index_info or ()):
        raise SqlRefused(1068, "Multiple primary key defined", "42000")
    if index.clustered:
        message = (
            "Unsupported adding clustered primary key is not supported. "
            "Please consider adding NONCLUSTERED primary key instead"
        )
        raise SqlRefused(8200, message, "HY000")


def _index_part(alteration: Alteration, index: IndexDef, name: str, *, if_not_exists: bool = False) -> AlterPart:
    table = alteration.table
    made, hidden = make_index(table, index, name)
    made = msgspec.structs.replace(made, state=ElementState.NONE)
    if table.partition is not None:
        check_keys(msgspec.structs.replace(table, index_info=[made], pk_is_handle=False), table.partition)
    return AlterPart(32 if index.primary else 7, AddIndexArgs(made, hidden, if_not_exists))


def add_foreign_key(alteration: Alteration, spec: AddForeignKey) -> Iterator[AlterPart]:
    """ADD FOREIGN KEY, after the index that it needs; an integer row key is none to TiDB here."""
    table, schema = alteration.table, alteration.found.schema
    names = {key.fk_name.lower for key in table.fk_info or ()}
    alteration.unnamed_keys += spec.index.name is None
    key, brought = make_foreign_key(schema, table, spec.index, table.max_fk_id + alteration.unnamed_keys)
    if key.fk_name.lower in names:
        raise SqlRefused(1826, f"Duplicate foreign key constraint name '{key.fk_name.original}'", "HY000")
    parent = TableName(key.ref_schema.original, key.ref_table.original)
    if alteration.session.foreign_key_checks:
        found = alteration.catalog.find(parent)
        if found is None:
            raise SqlRefused(1824, f"Failed to open the referenced table '{parent.table}'", "HY000")
        if not covers(found.stored, tuple(name.lower for name in key.ref_cols)):
            message = (
                f"Failed to add the foreign key constraint. Missing index for constraint '{key.fk_name.original}' "
                f"in the referenced table '{parent.table}'"
            )
            raise SqlRefused(1822, message, "HY000")
    if not covers(msgspec.structs.replace(table, pk_is_handle=False), spec.index.columns):
        yield _index_part(alteration, brought, key.fk_name.original)
    yield AlterPart(9, AddForeignKeyArgs(key))


def drop_index(alteration: Alteration, spec: DropIndex) -> Iterator[AlterPart]:
    """DROP INDEX; of a primary key too."""
    table = alteration.table
    if lowered(spec.name) == "primary":
        yield from drop_primary_key(alteration, DropPrimaryKey())
        return
    found = index_of(table, spec.name)
    if found is None:
        message = f"Can't DROP '{spec.name}'; check that column/key exists"
        alteration.pass_over(1091, message, "42000", accepted=spec.if_exists)
        return
    rest = msgspec.structs.replace(table, index_info=[one for one in table.index_info or () if one is not found])
    for key in table.fk_info or () if alteration.session.foreign_key_checks else ():
        columns = tuple(name.lower for name in key.cols)
        if covers(table, columns) and not covers(rest, columns):
            message = f"Cannot drop index '{found.idx_name.original}': needed in a foreign key constraint"
            raise SqlRefused(1553, message, "HY000")
    yield AlterPart(8, DropIndexArgs(found.idx_name, spec.if_exists))


def drop_primary_key(alteration: Alteration, _spec: DropPrimaryKey) -> Iterator[AlterPart]:
    """DROP PRIMARY KEY, of NONCLUSTERED ones."""
    table = alteration.table
    if table.pk_is_handle or table.is_common_handle:
        message = "Unsupported drop primary key when the table is using clustered index"
        raise SqlRefused(8200, message, "HY000")
    found = next((one for one in table.index_info or () if one.is_primary), None)
    if found is None:
        raise SqlRefused(1091, "Can't DROP 'PRIMARY'; check that column/key exists", "42000")
    yield AlterPart(33, DropIndexArgs(found.idx_name))


def rename_index(alteration: Alteration, spec: RenameIndex) -> Iterator[AlterPart]:
    """RENAME INDEX."""
    found = known_index(alteration.table, spec.old)
    taken = index_of(alteration.table, spec.new)
    if taken is not None and taken is not found:
        raise SqlRefused(1061, f"Duplicate key name '{spec.new}'", "42000")
    if found.idx_name.original == spec.new:
        return
    yield AlterPart(18, RenameIndexArgs(found.idx_name, Name.of(spec.new)))


def set_visibility(alteration: Alteration, spec: SetVisibility) -> Iterator[AlterPart]:
    """ALTER INDEX .. VISIBLE and INVISIBLE."""
    found = known_index(alteration.table, spec.index)
    if found.is_primary:
        raise SqlRefused(3522, "A primary key index cannot be invisible", "HY000")
    if found.is_invisible == spec.visible:
        yield AlterPart(41, VisibilityArgs(found.idx_name, not spec.visible))


def detailed(alteration: Alteration, spec: NoChange) -> Iterator[AlterPart]:
    """Specs on checks, foreign keys and TTL; others of no consequence ask for nothing."""
    match spec.detail:
        case AddCheck(check):
            if alteration.session.check_constraints:
                made = made_check(alteration.table, check)
                _free_check(alteration, made.constraint_name)
                yield AlterPart(43, CheckArgs(made))
        case AlterCheck(name, enforced):
            yield AlterPart(45, CheckNameArgs(_check(alteration, name), enforced))
        case DropForeignKey(name, if_exists):
            yield from _drop_foreign_key(alteration, name, if_exists=if_exists)
        case DropConstraint(name):
            if any(key.fk_name.lower == lowered(name) for key in alteration.table.fk_info or ()):
                yield from _drop_foreign_key(alteration, name, if_exists=False)
            else:
                yield AlterPart(44, CheckNameArgs(_check(alteration, name)))
        case RemoveTtl():
            if alteration.table.ttl_info is not None:
                yield AlterPart(67, TtlArgs())
        case None:
            return


def _free_check(alteration: Alteration, name: Name) -> None:
    if any(check.constraint_name.lower == name.lower for check in alteration.table.constraint_info or ()):
        raise SqlRefused(3822, f"Duplicate check constraint name '{name.original}'.", "HY000")


def _check(alteration: Alteration, name: str) -> Name:
    for check in alteration.table.constraint_info or ():
        if check.constraint_name.lower == lowered(name):
            return check.constraint_name
    raise SqlRefused(3940, f"Constraint '{name}' does not exist.", "HY000")


def _drop_foreign_key(alteration: Alteration, name: str, *, if_exists: bool) -> Iterator[AlterPart]:
    for key in alteration.table.fk_info or ():
        if key.fk_name.lower == lowered(name):
            yield AlterPart(10, DropForeignKeyArgs(key.fk_name))
            return
    message = f"Can't DROP '{name}'; check that column/key exists"
    alteration.pass_over(1091, message, "42000", accepted=if_exists)
