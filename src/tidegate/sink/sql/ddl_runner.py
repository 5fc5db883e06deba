"""Runs each DDL exactly once in a database, despite crashes.

    1  the lock of the feed: no other session runs a statement of it       wait for one that does
    2  the ledger: done before?                                            done ──► nothing
    3  statement_for the target                                 skipped, refused, forbidden ──► ledger, warning, error
    4  ledger `planned`, with what the tables look like now
    5  values that the target would compute otherwise are kept                           ddl_values.py
    6  ledger `running`, then the statement, with a mark
    7  ledger `done`, once the tables look as schema/ says and those values are written

A DDL is not a transaction, so a run that finds `planned` or `running` determines the outcome.  It waits, without
limit, while the server still runs the statement; a TiDB's job shows whether it was done; else the shape of the tables
does (ddl_shape.py).  A DDL that was not done is run, with a newly generated text: the text in the ledger may be from a
release with a bug.  If the outcome is unclear, the feed ends with an error that shows the tables.  So no read timeout,
no lost answer and no KILL makes a DDL happen twice, and none is reported done before it is.

A zombie, a writer with an outdated epoch, cannot write the ledger.  The next writer needs the lock and ends the
zombie's session, unless that runs a statement; it then waits for it, and finds it done.

An error about an object that already exists, or is already gone, is ignored only if the tables look as after the DDL.
Source: TiCDC's MySQL sink, by what it lacks: its ledger keeps one row a table, and a timeout counts as a failure.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from secrets import token_hex
from typing import Final, NoReturn

from tidegate.engine.filter import TableFilter
from tidegate.engine.plan import PlannedDdl, of_session, refusal, zone_warning
from tidegate.expr.tokens import quote_name
from tidegate.model.errors import DdlForbidden, SchemaError, SinkError, SinkRefused, UnsupportedError
from tidegate.model.event import Ddl
from tidegate.mysql import server_sql as sent
from tidegate.mysql.server_answer import AnswerKind, answer_kind
from tidegate.objectstore.failpoint import failpoint
from tidegate.sink.sql.connection import ERRORS, OWN_ZONE, Connect, DdlConnection, StatementFailed, TargetServer, advice
from tidegate.sink.sql.ddl_ledger import DdlLedger, DdlRecord, DdlWriter, ddl_id_of, values_table
from tidegate.sink.sql.ddl_rewrite import TAKES_ALL, DdlVerdict, statement_for, statements_of
from tidegate.sink.sql.ddl_shape import (
    Executed,
    ShapeChange,
    difference,
    ids_of,
    is_exchange,
    job_state,
    read_facts,
    running_statement,
)
from tidegate.sink.sql.ddl_task import DdlTask, task_of
from tidegate.sink.sql.ddl_values import ValueTable, computed_values, unknown_columns, with_target_columns

IGNORABLE: Final = frozenset({1007, 1008, 1050, 1051, 1054, 1060, 1061, 1068, 1091, 1176, 1507, 1517, 1831})
"""Errors of an object that is there, or gone, already."""
_UNSEEN: Final = frozenset({1007, 1008, 1050, 1051, 1061, 1091, 1176})
"""Errors about databases, views and keys on expressions, which the shape does not have."""
_NO_LOCKS: Final = frozenset({1235, 1305, 8108, 1064})
"""A server that does not know GET_LOCK."""
LOST_TRIES: Final = 8
"""The number of times a statement without an answer is settled before the engine's retry policy applies."""
_NO_ZONE: Final = frozenset({1298})
_OF_SERVER: Final = ("CREATE DATABASE", "ALTER DATABASE", "DROP DATABASE")
"""Statements for which no database is selected."""
_MOMENTS: Final = ("CURRENT_TIMESTAMP", "CURRENT_DATE", "NOW", "LOCALTIME", "UTC_")
POLL_S: Final = 0.2
POLL_MAX_S: Final = 5.0
REPORT_S: Final = 30.0
Warn = Callable[[str], None]


class DdlRunner:
    """Runs the DDLs of one writer at one server; `connect` opens a connection without read timeout, `warned` has
    earlier warnings, `rules` are those of the feed. DDLs up to `whole_from` are of a load."""

    def __init__(
        self,
        connect: Connect,
        target: TargetServer,
        writer: DdlWriter,
        warn: Warn = lambda _: None,
        warned: set[str] | None = None,
        *,
        rules: TableFilter = TAKES_ALL,
        whole_from: int = 0,
    ) -> None:
        self._whole_from = whole_from
        self._connect, self._target, self._writer, self._warn = connect, target, writer, warn
        self._ledger, self._rules = DdlLedger(writer), rules
        self._lock = f"tidegate-ddl-{sha256(writer.feed.encode()).hexdigest()[:32]}"
        self._is_made = False
        self._warned = set() if warned is None else warned

    def run(self, planned: PlannedDdl) -> None:
        """Run a DDL exactly once. On return the DDL is done and recorded as done.

        Raises DdlForbidden for a text outside the feed's filter, SinkRefused if the target cannot run it or the
        outcome is unclear, Fenced, SinkError if a retry may help."""
        ddl, task = planned.ddl, task_of(planned)
        if warning := zone_warning(ddl, task.effects):
            self._warn_once(warning)
        try:
            self._run(task)
        except (SinkError, DdlForbidden) as error:
            error.at(table=planned.table, commit_ts=planned.commit_ts)
            if isinstance(error, DdlForbidden):
                refusal(error, ddl, planned.source_ddl.position)
            raise

    def _run(self, task: DdlTask) -> None:
        for _ in range(LOST_TRIES):
            try:
                with self._session() as session:
                    return self._settle(session, task)
            except SchemaError as error:
                raise self._failure(str(error), SinkRefused, task.ddl) from error
            except StatementFailed as error:
                if not error.is_lost:
                    kind = ERRORS[answer_kind(error.number, error.what)]
                    raise self._failure(f"{error}{advice(error.number)}", kind, task.ddl) from error
                lost = error
                time.sleep(POLL_S)
        raise SinkError(f"the connection was lost {LOST_TRIES} times during DDL {task.ddl.query[:500]!r}: {lost}")

    def _settle(self, session: DdlConnection, task: DdlTask) -> None:
        """Run a DDL that may have been started before."""
        ddl = task.ddl
        with session.transaction():
            self._writer.fence(session)
        record = self._ledger.read(session, ddl)
        if record is not None and record.state in ("done", "skipped"):
            return
        context = task.context(inherits=self._ledger.made_database(session, ddl.schema), rules=self._rules)
        context = replace(context, loads=(ddl.commit_ts or 0) <= self._whole_from)
        decision = statement_for(self._target, ddl.query, context)
        if decision.verdict is DdlVerdict.FORBIDDEN:
            self._forbid(session, ddl, "; ".join(decision.why))
        if decision.verdict is DdlVerdict.REFUSED:
            self._refuse(session, ddl, "; ".join(decision.why))
        if decision.verdict is DdlVerdict.SKIPPED:
            self._note(session, ddl, "skipped", "; ".join(decision.why))
            self._warn_once(f"left out of {self._target}: {'; '.join(decision.why)}, as in {ddl.query[:300]!r}")
            return
        if record is not None and record.state == "refused":
            record = None
        was = unknown_columns(session, task) if record is None else record.was
        values = self._values(session, with_target_columns(task, was))
        if record is None:
            facts = read_facts(session, task.keys, self._target)
            record = DdlRecord("planned", decision.text, note=token_hex(4), facts=facts, was=was)
            failpoint("ddl/before-plan")
            self._ledger.write(session, ddl, record)
            failpoint("ddl/planned")
        elif self._was_done(session, task, record):
            self._complete(session, task, record, values)
            return
        else:
            record = replace(record, executed=decision.text)
        if values is not None and (reason := values.keep(record.facts)):
            self._refuse(session, ddl, reason)
        self._execute(session, task, record)
        failpoint("ddl/executed")
        self._complete(session, task, record, values)
        if decision.why:
            self._warn_once(f"left out of {self._target}: {'; '.join(decision.why)}, as in {ddl.query[:300]!r}")

    def _values(self, session: DdlConnection, task: DdlTask) -> ValueTable | None:
        """Return the values of the DDL that are computed here."""
        try:
            values = computed_values(task, self._target)
        except UnsupportedError as error:
            self._refuse(session, task.ddl, str(error))
        name = values_table(self._writer.feed, task.ddl.commit_ts or 0, ddl_id_of(task.ddl))
        return None if values is None else ValueTable(session, self._target, values, name)

    def _complete(self, session: DdlConnection, task: DdlTask, record: DdlRecord, values: ValueTable | None) -> None:
        """Finish a DDL whose statement was executed."""
        self._verify(session, task, record)
        if values is not None:
            values.write(record.facts, lambda: self._writer.fence(session))
        self._ledger.write(session, task.ddl, replace(record, state="done"))
        failpoint("ddl/done")

    def _execute(self, session: DdlConnection, task: DdlTask, record: DdlRecord) -> None:
        ddl, change = task.ddl, self._change(task, record)
        if task.schema and not record.executed.startswith(_OF_SERVER):
            session.ask(sent.USE.format(schema=quote_name(task.schema)))
        ((number,),) = session.ask(sent.CONNECTION)
        self._ledger.write(session, ddl, replace(record, state="running", connection_id=int(number)))
        failpoint("ddl/running")
        moment = any(word in record.executed.upper() for word in _MOMENTS)
        at_s = task.clock_s if moment else 0
        session.ask(sent.CLOCK.format(seconds=f"{at_s:.6f}" if at_s else "DEFAULT"))
        self._take_zone(session, task)
        for text, mark in self._marks(task, record):
            try:
                session.ask(_marked(text, mark))
            except StatementFailed as error:
                if not self._is_settled(session, task, change, error):
                    is_refused = answer_kind(error.number, error.what) is AnswerKind.REFUSED
                    if is_refused and read_facts(session, task.keys, self._target) == record.facts:
                        self._note(session, ddl, "refused", str(error))
                    raise
                self._warn(
                    f"DDL of ts {ddl.commit_ts}: {error}; the tables are in the state after it: {ddl.query[:300]!r}"
                )
        session.ask(sent.CLOCK.format(seconds="DEFAULT"))
        session.ask(sent.ZONE, (OWN_ZONE,))

    def _take_zone(self, session: DdlConnection, task: DdlTask) -> None:
        """Set the session's time zone to that of the DDL. Raises SinkRefused if values depend on a zone that the server
        does not know."""
        zone = task.ddl.known_session.zone
        if not zone or zone == "UTC":
            return
        try:
            session.ask(sent.ZONE, (zone,))
        except StatementFailed as error:
            if error.number not in _NO_ZONE:
                raise
            if of_session(task.effects):
                raise SinkRefused(
                    f"the values of this DDL depend on the time zone {zone} of its session, which {self._target} does "
                    f"not know ({error}): {task.ddl.query[:500]!r}. Load the server's time zone tables "
                    "(mysql_tzinfo_to_sql), then resume the changefeed"
                ) from error

    def _is_settled(self, session: DdlConnection, task: DdlTask, change: ShapeChange, error: StatementFailed) -> bool:
        """Return True if an error means that the objects of the statement exist, or are gone, already."""
        if error.number not in IGNORABLE or not task.is_followed:
            return False
        if not (change.gone or change.come):
            return error.number in _UNSEEN
        return change.stands(read_facts(session, task.keys, self._target))

    def _change(self, task: DdlTask, record: DdlRecord) -> ShapeChange:
        return difference(task.before, task.after, task.effects, self._target, ids_of(record.facts))

    def _was_done(self, session: DdlConnection, task: DdlTask, record: DdlRecord) -> bool:
        """Return the outcome of a statement that was started, once the server no longer runs it."""
        ddl, mark = task.ddl, self._mark(task.ddl, record)
        self._wait(lambda: running_statement(session, mark) is None, f"DDL of ts {ddl.commit_ts}: {ddl.query[:200]!r}")
        if self._target.traits.jobs:
            marks = [mark for _, mark in self._marks(task, record)]
            self._wait(
                lambda: all(job_state(session, mark) is not Executed.UNCLEAR for mark in marks),
                f"the job of the DDL of ts {ddl.commit_ts}: {ddl.query[:200]!r}",
            )
            if not task.has_job_each:
                return all(job_state(session, mark) is Executed.YES for mark in marks)
        change = self._change(task, record)
        now = read_facts(session, task.keys, self._target)
        if is_exchange(task.effects) and not (change.gone or change.come):
            raise SinkRefused(
                f"it is unknown whether this DDL was done before the changefeed stopped, since the account may not "
                f"read table ids: {ddl.query[:500]!r}. If it was done: {self._resolve_command(ddl)}; if not, --again. "
                f"GRANT PROCESS ON *.* to the account avoids this for the next one"
            )
        if task.is_blind:
            return not task.is_again and now != record.facts
        executed = change.executed(record.facts, now)
        if executed is Executed.UNCLEAR and task.is_repeatable(change):
            return False
        if executed is Executed.UNCLEAR:
            raise SinkRefused(
                f"the tables of this DDL are neither in the state before nor after it, so somebody has altered them: "
                f"{ddl.query[:500]!r}. {change.remainder(now)}. Bring them to the state after the DDL, then "
                f"{self._resolve_command(ddl)}"
            )
        return executed is Executed.YES

    def _verify(self, session: DdlConnection, task: DdlTask, record: DdlRecord) -> None:
        """Check that the columns, keys and partitions of the schema exist in the target."""
        ddl, change = task.ddl, self._change(task, record)
        now = read_facts(session, task.keys, self._target)
        expected = ShapeChange(change.gone - ids_of(change.gone), change.come - ids_of(change.come))
        if not expected.stands(now):
            raise SinkRefused(
                f"the statement succeeded, but the tables are not in the state after it: {ddl.query[:500]!r}. "
                f"{expected.remainder(now)}. The table in the target was different; bring it to the definition of the "
                f"upstream, then {self._resolve_command(ddl)}"
            )

    def _note(self, session: DdlConnection, ddl: Ddl, state: str, reason: str) -> None:
        """Record in the ledger that a DDL is not run, and why."""
        self._ledger.write(session, ddl, DdlRecord(state, note=reason))
        failpoint("ddl/noted")

    def _forbid(self, session: DdlConnection, ddl: Ddl, reason: str) -> NoReturn:
        self._note(session, ddl, "refused", reason)
        raise DdlForbidden(
            f"this DDL is not sent to {self._target}: {reason}: {ddl.query[:500]!r}. If the upstream ran it, change "
            f"the replica by hand, then {self._resolve_command(ddl)}; or exclude the DDL by an event filter "
            "(ignore-sql); if not, find out who writes to the source"
        )

    def _refuse(self, session: DdlConnection, ddl: Ddl, reason: str) -> NoReturn:
        self._note(session, ddl, "refused", reason)
        raise SinkRefused(
            f"{self._target} cannot run this DDL: {reason}: {ddl.query[:500]!r}. Change the replica by hand, then "
            f"{self._resolve_command(ddl)}; or exclude the DDL by an event filter"
        )

    def _failure(self, reason: str, kind: type[SinkError], ddl: Ddl) -> SinkError:
        """Return the error of a refused DDL, with the ways out where a retry does not help."""
        text = f"DDL of ts {ddl.commit_ts} failed: {reason}: {ddl.query[:500]!r}"
        if kind is not SinkRefused:
            return kind(text)
        return SinkRefused(
            f"{text}. Fix the cause and resume the changefeed; or change the replica by hand, then "
            f"{self._resolve_command(ddl)}; or exclude the DDL by an event filter"
        )

    def _resolve_command(self, ddl: Ddl) -> str:
        return f"`tidegate sink ddl SINK-URI --changefeed {self._writer.feed} --done {ddl_id_of(ddl)}`"

    @contextmanager
    def _session(self) -> Iterator[DdlConnection]:
        """Open the session that runs the DDLs of this feed alone."""
        session = DdlConnection(self._connect, self._target)
        try:
            if not self._is_made:
                self._ledger.create(session)
                self._is_made = True
            self._take_lock(session)
            yield session
        finally:
            session.close()

    def _take_lock(self, session: DdlConnection) -> None:
        """Wait until no other session runs a statement of this feed; end a session that only holds the lock."""

        def is_acquired() -> bool:
            ((got,),) = session.ask(sent.LOCK, (self._lock,))
            if got == 1:
                return True
            with session.transaction():
                self._writer.fence(session)
            for number, command in session.ask(sent.LOCKED_BY, (self._lock,)):
                if command == "Sleep":
                    session.ask(sent.KILL.format(number=int(number)))
            return False

        try:
            self._wait(is_acquired, "another session that runs a DDL of this changefeed")
        except StatementFailed as error:
            if error.number not in _NO_LOCKS:
                raise
            raise SinkRefused(
                f"{self._target} has no GET_LOCK ({error}), which ensures that one writer alone runs a DDL; use a "
                f"server that has it, such as MySQL, MariaDB and newer TiDBs"
            ) from error

    def _wait(self, is_over: Callable[[], bool], what: str) -> None:
        """Poll with growing intervals until the condition holds; log now and then what is awaited."""
        pause_s, since_s, reported_s = POLL_S, time.monotonic(), 0.0
        while not is_over():
            waited_s = time.monotonic() - since_s
            if waited_s - reported_s > REPORT_S:
                reported_s = waited_s
                self._warn(f"waiting for {what} for {waited_s:.0f} s")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, POLL_MAX_S)

    def _mark(self, ddl: Ddl, record: DdlRecord) -> str:
        return f"tidegate:{self._lock[-12:]}:{ddl.commit_ts}:{ddl_id_of(ddl)}:{record.note}"

    def _marks(self, task: DdlTask, record: DdlRecord) -> list[tuple[str, str]]:
        """The statements, each with its mark; equal texts are numbered."""
        mark = self._mark(task.ddl, record)
        texts = statements_of(record.executed)
        return [(text, f"{mark}.{index};" if len(texts) > 1 else mark) for index, text in enumerate(texts)]

    def _warn_once(self, what: str) -> None:
        key = what.partition(", as in ")[0]
        if key not in self._warned:
            self._warned.add(key)
            self._warn(what)


def _marked(text: str, mark: str) -> str:
    """Insert the mark after the first word, where servers and their job lists keep it."""
    verb, _, rest = text.partition(" ")
    return f"{verb} /* {mark} */ {rest}"
