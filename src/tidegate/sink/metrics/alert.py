"""Alerts: what a rule has come to within a window of commit time, against its threshold. Pure.

    slots of alert-window / 30       3   0   9   4   ..        alert-above = 10
                                     └── window ──┘ 16 > 10   firing, once for each labels
    gauges                           the value at a checkpoint

Time is commit time, so a feed that catches up tells the alerts that there would have been.  A change of state is an
event that waits in the checkpoint until the receiver has taken it: it comes at least once, under one id.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from tidegate.codec.neutral import render
from tidegate.model.tso import compose, physical_ms
from tidegate.sink.metrics.tally import EXACT, ZERO, Amounts, Labels, Tally
from tidegate.sink.webhook.cloud_event import CloudEvent, envelope

WAITING_MAX: Final = 10_000
"""Events that wait for a receiver; of more the oldest go."""


class Turn(NamedTuple):
    """A series whose alert began or ended, at a time in ms, with the number that decided it."""

    labels: Labels
    at_ms: int
    firing: bool
    value: Decimal


def judged(tally: Tally, shown: Mapping[Labels, Amounts], checkpoint_ts: int) -> list[Turn]:
    """Bring the alerts of a tally to a checkpoint, where `shown` are its numbers; return what changed, in order."""
    rule, now_ms = tally.rule, int(physical_ms(checkpoint_ts))
    if not rule.is_watched:
        return []
    if rule.kind == "gauge":
        values = {**dict.fromkeys(tally.firing, ZERO), **{labels: amounts[0] for labels, amounts in shown.items()}}
        return [turn for labels, value in sorted(values.items()) for turn in _turned(tally, labels, value, now_ms)]
    now, width = now_ms // rule.slot_ms, rule.window_ms // rule.slot_ms
    by_labels: dict[Labels, dict[int, Decimal]] = {labels: {} for labels in tally.firing}
    for (labels, slot), amount in tally.slots.items():
        by_labels.setdefault(labels, {})[slot] = amount
    turns: list[Turn] = []
    for labels, slots in by_labels.items():
        for slot, value in _rising(slots, width, tally.judged, now):
            turns += _turned(tally, labels, value, min((slot + 1) * rule.slot_ms, now_ms))
    for each in [each for each in tally.slots if each[1] <= now - width]:
        del tally.slots[each]
    tally.judged = now
    return sorted(turns, key=lambda turn: (turn.at_ms, turn.labels))


def _rising(slots: Mapping[int, Decimal], width: int, since: int, now: int) -> Iterator[tuple[int, Decimal]]:
    """What came in the `width` slots up to each slot where that changes, from `since` on, and up to now."""
    changes = {slot: amount for slot, amount in slots.items() if slot <= now}
    for slot, amount in slots.items():
        changes[slot + width] = EXACT.subtract(changes.get(slot + width, ZERO), amount)
    total = ZERO
    for slot in sorted({*changes, now}):
        if slot > now:
            return
        total = EXACT.add(total, changes.get(slot, ZERO))
        if slot >= since:
            yield slot, total


def _turned(tally: Tally, labels: Labels, value: Decimal, at_ms: int) -> Iterator[Turn]:
    rule = tally.rule
    wrong = (rule.above is not None and value > rule.above) or (rule.below is not None and value < rule.below)
    if wrong and labels not in tally.firing:
        tally.firing[labels] = at_ms
        yield Turn(labels, at_ms, firing=True, value=value)
    elif not wrong and labels in tally.firing:
        del tally.firing[labels]
        yield Turn(labels, at_ms, firing=False, value=value)


def alert_event(feed: str, tally: Tally, turn: Turn, checkpoint_ts: int) -> CloudEvent:
    """Return the event that tells of a turn."""
    rule = tally.rule
    state = "firing" if turn.firing else "resolved"
    limit = {"above": float(rule.above)} if rule.above is not None else {"below": float(rule.below or 0)}
    data: dict[str, Any] = {
        "alert": rule.metric,
        "state": state,
        "labels": dict(zip(rule.label_names, turn.labels, strict=True)),
        "value": float(turn.value),
        **limit,
        **({"window_ms": rule.window_ms} if rule.slot_ms else {}),
    }
    digest = blake2b(f"{feed}\n{checkpoint_ts}\n{turn.at_ms}\n".encode() + render(data), digest_size=16).hexdigest()
    ts = int(compose(turn.at_ms))
    body = render(envelope(digest, f"/tidegate/{feed}", f"alert.{state}", ts, data, subject=rule.metric))
    return CloudEvent(digest, body, ts, rule.metric)
