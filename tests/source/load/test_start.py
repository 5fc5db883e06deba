"""How a feed begins with a load, goes on with it, ends with it, or does not begin: without Spark, in this process."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace as replace_plan

from tests.source.tidb.kit import Broker, target
from tidegate.codec.columnar import Batch
from tidegate.config.load import load
from tidegate.config.registry import home_of, source_of
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import EventRule, TableFilter
from tidegate.engine.load import NO_LOAD, LoadingSource, NoStream
from tidegate.engine.load_plan import KeptPlan, LoadGuard, LoadPlan, begin_ts, defined_tables
from tidegate.engine.ports import Source
from tidegate.engine.progress import Progress, line, undecodable_words
from tidegate.lakes.lake import Lake
from tidegate.model.errors import ConfigError, HistoryLost, LoadCancelled, MadeAnew, SourceBehind, TidegateError
from tidegate.model.event import Delete, Insert, Resolved, Update
from tidegate.model.table import TableName
from tidegate.schema.state import SchemaState
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink
from tidegate.sink.kafka import KafkaSink
from tidegate.sink.sqlite import SqliteSink
from tidegate.testing.contract import stories
from tidegate.testing.script import LocalTasks, ScriptedLoad, ScriptedSource, run_here

STORY = stories.shop()
LOAD = ScriptedLoad(STORY, STORY.marks[1])
S = LOAD.load_plan.ts


def loading(home: Path, stream: Source, **more: Any) -> LoadingSource:
    """A source that begins with the load, and goes on with `stream`."""
    fixed: dict[str, Any] = {"ordered": True, "keyless": True}
    fixed |= {"reader": LOAD, "accept": lambda *_: True}
    return LoadingSource(kept=KeptPlan(str(home / "plan")), stream=stream, **(fixed | more))


def sink(home: Path) -> SqliteSink:
    """A file of this test."""
    return SqliteSink(str(home / "shop.db"), "one")


def test_a_load_alone_is_finished(tmp_path: Path) -> None:
    """It ends at S by itself, without a warning; run again, it is finished at once."""
    reports: list[Progress] = []
    done = run_here(loading(tmp_path, NoStream()), sink(tmp_path), report=reports.append)
    again = run_here(loading(tmp_path, NoStream()), sink(tmp_path))

    assert (done.state, done.checkpoint_ts) == ("finished", S)
    assert {text.partition(":")[0] for text in done.warnings} == {"not replicated"}
    assert done.load is not None
    assert done.load.is_done
    assert done.rows_loaded == done.rows > 0
    assert any(one.load and 0 < one.load.chunks_done < one.load.chunks for one in reports)
    assert (again.state, again.checkpoint_ts, again.rows) == ("finished", S, 0)


def test_an_end_below_s_lets_the_load_end(tmp_path: Path) -> None:
    """`--until now` is a moment before S is taken: the feed ends at S, and not amid its rows."""
    done = run_here(loading(tmp_path, ScriptedSource(STORY)), sink(tmp_path), until=STORY.marks[0])

    assert (done.state, done.checkpoint_ts) == ("finished", S)
    assert done.load is not None
    assert done.load.is_done


def test_a_feed_with_progress_goes_on_without_a_load(tmp_path: Path) -> None:
    """One that began without a load says once that load-from does nothing; alone a load is refused."""
    run_here(ScriptedSource(STORY), sink(tmp_path), until=STORY.marks[0])
    done = run_here(loading(tmp_path, ScriptedSource(STORY)), sink(tmp_path), until=STORY.ts)

    assert (done.checkpoint_ts, done.load, done.rows_loaded) == (STORY.ts, None, 0)
    assert [text for text in done.warnings if "load-from" in text] == [NO_LOAD]
    with pytest.raises(ConfigError, match="fresh target"):
        run_here(loading(tmp_path, NoStream()), sink(tmp_path))


class Middle(ScriptedSource):
    """A source that begins in the middle: no CREATE TABLE comes."""

    def ddls(self, after: int, upto: int) -> Any:
        return [one for one in super().ddls(after, upto) if "CREATE TABLE" not in one.ddl.query]


def test_a_feed_above_rows_says_so(tmp_path: Path) -> None:
    """Tables whose first rows have no CREATE before them are named, once, with the ways out; others are not."""
    lake = DeltaSink(DeltaOptions(root=str(tmp_path / "lake"), feed="one"))
    done = run_here(Middle(STORY), lake, until=STORY.ts)
    texts = [text.partition(": the feed begins above")[0] for text in done.warnings if "load start" in text]
    assert texts == ["shop.accounts", "shop.orders, shop.visits"]
    whole = run_here(ScriptedSource(STORY), sink(tmp_path), until=STORY.ts)
    assert "begins above" not in " ".join(whole.warnings)


def test_a_filter_that_accepts_more_than_at_s(tmp_path: Path) -> None:
    """A table that the filter left out of the load, and that it accepts at a restart, is named with the way out."""
    kept, left = KeptPlan(str(tmp_path / "plan")), (TableName("shop", "late"), TableName("shop", "apart"))
    kept.write(replace_plan(LOAD.load_plan, unselected=left))
    done, again = (
        run_here(loading(tmp_path, ScriptedSource(STORY), accept=accept), sink(tmp_path), until=STORY.ts)
        for accept in (lambda _, table: table not in {"late", "apart"}, lambda _, table: table != "apart")
    )

    assert not [text for text in done.warnings if "load start" in text]
    assert [text.partition(":")[0] for text in again.warnings if "load start" in text] == ["shop.late"]


def test_another_load_ts_at_a_restart(tmp_path: Path) -> None:
    """S is never taken again: the one that is given is named, with the way to another one; the same one is not."""
    for ts, count in ((S, 0), (S, 0), (S + 5, 1), (None, 0)):
        source = loading(tmp_path, ScriptedSource(STORY), ts=ts)
        source.start(LocalTasks(), None)
        told = source.reading().warnings
        assert len(told) == count
        assert all(f"load-ts is {ts}" in text and str(S) in text and "fresh target" in text for text in told)


def test_a_filter_that_accepts_less_than_at_s(tmp_path: Path) -> None:
    """A table that the filter leaves out amid the load is named; behind the load nothing is."""
    KeptPlan(str(tmp_path / "plan")).write(LOAD.load_plan)

    def told(checkpoint_ts: int) -> list[str]:
        source = loading(tmp_path, ScriptedSource(STORY), accept=lambda _, table: table != "orders")
        source.start(LocalTasks(), checkpoint_ts)
        return [text.partition(": the filter leaves")[0] for text in source.reading().warnings if "leaves them" in text]

    assert [told(S - 1), told(S)] == [["shop.orders"], []]


def test_a_stream_is_told_the_tables_of_the_load(tmp_path: Path) -> None:
    """The target has them at S, where the stream begins, however many of them a restart finds there."""
    carried: list[set[str]] = []

    class Carrying(ScriptedSource):
        def carry(self, state: SchemaState) -> None:
            carried.append({str(table.name) for table in state.tables.values()})

    KeptPlan(str(tmp_path / "plan")).write(LOAD.load_plan)
    tables, begin = defined_tables(LOAD.load_plan), begin_ts(LOAD.load_plan)
    for checkpoint_ts, known in ((begin + 2, tables[:1]), (S, tables)):
        source = loading(tmp_path, Carrying(STORY))
        source.carry(SchemaState().with_unknown(known))
        source.start(LocalTasks(), checkpoint_ts)
        assert carried[-1] == {str(table.name) for table in tables}


def test_without_load_from_a_feed_does_not_go_on_amid_its_load(tmp_path: Path) -> None:
    """Its tables would lack rows for ever; behind the load the option is not needed."""
    config = load(source_uri=f"tidb://{tmp_path}", sink_uri=f"sqlite://{tmp_path}/x.db", state_dir=tmp_path / "state")
    KeptPlan(home_of(config)).write(LOAD.load_plan)
    for checkpoint_ts in (None, S - 1):
        with pytest.raises(ConfigError, match=r"is not done.*give load-from again"):
            source_of(config).start(LocalTasks(), checkpoint_ts)

    for ts, refusal in ((S, pytest.raises(ConfigError, match="give load-from again")), (0, nullcontext())):
        KeptPlan(str(tmp_path / f"{ts}/plan")).write(LoadPlan(ts, cancelled=True))
        with refusal:
            loading(tmp_path / str(ts), ScriptedSource(STORY), mode="never").start(LocalTasks(), S)

    run_here(loading(tmp_path, NoStream()), sink(tmp_path))
    done = run_here(loading(tmp_path, ScriptedSource(STORY), mode="never"), sink(tmp_path), until=STORY.ts)
    assert (done.checkpoint_ts, done.load) == (STORY.ts, None)
    assert not [text for text in done.warnings if "load" in text]


def test_a_load_that_is_begun_again_and_cancelled_at_once(tmp_path: Path) -> None:
    """What an earlier load had begun lacks rows still, so it is dropped, and no feed goes on without it."""
    loading(tmp_path, ScriptedSource(STORY)).start(LocalTasks(), None)
    later, tables = ScriptedLoad(STORY, S), defined_tables(LOAD.load_plan)
    later.load_plan = replace_plan(LOAD.load_plan, ts=S + (1 << 24))

    def begun(**how: Any) -> LoadPlan:
        source = loading(tmp_path, ScriptedSource(STORY), **how)
        source.carry(SchemaState().with_unknown(tables))
        source.start(LocalTasks(), S - 1)
        plan = KeptPlan(str(tmp_path / "plan")).read()
        assert plan is not None
        return plan

    again = begun(reader=later, number=1)
    assert (again.ts, again.number) == (later.load_plan.ts, 1)
    for _ in range(2):
        dropped = begun(mode="cancel")
        assert {*dropped.replaced} == {table.name for table in tables}
        assert (dropped.ts, dropped.number) == (S - 1 + len(tables), 1)
    begun(reader=later, number=2)
    assert begun(mode="cancel").cancelled
    with pytest.raises(LoadCancelled, match="load start --all"):
        loading(tmp_path, ScriptedSource(STORY), number=2).start(LocalTasks(), S + 2)


class Away(ScriptedLoad):
    """A database that is behind."""

    def plan(self, selects: Any, ts: int | None = None) -> LoadPlan:  # noqa: ARG002
        raise SourceBehind("the load waits")


def test_a_load_that_waits_is_cancelled(tmp_path: Path) -> None:
    """A first one and a later one that have no plan yet: the feed goes on without. What an earlier one that is not done
    has made is dropped, views too; a load that was done before is not cancelled, and the feed goes on and says so."""
    away, seen = Away(STORY, S), TableName("shop", "seen")
    amid = begin_ts(LOAD.load_plan) + 2

    def begun(mode: str, number: int, checkpoint_ts: int | None, reader: ScriptedLoad = away) -> LoadingSource:
        source = loading(tmp_path, ScriptedSource(STORY), reader=reader, mode=mode, number=number)
        source.carry(SchemaState().with_unknown(defined_tables(LOAD.load_plan)))
        source.start(LocalTasks(), checkpoint_ts)
        return source

    for mode, number, checkpoint_ts, kind, words in (
        ("initial", 0, None, SourceBehind, "waits"),
        ("cancel", 0, None, LoadCancelled, "go on without"),
        ("cancel", 0, None, LoadCancelled, "go on without"),
        ("cancel", 0, 9, LoadCancelled, "go on without"),
    ):
        with pytest.raises(kind, match=words):
            begun(mode, number, checkpoint_ts)
    begun("initial", 0, None, LOAD)
    for mode, kind in (("initial", SourceBehind), ("cancel", LoadCancelled)):
        with pytest.raises(kind, match=r"waits|go on without"):
            begun(mode, 1, S)
    assert not begun("initial", 1, S).reading().warnings
    (told,) = begun("cancel", 1, S).reading().warnings
    assert "was done before it could be cancelled" in told

    kept = KeptPlan(str(tmp_path / "plan"))
    plan = kept.read()
    assert plan is not None
    kept.write(replace_plan(plan, views=((seen, "CREATE VIEW shop.seen AS SELECT 1"),)))
    dropped = begun("cancel", 2, amid).ddls(amid, S)
    assert [item.ddl.query for item in dropped][:1] == ["DROP VIEW IF EXISTS `shop`.`seen`"]
    with pytest.raises(LoadCancelled, match="load start --all"):
        begun("initial", 2, S)


def test_the_changefeed_that_writes_is_asked_before_s(tmp_path: Path) -> None:
    """Its checkpoint is compared with S; asked later, it would have come further, as that of another cluster."""
    order: list[str] = []

    class Noting(ScriptedLoad):
        def plan(self, selects: Any, ts: int | None = None) -> LoadPlan:
            order.append("S")
            return super().plan(selects, ts)

    def upstream() -> Any:
        order.append("ticdc")
        return lambda plan: plan

    for number, checkpoint_ts in enumerate((None, S - 99)):
        more: dict[str, Any] = {"reader": Noting(STORY, S), "upstream": upstream, "number": number}
        loading(tmp_path / str(number), ScriptedSource(STORY), **more).start(LocalTasks(), checkpoint_ts)
        assert order[:2] == ["ticdc", "S"]
        order.clear()


class Landing(ScriptedSource):
    """A topic that has a failure, or watermarks up to `mark`, once it has begun."""

    def __init__(self, mark: int | None, error: TidegateError | None = None) -> None:
        super().__init__(STORY)
        self.mark, self.error, self.began = mark, error, list[int | None]()

    def start(self, tasks: Any, checkpoint_ts: int | None) -> int:
        self.began.append(checkpoint_ts)
        return super().start(tasks, checkpoint_ts)

    def failure(self) -> TidegateError | None:
        return self.error

    def frontier(self) -> int | None:
        return self.mark


def test_a_topic_is_waited_for_and_must_reach_back(tmp_path: Path) -> None:
    """Without a watermark S is not taken; a topic of another cluster, or one that begins above load-ts, is refused by
    name, and nothing is written down."""
    for stream, ts, kind, words in (
        (Landing(None), None, SourceBehind, "first watermark"),
        (Landing(S + 1), None, ConfigError, "another cluster"),
        (
            Landing(S, MadeAnew("topic t partition 3 was read from offset 9")),
            S,
            ConfigError,
            "load-ts is .*partition 3",
        ),
        (Landing(S, MadeAnew("gone")), None, MadeAnew, "gone"),
        (Landing(S, HistoryLost("topic t partition 3: offset 9")), None, HistoryLost, "partition 3: offset 9"),
    ):
        source = loading(tmp_path, stream, ordered=False, ts=ts)
        with pytest.raises(kind, match=words):
            source.start(LocalTasks(), None)
        assert stream.began == [ts]
    assert KeptPlan(str(tmp_path / "plan")).read() is None


def test_rows_of_a_later_load_are_those_of_its_chunks(tmp_path: Path) -> None:
    """Rows with which the stream comes up to a load of some tables are none of it."""
    run_here(ScriptedSource(STORY), sink(tmp_path), until=STORY.marks[0])
    later = ScriptedLoad(STORY, S)
    later.load_plan = replace_plan(LOAD.load_plan, ts=S + (1 << 17))
    source = loading(tmp_path, ScriptedSource(STORY), reader=later, number=1, selects=lambda *_: True)
    done = run_here(source, sink(tmp_path), until=later.load_plan.ts)

    assert done.rows_loaded == sum(len(rows) for name, rows in STORY.tables(S).items() if name != "shop.visits")
    assert done.rows > done.rows_loaded


class Odd(ScriptedLoad):
    """A load whose owners are no UTF-8."""

    def batches(self, table: Any, chunk: Any, ts: int) -> Iterator[Batch]:
        for batch in super().batches(table, chunk, ts):
            after = batch.after
            if (at := after.schema.get_field_index("owner")) >= 0:
                odd = pa.array([b"\xff%d" % row for row in range(batch.rows)])
                after = after.set_column(at, "owner", odd)
            yield replace(batch, after=after)


def into(home: Path, kind: str) -> Any:
    """A target of this test."""
    return sink(home) if kind == "sqlite" else DeltaSink(DeltaOptions(root=str(home / "lake"), feed="one"))


def is_truth(home: Path, kind: str, ts: int) -> None:
    """The keyed tables of a target are as the story has them."""
    for name, rows in STORY.tables(ts).items():
        if name == "shop.visits":
            continue
        columns = [*rows[0]]
        if kind == "lake":
            table = Lake(str(home / "lake")).arrow(name)
            found = [tuple(row[column] for column in columns) for row in table.to_pylist()]
        else:
            with closing(sqlite3.connect(home / "shop.db")) as file:
                found = file.execute(f'SELECT {", ".join(columns)} FROM "{name}"').fetchall()
        assert sorted(found, key=repr) == sorted((tuple(row.values()) for row in rows), key=repr)


@pytest.mark.parametrize("kind", ["sqlite", "lake"])
def test_event_filters_leave_a_load_its_tables(tmp_path: Path, kind: str) -> None:
    """Of a load that replaces a table with other rows, an event filter takes neither DROP nor CREATE TABLE."""
    others = stories.accounts()
    run_here(ScriptedSource(others), into(tmp_path, kind), until=others.ts)
    rule = EventRule(("shop.*",), ignore_event=("create table", "drop table"))
    events = EventFilter.of([rule], None)
    source = loading(tmp_path, ScriptedSource(STORY), number=1, events=events)
    done = run_here(source, into(tmp_path, kind), until=S, drops=events.ddls())

    assert (done.checkpoint_ts, done.ddls_left_out) == (S, 0)
    is_truth(tmp_path, kind, S)


class Collected(ScriptedLoad):
    """A load at an early S, of which the chunks from `first` on cannot be read any more."""

    def __init__(self, first: int) -> None:
        super().__init__(STORY, STORY.marks[0])
        self.first = first
        self.load_plan = replace_plan(self.load_plan, gc_life_time=("10m0s", "72h"))

    def batches(self, table: Any, chunk: Any, ts: int) -> Iterator[Batch]:
        if chunk.number >= self.first:
            raise HistoryLost("S is gone")
        return super().batches(table, chunk, ts)


@pytest.mark.parametrize("kind", ["sqlite", "lake"])
@pytest.mark.parametrize("first", [0, 1])
def test_a_load_whose_s_is_lost_begins_again(tmp_path: Path, kind: str, first: int) -> None:
    """Each restart ends with the error of the S that is written down, until a higher number takes another one; the
    upstream's tidb_gc_life_time is set back to what it was before the first."""
    restored: list[tuple[str, ...]] = []

    class Holding(LoadGuard):
        def __init__(self, plan: LoadPlan) -> None:
            self.plan = plan

        def restore(self) -> None:
            restored.append(self.plan.gc_life_time)

    def run(reader: ScriptedLoad, number: int) -> Progress:
        source = LoadingSource(
            reader, KeptPlan(str(tmp_path / "plan")), lambda *_: True, ScriptedSource(STORY),
            guard=Holding, ordered=True, keyless=True, number=number,
        )  # fmt: skip
        return run_here(source, into(tmp_path, kind), until=STORY.ts)

    for _ in range(2):
        with pytest.raises(HistoryLost):
            run(Collected(first), 0)
    assert run(LOAD, 1).checkpoint_ts == STORY.ts
    is_truth(tmp_path, kind, STORY.ts)
    assert restored == [("10m0s", "72h")]
    assert run(LOAD, 1).rows_loaded == 0


def test_texts_that_are_no_utf8_are_told(tmp_path: Path) -> None:
    """They are written as they are, counted by table and column, and warned of once."""
    source = LoadingSource(
        Odd(STORY, STORY.marks[1]), KeptPlan(str(tmp_path / "plan")), lambda *_: True, NoStream(),
        ordered=True, keyless=True,
    )  # fmt: skip
    done = run_here(source, sink(tmp_path))

    accounts = (
        sqlite3.connect(tmp_path / "shop.db").execute('SELECT CAST(owner AS BLOB) FROM "shop.accounts"').fetchall()
    )
    assert done.undecodable == {"shop.accounts.owner": len(accounts)}
    assert accounts
    assert {value[:1] for (value,) in accounts} == {b"\xff"}
    assert len([text for text in done.warnings if "shop.accounts.owner has texts that are no UTF-8" in text]) == 1
    assert undecodable_words(done.undecodable) in line(done)


def test_a_filled_table_that_is_not_emptied(tmp_path: Path) -> None:
    """Where an event filter leaves TRUNCATE TABLE out, load-target=truncate is refused, and load-target=keep loads over
    the rows; of a load that somebody else has done nothing is asked."""
    others = stories.accounts()
    run_here(ScriptedSource(others), sink(tmp_path), until=others.ts)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as file:
        file.execute("DROP TABLE tidegate_feed")
    rule = EventRule(("shop.accounts",), ignore_event=("truncate table",))
    events = EventFilter.of([rule], None)
    with pytest.raises(ConfigError, match=r"shop\.accounts.*event filter leaves that out.*load-target=keep"):
        run_here(loading(tmp_path, NoStream(), target="truncate", events=events), sink(tmp_path))
    assert KeptPlan(str(tmp_path / "plan")).read() is None
    done = loading(tmp_path / "done", ScriptedSource(STORY), ts=S, mode="done")
    done.look_at(sink(tmp_path))
    assert done.start(LocalTasks(), None) == S
    kept = run_here(loading(tmp_path, NoStream(), target="keep", events=events), sink(tmp_path))
    assert (kept.state, kept.checkpoint_ts) == ("finished", S)


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
def test_how_a_topic_tells_a_load(tmp_path: Path, protocol: str) -> None:
    """Chunk n of N is a transaction at S - N + n, and the watermark S follows the last one in each partition: the first
    at or above S, behind which changes follow."""
    topics = Broker()
    made, rules = target(topics, protocol), TableFilter.parse(["*.*"])
    into = KafkaSink(made, DirectoryCheckpoints(tmp_path, "feed"), rules=rules, force=True)
    run_here(loading(tmp_path, ScriptedSource(STORY)), into, until=STORY.ts, tasks=LocalTasks(pickles=False))
    chunks = range(S - len(LOAD.load_plan.chunks) + 1, S + 1)
    loaded = set()
    for events in topics.events(protocol).values():
        marks = [index for index, event in enumerate(events) if isinstance(event, Resolved) and event.ts >= S]
        assert events[marks[0]] == Resolved(S)
        for index, event in enumerate(events):
            if isinstance(event, Insert | Update | Delete):
                assert (event.commit_ts in chunks) is (index < marks[0])
                assert isinstance(event, Insert) or index > marks[0]
                loaded |= {event.commit_ts} & {*chunks}
    assert loaded == {*chunks}
