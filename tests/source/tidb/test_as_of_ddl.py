"""What a user reads as of a DDL that rewrites rows, some of which have a value of their own."""

import json
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.contract.test_sql_sink import asked
from tests.log_source import log_source
from tests.mariadb import running_server
from tests.sink.storage.test_sink import CSV, sink_of
from tests.source.tidb.test_quadrants import Scene
from tidegate.config.changefeed import Changefeed
from tidegate.config.load import load
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.engine.plan import Round
from tidegate.engine.ports import LocalTasks, SinkPosition
from tidegate.kv.rows import decode_row
from tidegate.lakes.data_source import TableChanges
from tidegate.lakes.lake import Lake
from tidegate.sink.delta.apply import state_at
from tidegate.sink.sql.connection import SqlOptions, TargetSession
from tidegate.sink.sql.progress import Lease
from tidegate.sink.sql.sink import SqlSink
from tidegate.sink.storage import StorageSink
from tidegate.source.tidb_ddl import JOBS
from tidegate.source.tidb_segment import SegmentLog, base_of, trim
from tidegate.source.tidb_states import ShownLog
from tidegate.testing.contract.sinks import Died
from tidegate.testing.script import run_here

pytestmark = pytest.mark.slow

BEFORE, AFTER = "set time_zone = '+02:00'; ", "set time_zone = '+05:00'; "
NOON = "'2024-01-01 12:00:00'"


class Rewritten(NamedTuple):
    """A log with a MODIFY at `ts`: DATETIME to TIMESTAMP in UTC, while a writer in another zone wrote row 2."""

    log: Path
    ts: int


def log_of(home: Path, ddl: str) -> ShownLog:
    """The log of a table `m` that is rewritten while row 2 is written, and gets a third row afterwards."""
    scene = Scene(home)
    scene.world.sql("create table m (id int primary key, a datetime, c int)")
    scene.run(f"{BEFORE}insert into m values (1, {NOON}, 5)")
    scene.writer.write(empty=True)
    with scene.at_step(ddl, 3):
        scene.run(f"{AFTER}insert into m values (2, {NOON}, 7)")
    scene.writer.write(empty=True)
    scene.run("insert into m values (3, null, null)")
    for _ in range(2):
        scene.now()
        scene.writer.write(empty=True)
    log = ShownLog(SegmentLog(home / "log"))
    list(log.rows(log.begin().ts, log.parts(0)[-1].high, (JOBS,)))
    return log


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory: pytest.TempPathFactory) -> Rewritten:
    """The log of a MODIFY."""
    home = tmp_path_factory.mktemp("upstream")
    (switch,) = log_of(home, "alter table m modify a timestamp null").switches
    return Rewritten(home / "log", switch.ts)


def exact(rows: Sequence[dict[str, Any]]) -> dict[int, int]:
    """The hours of rows 1 and 2."""
    return {row["id"]: row["a"].astimezone(UTC).hour for row in rows if row["a"] is not None}


AT_DDL = {1: 12, 2: 7}
"""The hours that SQL shows: the DDL's session is in UTC, that of the writer five hours ahead."""


def lake_of(rewritten: Rewritten, home: Path, **parameters: str) -> tuple[Changefeed, Path]:
    """A lake that has a snapshot just below the DDL, and has landed everything."""
    query = "&".join(f"{name}={value}" for name, value in parameters.items())
    config = load(
        source_uri=f"tidb://{rewritten.log}",
        sink_uri=f"delta://{home / 'lake'}?{query}",
        state_dir=home / "state",
        rules=["gd.m"],
    )
    feed = Changefeed(config)
    assert feed.run(tasks=LocalTasks(), until=rewritten.ts - 1).checkpoint_ts == rewritten.ts - 1
    return feed, home / "lake"


@pytest.mark.parametrize("mode", ["replica", "changelog", "history"])
def test_a_lake(tmp_path: Path, rewritten: Rewritten, mode: str) -> None:
    """Views, changes and versions as of the DDL have the rows as their writers converted them, and are of its ts."""
    feed, root = lake_of(rewritten, tmp_path, mode=mode)
    feed.run(tasks=LocalTasks(), idle_s=0)
    lake, ts = Lake(str(root)), rewritten.ts

    assert exact(state_at(lake.at(ts).live().arrow("gd.m"), ["id"], ts).to_pylist()) == AT_DDL
    assert exact(state_at(lake.arrow("gd.m"), ["id"], ts).to_pylist()) == AT_DDL
    stamps = {"replica": "a", "changelog": "_commit_ts", "history": "_valid_from"}
    stored = [row for row in lake.arrow("gd.m").to_pylist() if row["id"] == 2]
    assert {row.get("_commit_seq", 1) for row in stored if row[stamps[mode]] == ts} <= {1}
    times = [row[stamps[mode]] for row in stored]
    assert mode == "replica" or ts in times
    assert ts + 1 not in times


def test_changes_of_a_range(tmp_path: Path, rewritten: Rewritten) -> None:
    """A range of changes that ends at the DDL has those rows, with its ts, and one that begins there has not."""
    feed, root = lake_of(rewritten, tmp_path)
    feed.run(tasks=LocalTasks(), idle_s=0)
    changes, ts = TableChanges.of(str(root), "gd.m"), rewritten.ts
    form = changes.form()

    def read(after: int, upto: int) -> list[dict[str, Any]]:
        return [row for task in changes.tasks(after, upto, form) for part in task.read() for row in part.to_pylist()]

    below, above = read(ts - 1, ts), read(ts, changes.frontier())
    assert {(row["id"], row["_commit_ts"]) for row in below} == {(2, ts)}
    assert {row["id"] for row in above} == {3}


def test_a_lake_behind_a_trimmed_log(tmp_path: Path, rewritten: Rewritten) -> None:
    """A lake that is below the DDL while its log was trimmed beyond stops there with all of the rows."""
    copied = tmp_path / "log"
    copied.mkdir()
    for path in rewritten.log.glob("*.seg"):
        (copied / path.name).write_bytes(path.read_bytes())
    behind = Rewritten(copied, rewritten.ts)
    feed, root = lake_of(behind, tmp_path)
    high = ShownLog(SegmentLog(copied)).parts(0)[-1].high
    while Lake(str(root)).live().ts < rewritten.ts + 2:
        feed.run(tasks=LocalTasks(), until=rewritten.ts - 1, idle_s=0)
    trim(copied, high)
    base = base_of(copied)
    assert base is not None
    assert base[0] > rewritten.ts

    assert feed.run(tasks=LocalTasks(), until=rewritten.ts).checkpoint_ts == rewritten.ts + 1
    assert exact(Lake(str(root)).arrow("gd.m").to_pylist()) == AT_DDL


class Watched:
    """Notes what a target shows as its checkpoint after each round, and which rounds do not rest."""

    def __init__(self) -> None:
        self.shown: list[int] = []
        self.late: list[int] = []


def test_metadata_of_files(tmp_path: Path, rewritten: Rewritten) -> None:
    """`metadata` never has the ts of the DDL, nor after a crash there."""
    watched, ts = Watched(), rewritten.ts

    class Sink(StorageSink):
        def advance(self, planned: Round, results: Sequence[Any]) -> SinkPosition:
            position = super().advance(planned, results)
            watched.shown.append(metadata())
            if not planned.rests:
                watched.late.append(planned.checkpoint.ts)
                raise Died
            return position

    def metadata() -> int:
        return int(json.loads((tmp_path / "out" / "metadata").read_text())["checkpoint-ts"])

    source = log_source(ShownLog(SegmentLog(rewritten.log)), rules=["gd.m"])
    made = sink_of(tmp_path, CSV)
    sink = Sink(made._options, DirectoryCheckpoints(tmp_path / "state", "feed"))
    with pytest.raises(Died):
        run_here(source, sink)
    again = sink_of(tmp_path, CSV)
    position = again.recover()
    again.open(position)

    assert watched.late == [ts]
    assert position.checkpoint.ts == ts
    assert metadata() == watched.shown[-1] == ts - 1
    run_here(log_source(ShownLog(SegmentLog(rewritten.log)), rules=["gd.m"]), sink_of(tmp_path, CSV), until=ts)
    assert metadata() == ts + 1


def test_progress_of_a_database(tmp_path: Path, rewritten: Rewritten) -> None:
    """The position in `tidegate.progress` is never that of the DDL, and a reader that asks for the next stop meanwhile
    gets one with all of the rows."""
    with running_server(tmp_path) as maria:
        watched, ts = Watched(), rewritten.ts
        options = SqlOptions("shop", "127.0.0.1", maria.port)
        lease = Lease(TargetSession(options), "shop", None)

        class Sink(SqlSink):
            def advance(self, planned: Round, results: Sequence[Any]) -> SinkPosition:
                position = super().advance(planned, results)
                ((shown,),) = asked(maria, "SELECT position FROM tidegate.progress WHERE shard = -1")
                watched.shown.append(int(shown))
                if not planned.rests:
                    watched.late.append(planned.checkpoint.ts)
                    lease.request()
                return position

        run_here(log_source(ShownLog(SegmentLog(rewritten.log)), rules=["gd.m"]), Sink(options), until=ts)

        assert watched.late == [ts]
        assert ts not in watched.shown
        assert watched.shown[-1] == ts + 1
        assert not lease.stands() or lease.ts == ts + 1


def test_columns_that_get_new_names(tmp_path: Path) -> None:
    """Several CHANGEs in one ALTER: old values are what the DDL makes of the rows."""
    log = log_of(tmp_path, "alter table m change a b timestamp null, change c d varchar(9)")
    (switch,) = log.switches
    (row,) = log.rows(switch.ts, switch.ts + 1, ((b"t", b"u"),))
    before, after = (decode_row(switch.layout, row.key, value).columns for value in (row.old_value, row.value))

    assert [(old.id, new.id) for old, new in switch.pairs] == [(2, 4), (3, 5)]
    assert (before[4].hour, after[4].hour) == (12, 7)
