"""Rounds of a lake whose event filters leave DDLs out: what goes on, what ends the feed, and how it catches up."""

import pytest

from tidegate.engine.change import EventPosition, SourceDdl
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import EventRule
from tidegate.engine.plan import Alter, Checkpoint, Create, Landed, Round, Rows, SkippedDdl, plan_round
from tidegate.model.errors import SchemaError
from tidegate.model.event import Ddl
from tidegate.model.table import TableName
from tidegate.schema.state import SchemaState

CREATE = "create table t (id int primary key, v int)"
ALTER = "alter table t add column w int"
Spans = dict[str, tuple[int, int, int]]


class Lake:
    """Plans one round after the other."""

    def __init__(self, *rules: dict[str, tuple[str, ...]]) -> None:
        self.at, self.state, self.seen = Checkpoint(), SchemaState(), list[SourceDdl]()
        self.filtered(*rules)

    def filtered(self, *rules: dict[str, tuple[str, ...]]) -> None:
        """Other rules from now on."""
        given = [EventRule(**{"matcher": ("s.*",)} | rule) for rule in rules]  # type: ignore[arg-type]
        self.drops = EventFilter.of(given, None).ddls()

    def round(
        self, upto: int, *ddls: tuple[int, str, str], left_out: bool = False, **spans: tuple[int, int, int]
    ) -> Round:
        """The round up to a ts, with new DDLs (ts, table, text)."""
        for ts, table, query in ddls:
            ddl = Ddl(schema="s", table=table, query=query, commit_ts=ts)
            self.seen.append(SourceDdl(EventPosition("x", 0, len(self.seen)), ddl, left_out))
        named = {TableName("s", name): span for name, span in spans.items()}
        landed = Landed(named, lambda *_: (), lambda *_: True, self.drops)
        planned = plan_round(self.state, self.at, self.seen, upto, landed)
        self.at, self.state = planned.checkpoint, planned.state
        return planned


def steps(planned: Round) -> list[str]:
    """The steps of a round as short words."""
    found = []
    for step in (step for unit in planned.units for step in unit.steps):
        match step:
            case Rows():
                found.append(f"rows {step.table.name.table} ({step.after}, {step.upto}]")
            case Create():
                found.append(f"create {step.table.name.table}")
            case Alter():
                found.append(f"alter {step.new.name.table} {[column.name for column in step.new.columns]}")
    return found


@pytest.mark.parametrize(
    "query",
    ["truncate table t", "drop table t", "alter table t comment 'x'", "create index i on t (v)", "drop database s"],
)
def test_rows_that_fit_go_on(query: str) -> None:
    """The table stays as it was, rows behind the DDL are merged into it, and nothing is kept in mind."""
    lake = Lake({"ignore_sql": ("truncate", "drop", "comment", "create index")})
    planned = lake.round(50, (10, "t", CREATE), (20, "t", query), t=(9, 11, 45))

    assert steps(planned) == ["create t", "rows t (10, 50]"]
    assert [ddl.query for ddl in planned.ddls] == [CREATE]
    assert planned.warnings == (f"DDL of ts 20 excluded by an event filter: {query}",)
    assert planned.checkpoint == Checkpoint(50)
    assert set(planned.state.tables) == {("s", "t")}


@pytest.mark.parametrize(
    ("table", "query"),
    [
        ("t", ALTER),
        ("t", "alter table t drop column v"),
        ("t", "alter table t modify column v varchar(9)"),
        ("t", "alter table t drop primary key"),
        ("u", "create table u (id int primary key)"),
        ("u", "rename table t to u"),
        ("u", "create table u like t"),
    ],
)
def test_rows_that_do_not_fit_end_the_feed(table: str, query: str) -> None:
    """The first of them, and whichever round it comes in; rows up to the DDL do fit."""
    lake = Lake({"ignore_sql": ("alter", "create table u", "rename")})
    early = lake.round(20, (10, "t", CREATE), (20, table, query), t=(3, 11, 20))
    quiet = lake.round(30)

    assert steps(early) == ["create t", "rows t (10, 20]"]
    assert quiet.checkpoint.left_out == (
        SkippedDdl("s", table, Ddl(schema="s", table=table, query=query, commit_ts=20)),
    )
    with pytest.raises(SchemaError) as told:
        lake.round(40, **{table: (1, 35, 35)})
    assert (
        f"table s.{table}: rows up to ts 35 do not fit the lake, since an event filter excluded the DDL of ts 20"
        in str(told.value)
    )
    assert repr(query) in str(told.value)


def test_what_passes_later_is_applied_before_the_rows() -> None:
    """Several DDLs in their order, a later one of which could not be foreseen, where the round begins."""
    lake = Lake({"ignore_event": ("add column", "modify column", "create table")})
    lake.round(30, (5, "u", "create table u (id int primary key)"))
    assert lake.state.tables == {}
    lake.filtered({"ignore_event": ("add column", "modify column")})
    second = lake.round(40, (35, "t", CREATE), (36, "t", ALTER), (37, "t", "alter table t modify column w bigint"))
    assert sorted(steps(second)) == ["create t", "create u"]
    assert [mark.ts for mark in lake.at.left_out] == [36, 37]
    lake.filtered()
    planned = lake.round(60, t=(1, 50, 50))

    assert steps(planned) == ["alter t ['id', 'v', 'w']", "alter t ['id', 'v', 'w']", "rows t (40, 60]"]
    assert planned.state.tables["s", "t"].columns[-1].type.code.name == "LONGLONG"
    assert planned.checkpoint.left_out == ()


def test_a_dropped_table_lacks_nothing_and_a_renamed_one_the_same() -> None:
    """What is kept in mind goes with the table."""
    lake = Lake({"ignore_event": ("add column",)})
    lake.round(30, (10, "t", CREATE), (20, "t", ALTER), (25, "u", "rename table t to u"))
    assert [mark.name for mark in lake.at.left_out] == [TableName("s", "u")]
    lake.filtered()
    assert steps(lake.round(35, u=(1, 33, 33))) == ["alter u ['id', 'v', 'w']", "rows u (30, 35]"]

    other = Lake({"ignore_event": ("add column",)})
    other.round(30, (10, "t", CREATE), (20, "t", ALTER), (25, "t", "drop table t"), (26, "t", CREATE), t=(2, 11, 20))
    assert other.at.left_out == ()
    assert steps(other.round(35, t=(1, 33, 33))) == ["rows t (30, 35]"]


def test_transactions_stay_left_out() -> None:
    """A DDL that landed as one of a transaction that is left out is no rule's business."""
    lake = Lake()
    lake.round(20, (10, "t", CREATE))
    lake.round(30, (25, "t", ALTER), left_out=True)

    with pytest.raises(SchemaError, match="To continue: exclude the table by a filter rule"):
        lake.round(40, t=(1, 35, 35))


def test_ddls_that_cannot_be_followed_can_be_left_out() -> None:
    """A rule for them lets a feed go on that stood before them, with a warning that tells what is not known."""
    lake = Lake()
    lake.round(20, (10, "t", CREATE))
    with pytest.raises(SchemaError, match="exists already"):
        lake.round(30, (25, "t", CREATE))
    lake.filtered({"ignore_event": ("create table",)})
    planned = lake.round(30, t=(1, 28, 28))

    assert steps(planned) == ["rows t (20, 30]"]
    assert planned.warnings == (f"DDL of ts 25 excluded by an event filter; its effect is unknown: {CREATE}",)


def test_a_ddl_that_needs_one_that_was_left_out() -> None:
    """It ends the feed and says that a filter may be the reason."""
    lake = Lake({"ignore_event": ("add column",)})
    with pytest.raises(SchemaError, match="Event filters may have excluded DDLs that it needs"):
        lake.round(30, (10, "t", CREATE), (20, "t", ALTER), (25, "t", "alter table t drop column w"))


def test_a_rename_is_judged_by_the_name_that_goes() -> None:
    """The plan knows it from the tables."""
    lake = Lake({"matcher": ("s.t",), "ignore_event": ("rename table",)})
    planned = lake.round(30, (10, "t", CREATE), (20, "u", "rename table t to u"))

    assert set(planned.state.tables) == {("s", "t")}
