"""`tidegate cli` and a server that wants to know who asks."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.certificates import make_certificate
from tests.server.http_kit import Client, served
from tests.server.kit import ServerHome
from tidegate.cli.main import main
from tidegate.server.entrance import with_user


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with certificates, users and a token."""
    home = tmp_path_factory.mktemp("login")
    make_certificate(home, "ca")
    make_certificate(home, "server", by="ca")
    make_certificate(home, "friend", by="ca")
    (home / "users").write_text(with_user("", "ann", "secret"))
    (home / "token").write_text("tok-123\n")
    return home


@pytest.fixture(scope="module")
def client(home: Path) -> Iterator[Client]:
    """A server with TLS, users and a token."""
    security = {"ca-path": str(home / "ca.crt"), "cert-path": str(home / "server.crt"),
                "key-path": str(home / "server.key"), "users-file": str(home / "users"),
                "token-file": str(home / "token")}  # fmt: skip
    with served(ServerHome(home), security=security) as (_, client):
        yield client


def listed(client: Client, home: Path, *more: str, stdin: str = "", **env: str) -> Result:
    """`tidegate cli capture list`."""
    words = ["cli", "capture", "list", "--server", f"https://{client.address}", "--ca", str(home / "ca.crt"), *more]
    return CliRunner(env={"HOME": str(home), **env}).invoke(main, words, input=stdin)


def test_who_is_let_in(client: Client, home: Path) -> None:
    """A user with a password, given, asked for or of the environment, and a token are let in over TLS."""
    ways = [
        listed(client, home, "--user", "ann", "--password", "secret"),
        listed(client, home, "--user", "ann", stdin="secret\n"),
        listed(client, home, TICDC_USER="ann", TICDC_PASSWORD="secret"),
        listed(client, home, "--token-file", str(home / "token")),
    ]

    assert [way.exit_code for way in ways] == [0] * 4, [way.output for way in ways]
    assert json.loads(ways[0].stdout)[0]["address"] == client.address
    assert "Enter password" in ways[1].stderr


def test_who_is_not(client: Client, home: Path) -> None:
    """Nobody, a wrong password, and a server of an unknown authority end with 1 and the code of the error."""
    nobody, wrong = listed(client, home), listed(client, home, "--user", "ann", "--password", "guess")
    unknown = listed(client, home, "--ca", str(home / "friend.crt"), "--user", "ann", "--password", "secret")

    assert [way.exit_code for way in (nobody, wrong, unknown)] == [1, 1, 1]
    assert nobody.stderr.startswith("Error: [CDC:ErrCredentialNotFound]")
    assert wrong.stderr.startswith("Error: [CDC:ErrUnauthorized]")
    assert "CERTIFICATE_VERIFY_FAILED" in unknown.stderr
    assert "guess" not in wrong.output
