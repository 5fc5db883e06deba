"""Rows of some tables in chunks of whole transactions, table by table, for readers of many rows at once.

    commit order    t45 r1 | t45 r2, t47 r1 | t45 r3        one chunk: numbers 0 .. 3, transactions 0 1 1 2
                                                            t45: 0 1 3      t47: 2
A chunk ends with a transaction, behind some thousand rows or some megabytes; a larger transaction is a chunk alone.
A row that follows itself is there once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.engine.mount_columns import Records
from tidegate.kv.change_columns import changes_of, joined, numbers
from tidegate.model.kv_change import KvChange, KvOp
from tidegate.mysql.encoding import decode_int
from tidegate.source.tidb.log import KvLog, Span, Window

CHUNK_ROWS: Final = 16_384
"""Enough that the calls of a chunk cost little a row; what follows holds some copies of it."""
CHUNK_BYTES: Final = 16 << 20
_PREFIX_BYTES: Final = 9


class PhysicalRows(NamedTuple):
    """Rows of one physical table (a record batch, kv/change_columns.py) and their numbers in the chunk."""

    numbers: Any
    rows: Any

    @property
    def records(self) -> Records:
        """The rows as the mounter takes them. Raises KvDecodeError for a key that is none of a table."""
        physical_id, _ = decode_int(_prefix(self.rows), 1)
        keys, values, old_values = (self.rows.column(name) for name in ("key", "value", "old_value"))
        times = (numbers(self.rows, name) for name in ("commit_ts", "start_ts"))
        return Records(physical_id, keys, values, old_values, *times)


@dataclass(frozen=True)
class LogChunk:
    """Whole transactions: rows of each physical table in commit order, tables in the order of their keys."""

    parts: Window

    def __len__(self) -> int:
        """How many rows."""
        return sum(map(len, self.parts))

    @property
    def rows(self) -> list[KvChange]:
        """All rows in commit order."""
        return [row for _, row in numbered(self.tables())]

    @property
    def transaction(self) -> Any:
        """Which transaction each row is of, counted from 0, by the row's number."""
        found = np.zeros(len(self), np.int64)
        times = [self._numbers(name)[self._order] for name in ("commit_ts", "start_ts")]
        np.cumsum(np.logical_or.reduce([time[1:] != time[:-1] for time in times]), out=found[1:])
        return found

    def tables(self) -> list[PhysicalRows]:
        """Return the rows of each physical table."""
        place = np.empty(len(self), np.int64)
        place[self._order] = np.arange(len(self))
        found, start = [], 0
        for part in self.parts:
            found.append(PhysicalRows(place[start : start + len(part)], part))
            start += len(part)
        return found

    @cached_property
    def _order(self) -> Any:
        """Places of the rows in commit order, as `in_order` has it; equal ones are of tables that follow each other."""
        has_old = np.concatenate([part.column("old_value").is_valid() for part in self.parts])
        ranks = np.where(self._numbers("op") == KvOp.DELETE, 0, np.where(has_old, 1, 2))
        return np.lexsort((ranks, self._numbers("start_ts"), self._numbers("commit_ts")))

    def _numbers(self, name: str) -> Any:
        return np.concatenate([numbers(part, name) for part in self.parts])


def numbered(tables: Sequence[PhysicalRows]) -> list[tuple[int, KvChange]]:
    """Return the rows of some tables of a chunk in commit order, each with its number."""
    every = (zip(table.numbers.tolist(), changes_of(table.rows), strict=True) for table in tables)
    return sorted(chain.from_iterable(every), key=itemgetter(0))


def chunks(
    log: KvLog, stretch: tuple[int, int], spans: Sequence[Span], *, rows: int = CHUNK_ROWS, size: int = CHUNK_BYTES
) -> Iterator[LogChunk]:
    """Return the rows with commit_ts in (low, high], the two of `stretch`, that lie in `spans`.

    Raises HistoryLost and DecodeError as `KvLog.windows` does."""
    held: dict[bytes, list[Any]] = {}
    count = held_bytes = 0
    for window in log.windows(*stretch, spans):
        for part in window:
            held.setdefault(_prefix(part), []).append(part)
            count += len(part)
            held_bytes += int(_sizes(part).sum())
        if count >= rows or held_bytes >= size:
            *whole, rest = _cut({prefix: joined(parts) for prefix, parts in held.items()}, rows, size)
            yield from map(_chunk, whole)
            held = {prefix: [part] for prefix, part in rest.items()}
            count = sum(map(len, rest.values()))
            held_bytes = sum(int(_sizes(part).sum()) for part in rest.values())
    if held:
        yield _chunk({prefix: joined(parts) for prefix, parts in held.items()})


_Parts: TypeAlias = dict[bytes, Any]
"""Rows of tables, by the first bytes of their keys."""


def _cut(held: _Parts, rows: int, size: int) -> list[_Parts]:
    """Chunks, and what is left, which may be nothing."""
    times = {prefix: numbers(part, "commit_ts") for prefix, part in held.items()}
    every = np.concatenate(list(times.values()))
    order = np.argsort(every, kind="stable")
    every, sums = every[order], np.cumsum(np.concatenate([_sizes(part) for part in held.values()])[order])
    found, start, at = [], dict.fromkeys(held, 0), 0
    while at < len(every):
        before = int(sums[at - 1]) if at else 0
        last = min(at + rows - 1, int(np.searchsorted(sums, before + size)))
        if last >= len(every):
            break
        ends = {prefix: int(np.searchsorted(time, every[last], "right")) for prefix, time in times.items()}
        found.append({prefix: part.slice(start[prefix], ends[prefix] - start[prefix]) for prefix, part in held.items()})
        start, at = ends, int(np.searchsorted(every, every[last], "right"))
    found.append({prefix: part.slice(start[prefix]) for prefix, part in held.items()})
    return [{prefix: part for prefix, part in parts.items() if len(part)} for parts in found]


def _chunk(parts: _Parts) -> LogChunk:
    return LogChunk([_once(part) for _, part in sorted(parts.items())])


def _prefix(part: Any) -> bytes:
    found: bytes = part.column("key")[0].as_py()[:_PREFIX_BYTES]
    return found


def _sizes(part: Any) -> Any:
    """The bytes of each row's value and old value."""
    lengths = (pc.binary_length(part.column(name)).fill_null(0) for name in ("value", "old_value"))
    return sum(length.to_numpy().astype(np.int64) for length in lengths)


def _once(part: Any) -> Any:
    """Without repetitions: equal rows follow each other."""
    again = np.zeros(len(part), np.bool_)
    keys = part.column("key")
    again[1:] = pc.equal(keys.slice(1), keys.slice(0, len(part) - 1))
    if not again.any():
        return part
    for name in ("commit_ts", "start_ts"):
        again[1:] &= np.diff(numbers(part, name)) == 0
    return part.filter(pa.array(~again)) if again.any() else part
