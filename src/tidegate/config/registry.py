"""The scheme registry: what a changefeed can read and write, and how configuration becomes pieces.

    kafka://   topics of TiCDC    ─┐                ┌─ delta://      a lake of Delta tables
    tidb://    the log of a TiDB  ─┼─ any with any ─┼─ kafka://      topics, as TiCDC writes them
    changelog://  what has landed ─┘                ├─ mysql://      MySQL, MariaDB or TiDB
                                                    ├─ redis://      a Redis, or a cluster
                                                    ├─ search+tantivy://, opensearch://  search indexes
                                                    ├─ http://       an address that is called
                                                    ├─ file://       files as TiCDC's storage sink has them, s3:// ..
                                                    ├─ metrics://    counters, gauges, histograms
                                                    └─ callback://   a Python function

A new source or sink is a folder of its own, its address and parameters in app/config/, and one entry here.  What a
pair cannot do follows from the two entries (config/pair.py).  Factories import what they make when they are
called: reading a configuration needs neither Spark nor Kafka.
"""

from collections.abc import Mapping
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidegate.config.callback_sink import CALLBACK_REFUSED, CALLBACK_SINK, CallbackTarget, parse_callback
from tidegate.config.changelog_source import CHANGELOG_SOURCE, LandedChanges, parse_changelog
from tidegate.config.check_source import check_changelog, check_files, check_log, check_topics
from tidegate.config.delta_sink import (
    DELTA_KEYS,
    DELTA_REFUSED,
    DELTA_SINK,
    ICEBERG,
    DeltaTarget,
    parse_delta,
)
from tidegate.config.entry import SinkEntry, SourceEntry, is_landed
from tidegate.config.feed import FeedConfig
from tidegate.config.file_params import store_params
from tidegate.config.kafka_source import KAFKA_SOURCE, KafkaSource, parse_source
from tidegate.config.kafka_target import KAFKA_KEYS, KAFKA_REFUSED, KAFKA_TARGET, KafkaTarget, parse_target
from tidegate.config.local_name import store_host
from tidegate.config.metrics_sink import MetricsTarget, metrics_entry
from tidegate.config.redis_sink import redis_entry
from tidegate.config.refused import NO_WRITER
from tidegate.config.search_sink import search_entries
from tidegate.config.sql_target import SQL_KEYS, SQL_REFUSED, SQL_SINK, SqlAddress, parse_sql
from tidegate.config.storage_source import StorageSource, files_entry
from tidegate.config.storage_target import StorageTarget, storage_entry
from tidegate.config.targets import check_lake, delta_sink, topic_target
from tidegate.config.tidb_source import TIDB_KEYS, TIDB_SOURCE, TidbSource, parse_tidb
from tidegate.config.uri import declare
from tidegate.config.webhook_target import (
    WEBHOOK_KEYS,
    WEBHOOK_REFUSED,
    WEBHOOK_SECTION,
    WEBHOOK_SINK,
    WebhookTarget,
    parse_webhook,
)
from tidegate.engine.event_filter import EventFilter
from tidegate.source.upstream_address import PARAMETERS as UPSTREAM_PARAMS

if TYPE_CHECKING:
    from tidegate.changelog.source import BatchLoop, LandedSource
    from tidegate.config.status import StatusFile
    from tidegate.engine.checkpoints import StateFiles
    from tidegate.engine.loop import Feed
    from tidegate.engine.ports import Sink, Source
    from tidegate.schema.stored.snapshot import StoredSnapshot
    from tidegate.source.tidb.changes import MountOptions
    from tidegate.source.tidb.segment import SegmentLog

E = TypeVar("E", SourceEntry, SinkEntry)

READER_GRACE_MS: Final = 60_000
_APART: Final = "tidegate.apart"
"""Entry points that refuse a database whose changes would come back in the log: the embedded TiDB knows its own."""
"""How long files that left a changelog stay for tasks that still read them, where only the feed itself reads it."""


def _land_topics(config: FeedConfig, home: str) -> "BatchLoop":
    """Return the landing of topics into the changelog of `home`."""
    from tidegate.config.topics import topics_of
    from tidegate.source.kafka.land import Landing

    assert isinstance(config.source, KafkaSource)
    accept = config.table_filter().matches
    return Landing(topics_of(config.source), home, config.name, accept=accept, events=config.events)


def _land_files(config: FeedConfig, home: str) -> "BatchLoop":
    """Return the landing of files into the changelog of `home`."""
    from tidegate.source.storage.land import StorageLanding

    assert isinstance(config.source, StorageSource)
    accept = config.table_filter().matches
    return StorageLanding(config.source.options(), home, config.name, accept=accept, events=config.events)


def log_of(config: FeedConfig) -> "tuple[SegmentLog, MountOptions, bool]":
    """Return the change log, how its rows are mounted, and whether DDLs have TiCDC's texts."""
    from tidegate.source.tidb.changes import MountOptions
    from tidegate.source.tidb.segment import SegmentLog

    source = config.source
    assert isinstance(source, TidbSource)
    keeps = entries_of(config)[1].keeps_keyless
    mount = MountOptions(source.force_replicate, source.verify, source.refuse_corrupt, source.bdr, keeps)
    return SegmentLog(Path(source.directory)), mount, source.ticdc_texts


def _land_log(config: FeedConfig, home: str) -> "BatchLoop":
    """Return the landing of a change log into the changelog of `home`."""
    from tidegate.source.tidb.land import LogLanding
    from tidegate.source.tidb.segment import create_statements, safe_point_name

    sink = entries_of(config)[1]
    log, mount, ticdc_texts = log_of(config)
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


def log_schema(config: FeedConfig) -> "StoredSnapshot":
    """Return the schema of a change log where a changefeed of it begins; an empty one while the log has not come so
    far. Raises HistoryLost."""
    from tidegate.schema.stored.snapshot import StoredSnapshot
    from tidegate.source.tidb.ddl import Timeline

    log, mount, _ = log_of(config)
    parts = log.parts(0)
    if not parts:
        return StoredSnapshot()
    timeline = Timeline(log, config.table_filter(), force=mount.force_replicate, events=EventFilter())
    timeline.start(min(config.start_ts or parts[0].low, parts[-1].high))
    return timeline.snapshot


def _open_log(config: FeedConfig, home: str) -> "Source":
    """Return a change log that is read as it is."""
    from tidegate.source.tidb.land import LogSource
    from tidegate.source.tidb.segment import safe_point_name

    log, mount, ticdc_texts = log_of(config)
    return LogSource(
        log,
        safe_point_name(config.name, home),
        rules=config.table_filter(),
        mount=mount,
        ticdc_texts=ticdc_texts,
        events=config.events,
        start_ts=config.start_ts,
    )


def _open_changelog(config: FeedConfig, home: str) -> "Source":  # noqa: ARG001  another's home is read
    """Return what another changefeed has landed."""
    from tidegate.changelog.changelog import changelog_uri
    from tidegate.changelog.source import ChangelogSource

    assert isinstance(config.source, LandedChanges)
    return ChangelogSource(changelog_uri(config.source.home))


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


def _open_database(config: FeedConfig) -> "Sink[Any]":
    """Return a database that is written."""
    from tidegate.sink.sql.sink import SqlSink

    assert isinstance(config.sink, SqlAddress)
    if isinstance(config.source, TidbSource):
        for check in entry_points(group=_APART):
            check.load()(config.source.directory, config.sink.host, config.sink.port)
    time_zone = "UTC" if entries_of(config)[0].moments else config.time_zone
    return SqlSink(
        config.sink.options(config.name, time_zone), held=checkpoints_of(config).held, rules=config.table_filter()
    )


def _open_webhook(config: FeedConfig) -> "Sink[Any]":
    """Return an address that is called."""
    from tidegate.sink.webhook import WebhookSink

    assert isinstance(config.sink, WebhookTarget)
    options = config.sink.options(config.name, f"{home_of(config)}/dead-letters")
    return WebhookSink(options, checkpoints_of(config))


def _open_storage(config: FeedConfig) -> "Sink[Any]":
    """Return files that are written."""
    from tidegate.sink.storage.sink import StorageSink

    assert isinstance(config.sink, StorageTarget)
    return StorageSink(config.sink.options(), checkpoints_of(config))


def _open_metrics(config: FeedConfig) -> "Sink[Any]":
    """Return numbers that are shown."""
    from tidegate.sink.metrics.sink import MetricsSink

    assert isinstance(config.sink, MetricsTarget)
    clocks = "UTC" if entries_of(config)[0].moments else config.time_zone
    options = config.sink.options(config.name, home_of(config), clocks, config.time_zone)
    return MetricsSink(options, checkpoints_of(config))


def _open_callback(config: FeedConfig) -> "Sink[Any]":
    """Return a function of the user's own."""
    from tidegate.sink.callback import CallbackSink

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
        check=check_topics,
        ordered=False,
        tells_start_ts=False,
        moments=False,
        zone_of=lambda source: source.time_zone,
        tokens_go_to=lambda source: store_host(source.claim_check_storage_uri),
        refused={"bdr-mode": NO_WRITER},
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
        check=lambda config: check_log(config, *log_of(config)[:2]),
    ),
    files_entry(_land_files, check_files),
    SourceEntry(
        scheme="changelog",
        about="what another changefeed has landed",
        example="changelog:///srv/lake",
        params=CHANGELOG_SOURCE,
        parse=lambda uri, document: parse_changelog(uri, document.section("source.")),
        address=LandedChanges,
        land=None,
        open=_open_changelog,
        check=check_changelog,
        ordered=True,
        tells_start_ts=False,
        moments=False,
        zone_of=lambda source: source.time_zone,
        refused={"bdr-mode": NO_WRITER},
        start_ts_refused="what has landed is read from where the sink stands",
        has_old_values=lambda _: False,
        has_types=lambda _: False,
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
        open=delta_sink,
        keeps_progress=True,
        reads_changelog=True,
        zone_of=lambda sink: sink.time_zone,
        renders_times=False,
        needs_whole_tables=lambda sink: sink.mode == "replica",
        keeps_keyless=True,
        check_tables=check_lake,
        keys=DELTA_KEYS,
        refused=DELTA_REFUSED,
        tokens_go_to=lambda sink: sink.tokens_go_to,
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
        tokens_go_to=lambda sink: store_host(sink.options.claim_check_storage_uri),
        needs_types=KafkaTarget.needs_types,
        warnings=KafkaTarget.warnings,
    ),
    SinkEntry(
        scheme="mysql",
        aliases=("tidb",),
        about="MySQL, MariaDB or TiDB",
        example="mysql://root@127.0.0.1:3306/",
        params=SQL_SINK,
        parse=parse_sql,
        address=SqlAddress,
        open=_open_database,
        keys=SQL_KEYS,
        refused=SQL_REFUSED,
        warnings=SqlAddress.warnings,
        keeps_keyless=True,
        keeps_progress=False,
        reads_changelog=False,
    ),
    redis_entry(lambda config: checkpoints_of(config).held),
    *search_entries(lambda config: checkpoints_of(config).held),
    SinkEntry(
        scheme="http",
        aliases=("https",),
        about="an address that is called with CloudEvents",
        example="https://hooks.example/orders",
        params=WEBHOOK_SINK,
        parse=lambda uri, document: parse_webhook(uri, document.section(WEBHOOK_SECTION)),
        address=WebhookTarget,
        open=_open_webhook,
        keys=WEBHOOK_KEYS,
        refused=WEBHOOK_REFUSED,
        tokens_go_to=lambda sink: sink.tokens_go_to,
        warnings=WebhookTarget.warnings,
        keeps_progress=False,
        reads_changelog=False,
    ),
    storage_entry(_open_storage),
    metrics_entry(_open_metrics),
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

_TABLES: Final = (
    *(entry.params for entry in SOURCES.values()),
    *(entry.params for entry in SINKS.values()),
    store_params(),
)
declare(
    {*UPSTREAM_PARAMS, *(name for params in _TABLES for name in params)},
    called=(name for params in _TABLES for name, param in params.items() if param.called),
)


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
    from tidegate.engine.checkpoints import checkpoints_in

    assert config.state_dir is not None
    identity = config.sink.identity
    return checkpoints_in(config.state_dir, config.name, source=config.source_uri, target=identity)


def feed_of(config: FeedConfig, sink: "Sink[Any] | None" = None) -> "Feed":
    """Return the pieces of a changefeed; `sink` stands for the one that its address names."""
    from tidegate.engine.loop import Feed
    from tidegate.engine.retry_policy import RetryPolicy

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
    from tidegate.engine.retention import Limits

    source, sink = entries_of(config)
    home = home_of(config)
    assert source.land is not None
    limits = None if sink.reads_changelog else Limits(changelog_ms=0, reader_grace_ms=READER_GRACE_MS)
    return LandedSource(partial(source.land, config, home), changelog_uri(home), limits=limits)


def status_of(config: FeedConfig) -> "StatusFile":
    """Return where a changefeed keeps its reports: with its progress."""
    from tidegate.config.status import LAKE_FILE, StatusFile

    if config.state_dir is None or entries_of(config)[1].keeps_progress:
        place, name = f"{home_of(config).rstrip('/')}/_tidegate", LAKE_FILE
    else:
        place, name = config.state_dir, config.name
    return StatusFile(place, name, config.name, source=config.source_uri, sink=config.sink_uri)
