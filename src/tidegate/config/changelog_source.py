"""A changelog:// address: what another changefeed has landed, read as it stands.

changelog:///srv/lake               of a lake, or of a feed's place in a state directory
changelog://./lake?time-zone=..     from the working directory; the zone in which the topic had its TIMESTAMPs
changelog+s3://bucket/prefix        of one in an object store (also gs, azure, az, abfss)
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from tidegate.config.delta_sink import lake_path
from tidegate.config.kafka_source import KAFKA_SOURCE
from tidegate.config.param import Given, Param, read_all
from tidegate.config.uri import STORES, parameters, split
from tidegate.model.errors import ConfigError

SCHEME: Final = "changelog"
_SCHEMES: Final = (SCHEME, *(f"{SCHEME}+{store}" for store in STORES))
CHANGELOG_SOURCE: Final[Mapping[str, Param]] = {name: KAFKA_SOURCE[name] for name in ("time-zone", "max-retry")}


class LandedChanges(msgspec.Struct, frozen=True, kw_only=True):
    """A changelog to read: that of the lake or the feed at `home`."""

    home: str
    time_zone: str | None = None
    max_retry: int = 5
    ignored: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The words that begin a changefeed's name."""
        return self.home

    @property
    def identity(self) -> str:
        """What tells this source from others in the names of changefeeds."""
        return self.home

    @property
    def places(self) -> frozenset[str]:
        """What is read."""
        return frozenset({self.home})


def parse_changelog(uri: str, options: Mapping[str, Given]) -> LandedChanges:
    """Return the changelog behind `uri`, with the [source] section."""
    parts = split(uri, "source-uri", _SCHEMES)
    fields, ignored = read_all(CHANGELOG_SOURCE, {**options, **parameters(parts, CHANGELOG_SOURCE)}, ConfigError)
    return msgspec.convert({**fields, "home": lake_path(parts), "ignored": ignored}, LandedChanges)
