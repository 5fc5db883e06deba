"""The one place where configuration becomes pieces."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from tidegate.app.config import FeedConfig
from tidegate.app.definitions import create_statements
from tidegate.app.segment_log import SegmentLog
from tidegate.app.topics import topics_of
from tidegate.app.uri import KafkaSource
from tidegate.schema.stored_snapshot import TableVersion
from tidegate.schema.stored_table import table_info
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.selection import stored_definition
from tidegate.sink.delta.sink import DeltaSink
from tidegate.source.kafka.land import Landing
from tidegate.source.landing import BatchLoop
from tidegate.source.tidb.land import LogLanding
from tidegate.source.tidb.transactions import MountOptions

__all__ = ["delta_options", "delta_sink", "landing"]


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


def delta_sink(config: FeedConfig) -> DeltaSink:
    """The Delta sink of a changefeed."""
    return DeltaSink(delta_options(config), workers=config.sink.worker_count)


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
