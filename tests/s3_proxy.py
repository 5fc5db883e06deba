"""A proxy in front of an object store that delays, counts and spoils requests; cheap enough to stand in a benchmark.

client ──HTTP──► Proxy ── after `delay_s` ──► the store at `port`
                   │ spoil(request) says what becomes of one:
                   ├ None              it passes
                   ├ 503               that status, the store hears nothing
                   ├ "cut"             the connection ends, the store hears nothing
                   ├ "half"            the store gets half of the body, then both connections end
                   ├ "lost"            the store does it, and the connection ends before the answer
                   ├ "torn"            half of the answer comes, then the connection ends
                   └ 1.5               it passes after so many seconds
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

MOST: Final = 1 << 20
BAD: Final = b"HTTP/1.1 %d Spoilt\r\nContent-Length: 0\r\n\r\n"


@dataclass
class Request:
    """What a client asks for. Headers have lower-case names and may be changed."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = field(repr=False)
    begun_s: float
    ended_s: float = 0.0


Server = Callable[[str, str, dict[str, str], bytes], tuple[int, dict[str, str], bytes]]
"""What answers in place of a store at a port: method, path, headers and body to status, headers and body."""
Spoil = Callable[[Request], int | str | float | None]


class Proxy:
    """Passes requests on to `port` of this machine; `requests` are those that came, in order."""

    def __init__(self, port: int | Server, spoil: Spoil | None = None, *, delay_s: float = 0.0) -> None:
        self.requests: list[Request] = []
        self._port, self._spoil, self._delay_s = port, spoil, delay_s
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while head := await _head(reader):
                method, path, _ = head[0].split(" ", 2)
                headers = dict(_header(line) for line in head[1:])
                request = Request(method, path, headers, b"", time.perf_counter())
                if headers.get("expect"):
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                request.body = await _body(reader, headers)
                self.requests.append(request)
                if not await self._answer(request, writer):
                    break
                request.ended_s = time.perf_counter()
        writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Do what becomes of a request; False if the connection ends here."""
        deed = self._spoil(request) if self._spoil is not None else None
        await asyncio.sleep(deed if isinstance(deed, float) else self._delay_s)
        if isinstance(deed, int):
            writer.write(BAD % deed)
            await writer.drain()
            return True
        if deed == "cut":
            return False
        if deed == "half":
            _, onward = await asyncio.open_connection("127.0.0.1", self._port)
            onward.write(_packed(request)[: -max(len(request.body) // 2, 1)])
            await onward.drain()
            onward.close()
            return False
        answer = await self._passed(request)
        if deed == "lost":
            return False
        writer.write(answer[: len(answer) // 2] if deed == "torn" else answer)
        await writer.drain()
        return deed != "torn"

    async def _passed(self, request: Request) -> bytes:
        """The store's answer, head and body."""
        if not isinstance(self._port, int):
            return _written(request, *self._port(request.method, request.path, request.headers, request.body))
        while True:
            fresh = not self._idle
            there = await asyncio.open_connection("127.0.0.1", self._port, limit=MOST) if fresh else self._idle.pop()
            try:
                there[1].write(_packed(request))
                await there[1].drain()
                head = await _head(there[0])
                if not head:
                    raise ConnectionResetError
            except OSError:
                there[1].close()
                if fresh:
                    raise
                continue  # the store had closed a connection that lay idle
            break
        headers = dict(_header(line) for line in head[1:])
        empty = request.method == "HEAD" or head[0].split(" ")[1] in {"204", "304"}
        body = b"" if empty else await _body(there[0], headers)
        if headers.pop("transfer-encoding", None):
            headers["content-length"] = str(len(body))
        if headers.get("connection") == "close" or head[0].startswith("HTTP/1.0"):
            there[1].close()
        else:
            self._idle.append(there)
        headers.pop("connection", None)
        if empty and request.method != "HEAD":
            headers["content-length"] = "0"
        lines = [head[0].replace("HTTP/1.0", "HTTP/1.1"), *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def _written(request: Request, status: int, headers: dict[str, str], body: bytes) -> bytes:
    headers["content-length"] = str(len(body))
    lines = [f"HTTP/1.1 {status} Answer", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if request.method == "HEAD" else body)


async def _head(reader: asyncio.StreamReader) -> list[str]:
    """The lines before a body; none at the end."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return []
    return raw[:-4].decode("latin-1").split("\r\n")


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.lower(), value.strip()


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", 0)))
    parts = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return b"".join(parts)


def _packed(request: Request) -> bytes:
    """A request as it goes to the store."""
    sent = {**request.headers, "content-length": str(len(request.body))}
    for name in ("transfer-encoding", "expect", "connection"):
        sent.pop(name, None)
    lines = [f"{request.method} {request.path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + request.body


@contextmanager
def running(port: int | Server, spoil: Spoil | None = None, *, delay_s: float = 0.0) -> Iterator[tuple[int, Proxy]]:
    """A proxy in a thread of this process: its port, and the proxy."""
    made, loop, found = Proxy(port, spoil, delay_s=delay_s), asyncio.new_event_loop(), list[int]()

    async def begin() -> None:
        server = await asyncio.start_server(made.serve, "127.0.0.1", 0, limit=MOST)
        found.append(server.sockets[0].getsockname()[1])

    loop.run_until_complete(begin())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield found[0], made
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
