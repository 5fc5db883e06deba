"""The loop of a feed into topics: crashes, outages, limits, and what it refuses."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

import tidegate
from tests.failpoint import TOPIC_FAILPOINTS, armed
from tests.promises import keep_promises, resolved, without_repeats
from tests.source.tidb.kit import Broker, changes, failing, feed, recorded_log, target, write_log
from tidegate.engine.ports import LocalTasks
from tidegate.engine.progress import Progress
from tidegate.model.errors import (
    ConfigError,
    EnvironmentFault,
    HistoryLost,
    KvDecodeError,
    MessageTooLarge,
    SinkError,
    SourceBehind,
)
from tidegate.model.event import Ddl, Resolved
from tidegate.sink.kafka_target import TopicTarget
from tidegate.source.tidb_land import LogSource
from tidegate.source.tidb_log import LogPart
from tidegate.source.tidb_segment import SegmentLog, encode_segment, segments
from tidegate.testing.validators import rows

pytestmark = pytest.mark.slow

PROTOCOLS = ("open-protocol", "canal-json")


class Killed(BaseException):
    """Ends a run as a signal would: nothing in the code is there to catch it."""


def at(number: int) -> Callable[[], None]:
    """Dies at the call of that number, counted from 1."""
    left = iter(range(number - 1, -1, -1))

    def die() -> None:
        if next(left, -1) == 0:
            raise Killed

    return die


def untroubled(log: Path, state: Path, protocol: str) -> Broker:
    broker = Broker()
    feed(log, target(broker, protocol), state).run(idle_s=0)
    return broker


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("place", TOPIC_FAILPOINTS)
def test_a_crash_anywhere_gives_repetitions_and_nothing_else(tmp_path: Path, place: str, protocol: str) -> None:
    """Killed four times in a row at a place and started again, a feed writes what an untroubled one does, in its order
    once repetitions are taken out, and nothing new at or below a resolved ts that was told."""
    log = recorded_log(tmp_path / "log", "partition", 3)
    expected = untroubled(log, tmp_path / "calm", protocol)
    broker, deaths = Broker(), 0
    for number in (3, 1, 5, 2):
        with armed({place: at(number)}):
            try:
                feed(log, target(broker, protocol), tmp_path / "state").run(idle_s=0)
            except Killed:
                deaths += 1
    last = feed(log, target(broker, protocol), tmp_path / "state").run(idle_s=0)

    assert deaths == 4
    assert last.resumed
    for where, events in expected.events(protocol).items():
        keep_promises({where: events}, protocol)
        found = broker.events(protocol)[where]
        assert without_repeats(found) == without_repeats(events)
        assert resolved(found)[-1] == resolved(events)[-1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_outages_are_waited_out(tmp_path: Path, protocol: str) -> None:
    """A broker that refuses a message now and then delays the feed; what is sent again is the same, in order."""
    log = recorded_log(tmp_path / "log", "types", 3)
    expected = untroubled(log, tmp_path / "calm", protocol)
    broker = Broker()
    broker.refuse = failing((0, 7, 8, 40, 90, 91, 150))
    done = feed(log, target(broker, protocol), tmp_path / "state").run(idle_s=0)

    assert done.error is None
    for where, events in expected.events(protocol).items():
        assert without_repeats(broker.events(protocol)[where]) == without_repeats(events)


def test_a_stop_ends_in_good_order(tmp_path: Path) -> None:
    """What is in flight is finished and kept, nothing more is begun, and the next run goes on without repeating."""
    log = recorded_log(tmp_path / "log", "types")
    broker = Broker()
    one = feed(log, target(broker, "open-protocol"), tmp_path / "state")
    with armed({"topic/rows-written": one.stop.set}):
        done = one.run()
    other = feed(log, target(broker, "open-protocol"), tmp_path / "state").run(idle_s=0)

    assert (done.state, done.watermarks, done.checkpoint_ts) == ("stopped", 1, one.checkpoint)
    assert (other.resumed, done.rows + other.rows) == (True, 111)
    keep_promises(broker.events("open-protocol"), "open-protocol")


def test_a_stop_ends_the_waiting(tmp_path: Path) -> None:
    """A feed that waits for its broker is stopped without an error; one whose rows cannot be written is not."""
    broker = Broker()
    one = feed(recorded_log(tmp_path / "log", "types"), target(broker, "open-protocol"), tmp_path / "state")

    def away(_topic: str, _partition: int) -> None:
        one.stop.set()
        raise SinkError("away")

    broker.refuse = away
    assert one.run().state == "stopped"
    assert not (tmp_path / "state" / "feed.json").exists()


def test_patience_ends(tmp_path: Path) -> None:
    """A broker that stays away ends the feed with its own error, and the checkpoint is where it was."""
    broker = Broker()
    broker.refuse = failing(range(1000))
    one = feed(recorded_log(tmp_path / "log", "types"), target(broker, "open-protocol"), tmp_path / "state")

    with pytest.raises(SinkError, match="the broker is away"):
        one.run(idle_s=0)
    assert one.checkpoint == 0
    assert one.reports[-1].state == "failed"


def test_start_and_target(tmp_path: Path) -> None:
    """Rows and DDLs lie in (start-ts, target-ts]; a later run takes up behind the target; the checkpoint wins."""
    log = recorded_log(tmp_path / "log", "interleave", 4)
    times = sorted({row.commit_ts for row in changes("interleave")})
    start, middle = times[len(times) // 3], times[len(times) // 2]
    broker = Broker(1)
    first = feed(log, target(broker, "open-protocol"), tmp_path / "state", start_ts=start, target_ts=middle).run()
    half = broker.events("open-protocol")["feed", 0]
    second = feed(log, target(broker, "open-protocol"), tmp_path / "state", start_ts=1).run(idle_s=0)
    whole = broker.events("open-protocol")["feed", 0]

    assert (first.state, first.checkpoint_ts, resolved(half)[-1]) == ("finished", middle, middle)
    assert all(start < (e.ts if isinstance(e, Resolved) else e.commit_ts or 0) <= middle for e in half)
    assert any(isinstance(e, Ddl) for e in half)
    assert rows(half)
    assert (second.state, second.resumed, second.checkpoint_ts) == ("stopped", True, times[-1] + 1)
    keep_promises({("feed", 0): whole}, "open-protocol")
    calm = untroubled(log, tmp_path / "calm", "open-protocol").events("open-protocol").values()
    later = [e for events in calm for e in rows(events) if (e.commit_ts or 0) > start]
    assert sorted(e.commit_ts or 0 for e in rows(whole)) == sorted(e.commit_ts or 0 for e in later)


def test_a_log_that_grows_is_followed(tmp_path: Path) -> None:
    """Segments that come later are taken up where the feed stands; between them nothing is sent twice."""
    rows_of = changes("types")
    half = len(rows_of) // 2
    log = write_log(tmp_path / "log", rows_of[:half])
    broker = Broker()
    one = feed(log, target(broker, "canal-json"), tmp_path / "state")
    one.run(idle_s=0)
    edge = rows_of[half - 1].commit_ts + 1
    whole = write_log(tmp_path / "whole", rows_of, (edge,))
    for path in whole.iterdir():
        (log / path.name).write_bytes(path.read_bytes())
    one.run(idle_s=0)

    events = broker.events("canal-json")
    keep_promises(events, "canal-json")
    assert sum(len(rows(held)) for held in events.values()) == 111


def test_rows_that_are_too_large(tmp_path: Path) -> None:
    """The error names table, timestamp, key, sizes and the ways out; what lies before its stretch is written."""
    made = target(Broker(), "open-protocol", max_message_bytes="9000")
    one = feed(recorded_log(tmp_path / "log", "types"), made, tmp_path / "state")

    with pytest.raises(
        MessageTooLarge, match=r"gt\.t_\w+ at commit_ts \d+.*bytes, but only 9000 are allowed.*claim-check"
    ):
        one.run(idle_s=0)
    assert 0 < one.checkpoint < max(row.commit_ts for row in changes("types"))


def test_the_topic_bounds_messages(tmp_path: Path) -> None:
    """Rows that the topic would refuse are told by table and key, 128 bytes below its limit as TiCDC has it."""
    broker = Broker()
    broker.max_bytes = 9128
    one = feed(recorded_log(tmp_path / "log", "types"), target(broker, "open-protocol"), tmp_path / "state")

    with pytest.raises(MessageTooLarge, match="but only 9000 are allowed"):
        one.run(idle_s=0)


def test_rows_that_cannot_be_mounted(tmp_path: Path) -> None:
    """Damaged values name their timestamp and key, and end the feed before anything of their stretch is resolved."""
    found = changes("types")
    number = next(n for n, row in enumerate(found) if row.key[9:11] == b"_r" and row.value and row.key[1] == 0x80)
    number = next(n for n in range(len(found) - 1, number, -1) if found[n].key[9:11] == b"_r" and found[n].value)
    damaged = [*found]
    row = found[number]
    damaged[number] = type(row)(row.type, row.key, row.start_ts, row.commit_ts, row.op, b"\x80\x00\x01", row.old_value)
    broker = Broker()
    one = feed(write_log(tmp_path / "log", damaged), target(broker, "open-protocol"), tmp_path / "state")

    with pytest.raises(
        KvDecodeError, match=rf"commit_ts {row.commit_ts}, start_ts {row.start_ts}, key {row.key.hex()}"
    ):
        one.run(idle_s=0)
    assert one.checkpoint < row.commit_ts
    assert all(mark < row.commit_ts for events in broker.events("open-protocol").values() for mark in resolved(events))


def test_logs_that_do_not_begin_or_that_break_off(tmp_path: Path) -> None:
    """Definitions come from the first DDL on, so a log that begins later is refused; so is one with a gap."""
    log = recorded_log(tmp_path / "log", "types", 4)
    first, second, *_ = sorted(log.iterdir())
    kept = second.read_bytes()
    second.unlink()
    with pytest.raises(HistoryLost, match="start above it"):
        feed(log, target(Broker(), "open-protocol"), tmp_path / "gap").run(idle_s=0)
    second.write_bytes(kept)
    first.unlink()
    with pytest.raises(HistoryLost, match="write it from 0"):
        feed(log, target(Broker(), "open-protocol"), tmp_path / "late").run(idle_s=0)


def test_one_feed_at_a_time(tmp_path: Path) -> None:
    """A second feed of the same name and state is refused while the first one runs."""
    log = recorded_log(tmp_path / "log", "rename_swap")
    one, other = (feed(log, target(Broker(), "open-protocol"), tmp_path / "state") for _ in range(2))
    with one.checkpoints.run_lock(), pytest.raises(EnvironmentFault, match=r"feed\.lock"):
        other.run(idle_s=0)


def test_a_checkpoint_that_is_none(tmp_path: Path) -> None:
    """A file of something else is not taken for progress, nor overwritten."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "feed.json").write_text('{"other": 1}')
    one = feed(recorded_log(tmp_path / "log", "rename_swap"), target(Broker(), "open-protocol"), tmp_path / "state")
    with pytest.raises(ConfigError, match="not a changefeed checkpoint"):
        one.run(idle_s=0)
    assert (tmp_path / "state" / "feed.json").read_text() == '{"other": 1}'


def test_another_topic_needs_another_name(tmp_path: Path) -> None:
    """A checkpoint tells how far one topic is, and says nothing of another."""
    log = recorded_log(tmp_path / "log", "types")
    feed(log, target(Broker(), "open-protocol"), tmp_path / "state").run(idle_s=0)
    made = msgspec.structs.replace(target(Broker(), "open-protocol"), topic="other")
    with pytest.raises(ConfigError, match="into feed, not other"):
        feed(log, made, tmp_path / "state").run(idle_s=0)


def test_a_log_that_is_not_there_yet(tmp_path: Path) -> None:
    """A feed waits for the log to come as far as its start, and writes nothing meanwhile."""
    log = recorded_log(tmp_path / "log", "types")
    broker = Broker()
    for directory, start in ((tmp_path / "empty", None), (log, 1 << 62)):
        done = feed(directory, target(broker, "open-protocol"), tmp_path / "state", start_ts=start).run(idle_s=0)
        assert (done.state, done.watermarks) == ("stopped", 0)
    assert not broker.messages
    assert not (tmp_path / "state" / "feed.json").exists()


def test_fewer_partitions_than_there_are(tmp_path: Path) -> None:
    """partition-num below the topic's count leaves the others alone; above it is an error that says both."""
    log = recorded_log(tmp_path / "log", "types")
    broker = Broker(5)
    made = target(broker, "open-protocol")
    feed(log, msgspec.structs.replace(made, partition_num=2), tmp_path / "state").run(idle_s=0)
    assert {number for _, number in broker.messages} == {0, 1}

    with pytest.raises(ConfigError, match="partition-num is 6, but topic feed has 5"):
        feed(log, msgspec.structs.replace(made, partition_num=6), tmp_path / "other").run(idle_s=0)


DISPATCHERS = (
    {"matcher": ["gt.t_int"], "partition": "index-value"},
    {"matcher": ["gt.t_str"], "topic": "text_{table}", "partition": "ts"},
    {"matcher": ["gt.t_misc"], "topic": "text_{table}"},
)


@pytest.mark.parametrize("tasks", [1, 3, 16])
def test_dispatchers(tmp_path: Path, tasks: int) -> None:
    """However many tasks there are, rows lie where the rules put them, once and in order; DDLs are in the topic of
    their table, those of databases in the default one, and every topic of a living table is resolved."""
    log = recorded_log(tmp_path / "log", "types")
    broker = Broker(4)
    done = feed(log, target(broker, "open-protocol", DISPATCHERS), tmp_path / "state", tasks=tasks).run(idle_s=0)
    events = broker.events("open-protocol")
    by_table: dict[str, set[tuple[str, int]]] = {}
    for where, held in events.items():
        keep_promises({where: held}, "open-protocol")
        for row in rows(held):
            by_table.setdefault(row.table, set()).add(where)

    assert done.rows == 111 == sum(len(rows(held)) for held in events.values())
    assert {topic for topic, _ in events} == {"feed", "text_t_str", "text_t_misc"}
    assert len(by_table.pop("t_int")) > 1
    assert {topic for topic, _ in by_table.pop("t_str")} == {"text_t_str"}
    assert all(len(places) == 1 for places in by_table.values())
    ddls = {where: [ddl.table for ddl in held if isinstance(ddl, Ddl)] for where, held in events.items()}
    assert ddls["text_t_str", 3] == ["t_str"]
    assert "" in ddls["feed", 0]
    assert "t_str" not in ddls["feed", 0]
    last = {where: resolved(held)[-1] for where, held in events.items()}
    assert set(last.values()) == {done.checkpoint_ts}


class Beating(SegmentLog):
    """A log whose upstream is alive and has nothing to say: each look finds one more empty segment."""

    beats = 0

    def parts(self, low: int, high: int | None = None) -> Sequence[LogPart]:
        """One part more, up to a hundred thousand of them."""
        if Beating.beats < 100_000:
            Beating.beats += 1
            end = segments(self.directory)[-1][1]
            name = f"{end:020d}-{end + 1:020d}.seg"
            (self.directory / name).write_bytes(encode_segment(end, end + 1, []))
        return SegmentLog.parts(self, low, high)


def test_time_alone_keeps_no_feed_up(tmp_path: Path) -> None:
    """A feed that ends when nothing comes ends although the log goes on, and has told how far it is."""
    log, broker = recorded_log(tmp_path / "log", "partition", 3), Broker()
    made = feed(log, target(broker, "open-protocol"), tmp_path / "state", open=Beating)

    done = made.run(idle_s=0.2)

    assert 0 < Beating.beats < 100_000
    assert (done.rows, done.ddls) == (54, 26)
    assert done.checkpoint_ts == made.checkpoint > segments(log)[2][1]


def test_the_python_call_for_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tidegate.Changefeed` takes a log to a topic too, up to a ts, and reports as any feed does."""
    log, broker, heard = recorded_log(tmp_path / "log", "partition", 3), Broker(), list[Progress]()
    made = target(broker, "open-protocol")
    for name in ("writer", "keeper"):
        monkeypatch.setattr(TopicTarget, name, lambda _: made.writer())
    sink = "kafka://h:9092/feed?protocol=open-protocol"
    one = tidegate.Changefeed(f"tidb://{log}", sink, name="one", state_dir=tmp_path / "state")
    until = segments(log)[1][1]

    done = one.run(tasks=LocalTasks(pickles=False), on_progress=heard.append, until=until)

    assert (done.phase, done.checkpoint_ts) == ("stopped", until)
    assert list(dict.fromkeys(each.phase for each in heard)) == ["starting", "running", "stopping", "stopped"]
    assert 0 < done.rows == sum(len(rows(events)) for events in broker.events("open-protocol").values())
    with pytest.raises(ConfigError, match="state-dir"):
        tidegate.Changefeed(f"tidb://{log}", sink)


def test_a_wait_for_the_log_is_a_warning_until_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that goes on, and does not reach the checkpoint yet, has one warning, which is gone once the feed runs."""
    log, heard = recorded_log(tmp_path / "log", "partition", 3), list[Progress]()
    begin, waits = LogSource.start, iter(("goes up to 1", "goes up to 2"))

    def start(source: LogSource, tasks: LocalTasks, checkpoint_ts: int | None) -> int:
        if (text := next(waits, "")) != "":
            raise SourceBehind(text)
        return begin(source, tasks, checkpoint_ts)

    monkeypatch.setattr(LogSource, "start", start)
    sink, state = f"file://{tmp_path}/files?protocol=canal-json", tmp_path / "state"
    waiting = tidegate.Changefeed(f"tidb://{log}", sink, name="waiting", state_dir=state)
    waiting.run(tasks=LocalTasks(), on_progress=heard.append, until=segments(log)[0][1])
    seen = list(dict.fromkeys(tuple(text for text in each.warnings if "goes up" in text) for each in heard))
    assert seen == [(), ("goes up to 1",), ("goes up to 2",)]
    assert not [text for text in heard[-1].warnings if "goes up" in text]
