"""The one place where configuration becomes pieces."""

from pathlib import Path

from tidegate.app.config import FeedConfig
from tidegate.app.definitions import create_statements
from tidegate.app.log_holds import hold_name
from tidegate.app.segment_log import SegmentLog
from tidegate.app.topics import topics_of
from tidegate.app.uri import KafkaSource
from tidegate.changelog.landing import BatchLoop
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink
from tidegate.source.kafka.land import Landing
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
        hold_as=hold_name(config.name, options.root),
    )
