"""The scheme registry: what a changefeed can read and write, and how configuration becomes pieces.

    kafka://   topics of TiCDC    ─┐                ┌─ delta://      a lake of Delta tables
    tidb://    the log of a TiDB  ─┴─ any with any ─┼─ kafka://      topics, as TiCDC writes them
                                                    └─ callback://   a Python function

A new source or sink is a folder of its own, its address and parameters in app/config/, and one entry here.  What a
pair cannot do follows from the two entries (app/config/pair.py).  Factories import what they make when they are
called: reading a configuration needs neither Spark nor Kafka.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidegate.app.config.callback_sink import CALLBACK_REFUSED, CALLBACK_SINK, CallbackTarget, parse_callback
from tidegate.app.config.delta_sink import (
    DELTA_KEYS,
    DELTA_REFUSED,
    DELTA_SINK,
    EMBEDDED,
    ICEBERG,
    DeltaTarget,
    parse_delta,
)
from tidegate.app.config.entry import SinkEntry, SourceEntry, is_landed
from tidegate.app.config.feed import FeedConfig
from tidegate.app.config.kafka_source import KAFKA_SOURCE, KafkaSource, parse_source
from tidegate.app.config.kafka_target import KAFKA_KEYS, KAFKA_REFUSED, KAFKA_TARGET, KafkaTarget, parse_target
from tidegate.app.config.tidb_source import TIDB_KEYS, TIDB_SOURCE, TidbSource, parse_tidb
from tidegate.feed.column_selector import ColumnSelectors, SelectorRule
from tidegate.feed.dispatch_rule import DispatchRule
from tidegate.feed.split import SplitPolicy

if TYPE_CHECKING:
    from tidegate.app.checkpoints import StateFiles
    from tidegate.app.engine import Feed
    from tidegate.app.segment_log import SegmentLog
    from tidegate.app.status import StatusFile
    from tidegate.changelog.landing import BatchLoop
    from tidegate.changelog.source import LandedSource
    from tidegate.feed.ports import Sink, Source
    from tidegate.feed.retention import Limits
    from tidegate.schema.stored.snapshot import TableVersion
    from tidegate.sink.delta.options import DeltaOptions
    from tidegate.sink.delta.sink import DeltaSink
    from tidegate.sink.kafka.target import TopicTarget
    from tidegate.source.tidb.changes import MountOptions

E = TypeVar("E", SourceEntry, SinkEntry)

READER_GRACE_MS: Final = 60_000
"""How long files that left a changelog stay for tasks that still read them, where only the feed itself reads it."""


def _land_topics(config: FeedConfig, home: str) -> "BatchLoop":
    """Return the landing of topics into the changelog of `home`."""
    from tidegate.app.topics import topics_of
    from tidegate.source.kafka.land import Landing

    assert isinstance(config.source, KafkaSource)
    accept = config.table_filter().matches
    return Landing(topics_of(config.source), home, config.name, accept=accept, events=config.events)


def _log_of(config: FeedConfig) -> "tuple[SegmentLog, MountOptions, bool]":
    """Return the change log, how its rows are mounted, and whether DDLs have TiCDC's texts."""
    from tidegate.app.segment_log import SegmentLog
    from tidegate.source.tidb.changes import MountOptions

    source = config.source
    assert isinstance(source, TidbSource)
    mount = MountOptions(source.force_replicate, source.verify, source.refuse_corrupt)
    return SegmentLog(Path(source.directory)), mount, source.ticdc_texts


def _land_log(config: FeedConfig, home: str) -> "BatchLoop":
    """Return the landing of a change log into the changelog of `home`."""
    from tidegate.app.log_safe_points import safe_point_name
    from tidegate.app.segment_log import create_statements
    from tidegate.source.tidb.land import LogLanding

    sink = entries_of(config)[1]
    log, mount, ticdc_texts = _log_of(config)
    return LogLanding(
        log,
        home,
        config.name,
        rules=config.table_filter(),
        definitions=create_statements,
        mount=mount,
        ticdc_texts=ticdc_texts,
        events=config.events,
        start_ts=config.start_ts,
        complete=sink.needs_whole_tables(config.sink),
        hold_as=safe_point_name(config.name, home),
        check=partial(sink.check_tables, config),
    )


def _check_lake(config: FeedConfig, tables: "Iterable[TableVersion]") -> None:
    """Raise ColumnSelectorFailed for column selectors that do not fit a table."""
    from tidegate.schema.stored.table import table_info
    from tidegate.sink.delta.selection import stored_definition

    options = delta_options(config)
    for table in tables:
        stored_definition(table_info(table.stored, table.schema, table.version), options)


def _open_log(config: FeedConfig, home: str) -> "Source":
    """Return a change log that is read as it is."""
    from tidegate.app.log_safe_points import safe_point_name
    from tidegate.source.tidb.source import LogSource

    log, mount, ticdc_texts = _log_of(config)
    return LogSource(
        log,
        safe_point_name(config.name, home),
        rules=config.table_filter(),
        mount=mount,
        ticdc_texts=ticdc_texts,
        events=config.events,
        start_ts=config.start_ts,
    )


def _open_topics(config: FeedConfig) -> "Sink[Any]":
    """Return topics that are written."""
    from tidegate.sink.kafka.sink import KafkaSink

    assert isinstance(config.sink, KafkaTarget)
    target = topic_target(
        config.sink,
        dispatchers=config.dispatchers,
        selectors=config.selectors,
        case_sensitive=config.case_sensitive,
    )
    force = entries_of(config)[0].brings_keyless(config.source)
    return KafkaSink(target, checkpoints_of(config), rules=config.table_filter(), force=force)


def _open_callback(config: FeedConfig) -> "Sink[Any]":
    """Return a function of the user's own."""
    from tidegate.sink.callback.sink import CallbackSink

    assert isinstance(config.sink, CallbackTarget)
    return CallbackSink(config.sink.callback(), checkpoints_of(config))


def _by_scheme(*entries: E) -> Mapping[str, E]:
    return {entry.scheme: entry for entry in entries}


SOURCES: Final = _by_scheme(
    SourceEntry(
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
    SourceEntry(
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
        brings_keyless=lambda source: source.force_replicate,
        open=_open_log,
    ),
)
"""What can be read, by the scheme of its address."""

SINKS: Final = _by_scheme(
    SinkEntry(
        scheme="delta",
        aliases=(ICEBERG,),
        about="a lake of Delta tables",
        example="delta:///srv/lake",
        params=DELTA_SINK,
        parse=lambda uri, document: parse_delta(uri, document.section("sink.delta-config.")),
        address=DeltaTarget,
        open=lambda config: delta_sink(config),  # noqa: PLW0108  it stands further down
        keeps_progress=True,
        reads_changelog=True,
        zone_of=lambda sink: sink.time_zone,
        renders_times=False,
        needs_whole_tables=lambda sink: sink.mode == "replica",
        check_tables=_check_lake,
        keys=DELTA_KEYS,
        refused=DELTA_REFUSED,
        warnings=DeltaTarget.warnings,
    ),
    SinkEntry(
        scheme="kafka",
        about="topics, as TiCDC writes them",
        example="kafka://127.0.0.1:9092/shop-out?protocol=open-protocol",
        params=KAFKA_TARGET,
        parse=parse_target,
        address=KafkaTarget,
        open=_open_topics,
        keeps_progress=False,
        reads_changelog=False,
        zone_of=lambda sink: sink.options.time_zone,
        renders_times=True,
        keys=KAFKA_KEYS,
        refused=KAFKA_REFUSED,
        needs_types=KafkaTarget.needs_types,
        warnings=KafkaTarget.warnings,
    ),
    SinkEntry(
        scheme="callback",
        about="a Python function",
        example="callback://shop.sinks/write",
        params=CALLBACK_SINK,
        parse=parse_callback,
        address=CallbackTarget,
        open=_open_callback,
        refused=CALLBACK_REFUSED,
        keeps_progress=False,
        reads_changelog=False,
    ),
)
"""What can be written, by the scheme of its address."""


def entries_of(config: FeedConfig) -> tuple[SourceEntry, SinkEntry]:
    """Return the entries of a changefeed's source and sink."""
    source = next(entry for entry in SOURCES.values() if isinstance(config.source, entry.address))
    return source, next(entry for entry in SINKS.values() if isinstance(config.sink, entry.address))


def home_of(config: FeedConfig) -> str:
    """Return where a changefeed keeps what is its own: its lake, or a place below the state directory."""
    entry = entries_of(config)[1]
    if entry.keeps_progress:
        return entry.home(config.sink)
    assert config.state_dir is not None
    return f"{config.state_dir}/{config.name}"


def checkpoints_of(config: FeedConfig) -> "StateFiles":
    """Return where the checkpoint is kept of a changefeed whose sink keeps none."""
    from tidegate.app.checkpoints import checkpoints_in

    assert config.state_dir is not None
    identity = config.sink.identity
    return checkpoints_in(config.state_dir, config.name, source=config.source_uri, target=identity)


def delta_options(config: FeedConfig) -> "DeltaOptions":
    """Return what the Delta sink of a changefeed is asked to do."""
    from tidegate.sink.delta.options import DeltaOptions

    sink = config.sink
    assert isinstance(sink, DeltaTarget)
    return DeltaOptions(
        root=sink.path,
        feed=config.name,
        time_zone=config.time_zone,
        zero_date=sink.zero_date,  # type: ignore[arg-type]
        schema_change=sink.schema_change,  # type: ignore[arg-type]
        mode=sink.mode,  # type: ignore[arg-type]
        column_mapping=sink.column_mapping,  # type: ignore[arg-type]
        iceberg=sink.iceberg == "on",
        rules=config.rules,
        case_sensitive=config.case_sensitive,
        event_rules=config.event_rules,
        events_since=config.events.since,
        selectors=config.selectors,
    )


def delta_sink(config: FeedConfig) -> "DeltaSink":
    """Return the Delta sink of a changefeed."""
    from tidegate.sink.delta.iceberg.embedded import EmbeddedCatalog
    from tidegate.sink.delta.iceberg.foreign import RestCatalog
    from tidegate.sink.delta.iceberg.rest import RestClient
    from tidegate.sink.delta.lake_upkeep import LakeUpkeep
    from tidegate.sink.delta.sink import DeltaSink, NameCatalog

    sink, options = config.sink, delta_options(config)
    assert isinstance(sink, DeltaTarget)
    catalogs: list[NameCatalog] = []
    if "://" not in sink.path:
        catalogs += [EmbeddedCatalog(options, shows=options.iceberg and sink.catalog == EMBEDDED)]
    if sink.rest_catalog:
        catalogs += [RestCatalog(options, RestClient(sink.catalog, sink.catalog_warehouse, sink.catalog_token_file))]
    upkeep = None
    if sink.upkeep != "off":
        upkeep = LakeUpkeep(options, limits_of(sink), interval_s=sink.upkeep_interval_ms / 1000, notes=True)
    return DeltaSink(
        options,
        workers=sink.worker_count,
        flush_s=sink.flush_interval_ms / 1000,
        upkeep=upkeep,
        parks=sink.table_error == "park",
        catalogs=catalogs,
    )


def limits_of(sink: DeltaTarget) -> "Limits":
    """Return the limits that a lake's address sets."""
    from tidegate.feed.retention import Limits

    return Limits(
        snapshot_ms=sink.snapshot_retention_ms,
        recover_ms=sink.recover_retention_ms,
        changelog_ms=sink.changelog_retention_ms,
    )


def feed_of(config: FeedConfig, sink: "Sink[Any] | None" = None) -> "Feed":
    """Return the pieces of a changefeed; `sink` stands for the one that its address names."""
    from tidegate.app.engine import Feed
    from tidegate.feed.retry_policy import RetryPolicy

    rules = config.table_filter()
    return Feed(
        config.name,
        source_of(config),
        entries_of(config)[1].open(config) if sink is None else sink,
        accept=rules.matches,
        takes=rules.takes_ddl,
        drops=config.events.ddls(),
        patience=RetryPolicy(config.source.max_retry, config.stuck_ms / 1000),
    )


def source_of(config: FeedConfig) -> "Source":
    """Return the source of a changefeed, behind a changelog where it has no order or the sink reads what has landed."""
    source, sink = entries_of(config)
    if source.open is not None and not is_landed(source, sink):
        return source.open(config, home_of(config))
    return landed_source(config)


def landed_source(config: FeedConfig) -> "LandedSource":
    """Return the source of a changefeed behind a changelog."""
    from tidegate.changelog.changelog import changelog_uri
    from tidegate.changelog.source import LandedSource
    from tidegate.feed.retention import Limits

    source, sink = entries_of(config)
    home = home_of(config)
    limits = None if sink.reads_changelog else Limits(changelog_ms=0, reader_grace_ms=READER_GRACE_MS)
    return LandedSource(partial(source.land, config, home), changelog_uri(home), limits=limits)


def status_of(config: FeedConfig) -> "StatusFile":
    """Return where a changefeed keeps its reports: with its progress."""
    from tidegate.app.status import LAKE_FILE, StatusFile

    if config.state_dir is None or entries_of(config)[1].keeps_progress:
        place, name = f"{home_of(config).rstrip('/')}/_tidegate", LAKE_FILE
    else:
        place, name = config.state_dir, config.name
    return StatusFile(place, name, config.name, source=config.source_uri, sink=config.sink_uri)


def topic_target(
    sink: KafkaTarget,
    *,
    dispatchers: Sequence[DispatchRule] = (),
    selectors: Sequence[SelectorRule] = (),
    case_sensitive: bool = False,
) -> "TopicTarget":
    """Return what is written to topics, and to whom: a value that travels into tasks."""
    from tidegate.sink.kafka.target import TopicTarget
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
