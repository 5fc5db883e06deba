"""Which tables stand still together, and where."""

import pytest

from tidegate.engine.plan import Checkpoint, Create, Exchange, Rows, Unit
from tidegate.engine.ports import Parked, Refused, known_to, parked_after, parks, touched
from tidegate.model.errors import EnvironmentFault, Fenced, HistoryLost, SchemaError, SinkError, SinkRefused
from tidegate.model.table import TableInfo, TableName
from tidegate.schema.state import SchemaState


def table(name: str) -> TableInfo:
    """A table whose incarnation is its name."""
    return TableInfo(name=TableName("s", name), columns=(), incarnation=name, version=1)


def group(*incarnations: str, ts: int = 5) -> Parked:
    """Parked tables."""
    return Parked(incarnations, (), Checkpoint(ts), f"schema of {ts}", "code", "message")


def refused(*incarnations: str) -> Refused:
    """Tables of a unit that was refused."""
    return Refused(frozenset(incarnations), SinkRefused("no").at(table="s.x", commit_ts=8))


@pytest.mark.parametrize(
    ("error", "its_own"),
    [
        (SinkRefused("x"), True),
        (SchemaError("x"), True),
        (SinkError("away"), False),
        (Fenced("x"), False),
        (HistoryLost("x"), False),
        (EnvironmentFault("x"), False),
    ],
)
def test_what_parks(error: Exception, *, its_own: bool) -> None:
    """What every table would meet, and what passes, parks none."""
    assert parks(error) == its_own  # type: ignore[arg-type]


def test_what_messages_hold_is_the_sources_to_decide() -> None:
    """An error that names its messages parks no table."""
    error = SchemaError("x")
    error.messages = (("shop", 0, 7, 12),)

    assert not parks(error)


def test_a_refused_unit_stands_where_the_round_began() -> None:
    """With the error's words, and apart from those that stood before."""
    (old, new) = parked_after([group("a")], [refused("b", "c")], Checkpoint(7), "schema of 7", 99)

    assert old == group("a")
    assert (new.incarnations, new.checkpoint.ts, new.schema, new.since_ms) == (("b", "c"), 7, "schema of 7", 99)
    assert (new.code, new.table, new.commit_ts) == (SinkRefused.code, "s.x", 8)


def test_what_a_step_ties_stands_together_where_the_first_stopped() -> None:
    """Also when it ties two groups, and when the unit was left out without an error of its own."""
    tied = Refused(frozenset({"a", "b", "d"}))

    (found,) = parked_after([group("a", ts=5), group("b", "c", ts=3)], [tied], Checkpoint(7), "", 99)

    assert (found.incarnations, found.checkpoint.ts, found.schema) == (("a", "b", "c", "d"), 3, "schema of 3")


def test_units_of_parked_tables_and_what_they_tie() -> None:
    """A unit that an earlier one ties to them counts too."""
    exchange = Unit((Exchange(table("a"), "p", table("b"), 6, 1),))
    rows_b, rows_c = Unit((Rows(table("b"), 5, 9),)), Unit((Rows(table("c"), 5, 9),))
    emptied = Unit((Create(table("d"), 7, 1, table("b")),))

    units, tables = touched([exchange, rows_b, rows_c, emptied], {"a"})

    assert units == [exchange, rows_b, emptied]
    assert tables == {"a", "b", "d"}


def test_names_follow_the_schema() -> None:
    """Renamed tables have their new names, dropped ones theirs while no other is left; forgotten ones go."""
    state = SchemaState().with_table(table("a")).with_dropped(table("b"))

    found = known_to([group("a", "b"), group("b"), group("gone")], state)

    assert [one.names for one in found] == [("s.a",), ("s.b",)]
