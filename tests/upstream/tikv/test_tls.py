"""A whole changefeed over TLS, into addresses that are not those that the cluster advertises."""

from pathlib import Path

import grpc

from tests.certificates import make_certificate
from tests.upstream.tikv.test_capture import Served
from tidegate.config.load import load
from tidegate.config.registry import feed_of
from tidegate.engine.loop import Engine, Meter
from tidegate.engine.ports import LocalTasks
from tidegate.engine.stop_signals import NoPauseEvent
from tidegate.lakes.lake import Lake
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tikv.peer import TikvPeer

ADVERTISED = ("pd-0.peer:2379", "tikv-0.peer:20160", "tikv-1.peer:20160")


def test_a_lake_of_a_cluster_behind_tls_and_other_addresses(tmp_path: Path) -> None:
    """PD and both stores ask for the client's certificate and advertise names that do not exist here: load, changes and
    DDLs come all the same, and the hold on garbage collection is there."""
    for name in ("ca", "server", "client"):
        make_certificate(tmp_path, name, None if name == "ca" else "ca")
    pem = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    pair = (pem["server.key"], pem["server.crt"])
    credentials = grpc.ssl_server_credentials([pair], pem["ca.crt"], require_client_auth=True)
    cluster = Cluster.open()
    with TikvPeer(cluster.storage, stores=2, credentials=credentials).in_thread() as peer:
        reached = [peer.pd, *peer.service.stores]
        peer.service.url, peer.service.stores = f"https://{ADVERTISED[0]}", ADVERTISED[1:]
        served = Served(peer, cluster, tmp_path)
        served.execute("CREATE TABLE test.a (id INT PRIMARY KEY, v INT)", "INSERT INTO test.a VALUES (1, 1), (2, 2)")
        peer.log.split(b"t\x80" + bytes(6) + b"\xff")
        files = f"ca-path={tmp_path}/ca.crt&cert-path={tmp_path}/client.crt&key-path={tmp_path}/client.key"
        mapping = ",".join(f"{name}:{target}" for name, target in zip(ADVERTISED, reached, strict=True))
        uri = f"tikv://{peer.pd}?{files}&host-mapping={mapping}"
        for work in ((), ("INSERT INTO test.a VALUES (3, 3)", "ALTER TABLE test.a ADD w INT DEFAULT 7")):
            ts = served.execute(*work)
            config = load(
                source_uri=uri, load_from=uri, sink_uri=f"delta://{tmp_path}/lake", rules=("test.*",), name="shop"
            )
            engine = Engine(feed_of(config), LocalTasks(pickles=False), Meter(lambda _: None), NoPauseEvent())
            assert engine.run(until=ts, idle_s=20).checkpoint_ts >= ts
        assert any(name.startswith("tidegate-shop-") for name in peer.service.barriers)
    rows = Lake(f"{tmp_path}/lake").arrow("test.a", ["id", "v", "w"]).to_pylist()
    assert sorted((row["id"], row["v"], row["w"]) for row in rows) == [(1, 1, 7), (2, 2, 7), (3, 3, 7)]
