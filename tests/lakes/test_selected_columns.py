"""Column selectors of a lake that is read from a topic: snapshots, live views and `verify` agree, in each mode."""

from pathlib import Path

import msgspec
import pytest

from tests.lakes.stages import Play, truths
from tidegate.engine.filter import SelectorRule
from tidegate.lakes.lake import Lake
from tidegate.sink.delta.snapshots import latest
from tidegate.verify.compare import compare_sides
from tidegate.verify.local import lake_beside

pytestmark = pytest.mark.slow

LEFT_OUT = (
    "note",
    "remark",
    "*name",
    "about",
    "price",
    "coupon",
    "gift",
    "y",
    "seen",
    "amount",
    "page",
    "flags",
    "why",
)
RULES = (SelectorRule(("*.*",), ("*", *(f"!{name}" for name in LEFT_OUT))),)
"""Columns of all kinds that DDLs of the recording add, change, rename, move, swap with their tables and drop; `about`
was chosen as long as it was `bio`."""


def play(root: Path, recording: str, mode: str) -> Play:
    """The recording on its way into a lake with these selectors."""
    made = Play(root, recording)
    made.stage.options = msgspec.structs.replace(made.stage.options, selectors=RULES, mode=mode)
    made.stage.sink.options = made.stage.options
    return made


@pytest.mark.parametrize(
    ("recording", "mode"),
    [
        ("open", "replica"),
        *(pytest.param("canal", mode, marks=pytest.mark.soak) for mode in ("changelog", "history")),
    ],
)
def test_every_moment_has_the_chosen_columns(tmp_path: Path, recording: str, mode: str) -> None:
    """Through all DDLs of the recording: merged, live ahead of what is merged, and compared with the database."""
    made = play(tmp_path, recording, mode)
    for before, truth in zip((None, *truths()), truths(), strict=False):
        if before is None or truth.n % 3 == 0:
            made.land(truth.ts)
            live = Lake(str(tmp_path)).live() if before is not None else None
            for one in truths():
                if made.stage.sink.snapshot.checkpoint.ts < one.ts <= truth.ts:
                    made.merge(one.ts)
            lake = Lake(str(tmp_path))
            if live is not None:
                assert live.tables() == lake.tables()
                for name in lake.tables():
                    ahead, merged = live.arrow(name), lake.arrow(name)
                    assert ahead.column_names == merged.column_names, name
                    order = [(column, "ascending") for column in merged.column_names]
                    assert ahead.sort_by(order).equals(merged.sort_by(order)), name
                live.close()
    for truth in truths():
        _, *sides = lake_beside(str(tmp_path), truths(), str(truth.n))
        reports = list(compare_sides(*sides))
        assert [(report.name, report.differences[:2]) for report in reports if not report.equal] == []

    held = {name: set(lake.arrow(name).column_names) for name in lake.tables()}
    assert not {name for names in held.values() for name in names} & {*LEFT_OUT, "name", "full_name"}
    assert "title" in held["shop.products"]
    options = latest(made.stage.options).options
    assert options is not None
    assert options.selectors == RULES
