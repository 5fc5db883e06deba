"""Rows of information_schema about keys: indexes part by part, constraints, what refers to what.

    a primary key that is the handle is in no list of indexes: it is put before the others here

Source: TiDB pkg/executor/infoschema_reader.go.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tidegate.expr.value.kinds import SqlValue
from tidegate.schema.f1 import ElementState
from tidegate.schema.stored.definition import Name, StoredColumn, StoredIndex, StoredPart, StoredTable
from tidegate.schema.stored.snapshot import StoredSnapshot
from tidegate.tidb.information.row import CATALOG, visible
from tidegate.tidb.sql.show.create import NOT_NULL

__all__ = ["KeyPart", "checks", "constraints", "key_parts", "references", "statistics", "tidb_indexes", "usage"]

Row = tuple[SqlValue, ...]
_PRIMARY_FLAG: Final = 2
_RULES: Final = {1: "RESTRICT", 2: "CASCADE", 3: "SET NULL", 4: "NO ACTION", 5: "SET DEFAULT"}


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One column of a key; `position` counts from 1, `clustered` says whether rows lie by the key."""

    index: StoredIndex
    part: StoredPart
    column: StoredColumn
    position: int
    clustered: bool

    @property
    def expression(self) -> str | None:
        """The text of a part that is an expression."""
        return self.column.generated_expr_string if self.column.hidden else None

    @property
    def name(self) -> str | None:
        """The column; None for an expression."""
        return None if self.column.hidden else self.part.name.original

    @property
    def length(self) -> int | None:
        """How much of the column the key takes; None for all."""
        return self.part.length if self.part.length >= 0 else None


def key_parts(table: StoredTable) -> Iterator[KeyPart]:
    """Return the public keys of a table part by part, the primary key first."""
    columns = table.cols or []
    indexes = [(index, index.is_primary and table.is_common_handle) for index in table.index_info or []]
    if table.pk_is_handle:
        at = next((at for at, column in enumerate(columns) if column.type.flag & _PRIMARY_FLAG), None)
        if at is not None:
            part = StoredPart(columns[at].name, at)
            handle = StoredIndex(0, Name.of("PRIMARY"), idx_cols=[part], is_unique=True, is_primary=True)
            indexes.insert(0, (handle, True))
    for index, clustered in sorted(indexes, key=lambda one: not one[0].is_primary):
        if index.state == ElementState.PUBLIC:
            for position, part in enumerate(index.idx_cols, start=1):
                yield KeyPart(index, part, columns[part.offset], position, clustered)


def statistics(snapshot: StoredSnapshot) -> Iterator[Row]:
    """STATISTICS."""
    for found in visible(snapshot):
        for one in key_parts(found.stored):
            yield (
                *(CATALOG, found.schema, found.stored.name.original, int(not one.index.is_unique), found.schema),
                *(one.index.idx_name.original, one.position, one.name, "A", 0, one.length, None),
                *("" if one.column.type.flag & NOT_NULL else "YES", "BTREE", "", one.index.comment),
                *("NO" if one.index.is_invisible else "YES", one.expression),
            )


def tidb_indexes(snapshot: StoredSnapshot) -> Iterator[Row]:
    """TIDB_INDEXES."""
    for found in visible(snapshot):
        for one in key_parts(found.stored):
            index = one.index
            yield (
                *(found.schema, found.stored.name.original, int(not index.is_unique), index.idx_name.original),
                *(one.position, one.name, one.length, index.comment, one.expression, index.id),
                *("NO" if index.is_invisible else "YES", "YES" if one.clustered else "NO", int(index.is_global)),
            )


def usage(snapshot: StoredSnapshot) -> Iterator[Row]:
    """KEY_COLUMN_USAGE."""
    for found in visible(snapshot):
        head = (CATALOG, found.schema)
        table = (CATALOG, found.schema, found.stored.name.original)
        for one in key_parts(found.stored):
            if one.index.is_unique:
                name = one.index.idx_name.original
                position = 1 if one.index.is_primary else None
                yield (*head, name, *table, one.name, one.position, position, None, None, None)
        for key in _foreign_keys(found.stored):
            pairs = zip(key["cols"], key["ref_cols"], strict=True)
            for position, (own, other) in enumerate(pairs, start=1):
                target = (key["ref_schema"]["O"], key["ref_table"]["O"], other["O"])
                yield (*head, key["fk_name"]["O"], *table, own["O"], position, 1, *target)


def constraints(snapshot: StoredSnapshot) -> Iterator[Row]:
    """TABLE_CONSTRAINTS."""
    for found in visible(snapshot):
        place = (found.schema, found.stored.name.original)
        for one in key_parts(found.stored):
            if one.index.is_unique and one.position == 1:
                kind = "PRIMARY KEY" if one.index.is_primary else "UNIQUE"
                yield (CATALOG, found.schema, one.index.idx_name.original, *place, kind)
        for key in _foreign_keys(found.stored):
            yield (CATALOG, found.schema, key["fk_name"]["O"], *place, "FOREIGN KEY")


def references(snapshot: StoredSnapshot) -> Iterator[Row]:
    """REFERENTIAL_CONSTRAINTS."""
    for found in visible(snapshot):
        for key in _foreign_keys(found.stored):
            rules = (_RULES.get(key["on_update"], "NO ACTION"), _RULES.get(key["on_delete"], "NO ACTION"))
            target = (CATALOG, key["ref_schema"]["O"], "PRIMARY", "NONE")
            names = (found.stored.name.original, key["ref_table"]["O"])
            yield (CATALOG, found.schema, key["fk_name"]["O"], *target, *rules, *names)


def checks(snapshot: StoredSnapshot) -> Iterator[Row]:
    """CHECK_CONSTRAINTS."""
    for found in visible(snapshot):
        for raw in found.stored.constraint_info or []:
            check = msgspec.json.decode(raw)
            if check["state"] == ElementState.PUBLIC:
                yield CATALOG, found.schema, check["constraint_name"]["O"], f"({check['expr_string']})"


def _foreign_keys(table: StoredTable) -> Iterator[dict[str, Any]]:
    for raw in table.fk_info or []:
        key = msgspec.json.decode(raw)
        if key["state"] == ElementState.PUBLIC:
            yield key
