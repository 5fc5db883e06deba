"""What a catalog says of one snapshot: its databases as namespaces, its tables by name, found in any case as in TiDB.

    SHOP.orders ──folded──► (shop, orders) ──► CatalogTable(name, incarnation, version)
                                           ──► its reason, for a table that is parked: its rows are of another ts

Lists are sorted, so that the last name of a page is the token of the next one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.model.errors import TableParked
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo, TableName
from tidegate.sink.delta.snapshots import Snapshot


class CatalogTable(NamedTuple):
    """Where the rows of a name are: an incarnation, at a Delta version."""

    name: TableName
    incarnation: str
    version: int


@dataclass(frozen=True, slots=True)
class CatalogNames:
    """All names of snapshot `number`; keys are folded."""

    number: int
    checkpoint_ts: int
    databases: Mapping[str, str]
    tables: Mapping[tuple[str, str], CatalogTable]
    parked: Mapping[tuple[str, str], TableParked]

    @staticmethod
    def of(snapshot: Snapshot, root: str) -> "CatalogNames":
        """Return the names of a snapshot; none of one that was never published."""
        tables = {
            table.name.key: CatalogTable(table.name, incarnation, table.version)
            for incarnation, table in snapshot.tables.items()
        }
        databases = {lowered(one.name): one.name for one in snapshot.state.databases.values()}
        databases |= {key[0]: databases.get(key[0], table.name.schema) for key, table in tables.items()}
        parked = {
            table.name.key: error
            for table in snapshot.state.tables.values()
            if (error := _parked(snapshot, table, root)) is not None
        }
        return CatalogNames(snapshot.number, snapshot.checkpoint.ts, databases, tables, parked)

    def database(self, name: str) -> str | None:
        """Return a database's name as it is written; None if there is none."""
        return self.databases.get(lowered(name))

    def table(self, database: str, name: str) -> CatalogTable | None:
        """Return where a table's rows are; None if there is none. Raises TableParked for one that stands still."""
        key = TableName(database, name).key
        if key in self.parked:
            raise self.parked[key]
        return self.tables.get(key)

    def tables_of(self, database: str) -> list[str]:
        """Return the names of a database's tables, sorted."""
        folded = lowered(database)
        return sorted(table.name.table for key, table in self.tables.items() if key[0] == folded)


def _parked(snapshot: Snapshot, table: TableInfo, root: str) -> TableParked | None:
    try:
        snapshot.check_not_parked(table, root)
    except TableParked as error:
        return error
    return None


def page(names: Sequence[str], token: str | None, size: int) -> tuple[Sequence[str], str | None]:
    """Return the part of sorted names that a token asks for, and the token of the next part; None is all of them."""
    if token is None:
        return names, None
    left = [name for name in names if name > token]
    return left[:size], left[size - 1] if len(left) > size else None
