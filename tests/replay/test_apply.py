"""`tidegate apply`: a replica whose changefeed died is brought to one ts, from what another one has landed."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.contract.test_sql_sink import asked
from tests.counts import some
from tests.failpoint import armed
from tests.mariadb import Server
from tests.recorded import RecordedLanding, partitions_of
from tests.replay.test_database import WORKLOAD, recorded, truths, unlike
from tests.replay.test_history import PROTOCOLS
from tests.sink.sql.conftest import running, server
from tests.sink.sql.test_exactly_once import times
from tidegate.changelog.changelog import changelog_uri
from tidegate.changelog.source import ChangelogSource
from tidegate.cli.main import main
from tidegate.codec.options import DecodeOptions
from tidegate.engine.ports import LocalTasks
from tidegate.model.errors import HistoryLost
from tidegate.sink.sql.connection import SqlOptions
from tidegate.sink.sql.sink import SqlSink
from tidegate.testing.script import run_here

__all__ = ["running", "server"]

pytestmark = pytest.mark.slow
in_open = pytest.mark.parametrize("home", ["open", pytest.param("canal", marks=pytest.mark.soak)], indirect=True)
"""Of one protocol, of both in the soak."""


@pytest.fixture(scope="module", params=["open", "canal"])
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a changefeed from the recorded topic has landed, which is all of it."""
    home = tmp_path_factory.mktemp(request.param)
    messages = partitions_of(WORKLOAD / request.param)
    landing = RecordedLanding(
        changelog_uri(str(home)), "f", DecodeOptions(protocol=PROTOCOLS[request.param]), messages, topic="shop"
    )
    landing.start(LocalTasks())
    while landing.land(500):
        pass
    return home


def applied(source: str, server: Server, *more: str) -> tuple[int, str]:
    """Exit status and the last line of `tidegate apply`."""
    uri = f"mysql://root@127.0.0.1:{server.port}/"
    result = CliRunner().invoke(main, ["apply", "--source-uri", source, "--sink-uri", uri, "--json", *more])
    lines = result.output.strip().splitlines()
    return result.exit_code, lines[-1] if lines else repr(result.exception)


@in_open
def test_after_a_disaster(server: Server, home: Path) -> None:
    """A replica that a dead changefeed left amid a round is brought to a moment, killed on the way, then to another,
    then to all that is resolved; doing it again changes nothing, and a ts that some of its rows have passed is
    refused."""
    source, wanted = f"changelog://{home}", truths()
    died = SqlSink(SqlOptions("f", "127.0.0.1", server.port, txn_rows=16))
    with armed({"sql/after-commit": times(_die, 20)}), pytest.raises(SystemExit):
        run_here(ChangelogSource(changelog_uri(str(home))), died, until=wanted[2]["ts"])
    ((at, ahead),) = asked(server, "SELECT MIN(position), MAX(position) FROM tidegate.progress WHERE feed = 'f'")
    assert at < ahead - 1
    status, line = applied(source, server, "--until", str(ahead - 1))
    assert (status, f"the replica is already at {ahead}" in line) == (1, True)

    with armed({"sql/before-advance": times(_die, 2)}):
        assert applied(source, server, "--until", str(wanted[4]["ts"]))[0] == 5
    status, line = applied(source, server, "--until", str(wanted[4]["ts"]))
    assert (status, json.loads(line)["ts"]) == (0, wanted[4]["ts"])
    assert not list(unlike(server, wanted[4]))

    status, line = applied(source, server)
    last = json.loads(line)
    assert (status, last["changefeed"]) == (0, "f")
    assert last["ts"] >= wanted[-1]["ts"]
    assert not list(unlike(server, wanted[-1]))

    status, line = applied(source, server)
    assert (status, json.loads(line)) == (0, {**last, "from_ts": last["ts"]})
    status, line = applied(source, server, "--until", str(wanted[4]["ts"]))
    assert (status, "later than --until" in line) == (1, True)
    status, line = applied(source, server, "--until", "now")
    assert status == 1
    assert not list(unlike(server, wanted[-1]))


def test_from_the_log_of_a_tidb(server: Server, tmp_path: Path) -> None:
    """The change log of a TiDB that is gone is enough."""
    log = recorded(tmp_path / "segments")
    (tmp_path / "feed.toml").write_text("force-replicate = true\n")
    truth = truths()[some(4, -1)]
    words = ("--until", str(truth["ts"]), str(tmp_path / "feed.toml"))
    status, line = applied(f"tidb://{log}", server, *words)
    assert status == 0, line
    assert not list(unlike(server, truth))


@in_open
def test_what_is_trimmed_is_told(home: Path) -> None:
    """A replica that stands before the changelog's begin is told, and a home without a changelog."""
    source = ChangelogSource(changelog_uri(str(home)))
    source.refresh()
    source.changelog.state = source.changelog.state.__class__(floor=10, positions={})
    with pytest.raises(HistoryLost, match="starts above ts 10, but the changefeed is at 9"):
        source.start(LocalTasks(), 9)
    assert source.start(LocalTasks(), 10) == 10
    status, line = applied("changelog:///nowhere", Server(1, None))
    assert status == 1, line


def _die() -> None:
    raise SystemExit(5)
