"""Files of an object store with the part of `Path` that a change log uses, so that one code reads logs of both.

    location("/srv/log")              Path
    location("s3://lakes/log")        StorePath; its files: location(..) / "feeds" / "shop.json"

    iterdir    LIST, one request per 1,000 names          write(new=True)    PUT that fails if the file exists
    open       GET of the last 64 KiB                     unlinked           DELETE, one request per 500 files

`numbered` is for a folder that is appended to, whose files have numbers for names.  Within a process it is listed once
a minute as a whole, and meanwhile at most once a second for what sorts behind the last name.

`ahead` does requests side by side, as a store takes many milliseconds for each.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeAlias, TypeVar

import obstore

from tidegate.model.errors import SourceError
from tidegate.objectstore.stores import STORE_ERRORS, VersionedFile, delete, first_line, listed, opened, writable
from tidegate.objectstore.threads import ContextPool

LIST_S, WHOLE_S = 1.0, 60.0
AT_ONCE: Final = 16
"""Requests side by side."""
AHEAD_BYTES: Final = 64 << 20
"""Size of the files that are read ahead, beside the first."""
T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def _answering(path: "StorePath") -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except STORE_ERRORS as error:
        raise SourceError(f"{path}: {first_line(error)}") from error


@dataclass(frozen=True, order=True, slots=True)
class StorePath:
    """The file at `path` below the address `uri`, or the folder there. Raises SourceError where the store does not
    answer, FileNotFoundError for a missing file."""

    uri: str
    path: str = ""
    size_bytes: int = field(default=0, compare=False)
    """The size with which it was listed or written."""

    def __str__(self) -> str:
        return f"{self.uri}/{self.path}".rstrip("/")

    def __truediv__(self, name: str) -> "StorePath":
        return StorePath(self.uri, f"{self.path}/{name}".lstrip("/"))

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def iterdir(self, after: str = "") -> Iterator["StorePath"]:
        """Return the files in the folder whose names sort after `after`."""
        folder = f"{self.path}/".lstrip("/")
        with _answering(self):
            for entry in listed(self.uri, self.path or None, offset=f"{folder}{after}" if after else None):
                if "/" not in entry["path"].removeprefix(folder):
                    yield StorePath(self.uri, entry["path"], entry["size"])

    def glob(self, pattern: str) -> Iterator["StorePath"]:
        """Return the files in the folder whose names end as `*END` says."""
        return (path for path in self.iterdir() if path.name.endswith(pattern[1:]))

    @contextmanager
    def open(self, _mode: str = "rb") -> Iterator[Any]:
        """Open it for reading: `read`, `seek`, and `ranges`, which reads several at once."""
        with _answering(self), opened(self.uri, self.path) as file:
            yield file

    def read_bytes(self) -> bytes:
        """Return the content."""
        with self.open() as file:
            return bytes(file.read())

    def write(self, data: bytes, *, new: bool = False) -> "StorePath":
        """Replace the content, and return the file with its size. With `new` a file that exists stays, unless it has
        that content: Changed."""
        with _answering(self):
            if new:
                VersionedFile(self.uri, self.path).write(data)
            else:
                obstore.put(writable(self.uri), self.path, data, use_multipart=False)
        return StorePath(self.uri, self.path, len(data))


Location: TypeAlias = Path | StorePath
"""A directory or a folder of an object store, or a file in it."""


def location(text: str) -> Location:
    """Return the location that a path, or the address of an object store, names."""
    return StorePath(text) if "://" in text else Path(text).resolve()


def size_of(path: Location) -> int:
    """Return the size of a file in bytes."""
    return path.size_bytes if isinstance(path, StorePath) else path.stat().st_size


def unlinked(paths: Sequence[Location]) -> None:
    """Delete files, in order; those that are gone already are no error."""
    for path in paths:
        if isinstance(path, Path):
            path.unlink(missing_ok=True)
    if stored := [path for path in paths if isinstance(path, StorePath)]:
        with _answering(stored[0]):
            delete(stored[0].uri, [path.path for path in stored])


@dataclass(slots=True)
class _Listing:
    lock: Lock = field(default_factory=Lock)
    files: list[StorePath] = field(default_factory=list)
    whole_s: float = -WHOLE_S
    last_s: float = -WHOLE_S


_LISTINGS: Final = defaultdict[StorePath, _Listing](_Listing)


def numbered(folder: StorePath, *, fresh: bool = False) -> list[StorePath]:
    """Return the files whose names begin with a digit, in order, as they were at most LIST_S ago, or, with `fresh`, as
    they are."""
    listing, now_s = _LISTINGS[folder], time.monotonic()
    with listing.lock:
        late = now_s - listing.last_s >= LIST_S
        whole = fresh or (late and (now_s - listing.whole_s >= WHOLE_S or not listing.files))
        if whole or late:
            newer = folder.iterdir("" if whole else listing.files[-1].name)
            listing.files = [
                *([] if whole else listing.files),
                *sorted(path for path in newer if "0" <= path.name < ":"),
            ]
            listing.last_s, listing.whole_s = now_s, now_s if whole else listing.whole_s
        return listing.files


def ahead(do: Callable[[T], R], items: Sequence[T], size: Callable[[T], int] = lambda _: 0) -> Iterator[R]:
    """Return what `do` makes of each item, in order, doing some side by side: AT_ONCE, of AHEAD_BYTES by `size`."""
    waiting = deque[tuple[int, Future[R]]]()
    with ContextPool(AT_ONCE, "tidegate-log") as pool:
        for item in items:
            waiting.append((size(item), pool.submit(do, item)))
            while len(waiting) > AT_ONCE or sum(each for each, _ in waiting) > AHEAD_BYTES:
                yield waiting.popleft()[1].result()
        while waiting:
            yield waiting.popleft()[1].result()
