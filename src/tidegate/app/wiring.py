"""The scheme registry: what a changefeed can read and write, and how configuration becomes pieces.

    kafka://   topics of TiCDC       ─┐                  ┌─ delta://   a lake of Delta tables
    tidb://    the log of a TiDB     ─┴─ any with any ───┴─ kafka://   topics, as TiCDC writes them

A new source or sink is a folder of its own, its address and parameters in app/config/, and one entry here.  What a
pair cannot do follows from the two entries (app/config/pair.py).  Factories import what they make when they are
called: reading a configuration needs neither Spark nor Kafka.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.app.config.delta_sink import DELTA_KEYS, DELTA_REFUSED, DELTA_SINK, DeltaSink, parse_sink
from tidegate.app.config.entry import SinkEntry, SourceEntry, is_landed
from tidegate.app.config.feed import FeedConfig
from tidegate.app.config.kafka_source import KAFKA_SOURCE, KafkaSource, parse_source
from tidegate.app.config.kafka_target import KAFKA_KEYS, KAFKA_REFUSED, KAFKA_TARGET, KafkaTarget, parse_target
from tidegate.app.config.tidb_source import TIDB_KEYS, TIDB_SOURCE, TidbSource, parse_tidb
from tidegate.feed.column_selector import ColumnSelectors, SelectorRule
from tidegate.feed.dispatch_rule import DispatchRule
from tidegate.feed.split import SplitPolicy

if TYPE_CHECKING:
    from tidegate.app.engine import Feed
    from tidegate.app.status import StatusFile
    from tidegate.app.topic_target import TopicTarget
    from tidegate.changelog.landing import BatchLoop
    from tidegate.feed.retention import Limits
    from tidegate.schema.stored_snapshot import TableVersion
    from tidegate.sink.delta.options import DeltaOptions
    from tidegate.sink.delta.sink import DeltaSink as DeltaTables

__all__ = [
    "SINKS",
    "SOURCES",
    "delta_options",
    "delta_sink",
    "entries_of",
    "feed_of",
    "landing",
    "lands",
    "limits_of",
    "status_of",
    "topic_target",
]


def _land_topics(config: FeedConfig, home: str) -> "BatchLoop":
    """Return the landing of topics into the changelog of `home`."""
    from tidegate.app.topics import topics_of
    from tidegate.source.kafka.land import Landing

    assert isinstance(config.source, KafkaSource)
    accept = config.table_filter().matches
    return Landing(topics_of(config.source), home, config.name, accept=accept, events=config.events)


def _land_log(config: FeedConfig, home: str) -> "BatchLoop":
    """Return the landing of a change log into the changelog of `home`."""
    from tidegate.app.definitions import create_statements
    from tidegate.app.log_holds import hold_name
    from tidegate.app.segment_log import SegmentLog
    from tidegate.source.tidb.land import LogLanding
    from tidegate.source.tidb.transactions import MountOptions

    source = config.source
    assert isinstance(source, TidbSource)
    return LogLanding(
        SegmentLog(Path(source.directory)),
        home,
        config.name,
        rules=config.table_filter(),
        definitions=create_statements,
        mount=MountOptions(source.force_replicate, source.verify, source.refuse_corrupt),
        events=config.events,
        start_ts=config.start_ts,
        complete=entries_of(config)[1].needs_whole_tables(config.sink),
        hold_as=hold_name(config.name, home),
        check=partial(entries_of(config)[1].check_tables, config),
    )


def _check_lake(config: FeedConfig, tables: "Iterable[TableVersion]") -> None:
    """Raise ColumnSelectorFailed for column selectors that do not fit a table."""
    from tidegate.schema.stored_table import table_info
    from tidegate.sink.delta.selection import stored_definition

    options = delta_options(config)
    for table in tables:
        stored_definition(table_info(table.stored, table.schema, table.version), options)


SOURCES: Final[Mapping[str, SourceEntry]] = {
    "kafka": SourceEntry(
        scheme="kafka",
        about="topics that TiCDC writes",
        example="kafka://127.0.0.1:9092/shop?protocol=open-protocol",
        params=KAFKA_SOURCE,
        parse=lambda uri, document: parse_source(uri, document.section("source.")),
        address=KafkaSource,
        land=_land_topics,
        ordered=False,
        tells_start_ts=False,
        moments=False,
        zone_of=lambda source: source.time_zone,
        start_ts_refused="a topic begins at the offsets of source-uri parameter start",
        has_old_values=lambda source: source.protocol != "open-protocol",
        has_types=lambda source: source.protocol != "open-protocol",
        warnings=KafkaSource.warnings,
    ),
    "tidb": SourceEntry(
        scheme="tidb",
        about="the change log of a TiDB",
        example="tidb://./log",
        params=TIDB_SOURCE,
        parse=lambda uri, document: parse_tidb(uri, document.section("source."), document.flat),
        address=TidbSource,
        land=_land_log,
        ordered=True,
        tells_start_ts=True,
        moments=True,
        keys=TIDB_KEYS,
        verifies=lambda source: source.verify,
    ),
}
"""What can be read, by the scheme of its address."""

SINKS: Final[Mapping[str, SinkEntry]] = {
    "delta": SinkEntry(
        scheme="delta",
        about="a lake of Delta tables",
        example="delta:///srv/lake",
        params=DELTA_SINK,
        parse=lambda uri, document: parse_sink(uri, document.section("sink.delta-config.")),
        address=DeltaSink,
        keeps_progress=True,
        reads_changelog=True,
        zone_of=lambda sink: sink.time_zone,
        renders_times=False,
        needs_whole_tables=lambda sink: sink.mode == "replica",
        check_tables=_check_lake,
        keys=DELTA_KEYS,
        refused=DELTA_REFUSED,
    ),
    "kafka": SinkEntry(
        scheme="kafka",
        about="topics, as TiCDC writes them",
        example="kafka://127.0.0.1:9092/shop-out?protocol=open-protocol",
        params=KAFKA_TARGET,
        parse=parse_target,
        address=KafkaTarget,
        keeps_progress=False,
        reads_changelog=False,
        zone_of=lambda sink: sink.options.time_zone,
        renders_times=True,
        keys=KAFKA_KEYS,
        refused=KAFKA_REFUSED,
        needs_types=KafkaTarget.needs_types,
        warnings=KafkaTarget.warnings,
    ),
}
"""What can be written, by the scheme of its address."""


def entries_of(config: FeedConfig) -> tuple[SourceEntry, SinkEntry]:
    """Return the entries of a changefeed's source and sink."""
    source = next(entry for entry in SOURCES.values() if isinstance(config.source, entry.address))
    return source, next(entry for entry in SINKS.values() if isinstance(config.sink, entry.address))


def lands(config: FeedConfig) -> bool:
    """Return True if the changefeed's changes go through a changelog."""
    return is_landed(*entries_of(config))


def landing(config: FeedConfig, options: "DeltaOptions") -> "BatchLoop":
    """Return what appends the changes of a changefeed's source to the changelog beside its lake."""
    return entries_of(config)[0].land(config, options.root)


def delta_options(config: FeedConfig) -> "DeltaOptions":
    """Return what the Delta sink of a changefeed is asked to do."""
    from tidegate.sink.delta.options import DeltaOptions

    sink = config.sink
    assert isinstance(sink, DeltaSink)
    return DeltaOptions(
        root=sink.path,
        feed=config.name,
        time_zone=config.time_zone,
        zero_date=sink.zero_date,  # type: ignore[arg-type]
        schema_change=sink.schema_change,  # type: ignore[arg-type]
        mode=sink.mode,  # type: ignore[arg-type]
        rules=config.rules,
        case_sensitive=config.case_sensitive,
        event_rules=config.event_rules,
        events_since=config.events.since,
        selectors=config.selectors,
    )


def delta_sink(config: FeedConfig) -> "DeltaTables":
    """Return the Delta sink of a changefeed."""
    from tidegate.sink.delta.lake_upkeep import LakeUpkeep
    from tidegate.sink.delta.sink import DeltaSink as DeltaTables

    sink, options = config.sink, delta_options(config)
    assert isinstance(sink, DeltaSink)
    upkeep = None
    if sink.upkeep != "off":
        upkeep = LakeUpkeep(options, limits_of(sink), interval_s=sink.upkeep_interval_ms / 1000, notes=True)
    return DeltaTables(options, workers=sink.worker_count, flush_s=sink.flush_interval_ms / 1000, upkeep=upkeep)


def limits_of(sink: DeltaSink) -> "Limits":
    """Return the limits that a lake's address sets."""
    from tidegate.feed.retention import Limits

    return Limits(
        snapshot_ms=sink.snapshot_retention_ms,
        recover_ms=sink.recover_retention_ms,
        changelog_ms=sink.changelog_retention_ms,
    )


def feed_of(config: FeedConfig) -> "Feed":
    """Return the pieces of a changefeed into a lake."""
    from tidegate.app.engine import Feed
    from tidegate.changelog.source import LandedSource
    from tidegate.feed.patience import Patience

    sink = delta_sink(config)
    source = LandedSource(partial(landing, config, sink.options), sink.options.changelog_uri)
    rules, patience = config.table_filter(), Patience(config.source.max_retry, config.stuck_ms / 1000)
    drops = config.events.ddls()
    return Feed(config.name, source, sink, rules.matches, takes=rules.takes_ddl, drops=drops, patience=patience)


def status_of(config: FeedConfig) -> "StatusFile":
    """Return where a changefeed keeps its reports."""
    from tidegate.app.status import LAKE_FILE, StatusFile

    control = delta_options(config).control_uri
    return StatusFile(control, LAKE_FILE, config.name, source=config.source_uri, sink=config.sink_uri)


def topic_target(
    sink: KafkaTarget,
    *,
    dispatchers: Sequence[DispatchRule] = (),
    selectors: Sequence[SelectorRule] = (),
    case_sensitive: bool = False,
) -> "TopicTarget":
    """Return what is written to topics, and to whom: a value that travels into tasks."""
    from tidegate.app.topic_target import TopicTarget
    from tidegate.sink.kafka.writer import NewTopics

    new_topics = NewTopics(sink.partition_num or NewTopics().partitions, sink.replication_factor)
    return TopicTarget(
        topic=sink.topic,
        options=sink.options,
        client=sink.producer_config(),
        rules=tuple(dispatchers),
        case_sensitive=case_sensitive,
        split=SplitPolicy(unique_keys=not sink.raw_change_event, newarch=sink.options.newarch),
        new_topics=new_topics if sink.auto_create_topic else None,
        partition_num=sink.partition_num,
        selectors=ColumnSelectors.of(selectors, case_sensitive=case_sensitive),
    )
