"""`tidegate run --source-uri tidb:///DIR --sink-uri kafka://…`: the changes of a TiDB into topics."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

import click
import msgspec

from tidegate.app.config.feed import FeedConfig
from tidegate.app.config.kafka_target import KafkaTarget
from tidegate.app.config.load import load
from tidegate.app.config.tidb_source import TidbSource
from tidegate.app.config.uri import scheme_of
from tidegate.app.progress import Progress
from tidegate.app.segment_log import SegmentLog
from tidegate.app.stop_signals import stop_on_signals
from tidegate.app.topic_feed import TopicFeed, TopicFeedConfig
from tidegate.app.topic_progress import TopicMeter, TopicProgress, line
from tidegate.app.wiring import topic_target
from tidegate.feed.patience import Patience
from tidegate.model.errors import SinkError, UnsupportedError, UriInvalid
from tidegate.source.tidb.transactions import MountOptions

__all__ = ["RunWords", "SparkTasks", "feed_config", "run_tidb", "run_topics", "topic_feed_config"]


@dataclass(frozen=True, slots=True)
class RunWords:
    """What the command line says."""

    source_uri: str
    sink_uri: str | None
    state_dir: Path | None
    path: str | None = None
    rules: tuple[str, ...] = ()
    name: str | None = None
    start_ts: int | None = None
    target_ts: int | None = None


class SparkTasks:
    """Jobs as tasks of Spark, which starts with the first of them."""

    def __init__(self, spark: Any = None) -> None:
        self._spark = spark

    @property
    def tasks(self) -> int:
        """How many run at the same time."""
        return int(self._session().sparkContext.defaultParallelism)

    def __call__(self, work: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
        """The answers of `work`. Raises the first error of ours, SinkError for a task that ended without an answer."""
        from tidegate.spark.tasks import SPARK_FAILURES, reason, run_tasks

        try:
            return run_tasks(self._session(), work, jobs)
        except SPARK_FAILURES as failure:
            raise SinkError(f"a task of Spark failed: {reason(failure)}") from failure

    def _session(self) -> Any:
        if self._spark is None:
            from tidegate.spark.session import FEED_HEAP, session

            self._spark = session(driver_memory=FEED_HEAP)
        return self._spark


def run_tidb(config: FeedConfig, *, idle_s: float | None, as_json: bool) -> None:
    """Run the changefeed until it is told to stop, or there is nothing more to do."""
    from tidegate.app import logging

    logging.configure(json=as_json)
    for warning in config.warnings:
        click.echo(f"warning: {warning}", err=True)
    if not as_json:
        click.echo(f"changefeed {config.name}: {config.source_uri} -> {config.sink_uri}", err=True)
    with stop_on_signals() as stop:
        _run(topic_feed_config(config), stop, idle_s=idle_s, as_json=as_json)


def run_topics(
    feed: FeedConfig,
    spark: Any,
    on_progress: Callable[[Progress], None],
    stop: Event,
    *,
    until: int | None,
    idle_s: float | None,
) -> Progress:
    """Run a changefeed into topics as `tidegate.Changefeed` does any other; reports are those of a lake's feed."""
    if not isinstance(feed.source, TidbSource):
        raise UnsupportedError("from topic to topic: `tidegate run` does it; give it the same addresses")
    config = topic_feed_config(feed if until is None else replace(feed, target_ts=until))
    meter = TopicMeter(lambda told: on_progress(_as_progress(told)))
    return _as_progress(TopicFeed(config, SparkTasks(spark), meter, stop).run(idle_s=idle_s))


def _as_progress(told: TopicProgress) -> Progress:
    ended = told.state in {"finished", "stopped", "failed"}
    return Progress(
        "stopped" if ended else "running",
        rows=told.rows,
        messages=told.messages,
        frontier_ts=told.frontier_ts or None,
        checkpoint_ts=told.checkpoint_ts or None,
        ddls=told.ddls,
        error=told.error,
    )


def feed_config(words: RunWords) -> TopicFeedConfig:
    """Return the changefeed that is meant. Raises ConfigErrors."""
    if scheme_of(words.sink_uri or "") != "kafka":
        raise UriInvalid("sink-uri: from tidb:// to a topic: kafka://HOST:PORT/TOPIC?protocol=open-protocol|canal-json")
    return topic_feed_config(
        load(
            words.path,
            source_uri=words.source_uri,
            sink_uri=words.sink_uri,
            name=words.name,
            rules=words.rules,
            start_ts=words.start_ts,
            target_ts=words.target_ts,
            state_dir=words.state_dir,
        )
    )


def topic_feed_config(config: FeedConfig) -> TopicFeedConfig:
    """Return the loop's own form of a changefeed from a change log into topics."""
    source, sink, state = config.source, config.sink, config.state_dir
    assert isinstance(source, TidbSource)
    assert isinstance(sink, KafkaTarget)
    assert state is not None
    return TopicFeedConfig(
        name=config.name,
        log=SegmentLog(Path(source.directory)),
        source=source.directory,
        target=topic_target(
            sink, dispatchers=config.dispatchers, selectors=config.selectors, case_sensitive=config.case_sensitive
        ),
        rules=config.table_filter(),
        state=state,
        events=config.events,
        mount=MountOptions(source.force_replicate, source.verify, source.refuse_corrupt),
        patience=Patience(source.max_retry, config.stuck_ms / 1000 or None),
        warnings=config.warnings,
        start_ts=config.start_ts,
        target_ts=config.target_ts,
    )


def _run(config: TopicFeedConfig, stop: Event, *, idle_s: float | None, as_json: bool) -> TopicProgress:
    def show(progress: TopicProgress) -> None:
        if as_json:
            click.echo(msgspec.json.encode(progress).decode())
        else:
            click.echo(line(progress), err=True)

    return TopicFeed(config, SparkTasks(), TopicMeter(show), stop).run(idle_s=idle_s)
