"""Two servers of one object store under faults: no changefeed is lost, none runs twice, and the sinks are equal."""

import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.test_delta import stored
from tests.engine.test_chain import TABLES
from tests.s3 import BUCKET, environment, serving
from tests.s3_proxy import Request, running
from tests.server.http_kit import Client
from tests.server.kit import ServerHome, until
from tidegate.lakes.lake import Lake

pytestmark = pytest.mark.slow

TTL_S = 4.0
WAIT_S = 180.0
DISK = "512m"
Fault = Callable[["Machine"], AbstractContextManager[None]]
PROGRAM = "import sys; from tests.server.faulty_server import main; main(*sys.argv[1:])"
FEEDS = {
    "noted": "callback://tests.server.faulty_server/noted?home={home}&feed=noted",
    "file": "sqlite://{home}/sinks/file.db",
    "lake": "delta://{home}/sinks/lake",
}


class Machine:
    """A server in a process of its own, started again when it ends, with a way to the store that can be cut."""

    def __init__(self, stack: ExitStack, place: ServerHome, name: str, store: int, host: str) -> None:
        self.place, self.control, self.host = place, place.home / name, host
        self.control.mkdir()
        self.is_cut = False
        self.port, _ = stack.enter_context(running(store, self._spoil))
        self.address = f"127.0.0.1:{free_port()}"
        self._is_over = False
        self._process: subprocess.Popen[bytes] | None = None
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)
        self._supervisor.start()
        stack.callback(self.end)

    def _spoil(self, _: Request) -> str | None:
        return "cut" if self.is_cut else None

    def _supervise(self) -> None:
        words = [self.place.home, self.address, f"s3://{BUCKET}/servers", self.control, self.host]
        while not self._is_over:
            with (self.control / "output").open("ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, *map(str, words)],
                    env=os.environ | environment(self.port),
                    stdout=output,
                    stderr=output,
                )
            self._process.wait()
            time.sleep(0.5)

    def signal(self, number: int) -> None:
        """Send a signal."""
        if self._process is not None:
            self._process.send_signal(number)

    def kill_jvms(self) -> None:
        """Kill the JVM that its Spark has, if there is one."""
        if self._process is not None:
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(self._process.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        if child.name() == "java":
                            child.kill()

    def end(self) -> None:
        """End it for good."""
        self._is_over = True
        self.signal(signal.SIGKILL)
        self._supervisor.join()


def free_port() -> int:
    """A port that no connection of this machine is given by chance while its server is away."""
    while True:
        with suppress(OSError), socket.create_server(("127.0.0.1", random.randrange(15_000, 30_000))) as listener:
            return int(listener.getsockname()[1])


@contextmanager
def killed(machine: Machine) -> Iterator[None]:
    """It dies."""
    machine.signal(signal.SIGKILL)
    yield


@contextmanager
def stopped(machine: Machine) -> Iterator[None]:
    """It stands still."""
    machine.signal(signal.SIGSTOP)
    yield
    machine.signal(signal.SIGCONT)


@contextmanager
def cut(machine: Machine) -> Iterator[None]:
    """The store does not answer it."""
    machine.is_cut = True
    yield
    machine.is_cut = False


@contextmanager
def full(machine: Machine) -> Iterator[None]:
    """Its disk is full: nothing can be opened for writing."""
    (machine.control / "full").touch()
    yield
    (machine.control / "full").unlink()


@contextmanager
def filled(machine: Machine) -> Iterator[None]:
    """The file system of the sinks has no byte left, in whatever language they write."""
    filler = machine.place.home / "sinks" / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    yield
    filler.unlink()


@contextmanager
def without_jvm(machine: Machine) -> Iterator[None]:
    """The JVM of its Spark dies."""
    machine.kill_jvms()
    yield


@contextmanager
def stepped(machine: Machine, hours: int = 1) -> Iterator[None]:
    """Its clock goes forward, then back, an hour each."""
    clock = machine.control / "clock"
    clock.write_text(str(3600 * hours))
    yield
    clock.write_text(str(-3600 * hours))


FAULTS = (killed, stopped, cut, full, stepped)


@contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    """A directory with a file system of its own, which takes the rights of an administrator."""
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tidegate", str(directory)]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("no rights to mount a small file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def test_two_servers_under_faults(tmp_path: Path) -> None:
    """Whatever befalls the one server or the other, all changefeeds go on once it is over."""
    (tmp_path / "sinks").mkdir()
    go_through(tmp_path, FAULTS, "here", 40)


@pytest.mark.soak
@pytest.mark.parametrize("seconds", [60, 7200])
def test_two_servers_with_spark_under_faults(tmp_path: Path, seconds: float) -> None:
    """The same with Spark, whose JVM dies, and with sinks whose disk is filled to the last byte."""
    (tmp_path / "sinks").mkdir()
    with small_disk(tmp_path / "sinks"):
        go_through(tmp_path, (*FAULTS, without_jvm, filled), "spark", seconds)


def go_through(home: Path, faults: Sequence[Fault], host: str, seconds: float) -> None:
    """Let faults befall two servers in turns, and compare what the sinks have in the end."""
    place, chance, counts = ServerHome(home), random.Random(45), Counter[str]()
    pause_s = 0.2 if host == "here" else 1.0  # a round with a DDL takes Spark some seconds beside other work
    with ExitStack() as stack:
        store = stack.enter_context(serving(BUCKET))
        machines = [Machine(stack, place, name, store, host) for name in ("one", "two")]
        client = Client(machines[0].address)
        until(lambda: feeds(client) is not None, wait_s=WAIT_S)
        for name, sink in FEEDS.items():
            body = {"changefeed_id": name, "sink_uri": sink.format(home=home), "start_ts": 1}
            made = client.post("/changefeeds", body)
            assert made.status == 200, made.text

        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            for fault in faults:
                counts[fault.__name__] += 1
                with fault(chance.choice(machines)):
                    work(place, chance.uniform(0.3, 1.7) * TTL_S, pause_s)
                work(place, chance.uniform(0, 1.5) * TTL_S, pause_s)
                failed = [feed for feed in feeds(client) or () if feed["state"] == "failed"]
                assert not failed, failed
            ts, calm_s = place.work(), time.monotonic()
            until(
                lambda ts=ts: all(at(client, name) >= ts for name in FEEDS),
                lambda: client.get("/changefeeds").text,
                WAIT_S,
                pause_s=0.5,
            )
            with (home / "progress").open("a") as file:
                file.write(
                    f"{end_s - calm_s:.0f} s left, caught up in {time.monotonic() - calm_s:.0f} s: {dict(counts)}\n"
                )
        assert {feed["id"]: feed["state"] for feed in feeds(client) or ()} == dict.fromkeys(FEEDS, "normal")
    rows = {name: place.upstream.rows(name) for name in TABLES}
    lake = Lake(str(home / "sinks" / "lake"))
    assert {name: stored(lake, name) for name in TABLES} == rows
    assert in_file(home / "sinks" / "file.db") == {name: set(rows[name]) for name in TABLES}
    assert returns(home / "journal") <= counts["stopped"]


def work(place: ServerHome, seconds: float, pause_s: float) -> None:
    """Let the upstream work for a while."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        place.work(1)
        time.sleep(pause_s)


def feeds(client: Client) -> list[dict[str, Any]] | None:
    """The changefeeds; None while no server answers for the owner."""
    try:
        answer = client.get("/changefeeds")
    except OSError:
        return None
    return list(answer.json["items"]) if answer.status == 200 else None


def at(client: Client, name: str) -> int:
    """The checkpoint of a changefeed; 0 while nobody tells."""
    try:
        answer = client.get(f"/changefeeds/{name}/status")
    except OSError:
        return 0
    return int(answer.json["checkpoint_ts"]) if answer.status == 200 else 0


def in_file(file: Path) -> dict[str, set[object]]:
    """The keys of each table in a file of SQLite."""
    with closing(sqlite3.connect(file)) as connection:
        return {name: {key for (key,) in connection.execute(f'SELECT id FROM "test.{name}"')} for name in TABLES}


def returns(journal: Path) -> int:
    """How often a call was of an older epoch than one before it: of a server that stood still in the call."""
    newest = late = 0
    for line in journal.read_text().splitlines():
        epoch = int(line.split()[1])
        late += epoch < newest
        newest = max(newest, epoch)
    return late
