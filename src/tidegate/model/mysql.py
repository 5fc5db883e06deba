"""MySQL column types, TiCDC column flags and TiDB DDL action codes, as numbers on the wire.

`TYPES` has one record per type, used by codecs, rows of TiKV, DDL texts, expressions and sinks.  A new type of an
existing family needs only its code and its record; a new family also needs entries in the tables by family.

Source: Open Protocol document ("Column Type Code", "Bit flags of columns", "DDL Type Code"); Canal-JSON document ("SQL
Type field"); TiDB's parser/mysql and model packages for the codes that the documents leave out (14, 16, 225, 60 to 72),
its parser.y (StringType, NumericType, ..) and GetDefaultFieldLengthAndDecimal.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, IntFlag
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


class Family(Enum):
    """Families of types with one form of values in rows, one in events, and the same rules of conversion.

        family    codes                              value   as number            as text
        INT       TINY .. LONGLONG                   int     itself               digits
        BIT       BIT                                int     itself               digits (not its bytes)
        YEAR      YEAR                               int     itself               digits
        FLOAT     FLOAT, DOUBLE                      float   approximate          shortest digits, no exponent
        DECIMAL   DECIMAL                            str     exact                itself, padded to the scale
        TEXT      CHAR, VARCHAR, TEXT                str     its numeric prefix   itself
        BINARY    those with the charset binary      bytes   its numeric prefix   in the character set
        MOMENT    DATE, DATETIME, TIMESTAMP          str     20200131235959.9     itself
        SPAN      TIME                               str     102030.5             itself
        JSON      JSON                               str     the scalar's         itself
        ENUM      ENUM                               str     index                name
        SET       SET                                str     bit mask             names
        VECTOR    VECTOR                             str     -                    itself
        GEOMETRY  GEOMETRY                           any     -                    -

    Source: TiDB's types package (Datum.ConvertTo).
    """

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
    GEOMETRY = "GEOMETRY"
    NULL = "NULL"


class Size(Enum):
    """The meaning of the parentheses after a type's name."""

    NONE = "nothing"
    WIDTH = "display width"
    EXACT = "precision and scale"
    FLOAT = "precision, or length and scale"
    FSP = "fractional digits"
    LENGTH = "length"
    LIST = "strings"


@dataclass(frozen=True, slots=True)
class TypeRecord:
    """The properties of a MySQL type.

    names, binary     names in SQL, the first one as it is printed; `binary` those of the charset binary
    sql_type          code in java.sql.Types, as canal-json has it
    length            length of a definition without one; of the BLOB types their most bytes
    bits              size of types whose values are whole numbers
    delta             type of a lake's column, and of an unsigned one; BIT, DECIMAL and binary strings depend on more
    """

    family: Family
    names: str
    sql_type: int
    size: Size = Size.NONE
    length: int = -1
    bits: int = 0
    binary: str = ""
    delta: str = "string"
    delta_unsigned: str = ""


_F, _S = Family, Size
_VARCHAR: Final = (
    "VARCHAR, VARCHARACTER, CHAR VARYING, CHARACTER VARYING, NVARCHAR, NCHAR VARCHAR, NCHAR VARCHARACTER, "
    "NCHAR VARYING, NATIONAL VARCHAR, NATIONAL VARCHARACTER, NATIONAL CHAR VARYING, NATIONAL CHARACTER VARYING"
)
_MEDIUM: Final = (
    "MEDIUMTEXT, LONG, LONG VARCHAR, LONG VARCHARACTER, LONG CHAR VARYING, LONG CHARACTER VARYING",
    "MEDIUMBLOB, LONG VARBINARY",
)
_GEOMETRY: Final = (
    "GEOMETRY, POINT, LINESTRING, POLYGON, MULTIPOINT, MULTILINESTRING, MULTIPOLYGON, GEOMETRYCOLLECTION, "
    "GEOMCOLLECTION"
)
_UINT64: Final = "decimal(20,0)"
TYPES: Final[Mapping[MysqlType, TypeRecord]] = {
    MysqlType.NULL: TypeRecord(_F.NULL, "NULL", 0),
    MysqlType.TINY: TypeRecord(_F.INT, "TINYINT, INT1", -6, _S.WIDTH, 4, 8, "", "byte", "short"),
    MysqlType.SHORT: TypeRecord(_F.INT, "SMALLINT, INT2", 5, _S.WIDTH, 6, 16, "", "short", "integer"),
    MysqlType.INT24: TypeRecord(_F.INT, "MEDIUMINT, MIDDLEINT, INT3", 4, _S.WIDTH, 9, 24, "", "integer", "integer"),
    MysqlType.LONG: TypeRecord(_F.INT, "INT, INTEGER, INT4", 4, _S.WIDTH, 11, 32, "", "integer", "long"),
    MysqlType.LONGLONG: TypeRecord(_F.INT, "BIGINT, INT8", -5, _S.WIDTH, 20, 64, "", "long", _UINT64),
    MysqlType.YEAR: TypeRecord(_F.YEAR, "YEAR, SQL_TSI_YEAR", 12, _S.WIDTH, 4, delta="short"),
    MysqlType.BIT: TypeRecord(_F.BIT, "BIT", -7, _S.WIDTH, 1, 64, delta=_UINT64),
    MysqlType.ENUM: TypeRecord(_F.ENUM, "ENUM", 4, _S.LIST, bits=16),
    MysqlType.SET: TypeRecord(_F.SET, "SET", -7, _S.LIST, bits=64),
    MysqlType.FLOAT: TypeRecord(_F.FLOAT, "FLOAT, FLOAT4", 7, _S.FLOAT, 12, delta="float"),
    MysqlType.DOUBLE: TypeRecord(_F.FLOAT, "DOUBLE, DOUBLE PRECISION, REAL, FLOAT8", 8, _S.FLOAT, 22, delta="double"),
    MysqlType.DECIMAL_OLD: TypeRecord(_F.DECIMAL, "DECIMAL", 3),
    MysqlType.DECIMAL: TypeRecord(_F.DECIMAL, "DECIMAL, DEC, NUMERIC, FIXED", 3, _S.EXACT, 10),
    MysqlType.NEWDATE: TypeRecord(_F.MOMENT, "DATE", 91, delta="date"),
    MysqlType.DATE: TypeRecord(_F.MOMENT, "DATE", 91, delta="date"),
    MysqlType.DATETIME: TypeRecord(_F.MOMENT, "DATETIME", 93, _S.FSP, delta="timestamp_ntz"),
    MysqlType.TIMESTAMP: TypeRecord(_F.MOMENT, "TIMESTAMP", 93, _S.FSP, delta="timestamp"),
    MysqlType.TIME: TypeRecord(_F.SPAN, "TIME", 92, _S.FSP),
    MysqlType.STRING: TypeRecord(
        _F.TEXT, "CHAR, CHARACTER, NCHAR, NATIONAL CHAR, NATIONAL CHARACTER", 1, _S.LENGTH, 1, binary="BINARY"
    ),
    MysqlType.VARCHAR: TypeRecord(_F.TEXT, _VARCHAR, 12, _S.LENGTH, binary="VARBINARY"),
    MysqlType.VAR_STRING: TypeRecord(_F.TEXT, "VAR_STRING", 12, _S.LENGTH),
    MysqlType.TINY_BLOB: TypeRecord(_F.TEXT, "TINYTEXT", 2005, _S.NONE, (1 << 8) - 1, binary="TINYBLOB"),
    MysqlType.BLOB: TypeRecord(_F.TEXT, "TEXT", 2005, _S.LENGTH, (1 << 16) - 1, binary="BLOB"),
    MysqlType.MEDIUM_BLOB: TypeRecord(_F.TEXT, _MEDIUM[0], 2005, _S.NONE, (1 << 24) - 1, binary=_MEDIUM[1]),
    MysqlType.LONG_BLOB: TypeRecord(_F.TEXT, "LONGTEXT", 2005, _S.NONE, (1 << 32) - 1, binary="LONGBLOB"),
    MysqlType.JSON: TypeRecord(_F.JSON, "JSON", 12),
    MysqlType.VECTOR: TypeRecord(_F.VECTOR, "VECTOR", 12, _S.WIDTH),
    MysqlType.GEOMETRY: TypeRecord(_F.GEOMETRY, _GEOMETRY, -2),
}
UNDECLARED: Final = frozenset({MysqlType.DECIMAL_OLD, MysqlType.NEWDATE, MysqlType.NULL})
"""Types that no column definition names."""


def types_of(*families: Family) -> frozenset[MysqlType]:
    """Return the types of some families."""
    return frozenset(code for code, record in TYPES.items() if record.family in families)


BLOBS: Final = frozenset({MysqlType.TINY_BLOB, MysqlType.MEDIUM_BLOB, MysqlType.LONG_BLOB, MysqlType.BLOB})
STRINGS: Final = types_of(Family.TEXT)
"""Types of texts and, with the charset binary, of bytes."""
CHARS: Final = STRINGS - BLOBS
INTEGERS: Final = types_of(Family.INT)
FLOATS: Final = types_of(Family.FLOAT)
DATES: Final = frozenset({MysqlType.DATE, MysqlType.NEWDATE})
MOMENTS: Final = types_of(Family.MOMENT)
"""Dates, and dates with a time of day."""
NAMED: Final = types_of(Family.ENUM, Family.SET)
"""Types whose values are numbers for names."""
UNSIGNED_TYPES: Final = types_of(Family.BIT, Family.ENUM, Family.SET)
"""Types whose values have no sign in rows, whatever their definition says."""
NUMBERS: Final = INTEGERS | UNSIGNED_TYPES | types_of(Family.YEAR)
"""Types whose values TiDB holds as whole numbers, ENUM and SET among them."""
PRINTED_TYPES: Final = types_of(Family.DECIMAL, Family.MOMENT, Family.SPAN, Family.VECTOR)
"""Types whose values TiDB prints as text without a character that JSON escapes."""
INTEGER_BITS: Final = {code: record.bits for code, record in TYPES.items() if record.family is Family.INT}
BLOB_LIMITS: Final = {code: record.length for code, record in TYPES.items() if code in BLOBS}
"""The most bytes of each BLOB type, ascending."""


def default_length(code: MysqlType, *, unsigned: bool = False) -> int:
    """Return the length of a type whose definition has none: display widths of unsigned integers lack the sign."""
    record = TYPES[code]
    return record.length - (unsigned and record.bits in range(1, 64) and record.family is Family.INT)


def sql_name(code: MysqlType, *, binary: bool = False) -> str:
    """Return a type's name in SQL, in lower case; of string types that of texts, or of bytes if `binary`."""
    record = TYPES[code]
    return ((binary and record.binary) or record.names).partition(",")[0].lower()


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
    """TiDB's DDL job types: those that TiCDC sends, and that of sequences, which a load makes. Others arrive as plain
    numbers."""

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
    CREATE_SEQUENCE = 34
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
