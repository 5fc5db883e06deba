"""The one place where configuration becomes pieces."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from tidegate.app.config import FeedConfig
from tidegate.app.definitions import create_statements
from tidegate.app.engine import Feed
from tidegate.app.segment_log import SegmentLog
from tidegate.app.status import LAKE_FILE, StatusFile
from tidegate.app.topics import topics_of
from tidegate.app.uri import KafkaSource
from tidegate.changelog.landing import BatchLoop
from tidegate.changelog.source import LandedSource
from tidegate.feed.patience import Patience
from tidegate.feed.retention import Limits
from tidegate.schema.stored_snapshot import TableVersion
from tidegate.schema.stored_table import table_info
from tidegate.sink.delta.lake_upkeep import LakeUpkeep
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.selection import stored_definition
from tidegate.sink.delta.sink import DeltaSink
from tidegate.source.kafka.land import Landing
from tidegate.source.tidb.land import LogLanding
from tidegate.source.tidb.transactions import MountOptions

__all__ = ["delta_options", "delta_sink", "feed_of", "landing", "limits_of", "status_of"]


def delta_options(config: FeedConfig) -> DeltaOptions:
    """What the Delta sink of a changefeed is asked to do."""
    sink = config.sink
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


def feed_of(config: FeedConfig) -> Feed:
    """The pieces of a changefeed."""
    sink = delta_sink(config)
    source = LandedSource(partial(landing, config, sink.options), sink.options.changelog_uri)
    rules = config.table_filter()
    return Feed(
        config.name,
        source,
        sink,
        accept=rules.matches,
        takes=rules.takes_ddl,
        drops=config.events.ddls(),
        patience=Patience(config.source.max_retry, config.stuck_ms / 1000),
    )


def status_of(config: FeedConfig) -> StatusFile:
    """Where a changefeed keeps its reports."""
    control = delta_options(config).control_uri
    return StatusFile(control, LAKE_FILE, config.name, source=config.source_uri, sink=config.sink_uri)


def delta_sink(config: FeedConfig) -> DeltaSink:
    """The Delta sink of a changefeed."""
    sink, options = config.sink, delta_options(config)
    upkeep = None
    if sink.upkeep != "off":
        upkeep = LakeUpkeep(options, limits_of(config), interval_s=sink.upkeep_interval_ms / 1000, notes=True)
    return DeltaSink(options, workers=sink.worker_count, flush_s=sink.flush_interval_ms / 1000, upkeep=upkeep)


def limits_of(config: FeedConfig) -> Limits:
    """The limits that a changefeed's configuration sets."""
    sink = config.sink
    return Limits(
        snapshot_ms=sink.snapshot_retention_ms,
        recover_ms=sink.recover_retention_ms,
        changelog_ms=sink.changelog_retention_ms,
    )


def landing(config: FeedConfig, options: DeltaOptions) -> BatchLoop:
    """The landing of a changefeed."""
    rules, source = config.table_filter(), config.source
    if isinstance(source, KafkaSource):
        return Landing(topics_of(source), options.root, config.name, accept=rules.matches, events=config.events)
    return LogLanding(
        SegmentLog(Path(source.directory)),
        options.root,
        config.name,
        rules=rules,
        definitions=create_statements,
        mount=MountOptions(source.force_replicate, source.verify, source.refuse_corrupt),
        events=config.events,
        start_ts=source.start_ts,
        complete=config.sink.mode == "replica",
        check=partial(_check_selectors, options),
    )


def _check_selectors(options: DeltaOptions, tables: Iterable[TableVersion]) -> None:
    """Raises ColumnSelectorFailed for column selectors that do not fit a table."""
    for table in tables:
        stored_definition(table_info(table.stored, table.schema, table.version), options)
