"""The relations of information_schema, and the rows of ADMIN SHOW DDL JOBS.

    SELECT .. FROM information_schema.columns      ──► InformationSchema.relation ──► a relation made for this statement

    SCHEMATA  TABLES  COLUMNS  STATISTICS  KEY_COLUMN_USAGE     from the public tables of a snapshot
    DDL_JOBS  PROCESSLIST                                       from the session that asks
    FILES  PARTITIONS  TRIGGERS ..                              empty

Sizes and row counts are 0, as there are no statistics.  A primary key that is the handle is not among the stored
indexes; it is listed first here.  Texts compare without case.

The columns of a relation are declared in one text: `NAME` is a text column, `NAME#` a number, `NAME@` a time; `~` is a
blank.

    JOB_ID DB_NAME TABLE_NAME JOB_TYPE    SCHEMA_STATE  SCHEMA_ID TABLE_ID ROW_COUNT CREATE_TIME .. STATE
    118    d       t          add index   public        112       115      2         2024-01-31 ..  synced

Source: TiDB documentation, "Information Schema"; TiDB pkg/meta/model (ActionType, JobState, SchemaState), pkg/executor
(DDLJobRetriever, infoschema_reader.go); MySQL manual, "INFORMATION_SCHEMA Tables".
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final, TypeAlias

import msgspec

from tidegate.expr.scope import FixedRelation, RelationColumn
from tidegate.model.mysql import CHARS, STRINGS, ActionType
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType
from tidegate.model.tso import Tso, physical_ms
from tidegate.mysql.packed_time import Time
from tidegate.mysql.values import SqlValue
from tidegate.schema.columns import character_bytes, render_type
from tidegate.schema.job import Job
from tidegate.schema.stored.create import render_full_type, shown_default
from tidegate.schema.stored.definition import (
    AUTO_INCREMENT,
    NO_DEFAULT,
    NOT_NULL,
    ON_UPDATE_NOW,
    PRIMARY,
    ElementState,
    Name,
    StoredColumn,
    StoredIndex,
    StoredPart,
    StoredTable,
    column_type,
)
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate_upstream.errors import missing_name

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
_ACTIONS: Final = frozenset(map(int, ActionType))


def type_name(action: int) -> str:
    """Return the name of an action: "add index"."""
    if action not in _TYPES and action in _ACTIONS:
        return ActionType(action).name.lower().replace("_", " ")
    return _TYPES.get(action, f"unknown ddl job ({action})")


def moment_of(ts: int, zone: tzinfo = UTC) -> Time | None:
    """Return a timestamp in seconds in the time zone `zone`; None for 0."""
    if not ts:
        return None
    moment = datetime.fromtimestamp(physical_ms(Tso(ts)) // 1000, zone)
    return Time(moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second)


def job_row(job: Job, zone: tzinfo = UTC) -> tuple[SqlValue, ...]:
    """Return a line of ADMIN SHOW DDL JOBS."""
    done = job.binlog
    schema_state = _SCHEMA_STATES[job.schema_state] if job.schema_state < len(_SCHEMA_STATES) else str(job.schema_state)
    ids = (job.id, job.schema_name, job.table_name, type_name(job.type), schema_state, job.schema_id, job.table_id)
    times = (job.start_ts, job.real_start_ts, done.finished_ts if done else 0)
    state = _STATES[job.state] if 0 <= job.state < len(_STATES) else str(job.state)
    return (*ids, job.row_count, *(moment_of(ts, zone) for ts in times), state)


Row = tuple[SqlValue, ...]
_CATALOG: Final = "def"
_PRIVILEGES: Final = "select,insert,update,references"
_KEY_FLAGS: Final = ((2, "PRI"), (4, "UNI"), (8, "MUL"))
_INTEGER_PRECISION: Final = {T.TINY: 3, T.SHORT: 5, T.INT24: 7, T.LONG: 10, T.LONGLONG: 19}
_TIMES: Final = frozenset({T.TIME, T.DATETIME, T.TIMESTAMP})


def visible(snapshot: StoredSnapshot) -> list[TableVersion]:
    """Public tables, by database and name."""
    tables = [table for table in snapshot.tables.values() if table.stored.state == ElementState.PUBLIC]
    return sorted(tables, key=lambda table: (lowered(table.schema), table.stored.name.lower))


def public_columns(table: StoredTable) -> list[StoredColumn]:
    """Return the columns of `*`."""
    return [column for column in table.cols or [] if column.state == ElementState.PUBLIC and not column.hidden]


def schemata(snapshot: StoredSnapshot) -> Iterator[Row]:
    """SCHEMATA."""
    listed = [("INFORMATION_SCHEMA", "utf8mb4", "utf8mb4_bin")]
    listed += [
        (schema.name.original, schema.charset, schema.collate)
        for schema in snapshot.schemas.values()
        if schema.state == ElementState.PUBLIC
    ]
    for name, charset, collation in sorted(listed, key=lambda row: lowered(row[0])):
        yield _CATALOG, name, charset, collation, None, None


def tables(snapshot: StoredSnapshot, next_id: Callable[[int, int], int | None], zone: tzinfo) -> Iterator[Row]:
    """TABLES."""
    for version in visible(snapshot):
        table = version.stored
        kind = "VIEW" if table.is_view else "SEQUENCE" if table.is_sequence else "BASE TABLE"
        numbered = any(column.type.flag & AUTO_INCREMENT for column in table.cols or [])
        clustered = "CLUSTERED" if table.pk_is_handle or table.is_common_handle else "NONCLUSTERED"
        head = (_CATALOG, version.schema, table.name.original, kind)
        if table.is_view:
            yield (*head, *(None,) * 16, "VIEW", table.id, None, "", None)
            continue
        sizes = ("InnoDB", 10, "Compact", *(0,) * 6, next_id(version.schema_id, table.id) if numbered else None)
        options = "partitioned" if table.partition is not None and table.partition.enable else ""
        times = (moment_of(table.update_timestamp, zone), None, None)
        bits, shards, no_shards = table.shard_row_id_bits, "SHARD_BITS", "NOT_SHARDED"
        if table.pk_is_handle:
            bits, shards, no_shards = table.auto_random_bits, "PK_AUTO_RANDOM_BITS", "NOT_SHARDED(PK_IS_HANDLE)"
        sharding = f"{shards}={bits}" if bits else no_shards
        policy = msgspec.json.decode(table.policy_ref_info)
        tail = (table.collate or "utf8mb4_bin", None, options, table.comment, table.id, sharding, clustered)
        yield (*head, *sizes, *times, *tail, policy["name"]["O"] if policy else None)


def views(snapshot: StoredSnapshot) -> Iterator[Row]:
    """VIEWS."""
    for view in visible(snapshot):
        if view.stored.view is not None:
            head = (_CATALOG, view.schema, view.stored.name.original, view.stored.view.view_select)
            yield (*head, "CASCADED", "NO", "root@%", "DEFINER", "utf8mb4", "utf8mb4_bin")


# --- columns ---


def columns(snapshot: StoredSnapshot, zone: tzinfo) -> Iterator[Row]:
    """COLUMNS."""
    for table in visible(snapshot):
        if table.stored.is_sequence:
            continue
        for position, column in enumerate(public_columns(table.stored), start=1):
            yield _column(table, column, position, zone)


def _column(table: TableVersion, column: StoredColumn, position: int, zone: tzinfo) -> Row:
    kind = column_type(column.type)
    text = kind.code in STRINGS | {T.ENUM, T.SET} and kind.charset != "binary"
    written = render_type(kind).partition("(")[0].partition(" ")[0]
    length = kind.flen if kind.code in STRINGS | {T.ENUM, T.SET} else None
    wide = character_bytes(kind.charset) if text and kind.code in CHARS else 1
    characters = (length, None if length is None else length * wide)
    return (
        *(_CATALOG, table.schema, table.stored.name.original, column.name.original, position),
        *(column_default(column, zone), "NO" if column.type.flag & NOT_NULL else "YES", written),
        *characters,
        *_precision(column),
        *((kind.charset, column.type.collate) if text else (None, None)),
        *(render_full_type(column), column_key(column), column_extra(column), _PRIVILEGES),
        *(column.comment, column.generated_expr_string, None),
    )


def _precision(column: StoredColumn) -> tuple[int | None, int | None, int | None]:
    kind = column_type(column.type)
    if kind.code in _INTEGER_PRECISION:
        return _INTEGER_PRECISION[kind.code] + (kind.unsigned and kind.code is T.LONGLONG), 0, None
    if kind.code in (T.DECIMAL, T.BIT):
        return kind.flen, max(kind.decimal, 0) if kind.code is T.DECIMAL else None, None
    if kind.code in (T.FLOAT, T.DOUBLE):
        return kind.flen, kind.decimal if kind.decimal >= 0 else None, None
    return None, None, max(kind.decimal, 0) if kind.code in _TIMES else None


def column_default(column: StoredColumn, zone: tzinfo) -> str | None:
    """Return the default as shown; None for none and for NULL."""
    if column.type.flag & NO_DEFAULT or (column.default is None and column.default_bit is None):
        return None
    return shown_default(column, zone)


def column_key(column: StoredColumn) -> str:
    """PRI, UNI or MUL."""
    return next((name for flag, name in _KEY_FLAGS if column.type.flag & flag), "")


def column_extra(column: StoredColumn) -> str:
    """auto_increment, STORED GENERATED, DEFAULT_GENERATED on update .."""
    if column.generated_expr_string:
        return "STORED GENERATED" if column.generated_stored else "VIRTUAL GENERATED"
    words = ["auto_increment"] if column.type.flag & AUTO_INCREMENT else []
    if column.default_is_expr or str(column.default or "").startswith("CURRENT_TIMESTAMP"):
        words.append("DEFAULT_GENERATED")
    if column.type.flag & ON_UPDATE_NOW:
        decimals = f"({column.type.decimal})" if column.type.decimal > 0 else ""
        words.append(f"on update CURRENT_TIMESTAMP{decimals}")
    return " ".join(words)


# --- keys ---


@dataclass(frozen=True, slots=True)
class _KeyPart:
    """One column of a key; `position` counts from 1, `clustered`: rows are stored by this key."""

    index: StoredIndex
    part: StoredPart
    column: StoredColumn
    position: int
    clustered: bool

    @property
    def expression(self) -> str | None:
        return self.column.generated_expr_string if self.column.hidden else None

    @property
    def name(self) -> str | None:
        return None if self.column.hidden else self.part.name.original

    @property
    def length(self) -> int | None:
        return self.part.length if self.part.length >= 0 else None


def key_parts(table: StoredTable) -> Iterator[_KeyPart]:
    """Return the parts of a table's public keys, the primary key first."""
    columns = table.cols or []
    indexes = [(index, index.is_primary and table.is_common_handle) for index in table.index_info or []]
    if table.pk_is_handle:
        offset = next((offset for offset, column in enumerate(columns) if column.type.flag & PRIMARY), None)
        if offset is not None:
            part = StoredPart(columns[offset].name, offset)
            handle = StoredIndex(0, Name.of("PRIMARY"), idx_cols=[part], is_unique=True, is_primary=True)
            indexes.insert(0, (handle, True))
    for index, clustered in sorted(indexes, key=lambda pair: not pair[0].is_primary):
        if index.state == ElementState.PUBLIC:
            for position, part in enumerate(index.idx_cols, start=1):
                yield _KeyPart(index, part, columns[part.offset], position, clustered)


def statistics(snapshot: StoredSnapshot) -> Iterator[Row]:
    """STATISTICS."""
    for table in visible(snapshot):
        for part in key_parts(table.stored):
            yield (
                *(_CATALOG, table.schema, table.stored.name.original, int(not part.index.is_unique), table.schema),
                *(part.index.idx_name.original, part.position, part.name, "A", 0, part.length, None),
                *("" if part.column.type.flag & NOT_NULL else "YES", "BTREE", "", part.index.comment),
                *("NO" if part.index.is_invisible else "YES", part.expression),
            )


def key_column_usage(snapshot: StoredSnapshot) -> Iterator[Row]:
    """KEY_COLUMN_USAGE: the columns of primary, unique and foreign keys."""
    for version in visible(snapshot):
        table = (_CATALOG, version.schema, version.stored.name.original)
        for part in key_parts(version.stored):
            if part.index.is_unique:
                name = part.index.idx_name.original
                yield (_CATALOG, version.schema, name, *table, part.name, part.position, None, None, None, None)
        for key in version.stored.fk_info or []:
            if key.state == ElementState.PUBLIC:
                for index, (column, other) in enumerate(zip(key.cols, key.ref_cols, strict=True), start=1):
                    referenced = (key.ref_schema.original, key.ref_table.original, other.original)
                    yield (
                        _CATALOG,
                        version.schema,
                        key.fk_name.original,
                        *table,
                        column.original,
                        index,
                        index,
                        *referenced,
                    )


SCHEMA: Final = "information_schema"
_COLLATION: Final = "utf8mb4_general_ci"
Rows: TypeAlias = Iterable[tuple[SqlValue, ...]]


@dataclass(frozen=True, slots=True)
class Facts:
    """The data behind the tables. `next_ids` gives AUTO_INCREMENT by table id, for tables that have used it."""

    snapshot: StoredSnapshot
    jobs: Callable[[], Iterable[Job]] = tuple
    processes: Callable[[], Rows] = tuple
    zone: tzinfo = UTC
    next_id: Callable[[int, int], int | None] = lambda _schema_id, _table_id: None


def relation_columns(text: str) -> tuple[RelationColumn, ...]:
    """Return the columns of a table from their description (module docstring)."""
    return tuple(
        RelationColumn(word.rstrip("#@").replace("~", " "), _RELATIONS_TYPES.get(word[-1], _TEXT), collation=_COLLATION)
        for word in text.split()
    )


_TEXT: Final = ColumnType(T.VARCHAR, 1024)
_RELATIONS_TYPES: Final = {
    "#": ColumnType(T.LONGLONG, 21, charset="binary"),
    "@": ColumnType(T.DATETIME, 19, 0, charset="binary"),
}


def is_information(schema: str) -> bool:
    """Return whether a database is information_schema."""
    return lowered(schema) == SCHEMA


class InformationSchema:
    """The relations of information_schema at one moment."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def relation(self, schema: str, name: str) -> FixedRelation:
        """Return the table of that name; SqlRefused 1146."""
        definition = TABLES.get(name.upper())
        if definition is None or not is_information(schema):
            raise missing_name(schema, name)
        columns, rows = definition
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
        lambda facts: schemata(facts.snapshot),
    ),
    "TABLES": (_TABLES, lambda facts: tables(facts.snapshot, facts.next_id, facts.zone)),
    "COLUMNS": (_COLUMNS, lambda facts: columns(facts.snapshot, facts.zone)),
    "STATISTICS": (_STATISTICS, lambda facts: statistics(facts.snapshot)),
    "KEY_COLUMN_USAGE": (_KEYS, lambda facts: key_column_usage(facts.snapshot)),
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
"""Tables that dump tools read although this upstream has nothing to show in them."""


def _nothing(_facts: Facts) -> Rows:
    return ()


TABLES: Final = {name: (relation_columns(text), _nothing) for name, text in _EMPTY.items()} | {
    name: (relation_columns(text), rows) for name, (text, rows) in _SPECS.items()
}
