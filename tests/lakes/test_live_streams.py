"""Live views and merging agree on every recorded stream of DDLs and rows: keyless tables, swaps, partitions, types."""

from pathlib import Path

import pytest

from tests.counts import some
from tests.replay.small_topics import SWAPPED, swapped
from tests.replay.stage import Stage
from tests.replay.test_streams import VARIANTS, recorded
from tidegate.lakes.lake import Lake
from tidegate.lakes.live import Live

MERGED_EVERY = 9
"""How many moments the lake that is looked at live lies behind at most."""


def rows_of(view: Lake | Live, name: str) -> list[str]:
    rows = view.arrow(name)
    return [str(rows.schema), *sorted(map(repr, rows.to_pylist()))]


CASES = [
    (stream, variant) for stream in ("ddl", "interleave", "partition", "types", "rename_swap") for variant in VARIANTS
]
IN_TEST = {case for case in CASES if case[1] == "open_default"}


@pytest.mark.parametrize(
    ("stream", "variant"),
    [pytest.param(*case, marks=pytest.mark.slow if case in IN_TEST else pytest.mark.soak) for case in CASES],
)
def test_live_is_what_merging_gives(tmp_path: Path, stream: str, variant: str) -> None:
    """At every moment the live view of a lake that is behind has the tables, columns and rows of one that is not."""
    events, messages = recorded(stream, variant)
    at_once, behind = (Stage(tmp_path / name, VARIANTS[variant], {0: messages}) for name in ("at_once", "behind"))
    for stage in (at_once, behind):
        while stage.land(len(messages)):
            pass
    moments = sorted({event["commit_ts"] for event in events})
    moments = moments[:: max(1, len(moments) // some(8, 30))]
    merged, reader = Lake(str(tmp_path / "at_once")), Lake(str(tmp_path / "behind"))

    for number, ts in enumerate(moments):
        at_once.round(ts)
        want = merged.at(ts)
        with reader.at(ts).live() as view:
            assert view.tables() == want.tables(), ts
            for name in want.tables():
                assert rows_of(view, name) == rows_of(want, name), (ts, name)
        if number % MERGED_EVERY == MERGED_EVERY - 1:
            behind.round(ts)


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
def test_tables_that_change_places(tmp_path: Path, protocol: str) -> None:
    """A RENAME in a circle takes the rows of both tables along, in live views as in snapshots, filtered or not."""
    messages = swapped(protocol)
    ahead, behind = (Stage(tmp_path / name, protocol, {0: messages}) for name in ("ahead", "behind"))
    for stage in (ahead, behind):
        while stage.land(len(messages)):
            pass
    behind.round(13)

    merged, reader = Lake(str(tmp_path / "ahead")), Lake(str(tmp_path / "behind"))
    for ts in range(13, 10 + len(SWAPPED)):
        ahead.round(ts)
        want = merged.at(ts)
        with reader.at(ts).live() as view:
            assert view.tables() == want.tables() == ["s.a", "s.b"]
            assert [rows_of(view, name) for name in want.tables()] == [rows_of(want, name) for name in want.tables()]
            assert ("v" in view.arrow("s.a").column_names) == (ts < 14)
