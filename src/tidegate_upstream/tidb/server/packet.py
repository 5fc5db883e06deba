"""Answers as packets of MySQL's protocol: columns, rows in both forms, errors.

    error        ff | code: 2 | '#' | SQLSTATE: 5 | message
    text row     for each value: fb (NULL) or length, text
    binary row   00 | bit of each NULL, from bit 2 on | values     INT 01 02 00 00  DATE 04 e8 07 01 1f  'ab' 02 61 62

Texts go out in the character set that the session asks for; what it cannot say becomes `?`.  The text that stands for a
value is `value_text.render`'s.

Source: MySQL Internals, "Text Resultset", "Binary Protocol Resultset", "ERR_Packet".
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from mysql_mimic.charset import CharacterSet
from mysql_mimic.packets import make_column_definition_41
from mysql_mimic.types import ColumnDefinition, ColumnType, str_len

from tidegate.expr.relation import ResultColumn, Row
from tidegate.model import table as model
from tidegate.model.mysql import BLOBS, FLOATS
from tidegate.model.mysql import MysqlType as T
from tidegate.mysql.convert.text import CODECS
from tidegate.mysql.datum import Duration
from tidegate.mysql.packed_time import ZERO, Time
from tidegate.mysql.value.kinds import SqlValue
from tidegate.mysql.value.text import render

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
_INT_BYTES: Final = {T.TINY: 1, T.SHORT: 2, T.YEAR: 2, T.INT24: 4, T.LONG: 4, T.LONGLONG: 8}
_SECOND_NS: Final = 1_000_000_000
_DAY_S: Final = 86_400

_Encode: TypeAlias = Callable[[SqlValue, model.ColumnType], bytes]


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


def binary_row(columns: Sequence[ResultColumn], row: Row, charset: str) -> bytes:
    """Return a row of the binary protocol, which answers prepared statements."""
    absent = sum(1 << at + 2 for at, value in enumerate(row) if value is None)
    parts = [b"\0", absent.to_bytes((len(row) + 9) // 8, "little")]
    for column, value in zip(columns, row, strict=True):
        if value is not None:
            encode = _BINARY.get(column.type.code)
            fits = encode is not None and isinstance(value, _EXPECTED[column.type.code])
            text = b"" if fits else str_len(_octets(value, column.type, charset))
            parts.append(encode(value, column.type) if encode is not None and fits else text)
    return b"".join(parts)


def _octets(value: SqlValue, kind: model.ColumnType, charset: str) -> bytes:
    text = render(value, kind)
    assert text is not None, kind
    if isinstance(text, bytes):
        return text
    if charset in _UTF8:
        return text.encode("utf-8", "surrogateescape")
    return text.encode(CODECS.get(charset, "utf-8"), "replace")


def _int(value: SqlValue, kind: model.ColumnType) -> bytes:
    assert isinstance(value, int), value
    size = _INT_BYTES[kind.code]
    return (value & (1 << 8 * size) - 1).to_bytes(size, "little")


def _float(value: SqlValue, kind: model.ColumnType) -> bytes:
    return struct.pack("<f" if kind.code is T.FLOAT else "<d", value)


def _moment(value: SqlValue, kind: model.ColumnType) -> bytes:
    assert isinstance(value, Time), value
    if value == ZERO:
        return b"\0"
    date = struct.pack("<HBB", value.year, value.month, value.day)
    clock = bytes((value.hour, value.minute, value.second))
    if kind.code is T.DATE or value[3:] == (0, 0, 0, 0):
        return b"\4" + date
    if not value.microsecond:
        return b"\7" + date + clock
    return b"\x0b" + date + clock + value.microsecond.to_bytes(4, "little")


def _span(value: SqlValue, _kind: model.ColumnType) -> bytes:
    assert isinstance(value, Duration), value
    seconds, ns = divmod(abs(value), _SECOND_NS)
    if not value:
        return b"\0"
    days, rest = divmod(seconds, _DAY_S)
    whole = struct.pack("<BIBBB", value < 0, days, rest // 3600, rest // 60 % 60, rest % 60)
    return b"\x08" + whole if not ns else b"\x0c" + whole + (ns // 1000).to_bytes(4, "little")


_BINARY: Final[Mapping[T, _Encode]] = {
    **dict.fromkeys(_INT_BYTES, _int),
    **dict.fromkeys(FLOATS, _float),
    **dict.fromkeys((T.DATE, T.DATETIME, T.TIMESTAMP), _moment),
    T.TIME: _span,
}
_EXPECTED: Final[Mapping[T, type]] = {
    **dict.fromkeys(_INT_BYTES, int),
    **dict.fromkeys(FLOATS, float),
    **dict.fromkeys((T.DATE, T.DATETIME, T.TIMESTAMP), Time),
    T.TIME: Duration,
}
