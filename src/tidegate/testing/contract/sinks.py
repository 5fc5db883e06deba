"""The contract suite of sinks: the guarantees that the engine and users of a target rely on.

    class TestMySink(SinkContract):
        run = staticmethod(run_here)                   the engine: tidegate.testing.script

        def sink(self, home):  return MySink(...)      a new object on the state in `home`, as after a restart
        def read(self, home):  return ReadBack(...)    the current contents of the target

pytest then runs every case.  `home` is an empty directory at the start of a case; two sinks of one home are one feed.

TappedSink and TappedTasks call a function at each point at which a feed may crash or its target be unavailable (STEPS);
a function that raises Died ends the run as SIGKILL would, one that raises SinkError is an outage.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Protocol, TypeVar, cast

import pytest

from tidegate.engine.change import Chunk, Layout
from tidegate.engine.load import LoadingSource
from tidegate.engine.load_plan import KeptPlan
from tidegate.engine.plan import Barrier, PlannedDdl, Round
from tidegate.engine.ports import (
    Changes,
    FlushPolicy,
    LocalTasks,
    RoundLimit,
    RowRange,
    SegmentSink,
    Sink,
    SinkPosition,
    Source,
    TableSpan,
    Tasks,
)
from tidegate.model.errors import EnvironmentFault, SinkError, TidegateError
from tidegate.model.event import Event, RowChange, Value
from tidegate.model.left_out import LeftOut
from tidegate.model.table import ColumnInfo, TableName
from tidegate.schema.effects import Effect
from tidegate.testing import validators
from tidegate.testing.contract import stories
from tidegate.testing.script import Row, Script, ScriptedLoad, ScriptedSource
from tidegate.testing.validators import ddls, first_sendings, rows

STEPS: Final = (
    *("before run", "in a task", "after run"),
    *("before ddl", "after ddl", "before advance", "after advance"),
)
Tap = Callable[[str], None]
Job = TypeVar("Job")
Answer = TypeVar("Answer")


class Died(KeyboardInterrupt):
    """Ends a run as SIGKILL would: no code in between catches it."""


def dies_at(step: str, nth: int) -> Tap:
    """Return a tap that raises Died when `step` is reached for the nth time, counted from 1."""
    left = nth

    def tap(reached: str) -> None:
        nonlocal left
        left -= reached == step
        if left == 0:
            raise Died

    return tap


class TappedTasks(LocalTasks):
    """Tasks in this process that call a tap after each job."""

    def __init__(self, tap: Tap) -> None:
        super().__init__()
        self._tap = tap

    def run(self, work: Callable[[Job], Answer], jobs: Sequence[Job]) -> list[Answer]:
        answers: list[Answer] = []
        for job in jobs:
            answers += super().run(work, [job])
            self._tap("in a task")
        return answers


class TappedSink:
    """The given sink, with a tap around the calls that change something; `cut` and `cut_ddl` replace its changes and
    DDLs."""

    def __init__(
        self,
        sink: Sink[Any],
        tap: Tap,
        cut: Callable[[Changes], Changes] | None = None,
        cut_ddl: Callable[[PlannedDdl], PlannedDdl] | None = None,
    ) -> None:
        self._sink, self._tap = sink, tap
        self._cut, self._cut_ddl = cut or (lambda changes: changes), cut_ddl or (lambda planned: planned)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    @property
    def barrier(self) -> Barrier:
        return self._sink.barrier

    @property
    def flush_policy(self) -> FlushPolicy:
        return self._sink.flush_policy

    @flush_policy.setter
    def flush_policy(self, flush_policy: FlushPolicy) -> None:
        self._sink.flush_policy = flush_policy

    @property
    def whole_from(self) -> int:
        return self._sink.whole_from

    @whole_from.setter
    def whole_from(self, ts: int) -> None:
        self._sink.whole_from = ts

    def run(self, tasks: Tasks, work: Any, changes: Changes) -> Sequence[Any]:
        return self._around("run", lambda: self._sink.run(tasks, work, self._cut(changes)))

    def ddl(self, planned: PlannedDdl) -> None:
        self._around("ddl", lambda: cast("SegmentSink[Any]", self._sink).ddl(self._cut_ddl(planned)))

    def advance(self, planned: Round, results: Sequence[Any]) -> SinkPosition:
        return self._around("advance", lambda: self._sink.advance(planned, results))

    def _around(self, call: str, work: Callable[[], Answer]) -> Answer:
        self._tap(f"before {call}")
        answer = work()
        self._tap(f"after {call}")
        return answer


@dataclass(frozen=True)
class CutChanges:
    """The given changes; reading rows gives some chunks, and then an error that ends the feed; only for `table` if it
    is given and tables are read one by one."""

    changes: Changes
    chunks: int
    table: str | None = None

    @property
    def after(self) -> int:
        return self.changes.after

    @property
    def upto(self) -> int:
        return self.changes.upto

    def tables(self) -> Mapping[TableName, TableSpan]:
        return self.changes.tables()

    def row_ranges(self) -> Iterable[RowRange]:
        return self.changes.row_ranges()

    def layouts(self, name: TableName, after: int, upto: int) -> Sequence[Layout]:
        return self.changes.layouts(name, after, upto)

    def batches(self, name: TableName, after: int, upto: int) -> Iterator[Chunk]:
        chunks = self.changes.batches(name, after, upto)
        return self._cut(chunks) if self.table in (None, str(name)) else chunks

    def in_order(self, names: Collection[TableName], after: int, upto: int) -> Iterator[Chunk]:
        return self._cut(self.changes.in_order(names, after, upto))

    def _cut(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        for number, chunk in enumerate(chunks):
            if number == self.chunks:
                raise EnvironmentFault("the machine of this task is out of order")
            yield chunk


class CutEffects(tuple[Effect, ...]):  # noqa: SLOT001  it is pickled with its attribute
    """The given effects; iterating them gives the first `told`, and then a transient error."""

    visible: int

    def __iter__(self) -> Iterator[Effect]:
        yield from self[: self.visible]
        raise SinkError("the target went away in the middle of a DDL")


class CutDdls:
    """Cuts each DDL once after each of its effects."""

    def __init__(self) -> None:
        self._done: set[tuple[int, int, int]] = set()

    def __call__(self, planned: PlannedDdl) -> PlannedDdl:
        for count in range(1, len(planned.effects) + 1):
            step = (planned.commit_ts, planned.number, count)
            if step not in self._done:
                self._done.add(step)
                effects = CutEffects(planned.effects)
                effects.visible = count
                return replace(planned, effects=effects)
        return planned


LIVES_MAX: Final = 60
"""A feed that dies at each step ends long before."""


@dataclass(frozen=True)
class ReadBack:
    """The contents of a target, in as many of these forms as it supports.

    `tables`: the current rows of every table. `log`: all events in the order in which each stream got them, DDLs among
    them. `changes`: every row change of some tables, for targets that keep them without DDLs."""

    tables: Mapping[str, Sequence[Row]] | None = None
    log: Mapping[str, Sequence[Event]] | None = None
    changes: Mapping[str, Sequence[RowChange]] = field(default_factory=dict)


class RunReport(Protocol):
    """The report of a run, which it also returns at its end (tidegate.engine.progress.Progress)."""

    state: str
    checkpoint_ts: int | None
    rows: int
    ddls: int
    resumed: bool
    left_out: tuple[LeftOut, ...]


class Run(Protocol):
    """Runs a source into a sink until the checkpoint is at `until`, or until no data comes (tidegate.testing)."""

    def __call__(
        self,
        source: Source,
        sink: Sink[Any],
        *,
        until: int | None = None,
        tasks: Tasks | None = None,
        report: Callable[[Any], None] = ...,
    ) -> Any:
        """Return the last RunReport; raise the error that ended the run."""


class SinkContract:
    """The test cases; override `sink` and `read`, and the class attributes that differ."""

    run: ClassVar[Run]
    guarantee: ClassVar[Literal["exactly once", "at least once"]] = "at least once"
    refuses: ClassVar[Collection[str]] = ()
    """Kinds of DDL (names of stories.DDLS) at which the sink ends the feed."""
    whole_rows: ClassVar[bool] = False
    """The sink ends the feed at a row that lacks columns of its table."""
    makes_tables: ClassVar[bool] = True
    """Rows make their table; False: those of a table that no DDL has brought end the feed."""
    leaves_out: ClassVar[Collection[str]] = ()
    """Tables of the stories that the sink does not carry; `shop.visits` has no key."""
    whole_transactions: ClassVar[bool] = False
    """What `read` returns is the state at the end of a transaction, whenever the sink stopped."""
    poison: ClassVar[tuple[str, Value] | None] = None
    """A column of `shop.notes (id INT, note TEXT, taken DATETIME)`, and a value of it that the sink cannot take."""

    def sink(self, home: Path) -> Sink[Any]:
        """Return a new sink that continues where earlier ones left `home`."""
        raise NotImplementedError

    def fill(self, home: Path, story: Script) -> bool:  # noqa: ARG002
        """Write a script's rows into the target as another changefeed; return False if each feed has its own target."""
        return False

    def read(self, home: Path) -> ReadBack:
        """Return the contents of the target."""
        raise NotImplementedError

    def shown(self, column: ColumnInfo, value: Value) -> Any:
        """Return how `read` returns a value of stories.TYPED; here, as events have it."""
        assert column is not None
        return value

    # --- a: everything arrives ---

    def test_everything_arrives(self, tmp_path: Path) -> None:
        """Every change arrives once, in order, DDLs between the right rows; the report counts them."""
        story = stories.shop()
        done = self.live(tmp_path, ScriptedSource(story), until=story.ts)

        self.holds(tmp_path, story, story.ts, once=True)
        assert (done.state, done.checkpoint_ts, done.resumed) == ("finished", story.ts, False)
        assert done.ddls == len(story.ddls(story.ts))
        carried = [row for row in story.rows(story.ts) if f"{row.schema}.{row.table}" not in self.leaves_out]
        assert done.rows >= len(carried)
        assert {table.table for table in done.left_out} == set(self.leaves_out)

    def test_nothing_above_the_frontier(self, tmp_path: Path) -> None:
        """No change above the resolved ts arrives."""
        story = stories.shop()
        del story.marks[2:]
        self.live(tmp_path, ScriptedSource(story))

        self.holds(tmp_path, story, story.marks[-1], once=True)

    def test_every_type(self, tmp_path: Path) -> None:
        """Values of every type arrive as they are, NULLs among them, and stay so when a DDL adds a column."""
        story = stories.every_type(altered="add column" not in self.refuses)
        self.live(tmp_path, ScriptedSource(story), until=story.ts)

        self.holds(tmp_path, story, story.ts, once=True)

    @pytest.mark.parametrize("story", [stories.keys, stories.large, stories.odd_names], ids=lambda make: make.__name__)
    def test_a_story(self, tmp_path: Path, story: Callable[[], Script]) -> None:
        """Keys of several columns that change, transactions in many parts, and odd names."""
        told_story = story()
        self.live(tmp_path, ScriptedSource(told_story), until=told_story.ts)

        self.holds(tmp_path, told_story, told_story.ts, once=True)

    # --- a full load: the rows that are there, then the changes behind them ---

    @pytest.mark.parametrize("ordered", [True, False])
    def test_begins_with_a_load(self, tmp_path: Path, ordered: bool) -> None:  # noqa: FBT001
        """A feed begins with every row as of one TSO and continues after it; no earlier change is repeated."""
        story = stories.shop()
        load = ScriptedLoad(story, story.marks[1])
        source = self.loading(tmp_path, load, story, ordered=ordered)
        done = self.live(tmp_path, source, until=story.ts)

        assert (done.state, done.checkpoint_ts) == ("finished", story.ts)
        self.holds(tmp_path, load.rest_script, story.ts, once=True)

    @pytest.mark.parametrize("failpoint_name", ["in a task", "before advance"])
    def test_a_crash_in_a_load(self, tmp_path: Path, failpoint_name: str) -> None:
        """A feed that crashes during its load, each time one chunk further, continues at that chunk."""
        story = stories.shop()
        load = ScriptedLoad(story, story.marks[1])
        for nth in range(1, LIVES_MAX):
            source = self.loading(tmp_path, load, story, ordered=True)
            try:
                self.live(tmp_path, source, until=story.ts, tap=dies_at(failpoint_name, nth), rows=3)
                break
            except Died:
                continue
        else:
            pytest.fail(f"no end after {LIVES_MAX} lives")
        self.holds(tmp_path, load.rest_script, story.ts)

    @pytest.mark.parametrize("target", ["refuse", "truncate", "keep"])
    def test_a_load_into_a_filled_target(self, tmp_path: Path, target: str) -> None:
        """Existing rows are refused by table, deleted or loaded over, as configured.  This is decided once: a feed
        that crashes during its load does not mistake its own rows for existing ones."""
        others, story = stories.accounts(), stories.shop()
        if not self.fill(tmp_path, others):
            pytest.skip("each changefeed has tables of its own in this target")
        load = ScriptedLoad(story, story.marks[1])

        def source(target: str = "refuse") -> Source:
            return self.loading(tmp_path, load, story, ordered=True, target=target)

        if target == "refuse" or (target == "truncate" and not self.sink(tmp_path).truncates):
            for _ in range(2):
                with pytest.raises(TidegateError, match=r"(shop\.accounts .*has rows|has messages).*load-target=keep"):
                    self.live(tmp_path, source(target), until=story.ts)
            return
        with pytest.raises(Died):
            self.live(tmp_path, source(target), until=story.ts, tap=dies_at("before advance", 6), rows=3)
        assert self.live(tmp_path, source(), until=story.ts).state == "finished"
        contents = self.read(tmp_path).tables
        if contents is not None:
            expected = dict(self._carried(load.rest_script, load.rest_script.tables(story.ts)))
            if target == "keep":
                beside = [row for row in others.tables(others.ts)["shop.accounts"] if row["id"] == 99]
                expected["shop.accounts"] = [*expected["shop.accounts"], *beside]
            assert not list(validators.unlike(expected, contents))

    def loading(
        self, home: Path, load: ScriptedLoad, story: Script, *, ordered: bool, target: str = "refuse"
    ) -> Source:
        """Return the source that begins with a load of the script."""
        kept, stream = KeptPlan(str(home / "plan")), ScriptedSource(story)
        source: Any = LoadingSource(load, kept, lambda *_: True, stream, ordered=ordered, keyless=True, target=target)
        source.script = load.rest_script
        return cast("Source", source)

    # --- b: crashes ---

    @pytest.mark.parametrize("step", ["after ddl", "before advance"])
    def test_a_crash_in_a_run_of_ddls(self, tmp_path: Path, step: str) -> None:
        """DDLs of several tables without rows in between leave the right tables, whichever of them are repeated."""
        self.dying(tmp_path, stories.tenants(), step)

    @pytest.mark.parametrize("step", STEPS)
    def test_a_crash_at_each_step(self, tmp_path: Path, step: str) -> None:
        """A feed that dies each time a step is reached, and is started again, loses no row, puts none where it does
        not belong, and repeats none if the sink guarantees exactly once."""
        deaths = self.dying(tmp_path, stories.shop(), step)
        assert deaths > 2 or (deaths == 0 and "ddl" in step)

    def dying(self, tmp_path: Path, story: Script, step: str) -> int:
        """Run a story in lives that end at a step; return how many died."""
        nth = deaths = 0
        before = None
        for _ in range(LIVES_MAX):
            checkpoint = self.checkpoint(tmp_path)
            nth = 2 if before is not None and checkpoint > before else nth + 1
            before = checkpoint
            try:
                self.live(tmp_path, ScriptedSource(story), until=story.ts, tap=dies_at(step, nth))
                break
            except Died:
                deaths += 1
        else:
            pytest.fail(f"no end after {LIVES_MAX} lives")

        self.holds(tmp_path, story, story.ts)
        return deaths

    @pytest.mark.parametrize(("chunks", "table"), [(1, None), (0, "shop.u")])
    def test_an_error_inside_a_task(self, tmp_path: Path, chunks: int, table: str | None) -> None:
        """A task that fails within its rows, or between two tables of a transaction, leaves nothing that the next
        run does not repair; for a sink with whole transactions, nothing that a reader sees."""
        story = stories.large()
        cut = partial(CutChanges, chunks=chunks, table=table)
        with pytest.raises(EnvironmentFault):
            self.live(tmp_path, ScriptedSource(story), until=story.ts, cut=cut)
        if self.whole_transactions and self.read(tmp_path).tables:
            self.holds(tmp_path, story, self.checkpoint(tmp_path), cut_off=True)
        self.live(tmp_path, ScriptedSource(story), until=story.ts)

        self.holds(tmp_path, story, story.ts)

    @pytest.mark.parametrize("kind", ["swap names", "exchange partition"])
    def test_an_error_inside_a_ddl(self, tmp_path: Path, kind: str) -> None:
        """A DDL that fails within its effects, or after them, is done exactly once in the end; for a sink with whole
        transactions a reader sees no part of it."""
        story, cuts = stories.around_ddl(kind), CutDdls()
        if kind in self.refuses or self.sink(tmp_path).barrier is not Barrier.ALL:
            pytest.skip("this sink does not do it")

        def cut(planned: PlannedDdl) -> PlannedDdl:
            if self.whole_transactions and planned.commit_ts > story.marks[0]:
                self.holds(tmp_path, story, story.marks[0], cut_off=True)
            return cuts(planned)

        self.live(tmp_path, ScriptedSource(story), until=story.ts, cut_ddl=cut)

        self.holds(tmp_path, story, story.ts)

    def test_a_round_that_ends_earlier(self, tmp_path: Path) -> None:
        """A round that was interrupted before its end was published, and is then planned shorter, loses
        nothing; with whole transactions a checkpoint is published only where the target is the state at it."""
        story, short, long = stories.large(), stories.large(), stories.large()
        del short.marks[1:], long.marks[0]
        self.live(tmp_path, ScriptedSource(story), until=story.ddls(story.ts)[-1].commit_ts)
        with pytest.raises(Died):
            self.live(tmp_path, ScriptedSource(long), until=story.ts, tap=dies_at("before advance", 1))
        self.live(tmp_path, ScriptedSource(short))
        if self.whole_transactions and self.checkpoint(tmp_path) == short.marks[0]:
            self.holds(tmp_path, story, short.marks[0])
        self.live(tmp_path, ScriptedSource(story), until=story.ts)

        self.holds(tmp_path, story, story.ts)

    # --- c: what a source may do ---

    @pytest.mark.parametrize("trouble", ["repeats", "back", "late"])
    def test_troubles_of_a_source(self, tmp_path: Path, trouble: str) -> None:
        """Repeated rows, a resolved ts that goes back, and DDLs that arrive after their timestamp is resolved
        change nothing."""
        story = stories.shop()
        troubles = {name: name == trouble for name in ("repeats", "back", "late")}
        self.live(tmp_path, ScriptedSource(story, **troubles), until=story.ts)  # type: ignore[arg-type]

        self.holds(tmp_path, story, story.ts, late_ddls=trouble == "late")

    def test_an_outage_of_the_source_is_waited_out(self, tmp_path: Path) -> None:
        """A source that fails for some calls, or whose reading ends, delays the feed and has no other effect."""
        story = stories.shop()
        outages = {"start": 1, "refresh": 2, "ddls": 1, "changes": 1, "failure": 1}
        done = self.live(tmp_path, ScriptedSource(story, outages=outages), until=story.ts)

        assert done.state == "finished"
        self.holds(tmp_path, story, story.ts, once=True)

    def test_tables_that_no_ddl_has_brought(self, tmp_path: Path) -> None:
        """The rows of a topic that began in the middle create their tables, and columns that an interrupted round
        lacked when it is planned longer later."""
        story = stories.middle()
        if self.makes_tables:
            with pytest.raises(Died):
                self.live(tmp_path, ScriptedSource(story, tells_ddls=False), tap=dies_at("before advance", 1))
            del story.marks[0]
        takes = self.makes_tables and not self.whole_rows
        self.takes_or_names(tmp_path, ScriptedSource(story, tells_ddls=False), takes=takes, cut_off=True)

    def test_deletes_that_tell_the_key_alone(self, tmp_path: Path) -> None:
        """Rows of two layouts of a table, one of its DELETEs, arrive in commit order: a row that is inserted again
        after its DELETE is there."""
        source = ScriptedSource(stories.bare_deletes())
        self.takes_or_names(tmp_path, source, takes=not self.whole_rows, once=True)

    # --- d: DDL ---

    @pytest.mark.parametrize("kind", stories.DDLS)
    def test_a_ddl(self, tmp_path: Path, kind: str) -> None:
        """Rows around a DDL are right, whatever it does; one that the sink does not apply ends the feed with an error
        that names it."""
        story = stories.around_ddl(kind)
        if kind not in self.refuses:
            self.live(tmp_path, ScriptedSource(story), until=story.ts)
            self.holds(tmp_path, story, story.ts, once=True)
            return
        with pytest.raises(TidegateError) as failed:
            self.live(tmp_path, ScriptedSource(story), until=story.ts)
        assert story.ddls(story.ts)[-1].query in str(failed.value)
        assert self.checkpoint(tmp_path) < story.ts

    # --- e: stop and go on ---

    def test_stops_and_goes_on(self, tmp_path: Path) -> None:
        """A feed that is stopped at any timestamp, those of DDLs among them, and started again continues after its
        checkpoint and repeats nothing."""
        story = stories.shop()
        stops = {event.commit_ts or 0 for event in (*story.events[4::4], *story.ddls(story.ts))} | {story.ts}
        for number, stop in enumerate(sorted(stops)):
            done = self.live(tmp_path, ScriptedSource(story), until=stop)
            assert (done.checkpoint_ts, done.resumed) == (stop, number > 0)

        self.holds(tmp_path, story, story.ts, once=True)

    def test_again_without_news(self, tmp_path: Path) -> None:
        """A run without new changes writes nothing."""
        story = stories.shop()
        self.live(tmp_path, ScriptedSource(story), until=story.ts)
        done = self.live(tmp_path, ScriptedSource(story))

        assert (done.rows, done.ddls, done.checkpoint_ts) == (0, 0, story.ts)
        self.holds(tmp_path, story, story.ts, once=True)

    # --- f: a second writer ---

    @pytest.mark.parametrize("moment", ["after run", "before advance"])
    def test_a_second_writer(self, tmp_path: Path, moment: str) -> None:
        """While a run is in the middle of a round, a second one of the same feed is refused; or it continues, and the
        first one notices and stops before it does harm: the second one's published state stays."""
        story = stories.shop()
        others: list[object] = []

        def meanwhile(step: str) -> None:
            if step == moment and not others:
                try:
                    others.append(self.live(tmp_path, ScriptedSource(story), until=story.ts))
                except TidegateError as refused:
                    others.append(refused)

        try:
            self.live(tmp_path, ScriptedSource(story), until=story.ts, tap=meanwhile)
        except TidegateError:
            assert not isinstance(others[0], TidegateError), "each of two runs was stopped by the other"
        else:
            assert isinstance(others[0], TidegateError), "two runs of a feed have both written to the end"
        assert self.checkpoint(tmp_path) == story.ts
        self.holds(tmp_path, story, story.ts)

    # --- g: a row that cannot be taken ---

    def test_a_row_that_cannot_be_taken(self, tmp_path: Path) -> None:
        """It ends the feed with an error that names its table and commit_ts, or the first commit_ts of the rows written
        with it. What the checkpoint covers is there, and once it is fixed everything arrives."""
        if self.poison is None:
            pytest.skip("this sink takes every row")
        (bad, ts), (good, _) = stories.notes(*self.poison), stories.notes("note", "mended")
        with pytest.raises(TidegateError) as failed:
            self.live(tmp_path, ScriptedSource(bad), until=bad.ts)

        checkpoint, where = self.checkpoint(tmp_path), failed.value.where
        assert where.table == stories.NOTES
        assert checkpoint < where.commit_ts <= ts
        self.holds(tmp_path, bad, checkpoint, cut_off=True)
        self.live(tmp_path, ScriptedSource(good), until=good.ts)
        self.holds(tmp_path, good, good.ts)

    # --- h: an outage of the target ---

    def test_an_outage_of_the_target_is_waited_out(self, tmp_path: Path) -> None:
        """A target that fails is retried until it answers: normal, warning, normal."""
        story = stories.shop()
        left = {step: 2 for step in STEPS if step.startswith("before") or step == "in a task"}
        reports: list[RunReport] = []

        def tap(step: str) -> None:
            if left.get(step):
                left[step] -= 1
                raise SinkError("the target is away")

        self.live(tmp_path, ScriptedSource(story), until=story.ts, tap=tap, reports=reports)

        states = [
            report.state
            for index, report in enumerate(reports)
            if index == 0 or reports[index - 1].state != report.state
        ]
        outages = states[2:-1]
        assert [*states[:2], states[-1]] == ["pending", "normal", "finished"]
        assert outages == ["warning", "normal"] * (len(outages) // 2)
        assert outages
        self.holds(tmp_path, story, story.ts)

    # --- what the cases share ---

    def live(
        self,
        home: Path,
        source: Source,
        *,
        until: int | None = None,
        tap: Tap | None = None,
        reports: list[RunReport] | None = None,
        cut: Callable[[Changes], Changes] | None = None,
        cut_ddl: Callable[[PlannedDdl], PlannedDdl] | None = None,
        rows: int | None = None,
    ) -> Any:
        """Run a new sink, with rounds of `rows` at most; its checkpoint never goes back."""
        seen: list[RunReport] = [] if reports is None else reports
        sink: Any = self.sink(home)
        if rows is not None:
            sink.flush_policy = replace(sink.flush_policy, limit=RoundLimit(rows, 1 << 20), load_limit=None)
        if (tap, cut, cut_ddl) != (None, None, None):
            sink = TappedSink(sink, tap or (lambda _: None), cut, cut_ddl)
        tasks = LocalTasks() if tap is None else TappedTasks(tap)
        try:
            return self.run(source, sink, until=until, tasks=tasks, report=seen.append)
        finally:
            checkpoints = [report.checkpoint_ts for report in seen if report.checkpoint_ts is not None]
            assert checkpoints == sorted(checkpoints), "the checkpoint went back"

    def takes_or_names(self, home: Path, source: ScriptedSource, *, takes: bool, **how: bool) -> None:
        """Assert that the rows of `shop.t` arrive; of a sink that does not take them, that its error names it."""
        story = source.script
        if not takes:
            with pytest.raises(TidegateError) as failed:
                self.live(home, source, until=story.ts)
            assert "shop.t" in str(failed.value)
            return
        self.live(home, source, until=story.ts)
        self.holds(home, story, story.ts, **how)

    def checkpoint(self, home: Path) -> int:
        """Return the position of a newly started sink; 0 for a new feed."""
        position = self.sink(home).recover()
        return 0 if position.is_new else position.checkpoint.ts

    def holds(self, home: Path, story: Script, upto: int, **how: bool) -> None:
        """Assert that the target holds the changes up to `upto`.

        `once`: nothing may be repeated. `cut_off`: changes above `upto` may have arrived, too. `late_ddls`: DDLs may
        come after their own resolved ts."""
        contents = self.read(home)
        cut_off = how.get("cut_off", False)
        how["once"] = how.get("once", False) or self.guarantee == "exactly once"
        assert contents.tables is not None or contents.log is not None, "`read` tells neither tables nor a log"
        faults = [] if contents.log is None else list(_log_faults(contents.log, story, upto, **how))
        for name, changes in contents.changes.items():
            faults += _changes_faults(name, changes, story, upto, once=how["once"])
        if contents.tables is not None:
            expected = [self._carried(story, tables) for tables in story.moments(upto, story.ts if cut_off else upto)]
            unlike = [list(validators.unlike(tables, contents.tables)) for tables in expected]
            common = [what for what in unlike[0] if all(what in differences for differences in unlike)]
            nearest = min(unlike, key=len)
            faults += nearest if self.whole_transactions else common
        assert not faults, "\n".join(faults)

    def _carried(self, story: Script, every: Mapping[str, Sequence[Row]]) -> Mapping[str, Sequence[Row]]:
        tables = {name: rows for name, rows in every.items() if name not in self.leaves_out}
        if stories.TYPED in tables:
            columns = {column.name: column for column in story.definition(stories.TYPED).columns}
            typed = (
                {name: self.shown(columns[name], value) for name, value in row.items()} for row in tables[stories.TYPED]
            )
            tables[stories.TYPED] = list(typed)
        return tables


def _log_faults(
    log: Mapping[str, Sequence[Event]],
    story: Script,
    upto: int,
    *,
    once: bool,
    cut_off: bool = False,
    late_ddls: bool = False,
) -> Iterator[str]:
    for name, events in log.items():
        by_table: dict[str, list[Event]] = {}
        for event in rows(events):
            by_table.setdefault(event.table, []).append(event)
        complaints = [*validators.promised(events, late_ddls=late_ddls), *validators.around_ddls(events)]
        complaints += [what for mine in by_table.values() for what in validators.in_order(mine)]
        yield from (f"{name}: {what}" for what in complaints)
    every = [event for events in log.values() for event in events]
    arrived, happened = validators.images_of(rows(every)), validators.images_of(story.rows(upto))
    yield from validators.chained(validators.merged(log.values()))
    yield from validators.untold(happened, arrived)
    yield from validators.invented(validators.images_of(story.rows(story.ts)) if cut_off else happened, arrived)
    if once:
        yield from validators.repeated(happened, arrived)
        for name, events in log.items():
            counts = Counter((ddl.commit_ts, ddl.query) for ddl in ddls(events))
            yield from (f"{name}: {ddl} arrived {count} times" for ddl, count in counts.items() if count > 1)
    if not cut_off:
        yield from _ddl_faults(every, story, upto)
        yield from validators.unlike(story.tables(upto), validators.rebuilt(log.values()))


def _ddl_faults(every: Sequence[Event], story: Script, upto: int) -> Iterator[str]:
    """Yield a complaint about DDLs that are missing, repeated or out of order."""
    first_ddls = [event for _, event in first_sendings(ddls(every))]
    arrived = list(dict.fromkeys((ddl.commit_ts, ddl.query) for ddl in ddls(first_ddls)))
    arrived.sort(key=lambda ddl: ddl[0] or 0)
    happened = [(ddl.commit_ts, ddl.query) for ddl in story.ddls(upto)]
    if arrived != happened:
        yield f"the DDLs {arrived} arrived, and {happened} happened"


def _changes_faults(name: str, changes: Sequence[RowChange], story: Script, upto: int, *, once: bool) -> Iterator[str]:
    table_rows = [row for row in story.rows(upto) if f"{row.schema}.{row.table}" == name]
    happened, arrived = validators.images_of(table_rows), validators.images_of(changes)
    yield from validators.untold(happened, arrived)
    yield from validators.invented(happened, arrived)
    if once:
        yield from validators.repeated(happened, arrived)
