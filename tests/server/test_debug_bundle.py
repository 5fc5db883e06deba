"""`tidegate debug bundle`: what it has, and that no secret is in it, nor in what the page shows."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zipfile import ZipFile

import pytest
from click.testing import CliRunner

from tests.server.http_kit import Client, served, token_of
from tests.server.kit import ServerHome, until
from tidegate.cli import options
from tidegate.cli.main import main
from tidegate.engine.log_fields import Tail, log_tail
from tidegate.server.record import FeedId
from tidegate.server.server import Server
from tidegate.verify.compare import Difference, TableReport
from tidegate.verify.last_reports import LAST, TABLES, keep_report, summary

pytestmark = pytest.mark.slow

SECRETS = [f"planted-{number}-7f3a" for number in range(8)]
PAGE = ("overview", "operations", "debug", "changefeeds/{}", "changefeeds/{}/ddls", "changefeeds/{}/dead_letters")


@pytest.fixture
def logging_to(tmp_path: Path) -> Iterator[Path]:
    """A log of everything, as a server writes it."""
    root, file = logging.getLogger(), tmp_path / "server.log"
    level, handlers = root.level, root.handlers[:]
    options.configure(level=logging.DEBUG, file=str(file))
    yield file
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[tuple[Server, Client, ServerHome]]:
    """A server whose settings and environment have secrets, too."""
    place = ServerHome(tmp_path)
    with served(place) as (server, client):
        yield server, client, place


def bundle(file: Path, *words: str) -> dict[str, str]:
    """The entries of a bundle."""
    done = CliRunner().invoke(main, ["debug", "bundle", "--output", str(file), *words])
    assert done.exit_code == 0, done.output
    with ZipFile(file) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def begin(client: Client, server: Server, name: str, sink: str, **more: Any) -> None:
    """A changefeed."""
    body = {"changefeed_id": name, "sink_uri": sink, "start_ts": 1, **more}
    answer = client.ask("POST", "/api/v2/changefeeds", body, **token_of(server))
    assert answer.status == 200, answer.text


def test_no_secret_is_in_it(
    logging_to: Path, serving: tuple[Server, Client, ServerHome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secrets of addresses, settings, the environment, tokens and failing changefeeds are nowhere in the bundle, the
    page's data or the log; all else that the command promises is there."""
    server, client, place = serving
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRETS[0])
    home = quote(str(place.home / "sinks" / "guarded"), safe="")
    begin(client, server, "well", f"callback://tests.server.http_kit/guarded?home={home}&password={SECRETS[1]}")
    kafka = {"sink": {"kafka_config": {"sasl_user": "u", "sasl_password": SECRETS[2]}}}
    begin(client, server, "away", f"callback://tests.server.sinks/telling?password={SECRETS[3]}", replica_config=kafka)
    begin(client, server, "hook", f"http://127.0.0.1:1/{SECRETS[4]}?secret={SECRETS[5]}")
    logging.getLogger("tidegate.test").warning("refused by mysql://u:%s@h/?password=%s", SECRETS[6], SECRETS[7])
    wanted = {FeedId("default", "away"): "failed", FeedId("default", "hook"): "warning"}
    place.work()
    until(lambda: {feed: server.changefeeds.get(feed).state for feed in wanted} == wanted)
    server.changefeeds.tick()

    texts = bundle(tmp_path / "b.zip", "--server", f"http://{client.address}")
    shown = [
        client.ask("GET", f"/api/tidegate/v1/{path.format(name)}").text for path in PAGE for name in ("away", "hook")
    ]
    everything = "\n".join([*texts.values(), *shown, logging_to.read_text(), server.changefeeds.watch.text().decode()])
    assert [secret for secret in [*SECRETS, server.token] if secret and secret in everything] == []

    assert json.loads(texts["errors.json"]) == {}
    feeds = {f"changefeeds/default.{name}{kind}.json" for name in ("well", "away", "hook") for kind in ("", ".page")}
    files = {
        "doctor.json",
        "verify.json",
        "server.json",
        "captures.json",
        "overview.json",
        "operations.json",
        "metrics.txt",
    }
    assert set(texts) == {*feeds, *files, "errors.json"}
    process = json.loads(texts["server.json"])
    assert any("MainThread" in name for name in process["stacks"])
    assert any("refused by" in line for line in process["log"])
    assert json.loads(texts["changefeeds/default.away.page.json"])["id"] == "away"


def test_of_a_state_directory(tmp_path: Path) -> None:
    """Without a server: what its changefeeds have reported, and this machine."""
    (tmp_path / "state").mkdir()
    texts = bundle(tmp_path / "b.zip", str(tmp_path / "state"))
    assert set(texts) == {"doctor.json", "verify.json", "status.json", "errors.json"}


def test_the_last_comparisons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last ten of `tidegate verify`, as counts: neither keys nor values of rows, and tables that differ first."""
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "state").mkdir()
    rows = (Difference("value", ("anna",), "name", "anna", "berta"), Difference("missing row", ("carla",)))
    tables = [summary(TableReport(f"shop.t{number}", 7)) for number in range(TABLES)]
    for number in range(LAST + 2):
        keep_report({"ts": number}, [*tables, summary(TableReport("shop.o", 9, rows, is_whole=False))])

    text = bundle(tmp_path / "b.zip", str(tmp_path / "state"))["verify.json"]
    assert [word for word in ("anna", "berta", "carla") if word in text] == []
    kept = list(json.loads(text).values())
    assert [each["ts"] for each in kept] == list(range(2, LAST + 2))
    assert {(each["compared"], len(each["tables"])) for each in kept} == {(TABLES + 1, TABLES)}
    counts = {"kinds": {"value": 1, "missing row": 1}, "columns": {"name": 1}, "whole": False}
    assert kept[0]["tables"][0] == {"table": "shop.o", "rows": 9, "equal": False, **counts}


def test_without_a_server(tmp_path: Path) -> None:
    """What cannot be had is named, and the rest is there."""
    texts = bundle(tmp_path / "b.zip", "--server", "http://127.0.0.1:1")
    assert "server.json" in json.loads(texts["errors.json"])
    assert json.loads(texts["doctor.json"])


def test_the_tail_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long log, the last lines, each cut."""
    tail = Tail()
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    assert log_tail() == []
    for number in range(Tail.LINES + 5):
        tail.emit(logging.makeLogRecord({"msg": f"{number} {'x' * 10_000}"}))
    assert (len(tail.lines), tail.lines[0][:2]) == (Tail.LINES, "5 ")
    assert max(map(len, tail.lines)) <= 4096
    logging.getLogger().addHandler(tail)
    assert log_tail() == list(tail.lines)
