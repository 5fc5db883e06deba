"""The parts that DDL statements define tables with: types, defaults, columns, indexes, options, as written.

Nothing here is completed: an unwritten charset, length or nullability stays open until the table is built.
Source: TiDB parser/ast/ddl.go (ColumnDef, Constraint), as far as change capture needs it.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from tidegate.model.mysql import MysqlType
from tidegate.schema.detail import ColumnDetail, IndexDetail, OptionsDetail

__all__ = [
    "Blob",
    "ColumnDef",
    "Default",
    "DefaultNumber",
    "DefaultText",
    "Expression",
    "IndexDef",
    "Now",
    "Null",
    "Position",
    "TableOptions",
    "TypeDef",
]


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
