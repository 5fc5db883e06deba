"""What a rule has come to: series of exact numbers, and how the parts that tasks counted are added to them. Pure.

    task: orders   {(paid): 2}, {(open): -1}  ─┐
    task: orders   {(paid): 1}                 ─┴─►  tally  {(paid): 17+2+1, (open): 4-1}  ──► notes of the checkpoint

    series    table, partition   of a gauge: the incarnation of the table whose rows they are, and the partition
              labels             one text a label
              amounts            (value,)  or of a histogram (sum, how many in each bucket, the last without bound)

Amounts are Decimals, so that sums do not depend on the order of their parts, and a restart goes on from what was there.

Beyond max-series, labels are those of `_other`.  Which labels have a series of their own is decided once: the smallest
new ones of a round, as many as there is room for.  A task that leaves out more than the smallest leaves out none that
the driver would take, so both agree without asking, and what came under `_other` leaves under it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from tidegate.sink.metrics.rule import MetricRule

Labels: TypeAlias = tuple[str, ...]
Amounts: TypeAlias = tuple[Decimal, ...]
EXACT: Final = Context(prec=1000)
"""Wide enough for the sum of any doubles that a column holds."""
ZERO: Final = Decimal(0)


class SeriesKey(NamedTuple):
    """Whose numbers they are; a counter's are of no table."""

    table: str
    partition: str
    labels: Labels


def added(one: Amounts, other: Amounts) -> Amounts:
    """Return the sums."""
    return tuple(EXACT.add(left, right) for left, right in zip(one, other, strict=True))


@dataclass(slots=True)
class TallyPart:
    """What a task counted for a rule. `slots` tell when (commit time, in slots of the rule): for alerts; `skipped` are
    rows whose value is none that the rule takes."""

    series: dict[SeriesKey, Amounts] = field(default_factory=dict)
    slots: dict[tuple[Labels, int], Decimal] = field(default_factory=dict)
    skipped: int = 0
    overflowed: bool = False

    def add(self, key: SeriesKey, amounts: Amounts) -> None:
        """Add to a series."""
        before = self.series.get(key)
        self.series[key] = amounts if before is None else added(before, amounts)

    def add_slot(self, labels: Labels, slot: int, amount: Decimal) -> None:
        """Note how much came in a slot."""
        self.slots[labels, slot] = EXACT.add(self.slots.get((labels, slot), ZERO), amount)

    def fold(self, known: Collection[Labels], room: int, overflow: Labels) -> None:
        """Put new labels beyond the `room` smallest together."""
        new = sorted({key.labels for key in self.series} - set(known) - {overflow})
        beyond = set(new[max(room, 0) :])
        if not beyond:
            return
        self.overflowed = True
        for key in [key for key in self.series if key.labels in beyond]:
            self.add(key._replace(labels=overflow), self.series.pop(key))
        for labels, slot in [each for each in self.slots if each[0] in beyond]:
            self.add_slot(overflow, slot, self.slots.pop((labels, slot)))


@dataclass(slots=True)
class Tally:
    """All that a rule has counted; `since_ms` is when it began, `firing` the labels of alerts, each with its begin."""

    rule: MetricRule
    since_ms: int
    labels: set[Labels] = field(default_factory=set)
    """Those that have a series of their own."""
    series: dict[SeriesKey, Amounts] = field(default_factory=dict)
    slots: dict[tuple[Labels, int], Decimal] = field(default_factory=dict)
    firing: dict[Labels, int] = field(default_factory=dict)
    skipped: int = 0
    judged: int = 0
    """The slot up to which alerts are judged."""

    @property
    def room(self) -> int:
        """How many labels more may have a series of their own."""
        return self.rule.max_series - len(self.labels)

    @property
    def is_full(self) -> bool:
        """True once something came under `_other`."""
        return any(key.labels == self.rule.overflow for key in self.series) and bool(self.rule.labels)

    def with_parts(self, parts: Iterable[TallyPart]) -> "Tally":
        """Return the tally with what tasks counted; this one stays."""
        whole = TallyPart()
        for part in parts:
            for key, amounts in part.series.items():
                whole.add(key, amounts)
            for (labels, slot), amount in part.slots.items():
                whole.add_slot(labels, slot, amount)
            whole.skipped += part.skipped
        whole.fold(self.labels, self.room, self.rule.overflow)
        found = self.copy()
        for key, amounts in whole.series.items():
            before = found.series.get(key)
            found.series[key] = amounts if before is None else added(before, amounts)
            if key.labels != self.rule.overflow:
                found.labels.add(key.labels)
        for each, amount in whole.slots.items():
            found.slots[each] = EXACT.add(found.slots.get(each, ZERO), amount)
        found.skipped += whole.skipped
        return found

    def copy(self) -> "Tally":
        """Return a tally of the same numbers."""
        return Tally(
            self.rule,
            self.since_ms,
            set(self.labels),
            dict(self.series),
            dict(self.slots),
            dict(self.firing),
            self.skipped,
            self.judged,
        )

    # As it is kept

    def kept(self) -> dict[str, Any]:
        """Return it as plain values: numbers as texts, labels once."""
        every = sorted({*self.labels, *map(attrgetter("labels"), self.series), *self.firing})
        number = {labels: at for at, labels in enumerate(every)}
        return {
            "form": self.rule.form,
            "since": self.since_ms,
            "labels": [list(labels) for labels in every],
            "own": sorted(number[labels] for labels in self.labels),
            "series": [
                [number[key.labels], key.table, key.partition, *map(str, amounts)]
                for key, amounts in self.series.items()
            ],
            "slots": [[number[labels], slot, str(amount)] for (labels, slot), amount in self.slots.items()],
            "firing": [[number[labels], since] for labels, since in self.firing.items()],
            "skipped": self.skipped,
            "judged": self.judged,
        }


def tally_of(rule: MetricRule, kept: Mapping[str, Any] | None, now_ms: int) -> Tally:
    """Return the tally that was kept; a new one for None, or where the rule's form is another now."""
    if kept is None or kept["form"] != rule.form:
        return Tally(rule, now_ms)
    labels = [tuple(each) for each in kept["labels"]]
    return Tally(
        rule,
        kept["since"],
        {labels[at] for at in kept["own"]},
        {
            SeriesKey(table, partition, labels[at]): tuple(map(Decimal, amounts))
            for at, table, partition, *amounts in kept["series"]
        },
        {(labels[at], slot): Decimal(amount) for at, slot, amount in kept["slots"]},
        {labels[at]: since for at, since in kept["firing"]},
        kept["skipped"],
        kept["judged"],
    )


class Limit(msgspec.Struct, frozen=True):
    """Which labels of a rule have a series of their own, and how many more may: what a task folds by."""

    known: frozenset[Labels]
    room: int
