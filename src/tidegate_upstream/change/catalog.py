"""Looking names up while a statement is planned.

Names compare without case.  Only public tables exist for statements; a name that a job is about to use may still clash
when the job runs, and then the job fails.

Source: TiDB pkg/infoschema; MySQL's error numbers.
"""

from collections.abc import Iterator

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.model.table import TableName
from tidegate.schema.stored.definition import StoredForeignKey, StoredSchema, StoredTable
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate.schema.stored.states import ElementState


def missing_table(name: TableName) -> SqlRefused:
    """MySQL's 1146."""
    return SqlRefused(1146, f"Table '{name.schema}.{name.table}' doesn't exist", "42S02")


class Catalog:
    """The public tables of a snapshot by name."""

    def __init__(self, snapshot: StoredSnapshot) -> None:
        self._schemas = {
            schema.name.lower: schema for schema in snapshot.schemas.values() if schema.state == ElementState.PUBLIC
        }
        self._tables = {
            (snapshot.schemas[found.schema_id].name.lower, found.stored.name.lower): found
            for found in snapshot.tables.values()
            if found.stored.state == ElementState.PUBLIC and found.schema_id in snapshot.schemas
        }

    def find_schema(self, name: str) -> StoredSchema | None:
        """Return the database of that name; None when there is none."""
        return self._schemas.get(lowered(name))

    def schema(self, name: str) -> StoredSchema:
        """Return the database of that name; SqlRefused 1049, or 1046 where no database was chosen."""
        if not name:
            raise SqlRefused(1046, "No database selected", "3D000")
        found = self.find_schema(name)
        if found is None:
            raise SqlRefused(1049, f"Unknown database '{name}'", "42000")
        return found

    def find(self, name: TableName) -> TableVersion | None:
        """Return the table, view or sequence of that name; None when there is none."""
        return self._tables.get(name.key)

    def table(self, name: TableName) -> TableVersion:
        """Return the base table of that name; SqlRefused 1046, 1049 or 1146, 1347 for a view or sequence."""
        if not name.schema:
            raise SqlRefused(1046, "No database selected", "3D000")
        found = self.find(name)
        if found is None:
            raise missing_table(name)
        if found.stored.is_view or found.stored.is_sequence:
            raise SqlRefused(1347, f"'{name.schema}.{name.table}' is not BASE TABLE", "HY000")
        return found

    def children(self, name: TableName) -> Iterator[tuple[TableVersion, StoredForeignKey]]:
        """Return the tables, and their foreign keys, that refer to the table of that name."""
        for found in self._tables.values():
            for key in found.stored.fk_info or ():
                if (key.ref_schema.lower, key.ref_table.lower) == name.key:
                    yield found, key

    def renamed(self, old: TableName, new: TableName, found: TableVersion) -> None:
        """From now on `found` has the name `new`."""
        del self._tables[old.key]
        schema = self.schema(new.schema)
        stored: StoredTable = msgspec.structs.replace(found.stored, name=type(found.stored.name).of(new.table))
        self._tables[new.key] = TableVersion(schema.id, schema.name.original, stored, found.version)
