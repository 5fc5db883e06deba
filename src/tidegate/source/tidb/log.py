"""What this floor needs of a change log: how far it reaches, what lies in it, and rows by span and time.

    low                                                    high
     ├── part ──┼──────── part ────────┼── part ─┤   →   the next part is still being written
      t45  3 rows   t45 900, t47 12       nothing

A log is divided at timestamps.  A part is whole or not there, so `high` of the last one is the frontier: nothing at or
below it is still to come.  What a part holds is told without reading its rows.  A log is pickled into every task.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from tidegate.model.kv_change import KvChange

__all__ = ["KvLog", "LogPart", "Span", "Stored"]

Span: TypeAlias = tuple[bytes, bytes]
"""Keys in [start, end)."""


class Stored(NamedTuple):
    """How many rows and index entries of one table lie somewhere in a part; `table_id` is that of their keys, their
    commit_ts go from `first_ts` to `last_ts`."""

    table_id: int
    rows: int
    first_ts: int
    last_ts: int


class LogPart(NamedTuple):
    """A part of a log: what it holds of commit_ts in (low, high]."""

    low: int
    high: int
    stored: tuple[Stored, ...]


class KvLog(Protocol):
    """A log of committed keys."""

    def parts(self, low: int, high: int | None = None) -> Sequence[LogPart]:
        """The parts that meet (low, high], in the order of time; without `high`, up to the last one."""

    def rows(self, low: int, high: int, spans: Sequence[Span]) -> Iterator[KvChange]:
        """Rows with commit_ts in (low, high] and keys in one of `spans`, which do not overlap, in commit order.

        Raises HistoryLost when the log does not cover (low, high]."""
