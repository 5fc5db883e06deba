"""Tables that schema/ does not know, or only by their rows, as the target has them before a DDL.

A topic that is read from its middle tells an ALTER TABLE without the CREATE TABLE before it.  What becomes of stored
values follows from the type that a column had; the target has it, and the ledger keeps it with the plan of the DDL:

    ("was", "d.t", "0003", "v", "varchar(20)", "utf8mb4")        the fourth column of d.t
"""

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from tidegate.model.errors import SqlError
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, TableInfo, TableName
from tidegate.mysql import server_sql as sent
from tidegate.schema.columns import parse_type
from tidegate.schema.statement import AlterTable
from tidegate.sink.sql.ddl.session import DdlConnection
from tidegate.sink.sql.ddl.shape import WAS, Fact, Facts, named
from tidegate.sink.sql.ddl.task import DdlTask, task_of


def columns_of_unknown(session: DdlConnection, task: DdlTask) -> Facts:
    """Return the columns of the tables that a DDL alters and schema/ does not know for certain."""
    return frozenset(fact for name in _unknown(task) for fact in _columns(session, name))


def _unknown(task: DdlTask) -> Iterator[TableName]:
    for statement in task.statements:
        if isinstance(statement, AlterTable):
            table = task.before.table(statement.table)
            if table is None or table.inferred:
                yield statement.table


def _columns(session: DdlConnection, name: TableName) -> Iterator[Fact]:
    for at, (column, kind, charset, _) in enumerate(session.ask(sent.TYPED_COLUMNS, name.key)):
        yield WAS, named(name), f"{at:04}", column, kind, charset or "binary"


def with_columns(task: DdlTask, columns: Facts) -> DdlTask:
    """Return the task with what the target had of its tables."""
    if not columns:
        return task
    told = defaultdict[str, list[Fact]](list)
    for fact in sorted(columns):
        told[fact[1]].append(fact)
    state = task.before
    for name in _unknown(task):
        if named(name) in told:
            state = state.with_table(_table(state.table(name), name, told[named(name)]))
    return task_of(state, task.ddl, 1)


def _table(known: TableInfo | None, name: TableName, facts: list[Fact]) -> TableInfo:
    found = [one for at, fact in enumerate(facts, 1) if (one := _column(at, *fact[3:])) is not None]
    if known is None:
        return TableInfo(name, "of the target", 0, tuple(found), max_column_id=len(facts))
    types = {lowered(column.name): column.type for column in found}
    columns = [
        column if column.type.code is T.JSON else msgspec.structs.replace(column, type=types.get(key, column.type))
        for column in known.columns
        for key in (lowered(column.name),)
    ]
    return msgspec.structs.replace(known, columns=tuple(columns))


def _column(at: int, name: str, kind: str, charset: str) -> ColumnInfo | None:
    try:
        return ColumnInfo(at, name, parse_type(kind, charset))
    except SqlError:
        return None
