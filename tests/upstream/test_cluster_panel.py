"""The panel of an upstream: DDLs with the states of its nodes, sessions, change log and changefeeds."""

import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import pymysql
import pytest

from tests.terminal import terminal
from tidegate.engine.panel import RunningDdl
from tidegate.model.tso import compose, physical_ms
from tidegate.source.tidb_segment import put_safe_point
from tidegate_upstream.cluster_panel import ClusterPanel, DdlStates
from tidegate_upstream.demo.upstream import WatchedCluster
from tidegate_upstream.serve import UpstreamLog
from tidegate_upstream.tidb.engine import MemoryEngine
from tidegate_upstream.tidb.listener import Upstream
from tidegate_upstream.tidb.session import Session

ORDER = ("none", "delete only", "write only", "write reorganization", "public")


def test_the_states_of_a_ddl_in_flight() -> None:
    """Each node is in the newest state or in the one before it, whenever somebody looks; then the DDL is done."""
    cluster = WatchedCluster(MemoryEngine(), nodes=("n1", "n2", "n3"))
    session, ddls, seen = Session(cluster.nodes["n1"]), DdlStates(cluster), list[RunningDdl]()
    session.execute("CREATE DATABASE s")
    session.execute("CREATE TABLE s.t (id INT PRIMARY KEY, v INT)")
    cluster.moved = lambda _: seen.extend([*ddls.running(0), *ddls.running(physical_ms(cluster.storage.oracle.next()))])
    session.execute("ALTER TABLE s.t ADD INDEX v (v)")

    assert {ddl.name for ddl in seen} == {"add index s.t"}
    assert all(0.0 <= ddl.seconds < 60.0 for ddl in seen)
    steps = [sorted({ORDER.index(state) for state in ddl.states}) for ddl in seen]
    assert all(len(step) == 1 or step[1] == step[0] + 1 for step in steps)
    assert {place for step in steps for place in step} == {*range(len(ORDER))}
    assert any(len(step) == 2 for step in steps)
    assert all(before[0] <= after[0] for before, after in pairwise(steps))
    assert not ddls.running(0)
    assert [ddl.name for ddl in ddls.done()] == ["add index s.t", "create table s.t", "create schema s"]
    assert ddls.nodes == ("n1", "n2", "n3")


def test_an_upstream(tmp_path: Path) -> None:
    """It has its sessions, and the lags of the change log and of each changefeed behind it."""
    with Upstream(WatchedCluster(MemoryEngine(), nodes=("n1", "n2"))) as upstream:
        log = UpstreamLog(upstream.cluster, tmp_path / "log", in_memory=True).start()
        panel = ClusterPanel(upstream, str(tmp_path / "log"), ["mysql -h here"])
        with pymysql.connect(host="127.0.0.1", port=upstream.ports["n2"], user="root"):
            assert panel.panel().stages[0][:3] == ("SQL", 1, "sessions")
        log.stop()
        now_ms = time.time_ns() // 1_000_000
        put_safe_point(tmp_path / "log", "feed", compose(now_ms - 60_000), now_ms)
        shown = panel.panel()
    assert [stage.name for stage in shown.stages] == ["SQL", f"→ {tmp_path}/log", "→ feed"]
    assert shown.stages[1].lag_ms is not None
    assert 60_000 <= (shown.stages[2].lag_ms or 0) < 120_000
    assert shown.notes == ("mysql -h here",)
    assert shown.nodes == ("n1", "n2")


@pytest.mark.slow
def test_upstream_start_on_a_terminal() -> None:
    """In the foreground it is a panel of the terminal's size, which stays as it was when it is stopped."""
    command = ("-m", "tidegate", "upstream", "start", "--port", "0", "--nodes", "2", "--foreground")
    with terminal(90, 20, *command) as shown:
        lines = shown.frame("mysql -h 127.0.0.1 -P", 90)
        assert len(lines) == 20
        assert lines[0].startswith("upstream · 2 nodes")
        os.kill(shown.program.pid, signal.SIGTERM)
        while shown.read():
            pass
        assert "upstream · 2 nodes" in shown.text.rpartition("\x1b[?1049l")[2]
        assert shown.program.wait(60) == 0
