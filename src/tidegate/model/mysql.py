"""MySQL column types, TiCDC column flags and TiDB DDL action codes, as numbers on the wire.

Source: Open Protocol document ("Column Type Code", "Bit flags of columns", "DDL Type Code"); TiDB's parser/mysql
and model packages for the codes that the document leaves out (14, 16, 225, 60 to 72).
"""

from enum import IntEnum, IntFlag
from typing import Final


class MysqlType(IntEnum):
    """The `t` of an Open Protocol column."""

    DECIMAL_OLD = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    VECTOR = 225
    JSON = 245
    DECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


CHARS: Final = frozenset({MysqlType.VARCHAR, MysqlType.VAR_STRING, MysqlType.STRING})
BLOBS: Final = frozenset({MysqlType.TINY_BLOB, MysqlType.MEDIUM_BLOB, MysqlType.LONG_BLOB, MysqlType.BLOB})
STRINGS: Final = CHARS | BLOBS
"""Types of texts and, with the charset binary, of bytes."""
INTEGERS: Final = frozenset({MysqlType.TINY, MysqlType.SHORT, MysqlType.INT24, MysqlType.LONG, MysqlType.LONGLONG})
FLOATS: Final = frozenset({MysqlType.FLOAT, MysqlType.DOUBLE})
NUMBERS: Final = frozenset(
    {
        MysqlType.TINY,
        MysqlType.SHORT,
        MysqlType.LONG,
        MysqlType.LONGLONG,
        MysqlType.INT24,
        MysqlType.YEAR,
        MysqlType.BIT,
        MysqlType.ENUM,
        MysqlType.SET,
    }
)
"""Types whose values TiDB holds as whole numbers, ENUM and SET among them."""
PRINTED_TYPES: Final = frozenset(
    {
        MysqlType.DECIMAL,
        MysqlType.DATE,
        MysqlType.TIME,
        MysqlType.DATETIME,
        MysqlType.TIMESTAMP,
        MysqlType.VECTOR,
    }
)
"""Types whose values TiDB prints as text."""


_SQL_NAMES: Final = {
    MysqlType.DECIMAL_OLD: "decimal",
    MysqlType.TINY: "tinyint",
    MysqlType.SHORT: "smallint",
    MysqlType.LONG: "int",
    MysqlType.LONGLONG: "bigint",
    MysqlType.INT24: "mediumint",
    MysqlType.NEWDATE: "date",
    MysqlType.STRING: "char",
    MysqlType.TINY_BLOB: "tinytext",
    MysqlType.MEDIUM_BLOB: "mediumtext",
    MysqlType.LONG_BLOB: "longtext",
    MysqlType.BLOB: "text",
}
"""Types whose SQL names are not those of the code."""
_BINARY_NAMES: Final = {
    "char": "binary",
    "varchar": "varbinary",
    "tinytext": "tinyblob",
    "text": "blob",
    "mediumtext": "mediumblob",
    "longtext": "longblob",
}


def sql_name(code: MysqlType, *, binary: bool = False) -> str:
    """Return a type's name in SQL, in lower case; of string types that of texts, or of bytes if `binary`."""
    name = _SQL_NAMES.get(code, code.name.lower())
    return _BINARY_NAMES.get(name, name) if binary else name


class ColumnFlag(IntFlag):
    """The `f` of an Open Protocol column. BINARY is set on every column whose charset is binary, numbers too."""

    BINARY = 1
    HANDLE_KEY = 2
    GENERATED = 4
    PRIMARY_KEY = 8
    UNIQUE_KEY = 16
    MULTIPLE_KEY = 32
    NULLABLE = 64
    UNSIGNED = 128


class ActionType(IntEnum):
    """TiDB's DDL job types; TiCDC sends those listed here, others arrive as plain numbers."""

    NONE = 0
    CREATE_SCHEMA = 1
    DROP_SCHEMA = 2
    CREATE_TABLE = 3
    DROP_TABLE = 4
    ADD_COLUMN = 5
    DROP_COLUMN = 6
    ADD_INDEX = 7
    DROP_INDEX = 8
    ADD_FOREIGN_KEY = 9
    DROP_FOREIGN_KEY = 10
    TRUNCATE_TABLE = 11
    MODIFY_COLUMN = 12
    REBASE_AUTO_ID = 13
    RENAME_TABLE = 14
    SET_DEFAULT_VALUE = 15
    SHARD_ROW_ID = 16
    MODIFY_TABLE_COMMENT = 17
    RENAME_INDEX = 18
    ADD_TABLE_PARTITION = 19
    DROP_TABLE_PARTITION = 20
    CREATE_VIEW = 21
    MODIFY_TABLE_CHARSET = 22
    TRUNCATE_TABLE_PARTITION = 23
    DROP_VIEW = 24
    RECOVER_TABLE = 25
    MODIFY_SCHEMA_CHARSET = 26
    ADD_PRIMARY_KEY = 32
    DROP_PRIMARY_KEY = 33
    ALTER_INDEX_VISIBILITY = 41
    EXCHANGE_TABLE_PARTITION = 42
    RENAME_TABLES = 47
    CREATE_TABLES = 60
    MULTI_SCHEMA_CHANGE = 61
    RECOVER_SCHEMA = 63
    REORGANIZE_PARTITION = 64
    ALTER_TTL_INFO = 65
    ALTER_TTL_REMOVE = 67
    ALTER_TABLE_PARTITIONING = 71
    REMOVE_PARTITIONING = 72
