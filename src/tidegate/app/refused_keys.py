"""Keys of a changefeed file that ask for what is not done on the way that the changefeed goes.

    from       into a topic (topic_keys.py)              into a lake
    tidb://    REFUSED                                   LAKE
    kafka://   REFUSED, MESSAGES and COPIES              LAKE and MESSAGES

MESSAGES are those that need more than messages carry, COPIES those that act where messages are made.  What TiCDC has a
code for is told under it.  A value that asks for nothing (`false`, "none", "", an empty list) is accepted with each of
them.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tidegate.app.topic_keys import REFUSED, Refused, refuse_keys
from tidegate.feed.event_rule import EventRule
from tidegate.model.errors import ConfigError, UnsupportedError

__all__ = ["COPIES", "LAKE", "MESSAGES", "check_old_values", "refuse_for_lake", "refuse_for_messages"]

_NAMES: Final = Refused(("",), UnsupportedError, "tables of a lake have the upstream's names")
LAKE: Final[Mapping[str, Refused]] = {
    "enable-sync-point": Refused(
        (False,), ConfigError, "sync points are for databases; a lake is read at any ts that it has, without them"
    ),
    **{key: REFUSED[key] for key in ("bdr-mode", "consistent.level", "filter.ignore-dml-event-filter")},
    "sink.dispatchers[].target-schema": _NAMES,
    "sink.dispatchers[].target-table": _NAMES,
}
MESSAGES: Final[Mapping[str, Refused]] = {
    "filter.ignore-txn-start-ts": Refused(
        ([],), ConfigError, "messages do not tell the start_ts of their transaction; where the topic is written it acts"
    ),
}
COPIES: Final[Mapping[str, Refused]] = {
    "sink.column-selectors[].": Refused(
        (), UnsupportedError, "columns are chosen where the topic is written, from tidb://"
    ),
}


def refuse_for_lake(document: Mapping[str, object], *, messages: bool) -> None:
    """Raises for the keys of a file that a lake cannot follow; `messages` says that its source is a topic."""
    refuse_keys(document, {**LAKE, **MESSAGES} if messages else LAKE)


def refuse_for_messages(document: Mapping[str, object]) -> None:
    """Raises for the keys of a file that a topic made of another one cannot follow."""
    refuse_keys(document, {**REFUSED, **MESSAGES, **COPIES})


def check_old_values(document: Mapping[str, object], rules: Sequence[EventRule]) -> None:
    """ConfigError for rules that tell INSERT from UPDATE, where the file says that messages carry no old values."""
    settings: object = document
    for name in ("sink", "open", "output-old-value"):
        settings = settings.get(name) if isinstance(settings, dict) else None
    told = {word for rule in rules for word in rule.ignore_event} & {"insert", "update"}
    told |= {text for rule in rules for text in rule.expressions if text != rule.ignore_delete_value_expr}
    told |= {name for rule in rules for name in rule.ignore_update_only_columns}
    if settings is False and told:
        raise ConfigError(
            "filter.event-filters: with sink.open.output-old-value=false an UPDATE comes as an INSERT does, so rules "
            "cannot tell them apart; let the changefeed that writes the topic send old values, or leave out both kinds "
            'by ignore-event = ["all dml"]'
        )
