"""Reads at one timestamp: pages of a key range, region by region, and single keys.

    [start, end) ─► regions of PD ─► KvScan of each at its leader, `limit` pairs a page ─► (key, value) in key order
                        ▲                   │ region error, store away: regions anew, from the key reached
                        └───────────────────┤ locked pair: locks resolved, that key by KvGet
                                            ▼ error of the page: locks resolved, the page again

Keys are raw here and encoded in regions.  A lock whose transaction began above the timestamp is no obstacle, and TiKV
does not show it.  TiKV leaves out collected versions silently, so `pages` asks PD whether the timestamp is kept before
the first page and after the last one.

Source: TiKV and client-go (txnkv/txnsnapshot), see kvrpcpb; recorded pages in tests/data/tikv.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import grpc
import msgspec
import numpy as np
from google.protobuf.message import DecodeError as Malformed

from tidegate.kv.slices import PADDING, Slices
from tidegate.model.errors import ClusterUnavailable, HistoryLost, KeyIsLocked, ProtocolError, TidegateError, redacted
from tidegate.mysql.encoding import decode_bytes, encode_bytes
from tidegate.tikv import rpc
from tidegate.tikv.locks import Call, answered, resolve
from tidegate.tikv.pd import PdClient
from tidegate.tikv.stubs import errorpb_pb2 as errorpb
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb
from tidegate.tikv.stubs import metapb_pb2 as metapb
from tidegate.tikv.stubs import pdpb_pb2 as pdpb
from tidegate.tikv.walk import read_pairs

Pair: TypeAlias = tuple[bytes, bytes]
Columns: TypeAlias = tuple[Slices, Slices]
"""Keys and values in the same bytes."""
Resolve: TypeAlias = Callable[[Sequence[kvrpcpb.LockInfo]], Awaitable[object]]
"""Resolves the locks of transactions that have ended; those that live stay."""

PAGE_PAIRS: Final = 256
PAGE_BYTES: Final = 4 << 20
"""About what a page of more than PAGE_PAIRS has."""
PATIENCE_S: Final = 60.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0
_CALL_TIMEOUT_S: Final = 60.0
_COLLECTED: Final = "GC life time is shorter than transaction duration"


def bound_of(region: pdpb.Region, end: bytes) -> bytes:
    """Return where a region ends, at most at `end`, as a raw key."""
    last = region.region.end_key
    return min(end, decode_bytes(last)[0]) if last else end


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How TiKV serves a read; `replica_read` is leader or follower, `page_pairs` the most pairs of a page."""

    page_pairs: int = PAGE_PAIRS
    resource_group: str = ""
    replica_read: str = "leader"
    request_source: str = "external_tidegate"
    patience_s: float = PATIENCE_S


class _Moved(ClusterUnavailable):
    """A region is elsewhere or not ready: it is looked up again."""


@dataclass(slots=True)
class _Waits:
    """The waits between tries without progress."""

    patience_s: float
    waited_s: float = 0.0
    next_s: float = _FIRST_WAIT_S

    async def after(self, reason: TidegateError) -> None:
        """Wait; raise `reason` when the patience is over."""
        if self.waited_s >= self.patience_s:
            raise reason
        await asyncio.sleep(self.next_s)
        self.waited_s += self.next_s
        self.next_s = min(2 * self.next_s, _LONGEST_WAIT_S)


def columns_of(pairs: Iterable[Pair]) -> Columns:
    """Return keys and values as columns."""
    texts = [text for pair in pairs for text in pair]
    data, ends = np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)])
    offsets, size = ends[:-1], np.diff(ends)
    return Slices(data, offsets[::2], size[::2]), Slices(data, offsets[1::2], size[1::2])


def as_one(pages: Sequence[Columns]) -> Columns:
    """Return the pairs of several pages, at least one, as one page, whose bytes have PADDING bytes behind them."""
    parts = [keys.data for keys, _ in pages]
    begins = np.cumsum([0, *map(len, parts)])
    data = np.concatenate([*parts, np.zeros(PADDING, np.uint8)])
    keys, values = (
        Slices(
            data,
            np.concatenate([each.offsets + begin for each, begin in zip(column, begins, strict=False)]),
            np.concatenate([each.size for each in column]),
        )
        for column in zip(*pages, strict=True)
    )
    return keys, values


class Snapshot:
    """Reads the rows of a cluster at `ts`."""

    def __init__(
        self, pd: PdClient, ts: int, resolve: Resolve | None = None, options: ReadOptions | None = None
    ) -> None:
        self.pd, self.ts, self.options = pd, ts, options or ReadOptions()
        self._resolve = resolve or self._resolve_locks

    async def pages(self, start: bytes, end: bytes) -> AsyncIterator[list[Pair]]:
        """Return the pairs of `columns`, page by page."""
        async for keys, values in self.columns(start, end):
            yield list(zip(keys.to_pylist(), values.to_pylist(), strict=True))

    async def columns(self, start: bytes, end: bytes) -> AsyncIterator[Columns]:
        """Return the keys and values of [start, end) in key order, page by page. Raises HistoryLost if versions at `ts`
        may be collected, ClusterUnavailable and KeyIsLocked after `patience_s` without progress."""
        assert start < end, (start, end)
        await self.pd.check_kept(self.ts)
        position, waits, limit = start, self._waits(), min(self.options.page_pairs, PAGE_PAIRS)
        while position < end:
            for region in await self.pd.regions(encode_bytes(position), encode_bytes(end)):
                try:
                    bound = bound_of(region, end)
                    while position < bound:
                        page, position = await self._page(region, position, bound, limit)
                        waits = self._waits()
                        if rows := len(page[0]):
                            row_bytes = sum(column.nbytes for column in page) // rows
                            limit = min(self.options.page_pairs, max(PAGE_BYTES // row_bytes, PAGE_PAIRS))
                            yield page
                except (_Moved, KeyIsLocked) as reason:
                    await waits.after(reason)
                    break
        await self.pd.check_kept(self.ts)

    async def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None if there is none. Raises as `pages`."""
        waits = self._waits()
        while True:
            try:
                (region,) = await self.pd.regions(encode_bytes(key), encode_bytes(key + b"\0"))
                answer = await self._call(rpc.KV_GET, region, kvrpcpb.GetRequest(key=key, version=self.ts))
                await self._unlocked(answer.error, key)
            except (_Moved, KeyIsLocked) as reason:
                await waits.after(reason)
            else:
                return None if answer.not_found else answer.value

    async def last_key(self, start: bytes, end: bytes) -> bytes | None:
        """Return the last key of [start, end), None if there is none; one that is locked counts. Raises
        ClusterUnavailable."""
        waits = self._waits()
        while True:
            try:
                for region in reversed(await self.pd.regions(encode_bytes(start), encode_bytes(end))):
                    low = region.region.start_key
                    request = kvrpcpb.ScanRequest(
                        start_key=bound_of(region, end),
                        end_key=max(start, decode_bytes(low)[0]) if low else start,
                        limit=1,
                        version=self.ts,
                        key_only=True,
                        reverse=True,
                    )
                    for pair in (await self._call(rpc.KV_SCAN, region, request)).pairs:
                        return pair.key or pair.error.locked.key
            except _Moved as reason:
                await waits.after(reason)
            else:
                return None

    def _waits(self) -> _Waits:
        return _Waits(self.options.patience_s)

    async def _page(self, region: pdpb.Region, start: bytes, end: bytes, limit: int) -> tuple[Columns, bytes]:
        """The pairs from `start` on, and the key behind them."""
        request = kvrpcpb.ScanRequest(start_key=start, end_key=end, limit=limit, version=self.ts)
        raw = await self._raw(rpc.KV_SCAN, region, request)
        if (page := read_pairs(raw, limit)) is not None:
            count = len(page[0])
            keys = page[0].to_pylist(slice(None, None, max(count - 1, 1)))
            behind = keys[-1] + b"\0" if count == limit else end
        else:
            pairs, behind = await self._settled(self._parsed(rpc.KV_SCAN, region, raw), start, end, limit)
            page, keys = columns_of(pairs), [key for key, _ in pairs]
        if keys and (keys[0] < start or keys[-1] >= end or any(low >= high for low, high in pairwise(keys))):
            answered_span, scanned = (
                redacted(f"{first.hex()} to {last.hex()}") for first, last in ((keys[0], keys[-1]), (start, end))
            )
            raise ProtocolError(
                f"region {region.region.id} answers keys from {answered_span} to a scan from {scanned} "
                f"at ts {self.ts}, in an order or range that there is not; check the version of the store"
            )
        return page, behind

    async def _settled(
        self, answer: kvrpcpb.ScanResponse, start: bytes, end: bytes, limit: int
    ) -> tuple[list[Pair], bytes]:
        """The pairs of an answer with locks among them, and the key behind them."""
        await self._unlocked(answer.error, start)
        locked = [pair.error for pair in answer.pairs if pair.HasField("error")]
        if locked:
            await self._settle(locked, start)
        pairs: list[Pair] = []
        for pair in answer.pairs:
            start = pair.error.locked.key if pair.HasField("error") else pair.key
            value = await self.get(start) if pair.HasField("error") else pair.value
            if value is not None:
                pairs.append((start, value))
        return pairs, start + b"\0" if len(answer.pairs) >= limit else end

    async def _call(self, method: rpc.Method[rpc.Q, rpc.A], region: pdpb.Region, request: rpc.Q) -> rpc.A:
        return self._parsed(method, region, await self._raw(method, region, request))

    def _parsed(self, method: rpc.Method[rpc.Q, rpc.A], region: pdpb.Region, raw: bytes) -> rpc.A:
        """The answer of these bytes; an error of its region is raised."""
        try:
            answer = method.answer.FromString(raw)
        except Malformed as fault:
            raise ProtocolError(
                f"region {region.region.id} answers a malformed message at ts {self.ts} ({fault}); check the version "
                "of the store"
            ) from fault
        error: errorpb.Error = answer.region_error  # type: ignore[attr-defined]
        if error.ByteSize():
            raise self._moved(f"region {region.region.id} at ts {self.ts}: {error.message or str(error).strip()}")
        return answer

    async def _raw(self, method: rpc.Method[rpc.Q, rpc.A], region: pdpb.Region, request: rpc.Q) -> bytes:
        is_follower = self.options.replica_read == "follower"
        voters = (peer for peer in region.region.peers if peer.role == metapb.Voter and peer.id != region.leader.id)
        peer = next(voters, region.leader) if is_follower else region.leader
        address = await self.pd.store_address(peer.store_id)
        context = kvrpcpb.Context(
            region_id=region.region.id,
            region_epoch=region.region.region_epoch,
            peer=peer,
            priority=kvrpcpb.Low,
            not_fill_cache=True,
            replica_read=is_follower,
            request_source=self.options.request_source,
            resource_control_context=kvrpcpb.ResourceControlContext(resource_group_name=self.options.resource_group),
            cluster_id=self.pd.cluster_id,
        )
        request.context.CopyFrom(context)  # type: ignore[attr-defined]
        try:
            answer: bytes = await method.raw(self.pd.channels.to(address))(request, timeout=_CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as fault:
            shown = self.pd.channels.shown(address)
            raise self._moved(
                f"store {peer.store_id} at {shown} gives no answer for region {region.region.id} at ts {self.ts}: "
                f"{fault.code().name}: {fault.details()}"
            ) from fault
        return answer

    def _moved(self, reason: str) -> _Moved:
        """What is raised where a region is not; its store may be elsewhere, too."""
        self.pd.forget_addresses()
        return _Moved(reason)

    async def _settle(self, errors: Sequence[kvrpcpb.KeyError], key: bytes) -> None:
        """Resolve the locks of errors; raise what is no lock."""
        for error in errors:
            if not error.HasField("locked"):
                text = error.abort or error.retryable or str(error).strip()
                if _COLLECTED in text:
                    raise HistoryLost(f"the versions at ts {self.ts} are collected ({text}); begin at a later ts")
                raise ProtocolError(f"TiKV refuses the read of key {redacted(key.hex())} at ts {self.ts}: {text}")
        await self._resolve([error.locked for error in errors])

    async def _resolve_locks(self, locks: Sequence[kvrpcpb.LockInfo]) -> None:
        """Resolve the locks whose transactions have ended (locks.py)."""
        now = await self.pd.tso()

        async def ask(call: Call) -> Any:
            encoded = encode_bytes(call.key)
            (region,) = await self.pd.regions(encoded, encoded + b"\0")
            return await self._call(call.method, region, call.request)

        for lock in locks:
            await answered(resolve(lock.key, lock.key + b"\0", self.ts, now), ask)

    async def _unlocked(self, error: kvrpcpb.KeyError, key: bytes) -> None:
        """Resolve the lock of an error, if there is one, and raise that it was there."""
        if not error.ByteSize():
            return
        await self._settle([error], key)
        lock = error.locked
        raise KeyIsLocked(
            f"key {redacted((lock.key or key).hex())} is locked at ts {self.ts} by the transaction of start_ts "
            f"{lock.lock_version}, primary {redacted(lock.primary_lock.hex())}: end that transaction, or read at a "
            "later ts"
        )
