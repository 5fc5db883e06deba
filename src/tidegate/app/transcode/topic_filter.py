"""The events of a topic that go on into another one: those of its tables that no event filter leaves out.

    merge ── rows and DDLs in commit order, watermarks ──► TopicFilter ── what is left ──► relay
                                                            └── DDLs that are left out ──► relay.follow

A DDL of a database passes when some table of it could, a RENAME when the filter takes the old name.  A table that a
RENAME brings in is an error: its rows from before were never written.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from tidegate.feed.event_filter import EventFilter
from tidegate.feed.filter import TableFilter
from tidegate.feed.previous_name import previous_name
from tidegate.model.event import Ddl, Resolved, RowChange

__all__ = ["TopicFilter"]

_UNKNOWN: Final = -1
"""Messages do not tell the start_ts of a transaction."""


class Receiver(Protocol):
    """What events go on to: a relay."""

    def send(self, events: Iterable[RowChange | Ddl | Resolved]) -> None:
        """Write events."""

    def follow(self, ddl: Ddl) -> None:
        """Take note of a DDL that is not written."""


class TopicFilter:
    """`left_out` counts what did not go on."""

    def __init__(self, tables: TableFilter, events: EventFilter) -> None:
        self._tables, self._events, self._judge = tables, events, events.messages()
        self.left_out = 0

    def pass_on(self, events: Iterable[RowChange | Ddl | Resolved], to: Receiver) -> None:
        """Send what goes on, and tells of DDLs that do not, in their order.

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
        previous = previous_name(ddl)
        return self._tables.takes_ddl(ddl, previous) and not self._events.drops_ddl(ddl, previous, _UNKNOWN)
