"""`tidegate run --source-uri tidb:///DIR --sink-uri kafka://…`: the changes of a TiDB into topics.

    tidb:///var/tidb/log      a directory of segments that an upstream writes (tidb/segment.py)
    tidb://./log              the same from the working directory

CONFIG is a changefeed file as TiCDC has them: filter rules, event filters, dispatchers, force-replicate, integrity,
[sink], and `uri` under [source].  --state-dir keeps the checkpoint.
"""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

import click
import msgspec

from tidegate.app.config import SinkFile, feed_id, sink_file
from tidegate.app.event_expression import event_filter
from tidegate.app.params import FEED, Given, read_all
from tidegate.app.progress import Progress
from tidegate.app.run_cmd import stop_on_signals
from tidegate.app.segment_log import SegmentLog
from tidegate.app.tidb_address import parse_tidb
from tidegate.app.topic_feed import TopicFeed, TopicFeedConfig
from tidegate.app.topic_keys import idle_keys, refuse_keys
from tidegate.app.topic_progress import TopicMeter, TopicProgress, line
from tidegate.app.topic_target import topic_target
from tidegate.app.uri import mask_uri
from tidegate.feed.dispatch_rule import complaints
from tidegate.feed.filter import DEFAULT_RULES, TableFilter
from tidegate.feed.patience import Patience
from tidegate.model.errors import ConfigError, SinkError, UriInvalid
from tidegate.sink.kafka.target import TopicTarget
from tidegate.source.tidb.transactions import MountOptions

__all__ = ["RunWords", "SparkTasks", "feed_config", "run_tidb", "run_topics"]


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


def run_tidb(words: RunWords, *, idle_s: float | None, as_json: bool) -> None:
    """Run the changefeed until it is told to stop, or there is nothing more to do."""
    from tidegate.app import logging

    config = feed_config(words)
    logging.configure(json=as_json)
    for warning in config.warnings:
        click.echo(f"warning: {warning}", err=True)
    if not as_json:
        click.echo(f"changefeed {config.name}: {config.source} -> {mask_uri(words.sink_uri or '')}", err=True)
    with stop_on_signals() as stop:
        _run(config, stop, idle_s=idle_s, as_json=as_json)


def run_topics(
    config: TopicFeedConfig,
    spark: Any,
    on_progress: Callable[[Progress], None],
    stop: Event,
    *,
    until: int | None,
    idle_s: float | None,
) -> Progress:
    """Run a changefeed into topics as `tidegate.Changefeed` does any other; reports are those of a lake's feed."""
    config = config if until is None else replace(config, target_ts=until)
    meter = TopicMeter(lambda told: on_progress(_as_progress(told)))
    return _as_progress(TopicFeed(config, SparkTasks(spark), meter, stop).run(idle_s=idle_s))


def _as_progress(told: TopicProgress) -> Progress:
    ended = told.state in {"finished", "stopped", "failed"}
    return Progress(
        "stopped" if ended else "running",
        rows_applied=told.rows,
        messages=told.messages,
        frontier=told.frontier_ts or None,
        checkpoint=told.checkpoint_ts or None,
        ddls_done=told.ddls,
        error=None if told.error is None else str(told.error),
    )


def feed_config(words: RunWords) -> TopicFeedConfig:
    """The changefeed that is meant. Raises ConfigErrors."""
    if not words.sink_uri or not words.sink_uri.startswith("kafka://"):
        raise UriInvalid("sink-uri: from tidb:// to a topic: kafka://HOST:PORT/TOPIC?protocol=open-protocol|canal-json")
    if words.state_dir is None:
        raise ConfigError("a changefeed from tidb:// keeps its checkpoint in a directory: give --state-dir")
    file = SinkFile({}) if words.path is None else sink_file(words.path)
    settings = {} if words.path is None else tomllib.loads(Path(words.path).read_text(encoding="utf-8"))
    refuse_keys(settings)
    integrity = {f"integrity.{key}": value for key, value in settings.get("integrity", {}).items()}
    source = parse_tidb(words.source_uri, {}, {**settings, **integrity})
    if source.verify and file.selectors:
        raise ConfigError("integrity-check-level compares whole rows, so column-selectors do not go with it")
    directory = Path(source.directory)
    target = topic_target(words.sink_uri, file)
    rules = words.rules or tuple(settings.get("filter", {}).get("rules", ())) or DEFAULT_RULES
    return TopicFeedConfig(
        name=feed_id(words.name or settings.get("changefeed-id"), target.topic, f"{directory} {target.topic}"),
        log=SegmentLog(directory),
        source=str(directory),
        target=target,
        rules=TableFilter.parse(rules, case_sensitive=file.case_sensitive),
        state=words.state_dir,
        events=event_filter(settings, case_sensitive=file.case_sensitive, time_zone=target.options.time_zone),
        mount=MountOptions(source.force_replicate, source.verify, source.refuse_corrupt),
        patience=_patience(source.max_retry, settings),
        warnings=_warnings(target, settings),
        start_ts=words.start_ts,
        target_ts=words.target_ts,
    )


def _run(config: TopicFeedConfig, stop: Event, *, idle_s: float | None, as_json: bool) -> TopicProgress:
    def show(progress: TopicProgress) -> None:
        if as_json:
            click.echo(msgspec.json.encode(progress).decode())
        else:
            click.echo(line(progress), err=True)

    return TopicFeed(config, SparkTasks(), TopicMeter(show), stop).run(idle_s=idle_s)


def _patience(quick: int, settings: dict[str, Any]) -> Patience:
    """Quick tries, then as long as changefeed-error-stuck-duration says."""
    given = {name: Given(name, settings[name]) for name in FEED if name in settings}
    fields, _ = read_all(FEED, given, ConfigError)
    stuck_ms = fields.get("stuck_ms")
    return Patience(quick) if stuck_ms is None else Patience(quick, int(str(stuck_ms)) / 1000 or None)


def _warnings(target: TopicTarget, settings: dict[str, Any]) -> tuple[str, ...]:
    told, idle = complaints(target.rules), idle_keys(settings)
    if idle:
        told = (*told, f"accepted without effect when a topic is written: {', '.join(idle)}")
    if target.options.protocol == "canal-json" and not target.options.enable_tidb_extension:
        return (*told, "canal-json without enable-tidb-extension has no watermarks and no commit_ts")
    return told
