"""A Trino on a free port, with the connectors of Iceberg and Delta, spoken to over its HTTP API, stopped in the end.

    POST /v1/statement: SELECT ..  ──►  {columns, data, nextUri}  ──GET nextUri──►  {data, nextUri}  ──►  ..  ──►  {}

`TIDEGATE_TEST_TRINO` names its unpacked directory (io.trino:trino-server:VERSION:tar.gz of Maven) and
`TIDEGATE_TEST_TRINO_JAVA` the program of a Java that it takes: Trino 476 wants Java 24 or newer.

Source: Trino's documentation, "Deploying Trino" and "Client REST API".
"""

import base64
import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, Final, NamedTuple

import pytest

TRINO: Final = "TIDEGATE_TEST_TRINO"
JAVA: Final = "TIDEGATE_TEST_TRINO_JAVA"
START_S: Final = 180
PLUGINS: Final = ("iceberg", "delta-lake")
HEADERS: Final = {"X-Trino-User": "reader", "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME"}
OPTIONS: Final = (
    "-Xmx1500m",
    "-Djdk.attach.allowAttachSelf=true",
    "--add-modules=jdk.incubator.vector",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
)
PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    "decimal": Decimal,
    "varbinary": base64.b64decode,
    "date": date.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamp with time zone": lambda text: datetime.fromisoformat(text.replace(" UTC", "+00:00")),
}
"""What JSON has as text."""


class TrinoFault(AssertionError):
    """A statement failed; the text is Trino's, with its causes."""


class Trino(NamedTuple):
    """Asks a server."""

    uri: str

    def rows(self, statement: str) -> list[dict[str, Any]]:
        """The rows of a statement."""
        told = self._ask(f"{self.uri}/v1/statement", statement.encode())
        columns, data = [], []
        while True:
            if "error" in told:
                raise TrinoFault("; ".join(_causes(told["error"]["failureInfo"])))
            columns = told.get("columns", columns)
            data += told.get("data", [])
            if "nextUri" not in told:
                return [_row(columns, values) for values in data]
            told = self._ask(told["nextUri"])

    @contextmanager
    def catalog(self, name: str, properties: Mapping[str, str]) -> Iterator[str]:
        """A catalog of Iceberg's connector, made by a statement: its name."""
        told = ", ".join(f"\"{key}\" = '{value}'" for key, value in properties.items())
        self.rows(f"CREATE CATALOG {name} USING iceberg WITH ({told})")
        try:
            yield name
        finally:
            self.rows(f"DROP CATALOG {name}")

    @staticmethod
    def _ask(uri: str, statement: bytes | None = None) -> Any:
        with urllib.request.urlopen(urllib.request.Request(uri, statement, HEADERS), timeout=100) as response:
            return json.load(response)


def _causes(failure: Mapping[str, Any] | None) -> Iterator[str]:
    while failure:
        yield str(failure.get("message"))
        failure = failure.get("cause")


def _row(columns: Sequence[Mapping[str, Any]], values: Sequence[Any]) -> dict[str, Any]:
    row = {}
    for column, value in zip(columns, values, strict=True):
        parse = PARSERS.get(column["typeSignature"]["rawType"])
        row[column["name"]] = value if parse is None or value is None else parse(value)
    return row


def settings(port: int, home: Path) -> dict[str, str]:
    """What a small server on this machine alone is told."""
    return {
        "node.environment": "test",
        "node.bind-ip": "127.0.0.1",
        "node.internal-address": "127.0.0.1",
        "plugin.dir": f"{home}/plugin",
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": str(port),
        "discovery.uri": f"http://127.0.0.1:{port}",
        "query.max-memory-per-node": "300MB",
        "memory.heap-headroom-per-node": "200MB",
    }


@contextmanager
def running(files: Mapping[str, str]) -> Iterator[Trino]:
    """A server with the catalogs of `files` (etc/catalog/NAME.properties), and what etc/config.properties says beside
    its own. Without the program the test is skipped."""
    for name in (TRINO, JAVA):
        if name not in os.environ:
            pytest.skip(f"{name} is not set")
    program = Path(os.environ[TRINO])
    with TemporaryDirectory() as home, socket.create_server(("127.0.0.1", 0)) as free, TemporaryFile() as log:
        port = free.getsockname()[1]
        free.close()
        root = Path(home)
        for folder in ("plugin", "etc/catalog"):
            (root / folder).mkdir(parents=True)
        for name in PLUGINS:
            (root / "plugin" / name).symlink_to(program / "plugin" / name)
        own = "".join(f"{name}={value}\n" for name, value in settings(port, root).items())
        for path, text in (files | {"etc/config.properties": own + files.get("etc/config.properties", "")}).items():
            (root / path).write_text(text)
        words = [os.environ[JAVA], "-cp", f"{program}/lib/*", *OPTIONS, "-Dconfig=etc/config.properties"]
        process = subprocess.Popen(
            [*words, "io.trino.server.TrinoServer"], cwd=root, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            uri, until = f"http://127.0.0.1:{port}", time.monotonic() + START_S
            while not _started(uri):
                assert process.poll() is None, log.seek(0) or log.read()[-4000:]
                assert time.monotonic() < until, "Trino does not start"
                time.sleep(0.3)
            yield Trino(uri)
        finally:
            process.terminate()
            process.wait(60)


def _started(uri: str) -> bool:
    try:
        with urllib.request.urlopen(f"{uri}/v1/info", timeout=10) as response:
            return json.load(response)["starting"] is False
    except OSError:
        return False
