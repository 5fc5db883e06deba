"""Rounds as scripts: DDLs and spans in, steps out."""

import pytest

from tidegate.engine.change import EventPosition, Layout, SourceDdl
from tidegate.engine.plan import Alter, Checkpoint, Create, Exchange, Landed, Rows, Trim, plan_round
from tidegate.model.errors import SchemaError
from tidegate.model.event import Ddl, Field
from tidegate.model.table import TableName
from tidegate.schema.state import SchemaState

CREATE = (10, "create table t (id int primary key, v int)")


def placed(*ddls: tuple[int, str]) -> list[SourceDdl]:
    return [
        SourceDdl(EventPosition("x", 0, at), Ddl(schema="s", table="t", query=query, commit_ts=ts))
        for at, (ts, query) in enumerate(ddls)
    ]


def landed(*, accept=lambda *_: True, layouts=lambda *_: (), **spans: tuple[int, int, int]) -> Landed:
    return Landed({TableName("s", name): span for name, span in spans.items()}, layouts, accept)


def plan(*ddls, upto=100, at=Checkpoint(), state=SchemaState(), **more):  # noqa: B008
    return plan_round(state, at, placed(*ddls), upto, landed(**more))


def shown(steps) -> list[str]:
    """Steps as short words."""
    found = []
    for step in steps:
        match step:
            case Rows():
                found.append(f"rows {step.table.name.table} ({step.after}, {step.upto}]")
            case Create():
                found.append(f"create {step.table.name.table} {step.ts}.{step.seq}")
            case Alter():
                found.append(f"alter {step.new.name.table} {step.ts}.{step.seq}")
            case Trim():
                found.append(f"trim {','.join(step.partitions)} {step.ts}.{step.seq}")
            case Exchange():
                found.append(f"exchange {step.partition} {step.other.name.table} {step.ts}.{step.seq}")
    return found


def units(planned) -> list[list[str]]:
    return [shown(unit.steps) for unit in planned.units]


def test_rows_end_at_a_ddl_and_go_on_behind_it():
    """A row at a DDL's ts belongs before it."""
    planned = plan(CREATE, (50, "alter table t add column w int"), t=(5, 20, 90))

    assert units(planned) == [["create t 10.1", "rows t (10, 50]", "alter t 50.1", "rows t (50, 100]"]]


@pytest.mark.parametrize(
    "query",
    [
        "alter table t add index i(v)",
        "alter table t comment 'x'",
        "alter table t alter column v set default 3",
        "alter table t convert to character set utf8mb4",
        "alter table t auto_increment = 7",
    ],
)
def test_ddls_that_leave_rows_alone_cut_nothing(query):
    """Index, comment, default and charset DDLs do not interrupt a table."""
    assert units(plan(CREATE, (50, query), t=(5, 20, 90))) == [["create t 10.1", "rows t (10, 100]"]]


def test_a_ddl_cuts_only_its_own_table():
    """Another table's rows are one stretch, in a unit of its own."""
    ddls = (CREATE, (11, "create table u (id int primary key)"), (50, "alter table t drop column v"))
    planned = plan(*ddls, t=(5, 20, 90), u=(3, 20, 90))

    assert ["create u 11.1", "rows u (11, 100]"] in units(planned)


def test_a_freed_name_starts_anew():
    """Rows before a DROP go to the old rows, rows after the CREATE to the new ones."""
    ddls = (CREATE, (40, "drop table t"), (41, "create table t (id int primary key)"))
    planned = plan(*ddls, t=(5, 20, 90))

    assert units(planned) == [["create t 10.1", "rows t (10, 40]"], ["create t 41.1", "rows t (41, 100]"]]
    assert len({unit.steps[0].table.incarnation for unit in planned.units}) == 2


def test_truncate_starts_a_new_incarnation():
    """TRUNCATE leaves the old rows where they are and goes on in a new table, after the old one: it may inherit."""
    assert units(plan(CREATE, (40, "truncate table t"), t=(5, 20, 90))) == [
        ["create t 10.1", "rows t (10, 40]", "create t 40.1", "rows t (40, 100]"],
    ]


def test_names_swap_without_moving_rows():
    """Three renames swap two tables; each keeps its rows and reads them under the name of their time."""
    ddls = (
        CREATE,
        (10, "create table u (id int primary key)"),
        (50, "rename table t to x"),
        (51, "rename table u to t"),
        (52, "rename table x to u"),
    )
    planned = plan(*ddls, t=(5, 20, 90), u=(5, 20, 90))

    assert units(planned) == [
        ["create t 10.1", "rows t (10, 50]", "rows u (52, 100]"],
        ["create u 10.2", "rows u (10, 51]", "rows t (51, 100]"],
    ]


def test_ddls_of_one_ts_are_numbered_in_order():
    """Positions tell DDLs of one commit_ts apart."""
    planned = plan(CREATE, (50, "alter table t add column a int"), (50, "alter table t add column b int"))

    assert units(planned) == [["create t 10.1", "alter t 50.1", "alter t 50.2"]]


def test_a_ddl_at_the_checkpoint_is_done_once():
    """A DDL may come after its own resolved ts: it is applied then, and not again when it is repeated."""
    first = plan(CREATE, upto=50)
    late = (50, "alter table t add column w int")
    second = plan(late, at=first.checkpoint, state=first.state, upto=60, t=(2, 55, 58))
    again = plan(late, at=Checkpoint(50, second_done(first, late)), state=second.state, upto=60)

    assert units(second) == [["alter t 50.1", "rows t (50, 60]"]]
    assert units(again) == []


def second_done(first, late) -> tuple[str, ...]:
    """The DDLs done at the checkpoint once the late one is in."""
    return plan(late, at=first.checkpoint, state=first.state, upto=50).checkpoint.done


def test_repeated_ddls_below_the_checkpoint_do_nothing():
    """What was done before is done."""
    first = plan(CREATE, upto=50)

    assert units(plan(CREATE, at=first.checkpoint, state=first.state)) == []


def test_planning_again_with_a_later_end_gives_the_same_steps():
    """After a crash the same DDLs make the same incarnations at the same positions."""
    ddls = (CREATE, (40, "truncate table t"))
    early, late = plan(*ddls, upto=50, t=(5, 20, 49)), plan(*ddls, upto=100, t=(9, 20, 99))

    assert [u.steps[0] for u in early.units] == [u.steps[0] for u in late.units]


def test_an_exchange_ties_two_tables():
    """Both sides of an exchange are one unit, rows before it and after it in place."""
    ddls = (
        (10, "create table t (id int primary key) partition by range (id) (partition p values less than (5))"),
        (11, "create table u (id int primary key)"),
        (50, "alter table t exchange partition p with table u"),
    )
    planned = plan(*ddls, t=(5, 20, 90), u=(5, 20, 90))

    assert units(planned) == [
        [
            "create t 10.1",
            "create u 11.1",
            "rows t (10, 50]",
            "rows u (11, 50]",
            "exchange p u 50.1",
            "rows t (50, 100]",
            "rows u (50, 100]",
        ],
    ]


def test_partitions_are_trimmed_by_the_definition_of_that_time():
    """DROP PARTITION knows which rows lay there from the definition before it."""
    ddls = (
        (
            10,
            (
                "create table t (id int primary key) partition by range (id) "
                "(partition p values less than (5), partition q values less than (9))"
            ),
        ),
        (50, "alter table t drop partition p"),
    )
    planned = plan(*ddls, t=(5, 20, 40))

    assert units(planned) == [["create t 10.1", "rows t (10, 50]", "trim p 50.1"]]
    assert len(planned.units[0].steps[2].old.partition.definitions) == 2


def test_recovered_tables_go_on_with_their_rows():
    """RECOVER brings the very rows back; nothing is made or copied."""
    planned = plan(CREATE, (40, "drop table t"), (50, "recover table t"), t=(5, 20, 90))

    assert units(planned) == [["create t 10.1", "rows t (10, 40]", "rows t (50, 100]"]]


def test_filtered_tables_get_no_steps():
    """A table outside the rules is followed in the schema and nowhere else."""
    planned = plan(CREATE, (50, "alter table t drop column v"), accept=lambda *_: False)

    assert units(planned) == []
    assert planned.state.table(TableName("s", "t")) is not None


def test_renaming_into_the_rules_is_refused():
    """A table whose earlier rows were left out cannot appear half-filled."""
    with pytest.raises(SchemaError, match="exclude the new name"):
        plan(CREATE, (50, "rename table t to u"), accept=lambda _, table: table == "u")


def test_tables_without_a_ddl_are_read_off_their_rows():
    """A topic that starts in the middle gives tables as their messages describe them."""
    layout = Layout((Field("id", 3, 11, handle=True), Field("v", 3, 65)))
    planned = plan(t=(5, 20, 90), layouts=lambda *_: (layout,))

    assert units(planned) == [["create t 19.0", "rows t (19, 100]"]]
    assert planned.state.table(TableName("s", "t")).inferred
    assert "inferred from its messages" in planned.warnings[0]


def test_tables_without_a_key_are_announced():
    """A table that can only be a log of changes is warned about when it is made."""
    assert "log of changes" in plan((10, "create table t (a int)")).warnings[0]


@pytest.mark.parametrize(
    "names",
    [(TableName("a.b", "c"), TableName("a", "b.c")), (TableName("s", "ΛΣ"), TableName("s", "λς"))],
    ids=["joined", "folded"],
)
def test_tables_whose_names_look_alike_have_rows_of_their_own(names):
    """Tables without a DDL whose names are one when joined by a dot, or by Python in lower case, are kept apart."""
    layout = Layout((Field("id", 3, 11, handle=True),))
    both = Landed(dict.fromkeys(names, (1, 20, 20)), lambda *_: (layout,), lambda *_: True)
    planned = plan_round(SchemaState(), Checkpoint(), [], 100, both)

    made = [step.table for unit in planned.units for step in unit.steps if isinstance(step, Create)]
    assert [table.name for table in made] == list(names)
    assert made[0].incarnation != made[1].incarnation
    assert [table.name for table in planned.state.tables.values()] == list(names)
