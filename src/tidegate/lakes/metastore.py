"""Statements that give a lake's tables their names in a metastore of Spark's: Hive, Unity, Glue.

    CREATE SCHEMA IF NOT EXISTS `shop`
    CREATE TABLE IF NOT EXISTS `shop`.`orders` USING delta LOCATION '/srv/lake/tables/7f-1'

A name of a metastore means the newest version of its table, not a published snapshot.  They are to be run again when
tables were created or renamed; a name of before stays until somebody drops it, which removes no file.
"""

from collections.abc import Iterator

from tidegate.expr.tokens import quote_name
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import Snapshot


def statements(options: DeltaOptions, snapshot: Snapshot, catalog: str | None = None) -> Iterator[str]:
    """Return the statements for the tables of a snapshot, in `catalog` or the session's own."""
    prefix = f"{quote_name(catalog)}." if catalog else ""
    tables = sorted((table.name, options.table_uri(incarnation)) for incarnation, table in snapshot.tables.items())
    for schema in sorted({name.schema for name, _ in tables}):
        yield f"CREATE SCHEMA IF NOT EXISTS {prefix}{quote_name(schema)}"
    for name, place in tables:
        told = place.replace("\\", "\\\\").replace("'", "\\'")
        where = f"{prefix}{quote_name(name.schema)}.{quote_name(name.table)}"
        yield f"CREATE TABLE IF NOT EXISTS {where} USING delta LOCATION '{told}'"
