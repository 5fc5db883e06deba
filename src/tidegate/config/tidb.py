"""tidb:// addresses of sources: the directory of a change log, and the options for reading it.

    tidb:///var/tidb/log      a directory of segments that an upstream writes (source/tidb_segment.py)
    tidb://./log              the same from the working directory
    tidb+s3://bucket/log      the same in an object store (also gs, azure, az, abfss)
    tidb:///log?max-retry=9   options of TidbSource

TiCDC's own keys of the changefeed choose the tables and rows: bdr-mode, force-replicate, integrity.*, filter.*.
"""

import posixpath
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import unquote

import msgspec

from tidegate.config.entry import Document, FeedConfig, SinkEntry, SourceEntry
from tidegate.config.option import options_of, read_all
from tidegate.config.uri import STORES, Parts, name_file, object_store, parameters, split
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import TableFilter
from tidegate.model.errors import ConfigError, UriInvalid
from tidegate.model.left_out import FILTERED, KnownTables, LeftOut
from tidegate.model.option import MAX_RETRY, Option
from tidegate.objectstore.store_path import location
from tidegate.source.tikv_options import ORIGIN, origin_of

if TYPE_CHECKING:
    from tidegate.changelog.source import BatchLoop
    from tidegate.engine.ports import Source
    from tidegate.schema.stored.snapshot import StoredSnapshot
    from tidegate.source.tidb_changes import MountOptions
    from tidegate.source.tidb_states import ShownLog

SCHEME: Final = "tidb"
_SCHEMES: Final = (SCHEME, *(f"{SCHEME}+{store}" for store in STORES))
_LEVELS: Final = {"none": False, "correctness": True}
_TEXTS: Final = {"ticdc": True, "raw": False}
_HANDLINGS: Final = {"warn": False, "error": True}


class TidbSource(msgspec.Struct, frozen=True, kw_only=True):
    """A change log to read."""

    directory: str
    max_retry: Annotated[int, MAX_RETRY] = 5
    ddl_ts: Annotated[
        Literal["finish", "commit"] | None,
        Option(
            "ddl-ts",
            "where DDLs and definitions change: `finish`, where a job finishes, as TiCDC does, or `commit`, where SQL "
            "shows the change, which loses no value of rows that are written during a DDL; unset, what it was when the "
            "changefeed last ran, `commit` for a new one",
        ),
    ] = None
    force_replicate: bool = False
    verify: bool = False
    refuse_corrupt: bool = False
    ticdc_texts: bool = True
    bdr: bool = False
    ignored: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.directory

    @property
    def identity(self) -> str:
        return self.directory

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset({self.directory})


OPTIONS: Final = options_of(TidbSource)


def parse_tidb(uri: str, document: Document) -> TidbSource:
    """Return the change log at `uri`, with the [source] section and the changefeed's keys by their paths."""
    parts = split(uri, "source-uri", _SCHEMES)
    values = {**document.section("source.", OPTIONS), **parameters(parts, OPTIONS)}
    fields, ignored = read_all(OPTIONS, values, ConfigError)
    return TidbSource(directory=_directory(parts), ignored=ignored, **changefeed_fields(document.flat), **fields)


def changefeed_fields(flat: Mapping[str, object]) -> dict[str, Any]:
    """Return what the keys of a changefeed say, by their paths, as fields of TidbSource."""
    return {
        "force_replicate": flat.get("force-replicate") is True,
        "bdr": flat.get("bdr-mode") is True,
        "verify": _choice(flat, "integrity.integrity-check-level", _LEVELS),
        "refuse_corrupt": _choice(flat, "integrity.corruption-handle-level", _HANDLINGS),
        "ticdc_texts": _choice(flat, "sink.ddl-text", _TEXTS),
    }


def _directory(parts: Parts) -> str:
    path = unquote(parts.path)
    if "+" in parts.scheme:
        return object_store(parts)
    if parts.netloc not in {"", ".", ".."} or not path.strip("/"):
        raise UriInvalid(f"source-uri: expected tidb:///path/of/log or tidb://./path, found {parts.shown}")
    directory = Path(posixpath.normpath(parts.netloc + path) if parts.netloc else path)
    name_file(parts.where, str(directory))
    if not directory.is_dir():
        raise UriInvalid(f"source-uri: {directory} is not a directory with the segments of an upstream")
    return str(directory.resolve())


def _choice(flat: Mapping[str, object], key: str, words: Mapping[str, bool]) -> bool:
    word = flat.get(key, next(iter(words)))
    if word not in words:
        raise ConfigError(f"{key} is {word!r}; it is one of {', '.join(words)}")
    return words[str(word)]


def rules_of(config: FeedConfig) -> TableFilter:
    """Return the filter of a changefeed; a table that it takes and the capture of its log does not is a
    ConfigError."""
    source, rules = config.source, config.table_filter()
    assert isinstance(source, TidbSource)
    directory = location(source.directory)

    @cache  # asked first where the log has begun, which may be later than now
    def captured() -> TableFilter | None:
        from tidegate.source.tidb_segment import is_captured

        origin = origin_of(directory)
        if origin is None and is_captured(directory):
            raise ConfigError(
                f"the log {directory} is a capture's, and has lost {ORIGIN}, which tells its tables: restore the file, "
                "or capture into another directory"
            )
        return None if origin is None else origin.tables

    return rules.within(captured)


def log_of(config: FeedConfig, sink: SinkEntry, home: str = "") -> "tuple[ShownLog, MountOptions, bool]":
    """Return the change log of a changefeed, a new one without its `home`, how its rows are mounted, and whether DDLs
    have TiCDC's texts."""
    from tidegate.source.tidb_changes import MountOptions
    from tidegate.source.tidb_segment import COMMIT, FINISH, SegmentLog, kept_safe_point, safe_point_name
    from tidegate.source.tidb_states import ShownLog

    source = config.source
    assert isinstance(source, TidbSource)
    mount = MountOptions(source.force_replicate, source.verify, source.refuse_corrupt, source.bdr, sink.keeps_keyless)
    directory = location(source.directory)
    kept = kept_safe_point(directory, safe_point_name(config.name, home))
    begins = kept is None and config.load is not None and config.load.begins  # a load gives a new feed a checkpoint
    log = SegmentLog(directory, source.ddl_ts or (COMMIT if begins else ""))
    return ShownLog(log, "" if kept is None else kept.ddl_ts or FINISH), mount, source.ticdc_texts


def landing_of(config: FeedConfig, home: str, sink: SinkEntry) -> dict[str, Any]:
    """Return the arguments of the landing of a feed's log."""
    from tidegate.source.tidb_segment import create_statements, safe_point_name

    log, mount, ticdc_texts = log_of(config, sink, home)
    return {
        "log": log,
        "settle": log.settle,
        "lake": home,
        "feed": config.name,
        "rules": rules_of(config),
        "definitions": create_statements,
        "mount": mount,
        "ticdc_texts": ticdc_texts,
        "events": config.events,
        "start_ts": config.start_ts,
        "complete": sink.needs_whole_tables(config.sink),
        "hold_as": safe_point_name(config.name, home),
        "check": partial(sink.check_tables, config),
    }


def _land(config: FeedConfig, home: str, sink: SinkEntry) -> "BatchLoop":
    from tidegate.source.tidb_land import LogLanding

    return LogLanding(**landing_of(config, home, sink))


def log_schema(config: FeedConfig, sink: SinkEntry) -> "StoredSnapshot":
    """Return the schema of a change log at the start of a changefeed; an empty one if the log has not reached it.
    Raises HistoryLost."""
    from tidegate.schema.stored.snapshot import StoredSnapshot
    from tidegate.source.tidb_ddl import Timeline

    log, mount, _ = log_of(config, sink)
    parts = log.parts(0)
    if not parts:
        return StoredSnapshot()
    timeline = Timeline(log, rules_of(config), force=mount.force_replicate, events=EventFilter())
    timeline.start(min(config.start_ts or parts[0].low, parts[-1].high))
    return timeline.snapshot


def reading_of(config: FeedConfig, home: str, sink: SinkEntry) -> dict[str, Any]:
    """Return the arguments of the reader of a feed's log."""
    from tidegate.source.tidb_segment import safe_point_name

    log, mount, ticdc_texts = log_of(config, sink, home)
    return {
        "log": log,
        "settle": log.settle,
        "hold_as": safe_point_name(config.name, home),
        "rules": rules_of(config),
        "mount": mount,
        "ticdc_texts": ticdc_texts,
        "events": config.events,
        "start_ts": config.start_ts,
    }


def _open(config: FeedConfig, home: str, sink: SinkEntry) -> "Source":
    from tidegate.source.tidb_land import LogSource

    return LogSource(**reading_of(config, home, sink))


def _check(config: FeedConfig, sink: SinkEntry) -> KnownTables:
    """Walk along the log from where a new changefeed begins; return its tables of now.

    Raises SourceBehind, HistoryLost, and what a DDL on the way does to a changefeed."""
    from tidegate.model.errors import SourceBehind
    from tidegate.source.tidb_ddl import Timeline
    from tidegate.source.tidb_log import name_of

    log, mount, _ = log_of(config, sink)
    parts = log.parts(0)
    if not parts:
        raise SourceBehind("the change log is empty: a running upstream writes a file within seconds")
    force, keeps = mount.force_replicate, mount.keeps
    timeline = Timeline(log, rules_of(config), force=force, keeps=keeps, events=EventFilter(), bdr=mount.bdr)
    timeline.start(min(config.start_ts or parts[0].low, parts[-1].high))
    timeline.read(parts[-1].high)
    while (stop := timeline.stop()) is not None:
        timeline.walk(stop)
    tables, snapshot = timeline.tables, timeline.snapshot
    outside = sorted(str(name_of(table)) for table in snapshot.tables.values() if not tables.matches(*name_of(table)))
    left_out = (*tables.left_out(snapshot), *(LeftOut(name, FILTERED) for name in outside))
    return KnownTables(tuple(sorted(str(name_of(table)) for table in tables.replicated(snapshot))), left_out)


def _forget(config: FeedConfig, home: str) -> None:
    from tidegate.source.tidb_segment import forget_safe_point, safe_point_name

    assert isinstance(config.source, TidbSource)
    forget_safe_point(location(config.source.directory), safe_point_name(config.name, home))


SOURCE: Final = SourceEntry(
    scheme=SCHEME,
    about="the change log of a TiDB",
    example="tidb://./log",
    params=OPTIONS,
    section="source.",
    acts=frozenset(
        {
            *("bdr-mode", "force-replicate", "sink.ddl-text"),
            *("integrity.integrity-check-level", "integrity.corruption-handle-level"),
        }
    ),
    parse=parse_tidb,
    address=TidbSource,
    land=_land,
    open=_open,
    check=_check,
    forget=_forget,
    ordered=True,
    tells_start_ts=True,
    moments=True,
    verifies=lambda source: source.verify,
    brings_keyless=lambda source: source.force_replicate,
)
