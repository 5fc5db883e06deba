"""TLS to a real MariaDB: the server's certificate and name are checked, and the account's certificate is shown."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.certificates import make_certificate
from tests.mariadb import Server, running_server
from tidegate.model.errors import AccountRefused, TidegateError
from tidegate.sink.sql.connection import SqlOptions
from tidegate.sink.sql.sink import SqlSink

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates: of an authority, the server, an account, and of another authority."""
    found = tmp_path_factory.mktemp("tls")
    make_certificate(found, "ca")
    make_certificate(found, "other")
    make_certificate(found, "server", by="ca")
    make_certificate(found, "account", by="ca")
    return found


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Server]:
    """A MariaDB with a certificate for 127.0.0.1, and an account that needs one."""
    files = [f"--ssl-{what}={home / name}" for what, name in (("ca", "ca.crt"), ("cert", "server.crt"))]
    with running_server(home, *files, f"--ssl-key={home / 'server.key'}") as found:
        for account, needs in (("feed", "SSL"), ("known", "X509")):
            found.run(
                f"CREATE USER {account}@'127.0.0.1' REQUIRE {needs}", f"GRANT ALL ON *.* TO {account}@'127.0.0.1'"
            )
        yield found


def options(server: Server, home: Path) -> SqlOptions:
    """TLS with everything right."""
    return SqlOptions("feed", "127.0.0.1", server.port, user="feed", tls=True, ssl_ca=str(home / "ca.crt"))


def test_right(server: Server, home: Path) -> None:
    """An account that may only come with TLS, or with a certificate of its own, comes in."""
    given = options(server, home)
    SqlSink(given).recover()
    mine = {"ssl_cert": str(home / "account.crt"), "ssl_key": str(home / "account.key")}
    SqlSink(replace(given, user="known", **mine)).recover()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"ssl_ca": "other.crt"}, "no TLS: .*certificate.*check ssl-ca"),
        ({"ssl_ca": ""}, "no TLS: .*certificate.*check ssl-ca"),
        ({"host": "localhost"}, "no TLS: .*Hostname mismatch.*the host name"),
        ({"tls": False, "ssl_ca": ""}, "check user and password"),
        ({"user": "known"}, "check user and password"),
    ],
)
def test_wrong(server: Server, home: Path, wrong: dict[str, object], says: str) -> None:
    """Another authority, a name that the certificate does not have, no TLS, no certificate: refused, and told how."""
    given = {name: str(home / text) if name == "ssl_ca" and text else text for name, text in wrong.items()}
    with pytest.raises(AccountRefused, match=says) as told:
        SqlSink(replace(options(server, home), **given)).recover()  # type: ignore[arg-type]
    assert told.value.code == "CDC:ErrMySQLConnectionError"


def test_no_tls_there(tmp_path: Path) -> None:
    """A server without TLS is not spoken to in clear."""
    make_certificate(tmp_path, "ca")
    with running_server(tmp_path, "--skip-ssl") as plain, pytest.raises(TidegateError, match=r"TLS|SSL"):
        SqlSink(SqlOptions("feed", "127.0.0.1", plain.port, tls=True, ssl_ca=str(tmp_path / "ca.crt"))).recover()
