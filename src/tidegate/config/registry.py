"""The scheme registry: the sources and sinks of changefeeds, and their construction from a configuration.

    kafka://   topics of TiCDC    ─┐                ┌─ delta://      a lake of Delta tables
    tikv://    a TiDB cluster     ─┤                │
    tidb://    the log of a TiDB  ─┼─ any with any ─┼─ kafka://      topics, as TiCDC writes them
    file://    files of TiCDC     ─┤                ├─ mysql://      MySQL, MariaDB or TiDB
    changelog://  a changelog     ─┘                ├─ redis://      a Redis, or a cluster
                                                    ├─ search+tantivy://, opensearch://  search indexes
                                                    ├─ http://       an address that is called
                                                    ├─ file://       files as TiCDC's storage sink has them, s3:// ..
                                                    ├─ metrics://    counters, gauges, histograms
                                                    ├─ sqlite://     tables in a file of SQLite
                                                    └─ callback://   a Python function

A new source or sink is a module of its own, a module here for its address, and one word in a list.  The limits of a
pair follow from the two entries (config/load.py).  Factories import sources and sinks when called: reading a
configuration needs neither Spark nor Kafka.
"""

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidegate.config import (
    callback,
    changelog,
    delta,
    full_load,
    kafka,
    metrics,
    redis,
    search,
    sql,
    sqlite,
    storage,
    tidb,
    tikv,
    webhook,
)
from tidegate.config.entry import FeedConfig, SinkEntry, SourceEntry, is_landed, state_of
from tidegate.config.uri import declare
from tidegate.model.errors import TidegateError
from tidegate.objectstore.stores import STORE_ERRORS
from tidegate.source.upstream_address import PARAMETERS as UPSTREAM_PARAMS

if TYPE_CHECKING:
    from tidegate.changelog.source import LandedSource
    from tidegate.config.status import StatusFile
    from tidegate.engine.loop import Feed
    from tidegate.engine.ports import Sink, Source

LOG: Final = logging.getLogger(__name__)
E = TypeVar("E", SourceEntry, SinkEntry)

READER_GRACE_MS: Final = 60_000
"""Grace period of files that left a changelog which only its own feed reads: tasks may still read them."""


def _by_scheme(*entries: E) -> Mapping[str, E]:
    return {entry.scheme: entry for entry in entries}


SOURCES: Final = _by_scheme(kafka.SOURCE, tikv.SOURCE, tidb.SOURCE, storage.SOURCE, changelog.SOURCE, full_load.ROWS)
"""Sources by the scheme of their addresses."""
SINKS: Final = _by_scheme(
    *(delta.SINK, kafka.SINK, sql.SINK, redis.SINK, search.EMBEDDED, search.SERVERS, webhook.SINK, storage.SINK),
    *(metrics.SINK, callback.SINK, sqlite.SINK),
)
"""Sinks by the scheme of their addresses."""
_OPTIONS: Final = (
    *(option for entry in SOURCES.values() for option in entry.params.values()),
    *(option for entry in SINKS.values() for option in entry.params.values()),
)
declare(
    {*UPSTREAM_PARAMS, *(option.name for option in _OPTIONS)},
    called_by=(option.name for option in _OPTIONS if option.masked),
)


def entries_of(config: FeedConfig) -> tuple[SourceEntry, SinkEntry]:
    """Return the entries of a changefeed's source and sink."""
    source = next(entry for entry in SOURCES.values() if isinstance(config.source, entry.address))
    return source, next(entry for entry in SINKS.values() if isinstance(config.sink, entry.address))


def upstream_now(config: FeedConfig) -> int:
    """Return a timestamp of now by the clock of a changefeed's upstream. Raises ClusterUnavailable."""
    return entries_of(config)[0].now(config.source)


def home_of(config: FeedConfig) -> str:
    """Return the home of a changefeed: its lake, or its directory below the state directory."""
    entry = entries_of(config)[1]
    if entry.keeps_progress:
        return entry.home(config.sink)
    return state_of(config)


def sink_of(config: FeedConfig) -> "Sink[Any]":
    """Return the sink of a changefeed."""
    source, sink = entries_of(config)
    return sink.open(config, source)


def feed_of(config: FeedConfig, sink: "Sink[Any] | None" = None) -> "Feed":
    """Return the source, the sink and the rules of a changefeed; `sink` replaces the one of its address."""
    from tidegate.engine.loop import Feed
    from tidegate.engine.retry_policy import RetryPolicy

    rules = config.table_filter()
    return Feed(
        config.name,
        source_of(config),
        sink_of(config) if sink is None else sink,
        accept=rules.matches,
        takes=rules.takes_ddl,
        drops=config.events.ddls(),
        patience=RetryPolicy(config.source.max_retry, config.stuck_ms / 1000),
    )


def source_of(config: FeedConfig) -> "Source":
    """Return the source of a changefeed, wrapped in a changelog if it is unordered or the sink reads landed changes,
    and in the load with which the feed begins."""
    source, sink = entries_of(config)
    direct = source.open if not is_landed(source, sink) else None
    stream = landed_source(config) if direct is None else direct(config, home_of(config), sink)
    if config.load is None:
        return stream if source.once else full_load.not_loading(config, home_of(config), stream)
    return full_load.loading(config, config.load, home_of(config), sink, (source, stream))


def landed_source(config: FeedConfig) -> "LandedSource":
    """Return the source of a changefeed wrapped in a changelog."""
    from tidegate.changelog.changelog import changelog_uri
    from tidegate.changelog.source import LandedSource
    from tidegate.engine.retention import Limits

    source, sink = entries_of(config)
    home = home_of(config)
    assert source.land is not None
    limits = None if sink.reads_changelog else Limits(changelog_ms=0, reader_grace_ms=READER_GRACE_MS)
    return LandedSource(partial(source.land, config, home, sink), changelog_uri(home), limits=limits)


def forget_at_source(config: FeedConfig) -> None:
    """End what is kept upstream for a changefeed that does not go on; a warning where that fails, since it ends by
    itself later."""
    for forget in (full_load.release_load, entries_of(config)[0].forget):
        try:
            forget(config, home_of(config))
        except (TidegateError, *STORE_ERRORS) as error:
            LOG.warning("what the source keeps for %s ends by its ttl: %s", config.name, error)


def status_of(config: FeedConfig) -> "StatusFile":
    """Return the file of a changefeed's reports, stored beside its progress."""
    from tidegate.config.status import LAKE_FILE, StatusFile

    if config.state_dir is None or entries_of(config)[1].keeps_progress:
        root, name = f"{home_of(config).rstrip('/')}/_tidegate", LAKE_FILE
    else:
        root, name = config.state_dir, config.name
    return StatusFile(root, name, config.name, source=config.source_uri, sink=config.sink_uri)
