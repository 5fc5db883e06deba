"""Calls to servers: accounts, certificates, the next server, and what answers mean."""

import base64
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import make_certificate
from tests.redis_server import free_port
from tidegate.model.errors import ConfigError, LoginRefused, Retry, SinkError, SinkRefused, TidegateError
from tidegate.sink.search_mapping import ServerOptions
from tidegate.sink.search_server import SearchCalls, path_of

ERROR = b'{"error":{"type":"some_exception","reason":"so it is"},"status":400}'


class Answering(BaseHTTPRequestHandler):
    """Answers the status of its path to whoever has the account; each answer ends its connection where `once`."""

    protocol_version = "HTTP/1.1"
    wanted = f"Basic {base64.b64encode(b'feed:p@ss').decode()}"
    once = False

    def do_GET(self) -> None:
        """Answer."""
        status = int(self.path[1:]) if self.headers.get("authorization") in {self.wanted, "ApiKey k"} else 401
        body = b"{}" if status < 300 else ERROR
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.once

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def answering(context: ssl.SSLContext | None = None) -> Iterator[tuple[str, int]]:
    """A real HTTP server, with TLS where there is a context."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield "127.0.0.1", server.server_address[1]
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def calls(*hosts: tuple[str, int], **more: Any) -> SearchCalls:
    """A connection with the account."""
    return SearchCalls(ServerOptions(hosts, **{"user": "feed", "password": "p@ss", "timeout_s": 10.0, **more}))


def test_accounts() -> None:
    """Password and API key come in; a wrong one is told as such, without it."""
    with answering() as host:
        assert calls(host).ask("GET", "/200").is_ok
        assert calls(host, api_key="k").ask("GET", "/200").is_ok
        for wrong in ({"password": "wrong-word"}, {"user": ""}, {"api_key": "wrong-word"}):
            with pytest.raises(LoginRefused, match="check user and password") as failed:
                calls(host, **wrong).ask("GET", "/200")
            assert "wrong-word" not in str(failed.value)
    assert "p@ss" not in repr(calls(host).options)


@pytest.mark.parametrize(
    ("status", "error", "retry"),
    [(400, SinkRefused, Retry.NEVER), (429, SinkError, Retry.LATER), (503, SinkError, Retry.LATER)],
)
def test_answers(status: int, error: type[TidegateError], retry: Retry) -> None:
    """What may pass is waited out, what does not ends the feed; the server's reason is told."""
    with answering() as host:
        one = calls(host)
        answer = one.ask("GET", f"/{status}") if status < 500 else None
        with pytest.raises(error, match="some_exception: so it is") as failed:
            one.done(answer or one.ask("GET", f"/{status}"), "a call")
    assert failed.value.retry is retry


def test_the_next_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not answer is passed over, and a connection that ended by itself is made again."""
    nowhere = ("127.0.0.1", free_port())
    monkeypatch.setattr(Answering, "once", True)
    with answering() as host:
        one = calls(nowhere, host)
        for _ in range(3):
            assert one.ask("GET", "/200").is_ok
    with pytest.raises(SinkError, match="refused"):
        calls(nowhere).ask("GET", "/200")


def test_tls(tmp_path: Path) -> None:
    """The right authority comes in, none or another one does not, a file that is not there is told."""
    for name in ("ca", "other"):
        make_certificate(tmp_path, name)
    make_certificate(tmp_path, "server", by="ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    with answering(context) as host:
        assert calls(host, tls=True, ssl_ca=str(tmp_path / "ca.crt")).ask("GET", "/200").is_ok
        for wrong in ("", str(tmp_path / "other.crt")):
            with pytest.raises(SinkError, match="CERTIFICATE_VERIFY_FAILED"):
                calls(host, tls=True, ssl_ca=wrong).ask("GET", "/200")
        with pytest.raises(ConfigError, match="cannot be used"):
            calls(host, tls=True, ssl_ca=str(tmp_path / "none.crt")).ask("GET", "/200")


def test_paths() -> None:
    """Names are quoted, words of the server are not."""
    assert path_of("a%20/b", "_bulk") == "/a%2520%2Fb/_bulk"
