"""Which moment a client means by its warehouse, and the prefix that keeps its session there.

    GET /v1/config?warehouse=       moment                                  prefix of all that follows
    lake                            the newest snapshot, at each request    lake
    lake@now                        the newest snapshot, at this request    at-<its number>
    lake@17                         snapshot 17                             at-17
    lake@470607233675427842         the newest one not above that TSO       at-<its number>
    lake@2026-01-02T03:04:05Z       the newest one not above that time      at-<its number>

The config call is the one request of a session that names a warehouse.  So a session is pinned by what it answers, and
any reader of Iceberg sees all tables at one timestamp.  The word before @ is free, and so is a path before it.

Source: Iceberg REST catalog specification (rest-catalog-open-api.yaml), /v1/config.
"""

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidegate.lakes.lake import moment_ts

MOVING: Final = "lake"
"""The prefix of sessions that see each new snapshot."""
NUMBER_END: Final = 1 << 32
"""A number from here on is a TSO: the physical part of a smaller one lies in the first seconds of 1970."""
_NUMBER: Final = re.compile("[0-9]{1,10}")
_PINNED: Final = re.compile(r"at-(0|[1-9][0-9]{0,19})")


@dataclass(frozen=True, slots=True)
class MovingView:
    """Each request sees the newest snapshot."""


@dataclass(frozen=True, slots=True)
class PinnedView:
    """All requests see that snapshot; None for the newest one of now."""

    number: int | None


@dataclass(frozen=True, slots=True)
class ViewAt:
    """All requests see the newest snapshot not above `ts`."""

    ts: int


View: TypeAlias = MovingView | PinnedView | ViewAt


def parse_warehouse(text: str) -> View:
    """Return the moment that a warehouse names. Raises ConfigError for a text that names none."""
    _, pinned, moment = text.rpartition("/")[2].partition("@")
    if not pinned:
        return MovingView()
    if _NUMBER.fullmatch(moment) and int(moment) < NUMBER_END:
        return PinnedView(int(moment))
    ts = None if moment in {"", "now"} else moment_ts(moment)
    return PinnedView(None) if ts is None else ViewAt(ts)


def parse_prefix(text: str) -> int | None:
    """Return the snapshot that a prefix keeps to, None for the moving one. Raises LookupError for another text."""
    if text == MOVING:
        return None
    if found := _PINNED.fullmatch(text):
        return int(found[1])
    raise LookupError(text)


def render_prefix(number: int) -> str:
    """Return the prefix of sessions that stay at a snapshot."""
    return f"at-{number}"
