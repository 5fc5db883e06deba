"""What canal-json says of a column: its `mysqlType` and its `sqlType`.

    type                 sqlType, by java.sql.Types     mysqlType, short           full (content-compatible)
    BIT, SET             -7 BIT                         bit, set                   bit(8), set('x','y')
    TINYINT              -6 TINYINT                     tinyint                    tinyint(4)
    SMALLINT              5 SMALLINT                    smallint                   smallint(6)
    MEDIUMINT, INT        4 INTEGER                     mediumint, int             mediumint(9), int(11)
    BIGINT               -5 BIGINT                      bigint                     bigint(20)
    FLOAT, DOUBLE         7 REAL, 8 DOUBLE              float, double              float, float(10,3)
    DECIMAL               3 DECIMAL                     decimal                    decimal(10,2)
    CHAR                  1 CHAR                        char                       char(20)
    VARCHAR              12 VARCHAR                     varchar                    varchar(50)
    TEXT family        2005 CLOB                        text                       text
    BINARY, VARBINARY  2004 BLOB                        binary, varbinary          binary(8)
    BLOB family        2004 BLOB                        blob                       blob
    DATE, TIME           91 DATE, 92 TIME               date, time                 date, time(3)
    DATETIME, TIMESTAMP  93 TIMESTAMP                   datetime                   datetime(6)
    YEAR                 12 VARCHAR                     year                       year(4)
    ENUM                  4 INTEGER                     enum                       enum('a','b')
    JSON, VECTOR         12 VARCHAR                     json, vector               json, vector(3)

" unsigned" and " zerofill" follow the name, except for BIT (unsigned) and YEAR (both).

An unsigned integer that does not fit the signed type of its width has the sqlType of the next: TINYINT above 127 is 5,
SMALLINT above 32767 is 4, INT above 2147483647 is -5, BIGINT above 2^63-1 is 3; MEDIUMINT stays.  A NULL does not.

Source: Canal-JSON document, "SQL Type field" and "MySQL Type field"; TiDB's FieldType.CompactStr; recordings.
"""

from collections.abc import Callable
from typing import Final

from tidegate.codec.wire_table import WireColumn
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType

__all__ = ["PROMOTIONS", "mysql_type", "sql_type"]

_NAMES: Final[dict[MysqlType, tuple[str, int, int]]] = {
    MysqlType.DECIMAL_OLD: ("decimal", 3, 3),
    MysqlType.TINY: ("tinyint", -6, -6),
    MysqlType.SHORT: ("smallint", 5, 5),
    MysqlType.LONG: ("int", 4, 4),
    MysqlType.FLOAT: ("float", 7, 7),
    MysqlType.DOUBLE: ("double", 8, 8),
    MysqlType.NULL: ("null", 0, 0),
    MysqlType.TIMESTAMP: ("timestamp", 93, 93),
    MysqlType.LONGLONG: ("bigint", -5, -5),
    MysqlType.INT24: ("mediumint", 4, 4),
    MysqlType.DATE: ("date", 91, 91),
    MysqlType.TIME: ("time", 92, 92),
    MysqlType.DATETIME: ("datetime", 93, 93),
    MysqlType.YEAR: ("year", 12, 12),
    MysqlType.NEWDATE: ("date", 91, 91),
    MysqlType.VARCHAR: ("varchar", 12, 2004),
    MysqlType.BIT: ("bit", -7, -7),
    MysqlType.VECTOR: ("vector", 12, 12),
    MysqlType.JSON: ("json", 12, 12),
    MysqlType.DECIMAL: ("decimal", 3, 3),
    MysqlType.ENUM: ("enum", 4, 4),
    MysqlType.SET: ("set", -7, -7),
    MysqlType.TINY_BLOB: ("tinytext", 2005, 2004),
    MysqlType.MEDIUM_BLOB: ("mediumtext", 2005, 2004),
    MysqlType.LONG_BLOB: ("longtext", 2005, 2004),
    MysqlType.BLOB: ("text", 2005, 2004),
    MysqlType.VAR_STRING: ("var_string", 12, 2004),
    MysqlType.STRING: ("char", 1, 2004),
    MysqlType.GEOMETRY: ("geometry", -2, -2),
}
"""Name of the type with a text charset; sqlType of it as text and as bytes."""

_BINARY_NAMES: Final = {
    "char": "binary",
    "varchar": "varbinary",
    "tinytext": "tinyblob",
    "text": "blob",
    "mediumtext": "mediumblob",
    "longtext": "longblob",
}
PROMOTIONS: Final[dict[MysqlType, tuple[int, int]]] = {
    MysqlType.TINY: ((1 << 7) - 1, 5),
    MysqlType.SHORT: ((1 << 15) - 1, 4),
    MysqlType.LONG: ((1 << 31) - 1, -5),
    MysqlType.LONGLONG: ((1 << 63) - 1, 3),
}
"""The largest value of an unsigned integer that keeps its sqlType, and the sqlType of larger ones."""

_DEFAULT_LENGTHS: Final[dict[MysqlType, int]] = {
    MysqlType.BIT: 1,
    MysqlType.TINY: 4,
    MysqlType.SHORT: 6,
    MysqlType.INT24: 9,
    MysqlType.LONG: 11,
    MysqlType.LONGLONG: 20,
    MysqlType.FLOAT: 12,
    MysqlType.DOUBLE: 22,
    MysqlType.DECIMAL: 10,
    MysqlType.YEAR: 4,
    MysqlType.STRING: 1,
    MysqlType.VARCHAR: 5,
    MysqlType.VAR_STRING: 5,
}
_ESCAPES: Final = str.maketrans({"\0": "\\0", "'": "''", "\n": "\\n", "\r": "\\r"})


def sql_type(column: WireColumn) -> int:
    """Return the sqlType of a column's NULL and of all values that are not promoted."""
    _, text, binary = _NAMES[column.type.code]
    return binary if column.binary else text


def mysql_type(column: WireColumn, *, full: bool) -> str:
    """Return the mysqlType of a column, with the parameters of its definition when `full`."""
    if column.mysql_type:
        return column.mysql_type
    kind = column.type
    name = _NAMES[kind.code][0]
    if kind.charset == "binary":
        name = _BINARY_NAMES.get(name, name)
    if full:
        name += _PARAMETERS.get(kind.code, _none)(kind)
    if (kind.unsigned or kind.zerofill) and kind.code not in {MysqlType.BIT, MysqlType.YEAR}:
        name += " unsigned"
    return name + (" zerofill" if kind.zerofill and kind.code != MysqlType.YEAR else "")


def _none(_kind: ColumnType) -> str:
    return ""


def _length(kind: ColumnType) -> str:
    return f"({_flen(kind)})"


def _length_if_given(kind: ColumnType) -> str:
    return f"({kind.flen})" if kind.flen >= 0 else ""


def _fraction(kind: ColumnType) -> str:
    return f"({kind.decimal})" if kind.decimal > 0 else ""


def _float(kind: ColumnType) -> str:
    return f"({_flen(kind)},{kind.decimal})" if kind.decimal > 0 else ""


def _decimal(kind: ColumnType) -> str:
    return f"({_flen(kind)},{max(kind.decimal, 0)})"


def _elements(kind: ColumnType) -> str:
    return "('" + "','".join(element.translate(_ESCAPES) for element in kind.elems or ()) + "')"


def _flen(kind: ColumnType) -> int:
    return kind.flen if kind.flen >= 0 else _DEFAULT_LENGTHS[kind.code]


_PARAMETERS: Final[dict[MysqlType, Callable[[ColumnType], str]]] = {
    **dict.fromkeys(
        (
            MysqlType.BIT,
            MysqlType.TINY,
            MysqlType.SHORT,
            MysqlType.INT24,
            MysqlType.LONG,
            MysqlType.LONGLONG,
            MysqlType.YEAR,
            MysqlType.STRING,
            MysqlType.VARCHAR,
            MysqlType.VAR_STRING,
        ),
        _length,
    ),
    **dict.fromkeys((MysqlType.DATETIME, MysqlType.TIMESTAMP, MysqlType.TIME), _fraction),
    **dict.fromkeys((MysqlType.FLOAT, MysqlType.DOUBLE), _float),
    **dict.fromkeys((MysqlType.ENUM, MysqlType.SET), _elements),
    MysqlType.DECIMAL: _decimal,
    MysqlType.VECTOR: _length_if_given,
}
