"""The replica demo: a database is what the upstream was, and a difference or a torn bank would be told."""

import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest

from tests.server.http_kit import Client
from tidegate.server.application import application
from tidegate.sink.sql.connection import TargetSession
from tidegate_upstream.demo.live import LiveOptions, MomentReport, Teller, moment_lines, verdict_line
from tidegate_upstream.demo.replica import NAME, SYNC_MS, ReplicaDemo
from tidegate_upstream.demo.served import served_feeds
from tidegate_upstream.demo.upstream import TOTAL, WorkPace

pytestmark = [pytest.mark.slow, pytest.mark.more]

Played = tuple[ReplicaDemo, list[MomentReport]]


class Watcher(Teller):
    """Keeps the address of the page."""

    page = ""

    def address(self, name: str, address: str) -> None:
        """Note an address."""
        if name == "page":
            self.page = address


@pytest.fixture(scope="module", params=["tidb", pytest.param("mariadb", marks=pytest.mark.soak)])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """A small demo after its work, still open, and its reports; that into a TiDB runs in a server."""
    options, tell = LiveOptions(tmp_path_factory.mktemp("demo"), 7, WorkPace(36, 6.0, 0.01)), Watcher(as_json=True)
    server = partial(served_feeds, application) if request.param == "tidb" else None
    with ReplicaDemo(options, request.param, threading.Event(), tell, server) as run:
        run.start()
        run.work()
        if server is not None:  # the page shows the sync points as they are
            address, token = tell.page.removeprefix("http://").split("/#token=")
            client = Client(address, Authorization=f"Bearer {token}")
            feed = client.ask("GET", f"/api/tidegate/v1/changefeeds/{NAME}").json
            assert feed["sync_point"]["interval_s"] == SYNC_MS / 1000
        run.catch_up()
        yield run, list(run.compare())
    assert not run.scratch.exists()


def test_everything_is_equal(played: Played) -> None:
    """Every DDL of the scripts was done, and every table is the same at each sync point and at the end; a reader saw
    one total of the bank."""
    run, reports = played
    verdict = run.judge(reports)
    assert verdict_line(verdict).startswith("all "), [moment_lines(one) for one in reports if not one.equal]
    assert run.upstream.refused_ddls == []
    assert verdict.timestamps >= (2 if run.target == "tidb" else 1)
    assert run.reader.totals == {TOTAL}
    assert run.reader.reads > 0


def test_a_torn_bank_is_told(played: Played) -> None:
    """Another total that the reader saw is a difference."""
    run, reports = played
    run.reader.totals.add(TOTAL - 1)
    try:
        assert run.judge(reports).wrong == ("bank.accounts",)
    finally:
        run.reader.totals.remove(TOTAL - 1)


def test_a_wrong_row_is_found(played: Played) -> None:
    """A value that somebody changed in the replica is a difference of its row and column, once it is looked at."""
    run, reports = played
    with closing(TargetSession(run.address)) as session:
        session.ask("UPDATE bank.accounts SET owner = 'somebody else' WHERE id = 3")
        *_, end = run.compare()
        session.ask("UPDATE bank.accounts SET owner = 'owner 3' WHERE id = 3")
    wrong = [table for table in end.tables if not table.equal]
    assert [(table.name, [one.column for one in table.differences]) for table in wrong] == [
        ("bank.accounts", ["owner"])
    ]
    assert not run.judge([*reports[:-1], end]).equal
