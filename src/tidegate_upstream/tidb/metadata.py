"""Writing schema metadata: the definitions, the system tables of DDL jobs, and the schema of a new store.

A step of a DDL job and the definitions that it changed are written in one transaction.  Rows of these system tables are
of version 1, as TiDB's internal sessions write them; tables without a primary key have hidden row ids, and a unique
index beside them.

    tidb_ddl_job       unfinished jobs                            watched by changefeeds
    tidb_ddl_history   finished jobs                              tidb_mdl_info      job, version: which nodes to ask
    tidb_ddl_reorg     progress of a backfill                     gc_delete_range    ranges that the next GC removes
    tidb               variables of the cluster; written, but not read here

A new store has the databases mysql, sys and test, and the tables of the DDL jobs.  Its ids and schema version begin
where those of a newly started TiDB do, so that the first database created in it has the same id as there.

Source: TiDB pkg/meta/metadef and pkg/session/bootstrap.go; recorded definitions of tidb_ddl_job and tidb_ddl_history;
the databases, ids and version with which a recording of a new TiDB begins.
"""

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from tidegate.kv.index_entry import IndexEntry, encode_index_entry
from tidegate.kv.keys import IntHandle, hash_key, job_field, record_key, table_span
from tidegate.kv.rows import Row, decode_row, encode_row
from tidegate.model.mysql import MysqlType as T
from tidegate.mysql.column_value import KvValue
from tidegate.schema.job import SchemaDiff
from tidegate.schema.stored.definition import (
    Name,
    StoredColumn,
    StoredIndex,
    StoredPart,
    StoredSchema,
    StoredTable,
    StoredType,
    render_stored,
    table_layout,
)
from tidegate.schema.stored.meta import (
    BDR_ROLE,
    JOB_HISTORY,
    NEXT_ID,
    PROGRESS,
    VERSION,
    Meta,
    Reader,
    counter_key,
    diff_key,
    schema_key,
    table_key,
)
from tidegate_upstream.tidb.transaction import Storage, Transaction


class MetaWriter(Meta):
    """Writes TiDB's meta keys in one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction)
        self._transaction = transaction

    def new_ids(self, count: int) -> list[int]:
        """Return the next `count` ids."""
        first = self.newest_id + 1
        self._transaction.put(NEXT_ID, b"%d" % (first + count - 1))
        return list(range(first, first + count))

    def set_newest_id(self, number: int) -> None:
        """Let new ids begin above `number`."""
        self._transaction.put(NEXT_ID, b"%d" % number)

    def set_version(self, version: int) -> None:
        """Set the newest schema version."""
        self._transaction.put(VERSION, b"%d" % version)

    def set_bdr_role(self, role: str) -> None:
        """Set the BDR role, or none."""
        if role:
            self._transaction.put(BDR_ROLE, role.encode())
        else:
            self._transaction.delete(BDR_ROLE)

    def put_diff(self, diff: SchemaDiff) -> None:
        """Write the diff of a schema version."""
        self._transaction.put(diff_key(diff.version), render_stored(diff))

    def put_schema(self, schema: StoredSchema) -> None:
        """Set the definition of a database."""
        self._transaction.put(schema_key(schema.id), render_stored(schema))

    def remove_schema(self, schema_id: int) -> None:
        """Remove a database."""
        self._transaction.delete(schema_key(schema_id))

    def put_table(self, schema_id: int, table: StoredTable) -> None:
        """Set the definition of a table."""
        self._transaction.put(table_key(schema_id, table.id), render_stored(table))

    def remove_table(self, schema_id: int, table_id: int) -> None:
        """Remove a table from a database; its counters stay."""
        self._transaction.delete(table_key(schema_id, table_id))

    def set_counter(self, kind: str, schema_id: int, table_id: int, value: int | None) -> None:
        """Set one of COUNTERS, or remove it."""
        key = counter_key(kind, schema_id, table_id)
        if value is None:
            self._transaction.delete(key)
        else:
            self._transaction.put(key, b"%d" % value)

    def put_job(self, job_id: int, job_meta: bytes) -> None:
        """Add a job to the history."""
        self._transaction.put(hash_key(JOB_HISTORY, job_field(job_id)), job_meta)

    def put_progress(self, job_id: int, progress: bytes | None) -> None:
        """Write the progress of a running job, or remove it."""
        key = hash_key(PROGRESS, job_field(job_id))
        if progress is None:
            self._transaction.delete(key)
        else:
            self._transaction.put(key, progress)


Values: TypeAlias = dict[str, KvValue]
"""A row by column name."""
_RESERVED: Final = (1 << 48) - 1
"""Ids from 1000 below this one on belong to tables that no job creates."""
_NOT_NULL: Final = 1
_KEY: Final = 1 | 2 | 1 << 12
_INDEXED: Final = 1 | 8 | 1 << 12
_BINARY: Final = 128

BIGINT: Final = StoredType(T.LONGLONG, 0, 20, 0, "binary", "binary")
_INT: Final = StoredType(T.LONG, 0, 11, 0, "binary", "binary")
_TEXT: Final = StoredType(T.MEDIUM_BLOB, 0, 16_777_215, 0, "utf8mb4", "utf8mb4_bin")
_BLOB: Final = StoredType(T.BLOB, _BINARY, 65_535, 0, "binary", "binary")
_LONG_BLOB: Final = StoredType(T.LONG_BLOB, _BINARY, (1 << 32) - 1, 0, "binary", "binary")
_NAME: Final = StoredType(T.STRING, 0, 64, 0, "utf8mb4", "utf8mb4_bin")
_RANGE: Final = StoredType(T.VARCHAR, _NOT_NULL, 255, 0, "utf8mb4", "utf8mb4_bin")
_NAME_KEY: Final = StoredType(T.VARCHAR, _INDEXED, 64, 0, "utf8mb4", "utf8mb4_bin")
_LONG_NAME: Final = StoredType(T.VARCHAR, 0, 1024, 0, "utf8mb4", "utf8mb4_bin")
_DATETIME: Final = StoredType(T.DATETIME, _BINARY, 19, 0, "binary", "binary")


def _flagged(kind: StoredType, flag: int) -> StoredType:
    return StoredType(kind.tp, kind.flag | flag, kind.flen, kind.decimal, kind.charset, kind.collate)


class SystemTable:
    """A system table defined in this module: its rows by column name."""

    def __init__(
        self, table_id: int, name: str, columns: Mapping[str, StoredType], unique: tuple[str, ...] = ()
    ) -> None:
        cols = [
            StoredColumn(number, Name.of(column), number - 1, type=kind)
            for number, (column, kind) in enumerate(columns.items(), 1)
        ]
        keyed = next(iter(columns.values())).flag & _KEY == _KEY
        parts = [StoredPart(Name.of(column), [*columns].index(column)) for column in unique]
        index = StoredIndex(1, Name.of(f"{name}_index"), idx_cols=parts, is_unique=True)
        self.stored = StoredTable(
            table_id,
            Name.of(name),
            cols=cols,
            index_info=[index] if unique else None,
            pk_is_handle=keyed,
            max_col_id=len(cols),
            max_idx_id=1 if unique else 0,
        )
        self.layout = table_layout(self.stored)
        self._ids = {column.name.lower: column.id for column in cols}
        self._names = {number: column for column, number in self._ids.items()}

    def key(self, handle: int) -> bytes:
        """Return the key of the row with that number."""
        return record_key(self.stored.id, IntHandle(handle))

    def get(self, reader: Reader, handle: int) -> Values | None:
        """Return a row by its number."""
        key = self.key(handle)
        value = reader.get(key)
        return None if value is None else self._decode(key, value)

    def rows(self, reader: Reader, first: int = 0) -> Iterator[tuple[int, Values]]:
        """Return the rows with their numbers, ascending, from number `first` on."""
        for key, value in reader.scan(self.key(first), table_span(self.stored.id)[1]):
            handle = decode_row(self.layout, key, value).handle
            assert isinstance(handle, IntHandle), key.hex()
            yield handle.value, self._decode(key, value)

    def put(self, transaction: Transaction, handle: int, values: Mapping[str, KvValue]) -> None:
        """Write a row, replacing the row of that number."""
        self._unindex(transaction, handle)
        columns = {self._ids[column]: value for column, value in values.items()}
        stored = tuple(number for number in columns if number != self.layout.int_handle)
        row = Row(self.stored.id, IntHandle(handle), columns, stored, version=1)
        transaction.put(*encode_row(self.layout, row))
        for index in self.layout.indexes:
            transaction.put(*encode_index_entry(self.layout, IndexEntry(index.id, columns, row.handle)))

    def remove(self, transaction: Transaction, handle: int) -> None:
        """Remove a row, if present."""
        self._unindex(transaction, handle)
        transaction.delete(self.key(handle))

    def _unindex(self, transaction: Transaction, handle: int) -> None:
        old = self.get(transaction, handle) if self.layout.indexes else None
        if old is not None:
            columns = {self._ids[column]: value for column, value in old.items()}
            for index in self.layout.indexes:
                transaction.delete(encode_index_entry(self.layout, IndexEntry(index.id, columns, IntHandle(handle)))[0])

    def _decode(self, key: bytes, value: bytes) -> Values:
        row = decode_row(self.layout, key, value)
        return {self._names[number]: datum for number, datum in row.columns.items()}


JOB: Final = SystemTable(
    _RESERVED - 1,
    "tidb_ddl_job",
    {
        "job_id": _flagged(BIGINT, _KEY),
        "reorg": _INT,
        "schema_ids": _TEXT,
        "table_ids": _TEXT,
        "job_meta": _LONG_BLOB,
        "type": _INT,
        "processing": _INT,
    },
)
REORG: Final = SystemTable(
    _RESERVED - 2,
    "tidb_ddl_reorg",
    {
        "job_id": _flagged(BIGINT, _INDEXED),
        "ele_id": BIGINT,
        "ele_type": _BLOB,
        "start_key": _BLOB,
        "end_key": _BLOB,
        "physical_id": BIGINT,
        "reorg_meta": _LONG_BLOB,
    },
    unique=("job_id", "ele_id", "ele_type"),
)
HISTORY: Final = SystemTable(
    _RESERVED - 3,
    "tidb_ddl_history",
    {
        "job_id": _flagged(BIGINT, _KEY),
        "job_meta": _LONG_BLOB,
        "db_name": _NAME,
        "table_name": _NAME,
        "schema_ids": _TEXT,
        "table_ids": _TEXT,
        "create_time": _DATETIME,
    },
)
LOCK_INFO: Final = SystemTable(
    _RESERVED - 4,
    "tidb_mdl_info",
    {"job_id": _flagged(BIGINT, _KEY), "version": _flagged(BIGINT, _NOT_NULL), "table_ids": _TEXT, "owner_id": _NAME},
)
DELETE_RANGE: Final = SystemTable(
    46,
    "gc_delete_range",
    {
        "job_id": _flagged(BIGINT, _INDEXED),
        "element_id": _flagged(BIGINT, _NOT_NULL),
        "start_key": _RANGE,
        "end_key": _RANGE,
        "ts": _flagged(BIGINT, _NOT_NULL),
    },
    unique=("job_id", "element_id"),
)
_VARIABLES: Final = SystemTable(
    22,
    "tidb",
    {"variable_name": _NAME_KEY, "variable_value": _LONG_NAME, "comment": _LONG_NAME},
    unique=("variable_name",),
)
SYSTEM_TABLES: Final = (JOB, REORG, HISTORY, LOCK_INFO, DELETE_RANGE, _VARIABLES)


MYSQL, SYS, TEST = 1, 2, 112
_NEWEST_ID: Final = 274
_VERSION: Final = 177
FIRST_JOB_NUMBER: Final = 71
"""The `seq_num` of the first job that finishes."""


def bootstrap(storage: Storage) -> bool:
    """Write the first schema; False if there is one already."""
    transaction = storage.begin()
    if Meta(transaction).newest_id:
        transaction.rollback()
        return False
    meta = MetaWriter(transaction)
    for number, name in ((MYSQL, "mysql"), (SYS, "sys"), (TEST, "test")):
        meta.put_schema(StoredSchema(number, Name.of(name)))
    for table in SYSTEM_TABLES:
        meta.put_table(MYSQL, table.stored)
    meta.set_newest_id(_NEWEST_ID)
    meta.set_version(_VERSION)
    meta.put_diff(SchemaDiff(_VERSION, regenerate_schema_map=True))
    transaction.commit()
    return True
