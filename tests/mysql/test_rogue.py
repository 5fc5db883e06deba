"""A rogue server in the place of a database gets neither the password nor a file, whoever of us comes to it."""

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

import tidegate
from tests.mariadb import PASSWORD, QUOTED
from tests.mysql.rogue import FILE, Rogue
from tests.sink.sql.ddl.examples import MARIADB
from tidegate.cli.sink import session_of
from tidegate.model.errors import TidegateError
from tidegate.model.event import Field, Insert
from tidegate.model.mysql import MysqlType
from tidegate.mysql.client import ConnectionOptions, connect, driver
from tidegate.sink.sql.connection import DdlConnection, SqlOptions, TargetSession
from tidegate.sink.sql.sink import SqlSink
from tidegate.source.large import UpstreamRows
from tidegate_upstream.background import UpstreamProcess
from tidegate_upstream.cli.upstream import upstream

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
"""A connection that nobody closed: the server waits for it."""
ASKED: Final = (b"mysql_clear_password", b"dialog", b"sha256_password", b"caching_sha2_password", b"mysql_old_password")


def completed(port: int) -> None:
    """A row is completed from the upstream."""
    key = (Field("id", MysqlType.LONG, handle=True),)
    row = Insert(schema="s", table="t", fields=key, after=(1,), commit_ts=1 << 18, handle_only=True)
    UpstreamRows(f"mysql://reader:{QUOTED}@127.0.0.1:{port}/?enable-tls=false").whole([row])


def options(port: int) -> SqlOptions:
    """The rogue as a target."""
    return SqlOptions("feed", "127.0.0.1", port, "reader", PASSWORD)


def of_commands(port: int) -> None:
    """Commands about replicas, and the comparison of one."""
    session_of(f"mysql://reader:{QUOTED}@127.0.0.1:{port}/")


def asked(port: int) -> None:
    """`tidegate upstream sql`."""
    with pytest.MonkeyPatch.context() as patched:
        one = UpstreamProcess(1, Path("x"), "127.0.0.1", {"n1": port}, temporary=True)
        patched.setattr("tidegate_upstream.cli.upstream.status", lambda _: [one])
        patched.setenv("WORD", PASSWORD)
        words = ["sql", "--user", "reader", "--password", "env:WORD", "SELECT 1"]
        error = CliRunner().invoke(upstream, words, standalone_mode=False).exception
        assert error is not None
        raise error


CALLERS: Final[dict[str, Callable[[int], Any]]] = {
    "large rows": completed,
    "rows of a target": lambda port: TargetSession(options(port), many=True),
    "recovery of a target": lambda port: SqlSink(options(port)).recover(),
    "DDLs of a target": lambda port: DdlConnection(lambda: TargetSession(options(port)).connection, MARIADB),
    "commands": of_commands,
    "upstream sql": asked,
}


@pytest.fixture
def rogue(request: pytest.FixtureRequest) -> Iterator[Rogue]:
    """One that asks for what the test names."""
    asks, at_once = request.param
    found = Rogue(asks, at_once=at_once)
    yield found
    found.close()


@pytest.mark.parametrize("rogue", [*((asks, False) for asks in ASKED), (b"sha256_password", True)], indirect=True)
@pytest.mark.parametrize("caller", CALLERS)
def test_a_password_never_goes_in_clear(caller: str, rogue: Rogue) -> None:
    """A server that asks for the password itself, or for one under its own key, gets none; the error says what to do
    and is not tried again."""
    with pytest.raises(TidegateError, match=r"requests the password in clear.*use TLS") as told:
        CALLERS[caller](rogue.port)
    rogue.close()
    assert told.value.retry.name == "NEVER"
    assert b"reader" in rogue.heard
    assert PASSWORD.encode() not in rogue.heard


@pytest.mark.parametrize("rogue", [(FILE, False)], indirect=True)
@pytest.mark.parametrize("caller", CALLERS)
def test_no_file_is_sent(caller: str, rogue: Rogue) -> None:
    """A server that answers a question by asking for a file (LOAD DATA LOCAL) gets an error for an answer."""
    with pytest.raises(TidegateError, match="local_infile"):
        CALLERS[caller](rogue.port)
    rogue.close()
    assert b"gets neither the password nor a file" not in rogue.heard
    assert b"Serves one client" not in rogue.heard


@pytest.mark.slow
def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    """Also where answers may take as long as they take, a server that does not answer a login is told as one that is
    not there."""
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(driver().MySQLError, match="timed out"):
        connect(ConnectionOptions("127.0.0.1", silent.getsockname()[1], "reader", dial_s=1))


def test_one_place_opens_connections() -> None:
    """No other module of the package opens a connection of PyMySQL, by any of its names."""
    opens = re.compile(r"pymysql(\.connections)?\.(connect|Connect|Connection)\(|from pymysql\b.* import .*[Cc]onnect")
    root = Path(tidegate.__file__).parent
    found = [str(path.relative_to(root)) for path in root.rglob("*.py") if opens.search(path.read_text())]
    assert found == ["mysql/client.py"]
