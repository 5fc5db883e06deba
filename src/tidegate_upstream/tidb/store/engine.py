"""The port below the MVCC store: four ordered maps of bytes that change together or not at all.

    LOCK     memcomparable(key)                    who is about to write the key
    WRITE    memcomparable(key) ~commit_ts         what was committed when, newest first
    DATA     memcomparable(key) ~start_ts          values too long for the other two
    META     name                                  the oracle's bound, the GC safe point

`write` is atomic, and durable before it returns where the engine is durable at all.  Calls are safe between threads,
each by itself: the oracle saves its bound while others are in the store.  A scan that somebody still iterates survives
writes in between: it goes on behind the last key that it gave, in the state of then.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from enum import StrEnum
from threading import RLock
from typing import Protocol, TypeAlias


class ColumnFamily(StrEnum):
    """Percolator's columns, and one for what is not a key of anybody."""

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
        """All of the edits or none; a later edit of the same key wins."""
        ...

    def close(self) -> None:
        """Let go of files; the engine is not used afterwards."""
        ...


class MemoryEngine:
    """An engine that forgets everything at its end: a sorted list of keys and a dict for each column."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._keys: dict[ColumnFamily, list[bytes]] = {column: [] for column in ColumnFamily}
        self._values: dict[ColumnFamily, dict[bytes, bytes]] = {column: {} for column in ColumnFamily}

    def get(self, column: ColumnFamily, key: bytes) -> bytes | None:
        """Return the value of a key."""
        return self._values[column].get(key)

    def scan(
        self, column: ColumnFamily, start: bytes, end: bytes = b"", *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return keys in [start, end), each found anew by its predecessor."""
        keys, values = self._keys[column], self._values[column]
        low, high = start, end
        while True:
            if reverse:
                at = (bisect_left(keys, high) if high else len(keys)) - 1
                if at < 0 or keys[at] < low:
                    return
                high = key = keys[at]
            else:
                at = bisect_left(keys, low)
                if at == len(keys) or (high and keys[at] >= high):
                    return
                key = keys[at]
                low = key + b"\0"
            yield key, values[key]
            if reverse and not key:
                return

    def write(self, edits: Sequence[Edit]) -> None:
        """Apply the edits; nothing here can fail half way."""
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
        """Nothing to let go of."""


class MetaBound:
    """The oracle's bound, kept in the engine beside the data that its timestamps are in."""

    _KEY = b"tso/bound_ms"

    def __init__(self, engine: KvEngine) -> None:
        self._engine = engine

    def load(self) -> int:
        """Return the saved bound in ms, 0 in a new store."""
        return int(self._engine.get(ColumnFamily.META, self._KEY) or b"0")

    def save(self, bound_ms: int) -> None:
        """Write the bound as decimal text; durable when this returns."""
        self._engine.write([(ColumnFamily.META, self._KEY, b"%d" % bound_ms)])
