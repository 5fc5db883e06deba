"""Rows of some tables in chunks of whole transactions, table by table, for who reads many at once.

    commit order    t45 r1 | t45 r2, t47 r1 | t45 r3        one chunk: numbers 0 .. 3, transactions 0 1 1 2
                                                            t45: 0 1 3      t47: 2
A chunk ends with a transaction, behind some thousand rows or some megabytes; a larger transaction is a chunk alone.
A row that follows itself is there once.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import attrgetter, eq
from typing import Any, Final, NamedTuple

import numpy as np

from tidegate.feed.mount_columns import Records
from tidegate.kv.number import decode_int
from tidegate.model.kv_change import KvChange
from tidegate.source.tidb.log import KvLog, Span

__all__ = ["CHUNK_BYTES", "CHUNK_ROWS", "Chunk", "TableRows", "chunks"]

CHUNK_ROWS: Final = 16_384
"""Enough that the calls of a chunk cost little a row; what follows holds some copies of it."""
CHUNK_BYTES: Final = 16 << 20
_STEP: Final = 1_024
_PREFIX_BYTES: Final = 9


class TableRows(NamedTuple):
    """Rows of one physical table and their numbers in the chunk."""

    numbers: Any
    records: Records


class Chunk(NamedTuple):
    """Whole transactions; `transaction` is the number of each row's, by the row's own."""

    rows: list[KvChange]

    @property
    def transaction(self) -> Any:
        """Which transaction each row is of, counted from 0."""
        found = np.zeros(len(self.rows), np.int64)
        times = [_numbers(self.rows, name) for name in ("commit_ts", "start_ts")]
        np.cumsum(np.logical_or.reduce([time[1:] != time[:-1] for time in times]), out=found[1:])
        return found

    def tables(self) -> list[TableRows]:
        """The rows of each table. Raises KvDecodeError for a key that is none of a table."""
        keys = [row.key for row in self.rows]
        prefixes = {key[:_PREFIX_BYTES] for key in keys}
        if len(prefixes) == 1:
            return [_table(prefixes.pop(), np.arange(len(keys)), self.rows)]
        places: dict[bytes, list[int]] = {prefix: [] for prefix in prefixes}
        for number, key in enumerate(keys):
            places[key[:_PREFIX_BYTES]].append(number)
        return [
            _table(prefix, np.array(numbers), [self.rows[number] for number in numbers])
            for prefix, numbers in sorted(places.items())
        ]


def chunks(
    log: KvLog, stretch: tuple[int, int], spans: Sequence[Span], *, rows: int = CHUNK_ROWS, size: int = CHUNK_BYTES
) -> Iterator[Chunk]:
    """The rows with commit_ts in (low, high], the two of `stretch`, that lie in `spans`.

    Raises HistoryLost and DecodeError as `KvLog.rows` does."""
    found = log.rows(*stretch, spans)
    held: list[KvChange] = []
    held_bytes = 0
    while step := list(islice(found, min(_STEP, rows))):
        held += step
        held_bytes += sum(len(row.value or b"") + len(row.old_value or b"") for row in step)
        if len(held) >= rows or held_bytes >= size:
            end = _last_start(held)
            if end:
                yield Chunk(_once(held[:end]))
                held = held[end:]
                held_bytes = sum(len(row.value or b"") + len(row.old_value or b"") for row in held)
    if held:
        yield Chunk(_once(held))


def _last_start(rows: list[KvChange]) -> int:
    """Where the last transaction of some rows begins."""
    last = rows[-1].commit_ts, rows[-1].start_ts
    at = len(rows) - 1
    while at and (rows[at - 1].commit_ts, rows[at - 1].start_ts) == last:
        at -= 1
    return at


def _once(rows: list[KvChange]) -> list[KvChange]:
    """Without repetitions: equal rows follow each other."""
    keys = [row.key for row in rows]
    if not any(map(eq, keys, keys[1:])):
        return rows
    of_row = attrgetter("commit_ts", "start_ts", "key")
    return [
        row for row, before in zip(rows, [None, *rows], strict=False) if not before or of_row(row) != of_row(before)
    ]


def _table(prefix: bytes, numbers: Any, rows: list[KvChange]) -> TableRows:
    physical_id, _ = decode_int(prefix, 1)
    keys, values, old_values = zip(*[(row.key, row.value, row.old_value) for row in rows], strict=True)
    return TableRows(numbers, Records(physical_id, keys, values, old_values, _numbers(rows, "commit_ts")))


def _numbers(rows: list[KvChange], name: str) -> Any:
    return np.fromiter(map(attrgetter(name), rows), np.int64, len(rows))
