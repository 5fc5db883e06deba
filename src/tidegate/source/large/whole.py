"""The one reader of rows that were too large for a message, for the feed and for commands.

    row with a claim check, and a storage is given    ─→ the row that its file holds
    row with its handle key alone, or a claim check   ─→ the row that the upstream held then, when one is given
      without a storage
    neither                                           ─→ none of our business: `makes_whole` says no

Rows come and go in their order.  The reader looks WINDOW rows ahead, so that files are fetched side by side and rows of
one table and transaction are read with one statement; it fetches no more than what is taken next needs.

Fetching claim checks: the messages too large for a topic, which TiCDC keeps as files beside it.

    location in a message ─→ its base name ─→ size asked ─→ within the limit? ─→ fetched, several side by side
                                                  │               └ no ─→ ClaimCheckUnavailable, nothing is fetched
                                                  └ no such file ─→ ClaimCheckUnavailable

The address in a message is the writer's; only its base name counts, and it is looked up in the storage that the reader
was given (codec/claim.py reads what the file holds).  No error shows either address, as both may carry the keys of an
object store.  At any time no more than IN_FLIGHT_BYTES are being fetched or wait to be taken, or one file.

A directory (file:///…, or a bare path) needs no library, an object store obstore.  Of a directory only regular files
are read: a link or a pipe that somebody put there is no claim check.
"""

import errno
import os
import stat
from collections.abc import Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby, islice
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Protocol, TypeGuard
from urllib.parse import unquote, urlsplit

from tidegate.codec.claim import claim_name, open_claim
from tidegate.codec.options import DecodeOptions
from tidegate.codec.stream import decode
from tidegate.model.errors import (
    ClaimCheckUnavailable,
    DecodeError,
    EnvironmentFault,
    HistoryLost,
    SchemaError,
    SourceError,
    TidegateError,
    UpstreamRowMissing,
)
from tidegate.model.event import Ddl, Delete, Insert, Resolved, RowChange, Update
from tidegate.model.name import qualified
from tidegate.mysql import server_sql as sent
from tidegate.source.large.upstream import UpstreamRows

WORKERS: Final = 8
"""Enough to hide an object store's answering time, few enough for its limit of requests."""
IN_FLIGHT_BYTES: Final = 64 << 20


_ITSELF: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OF_THE_FILE: Final = frozenset({errno.EINVAL, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO})
"""What a name can be refused for, whenever it is asked for: it is a link, too long, a socket."""


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
        with self._opened(name) as file:
            return os.fstat(file.fileno()).st_size

    def read(self, name: str, most: int) -> bytes:
        with self._opened(name) as file:
            return file.read(most)

    def _opened(self, name: str) -> BinaryIO:
        """A file itself: not what a link leads to, and nothing that one waits for, such as a pipe."""
        file = os.open(self._path / name, _ITSELF)
        if stat.S_ISREG(os.fstat(file).st_mode):
            return os.fdopen(file, "rb")
        os.close(file)
        raise OSError(errno.EINVAL, "no regular file")


class _Remote:
    def __init__(self, uri: str) -> None:
        from obstore import get, head
        from obstore.exceptions import BaseError

        from tidegate.objectstore.stores import store

        self._get, self._head, self._refusals = get, head, BaseError
        with self._asked():
            self._store = store(uri)

    def size(self, name: str) -> int:
        with self._asked():
            return int(self._head(self._store, name)["size"])

    def read(self, name: str, most: int) -> bytes:
        body = b""
        with self._asked():
            for chunk in self._get(self._store, name):
                body += bytes(chunk)
                if len(body) >= most:
                    break
        return body[:most]

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """What a store refuses may pass, other keys for one: it is no fault of the file."""
        try:
            yield
        except self._refusals as away:
            raise ConnectionError from away


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
        pool = ThreadPoolExecutor(min(WORKERS, len(locations)))
        try:
            for group in _groups(pool.map(self._sized, locations)):
                yield from pool.map(self._read, group)
        finally:  # the collector may close this where a thread begins, under a lock that a wait for threads would take
            pool.shutdown(wait=False, cancel_futures=True)

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
        if parts.scheme in {"", "file", "local"}:
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
    of_file = isinstance(error, OSError) and error.errno in _OF_THE_FILE
    if of_file or isinstance(error, PermissionError | IsADirectoryError | ValueError):
        return ClaimCheckUnavailable(f"{name} cannot be read from the claim-check storage ({type(error).__name__})")
    raise _away(name, error) from error


def _away(what: str, error: Exception) -> SourceError:
    return SourceError(
        f"{what} cannot be fetched: the claim-check storage gives no answer ({type(error.__cause__ or error).__name__})"
    )


WINDOW: Final = 16
"""Rows that are looked at together; each may have megabytes."""
_CLAIM: Final = "claim"


class WholeRows:
    """Makes rows whole with the storage and the upstream that `options` name."""

    def __init__(self, options: DecodeOptions) -> None:
        self._options = options
        storage = options.claim_check_storage_uri
        self._claims = ClaimReader(storage, options.claim_check_max_bytes) if storage else None
        upstream = options.upstream_uri
        self._upstream = UpstreamRows(upstream, time_zone=options.time_zone, snapshot=sent.AT_TS) if upstream else None

    def makes_whole(self, event: object) -> TypeGuard[RowChange]:
        """Return whether `event` is a row that came cut down and can be looked for."""
        if not isinstance(event, Insert | Update | Delete):
            return False
        if event.claim_check is not None and self._claims is not None:
            return True
        return (event.handle_only or event.claim_check is not None) and self._upstream is not None

    def whole(self, rows: Iterable[RowChange]) -> Iterator[RowChange | TidegateError]:
        """Return each of `rows`, which `makes_whole` took, with all columns, or why it cannot be had.

        Raises what concerns more than one row: SourceError for what may pass, ConfigError, EnvironmentFault."""
        rest = iter(rows)
        while window := list(islice(rest, WINDOW)):
            for kind, run in groupby(window, self._kind):
                together = list(run)
                yield from self._fetched(together) if kind == _CLAIM else self._looked_up(together)

    def close(self) -> None:
        """End the connection to the upstream."""
        if self._upstream is not None:
            self._upstream.close()

    def _kind(self, row: RowChange) -> Hashable:
        if row.claim_check is not None and self._claims is not None:
            return _CLAIM
        return row.schema, row.table, row.commit_ts

    def _fetched(self, rows: Sequence[RowChange]) -> Iterator[RowChange | TidegateError]:
        assert self._claims is not None
        bodies = self._claims.bodies([row.claim_check or "" for row in rows])
        for row, body in zip(rows, bodies, strict=True):
            yield _named(row, body) if isinstance(body, TidegateError) else _opened(row, body, self._options)

    def _looked_up(self, rows: Sequence[RowChange]) -> Iterator[RowChange | TidegateError]:
        assert self._upstream is not None
        try:
            yield from self._upstream.whole(rows)
        except (HistoryLost, UpstreamRowMissing, SchemaError) as error:
            yield from [error] * len(rows)


def _opened(row: RowChange, body: bytes, options: DecodeOptions) -> RowChange | TidegateError:
    """The row that the file of a claim check holds."""
    try:
        events = decode(*open_claim(body, options), options)
    except DecodeError as broken:
        return DecodeError(f"{_name(row)}: in its claim check: {broken.what}", broken.codec, broken.offset)
    if len(events) == 1 and not isinstance(events[0], Ddl | Resolved) and _same(events[0], row):
        return events[0]
    return ClaimCheckUnavailable(f"{_name(row)}: its claim check holds something else")


def _same(found: RowChange, row: RowChange) -> bool:
    """An UPDATE of which no handle column changed is marked like an INSERT where only changed columns are sent."""
    alike = isinstance(found, Delete) == isinstance(row, Delete)
    return alike and (found.schema, found.table, found.commit_ts) == (row.schema, row.table, row.commit_ts)


def _named(row: RowChange, error: TidegateError) -> TidegateError:
    if isinstance(error, DecodeError):
        return DecodeError(f"{_name(row)}: {error.what}", error.codec, error.offset)
    return type(error)(f"{_name(row)}: {error}")


def _name(row: RowChange) -> str:
    return f"{qualified(row.schema, row.table)} at ts {row.commit_ts}"
