"""What is written, made of a changefeed's configuration alone: a lake, and topics.

    DeltaTarget  ─► DeltaOptions, Limits ─► DeltaSink, with its catalogs and its upkeep
    KafkaTarget  ─► TopicTarget, a value that travels into tasks

Nothing here knows which source it is for, or where a feed keeps its state: that is registry.py.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tidegate.config.delta_sink import EMBEDDED, DeltaTarget
from tidegate.config.feed import FeedConfig
from tidegate.config.kafka_target import KafkaTarget
from tidegate.engine.dispatch import DispatchRule, SplitPolicy
from tidegate.engine.filter import ColumnSelectors, SelectorRule

if TYPE_CHECKING:
    from tidegate.engine.retention import Limits
    from tidegate.schema.stored.snapshot import TableVersion
    from tidegate.sink.delta.options import DeltaOptions
    from tidegate.sink.delta.sink import DeltaSink
    from tidegate.sink.kafka.target import TopicTarget


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
    from tidegate.sink.delta.iceberg_catalogs import EmbeddedCatalog, RestCatalog, RestClient
    from tidegate.sink.delta.sink import DeltaSink, NameCatalog
    from tidegate.sink.delta.upkeep import LakeUpkeep

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
    from tidegate.engine.retention import Limits

    return Limits(
        snapshot_ms=sink.snapshot_retention_ms,
        recover_ms=sink.recover_retention_ms,
        changelog_ms=sink.changelog_retention_ms,
    )


def check_lake(config: FeedConfig, tables: "Iterable[TableVersion]") -> None:
    """Raise ColumnSelectorFailed for column selectors that do not fit a table."""
    from tidegate.schema.stored.snapshot import table_info
    from tidegate.sink.delta.options import stored_definition

    options = delta_options(config)
    for table in tables:
        stored_definition(table_info(table.stored, table.schema, table.version), options)


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
