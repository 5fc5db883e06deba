"""TiCDC's own command line against our server, where there is one: TIDEGATE_TEST_CDC names its program."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.http_kit import Client, served
from tests.server.kit import ServerHome, until
from tidegate.server.config import found_token

CDC = os.environ.get("TIDEGATE_TEST_CDC", "")
pytestmark = pytest.mark.skipif(not CDC, reason="TIDEGATE_TEST_CDC names no `cdc` of TiCDC")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> ServerHome:
    """An upstream with some work behind it."""
    return ServerHome(tmp_path_factory.mktemp("cdc"))


@pytest.fixture(scope="module")
def client(place: ServerHome) -> Iterator[Client]:
    """A server that owns."""
    with served(place) as (_, client):
        yield client


def cdc(client: Client, words: str, *more: str) -> str:
    """What `cdc cli WORDS` prints."""
    command = [CDC, "cli", *words.split(), *more, "--server", f"http://{client.address}"]
    login = {"TICDC_USER": "ann", "TICDC_PASSWORD": found_token(f"http://{client.address}")}
    ran = subprocess.run(
        command, input="y\ny\n", capture_output=True, text=True, timeout=60, check=False, env=os.environ | login
    )
    assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
    return ran.stdout


def test_a_life(client: Client, place: ServerHome, tmp_path: Path) -> None:
    """TiCDC's own verbs make, show, change, end and list changefeeds of ours."""
    assert "Create changefeed successfully!" in cdc(
        client, "changefeed create -c one --no-confirm --sink-uri", place.sink("one")
    )
    (listed,) = json.loads(cdc(client, "changefeed list"))
    assert (listed["id"], listed["summary"]["state"]) == ("one", "normal")
    assert json.loads(cdc(client, "changefeed query -c one"))["sink_uri"] == place.sink("one")
    assert json.loads(cdc(client, "changefeed query -s -c one"))["id"] == "one"
    cdc(client, "changefeed pause -c one")
    until(lambda: client.get("/changefeeds/one").json["state"] == "stopped")
    file = tmp_path / "feed.toml"
    file.write_text("case-sensitive = true\n")
    cdc(client, "changefeed update -c one --no-confirm --config", str(file))
    assert client.get("/changefeeds/one").json["config"]["case_sensitive"] is True
    cdc(client, "changefeed resume -c one --no-confirm")
    until(lambda: client.get("/changefeeds/one").json["state"] == "normal")
    assert [one["is-owner"] for one in json.loads(cdc(client, "capture list"))] == [True]
    cdc(client, "changefeed remove -c one")
    assert json.loads(cdc(client, "changefeed list -a")) == []


def test_statistics(client: Client, place: ServerHome) -> None:
    """TiCDC's statistics reads our timestamps."""
    cdc(client, "changefeed create -c two --no-confirm --sink-uri", place.sink("two"))
    command = [
        CDC,
        *["cli", "changefeed", "statistics", "-c", "two", "-I", "1", "--server"],
        f"http://{client.address}",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = [process.stdout.readline() for _ in range(2)]
        process.kill()

    assert any("gap" in line for line in first)
