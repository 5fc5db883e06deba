"""What answers of PD mean: tables of answers, and the recorded ones."""

import random
from itertools import pairwise

import grpc
import pytest

from tests.tikv.scripted import exchanges
from tidegate.model.errors import ClusterMismatch, ClusterUnavailable, PdRefused, StartBeforeGc, TsoFellBack
from tidegate.model.tso import compose
from tidegate.tikv.pd_rules import (
    Again,
    check_header,
    check_held,
    check_status,
    choose,
    first_ts,
    run_of,
    with_leaders,
)
from tidegate.tikv.stubs import metapb_pb2 as metapb
from tidegate.tikv.stubs import pdpb_pb2 as pdpb

CLUSTER = 7712533096719751607
A, B = "http://a:2379", "http://b:2379"


def members(cluster: int = 1, leader: str = A) -> pdpb.GetMembersResponse:
    own = [pdpb.Member(client_urls=[url]) for url in (A, B)]
    chosen = pdpb.Member(client_urls=[leader]) if leader else None
    return pdpb.GetMembersResponse(header=pdpb.ResponseHeader(cluster_id=cluster), members=own, leader=chosen)


@pytest.mark.parametrize(
    ("answers", "known", "leader"),
    [
        ({A: members()}, 0, A),
        ({A: members(), B: members()}, 1, A),
        ({A: "UNAVAILABLE", B: members(leader=B)}, 1, B),
        ({A: members(leader=""), B: members(leader=B)}, 0, B),
        ({A: members(leader="")}, 0, Again),
        ({A: "UNAVAILABLE", B: "DEADLINE"}, 0, Again),
        ({A: members(cluster=0)}, 0, Again),
        ({A: members(), B: members(cluster=2)}, 0, ClusterMismatch),
        ({A: members(cluster=2)}, 1, ClusterMismatch),
    ],
)
def test_choose(answers: dict, known: int, leader: str | type[Exception]) -> None:
    """Any answer of the same cluster that names a leader is enough; two clusters are an error; else it is asked again,
    with the reason of each URL."""
    if isinstance(leader, str):
        chosen = choose(answers, known)
        assert (chosen.leader, chosen.cluster_id, chosen.urls) == (leader, 1, (A, B))
        return
    with pytest.raises(leader) as refused:
        choose(answers, known)
    assert leader is ClusterMismatch or all(url in str(refused.value) for url in answers)


@pytest.mark.parametrize(
    ("code", "details", "error"),
    [
        ("UNAVAILABLE", "connection refused", Again),
        ("DEADLINE_EXCEEDED", "", Again),
        ("UNKNOWN", "requested pd is not leader of cluster", Again),
        ("UNKNOWN", "[PD:server:ErrServerNotStarted]server not started", Again),
        ("UNIMPLEMENTED", "unknown method", PdRefused),
        ("PERMISSION_DENIED", "certificate", PdRefused),
    ],
)
def test_statuses(code: str, details: str, error: type[Exception]) -> None:
    """A status that may pass is asked again, any other ends the call; the message has PD's words."""
    found = check_status(grpc.StatusCode[code], details)
    assert type(found) is error
    assert details in str(found)


def test_recorded_refusals() -> None:
    """What a real PD refuses is another cluster, or final."""
    found = {(note, type(check_status(grpc.StatusCode[answer[0]], answer[1])))
             for path, note, _, answer in exchanges() if isinstance(answer, tuple)}  # fmt: skip
    assert found == {
        ("", PdRefused),
        ("", ClusterMismatch),
        ("wrong cluster id", ClusterMismatch),
        ("read as gc_worker", PdRefused),
        ("empty id", PdRefused),
    }


def test_recorded_headers() -> None:
    """Headers of a real PD: one cluster, and two refusals in the header of an answer."""
    refused = []
    for path, note, _, answer in exchanges():
        kind = getattr(pdpb, path.rpartition("/")[2] + "Response", None)
        if isinstance(answer, bytes) and kind:
            try:
                check_header(kind.FromString(answer).header, CLUSTER)
            except ClusterUnavailable as fault:
                raise AssertionError(path) from fault
            except (PdRefused, StartBeforeGc) as fault:
                refused.append((note, type(fault)))
    assert refused == [("unknown store", PdRefused), ("below the txn safe point?", StartBeforeGc)] * 2


@pytest.mark.parametrize(
    ("kind", "message", "error"),
    [
        (pdpb.UNKNOWN, "the server is not leader", Again),
        (pdpb.NOT_BOOTSTRAPPED, "cluster is not bootstrapped", PdRefused),
        (pdpb.OK, "", None),
    ],
)
def test_headers(kind: int, message: str, error: type[Exception] | None) -> None:
    """An error in a header is one; another cluster's answer is refused whatever it says."""
    header = pdpb.ResponseHeader(cluster_id=1, error=pdpb.Error(type=kind, message=message))
    with pytest.raises(ClusterMismatch):
        check_header(header, 2)
    if error is None:
        check_header(header, 1)
        return
    with pytest.raises(error, match=message):
        check_header(header, 1)


@pytest.mark.parametrize(
    ("count", "physical", "logical", "asked", "last", "first"),
    [
        (3, 1000, 5, 3, 0, compose(1000, 3)),
        (1, 1000, 4, 1, compose(1000, 3), compose(1000, 4)),
        (1, 1000, 4, 1, compose(1000, 4), TsoFellBack),
        (3, 1000, 5, 3, compose(1000, 3), TsoFellBack),
        (1, 999, 9, 1, compose(1000, 1), TsoFellBack),
        (2, 1000, 5, 3, 0, Again),
        (0, 0, 0, 1, 0, Again),
        (3, 1000, 2, 3, 0, Again),
        (1, 1000, 1 << 18, 1, 0, Again),
    ],
)
def test_first_ts(
    count: int, physical: int, logical: int, *, asked: int, last: int, first: int | type[Exception]
) -> None:
    """An answer names the last ts of its batch; all of them are above the one before, or the clock fell back."""
    answer = pdpb.TsoResponse(count=count, timestamp=pdpb.Timestamp(physical=physical, logical=logical))
    if isinstance(first, int):
        assert first_ts(answer, asked, last) == first
        return
    with pytest.raises(first):
        first_ts(answer, asked, last)


def test_recorded_timestamps() -> None:
    """Batches of a real PD follow each other without a fall back."""
    last = 0
    for path, _, request, answer in exchanges():
        if path == "/pdpb.PD/Tso" and isinstance(answer, bytes):
            count = pdpb.TsoRequest.FromString(request).count
            first = first_ts(pdpb.TsoResponse.FromString(answer), count, last)
            assert first > last
            last = first + count - 1
    assert last


def region(number: int, start: bytes, end: bytes, leader: int = 1) -> pdpb.Region:
    peers = [metapb.Peer(id=number, store_id=1)]
    chosen = metapb.Peer(id=leader and number, store_id=1)
    return pdpb.Region(region=metapb.Region(id=number, start_key=start, end_key=end, peers=peers), leader=chosen)


WHOLE = [region(1, b"", b"c"), region(2, b"c", b"f"), region(3, b"f", b"")]


@pytest.mark.parametrize(
    ("answer", "span", "ids", "goes_on"),
    [
        (WHOLE, (b"", b""), [1, 2, 3], None),
        (WHOLE[::-1], (b"", b""), [1, 2, 3], None),
        (WHOLE, (b"d", b"e"), [2], None),
        (WHOLE, (b"c", b"f"), [2], None),
        (WHOLE, (b"b", b"g"), [1, 2, 3], None),
        (WHOLE[:2], (b"", b""), [1, 2], b"f"),
        ([WHOLE[0], WHOLE[2]], (b"", b""), [1], b"c"),
        ([WHOLE[0], region(2, b"c", b"f", 0), WHOLE[2]], (b"", b""), [1], b"c"),
        ([], (b"", b""), "no region", None),
        (WHOLE[1:], (b"", b""), "no region before that of 63", None),
        (WHOLE[:1], (b"x", b""), "no region at key 78", None),
        ([region(1, b"", b"c", 0)], (b"", b""), "region 1 has no leader", None),
        ([pdpb.Region()], (b"", b""), "region 0 has no leader", None),
    ],
)
def test_run_of(
    answer: list[pdpb.Region], span: tuple[bytes, bytes], ids: list[int] | str, goes_on: bytes | None
) -> None:
    """The leftmost run that covers the range ends at a hole or a region without leader; without one it is asked
    again."""
    if isinstance(ids, str):
        with pytest.raises(Again, match=ids):
            run_of(answer, *span)
        return
    run, position = run_of(answer, *span)
    assert ([one.region.id for one in run], position) == (ids, goes_on)


@pytest.mark.parametrize("seed", range(20))
def test_runs_cover_a_range(seed: int) -> None:
    """Pages that lose, repeat and reorder regions end in runs that together cover the range once, without a hole."""
    chance = random.Random(seed)
    keys = [b"", *sorted({chance.randbytes(2) for _ in range(30)}), b""]
    regions = [region(number, *pair) for number, pair in enumerate(pairwise(keys), 1)]
    start, end = sorted(chance.sample(keys[1:-1], 2))
    covering, position = [], start
    while position is not None:
        page = chance.sample(regions, chance.randint(1, len(regions)))
        try:
            run, position = run_of([*page, *page[:2]], position, end)
        except Again:
            continue
        covering += run
    assert covering[0].region.start_key <= start
    assert all(left.region.end_key == right.region.start_key for left, right in pairwise(covering))
    assert covering[-1].region.end_key >= end
    assert covering[-1].region.start_key < end


def test_recorded_regions() -> None:
    """All regions of the recorded cluster cover all keys, in both forms of an answer."""
    whole = 0
    for path, _, request, answer in exchanges():
        if path == "/pdpb.PD/ScanRegions" and pdpb.ScanRegionsRequest.FromString(request).limit == 1024:
            found = pdpb.ScanRegionsResponse.FromString(answer)
            assert run_of(found.regions, b"", b"") == (list(found.regions), None)
            del (newer := pdpb.ScanRegionsResponse.FromString(answer)).regions[:]
            assert with_leaders(newer) == list(found.regions)
            whole += 1
    assert whole == 2


@pytest.mark.parametrize(("least", "ts", "held"), [(5, 5, True), (4, 5, True), (6, 5, False), (0, 5, True)])
def test_service_safe_points(least: int, ts: int, *, held: bool) -> None:
    """PD holds GC at a ts if the least safe point is not above it: one that is below is silently not set."""
    answer = pdpb.UpdateServiceGCSafePointResponse(min_safe_point=least)
    if held:
        check_held(answer, ts)
        return
    with pytest.raises(StartBeforeGc, match=f"ts {ts}: the safe point is {least}"):
        check_held(answer, ts)
