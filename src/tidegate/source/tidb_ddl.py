"""DDL events from finished jobs, the sessions of their statements, and the schema at each point of the log.

    job ── does TiCDC follow its action? ── has it changed anything? ── filter ── eligible? ──► events

    action                    events   name                  query
    database                  1        the database's        the job's
    DROP TABLE, DROP VIEW     1        the old one           DROP TABLE `db`.`t`: the job's may name several tables
    RENAME of several tables  each     the new one           RENAME TABLE `db`.`t` TO `db`.`u`, as type RENAME TABLE
    RENAME, a table twice     1        the first one's new   RENAME TABLE of all in order, as type RENAME TABLES
    CREATE of several tables  each     the table's           its own statement out of the job's
    EXCHANGE PARTITION        1        the partitioned one   ALTER TABLE .. EXCHANGE PARTITION with full names
    CREATE TABLE .. LIKE      1        the new one           the job's; CREATE TABLE in full if the original has changed
    any other                 1        the new one           the job's: the user's text

LIKE copies the original as of its statement.  A job queued earlier may change that original first, or the filter may
exclude it; the text would then give other columns or none.  `restored` prints a text as TiCDC does (ddl-text=ticdc).

    RENAME   filter accepts old name  filter accepts new name  then
             yes                      any                      sent
             no                       no                       not sent
             no                       yes                      RenameRefused: earlier rows are missing downstream

An ineligible table has no DDL events, even once it has a key (tidb_log.py); one that becomes ineligible is an error,
since its rows would stop unnoticed.  `previous` is the name of the table before; DDLs find their topic by it.

`session_of` infers the session's time zone.  A job that rewrites rows has it in reorg_meta.location; ADD COLUMN does
not.  Definitions keep TIMESTAMP defaults in UTC and partition bounds as numbers, while the text has local times:

    ts TIMESTAMP DEFAULT '2024-01-01 08:00:00'   kept '2024-01-01 00:00:00'                ──►  +08:00
    at DATETIME DEFAULT CURRENT_TIMESTAMP        kept at 08:00:01, begun at 00:00:01       ──►  +08:00
    UNIX_TIMESTAMP('2024-01-01 08:00:00')        kept 1704067200                           ──►  +08:00

`Timeline` follows the job table along the log.  A job counts at the put that shows it done, by its commit_ts, and only
once, however often its row is written again.  Jobs that TiCDC does not follow are no stops.  Between two stops one
snapshot is valid for all rows; rows at the ts of a stop come before it.  Event filters, and `bdr` for DDLs of others
than the primary's users, mark events; the schema advances all the same.

Source: TiCDC's DDL puller, DDLEvent and schema storage; TiDB's DDLReorgMeta and getDefaultValue; recorded DDL events
and jobs.
"""

import logging
import re
from collections import deque
from collections.abc import Container, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import TableFilter
from tidegate.engine.reading import DdlJob
from tidegate.expr.tokens import quote_name, quote_names
from tidegate.kv.keys import table_span
from tidegate.model.errors import (
    ConfigError,
    HistoryLost,
    InputError,
    RenameRefused,
    SchemaError,
    SqlError,
    TidegateError,
)
from tidegate.model.event import Ddl, DdlSession
from tidegate.model.kv_change import KvOp
from tidegate.model.mysql import ActionType, MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import PartitionDef, PartitionInfo, TableName
from tidegate.model.tso import Tso, to_datetime
from tidegate.mysql.conversion import session_zone
from tidegate.schema.columns import is_moment
from tidegate.schema.cursor import Cursor
from tidegate.schema.job import JOB_TABLE, PRIMARY, Job, JobState, decode_job_row, mode_names, reorg_meta
from tidegate.schema.parse_ddl import parse_ddl
from tidegate.schema.partition import MOMENT, number_of
from tidegate.schema.restore_ddl import restore_ddl
from tidegate.schema.statement import (
    AddColumns,
    AddPartitions,
    AlterTable,
    ColumnDef,
    CreateTable,
    CreateTableLike,
    DefaultText,
    ModifyColumn,
    PartitionBy,
    ReorganizePartitions,
    Statement,
)
from tidegate.schema.stored.create import render_create_table, render_shape
from tidegate.schema.stored.definition import ElementState, StoredColumn, StoredPartitionDef, StoredTable
from tidegate.schema.stored.snapshot import REPLICATED, StoredSnapshot, TableVersion, apply_job, is_circle, rename_steps
from tidegate.source.tidb_log import KvLog, Span, Tables, name_of

LOGGER: Final = logging.getLogger(__name__)
_SCHEMAS: Final = frozenset({ActionType.CREATE_SCHEMA, ActionType.DROP_SCHEMA, ActionType.MODIFY_SCHEMA_CHARSET})
_DROPS: Final = {ActionType.DROP_TABLE: "TABLE", ActionType.DROP_VIEW: "VIEW"}
_UNCHECKED: Final = " WITHOUT VALIDATION"


class DdlEvent(NamedTuple):
    """A DDL and its table's earlier name, if any; `left_out` by an event filter or by bdr-mode; `rows_follow` as of
    SourceDdl."""

    ddl: Ddl
    previous: TableName | None = None
    left_out: bool = False
    rows_follow: bool = False


class _Change(NamedTuple):
    before: TableVersion | None
    after: TableVersion | None
    query: str
    type: int
    previous: TableName | None


def is_followed(job: Job) -> bool:
    """Return whether TiCDC replicates a finished job: its action is listed, and it was no IF NOT EXISTS without
    effect."""
    return job.type in REPLICATED and job.binlog is not None and job.binlog.schema_version != 0


def ddl_events(
    job: Job, commit_ts: int, before: StoredSnapshot, after: StoredSnapshot, tables: Tables, *, wants_schema: bool
) -> list[DdlEvent]:
    """Return the events of a finished job that changed `before` into `after`; `wants_schema` if the filter takes the
    job's database itself. Raises RenameRefused for a table that enters the filter, SchemaError for one that stops being
    eligible."""
    if not is_followed(job):
        return []
    if job.type in _SCHEMAS:
        ddl = Ddl(schema=schema_name(job, before), table="", query=job.query, commit_ts=commit_ts, type=job.type)
        return [DdlEvent(ddl)] if wants_schema else []
    if is_circle(job):
        return _circle(job, commit_ts, before, after, tables)
    changes = (change for change in _changes(job, before, after, tables) if _is_sent(change, job, commit_ts, tables))
    return [_event(change, commit_ts, job) for change in changes]


def restored(event: DdlEvent, job: Job) -> DdlEvent:
    """Return `event` with the text that TiCDC sends; the user's own text, with a warning, if that is impossible: for a
    text that we cannot print, and for one whose strings TiCDC's text changes (backslashes in ENUM and SET elements and
    in comments of tables and keys)."""
    ddl = event.ddl
    try:
        restored_text = restore_ddl(ddl.query, mode_names(job.sql_mode), job.charset)
    except SqlError as error:
        LOGGER.warning("DDL at ts %s is sent in its original form: %s: %.500s", ddl.commit_ts, error, ddl.query)
        return event
    if restored_text.loses:
        LOGGER.warning(
            "DDL at ts %s is sent in its original form: TiCDC's text would lose backslashes: %.500s",
            ddl.commit_ts,
            ddl.query,
        )
        return event
    return event._replace(ddl=msgspec.structs.replace(ddl, query=restored_text.text, written=ddl.query))


def schema_name(job: Job, before: StoredSnapshot) -> str:
    """Return the name of a job's database."""
    schema_info = job.binlog.schema if job.binlog else None
    schema = before.schemas.get(job.schema_id)
    return schema_info.name.original if schema_info else schema.name.original if schema else job.schema_name


def statements(query: str) -> list[str]:
    """Return the statements of a text, without the semicolons between them. Raises SqlError for a text that is no
    SQL."""
    cursor, texts, start = Cursor(query), [], 0
    while True:
        cursor.rest()
        end = cursor.peek().start if cursor.is_sign(";") else len(query)
        texts.append(query[start:end].strip())
        if not cursor.sign(";"):
            return [each for each in texts if each]
        start = end + 1


def _changes(job: Job, before: StoredSnapshot, after: StoredSnapshot, tables: Tables) -> Iterator[_Change]:
    match job.type:
        case ActionType.DROP_TABLE | ActionType.DROP_VIEW:
            old = before.tables[job.table_id]
            yield _Change(
                old, None, f"DROP {_DROPS[ActionType(job.type)]} {_full(name_of(old))}", job.type, name_of(old)
            )
        case ActionType.RENAME_TABLES:
            for stored in (job.binlog and job.binlog.tables) or ():
                old, new = before.tables[stored.id], after.tables[stored.id]
                query = f"RENAME TABLE {_full(name_of(old))} TO {_full(name_of(new))}"
                yield _Change(old, new, query, ActionType.RENAME_TABLE, name_of(old))
        case ActionType.CREATE_TABLES:
            created, queries = (job.binlog and job.binlog.tables) or [], statements(job.query)
            if len(created) != len(queries):
                raise SchemaError(f"DDL job {job.id} makes {len(created)} tables by {len(queries)} statements")
            for stored, query in zip(created, queries, strict=True):
                yield _Change(None, after.tables[stored.id], query, ActionType.CREATE_TABLE, None)
        case ActionType.EXCHANGE_TABLE_PARTITION:
            yield _exchanged(job, before, after)
        case _:
            stored_table = job.binlog.table if job.binlog else None
            if stored_table is None:
                raise SchemaError(f"DDL job {job.id} ({job.query!a:.200}): the job has no table definition")
            table_before = before.tables.get(stored_table.id) or before.tables.get(job.table_id)
            previous = None if table_before is None else name_of(table_before)
            query = job.query
            if job.type == ActionType.CREATE_TABLE and not _tells_all(job, stored_table, before, tables):
                query = render_create_table(stored_table, schema=schema_name(job, before))
            yield _Change(table_before, after.tables[stored_table.id], query, job.type, previous)


def _tells_all(job: Job, created: StoredTable, before: StoredSnapshot, tables: Tables) -> bool:
    """True if the text of CREATE TABLE defines this table; not after LIKE a table that has changed since, or is left
    out."""
    if "LIKE" not in job.query.upper():
        return True
    try:
        parsed = parse_ddl(job.query, schema_name(job, before))
    except SqlError:
        return True
    if len(parsed) != 1 or not isinstance(parsed[0], CreateTableLike):
        return True
    like = parsed[0]
    candidates = (table for table in tables.replicated(before) if name_of(table).key[1] == like.source.key[1])
    return any(
        (like.doubtful or name_of(table).key == like.source.key) and render_shape(table.stored) == render_shape(created)
        for table in candidates
    )


def _circle(job: Job, commit_ts: int, before: StoredSnapshot, after: StoredSnapshot, tables: Tables) -> list[DdlEvent]:
    """Return the one event of renames that depend on each other. Raises RenameRefused if the filter takes only some."""
    steps = rename_steps(job)
    moved = {step.table_id: (before.tables[step.table_id], after.tables[step.table_id]) for step in steps}
    replicated = {i: tables.matches(*name_of(old)) and tables.eligible(new) for i, (old, new) in moved.items()}
    entering = [name_of(new) for old, new in moved.values() if tables.matches(*name_of(new))]
    if not any(replicated.values()) and not entering:
        return []
    if not all(replicated.values()):
        left = ", ".join(str(name_of(moved[i][0])) for i, is_taken in replicated.items() if not is_taken)
        raise RenameRefused(
            f"DDL job {job.id} at {commit_ts} renames tables in a circle ({job.query!a:.200}), and {left} of them "
            "is excluded; let the filter include all tables of the cycle, or none"
        ).at(table=left, commit_ts=commit_ts)
    names, pairs = {number: name_of(old) for number, (old, _) in moved.items()}, list[str]()
    for step in steps:
        then = TableName(after.schemas[step.new_schema_id].name.original, step.new_table_name.original)
        pairs.append(f"{_full(names[step.table_id])} TO {_full(then)}")
        names[step.table_id] = then
    old, new = moved[steps[0].table_id]
    return [_event(_Change(old, new, f"RENAME TABLE {', '.join(pairs)}", job.type, name_of(old)), commit_ts, job)]


def _exchanged(job: Job, before: StoredSnapshot, after: StoredSnapshot) -> _Change:
    assert job.binlog is not None
    assert job.binlog.table is not None
    new = after.tables[job.binlog.table.id]
    old = before.tables[new.stored.id]
    (moved,) = set(new.stored.physical_ids) - set(old.stored.physical_ids)
    other = name_of(before.tables[moved])
    definitions = (new.stored.partition and new.stored.partition.definitions) or []
    partition = next(each.name.original for each in definitions if each.id == moved)
    query = f"ALTER TABLE {_full(name_of(new))} EXCHANGE PARTITION {quote_name(partition)} WITH TABLE {_full(other)}"
    query += _UNCHECKED if job.query.upper().endswith(_UNCHECKED) else ""
    return _Change(old, new, query, job.type, other)


def _is_sent(change: _Change, job: Job, commit_ts: int, tables: Tables) -> bool:
    before, after = change.before, change.after
    matched = [each is not None and tables.matches(*name_of(each)) for each in (before, after)]
    if change.type == ActionType.RENAME_TABLE and before is not None and after is not None:
        if matched == [False, True]:
            raise RenameRefused(
                f"DDL job {job.id} at {commit_ts}: {name_of(before)}, which the filter excludes, becomes "
                f"{name_of(after)}, which it includes ({job.query!a:.200}); its earlier rows are not downstream: let "
                f"the filter include both names from a start-ts before the table was created, or exclude the new name"
            ).at(table=str(name_of(after)), commit_ts=commit_ts)
        matched = matched[:1]
    if not any(matched):
        return False
    eligible = tables.eligible(_shown(change))
    if not eligible and before is not None and after is not None and tables.eligible(before):
        raise SchemaError(
            f"DDL job {job.id} at {commit_ts}: {name_of(after)} has no primary or NOT NULL unique key any more "
            f"({job.query!a:.200}), so its rows cannot be distinguished; set force-replicate=true to continue with it"
        ).at(table=str(name_of(after)), commit_ts=commit_ts)
    return eligible and (before is None or tables.eligible(before))


def _shown(change: _Change) -> TableVersion:
    version = change.after or change.before
    assert version is not None
    return version


def _event(change: _Change, commit_ts: int, job: Job) -> DdlEvent:
    name = name_of(_shown(change))
    old = () if change.before is None else change.before.stored.cols or ()
    new = () if change.after is None else change.after.stored.cols or ()
    column_ids = {column.id for column in old}
    partition = None if change.after is None else change.after.stored.partition
    parts = (partition and partition.definitions) or ()
    session = session_of(job, change.query, name.schema, [table for table in new if table.id not in column_ids], parts)
    ddl = Ddl(
        schema=name.schema,
        table=name.table,
        query=change.query,
        commit_ts=commit_ts,
        type=int(change.type),
        session=session,
    )
    return DdlEvent(ddl, change.previous)


def _full(name: TableName) -> str:
    return quote_names(name.schema, name.table)


_NUMBER: Final = re.compile(r"-?[0-9]+")
_QUARTER: Final = timedelta(minutes=15)
"""The unit of time zone offsets; a statement begins at most minutes before its job."""
_FURTHEST: Final = timedelta(hours=14)
"""The largest offset of a time zone in TiDB."""


def session_of(
    job: Job,
    query: str,
    schema: str,
    come: Sequence[StoredColumn],
    partitions: Sequence[StoredPartitionDef] = (),
) -> DdlSession:
    """Return the known values of a job's session; `come` are the columns that the statement added or changed,
    `partitions` all partitions of the table, as stored."""
    zone = zone_of_job(job) or _zone_of_defaults(job, query, schema, come) or _zone_of_bounds(query, schema, partitions)
    return DdlSession(zone, ",".join(sorted(mode_names(job.sql_mode))), _moment(come, zone))


def zone_of_job(job: Job) -> str:
    """Return the time zone in which a job rewrites rows; "" if it is unknown."""
    if bytes(job.reorg_meta) == b"null":
        return ""
    location = reorg_meta(job).location
    if not location.name:
        return _offset(timedelta(seconds=location.offset))
    try:
        session_zone(location.name, UTC)
    except ConfigError:  # "Local", or a zone that this machine does not have
        return ""
    return location.name


def _zone_of_defaults(job: Job, query: str, schema: str, come: Sequence[StoredColumn]) -> str:
    """The time zone offset that new columns show; "" if unknown."""
    instants = {
        MysqlType(column.type.tp): kept for column in come if is_moment(column.default) and (kept := _instant(column))
    }
    clock = instants.get(MysqlType.DATETIME)
    if clock is not None:
        begun = to_datetime(Tso(job.real_start_ts or job.start_ts)).replace(tzinfo=None)
        return _offset(round((clock - instants.get(MysqlType.TIMESTAMP, begun)) / _QUARTER) * _QUARTER)
    texts = [
        column
        for column in come
        if column.type.tp == MysqlType.TIMESTAMP and column.default and not is_moment(column.default)
    ]
    columns = [column for statement in _statements(query, schema) for column in _columns(statement)] if texts else []
    written = {
        column.name.lower(): column.default.value for column in columns if isinstance(column.default, DefaultText)
    }
    for new_column in texts:
        written_moment, kept_moment = _parsed(written.get(new_column.name.lower, "")), _parsed(str(new_column.default))
        if written_moment is not None and kept_moment is not None:
            return _offset(written_moment - kept_moment)
    return ""


def _zone_of_bounds(query: str, schema: str, partitions: Sequence[StoredPartitionDef]) -> str:
    """The time zone offset that bounds of partitions show; "" if unknown."""
    if not partitions or not MOMENT.search(query):
        return ""
    written = {
        lowered(definition.name): definition
        for statement in _statements(query, schema)
        for definition in _definitions(statement)
    }
    for definition in partitions:
        texts = written[definition.name.lower].less_than if definition.name.lower in written else ()
        for text, kept in zip(texts, definition.less_than or (), strict=False):
            instant = number_of(text, "UTC") if MOMENT.search(text) else None
            if instant is not None and _NUMBER.fullmatch(kept):
                return _offset(timedelta(seconds=instant - int(kept)))
    return ""


def _moment(come: Sequence[StoredColumn], zone: str) -> str:
    """The time in the origin defaults of new columns, in UTC, with the most digits that one of them has."""
    times = [
        str(
            kept
            if column.type.tp == MysqlType.TIMESTAMP
            else kept.replace(tzinfo=session_zone(zone, UTC)).astimezone(UTC).replace(tzinfo=None)
        )
        for column in come
        if is_moment(column.default) and (kept := _instant(column)) is not None
    ]
    return max(times, key=len, default="")


def _instant(column: StoredColumn) -> datetime | None:
    return None if column.origin_default is None else _parsed(str(column.origin_default))


def _parsed(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _statements(query: str, schema: str) -> list[Statement]:
    try:
        return list(parse_ddl(query, schema))
    except InputError:
        return []


def former_names(query: str, schema: str) -> dict[str, str]:
    """Return the names in lower case that CHANGE COLUMN gives columns, each with the former one."""
    specs = [
        each
        for statement in _statements(query, schema)
        if isinstance(statement, AlterTable)
        for each in statement.specs
    ]
    return {lowered(each.column.name): lowered(each.name) for each in specs if isinstance(each, ModifyColumn)}


def _definitions(statement: object) -> Iterator[PartitionDef]:
    match statement:
        case CreateTable(partition=PartitionInfo(definitions=definitions)):
            yield from definitions
        case AlterTable(specs=specs):
            for spec in specs:
                match spec:
                    case AddPartitions(definitions=definitions) | ReorganizePartitions(definitions=definitions):
                        yield from definitions
                    case PartitionBy(PartitionInfo(definitions=definitions)):
                        yield from definitions


def _columns(statement: object) -> Iterator[ColumnDef]:
    match statement:
        case CreateTable(columns=columns):
            yield from columns
        case AlterTable(specs=specs):
            for spec in specs:
                match spec:
                    case AddColumns(columns=columns):
                        yield from columns
                    case ModifyColumn(column=column):
                        yield column


def _offset(east: timedelta) -> str:
    """The time zone at that offset; "" for an impossible one."""
    if abs(east) > _FURTHEST:
        return ""
    minutes = round(east.total_seconds() / 60)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


JOBS: Final[Span] = table_span(JOB_TABLE.id)
_ENDED: Final = frozenset({JobState.DONE, JobState.SYNCED, JobState.CANCELLED, JobState.ROLLBACK_DONE})


def stage_of(job: Job) -> str:
    """Return the schema state of a job that runs, such as `write-only`, else the state of the job."""
    try:
        if job.state == JobState.RUNNING:
            return ElementState(job.schema_state).label
        return JobState(job.state).name.lower().replace("_", " ")
    except ValueError:  # of a TiDB that has more of them
        return f"state {job.state}/{job.schema_state}"


class Timeline:
    """The schema at `at`, and the jobs above it that were read so far."""

    def __init__(
        self,
        log: KvLog,
        rules: TableFilter,
        *,
        force: bool = False,
        keeps: bool = False,
        events: EventFilter | None = None,
        ticdc_texts: bool = False,
        bdr: bool = False,
    ) -> None:
        self.tables = Tables(rules.matches, force=force, keeps=keeps)
        self.snapshot = StoredSnapshot()
        self.ts = 0
        """The ts of the snapshot."""
        self._log, self._rules, self._events = log, rules, events or EventFilter()
        self._ticdc_texts, self._bdr = ticdc_texts, bdr
        self._read = 0
        self._seen: set[int] = set()
        self._ahead: deque[tuple[int, Job]] = deque()
        self._jobs: dict[bytes, Job] = {}
        self.running: tuple[DdlJob, ...] = ()
        """The jobs of the filter's tables that run upstream, as of what was read."""

    def start(self, ts: int, carried: Container[tuple[str, str]] | None = None, carried_at: int = 0) -> None:
        """Start with the schema at `ts`, for a feed whose sink has the tables `carried` at `carried_at`, which may be
        earlier.

        HistoryLost when the log begins above `ts`."""
        begin, self.snapshot, _ = self._log.begin()
        if ts < begin:
            raise HistoryLost(
                f"the change log begins at {begin}, but {ts} is requested: changes between were removed. Start a new "
                f"changefeed without start-ts, with an empty target; a longer --log-keep of the upstream, or no pause "
                f"of the changefeed beyond gc-ttl, avoids this"
            )
        self._read = begin
        self._seen.clear()
        self._ahead.clear()
        self._jobs.clear()
        self.read(ts)
        self.tables.note(self.snapshot.tables.values(), begun=False)
        if carried is not None and carried_at >= begin:
            self._pass(min(carried_at, ts))
            self.tables.carry(carried, self.snapshot)
        self._pass(ts)
        self.tables.note(self.snapshot.tables.values())
        self.ts = ts

    def _pass(self, ts: int) -> None:
        while self._ahead and self._ahead[0][0] <= ts:
            commit_ts, job = self._ahead.popleft()
            self.snapshot = apply_job(self.snapshot, job, commit_ts)
            self.tables.note(_changed(job, self.snapshot), instead_of=job.table_id, begun=False)

    def read(self, upto: int) -> None:
        """Read jobs up to `upto`."""
        if upto <= self._read:
            return
        is_new = False
        for row in self._log.rows(self._read, upto, (JOBS,)):
            is_new = True
            if row.op is not KvOp.PUT or not row.value:
                self._jobs.pop(row.key, None)
                continue
            self._jobs[row.key] = job = decode_job_row(row.key, row.value)
            if job.state == JobState.DONE and job.id not in self._seen:
                self._seen.add(job.id)
                if is_followed(job):
                    self._ahead.append((row.commit_ts, msgspec.structs.replace(job, start_ts=row.start_ts)))
        self._read = upto
        if is_new:
            self.running = tuple(
                DdlJob(job.query, stage_of(job), job.start_ts)
                for job in self._jobs.values()
                if job.state not in _ENDED
                and (
                    self._rules.matches(job.schema_name, job.table_name)
                    if job.table_name
                    else self._rules.matches_schema(job.schema_name)
                )
            )

    def stop(self) -> int | None:
        """Return the ts of the next DDL among those read."""
        return self._ahead[0][0] if self._ahead else None

    def walk(self, ts: int) -> list[DdlEvent]:
        """Advance to `ts`, at or before the next stop, and return the events of the DDLs at `ts`, with left-out ones
        marked. Raises SchemaError for a job that contradicts the schema, and does not advance then."""
        try:
            return self._walked(ts)
        except TidegateError as error:
            error.at(commit_ts=ts)
            raise

    def _walked(self, ts: int) -> list[DdlEvent]:
        events: list[DdlEvent] = []
        while self._ahead and self._ahead[0][0] == ts:
            job = self._ahead[0][1]
            before, after = self.snapshot, apply_job(self.snapshot, job, ts)
            wants_schema = self._rules.matches_schema(schema_name(job, before))
            job_events = ddl_events(job, ts, before, after, self.tables, wants_schema=wants_schema)
            stays = self._bdr and (job.bdr_role != PRIMARY or bool(job.cdc_write_source))
            for each in job_events:
                left_out = stays or self._events.drops_ddl(each.ddl, each.previous, job.start_ts)
                sent = restored(each, job) if self._ticdc_texts else each
                events.append(sent._replace(left_out=left_out, rows_follow=self._log.rests_at(ts) > ts))
            self.tables.note(_changed(job, after), instead_of=job.table_id)
            self.snapshot = after
            self._ahead.popleft()
        assert not self._ahead or self._ahead[0][0] > ts, (self._ahead[0][0], ts)
        self.ts = ts
        return events


def _changed(job: Job, after: StoredSnapshot) -> list[TableVersion]:
    binlog = job.binlog
    stored = [] if binlog is None else [*([binlog.table] if binlog.table else []), *(binlog.tables or ())]
    return [after.tables[stored_table.id] for stored_table in stored if stored_table.id in after.tables]
