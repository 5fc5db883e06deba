"""A client that sends what it likes: packets as bytes, over a socket of its own."""

import socket
from contextlib import suppress
from typing import Self

USER, WITH_DB, LENENC, PLUGIN, ATTRIBUTES, SECURE, MORE = 0x200, 0x8, 0x200000, 0x80000, 0x100000, 0x8000, 0x20000
CAPABILITIES = USER | SECURE | PLUGIN


def login(rest: bytes, capabilities: int = CAPABILITIES, charset: int = 45) -> bytes:
    """A login's head with what is said behind it."""
    return capabilities.to_bytes(4, "little") + (1 << 24).to_bytes(4, "little") + bytes((charset,)) + bytes(23) + rest


GOOD = login(b"root\0" + b"\0" + b"mysql_native_password\0")


class Hostile:
    """A connection; what is not answered within `patience_s` raises TimeoutError."""

    def __init__(self, port: int, patience_s: float = 10.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=patience_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.socket.close()

    def send(self, payload: bytes, number: int = 0, claimed: int | None = None) -> None:
        """Send a packet; its head may claim another length."""
        size = len(payload) if claimed is None else claimed
        self.socket.sendall(size.to_bytes(3, "little") + bytes((number,)) + payload)

    def read(self) -> bytes:
        """The next payload; b"" at the end."""
        head = self._exactly(4)
        return self._exactly(int.from_bytes(head[:3], "little")) if head else b""

    def rest(self) -> list[bytes]:
        """All payloads up to the end of the connection."""
        found = []
        while payload := self.read():
            found.append(payload)
        return found

    def logged_in(self, payload: bytes = GOOD) -> bytes:
        """The answer to a login, behind the server's greeting."""
        self.read()
        self.send(payload, 1)
        return self.read()

    def shut(self) -> None:
        """Say no more; what is answered may still be read."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            try:
                piece = self.socket.recv(size - len(found))
            except ConnectionError:
                return b""
            if not piece:
                return b""
            found += piece
        return found


def code_of(payload: bytes) -> int:
    """The number of an error; 0 for anything else."""
    return int.from_bytes(payload[1:3], "little") if payload[:1] == b"\xff" else 0
