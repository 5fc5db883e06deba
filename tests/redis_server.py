"""A real Redis on a temporary directory and a free port, or a cluster of three, stopped by their own processes."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import redis

START_S = 30.0
NODES = 3


@dataclass
class RedisServer:
    """A server that can be killed and started again; `more` are its options, `client` what the test asks it by."""

    home: Path
    port: int
    more: Sequence[str] = ()
    settings: dict[str, object] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def client(self) -> redis.Redis:
        """A new client."""
        return redis.Redis(host="127.0.0.1", port=self.port, **self.settings)  # type: ignore[arg-type]

    def start(self) -> None:
        """Runs the server until it answers."""
        own = ["--bind", "127.0.0.1", "--dir", str(self.home), "--save", "", "--daemonize", "no"]
        port = [] if "--tls-port" in self.more else ["--port", str(self.port)]
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen([program(), *port, *own, *self.more], stdout=log, stderr=log)
        until_s = time.monotonic() + START_S
        while True:
            try:
                self.client.ping()
            except (redis.ConnectionError, redis.exceptions.BusyLoadingError):
                assert time.monotonic() < until_s, (self.home / "log").read_text()[-2000:]
                time.sleep(0.02)
            except redis.ResponseError:
                return
            else:
                return

    def kill(self) -> None:
        """Ends the server at once, as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(START_S)


def program() -> str:
    """The server's path; where none is installed the test is skipped, in CI it fails."""
    found = shutil.which("redis-server", path=f"{os.environ.get('PATH', '')}:/usr/bin:/usr/local/bin")
    if found is None:
        (pytest.fail if os.environ.get("TIDEGATE_CI") else pytest.skip)("no redis-server on this machine")
    return str(found)


def free_port(most: int = 65_535) -> int:
    """A port that nobody listens at, not above `most`."""
    while True:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        if port <= most:
            return port


@contextmanager
def running_redis(home: Path, *more: str, **settings: object) -> Iterator[RedisServer]:
    """A server with `more` options, for clients with `settings`, that is gone when the block ends."""
    program()
    home.mkdir(parents=True, exist_ok=True)
    server = RedisServer(home, free_port(), more, settings)
    server.more = [word.replace("PORT", str(server.port)) for word in more]
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def running_cluster(home: Path) -> Iterator[list[RedisServer]]:
    """Three servers that are a cluster without replicas."""
    program()
    with ExitStack() as stack:
        servers = []
        for number in range(NODES):
            own = home / f"node{number}"
            own.mkdir(parents=True)
            server = RedisServer(own, free_port(50_000), ["--cluster-enabled", "yes"])
            server.start()
            stack.callback(server.kill)
            servers.append(server)
        clients = [server.client for server in servers]
        for number, client in enumerate(clients):
            share = range(number * 16_384 // NODES, (number + 1) * 16_384 // NODES)
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", share.start, share.stop - 1)
            clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", servers[number].port)
        until_s = time.monotonic() + START_S
        while any(client.cluster("info")["cluster_state"] != "ok" for client in clients):
            assert time.monotonic() < until_s
            time.sleep(0.05)
        yield servers
