"""CREATE, ALTER and DROP DATABASE.

Source: TiDB pkg/ddl/executor.go (CreateSchema, ModifySchemaCharsetAndCollate, DropSchema).
"""

from tidegate.model.errors import SqlRefused
from tidegate.schema.change.arguments import CharsetArgs, CreateSchemaArgs, DropObjectArgs
from tidegate.schema.change.catalog import Catalog
from tidegate.schema.change.make.table import check_name, with_charset
from tidegate.schema.change.request import Involved, Request
from tidegate.schema.change.session import DdlSession, StatementNote, StatementPlan
from tidegate.schema.f1 import ElementState
from tidegate.schema.statement import AlterDatabase, CreateDatabase, DropDatabase, RecoverDatabase
from tidegate.schema.stored.definition import Name, StoredSchema

__all__ = ["alter_database", "create_database", "drop_database", "recover_database"]


def _whole(name: str) -> tuple[Involved, ...]:
    return (Involved(name, "*"),)


def create_database(statement: CreateDatabase, catalog: Catalog, session: DdlSession) -> StatementPlan:
    """Return one job, or a note when the database exists and may."""
    check_name(statement.name, "database")
    if catalog.find_schema(statement.name) is not None:
        message = f"Can't create database '{statement.name}'; database exists"
        if statement.if_not_exists:
            return StatementPlan(warnings=(StatementNote("Note", 1007, message),))
        raise SqlRefused(1007, message, "HY000")
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
        if statement.if_exists:
            return StatementPlan(warnings=(StatementNote("Note", 1008, message),))
        raise SqlRefused(1008, message, "HY000")
    name = found.name.lower
    return StatementPlan((Request(2, found.id, 0, name, "", DropObjectArgs(), involved=_whole(name)),))


def recover_database(statement: RecoverDatabase, _catalog: Catalog, _session: DdlSession) -> StatementPlan:
    """Not in this TiDB: SqlRefused 8200."""
    raise SqlRefused(8200, f"Unsupported FLASHBACK DATABASE {statement.name}", "HY000")
