r"""Default values in the form that tables keep: text, or bytes where the column holds bytes.

    column            written            kept
    INT               7, TRUE, 0x1f      "7", "1", "31"
    DECIMAL, DOUBLE   3.1400, 1.5e+10    "3.1400", "1.5e+10"
    BIT(10)           b'1000000001', 5   b"\x02\x01", b"\x00\x05"      (flen + 7) // 8 bytes
    BINARY(4)         'ab', x'6162'      b"ab\\0\\0"                      padded
    VARBINARY, BLOB   'ab'               b"ab"
    CHAR, ENUM, ..    'ab', x'6162'      "ab"
    DATETIME(3)       CURRENT_TIMESTAMP  "CURRENT_TIMESTAMP(3)", an expression

The origin default is what rows hold that were written before their column came: the default at that moment, with
CURRENT_TIMESTAMP standing for the commit of the DDL.  None means NULL or, for NOT NULL, the zero value.
Source: TiDB pkg/ddl (getDefaultValue, generateOriginDefaultValue).
"""

from typing import Final

from tidegate.model.mysql import STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import all_digits
from tidegate.model.table import ColumnType
from tidegate.schema.definition import Blob, Default, DefaultNumber, DefaultText, Expression, Now, Null

_NUMBERS: Final = frozenset({T.TINY, T.SHORT, T.INT24, T.LONG, T.LONGLONG, T.DECIMAL, T.FLOAT, T.DOUBLE, T.YEAR})


def keep_default(default: Default | None, column_type: ColumnType) -> tuple[str | bytes | None, bool]:
    """(value, is expression) of a written default for a column of that type."""
    match default:
        case None | Null():
            return None, False
        case Expression(sql):
            return sql, True
        case Now(fsp):
            fsp = max(fsp, column_type.decimal)
            return f"CURRENT_TIMESTAMP({fsp})" if fsp else "CURRENT_TIMESTAMP", True
        case DefaultText(value):
            return _text(value, column_type), False
        case DefaultNumber(text):
            return _number(text, column_type), False
        case Blob(value):
            return _blob(value, column_type), False


def _text(value: str, column_type: ColumnType) -> str | bytes:
    if column_type.code is T.BIT:
        return _fit_bits(value.encode(), column_type)
    if _is_bytes(column_type):
        return _pad(value.encode("utf-8", "surrogatepass"), column_type)
    return value


def _number(text: str, column_type: ColumnType) -> str | bytes:
    if column_type.code is T.BIT and all_digits(text) and len(text) <= 20:
        return _fit_bits(int(text).to_bytes(9, "big"), column_type)
    return _pad(text.encode(), column_type) if _is_bytes(column_type) else text


def _blob(value: bytes, column_type: ColumnType) -> str | bytes:
    if column_type.code is T.BIT:
        return _fit_bits(value, column_type)
    if column_type.code in _NUMBERS:
        return str(int.from_bytes(value[-8:], "big"))
    if _is_bytes(column_type):
        return _pad(value, column_type)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _is_bytes(column_type: ColumnType) -> bool:
    return column_type.code in STRINGS and column_type.charset == "binary"


def _pad(value: bytes, column_type: ColumnType) -> bytes:
    """BINARY(n) fills up with zero bytes; VARBINARY and BLOB stay."""
    return value.ljust(column_type.flen, b"\0") if column_type.code is T.STRING else value


def _fit_bits(value: bytes, column_type: ColumnType) -> bytes:
    size_bytes = (max(column_type.flen, 1) + 7) // 8
    return value[-size_bytes:].rjust(size_bytes, b"\0")


def origin_default(default: Default | None, column_type: ColumnType) -> str | bytes | None:
    """Return what rows hold that were written before a column with that default was added.

    CURRENT_TIMESTAMP stays as it is: its value needs the time zone, which the schema does not know (literal.py)."""
    kept, is_expression = keep_default(default, column_type)
    return kept if isinstance(default, Now) or not is_expression else None


def is_moment(default: str | float | None) -> bool:
    """Return whether a stored default is the time of the statement."""
    return isinstance(default, str) and default.upper().startswith("CURRENT_TIMESTAMP")
