"""From a DDL statement to the jobs that it asks for.

    statement --RULES[its class]--> StatementPlan: requests, and notes where IF [NOT] EXISTS had nothing to do

A rule checks what can be checked against the snapshot and refuses with MySQL's error numbers, as the session of a node
does before it submits jobs; a job checks again against the definitions as it finds them.  A statement that changes
nothing has no requests.  Pure: the same statement, snapshot and session give the same plan.

The rules of databases stand here, the others in files of their own.

Source: TiDB pkg/ddl/executor.go.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.schema.statement import (
    AlterDatabase,
    AlterTable,
    CreateDatabase,
    CreateTable,
    CreateTableLike,
    CreateView,
    DropDatabase,
    DropTables,
    DropViews,
    Ignored,
    RecoverDatabase,
    RecoverTable,
    RenameTables,
    Statement,
    TruncateTable,
)
from tidegate.schema.stored.arguments import CharsetArgs, CreateSchemaArgs, DropObjectArgs
from tidegate.schema.stored.definition import Name, StoredSchema
from tidegate.schema.stored.snapshot import StoredSnapshot
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.change.catalog import Catalog
from tidegate_upstream.change.make.table import check_name, with_charset
from tidegate_upstream.change.plan.alter import plan_alter
from tidegate_upstream.change.plan.sequence import plan_ignored
from tidegate_upstream.change.plan.table import (
    create_table,
    create_table_like,
    drop_tables,
    recover_table,
    rename_tables,
    truncate_table,
)
from tidegate_upstream.change.plan.view import create_view, drop_views
from tidegate_upstream.change.request import Involved, Request
from tidegate_upstream.change.session import DdlSession, StatementPlan, passed_over


def _whole(name: str) -> tuple[Involved, ...]:
    return (Involved(name, "*"),)


def create_database(statement: CreateDatabase, catalog: Catalog, session: DdlSession) -> StatementPlan:
    """Return one job, or a note when the database exists and may."""
    check_name(statement.name, "database")
    if catalog.find_schema(statement.name) is not None:
        message = f"Can't create database '{statement.name}'; database exists"
        return passed_over(1007, message, "HY000", accepted=statement.if_not_exists)
    charset, collate = with_charset(statement.charset, statement.collate, (session.charset, session.collate))
    name = Name.of(statement.name)
    made = StoredSchema(0, name, charset, collate, state=ElementState.NONE)
    return StatementPlan((Request(1, 0, 0, name.lower, "", CreateSchemaArgs(made), involved=_whole(name.lower)),))


def alter_database(statement: AlterDatabase, catalog: Catalog, session: DdlSession) -> StatementPlan:
    """Return one job unless the database is that way already."""
    found = catalog.schema(statement.name or session.database)
    charset, collate = with_charset(statement.charset, statement.collate, (found.charset, found.collate))
    if (charset, collate) == (found.charset, found.collate):
        return StatementPlan()
    name = found.name.lower
    return StatementPlan((Request(26, found.id, 0, name, "", CharsetArgs(charset, collate), involved=_whole(name)),))


def drop_database(statement: DropDatabase, catalog: Catalog, _session: DdlSession) -> StatementPlan:
    """Return one job, or a note when there is no such database and need not be."""
    found = catalog.find_schema(statement.name)
    if found is None:
        message = f"Can't drop database '{statement.name}'; database doesn't exist"
        return passed_over(1008, message, "HY000", accepted=statement.if_exists)
    name = found.name.lower
    return StatementPlan((Request(2, found.id, 0, name, "", DropObjectArgs(), involved=_whole(name)),))


def recover_database(statement: RecoverDatabase, _catalog: Catalog, _session: DdlSession) -> StatementPlan:
    """Not in this TiDB: SqlRefused 8200."""
    raise SqlRefused(8200, f"Unsupported FLASHBACK DATABASE {statement.name}", "HY000")


_RULES: Final[Mapping[type[Statement], Callable[[Any, Catalog, DdlSession], StatementPlan]]] = {
    CreateDatabase: create_database,
    AlterDatabase: alter_database,
    DropDatabase: drop_database,
    RecoverDatabase: recover_database,
    CreateTable: create_table,
    CreateTableLike: create_table_like,
    DropTables: drop_tables,
    TruncateTable: truncate_table,
    RenameTables: rename_tables,
    RecoverTable: recover_table,
    AlterTable: plan_alter,
    CreateView: create_view,
    DropViews: drop_views,
    Ignored: plan_ignored,
}


def plan(statement: Statement, snapshot: StoredSnapshot, session: DdlSession) -> StatementPlan:
    """Return the jobs that `statement` asks for, without ids (request.number gives them), in the order of their
    submission.

    Raises SqlRefused, with MySQL's number and message, for a statement that TiDB would not accept."""
    found = _RULES[type(statement)](statement, Catalog(snapshot), session)
    requests = tuple(msgspec.structs.replace(request, query=session.query) for request in found.requests)
    return StatementPlan(requests, found.warnings)
