"""Column selectors on the way from a change log to a lake."""

from pathlib import Path
from typing import Any

import pytest

import tidegate
from tests.e2e.test_lake_filters import Lake
from tidegate.model.errors import ColumnSelectorFailed

pytestmark = pytest.mark.slow

SOME = '[[sink.column-selectors]]\nmatcher = ["test.a", "test.d"]\ncolumns = ["*", "!v*"]\n'


def names(lake: Lake, name: str) -> list[str]:
    """The columns of a table of the lake."""
    return tidegate.lake(str(lake.home / "lake")).arrow(f"test.{name}").column_names


@pytest.mark.parametrize("mode", ["replica", "changelog", "history"])
def test_columns_are_left_out(spark: Any, tmp_path: Path, mode: str) -> None:
    """Of the tables that a selector takes, by rows and by chunks of thousands, through DDLs, and live."""
    lake = Lake(tmp_path, SOME, mode=mode)
    many = ", ".join(f"({number}, {number}, {number})" for number in range(100, 300))
    lake.run(f"INSERT INTO a VALUES (1, 1, 1), (2, 2, 2), {many}; INSERT INTO b VALUES (1, 1, 1)")
    warned = lake.feed(spark).warnings
    assert not any("column-selectors" in warning for warning in warned)
    lake.run("ALTER TABLE a ADD COLUMN v2 INT DEFAULT 5; ALTER TABLE a ADD COLUMN w INT DEFAULT 7; DROP TABLE b")
    lake.run(
        "UPDATE a SET v = 9, v2 = 9, u = 300 WHERE id = 1; DELETE FROM a WHERE id = 2; ALTER TABLE a DROP COLUMN v"
    )
    lake.land(spark)
    live = lake.held("a", live=True)
    lake.feed(spark)

    assert names(lake, "a")[:3] == ["id", "u", "w"]
    assert len(names(lake, "a")) == {"replica": 3, "changelog": 7, "history": 5}[mode]
    assert live == lake.held("a")
    assert 300 in tidegate.lake(str(tmp_path / "lake")).arrow("test.a").column("u").to_pylist()
    if mode == "replica":
        whole = lake.upstream.rows("a")
        assert lake.held("a") == {key: {"id": key, "u": row["u"], "w": 7} for key, row in whole.items()}


def test_a_key_that_is_left_out_is_told_at_the_start(spark: Any, tmp_path: Path) -> None:
    """Before anything lands, when the table is there already."""
    rule = '[[sink.column-selectors]]\nmatcher = ["test.a"]\ncolumns = ["v"]\n'
    lake = Lake(tmp_path, rule, mode="changelog")
    start_ts = lake.run("INSERT INTO a VALUES (1, 1, 1)")
    with pytest.raises(ColumnSelectorFailed, match=r"test\.a at ts \d+: 'id' is excluded") as told:
        lake.feed(spark, start_ts=start_ts)

    assert told.value.code == "CDC:ErrColumnSelectorFailed"
    assert not list((tmp_path / "lake").rglob("*.parquet"))


def test_a_key_that_is_left_out_by_a_ddl(spark: Any, tmp_path: Path) -> None:
    """A table that is made later ends the feed before its round; the next start with other selectors goes on."""
    lake = Lake(tmp_path, SOME)
    first = lake.run("INSERT INTO a VALUES (1, 1, 1)")
    assert lake.feed(spark).checkpoint_ts == first
    lake.run("CREATE TABLE d (vid INT PRIMARY KEY, w INT)")
    end = lake.run("INSERT INTO d VALUES (1, 2); INSERT INTO a VALUES (2, 2, 2)")
    with pytest.raises(ColumnSelectorFailed, match=r"test\.d at ts \d+: 'vid' is excluded"):
        lake.feed(spark)
    with pytest.raises(ColumnSelectorFailed, match=r"test\.d"):
        lake.held("a", live=True)
    assert tidegate.lake(str(tmp_path / "lake")).checkpoint_ts == first

    lake.filters(SOME.replace(', "test.d"', ""))
    assert lake.feed(spark).checkpoint_ts == end
    assert (sorted(lake.held("a")), names(lake, "d")) == ([1, 2], ["vid", "w"])


def test_names_under_which_other_columns_are_chosen(spark: Any, tmp_path: Path) -> None:
    """RENAME COLUMN and RENAME TABLE end the feed as long as the selectors choose another column by the new name."""
    lake = Lake(tmp_path, SOME)
    lake.run("INSERT INTO a VALUES (1, 1, 1)")
    lake.feed(spark)
    lake.run("ALTER TABLE a RENAME COLUMN v TO shown; INSERT INTO a VALUES (2, 2, 2)")
    with pytest.raises(ColumnSelectorFailed, match=r"column v of test\.a becomes shown"):
        lake.feed(spark)
    lake.filters('[[sink.column-selectors]]\nmatcher = ["test.a"]\ncolumns = ["*", "!v*", "!shown"]\n')
    end = lake.run("INSERT INTO a VALUES (3, 3, 3)")
    assert lake.feed(spark).checkpoint_ts == end
    assert lake.held("a")[3] == {"id": 3, "u": 3}

    lake.run("RENAME TABLE a TO z; INSERT INTO z VALUES (4, 4, 4)")
    with pytest.raises(ColumnSelectorFailed, match=r"test\.a becomes test\.z at ts \d+.*\(shown\)"):
        lake.feed(spark)
    lake.filters('[[sink.column-selectors]]\nmatcher = ["test.a", "test.z"]\ncolumns = ["*", "!v*", "!shown"]\n')
    lake.feed(spark)
    assert sorted(lake.held("z")) == [1, 2, 3, 4]

    lake.filters("")
    with pytest.raises(ColumnSelectorFailed, match=r"test\.z: .*shown is not stored"):
        lake.feed(spark)
