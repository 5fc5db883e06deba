"""What the gate lets through, and in which order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.frontier import WatermarkMerge
from tidegate.model.errors import SchemaError
from tidegate.model.event import Ddl, Event, Field, Insert, Resolved

FIELDS = (Field("id", 3, handle=True),)


def row(ts: int | None, key: int = 0) -> Insert:
    """A row."""
    return Insert(schema="s", table="t", fields=FIELDS, after=(key,), commit_ts=ts)


def ddl(ts: int, query: str = "ALTER") -> Ddl:
    """A DDL."""
    return Ddl(schema="s", table="t", query=query, commit_ts=ts)


def filled(*partitions: list[Event]) -> WatermarkMerge[int]:
    """A gate that has taken these."""
    gate: WatermarkMerge[int] = WatermarkMerge(range(len(partitions)))
    for number, events in enumerate(partitions):
        for event in events:
            gate.add(number, event)
    return gate


def test_the_drawing() -> None:
    """The example of the module's drawing."""
    gate = filled([row(5), row(7), Resolved(8), row(9)], [row(6), ddl(6), Resolved(8)], [ddl(6), Resolved(10)])
    assert gate.take() == [row(5), row(6), ddl(6), row(7), Resolved(8)]
    assert (gate.waiting, gate.resolved, gate.take()) == (1, 8, [])
    assert gate.rest() == [row(9)]
    assert (gate.waiting, gate.rest()) == (0, [])


def test_a_silent_partition_holds_everything() -> None:
    """Nothing passes before every partition has said how far it is."""
    gate = filled([row(1), Resolved(9)], [])
    assert (gate.take(), gate.resolved) == ([], None)
    gate.add(1, Resolved(1))
    assert gate.take() == [row(1), Resolved(1)]


def test_a_ddl_may_come_behind_its_watermark() -> None:
    """Resolved T is sent before the DDL of T: the DDL passes with the next watermark, once."""
    gate = filled([Resolved(5)], [Resolved(5)])
    assert gate.take() == [Resolved(5)]
    for number in (0, 1):
        gate.add(number, ddl(5))
        gate.add(number, Resolved(6))
    assert gate.take() == [ddl(5), Resolved(6)]


def test_two_ddls_of_one_moment_are_two() -> None:
    """A RENAME of several tables is several DDLs of one commit_ts, in the order in which they came."""
    gate = filled([ddl(5, "b"), ddl(5, "a"), Resolved(5)], [ddl(5, "b"), ddl(5, "a"), Resolved(5)])
    assert gate.take() == [ddl(5, "b"), ddl(5, "a"), Resolved(5)]


def test_what_a_restart_repeats_is_passed_over() -> None:
    """Rows and DDLs that were let through are not again, and a watermark never goes back."""
    gate = filled([row(5), ddl(6), Resolved(8)])
    gate.take()
    for event in (row(5), ddl(6), Resolved(7), row(8), row(9), Resolved(9)):
        gate.add(0, event)
    assert gate.take() == [row(9), Resolved(9)]
    assert gate.repeated == 3


def test_halves_of_an_update_keep_their_order() -> None:
    """Rows of one partition and one commit_ts pass as they came."""
    gate = filled([row(5, 3), row(5, 1), row(4, 9), row(5, 2), Resolved(5)])
    assert gate.take() == [row(4, 9), row(5, 3), row(5, 1), row(5, 2), Resolved(5)]


def test_who_is_ahead() -> None:
    """A partition rests when it has brought much that waits for another one; the slowest never does."""
    gate = filled([row(5), row(6), row(7), Resolved(9)], [row(5), row(6), Resolved(3)])
    assert gate.ahead(1) == {0}
    assert gate.ahead(3) == set()
    gate.add(1, Resolved(9))
    gate.take()
    assert gate.ahead(0) == set()


def test_without_a_timestamp_there_is_no_order() -> None:
    """A row without commit_ts is refused, with what to set."""
    with pytest.raises(SchemaError, match="enable-tidb-extension=true"):
        filled([row(None)])


@given(st.data())
def test_any_interleaving_gives_the_same(data: st.DataObject) -> None:
    """Whichever partition comes first and how often is taken: the same events pass, in commit order, none twice."""
    partitions = [
        sorted({data.draw(st.integers(0, 40)) for _ in range(data.draw(st.integers(0, 8)))}) for _ in range(3)
    ]
    lines = [[e for ts in some for e in (row(ts, number), Resolved(ts))] for number, some in enumerate(partitions)]
    for line in lines:
        line.append(Resolved(99))
    gate: WatermarkMerge[int] = WatermarkMerge(range(3))
    passed: list[Event] = []
    while any(lines):
        number = data.draw(st.sampled_from([at for at, line in enumerate(lines) if line]))
        gate.add(number, lines[number].pop(0))
        passed += gate.take()
    rows = [event for event in passed if isinstance(event, Insert)]
    marks = [event.ts for event in passed if isinstance(event, Resolved)]
    assert sorted((one.commit_ts, one.after[0]) for one in rows) == sorted(
        (ts, number) for number, some in enumerate(partitions) for ts in some
    )
    assert [one.commit_ts for one in rows] == sorted(one.commit_ts or 0 for one in rows)
    assert marks == sorted(set(marks))
    assert marks[-1] == 99
