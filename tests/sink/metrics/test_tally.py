"""Tallies and alerts by themselves: whatever parts and rounds there are, they come to what happened."""

from collections import Counter
from decimal import Decimal
from random import Random

import msgspec
import pytest

from tests.counts import some
from tests.sink.metrics.rules import rules_of
from tidegate.model.tso import compose
from tidegate.sink.metrics import judged
from tidegate.sink.metrics_tally import SeriesKey, Tally, TallyPart, tally_of

[LIVE] = rules_of({"metric": "live", "type": "gauge", "labels": ["a"], "max-series": 3})
[RISES] = rules_of({"metric": "rises_total", "labels": ["a"], "alert-above": 5, "alert-window": "30s"})
SLOT_MS = 1000


@pytest.mark.parametrize("seed", range(5))
def test_series_beyond_the_limit(seed: int) -> None:
    """Tasks and driver decide alike which labels have a series: each has its own rows and `_other` the rest, over any
    rounds, tasks and restarts."""
    random = Random(seed)
    tally, rows = Tally(LIVE, 0), Counter[str]()
    for _ in range(some(30, 500)):
        parts = []
        for table in ("t1", "t2", "t3")[: random.randint(1, 3)]:
            part = TallyPart()
            for _ in range(random.randint(0, 12)):
                label = random.choice("abcdefgh")
                step = -1 if rows[f"{table}{label}"] and random.random() < 0.5 else 1
                rows[f"{table}{label}"] += step
                part.add(SeriesKey(table, "", (label,)), (Decimal(step),))
                if random.random() < 0.2:
                    part.fold(tally.labels, tally.room, LIVE.overflow)
            part.fold(tally.labels, tally.room, LIVE.overflow)
            parts.append(part)
        tally = tally.with_parts(parts)
        if random.random() < 0.3:
            tally = tally_of(LIVE, msgspec.json.decode(msgspec.json.encode(tally.kept())), 0)
        assert len(tally.labels) <= LIVE.max_series
        wanted = Counter[tuple[str, str]]()
        for name, count in rows.items():
            own = (name[2:],) in tally.labels
            wanted[name[:2], name[2:] if own else "_other"] += count
        found = {(key.table, key.labels[0]): amounts[0] for key, amounts in tally.series.items() if any(amounts)}
        assert found == {each: count for each, count in wanted.items() if count}


def test_another_form() -> None:
    """Numbers go on while a rule's condition changes, and begin anew where its labels do."""
    tally = Tally(LIVE, 7).with_parts([])
    tally.series[SeriesKey("t", "", ("x",))] = (Decimal("1.50"),)
    [other] = rules_of({"metric": "live", "type": "gauge", "labels": ["a=upper(b)"], "when": "c > 1"})
    [another] = rules_of({"metric": "live", "type": "gauge", "labels": ["b"]})
    assert tally_of(other, tally.kept(), 9).series == tally.series
    assert tally_of(other, tally.kept(), 9).since_ms == 7
    assert not tally_of(another, tally.kept(), 9).series


def sums(came: dict[int, int], at: int) -> int:
    """What came within the 30 slots up to one."""
    return sum(count for slot, count in came.items() if at - 30 < slot <= at)


@pytest.mark.parametrize("seed", range(5))
def test_alerts_of_any_rounds(seed: int) -> None:
    """An alert turns where what came within the window crosses its threshold, in whatever rounds the changes come, and
    after a restart between any two of them."""
    random = Random(seed)
    came = {slot: random.randint(1, 4) for slot in sorted(random.sample(range(400), 60))}
    truth, firing = [], False
    for slot in range(500):
        if (sums(came, slot) > 5) != firing:
            firing = not firing
            truth.append((slot, firing, sums(came, slot)))
    tally, found, at = Tally(RISES, 0), [], 0
    while at < 499:
        end = min(at + random.choice((1, 3, 40, 300)), 499)
        part = TallyPart()
        for slot, count in came.items():
            if at <= slot < end:
                part.add(SeriesKey("", "", ("x",)), (Decimal(count),))
                part.add_slot(("x",), slot, Decimal(count))
        tally = tally.with_parts([part])
        turns = judged(tally, {}, int(compose(end * SLOT_MS - 1)))
        found += [(turn.at_ms // SLOT_MS, turn.firing, int(turn.value)) for turn in turns]
        tally = tally_of(RISES, msgspec.json.decode(msgspec.json.encode(tally.kept())), 0)
        assert all(slot > end - 32 for _, slot in tally.slots)
        at = end
    assert [(state, value) for _, state, value in found] == [(state, value) for _, state, value in truth]
    assert all(abs(one[0] - other[0]) <= 1 for one, other in zip(found, truth, strict=True))


def test_rounds_within_a_slot() -> None:
    """A slot whose changes come in two rounds is judged with both."""
    tally = Tally(RISES, 0)
    for at_ms, came in ((300, 3), (900, 3)):
        part = TallyPart()
        part.add_slot(("x",), 0, Decimal(came))
        tally = tally.with_parts([part])
        turns = judged(tally, {}, int(compose(at_ms)))
    assert [(turn.firing, turn.value) for turn in turns] == [(True, 6)]
