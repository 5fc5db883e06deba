"""Tables that a changefeed leaves out although its table filter matches them, with the reason.

    table without a handle key     tidb:// into topics; Redis and search, whose rows have names
    table that got its key later   its rows from before are not downstream

DDLs (`Round.left_out`) and rows (`LEFT_OUT` of path_counts.py) that filters remove are counted separately.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from tidegate.model.table import TableInfo

NO_KEY: Final = "no primary key and no unique key of NOT NULL columns"
FILTERED: Final = "filter rules"
LATE_KEY: Final = "it had no key when it was made, and its rows from before are not downstream"


class LeftOut(msgspec.Struct, frozen=True):
    """A table that is left out, and the reason."""

    table: str
    why: str

    def __str__(self) -> str:
        return f"{self.table}: {self.why}"


class KnownTables(msgspec.Struct, frozen=True):
    """The tables that a source knows before it is read."""

    tables: tuple[str, ...]
    left_out: tuple[LeftOut, ...]


def without_key(tables: Iterable[TableInfo | None]) -> tuple[LeftOut, ...]:
    """Return the tables without a key among some."""
    return tuple(
        sorted((LeftOut(str(table.name), NO_KEY) for table in tables if table and not table.handle_key), key=str)
    )
