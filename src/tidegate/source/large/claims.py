"""Fetching claim checks: the messages too large for a topic, which TiCDC keeps as files beside it.

    location in a message ─→ its base name ─→ size asked ─→ within the limit? ─→ fetched, several side by side
                                                  │               └ no ─→ ClaimCheckUnavailable, nothing is fetched
                                                  └ no such file ─→ ClaimCheckUnavailable

The address in a message is the writer's; only its base name counts, and it is looked up in the storage that the reader
was given (codec/claim.py reads what the file holds).  No error shows either address, as both may carry the keys of an
object store.  At any time no more than IN_FLIGHT_BYTES are being fetched or wait to be taken, or one file.

A directory (file:///…, or a bare path) needs no library, every other storage fsspec.
"""

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from tidegate.codec.claim import claim_name
from tidegate.model.errors import ClaimCheckUnavailable, DecodeError, EnvironmentFault, SourceError, TidegateError

__all__ = ["IN_FLIGHT_BYTES", "WORKERS", "ClaimReader"]

WORKERS: Final = 8
"""Enough to hide an object store's answering time, few enough for its limit of requests."""
IN_FLIGHT_BYTES: Final = 64 << 20


class _Storage(Protocol):
    """Where files lie, by name."""

    def size(self, name: str) -> int:
        """Return how many bytes a file has."""

    def read(self, name: str, most: int) -> bytes:
        """Return the first `most` bytes of a file."""


class _Directory:
    def __init__(self, path: Path) -> None:
        self._path = path

    def size(self, name: str) -> int:
        return (self._path / name).stat().st_size

    def read(self, name: str, most: int) -> bytes:
        with (self._path / name).open("rb") as file:
            return file.read(most)


class _Remote:
    def __init__(self, uri: str) -> None:
        from fsspec.core import url_to_fs

        self._files: Any
        self._files, self._root = url_to_fs(uri)

    def size(self, name: str) -> int:
        return int(self._files.size(posixpath.join(self._root, name)) or 0)

    def read(self, name: str, most: int) -> bytes:
        return bytes(self._files.cat_file(posixpath.join(self._root, name), start=0, end=most))


class _Sized(NamedTuple):
    """A file that may be fetched, or why it may not."""

    name: str
    size_bytes: int
    error: TidegateError | None = None


class ClaimReader:
    """The files of one storage. A file of more than `max_bytes` is never fetched."""

    def __init__(self, storage_uri: str, max_bytes: int) -> None:
        self._uri, self._max_bytes = storage_uri, max_bytes
        self._storage: _Storage | None = None

    def bodies(self, locations: Sequence[str]) -> Iterator[bytes | TidegateError]:
        """Return the body of each claim check, in order, or why it cannot be had.

        Raises SourceError when the storage does not answer, EnvironmentFault when a library for it is missing."""
        self._storage = self._storage or self._opened()
        if len(locations) == 1:
            yield self._read(self._sized(locations[0]))
            return
        with ThreadPoolExecutor(min(WORKERS, len(locations))) as pool:
            for group in _groups(pool.map(self._sized, locations)):
                yield from pool.map(self._read, group)

    def _sized(self, location: str) -> _Sized:
        assert self._storage is not None
        try:
            name = claim_name(location)
        except DecodeError as error:
            return _Sized("", 0, error)
        try:
            size_bytes = self._storage.size(name)
        except (OSError, ValueError) as away:
            return _Sized(name, 0, _lasting(name, away))
        return _Sized(name, size_bytes, self._too_large(name, size_bytes) if size_bytes > self._max_bytes else None)

    def _read(self, file: _Sized) -> bytes | TidegateError:
        assert self._storage is not None
        if file.error is not None:
            return file.error
        try:
            body = self._storage.read(file.name, self._max_bytes + 1)
        except (OSError, ValueError) as away:
            return _lasting(file.name, away)
        return body if len(body) <= self._max_bytes else self._too_large(file.name, len(body))

    def _too_large(self, name: str, size_bytes: int) -> ClaimCheckUnavailable:
        return ClaimCheckUnavailable(
            f"{name} in the claim-check storage has {size_bytes} bytes or more, and {self._max_bytes} are allowed: "
            "raise claim-check-max-bytes (the reader needs some eight times as much memory)"
        )

    def _opened(self) -> _Storage:
        parts = urlsplit(self._uri)
        if parts.scheme in {"", "file"}:
            return _Directory(Path(unquote(parts.path)))
        try:
            return _Remote(self._uri)
        except ImportError as missing:
            raise EnvironmentFault(
                f"the claim-check storage {parts.scheme}:// needs a Python package that is not installed: {missing}"
            ) from missing
        except (OSError, ValueError) as away:
            raise _away("the claim-check storage", away) from away


def _groups(files: Iterable[_Sized]) -> Iterator[list[_Sized]]:
    """Neighbours that together have at most IN_FLIGHT_BYTES, or one file."""
    group: list[_Sized] = []
    total = 0
    for file in files:
        size_bytes = 0 if file.error else file.size_bytes
        if group and total + size_bytes > IN_FLIGHT_BYTES:
            yield group
            group, total = [], 0
        group.append(file)
        total += size_bytes
    if group:
        yield group


def _lasting(name: str, error: Exception) -> TidegateError:
    """What a file's error means; raised when it may pass."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ClaimCheckUnavailable(f"{name} is not in the claim-check storage")
    if isinstance(error, PermissionError | IsADirectoryError | ValueError):
        return ClaimCheckUnavailable(f"{name} cannot be read from the claim-check storage ({type(error).__name__})")
    raise _away(name, error) from error


def _away(what: str, error: Exception) -> SourceError:
    return SourceError(f"{what} cannot be fetched: the claim-check storage gives no answer ({type(error).__name__})")
