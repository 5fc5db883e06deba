"""What the embedded catalog of a lake names."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tidegate.sink.delta.iceberg_catalogs import FILE


def shown(root: Path, catalog: str = "lake") -> dict[tuple[str, str], str]:
    """The metadata files by namespace and table."""
    with closing(sqlite3.connect(root / FILE)) as database:
        rows = database.execute("SELECT * FROM iceberg_tables WHERE catalog_name = ?", (catalog,)).fetchall()
    return {(row[1], row[2]): row[3] for row in rows}
