"""DDL of a session: the text, the jobs that it asks for, and waiting for them.

    text ──schema/parse──► Statement ──plan──► requests ──submit──► jobs, one after the other ──► done, or their error
           with 1064                  1050, 1146, ..

What is open is committed first.  A session that is interrupted asks for its job to be cancelled, as TiDB does for KILL,
and waits for what comes of that.  After each job the node loads what it has made, so that the next statement sees it.

Source: TiDB pkg/ddl (executor.go: DoDDLJob).
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tidegate.expr.syntax.parse import syntax_error
from tidegate.expr.syntax.words import RESERVED
from tidegate.model.errors import SqlError, SqlRefused, UpstreamError
from tidegate.mysql.context import SqlWarning
from tidegate.schema.job import MODE_BITS, Job
from tidegate.schema.parse.ddl import parse
from tidegate_upstream.change.plan.statement import plan
from tidegate_upstream.change.session import DdlSession
from tidegate_upstream.tidb.node import Node
from tidegate_upstream.tidb.sql.session.client import tools_of
from tidegate_upstream.tidb.sql.session.state import SessionState

_SLICE_MS: Final = 200
"""How long a session waits before it looks whether somebody wants it to end."""
_PATIENCE_MS: Final = 600_000
"""How long it waits at all: ten minutes, so that one that waits for its own thread's other session does end. The job
goes on."""
_NEW_COUNTERS: Final = frozenset({13, 25, 35, 40, 42})
"""Actions that set counters of tables that go on: rebases, RECOVER, ALTER SEQUENCE, EXCHANGE PARTITION."""
_LEVELS: Final = {"Note": "Note", "Warning": "Warning"}


def run_ddl(text: str, node: Node, state: SessionState, interrupted: Callable[[], None]) -> list[SqlWarning]:
    """Run the statements of a DDL text to their end; what they warn of. Raises SqlRefused."""
    warnings: list[SqlWarning] = []
    try:
        statements = parse(text, state.database, RESERVED)
    except SqlError as error:
        raise syntax_error(text, error.offset, str(error)) from error
    for statement in statements:
        node.reload()
        planned = plan(statement, node.schema, _session(text, node, state))
        warnings += [SqlWarning(_LEVELS[one.level], one.code, one.message) for one in planned.warnings]  # type: ignore[arg-type]
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
    """The job when it is over. Raises SqlRefused with what stopped it, or 1317; UpstreamError when nobody moves."""
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
    """Ask for a job to be cancelled; one that is too far goes on by itself."""
    with suppress(SqlRefused):
        node.ddl_client.cancel(job_id)
