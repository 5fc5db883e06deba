"""A lake's feed ends with an error that names ways out: each of them is taken here, and leads on.

feed ✗ "..: exclude the table by a filter rule, or begin a fresh lake"
         ├── the same lake, with that rule  ──► goes on to the end of the topic, the other tables equal
         └── a fresh lake                   ──► has all tables
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.failpoint import armed
from tests.replay.small_topics import one_by_one
from tests.replay.stage import Stage
from tidegate.engine.filter import EventRule, SelectorRule
from tidegate.engine.retention import PURGED
from tidegate.engine.retry_policy import RetryPolicy
from tidegate.lakes.lake import Lake
from tidegate.model.errors import ColumnSelectorFailed, Retry, SinkError, SinkRefused, TidegateError
from tidegate.model.event import Ddl, Field, Insert, RowChange
from tidegate.model.mysql import MysqlType
from tidegate.objectstore import deltalog
from tidegate.sink.delta.snapshots import publish

ACTIONS = {"create": 3, "rename": 14, "drop": 4, "truncate": 11, "alter": 5, "exchange": 42}
END = 1 << 40


def ddl(table: str, query: str, action: str = "") -> Ddl:
    """A DDL of s.`table`; its first word, or `action`, says what kind it is."""
    return Ddl(schema="s", table=table, query=query, type=ACTIONS[action or query.split(maxsplit=1)[0]])


def row(table: str, key: int, *more: str) -> Insert:
    """A row of s.`table` with columns id, v and `more`, all of them `key`."""
    columns = [Field(name, MysqlType.LONG, 65, binary=True) for name in ("v", *more)]
    fields = (Field("id", MysqlType.LONG, 11, binary=True, handle=True), *columns)
    return Insert(schema="s", table=table, fields=fields, after=(key,) * len(fields), pk_names=("id",))


def create(table: str, columns: str = "id int primary key, v int", more: str = "") -> Ddl:
    """CREATE TABLE."""
    return ddl(table, f"create table {table} ({columns}){more}")


class Told(NamedTuple):
    """How a run ended: its error, and the rows of each table that the lake shows."""

    error: TidegateError | None
    rows: dict[str, list[int]]


def ended(root: Path, events: Sequence[RowChange | Ddl], **delta: Any) -> TidegateError | None:
    """The error of one run of a feed of a topic, None at its end; one that would be tried again is a failure here."""
    stage = Stage(root, "canal-json", {0: one_by_one("canal-json", events)}, seed=1, **delta)
    while stage.land(100):
        pass
    try:
        stage.round()
    except TidegateError as met:
        if met.retry is Retry.LATER:
            pytest.fail(f"a condition that stays is tried again and again: {met}")
        return met
    return None


def run(root: Path, events: Sequence[RowChange | Ddl], **delta: Any) -> Told:
    """One run of a feed of a topic, and what its lake shows then."""
    error = ended(root, events, **delta)
    lake = Lake(str(root))
    names = lake.tables() if lake.history() else []
    return Told(error, {name: sorted(lake.arrow(name)["id"].to_pylist()) for name in names})


T: tuple[RowChange | Ddl, ...] = (create("t"), row("t", 1))
SWAP = (*T, create("u"), row("u", 2), ddl("tmp", "rename table t to tmp"), ddl("t", "rename table u to t"))
SWAP = (*SWAP, ddl("u", "rename table tmp to u"), row("t", 3), row("u", 4), create("other"), row("other", 5))


def test_a_rename_into_the_filter_the_new_name_left_out(tmp_path: Path) -> None:
    """Told at each name that comes in; with both left out the feed goes on in its lake, and other tables are whole."""
    found = run(tmp_path, SWAP, rules=("*.*", "!s.t"))
    assert "exclude the new name by a filter rule" in str(found.error)
    found = run(tmp_path, SWAP, rules=("*.*", "!s.t", "!s.tmp"))
    assert "s.tmp, which the filter excludes, becomes s.u" in str(found.error)

    found = run(tmp_path, SWAP, rules=("*.*", "!s.t", "!s.tmp", "!s.u"))

    assert found.error is None
    assert found.rows["s.other"] == [5]


def test_a_rename_into_the_filter_a_fresh_lake(tmp_path: Path) -> None:
    """With rules that take both names a fresh lake has all rows."""
    assert run(tmp_path / "old", SWAP, rules=("*.*", "!s.t")).error is not None

    found = run(tmp_path / "fresh", SWAP, rules=("*.*",))

    assert found == Told(None, {"s.t": [2, 3], "s.u": [1, 4], "s.other": [5]})


def test_rules_that_take_a_table_later(tmp_path: Path) -> None:
    """The lake lacks the rows from before: said once, for good; leaving the table out again goes on, a fresh lake has
    it."""
    begun = (*T, create("u"), row("u", 2))
    assert run(tmp_path / "lake", begun, rules=("*.*", "!s.t")).error is None
    more = (*begun, row("t", 3), row("u", 4))

    found = run(tmp_path / "lake", more, rules=("*.*",))
    assert isinstance(found.error, SinkRefused)
    assert "the lake has no rows of it" in str(found.error)

    assert run(tmp_path / "lake", more, rules=("*.*", "!s.t")) == Told(None, {"s.u": [2, 4]})
    assert run(tmp_path / "fresh", more, rules=("*.*",)) == Told(None, {"s.t": [1, 3], "s.u": [2, 4]})


def test_stored_rows_that_somebody_removed(tmp_path: Path) -> None:
    """The same error, and the same ways out."""
    assert run(tmp_path / "lake", (*T, create("u"), row("u", 2))).error is None
    shutil.rmtree(next(path for path in (tmp_path / "lake" / "tables").iterdir() if path.name.startswith("a-")))
    more = (*T, create("u"), row("u", 2), row("t", 3), row("u", 4))

    assert isinstance(ended(tmp_path / "lake", more), SinkRefused)

    assert ended(tmp_path / "lake", more, rules=("*.*", "!s.t")) is None
    assert Lake(str(tmp_path / "lake")).arrow("s.u").num_rows == 2
    assert run(tmp_path / "fresh", more) == Told(None, {"s.t": [1, 3], "s.u": [2, 4]})


PARTS = " partition by range (id) (partition p0 values less than (10))"
EXCHANGED = (
    *(create("t", more=PARTS), row("t", 1), create("x"), row("x", 2), create("u"), row("u", 7)),
    *(ddl("t", "alter table t exchange partition p0 with table x", "exchange"), row("t", 3), row("x", 4)),
)


@pytest.mark.parametrize(("inside", "outside"), [("t", "x"), ("x", "t")])
def test_half_of_an_exchange(tmp_path: Path, inside: str, outside: str) -> None:
    """Its partner left out, too, the feed goes on; a fresh lake with both has the rows where they went."""
    found = run(tmp_path / "lake", EXCHANGED, rules=("*.*", f"!s.{outside}"))
    assert f"s.{outside}, which the filter excludes, exchanges rows with s.{inside}" in str(found.error)

    found = run(tmp_path / "lake", EXCHANGED, rules=("*.*", "!s.t", "!s.x"))
    assert (found.error, found.rows["s.u"]) == (None, [7])
    assert run(tmp_path / "fresh", EXCHANGED) == Told(None, {"s.t": [2, 3], "s.x": [1, 4], "s.u": [7]})


UNREADABLE = ddl("x", "alter table x gibberish")
NEEDED = (create("x"), UNREADABLE, *T, ddl("n", "create table n like x"), row("n", 2), row("t", 3))


def test_what_could_not_be_followed_is_needed(tmp_path: Path) -> None:
    """CREATE TABLE .. LIKE of a table outside the filter that was lost: without the new table the feed goes on."""
    found = run(tmp_path, NEEDED, rules=("*.*", "!s.x"))
    assert "exclude s.n by a filter rule as well" in str(found.error)

    assert run(tmp_path, NEEDED, rules=("*.*", "!s.x", "!s.n")) == Told(None, {"s.t": [1, 3]})


def test_a_lost_table_is_taken_again(tmp_path: Path) -> None:
    """Rules that take a table that was lost meanwhile: left out again the feed goes on; a fresh lake stops where the
    DDL stands, and goes on without the table."""
    begun = (*T, create("x"), UNREADABLE)
    assert run(tmp_path / "lake", begun, rules=("*.*", "!s.x")).error is None
    more = (*begun, row("x", 2), row("t", 3))

    found = run(tmp_path / "lake", more)
    assert "exclude it again by a filter rule, or create a new lake" in str(found.error)

    assert run(tmp_path / "lake", more, rules=("*.*", "!s.x")) == Told(None, {"s.t": [1, 3]})
    assert run(tmp_path / "fresh", (*T, create("x"), row("x", 2), row("t", 3))).error is None


@pytest.mark.parametrize(
    "events",
    [
        pytest.param((create("x", "id int primary key, v int", " engine=innodb as select 1"),), id="as select"),
        pytest.param(
            (create("x", ", ".join(["id int", *(f"c{at} int" for at in range(5000))])),), id="too many columns"
        ),
        pytest.param((create("x"), create("x")), id="made twice"),
        pytest.param((create("x"), ddl("x", "alter table x drop column nothing")), id="does not fit"),
        pytest.param((create("x"), UNREADABLE), id="unreadable"),
    ],
)
def test_a_ddl_that_cannot_be_followed(tmp_path: Path, events: Sequence[Ddl]) -> None:
    """Its table left out by a filter rule, the lake goes on."""
    topic = (*T, *events, row("t", 3))
    assert run(tmp_path, topic).error is not None

    assert run(tmp_path, topic, rules=("*.*", "!s.x")) == Told(None, {"s.t": [1, 3]})


def test_partitions_that_a_statement_counts(tmp_path: Path) -> None:
    """Its table left out by a filter rule the feed goes on; a topic that has the partitions written out is followed."""
    begun = (*T, create("x", more=PARTS), row("x", 2))
    topic = (*begun, ddl("x", "alter table x last partition less than (20)"), row("t", 3), row("x", 14))
    found = run(tmp_path / "lake", topic)
    assert "exclude the table by a filter rule or write out the partitions" in str(found.error)

    assert run(tmp_path / "lake", topic, rules=("*.*", "!s.x")) == Told(None, {"s.t": [1, 3]})
    written = ddl("x", "alter table x add partition (partition p1 values less than (20))")
    topic = (*begun, written, row("t", 3), row("x", 14))
    assert run(tmp_path / "fresh", topic) == Told(None, {"s.t": [1, 3], "s.x": [2, 14]})


@pytest.mark.parametrize(
    ("column", "by"),
    [
        ("v varchar(9) collate utf8mb4_general_ci", "key (v) partitions 1"),
        ("v varchar(9) charset gbk", "range columns (v) (partition p0 values less than ('b'))"),
    ],
)
def test_partitions_whose_rows_are_not_known(tmp_path: Path, column: str, by: str) -> None:
    """Its table left out by a filter rule the feed goes on; the rows of a guessed partition would be lost."""
    parted = create("x", f"id int primary key, {column}", f" partition by {by}")
    fields = (Field("id", MysqlType.LONG, 11, binary=True, handle=True), Field("v", MysqlType.VARCHAR, 64))
    text = Insert(schema="s", table="x", fields=fields, after=(2, "a"), pk_names=("id",))
    topic = (*T, parted, text, ddl("x", "alter table x truncate partition p0", "truncate"), row("t", 3))
    found = run(tmp_path / "lake", topic)
    assert "exclude the table by a filter rule" in str(found.error)

    assert run(tmp_path / "lake", topic, rules=("*.*", "!s.x")) == Told(None, {"s.t": [1, 3]})


def test_another_run_that_keeps_committing(tmp_path: Path) -> None:
    """Waited out as long as that one lasts; once it is the only run, the feed goes on."""
    stage = Stage(tmp_path, "canal-json", {0: one_by_one("canal-json", T)})
    while stage.land(100):
        pass

    def commit() -> None:
        (table,) = (tmp_path / "tables").iterdir()
        found = deltalog.load(str(table))
        assert found is not None
        deltalog.commit(str(table), found.version + 1, [], operation="WRITE", metadata={})

    stage.engine.outage.policy = RetryPolicy(quick=0, stuck_s=None)
    with armed({"apply/rows-written": commit}), pytest.raises(SinkError, match="run one changefeed per lake") as met:
        stage.round()
    assert met.value.retry is Retry.LATER

    stage.round()
    assert Lake(str(tmp_path)).arrow("s.t")["id"].to_pylist() == [1]


LACKING = (*T, ddl("t", "alter table t add column w int"), row("t", 3, "w"), create("u"), row("u", 2))
LEFT_OUT = {"event_rules": (EventRule(matcher=("s.t",), ignore_event=("add column",)),)}


def test_rows_behind_a_ddl_that_an_event_filter_left_out(tmp_path: Path) -> None:
    """Let it pass, leave the table out, or begin a fresh lake that keeps columns as they are."""
    found = run(tmp_path / "lake", LACKING, **LEFT_OUT)
    assert "let the filter pass it" in str(found.error)
    shutil.copytree(tmp_path / "lake", tmp_path / "second")

    assert run(tmp_path / "lake", LACKING) == Told(None, {"s.t": [1, 3], "s.u": [2]})
    found = run(tmp_path / "second", LACKING, rules=("*.*", "!s.t"), **LEFT_OUT)
    assert (found.error, found.rows["s.u"]) == (None, [2])
    fresh = run(tmp_path / "fresh", LACKING, schema_change="lenient")
    assert fresh == Told(None, {"s.t": [1, 3], "s.u": [2]})


def test_an_action_that_cannot_be_told(tmp_path: Path) -> None:
    """Named by ignore-sql, or its table left out of the matcher, the DDL is judged."""
    odd = Ddl(schema="s", table="x", query="frobnicate table x", canal_type="QUERY")
    topic = (*T, odd, row("t", 3))
    rule = EventRule(matcher=("s.*",), ignore_event=("add column",))
    assert "Use ignore-sql" in str(run(tmp_path / "a", topic, event_rules=(rule,)).error)

    by_text = EventRule(matcher=("s.*",), ignore_event=("add column",), ignore_sql=("^frobnicate",))
    assert run(tmp_path / "a", topic, event_rules=(by_text,)).error is None


def test_column_changes_that_are_forbidden(tmp_path: Path) -> None:
    """schema-change=exception ends at the DDL; evolve follows it, lenient adds columns alone."""
    found = run(tmp_path / "lake", LACKING, schema_change="exception")
    assert "run with schema-change=evolve" in str(found.error)
    shutil.copytree(tmp_path / "lake", tmp_path / "second")

    assert run(tmp_path / "lake", LACKING, schema_change="evolve").rows["s.t"] == [1, 3]
    assert run(tmp_path / "second", LACKING, schema_change="lenient").rows["s.t"] == [1, 3]


def test_a_column_that_the_mode_needs(tmp_path: Path) -> None:
    """The table left out, or a lake with mode=replica."""
    topic = (*T, create("x", "id int primary key, v int, _commit_ts int"), row("x", 2, "_commit_ts"))
    found = run(tmp_path / "lake", topic, mode="changelog")
    assert "reserves" in str(found.error)

    assert run(tmp_path / "lake", topic, mode="changelog", rules=("*.*", "!s.x")).error is None
    assert run(tmp_path / "fresh", topic) == Told(None, {"s.t": [1], "s.x": [2]})


def test_a_name_that_delta_has_not(tmp_path: Path) -> None:
    """column-mapping=never: run with auto, or leave the table out."""
    odd = row("x", 2)
    odd = Insert(
        schema="s",
        table="x",
        fields=(odd.fields[0], Field("a b", MysqlType.LONG, 65, binary=True)),
        after=(2, 2),
        pk_names=("id",),
    )
    topic = (*T, create("x", "id int primary key, `a b` int"), odd)
    assert "column-mapping=auto" in str(run(tmp_path / "lake", topic, column_mapping="never").error)

    assert run(tmp_path / "lake", topic, column_mapping="auto") == Told(None, {"s.t": [1], "s.x": [2]})


def test_another_mode(tmp_path: Path) -> None:
    """Run with the mode of the lake, or in another directory."""
    assert run(tmp_path / "lake", T).error is None
    with pytest.raises(SinkRefused, match="run with mode=replica, or start a new changefeed"):
        run(tmp_path / "lake", T, mode="changelog")

    assert run(tmp_path / "lake", (*T, row("t", 2))).rows == {"s.t": [1, 2]}
    assert run(tmp_path / "fresh", T, mode="changelog").error is None


def chosen(*columns: str, table: str = "t") -> dict[str, Any]:
    """Column selectors for a table."""
    return {"selectors": (SelectorRule(matcher=(f"s.{table}",), columns=columns),)}


RENAMED_COLUMN = (*T, ddl("t", "alter table t rename column v to w"), create("u"), row("u", 2))


def test_a_column_that_is_chosen_under_its_new_name_alone(tmp_path: Path) -> None:
    """Leave out the new name, too, or choose both in a fresh lake."""
    found = run(tmp_path / "lake", RENAMED_COLUMN, **chosen("*", "!v"))
    assert "exclude the new name, too" in str(found.error)

    assert run(tmp_path / "lake", RENAMED_COLUMN, **chosen("*", "!v", "!w")).error is None
    assert run(tmp_path / "fresh", RENAMED_COLUMN, **chosen("*")).error is None


RENAMED = (*T, ddl("x", "rename table t to x"), row("x", 3), create("u"), row("u", 2))


def test_a_table_of_which_other_columns_are_chosen_under_its_new_name(tmp_path: Path) -> None:
    """Let selectors select the same under both names."""
    found = run(tmp_path, RENAMED, **chosen("*", "!v"))
    assert "select the same under both names" in str(found.error)

    both = {"selectors": (SelectorRule(matcher=("s.t", "s.x"), columns=("*", "!v")),)}
    assert run(tmp_path, RENAMED, **both) == Told(None, {"s.x": [1, 3], "s.u": [2]})


def test_other_selectors_than_the_lakes(tmp_path: Path) -> None:
    """Go on with those that it was written with, or begin a fresh lake."""
    assert run(tmp_path / "lake", T).error is None
    more = (*T, row("t", 2))
    with pytest.raises(ColumnSelectorFailed, match="use the selectors"):
        run(tmp_path / "lake", more, **chosen("*", "!v"))

    assert run(tmp_path / "lake", more).rows == {"s.t": [1, 2]}
    assert run(tmp_path / "fresh", more, **chosen("*", "!v")).rows == {"s.t": [1, 2]}


def test_halves_of_an_exchange_of_which_different_columns_are_chosen(tmp_path: Path) -> None:
    """Let selectors choose the same columns of both."""
    found = run(tmp_path / "lake", EXCHANGED, **chosen("*", "!v", table="x"))
    assert "select the same columns of both tables" in str(found.error)

    both = {"selectors": (SelectorRule(matcher=("s.t", "s.x"), columns=("*", "!v")),)}
    assert run(tmp_path / "fresh", EXCHANGED, **both).rows == {"s.t": [2, 3], "s.x": [1, 4], "s.u": [7]}


@pytest.mark.parametrize("columns", [("v",), ("!*",)])
def test_columns_that_a_lake_needs(tmp_path: Path, columns: tuple[str, ...]) -> None:
    """Keep the key, or exclude the table by a filter rule."""
    topic = (*T, create("u"), row("u", 2))
    assert run(tmp_path, topic, **chosen(*columns)).error is not None

    assert run(tmp_path, topic, rules=("*.*", "!s.t"), **chosen(*columns)) == Told(None, {"s.u": [2]})


def test_columns_that_tell_partitions(tmp_path: Path) -> None:
    """A lake keeps them where DDLs need them."""
    parted = create(
        "t", "id int, v int, primary key (id, v)", " partition by range (v) (partition p0 values less than (9))"
    )
    topic = (parted, row("t", 1), ddl("t", "alter table t truncate partition p0", "alter"), row("t", 2))
    assert run(tmp_path / "a", topic, **chosen("*", "!v")).error is not None

    assert run(tmp_path / "a", topic, **chosen("*")) == Told(None, {"s.t": [2]})


def test_a_zero_date(tmp_path: Path) -> None:
    """zero-date=error ends at one; null and string go on."""
    fields = (Field("id", MysqlType.LONG, 11, binary=True, handle=True), Field("v", MysqlType.DATE, 65, binary=True))
    dated = Insert(schema="s", table="t", fields=fields, after=(1, "0000-00-00"), pk_names=("id",))
    topic = (create("t", "id int primary key, v date"), dated)
    found = run(tmp_path / "lake", topic, zero_date="error")
    assert "set zero-date=null or zero-date=string" in str(found.error)

    assert run(tmp_path / "lake", topic, zero_date="null") == Told(None, {"s.t": [1]})
    assert run(tmp_path / "fresh", topic, zero_date="string") == Told(None, {"s.t": [1]})


def test_a_table_that_comes_back_without_its_rows(tmp_path: Path) -> None:
    """Left out by a filter rule the feed goes on; a fresh lake has its rows."""
    begun = (*T, create("u"), row("u", 2), ddl("t", "drop table t"))
    assert run(tmp_path / "lake", begun).error is None
    stage = Stage(tmp_path / "lake", "canal-json", {0: one_by_one("canal-json", begun)})
    retired = dict.fromkeys(stage.sink.snapshot.retired, PURGED)
    publish(stage.options, replace(stage.sink.snapshot, number=stage.sink.snapshot.number + 1, retired=retired))
    back = (*begun, Ddl(schema="s", table="t", query="flashback table t", type=15), row("t", 3), row("u", 4))
    found = run(tmp_path / "lake", back)
    assert "Exclude the table by [filter] rules" in str(found.error)

    assert run(tmp_path / "lake", back, rules=("*.*", "!s.t")) == Told(None, {"s.u": [2, 4]})
    assert run(tmp_path / "fresh", back) == Told(None, {"s.t": [1, 3], "s.u": [2, 4]})


def test_a_flashback_of_a_database(tmp_path: Path) -> None:
    """The feed goes on in a fresh lake, from a topic that begins after it."""
    back = Ddl(schema="s", table="", query="flashback database s", type=81)
    assert "start the changefeed again after it" in str(run(tmp_path / "lake", (*T, back, row("t", 3))).error)

    assert run(tmp_path / "fresh", (*T, row("t", 3))) == Told(None, {"s.t": [1, 3]})
