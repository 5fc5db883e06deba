"""A change feed's other end: row events and finished jobs, applied to plain dictionaries in the order of the log.

    store ── ChangeLog ── SpanFeed ──► rows of tables          ── Mounter ──► put or remove a row by its handle
                                 └───► rows of tidb_ddl_job    done ────────► the same DDL: columns, partitions, swap

Rows that a lossy change rewrites are not in the log, so at that DDL the replica converts for itself, which numbers make
easy (values.py).  What is written into partitions to come waits until the job is done: most of it are copies of rows
that are known by then, and `late` counts those that are not.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from tests.upstream.simulate.dml import shown
from tests.upstream.simulate.model import Shown
from tests.upstream.simulate.values import missing_of, number_of_event
from tidegate.engine.mount import Mounted, Mounter
from tidegate.kv.keys import RecordKey, decode_table_key
from tidegate.model.errors import TableNotFound
from tidegate.model.event import Delete
from tidegate.model.kv_change import KvChange
from tidegate.schema.job import JOB_TABLE, Job, JobState, decode_job_row
from tidegate.schema.stored.definition import StoredTable
from tidegate.schema.stored.snapshot import SchemaHistory, StoredSnapshot
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.log_writer import SpanFeed

SYSTEM_IDS = 1 << 47
EXCHANGE, DROP_PARTITION, TRUNCATE_PARTITION = 42, 20, 23
NEW_TABLE, HASH = (71, 72), 2
PLACE = 0
"""Under this number, which no column has, a row keeps the id of its table or partition."""
Numbers = dict[int, int | None]


class Replica:
    """Rows by table id and handle, columns by id; `first` leads from a column's id to that before its types changed."""

    def __init__(self, cluster: Cluster, first: Callable[[int, int], int]) -> None:
        self.storage = cluster.storage
        self.log = ChangeLog(cluster.storage.store, cluster.storage.oracle)
        self.feed = SpanFeed(self.log, b"t", b"u", 0)
        self.history, self.first = SchemaHistory(), first
        self.mounter = Mounter(self.history, force_replicate=True)
        self.rows: dict[int, dict[bytes, Numbers]] = {}
        self.ts, self.events, self.late = 0, 0, 0
        self.pending: dict[int, list[KvChange]] = {}
        self._system = set(cluster.node.schema.tables)
        self._done: set[int] = set()

    def catch_up(self) -> None:
        """Apply all that is committed."""
        for _ in self.storage.snapshot().scan(b"t", b"u"):
            pass  # settles the locks of the dead, for which no resolved ts waits then
        self.feed.poll()
        self.log.advance()
        self.feed.poll()
        changes, self.ts = self.feed.take()
        for change in changes:
            key = decode_table_key(change.key)
            if isinstance(key, RecordKey):
                self._apply(key.table_id, change)

    def shown(self, stored: StoredTable) -> Counter[Shown]:
        """The rows of a table."""
        columns = shown(stored)
        return Counter(
            tuple(row.get(one.id, missing_of(one)) for one in columns) for row in self.rows.get(stored.id, {}).values()
        )

    def _apply(self, table_id: int, change: KvChange) -> None:
        if table_id == JOB_TABLE.id and change.value is not None:
            job = decode_job_row(change.key, change.value)
            if job.state == JobState.DONE and job.id not in self._done:
                self._done.add(job.id)
                self._ddl(job, change.commit_ts)
        elif table_id < SYSTEM_IDS and table_id not in self._system:
            try:
                found = self.mounter.mount(change.key, change.value, change.old_value, change.commit_ts)
            except TableNotFound:
                self.pending.setdefault(table_id, []).append(change)
                return
            if found is not None:
                self._row(found)

    def _row(self, found: Mounted, *, late: bool = False) -> None:
        self.events += 1
        stored = found.table.version.stored
        rows, handle = self.rows.setdefault(stored.id, {}), found.handle.encoded
        if isinstance(found.row, Delete):
            assert rows.pop(handle, None) is not None or late, f"a delete of a row that is not there: {found.row}"
            return
        self.late += late and handle not in rows
        by_name = {column.name.original: column for column in stored.cols or []}
        columns = [by_name[field.name] for field in found.row.fields]
        named = zip(columns, found.row.after, strict=True)
        numbers = {one.id: number_of_event(one, value) for one, value in named if not one.hidden}
        rows[handle] = {PLACE: found.table.physical_id, **numbers}

    # --- DDL ---

    def _ddl(self, job: Job, commit_ts: int) -> None:
        before = self.history.at(commit_ts)
        self.history.apply(job, commit_ts)
        after = self.history.at(commit_ts)
        if before is after:
            return
        if job.type == EXCHANGE:
            self._exchange(before, after)
        elif job.type in NEW_TABLE:
            (old,), (new,) = before.tables.keys() - after.tables.keys(), after.tables.keys() - before.tables.keys()
            self._reshape(job, before.tables[old].stored, after.tables[new].stored)
            self.rows.pop(old, None)
        for table_id, version in after.tables.items():
            known = before.tables.get(table_id)
            if known is not None and known is not version:
                self._reshape(job, known.stored, version.stored)
        for physical_id in after.logical.keys() - before.logical.keys():
            for change in self.pending.pop(physical_id, []):
                found = self.mounter.mount(change.key, change.value, change.old_value, commit_ts + 1)
                if found is not None:
                    self._row(found, late=True)

    def _exchange(self, before: StoredSnapshot, after: StoredSnapshot) -> None:
        (gone,), (come,) = before.tables.keys() - after.tables.keys(), after.tables.keys() - before.tables.keys()
        parted = before.logical[come]
        held = self.rows.get(parted, {})
        self.rows[come] = {handle: row for handle, row in held.items() if row[PLACE] == come}
        self.rows[parted] = {handle: row for handle, row in held.items() if row[PLACE] != come}
        self.rows[parted] |= self.rows.pop(gone, {})

    def _reshape(self, job: Job, old: StoredTable, new: StoredTable) -> None:
        rows = self.rows.get(old.id, {})
        if job.type in (DROP_PARTITION, TRUNCATE_PARTITION):
            lost = set(old.physical_ids) - set(new.physical_ids)
            rows = {handle: row for handle, row in rows.items() if row[PLACE] not in lost}
        self.rows[new.id] = {handle: self._converted(new, _filled(old, row)) for handle, row in rows.items()}

    def _converted(self, new: StoredTable, row: Numbers) -> Numbers:
        found: Numbers = {PLACE: row[PLACE] if row[PLACE] in new.physical_ids else column_offset(new, row)}
        for column in shown(new):
            same = [one for one in row if self.first(new.id, one) == self.first(new.id, column.id)]
            if same:
                found[column.id] = row[column.id if column.id in row else max(same)]
        return found


def _filled(stored: StoredTable, row: Mapping[int, int | None]) -> Numbers:
    return {PLACE: row[PLACE], **{one.id: row.get(one.id, missing_of(one)) for one in shown(stored)}}


def column_offset(stored: StoredTable, row: Mapping[int, int | None]) -> int | None:
    """Where a table has a row, by its `id`: ranges and hashes."""
    if stored.partition is None or not stored.partition.enable:
        return stored.id
    (column,) = [one.id for one in stored.cols or [] if one.name.lower == "id"]
    number, parts = row[column], stored.partition.definitions or []
    assert number is not None
    if stored.partition.type == HASH:
        return parts[number % len(parts)].id
    return next((one.id for one in parts if number < int((one.less_than or ["0"])[0])), None)
