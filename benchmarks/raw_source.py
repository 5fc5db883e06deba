"""A topic's messages as they are: a Python Data Source for the jobs that ours are compared with.

    spark.read | readStream .format(FORMAT).options(servers=, topic=, max_per_batch=)
        key binary, value binary, partition int, offset bigint          a task a Kafka partition

As quick as such a one can be: it consumes in big batches and hands Arrow over.  Spark's own Kafka source is a jar that
this project does not ship.  Workers import this file alone, so it imports little.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

__all__ = ["FORMAT", "RawSource"]

FORMAT: Final = "tidegate_bench_raw"
SCHEMA: Final = "key binary, value binary, partition int, offset bigint"
CONSUME: Final = 10_000
WAIT_S: Final = 60.0
CONSUMER: Final[Mapping[str, Any]] = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "enable.partition.eof": False,
    "fetch.wait.max.ms": 20,
    "max.partition.fetch.bytes": 16 << 20,
    "queued.max.messages.kbytes": 64 << 10,
    "log_level": 3,
}


class _Range(InputPartition):  # type: ignore[misc]  # PySpark has no types here
    def __init__(self, partition: int, start: int, end: int) -> None:
        self.partition, self.start, self.end = partition, start, end


class _Raw:
    """What both readers share; `options` are texts."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.servers, self.topic = options["servers"], options["topic"]
        self.limit = int(options.get("max_per_batch", "0"))
        self.planned: dict[str, int] = {}

    def consumer(self) -> Any:
        from confluent_kafka import Consumer

        return Consumer({**CONSUMER, "bootstrap.servers": self.servers})

    def highs(self) -> dict[str, int]:
        from confluent_kafka import TopicPartition

        consumer = self.consumer()
        partitions = consumer.list_topics(self.topic, WAIT_S).topics[self.topic].partitions
        offsets = {
            str(number): consumer.get_watermark_offsets(TopicPartition(self.topic, number), WAIT_S)[1]
            for number in sorted(partitions)
        }
        consumer.close()
        return offsets

    def read(self, partition: _Range) -> Iterator[Any]:
        import pyarrow as pa
        from confluent_kafka import TopicPartition

        consumer = self.consumer()
        consumer.assign([TopicPartition(self.topic, partition.partition, partition.start)])
        offset = partition.start
        while offset < partition.end:
            got = consumer.consume(min(CONSUME, partition.end - offset), 0.1)
            if not got:
                continue
            offsets = [message.offset() for message in got]
            offset = offsets[-1] + 1
            yield pa.record_batch(
                {
                    "key": pa.array([message.key() for message in got], pa.binary()),
                    "value": pa.array([message.value() for message in got], pa.binary()),
                    "partition": pa.repeat(pa.scalar(partition.partition, pa.int32()), len(got)),
                    "offset": pa.array(offsets, pa.int64()),
                }
            )
        consumer.close()


class _BatchReader(_Raw, DataSourceReader):  # type: ignore[misc]  # PySpark has no types here
    def partitions(self) -> list[_Range]:
        return [_Range(int(number), 0, high) for number, high in self.highs().items()]


class _StreamReader(_Raw, DataSourceStreamReader):  # type: ignore[misc]  # PySpark has no types here
    def initialOffset(self) -> dict[str, int]:  # noqa: N802  Spark's name
        self.planned = dict.fromkeys(self.highs(), 0)
        return self.planned

    def latestOffset(self) -> dict[str, int]:  # noqa: N802  Spark's name
        highs = self.highs()
        most = max(1, self.limit // len(highs))
        self.planned = {number: min(high, self.planned.get(number, 0) + most) for number, high in highs.items()}
        return self.planned

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[_Range]:
        self.planned = end
        return [_Range(int(number), start[number], stop) for number, stop in end.items() if stop > start[number]]


class RawSource(DataSource):  # type: ignore[misc]  # PySpark has no types here
    """A topic's messages as they are."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """Bytes and where they stood."""
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002
        """For `spark.read`."""
        return _BatchReader(self.options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802  Spark's name
        """For `spark.readStream`."""
        return _StreamReader(self.options)
