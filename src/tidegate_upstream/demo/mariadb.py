"""A MariaDB of one's own, on a free port of this machine, for as long as a block runs.

    mariadb-install-db ─► directory ─► mariadbd ─► answers ─► .. ─► SIGTERM

`root` comes in without a password, from this machine alone.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidegate.model.errors import EnvironmentFault

_PROGRAMS: Final = ("mariadb-install-db", "mariadbd")
_START_S: Final = 60.0
_STOP_S: Final = 60.0
_OPTIONS: Final = ("--bind-address=127.0.0.1", "--innodb-buffer-pool-size=16M", "--character-set-server=utf8mb4")


def programs() -> list[str]:
    """Return the paths of the programs of the server. EnvironmentFault where they are not installed."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    found = [shutil.which(name, path=path) for name in _PROGRAMS]
    if None in found:
        raise EnvironmentFault("no MariaDB server on this machine; Debian, Ubuntu: apt-get install mariadb-server")
    return [str(one) for one in found]


class MariaDb:
    """A server that `home` is made for, with `options`; it may die and come back, at the same port."""

    def __init__(self, home: Path, options: Sequence[str] = ()) -> None:
        install, self._daemon = programs()
        self._user = ["--user=root"] if os.getuid() == 0 else []
        data = f"--datadir={home / 'data'}"
        made = [install, "--no-defaults", *self._user, data, "--auth-root-authentication-method=normal"]
        subprocess.run([*made, "--skip-test-db"], check=True, capture_output=True, timeout=_START_S)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        own = [data, f"--port={self.port}", f"--socket={home / 's'}", f"--pid-file={home / 'pid'}"]
        own.append(f"--tmpdir={home}")  # a server that starts deletes temporary tables there, of others too
        self._options, self._log = [*own, *_OPTIONS, *options], home / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Start it, with `more` options, and wait until it answers. EnvironmentFault with the end of its log."""
        with self._log.open("ab") as log:
            words = [self._daemon, "--no-defaults", *self._user, *self._options, *more]
            self._process = subprocess.Popen(words, stdout=log, stderr=log)
        _wait_for(self.port, self._process, self._log)

    def kill(self) -> None:
        """End it by SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_S)

    def stop(self) -> None:
        """End it, if it runs."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_STOP_S)


@contextmanager
def running_mariadb(home: Path, options: Sequence[str] = ()) -> Iterator[int]:
    """Run a server in a directory; give its port once it answers. EnvironmentFault with the end of its log."""
    server = MariaDb(home, options)
    try:
        server.start()
        yield server.port
    finally:
        server.stop()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until_s = time.monotonic() + _START_S
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 1.0) as answering:
                if answering.recv(1):  # its greeting
                    return
        except OSError:
            pass
        if process.poll() is not None or time.monotonic() > until_s:
            raise EnvironmentFault(f"MariaDB did not start: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)
