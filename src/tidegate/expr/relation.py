"""What SELECT reads from, and what it gives: ports that tables, information_schema and SHOW fill.

    Relations.relation(schema, name) ──► Relation.columns, Relation.rows(equal, context) ──► select ──► ResultSet

`equal` says what WHERE demands of single columns by = and IN: {"id": (1, 7)} (names in lower case, values as written).
It is a hint: a relation may use it to read less, and the caller evaluates WHERE again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from tidegate.model.table import ColumnType
from tidegate.mysql.context import Context
from tidegate.mysql.value.kinds import SqlValue

Row: TypeAlias = Sequence[SqlValue]


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column; a hidden one (such as _tidb_rowid) can be named but is not in `*`."""

    name: str
    type: ColumnType
    hidden: bool = False
    collation: str = "utf8mb4_bin"


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of an answer; `table` is the alias that a bare column came from, else ""."""

    name: str
    type: ColumnType
    collation: str = "utf8mb4_bin"
    table: str = ""


@dataclass(frozen=True, slots=True)
class ResultSet:
    """An answer: each row has one value for each column."""

    columns: tuple[ResultColumn, ...]
    rows: list[tuple[SqlValue, ...]]


class Relation(Protocol):
    """Something with rows."""

    @property
    def name(self) -> str:
        """The name in its own case."""
        ...

    @property
    def columns(self) -> tuple[RelationColumn, ...]:
        """The columns, in the order of the rows' values."""
        ...

    def rows(self, equal: Mapping[str, tuple[SqlValue, ...]], context: Context) -> Iterator[tuple[SqlValue, ...]]:
        """Return the rows, at least those that fit `equal`."""
        ...


class Relations(Protocol):
    """Relations by name."""

    def relation(self, schema: str, name: str) -> Relation:
        """Return the relation of that name; SqlRefused 1146 when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class FixedRelation:
    """A relation whose rows are there already."""

    name: str
    columns: tuple[RelationColumn, ...]
    held: Sequence[tuple[SqlValue, ...]]

    def rows(self, _equal: Mapping[str, tuple[SqlValue, ...]], _context: Context) -> Iterator[tuple[SqlValue, ...]]:
        """Return all of them."""
        return iter(self.held)
