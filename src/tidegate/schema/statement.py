"""What DDL text says, before anybody asks whether it fits the tables: a closed union of statements.

    Statement = CreateDatabase | AlterDatabase | DropDatabase | RecoverDatabase
              | CreateTable | CreateTableLike | DropTables | TruncateTable | RenameTables | AlterTable | RecoverTable
              | CreateView | DropViews | Ignored

CREATE INDEX and DROP INDEX are AlterTable with one spec.  Names stand as written; table names are completed with the
session's schema.  TiCDC's events carry the schema of the *new* name only; where the text names that one and leaves the
old one to the session, the old name is `doubtful`.  Expressions are the user's own text.
Source: TiDB parser/ast/ddl.go, as far as change capture needs it.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from tidegate.model.table import PartitionInfo, TableName
from tidegate.schema.definition import ColumnDef, IndexDef, StatementDetail, TableDetail, TableOptions, ViewDetail
from tidegate.schema.spec import Spec


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
    """CREATE TABLE with its body; `not_supported` names what in it we cannot follow, "" if nothing."""

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
    """A statement that leaves all tables as they are; `what` names it, `detail` says what TiDB makes of it."""

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
