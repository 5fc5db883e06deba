"""Two servers of one store are upgraded in turns, as docs/operate.md says, while changefeeds run and rows come.

    older, older ──► older, current ──► current, current ──► older        rows come all the time

The store, its changefeed and the files behind it are of the kept set.  The older servers are processes of the release
whose packages are in the directory that TIDEGATE_TEST_OLDER names; without it they are of this release.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tidegate
from tests.e2e.test_server import WAIT_S, ServerProcess, made, reached, serving
from tests.kept.kit import Rows, archives, replayed, rows_of, unpacked
from tests.kept.make import tables_of, upstream
from tests.kept.test_going_on import of_files
from tests.kept.test_versions import in_server
from tests.server.kit import until

pytestmark = [pytest.mark.slow, pytest.mark.more]

OLDER = {"PYTHONPATH": os.environ["TIDEGATE_TEST_OLDER"]} if "TIDEGATE_TEST_OLDER" in os.environ else {}
FEEDS = ("served", "new")


class Writing(threading.Thread):
    """Writes rows until `end`; nothing else uses its cursor meanwhile."""

    def __init__(self, cursor: Any) -> None:
        super().__init__(daemon=True)
        self.cursor, self.halt, self.latest_ts = cursor, threading.Event(), 0

    def run(self) -> None:
        """Insert, update, and delete some."""
        number = 1000
        while not self.halt.wait(0.05):
            number += 1
            self.cursor.execute(f"INSERT INTO kept.items VALUES ({number}, 1, 'name {number}', {number}.5)")
            self.cursor.execute(f"UPDATE kept.items SET amount = amount + 1 WHERE order_id > {number - 5}")
            self.cursor.execute(f"DELETE FROM kept.items WHERE order_id = {number - 9}")
            self.cursor.execute("BEGIN")
            self.cursor.execute("SELECT @@tidb_current_ts")
            self.latest_ts = int(self.cursor.fetchone()[0])
            self.cursor.execute("COMMIT")

    def end(self) -> tuple[int, Rows]:
        """Stop; return the last timestamp and the table's rows."""
        self.halt.set()
        self.join(WAIT_S)
        return self.latest_ts, tables_of(self.cursor)["items"]


@contextmanager
def writing(home: Path) -> Iterator[Writing]:
    """Rows that come as long as the block lasts."""
    with upstream(home) as cursor:
        thread = Writing(cursor)
        thread.start()
        try:
            yield thread
        finally:
            thread.halt.set()
            thread.join(WAIT_S)


def ended(server: ServerProcess) -> None:
    """End a server as `systemctl stop` does."""
    server.signal(signal.SIGTERM)
    assert server.process.wait(WAIT_S) == 0, Path(server.log.name).read_text()


def goes_on(server: ServerProcess, rows: Writing) -> None:
    """The server owns, and its changefeeds come to rows that are written from now on."""
    until(server.owns, wait_s=WAIT_S)
    now_ts = rows.latest_ts
    for name in FEEDS:
        reached(server, name, now_ts)
        assert server.feed(name)["state"] == "normal"


@pytest.mark.limit(600)
def test_servers_are_upgraded_in_turns(tmp_path: Path) -> None:
    """The server that does not own is upgraded, then the owner, then one goes back: changefeeds, one of them created
    by the older release, go on without a request, and each change is in files once and in the lake. State of a later
    version ends the start with an error that names it."""
    world = unpacked(archives()[-1], tmp_path / "home")
    data = str(world.home / "server")
    with writing(world.home) as rows:
        with serving(world, data, **OLDER) as owner:
            until(owner.owns, wait_s=WAIT_S)
            made(owner, world, "new", f"delta://{world.home / 'new'}")
            with serving(world, data, **OLDER) as second:
                goes_on(owner, rows)
                ended(second)
            with serving(world, data) as upgraded:
                goes_on(owner, rows)
                ended(owner)
                with serving(world, data) as last:
                    goes_on(upgraded, rows)
                    ended(upgraded)
                    goes_on(last, rows)
                    ended(last)
        with serving(world, data, **OLDER) as back:
            goes_on(back, rows)
            end_ts, expected = rows.end()
            for name in FEEDS:
                reached(back, name, end_ts)
            ended(back)

    changes = of_files(world.home / "served")
    told = [(*change[:3], change.data is None) for change in changes]
    assert len(told) == len(set(told))
    assert replayed(changes)["items"] == expected
    assert rows_of(tidegate.lake(str(world.home / "new")).arrow("kept.items").to_pylist()) == expected

    in_server(world)
    with pytest.raises(AssertionError, match=r"ErrStateTooNew.*version\.json.*of version 2"), serving(world, data):
        pass
