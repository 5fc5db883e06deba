"""A mysql:// or tidb:// address that is written: a server, an account, and how rows are written.

    mysql://root:p%40ss@127.0.0.1:3306/?max-txn-row=256&transaction-atomicity=global
    tidb+ssl://feed:secret@db:4000/?ssl-ca=/etc/ca.pem
    └ kind, TLS ┘└ percent-encoded ┘└ 4000 unless given; IPv6 in brackets

`mysql` and `tidb` are the same: what the server is, it says itself.  `+ssl` and `ssl-ca` ask for TLS, with the server's
certificate and name checked.  The parameters stand in a changefeed file under [sink] and [sink.mysql-config] as well;
those of the address win.

Source: TiCDC documentation, "Sink URI for MySQL/TiDB"; ranges as TiCDC's code has them.
"""

import re
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import unquote

import msgspec

from tidegate.config.entry import Document, FeedConfig, SinkEntry, SourceEntry, checkpoints_of
from tidegate.config.option import by_name, options_of, read_all
from tidegate.config.tidb import TidbSource
from tidegate.config.uri import Parts, parameters, split, tls_of
from tidegate.model.errors import MysqlConfigInvalid, UriInvalid
from tidegate.model.option import TIME_MAX_MS, Local, Option, Secret, idle
from tidegate.sink.sql.connection import Atomicity, SqlOptions

if TYPE_CHECKING:
    from tidegate.engine.ports import Sink

_APART: Final = "tidegate.apart"
"""Entry points that refuse a database whose changes would come back in the log: the embedded TiDB knows its own."""
_SCHEMES: Final = ("mysql", "tidb", "mysql+ssl", "tidb+ssl")
_FILE: Final = "sink.mysql-config."
_HOST: Final = re.compile(r"(?P<name>[^\s:\[\]@,]+|\[[0-9A-Fa-f:.%]+\])(?::(?P<port>[0-9]{1,5}))?")
PORT: Final = 4000
WORKERS_MAX: Final = 1024
ROWS_MAX: Final = 2048


class SqlAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A server to write, and how; times in ms."""

    host: str
    port: int = PORT
    user: str = "root"
    password: Secret = Secret("")
    tls: bool = False
    ssl_ca: Annotated[
        str, Option("ssl-ca", "path of the CA certificate; asks for TLS", local=Local.FILE, key=_FILE)
    ] = ""
    ssl_cert: Annotated[str, Option("ssl-cert", "path of the client certificate", local=Local.FILE, key=_FILE)] = ""
    ssl_key: Annotated[str, Option("ssl-key", "path of the client key", local=Local.FILE, key=_FILE)] = ""
    worker_count: Annotated[
        int, Option("worker-count", "most connections that write side by side; at most 1024", low=1, key=_FILE)
    ] = 16
    max_txn_row: Annotated[
        int,
        Option(
            "max-txn-row", "most rows of a statement, and of a transaction of several; at most 2048", low=1, key=_FILE
        ),
    ] = 256
    atomicity: Annotated[
        Atomicity,
        Option(
            "transaction-atomicity",
            "what stays whole: `global` upstream transactions, `table` those of each table, `none` rows",
            key="sink.",
        ),
    ] = "global"
    safe_mode: Annotated[
        bool, Option("safe-mode", "write whatever is there: REPLACE, and no counts of rows", key="sink.")
    ] = False
    txn_mode: Annotated[
        Literal["optimistic", "pessimistic"],
        Option("tidb-txn-mode", "transactions of a TiDB: `optimistic` or `pessimistic`", key=_FILE),
    ] = "optimistic"
    batch: Annotated[bool, Option("batch-dml-enable", "statements of many rows", key=f"{_FILE}enable-batch-dml")] = True
    multi_statements: Annotated[
        bool, Option("multi-stmt-enable", "several statements in one packet", key=f"{_FILE}enable-multi-statement")
    ] = True
    dial_ms: Annotated[int, Option("timeout", "time to reach the server", "duration", low=1, key=_FILE)] = 120_000
    read_ms: Annotated[
        int, Option("read-timeout", "time for the answer to a transaction of rows", "duration", low=1, key=_FILE)
    ] = 120_000
    write_ms: Annotated[int, Option("write-timeout", "time to send a statement", "duration", low=1, key=_FILE)] = (
        120_000
    )
    sync_point: bool = False
    sync_interval_ms: int = 600_000
    sync_retention_ms: int = 86_400_000
    ignored: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """What tells this sink from others in the names of changefeeds."""
        return f"{self.host}:{self.port}"

    @property
    def places(self) -> frozenset[str]:
        """What is written."""
        return frozenset({self.identity})

    def options(self, feed: str, time_zone: str = "UTC") -> SqlOptions:
        """Return how the server is reached and written by a feed whose TIMESTAMPs come as texts of a zone."""
        return SqlOptions(
            feed=feed,
            host=self.host,
            port=self.port,
            user=self.user,
            password=str(self.password),
            ssl_ca=self.ssl_ca,
            ssl_cert=self.ssl_cert,
            ssl_key=self.ssl_key,
            tls=self.tls,
            dial_s=self.dial_ms / 1000,
            read_s=self.read_ms / 1000,
            write_s=self.write_ms / 1000,
            workers=min(self.worker_count, WORKERS_MAX),
            txn_rows=min(self.max_txn_row, ROWS_MAX),
            safe_mode=self.safe_mode,
            atomicity=self.atomicity,
            multi_statements=self.multi_statements,
            batch=self.batch,
            txn_mode=self.txn_mode,
            time_zone=time_zone,
            sync_point_ms=(self.sync_interval_ms, self.sync_retention_ms) if self.sync_point else None,
        )

    def warnings(self) -> tuple[str, ...]:
        """Return what a user should hear of an address that works, but perhaps not as meant."""
        found = []
        if self.worker_count > WORKERS_MAX:
            found.append(f"worker-count: {self.worker_count} is more than {WORKERS_MAX}, which is taken")
        if self.max_txn_row > ROWS_MAX:
            found.append(f"max-txn-row: {self.max_txn_row} is more than {ROWS_MAX}, which is taken")
        return tuple(found)


SQL_SINK: Final[Mapping[str, Option]] = {
    **options_of(SqlAddress),
    **by_name(
        (
            idle("time-zone", "zone", "moments are written in UTC, whatever the server's zone", key=_FILE),
            idle("max-multi-update-row", "int", "rows are updated by their key, up to max-txn-row at once", key=_FILE),
            idle("max-multi-update-row-size", "int", "for max-multi-update-row", key=_FILE),
            idle(
                "cache-prep-stmts",
                "bool",
                "nothing is prepared: a transaction is one packet",
                key=f"{_FILE}enable-cache-prepared-statement",
            ),
            idle("where-clause", "text", "the form of conditions follows from the key"),
            idle("enable-ddl-ts", "bool", "DDLs are always noted in the target"),
            idle("async-ddl-timeout", "duration", "a DDL is waited for, however long it takes"),
            idle("has-vector-type", "bool", "the server tells whether it has vectors"),
        )
    ),
}
_SYNC: Final[Mapping[str, Option]] = options_of(
    SqlAddress,
    sync_point=Option("enable-sync-point", "sync points (database sinks)"),
    sync_interval_ms=Option(
        "sync-point-interval", "time between sync points", "duration", low=30_000, high=TIME_MAX_MS
    ),
    sync_retention_ms=Option(
        "sync-point-retention", "how long sync points are kept", "duration", low=3_600_000, high=TIME_MAX_MS
    ),
)
"""Keys of a file that are read by their kind."""


def parse_sql(uri: str, document: Document | None = None, *, where: str = "sink-uri") -> SqlAddress:
    """Return the server behind `uri` with the keys of a changefeed file. Raises ConfigErrors as TiCDC would; `where`
    says in them whose address it is."""
    parts = split(uri, where, _SCHEMES)
    document = document or Document()
    told = document.options(SQL_SINK.values())
    points, _ = read_all(_SYNC, document.section("", _SYNC), MysqlConfigInvalid)
    read, ignored = read_all(SQL_SINK, {**told, **parameters(parts, SQL_SINK)}, MysqlConfigInvalid)
    tls = tls_of(parts, read, MysqlConfigInvalid, "a scheme with +ssl")
    fields: dict[str, Any] = {**points, **read, **_server(parts), "tls": tls, "ignored": ignored}
    return SqlAddress(**fields)


def _server(parts: Parts) -> dict[str, Any]:
    account, found, place = parts.netloc.rpartition("@")
    if not place:
        raise UriInvalid(
            f"{parts.where}: the server is missing; write {parts.scheme}://USER:PASSWORD@HOST:PORT/ (a log of a TiDB, "
            f"tidb:///DIRECTORY, is a source)"
        )
    host = _HOST.fullmatch(place)
    if host is None or not 0 < int(host["port"] or PORT) < 1 << 16:
        raise UriInvalid(f"{parts.where}: {place!r} is not HOST or HOST:PORT, one server, in {parts.shown}")
    if parts.path.strip("/"):
        raise UriInvalid(
            f"{parts.where}: tables keep the names of their databases; leave {parts.path} out of {parts.shown}"
        )
    user, _, password = account.partition(":")
    who = {"user": unquote(user), "password": Secret(unquote(password))} if found and user else {}
    return {"host": host["name"].strip("[]"), "port": int(host["port"] or PORT), **who}


def _open(config: FeedConfig, source: SourceEntry) -> "Sink[Any]":
    from tidegate.sink.sql.sink import SqlSink

    assert isinstance(config.sink, SqlAddress)
    if isinstance(config.source, TidbSource):
        for check in entry_points(group=_APART):
            check.load()(config.source.directory, config.sink.host, config.sink.port)
    options = config.sink.options(config.name, "UTC" if source.moments else config.time_zone)
    return SqlSink(options, held=checkpoints_of(config).held, rules=config.table_filter())


SINK: Final = SinkEntry(
    scheme="mysql",
    aliases=("tidb",),
    about="MySQL, MariaDB or TiDB",
    example="mysql://root@127.0.0.1:3306/",
    params=SQL_SINK,
    parse=parse_sql,
    address=SqlAddress,
    open=_open,
    acts=frozenset(_SYNC),
    databases=True,
    no_selectors="a replica has the rows of the upstream, whole",
    no_topics="tables keep their names, and a database has no topics",
    warnings=SqlAddress.warnings,
    keeps_keyless=True,
)
