"""A client's connection: commands of MySQL's protocol, prepared statements, and their answers.

    handshake ──► session ──► COM_QUERY, COM_STMT_EXECUTE ──► statements one by one ──► OK, rows or an error each
                                                              in the thread of this client

mysql-mimic's `Connection` does the handshake, the flow of packets and KILL.  Its own session is not used: it answers
SHOW and SET by itself, its OK packets have no affected rows, its errors know few SQLSTATEs, and its prepared statements
do not quote.  Incoming packets are checked in wire.py.  Each client has one thread: its statements run one after the
other and never delay those of other clients, however long a DDL waits.

The parameters of a prepared statement become literals in its text, so that it means the same prepared and plain:

    prepare   INSERT INTO t VALUES (?, 'why?', ?)           parameters at 23 and 34; the one in the string is text
    bound     INSERT INTO t VALUES (7, 'why?', 'it''s')

    COM_STMT_EXECUTE: null bitmap | 01 | type: 2 bytes each | values      with 00 the types of the last time are used
    COM_STMT_SEND_LONG_DATA: a long text, sent in pieces beforehand

Source: MySQL manual, "Prepared Statements"; MySQL Internals, "Command Phase", "Text Protocol", "Prepared Statements",
"COM_STMT_EXECUTE", "Binary Protocol Value".
"""

import asyncio
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from mysql_mimic.connection import Connection
from mysql_mimic.packets import (
    make_auth_switch_request,
    make_column_count,
    make_com_stmt_prepare_ok,
    make_eof,
    make_ok,
)
from mysql_mimic.prepared import PreparedStatement
from mysql_mimic.session import BaseSession
from mysql_mimic.stream import ConnectionClosed
from mysql_mimic.types import Capabilities, ServerStatus, str_len

from tidegate.expr.parse import tokens_of
from tidegate.expr.scope import ResultColumn, ResultSet
from tidegate.expr.tokens import TokenKind
from tidegate.model.errors import DecodeError, SqlRefused, TidegateError, UpstreamError
from tidegate.model.mysql import STRINGS, MysqlType
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate_upstream.tidb.dml import Outcome
from tidegate_upstream.tidb.session import Session
from tidegate_upstream.tidb.wire import (
    CODEC,
    Account,
    ClientStream,
    PacketReader,
    PortLimits,
    binary_row,
    check_change_user,
    check_login,
    column_packet,
    error_packet,
    text_row,
)

Bound: TypeAlias = int | float | str | bytes | None
"""A parameter; `bytes` are text in the client's encoding."""
_WRONG_ARGUMENTS: Final = 1210


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement and the offsets of its parameters."""

    sql: str
    markers: tuple[int, ...]

    @classmethod
    def of(cls, sql: str, sql_mode: frozenset[str]) -> "Prepared":
        """Return the statement with its parameters. Raises SqlRefused 1064 for unreadable text."""
        tokens = tokens_of(sql, sql_mode)
        return cls(sql, tuple(token.start for token in tokens if token.kind is TokenKind.SIGN and token.text == "?"))


def bind(statement: Prepared, values: Sequence[Bound], sql_mode: frozenset[str], charset: str = "utf-8") -> str:
    """Return the text of the statement with literals in place of its parameters. Raises SqlRefused 1210."""
    if len(values) != len(statement.markers):
        raise SqlRefused(_WRONG_ARGUMENTS, "Incorrect arguments to EXECUTE")
    parts, last = [], 0
    for marker, value in zip(statement.markers, values, strict=True):
        parts += [statement.sql[last:marker], _literal(value, sql_mode, charset)]
        last = marker + 1
    return "".join([*parts, statement.sql[last:]])


def _literal(value: Bound, sql_mode: frozenset[str], charset: str) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        raw = value
        try:
            value = raw.decode(charset)
        except UnicodeDecodeError:
            return f"x'{raw.hex()}'"
    if isinstance(value, str):
        text = value.replace("'", "''")
        return f"'{text if 'NO_BACKSLASH_ESCAPES' in sql_mode else text.replace(chr(92), chr(92) * 2)}'"
    return f"{value!r}e0" if isinstance(value, float) and "e" not in repr(value) else repr(value)


_TEXTS: Final = STRINGS | {T.DECIMAL_OLD, T.DECIMAL, T.JSON, T.ENUM, T.SET, T.BIT, T.GEOMETRY}
_INTS: Final = {T.TINY: 1, T.SHORT: 2, T.YEAR: 2, T.LONG: 4, T.INT24: 4, T.LONGLONG: 8}
_UNSIGNED: Final = 0x80
_CODES: Final = {int(code): code for code in T}


@dataclass(slots=True)
class ClientStatement:
    """A prepared statement of a client; `types` are those of its last execution, `long_data` the parameters sent in
    pieces."""

    prepared: Prepared
    types: tuple[tuple[T, bool], ...] = ()
    long_data: dict[int, bytearray] = field(default_factory=dict)


def read_parameters(statement: ClientStatement, data: bytes) -> list[Bound]:
    """Return the parameters of an execution, the part of its packet after the iteration count. Raises DecodeError."""
    count = len(statement.prepared.markers)
    if not count:
        return []
    reader = PacketReader(data)
    absent = int.from_bytes(reader.take((count + 7) // 8), "little")
    if reader.take(1) == b"\1":
        statement.types = tuple(_type(reader.take(2)) for _ in range(count))
    if len(statement.types) != count:
        raise DecodeError("parameters without types", CODEC, reader.offset)
    values: list[Bound] = []
    for index, (code, unsigned) in enumerate(statement.types):
        if index in statement.long_data:
            values.append(bytes(statement.long_data[index]))
        else:
            values.append(None if absent >> index & 1 else _read(reader, code, unsigned=unsigned))
    return values


def _type(raw: bytes) -> tuple[T, bool]:
    code = _CODES.get(raw[0])
    if code is None:
        raise DecodeError(f"type {raw[0]} is not a MySQL type", CODEC, 0)
    return code, bool(raw[1] & _UNSIGNED)


def _read(reader: PacketReader, code: T, *, unsigned: bool) -> Bound:
    if code in _INTS:
        return int.from_bytes(reader.take(_INTS[code]), "little", signed=not unsigned)
    if code in _TEXTS:
        return reader.sized()
    read = _READERS.get(code)
    if read is None:
        raise DecodeError(f"a parameter of type {code.name}", CODEC, reader.offset)
    return read(reader)


def _read_double(reader: PacketReader) -> Bound:
    return float(struct.unpack("<d", reader.take(8))[0])


def _read_moment(reader: PacketReader) -> Bound:
    raw = reader.sized().ljust(11, b"\0")
    year, month, day, hour, minute, second, microsecond = struct.unpack("<HBBBBBI", raw[:11])
    date = f"{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"
    return f"{date}.{microsecond:06}" if microsecond else date


def _read_span(reader: PacketReader) -> Bound:
    raw = reader.sized().ljust(12, b"\0")
    minus, days, hour, minute, second, microsecond = struct.unpack("<BIBBBI", raw[:12])
    clock = f"{'-' if minus else ''}{days * 24 + hour:02}:{minute:02}:{second:02}"
    return f"{clock}.{microsecond:06}" if microsecond else clock


_READERS: Final[Mapping[T, Callable[[PacketReader], Bound]]] = {
    T.FLOAT: lambda reader: float(struct.unpack("<f", reader.take(4))[0]),
    T.DOUBLE: _read_double,
    **dict.fromkeys((T.DATE, T.DATETIME, T.TIMESTAMP), _read_moment),
    T.TIME: _read_span,
    T.NULL: lambda _reader: None,
}


CAPABILITIES: Final = (
    Capabilities.CLIENT_PROTOCOL_41
    | Capabilities.CLIENT_DEPRECATE_EOF
    | Capabilities.CLIENT_CONNECT_WITH_DB
    | Capabilities.CLIENT_CONNECT_ATTRS
    | Capabilities.CLIENT_PLUGIN_AUTH
    | Capabilities.CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA
    | Capabilities.CLIENT_SECURE_CONNECTION
    | Capabilities.CLIENT_LONG_PASSWORD
    | Capabilities.CLIENT_LONG_FLAG
    | Capabilities.CLIENT_TRANSACTIONS
    | Capabilities.CLIENT_FOUND_ROWS
    | Capabilities.CLIENT_ODBC
    | Capabilities.CLIENT_INTERACTIVE
    | Capabilities.CLIENT_IGNORE_SPACE
    | Capabilities.CLIENT_MULTI_STATEMENTS
    | Capabilities.CLIENT_MULTI_RESULTS
    | Capabilities.CLIENT_PS_MULTI_RESULTS
)
"""Offered without query attributes, so that a COM_QUERY is just the statement."""
_GREETED: Final = ServerStatus.SERVER_STATUS_AUTOCOMMIT
"""The status of TiDB's handshake, whatever autocommit is; a driver that wants another one sends SET autocommit."""
_MORE: Final = ServerStatus.SERVER_MORE_RESULTS_EXISTS
_ROWS_A_BATCH: Final = 1_000
_UNKNOWN_ERROR: Final = 1105
_STATEMENTS_MAX: Final = 1_000
"""Maximal number of prepared statements of a client."""
_PLUGIN: Final = "mysql_native_password"
_BAD_HANDSHAKE: Final = SqlRefused(1043, "Bad handshake", "08S01")
_KILLED: Final = (3169, (1317, "70100", "Query execution was interrupted"))
_SQLSTATES: Final = {
    1040: "08004",
    1045: "28000",
    1046: "3D000",
    1047: "08S01",
    1049: "42000",
    1062: "23000",
    1064: "42000",
    1146: "42S02",
}
"""SQLSTATE of errors that carry none."""
UTF8: Final = frozenset({"utf8mb4", "utf8", "binary", ""})
"""Character sets whose texts are sent unchanged."""
_Result = TypeVar("_Result")
_Answer = ResultSet | Outcome | TidegateError


class _Variables:
    """The session variables that mysql-mimic reads."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, name: str) -> str:
        """Return a variable as text; character sets by the library's names."""
        value = str(self._session.variables.get(name, ""))
        return "utf8mb4" if name.startswith("character_set") and value in UTF8 else value

    def set(self, name: str, value: object, force: bool = False) -> None:  # noqa: FBT001, FBT002  the library's call
        """Set a variable from the handshake. The library keeps the account's name itself."""
        del force
        if name == "character_set_client":
            self._session.set("names", str(value))


class ServedSession(BaseSession):  # type: ignore[misc]  # the library has no types
    """mysql-mimic's view of a session, which runs in a thread of its own."""

    def __init__(self, session: Session) -> None:
        self.session, self.variables = session, _Variables(session)
        self.username: str | None = None
        self.database: str | None = None
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidegate-client")

    async def call(self, function: Callable[[], _Result]) -> _Result:
        """The result of a call in the session's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    async def init(self, connection: Connection) -> None:
        """Called after the handshake; does nothing."""

    async def close(self) -> None:
        """The client disconnected: interrupt its statement, then roll back. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.session.interrupt()
        self._thread.submit(self.session.close)
        self._thread.shutdown(wait=False)

    async def reset(self) -> None:
        """COM_CHANGE_USER."""
        await self.call(self.session.reset)

    async def use(self, database: str) -> None:
        """COM_INIT_DB."""
        await self.call(lambda: self.session.use(database))


class Client(Connection):  # type: ignore[misc]
    """A connection answered by a session of the embedded TiDB."""

    session: ServedSession
    stream: ClientStream

    def __init__(self, *, account: Account | None, limits: PortLimits, **options: Any) -> None:
        super().__init__(**options)
        self._account, self._limits = account, limits
        self._prepared: dict[int, ClientStatement] = {}

    async def start(self) -> None:
        """The conversation, until the client or a refusal ends it."""
        self.session.session.connection_id = self.connection_id
        with suppress(ConnectionClosed, OSError):
            try:
                await super().start()
            except TidegateError as refused:
                if self.session.username is not None:  # a refused login has been told by the library
                    await self._write(_packet_of(refused))

    async def connection_phase(self) -> None:
        """The login, within its time. Raises SqlRefused for one that is none, or is not let in."""
        stream, self.status_flags = self.stream, _GREETED
        stream.check = partial(check_login, offered=self.server_capabilities)
        try:
            async with asyncio.timeout(self._limits.login_s):
                await super().connection_phase()
        except (DecodeError, ValueError, LookupError) as error:  # the last two: no such charset, no such text in it
            raise _BAD_HANDSHAKE from error
        variables = self.session.session.variables
        stream.idle_s = lambda: float(str(variables.get("wait_timeout")))
        stream.most_bytes = lambda: int(str(variables.get("max_allowed_packet")))

    async def handle_change_user(self, data: bytes) -> None:
        """COM_CHANGE_USER; a refused client is disconnected."""
        try:
            check_change_user(data, self.capabilities)
            await super().handle_change_user(data)
        except (DecodeError, ValueError, LookupError):
            await self._end(_BAD_HANDSHAKE)
        except SqlRefused as refused:
            await self._end(refused)
        except ConnectionClosed:
            self.stream.ended = True

    async def authenticate(
        self, username: str, auth_response: bytes, client_plugin_name: str | None, **_unused: Any
    ) -> None:
        """Check the password, if there is an account. Raises SqlRefused, also for a database that
        is not there."""
        self.stream.check = None
        nonce = bytes(self.handshake_auth_data or b"").rstrip(b"\0")
        if client_plugin_name not in (None, _PLUGIN):
            switch = make_auth_switch_request(self.server_charset, _PLUGIN, nonce + b"\0")
            await self._write(switch)
            auth_response = await self.stream.read()
        if self._account is not None and not self._account.admits(username, auth_response, nonce):
            raise SqlRefused(1045, f"Access denied for user '{username}'", "28000")
        if self.session.database:
            await self.session.use(self.session.database)
        self.session.username = username
        await self._write(self.ok())

    async def _end(self, refused: SqlRefused) -> None:
        """Send an error and stop reading."""
        self.stream.ended = True
        await self._write(_packet_of(refused))

    # --- commands ---

    async def handle_query(self, data: bytes) -> None:
        """COM_QUERY: one statement, or several where the client said that it may send them."""
        await self._run(self._text(data), text_row)

    async def handle_init_db(self, data: bytes) -> None:
        """COM_INIT_DB."""
        try:
            await self.session.use(self._text(data))
        except TidegateError as error:
            await self._write(_packet_of(error))
            return
        await self._write(self._ok(Outcome()))

    async def handle_field_list(self, data: bytes) -> None:
        """COM_FIELD_LIST, which clients send for tab completion: no columns."""
        del data
        await self._write(self.ok_or_eof())

    async def handle_reset_connection(self, data: bytes) -> None:
        """COM_RESET_CONNECTION."""
        del data
        self._prepared.clear()
        await self.session.reset()
        await self._write(self._ok(Outcome()))

    async def handle_stmt_prepare(self, data: bytes) -> None:
        """COM_STMT_PREPARE: answers the number of parameters; columns are sent with each execution."""
        try:
            if len(self._prepared) >= _STATEMENTS_MAX:
                text = f"Can't create more than max_prepared_stmt_count statements (current value: {_STATEMENTS_MAX})"
                raise SqlRefused(1461, text)
            statement = Prepared.of(self._text(data), self._modes)
        except TidegateError as error:
            await self._write(_packet_of(error))
            return
        number = next(self.prepared_stmt_seq) + 1
        self._prepared[number] = ClientStatement(statement)
        packets = [make_com_stmt_prepare_ok(PreparedStatement(number, statement.sql, len(statement.markers)))]
        if statement.markers:
            parameter = ResultColumn("?", ColumnType(MysqlType.VAR_STRING, charset="binary"))
            packets += [column_packet(parameter, "binary") for _ in statement.markers]
            packets += [] if self.deprecate_eof() else [self._eof(0)]
        self.stream.write_many(packets)
        await self.stream.drain()

    async def handle_stmt_send_long_data(self, data: bytes) -> None:
        """COM_STMT_SEND_LONG_DATA, which has no answer; a client that exceeds the packet size is disconnected."""
        statement = self._prepared.get(int.from_bytes(data[:4], "little"))
        if statement is None:
            return
        statement.long_data.setdefault(int.from_bytes(data[4:6], "little"), bytearray()).extend(data[6:])
        lengths = (len(part) for statement in self._prepared.values() for part in statement.long_data.values())
        if sum(lengths) > self.stream.most_bytes():
            raise ConnectionClosed

    async def handle_stmt_execute(self, data: bytes) -> None:
        """COM_STMT_EXECUTE; cursors are not kept, all rows come at once."""
        try:
            statement = self._statement(data)
            values = read_parameters(statement, data[9:])
            statement.long_data.clear()
            sql = bind(statement.prepared, values, self._modes)
        except TidegateError as error:
            await self._write(_packet_of(error))
            return
        await self._run(sql, binary_row)

    async def handle_stmt_reset(self, data: bytes) -> None:
        """COM_STMT_RESET."""
        try:
            self._statement(data).long_data.clear()
        except TidegateError as error:
            await self._write(_packet_of(error))
            return
        await self._write(self._ok(Outcome()))

    async def handle_stmt_fetch(self, data: bytes) -> None:
        """COM_STMT_FETCH: there is no cursor to fetch from."""
        try:
            self._statement(data)
        except SqlRefused as error:
            await self._write(_packet_of(error))
        else:
            await self._write(error_packet(1421, "HY000", "The statement has no open cursor."))

    async def handle_stmt_close(self, data: bytes) -> None:
        """COM_STMT_CLOSE, which has no answer."""
        self._prepared.pop(int.from_bytes(data[:4], "little"), None)

    # --- answers ---

    def error(self, **said: Any) -> bytes:
        """Return the packet of an error that the library raises."""
        code = int(said.get("code", _UNKNOWN_ERROR))
        if code == _KILLED[0]:
            return error_packet(*_KILLED[1])
        what = said.get("msg", "")
        if isinstance(what, TimeoutError):
            what = SqlRefused(1159, "Got timeout reading communication packets", "08S01")
        if isinstance(what, TidegateError):
            return _packet_of(what)
        text = f"internal error: {what!r}" if isinstance(what, Exception) else str(what)
        return error_packet(code, _SQLSTATES.get(code, "HY000"), text)

    def ok(self, **fields: Any) -> bytes:
        """Return the library's OK packet with the session's status."""
        flags = fields.pop("flags", 0)
        return bytes(make_ok(capabilities=self.capabilities, status_flags=self._status | flags, **fields))

    async def _run(self, sql: str, row: Callable[[Sequence[ResultColumn], Sequence[Any], str], bytes]) -> None:
        """Run statements and send each answer once it is known whether another one follows."""
        answers = self.session.session.run(sql)
        answer = await self._next(answers)
        if answer is None:
            await self._write(error_packet(1065, "42000", "Query was empty"))
        while answer is not None:
            status = self._status
            following = None if isinstance(answer, TidegateError) else await self._next(answers)
            more = status | (_MORE if following is not None else ServerStatus(0))
            if isinstance(answer, TidegateError):
                await self._write(_packet_of(answer))
            elif isinstance(answer, Outcome):
                await self._write(self._ok(answer, more))
            else:
                await self._rows(answer, row, more)
            answer = following

    async def _next(self, answers: Iterator[ResultSet | Outcome]) -> _Answer | None:
        def step() -> _Answer | None:
            try:
                return next(answers, None)
            except TidegateError as error:
                return error

        try:
            return await self.session.call(step)
        except asyncio.CancelledError:
            self.session.session.interrupt()
            raise

    async def _rows(
        self,
        answer: ResultSet,
        row: Callable[[Sequence[ResultColumn], Sequence[Any], str], bytes],
        status: ServerStatus,
    ) -> None:
        charset = str(self.session.session.variables.get("character_set_results", "utf8mb4"))
        packets = [make_column_count(capabilities=self.capabilities, column_count=len(answer.columns))]
        packets += [column_packet(column, charset) for column in answer.columns]
        if not self.deprecate_eof():
            packets.append(self._eof(status))
        for start in range(0, len(answer.rows), _ROWS_A_BATCH):
            packets += [row(answer.columns, values, charset) for values in answer.rows[start : start + _ROWS_A_BATCH]]
            await self._write_all(packets)
            packets = []
        warnings = min(self.session.session.warning_count, 0xFFFF)
        if self.deprecate_eof():
            packets.append(
                bytes(make_ok(capabilities=self.capabilities, status_flags=status, eof=True, warnings=warnings))
            )
        else:
            packets.append(self._eof(status, warnings))
        await self._write_all(packets)

    async def _write_all(self, packets: list[bytes]) -> None:
        """Packets in order; one of 16 MiB or more takes the library's way of splitting."""
        for packet in packets:
            await self.stream.write(packet, drain=False)
        await self.stream.drain()

    async def _write(self, packet: bytes) -> None:
        await self.stream.write(packet)

    def _ok(self, outcome: Outcome, status: ServerStatus | None = None) -> bytes:
        found_rows = bool(self.capabilities & Capabilities.CLIENT_FOUND_ROWS) and outcome.matched is not None
        packet = make_ok(
            capabilities=self.capabilities,
            status_flags=self._status if status is None else status,
            affected_rows=(outcome.matched or 0) if found_rows else outcome.affected,
            last_insert_id=outcome.last_insert_id,
            warnings=min(self.session.session.warning_count, 0xFFFF),
        )
        return bytes(packet) + (str_len(outcome.info.encode()) if outcome.info else b"")

    def _eof(self, status: int, warnings: int = 0) -> bytes:
        return bytes(make_eof(capabilities=self.capabilities, status_flags=ServerStatus(status), warnings=warnings))

    @property
    def _status(self) -> ServerStatus:
        session = self.session.session
        flags = ServerStatus.SERVER_STATUS_IN_TRANS if session.in_transaction else ServerStatus(0)
        if session.variables.get("autocommit"):
            flags |= ServerStatus.SERVER_STATUS_AUTOCOMMIT
        if "NO_BACKSLASH_ESCAPES" in self._modes:
            flags |= ServerStatus.SERVER_STATUS_NO_BACKSLASH_ESCAPES
        return flags

    @property
    def _modes(self) -> frozenset[str]:
        return frozenset(str(self.session.session.variables.get("sql_mode", "")).split(","))

    def _text(self, data: bytes) -> str:
        charset = str(self.session.session.variables.get("character_set_client", "utf8mb4"))
        if charset in UTF8:
            return data.decode("utf-8", "surrogateescape")
        return data.decode(self.client_charset.codec, "replace")

    def _statement(self, data: bytes) -> ClientStatement:
        number = int.from_bytes(data[:4], "little")
        statement = self._prepared.get(number)
        if statement is None:
            raise SqlRefused(1243, f"Unknown prepared statement handler ({number}) given to EXECUTE")
        return statement


def _packet_of(error: TidegateError) -> bytes:
    if isinstance(error, SqlRefused):
        return error_packet(error.mysql_code, error.sqlstate, error.message)
    code = error.mysql_code if isinstance(error, UpstreamError) else _UNKNOWN_ERROR
    return error_packet(code, _SQLSTATES.get(code, "HY000"), f"[{error.code}] {error}")
