"""Packets of a client, bounded and checked before mysql-mimic reads them; and who may come in.

    length: 3 | number: 1 | payload      a payload of 2^24-1 bytes goes on in the next packet

    login              capabilities: 4 | largest packet: 4 | charset: 1 | 23 zeros | ..
    COM_CHANGE_USER    11 | ..
                       .. user 00 | answer | database 00 | plugin 00 | attributes

The library searches the 00 behind a text for ever where there is none, knows no limits, and goes on with a client whom
it has refused.  So a packet is read here, within its size and its time, a login is walked to its end before the library
does, and a password is compared here.

    password       answer = SHA1(password) xor SHA1(nonce + SHA1(SHA1(password)))         mysql_native_password

Source: MySQL Internals, "Handshake Response Packet", "COM_CHANGE_USER", "Secure Password Authentication".
"""

import asyncio
import hmac
from collections.abc import Callable, Sequence
from hashlib import sha1
from typing import Final, NamedTuple

from mysql_mimic.stream import ConnectionClosed
from mysql_mimic.types import Capabilities
from mysql_mimic.utils import xor

from tidegate.model.errors import DecodeError, SqlRefused

CODEC: Final = "mysql"
_WHOLE: Final = (1 << 24) - 1
_LOGIN_HEAD: Final = 32
_SENT_AT_ONCE: Final = 1 << 15


class PortLimits(NamedTuple):
    """What a port bears; how long a client may be idle and how large its packets are its session's variables tell."""

    connections: int = 512
    login_s: float = 10.0
    login_bytes: int = 1 << 16
    write_s: float = 60.0


LIMITS: Final = PortLimits()


class Account(NamedTuple):
    """The user who may come in, and the SHA1 of the SHA1 of the password, in hexadecimal."""

    user: str
    password_hash: str

    def admits(self, user: str, answer: bytes, nonce: bytes) -> bool:
        """Return True for this user and the right answer to a nonce."""
        wanted = bytes.fromhex(self.password_hash)
        hashed = sha1(xor(answer, sha1(nonce + wanted).digest())).digest()  # noqa: S324  the protocol's digest
        return hmac.compare_digest(hashed, wanted) and user == self.user


def account(user: str, password: str) -> Account:
    """Return the account of a user with that password."""
    return Account(user, sha1(sha1(password.encode()).digest()).hexdigest())  # noqa: S324  the protocol's digest


class PacketReader:
    """Bytes and a place in them."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes. Raises DecodeError where there are fewer."""
        found = self.data[self.at : self.at + size]
        if len(found) < size:
            raise DecodeError(f"{size} bytes expected, {len(found)} left", CODEC, self.at)
        self.at += size
        return found

    def number(self) -> int:
        """Return a number of one to nine bytes."""
        first = self.take(1)[0]
        wide = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first)
        return first if wide is None else int.from_bytes(self.take(wide), "little")

    def sized(self) -> bytes:
        """Return bytes behind their length."""
        return self.take(self.number())

    def ended(self) -> bytes:
        """Return the bytes up to the next zero. Raises DecodeError where there is none."""
        end = self.data.find(0, self.at)
        if end < 0:
            raise DecodeError("a text without its end", CODEC, self.at)
        return self.take(end + 1 - self.at)[:-1]


def check_login(data: bytes, offered: Capabilities) -> None:
    """Pass over a login as the library reads it. Raises DecodeError where it does not hold what it claims."""
    reader = PacketReader(data)
    told = Capabilities(int.from_bytes(reader.take(_LOGIN_HEAD)[:4], "little")) & offered
    if len(data) == _LOGIN_HEAD:
        raise DecodeError("TLS is not offered", CODEC, 0)
    reader.ended()
    if Capabilities.CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA in told:
        reader.sized()
    else:
        reader.take(reader.take(1)[0])
    if Capabilities.CLIENT_CONNECT_WITH_DB in told:
        reader.ended()
    _check_plugin(reader, told)


def check_change_user(data: bytes, told: Capabilities) -> None:
    """Pass over a COM_CHANGE_USER in the same way, of a client with these capabilities."""
    reader = PacketReader(data)
    reader.ended()
    if Capabilities.CLIENT_SECURE_CONNECTION in told:
        reader.take(reader.take(1)[0])
    else:
        reader.ended()
    reader.ended()
    if reader.at < len(data):
        reader.take(2 if Capabilities.CLIENT_PROTOCOL_41 in told else 0)
        _check_plugin(reader, told)


def _check_plugin(reader: PacketReader, told: Capabilities) -> None:
    if Capabilities.CLIENT_PLUGIN_AUTH in told:
        reader.ended()
    if Capabilities.CLIENT_CONNECT_ATTRS in told:
        end = reader.number() + reader.at
        while reader.at < end:
            reader.sized()


class ClientStream:
    """What the library reads from and writes to, with limits: `most_bytes` of a packet, `idle_s` until one is there (0:
    for ever), and what `check` says of it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: PortLimits) -> None:
        self._reader, self._writer, self._write_s = reader, writer, limits.write_s
        self._waiting, self._number = bytearray(), 0
        self.most_bytes: Callable[[], int] = lambda: limits.login_bytes
        self.idle_s: Callable[[], float] = lambda: limits.login_s
        self.check: Callable[[bytes], None] | None = None
        self.ended = False

    async def read(self) -> bytes:
        """Return the next payload. Raises ConnectionClosed at the end, and TidegateError for what is none."""
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
        """Send a payload, now or with what comes after it."""
        self.write_many([data])
        if drain or len(self._waiting) >= _SENT_AT_ONCE:
            await self.drain()

    def write_many(self, packets: Sequence[bytes]) -> None:
        """Keep payloads to be sent."""
        for data in packets:
            for at in range(0, len(data) + 1, _WHOLE):
                piece = data[at : at + _WHOLE]
                self._waiting += len(piece).to_bytes(3, "little") + bytes((self._next(),)) + piece

    async def drain(self) -> None:
        """Send what waits. Raises ConnectionClosed if the client does not take it in time."""
        self._writer.write(self._waiting)
        self._waiting = bytearray()
        try:
            async with asyncio.timeout(self._write_s):
                await self._writer.drain()
        except TimeoutError as error:
            raise ConnectionClosed from error

    def reset_seq(self) -> None:
        """Begin with a command: its packet has number 0."""
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
