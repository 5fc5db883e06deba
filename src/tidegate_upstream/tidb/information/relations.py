"""information_schema: what SELECT can ask of the definitions, the variables and the DDL jobs.

    SELECT .. FROM information_schema.columns      ──► InformationSchema.relation ──► a relation made for this statement

    SCHEMATA  TABLES  COLUMNS  STATISTICS      from a snapshot's public part, KEY_COLUMN_USAGE as well
    DDL_JOBS  PROCESSLIST                      from the session that asks
    FILES  PARTITIONS  TRIGGERS ..             empty

A table's columns are one text: `NAME` holds text, `NAME#` a number, `NAME@` a moment; `~` is a blank.  Texts compare
without case.

Source: TiDB documentation, "Information Schema"; MySQL manual, "INFORMATION_SCHEMA Tables".
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Final, TypeAlias

from tidegate.expr.relation import FixedRelation, RelationColumn
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType
from tidegate.mysql.value.kinds import SqlValue
from tidegate.schema.job import Job
from tidegate.schema.stored.snapshot import StoredSnapshot
from tidegate_upstream.tidb.information import row
from tidegate_upstream.tidb.information.job import job_row

SCHEMA: Final = "information_schema"
_NO_TABLE: Final = 1146
_COLLATION: Final = "utf8mb4_general_ci"
Rows: TypeAlias = Iterable[tuple[SqlValue, ...]]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the tables tell. `next_ids` gives a table's AUTO_INCREMENT by its id, as far as anybody asked for one."""

    snapshot: StoredSnapshot
    jobs: Callable[[], Iterable[Job]] = tuple
    processes: Callable[[], Rows] = tuple
    zone: tzinfo = UTC
    next_id: Callable[[int, int], int | None] = lambda _schema_id, _table_id: None


def columns_of(text: str) -> tuple[RelationColumn, ...]:
    """Return the columns of a table as the module says."""
    return tuple(
        RelationColumn(word.rstrip("#@").replace("~", " "), _TYPES.get(word[-1], _TEXT), collation=_COLLATION)
        for word in text.split()
    )


_TEXT: Final = ColumnType(T.VARCHAR, 1024)
_TYPES: Final = {
    "#": ColumnType(T.LONGLONG, 21, charset="binary"),
    "@": ColumnType(T.DATETIME, 19, 0, charset="binary"),
}


def is_information(schema: str) -> bool:
    """Return whether a database is this one."""
    return lowered(schema) == SCHEMA


class InformationSchema:
    """The relations of information_schema at one moment."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def relation(self, schema: str, name: str) -> FixedRelation:
        """Return the table of that name; SqlRefused 1146."""
        found = TABLES.get(name.upper())
        if found is None or not is_information(schema):
            raise SqlRefused(_NO_TABLE, f"Table '{schema}.{name}' doesn't exist", "42S02")
        columns, rows = found
        return FixedRelation(name.upper(), columns, list(rows(self.facts)))


def _jobs(facts: Facts) -> Rows:
    return ((*job_row(job, facts.zone), job.query) for job in facts.jobs())


_COLUMNS: Final = (
    "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME COLUMN_NAME ORDINAL_POSITION# COLUMN_DEFAULT IS_NULLABLE DATA_TYPE "
    "CHARACTER_MAXIMUM_LENGTH# CHARACTER_OCTET_LENGTH# NUMERIC_PRECISION# NUMERIC_SCALE# DATETIME_PRECISION# "
    "CHARACTER_SET_NAME COLLATION_NAME COLUMN_TYPE COLUMN_KEY EXTRA PRIVILEGES COLUMN_COMMENT GENERATION_EXPRESSION "
    "SRS_ID#"
)
_TABLES: Final = (
    "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME TABLE_TYPE ENGINE VERSION# ROW_FORMAT TABLE_ROWS# AVG_ROW_LENGTH# "
    "DATA_LENGTH# MAX_DATA_LENGTH# INDEX_LENGTH# DATA_FREE# AUTO_INCREMENT# CREATE_TIME@ UPDATE_TIME@ CHECK_TIME@ "
    "TABLE_COLLATION CHECKSUM# CREATE_OPTIONS TABLE_COMMENT TIDB_TABLE_ID# TIDB_ROW_ID_SHARDING_INFO TIDB_PK_TYPE "
    "TIDB_PLACEMENT_POLICY_NAME"
)
_STATISTICS: Final = (
    "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME NON_UNIQUE# INDEX_SCHEMA INDEX_NAME SEQ_IN_INDEX# COLUMN_NAME COLLATION "
    "CARDINALITY# SUB_PART# PACKED NULLABLE INDEX_TYPE COMMENT INDEX_COMMENT IS_VISIBLE EXPRESSION"
)
_KEYS: Final = (
    "CONSTRAINT_CATALOG CONSTRAINT_SCHEMA CONSTRAINT_NAME TABLE_CATALOG TABLE_SCHEMA TABLE_NAME COLUMN_NAME "
    "ORDINAL_POSITION# POSITION_IN_UNIQUE_CONSTRAINT# REFERENCED_TABLE_SCHEMA REFERENCED_TABLE_NAME "
    "REFERENCED_COLUMN_NAME"
)
_JOB: Final = (
    "JOB_ID# DB_NAME TABLE_NAME JOB_TYPE SCHEMA_STATE SCHEMA_ID# TABLE_ID# ROW_COUNT# CREATE_TIME@ START_TIME@ "
    "END_TIME@ STATE QUERY"
)
_SPECS: Final[Mapping[str, tuple[str, Callable[[Facts], Rows]]]] = {
    "SCHEMATA": (
        (
            "CATALOG_NAME SCHEMA_NAME DEFAULT_CHARACTER_SET_NAME DEFAULT_COLLATION_NAME SQL_PATH "
            "TIDB_PLACEMENT_POLICY_NAME"
        ),
        lambda facts: row.schemata(facts.snapshot),
    ),
    "TABLES": (_TABLES, lambda facts: row.tables(facts.snapshot, facts.next_id, facts.zone)),
    "COLUMNS": (_COLUMNS, lambda facts: row.columns(facts.snapshot, facts.zone)),
    "STATISTICS": (_STATISTICS, lambda facts: row.statistics(facts.snapshot)),
    "KEY_COLUMN_USAGE": (_KEYS, lambda facts: row.key_column_usage(facts.snapshot)),
    "DDL_JOBS": (_JOB, _jobs),
    "PROCESSLIST": ("ID# USER HOST DB COMMAND TIME# STATE INFO", lambda facts: facts.processes()),
}
_EMPTY: Final[Mapping[str, str]] = {
    "COLUMN_STATISTICS": "SCHEMA_NAME TABLE_NAME COLUMN_NAME HISTOGRAM",
    "EVENTS": "EVENT_CATALOG EVENT_SCHEMA EVENT_NAME DEFINER EVENT_DEFINITION EVENT_TYPE STATUS",
    "FILES": (
        "FILE_ID# FILE_NAME FILE_TYPE TABLESPACE_NAME LOGFILE_GROUP_NAME ENGINE TOTAL_EXTENTS# EXTENT_SIZE# "
        "INITIAL_SIZE# MAXIMUM_SIZE# FREE_EXTENTS# EXTRA"
    ),
    "PARTITIONS": "TABLE_CATALOG TABLE_SCHEMA TABLE_NAME PARTITION_NAME TABLESPACE_NAME",
    "ROUTINES": "SPECIFIC_NAME ROUTINE_CATALOG ROUTINE_SCHEMA ROUTINE_NAME ROUTINE_TYPE DATA_TYPE ROUTINE_DEFINITION",
    "TRIGGERS": (
        "TRIGGER_CATALOG TRIGGER_SCHEMA TRIGGER_NAME EVENT_MANIPULATION EVENT_OBJECT_CATALOG EVENT_OBJECT_SCHEMA "
        "EVENT_OBJECT_TABLE ACTION_ORDER# ACTION_STATEMENT ACTION_TIMING CREATED@ SQL_MODE DEFINER"
    ),
}
"""What this upstream does not tell of, or has not; dump tools ask for it all the same."""


def _nothing(_facts: Facts) -> Rows:
    return ()


TABLES: Final = {name: (columns_of(text), _nothing) for name, text in _EMPTY.items()} | {
    name: (columns_of(text), rows) for name, (text, rows) in _SPECS.items()
}
