"""The doctor of a cluster: what it says of one that is fine, and of each that is not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.upstream.worlds import World
from tidegate.cli import doctor_cluster
from tidegate.cli.doctor import doctor
from tidegate.cli.main import main
from tidegate.kv.keys import IntHandle, record_key
from tidegate.model.tso import compose, physical_ms
from tidegate.tikv.pd import PdClient
from tidegate.tikv.stubs import metapb_pb2 as metapb
from tidegate.tikv.stubs import pdpb_pb2 as pdpb
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.session import Session
from tidegate_upstream.tidb.transaction import Options, Stage, Storage
from tidegate_upstream.tikv import pd_service
from tidegate_upstream.tikv.pd_service import PdService
from tidegate_upstream.tikv.peer import TikvPeer


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[TikvPeer]:
    """A cluster of two stores; its PD reports a resolved ts of 1 s ago."""
    monkeypatch.setattr(doctor_cluster, "PATIENCE_S", 0.5)
    world = World()

    async def report(_: PdClient, name: str) -> dict[str, Any]:
        assert name == "min-resolved-ts"
        return {"min_resolved_ts": compose(physical_ms(world.oracle.next()) - 1000)}

    monkeypatch.setattr(PdClient, "report", report)
    monkeypatch.setattr(doctor_cluster.time, "time_ns", lambda: world.clock.ms * 1_000_000)
    with TikvPeer(world.storage, stores=2).in_thread() as served:
        yield served


def found(ran: Result) -> dict[str, tuple[str, str]]:
    """State and text of each check."""
    assert ran.stdout, ran.exception
    findings = json.loads(ran.stdout)
    assert all(finding["remedy"] for finding in findings if finding["state"] != "ok")
    assert ran.exit_code == any(finding["state"] == "fail" for finding in findings)
    return {finding["check"]: (finding["state"], finding["text"]) for finding in findings}


def examined(pd: str, *words: str) -> dict[str, tuple[str, str]]:
    return examined_by("--pd", pd, *words)


def examined_by(*words: str) -> dict[str, tuple[str, str]]:
    return found(CliRunner().invoke(doctor, ["--json", *words]))


def test_a_cluster_that_is_fine(peer: TikvPeer) -> None:
    """Versions, streams of changes, the safe point and who holds it, regions, the lag of the resolved ts, and the clock
    of a cluster where all is well; lines say the same."""
    peer.log.split(b"m")
    peer.service.barriers["ticdc-default"] = (compose(1_577_934_000_000), 1e12)
    seen = examined(peer.pd)
    assert {state for state, _ in seen.values()} == {"ok"}
    assert seen["version PD"] == ("ok", "8.5.4, recorded")
    for address in peer.service.stores:
        assert seen[f"version TiKV {address}"] == ("ok", "8.5.4, recorded")
        assert seen[f"changes {address}"] == ("ok", "EventFeedV2 with stream-multiplexing")
    assert "2020-01-02" in seen["gc held by ticdc-default"][1]
    assert seen["regions"][1] == "2, each with a leader"
    assert "1.0 s behind" in seen["resolved ts"][1]
    lines = CliRunner().invoke(doctor, ["--pd", peer.pd])
    assert lines.stdout.count("\n") == len(seen)


def test_what_is_wrong_is_told(peer: TikvPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused version, a store that is down, a down peer, a resolved ts and a clock that are far off are findings,
    each with what to do."""
    old = metapb.Store(id=1, address=peer.service.stores[0], version="6.5.0")
    monkeypatch.setattr(PdService, "_store", lambda *_: old)
    region = pdpb.Region(
        region=metapb.Region(id=7, peers=[metapb.Peer(id=8)]),
        leader=metapb.Peer(id=8),
        down_peers=[pdpb.PeerStats(peer=metapb.Peer(id=9))],
    )
    monkeypatch.setattr(PdService, "_within", lambda *_: [region])

    async def report(_: PdClient, name: str) -> dict[str, Any]:
        return {"min_resolved_ts": compose(1_000)}

    monkeypatch.setattr(PdClient, "report", report)
    monkeypatch.setattr(doctor_cluster.time, "time_ns", lambda: 0)
    peer.call(peer.stop_store(1))
    seen = examined(peer.pd)
    assert seen[f"version TiKV {old.address}"] == ("fail", "6.5.0, not accepted")
    assert seen[f"changes {old.address}"][0] == "fail"
    assert seen["regions"] == ("warn", "1, each with a leader; peers are down of 1, such as region 7")
    assert seen["resolved ts"][0] == "warn"
    assert seen["clock"][0] == "warn"


def test_regions_that_lag_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A region that a transaction holds back is named with its store, the table of the key, and the lag; locks on index
    entries, which no feed reads, are not; nor is anything changed. A region without an answer is named, too."""
    monkeypatch.setattr(doctor_cluster, "LAG_MAX_MS", 0)
    cluster = Cluster.open()
    with TikvPeer(cluster.storage, stores=2).in_thread() as peer:
        Session(cluster.nodes["n1"]).execute("CREATE TABLE test.held (id INT PRIMARY KEY, KEY (id))")
        tables = cluster.nodes["n1"].schema.tables
        (table_id,) = [table.stored.id for table in tables.values() if table.stored.name.original == "held"]
        txn = Storage(cluster.storage.store, cluster.storage.oracle, Options(one_phase=False)).begin()
        row = record_key(table_id, IntHandle(1))
        txn.put(row.replace(b"_r", b"_i"), b"")
        txn.put(row, b"v")
        peer.log.split(row)
        (region,) = [region for region in peer.log.regions if region.start == row]
        next(stage for stage in txn.steps() if stage is Stage.PREWRITTEN)
        seen = examined(peer.pd)
        held = {name: found for name, found in seen.items() if name.startswith("region ")}
        ((name, (state, text)),) = held.items()
        assert (name.rpartition(" at store ")[0], state) == (f"region {region.id}", "warn")
        assert f"has locked key {row.hex()} of table test.held" in text
        assert seen["locks"] == ("ok", "looked at 2 of 2 regions: 1 lag, 0 give no answer")
        peer.call(peer.stop_store(1))
        peer.call(peer.stop_store(2))
        seen = examined(peer.pd)
        assert seen["locks"][1] == "looked at 2 of 2 regions: 0 lag, 2 give no answer"
        assert seen[f"region {region.id}"][0] == "warn"
        assert "UNAVAILABLE" in seen[f"region {region.id}"][1]


def test_a_pd_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without members there is one finding alone, which names the address and the way out."""
    monkeypatch.setattr(doctor_cluster, "PATIENCE_S", 0.2)
    seen = examined("127.0.0.1:1")
    assert list(seen) == ["members"]
    assert "host-mapping" in seen["members"][1]


def test_addresses_are_checked() -> None:
    """What is no address is refused before anything is asked."""
    ran = CliRunner().invoke(main, ["doctor", "--pd", "pd:port"])
    assert ran.exit_code == 1
    assert "HOST:PORT" in ran.stderr


def test_the_cluster_of_a_changefeed(peer: TikvPeer, tmp_path: Path) -> None:
    """A source's address, or the file of a changefeed, is checked as `--pd` is, its host-mapping among it."""
    stores = list(peer.service.stores)
    peer.service.stores = ["tikv-0.peer:20160", stores[1]]
    mapping = f"host-mapping=tikv-0.peer:20160:{stores[0]}"
    seen = examined_by("--source-uri", f"tikv://{peer.pd}?{mapping}")
    assert seen["changes tikv-0.peer:20160"] == ("ok", "EventFeedV2 with stream-multiplexing")
    file = tmp_path / "feed.toml"
    file.write_text(f'[source]\nuri = "tikv://{peer.pd}"\n')
    unreached = examined_by("--config", str(file))
    assert unreached["changes tikv-0.peer:20160"][0] == "fail"
    assert unreached["changes " + stores[1]][0] == "ok"
    findings = json.loads(CliRunner().invoke(doctor, ["--json", "--config", str(file)]).stdout)
    assert "set host-mapping=tikv-0.peer:HOST" in str(findings)


def test_another_source_is_no_cluster(tmp_path: Path) -> None:
    """What is not captured from a cluster is refused by its scheme, and without its password."""
    file = tmp_path / "feed.toml"
    file.write_text('[source]\nuri = "kafka://h:9092/t"\n')
    for words, said in (
        (["--config", str(file)], "kafka://h:9092/t"),
        (["--source-uri", "mysql://u:s3cret@h/"], "mysql://u:xxxxx@h/"),
    ):
        ran = CliRunner().invoke(main, ["doctor", *words])
        assert ran.exit_code == 1
        assert said in ran.stderr
        assert "s3cret" not in ran.stderr


def test_what_older_versions_do_otherwise_is_told(peer: TikvPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of which only the sources were read says so, with what it does otherwise."""
    stores = peer.service.stores
    monkeypatch.setattr(
        PdService, "_store", lambda _, number: metapb.Store(id=number, address=stores[number - 1], version="8.1.2")
    )
    monkeypatch.setattr(pd_service, "VERSION", "7.5.4")
    ran = CliRunner().invoke(doctor, ["--pd", peer.pd])
    assert ran.exit_code == 0
    assert "8.1.2, read in its sources, not recorded" in ran.stdout
    assert "as read: no BatchScanRegions" in ran.stdout
    assert "as read: arguments of DDL jobs are lists" in ran.stdout
    assert "TiKV 8.1.2" in ran.stdout
