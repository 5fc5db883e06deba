"""SHOW and DESC: one rule per form, selected by its words, returns a relation; LIKE and WHERE filter its rows.

    SHOW FULL COLUMNS FROM t IN d LIKE 'a%'
         └──words──┘ └──table───┘ └ rest: WHERE `Field` LIKE 'a%', by the rules of SELECT

Dump tools also read triggers, events and routines, which this upstream does not have: the answer is empty.

Source: MySQL manual, "SHOW Statements"; TiDB pkg/executor/show.go.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidegate.expr.scope import FixedRelation, ResultSet
from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.mysql.values import SqlValue
from tidegate.schema.cursor import Cursor
from tidegate.schema.stored.create import NextIds, render_create_schema, render_create_table, render_full_type
from tidegate.schema.stored.definition import NOT_NULL, ElementState, StoredSchema
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate_upstream.errors import missing_name
from tidegate_upstream.tidb.dml import find_table
from tidegate_upstream.tidb.information_schema import (
    TABLES,
    InformationSchema,
    column_default,
    column_extra,
    column_key,
    is_information,
    key_parts,
    public_columns,
    relation_columns,
    visible,
)
from tidegate_upstream.tidb.session_state import SessionState

Rows: TypeAlias = Iterable[tuple[SqlValue, ...]]


@dataclass(frozen=True, slots=True)
class View:
    """The data behind SHOW. `choose` filters the rows of a relation by a condition in SQL."""

    state: SessionState
    snapshot: StoredSnapshot
    information: InformationSchema
    choose: Callable[[FixedRelation, str], ResultSet]
    ids: Callable[[TableVersion], NextIds]
    position: Callable[[], int]

    def table(self, schema: str, name: str) -> TableVersion:
        """Return the table of that name; SqlRefused 1046, 1146."""
        if not schema:
            raise SqlRefused(1046, "No database selected", "3D000")
        table = find_table(self.snapshot, schema, name)
        if table is None:
            raise missing_name(schema, name)
        return table

    def database(self, name: str) -> StoredSchema:
        """Return the database of that name; SqlRefused 1046, 1049."""
        if not name:
            raise SqlRefused(1046, "No database selected", "3D000")
        for schema in self.snapshot.schemas.values():
            if schema.name.lower == lowered(name) and schema.state == ElementState.PUBLIC:
                return schema
        raise SqlRefused(1049, f"Unknown database '{name}'", "42000")


@dataclass(frozen=True, slots=True)
class Shown:
    """The answer of a SHOW rule: columns as in information_schema.py, and rows."""

    columns: str
    rows: Rows


_Rule: TypeAlias = Callable[[Cursor, View, frozenset[str]], Shown]
_ADJECTIVES: Final = ("FULL", "EXTENDED", "GLOBAL", "SESSION", "LOCAL", "STORAGE")
_ROUTINES: Final = "Db Name Type Definer Modified Created Security_type Comment"
_SCHEMATA: Final = "information_schema", "SCHEMATA"
_EMPTY: Final = {
    "TRIGGERS": "Trigger Event Table Statement Timing Created sql_mode Definer",
    "EVENTS": "Db Name Time~zone Definer Type Execute~At Starts Ends Status",
    "PROCEDURE STATUS": _ROUTINES,
    "FUNCTION STATUS": _ROUTINES,
}


def show(cursor: Cursor, view: View) -> ResultSet:
    """Return the answer to SHOW; the cursor is after that word. Raises SqlError, SqlRefused."""
    adjectives = set[str]()
    while word := cursor.accept(*_ADJECTIVES):
        adjectives.add(word)
    words = cursor.accept(*_RULES, *_EMPTY)
    if not words:
        raise cursor.error("SHOW of something that is not known")
    if words in _EMPTY:
        if cursor.accept("FROM", "IN"):
            cursor.name("a database")
        return _answer(cursor, view, Shown(_EMPTY[words], ()))
    return _answer(cursor, view, _RULES[words](cursor, view, frozenset(adjectives)))


def describe(cursor: Cursor, view: View) -> ResultSet:
    """Return the answer to DESC t and DESC t column."""
    name = cursor.qualified()
    shown = _column_rows(view, name.schema or view.state.database, name.table, full=False)
    if cursor.done():
        return _answer(cursor, view, shown)
    pattern = cursor.next().text
    return view.choose(_relation(shown), f"`Field` LIKE {_quoted(pattern)}")


def _answer(cursor: Cursor, view: View, shown: Shown) -> ResultSet:
    relation = _relation(shown)
    if cursor.accept("LIKE"):
        first = relation.columns[0].name
        return view.choose(relation, f"`{first}` LIKE {_quoted(cursor.next().text)}")
    if cursor.accept("WHERE"):
        return view.choose(relation, cursor.rest())
    if not cursor.done():
        raise cursor.error("unexpected text")
    return view.choose(relation, "TRUE")


def _relation(shown: Shown) -> FixedRelation:
    return FixedRelation("shown", relation_columns(shown.columns), list(shown.rows))


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _schema_name(cursor: Cursor, view: View) -> str:
    return cursor.name("a database") if cursor.accept("FROM", "IN") else view.state.database


def _table_name(cursor: Cursor, view: View) -> tuple[str, str]:
    cursor.expect("FROM", "IN")
    name = cursor.qualified()
    inside = _schema_name(cursor, view)
    return name.schema or inside, name.table


# --- databases and tables ---


def _tables(cursor: Cursor, view: View, words: frozenset[str]) -> Shown:
    schema = _schema_name(cursor, view)
    full = "FULL" in words
    columns = f"Tables_in_{schema.replace(' ', '~')}" + (" Table_type" if full else "")
    if is_information(schema):
        return Shown(columns, [(name, "SYSTEM VIEW")[: 1 + full] for name in sorted(TABLES)])
    name = view.database(schema).name.lower
    tables = [table for table in visible(view.snapshot) if lowered(table.schema) == name]
    return Shown(columns, [(table.stored.name.original, _kind(table))[: 1 + full] for table in tables])


def _kind(table: TableVersion) -> str:
    return "VIEW" if table.stored.is_view else "SEQUENCE" if table.stored.is_sequence else "BASE TABLE"


def _table_status(cursor: Cursor, view: View, _words: frozenset[str]) -> Shown:
    name = view.database(_schema_name(cursor, view)).name.lower
    rows = view.information.relation("information_schema", "TABLES").stored_rows
    return Shown(
        "Name Engine Version# Row_format Rows# Avg_row_length# Data_length# Max_data_length# Index_length# Data_free# "
        "Auto_increment# Create_time@ Update_time@ Check_time@ Collation Checksum# Create_options Comment",
        [(row[2], *row[4:21]) for row in rows if lowered(str(row[1])) == name],
    )


def _columns(cursor: Cursor, view: View, words: frozenset[str]) -> Shown:
    schema, name = _table_name(cursor, view)
    return _column_rows(view, schema, name, full="FULL" in words)


def _column_rows(view: View, schema: str, name: str, *, full: bool) -> Shown:
    if is_information(schema):
        listed = view.information.relation(schema, name).columns
        rows: Rows = [(column.name, "varchar(1024)", "YES", "", None, "") for column in listed]
        return Shown("Field Type Null Key Default Extra", rows)
    table = view.table(schema, name).stored
    shown: list[tuple[SqlValue, ...]] = []
    for column in public_columns(table):
        nullable = "NO" if column.type.flag & NOT_NULL else "YES"
        facts = (column_key(column), column_default(column, view.state.zone), column_extra(column))
        kind = render_full_type(column)
        if full:
            collation = column.type.collate if column.type.charset != "binary" else None
            fields = (collation, nullable, *facts, "select,insert,update,references", column.comment)
            shown.append((column.name.original, kind, *fields))
        else:
            shown.append((column.name.original, kind, nullable, *facts))
    wide = "Field Type Collation Null Key Default Extra Privileges Comment"
    return Shown(wide if full else "Field Type Null Key Default Extra", shown)


def _indexes(cursor: Cursor, view: View, _words: frozenset[str]) -> Shown:
    table = view.table(*_table_name(cursor, view)).stored
    return Shown(
        "Table Non_unique# Key_name Seq_in_index# Column_name Collation Cardinality# Sub_part# Packed Null Index_type "
        "Comment Index_comment Visible Expression Clustered Global",
        [
            (
                *(table.name.original, int(not part.index.is_unique), part.index.idx_name.original, part.position),
                *(part.name, "A", 0, part.length, None, "" if part.column.type.flag & NOT_NULL else "YES", "BTREE", ""),
                *(part.index.comment, "NO" if part.index.is_invisible else "YES", part.expression),
                *("YES" if part.clustered else "NO", "YES" if part.index.is_global else "NO"),
            )
            for part in key_parts(table)
        ],
    )


def _create_table(cursor: Cursor, view: View, _words: frozenset[str]) -> Shown:
    qualified = cursor.qualified()
    table = view.table(qualified.schema or view.state.database, qualified.table)
    text = render_create_table(table.stored, view.state.zone, view.ids(table), table.schema)
    name = table.stored.name.original
    if table.stored.is_view:
        return Shown(
            "View Create~View character_set_client collation_connection", [(name, text, "utf8mb4", "utf8mb4_bin")]
        )
    return Shown("Sequence Create~Sequence" if table.stored.is_sequence else "Table Create~Table", [(name, text)])


def _create_database(cursor: Cursor, view: View, _words: frozenset[str]) -> Shown:
    cursor.accept("IF NOT EXISTS")
    schema = view.database(cursor.name("a database"))
    return Shown("Database Create~Database", [(schema.name.original, render_create_schema(schema))])


# --- the server ---


def _status(_cursor: Cursor, view: View, _words: frozenset[str]) -> Shown:
    facts = {"Threads_connected": str(max(len(list(view.information.facts.processes())), 1)), "Ssl_cipher": ""}
    return Shown("Variable_name Value", sorted({**facts, "server_id": "0", "Uptime": "1"}.items()))


_RULES: Final[Mapping[str, _Rule]] = {
    "CREATE TABLE": _create_table,
    "CREATE VIEW": _create_table,
    "CREATE SEQUENCE": _create_table,
    "CREATE DATABASE": _create_database,
    "CREATE SCHEMA": _create_database,
    **dict.fromkeys(
        ("DATABASES", "SCHEMAS"),
        lambda _, view, __: Shown("Database", [(row[1],) for row in view.information.relation(*_SCHEMATA).stored_rows]),
    ),
    "TABLE STATUS": _table_status,
    "TABLES": _tables,
    "COLUMNS": _columns,
    "FIELDS": _columns,
    "INDEXES": _indexes,
    "INDEX": _indexes,
    "KEYS": _indexes,
    "VARIABLES": lambda _, view, words: Shown(
        "Variable_name Value", sorted(view.state.variables.show(shared="GLOBAL" in words))
    ),
    "STATUS": _status,
    "WARNINGS": lambda _, view, __: Shown(
        "Level Code# Message", [(warning.level, warning.code, warning.message) for warning in view.state.warnings]
    ),
    "PROCESSLIST": lambda _, view, __: Shown(
        "Id# User Host db Command Time# State Info", view.information.facts.processes()
    ),
    "MASTER STATUS": lambda _, view, __: Shown(
        "File Position# Binlog_Do_DB Binlog_Ignore_DB Executed_Gtid_Set", [("tidb-binlog", view.position(), "", "", "")]
    ),
}
