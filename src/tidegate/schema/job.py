"""DDL jobs of TiDB: rows of mysql.tidb_ddl_job, which a changefeed watches for schema changes, and their JSON.

    job_id bigint primary key | reorg | schema_ids | table_ids | job_meta longblob | type | processing
    1                         | 2     | 3          | 4         | 5                 | 6    | 7

The table's own definition never goes through a job, so it is defined here; the ids below 2**48 are reserved for such
tables.  A job is the JSON in job_meta:

    queueing ── running ── done ── synced           "done" is the last state that the job table shows of a success
                  └─ cancelling, rollingback ── rollback_done, cancelled

    done     the step that makes the last change: `binlog` then holds the version and the definition as of its commit
    synced   all nodes have it; the row leaves the job table for tidb_ddl_history

A changefeed acts on the put that shows "done": its start_ts and commit_ts are the DDL's.  `raw_args` depends on the
action and on `version`: an untyped list (1) or one object (2, since 8.4); it is stored unparsed.

Source: TiDB pkg/meta/model/job.go; TiCDC's DDL puller; recorded jobs.
"""

from datetime import timedelta, timezone, tzinfo
from enum import IntEnum
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from msgspec import UNSET, Raw, UnsetType

from tidegate.kv.rows import decode_row
from tidegate.model.errors import KvDecodeError
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType
from tidegate.mysql.layout import ColumnLayout, TableLayout
from tidegate.schema.stored.definition import StoredSchema, StoredTable, parse_stored

_NULL: Final = Raw(b"null")
MODE_BITS: Final = {
    "REAL_AS_FLOAT": 0,
    "PIPES_AS_CONCAT": 1,
    "ANSI_QUOTES": 2,
    "IGNORE_SPACE": 3,
    "ONLY_FULL_GROUP_BY": 5,
    "NO_UNSIGNED_SUBTRACTION": 6,
    "NO_DIR_IN_CREATE": 7,
    "NO_KEY_OPTIONS": 14,
    "NO_TABLE_OPTIONS": 15,
    "NO_FIELD_OPTIONS": 16,
    "ANSI": 18,
    "NO_AUTO_VALUE_ON_ZERO": 19,
    "NO_BACKSLASH_ESCAPES": 20,
    "STRICT_TRANS_TABLES": 21,
    "STRICT_ALL_TABLES": 22,
    "NO_ZERO_IN_DATE": 23,
    "NO_ZERO_DATE": 24,
    "ALLOW_INVALID_DATES": 25,
    "ERROR_FOR_DIVISION_BY_ZERO": 26,
    "TRADITIONAL": 27,
    "NO_AUTO_CREATE_USER": 28,
    "HIGH_NOT_PRECEDENCE": 29,
    "NO_ENGINE_SUBSTITUTION": 30,
    "PAD_CHAR_TO_FULL_LENGTH": 31,
}
"""The bits of a job's sql_mode."""
STRICT: Final = 1 << 21 | 1 << 22
"""The bits of sql_mode with which a value that does not fit is refused: STRICT_TRANS_TABLES, STRICT_ALL_TABLES."""

PRIMARY: Final = "primary"
"""The role of a TiDB whose DDLs are replicated in replication in both directions; other DDL jobs carry another one."""


class JobState(IntEnum):
    """States of a DDL job."""

    NONE = 0
    RUNNING = 1
    ROLLINGBACK = 2
    ROLLBACK_DONE = 3
    DONE = 4
    CANCELLED = 5
    SYNCED = 6
    CANCELLING = 7
    QUEUEING = 8
    PAUSED = 9
    PAUSING = 10


class Binlog(msgspec.Struct, frozen=True, rename="pascal"):
    """The result of a finished job; `schema_version` is 0 for one that changed nothing (IF NOT EXISTS)."""

    schema_version: int = 0
    schema: StoredSchema | None = msgspec.field(name="DBInfo", default=None)
    table: StoredTable | None = msgspec.field(name="TableInfo", default=None)
    finished_ts: int = msgspec.field(name="FinishedTS", default=0)
    tables: list[StoredTable] | None = msgspec.field(name="MultipleTableInfos", default=None)


class SubJob(msgspec.Struct, frozen=True):
    """A part of a multi-schema change."""

    type: int
    raw_args: Raw = _NULL
    schema_state: int = 0
    snapshot_ver: int = 0
    real_start_ts: int = 0
    revertible: bool = False
    state: int = 0
    row_count: int = 0
    warning: Raw = _NULL
    schema_version: int = 0
    reorg_tp: int = 0
    reorg_stage: int = 0
    analyze_state: int = 0


class MultiSchemaInfo(msgspec.Struct, frozen=True):
    """The parts of a multi-schema change."""

    sub_jobs: list[SubJob] | None = None
    revertible: bool = False
    seq: int = 0


class Job(msgspec.Struct, frozen=True):
    """A DDL job as in its JSON; `type` is an ActionType, `state` a JobState."""

    id: int
    type: int = 0
    schema_id: int = 0
    table_id: int = 0
    schema_name: str = ""
    table_name: str = ""
    state: int = JobState.NONE
    warning: Raw = _NULL
    error: Raw = msgspec.field(name="err", default=_NULL)
    error_count: int = msgspec.field(name="err_count", default=0)
    row_count: int = 0
    raw_args: Raw = _NULL
    schema_state: int = 0
    snapshot_ver: int = 0
    real_start_ts: int = 0
    start_ts: int = 0
    dependency_id: int = 0
    query: str = ""
    binlog: Binlog | None = None
    version: int = 1
    reorg_meta: Raw = _NULL
    multi_schema_info: MultiSchemaInfo | None = None
    priority: int = 0
    seq_num: int = 0
    charset: str = ""
    collate: str = ""
    involving_schema_info: Raw | UnsetType = UNSET
    admin_operator: int = 0
    trace_info: Raw = _NULL
    bdr_role: str = ""
    cdc_write_source: int = 0
    local_mode: bool = False
    sql_mode: int = 0
    session_vars: dict[str, str] | UnsetType = UNSET
    last_schema_version: int | UnsetType = UNSET


class AffectedTable(msgspec.Struct, frozen=True):
    """A further table that a step changed."""

    schema_id: int = 0
    table_id: int = 0
    old_table_id: int = 0
    old_schema_id: int = 0


class SchemaDiff(msgspec.Struct, frozen=True):
    """The changes of one schema version: `Diff:<version>`."""

    version: int
    type: int = 0
    schema_id: int = 0
    table_id: int = 0
    sub_action_types: str | UnsetType = UNSET
    old_table_id: int = 0
    old_schema_id: int = 0
    regenerate_schema_map: bool = False
    read_table_from_meta: bool | UnsetType = UNSET
    affected_options: list[AffectedTable] | None = None


class Location(msgspec.Struct, frozen=True):
    """A time zone: a name, or seconds east of Greenwich."""

    name: str = ""
    offset: int = 0


class ReorgMeta(msgspec.Struct, frozen=True):
    """`Job.reorg_meta`: settings for reading and writing stored rows."""

    sql_mode: int = STRICT
    location: Location = Location()

    @property
    def zone(self) -> tzinfo:
        """The time zone of the session."""
        return ZoneInfo(self.location.name) if self.location.name else timezone(timedelta(seconds=self.location.offset))


def parse_job(data: bytes | str) -> Job:
    """Return the job in a JSON text; SchemaError for an invalid one."""
    return parse_stored(data, Job)


JOB_META: Final = 5
_NUMBER: Final = ColumnType(MysqlType.LONGLONG)
_TEXT: Final = ColumnType(MysqlType.BLOB)
_BYTES: Final = ColumnType(MysqlType.LONG_BLOB, charset="binary")
_TYPES: Final = {1: _NUMBER, 2: _NUMBER, 3: _TEXT, 4: _TEXT, JOB_META: _BYTES, 6: _NUMBER, 7: _NUMBER}

JOB_TABLE: Final = TableLayout(
    id=(1 << 48) - 2,
    columns=tuple(
        ColumnLayout(column_id, kind, "binary" if kind.charset == "binary" else "utf8mb4_bin", keeps_null=True)
        for column_id, kind in _TYPES.items()
    ),
    int_handle=1,
)


def decode_job_row(key: bytes, value: bytes) -> Job:
    """Return the job in a row; KvDecodeError for an invalid row, SchemaError for an invalid job."""
    job_meta = decode_row(JOB_TABLE, key, value).columns.get(JOB_META)
    if not isinstance(job_meta, bytes):
        raise KvDecodeError("a row of tidb_ddl_job without job_meta", "job row", 0, key)
    return parse_job(job_meta)


def reorg_meta(job: Job) -> ReorgMeta:
    """Return the settings by which a job reads and writes rows; the defaults for a job without rows."""
    raw = bytes(job.reorg_meta)
    return ReorgMeta(job.sql_mode) if raw == b"null" else msgspec.json.decode(raw, type=ReorgMeta)


def mode_names(bits: int) -> frozenset[str]:
    """Return the names of the SQL modes in a job's sql_mode."""
    return frozenset(name for name, bit in MODE_BITS.items() if bits >> bit & 1)
