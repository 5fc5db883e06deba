"""A session: executes SQL statements one after the other, including DDL and the wait for its jobs.

    Session(node).execute("BEGIN; INSERT INTO t VALUES (1); SELECT * FROM t")      [Outcome, Outcome, ResultSet]

    text ── parse ──► Dml       INSERT, UPDATE, DELETE    in a transaction that may write      transaction.py
                      │         SELECT                    in it, in the past, or alone         commands.py
                      ├► DdlText   jobs, waited for       after an implicit commit             `run_ddl`
                      └► Command   found by its first word: SET, SHOW, BEGIN ..                commands.py

A statement sees one timestamp, one schema and one context; its warnings and counts become the session's.  A
session belongs to one thread at a time; only `interrupt` is called from others.

    DDL text ──schema/parse──► Statement ──plan──► requests ──submit──► jobs, one after the other ──► done, or an error
               with 1064                  1050, 1146, ..

A DDL commits the open transaction first.  When the session is interrupted, its job is asked to cancel, as TiDB does for
KILL, and the outcome is waited for.  After each job the node loads the new version, so that the next statement sees it.

Source: TiDB pkg/session, pkg/ddl (executor.go: DoDDLJob); MySQL manual, "SQL Statements".
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from threading import Event
from typing import Final

from sqlglot import exp

from tidegate.expr.compiler import compile_text
from tidegate.expr.parse import Command, DdlText, Dml, Parsed, syntax_error
from tidegate.expr.scope import ResultSet, Scope
from tidegate.expr.tokens import RESERVED
from tidegate.model.errors import SqlError, SqlRefused, TidegateError, UpstreamError
from tidegate.model.name import lowered
from tidegate.model.tso import physical_ms
from tidegate.mysql.values import Context, SqlValue, SqlWarning
from tidegate.schema.job import MODE_BITS, Job
from tidegate.schema.parse_ddl import parse_ddl
from tidegate.schema.stored.meta import Reader
from tidegate.schema.stored.snapshot import StoredSnapshot
from tidegate_upstream.change.plan import plan
from tidegate_upstream.change.session import DdlSession
from tidegate_upstream.tidb.commands import (
    Peers,
    StatementShapes,
    SystemRelations,
    information_of,
    moment_ts,
    run_command,
    set_names,
    tools_of,
    view_of,
)
from tidegate_upstream.tidb.dml import OpenTables, Outcome, PastTables, run_delete, run_insert, run_update
from tidegate_upstream.tidb.information_schema import InformationSchema, is_information
from tidegate_upstream.tidb.node import GuardedTransaction, Node
from tidegate_upstream.tidb.select import select
from tidegate_upstream.tidb.session_state import LockingReads, SessionLocks, SessionState, SessionTransaction
from tidegate_upstream.tidb.show import View
from tidegate_upstream.tidb.variables import (
    EXTERNAL_TS,
    EXTERNAL_TS_READ,
    GlobalVariables,
    SessionVariables,
)

_SLICE_MS: Final = 200
"""Interval at which a waiting session checks for an interrupt."""
_PATIENCE_MS: Final = 600_000
"""Maximal wait of ten minutes, so that a session that waits for another one of its own thread ends. The job
continues."""
_NEW_COUNTERS: Final = frozenset({13, 25, 35, 40, 42})
"""Actions that set counters of existing tables: rebases, RECOVER, ALTER SEQUENCE, EXCHANGE PARTITION."""
_LEVELS: Final = {"Note": "Note", "Warning": "Warning"}


def run_ddl(text: str, node: Node, state: SessionState, interrupted: Callable[[], None]) -> list[SqlWarning]:
    """Run the statements of a DDL text to their end; return their warnings. Raises SqlRefused."""
    warnings: list[SqlWarning] = []
    try:
        statements = parse_ddl(text, state.database, RESERVED)
    except SqlError as error:
        raise syntax_error(text, error.offset, str(error)) from error
    for statement in statements:
        node.reload()
        planned = plan(statement, node.schema, _session(text, node, state))
        warnings += [SqlWarning(_LEVELS[warning.level], warning.code, warning.message) for warning in planned.warnings]  # type: ignore[arg-type]
        for request in planned.requests:
            job_id = node.ddl_client.submit(request, _bits(state.sql_mode), state.zone, state.write_source)
            _finish(job_id, node, state.now_ms, interrupted)
            if _NEW_COUNTERS & {request.action, *(part.action for part in request.parts)}:
                tools_of(node).auto_ids.forget()
            node.reload()
    return warnings


def _session(text: str, node: Node, state: SessionState) -> DdlSession:
    variables = state.variables
    return DdlSession(
        database=state.database,
        query=text,
        charset=str(variables["character_set_server"]),
        collate=str(variables["collation_server"]),
        sql_mode=state.sql_mode,
        zone=state.zone,
        now=state.now,
        foreign_key_checks=bool(variables["foreign_key_checks"]),
        check_constraints=bool(variables["tidb_enable_check_constraint"]),
        clustered_index=variables["tidb_enable_clustered_index"] == "ON",
        dropped=node.ddl_client.dropped,
    )


def _bits(sql_mode: frozenset[str]) -> int:
    return sum(1 << MODE_BITS[mode] for mode in sql_mode if mode in MODE_BITS)


def _finish(job_id: int, node: Node, now_ms: Callable[[], int], interrupted: Callable[[], None]) -> Job:
    """Return the job when it has finished. Raises SqlRefused if it failed, or 1317; UpstreamError if the cluster is
    stuck."""
    until_ms = now_ms() + _PATIENCE_MS
    while True:
        try:
            interrupted()
        except UpstreamError:
            _give_up(job_id, node)
            raise
        began_ms = now_ms()
        try:
            return node.ddl_client.wait(job_id, _SLICE_MS)
        except SqlRefused:
            raise
        except UpstreamError:
            stands_still = now_ms() < began_ms + _SLICE_MS
            if stands_still or now_ms() > until_ms:
                raise


def _give_up(job_id: int, node: Node) -> None:
    """Request the cancellation of a job; one that is too far advanced goes on by itself."""
    with suppress(SqlRefused):
        node.ddl_client.cancel(job_id)


_ASKS: Final = re.compile(r"\s*SHOW\s+WARNINGS\b", re.IGNORECASE)
"""Statements that keep the warnings of the one before."""
_WRITES: Final = {exp.Insert: run_insert, exp.Update: run_update, exp.Delete: run_delete}


class Session:
    """A session at a node; `shared` are the global variables of its server."""

    def __init__(self, node: Node, shared: GlobalVariables | None = None, peers: Peers | None = None) -> None:
        self.node, self.peers, self.tools = node, peers, tools_of(node)
        self._shared = shared or GlobalVariables()
        oracle = node.storage.oracle
        self.state = SessionState.of(self._shared, lambda: physical_ms(oracle.next()), oracle.next)
        self.transaction = SessionTransaction(
            node,
            lambda: bool(self.state.variables["autocommit"]),
            self._stop_if_interrupted,
            lambda: self.state.write_source,
        )
        self.snapshot_ts: int | None = None
        with node.guard:
            node.sessions.add(self)
        self.running = ""
        self._interrupted = Event()
        self._locks = SessionLocks(self.tools.locks, lambda: self.connection_id, self._stop_if_interrupted)
        self.state.locks = self._locks
        self._shapes = StatementShapes()

    # --- what a server asks for ---

    @property
    def connection_id(self) -> int:
        return self.state.connection_id

    @connection_id.setter
    def connection_id(self, number: int) -> None:
        self.state.connection_id = number

    @property
    def database(self) -> str:
        return self.state.database

    @property
    def variables(self) -> SessionVariables:
        return self.state.variables

    @property
    def in_transaction(self) -> bool:
        return self.transaction.is_open

    @property
    def warning_count(self) -> int:
        return len(self.state.warnings)

    @property
    def past_ts(self) -> int | None:
        if self.snapshot_ts is None and self.state.variables[EXTERNAL_TS_READ]:
            return int(self.state.variables.shared[EXTERNAL_TS])
        return self.snapshot_ts

    @property
    def held_ts(self) -> int:
        oldest_ms = self.state.now_ms() - 1000 * int(self._shared["tidb_gc_max_wait_time"])
        return self.snapshot_ts if self.snapshot_ts and physical_ms(self.snapshot_ts) > oldest_ms else 0

    def interrupt(self) -> None:
        """Interrupt the running statement, which fails with 1317; thread-safe."""
        if self.running:
            self._interrupted.set()

    def set(self, name: str, value: str) -> None:
        """Set a variable of the handshake: `names`, the character set of the client."""
        assert name == "names", name
        set_names(self.state, value)

    def reset(self) -> None:
        """Reset the session: roll back, release locks, restore the server's variables."""
        self.close()
        old, oracle = self.state, self.node.storage.oracle
        self.state = SessionState.of(self._shared, old.now_ms, oracle.next)
        self.state.connection_id, self.state.user, self.state.locks = old.connection_id, old.user, self._locks

    def close(self) -> None:
        """Roll back and release locks and the snapshot."""
        self.snapshot_ts = None
        self.transaction.rollback()
        self._locks.release_all()

    def use(self, database: str) -> None:
        """USE. Raises SqlRefused 1049."""
        if is_information(database):
            self.state.database = lowered(database)
            return
        schema = self.view().database(database)
        self.state.database = schema.name.original
        self.state.variables.force("character_set_database", schema.charset)
        self.state.variables.force("collation_database", schema.collate)

    # --- statements ---

    def execute(self, sql: str) -> list[ResultSet | Outcome]:
        """Return the answers to all statements of a text. Raises the TidegateError of the first that fails."""
        return list(self.run(sql))

    def run(self, sql: str) -> Iterator[ResultSet | Outcome]:
        """Return the answers one by one: a statement runs when its answer is read."""
        try:
            statements = self._shapes.parse(sql, self.state.sql_mode)
        except TidegateError as error:
            raise self._failed(error) from error
        for statement in statements:
            yield self._statement(statement)

    def _statement(self, statement: Parsed) -> ResultSet | Outcome:
        self._interrupted.clear()
        self.running = statement.text
        start_ts = self.transaction.open.start_ts if self.transaction.open else 0
        self.state.variables.force("tidb_current_ts", start_ts)
        context = self.state.context(start_ts)
        try:
            answer = self._answer(statement, context)
        except TidegateError as error:
            raise self._failed(error) from error
        finally:
            self.running = ""
        if not _ASKS.match(statement.text):
            self.state.keep(context)
        if isinstance(answer, Outcome):
            self.state.row_count = answer.affected
            self.state.last_insert_id = answer.last_insert_id or self.state.last_insert_id
        else:
            self.state.row_count, self.state.found_rows = -1, len(answer.rows)
        return answer

    def _failed(self, error: TidegateError) -> TidegateError:
        """Return the error for the client, recorded for SHOW WARNINGS."""
        if isinstance(error, SqlError):
            error = syntax_error(self.running, error.offset, str(error))
        self.state.warnings = []
        self.state.blame(error)
        return error

    def _answer(self, statement: Parsed, context: Context) -> ResultSet | Outcome:
        if isinstance(statement, Command):
            return run_command(self, statement, context)
        if isinstance(statement, DdlText):
            return self._ddl(statement, context)
        write = _WRITES.get(type(statement.node))
        if write is None:
            return self._select(statement, context)
        self.refuse_writes()
        return self.transaction.write(
            lambda transaction: write(statement.node, self._open(transaction, context), context)
        )

    def refuse_writes(self) -> None:
        """Raise SqlRefused while the session reads the past."""
        if self.state.variables[EXTERNAL_TS_READ]:
            raise SqlRefused(1836, "Running in read-only mode", "HY000")
        if self.snapshot_ts is not None:
            raise SqlRefused(1105, "can not execute write statement when 'tidb_snapshot' is set", "HY000")

    def _ddl(self, statement: DdlText, context: Context) -> Outcome:
        self.refuse_writes()
        self.transaction.commit()
        try:
            context.warnings += run_ddl(statement.text, self.node, self.state, self._stop_if_interrupted)
        finally:
            if self.state.database and not is_information(self.state.database):
                names = {schema.name.lower for schema in self.node.schema.schemas.values()}
                if lowered(self.state.database) not in names:
                    self.state.database = ""
        return Outcome()

    # --- reading ---

    def _select(self, statement: Dml, context: Context) -> ResultSet:
        if self.past_ts is not None:
            return select(statement.node, self._past(self.past_ts, context), context)
        locks = any(lock.args.get("update") for lock in statement.node.args.get("locks") or ())

        def answer(transaction: GuardedTransaction) -> ResultSet:
            context.warnings.clear()
            context.start_ts = transaction.start_ts
            relations = self._locked(transaction, context) if locks else self._open(transaction, context)
            return select(statement.node, relations, context)

        return self.transaction.read(answer, passing=statement.node.find(exp.Table) is None)

    def moment(self, value: SqlValue) -> int:
        """Return the timestamp of a value. Raises SqlRefused 1292, 8128."""
        return moment_ts(value, self.state.zone, self.node.storage.oracle.newest)

    def evaluate(self, text: str) -> SqlValue:
        context, scope = self.state.context(), Scope(database=self.state.database)

        def answer(transaction: GuardedTransaction) -> SqlValue:
            context.start_ts = transaction.start_ts
            return compile_text(text, scope, self.state.sql_mode).run((), context)

        return self.transaction.read(answer, passing=True)

    def _open(self, transaction: GuardedTransaction, context: Context, depth: int = 0) -> OpenTables:
        system = SystemRelations(self.information, transaction.schema, context, partial(self._open, transaction), depth)
        return OpenTables(transaction, transaction.schema, context, self.tools.auto_ids, self.tools.shapes, system)

    def _locked(self, transaction: GuardedTransaction, context: Context) -> PastTables:
        return self._read_only(LockingReads(transaction), transaction.schema, context)

    def _past(self, ts: int, context: Context) -> PastTables:
        return self._read_only(self.node.storage.snapshot(ts), self.node.schema_at(ts), context)

    def _read_only(self, reader: Reader, schema: StoredSnapshot, context: Context, depth: int = 0) -> PastTables:
        within = partial(self._read_only, reader, schema)
        system = SystemRelations(lambda: self.information(schema), schema, context, within, depth)
        return PastTables(reader, schema, context, self.tools.shapes, system)

    # --- looking around ---

    def view(self, context: Context | None = None) -> View:
        """Return the data of SHOW: the definitions as of now, of the open transaction, or of the past that the session
        reads."""
        return view_of(self, context or self.state.context())

    def information(self, schema: StoredSnapshot | None = None) -> InformationSchema:
        """Return information_schema of a snapshot, by default the current one."""
        return information_of(self, schema)

    def _stop_if_interrupted(self) -> None:
        if self._interrupted.is_set():
            self._interrupted.clear()
            raise SqlRefused(1317, "Query execution was interrupted", "70100")
