"""Rows that nodes with the schema from before still write to a table that SQL no longer shows: RECOVER and FLASHBACK
TABLE bring them back, also in a lake."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.log_source import log_source
from tests.source.tidb.test_log_source import walked
from tests.source.tidb.test_quadrants import Scene
from tidegate.config.changefeed import Changefeed
from tidegate.config.load import load
from tidegate.engine.ports import LocalTasks
from tidegate.lakes.lake import Lake
from tidegate.model.event import Delete, Insert, Update
from tidegate.source.tidb_segment import SegmentLog
from tidegate.source.tidb_states import ShownLog

pytestmark = pytest.mark.slow

LATE = (
    "insert into s values (3, 3), (4, 4); update s set a = 10 where id = 1; delete from s where id = 2; "
    "update s set a = 30 where id = 3; delete from s where id = 4"
)
LEFT = [{"id": 1, "a": 10}, {"id": 3, "a": 30}]
Look = Callable[[], None]


def taken_away(scene: Scene, ddl: str, look: Look = lambda: None) -> None:
    """A DDL takes a table away, while node 2, which has not seen that, changes its rows."""
    scene.world.step(scene.ask(ddl), 1)
    look()
    scene.run(LATE, "n2")
    look()
    scene.world.finish()


@pytest.mark.parametrize(
    ("ddl", "back", "name"),
    [("drop table s", "recover table s", "s"), ("truncate table s", "flashback table s to s2", "s2")],
)
@pytest.mark.parametrize("is_behind", [False, True], ids=["beside", "behind"])
def test_a_table_that_comes_back(tmp_path: Path, ddl: str, back: str, name: str, *, is_behind: bool) -> None:
    """Whether the changefeed runs beside the DDL or behind it, the lake has SQL's rows; the DDL is where SQL shows it,
    and the table is gone as of then."""
    scene, times = Scene(tmp_path), list[int]()
    scene.writer.write(empty=True)
    config = load(
        source_uri=f"tidb://{tmp_path / 'log'}",
        sink_uri=f"delta://{tmp_path / 'lake'}",
        state_dir=tmp_path / "state",
        rules=["gd.s*"],
    )

    scene.run("insert into s values (1, 1), (2, 2)")

    def look() -> None:
        scene.writer.write(empty=True)
        times.append(Changefeed(config).run(tasks=LocalTasks(), idle_s=0).checkpoint_ts or 0)

    taken_away(scene, ddl, (lambda: None) if is_behind else look)
    gone_ts = scene.now()
    scene.world.sql(back)
    scene.now()
    look()
    assert scene.rows(f"select * from {name} order by id") == LEFT
    lake = Lake(str(tmp_path / "lake"))
    assert sorted(lake.arrow(f"gd.{name}").to_pylist(), key=lambda row: row["id"]) == LEFT
    assert f"gd.{name}" not in lake.at(gone_ts).live().tables()
    assert len(set(times)) == len(times) - (not is_behind)


@pytest.mark.parametrize("ddl", ["drop table s", "truncate table s", "drop database gd"])
def test_the_rows_before_the_ddl(tmp_path: Path, ddl: str) -> None:
    """Their net changes are one transaction of the DDL's commit_ts, before it; nothing comes after it."""
    scene = Scene(tmp_path)
    scene.run("insert into s values (1, 1), (2, 2)")
    taken_away(scene, ddl)
    scene.writer.write(empty=True)
    log = ShownLog(SegmentLog(tmp_path / "log"))
    read = walked(log_source(log, rules=("gd.s",)))
    ddl_ts = read.ddls[-1].ddl.commit_ts
    assert read.ddls[-1].ddl.query.lower().replace("`", "").replace("gd.", "") == ddl
    assert [(type(row), row.commit_ts == ddl_ts) for row in read.rows] == [
        (Insert, False),
        (Insert, False),
        (Delete, True),
        (Update, True),
        (Insert, True),
    ]
