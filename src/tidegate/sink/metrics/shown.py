"""What a sink shows of its tallies: one value of each series, for pages, collectors and alerts.

    tally of a gauge    (a1-0, low, paid): 3   (a1-0, high, paid): 2   (b7-0, "", paid): 9
    tables that live    a1-0 is shop.orders, taken by the rule          b7-0 was dropped
    shown               (paid): 5

`SHOWN` holds what the feeds of this process show now, by their homes: the page of a server is about all of them.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidegate.schema.state import SchemaState
from tidegate.sink.metrics.row_text import row_text
from tidegate.sink.metrics.rule import MetricRule
from tidegate.sink.metrics.tally import Amounts, Labels, SeriesKey, Tally, added


@dataclass(frozen=True, slots=True)
class ShownRule:
    """The numbers of a rule by its labels."""

    rule: MetricRule
    since_ms: int
    values: Mapping[Labels, Amounts]
    skipped: int
    overflowed: bool
    firing: int


@dataclass(frozen=True, slots=True)
class ShownNumbers:
    """What a feed shows at a checkpoint."""

    feed: str
    checkpoint_ts: int
    rules: tuple[ShownRule, ...]


class ShownFeeds:
    """The snapshots of the feeds of this process; any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_home: dict[str, ShownNumbers] = {}

    def show(self, home: str, snapshot: ShownNumbers) -> None:
        """Put a snapshot in place of the feed's last one; `home` is where the feed keeps what is its own."""
        with self._lock:
            self._by_home[home] = snapshot

    def hide(self, home: str) -> None:
        """Forget a feed that ends."""
        with self._lock:
            self._by_home.pop(home, None)

    def of(self, home: str) -> ShownNumbers | None:
        """Return what a feed shows; None where it runs elsewhere or shows nothing."""
        with self._lock:
            return self._by_home.get(home)


SHOWN: Final = ShownFeeds()


def values_of(tally: Tally, state: SchemaState) -> dict[Labels, Amounts]:
    """Return the numbers of a tally; those of a gauge over the tables that live and that its rule takes."""
    if tally.rule.kind != "gauge":
        return {key.labels: amounts for key, amounts in tally.series.items()}
    names = {table.incarnation: table.name for table in state.tables.values() if tally.rule.takes(table.name)}
    parts = [_table_part(tally.rule, at) for at in range(len(tally.rule.labels))]
    found: dict[Labels, Amounts] = {}
    for key, amounts in tally.series.items():
        if key.table not in names:
            continue
        labels = _labels(key, parts, names[key.table])
        found[labels] = added(found[labels], amounts) if labels in found else amounts
    return found


def snapshot_of(feed: str, tallies: Sequence[Tally], state: SchemaState, checkpoint_ts: int) -> ShownNumbers:
    """Return what a feed shows of its tallies at a checkpoint."""
    rules = tuple(
        ShownRule(tally.rule, tally.since_ms, values_of(tally, state), tally.skipped, tally.is_full, len(tally.firing))
        for tally in tallies
    )
    return ShownNumbers(feed, checkpoint_ts, rules)


def _table_part(rule: MetricRule, at: int) -> int | None:
    """Which part of a table's name a label is: 0 the schema, 1 the table; None: no part of it."""
    single = row_text(rule.labels[at][1], rule.sql_mode).single
    if single is None or single[0] != "event":
        return None
    return 0 if single[1] == "table_schema" else 1


def _labels(key: SeriesKey, parts: Sequence[int | None], name: Sequence[str]) -> Labels:
    if all(part is None for part in parts):
        return key.labels
    return tuple(label if part is None or label else name[part] for label, part in zip(key.labels, parts, strict=True))
