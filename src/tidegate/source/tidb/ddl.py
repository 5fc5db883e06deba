"""A finished DDL job as the events that a changefeed sends.

    job ── does TiCDC follow its action? ── has it changed anything? ── filter ── eligible? ──► events

    action                    events   name                  query
    database                  1        the database's        the job's
    DROP TABLE, DROP VIEW     1        the old one           DROP TABLE `db`.`t`: the job's may name several tables
    RENAME of several tables  each     the new one           RENAME TABLE `db`.`t` TO `db`.`u`, as type RENAME TABLE
    RENAME, a table twice     1        the first one's new   RENAME TABLE of all in order, as type RENAME TABLES
    CREATE of several tables  each     the table's           its own statement out of the job's
    EXCHANGE PARTITION        1        the partitioned one   ALTER TABLE .. EXCHANGE PARTITION with full names
    CREATE TABLE .. LIKE      1        the new one           the job's; CREATE TABLE in full where its like has changed
    any other                 1        the new one           the job's: the user's text

A LIKE takes over what its like was when the statement came.  A job that was queued first may end before it, and the
text would tell of columns that the new table does not have; of one that is left out it would tell nothing.

`restored` prints that text as TiCDC does before any sink sees it (ddl-text=ticdc).

    RENAME   old name taken by the filter   new name taken   then
             yes                            any              sent
             no                             no               not sent
             no                             yes              RenameRefused: rows from before are missing downstream

A table that is not eligible has no DDL events, nor has it later, with a key (tables.py); one that stops being eligible
is an error, since its rows would stop unseen.  `previous` is the name that a table had before; by it DDLs find their
topic.

Source: TiCDC's DDL puller and DDLEvent; recorded DDL events.
"""

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from tidegate.expr.tokens import quote_name, quote_names
from tidegate.model.errors import RenameRefused, SchemaError, SqlError
from tidegate.model.event import Ddl
from tidegate.model.mysql import ActionType
from tidegate.model.table import TableName
from tidegate.schema.cursor import Cursor
from tidegate.schema.job import PRIMARY, Job, mode_names
from tidegate.schema.parse_ddl import parse
from tidegate.schema.restore_ddl import restore_ddl
from tidegate.schema.statement import CreateTableLike
from tidegate.schema.stored.create import render_create_table, render_shape
from tidegate.schema.stored.definition import StoredTable
from tidegate.schema.stored.snapshot import REPLICATED, StoredSnapshot, TableVersion, is_circle, rename_steps
from tidegate.source.tidb.session import session_of
from tidegate.source.tidb.tables import Tables, name_of

LOGGER: Final = logging.getLogger(__name__)
_SCHEMAS: Final = frozenset({ActionType.CREATE_SCHEMA, ActionType.DROP_SCHEMA, ActionType.MODIFY_SCHEMA_CHARSET})
_DROPS: Final = {ActionType.DROP_TABLE: "TABLE", ActionType.DROP_VIEW: "VIEW"}
_UNCHECKED: Final = " WITHOUT VALIDATION"


class DdlEvent(NamedTuple):
    """A DDL and the name that its table had before, if it had one; `left_out` by an event filter or by bdr-mode."""

    ddl: Ddl
    previous: TableName | None = None
    left_out: bool = False


class _Change(NamedTuple):
    """What a job does to one table."""

    before: TableVersion | None
    after: TableVersion | None
    query: str
    type: int
    previous: TableName | None


def is_followed(job: Job) -> bool:
    """Return whether TiCDC acts on a finished job: an action of its list that was no IF NOT EXISTS."""
    return job.type in REPLICATED and job.binlog is not None and job.binlog.schema_version != 0


def is_primarys(job: Job) -> bool:
    """Return whether a user ran a job on the primary of a replication in both directions: others follow it."""
    return job.bdr_role == PRIMARY and not job.cdc_write_source


def ddl_events(
    job: Job, commit_ts: int, before: StoredSnapshot, after: StoredSnapshot, tables: Tables, *, wants_schema: bool
) -> list[DdlEvent]:
    """Return the events of a finished job that made `after` of `before`; `wants_schema` says whether the filter takes
    the job's database itself.

    RenameRefused for a table that enters the filter, SchemaError for one that stops being eligible."""
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
    """Return `event` with the text that TiCDC sends; the user's own, with a warning, where that would not do.

    It would not for a text that we cannot print, and for one whose strings TiCDC's text changes (backslashes in ENUM
    and SET elements and in comments of tables and keys)."""
    ddl = event.ddl
    try:
        found = restore_ddl(ddl.query, mode_names(job.sql_mode), job.charset)
    except SqlError as error:
        LOGGER.warning("DDL at ts %s goes as it was written: %s: %.500s", ddl.commit_ts, error, ddl.query)
        return event
    if found.loses:
        LOGGER.warning(
            "DDL at ts %s goes as it was written: TiCDC's text would lose backslashes: %.500s", ddl.commit_ts, ddl.query
        )
        return event
    return event._replace(ddl=msgspec.structs.replace(ddl, query=found.text, written=ddl.query))


def schema_name(job: Job, before: StoredSnapshot) -> str:
    """Return the name of the database that a job is about."""
    made = job.binlog.schema if job.binlog else None
    known = before.schemas.get(job.schema_id)
    return made.name.original if made else known.name.original if known else job.schema_name


def statements(query: str) -> list[str]:
    """Return the statements of a text, without the semicolons between them; SqlError for what is no SQL."""
    cursor, found, start = Cursor(query), [], 0
    while True:
        cursor.rest()
        end = cursor.peek().start if cursor.is_sign(";") else len(query)
        found.append(query[start:end].strip())
        if not cursor.sign(";"):
            return [each for each in found if each]
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
            yield from _created(job, after)
        case ActionType.EXCHANGE_TABLE_PARTITION:
            yield _exchanged(job, before, after)
        case _:
            stored_table = job.binlog.table if job.binlog else None
            if stored_table is None:
                raise SchemaError(f"DDL job {job.id} ({job.query!a:.200}): the job has no table definition")
            known = before.tables.get(stored_table.id) or before.tables.get(job.table_id)
            previous = None if known is None else name_of(known)
            query = job.query
            if job.type == ActionType.CREATE_TABLE and not _tells_all(job, stored_table, before, tables):
                query = render_create_table(stored_table, schema=schema_name(job, before))
            yield _Change(known, after.tables[stored_table.id], query, job.type, previous)


def _tells_all(job: Job, made: StoredTable, before: StoredSnapshot, tables: Tables) -> bool:
    """Whether the text of CREATE TABLE makes this table; it may not where a LIKE names one that has changed since, or
    that is left out."""
    if "LIKE" not in job.query.upper():
        return True
    try:
        found = parse(job.query, schema_name(job, before))
    except SqlError:
        return True
    if len(found) != 1 or not isinstance(found[0], CreateTableLike):
        return True
    like = found[0]
    candidates = (one for one in tables.replicated(before) if name_of(one).key[1] == like.source.key[1])
    return any(
        (like.doubtful or name_of(one).key == like.source.key) and render_shape(one.stored) == render_shape(made)
        for one in candidates
    )


def _circle(job: Job, commit_ts: int, before: StoredSnapshot, after: StoredSnapshot, tables: Tables) -> list[DdlEvent]:
    """Return the one event of renames that only make sense together; RenameRefused if the filter takes some of them."""
    steps = rename_steps(job)
    moved = {step.table_id: (before.tables[step.table_id], after.tables[step.table_id]) for step in steps}
    taken = {i: tables.matches(*name_of(old)) and tables.eligible(new) for i, (old, new) in moved.items()}
    entering = [name_of(new) for old, new in moved.values() if tables.matches(*name_of(new))]
    if not any(taken.values()) and not entering:
        return []
    if not all(taken.values()):
        left = ", ".join(str(name_of(moved[i][0])) for i, is_taken in taken.items() if not is_taken)
        raise RenameRefused(
            f"DDL job {job.id} at {commit_ts} renames tables in a circle ({job.query!a:.200}), and {left} of them "
            "is left out; let the filter take all tables of the circle, or none"
        ).at(table=left, commit_ts=commit_ts)
    names, pairs = {number: name_of(old) for number, (old, _) in moved.items()}, list[str]()
    for step in steps:
        then = TableName(after.schemas[step.new_schema_id].name.original, step.new_table_name.original)
        pairs.append(f"{_full(names[step.table_id])} TO {_full(then)}")
        names[step.table_id] = then
    old, new = moved[steps[0].table_id]
    return [_event(_Change(old, new, f"RENAME TABLE {', '.join(pairs)}", job.type, name_of(old)), commit_ts, job)]


def _created(job: Job, after: StoredSnapshot) -> Iterator[_Change]:
    tables, queries = (job.binlog and job.binlog.tables) or [], statements(job.query)
    if len(tables) != len(queries):
        raise SchemaError(f"DDL job {job.id} makes {len(tables)} tables by {len(queries)} statements")
    for stored, query in zip(tables, queries, strict=True):
        yield _Change(None, after.tables[stored.id], query, ActionType.CREATE_TABLE, None)


def _exchanged(job: Job, before: StoredSnapshot, after: StoredSnapshot) -> _Change:
    assert job.binlog is not None
    assert job.binlog.table is not None
    new = after.tables[job.binlog.table.id]
    old = before.tables[new.stored.id]
    (came,) = set(new.stored.physical_ids) - set(old.stored.physical_ids)
    other = name_of(before.tables[came])
    definitions = (new.stored.partition and new.stored.partition.definitions) or []
    partition = next(each.name.original for each in definitions if each.id == came)
    query = f"ALTER TABLE {_full(name_of(new))} EXCHANGE PARTITION {quote_name(partition)} WITH TABLE {_full(other)}"
    query += _UNCHECKED if job.query.upper().endswith(_UNCHECKED) else ""
    return _Change(old, new, query, job.type, other)


def _is_sent(change: _Change, job: Job, commit_ts: int, tables: Tables) -> bool:
    before, after = change.before, change.after
    matched = [each is not None and tables.matches(*name_of(each)) for each in (before, after)]
    if change.type == ActionType.RENAME_TABLE and before is not None and after is not None:
        if matched == [False, True]:
            raise RenameRefused(
                f"DDL job {job.id} at {commit_ts}: {name_of(before)}, which the filter leaves out, becomes "
                f"{name_of(after)}, which it takes ({job.query!a:.200}); its rows from before are not downstream: let "
                "the filter take both names from a start-ts before the table was made, or leave the new name out"
            ).at(table=str(name_of(after)), commit_ts=commit_ts)
        matched = matched[:1]
    if not any(matched):
        return False
    eligible = tables.eligible(_shown(change))
    if not eligible and before is not None and after is not None and tables.eligible(before):
        raise SchemaError(
            f"DDL job {job.id} at {commit_ts}: {name_of(after)} has no primary or NOT NULL unique key any more "
            f"({job.query!a:.200}), so its rows cannot be told apart; set force-replicate=true to go on with it"
        ).at(table=str(name_of(after)), commit_ts=commit_ts)
    return eligible and (before is None or tables.eligible(before))


def _shown(change: _Change) -> TableVersion:
    """The table as the event names it."""
    found = change.after or change.before
    assert found is not None
    return found


def _event(change: _Change, commit_ts: int, job: Job) -> DdlEvent:
    name = name_of(_shown(change))
    old = () if change.before is None else change.before.stored.cols or ()
    new = () if change.after is None else change.after.stored.cols or ()
    there = {column.id for column in old}
    partition = None if change.after is None else change.after.stored.partition
    parts = (partition and partition.definitions) or ()
    session = session_of(job, change.query, name.schema, [one for one in new if one.id not in there], parts)
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
