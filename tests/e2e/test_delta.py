"""From a change log to a lake without a topic between: SQL upstream, and the lake holds what SQL shows."""

import time
from pathlib import Path
from typing import Any

import pytest

import tidegate
from tests.e2e.rig import cli, running
from tests.engine.test_chain import TABLES, Upstream
from tidegate.config.load import load
from tidegate.config.registry import entries_of, home_of
from tidegate.lakes.lake import Lake
from tidegate.model.errors import ConfigError
from tidegate.spark.tasks import SparkTasks

pytestmark = pytest.mark.slow

Rows = dict[object, dict[str, object]]


def stored(lake: Lake, name: str) -> Rows:
    """A table of the lake by its key."""
    return {row["id"]: row for row in lake.arrow(f"test.{name}").to_pylist()}


def worked(seed: int, log: Path, pieces: int) -> tuple[Upstream, dict[int, dict[str, Rows]]]:
    """An upstream after some work, its log in segments, and its tables at the end of each."""
    upstream, moments = Upstream(seed, log), dict[int, dict[str, Rows]]()
    for _ in range(pieces):
        for _ in range(8):
            upstream.work()
        upstream.writer.write(empty=True)
        moments[upstream.writer.low] = {name: upstream.rows(name) for name in TABLES}
    return upstream, moments


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3))])
def test_a_lake_is_what_the_upstream_is(spark: Any, tmp_path: Path, seed: int) -> None:
    """At each of several timestamps, DDLs in between, the lake at that ts is what the upstream was; a feed that goes
    on from its changelog adds nothing twice."""
    _, moments = worked(seed, tmp_path / "log", 5)
    uris = f"tidb://{tmp_path / 'log'}", f"delta://{tmp_path / 'lake'}"

    for ts, tables in moments.items():
        done = tidegate.Changefeed(*uris).run(spark, until=ts)
        lake = tidegate.lake(str(tmp_path / "lake"))
        assert done.checkpoint_ts == lake.checkpoint_ts == ts
        assert {name: stored(lake, name) for name in TABLES} == tables
    again = tidegate.Changefeed(*uris).run(spark, idle_s=0.2)

    assert (again.rows_landed, again.rows, again.ddls) == (0, 0, 0)
    for ts, tables in moments.items():
        lake = tidegate.lake(str(tmp_path / "lake")).at(ts)
        assert {name: stored(lake, name) for name in TABLES} == tables


def test_many_types_and_a_past_read(spark: Any, tmp_path: Path) -> None:
    """What a session of the upstream reads at an older timestamp is what the lake has there, type by type."""
    upstream = Upstream(1, tmp_path / "log")
    upstream.run(
        "CREATE TABLE k (id BIGINT UNSIGNED PRIMARY KEY, d DECIMAL(9,3), s VARCHAR(9), b VARBINARY(9), n DATE)"
    )
    upstream.run(
        "INSERT INTO k VALUES (18446744073709551615, -1.25, 'ä', x'00ff', '2024-02-29'), (1, NULL, '', '', NULL)"
    )
    upstream.writer.write()
    past = upstream.writer.low
    upstream.run("UPDATE k SET s = CONCAT(s, '!'), d = d * 2; ALTER TABLE k DROP COLUMN n; DELETE FROM k WHERE id = 1")
    upstream.writer.write()
    uris = f"tidb://{tmp_path / 'log'}", f"delta://{tmp_path / 'lake'}"
    tidegate.Changefeed(*uris).run(spark, until=past)
    tidegate.Changefeed(*uris).run(spark, idle_s=0.2)

    lake = tidegate.lake(str(tmp_path / "lake"))
    (row,) = lake.arrow("test.k").to_pylist()
    assert (row["s"], row["b"], str(row["d"]), "n" in row) == ("ä!", b"\x00\xff", "-2.500", False)
    upstream.run(f"SET tidb_snapshot = '{past}'")
    shown = {int(one[0]): [str(one[1]), one[2], one[3]] for one in upstream.run("SELECT id, d, s, b FROM k").rows}  # type: ignore[attr-defined]
    held = {int(one["id"]): [str(one["d"]), one["s"], one["b"]] for one in lake.at(past).arrow("test.k").to_pylist()}
    assert held == shown


@pytest.mark.soak
def test_killed_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers and driver die by SIGKILL where files lie uncommitted, where a batch is committed and nobody knows, with
    tables ahead of the snapshot and with nothing published; the lake is the upstream's in the end."""
    _, moments = worked(4, tmp_path / "log", 3)
    ts = max(moments)
    places = ("landing/after-file", "landing/after-commit", "apply/rows-committed", "publish/before-snapshot")
    line = ["run", "--source-uri", f"tidb://{tmp_path / 'log'}", "--sink-uri", f"delta://{tmp_path / 'lake'}"]
    (tmp_path / "deeds").mkdir()
    monkeypatch.setenv("TIDEGATE_FAILPOINTS_DIR", str(tmp_path / "deeds"))
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", ",".join(f"{place}=kill" for place in places))
    lives, status = 0, -9
    while status == -9:
        lives += 1
        with running([*line, "--until", str(ts)], tmp_path / f"life-{lives}") as one:
            status, report = one.end()

    assert status == 0, one.stderr.read_text()
    assert lives > 1
    assert len(list((tmp_path / "deeds").iterdir())) == len(places)
    assert report["checkpoint_ts"] == ts
    lake = tidegate.lake(str(tmp_path / "lake"))
    assert {name: stored(lake, name) for name in TABLES} == moments[ts]


def test_a_file_names_the_log(spark: Any, tmp_path: Path) -> None:
    """`uri` under [source] may be a change log; the tables of the rules alone come, and a live view is ahead of what
    was published as far as the changelog is."""
    upstream = Upstream(5, tmp_path / "log")
    upstream.run("CREATE TABLE k (id INT PRIMARY KEY); INSERT INTO k VALUES (1); INSERT INTO a VALUES (1, 1, 1)")
    upstream.writer.write()
    lake, file = tmp_path / "lake", tmp_path / "feed.toml"
    file.write_text(
        f'changefeed-id = "one"\nsink-uri = "delta://{lake}"\n[source]\nuri = "tidb://{tmp_path / "log"}"\n'
        '[filter]\nrules = ["test.*", "!test.k"]\n'
    )
    result = cli("run", str(file), "--stop-when-idle", "0.2", "--json")
    upstream.run("ALTER TABLE a ADD COLUMN w INT DEFAULT 3; INSERT INTO a VALUES (2, 2, 2, 2)")
    upstream.writer.write()
    config = load(file)
    ahead = entries_of(config)[0].land(config, home_of(config), entries_of(config)[1])
    ahead.start(SparkTasks(spark))
    while not ahead.idle():
        time.sleep(0.05)
    ahead.stop()

    assert result.exit_code == 0, result.output
    read = tidegate.lake(str(lake))
    assert read.tables() == ["test.a", "test.b", "test.c"]
    assert stored(read, "a") == {1: {"id": 1, "v": 1, "u": 1}}
    live = {row["id"]: row for row in read.live().arrow("test.a").to_pylist()}
    assert live == {1: {"id": 1, "v": 1, "u": 1, "w": 3}, 2: {"id": 2, "v": 2, "u": 2, "w": 2}}


def test_what_a_lake_cannot_have(tmp_path: Path) -> None:
    """A zone is refused with the key's name; so is a start-ts of a topic."""
    (tmp_path / "log").mkdir()
    uris = f"tidb://{tmp_path / 'log'}", "delta:///x"

    with pytest.raises(ConfigError, match="time-zone"):
        tidegate.Changefeed(uris[0], "delta:///x?time-zone=Asia/Tokyo")
    with pytest.raises(ConfigError, match="tidb://"):
        tidegate.Changefeed("kafka://h/t?protocol=open-protocol", "delta:///x", start_ts=1)
