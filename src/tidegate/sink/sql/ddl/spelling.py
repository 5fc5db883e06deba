"""Names of tables, databases and exchanged partitions in a DDL, spelled as the replica has them. Pure.

    ALTER TABLE `ORDERS` ADD ..          ──►   ALTER TABLE `shop`.`orders` ADD ..        where the table is shop.orders
    CREATE TABLE `n` (..)                      a name that no table has stays

A TiDB takes names in any case.  MySQL and MariaDB on Linux (`lower_case_table_names=0`) know a table by its own alone.
A partition's rows are a file for EXCHANGE, which is found by its own name; other statements find a partition by any.

The texts are those of schema/restore, in which every name is quoted; names inside the SELECT of a view stay.
"""

from collections.abc import Mapping
from typing import Final

from tidegate.expr.syntax.tokens import TokenKind, quote_name, quote_names
from tidegate.model.name import lowered
from tidegate.model.table import TableName
from tidegate.schema.cursor import Cursor

_INDEX: Final = ("CREATE INDEX", "CREATE UNIQUE INDEX", "DROP INDEX")
_EXISTS: Final = ("IF NOT EXISTS", "IF EXISTS")


def quote_path(name: TableName) -> str:
    """Return the full name of a table in SQL."""
    return quote_names(name.schema, name.table)


def spelled(
    text: str,
    schema: str,
    tables: Mapping[tuple[str, str], TableName],
    databases: Mapping[str, str],
    partition: str = "",
) -> str:
    """Return a statement with the names that tables and databases have; `schema` is the one of names without any,
    `partition` the name that an exchanged partition has."""
    cursor, parts, at = Cursor(text), list[str](), 0
    words = ("TABLE", "REFERENCES", "DATABASE", *(["ON"] if text.startswith(_INDEX) else []))
    while cursor.peek().kind is not TokenKind.END:
        if partition and cursor.accept("EXCHANGE PARTITION"):
            token = cursor.next()
            parts += [text[at : token.start], quote_name(partition)]
            at = token.end
        word = cursor.accept(*words)
        if not word:
            cursor.next()
            continue
        cursor.accept(*_EXISTS)
        while cursor.peek().kind is TokenKind.NAME:
            start, found = cursor.peek().start, cursor.qualified()
            name = found.within(schema)
            if word == "DATABASE":
                own = databases.get(lowered(found.table), found.table)
                became = None if own == found.table else quote_name(own)
            else:
                became = None if tables.get(name.key, name) == name else quote_path(tables[name.key])
            if became:
                parts += [text[at:start], became]
                at = cursor.tokens[cursor.at - 1].end
            if not (cursor.accept("LIKE") or (text.startswith("DROP TABLE") and cursor.sign(","))):
                break
    return "".join([*parts, text[at:]])
