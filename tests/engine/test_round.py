"""Where a round ends and when its end may be published."""

from hypothesis import given
from hypothesis import strategies as st

from tests.engine.test_plan import CREATE, placed
from tidegate.engine.change import SourceDdl
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.engine.plan import Checkpoint, Landed, plan_round
from tidegate.engine.ports import LocalTasks, RoundLimit, RowRange, TableSpan
from tidegate.engine.segment import Planning, end_of_round, is_whole, plan_landed, raised
from tidegate.model.event import Ddl
from tidegate.model.table import TableName
from tidegate.schema.state import SchemaState
from tidegate.sink.callback import Callback, CallbackSink
from tidegate.testing.script import Script, ScriptedSource, put, run_here

TS = st.integers(0, 100)


def test_a_round_ends_at_the_frontier():
    """Without a wish and without a crash before, a round takes what has landed completely."""
    assert end_of_round(10, 90, ()) == 90


def test_a_round_ends_where_the_user_wants():
    """`until` ends a round before the frontier, and never behind the checkpoint."""
    assert end_of_round(10, 90, (), until=50) == 50
    assert end_of_round(10, 90, (), until=5) == 10
    assert end_of_round(10, 90, (), until=99) == 90


def test_a_round_reaches_the_floor():
    """A round is not shorter than one that was cut off, whatever the user wants and however much waits."""
    waiting = [RowRange(11, 20, 100), RowRange(21, 70, 100)]

    assert end_of_round(10, 90, (), until=50, floor=70) == 70
    assert end_of_round(10, 90, waiting, floor=70, limit=RoundLimit(100, 1)) == 70
    assert end_of_round(10, 90, waiting, limit=RoundLimit(100, 1)) == 20


@given(at=TS, frontier=TS, until=st.none() | TS, floor=TS)
def test_ends_are_within_what_has_landed(at, frontier, until, floor):
    """An end is never below checkpoint or floor and never above the frontier."""
    frontier, floor = max(frontier, at), min(floor, max(frontier, at))

    end = end_of_round(at, frontier, (), until=until, floor=floor)

    assert max(at, floor) <= end <= frontier
    assert is_whole(end, floor)


def test_the_floor_rises_with_the_furthest_table():
    """A table found ahead raises the floor; what ends below it is no state of one ts."""
    floor = raised(raised(0, [0, 40]), [30])

    assert floor == 40
    assert raised(7, []) == 7
    assert not is_whole(39, floor)
    assert is_whole(40, floor)


class Some:
    """Rows of one table."""

    def tables(self) -> dict[TableName, TableSpan]:
        """What there is."""
        return {TableName("s", "t"): TableSpan(rows=5, min_ts=20, max_ts=90)}

    def layouts(self, *_: object) -> tuple[()]:
        """No layouts are asked for where a DDL tells."""
        return ()


def test_engine_and_readers_plan_alike():
    """What has landed is planned as `plan_round` does, with its spans."""
    ddls: list[SourceDdl] = placed(CREATE)
    state, at = SchemaState(), Checkpoint()

    planned = plan_landed(state, at, ddls, 100, Some(), rules=Planning(lambda *_: True))

    landed = Landed({TableName("s", "t"): (5, 20, 90)}, lambda *_: (), lambda *_: True)
    assert planned == plan_round(state, at, ddls, 100, landed)
    assert isinstance(planned.ddls[0], Ddl)
    assert plan_landed(state, at, ddls, 100, Some(), rules=Planning(lambda *_: False)).units == ()


class Asked(ScriptedSource):
    """A source that counts by round how often it is asked for a rest."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.rounds: list[int] = []

    def refresh(self):
        """Begin a round."""
        self.rounds.append(0)
        super().refresh()

    def rests_at(self, ts):
        """Count."""
        self.rounds[-1] += 1
        return super().rests_at(ts)


def test_a_round_asks_for_a_rest_once(tmp_path):
    """Whatever ends it: a DDL, the frontier or what the user wants."""
    story = Script()
    story.ddl("s.t", "CREATE TABLE s.t (id INT PRIMARY KEY)")
    for number in range(3):
        story.commit(put("s.t", id=number))
        story.resolve()
    callback = Callback(lambda _: None, lambda _: None, lambda _: None)
    source = Asked(story)
    sink = CallbackSink(callback, DirectoryCheckpoints(tmp_path, "one"))
    run_here(source, sink, until=story.ts, tasks=LocalTasks(pickles=False))

    assert len(source.rounds) > 3
    assert set(source.rounds) == {1}
