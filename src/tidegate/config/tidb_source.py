"""A tidb:// address: the directory of a change log, and how a changefeed reads it.

    tidb:///var/tidb/log      a directory of segments that an upstream writes (source/tidb/segment.py)
    tidb://./log              the same from the working directory
    tidb:///log?max-retry=9   parameters of TIDB_SOURCE

Which tables and rows are read is said by TiCDC's own keys of the changefeed: bdr-mode, force-replicate,
integrity.*, filter.*.
"""

import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import msgspec

from tidegate.config.kafka_source import KAFKA_SOURCE
from tidegate.config.local_name import name_file
from tidegate.config.param import Given, Param, read_all
from tidegate.config.uri import Parts, parameters, split
from tidegate.model.errors import ConfigError, UriInvalid

SCHEME: Final = "tidb"
TIDB_SOURCE: Final[Mapping[str, Param]] = {"max-retry": KAFKA_SOURCE["max-retry"]}
TIDB_KEYS: Final = frozenset(
    {
        "bdr-mode",
        "force-replicate",
        "integrity.integrity-check-level",
        "integrity.corruption-handle-level",
        "sink.ddl-text",
    }
)
"""Keys of a changefeed file that act on rows from a change log alone."""
_LEVELS: Final = {"none": False, "correctness": True}
_TEXTS: Final = {"ticdc": True, "raw": False}
_HANDLINGS: Final = {"warn": False, "error": True}


class TidbSource(msgspec.Struct, frozen=True, kw_only=True):
    """A change log to read."""

    directory: str
    max_retry: int = 5
    force_replicate: bool = False
    verify: bool = False
    refuse_corrupt: bool = False
    ticdc_texts: bool = True
    bdr: bool = False
    ignored: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The words that begin a changefeed's name."""
        return self.directory

    @property
    def identity(self) -> str:
        """What tells this source from others in the names of changefeeds."""
        return self.directory

    @property
    def places(self) -> frozenset[str]:
        """What is read."""
        return frozenset({self.directory})


def parse_tidb(uri: str, options: Mapping[str, Given], flat: Mapping[str, object]) -> TidbSource:
    """Return the change log behind `uri`, with the [source] section and the changefeed's keys by their paths."""
    parts = split(uri, "source-uri", [SCHEME])
    fields, ignored = read_all(TIDB_SOURCE, {**options, **parameters(parts, TIDB_SOURCE)}, ConfigError)
    fields |= {
        "directory": str(_directory(parts)),
        "force_replicate": flat.get("force-replicate") is True,
        "bdr": flat.get("bdr-mode") is True,
        "verify": _choice(flat, "integrity.integrity-check-level", _LEVELS),
        "refuse_corrupt": _choice(flat, "integrity.corruption-handle-level", _HANDLINGS),
        "ticdc_texts": _choice(flat, "sink.ddl-text", _TEXTS),
        "ignored": ignored,
    }
    return msgspec.convert(fields, TidbSource)


def _directory(parts: Parts) -> Path:
    path = unquote(parts.path)
    if parts.netloc not in {"", ".", ".."} or not path.strip("/"):
        raise UriInvalid(f"source-uri: write tidb:///path/of/log or tidb://./path, found {parts.shown}")
    found = Path(posixpath.normpath(parts.netloc + path) if parts.netloc else path)
    name_file(parts.where, str(found))
    if not found.is_dir():
        raise UriInvalid(f"source-uri: {found} is no directory; an upstream writes its segments into one")
    return found.resolve()


def _choice(flat: Mapping[str, object], key: str, words: Mapping[str, bool]) -> bool:
    word = flat.get(key, next(iter(words)))
    if word not in words:
        raise ConfigError(f"{key} is {word!r}; it is one of {', '.join(words)}")
    return words[str(word)]
