"""`tidegate upstream`: a real process started, asked, found again, stopped; and what a dead or foreign one leaves."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from tidegate.config.entry import FeedConfig
from tidegate.config.load import load
from tidegate.config.registry import feed_of
from tidegate.model.errors import EnvironmentFault, InputError, SameUpstream
from tidegate.mysql.encoding import encode_int
from tidegate.source.tidb_segment import SegmentLog, segments
from tidegate_upstream import background as upstreams
from tidegate_upstream.background import UpstreamOptions, UpstreamProcess, start_upstream, status, stop_upstream
from tidegate_upstream.cli.upstream import upstream as command
from tidegate_upstream.serve import UpstreamLog, open_upstream, written_log
from tidegate_upstream.tidb.session import Session
from tidegate_upstream.tidb.wire import account


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of this test's own for the notes about upstreams."""
    place = tmp_path / "notes"
    place.mkdir()
    monkeypatch.setattr(upstreams, "cache_dir", lambda *_parts: place)
    return place


@pytest.fixture
def running(notes: Path) -> Iterator[UpstreamProcess]:
    """Two nodes in memory."""
    one = start_upstream(UpstreamOptions(nodes=2))
    yield one
    stop_upstream(one)


def ran(*words: str) -> str:
    result = CliRunner().invoke(command, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*words: str) -> str:
    """The error of a command that fails."""
    with pytest.raises((EnvironmentFault, InputError)) as error:
        CliRunner().invoke(command, words, catch_exceptions=False)
    return str(error.value)


def test_a_stranger_is_never_stopped(notes: Path, tmp_path: Path) -> None:
    """A pid that now belongs to another program is left alone, and its note is dropped."""
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        stale = UpstreamProcess(stranger.pid, tmp_path / "data", "127.0.0.1", {"n1": 1}, temporary=False)
        fields = {"pid": stale.pid, "dir": str(stale.dir), "host": stale.host, "ports": {"n1": 1}, "temporary": False}
        upstreams.UPSTREAMS.note(stale.dir).write_text(json.dumps(fields))

        assert status() == ()
        stop_upstream(stale)
        assert stranger.poll() is None
        assert list(notes.iterdir()) == []
    finally:
        stranger.kill()
        stranger.wait()


def test_nothing_runs(notes: Path) -> None:
    """Without an upstream, status says so and the other commands name the one that starts it."""
    assert ran("status") == "no upstream is running\n"
    assert ran("status", "--json") == "[]\n"
    assert "tidegate upstream start" in refused("sql", "SELECT 1")
    assert "tidegate upstream start" in refused("stop")


@pytest.mark.slow
def test_a_process_of_two_nodes(running: UpstreamProcess) -> None:
    """What one node is told the other one answers; errors have their number; status and stop know the process."""
    assert ran("sql", "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, b BLOB, n DECIMAL(5,2))") == (
        "OK, 0 rows affected\nOK, 0 rows affected\n"
    )
    assert ran("sql", "-D", "d", "INSERT INTO t VALUES (1, x'00ff', 1.5), (2, NULL, NULL)") == "OK, 2 rows affected\n"
    assert ran("sql", "--node", "2", "SELECT * FROM d.t") == "id\tb\tn\n1\t00ff\t1.50\n2\tNULL\tNULL\n"
    assert json.loads(ran("sql", "--json", "SELECT id, n FROM d.t")) == [{"id": 1, "n": "1.50"}, {"id": 2, "n": None}]
    assert "1146: Table 'd.nope' doesn't exist" in refused("sql", "SELECT * FROM d.nope")
    assert "n1, n2" in refused("sql", "--node", "3", "SELECT 1")
    (told,) = json.loads(ran("status", "--json"))
    assert told["pid"] == running.pid
    assert list(told["ports"]) == ["n1", "n2"]
    assert ran("stop").startswith("stopped 127.0.0.1:")
    assert status() == ()
    assert not running.dir.exists()


@pytest.mark.slow
def test_a_directory_keeps_its_rows(notes: Path, tmp_path: Path) -> None:
    """Started over a directory, killed, and started again, an upstream has its rows; started twice it is one."""
    place, data = tmp_path / "data", ("--data", str(tmp_path / "data"))
    ran("start", "--port", "0", *data)
    assert ran("start", "--port", "0", *data).startswith("mysql -h 127.0.0.1 -P ")
    ran("sql", *data, "CREATE TABLE test.t (id INT PRIMARY KEY); INSERT INTO test.t VALUES (7)")
    (one,) = status(place)
    assert "already served" in refused("start", "--port", str(next(iter(one.ports.values())) + 1), *data)
    os.kill(one.pid, signal.SIGKILL)
    until = time.monotonic() + 10
    while status(place) and time.monotonic() < until:
        time.sleep(0.02)
    ran("start", "--port", "0", *data)

    assert ran("sql", "SELECT * FROM test.t") == "id\n7\n"
    ran("stop", *data)
    assert place.exists()


@pytest.mark.slow
def test_a_password(notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upstream with a password lets in who names it, and shows it neither to `ps` nor in its notes."""
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    monkeypatch.setenv("PASSWORD", "s3cret")
    ran("start", "--port", "0", "--user", "ann", "--password", f"@{secret}")
    try:
        assert ran("sql", "--user", "ann", "--password", "env:PASSWORD", "SELECT 1 AS a") == "a\n1\n"
        assert "1045" in refused("sql", "--user", "ann", "SELECT 1")
        digest = account("ann", "s3cret").password_hash
        (one,) = status()
        words = " ".join(psutil.Process(one.pid).cmdline())
        for text in (words, *(note.read_text() for note in notes.iterdir())):
            assert "s3cret" not in text
            assert digest not in text
    finally:
        ran("stop")


def test_a_network_needs_a_password() -> None:
    """An address that other machines reach needs one, and never on the command line itself."""
    assert "set --password" in refused("start", "--host", "0.0.0.0")
    assert "not the password itself" in refused("start", "--password", "s3cret")


@pytest.mark.slow
def test_a_port_that_is_taken(notes: Path) -> None:
    """A port that somebody has is an error with the end of the log, and nothing is left behind."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = refused("start", "--port", str(taken.getsockname()[1]))

    assert "cannot be bound" in said
    assert list(notes.iterdir()) == []


@pytest.mark.slow
def test_foreground() -> None:
    """In the foreground it prints where it listens, serves, and ends with status 0 on SIGTERM."""
    words = ["upstream", "start", "--port", "0", "--foreground", "--json"]
    script = [sys.executable, "-c", "from tidegate.cli.main import main; main()", *words]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", told["ports"]["n1"]), timeout=10) as connection:
            assert b"TiDB" in connection.recv(100)
        process.send_signal(signal.SIGTERM)

        assert process.wait(20) == 0


def test_the_change_log_is_written(notes: Path, tmp_path: Path) -> None:
    """--log gives a changefeed every DDL and row that was committed before the stop; a log of other rows is refused."""
    log = tmp_path / "log"
    assert notes.exists()
    with (
        open_upstream(tmp_path / "one", UpstreamOptions(log=str(log))) as served,
        written_log(served, UpstreamOptions(log=str(log))),
    ):
        session = Session(served.cluster.node)
        session.execute(
            "create table test.t (id int primary key, v varchar(9)); insert into test.t values (7, 'seven')"
        )
    high = SegmentLog(log).parts(0)[-1].high
    rows = list(SegmentLog(log).rows(0, high, [(b"t", b"u")]))

    assert [row.value for row in rows if row.key.endswith(b"_r" + encode_int(7))] != []
    assert any(b"create table test.t" in (row.value or b"") for row in rows)
    with pytest.raises(EnvironmentFault, match="another upstream"):
        UpstreamLog(served.cluster, log, in_memory=True)


@pytest.mark.slow
def test_a_log_is_trimmed_for_all_but_the_slowest(notes: Path, tmp_path: Path) -> None:
    """With --log-keep the log stays for a changefeed that said so, and no longer; status tells who holds it."""
    log, words = tmp_path / "log", ("--port", "0", "--log-keep", "4s", "--gc-ttl", "1h")
    ran("start", "--log", str(log), *words)
    ran("sql", "CREATE TABLE test.t0 (id INT PRIMARY KEY)")
    wait_for(lambda: segments(log) != [])
    held = segments(log)[0][1]
    SegmentLog(log).set_safe_point("slow", held)
    for number in (1, 2):
        high = segments(log)[-1][1]
        ran("sql", f"CREATE TABLE test.t{number} (id INT PRIMARY KEY)")
        wait_for(lambda: segments(log)[-1][1] > high)  # noqa: B023  it is asked at once
    wait_for(lambda: SegmentLog(log).begin().ts == held)
    (told,) = json.loads(ran("status", "--json"))
    lines = ran("status").splitlines()
    (log / "feeds" / "slow.json").unlink()
    wait_for(lambda: SegmentLog(log).begin().ts > held)

    assert (told["log"]["begin_ts"], told["log"]["changefeeds"][0]["checkpoint_ts"]) == (held, held)
    assert lines[1].startswith(f"  change log {log} from {held} to ")
    assert lines[2].startswith(f"  changefeed slow at {held}, last seen ")
    names = [table.stored.name.original for table in SegmentLog(log).begin().snapshot.tables.values()]
    assert {"t0", "t1"} <= set(names)
    ran("stop")


def wait_for(true: Callable[[], bool]) -> None:
    """Until it is so, for at most a minute."""
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.usefixtures("notes")
@pytest.mark.slow
def test_it_is_not_its_own_replica(tmp_path: Path) -> None:
    """A changefeed that would write into the very upstream whose log it reads is refused, by whatever name it calls
    it; another server is not."""
    log = tmp_path / "log"
    one, other = start_upstream(UpstreamOptions(log=str(log))), start_upstream(UpstreamOptions())
    try:
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(SameUpstream, match="would be replicated again") as told:
                feed_of(into(log, host, one.port_of(1), tmp_path))
            assert told.value.code == "CDC:ErrSameUpstreamDownstream"
        feed_of(into(log, "127.0.0.1", other.port_of(1), tmp_path))
    finally:
        stop_upstream(one)
        stop_upstream(other)


def into(log: Path, host: str, port: int, home: Path) -> FeedConfig:
    """A changefeed from a log into a server."""
    return load(source_uri=f"tidb://{log}", sink_uri=f"tidb://root@{host}:{port}/", state_dir=home / "state")
