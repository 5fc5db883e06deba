"""Numbers that TiDB gives to rows: AUTO_INCREMENT, the hidden _tidb_rowid, AUTO_RANDOM.

    meta key                          last number that anybody may have taken
    DB:<schema>  TID:<table>          hidden row numbers, and AUTO_INCREMENT with them
                 IID:<table>          AUTO_INCREMENT alone, of tables with AUTO_ID_CACHE 1
                 TARID:<table>        AUTO_RANDOM, without its shard

    next(3)      |####......|         a node takes a batch of STEP numbers in a small transaction of its own, and hands
                 cached      end      them out from memory; what a dead node did not use is never used
    rebase(50)   an explicit number moves the counter: numbers given later are larger

A counter begins with its table: an old transaction gets no number for a table that is gone, whose counter would begin
anew, below numbers that a RECOVER brings back.

    AUTO_RANDOM(5) BIGINT             sign | 5 bits of shard | 58 bits of counter           shard: by the transaction
    SHARD_ROW_ID_BITS = 2             sign | 2 bits of shard | 61 bits of counter

Source: TiDB pkg/meta/autoid (autoid.go: alloc4Signed, rebase4Signed, ShardIDFormat).
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from threading import Lock
from typing import Final, TypeVar

from tidegate.kv.meta_key import hash_key
from tidegate.model.errors import SqlRefused, WriteConflict
from tidegate.mysql.number import MAX_INT, MAX_UINT
from tidegate.schema.stored.meta import table_key
from tidegate_upstream.tidb.transaction import Storage, Transaction

STEP: Final = 30_000
"""Numbers that a node takes at once where AUTO_ID_CACHE does not say otherwise."""
_EXHAUSTED: Final = 1467
_T = TypeVar("_T")


class CounterKind(Enum):
    """The counters of a table, by the prefix of their meta field."""

    ROW = "TID"
    INCREMENT = "IID"
    RANDOM = "TARID"


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter: `limit` is the largest number it may give, `step` the size of a batch.

    `schema_id` is the database below which the counter lies, `table_schema_id` that of the table, which has to be there
    for new numbers; 0 asks for no table."""

    schema_id: int
    table_id: int
    kind: CounterKind = CounterKind.ROW
    step: int = STEP
    limit: int = MAX_INT
    table_schema_id: int = 0

    @property
    def key(self) -> bytes:
        """Where it is kept."""
        return hash_key(f"DB:{self.schema_id}", f"{self.kind.value}:{self.table_id}")


class StoredAutoIds:
    """Counters in the meta keys of a storage; one per node, safe to share between its sessions."""

    def __init__(self, storage: Storage) -> None:
        self._storage, self._lock = storage, Lock()
        self._held: dict[bytes, tuple[int, int]] = {}

    def next(self, counter: Counter, count: int) -> int:
        """Return the first of `count` numbers in a row; SqlRefused 1467 when there are no more, 1146 without its
        table."""
        with self._lock:
            last, end = self._held.get(counter.key, (0, 0))
            if last + count > end:
                last, end = self._changed(lambda t: _taken(t, counter, count))
            if last + count > counter.limit:
                raise SqlRefused(_EXHAUSTED, "Failed to read auto-increment value from storage engine")
            self._held[counter.key] = (last + count, end)
            return last + 1

    def rebase(self, counter: Counter, number: int) -> None:
        """Make later numbers larger than `number`; SqlRefused 1146 without its table."""
        with self._lock:
            last, end = self._held.get(counter.key, (0, 0))
            if number <= last:
                return
            if number > end:
                last, end = self._changed(lambda t: _rebased(t, counter, number))
            self._held[counter.key] = (max(last, number), end)

    def forget(self) -> None:
        """Drops the batches in memory, as a node does that starts anew or whose counters were set."""
        with self._lock:
            self._held.clear()

    def _changed(self, change: Callable[[Transaction], _T]) -> _T:
        """What one small transaction gives, begun anew when others were faster. Raises KeyLocked while one lives."""
        while True:
            transaction = self._storage.begin()
            try:
                found = change(transaction)
                transaction.commit()
            except WriteConflict:
                continue
            return found


def _stored(transaction: Transaction, counter: Counter) -> int:
    home = counter.table_schema_id
    if home and transaction.get(table_key(home, counter.table_id)) is None:
        raise SqlRefused(1146, f"Table {counter.table_id} doesn't exist", "42S02")
    return int(transaction.get(counter.key) or b"0")


def _taken(transaction: Transaction, counter: Counter, count: int) -> tuple[int, int]:
    last = _stored(transaction, counter)
    end = min(last + max(counter.step, count), MAX_UINT if counter.limit > MAX_INT else MAX_INT)
    transaction.put(counter.key, b"%d" % end)
    return last, end


def _rebased(transaction: Transaction, counter: Counter, number: int) -> tuple[int, int]:
    last = max(_stored(transaction, counter), number)
    limit = MAX_UINT if counter.limit > MAX_INT else MAX_INT
    end = min(limit - counter.step, last) + counter.step
    transaction.put(counter.key, b"%d" % end)
    return last, end


def sharded(number: int, shard_bits: int, start_ts: int, *, signed: bool = True, range_bits: int = 64) -> int:
    """`number` with a shard above it that all rows of the transaction share; SqlRefused 1467 when they overlap."""
    if shard_bits == 0:
        return number
    low = range_bits - shard_bits - (1 if signed else 0)
    if number >> low:
        raise SqlRefused(_EXHAUSTED, "Failed to read auto-increment value from storage engine")
    shard = zlib.crc32(start_ts.to_bytes(8, "big")) & ((1 << shard_bits) - 1)
    return shard << low | number
