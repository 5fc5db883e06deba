"""Progress reads well in a log and as JSON."""

import io
import json
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace

import msgspec
import pytest

from tidegate.cli.status import words as status_words
from tidegate.config.status import StatusFile, statuses
from tidegate.engine import loop
from tidegate.engine.loop import Meter
from tidegate.engine.plan import Checkpoint, Round
from tidegate.engine.progress import (
    FeedError,
    PartitionProgress,
    PathsSeen,
    Progress,
    TableProgress,
    json_lines,
    line,
    lines,
    load_words,
    slow_words,
)
from tidegate.engine.reading import CaptureProgress, LoadProgress, Reading
from tidegate.model.path_counts import PathCounts, Reason, SlowReason, SlowRows
from tidegate.model.tso import compose, physical_ms
from tidegate.schema.state import SchemaState

TS = compose(1_767_323_045_000)
BUSY = Progress(
    phase="running",
    lag_ms=2_059,
    lands=True,
    rows_landed=1_234_567,
    rows=1_234_000,
    messages=99,
    rows_per_s=54_321.6,
    frontier_ts=TS,
    checkpoint_ts=TS,
    partitions=tuple(PartitionProgress("shop", n, 100 + n, 200, TS + n, 1500 + n) for n in range(40)),
    tables=tuple(TableProgress(f"shop.table_{n:02d}", n * 1000, TS + n, 2000 + n) for n in range(60)),
    ddl="ALTER TABLE `shop`.`orders`\n ADD COLUMN " + "x" * 200,
    ddls=7,
    capture=CaptureProgress(held_by="table shop.t: region 7 at store 3: its scan has not ended, for 62 s at ts 10"),
    dead_letters=2,
    warnings=("a", "b", "order=offset"),
    elapsed_s=12.3,
)


def test_line():
    """One line holds phase, counts, rate, checkpoint, lag and what is left."""
    text = line(BUSY)
    for words in (
        "running",
        "12 s",
        "1,234,567",
        "54,322 rows/s",
        "2026-01-02 03:04:05",
        "lag 2.1 s",
        "dead letters 2",
        "capture: table shop.t: region 7 at store 3: its scan has not ended",
    ):
        assert words in text
    assert "behind 3,220 messages" in text
    assert "\n" not in text
    assert "checkpoint -" in line(Progress(phase="starting"))


@pytest.mark.parametrize(
    ("ms", "words"),
    [(0, "0 ms"), (999, "999 ms"), (2500, "2.5 s"), (840_000, "14 min"), (10_800_000, "3 h"), (432_000_000, "5 d")],
)
def test_lag_has_one_unit(ms, words):
    """A lag is told in the unit that suits it."""
    assert f"lag {words}" in line(Progress(phase="running", lag_ms=ms))


def test_lines_come_at_changes():
    """Without a terminal a line comes when the phase changes, and each warning once."""
    out = io.StringIO()
    with lines(out, every_s=3600) as show:
        for phase in ("starting", "running", "running", "running", "stopped"):
            show(Progress(phase=phase, warnings=("careful",)))
    text = out.getvalue().splitlines()
    assert [row.split()[0] for row in text] == ["warning:", "starting", "running", "stopped"]


def test_lines_come_in_time():
    """A line comes with every report once the interval is over."""
    out = io.StringIO()
    with lines(out, every_s=0) as show:
        for _ in range(3):
            show(BUSY)
    assert len([row for row in out.getvalue().splitlines() if row.startswith("running")]) == 3


def test_json_lines():
    """Every report is one JSON object with all its fields."""
    out = io.StringIO()
    with json_lines(out) as show:
        show(BUSY)
        show(Progress(phase="stopped"))
    first, last = map(json.loads, out.getvalue().splitlines())
    assert first["partitions"][1] == {
        "topic": "shop", "partition": 1, "offset": 101, "high": 200, "resolved_ts": TS + 1, "lag_ms": 1501
    }  # fmt: skip
    assert first["tables"][0]["name"] == "shop.table_00"
    assert (last["phase"], last["checkpoint_ts"]) == ("stopped", None)


EXAMPLE = "shop.t17: 13 rows in a chunk, a template needs 400"
SLOW = SlowRows("land/rows", "few-rows", 6_200, EXAMPLE)
ROADS = Progress(
    "running", "normal", roads={"land/template": 3_800, "land/rows": 6_200, "encode/columns": 9}, slow_roads=(SLOW,)
)
WORDS = f"slow paths: 62% land/rows ({EXAMPLE})"


def test_shares_are_of_a_stage() -> None:
    """A slow way is told with its share of the stage's rows and the example of its most frequent reason."""
    more = SlowRows("land/rows", "value", 3_800, "odd")
    roads = {"land/rows": 10_000, "mount/columns": 90_000}
    assert slow_words(PathsSeen(roads, (SLOW, more))) == f"100% land/rows ({EXAMPLE})"


def test_little_is_not_told() -> None:
    """Neither a twentieth of the rows nor a few hundred rows are worth a word."""
    few = SlowRows("land/rows", "value", 999)
    assert not slow_words(PathsSeen({"land/rows": 999}, (few,)))
    assert not slow_words(PathsSeen({"land/rows": 6_200, "land/template": 117_800}, (SLOW,)))


def test_lines_tell_of_the_time_since_the_last_one() -> None:
    """A line tells what went slow ways since the line before it."""
    out = io.StringIO()
    with lines(out, every_s=0) as show:
        show(ROADS)
        show(ROADS)
    first, second = out.getvalue().splitlines()
    assert WORDS in first
    assert "slow paths" not in second


def test_json_has_all() -> None:
    """JSON has rows by decode path, and each slow path with reason, rows and example."""
    out = io.StringIO()
    with json_lines(out) as show:
        show(ROADS)
    found = json.loads(out.getvalue())
    assert found["roads"] == ROADS.roads
    assert found["slow_roads"] == [{"road": "land/rows", "reason": "few-rows", "rows": 6200, "example": EXAMPLE}]


def test_status_keeps_them(tmp_path: Path) -> None:
    """`tidegate status` tells the slow ways of a feed, in its words and in its JSON."""
    StatusFile(str(tmp_path / "_tidegate"), "feed", "shop", source="kafka://b/t", sink="delta:x").save(ROADS)
    (found,) = statuses(str(tmp_path))
    assert found.slow_roads == (SLOW,)
    assert WORDS in status_words(found)


def test_a_round_does_not_hide_landing() -> None:
    """What has landed stays in the report of a round that is done."""
    told: list[Progress] = []
    meter, landed = Meter(told.append), PathCounts()
    landed.add("land/rows", 5, SlowReason(Reason.FEW_ROWS, "5 rows"), ("s", "t"))
    meter.read(Reading(rows=5, path_counts=landed), None)
    meter.advanced(Round((), SchemaState(), Checkpoint(1), (), ()), ())

    assert told[-1].roads == {"land/rows": 5}
    assert told[-1].slow_roads == (SlowRows("land/rows", "few-rows", 5, "s.t: 5 rows"),)


def test_lags_are_those_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is reported, its lags are as old as the checkpoint is then, also where no table had rows; a parked table
    stands where it stopped."""
    told: list[Progress] = []
    meter, now_ms = Meter(told.append), 1_767_323_045_000

    def at(after_ms: int) -> None:
        monkeypatch.setattr(loop.time, "time", lambda: (now_ms + after_ms) / 1000)

    at(0)
    meter.started(TS, resumed=True)
    assert told[-1].lag_ms == 0
    meter.tables = {name: TableProgress(name, 1, compose(now_ms - 9_000)) for name in ("s.idle", "s.parked")}
    meter.send(
        tables=tuple(meter.tables.values()),
        partitions=(PartitionProgress("t", 0, 1, 1, compose(now_ms - 500)),),
        parked=(FeedError(code="x", message="", since="", table="s.parked", commit_ts=compose(now_ms - 60_000)),),
    )
    for after_ms, report in (
        (1_000, lambda: meter.warn("careful")),
        (2_000, lambda: meter.read(Reading(), None)),
        (3_000, meter.recovered),
    ):
        at(after_ms)
        report()
        assert told[-1].lag_ms == after_ms
        assert [one.lag_ms for one in told[-1].tables] == [after_ms, after_ms + 60_000]
        assert [one.lag_ms for one in told[-1].partitions] in ([], [after_ms + 500])
        assert f"lag {after_ms / 1000:.1f} s" in line(told[-1])


@pytest.mark.parametrize(
    ("reading", "words"),
    [(Reading(), "written 7"), (Reading(rows=9, lands=True), "landed 9  applied 7")],
    ids=["log", "topic"],
)
def test_what_does_not_land_is_written(reading: Reading, words: str) -> None:
    """A source whose rows go straight into the sink has nothing that landed."""
    told: list[Progress] = []
    meter = Meter(told.append)
    meter.read(reading, None)
    shown = meter.send(rows=7)
    assert words in line(shown)
    assert ("landed" in line(shown)) == reading.lands


class _Starting:
    """Tasks that start something."""

    slots = 1

    def on_start(self, told) -> None:
        """Take the listener."""
        self.told = told


def test_the_start_of_spark_is_told() -> None:
    """A line comes as it begins and as it is over; reports between them say it as well."""
    out, tasks = io.StringIO(), _Starting()
    with lines(out, every_s=3600) as show:
        meter = Meter(show)
        loop.Engine(loop.Feed("f", SimpleNamespace(), SimpleNamespace(), lambda *_: True), tasks, meter, Event())
        meter.started(0, resumed=False)
        tasks.told("the start of Spark")
        meter.read(Reading(lands=True), None)
        tasks.told("")
        meter.ended("stopped")
    begins = [text.split("  ")[0] for text in out.getvalue().splitlines()]
    assert begins == ["running", "running (waits for the start of Spark)", "running", "stopped"]


def test_nothing_told_at_the_same_time_is_lost() -> None:
    """Two threads that report different things: the last report has both."""
    meter = Meter(lambda _: None)
    turns = 500

    def tell(name: str) -> None:
        for turn in range(turns):
            meter.send(**{name: turn + 1})

    threads = [Thread(target=tell, args=(name,)) for name in ("rows", "messages", "ddls")]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (meter.now.rows, meter.now.messages, meter.now.ddls) == (turns,) * 3


def test_what_a_capture_holds_is_told() -> None:
    """A line and JSON have its sizes, and what it waits for."""
    capture = CaptureProgress(
        ts=TS, waiting_bytes=3 << 20, spilled_bytes=1 << 20, uncommitted_bytes=512 << 10, held_by="a transaction"
    )
    told = "capture: waiting 4.0 MiB, uncommitted 0.5 MiB, a transaction"
    assert told in line(replace(BUSY, capture=capture))
    out = io.StringIO()
    with json_lines(out) as show:
        show(replace(BUSY, capture=CaptureProgress(waits_for="a job")))
    assert json.loads(out.getvalue())["capture"]["waits_for"] == "a job"
    assert "capture" not in line(replace(BUSY, capture=CaptureProgress(ts=TS)))


LOADING = LoadProgress(TS, 9, 3, 40, 12, "shop.t", physical_ms(TS) + 86_400_000)


def test_a_load_is_shown_while_it_runs():
    """The line, JSON and the status say how far it is; its end is said once."""
    words = (
        "loading shop.t, 12 of 40 chunks, 3 of 9 tables, 30%, S 2026-01-02 03:04:05, GC deadline 2026-01-03 03:04:05"
    )
    done = msgspec.structs.replace(LOADING, chunks_done=40, tables_done=9, table="", guarded_until_ms=0)
    running = Progress("running", state="normal", load=LOADING)

    assert words in line(running)
    assert "load" not in line(replace(running, load=done))
    told, reports = io.StringIO(), io.StringIO()
    with lines(told, every_s=0.0) as show, json_lines(reports) as show_json:
        for load in (None, LOADING, LOADING, done, done):
            show(replace(running, load=load))
            show_json(replace(running, load=load))
    assert told.getvalue().count("loaded 9 tables in 40 chunks, S 2026-01-02 03:04:05: complete\n") == 1
    assert [json.loads(text)["load"] for text in reports.getvalue().splitlines()][1]["chunks_done"] == 12
    again = io.StringIO()
    with lines(again, every_s=0.0) as show:
        show(replace(running, load=done))
    assert "loaded" not in again.getvalue()


def test_the_status_has_the_load(tmp_path):
    """Whoever asks for the status sees it, with what is left out of it."""
    kept = StatusFile(str(tmp_path / "_tidegate"), "feed", "shop", source="tidb:///log", sink="delta:///lake")
    kept.save(Progress("running", state="normal", load=LOADING))
    (status,) = statuses(str(tmp_path))

    assert status.load == LOADING
    assert "; loading shop.t, 12 of 40 chunks" in status_words(status)


@pytest.mark.parametrize(("phase", "left_s"), [("running", 21_600.0), ("stopped", None)])
def test_what_retention_leaves_is_in_the_status(tmp_path: Path, phase: str, left_s: float | None):
    """The status tells how long the topics still have what comes next, while a report of that is not outdated."""
    begin_ts = compose(physical_ms(TS) - 6 * 3_600_000)
    kept = StatusFile(str(tmp_path / "_tidegate"), "feed", "shop", source="kafka://b/t", sink="delta:///lake")
    kept.save(Progress(phase, state="normal", begin_ts=begin_ts, frontier_ts=TS))
    (status,) = statuses(str(tmp_path))

    assert status.history_left_s == left_s
    assert ("; history left 6 h" in status_words(status)) == (left_s is not None)


def test_tables_without_an_event_are_in_the_status():
    """What a load has put there and no change has followed is told: how many, some names, since when."""
    names = tuple(f"shop.t{at}" for at in range(6))
    done = msgspec.structs.replace(LOADING, chunks_done=40, silent=900, silent_tables=names, silent_since=TS)
    assert load_words(done).endswith(
        "900 tables without an event since 2026-01-02 03:04:05 (shop.t0, shop.t1, shop.t2, shop.t3, shop.t4, ..)"
    )
