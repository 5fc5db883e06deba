"""Rows of a change log as transactions, mounted one by one: what chunks by columns are compared with."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from tidegate.engine.mount import Mounted, Mounter
from tidegate.model.kv_change import KvChange
from tidegate.source.tidb_changes import mounted_row
from tidegate.source.tidb_log import KvLog, Span


def transactions(
    log: KvLog, stretch: tuple[int, int], spans: Sequence[Span], mounter: Mounter, *, refuse_corrupt: bool = False
) -> Iterator[list[Mounted]]:
    """Return the transactions with commit_ts in (low, high], the two of `stretch`, that have rows in `spans`.

    Raises HistoryLost, DecodeError, and SchemaError or KvDecodeError with the row's table and timestamp."""
    return mounted_transactions(log.rows(*stretch, spans), mounter, refuse_corrupt=refuse_corrupt)


def mounted_transactions(
    rows: Iterable[KvChange], mounter: Mounter, *, refuse_corrupt: bool = False
) -> Iterator[list[Mounted]]:
    """Return the transactions of rows that come in commit order."""
    for _, group in groupby(_once(rows), key=lambda row: (row.commit_ts, row.start_ts)):
        found = [mounted for row in group if (mounted := mounted_row(row, mounter, refuse=refuse_corrupt)) is not None]
        if found:
            yield found


def _once(rows: Iterable[KvChange]) -> Iterator[KvChange]:
    """Without repetitions: equal rows follow each other."""
    last = (0, 0, b"")
    for row in rows:
        this = row.commit_ts, row.start_ts, row.key
        if this != last:
            yield row
        last = this
