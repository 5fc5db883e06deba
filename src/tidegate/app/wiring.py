"""The one place where configuration becomes pieces."""

from tidegate.app.config import FeedConfig
from tidegate.app.topics import topics_of
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink
from tidegate.source.kafka.land import Landing

__all__ = ["delta_options", "delta_sink", "kafka_landing"]


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
    )


def delta_sink(config: FeedConfig) -> DeltaSink:
    """The Delta sink of a changefeed."""
    return DeltaSink(delta_options(config), workers=config.sink.worker_count)


def kafka_landing(config: FeedConfig, options: DeltaOptions) -> Landing:
    """The landing of a changefeed."""
    rules = config.table_filter()
    return Landing(topics_of(config.source), options.root, config.name, accept=rules.matches)
