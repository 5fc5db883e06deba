"""The recorded shop in a MariaDB, beside the recording and beside lakes of the same recording."""

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tests.lakes.stages import WORKLOAD, Play, truths
from tests.lakes.test_selected_columns import RULES
from tests.log_source import log_source
from tests.mariadb import running_server
from tests.replay.test_database import recorded
from tests.verify.shop import verified
from tidegate.cli.main import main
from tidegate.sink.sql.connection import SqlOptions
from tidegate.sink.sql.sink import SqlSink
from tidegate.testing.script import run_here

pytestmark = pytest.mark.slow
MOMENTS = (3, 12)


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Lakes that have landed everything, and are merged up to the first of MOMENTS: of all columns, and of some."""
    roots = []
    for selectors in ((), RULES):
        roots.append(tmp_path_factory.mktemp("lake"))
        play = Play(roots[-1])
        play.stage.options = play.stage.sink.options = msgspec.structs.replace(play.stage.options, selectors=selectors)
        for truth in truths():
            play.land(truth.ts)
            if truth.n <= MOMENTS[0]:
                play.merge(truth.ts)
    return roots


def test_recorded(tmp_path: Path, lakes: list[Path]) -> None:
    """At recorded moments the replica is equal to the recording, to a lake's snapshot and to its live view; a row
    that is removed from it is missing beside each."""
    log = recorded(tmp_path / "segments")
    with running_server(tmp_path) as mariadb:
        for n in MOMENTS:
            ts = truths()[n - 1].ts
            source = log_source(log)
            run_here(source, SqlSink(SqlOptions("recorded", "127.0.0.1", mariadb.port)), until=ts)
            for upstream in (WORKLOAD, *lakes):
                said = verified(mariadb, str(upstream), "--at", str(ts))
                assert (said.status, said.wrong) == (0, {}), (n, upstream, said.error)
                assert said.last["tables"] == len(truths()[n - 1].tables)
        assert verified(mariadb, str(WORKLOAD), "--at", str(n)).last["ts"] == ts
        for lake in lakes:  # the other way round: a lake beside a server, which has no past
            words = ["verify", str(lake), "--upstream", f"mysql://root@127.0.0.1:{mariadb.port}/", "--at", str(ts)]
            done = CliRunner().invoke(main, words)
            assert (done.exit_code, done.stdout.splitlines()[-1]) == (
                0,
                f"all {len(truths()[n - 1].tables)} tables equal",
            )
        mariadb.run("DELETE FROM bank.accounts LIMIT 1")
        for upstream in (str(WORKLOAD), *(f"delta://{lake}" for lake in lakes)):
            found = verified(mariadb, upstream).wrong
            assert found.keys() == {"bank.accounts"}
            assert [line.split(" [")[0] for line in found["bank.accounts"]] == ["missing row"]
        unknown = verified(mariadb, str(WORKLOAD), "--at", str(ts - 1))
        assert unknown.status == 1
