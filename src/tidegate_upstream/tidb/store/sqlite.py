"""A durable engine: one SQLite file in a directory, one table a column of the store.

    <directory>/store.db        CREATE TABLE lock (k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID, ... write, data, meta
    <directory>/store.db-wal    what was committed since the last checkpoint

A batch is one SQLite transaction in WAL mode with synchronous=FULL, so a process or a machine that dies leaves all of
a batch or none.  `locking_mode=EXCLUSIVE` keeps a second process out: two oracles over one store would give the same
timestamp twice.  SQLite compares BLOBs byte by byte, which is the order that memcomparable keys are made for.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Final

from tidegate.model.errors import StoreUnavailable
from tidegate_upstream.tidb.store.engine import ColumnFamily, Edit

FIRST_PAGE: Final = 4
LAST_PAGE: Final = 512
"""A scan reads in pages of 4, 32, 256, 512 keys: a point read wants one version, a table scan all of them."""

_PRAGMAS: Final = ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL", "cache_size=-16384")


class SqliteEngine:
    """Ordered maps in `directory`, which is made if it is missing. Raises StoreUnavailable when that cannot be used."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "store.db"
        self._lock = RLock()
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
        except OSError as error:
            raise StoreUnavailable(f"the store {directory} cannot be made: {error}") from error
        with self._wrapped():
            self._sql = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=0)
            for pragma in _PRAGMAS:
                self._sql.execute(f"PRAGMA {pragma}")
            self._sql.execute("BEGIN IMMEDIATE")
            for column in ColumnFamily:
                self._sql.execute(f'CREATE TABLE IF NOT EXISTS "{column}" (k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID')
            self._sql.execute("COMMIT")

    def get(self, column: ColumnFamily, key: bytes) -> bytes | None:
        """Return the value of a key."""
        with self._wrapped():
            row = self._sql.execute(f'SELECT v FROM "{column}" WHERE k = ?', (key,)).fetchone()  # noqa: S608
        return None if row is None else bytes(row[0])

    def scan(
        self, column: ColumnFamily, start: bytes, end: bytes = b"", *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return keys in [start, end), page by page, so that no cursor stays open while somebody writes."""
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
        """One transaction; durable when this returns."""
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
        """Fold the log into the file and let go of it."""
        with self._wrapped():
            self._sql.close()

    @contextmanager
    def _wrapped(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except sqlite3.Error as error:
            raise StoreUnavailable(
                f"the store {self._path} cannot be used: {error}; look for another process that has it, or at the disk"
            ) from error


@cache
def _page_sql(column: ColumnFamily, *, bounded: bool, reverse: bool) -> str:
    """A page of a scan; the bound stands in the query only when there is one, so that SQLite seeks to it."""
    below, order = (" AND k < ?" if bounded else ""), ("DESC" if reverse else "ASC")
    return f'SELECT k, v FROM "{column}" WHERE k >= ?{below} ORDER BY k {order} LIMIT ?'  # noqa: S608
