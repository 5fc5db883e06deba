"""Where a stretch ends, and which task writes which partition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.table import TableName
from tidegate.sink.kafka_topics import GroupTable, groups_of
from tidegate.source.tidb_land import end_of_segment, rows_by_table
from tidegate.source.tidb_log import LogPart, Stored

PARTS = [
    LogPart(0, 10, (Stored(5, 3, 2, 10), Stored(6, 4, 4, 7))),
    LogPart(10, 20, ()),
    LogPart(20, 30, (Stored(5, 900, 22, 28),)),
]


@pytest.mark.parametrize(
    ("checkpoint", "stop", "target", "rows", "end"),
    [
        (0, None, None, 10_000, 30),
        (0, 15, None, 10_000, 15),
        (0, 15, 12, 10_000, 12),
        (0, 15, 40, 10_000, 15),
        (0, None, None, 7, 10),
        (0, None, None, 8, 30),
        (0, 4, None, 7, 4),
        (15, None, 15, 7, None),
        (30, None, None, 7, None),
    ],
)
def test_ends(checkpoint: int, stop: int | None, target: int | None, rows: int, end: int | None) -> None:
    """The nearest of DDL, target, frontier and the part that brings enough rows; None when nothing lies ahead."""
    parts = [part for part in PARTS if part.high > checkpoint]
    assert end_of_segment(checkpoint, parts, stop, target, rows=rows) == end


def test_nothing_yet() -> None:
    """A log without parts has no stretch."""
    assert end_of_segment(0, [], 5, 9) is None


@pytest.mark.parametrize(
    ("low", "high", "rows"),
    [(0, 30, {5: 903, 6: 4}), (0, 1, {}), (0, 2, {5: 3}), (7, 9, {5: 3}), (10, 21, {}), (28, 30, {})],
)
def test_tables_with_rows(low: int, high: int, rows: dict[int, int]) -> None:
    """A stretch between the rows of a table does not read it."""
    assert rows_by_table(PARTS, low, high) == rows


@given(
    partitions=st.integers(1, 6),
    tasks=st.integers(1, 8),
    spread=st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 1000)), min_size=1, max_size=8),
)
def test_each_partition_has_one_writer_that_reads_all_of_it(
    partitions: int, tasks: int, spread: list[tuple[bool, int, int]]
) -> None:
    """No partition is in two groups, none that rows go to is missing, and every table is read where it belongs."""
    tables = [
        GroupTable(TableName("s", f"t{n}"), "a" if by_name else "b", at % partitions if by_name else None, rows)
        for n, (by_name, at, rows) in enumerate(spread)
    ]
    groups = groups_of(tables, {"a": partitions, "b": partitions}, tasks)
    written = [place for group in groups for place in group.partitions]

    assert 1 <= len(groups) <= tasks
    assert len(written) == len(set(written))
    for number, table in enumerate(tables):
        wanted = range(partitions) if table.partition is None else (table.partition,)
        for partition in wanted:
            (group,) = [group for group in groups if (table.topic, partition) in group.partitions]
            assert number in group.tables
    assert all(group.partitions for group in groups)


def test_work_is_shared_out() -> None:
    """The largest partition has a task of its own, and a table by name one reader."""
    tables = [GroupTable(TableName("s", f"t{at}"), "a", at, rows) for at, rows in enumerate((900, 300, 300, 250))]
    heavy, light = groups_of(tables, {"a": 4}, 2)

    assert (heavy.partitions, light.partitions) == ({("a", 0)}, {("a", 1), ("a", 2), ("a", 3)})
    assert (heavy.tables, light.tables) == ((0,), (1, 2, 3))


def test_spread_tables_are_read_once_unless_they_are_small() -> None:
    """A topic of spread tables has one task, beside another topic's; a small spread table divides with the others."""
    spread = [GroupTable(TableName("s", f"t{topic}"), topic, None, 500) for topic in ("a", "b")]
    apart = groups_of(spread, {"a": 3, "b": 3}, 2)
    small = GroupTable(TableName("s", "small"), "a", None, 10)
    named = [GroupTable(TableName("s", f"t{at}"), "a", at, 500) for at in range(3)]
    mixed = groups_of([small, *named], {"a": 3}, 2)

    assert sorted(group.tables for group in apart) == [(0,), (1,)]
    assert sorted({topic for topic, _ in group.partitions} for group in apart) == [{"a"}, {"b"}]
    assert all(0 in group.tables for group in mixed)
    assert sorted(len(group.partitions) for group in mixed) == [1, 2]
    assert len(groups_of([GroupTable(TableName("s", "t"), "a", None, 9)], {"a": 4}, 8)) == 1
