"""Prepared statements: where their parameters stand, the parameters as a client sends them, and the statement with
literals in those places.

    prepare   INSERT INTO t VALUES (?, 'why?', ?)           places 23 and 34; the one in the string is text
    bound     INSERT INTO t VALUES (7, 'why?', 'it''s')

Values become literals in the text, so that a statement means the same prepared and plain.

    bit of each NULL | 01 | type: 2 bytes each | values      types stay for the next time when 01 is 00

    sent for long texts beforehand, in pieces: COM_STMT_SEND_LONG_DATA

Source: MySQL manual, "Prepared Statements"; MySQL Internals, "COM_STMT_EXECUTE", "Binary Protocol Value".
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidegate.expr.syntax.parse import tokens_of
from tidegate.expr.syntax.tokens import TokenKind
from tidegate.model.errors import DecodeError, SqlRefused
from tidegate.model.mysql import STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate_upstream.tidb.server.incoming import CODEC, PacketReader

Bound: TypeAlias = int | float | str | bytes | None
"""A parameter; `bytes` stand for text, as the client encoded it."""
_WRONG_ARGUMENTS: Final = 1210


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement and the offsets of its parameters."""

    sql: str
    places: tuple[int, ...]

    @classmethod
    def of(cls, sql: str, sql_mode: frozenset[str]) -> "Prepared":
        """Return the statement, its parameters found. Raises SqlRefused 1064 for unreadable text."""
        tokens = tokens_of(sql, sql_mode)
        return cls(sql, tuple(token.start for token in tokens if token.kind is TokenKind.SIGN and token.text == "?"))


def bind(statement: Prepared, values: Sequence[Bound], sql_mode: frozenset[str], charset: str = "utf-8") -> str:
    """Return the text of the statement with literals in the places of its parameters. Raises SqlRefused 1210."""
    if len(values) != len(statement.places):
        raise SqlRefused(_WRONG_ARGUMENTS, "Incorrect arguments to EXECUTE")
    parts, last = [], 0
    for place, value in zip(statement.places, values, strict=True):
        parts += [statement.sql[last:place], _literal(value, sql_mode, charset)]
        last = place + 1
    return "".join([*parts, statement.sql[last:]])


def _literal(value: Bound, sql_mode: frozenset[str], charset: str) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        raw = value
        try:
            value = raw.decode(charset)
        except UnicodeDecodeError:
            return f"x'{raw.hex()}'"
    if isinstance(value, str):
        text = value.replace("'", "''")
        return f"'{text if 'NO_BACKSLASH_ESCAPES' in sql_mode else text.replace(chr(92), chr(92) * 2)}'"
    return f"{value!r}e0" if isinstance(value, float) and "e" not in repr(value) else repr(value)


_TEXTS: Final = STRINGS | {T.DECIMAL_OLD, T.DECIMAL, T.JSON, T.ENUM, T.SET, T.BIT, T.GEOMETRY}
_INTS: Final = {T.TINY: 1, T.SHORT: 2, T.YEAR: 2, T.LONG: 4, T.INT24: 4, T.LONGLONG: 8}
_UNSIGNED: Final = 0x80
_CODES: Final = {int(code): code for code in T}


@dataclass(slots=True)
class ClientStatement:
    """A statement that a client prepared; `types` are those of its last execution, `long_data` what came in pieces."""

    prepared: Prepared
    types: tuple[tuple[T, bool], ...] = ()
    long_data: dict[int, bytearray] = field(default_factory=dict)


def read_parameters(statement: ClientStatement, data: bytes) -> list[Bound]:
    """Return the parameters of an execution, the part of its packet behind the iteration count. Raises DecodeError."""
    count = len(statement.prepared.places)
    if not count:
        return []
    reader = PacketReader(data)
    absent = int.from_bytes(reader.take((count + 7) // 8), "little")
    if reader.take(1) == b"\1":
        statement.types = tuple(_type(reader.take(2)) for _ in range(count))
    if len(statement.types) != count:
        raise DecodeError("parameters without types", CODEC, reader.at)
    found: list[Bound] = []
    for at, (code, unsigned) in enumerate(statement.types):
        if at in statement.long_data:
            found.append(bytes(statement.long_data[at]))
        else:
            found.append(None if absent >> at & 1 else _read(reader, code, unsigned=unsigned))
    return found


def _type(raw: bytes) -> tuple[T, bool]:
    code = _CODES.get(raw[0])
    if code is None:
        raise DecodeError(f"type {raw[0]} is none of MySQL", CODEC, 0)
    return code, bool(raw[1] & _UNSIGNED)


def _read(reader: PacketReader, code: T, *, unsigned: bool) -> Bound:
    if code in _INTS:
        return int.from_bytes(reader.take(_INTS[code]), "little", signed=not unsigned)
    if code in _TEXTS:
        return reader.sized()
    read = _READERS.get(code)
    if read is None:
        raise DecodeError(f"a parameter of type {code.name}", CODEC, reader.at)
    return read(reader)


def _read_float(reader: PacketReader) -> Bound:
    return float(struct.unpack("<f", reader.take(4))[0])


def _read_double(reader: PacketReader) -> Bound:
    return float(struct.unpack("<d", reader.take(8))[0])


def _read_moment(reader: PacketReader) -> Bound:
    raw = reader.sized().ljust(11, b"\0")
    year, month, day, hour, minute, second, microsecond = struct.unpack("<HBBBBBI", raw[:11])
    date = f"{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"
    return f"{date}.{microsecond:06}" if microsecond else date


def _read_span(reader: PacketReader) -> Bound:
    raw = reader.sized().ljust(12, b"\0")
    minus, days, hour, minute, second, microsecond = struct.unpack("<BIBBBI", raw[:12])
    clock = f"{'-' if minus else ''}{days * 24 + hour:02}:{minute:02}:{second:02}"
    return f"{clock}.{microsecond:06}" if microsecond else clock


_READERS: Final[Mapping[T, Callable[[PacketReader], Bound]]] = {
    T.FLOAT: _read_float,
    T.DOUBLE: _read_double,
    **dict.fromkeys((T.DATE, T.DATETIME, T.TIMESTAMP), _read_moment),
    T.TIME: _read_span,
    T.NULL: lambda _reader: None,
}
