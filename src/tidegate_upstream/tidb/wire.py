"""Packets of MySQL's protocol: encoding of answers, and bounded, checked reading of what clients send.

    error        ff | code: 2 | '#' | SQLSTATE: 5 | message
    text row     for each value: fb (NULL) or length, text
    binary row   00 | null bitmap, from bit 2 on | values          INT 01 02 00 00  DATE 04 e8 07 01 1f  'ab' 02 61 62

Texts are sent in the character set that the session asks for; characters outside it become `?`.  The text of a value is
that of `mysql.values.render`.

    length: 3 | number: 1 | payload      a payload of 2^24-1 bytes is continued in the next packet

    login              capabilities: 4 | largest packet: 4 | charset: 1 | 23 zeros | ..
    COM_CHANGE_USER    11 | ..
                       .. user 00 | answer | database 00 | plugin 00 | attributes

    password           answer = SHA1(password) xor SHA1(nonce + SHA1(SHA1(password)))         mysql_native_password

mysql-mimic loops forever on a text without its terminating 00, has no limits, and continues with a client that it has
refused.  So packets are read here with limits of size and time, a login is parsed to its end before the library sees
it, and passwords are compared here.

Source: MySQL Internals, "Text Resultset", "Binary Protocol Resultset", "ERR_Packet", "Handshake Response Packet",
"COM_CHANGE_USER", "Secure Password Authentication".
"""

import asyncio
import hmac
import struct
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha1
from typing import Final, NamedTuple, TypeAlias

from mysql_mimic.charset import CharacterSet
from mysql_mimic.packets import make_column_definition_41
from mysql_mimic.stream import ConnectionClosed
from mysql_mimic.types import Capabilities, ColumnDefinition, str_len
from mysql_mimic.types import ColumnType as WireType
from mysql_mimic.utils import xor

from tidegate.expr.scope import ResultColumn, Row
from tidegate.model.errors import DecodeError, SqlRefused
from tidegate.model.mysql import BLOBS, FLOATS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.conversion import CODECS
from tidegate.mysql.datum import Duration
from tidegate.mysql.packed_time import ZERO, Time
from tidegate.mysql.values import SqlValue, render

_NULL: Final = b"\xfb"
_SENT_AS: Final = {
    T.VARCHAR: T.VAR_STRING,
    T.ENUM: T.STRING,
    T.SET: T.STRING,
    T.VECTOR: T.LONG_BLOB,
    T.NEWDATE: T.DATE,
}
"""Types that clients do not expect in an answer, and their replacement."""
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

_Encode: TypeAlias = Callable[[SqlValue, ColumnType], bytes]


def error_packet(code: int, sqlstate: str, message: str) -> bytes:
    """Return the packet of an error."""
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
            column_type=WireType(_SENT_AS.get(kind.code, kind.code)),
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
    absent = sum(1 << index + 2 for index, value in enumerate(row) if value is None)
    parts = [b"\0", absent.to_bytes((len(row) + 9) // 8, "little")]
    for column, value in zip(columns, row, strict=True):
        if value is not None:
            encode = _BINARY.get(column.type.code)
            fits = encode is not None and isinstance(value, _EXPECTED[column.type.code])
            text = b"" if fits else str_len(_octets(value, column.type, charset))
            parts.append(encode(value, column.type) if encode is not None and fits else text)
    return b"".join(parts)


def _octets(value: SqlValue, kind: ColumnType, charset: str) -> bytes:
    text = render(value, kind)
    assert text is not None, kind
    if isinstance(text, bytes):
        return text
    if charset in _UTF8:
        return text.encode("utf-8", "surrogateescape")
    return text.encode(CODECS.get(charset, "utf-8"), "replace")


def _int(value: SqlValue, kind: ColumnType) -> bytes:
    assert isinstance(value, int), value
    size = _INT_BYTES[kind.code]
    return (value & (1 << 8 * size) - 1).to_bytes(size, "little")


def _float(value: SqlValue, kind: ColumnType) -> bytes:
    return struct.pack("<f" if kind.code is T.FLOAT else "<d", value)


def _moment(value: SqlValue, kind: ColumnType) -> bytes:
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


def _span(value: SqlValue, _kind: ColumnType) -> bytes:
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


CODEC: Final = "mysql"
_WHOLE: Final = (1 << 24) - 1
_LOGIN_HEAD: Final = 32
_SENT_AT_ONCE: Final = 1 << 15


class PortLimits(NamedTuple):
    """Limits of a port; the session's variables limit idle time and packet size."""

    connections: int = 512
    login_s: float = 10.0
    login_bytes: int = 1 << 16
    write_s: float = 60.0


LIMITS: Final = PortLimits()


class Account(NamedTuple):
    """The user who may log in, and the SHA1 of the SHA1 of the password, in hexadecimal."""

    user: str
    password_hash: str

    def admits(self, user: str, answer: bytes, nonce: bytes) -> bool:
        """Return True for this user and the right answer to a nonce."""
        stored = bytes.fromhex(self.password_hash)
        hashed = sha1(xor(answer, sha1(nonce + stored).digest())).digest()  # noqa: S324  the protocol's digest
        return hmac.compare_digest(hashed, stored) and user == self.user


def account(user: str, password: str) -> Account:
    """Return the account of a user with that password."""
    return Account(user, sha1(sha1(password.encode()).digest()).hexdigest())  # noqa: S324  the protocol's digest


class PacketReader:
    """A buffer and a read position."""

    def __init__(self, data: bytes) -> None:
        self.data, self.offset = data, 0

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes. Raises DecodeError where there are fewer."""
        chunk = self.data[self.offset : self.offset + size]
        if len(chunk) < size:
            raise DecodeError(f"{size} bytes expected, {len(chunk)} left", CODEC, self.offset)
        self.offset += size
        return chunk

    def number(self) -> int:
        """Return a number of one to nine bytes."""
        first = self.take(1)[0]
        wide = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first)
        return first if wide is None else int.from_bytes(self.take(wide), "little")

    def sized(self) -> bytes:
        """Return bytes preceded by their length."""
        return self.take(self.number())

    def ended(self) -> bytes:
        """Return the bytes up to the next zero. Raises DecodeError where there is none."""
        end = self.data.find(0, self.offset)
        if end < 0:
            raise DecodeError("a text without its terminating 00", CODEC, self.offset)
        return self.take(end + 1 - self.offset)[:-1]


def check_login(data: bytes, offered: Capabilities) -> None:
    """Validate a login packet as the library reads it. Raises DecodeError if it is malformed."""
    reader = PacketReader(data)
    capabilities = Capabilities(int.from_bytes(reader.take(_LOGIN_HEAD)[:4], "little")) & offered
    if len(data) == _LOGIN_HEAD:
        raise DecodeError("TLS is not offered", CODEC, 0)
    reader.ended()
    if Capabilities.CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA in capabilities:
        reader.sized()
    else:
        reader.take(reader.take(1)[0])
    if Capabilities.CLIENT_CONNECT_WITH_DB in capabilities:
        reader.ended()
    _check_plugin(reader, capabilities)


def check_change_user(data: bytes, capabilities: Capabilities) -> None:
    """Validate a COM_CHANGE_USER of a client with these capabilities. Raises DecodeError if it is malformed."""
    reader = PacketReader(data)
    reader.ended()
    if Capabilities.CLIENT_SECURE_CONNECTION in capabilities:
        reader.take(reader.take(1)[0])
    else:
        reader.ended()
    reader.ended()
    if reader.offset < len(data):
        reader.take(2 if Capabilities.CLIENT_PROTOCOL_41 in capabilities else 0)
        _check_plugin(reader, capabilities)


def _check_plugin(reader: PacketReader, capabilities: Capabilities) -> None:
    if Capabilities.CLIENT_PLUGIN_AUTH in capabilities:
        reader.ended()
    if Capabilities.CLIENT_CONNECT_ATTRS in capabilities:
        end = reader.number() + reader.offset
        while reader.offset < end:
            reader.sized()


class ClientStream:
    """The library's stream with limits: `most_bytes` of a packet, `idle_s` until one arrives (0:
    forever), and the validation by `check`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: PortLimits) -> None:
        self._reader, self._writer, self._write_s = reader, writer, limits.write_s
        self._waiting, self._number = bytearray(), 0
        self.most_bytes: Callable[[], int] = lambda: limits.login_bytes
        self.idle_s: Callable[[], float] = lambda: limits.login_s
        self.check: Callable[[bytes], None] | None = None
        self.ended = False

    async def read(self) -> bytes:
        """Return the next payload. Raises ConnectionClosed at the end, and TidegateError for a malformed packet."""
        if self.ended:
            raise ConnectionClosed
        try:
            async with asyncio.timeout(self.idle_s() or None):
                payload = await self._payload(self.most_bytes())
        except (TimeoutError, asyncio.IncompleteReadError) as error:
            raise ConnectionClosed from error
        if self.check is not None:
            self.check(payload)
        return payload

    async def write(self, data: bytes, *, drain: bool = True) -> None:
        """Send a payload, now or with the next one."""
        self.write_many([data])
        if drain or len(self._waiting) >= _SENT_AT_ONCE:
            await self.drain()

    def write_many(self, packets: Sequence[bytes]) -> None:
        """Buffer payloads to be sent."""
        for data in packets:
            for start in range(0, len(data) + 1, _WHOLE):
                piece = data[start : start + _WHOLE]
                self._waiting += len(piece).to_bytes(3, "little") + bytes((self._next(),)) + piece

    async def drain(self) -> None:
        """Send the buffer. Raises ConnectionClosed if the client does not read it in time."""
        self._writer.write(self._waiting)
        self._waiting = bytearray()
        try:
            async with asyncio.timeout(self._write_s):
                await self._writer.drain()
        except TimeoutError as error:
            raise ConnectionClosed from error

    def reset_seq(self) -> None:
        """Reset the sequence number for the next command."""
        self._number = 0

    def _next(self) -> int:
        number, self._number = self._number, (self._number + 1) % 256
        return number

    async def _payload(self, most: int) -> bytes:
        payload = bytearray()
        while True:
            head = await self._reader.readexactly(4)
            size = int.from_bytes(head[:3], "little")
            if head[3] != self._next():
                raise SqlRefused(1156, "Got packets out of order", "08S01")
            if len(payload) + size > most:
                raise SqlRefused(1153, f"Got a packet bigger than {most} bytes", "08S01")
            payload += await self._reader.readexactly(size)
            if size < _WHOLE:
                break
        if not payload:
            raise SqlRefused(1835, "Malformed communication packet")
        return bytes(payload)
