"""The embedded TiDB as a background process: start it, look up its status, stop it.

    start_upstream   directory ──► python -m tidegate_upstream.serve ──► it listens ──► note is written
    status           reads the notes; removes those of processes that have ended
    stop_upstream    SIGTERM, wait, SIGKILL; removes the note, and a temporary directory with it

A note (`<cache>/upstreams/<digest of the directory>.json`) records which process serves which directory.  Pids are
reused, so a process is only stopped if its command line names that directory.  With a data directory the rows are there
again at the next start; without one they are in memory and are lost with the process.

`Processes` manages the background processes of one kind, such as upstreams or brokers.
"""

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, cast

from tidegate.model.errors import EnvironmentFault, SameUpstream
from tidegate.objectstore.local_files import PRIVATE_DIRECTORY, locked, private, write_whole
from tidegate.source.tidb_segment import GC_TTL_MS
from tidegate.spark.cache import cache_dir

if TYPE_CHECKING:
    import psutil

READ_ATTEMPTS: Final = 5
LOOK_PAUSE_S: Final = 0.02
"""Reads of a process's command line, which is empty for some microseconds between fork and the end of exec."""

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Children of this process by pid: the handle of an unreaped child shows reliably whether it still runs."""
_watchers: dict[int, subprocess.Popen[bytes]] = {}
"""Watchers of the children that end with this process, by pid of the child."""


_KILL: Final = """
read _
(cat "/proc/$0/cmdline" 2>/dev/null || ps -o args= -p "$0") | grep -qaF -- "$1" && kill "$0"
"""
"""Waits for the end of its input, and ends the process `$0` if its last argument is still `$1`."""


def started(child: subprocess.Popen[bytes], *, stays: bool) -> None:
    """Remember a child of this process. Unless it `stays`, it is stopped when this process ends, killed or not."""
    _children[child.pid] = child
    if not stays:  # the other end of this pipe is ours alone
        words = ["sh", "-c", _KILL, str(child.pid), cast("list[str]", child.args)[-1]]
        _watchers[child.pid] = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )


def child_of(pid: int) -> subprocess.Popen[bytes]:
    """Return a child that this process started."""
    return _children[pid]


class Process(Protocol):
    """A background process started by this package; a `temporary` directory is deleted when the process stops."""

    @property
    def pid(self) -> int: ...
    @property
    def dir(self) -> Path: ...
    @property
    def temporary(self) -> bool: ...


P = TypeVar("P", bound=Process)


@dataclass(frozen=True, slots=True)
class Processes(Generic[P]):
    """Manages the background processes of one kind: `what` is its name in messages, `extra` the extra that installs
    psutil.

    Notes of running processes are files in `folder` of the cache, temporary directories begin with `prefix`, `is_ours`
    recognizes a process by its command line, and `start_s` and `stop_s` limit the waits."""

    kind: Callable[..., P]
    what: str
    extra: str
    folder: str
    prefix: str
    is_ours: Callable[[P, Sequence[str]], bool]
    start_s: float
    stop_s: float

    def serving(self, directory: Path | None, start: Callable[[Path], P]) -> P:
        """Return the process that serves `directory`, started by `start` if there is none; None is a temporary
        directory.

        Raises EnvironmentFault for a directory that cannot be used, and what `start` raises."""
        home = (directory or Path(tempfile.mkdtemp(prefix=self.prefix))).expanduser().resolve()
        try:
            home.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            with locked(home / ".lock", timeout_s=2 * self.start_s):
                return self._find(home) or start(home)
        except BaseException as fault:
            if directory is None:
                shutil.rmtree(home, ignore_errors=True)
            if isinstance(fault, OSError):
                path = fault.filename or home
                raise EnvironmentFault(f"{self.what} cannot use {path}: {fault.strerror or fault}") from fault
            raise

    def status(self, directory: Path | None = None) -> tuple[P, ...]:
        """Return the running processes, of all directories or of one; notes of dead processes are deleted."""
        if directory is not None:
            running = self._find(directory.expanduser().resolve())
            return (running,) if running else ()
        notes = sorted(cache_dir(self.folder).glob("*.json"))
        return tuple(record for note in notes if (record := self._read(note)) is not None)

    def stop(self, record: P) -> None:
        """End a process if it still runs, delete its note, and delete its directory if that was temporary."""
        self.end(record)
        if record.temporary and record.dir.name.startswith(self.prefix):
            shutil.rmtree(record.dir, ignore_errors=True)

    def end(self, record: P) -> None:
        """Send SIGTERM to a process, then SIGKILL if it does not end; delete its note, but keep its directory."""
        if (watcher := _watchers.pop(record.pid, None)) is not None:
            watcher.kill()
            watcher.communicate(timeout=self.stop_s)
        if (process := self.process(record)) is not None:
            psutil = self._psutil()
            for sign in (signal.SIGTERM, signal.SIGKILL):
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(sign)
                with suppress(psutil.TimeoutExpired):
                    process.wait(self.stop_s)
                    break
            if (child := _children.pop(record.pid, None)) is not None:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(self.stop_s)
        self.note(record.dir).unlink(missing_ok=True)

    def process(self, record: P) -> "psutil.Process | None":
        """Return the operating system's process of `record`; None if it ended, or if another process has its pid
        now."""
        psutil = self._psutil()
        try:
            process = psutil.Process(record.pid)
            if (child := _children.get(record.pid)) is not None:
                return process if child.poll() is None else None
            for _ in range(READ_ATTEMPTS):
                if words := process.cmdline():
                    return process if self.is_ours(record, words) else None
                time.sleep(LOOK_PAUSE_S)
        except psutil.Error:
            return None
        return None

    def note(self, home: Path) -> Path:
        """Return the note of the process that serves the directory `home`."""
        return cache_dir(self.folder) / f"{hashlib.sha256(os.fsencode(home)).hexdigest()[:16]}.json"

    def put(self, record: P) -> None:
        """Write the note of a process."""
        write_whole(self.note(record.dir), json.dumps(asdict(record), default=str))  # type: ignore[call-overload]

    def _find(self, home: Path) -> P | None:
        return self._read(self.note(home))

    def _read(self, note: Path) -> P | None:
        """Return the process of a note if it still runs; None for a dead process or an unreadable note."""
        try:
            fields = json.loads(note.read_text())
            record = self.kind(**{**fields, "dir": Path(fields["dir"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None
        if self.process(record) is not None:
            return record
        self.stop(record)
        return None

    def _psutil(self) -> ModuleType:
        try:
            return import_module("psutil")
        except ImportError as fault:
            raise EnvironmentFault(
                f"managing {self.folder} requires psutil ({fault}): pip install 'tidegate[{self.extra}]'"
            ) from fault


PREFIX: Final = "tidegate-upstream-"
READY: Final = "ready.json"
"""The file that the process writes once its ports are open: {node: port}."""
_LOG: Final = "upstream.log"
_MODULE: Final = "tidegate_upstream.serve"
_START_TIMEOUT_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 15.0
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class UpstreamOptions:
    """Options of an upstream process; nodes take consecutive ports from `port`, or any free ports if it is 0."""

    host: str = "127.0.0.1"
    port: int = 0
    nodes: int = 1
    lease_ms: int = 45_000
    metadata_lock: bool = True
    in_memory: bool = True
    log: str = ""
    """Directory of the change log's segments; no change log if empty."""
    log_keep_ms: int = 0
    """Minimal retention of the change log; 0 keeps all of it."""
    gc_ttl_ms: int = GC_TTL_MS
    """Retention for a changefeed that no longer reports its checkpoint."""
    user: str = ""
    """The user who may log in, with the password of `password_hash`; anybody if empty."""
    password_hash: str = ""


@dataclass(frozen=True, slots=True)
class UpstreamProcess:
    """A running upstream and its ports by node; a `temporary` directory is deleted when it stops."""

    pid: int
    dir: Path
    host: str
    ports: Mapping[str, int]
    temporary: bool
    log: str = ""

    def port_of(self, node: int) -> int:
        """Return the port of node number 1, 2, ..; EnvironmentFault when there is no such node."""
        port = self.ports.get(f"n{node}")
        if port is None:
            raise EnvironmentFault(f"there is no node {node}; the nodes are {', '.join(self.ports)}")
        return port


def start_upstream(options: UpstreamOptions, directory: Path | None = None, *, stays: bool = False) -> UpstreamProcess:
    """Return the running upstream that serves `directory`, started if there is none.

    Without a directory it runs in memory; it ends with this process unless it `stays`. Raises EnvironmentFault with the
    end of its log if it does not start."""
    upstream = UPSTREAMS.serving(
        directory, lambda home: _start(home, options, temporary=directory is None, stays=stays)
    )
    if options.port and options.port != next(iter(upstream.ports.values())):
        raise EnvironmentFault(f"{upstream.dir} is already served at {dict(upstream.ports)}; stop that upstream first")
    return upstream


def check_apart(log: str, host: str, port: int) -> None:
    """Raise SameUpstream if the server to write to is the local upstream whose change log is read."""
    running = [upstream for upstream in status() if port in upstream.ports.values()]
    if not any(upstream.log and Path(upstream.log).resolve() == Path(log).resolve() for upstream in running):
        return
    import psutil

    try:
        addresses = {address[0] for *_, address in socket.getaddrinfo(host, None)}
    except OSError:
        return
    if addresses & {own.address for interface in psutil.net_if_addrs().values() for own in interface}:
        raise SameUpstream(
            f"sink-uri: {host}:{port} is the TiDB whose change log is the source ({log}): replicated changes would be "
            "replicated again, endlessly; use another server as the target"
        )


def _start(home: Path, options: UpstreamOptions, *, temporary: bool, stays: bool) -> UpstreamProcess:
    (home / READY).unlink(missing_ok=True)
    with open(home / _LOG, "wb", opener=private) as log:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE, str(home)],
            stdin=subprocess.PIPE,  # the options hold a digest of a password: words of a command are seen by everybody
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the terminal is not meant for it
        )
        assert child.stdin is not None
        with child.stdin:
            child.stdin.write(json.dumps(asdict(options)).encode())
    started(child, stays=stays)
    until = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < until and child.poll() is None:
        if (ports := _ready(home)) is not None:
            upstream = UpstreamProcess(child.pid, home, options.host, ports, temporary, options.log)
            UPSTREAMS.put(upstream)
            return upstream
        time.sleep(_POLL_S)
    child.kill()
    child.wait(_STOP_TIMEOUT_S)
    tail = "\n".join((home / _LOG).read_text(errors="replace").splitlines()[-15:]) or "(empty)"
    raise EnvironmentFault(f"the upstream in {home} did not start; the end of its log:\n{tail}")


def _ready(home: Path) -> dict[str, int] | None:
    try:
        ports: dict[str, int] = json.loads((home / READY).read_text())
    except (OSError, ValueError):
        return None
    return ports


UPSTREAMS: Final = Processes(
    UpstreamProcess,
    "an upstream",
    "upstream",
    "upstreams",
    PREFIX,
    lambda upstream, words: _MODULE in words and str(upstream.dir) in words,
    _START_TIMEOUT_S,
    _STOP_TIMEOUT_S,
)
status, stop_upstream = UPSTREAMS.status, UPSTREAMS.stop
