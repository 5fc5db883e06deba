"""Sums of chunks tell rows apart, and values of one meaning are made one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.verify.compare import (
    UNHASHED,
    ChunkPlan,
    ChunkSum,
    ComparedTable,
    RowHasher,
    TruthColumn,
    different,
    form_of,
    meaning_of,
)

SHAPE = ComparedTable(
    "d.t", ("id",), (TruthColumn("id", "int(11)"), TruthColumn("a", "text"), TruthColumn("b", "text"))
)
PLAN = ChunkPlan(("id", "a", "b"), ("id",), 1)
VALUES = st.none() | st.text(max_size=3)
ROWS = st.lists(st.tuples(st.integers(0, 3), VALUES, VALUES), max_size=4)


@given(ours=ROWS, theirs=ROWS)
def test_sums(ours: list[tuple[int, str, str]], theirs: list[tuple[int, str, str]]) -> None:
    """Sums are equal exactly when the rows are, each as often, in whatever order."""
    hasher = RowHasher(SHAPE, PLAN)

    assert (hasher.sums(ours) == hasher.sums(theirs)) == (sorted(map(repr, ours)) == sorted(map(repr, theirs)))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([(1, "x", ""), (2, "y", "")], [(1, "y", ""), (2, "x", "")]),
        ([(1, "x", ""), (1, "x", "")], [(1, "y", ""), (1, "y", "")]),
        ([(1, "a,b", "c")], [(1, "a", "b,c")]),
        ([(1, None, "a")], [(1, "a", None)]),
        ([(1, None, None)], [(1, "", "")]),
    ],
)
def test_what_other_sums_miss(ours: list[tuple[int, str, str]], theirs: list[tuple[int, str, str]]) -> None:
    """Exchanged values, twins for twins, moved commas and NULLs for empty texts make sums differ."""
    hasher = RowHasher(SHAPE, PLAN)

    assert hasher.sums(ours) != hasher.sums(theirs)


def test_different() -> None:
    """A chunk is equal when both sides have it with the same sum and a hash of each row."""
    ours = {0: ChunkSum(1, 5), 1: ChunkSum(1, 5), 2: ChunkSum(2, UNHASHED + 5), 4: ChunkSum(1, 1)}
    theirs = {0: ChunkSum(1, 5), 1: ChunkSum(1, 6), 2: ChunkSum(2, UNHASHED + 5), 3: ChunkSum(1, 1)}

    assert different(ours, theirs) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("types", "ours", "theirs", "equal"),
    [
        (("json", "longtext"), '{"b": [1.0], "a": 1e2}', '{"a":100,"b":[1]}', True),
        (("longtext", "json"), '{"a": 1}', '{"a":1}', True),
        (("longtext", "longtext"), '{"a": 1}', '{"a":1}', False),
        (("json", "json"), "[1, 2]", "[2, 1]", False),
        (("json", "json"), "18446744073709551615", "18446744073709551614", False),
        (("json", "json"), '"1"', "1", False),
        (("float", "float"), 0.1, 0.10000000149011612, True),
        (("double", "double"), 0.1, 0.10000000149011612, False),
        (("decimal(5,2) zerofill", "decimal(5,2)"), "001.50", "1.50", True),
        (("decimal(5,2)", "decimal(5,2)"), "1.50", "1.51", False),
        (("vector(2)", "longtext"), "[1,2.5]", "[1.0, 2.5]", True),
    ],
)
def test_meaning(types: tuple[str, str], ours: str, theirs: str, *, equal: bool) -> None:
    """Texts of one meaning are equal by the types of both columns, and no others."""
    meaning = meaning_of(*map(form_of, types), calendar=False)

    assert (meaning(ours) == meaning(theirs)) is equal


def test_days() -> None:
    """A day that no calendar has is NULL where the other side cannot hold it, and itself elsewhere."""
    forms = form_of("date"), form_of("date")

    assert meaning_of(*forms, calendar=True)("2024-02-30") is None
    assert meaning_of(*forms, calendar=True)("2024-02-29") == "2024-02-29"
    assert meaning_of(*forms, calendar=False)("2024-02-30") == "2024-02-30"
