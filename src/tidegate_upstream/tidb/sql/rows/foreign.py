"""Foreign keys: a child names a row of its parent.

    INSERT, UPDATE of a child       the parent's row must be there: 1452; it is locked, so that nobody takes it away
    DELETE, UPDATE of a parent      its children, by ON DELETE and ON UPDATE:
        RESTRICT, NO ACTION, none   1451
        CASCADE                     go too, or get the new key
        SET NULL                    lose the key

A key with a NULL in it names nothing.  Keys count from write-only on: enforced, not assumed.

Source: TiDB pkg/executor/foreign_key.go; MySQL manual, "FOREIGN KEY Constraints".
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.mysql.value.compare import sort_key_of
from tidegate.mysql.value.kinds import SqlValue, from_column
from tidegate.schema.stored.definition import Name, StoredForeignKey
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.f1 import ElementKind, Touch, access
from tidegate_upstream.tidb.sql.rows.access import Given, TableAccess
from tidegate_upstream.tidb.sql.rows.read import TableReader
from tidegate_upstream.tidb.sql.rows.row import RowImage, same
from tidegate_upstream.tidb.sql.rows.shape import ShapeColumn

_CASCADE, _SET_NULL = 2, 3
MISSING_PARENT: Final = 1452
CHILD_IN_THE_WAY: Final = 1451
Open = Callable[[str, str], TableAccess]


def keys_between(snapshot: StoredSnapshot, version: TableVersion, tables: Open) -> "Keys | None":
    """Return the foreign keys from and to a table; None where there are none."""
    own = [key for key in version.stored.fk_info or () if _enforced(key)]
    name = (lowered(version.schema), version.stored.name.lower)
    others = [
        (other.schema, other.stored.name.lower, key)
        for other in snapshot.tables.values()
        if other.stored.fk_info
        for key in other.stored.fk_info or ()
        if _enforced(key) and (key.ref_schema.lower or lowered(other.schema), key.ref_table.lower) == name
    ]
    return Keys(own, others, tables) if own or others else None


def _enforced(key: StoredForeignKey) -> bool:
    return access(ElementKind.CONSTRAINT, ElementState(key.state)).insert is Touch.PUT


@dataclass(frozen=True)
class Keys:
    """The foreign keys of a table (`own`), and those of its children: (schema, table, key)."""

    own: list[StoredForeignKey]
    others: list[tuple[str, str, StoredForeignKey]]
    tables: Open

    def added(self, child: TableAccess, old: RowImage | None, new: RowImage) -> None:
        """SqlRefused 1452 when a row names a parent that is not there."""
        for key in self.own:
            columns = key_columns(child.reader, key.cols)
            values = key_values(child.reader, columns, new)
            if None in values or (old is not None and not _differ(columns, old, new)):
                continue
            parent = self.tables(key.ref_schema.original or child.version.schema, key.ref_table.original)
            found = next(matching(parent.reader, key.ref_cols, values), None)
            if found is not None:
                parent.lock(found)
            elif not self._is_own_parent(child, key, values, new):
                raise SqlRefused(
                    MISSING_PARENT,
                    f"Cannot add or update a child row: a foreign key constraint fails ({_shown(child, key)})",
                    "23000",
                )

    def _is_own_parent(self, child: TableAccess, key: StoredForeignKey, values: list[SqlValue], new: RowImage) -> bool:
        """Whether the row names itself."""
        if key.ref_table.lower != child.shape.stored.name.lower:
            return False
        return key_values(child.reader, key_columns(child.reader, key.ref_cols), new) == values

    def removed(self, parent: TableAccess, old: RowImage, new: RowImage | None) -> None:
        """Follows a row that went or got another key to its children; SqlRefused 1451 when they are in the way."""
        for schema, table, key in self.others:
            columns = key_columns(parent.reader, key.ref_cols)
            if new is not None and not _differ(columns, old, new):
                continue
            values = key_values(parent.reader, columns, old)
            if None in values:
                continue
            child = self.tables(schema, table)
            fresh = None if new is None else key_values(parent.reader, columns, new)
            for row in list(matching(child.reader, key.cols, values)):
                self._follow(child, key, row, fresh)

    def _follow(self, child: TableAccess, key: StoredForeignKey, row: RowImage, fresh: list[SqlValue] | None) -> None:
        """What becomes of one child."""
        action = key.on_delete if fresh is None else key.on_update
        if action == _CASCADE and fresh is None:
            child.delete(row)
            return
        if action not in {_CASCADE, _SET_NULL}:
            raise SqlRefused(
                CHILD_IN_THE_WAY,
                f"Cannot delete or update a parent row: a foreign key constraint fails ({_shown(child, key)})",
                "23000",
            )
        values = fresh if action == _CASCADE and fresh is not None else [None] * len(key.cols)
        given: dict[str, Given] = {name.lower: value for name, value in zip(key.cols, values, strict=True)}
        changed = child.changed(row, given)
        if changed is not None:
            child.replace(row, changed)


def key_columns(table: TableReader, names: list[Name]) -> list[ShapeColumn]:
    """Return the columns of a key."""
    return [table.shape.by_name[name.lower] for name in names]


def key_values(table: TableReader, columns: list[ShapeColumn], image: RowImage) -> list[SqlValue]:
    """Return what a row has in the columns of a key."""
    zone = table.context.zone
    return [from_column(column.target.type, image.columns[column.id], zone) for column in columns]


def _differ(columns: list[ShapeColumn], old: RowImage, new: RowImage) -> bool:
    return not all(same(column.target.type, old.columns[column.id], new.columns[column.id]) for column in columns)


def matching(table: TableReader, names: list[Name], values: list[SqlValue]) -> Iterator[RowImage]:
    """Return the rows whose columns have those values, by their collations."""
    columns = key_columns(table, names)
    wanted = _sort_keys(columns, values)
    for image in table.find({name.lower: (value,) for name, value in zip(names, values, strict=True)}):
        if _sort_keys(columns, key_values(table, columns, image)) == wanted:
            yield image


def _sort_keys(columns: list[ShapeColumn], values: list[SqlValue]) -> list[object]:
    return [sort_key_of(value, column.target.collation) for column, value in zip(columns, values, strict=True)]


def _shown(child: TableAccess, key: StoredForeignKey) -> str:
    own = ", ".join(f"`{name.original}`" for name in key.cols)
    others = ", ".join(f"`{name.original}`" for name in key.ref_cols)
    return (
        f"`{child.version.schema}`.`{child.name}`, CONSTRAINT `{key.fk_name.original}` FOREIGN KEY ({own}) "
        f"REFERENCES `{key.ref_table.original}` ({others})"
    )
