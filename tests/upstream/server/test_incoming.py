"""What a client may send, and what it may cost: every hostile packet is refused, the others go on, the log is quiet."""

import logging
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import pymysql
import pytest

from tests.upstream.server.double import DoubleSession
from tests.upstream.server.hostile import ATTRIBUTES, CAPABILITIES, GOOD, LENENC, WITH_DB, Hostile, code_of, login
from tidegate.model.errors import ConfigError
from tidegate_upstream.tidb.listener import Listener
from tidegate_upstream.tidb.wire import PortLimits, account

BAD_LOGINS = {
    "nothing": b"",
    "a head alone asks for TLS": login(b""),
    "half a head": GOOD[:20],
    "a user without an end": login(b"r" * 100),
    "an answer without a length": login(b"root\0"),
    "an answer shorter than it says": login(b"root\0\x14abc"),
    "a length of eight bytes": login(b"root\0\xfe" + b"\xff" * 8, CAPABILITIES | LENENC),
    "a database without an end": login(b"root\0\0data", CAPABILITIES | WITH_DB),
    "a plugin without an end": login(b"root\0\0mysql"),
    "attributes that say they are more": login(GOOD[32:] + b"\xfe" + b"\xff" * 7 + b"\0", CAPABILITIES | ATTRIBUTES),
    "attributes that end within": login(GOOD[32:] + b"\x09\x03abc\x09", CAPABILITIES | ATTRIBUTES),
    "a charset that is none": GOOD[:8] + b"\0" + GOOD[9:],
    "a user that is no text": login(b"\xff\xfe\0\0mysql_native_password\0"),
    "a database that is no text": login(b"root\0\0\xff\0mysql_native_password\0", CAPABILITIES | WITH_DB),
}  # fmt: skip


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener(lambda _peers: DoubleSession()) as made:
        yield made


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing is logged as an error."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def serves(listener: Listener) -> None:
    """Ordinary clients are served."""
    with (
        closing(pymysql.connect(host="127.0.0.1", port=listener.port, user="root", read_timeout=10)) as client,
        client.cursor() as cursor,
    ):
        cursor.execute("x")
        assert cursor.fetchall() == (("x",),)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", BAD_LOGINS)
def test_bad_logins(listener: Listener, name: str) -> None:
    """A login that does not hold what it claims is refused at once, in a line to the client and none in the log."""
    with Hostile(listener.port) as hostile:
        assert code_of(hostile.logged_in(BAD_LOGINS[name])) in {1043, 1835}
        assert hostile.rest() == []
    serves(listener)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("name", "number", "claimed", "code"), [
    ("out of order", 7, None, 1156),
    ("too large", 1, (1 << 24) - 1, 1153),
])  # fmt: skip
def test_bad_packets_before_login(listener: Listener, name: str, number: int, claimed: int | None, code: int) -> None:
    """Before the login no packet is large, and each has its number."""
    with Hostile(listener.port) as hostile:
        hostile.read()
        hostile.send(GOOD, number, claimed)
        assert code_of(hostile.read()) == code, name
        assert hostile.rest() == []
    serves(listener)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    "payload", [b"r" * 50, b"root\0\x14abc", b"root\0\0data", b"root\0\0\0\x2d\0mysql", b"\xff\0\0\0"]
)
def test_bad_changes_of_user(listener: Listener, payload: bytes) -> None:
    """COM_CHANGE_USER is checked in the same way, and ends the connection."""
    with Hostile(listener.port) as hostile:
        assert hostile.logged_in()[:1] == b"\0"
        hostile.send(b"\x11" + payload)
        assert code_of(hostile.read()) == 1043
        assert hostile.rest() == []
    serves(listener)


def test_a_change_of_user(listener: Listener) -> None:
    """COM_CHANGE_USER that holds what it claims is answered, and the connection goes on."""
    with Hostile(listener.port) as hostile:
        hostile.logged_in()
        for command in (b"\x11ann\0\0\0\x2d\0mysql_native_password\0", b"\x11ann\0\0\0", b"\x0e"):
            hostile.send(command)
            assert hostile.read()[:1] == b"\0"


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("number", "payload", "code"), [(0, b"", 1835), (3, b"\x03x", 1156)])
def test_bad_commands(listener: Listener, number: int, payload: bytes, code: int) -> None:
    """An empty command, or one with a wrong number, ends the connection with an error."""
    with Hostile(listener.port) as hostile:
        hostile.logged_in()
        hostile.send(payload, number)
        assert code_of(hostile.read()) == code
        assert hostile.rest() == []


@pytest.mark.usefixtures("quiet")
def test_a_client_that_leaves_while_it_changes_its_user(listener: Listener) -> None:
    """A client that is asked for its proof in another way, and goes, leaves nothing behind; nor does a command that is
    none."""
    with Hostile(listener.port) as hostile:
        hostile.logged_in()
        hostile.send(b"\x77")
        assert code_of(hostile.read()) == 1047
        hostile.send(b"\x11ann\0\0\0\x2d\0caching_sha2_password\0")
        assert hostile.read()[:1] == b"\xfe"
        hostile.shut()
        assert hostile.rest() == []
    serves(listener)


@pytest.mark.usefixtures("quiet")
def test_commands_of_statements_that_are_not_there(listener: Listener) -> None:
    """Whatever is asked of a prepared statement, whole or cut, is refused with 1243, or has no answer."""
    with Hostile(listener.port) as hostile:
        hostile.logged_in()
        for command in (b"\x17", b"\x17\1\0\0\0", b"\x1a\1", b"\x1c\1\0\0\0\1\0\0\0"):
            hostile.send(command)
            assert code_of(hostile.read()) == 1243
        for command in (b"\x18\1", b"\x19", b"\x0e"):
            hostile.send(command)
        assert hostile.read()[:1] == b"\0"


def test_commands_are_as_large_as_the_session_allows(listener: Listener) -> None:
    """A command beyond max_allowed_packet is refused before its bytes are read."""
    with Hostile(listener.port) as hostile:
        hostile.logged_in()
        for number in range(4):
            hostile.send(bytes((1 << 24) - 1), number)
        hostile.socket.sendall((1 << 20).to_bytes(3, "little") + b"\4")
        assert code_of(hostile.read()) == 1153


def test_connections_are_bounded() -> None:
    """One client too many is told so; when one goes the next may come."""
    with (
        Listener(lambda _peers: DoubleSession(), limits=PortLimits(connections=2)) as listener,
        Hostile(listener.port) as first,
    ):
        first.logged_in()
        with Hostile(listener.port) as second, Hostile(listener.port) as third:
            second.logged_in()
            assert code_of(third.read()) == 1040
            assert third.rest() == []
        until = time.monotonic() + 10
        while code_of(greeting(listener)) and time.monotonic() < until:
            time.sleep(0.01)
        serves(listener)


def greeting(listener: Listener) -> bytes:
    """The first packet of a connection."""
    with Hostile(listener.port) as hostile:
        return hostile.read()


@pytest.mark.usefixtures("quiet")
@pytest.mark.slow
def test_a_login_takes_so_long() -> None:
    """A client that says nothing, or its login byte by byte, is out after the time of a login."""
    with Listener(lambda _peers: DoubleSession(), limits=PortLimits(login_s=0.5)) as listener:
        with Hostile(listener.port) as silent:
            assert len(silent.rest()) == 2
        with Hostile(listener.port) as slow:
            slow.read()
            started = time.monotonic()
            with suppress(ConnectionError):
                for byte in b"\x50\0\0\1" + GOOD:
                    slow.socket.sendall(bytes((byte,)))
                    time.sleep(0.1)
            assert time.monotonic() - started < 5
        serves(listener)


@pytest.mark.slow
def test_idle_clients_go(listener: Listener) -> None:
    """A session whose wait_timeout has passed is closed; one that asks meanwhile stays."""
    with Hostile(listener.port) as hostile, Hostile(listener.port) as lasting:
        hostile.logged_in()
        lasting.logged_in()
        for client in listener.sessions()[:1]:
            client.variables.set("wait_timeout", 1)
        hostile.send(b"\x0e")
        assert hostile.read()[:1] == b"\0"
        assert hostile.rest() == []
        lasting.send(b"\x0e")
        assert lasting.read()[:1] == b"\0"


@pytest.fixture
def locked() -> Iterator[Listener]:
    """A port that asks for a password."""
    with Listener(lambda _peers: DoubleSession(), host="0.0.0.0", account=account("ann", "s3cret")) as made:
        yield made


@pytest.mark.parametrize(("user", "password"), [("ann", ""), ("ann", "wrong"), ("root", "s3cret"), ("", "")])
def test_a_wrong_password_is_refused(locked: Listener, user: str, password: str) -> None:
    """Without the right user and password nobody comes in, and no database is told of."""
    for database in (None, "missing"):
        with pytest.raises(pymysql.OperationalError) as refused:
            pymysql.connect(host="127.0.0.1", port=locked.port, user=user, password=password, database=database)
        assert refused.value.args[0] == 1045


def test_a_refused_client_is_out(locked: Listener) -> None:
    """A client that passes over its refusal is not served."""
    with Hostile(locked.port) as hostile:
        assert code_of(hostile.logged_in()) == 1045
        hostile.send(b"\x03x")
        assert hostile.rest() == []


@pytest.mark.parametrize("plugin", ["mysql_native_password", "caching_sha2_password"])
def test_the_right_password(locked: Listener, plugin: str) -> None:
    """The right one comes in, also a client that would have proved it in another way; and may change its user."""
    client = pymysql.connect(host="127.0.0.1", port=locked.port, user="ann", password="s3cret", defer_connect=True)
    client._auth_plugin_map = {}
    client.server_plugin = plugin
    with closing(client):
        client.connect()
        with client.cursor() as cursor:
            cursor.execute("x")
            assert cursor.fetchall() == (("x",),)


def test_a_change_of_user_asks_again(locked: Listener) -> None:
    """COM_CHANGE_USER needs the password, too."""
    with closing(pymysql.connect(host="127.0.0.1", port=locked.port, user="ann", password="s3cret")) as client:
        client._execute_command(0x11, b"ann\0\0\0\x2d\0mysql_native_password\0\0")
        with pytest.raises(pymysql.OperationalError) as refused:
            client._read_packet()
        assert refused.value.args[0] == 1045
        client._next_seq_id = 0
        with pytest.raises(pymysql.MySQLError):
            client.query("x")
        client._force_close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_other_machines_need_a_password(host: str) -> None:
    """An address that other machines reach is not listened on without an account."""
    with pytest.raises(ConfigError, match="a user and a password"):
        Listener(lambda _peers: DoubleSession(), host=host)
