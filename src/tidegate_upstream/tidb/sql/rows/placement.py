"""Where a row lies: its partition, and the place that a running DDL moves it to or from.

    no partitions                 the table's own id
    partitions                    schema/partition.py names the one that its values belong to; none: error 1526

    REORGANIZE, PARTITION BY, REMOVE PARTITIONING keep two sets of partitions while they run (`ddl_state`):

        state   definitions   the other set       of the other set
        1       old           adding              rows go, none come        (delete-only)
        2, 3    old           adding              rows go and come          (write-only, write-reorg)
        4       new           dropping            rows go and come
        5       new           dropping            rows go, none come

    The other set has its own way to divide rows (ddl_type, ddl_expr, ddl_columns), of REORGANIZE PARTITION the table's.
    Partitions on their way out by DROP or TRUNCATE PARTITION are in no set: nothing is read or written there.

Source: TiDB pkg/table/tables/partition.go (newPartitionedTable, reorganizePartitions); recorded definitions.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from tidegate.expr.cast.change import event_value
from tidegate.model.errors import UnsupportedError
from tidegate.model.event import Value
from tidegate.model.table import ColumnType, IndexInfo
from tidegate.mysql.column_value import KvValue
from tidegate.schema.partition import Locate, partition_of
from tidegate.schema.stored.definition import Name, StoredPartition, StoredPartitionDef, StoredTable
from tidegate.schema.stored.layout import column_type
from tidegate.schema.stored.states import ElementState
from tidegate.schema.stored.table import table_info
from tidegate_upstream.f1 import Access, ElementKind, access

_REORGANIZE: Final = 64
_REPARTITION: Final = frozenset({_REORGANIZE, 71, 72})
_NEW_IN_USE: Final = 4
_COPY_STATES: Final[Mapping[int, ElementState]] = {
    1: ElementState.DELETE_ONLY,
    2: ElementState.WRITE_ONLY,
    3: ElementState.WRITE_REORG,
    4: ElementState.WRITE_ONLY,
    5: ElementState.WRITE_ONLY,
}


@dataclass(frozen=True)
class Placement:
    """One way to divide rows among physical ids; `access` is what a transaction may do to the rows there."""

    access: Access
    ids: tuple[int, ...]
    locate: Callable[[Mapping[int, KvValue]], int | None]
    """Values by column id -> the physical id; None where no partition takes the row."""
    takes: Callable[[Mapping[int, KvValue]], bool] = lambda _columns: True
    """Whether the table would have a place for the row if it were divided this way."""


def placements_of(table: StoredTable) -> tuple[Placement, ...]:
    """Return where rows lie, the place in use first."""
    public = access(ElementKind.COPY, ElementState.PUBLIC)
    partition = table.partition
    if partition is None or not partition.enable:
        return (Placement(public, (table.id,), lambda _columns: table.id),)
    used = list(partition.definitions or ())
    way = _Way(partition.type, partition.expr, tuple(name.original for name in partition.columns or ()))
    main = Placement(public, tuple(one.id for one in used), _locator(table, way, used))
    other = _other_set(table, partition, way)
    return (main,) if other is None else (main, other)


@dataclass(frozen=True, slots=True)
class _Way:
    """How rows are divided; type 0 is one part for all."""

    type: int
    expr: str
    columns: tuple[str, ...]


def _other_set(table: StoredTable, partition: StoredPartition, way: _Way) -> Placement | None:
    state = _COPY_STATES.get(partition.ddl_state)
    if partition.ddl_action not in _REPARTITION or state is None:
        return None
    old_in_use = partition.ddl_state < _NEW_IN_USE
    come, go = partition.adding_definitions or [], partition.dropping_definitions or []
    others, replaced = (come, go) if old_in_use else (go, come)
    ids = tuple(one.id for one in others)
    if partition.ddl_action != _REORGANIZE:
        columns = (
            () if partition.ddl_columns is msgspec.UNSET else tuple(name.original for name in partition.ddl_columns)
        )
        kind = partition.ddl_type if isinstance(partition.ddl_type, int) else 0
        way = _Way(kind, partition.ddl_expr if isinstance(partition.ddl_expr, str) else "", columns)
        found_in = _locator(table, way, others)
        return Placement(access(ElementKind.COPY, state), ids, found_in, lambda columns: found_in(columns) is not None)
    whole = _exchanged(partition.definitions or [], replaced, others)
    locate = _locator(table, way, whole)

    def locate_other(columns: Mapping[int, KvValue]) -> int | None:
        found = locate(columns)
        return found if found in ids else None

    return Placement(access(ElementKind.COPY, state), ids, locate_other, lambda columns: locate(columns) is not None)


def _exchanged(
    definitions: list[StoredPartitionDef], replaced: list[StoredPartitionDef], others: list[StoredPartitionDef]
) -> list[StoredPartitionDef]:
    """The definitions with those of the other set in the place of the ones that they replace."""
    gone = {one.id for one in replaced}
    at = next((at for at, one in enumerate(definitions) if one.id in gone), len(definitions))
    kept = [one for one in definitions if one.id not in gone]
    return [*kept[:at], *others, *kept[at:]]


def _locator(
    table: StoredTable, way: _Way, definitions: list[StoredPartitionDef]
) -> Callable[[Mapping[int, KvValue]], int | None]:
    if way.type == 0 and len(definitions) == 1:
        only = definitions[0].id
        return lambda _columns: only
    columns = [Name.of(name) for name in way.columns]
    parted = msgspec.structs.replace(
        table, partition=StoredPartition(way.type, way.expr, columns, definitions=definitions)
    )
    info = table_info(parted, "", 0)
    if info.partition is None:
        raise UnsupportedError(f"table {table.name.original}: partitions of type {way.type} are not known")
    folding = [column.name.original for column in table.cols or [] if column.type.collate.endswith("_ci")]
    locate = partition_of(info.partition, info.columns, ci_columns=folding, primary_key=_primary(info.indexes))
    return _by_id(table, locate, {one.name.original: one.id for one in definitions})


def _primary(indexes: tuple[IndexInfo, ...]) -> tuple[str, ...]:
    return next((index.columns for index in indexes if index.primary), ())


def _by_id(table: StoredTable, locate: Locate, ids: Mapping[str, int]) -> Callable[[Mapping[int, KvValue]], int | None]:
    kinds = {column.name.original: (column.id, column_type(column.type)) for column in table.cols or []}

    def located(columns: Mapping[int, KvValue]) -> int | None:
        name = locate(_EventRow(kinds, columns))
        return None if name is None else ids[name]

    return located


class _EventRow(Mapping[str, Value]):
    """A row as partition expressions read it: values by name, converted when they are asked for."""

    def __init__(self, kinds: Mapping[str, tuple[int, ColumnType]], columns: Mapping[int, KvValue]) -> None:
        self._kinds, self._columns = kinds, columns

    def __getitem__(self, name: str) -> Value:
        column_id, kind = self._kinds[name]
        return event_value(kind, self._columns[column_id])

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)
