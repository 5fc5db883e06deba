"""What answers of PD mean: who leads, what to do about a refusal, which regions cover a range, whether GC is held.

    answers of members  ─► choose      Members, or why there is none
    gRPC code, header   ─► check_*     nothing, `Again` with a reason, or the error
    a page of regions   ─► run_of      the run without holes from a key on, each region with a leader
    Tso                 ─► first_ts    the first ts of a batch, above all before

Source: pd client (service discovery, tso), kvproto pdpb; recorded answers of PD in tests/data/tikv.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import grpc
import msgspec

from tidegate.model.errors import (
    ClusterMismatch,
    ClusterUnavailable,
    PdRefused,
    StartBeforeGc,
    TidegateError,
    TsoFellBack,
    redacted,
)
from tidegate.model.tso import LOGICAL_BITS
from tidegate.tikv.stubs import pdpb_pb2 as pdpb

BATCH: Final = 1 << 10
"""Largest number of timestamps in a request; PD refuses what does not fit into one millisecond's 2^18."""
_BEHIND: Final = "ErrGCBarrierTSBehindTxnSafePoint"
_RETRIED: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
_NO_LEADER: Final = ("not leader", "no leader", "notleader", "server not started", "not served")


class Again(ClusterUnavailable):
    """An answer after which members are asked for and the call is repeated."""


class Members(msgspec.Struct, frozen=True):
    """A cluster, the URL of PD's leader and those of all its members; `version` is the leader's, if it reports it."""

    cluster_id: int
    leader: str
    urls: tuple[str, ...]
    version: str = ""


def choose(answers: Mapping[str, pdpb.GetMembersResponse | str], cluster_id: int = 0) -> Members:
    """Return the members by what each asked URL answered, or why it did not.

    Raises ClusterMismatch if URLs belong to several clusters or to another than `cluster_id`, Again if none of them
    names a leader.
    """
    reasons = []
    chosen: Members | None = None
    for url, answer in answers.items():
        if isinstance(answer, str):
            reasons.append(f"{url}: {answer}")
            continue
        own = answer.header.cluster_id
        if own == 0:
            reasons.append(f"{url}: cluster id 0, the cluster is not bootstrapped")
            continue
        if cluster_id and own != cluster_id:
            raise ClusterMismatch(
                f"PD at {url} belongs to cluster {own}, not to {cluster_id}: give URLs of one cluster, the one that "
                "the feed began with"
            )
        cluster_id = own
        if not answer.leader.client_urls:
            reasons.append(f"{url}: no leader")
        elif chosen is None:
            urls = tuple(dict.fromkeys(each for member in answer.members for each in member.client_urls))
            chosen = Members(own, answer.leader.client_urls[0], urls, answer.leader.binary_version)
    if chosen is None:
        raise Again("PD has no leader: " + "; ".join(reasons))
    return chosen


def check_status(code: grpc.StatusCode, details: str) -> TidegateError:
    """Return the error of a call that ended with a gRPC status."""
    if code is grpc.StatusCode.FAILED_PRECONDITION and "mismatch cluster id" in details:
        return ClusterMismatch(f"PD says: {details}; give the URLs of the cluster that the feed began with")
    if code in _RETRIED or _says_no_leader(details):
        return Again(f"{code.name}: {details}")
    return PdRefused(f"PD refuses: {code.name}: {details}")


def check_header(header: pdpb.ResponseHeader, cluster_id: int) -> None:
    """Raise what the header of an answer says."""
    if header.cluster_id != cluster_id:
        raise ClusterMismatch(
            f"PD answers for cluster {header.cluster_id}, not for {cluster_id}: give URLs of one cluster, the one that "
            "the feed began with"
        )
    if header.error.type == pdpb.OK:
        return
    message = header.error.message
    if _says_no_leader(message):
        raise Again(message)
    if _BEHIND in message:
        raise StartBeforeGc(f"PD cannot hold garbage collection there: {message}")
    raise PdRefused(f"PD refuses: {pdpb.ErrorType.Name(header.error.type)}: {message}")


def _says_no_leader(text: str) -> bool:
    return any(words in text.lower() for words in _NO_LEADER)


def first_ts(answer: pdpb.TsoResponse, count: int, last: int) -> int:
    """Return the first of `count` timestamps; an answer names the last one. Raises TsoFellBack unless it is above
    `last`."""
    physical, logical = answer.timestamp.physical, answer.timestamp.logical
    if answer.count != count or logical < count or physical <= 0 or logical >= 1 << LOGICAL_BITS:
        raise Again(f"PD answers {answer.count} timestamps up to {physical} ms, {logical}, in place of {count}")
    first = (physical << LOGICAL_BITS) + logical - count + 1
    if first <= last:
        raise TsoFellBack(
            f"PD gives ts {first} after {last}: its clock fell back; restore PD's time and data before you resume"
        )
    return first


def run_of(answer: Iterable[pdpb.Region], start: bytes, end: bytes) -> tuple[list[pdpb.Region], bytes | None]:
    """Return the leftmost regions that cover [start, end) without a hole, and the key at which they end; None if they
    cover all. Keys are encoded, an empty `end` is no bound. Raises Again if the first region is missing or has no
    leader."""
    run: list[pdpb.Region] = []
    position = start
    reason = "no region"
    for region in sorted(answer, key=lambda region: region.region.start_key):
        meta = region.region
        if meta.end_key and meta.end_key <= position:
            continue
        if meta.start_key > position:
            reason = f"no region before that of {redacted(meta.start_key.hex())}"
            break
        if not region.leader.id or not meta.peers:
            reason = f"region {meta.id} has no leader"
            break
        run.append(region)
        position = meta.end_key
        if not position or (end and position >= end):
            return run, None
    if not run:
        raise Again(f"PD names {reason} at key {redacted(start.hex() or 'the first')}")
    return run, position


def with_leaders(answer: pdpb.ScanRegionsResponse) -> Sequence[pdpb.Region]:
    """Return the regions of an answer in the form of newer PDs; older ones fill two lists."""
    if answer.regions or not answer.region_metas:
        return answer.regions
    pairs = zip(answer.region_metas, answer.leaders, strict=False)
    return [pdpb.Region(region=region, leader=leader) for region, leader in pairs]


def check_held(answer: pdpb.UpdateServiceGCSafePointResponse, ts: int) -> None:
    """Raise StartBeforeGc unless PD holds GC at `ts`: it answers the least safe point of all, and silently leaves out
    one that is below."""
    if answer.min_safe_point > ts:
        raise StartBeforeGc(
            f"PD cannot hold garbage collection at ts {ts}: the safe point is {answer.min_safe_point}; start above it, "
            "with a new copy of the data"
        )
