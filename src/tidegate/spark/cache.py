"""The per-user directory for what is fetched or started once: jars, Java launchers, brokers' notes.

    TIDEGATE_CACHE, or XDG_CACHE_HOME/tidegate, or ~/.cache/tidegate, or a private directory of this user in TMPDIR
      |- jars/<hash of ivy.xml>/<configuration>/*.jar
      |- ivy/                  what Ivy keeps for itself; may be deleted at any time
      |- java/<digest>/bin/    launchers, see java.py
      '- brokers/<digest>.json one note a broker, see app/broker.py

Everything in it can be deleted while nothing runs and comes back by itself.  The first place that can be written is
taken, so an empty, missing or read-only HOME is no error; a place that the user *named* must work.

Source: XDG Base Directory Specification, $XDG_CACHE_HOME.
"""

import fcntl
import getpass
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidegate.model.errors import EnvironmentFault

POLL_SECONDS: Final = 0.2


def cache_dir(*parts: str) -> Path:
    """`parts` below the cache, created. Raises EnvironmentFault when no place can be written."""
    named = os.environ.get("TIDEGATE_CACHE")
    tried: list[str] = []
    for root in (Path(named).expanduser(),) if named else _places():
        path = root.joinpath(*parts)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            tried.append(f"{path} ({fault.strerror})")
            continue
        if os.access(path, os.W_OK | os.X_OK):
            return path.resolve()
        tried.append(f"{path} (not writable)")
    raise EnvironmentFault(f"no cache directory can be written: {', '.join(tried)}; set TIDEGATE_CACHE to one that can")


def _places() -> Iterator[Path]:
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):  # noqa: PTH117  the specification says: a relative one is ignored
        yield Path(xdg, "tidegate")
    home = os.environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111  Path.home() raises where nothing is known
    if os.path.isabs(home):  # noqa: PTH117
        yield Path(home, ".cache", "tidegate")
    yield Path(tempfile.gettempdir(), f"tidegate-{_user()}")


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else getpass.getuser()


@contextmanager
def locked(path: Path, *, timeout_s: float, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold `path` against other processes; a holder that dies lets go. `on_wait` is called once, if we must wait.

    Raises EnvironmentFault after `timeout_s`."""
    until = time.monotonic() + timeout_s
    waiting = False
    with path.open("a") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    on_wait()
                waiting = True
            if time.monotonic() > until:
                raise EnvironmentFault(f"another process has held {path} for {timeout_s:.0f} s; end it or wait for it")
            time.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)


def write_whole(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Put `text` at `path` in one step: readers see the old file or the new one."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text)
    part.chmod(mode)
    part.replace(path)
