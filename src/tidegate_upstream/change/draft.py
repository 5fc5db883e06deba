"""The definitions while one step changes them, and the small changes that all moves are made of.

    draft.table(request)            as the step found it, or as an earlier part of the step left it
    draft.update(request, table)    its new form: one more `revision`, mostly stamped with the transaction's start_ts
    columns and indexes             are found by name; positions follow from the order of `cols`

Source: TiDB pkg/meta (Mutator.UpdateTable), pkg/meta/model/table.go (MoveColumnInfo).
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.schema.job import SchemaDiff
from tidegate.schema.stored.definition import (
    ChangeState,
    StoredColumn,
    StoredIndex,
    StoredPart,
    StoredSchema,
    StoredTable,
)
from tidegate.schema.stored.flags import MULTIPLE, PRIMARY, UNIQUE
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.change.outcome import CounterChange, Definitions, DeleteRange, StepOutcome, Task
from tidegate_upstream.change.request import Request

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
        """Return the database of that id; SqlRefused 1049 when it is gone."""
        found = self.definitions.schema(schema_id)
        if found is None:
            raise SqlRefused(1049, f"Unknown database '{name}'", "42000")
        return found

    def find(self, schema_id: int, table_id: int) -> StoredTable | None:
        """Return the table of that id as it is now; None when there is none."""
        key = (schema_id, table_id)
        if key in self.puts or key in self.removes:
            return self.puts.get(key)
        return self.definitions.table(schema_id, table_id)

    def table(self, request: Request) -> StoredTable:
        """Return the request's own table; SqlRefused 1146 when it is gone."""
        found = self.find(request.schema_id, request.table_id)
        if found is None:
            raise SqlRefused(1146, f"Table '{request.schema_name}.{request.table_name}' doesn't exist", "42S02")
        return found

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
        """Take a table's key away."""
        self.puts.pop((schema_id, table_id), None)
        self.removes[schema_id, table_id] = None

    def free_name(self, request: Request, schema_id: int, name: str, *, but: int = 0) -> None:
        """SqlRefused 1050 where another table of that database has that name."""
        put = [table for (schema, _), table in self.puts.items() if schema == schema_id]
        others = [
            table
            for table in self.definitions.tables(schema_id)
            if (schema_id, table.id) not in self.removes and (schema_id, table.id) not in self.puts
        ]
        if any(table.name.lower == lowered(name) and table.id != but for table in (*put, *others)):
            raise SqlRefused(1050, f"Table '{request.schema_name}.{name}' already exists", "42S01")

    def finish(self, request: Request, state: ElementState, *, done: bool) -> StepOutcome:
        """Return the outcome, whose Binlog members only the step has that is `done`."""
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
"""What a step does: (draft, request, the roles' states before, the roles' states after)."""


def column_of(table: StoredTable, name: str) -> StoredColumn | None:
    """Return the column of that name in any case, of any state."""
    folded = lowered(name)
    return next((column for column in table.cols or () if column.name.lower == folded), None)


def index_of(table: StoredTable, name: str) -> StoredIndex | None:
    """Return the index of that name in any case, of any state."""
    folded = lowered(name)
    return next((index for index in table.index_info or () if index.idx_name.lower == folded), None)


def with_columns(table: StoredTable, columns: list[StoredColumn]) -> StoredTable:
    """`table` with these columns in this order; offsets, also those in indexes and of related columns, follow.

    A column of the table keeps its place in indexes by its id, whatever it is called now."""
    offsets = {column.id: offset for offset, column in enumerate(columns)}
    ids = [column.id for column in table.cols or ()]
    placed = [
        msgspec.structs.replace(column, offset=offset, change_state_info=_related(column, ids, offsets))
        for offset, column in enumerate(columns)
    ]
    indexes = [
        msgspec.structs.replace(index, idx_cols=[_placed(part, ids, offsets, placed) for part in index.idx_cols])
        for index in table.index_info or ()
    ]
    return msgspec.structs.replace(table, cols=placed, index_info=indexes if table.index_info else table.index_info)


def _related(column: StoredColumn, ids: list[int], offsets: Mapping[int, int]) -> ChangeState | None:
    info = column.change_state_info
    if info is None or info.relative_col_offset >= len(ids):
        return info
    return msgspec.structs.replace(info, relative_col_offset=offsets.get(ids[info.relative_col_offset], 0))


def _placed(part: StoredPart, ids: list[int], offsets: Mapping[int, int], columns: list[StoredColumn]) -> StoredPart:
    offset = offsets.get(ids[part.offset])
    if offset is None:
        return part
    return msgspec.structs.replace(part, name=columns[offset].name, offset=offset)


def known_index(table: StoredTable, name: str) -> StoredIndex:
    """Return the index of that name in any case; SqlRefused 1176."""
    found = index_of(table, name)
    if found is None:
        raise SqlRefused(1176, f"Key '{name}' doesn't exist in table '{table.name.original}'", "42000")
    return found


def move_column(table: StoredTable, column: StoredColumn, to: int) -> StoredTable:
    """`table` with `column` (by its id, in this new form) at place `to`."""
    rest = [other for other in table.cols or () if other.id != column.id]
    return with_columns(table, [*rest[:to], column, *rest[to:]])


def with_index(table: StoredTable, index: StoredIndex) -> StoredTable:
    """`table` with the index of that id in this form, at its place or last."""
    indexes = list(table.index_info or ())
    at = next((place for place, found in enumerate(indexes) if found.id == index.id), len(indexes))
    return msgspec.structs.replace(table, index_info=[*indexes[:at], index, *indexes[at + 1 :]])


def with_type_flag(column: StoredColumn, add: int = 0, remove: int = 0) -> StoredColumn:
    """`column` with flag bits set and cleared."""
    return msgspec.structs.replace(
        column, type=msgspec.structs.replace(column.type, flag=(column.type.flag | add) & ~remove)
    )


def with_flag(table: StoredTable, offsets: list[int], add: int = 0, remove: int = 0) -> StoredTable:
    """`table` with flag bits of the columns at those offsets set and cleared."""
    return msgspec.structs.replace(
        table,
        cols=[
            with_type_flag(column, add, remove) if place in offsets else column
            for place, column in enumerate(table.cols or ())
        ],
    )


def _offsets(index: StoredIndex) -> list[int]:
    parts = index.idx_cols if index.is_primary else index.idx_cols[:1]
    return [part.offset for part in parts]


def _bit(index: StoredIndex) -> int:
    if index.is_primary:
        return PRIMARY
    return UNIQUE if index.is_unique and len(index.idx_cols) == 1 else MULTIPLE


def with_index_flags(table: StoredTable, index: StoredIndex) -> StoredTable:
    """`table` with the bits that `index` gives its columns."""
    return with_flag(table, _offsets(index), add=_bit(index))


def without_index(table: StoredTable, index: StoredIndex) -> StoredTable:
    """`table` without `index`; its columns keep the bits that other indexes give them."""
    rest = [found for found in table.index_info or () if found.id != index.id]
    table = with_flag(msgspec.structs.replace(table, index_info=rest), _offsets(index), remove=_bit(index))
    for other in rest:
        if other.idx_cols and other.idx_cols[0].offset in _offsets(index):
            table = with_index_flags(table, other)
    return table
