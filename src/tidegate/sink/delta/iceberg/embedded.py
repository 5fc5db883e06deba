"""The embedded catalog: names of a lake in a directory, in the tables that Iceberg's JDBC catalog and PyIceberg share.

    <lake>/catalog.db      SQLite      iceberg_tables: lake, shop, orders ──► …/metadata/v17.metadata.json

All names move in one transaction when a snapshot is published, renames and drops among them; a reader that asks for
several tables in several queries may still find two snapshots, which a pinned catalog avoids (lakes/catalog/).  Rows of
other catalogs, and names of tables elsewhere, are left alone.  A pointer that somebody else moved is told and moved
back: what was committed there is not upstream.

Source: org.apache.iceberg.jdbc.JdbcUtil, its tables of schema version 1.
"""

import logging
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from tidegate.model.errors import SinkError
from tidegate.sink.delta.iceberg.files import location_of, metadata_uri
from tidegate.sink.delta.iceberg.names import METADATA
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import Snapshot

LOGGER: Final = logging.getLogger("tidegate.iceberg")
FILE: Final = "catalog.db"
CATALOG: Final = "lake"
"""What Spark and PyIceberg have to call it."""
WAIT_S: Final = 30.0
TABLES: Final = """
CREATE TABLE IF NOT EXISTS iceberg_tables (
  catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL,
  metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000), iceberg_type VARCHAR(5),
  PRIMARY KEY (catalog_name, table_namespace, table_name));
CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
  catalog_name VARCHAR(255) NOT NULL, namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255) NOT NULL,
  property_value VARCHAR(1000), PRIMARY KEY (catalog_name, namespace, property_key));
"""

Named = Mapping[tuple[str, str], str]
"""Metadata files by namespace and table."""


def named(options: DeltaOptions, snapshot: Snapshot) -> Named:
    """Return the names of a published snapshot and where their metadata lies; a parked table has none."""
    return {
        (table.schema, table.table): metadata_uri(options.table_uri(incarnation), table.version)
        for incarnation, table in snapshot.tables.items()
        if snapshot.group(incarnation) is None
    }


class EmbeddedCatalog:
    """The catalog of one lake in a directory; one that `shows` nothing takes away what it showed before."""

    def __init__(self, options: DeltaOptions, *, shows: bool = True) -> None:
        self._options, self._shows = options, shows
        self._file, self._home = Path(options.root, FILE), f"{location_of(options.root)}/tables/"
        self._last: Named | None = None
        self._shown: Snapshot | None = None

    def publish(self, snapshot: Snapshot) -> None:
        """Let the catalog name exactly the tables of a published snapshot. SinkError for what SQLite says."""
        if snapshot is self._shown:
            return
        names = named(self._options, snapshot) if self._shows else {}
        if names == self._last or not (names or self._file.exists()):
            self._shown = snapshot
            return
        try:
            with closing(sqlite3.connect(self._file, timeout=WAIT_S, isolation_level=None)) as database:
                if self._last is None:
                    database.executescript(TABLES)
                database.execute("BEGIN IMMEDIATE")
                self._move(database, names)
                database.execute("COMMIT")
        except sqlite3.Error as failed:
            raise SinkError(f"{self._file}: {failed}") from failed
        self._last, self._shown = dict(names), snapshot

    def _move(self, database: sqlite3.Connection, names: Named) -> None:
        there = self._there(database)
        over = [name for name, place in there.items() if name not in names and place.startswith(self._home)]
        where = "catalog_name = ? AND table_namespace = ? AND table_name = ?"
        database.executemany(f"DELETE FROM iceberg_tables WHERE {where}", [(CATALOG, *name) for name in over])  # noqa: S608
        moved = {name: place for name, place in names.items() if there.get(name) != place}
        for name in moved:
            self._warn(".".join(name), there.get(name))
        rows = [(CATALOG, *name, place, there.get(name)) for name, place in moved.items()]
        database.executemany("INSERT OR REPLACE INTO iceberg_tables VALUES (?, ?, ?, ?, ?, 'TABLE')", rows)
        spaces = [(CATALOG, space) for space in {space for space, _ in names}]
        database.executemany(
            "INSERT OR IGNORE INTO iceberg_namespace_properties VALUES (?, ?, 'exists', 'true')", spaces
        )

    def _there(self, database: sqlite3.Connection) -> dict[tuple[str, str], str]:
        rows = database.execute(
            "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables WHERE catalog_name = ?",
            (CATALOG,),
        )
        return {(space, table): place for space, table, place in rows}

    def _warn(self, name: str, place: str | None) -> None:
        """Tell of a pointer that is not one of ours."""
        if place is not None and METADATA.search(place) is None:
            LOGGER.warning(
                "%s: table %s was %s, a commit of somebody else: the catalog shows the lake's own version again. What "
                "was written there is not upstream; write to a table outside of the lake",
                self._file,
                name,
                place,
            )
