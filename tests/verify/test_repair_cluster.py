"""`verify --repair` of a changefeed of `tikv://`: rows are read by their keys from TiKV, at a ts that PD holds."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.mariadb import Server
from tests.verify.test_repair import damage_files, verified
from tests.verify.test_running import going
from tidegate.config.changefeed import Changefeed
from tidegate.config.load import load
from tidegate.engine.ports import LocalTasks
from tidegate.engine.reload import DONE, KeptReload
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb
from tidegate_upstream.tidb.change_log import Region
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.listener import Upstream
from tidegate_upstream.tidb.session import Session
from tidegate_upstream.tikv.kv_service import KvService
from tidegate_upstream.tikv.peer import TikvPeer

pytestmark = pytest.mark.slow


class Collecting(KvService):
    """A store whose garbage is collected before each read of a row by its key, as far as loads and repairs let it:
    captures hold it no longer there."""

    peer: ClassVar[TikvPeer]
    reads: ClassVar[list[tuple[int, int]]] = []
    """The timestamp of each read, and up to where garbage was collected then."""

    def get(self, request: kvrpcpb.GetRequest, region: Region) -> kvrpcpb.GetResponse:
        if request.key.startswith(b"t"):
            pd = self.peer.service
            pd.barriers = {name: hold for name, hold in pd.barriers.items() if name.startswith("tidegate-load-")}
            self.reads.append((request.version, self.peer.collect_garbage(self.log.oracle.next())))
        return super().get(request, region)


@pytest.fixture(params=["lake", "mariadb"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str, Callable[[], None]]]:
    """The address of a target, the home of its feed, and what changes, removes and adds a row of `shop.kept`."""
    if request.param == "lake":
        lake = tmp_path / "lake"
        yield f"delta://{lake}", str(lake), lambda: damage_files(lake / "tables")
        return
    server: Server = request.getfixturevalue("mariadb")
    server.run("DROP DATABASE IF EXISTS shop", "DROP DATABASE IF EXISTS tidegate")
    uri = f"mysql://root@127.0.0.1:{server.port}/?enable-tls=false"
    damage = (
        "UPDATE shop.kept SET v = 'x' WHERE id = 2",
        "INSERT INTO shop.kept VALUES (7, 'x')",
        "DELETE FROM shop.kept WHERE id = 4",
    )
    yield uri, str(tmp_path / "state" / "mended"), lambda: server.run(*damage)


def test_rows_are_mended(tmp_path: Path, target: tuple[str, str, Callable[[], None]]) -> None:
    """Rows that somebody changed, removed and added are right again; PD holds the timestamp at which they are read, so
    that none is taken for deleted whose version of then was collected meanwhile, and no longer."""
    uri, home, damage = target
    cluster = Cluster.open(None, nodes=("n1",))
    peer = Collecting.peer = TikvPeer(cluster.storage, stores=2)
    peer.kv = [Collecting(peer.log, number, 2) for number in (1, 2)]
    Collecting.reads.clear()
    session = Session(cluster.nodes["n1"])
    session.execute("CREATE DATABASE shop; CREATE TABLE shop.kept (id INT PRIMARY KEY, v VARCHAR(20))")
    session.execute("INSERT INTO shop.kept VALUES " + ", ".join(f"({2 * n}, 'row {n}')" for n in range(40)))

    def work(stop: Any) -> None:
        while not stop.wait(0.1):
            session.execute("UPDATE shop.kept SET v = CONCAT('new ', id) WHERE id > 9")

    with peer.in_thread(), Upstream(cluster) as sql:
        config = load(
            source_uri=f"tikv://{peer.pd}",
            sink_uri=uri,
            name="mended",
            load_mode="initial",
            state_dir=tmp_path / "state",
            rules=("shop.kept",),
        )
        words = uri, "--upstream", f"tidb://root@127.0.0.1:{sql.ports['n1']}/?enable-tls=false"
        with going(lambda stop: Changefeed(config).run(tasks=LocalTasks(), stop=stop)):
            end_s = time.monotonic() + 60
            while (first := verified(*words))[0]:
                assert time.monotonic() < end_s, first
                time.sleep(0.2)
            damage()
            found = verified(*words)
            with going(work):
                mended = verified(*words, "--repair", home, "--repair-wait", "60")
        held = [name for name in peer.service.barriers if name.startswith("tidegate-load-")]
    assert (found[0], found[1].splitlines()[-1]) == (1, "1 of 1 tables differ"), found
    assert (mended[0], mended[1].splitlines()[-1]) == (0, "all 1 tables equal"), mended
    assert f"requested of changefeed {home}: 3 rows" in mended[2]
    request = KeptReload(home).read()
    assert request is not None
    assert request.outcome == DONE
    assert Collecting.reads
    assert all(read_ts == collected_ts for read_ts, collected_ts in Collecting.reads)
    assert held == []
