"""Which tables a DDL speaks of, by label and text: those that it makes, changes, moves or takes away. Pure.

    ALTER TABLE a .. EXCHANGE PARTITION p WITH TABLE b      a, b
    RENAME TABLE a TO b, c TO d                             a, b, c, d
    CREATE TABLE a LIKE b                                   a: b stays what it is
    text that cannot be read                                the label's alone, unless it may name two tables
    a statement about a database                            none

A name that stands without its database may be any table of that name that is known.
"""

import re
from collections.abc import Iterator
from typing import Final

from tidegate.model.event import Ddl
from tidegate.model.table import TableName
from tidegate.schema.meant import read
from tidegate.schema.snapshot import SchemaState
from tidegate.schema.spec import ExchangePartition, RenameTo
from tidegate.schema.statement import (
    AlterTable,
    CreateTable,
    CreateTableLike,
    DropTables,
    RecoverTable,
    RenameTables,
    Statement,
    TruncateTable,
)

_SEVERAL: Final = re.compile("rename|exchange", re.IGNORECASE)


def names_of(ddl: Ddl, state: SchemaState) -> tuple[TableName, ...]:
    """Return the tables that a DDL speaks of; () where that cannot be told, or where it is about a database."""
    if not ddl.table:
        return ()
    told, statements = TableName(ddl.schema, ddl.table), read(ddl)
    if not statements and _SEVERAL.search(ddl.query):
        return ()
    names = [told, *(name for each in statements for name, _ in _named(each))]
    doubtful = {name.key[1] for each in statements for name, sure in _named(each) if not sure}
    names += (table.name for key, table in state.tables.items() if key[1] in doubtful)
    return tuple({name.key: name for name in names}.values())


def _named(statement: Statement) -> Iterator[tuple[TableName, bool]]:
    """The names of a statement, and whether each is sure to be that table's."""
    match statement:
        case CreateTable() | CreateTableLike() | TruncateTable():
            yield statement.table, True
        case DropTables():
            yield from ((name, True) for name in statement.tables)
        case RenameTables():
            for pair in statement.pairs:
                yield pair.old, not pair.doubtful
                yield pair.new, True
        case AlterTable():
            yield statement.table, not statement.doubtful
            yield from (
                (spec.table, True) for spec in statement.specs if isinstance(spec, RenameTo | ExchangePartition)
            )
        case RecoverTable():
            yield from ((statement.table, True),) if statement.table.table else ()
            if statement.to is not None:
                yield TableName(statement.table.schema, statement.to), True
