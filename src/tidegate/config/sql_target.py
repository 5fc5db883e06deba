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
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from tidegate.config.document import Document
from tidegate.config.keys import KEYS
from tidegate.config.local_name import Local
from tidegate.config.param import TIME_MAX_MS, Given, Param, idle, read_all
from tidegate.config.refused import RefusedKey
from tidegate.config.uri import Parts, Secret, parameters, split
from tidegate.model.errors import MysqlConfigInvalid, UnsupportedError, UriInvalid
from tidegate.sink.sql.connection import Atomicity, SqlOptions

_SCHEMES: Final = ("mysql", "tidb", "mysql+ssl", "tidb+ssl")
_FILE: Final = "sink.mysql-config."
_HOST: Final = re.compile(r"(?P<name>[^\s:\[\]@,]+|\[[0-9A-Fa-f:.%]+\])(?::(?P<port>[0-9]{1,5}))?")
PORT: Final = 4000
WORKERS_MAX: Final = 1024
ROWS_MAX: Final = 2048

SQL_SINK: Final[Mapping[str, Param]] = {
    "worker-count": Param("int", "worker_count", "16", "most connections that write side by side; at most 1024", low=1),
    "max-txn-row": Param(
        "int", "max_txn_row", "256", "most rows of a statement, and of a transaction of several; at most 2048", low=1
    ),
    "transaction-atomicity": Param(
        "choice",
        "atomicity",
        "global",
        "what stays whole: `global` upstream transactions, `table` those of each table, `none` rows",
        ("none", "table", "global"),
    ),
    "safe-mode": Param("bool", "safe_mode", "false", "write whatever is there: REPLACE, and no counts of rows"),
    "tidb-txn-mode": Param(
        "choice",
        "txn_mode",
        "optimistic",
        "transactions of a TiDB: `optimistic` or `pessimistic`",
        ("optimistic", "pessimistic"),
    ),
    "batch-dml-enable": Param("bool", "batch", "true", "statements of many rows"),
    "multi-stmt-enable": Param("bool", "multi_statements", "true", "several statements in one packet"),
    "ssl-ca": Param("text", "ssl_ca", "", "path of the CA certificate; asks for TLS", local=Local.FILE),
    "ssl-cert": Param("text", "ssl_cert", "", "path of the client certificate", local=Local.FILE),
    "ssl-key": Param("text", "ssl_key", "", "path of the client key", local=Local.FILE),
    "timeout": Param("duration", "dial_ms", "2m", "time to reach the server", low=1),
    "read-timeout": Param("duration", "read_ms", "2m", "time for the answer to a transaction of rows", low=1),
    "write-timeout": Param("duration", "write_ms", "2m", "time to send a statement", low=1),
    "time-zone": idle("zone", "UTC", "moments are written in UTC, whatever the server's zone"),
    "max-multi-update-row": idle("int", "40", "rows are updated by their key, up to max-txn-row at once"),
    "max-multi-update-row-size": idle("int", "1024", "the same"),
    "cache-prep-stmts": idle("bool", "true", "nothing is prepared: a transaction is one packet"),
    "where-clause": idle("text", "v2", "the form of conditions follows from the key"),
    "enable-ddl-ts": idle("bool", "true", "DDLs are always noted in the target"),
    "async-ddl-timeout": idle("duration", "2m", "a DDL is waited for, however long it takes"),
    "has-vector-type": idle("bool", "false", "the server tells whether it has vectors"),
}
_NAMES: Final = {"batch-dml-enable": "enable-batch-dml", "multi-stmt-enable": "enable-multi-statement"}
"""Parameters that have another name in a file."""
_PLACES: Final = {
    **{name: f"{_FILE}{_NAMES.get(name, name)}" for name, param in SQL_SINK.items() if param.field},
    "safe-mode": "sink.safe-mode",
    "transaction-atomicity": "sink.transaction-atomicity",
}
_SYNC: Final[Mapping[str, Param]] = {
    "enable-sync-point": Param("bool", "sync_point", "false", "see keys.py"),
    "sync-point-interval": Param("duration", "sync_interval_ms", "10m", "see keys.py", low=30_000, high=TIME_MAX_MS),
    "sync-point-retention": Param(
        "duration", "sync_retention_ms", "24h", "see keys.py", low=3_600_000, high=TIME_MAX_MS
    ),
}
"""Keys of a file that are read by their kind."""
SQL_KEYS: Final = frozenset(path for path in (*_PLACES.values(), *_SYNC) if path in KEYS)
"""Keys of a changefeed file that act where a database is written."""

_ROWS: Final = "a replica has the rows of the upstream, whole"
SQL_REFUSED: Final[Mapping[str, RefusedKey]] = {
    "sink.column-selectors[].": RefusedKey((), UnsupportedError, _ROWS),
    "sink.dispatchers[].": RefusedKey((), UnsupportedError, "tables keep their names, and a database has no topics"),
}
"""Keys that a database has no place for."""


class SqlAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A server to write, and how; times in ms."""

    host: str
    port: int = PORT
    user: str = "root"
    password: Secret = Secret("")
    tls: bool = False
    ssl_ca: str = ""
    ssl_cert: str = ""
    ssl_key: str = ""
    worker_count: int = 16
    max_txn_row: int = 256
    atomicity: Atomicity = "global"
    safe_mode: bool = False
    txn_mode: str = "optimistic"
    batch: bool = True
    multi_statements: bool = True
    dial_ms: int = 120_000
    read_ms: int = 120_000
    write_ms: int = 120_000
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


def parse_sql(uri: str, document: Document | None = None, *, where: str = "sink-uri") -> SqlAddress:
    """Return the server behind `uri` with the keys of a changefeed file. Raises ConfigErrors as TiCDC would; `where`
    says in them whose address it is."""
    parts = split(uri, where, _SCHEMES)
    flat = (document or Document()).flat
    told = {name: Given(path, flat[path]) for name, path in _PLACES.items() if flat.get(path) not in {None, ""}}
    points, _ = read_all(_SYNC, {name: Given(name, flat[name]) for name in _SYNC if name in flat}, MysqlConfigInvalid)
    read, ignored = read_all(SQL_SINK, {**told, **parameters(parts, SQL_SINK)}, MysqlConfigInvalid)
    if bool(read.get("ssl_cert")) != bool(read.get("ssl_key")):
        raise MysqlConfigInvalid(f"{where}: ssl-cert and ssl-key go together")
    tls = parts.scheme.endswith("+ssl") or bool(read.get("ssl_ca"))
    if read.get("ssl_cert") and not tls:
        raise MysqlConfigInvalid(f"{where}: ssl-cert needs ssl-ca, or a scheme with +ssl")
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
