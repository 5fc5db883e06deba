"""Regions: the key space cut into ranges, each with an epoch that tells whether a client's picture is current.

    split at m        1 [ ........ ) v3      ->    1 [ ... m ) v4    2 [ m ... ) v4
    merge             1 [ ... m ) v4  2 [ m ... ) v4      ->    1 [ ........ ) v5
    leader moves      1 [ ... m ) v4 term 1      ->    1 [ ... m ) v4 term 2

The left half of a split keeps its id, a merge the left one's.  Versions only grow, so no epoch ever comes back.

Source: TiKV's region epochs (version), leaders (term).
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Region:
    """A range [start, end) of raw keys; an empty `end` is no bound."""

    id: int
    start: bytes
    end: bytes
    version: int
    term: int

    def overlap(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """Return the part of [start, end) in this region, None if there is none."""
        low = max(start, self.start)
        high = min(self.end, end) if self.end and end else self.end or end
        return (low, high) if not high or low < high else None


class RegionMap:
    """All regions in the order of their keys; at first there is one."""

    def __init__(self) -> None:
        self._regions = [Region(1, b"", b"", 1, 1)]
        self._last_id = 1

    def __iter__(self) -> Iterator[Region]:
        """The regions of now, whatever becomes of them while somebody looks at them."""
        return iter(tuple(self._regions))

    def find(self, region_id: int) -> Region | None:
        """Return the region with an id."""
        return next((region for region in self._regions if region.id == region_id), None)

    def split(self, key: bytes) -> Region | None:
        """Cut the region of `key` there; the region that was, None if one starts there already."""
        at = bisect_right(self._regions, key, key=lambda region: region.start) - 1
        old = self._regions[at]
        if old.start == key:
            return None
        self._last_id += 1
        left = replace(old, end=key, version=old.version + 1)
        self._regions[at : at + 1] = [left, replace(left, id=self._last_id, start=key, end=old.end)]
        return old

    def merge(self, region_id: int) -> tuple[Region, Region] | None:
        """Join a region with its right neighbour; the two that were, None if there is no neighbour."""
        at = next((at for at, region in enumerate(self._regions) if region.id == region_id), len(self._regions))
        if at + 1 >= len(self._regions):
            return None
        left, right = self._regions[at : at + 2]
        version = max(left.version, right.version) + 1
        self._regions[at : at + 2] = [replace(left, end=right.end, version=version)]
        return left, right

    def move_leader(self, region_id: int) -> Region | None:
        """Give a region another leader; the region that was."""
        for at, region in enumerate(self._regions):
            if region.id == region_id:
                self._regions[at] = replace(region, term=region.term + 1)
                return region
        return None
