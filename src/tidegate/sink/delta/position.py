"""Where a stored table stands, kept in its own commits.

txn "<feed>"       the ts of the position          readable from every version of the table,
txn "<feed>/seq"   its number among DDLs of it     log checkpoints included
"""

from tidegate.engine.plan import Position
from tidegate.model.errors import SinkRefused
from tidegate.model.table import TableInfo
from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import Action, TableSnapshot


def position(snapshot: TableSnapshot, feed: str) -> Position:
    """Return where a stored table stands."""
    ts, seq = snapshot.txns(feed, f"{feed}/seq")
    return ts or 0, seq or 0


def no_rows(table: TableInfo, uri: str) -> SinkRefused:
    """Return the error of a table that the lake should have and has not: no wait brings it back."""
    return SinkRefused(
        f"table {table.name}: the lake has no rows of it at {uri}: the filter left it out until now, or somebody "
        "removed them. Leave it out by a filter rule, or begin a fresh lake"
    ).at(table=str(table.name))


def progress(feed: str, at: Position) -> list[Action]:
    """Return the actions that move a table to `at`."""
    return [deltalog.txn(feed, at[0]), deltalog.txn(f"{feed}/seq", at[1])]
