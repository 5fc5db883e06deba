"""Changefeeds of a server whose upstream is a cluster, by `--pd` or by the words of TiCDC's API."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.certificates import make_certificate
from tests.server.http_kit import Client, served
from tests.server.kit import ServerHome, until
from tidegate.cli.main import main
from tidegate.config.load import load
from tidegate.model.errors import ConfigError, UriInvalid
from tidegate.model.tso import compose, to_datetime
from tidegate.server.changefeeds import ClientReach
from tidegate.server.client import request_body
from tidegate.server.config import server_config
from tidegate.server.record import FeedId
from tidegate.server.server import Server
from tidegate.source import tikv_capture
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.session import Session
from tidegate_upstream.tikv.peer import TikvPeer


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """A TiDB with a table that has a key, and one that has none."""
    cluster = Cluster.open()
    session = Session(cluster.nodes["n1"])
    for sql in (
        "CREATE TABLE test.a (id INT PRIMARY KEY)",
        "INSERT INTO test.a VALUES (1)",
        "CREATE TABLE test.keyless (v INT)",
    ):
        session.execute(sql)
    return cluster


@pytest.fixture(scope="module")
def peer(cluster: Cluster) -> Iterator[TikvPeer]:
    """Its PD and TiKV."""
    with TikvPeer(cluster.storage).in_thread() as served:
        yield served


class ClusterHome(ServerHome):
    """A directory for a server and its sinks, without a log."""

    def __init__(self, home: Path) -> None:
        self.home = home


@pytest.fixture(scope="module")
def serving(peer: TikvPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Client, Path]]:
    """A server whose upstream is the cluster, a client of it, and a directory for its sinks."""
    home = tmp_path_factory.mktemp("cluster")
    with served(ClusterHome(home), source_uri="", pd=f"http://{peer.pd}") as (server, client):
        yield server, client, home


def body(home: Path, name: str, start_ts: int, **more: object) -> dict[str, object]:
    """A changefeed of the table with a key, into a file of SQLite."""
    rules = {"filter": {"rules": ["test.a"]}}
    sink = f"sqlite://{home}/{name}.db"
    return {"changefeed_id": name, "sink_uri": sink, "start_ts": start_ts, "replica_config": rules, **more}


def rows(home: Path, name: str) -> list[int]:
    """The rows of the table in a file."""
    with closing(sqlite3.connect(home / f"{name}.db")) as database:
        try:
            return [row[0] for row in database.execute('SELECT id FROM "test.a" ORDER BY id')]
        except sqlite3.OperationalError:
            return []


def test_feeds_of_the_servers_cluster(cluster: Cluster, peer: TikvPeer, serving: tuple[Server, Client, Path]) -> None:
    """A changefeed that names no source captures the cluster of `--pd`, as does one that names it by `pd_addrs`; each
    of them has a capture of its own."""
    server, client, home = serving
    start_ts = cluster.storage.oracle.next()
    for name, words in (("one", {}), ("named", {"pd_addrs": [f"http://{peer.pd}"]})):
        made = client.post("/changefeeds", body(home, name, start_ts, **words))
        assert made.status == 200, made.text
        assert server.changefeeds.get(FeedId("default", name)).record.source_uri == f"tikv://{peer.pd}"
    Session(cluster.nodes["n1"]).execute("INSERT INTO test.a VALUES (2), (3)")
    for name in ("one", "named"):
        until(lambda name=name: rows(home, name) == [2, 3], f"rows of {name}")
        until(lambda name=name: client.get(f"/changefeeds/{name}").json.get("upstream_id"), f"the cluster of {name}")
        client.post(f"/changefeeds/{name}/pause")
    listed = client.get("/changefeeds?state=stopped").json["items"]
    assert {item["upstream_id"] for item in listed} == {peer.cluster_id}
    held = {name.rpartition("-")[0] for name in peer.service.barriers}
    assert held >= {"tidegate-one", "tidegate-named"}


def test_tables_of_the_cluster(cluster: Cluster, serving: tuple[Server, Client, Path]) -> None:
    """Tables are looked up in the cluster at the start ts: those without a key are named before the changefeed is
    made."""
    _, client, home = serving
    every = {"filter": {"rules": ["test.*"]}}
    wish = body(home, "every", cluster.storage.oracle.next(), replica_config=every)
    found = client.post("/verify_table", wish).json
    assert [table["table_name"] for table in found["eligible_tables"]] == ["a"]
    assert [table["table_name"] for table in found["ineligible_tables"]] == ["keyless"]
    assert "CDC:ErrTableIneligible" in client.post("/changefeeds", wish).text


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ({"pd_addrs": ["h:2379"], "source_uri": "tidb:///srv/log"}, "ErrAPIInvalidParam", "both name the source"),
        ({"pd_addrs": ["h:port"]}, "ErrAPIInvalidParam", "HOST:PORT"),
        ({"pd_addrs": ["https://h:2379"]}, "ErrAPIInvalidParam", "ca-path"),
        ({"pd_addrs": ["h:2379"], "ca_path": "/etc/shadow"}, "ErrSinkURIInvalid", "/etc/shadow"),
        ({"start_ts": 1}, "ErrStartTsBeforeGC", "GC safe point"),
    ],
)
def test_what_is_refused(
    words: dict[str, Any], code: str, said: str, peer: TikvPeer, serving: tuple[Server, Client, Path]
) -> None:
    """Two sources, a wrong address, a file that clients may not name, and a begin that the cluster has forgotten."""
    _, client, home = serving
    peer.collect_garbage(peer.log.store.safe_point + 2)
    answers = [client.post("/changefeeds", body(home, "refused", 0) | words)]
    answers += [client.post("/tso", words)] if "pd_addrs" in words else []
    for answer in answers:
        assert answer.json["error_code"] == f"CDC:{code}", answer.text
        assert said in answer.json["error_msg"]


@pytest.mark.parametrize("days", [1, -1])
def test_now_is_that_of_pd(tmp_path: Path, days: int) -> None:
    """A changefeed begins, is resumed and is asked whether it is synced, or its start is old, by the clock of its
    cluster, wherever the server's is: rows between the two would be lost, or come twice."""
    cluster = Cluster.open(now_ms=lambda: time.time_ns() // 1_000_000 + days * 86_400_000)
    session, oracle = Session(cluster.nodes["n1"]), cluster.storage.oracle
    session.execute("CREATE TABLE test.a (id INT PRIMARY KEY)")
    session.execute("INSERT INTO test.a VALUES (1)")
    with (
        TikvPeer(cluster.storage).in_thread() as peer,
        served(ClusterHome(tmp_path), source_uri="") as (server, client),
    ):
        before = oracle.next()
        named = {"pd_addrs": [f"http://{peer.pd}"]}
        made = client.post("/changefeeds", body(tmp_path, "now", 0, **named))
        assert made.status == 200, made.text
        assert before < server.changefeeds.get(FeedId("default", "now")).record.start_ts < oracle.next()
        session.execute("INSERT INTO test.a VALUES (2)")
        until(lambda: rows(tmp_path, "now") == [2], "rows")
        told = client.post("/tso", {"changefeed_id": "now"}).json
        now_ts = compose(told["timestamp"], told["logic_time"])
        assert before < now_ts < oracle.next()
        synced = client.get("/changefeeds/now/synced").json["now_ts"]
        assert synced[:10] in {f"{to_datetime(ts):%Y-%m-%d}" for ts in (now_ts, oracle.next())}
        assert client.post("/changefeeds/now/pause").status == 200
        for ts, said in ((now_ts, "stores the checkpoint"), (oracle.next() + compose(3_600_000), "in the future")):
            assert said in client.post("/changefeeds/now/resume", {"overwrite_checkpoint_ts": ts}).text
        assert "larger than current tso" in client.post("/changefeeds", body(tmp_path, "f", ts, **named)).text
        for hours, asks in ((25, True), (23, False)):
            words = f"cli changefeed create --server http://{client.address} --upstream-pd {peer.pd} --sink-uri x://"
            start_ts = oracle.next() - compose(hours * 3_600_000)
            made = CliRunner().invoke(main, [*words.split(), "--start-ts", str(start_ts)], input="n\n")
            assert ("[Y/N]" in made.stdout, made.exit_code) == (asks, 1), made.output


def test_the_time_of_the_servers_cluster(cluster: Cluster, serving: tuple[Server, Client, Path]) -> None:
    """Without a changefeed, PD of the server's own upstream is asked."""
    before = cluster.storage.oracle.next()
    told = serving[1].post("/tso", {}).json
    assert before < compose(told["timestamp"], told["logic_time"]) < cluster.storage.oracle.next()


def test_the_time_of_a_cluster_that_is_away(
    serving: tuple[Server, Client, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that needs PD's time waits for it some seconds, and its error names the PD."""
    monkeypatch.setattr(tikv_capture, "PATIENCE_S", 0.5)
    answer = serving[1].post("/tso", {"pd_addrs": ["127.0.0.1:1"]})
    assert answer.json["error_code"] == "CDC:ErrGRPCDialFailed", answer.text
    assert "within 0.5 s" in answer.json["error_msg"]
    assert "127.0.0.1:1" in answer.json["error_msg"]


def test_a_removed_load_holds_nothing(peer: TikvPeer, serving: tuple[Server, Client, Path]) -> None:
    """A changefeed that is removed amid its load lets garbage collection go on."""
    _, client, home = serving
    hour, before = datetime.now(UTC).hour, set(peer.service.barriers)
    later = f"{(hour + 2) % 24}-{(hour + 3) % 24}"  # until then the load holds S, and reads nothing
    source = {"load_from": f"tikv://{peer.pd}?load-hours={later}"}
    wish = body(home, "amid", 0, replica_config={"filter": {"rules": ["test.a"]}, "source": source})
    assert client.post("/changefeeds", wish).status == 200
    until(lambda: any("load" in name for name in set(peer.service.barriers) - before), "the hold of the load")
    assert client.delete("/changefeeds/amid").status == 200
    assert set(peer.service.barriers) <= before


def test_the_upstream_of_a_server(tmp_path: Path) -> None:
    """`--pd` is a source: with https:// PD is shown the server's own certificate, which clients may name there and
    nowhere else."""
    for name in ("ca", "server"):
        make_certificate(tmp_path, name, None if name == "ca" else "ca")
    file = tmp_path / "server.toml"
    pems = {"ca-path": "ca.crt", "cert-path": "server.crt", "key-path": "server.key"}
    security = "".join(f'{name} = "{tmp_path / path}"\n' for name, path in pems.items())
    file.write_text(f'pd = "https://pd1:2379,https://pd2"\n[security]\n{security}')
    config = server_config(file, data_dir=str(tmp_path / "data"))
    assert config.source_uri.startswith("tikv://pd1:2379,pd2:2379?ca-path=")
    assert server_config(file, data_dir=str(tmp_path), pd="http://pd").source_uri == "tikv://pd:2379"
    with pytest.raises(ConfigError, match="pd and source-uri both name the upstream"):
        server_config(file, data_dir=str(tmp_path), source_uri="tidb:///srv/log")

    reach, sink = ClientReach(config), f"sqlite://{tmp_path}/data/a.db"
    reach.admitted(lambda: load(source_uri=config.source_uri, sink_uri=sink, state_dir=tmp_path / "data"))
    stolen = "mysql://h/?" + "&".join(f"ssl-{kind}={tmp_path}/server.{kind}" for kind in ("key", "cert"))
    with pytest.raises(UriInvalid, match=r"server\.key"):
        reach.admitted(lambda: load(source_uri=config.source_uri, sink_uri=stolen))


def test_the_upstream_of_a_command() -> None:
    """TiCDC's hidden flags name the source of one changefeed."""
    nothing = {"source_uri": "", "config": None, "target_ts": 0, "schema_registry": "", "sink_uri": "sqlite:///a.db"}
    flags = nothing | {"upstream_pd": "https://pd1:2379,pd2", "upstream_ca": "ca.pem"}
    rest = {"upstream_cert": "", "upstream_key": ""}
    assert request_body(**flags, **rest)[0]["source_uri"] == "tikv://pd1:2379,pd2:2379?ca-path=ca.pem"
    with pytest.raises(ConfigError, match="both name the source"):
        request_body(**{**flags, "source_uri": "tidb:///log"}, **rest)
