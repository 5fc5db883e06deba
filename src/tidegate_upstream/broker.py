"""A real Apache Kafka on this machine, for demos and tests: one node, KRaft, loopback only.

    start_broker   jars -> ports -> server.properties -> format (once per directory) -> JVM -> answers -> note
    status         reads the notes; removes those of brokers that have ended
    stop_broker    SIGTERM, wait, SIGKILL; removes the note, and a temporary directory with it

A note (`<cache>/brokers/<digest of the directory>.json`) records which process serves which directory.  Pids are
reused, so a process is only stopped if its command line names that directory's server.properties.  The broker ends with
the program that started it, killed or not, unless it was started to stay.

Topics must be created explicitly (auto creation is off), and nothing expires: a topic here is a recording.  Messages
may be as large as TiCDC can be configured to send.

Source: Apache Kafka, "KRaft" and "Broker Configs".
"""

import base64
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidegate.model.errors import EnvironmentFault
from tidegate.objectstore.local_files import private, write_whole
from tidegate.spark.java import JavaHome, ensure_jars, find_java
from tidegate_upstream.background import Processes, child_of, started

HOST: Final = "127.0.0.1"
PREFIX: Final = "tidegate-broker-"
MESSAGE_MAX_BYTES: Final = 96 << 20
"""Above TiCDC's largest sensible max-message-bytes (64 MiB), below Kafka's 100 MiB limit of one request."""

START_TIMEOUT_S: Final = 60
STOP_TIMEOUT_S: Final = 15
TRIES: Final = 3
"""Attempts to start on free ports: one may be in use by the time the broker binds it."""

JVM_OPTIONS: Final = ("-Xmx384m", "-XX:+UseSerialGC", "-Djava.awt.headless=true")
FORMAT_OPTIONS: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
BUSY: Final = "Address already in use"

PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
message.max.bytes={message_max_bytes}
replica.fetch.max.bytes={message_max_bytes}
fetch.max.bytes={message_max_bytes}
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
log.retention.ms=-1
log.cleaner.dedupe.buffer.size=16777216
num.network.threads=2
num.io.threads=4
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""

LOGGING: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c{{1}}: %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
"""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker started by this package; a `temporary` directory is deleted when it stops."""

    bootstrap: str
    pid: int
    dir: Path
    temporary: bool


def start_broker(
    dir: Path | None = None,  # noqa: A002  the command's own word
    port: int = 0,
    *,
    stays: bool = False,
) -> Broker:
    """Return the running broker that serves `dir`, started if there is none.

    Without `dir` a temporary directory is used and deleted on stop. Port 0 is any free port. It ends with
    this process unless it `stays`. Raises EnvironmentFault with the end of the broker's log if it does not start."""
    broker = BROKERS.serving(dir, lambda home: _start(home, port, temporary=dir is None, stays=stays))
    if port and not broker.bootstrap.endswith(f":{port}"):
        raise EnvironmentFault(f"{broker.dir} is already served at {broker.bootstrap}; stop that broker first")
    return broker


@contextmanager
def running_broker(dir: Path | None = None, port: int = 0) -> Iterator[Broker]:  # noqa: A002
    """Run a broker for the time of a `with` block."""
    broker = start_broker(dir, port)
    try:
        yield broker
    finally:
        stop_broker(broker)


def _start(home: Path, port: int, *, temporary: bool, stays: bool) -> Broker:
    java, classpath = find_java(), f"{ensure_jars('broker')}/*"
    tail = ""
    for _ in range(TRIES):
        ports = _free_ports(port)
        _configure(home, *ports)
        _format(java, classpath, home)
        broker = Broker(f"{HOST}:{ports[0]}", _launch(java, classpath, home, stays=stays), home, temporary)
        try:
            BROKERS.put(broker)
            fault = _await_answer(broker)
        except BaseException:
            BROKERS.end(broker)
            raise
        if fault is None:
            return broker
        BROKERS.end(broker)
        tail = _tail(home)
        if port or BUSY not in tail:
            break
    raise EnvironmentFault(f"the broker in {home} {fault}; the end of its log:\n{tail}")


def _free_ports(port: int) -> tuple[int, int]:
    """Return two distinct free ports; the first is `port` unless that is 0."""
    with socket.socket() as first, socket.socket() as second:
        for sock, number in ((first, port), (second, 0)):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((HOST, number))
            except (OSError, OverflowError) as fault:
                raise EnvironmentFault(f"port {number} cannot be bound on {HOST} ({fault}); use another") from fault
        return first.getsockname()[1], second.getsockname()[1]


def _configure(home: Path, port: int, controller_port: int) -> None:
    properties = PROPERTIES.format(
        host=HOST,
        port=port,
        controller_port=controller_port,
        data=home / "data",
        message_max_bytes=MESSAGE_MAX_BYTES,
    )
    write_whole(home / "server.properties", properties)
    write_whole(home / "log4j2.properties", LOGGING.format(log=home / "broker.log"))
    for name in ("broker.log", "broker.out"):
        (home / name).unlink(missing_ok=True)


def _format(java: JavaHome, classpath: str, home: Path) -> None:
    """Give a new directory its cluster id; an existing one keeps its id and topics."""
    if (home / "data" / "meta.properties").exists():
        return
    command = [str(java.java), *FORMAT_OPTIONS, *_log_option(home), "-cp", classpath, "kafka.tools.StorageTool"]
    command += ["format", "-t", _cluster_id(uuid.uuid4().bytes), "-c", str(home / "server.properties")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=START_TIMEOUT_S)
    if ran.returncode != 0:
        raise EnvironmentFault(f"cannot format {home} as a broker's directory: {(ran.stdout + ran.stderr).strip()}")


def _cluster_id(chance: bytes) -> str:
    """Kafka's text of 16 random bytes. The highest bit goes: a text that began with `-` would be read as an option."""
    return base64.urlsafe_b64encode(bytes([chance[0] & 0x7F]) + chance[1:]).decode().rstrip("=")


def _launch(java: JavaHome, classpath: str, home: Path, *, stays: bool) -> int:
    command = [str(java.java), *JVM_OPTIONS, *_log_option(home), "-cp", classpath, "kafka.Kafka"]
    with open(home / "broker.out", "wb", opener=private) as out:
        child = subprocess.Popen(
            [*command, str(home / "server.properties")],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the terminal is not meant for it
        )
    started(child, stays=stays)
    return child.pid


def _log_option(home: Path) -> tuple[str, ...]:
    return (f"-Dlog4j2.configurationFile=file:{home / 'log4j2.properties'}",)


def _await_answer(broker: Broker) -> str | None:
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until:
        if BROKERS.process(broker) is None:
            return f"ended while starting, with status {child_of(broker.pid).returncode}"
        if _answers(broker.bootstrap):
            return None
        time.sleep(0.1)
    return f"did not answer within {START_TIMEOUT_S} s"


def _answers(bootstrap: str) -> bool:
    """Return True if the broker at `bootstrap` answers; without the Kafka client an open port counts as an answer."""
    host, _, port = bootstrap.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
    except OSError:
        return False
    except ImportError:
        return True
    try:
        listed = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=5)
    except KafkaException:
        return False
    return bool(listed.brokers)


def _tail(home: Path, lines: int = 25) -> str:
    texts = (
        path.read_text(errors="replace") for name in ("broker.out", "broker.log") if (path := home / name).exists()
    )
    return "\n".join("".join(texts).splitlines()[-lines:]) or "(empty)"


BROKERS: Final = Processes(
    Broker,
    "a broker",
    "spark",
    "brokers",
    PREFIX,
    lambda broker, words: str(broker.dir / "server.properties") in words,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
)
status, stop_broker = BROKERS.status, BROKERS.stop
