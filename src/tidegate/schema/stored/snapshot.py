"""Snapshots of all stored definitions: loaded from the store, changed by finished DDL jobs, kept over time.

    snapshot ── apply_job(job, commit_ts) ──► next snapshot          by action:

    CREATE TABLE, VIEW, RECOVER    add                     DROP TABLE, VIEW      remove
    TRUNCATE TABLE                 remove, add under the new id; the old ids are remembered as truncated
    RENAME                         remove, add under the new name; of several tables all are removed first
    partitions                     replace; TRUNCATE and DROP PARTITION remember the removed ids
    EXCHANGE PARTITION             the partitioned table is replaced, the other one takes the id that went out of it
    PARTITION BY, REMOVE ..        remove the old id, add the new one
    databases                      add, replace, remove with all tables
    other actions of the list      replace the definition
    anything else                  nothing: TiCDC does not follow it

A RENAME that names one table twice fails, as it does in TiCDC, and leaves the snapshot as it was.

    SchemaHistory   start ── job at 10 ──► snapshot ── job at 20 ──► snapshot     at(15): the one of 10

Jobs come in the order of their commit_ts; each counts once, however often its row is written after it is done.

`load` reads one schema version at one timestamp, from an older one by differences where it can.  A table that no
difference names keeps its object, so `is` tells what changed.

    own 181, newest 184      Diff:182  Diff:183  Diff:184      three small reads and the tables they name
    own 181, newest 184      Diff:182  missing   Diff:184      183 was never committed: skipped
    own 181, newest 184      Diff:182  Diff:183  missing       184 is not committed yet: stop at 183
    own 12, newest 184       too far: all definitions anew

`table_info` turns a StoredTable into model.TableInfo.  `incarnation` is "t45", by the table's id, which stays through
RENAME and ALTER and is new after CREATE and TRUNCATE.  The primary key of an integer handle is an index of id 0, since
TiDB stores none.  Hidden columns of an index's expression are left out; the index has '' in their place.  Defaults are
text, or bytes for BIT and binary strings; a TIMESTAMP literal is in UTC.  Only public elements take part unless
`every_state` is set: mounting reads rows with all that a definition names.

Source: TiCDC's schema storage (snapshot.go) and DDL puller; TiDB pkg/meta/model, pkg/infoschema (builder, loader).
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from tidegate.model.errors import SchemaError, TableNotFound
from tidegate.model.mysql import STRINGS, ActionType, MysqlType
from tidegate.model.table import (
    ColumnInfo,
    ColumnType,
    IndexInfo,
    PartitionDef,
    PartitionInfo,
    TableInfo,
    TableName,
)
from tidegate.schema.columns import own_collation
from tidegate.schema.job import Job, JobState, SchemaDiff
from tidegate.schema.stored.arguments import RenameTableArgs, RenameTablesArgs
from tidegate.schema.stored.definition import (
    AUTO_INCREMENT,
    NOT_NULL,
    PARTITION_METHODS,
    PRIMARY,
    ElementState,
    Name,
    StoredColumn,
    StoredIndex,
    StoredPartition,
    StoredSchema,
    StoredTable,
    column_type,
)
from tidegate.schema.stored.meta import Meta

_COUNTED: Final = frozenset({"HASH", "KEY"})
_MOMENTS: Final = frozenset({MysqlType.TIMESTAMP, MysqlType.DATETIME, MysqlType.DATE})


def table_info(table: StoredTable, schema: str, version: int, *, every_state: bool = False) -> TableInfo:
    """Return the definition of a table of database `schema`, valid from `version` on."""
    columns = table.cols or []
    shown = [column for column in columns if not column.hidden and (every_state or column.state == ElementState.PUBLIC)]
    indexes = [
        _index(index, columns, clustered=table.is_common_handle if index.is_primary else None)
        for index in table.index_info or []
        if every_state or index.state == ElementState.PUBLIC
    ]
    handle = [column.name.original for column in columns if table.pk_is_handle and column.type.flag & PRIMARY]
    if handle:
        indexes.append(IndexInfo(0, "PRIMARY", (handle[0],), unique=True, primary=True, clustered=True))
    return TableInfo(
        name=TableName(schema, table.name.original),
        incarnation=f"t{table.id}",
        version=version,
        columns=tuple(map(_column, shown)),
        indexes=tuple(sorted(indexes, key=lambda index: not index.primary)),
        partition=_partition(table.partition),
        charset=table.charset,
        comment=table.comment,
        max_column_id=table.max_col_id,
        max_index_id=table.max_idx_id,
        max_fk_id=table.max_fk_id,
        collation=own_collation(table.collate, table.charset),
    )


def _column(column: StoredColumn) -> ColumnInfo:
    kind = column_type(column.type)
    return ColumnInfo(
        id=column.id,
        name=column.name.original,
        type=kind,
        nullable=not column.type.flag & NOT_NULL,
        default=_default(column.default, column.default_bit, kind),
        default_is_expr=column.default_is_expr
        or (kind.code in _MOMENTS and str(column.default or "").upper().startswith("CURRENT_")),
        origin_default=_default(column.origin_default, column.origin_default_bit, kind),
        generated=column.generated_expr_string or None,
        stored=column.generated_stored,
        comment=column.comment,
        auto_increment=bool(column.type.flag & AUTO_INCREMENT),
        collation=own_collation(column.type.collate, kind.charset),
    )


def _default(text: str | float | None, bits: bytes | None, kind: ColumnType) -> str | bytes | None:
    if kind.code is MysqlType.BIT and bits is not None:
        return bits
    if text is None:
        return None
    if kind.charset == "binary" and kind.code in STRINGS:
        return str(text).encode()
    return str(text)


def _index(index: StoredIndex, columns: list[StoredColumn], *, clustered: bool | None) -> IndexInfo:
    hidden = {column.name.lower for column in columns if column.hidden}
    names = tuple("" if part.name.lower in hidden else part.name.original for part in index.idx_cols)
    return IndexInfo(
        index.id,
        index.idx_name.original,
        names,
        index.is_unique,
        index.is_primary,
        not index.is_invisible,
        clustered,
    )


def _partition(partition: StoredPartition | None) -> PartitionInfo | None:
    if partition is None or not partition.enable or partition.type not in PARTITION_METHODS:
        return None
    method = PARTITION_METHODS[partition.type]
    definitions = tuple(
        PartitionDef(
            definition.name.original,
            tuple(definition.less_than or ()),
            tuple(tuple(values) for values in definition.in_values or ()),
        )
        for definition in partition.definitions or ()
    )
    return PartitionInfo(
        method,
        partition.expr,
        tuple(name.original for name in partition.columns or ()),
        definitions,
        len(definitions) if method in _COUNTED else 0,
    )


REPLICATED: Final = frozenset(
    {1, 2, 26, 3, 60, 4, 11, 14, 47, 25, 17, 22, 21, 24, 19, 20, 23, 42, 64, 71, 72, 5, 6, 12, 15}
    | {13, 32, 33, 7, 8, 18, 41, 65, 67, 61, 9, 10, 37, 38}
)
"""The actions that TiCDC follows, by TiDB's ActionType."""
_OLD_ARGUMENTS: Final = (
    *("old_schema_id", "new_schema_id", "new_table_name", "table_id", "old_schema_name", "old_table_name"),
)


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table's definition since `version`, the commit_ts of its last DDL."""

    schema_id: int
    schema: str
    stored: StoredTable
    version: int


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """Definitions by id; `logical` maps the ids of keys (tables and partitions) to tables."""

    ts: int = 0
    schemas: Mapping[int, StoredSchema] = field(default_factory=dict)
    tables: Mapping[int, TableVersion] = field(default_factory=dict)
    logical: Mapping[int, int] = field(default_factory=dict)
    truncated: frozenset[int] = frozenset()

    def table_of(self, physical_id: int) -> TableVersion | None:
        """Return the table whose rows lie under that id; None when there is none."""
        logical = self.logical.get(physical_id)
        return None if logical is None else self.tables.get(logical)


def apply_job(snapshot: StoredSnapshot, job: Job, commit_ts: int) -> StoredSnapshot:
    """Return the snapshot after a finished job; SchemaError when job and snapshot disagree."""
    if job.type not in REPLICATED or job.binlog is None or job.binlog.schema_version == 0:
        return snapshot
    draft = _Draft(snapshot, job, commit_ts)
    _STEPS.get(job.type, _replace_table)(draft)
    return draft.finish()


class _Draft:
    """The next snapshot while one job is applied."""

    def __init__(self, snapshot: StoredSnapshot, job: Job, commit_ts: int) -> None:
        self.job, self.ts, self.old = job, commit_ts, snapshot
        self.schemas, self.tables = dict(snapshot.schemas), dict(snapshot.tables)
        self.truncated = set(snapshot.truncated)

    def finish(self) -> StoredSnapshot:
        owners = {
            physical: table_id for table_id, table in self.tables.items() for physical in table.stored.physical_ids
        }
        return replace(
            self.old,
            ts=self.ts,
            schemas=self.schemas,
            tables=self.tables,
            logical=owners,
            truncated=frozenset(self.truncated - owners.keys()),
        )

    @property
    def definition(self) -> StoredTable:
        """The definition after the job."""
        table = self.job.binlog and self.job.binlog.table
        if not table:
            raise self.error("the job has no table definition")
        return table

    def error(self, what: str) -> SchemaError:
        return SchemaError(f"DDL job {self.job.id} at {self.ts} ({self.job.query!a:.200}): {what}")

    def remove(self, table_id: int) -> TableVersion:
        table = self.tables.pop(table_id, None)
        if table is None:
            raise self.error(f"table {table_id} is not in the schema")
        return table

    def add(self, stored: StoredTable, schema_id: int, schema: str = "") -> None:
        existing = self.schemas.get(schema_id)
        name = existing.name.original if existing else schema or self.job.schema_name
        if existing is None:
            self.schemas[schema_id] = StoredSchema(schema_id, Name.of(name))
        self.tables[stored.id] = TableVersion(schema_id, name, stored, self.ts)

    def forget(self, before: Iterable[int], after: Iterable[int]) -> None:
        self.truncated |= set(before) - set(after)


def _create_schema(draft: _Draft) -> None:
    schema = draft.job.binlog and draft.job.binlog.schema
    if not schema:
        raise draft.error("the job has no database")
    draft.schemas[schema.id] = schema


def _drop_schema(draft: _Draft) -> None:
    draft.schemas.pop(draft.job.schema_id, None)
    draft.tables = {i: table for i, table in draft.tables.items() if table.schema_id != draft.job.schema_id}


def _create_table(draft: _Draft) -> None:
    for stored in (draft.job.binlog and draft.job.binlog.tables) or [draft.definition]:
        for table_id, other in list(draft.tables.items()) if stored.is_view else ():
            if other.stored.is_view and (other.schema_id, other.stored.name.lower) == (
                draft.job.schema_id,
                stored.name.lower,
            ):
                draft.remove(table_id)
        draft.add(stored, draft.job.schema_id)


def _drop_table(draft: _Draft) -> None:
    draft.remove(draft.job.table_id)


def _truncate_table(draft: _Draft) -> None:
    old = draft.remove(draft.job.table_id)
    draft.forget(old.stored.physical_ids, ())
    draft.add(draft.definition, old.schema_id)


def _rename_table(draft: _Draft) -> None:
    draft.remove(draft.job.table_id)
    draft.add(draft.definition, draft.job.schema_id)


def _rename_tables(draft: _Draft) -> None:
    steps = rename_steps(draft.job)
    tables = (draft.job.binlog and draft.job.binlog.tables) or []
    if len(steps) != len(tables):
        raise draft.error(f"{len(steps)} renames and {len(tables)} definitions")
    last = {step.table_id: (stored, step.new_schema_id) for step, stored in zip(steps, tables, strict=True)}
    for table_id in last:
        draft.remove(table_id)
    for stored, schema_id in last.values():
        draft.add(stored, schema_id)


def is_circle(job: Job) -> bool:
    """Return True for a RENAME that takes a table twice, as RENAME TABLE a TO x, b TO a, x TO b does."""
    moved = [step.table_id for step in rename_steps(job)] if job.type == ActionType.RENAME_TABLES else []
    return len(moved) != len(set(moved))


def rename_steps(job: Job) -> list[RenameTableArgs]:
    """Return the moves of a RENAME of several tables, in order; SchemaError for arguments of another job.

    They are an object since version 2, before that lists: of old schemas, new schemas, new names, table ids, names of
    old schemas, old names."""
    raw = bytes(job.raw_args)
    try:
        if job.version > 1:
            return msgspec.json.decode(raw, type=RenameTablesArgs).rename_table_infos
        lists = msgspec.json.decode(raw, type=list[list[Any]])
        filled = [values if len(values) == len(lists[3]) else [{}] * len(lists[3]) for values in lists]
        steps = [dict(zip(_OLD_ARGUMENTS, step, strict=True)) for step in zip(*filled, strict=True)]
        return [msgspec.convert(step, RenameTableArgs) for step in steps]
    except (msgspec.MsgspecError, IndexError, ValueError, RecursionError) as error:
        raise SchemaError(
            f"DDL job {job.id} ({job.query!a:.200}): its arguments are not those of a rename: {error}"
        ) from error


def _replace_table(draft: _Draft) -> None:
    stored = draft.definition
    old = draft.tables.get(stored.id)
    if old is not None and draft.job.type in _REPARTITIONS:
        draft.forget(old.stored.physical_ids, stored.physical_ids)
    draft.add(stored, old.schema_id if old else draft.job.schema_id)


def _exchange_partition(draft: _Draft) -> None:
    stored = draft.definition
    old = draft.remove(stored.id)
    gone = set(old.stored.physical_ids) - set(stored.physical_ids)
    come = set(stored.physical_ids) - set(old.stored.physical_ids)
    if len(gone) != 1 or len(come) != 1:
        raise draft.error(f"partitions {sorted(gone)} went and {sorted(come)} came where one table is exchanged")
    other = draft.remove(come.pop())
    draft.add(stored, old.schema_id)
    draft.add(msgspec.structs.replace(other.stored, id=gone.pop()), other.schema_id)


_REPARTITIONS: Final = frozenset({20, 23})
_STEPS: Final[Mapping[int, Callable[[_Draft], None]]] = {
    1: _create_schema,
    26: _create_schema,
    2: _drop_schema,
    **dict.fromkeys((3, 21, 25, 60), _create_table),
    **dict.fromkeys((4, 24), _drop_table),
    11: _truncate_table,
    14: _rename_table,
    47: _rename_tables,
    42: _exchange_partition,
    **dict.fromkeys((71, 72), _rename_table),
}


class SchemaHistory:
    """Snapshots by the commit_ts of their DDL, oldest first."""

    def __init__(self, start: StoredSnapshot | None = None) -> None:
        self._snapshots = [start or StoredSnapshot()]
        self._jobs: set[int] = set()

    def apply(self, job: Job, commit_ts: int) -> None:
        """Apply a finished job to the newest snapshot; other and repeated jobs change nothing. SchemaError for a job
        that contradicts it: the history then stays unchanged."""
        if job.state not in (JobState.DONE, JobState.SYNCED) or job.id in self._jobs:
            return
        newest = self._snapshots[-1]
        if commit_ts < newest.ts:
            raise SchemaError(f"DDL job {job.id} at {commit_ts} comes after one at {newest.ts}; sort jobs by commit_ts")
        changed = apply_job(newest, job, commit_ts)
        self._jobs.add(job.id)
        if changed is not newest:
            self._snapshots.append(changed)

    def at(self, ts: int) -> StoredSnapshot:
        """Return the snapshot at `ts`: all DDLs up to it. SchemaError below the oldest one."""
        index = bisect_right(self._snapshots, ts, key=lambda snapshot: snapshot.ts)
        if index == 0:
            raise SchemaError(f"the schema at {ts} is forgotten; the oldest known one is at {self._snapshots[0].ts}")
        return self._snapshots[index - 1]

    def table_of(self, physical_id: int, commit_ts: int) -> TableVersion | None:
        """Return the definition for a row of that id and commit_ts; None for a truncated id. Raises TableNotFound."""
        snapshot = self.at(commit_ts - 1)
        version = snapshot.table_of(physical_id)
        if version is None and physical_id not in snapshot.truncated:
            raise TableNotFound(f"table {physical_id} is not in the schema at {commit_ts - 1}")
        return version

    def forget(self, ts: int) -> None:
        """Drop the snapshots that no row above `ts` needs."""
        index = bisect_right(self._snapshots, ts, key=lambda snapshot: snapshot.ts)
        del self._snapshots[: max(index - 1, 0)]


DIFFS_MAX: Final = 100
"""Maximal number of diffs that are read one by one; beyond it a full load is cheaper."""

_CREATE_SCHEMA, _DROP_SCHEMA, _ALTER_SCHEMA, _RECOVER_SCHEMA = 1, 2, 26, 63


@dataclass(frozen=True, slots=True)
class LoadedSchema:
    """The definitions of one version; `snapshot.ts` is the timestamp at which they were read."""

    version: int
    snapshot: StoredSnapshot


def load(meta: Meta, ts: int, before: LoadedSchema | None = None) -> LoadedSchema:
    """Return the schema at `ts`, read by diffs from `before` if possible."""
    newest = _usable(meta)
    if before is None or newest < before.version or newest - before.version > DIFFS_MAX:
        return load_all(meta, ts)
    changed: set[int] = set()
    schemas: set[int] = set()
    for version in range(before.version + 1, newest + 1):
        diff = meta.diff(version)
        if diff is None:
            continue
        if diff.regenerate_schema_map or diff.type == _RECOVER_SCHEMA:
            return load_all(meta, ts)
        _note(diff, changed, schemas)
    return LoadedSchema(newest, _updated(meta, ts, before.snapshot, changed, schemas))


def load_all(meta: Meta, ts: int) -> LoadedSchema:
    """Return the schema at `ts`, fully loaded."""
    schemas = {schema.id: schema for schema in meta.schemas()}
    tables = {
        table.id: TableVersion(schema.id, schema.name.original, table, table.update_timestamp)
        for schema in schemas.values()
        for table in meta.tables(schema.id)
    }
    return LoadedSchema(_usable(meta), _snapshot(ts, schemas, tables))


def _usable(meta: Meta) -> int:
    """Return the newest version whose step is committed or was abandoned."""
    newest = meta.version
    return newest if newest == 0 or meta.diff(newest) is not None else newest - 1


def _note(diff: SchemaDiff, changed: set[int], schemas: set[int]) -> None:
    """Collect the tables and databases of a schema diff, by old and new ids."""
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
    """Return the old snapshot with these tables and databases read again."""
    named = (named | {old.tables[table].schema_id for table in changed if table in old.tables}) - {0}
    schemas, tables = dict(old.schemas), dict(old.tables)
    fresh: set[int] = set()
    for schema_id in named:
        schema = meta.schema(schema_id)
        if schema is None:
            schemas.pop(schema_id, None)
            changed = changed | {number for number, item in tables.items() if item.schema_id == schema_id}
        elif schema_id not in schemas:
            fresh.add(schema_id)
            schemas[schema_id] = schema
        elif schema != schemas[schema_id]:
            schemas[schema_id] = schema
    for table_id in changed:
        tables.pop(table_id, None)
    for schema_id in named & schemas.keys():
        name = schemas[schema_id].name.original
        infos = meta.tables(schema_id) if schema_id in fresh else [meta.table(schema_id, i) for i in changed - {0}]
        for table in infos:
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
        tables = {number: _same(old.tables.get(number), table) for number, table in tables.items()}
    logical = {physical: number for number, table in tables.items() for physical in table.stored.physical_ids}
    return replace(StoredSnapshot(), ts=ts, schemas=schemas, tables=tables, logical=logical)


def _same(old: TableVersion | None, new: TableVersion) -> TableVersion:
    return old if old is not None and old == new else new
