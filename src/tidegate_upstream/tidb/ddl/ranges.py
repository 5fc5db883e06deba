"""Delete ranges: keys that no definition owns any more, removed below the change log once nobody reads their past.

    DROP TABLE t45 is over      gc_delete_range   job 304, element 1, [t45 .. t46), ts            rows still there
    GC with a safe point >= ts  the keys are removed with all versions, without delete events     row gone
    RECOVER TABLE before that   the row is taken out, and the rows belong to a table again

Source: TiDB pkg/ddl/delete_range.go, gc_worker (deleteRanges): UnsafeDestroyRange.
"""

from tidegate.kv.table_key import table_prefix
from tidegate.mysql.memcomparable import encode_bytes
from tidegate_upstream.tidb.meta.tables import DELETE_RANGE, Values
from tidegate_upstream.tidb.store.engine import ColumnFamily, Edit
from tidegate_upstream.tidb.store.mvcc import Store
from tidegate_upstream.tidb.transaction import Storage, Transaction


def delete_ranges(storage: Storage, safe_point: int) -> int:
    """Remove what lies in the ranges of jobs that were over by `safe_point`; how many ranges those were.

    Reads below that must be forbidden already (store_gc.collect_garbage).
    """
    assert safe_point <= storage.store.safe_point, (safe_point, storage.store.safe_point)
    transaction = storage.begin()
    due = [(number, row) for number, row in DELETE_RANGE.rows(transaction) if _moment(row) <= safe_point]
    for number, row in due:
        _destroy(storage.store, *_bounds(row))
        DELETE_RANGE.remove(transaction, number)
    transaction.commit()
    return len(due)


def keep_tables(transaction: Transaction, physical_ids: set[int]) -> None:
    """Take the ranges of whole tables or partitions out again, since they came back."""
    kept = {table_prefix(number) for number in physical_ids}
    for number, row in list(DELETE_RANGE.rows(transaction)):
        if _bounds(row)[0] in kept:
            DELETE_RANGE.remove(transaction, number)


def _destroy(store: Store, start: bytes, end: bytes) -> None:
    low, high = encode_bytes(start), encode_bytes(end)
    with store.guard:
        edits: list[Edit] = [
            (column, key, None)
            for column in (ColumnFamily.LOCK, ColumnFamily.WRITE, ColumnFamily.DATA)
            for key, _ in store.engine.scan(column, low, high)
        ]
        store.engine.write(edits)


def _moment(row: Values) -> int:
    ts = row["ts"]
    assert isinstance(ts, int), row
    return ts


def _bounds(row: Values) -> tuple[bytes, bytes]:
    start, end = row["start_key"], row["end_key"]
    assert isinstance(start, bytes), row
    assert isinstance(end, bytes), row
    return bytes.fromhex(start.decode()), bytes.fromhex(end.decode())
