"""The tables of a moment as the DDLs that make them: what a lake is told that begins later than its upstream.

    snapshot ──► CREATE DATABASE `shop` ..., CREATE TABLE `orders` (...)        all with the ts of that moment

The statements are those of SHOW CREATE; they read back as the same definitions.
"""

from tidegate.feed.filter import SYSTEM_SCHEMAS
from tidegate.model.event import Ddl
from tidegate.model.mysql import ActionType
from tidegate.schema.stored.snapshot import StoredSnapshot
from tidegate.source.tidb.tables import Tables, name_of
from tidegate.tidb.sql.show.create import render_create_schema, render_create_table

__all__ = ["create_statements"]


def create_statements(snapshot: StoredSnapshot, tables: Tables, ts: int) -> list[Ddl]:
    """Statements for all databases and for the tables that are replicated, databases first."""
    found = []
    for database in snapshot.schemas.values():
        name = database.name.original
        if name.lower() not in SYSTEM_SCHEMAS:
            query = render_create_schema(database)
            found.append(Ddl(schema=name, table="", query=query, commit_ts=ts, type=int(ActionType.CREATE_SCHEMA)))
    for version in tables.replicated(snapshot):
        query = render_create_table(version.stored, schema=version.schema)
        schema, table = name_of(version)
        found.append(Ddl(schema=schema, table=table, query=query, commit_ts=ts, type=int(ActionType.CREATE_TABLE)))
    return found
