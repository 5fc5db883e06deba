"""Counts of roads add up, travel, and stay small."""

import pickle

from tidegate.model.roads import EXAMPLE_CHARACTERS, Reason, RoadCounts, SlowRows, Why

FEW = Why(Reason.FEW_ROWS, "3 rows in a chunk, a template needs 400")


def counted(rows: int, table: str) -> RoadCounts:
    """Rows of a table, as many by the plain decoder as by template."""
    found = RoadCounts()
    found.add("land/template", rows)
    found.add("land/rows", rows, FEW, ("shop", table))
    return found


def test_sums() -> None:
    """Rows add up by road and reason; the newest example stays, the first one within a task."""
    first, second = counted(3, "a"), counted(4, "b")
    second.add("land/rows", 1, FEW, ("shop", "c"))
    both = first + second

    assert both.by_road() == {"land/template": 7, "land/rows": 8}
    assert both.slow() == (SlowRows("land/rows", "few-rows", 8, f"shop.b: {FEW.detail}"),)
    assert first == counted(3, "a")
    assert pickle.loads(pickle.dumps(both)) == both


def test_nothing_is_no_road() -> None:
    """A road without rows is not named."""
    found = RoadCounts()
    found.add("land/rows", 0, FEW)
    assert found == RoadCounts()


def test_another_stage() -> None:
    """Roads of mounting count as those of landing where a log lands."""
    found = RoadCounts()
    found.add("mount/rows", 5, FEW, ("s", "t"))
    assert found.of_stage("land").slow() == (SlowRows("land/rows", "few-rows", 5, f"s.t: {FEW.detail}"),)


def test_examples_are_short_lines() -> None:
    """An example of a long or hostile text is one short printable line."""
    found = RoadCounts()
    found.add("land/rows", 1, Why(Reason.VALUE, "a\n\x1b[31m" + "b" * 999), ("s.x", "t"))
    (one,) = found.slow()
    assert len(one.example) == EXAMPLE_CHARACTERS
    assert one.example.startswith("`s.x`.t: a \\x1b[31mb")
