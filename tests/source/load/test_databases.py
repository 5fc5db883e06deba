"""A load of an embedded TiDB, with its change log behind it, into a real MariaDB."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.test_sql_sink import asked, emptied
from tests.failpoint import armed
from tests.mariadb import Server, running_server
from tests.source.load.kit import Loaded
from tidegate.config.load import load
from tidegate.config.registry import source_of
from tidegate.engine.progress import Progress
from tidegate.model.errors import SinkRefused
from tidegate.mysql import server_sql as sent
from tidegate.sink.sql.connection import SqlOptions
from tidegate.sink.sql.sink import SqlSink
from tidegate.testing.script import run_here

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The target of this file."""
    with running_server(tmp_path_factory.mktemp("mariadb")) as found:
        yield found


def into(target: Server, upstream: Loaded, home: Path, feed: str, *rules: str) -> Progress:
    """A load of some tables, and its end."""
    address = f"mysql://root@127.0.0.1:{upstream.port}/?enable-tls=false&chunk-rows=2"
    sink_uri = f"mysql://root@127.0.0.1:{target.port}/"
    config = load(load_mode="only", load_from=address, sink_uri=sink_uri, rules=rules, state_dir=home, name=feed)
    sink = SqlSink(SqlOptions(feed, "127.0.0.1", target.port))
    return run_here(source_of(config), sink, rules=rules)


def test_a_sequence_goes_on(upstream: Loaded, mariadb: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sequence is made with the value that the upstream has next, once, whenever the feed stops."""
    emptied(mariadb)
    monkeypatch.setattr(sent, "NEXT_NUMBERS", "SELECT 'counted', 'q', '', 4001, 'SEQUENCE'")
    for statement in (
        "CREATE DATABASE counted",
        "CREATE SEQUENCE counted.q INCREMENT 5",
        "CREATE TABLE counted.t (id BIGINT PRIMARY KEY)",
        "INSERT INTO counted.t VALUES (1), (6)",
    ):
        upstream.run(statement)

    def stop() -> None:
        if asked(mariadb, "SHOW TABLES FROM counted") == [("q",)]:
            raise RuntimeError("stopped")

    with armed({"ddl/executed": stop}), pytest.raises(RuntimeError, match="stopped"):
        into(mariadb, upstream, tmp_path, "one", "counted.*")
    done = into(mariadb, upstream, tmp_path, "one", "counted.*")

    assert (done.state, done.rows, done.left_out) == ("finished", 2, ())
    assert asked(mariadb, "SELECT NEXTVAL(counted.q), NEXTVAL(counted.q)") == [(4001, 4006)]


def test_a_filled_table_is_refused_until_it_is_empty(upstream: Loaded, mariadb: Server, tmp_path: Path) -> None:
    """A table that holds rows is named, with S and the ways out, and keeps them; emptied, dropped or left out the same
    feed goes on, and each row is there once. An empty table of the same shape is taken."""
    emptied(mariadb)
    for statement in (
        "CREATE DATABASE filled",
        "CREATE TABLE filled.a (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE filled.b (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE filled.keyless (v INT)",
        "INSERT INTO filled.a VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)",
        "INSERT INTO filled.b VALUES (7, 7)",
        "INSERT INTO filled.keyless VALUES (1), (1), (NULL)",
    ):
        upstream.run(statement)
    mariadb.run(
        "CREATE DATABASE filled",
        "CREATE TABLE filled.a (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE filled.b (id INT PRIMARY KEY, v INT)",
        "INSERT INTO filled.b VALUES (9, 9)",
    )
    for _ in range(2):
        with pytest.raises(SinkRefused, match=r"table filled\.b .* has rows, and the load at .*DROP TABLE.*filter"):
            into(mariadb, upstream, tmp_path, "one", "filled.*")
        assert asked(mariadb, "SELECT * FROM filled.b") == [(9, 9)]
    mariadb.run("DELETE FROM filled.b")
    done = into(mariadb, upstream, tmp_path, "one", "filled.*")

    assert (done.state, done.rows) == ("finished", 9)
    for table in ("a", "b", "keyless"):
        rows = f"SELECT * FROM filled.{table} ORDER BY 1"
        assert asked(mariadb, rows) == list(upstream.run(rows)), table
    mariadb.run("DROP TABLE filled.a", "DROP TABLE filled.keyless")
    left = into(mariadb, upstream, tmp_path / "more", "two", "filled.*", "!filled.b")
    assert (left.state, left.rows) == ("finished", 8)
