"""The effects of a DDL on tables: the closed union that barriers and sinks act on.

    Effect = TableCreated | TableDropped | TableTruncated | TableRenamed | TableAltered
           | PartitionsTruncated | PartitionsDropped | PartitionExchanged | TableRecovered | NoEffect

Every effect has the complete tables, before and after, so that no consumer needs the schema.  `old.incarnation` and
`new.incarnation` show whether rows stayed: equal after TableAltered and TableRenamed, different after TableTruncated.
One DDL has one or more effects, in the order in which they happened.
"""

from typing import TypeAlias

import msgspec

from tidegate.model.table import TableInfo


class TableCreated(msgspec.Struct, frozen=True):
    """A new, empty table."""

    table: TableInfo


class TableDropped(msgspec.Struct, frozen=True):
    """A table was dropped with its rows."""

    table: TableInfo


class TableTruncated(msgspec.Struct, frozen=True):
    """A table lost all rows: `new` has the definition of `old` and another incarnation."""

    old: TableInfo
    new: TableInfo


class TableRenamed(msgspec.Struct, frozen=True):
    """A table was renamed and kept its rows."""

    old: TableInfo
    new: TableInfo


class TableAltered(msgspec.Struct, frozen=True):
    """Columns, keys, options or partition bounds changed; the rows stayed."""

    old: TableInfo
    new: TableInfo


class PartitionsTruncated(msgspec.Struct, frozen=True):
    """Rows of the partitions `names` were deleted; `table` is the definition that locates them."""

    table: TableInfo
    names: tuple[str, ...]
    new: TableInfo


class PartitionsDropped(msgspec.Struct, frozen=True):
    """The partitions `names` of `old` were dropped with their rows."""

    old: TableInfo
    names: tuple[str, ...]
    new: TableInfo


class PartitionExchanged(msgspec.Struct, frozen=True):
    """All rows of `partition` (by the definition of `partitioned`) and of `other` were swapped."""

    partitioned: TableInfo
    partition: str
    other: TableInfo
    new_partitioned: TableInfo
    new_other: TableInfo


class TableRecovered(msgspec.Struct, frozen=True):
    """A dropped or truncated table was recovered with its rows and incarnation, perhaps under another name."""

    table: TableInfo


class NoEffect(msgspec.Struct, frozen=True):
    """No known table changed in a way that rows depend on, for this `reason`."""

    reason: str


Effect: TypeAlias = (
    TableCreated
    | TableDropped
    | TableTruncated
    | TableRenamed
    | TableAltered
    | PartitionsTruncated
    | PartitionsDropped
    | PartitionExchanged
    | TableRecovered
    | NoEffect
)
