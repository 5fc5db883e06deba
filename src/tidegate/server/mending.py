"""Messages and tables that a changefeed could not read or its sink refused, and what somebody decides about them.

    failed at shop/2/7041 ──► letters   the message, with its bytes
                          ──► skip      it becomes a dead letter        ─┐
                          ──► replay    other bytes are read instead    ─┴─► resume

    table is parked       ──► unpark    its changes since are brought to it, by the run that is or the next one

A decision is noted with who took it.  Rows that are replayed are appended to the changelog, so the changefeed must not
run meanwhile.
"""

from typing import NamedTuple

from tidegate.changelog.changelog import Changelog, changelog_uri
from tidegate.config.entry import is_landed
from tidegate.config.kafka_source import KafkaSource
from tidegate.config.registry import entries_of, home_of
from tidegate.engine.change import DeadLetter, Place
from tidegate.model.errors import ConfigError
from tidegate.server.changefeeds import Changefeeds
from tidegate.server.errors import UpdateRefused
from tidegate.server.record import FeedId, FeedView
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.parking import ask
from tidegate.sink.delta.snapshots import latest
from tidegate.source.kafka.replay import Bytes, Replayed, State, listed, replay, skip


class Letters(NamedTuple):
    """The newest letters of a changefeed, and how many there are."""

    total: int
    shown: list[tuple[DeadLetter, State]]


def letters_of(feeds: Changefeeds, feed: FeedId, most: int) -> Letters:
    """Return the letters of a changefeed: those that hold it up first, then the newest. None of a source without
    messages."""
    view = feeds.get(feed)
    config = feeds.config_of(view.record)
    if not isinstance(config.source, KafkaSource) or not is_landed(*entries_of(config)):
        return Letters(0, [])
    changelog = Changelog(changelog_uri(home_of(config)))
    if not changelog.refresh():
        return Letters(0, [])
    found = listed(changelog, view.checkpoint_ts)
    waiting = [pair for pair in found if pair[1] != "dead"]
    dead = [pair for pair in found if pair[1] == "dead"]
    return Letters(len(found), [*waiting, *reversed(dead)][:most])


def skip_letter(feeds: Changefeeds, feed: FeedId, place: Place, who: str) -> None:
    """Let a changefeed that stands pass a message. Raises ConfigError for a place where it does not stand."""
    with feeds.operation_log.noting("skip", feed, who, str(place)):
        view = _resting(feeds, feed)
        skip(home_of(feeds.config_of(view.record)), place, checkpoint_ts=view.checkpoint_ts)


def replay_letter(feeds: Changefeeds, feed: FeedId, place: Place, instead: Bytes, who: str) -> Replayed:
    """Land a message after all, with other bytes or options. Raises what `replay` does."""
    with feeds.operation_log.noting("replay", feed, who, str(place)):
        view = _resting(feeds, feed)
        home = home_of(feeds.config_of(view.record))
        return replay(home, place, instead, checkpoint_ts=view.checkpoint_ts)


def unpark_table(feeds: Changefeeds, feed: FeedId, table: str, who: str) -> tuple[str, ...]:
    """Let a parked table of a lake go on; return the tables that come with it. ConfigError for one that is not
    parked."""
    with feeds.operation_log.noting("unpark", feed, who, table):
        config = feeds.config_of(feeds.get(feed).record)
        if not entries_of(config)[1].keeps_progress:
            raise ConfigError(f"{feed.name} writes into no lake: nothing is parked there")
        options = DeltaOptions(root=home_of(config), feed="")
        return tuple(name for group in ask(options, latest(options), (table,)) for name in group.names)


def _resting(feeds: Changefeeds, feed: FeedId) -> FeedView:
    view = feeds.get(feed)
    if view.running:
        raise UpdateRefused(f"{feed.name} runs: pause it before a message is skipped or replayed")
    return view
