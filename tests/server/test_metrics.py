"""What Prometheus reads is there under TiCDC's names, is never old, and is what dashboard and alerts ask for."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.kit import ServerHome, until
from tidegate.server.record import FeedId
from tidegate.server.server import Server

pytestmark = pytest.mark.slow

OPS = Path(__file__).parents[2] / "ops"
RULES, DASHBOARD = OPS / "prometheus" / "tidegate.rules.yml", OPS / "grafana" / "tidegate.json"
PROMTOOL = "TIDEGATE_TEST_PROMTOOL"
"""Names the program promtool of Prometheus."""
NAME = re.compile(r"\b(?:ticdc|tidegate|process)_[a-z_]+")

ONE, TWO = FeedId("default", "one"), FeedId("default", "two")


@pytest.fixture
def place(tmp_path: Path) -> ServerHome:
    """An upstream with some work behind it."""
    return ServerHome(tmp_path)


@pytest.fixture
def server(place: ServerHome) -> Iterator[Server]:
    """A server with a changefeed that follows and one that has failed."""
    server = place.server()
    until(lambda: server.changefeeds.is_owner)
    feeds = server.changefeeds
    feeds.create(place.wish("one"), "")
    feeds.create(replace(place.wish("two"), sink_uri="callback://tests.server.sinks/refusing"), "")
    end = place.work()
    until(lambda: feeds.get(ONE).checkpoint_ts >= end and feeds.get(TWO).state == "failed")
    feeds.tick()
    yield server
    server.stop()


def samples(server: Server) -> dict[tuple[str, str], float]:
    """Every sample by its name and changefeed."""
    families = text_string_to_metric_families(server.changefeeds.watch.text().decode())
    return {(one.name, one.labels.get("changefeed", "")): one.value for family in families for one in family.samples}


def test_numbers(place: ServerHome, server: Server) -> None:
    """A changefeed's state, rows and lags are those that it has; times are in ms, lags in s."""
    found = samples(server)
    view = server.changefeeds.get(ONE)

    assert view.progress is not None
    assert found["ticdc_owner_status", "one"] == 0
    assert found["ticdc_owner_status", "two"] == 2
    assert found["ticdc_owner_checkpoint_ts", "one"] == view.checkpoint_ts >> 18
    assert found["ticdc_sink_dml_event_count", "one"] == view.progress.rows > 0
    assert found["ticdc_sink_batch_row_count_count", "one"] > 0
    assert found["ticdc_owner_checkpoint_lag_histogram_count", "one"] >= 1
    assert 0 <= found["ticdc_owner_checkpoint_ts_lag", "one"] < 60
    assert found["ticdc_owner_changefeed_error_info", "two"] == 1
    families = text_string_to_metric_families(server.changefeeds.watch.text().decode())
    roads = [one.labels for family in families for one in family.samples if "road_rows_total" in one.name]
    assert ("mount/rows", "few-rows") in {(labels["road"], labels["reason"]) for labels in roads}
    assert {name for labels in roads for name in labels} == {"namespace", "changefeed", "road", "reason"}


def test_lag_of_a_failed_one_grows(server: Server) -> None:
    """The lag of a changefeed that has failed goes on growing; one that is stopped has none."""
    before = samples(server)["ticdc_owner_checkpoint_ts_lag", "two"]
    server.changefeeds.pause(ONE, "")
    after = samples(server)

    assert after["ticdc_owner_checkpoint_ts_lag", "two"] > before
    assert ("ticdc_owner_checkpoint_ts_lag", "one") not in after
    assert after["ticdc_owner_status", "one"] == 3


def test_dashboard_and_alerts_ask_for_what_is_there(server: Server) -> None:
    """Every metric that the dashboard and the alerts name exists."""
    known = {name for name, _ in samples(server)}
    text = server.changefeeds.watch.text().decode()
    known |= set(re.findall(r"# TYPE (\S+) ", text))
    asked = set(NAME.findall(RULES.read_text())) | set(NAME.findall(json.dumps(_exprs())))

    assert len(asked) >= 20
    assert asked <= known, sorted(asked - known)


def _exprs() -> list[str]:
    dashboard = json.loads(DASHBOARD.read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_promtool(server: Server, tmp_path: Path) -> None:
    """Prometheus's own promtool takes the rules and the expressions."""
    if PROMTOOL not in os.environ:
        pytest.skip(f"{PROMTOOL} names no promtool")
    promtool = os.environ[PROMTOOL]
    subprocess.run([promtool, "check", "rules", "--lint=all", RULES], check=True, timeout=60)
    filled = [expr.replace("$namespace", ".*").replace("$changefeed", ".*").replace("$job", "x") for expr in _exprs()]
    rules = {"groups": [{"name": "g", "rules": [{"record": f"x:{at}", "expr": one} for at, one in enumerate(filled)]}]}
    (tmp_path / "exprs.yml").write_text(json.dumps(rules))
    subprocess.run([promtool, "check", "rules", "--lint=none", tmp_path / "exprs.yml"], check=True, timeout=60)
    checked = subprocess.run(
        [promtool, "check", "metrics"],
        input=server.changefeeds.watch.text(),
        timeout=60,
        capture_output=True,
        check=False,
    )
    assert checked.returncode in {0, 3}, checked.stderr.decode()


def test_numbers_of_rows(place: ServerHome, server: Server) -> None:
    """What a changefeed into metrics:// makes of rows stands on the server's page, while it runs."""
    feeds = server.changefeeds
    rules = [{"metric": "changes_total", "labels": ["table=event.table_name"]}]
    config = {"sink": {"metrics-config": {"rules": rules}}}
    feeds.create(replace(place.wish("three"), sink_uri="metrics://", config=config), "")
    three = FeedId("default", "three")
    until(lambda: feeds.get(three).checkpoint_ts >= place.upstream.writer.low)
    until(lambda: ("changes_total", "three") in samples(server))
    assert samples(server)["tidegate_metrics_checkpoint_ts", "three"] > 0
    feeds.pause(three, "")
    until(lambda: ("changes_total", "three") not in samples(server))
