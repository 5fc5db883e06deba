"""What a topic must bring, what is told about it, and what happens while its broker is away."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.rig import RECORDING, Topic, cli, differences, feed, halves, moment_ts, recorded, started_again
from tidegate.config.changefeed import Changefeed
from tidegate.engine.progress import Progress
from tidegate_upstream.broker import Broker, start_broker, stop_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

MOMENT = 3


@pytest.mark.parametrize("kind", ["open", "canal"])
def test_inspect(request: pytest.FixtureRequest, kind: str) -> None:
    """`topic inspect` counts DDLs, messages and rows of each partition as the recording's makers did."""
    topic: Topic = request.getfixturevalue(f"{kind}_topic")
    truth = json.loads((RECORDING / "manifest.json").read_text())["recordings"][kind]

    told = cli("topic", "inspect", topic.uri(), "--json")
    shown = cli("topic", "inspect", topic.uri())

    found: dict[str, Any] = json.loads(told.stdout)
    assert len(found["ddls"]) == truth["counts"]["ddl_unique"]
    assert f"{truth['counts']['ddl_unique']} DDLs" in shown.stdout
    counted = [(one["messages"], _rows(one["rows"]), one["undecodable"]) for one in found["partitions"]]
    assert counted == [(one["messages"], one["rows"], 0) for one in truth["partitions"]]
    ops = {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}
    assert {ops[op] for table in found["rows"].values() for op in table} == set(ops.values())


def _rows(tables: dict[str, dict[str, int]]) -> int:
    return sum(count for ops in tables.values() for count in ops.values())


def test_no_extension_in_the_uri(bootstrap: str, tmp_path: Path) -> None:
    """Canal-JSON without watermarks is refused before anything starts, with both ways out."""
    refused = cli(
        "run", "--source-uri", f"kafka://{bootstrap}/any?protocol=canal-json", "--sink-uri", f"delta://{tmp_path}/lake"
    )

    assert refused.exit_code == 1
    assert "enable-tidb-extension=true" in refused.stderr
    assert "order=offset" in refused.stderr
    assert not (tmp_path / "lake").exists()


@pytest.mark.usefixtures("spark")
def test_no_extension_in_the_messages(bootstrap: str, tmp_path: Path) -> None:
    """A topic whose rows bear no commit ts stops the feed at the first one, with the way out, and loses nothing."""
    bare = [[(key, _without_extension(value)) for key, value in some] for some in recorded("canal", 1)]
    topic = Topic.fed(bootstrap, "bare", "canal", bare)

    refused = cli(*feed(topic.uri(), tmp_path / "lake", moment=1))

    assert refused.exit_code == 1
    assert "commit_ts" in refused.stderr
    assert "enable-tidb-extension=true" in refused.stderr


def _without_extension(value: bytes) -> bytes:
    message = json.loads(value)
    if message["type"] != "TIDB_WATERMARK":
        message.pop("_tidb", None)
    return json.dumps(message).encode()


@pytest.mark.usefixtures("spark")
def test_silent_partition(bootstrap: str, tmp_path: Path) -> None:
    """While one partition has said nothing, rows land but no checkpoint passes; once it speaks, all is there."""
    lake, whole = tmp_path / "lake", recorded("open", MOMENT)
    topic = Topic.fed(bootstrap, "silent", "open", [whole[0], whole[1], []])

    waited = cli(*feed(topic.uri(), lake, "--stop-when-idle", "2", "--json", moment=None))
    last = json.loads(waited.stdout.splitlines()[-1])

    assert waited.exit_code == 0, waited.stderr
    assert last["rows_landed"] > 0
    assert last["messages"] == len(whole[0]) + len(whole[1])
    assert (last["rows"], last["checkpoint_ts"], last["frontier_ts"]) == (0, None, None)
    assert [one["resolved_ts"] is None for one in last["partitions"]] == [False, False, True]

    stranger = cli(*feed(topic.uri(), lake, "-c", "somebody-else", "--stop-when-idle", "1", moment=None))

    assert stranger.exit_code == 1, "the lake belongs to its feed before the first checkpoint too"
    assert "belongs to changefeed" in stranger.stderr

    topic.send([[], [], whole[2]])

    assert cli(*feed(topic.uri(), lake, moment=MOMENT)).exit_code == 0
    assert differences(lake) == {}


class Outage:
    """A broker that goes away once the feed has applied something, and comes back there with more to read."""

    def __init__(self, broker: Broker, away_s: float) -> None:
        self.broker, self.away_s = broker, away_s
        self.more: Callable[[], None] = lambda: None
        self.back: threading.Thread | None = None
        self.warnings: tuple[str, ...] = ()

    def __call__(self, progress: Progress) -> None:
        """Hear a report; called by the engine itself, which stands while the broker stops."""
        self.warnings = progress.warnings
        if progress.rows and self.back is None:
            stop_broker(self.broker)
            self.back = threading.Thread(target=self._come_back)
            self.back.start()

    def _come_back(self) -> None:
        time.sleep(self.away_s)
        self.broker = started_again(self.broker)
        self.more()


@pytest.mark.soak
def test_broker_restart(spark: "SparkSession", tmp_path: Path) -> None:
    """A feed lives through a restart of its broker: it says that it tries again, goes on, and ends equal."""
    outage = Outage(start_broker(tmp_path / "broker"), away_s=4)
    try:
        first, second = halves(recorded("open", MOMENT))
        topic = Topic.fed(outage.broker.bootstrap, "restarted", "open", first)
        outage.more = lambda: topic.send(second)
        source = topic.uri(max_messages_per_batch=1000, read_timeout="3s")
        done = Changefeed(source, f"delta://{tmp_path}/lake").run(spark, until=moment_ts(MOMENT), on_progress=outage)
    finally:
        if outage.back is not None:
            outage.back.join()
        stop_broker(outage.broker)

    assert outage.back is not None
    assert any("retrying" in warning for warning in done.warnings)
    assert differences(tmp_path / "lake") == {}
