"""Sources as `tidegate run --check` meets them: asked, and left as they were."""

from typing import TYPE_CHECKING

from tidegate.config.changelog_source import LandedChanges
from tidegate.config.feed import FeedConfig
from tidegate.config.kafka_source import KafkaSource
from tidegate.config.storage_source import StorageSource
from tidegate.model.errors import ConfigError
from tidegate.model.left_out import FILTERED, LeftOut, Told

if TYPE_CHECKING:
    from tidegate.source.tidb.changes import MountOptions
    from tidegate.source.tidb.log import KvLog


def check_topics(config: FeedConfig) -> None:
    """Ask the brokers about the topics."""
    from tidegate.config.topics import topics_of
    from tidegate.source.kafka.client import described

    assert isinstance(config.source, KafkaSource)
    described(topics_of(config.source))


def check_files(config: FeedConfig) -> None:
    """Look into the place, which need not be begun."""
    assert isinstance(config.source, StorageSource)
    next(iter(config.source.options().place.files()), None)


def check_changelog(config: FeedConfig) -> None:
    """Read where it stands. ConfigError where none is."""
    from tidegate.changelog.changelog import Changelog, changelog_uri

    assert isinstance(config.source, LandedChanges)
    changelog = Changelog(changelog_uri(config.source.home))
    changelog.refresh()
    if changelog.version < 0:
        raise ConfigError(f"no changelog at {changelog.uri}")


def check_log(config: FeedConfig, log: "KvLog", mount: "MountOptions") -> Told:
    """Walk along the log from where a new changefeed begins; return its tables of now.

    Raises SourceBehind, HistoryLost, and what a DDL on the way does to a changefeed."""
    from tidegate.engine.event_filter import EventFilter
    from tidegate.model.errors import SourceBehind
    from tidegate.source.tidb.ddl import Timeline
    from tidegate.source.tidb.log import name_of

    parts = log.parts(0)
    if not parts:
        raise SourceBehind("the change log is empty: an upstream that writes it makes a file within seconds")
    force, keeps = mount.force_replicate, mount.keeps
    timeline = Timeline(log, config.table_filter(), force=force, keeps=keeps, events=EventFilter(), bdr=mount.bdr)
    timeline.start(min(config.start_ts or parts[0].low, parts[-1].high))
    timeline.read(parts[-1].high)
    while (stop := timeline.stop()) is not None:
        timeline.walk(stop)
    tables, snapshot = timeline.tables, timeline.snapshot
    outside = sorted(str(name_of(one)) for one in snapshot.tables.values() if not tables.matches(*name_of(one)))
    left_out = (*tables.left_out(snapshot), *(LeftOut(name, FILTERED) for name in outside))
    return Told(tuple(sorted(str(name_of(one)) for one in tables.replicated(snapshot))), left_out)
