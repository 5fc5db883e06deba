"""Names that no TiDB gives, in messages that can be read: nothing else of the topic suffers."""

from pathlib import Path

import msgspec
import pytest

from tests.replay.small_topics import one_by_one, row
from tests.replay.stage import Stage
from tidegate.lakes.lake import Lake
from tidegate.model.event import Field
from tidegate.model.mysql import MysqlType


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


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
def test_columns_that_differ_in_case_alone(tmp_path: Path, protocol: str) -> None:
    """Such a row is a dead letter with its reason; the rest of its table and the others land."""
    good = row("t", 1, "v")
    field = Field("V", MysqlType.LONG, 65, binary=True)
    bad = msgspec.structs.replace(good, fields=(*good.fields, field), after=(*good.after, 3))
    messages = one_by_one(protocol, [good, bad, row("b", 2, "w")])
    stage = Stage(tmp_path, protocol, {0: messages})
    stage.landing.skips_dead = True
    while stage.land(10):
        pass

    assert stage.round(12) == 12
    (letter,) = [one for control in stage.log.controls().values() for one in control.dead]
    assert "of one row: no table has both" in letter.error
    assert [Lake(str(tmp_path)).arrow(name).num_rows for name in ("s.b", "s.t")] == [1, 1]
