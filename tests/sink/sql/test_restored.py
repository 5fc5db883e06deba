"""A database that loses what it had confirmed while its changefeed runs."""

import subprocess

import pytest

from tests.contract.test_sql_sink import databases
from tests.failpoint import armed
from tests.mariadb import Server
from tests.sink.sql.test_exactly_once import live, same, times
from tidegate.model.errors import SinkRefused
from tidegate.testing.contract import stories

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("lost", ["some", "all"])
def test_a_database_restored_while_its_feed_runs(server: Server, lost: str) -> None:
    """A database that lost acknowledged writes, by a restore from a backup or all of it, ends the run at its next
    commit with both timestamps, though its epoch is the run's own; started again, as the error says it, the feed brings
    what is missing."""
    story = stories.shop()
    backup: list[str] = []

    def dump() -> None:
        backup.append(dumped(server))

    def restore() -> None:
        if lost == "all":
            server.run("DELETE FROM tidegate.progress")
        else:
            restored(server, backup[0])

    reached = {"sql/advanced": times(dump, 3), "sql/before-advance": times(restore, 6)}
    words = "lost acknowledged writes.* has no progress" if lost == "all" else "brought it to ts .* it is at ts"
    with armed(reached), pytest.raises(SinkRefused, match=words):
        live(server, story)

    if lost == "all":
        restored(server, backup[0])
    live(server, story)
    assert not same(server, story)


def dumped(server: Server) -> str:
    """All databases as statements."""
    names = [*databases(server), "tidegate"]
    command = ["mariadb-dump", "--no-defaults", "-uroot", "-h127.0.0.1", f"-P{server.port}", "--single-transaction"]
    return subprocess.run(
        [*command, "--add-drop-database", "--hex-blob", "--databases", *names],
        capture_output=True,
        check=True,
        text=True,
    ).stdout


def restored(server: Server, dump: str) -> None:
    """Puts them back."""
    command = ["mariadb", "--no-defaults", "-uroot", "-h127.0.0.1", f"-P{server.port}", "--binary-mode"]
    subprocess.run(command, input=dump, check=True, text=True, capture_output=True)
