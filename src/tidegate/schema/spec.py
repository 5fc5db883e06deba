"""The specs of ALTER TABLE: what one part between two commas says.

    ALTER TABLE t   ADD COLUMN a INT FIRST ,  DROP INDEX i   ,  COMMENT = 'x'
                    AddColumns(.., FIRST)     DropIndex("i")    TableOptions(comment="x")

`NoChange` names a spec that leaves columns, keys and partitions as they are; `NotSupported` one that changes tables
in a way that we do not follow.  Names stand as written; table names are completed with the session's schema.
Source: TiDB parser/ast/ddl.go (AlterTableSpec).
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from tidegate.model.table import PartitionDef, PartitionInfo, TableName
from tidegate.schema.definition import ColumnDef, Default, IndexDef, Position, SpecDetail, TableOptions


@dataclass(frozen=True, slots=True)
class AddColumns:
    """ADD COLUMN a .. or ADD COLUMN (a .., b .., INDEX ..)."""

    columns: tuple[ColumnDef, ...]
    indexes: tuple[IndexDef, ...] = ()
    position: Position | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropColumn:
    """DROP COLUMN."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ModifyColumn:
    """MODIFY COLUMN, and CHANGE COLUMN, where `name` and `column.name` differ."""

    name: str
    column: ColumnDef
    position: Position | None = None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """RENAME COLUMN old TO new."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class SetDefault:
    """ALTER COLUMN .. SET DEFAULT; `default` is None for DROP DEFAULT."""

    column: str
    default: Default | None


@dataclass(frozen=True, slots=True)
class AddIndex:
    """ADD INDEX, UNIQUE, PRIMARY KEY, FULLTEXT, VECTOR."""

    index: IndexDef
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddForeignKey:
    """ADD FOREIGN KEY: only the index that it brings along matters."""

    index: IndexDef


@dataclass(frozen=True, slots=True)
class DropIndex:
    """DROP INDEX."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropPrimaryKey:
    """DROP PRIMARY KEY."""


@dataclass(frozen=True, slots=True)
class RenameIndex:
    """RENAME INDEX old TO new."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class SetVisibility:
    """ALTER INDEX .. VISIBLE or INVISIBLE."""

    index: str
    visible: bool


@dataclass(frozen=True, slots=True)
class RenameTo:
    """ALTER TABLE .. RENAME TO; `given` says whether the text names the new schema."""

    table: TableName
    given: bool


@dataclass(frozen=True, slots=True)
class ConvertCharset:
    """CONVERT TO CHARACTER SET: for all text columns; None = the default of the database."""

    charset: str | None
    collate: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """ADD PARTITION (..), or ADD PARTITION PARTITIONS `count` for HASH and KEY."""

    definitions: tuple[PartitionDef, ...]
    count: int = 0
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropPartitions:
    """DROP PARTITION."""

    names: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class TruncatePartitions:
    """TRUNCATE PARTITION; no names = ALL."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReorganizePartitions:
    """REORGANIZE PARTITION names INTO (..)."""

    names: tuple[str, ...]
    definitions: tuple[PartitionDef, ...]


@dataclass(frozen=True, slots=True)
class CoalescePartitions:
    """COALESCE PARTITION count."""

    count: int


@dataclass(frozen=True, slots=True)
class ExchangePartition:
    """EXCHANGE PARTITION `name` WITH TABLE `table`."""

    name: str
    table: TableName
    with_validation: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True)
class RemovePartitioning:
    """REMOVE PARTITIONING."""


@dataclass(frozen=True, slots=True)
class PartitionBy:
    """PARTITION BY in ALTER TABLE."""

    partition: PartitionInfo


@dataclass(frozen=True, slots=True)
class NoChange:
    """A spec that no row and no later statement depends on; `what` names it, `detail` says what TiDB makes of it."""

    what: str
    detail: SpecDetail | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class NotSupported:
    """A spec that changes tables in a way that we do not follow; `what` names it."""

    what: str


Spec: TypeAlias = (
    AddColumns
    | DropColumn
    | ModifyColumn
    | RenameColumn
    | SetDefault
    | AddIndex
    | AddForeignKey
    | DropIndex
    | DropPrimaryKey
    | RenameIndex
    | SetVisibility
    | RenameTo
    | TableOptions
    | ConvertCharset
    | AddPartitions
    | DropPartitions
    | TruncatePartitions
    | ReorganizePartitions
    | CoalescePartitions
    | ExchangePartition
    | RemovePartitioning
    | PartitionBy
    | NoChange
    | NotSupported
)
