"""Segments as scripts: the rounds of a sink that every DDL cuts."""

from collections.abc import Sequence
from threading import Event
from typing import NamedTuple

import msgspec
import pytest

from tidegate.engine import segment
from tidegate.engine.change import EventPosition, Layout, SourceDdl
from tidegate.engine.filter import TableFilter, previous_name
from tidegate.engine.plan import Checkpoint, Landed, PlannedDdl, Round
from tidegate.engine.ports import RowRange
from tidegate.engine.segment import RUN_DDLS, plan_segment, run_ddls, run_end, segment_end
from tidegate.model.errors import RenameRefused
from tidegate.model.event import Ddl, Field
from tidegate.model.table import TableName
from tidegate.schema.state import SchemaState

CREATE = (10, "create table t (id int primary key, v int)")
LAYOUT = Layout((Field("id", 3, handle=True),), ("id",))


def placed(*ddls: tuple[int, str] | tuple[int, str, str]) -> list[SourceDdl]:
    """DDLs of table s.t, or of the one that is named."""
    return [
        SourceDdl(EventPosition("x", 0, at), Ddl(schema="s", table=(*table, "t")[0], query=query, commit_ts=ts))
        for at, (ts, query, *table) in enumerate(ddls)
    ]


class ScriptedRanges(NamedTuple):
    """Changes whose rows nobody reads."""

    ranges: Sequence[RowRange]

    def row_ranges(self) -> Sequence[RowRange]:
        return self.ranges


def segments(
    *ddls: tuple[int, str] | tuple[int, str, str],
    upto: int = 100,
    rules: tuple[str, ...] = ("*.*",),
    **spans: tuple[int, int, int],
) -> list[Round]:
    """All segments up to there, one behind the other."""
    some, filter_ = placed(*ddls), TableFilter.parse(rules)
    found, at, state = [], Checkpoint(), SchemaState()
    ranges = [RowRange(low, high, count) for count, low, high in spans.values()]
    while at.ts < upto or segment_end(at, some, upto + 1) == at.ts:
        landed = Landed(
            {TableName("s", name): span for name, span in spans.items()},
            lambda *_: (LAYOUT,),
            filter_.matches,
            takes=filter_.takes_ddl,
        )
        found.append(plan_segment(state, at, some, run_end(at, some, upto, lambda *_: ScriptedRanges(ranges)), landed))
        at, state = found[-1].checkpoint, found[-1].state
    return found


def shown(segment: Round) -> tuple[list[str], list[str], int]:
    """Tables with rows, DDLs, and the end."""
    rows = [f"{step.table.name.table} ({step.after}, {step.upto}]" for step in segment.row_steps]
    return rows, [one.ddl.query for one in segment.planned_ddls], segment.checkpoint.ts


def test_every_ddl_cuts_every_table() -> None:
    """Rows of all tables up to a DDL, then the DDL, one that changes no rows included, then the rest."""
    found = segments(CREATE, (50, "alter table t comment 'x'"), t=(5, 20, 90), u=(5, 20, 90))

    assert list(map(shown, found)) == [
        ([], [CREATE[1]], 10),
        (["t (10, 50]", "u (10, 50]"], ["alter table t comment 'x'"], 50),
        (["t (50, 100]", "u (50, 100]"], [], 100),
    ]


def create(ts: int, name: str) -> tuple[int, str, str]:
    """CREATE of a table of that name."""
    return ts, f"create table {name} (id int primary key, v int)", name


@pytest.mark.parametrize(
    ("between", "ends"),
    [
        ((30, "alter table b add column w int", "b"), [30, 100]),
        ((30, "create view w as select 1", "w"), [30, 100]),
        ((30, "alter table a add column w int", "a"), [20, 30, 100]),
        ((30, "rename table a to c", "c"), [20, 30, 100]),
        ((30, "create database d", ""), [20, 30, 100]),
        ((30, "no ddl at all", "b"), [20, 30, 100]),
    ],
    ids=["other table", "view", "same table", "its name", "database", "unknown"],
)
def test_a_run(between: tuple[int, str, str], ends: list[int]) -> None:
    """DDLs without rows in between are one segment; it ends before one of the same table, or of unknown ones."""
    found = segments(create(5, "b"), create(10, "a"), (20, "alter table a comment 'x'", "a"), between, b=(1, 12, 12))

    assert [one.checkpoint.ts for one in found] == [10, *ends]
    assert [(one.segment.after, one.segment.upto) for one in found[:2] if one.segment] == [(0, 5), (10, 20)]
    assert [one.ddl.commit_ts for each in found for one in each.planned_ddls] == [5, 10, 20, 30]
    assert [each.checkpoint.done != () for each in found] == [True] * (len(found) - 1) + [False]


@pytest.mark.parametrize(
    ("rows", "ends"),
    [((21, 40), [20, 40, 100]), ((20, 20), [10, 40, 100]), ((31, 90), [20, 40, 100]), ((5, 50), [10, 20, 40, 100])],
)
def test_a_run_ends_before_the_next_row(rows: tuple[int, int], ends: list[int]) -> None:
    """A row at the ts of a DDL is before it; where a range of rows overlaps, there may be one anywhere."""
    found = segments(create(10, "a"), create(20, "b"), create(40, "c"), d=(5, *rows))

    assert [one.checkpoint.ts for one in found] == ends


def test_ends_of_a_run() -> None:
    """A run that is cut, by a stop or by its length, goes on with the next DDL; one whose rows follow it is last."""
    some = placed(*(create(ts, f"t{ts}") for ts in range(1, RUN_DDLS + 5)))
    landed = Landed({}, lambda *_: (), lambda *_: True)

    assert run_end(Checkpoint(), some, 2 * RUN_DDLS, lambda *_: ScriptedRanges(())) == RUN_DDLS
    cut = plan_segment(SchemaState(), Checkpoint(), some, 3, landed)
    assert (len(cut.planned_ddls), cut.checkpoint.ts, len(cut.checkpoint.done)) == (3, 3, 1)
    assert run_end(cut.checkpoint, some, 7, lambda *_: ScriptedRanges(())) == 7
    some[4] = msgspec.structs.replace(some[4], rows_follow=True)
    assert run_end(Checkpoint(), some, 100, lambda *_: ScriptedRanges(())) == 5
    assert plan_segment(SchemaState(), Checkpoint(), some, 5, landed).resolved_ts == 4


def test_a_stop_amid_a_run() -> None:
    """It ends the run behind the DDL in progress and all others of its ts, with the schema there."""
    some = placed(create(1, "a"), create(2, "b"), create(2, "c"), create(3, "d"))
    landed = Landed({}, lambda *_: (), lambda *_: True)
    planned, halt, executed = plan_segment(SchemaState(), Checkpoint(), some, 3, landed), Event(), list[str]()

    def execute(ddl: PlannedDdl) -> None:
        executed.append(ddl.ddl.table)
        if ddl.ddl.table == "b":
            halt.set()

    stopped = run_ddls(planned, execute, halt.is_set)
    assert executed == ["a", "b", "c"]
    assert (stopped.checkpoint.ts, len(stopped.checkpoint.done)) == (2, 2)
    assert {table.name.table for table in stopped.state.tables.values()} == {"a", "b", "c"}
    assert [planned_ddl.ddl.table for planned_ddl in stopped.planned_ddls] == executed
    assert plan_segment(stopped.state, stopped.checkpoint, some, 3, landed).ddls == (some[3].ddl,)


def test_a_run_of_many_tables_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schemas around each DDL hold all tables, so a run has fewer DDLs the more tables there are."""
    monkeypatch.setattr(segment, "RUN_TABLES", 9)

    found = segments(*(create(ts, f"t{ts}") for ts in range(1, 9)))

    assert [len(one.planned_ddls) for one in found] == [3, 2, 2, 1, 0]


def test_ddls_of_one_ts_stay_together() -> None:
    """All DDLs of a ts end the same segment, in their order; planning again after a crash gives the same."""
    found = segments(CREATE, (10, "create table w (id int primary key)"), t=(5, 20, 90))

    assert shown(found[0])[1:] == ([CREATE[1], "create table w (id int primary key)"], 10)
    assert len(found[0].checkpoint.done) == 2


def test_a_ddl_that_comes_late() -> None:
    """One at the checkpoint's own ts, resolved already, makes a segment without rows; one that is done makes none."""
    some, at = placed(CREATE, (10, "create table w (id int)")), Checkpoint(10, ())
    landed = Landed({TableName("s", "t"): (5, 8, 90)}, lambda *_: (LAYOUT,), lambda *_: True)

    late = plan_segment(SchemaState(), at, some[:1], segment_end(at, some[:1], 100), landed)
    assert shown(late) == ([], [CREATE[1]], 10)
    assert segment_end(late.checkpoint, some[:1], 100) == 100
    again = plan_segment(late.state, late.checkpoint, some, segment_end(late.checkpoint, some, 100), landed)
    assert shown(again) == ([], ["create table w (id int)"], 10)
    assert len(again.checkpoint.done) == 2


def test_what_cannot_be_read_is_handed_on() -> None:
    """A DDL that we cannot read, or of a table that nobody knows, goes to the sink as it came."""
    found = segments((10, "flashback cluster to tso 5"), (20, "alter table nobody add column x int"))

    assert [shown(one)[1] for one in found] == [
        ["flashback cluster to tso 5"],
        ["alter table nobody add column x int"],
        [],
    ]


def test_filters() -> None:
    """DDLs and rows of tables outside the rules are not handed on, but cut and change the schema all the same."""
    found = segments(CREATE, (50, "drop table t"), rules=("s.u",), t=(5, 20, 40), u=(5, 20, 90))

    assert list(map(shown, found)) == [([], [], 10), (["u (10, 50]"], [], 50), (["u (50, 100]"], [], 100)]


def test_a_rename_into_the_filter_is_refused() -> None:
    """Its rows from before were left out."""
    ddl = Ddl(schema="s", table="u", query="rename table t to u", commit_ts=50)

    assert previous_name(ddl) == TableName("s", "t")
    assert TableFilter.parse(("s.t",)).takes_ddl(ddl, TableName("s", "t"))
    assert not TableFilter.parse(("s.v",)).takes_ddl(ddl, TableName("s", "t"))
    with pytest.raises(RenameRefused, match=r"s\.t, which the filter excludes, becomes s\.u"):
        TableFilter.parse(("s.u",)).takes_ddl(ddl, TableName("s", "t"))


def test_ways_out_of_a_refused_rename() -> None:
    """With the new name left out the feed goes on without the table, with both names from the begin it has all of it;
    several tables of one RENAME go on as all of them, or none."""
    ddls = (CREATE, (50, "rename table t to u", "u"))
    with pytest.raises(
        RenameRefused, match="include both names and start before the table was created, or exclude the new name"
    ):
        segments(*ddls, rules=("s.u", "s.v"))
    assert list(map(shown, segments(*ddls, rules=("s.v",), v=(5, 20, 90))))[-1] == (["v (50, 100]"], [], 100)
    assert [one.ddl.query for each in segments(*ddls, rules=("s.t", "s.u")) for one in each.planned_ddls] == [
        query for _, query, *_ in ddls
    ]

    together = (CREATE, (20, "create table v (id int primary key)", "v"), (50, "rename table t to t2, v to v2"))
    with pytest.raises(RenameRefused, match="include all of them, or none"):
        segments(*together, rules=("s.t", "s.t2"))
    for rules, handed in (("s.*",), 3), (("s.w",), 0):
        assert len([one for each in segments(*together, rules=rules) for one in each.planned_ddls]) == handed


def test_renames_know_the_old_name() -> None:
    """A RENAME is handed on with the name that its table had before."""
    found = segments(CREATE, (20, "alter table t rename to u"), (30, "rename table u to s.v"))

    assert [one.source_ddl.previous for segment in found for one in segment.planned_ddls] == [
        None,
        TableName("s", "t"),
        TableName("s", "u"),
    ]
