"""How a changefeed begins with the rows that are there: `[source] load` and `load-from`, `run --load`, `--load-from`.

    load       initial    every row as of one TSO, then the stream; a restart never loads again
               never      the stream alone; load-from is for rows that are requested later (tidegate table, verify)
               done       the stream above load-ts, whose rows somebody else has put into the target
               only       the rows alone: a batch job, without a source of its own
               cancel     ends a load that is not done, and drops its tables
    load-from  mysql://USER:PASSWORD@HOST:4000/       the database; parameters as for large-message-upstream-uri, and
               rows-per-second, chunk-rows, ..        those of SqlLoadOptions
               file:///DUMPLING, s3://BUCKET/PREFIX   a directory of Dumpling, with what its files do not tell
    load-ts    the TSO; without it that of now
    load-number, load-tables    a later load of all tables, or of those of some rules

    ticdc      http://HOST:8300/api/v2/changefeeds/ID  the changefeed that writes the stream, or its file, whose filters
               FILE                                    are compared with the load (config/ticdc.py)

    definitions-from  mysql://..    no rows: what a topic or directory that begins in the middle does not tell of its
                                    tables, as SHOW CREATE TABLE has it
    definitions-at    start         where the stream begins
                      now           now, of tables without a DDL since

Where `load-from` is given, `load` is `initial`.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast
from urllib.parse import parse_qsl, urlencode

import msgspec

from tidegate.config.entry import Document, FeedConfig, FullLoad, SinkEntry, SourceEntry
from tidegate.config.option import options_of, read_all
from tidegate.config.store_params import DIRECTORY, STORE_SCHEMES, split_store, store_params
from tidegate.config.tikv_load import load_uri, needs_grpc, parse_cluster
from tidegate.config.uri import RawValue, lake_path, name_file, object_store, parameters, scheme_of, split, store_host
from tidegate.engine.filter import TableFilter
from tidegate.model.errors import ConfigError, TidegateError, UriInvalid
from tidegate.model.option import Secret
from tidegate.model.tso import MAX_TS
from tidegate.source.dump_options import DumpOptions
from tidegate.source.tikv_options import SCHEME as TIKV
from tidegate.source.tikv_options import TikvLoadOptions
from tidegate.source.upstream_address import Address, SqlLoadOptions, hours_of, parse_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.config.ticdc import TicdcAddress
    from tidegate.engine.load_plan import LoadGuard, LoadPlan, LoadReader
    from tidegate.engine.ports import Source
    from tidegate.engine.upstream_feed import UpstreamFeed

SCHEME: Final = "mysql"
_STORES: Final = (DIRECTORY, *STORE_SCHEMES)
"""Schemes of the addresses that hold files of Dumpling."""
MODES: Final = ("initial", "never", "only", "done", "cancel")
MOMENTS: Final = ("start", "now")


Hours = TypeVar("Hours", SqlLoadOptions, TikvLoadOptions)


class DatabaseRows(msgspec.Struct, frozen=True, kw_only=True):
    """A database whose rows are all that is read: the source of a load alone."""

    load: FullLoad
    max_retry: int = 5
    ignored: tuple[str, ...] = ()

    @property
    def _options(self) -> SqlLoadOptions | DumpOptions | TikvLoadOptions:
        assert self.load.options is not None
        return self.load.options

    @property
    def label(self) -> str:
        return f"load {self._options.label}"

    @property
    def identity(self) -> str:
        return self._options.identity

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset({self._options.server})


OPTIONS: Final = options_of(SqlLoadOptions)
_OF_SESSIONS: Final = frozenset({"connections", "replica-read", "resource-group", "scan-concurrency"})
"""Those that do not need rows."""
_OF_FILES: Final = options_of(DumpOptions)
PARAMETERS: Final = {**options_of(Address), **OPTIONS, **_OF_FILES}


def _parse_dump(uri: str) -> DumpOptions:
    """Return the directory of Dumpling at `uri`. Raises UriInvalid, UnsupportedError."""
    parts = split(uri, "load-from", _STORES)
    options = {**_OF_FILES, **store_params(parts.scheme)}
    client, own = split_store(parameters(parts, options), parts.scheme, options)
    fields, _ = read_all(_OF_FILES, own, UriInvalid)
    address = lake_path(parts) if parts.scheme == DIRECTORY else object_store(parts)
    if "csv-null-value=" in parts.query.split("&"):
        fields["null"] = ""
    dump = DumpOptions(Secret(f"{address}?{urlencode(client)}" if client else address), address, **fields)
    if len(dump.delimiter.encode()) > 1 and dump.delimiter != "none":
        raise UriInvalid(f"load-from: csv-delimiter is {dump.delimiter!r}; write one character, or none")
    return dump


def parse_load(uri: str, option: str = "load-from") -> SqlLoadOptions | DumpOptions | TikvLoadOptions:
    """Return the database behind `uri`, the value of `option`, and how it is read. Raises UriInvalid, which does not
    show it."""
    if option == "load-from" and scheme_of(uri) in _STORES:
        return _parse_dump(uri)
    if option == "load-from" and scheme_of(uri) == TIKV:
        return _checked_hours(parse_cluster(uri), option)
    own: dict[str, RawValue] = {}
    others: list[tuple[str, str]] = []
    head, _, query = uri.partition("?")
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in OPTIONS:
            own[name] = RawValue(f'{option} parameter "{name}"', value)
        else:
            others.append((name, value))
    if option != "load-from" and (idle := sorted(own.keys() - _OF_SESSIONS)):
        raise UriInvalid(
            f"{option}: {', '.join(idle)} would do nothing, since no rows are read: leave out what is for load-from"
        )
    fields, _ = read_all(OPTIONS, own, UriInvalid)
    address = parse_address(f"{head}?{urlencode(others)}" if others else head, option)
    for name, path in (("ssl-ca", address.ssl_ca), ("ssl-cert", address.ssl_cert), ("ssl-key", address.ssl_key)):
        name_file(f"{option}: {name}", path)
    return _checked_hours(SqlLoadOptions(address, **fields), option)


def _checked_hours(options: Hours, option: str) -> Hours:
    if options.load_hours and hours_of(options.load_hours) is None:
        raise UriInvalid(
            f"{option}: load-hours is {options.load_hours!r}; write two hours of UTC, such as 22-6, or of another "
            "zone, such as 22-6+08:00"
        )
    return options


def full_load(
    document: Document,
    mode: str | None,
    load_from: str | None,
    ts: int | None,
    definitions: tuple[str | None, str | None] = (None, None),
    *,
    source_uri: str | None = None,
) -> FullLoad | None:
    """Return the load that is asked for, with the given values in place of the file's; None for none. `definitions` are
    definitions-from and definitions-at. A cluster is loaded from where it is captured. Raises ConfigError,
    UriInvalid."""

    def value(key: str, option: str | None = None) -> str:
        return option or str(document.flat.get(f"source.{key}") or "")

    requested, force = value("load", mode), document.flat.get("force-replicate") is True
    load_from = value("load-from", load_from) or load_uri(value("uri", source_uri), requested, document.flat)
    mode = requested or ("initial" if load_from else "never")
    if mode not in MODES:
        raise ConfigError(f"load is {mode!r}; it is one of {', '.join(MODES)}")
    uri, moment = map(value, ("definitions-from", "definitions-at"), definitions)
    if moment not in {"", *MOMENTS} or (moment and not uri):
        raise ConfigError(f"definitions-at is {moment!r}: it is start or now, and goes with definitions-from")
    if uri and mode != "never":
        raise ConfigError(
            f"definitions-from is for a feed without a load; load = {mode} has the definitions of load-from"
        )
    if mode == "never":
        if ts is not None and not load_from:
            raise ConfigError("load-ts is the TSO of a load: give load-from, or load = done")
        if uri:
            return FullLoad("definitions", parse_load(uri, "definitions-from"), None, force, moment or "start")
        return FullLoad(mode, parse_load(load_from), None, force) if load_from else None
    load_ts = int(value("load-ts") or 0) or None if ts is None else ts
    if load_ts is not None and not 0 < load_ts <= MAX_TS:
        raise ConfigError(f"load-ts is {load_ts}: write a TSO of the database, a number between 1 and {MAX_TS}")
    if mode == "done" and load_ts is None:
        raise ConfigError("load = done begins behind the rows of the target: give load-ts, the TSO that they are of")
    if mode != "done" and not load_from:
        raise ConfigError(f"load = {mode} reads a database: give load-from, such as mysql://root@127.0.0.1:4000/")
    number, rules = int(value("load-number") or 0), cast("Sequence[str]", document.flat.get("source.load-tables") or ())
    if number and (mode == "done" or scheme_of(load_from) in _STORES):
        raise ConfigError("load-number reads a database again: it goes with load = initial and only, and with no dump")
    tables = TableFilter.parse(rules, case_sensitive=document.case_sensitive) if rules else None
    options = parse_load(load_from) if load_from else None
    return FullLoad(mode, options, load_ts, force, number=number, tables=tables)


def check_stream(config: FeedConfig, source: SourceEntry, sink: SinkEntry) -> None:
    """Raise ConfigError for a load whose source does not go on at its TSO, or whose target nobody else can have
    loaded."""
    if config.load is None:
        return
    if source.once:
        raise ConfigError("source-uri: a database has no changes to follow a load; load = only loads and ends")
    if config.load.mode == "only" and isinstance(config.load.options, TikvLoadOptions):
        raise ConfigError("load = only reads a database over SQL, or files of Dumpling; from tikv:// changes follow")
    address = config.load.options and config.load.options.server
    if address in config.sink.addresses and not config.load.definitions:
        raise ConfigError(f"load-from: {address} is also the sink; a changefeed must not write what it reads")
    if config.load.mode == "done" and sink.reads_changelog:
        raise ConfigError(f"load = done: nobody else puts rows into {sink.scheme}://; load = initial does")
    if config.load.ticdc is not None and source.ordered:
        raise ConfigError(f"ticdc: {source.scheme}:// is not written by TiCDC; it is for topics and directories")
    if config.load.definitions and source.ordered:
        raise ConfigError(
            f"definitions-from: {source.scheme}:// brings its definitions; it is for topics and directories that TiCDC "
            "writes"
        )
    if lacking := source.lacks_commit_ts(config.source):
        raise ConfigError(
            f"load-from: with {lacking} changes have no commit_ts, so nobody can tell which of them a load has; "
            "let the changefeed that writes send it (enable-tidb-extension=true for canal-json)"
        )
    if config.start_ts is not None and config.load.begins:
        raise ConfigError("start-ts does not go with load-from: the changes follow behind the load, see load-ts")


def parse_rows(uri: str, document: Document) -> DatabaseRows:
    """Return the database behind `uri`."""
    load = full_load(document, "only", uri, None)
    assert load is not None
    return DatabaseRows(load=load)


Stream: TypeAlias = "tuple[SourceEntry, Source]"
"""A source and its entry."""


def loading(config: FeedConfig, load: FullLoad, home: str, sink: SinkEntry, stream: "Stream | None" = None) -> "Source":
    """Return the source that begins with `load` and goes on with `stream`; nothing follows None."""
    from tidegate.engine.load import NoStream
    from tidegate.engine.load_plan import KeptPlan, LoadGuard, LoadReader
    from tidegate.engine.refresh import RefreshingSource
    from tidegate.engine.reload import KeptReload

    source, opened = stream or (ROWS, NoStream())
    by_table = load.options is not None and load.options.publish == "table"
    if by_table and not sink.reads_changelog:
        raise ConfigError(f"load-publish = table is for lakes: {sink.scheme}:// shows rows as they come")
    time_zone = "UTC" if source.moments else config.time_zone
    rows = load.mode != "done" and not load.definitions
    own = {"time_zone": time_zone, "whole": rows, "sequences": rows and sink.makes_sequences}
    options = load.options and msgspec.structs.replace(load.options, **own)
    reader, guard = (LoadReader(), lambda _: LoadGuard()) if options is None else _readers(options)
    return RefreshingSource(
        reader,
        KeptPlan(home),
        config.table_filter().matches,
        opened,
        guard=(lambda _: LoadGuard()) if load.definitions else guard,
        ordered=source.ordered,
        keyless=_keyless(load, source, sink),
        events=config.events,
        ts=load.ts,
        mode=load.mode,
        defined=load.definitions,
        target="refuse" if options is None else options.target,
        upstream=None if load.ticdc is None else partial(_comparison, load, load.ticdc, config),
        by_table=by_table,
        connections=0 if options is None else options.max_connections,
        number=load.number,
        selects=None if load.tables is None else load.tables.matches,
        requests=KeptReload(home),
    )


def _readers(
    options: SqlLoadOptions | DumpOptions | TikvLoadOptions,
) -> "tuple[LoadReader, Callable[[LoadPlan], LoadGuard]]":
    """What reads a load, and what keeps its S."""
    if isinstance(options, DumpOptions):
        from tidegate.source.load_dump import DumpGuard, DumpReader

        return DumpReader(options), partial(DumpGuard, options)
    if isinstance(options, TikvLoadOptions):
        with needs_grpc():
            from tidegate.source.tikv_load import TikvGuard, TikvReader

        return TikvReader(options), partial(TikvGuard, options)
    from tidegate.source.load_sql import GcGuard, SqlReader

    return SqlReader(options), partial(GcGuard.of_plan, options)


def release_load(config: FeedConfig, home: str) -> None:
    """Give back what an unfinished load or reload has set in its upstream, for a changefeed that does not go on: the
    hold on garbage collection, tidb_gc_life_time. Raises what the upstream raises."""
    from tidegate.engine.load_plan import KeptPlan
    from tidegate.engine.reload import KeptReload

    load, reload = _load_of(config), KeptReload(home).read()
    if load is not None and load.options is not None:
        _, guard = _readers(load.options)
        for plan in (KeptPlan(home).read(), reload.plan if reload is not None and not reload.outcome else None):
            if plan is not None:
                guard(plan).restore()


def _keyless(load: FullLoad, source: SourceEntry, sink: SinkEntry) -> bool:
    """Whether changes of tables without a handle key follow a load."""
    return load.force_replicate or (source.ordered and sink.keeps_keyless)


def _load_of(config: FeedConfig) -> FullLoad | None:
    return config.source.load if isinstance(config.source, DatabaseRows) else config.load


def tokens_go_to(config: FeedConfig) -> frozenset[str]:
    """Return the server of the object store with the files of a load, as SourceEntry.tokens_go_to."""
    load = _load_of(config)
    return store_host(load.options.uri) if load and isinstance(load.options, DumpOptions) else frozenset()


def look_at(config: FeedConfig, home: str, source: SourceEntry, sink: SinkEntry) -> "LoadPlan | None":
    """Return the definitions of which a changefeed's load would take the rows: those at load-ts, or of now if that is
    not given, or a load has begun; None for one that reads no database. Raises what the plan of a load raises."""
    from tidegate.engine.load_plan import KeptPlan, without_keyless

    load = _load_of(config)
    if load is None or load.options is None or not (load.begins or load.definitions):
        return None
    accept, ts = config.table_filter().matches, None if KeptPlan(home).read() is not None else load.ts
    reader, _ = _readers(msgspec.structs.replace(load.options, whole=False))
    keyed: Callable[[LoadPlan], LoadPlan] = (lambda plan: plan) if _keyless(load, source, sink) else without_keyless
    left_by = keyed if load.ticdc is None else _comparison(load, load.ticdc, config)
    return left_by(reader.plan(lambda name: accept(*name), ts))


def not_loading(config: FeedConfig, home: str, stream: "Source") -> "Source":
    """Return the stream of a feed that is to begin without a load, or goes on without one: it does not start amid a
    load, and tells of a request that waits for load-from."""
    from tidegate.engine.load_plan import KeptPlan, LoadReader
    from tidegate.engine.refresh import RefreshingSource
    from tidegate.engine.reload import KeptReload
    from tidegate.objectstore.stores import STORE_ERRORS

    kept, requests = KeptPlan(home), KeptReload(home)
    with suppress(TidegateError, *STORE_ERRORS):  # its start reads them again
        request = requests.read()
        if kept.read() is None and (request is None or request.outcome):
            return stream
    accept = config.table_filter().matches
    return RefreshingSource(LoadReader(), kept, accept, stream, ordered=True, mode="never", requests=requests)


def _comparison(
    load: FullLoad, ticdc: "TicdcAddress | UpstreamFeed", config: FeedConfig
) -> "Callable[[LoadPlan], LoadPlan]":
    """What the changefeed that writes leaves of a plan, as it is configured now."""
    from tidegate.engine.upstream_feed import FeedRules, UpstreamFeed

    feed = ticdc if isinstance(ticdc, UpstreamFeed) else ticdc.ask()
    own = FeedRules(
        config.event_rules, config.selectors, config.case_sensitive, config.source.addresses, load.ts is None
    )
    return partial(feed.compared, own)


ROWS: Final[SourceEntry] = SourceEntry(
    scheme=SCHEME,
    about="the rows of a database as of one TSO, once",
    example="mysql://root@127.0.0.1:4000/",
    params=PARAMETERS,
    acts=frozenset({"force-replicate", "source.load", "source.load-from", "source.load-ts", "source.load-number"}),
    parse=parse_rows,
    address=DatabaseRows,
    land=None,
    open=lambda config, home, sink: loading(config, cast("DatabaseRows", config.source).load, home, sink),
    ordered=True,
    once=True,
    tells_start_ts=False,
    moments=True,
    start_ts_refused="load-ts says at which TSO the rows are read",
    brings_keyless=lambda source: source.load.force_replicate,
)
