"""Commands: what is neither rows nor definitions, found by its first word.

    BEGIN, START TRANSACTION, COMMIT, ROLLBACK [TO s], SAVEPOINT s, RELEASE SAVEPOINT s
    SET, USE, SHOW, DESC, DESCRIBE, EXPLAIN t, KILL
    ADMIN SHOW DDL JOBS [n] [WHERE ..]        those that run, then the newest n (10) that are over
    ADMIN CANCEL DDL JOBS 118, 119            one line each: successful, or error: ..
    ADMIN SET BDR ROLE PRIMARY, SECONDARY     a role in replication in both directions; ADMIN UNSET, SHOW BDR ROLE
    ADMIN CHECK TABLE t, u                    nothing when rows and index entries agree, else 8223
    accepted, and nothing to do here: LOCK TABLES, FLUSH, ANALYZE, GRANT, CREATE USER ..

Source: MySQL manual, "SQL Statements"; TiDB documentation, "SQL Statement Overview", "ADMIN SHOW DDL
JOBS", "ADMIN CANCEL DDL", "ADMIN [SET|SHOW|UNSET] BDR ROLE", "ADMIN CHECK [TABLE|INDEX]".
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

from tidegate.expr.relation import FixedRelation, ResultSet
from tidegate.expr.syntax.parse import Command
from tidegate.expr.syntax.words import RESERVED
from tidegate.model.errors import SqlRefused
from tidegate.model.name import all_digits
from tidegate.mysql.context import Context
from tidegate.mysql.value.kinds import SqlValue
from tidegate.schema.cursor import Cursor
from tidegate.schema.job import PRIMARY
from tidegate_upstream.change.role import SECONDARY
from tidegate_upstream.tidb.information.job import job_row
from tidegate_upstream.tidb.information.relations import columns_of
from tidegate_upstream.tidb.sql.outcome import Outcome
from tidegate_upstream.tidb.sql.rows.check import check_table, refusal
from tidegate_upstream.tidb.sql.session.client import SessionClient
from tidegate_upstream.tidb.sql.session.set import SetScope, apply, read_set
from tidegate_upstream.tidb.sql.show.statement import describe, show
from tidegate_upstream.tidb.sql.variable.variables import EXTERNAL_TS

_Answer: TypeAlias = ResultSet | Outcome
_Rule: TypeAlias = Callable[[SessionClient, Cursor, Context], _Answer]
_HISTORY: Final = 10
_JOBS: Final = (
    "JOB_ID# DB_NAME TABLE_NAME JOB_TYPE SCHEMA_STATE SCHEMA_ID# TABLE_ID# ROW_COUNT# CREATE_TIME@ START_TIME@ "
    "END_TIME@ STATE COMMENTS"
)
_IGNORED: Final = frozenset(
    {"LOCK", "UNLOCK", "FLUSH", "ANALYZE", "GRANT", "REVOKE", "CREATE", "ALTER", "DROP", "RENAME"}
    | {"OPTIMIZE", "SPLIT", "CHECKSUM", "BACKUP", "RESTORE"}
)


def run_command(session: SessionClient, command: Command, context: Context) -> _Answer:
    """Return what a command does. Raises SqlError, SqlRefused."""
    if command.kind in _IGNORED:
        if command.kind != "UNLOCK":  # commits only what LOCK TABLES began, and that is nothing
            session.transaction.commit()
        return Outcome()
    rule = _RULES.get(command.kind)
    cursor = Cursor(command.text, session.state.sql_mode - {"ANSI_QUOTES"}, reserved=RESERVED)
    if rule is None:
        raise cursor.error("not a statement that is known here")
    if rule is not _set:
        cursor.next()
    return rule(session, cursor, context)


# --- transactions ---


def _begin(session: SessionClient, cursor: Cursor, _context: Context) -> _Answer:
    cursor.accept("PESSIMISTIC", "OPTIMISTIC")
    _end(cursor)
    return _open(session, read_only=False)


def _start(session: SessionClient, cursor: Cursor, _context: Context) -> _Answer:
    cursor.expect("TRANSACTION")
    read_only = False
    while not cursor.done():
        if cursor.accept("WITH CONSISTENT SNAPSHOT", "READ WRITE", "WITH CAUSAL CONSISTENCY ONLY"):
            pass
        elif cursor.accept("READ ONLY"):
            read_only = True
        else:
            raise cursor.error("unexpected text")
        cursor.sign(",")
    return _open(session, read_only=read_only)


def _open(session: SessionClient, *, read_only: bool) -> Outcome:
    session.transaction.begin(read_only=read_only or bool(session.state.variables["transaction_read_only"]))
    return Outcome()


def _commit(session: SessionClient, _cursor: Cursor, _context: Context) -> _Answer:
    session.transaction.commit()
    return Outcome()


def _rollback(session: SessionClient, cursor: Cursor, _context: Context) -> _Answer:
    cursor.accept("WORK")
    if cursor.accept("TO"):
        cursor.accept("SAVEPOINT")
        session.transaction.rollback_to(cursor.name("a savepoint"))
    else:
        session.transaction.rollback()
    return Outcome()


def _savepoint(session: SessionClient, cursor: Cursor, _context: Context) -> _Answer:
    session.transaction.savepoint(cursor.name("a savepoint"))
    return Outcome()


def _release(session: SessionClient, cursor: Cursor, _context: Context) -> _Answer:
    cursor.expect("SAVEPOINT")
    session.transaction.release(cursor.name("a savepoint"))
    return Outcome()


def _end(cursor: Cursor) -> None:
    if not cursor.done():
        raise cursor.error("unexpected text")


# --- settings ---


def _set(session: SessionClient, cursor: Cursor, context: Context) -> _Answer:
    state = session.state
    was = state.variables["autocommit"]

    def snapshot(value: SqlValue) -> str:
        moment = None if value in ("", None) else session.moment(value)
        session.snapshot_ts = None if moment is None else session.node.storage.snapshot(moment).ts
        return "" if moment is None else str(value)

    def external(value: SqlValue) -> SqlValue:
        known = str(value)
        if all_digits(known) and int(known) > session.node.storage.oracle.newest:
            raise SqlRefused(1105, "external timestamp is greater than global tso", "HY000")
        return value

    hooks = {(SetScope.SESSION, "tidb_snapshot"): snapshot, (SetScope.GLOBAL, EXTERNAL_TS): external}
    assigns = read_set(cursor.text, state.sql_mode - {"ANSI_QUOTES"})
    apply(assigns, state, session.evaluate, context.warn, hooks)
    state.sql_mode, state.zone  # noqa: B018  refuse what they cannot read
    if state.variables["autocommit"] and not was:
        session.transaction.commit()
    return Outcome()


def _use(session: SessionClient, cursor: Cursor, _context: Context) -> _Answer:
    session.use(cursor.name("a database"))
    return Outcome()


# --- looking and acting ---


def _show(session: SessionClient, cursor: Cursor, context: Context) -> _Answer:
    return show(cursor, session.view(context))


def _describe(session: SessionClient, cursor: Cursor, context: Context) -> _Answer:
    if cursor.accept("SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "ANALYZE", "FORMAT"):
        raise SqlRefused(1235, "This version of Tidegate doesn't yet support 'EXPLAIN of statements'", "42000")
    return describe(cursor, session.view(context))


def _kill(session: SessionClient, cursor: Cursor, _context: Context) -> _Answer:
    cursor.accept("TIDB")
    query_only = cursor.accept("CONNECTION", "QUERY") == "QUERY"
    number = cursor.integer("a connection's number")
    if session.peers is None:
        raise SqlRefused(1094, f"Unknown thread id: {number}", "HY000")
    session.peers.kill(number, query_only=query_only)
    return Outcome()


# --- ADMIN ---


def _admin(session: SessionClient, cursor: Cursor, context: Context) -> _Answer:
    for words, rule in _ADMIN.items():
        if cursor.accept(words):
            return rule(session, cursor, context)
    raise cursor.error("ADMIN of something that is not known")


def _show_jobs(session: SessionClient, cursor: Cursor, context: Context) -> _Answer:
    count = cursor.integer("a number of jobs") if not (cursor.done() or cursor.looking_at("WHERE")) else _HISTORY
    condition = "TRUE"
    if cursor.accept("WHERE"):
        condition = cursor.rest()
    client = session.node.ddl_client
    jobs = [*client.jobs(), *client.history()[:count]]
    return _rows(session, context, _JOBS, [(*job_row(job, session.state.zone), "") for job in jobs], condition)


def _cancel(session: SessionClient, cursor: Cursor, context: Context) -> _Answer:
    rows: list[tuple[SqlValue, ...]] = []
    for number in cursor.several(lambda here: here.integer("a job's number")):
        try:
            session.node.ddl_client.cancel(number)
        except SqlRefused as refused:
            rows.append((str(number), f"error: [ddl:{refused.mysql_code}]{refused.message}"))
        else:
            rows.append((str(number), "successful"))
    return _rows(session, context, "JOB_ID RESULT", rows)


def _check(session: SessionClient, cursor: Cursor, context: Context) -> _Answer:
    view, more = session.view(context), True
    while more:
        named = cursor.qualified()
        shape = session.tools.shapes.of(view.table(named.schema or session.state.database, named.table).stored)
        faults = session.transaction.read(partial(check_table, shape=shape, context=context), passing=True)
        if faults:
            raise refusal(shape, faults[0])
        more = cursor.sign(",")
    return Outcome()


def _set_role(session: SessionClient, cursor: Cursor, _context: Context) -> _Answer:
    role = cursor.expect(PRIMARY.upper(), SECONDARY.upper()).lower()
    _end(cursor)
    session.node.ddl_client.set_bdr_role(role)
    return Outcome()


def _unset_role(session: SessionClient, cursor: Cursor, _context: Context) -> _Answer:
    _end(cursor)
    session.node.ddl_client.set_bdr_role("")
    return Outcome()


def _show_role(session: SessionClient, cursor: Cursor, context: Context) -> _Answer:
    _end(cursor)
    return _rows(session, context, "BDR_ROLE", [(session.node.ddl_client.bdr_role(),)])


def _rows(
    session: SessionClient, context: Context, columns: str, rows: list[tuple[SqlValue, ...]], condition: str = "TRUE"
) -> ResultSet:
    return session.view(context).choose(FixedRelation("shown", columns_of(columns), rows), condition)


_ADMIN: Final[Mapping[str, _Rule]] = {
    "SHOW DDL JOBS": _show_jobs,
    "CANCEL DDL JOBS": _cancel,
    "CHECK TABLE": _check,
    "SET BDR ROLE": _set_role,
    "UNSET BDR ROLE": _unset_role,
    "SHOW BDR ROLE": _show_role,
}
_RULES: Final[Mapping[str, _Rule]] = {
    "BEGIN": _begin,
    "START": _start,
    "COMMIT": _commit,
    "ROLLBACK": _rollback,
    "SAVEPOINT": _savepoint,
    "RELEASE": _release,
    "SET": _set,
    "USE": _use,
    "SHOW": _show,
    "DESC": _describe,
    "DESCRIBE": _describe,
    "EXPLAIN": _describe,
    "ADMIN": _admin,
    "KILL": _kill,
}
