"""A changefeed's configuration as one value, the same for every source and every sink."""

import re
import zlib
from dataclasses import dataclass, field
from typing import Final, Protocol

from tidegate.engine.dispatch import DispatchRule
from tidegate.engine.event_filter import EventFilter, EventRule
from tidegate.engine.filter import SelectorRule, TableFilter
from tidegate.model.errors import ChangefeedIdInvalid

_ID: Final = re.compile(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*")
_ID_MAX: Final = 128
STUCK_MS: Final = 1_800_000


class SinkAddress(Protocol):
    """A parsed sink-uri, as far as every sink has one."""

    @property
    def identity(self) -> str:
        """What tells this sink from others in the names of changefeeds."""

    @property
    def places(self) -> frozenset[str]:
        """What is written."""

    @property
    def ignored(self) -> tuple[str, ...]:
        """Parameters that were accepted without effect."""


class SourceAddress(Protocol):
    """A parsed source-uri, as far as every source has one."""

    @property
    def identity(self) -> str:
        """What tells this source from others in the names of changefeeds."""

    @property
    def label(self) -> str:
        """What a changefeed of it is named after."""

    @property
    def places(self) -> frozenset[str]:
        """What is read."""

    @property
    def ignored(self) -> tuple[str, ...]:
        """Parameters that were accepted without effect."""

    @property
    def max_retry(self) -> int:
        """Quick tries of a failing step."""


@dataclass(frozen=True, slots=True)
class FeedConfig:
    """One changefeed. It is a value: nothing in it is looked up later, and printing it shows no password.

    `source_uri` and `sink_uri` are for people: passwords in them are masked."""

    name: str
    source: SourceAddress
    sink: SinkAddress
    rules: tuple[str, ...]
    case_sensitive: bool
    time_zone: str
    """The zone on whose clocks event filters see TIMESTAMPs, and a lake reads those that come as texts."""
    source_uri: str
    sink_uri: str
    warnings: tuple[str, ...] = ()
    stuck_ms: int = STUCK_MS
    """How long errors that may pass are waited out while nothing moves."""
    dispatchers: tuple[DispatchRule, ...] = ()
    selectors: tuple[SelectorRule, ...] = ()
    events: EventFilter = field(default_factory=EventFilter, repr=False)
    event_rules: tuple[EventRule, ...] = ()
    """The rules of `events`."""
    start_ts: int | None = None
    """Where a new changefeed begins; None: where its source does."""
    target_ts: int | None = None
    """Where the changefeed ends; None: it does not."""
    state_dir: str | None = None
    """Where the checkpoint is kept of a feed whose sink keeps none: a directory, or the address of an object store."""

    def table_filter(self) -> TableFilter:
        """Return the filter of the tables that the changefeed carries."""
        return TableFilter.parse(self.rules, case_sensitive=self.case_sensitive)


def feed_id(given: object, place: str, identity: str) -> str:
    """Return `given` if it may name a changefeed; for None a name of the words of `place`, told from others by
    `identity`. Raises ChangefeedIdInvalid."""
    if given is None:
        words = "-".join(re.findall(r"[A-Za-z0-9]+", place)) or "feed"
        return f"{words[:100].rstrip('-')}-{zlib.crc32(identity.encode()):08x}"
    if not isinstance(given, str) or not _ID.fullmatch(given) or len(given) > _ID_MAX:
        raise ChangefeedIdInvalid(
            f"changefeed-id {given!r}: letters and digits with single hyphens between them, at most {_ID_MAX}"
        )
    return given
