"""Families of types that convert by the same rules, and how events have their values.

    family    codes                              value   as number            as text
    INT       TINY .. LONGLONG                   int     itself               digits
    BIT       BIT                                int     itself               digits (not its bytes)
    YEAR      YEAR                               int     itself               digits
    FLOAT     FLOAT, DOUBLE                      float   approximate          shortest digits, no exponent
    DECIMAL   DECIMAL                            str     exact                itself, padded to the scale
    TEXT      CHAR, VARCHAR, TEXT                str     its numeric prefix   itself
    BINARY    BINARY, VARBINARY, BLOB            bytes   its numeric prefix   in the character set
    MOMENT    DATE, DATETIME, TIMESTAMP          str     20200131235959.9     itself
    SPAN      TIME                               str     102030.5             itself
    JSON      JSON                               str     the scalar's         itself
    ENUM      ENUM                               str     index                name
    SET       SET                                str     bit mask             names
    VECTOR    VECTOR                             str     -                    itself

Source: TiDB's types package (Datum.ConvertTo and its parts).
"""

from enum import Enum
from typing import Final

from tidegate.model.errors import UnsupportedError
from tidegate.model.mysql import STRINGS, MysqlType
from tidegate.model.table import ColumnType


class Family(Enum):
    """Types that convert by the same rules."""

    INT = "integer"
    BIT = "BIT"
    YEAR = "YEAR"
    FLOAT = "FLOAT or DOUBLE"
    DECIMAL = "DECIMAL"
    TEXT = "text"
    BINARY = "bytes"
    MOMENT = "date and time"
    SPAN = "TIME"
    JSON = "JSON"
    ENUM = "ENUM"
    SET = "SET"
    VECTOR = "VECTOR"


FAMILIES: Final = {
    MysqlType.TINY: Family.INT,
    MysqlType.SHORT: Family.INT,
    MysqlType.INT24: Family.INT,
    MysqlType.LONG: Family.INT,
    MysqlType.LONGLONG: Family.INT,
    MysqlType.BIT: Family.BIT,
    MysqlType.YEAR: Family.YEAR,
    MysqlType.FLOAT: Family.FLOAT,
    MysqlType.DOUBLE: Family.FLOAT,
    MysqlType.DECIMAL: Family.DECIMAL,
    MysqlType.DECIMAL_OLD: Family.DECIMAL,
    MysqlType.DATE: Family.MOMENT,
    MysqlType.NEWDATE: Family.MOMENT,
    MysqlType.DATETIME: Family.MOMENT,
    MysqlType.TIMESTAMP: Family.MOMENT,
    MysqlType.TIME: Family.SPAN,
    MysqlType.JSON: Family.JSON,
    MysqlType.ENUM: Family.ENUM,
    MysqlType.SET: Family.SET,
    MysqlType.VECTOR: Family.VECTOR,
}


def type_name(kind: ColumnType) -> str:
    """Return a type for error messages: DECIMAL(10,2) UNSIGNED."""
    sizes = [str(size) for size in (kind.flen, kind.decimal) if size >= 0]
    name = MysqlType(kind.code).name
    if kind.code in STRINGS and kind.charset == "binary":
        name += " BINARY"
    return f"{name}{'(' + ','.join(sizes) + ')' if sizes else ''}{' UNSIGNED' if kind.unsigned else ''}"


def family_of(kind: ColumnType) -> Family:
    """Return the family of a type; raises UnsupportedError for GEOMETRY and NULL."""
    if kind.code in STRINGS:
        return Family.BINARY if kind.charset == "binary" else Family.TEXT
    family = FAMILIES.get(kind.code)
    if family is None:
        raise UnsupportedError(f"values of type {type_name(kind)} cannot be converted; leave the table out by a filter")
    return family


def elems_of(kind: ColumnType) -> tuple[str, ...]:
    """Return the names of an ENUM or SET; raises UnsupportedError when the definition is not known."""
    if kind.elems is None:
        raise UnsupportedError(
            f"the names of a {type_name(kind)} column are not known; start from a CREATE TABLE or a schema file"
        )
    return kind.elems
