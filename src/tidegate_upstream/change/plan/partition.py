"""The partition specs of ALTER TABLE.

    ADD PARTITION (..)               range, list: add            ADD PARTITION PARTITIONS 2    hash, key: reorganize all
    REORGANIZE p1, p2 INTO (..)      reorganize                  COALESCE PARTITION 1          hash, key: reorganize all
    PARTITION BY ..                  reorganize, new table id    REMOVE PARTITIONING           into the single partition
                                                                                              CollapsedPartitions

Source: TiDB pkg/ddl/executor.go (AddTablePartitions, ReorganizePartitions, ExchangeTablePartition, ..), partition.go.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.model.table import PartitionDef
from tidegate.schema.spec import (
    AddPartitions,
    CoalescePartitions,
    DropPartitions,
    ExchangePartition,
    PartitionBy,
    RemovePartitioning,
    ReorganizePartitions,
    Spec,
    TruncatePartitions,
)
from tidegate.schema.stored.arguments import DropPartitionsArgs, ExchangeArgs, NewPartitionsArgs, TruncatePartitionsArgs
from tidegate.schema.stored.definition import Name, StoredPartition, StoredPartitionDef, StoredTable
from tidegate_upstream.change.alteration import Alteration, AlterPart
from tidegate_upstream.change.make.partition import check_names, check_order, make_definitions, make_partition
from tidegate_upstream.change.move.partition import definitions_named, partition_of
from tidegate_upstream.change.move.reorganize import FULL_TABLE, exchange_shape
from tidegate_upstream.change.request import Involved

_COUNTED: Final = frozenset({2, 4})
"""HASH and KEY."""
_COLLAPSED: Final = "CollapsedPartitions"


def _coming(partition: StoredPartition, definitions: list[StoredPartitionDef]) -> StoredPartition:
    """What a job's `part_info` says of partitions to come under the table's own partitioning.

    The `ddl_` members are left over from an earlier REORGANIZE; the way back needs them."""
    return StoredPartition(
        partition.type,
        partition.expr,
        partition.columns,
        is_empty_columns=partition.is_empty_columns,
        definitions=definitions,
        num=len(definitions),
        ddl_type=partition.ddl_type,
        ddl_expr=partition.ddl_expr,
        ddl_columns=partition.ddl_columns,
    )


def _definitions(partition: StoredPartition, written: Sequence[PartitionDef]) -> list[StoredPartitionDef]:
    return make_definitions(written, by_columns=not partition.expr)


def add_partitions(alteration: Alteration, spec: AddPartitions) -> Iterator[AlterPart]:
    """ADD PARTITION."""
    partition = partition_of(alteration.table)
    present = list(partition.definitions or ())
    if partition.type in _COUNTED:
        yield _resized(partition, [one.name.original for one in present] + _added_names(spec, len(present)))
        return
    if not spec.definitions:
        kind = "RANGE" if partition.type == 1 else "LIST"
        raise SqlRefused(1492, f"For {kind} partitions each partition must be defined", "HY000")
    added = _definitions(partition, spec.definitions)
    taken = {one.name.lower for one in present}
    twice = next((one for one in added if one.name.lower in taken), None)
    if twice is not None and spec.if_not_exists:
        alteration.pass_over(1517, f"Duplicate partition name {twice.name.original}", "HY000", accepted=True)
        return
    check_names([*present, *added])
    check_order(partition, [*present, *added])
    yield AlterPart(19, NewPartitionsArgs(_coming(partition, added)))


def _added_names(spec: AddPartitions, present: int) -> list[str]:
    """The names of partitions that come to HASH and KEY; SqlRefused 1480 where they have VALUES."""
    if any(one.less_than or one.in_values for one in spec.definitions):
        kind = "RANGE" if spec.definitions[0].less_than else "LIST"
        values = "LESS THAN" if kind == "RANGE" else "IN"
        message = f"Only {kind} PARTITIONING can use VALUES {values} in partition definition"
        raise SqlRefused(1480, message, "HY000")
    return [one.name for one in spec.definitions] or [f"p{present + number}" for number in range(spec.count)]


def _resized(partition: StoredPartition, wanted: list[str]) -> AlterPart:
    """HASH and KEY with another number of partitions: all rows move."""
    names = [one.name.lower for one in partition.definitions or ()]
    definitions = [StoredPartitionDef(0, Name.of(name)) for name in wanted]
    check_names(definitions)
    return AlterPart(64, NewPartitionsArgs(_coming(partition, definitions), names))


def coalesce(alteration: Alteration, spec: CoalescePartitions) -> Iterator[AlterPart]:
    """COALESCE PARTITION."""
    partition = partition_of(alteration.table)
    present = partition.definitions or []
    if partition.type not in _COUNTED:
        raise SqlRefused(1509, "COALESCE PARTITION can only be used on HASH/KEY partitions", "HY000")
    if spec.count < 1:
        raise SqlRefused(1515, "At least one partition must be coalesced", "HY000")
    if spec.count >= len(present):
        raise SqlRefused(1508, "Cannot remove all partitions, use DROP TABLE instead", "HY000")
    yield _resized(partition, [one.name.original for one in present[: len(present) - spec.count]])


def drop_partitions(alteration: Alteration, spec: DropPartitions) -> Iterator[AlterPart]:
    """DROP PARTITION."""
    partition = partition_of(alteration.table)
    if partition.type in _COUNTED:
        raise SqlRefused(1512, "DROP PARTITION can only be used on RANGE/LIST partitions", "HY000")
    known = {one.name.lower for one in partition.definitions or ()}
    names = [lowered(name) for name in spec.names]
    if not known >= set(names):
        alteration.pass_over(1507, "Error in list of partitions to DROP", "HY000", accepted=spec.if_exists)
        return
    if known == set(names):
        raise SqlRefused(1508, "Cannot remove all partitions, use DROP TABLE instead", "HY000")
    yield AlterPart(20, DropPartitionsArgs(names))


def truncate_partitions(alteration: Alteration, spec: TruncatePartitions) -> Iterator[AlterPart]:
    """TRUNCATE PARTITION; no names = ALL."""
    table = alteration.table
    names = list(spec.names) or [one.name.lower for one in partition_of(table).definitions or ()]
    chosen = definitions_named(table, names)
    yield AlterPart(23, TruncatePartitionsArgs([one.id for one in chosen]))


def reorganize(alteration: Alteration, spec: ReorganizePartitions) -> Iterator[AlterPart]:
    """REORGANIZE PARTITION .. INTO; of ranges only neighbours, which keep their upper end."""
    partition = partition_of(alteration.table)
    if partition.type in _COUNTED:
        message = "REORGANIZE PARTITION can only be used to reorganize partitions not to change their numbers"
        raise SqlRefused(1510, message, "HY000")
    going = definitions_named(alteration.table, list(spec.names))
    added = _definitions(partition, spec.definitions)
    present = list(partition.definitions or ())
    at = present.index(going[0])
    if partition.type == 1 and present[at : at + len(going)] != going:
        raise SqlRefused(1519, "When reorganizing a set of partitions they must be in consecutive order", "HY000")
    rest = [one for one in present if one not in going]
    after = [*rest[:at], *added, *rest[at:]]
    check_names(after)
    check_order(partition, after)
    if partition.type == 1 and going[-1].less_than != added[-1].less_than and going[-1] is not present[-1]:
        message = (
            "Reorganize of range partitions cannot change total ranges except for last partition where it can "
            "extend the range"
        )
        raise SqlRefused(1520, message, "HY000")
    yield AlterPart(64, NewPartitionsArgs(_coming(partition, added), [one.name.lower for one in going]))


def partition_by(alteration: Alteration, spec: PartitionBy) -> Iterator[AlterPart]:
    """PARTITION BY on a table that has partitions or none."""
    table = alteration.table
    made = make_partition(spec.partition, table)
    now = table.partition or made
    made = msgspec.structs.replace(
        made, new_table_id=0, ddl_type=now.ddl_type, ddl_expr=now.ddl_expr, ddl_columns=now.ddl_columns
    )
    yield AlterPart(71, NewPartitionsArgs(made, _all_names(table)))


def _all_names(table: StoredTable) -> list[str]:
    if table.partition is None:
        return [FULL_TABLE.lower]
    return [one.name.lower for one in table.partition.definitions or ()]


def remove_partitioning(alteration: Alteration, _spec: RemovePartitioning) -> Iterator[AlterPart]:
    """REMOVE PARTITIONING."""
    partition = partition_of(alteration.table)
    whole = msgspec.structs.replace(
        _coming(partition, [StoredPartitionDef(0, Name.of(_COLLAPSED))]), type=0, is_empty_columns=False, new_table_id=0
    )
    yield AlterPart(72, NewPartitionsArgs(whole, _all_names(alteration.table)))


def exchange(alteration: Alteration, spec: ExchangePartition) -> Iterator[AlterPart]:
    """EXCHANGE PARTITION: the job belongs to the other table."""
    parent = alteration.found
    partition_of(parent.stored)
    (definition,) = definitions_named(parent.stored, [spec.name])
    other = alteration.catalog.table(spec.table)
    if other.stored.partition is not None:
        raise SqlRefused(1732, f"Table to exchange with partition is partitioned: '{spec.table.table}'", "HY000")
    if other.stored.temp_table_type:
        raise SqlRefused(1733, f"Table to exchange with partition is temporary: '{spec.table.table}'", "HY000")
    if exchange_shape(parent.stored) != exchange_shape(other.stored):
        raise SqlRefused(1736, "Tables have different definitions", "HY000")
    involved = tuple(Involved(lowered(one.schema), one.stored.name.lower) for one in (parent, other))
    arguments = ExchangeArgs(
        definition.id, parent.schema_id, parent.stored.id, definition.name.lower, spec.with_validation
    )
    yield AlterPart(42, arguments, other, involved)


PARTITION_RULES: Final[Mapping[type[Spec], Callable[[Alteration, Any], Iterator[AlterPart]]]] = {
    AddPartitions: add_partitions,
    CoalescePartitions: coalesce,
    DropPartitions: drop_partitions,
    TruncatePartitions: truncate_partitions,
    ReorganizePartitions: reorganize,
    PartitionBy: partition_by,
    RemovePartitioning: remove_partitioning,
    ExchangePartition: exchange,
}
