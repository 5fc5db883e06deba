"""Lets the JVMs that tests start get to work sooner: compiled once, their classes out of an archive.

    python -m tests.jvms     a Spark and a broker do a little of everything ──► <cache>/jvms/<digest>-*.jsa
    the tests                Spark by PYSPARK_SUBMIT_ARGS, which processes inherit; brokers by their JVM_OPTIONS

A JVM of a test lives for seconds, most of which it would spend on loading classes and on making code fast that runs
once.  An archive that is missing, or of another Java or other jars, is passed over: all works, later.

Source: JEP 310 and JEP 350 (application class data sharing); `java -XX:TieredStopAtLevel`.
"""

import hashlib
import os
import shlex
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tidegate.spark.cache import cache_dir
from tidegate.spark.java import ensure_jars, find_java
from tidegate_upstream import broker

__all__ = ["SUBMIT_ARGUMENTS", "soon"]

SUBMIT_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
ONCE: Final = "-XX:TieredStopAtLevel=1"
SILENT: Final = "-Xlog:disable"
"""What is wrong with an archive is not told: nobody but these tests knows of it, and some read what a JVM says."""
TABLES: Final = 3


def soon() -> None:
    """Let all JVMs of this process, and of those that it starts, take the archives, as far as they are there."""
    spark, kafka = archives()
    _spark(ONCE, SILENT, f"-XX:SharedArchiveFile={spark}")
    os.environ["SPARK_LAUNCHER_OPTS"] = f"{ONCE} -XX:+UseSerialGC"
    archive = (SILENT, f"-XX:SharedArchiveFile={kafka}")
    broker.JVM_OPTIONS = (*broker.JVM_OPTIONS, ONCE, *archive)  # type: ignore[misc]
    broker.FORMAT_OPTIONS = (*broker.FORMAT_OPTIONS, *archive)  # type: ignore[misc]


def archives() -> tuple[Path, Path]:
    """The archives of Spark and of a broker for this Java and these jars. Raises EnvironmentFault where there is no
    Java, or no jars can be had."""
    java, spark = find_java(), find_spec("pyspark")
    place = None if spark is None else Path(str(spark.origin)).resolve()
    known = (java.runtime, java.version, place, version("pyspark"), ensure_jars("broker"))
    digest = hashlib.sha256("\n".join(map(str, known)).encode()).hexdigest()[:16]
    home = cache_dir("jvms")
    return home / f"{digest}-spark.jsa", home / f"{digest}-broker.jsa"


def _spark(*options: str) -> None:
    settings = [f"spark.{process}.defaultJavaOptions={' '.join(options)}" for process in ("driver", "executor")]
    words = [word for setting in settings for word in ("--conf", setting)]
    os.environ[SUBMIT_ARGUMENTS] = shlex.join([*words, "pyspark-shell"])


def write_spark(archive: Path) -> None:
    """Let a Spark do what tests let it do, and keep the classes that it needed."""
    from tidegate.spark.session import session

    _spark(ONCE, f"-XX:ArchiveClassesAtExit={archive}", SILENT)
    spark = session()
    with tempfile.TemporaryDirectory() as home:
        for name in range(TABLES):
            spark.range(100).write.format("delta").mode("append").save(f"{home}/{name}")
            spark.read.format("delta").load(f"{home}/{name}").mapInArrow(lambda batches: batches, "id long").count()
        spark.sparkContext.parallelize(range(4), 2).map(lambda one: one + 1).collect()
    jvm = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    jvm.stdin.close()
    jvm.wait()


def write_broker(archive: Path) -> None:
    """Let a broker carry a message, and keep the classes that it needed."""
    from confluent_kafka import Consumer, Producer

    from tidegate_upstream.demo.recorded import create_topic

    options = broker.JVM_OPTIONS
    broker.JVM_OPTIONS = (*options, ONCE, f"-XX:ArchiveClassesAtExit={archive}", SILENT)  # type: ignore[misc]
    with broker.running_broker() as one:
        create_topic(one.bootstrap, "some", 3)
        client = {"bootstrap.servers": one.bootstrap, "log_level": 0}
        producer = Producer(client | {"enable.idempotence": True})
        producer.produce("some", b"thing")
        producer.flush(10)
        consumer = Consumer(client | {"group.id": "any", "auto.offset.reset": "earliest"})
        consumer.subscribe(["some"])
        consumer.poll(10)
        consumer.close()
    broker.JVM_OPTIONS = options  # type: ignore[misc]


if __name__ == "__main__":
    for path, write in zip(archives(), (write_spark, write_broker), strict=True):
        if not path.exists():
            whole = path.with_suffix(f".{os.getpid()}")
            write(whole)
            whole.rename(path)
