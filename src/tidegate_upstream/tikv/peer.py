"""A PD and stores of TiKV over the embedded store, each on a port of this machine, for tests of what reads a cluster.

    async with TikvPeer(cluster.storage) as peer:    in the loop of the client
    with TikvPeer(cluster.storage).in_thread() as peer:    in a loop of its own, for clients in threads and processes

        peer.pd                  HOST:PORT for PdClient
        peer.log.split(key)      regions: split, merge, move_leader, of raw keys; safe from any thread
        peer.cut_streams()       every stream of changes ends with UNAVAILABLE
        await peer.stop_store(1), await peer.start_store(1)

From another thread: `peer.call(peer.stop_store(1))`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, Final, Self, TypeAlias, TypeVar

import grpc

from tidegate.tikv import rpc
from tidegate.tikv.stubs import health_pb2 as health
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.store_mvcc import collect_garbage
from tidegate_upstream.tidb.transaction import Storage
from tidegate_upstream.tikv.feed_service import FeedService
from tidegate_upstream.tikv.kv_service import KvService
from tidegate_upstream.tikv.pd_service import PdService

CLUSTER_ID: Final = 7_000_000_000_000_000_001
HOST: Final = "127.0.0.1"
_WAIT_S: Final = 60.0
T = TypeVar("T")
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class TikvPeer:
    """PD and `stores` stores, with TLS if there are `credentials`. `turn_s` is the time between two looks at the
    changes; resolved timestamps advance each time unless `advances` is unset."""

    def __init__(
        self,
        storage: Storage,
        *,
        stores: int = 1,
        cluster_id: int = CLUSTER_ID,
        turn_s: float = 0.01,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self.log = ChangeLog(storage.store, storage.oracle)
        self.cluster_id, self.advances = cluster_id, True
        self.kv = [KvService(self.log, number, stores) for number in range(1, stores + 1)]
        self.feeds = [FeedService(self.log, number, stores, cluster_id, turn_s) for number in range(1, stores + 1)]
        self.service = PdService(self.log, cluster_id, "", [])
        self._turn_s, self._credentials = turn_s, credentials
        self._ports: dict[int, int] = {}
        self._servers: dict[int, grpc.aio.Server] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ticking: asyncio.Task[None] | None = None

    @property
    def pd(self) -> str:
        """HOST:PORT of PD."""
        return f"{HOST}:{self._ports[0]}"

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        for number in range(len(self.kv) + 1):
            await self.start_store(number)
        self.service.url = f"http://{self.pd}"
        self.service.stores = [f"{HOST}:{self._ports[number]}" for number in range(1, len(self.kv) + 1)]
        self._ticking = asyncio.create_task(self._advance())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ticking:
            self._ticking.cancel()
        for number in list(self._servers):
            await self.stop_store(number)

    @contextmanager
    def in_thread(self) -> Iterator[Self]:
        """Serve in a thread."""
        loop = asyncio.new_event_loop()
        thread = Thread(target=loop.run_forever, name="tikv-peer", daemon=True)
        thread.start()
        self._loop = loop
        try:
            yield self.call(self.__aenter__())
        finally:
            with suppress(RuntimeError):
                self.call(self.__aexit__())
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_WAIT_S)
            loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop of the servers and return its result; from another thread."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_S)

    async def start_store(self, number: int) -> None:
        """Start a store, or PD as number 0, at the port that it had before."""
        server = grpc.aio.server(options=rpc.SERVER_OPTIONS)
        server.add_generic_rpc_handlers((_Handlers(self._handlers(number)),))
        target = f"{HOST}:{self._ports.get(number, 0)}"
        credentials = self._credentials
        self._ports[number] = (
            server.add_secure_port(target, credentials) if credentials else server.add_insecure_port(target)
        )
        await server.start()
        self._servers[number] = server

    async def stop_store(self, number: int) -> None:
        """Stop a store, or PD as number 0; its streams end at once."""
        await self._servers.pop(number).stop(None)

    def cut_streams(self) -> None:
        """End all streams of changes with UNAVAILABLE; from any thread."""
        for feed in self.feeds:
            feed.cuts += 1

    def collect_garbage(self, safe_point: int) -> int:
        """Remove versions that no read at `safe_point` needs, but for what PD's services hold; return where that is."""
        barrier = self.service.least_barrier()
        safe_point = safe_point if barrier is None else min(safe_point, barrier)
        collect_garbage(self.log.store, safe_point, self.log.oracle.next())
        return safe_point

    async def _advance(self) -> None:
        while True:
            await asyncio.sleep(self._turn_s)
            if self.advances:
                self.log.advance()

    def _handlers(self, number: int) -> dict[str, Handler]:
        healthy = health.HealthCheckResponse(status=health.HealthCheckResponse.SERVING)
        handlers = {rpc.CHECK_HEALTH.path: _unary(rpc.CHECK_HEALTH, lambda _: healthy)}
        if number == 0:
            handlers |= {m.path: _unary(m, answer, self.service) for m, answer in self.service.unary().items()}
            return handlers | {rpc.TSO.path: _stream(rpc.TSO, self.service.timestamps)}
        handlers |= {m.path: _unary(m, answer) for m, answer in self.kv[number - 1].unary().items()}
        return handlers | {rpc.EVENT_FEED_V2.path: _stream(rpc.EVENT_FEED_V2, self.feeds[number - 1].serve)}


class _Handlers(grpc.GenericRpcHandler):
    """Methods by their paths."""

    def __init__(self, methods: Mapping[str, Handler]) -> None:
        self._methods = methods

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "Handler | None":
        return self._methods.get(handler_call_details.method)


def _unary(method: rpc.Method[Any, Any], answer: Callable[[Any], Any], pd: PdService | None = None) -> Handler:
    async def once(request: Any, call: Any) -> Any:
        cluster_id = request.header.cluster_id if pd else 0
        if pd and cluster_id != pd.cluster_id and method is not rpc.GET_MEMBERS:
            await call.abort(grpc.StatusCode.FAILED_PRECONDITION, pd.mismatch(cluster_id))
        return answer(request)

    return grpc.unary_unary_rpc_method_handler(once, method.request.FromString, method.answer.SerializeToString)


def _stream(method: rpc.Method[Any, Any], serve: Callable[[Any, Any], Any]) -> Handler:
    return grpc.stream_stream_rpc_method_handler(serve, method.request.FromString, method.answer.SerializeToString)
