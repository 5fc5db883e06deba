"""A real S3 server on a free port, stopped by its own process, and a proxy in front of it that spoils requests.

obstore ──HTTP──► Proxy: leaves out If-None-Match, or answers 503 first ──► s3_server.py (build/s3, `make setup`)
"""

import http.client
import http.server
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

PYTHON = Path(__file__).parents[1] / "build" / "s3" / "bin" / "python"
SERVER = Path(__file__).with_name("s3_server.py")
START_S = 60
BUCKET = "lakes"
SECRET = "s3cret-s3cret"
MINIO = "TIDEGATE_TEST_MINIO"
"""Names the program of a MinIO."""


def environment(port: int) -> dict[str, str]:
    """Where an object store's client finds the server, and with which account."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "writer",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }


def call(port: int, method: str, path: str) -> int:
    """The status of a request without a body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path)
    return connection.getresponse().status


@dataclass
class S3Server:
    """A server that can be killed and started again with what it had."""

    port: int
    bucket: str
    words: list[str | Path]
    minio: bool = False
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Run it until it has its bucket."""
        env = {**os.environ, "MINIO_ROOT_USER": "writer", "MINIO_ROOT_PASSWORD": SECRET}
        self.process = subprocess.Popen(self.words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + START_S
        while not _answers(self.port, self.bucket, minio=self.minio):
            assert self.process.poll() is None, "the server ended"
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.05)

    def is_up(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """End it at once, as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)


@contextmanager
def running(bucket: str, *, signed: bool = True, minio: bool = False) -> Iterator[S3Server]:
    """A server with an empty bucket. Without the program the test is skipped, where CI runs it fails.

    With `signed` it refuses what the account of `environment` has not signed, as a MinIO always does."""
    if shutil.which(PYTHON) is None:
        text = f"no S3 server at {PYTHON}: make setup"
        (pytest.fail if os.environ.get("TIDEGATE_CI") else pytest.skip)(text)
    if minio and MINIO not in os.environ:
        pytest.skip(f"{MINIO} names no MinIO")
    with socket.create_server(("127.0.0.1", 0)) as free, TemporaryDirectory() as home:
        port = free.getsockname()[1]
        free.close()
        words: list[str | Path] = [PYTHON, SERVER, str(port), *(["signed"] if signed else []), f"{home}/journal"]
        if minio:
            words = [os.environ[MINIO], "server", "--quiet", "--address", f"127.0.0.1:{port}", home]
        server = S3Server(port, bucket, words, minio)
        try:
            server.start()
            yield server
        finally:
            if server.is_up():
                server.kill()


@contextmanager
def serving(bucket: str, *, signed: bool = True, minio: bool = False) -> Iterator[int]:
    """The port of a server that runs until the block ends."""
    with running(bucket, signed=signed, minio=minio) as server:
        yield server.port


MAKE = "import boto3, sys; boto3.client('s3', endpoint_url=sys.argv[1]).create_bucket(Bucket=sys.argv[2])"


def _answers(port: int, bucket: str, *, minio: bool) -> bool:
    if minio:
        words = [PYTHON, "-c", MAKE, f"http://127.0.0.1:{port}", bucket]
        made = subprocess.run(words, check=False, env={**os.environ, **environment(port)}, capture_output=True)
        return made.returncode == 0 or b"BucketAlreadyOwnedByYou" in made.stderr
    try:
        return call(port, "PUT", f"/{bucket}") == 200
    except OSError:
        return False


Spoil = Callable[[str, dict[str, str]], int | None]
"""What becomes of a request, by its method and headers: a status to answer with at once, or None to pass it on."""


@contextmanager
def proxy(port: int, spoil: Spoil) -> Iterator[int]:
    """A server that passes requests on to `port`: its own port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        """One request."""

        protocol_version = "HTTP/1.1"

        def handle_request(self) -> None:
            """Pass it on, as `spoil` says."""
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = dict(self.headers)
            status = spoil(self.command, headers)
            if status is not None:
                self.answer(status, {}, b"")
                return
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request(self.command, self.path, body, headers)
            response = connection.getresponse()
            self.answer(response.status, dict(response.getheaders()), response.read())

        def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            """Send what came back."""
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in {"content-length", "transfer-encoding", "connection", "date", "server"}:
                    self.send_header(name, value)
            size = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
            self.send_header("Content-Length", size)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    for method in ("GET", "PUT", "POST", "DELETE", "HEAD"):
        setattr(Handler, f"do_{method}", Handler.handle_request)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
