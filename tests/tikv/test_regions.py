"""The ranges of a span cover it at all times, and its resolved ts is what all of them have reached."""

from dataclasses import dataclass
from itertools import pairwise
from random import Random

import pytest

from tidegate.tikv.regions import INFINITE, Range, SpanRanges, backoff_s

KEYS = 24


def key(number: int) -> bytes:
    """A key; behind the last one is no bound."""
    return b"%02d" % number if number < KEYS else b""


@dataclass(eq=False)
class Holder:
    """A registration of a region, from one key to another."""

    start: int
    end: int
    part: Range | None = None


class Model:
    """Each key by itself: who reads it, and the ts up to which a reader has proven it complete."""

    def __init__(self, start: int, end: int, ts: int) -> None:
        self.keys = range(start, end)
        self.proven = dict.fromkeys(self.keys, ts)
        self.holder: dict[int, Holder | None] = dict.fromkeys(self.keys)

    def of(self, holder: Holder) -> list[int]:
        return [one for one in self.keys if self.holder[one] is holder]

    def check(self, ranges: SpanRanges) -> None:
        """Compare a span: no gap, no overlap, the same holders, no ts above what is proven."""
        parts = ranges.ranges
        assert (parts[0].start, parts[-1].end) == (key(self.keys[0]), key(self.keys[-1] + 1) or INFINITE)
        assert all(left.end == right.start for left, right in pairwise(parts))
        assert all(part.start < part.end for part in parts)
        for one in self.keys:
            (part,) = [part for part in parts if part.start <= key(one) < part.end]
            assert part.holder is self.holder[one]
            assert part.ts <= self.proven[one]
        assert ranges.resolved_ts == min(part.ts for part in parts) <= min(self.proven.values())


@pytest.mark.parametrize("seed", range(100))
def test_span(seed: int) -> None:
    """Splits, merges, moves, errors and late knowledge of regions: the ranges are those of a plain model."""
    random = Random(seed)
    start = random.randrange(KEYS - 2)
    end = random.randint(start + 1, KEYS)
    ranges, model = SpanRanges(key(start), key(end), 5), Model(start, end, 5)
    version, before = 1, 5
    for _ in range(150):
        live = list(dict.fromkeys(holder for holder in model.holder.values() if holder))
        match random.randrange(4):
            case 0:
                low = random.randrange(KEYS)
                high = random.randint(low + 1, KEYS)
                if high <= start or low >= end:
                    continue
                version += random.choice((0, 1))
                late = max(1, version - random.choice((0, 0, 1, 2)))
                take(model, ranges, Holder(low, high), late)
            case 1 if live:
                holder = random.choice(live)
                ranges.release(holder.part)
                for one in model.of(holder):
                    model.holder[one] = None
            case 2 | 3 if live:
                holder = random.choice(live)
                ts = random.randint(0, 3) + random.choice((0, before, holder.part.ts))
                highest = max(ts, holder.part.ts)
                ranges.advance(holder.part, ts)
                assert holder.part.ts == highest
                for one in model.of(holder):
                    model.proven[one] = max(model.proven[one], ts)
        model.check(ranges)
        assert ranges.resolved_ts >= before
        before = ranges.resolved_ts


def take(model: Model, ranges: SpanRanges, holder: Holder, version: int) -> None:
    """Let a holder take a range; check what is given, displaced and free."""
    inside = [one for one in model.keys if holder.start <= one < holder.end]
    known = {model.holder[one].part.version for one in inside if model.holder[one]}
    taken = ranges.take(key(holder.start), key(holder.end), version, holder)
    holder.part = taken.range
    assert (taken.range is None) == any(other >= version for other in known)
    if taken.range is None:
        free = {one for part in taken.free for one in model.keys if part.start <= key(one) < part.end}
        assert free >= {one for one in inside if model.holder[one] is None}
        assert taken.displaced == []
        return
    assert set(taken.displaced) == {model.holder[one] for one in inside if model.holder[one]}
    lost = {one for displaced in taken.displaced for one in model.of(displaced)}
    for one in lost:
        model.holder[one] = None
    for one in inside:
        model.holder[one] = holder
    assert {one for part in taken.free for one in model.keys if part.start <= key(one) < part.end} == lost - set(inside)


def test_backoff() -> None:
    """Doubled from 50 ms to 2 s, at least half of it, the same for the same seed."""
    for attempts, longest in [(1, 0.05), (2, 0.1), (5, 0.8), (6, 1.6), (7, 2.0), (60, 2.0)]:
        waits = [backoff_s(attempts, Random(seed)) for seed in range(50)]
        assert longest / 2 <= min(waits) < max(waits) <= longest
    assert backoff_s(3, Random(1)) == backoff_s(3, Random(1))
