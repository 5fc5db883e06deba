"""`tidegate topic inspect`: what stands in a changefeed's topics, before anything is set up.

$ tidegate topic inspect 'kafka://127.0.0.1:9092/shop?protocol=canal-json'

    topic shop partition 0   offsets 0..3964   resolved 470607235324313600 (2 s ago)   3,964 messages
      shop.orders            1,204 inserts   388 updates   91 deletes
    ...
    DDLs
      470607233549598720   CREATE DATABASE `shop`
"""

import time

import click
import msgspec

from tidegate.app.topics import kafka_topics
from tidegate.model.tso import physical_ms
from tidegate.source.kafka.inspect import PartitionReport, TopicReport, as_json, inspect

__all__ = ["topic"]

LIMIT = 200_000
WORDS = {"I": "inserts", "U": "updates", "D": "deletes"}
QUERY_WIDTH = 120


@click.group()
def topic() -> None:
    """Look into a Kafka topic."""


@topic.command("inspect")
@click.argument("uri", metavar="kafka://HOST:PORT/TOPIC?protocol=…")
@click.option(
    "--limit", type=click.IntRange(1), default=LIMIT, show_default=True, help="Read at most so many messages."
)
@click.option("--json", "as_json_", is_flag=True, help="Print JSON.")
def inspect_(uri: str, *, limit: int, as_json_: bool) -> None:
    """Show marks, watermarks, rows by table, DDLs and unreadable messages of topics."""
    report = inspect(kafka_topics(uri), limit)
    now_ms = time.time_ns() // 1_000_000
    if as_json_:
        click.echo(msgspec.json.encode(as_json(report, now_ms=now_ms)).decode())
        return
    for one in report.partitions:
        _show(one, now_ms)
    _show_ddls(report)
    if report.cut:
        click.echo(f"only the last {limit:,} messages were read; --limit reads more")


def _show(one: PartitionReport, now_ms: int) -> None:
    resolved = "no watermark"
    if one.resolved is not None:
        resolved = f"resolved {one.resolved} ({_age(now_ms - physical_ms(one.resolved))})"
    click.echo(
        f"topic {one.topic} partition {one.partition}   offsets {one.low}..{one.high}   {resolved}   "
        f"{one.messages:,} messages" + (f" from offset {one.begin}" if one.begin > one.low else "")
    )
    for name, ops in sorted(one.tables.items()):
        counts = "   ".join(f"{ops[op]:,} {word}" for op, word in WORDS.items() if op in ops)
        click.echo(f"  {name:<40} {counts}")
    if one.rows_without_ts:
        click.echo(
            f"  {one.rows_without_ts:,} rows carry no commit_ts: canal-json without enable-tidb-extension has no "
            "order and no watermarks"
        )
    if one.undecodable:
        click.echo(f"  {one.undecodable:,} messages cannot be read; the first: {one.first_error}")


def _show_ddls(report: TopicReport) -> None:
    ddls = report.ddls
    if not ddls:
        return
    click.echo(f"{len(ddls)} DDLs")
    for placed in ddls:
        query = " ".join(placed.ddl.query.split())
        click.echo(f"  {placed.ddl.commit_ts}   {query[:QUERY_WIDTH]}{'…' if len(query) > QUERY_WIDTH else ''}")


def _age(ms: int) -> str:
    if ms < 0:
        return "in the future"
    for size, word in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
        if ms >= 2 * size:
            return f"{ms // size} {word} ago"
    return f"{ms / 1000:.1f} s ago"
