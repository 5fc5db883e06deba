"""Servers as processes: one is killed, one is paused and wakes, Spark's JVM dies, and changefeeds go on."""

import http.client
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

import tidegate
from tests.s3 import BUCKET, environment
from tests.s3 import serving as s3_server
from tests.server.kit import ServerHome, until
from tidegate.cli.main import main
from tidegate.codec.columnar.rows import Batch
from tidegate.engine.ports import LocalTasks
from tidegate.lakes.lake import Lake
from tidegate.model.event import Ddl

pytestmark = pytest.mark.slow

TTL_S = 2
WAIT_S = 90.0


class ServerProcess:
    """`tidegate server` of a place."""

    def __init__(self, place: ServerHome, data: str = "", **environment: str) -> None:
        words = ["server", "--addr", "127.0.0.1:0", "--json", "--data-dir", data or str(place.home / "data")]
        words += ["--source-uri", f"tidb://{place.home / 'log'}", "--config", str(_file(place))]
        words += ["--allow-path", str(place.home)]
        self.log = (place.home / f"server-{len(list(place.home.glob('server-*')))}.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tidegate", *words],
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=os.environ | environment,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, Path(self.log.name).read_text()
        self.told: dict[str, Any] = json.loads(line)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The status and the answer of a request."""
        host = self.told["uri"].removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=30)
        sent = None if body is None else json.dumps(body)
        token = self.told["page"].partition("#token=")[2]
        connection.request(method, f"/api/v2{path}", sent, {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")

    def feed(self, name: str) -> dict[str, Any]:
        """A changefeed, or nothing while nobody answers for it."""
        try:
            status, told = self.ask("GET", f"/changefeeds/{name}")
        except OSError:
            return {}
        return told if status == 200 else {}

    def owns(self) -> bool:
        """Whether it says that it owns."""
        try:
            return bool(self.ask("GET", "/status")[1].get("is_owner"))
        except OSError:
            return False

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.process.pid, number)


def _file(place: ServerHome) -> Path:
    path = place.home / "server.toml"
    path.write_text(f'capture-session-ttl = {TTL_S}\ncallback-modules = ["tests.e2e.collected"]\n')
    return path


@contextmanager
def serving(place: ServerHome, data: str = "", **environment: str) -> Iterator[ServerProcess]:
    """A server until the end of the block."""
    server = ServerProcess(place, data, **environment)
    try:
        yield server
    finally:
        with suppress(psutil.Error, ProcessLookupError):
            children = psutil.Process(server.process.pid).children(recursive=True)
            server.signal(signal.SIGCONT)
            server.process.kill()
            for child in children:
                child.kill()
        server.process.wait(20)
        server.log.close()


def made(server: ServerProcess, place: ServerHome, name: str, sink: str) -> None:
    """A changefeed from the begin of the log."""
    status, told = server.ask("POST", "/changefeeds", {"changefeed_id": name, "sink_uri": sink, "start_ts": 1})
    assert status == 200, told


def reached(server: ServerProcess, name: str, ts: int) -> None:
    """Wait until a changefeed is so far."""
    until(lambda: server.feed(name).get("checkpoint_ts", 0) >= ts, f"{name}: {server.feed(name)}", WAIT_S)


def complete(place: ServerHome, name: str) -> None:
    """What a sink was given, repeats left out, is what another changefeed of the same log gives."""
    whole = place.home / "sinks" / "whole"
    uri = f"callback://tests.e2e.collected/into?home={whole}"
    feed = tidegate.Changefeed(
        f"tidb://{place.home / 'log'}", uri, name="whole", state_dir=place.home / "own", start_ts=1
    )
    feed.run(idle_s=0, tasks=LocalTasks())
    assert _contents(place.home / "sinks" / name) == _contents(whole)


def _contents(home: Path) -> set[tuple[object, ...]]:
    """Every row change and DDL."""
    found: set[tuple[object, ...]] = set()
    for path in home.glob("[0-9]*"):
        match pickle.loads(path.read_bytes()):
            case Batch() as batch:
                for name in ("commit_ts", "before", "after"):
                    found |= {(batch.table, name, str(value)) for value in getattr(batch, name).to_pylist()}
            case Ddl() as ddl:
                found.add((ddl.commit_ts, ddl.query))
    return found


@pytest.fixture(params=["directory", pytest.param("store", marks=pytest.mark.soak)])
def data(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where two servers keep what they share: a directory, or a prefix of a real S3 server."""
    if request.param == "directory":
        yield str(tmp_path / "data")
        return
    with s3_server(BUCKET) as port:
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)
        yield f"s3://{BUCKET}/{tmp_path.name}"


def test_a_killed_owner_is_followed(tmp_path: Path, data: str) -> None:
    """Of two servers the one that does not own answers all the same; when the owner is killed it goes on where that
    one was, and nothing is lost."""
    place = ServerHome(tmp_path)
    with serving(place, data) as one, serving(place, data) as two:
        until(one.owns, wait_s=WAIT_S)
        made(two, place, "one", place.sink("one"))
        reached(two, "one", place.work())
        one.signal(signal.SIGKILL)
        end = place.work()
        until(two.owns, wait_s=WAIT_S)
        reached(two, "one", end)

        assert two.feed("one")["state"] == "normal"
        two.signal(signal.SIGTERM)
        assert two.process.wait(30) == 0
    complete(place, "one")


@pytest.mark.more
def test_a_paused_owner_writes_nothing(tmp_path: Path) -> None:
    """An owner that is stopped and wakes when another has taken over finds itself out, and answers for that one."""
    place = ServerHome(tmp_path)
    with serving(place) as one, serving(place) as two:
        until(one.owns, wait_s=WAIT_S)
        lake = f"delta://{tmp_path / 'lake'}"
        made(one, place, "one", lake)
        reached(one, "one", place.work())
        one.signal(signal.SIGSTOP)
        until(two.owns, wait_s=WAIT_S)
        reached(two, "one", place.work())
        one.signal(signal.SIGCONT)
        until(lambda: not one.owns(), wait_s=WAIT_S)
        end = place.work()
        reached(two, "one", end)

        assert one.feed("one")["checkpoint_ts"] >= end
        assert two.feed("one")["state"] == "normal"
    assert Lake(str(tmp_path / "lake")).checkpoint_ts >= end


@pytest.mark.more
def test_another_jvm_is_started(tmp_path: Path) -> None:
    """When Spark's JVM is killed another is started, and all changefeeds go on; their user pauses one."""
    place = ServerHome(tmp_path)
    with serving(place) as server:
        until(server.owns, wait_s=WAIT_S)
        for name in ("one", "two"):
            made(server, place, name, f"delta://{tmp_path / name}")
        end = place.work()
        for name in ("one", "two"):
            reached(server, name, end)
        [java] = [child for child in psutil.Process(server.process.pid).children() if "java" in child.name()]
        java.kill()
        end = place.work()
        for name in ("one", "two"):
            reached(server, name, end)
            assert server.feed(name)["state"] == "normal"
        again = [child for child in psutil.Process(server.process.pid).children() if "java" in child.name()]
        paused = CliRunner().invoke(main, ["cli", "changefeed", "pause", "-c", "two", "--server", server.told["uri"]])
        assert paused.exit_code == 0, paused.output  # it found the token that the server keeps

    assert [child.pid for child in again] != [java.pid]


VERBS = {
    "server/create": ("create", None),
    "server/created": ("create", "normal"),
    "server/pause": ("pause", "normal"),
    "server/resume": ("resume", "stopped"),
    "server/remove": ("remove", "normal"),
    "server/forgot-checkpoint": ("remove", None),
}
"""Where a server is killed amid which verb, and what its changefeed is for the next one; None: there is none."""


@pytest.mark.soak
@pytest.mark.parametrize("where", VERBS)
def test_killed_amid_a_verb(tmp_path: Path, where: str) -> None:
    """A server that is killed amid a verb leaves a changefeed as it was before or will be after; nothing is lost, and
    it runs once."""
    place, (verb, left) = ServerHome(tmp_path), VERBS[where]
    with serving(place, TIDEGATE_FAILPOINTS=f"{where}=kill") as server:
        until(server.owns, wait_s=WAIT_S)
        with suppress(OSError, http.client.HTTPException):
            made(server, place, "one", place.sink("one"))
            if verb == "resume":
                server.ask("POST", "/changefeeds/one/pause")
            method, path = ("DELETE", "") if verb == "remove" else ("POST", f"/{verb}")
            server.ask(method, f"/changefeeds/one{path}", {})
        assert server.process.wait(WAIT_S) == -signal.SIGKILL
    with serving(place) as again:
        until(again.owns, wait_s=WAIT_S)
        end, found = place.work(), again.ask("GET", "/changefeeds?state=all")[1]["items"]
        assert [feed["state"] for feed in found] == ([left] if left else [])
        if left == "stopped":
            again.ask("POST", "/changefeeds/one/resume", {})
        if left:
            reached(again, "one", end)
            complete(place, "one")
