"""What rules make of changes, and where it can be read: a scrape, a collector, alerts, errors that help."""

import json
import urllib.request
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.contract.test_metrics_sink import shown
from tests.failpoint import armed
from tests.sink.metrics.receiver import collecting
from tests.sink.metrics.rules import rules_of, sink_of
from tests.sink.storage.test_sink import times
from tests.sink.webhook.receiver import Receiver, receiving
from tidegate.changelog import files
from tidegate.config.load import load
from tidegate.model.errors import ConfigError, EnvironmentFault, SinkRefused, UriInvalid
from tidegate.sink.metrics import MetricsSink
from tidegate.testing.contract.sinks import Died
from tidegate.testing.script import Script, ScriptedSource, put, remove, run_here

pytestmark = pytest.mark.slow


def bank() -> Script:
    """Accounts that change: 1 falls by 2500 and by 400, 2 falls by 1001, 3 goes, 4 has no balance."""
    story = Script()
    story.ddl(
        "bank.accounts",
        "CREATE TABLE bank.accounts (id INT PRIMARY KEY, branch VARCHAR(9), balance DECIMAL(12,2), rate DOUBLE)",
    )
    for number, branch, balance in ((1, "east", "5000.10"), (2, "west", "2000.00"), (3, None, "7.05")):
        story.commit(put("bank.accounts", id=number, branch=branch, balance=balance, rate=number / 10))
    story.commit(put("bank.accounts", id=4, branch="west", balance=None, rate=None))
    story.resolve()
    story.commit(put("bank.accounts", id=1, balance="2500.10"), put("bank.accounts", id=2, balance="999.00"))
    story.commit(put("bank.accounts", id=1, balance="2100.10"), remove("bank.accounts", id=3))
    story.resolve()
    return story


BANK = rules_of(
    {"metric": "withdrawals_total", "events": ["update"], "when": "old.balance - new.balance > 1000",
     "labels": ["branch"], "matcher": ["bank.*"], "help": "Large ones"},
    {"metric": "withdrawn_total", "when": "event.op = 'update'", "value": "old.balance - new.balance"},
    {"metric": "balance_sum", "type": "gauge", "value": "balance", "labels": ["branch"]},
    {"metric": "rich", "type": "gauge", "when": "balance >= 999", "labels": ["kind=upper(left(branch, 1))"]},
    {"metric": "rates", "type": "histogram", "value": "new.rate", "buckets": [0.1, 0.2, 1]},
    {"metric": "opened_total", "events": ["insert"], "value": "balance"},
    {"metric": "fallen_total", "events": ["update"], "value": "new.balance - 2000"},
)  # fmt: skip


def live(home: Path, story: Script, sink: MetricsSink | None = None) -> MetricsSink:
    """One life of a feed by the rules of the bank."""
    made = sink_of(home, BANK) if sink is None else sink
    run_here(ScriptedSource(story), made, until=story.ts)
    return made


def test_repeats_of_a_transaction_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that come twice within their transaction count once, though each is a part of its own."""
    wanted = shown(live(tmp_path / "once", bank()))
    monkeypatch.setattr(files, "PART_BYTES", 1)
    run_here(ScriptedSource(bank(), repeats=True), sink_of(tmp_path / "twice", BANK), until=bank().ts)
    assert shown(sink_of(tmp_path / "twice", BANK)) == wanted


def numbers(*texts: str) -> tuple[Decimal, ...]:
    """Amounts."""
    return tuple(map(Decimal, texts))


@pytest.mark.parametrize("times_stopped", [0, 1])
def test_what_rules_make(tmp_path: Path, times_stopped: int) -> None:
    """Conditions, values and labels are SQL over both images; sums are exact, NULL is no number, and a restart changes
    nothing."""
    story = bank()
    if times_stopped:
        run_here(ScriptedSource(story), sink_of(tmp_path, BANK), until=story.marks[0])
    live(tmp_path, story)

    assert shown(sink_of(tmp_path, BANK)) == {
        "withdrawals_total": {("east",): numbers("1"), ("west",): numbers("1")},
        "withdrawn_total": {(): numbers("3901.00")},
        "balance_sum": {("east",): numbers("2100.10"), ("west",): numbers("999.00")},
        "rich": {("E",): numbers("1"), ("W",): numbers("1")},
        "rates": {(): numbers("1.0", "3", "2", "1", "0")},
        "opened_total": {(): numbers("7007.15")},
        "fallen_total": {(): numbers("600.20")},
    }


def scraped(port: int, accept: str = "text/plain") -> dict[str, float]:
    """What a real scrape reads, by sample."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"accept": accept})
    with urllib.request.urlopen(request, timeout=10) as answer:
        text = answer.read().decode()
    return {
        f"{one.name}{json.dumps(dict(sorted(one.labels.items())))}": one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_a_scrape(tmp_path: Path) -> None:
    """Prometheus reads the numbers of the last checkpoint over HTTP, and those of a new process before its first
    round."""
    live(tmp_path, bank())
    sink = sink_of(tmp_path, BANK, page=("127.0.0.1", 0))
    sink.open(sink.recover())
    assert sink.page is not None
    found = scraped(sink.page.port)
    other = sink_of(tmp_path, BANK, page=("127.0.0.1", sink.page.port))
    with pytest.raises(EnvironmentFault, match="another port"):
        other.open(other.recover())
    sink.close()

    assert found['withdrawals_total{"branch": "east", "changefeed": "feed"}'] == 1
    assert found['balance_sum{"branch": "east", "changefeed": "feed"}'] == 2100.10
    assert found['rates_bucket{"changefeed": "feed", "le": "0.2"}'] == 5
    assert found['rates_bucket{"changefeed": "feed", "le": "+Inf"}'] == found['rates_count{"changefeed": "feed"}'] == 6
    assert found['tidegate_metrics_checkpoint_ts{"changefeed": "feed"}'] == bank().ts >> 18
    assert found['tidegate_metrics_skipped_rows_total{"changefeed": "feed", "metric": "fallen_total"}'] == 1


def test_a_collector(tmp_path: Path) -> None:
    """A collector gets OTLP: cumulative sums since the rule began, the last numbers when a run ends; one that is away
    holds nothing up."""
    with collecting() as collector:
        options = {"otlp_url": collector.url, "otlp_interval_s": 0.05, "otlp_token": "a-token"}
        live(tmp_path, bank(), sink_of(tmp_path, BANK, **options))
        begun = collector.metrics["withdrawals_total"]["sum"]["dataPoints"][0]["startTimeUnixNano"]
        live(tmp_path, bank(), sink_of(tmp_path, BANK, **options))
    live(tmp_path, bank(), sink_of(tmp_path, BANK, **options))

    found = collector.metrics["withdrawals_total"]["sum"]
    assert (found["aggregationTemporality"], found["isMonotonic"]) == (2, True)
    east = {"key": "branch", "value": {"stringValue": "east"}}
    [point] = [point for point in found["dataPoints"] if point["attributes"] == [east]]
    assert (point["asDouble"], point["startTimeUnixNano"]) == (1, begun)
    histogram = collector.metrics["rates"]["histogram"]["dataPoints"][0]
    assert (histogram["count"], histogram["bucketCounts"]) == ("6", ["3", "2", "1", "0"])
    assert histogram["explicitBounds"] == [0.1, 0.2, 1]
    assert collector.metrics["balance_sum"]["gauge"]["dataPoints"]
    assert {headers["authorization"] for headers in collector.headers} == {"Bearer a-token"}


@pytest.fixture
def hook() -> Iterator[Receiver]:
    """A receiver of alerts."""
    with receiving() as found:
        yield found


WATCHED = rules_of(
    {"metric": "big_total", "when": "new.v > 10", "labels": ["k"], "alert-above": 2, "alert-window": "1m"},
    {"metric": "live", "type": "gauge", "alert-below": 2},
)


def alarming() -> Script:
    """Three large changes within a minute, then silence of hours; rows come, and go."""
    story = Script()
    story.ddl("s.t", "CREATE TABLE s.t (id INT PRIMARY KEY, k VARCHAR(9), v INT)")
    story.commit(*(put("s.t", id=number, k="a", v=5) for number in range(4)))
    story.resolve()
    for number in range(3):
        story.commit(put("s.t", id=number, v=11 + number))
    story.resolve()
    for _ in range(100):
        story.tick()
    story.commit(put("s.t", id=3, k="b", v=99), *(remove("s.t", id=number) for number in range(3)))
    story.resolve()
    return story


def told(hook: Receiver) -> list[tuple[str, str, float]]:
    """Alerts as they came: name, state, value."""
    return [(e["data"]["alert"], e["data"]["state"], e["data"]["value"]) for e in hook.events]


def test_alerts(hook: Receiver, tmp_path: Path) -> None:
    """A threshold over a window of commit time fires once, and is resolved once, whatever dies between: what the
    receiver has not taken comes under the same id."""
    story = alarming()
    options = {"alert_url": hook.url, "alert_secret": b"word"}
    hook.secret = b"word"
    for _ in range(3):
        with armed({"metrics/alert-sent": times(1)}), pytest.raises(Died):
            live(tmp_path / "died", story, sink_of(tmp_path / "died", WATCHED, **options))
    live(tmp_path / "died", story, sink_of(tmp_path / "died", WATCHED, **options))
    again = {event["id"]: (event["data"]["alert"], event["data"]["state"]) for event in hook.events}
    hook.calls.clear()
    live(tmp_path / "whole", story, sink_of(tmp_path / "whole", WATCHED, **options))

    assert told(hook) == [("big_total", "firing", 3), ("big_total", "resolved", 2), ("live", "firing", 1)]
    assert {event["type"] for event in hook.events} == {"tidegate.alert.firing", "tidegate.alert.resolved"}
    assert hook.events[0]["data"]["labels"] == {"k": "a"}
    assert sorted(again.values()) == sorted((name, state) for name, state, _ in told(hook))


def test_a_receiver_that_is_away(hook: Receiver, tmp_path: Path) -> None:
    """Numbers go on while nobody takes alerts; they wait beside the checkpoint for the next run."""
    story = alarming()
    hook.rule = lambda _: (503, "away")
    live(tmp_path, story, sink_of(tmp_path, WATCHED, alert_url=hook.url))
    assert shown(sink_of(tmp_path, WATCHED))["big_total"] == {("a",): numbers("3"), ("b",): numbers("1")}
    hook.rule = lambda _: (204, "")
    live(tmp_path, story, sink_of(tmp_path, WATCHED, alert_url=hook.url))
    assert len(told(hook)) == 3


ORDERS = "CREATE TABLE shop.orders (id INT PRIMARY KEY, status VARCHAR(9), amount INT)"
BY_STATUS = rules_of({"metric": "orders", "type": "gauge", "matcher": ["shop.orders"], "labels": ["status"]})


def orders(*ddls: str) -> Script:
    """Two orders, then some DDLs."""
    story = Script()
    story.ddl("shop.orders", ORDERS)
    story.commit(put("shop.orders", id=1, status="paid", amount=5), put("shop.orders", id=2, status="open", amount=1))
    story.resolve()
    for ddl in ddls:
        story.ddl("shop.orders", ddl)
    story.resolve()
    return story


@pytest.mark.parametrize(
    ("ddl", "words"),
    [
        (
            "ALTER TABLE shop.orders DROP COLUMN status",
            "orders names column status, which shop.orders does",
        ),
        ("ALTER TABLE shop.orders CHANGE COLUMN status state VARCHAR(9)", 'did you mean "state"'),
        ("ALTER TABLE shop.orders MODIFY COLUMN status DATETIME", "counts rows by status, whose type changes"),
        ("GRUMBLE ABOUT shop.orders", "on gauges is unknown"),
    ],
)
def test_a_column_that_goes(tmp_path: Path, ddl: str, words: str) -> None:
    """A DDL that a rule cannot follow ends the feed before it, with rule, table and ts; all before it is counted."""
    story = orders(ddl)
    with pytest.raises(SinkRefused, match=words) as failed:
        live(tmp_path, story, sink_of(tmp_path, BY_STATUS))

    where = failed.value.where
    assert (where.table, where.commit_ts) == ("shop.orders", story.ts)
    found = sink_of(tmp_path, BY_STATUS)
    assert (found.recover().checkpoint.ts, found.recover().checkpoint.done) == (story.ts, ())
    assert shown(found)["orders"] == {("paid",): numbers("1"), ("open",): numbers("1")}


def test_a_rule_that_is_mended(tmp_path: Path) -> None:
    """With the column's new name in its rule a gauge goes on from what it was."""
    story = orders()
    story.commit(put("shop.orders", id=3, status="paid"))
    story.ddl("shop.orders", "ALTER TABLE shop.orders CHANGE COLUMN status state VARCHAR(9)")
    story.commit(remove("shop.orders", id=1))
    story.resolve()
    with pytest.raises(SinkRefused):
        live(tmp_path, story, sink_of(tmp_path, BY_STATUS))
    mended = rules_of({"metric": "orders", "type": "gauge", "matcher": ["shop.orders"], "labels": ["status=state"]})
    live(tmp_path, story, sink_of(tmp_path, mended))
    assert shown(sink_of(tmp_path, mended))["orders"] == {("paid",): numbers("1"), ("open",): numbers("1")}


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"metric": "a b"}, "not a metric name"),
        ({"metric": "orders"}, 'did you mean "orders_total"'),
        ({"metric": "x", "type": "guage"}, 'did you mean "gauge"'),
        ({"metric": "x_total", "events": ["updte"]}, 'did you mean "update"'),
        ({"metric": "x_total", "when": "amount >"}, r"rules\[0\] \(x_total\): 'amount >' is not an expression"),
        ({"metric": "x_total", "when": "now() > at"}, "not deterministic"),
        ({"metric": "x_total", "when": "old.a > (select 1)"}, "no subqueries"),
        ({"metric": "x_total", "when": "orders.a > 1"}, "write old.a, new.a or a"),
        ({"metric": "x_total", "labels": ["event.opp"]}, 'did you mean "op"'),
        ({"metric": "x_total", "labels": ["upper(a)"]}, "neither a column nor NAME=EXPRESSION"),
        ({"metric": "x_total", "labels": ["a", "a"]}, "defined twice"),
        ({"metric": "x_total", "labels": ["le=a"]}, "reserved"),
        ({"metric": "x", "type": "gauge", "when": "old.a > 1"}, "a gauge measures current rows"),
        ({"metric": "x", "type": "gauge", "labels": ["op=event.op"]}, "only be event.table_name or event.table_schema"),
        ({"metric": "x", "type": "gauge", "events": ["insert"]}, "remove events"),
        ({"metric": "x", "type": "histogram", "value": "a"}, "needs them"),
        ({"metric": "x", "type": "histogram", "value": "a", "buckets": [2, 1]}, "ascending numbers"),
        ({"metric": "x_total", "buckets": [1]}, "buckets are for histograms"),
        ({"metric": "x_total", "alert-above": 1, "alert-window": "soon"}, "expected a time"),
        ({"metric": "x_total", "max-series": 0}, "max-series"),
        ({"metric": "tidegate_x_total"}, "a reserved prefix"),
        ({"metric": "x_total", "metrc": "y"}, 'did you mean "sink.metrics-config.rules'),
    ],
)
def test_rules_that_cannot_be_meant(rule: dict[str, object], words: str) -> None:
    """What a rule gets wrong is told at the start, with the rule and the nearest right word."""
    with pytest.raises(ConfigError, match=words):
        rules_of(rule)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("metrics://127.0.0.1", "expected metrics://HOST:PORT"),
        ("metrics://h:99999", "expected metrics://HOST:PORT"),
        ("metrics://?otlp-endpoint=collector:4318", "otlp-endpoint: expected http://HOST/PATH"),
        ("metrics://?otlp-endpont=http://h", 'did you mean "otlp-endpoint"'),
    ],
)
def test_addresses_that_cannot_be_meant(uri: str, words: str, tmp_path: Path) -> None:
    """So is what an address gets wrong."""
    with pytest.raises((UriInvalid, ConfigError), match=words):
        load(source_uri=f"tidb://{tmp_path}", sink_uri=uri, state_dir=tmp_path)


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    """A rule that names a column which a table has not is told when a feed is opened, with the nearest one."""
    live(tmp_path, orders(), sink_of(tmp_path, BY_STATUS))
    wrong = rules_of({"metric": "x_total", "when": "new.amont > 1"})
    with pytest.raises(ConfigError, match=r'names column amont, .* did you mean "amount"'):
        live(tmp_path, orders(), sink_of(tmp_path, wrong))


def test_tables_that_come_back(tmp_path: Path) -> None:
    """A gauge follows tables by their rows: a name is put in when it is shown, what is dropped counts no more, and what
    is recovered counts again."""
    rules = rules_of({"metric": "rows", "type": "gauge", "labels": ["t=event.table_name"]})
    story = orders("RENAME TABLE shop.orders TO shop.sold", "DROP TABLE shop.sold", "RECOVER TABLE shop.sold")
    seen = []
    for ddl in story.ddls(story.ts):
        run_here(ScriptedSource(story), sink_of(tmp_path, rules), until=ddl.commit_ts)
        seen.append(shown(sink_of(tmp_path, rules))["rows"])
    assert seen[1:] == [{("sold",): numbers("2")}, {}, {("sold",): numbers("2")}]


def test_partitions_that_were_made_anew(tmp_path: Path) -> None:
    """Where nobody knows any more which rows lay in a partition, dropping it is refused; the sum stays right till
    then."""
    rules = rules_of({"metric": "rows", "type": "gauge"})
    parts = "PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (10), PARTITION b VALUES LESS THAN (20))"
    story = Script()
    story.ddl("s.t", f"CREATE TABLE s.t (id INT PRIMARY KEY) {parts}")
    story.commit(*(put("s.t", id=number) for number in (1, 2, 11)))
    story.ddl("s.t", "ALTER TABLE s.t REORGANIZE PARTITION b INTO (PARTITION c VALUES LESS THAN (15), "
              "PARTITION d VALUES LESS THAN (20))")  # fmt: skip
    story.resolve()
    story.ddl("s.t", "ALTER TABLE s.t DROP PARTITION a")
    story.resolve()
    with pytest.raises(SinkRefused, match="partitions were recreated before"):
        live(tmp_path, story, sink_of(tmp_path, rules))
    assert shown(sink_of(tmp_path, rules))["rows"] == {(): numbers("3")}
