"""Servers that play answers: PD, or a store, by the paths of its methods."""

import asyncio
import base64
import gzip
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from tidegate.tikv.address import ClusterAddress
from tidegate.tikv.pd import PdClient
from tidegate.tikv.rpc import SERVER_OPTIONS

Answer = Callable[[bytes, Any], Awaitable[bytes | None]]
"""From the bytes of a request and its call to the bytes of an answer; None in a stream: nothing is said."""
DATA = Path(__file__).parents[1] / "data" / "tikv"
ADVERTISED = "127.0.0.1:12379"
"""Of the recorded PD."""


class Scripted(grpc.GenericRpcHandler):
    """A server of methods by their paths: each takes streams and single calls as they come. What is not among
    `answers` is unimplemented."""

    def __init__(self, answers: Mapping[str, Answer], streams: frozenset[str] = frozenset({"/pdpb.PD/Tso"})) -> None:
        self.answers, self.streams = dict(answers), streams
        self.calls: list[tuple[str, bytes]] = []

    def service(self, details: Any) -> Any:
        path = details.method
        if path not in self.answers:
            return None
        if path not in self.streams:

            async def once(request: bytes, call: Any) -> bytes | None:
                return await self._answer(path, request, call)

            return grpc.unary_unary_rpc_method_handler(once)

        async def stream(requests: Any, call: Any) -> Any:
            async for request in requests:
                answer = await self._answer(path, request, call)
                if answer is not None:
                    yield answer

        return grpc.stream_stream_rpc_method_handler(stream)

    async def _answer(self, path: str, request: bytes, call: Any) -> bytes | None:
        self.calls.append((path, request))
        return await self.answers[path](request, call)


@asynccontextmanager
async def serving(handler: grpc.GenericRpcHandler) -> Any:
    """A server on a port of its own; its HOST:PORT."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def with_pd(
    answers: Mapping[str, Answer], use: Callable[[PdClient], Awaitable[Any]], *, patience_s: float = 6, **options: Any
) -> tuple[Any, list[tuple[str, bytes]]]:
    """What `use` returns of a client of such a PD, which advertises the recorded address, and all calls."""

    async def run() -> Any:
        async with serving(handler := Scripted(answers)) as target:
            address = ClusterAddress((target,), {ADVERTISED: target})
            client = PdClient(address, patience_s=patience_s, call_timeout_s=patience_s * 2 / 3, **options)
            try:
                return await use(client), handler.calls
            finally:
                await client.close()

    return asyncio.run(asyncio.wait_for(run(), 60))


def recorded_lines() -> list[dict[str, Any]]:
    """The recorded calls of PD."""
    return [json.loads(line) for line in gzip.decompress((DATA / "pd.jsonl.gz").read_bytes()).splitlines()]


def exchanges() -> Iterator[tuple[str, str, bytes, bytes | tuple[str, str]]]:
    """The path, the note, the request, and the answer or the code and text of the error of each recorded call."""
    asked: dict[tuple[str, str], tuple[str, bytes]] = {}
    for line in recorded_lines():
        name = (line["stream"], line.get("method") or "/pdpb.PD/Tso")
        content = base64.b64decode(line.get("b64") or "")
        if line["dir"] in {"call", "send"}:
            asked[name] = (line.get("note", ""), content)
        elif name in asked:
            note, request = asked.pop(name)
            failed = line["dir"] in {"end", "error"}
            yield name[1], note, request, (line["code"], line["details"]) if failed else content


def recorded_pd() -> dict[str, Answer]:
    """A PD that answers what was recorded, byte for byte, to the requests that were recorded, in their order."""
    queues: dict[str, dict[bytes, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for path, _, request, answer in exchanges():
        queues[path][request].append(answer)

    def of(path: str) -> Answer:
        async def play(request: bytes, call: Any) -> bytes | None:
            if not queues[path][request]:
                await call.abort(grpc.StatusCode.UNIMPLEMENTED, f"not recorded: {path} {request.hex()}")
            answer = queues[path][request].pop(0)
            if isinstance(answer, tuple):
                await call.abort(grpc.StatusCode[answer[0]], answer[1])
            return answer

        return play

    return {path: of(path) for path in queues}


def always(message: Any) -> Answer:
    """The same answer to every request."""

    async def answer(_: bytes, __: Any) -> bytes:
        return message.SerializeToString()

    return answer
