"""The port, through a real client: values of all types, errors, several clients, prepared statements, KILL, the end."""

import datetime as dt
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal

import pymysql
import pytest
from pymysql.constants import CLIENT, COMMAND, SERVER_STATUS

from tests.upstream.server.double import DoubleSession
from tidegate.model.errors import EnvironmentFault, SqlRefused
from tidegate_upstream.tidb.listener import Listener


class Port:
    """A listener whose sessions are doubles, and those sessions."""

    def __init__(self) -> None:
        self.sessions: list[DoubleSession] = []
        self.listener = Listener(self._session)

    def _session(self, _peers: object) -> DoubleSession:
        self.sessions.append(DoubleSession())
        return self.sessions[-1]

    def connect(self, **options: object) -> "pymysql.Connection[pymysql.cursors.Cursor]":
        """A client; `options` are pymysql's."""
        return pymysql.connect(host="127.0.0.1", port=self.listener.port, user="anybody", **options)  # type: ignore[arg-type]


@pytest.fixture
def port() -> Iterator[Port]:
    made = Port()
    with made.listener:
        yield made


def answer(connection: "pymysql.Connection[pymysql.cursors.Cursor]", sql: str) -> tuple[tuple[object, ...], ...]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return tuple(cursor.fetchall())


def test_answers_are_sent_at_once(port: Port) -> None:
    """No packet of an answer waits until the client has confirmed the one before, which takes it 40 ms."""
    with closing(port.connect()):
        [client] = port.listener._control.clients.values()
        served = client.stream._writer.get_extra_info("socket")

        assert served.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


FIRST = (
    *(-128, 255, -32768, 65535, -(1 << 63), (1 << 64) - 1, 1.5, 1e20, Decimal("-1.50")),
    dt.date(2024, 1, 31),
    dt.datetime(2024, 1, 31, 1, 2, 3, 450000),  # noqa: DTZ001  a DATETIME has no zone
    -dt.timedelta(hours=1, microseconds=500000),
    *("é 表 😀'\\", b"\xff\x00'", '{"a": [1, null]}', "b", b"[1,2.5]"),
)


def test_values_of_all_types_arrive(port: Port) -> None:
    """Every type arrives as the client's own type, and NULL as None."""
    with closing(port.connect()) as connection:
        rows = answer(connection, "values")

    assert rows[0] == FIRST
    assert set(rows[2]) == {None}


def prepared(connection: "pymysql.Connection[pymysql.cursors.Cursor]", sql: bytes, parameters: bytes) -> list[bytes]:
    """The packets that answer a prepared statement: header, columns, rows, until the end."""
    connection._execute_command(COMMAND.COM_STMT_PREPARE, sql)
    head = connection._read_packet().get_all_data()
    count = int.from_bytes(head[7:9], "little")
    for _ in range(count + 1 if count else 0):
        connection._read_packet()
    connection._execute_command(COMMAND.COM_STMT_EXECUTE, head[1:5] + b"\0\1\0\0\0" + parameters)
    packets = [connection._read_packet().get_all_data()]
    while not packets[-1].startswith(b"\xfe") or sum(packet.startswith(b"\xfe") for packet in packets) < 2:
        packets.append(connection._read_packet().get_all_data())
    return packets


def test_binary_rows(port: Port) -> None:
    """A prepared statement answers in the binary form: integers by width, moments by parts, text by length."""
    with closing(port.connect()) as connection:
        packets = prepared(connection, b"values", b"")
    columns = packets[0][0]
    first, _, third = packets[columns + 2 : -1]

    assert first.startswith(b"\0\0\0\0" + b"\x80\xff\x00\x80\xff\xff" + (1 << 63).to_bytes(8, "little") + b"\xff" * 8)
    assert b"\x05-1.50" + b"\x04\xe8\x07\x01\x1f" + b"\x0b\xe8\x07\x01\x1f\x01\x02\x03\xd0\xdd\x06\x00" in first
    assert b"\x0c\x01\0\0\0\0\x01\0\0\x20\xa1\x07\0" in first
    assert third == b"\0" + (((1 << columns) - 1) << 2).to_bytes(3, "little")


def test_parameters_reach_the_statement_quoted(port: Port) -> None:
    """A parameter becomes a literal that says the same, quotes and backslashes included."""
    with closing(port.connect()) as connection:
        packets = prepared(connection, b"select ?", b"\0\1\xfd\0\x04a'\\?")

    assert port.sessions[0].asked[-1] == "select 'a''\\\\?'"
    assert b"select 'a''" in packets[-2]


def test_counts(port: Port) -> None:
    """Affected rows, the last number given, and the line of information arrive; found rows where they are asked for."""
    with closing(port.connect()) as connection, closing(port.connect(client_flag=CLIENT.FOUND_ROWS)) as finder:
        with connection.cursor() as cursor, finder.cursor() as found:
            counts = [cursor.execute("update"), found.execute("update")]
            cursor.execute("insert")
            last = cursor.lastrowid
        connection.query("update")

        assert connection._result is not None
        assert connection._result.message == b"(Rows matched: 3  Changed: 2  Warnings: 0"
    assert counts == [2, 3]
    assert last == (1 << 63) + 5


def test_status(port: Port) -> None:
    """The flags of a session go along: autocommit, a transaction that is open."""
    with closing(port.connect()) as connection:
        connection.query("insert")
        before = connection.server_status
        connection.query("begin")

        assert before == SERVER_STATUS.SERVER_STATUS_AUTOCOMMIT
        assert connection.server_status == before | SERVER_STATUS.SERVER_STATUS_IN_TRANS


@pytest.mark.parametrize(
    ("sql", "code", "state"), [("refuse", 1146, b"42S02"), ("conflict", 9007, b"HY000"), ("bug", 1105, b"HY000")]
)
def test_errors_carry_code_and_state(port: Port, sql: str, code: int, state: bytes) -> None:
    """An error has its number and SQLSTATE, and the connection goes on."""
    with closing(port.connect()) as connection:
        connection._execute_command(COMMAND.COM_QUERY, sql.encode())
        packet = connection._read_bytes(int.from_bytes(connection._read_bytes(4)[:3], "little"))
        connection._next_seq_id = 0

        assert packet[:1] == b"\xff"
        assert int.from_bytes(packet[1:3], "little") == code
        assert packet[3:9] == b"#" + state
        assert answer(connection, "x") == (("x",),)


def test_several_statements_in_one(port: Port) -> None:
    """Answers of several statements come one after the other; an error ends them, those before it stand."""
    with closing(port.connect(client_flag=CLIENT.MULTI_STATEMENTS)) as connection, connection.cursor() as cursor:
        cursor.execute("a;; update;; refuse;; b")
        first = cursor.fetchall()
        assert cursor.nextset()
        second = cursor.rowcount
        with pytest.raises(pymysql.ProgrammingError):
            cursor.nextset()

        assert (first, second) == ((("a",),), 2)
    assert port.sessions[0].asked[-3:] == ["a", "update", "refuse"]


def test_large_answers(port: Port) -> None:
    """Answers longer than a batch and values longer than a packet arrive whole."""
    with closing(port.connect()) as connection:
        numbers = answer(connection, "many 12345")
        ((text,),) = answer(connection, "long 17000000")

        assert [number for (number,) in numbers] == list(range(12345))
        assert text == "x" * 17000000
        assert answer(connection, "after") == (("after",),)


def test_a_packet_that_comes_byte_by_byte(port: Port) -> None:
    """A statement that trickles in, its head cut anywhere, is read whole."""
    with closing(port.connect()) as connection:
        packet = b"\x03trickle"
        for byte in len(packet).to_bytes(3, "little") + b"\0" + packet:
            connection._sock.send(bytes((byte,)))  # type: ignore[union-attr]
            time.sleep(0.001)
        connection._next_seq_id = 1
        connection._read_query_result()

        assert port.sessions[0].asked[-1] == "trickle"


def test_database_of_the_handshake(port: Port) -> None:
    """A client's database is used from the start; one that is not there is refused with 1049."""
    with closing(port.connect(database="d")) as connection:
        assert port.sessions[0].database == "d"
        connection.select_db("e")
        assert port.sessions[0].database == "e"
        with pytest.raises(pymysql.OperationalError) as missing:
            connection.select_db("missing")
    with pytest.raises(pymysql.OperationalError) as refused:
        port.connect(database="missing")

    assert (missing.value.args[0], refused.value.args[0]) == (1049, 1049)


def test_bytes_that_are_no_text_stay(port: Port) -> None:
    """A statement with bytes that are no UTF-8, as clients send binary strings, reaches the session whole."""
    with closing(port.connect()) as connection:
        connection._execute_command(COMMAND.COM_QUERY, b"set '\xff\xfe'")
        connection._read_query_result()

    assert port.sessions[0].asked[-1].encode("utf-8", "surrogateescape") == b"set '\xff\xfe'"


def test_a_statement_that_waits_holds_nobody_up(port: Port) -> None:
    """While one client's statement waits, another one's is answered; KILL QUERY ends the first with 1317."""
    with closing(port.connect()) as waiting, closing(port.connect()) as other:
        errors: list[int] = []

        def hold() -> None:
            with pytest.raises(pymysql.OperationalError) as error:
                answer(waiting, "hold")
            errors.append(error.value.args[0])

        thread = threading.Thread(target=hold)
        thread.start()
        while "hold" not in port.sessions[0].asked:
            assert answer(other, "x") == (("x",),)
        port.listener.kill(waiting.thread_id(), query_only=True)
        thread.join(10)

        assert errors == [1317]
        assert answer(waiting, "alive") == (("alive",),)


def test_kill(port: Port) -> None:
    """KILL ends a client and closes its session; a number that nobody has is refused."""
    with closing(port.connect()) as connection:
        port.listener.kill(connection.thread_id(), query_only=False)
        with pytest.raises(pymysql.MySQLError):
            answer(connection, "x")
        connection._force_close()
    until = time.monotonic() + 10
    while not port.sessions[0].closed and time.monotonic() < until:
        time.sleep(0.01)

    assert port.sessions[0].closed
    with pytest.raises(SqlRefused) as unknown:
        port.listener.kill(99, query_only=False)
    assert unknown.value.mysql_code == 1094


def test_the_end() -> None:
    """A stop closes sessions and port, also while a statement waits."""
    port = Port()
    port.listener.start()
    connection = port.connect()
    connection._execute_command(COMMAND.COM_QUERY, b"hold")
    started = time.monotonic()
    port.listener.stop()
    connection._force_close()

    assert time.monotonic() - started < 5
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port.listener.port), timeout=5)


def test_a_port_that_is_taken(port: Port) -> None:
    """A port that somebody has is an error that names it."""
    with pytest.raises(EnvironmentFault, match=str(port.listener.port)):
        Listener(lambda _peers: DoubleSession(), port=port.listener.port).start()
