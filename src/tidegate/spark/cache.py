"""The per-user cache directory: jars, Java launchers, notes about brokers.

    TIDEGATE_CACHE, or XDG_CACHE_HOME/tidegate, or ~/.cache/tidegate, or TMPDIR/tidegate-<user id>
      |- jars/<hash of the list>/<configuration>/*.jar
      |- ivy/                  Ivy's own cache; may be deleted at any time
      |- java/<digest>/bin/    launchers, see java.py
      |- brokers/<digest>.json one note per broker, see broker.py
      '- verify/*.json         the last comparisons, see verify/last_reports.py

Everything in it can be deleted while nothing runs and is recreated on demand.  The first writable directory is used, so
an empty, missing or read-only HOME is no error; TIDEGATE_CACHE, which the user *named*, must work.

The cache contains executables, and anyone may create a directory in TMPDIR first.  The one there is used only if it is
a directory and no link, owned by this user, and not writable by others; else a new one is created for this process.
Directories are created with mode 0700, files with 0600 (objectstore/local_files.py).

Source: XDG Base Directory Specification, $XDG_CACHE_HOME.
"""

import atexit
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from tidegate.model.errors import EnvironmentFault
from tidegate.objectstore.local_files import PRIVATE_DIRECTORY, write_whole


def cache_dir(*parts: str) -> Path:
    """Return the directory `parts` below the cache, created. Raises EnvironmentFault when no directory is writable."""
    named = os.environ.get("TIDEGATE_CACHE")
    tried: list[str] = []
    for root in (Path(named).expanduser(),) if named else _roots():
        path = root.joinpath(*parts)
        try:
            path.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        except OSError as fault:
            tried.append(f"{path} ({fault.strerror})")
            continue
        if os.access(path, os.W_OK | os.X_OK):
            return path.resolve()
        tried.append(f"{path} (not writable)")
    raise EnvironmentFault(f"no cache directory is writable: {', '.join(tried)}; set TIDEGATE_CACHE to a writable one")


def _roots() -> Iterator[Path]:
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):  # noqa: PTH117  the specification says: a relative one is ignored
        yield Path(xdg, "tidegate")
    home = os.environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111  Path.home() raises where nothing is known
    if os.path.isabs(home):  # noqa: PTH117
        yield Path(home, ".cache", "tidegate")
    yield _own_temporary(Path(tempfile.gettempdir(), f"tidegate-{os.getuid()}"))


def _own_temporary(path: Path) -> Path:
    """The directory at `path`, created if missing; a fresh one if other users can write to it."""
    with suppress(FileExistsError):
        path.mkdir(mode=PRIVATE_DIRECTORY)
    status = path.lstat()
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not is_own or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return _fresh_temporary()
    path.chmod(PRIVATE_DIRECTORY)
    return path


@cache
def _fresh_temporary() -> Path:
    directory = tempfile.mkdtemp(prefix="tidegate-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


def keep_program(program: Path, text: str) -> Path:
    """Return the path of the executable file, which is rewritten only if its text differs."""
    if not (program.is_file() and os.access(program, os.X_OK) and program.read_text() == text):
        program.parent.mkdir(exist_ok=True)
        write_whole(program, text, mode=0o755)
    return program
