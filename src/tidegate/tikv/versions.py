"""Versions of PD and TiKV: which are accepted, and how each is known.

7.5 … 8.4    read: the sources were compared, no traffic was recorded
8.5 … 9.0    recorded: TiDB 8.5 on PD and TiKV 9.0 beta
others       refused, unless forced

`DIFFERENCES` is what versions that were only read do otherwise than the recorded ones.  No code asks for a version:
each difference is told by an answer, a member or a byte.

Source: pd server/gc_service.go, tikv components/cdc, tidb pkg/meta/model and pkg/util/rowcodec, by their tags.
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from tidegate.model.errors import VersionIncompatible
from tidegate.tikv.stubs import metapb_pb2 as metapb

ACCEPTED: Final = (
    ((7, 5), (8, 5), "read in its sources, not recorded"),
    ((8, 5), (9, 1), "recorded"),
)
"""From a version, below a version, and how it is known."""
ACCEPTED_TEXT: Final = "{}.{} up to, not including, {}.{}".format(*ACCEPTED[0][0], *ACCEPTED[-1][1])
TICDC_VERSION: Final = "8.5.4"
"""Sent in requests of changes; without a version above 4.0.8 TiKV sends no resolved ts."""


class Difference(msgspec.Struct, frozen=True):
    """What the versions of a component from `low` on and below `high` do otherwise, as read, and how that is met."""

    kind: str
    low: tuple[int, int]
    high: tuple[int, int]
    does: str
    met: str


_ANY: Final = (0, 0)
DIFFERENCES: Final = (
    Difference("PD", _ANY, (9, 0), "no GC barriers or state: UNIMPLEMENTED", "service safe points of the same names"),
    Difference("PD", _ANY, (8, 5), "no BatchScanRegions: UNIMPLEMENTED", "ScanRegions, which may answer in two lists"),
    Difference("TiKV", _ANY, (7, 5), "no EventFeedV2: UNIMPLEMENTED", "refused"),
    Difference("TiKV", _ANY, (8, 5), "a heartbeat repeats a PREWRITE without its value", "the first one counts"),
    Difference("TiKV", (8, 4), (8, 6), "flushes of a transaction are numbered, to 8.5.3", "the last one counts"),
    Difference("TiDB", _ANY, (8, 4), "arguments of DDL jobs are lists: job version 1", "both forms are read"),
    Difference("TiDB", _ANY, (8, 4), "checksums of rows have version 0, or 1 from 8.3", "each version is verified"),
    Difference("TiDB", _ANY, (8, 5), "jobs and definitions have fewer members", "an absent one has its default"),
)


def differences(kind: str, version: str) -> list[Difference]:
    """Return what a version that was only read does otherwise; nothing for one that was recorded or is refused."""
    numbers = _numbers(version) if evidence(version).startswith("read") else _ANY
    return [each for each in DIFFERENCES if each.kind == kind and max(each.low, (0, 1)) <= numbers < each.high]


_VERSION: Final = re.compile(r"v?([0-9]{1,5})\.([0-9]{1,5})(?:\.[0-9]{1,5})?(?:[-+].*)?")
_NOT_TIKV: Final = {"tiflash", "tiflash_compute"}


class Component(msgspec.Struct, frozen=True):
    """A PD or a store with the version that it reports."""

    kind: str
    address: str
    version: str


def evidence(version: str) -> str:
    """Return how a version is known; empty for one that is not accepted."""
    numbers = _numbers(version)
    return next((text for low, high, text in ACCEPTED if low <= numbers < high), "")


def _numbers(version: str) -> tuple[int, int]:
    parts = _VERSION.fullmatch(version.strip())
    return (int(parts[1]), int(parts[2])) if parts else _ANY


def row_stores(stores: Iterable[metapb.Store]) -> list[metapb.Store]:
    """Return the stores that hold rows: those of TiFlash and those removed are none."""
    return [
        store
        for store in stores
        if store.state != metapb.Tombstone
        and not any(label.key == "engine" and label.value in _NOT_TIKV for label in store.labels)
    ]


def check_versions(components: Iterable[Component], *, forced: bool = False) -> None:
    """Raise VersionIncompatible for the first component whose version is not accepted, unless `forced`."""
    for component in components:
        if not forced and not evidence(component.version):
            raise VersionIncompatible(
                f"{component.kind} {component.address} reports version {component.version or 'none'}; accepted are "
                f"{ACCEPTED_TEXT}: upgrade it, or set force-version=true at your own risk"
            )
