"""A whole changefeed over TLS, into addresses that are not those that the cluster advertises."""

from collections.abc import Iterator
from contextlib import contextmanager
from os.path import relpath
from pathlib import Path

import grpc
import pytest

from tests.certificates import make_certificate
from tests.e2e.rig import running
from tests.kill.test_cluster import ON_CLUSTER
from tests.kill.victims import LIFE_S, armed_processes, executor, live
from tests.upstream.tikv.test_capture import Served
from tidegate.config.load import load
from tidegate.config.registry import feed_of
from tidegate.engine.load_plan import KeptPlan
from tidegate.engine.loop import Engine, Meter
from tidegate.engine.ports import LocalTasks
from tidegate.engine.stop_signals import NoPauseEvent
from tidegate.kv.keys import IntHandle, record_key
from tidegate.lakes.lake import Lake
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tikv.peer import TikvPeer

ADVERTISED = ("pd-0.peer:2379", "tikv-0.peer:20160", "tikv-1.peer:20160")


@contextmanager
def behind_tls(home: Path) -> Iterator[tuple[Served, str]]:
    """A cluster whose PD and stores ask for the client's certificate and advertise names that do not exist here, and
    its address."""
    for name in ("ca", "server", "client"):
        make_certificate(home, name, None if name == "ca" else "ca")
    pem = {path.name: path.read_bytes() for path in home.iterdir()}
    pair = (pem["server.key"], pem["server.crt"])
    credentials = grpc.ssl_server_credentials([pair], pem["ca.crt"], require_client_auth=True)
    cluster = Cluster.open()
    with TikvPeer(cluster.storage, stores=2, credentials=credentials).in_thread() as peer:
        reached = [peer.pd, *peer.service.stores]
        peer.service.url, peer.service.stores = f"https://{ADVERTISED[0]}", ADVERTISED[1:]
        files = f"ca-path={home}/ca.crt&cert-path={home}/client.crt&key-path={home}/client.key"
        mapping = ",".join(f"{name}:{target}" for name, target in zip(ADVERTISED, reached, strict=True))
        yield Served(peer, cluster, home), f"tikv://{peer.pd}?{files}&host-mapping={mapping}"


def test_a_lake_of_a_cluster_behind_tls_and_other_addresses(tmp_path: Path) -> None:
    """Load, changes and DDLs come all the same, and the hold on garbage collection is there."""
    with behind_tls(tmp_path) as (served, uri):
        served.execute("CREATE TABLE test.a (id INT PRIMARY KEY, v INT)", "INSERT INTO test.a VALUES (1, 1), (2, 2)")
        served.peer.log.split(b"t\x80" + bytes(6) + b"\xff")
        for work in ((), ("INSERT INTO test.a VALUES (3, 3)", "ALTER TABLE test.a ADD w INT DEFAULT 7")):
            ts = served.execute(*work)
            config = load(
                source_uri=uri, load_from=uri, sink_uri=f"delta://{tmp_path}/lake", rules=("test.*",), name="shop"
            )
            engine = Engine(feed_of(config), LocalTasks(pickles=False), Meter(lambda _: None), NoPauseEvent())
            assert engine.run(until=ts, idle_s=20).checkpoint_ts >= ts
        assert any(name.startswith("tidegate-shop-") for name in served.peer.service.barriers)
    rows = Lake(f"{tmp_path}/lake").arrow("test.a", ["id", "v", "w"]).to_pylist()
    assert sorted((row["id"], row["v"], row["w"]) for row in rows) == [(1, 1, 7), (2, 2, 7), (3, 3, 7)]


@pytest.mark.slow
@pytest.mark.more
def test_executors_read_a_cluster_behind_tls(tmp_path: Path) -> None:
    """Chunks of a load are read by executors of Spark, processes of their own, by the addresses and certificates that
    the feed was given, whose paths are relative to where it runs. One of them dies behind a chunk; the lake has all
    rows, each once."""
    with behind_tls(tmp_path) as (served, uri), armed_processes(["load/files-written=pause@1"], tmp_path / "marks"):
        rows = ", ".join(f"({number}, {number % 7})" for number in range(1000))
        served.execute("CREATE TABLE test.a (id INT PRIMARY KEY, v INT)", f"INSERT INTO test.a VALUES {rows}")
        table = served.session.execute("SELECT tidb_table_id FROM information_schema.tables WHERE table_name = 'a'")
        for number in range(100, 1000, 100):
            served.peer.log.split(record_key(table[0].rows[0][0], IntHandle(number)))
        load_from = f"{uri.replace(str(tmp_path), relpath(tmp_path))}&chunk-rows=100"
        words = ["run", "--source-uri", uri, "--load-from", load_from, "--filter", "test.*"]
        words += ["--sink-uri", f"delta://{tmp_path}/lake", "--until", str(served.execute())]
        with running(words, tmp_path / "run", ON_CLUSTER, hang_s=LIFE_S) as feed:
            status, deaths = live(feed, tmp_path / "marks", lambda _: executor)
            assert status == 0, feed.stderr.read_text()[-2000:]
        assert deaths == ["executor at load/files-written"]
    plan = KeptPlan(f"{tmp_path}/lake").read()
    assert plan is not None
    assert len(plan.chunks) == 10
    read = Lake(f"{tmp_path}/lake").arrow("test.a", ["id", "v"]).to_pylist()
    assert sorted((row["id"], row["v"]) for row in read) == [(number, number % 7) for number in range(1000)]
