"""What a workload has really done, found out beside the feed: from the store's versions, by the way of SQL's readers.

    write records of the store  ──► row changes: before and after, read at commit_ts - 1 and at commit_ts as a SELECT
                                    does, under the definition of the last DDL that was done by then
    rows of the job table       ──► DDLs at the commit that shows them done
    the store at some ts        ──► all tables as SELECT shows them at that moment: what a lake has to equal

Values are numbers (tests/upstream/simulate/values.py): they hold for both protocols and through changes of type.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.upstream.ddl.kit import CONTEXT, shape_of
from tests.upstream.simulate.dml import shown
from tests.upstream.simulate.model import Shown
from tests.upstream.simulate.values import number_of
from tidegate.kv.keys import RecordKey, decode_table_key, split_mvcc_key
from tidegate.kv.rows import decode_row
from tidegate.model.kv_change import LOSSY_DDL
from tidegate.mysql.encoding import encode_bytes
from tidegate.mysql.values import SqlValue, from_column
from tidegate.schema.job import JOB_TABLE, Job, JobState, decode_job_row
from tidegate.schema.stored.definition import ElementState, StoredTable
from tidegate.schema.stored.meta import Meta
from tidegate.schema.stored.snapshot import (
    REPLICATED,
    SchemaHistory,
    StoredSnapshot,
    TableVersion,
    load_all,
    table_info,
)
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.engine import ColumnFamily
from tidegate_upstream.tidb.store_mvcc import WriteKind, decode_write, value_at
from tidegate_upstream.tidb.table_access import TableReader
from tidegate_upstream.tidb.table_rows import RowImage, ShapeColumn, image_of
from tidegate_upstream.tidb.transaction import StoreSnapshot

Image = Mapping[str, int | None]
OWN_DATABASE = "gd"


class TrueRow(NamedTuple):
    """A row change that happened; one without `before` is an INSERT, without `after` a DELETE."""

    ts: int
    table: str
    stored: StoredTable
    before: Image | None
    after: Image | None


class TrueDdl(NamedTuple):
    """A DDL that happened; `home` is the name by which it finds its topic, "" for that of a database."""

    ts: int
    table: str
    home: str
    type: int
    query: str


class TrueTable(NamedTuple):
    """A table at some ts as SELECT shows it. `late_columns` are those that SELECT shows no more, though the DDL that
    takes them away is not done."""

    columns: tuple[str, ...]
    rows: Counter[Shown]
    late_columns: frozenset[str]
    id: int = 0


class Moment(NamedTuple):
    """The database at `ts`, tables by the names that the last DDL that is done gave them; `late` are those that
    statements cannot name any more, though the DDL is not done."""

    ts: int
    tables: Mapping[str, TrueTable]
    late: frozenset[str]


@dataclass
class Truth:
    """What is known up to `ts`."""

    cluster: Cluster
    ts: int = 0
    rows: list[TrueRow] = field(default_factory=list)
    ddls: list[TrueDdl] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.history = SchemaHistory()
        self._jobs: set[int] = set()
        self.doubled: list[tuple[int, int, int | None]] = []

    @property
    def tables(self) -> frozenset[str]:
        """The tables of now, as the last DDL that is done left them."""
        found = self.history.at(self.ts).tables.values()
        return frozenset(one.stored.name.lower for one in found if one.schema == OWN_DATABASE)

    def learn(self, upto: int) -> None:
        """Read what was committed in (ts, upto]; nothing of it may have been collected yet."""
        found = sorted(self._writes(self.ts, upto), key=lambda one: one[0])
        for ts, key in found:
            if isinstance(parts := decode_table_key(key), RecordKey) and parts.table_id == JOB_TABLE.id:
                self._job(ts, key)
        for ts, key in found:
            parts = decode_table_key(key)
            version = self.history.at(ts - 1).table_of(parts.table_id)
            if version is not None and isinstance(parts, RecordKey) and version.schema == OWN_DATABASE:
                self._row(ts, key, version)
        self.ts = upto

    def look(self, ts: int) -> None:
        """Keep the database as it is at `ts`, which has been learned."""
        reader, done = self.cluster.storage.snapshot(ts), self.history.at(ts)
        names = {version.stored.name.lower for version in done.tables.values() if version.schema == OWN_DATABASE}
        tables = {}
        for table_id, version in load_all(Meta(reader), ts).snapshot.tables.items():
            if version.schema != OWN_DATABASE or version.stored.state != ElementState.PUBLIC:
                continue
            known = done.tables.get(table_id) or next(
                (one for one in done.tables.values() if _same(one, version)), None
            )
            if known is not None:
                tables[known.stored.name.lower] = true_table(reader, version.stored, known.stored)
        self.moments.append(Moment(ts, tables, frozenset(names - tables.keys())))

    def _writes(self, low: int, high: int) -> Iterator[tuple[int, bytes]]:
        engine = self.cluster.engine
        for at, record in engine.scan(ColumnFamily.WRITE, encode_bytes(b"t"), encode_bytes(b"u")):
            key, commit_ts = split_mvcc_key(at)
            if commit_ts is None or not low < commit_ts <= high:
                continue
            write = decode_write(record)
            if write.kind in (WriteKind.PUT, WriteKind.DELETE) and write.source < LOSSY_DDL:
                yield commit_ts, key

    def _row(self, ts: int, key: bytes, version: TableVersion) -> None:
        before, after = (self._image(key, at, version.stored) for at in (ts - 1, ts))
        if before is not None or after is not None:
            self.rows.append(TrueRow(ts, version.stored.name.lower, version.stored, before, after))
        if after is not None and self._is_doubled(ts, version.stored, after):
            self.doubled.append((ts, version.stored.id, after["id"]))

    def _is_doubled(self, ts: int, stored: StoredTable, row: Image) -> bool:
        """Whether others have its key, which a unique index no longer sees to."""
        key = () if stored.pk_is_handle or stored.is_common_handle else handle_of(stored)
        shape = shape_of(stored)
        columns = [one for one in shape.public if one.stored.name.lower in key]
        if not columns or len(columns) < len(key):
            return False
        images = TableReader(self.cluster.storage.snapshot(ts), shape, CONTEXT).all()
        keys = Counter(tuple(number_of(_sql(one, image)) for one in columns) for image in images)
        return keys[tuple(row[one.stored.name.lower] for one in columns)] > 1

    def _image(self, key: bytes, ts: int, stored: StoredTable) -> Image | None:
        value = value_at(self.cluster.engine, key, ts)
        if value is None:
            return None
        return image_of_value(stored, key, value)

    # --- DDL ---

    def _job(self, ts: int, key: bytes) -> None:
        value = value_at(self.cluster.engine, key, ts)
        job = None if value is None else decode_job_row(key, value)
        if job is None or job.state != JobState.DONE or job.id in self._jobs:
            return
        self._jobs.add(job.id)
        before = self.history.at(ts)
        self.history.apply(job, ts)
        if job.type in REPLICATED and job.binlog is not None and job.binlog.schema_version:
            self._ddl(ts, job, before)

    def _ddl(self, ts: int, job: Job, before: StoredSnapshot) -> None:
        if job.schema_name.lower() != OWN_DATABASE:
            return
        old = before.tables.get(job.table_id)
        new = job.binlog.table if job.binlog else None
        if job.binlog and job.binlog.tables:
            new = next(each for each in job.binlog.tables if each.id == job.table_id)
        table = new.name.lower if new is not None else old.stored.name.lower if old is not None else ""
        home = old.stored.name.lower if old is not None else table
        self.ddls.append(TrueDdl(ts, table, home, job.type, job.query))


def _same(one: TableVersion, other: TableVersion) -> bool:
    return (one.schema, one.stored.name.lower) == (other.schema, other.stored.name.lower)


def true_table(reader: StoreSnapshot, stored: StoredTable, done: StoredTable) -> TrueTable:
    """A table by the definition of now, which may be some steps ahead of the one that is done."""
    shape, old = shape_of(stored), {one.name.lower for one in shown(done)}
    columns = [one for one in shape.public if not one.stored.hidden and one.stored.name.lower in old]
    names = tuple(one.stored.name.lower for one in columns)

    images = TableReader(reader, shape, CONTEXT).all()
    rows = Counter(tuple(number_of(_sql(one, image)) for one in columns) for image in images)
    return TrueTable(names, rows, frozenset(old - set(names)), stored.id)


def image_of_value(stored: StoredTable, key: bytes, value: bytes) -> Image:
    """A stored row as SELECT shows it under a definition."""
    shape = shape_of(stored)
    parts = decode_table_key(key)
    row = image_of(shape, decode_row(shape.layout_of(parts.table_id), key, value), CONTEXT)
    return {one.stored.name.lower: number_of(_sql(one, row)) for one in shape.public if not one.stored.hidden}


def _sql(column: ShapeColumn, image: RowImage) -> SqlValue:
    return from_column(column.target.type, image.columns.get(column.id), CONTEXT.zone)


def handle_of(stored: StoredTable) -> tuple[str, ...]:
    """The columns that identify a row."""
    return tuple(name.lower() for name in table_info(stored, OWN_DATABASE, 0).handle_key)


def unique_columns(stored: StoredTable) -> frozenset[str]:
    """The columns of the handle and of every unique key."""
    info = table_info(stored, OWN_DATABASE, 0)
    keys = [index.columns for index in info.indexes if index.unique or index.primary]
    return frozenset(name.lower() for names in keys for name in names)
