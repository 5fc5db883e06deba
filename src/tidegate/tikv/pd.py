"""The client of PD: members, timestamps, stores, regions, and what holds garbage collection back.

    urls ─► GetMembers of each ─► Members ─► call the leader ──┬─► answer
               ▲                                               │
               └──── another leader, no answer, no leader ◄────┘   for `patience_s`, then ClusterUnavailable

Every call ends: each attempt has a deadline, and attempts end with `patience_s`.  Timestamps that are asked for while a
request is under way are one request.  Garbage collection is held by a barrier, on a PD without them by a service safe
point: both have one name space.
"""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import grpc
import msgspec

from tidegate.model.errors import ClusterMismatch, ClusterUnavailable, HistoryLost, PdRefused, TidegateError
from tidegate.tikv import rpc
from tidegate.tikv.address import ClusterAddress
from tidegate.tikv.channels import Channels
from tidegate.tikv.pd_rules import (
    BATCH,
    Again,
    Members,
    check_header,
    check_held,
    check_status,
    choose,
    first_ts,
    run_of,
    with_leaders,
)
from tidegate.tikv.stubs import health_pb2 as health
from tidegate.tikv.stubs import metapb_pb2 as metapb
from tidegate.tikv.stubs import pdpb_pb2 as pdpb

T = TypeVar("T")

CALL_TIMEOUT_S: Final = 5.0
PATIENCE_S: Final = 30.0
PAGE_REGIONS: Final = 1024
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0
_NULL_KEYSPACE: Final = pdpb.KeyspaceScope(keyspace_id=0xFFFF_FFFF)
_READER: Final = b"tidegate-reads-the-safe-point"
"""A service without a safe point: to read the least one is to delete this."""
_EVER: Final = (1 << 64) - 1


class _Unsupported(PdRefused):
    """PD does not know a method."""


class RegionSize(msgspec.Struct, frozen=True):
    """About what a region holds, old versions and entries of indexes included; 0 where PD does not know it yet."""

    keys: int = msgspec.field(name="approximate_keys", default=0)
    mebibytes: int = msgspec.field(name="approximate_size", default=0)


class _Sized(RegionSize, frozen=True, kw_only=True):
    id: int
    end_key: str


class _Report(msgspec.Struct, frozen=True):
    regions: list[_Sized] = []


class GcState(msgspec.Struct, frozen=True):
    """What may be collected: versions that no read at or above `safe_point` needs. `barriers` are those that PD tells,
    by their names; an older PD tells the least one."""

    safe_point: int
    barriers: dict[str, int]


class PdClient:
    """A client of one cluster, in one event loop. The first call connects."""

    def __init__(
        self,
        address: ClusterAddress,
        *,
        cluster_id: int = 0,
        patience_s: float = PATIENCE_S,
        call_timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        self.address, self.channels = address, Channels(address)
        self.cluster_id = cluster_id
        self.members: Members | None = None
        self._known: Members | None = None
        self._patience_s, self._call_timeout_s = patience_s, call_timeout_s
        self._unsupported: set[str] = set()
        self._addresses: dict[int, str] = {}
        self._last_ts = 0
        self._waiting: list[asyncio.Future[int]] = []
        self._stream: grpc.aio.StreamStreamCall[pdpb.TsoRequest, pdpb.TsoResponse] | None = None
        self._batches: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """End the calls under way and close all channels, those to stores as well."""
        if self._batches:
            self._batches.cancel()
        for future in self._waiting:
            future.cancel()
        self._drop_stream()
        await self.channels.close()

    # --- members ---

    async def connect(self) -> Members:
        """Return the members, asked for unless they are known. Raises ClusterMismatch, ClusterUnavailable."""
        return await self._repeated("members", self._current)

    async def _current(self) -> Members:
        return self.members or await self._learn()

    async def _learn(self) -> Members:
        advertised = self._known.urls if self._known else ()
        urls = {self.address.reachable(url): url for url in (*advertised, *self.address.pd)}.values()
        answers = await asyncio.gather(*map(self._members_by, urls))
        self.members = self._known = choose(dict(zip(urls, answers, strict=True)), self.cluster_id)
        self.cluster_id = self.members.cluster_id
        return self.members

    async def _members_by(self, url: str) -> pdpb.GetMembersResponse | str:
        try:
            request = pdpb.GetMembersRequest(header=pdpb.RequestHeader(cluster_id=self.cluster_id))
            return await rpc.GET_MEMBERS.unary(self.channels.to(url))(request, timeout=self._call_timeout_s)
        except grpc.aio.AioRpcError as fault:
            reason = check_status(fault.code(), fault.details() or "")
            if isinstance(reason, ClusterMismatch):
                raise reason from fault
            return f"{reason} ({self.channels.shown(url)})"

    async def _repeated(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the answer of an attempt, repeated while it is worth it; members are asked for in between."""
        loop = asyncio.get_running_loop()
        deadline, wait_s = loop.time() + self._patience_s, _FIRST_WAIT_S
        while True:
            try:
                return await attempt()
            except grpc.aio.AioRpcError as fault:
                reason = check_status(fault.code(), fault.details() or "")
                if fault.code() is grpc.StatusCode.UNIMPLEMENTED:
                    raise _Unsupported(str(reason)) from fault
                if not isinstance(reason, Again):
                    raise reason from fault
            except Again as again:
                reason = again
            if loop.time() + wait_s > deadline:
                leader = f" (leader {self.channels.shown(self.members.leader)})" if self.members else ""
                raise ClusterUnavailable(
                    f"PD gave no {what} within {self._patience_s:g} s: {reason}{leader}"
                ) from reason
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            self.members, self._known = None, self.members or self._known

    async def _call(self, method: rpc.Method[rpc.Q, rpc.A], **fields: object) -> rpc.A:
        async def once() -> rpc.A:
            members = await self._current()
            request = method.request(header=pdpb.RequestHeader(cluster_id=members.cluster_id), **fields)
            answer = await method.unary(self.channels.to(members.leader))(request, timeout=self._call_timeout_s)
            check_header(answer.header, members.cluster_id)  # type: ignore[attr-defined]
            return answer

        return await self._repeated(method.path.rpartition("/")[2], once)

    async def _either(
        self, newer: Callable[[], Awaitable[T]], method: rpc.Method[rpc.Q, rpc.A], older: Callable[[], Awaitable[T]]
    ) -> T:
        """Return what a method of newer PDs answers, or what takes its place; which one is remembered."""
        if method.path not in self._unsupported:
            try:
                return await newer()
            except _Unsupported:
                self._unsupported.add(method.path)
        return await older()

    # --- timestamps ---

    async def tso(self) -> int:
        """Return a new timestamp, above all before. Raises TsoFellBack."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if self._batches is None or self._batches.done():
            self._batches = asyncio.create_task(self._answer_all())
        return int(await future)

    async def _answer_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            try:
                first = await self._repeated("timestamp", partial(self._batch, len(batch)))
                for index, future in enumerate(batch):
                    if not future.done():
                        future.set_result(first + index)
            except TidegateError as fault:
                for future in batch:
                    if not future.done():
                        future.set_exception(fault)
            except asyncio.CancelledError:
                for future in batch:
                    future.cancel()
                raise
            finally:  # a cancelled future would end its caller silently
                for future in batch:
                    if not future.done():
                        future.set_exception(ClusterUnavailable("a request of timestamps ended without an answer"))

    async def _batch(self, count: int) -> int:
        members = await self._current()
        try:
            if self._stream is None:
                self._stream = rpc.TSO.stream(self.channels.to(members.leader))()
            async with asyncio.timeout(self._call_timeout_s):
                header = pdpb.RequestHeader(cluster_id=members.cluster_id)
                await self._stream.write(pdpb.TsoRequest(header=header, count=count))
                answer = await self._stream.read()
            if not isinstance(answer, pdpb.TsoResponse):
                answer = pdpb.TsoResponse(header=pdpb.ResponseHeader(cluster_id=members.cluster_id))
            check_header(answer.header, members.cluster_id)
            first = first_ts(answer, count, self._last_ts)
        except BaseException as fault:
            self._drop_stream()
            if isinstance(fault, TimeoutError | asyncio.InvalidStateError):
                raise Again(f"PD's stream of timestamps is silent or over: {fault!r}") from fault
            raise
        self._last_ts = first + count - 1
        return first

    def _drop_stream(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None

    # --- stores and regions ---

    async def stores(self) -> list[metapb.Store]:
        """Return all stores but those that were removed."""
        return list((await self._call(rpc.GET_ALL_STORES, exclude_tombstone_stores=True)).stores)

    async def store(self, store_id: int) -> metapb.Store:
        """Return a store. Raises PdRefused if there is none of that id."""
        return (await self._call(rpc.GET_STORE, store_id=store_id)).store

    async def store_address(self, store_id: int) -> str:
        """Return what a store advertises; PD is asked once, until `forget_addresses`. Raises PdRefused."""
        if store_id not in self._addresses:
            self._addresses[store_id] = (await self.store(store_id)).address
        return self._addresses[store_id]

    def forget_addresses(self) -> None:
        """Ask PD anew where stores are: one did not answer, or not for a region that it is to have."""
        self._addresses.clear()

    async def regions(self, start: bytes, end: bytes) -> list[pdpb.Region]:
        """Return the regions that cover [start, end) of encoded keys, each with its leader; an empty `end` is no
        bound. Raises ClusterUnavailable if a region stays missing or leaderless."""
        assert not end or start < end, (start, end)
        covering: list[pdpb.Region] = []
        position: bytes | None = start
        while position is not None:
            run, position = await self._repeated("regions", partial(self._run, position, end))
            covering += run
        return covering

    async def _run(self, start: bytes, end: bytes) -> tuple[list[pdpb.Region], bytes | None]:
        return run_of(await self._scanned(start, end), start, end)

    async def _scanned(self, start: bytes, end: bytes) -> Sequence[pdpb.Region]:
        key_range = pdpb.KeyRange(start_key=start, end_key=end)

        async def batch() -> Sequence[pdpb.Region]:
            return (await self._call(rpc.BATCH_SCAN_REGIONS, ranges=[key_range], limit=PAGE_REGIONS)).regions

        async def scan() -> Sequence[pdpb.Region]:
            answer = await self._call(rpc.SCAN_REGIONS, start_key=start, end_key=end, limit=PAGE_REGIONS)
            return with_leaders(answer)

        return await self._either(batch, rpc.BATCH_SCAN_REGIONS, scan)

    async def sizes(self, start: bytes, end: bytes) -> dict[int, RegionSize]:
        """Return the sizes of the regions in [start, end) of encoded keys, by their ids. Raises ClusterUnavailable: PD
        reports them over HTTP alone."""
        sizes: dict[int, RegionSize] = {}
        while True:
            words = urlencode({"key": start, "end_key": end, "limit": PAGE_REGIONS})
            try:
                regions = msgspec.convert(await self.report(f"regions/key?{words}"), _Report).regions
                reached = bytes.fromhex(regions[-1].end_key) if regions else b""
            except ValueError as fault:
                raise ClusterUnavailable(f"PD does not report the sizes of regions: {fault}") from fault
            sizes |= {region.id: region for region in regions}
            if reached <= start or (end and reached >= end):
                return sizes
            start = reached

    # --- garbage collection ---

    async def hold(self, service_id: str, ttl_s: int, ts: int) -> None:
        """Hold GC so that reads above `ts` see every version, until `ttl_s` has gone by or `release`. Raises
        StartBeforeGc if PD has gone beyond."""
        assert service_id, "PD refuses an empty name"
        assert ttl_s > 0, "PD removes what has no time to live"

        async def barrier() -> None:
            fields = {"barrier_id": service_id, "barrier_ts": ts, "ttl_seconds": ttl_s}
            await self._call(rpc.SET_GC_BARRIER, keyspace_scope=_NULL_KEYSPACE, **fields)

        async def service() -> None:
            name = service_id.encode()
            answer = await self._call(rpc.UPDATE_SERVICE_GC_SAFE_POINT, service_id=name, TTL=ttl_s, safe_point=ts)
            check_held(answer, ts)

        await self._either(barrier, rpc.SET_GC_BARRIER, service)

    async def release(self, service_id: str) -> None:
        """End what `hold` did under this name, if anything."""

        async def barrier() -> None:
            await self._call(rpc.DELETE_GC_BARRIER, keyspace_scope=_NULL_KEYSPACE, barrier_id=service_id)

        async def service() -> None:
            name = service_id.encode()
            await self._call(rpc.UPDATE_SERVICE_GC_SAFE_POINT, service_id=name, TTL=0, safe_point=_EVER)

        await self._either(barrier, rpc.DELETE_GC_BARRIER, service)

    async def gc_state(self) -> GcState:
        """Return up to where versions may be collected, and who holds them."""

        async def state() -> GcState:
            answer = (await self._call(rpc.GET_GC_STATE, keyspace_scope=_NULL_KEYSPACE)).gc_state
            barriers = {barrier.barrier_id: barrier.barrier_ts for barrier in answer.gc_barriers}
            return GcState(answer.txn_safe_point, barriers)

        async def services() -> GcState:
            least = await self._call(rpc.UPDATE_SERVICE_GC_SAFE_POINT, service_id=_READER, TTL=0, safe_point=0)
            return GcState(least.min_safe_point, {least.service_id.decode(): least.min_safe_point})

        return await self._either(state, rpc.GET_GC_STATE, services)

    async def holds(self) -> dict[str, int]:
        """Return where GC is held, by name; an older PD tells all of them over HTTP. Raises ClusterUnavailable."""
        state = await self.gc_state()
        if rpc.GET_GC_STATE.path not in self._unsupported:
            return state.barriers
        points = (await self.report("gc/safepoint")).get("service_gc_safe_points") or ()
        return {point["service_id"]: point["safe_point"] for point in points}

    async def check_kept(self, ts: int) -> None:
        """Raise HistoryLost unless all versions above `ts` are kept: TiKV itself leaves out collected ones silently."""
        state = await self.gc_state()
        if state.safe_point > ts:
            raise HistoryLost(
                f"the GC safe point of the cluster is {state.safe_point}, above ts {ts}: versions in between may be "
                "gone; start above it, with a new copy of the data"
            )

    # --- what is there ---

    async def healthy(self) -> dict[str, str]:
        """Return for each member's URL `SERVING`, or what is wrong."""
        members = await self.connect()

        async def ask(url: str) -> str:
            call = rpc.CHECK_HEALTH.unary(self.channels.to(url))
            try:
                answer = await call(health.HealthCheckRequest(), timeout=self._call_timeout_s)
            except grpc.aio.AioRpcError as fault:
                return f"{fault.code().name}: {fault.details()} ({self.channels.shown(url)})"
            return health.HealthCheckResponse.ServingStatus.Name(answer.status)

        return dict(zip(members.urls, await asyncio.gather(*map(ask, members.urls)), strict=True))

    async def version(self) -> str:
        """Return the version of PD's leader."""
        return (await self.connect()).version or str((await self.report("version")).get("version", ""))

    async def report(self, name: str) -> dict[str, Any]:
        """Return what PD's leader reports over HTTP alone, which its client port speaks, too."""
        members = await self.connect()
        return await asyncio.to_thread(self._report_of, members.leader, name)

    def _report_of(self, advertised: str, name: str) -> dict[str, Any]:
        target, address = self.address.reachable(advertised), self.address
        plain = HTTPConnection(target, timeout=self._call_timeout_s)
        if address.ca_path:
            tls = ssl.create_default_context(cafile=address.ca_path)
            if address.cert_path:
                tls.load_cert_chain(address.cert_path, address.key_path)
            plain = HTTPSConnection(target, timeout=self._call_timeout_s, context=tls)
        with closing(plain) as connection:
            try:
                connection.request("GET", f"/pd/api/v1/{name}")
                return dict(json.load(connection.getresponse()))
            except (OSError, HTTPException, ValueError, TypeError) as fault:
                raise ClusterUnavailable(f"PD at {target} does not report its {name} over HTTP: {fault}") from fault
