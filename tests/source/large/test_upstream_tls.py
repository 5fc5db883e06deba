"""How the connection to the upstream is guarded: a real server with certificates."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.certificates import make_certificate
from tests.mariadb import QUOTED, Server, running_server
from tests.source.large.test_upstream import cut_row
from tidegate.model.errors import ConfigError
from tidegate.model.event import Insert
from tidegate.source.large import UpstreamRows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by openssl"),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificates: of `ca`, of `server` and `client` by it, and of `stranger`."""
    made = tmp_path_factory.mktemp("certificates")
    for name, by in (("ca", None), ("stranger", None), ("server", "ca"), ("client", "ca")):
        make_certificate(made, name, by)
    return made


@pytest.fixture(scope="module")
def guarded(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose account `reader` must come over TLS, and `holder` with a certificate of `ca`."""
    files = (f"--ssl-ca={home}/ca.crt", f"--ssl-cert={home}/server.crt", f"--ssl-key={home}/server.key")
    with running_server(tmp_path_factory.mktemp("mariadb"), *files) as one:
        one.run(
            "ALTER USER reader@'127.0.0.1' REQUIRE SSL",
            "CREATE USER holder@'127.0.0.1' IDENTIFIED BY 'hush' REQUIRE X509",
            "GRANT SELECT ON *.* TO holder@'127.0.0.1'",
        )
        yield one


def completed(server: Server, query: str, *, user: str = f"reader:{QUOTED}", host: str = "127.0.0.1") -> object:
    """A row, asked for at the address with these parameters."""
    upstream = UpstreamRows(f"mysql://{user}@{host}:{server.port}/{query}", snapshot="SET @moment = %s")
    (found,) = upstream.whole([cut_row(server)])
    upstream.close()
    return found


def files(home: Path, **names: str) -> str:
    """Parameters that name files."""
    return "&".join(f"{name.replace('_', '-')}={quote(str(home / file), safe='')}" for name, file in names.items())


def test_a_server_with_a_certificate_that_is_known(guarded: Server, home: Path) -> None:
    """Over TLS, the server's certificate and name checked, rows come."""
    assert isinstance(completed(guarded, "?" + files(home, ssl_ca="ca.crt")), Insert)


@pytest.mark.parametrize(
    ("ca", "host"),
    [(None, "127.0.0.1"), ("stranger.crt", "127.0.0.1"), ("ca.crt", "localhost")],
    ids=["an unknown authority", "another authority", "another name"],
)
def test_a_server_that_cannot_be_trusted(guarded: Server, home: Path, ca: str | None, host: str) -> None:
    """A certificate that nobody vouches for, or that is for another host, ends the feed and is not waited out."""
    query = "?" + files(home, ssl_ca=ca) if ca else ""
    with pytest.raises(ConfigError, match=r"is not trusted .*verify failed.*ssl-ca.*insecure-skip-verify"):
        completed(guarded, query, host=host)


def test_no_proof_is_asked_for_by_name(guarded: Server) -> None:
    """TLS without a check of the server is had with insecure-skip-verify alone."""
    assert isinstance(completed(guarded, "?insecure-skip-verify=true"), Insert)


@pytest.mark.parametrize("check", ["ssl_ca", None])
def test_a_client_with_a_certificate(guarded: Server, home: Path, check: str | None) -> None:
    """The account's certificate is shown, whether the server's is checked or not."""
    known = files(home, ssl_ca="ca.crt") if check else "insecure-skip-verify=true"
    query = f"?{known}&{files(home, ssl_cert='client.crt', ssl_key='client.key')}"
    assert isinstance(completed(guarded, query, user="holder:hush"), Insert)
    with pytest.raises(ConfigError, match="1045"):
        completed(guarded, f"?{known}", user="holder:hush")


def test_a_server_without_tls(server: Server) -> None:
    """Nothing goes in clear unless the address says so."""
    with pytest.raises(ConfigError, match=r"does not support TLS.*enable-tls=false"):
        completed(server, "")
    assert isinstance(completed(server, "?enable-tls=false"), Insert)
