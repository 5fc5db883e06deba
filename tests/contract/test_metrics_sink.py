"""The contract of every sink, for numbers: rows that live, and all that has happened, equal to what the script did."""

from collections import Counter
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest

from tests.sink.metrics.rules import rules_of, sink_of
from tidegate.engine.ports import Sink
from tidegate.model.event import RowChange, images
from tidegate.model.name import parts_of
from tidegate.sink.metrics import MetricsSink
from tidegate.testing.contract import SinkContract
from tidegate.testing.script import Script, run_here

pytestmark = pytest.mark.slow
RULES = rules_of(
    {"metric": "live", "type": "gauge", "labels": ["table=event.table_name"]},
    {"metric": "changes_total", "labels": ["table=event.table_name", "op=event.op"]},
    {"metric": "balance", "type": "gauge", "matcher": ["shop.accounts"], "value": "balance"},
    {"metric": "moved", "type": "histogram", "matcher": ["shop.accounts"], "events": ["update"], "buckets": [0, 50, 99],
     "value": "old.balance - new.balance"},
)  # fmt: skip


class TestMetrics(SinkContract):
    """Rules over all tables, and over the columns of one."""

    run = staticmethod(run_here)
    guarantee = "exactly once"
    refuses = ("unreadable",)

    def sink(self, home: Path) -> Sink:
        """A sink that keeps its numbers with its checkpoint."""
        return sink_of(home, RULES)

    def holds(self, home: Path, story: Script, upto: int, **how: bool) -> None:  # noqa: ARG002  always once
        """Assert that the numbers are those of what happened up to `upto`."""
        assert shown(sink_of(home, RULES)) == truth(story, upto)


def shown(sink: MetricsSink) -> dict[str, dict[tuple[str, ...], tuple[Decimal, ...]]]:
    """What a sink shows that is started now; series of zero are none."""
    sink.open(sink.recover())
    sink.close()
    assert sink.snapshot is not None
    return {
        one.rule.metric: {labels: amounts for labels, amounts in one.values.items() if any(amounts)}
        for one in sink.snapshot.rules
    }


def truth(story: Script, upto: int) -> dict[str, dict[tuple[str, ...], tuple[Decimal, ...]]]:
    """The numbers of what a script did, counted row by row."""
    tables = story.tables(upto)
    happened = Counter((row.table, type(row).__name__.lower()) for row in story.rows(upto))
    moved = [differs(row) for row in story.rows(upto) if row.table == "accounts" and type(row).__name__ == "Update"]
    balance = sum(Decimal(str(row["balance"])) for row in tables.get("shop.accounts", ()) if row["balance"] is not None)
    bounds = [0, 50, 99]
    buckets = [sum(one <= bound for one in moved) for bound in bounds] + [len(moved)]
    each = [buckets[0], *(high - low for low, high in pairwise(buckets))]
    return {
        "live": {(parts_of(name)[1],): (Decimal(len(rows)),) for name, rows in tables.items() if rows},
        "changes_total": {labels: (Decimal(count),) for labels, count in happened.items()},
        "balance": {(): (balance,)} if balance else {},
        "moved": {(): (Decimal(sum(moved)), *map(Decimal, each))} if moved else {},
    }


def differs(row: RowChange) -> int:
    """How much a balance fell."""
    before, after = images(row)
    at = [field.name for field in row.fields].index("balance")
    assert before is not None
    assert after is not None
    return int(before[at] or 0) - int(after[at] or 0)


@pytest.mark.parametrize("max_series", [1, 2])
def test_too_many_series(tmp_path: Path, max_series: int, caplog: pytest.LogCaptureFixture) -> None:
    """Beyond max-series all is under _other, what comes and what leaves: sums are what they were, and a warning is
    told once."""
    from tidegate.testing.contract import stories
    from tidegate.testing.script import ScriptedSource

    story = stories.shop()
    rules = rules_of({"metric": "owners", "type": "gauge", "matcher": ["shop.accounts"], "labels": ["owner"],
                      "max-series": max_series})  # fmt: skip
    run_here(ScriptedSource(story), sink_of(tmp_path, rules), until=story.ts)
    found = shown(sink_of(tmp_path, rules))["owners"]

    owners = Counter(str(row["owner"]) for row in story.tables(story.ts)["shop.accounts"])
    assert sum(amounts[0] for amounts in found.values()) == owners.total()
    assert len(found) <= max_series + 1
    assert all(amounts[0] >= 0 for amounts in found.values())
    assert caplog.text.count("more than") == 1
