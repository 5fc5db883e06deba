"""A webhook of one's own: an HTTP server that keeps what it gets, and answers as it is told."""

import base64
import hashlib
import hmac
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import msgspec

from tidegate.codec.neutral_read import EventReader
from tidegate.model.event import Event

Reply = tuple[int, str]
"""Status and text."""


class Call(NamedTuple):
    """What came in one call, and its headers in lower case."""

    path: str
    headers: dict[str, str]
    events: list[dict[str, Any]]


class Receiver:
    """The server's memory: `calls` that it took; `rule` answers each call, `queue` goes before it."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.refused: list[Call] = []
        self.queue: deque[Reply] = deque()
        self.rule: Callable[[Call], Reply] = lambda _: (204, "")
        self.secret = b""
        self.retry_after = ""
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        self.is_open = False
        self._port = 0

    def open(self) -> None:
        """Listen; once more at the port that it had."""
        handler = type("Handler", (_Handler,), {"receiver": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), handler)
        self._port = self._server.server_port
        self.url = f"http://127.0.0.1:{self._port}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.is_open = True

    def close(self) -> None:
        """Listen no more, and answer nothing that was asked before."""
        self.is_open = False
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events that were taken, in the order in which they came."""
        return [event for call in self.calls for event in call.events]

    def changes(self) -> list[Event]:
        """The same, as events of ours."""
        reader = EventReader()
        lines = (reader.read(msgspec.json.encode(event["data"])) for event in self.events)
        return [line.event for line in lines if line is not None]

    def answer(self, call: Call, body: bytes) -> Reply:
        """Judge a call, and keep it."""
        if self.secret:
            signed = f"{call.headers['webhook-id']}.{call.headers['webhook-timestamp']}.".encode() + body
            mac = hmac.new(self.secret, signed, hashlib.sha256).digest()
            if call.headers.get("webhook-signature") != f"v1,{base64.b64encode(mac).decode()}":
                return 401, "the signature is wrong"
        reply = self.queue.popleft() if self.queue else self.rule(call)
        (self.calls if reply[0] < 300 else self.refused).append(call)
        return reply


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    close_connection = False
    receiver: Receiver

    def do_POST(self) -> None:
        """Take a call; who left takes none, and answers none."""
        if not self.receiver.is_open:
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers["content-length"]))
        found = msgspec.json.decode(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        call = Call(self.path, headers, found if isinstance(found, list) else [found])
        receiver = self.receiver
        with receiver.lock:
            receiver.at_once += 1
            receiver.most_at_once = max(receiver.most_at_once, receiver.at_once)
        try:
            with receiver.lock:
                status, text = receiver.answer(call, body)
        finally:
            with receiver.lock:
                receiver.at_once -= 1
        if not receiver.is_open:
            self.close_connection = True
            return
        self.send_response(status)
        if receiver.retry_after:
            self.send_header("retry-after", receiver.retry_after)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver that listens until the block ends."""
    receiver = Receiver()
    receiver.open()
    try:
        yield receiver
    finally:
        if receiver.is_open:
            receiver.close()
