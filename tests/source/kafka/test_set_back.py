"""A target that was emptied or restored, and a changelog that is gone: no row is missing without a word."""

import logging
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source.kafka.broker import Broker, row
from tests.source.kit import OPEN
from tests.sources import topics_to_read
from tidegate.changelog.changelog import changelog_uri, replace
from tidegate.changelog.source import LandedSource
from tidegate.config.kafka import parse_source
from tidegate.engine.ports import LocalTasks
from tidegate.model.errors import MadeAnew, TidegateError
from tidegate.model.table import TableName
from tidegate.source.kafka_land import Landing

ORDERS = TableName("shop", "orders")
ROWS, FIRST_TS = 30, 10
LAST_TS = FIRST_TS + ROWS - 1
FLOOR = FIRST_TS + 19


@pytest.fixture
def broker(monkeypatch) -> Broker:
    made = Broker.instead(monkeypatch)
    made.make("shop", ROWS)
    return made


@pytest.fixture
def home(tmp_path) -> Iterator[str]:
    """A changelog that has all of the topic, and was trimmed up to FLOOR."""
    home = str(tmp_path / "home")
    assert run(home, None) == list(range(FIRST_TS, LAST_TS + 1))
    assert replace(changelog_uri(home), [], [], floor=FLOOR)
    return home


def run(home: str, checkpoint_ts: int | None, **more: object) -> list[int]:
    """The commit_ts that a feed whose sink stands at `checkpoint_ts` gets of the topic."""
    topics = topics_to_read("b:1", ("shop",), OPEN, **more)
    source = LandedSource(lambda: Landing(topics, home, "f", trigger_ms=1), changelog_uri(home))
    at = source.start(LocalTasks(pickles=False), checkpoint_ts)
    try:
        end_s = time.monotonic() + 20
        while (source.frontier() or 0) < LAST_TS:
            failure = source.failure()
            if failure is not None:
                raise failure
            assert time.monotonic() < end_s
            source.refresh()
        return sorted(source.changelog.slice(at, LAST_TS).read(ORDERS).column("commit_ts").to_pylist())
    finally:
        source.stop()


def forget(broker: Broker, messages: int) -> None:
    """Retention takes the first messages; offsets begin anew, as they do in a topic that was made anew."""
    broker.topics["shop"] = broker.topics["shop"][0], [row(n) for n in range(messages, ROWS)]
    for offset, message in enumerate(broker.topics["shop"][1]):
        broker.topics["shop"][1][offset] = message._replace(offset=offset)


@pytest.mark.parametrize(
    ("checkpoint_ts", "words"),
    [(None, "has no progress of this changefeed"), (FLOOR - 1, f"is at ts {FLOOR - 1}")],
)
def test_a_target_that_lost_its_progress_stops_the_feed(broker, home, checkpoint_ts, words):
    """A Redis or a search server that was emptied, a database restored from a backup: its progress is gone, or behind
    what was trimmed. The error says both, and the ways out."""
    for _ in range(2):
        with pytest.raises(MadeAnew) as stopped:
            run(home, checkpoint_ts)
    assert words in str(stopped.value)
    assert f"up to ts {FLOOR}" in str(stopped.value)


def test_the_way_out_by_a_newer_backup(broker, home):
    """A target at what was trimmed, or behind it, goes on."""
    assert run(home, FLOOR) == list(range(FLOOR + 1, LAST_TS + 1))


@pytest.mark.parametrize("checkpoint_ts", [None, FLOOR - 5])
def test_the_way_out_by_landing_again(broker, home, checkpoint_ts, caplog):
    """Once the changelog is removed, as the error says it, the topic lands again, which is said once where the target
    has progress; nothing above that is missing."""
    with pytest.raises(MadeAnew) as stopped:
        run(home, checkpoint_ts)
    shutil.rmtree(str(stopped.value).split("or remove ")[1].split(",")[0])
    with caplog.at_level(logging.WARNING):
        got = run(home, checkpoint_ts)
        run(home, checkpoint_ts)

    assert got == list(range((checkpoint_ts or FIRST_TS - 1) + 1, LAST_TS + 1))
    assert len([one for one in caplog.records if "lands from its first message" in one.getMessage()]) == (
        checkpoint_ts is not None
    )


def test_a_target_that_was_emptied_before_anything_was_trimmed(broker, tmp_path):
    """It gets everything again."""
    home = str(tmp_path / "home")
    run(home, None)
    assert run(home, None) == run(home, FIRST_TS - 1) == list(range(FIRST_TS, LAST_TS + 1))


def test_a_changelog_that_is_gone_and_a_topic_that_does_not_reach_back(broker, home):
    """The topic's first messages are gone too: a feed whose target stands below what the topic has stops, and says so
    at each start, and goes on where the target has what is missing."""
    shutil.rmtree(changelog_uri(home))
    forget(broker, 20)

    for _ in range(2):
        with pytest.raises(MadeAnew, match=f"the target is at ts {FLOOR - 5}, .* above ts {FLOOR + 1}"):
            run(home, FLOOR - 5)

    shutil.rmtree(changelog_uri(home))
    assert run(home, FLOOR + 1) == list(range(FLOOR + 2, LAST_TS + 1))


def test_the_ways_out_of_a_topic_that_does_not_reach_back(broker, home):
    """The changelog put back goes on; `start`, as the error says it, does without what is missing; with everything sent
    again it misses nothing."""
    kept = Path(f"{home}.kept")
    shutil.move(changelog_uri(home), kept)
    whole = broker.topics["shop"]
    forget(broker, 20)
    with pytest.raises(MadeAnew) as stopped:
        run(home, FLOOR - 5)
    said = str(stopped.value).split("continue with start=")[1].split(" ")[0]
    start = parse_source(f"kafka://b:1/shop?protocol=open-protocol&start={said}").start

    assert run(home, FLOOR - 5, start=start) == list(range(FLOOR + 1, LAST_TS + 1))

    shutil.rmtree(changelog_uri(home))
    with pytest.raises(MadeAnew):
        run(home, FLOOR - 5)
    messages = broker.topics["shop"][1]
    messages += [row(n)._replace(offset=len(messages) + at) for at, n in enumerate(range(10, ROWS))]
    assert set(run(home, FLOOR - 5, start=start)) == set(range(FLOOR - 4, LAST_TS + 1))

    shutil.rmtree(changelog_uri(home))
    broker.topics["shop"] = whole
    shutil.move(kept, changelog_uri(home))
    assert run(home, FLOOR) == list(range(FLOOR + 1, LAST_TS + 1))


def test_errors_of_the_kind_end_a_feed():
    """Nobody tries again: nothing mends it."""
    assert issubclass(MadeAnew, TidegateError)
    assert MadeAnew.retry.value == "never"
