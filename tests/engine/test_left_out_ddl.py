"""DDLs of tables that the filter leaves out: followed where they can be, and never in the way of the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.test_plan import units
from tidegate.engine.change import EventPosition, Layout, SourceDdl
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import EventRule, TableFilter
from tidegate.engine.plan import Checkpoint, Landed, Round, plan_round
from tidegate.engine.segment import plan_segment, segment_end
from tidegate.model.errors import InputError, SchemaError
from tidegate.model.event import Ddl, Field
from tidegate.model.table import TableName
from tidegate.schema.state import SchemaState

KEPT = (10, "t", "create table t (id int primary key, v int)")
BROKEN = {
    "unreadable": "alter table x add column w geometrycollection srid 4326 gibberish here",
    "not supported": "create table x as select * from y",
    "flashback of its database": "flashback database s to s2",
    "a column that is not there": "alter table x drop column nothing",
    "made twice": "create table x (id int primary key)",
    "a name that is taken": "rename table x to y",
}
"""Statements about s.x that end a feed which carries it."""
X, Y = (11, "x", "create table x (id int primary key, v int)"), (12, "y", "create table y (id int primary key)")
LAYOUT = Layout((Field("id", 3, handle=True),), ("id",))


def placed(*ddls: tuple[int, str, str]) -> list[SourceDdl]:
    """DDLs by (ts, table of schema s, text)."""
    return [
        SourceDdl(EventPosition("topic", 0, at), Ddl(schema="s", table=table, query=query, commit_ts=ts))
        for at, (ts, table, query) in enumerate(ddls)
    ]


def plan(
    *ddls: tuple[int, str, str],
    rules=("s.t", "s.kept*"),
    state=SchemaState(),  # noqa: B008
    at=0,
    events=None,
    **spans,
) -> Round:
    """The round to 100 of a lake."""
    names = TableFilter.parse(rules)
    found = Landed(
        {TableName("s", name): span for name, span in spans.items()},
        lambda *_: (LAYOUT,),
        names.matches,
        None if events is None else events.ddls(),
        names.takes_ddl,
    )
    return plan_round(state, Checkpoint(at), placed(*ddls), 100, found)


@pytest.mark.parametrize("query", [query for query in BROKEN.values() if "database" not in query])
def test_a_ddl_of_a_left_out_table_never_ends_a_feed(query):
    """Whatever ends a feed that carries the table passes, with one warning that names table, ts and why."""
    with pytest.raises((SchemaError, InputError)):
        plan(KEPT, X, Y, (40, "x", query), rules=("*.*",))

    planned = plan(KEPT, X, Y, (40, "x", query), (50, "x", query), t=(5, 20, 90))

    assert units(planned) == [["create t 10.1", "rows t (10, 100]"]]
    (warning,) = planned.warnings
    assert "s.x" in warning
    assert "40" in warning


def test_a_database_that_is_left_out_may_come_back():
    """FLASHBACK DATABASE of one that no rule takes passes; of one with tables of the feed it does not."""
    back = (40, "", BROKEN["flashback of its database"])

    assert units(plan(back, rules=("other.*",))) == []
    with pytest.raises(InputError, match="FLASHBACK"):
        plan(KEPT, back)


def test_a_left_out_table_that_is_followed_is_known_when_it_is_needed():
    """CREATE TABLE .. LIKE of a table outside the filter has that table's columns, those that came later among them."""
    planned = plan(X, (20, "x", "alter table x add column w int"), (30, "kept", "create table kept like x"))

    assert [column.name for column in planned.state.tables["s", "kept"].columns] == ["id", "v", "w"]


@pytest.mark.parametrize(
    ("table", "query"),
    [
        ("kept", "create table kept like x"),
        ("kept", "rename table x to kept"),
        ("kept", "alter table x rename to kept"),
        ("kept", "rename table x to z, z to kept"),
        ("t", "alter table t exchange partition p0 with table x"),
    ],
)
def test_what_could_not_be_followed_is_an_error_where_it_is_needed(table, query):
    """It names the DDL that was not followed: ts and reason, not the statement that met it alone."""
    partitioned = (10, "t", "create table t (id int primary key) partition by hash (id) partitions 2")
    broken = (40, "x", BROKEN["unreadable"])

    with pytest.raises(SchemaError, match=r"(?s)s\.x.*ts 40.*gibberish"):
        plan(partitioned, X, broken, (50, table, query))


def test_rows_of_a_table_that_was_not_followed_do_not_make_one_up():
    """Rules that take it later end the feed with the reason: its rows from before are not there."""
    state = plan(X, (40, "x", BROKEN["unreadable"])).state
    state = SchemaState.from_json(state.to_json())

    with pytest.raises(SchemaError, match=r"(?s)s\.x.*ts 40"):
        plan(rules=("*.*",), state=state, at=60, x=(5, 70, 90))


@pytest.mark.parametrize("end", ["drop table x", "create table x (id int primary key)"])
def test_a_table_that_is_made_anew_is_followed_again(end):
    """What was lost goes with the table: DROP, or a CREATE of that name."""
    planned = plan(X, (40, "x", BROKEN["unreadable"]), (50, "x", end))

    assert not planned.state.lost


def test_an_action_that_cannot_be_told_of_a_left_out_table_is_not_asked_for():
    """A rule of ignore-event needs the action of a DDL: of one that the table filter takes alone."""
    events = EventFilter.of([EventRule(matcher=("*.*",), ignore_event=("add column",))], None)
    odd = (40, "x", "frobnicate table x")

    assert units(plan(KEPT, X, odd, events=events)) == [["create t 10.1"]]
    rules = TableFilter.parse(("s.t",))
    found = Landed({}, lambda *_: (), rules.matches, events.ddls(), rules.takes_ddl)
    segment = plan_segment(SchemaState(), Checkpoint(), placed(odd), 40, found)
    assert not segment.planned_ddls
    assert not segment.warnings


NAMES = st.sampled_from(["x", "y", "z"])
TEXTS = st.one_of(
    st.builds("create table {0} (id int primary key, v int)".format, NAMES),
    st.builds("create table {0} like {1}".format, NAMES, NAMES),
    st.builds("create table {0} like t".format, NAMES),
    st.builds("rename table {0} to {1}".format, NAMES, NAMES),
    st.builds("rename table {0} to w, {1} to {0}, w to {1}".format, NAMES, NAMES),
    st.builds("alter table {0} add column w int".format, NAMES),
    st.builds("alter table {0} drop column v, add foreign key (id) references t (id)".format, NAMES),
    st.builds("alter table {0} exchange partition p0 with table {1}".format, NAMES, NAMES),
    st.builds("alter table {0} gibberish".format, NAMES),
    st.builds("drop table {0}".format, NAMES),
    st.builds("truncate table {0}".format, NAMES),
    st.builds("flashback table {0}".format, NAMES),
)


@given(texts=st.lists(st.tuples(NAMES, TEXTS), max_size=12))
def test_no_history_of_left_out_tables_shows(texts):
    """Any DDLs of tables outside the filter, sense or nonsense, leave the steps of the others as they are."""
    ddls = [(20 + at, label, query) for at, (label, query) in enumerate(texts)]

    planned = plan(KEPT, *ddls, (60, "t", "alter table t add column w int"), t=(5, 15, 90))

    assert units(planned) == [["create t 10.1", "rows t (10, 60]", "alter t 60.1", "rows t (60, 100]"]]


@given(texts=st.lists(st.tuples(NAMES, TEXTS), max_size=6))
def test_nor_does_it_where_every_ddl_cuts(texts):
    """The same for a sink that does DDLs one by one: none of theirs is handed to it, none ends the feed."""
    ddls = placed(KEPT, *[(20 + at, label, query) for at, (label, query) in enumerate(texts)])
    rules = TableFilter.parse(("s.t",))
    events = EventFilter.of([EventRule(matcher=("*.*",), ignore_event=("add column",))], None)
    found = Landed({}, lambda *_: (), rules.matches, events.ddls(), rules.takes_ddl)
    state, at, handed = SchemaState(), Checkpoint(), list[str]()
    while at.ts < 100:
        segment = plan_segment(state, at, ddls, segment_end(at, ddls, 100), found)
        state, at = segment.state, segment.checkpoint
        handed += [one.ddl.query for one in segment.planned_ddls]

    assert handed == [KEPT[2]]
