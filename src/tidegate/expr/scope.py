"""Scope of an expression: the columns it may name, the relations it may read, and its compiled form.

    Scope      at compile time: columns by (table, name) ──► slots of one flat row
    Context    at run time: the session's settings and warnings (mysql/values.py)
    Compiled   a function of row and context, with the type and collation of its values

`Relation` and `Relations` are the ports through which SELECT reads tables, information_schema and SHOW:

    Relations.relation(schema, name) ──► Relation.columns, Relation.rows(equal, context) ──► select ──► ResultSet

`equal` is what WHERE demands of single columns by = and IN: {"id": (1, 7)} (names in lower case, values as written).
It is a hint: a relation may use it to read less, and the caller evaluates WHERE again.

`rank` is MySQL's coercibility: 0 COLLATE, 2 column, 4 literal, 5 number, 6 NULL.  In a comparison the collation of the
lower rank wins.

Source: MySQL manual, "Collation Coercibility in Expressions".
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType
from tidegate.mysql.values import DEFAULT_COLLATION, Context, SqlValue

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
    """A column of a result; `table` is the alias that a bare column came from, else ""."""

    name: str
    type: ColumnType
    collation: str = "utf8mb4_bin"
    table: str = ""


@dataclass(frozen=True, slots=True)
class ResultSet:
    """The result of a query: columns, and rows with one value for each column."""

    columns: tuple[ResultColumn, ...]
    rows: list[tuple[SqlValue, ...]]


class Relation(Protocol):
    """A port for anything that has columns and rows."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[RelationColumn, ...]: ...

    def rows(self, equal: Mapping[str, tuple[SqlValue, ...]], context: Context) -> Iterator[tuple[SqlValue, ...]]:
        """Return the rows, at least those that match `equal`."""
        ...


class Relations(Protocol):
    """A port that finds relations by name."""

    def relation(self, schema: str, name: str) -> Relation:
        """Return the relation of that name; SqlRefused 1146 for an unknown one."""
        ...


@dataclass(frozen=True, slots=True)
class FixedRelation:
    """A relation whose rows are in memory."""

    name: str
    columns: tuple[RelationColumn, ...]
    stored_rows: Sequence[tuple[SqlValue, ...]]

    def rows(self, _equal: Mapping[str, tuple[SqlValue, ...]], _context: Context) -> Iterator[tuple[SqlValue, ...]]:
        return iter(self.stored_rows)


Evaluate: TypeAlias = Callable[[Row, Context], SqlValue]
NUMBER_RANK: Final = 5


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled expression, with the type and collation of its values."""

    run: Evaluate
    type: ColumnType
    collation: str = "binary"
    rank: int = NUMBER_RANK
    constant: bool = False
    """True for literals: the same value in every row."""
    exact: Evaluate | None = None
    """A division's value with the digits that it keeps for the next operator; `run` rounds to the type's decimals."""

    def __call__(self, row: Row, context: Context) -> SqlValue:
        return self.run(row, context)


if TYPE_CHECKING:
    from sqlglot.expressions import Expression

_BAD_FIELD: Final = 1054
_AMBIGUOUS: Final = 1052


@dataclass(frozen=True, slots=True)
class Slot:
    """The index of a column in the flat row. `table` is the alias or name by which it can be qualified."""

    index: int
    name: str
    type: ColumnType
    collation: str = DEFAULT_COLLATION
    table: str = ""
    schema: str = ""
    hidden: bool = False


@dataclass(frozen=True)
class Scope:
    """The names that an expression may use, and what they resolve to."""

    slots: tuple[Slot, ...] = ()
    database: str = ""
    collation: str = DEFAULT_COLLATION
    """collation_connection: the collation of literals."""
    clause: str = "field list"
    """The clause of the expression, for error 1054."""
    aliases: Mapping[str, "Expression"] = field(default_factory=dict)
    """Select items by alias in lower case, where ORDER BY and HAVING may name them."""
    aggregate: "Callable[[Expression], Compiled] | None" = None
    """Compiles a call of an aggregate function; None where it is not allowed (1111)."""
    values: "Callable[[str], Compiled] | None" = None
    """VALUES(column) of ON DUPLICATE KEY UPDATE."""
    context: Context | None = None
    """The statement's context if it is known already: it has the types of variables."""

    @classmethod
    def of_columns(cls, columns: Iterable[RelationColumn], table: str = "", schema: str = "") -> "Scope":
        """Return the scope of one table's rows."""
        return cls(
            tuple(
                Slot(index, column.name, column.type, column.collation, table, schema, column.hidden)
                for index, column in enumerate(columns)
            )
        )

    @property
    def width(self) -> int:
        return len(self.slots)

    def at(self, clause: str) -> "Scope":
        """Return the scope for another clause ("where clause", "order clause" ..)."""
        return replace(self, clause=clause)

    def find(self, column: str, table: str = "", schema: str = "") -> Slot:
        """Return the slot that a name means; SqlRefused 1054 for none, 1052 for several."""
        matches = self.own(column, table, schema)
        if len(matches) > 1:
            raise SqlRefused(_AMBIGUOUS, f"Column '{column}' in {self.clause} is ambiguous", "23000")
        if matches:
            return matches[0]
        shown = ".".join(part for part in (schema, table, column) if part)
        raise SqlRefused(_BAD_FIELD, f"Unknown column '{shown}' in '{self.clause}'", "42S22")

    def has(self, column: str, table: str = "") -> bool:
        return bool(self.own(column, table))

    def own(self, column: str, table: str = "", schema: str = "") -> Sequence[Slot]:
        """Return the slots that match a name."""
        name, table, schema = lowered(column), lowered(table), lowered(schema)
        return [
            slot
            for slot in self.slots
            if lowered(slot.name) == name
            and (not table or lowered(slot.table) == table)
            and (not schema or lowered(slot.schema) == schema)
        ]
