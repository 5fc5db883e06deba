"""Rows of some tables in chunks of whole transactions, table by table, for who reads many at once.

    commit order    t45 r1 | t45 r2, t47 r1 | t45 r3        one chunk: numbers 0 .. 3, transactions 0 1 1 2
                                                            t45: 0 1 3      t47: 2
A chunk ends with a transaction, behind some thousand rows or some megabytes; a larger transaction is a chunk alone.
A row that follows itself is there once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter, eq
from typing import Any, Final, NamedTuple

import numpy as np

from tidegate.feed.mount_columns import Records
from tidegate.kv.number import decode_int
from tidegate.model.kv_change import KvChange, KvOp
from tidegate.source.tidb.log import KvLog, Span, Window

__all__ = ["CHUNK_BYTES", "CHUNK_ROWS", "Chunk", "TableRows", "chunks"]

CHUNK_ROWS: Final = 16_384
"""Enough that the calls of a chunk cost little a row; what follows holds some copies of it."""
CHUNK_BYTES: Final = 16 << 20
_PREFIX_BYTES: Final = 9


class TableRows(NamedTuple):
    """Rows of one physical table and their numbers in the chunk."""

    numbers: Any
    records: Records


@dataclass(frozen=True)
class Chunk:
    """Whole transactions: rows of each physical table in commit order, tables in the order of their keys."""

    parts: Window

    def __len__(self) -> int:
        """How many rows."""
        return sum(map(len, self.parts))

    @property
    def rows(self) -> list[KvChange]:
        """All rows in commit order."""
        every = self._every
        return [every[at] for at in self._order.tolist()]

    @property
    def transaction(self) -> Any:
        """Which transaction each row is of, counted from 0, by the row's number."""
        found = np.zeros(len(self), np.int64)
        times = [time[self._order] for time in self._times]
        np.cumsum(np.logical_or.reduce([time[1:] != time[:-1] for time in times]), out=found[1:])
        return found

    def tables(self) -> list[TableRows]:
        """The rows of each table. Raises KvDecodeError for a key that is none of a table."""
        numbers = np.empty(len(self), np.int64)
        numbers[self._order] = np.arange(len(self))
        found, start = [], 0
        for rows in self.parts:
            physical_id, _ = decode_int(rows[0].key[:_PREFIX_BYTES], 1)
            end = start + len(rows)
            keys, values, old_values = ([*map(attrgetter(name), rows)] for name in ("key", "value", "old_value"))
            records = Records(physical_id, keys, values, old_values, self._times[0][start:end])
            found.append(TableRows(numbers[start:end], records))
            start = end
        return found

    @cached_property
    def _every(self) -> list[KvChange]:
        return [row for rows in self.parts for row in rows]

    @cached_property
    def _times(self) -> tuple[Any, Any]:
        return _numbers(self._every, "commit_ts"), _numbers(self._every, "start_ts")

    @cached_property
    def _order(self) -> Any:
        """Places of the rows in commit order, as `in_order` has it; equal ones are of tables that follow each other."""
        commit_ts, start_ts = self._times
        ranks = [0 if row.op is KvOp.DELETE else 1 if row.old_value is not None else 2 for row in self._every]
        return np.lexsort((np.array(ranks), start_ts, commit_ts))


def chunks(
    log: KvLog, stretch: tuple[int, int], spans: Sequence[Span], *, rows: int = CHUNK_ROWS, size: int = CHUNK_BYTES
) -> Iterator[Chunk]:
    """The rows with commit_ts in (low, high], the two of `stretch`, that lie in `spans`.

    Raises HistoryLost and DecodeError as `KvLog.windows` does."""
    held: dict[bytes, list[KvChange]] = {}
    count = held_bytes = 0
    for window in log.windows(*stretch, spans):
        for part in window:
            held.setdefault(part[0].key[:_PREFIX_BYTES], []).extend(part)
            count += len(part)
            held_bytes += _bytes(part)
        if count >= rows or held_bytes >= size:
            *whole, rest = _cut(held, rows, size)
            yield from map(_chunk, whole)
            held = rest
            count = sum(map(len, held.values()))
            held_bytes = sum(map(_bytes, held.values()))
    if held:
        yield _chunk(held)


_Parts = dict[bytes, list[KvChange]]


def _cut(held: _Parts, rows: int, size: int) -> list[_Parts]:
    """Chunks, and what is left, which may be nothing."""
    times = {prefix: _numbers(part, "commit_ts") for prefix, part in held.items()}
    sizes = np.concatenate([sum(_sizes(part)) for part in held.values()])
    every = np.concatenate(list(times.values()))
    order = np.argsort(every, kind="stable")
    every, sums = every[order], np.cumsum(sizes[order])
    found, start = [], dict.fromkeys(held, 0)
    at = 0
    while at < len(every):
        before = int(sums[at - 1]) if at else 0
        last = min(at + rows - 1, int(np.searchsorted(sums, before + size)))
        if last >= len(every):
            break
        ends = {prefix: int(np.searchsorted(time, every[last], "right")) for prefix, time in times.items()}
        found.append({prefix: part[start[prefix] : ends[prefix]] for prefix, part in held.items()})
        start, at = ends, int(np.searchsorted(every, every[last], "right"))
    found.append({prefix: part[start[prefix] :] for prefix, part in held.items()})
    return [{prefix: part for prefix, part in parts.items() if part} for parts in found]


def _chunk(parts: _Parts) -> Chunk:
    return Chunk([_once(part) for _, part in sorted(parts.items())])


def _bytes(rows: list[KvChange]) -> int:
    return sum(int(size.sum()) for size in _sizes(rows))


def _sizes(rows: list[KvChange]) -> Iterator[Any]:
    """The bytes of the rows' values, and those of the old ones."""
    for values in ([row.value or b"" for row in rows], [row.old_value or b"" for row in rows]):
        yield np.fromiter(map(len, values), np.int64, len(rows))


def _once(rows: list[KvChange]) -> list[KvChange]:
    """Without repetitions: equal rows follow each other."""
    keys = [row.key for row in rows]
    if not any(map(eq, keys, keys[1:])):
        return rows
    of_row = attrgetter("commit_ts", "start_ts", "key")
    return [
        row for row, before in zip(rows, [None, *rows], strict=False) if not before or of_row(row) != of_row(before)
    ]


def _numbers(rows: list[KvChange], name: str) -> Any:
    return np.fromiter(map(attrgetter(name), rows), np.int64, len(rows))
