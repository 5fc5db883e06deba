"""Answers as packets of MySQL's protocol: columns, rows, errors.

    error        ff | code: 2 | '#' | SQLSTATE: 5 | message
    text row     for each value: fb (NULL) or length, text

Texts go out in the character set that the session asks for; what it cannot say becomes `?`.  The text that stands for a
value is `value_text.render`'s.

Source: MySQL Internals, "Text Resultset", "ERR_Packet".
"""

from collections.abc import Sequence
from typing import Final

from mysql_mimic.charset import CharacterSet
from mysql_mimic.packets import make_column_definition_41
from mysql_mimic.types import ColumnDefinition, ColumnType, str_len

from tidegate.expr.convert.text import CODECS
from tidegate.expr.relation import ResultColumn, Row
from tidegate.expr.value.kinds import SqlValue
from tidegate.expr.value.text import render
from tidegate.model import table as model
from tidegate.model.mysql import BLOBS, FLOATS
from tidegate.model.mysql import MysqlType as T

_NULL: Final = b"\xfb"
_SENT_AS: Final = {
    T.VARCHAR: T.VAR_STRING,
    T.ENUM: T.STRING,
    T.SET: T.STRING,
    T.VECTOR: T.LONG_BLOB,
    T.NEWDATE: T.DATE,
}
"""Types that no client expects in an answer, and what goes in their place."""
_KIND_FLAGS: Final = {
    **dict.fromkeys(BLOBS, ColumnDefinition.BLOB_FLAG),
    T.ENUM: ColumnDefinition.ENUM_FLAG,
    T.SET: ColumnDefinition.SET_FLAG,
    T.TIMESTAMP: ColumnDefinition.TIMESTAMP_FLAG,
}
_UTF8: Final = frozenset({"utf8mb4", "utf8", "binary", ""})
_NO_DECIMALS: Final = 0x1F
_UNKNOWN_LENGTH: Final = 1024
_LENGTH_MAX: Final = (1 << 32) - 1


def error_packet(code: int, sqlstate: str, message: str) -> bytes:
    """Return an error as a client gets it."""
    return b"\xff" + code.to_bytes(2, "little") + b"#" + sqlstate.encode()[:5] + message.encode("utf-8", "replace")


def column_packet(column: ResultColumn, charset: str) -> bytes:
    """Return the definition of a column of an answer; texts are in `charset`."""
    kind = column.type
    binary = kind.charset == "binary"
    flags = _KIND_FLAGS.get(kind.code, ColumnDefinition(0))
    for holds, flag in (
        (binary, ColumnDefinition.BINARY_FLAG),
        (kind.unsigned, ColumnDefinition.UNSIGNED_FLAG),
        (kind.zerofill, ColumnDefinition.ZEROFILL_FLAG),
    ):
        flags |= flag if holds else ColumnDefinition(0)
    width = kind.flen if kind.flen > 0 else _UNKNOWN_LENGTH
    return bytes(
        make_column_definition_41(
            server_charset=CharacterSet.utf8mb4,
            table=column.table,
            name=column.name,
            character_set=CharacterSet.binary if binary else CharacterSet[charset or "utf8mb4"],
            column_length=min(width if binary else width * 4, _LENGTH_MAX),
            column_type=ColumnType(_SENT_AS.get(kind.code, kind.code)),
            flags=flags,
            decimals=_NO_DECIMALS if kind.decimal < 0 and kind.code in FLOATS else max(kind.decimal, 0),
        )
    )


def text_row(columns: Sequence[ResultColumn], row: Row, charset: str) -> bytes:
    """Return a row of the text protocol."""
    return b"".join(
        _NULL if value is None else str_len(_octets(value, column.type, charset))
        for column, value in zip(columns, row, strict=True)
    )


def _octets(value: SqlValue, kind: model.ColumnType, charset: str) -> bytes:
    text = render(value, kind)
    assert text is not None, kind
    if isinstance(text, bytes):
        return text
    if charset in _UTF8:
        return text.encode("utf-8", "surrogateescape")
    return text.encode(CODECS.get(charset, "utf-8"), "replace")
