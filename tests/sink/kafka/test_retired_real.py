"""Topics whose last table is gone, with a real broker: a lake over several topics goes on, copies of topics too."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import tidegate
from tests.e2e.rig import cli
from tests.e2e.test_delta import stored
from tests.engine.test_chain import Upstream
from tidegate.model.errors import Retry, SinkError
from tidegate.sink.kafka_writer import NewTopics, TopicWriter
from tidegate_upstream import broker as brokers
from tidegate_upstream.broker import start_broker, stop_broker

pytestmark = pytest.mark.slow

OPTIONS = {"open-protocol": "", "canal-json": "&enable-tidb-extension=true"}
REFRESH = {"topic.metadata.refresh.interval.ms": "200"}


def topics_at(bootstrap: str) -> set[str]:
    """The topics that there are."""
    return set(AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=30).topics)


def delete_topic(bootstrap: str, topic: str) -> None:
    """As an operator does it."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
    assert topic not in topics_at(bootstrap)


class Line:
    """SQL ─► log ─► topics `<name>` and, of table b, `<name>-b` ─► copies of both ─► lakes."""

    def __init__(self, bootstrap: str, name: str, protocol: str, home: Path) -> None:
        self.bootstrap, self.name, self.protocol, self.home = bootstrap, name, protocol, home
        self.upstream = Upstream(1, home / "log")
        self.upstream.run("CREATE DATABASE away; INSERT INTO b VALUES (7, 7, 7)")

    def carry(self, *statements: str) -> int:
        """A run of the feed takes what there is into the topics; the ts up to which that is."""
        for statement in statements:
            self.upstream.run(statement)
        self.upstream.writer.write(empty=True)
        log = f"tidb://{self.home / 'log'}"
        self._run(log, self.uri(self.name), self.name)
        return self.upstream.writer.low

    def copy(self) -> None:
        """A run of a feed from topics to topics takes what there is into the copies."""
        self._run(self.uri(f"{self.name},{self.name}-b"), self.uri(f"{self.name}-copy"), f"{self.name}-copy")

    def land(self, topics: str, lake: str, ts: int) -> None:
        """A lake over some topics comes to a ts, and its table a is then what the upstream's is now."""
        sink = f"delta://{self.home / lake}"
        done = cli("run", "--source-uri", self.uri(topics), "--sink-uri", sink, "--until", str(ts))
        assert done.exit_code == 0, done.output
        found = tidegate.lake(str(self.home / lake))
        assert found.checkpoint_ts == ts
        assert stored(found, "a") == self.upstream.rows("a")
        assert ("test.b" in found.tables()) == ("b" in {row[0] for row in self.upstream.run("SHOW TABLES").rows})  # type: ignore[attr-defined]

    def uri(self, topics: str) -> str:
        """The address of topics."""
        return f"kafka://{self.bootstrap}/{topics}?protocol={self.protocol}{OPTIONS[self.protocol]}"

    def _run(self, source: str, sink: str, default: str) -> None:
        file = self.home / f"{default}.toml"
        file.write_text(
            f'[filter]\nrules = ["test.*"]\n[sink]\ndispatchers = [{{matcher = ["test.b"], topic = "{default}-b"}}]\n'
        )
        ends = ["--state-dir", str(self.home / "state"), "--stop-when-idle", "0.5", "-c", default]
        done = cli("run", str(file), "--source-uri", source, "--sink-uri", sink, *ends)
        assert done.exit_code == 0, done.output


@pytest.mark.usefixtures("spark")
@pytest.mark.soak
@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
def test_a_lake_over_both_topics_goes_on(bootstrap: str, tmp_path: Path, protocol: str) -> None:
    """The last table of one topic is dropped and the feed starts again: lakes of the topics, and of copies of the
    topics, get past it. A topic that is deleted then is not made by the feed, which goes on, as do other lakes."""
    line = Line(bootstrap, f"two-{protocol}", protocol, tmp_path)
    both = f"{line.name},{line.name}-b"
    copies = f"{line.name}-copy,{line.name}-copy-b"
    line.land(both, "lake", line.carry("INSERT INTO a VALUES (1, 1, 1)"))
    line.copy()
    line.carry("DROP TABLE b", "INSERT INTO a VALUES (2, 2, 2)")
    line.copy()

    ts = line.carry("INSERT INTO a VALUES (3, 3, 3)")
    line.copy()
    line.land(both, "lake", ts)
    line.land(copies, "lake-of-copies", ts)

    delete_topic(bootstrap, f"{line.name}-copy-b")
    ts = line.carry("INSERT INTO a VALUES (4, 4, 4)")
    line.copy()
    line.land(f"{line.name}-copy", "lake-of-a-copy", ts)
    delete_topic(bootstrap, f"{line.name}-b")
    ts = line.carry("INSERT INTO a VALUES (5, 5, 5)")
    line.land(line.name, "lake-of-one", ts)
    assert not {f"{line.name}-b", f"{line.name}-copy-b"} & topics_at(bootstrap)


def test_brokers_that_make_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client goes on asking for topics that it has met, which makes deleted ones anew where the broker is set so;
    of one that it has forgotten, and of a keeper's, none comes back. A new topic holds no messages until it gets one.
    """
    monkeypatch.setattr(brokers, "PROPERTIES", brokers.PROPERTIES.replace("auto.create.topics.enable=false", ""))
    broker = start_broker(tmp_path / "broker")
    try:
        writer = TopicWriter({"bootstrap.servers": broker.bootstrap, **REFRESH}, 1 << 20, NewTopics(2))
        keeper = TopicWriter({"bootstrap.servers": broker.bootstrap, **REFRESH}, 1 << 20, None)
        for topic in ("met", "forgotten", "kept"):
            assert writer.partitions(topic) == 2
            assert _answered(partial(writer.filled, [topic, "nowhere"])) == set()
            writer.send(topic, 1, None, b"1")
        writer.forget(["forgotten", "kept"])
        writer.send("met", 1, None, b"2")
        keeper.send("kept", 1, None, b"2")
        writer.flush()
        keeper.flush()
        assert _answered(partial(keeper.filled, ["met", "nowhere"])) == {"met"}
        for topic in ("met", "forgotten", "kept"):
            delete_topic(broker.bootstrap, topic)
        until_s = time.monotonic() + 30
        while not keeper.existing(["met"]) and time.monotonic() < until_s:
            time.sleep(0.1)
        time.sleep(1)

        assert keeper.existing(["met", "forgotten", "kept"]) == {"met": 1}
    finally:
        stop_broker(broker)


def _answered(ask: Callable[[], set[str]]) -> set[str]:
    """What a broker answers once each partition of a new topic has a leader: until then an engine asks again."""
    until_s = time.monotonic() + 30
    while True:
        try:
            return ask()
        except SinkError as error:
            if error.retry is not Retry.LATER or time.monotonic() > until_s:
                raise
        time.sleep(0.1)
