"""Collecting versions that nobody may read any more.

    safe point 6      ~9 P    ~5 P    ~4 R    ~3 P          ->    ~9 P    ~5 P
                      keep    what a read at 6 sees         the rest is below it

Of each key everything newer than the safe point stays, and of the rest the put that a read at the safe point gives; a
delete that it would find goes too.  The safe point is raised first, so no read comes below it, and locks that began
before it are finished, so that nothing commits below it either.

Source: TiKV's GC worker; TiDB's gc_worker (resolve locks, then collect).
"""

from itertools import groupby

from tidegate.kv.table_key import mvcc_key, split_mvcc_key
from tidegate.model.errors import KeyLocked
from tidegate_upstream.tidb.store.engine import ColumnFamily, Edit
from tidegate_upstream.tidb.store.mvcc import Alive, Store
from tidegate_upstream.tidb.store.record import WriteKind, decode_write


def collect_garbage(store: Store, safe_point: int, now_ts: int) -> int:
    """Raise the safe point and remove what is below; the number of records that went.

    Raises KeyLocked, before anything is removed, when a transaction that began at or before `safe_point` still lives.
    """
    with store.guard:
        for key, lock in store.locks():
            if lock.start_ts <= safe_point:
                status = store.check_status(lock.primary, lock.start_ts, now_ts)
                if isinstance(status, Alive):
                    raise KeyLocked(key, lock.primary, lock.start_ts, lock.ttl_ms)
                store.finish(key, lock.start_ts, status)
        store.raise_safe_point(safe_point)
        edits = _garbage(store, safe_point)
        store.engine.write(edits)
    return sum(column is ColumnFamily.WRITE for column, _, _ in edits)


def _garbage(store: Store, safe_point: int) -> list[Edit]:
    edits: list[Edit] = []
    stored = ((at, *split_mvcc_key(at), record) for at, record in store.engine.scan(ColumnFamily.WRITE, b""))
    for key, group in groupby(stored, key=lambda item: item[1]):
        seen = False
        for at, _, commit_ts, record in group:
            if (commit_ts or 0) > safe_point:
                continue
            write = decode_write(record)
            lives = not seen and write.kind is WriteKind.PUT
            seen = seen or write.kind in (WriteKind.PUT, WriteKind.DELETE)
            if not lives:
                edits.append((ColumnFamily.WRITE, at, None))
                if write.kind is WriteKind.PUT and write.short is None:
                    edits.append((ColumnFamily.DATA, mvcc_key(key, write.start_ts), None))
    return edits
