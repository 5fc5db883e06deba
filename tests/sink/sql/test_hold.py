"""A changefeed that is held stands still at one ts until the hold is gone."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from tests.contract.test_sql_sink import asked, tables_of
from tests.failpoint import armed
from tests.mariadb import Server
from tests.sink.sql.test_exactly_once import Dies, die
from tidegate.cli.main import main
from tidegate.engine.loop import Engine, Feed, Meter
from tidegate.engine.ports import LocalTasks, Source
from tidegate.engine.retry_policy import RetryPolicy
from tidegate.model.errors import ConfigError, SinkError
from tidegate.sink.sql import progress as hold
from tidegate.sink.sql.connection import SqlOptions, TargetSession
from tidegate.sink.sql.progress import Lease, lease_at
from tidegate.sink.sql.sink import SqlSink
from tidegate.testing import validators
from tidegate.testing.script import Script, ScriptedSource, put, run_here

pytestmark = pytest.mark.slow

PAIRS = 60
SOON_S = 60.0


class Slow(ScriptedSource):
    """A source that brings one step in 50 ms."""

    def refresh(self) -> None:
        """Go on to the next mark, after a while."""
        time.sleep(0.05)
        super().refresh()


def pairs() -> Script:
    """Two tables that are written together, a mark after each transaction."""
    story = Script()
    story.ddl("s", "CREATE DATABASE s")
    for table in ("s.a", "s.b"):
        story.ddl(table, f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)")
    for number in range(PAIRS):
        story.commit(put("s.a", id=number, v=number), put("s.b", id=number % 7, v=number))
        story.resolve()
    return story


@contextmanager
def feeding(server: Server, story: Script) -> Iterator[threading.Event]:
    """A feed of a story that runs until the block ends; the event is set when it stopped."""
    options = SqlOptions("shop", "127.0.0.1", server.port, atomicity="none", txn_rows=3)
    with in_a_thread(Slow(story), SqlSink(options)) as ended:
        yield ended


@contextmanager
def in_a_thread(source: Source, sink: SqlSink) -> Iterator[threading.Event]:
    """A feed that runs in a thread until the block ends; the event is set when it stopped."""
    stop, ended = threading.Event(), threading.Event()
    feed = Feed("shop", source, sink, accept=lambda *_: True, patience=RetryPolicy(quick=3, stuck_s=None))

    def run() -> None:
        try:
            Engine(feed, LocalTasks(), Meter(lambda _: None), stop).run()
        finally:
            ended.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield ended
    finally:
        stop.set()
        thread.join(60)


def position(server: Server) -> int:
    """The checkpoint."""
    ((found,),) = asked(server, "SELECT position FROM tidegate.progress WHERE shard = -1")
    return int(found)


def session(server: Server) -> TargetSession:
    """A session of a holder."""
    return TargetSession(SqlOptions("", "127.0.0.1", server.port))


def until(true: object, *, within_s: float = SOON_S) -> None:
    """Waits for what `true` says."""
    end_s = time.monotonic() + within_s
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end_s
        time.sleep(0.02)


def started(server: Server, story: Script) -> bool:
    """Whether the feed is behind the DDLs that the story begins with, after which it stands at marks alone."""
    return bool(asked(server, "SELECT 1 FROM information_schema.tables WHERE table_name = 'holds'")) and bool(
        asked(server, f"SELECT 1 FROM tidegate.progress WHERE shard = -1 AND position >= {story.marks[0]}")
    )


@pytest.mark.parametrize("given", [True, False])
def test_held(server: Server, *, given: bool) -> None:
    """A feed stands where a hold wants it, or where it can, with the rows of just that moment, whatever waits; then it
    goes on to the end."""
    story = pairs()
    with feeding(server, story):
        until(lambda: started(server, story))
        with lease_at(session(server), "shop", story.marks[PAIRS // 2] if given else None) as lease:
            until(lease.stands)
            assert lease.ts is not None
            assert not given or lease.ts == story.marks[PAIRS // 2]
            for _ in range(5):
                time.sleep(0.2)
                assert position(server) == lease.ts
                assert not list(validators.unlike(story.tables(lease.ts), tables_of(server)))
        until(lambda: position(server) == story.ts)
    assert not list(validators.unlike(story.tables(story.ts), tables_of(server)))


def test_two_holders(server: Server) -> None:
    """Of two holds the lower one comes first, then the higher."""
    story = pairs()
    with feeding(server, story):
        until(lambda: started(server, story))
        with lease_at(session(server), "shop", story.marks[40]) as later:
            with lease_at(session(server), "shop", story.marks[30]) as sooner:
                until(sooner.stands)
                assert not later.stands()
            until(later.stands)
            assert position(server) == later.ts


def test_a_dead_holder(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hold that nobody renews holds nobody, and its holder is told."""
    monkeypatch.setattr(hold, "LEASE_S", 1)
    story = pairs()
    with feeding(server, story):
        until(lambda: started(server, story))
        lease = Lease(session(server), "shop", None)
        lease.request()
        until(lambda: position(server) == story.ts)
        with pytest.raises(SinkError, match="over"):
            lease.renew()


def test_too_late(server: Server) -> None:
    """A ts that the feed has passed is told, with where it is."""
    story = pairs()
    with feeding(server, story):
        until(lambda: started(server, story) and position(server) == story.ts)
        with (
            lease_at(session(server), "shop", story.marks[1]) as lease,
            pytest.raises(ConfigError, match=f"has passed .* at {story.ts}"),
        ):
            lease.stands()


def test_after_a_crash_amid_a_round(server: Server) -> None:
    """Where a run that died left rows of a later time, the feed does not stand at an earlier ts; it stands again once
    none is ahead."""
    story = pairs()
    marks, middle = list(story.marks), story.marks[PAIRS // 2]
    options = SqlOptions("shop", "127.0.0.1", server.port, atomicity="none", txn_rows=3)
    run_here(ScriptedSource(story), SqlSink(options), until=marks[0])
    story.marks[:] = [marks[0], marks[-1]]
    with armed({"sql/before-advance": die}), pytest.raises(Dies):
        run_here(ScriptedSource(story), SqlSink(options))
    story.marks[:] = marks
    with lease_at(session(server), "shop", middle) as early, lease_at(session(server), "shop", None) as lease:
        with feeding(server, story):
            with pytest.raises(ConfigError, match=f"has passed {middle}: it is at {story.ts}"):
                until(early.stands)
            until(lease.stands)
        assert lease.ts == story.ts


def test_after_a_crash_behind_a_ddl(server: Server) -> None:
    """Where a run died behind a DDL, before its checkpoint, the feed does not stand at an earlier ts."""
    story = Script()
    story.ddl("s", "CREATE DATABASE s")
    story.ddl("s.t", "CREATE TABLE s.t (id INT PRIMARY KEY)")
    begin, middle = story.resolve(), story.tick()
    story.ddl("s.t", "ALTER TABLE s.t ADD COLUMN v INT")
    ran = story.ts
    story.resolve()
    options = SqlOptions("shop", "127.0.0.1", server.port)
    run_here(ScriptedSource(story), SqlSink(options), until=begin)
    with armed({"ddl/done": die}), pytest.raises(Dies):
        run_here(ScriptedSource(story), SqlSink(options))
    with lease_at(session(server), "shop", middle) as early:
        with pytest.raises(ConfigError, match=f"has passed {middle}: it is at {ran}"):
            early.stands()
        with feeding(server, story):
            until(lambda: position(server) == story.ts)
        assert not asked(server, "SELECT 1 FROM tidegate.holds WHERE seen")


def command(*words: str) -> tuple[int, str]:
    """Exit status and output of `tidegate sink hold`."""
    result = CliRunner().invoke(main, ["sink", "hold", *words])
    return result.exit_code, result.output


def test_a_command_while_held(server: Server, tmp_path: pytest.TempPathFactory) -> None:
    """A command runs while the feed stands still, is told the ts, and its exit status is that of the call."""
    story = pairs()
    program = tmp_path / "program.py"  # type: ignore[operator]
    program.write_text("import os, pathlib, sys; pathlib.Path(sys.argv[1]).write_text(os.environ['TIDEGATE_HELD_TS'])")
    uri = f"mysql://root@127.0.0.1:{server.port}/"
    with feeding(server, story):
        until(lambda: started(server, story))
        status, output = command(uri, "--json", "--", sys.executable, str(program), str(program.with_suffix(".ts")))
        assert status == 0, output
        held_ts = json.loads(output)["ts"]
        assert int(program.with_suffix(".ts").read_text()) == held_ts
        assert held_ts in {*story.marks, story.ts}
        assert command(uri, "--", sys.executable, "-c", "raise SystemExit(3)")[0] == 3
        status, output = command(uri, "--for", "0.5", "--", "sleep", "30")
        assert status == 1
        assert "--for" in output
        assert command(uri, "--for", "0.2")[0] == 0
        status, output = command(uri, "--changefeed", "other")
        assert (status, "it has shop" in output) == (1, True)
        until(lambda: position(server) == story.ts)


def test_nobody_runs(server: Server) -> None:
    """A changefeed that does not run is told from one that comes to stand."""
    story = pairs()
    with feeding(server, story):
        until(lambda: started(server, story))
    status, output = command(f"mysql://root@127.0.0.1:{server.port}/", "--wait", "0.5")
    assert (status, "Is it running" in output) == (1, True)
    assert not asked(server, "SELECT * FROM tidegate.holds")
