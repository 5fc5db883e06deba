"""A round that a crash cut off behind its rows is planned anew with a later end: columns seen since are stored."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.replay.small_topics import one_by_one
from tests.replay.stage import Crash, Stage
from tests.replay.test_ways_out import row
from tidegate.lakes.lake import Lake
from tidegate.model.event import Insert


def lake_of(root: Path, parts: Sequence[Sequence[Insert]], cut: int, **delta: Any) -> list[dict[str, Any]]:
    """Rows of s.t, whose topic lacks its CREATE; the run dies before it publishes part `cut`."""

    def die(place: str) -> None:
        if place == "before publishing":
            raise Crash

    for at in range(len(parts)):
        events = [event for part in parts[: at + 1] for event in part]
        stage = Stage(root, "canal-json", {0: one_by_one("canal-json", events)}, **delta)
        while stage.land(100):
            pass
        if at != cut:
            stage.round()
            continue
        stage.crash = die
        with pytest.raises(Crash):
            stage.round()
    return sorted(Lake(str(root)).arrow("s.t").to_pylist(), key=lambda one: one["id"])


@pytest.mark.parametrize("mode", ["replica", "changelog", "history"])
@pytest.mark.parametrize("cut", [0, 1])
def test_columns_that_a_later_end_shows_are_stored(tmp_path: Path, cut: int, mode: str) -> None:
    """Whether the table was just made (cut 0) or got a column (cut 1) when the run died."""
    parts = [[row("t", 1)], [row("t", 2, "w")], [row("t", 3, "w", "x")], [row("t", 4, "x")]]

    found = lake_of(tmp_path, parts, cut, mode=mode)

    values = [(one["id"], one["v"], one["w"], one["x"]) for one in found]
    assert values == [(1, 1, None, None), (2, 2, 2, None), (3, 3, 3, 3), (4, 4, None, 4)]
