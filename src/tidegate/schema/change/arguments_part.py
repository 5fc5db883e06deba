"""The arguments of DDL jobs on parts of a table: columns, indexes, constraints, partitions.

    {Add,Drop,Modify}ColumnArgs, SetDefaultArgs              {Add,Drop,Rename}IndexArgs, VisibilityArgs
    {Add,Drop}ForeignKeyArgs, CheckArgs, CheckNameArgs       {New,Drop,Truncate}PartitionsArgs

Source: TiDB pkg/meta/model/job_args.go; recorded jobs.
"""

import msgspec

from tidegate.schema.change.elements import StoredCheck, StoredForeignKey
from tidegate.schema.stored.definition import Name, StoredColumn, StoredIndex, StoredPartition

__all__ = [
    "AddColumnArgs",
    "AddForeignKeyArgs",
    "AddIndexArgs",
    "CheckArgs",
    "CheckNameArgs",
    "DropColumnArgs",
    "DropForeignKeyArgs",
    "DropIndexArgs",
    "DropPartitionsArgs",
    "ModifyColumnArgs",
    "NewPartitionsArgs",
    "PositionArgs",
    "RenameIndexArgs",
    "SetDefaultArgs",
    "TruncatePartitionsArgs",
    "VisibilityArgs",
]


class PositionArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """Where a column goes: `tp` 0 stays or last, 1 first, 2 after the column of that name (any case)."""

    tp: int = 0
    relative_column: Name | None = None


class AddColumnArgs(msgspec.Struct, frozen=True):
    """ADD COLUMN: the definition without id."""

    column_info: StoredColumn
    position: PositionArgs = PositionArgs()
    if_not_exists: bool = False


class DropColumnArgs(msgspec.Struct, frozen=True):
    """DROP COLUMN, by name."""

    column_name: Name
    if_exists: bool = False


class ModifyColumnArgs(msgspec.Struct, frozen=True):
    """MODIFY, CHANGE and RENAME COLUMN: `column` as it is to be; `kind` is one of MODIFY's operations (request.py)."""

    column: StoredColumn
    old_column_name: Name
    position: PositionArgs = PositionArgs()
    kind: int = 0


class SetDefaultArgs(msgspec.Struct, frozen=True):
    """ALTER COLUMN .. SET and DROP DEFAULT: the column with its new default."""

    column_info: StoredColumn


class AddIndexArgs(msgspec.Struct, frozen=True):
    """ADD INDEX and PRIMARY KEY: the index without id and offsets; `hidden` are the columns of its expressions."""

    index: StoredIndex
    hidden: list[StoredColumn] = []
    if_not_exists: bool = False


class DropIndexArgs(msgspec.Struct, frozen=True):
    """DROP INDEX and PRIMARY KEY."""

    index_name: Name
    if_exists: bool = False


class RenameIndexArgs(msgspec.Struct, frozen=True):
    """RENAME INDEX."""

    old_name: Name
    new_name: Name


class VisibilityArgs(msgspec.Struct, frozen=True):
    """ALTER INDEX .. VISIBLE and INVISIBLE."""

    index_name: Name
    invisible: bool = False


class AddForeignKeyArgs(msgspec.Struct, frozen=True):
    """ADD FOREIGN KEY."""

    fk_info: StoredForeignKey


class DropForeignKeyArgs(msgspec.Struct, frozen=True):
    """DROP FOREIGN KEY."""

    fk_name: Name


class CheckArgs(msgspec.Struct, frozen=True):
    """ADD CHECK."""

    constraint_info: StoredCheck


class CheckNameArgs(msgspec.Struct, frozen=True):
    """DROP CHECK, and ALTER CHECK .. [NOT] ENFORCED."""

    constraint_name: Name
    enforced: bool = False


class NewPartitionsArgs(msgspec.Struct, frozen=True, omit_defaults=True):
    """ADD and REORGANIZE PARTITION, PARTITION BY, REMOVE PARTITIONING: what comes, and the names of what goes."""

    part_info: StoredPartition
    part_names: list[str] = []


class DropPartitionsArgs(msgspec.Struct, frozen=True):
    """DROP PARTITION, by names in lower case."""

    part_names: list[str]


class TruncatePartitionsArgs(msgspec.Struct, frozen=True):
    """TRUNCATE PARTITION: old ids, and the new ones in the same order."""

    old_partition_ids: list[int]
    new_partition_ids: list[int] = []
