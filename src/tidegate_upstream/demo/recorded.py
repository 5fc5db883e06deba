"""`tidegate demo --recorded`: a recorded day of a shop, replayed through a real broker into a lake, and compared.

    recording/open/p0.bin.gz p1 p2   --feeder thread-->  topic with as many partitions
                                                             |  changefeed, at the same time
    recording/truth/N.json.gz  <------- verify ------->  lake

    p*.bin.gz = (4-byte key length, key, 4-byte value length, value)*, big endian, in partition order

The feeder fills all partitions at the same rate.  A tenth of the recording is written before the changefeed starts, the
rest over some seconds, so that the changefeed reads a growing topic.  Broker and scratch directory are removed at the
end, also after Ctrl-C; `--dir` keeps the lakes.
"""

import gzip
import shutil
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click
import msgspec

from tidegate.cli.main import INTERRUPTED
from tidegate.cli.verify import print_reports
from tidegate.codec.stream import read_frames
from tidegate.config.entry import FeedConfig
from tidegate.config.load import load
from tidegate.engine.display import FeedPanel, display
from tidegate.engine.progress import Progress
from tidegate.engine.stop_signals import stop_on_signals, wait_until
from tidegate.model.errors import ConfigError, SourceError
from tidegate.verify.compare import TableReport, compare_sides
from tidegate.verify.local import lake_beside, load_truth

FEED_S: Final = 8.0
SLICES: Final = 80
HEAD_SLICES: Final = 8
"""Slices of the recording sent before the changefeed starts; the rest is sent while it runs."""

HEAD_WAIT_S: Final = 60.0
TOPIC_WAIT_S: Final = 60.0
_DIRS: Final = {"open-protocol": "open", "canal-json": "canal"}
_URI: Final = {"open-protocol": "", "canal-json": "&enable-tidb-extension=true"}

Frame = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The result of one protocol's run."""

    protocol: str
    messages: int
    rows: int
    ddls: int
    seconds: float
    tables: int
    different: int


def find_recording() -> Path:
    """Return the recording in the source tree. Raises ConfigError if the package does not run from one."""
    for parent in Path(__file__).resolve().parents:
        folder = parent / "tests" / "data" / "workload"
        if (folder / "truth").is_dir():
            return folder
    raise ConfigError(
        "no recording found: the demo's data is in the source tree (tests/data/workload); name another "
        "with --recording DIR"
    )


def time_zone(recording: Path) -> str:
    """Return the time zone of TIMESTAMP values in the recorded messages, from the manifest: messages do not carry
    it."""
    try:
        manifest = msgspec.json.decode((recording / "manifest.json").read_bytes())
    except (OSError, msgspec.DecodeError):
        return "UTC"
    return str(manifest.get("timezone", "UTC")) if isinstance(manifest, dict) else "UTC"


def read_partitions(where: Path) -> list[list[Frame]]:
    """Return the messages of every partition. Raises ConfigError if the directory is not a recorded topic."""
    paths = [where / f"p{number}.bin.gz" for number in range(len(list(where.glob("p*.bin.gz"))))]
    if not paths:
        raise ConfigError(f"{where} contains no recorded topic (p0.bin.gz, p1.bin.gz, ...)")
    try:
        return [list(read_frames(gzip.decompress(path.read_bytes()))) for path in paths]
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{where} cannot be read: {error}") from error


def slices(partitions: Sequence[Sequence[Frame]], count: int) -> Iterator[list[tuple[int, Frame]]]:
    """Return all messages in `count` slices with the same share of every partition, in the partition's order."""
    for step in range(count):
        yield [
            (number, frame)
            for number, messages in enumerate(partitions)
            for frame in messages[len(messages) * step // count : len(messages) * (step + 1) // count]
        ]


class Feeder(threading.Thread):
    """Sends a recording to a topic over some seconds. `failure` is set at the end unless all of it arrived."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: Sequence[Sequence[Frame]], stop: threading.Event
    ) -> None:
        super().__init__(name=f"feeder-{topic}", daemon=True)
        self.bootstrap, self.topic, self.partitions, self.stop = bootstrap, topic, partitions, stop
        self.failure: str | None = None
        self.landing = threading.Event()
        """Set by the reader when the first rows have landed; most of the recording is sent after that."""
        self.ended = threading.Event()
        """Set by the reader to stop the feeder."""

    def run(self) -> None:
        """Send the recording; a failure stops the changefeed, which would otherwise wait for the rest."""
        from confluent_kafka import KafkaException

        try:
            self._feed()
        except KafkaException as error:
            self.failure = str(error)
        if self.failure:
            self.stop.set()

    def _feed(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": 3}
        )
        for number, messages in enumerate(slices(self.partitions, SLICES)):
            until = time.monotonic() + HEAD_WAIT_S
            while number == HEAD_SLICES and time.monotonic() < until:  # the changefeed begins amid the topic
                if self.landing.wait(0.1) or self.ended.is_set() or self.stop.is_set():
                    break
            for partition, frame in messages:
                self._send(producer, partition, frame)
            if self.stop.is_set() or self.ended.wait(FEED_S / SLICES):
                break
        left = producer.flush(1 if self.stop.is_set() else 60)
        if left and not self.stop.is_set():
            self.failure = f"{left} messages did not reach the broker"

    def _send(self, producer: Any, partition: int, frame: Frame) -> None:
        key, value = frame
        while True:
            try:
                producer.produce(self.topic, value, key or None, partition, on_delivery=self._delivered)
            except BufferError:
                producer.poll(0.1)
                continue
            producer.poll(0)
            return

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.failure = str(error)


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Create the topic and wait until every partition answers: a new one has no leader for a moment."""
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    offsets = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
    until = time.monotonic() + TOPIC_WAIT_S
    try:
        for future in admin.create_topics([NewTopic(topic, partitions, 1)], operation_timeout=30).values():
            future.result(TOPIC_WAIT_S)
        while failures := [error for future in admin.list_offsets(offsets).values() if (error := future.exception(30))]:
            if time.monotonic() > until:
                raise SourceError(f"the topic {topic} does not answer: {failures[0]}")
            time.sleep(0.1)
    except KafkaException as error:
        raise SourceError(f"the topic {topic} cannot be created: {error}") from error


@contextmanager
def scratch(parent: Path | None) -> Iterator[Path]:
    """Give a fresh working directory: a temporary one, or the next free `demo-N` under `parent`."""
    if parent is None:
        where = Path(tempfile.mkdtemp(prefix="tidegate-demo-"))
        try:
            yield where
        finally:
            shutil.rmtree(where, ignore_errors=True)
        return
    number = 1 + sum(1 for _ in parent.glob("demo-*"))
    while (where := parent.resolve() / f"demo-{number}").exists():
        number += 1
    where.mkdir(parents=True)
    yield where


class _Stage:
    def __init__(self, recording: Path, bootstrap: str, home: Path, stop: threading.Event, *, as_json: bool) -> None:
        self.recording, self.bootstrap, self.home, self.stop, self.as_json = recording, bootstrap, home, stop, as_json
        self.truths = load_truth(recording)

    def play(self, protocol: str) -> RecordedRun | None:
        """Feed, run and verify one protocol; return None if it was stopped."""
        partitions = read_partitions(self.recording / _DIRS[protocol])
        topic, lake = f"demo-{_DIRS[protocol]}", self.home / f"lake-{_DIRS[protocol]}"
        create_topic(self.bootstrap, topic, len(partitions))
        zone = quote(time_zone(self.recording), safe="")
        source = f"kafka://{self.bootstrap}/{topic}?protocol={protocol}&time-zone={zone}{_URI[protocol]}"
        config = load(source_uri=source, sink_uri=lake.as_uri().replace("file:", "delta:", 1))
        self.write(f"{protocol}: {sum(map(len, partitions)):,} messages in {len(partitions)} partitions -> {lake}")
        started = time.monotonic()
        done = self.carry(config, Feeder(self.bootstrap, topic, partitions, self.stop))
        if done is None:
            return None
        seconds = time.monotonic() - started
        _, recorded, stored = lake_beside(str(lake), self.truths, str(self.truths[-1].n))
        reports = list(compare_sides(recorded, stored))
        outcome = RecordedRun(
            protocol=protocol,
            messages=sum(map(len, partitions)),
            rows=done.rows,
            ddls=done.ddls,
            seconds=round(seconds, 1),
            tables=len(reports),
            different=sum(not report.equal for report in reports),
        )
        self.tell(outcome, reports)
        return outcome

    def carry(self, config: FeedConfig, feeder: Feeder) -> Progress | None:
        """Run the changefeed during the feed, until the recording's last timestamp is in the lake."""
        from tidegate.config.changefeed import Changefeed

        feed = FeedPanel(config.name, config.source_uri, config.sink_uri)
        feeder.start()
        try:
            with display(feed, self.stop, json=self.as_json, color=True, out=sys.stdout, err=sys.stderr) as show:

                def report(progress: Progress) -> None:
                    if progress.rows_landed:
                        feeder.landing.set()
                    show(progress)

                done = Changefeed(config).run(on_progress=report, stop=self.stop, until=self.truths[-1].ts)
        finally:
            feeder.ended.set()
            wait_until(lambda: not feeder.is_alive())
        if feeder.failure:
            raise SourceError(f"feeding {feeder.topic}: {feeder.failure}")
        return None if self.stop.is_set() else done

    def write(self, text: str) -> None:
        """Print a line of text."""
        if not self.as_json:
            click.echo(text)

    def tell(self, outcome: RecordedRun, reports: Sequence[TableReport]) -> None:
        """Print the result of a protocol."""
        if self.as_json:
            click.echo(msgspec.json.encode(outcome).decode())
            return
        print_reports(reports)
        rate = outcome.rows / max(outcome.seconds, 0.1)
        click.echo(
            f"{outcome.protocol}: {outcome.rows:,} rows and {outcome.ddls} DDLs in {outcome.seconds:.1f} s "
            f"({rate:,.0f} rows/s, start of Spark included), {outcome.tables - outcome.different} of {outcome.tables} "
            f"tables equal"
        )


def play_recording(recording: Path | None, protocols: Sequence[str], home: Path | None, *, as_json: bool) -> int:
    """Replay a recording, by default the source tree's, and compare; return the exit status."""
    where = recording or find_recording()
    outcomes: list[RecordedRun] = []
    with stop_on_signals() as stop, scratch(home) as directory:
        from tidegate_upstream.broker import running_broker

        with running_broker(directory / "broker") as broker:
            stage = _Stage(where, broker.bootstrap, directory, stop, as_json=as_json)
            for name in protocols:
                outcome = stage.play(name)
                if outcome is None:
                    click.echo("stopped", err=True)
                    return INTERRUPTED
                outcomes.append(outcome)
    click.echo(_verdict(outcomes, as_json=as_json))
    return 1 if any(outcome.different for outcome in outcomes) else 0


def _verdict(outcomes: Sequence[RecordedRun], *, as_json: bool) -> str:
    wrong = sum(outcome.different for outcome in outcomes)
    total = sum(outcome.tables for outcome in outcomes)
    if as_json:
        return msgspec.json.encode({"equal": not wrong, "tables": total, "different": wrong}).decode()
    if wrong:
        return f"{wrong} of {total} tables differ"
    counts = {outcome.tables for outcome in outcomes}
    return f"all {counts.pop() if len(counts) == 1 else total} tables equal"
