"""`tidegate doctor --source-uri tikv://..`: what a TiDB cluster is and allows, by its PDs and stores.

members ─ no leader, another cluster: the only finding
   └─► health, versions, stores, GC, regions, locks that hold regions back, clock
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

import grpc

from tidegate.cli.finding import Finding
from tidegate.config.entry import Document
from tidegate.config.tikv import parse_tikv
from tidegate.config.uri import mask_uri, resolve_uri, scheme_of
from tidegate.kv.keys import RecordKey, decode_table_key
from tidegate.model.errors import ClusterUnavailable, ConfigError, KvDecodeError, TidegateError
from tidegate.model.tso import compose, physical_ms, shown_ts
from tidegate.mysql.encoding import decode_bytes
from tidegate.source.tidb_segment import SCHEMA
from tidegate.source.tikv_capture import KnownTables
from tidegate.source.tikv_options import SCHEME
from tidegate.tikv import rpc
from tidegate.tikv.address import ClusterAddress, address_of
from tidegate.tikv.feed import ask_leader
from tidegate.tikv.pd import PdClient
from tidegate.tikv.snapshot import Snapshot
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb
from tidegate.tikv.stubs import metapb_pb2 as metapb
from tidegate.tikv.stubs import pdpb_pb2 as pdpb
from tidegate.tikv.versions import ACCEPTED_TEXT, differences, evidence, row_stores

PATIENCE_S: Final = 5.0
LAG_MAX_MS: Final = 60_000
CLOCK_MAX_MS: Final = 2_000
LOOK_S: Final = 30.0
"""How long regions are looked at for locks, AT_ONCE at a time; NAMED of those that lag are named."""
AT_ONCE, NAMED = 64, 20
_HOLDING: Final = frozenset({kvrpcpb.Put, kvrpcpb.Del})
"""Types of locks that a resolved ts waits for."""
FEATURES: Final = (("features", "stream-multiplexing"),)
_UPGRADE: Final = f"upgrade to {ACCEPTED_TEXT}, or set force-version=true at your own risk"
Findings = AsyncIterator[Finding]


def diagnose_source(uri: str, document: Document) -> list[Finding]:
    """Return what there is to say of the cluster that a changefeed captures. Raises ConfigError for another source."""
    uri = resolve_uri(uri or str(document.flat.get("source.uri", "")), "source-uri")
    if scheme_of(uri) != SCHEME:
        raise ConfigError(f"doctor checks clusters alone, tikv://PD:2379, found {mask_uri(uri) or 'no source'}")
    return diagnose_cluster(address_of(parse_tikv(uri, document)))


def diagnose_cluster(address: ClusterAddress) -> list[Finding]:
    """Return what there is to say of a cluster."""
    return asyncio.run(_diagnose(PdClient(address, patience_s=PATIENCE_S)))


async def _diagnose(client: PdClient) -> list[Finding]:
    findings: list[Finding] = []
    try:
        for name, check in CHECKS.items():
            try:
                async for finding in check(client):
                    findings.append(finding)  # noqa: PERF401 (those before an error stay)
            except TidegateError as fault:
                findings.append(Finding(name, "fail", str(fault), "see the message above"))
                if client.members is None and not client.cluster_id:
                    break
    finally:
        await client.close()
    return findings


async def _members(client: PdClient) -> Findings:
    members = await client.connect()
    yield Finding("members", "ok", f"cluster {members.cluster_id}, {len(members.urls)} of PD, leader {members.leader}")
    for url, state in (await client.healthy()).items():
        fine = state == "SERVING"
        yield Finding(
            f"pd {url}", "ok" if fine else "fail", state, "" if fine else "start it, or name how it is reached"
        )


async def _versions(client: PdClient) -> Findings:
    for finding in _version("PD", await client.version()):
        yield finding
    for store in await client.stores():
        if not row_stores([store]):
            yield Finding(f"store {store.address}", "ok", f"version {store.version}, holds no rows of TiKV")


def _version(kind: str, version: str, where: str = "") -> Iterator[Finding]:
    proof = evidence(version)
    text = f"{version or 'none'}, {proof or 'not accepted'}"
    name = f"version {kind}{where and f' {where}'}"
    yield Finding(name, "ok" if proof else "fail", text, "" if proof else _UPGRADE)
    for each in (*differences(kind, version), *(differences("TiDB", version) if kind == "PD" else ())):
        yield Finding(f"{each.kind} {version}", "ok", f"as read: {each.does}; {each.met}")


async def _stores(client: PdClient) -> Findings:
    stores = row_stores(await client.stores())
    if not stores:
        yield Finding("stores", "fail", "PD names no store of TiKV", "start one")
    for store in stores:
        for finding in _version("TiKV", store.version, store.address):
            yield finding
        yield await _feed(client, store)


async def _feed(client: PdClient, store: metapb.Store) -> Finding:
    """Open a stream of changes and close it at once: a store that multiplexes ends it in order."""
    check = f"changes {store.address}"
    feed = rpc.EVENT_FEED_V2.stream(client.channels.to(store.address))
    stream = feed(iter(()), metadata=FEATURES, timeout=PATIENCE_S)
    code, details = await stream.code(), await stream.details()
    if code is grpc.StatusCode.OK:
        return Finding(check, "ok", "EventFeedV2 with stream-multiplexing")
    return Finding(check, "fail", f"{code.name}: {details}", client.channels.shown(store.address))


async def _garbage(client: PdClient) -> Findings:
    state = await client.gc_state()
    yield Finding("gc safe point", "ok", f"{shown_ts(state.safe_point)}: a feed starts above it")
    for name, ts in state.barriers.items():
        yield Finding(f"gc held by {name}", "ok", shown_ts(ts))


async def _regions(client: PdClient) -> Findings:
    regions = await client.regions(b"", b"")
    ailing = [region.region.id for region in regions if region.down_peers]
    text = f"{len(regions)}, each with a leader"
    if ailing:
        text += f"; peers are down of {len(ailing)}, such as region {ailing[0]}"
    yield Finding("regions", "warn" if ailing else "ok", text, "see why stores are down" if ailing else "")


async def _resolved(client: PdClient) -> Findings:
    ts = int((await client.report("min-resolved-ts")).get("min_resolved_ts") or 0)
    if not ts:
        yield Finding("resolved ts", "ok", "PD does not report it (min-resolved-ts-persistence-interval is 0)")
        return
    lag_ms = physical_ms(await client.tso()) - physical_ms(ts)
    slow = lag_ms > LAG_MAX_MS
    remedy = "look for a long transaction, and for stores without a leader" if slow else ""
    yield Finding("resolved ts", "warn" if slow else "ok", f"{shown_ts(ts)}, {lag_ms / 1000:.1f} s behind", remedy)


async def _locks(client: PdClient) -> Findings:
    """Look for locks that hold a resolved ts: those of rows, older than LAG_MAX_MS."""
    now_ts, regions, end_s = await client.tso(), await client.regions(b"", b""), time.monotonic() + LOOK_S
    locked, looked, silent = list[tuple[int, pdpb.Region, bytes]](), 0, 0
    while looked < len(regions) and time.monotonic() < end_s:
        some = regions[looked : looked + AT_ONCE]
        looked += len(some)
        locks = await asyncio.gather(*(_oldest(client, each, now_ts) for each in some))
        for region, lock in zip(some, locks, strict=True):
            if isinstance(lock, ClusterUnavailable):
                silent += 1
                if silent <= NAMED:
                    yield Finding(f"region {region.region.id}", "warn", str(lock), "see why no leader of it answers")
            elif lock is not None:
                locked.append((lock.lock_version, region, lock.key))
    tables = await _tables(client, now_ts) if locked else {}
    for start_ts, region, key in sorted(locked, key=lambda each: each[0])[:NAMED]:
        number, lag_s = _table_of(key), (physical_ms(now_ts) - physical_ms(start_ts)) / 1000
        table = f"table {tables.get(number, number)}" if number else "the schema"
        yield Finding(
            f"region {region.region.id} at store {region.leader.store_id}",
            "warn",
            f"{lag_s:.0f} s behind: transaction {start_ts} has locked key {key.hex()} of {table}",
            f"end it if it is stuck: information_schema.cluster_tidb_trx has it as id {start_ts}",
        )
    counts = f"{len(locked)} lag, {silent} give no answer"
    yield Finding("locks", "ok", f"looked at {looked} of {len(regions)} regions: {counts}")


async def _oldest(client: PdClient, region: pdpb.Region, now_ts: int) -> kvrpcpb.LockInfo | ClusterUnavailable | None:
    """Return the oldest lock on a row or the schema that is older than LAG_MAX_MS; the error of a region without an
    answer."""
    own, max_ts = region.region, now_ts - compose(LAG_MAX_MS)
    start, end = (decode_bytes(key)[0] if key else b"" for key in (own.start_key, own.end_key))
    request = kvrpcpb.ScanLockRequest(max_version=max_ts, limit=1024, start_key=start, end_key=end)
    try:
        answer = await ask_leader(client, region, rpc.KV_SCAN_LOCK, request, PATIENCE_S)
    except ClusterUnavailable as fault:
        return fault
    locks = (lock for lock in answer.locks if lock.lock_type in _HOLDING and _table_of(lock.key) is not None)
    return min(locks, key=lambda lock: lock.lock_version, default=None)


def _table_of(key: bytes) -> int | None:
    """Return the table of a row's key, 0 for a key of the schema, None for a key that no feed reads."""
    try:
        parts = decode_table_key(key)
    except KvDecodeError:
        return 0 if SCHEMA[0] <= key < SCHEMA[1] else None
    return parts.table_id if isinstance(parts, RecordKey) else None


async def _tables(client: PdClient, ts: int) -> dict[int, str]:
    """Return the tables of a cluster by their physical ids."""
    tables = KnownTables(lambda _schema, _table: True)
    async for page in Snapshot(client, ts).pages(*SCHEMA):
        for key, value in page:
            tables.apply(key, value)
    return tables.names()


async def _clock(client: PdClient) -> Findings:
    ahead_ms = physical_ms(await client.tso()) - time.time_ns() // 1_000_000
    far = abs(ahead_ms) > CLOCK_MAX_MS
    text = f"PD's is {abs(ahead_ms) / 1000:.1f} s {'ahead of' if ahead_ms > 0 else 'behind'} this machine's"
    yield Finding("clock", "warn" if far else "ok", text, "synchronize the clocks by NTP" if far else "")


CHECKS: Final[dict[str, Callable[[PdClient], Findings]]] = {
    "members": _members,
    "versions": _versions,
    "stores": _stores,
    "gc": _garbage,
    "regions": _regions,
    "resolved ts": _resolved,
    "locks": _locks,
    "clock": _clock,
}
