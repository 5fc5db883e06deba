"""The published snapshots of a lake as a catalog reads them: no database, and nothing kept that can be out of date.

newest()      lists _tidegate/snapshots from the newest known number on       one listing a request
numbered(n)   a snapshot is written once, so its names are kept, and          KEPT of them
              its schema by its digest                                        KEPT_SCHEMAS
metadata      tables/<incarnation>/metadata/v<Delta version + 1>.metadata.json, read at each request
"""

from functools import lru_cache
from typing import Final

import obstore

from tidegate.lakes.catalog.names import CatalogNames, CatalogTable
from tidegate.objectstore.stores import store
from tidegate.sink.delta.iceberg.files import metadata_uri
from tidegate.sink.delta.iceberg.names import metadata_path
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import Snapshot, kept_schema, number_at, numbered, numbers

KEPT: Final = 16
"""Snapshots whose names stay in memory."""
KEPT_SCHEMAS: Final = 2
"""Schemas that stay in memory: one lasts until the next DDL, and takes a third of a second for 2,000 tables."""


class CatalogStates:
    """A lake's snapshots; may be asked by several threads."""

    def __init__(self, root: str) -> None:
        self.options = DeltaOptions(root=root, feed="")
        self._newest = 0
        self._names = lru_cache(KEPT)(self._read)
        self._schemas = lru_cache(KEPT_SCHEMAS)(kept_schema)

    def newest(self) -> CatalogNames:
        """Return the names of the newest snapshot; none for a new lake."""
        found = numbers(self.options, self._newest) or numbers(self.options)
        if not found:
            return CatalogNames.of(Snapshot(), self.options.root)
        self._newest = found[-1]
        return self.numbered(found[-1])

    def numbered(self, number: int) -> CatalogNames:
        """Return the names of that snapshot. Raises FileNotFoundError when there is none, or none any more."""
        return self._names(number)

    def number_at(self, ts: int) -> int:
        """Return the number of the newest snapshot not above a ts; -1 when there is none."""
        return number_at(self.options, ts)

    def location(self, table: CatalogTable) -> str:
        """Return the URI of a table's metadata."""
        return metadata_uri(self.options.table_uri(table.incarnation), table.version)

    def metadata(self, table: CatalogTable) -> bytes:
        """Return a table's metadata as it lies there. Raises FileNotFoundError when it does not."""
        root = self.options.root.rstrip("/")
        path = f"{self.options.table_uri(table.incarnation)}/{metadata_path(table.version)}"
        found: bytes = obstore.get(store(root), path.removeprefix(f"{root}/")).bytes().to_bytes()
        return found

    def _read(self, number: int) -> CatalogNames:
        return CatalogNames.of(numbered(self.options, number, self._schemas), self.options.root)
