"""The arguments of DDL jobs, by action: what a job must know that its table does not say.

    {"column_info":{..},"position":{..}}    raw_args of ADD COLUMN, in job_meta         <->  AddColumn
    {"index_name":{..},"if_exists":false}   raw_args of DROP INDEX                      <->  DropIndex

A job lives in a row of mysql.tidb_ddl_job and may change owners between two steps, so all that steps need stands here.
Elements are named, not numbered: they get their ids at the job's first step, from the definition as it stands then.
Members are called what TiDB calls them; those that no step of ours reads are left out, and an index comes whole.

Source: TiDB pkg/meta/model/job_args.go; recorded jobs.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from tidegate.schema.change.arguments_part import (
    AddColumn,
    AddForeignKey,
    AddIndex,
    Check,
    CheckName,
    DropColumn,
    DropForeignKey,
    DropIndex,
    DropPartitions,
    ModifyColumn,
    NewPartitions,
    Place,
    RenameIndex,
    SetDefault,
    TruncatePartitions,
    Visibility,
)
from tidegate.schema.change.elements import StoredSequence, StoredTtl
from tidegate.schema.stored.definition import (
    Name,
    StoredSchema,
    StoredTable,
)

__all__ = [
    "ARGUMENTS",
    "AddColumn",
    "AddForeignKey",
    "AddIndex",
    "AlterSequence",
    "Arguments",
    "Charset",
    "Check",
    "CheckName",
    "Comment",
    "CreateSchema",
    "CreateTable",
    "DropColumn",
    "DropForeignKey",
    "DropIndex",
    "DropObject",
    "DropPartitions",
    "Exchange",
    "ModifyColumn",
    "NewCache",
    "NewPartitions",
    "NewTable",
    "Place",
    "Rebase",
    "Recover",
    "RenameIndex",
    "RenameTable",
    "RenameTables",
    "SetDefault",
    "ShardBits",
    "TruncatePartitions",
    "Ttl",
    "Visibility",
]


class CreateSchema(msgspec.Struct, frozen=True):
    """CREATE DATABASE."""

    db_info: StoredSchema


class Charset(msgspec.Struct, frozen=True, omit_defaults=True):
    """ALTER DATABASE and TABLE .. CHARACTER SET; `needs_overwrite_cols` of CONVERT TO: text columns change too."""

    to_charset: str
    to_collate: str
    needs_overwrite_cols: bool = False


class DropObject(msgspec.Struct, frozen=True):
    """DROP DATABASE, TABLE, VIEW, SEQUENCE: the job names it."""

    fk_check: bool = True


class CreateTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """CREATE TABLE, VIEW, SEQUENCE: the whole definition; `old_view_tbl_id` is the view that OR REPLACE takes away."""

    table_info: StoredTable
    on_exist_replace: bool = False
    old_view_tbl_id: int = 0


class NewTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """TRUNCATE TABLE: the ids that take the place of the old ones."""

    new_table_id: int = 0
    new_partition_ids: list[int] | None = None
    old_partition_ids: list[int] | None = None


class RenameTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rename; `table_id`, `old_table_name` in RENAME TABLES only."""

    old_schema_id: int
    old_schema_name: Name
    new_table_name: Name
    old_table_name: Name = Name()
    new_schema_id: int = 0
    table_id: int = 0


class RenameTables(msgspec.Struct, frozen=True):
    """RENAME TABLE of several tables, in order."""

    rename_table_infos: list[RenameTable]


class Recover(msgspec.Struct, frozen=True):
    """RECOVER TABLE and FLASHBACK TABLE .. TO: the definition as it was before the drop, under its new name."""

    table_info: StoredTable
    snapshot_ts: int = 0
    """A moment when the table was there: its counters of ids go on from their values then."""


class Comment(msgspec.Struct, frozen=True):
    """COMMENT."""

    comment: str


class Rebase(msgspec.Struct, frozen=True):
    """AUTO_INCREMENT =, AUTO_RANDOM_BASE =: the next id."""

    new_base: int
    force: bool = False


class NewCache(msgspec.Struct, frozen=True):
    """AUTO_ID_CACHE =."""

    new_cache: int


class ShardBits(msgspec.Struct, frozen=True):
    """SHARD_ROW_ID_BITS =."""

    shard_row_id_bits: int


class Ttl(msgspec.Struct, frozen=True):
    """TTL = and what goes with it; None leaves as it is.  Nothing at all is REMOVE TTL."""

    ttl_info: StoredTtl | None = None
    ttl_enable: bool | None = None
    ttl_cron_job_schedule: str | None = None


class AlterSequence(msgspec.Struct, frozen=True):
    """ALTER SEQUENCE: the sequence as it is to be; RESTART gives the next value."""

    sequence: StoredSequence
    restart: int | None = None


class Exchange(msgspec.Struct, frozen=True):
    """EXCHANGE PARTITION: the partitioned table; the job's own table is the other one."""

    partition_id: int
    pt_schema_id: int
    pt_table_id: int
    partition_name: str
    with_validation: bool = True


Arguments: TypeAlias = (
    CreateSchema
    | Charset
    | DropObject
    | CreateTable
    | NewTable
    | RenameTable
    | RenameTables
    | Recover
    | AddColumn
    | DropColumn
    | ModifyColumn
    | SetDefault
    | AddIndex
    | DropIndex
    | RenameIndex
    | Visibility
    | Comment
    | Rebase
    | NewCache
    | ShardBits
    | AddForeignKey
    | DropForeignKey
    | Check
    | CheckName
    | Ttl
    | AlterSequence
    | NewPartitions
    | DropPartitions
    | TruncatePartitions
    | Exchange
)

ARGUMENTS: Final[Mapping[int, type[Arguments]]] = {
    1: CreateSchema,
    2: DropObject,
    3: CreateTable,
    4: DropObject,
    5: AddColumn,
    6: DropColumn,
    7: AddIndex,
    8: DropIndex,
    9: AddForeignKey,
    10: DropForeignKey,
    11: NewTable,
    12: ModifyColumn,
    13: Rebase,
    14: RenameTable,
    15: SetDefault,
    16: ShardBits,
    17: Comment,
    18: RenameIndex,
    19: NewPartitions,
    20: DropPartitions,
    21: CreateTable,
    22: Charset,
    23: TruncatePartitions,
    24: DropObject,
    25: Recover,
    26: Charset,
    32: AddIndex,
    33: DropIndex,
    34: CreateTable,
    35: AlterSequence,
    36: DropObject,
    39: NewCache,
    40: Rebase,
    41: Visibility,
    42: Exchange,
    43: Check,
    44: CheckName,
    45: CheckName,
    47: RenameTables,
    64: NewPartitions,
    65: Ttl,
    67: Ttl,
    71: NewPartitions,
    72: NewPartitions,
}
"""TiDB's ActionType -> the class of its arguments."""
