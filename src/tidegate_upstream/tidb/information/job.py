"""DDL jobs as ADMIN SHOW DDL JOBS and information_schema.DDL_JOBS tell them.

    JOB_ID DB_NAME TABLE_NAME JOB_TYPE    SCHEMA_STATE  SCHEMA_ID TABLE_ID ROW_COUNT CREATE_TIME .. STATE
    118    d       t          add index   public        112       115      2         2024-01-31 ..  synced

Source: TiDB pkg/meta/model (ActionType, JobState, SchemaState), pkg/executor (DDLJobRetriever).
"""

from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from typing import Final

from tidegate.model.mysql import ActionType
from tidegate.model.tso import Tso, physical_ms
from tidegate.mysql.packed_time import Time
from tidegate.mysql.value.kinds import SqlValue
from tidegate.schema.job import Job

_STATES: Final = (
    "none",
    "running",
    "rollingback",
    "rollback done",
    "done",
    "cancelled",
    "synced",
    "cancelling",
    "queueing",
    "paused",
    "pausing",
)
_SCHEMA_STATES: Final = (
    "none",
    "delete only",
    "write only",
    "write reorganization",
    "delete reorganization",
    "public",
    "replica only",
    "global txn only",
)
_TYPES: Final[Mapping[int, str]] = {
    ActionType.MODIFY_TABLE_CHARSET: "modify table charset and collate",
    ActionType.MODIFY_SCHEMA_CHARSET: "modify schema charset and collate",
    ActionType.MULTI_SCHEMA_CHANGE: "alter table multi-schema change",
    ActionType.REBASE_AUTO_ID: "rebase auto_increment ID",
    ActionType.SHARD_ROW_ID: "shard row ID",
    ActionType.ADD_TABLE_PARTITION: "add partition",
    ActionType.DROP_TABLE_PARTITION: "drop partition",
    ActionType.TRUNCATE_TABLE_PARTITION: "truncate partition",
    ActionType.EXCHANGE_TABLE_PARTITION: "exchange partition",
    ActionType.REORGANIZE_PARTITION: "alter table reorganize partition",
    ActionType.ALTER_TABLE_PARTITIONING: "alter table partition by",
    ActionType.REMOVE_PARTITIONING: "alter table remove partitioning",
    ActionType.ALTER_TTL_INFO: "alter table ttl",
    ActionType.ALTER_TTL_REMOVE: "alter table no_ttl",
    39: "modify auto id cache",
    40: "rebase auto_random ID",
    34: "create sequence",
    35: "alter sequence",
    36: "drop sequence",
    43: "add check constraint",
    44: "drop check constraint",
    45: "alter check constraint",
}
_KNOWN: Final = frozenset(map(int, ActionType))


def type_name(action: int) -> str:
    """Return the name of an action: "add index"."""
    if action not in _TYPES and action in _KNOWN:
        return ActionType(action).name.lower().replace("_", " ")
    return _TYPES.get(action, f"unknown ddl job ({action})")


def state_name(state: int) -> str:
    """Return the name of a job's state."""
    return _STATES[state] if 0 <= state < len(_STATES) else str(state)


def moment_of(ts: int, zone: tzinfo = UTC) -> Time | None:
    """Return the second of a timestamp on the clocks of `zone`; None for no timestamp."""
    if not ts:
        return None
    at = datetime.fromtimestamp(physical_ms(Tso(ts)) // 1000, zone)
    return Time(at.year, at.month, at.day, at.hour, at.minute, at.second)


def job_row(job: Job, zone: tzinfo = UTC) -> tuple[SqlValue, ...]:
    """Return a line of ADMIN SHOW DDL JOBS."""
    done = job.binlog
    schema_state = _SCHEMA_STATES[job.schema_state] if job.schema_state < len(_SCHEMA_STATES) else str(job.schema_state)
    ids = (job.id, job.schema_name, job.table_name, type_name(job.type), schema_state, job.schema_id, job.table_id)
    times = (job.start_ts, job.real_start_ts, done.finished_ts if done else 0)
    return (*ids, job.row_count, *(moment_of(ts, zone) for ts in times), state_name(job.state))
