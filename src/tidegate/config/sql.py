"""mysql:// and tidb:// addresses of sinks: a server, an account, and options for writing rows.

    mysql://root:p%40ss@127.0.0.1:3306/?max-txn-row=256&transaction-atomicity=global
    tidb+ssl://feed:secret@db:4000/?ssl-ca=/etc/ca.pem
    └ kind, TLS ┘└ percent-encoded ┘└ 4000 unless given; IPv6 in brackets

`mysql` and `tidb` are the same: the kind of server is detected.  `+ssl` and `ssl-ca` enable TLS, with the server's
certificate and name checked.  The parameters can also be in a changefeed file, under [sink] and [sink.mysql-config];
those of the address win.

Source: TiCDC documentation, "Sink URI for MySQL/TiDB"; ranges as TiCDC's code has them.
"""

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from tidegate.config.entry import Document, FeedConfig, SinkEntry, SourceEntry, checkpoints_of, key_of
from tidegate.config.option import by_name, options_of, read_all
from tidegate.config.tidb import TidbSource
from tidegate.config.uri import HOST, Parts, account_of, parameters, split, tls_of
from tidegate.model.errors import MysqlConfigInvalid, UriInvalid
from tidegate.model.option import Option, idle
from tidegate.sink.sql.connection import PORT, SECTION, SqlOptions, SyncPoints

if TYPE_CHECKING:
    from tidegate.engine.ports import Sink

_APART: Final = "tidegate.apart"
"""Entry points that refuse a database whose changes would come back in the log: the embedded TiDB knows its own."""
_SCHEMES: Final = ("mysql", "tidb", "mysql+ssl", "tidb+ssl")
SQL_SINK: Final[Mapping[str, Option]] = {
    **options_of(SqlOptions),
    **by_name(
        (
            idle("time-zone", "zone", "TIMESTAMPs are written in UTC, independent of the server's zone", key=SECTION),
            idle(
                "max-multi-update-row",
                "int",
                "rows are updated by their key, up to max-txn-row at once",
                key=SECTION,
            ),
            idle("max-multi-update-row-size", "int", "for max-multi-update-row", key=SECTION),
            idle(
                "cache-prep-stmts",
                "bool",
                "statements are not prepared: a transaction is one packet",
                key=f"{SECTION}enable-cache-prepared-statement",
            ),
            idle("where-clause", "text", "conditions are derived from the key"),
            idle("enable-ddl-ts", "bool", "DDLs are always recorded in the target"),
            idle("async-ddl-timeout", "duration", "the changefeed waits for a DDL without limit"),
            idle("has-vector-type", "bool", "detected from the server"),
        )
    ),
}
_SYNC: Final[Mapping[str, Option]] = {
    **by_name([Option("enable-sync-point", "sync points", "bool", "false", field="enabled")]),
    **options_of(SyncPoints),
}
"""Keys of a file that are read by their kind."""


def parse_sql(uri: str, document: Document | None = None, *, where: str = "sink-uri", feed: str = "") -> SqlOptions:
    """Return the server at `uri` with the keys of a changefeed file, for `feed`. Raises ConfigErrors as TiCDC
    would; `where` names the address in them."""
    parts = split(uri, where, _SCHEMES)
    document = document or Document()
    in_file = document.options(SQL_SINK.values())
    points, _ = read_all(_SYNC, document.section("", _SYNC), MysqlConfigInvalid)
    read, ignored = read_all(SQL_SINK, {**in_file, **parameters(parts, SQL_SINK)}, MysqlConfigInvalid)
    fields: dict[str, Any] = {
        **read,
        **_server(parts),
        "tls": tls_of(parts, read, MysqlConfigInvalid, "a scheme with +ssl"),
        "sync_points": SyncPoints(**points) if points.pop("enabled", False) else None,
        "ignored": ignored,
    }
    return SqlOptions(feed, **fields)


def _server(parts: Parts) -> dict[str, Any]:
    account, server = account_of(parts)
    if not server:
        raise UriInvalid(
            f"{parts.where}: the server is missing; write {parts.scheme}://USER:PASSWORD@HOST:PORT/ "
            f"(tidb:///DIRECTORY, a change log, is only a source)"
        )
    host = HOST.fullmatch(server)
    if host is None or not 0 < int(host["port"] or PORT) < 1 << 16:
        raise UriInvalid(f"{parts.where}: {server!r} is not HOST or HOST:PORT, one server, in {parts.shown}")
    if parts.path.strip("/"):
        raise UriInvalid(
            f"{parts.where}: tables keep the names of their databases; remove {parts.path} from {parts.shown}"
        )
    login = account if account["user"] else {}
    return {"host": host["name"].strip("[]"), "port": int(host["port"] or PORT), **login}


def _open(config: FeedConfig, source: SourceEntry) -> "Sink[Any]":
    from tidegate.sink.sql.sink import SqlSink

    assert isinstance(config.sink, SqlOptions)
    if isinstance(config.source, TidbSource):
        for check in entry_points(group=_APART):
            check.load()(config.source.directory, config.sink.host, config.sink.port)
    options = replace(config.sink, feed=config.name, time_zone="UTC" if source.moments else config.time_zone)
    return SqlSink(options, run_lock=checkpoints_of(config).run_lock, rules=config.table_filter())


SINK: Final = SinkEntry(
    scheme="mysql",
    aliases=("tidb",),
    about="MySQL, MariaDB or TiDB",
    example="mysql://root@127.0.0.1:3306/",
    params=SQL_SINK,
    parse=parse_sql,
    address=SqlOptions,
    open=_open,
    keeps_position=True,
    own_keys={name: key_of(each, shown=False if each.kind == "bool" else each.default) for name, each in _SYNC.items()},
    accepts=frozenset({"bdr-mode"}),
    warnings=SqlOptions.warnings,
    keeps_keyless=True,
    makes_sequences=True,
)
