"""The partition specs of ALTER TABLE: next definitions, and which partitions lose their rows.

    ADD          definitions added at the end; HASH and KEY: p{count}, p{count + 1}, ..
    DROP         named ones away, with their rows
    TRUNCATE     the same definitions, rows of the named ones away
    REORGANIZE   new definitions where the first of the named ones stood; rows stay
    COALESCE     HASH and KEY: the last ones away; rows stay
    PARTITION BY, REMOVE PARTITIONING   rows stay

Source: TiDB pkg/ddl/partition.go.
"""

import msgspec

from tidegate.model.table import PartitionDef, PartitionInfo, TableInfo
from tidegate.schema.build import complete_partition
from tidegate.schema.ddl_context import DdlContext
from tidegate.schema.parse.table import MOST_PARTITIONS
from tidegate.schema.spec import (
    AddPartitions,
    CoalescePartitions,
    DropPartitions,
    PartitionBy,
    RemovePartitioning,
    ReorganizePartitions,
    Spec,
    TruncatePartitions,
)

__all__ = ["named_partitions", "repartition"]


def named_partitions(table: TableInfo, names: tuple[str, ...], context: DdlContext) -> tuple[str, ...]:
    """Return the names as the table defines them; none means all.  Raises SchemaError for one that does not exist."""
    defined = {} if table.partition is None else {item.name.lower(): item.name for item in table.partition.definitions}
    if not defined:
        raise context.error(table.name, "the table is not partitioned")
    missing = [name for name in names if name.lower() not in defined]
    if missing:
        raise context.error(table.name, f"partition {missing[0]!r} does not exist")
    return tuple(defined[name.lower()] for name in names) if names else tuple(defined.values())


def repartition(table: TableInfo, spec: Spec, context: DdlContext) -> TableInfo:
    """`table` after one partition spec; the same table for any other spec."""
    partition = table.partition
    match spec:
        case PartitionBy(new):
            return msgspec.structs.replace(table, partition=complete_partition(new, table))
        case RemovePartitioning():
            return msgspec.structs.replace(table, partition=None)
        case AddPartitions() | ReorganizePartitions() | CoalescePartitions() if partition is None and table.inferred:
            return table
        case AddPartitions() | DropPartitions() | ReorganizePartitions() | CoalescePartitions() if partition is None:
            raise context.error(table.name, "the table is not partitioned")
        case AddPartitions():
            assert partition is not None
            return _with(table, partition, _added(table, partition, spec, context))
        case DropPartitions(names, if_exists):
            assert partition is not None
            known = {item.name.lower() for item in partition.definitions}
            wanted = tuple(name for name in names if name.lower() in known or not if_exists)
            gone = set(named_partitions(table, wanted, context)) if wanted else set()
            return _with(table, partition, tuple(item for item in partition.definitions if item.name not in gone))
        case TruncatePartitions(names):
            named_partitions(table, names, context)
            return table
        case ReorganizePartitions(names, definitions):
            assert partition is not None
            return _with(table, partition, _reorganized(table, partition, names, definitions, context))
        case CoalescePartitions(count):
            assert partition is not None
            if not 0 < count < len(partition.definitions):
                raise context.error(table.name, f"cannot coalesce {count} of {len(partition.definitions)} partitions")
            return _with(table, partition, partition.definitions[:-count])
        case _:
            return table


def _with(table: TableInfo, partition: PartitionInfo, definitions: tuple[PartitionDef, ...]) -> TableInfo:
    count = len(definitions) if partition.count else 0
    changed = msgspec.structs.replace(partition, definitions=definitions, count=count)
    return msgspec.structs.replace(table, partition=changed)


def _added(
    table: TableInfo,
    partition: PartitionInfo,
    spec: AddPartitions,
    context: DdlContext,
) -> tuple[PartitionDef, ...]:
    start = len(partition.definitions)
    if start + spec.count > MOST_PARTITIONS:
        raise context.error(table.name, f"more than {MOST_PARTITIONS} partitions")
    definitions = spec.definitions or tuple(PartitionDef(f"p{start + number}") for number in range(spec.count))
    known = {item.name.lower() for item in partition.definitions}
    twice = [item.name for item in definitions if item.name.lower() in known]
    if twice and not spec.if_not_exists:
        raise context.error(table.name, f"partition {twice[0]!r} exists already")
    return (*partition.definitions, *(item for item in definitions if item.name not in twice))


def _reorganized(
    table: TableInfo,
    partition: PartitionInfo,
    names: tuple[str, ...],
    definitions: tuple[PartitionDef, ...],
    context: DdlContext,
) -> tuple[PartitionDef, ...]:
    gone = set(named_partitions(table, names, context))
    first = next(place for place, item in enumerate(partition.definitions) if item.name in gone)
    before = partition.definitions[:first]
    after = tuple(item for item in partition.definitions[first:] if item.name not in gone)
    return (*before, *definitions, *after)
