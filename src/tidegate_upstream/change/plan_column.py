"""Planning of ALTER TABLE's column, key and constraint specs, and of CREATE INDEX and DROP INDEX.

An `Alteration` holds the table as it is before the statement.  Each rule takes it and one spec, checks what can be
checked now, refuses with MySQL's error numbers, and returns the `AlterPart`s that the spec asks for.  The rules of
partitions and table options are in plan.py, which also combines the parts into jobs.

A column cannot be dropped, renamed or changed while a constraint refers to it:

    foreign key of the table itself      1828 dropped, 1832 changed
    foreign key of another table         1829 dropped, 1833 changed, 8200 renamed
    check                                3959 dropped or renamed

Source: TiDB pkg/ddl/executor.go (AddColumn, DropColumn, ChangeColumn, ModifyColumn, RenameColumn, AlterColumn,
CreateIndex, CreatePrimaryKey, DropIndex, RenameIndex, AlterIndexVisibility, CreateForeignKey, CreateCheckConstraint).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.model.table import TableName
from tidegate.schema.modify_kind import ModifyKind, kind_of_types, modify_kind
from tidegate.schema.statement import (
    AddCheck,
    AddColumns,
    AddForeignKey,
    AddIndex,
    AlterCheck,
    ColumnDef,
    DropColumn,
    DropConstraint,
    DropForeignKey,
    DropIndex,
    DropPrimaryKey,
    IndexDef,
    ModifyColumn,
    NoChange,
    Position,
    RemoveTtl,
    RenameColumn,
    RenameIndex,
    SetDefault,
    SetVisibility,
)
from tidegate.schema.stored.arguments import (
    AddColumnArgs,
    AddForeignKeyArgs,
    AddIndexArgs,
    Arguments,
    CheckArgs,
    CheckNameArgs,
    DropColumnArgs,
    DropForeignKeyArgs,
    DropIndexArgs,
    ModifyColumnArgs,
    PositionArgs,
    RenameIndexArgs,
    SetDefaultArgs,
    TtlArgs,
    VisibilityArgs,
)
from tidegate.schema.stored.definition import (
    AUTO_INCREMENT,
    KEYS,
    NO_DEFAULT,
    PRIMARY,
    UNSIGNED,
    ElementState,
    Name,
    StoredColumn,
    StoredSchema,
    StoredTable,
    column_type,
)
from tidegate.schema.stored.snapshot import TableVersion
from tidegate_upstream.change.draft import Catalog, column_of, index_of, known_index
from tidegate_upstream.change.make_column import (
    STRICT,
    check_indexes,
    check_keys,
    chosen_name,
    covers,
    make_column,
    make_foreign_key,
    make_index,
    with_default,
    with_origin,
)
from tidegate_upstream.change.make_table import check_name, make_check
from tidegate_upstream.change.move_column import check_lossy, check_uncovered
from tidegate_upstream.change.request import Involved
from tidegate_upstream.change.session import DdlSession, StatementNote, passed_over
from tidegate_upstream.change.step import partition_columns


@dataclass(frozen=True, slots=True)
class AlterPart:
    """A job, or a part of a multi-schema change; `table` is set if the job belongs to another table than the
    statement's."""

    action: int
    arguments: Arguments
    table: TableVersion | None = None
    involved: tuple[Involved, ...] = ()


@dataclass(slots=True)
class Alteration:
    """The state of planning one ALTER TABLE: its table, the catalog, and notes for the user."""

    version: TableVersion
    catalog: Catalog
    session: DdlSession
    notes: list[StatementNote] = field(default_factory=list)
    unnamed_keys: int = 0
    """Number of foreign keys without a name that its specs have added so far."""

    @property
    def table(self) -> StoredTable:
        return self.version.stored

    @property
    def schema(self) -> StoredSchema:
        return self.catalog.schema(self.version.schema)

    def pass_over(self, code: int, message: str, state: str, *, accepted: bool) -> None:
        """Note what IF [NOT] EXISTS skipped; SqlRefused without that clause."""
        self.notes += passed_over(code, message, state, accepted=accepted).warnings

    def column(self, name: str) -> StoredColumn:
        """Return the public column of that name; SqlRefused 1054."""
        column = column_of(self.table, name)
        if column is None or column.hidden or column.state != ElementState.PUBLIC:
            raise SqlRefused(1054, f"Unknown column '{name}' in '{self.table.name.original}'", "42S22")
        return column

    def generated_from(self, name: str) -> list[str]:
        """Return the columns whose expressions use column `name`."""
        return [column.name.original for column in self.table.cols or () if lowered(name) in (column.dependences or {})]


def _own(alteration: Alteration, name: str) -> str | None:
    keys = alteration.table.fk_info or ()
    return next((key.fk_name.original for key in keys if any(column.lower == name for column in key.cols)), None)


def _others(alteration: Alteration, name: str) -> tuple[str, str] | None:
    """Return (foreign key, its table) of another table that refers to column `name`."""
    own = TableName(alteration.version.schema, alteration.table.name.original)
    for child, key in alteration.catalog.children(own):
        if any(column.lower == name for column in key.ref_cols):
            return key.fk_name.original, child.stored.name.original
    return None


def _refuse_checked(alteration: Alteration, column: StoredColumn) -> None:
    for check in alteration.table.constraint_info or ():
        if any(used.lower == column.name.lower for used in check.constraint_cols or ()):
            constraint, name = check.constraint_name.original, column.name.original
            message = (
                f"Check constraint '{constraint}' uses column '{name}', hence column cannot be dropped or renamed."
            )
            raise SqlRefused(3959, message, "HY000")


def check_dropped(alteration: Alteration, column: StoredColumn) -> None:
    """Raise SqlRefused if a constraint needs the column."""
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
    """Raise SqlRefused if a constraint fixes the column's type or name."""
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


def _position(alteration: Alteration, position: Position | None) -> PositionArgs:
    if position is None:
        return PositionArgs()
    if position.after is None:
        return PositionArgs(1)
    return PositionArgs(2, alteration.column(position.after).name)


def _now(alteration: Alteration, column: StoredColumn) -> str:
    """Return the statement's time as an origin default: UTC for TIMESTAMP, else in the session's time zone."""
    zone = UTC if column.type.tp == 7 else alteration.session.zone
    moment = alteration.session.now.astimezone(zone)
    text = moment.strftime("%Y-%m-%d %H:%M:%S")
    digits = max(column.type.decimal, 0)
    return f"{text}.{moment.microsecond:06d}"[: 20 + digits] if digits else text


def add_columns(alteration: Alteration, spec: AddColumns) -> Iterator[AlterPart]:
    """ADD COLUMN: one part a column, and one a key."""
    table = alteration.table
    for definition in spec.columns:
        check_name(definition.name, "column")
        if column_of(table, definition.name) is not None:
            message = f"Duplicate column name '{definition.name}'"
            alteration.pass_over(1060, message, "42S21", accepted=spec.if_not_exists)
            continue
        for present, what in (
            (definition.primary, "PRIMARY KEY"),
            (definition.unique, "UNIQUE KEY"),
            (definition.auto_increment, "AUTO_INCREMENT"),
            (definition.detail.auto_random is not None, "AUTO_RANDOM"),
        ):
            if present:
                message = f"Unsupported add column '{definition.name}' constraint {what} when altering a table"
                raise SqlRefused(8200, message, "HY000")
        if definition.generated is not None and definition.stored:
            message = "'Adding generated stored column through ALTER TABLE' is not supported for generated columns."
            raise SqlRefused(3106, message, "HY000")
        column = make_column(definition, len(table.cols or ()), table.charset, table.collate, alteration.session)
        unknown = [name for name in column.dependences or () if column_of(table, name) is None]
        if unknown:
            raise SqlRefused(1054, f"Unknown column '{unknown[0]}' in 'generated column function'", "42S22")
        column = with_origin(column, _now(alteration, column))
        column = msgspec.structs.replace(column, state=ElementState.NONE)
        yield AlterPart(5, AddColumnArgs(column, _position(alteration, spec.position), spec.if_not_exists))
    for index in spec.indexes:
        yield from add_index(alteration, AddIndex(index))


def drop_column(alteration: Alteration, spec: DropColumn) -> Iterator[AlterPart]:
    """DROP COLUMN; an index on that column alone is dropped as well."""
    table = alteration.table
    column = column_of(table, spec.name)
    if column is None or column.hidden:
        message = f"Can't DROP '{spec.name}'; check that column/key exists"
        alteration.pass_over(1091, message, "42000", accepted=spec.if_exists)
        return
    visible = [other for other in table.cols or () if other.state == ElementState.PUBLIC and not other.hidden]
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
    if kind_of_types(column_type(old.type), column_type(new.type)) is kind is ModifyKind.CHECKED and not (
        alteration.session.sql_mode & STRICT
    ):
        kind = ModifyKind.LOSSY  # values that do not fit are cut, not refused
    flag = new.type.flag | (old.type.flag & KEYS)
    new = msgspec.structs.replace(new, id=old.id, type=msgspec.structs.replace(new.type, flag=flag))
    if kind is ModifyKind.LOSSY:
        check_lossy(table, old)
        new = with_origin(new, _now(alteration, new)) if new.default is not None else new
    yield AlterPart(12, ModifyColumnArgs(new, old.name, _position(alteration, spec.position), int(kind)))


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
    """ALTER COLUMN .. SET DEFAULT or DROP DEFAULT; a dropped default is not NULL, even for a nullable column."""
    column = with_default(alteration.column(spec.column), spec.default, alteration.session)
    if spec.default is None:
        flag = column.type.flag | NO_DEFAULT
        column = msgspec.structs.replace(column, type=msgspec.structs.replace(column.type, flag=flag))
    yield AlterPart(15, SetDefaultArgs(column))


def add_index(alteration: Alteration, spec: AddIndex) -> Iterator[AlterPart]:
    """ADD INDEX, UNIQUE, PRIMARY KEY."""
    table, index = alteration.table, spec.index
    if index.foreign:
        yield from add_foreign_key(alteration, AddForeignKey(index))
        return
    if index.primary and (table.pk_is_handle or any(other.is_primary for other in table.index_info or ())):
        raise SqlRefused(1068, "Multiple primary key defined", "42000")
    if index.primary and index.clustered:
        message = (
            "Unsupported adding clustered primary key is not supported. "
            "Please consider adding NONCLUSTERED primary key instead"
        )
        raise SqlRefused(8200, message, "HY000")
    if not index.columns:
        raise SqlRefused(8200, "Unsupported VECTOR and COLUMNAR indexes", "HY000")
    name = chosen_name(index, (other.idx_name.lower for other in table.index_info or ()))
    if index_of(table, name) is not None:
        alteration.pass_over(1061, f"Duplicate key name '{name}'", "42000", accepted=spec.if_not_exists)
        return
    yield _index_part(alteration, index, name, if_not_exists=spec.if_not_exists)


def _index_part(alteration: Alteration, index: IndexDef, name: str, *, if_not_exists: bool = False) -> AlterPart:
    table = alteration.table
    stored, hidden = make_index(table, index, name)
    stored = msgspec.structs.replace(stored, state=ElementState.NONE)
    if table.partition is not None:
        check_keys(msgspec.structs.replace(table, index_info=[stored], pk_is_handle=False), table.partition)
    return AlterPart(32 if index.primary else 7, AddIndexArgs(stored, hidden, if_not_exists))


def add_foreign_key(alteration: Alteration, spec: AddForeignKey) -> Iterator[AlterPart]:
    """ADD FOREIGN KEY, after the index that it needs; TiDB does not count an integer row key as one here."""
    table, schema = alteration.table, alteration.version.schema
    names = {key.fk_name.lower for key in table.fk_info or ()}
    alteration.unnamed_keys += spec.index.name is None
    key, brought = make_foreign_key(schema, table, spec.index, table.max_fk_id + alteration.unnamed_keys)
    if key.fk_name.lower in names:
        raise SqlRefused(1826, f"Duplicate foreign key constraint name '{key.fk_name.original}'", "HY000")
    parent = TableName(key.ref_schema.original, key.ref_table.original)
    if alteration.session.foreign_key_checks:
        referenced = alteration.catalog.find(parent)
        if referenced is None:
            raise SqlRefused(1824, f"Failed to open the referenced table '{parent.table}'", "HY000")
        if not covers(referenced.stored, tuple(name.lower for name in key.ref_cols)):
            message = (
                f"Failed to add the foreign key constraint. Missing index for constraint '{key.fk_name.original}' "
                f"in the referenced table '{parent.table}'"
            )
            raise SqlRefused(1822, message, "HY000")
    if not covers(msgspec.structs.replace(table, pk_is_handle=False), spec.index.columns):
        yield _index_part(alteration, brought, key.fk_name.original)
    yield AlterPart(9, AddForeignKeyArgs(key))


def drop_index(alteration: Alteration, spec: DropIndex) -> Iterator[AlterPart]:
    """DROP INDEX, also of a primary key."""
    table = alteration.table
    if lowered(spec.name) == "primary":
        yield from drop_primary_key(alteration, DropPrimaryKey())
        return
    dropped = index_of(table, spec.name)
    if dropped is None:
        message = f"Can't DROP '{spec.name}'; check that column/key exists"
        alteration.pass_over(1091, message, "42000", accepted=spec.if_exists)
        return
    rest = msgspec.structs.replace(
        table, index_info=[index for index in table.index_info or () if index is not dropped]
    )
    for key in table.fk_info or () if alteration.session.foreign_key_checks else ():
        columns = tuple(name.lower for name in key.cols)
        if covers(table, columns) and not covers(rest, columns):
            message = f"Cannot drop index '{dropped.idx_name.original}': needed in a foreign key constraint"
            raise SqlRefused(1553, message, "HY000")
    yield AlterPart(8, DropIndexArgs(dropped.idx_name, spec.if_exists))


def drop_primary_key(alteration: Alteration, _spec: DropPrimaryKey) -> Iterator[AlterPart]:
    """DROP PRIMARY KEY, if it is NONCLUSTERED."""
    table = alteration.table
    if table.pk_is_handle or table.is_common_handle:
        message = "Unsupported drop primary key when the table is using clustered index"
        raise SqlRefused(8200, message, "HY000")
    primary = next((index for index in table.index_info or () if index.is_primary), None)
    if primary is None:
        raise SqlRefused(1091, "Can't DROP 'PRIMARY'; check that column/key exists", "42000")
    yield AlterPart(33, DropIndexArgs(primary.idx_name))


def rename_index(alteration: Alteration, spec: RenameIndex) -> Iterator[AlterPart]:
    """RENAME INDEX."""
    index = known_index(alteration.table, spec.old)
    other = index_of(alteration.table, spec.new)
    if other is not None and other is not index:
        raise SqlRefused(1061, f"Duplicate key name '{spec.new}'", "42000")
    if index.idx_name.original == spec.new:
        return
    yield AlterPart(18, RenameIndexArgs(index.idx_name, Name.of(spec.new)))


def set_visibility(alteration: Alteration, spec: SetVisibility) -> Iterator[AlterPart]:
    """ALTER INDEX .. VISIBLE and INVISIBLE."""
    index = known_index(alteration.table, spec.index)
    if index.is_primary:
        raise SqlRefused(3522, "A primary key index cannot be invisible", "HY000")
    if index.is_invisible == spec.visible:
        yield AlterPart(41, VisibilityArgs(index.idx_name, not spec.visible))


def detailed(alteration: Alteration, spec: NoChange) -> Iterator[AlterPart]:
    """Specs on checks, foreign keys and TTL; specs without effect give no part."""
    match spec.detail:
        case AddCheck(check):
            if alteration.session.check_constraints:
                constraint = make_check(alteration.table, check)
                name = constraint.constraint_name
                if any(other.constraint_name.lower == name.lower for other in alteration.table.constraint_info or ()):
                    raise SqlRefused(3822, f"Duplicate check constraint name '{name.original}'.", "HY000")
                yield AlterPart(43, CheckArgs(constraint))
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
