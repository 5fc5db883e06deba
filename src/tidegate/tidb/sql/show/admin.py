"""ADMIN: looking at DDL jobs, and telling them what to do.

    ADMIN SHOW DDL                            schema version, owner, what runs
    ADMIN SHOW DDL JOBS [n] [WHERE ..]        those that run, then the newest n (10) that are over
    ADMIN SHOW DDL JOB QUERIES 118, 119       their texts
    ADMIN CANCEL | PAUSE | RESUME DDL JOBS 118, 119      one line each: successful, or error: ..
    ADMIN CHECK TABLE t, u                    nothing when rows and index entries agree, else 8223

Source: TiDB documentation, "ADMIN SHOW DDL [JOBS|JOB QUERIES]", "ADMIN CANCEL DDL", "ADMIN CHECK [TABLE|INDEX]".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tidegate.expr.relation import FixedRelation, ResultSet
from tidegate.expr.value.kinds import SqlValue
from tidegate.model.errors import SqlRefused
from tidegate.schema.cursor import Cursor
from tidegate.tidb.information.job import job_row, state_name, type_name
from tidegate.tidb.information.relations import columns_of
from tidegate.tidb.node import Node
from tidegate.tidb.sql.outcome import Outcome
from tidegate.tidb.sql.show.statement import View

__all__ = ["Administration", "admin"]

_HISTORY: Final = 10
_JOBS: Final = (
    "JOB_ID# DB_NAME TABLE_NAME JOB_TYPE SCHEMA_STATE SCHEMA_ID# TABLE_ID# ROW_COUNT# CREATE_TIME@ START_TIME@ "
    "END_TIME@ STATE COMMENTS"
)


@dataclass(frozen=True, slots=True)
class Administration:
    """What ADMIN acts on; `check(schema, table)` raises SqlRefused 8223."""

    node: Node
    view: View
    check: Callable[[str, str], None]


def admin(cursor: Cursor, on: Administration) -> ResultSet | Outcome:
    """Return what ADMIN does; the cursor stands behind the word. Raises SqlError, SqlRefused."""
    for words, rule in _RULES.items():
        if cursor.accept(words):
            return rule(cursor, on)
    if cursor.accept("RELOAD", "FLUSH", "PLUGINS", "EVOLVE", "CAPTURE", "CLEANUP"):
        return Outcome()
    raise cursor.error("ADMIN of something that is not known")


def _show_jobs(cursor: Cursor, on: Administration) -> ResultSet:
    count = cursor.integer("a number of jobs") if not (cursor.done() or cursor.looking_at("WHERE")) else _HISTORY
    condition = "TRUE"
    if cursor.accept("WHERE"):
        start = cursor.at
        while not cursor.done():
            cursor.next()
        condition = cursor.slice(start)
    jobs = [*on.node.ddl_client.jobs(), *on.node.ddl_client.history()[:count]]
    return _chosen(on, _JOBS, [(*job_row(job, on.view.state.zone), "") for job in jobs], condition)


def _show_queries(cursor: Cursor, on: Administration) -> ResultSet:
    wanted = set(_numbers(cursor))
    jobs = [*on.node.ddl_client.jobs(), *on.node.ddl_client.history()]
    return _chosen(on, "QUERY", [(job.query,) for job in jobs if job.id in wanted])


def _show_ddl(_cursor: Cursor, on: Administration) -> ResultSet:
    running = on.node.ddl_client.jobs()
    jobs = "; ".join(f"ID:{job.id}, Type:{type_name(job.type)}, State:{state_name(job.state)}" for job in running)
    who = on.node.registry.owner(on.view.state.now_ms()) or ""
    row = (on.node.version, who, who, jobs, on.node.name, "\n".join(job.query for job in running))
    return _chosen(on, "SCHEMA_VER# OWNER_ID OWNER_ADDRESS RUNNING_JOBS SELF_ID QUERY", [row])


def _tell(name: str) -> Callable[[Cursor, Administration], ResultSet]:
    """The rule that asks jobs to `name` (cancel, pause, resume), one line a job."""

    def rule(cursor: Cursor, on: Administration) -> ResultSet:
        rows: list[tuple[SqlValue, ...]] = []
        for number in _numbers(cursor):
            try:
                getattr(on.node.ddl_client, name)(number)
            except SqlRefused as refused:
                rows.append((str(number), f"error: [ddl:{refused.mysql_code}]{refused.message}"))
            else:
                rows.append((str(number), "successful"))
        return _chosen(on, "JOB_ID RESULT", rows)

    return rule


def _check_table(cursor: Cursor, on: Administration) -> Outcome:
    while True:
        found = cursor.qualified()
        on.check(found.schema or on.view.state.database, found.table)
        if not cursor.sign(","):
            return Outcome()


def _check_index(cursor: Cursor, on: Administration) -> Outcome:
    found = cursor.qualified()
    cursor.name("an index")
    on.check(found.schema or on.view.state.database, found.table)
    return Outcome()


def _numbers(cursor: Cursor) -> list[int]:
    found = [cursor.integer("a job's number")]
    while cursor.sign(","):
        found.append(cursor.integer("a job's number"))
    return found


def _chosen(on: Administration, columns: str, rows: list[tuple[SqlValue, ...]], condition: str = "TRUE") -> ResultSet:
    return on.view.choose(FixedRelation("shown", columns_of(columns), rows), condition)


_RULES: Final[Mapping[str, Callable[[Cursor, Administration], ResultSet | Outcome]]] = {
    "SHOW DDL JOB QUERIES": _show_queries,
    "SHOW DDL JOBS": _show_jobs,
    "SHOW DDL": _show_ddl,
    "CANCEL DDL JOBS": _tell("cancel"),
    "PAUSE DDL JOBS": _tell("pause"),
    "RESUME DDL JOBS": _tell("resume"),
    "CHECK TABLE": _check_table,
    "CHECK INDEX": _check_index,
}
