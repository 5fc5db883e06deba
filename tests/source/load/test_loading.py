"""The full load as a source: what is written down, what it waits for, what it refuses, and what its rows are."""

from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from tidegate.engine.chunk_size import CHUNK_BYTES
from tidegate.engine.event_expression import event_filter
from tidegate.engine.load import LoadingSource
from tidegate.engine.load_plan import KeptPlan, LoadGuard, begin_ts, create_statements, defined_ts
from tidegate.engine.loop import Meter
from tidegate.engine.ports import LocalTasks
from tidegate.engine.progress import load_words
from tidegate.engine.reading import PartitionReached, Reading
from tidegate.model.errors import ConfigError, HistoryLost, SourceBehind, SourceError, StateTooNew
from tidegate.model.table import TableName
from tidegate.sink.sqlite import SqliteSink
from tidegate.testing.contract import stories
from tidegate.testing.script import Script, ScriptedLoad, ScriptedSource, put, run_here

KEPT = Path(__file__).parents[2] / "data" / "state_kept" / "load"
ACCOUNTS = TableName("shop", "accounts")


class CountedLoad(ScriptedLoad):
    """A reader that notes how often it planned."""

    plans = 0

    def plan(self, selects: Any, ts: int | None = None) -> Any:
        self.plans += 1
        return super().plan(selects, ts)


class Silent(ScriptedSource):
    """A source of which one partition has not brought a watermark yet."""

    def frontier(self) -> int | None:
        return None

    def reading(self) -> Reading:
        return Reading(partitions=(PartitionReached("t", 0, 5, 5, 7), PartitionReached("t", 3, 0, 0, None)))


class Ahead(ScriptedSource):
    """A source that has come to its end already."""

    def frontier(self) -> int | None:
        return self.script.ts


def loading(tmp_path: Path, story: Script, **how: Any) -> tuple[CountedLoad, LoadingSource]:
    """A load at the story's second mark, and the story behind it."""
    load = CountedLoad(story, story.marks[1])
    how = {"ordered": True, "keyless": True, "stream": ScriptedSource(story), **how}
    return load, LoadingSource(load, KeptPlan(str(tmp_path)), lambda *_: True, **how)


def test_a_plan_is_taken_once(tmp_path: Path) -> None:
    """S, definitions and chunks are those of the file, whatever the database would say now."""
    load, source = loading(tmp_path, stories.shop())
    assert source.start(LocalTasks(), None) == begin_ts(load.load_plan)
    again, later = loading(tmp_path, stories.shop())
    assert later.start(LocalTasks(), None) == begin_ts(load.load_plan)
    assert (load.plans, again.plans) == (1, 0)
    assert KeptPlan(str(tmp_path)).read() == load.load_plan


def test_a_kept_plan_goes_on() -> None:
    """A plan that an earlier release wrote is the plan of this one: tables, keys, partitions and chunks."""
    plan = KeptPlan(str(KEPT)).read()
    assert plan is not None
    assert (plan.ts, begin_ts(plan)) == (470753579480383490, 470753579480383490 - 6 - 7)
    keys = {str(table.name): (table.key, table.partitions) for table in plan.tables}
    assert keys["shop.p"] == (("id",), ("p0", "p1"))
    assert keys["shop.nokey"] == (("_tidb_rowid",), ())
    assert [chunk.partition for chunk in plan.chunks if plan.table_of(chunk).name.table == "p"] == ["p0", "p1"]


def test_a_plan_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    """A plan of a higher version stops the load, and is left as it is."""
    _, source = loading(tmp_path, stories.shop())
    source.start(LocalTasks(), None)
    file = tmp_path / "_tidegate/load.json"
    newer = file.read_bytes().replace(b'{"state_version":1', b'{"state_version":99', 1)
    file.write_bytes(newer)
    with pytest.raises(StateTooNew):
        source.start(LocalTasks(), None)
    assert file.read_bytes() == newer


def test_ticks_below_s(tmp_path: Path) -> None:
    """Definitions and chunks have timestamps of their own, S is that of the last chunk, and the stream has none of
    them."""
    story = stories.shop()
    load, source = loading(tmp_path, story)
    begin = source.start(LocalTasks(), None)
    plan = load.load_plan
    ddls = source.ddls(begin, plan.ts)
    assert [one.ddl.commit_ts for one in ddls] == list(range(begin + 1, defined_ts(plan) + 1))
    assert [one.ddl for one in ddls] == create_statements(plan)
    ranges = list(source.changes(begin, plan.ts).row_ranges())
    assert [part.first_ts for part in ranges] == list(range(defined_ts(plan) + 1, plan.ts + 1))
    assert source.frontier() == source.whole_from() == plan.ts
    source.release(plan.ts)
    behind = source.ddls(plan.ts, story.ts)
    assert min(one.ddl.commit_ts or 0 for one in behind) > plan.ts


def test_waits_for_watermarks(tmp_path: Path) -> None:
    """S is taken once each partition has brought a watermark; the one that has not is named."""
    story = stories.shop()
    load, source = loading(tmp_path, story, stream=Silent(story), ordered=False)
    with pytest.raises(SourceBehind, match="t partition 3"):
        source.start(LocalTasks(), None)
    assert load.plans == 0


def test_another_cluster_is_refused(tmp_path: Path) -> None:
    """A topic that is ahead of the database's clock is not that database's."""
    story = stories.shop()
    story.marks[:] = [story.ts]
    load = CountedLoad(story, story.ts - (1 << 30))
    stream = ScriptedSource(story)
    source = LoadingSource(load, KeptPlan(str(tmp_path)), lambda *_: True, stream, ordered=False)
    with pytest.raises(ConfigError, match="another cluster"):
        source.start(LocalTasks(), None)


def test_keyless_tables_are_named(tmp_path: Path) -> None:
    """A table whose changes do not follow is not loaded, and told; a restart tells it, too."""
    for _ in range(2):
        load, source = loading(tmp_path, stories.shop(), keyless=False)
        begin = source.start(LocalTasks(), None)
        names = {one.ddl.table for one in source.ddls(begin, load.load_plan.ts)}
        assert names == {"", "accounts", "orders"}
        assert [one.table for one in source.reading().left_out] == ["shop.visits"]
        assert {str(name) for name in source.changes(begin, load.load_plan.ts).tables()} == {
            "shop.accounts",
            "shop.orders",
        }


def test_row_filters_apply(tmp_path: Path) -> None:
    """An INSERT that an event filter leaves out upstream is left out of the load."""
    rule = {"matcher": ["shop.accounts"], "ignore-insert-value-expr": "balance < 99"}
    events = event_filter({"filter": {"event-filters": [rule]}}, case_sensitive=False)
    load, source = loading(tmp_path, stories.shop(), events=events)
    begin = source.start(LocalTasks(), None)
    chunks = list(source.changes(begin, load.load_plan.ts).batches(ACCOUNTS, begin, load.load_plan.ts))
    balances = [value for chunk in chunks for value in chunk.parts[0].batch.after.column("balance").to_pylist()]
    assert sorted(balances) == [99, 100, 100]
    assert sum(chunk.path_counts.left_out for chunk in chunks) == 1


def test_a_lost_s_ends_the_load(tmp_path: Path) -> None:
    """The guard's error is the load's; a load that is done needs no guard."""

    class Lost(LoadGuard):
        def check(self) -> None:
            raise HistoryLost("S is gone")

    load, source = loading(tmp_path, stories.shop(), guard=lambda _: Lost())
    source.start(LocalTasks(), None)
    with pytest.raises(HistoryLost):
        source.refresh()
    source.release(load.load_plan.ts)
    source.refresh()


def test_hours_of_a_load(tmp_path: Path) -> None:
    """Outside its hours no row is read and no table is made, which the progress says; the stream knows no hours."""

    class Resting(LoadGuard):
        until = "22:00+00:00"

        def rests_until(self) -> str:
            return self.until

    guard = Resting()
    load, source = loading(tmp_path, stories.shop(), guard=lambda _: guard)
    begin = source.start(LocalTasks(), None)
    now = source.reading().load
    assert now is not None
    assert (source.frontier(), now.rests_until) == (begin, guard.until)
    assert "rests until 22:00" in load_words(now)
    guard.until = ""
    assert source.frontier() == load.load_plan.ts
    source.release(load.load_plan.ts)
    guard.until = "22:00+00:00"
    assert source.frontier() == ScriptedSource(stories.shop()).frontier()


def test_few_connections(tmp_path: Path) -> None:
    """So many tasks read rows at the same time as there may be connections; those of the stream are not limited."""

    class Noting(LocalTasks):
        runs: ClassVar[list[int]] = []

        def run(self, work: Any, jobs: Any) -> Any:
            self.runs.append(len(jobs))
            return super().run(work, jobs)

    load, source = loading(tmp_path, stories.shop(), connections=3)
    tasks = Noting(8, pickles=False)
    source.start(tasks, None)
    limited = source.limited(tasks)
    assert limited.run(lambda job: -job, range(8)) == [-job for job in range(8)]
    assert (limited.slots, tasks.runs) == (3, [3, 3, 2])
    source.release(load.load_plan.ts)
    assert source.limited(tasks) is tasks


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_gc_life_time_is_set_back(tmp_path: Path, *, dies: bool, fails: bool) -> None:
    """Behind the load, by whichever run comes first; one that cannot says what it was, and the next one tries again."""

    class Holding(LoadGuard):
        restored = 0

        def restore(self) -> None:
            self.restored += 1
            if fails and self.restored == 1:
                raise SourceError("away")

    guard, kept = Holding(), KeptPlan(str(tmp_path))

    def begun(at: int | None) -> tuple[LoadingSource, int]:
        load, source = loading(tmp_path, stories.shop(), guard=lambda _: guard)
        load.load_plan = msgspec.structs.replace(load.load_plan, gc_life_time=("10m0s", "72h"))
        source.start(LocalTasks(), at)
        return source, load.load_plan.ts

    source, ts = begun(None)
    source.release(ts - 1)
    assert guard.restored == 0
    if not dies:
        source.release(ts)
        source.release(ts)
        warned = [text for text in source.reading().warnings if "is 72h since the load, and was 10m0s" in text]
        assert (guard.restored, len(warned)) == (1, int(fails))
    for _ in range(3):
        source, _ = begun(ts)
        source.release(ts)
    plan = kept.read()
    assert plan is not None
    assert (guard.restored, plan.gc_life_time) == (1 + fails, ())


def test_progress(tmp_path: Path) -> None:
    """The report counts tables and chunks that are done, and names the table that is read."""
    load, source = loading(tmp_path, stories.shop())
    source.start(LocalTasks(), None)
    source.release(defined_ts(load.load_plan) + 2)
    now = source.reading().load
    assert now is not None
    assert (now.tables, now.tables_done, now.chunks, now.chunks_done) == (3, 1, len(load.load_plan.chunks), 2)
    assert now.table == "shop.visits"
    assert (now.bytes_done, now.size_bytes) == (2 * CHUNK_BYTES, len(load.load_plan.chunks) * CHUNK_BYTES)
    assert "MiB/s" not in load_words(now)
    meter = Meter(lambda _: None)
    meter.read(source.reading(), None)
    source.release(defined_ts(load.load_plan) + 3)
    meter.read(source.reading(), None)
    later = meter.now.load
    assert later is not None
    assert later.bytes_per_s > 0 < later.left_s
    assert "MiB/s, about" in load_words(later)
    source.release(load.load_plan.ts)
    meter.read(source.reading(), None)
    done = meter.now.load
    assert done is not None
    assert (done.is_done, done.tables_done, done.table) == (True, 3, "")
    assert done.duration_s > later.duration_s > now.duration_s == 0
    meter.read(source.reading(), None)
    assert meter.now.load == done
    assert Meter(lambda _: None).measured(source.reading().load) == source.reading().load


def test_replaced_plan(tmp_path: Path) -> None:
    """Of two runs that plan at once, both follow the plan that was written first."""
    load, _ = loading(tmp_path, stories.shop())
    kept, other = KeptPlan(str(tmp_path)), KeptPlan(str(tmp_path))
    assert kept.write(load.load_plan) == load.load_plan
    assert other.write(msgspec.structs.replace(load.load_plan, ts=5)) == load.load_plan


def test_a_load_that_somebody_else_did(tmp_path: Path) -> None:
    """The feed begins at S with the definitions of S, makes no table and reads no row, on each start; DDLs and rows of
    the stream follow above S."""
    story = stories.shop()
    for _ in range(2):
        load, source = loading(tmp_path, story, mode="done", ts=story.marks[1])
        ts = load.load_plan.ts
        assert source.start(LocalTasks(), None) == ts == source.whole_from()
        assert {str(table.name) for table in source.definitions(ts)} == {"shop.accounts", "shop.visits", "shop.orders"}
        assert source.ddls(ts, story.ts) == ScriptedSource(story).ddls(ts + 1, story.ts)
        assert not source.definitions(ts + 1)
        now = source.reading().load
        assert now is not None
        assert (now.is_done, now.chunks) == (True, 0)
    rows = source.changes(ts, story.ts).in_order([ACCOUNTS], ts, story.ts)
    assert all(at > ts for chunk in rows for at in chunk.parts[0].batch.commit_ts.to_pylist())


def test_a_topic_that_is_ahead_of_load_ts(tmp_path: Path) -> None:
    """A stream that has come further than a TSO that was given covers it."""
    story = stories.shop()
    load, source = loading(tmp_path, story, ordered=False, ts=story.marks[1], stream=Ahead(story))
    assert source.start(LocalTasks(), None) == begin_ts(load.load_plan)


class Middle(Ahead):
    """A source that begins behind its second mark."""

    def changes(self, after: int, upto: int) -> Any:
        return super().changes(max(after, self.script.marks[1]), upto)

    def ddls(self, after: int, upto: int) -> Any:
        return super().ddls(max(after, self.script.marks[1] + 1), upto)


@pytest.mark.parametrize("how", [{"mode": "done"}, {"defined": "start", "ordered": False}], ids=["done", "defined"])
def test_databases_without_rows(tmp_path: Path, how: dict[str, Any]) -> None:
    """A table that is made later, without a charset, has that of its database, which no DDL of the stream told."""
    story = Script()
    story.ddl("shop", "CREATE DATABASE shop")
    story.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
    story.resolve()
    story.resolve()
    story.ddl("shop.u", "CREATE TABLE shop.u (id INT PRIMARY KEY, v VARCHAR(9))")
    story.commit(put("shop.u", id=1, v="x"))
    story.resolve()
    load, source = loading(tmp_path, story, stream=Middle(story), **how)
    create = "CREATE DATABASE `shop` /*!40100 DEFAULT CHARACTER SET utf8 COLLATE utf8_general_ci */"
    load.load_plan = msgspec.structs.replace(load.load_plan, databases=(("shop", create),))
    run_here(source, SqliteSink(str(tmp_path / "shop.db"), "one"), until=story.ts)

    made = SqliteSink(str(tmp_path / "shop.db"), "one").recover().state.table(TableName("shop", "u"))
    assert made is not None
    column = made.column("v")
    assert column is not None
    assert (column.type.charset, column.collation) == ("utf8", "utf8_general_ci")


def test_definitions_without_rows(tmp_path: Path) -> None:
    """What tables are like one tick below the first event, and no row; a restart takes the same."""
    story = stories.shop()
    first = min(at for event in story.events if (at := event.commit_ts or 0) > story.marks[1])
    asked: list[int | None] = []

    class Noting(CountedLoad):
        def plan(self, selects: Any, ts: int | None = None) -> Any:
            asked.append(ts)
            return msgspec.structs.replace(super().plan(selects), ts=ts or 0)

    for _ in range(2):
        how: dict[str, Any] = {"ordered": False, "keyless": True}
        load = Noting(story, story.marks[1])
        source = LoadingSource(load, KeptPlan(str(tmp_path)), lambda *_: True, Middle(story), defined="start", **how)
        begin = source.start(LocalTasks(), None)
        assert begin == first - 1 - 4
        assert [one.ddl.table for one in source.ddls(begin, first - 1)] == ["", "accounts", "visits", "orders"]
        assert not list(source.changes(begin, first - 1).row_ranges())
        assert source.ddls(first - 1, story.ts) == ScriptedSource(story).ddls(first, story.ts)
    assert asked == [first - 1]
    assert not list(tmp_path.glob("**/load-silent.json"))


def test_definitions_that_are_gone(tmp_path: Path) -> None:
    """Where garbage collection has passed the begin, it is said with the way out; of now are those of tables without a
    DDL since, once the stream has come so far."""
    story, ahead = stories.shop(), stories.shop().marks[-1]

    class Gone(CountedLoad):
        def plan(self, selects: Any, ts: int | None = None) -> Any:
            if ts is not None:
                raise HistoryLost("collected")
            return msgspec.structs.replace(super().plan(selects), ts=ahead)

    class Behind(Middle):
        def frontier(self) -> int | None:
            return reached

    reached = story.marks[2]
    how: dict[str, Any] = {"ordered": False, "keyless": True}
    load, kept = Gone(story, story.marks[1]), KeptPlan(str(tmp_path))
    with pytest.raises(HistoryLost, match=r"begins at .*collected.*definitions-at = now"):
        LoadingSource(load, kept, lambda *_: True, Behind(story), defined="start", **how).start(LocalTasks(), None)
    source = LoadingSource(load, kept, lambda *_: True, Behind(story), defined="now", **how)
    for _ in range(2):
        with pytest.raises(SourceBehind, match="has come to"):
            source.start(LocalTasks(), None)
    reached = ahead
    begin = source.start(LocalTasks(), None)
    plan = kept.read()
    assert (load.plans, source.reading().left_out) == (1, ())
    assert plan is not None
    assert begin + 3 == plan.ts < story.marks[2]
    assert [str(one.name) for one in plan.tables] == ["shop.accounts", "shop.visits"]
    defined, altered = source.reading().warnings
    assert defined.endswith("DDL of theirs out: shop.accounts, shop.visits")
    assert altered.endswith("DDLs of theirs: shop.orders")


def test_tables_without_an_event(tmp_path: Path) -> None:
    """A loaded table of which the stream brings nothing above S is named, over restarts; a row, a rename and a DDL of
    its database are events."""
    story = Script()
    story.ddl("shop", "CREATE DATABASE shop")
    story.ddl("gone", "CREATE DATABASE gone")
    for name in ("shop.t", "shop.old", "shop.idle", "gone.t"):
        story.ddl(name, f"CREATE TABLE {name} (id INT PRIMARY KEY)")
    story.commit(put("shop.t", id=1))
    story.resolve()
    ts = story.resolve()
    row = story.commit(put("shop.t", id=2))
    story.ddl("shop.new", "RENAME TABLE shop.old TO shop.new")
    story.ddl("gone", "DROP DATABASE gone")
    story.resolve()

    def told(source: LoadingSource) -> tuple[Any, ...]:
        now = source.reading().load
        assert now is not None
        return now.silent, now.silent_tables, now.silent_since

    def reached(source: LoadingSource, after: int, upto: int) -> None:
        source.ddls(after, upto)
        source.changes(after, upto)
        source.release(upto)

    load, source = loading(tmp_path, story)
    source.start(LocalTasks(), None)
    source.release(load.load_plan.ts)
    assert told(source) == (0, (), 0)
    reached(source, ts, row)
    assert told(source) == (3, ("shop.old", "shop.idle", "gone.t"), ts)
    reached(source, row, story.ts)
    assert told(source) == (1, ("shop.idle",), ts)
    _, again = loading(tmp_path, story)
    again.start(LocalTasks(), story.ts)
    again.release(story.ts)
    assert told(again) == (1, ("shop.idle",), ts)
    kept = KeptPlan(str(tmp_path))
    plan = kept.read()
    assert plan is not None
    kept.write(msgspec.structs.replace(plan, ts=story.ts, number=1))
    _, later = loading(tmp_path, story)
    later.start(LocalTasks(), story.ts)
    later.release(story.ts)
    later.release(story.ts + 1)
    assert told(later)[::2] == (4, story.ts)
