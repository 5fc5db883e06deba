"""The column specs of ALTER TABLE.

Constraints that name a column stand in the way when it is dropped, renamed or changed.

    foreign key of the table itself      1828 dropped, 1832 changed
    foreign key of another table         1829 dropped, 1833 changed, 8200 renamed
    check                                3959 dropped or renamed

Source: TiDB pkg/ddl/executor.go (AddColumn, DropColumn, ChangeColumn, ModifyColumn, RenameColumn, AlterColumn).
"""

from collections.abc import Iterator
from datetime import UTC

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.model.table import TableName
from tidegate.schema.definition import ColumnDef, Position
from tidegate.schema.modify_kind import ModifyKind, modify_kind
from tidegate.schema.spec import AddColumns, AddIndex, DropColumn, ModifyColumn, RenameColumn, SetDefault
from tidegate.schema.stored.arguments import (
    AddColumnArgs,
    DropColumnArgs,
    ModifyColumnArgs,
    PositionArgs,
    SetDefaultArgs,
)
from tidegate.schema.stored.definition import Name, StoredColumn
from tidegate.schema.stored.flags import AUTO_INCREMENT, KEYS, NO_DEFAULT, PRIMARY, UNSIGNED
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.change.alteration import Alteration, AlterPart
from tidegate_upstream.change.draft import column_of
from tidegate_upstream.change.invariants import partition_columns
from tidegate_upstream.change.make.column import make_column, with_default, with_origin
from tidegate_upstream.change.make.index import check_indexes
from tidegate_upstream.change.make.table import check_name
from tidegate_upstream.change.move.column import check_uncovered
from tidegate_upstream.change.move.modify import check_lossy
from tidegate_upstream.change.plan.index import add_index


def _own(alteration: Alteration, name: str) -> str | None:
    """The name of a foreign key of the table that has column `name`."""
    keys = alteration.table.fk_info or ()
    return next((key.fk_name.original for key in keys if any(one.lower == name for one in key.cols)), None)


def _others(alteration: Alteration, name: str) -> tuple[str, str] | None:
    """(foreign key, its table) of another table that refers to column `name`."""
    own = TableName(alteration.found.schema, alteration.table.name.original)
    for child, key in alteration.catalog.children(own):
        if any(one.lower == name for one in key.ref_cols):
            return key.fk_name.original, child.stored.name.original
    return None


def _check_of(alteration: Alteration, name: str) -> str | None:
    for check in alteration.table.constraint_info or ():
        if any(one.lower == name for one in check.constraint_cols or ()):
            return check.constraint_name.original
    return None


def _refuse_checked(alteration: Alteration, column: StoredColumn) -> None:
    check = _check_of(alteration, column.name.lower)
    if check is not None:
        name = column.name.original
        message = f"Check constraint '{check}' uses column '{name}', hence column cannot be dropped or renamed."
        raise SqlRefused(3959, message, "HY000")


def check_dropped(alteration: Alteration, column: StoredColumn) -> None:
    """SqlRefused where a constraint needs the column."""
    name = column.name.original
    own, others = _own(alteration, column.name.lower), _others(alteration, column.name.lower)
    if own is not None:
        raise SqlRefused(1828, f"Cannot drop column '{name}': needed in a foreign key constraint '{own}'", "HY000")
    if others is not None:
        key, table = others
        message = f"Cannot drop column '{name}': needed in a foreign key constraint '{key}' of table '{table}'"
        raise SqlRefused(1829, message, "HY000")
    _refuse_checked(alteration, column)


def check_modified(alteration: Alteration, old: StoredColumn, new: StoredColumn) -> None:
    """SqlRefused where a constraint fixes the column's type or name."""
    name = old.name.original
    own, others = _own(alteration, old.name.lower), _others(alteration, old.name.lower)
    if old.name.lower != new.name.lower:
        _refuse_checked(alteration, old)
        if others is not None:
            message = f"Unsupported renaming column '{name}': foreign key constraint '{others[0]}' refers to it"
            raise SqlRefused(8200, message, "HY000")
    shapes = [(kind.tp, kind.flen, kind.decimal, kind.flag & UNSIGNED) for kind in (old.type, new.type)]
    if shapes[0] == shapes[1] or not alteration.session.foreign_key_checks:
        return
    if own is not None:
        raise SqlRefused(1832, f"Cannot change column '{name}': used in a foreign key constraint '{own}'", "HY000")
    if others is not None:
        key, table = others
        message = f"Cannot change column '{name}': used in a foreign key constraint '{key}' of table '{table}'"
        raise SqlRefused(1833, message, "HY000")


def _place(alteration: Alteration, position: Position | None) -> PositionArgs:
    if position is None:
        return PositionArgs()
    if position.after is None:
        return PositionArgs(1)
    return PositionArgs(2, alteration.column(position.after).name)


def _now(alteration: Alteration, column: StoredColumn) -> str:
    """The statement's moment as an origin default: UTC for TIMESTAMP, else the session's zone."""
    zone = UTC if column.type.tp == 7 else alteration.session.zone
    moment = alteration.session.now.astimezone(zone)
    text = moment.strftime("%Y-%m-%d %H:%M:%S")
    digits = max(column.type.decimal, 0)
    return f"{text}.{moment.microsecond:06d}"[: 20 + digits] if digits else text


def add_columns(alteration: Alteration, spec: AddColumns) -> Iterator[AlterPart]:
    """ADD COLUMN, one part a column, and its keys."""
    table = alteration.table
    for definition in spec.columns:
        check_name(definition.name, "column")
        if column_of(table, definition.name) is not None:
            message = f"Duplicate column name '{definition.name}'"
            alteration.pass_over(1060, message, "42S21", accepted=spec.if_not_exists)
            continue
        _check_added(definition)
        column = make_column(definition, len(table.cols or ()), table.charset, table.collate, alteration.session)
        unknown = [name for name in column.dependences or () if column_of(table, name) is None]
        if unknown:
            raise SqlRefused(1054, f"Unknown column '{unknown[0]}' in 'generated column function'", "42S22")
        column = with_origin(column, _now(alteration, column))
        column = msgspec.structs.replace(column, state=ElementState.NONE)
        yield AlterPart(5, AddColumnArgs(column, _place(alteration, spec.position), spec.if_not_exists))
    for index in spec.indexes:
        yield from add_index(alteration, AddIndex(index))


def _check_added(definition: ColumnDef) -> None:
    for here, what in (
        (definition.primary, "PRIMARY KEY"),
        (definition.unique, "UNIQUE KEY"),
        (definition.auto_increment, "AUTO_INCREMENT"),
        (definition.detail.auto_random is not None, "AUTO_RANDOM"),
    ):
        if here:
            message = f"Unsupported add column '{definition.name}' constraint {what} when altering a table"
            raise SqlRefused(8200, message, "HY000")
    if definition.generated is not None and definition.stored:
        message = "'Adding generated stored column through ALTER TABLE' is not supported for generated columns."
        raise SqlRefused(3106, message, "HY000")


def drop_column(alteration: Alteration, spec: DropColumn) -> Iterator[AlterPart]:
    """DROP COLUMN; an index on that column alone goes with it."""
    table = alteration.table
    column = column_of(table, spec.name)
    if column is None or column.hidden:
        message = f"Can't DROP '{spec.name}'; check that column/key exists"
        alteration.pass_over(1091, message, "42000", accepted=spec.if_exists)
        return
    visible = [one for one in table.cols or () if one.state == ElementState.PUBLIC and not one.hidden]
    if len(visible) == 1:
        raise SqlRefused(1090, "You can't delete all columns with ALTER TABLE; use DROP TABLE instead", "42000")
    check_dropped(alteration, column)
    if alteration.generated_from(column.name.lower):
        raise SqlRefused(3108, f"Column '{column.name.original}' has a generated column dependency.", "HY000")
    check_uncovered(table, column)
    if column.name.lower in partition_columns(table.partition):
        message = f"Column '{column.name.original}' has a partitioning function dependency and cannot be dropped"
        raise SqlRefused(3855, message, "HY000")
    yield AlterPart(6, DropColumnArgs(column.name, spec.if_exists))


def modify_column(alteration: Alteration, spec: ModifyColumn) -> Iterator[AlterPart]:
    """MODIFY and CHANGE COLUMN."""
    table = alteration.table
    if spec.if_exists and column_of(table, spec.name) is None:
        message = f"Unknown column '{spec.name}' in '{table.name.original}'"
        alteration.pass_over(1054, message, "42S22", accepted=True)
        return
    old = alteration.column(spec.name)
    _check_new_name(alteration, old, spec.column.name)
    if spec.position is not None and lowered(spec.position.after or "") == old.name.lower:
        raise SqlRefused(1054, f"Unknown column '{spec.name}' in '{table.name.original}'", "42S22")
    _check_modified(old, spec.column)
    new = make_column(
        spec.column, old.offset, table.charset, table.collate, alteration.session, in_key=bool(old.type.flag & PRIMARY)
    )
    check_modified(alteration, old, new)
    check_indexes(table, old, new)
    kind = modify_kind(table, old, new)
    flag = new.type.flag | (old.type.flag & KEYS)
    new = msgspec.structs.replace(new, id=old.id, type=msgspec.structs.replace(new.type, flag=flag))
    if kind is ModifyKind.LOSSY:
        check_lossy(table, old)
        new = with_origin(new, _now(alteration, new)) if new.default is not None else new
    yield AlterPart(12, ModifyColumnArgs(new, old.name, _place(alteration, spec.position), int(kind)))


def _check_new_name(alteration: Alteration, old: StoredColumn, name: str) -> None:
    check_name(name, "column")
    other = column_of(alteration.table, name)
    if other is not None and other.id != old.id:
        raise SqlRefused(1060, f"Duplicate column name '{name}'", "42S21")
    if lowered(name) != old.name.lower and alteration.generated_from(old.name.lower):
        raise SqlRefused(3108, f"Column '{old.name.original}' has a generated column dependency.", "HY000")


def _check_modified(old: StoredColumn, definition: ColumnDef) -> None:
    name = old.name.original
    if definition.primary or definition.unique:
        what = "PRIMARY KEY" if definition.primary else "UNIQUE KEY"
        raise SqlRefused(8200, f"Unsupported modify column: can't change column constraint ({what})", "HY000")
    if (definition.generated is not None) != bool(old.generated_expr_string) or (
        definition.generated is not None and definition.stored != old.generated_stored
    ):
        message = "'Changing the STORED status' is not supported for generated columns."
        raise SqlRefused(3106, message, "HY000")
    if definition.auto_increment and not old.type.flag & AUTO_INCREMENT:
        raise SqlRefused(8200, "Unsupported modify column: can't set auto_increment", "HY000")
    if old.type.flag & AUTO_INCREMENT and not definition.auto_increment:
        message = f"Unsupported modify column: can't remove auto_increment of '{name}'"
        raise SqlRefused(8200, message, "HY000")


def rename_column(alteration: Alteration, spec: RenameColumn) -> Iterator[AlterPart]:
    """RENAME COLUMN: the same definition under another name."""
    old = alteration.column(spec.old)
    _check_new_name(alteration, old, spec.new)
    new = msgspec.structs.replace(old, name=Name.of(spec.new))
    check_modified(alteration, old, new)
    yield AlterPart(12, ModifyColumnArgs(new, old.name, PositionArgs(), int(ModifyKind.LOSSLESS)))


def set_default(alteration: Alteration, spec: SetDefault) -> Iterator[AlterPart]:
    """ALTER COLUMN .. SET DEFAULT, or DROP DEFAULT: then the column has none, even if it may be NULL."""
    column = with_default(alteration.column(spec.column), spec.default, alteration.session)
    if spec.default is None:
        flag = column.type.flag | NO_DEFAULT
        column = msgspec.structs.replace(column, type=msgspec.structs.replace(column.type, flag=flag))
    yield AlterPart(15, SetDefaultArgs(column))
