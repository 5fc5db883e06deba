"""Schema history, one DDL at a time: `apply_ddl` (tables, DDL) -> (next tables, effects).

    state --CREATE t--> state --ALTER t--> state --RENAME t TO u--> state --TRUNCATE u--> state --FLASHBACK u TO v--> ..
    rows    a1-0                 a1-0                a1-0                   f7-0                 f7-0 and a1-0 again

`incarnation` (hex commit_ts, dash, index among the DDLs of that ts) names the rows: CREATE and TRUNCATE make a new one,
RENAME, ALTER and repartitioning keep it, RECOVER and FLASHBACK bring an old one back.  `version` is the commit_ts of
the table's last DDL.

Tables whose creation was not seen (a topic read from its middle) are no error: their DDLs have no effect, with a
reason, until rows show the table's columns.  Neither are `lost` tables (excluded by a filter, with a DDL that could
not be followed), unless another table needs one, by LIKE or EXCHANGE PARTITION.  A DDL that contradicts a *known*
table raises SchemaError.
ddl_tables.py resolves which tables a DDL is about.  Rename events carry the schema of the new name; an old name without
schema is then looked for where it exists.
Source: TiCDC entry/schema/snapshot.go; TiDB pkg/ddl.
"""

from dataclasses import replace
from typing import Final

import msgspec

from tidegate.model.errors import SchemaError, TidegateError, UnsupportedError
from tidegate.model.event import Ddl
from tidegate.model.name import lowered, qualified
from tidegate.model.table import TableInfo, TableName
from tidegate.model.tso import compose
from tidegate.schema import effects
from tidegate.schema import statement as sql
from tidegate.schema.alter import alter_table, named_partitions
from tidegate.schema.build import DdlContext, build_table
from tidegate.schema.columns import own_collation
from tidegate.schema.ddl_tables import resolve_tables
from tidegate.schema.effects import Effect, NoEffect
from tidegate.schema.parse_ddl import parse_ddl
from tidegate.schema.partition import in_zone
from tidegate.schema.snapshot import Database, SchemaState

__all__ = ["Database", "SchemaState", "apply_ddl"]

_Step = tuple[SchemaState, list[Effect]]


def apply_ddl(state: SchemaState, ddl: Ddl, seq: int) -> tuple[SchemaState, tuple[Effect, ...]]:
    """Return the state after `ddl`, and its effects (at least one); `seq` is its index among the DDLs of its commit_ts.

    Raises SqlError (unreadable), UnsupportedError (readable, not followed), SchemaError (does not fit the tables)."""
    caused: list[Effect] = []
    number = 0
    try:
        context = DdlContext(_commit_ts(ddl), seq, ddl.query)
        for statement in parse_ddl(ddl.query, ddl.schema):
            resolved = in_zone(resolve_tables(state, statement, ddl), ddl.known_session.zone)
            state, more = _apply(state, resolved, context, number=number)
            caused += more
            number += sum(isinstance(effect, effects.TableCreated | effects.TableTruncated) for effect in more)
    except TidegateError as error:
        error.at(table=qualified(ddl.schema, ddl.table) if ddl.table else "", commit_ts=ddl.commit_ts or 0)
        raise
    return state, tuple(caused) or (NoEffect("empty statement"),)


def _commit_ts(ddl: Ddl) -> int:
    if ddl.commit_ts is not None:
        return ddl.commit_ts
    if ddl.es_ms is None:
        raise SchemaError(
            f"table {ddl.schema}.{ddl.table}: a DDL without commit_ts cannot be placed in time: {ddl.query[:500]!r}"
        )
    return compose(ddl.es_ms)


def _apply(state: SchemaState, statement: sql.Statement, context: DdlContext, *, number: int) -> _Step:
    match statement:
        case sql.CreateTable():
            return _create_table(state, statement, context, number)
        case sql.CreateTableLike():
            return _create_like(state, statement, context, number)
        case sql.DropTables():
            return _drop_tables(state, statement)
        case sql.TruncateTable(name):
            return _truncate_table(state, name, context, number)
        case sql.RenameTables():
            return _rename_tables(state, statement, context)
        case sql.AlterTable():
            return _alter_table(state, statement, context)
        case sql.RecoverTable():
            return _recover_table(state, statement, context)
        case sql.CreateView(view):
            return replace(state, views={**state.views, view.key: view}), [_VIEWS]
        case sql.DropViews(views):
            gone = {view.key for view in views}
            kept = {key: view for key, view in state.views.items() if key not in gone}
            return replace(state, views=kept), [_VIEWS]
        case sql.Ignored(what):
            return state, [NoEffect(f"{what} changes no table")]
        case _:
            return _apply_to_database(state, statement, context)


def _apply_to_database(
    state: SchemaState,
    statement: sql.CreateDatabase | sql.AlterDatabase | sql.DropDatabase | sql.RecoverDatabase,
    context: DdlContext,
) -> _Step:
    match statement:
        case sql.CreateDatabase() | sql.AlterDatabase():
            return _set_database(state, statement)
        case sql.DropDatabase():
            return _drop_database(state, statement)
        case sql.RecoverDatabase(name):
            raise UnsupportedError(
                f"FLASHBACK DATABASE {name} at commit_ts {context.commit_ts} is not supported; start the changefeed "
                f"again after it"
            )


_VIEWS: Final = NoEffect("views carry no rows")


def _unknown(name: TableName) -> Effect:
    return NoEffect(f"unknown table {name}: it was created before the changefeed's start")


def _needed(state: SchemaState, source: TableName, name: TableName, context: DdlContext) -> None:
    """Raise SchemaError if a statement about `name` needs a lost table."""
    lost = state.lost.get(source.key)
    if lost is not None:
        raise SchemaError(
            f"table {name}: DDL {context.query[:500]!r} at commit_ts {context.commit_ts} needs the definition of "
            f"{source}, which the filter excludes and which could not be followed ({lost.why}); exclude {name} by a "
            f"filter rule as well"
        )


def _rename_lost(state: SchemaState, old: TableName, new: TableName) -> SchemaState:
    lost = state.lost.get(old.key)
    return state if lost is None else state.without_loss(old).losing((new,), lost.why)


def _set_database(state: SchemaState, statement: sql.CreateDatabase | sql.AlterDatabase) -> _Step:
    key = lowered(statement.name)
    existing = state.databases.get(key)
    if isinstance(statement, sql.CreateDatabase):
        if existing is not None:
            return state, [NoEffect(f"database {statement.name} exists already")]
        charset = statement.charset or "utf8mb4"
        database = Database(statement.name, charset, own_collation(statement.collate, charset))
    else:
        database = existing or Database(statement.name)
        if statement.charset is not None:
            collation = own_collation(statement.collate, statement.charset)
            database = Database(database.name, statement.charset, collation)
    databases = {**state.databases, key: database}
    return replace(state, databases=databases), [NoEffect("a database holds no rows itself")]


def _drop_database(state: SchemaState, statement: sql.DropDatabase) -> _Step:
    folded = lowered(statement.name)
    gone = [table for key, table in state.tables.items() if key[0] == folded]
    after = SchemaState(
        {key: database for key, database in state.databases.items() if key != folded},
        {key: table for key, table in state.tables.items() if key[0] != folded},
        tuple(table for table in state.dropped if table.name.key[0] != folded),
        {key: view for key, view in state.views.items() if key[0] != folded},
        {key: lost for key, lost in state.lost.items() if key[0] != folded},
    )
    drops: list[Effect] = [effects.TableDropped(table) for table in gone]
    return after, drops or [NoEffect(f"database {statement.name} held no known table")]


def _create_table(state: SchemaState, statement: sql.CreateTable, context: DdlContext, number: int) -> _Step:
    existing = state.table(statement.table)
    if existing is not None:
        if statement.if_not_exists:
            return state, [NoEffect(f"table {existing.name} exists already")]
        raise context.error(statement.table, f"it exists already, since version {existing.version}")
    if statement.not_supported:
        raise UnsupportedError(
            f"table {statement.table}: {statement.not_supported} by DDL {context.query[:500]!r} at commit_ts "
            f"{context.commit_ts} is not supported; exclude the table by a filter rule"
        )
    table = build_table(statement, state.database(statement.table.schema), context, number)
    return state.with_table(table), [effects.TableCreated(table)]


def _create_like(state: SchemaState, statement: sql.CreateTableLike, context: DdlContext, number: int) -> _Step:
    existing = state.table(statement.table)
    if existing is not None:
        if statement.if_not_exists:
            return state, [NoEffect(f"table {existing.name} exists already")]
        raise context.error(statement.table, f"it exists already, since version {existing.version}")
    source = _locate(state, statement.source, doubtful=statement.doubtful, context=context)
    if source is None:
        _needed(state, statement.source, statement.table, context)
        return state, [_unknown(statement.source)]
    table = msgspec.structs.replace(
        source, name=statement.table, incarnation=context.incarnation(number), version=context.commit_ts
    )
    return state.with_table(table), [effects.TableCreated(table)]


def _drop_tables(state: SchemaState, statement: sql.DropTables) -> _Step:
    caused: list[Effect] = []
    for name in statement.tables:
        table = state.table(name)
        if table is None:
            state = state.without_loss(name)
            caused.append(_unknown(name))
            continue
        state = state.without_table(name).with_dropped(table)
        caused.append(effects.TableDropped(table))
    return state, caused


def _truncate_table(state: SchemaState, name: TableName, context: DdlContext, number: int) -> _Step:
    old = state.table(name)
    if old is None:
        return state, [_unknown(name)]
    new = msgspec.structs.replace(old, incarnation=context.incarnation(number), version=context.commit_ts)
    return state.with_table(new).with_dropped(old), [effects.TableTruncated(old, new)]


def _locate(state: SchemaState, name: TableName, *, doubtful: bool, context: DdlContext) -> TableInfo | None:
    """Return the table of that name; with a doubtful schema, the only one of that name in any database.

    Raises SchemaError if several databases have one, since the event does not carry the session's database."""
    exact = state.table(name)
    if not doubtful:
        return exact
    same = [table for key, table in state.tables.items() if key[1] == name.key[1]]
    if len(same) > 1:
        where = ", ".join(str(table.name) for table in same)
        raise context.error(name, f"the DDL names no schema and could mean any of {where}")
    return same[0] if same else None


def _rename_tables(state: SchemaState, statement: sql.RenameTables, context: DdlContext) -> _Step:
    caused: list[Effect] = []
    for pair in statement.pairs:
        old = _locate(state, pair.old, doubtful=pair.doubtful, context=context)
        if old is None:
            state = _rename_lost(state, pair.old, pair.new)
            caused.append(_unknown(pair.old))
            continue
        state, effect = _rename(state, old, pair.new, context)
        caused.append(effect)
    return state, caused


def _rename(state: SchemaState, old: TableInfo, new_name: TableName, context: DdlContext) -> tuple[SchemaState, Effect]:
    existing = state.table(new_name)
    if existing is not None and new_name.key != old.name.key:
        raise context.error(old.name, f"it cannot become {new_name}, which exists since version {existing.version}")
    new = msgspec.structs.replace(old, name=new_name, version=context.commit_ts)
    return state.without_table(old.name).with_table(new), effects.TableRenamed(old, new)


def _alter_table(state: SchemaState, statement: sql.AlterTable, context: DdlContext) -> _Step:
    rename = next((spec for spec in statement.specs if isinstance(spec, sql.RenameTo)), None)
    old = _locate(state, statement.table, doubtful=statement.doubtful, context=context)
    exchange = next((spec for spec in statement.specs if isinstance(spec, sql.ExchangePartition)), None)
    if old is None:
        if exchange is not None and state.table(exchange.table) is not None:
            _needed(state, statement.table, exchange.table, context)
        state = state if rename is None else _rename_lost(state, statement.table, rename.table)
        return state, [_unknown(statement.table)]
    if exchange is not None:
        return _exchange_partition(state, old, exchange, context)
    new = alter_table(old, statement.specs, context, state.database(old.name.schema))
    state = state.with_table(new)
    caused = _alter_effects(old, new, statement, context)
    if rename is not None:
        state, effect = _rename(state, new, rename.table, context)
        caused = [*(item for item in caused if not isinstance(item, NoEffect)), effect]
    return state, caused


def _alter_effects(old: TableInfo, new: TableInfo, statement: sql.AlterTable, context: DdlContext) -> list[Effect]:
    for spec in statement.specs:
        if isinstance(spec, sql.TruncatePartitions):
            return [effects.PartitionsTruncated(old, named_partitions(old, spec.names, context), new)]
        if isinstance(spec, sql.DropPartitions):
            kept = {item.name for item in new.partition.definitions} if new.partition else set()
            before = old.partition.definitions if old.partition else ()
            gone = tuple(item.name for item in before if item.name not in kept)
            return [effects.PartitionsDropped(old, gone, new) if gone else NoEffect("no such partition")]
    if msgspec.structs.replace(new, version=old.version) == old:
        return [NoEffect("nothing changed that rows depend on")]
    return [effects.TableAltered(old, new)]


def _exchange_partition(state: SchemaState, old: TableInfo, spec: sql.ExchangePartition, context: DdlContext) -> _Step:
    other = state.table(spec.table)
    if other is None:
        _needed(state, spec.table, old.name, context)
        return state, [_unknown(spec.table)]
    (name,) = named_partitions(old, (spec.name,), context)
    new = msgspec.structs.replace(old, version=context.commit_ts)
    new_other = msgspec.structs.replace(other, version=context.commit_ts)
    effect = effects.PartitionExchanged(old, name, other, new, new_other)
    return state.with_table(new).with_table(new_other), [effect]


def _recover_table(state: SchemaState, statement: sql.RecoverTable, context: DdlContext) -> _Step:
    name = statement.table
    recovered = next((table for table in state.dropped if table.name.key == name.key), None)
    if recovered is None:
        return state, [_unknown(name)]
    new_name = TableName(name.schema, statement.to) if statement.to is not None else recovered.name
    existing = state.table(new_name)
    if existing is not None:
        raise context.error(name, f"it cannot come back as {new_name}, which exists since version {existing.version}")
    table = msgspec.structs.replace(recovered, name=new_name, version=context.commit_ts)
    dropped = tuple(item for item in state.dropped if item is not recovered)
    after = replace(state, dropped=dropped).with_table(table)
    return after, [effects.TableRecovered(table)]
