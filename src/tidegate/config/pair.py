"""The rules of a source and a sink together. They follow from the two entries; none of them names a pair.

    state-dir             needed where the sink keeps no progress
    time-zone             told once, if both addresses tell that of the source
    integrity             compares whole rows, so no column selectors that act
    old values, types     event filters and encoder options that need what messages lack
    what is read          is not written; what has landed does not land again
    dispatchers           checked where they act
    idle                  keys and words that neither of the two has a use for are named in one warning

A rule that needs a fact about a source or a sink asks its entry for it: a new one is a field there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidegate.codec.zone import hour_twice
from tidegate.config.document import Document
from tidegate.config.entry import SinkEntry, SourceEntry, is_landed, refused_keys
from tidegate.config.feed import FeedConfig, SinkAddress, SourceAddress, feed_id
from tidegate.config.keys import KEYS
from tidegate.config.param import nearest
from tidegate.config.refused import refusal
from tidegate.engine.dispatch import PARTITION_WORDS, DispatchRule, complaints, topic_pattern
from tidegate.engine.event_filter import EventRule
from tidegate.engine.filter import DEFAULT_RULES, ColumnSelectors, TableFilter
from tidegate.model.errors import ConfigError, UriInvalid

_DISPATCHERS = "sink.dispatchers[].matcher"
_OLD_VALUES = "sink.open.output-old-value"
_SELECTORS = "sink.column-selectors[].matcher"


@dataclass(frozen=True, slots=True)
class Pairing:
    """The entries of a source and a sink, with the parsed addresses of one changefeed."""

    source_entry: SourceEntry
    source: SourceAddress
    sink_entry: SinkEntry
    sink: SinkAddress

    @property
    def keys(self) -> frozenset[str]:
        """Return the keys of a file that act, beside those that act everywhere."""
        return self.source_entry.keys | self.sink_entry.keys

    def name(self, given: object, sink_uri: str) -> str:
        """Return the changefeed's id: the one that is given, else one that the same two addresses always get.

        Raises ChangefeedIdInvalid."""
        given = given or None
        both = f"{self.source.identity} {self.sink.identity}"
        if self.sink_entry.keeps_progress:
            return feed_id(given, self.source.label, both)
        if self.source_entry.ordered:
            return feed_id(given, self.sink.identity, both)
        # Positions of sources without an order have always been kept under the sink's address alone.
        return feed_id(given, self.sink.identity, sink_uri.partition("?")[0])

    def time_zone(self) -> str:
        """Return the zone on whose clocks TIMESTAMPs are. Raises ConfigError if it is told twice, or where none is."""
        told = self.sink_entry.zone_of(self.sink)
        if self.source_entry.moments:
            if told not in {None, "UTC"} and not self.sink_entry.renders_times:
                scheme = self.source_entry.scheme
                raise ConfigError(
                    f"time-zone: rows of {scheme}:// carry moments, which need no zone; leave the parameter out"
                )
            return told or "UTC"
        read = self.source_entry.zone_of(self.source)
        if self.sink_entry.renders_times:
            return read or "UTC"
        if read and told and read != told:
            raise ConfigError(f"time-zone is {read} for the source and {told} for the sink; give it once")
        return read or told or "UTC"

    def check(self, config: FeedConfig, document: Document) -> None:
        """Raise for what these two cannot do, or not with this file."""
        config.table_filter()  # bad rules are told now, not when the first row comes
        if _DISPATCHERS in self.keys:
            check_dispatchers(config.dispatchers)
        if config.selectors and _SELECTORS in self.keys:
            ColumnSelectors.of(config.selectors, case_sensitive=config.case_sensitive)
            if self.source_entry.verifies(self.source):
                raise ConfigError("integrity-check-level compares whole rows, so column-selectors do not go with it")
        if not self.source_entry.has_old_values(self.source):
            lacking = self.source_entry.lacks_old_values(self.source)
            check_old_values(document, config.event_rules, lacking)
            if not lacking and document.flat.get(_OLD_VALUES) is False:
                lacking = f"{_OLD_VALUES} = false"
            asks = self.sink_entry.needs_old_values(self.sink)
            if asks and lacking:
                raise ConfigError(f"{asks} needs old values, and {lacking} says that they are not sent")
        typed = self.sink_entry.needs_types(self.sink)
        if typed and not self.source_entry.has_types(self.source):
            raise ConfigError(
                f"{typed} needs the parameters of types, such as the 50 of varchar(50), which the messages that are "
                "read do not carry"
            )
        if self.source_entry.land is None and is_landed(self.source_entry, self.sink_entry):
            raise UriInvalid(
                f"source-uri: {self.source_entry.scheme}:// has landed already; into {self.sink_entry.scheme}:// read "
                "what it came from"
            )
        both = sorted(self.source.places & self.sink.places)
        if both:
            raise UriInvalid(f"sink-uri: {both[0]} is what is read; a changefeed does not write what it reads")
        if not self.sink_entry.keeps_progress and config.state_dir is None:
            raise ConfigError(
                f"a changefeed into {self.sink_entry.scheme}:// keeps its checkpoint in a directory: give --state-dir"
            )

    def warnings(self, config: FeedConfig, document: Document, words: Iterable[str]) -> tuple[str, ...]:
        """Return what a user should hear; `words` of the call have no use here."""
        told = (*self.source_entry.warnings(self.source), *self.sink_entry.warnings(self.sink))
        zones = {self.source_entry.zone_of(self.source), self.sink_entry.zone_of(self.sink)}
        told += tuple(said for zone in zones if zone is not None and (said := hour_twice(zone)))
        if _DISPATCHERS in self.keys:
            told += complaints(config.dispatchers)
        idle = {*idle_keys(document, self.source_entry, self.sink_entry), *words}
        idle |= {f"source-uri {name}" for name in self.source.ignored}
        idle |= {f"sink-uri {name}" for name in self.sink.ignored}
        return (f"accepted without effect: {', '.join(sorted(idle))}", *told) if idle else told


def idle_keys(document: Document, source: SourceEntry, sink: SinkEntry) -> list[str]:
    """Return the keys of a file that neither of the two has a use for, without those that one of them refuses."""
    refused = refused_keys(source, sink)
    idle = [path for path in document.flat if not KEYS[path].acts and path not in source.keys | sink.keys]
    return sorted(path for path in idle if refusal(path, refused) is None)


def check_dispatchers(rules: Sequence[DispatchRule]) -> None:
    """Raise for a dispatcher of which TiCDC only warns, sending rows elsewhere than meant, and for a wrong topic."""
    for number, rule in enumerate(rules):
        word = rule.partition.lower()
        if word not in PARTITION_WORDS:
            known = ", ".join(word for word in PARTITION_WORDS if word)
            close = nearest(word, PARTITION_WORDS)
            raise ConfigError(f"sink.dispatchers[{number}]: partition = {rule.partition!r} is none of {known}{close}")
        if rule.topic:
            topic_pattern(rule.topic, "")
        TableFilter.parse(rule.matcher or DEFAULT_RULES)


def check_old_values(document: Document, rules: Sequence[EventRule], lacking: str = "") -> None:
    """Raise ConfigError for rules that tell INSERT from UPDATE, where a source lacks old values (`lacking` says why) or
    where the file says that they are not sent."""
    told = {word for rule in rules for word in rule.ignore_event} & {"insert", "update"}
    told |= {text for rule in rules for text in rule.expressions if text != rule.ignore_delete_value_expr}
    told |= {name for rule in rules for name in rule.ignore_update_only_columns}
    if document.flat.get(_OLD_VALUES) is False:
        lacking = lacking or f"{_OLD_VALUES}=false"
    if told and lacking:
        raise ConfigError(
            f"filter.event-filters: with {lacking} an UPDATE comes as an INSERT does, so rules "
            "cannot tell them apart; let the changefeed that writes send old values, or leave out both kinds "
            'by ignore-event = ["all dml"]'
        )
