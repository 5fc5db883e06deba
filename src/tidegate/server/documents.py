"""Versioned documents by name, replaced only if unchanged since they were read: a store that two servers can share.

    read(name)               body, version                    None if there is none
    write(name, body, v)     the new version                  Changed if another writer was faster; v None: create it
    remove(name)

    a directory      one SQLite file, servers of one machine; a version is a number
    s3://, gs://     an object each; a version is its ETag (put If-Match, If-None-Match)

A server that resumes after a long pause holds outdated versions, so none of its writes takes effect.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from tidegate.model.errors import EnvironmentFault, Retry
from tidegate.model.kept_state import StateKind, decode_state, encode_state
from tidegate.objectstore.local_files import PRIVATE_DIRECTORY, PRIVATE_FILE
from tidegate.objectstore.stores import (
    STORE_ERRORS,
    Changed,
    Versioned,
    VersionedFile,
    check_store,
    delete,
    first_line,
    listed,
)

FILE: Final = "server.db"
VERSION: Final = "version.json"
"""Name of the document that states the version of all documents."""
BUSY_S: Final = 10.0
_TABLE: Final = (
    "create table if not exists documents (name text primary key, version integer not null, body blob not null)"
)


class StoreAway(EnvironmentFault):
    """The server's store does not answer."""

    code = "CDC:ErrMetaOpFailed"
    retry = Retry.LATER


class Documents(Protocol):
    """A store of named documents. Every method raises StoreAway if the store does not answer."""

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with `prefix`, sorted."""

    def read(self, name: str) -> Versioned | None:
        """Return a document, or None."""

    def write(self, name: str, body: bytes, version: Any = None) -> Any:
        """Replace the document of that `version`, or create it; return its new version. Raises Changed."""

    def remove(self, name: str) -> None:
        """Remove a document, if it exists."""


class SqliteDocuments:
    """Documents in an SQLite file of a directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        self._file = directory / FILE
        self._file.touch(PRIVATE_FILE)
        self._lock = threading.Lock()
        with _answering(), closing(self._connect()) as connection:
            connection.execute("pragma journal_mode=wal")
            connection.execute(_TABLE)
        self._sql = self._connect()

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._file, timeout=BUSY_S, isolation_level=None, check_same_thread=False)

    def names(self, prefix: str) -> list[str]:
        rows = self._do("select name from documents where substr(name, 1, ?) = ? order by name", len(prefix), prefix)
        return [name for (name,) in rows]

    def read(self, name: str) -> Versioned | None:
        rows = self._do("select body, version from documents where name = ?", name)
        return Versioned(*rows[0]) if rows else None

    def write(self, name: str, body: bytes, version: Any = None) -> Any:
        if version is None:
            insert = "insert into documents values (?, 1, ?) on conflict do nothing returning version"
            rows = self._do(insert, name, body)
        else:
            update = (
                "update documents set body = ?, version = version + 1 where name = ? and version = ? returning version"
            )
            rows = self._do(update, body, name, version)
        if not rows:
            raise Changed(f"{self._file}: {name} was written by another server")
        return rows[0][0]

    def remove(self, name: str) -> None:
        self._do("delete from documents where name = ?", name)

    def _do(self, statement: str, *values: object) -> list[Any]:
        with _answering(), self._lock:
            return self._sql.execute(statement, values).fetchall()


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreAway(f"the server's {FILE}: {error}") from error


class StoreDocuments:
    """Documents as objects below a store's address."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        check_store(uri, overwrites=True)

    def names(self, prefix: str) -> list[str]:
        with self._answering():
            # A store lists by whole parts of a path.
            paths = [entry["path"] for entry in listed(self._uri, prefix.rpartition("/")[0] or None)]
        return sorted(name for name in paths if name.startswith(prefix))

    def read(self, name: str) -> Versioned | None:
        with self._answering():
            return VersionedFile(self._uri, name).read()

    def write(self, name: str, body: bytes, version: Any = None) -> Any:
        with self._answering():
            return VersionedFile(self._uri, name).write(body, version=version)

    def remove(self, name: str) -> None:
        with self._answering():
            delete(self._uri, [name])

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except STORE_ERRORS as error:
            raise StoreAway(f"the server's store {self._uri}: {first_line(error)}") from error


def check_version(documents: Documents, location: str) -> None:
    """Check the version of a server's state, or write it where there is none. Raises StateTooNew, StoreAway."""
    document = documents.read(VERSION)
    if document is not None:
        decode_state(StateKind.SERVER, document.body, _Marked, f"{location} ({VERSION})")
        return
    with suppress(Changed):
        documents.write(VERSION, encode_state(StateKind.SERVER, _Marked()))


class _Marked(msgspec.Struct):
    """A document with no fields but its version."""


def documents_in(location: str) -> Documents:
    """Return the documents of a directory or of an object store's prefix. Raises StoreAway, and SinkRefused for a store
    that lets two writers win."""
    return StoreDocuments(location) if "://" in location else SqliteDocuments(Path(location))
