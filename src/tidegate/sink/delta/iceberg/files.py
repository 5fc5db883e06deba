"""A table's Iceberg files where they lie: reading, writing, several at a time from an object store."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import obstore

from tidegate.objectstore.stores import store
from tidegate.objectstore.storing import storing
from tidegate.sink.delta.iceberg.metadata import Metadata, is_ours
from tidegate.sink.delta.iceberg.names import FOLDER, metadata_path, versions_of

REQUESTS_AT_ONCE: Final = 8
T = TypeVar("T")


def metadata_uri(uri: str, version: int) -> str:
    """Return the whole address of that metadata, as readers of Iceberg take it."""
    return f"{location_of(uri)}/{metadata_path(version)}"


@lru_cache(4_096)
def location_of(uri: str) -> str:
    """Return the address of a table as Iceberg's readers take it: with a scheme, not quoted."""
    return uri if "://" in uri else f"file://{Path(uri).resolve()}"


def projected(uri: str) -> set[int]:
    """Return the Delta versions that have a metadata file."""
    begin = f"{FOLDER}v"
    paths = (one["path"] for batch in obstore.list(store(uri), FOLDER.rstrip("/"), offset=begin) for one in batch)
    return versions_of(set(paths))


def read_metadata(uri: str, version: int) -> Metadata | None:
    """Return the metadata of a version; None if it is not there or was not written here."""
    try:
        body = get_file(uri, metadata_path(version))
    except FileNotFoundError:
        return None
    found: Metadata = msgspec.json.decode(body)
    return found if is_ours(found, version + 1, location_of(uri)) else None


def address_of(uri: str, path: str) -> str:
    """Return a data file's whole address, from its path in the log; one that is whole already stands for itself."""
    return path if "://" in path else f"{location_of(uri)}/{path}"


def inside(uri: str, address: str) -> str:
    """Return a path from the table's directory on."""
    return address.removeprefix(f"{location_of(uri)}/")


def each(uri: str, work: Callable[[T], Any], items: Sequence[T]) -> list[Any]:
    """Return what `work` gives for each item, asking a store or server for several at a time."""
    if "://" not in uri or len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(len(items), REQUESTS_AT_ONCE)) as pool:
        return list(pool.map(work, items))


class RecentFiles:
    """Files of object stores that this process wrote or read last, up to so many bytes: none of them ever changes, and
    the next commit of a table begins with them."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._files: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, uri: str, path: str, body: bytes) -> None:
        """Remember a file, and forget those that were not asked for the longest."""
        if "://" not in uri:
            return
        with self._lock:
            self._left += len(self._files.pop((uri, path), b"")) - len(body)
            self._files[uri, path] = body
            while self._left < 0:
                self._left += len(self._files.popitem(last=False)[1])

    def get(self, uri: str, path: str) -> bytes | None:
        """Return a file that is remembered."""
        with self._lock:
            if (uri, path) in self._files:
                self._files.move_to_end((uri, path))
            return self._files.get((uri, path))


RECENT: Final = RecentFiles(16 << 20)


def get_file(uri: str, path: str) -> bytes:
    """Return a file of the table."""
    body = RECENT.get(uri, path)
    if body is None:
        body = bytes(obstore.get(store(uri), path).bytes().to_bytes())
        RECENT.keep(uri, path, body)
    return body


def put_file(uri: str, path: str, body: bytes) -> None:
    """Write a file of the table. SinkError for what the store says."""
    with storing(uri):
        obstore.put(store(uri), path, body)
    RECENT.keep(uri, path, body)
