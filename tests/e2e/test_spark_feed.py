"""From segments to a real broker through Spark, by the command line."""

import json
from pathlib import Path

import pytest

from tests.e2e.rig import cli, running
from tests.promises import keep_promises, resolved, without_repeats
from tests.source.tidb.kit import Broker, feed, recorded_log, target
from tests.sources import topics_to_read
from tidegate.codec import decode, from_config
from tidegate.config.kafka import parse_target
from tidegate.model.errors import SinkRefused
from tidegate.model.event import Event, Resolved
from tidegate.source.kafka_fetch import messages
from tidegate.testing.validators import event_text
from tidegate_upstream.broker import MESSAGE_MAX_BYTES

pytestmark = pytest.mark.slow

PROTOCOLS = {"open-protocol": "", "canal-json": "&enable-tidb-extension=true"}
DISPATCHERS = (
    {"matcher": ["gp.pr*"], "partition": "index-value", "topic": "spread"},
    {"matcher": ["gp.pn"], "partition": "ts"},
)
FILE = """
force-replicate = true
[sink]
dispatchers = [
  {matcher = ["gp.pr*"], partition = "index-value", topic = "TOPIC"},
  {matcher = ["gp.pn"], partition = "ts"},
]
"""


def test_what_a_topic_takes(bootstrap: str) -> None:
    """The broker tells a topic's own limit, and makes the topic first."""
    writer = parse_target(f"kafka://{bootstrap}/limits?protocol=open-protocol").writer()

    assert writer.partitions("limits") == 3
    assert writer.max_bytes("limits") == MESSAGE_MAX_BYTES
    assert writer.max_bytes("nowhere") is None


def test_many_messages_at_once(bootstrap: str) -> None:
    """They come in their order and whole; one that is too large is refused, and who flushes hears of it."""
    target = parse_target(f"kafka://{bootstrap}/many?protocol=canal-json&partition-num=1")
    writer = target.writer()
    assert writer.partitions("many") == 1
    sent = [(b"k" if number % 2 else None, b"%d" % number) for number in range(20_000)]

    assert writer.send_all("many", 0, sent) == sum(len(key or b"") + len(value) for key, value in sent)
    writer.flush()

    options = from_config({"protocol": "canal-json"})
    read = [(key or None, value) for key, value, _ in messages(topics_to_read(bootstrap, ("many",), options))]
    assert read == sent
    assert writer.messages == len(sent)
    with pytest.raises(SinkRefused, match="topic many partition 0"):
        writer.send_all("many", 0, [(None, b"x" * (MESSAGE_MAX_BYTES + 1))])


def held(bootstrap: str, topic: str, protocol: str) -> dict[int, list[Event]]:
    """The events of every partition of a topic."""
    options = from_config({"protocol": protocol})
    found: dict[int, list[Event]] = {number: [] for number in range(3)}
    for key, value, place in messages(topics_to_read(bootstrap, (topic,), options)):
        found[int(place.split("/")[1])] += decode(key, value, options)
    return found


def words(log: Path, bootstrap: str, topic: str, protocol: str, home: Path) -> list[str]:
    """The command line of a feed that ends when nothing more comes."""
    file = home / "feed.toml"
    file.write_text(FILE.replace("TOPIC", f"{topic}-spread"))
    uri = f"kafka://{bootstrap}/{topic}?protocol={protocol}&partition-num=3{PROTOCOLS[protocol]}"
    ends = ["--state-dir", str(home / "state"), "--stop-when-idle", "0.5"]
    return ["run", str(file), "--source-uri", f"tidb://{log}?ddl-ts=finish", "--sink-uri", uri, "-c", "t", *ends]


def expected(log: Path, protocol: str, state: Path) -> dict[tuple[str, int], list[Event]]:
    """What the same feed writes in this process, which tests/sink/kafka/test_recorded.py compares with TiCDC."""
    broker = Broker()
    feed(log, target(broker, protocol, DISPATCHERS), state, ticdc_texts=True).run(idle_s=0)
    return broker.events(protocol)


@pytest.mark.parametrize("protocol", ["open-protocol", pytest.param("canal-json", marks=pytest.mark.soak)])
def test_a_recorded_stream_through_spark(bootstrap: str, spark: None, tmp_path: Path, protocol: str) -> None:
    """Each partition of each topic holds, event by event, what the rules say; a second run has nothing to add."""
    log, topic = recorded_log(tmp_path / "log", "partition", 3), f"feed-{protocol}"
    line = words(log, bootstrap, topic, protocol, tmp_path)

    first = cli(*line, "--json")
    second = cli(*line, "--json")

    assert (first.exit_code, second.exit_code) == (0, 0), first.output
    report, again = (json.loads(result.stdout.splitlines()[-1]) for result in (first, second))
    assert (report["state"], report["resumed"], report["rows"], report["ddls"]) == ("stopped", False, 54, 26)
    assert (again["resumed"], again["rows"], again["watermarks"]) == (True, 0, 0)
    assert again["checkpoint_ts"] == report["checkpoint_ts"] == report["frontier_ts"]
    wanted = expected(log, protocol, tmp_path / "calm")
    for name, where in ((topic, "feed"), (f"{topic}-spread", "spread")):
        for number, events in held(bootstrap, name, protocol).items():
            theirs = wanted[where, number]
            keep_promises({(name, number): events}, protocol)
            assert [event_text(e) for e in events if not isinstance(e, Resolved)] == [
                event_text(e) for e in theirs if not isinstance(e, Resolved)
            ]
            assert resolved(events)[-1] == resolved(theirs)[-1] == report["checkpoint_ts"]


@pytest.mark.more
def test_killed_worker_and_killed_driver(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker and then the driver die by SIGKILL with rows on their way; the next run goes on, and what the topic
    holds then is the same but for repetitions."""
    log, topic, protocol = recorded_log(tmp_path / "log", "partition", 3), "killed", "open-protocol"
    line = words(log, bootstrap, topic, protocol, tmp_path)
    (tmp_path / "deeds").mkdir()
    monkeypatch.setenv("TIDEGATE_FAILPOINTS_DIR", str(tmp_path / "deeds"))
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "topic/rows-queued=kill@2,topic/resolved-sent=kill@9")
    with running(line, tmp_path / "first") as one:
        died, _ = one.end()
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    with running(line, tmp_path / "second") as one:
        status, report = one.end()

    assert died == -9
    assert {path.name for path in (tmp_path / "deeds").iterdir()} == {
        "topic.rows-queued.done",
        "topic.resolved-sent.done",
    }
    assert (status, report["resumed"], report["state"]) == (0, True, "stopped"), one.stderr.read_text()
    wanted = expected(log, protocol, tmp_path / "calm")
    repeated = 0
    for name, where in ((topic, "feed"), (f"{topic}-spread", "spread")):
        for number, events in held(bootstrap, name, protocol).items():
            theirs = wanted[where, number]
            assert without_repeats(events) == without_repeats(theirs)
            assert resolved(events)[-1] == resolved(theirs)[-1]
            repeated += len([e for e in events if not isinstance(e, Resolved)]) - len(without_repeats(events))
    assert repeated > 0
