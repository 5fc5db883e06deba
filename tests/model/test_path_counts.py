"""Counts of decode paths add up, travel, and stay small."""

import pickle

from tidegate.model.path_counts import EXAMPLE_CHARACTERS, PathCounts, Reason, SlowReason, SlowRows

FEW = SlowReason(Reason.FEW_ROWS, "3 rows in a chunk, a template needs 400")


def counted(rows: int, table: str) -> PathCounts:
    """Rows of a table, as many by the plain decoder as by template."""
    found = PathCounts()
    found.add("land/template", rows)
    found.add("land/rows", rows, FEW, ("shop", table))
    return found


def test_sums() -> None:
    """Rows add up by path and reason; the newest example stays, the first one within a task."""
    first, second = counted(3, "a"), counted(4, "b")
    second.add("land/rows", 1, FEW, ("shop", "c"))
    both = first + second

    assert both.by_path() == {"land/template": 7, "land/rows": 8}
    assert both.slow() == (SlowRows("land/rows", "few-rows", 8, f"shop.b: {FEW.detail}"),)
    assert first == counted(3, "a")
    assert pickle.loads(pickle.dumps(both)) == both


def test_a_path_without_rows() -> None:
    """A path without rows is not named."""
    found = PathCounts()
    found.add("land/rows", 0, FEW)
    assert found == PathCounts()


def test_another_stage() -> None:
    """Paths of mounting count as those of landing where a log lands."""
    found = PathCounts()
    found.add("mount/rows", 5, FEW, ("s", "t"))
    assert found.of_stage("land").slow() == (SlowRows("land/rows", "few-rows", 5, f"s.t: {FEW.detail}"),)


def test_examples_are_short_lines() -> None:
    """An example of a long or hostile text is one short printable line."""
    found = PathCounts()
    found.add("land/rows", 1, SlowReason(Reason.VALUE, "a\n\x1b[31m" + "b" * 999), ("s.x", "t"))
    (one,) = found.slow()
    assert len(one.example) == EXAMPLE_CHARACTERS
    assert one.example.startswith("`s.x`.t: a \\x1b[31mb")
