"""The events of a topic that go on into another one: those of its tables that no event filter leaves out.

    gate ── rows and DDLs in commit order, watermarks ──► Sieve ── what is left ──► relay
                                                            └── DDLs that are left out ──► relay.follow

A DDL of a database passes when some table of it could, a RENAME when the filter takes the old name.  A table that a
RENAME brings in is an error: its rows from before were never written.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from tidegate.feed.event_filter import EventFilter
from tidegate.feed.filter import TableFilter
from tidegate.model.errors import RenameRefused, SqlError
from tidegate.model.event import Ddl, Resolved, RowChange
from tidegate.model.table import TableName
from tidegate.schema.parse import parse
from tidegate.schema.spec import RenameTo
from tidegate.schema.statement import AlterTable, RenameTables

__all__ = ["Sieve"]

_UNKNOWN: Final = -1
"""Messages do not tell the start_ts of a transaction."""


class Receiver(Protocol):
    """What events go on to: a relay."""

    def send(self, events: Iterable[RowChange | Ddl | Resolved]) -> None:
        """Writes events."""

    def follow(self, ddl: Ddl) -> None:
        """Takes note of a DDL that is not written."""


class Sieve:
    """`left_out` counts what did not go on."""

    def __init__(self, tables: TableFilter, events: EventFilter) -> None:
        self._tables, self._events, self._judge = tables, events, events.messages()
        self.left_out = 0

    def pass_on(self, events: Iterable[RowChange | Ddl | Resolved], to: Receiver) -> None:
        """Sends what goes on, and tells of DDLs that do not, in their order.

        Raises RenameRefused, and what is wrong with a rule for an event that it cannot judge."""
        kept: list[RowChange | Ddl | Resolved] = []
        for event in events:
            if self._goes_on(event):
                kept.append(event)
                continue
            self.left_out += 1
            if isinstance(event, Ddl):
                to.send(kept)
                kept = []
                to.follow(event)
        to.send(kept)

    def _goes_on(self, event: RowChange | Ddl | Resolved) -> bool:
        if isinstance(event, Resolved):
            return True
        return self._takes_ddl(event) if isinstance(event, Ddl) else self._takes(event)

    def _takes(self, row: RowChange) -> bool:
        return self._tables.matches(row.schema, row.table) and (self._judge is None or not self._judge.drops(row))

    def _takes_ddl(self, ddl: Ddl) -> bool:
        previous = _previous(ddl)
        return self._is_of_a_table(ddl, previous) and not self._events.drops_ddl(ddl, previous, _UNKNOWN)

    def _is_of_a_table(self, ddl: Ddl, previous: TableName | None) -> bool:
        if not ddl.table:
            return self._tables.matches_schema(ddl.schema)
        matched = self._tables.matches(ddl.schema, ddl.table)
        if previous is None or self._tables.matches(*previous):
            return matched or previous is not None
        if matched:
            raise RenameRefused(
                f"ts {ddl.commit_ts}: {previous}, which the filter leaves out, becomes {ddl.schema}.{ddl.table}, which "
                f"it takes ({ddl.query!a:.200}); its rows from before are not written: let filter.rules take both "
                "names and begin where the table began, or leave the new name out"
            )
        return False


def _previous(ddl: Ddl) -> TableName | None:
    """The name that a RENAME takes away; None for other statements, and for those that cannot be read."""
    if "RENAME" not in ddl.query.upper():
        return None
    try:
        statements = parse(ddl.query, ddl.schema)
    except SqlError:
        return None
    for statement in statements:
        if isinstance(statement, RenameTables):
            return statement.pairs[0].old
        if isinstance(statement, AlterTable) and any(isinstance(spec, RenameTo) for spec in statement.specs):
            return statement.table
    return None
