"""A changefeed from tidb:// and a broker that refuses a row, is not there yet, or goes away: told, and taken up."""

import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tests.e2e.rig import started_again
from tests.source.tidb import kit
from tidegate.codec import decode, from_config
from tidegate.config.changefeed import Changefeed
from tidegate.config.load import load
from tidegate.config.status import FeedStatus, statuses
from tidegate.engine import retry_policy
from tidegate.engine.ports import LocalTasks
from tidegate.engine.progress import Progress
from tidegate.model.errors import MessageTooLarge, SinkError
from tidegate.model.event import Event, Resolved
from tidegate.sink import kafka_writer as writer
from tidegate_upstream.broker import Broker, start_broker, stop_broker

pytestmark = pytest.mark.slow

OPTIONS = from_config({"protocol": "open-protocol"})
PARTITIONS = 3
AWAY_S = 4
Told = set[tuple[int, bytes]]
"""Partition and event of rows and DDLs, each once however often it was sent."""


class Feed:
    """A changefeed from a recorded log to its end, whose tasks run in this process, and what it reported."""

    def __init__(self, directory: Path, bootstrap: str, topic: str) -> None:
        self.log, self.state, self.seen = directory / "log", directory / "state", list[Progress]()
        self.also: Callable[[Progress], None] = lambda _: None
        if not self.log.exists():
            kit.recorded_log(self.log, "types", 6)
        (directory / "feed.toml").write_text("force-replicate = true\n")
        uri = f"kafka://{bootstrap}/{topic}?protocol=open-protocol&partition-num={PARTITIONS}&dial-timeout=1s"
        self.config = load(
            directory / "feed.toml",
            source_uri=f"tidb://{self.log}?max-retry=2",
            sink_uri=uri,
            state_dir=self.state,
            target_ts=kit.changes("types")[-1].commit_ts,
        )

    def run(self) -> Progress:
        """To the target, or to the error."""
        return Changefeed(self.config).run(tasks=LocalTasks(pickles=False), on_progress=self.hear)

    def hear(self, progress: Progress) -> None:
        """A report."""
        self.seen.append(progress)
        self.also(progress)

    def states(self) -> list[str]:
        """The states in their order."""
        found = [each.state for each in self.seen]
        return [state for at, state in enumerate(found) if at == 0 or state != found[at - 1]]

    def status(self) -> FeedStatus:
        """What is kept of it."""
        [found] = statuses(str(self.state))
        return found

    def expected(self) -> Told:
        """What an untroubled feed into memory writes."""
        broker = kit.Broker(PARTITIONS)
        calm = self.state.with_name("calm")
        kit.feed(self.log, kit.target(broker, "open-protocol"), calm, ticdc_texts=True).run(idle_s=0)
        return {
            each for (_, number), events in broker.events("open-protocol").items() for each in _told(number, events)
        }


def written(bootstrap: str, topic: str) -> Told:
    """What a topic holds."""
    consumer, found = Consumer({"bootstrap.servers": bootstrap, "group.id": "look"}), Told()
    for number in range(PARTITIONS):
        place = TopicPartition(topic, number, 0)
        _, high = consumer.get_watermark_offsets(place, timeout=10)
        consumer.assign([place])
        at = 0
        while at < high:
            message = consumer.poll(10)
            assert message is not None
            assert message.error() is None
            at = message.offset() + 1
            found |= set(_told(number, decode(message.key(), message.value(), OPTIONS)))
    consumer.close()
    return found


def _told(number: int, events: Iterable[Event]) -> list[tuple[int, bytes]]:
    return [(number, msgspec.json.encode(event)) for event in events if not isinstance(event, Resolved)]


def test_a_row_larger_than_the_topic_takes(bootstrap: str, tmp_path: Path) -> None:
    """The feed has failed at that row, in words and in the status; once the topic takes it, it arrives, and with it all
    that lies behind."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("large", PARTITIONS, 1, config={"max.message.bytes": "9128"})])["large"].result(20)
    feed = Feed(tmp_path, bootstrap, "large")
    expected = feed.expected()
    with pytest.raises(MessageTooLarge):
        feed.run()

    failed = feed.status()
    assert failed.error is not None
    assert (failed.state, failed.running, failed.error.code) == ("failed", False, "CDC:ErrMessageTooLarge")
    assert failed.error.table.startswith("gt.t_")
    assert 0 < failed.checkpoint_ts < failed.error.commit_ts
    assert written(bootstrap, "large") < expected

    entry = ConfigEntry("max.message.bytes", "1048576", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ConfigResource.Type.TOPIC, "large", incremental_configs=[entry])
    for done in admin.incremental_alter_configs([change]).values():
        done.result(20)
    assert feed.run().state == "finished"
    assert written(bootstrap, "large") == expected
    assert (feed.status().state, feed.status().error) == ("finished", None)


def lasting_port() -> int:
    """A free port below those that the system gives to connections, which might take it meanwhile."""
    for port in Random().sample(range(20_000, 32_000), 100):
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
    pytest.fail("none of 100 ports is free")


@pytest.mark.more
def test_a_broker_that_is_not_there_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start the quick tries are warnings, then the feed has failed: the address may be wrong.  Run again when
    the broker is there, it begins as if nothing had been."""
    monkeypatch.setattr(writer, "WAIT_S", 1.0)
    port = lasting_port()
    feed = Feed(tmp_path, f"127.0.0.1:{port}", "late")
    with pytest.raises(SinkError):
        feed.run()
    assert feed.states() == ["pending", "warning", "failed"]
    monkeypatch.undo()
    assert feed.status().state == "failed"
    error = feed.status().error
    assert error is not None
    assert (error.code, error.tries > 1, str(port) in error.message) == ("CDC:ErrSink", True, True)

    broker = start_broker(tmp_path / "broker", port)
    try:
        assert feed.run().state == "finished"
        assert written(broker.bootstrap, "late") == feed.expected()
    finally:
        stop_broker(broker)


class Away:
    """A broker that stops when the feed has come some way, and is back on the same port a little later."""

    def __init__(self, directory: Path) -> None:
        self.broker: Broker = start_broker(directory)
        self.back: threading.Thread | None = None

    def hear(self, progress: Progress) -> None:
        """Stops at the first rows."""
        if progress.rows and self.back is None:
            stop_broker(self.broker)
            self.back = threading.Thread(target=self._come_back)
            self.back.start()

    def _come_back(self) -> None:
        time.sleep(AWAY_S)
        self.broker = started_again(self.broker)


def test_a_broker_that_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client waits a while by itself, then it is a warning as long as the broker is away; then the feed goes on to
    its end, and nothing is missing."""
    monkeypatch.setattr(writer, "WAIT_S", 1.0)
    monkeypatch.setattr(retry_policy, "SLOW_S", 1.0)
    away = Away(tmp_path / "broker")
    feed = Feed(tmp_path, away.broker.bootstrap, "away")
    feed.also = away.hear
    try:
        done = feed.run()
        assert away.back is not None
        away.back.join()
        assert done.state == "finished"
        assert feed.states()[:3] == ["pending", "normal", "warning"]
        assert feed.states()[-2:] == ["normal", "finished"]
        assert {each.error.code for each in feed.seen if each.error is not None} == {"CDC:ErrSink"}
        assert written(away.broker.bootstrap, "away") == feed.expected()
    finally:
        if away.back is not None:
            away.back.join()
        stop_broker(away.broker)
