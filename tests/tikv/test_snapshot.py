"""Reads at one timestamp: recorded pages, and what a store answers when a region or a key is not ready."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.tikv.reading import TS, Bounds, Cluster, recorded_scans, run
from tidegate.model.errors import ClusterUnavailable, HistoryLost, KeyIsLocked, ProtocolError
from tidegate.tikv.snapshot import ReadOptions, Snapshot
from tidegate.tikv.stubs import errorpb_pb2 as errorpb
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb
from tidegate.tikv.stubs import pdpb_pb2 as pdpb

ROWS = {b"t%03d" % number: b"v%d" % number for number in range(40)}
HALVES: list[Bounds] = [(10, b"", b"t020"), (20, b"t020", b"")]
Pages = list[list[tuple[bytes, bytes]]]


def answer(request: kvrpcpb.ScanRequest, rows: dict[bytes, bytes] = ROWS) -> kvrpcpb.ScanResponse:
    """A page of rows, as a store gives it."""
    inside = sorted(key for key in rows if request.start_key <= key < request.end_key)[: request.limit]
    return kvrpcpb.ScanResponse(pairs=[kvrpcpb.KvPair(key=key, value=rows[key]) for key in inside])


def locked(key: bytes, start_ts: int = TS - 5) -> kvrpcpb.KeyError:
    return kvrpcpb.KeyError(locked=kvrpcpb.LockInfo(key=key, primary_lock=b"t000", lock_version=start_ts, lock_ttl=1))


class Resolver:
    """Remembers the locks that it is given, and calls `then`."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.seen: list[bytes] = []
        self.then = then

    async def __call__(self, locks: Sequence[kvrpcpb.LockInfo]) -> None:
        self.seen += [lock.key for lock in locks]
        self.then()


def read(
    cluster: Cluster, resolve: Resolver | None = None, bounds: tuple[bytes, bytes] = (b"t", b"u"), **options: Any
) -> Pages:
    """The pages of a range."""

    async def use() -> Pages:
        async with cluster.pd() as pd:
            snapshot = Snapshot(pd, TS, resolve or Resolver(), ReadOptions(**options))
            return [page async for page in snapshot.pages(*bounds)]

    pages: Pages = run(use)
    return pages


def test_the_recorded_pages_are_read_with_the_recorded_requests() -> None:
    """A recorded store is asked for the same pages as a plain client asked it for, and nothing of them is lost."""
    for name, bounds in (("meta-mid", (b"m", b"n")), ("user-mid", None)):
        scans = list(recorded_scans(name))
        edges = [(request.context.region_id, request.start_key, request.end_key) for request, _ in scans]
        regions: dict[int, Bounds] = {}
        for region_id, start, end in edges:
            regions.setdefault(region_id, (region_id, start, end))
        cluster = Cluster(list(regions.values()))
        answers = {(each.context.region_id, each.start_key, each.end_key): found for each, found in scans}
        cluster.scan = lambda request, answers=answers: answers[  # type: ignore[misc]
            request.context.region_id, request.start_key, request.end_key
        ]
        pages = read(cluster, bounds=bounds or (edges[0][1], edges[-1][2]))
        expected = [(pair.key, pair.value) for _, found in scans for pair in found.pairs]
        assert [pair for page in pages for pair in page] == expected
        asked = [request for request in cluster.requests if isinstance(request, kvrpcpb.ScanRequest)]
        assert [(each.context.region_id, each.start_key, each.end_key) for each in asked] == edges
        assert {(each.version, each.limit) for each in asked} == {(each.version, each.limit) for each, _ in scans}


def test_pages_end_at_regions_and_at_their_limit() -> None:
    """A page has the pairs of one region, at most as many as the limit."""
    cluster = Cluster(HALVES)
    cluster.scan = answer
    pages = read(cluster, page_pairs=8)
    assert [pair for page in pages for pair in page] == sorted(ROWS.items())
    assert [len(page) for page in pages] == [8, 8, 4, 8, 8, 4]


def test_requests_say_how_they_are_served() -> None:
    """Priority, replica, resource group and source of a request are in its context."""
    cluster = Cluster([(10, b"", b"")])
    cluster.scan = answer
    (page,) = read(cluster, resource_group="rg", replica_read="follower", request_source="external_x")
    assert page == sorted(ROWS.items())
    (context,) = [each.context for each in cluster.requests if isinstance(each, kvrpcpb.ScanRequest)]
    assert (context.priority, context.not_fill_cache, context.replica_read) == (kvrpcpb.Low, True, True)
    assert (context.peer.id, context.region_id, context.region_epoch.version) == (12, 10, 1)
    assert context.resource_control_context.resource_group_name == "rg"
    assert context.request_source == "external_x"


@pytest.mark.parametrize("trouble", ["", "moved", "locked"])
def test_the_last_key_is_read_backwards(trouble: str) -> None:
    """The last key of a range is that of its last region that has one, asked for alone; a locked one counts."""
    cluster, moved = Cluster([(10, b"", b"t020"), (20, b"t020", b"t0305"), (30, b"t0305", b"")]), trouble == "moved"

    def scan(request: kvrpcpb.ScanRequest) -> kvrpcpb.ScanResponse:
        nonlocal moved
        if moved:
            moved = False
            cluster.regions = [(11, b"", b"t0305"), (30, b"t0305", b"")]
            return kvrpcpb.ScanResponse(region_error=errorpb.Error(region_not_found=errorpb.RegionNotFound()))
        assert (request.reverse, request.key_only, request.limit) == (True, True, 1)
        inside = sorted(key for key in ROWS if request.end_key <= key < request.start_key)
        pairs = [
            kvrpcpb.KvPair(error=locked(key)) if trouble == "locked" else kvrpcpb.KvPair(key=key) for key in inside
        ]
        return kvrpcpb.ScanResponse(pairs=pairs[-1:])

    cluster.scan = scan

    async def use() -> list[bytes | None]:
        async with cluster.pd() as pd:
            snapshot = Snapshot(pd, TS)
            return [await snapshot.last_key(*bounds) for bounds in ((b"t", b"u"), (b"t01", b"t0308"), (b"u", b"v"))]

    assert run(use) == [b"t039", b"t030", None]


def test_an_empty_range_has_no_pages() -> None:
    """A range without keys ends."""
    assert read(Cluster(HALVES)) == []


@pytest.mark.parametrize("error", ["not_leader", "epoch_not_match", "region_not_found", "server_is_busy", "message"])
def test_a_region_that_is_elsewhere_is_read_again_from_the_key_reached(error: str) -> None:
    """After an error of a region no pair is lost, and none is read twice."""
    cluster = Cluster([(10, b"", b"")])
    told: list[bytes] = []

    def scan(request: kvrpcpb.ScanRequest) -> kvrpcpb.ScanResponse:
        if request.context.region_id == 10 and request.start_key > b"t010":
            told.append(request.start_key)
            cluster.regions = [(11, b"", b"t020"), (30, b"t020", b"t030"), (31, b"t030", b"")]
            found = errorpb.Error(message="x") if error == "message" else errorpb.Error()
            if error != "message":
                getattr(found, error).SetInParent()
            return kvrpcpb.ScanResponse(region_error=found)
        return answer(request)

    cluster.scan = scan
    pages = read(cluster, page_pairs=16)
    assert [pair for page in pages for pair in page] == sorted(ROWS.items())
    assert told == [b"t015\0"]


@pytest.mark.parametrize("trouble", ["", "away", "elsewhere"])
def test_pd_is_asked_once_where_a_store_is(trouble: str) -> None:
    """Pages and regions of one store need one answer of PD; another one follows where the store does not answer, or has
    not the region."""
    cluster = Cluster(HALVES)

    def scan(request: kvrpcpb.ScanRequest) -> kvrpcpb.ScanResponse:
        nonlocal trouble
        if trouble and request.start_key > b"t020":
            before, trouble = trouble, ""
            if before == "away":
                raise ConnectionError
            return kvrpcpb.ScanResponse(region_error=errorpb.Error(store_not_match=errorpb.StoreNotMatch()))
        return answer(request)

    cluster.scan, asked = scan, 2 if trouble else 1
    assert [pair for page in read(cluster, page_pairs=4) for pair in page] == sorted(ROWS.items())
    assert sum(isinstance(request, pdpb.GetStoreRequest) for request in cluster.requests) == asked


def test_a_locked_pair_is_resolved_and_read_alone() -> None:
    """A locked key has its value as of the ts once its lock is resolved, or none."""
    cluster = Cluster(HALVES)
    resolver = Resolver()

    def scan(request: kvrpcpb.ScanRequest) -> kvrpcpb.ScanResponse:
        found = answer(request)
        for pair in found.pairs:
            if pair.key in {b"t003", b"t007"}:
                pair.CopyFrom(kvrpcpb.KvPair(error=locked(pair.key)))
        return found

    def get(request: kvrpcpb.GetRequest) -> kvrpcpb.GetResponse:
        assert request.version == TS
        if request.key not in resolver.seen:
            return kvrpcpb.GetResponse(error=locked(request.key))
        return kvrpcpb.GetResponse(not_found=True) if request.key == b"t007" else kvrpcpb.GetResponse(value=b"new")

    cluster.scan, cluster.get = scan, get
    pages = read(cluster, resolver)
    expected = {**ROWS, b"t003": b"new"}
    del expected[b"t007"]
    assert [pair for page in pages for pair in page] == sorted(expected.items())
    assert resolver.seen == [b"t003", b"t007"]


def test_a_locked_page_is_read_again() -> None:
    """A page that is refused for a lock is read once that is resolved."""
    cluster = Cluster(HALVES)
    resolver = Resolver()
    cluster.scan = lambda request: (
        answer(request) if resolver.seen else kvrpcpb.ScanResponse(error=locked(request.start_key))
    )
    assert [pair for page in read(cluster, resolver) for pair in page] == sorted(ROWS.items())
    assert resolver.seen == [b"t"]


def test_a_live_transaction_is_named_by_key_and_start_ts() -> None:
    """A lock that stays ends the read with its key and start_ts."""
    cluster = Cluster(HALVES)
    cluster.scan = lambda _: kvrpcpb.ScanResponse(error=locked(b"t001"))
    with pytest.raises(KeyIsLocked, match=f"74303031 is locked at ts {TS} .* start_ts {TS - 5}"):
        read(cluster, patience_s=0.2)


def test_a_region_that_stays_away_is_named() -> None:
    """A region without an answer ends the read with its id."""
    cluster = Cluster(HALVES)
    cluster.scan = lambda _: kvrpcpb.ScanResponse(region_error=errorpb.Error(message="is not ready"))
    with pytest.raises(ClusterUnavailable, match=f"region 10 at ts {TS}: is not ready"):
        read(cluster, patience_s=0.2)


def test_collected_versions_are_no_answer() -> None:
    """A ts that PD no longer keeps ends a read before it begins, or when it ends."""
    cluster = Cluster(HALVES)
    cluster.scan, cluster.safe_point = answer, TS + 1
    with pytest.raises(HistoryLost):
        read(cluster)
    assert not any(isinstance(request, kvrpcpb.ScanRequest) for request in cluster.requests)
    cluster.safe_point = 0

    def scan(request: kvrpcpb.ScanRequest) -> kvrpcpb.ScanResponse:
        cluster.safe_point = TS + 1
        return answer(request)

    cluster.scan = scan
    with pytest.raises(HistoryLost):
        read(cluster)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (kvrpcpb.KeyError(abort="GC life time is shorter than transaction duration"), HistoryLost),
        (kvrpcpb.KeyError(abort="no"), ProtocolError),
    ],
)
def test_what_is_no_lock_ends_the_read(error: kvrpcpb.KeyError, raised: type[Exception]) -> None:
    """Errors that no lock explains end the read."""
    cluster = Cluster(HALVES)
    cluster.scan = lambda _: kvrpcpb.ScanResponse(error=error)
    with pytest.raises(raised, match=str(TS)):
        read(cluster)


def test_a_key_outside_of_the_range_is_refused() -> None:
    """A key that was not asked for is an error of the store."""
    cluster = Cluster(HALVES)
    cluster.scan = lambda _: kvrpcpb.ScanResponse(pairs=[kvrpcpb.KvPair(key=b"zz", value=b"")])
    with pytest.raises(ProtocolError, match="7a7a"):
        read(cluster)
