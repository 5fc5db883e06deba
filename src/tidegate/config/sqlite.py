"""sqlite:// addresses: the database file that holds the tables.

sqlite:///srv/shop.db                an absolute path; sqlite://./shop.db is relative to the working directory
"""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.config.entry import Document, FeedConfig, SinkEntry, SourceEntry
from tidegate.config.option import options_of, read_all
from tidegate.config.uri import lake_path, parameters, split
from tidegate.model.errors import SinkConfigInvalid

if TYPE_CHECKING:
    from tidegate.engine.ports import Sink


class SqliteTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A file of SQLite."""

    path: str
    ignored: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        return self.path

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset({f"sqlite:{self.path}"})


OPTIONS: Final = options_of(SqliteTarget)


def parse_sqlite(uri: str, _document: Document) -> SqliteTarget:
    """Return the file at `uri`. Raises UriInvalid, SinkConfigInvalid."""
    parts = split(uri, "sink-uri", ("sqlite",))
    _, ignored = read_all(OPTIONS, parameters(parts, OPTIONS), SinkConfigInvalid)
    return SqliteTarget(path=lake_path(parts), ignored=ignored)


def _open(config: FeedConfig, _: SourceEntry) -> "Sink[Any]":
    from tidegate.sink.sqlite import SqliteSink

    assert isinstance(config.sink, SqliteTarget)
    return SqliteSink(config.sink.path, config.name, time_zone=config.time_zone)


SINK: Final = SinkEntry(
    scheme="sqlite",
    about="tables in a file of SQLite",
    example="sqlite:///srv/shop.db",
    params=OPTIONS,
    parse=parse_sqlite,
    address=SqliteTarget,
    open=_open,
    keeps_position=True,
)
