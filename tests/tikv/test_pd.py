"""The client of PD against a server that plays recorded answers, and against hostile ones."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

import grpc
import pytest

from tests.certificates import make_certificate
from tests.tikv.scripted import ADVERTISED, DATA, Answer, Scripted, always, exchanges, recorded_pd, serving, with_pd
from tidegate.model.errors import (
    ClusterMismatch,
    ClusterUnavailable,
    HistoryLost,
    PdRefused,
    StartBeforeGc,
    TidegateError,
    TsoFellBack,
)
from tidegate.tikv.address import ClusterAddress, cluster_address
from tidegate.tikv.pd import GcState, PdClient
from tidegate.tikv.pd_rules import run_of
from tidegate.tikv.rpc import SERVER_OPTIONS
from tidegate.tikv.stubs import health_pb2 as health
from tidegate.tikv.stubs import metapb_pb2 as metapb
from tidegate.tikv.stubs import pdpb_pb2 as pdpb

CLUSTER = 7712533096719751607
HEADER = pdpb.ResponseHeader(cluster_id=CLUSTER)
MEMBER = pdpb.Member(name="pd", client_urls=[f"http://{ADVERTISED}"])
MEMBERS = pdpb.GetMembersResponse(header=HEADER, members=[MEMBER], leader=MEMBER)
ALONE = {"/pdpb.PD/GetMembers": always(MEMBERS)}


def refusing(code: grpc.StatusCode, details: str) -> Answer:
    """A method that always ends with a status."""

    async def answer(_: bytes, call: Any) -> bytes:
        await call.abort(code, details)
        return b""

    return answer


def in_turn(*answers: Answer) -> Answer:
    """A method that answers as each of them in turn, and then as the last."""
    left = list(answers)

    async def answer(request: bytes, call: Any) -> bytes | None:
        return await (left.pop(0) if len(left) > 1 else left[0])(request, call)

    return answer


UNSUPPORTED = refusing(grpc.StatusCode.UNIMPLEMENTED, "unknown method")


def test_recorded_answers() -> None:
    """Requests are those that were recorded, to the byte, and the answers of a real PD are understood: members, stores,
    all regions, timestamps, barriers."""

    async def use(client: PdClient) -> None:
        assert (await client.connect()).urls == (f"http://{ADVERTISED}",)
        (store,) = await client.stores()
        assert (store.address, store.version) == ("127.0.0.1:12160", "9.0.0-beta.2")
        assert (await client.store(1)).id == 1
        with pytest.raises(PdRefused, match="invalid store ID 987654"):
            await client.store(987654)
        assert len(await client.regions(b"", b"")) == 62
        before = 470735512354684928
        assert await client.gc_state() == GcState(before, {})
        await client.hold("rec-b", 3600, 470735670025912323)
        assert await client.gc_state() == GcState(before, {"rec-b": 470735670025912323})
        with pytest.raises(StartBeforeGc, match=f"safe point {before}"):
            await client.hold("rec-c", 3600, 1)
        for name in ("rec-b", "rec-b", "rec-c"):
            await client.release(name)
        assert await client.tso() == 1795714072962 << 18 | 4
        assert set((await client.healthy()).values()) == {"SERVING"}

    pd = recorded_pd()
    recorded = {request for path, _, request, _ in exchanges() if path == "/pdpb.PD/GetGCState"}
    _, calls = with_pd(pd, use)
    assert {request for path, request in calls if path == "/pdpb.PD/GetGCState"} < recorded
    scanned = [request for path, request in calls if path == "/pdpb.PD/ScanRegions"]
    assert scanned == [pdpb.ScanRegionsRequest(header=pdpb.RequestHeader(cluster_id=CLUSTER), limit=1024)
                       .SerializeToString()]  # fmt: skip


def test_timestamps_are_batched() -> None:
    """Timestamps that are asked for at once are few requests, and all differ and grow."""
    asked = 0

    async def tso(request: bytes, _: Any) -> bytes:
        nonlocal asked
        count = pdpb.TsoRequest.FromString(request).count
        asked += count
        stamp = pdpb.Timestamp(physical=1000, logical=asked)
        return pdpb.TsoResponse(header=HEADER, count=count, timestamp=stamp).SerializeToString()

    async def use(client: PdClient) -> list[int]:
        return [*await asyncio.gather(*(client.tso() for _ in range(3000))), await client.tso()]

    found, calls = with_pd({**ALONE, "/pdpb.PD/Tso": tso}, use)
    assert found == [(1000 << 18) + number for number in range(1, 3002)]
    assert len([path for path, _ in calls if path == "/pdpb.PD/Tso"]) == 4


def test_an_older_pd() -> None:
    """Where PD knows no barriers, GC states and batches of ranges, service safe points and ScanRegions take their
    place, and it is asked once alone. The transcript is written by hand, after the sources of PD 7.5."""
    points = {b"gc_worker": 100}

    async def update(request: bytes, _: Any) -> bytes:
        asked = pdpb.UpdateServiceGCSafePointRequest.FromString(request)
        if asked.TTL <= 0:
            points.pop(asked.service_id, None)
        elif asked.safe_point >= min(points.values()):
            points[asked.service_id] = asked.safe_point
        least = min(points, key=points.__getitem__)
        answer = pdpb.UpdateServiceGCSafePointResponse(header=HEADER, service_id=least, min_safe_point=points[least])
        return answer.SerializeToString()

    whole = metapb.Region(id=4, peers=[metapb.Peer(id=5, store_id=1)])
    scan = pdpb.ScanRegionsResponse(header=HEADER, region_metas=[whole], leaders=whole.peers)
    newer = ("SetGCBarrier", "DeleteGCBarrier", "GetGCState", "BatchScanRegions")

    async def use(client: PdClient) -> None:
        await client.hold("tidegate-f", 60, 150)
        points[b"gc_worker"] = 200
        assert await client.gc_state() == GcState(150, {"tidegate-f": 150})
        await client.hold("tidegate-f", 60, 180)
        await client.release("tidegate-f")
        with pytest.raises(StartBeforeGc, match="ts 180: the safe point is 200"):
            await client.hold("tidegate-f", 60, 180)
        await client.check_kept(200)
        with pytest.raises(HistoryLost, match="200, above ts 199"):
            await client.check_kept(199)
        for _ in range(2):
            assert [one.leader.id for one in await client.regions(b"", b"")] == [5]

    pd = {**ALONE, "/pdpb.PD/UpdateServiceGCSafePoint": update, "/pdpb.PD/ScanRegions": always(scan)}
    _, calls = with_pd({**pd, **{f"/pdpb.PD/{name}": UNSUPPORTED for name in newer}}, use)
    paths = [path.rpartition("/")[2] for path, _ in calls]
    assert [paths.count(name) for name in newer] == [1, 1, 1, 1]
    assert points == {b"gc_worker": 200}


def test_another_leader() -> None:
    """A leader that leads no more, and one that is gone, is looked for among the members, and the call is answered."""
    not_leader = pdpb.GetStoreResponse(
        header=pdpb.ResponseHeader(cluster_id=CLUSTER, error=pdpb.Error(type=pdpb.UNKNOWN, message="not leader"))
    )
    fine = pdpb.GetStoreResponse(header=HEADER, store=metapb.Store(id=1))
    other = pdpb.Member(name="pd-1", client_urls=["http://pd-1.peer:2379"])

    async def run() -> list[list[str]]:
        second = Scripted({"/pdpb.PD/GetStore": always(fine)})
        async with serving(second) as second_at:
            moved = pdpb.GetMembersResponse(header=HEADER, members=[MEMBER, other], leader=other)
            first = Scripted(
                {
                    "/pdpb.PD/GetMembers": in_turn(always(MEMBERS), always(moved)),
                    "/pdpb.PD/GetStore": in_turn(always(not_leader)),
                }
            )
            async with serving(first) as first_at:
                address = ClusterAddress(("127.0.0.1:1", first_at), {ADVERTISED: first_at, "pd-1.peer:2379": second_at})
                client = PdClient(address, patience_s=10)
                try:
                    assert (await client.store(1)).id == 1
                finally:
                    await client.close()
            return [[path.rpartition("/")[2] for path, _ in server.calls] for server in (first, second)]

    assert asyncio.run(run()) == [["GetMembers", "GetStore", "GetMembers"], ["GetStore"]]


async def a_ts(client: PdClient) -> Any:
    return await client.tso()


async def regions(client: PdClient) -> Any:
    return await client.regions(b"a", b"b")


async def stores(client: PdClient) -> Any:
    return await client.stores()


async def silent(_: bytes, __: Any) -> None:
    """Say nothing."""


async def asleep(_: bytes, __: Any) -> bytes:
    await asyncio.sleep(60)
    return b""


def tso_answer(count: int, physical: int, logical: int) -> Answer:
    stamp = pdpb.Timestamp(physical=physical, logical=logical)
    return always(pdpb.TsoResponse(header=HEADER, count=count, timestamp=stamp))


OTHER = pdpb.ResponseHeader(cluster_id=12345)
NO_LEADER = pdpb.GetMembersResponse(header=HEADER, members=[MEMBER])
HOLE = pdpb.Region(region=metapb.Region(id=1, start_key=b"aa", peers=[metapb.Peer(id=2)]), leader=metapb.Peer(id=2))
LEADERLESS = pdpb.Region(region=metapb.Region(id=1, peers=[metapb.Peer(id=2)]))
NOT_LEADER = refusing(grpc.StatusCode.UNKNOWN, "requested pd is not leader of cluster")


@pytest.mark.parametrize(
    ("answers", "use", "error", "said"),
    [
        ({"GetMembers": always(NO_LEADER)}, stores, ClusterUnavailable, "no leader"),
        ({"GetMembers": always(pdpb.GetMembersResponse(header=OTHER))}, stores, ClusterMismatch, "12345"),
        ({"GetMembers": asleep}, stores, ClusterUnavailable, "host-mapping=127.0.0.1:HOST"),
        ({"GetMembers": UNSUPPORTED}, stores, ClusterUnavailable, "UNIMPLEMENTED"),
        ({"GetAllStores": always(pdpb.GetAllStoresResponse(header=OTHER))}, stores, ClusterMismatch, "12345"),
        ({"GetAllStores": always(pdpb.GetAllStoresResponse())}, stores, ClusterMismatch, "cluster 0"),
        ({"GetAllStores": NOT_LEADER}, stores, ClusterUnavailable, r"[0-9] s: UNKNOWN: requested pd is not leader"),
        ({"GetAllStores": asleep}, stores, ClusterUnavailable, f"{ADVERTISED}, reached as 127.0.0.1:"),
        ({"GetAllStores": UNSUPPORTED}, stores, PdRefused, "UNIMPLEMENTED"),
        ({"Tso": tso_answer(0, 0, 0)}, a_ts, ClusterUnavailable, "answers 0 timestamps"),
        ({"Tso": in_turn(tso_answer(1, 10, 9), tso_answer(1, 10, 8))}, a_ts, TsoFellBack, "clock fell back"),
        ({"Tso": silent}, a_ts, ClusterUnavailable, "silent"),
        ({"Tso": NOT_LEADER}, a_ts, ClusterUnavailable, "not leader"),
        ({"Tso": refusing(grpc.StatusCode.FAILED_PRECONDITION, "mismatch cluster id, need 1 but got 2")}, a_ts,
         ClusterMismatch, "need 1"),
        ({"BatchScanRegions": always(pdpb.BatchScanRegionsResponse(header=HEADER))}, regions, ClusterUnavailable,
         "no region at key 61"),
        ({"BatchScanRegions": always(pdpb.BatchScanRegionsResponse(header=HEADER, regions=[HOLE]))}, regions,
         ClusterUnavailable, "no region before that of 6161"),
        ({"BatchScanRegions": always(pdpb.BatchScanRegionsResponse(header=HEADER, regions=[LEADERLESS]))}, regions,
         ClusterUnavailable, "region 1 has no leader"),
    ],
)  # fmt: skip
def test_hostile_answers(
    answers: dict[str, Answer], use: Callable[[PdClient], Awaitable[Any]], error: type[TidegateError], said: str
) -> None:
    """A PD of another cluster, without leader or regions, silent, repeating itself or going backwards ends in an error
    that says so, and never in a hang."""
    pd = {**ALONE, **{f"/pdpb.PD/{name}": answer for name, answer in answers.items()}}

    async def asked(client: PdClient) -> None:
        for _ in range(2):
            await use(client)

    with pytest.raises(error) as found:
        with_pd(pd, asked, cluster_id=CLUSTER, patience_s=0.3)
    if not re.search(said, str(found.value)):  # a busy machine took longer for each call than the client had for all
        with pytest.raises(error) as found:
            with_pd(pd, asked, cluster_id=CLUSTER)
    assert re.search(said, str(found.value))
    assert isinstance(found.value, ClusterUnavailable) == (error is ClusterUnavailable)


def test_a_client_closes_amid_a_call() -> None:
    """Whoever waits for a timestamp while the client is closed waits no longer."""

    async def use(client: PdClient) -> None:
        waiting = [asyncio.ensure_future(client.tso()) for _ in range(3)]
        await asyncio.sleep(0.05)
        waiting.append(asyncio.ensure_future(client.tso()))
        await asyncio.sleep(0)
        await client.close()
        done, _ = await asyncio.wait(waiting, timeout=60)
        assert all(each.cancelled() for each in done)
        assert len(done) == 4

    with_pd({**ALONE, "/pdpb.PD/Tso": silent}, use, patience_s=60)


def test_client_certificates(tmp_path: Any) -> None:
    """With TLS a PD that wants a certificate of the client gets it; without one the error names the address."""
    for name in ("ca", "server", "client"):
        make_certificate(tmp_path, name, None if name == "ca" else "ca")
    pem = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    credentials = grpc.ssl_server_credentials(
        [(pem["server.key"], pem["server.crt"])], pem["ca.crt"], require_client_auth=True
    )
    answers = health.HealthCheckResponse(status=health.HealthCheckResponse.SERVING)

    async def run(**files: str) -> dict[str, str]:
        server = grpc.aio.server(options=SERVER_OPTIONS)
        server.add_generic_rpc_handlers((Scripted({**ALONE, "/grpc.health.v1.Health/Check": always(answers)}),))
        port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        mapping = f"{ADVERTISED}:127.0.0.1:{port}"
        address = cluster_address(f"https://127.0.0.1:{port}", host_mapping=mapping, ca_path=files["ca"], **{
            f"{kind}_path": path for kind, path in files.items() if kind != "ca"})  # fmt: skip
        client = PdClient(address, patience_s=1, call_timeout_s=10)
        try:
            return await client.healthy()
        finally:
            await client.close()
            await server.stop(None)

    shown = {"cert": str(tmp_path / "client.crt"), "key": str(tmp_path / "client.key")}
    assert asyncio.run(run(ca=str(tmp_path / "ca.crt"), **shown)) == {f"http://{ADVERTISED}": "SERVING"}
    with pytest.raises(ClusterUnavailable, match=r"127\.0\.0\.1"):
        asyncio.run(run(ca=str(tmp_path / "ca.crt")))


def test_batches_of_ranges() -> None:
    """What BatchScanRegions of a real PD answered covers the ranges that were asked for, up to its limit."""
    for path, _, request, answer in exchanges():
        if path == "/pdpb.PD/BatchScanRegions":
            found = pdpb.BatchScanRegionsResponse.FromString(answer).regions
            limit = pdpb.BatchScanRegionsRequest.FromString(request).limit
            for each in pdpb.BatchScanRegionsRequest.FromString(request).ranges:
                _, goes_on = run_of(found, each.start_key, each.end_key)
                assert goes_on is None or len(found) == limit


def test_sizes_of_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a real PD reported over HTTP is read, page by page; what is no such report is an error."""
    body = json.loads((DATA / "regions-key.json").read_text())
    end = bytes.fromhex(body["regions"][-1]["end_key"])
    pages = [body, {"count": 0, "regions": []}, {"count": 0, "regions": None}]
    asked: list[str] = []

    def report(_client: PdClient, _leader: str, name: str) -> dict[str, Any]:
        asked.append(name)
        return pages.pop(0)

    monkeypatch.setattr(PdClient, "_report_of", report)

    async def use(client: PdClient) -> None:
        sizes = await client.sizes(b"", b"")
        assert {number: (each.keys, each.mebibytes) for number, each in sizes.items()} == dict.fromkeys(
            (26, 28, 30), (0, 1)
        )
        with pytest.raises(ClusterUnavailable, match="sizes of regions"):
            await client.sizes(b"", b"")

    with_pd(ALONE, use)
    keys = [parse_qs(path.partition("?")[2], keep_blank_values=True, encoding="latin-1")["key"] for path in asked]
    assert keys == [[""], [end.decode("latin-1")], [""]]
