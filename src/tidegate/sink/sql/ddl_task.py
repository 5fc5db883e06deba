"""A DDL to run in a target: the tables before and after it, and defaults that its text leaves open. Pure.

The statement names the objects that the upstream changed (schema/ddl_tables.py): both names of renames, an altered
table by its current name.
A DDL that cannot be followed leaves the tables unchanged.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from tidegate.engine.filter import TableFilter
from tidegate.engine.plan import PlannedDdl
from tidegate.model.event import Ddl
from tidegate.model.name import lowered
from tidegate.model.table import TableName
from tidegate.model.tso import Tso, physical_ms
from tidegate.schema.ddl_tables import resolve_tables
from tidegate.schema.effects import Effect, PartitionExchanged, TableRenamed
from tidegate.schema.state import SchemaState
from tidegate.schema.statement import (
    AddColumns,
    AddForeignKey,
    AddIndex,
    AlterTable,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropTables,
    DropViews,
    ExchangePartition,
    IndexDef,
    RecoverTable,
    RenameTables,
    Statement,
    TruncateTable,
)
from tidegate.sink.sql.ddl_rewrite import TAKES_ALL, StatementContext
from tidegate.sink.sql.ddl_shape import ShapeChange, changed_tables, is_exchange

_AGAIN = (DropTables, DropViews, DropDatabase, TruncateTable)
"""Statements that may run again after a failure half way: IF EXISTS, or nothing is written before the outcome is
known."""


@dataclass(frozen=True, slots=True)
class DdlTask:
    """One DDL, the schema before and after it, its effects; `is_followed` unless schema/ cannot derive them.

    `written` are the statements with the names of the text, `statements` with the tables that are meant."""

    ddl: Ddl
    before: SchemaState
    after: SchemaState
    effects: Sequence[Effect]
    written: Sequence[Statement]
    statements: Sequence[Statement]
    is_followed: bool

    @property
    def clock_s(self) -> float:
        """CURRENT_TIMESTAMP in seconds since 1970: from the source if it has it, else the time of the DDL's ts."""
        moment = self.ddl.known_session.moment
        if not moment:
            return physical_ms(Tso(self.ddl.commit_ts or 0)) / 1000
        return datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp()

    @property
    def schema(self) -> str:
        """The database of unqualified names in the text."""
        for statement in self.statements:
            match statement:
                case CreateTableLike(_, source, doubtful) if doubtful:
                    return self._home(source)
                case AlterTable(table, doubtful, _) if doubtful:
                    return self._home(table)
        return self._databases.get(lowered(self.ddl.schema), self.ddl.schema)

    @property
    def _databases(self) -> dict[str, str]:
        """Spellings of databases, by folded name."""
        databases = {key: database.name for key, database in self.before.databases.items()}
        return databases | {key[0]: table.name.schema for key, table in self.before.tables.items()}

    @property
    def keys(self) -> list[tuple[str, str]]:
        """The folded names of all tables that it may change, known or not."""
        named = [TableName(self.ddl.schema, self.ddl.table)] if self.ddl.table else []
        for statement in self.statements:
            match statement:
                case AlterTable(table) | TruncateTable(table) | CreateTable(table) | CreateTableLike(table):
                    named.append(table)
                case DropTables(tables):
                    named += tables
                case RenameTables(pairs):
                    named += [name for pair in pairs for name in (pair.old, pair.new)]
        return list(dict.fromkeys([*changed_tables(self.before, self.after), *(name.key for name in named)]))

    @property
    def is_blind(self) -> bool:
        """True if schema/ does not know the tables, so that their definition after the DDL is unknown."""
        return not self.is_followed or (
            not changed_tables(self.before, self.after)
            and bool(self.keys)
            and all(key not in self.after.tables for key in self.keys)
        )

    @property
    def is_again(self) -> bool:
        """True if the statement may run again whatever part of it is done."""
        return bool(self.statements) and all(isinstance(statement, _AGAIN) for statement in self.statements)

    @property
    def has_job_each(self) -> bool:
        """True if a TiDB makes a job for each object of one statement, so that its newest job does not represent
        all."""
        match self.statements:
            case [DropTables(names) | DropViews(names)]:
                return len(names) > 1
        return False

    def _home(self, name: TableName) -> str:
        same = [table.name.schema for key, table in self.before.tables.items() if key[1] == name.key[1]]
        return same[0] if len(same) == 1 else self.ddl.schema

    def context(self, *, inherits: bool, rules: TableFilter = TAKES_ALL) -> StatementContext:
        """Return the facts that the text does not have; `inherits` where the target's database has the right charset,
        `rules` are those of the feed."""
        charset = None if inherits else self.before.database(self.ddl.schema).charset
        names = {key: table.name for key, table in self.before.tables.items()}
        schema, databases = self.schema, self._databases
        context = StatementContext(
            charset,
            schema=schema,
            tables=names,
            databases=databases,
            brought=self._brought(),
            rules=rules,
            of_table=bool(self.ddl.table),
        )
        if len(self.statements) != 1:
            return context
        (written,), (statement,) = self.written, self.statements
        if isinstance(statement, RenameTables):
            renames = [
                (effect.old.name, effect.new.name) for effect in self.effects if isinstance(effect, TableRenamed)
            ]
            return replace(context, renames=renames if len(renames) == len(statement.pairs) else ())
        if not isinstance(statement, AlterTable | TruncateTable | RecoverTable):
            return context
        table = self.before.table(statement.table)
        return replace(
            context,
            table=statement.table if statement != written else None,
            other=_exchanged(statement) if statement != written else None,
            partitioned=table.partition.method if table is not None and table.partition is not None else "",
            exchanged="".join(effect.partition for effect in self.effects if isinstance(effect, PartitionExchanged)),
        )

    def _brought(self) -> dict[tuple[str, ...], str]:
        """Names of the indexes that foreign keys of the statements add, by table and columns."""
        keys = [key for statement in self.statements for key in _keys(statement)]
        written = {lowered(key.name) for key in keys if key.name and not key.foreign}
        named = [(tuple(map(lowered, key.columns)), lowered(key.name or "")) for key in keys if key.foreign]
        names: dict[tuple[str, ...], str] = {}
        for table in changed_tables(self.before, self.after) if named else ():
            old = self.before.tables.get(table)
            index_names = written | ({lowered(index.name) for index in old.indexes} if old else set())
            for index in self.after.tables[table].indexes if table in self.after.tables else ():
                columns, name = tuple(map(lowered, index.columns)), lowered(index.name)
                mine = (columns, name) in named or ((columns, "") in named and _UNNAMED.fullmatch(name))
                if mine and name not in index_names:
                    names[(*table, *columns)] = index.name
        return names

    def is_repeatable(self, change: ShapeChange) -> bool:
        """Return True if running the statement again after a part of it was done has the result of running it once."""
        if is_exchange(self.effects):
            return False
        several = len(self.statements) > 1 and all(isinstance(statement, CreateTable) for statement in self.statements)
        return several or not (change.gone or change.come) or self.is_again


def _exchanged(statement: Statement) -> TableName | None:
    """The table of an EXCHANGE PARTITION."""
    specs = statement.specs if isinstance(statement, AlterTable) else ()
    return next((spec.table for spec in specs if isinstance(spec, ExchangePartition)), None)


_UNNAMED: Final = re.compile(r"fk_\d+")
"""TiDB's name for the key of a foreign key without a name."""


def _keys(statement: Statement) -> Iterable[IndexDef]:
    match statement:
        case CreateTable():
            yield from statement.indexes
        case AlterTable(_, _, specs):
            for spec in specs:
                match spec:
                    case AddIndex(key) | AddForeignKey(key):
                        yield key
                    case AddColumns(_, keys):
                        yield from keys


def task_of(planned: PlannedDdl) -> DdlTask:
    """Return the task of a DDL."""
    ddl, before, written = planned.ddl, planned.before, planned.statements
    statements = [resolve_tables(before, statement, ddl) for statement in written]
    return DdlTask(ddl, before, planned.after, planned.effects, written, statements, is_followed=planned.error is None)
