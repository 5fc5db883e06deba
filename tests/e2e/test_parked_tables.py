"""A table that stands still, as users see it: in reports, on the command line, and back while the feed runs."""

import json
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tidegate
from tests.engine.test_chain import Upstream
from tidegate.cli.main import main
from tidegate.config.load import load
from tidegate.engine.ports import LocalTasks
from tidegate.engine.progress import Progress
from tidegate.model.errors import SinkRefused

pytestmark = pytest.mark.slow


class Lake:
    """An upstream with the tables a and b, its log, and a lake."""

    def __init__(self, home: Path) -> None:
        self.upstream, self.home, self.root = Upstream(1, home / "log"), home, str(home / "lake")
        (home / "feed.toml").write_text("")

    def sql(self, sql: str) -> None:
        """Run statements; the log's end lies behind them."""
        self.upstream.run(sql)
        self.upstream.writer.write(empty=True)

    def feed(self, parameters: str, **how: object) -> Progress:
        """Run the feed until nothing comes any more."""
        config = load(
            self.home / "feed.toml",
            source_uri=f"tidb://{self.home / 'log'}",
            sink_uri=f"delta://{self.root}?flush-interval=50ms&{parameters}",
        )
        return tidegate.Changefeed(config).run(tasks=LocalTasks(pickles=False), idle_s=0.2, **how)  # type: ignore[arg-type]

    def rows(self, name: str) -> dict[int, dict[str, object]]:
        """A table of the lake by its key."""
        return {row["id"]: row for row in tidegate.lake(self.root).arrow(f"test.{name}").to_pylist()}


def call(*words: str) -> Result:
    """The command line in this process."""
    return CliRunner().invoke(main, words)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """One whose table a met a DDL that is refused, while b went on."""
    found = Lake(tmp_path)
    found.sql("INSERT INTO a VALUES (1, 1, 1); INSERT INTO b VALUES (1, 1, 1)")
    found.feed("schema-change=exception&table-error=park")
    found.sql("ALTER TABLE a ADD COLUMN more INT; INSERT INTO a (id, v, u, more) VALUES (2, 2, 2, 2)")
    found.sql("INSERT INTO b VALUES (2, 2, 2)")
    return found


def test_what_is_told(lake: Lake) -> None:
    """Report, status, table list and lake show name the table, its error and the way on; the other is whole."""
    progress = lake.feed("schema-change=exception&table-error=park")

    assert progress.state in {"stopped", "finished"}
    assert [one.table for one in progress.parked] == ["test.a"]
    assert any("test.a is parked" in warning for warning in progress.warnings)
    assert lake.rows("b") == lake.upstream.rows("b")
    assert "parked: test.a: CDC:Err" in call("status", lake.root).stdout
    (told,) = json.loads(call("table", "list", lake.root, "--json").stdout)
    assert told["table"] == "test.a"
    assert "ADD COLUMN `more`" in told["error"]["message"]
    shown = {one["table"]: one for one in json.loads(call("lake", "show", lake.root, "--json").stdout)["tables"]}
    assert "rows" not in shown["test.a"]
    assert shown["test.a"]["parked_ts"] == told["parked_ts"]
    refused = call("lake", "read", lake.root, "test.a")
    assert refused.exit_code == 1
    assert "CDC:ErrTableParked" in refused.stderr
    before = call("lake", "read", lake.root, "test.a", "--at", str(told["parked_ts"]), "--format", "json")
    assert json.loads(before.stdout)["id"] == 1


def test_halt_is_the_default(lake: Lake) -> None:
    """Without the parameter the feed ends with the table, ts and DDL."""
    with pytest.raises(SinkRefused, match="ADD COLUMN `more`") as refused:
        lake.feed("schema-change=exception")
    assert refused.value.where.table == "test.a"


def test_back_while_the_feed_runs(lake: Lake) -> None:
    """A running feed hears the request; afterwards the table goes on as the others do."""
    lake.feed("schema-change=exception&table-error=park")
    asked = threading.Event()

    def hear(progress: Progress) -> None:
        if progress.parked and progress.phase == "running" and not asked.is_set():
            asked.set()
            assert call("table", "resume", lake.root, "test.a").exit_code == 0
            lake.sql("INSERT INTO a (id, v, u, more) VALUES (3, 3, 3, 3)")

    stop = lake.feed("schema-change=evolve&table-error=park", on_progress=hear)

    assert asked.is_set()
    assert stop.parked == ()
    assert lake.rows("a") == lake.upstream.rows("a")
    assert call("table", "list", lake.root).stdout == "no parked tables\n"


def test_mistakes(lake: Lake, tmp_path: Path) -> None:
    """A table that is not parked, and a directory that is not a lake, are told in one line."""
    lake.feed("schema-change=exception&table-error=park")

    assert "parked tables are: test.a" in call("table", "resume", lake.root, "test.b").stderr
    assert "is not a lake" in call("table", "list", str(tmp_path / "nothing")).stderr
    assert call("table", "resume", lake.root).exit_code == 2
