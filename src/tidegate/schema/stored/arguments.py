"""The arguments of DDL jobs, by action: parameters that are not part of the table's definition.

    {"column_info":{..},"position":{..}}    raw_args of ADD COLUMN, in job_meta         <->  AddColumnArgs
    {"index_name":{..},"if_exists":false}   raw_args of DROP INDEX                      <->  DropIndexArgs

A job is a row of mysql.tidb_ddl_job and may change owners between two steps, so the arguments hold all that steps need.
Elements are named, not numbered: they get their ids at the job's first step, from the definition as it stands then.
Members have TiDB's names; members that no step here reads are left out, and an index is complete.

Source: TiDB pkg/meta/model/job_args.go; recorded jobs.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from tidegate.schema.stored.definition import (
    Name,
    StoredCheck,
    StoredColumn,
    StoredForeignKey,
    StoredIndex,
    StoredPartition,
    StoredSchema,
    StoredSequence,
    StoredTable,
    StoredTtl,
)


class CreateSchemaArgs(msgspec.Struct, frozen=True):
    """CREATE DATABASE."""

    db_info: StoredSchema


class CharsetArgs(msgspec.Struct, frozen=True, omit_defaults=True):
    """ALTER DATABASE and TABLE .. CHARACTER SET; `needs_overwrite_cols` of CONVERT TO: text columns change too."""

    to_charset: str
    to_collate: str
    needs_overwrite_cols: bool = False


class DropObjectArgs(msgspec.Struct, frozen=True):
    """DROP DATABASE, TABLE, VIEW, SEQUENCE: the job names it."""

    fk_check: bool = True


class CreateTableArgs(msgspec.Struct, frozen=True, omit_defaults=True):
    """CREATE TABLE, VIEW, SEQUENCE: the whole definition; `old_view_tbl_id` is the view that OR REPLACE drops."""

    table_info: StoredTable
    on_exist_replace: bool = False
    old_view_tbl_id: int = 0


class NewTableArgs(msgspec.Struct, frozen=True, omit_defaults=True):
    """TRUNCATE TABLE: the ids that replace the old ones."""

    new_table_id: int = 0
    new_partition_ids: list[int] | None = None
    old_partition_ids: list[int] | None = None


class RenameTableArgs(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rename. Of several, a table may have more than one: swaps use a temporary name."""

    table_id: int
    new_schema_id: int
    old_schema_id: int = 0
    old_schema_name: Name = Name()
    old_table_name: Name = Name()
    new_table_name: Name = Name()


class RenameTablesArgs(msgspec.Struct, frozen=True):
    """RENAME TABLE of several tables, in order."""

    rename_table_infos: list[RenameTableArgs] = []


class RecoverArgs(msgspec.Struct, frozen=True):
    """RECOVER TABLE and FLASHBACK TABLE .. TO: the definition before the drop, under its new name."""

    table_info: StoredTable
    snapshot_ts: int = 0
    """A timestamp before the drop, whose counter values are restored."""


class CommentArgs(msgspec.Struct, frozen=True):
    """COMMENT."""

    comment: str


class RebaseArgs(msgspec.Struct, frozen=True):
    """AUTO_INCREMENT =, AUTO_RANDOM_BASE =: the next id."""

    new_base: int
    force: bool = False


class NewCacheArgs(msgspec.Struct, frozen=True):
    """AUTO_ID_CACHE =."""

    new_cache: int


class ShardBitsArgs(msgspec.Struct, frozen=True):
    """SHARD_ROW_ID_BITS =."""

    shard_row_id_bits: int


class TtlArgs(msgspec.Struct, frozen=True):
    """TTL = and its options; None leaves a value unchanged.  All None is REMOVE TTL."""

    ttl_info: StoredTtl | None = None
    ttl_enable: bool | None = None
    ttl_cron_job_schedule: str | None = None


class AlterSequenceArgs(msgspec.Struct, frozen=True):
    """ALTER SEQUENCE: the new definition; RESTART sets the next value."""

    sequence: StoredSequence
    restart: int | None = None


class ExchangeArgs(msgspec.Struct, frozen=True):
    """EXCHANGE PARTITION: the partitioned table; the job's own table is the other one."""

    partition_id: int
    pt_schema_id: int
    pt_table_id: int
    partition_name: str
    with_validation: bool = True


class PositionArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """The position of a column: `tp` 0 stays or last, 1 first, 2 after the column of that name (any case)."""

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
    """MODIFY, CHANGE and RENAME COLUMN: the new `column`; `kind` is one of MODIFY's operations (request.py)."""

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
    """ADD and REORGANIZE PARTITION, PARTITION BY, REMOVE PARTITIONING: new partitions, and names of removed ones."""

    part_info: StoredPartition
    part_names: list[str] = []


class DropPartitionsArgs(msgspec.Struct, frozen=True):
    """DROP PARTITION, by names in lower case."""

    part_names: list[str]


class TruncatePartitionsArgs(msgspec.Struct, frozen=True):
    """TRUNCATE PARTITION: old ids, and the new ones in the same order."""

    old_partition_ids: list[int]
    new_partition_ids: list[int] = []


Arguments: TypeAlias = msgspec.Struct
"""One of the structs above."""

ARGUMENTS: Final[Mapping[int, type[Arguments]]] = {
    1: CreateSchemaArgs,
    2: DropObjectArgs,
    3: CreateTableArgs,
    4: DropObjectArgs,
    5: AddColumnArgs,
    6: DropColumnArgs,
    7: AddIndexArgs,
    8: DropIndexArgs,
    9: AddForeignKeyArgs,
    10: DropForeignKeyArgs,
    11: NewTableArgs,
    12: ModifyColumnArgs,
    13: RebaseArgs,
    14: RenameTableArgs,
    15: SetDefaultArgs,
    16: ShardBitsArgs,
    17: CommentArgs,
    18: RenameIndexArgs,
    19: NewPartitionsArgs,
    20: DropPartitionsArgs,
    21: CreateTableArgs,
    22: CharsetArgs,
    23: TruncatePartitionsArgs,
    24: DropObjectArgs,
    25: RecoverArgs,
    26: CharsetArgs,
    32: AddIndexArgs,
    33: DropIndexArgs,
    34: CreateTableArgs,
    35: AlterSequenceArgs,
    36: DropObjectArgs,
    39: NewCacheArgs,
    40: RebaseArgs,
    41: VisibilityArgs,
    42: ExchangeArgs,
    43: CheckArgs,
    44: CheckNameArgs,
    45: CheckNameArgs,
    47: RenameTablesArgs,
    64: NewPartitionsArgs,
    65: TtlArgs,
    67: TtlArgs,
    71: NewPartitionsArgs,
    72: NewPartitionsArgs,
}
"""TiDB's ActionType -> the class of its arguments."""
