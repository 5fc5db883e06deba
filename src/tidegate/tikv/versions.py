"""Versions of PD and TiKV: which are accepted, and how each is known.

7.5 … 8.4    read: the sources were compared, no traffic was recorded
8.5 … 9.0    recorded: TiDB 8.5 on PD and TiKV 9.0 beta
others       refused, unless forced
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
_VERSION: Final = re.compile(r"v?([0-9]{1,5})\.([0-9]{1,5})(?:\.[0-9]{1,5})?(?:[-+].*)?")
_NOT_TIKV: Final = {"tiflash", "tiflash_compute"}


class Component(msgspec.Struct, frozen=True):
    """A PD or a store with the version that it reports."""

    kind: str
    address: str
    version: str


def evidence(version: str) -> str:
    """Return how a version is known; empty for one that is not accepted."""
    parts = _VERSION.fullmatch(version.strip())
    numbers = (int(parts[1]), int(parts[2])) if parts else (0, 0)
    return next((text for low, high, text in ACCEPTED if low <= numbers < high), "")


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
