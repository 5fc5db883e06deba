"""changelog:// addresses: the changelog that another changefeed has landed.

changelog:///srv/lake               of a lake, or of a feed's directory in a state directory
changelog://./lake?time-zone=..     from the working directory; the time zone of the topic's TIMESTAMPs
changelog+s3://bucket/prefix        of a lake in an object store (also gs, azure, az, abfss)
"""

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from tidegate.config.entry import Document, FeedConfig, SinkEntry, SourceEntry
from tidegate.config.option import options_of, read_all
from tidegate.config.uri import STORES, lake_path, parameters, split
from tidegate.model.errors import ConfigError
from tidegate.model.option import MAX_RETRY, SOURCE_ZONE

if TYPE_CHECKING:
    from tidegate.engine.ports import Source

SCHEME: Final = "changelog"
_SCHEMES: Final = (SCHEME, *(f"{SCHEME}+{store}" for store in STORES))


class LandedChanges(msgspec.Struct, frozen=True, kw_only=True):
    """A changelog to read: that of the lake or the feed at `home`."""

    home: str
    time_zone: Annotated[str | None, SOURCE_ZONE] = None
    max_retry: Annotated[int, MAX_RETRY] = 5
    ignored: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.home

    @property
    def identity(self) -> str:
        return self.home

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset({self.home})


OPTIONS: Final = options_of(LandedChanges)


def parse_changelog(uri: str, document: Document) -> LandedChanges:
    """Return the changelog at `uri`, with the [source] section."""
    parts = split(uri, "source-uri", _SCHEMES)
    values = {**document.section("source.", OPTIONS), **parameters(parts, OPTIONS)}
    fields, ignored = read_all(OPTIONS, values, ConfigError)
    return LandedChanges(home=lake_path(parts), ignored=ignored, **fields)


def _check(config: FeedConfig, _: SinkEntry) -> None:
    """Read the newest version. ConfigError if there is no changelog."""
    from tidegate.changelog.changelog import Changelog, changelog_uri

    assert isinstance(config.source, LandedChanges)
    changelog = Changelog(changelog_uri(config.source.home))
    changelog.refresh()
    if changelog.version < 0:
        raise ConfigError(f"no changelog at {changelog.uri}")


def _open(config: FeedConfig, _home: str, _sink: SinkEntry) -> "Source":
    from tidegate.changelog.changelog import changelog_uri
    from tidegate.changelog.source import ChangelogSource

    assert isinstance(config.source, LandedChanges)
    return ChangelogSource(changelog_uri(config.source.home))


SOURCE: Final = SourceEntry(
    scheme=SCHEME,
    about="what another changefeed has landed",
    example="changelog:///srv/lake",
    params=OPTIONS,
    section="source.",
    parse=parse_changelog,
    address=LandedChanges,
    land=None,
    open=_open,
    check=_check,
    ordered=True,
    tells_start_ts=False,
    moments=False,
    zone_of=lambda source: source.time_zone,
    start_ts_refused="a changelog is read from the sink's checkpoint",
    has_old_values=lambda _: False,
    has_types=lambda _: False,
)
