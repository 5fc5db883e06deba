"""The tables of a DDL, in case the label of its event and its text name different ones.

    label   the event's schema and table: what the job changed, by its name when the job had ended
    text    the names as of the submission of the job: before a RENAME that was queued first

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
from tidegate.schema import statement as sql
from tidegate.schema.effects import Effect, PartitionExchanged
from tidegate.schema.parse_ddl import parse_ddl
from tidegate.schema.snapshot import SchemaState


class NameSource(Enum):
    """The source of a statement's table name: its text, or the label of its event (table in the module docstring)."""

    TEXT = "text"
    LABEL = "label"
    SIDE = "side"
    BLANK = "blank"


NAME_SOURCES: Final[Mapping[type, NameSource]] = {
    **dict.fromkeys((sql.CreateDatabase, sql.AlterDatabase, sql.DropDatabase, sql.RecoverDatabase), NameSource.TEXT),
    **dict.fromkeys((sql.CreateTable, sql.CreateTableLike, sql.DropTables, sql.RenameTables), NameSource.TEXT),
    **dict.fromkeys((sql.CreateView, sql.DropViews, sql.Ignored), NameSource.TEXT),
    sql.TruncateTable: NameSource.LABEL,
    sql.AlterTable: NameSource.LABEL,
    sql.RenameTo: NameSource.TEXT,
    sql.ExchangePartition: NameSource.SIDE,
    sql.RecoverTable: NameSource.BLANK,
}
"""By the kind of a statement, of ALTER TABLE by the kind of a clause where that has a row of its own."""


def name_source(statement: sql.Statement) -> NameSource:
    """Return the source of a statement's table name in case the label of its event and its text differ."""
    clauses = statement.specs if isinstance(statement, sql.AlterTable) else ()
    return next(
        (NAME_SOURCES[type(clause)] for clause in clauses if type(clause) in NAME_SOURCES),
        NAME_SOURCES[type(statement)],
    )


def resolve_tables(state: SchemaState, statement: sql.Statement, ddl: Ddl) -> sql.Statement:
    """Return the statement with its table names resolved; `state` is the schema before the DDL."""
    label, source = TableName(ddl.schema, ddl.table), name_source(statement)
    table = state.table(label) if ddl.table else None
    match statement:
        case sql.RecoverTable(name) if source is NameSource.BLANK and not name.table:
            return replace(statement, table=label)
        case sql.AlterTable(name, _, specs) if (
            source is NameSource.SIDE and table is not None and table.name.key != name.key
        ):
            if table.partition is not None:
                return replace(statement, table=label, doubtful=False)
            clauses = [_with(clause, label) if not table.inferred else clause for clause in specs]
            return replace(statement, specs=tuple(clauses))
        case sql.AlterTable(name) if source is NameSource.LABEL and table is not None and table.name.key != name.key:
            return replace(statement, table=label, doubtful=False)
        case sql.TruncateTable(name) if table is not None and table.name.key != name.key:
            return sql.TruncateTable(label)
    return statement


def _with(clause: sql.Spec, label: TableName) -> sql.Spec:
    """Return EXCHANGE PARTITION with the table of its event."""
    if isinstance(clause, sql.ExchangePartition) and clause.table.key != label.key:
        return replace(clause, table=label)
    return clause


def subject_table(ddl: Ddl, effects: Iterable[Effect] = ()) -> TableName:
    """Return the table by which users know a DDL, by its effects, else by its text: its label, but of EXCHANGE
    PARTITION the partitioned one."""
    label = TableName(ddl.schema, ddl.table)
    exchanged = [
        (effect.partitioned.name, effect.other.name) for effect in effects if isinstance(effect, PartitionExchanged)
    ]
    for table, other in exchanged or _exchanged(ddl):
        if other.key == label.key:
            return table
    return label


def _exchanged(ddl: Ddl) -> Iterator[tuple[TableName, TableName]]:
    for statement in read_statements(ddl) if "EXCHANGE" in ddl.query.upper() else ():
        if isinstance(statement, sql.AlterTable):
            exchanges = [clause for clause in statement.specs if isinstance(clause, sql.ExchangePartition)]
            yield from ((statement.table, clause.table) for clause in exchanges)


def read_statements(ddl: Ddl) -> tuple[sql.Statement, ...]:
    """Return the statements of a DDL; () for a text that cannot be read."""
    try:
        return parse_ddl(ddl.query, ddl.schema)
    except SqlError:
        return ()
