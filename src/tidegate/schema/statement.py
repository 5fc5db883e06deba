"""Statements of DDL text and their parts: a closed union, built before it is known whether they fit the tables.

    Statement = CreateDatabase | AlterDatabase | DropDatabase | RecoverDatabase
              | CreateTable | CreateTableLike | DropTables | TruncateTable | RenameTables | AlterTable | RecoverTable
              | CreateView | DropViews | Ignored

CREATE INDEX and DROP INDEX are AlterTable with one spec.  A spec is the part of ALTER TABLE between two commas:

    ALTER TABLE t   ADD COLUMN a INT FIRST ,  DROP INDEX i   ,  COMMENT = 'x'
                    AddColumns(.., FIRST)     DropIndex("i")    TableOptions(comment="x")

`NoChange` is a spec that leaves columns, keys and partitions as they are; `NotSupported` one that changes tables in a
way that Tidegate does not follow.

Names are kept as written; table names are completed with the session's schema.  TiCDC's events carry the schema of the
*new* name only; if the text qualifies the new name but not the old one, the old name is `doubtful`.  Expressions are
the user's own text.  Nothing else is completed: an unwritten charset, length or nullability stays open until the table
is built.

Details are needed by TiDB's own definitions only; no row, message or later statement depends on them.  They are
attached to definitions, specs and statements, and comparisons ignore them.

    IndexDef("i", ("a", ""))                      what change capture compares
      └ detail: IndexDetail(lengths=(10, -1),     what TiDB stores besides: prefixes, expressions, comments
                            expressions=("", "b + 1"))

Source: TiDB parser/ast/ddl.go (ColumnDef, Constraint, AlterTableSpec), as far as change capture needs it.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from tidegate.model.mysql import MysqlType
from tidegate.model.table import PartitionDef, PartitionInfo, TableName


@dataclass(frozen=True, slots=True)
class CheckDef:
    """CHECK (expression); `name` is None where TiDB chooses one."""

    name: str | None
    expression: str
    enforced: bool = True
    in_column: bool = False


@dataclass(frozen=True, slots=True)
class References:
    """REFERENCES: the table (schema None: the child's), its columns, the action on children ("" if not given)."""

    schema: str | None
    table: str
    columns: tuple[str, ...]
    on_delete: str = ""
    on_update: str = ""


@dataclass(frozen=True, slots=True)
class ColumnDetail:
    """Details of a column: ON UPDATE CURRENT_TIMESTAMP(fsp), AUTO_RANDOM(shard bits, range bits), COLLATE, CHECKs."""

    on_update: int | None = None
    auto_random: tuple[int, int] | None = None
    collate: str | None = None
    checks: tuple[CheckDef, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexDetail:
    """Details of an index, part by part: prefix lengths (-1 the whole column) and expressions ("" a column).

    `references` is set for a foreign key; `using` 1 BTREE, 2 HASH, 3 RTREE."""

    lengths: tuple[int, ...] = ()
    expressions: tuple[str, ...] = ()
    comment: str = ""
    references: References | None = None
    is_global: bool = False
    using: int = 1


@dataclass(frozen=True, slots=True)
class OptionsDetail:
    """Details of a table's options; None for options that were not written.  `ttl` is (column, count, unit)."""

    collate: str | None = None
    auto_increment: int | None = None
    forced: bool = False
    auto_id_cache: int | None = None
    auto_random_base: int | None = None
    shard_row_id_bits: int | None = None
    pre_split_regions: int | None = None
    compression: str | None = None
    ttl: tuple[str, str, str] | None = None
    ttl_enable: bool | None = None
    ttl_job_interval: str | None = None


@dataclass(frozen=True, slots=True)
class TableDetail:
    """Details of CREATE TABLE: table CHECKs, GLOBAL TEMPORARY."""

    checks: tuple[CheckDef, ...] = ()
    global_temporary: bool = False


@dataclass(frozen=True, slots=True)
class ViewDetail:
    """Details of CREATE VIEW: its own column names if written, and the SELECT as written."""

    select: str = ""
    columns: tuple[str, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddCheck:
    """ADD CHECK."""

    check: CheckDef


@dataclass(frozen=True, slots=True)
class AlterCheck:
    """ALTER CHECK .. [NOT] ENFORCED."""

    name: str
    enforced: bool


@dataclass(frozen=True, slots=True)
class DropForeignKey:
    """DROP FOREIGN KEY."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropConstraint:
    """DROP CHECK and DROP CONSTRAINT."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RemoveTtl:
    """REMOVE TTL."""


@dataclass(frozen=True, slots=True)
class SequenceDef:
    """CREATE SEQUENCE and, with `alter`, ALTER SEQUENCE; None where not written."""

    name: TableName
    alter: bool = False
    if_exists: bool = False
    start: int | None = None
    increment: int | None = None
    minimum: int | None = None
    maximum: int | None = None
    cache: int | None = None
    """0 is NOCACHE."""
    cycle: bool | None = None
    restart: int | None = None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class DropSequences:
    """DROP SEQUENCE."""

    names: tuple[TableName, ...]
    if_exists: bool = False


SpecDetail: TypeAlias = AddCheck | AlterCheck | DropForeignKey | DropConstraint | RemoveTtl
StatementDetail: TypeAlias = SequenceDef | DropSequences


@dataclass(frozen=True, slots=True)
class DefaultText:
    """DEFAULT 'text'."""

    value: str


@dataclass(frozen=True, slots=True)
class DefaultNumber:
    """DEFAULT 1.50, -3, TRUE: digits as written, sign included."""

    text: str


@dataclass(frozen=True, slots=True)
class Blob:
    """DEFAULT x'00ff', 0x1f or b'101': the bytes, leading zeros as written for hex, shortest for bits."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Null:
    """DEFAULT NULL."""


@dataclass(frozen=True, slots=True)
class Now:
    """DEFAULT CURRENT_TIMESTAMP(fsp) or one of its synonyms; CURRENT_DATE is `Now(0)` too."""

    fsp: int


@dataclass(frozen=True, slots=True)
class Expression:
    """DEFAULT (expression), UUID(), NEXT VALUE FOR s: the text as written."""

    sql: str


Default: TypeAlias = DefaultText | DefaultNumber | Blob | Null | Now | Expression


@dataclass(frozen=True, slots=True)
class TypeDef:
    """A column type as written: `charset` is None where the table decides, -1 is an unwritten length or scale."""

    code: MysqlType
    flen: int = -1
    decimal: int = -1
    unsigned: bool = False
    zerofill: bool = False
    charset: str | None = None
    elems: tuple[str, ...] | None = None
    binary: bool = field(default=False, compare=False)
    """The attribute BINARY: the binary collation of its charset."""


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """A column definition; `nullable` and `default` are None where nothing was written."""

    name: str
    type: TypeDef
    nullable: bool | None = None
    default: Default | None = None
    generated: str | None = None
    stored: bool = False
    comment: str = ""
    auto_increment: bool = False
    primary: bool = False
    unique: bool = False
    clustered: bool | None = None
    detail: ColumnDetail = field(default=ColumnDetail(), compare=False)


@dataclass(frozen=True, slots=True)
class IndexDef:
    """An index definition; `name` is None where MySQL chooses one, an expression part of `columns` is ''."""

    name: str | None
    columns: tuple[str, ...]
    unique: bool = False
    primary: bool = False
    visible: bool = True
    clustered: bool | None = None
    foreign: bool = False
    """True for the index that a foreign key brings along unless one is there."""
    detail: IndexDetail = field(default=IndexDetail(), compare=False)


@dataclass(frozen=True, slots=True)
class Position:
    """FIRST (`after` is None) or AFTER a column."""

    after: str | None


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Table options that definitions carry; None where not written."""

    charset: str | None = None
    comment: str | None = None
    detail: OptionsDetail = field(default=OptionsDetail(), compare=False)


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
    """ALTER TABLE .. RENAME TO; `qualified` if the text names the new schema."""

    table: TableName
    qualified: bool


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
    """A spec that no row and no later statement depends on; `what` names it, `detail` is its value in TiDB."""

    what: str
    detail: SpecDetail | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class NotSupported:
    """A spec whose change of tables is not supported; `what` names it."""

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


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """CREATE DATABASE; `charset` is None where the server decides."""

    name: str
    charset: str | None = None
    if_not_exists: bool = False
    collate: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AlterDatabase:
    """ALTER DATABASE .. CHARACTER SET."""

    name: str
    charset: str | None = None
    collate: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """DROP DATABASE."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RecoverDatabase:
    """FLASHBACK DATABASE."""

    name: str
    to: str | None = None


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE with its body; `not_supported` names a part that is not supported, "" if none."""

    table: TableName
    columns: tuple[ColumnDef, ...]
    indexes: tuple[IndexDef, ...] = ()
    options: TableOptions = field(default_factory=TableOptions)
    partition: PartitionInfo | None = None
    if_not_exists: bool = False
    not_supported: str = ""
    detail: TableDetail = field(default=TableDetail(), compare=False)


@dataclass(frozen=True, slots=True)
class CreateTableLike:
    """CREATE TABLE .. LIKE; `doubtful` where only the new table names its schema."""

    table: TableName
    source: TableName
    doubtful: bool
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropTables:
    """DROP TABLE of one or more tables."""

    tables: tuple[TableName, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class TruncateTable:
    """TRUNCATE TABLE."""

    table: TableName


@dataclass(frozen=True, slots=True)
class RenamePair:
    """old TO new; `doubtful` where only the new name names its schema: the old one's is then the session's."""

    old: TableName
    new: TableName
    doubtful: bool


@dataclass(frozen=True, slots=True)
class RenameTables:
    """RENAME TABLE a TO b, c TO d: in this order."""

    pairs: tuple[RenamePair, ...]


@dataclass(frozen=True, slots=True)
class AlterTable:
    """ALTER TABLE with all its specs; `doubtful` where only a RENAME TO in it names a schema."""

    table: TableName
    doubtful: bool
    specs: tuple[Spec, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RecoverTable:
    """RECOVER TABLE, or FLASHBACK TABLE .. TO `to`; an empty name (BY JOB) leaves the table to the event."""

    table: TableName
    to: str | None = None


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE [OR REPLACE] VIEW."""

    view: TableName
    detail: ViewDetail = field(default=ViewDetail(), compare=False)


@dataclass(frozen=True, slots=True)
class DropViews:
    """DROP VIEW of one or more views."""

    views: tuple[TableName, ...]
    if_exists: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Ignored:
    """A statement without effect on tables; `what` names it, `detail` is its effect in TiDB."""

    what: str
    detail: StatementDetail | None = field(default=None, compare=False)


Statement: TypeAlias = (
    CreateDatabase
    | AlterDatabase
    | DropDatabase
    | RecoverDatabase
    | CreateTable
    | CreateTableLike
    | DropTables
    | TruncateTable
    | RenameTables
    | AlterTable
    | RecoverTable
    | CreateView
    | DropViews
    | Ignored
)
