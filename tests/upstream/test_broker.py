"""The broker of our own: one real Kafka started, used, found again, stopped; and what a dead or foreign one leaves."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.model.errors import EnvironmentFault
from tidegate_upstream import background
from tidegate_upstream import broker as brokers
from tidegate_upstream.broker import Broker, running_broker, start_broker, status, stop_broker
from tidegate_upstream.cli.broker import broker as command


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of this test's own for the notes about brokers; the jars stay where they are."""
    place = tmp_path / "notes"
    place.mkdir()
    monkeypatch.setattr(background, "cache_dir", lambda *_parts: place)
    return place


@pytest.fixture
def impostor(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is no broker but has the pid that a note names."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def note(one: Broker) -> None:
    fields = {"bootstrap": one.bootstrap, "pid": one.pid, "dir": str(one.dir), "temporary": one.temporary}
    brokers.BROKERS.note(one.dir).write_text(json.dumps(fields))


def test_a_stranger_is_never_stopped(notes: Path, tmp_path: Path, impostor: subprocess.Popen[bytes]) -> None:
    """A pid that now belongs to another program is left alone, and its note is dropped."""
    stale = Broker("127.0.0.1:1", impostor.pid, tmp_path / "data", temporary=False)
    note(stale)

    assert status() == ()
    stop_broker(stale)
    assert impostor.poll() is None
    assert list(notes.iterdir()) == []


def test_a_process_between_fork_and_exec_is_alive(notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker whose command line cannot be seen for a moment is not taken for dead."""
    words = [str(tmp_path / "server.properties")]
    one = Broker("127.0.0.1:1", os.getpid(), tmp_path, temporary=False)
    note(one)
    answers = [[], [], words]
    monkeypatch.setattr("psutil.Process.cmdline", lambda _self: answers.pop(0))

    assert status() == (one,)


def test_a_dead_temporary_broker_is_cleared_away(notes: Path, tmp_path: Path) -> None:
    """What a killed temporary broker left is removed when it is noticed; a directory of the user's never is."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    ours, theirs = tmp_path / "tidegate-broker-x", tmp_path / "precious"
    for home in (ours, theirs):
        home.mkdir()
        note(Broker("127.0.0.1:1", dead.pid, home, temporary=True))

    assert status() == ()
    assert not ours.exists()
    assert theirs.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"dir": 1}', '{"dir": "/x", "pid": 1}'])
def test_a_broken_note_is_no_broker(notes: Path, text: str) -> None:
    """A note that cannot be read stands for no broker and disturbs nobody."""
    (notes / "broken.json").write_text(text)

    assert status() == ()


def test_a_taken_port_is_told_before_anything_starts(notes: Path, tmp_path: Path) -> None:
    """A port that somebody listens on is refused by number."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(EnvironmentFault, match=f"port {port} cannot be bound"):
            brokers._free_ports(port)


def test_free_ports_are_two() -> None:
    """Broker and controller never get the same port."""
    first, second = brokers._free_ports(0)

    assert first != second


@pytest.mark.parametrize("first", range(256))
def test_a_cluster_id_is_no_option(first: int) -> None:
    """Whatever chance gives, the id has Kafka's 22 characters and does not look like an option of its tool."""
    cluster = brokers._cluster_id(bytes([first]) + b"\xff" * 15)

    assert len(cluster) == 22
    assert not cluster.startswith("-")


def test_stop_without_a_broker(notes: Path) -> None:
    """Stopping what does not run is an error that says where to look; `--all` of none is done already."""
    one = CliRunner().invoke(command, ["stop"])
    every = CliRunner().invoke(command, ["stop", "--all", "--json"])

    assert isinstance(one.exception, EnvironmentFault)
    assert "tidegate broker status" in str(one.exception)
    assert (every.exit_code, json.loads(every.output)) == (0, [])


def test_a_directory_that_is_a_file(notes: Path, tmp_path: Path) -> None:
    """A directory that cannot be one is told by name."""
    (tmp_path / "file").write_text("")

    with pytest.raises(EnvironmentFault, match="file"):
        start_broker(tmp_path / "file" / "data")


@pytest.mark.slow
def test_a_broker_carries_messages_and_keeps_them(notes: Path, tmp_path: Path) -> None:
    """A topic and its messages, a large one too, outlive the broker; a second start finds the first."""
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    home, large = tmp_path / "kafka", os.urandom(48 << 20)
    with running_broker(home) as one:
        admin = AdminClient({"bootstrap.servers": one.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", 1)])["t"].result(30)
        client = {"bootstrap.servers": one.bootstrap, "message.max.bytes": 64 << 20}
        producer = Producer(client | {"enable.idempotence": True, "log_level": 0})
        for value in (b"small", large):
            producer.produce("t", value)

        assert producer.flush(60) == 0
        assert start_broker(home) == one
        assert status(home) == (one,)
    assert status(home) == ()

    with running_broker(home) as again:
        consumer = Consumer({"bootstrap.servers": again.bootstrap, "group.id": "g", "log_level": 0})
        consumer.assign([TopicPartition("t", 0, 0)])
        values = [message.value() for message in consumer.consume(2, 60)]
        consumer.close()

        assert values == [b"small", large]


@pytest.mark.slow
def test_the_commands(notes: Path, tmp_path: Path) -> None:
    """Start, status and stop agree about one temporary broker, which listens on loopback and leaves nothing behind."""
    runner = CliRunner()
    started = json.loads(runner.invoke(command, ["start", "--json"]).stdout)
    try:
        listed = json.loads(runner.invoke(command, ["status", "--json"]).stdout)
        other_port = runner.invoke(command, ["start", "--dir", started["dir"], "--port", "1"])
    finally:
        stopped = json.loads(runner.invoke(command, ["stop", "--json"]).stdout)

    assert started["bootstrap"].startswith("127.0.0.1:")
    assert listed == stopped == [started]
    assert "already served" in str(other_port.exception)
    assert runner.invoke(command, ["status"]).stdout == "no broker is running\n"
    assert not Path(started["dir"]).exists()


@pytest.mark.slow
def test_foreground_ends_with_its_signal(tmp_path: Path) -> None:
    """A broker in the foreground is gone when its command was told to end."""
    program = "from tidegate_upstream.cli.broker import broker; broker()"
    line = [sys.executable, "-c", program, "start", "--foreground", "--json"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)

    assert process.returncode == 0
    assert not Path(started["dir"]).exists()
    assert started["pid"] not in {one.pid for one in status()}


@pytest.mark.slow
def test_a_broker_that_fails_shows_its_log(notes: Path, tmp_path: Path) -> None:
    """When the broker ends while starting, the error carries the end of its log, and nothing is noted as running."""
    home = tmp_path / "kafka"
    with running_broker(home):
        pass
    (home / "data" / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=x\n")

    with pytest.raises(EnvironmentFault, match=r"(?s)ended while starting, with status 1.*node id"):
        start_broker(home)
    assert list(notes.iterdir()) == []
