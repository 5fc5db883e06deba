"""A peer whose PD reports the sizes of regions over HTTP, on the port of its gRPC, as a real PD does.

PRI * HTTP/2.0 ..       ─►  the peer's PD, byte by byte
GET /pd/api/v1/..       ─►  `report` of the path, as JSON; 404 where it tells nothing
"""

import asyncio
import json
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tidegate_upstream.tikv.peer import HOST, TikvPeer
from tidegate_upstream.tikv.placement import encoded, within

_BYTES = 1 << 16


class ReportingPeer(TikvPeer):
    """PD with both protocols, and stores; `reported` has the paths that were asked for."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.reported: list[str] = []
        self._front: asyncio.Server | None = None

    @property
    def pd(self) -> str:
        if self._front is None:
            return super().pd
        return f"{HOST}:{self._front.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Any:
        await super().__aenter__()
        self._front = await asyncio.start_server(self._serve, HOST, 0)
        self.service.url = f"http://{self.pd}"
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._front is not None
        self._front.close()
        await super().__aexit__(*error)

    def report(self, path: str) -> Any:
        """What PD tells at a path: the regions of a range with the keys that they have."""
        parts = urlsplit(path)
        if parts.path != "/pd/api/v1/regions/key":
            return None
        words = parse_qs(parts.query, keep_blank_values=True, encoding="latin-1")
        start, end = (words[name][0].encode("latin-1") for name in ("key", "end_key"))
        ts = self.log.oracle.next()
        regions = [
            {
                "id": region.id,
                "start_key": encoded(region.start).hex().upper(),
                "end_key": encoded(region.end).hex().upper(),
                "approximate_size": 1,
                "approximate_keys": len(self.log.store.scan(region.start, region.end, ts)),
            }
            for region in within(self.log.regions, start, end, int(words["limit"][0]))
        ]
        return {"count": len(regions), "regions": regions}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            first = await reader.readexactly(4)
            if first == b"PRI ":
                to_reader, to_writer = await asyncio.open_connection(HOST, self._ports[0])
                to_writer.write(first)
                await asyncio.gather(_copied(reader, to_writer), _copied(to_reader, writer))
                return
            path = (first + await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
            self.reported.append(path)
            body, state = json.dumps(self.report(path)).encode(), b"200 OK"
            if body == b"null":
                body, state = b"404 page not found", b"404 Not Found"
            writer.write(b"HTTP/1.1 %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (state, len(body), body))
            await writer.drain()
        writer.close()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()
