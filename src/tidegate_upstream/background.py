"""The embedded TiDB as a background process: start it, look up its status, stop it.

    start_upstream   directory ──► python -m tidegate_upstream.serve ──► it listens ──► note is written
    status           reads the notes; removes those of processes that have ended
    stop_upstream    SIGTERM, wait, SIGKILL; removes the note, and a temporary directory with it

A note (`<cache>/upstreams/<digest of the directory>.json`) records which process serves which directory.  Pids are
reused, so a process is only stopped if its command line names that directory.  With a data directory the rows are there
again at the next start; without one they are in memory and are lost with the process.

`started`, `living` and `end` work for any process that outlives the command that started it; the broker uses them, too.
Their `Watch` names the process and the extra that installs psutil, for the error message when that is missing.
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
from typing import TYPE_CHECKING, Final, NamedTuple

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


class Watch(NamedTuple):
    """What is watched, and the extra that brings psutil."""

    what: str
    extra: str


def started(child: subprocess.Popen[bytes]) -> None:
    """Remember a child of this process."""
    _children[child.pid] = child


def child_of(pid: int) -> subprocess.Popen[bytes]:
    """Return a child that this process started."""
    return _children[pid]


def living(pid: int, is_ours: Callable[[Sequence[str]], bool], watch: Watch) -> "psutil.Process | None":
    """Return the process; a child of ours, or one whose command line `is_ours`. Raises EnvironmentFault without
    psutil."""
    psutil = _psutil(watch)
    try:
        process = psutil.Process(pid)
        if (child := _children.get(pid)) is not None:
            return process if child.poll() is None else None
        for _ in range(LOOKS):
            if words := process.cmdline():
                return process if is_ours(words) else None
            time.sleep(LOOK_PAUSE_S)
    except psutil.Error:
        return None
    return None


def end(process: "psutil.Process", timeout_s: float, watch: Watch) -> None:
    """Ask it to end, and after `timeout_s` make it."""
    psutil = _psutil(watch)
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(sign)
        with suppress(psutil.TimeoutExpired):
            process.wait(timeout_s)
            break
    if (child := _children.pop(process.pid, None)) is not None:
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout_s)


def _psutil(watch: Watch) -> ModuleType:
    try:
        return import_module("psutil")
    except ImportError as fault:
        raise EnvironmentFault(
            f"{watch.what} are watched with psutil ({fault}): pip install 'tidegate[{watch.extra}]'"
        ) from fault


if TYPE_CHECKING:
    import psutil

PREFIX: Final = "tidegate-upstream-"
READY: Final = "ready.json"
"""What the process writes once its ports are open: {node: port}."""
_LOG: Final = "upstream.log"
_MODULE: Final = "tidegate_upstream.serve"
_START_TIMEOUT_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 15.0
_POLL_S: Final = 0.05

_WATCH: Final = Watch("processes", "upstream")


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
    home = (directory or Path(tempfile.mkdtemp(prefix=PREFIX))).expanduser().resolve()
    try:
        home.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        with locked(home / ".lock", timeout_s=2 * _START_TIMEOUT_S):
            if (serving := _find(home)) is not None:
                return _same(serving, options)
            return _start(home, options, temporary=directory is None)
    except OSError as fault:
        raise EnvironmentFault(f"an upstream cannot keep its data in {home}: {fault.strerror or fault}") from fault


def status(directory: Path | None = None) -> tuple[UpstreamProcess, ...]:
    """Return those that run, of all directories or of one; those that died are forgotten on the way."""
    if directory is not None:
        found = _find(directory.expanduser().resolve())
        return (found,) if found else ()
    noted = (_read(note) for note in sorted(cache_dir("upstreams").glob("*.json")))
    return tuple(one for one in noted if one is not None and _alive_or_forgotten(one))


def check_apart(log: str, host: str, port: int) -> None:
    """Raise SameUpstream where an upstream of this machine, whose log is read, is the server that is to be written."""
    writes = [one for one in status() if one.log and Path(one.log).resolve() == Path(log).resolve()]
    if any(port in one.ports.values() for one in writes) and _is_here(host):
        raise SameUpstream(
            f"sink-uri: {host}:{port} is the TiDB that writes the log {log}: what is written there comes back in the "
            "log, again and again; write into another server"
        )


def _is_here(host: str) -> bool:
    import psutil

    try:
        found = {place[0] for *_, place in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(found & {one.address for each in psutil.net_if_addrs().values() for one in each})


def stop_upstream(one: UpstreamProcess) -> None:
    """End it if it still runs, forget it, and delete its directory if that was temporary."""
    if (process := _process(one)) is not None:
        end(process, _STOP_TIMEOUT_S, _WATCH)
    _forget(one)


def _start(home: Path, options: UpstreamOptions, *, temporary: bool) -> UpstreamProcess:
    (home / READY).unlink(missing_ok=True)
    with open(home / _LOG, "wb", opener=private) as log:
        child = subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(home)],
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
            write_whole(_note(home), json.dumps(asdict(one), default=str))
            return one
        time.sleep(_POLL_S)
    child.kill()
    child.wait(_STOP_TIMEOUT_S)
    tail = "\n".join((home / _LOG).read_text(errors="replace").splitlines()[-15:]) or "(empty)"
    if temporary:
        shutil.rmtree(home, ignore_errors=True)
    raise EnvironmentFault(f"the upstream in {home} did not come up; the end of its log:\n{tail}")


def _ready(home: Path) -> dict[str, int] | None:
    try:
        found: dict[str, int] = json.loads((home / READY).read_text())
    except (OSError, ValueError):
        return None
    return found


def _same(serving: UpstreamProcess, options: UpstreamOptions) -> UpstreamProcess:
    if options.port and options.port != next(iter(serving.ports.values())):
        raise EnvironmentFault(f"{serving.dir} is already served at {dict(serving.ports)}; stop that upstream first")
    return serving


def _note(home: Path) -> Path:
    return cache_dir("upstreams") / f"{hashlib.sha256(os.fsencode(home)).hexdigest()[:16]}.json"


def _read(note: Path) -> UpstreamProcess | None:
    """The upstream of a note; None where there is none, or none that we could have written."""
    try:
        fields = json.loads(note.read_text())
        return UpstreamProcess(**{**fields, "dir": Path(fields["dir"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _find(home: Path) -> UpstreamProcess | None:
    one = _read(_note(home))
    return one if one is not None and _alive_or_forgotten(one) else None


def _alive_or_forgotten(one: UpstreamProcess) -> bool:
    if _process(one) is not None:
        return True
    _forget(one)
    return False


def _forget(one: UpstreamProcess) -> None:
    _note(one.dir).unlink(missing_ok=True)
    if one.temporary and one.dir.name.startswith(PREFIX):
        shutil.rmtree(one.dir, ignore_errors=True)


def _process(one: UpstreamProcess) -> "psutil.Process | None":
    """The process of `one`; None when it ended, or when its pid now names another one."""
    return living(one.pid, lambda words: _MODULE in words and str(one.dir) in words, _WATCH)
