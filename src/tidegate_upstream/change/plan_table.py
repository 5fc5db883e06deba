"""Planning of CREATE, DROP, TRUNCATE, RENAME and RECOVER TABLE, of views and of sequences.

    CREATE VIEW vw AS SELECT id, v FROM a      view_select "SELECT `id` AS `id`,`v` AS `v` FROM `gd`.`a`", columns id, v

The SELECT of a view is stored with all names qualified, so that it means the same in any session; a star is replaced by
the columns that the tables have now.  Bounds of a sequence that states none:

    ascending    1 .. 9223372036854775806 from 1         descending    -9223372036854775807 .. -1 from -1

Statements that change no table have no jobs here.

Source: TiDB pkg/ddl/executor.go (CreateTable, dropTableObject, TruncateTable, RenameTables, RecoverTable, CreateView,
BuildViewInfo), pkg/ddl/sequence.go, pkg/parser/ast/dml.go (Restore).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec
import sqlglot
from msgspec import UNSET
from sqlglot import exp

from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.model.table import TableName
from tidegate.schema.statement import (
    CreateTable,
    CreateTableLike,
    CreateView,
    DropSequences,
    DropTables,
    DropViews,
    Ignored,
    RecoverTable,
    RenamePair,
    RenameTables,
    SequenceDef,
    TruncateTable,
)
from tidegate.schema.stored.arguments import (
    AlterSequenceArgs,
    CreateTableArgs,
    DropObjectArgs,
    NewTableArgs,
    RecoverArgs,
    RenameTableArgs,
    RenameTablesArgs,
)
from tidegate.schema.stored.definition import (
    ElementState,
    Name,
    StoredColumn,
    StoredSequence,
    StoredTable,
    StoredType,
    StoredView,
)
from tidegate.schema.stored.snapshot import TableVersion
from tidegate_upstream.change.draft import Catalog
from tidegate_upstream.change.make_table import check_name, make_table
from tidegate_upstream.change.move_table import at_rest
from tidegate_upstream.change.request import Involved, Request, request_new, request_on
from tidegate_upstream.change.session import DdlSession, StatementNote, StatementPlan, passed_over
from tidegate_upstream.errors import missing_name, missing_table


def _exists(name: TableName, *, accepted: bool) -> StatementPlan:
    return passed_over(1050, f"Table '{name.schema}.{name.table}' already exists", "42S01", accepted=accepted)


def create_table(statement: CreateTable, catalog: Catalog, session: DdlSession) -> StatementPlan:
    """Return one job, or a note with IF NOT EXISTS."""
    schema = catalog.schema(statement.table.schema)
    if catalog.find(statement.table) is not None:
        return _exists(statement.table, accepted=statement.if_not_exists)
    table = make_table(statement, schema, session)
    keys = table.fk_info or ()
    parents = [TableName(key.ref_schema.original, key.ref_table.original) for key in keys]
    for parent in parents if session.foreign_key_checks else ():
        if parent.key != statement.table.key and catalog.find(parent) is None:
            raise SqlRefused(1824, f"Failed to open the referenced table '{parent.table}'", "HY000")
    involved = (
        Involved(schema.name.lower, table.name.lower),
        *(Involved(*parent.key, mode=1) for parent in parents if parent.key != statement.table.key),
    )
    return StatementPlan((request_new(3, schema, CreateTableArgs(table), *(involved if parents else ())),))


def create_table_like(statement: CreateTableLike, catalog: Catalog, _session: DdlSession) -> StatementPlan:
    """Return one job: the public part of the source's definition, without its foreign keys and counters."""
    source = catalog.table(statement.source)
    schema = catalog.schema(statement.table.schema)
    check_name(statement.table.table)
    if catalog.find(statement.table) is not None:
        return _exists(statement.table, accepted=statement.if_not_exists)
    stored, name = source.stored, Name.of(statement.table.table)
    table = msgspec.structs.replace(
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
    return StatementPlan((request_new(3, schema, CreateTableArgs(table), own, shared),))


def _unknown(names: Sequence[TableName]) -> str:
    return f"Unknown table '{','.join(f'{name.schema}.{name.table}' for name in names)}'"


def drop_tables(statement: DropTables, catalog: Catalog, session: DdlSession) -> StatementPlan:
    """Return one job a table; SqlRefused 1051 for an unknown table, 3730 if other tables refer to one."""
    tables: list[TableVersion] = []
    missing: list[TableName] = []
    for name in statement.tables:
        table = catalog.find(name)
        if table is None or table.stored.is_view or table.stored.is_sequence:
            missing.append(name)
        else:
            tables.append(table)
    if missing and not statement.if_exists:
        raise SqlRefused(1051, _unknown(missing), "42S02")
    dropped = {(lowered(table.schema), table.stored.name.lower) for table in tables}
    for name in statement.tables if session.foreign_key_checks else ():
        for child, key in catalog.children(name):
            if (lowered(child.schema), child.stored.name.lower) not in dropped:
                message = (
                    f"Cannot drop table '{name.table}' referenced by a foreign key constraint "
                    f"'{key.fk_name.original}' on table '{child.stored.name.original}'."
                )
                raise SqlRefused(3730, message, "HY000")
    requests = tuple(request_on(4, table, DropObjectArgs()) for table in tables)
    return StatementPlan(requests, tuple(StatementNote("Note", 1051, _unknown([name])) for name in missing))


def truncate_table(statement: TruncateTable, catalog: Catalog, session: DdlSession) -> StatementPlan:
    """Return one job; SqlRefused 1701 if other tables refer to the table."""
    table = catalog.find(statement.table)
    if table is None or table.stored.is_view or table.stored.is_sequence:
        raise missing_name(*statement.table)
    for child, key in catalog.children(statement.table) if session.foreign_key_checks else ():
        if child.stored.id != table.stored.id:
            message = (
                "Cannot truncate a table referenced in a foreign key constraint "
                f"({key.fk_name.original} of `{child.schema}`.`{child.stored.name.original}`)"
            )
            raise SqlRefused(1701, message, "42000")
    old = None if table.stored.partition is None else list(table.stored.physical_ids)
    return StatementPlan((request_on(11, table, NewTableArgs(old_partition_ids=old)),))


def rename_tables(statement: RenameTables, catalog: Catalog, _session: DdlSession) -> StatementPlan:
    """Return one job for all renames together."""
    return rename_pairs(statement.pairs, catalog)


def rename_pairs(pairs: Sequence[RenamePair], catalog: Catalog) -> StatementPlan:
    """Return one job; each rename sees the names that the ones before it left."""
    moves: list[RenameTableArgs] = []
    involved: list[Involved] = []
    schema_name = ""
    for pair in pairs:
        table = catalog.find(pair.old)
        if table is None or table.stored.is_sequence:
            raise missing_name(*pair.old)
        target = catalog.schema(pair.new.schema)
        check_name(pair.new.table)
        if catalog.find(pair.new) is not None and pair.new.key != pair.old.key:
            raise SqlRefused(1050, f"Table '{pair.new.schema}.{pair.new.table}' already exists", "42S01")
        moves.append(
            RenameTableArgs(
                table.stored.id,
                target.id,
                table.schema_id,
                Name.of(table.schema),
                table.stored.name,
                Name.of(pair.new.table),
            )
        )
        involved += [Involved(*pair.old.key), Involved(*pair.new.key)]
        schema_name = target.name.lower
        catalog.renamed(pair.old, pair.new, table)
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
    """Return one job; SqlRefused 1050 if the name is in use, 1105 if no such table was dropped."""
    name = statement.table
    if not name.table:
        raise SqlRefused(8200, "Unsupported RECOVER TABLE BY JOB; name the table", "HY000")
    schema = catalog.schema(name.schema)
    target = TableName(name.schema, statement.to or name.table)
    if catalog.find(target) is not None:
        raise SqlRefused(1050, f"Table '{target.schema}.{target.table}' already exists", "42S01")
    dropped = session.dropped(name.schema, name.table)
    if dropped is None:
        raise SqlRefused(
            1105, f"Can't find dropped/truncated table: {name.schema}.{name.table} in DDL history", "HY000"
        )
    table: StoredTable = dropped.stored
    if statement.to is not None:
        table = msgspec.structs.replace(table, name=Name.of(statement.to))
    involved = (Involved(*name.key), Involved(*target.key)) if target.key != name.key else ()
    arguments = RecoverArgs(table, dropped.version)
    return StatementPlan(
        (Request(25, schema.id, table.id, schema.name.lower, table.name.lower, arguments, involved=involved),)
    )


_DIALECT: Final = "mysql"
_NO_TYPE: Final = StoredType(0, 0, 0, 0, "", "")


def create_view(statement: CreateView, catalog: Catalog, session: DdlSession) -> StatementPlan:
    """Return one job, or a note with IF NOT EXISTS; SqlRefused 1050, 1064, 1146, 1353."""
    schema = catalog.schema(statement.view.schema)
    check_name(statement.view.table)
    old = catalog.find(statement.view)
    if old is not None and not old.stored.is_view and statement.detail.or_replace:
        raise SqlRefused(1347, f"'{statement.view.schema}.{statement.view.table}' is not VIEW", "HY000")
    if old is not None and not statement.detail.or_replace:
        message = f"Table '{statement.view.schema}.{statement.view.table}' already exists"
        return passed_over(1050, message, "42S01", accepted=statement.detail.if_not_exists)
    text, names = _written_out(statement.detail.select, catalog, session.database)
    if statement.detail.columns:
        if len(statement.detail.columns) != len(names):
            message = "View's SELECT and view's field list have different column counts"
            raise SqlRefused(1353, message, "HY000")
        names = list(statement.detail.columns)
    view = StoredView(view_select=text, view_cols=None)
    columns = [
        StoredColumn(number, Name.of(name), offset=number - 1, type=_NO_TYPE, version=0)
        for number, name in enumerate(names, start=1)
    ]
    stored = StoredTable(
        0,
        Name.of(statement.view.table),
        session.charset,
        session.collate,
        cols=columns,
        max_col_id=len(columns),
        state=ElementState.NONE,
        view=view,
    )
    arguments = CreateTableArgs(stored, statement.detail.or_replace, 0 if old is None else old.stored.id)
    return StatementPlan((request_new(21, schema, arguments),))


def _written_out(select: str, catalog: Catalog, database: str) -> tuple[str, list[str]]:
    """Return (the SELECT with all names qualified, the names of its columns)."""
    try:
        tree = sqlglot.parse_one(select, read=_DIALECT)
    except sqlglot.errors.SqlglotError as error:
        raise SqlRefused(1064, f"You have an error in your SQL syntax near {select[:80]!r}", "42000") from error
    if not isinstance(tree, exp.Query):
        raise SqlRefused(1064, f"You have an error in your SQL syntax near {select[:80]!r}", "42000")
    common = {lowered(cte.alias_or_name) for cte in tree.find_all(exp.CTE)}
    sources = {}
    for table in tree.find_all(exp.Table):
        if not table.db and lowered(table.name) in common:
            continue
        name = TableName(table.db or database, table.name)
        relation = catalog.find(name)
        if relation is None:
            raise missing_name(*name)
        table.set("db", exp.to_identifier(name.schema))
        sources[lowered(table.alias_or_name)] = relation.stored
    if not isinstance(tree, exp.Select):
        return _text(tree), [item.alias_or_name for item in tree.selects]
    selects = [shown for item in tree.expressions for shown in _shown(item, sources)]
    tree.set("expressions", None)
    rest = _text(tree).removeprefix("SELECT").removeprefix(" DISTINCT")
    distinct = "DISTINCT " if tree.args.get("distinct") else ""
    listed = ",".join(_text(item) for item in selects)
    return f"SELECT {distinct}{listed} {rest.strip()}".strip(), [item.alias for item in selects]


def _text(tree: exp.Expression) -> str:
    return str(tree.sql(dialect=_DIALECT, identify=True))


def _shown(item: exp.Expression, sources: dict[str, StoredTable]) -> list[exp.Alias]:
    table = item.table if isinstance(item, exp.Column) else ""
    if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
        chosen = [source for name, source in sources.items() if not table or name == lowered(table)]
        return [
            exp.alias_(exp.column(column.name.original, table=table or None, quoted=True), column.name.original)
            for source in chosen
            for column in source.cols or ()
            if not column.hidden and column.state == ElementState.PUBLIC
        ]
    if isinstance(item, exp.Alias):
        return [item]
    name = item.name if isinstance(item, exp.Column) else item.sql(dialect=_DIALECT)
    return [exp.alias_(item, name, quoted=True)]


def drop_views(statement: DropViews, catalog: Catalog, _session: DdlSession) -> StatementPlan:
    """Return one job a view; SqlRefused 1051 for an unknown view, 1347 for a table."""
    requests = []
    notes: list[StatementNote] = []
    for name in statement.views:
        view = catalog.find(name)
        if view is None:
            message = f"Unknown table '{name.schema}.{name.table}'"
            notes += passed_over(1051, message, "42S02", accepted=statement.if_exists).warnings
            continue
        if not view.stored.is_view:
            raise SqlRefused(1347, f"'{name.schema}.{name.table}' is not VIEW", "HY000")
        requests.append(request_on(24, view, DropObjectArgs()))
    return StatementPlan(tuple(requests), tuple(notes))


_GREATEST: Final = (1 << 63) - 2
_LEAST: Final = 1 - (1 << 63)


def plan_ignored(statement: Ignored, catalog: Catalog, _session: DdlSession) -> StatementPlan:
    """Return the job of a statement on sequences; none for statements without effect."""
    match statement.detail:
        case SequenceDef(alter=True) as definition:
            return _alter(definition, catalog)
        case SequenceDef() as definition:
            return _create(definition, catalog)
        case DropSequences() as dropped:
            return _drop(dropped, catalog)
        case None:
            return StatementPlan()


def _stored_sequence(definition: SequenceDef) -> StoredSequence:
    """Return the stored sequence of a definition; SqlRefused 4136 if its values conflict."""
    increment = 1 if definition.increment is None else definition.increment
    up = increment >= 0
    least = (1 if up else _LEAST) if definition.minimum is None else definition.minimum
    greatest = (_GREATEST if up else -1) if definition.maximum is None else definition.maximum
    start = (least if up else greatest) if definition.start is None else definition.start
    cache = 1000 if definition.cache is None else definition.cache
    if increment == 0 or not least <= start <= greatest or least >= greatest:
        raise SqlRefused(4136, f"Sequence '{definition.name}' values are conflicting", "HY000")
    return StoredSequence(
        start, cache != 0, bool(definition.cycle), least, greatest, increment, cache, definition.comment or ""
    )


def _create(definition: SequenceDef, catalog: Catalog) -> StatementPlan:
    name = definition.name
    schema = catalog.schema(name.schema)
    check_name(name.table)
    if catalog.find(name) is not None:
        message = f"Table '{name.schema}.{name.table}' already exists"
        return passed_over(1050, message, "42S01", accepted=definition.if_exists)
    table = StoredTable(
        0,
        Name.of(name.table),
        "",
        "",
        state=ElementState.NONE,
        comment=definition.comment or "",
        sequence=_stored_sequence(definition),
    )
    return StatementPlan((request_new(34, schema, CreateTableArgs(table)),))


def _alter(definition: SequenceDef, catalog: Catalog) -> StatementPlan:
    table = catalog.find(definition.name)
    name = f"{definition.name.schema}.{definition.name.table}"
    current = None if table is None else table.stored.sequence
    if table is None or current is None:
        if definition.if_exists:
            return StatementPlan(warnings=(StatementNote("Note", 4139, f"Unknown SEQUENCE: '{name}'"),))
        raise missing_table(f"'{name}'")
    whole = replace(
        definition,
        start=current.sequence_start if definition.start is None else definition.start,
        increment=current.sequence_increment if definition.increment is None else definition.increment,
        minimum=current.sequence_min_value if definition.minimum is None else definition.minimum,
        maximum=current.sequence_max_value if definition.maximum is None else definition.maximum,
        cache=current.sequence_cache_value if definition.cache is None else definition.cache,
        cycle=current.sequence_cycle if definition.cycle is None else definition.cycle,
        comment=current.sequence_comment if definition.comment is None else definition.comment,
    )
    arguments = AlterSequenceArgs(
        _stored_sequence(whole), None if definition.restart is None else definition.restart - 1
    )
    return StatementPlan((request_on(35, table, arguments),))


def _drop(dropped: DropSequences, catalog: Catalog) -> StatementPlan:
    requests: list[Request] = []
    notes: list[StatementNote] = []
    for name in dropped.names:
        sequence = catalog.find(name)
        if sequence is None or not sequence.stored.is_sequence:
            message = f"Unknown SEQUENCE: '{name.schema}.{name.table}'"
            notes += passed_over(4139, message, "42S02", accepted=dropped.if_exists).warnings
            continue
        requests.append(request_on(36, sequence, DropObjectArgs()))
    return StatementPlan(tuple(requests), tuple(notes))
