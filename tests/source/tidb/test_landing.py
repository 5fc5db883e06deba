"""A change log into a changelog, without Spark: rows and DDLs without places, and changelogs of the time before."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from tests.source.tidb.kit import changes, recorded_log, write_log
from tidegate.changelog.changelog import Changelog, changelog_uri, claim, commit_batch
from tidegate.changelog.files import RowFiles, State, TaskReport
from tidegate.config.changefeed import Changefeed
from tidegate.engine.change import EventPosition
from tidegate.engine.filter import TableFilter
from tidegate.engine.frontier import Reached
from tidegate.engine.ports import LocalTasks
from tidegate.kv.keys import IntHandle, record_key, record_prefix
from tidegate.lakes.lake import Lake
from tidegate.model.errors import MadeAnew
from tidegate.model.kv_change import KvChange
from tidegate.model.table import TableName
from tidegate.source.tidb_changes import MountOptions
from tidegate.source.tidb_land import LogLanding
from tidegate.source.tidb_segment import SegmentLog, create_statements, in_order

PLACE = ("topic", "partition", "offset")
NOPK = 459
"""A table without a key in a recorded stream."""


class Landing(LogLanding):
    """A landing that lands what it is told to."""

    def begin(self, needed_ts: int = 0) -> "Landing":
        """Claim the changelog, without a thread."""
        self.needed_ts = needed_ts
        self._tasks, self._state = LocalTasks(), self._claim()
        return self

    def batch(self) -> State:
        """One batch."""
        self._batch()
        return self._state


def landing(log: Path, lake: Path, needed_ts: int = 0, **given: Any) -> Landing:
    """A landing of everything in a log."""
    rules, mount = TableFilter.parse(("*.*",)), MountOptions(force_replicate=True)
    return Landing(
        SegmentLog(log), str(lake), "f", rules=rules, definitions=create_statements, mount=mount, **given
    ).begin(needed_ts)


def landed(lake: Path) -> Changelog:
    """The changelog of a lake."""
    found = Changelog(changelog_uri(str(lake)))
    found.refresh()
    return found


def rows(changelog: Changelog) -> list[dict[str, Any]]:
    """All rows, table by table in order, without their places."""
    whole = changelog.slice(0, 1 << 62)
    tables = [whole.read(name).drop_columns([*PLACE, "seq"]) for name in sorted(whole.tables())]
    return [row for table in tables for row in table.to_pylist()]


def test_rows_and_ddls_have_no_place(tmp_path: Path) -> None:
    """Topic, partition and offset are NULL, positions and partitions are none, the frontier is the end of the log; DDLs
    of one ts keep their order."""
    log = recorded_log(tmp_path / "log", "types")
    state = landing(log, tmp_path / "lake").batch()
    changelog = landed(tmp_path / "lake")
    whole = changelog.slice(0, 1 << 62)

    assert (state.positions, state.frontier) == ({}, SegmentLog(log).parts(0)[-1].high)
    assert (changelog.positions(), changelog.slowest(), changelog.frontier()) == ({}, None, state.frontier)
    some = pa.concat_tables([whole.read(name) for name in whole.tables()])
    assert [some.column(name).null_count for name in (*PLACE, "seq")] == [some.num_rows] * 3 + [0]
    ddls = changelog.ddls(0, 1 << 62)
    assert [placed.position for placed in ddls] == [EventPosition(seq=seq) for seq in range(len(ddls))] != []


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["replica", "changelog"])
def test_equal_changes_of_a_transaction(tmp_path: Path, mode: str) -> None:
    """Of a table without a key a lake has each change, those that a transaction makes to equal rows as well."""
    rows = changes("interleave")
    last = [row for row in rows if row.key.startswith(record_prefix(NOPK))][-2:]
    others = [replace(row, key=record_key(NOPK, IntHandle(100 + row.key[-1]))) for row in last]

    def stored(name: str, rows: list[KvChange]) -> list[str]:
        log, lake = write_log(tmp_path / name, sorted(rows, key=in_order)), tmp_path / f"{name}-lake"
        feed = Changefeed(f"tidb://{log}", f"delta://{lake}?mode={mode}", state_dir=tmp_path / f"{name}-state")
        feed.run(tasks=LocalTasks(), idle_s=0)
        return sorted(map(str, Lake(str(lake)).arrow("gi.nopk").to_pylist()))

    once = stored("once", rows)
    twice = [row for row in once if str(last[0].commit_ts) in row]
    assert len(twice) == (2 if mode == "replica" else 4)
    assert stored("twice", [*rows, *others]) == sorted([*once, *twice])


@pytest.mark.slow
def test_a_changelog_of_the_time_before_goes_on(tmp_path: Path) -> None:
    """Where a log stood as topic "tidb" with timestamps for offsets, landing goes on behind them, and the lake has what
    one has that is begun now."""
    log = recorded_log(tmp_path / "log", "interleave")
    landing(log, tmp_path / "new").batch()
    every = rows(landed(tmp_path / "new"))
    middle = SegmentLog(log).parts(0)[2].high
    uri, known = changelog_uri(str(tmp_path / "old")), Changelog(changelog_uri(str(tmp_path / "new")))
    known.refresh()
    before = claim(uri, "f", None, lambda new: replace(new, positions={"tidb": {0: Reached(0)}}))
    files, whole = RowFiles(uri, flush_bytes=1 << 20), known.slice(0, middle)
    for name in whole.tables():
        files.add([(name, _placed(whole.read(name)))])
    report = TaskReport(topic="tidb", partition=0, start=0, position=middle, resolved=middle, files=files.close())
    before = commit_batch(uri, before, [report])
    assert before.frontier == middle

    now = landing(log, tmp_path / "old")
    assert (now._state.positions, now._state.frontier) == ({}, middle)
    state = now.batch()
    assert (state.positions, state.frontier) == ({}, known.frontier())
    assert rows(landed(tmp_path / "old")) == every != []
    assert landing(log, tmp_path / "old").batch().frontier == state.frontier


def _placed(table: pa.Table) -> pa.Table:
    """Rows as they stood in the time before."""
    count = table.num_rows
    old = {"topic": pa.repeat(pa.scalar("tidb"), count), "partition": pa.repeat(pa.scalar(0, pa.int32()), count)}
    old["offset"] = table.column("commit_ts")
    for name, column in old.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def test_definitions_land_before_the_first_rows(tmp_path: Path) -> None:
    """A feed that begins above 0 lands the tables of that moment at that ts, also when it died between its claim and
    its first batch."""
    log = recorded_log(tmp_path / "log", "types")
    start_ts = SegmentLog(log).parts(0)[3].high
    landing(log, tmp_path / "lake", start_ts=start_ts, complete=False)
    state = landing(log, tmp_path / "lake", start_ts=start_ts, complete=False).batch()
    ddls = landed(tmp_path / "lake").ddls(0, 1 << 62)

    assert state.frontier is not None
    assert state.frontier > start_ts
    assert next(placed.ddl.commit_ts for placed in ddls if placed.ddl.table) == start_ts
    assert TableName("gt", "t_int") in {TableName(placed.ddl.schema, placed.ddl.table) for placed in ddls}


@pytest.mark.slow
def test_a_changelog_that_is_gone(tmp_path: Path) -> None:
    """Where the target stands below what a landing anew begins at, it stops; the log from its begin (no start-ts), or
    the changelog put back, goes on."""
    log, lake, stands = recorded_log(tmp_path / "log", "interleave"), tmp_path / "lake", 5
    kept = tmp_path / "kept"
    begin = SegmentLog(log).parts(0)[2].high
    landing(log, lake).batch()
    (lake / "_tidegate").rename(kept)

    for _ in range(2):
        with pytest.raises(MadeAnew, match=f"is at ts {stands}, .* begins at ts {begin}"):
            landing(log, lake, stands, start_ts=begin, complete=False)

    assert landing(log, tmp_path / "other", stands).batch().frontier == SegmentLog(log).parts(0)[-1].high
    assert landing(log, tmp_path / "third", begin, start_ts=begin, complete=False).batch().frontier is not None
    shutil.rmtree(lake)
    lake.mkdir()
    kept.rename(lake / "_tidegate")
    assert landing(log, lake, stands, start_ts=begin, complete=False).batch().frontier is not None
