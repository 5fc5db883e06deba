"""A real OpenSearch or Elasticsearch from its jars, on a free port, stopped by its own process.

It refuses to run as root, so root runs it as `nobody`, on copies of the jars in a directory that is its own.
"""

import http.client
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import pytest

from tests.redis_server import free_port
from tidegate.sink.search_mapping import ServerOptions
from tidegate.sink.search_server import SearchCalls
from tidegate.spark.java import ensure_jars, find_java

START_S: Final = 180.0
PLUGIN: Final = "transport-netty4"
DESCRIPTOR: Final = """name=transport-netty4
description=HTTP
version={0.version}
{0.name}.version={0.version}
java.version={0.java}
classname=org.{0.name}.transport.Netty4Plugin
extended.plugins=
has.native.controller=false
"""
POLICY: Final = 'grant { permission java.net.SocketPermission "*", "accept,connect,listen,resolve"; };\n'
LOGGING: Final = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""
JVM: Final = (
    *("-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    *("-Djava.security.manager=allow", "-Dlog4j2.disable.jmx=true"),
)
DISTRIBUTION: Final = ("distribution.type=tar", "bundled_jdk=false")


@dataclass(frozen=True)
class Product:
    """What differs between the two; `prefix` begins the properties of their JVM, `java` is what its plugins say."""

    name: Literal["opensearch", "elasticsearch"]
    version: str
    main: str
    prefix: str
    java: str


OPENSEARCH: Final = Product("opensearch", "2.19.1", "OpenSearch", "opensearch", "11")
ELASTICSEARCH: Final = Product("elasticsearch", "7.17.28", "Elasticsearch", "es", "1.8")
PRODUCTS: Final = [
    pytest.param(OPENSEARCH, id="opensearch"),
    pytest.param(ELASTICSEARCH, id="elasticsearch", marks=pytest.mark.soak),
]


@dataclass
class SearchServer:
    """A server that can be killed and started again with what it had."""

    home: Path
    port: int
    settings: Sequence[str] = ()
    product: Product = OPENSEARCH
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def options(self) -> ServerOptions:
        """How it is reached."""
        return ServerOptions((("127.0.0.1", self.port),), timeout_s=30.0)

    def calls(self) -> SearchCalls:
        """A connection for the test itself."""
        return SearchCalls(self.options)

    def prepare(self) -> None:
        """Lay out the directory of the server."""
        plugin = self.home / "modules" / PLUGIN
        for name in ("lib", f"modules/{PLUGIN}", "config", "plugins", "logs", "data", "tmp"):
            (self.home / name).mkdir(parents=True)
        for jar in ensure_jars(self.product.name).iterdir():
            shutil.copy(jar, plugin if jar.name.startswith(("netty-", PLUGIN)) else self.home / "lib")
        (plugin / "plugin-descriptor.properties").write_text(DESCRIPTOR.format(self.product))
        (plugin / "plugin-security.policy").write_text(POLICY)
        config = self.home / "config"
        (config / "log4j2.properties").write_text(LOGGING)
        (config / "jvm.options").write_text("")
        told = ["network.host: 127.0.0.1", f"http.port: {self.port}", f"transport.port: {free_port()}"]
        told += ["discovery.type: single-node", "bootstrap.system_call_filter: false"]
        told += ["cluster.routing.allocation.disk.threshold_enabled: false", *self.settings]
        (config / f"{self.product.name}.yml").write_text("\n".join(told) + "\n")
        if os.geteuid() == 0:
            owner = pwd.getpwnam("nobody")
            for path in (self.home, *self.home.rglob("*")):
                os.chown(path, owner.pw_uid, owner.pw_gid)

    def start(self) -> None:
        """Run the server until it answers."""
        product = self.product
        told = [*DISTRIBUTION, f"path.home={self.home}", f"path.conf={self.home}/config"]
        command = [str(find_java().runtime / "bin" / "java"), *JVM, *(f"-D{product.prefix}.{one}" for one in told)]
        user = {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []}
        with (self.home / "logs" / "out").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "-cp", f"{self.home}/lib/*", f"org.{product.name}.bootstrap.{product.main}"],
                stdout=log,
                stderr=log,
                cwd=self.home,
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(self.home), "LIBFFI_TMPDIR": f"{self.home}/tmp"},
                **(user if os.geteuid() == 0 else {}),  # type: ignore[arg-type]
            )
        until_s = time.monotonic() + START_S
        while not self.is_up():
            said = (self.home / "logs" / "out").read_text()[-3000:]
            assert self.process.poll() is None, said
            assert time.monotonic() < until_s, said
            time.sleep(0.1)

    def is_up(self) -> bool:
        """Whether it takes documents."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/_cluster/health?wait_for_status=yellow&timeout=5s")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def kill(self) -> None:
        """End the server at once, as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()


@contextmanager
def running_search(*settings: str, product: Product = OPENSEARCH) -> Iterator[SearchServer]:
    """A server with more lines of its configuration, that is gone when the block ends."""
    home = Path(tempfile.mkdtemp(prefix="tidegate-search-"))
    home.chmod(0o755)
    server = SearchServer(home, free_port(), settings, product)
    try:
        server.prepare()
        server.start()
        yield server
    finally:
        if server.process is not None:
            server.kill()
        shutil.rmtree(home, ignore_errors=True)
