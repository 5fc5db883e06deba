"""A broker that stays away for longer than the quick tries take: waited out, told, and over when it is back."""

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.rig import Partitions, Topic, differences, halves, moment_ts, recorded, started_again
from tidegate.config.changefeed import Changefeed
from tidegate.engine import retry_policy
from tidegate.engine.progress import Progress
from tidegate.model.errors import SourceError
from tidegate_upstream.broker import Broker, start_broker, stop_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

MOMENT = 3
AWAY_S = 5
"""With one quick try of a second, the second and third are slow ones, retry_policy.SLOW_S apart and more."""


class Away:
    """Stops the broker once something has landed; later starts it again, on the same port, and sends the rest."""

    def __init__(self, broker: Broker, topic: Topic, rest: Partitions) -> None:
        self.broker, self.topic, self.rest = broker, topic, rest
        self.back: threading.Thread | None = None
        self.errors: set[str] = set()
        self.longest_pause_s = 0.0

    def __call__(self, progress: Progress) -> None:
        """Hear a report."""
        if progress.error is not None:
            self.errors.add(progress.error.code)
            self.longest_pause_s = max(self.longest_pause_s, progress.error.next_try_s or 0.0)
        if progress.rows_landed and self.back is None:
            stop_broker(self.broker)
            self.back = threading.Thread(target=self._come_back)
            self.back.start()

    def _come_back(self) -> None:
        time.sleep(AWAY_S)
        self.broker = started_again(self.broker)
        self.topic.send(self.rest)


@pytest.mark.soak
def test_a_long_outage_is_waited_out(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the quick tries are over the feed does not end: it says what it waits for, goes on and ends equal."""
    monkeypatch.setattr(retry_policy, "SLOW_S", 3.0)
    broker, (before, after) = start_broker(tmp_path / "broker"), halves(recorded("open", MOMENT))
    topic = Topic.fed(broker.bootstrap, "away", "open", before)
    away = Away(broker, topic, after)
    try:
        source = topic.uri(max_messages_per_batch=1000, read_timeout="2s", max_retry=1)
        done = Changefeed(source, f"delta://{tmp_path}/lake").run(spark, until=moment_ts(MOMENT), on_progress=away)
    finally:
        if away.back is not None:
            away.back.join()
        stop_broker(away.broker)

    assert away.back is not None
    assert away.longest_pause_s >= retry_policy.SLOW_S
    assert away.errors == {"CDC:ErrSource"}
    assert done.error is None
    assert differences(tmp_path / "lake") == {}


def test_a_wrong_address_is_told_soon(spark: "SparkSession", tmp_path: Path) -> None:
    """At the start, where a broker that does not answer may be a mistake, only the quick tries are made."""
    with pytest.raises(SourceError):
        Changefeed(
            "kafka://127.0.0.1:9/nothing?protocol=open-protocol&max-retry=1&dial-timeout=1s&read-timeout=1s",
            f"delta://{tmp_path}/lake",
        ).run(spark)
