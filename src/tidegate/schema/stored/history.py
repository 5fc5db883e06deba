"""Definitions as SQL shows them at each commit_ts, kept from the keys of the schema (kv/keys.py).

    DBs / DB:275                 a database       a snapshot at the begin, then the changes of the m-prefix in
    DB:275 / Table:280           a table          commit order; other keys change nothing

A running DDL writes a TableInfo in each of its states.  A row is read with the newest one below its commit_ts, and only
public elements count, so a state that shows SQL nothing new makes no version:

    MODIFY v, lossy      delete-only, write-only, write-reorg │ public; _Tombstone$_v write-only, delete-only, -
    row has              v            v, v'       v, v'       │ v, v'                             v'           v'
    read                 v            v           v           │ v'                                v'           v'
                                                              the one new version

    REORGANIZE           ids of adding_definitions and dropping_definitions hold copies: they are no table's
    RENAME               the key in the new database counts, whichever of the two comes first
    EXCHANGE PARTITION   both ids change their tables at one commit_ts
    DROP                 a table or database that is no longer public is gone

A version's number is the commit_ts of its TableInfo, or update_timestamp for a table of the begin, whose TableInfo is
parsed when it is first needed.

Source: TiDB pkg/meta; a recording of DDLs under writers, whose rows and old values, read by this rule, equal what SQL
returned.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import UNSET, Raw

from tidegate.kv.keys import decode_meta_key
from tidegate.model.errors import SchemaError
from tidegate.schema.stored.definition import (
    MULTIPLE,
    PREVENT_NULL,
    UNIQUE,
    ElementState,
    StoredPartition,
    StoredSchema,
    StoredTable,
    parse_stored,
)
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion

_T = TypeVar("_T")
_NULL: Final = Raw(b"null")
_UNSHOWN: Final[dict[str, object]] = {
    **dict.fromkeys(("auto_inc_id", "auto_id_cache", "auto_rand_id", "update_timestamp", "revision"), 0),
    **dict.fromkeys(("max_col_id", "max_idx_id", "max_fk_id", "max_cst_id"), 0),
    **dict.fromkeys(("lock", "tiflash_replica", "stats_options", "exchange_partition_info"), _NULL),
    "mode": UNSET,
}
"""Members of a TableInfo that change without a change of what SQL shows."""

_SHOWN_OF_PARTITIONS: Final = ("type", "expr", "columns", "enable", "is_empty_columns", "definitions", "num")
_OWN_FLAGS: Final = ~(UNIQUE | MULTIPLE)


def defined_by(key: bytes) -> tuple[int, int] | None:
    """Return the ids of the database and the table that a schema key defines, 0 for no table; None for counters,
    differences and past jobs."""
    meta_key = decode_meta_key(key)
    name, field = meta_key.name, meta_key.field or b""
    if name == b"DBs" and field.startswith(b"DB:"):
        return int(field[3:]), 0
    if name.startswith(b"DB:") and field.startswith(b"Table:"):
        return int(name[3:]), int(field[6:])
    return None


def shown(table: StoredTable) -> StoredTable:
    """Return the definition with the elements that SQL shows: those that are public, in their order."""
    change = msgspec.structs.replace
    columns = [column for column in table.cols or [] if column.state == ElementState.PUBLIC]
    offsets = {column.offset: offset for offset, column in enumerate(columns)}
    indexes = [index for index in table.index_info or [] if index.state == ElementState.PUBLIC]
    partition = None
    if table.partition is not None and table.partition.enable:
        partition = StoredPartition(**{name: getattr(table.partition, name) for name in _SHOWN_OF_PARTITIONS})
    return change(
        table,
        cols=[
            change(
                column,
                offset=offset,
                change_state_info=None,
                changing_type=UNSET,
                type=change(column.type, flag=column.type.flag & ~PREVENT_NULL),
            )
            for offset, column in enumerate(columns)
        ],
        index_info=[
            change(
                index,
                idx_cols=[change(part, offset=offsets.get(part.offset, -1)) for part in index.idx_cols],
                backfill_state=0,
            )
            for index in indexes
        ],
        fk_info=[key for key in table.fk_info or [] if key.state == ElementState.PUBLIC],
        constraint_info=[check for check in table.constraint_info or [] if check.state == ElementState.PUBLIC],
        partition=partition,
    )


class _Versions(Generic[_T]):
    """Values by the commit_ts from which they hold, oldest first; None where there is none."""

    __slots__ = ("times", "values")

    def __init__(self) -> None:
        self.times: list[int] = []
        self.values: list[_T | None] = []

    def below(self, commit_ts: int) -> _T | None:
        """Return the value before `commit_ts`."""
        index = bisect_left(self.times, commit_ts)
        return self.values[index - 1] if index else None

    def set(self, ts: int, value: _T | None) -> None:
        if self.times and self.times[-1] == ts:
            self.values[-1] = value
        else:
            self.times.append(ts)
            self.values.append(value)

    def release(self, ts: int) -> bool:
        """Drop the values that nothing above `ts` needs; return whether nothing is left."""
        index = max(bisect_right(self.times, ts) - 1, 0)
        if index < len(self.times) and self.times[index] <= ts and self.values[index] is None:
            index += 1
        del self.times[:index], self.values[:index]
        return not self.times


@dataclass(slots=True)
class _Definition:
    """A table's TableInfo: `raw` until it is parsed."""

    schema_id: int
    ts: int
    raw: bytes = b""
    version: TableVersion | None = None


class _Brief(msgspec.Struct):
    """What tells where rows of a TableInfo lie."""

    class Partition(msgspec.Struct):
        class Definition(msgspec.Struct):
            id: int

        enable: bool = True
        definitions: list[Definition] | None = None

    id: int
    state: int = ElementState.PUBLIC
    partition: Partition | None = None

    @property
    def physical_ids(self) -> Iterable[int]:
        if self.partition is None or not self.partition.enable:
            return (self.id,)
        return (definition.id for definition in self.partition.definitions or ())


class DefinitionHistory:
    """The databases and tables by commit_ts: those of `keys` at `ts`, then what `change` brings."""

    def __init__(self, ts: int, keys: Iterable[tuple[bytes, bytes]]) -> None:
        self._first_ts = self._begin_ts = self._newest_ts = ts
        self._schemas: dict[int, _Versions[StoredSchema]] = {}
        self._tables: dict[int, _Versions[_Definition]] = {}
        self._owners: dict[int, _Versions[int]] = {}
        for key, value in keys:
            self._put(key, value, ts)

    @classmethod
    def of(cls, snapshot: StoredSnapshot) -> "DefinitionHistory":
        """Return the history that begins with a loaded snapshot."""
        history = cls(snapshot.ts, ())
        for schema_id, schema in snapshot.schemas.items():
            history._schemas.setdefault(schema_id, _Versions()).set(snapshot.ts, schema)
        for table_id, version in snapshot.tables.items():
            public = replace(version, stored=shown(version.stored))
            definition = _Definition(version.schema_id, snapshot.ts, version=public)
            history._tables.setdefault(table_id, _Versions()).set(snapshot.ts, definition)
            for physical_id in public.stored.physical_ids:
                history._owners.setdefault(physical_id, _Versions()).set(snapshot.ts, table_id)
        return history

    def change(self, key: bytes, value: bytes | None, commit_ts: int) -> None:
        """Follow a change of a schema key, None for a deletion; of one commit_ts in any order. SchemaError for one
        below the newest, or for an invalid definition."""
        if commit_ts < self._newest_ts:
            raise SchemaError(
                f"a definition of commit_ts {commit_ts} follows one of {self._newest_ts}: read the log again from "
                f"the begin"
            )
        self._newest_ts = commit_ts
        if value is not None:
            self._put(key, value, commit_ts)
        elif (subject := defined_by(key)) is not None:
            schema_id, table_id = subject
            if not table_id:
                self._schemas.setdefault(schema_id, _Versions()).set(commit_ts, None)
            else:
                self._remove(schema_id, table_id, commit_ts)

    def table_of(self, physical_id: int, commit_ts: int) -> TableVersion | None:
        """Return the definition for a row of that id and commit_ts; None for an id that no table has then. SchemaError
        below the begin, and for a definition that is not valid."""
        if commit_ts <= self._begin_ts:
            raise SchemaError(
                f"the schema before {commit_ts} is forgotten; the oldest known one is at {self._begin_ts}"
            )
        owner = self._owners.get(physical_id)
        table_id = None if owner is None else owner.below(commit_ts)
        version = None if table_id is None else self._version(table_id, commit_ts)
        return version if version is not None and physical_id in version.stored.physical_ids else None

    def snapshot(self, ts: int) -> StoredSnapshot:
        """Return all definitions at `ts`."""
        versions = (self._version(table_id, ts + 1) for table_id in self._tables)
        tables = {version.stored.id: version for version in versions if version is not None}
        schemas = {schema_id: versions.below(ts + 1) for schema_id, versions in self._schemas.items()}
        return StoredSnapshot(
            ts,
            {schema_id: schema for schema_id, schema in schemas.items() if schema is not None},
            tables,
            {physical_id: table_id for table_id, table in tables.items() for physical_id in table.stored.physical_ids},
        )

    def release(self, ts: int) -> None:
        """Forget what no row above `ts` needs."""
        self._begin_ts = max(self._begin_ts, min(ts, self._newest_ts))
        kept: dict[int, Any]
        for kept in (self._schemas, self._tables, self._owners):
            for key in [key for key, versions in kept.items() if versions.release(self._begin_ts)]:
                del kept[key]

    def _put(self, key: bytes, value: bytes, ts: int) -> None:
        subject = defined_by(key)
        if subject is None:
            return
        schema_id, table_id = subject
        if not table_id:
            schema = parse_stored(value, StoredSchema)
            is_shown = schema.state == ElementState.PUBLIC
            self._schemas.setdefault(schema_id, _Versions()).set(ts, schema if is_shown else None)
            return
        brief = parse_stored(value, _Brief)
        if brief.state != ElementState.PUBLIC:
            self._remove(schema_id, table_id, ts)
            return
        definition = _Definition(schema_id, ts, value)
        versions = self._tables.setdefault(table_id, _Versions())
        before = versions.below(ts + 1)
        is_other = before is None or before.schema_id != schema_id or before.ts == ts
        if before is not None and not is_other and _shape(self._parsed(before)) == _shape(self._parsed(definition)):
            return
        versions.set(ts, definition)
        for physical_id in brief.physical_ids:
            self._owners.setdefault(physical_id, _Versions()).set(ts, table_id)

    def _remove(self, schema_id: int, table_id: int, ts: int) -> None:
        versions = self._tables.get(table_id)
        if versions is not None and (before := versions.below(ts + 1)) is not None and before.schema_id == schema_id:
            versions.set(ts, None)

    def _version(self, table_id: int, commit_ts: int) -> TableVersion | None:
        versions = self._tables.get(table_id)
        definition = None if versions is None else versions.below(commit_ts)
        if definition is None:
            return None
        schemas = self._schemas.get(definition.schema_id)
        return None if schemas is None or schemas.below(commit_ts) is None else self._parsed(definition)

    def _parsed(self, definition: _Definition) -> TableVersion:
        if definition.version is None:
            stored = shown(parse_stored(definition.raw, StoredTable))
            schemas = self._schemas.get(definition.schema_id)
            schema = None if schemas is None else next((each for each in reversed(schemas.values) if each), None)
            number = stored.update_timestamp if definition.ts <= self._first_ts else definition.ts
            definition.version = TableVersion(
                definition.schema_id, "" if schema is None else schema.name.original, stored, number
            )
            definition.raw = b""
        return definition.version


def _shape(version: TableVersion) -> StoredTable:
    """The definition without what SQL does not show; flags of secondary keys follow from the indexes."""
    columns = [
        msgspec.structs.replace(column, type=msgspec.structs.replace(column.type, flag=column.type.flag & _OWN_FLAGS))
        for column in version.stored.cols or []
    ]
    return msgspec.structs.replace(version.stored, cols=columns, **_UNSHOWN)
