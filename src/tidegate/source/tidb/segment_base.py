"""Where a log begins above 0: the definitions of that moment, and taking away what nobody needs any more.

    trimmed   30.base │ (30, 42] │ (42, 50] │        the schema keys at 30; segments below it are gone
    begun     29.full │ (29, 30] │ (30, 42] │        on a store that was there before: all its rows as inserts at 30

    <directory>/<ts of 20 digits>.base       a segment's bytes whose rows are the keys of databases and tables at ts
    <directory>/<ts of 20 digits>.full       the same of a log that holds every row that there was

- The newest base is the begin of the log; older bases and segments below it count as gone, deleted or not.  So a trim
  writes the base first, then deletes, and may be killed anywhere.
- A base stands only where no DDL job runs: definitions are then those that finished jobs have made.
- A trim takes whole segments, and never the last one.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tidegate.kv.keys import decode_meta_key, table_span
from tidegate.model.kv_change import KvChange, KvOp
from tidegate.schema.job import JOB_TABLE
from tidegate.schema.stored.meta import Meta
from tidegate.schema.stored.snapshot import StoredSnapshot, load_all
from tidegate.source.tidb.segment import Span, decode_segment, encode_segment, publish, read_spans, segments

WHOLE: Final = ".full"
_NAME: Final = re.compile(r"(\d{20})\.(?:base|full)")
SCHEMA: Final[Span] = (b"m", b"n")
ROWS: Final[Span] = (b"t", b"u")
_JOBS: Final[Span] = table_span(JOB_TABLE.id)


def base_of(directory: Path) -> tuple[int, Path] | None:
    """Return the newest base; None for a log that begins at 0."""
    return max(_bases(directory), default=None)


def definitions(path: Path) -> StoredSnapshot:
    """Return the databases and tables of a base. Raises DecodeError for a damaged one."""
    footer, rows = decode_segment(path.read_bytes(), str(path))
    return load_all(Meta(_Keys(rows)), footer.high).snapshot


def trim(directory: Path, bound: int) -> int | None:
    """Let the log begin as far up as `bound` allows; where it begins now, None if nothing went.

    Raises HistoryLost for a log with a gap, StoreUnavailable when the disk refuses."""
    found = base_of(directory)
    begin, keys = (0, dict[bytes, KvChange]()) if found is None else (found[0], _read(found[1]))
    chosen: tuple[int, list[KvChange]] | None = None
    jobs: set[bytes] = set()
    for low, high, _ in segments(directory)[:-1]:
        if high <= begin:
            continue
        if high > bound:
            break
        for row in read_spans(directory, max(low, begin), high, (SCHEMA, _JOBS)):
            _take(row, keys, jobs)
        if not jobs:
            chosen = high, [keys[key] for key in sorted(keys)]
    if chosen is not None:
        begin, rows = chosen
        publish(directory / f"{begin:020d}.base", encode_segment(begin, begin, rows))
    _sweep(directory, begin)
    return None if chosen is None else begin


def _take(row: KvChange, keys: dict[bytes, KvChange], jobs: set[bytes]) -> None:
    """What a row of the log makes of the keys and of the jobs that run."""
    if row.key[:1] == b"t":
        (jobs.add if row.op is KvOp.PUT else jobs.discard)(row.key)
    elif defines(row.key):
        if row.op is KvOp.PUT:
            keys[row.key] = row
        else:
            keys.pop(row.key, None)


def _sweep(directory: Path, begin: int) -> None:
    """Delete what lies below the begin, the oldest first."""
    for _, high, path in segments(directory):
        if high <= begin:
            path.unlink(missing_ok=True)
    for ts, path in sorted(_bases(directory)):
        if ts < begin:
            path.unlink(missing_ok=True)


def _bases(directory: Path) -> Iterator[tuple[int, Path]]:
    for path in directory.iterdir() if directory.is_dir() else ():
        if found := _NAME.fullmatch(path.name):
            yield int(found[1]), path


def _read(path: Path) -> dict[bytes, KvChange]:
    return {row.key: row for row in decode_segment(path.read_bytes(), str(path))[1]}


def defines(key: bytes) -> bool:
    """Return whether a schema key holds a database or a table; counters, differences and past jobs are not needed."""
    found = decode_meta_key(key)
    if found.name == b"DBs":
        return True
    return found.name.startswith(b"DB:") and (found.field or b"").startswith(b"Table:")


class _Keys:
    """Keys and values as a reader of the schema wants them."""

    def __init__(self, rows: Iterable[KvChange]) -> None:
        self._values = {row.key: row.value or b"" for row in rows}
        self._order = sorted(self._values)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        return self._values.get(key)

    def scan(self, start: bytes, end: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Return keys of [start, end) with values."""
        for at in range(bisect_left(self._order, start), len(self._order)):
            key = self._order[at]
            if end and key >= end:
                return
            yield key, self._values[key]
