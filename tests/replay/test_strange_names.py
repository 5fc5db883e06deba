"""Names that no TiDB gives, in messages that can be read: nothing else of the topic suffers."""

from pathlib import Path

import pytest

from tests.replay.small_topics import one_by_one, row
from tests.replay.stage import Stage
from tidegate.lakes.lake import Lake


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
def test_a_table_of_five_thousand_letters(tmp_path: Path, protocol: str) -> None:
    """Parquet keeps no statistics of such a name; it is read from the rows, in this life and the next."""
    messages = one_by_one(protocol, [row("t" * 5_000, 1, "v"), row("b", 2, "w")])
    for _ in range(2):
        stage = Stage(tmp_path, protocol, {0: messages})
        while stage.land(10):
            pass
        assert stage.round(11) == 11

    lake = Lake(str(tmp_path))
    assert lake.tables() == ["s.b", f"s.{'t' * 5_000}"]
    assert [lake.arrow(name).num_rows for name in lake.tables()] == [1, 1]
