"""A server that says to be a MySQL without TLS, and asks whoever comes for what it should not get."""

import socket
import threading
from typing import Final

_OK: Final = b"\0\0\0\2\0\0\0"
_CAPABILITIES: Final = 0x000A_A20D | 0x0008_0000
_MORE: Final = {b"dialog": b"\4Password: ", b"caching_sha2_password": b"1234567890123456789\0"}
_FULL: Final = b"\1\4"
"""caching_sha2_password: the server does not know the proof, and asks for the password."""
FILE: Final = b"file"


class Rogue:
    """Serves one client: `asks` for the password by that plugin, or for a file in the answer to its first question."""

    def __init__(self, asks: bytes, *, at_once: bool = False) -> None:
        self._asks, self._at_once, self.heard = asks, at_once, bytearray()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        client, _ = self._door.accept()
        client.settimeout(10)
        plugin = self._asks if self._at_once else b"mysql_native_password"
        hello = b"\x0a8.0.11\0" + b"\1\0\0\0" + b"12345678" + b"\0" + (_CAPABILITIES & 0xFFFF).to_bytes(2, "little")
        hello += b"\x2d\2\0" + (_CAPABILITIES >> 16).to_bytes(2, "little") + b"\x15" + bytes(10)
        with client:
            self._said(client, 0, hello + b"123456789012\0" + plugin + b"\0")
            if self._asks == FILE:
                self._questions(client)
            elif not self._at_once:
                answer = self._said(client, 2, b"\xfe" + self._asks + b"\0" + _MORE.get(self._asks, b""))
                if answer and self._asks == b"caching_sha2_password":
                    self._said(client, 4, _FULL)
            else:
                self._said(client, 2, _FULL)

    def _questions(self, client: socket.socket) -> None:
        number, answer, question = 2, _OK, b""
        while heard := self._said(client, number, answer):
            number, question = heard[3] + 1, heard[5:]
            about_session = question.startswith((b"SET NAMES", b"SET AUTOCOMMIT"))
            answer = _OK if about_session or heard[4:5] != b"\3" else b"\xfb" + __file__.encode()

    def _said(self, client: socket.socket, number: int, packet: bytes) -> bytes:
        """What the client answers; nothing once it has gone."""
        try:
            client.sendall(len(packet).to_bytes(3, "little") + bytes([number]) + packet)
            found = client.recv(4096)
        except ConnectionError:
            return b""
        self.heard += found
        return found

    def close(self) -> None:
        """End it, when it has heard all."""
        self._thread.join(20)
        assert not self._thread.is_alive()
        self._door.close()
