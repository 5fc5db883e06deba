"""What an expression may name.

Scope      at compile time: columns by (table, name) ──► slots of one flat row
Context    at run time: context.py
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tidegate.expr.compiled import Compiled
from tidegate.expr.relation import RelationColumn
from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType
from tidegate.mysql.context import DEFAULT_COLLATION, Context

if TYPE_CHECKING:
    from sqlglot.expressions import Expression

_BAD_FIELD: Final = 1054
_AMBIGUOUS: Final = 1052


@dataclass(frozen=True, slots=True)
class Slot:
    """A column's place in the row. `table` is the alias or name by which it can be qualified."""

    index: int
    name: str
    type: ColumnType
    collation: str = DEFAULT_COLLATION
    table: str = ""
    schema: str = ""
    hidden: bool = False


@dataclass(frozen=True)
class Scope:
    """Names that an expression may use."""

    slots: tuple[Slot, ...] = ()
    database: str = ""
    collation: str = DEFAULT_COLLATION
    """collation_connection: the collation of literals."""
    clause: str = "field list"
    """Where the expression stands, for error 1054."""
    aliases: Mapping[str, "Expression"] = field(default_factory=dict)
    """Select items by alias in lower case, where ORDER BY and HAVING may name them."""
    aggregate: "Callable[[Expression], Compiled] | None" = None
    """Takes a call of an aggregate function; None where none may stand (1111)."""
    values: "Callable[[str], Compiled] | None" = None
    """VALUES(column) of ON DUPLICATE KEY UPDATE."""
    context: Context | None = None
    """The statement's context where it is known already: it tells the types of variables."""

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
        """How many slots a row has."""
        return len(self.slots)

    def at(self, clause: str) -> "Scope":
        """Return these names for another clause ("where clause", "order clause" ..)."""
        return replace(self, clause=clause)

    def find(self, column: str, table: str = "", schema: str = "") -> Slot:
        """Return the slot that a name means; SqlRefused 1054 for none, 1052 for several."""
        found = self.own(column, table, schema)
        if len(found) > 1:
            raise SqlRefused(_AMBIGUOUS, f"Column '{column}' in {self.clause} is ambiguous", "23000")
        if found:
            return found[0]
        shown = ".".join(part for part in (schema, table, column) if part)
        raise SqlRefused(_BAD_FIELD, f"Unknown column '{shown}' in '{self.clause}'", "42S22")

    def has(self, column: str, table: str = "") -> bool:
        """Return whether there is such a name."""
        return bool(self.own(column, table))

    def own(self, column: str, table: str = "", schema: str = "") -> Sequence[Slot]:
        """Return the slots that fit a name."""
        name, table, schema = lowered(column), lowered(table), lowered(schema)
        return [
            slot
            for slot in self.slots
            if lowered(slot.name) == name
            and (not table or lowered(slot.table) == table)
            and (not schema or lowered(slot.schema) == schema)
        ]
