"""`tidegate catalog serve` as a process: who may reach it, TLS, and how it ends."""

import json
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.certificates import make_certificate
from tests.lakes.catalog.served import Client, made
from tidegate.cli.main import main


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small lake."""
    place = tmp_path_factory.mktemp("lake")
    made(place)
    return place


@contextmanager
def serving(root: Path, *words: str | Path, end: signal.Signals = signal.SIGTERM) -> Iterator[dict[str, Any]]:
    """The command on a free port and what it told; it has to end with status 0 and without a word."""
    code = "from tidegate.cli.main import main; main()"
    line = [sys.executable, "-c", code, "catalog", "serve", str(root), "--port", "0", "--json", *map(str, words)]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield json.loads(process.stdout.readline() or process.communicate(timeout=30)[1])
        process.send_signal(end)
        assert process.communicate(timeout=30) == ("", "")
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait(30)


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal(root: Path, end: signal.Signals) -> None:
    """It tells where it listens, answers, and ends on SIGTERM and Ctrl-C, also while a connection is open."""
    with serving(root, end=end) as told:
        assert told["warehouses"] == ["lake", "lake@now"]
        host, _, port = told["uri"].removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))):
            assert Client(told["uri"]).prefix("lake@now") == "at-2"


@pytest.mark.slow
def test_tls_and_a_token(root: Path, tmp_path: Path) -> None:
    """With a certificate it speaks TLS alone; with a token other machines may reach it and have to send it."""
    make_certificate(tmp_path, "server")
    (tmp_path / "token").write_text("s3cret\n")
    tls = ("--tls-cert", tmp_path / "server.crt", "--tls-key", tmp_path / "server.key")
    trusted = ssl.create_default_context(cafile=str(tmp_path / "server.crt"))
    with serving(root, "--host", "0.0.0.0", "--token-file", tmp_path / "token", *tls) as told:
        scheme, _, address = told["uri"].partition("://")
        uri = f"https://127.0.0.1:{address.rpartition(':')[2]}"
        assert scheme == "https"
        assert Client(uri).ask("/v1/config", context=trusted).status == 401
        bearer = Client(uri, {"Authorization": "Bearer s3cret"})
        assert bearer.ask("/v1/config", context=trusted).body["overrides"] == {"prefix": "lake"}


def refused(*words: str | Path) -> str:
    """What the command says when it does not serve."""
    ran = CliRunner().invoke(main, ["catalog", "serve", *map(str, words)])
    assert ran.exit_code == 1
    return ran.stderr


def test_what_is_refused(root: Path, tmp_path: Path) -> None:
    """An open port without a token, half a certificate, an empty token and what is not a lake are refused in words."""
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "two").write_text("two words\n")
    for words, why in (
        ((root, "--host", "0.0.0.0"), "name a --token-file"),
        ((root, "--host", "::"), "name a --token-file"),
        ((root, "--token-file", tmp_path / "empty"), "one word"),
        ((root, "--token-file", tmp_path / "two"), "one word"),
        ((root, "--tls-cert", tmp_path / "two"), "must be set together"),
        ((root, "--tls-cert", tmp_path / "two", "--tls-key", tmp_path / "two"), "certificate"),
        ((tmp_path,), "is not a lake"),
    ):
        said = refused(*words)
        assert "error CDC:ErrInvalidReplicaConfig: " in said
        assert why in said


def test_a_port_that_is_taken(root: Path) -> None:
    """A port that somebody else has is told, with the option that chooses another one."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = refused(root, "--port", str(taken.getsockname()[1]))

    assert "Address already in use; another port: --port" in said
