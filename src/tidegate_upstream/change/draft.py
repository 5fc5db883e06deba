"""The definitions that a statement is planned against, and those that a step of a job changes.

`Catalog` looks up tables and databases by name while a statement is planned.  Names compare without case.  Only public
tables exist for statements; a name that a queued job is about to use may still clash when the job runs, and then the
job fails.

`Draft` collects the changes of one step.  `draft.table(request)` is the table as the step found it, or as an earlier
part of the step left it; `draft.update(request, table)` stores its new form with `revision` + 1 and, for most actions,
the transaction's start_ts.  Columns and indexes are looked up by name; offsets follow from the order of `cols`.

`StepOutcome` is the result, plain data that the job engine writes in one transaction with the job's row:

    puts, removes              keys Table:<id> below DB:<schema id>
    schemas_put, _removed      keys DB:<id>
    diff                       key Diff:<version>: the engine fills in the version; None = no version is needed
    counters                   keys TID/IID/TARID/SID to set, copy or delete
    task                       what must be finished, with all nodes at this step, before the next one
    ranges                     keys to delete once the job is over, noted while the definition still has them
    done, binlog members       of the step that finishes the job

Source: TiDB pkg/meta (Mutator.UpdateTable), pkg/meta/model/table.go (MoveColumnInfo), pkg/infoschema, pkg/ddl
(job_worker.go, meta mutator), pkg/meta/meta.go; MySQL's error numbers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import msgspec

from tidegate.kv.keys import index_prefix, table_prefix
from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.model.table import TableName
from tidegate.schema.job import SchemaDiff
from tidegate.schema.stored.definition import (
    MULTIPLE,
    PRIMARY,
    UNIQUE,
    ElementState,
    StoredColumn,
    StoredForeignKey,
    StoredIndex,
    StoredPart,
    StoredSchema,
    StoredTable,
)
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate_upstream.change.request import Request
from tidegate_upstream.errors import missing_name
from tidegate_upstream.f1 import Work


class Catalog:
    """The public tables of a snapshot by name."""

    def __init__(self, snapshot: StoredSnapshot) -> None:
        self._schemas = {
            schema.name.lower: schema for schema in snapshot.schemas.values() if schema.state == ElementState.PUBLIC
        }
        self._tables = {
            (snapshot.schemas[table.schema_id].name.lower, table.stored.name.lower): table
            for table in snapshot.tables.values()
            if table.stored.state == ElementState.PUBLIC and table.schema_id in snapshot.schemas
        }

    def find_schema(self, name: str) -> StoredSchema | None:
        """Return the database of that name; None if there is none."""
        return self._schemas.get(lowered(name))

    def schema(self, name: str) -> StoredSchema:
        """Return the database of that name; SqlRefused 1049, or 1046 if no database is selected."""
        if not name:
            raise SqlRefused(1046, "No database selected", "3D000")
        schema = self.find_schema(name)
        if schema is None:
            raise SqlRefused(1049, f"Unknown database '{name}'", "42000")
        return schema

    def find(self, name: TableName) -> TableVersion | None:
        """Return the table, view or sequence of that name; None if there is none."""
        return self._tables.get(name.key)

    def table(self, name: TableName) -> TableVersion:
        """Return the base table of that name; SqlRefused 1046, 1049 or 1146, 1347 for a view or sequence."""
        if not name.schema:
            raise SqlRefused(1046, "No database selected", "3D000")
        table = self.find(name)
        if table is None:
            raise missing_name(*name)
        if table.stored.is_view or table.stored.is_sequence:
            raise SqlRefused(1347, f"'{name.schema}.{name.table}' is not BASE TABLE", "HY000")
        return table

    def children(self, name: TableName) -> Iterator[tuple[TableVersion, StoredForeignKey]]:
        """Return the tables, and their foreign keys, that refer to the table of that name."""
        for table in self._tables.values():
            for key in table.stored.fk_info or ():
                if (key.ref_schema.lower, key.ref_table.lower) == name.key:
                    yield table, key

    def renamed(self, old: TableName, new: TableName, table: TableVersion) -> None:
        """Rename a table."""
        del self._tables[old.key]
        schema = self.schema(new.schema)
        stored: StoredTable = msgspec.structs.replace(table.stored, name=type(table.stored.name).of(new.table))
        self._tables[new.key] = TableVersion(schema.id, schema.name.original, stored, table.version)


class Definitions(Protocol):
    """The definitions that the transaction of a step reads from TiDB's meta keys."""

    def schema(self, schema_id: int) -> StoredSchema | None:
        """Return the database DB:<id>; None when there is none."""

    def schemas(self) -> Iterable[StoredSchema]:
        """Return all databases."""

    def table(self, schema_id: int, table_id: int) -> StoredTable | None:
        """Return the table Table:<id> below that database, of any state; None when there is none."""

    def tables(self, schema_id: int) -> Iterable[StoredTable]:
        """Return all tables of a database, in the order of their ids."""


@dataclass(frozen=True, slots=True)
class Task:
    """Work on elements of a table, for the owner to finish while all nodes are at this step.

    `work` BACKFILL: a column of `columns` (new id -> old id) gets the cast of the old column's value in all rows;
    `indexes` get the entries of all rows; rows of `partitions` (ids) are copied into `targets` (ids, as of the table's
    `adding_definitions`).  VALIDATE, and BACKFILL of a primary key: columns of `not_null` must not hold NULL, values of
    columns in `fit` must fit the definition's `changing_type`, `foreign_keys` and `checks` (ids) must hold, rows of the
    table must fit partition `partitions[0]` of table `targets[0]`."""

    work: Work
    role: str
    schema_id: int
    table_id: int
    indexes: tuple[int, ...] = ()
    columns: Mapping[int, int] = field(default_factory=dict)
    not_null: tuple[int, ...] = ()
    fit: tuple[int, ...] = ()
    foreign_keys: tuple[int, ...] = ()
    checks: tuple[int, ...] = ()
    partitions: tuple[int, ...] = ()
    targets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteRange:
    """All keys of a table or partition, or of one index of it."""

    physical_id: int
    index_id: int | None = None

    @property
    def bounds(self) -> tuple[bytes, bytes]:
        """First key, and the key after the last."""
        if self.index_id is None:
            return table_prefix(self.physical_id), table_prefix(self.physical_id + 1)
        return index_prefix(self.physical_id, self.index_id), index_prefix(self.physical_id, self.index_id + 1)


@dataclass(frozen=True, slots=True)
class CounterChange:
    """A change of an id counter: `kind` TID, IID, TARID or SID of table `table_id`.

    `value` None deletes it.  Otherwise it becomes `value`, or the greatest of `value`, with `raise_only` its own value,
    with `at_ts` its own value at that timestamp, with `like` the value of that (schema id, table id)."""

    kind: str
    schema_id: int
    table_id: int
    value: int | None
    raise_only: bool = False
    at_ts: int = 0
    like: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The writes of one step's transaction, besides the job's own row.

    `request` is the request with its ids filled in. `state` is the job's `schema_state`. `table`, `schema`, `tables`
    are Binlog's members for the step that is `done`."""

    request: Request
    state: ElementState
    puts: tuple[tuple[int, StoredTable], ...] = ()
    removes: tuple[tuple[int, int], ...] = ()
    schemas_put: tuple[StoredSchema, ...] = ()
    schemas_removed: tuple[int, ...] = ()
    diff: SchemaDiff | None = None
    counters: tuple[CounterChange, ...] = ()
    tasks: tuple[Task, ...] = ()
    ranges: tuple[DeleteRange, ...] = ()
    done: bool = False
    table: StoredTable | None = None
    schema: StoredSchema | None = None
    tables: tuple[StoredTable, ...] = ()


States: TypeAlias = Mapping[str, ElementState]
"""Role -> state."""

_TRUNCATE_PARTITION: Final = 23


class Draft:
    """The next definitions while one step is carried out."""

    def __init__(self, definitions: Definitions, start_ts: int) -> None:
        self.definitions, self.start_ts = definitions, start_ts
        self.puts: dict[tuple[int, int], StoredTable] = {}
        self.removes: dict[tuple[int, int], None] = {}
        self.schemas_put: list[StoredSchema] = []
        self.schemas_removed: list[int] = []
        self.diff: SchemaDiff | None = None
        self.counters: list[CounterChange] = []
        self.tasks: list[Task] = []
        self.ranges: list[DeleteRange] = []
        self.result: StoredTable | None = None
        self.results: list[StoredTable] = []
        self.schema_result: StoredSchema | None = None

    def schema(self, schema_id: int, name: str) -> StoredSchema:
        """Return the database of that id; SqlRefused 1049 if it no longer exists."""
        schema = self.definitions.schema(schema_id)
        if schema is None:
            raise SqlRefused(1049, f"Unknown database '{name}'", "42000")
        return schema

    def find(self, schema_id: int, table_id: int) -> StoredTable | None:
        """Return the current table of that id; None if there is none."""
        key = (schema_id, table_id)
        if key in self.puts or key in self.removes:
            return self.puts.get(key)
        return self.definitions.table(schema_id, table_id)

    def table(self, request: Request) -> StoredTable:
        """Return the request's own table; SqlRefused 1146 if it no longer exists."""
        table = self.find(request.schema_id, request.table_id)
        if table is None:
            raise missing_name(request.schema_name, request.table_name)
        return table

    def put(self, schema_id: int, table: StoredTable, *, stamped: bool = False) -> StoredTable:
        """Write a table without counting a revision; `stamped` gives it the transaction's start_ts."""
        if stamped:
            table = msgspec.structs.replace(table, update_timestamp=self.start_ts)
        self.removes.pop((schema_id, table.id), None)
        self.puts[schema_id, table.id] = table
        self.result = table
        return table

    def update(self, request: Request, table: StoredTable) -> StoredTable:
        """Write the next revision of the request's table."""
        stamped = table.state == ElementState.PUBLIC and request.action != _TRUNCATE_PARTITION
        table = msgspec.structs.replace(table, revision=table.revision + 1)
        return self.put(request.schema_id, table, stamped=stamped)

    def remove(self, schema_id: int, table_id: int) -> None:
        """Remove a table's key."""
        self.puts.pop((schema_id, table_id), None)
        self.removes[schema_id, table_id] = None

    def free_name(self, request: Request, schema_id: int, name: str, *, but: int = 0) -> None:
        """Raise SqlRefused 1050 if another table of that database has that name."""
        put = [table for (schema, _), table in self.puts.items() if schema == schema_id]
        others = [
            table
            for table in self.definitions.tables(schema_id)
            if (schema_id, table.id) not in self.removes and (schema_id, table.id) not in self.puts
        ]
        if any(table.name.lower == lowered(name) and table.id != but for table in (*put, *others)):
            raise SqlRefused(1050, f"Table '{request.schema_name}.{name}' already exists", "42S01")

    def finish(self, request: Request, state: ElementState, *, done: bool) -> StepOutcome:
        """Return the outcome; Binlog members are set only for the step that is `done`."""
        return StepOutcome(
            request,
            state,
            puts=tuple((schema_id, table) for (schema_id, _), table in self.puts.items()),
            removes=tuple(self.removes),
            schemas_put=tuple(self.schemas_put),
            schemas_removed=tuple(self.schemas_removed),
            diff=self.diff,
            counters=tuple(self.counters),
            tasks=tuple(self.tasks),
            ranges=tuple(self.ranges),
            done=done,
            table=self.result if done else None,
            schema=self.schema_result if done else None,
            tables=tuple(self.results) if done else (),
        )


Move: TypeAlias = Callable[[Draft, Request, States, States], None]
"""Applies one step: (draft, request, states of the roles before, states after)."""


def column_of(table: StoredTable, name: str) -> StoredColumn | None:
    """Return the column of that name in any case, of any state."""
    folded = lowered(name)
    return next((column for column in table.cols or () if column.name.lower == folded), None)


def index_of(table: StoredTable, name: str) -> StoredIndex | None:
    """Return the index of that name in any case, of any state."""
    folded = lowered(name)
    return next((index for index in table.index_info or () if index.idx_name.lower == folded), None)


def with_columns(table: StoredTable, columns: list[StoredColumn]) -> StoredTable:
    """`table` with these columns in this order; offsets in indexes and of related columns follow.

    Indexes refer to a column by its id, so a renamed column stays in its indexes."""
    offsets = {column.id: offset for offset, column in enumerate(columns)}
    ids = [column.id for column in table.cols or ()]
    replaced = []
    for offset, column in enumerate(columns):
        info = column.change_state_info
        if info is not None and info.relative_col_offset < len(ids):
            related = offsets.get(ids[info.relative_col_offset], 0)
            info = msgspec.structs.replace(info, relative_col_offset=related)
        replaced.append(msgspec.structs.replace(column, offset=offset, change_state_info=info))

    def moved(part: StoredPart) -> StoredPart:
        offset = offsets.get(ids[part.offset])
        return part if offset is None else msgspec.structs.replace(part, name=columns[offset].name, offset=offset)

    indexes = [
        msgspec.structs.replace(index, idx_cols=[moved(part) for part in index.idx_cols])
        for index in table.index_info or ()
    ]
    return msgspec.structs.replace(table, cols=replaced, index_info=indexes if table.index_info else table.index_info)


def known_index(table: StoredTable, name: str) -> StoredIndex:
    """Return the index of that name in any case; SqlRefused 1176."""
    index = index_of(table, name)
    if index is None:
        raise SqlRefused(1176, f"Key '{name}' doesn't exist in table '{table.name.original}'", "42000")
    return index


def move_column(table: StoredTable, column: StoredColumn, to: int) -> StoredTable:
    """`table` with `column` (by its id, in this new form) at offset `to`."""
    rest = [other for other in table.cols or () if other.id != column.id]
    return with_columns(table, [*rest[:to], column, *rest[to:]])


def with_index(table: StoredTable, index: StoredIndex) -> StoredTable:
    """Return `table` with the index of that id in this form, at its old position or last."""
    indexes = list(table.index_info or ())
    position = next((offset for offset, other in enumerate(indexes) if other.id == index.id), len(indexes))
    return msgspec.structs.replace(table, index_info=[*indexes[:position], index, *indexes[position + 1 :]])


def with_flag(table: StoredTable, offsets: list[int], add: int = 0, remove: int = 0) -> StoredTable:
    """`table` with flag bits of the columns at those offsets set and cleared."""
    columns = list(table.cols or ())
    for offset in offsets:
        kind = columns[offset].type
        kind = msgspec.structs.replace(kind, flag=(kind.flag | add) & ~remove)
        columns[offset] = msgspec.structs.replace(columns[offset], type=kind)
    return msgspec.structs.replace(table, cols=columns)


def _offsets(index: StoredIndex) -> list[int]:
    parts = index.idx_cols if index.is_primary else index.idx_cols[:1]
    return [part.offset for part in parts]


def _bit(index: StoredIndex) -> int:
    if index.is_primary:
        return PRIMARY
    return UNIQUE if index.is_unique and len(index.idx_cols) == 1 else MULTIPLE


def with_index_flags(table: StoredTable, index: StoredIndex) -> StoredTable:
    """`table` with the flag bits that `index` sets on its columns."""
    return with_flag(table, _offsets(index), add=_bit(index))


def without_index(table: StoredTable, index: StoredIndex) -> StoredTable:
    """`table` without `index`; its columns keep the flag bits of other indexes."""
    rest = [kept for kept in table.index_info or () if kept.id != index.id]
    table = with_flag(msgspec.structs.replace(table, index_info=rest), _offsets(index), remove=_bit(index))
    for other in rest:
        if other.idx_cols and other.idx_cols[0].offset in _offsets(index):
            table = with_index_flags(table, other)
    return table
