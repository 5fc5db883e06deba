"""Reading at a timestamp, past the locks of the dead.

    get / scan ── KeyLocked? ── ask at the primary ──┬─ committed, rolled back: finish the key, read again
                                                     └─ alive: KeyLocked goes to the caller, who may try again

A reader that meets a lock cannot tell what it would read until the lock's transaction is decided.  Most locks that
readers meet belong to transactions that are decided, whose client died before it told all keys.

Source: client-go's snapshot and lock resolver.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from tidegate.model.errors import KeyLocked
from tidegate_upstream.tidb.store.mvcc import Alive, Store
from tidegate_upstream.tidb.tso import Oracle

SCAN_KEYS: Final = 256
"""Keys that one call of the store gives: the store is locked that long (TiDB's scan batch)."""

T = TypeVar("T")


def settle(store: Store, oracle: Oracle, locked: KeyLocked) -> bool:
    """Finish the lock that was met; False if its transaction still lives."""
    with store.guard:
        status = store.check_status(locked.primary, locked.lock_ts, oracle.next())
        if isinstance(status, Alive):
            return False
        store.finish(locked.key, locked.lock_ts, status)
    return True


def settle_dead(store: Store, oracle: Oracle) -> int:
    """Finish the locks whose transactions are decided or dead, which nobody may ever read past; how many.

    TiCDC does so where its frontier stands still: a lock holds the resolved ts below it."""
    found = [KeyLocked(key, lock.primary, lock.start_ts, lock.ttl_ms) for key, lock in store.locks()]
    return sum(settle(store, oracle, locked) for locked in found)


class StoreSnapshot:
    """The store at `ts`; a ts beyond the oracle's newest would not stay the same, and is our own bug."""

    def __init__(self, store: Store, oracle: Oracle, ts: int) -> None:
        assert ts <= oracle.newest, (ts, oracle.newest)
        self.store, self.oracle, self.ts = store, oracle, ts

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key. Raises KeyLocked, HistoryCollected."""
        return self._past_locks(lambda: self.store.get(key, self.ts))

    def scan(self, start: bytes, end: bytes = b"", *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Return keys of [start, end) with values, in order or backwards; an empty `end` is no bound."""
        while True:
            page = self._page(start, end, reverse=reverse)
            yield from page
            if len(page) < SCAN_KEYS:
                return
            last = page[-1][0]
            if reverse and not last:
                return
            start, end = (start, last) if reverse else (last + b"\0", end)

    def _page(self, start: bytes, end: bytes, *, reverse: bool) -> list[tuple[bytes, bytes]]:
        return self._past_locks(lambda: self.store.scan(start, end, self.ts, limit=SCAN_KEYS, reverse=reverse))

    def _past_locks(self, read: Callable[[], T]) -> T:
        while True:
            try:
                return read()
            except KeyLocked as locked:
                if not settle(self.store, self.oracle, locked):
                    raise
