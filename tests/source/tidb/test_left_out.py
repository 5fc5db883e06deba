"""What a changefeed leaves out is named and counted: at its start, in its reports, by `status` and `run --check`."""

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.engine.test_chain import Upstream
from tests.log_source import log_source
from tests.mariadb import running_server
from tidegate.cli.main import main
from tidegate.cli.status import words
from tidegate.config import tidb as wiring
from tidegate.config.entry import FeedConfig
from tidegate.config.load import load
from tidegate.config.registry import entries_of, feed_of, status_of
from tidegate.config.status import statuses
from tidegate.config.tidb import log_of
from tidegate.engine.loop import Engine, Meter
from tidegate.engine.ports import LocalTasks
from tidegate.engine.progress import Progress, left_out_words
from tidegate.lakes.lake import Lake
from tidegate.model.left_out import LATE_KEY, NO_KEY, LeftOut
from tidegate.schema.state import SchemaState
from tidegate.source.tidb_changes import MountOptions
from tidegate.source.tidb_segment import SegmentLog

SCHEMA = "CREATE TABLE bare (a INT, b INT); CREATE TABLE late (a INT, b INT); CREATE TABLE k (a INT PRIMARY KEY, b INT)"
ROWS = (
    "INSERT INTO bare VALUES (1, 1), (2, 2); INSERT INTO bare VALUES (1, 1); INSERT INTO late VALUES (1, 1);"
    "INSERT INTO k VALUES (1, 1)"
)
MORE = (
    "ALTER TABLE late ADD PRIMARY KEY (a)",
    "INSERT INTO late VALUES (2, 2); DELETE FROM bare WHERE a = 2; INSERT INTO k VALUES (2, 2)",
)


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    """A TiDB with a table without a key, one that gets its first key, and one that has one."""
    found = Upstream(1, tmp_path / "log")
    found.run(f"{SCHEMA}; {ROWS}")
    found.writer.write(empty=True)
    return found


def configured(tmp_path: Path, sink_uri: str, settings: str = "") -> FeedConfig:
    """A changefeed of that log."""
    file = tmp_path / "feed.toml"
    file.write_text(settings)
    return load(
        str(file),
        source_uri=f"tidb://{tmp_path}/log",
        sink_uri=sink_uri,
        name="feed",
        rules=("test.*",),
        state_dir=None if sink_uri.startswith("delta") else str(tmp_path / "state"),
    )


def run(config: FeedConfig) -> Progress:
    """One run, to the end of the log; its last report, which is kept."""
    kept = status_of(config)
    engine = Engine(feed_of(config), LocalTasks(), Meter(kept.save), threading.Event())
    return engine.run(idle_s=0.3)


def write_more(upstream: Upstream) -> None:
    """The first key of a table, and rows."""
    for text in MORE:
        upstream.run(text)
    upstream.writer.write(empty=True)


def files(tmp_path: Path) -> str:
    """A sink that leaves tables without a key out, as TiCDC does."""
    return f"file://{tmp_path}/files?protocol=canal-json&enable-tidb-extension=true&flush-interval=2s"


def texts(place: Path) -> str:
    """All that the files of that sink say."""
    return "".join(path.read_text() for path in sorted(place.rglob("*.json")))


@pytest.mark.slow
def test_a_lake_keeps_tables_without_a_key(tmp_path: Path, upstream: Upstream) -> None:
    """With a warning that names them; one that gets its first key has all rows."""
    config = configured(tmp_path, f"delta://{tmp_path}/lake")
    told = run(config)
    assert sum("test.bare has no primary" in text for text in told.warnings) == 1
    assert told.left_out == ()

    write_more(upstream)
    told = run(config)

    lake = Lake(str(tmp_path / "lake"))
    assert sorted(lake.arrow("test.late")["a"].to_pylist()) == [1, 2]
    assert lake.arrow("test.bare").num_rows == 4, "a log of changes: three rows came, one went"
    assert left_out_words(told) == ""


@pytest.mark.slow
@pytest.mark.parametrize("begun", ["before", "behind"])
def test_files_leave_them_out_by_name(tmp_path: Path, upstream: Upstream, begun: str) -> None:
    """In the reports, once in the warnings, and in `status`; a table that gets its first key when the feed has begun
    stays out, and is there for one that begins behind."""
    if begun == "behind":
        write_more(upstream)
    config = configured(tmp_path, files(tmp_path))
    told = run(config)
    bare, late = LeftOut("test.bare", NO_KEY), LeftOut("test.late", NO_KEY)
    if begun == "before":
        assert told.left_out == (bare, late)
        assert told.warnings == (f"not replicated: {bare}; {late}",)
        write_more(upstream)
        told = run(config)
        assert told.left_out == (bare, LeftOut("test.late", LATE_KEY))
        assert "late" not in texts(tmp_path / "files")

    (status,) = statuses(str(tmp_path / "state"))
    assert status.left_out == told.left_out
    assert f"left out {len(told.left_out)} tables (test.bare: {NO_KEY}" in words(status)
    assert "bare" not in texts(tmp_path / "files")


@pytest.mark.slow
def test_force_replicate_brings_them_everywhere(tmp_path: Path, upstream: Upstream) -> None:
    """As in TiCDC."""
    told = run(configured(tmp_path, files(tmp_path), "force-replicate = true\n"))

    assert told.left_out == ()
    assert "bare" in texts(tmp_path / "files")


@pytest.mark.slow
def test_rows_and_ddls_that_filters_take_out_are_counted(tmp_path: Path, upstream: Upstream) -> None:
    """Each once, by reports and `status`."""
    write_more(upstream)
    rules = """
        [[filter.event-filters]]
        matcher = ["test.k"]
        ignore-event = ["insert", "create table"]
    """
    config = configured(tmp_path, files(tmp_path), rules)
    upstream.run(
        "INSERT INTO k VALUES (3, 3)",
    )
    upstream.run("DELETE FROM k WHERE a = 3")
    upstream.writer.write(empty=True)

    told = run(config)

    assert (told.rows_left_out, told.ddls_left_out) == (3, 1)
    (status,) = statuses(str(tmp_path / "state"))
    assert "1 DDLs, 3 rows" in words(status)


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["lake", "files"])
def test_rows_behind_the_last_that_is_kept_are_counted(tmp_path: Path, upstream: Upstream, sink: str) -> None:
    """Those that end a run, and those of a run that keeps no row."""
    rules = """
        [[filter.event-filters]]
        matcher = ["test.k"]
        ignore-event = ["insert"]
    """
    config = configured(tmp_path, f"delta://{tmp_path}/lake" if sink == "lake" else files(tmp_path), rules)
    upstream.run("DELETE FROM k WHERE a = 1")
    upstream.run("INSERT INTO k VALUES (3, 3), (4, 4)")
    upstream.writer.write(empty=True)
    assert run(config).rows_left_out == 3

    upstream.run("INSERT INTO k VALUES (5, 5)")
    upstream.writer.write(empty=True)
    assert run(config).rows_left_out == 1


def test_a_feed_of_the_release_before_goes_on_without_them(tmp_path: Path, upstream: Upstream) -> None:
    """A database's feed that never had a table without a key is not sent the rows that come from now on; it is named.
    One that is made later is carried."""
    found = log_source(tmp_path / "log", rules=("test.*",), mount=MountOptions(keeps=True))
    at = SegmentLog(tmp_path / "log").parts(0)[-1].high
    found.start(LocalTasks(), at)
    known = SchemaState().with_unknown(one for one in found.definitions(at) if one.handle_key)

    found.carry(known)
    found.start(LocalTasks(), at)

    assert {one.name.table for one in found.definitions(at)} == {"a", "b", "c", "k"}
    assert [one.table for one in found.reading().left_out] == ["test.bare", "test.late"]
    upstream.run("CREATE TABLE new (a INT)")
    upstream.writer.write(empty=True)
    found.refresh()
    assert [placed.ddl.table for placed in found.ddls(at, found.frontier() or 0)] == ["new"]


@pytest.mark.more
@pytest.mark.slow
def test_a_lake_of_the_release_before_goes_on_without_them(tmp_path: Path, upstream: Upstream) -> None:
    """It never had rows of a table without a key, so those that come from now on are none of its: they are named,
    across their first key, TRUNCATE and new runs. One that is made later is carried, whatever has landed when."""
    config = configured(tmp_path, f"delta://{tmp_path}/lake")
    log, mount, texts = log_of(config, entries_of(config)[1])
    with pytest.MonkeyPatch.context() as before:
        before.setattr(wiring, "log_of", lambda *_: (log, mount._replace(keeps=False), texts))
        run(config)
    there = {"test.a", "test.b", "test.c", "test.k"}
    assert set(Lake(str(tmp_path / "lake")).tables()) == there

    for text in (*MORE, "TRUNCATE TABLE bare", "INSERT INTO bare VALUES (3, 3)", "CREATE TABLE new (a INT)"):
        upstream.run(text)
        upstream.writer.write(empty=True)
        told = run(config)
        upstream.run("INSERT INTO k VALUES (9, 9); DELETE FROM k WHERE a = 9; INSERT INTO bare VALUES (4, 4)")
        upstream.writer.write(empty=True)
        told = run(config)
        assert [one.table for one in told.left_out] == ["test.bare", "test.late"]
    upstream.run("INSERT INTO new VALUES (1)")
    upstream.writer.write(empty=True)
    assert not [text for text in run(config).warnings if "no DDL seen" in text]

    lake = Lake(str(tmp_path / "lake"))
    assert set(lake.tables()) == {*there, "test.new"}
    assert lake.arrow("test.new")["a"].to_pylist() == [1]


def checked(tmp_path: Path, sink_uri: str, *more: str) -> Result:
    """What `run --check` says."""
    state = [] if sink_uri.startswith("delta") else ["--state-dir", str(tmp_path / "state")]
    words = ["run", "--check", "--source-uri", f"tidb://{tmp_path}/log", "--sink-uri", sink_uri, *state, *more]
    return CliRunner().invoke(main, words)


def test_check_lists_what_a_run_would_leave_out(tmp_path: Path, upstream: Upstream) -> None:
    """Tables taken and left out, with reasons, by words and as JSON; nothing is written."""
    write_more(upstream)
    there = sorted(path for path in tmp_path.rglob("*") if path.is_file())

    found = checked(tmp_path, files(tmp_path), "--filter", "test.*", "--filter", "!test.a")
    assert found.exit_code == 0, found.output
    assert "replicates 3 tables: test.b, test.c, test.k" in found.output
    for line in (f"test.bare: {NO_KEY}", f"test.late: {LATE_KEY}", "test.a: filter rules"):
        assert f"skips {line}" in found.output
    found = checked(tmp_path, f"delta://{tmp_path}/lake", "--filter", "test.*", "--json")
    told = json.loads(found.stdout)
    assert told["taken"] == ["test.a", "test.b", "test.bare", "test.c", "test.k", "test.late"]
    assert told["sink_met"]

    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == there


@pytest.mark.slow
def test_check_meets_both_ends(tmp_path: Path, upstream: Upstream) -> None:
    """A sink of another feed, a server that is away, a log that is not there: each as a run would say it."""
    run(configured(tmp_path, f"delta://{tmp_path}/lake"))
    found = checked(tmp_path, f"delta://{tmp_path}/lake", "-c", "another")
    assert (found.exit_code, "belongs to changefeed" in found.output) == (1, True)
    found = checked(tmp_path, "mysql://root@127.0.0.1:1/")
    assert (found.exit_code, "127.0.0.1:1" in found.output) == (1, True)
    (tmp_path / "log").rename(tmp_path / "elsewhere")
    found = checked(tmp_path, f"delta://{tmp_path}/fresh")
    assert (found.exit_code, "log" in found.output) == (1, True)


@pytest.mark.slow
def test_a_database_keeps_tables_without_a_key(tmp_path: Path, upstream: Upstream) -> None:
    """Each row as often as upstream, across a first key, and a warning that names them."""
    with running_server(tmp_path / "maria") as server:
        config = configured(tmp_path, f"mysql://root@127.0.0.1:{server.port}/")
        server.run("CREATE DATABASE test")
        run(config)
        write_more(upstream)
        told = run(config)

        def rows(table: str) -> Counter[Any]:
            with server.connection.cursor() as cursor:
                cursor.execute(f"SELECT * FROM test.{table}")
                return Counter(cursor.fetchall())

        assert rows("bare") == Counter({(1, 1): 2})
        assert rows("late") == Counter([(1, 1), (2, 2)])
        assert rows("k") == Counter([(1, 1), (2, 2)])
        assert told.left_out == ()
