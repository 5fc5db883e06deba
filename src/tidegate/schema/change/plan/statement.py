"""From a DDL statement to the jobs that it asks for.

    statement --RULES[its class]--> StatementPlan: requests, and notes where IF [NOT] EXISTS had nothing to do

A rule checks what can be checked against the snapshot and refuses with MySQL's error numbers, as the session of a node
does before it submits jobs; a job checks again against the definitions as it finds them.  A statement that changes
nothing has no requests.  Pure: the same statement, snapshot and session give the same plan.

Source: TiDB pkg/ddl/executor.go.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from tidegate.schema.change.catalog import Catalog
from tidegate.schema.change.plan.alter import plan_alter
from tidegate.schema.change.plan.database import alter_database, create_database, drop_database, recover_database
from tidegate.schema.change.plan.sequence import plan_ignored
from tidegate.schema.change.plan.table import (
    create_table,
    create_table_like,
    drop_tables,
    recover_table,
    rename_tables,
    truncate_table,
)
from tidegate.schema.change.plan.view import create_view, drop_views
from tidegate.schema.change.session import DdlSession, StatementPlan
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
from tidegate.schema.stored.snapshot import StoredSnapshot

__all__ = ["plan"]

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
