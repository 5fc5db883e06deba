"""What the benchmarks with a broker share: a real broker, one Spark as a feed has it, topics full of traffic, a clock.

    with rig() as bench:                                       broker and Spark, gone at the end
        topic = bench.topic("t", mixture(1_000_000), "canal-json")
        raw(bench.spark, topic)                                key, value, partition, offset: a batch DataFrame
        raw_stream(bench.spark, topic, 50_000)                 the same as a stream of at most so many a batch
        bench.directory("lake")                                a new directory below the rig's

`raw` (raw_source.py) is the input of the jobs that ours are compared with.

Arguments of every benchmark: `--rows N`, `--json`.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
from raw_source import FORMAT, RawSource
from traffic import Change, messages

from tidegate.spark.session import session
from tidegate_upstream.broker import running_broker
from tidegate_upstream.demo.recorded import create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PARTITIONS", "Rig", "Topic", "arguments", "cpu_s", "raw", "raw_stream", "rig", "seconds", "send"]

PARTITIONS: Final = 2
"""As many as the cores that the goals are stated for."""
WAIT_S: Final = 60.0
NUMBERS: Final = count()
PRODUCER: Final[Mapping[str, Any]] = {
    "linger.ms": 50,
    "batch.size": 1 << 20,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 256 << 10,
    "log_level": 3,
}


@dataclass(frozen=True)
class Topic:
    """A topic that was filled: `messages` in it, `bytes` of their keys and values."""

    bootstrap: str
    name: str
    protocol: str
    partitions: int
    messages: int
    bytes: int

    def uri(self, **parameters: object) -> str:
        """The topic as a source of a changefeed; `dead_letter="skip"` becomes `dead-letter=skip`."""
        extension = "&enable-tidb-extension=true" if self.protocol == "canal-json" else ""
        query = "".join(f"&{name.replace('_', '-')}={value}" for name, value in parameters.items())
        return f"kafka://{self.bootstrap}/{self.name}?protocol={self.protocol}{extension}{query}"


@dataclass(frozen=True)
class Rig:
    """A broker, a Spark and a place for files."""

    bootstrap: str
    spark: "SparkSession"
    scratch: Path

    def directory(self, name: str) -> Path:
        """A directory that does not exist yet."""
        return self.scratch / f"{name}-{next(NUMBERS)}"

    def topic(
        self,
        name: str,
        changes: Iterable[Change],
        protocol: str,
        *,
        partitions: int = PARTITIONS,
        events_per_message: int = 1,
    ) -> Topic:
        """A new topic that holds `changes`."""
        create_topic(self.bootstrap, name, partitions)
        message_list = messages(changes, protocol, partitions=partitions, events_per_message=events_per_message)
        count, size_bytes = send(self.bootstrap, name, message_list)
        return Topic(self.bootstrap, name, protocol, partitions, count, size_bytes)


@contextmanager
def rig(conf: Mapping[str, str] | None = None) -> Iterator[Rig]:
    """Broker and Spark, with settings `conf`, for the time of a `with` block. Workers find the benchmarks' modules."""
    directory = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [directory, os.environ.get("PYTHONPATH")]))
    scratch = Path(tempfile.mkdtemp(prefix="tidegate-bench-"))
    try:
        with running_broker() as broker:
            spark = session(conf=conf)
            spark.dataSource.register(RawSource)
            try:
                yield Rig(broker.bootstrap, spark, scratch)
            finally:
                spark.stop()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def send(bootstrap: str, topic: str, messages: Iterable[tuple[int, bytes | None, bytes]]) -> tuple[int, int]:
    """Produce (partition, key, value); return how many messages and bytes, once the broker has them."""
    from confluent_kafka import Producer

    producer = Producer({**PRODUCER, "bootstrap.servers": bootstrap})
    number = size_bytes = 0
    for partition, key, value in messages:
        while True:
            try:
                producer.produce(topic, value, key, partition)
                break
            except BufferError:
                producer.poll(0.05)
        number += 1
        size_bytes += len(value) + len(key or b"")
    unsent = producer.flush(WAIT_S)
    assert unsent == 0, f"{unsent} messages were not taken"
    return number, size_bytes


def raw(spark: "SparkSession", topic: Topic) -> "DataFrame":
    """All messages of the topic as of now, a task a partition."""
    return spark.read.format(FORMAT).options(servers=topic.bootstrap, topic=topic.name).load()


def raw_stream(spark: "SparkSession", topic: Topic, max_per_batch: int) -> "DataFrame":
    """The topic as a stream from its beginning, at most `max_per_batch` messages a batch in all."""
    options = {"servers": topic.bootstrap, "topic": topic.name, "max_per_batch": str(max_per_batch)}
    return spark.readStream.format(FORMAT).options(**options).load()


def seconds(work: Callable[[], Any]) -> float:
    """How long `work` takes once."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def cpu_s() -> float:
    """Seconds of CPU that this process, Spark and its workers have used so far, the broker's left out."""
    spent = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.Error):
            if "kafka.Kafka" not in process.cmdline():
                spent += sum(process.cpu_times()[:4])
    return spent


def arguments(doc: str | None, rows: int) -> argparse.ArgumentParser:
    """The arguments that every benchmark takes."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=rows, help=f"row changes a case (default {rows:,})")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    return parser
