"""The session variables that DDL statements depend on, and the plan of a statement.

    plan(statement, snapshot, session) -> StatementPlan(requests, warnings)        plan.py

Source: TiDB session variables; pkg/ddl/executor.go.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo

from tidegate.model.errors import SqlRefused
from tidegate.schema.stored.snapshot import TableVersion
from tidegate_upstream.change.request import Request


@dataclass(frozen=True, slots=True)
class DdlSession:
    """The session variables that DDL reads; defaults are TiDB's, except that CHECK constraints are enforced.

    `database` is the current one, "" for none; `charset` and `collate` are those of the server, for new databases.
    `dropped(schema, table)` finds the definition that a dropped or truncated table had just before, for RECOVER and
    FLASHBACK TABLE; `snapshot_ts` of `TableVersion.version` is where its counters can be read."""

    database: str = ""
    query: str = ""
    charset: str = "utf8mb4"
    collate: str = "utf8mb4_bin"
    sql_mode: frozenset[str] = frozenset(
        {"STRICT_TRANS_TABLES", "NO_ZERO_IN_DATE", "NO_ZERO_DATE", "ONLY_FULL_GROUP_BY"}
    )
    zone: tzinfo = UTC
    now: datetime = datetime(2000, 1, 1, tzinfo=UTC)
    foreign_key_checks: bool = True
    check_constraints: bool = True
    clustered_index: bool = True
    dropped: Callable[[str, str], TableVersion | None] = field(default=lambda _schema, _table: None)


@dataclass(frozen=True, slots=True)
class StatementNote:
    """A warning or note of a statement that succeeds: "Note" or "Warning", MySQL's number, its text."""

    level: str
    code: int
    message: str


@dataclass(frozen=True, slots=True)
class StatementPlan:
    """The plan of a statement: its jobs in order, and warnings for the user."""

    requests: tuple[Request, ...] = ()
    warnings: tuple[StatementNote, ...] = ()


def passed_over(code: int, message: str, state: str, *, accepted: bool) -> StatementPlan:
    """Return the plan without jobs of a statement that IF [NOT] EXISTS skips, with a note; else raise SqlRefused."""
    if not accepted:
        raise SqlRefused(code, message, state)
    return StatementPlan(warnings=(StatementNote("Note", code, message),))
