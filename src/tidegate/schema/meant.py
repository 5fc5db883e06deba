"""Which tables a DDL is about, where its event's label and its text name different ones: one rule for all who ask.

    label   the event's schema and table: what the job changed, by its name when the job had ended
    text    the names as the user's session took them when it asked for the job: before a RENAME that was queued first

    statement                    the label is, of both TiCDCs              where they differ
    CREATE, DROP                 the table or view                         TEXT   as in DROP of several
    RENAME                       the new name; where one job renames a     TEXT   swaps are three events of one
                                 table several times, its last one                commit_ts, each with one step
    FLASHBACK TABLE .. TO        the new name                              TEXT
    ALTER, TRUNCATE, .. INDEX    the table                                 LABEL  another table may have the old name
    EXCHANGE PARTITION           the partitioned table (classic), the      SIDE   the label is the table of the two
                                 exchanged one (new architecture)                 that it names, else that of its kind
    RECOVER TABLE BY JOB         the table                                 BLANK  the text names no table
    of a database                the database                              TEXT

A label counts where a table of that name is known; else the text does.
Source: recorded topics of both architectures (tests/data/ticdc_topics, codec, codec_newarch).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final

from tidegate.model.errors import SqlError
from tidegate.model.event import Ddl
from tidegate.model.table import TableName
from tidegate.schema import statement as of
from tidegate.schema.effects import Effect, PartitionExchanged
from tidegate.schema.parse_ddl import parse
from tidegate.schema.snapshot import SchemaState
from tidegate.schema.statement import (
    AlterTable,
    ExchangePartition,
    RecoverTable,
    RenameTo,
    Spec,
    Statement,
    TruncateTable,
)


class Wins(Enum):
    """Whether label or text names the table of a statement where they differ (table in the module docstring)."""

    TEXT = "text"
    LABEL = "label"
    SIDE = "side"
    BLANK = "blank"


WINS: Final[Mapping[type, Wins]] = {
    of.CreateDatabase: Wins.TEXT,
    of.AlterDatabase: Wins.TEXT,
    of.DropDatabase: Wins.TEXT,
    of.RecoverDatabase: Wins.TEXT,
    of.CreateTable: Wins.TEXT,
    of.CreateTableLike: Wins.TEXT,
    of.DropTables: Wins.TEXT,
    of.CreateView: Wins.TEXT,
    of.DropViews: Wins.TEXT,
    of.RenameTables: Wins.TEXT,
    of.Ignored: Wins.TEXT,
    TruncateTable: Wins.LABEL,
    AlterTable: Wins.LABEL,
    RenameTo: Wins.TEXT,
    ExchangePartition: Wins.SIDE,
    RecoverTable: Wins.BLANK,
}
"""By the kind of a statement, of ALTER TABLE by the kind of a clause where that has a row of its own."""


def wins(statement: Statement) -> Wins:
    """Return whether the event's label or the text names the table of a statement where they differ."""
    clauses = statement.specs if isinstance(statement, AlterTable) else ()
    return next((WINS[type(clause)] for clause in clauses if type(clause) in WINS), WINS[type(statement)])


def meant(state: SchemaState, statement: Statement, ddl: Ddl) -> Statement:
    """Return a statement of a DDL's text with the tables that the DDL is about; `state` is the schema before it."""
    label, rule = TableName(ddl.schema, ddl.table), wins(statement)
    known = state.table(label) if ddl.table else None
    match statement:
        case RecoverTable(name) if rule is Wins.BLANK and not name.table:
            return replace(statement, table=label)
        case AlterTable(name, _, specs) if rule is Wins.SIDE and known is not None and known.name.key != name.key:
            if known.partition is not None:
                return replace(statement, table=label, doubtful=False)
            clauses = [_with(clause, label) if not known.inferred else clause for clause in specs]
            return replace(statement, specs=tuple(clauses))
        case AlterTable(name) if rule is Wins.LABEL and known is not None and known.name.key != name.key:
            return replace(statement, table=label, doubtful=False)
        case TruncateTable(name) if known is not None and known.name.key != name.key:
            return TruncateTable(label)
    return statement


def _with(clause: Spec, label: TableName) -> Spec:
    """EXCHANGE PARTITION with the table of its event."""
    if isinstance(clause, ExchangePartition) and clause.table.key != label.key:
        return replace(clause, table=label)
    return clause


def about(ddl: Ddl, effects: Iterable[Effect] = ()) -> TableName:
    """Return the table by which users know a DDL, by its effects, else by its text: its label, but of EXCHANGE
    PARTITION the partitioned one."""
    label = TableName(ddl.schema, ddl.table)
    exchanged = [(one.partitioned.name, one.other.name) for one in effects if isinstance(one, PartitionExchanged)]
    for table, other in exchanged or _exchanged(ddl):
        if other.key == label.key:
            return table
    return label


def _exchanged(ddl: Ddl) -> Iterator[tuple[TableName, TableName]]:
    altered = [one for one in read(ddl) if isinstance(one, AlterTable)] if "EXCHANGE" in ddl.query.upper() else []
    for one in altered:
        yield from ((one.table, clause.table) for clause in one.specs if isinstance(clause, ExchangePartition))


def read(ddl: Ddl) -> tuple[Statement, ...]:
    """Return the statements of a DDL's text; none of one that cannot be read."""
    try:
        return parse(ddl.query, ddl.schema)
    except SqlError:
        return ()
