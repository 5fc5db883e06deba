"""`tidegate verify --repair FEED`: rows that differ are requested of a changefeed of a server."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.server.http_kit import served
from tests.server.kit import ServerHome, until
from tests.verify.test_repair import damage_files
from tests.verify.test_running import going
from tidegate.cli.main import main
from tidegate.server.record import FeedId
from tidegate_upstream.tidb.listener import Upstream
from tidegate_upstream.tidb.session import Session

REPAIR = "/api/tidegate/v1/changefeeds/one/rows/repair"
ROWS = {"rows": [{"table": "shop.kept", "columns": ["id"], "keys": [["2"]]}]}


def test_what_is_refused(tmp_path: Path) -> None:
    """Names that are no tables, keys of other columns, and a changefeed that has no database to read."""
    place = ServerHome(tmp_path / "place")
    with served(place) as (server, client):
        server.changefeeds.create(place.wish("one"), "ann")
        for row in ({"table": "kept"}, {"keys": [["2", "3"]]}, {"keys": [[2]]}, {"columns": "id"}):
            answer = client.ask("POST", REPAIR, {"rows": [ROWS["rows"][0] | row]})
            assert (answer.status, answer.json["error_code"]) == (400, "CDC:ErrAPIInvalidParam"), row
        assert "has begun without a database" in client.ask("POST", REPAIR, ROWS).text
        assert client.ask("GET", REPAIR).json == {"request": "", "outcome": ""}
        assert server.changefeeds.operations()[0].result == "failed"


@pytest.mark.slow
def test_rows_are_mended(tmp_path: Path) -> None:
    """Rows of a lake that somebody changed are right again, through the server that runs its changefeed."""
    place = ServerHome(tmp_path / "place")
    session = Session(place.upstream.cluster.node)
    session.execute("CREATE DATABASE shop; CREATE TABLE shop.kept (id INT PRIMARY KEY, v VARCHAR(20))")
    session.execute("INSERT INTO shop.kept VALUES (2, 'a'), (4, 'b'), (6, 'c'), (8, 'd')")
    lake = place.home / "lake"

    def work(stop: threading.Event) -> None:
        while not stop.wait(0.2):
            place.work(1)

    with served(place) as (server, client), Upstream(place.upstream.cluster) as sql:
        address = f"root:@127.0.0.1:{sql.ports['n1']}/?enable-tls=false"
        config = {"filter": {"rules": ["shop.*"]}, "source": {"load": "initial", "load-from": f"mysql://{address}"}}
        server.changefeeds.create(
            replace(place.wish("one", start_ts=0, config=config), sink_uri=f"delta://{lake}"), "ann"
        )
        words = ["verify", str(lake), "--upstream", f"tidb://{address}", "--filter", "shop.kept"]
        with going(work):
            until(lambda: CliRunner().invoke(main, words).exit_code == 0)
            damage_files(lake / "tables")
            found = CliRunner().invoke(main, words)
            mended = CliRunner().invoke(main, [*words, "--repair", "one", "--server", f"http://{client.address}"])
            last = client.ask("GET", REPAIR).json
            view = server.changefeeds.get(FeedId("default", "one"))
    assert (found.exit_code, found.stdout.splitlines()[-1]) == (1, "1 of 1 tables differ")
    assert (mended.exit_code, mended.stdout.splitlines()[-1]) == (0, "all 1 tables equal"), mended.output
    assert last == {"request": "repair of 3 rows of shop.kept", "outcome": "done"}
    assert view.state == "normal"
