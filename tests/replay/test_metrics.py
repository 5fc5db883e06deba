"""The recorded shop in numbers: at each moment those of the rows of TiDB, and of the messages counted one by one."""

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_metrics_sink import shown
from tests.log_source import log_source
from tests.recorded import partitions_of
from tests.replay.test_database import WORKLOAD, known, recorded, truths
from tests.replay.test_history import PROTOCOLS
from tests.replay.test_redis import landed
from tests.sink.metrics.rules import rules_of, sink_of
from tidegate.changelog.source import ChangelogSource
from tidegate.codec import decode
from tidegate.codec.options import DecodeOptions
from tidegate.model.event import Delete, Insert, RowChange, Update, images
from tidegate.testing.script import run_here

pytestmark = pytest.mark.slow
BOUNDS = (50, 100, 1000)
RULES = rules_of(
    {"metric": "live", "type": "gauge", "labels": ["schema=event.table_schema", "table=event.table_name"]},
    {"metric": "orders", "type": "gauge", "matcher": ["shop.orders"], "labels": ["status"]},
    {"metric": "orders_sum", "type": "gauge", "matcher": ["shop.orders"], "value": "total"},
    {"metric": "bank_sum", "type": "gauge", "matcher": ["bank.accounts"], "value": "balance", "when": "id % 2 = 0"},
    {"metric": "changes_total", "labels": ["table=event.table_name", "op=event.op"]},
    {"metric": "falls_total", "matcher": ["bank.accounts"], "when": "old.balance - new.balance > 20"},
    {"metric": "amounts", "type": "histogram", "matcher": ["bank.audit"], "events": ["insert"], "value": "new.amount",
     "buckets": list(BOUNDS)},
)  # fmt: skip


def column(table: dict[str, Any], name: str) -> list[Any]:
    """The values of a column of a truth."""
    [(at, one)] = [(at, one) for at, one in enumerate(table["columns"]) if one["name"] == name]
    return [known(one["type"], row[at]) for row in table["rows"]]


def happened(protocol: str) -> list[RowChange]:
    """Every row change that was recorded, once."""
    options, found = DecodeOptions(protocol=PROTOCOLS[protocol]), {}
    for messages in partitions_of(WORKLOAD / protocol).values():
        for message in messages:
            for event in decode(message.key, message.value, options):
                if isinstance(event, Insert | Update | Delete):
                    found[type(event), event.commit_ts, event.schema, event.table, images(event)] = event
    return list(found.values())


def value(row: RowChange, name: str, *, old: bool = False) -> int:
    """A number of an image of a row."""
    image = images(row)[0 if old else 1]
    assert image is not None
    return int(image[[field.name for field in row.fields].index(name)] or 0)


def numbers(truth: dict[str, Any], rows: Iterable[RowChange]) -> dict[str, Any]:
    """The numbers at a moment; `rows` came up to then."""
    tables, mine = truth["tables"], list(rows)
    orders, accounts = tables.get("shop.orders"), tables["bank.accounts"]
    even = [balance for key, balance in zip(column(accounts, "id"), column(accounts, "balance"), strict=True)
            if key % 2 == 0]  # fmt: skip
    amounts = [value(row, "amount") for row in mine if row.table == "audit" and isinstance(row, Insert)]
    below = [0, *(sum(amount <= bound for amount in amounts) for bound in BOUNDS), len(amounts)]
    moved = [row for row in mine if row.table == "accounts" and isinstance(row, Update)]
    falls = [row for row in moved if value(row, "balance", old=True) - value(row, "balance") > 20]
    changes = Counter((row.table, type(row).__name__.lower()) for row in mine)
    wanted = {
        "live": {tuple(name.split(".")): len(table["rows"]) for name, table in tables.items()},
        "orders": Counter((status.decode(),) for status in column(orders, "status")),
        "orders_sum": {(): sum(Decimal(total.decode()) for total in column(orders, "total") if total is not None)},
        "bank_sum": {(): sum(even)},
        "changes_total": changes,
        "falls_total": {(): len(falls)},
    }
    found = {
        metric: {labels: (Decimal(value),) for labels, value in series.items() if value}
        for metric, series in wanted.items()
    }
    buckets = tuple(Decimal(high - low) for low, high in pairwise(below))
    return {**found, "amounts": {(): (Decimal(sum(amounts)), *buckets)} if amounts else {}}


@pytest.mark.parametrize("protocol", ["open", pytest.param("canal", marks=pytest.mark.more)])
def test_each_moment(tmp_path: Path, protocol: str) -> None:
    """From topics of either protocol, over 80 DDLs of every kind."""
    source = landed(tmp_path / "home", protocol)
    rows = happened(protocol)
    for truth in truths():
        sink = sink_of(tmp_path / "state", RULES)
        run_here(ChangelogSource(source), sink, until=truth["ts"])
        found = shown(sink_of(tmp_path / "state", RULES))
        assert found == numbers(truth, (row for row in rows if (row.commit_ts or 0) <= truth["ts"])), truth["n"]


@pytest.mark.more
def test_each_moment_of_a_log(tmp_path: Path) -> None:
    """From the change log, whose rows come typed and with their start_ts; an UPDATE of a key is one change there."""
    segments = recorded(tmp_path / "segments")
    rows = happened("open")
    for truth in truths():
        source = log_source(segments)
        run_here(source, sink_of(tmp_path / "state", RULES), until=truth["ts"])
        found = shown(sink_of(tmp_path / "state", RULES))
        wanted = numbers(truth, (row for row in rows if (row.commit_ts or 0) <= truth["ts"]))
        assert {**found, "changes_total": {}} == {**wanted, "changes_total": {}}, truth["n"]
