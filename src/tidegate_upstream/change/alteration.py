"""One ALTER TABLE while it is planned: the table as it stands, and the parts that its specs ask for.

rule(alteration, spec) -> AlterPart, ..      plan/column.py, plan/index.py, plan/partition.py
"""

from dataclasses import dataclass, field

from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.schema.stored.arguments import Arguments
from tidegate.schema.stored.definition import StoredColumn, StoredSchema, StoredTable
from tidegate.schema.stored.snapshot import TableVersion
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.change.catalog import Catalog
from tidegate_upstream.change.draft import column_of
from tidegate_upstream.change.request import Involved
from tidegate_upstream.change.session import DdlSession, StatementNote, passed_over


@dataclass(frozen=True, slots=True)
class AlterPart:
    """What becomes a job or a part of one; `table` is another table than the statement's that the job belongs to."""

    action: int
    arguments: Arguments
    table: TableVersion | None = None
    involved: tuple[Involved, ...] = ()


@dataclass(slots=True)
class Alteration:
    """The statement's table, where to look up others, and notes for the user."""

    found: TableVersion
    catalog: Catalog
    session: DdlSession
    notes: list[StatementNote] = field(default_factory=list)
    unnamed_keys: int = 0
    """How many foreign keys without a name its specs have added so far."""

    @property
    def table(self) -> StoredTable:
        """The definition as it stands."""
        return self.found.stored

    @property
    def schema(self) -> StoredSchema:
        """The table's database."""
        return self.catalog.schema(self.found.schema)

    def pass_over(self, code: int, message: str, state: str, *, accepted: bool) -> None:
        """Tell the user what IF [NOT] EXISTS passed over; SqlRefused where it is not accepted."""
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
