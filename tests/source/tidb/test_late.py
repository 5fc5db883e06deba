"""Feeds of logs that begin above 0, that are trimmed beside them, and several feeds of one log."""

from pathlib import Path
from typing import Any

import pytest

import tidegate
from tests.e2e.test_delta import stored
from tests.engine.test_chain import TABLES, Upstream
from tests.source.tidb.kit import Broker, feed, target
from tidegate.model.errors import HistoryLost
from tidegate.model.tso import physical_ms
from tidegate.source.tidb_segment import base_of, safe_points, segments, trim
from tidegate.testing.validators import ddls, rows
from tidegate_upstream.serve import LogKeep, trim_log
from tidegate_upstream.tidb.log_writer import LogWriter, begin_log

pytestmark = pytest.mark.slow


def late(seed: int, log: Path) -> Upstream:
    """An upstream that has worked, forgotten its past, and begins a log now."""
    upstream = Upstream(seed, log / "unread")
    for _ in range(20):
        upstream.work()
    upstream.run("CREATE TABLE p (id INT, v TIMESTAMP DEFAULT '2020-02-02 02:02:02', PRIMARY KEY (id)) COMMENT 'it''s'")
    upstream.run("INSERT INTO p (id) VALUES (1), (2)")
    upstream.cluster.collect_garbage(0)
    begin_log(upstream.cluster.storage, log)
    upstream.writer = LogWriter(upstream.writer.log, log, 0)
    return upstream


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_lake_begun_late_has_every_row(spark: Any, tmp_path: Path, seed: int) -> None:
    """A log that was begun on a filled store gives a lake all its rows, and everything that comes then, DDLs too."""
    log, uri = tmp_path / "log", f"delta://{tmp_path / 'lake'}"
    upstream = late(seed, log)
    for _ in range(2):
        tidegate.Changefeed(f"tidb://{log}", uri).run(spark, idle_s=0.2)
        lake = tidegate.lake(str(tmp_path / "lake"))
        assert {name: stored(lake, name) for name in TABLES} == {name: upstream.rows(name) for name in TABLES}
        assert sorted(stored(lake, "p")) == [1, 2]
        for _ in range(12):
            upstream.work()
        upstream.writer.write(empty=True)


def test_a_topic_begun_late_has_every_row(tmp_path: Path) -> None:
    """The rows of a begun log come as inserts before all else; a start-ts behind them leaves them out."""
    log, broker, behind = tmp_path / "log", Broker(1), Broker(1)
    upstream = late(3, log)
    upstream.run("INSERT INTO p (id) VALUES (3)")
    upstream.writer.write()
    feed(log, target(broker, "open-protocol"), tmp_path / "one", rules=("test.*",)).run(idle_s=0)
    start_ts = segments(log)[0][1]
    feed(log, target(behind, "open-protocol"), tmp_path / "two", start_ts=start_ts).run(idle_s=0)

    (events,), (later,) = broker.events("open-protocol").values(), behind.events("open-protocol").values()
    assert ddls(events) == []
    assert [row.after[0] for row in rows(events) if row.table == "p"] == [1, 2, 3]  # type: ignore[union-attr]
    assert {name: len([row for row in rows(events) if row.table == name]) for name in TABLES} == {
        name: len(upstream.rows(name)) for name in TABLES
    }
    assert [row.after[0] for row in rows(later)] == [3]  # type: ignore[union-attr]


def test_a_log_trimmed_behind_its_feeds(tmp_path: Path) -> None:
    """Two feeds of one log, the log trimmed after every run up to the slower one: both write what they would have
    written; a third one that begins below gets an error that says the way out."""
    log, whole = tmp_path / "log", tmp_path / "whole"
    upstream = Upstream(4, log)
    copy = LogWriter(upstream.writer.log, whole, 0)
    quick, slow, calm = Broker(2), Broker(2), Broker(2)
    begins = set()
    for turn in range(8):
        for _ in range(6):
            upstream.work()
        upstream.writer.write(empty=True)
        copy.write(empty=True)
        named = {"rules": ("test.*",), "force": False}
        feed(log, target(quick, "open-protocol"), tmp_path / "q", name="quick", **named).run(idle_s=0)
        if turn % 3 == 2:
            feed(log, target(slow, "open-protocol"), tmp_path / "s", name="slow", **named).run(idle_s=0)
        if turn > 1:
            trim_log(log, LogKeep(0), physical_ms(upstream.writer.low) + 1)
            begins.add(base_of(log))
    feed(log, target(slow, "open-protocol"), tmp_path / "s", name="slow", **named).run(idle_s=0)
    feed(whole, target(calm, "open-protocol"), tmp_path / "c", **named).run(idle_s=0)

    assert len(begins) > 1
    assert {hold.changefeed for hold in safe_points(log)} == {"quick", "slow"}
    for broker in (quick, slow):
        for place, events in calm.events("open-protocol").items():
            found = broker.events("open-protocol")[place]
            assert (rows(found), ddls(found)) == (rows(events), ddls(events))
    with pytest.raises(HistoryLost, match=r"--log-keep.*gc-ttl"):
        feed(log, target(Broker(), "open-protocol"), tmp_path / "t", name="third", start_ts=5).run(idle_s=0)


def test_a_lake_is_never_begun_without_its_rows(spark: Any, tmp_path: Path) -> None:
    """A new lake from a trimmed log is refused; with a start-ts it begins there, without what was before."""
    log, uri = tmp_path / "log", f"delta://{tmp_path / 'lake'}"
    upstream = Upstream(5, log)
    upstream.run("INSERT INTO a VALUES (1, 1, 1)")
    upstream.writer.write()
    upstream.run("INSERT INTO a VALUES (2, 2, 2)")
    upstream.writer.write()
    begin = trim(log, upstream.writer.low)

    with pytest.raises(HistoryLost, match="start-ts"):
        tidegate.Changefeed(f"tidb://{log}", uri).run(spark, idle_s=0)
    done = tidegate.Changefeed(f"tidb://{log}", uri, start_ts=begin).run(spark, idle_s=0.2)
    assert done.checkpoint_ts == upstream.writer.low
    assert stored(tidegate.lake(str(tmp_path / "lake")), "a") == {2: {"id": 2, "v": 2, "u": 2}}
