"""The embedded TiDB as a background process: start it, look up its status, stop it.

    start_upstream   directory ──► python -m tidegate_upstream.serve ──► it listens ──► note is written
    status           reads the notes; removes those of processes that have ended
    stop_upstream    SIGTERM, wait, SIGKILL; removes the note, and a temporary directory with it

A note (`<cache>/upstreams/<digest of the directory>.json`) records which process serves which directory.  Pids are
reused, so a process is only stopped if its command line names that directory.  With a data directory the rows are there
again at the next start; without one they are in memory and are lost with the process.

`Processes` are those of one kind that outlive the command that started them; brokers are others.
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
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from tidegate.model.errors import EnvironmentFault, SameUpstream
from tidegate.source.tidb_segment import GC_TTL_MS
from tidegate.spark.cache import PRIVATE_DIRECTORY, cache_dir, locked, private, write_whole

if TYPE_CHECKING:
    import psutil

LOOKS: Final = 5
LOOK_PAUSE_S: Final = 0.02
"""Between fork and the end of exec a process shows no command line for some microseconds; then we look again."""

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Processes that this one started: the handle of an unreaped child says for certain whether it runs."""


def started(child: subprocess.Popen[bytes]) -> None:
    """Remember a child of this process."""
    _children[child.pid] = child


def child_of(pid: int) -> subprocess.Popen[bytes]:
    """Return a child that this process started."""
    return _children[pid]


class Process(Protocol):
    """One that was started by us; `temporary` says that its directory goes when it goes."""

    @property
    def pid(self) -> int: ...
    @property
    def dir(self) -> Path: ...
    @property
    def temporary(self) -> bool: ...


P = TypeVar("P", bound=Process)


@dataclass(frozen=True, slots=True)
class Processes(Generic[P]):
    """The background processes of one kind: `what` names one, `extra` of the package brings psutil.

    `folder` of the cache has their notes, `prefix` is how their temporary directories begin, `is_ours` tells one by the
    words of its command line; `start_s` and `stop_s` bound the waits."""

    kind: Callable[..., P]
    what: str
    extra: str
    folder: str
    prefix: str
    is_ours: Callable[[P, Sequence[str]], bool]
    start_s: float
    stop_s: float

    def serving(self, directory: Path | None, start: Callable[[Path], P]) -> P:
        """Return the one that serves `directory`, else what `start` makes; None stands for a temporary directory.

        Raises EnvironmentFault for a directory that cannot be used, and what `start` raises."""
        home = (directory or Path(tempfile.mkdtemp(prefix=self.prefix))).expanduser().resolve()
        try:
            home.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            with locked(home / ".lock", timeout_s=2 * self.start_s):
                return self._find(home) or start(home)
        except OSError as fault:
            raise EnvironmentFault(f"{self.what} cannot keep its data in {home}: {fault.strerror or fault}") from fault
        except BaseException:
            if directory is None:
                shutil.rmtree(home, ignore_errors=True)
            raise

    def status(self, directory: Path | None = None) -> tuple[P, ...]:
        """Return those that run, of all directories or of one; those that died are forgotten on the way."""
        if directory is not None:
            found = self._find(directory.expanduser().resolve())
            return (found,) if found else ()
        notes = sorted(cache_dir(self.folder).glob("*.json"))
        return tuple(one for note in notes if (one := self._read(note)) is not None)

    def stop(self, one: P) -> None:
        """End it if it still runs, forget it, and delete its directory if that was temporary."""
        self.end(one)
        if one.temporary and one.dir.name.startswith(self.prefix):
            shutil.rmtree(one.dir, ignore_errors=True)

    def end(self, one: P) -> None:
        """Ask it to end, and make it if it does not; forget it, but leave its directory."""
        if (process := self.process(one)) is not None:
            psutil = self._psutil()
            for sign in (signal.SIGTERM, signal.SIGKILL):
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(sign)
                with suppress(psutil.TimeoutExpired):
                    process.wait(self.stop_s)
                    break
            if (child := _children.pop(one.pid, None)) is not None:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(self.stop_s)
        self.note(one.dir).unlink(missing_ok=True)

    def process(self, one: P) -> "psutil.Process | None":
        """Return the process of `one`; None when it ended, or when its pid now names another one."""
        psutil = self._psutil()
        try:
            process = psutil.Process(one.pid)
            if (child := _children.get(one.pid)) is not None:
                return process if child.poll() is None else None
            for _ in range(LOOKS):
                if words := process.cmdline():
                    return process if self.is_ours(one, words) else None
                time.sleep(LOOK_PAUSE_S)
        except psutil.Error:
            return None
        return None

    def note(self, home: Path) -> Path:
        """Return the file that tells of the one that serves a directory."""
        return cache_dir(self.folder) / f"{hashlib.sha256(os.fsencode(home)).hexdigest()[:16]}.json"

    def put(self, one: P) -> None:
        """Write its note."""
        write_whole(self.note(one.dir), json.dumps(asdict(one), default=str))  # type: ignore[call-overload]

    def _find(self, home: Path) -> P | None:
        return self._read(self.note(home))

    def _read(self, note: Path) -> P | None:
        """The one that a note tells of, if it lives; None for a note that we could not have written, too."""
        try:
            fields = json.loads(note.read_text())
            one = self.kind(**{**fields, "dir": Path(fields["dir"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None
        if self.process(one) is not None:
            return one
        self.stop(one)
        return None

    def _psutil(self) -> ModuleType:
        try:
            return import_module("psutil")
        except ImportError as fault:
            raise EnvironmentFault(
                f"{self.folder} are watched with psutil ({fault}): pip install 'tidegate[{self.extra}]'"
            ) from fault


PREFIX: Final = "tidegate-upstream-"
READY: Final = "ready.json"
"""What the process writes once its ports are open: {node: port}."""
_LOG: Final = "upstream.log"
_MODULE: Final = "tidegate_upstream.serve"
_START_TIMEOUT_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 15.0
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class UpstreamOptions:
    """How it runs; `port` 0 means any free ones, else that and the ones after it, one a node."""

    host: str = "127.0.0.1"
    port: int = 0
    nodes: int = 1
    lease_ms: int = 45_000
    metadata_lock: bool = True
    in_memory: bool = True
    log: str = ""
    """Where its change log is written as segments; nowhere if empty."""
    log_keep_ms: int = 0
    """How long the log is kept at least; 0: all of it."""
    gc_ttl_ms: int = GC_TTL_MS
    """How long the log is kept for a changefeed that is not heard of any more."""
    user: str = ""
    """Who may come in, with the password of `password_hash`; anybody if empty."""
    password_hash: str = ""


@dataclass(frozen=True, slots=True)
class UpstreamProcess:
    """One that runs: its ports by node; `temporary` says that its directory goes when it goes."""

    pid: int
    dir: Path
    host: str
    ports: Mapping[str, int]
    temporary: bool
    log: str = ""

    def port_of(self, node: int) -> int:
        """Return the port of node number 1, 2, ..; EnvironmentFault when there is no such node."""
        found = self.ports.get(f"n{node}")
        if found is None:
            raise EnvironmentFault(f"there is no node {node}; there are {', '.join(self.ports)}")
        return found


def start_upstream(options: UpstreamOptions, directory: Path | None = None) -> UpstreamProcess:
    """Return one that answers: the one that already serves `directory`, or a new one.

    No directory means in memory. Raises EnvironmentFault with the end of its log when it does not come up."""
    one = UPSTREAMS.serving(directory, lambda home: _start(home, options, temporary=directory is None))
    if options.port and options.port != next(iter(one.ports.values())):
        raise EnvironmentFault(f"{one.dir} is already served at {dict(one.ports)}; stop that upstream first")
    return one


def check_apart(log: str, host: str, port: int) -> None:
    """Raise SameUpstream where an upstream of this machine, whose log is read, is the server that is to be written."""
    writes = [one for one in status() if one.log and Path(one.log).resolve() == Path(log).resolve()]
    if not any(port in one.ports.values() for one in writes):
        return
    import psutil

    try:
        found = {place[0] for *_, place in socket.getaddrinfo(host, None)}
    except OSError:
        return
    if found & {one.address for each in psutil.net_if_addrs().values() for one in each}:
        raise SameUpstream(
            f"sink-uri: {host}:{port} is the TiDB that writes the log {log}: what is written there comes back in the "
            "log, again and again; write into another server"
        )


def _start(home: Path, options: UpstreamOptions, *, temporary: bool) -> UpstreamProcess:
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
    started(child)
    until = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < until and child.poll() is None:
        if (ports := _ready(home)) is not None:
            one = UpstreamProcess(child.pid, home, options.host, ports, temporary, options.log)
            UPSTREAMS.put(one)
            return one
        time.sleep(_POLL_S)
    child.kill()
    child.wait(_STOP_TIMEOUT_S)
    tail = "\n".join((home / _LOG).read_text(errors="replace").splitlines()[-15:]) or "(empty)"
    raise EnvironmentFault(f"the upstream in {home} did not come up; the end of its log:\n{tail}")


def _ready(home: Path) -> dict[str, int] | None:
    try:
        found: dict[str, int] = json.loads((home / READY).read_text())
    except (OSError, ValueError):
        return None
    return found


UPSTREAMS: Final = Processes(
    UpstreamProcess,
    "an upstream",
    "upstream",
    "upstreams",
    PREFIX,
    lambda one, words: _MODULE in words and str(one.dir) in words,
    _START_TIMEOUT_S,
    _STOP_TIMEOUT_S,
)
status, stop_upstream = UPSTREAMS.status, UPSTREAMS.stop
