"""What stands in the way of a column that is dropped, renamed or changed: constraints that name it.

    foreign key of the table itself      1828 dropped, 1832 changed
    foreign key of another table         1829 dropped, 1833 changed, 8200 renamed
    check                                3959 dropped or renamed

Source: TiDB pkg/ddl/foreign_key.go, constraint.go (what stands between them and DROP, MODIFY and RENAME COLUMN).
"""

from tidegate.model.errors import SqlRefused
from tidegate.model.table import TableName
from tidegate.schema.change.alteration import Alteration
from tidegate.schema.change.flags import UNSIGNED
from tidegate.schema.change.move.constraint import checks_of, foreign_keys_of
from tidegate.schema.stored.definition import StoredColumn

__all__ = ["check_dropped", "check_modified"]


def _own(alteration: Alteration, name: str) -> str | None:
    """The name of a foreign key of the table that has column `name`."""
    keys = foreign_keys_of(alteration.table)
    return next((key.fk_name.original for key in keys if any(one.lower == name for one in key.cols)), None)


def _others(alteration: Alteration, name: str) -> tuple[str, str] | None:
    """(foreign key, its table) of another table that refers to column `name`."""
    own = TableName(alteration.found.schema, alteration.table.name.original)
    for child, key in alteration.catalog.children(own):
        if any(one.lower == name for one in key.ref_cols):
            return key.fk_name.original, child.stored.name.original
    return None


def _check_of(alteration: Alteration, name: str) -> str | None:
    for check in checks_of(alteration.table):
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
