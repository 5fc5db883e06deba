"""CREATE, DROP, TRUNCATE, RENAME and RECOVER of tables.

Source: TiDB pkg/ddl/executor.go (CreateTable, dropTableObject, TruncateTable, RenameTables, RecoverTable).
"""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.model.table import TableName
from tidegate.schema.statement import (
    CreateTable,
    CreateTableLike,
    DropTables,
    RecoverTable,
    RenamePair,
    RenameTables,
    TruncateTable,
)
from tidegate.schema.stored.arguments import (
    CreateTableArgs,
    DropObjectArgs,
    NewTableArgs,
    RecoverArgs,
    RenameTableArgs,
    RenameTablesArgs,
)
from tidegate.schema.stored.definition import Name, StoredTable
from tidegate.schema.stored.snapshot import TableVersion
from tidegate.schema.stored.states import ElementState
from tidegate_upstream.change.catalog import Catalog, missing_table
from tidegate_upstream.change.make.table import check_name, make_table
from tidegate_upstream.change.move.partition import at_rest
from tidegate_upstream.change.request import Involved, Request, request_new, request_on
from tidegate_upstream.change.session import DdlSession, StatementNote, StatementPlan, passed_over


def _exists(name: TableName, *, accepted: bool) -> StatementPlan:
    return passed_over(1050, f"Table '{name.schema}.{name.table}' already exists", "42S01", accepted=accepted)


def create_table(statement: CreateTable, catalog: Catalog, session: DdlSession) -> StatementPlan:
    """Return one job, or a note when the table exists and may."""
    schema = catalog.schema(statement.table.schema)
    if catalog.find(statement.table) is not None:
        return _exists(statement.table, accepted=statement.if_not_exists)
    made = make_table(statement, schema, session)
    keys = made.fk_info or ()
    parents = [TableName(key.ref_schema.original, key.ref_table.original) for key in keys]
    for parent in parents if session.foreign_key_checks else ():
        if parent.key != statement.table.key and catalog.find(parent) is None:
            raise SqlRefused(1824, f"Failed to open the referenced table '{parent.table}'", "HY000")
    involved = (
        Involved(schema.name.lower, made.name.lower),
        *(Involved(*parent.key, mode=1) for parent in parents if parent.key != statement.table.key),
    )
    return StatementPlan((request_new(3, schema, CreateTableArgs(made), *(involved if parents else ())),))


def create_table_like(statement: CreateTableLike, catalog: Catalog, _session: DdlSession) -> StatementPlan:
    """Return one job: what is public of the source's definition, without its foreign keys and counters."""
    source = catalog.table(statement.source)
    schema = catalog.schema(statement.table.schema)
    check_name(statement.table.table)
    if catalog.find(statement.table) is not None:
        return _exists(statement.table, accepted=statement.if_not_exists)
    stored, name = source.stored, Name.of(statement.table.table)
    made = msgspec.structs.replace(
        stored,
        id=0,
        name=name,
        state=ElementState.NONE,
        cols=[column for column in stored.cols or () if column.state == ElementState.PUBLIC],
        index_info=[index for index in stored.index_info or () if index.state == ElementState.PUBLIC],
        auto_inc_id=0,
        auto_rand_id=0,
        fk_info=None,
        old_schema_id=UNSET,
        partition=None if stored.partition is None else at_rest(stored.partition),
    )
    own, shared = Involved(schema.name.lower, name.lower), Involved(lowered(source.schema), stored.name.lower, mode=1)
    return StatementPlan((request_new(3, schema, CreateTableArgs(made), own, shared),))


def _unknown(names: Sequence[TableName]) -> str:
    return f"Unknown table '{','.join(f'{name.schema}.{name.table}' for name in names)}'"


def drop_tables(statement: DropTables, catalog: Catalog, session: DdlSession) -> StatementPlan:
    """Return one job a table; SqlRefused 1051 where one does not exist, 3730 where others refer to one that does."""
    found: list[TableVersion] = []
    missing: list[TableName] = []
    for name in statement.tables:
        one = catalog.find(name)
        if one is None or one.stored.is_view or one.stored.is_sequence:
            missing.append(name)
        else:
            found.append(one)
    if missing and not statement.if_exists:
        raise SqlRefused(1051, _unknown(missing), "42S02")
    dropped = {(lowered(one.schema), one.stored.name.lower) for one in found}
    for name in statement.tables if session.foreign_key_checks else ():
        for child, key in catalog.children(name):
            if (lowered(child.schema), child.stored.name.lower) not in dropped:
                message = (
                    f"Cannot drop table '{name.table}' referenced by a foreign key constraint "
                    f"'{key.fk_name.original}' on table '{child.stored.name.original}'."
                )
                raise SqlRefused(3730, message, "HY000")
    requests = tuple(request_on(4, one, DropObjectArgs()) for one in found)
    return StatementPlan(requests, tuple(StatementNote("Note", 1051, _unknown([name])) for name in missing))


def truncate_table(statement: TruncateTable, catalog: Catalog, session: DdlSession) -> StatementPlan:
    """Return one job; SqlRefused 1701 where other tables refer to it."""
    one = catalog.find(statement.table)
    if one is None or one.stored.is_view or one.stored.is_sequence:
        raise missing_table(statement.table)
    for child, key in catalog.children(statement.table) if session.foreign_key_checks else ():
        if child.stored.id != one.stored.id:
            message = (
                "Cannot truncate a table referenced in a foreign key constraint "
                f"({key.fk_name.original} of `{child.schema}`.`{child.stored.name.original}`)"
            )
            raise SqlRefused(1701, message, "42000")
    old = None if one.stored.partition is None else list(one.stored.physical_ids)
    return StatementPlan((request_on(11, one, NewTableArgs(old_partition_ids=old)),))


def rename_tables(statement: RenameTables, catalog: Catalog, _session: DdlSession) -> StatementPlan:
    """Return one job for all renames together."""
    return rename_pairs(statement.pairs, catalog)


def rename_pairs(pairs: Sequence[RenamePair], catalog: Catalog) -> StatementPlan:
    """Return one job; each rename sees the names as the ones before left them."""
    moves: list[RenameTableArgs] = []
    involved: list[Involved] = []
    schema_name = ""
    for pair in pairs:
        one = catalog.find(pair.old)
        if one is None or one.stored.is_sequence:
            raise missing_table(pair.old)
        target = catalog.schema(pair.new.schema)
        check_name(pair.new.table)
        if catalog.find(pair.new) is not None and pair.new.key != pair.old.key:
            raise SqlRefused(1050, f"Table '{pair.new.schema}.{pair.new.table}' already exists", "42S01")
        moves.append(
            RenameTableArgs(
                one.stored.id,
                target.id,
                one.schema_id,
                Name.of(one.schema),
                one.stored.name,
                Name.of(pair.new.table),
            )
        )
        involved += [Involved(*pair.old.key), Involved(*pair.new.key)]
        schema_name = target.name.lower
        catalog.renamed(pair.old, pair.new, one)
    several = len(moves) > 1
    request = Request(
        47 if several else 14,
        moves[-1].new_schema_id,
        moves[0].table_id,
        schema_name,
        "" if several else moves[0].old_table_name.lower,
        RenameTablesArgs(moves) if several else moves[0],
        involved=tuple(involved),
    )
    return StatementPlan((request,))


def recover_table(statement: RecoverTable, catalog: Catalog, session: DdlSession) -> StatementPlan:
    """Return one job; SqlRefused 1050 where the name is taken, 1105 where no such table was dropped."""
    name = statement.table
    if not name.table:
        raise SqlRefused(8200, "Unsupported RECOVER TABLE BY JOB; name the table", "HY000")
    schema = catalog.schema(name.schema)
    target = TableName(name.schema, statement.to or name.table)
    if catalog.find(target) is not None:
        raise SqlRefused(1050, f"Table '{target.schema}.{target.table}' already exists", "42S01")
    found = session.dropped(name.schema, name.table)
    if found is None:
        raise SqlRefused(
            1105, f"Can't find dropped/truncated table: {name.schema}.{name.table} in DDL history", "HY000"
        )
    table: StoredTable = found.stored
    if statement.to is not None:
        table = msgspec.structs.replace(table, name=Name.of(statement.to))
    involved = (Involved(*name.key), Involved(*target.key)) if target.key != name.key else ()
    arguments = RecoverArgs(table, found.version)
    return StatementPlan(
        (Request(25, schema.id, table.id, schema.name.lower, table.name.lower, arguments, involved=involved),)
    )
