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
from tidegate.model.errors import EncodeError
from tidegate.model.mysql import CHARS, INTEGERS, STRINGS, MysqlType, sql_name
from tidegate.model.table import ColumnType

_SQL_TYPES: Final[dict[MysqlType, int]] = {
    MysqlType.DECIMAL_OLD: 3,
    MysqlType.TINY: -6,
    MysqlType.SHORT: 5,
    MysqlType.LONG: 4,
    MysqlType.FLOAT: 7,
    MysqlType.DOUBLE: 8,
    MysqlType.NULL: 0,
    MysqlType.TIMESTAMP: 93,
    MysqlType.LONGLONG: -5,
    MysqlType.INT24: 4,
    MysqlType.DATE: 91,
    MysqlType.TIME: 92,
    MysqlType.DATETIME: 93,
    MysqlType.YEAR: 12,
    MysqlType.NEWDATE: 91,
    MysqlType.VARCHAR: 12,
    MysqlType.BIT: -7,
    MysqlType.VECTOR: 12,
    MysqlType.JSON: 12,
    MysqlType.DECIMAL: 3,
    MysqlType.ENUM: 4,
    MysqlType.SET: -7,
    MysqlType.TINY_BLOB: 2005,
    MysqlType.MEDIUM_BLOB: 2005,
    MysqlType.LONG_BLOB: 2005,
    MysqlType.BLOB: 2005,
    MysqlType.VAR_STRING: 12,
    MysqlType.STRING: 1,
    MysqlType.GEOMETRY: -2,
}
"""sqlType of each type; of strings as text."""
_BINARY: Final = 2004
"""sqlType of strings as bytes."""

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
    code = column.type.code
    return _BINARY if column.binary and code in STRINGS else _SQL_TYPES[code]


_INCOMPLETE: Final = frozenset({"char", "varchar", "binary", "varbinary", "enum", "set", "bit", "decimal", "int"})
"""Types that official Canal never writes without parameters."""


def check_parameters(column: WireColumn) -> None:
    """Raise EncodeError for a column whose type came without its parameters."""
    if column.mysql_type in _INCOMPLETE:
        raise EncodeError(
            f"column {column.name}: content-compatible needs the parameters of types, such as the 50 of varchar(50), "
            f"and {column.mysql_type} came without; read messages that were written with it"
        )


def mysql_type(column: WireColumn, *, full: bool) -> str:
    """Return the mysqlType of a column, with the parameters of its definition when `full`."""
    if column.mysql_type:
        return column.mysql_type
    kind = column.type
    name = sql_name(kind.code, binary=kind.charset == "binary")
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
        (*INTEGERS, *CHARS, MysqlType.BIT, MysqlType.YEAR),
        _length,
    ),
    **dict.fromkeys((MysqlType.DATETIME, MysqlType.TIMESTAMP, MysqlType.TIME), _fraction),
    **dict.fromkeys((MysqlType.FLOAT, MysqlType.DOUBLE), _float),
    **dict.fromkeys((MysqlType.ENUM, MysqlType.SET), _elements),
    MysqlType.DECIMAL: _decimal,
    MysqlType.VECTOR: _length_if_given,
}
