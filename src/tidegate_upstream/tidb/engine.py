"""The storage engine below the MVCC store: four ordered maps of bytes with atomic batches, in memory or in SQLite.

    LOCK     memcomparable(key)                    the lock of the transaction that is writing the key
    WRITE    memcomparable(key) ~commit_ts         committed versions, newest first
    DATA     memcomparable(key) ~start_ts          values too long for the other two
    META     name                                  the oracle's bound, the GC safe point

`write` is atomic, and durable before it returns if the engine is durable at all.  Each call is thread-safe: the oracle
saves its bound while others use the store.  A scan survives writes made while it is iterated: it continues after the
last key that it returned, in the then current state.

    <directory>/store.db        CREATE TABLE lock (k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID, ... write, data, meta
    <directory>/store.db-wal    commits since the last checkpoint

In SQLite a batch is one transaction in WAL mode with synchronous=FULL, so after a crash of the process or the machine
all of it is there or none.  `locking_mode=EXCLUSIVE` keeps a second process out: two oracles over one store would
return the same timestamp twice.  SQLite compares BLOBs byte by byte, which is the order of memcomparable keys.
"""

import sqlite3
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Final, Protocol, TypeAlias

from tidegate.model.errors import StateTooNew, StoreUnavailable
from tidegate.model.kept_state import StateKind, check_version


class ColumnFamily(StrEnum):
    """Percolator's column families, and one for other data."""

    LOCK = "lock"
    WRITE = "write"
    DATA = "data"
    META = "meta"


Edit: TypeAlias = tuple[ColumnFamily, bytes, bytes | None]
"""A key and its new value; None removes the key."""


class KvEngine(Protocol):
    """Ordered maps with atomic batches."""

    def get(self, column: ColumnFamily, key: bytes) -> bytes | None:
        """Return the value of a key."""
        ...

    def scan(
        self, column: ColumnFamily, start: bytes, end: bytes = b"", *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return keys in [start, end) with their values, in order or backwards; an empty `end` is no bound."""
        ...

    def write(self, edits: Sequence[Edit]) -> None:
        """Write all edits or none; a later edit of the same key wins."""
        ...

    def close(self) -> None:
        """Close the files; the engine must not be used afterwards."""
        ...


class MemoryEngine:
    """An in-memory engine: a sorted list of keys and a dict for each column family."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._keys: dict[ColumnFamily, list[bytes]] = {column: [] for column in ColumnFamily}
        self._values: dict[ColumnFamily, dict[bytes, bytes]] = {column: {} for column in ColumnFamily}

    def get(self, column: ColumnFamily, key: bytes) -> bytes | None:
        return self._values[column].get(key)

    def scan(
        self, column: ColumnFamily, start: bytes, end: bytes = b"", *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        keys, values = self._keys[column], self._values[column]
        low, high = start, end
        while True:
            if reverse:
                index = (bisect_left(keys, high) if high else len(keys)) - 1
                if index < 0 or keys[index] < low:
                    return
                high = key = keys[index]
            else:
                index = bisect_left(keys, low)
                if index == len(keys) or (high and keys[index] >= high):
                    return
                key = keys[index]
                low = key + b"\0"
            yield key, values[key]
            if reverse and not key:
                return

    def write(self, edits: Sequence[Edit]) -> None:
        """Apply the edits, which cannot fail half way."""
        with self._lock:
            for column, key, value in edits:
                keys, values = self._keys[column], self._values[column]
                if value is None:
                    if values.pop(key, None) is not None:
                        del keys[bisect_left(keys, key)]
                else:
                    if key not in values:
                        insort(keys, key)
                    values[key] = value

    def close(self) -> None:
        """Do nothing."""


class MetaBound:
    """The oracle's bound, stored in the engine with the data."""

    _KEY = b"tso/bound_ms"

    def __init__(self, engine: KvEngine) -> None:
        self._engine = engine

    def load(self) -> int:
        """Return the saved bound in ms, 0 in a new store."""
        return int(self._engine.get(ColumnFamily.META, self._KEY) or b"0")

    def save(self, bound_ms: int) -> None:
        """Write the bound as decimal text; durable when this returns."""
        self._engine.write([(ColumnFamily.META, self._KEY, b"%d" % bound_ms)])


FIRST_PAGE: Final = 4
LAST_PAGE: Final = 512
"""Page sizes of a scan: small first for point reads of one version, larger for table scans."""

_PRAGMAS: Final = ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL", "cache_size=-16384")


class SqliteEngine:
    """Ordered maps in `directory`, created if missing. Raises StoreUnavailable if it cannot be used,
    StateTooNew."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "store.db"
        self._lock = RLock()
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
        except OSError as error:
            raise StoreUnavailable(f"cannot create the store {directory}: {error}") from error
        with self._wrapped():
            self._sql = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=0)
            self._check()
            for pragma in _PRAGMAS:
                self._sql.execute(f"PRAGMA {pragma}")
            self._sql.execute("BEGIN IMMEDIATE")
            for column in ColumnFamily:
                self._sql.execute(f'CREATE TABLE IF NOT EXISTS "{column}" (k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID')
            self._sql.execute(f"PRAGMA user_version={StateKind.UPSTREAM.version}")
            self._sql.execute("COMMIT")

    def _check(self) -> None:
        """Raise StateTooNew for a file of a newer release; a file without a version is of the first release."""
        ((version,),) = self._sql.execute("PRAGMA user_version").fetchall()
        try:
            check_version(StateKind.UPSTREAM, version, str(self._path))
        except StateTooNew:
            self._sql.close()
            raise

    def get(self, column: ColumnFamily, key: bytes) -> bytes | None:
        with self._wrapped():
            row = self._sql.execute(f'SELECT v FROM "{column}" WHERE k = ?', (key,)).fetchone()  # noqa: S608
        return None if row is None else bytes(row[0])

    def scan(
        self, column: ColumnFamily, start: bytes, end: bytes = b"", *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        size = FIRST_PAGE
        while True:
            sql = _page_sql(column, bounded=bool(end), reverse=reverse)
            values = (start, end, size) if end else (start, size)
            with self._wrapped():
                rows = self._sql.execute(sql, values).fetchall()
            yield from rows
            if len(rows) < size:
                return
            last: bytes = rows[-1][0]
            if reverse and not last:
                return
            start, end = (start, last) if reverse else (last + b"\0", end)
            size = min(size * 8, LAST_PAGE)

    def write(self, edits: Sequence[Edit]) -> None:
        """Write all edits in one transaction, durable when this returns."""
        with self._wrapped():
            self._sql.execute("BEGIN IMMEDIATE")
            try:
                for column, key, value in edits:
                    if value is None:
                        self._sql.execute(f'DELETE FROM "{column}" WHERE k = ?', (key,))  # noqa: S608
                    else:
                        self._sql.execute(f'INSERT OR REPLACE INTO "{column}" VALUES (?, ?)', (key, value))  # noqa: S608
                self._sql.execute("COMMIT")
            except sqlite3.Error:
                if self._sql.in_transaction:
                    self._sql.execute("ROLLBACK")
                raise

    def close(self) -> None:
        with self._wrapped():
            self._sql.close()

    @contextmanager
    def _wrapped(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except sqlite3.Error as error:
            raise StoreUnavailable(
                f"the store {self._path} cannot be used: {error}; check whether another process uses it, and the disk"
            ) from error


@cache
def _page_sql(column: ColumnFamily, *, bounded: bool, reverse: bool) -> str:
    """Return the query of a page; the bound is part of it only if there is one, so that SQLite seeks to it."""
    below, order = (" AND k < ?" if bounded else ""), ("DESC" if reverse else "ASC")
    return f'SELECT k, v FROM "{column}" WHERE k >= ?{below} ORDER BY k {order} LIMIT ?'  # noqa: S608
