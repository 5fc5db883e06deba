"""Files on a local disk: written whole, private to their owner, and locked against other processes."""

import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidegate.model.errors import EnvironmentFault, Retry

POLL_SECONDS: Final = 0.2
PRIVATE_DIRECTORY: Final = 0o700
PRIVATE_FILE: Final = 0o600


class FileLocked(EnvironmentFault):
    """Another process holds a lock that only one may hold."""

    retry = Retry.LATER


def private(path: str, flags: int) -> int:
    """Open a file, created with access for its owner alone. An opener for the built-in `open`."""
    return os.open(path, flags, PRIVATE_FILE)


@contextmanager
def locked(path: Path, *, timeout_s: float, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Lock `path` against other processes; the lock ends with its holder.

    `on_wait` is called once, if the call has to wait. Raises FileLocked after `timeout_s`.
    """
    until = time.monotonic() + timeout_s
    waiting = False
    with open(path, "a", opener=private) as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    on_wait()
                waiting = True
            if time.monotonic() > until:
                raise FileLocked(f"another process has held {path} for {timeout_s:.0f} s; stop it or wait for it")
            time.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)


def write_whole(
    path: Path, content: str | bytes, *, mode: int = PRIVATE_FILE, sync: bool = False, new: bool = False
) -> None:
    """Write `content` to `path` in one step: readers see the old file or the new one.

    With `sync` the content is flushed to disk first. With `new` a file that exists stays (FileExistsError)."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = private(str(part), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        part.chmod(mode)
        if new:
            os.link(part, path)
        else:
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)
