"""`tidegate topic inspect`: the contents of a changefeed's topics, before setting up a changefeed.

$ tidegate topic inspect 'kafka://127.0.0.1:9092/shop?protocol=canal-json'

    topic shop partition 0   offsets 0..3964   resolved 470607235324313600 (2 s ago)   3,964 messages
      shop.orders            1,204 inserts   388 updates   91 deletes
    ...
    DDLs
      470607233549598720   CREATE DATABASE `shop`

It shows per partition the offsets, the last resolved ts, the rows by table, the DDLs, and unreadable messages.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import click

from tidegate.cli.framed import address
from tidegate.cli.output import echo, echo_json
from tidegate.codec import decode
from tidegate.config.kafka import kafka_topics
from tidegate.engine.change import OPS, EventPosition, SourceDdl, ordered_ddls
from tidegate.engine.frontier import larger
from tidegate.model.errors import DecodeError
from tidegate.model.event import Ddl, Resolved
from tidegate.model.name import qualified
from tidegate.model.tso import physical_ms
from tidegate.source.kafka_client import share, watermarks
from tidegate.source.kafka_fetch import fetch_range
from tidegate.source.kafka_messages import TopicMessage
from tidegate.source.kafka_options import KafkaTopics


@dataclass(slots=True)
class PartitionReport:
    """A partition; `tables` counts row changes by table name and operation (I, U, D)."""

    topic: str
    partition: int
    low: int
    high: int
    begin: int
    messages: int = 0
    resolved: int | None = None
    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    rows_without_ts: int = 0
    ddls: list[SourceDdl] = field(default_factory=list)
    undecodable: int = 0
    first_error: str = ""


@dataclass(frozen=True, slots=True)
class TopicReport:
    """All partitions; `cut` is True if older messages were not read."""

    partitions: tuple[PartitionReport, ...]
    cut: bool

    @property
    def ddls(self) -> list[SourceDdl]:
        return ordered_ddls(source_ddl for report in self.partitions for source_ddl in report.ddls)

    @property
    def tables(self) -> dict[str, dict[str, int]]:
        """Row changes of all partitions, by table name and operation."""
        total: dict[str, dict[str, int]] = {}
        for report in self.partitions:
            for name, ops in report.tables.items():
                into = total.setdefault(name, {})
                for op, count in ops.items():
                    into[op] = into.get(op, 0) + count
        return dict(sorted(total.items()))


def inspect(source: KafkaTopics, limit: int) -> TopicReport:
    """Read at most the last `limit` messages of the topics and return a report of their contents.

        first kept .......... [ read from here ............ ] end at the start of the inspection
        low                     begin                         high

    The limit is shared between the partitions, and the messages that are read are the last ones of each."""
    reports = [
        PartitionReport(topic, partition, low, high, low)
        for topic, partitions in watermarks(source).items()
        for partition, (low, high) in partitions.items()
    ]
    lows = {(report.topic, report.partition): report.low for report in reports}
    highs = {(report.topic, report.partition): report.high for report in reports}
    counts = {partition: end - lows[partition] for partition, end in share(lows, highs, limit).items()}
    for report in reports:
        report.begin = report.high - counts[report.topic, report.partition]
        for chunk in fetch_range(source, EventPosition(report.topic, report.partition, report.begin), report.high):
            for message in chunk:
                _note(report, message, source)
    return TopicReport(tuple(reports), any(report.begin > report.low for report in reports))


def _note(report: PartitionReport, message: TopicMessage, source: KafkaTopics) -> None:
    report.messages += 1
    try:
        events = decode(message.key, message.value, source.decode_options())
    except DecodeError as broken:
        report.undecodable += 1
        report.first_error = report.first_error or f"offset {message.offset}: {broken}"
        return
    for seq, event in enumerate(events):
        match event:
            case Resolved(ts):
                report.resolved = larger(report.resolved, ts)
            case Ddl():
                report.ddls.append(SourceDdl(EventPosition(report.topic, report.partition, message.offset, seq), event))
            case row:
                ops = report.tables.setdefault(qualified(row.schema, row.table), {})
                op = OPS[type(row).__name__]
                ops[op] = ops.get(op, 0) + 1
                report.rows_without_ts += row.commit_ts is None


def as_json(report: TopicReport, *, now_ms: int) -> Mapping[str, object]:
    """Return the report as plain values; lag is the age of a partition's last resolved ts."""
    return {
        "cut": report.cut,
        "partitions": [
            {
                "topic": partition_report.topic,
                "partition": partition_report.partition,
                "low": partition_report.low,
                "high": partition_report.high,
                "read_from": partition_report.begin,
                "messages": partition_report.messages,
                "resolved_ts": partition_report.resolved,
                "lag_ms": None
                if partition_report.resolved is None
                else now_ms - (physical_ms(partition_report.resolved)),
                "rows": partition_report.tables,
                "rows_without_commit_ts": partition_report.rows_without_ts,
                "undecodable": partition_report.undecodable,
                "first_error": partition_report.first_error or None,
            }
            for partition_report in report.partitions
        ],
        "rows": report.tables,
        "ddls": [
            {
                "commit_ts": source_ddl.ddl.commit_ts,
                "schema": source_ddl.ddl.schema,
                "table": source_ddl.ddl.table,
                "query": source_ddl.ddl.query,
                "topic": source_ddl.position.topic,
                "partition": source_ddl.position.partition,
                "offset": source_ddl.position.offset,
            }
            for source_ddl in report.ddls
        ],
    }


LIMIT = 200_000
WORDS = {"I": "inserts", "U": "updates", "D": "deletes"}
QUERY_WIDTH = 120


@click.group()
def topic() -> None:
    """Inspect a Kafka topic."""


@topic.command("inspect")
@click.argument("uri", metavar="kafka://HOST:PORT/TOPIC?protocol=…", callback=address)
@click.option(
    "--limit", type=click.IntRange(1), default=LIMIT, show_default=True, help="Maximum number of messages to read."
)
@click.option("--json", "as_json_", is_flag=True, help="Print JSON.")
def inspect_(uri: str, *, limit: int, as_json_: bool) -> None:
    """Show offsets, watermarks, rows by table, DDLs and unreadable messages of topics."""
    report = inspect(kafka_topics(uri), limit)
    now_ms = time.time_ns() // 1_000_000
    if as_json_:
        echo_json(as_json(report, now_ms=now_ms))
        return
    for partition_report in report.partitions:
        _show(partition_report, now_ms)
    _show_ddls(report)
    if report.cut:
        click.echo(f"only the last {limit:,} messages were read; --limit reads more")


def _show(report: PartitionReport, now_ms: int) -> None:
    resolved = "no watermark"
    if report.resolved is not None:
        resolved = f"resolved {report.resolved} ({_age(now_ms - physical_ms(report.resolved))})"
    echo(
        f"topic {report.topic} partition {report.partition}   offsets {report.low}..{report.high}   {resolved}   "
        f"{report.messages:,} messages" + (f" from offset {report.begin}" if report.begin > report.low else "")
    )
    for name, ops in sorted(report.tables.items()):
        counts = "   ".join(f"{ops[op]:,} {word}" for op, word in WORDS.items() if op in ops)
        echo(f"  {name:<40} {counts}")
    if report.rows_without_ts:
        click.echo(
            f"  {report.rows_without_ts:,} rows have no commit_ts: canal-json without enable-tidb-extension has "
            f"neither commit_ts nor watermarks"
        )
    if report.undecodable:
        echo(f"  {report.undecodable:,} messages cannot be read; the first: {report.first_error}")


def _show_ddls(report: TopicReport) -> None:
    ddls = report.ddls
    if not ddls:
        return
    click.echo(f"{len(ddls)} DDLs")
    for source_ddl in ddls:
        query = " ".join(source_ddl.ddl.query.split())
        echo(f"  {source_ddl.ddl.commit_ts}   {query[:QUERY_WIDTH]}{'…' if len(query) > QUERY_WIDTH else ''}")


def _age(ms: int) -> str:
    if ms < 0:
        return "in the future"
    for size, word in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
        if ms >= 2 * size:
            return f"{ms // size} {word} ago"
    return f"{ms / 1000:.1f} s ago"
