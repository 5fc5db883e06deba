"""A tidb:// address: the directory of a change log, and how a changefeed reads it.

    tidb:///var/tidb/log      a directory of segments that an upstream writes (tidb/segment.py)
    tidb://./log              the same from the working directory
    tidb:///log?max-retry=9   parameters of TIDB_SOURCE

Which tables and rows are read is said by TiCDC's own keys of the changefeed: force-replicate, integrity.*, filter.*.
"""

import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from tidegate.app.params import KAFKA_SOURCE, Given, Param, nearest, read_all
from tidegate.app.uri import mask_uri
from tidegate.model.errors import ConfigError, UriInvalid

__all__ = ["ACTING", "SCHEME", "TIDB_SOURCE", "TidbSource", "log_directory", "parse_tidb"]

SCHEME: Final = "tidb://"
TIDB_SOURCE: Final[Mapping[str, Param]] = {"max-retry": KAFKA_SOURCE["max-retry"]}
ACTING: Final = frozenset({"force-replicate", "integrity.integrity-check-level", "integrity.corruption-handle-level"})
"""Keys of a changefeed file that act on rows from a change log, though a topic's reader has no use for them."""
_LEVELS: Final = {"none": False, "correctness": True}
_HANDLINGS: Final = {"warn": False, "error": True}


class TidbSource(msgspec.Struct, frozen=True, kw_only=True):
    """A change log to read. `start_ts` counts for a new changefeed only; None begins with the log."""

    directory: str
    max_retry: int = 5
    force_replicate: bool = False
    verify: bool = False
    refuse_corrupt: bool = False
    start_ts: int | None = None


def parse_tidb(
    uri: str, options: Mapping[str, Given], flat: Mapping[str, object], start_ts: int | None = None
) -> TidbSource:
    """The source behind `uri`, with the [source] section and the changefeed's keys by their paths."""
    given = {**options, **_parameters(uri)}
    fields, _ = read_all(TIDB_SOURCE, given, ConfigError)
    force, verify, refuse = _row_options(flat)
    directory = str(log_directory(uri))
    fields |= {"directory": directory, "force_replicate": force, "verify": verify, "refuse_corrupt": refuse}
    return msgspec.convert({**fields, "start_ts": start_ts}, TidbSource)


def log_directory(uri: str) -> Path:
    """The directory that `uri` names. Raises UriInvalid when there is none."""
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if parts.netloc not in {"", ".", ".."} or not path.strip("/") or parts.fragment:
        raise UriInvalid(f"source-uri: write tidb:///path/of/log or tidb://./path, found {mask_uri(uri)}")
    found = Path(posixpath.normpath(parts.netloc + path) if parts.netloc else path)
    if not found.is_dir():
        raise UriInvalid(f"source-uri: {found} is no directory; an upstream writes its segments into one")
    return found.resolve()


def _row_options(flat: Mapping[str, object]) -> tuple[bool, bool, bool]:
    """(force-replicate, whether checksums are compared, whether one that fails is an error). Raises ConfigError."""
    return (
        flat.get("force-replicate") is True,
        _choice(flat, "integrity.integrity-check-level", _LEVELS),
        _choice(flat, "integrity.corruption-handle-level", _HANDLINGS),
    )


def _choice(flat: Mapping[str, object], key: str, words: Mapping[str, bool]) -> bool:
    word = flat.get(key, next(iter(words)))
    if word not in words:
        raise ConfigError(f"{key} is {word!r}; it is one of {', '.join(words)}")
    return words[str(word)]


def _parameters(uri: str) -> dict[str, Given]:
    given: dict[str, Given] = {}
    for name, value in parse_qsl(urlsplit(uri).query, keep_blank_values=True):
        if name not in TIDB_SOURCE:
            raise UriInvalid(f'source-uri: unknown parameter "{name}"{nearest(name, TIDB_SOURCE)}')
        if name in given:
            raise UriInvalid(f'source-uri: parameter "{name}" is given twice')
        given[name] = Given(f'source-uri parameter "{name}"', value)
    return given
