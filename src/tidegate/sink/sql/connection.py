"""The server of a database sink: connection options, detection of its kind, and sessions.

    SqlOptions       the parameters of the address; sent to tasks
    TargetServer     kind, version and variables; KINDS has the session settings of each kind
    TargetSession    a session that writes rows: strict, UTC, READ COMMITTED, no foreign key checks
    DdlConnection    a session that runs DDLs: not strict, no read timeout; StatementFailed with the server's number

    SELECT VERSION()    5.7.25-TiDB-v8.5.1                  TIDB     (8, 5, 1)
                        11.8.3-MariaDB-0+deb13u1            MARIADB  (11, 8, 3)
                        8.0.36, 8.0.36-28 (forks)           MYSQL    (8, 0, 36)
                        5.5.5-10.3.2-MariaDB                MARIADB  (10, 3, 2)    sent to old clients

    error of the server or the driver                       raised as      retry
    1045, 1044, 1142, 1227, ..        account, privileges   AccountRefused later: a GRANT may arrive
    1213, 1040, 9007, .., no answer   the server, locks     SinkError      later
    all others                        the row or the table  SinkRefused    no

A variable that the server lacks is absent from `variables`, so optional ones are set only where they exist.

Source: mysql/server_answer.py; TiCDC's MySQL sink probes the server in the same way (TiDB's VERSION() begins with the
MySQL release whose protocol it speaks); MariaDB knowledge base, "Server version prefix".
"""

import re
import ssl
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from tidegate.model.errors import AccountRefused, SinkError, SinkRefused, redacted
from tidegate.model.option import TIME_MAX_MS, Local, Option
from tidegate.model.tso import LOGICAL_BITS, physical_ms
from tidegate.mysql import server_sql as sent
from tidegate.mysql.client import ConnectionOptions, ServerTls, closed_if_it_fails, connect, driver, faults
from tidegate.mysql.server_answer import AnswerKind, answer_kind

Atomicity: TypeAlias = Literal["none", "table", "global"]


SECTION: Final = "sink.mysql-config."
PORT: Final = 4000
WORKERS_MAX: Final = 1024
ROWS_MAX: Final = 2048


@dataclass(frozen=True, slots=True)
class SyncPoints:
    """The interval of sync points, and their retention."""

    interval_ms: Annotated[
        int, Option("sync-point-interval", "time between sync points", "duration", low=30_000, high=TIME_MAX_MS)
    ] = 600_000
    retention_ms: Annotated[
        int,
        Option("sync-point-retention", "how long sync points are kept", "duration", low=3_600_000, high=TIME_MAX_MS),
    ] = 86_400_000

    def after(self, ts: int) -> int:
        """Return the first sync point above `ts`."""
        return (physical_ms(ts) // self.interval_ms + 1) * self.interval_ms << LOGICAL_BITS

    def is_one(self, ts: int) -> bool:
        """Return True if `ts` is a sync point."""
        return self.after(ts - 1) == ts


@dataclass(frozen=True, slots=True)
class SqlOptions:
    """A server to write, and how; times in seconds. Printing it shows no password."""

    feed: str
    host: str
    port: int = PORT
    user: str = "root"
    password: str = field(default="", repr=False)
    ssl_ca: Annotated[
        str, Option("ssl-ca", "path of the CA certificate; enables TLS", local=Local.FILE, key=SECTION)
    ] = ""
    ssl_cert: Annotated[str, Option("ssl-cert", "path of the client certificate", local=Local.FILE, key=SECTION)] = ""
    ssl_key: Annotated[str, Option("ssl-key", "path of the client key", local=Local.FILE, key=SECTION)] = ""
    tls: Annotated[bool, Option("enable-tls", "use TLS; implied by a scheme with `+ssl` and by ssl-ca")] = False
    workers: Annotated[
        int, Option("worker-count", "maximum parallel connections; at most 1024", low=1, key=SECTION)
    ] = 16
    txn_rows: Annotated[
        int,
        Option(
            "max-txn-row",
            "maximum rows of a statement, and of a transaction with several; at most 2048",
            low=1,
            key=SECTION,
        ),
    ] = 256
    atomicity: Annotated[
        Atomicity,
        Option(
            "transaction-atomicity",
            "unit of atomicity: `global` upstream transactions, `table` those of each table, `none` rows",
            key="sink.",
        ),
    ] = "global"
    safe_mode: Annotated[
        bool, Option("safe-mode", "overwrite existing rows: REPLACE, without checking row counts", key="sink.")
    ] = False
    txn_mode: Annotated[
        Literal["optimistic", "pessimistic"],
        Option("tidb-txn-mode", "transactions of a TiDB: `optimistic` or `pessimistic`", key=SECTION),
    ] = "optimistic"
    batch: Annotated[bool, Option("batch-dml-enable", "multi-row statements", key=f"{SECTION}enable-batch-dml")] = True
    multi_statements: Annotated[
        bool,
        Option("multi-stmt-enable", "several statements in one packet", key=f"{SECTION}enable-multi-statement"),
    ] = True
    dial_s: Annotated[float, Option("timeout", "time to reach the server", low=1, key=SECTION)] = 120.0
    read_s: Annotated[float, Option("read-timeout", "timeout of a transaction of rows", low=1, key=SECTION)] = 120.0
    write_s: Annotated[float, Option("write-timeout", "time to send a statement", low=1, key=SECTION)] = 120.0
    time_zone: str = "UTC"
    """The zone in which TIMESTAMPs come as texts."""
    sync_points: SyncPoints | None = None
    ignored: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def identity(self) -> str:
        return self.address

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset({self.address})

    def warnings(self) -> tuple[str, ...]:
        """Return warnings about an address that works, but perhaps not as intended."""
        capped = (("worker-count", self.workers, WORKERS_MAX), ("max-txn-row", self.txn_rows, ROWS_MAX))
        return tuple(
            f"{name}: {value} is more than {most}, which is taken" for name, value, most in capped if value > most
        )

    def connection_options(self, read_s: float | None) -> ConnectionOptions:
        """Return the parameters of a connection, with the time that its answers may take."""
        tls = ServerTls(self.ssl_ca, self.ssl_cert, self.ssl_key) if self.tls else None
        return ConnectionOptions(self.host, self.port, self.user, self.password, tls, self.dial_s, read_s, self.write_s)


class ServerKind(Enum):
    """Whose SQL a server speaks."""

    MYSQL = "MySQL"
    MARIADB = "MariaDB"
    TIDB = "TiDB"


class Setting(NamedTuple):
    """A variable of sessions, its value as SQL, and the version of the server since which it holds."""

    name: str
    value: str
    since: tuple[int, ...] = ()


ROW_MODES: Final = "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
"""Strict, so that nothing is truncated; the upstream's values, such as a day 0, are accepted."""
DDL_MODES: Final = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
"""Not strict: a change of type that the upstream has made is made here too."""
OWN_ZONE: Final = "+00:00"
"""The zone of every session, but for a DDL whose own is known."""
_EVERY: Final = (Setting("time_zone", f"'{OWN_ZONE}'"), Setting("foreign_key_checks", "0"))
ROWS: Final = (Setting("sql_mode", f"'{ROW_MODES}'"), *_EVERY)
"""Of sessions of rows, on servers of all kinds: they are set before the kind is known."""
_DDLS: Final = (Setting("sql_mode", f"'{DDL_MODES}'"), *_EVERY)
_TABLES: Final = (Setting("explicit_defaults_for_timestamp", "1"), Setting("default_storage_engine", "InnoDB"))
_READ_COMMITTED: Final = (
    Setting("transaction_isolation", "'READ-COMMITTED'"),
    Setting("tx_isolation", "'READ-COMMITTED'"),
)
_WRITE_SOURCE: Final = (Setting("tidb_cdc_write_source", "1"), Setting("tidb_placement_mode", "'ignore'"))


_UNCHECKED: Final = Setting("check_constraint_checks", "0", since=(10, 2, 1))
"""The upstream checks its rows, as far as it does; a CHECK of MariaDB's own refuses JSON that is deeper than 31."""


@dataclass(frozen=True, slots=True)
class KindTraits:
    """Features of servers of a kind, and the variables that sessions set there besides ROWS.

    `optional` are variables that not all of its versions have: they are probed, and set where the server has them."""

    rows: tuple[Setting, ...]
    ddls: tuple[Setting, ...]
    optional: tuple[str, ...]
    duplicates: bool = True
    """INSERT .. ON DUPLICATE KEY UPDATE reports the number of existing rows."""
    documents: bool = True
    """JSON is compared as documents, not as text."""
    grants: bool = True
    """SHOW GRANTS lists all rights, except those of roles."""
    numbers: str = ""
    """The relation of information_schema with the numbers of tables; "" for none."""
    jobs: bool = False
    """DDLs are jobs, in information_schema.ddl_jobs."""
    past: bool = False
    """Rows of the past can be read, by tidb_snapshot."""


_PROBED: Final = ("max_allowed_packet", "transaction_isolation", "tx_isolation")
KINDS: Final[Mapping[ServerKind, KindTraits]] = {
    ServerKind.MYSQL: KindTraits(
        rows=_READ_COMMITTED, ddls=(*_DDLS, *_TABLES), optional=_PROBED, numbers="INNODB_TABLES"
    ),
    ServerKind.MARIADB: KindTraits(
        rows=(
            *_READ_COMMITTED,
            Setting("sql_mode", f"'{ROW_MODES},TIME_ROUND_FRACTIONAL'", since=(10, 4, 1)),
            Setting("in_predicate_conversion_threshold", "0", since=(10, 3, 18)),
            _UNCHECKED,
        ),
        ddls=(
            *_DDLS,
            Setting("sql_mode", f"'{DDL_MODES},TIME_ROUND_FRACTIONAL'", since=(10, 4, 1)),
            _UNCHECKED,
            Setting("max_statement_time", "0", since=(10, 1, 1)),
            *_TABLES,
        ),
        optional=_PROBED,
        documents=False,
        numbers="INNODB_SYS_TABLES",
    ),
    ServerKind.TIDB: KindTraits(
        rows=(
            *_READ_COMMITTED,
            Setting("tidb_txn_mode", "'{txn_mode}'"),
            Setting("allow_auto_random_explicit_insert", "1"),
            Setting("tidb_enable_external_ts_read", "OFF"),
            *_WRITE_SOURCE,
        ),
        ddls=(*_DDLS, *_WRITE_SOURCE),
        optional=(
            *_PROBED,
            "allow_auto_random_explicit_insert",
            "tidb_cdc_write_source",
            "tidb_enable_external_ts_read",
            "tidb_external_ts",
            "tidb_placement_mode",
            "tidb_txn_mode",
        ),
        duplicates=False,
        grants=False,
        jobs=True,
        past=True,
    ),
}
"""A MariaDB rounds fractions of a second as the others do only in a mode of its own."""

_TIDB: Final = re.compile(r"tidb-v?(\d+(?:\.\d+)*)", re.IGNORECASE)
_MARIADB: Final = re.compile(r"(?:5\.5\.5-)?(\d+(?:\.\d+)*)-mariadb", re.IGNORECASE)
_NUMBERS: Final = re.compile(r"(\d+(?:\.\d+)*)")


@dataclass(frozen=True, slots=True)
class TargetServer:
    """A server: whose SQL it speaks, its version, and those of the probed variables that it has."""

    kind: ServerKind
    version: tuple[int, ...]
    variables: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind.value} {'.'.join(map(str, self.version))}"

    def has(self, variable: str) -> bool:
        return variable in self.variables

    @property
    def traits(self) -> KindTraits:
        return KINDS[self.kind]

    def settings(self, settings: Iterable[Setting]) -> list[Setting]:
        """Return the settings whose variables the server has."""
        lacking = set(self.traits.optional) - self.variables.keys()
        return [setting for setting in settings if self.version >= setting.since and setting.name not in lacking]

    def modes(self, *, strict: bool) -> Setting:
        """Return the SQL modes of sessions of rows, or those of sessions that are not strict."""
        settings = self.settings([*ROWS, *self.traits.rows] if strict else self.traits.ddls)
        return [setting for setting in settings if setting.name == "sql_mode"][-1]

    @property
    def packet_bytes(self) -> int:
        """The longest statement that the server takes."""
        return int(self.variables.get("max_allowed_packet") or 1 << 24)


def target_of(version: str, variables: Mapping[str, str] = MappingProxyType({})) -> TargetServer:
    """Return the target whose VERSION() and variables these are. SinkRefused for text without a version."""
    kinds = ((ServerKind.TIDB, _TIDB), (ServerKind.MARIADB, _MARIADB), (ServerKind.MYSQL, _NUMBERS))
    for kind, pattern in kinds:
        if (match := pattern.search(version)) is not None:
            return TargetServer(kind, tuple(map(int, match[1].split("."))), dict(variables))
    raise SinkRefused(f"the server calls its version {version!r}; it is no MySQL, MariaDB or TiDB")


ERRORS: Final[Mapping[AnswerKind, type[SinkError]]] = {
    AnswerKind.ACCOUNT: AccountRefused,
    AnswerKind.PASSES: SinkError,
    AnswerKind.REFUSED: SinkRefused,
}
_LOST: Final = 2013
_DUPLICATES: Final = re.compile(rb"Duplicates: (\d+)")
_CHANGED: Final = "the table differs from the upstream's; give it the upstream's columns, then resume"
_CHECK: Final = "a CHECK that the upstream lacks or does not enforce; ALTER TABLE .. DROP CONSTRAINT, then resume"
_GRANT: Final = (
    "GRANT the account SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX on the replicated databases and on "
    "tidegate; views, foreign keys and new databases need further privileges"
)
_ADVICE: Final = {
    **dict.fromkeys((1044, 1142, 1143, 1227), _GRANT),
    **dict.fromkeys((1054, 1136, 1264, 1265, 1292, 1364, 1366, 1406), _CHANGED),
    1045: "check user and password of the address; '@', ':' and '/' of a password are written %40, %3A and %2F",
    1062: "a row exists unexpectedly: another client writes the table, the changefeed started too early, or its topic "
    "has UPDATEs without old values (output-old-value=false); safe-mode=true replaces such rows. While the "
    "upstream drops a unique key, rows may share its value: drop the key in the replica, too, then resume",
    **dict.fromkeys((3819, 4025), _CHECK),
    1071: "its keys are shorter than TiDB's; CREATE the table by hand with a shorter key column, or exclude it",
    1118: "its rows are shorter than TiDB's; CREATE the table by hand with TEXT or BLOB columns, or exclude it",
    1300: "its names have no characters beyond U+FFFF; rename it in the upstream, or exclude the table",
    1146: "the table does not exist: it was dropped or renamed, or the filter excluded it until now; create it with "
    "its rows, then resume, or exclude it by a filter rule",
    1049: "the database was dropped, or the upstream had it before the changefeed started, such as `test`; CREATE "
    "DATABASE, then resume",
    1290: "SET GLOBAL read_only = OFF on the server, or give the account READ_ONLY ADMIN",
    1836: "the server is read-only; SET GLOBAL read_only = OFF",
    1021: "the server's disk is full: free disk space, and the changefeed continues",
    1114: "the server's disk or a limit of its tables is full: free space, and the changefeed continues",
    2003: "is it running, and is the port correct? The default port is TiDB's, 4000",
}


class RowCounts(NamedTuple):
    """The rows that a statement affected, and how many of several existed before."""

    affected: int
    duplicates: int


def advice(code: int) -> str:
    """Return a hint for an error of a server, after a semicolon; "" if none is known."""
    return f"; {_ADVICE[code]}" if code in _ADVICE else ""


_VALUES: Final = re.compile(
    r"(?s)((?:entry|value:?) ')(.+)(?=' for (?:key|column) ')"  # the greatest, since a value may hold quotes
    r"|((?:near|value:|range in) ')(.+)(?=')"
)
"""Values of rows that servers quote."""


def sink_error(error: Exception, options: SqlOptions) -> SinkError:
    """Return the sink's error for an error of the driver."""
    if isinstance(error.__context__, ssl.SSLError):
        reason = getattr(error.__context__, "verify_message", "") or error.__context__.reason
        return AccountRefused(f"{options.address}: no TLS: {reason}; check ssl-ca, ssl-cert, ssl-key and the host name")
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1] if len(error.args) > 1 else error)
    shown = _VALUES.sub(lambda quoted: f"{quoted[1] or quoted[3]}{redacted(quoted[2] or quoted[4])}", text)
    hint = advice(code)
    if code == _LOST and isinstance(error.__context__, TimeoutError):
        hint = (
            f"; no response within read-timeout={options.read_s:g}s. Is the server busy, or does another session hold "
            f"locks on the rows? Raise read-timeout in the address, or lower max-txn-row"
        )
    text_and_code = f"{shown} ({code}){hint}" if code else shown
    return ERRORS[answer_kind(code, text)](f"{options.address}: {text_and_code}")


def number_of(error: SinkError) -> int:
    """Return the number of the server's error that caused a sink's error; 0 for none."""
    cause = error.__cause__
    return cause.args[0] if cause is not None and cause.args and isinstance(cause.args[0], int) else 0


class TargetSession:
    """A connection; `read_s` None waits for answers as long as they take, and `many` statements go in one packet only
    where rows are written."""

    def __init__(self, options: SqlOptions, *, read_s: float | None = None, many: bool = False) -> None:
        self.options = options
        with self._errors():
            flags = driver().constants.CLIENT.FOUND_ROWS
            self.connection = connect(options.connection_options(read_s), many=many, flags=flags)
            with closed_if_it_fails(self.connection):
                for name, setting, _ in ROWS:
                    self.connection.query(sent.SETTING.format(name=name, value=setting))

    def prepare(self, target: TargetServer, *, wait_s: int | None = None) -> "TargetSession":
        """Set the variables that only some servers have. The server ends the session, and the transaction that it is
        in, when it is silent for `wait_s`."""
        with closed_if_it_fails(self.connection):
            for setting in target.settings(target.traits.rows):
                self.set(setting)
            if wait_s is not None:
                self.set(Setting("wait_timeout", str(wait_s)))
        return self

    def set(self, setting: Setting) -> None:
        value = setting.value.format(txn_mode=self.options.txn_mode)
        self.ask(sent.SETTING.format(name=setting.name, value=value))

    def ask(self, *questions: str | bytes, values: Sequence[object] = ()) -> Sequence[Sequence[Any]]:
        """Send statements one by one; return the rows of the last. `values` are those of its %s."""
        rows: Sequence[Sequence[Any]] = ()
        with self._errors(), self.connection.cursor() as cursor:
            for question in questions:
                cursor.execute(question, tuple(values) or None)
                rows = cursor.fetchall()
        return rows

    def stream(self, question: str) -> Iterator[Sequence[Any]]:
        """Send a statement; yield its rows as they arrive. The session is in use until the last one, or until the
        iterator is closed, which discards the others."""
        with self._errors(), self.connection.cursor(driver().cursors.SSCursor) as cursor:
            cursor.execute(question)
            yield from cursor

    def changed(self, statement: str, *values: object) -> int:
        """Return the number of rows that a statement matched."""
        with self._errors(), self.connection.cursor() as cursor:
            return int(cursor.execute(statement, values))

    def send(self, texts: Sequence[bytes]) -> Iterator[RowCounts]:
        """Send statements in one packet; return the answer of each."""
        with self._errors():
            self.connection.query(b";".join(texts))
            yield self._answer()
            while self.connection._result.has_next:  # noqa: SLF001  the driver's cursor reads it as well
                self.connection.next_result()
                yield self._answer()

    def close(self) -> None:
        """End the session; uncommitted changes are rolled back."""
        if self.connection.open:
            try:
                self.connection.close()
            except (OSError, struct.error, driver().MySQLError):
                return

    def _answer(self) -> RowCounts:
        result = self.connection._result  # noqa: SLF001
        match = _DUPLICATES.search(result.message or b"")
        return RowCounts(result.affected_rows, int(match[1]) if match else -1)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except faults(OSError) as error:
            raise sink_error(error, self.options) from error


def probe(session: TargetSession) -> TargetServer:
    """Return kind, version and variables of the server."""
    variables: dict[str, str] = {}
    with closed_if_it_fails(session.connection):
        ((version,),) = session.ask(sent.VERSION)
        server = target_of(str(version))
        session.ask(sent.IN_INFORMATION)
        for name in server.traits.optional:
            for variable, value in session.ask(sent.VARIABLE.format(name=name)):
                variables[str(variable).lower()] = str(value)
    return replace(server, variables=variables)


LOST: Final = frozenset({0, 1053, 1077, 1079, 1152, 1153, 1158, 1159, 1160, 1161, 1927, 2006, 2013, 2014, 2055})
"""The server went away, was shut down or ended the connection: the outcome of the last statement is unknown."""
_OPTIONAL: Final = frozenset({1193, 1227, 1231, 1238})
"""A variable that this server does not have, or that this account may not set."""


class StatementFailed(SinkError):
    """The server refused a statement, or went away; `number` is its error, 0 without an answer."""

    def __init__(self, number: int, what: str, /) -> None:
        super().__init__(number, what)
        self.number, self.what = number, what

    def __str__(self) -> str:
        return f"{self.what} ({self.number})" if self.number else self.what

    @property
    def is_lost(self) -> bool:
        """True if the connection is lost, so that the outcome of the statement is unknown."""
        return self.number in LOST


Connect: TypeAlias = Callable[[], Any]
"""Opens a connection of PyMySQL, with autocommit and without read timeout."""


class DdlConnection:
    """A connection with the variables of DDLs that the server has."""

    def __init__(self, connect: Connect, target: TargetServer) -> None:
        with _failures():
            self.connection = connect()
        with closed_if_it_fails(self.connection):
            for name, value, _ in target.settings(target.traits.ddls):
                try:
                    self.ask(sent.SETTING.format(name=name, value=value))
                except StatementFailed as error:
                    if error.number not in _OPTIONAL:
                        raise

    def ask(self, text: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with _failures(), self.connection.cursor() as cursor:
            cursor.execute(text, tuple(values) or None)
            return list(cursor.fetchall())

    def ask_many(self, text: str, rows: Sequence[Sequence[object]]) -> None:
        """Insert rows, many in a statement. StatementFailed."""
        with _failures(), self.connection.cursor() as cursor:
            cursor.executemany(text, rows)

    def changed(self, text: str, values: Sequence[object]) -> int:
        with _failures(), self.connection.cursor() as cursor:
            return int(cursor.execute(text, values))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the block's changes, or roll them back if it raises."""
        self.ask(sent.BEGIN)
        try:
            yield
        except BaseException:
            self.undo()
            raise
        self.ask(sent.COMMIT)

    def undo(self) -> None:
        """End the transaction; a connection that is gone has ended it already."""
        try:
            self.ask(sent.ROLLBACK)
        except StatementFailed:
            self.close()

    def close(self) -> None:
        try:
            with _failures():
                self.connection.close()
        except StatementFailed:
            return


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except faults(OSError, struct.error) as error:
        is_answer = isinstance(error, driver().MySQLError) and error.args and isinstance(error.args[0], int)
        number = int(error.args[0]) if is_answer else 0
        raise StatementFailed(number, str(error.args[1] if is_answer and len(error.args) > 1 else error)) from error
