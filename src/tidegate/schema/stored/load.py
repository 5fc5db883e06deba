"""A schema version of the store as a snapshot of definitions: whole, or from an older one by differences.

    own 181, newest 184      Diff:182  Diff:183  Diff:184      three small reads and the tables they name
    own 181, newest 184      Diff:182  missing   Diff:184      183 was taken and never used: passed over
    own 181, newest 184      Diff:182  Diff:183  missing       184 is not committed yet: stop at 183
    own 12, newest 184       too far: all definitions anew

Everything is read at one timestamp.  A table that no difference names keeps its object, so `is` tells what changed.

Source: TiDB pkg/infoschema (builder, loader).
"""

from dataclasses import dataclass, replace
from typing import Final

from tidegate.schema.job import SchemaDiff
from tidegate.schema.stored.definition import StoredSchema
from tidegate.schema.stored.meta import Meta
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion

DIFFS_MAX: Final = 100
"""Differences that are read one by one; with more of them reading everything costs less."""

_CREATE_SCHEMA, _DROP_SCHEMA, _ALTER_SCHEMA, _RECOVER_SCHEMA = 1, 2, 26, 63


@dataclass(frozen=True, slots=True)
class LoadedSchema:
    """The definitions of one version; `snapshot.ts` is the timestamp at which they were read."""

    version: int
    snapshot: StoredSnapshot


def load(meta: Meta, ts: int, known: LoadedSchema | None = None) -> LoadedSchema:
    """Return the schema at `ts`, with what is known already."""
    newest = _usable(meta)
    if known is None or newest < known.version or newest - known.version > DIFFS_MAX:
        return load_all(meta, ts)
    changed: set[int] = set()
    schemas: set[int] = set()
    for version in range(known.version + 1, newest + 1):
        diff = meta.diff(version)
        if diff is None:
            continue
        if diff.regenerate_schema_map or diff.type == _RECOVER_SCHEMA:
            return load_all(meta, ts)
        _note(diff, changed, schemas)
    return LoadedSchema(newest, _updated(meta, ts, known.snapshot, changed, schemas))


def load_all(meta: Meta, ts: int) -> LoadedSchema:
    """Return the schema at `ts`, read whole."""
    schemas = {schema.id: schema for schema in meta.schemas()}
    tables = {
        table.id: TableVersion(schema.id, schema.name.original, table, table.update_timestamp)
        for schema in schemas.values()
        for table in meta.tables(schema.id)
    }
    return LoadedSchema(_usable(meta), _snapshot(ts, schemas, tables))


def _usable(meta: Meta) -> int:
    """The newest version whose step is committed, or may have been given up."""
    newest = meta.version
    return newest if newest == 0 or meta.diff(newest) is not None else newest - 1


def _note(diff: SchemaDiff, changed: set[int], schemas: set[int]) -> None:
    """The tables and databases that a difference names, under old and new ids."""
    if diff.type in (_CREATE_SCHEMA, _DROP_SCHEMA, _ALTER_SCHEMA):
        schemas.add(diff.schema_id)
        return
    changed.update((diff.table_id, diff.old_table_id))
    for other in diff.affected_options or ():
        changed.update((other.table_id, other.old_table_id))
    schemas.update((diff.schema_id, diff.old_schema_id))
    schemas.update(other.schema_id for other in diff.affected_options or ())
    schemas.update(other.old_schema_id for other in diff.affected_options or ())


def _updated(meta: Meta, ts: int, old: StoredSnapshot, changed: set[int], named: set[int]) -> StoredSnapshot:
    """The old snapshot with the named tables and databases as they are now."""
    named = (named | {old.tables[table].schema_id for table in changed if table in old.tables}) - {0}
    schemas, tables = dict(old.schemas), dict(old.tables)
    fresh: set[int] = set()
    for schema_id in named:
        schema = meta.schema(schema_id)
        if schema is None:
            schemas.pop(schema_id, None)
            changed = changed | {number for number, found in tables.items() if found.schema_id == schema_id}
        elif schema_id not in schemas:
            fresh.add(schema_id)
            schemas[schema_id] = schema
        elif schema != schemas[schema_id]:
            schemas[schema_id] = schema
    for table_id in changed:
        tables.pop(table_id, None)
    for schema_id in named & schemas.keys():
        name = schemas[schema_id].name.original
        found = meta.tables(schema_id) if schema_id in fresh else [meta.table(schema_id, i) for i in changed - {0}]
        for table in found:
            if table is not None:
                tables[table.id] = TableVersion(schema_id, name, table, table.update_timestamp)
    return _snapshot(ts, schemas, tables, old)


def _snapshot(
    ts: int,
    schemas: dict[int, StoredSchema],
    tables: dict[int, TableVersion],
    old: StoredSnapshot | None = None,
) -> StoredSnapshot:
    if old is not None:
        tables = {number: _same(old.tables.get(number), found) for number, found in tables.items()}
    logical = {physical: number for number, found in tables.items() for physical in found.stored.physical_ids}
    return replace(StoredSnapshot(), ts=ts, schemas=schemas, tables=tables, logical=logical)


def _same(old: TableVersion | None, new: TableVersion) -> TableVersion:
    return old if old is not None and old == new else new
