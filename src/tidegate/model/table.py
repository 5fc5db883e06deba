"""Table definitions: the results of DDLs, needed to read rows.

    TableInfo
      columns      in definition order; a column keeps its `id` through renames and moves
      indexes      primary first if there is one
      partition    only the definition; schema/partition.py finds the partition of a row
      incarnation  names the stored rows: stays through RENAME and ALTER, new after CREATE and TRUNCATE

Names keep their case and compare without it, as TiDB's do.
Source: TiDB's model.TableInfo, as far as change capture needs it; TiCDC's handle key rule.
"""

from typing import Final, NamedTuple

import msgspec

from tidegate.model.mysql import MysqlType
from tidegate.model.name import lowered, qualified

COLUMNS_MAX: Final = 4096
"""The maximum of TiDB's table-column-count-limit."""
KEYS_MAX: Final = 512
"""The maximum of TiDB's index-limit."""


class TableName(NamedTuple):
    """schema.table in original case; names are equal if their `key` is, and `str()` is unique for each."""

    schema: str
    table: str

    @property
    def key(self) -> tuple[str, str]:
        """The name as a dictionary key: case folded, as TiDB compares."""
        return lowered(self.schema), lowered(self.table)

    def __str__(self) -> str:
        return qualified(*self)


class ColumnType(msgspec.Struct, frozen=True):
    """A MySQL type: `flen` is length or precision (-1 = the type's default), `decimal` scale or fsp (-1 likewise)."""

    code: MysqlType
    flen: int = -1
    decimal: int = -1
    unsigned: bool = False
    zerofill: bool = False
    charset: str = "utf8mb4"
    """"binary" for BINARY, VARBINARY, BLOB and every type that is not text."""
    elems: tuple[str, ...] | None = None
    """ENUM and SET names; None when not known."""


class ColumnInfo(msgspec.Struct, frozen=True):
    """One public column. `default` and `origin_default` are the value as text or bytes; see schema/parse_ddl.py."""

    id: int
    name: str
    type: ColumnType
    nullable: bool = True
    default: str | bytes | None = None
    default_is_expr: bool = False
    origin_default: str | bytes | None = None
    """The value in rows written before the column existed (None = NULL, or the zero value when NOT NULL)."""
    generated: str | None = None
    """The expression of a generated column."""
    stored: bool = False
    comment: str = ""
    auto_increment: bool = False
    collation: str = ""
    """The collation of a text column, if it is not the default of its charset in TiDB."""

    @property
    def virtual(self) -> bool:
        """True for a VIRTUAL generated column: it is never in a message."""
        return self.generated is not None and not self.stored


class IndexInfo(msgspec.Struct, frozen=True):
    """An index by column names (original case); an expression part has the name ''."""

    id: int
    name: str
    columns: tuple[str, ...]
    unique: bool = False
    primary: bool = False
    visible: bool = True
    clustered: bool | None = None


class PartitionDef(msgspec.Struct, frozen=True):
    """One partition; `less_than` and `in_values` hold SQL text, one entry a column (MAXVALUE, DEFAULT verbatim)."""

    name: str
    less_than: tuple[str, ...] = ()
    in_values: tuple[tuple[str, ...], ...] = ()


class PartitionInfo(msgspec.Struct, frozen=True):
    """`method` is RANGE, LIST, HASH or KEY; `expr` is SQL text, `columns` of the COLUMNS forms and KEY."""

    method: str
    expr: str = ""
    columns: tuple[str, ...] = ()
    definitions: tuple[PartitionDef, ...] = ()
    count: int = 0
    """Number of partitions of HASH and KEY (definitions then are p0, p1, ...)."""


class TableInfo(msgspec.Struct, frozen=True):
    """A table's definition from `version` (the commit_ts of its last DDL) on."""

    name: TableName
    incarnation: str
    version: int
    columns: tuple[ColumnInfo, ...]
    indexes: tuple[IndexInfo, ...] = ()
    partition: PartitionInfo | None = None
    charset: str = "utf8mb4"
    comment: str = ""
    max_column_id: int = 0
    max_index_id: int = 0
    max_fk_id: int = 0
    """The number of foreign keys it ever had: the next unnamed one is called by the next number."""
    inferred: bool = False
    """True when read off messages because no DDL was seen; types are then as exact as the format lets them be."""
    collation: str = ""
    """The collation of new text columns, if it is not the default of the charset."""

    def column(self, name: str) -> ColumnInfo | None:
        """Return the column of that name in any case; None if there is none."""
        folded = lowered(name)
        return next((column for column in self.columns if lowered(column.name) == folded), None)

    @property
    def handle_key(self) -> tuple[str, ...]:
        """Columns that identify a row: the primary key, else the shortest unique key on stored NOT NULL columns
        (lowest index id first), else ()."""
        primary = next((index.columns for index in self.indexes if index.primary), None)
        if primary is not None:
            return primary
        fit = {lowered(column.name) for column in self.columns if not column.nullable and not column.virtual}
        usable = [index for index in self.indexes if index.unique and fit.issuperset(map(lowered, index.columns))]
        return min(usable, key=lambda index: (len(index.columns), index.id)).columns if usable else ()
