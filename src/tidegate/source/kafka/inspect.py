"""What stands in topics: marks, watermarks, rows by table, DDLs, and messages that cannot be read.

    first kept .......... [ read from here ............ ] end at the start of the inspection
    low                     begin                         high

With a limit, the messages that are read are shared between the partitions and are the last ones of each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.codec import decode
from tidegate.feed.change import OPS, Place, PlacedDdl, ordered_ddls
from tidegate.feed.frontier import larger
from tidegate.model.errors import DecodeError
from tidegate.model.event import Ddl, Resolved
from tidegate.model.tso import physical_ms
from tidegate.source.kafka.client import KafkaTopics, watermarks
from tidegate.source.kafka.fetch import fetch_range
from tidegate.source.kafka.message import TopicMessage
from tidegate.source.kafka.reader import share

__all__ = ["PartitionReport", "TopicReport", "as_json", "inspect"]


@dataclass(slots=True)
class PartitionReport:
    """One partition; `tables` counts row changes by table name and operation (I, U, D)."""

    topic: str
    partition: int
    low: int
    high: int
    begin: int
    messages: int = 0
    resolved: int | None = None
    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    rows_without_ts: int = 0
    ddls: list[PlacedDdl] = field(default_factory=list)
    undecodable: int = 0
    first_error: str = ""


@dataclass(frozen=True, slots=True)
class TopicReport:
    """All partitions; `cut` says that older messages were left out."""

    partitions: tuple[PartitionReport, ...]
    cut: bool

    @property
    def ddls(self) -> list[PlacedDdl]:
        """Each DDL once, in order."""
        return ordered_ddls(placed for one in self.partitions for placed in one.ddls)

    @property
    def tables(self) -> dict[str, dict[str, int]]:
        """Row changes of all partitions by table name and operation."""
        total: dict[str, dict[str, int]] = {}
        for one in self.partitions:
            for name, ops in one.tables.items():
                into = total.setdefault(name, {})
                for op, count in ops.items():
                    into[op] = into.get(op, 0) + count
        return dict(sorted(total.items()))


def inspect(source: KafkaTopics, limit: int) -> TopicReport:
    """Read at most the last `limit` messages of the topics and say what they are."""
    reports = [
        PartitionReport(topic, partition, low, high, low)
        for topic, partitions in watermarks(source).items()
        for partition, (low, high) in partitions.items()
    ]
    lows = {(one.topic, one.partition): one.low for one in reports}
    highs = {(one.topic, one.partition): one.high for one in reports}
    counts = {place: end - lows[place] for place, end in share(lows, highs, limit).items()}
    for one in reports:
        one.begin = one.high - counts[one.topic, one.partition]
        for chunk in fetch_range(source, Place(one.topic, one.partition, one.begin), one.high):
            for message in chunk:
                _note(one, message, source)
    return TopicReport(tuple(reports), any(one.begin > one.low for one in reports))


def _note(report: PartitionReport, message: TopicMessage, source: KafkaTopics) -> None:
    report.messages += 1
    try:
        events = decode(message.key, message.value, source.decode)
    except DecodeError as broken:
        report.undecodable += 1
        report.first_error = report.first_error or f"offset {message.offset}: {broken}"
        return
    for seq, event in enumerate(events):
        match event:
            case Resolved(ts):
                report.resolved = larger(report.resolved, ts)
            case Ddl():
                report.ddls.append(PlacedDdl(Place(report.topic, report.partition, message.offset, seq), event))
            case row:
                ops = report.tables.setdefault(f"{row.schema}.{row.table}", {})
                op = OPS[type(row).__name__]
                ops[op] = ops.get(op, 0) + 1
                report.rows_without_ts += row.commit_ts is None


def as_json(report: TopicReport, *, now_ms: int) -> Mapping[str, object]:
    """Return the report as plain values; lag is the age of a partition's last resolved ts."""
    return {
        "cut": report.cut,
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "low": one.low,
                "high": one.high,
                "read_from": one.begin,
                "messages": one.messages,
                "resolved_ts": one.resolved,
                "lag_ms": None if one.resolved is None else now_ms - (physical_ms(one.resolved)),
                "rows": one.tables,
                "rows_without_commit_ts": one.rows_without_ts,
                "undecodable": one.undecodable,
                "first_error": one.first_error or None,
            }
            for one in report.partitions
        ],
        "rows": report.tables,
        "ddls": [
            {
                "commit_ts": placed.ddl.commit_ts,
                "schema": placed.ddl.schema,
                "table": placed.ddl.table,
                "query": placed.ddl.query,
                "topic": placed.place.topic,
                "partition": placed.place.partition,
                "offset": placed.place.offset,
            }
            for placed in report.ddls
        ],
    }
