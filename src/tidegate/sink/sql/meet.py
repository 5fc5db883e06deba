"""What a feed finds when it begins to write to a server: the rights of its account, and the tables that are there.

    SHOW GRANTS                   SELECT, INSERT, UPDATE, DELETE on each database     AccountRefused, with the GRANT
                                  CREATE, DROP, ALTER, INDEX                          a warning: only DDLs need them
    information_schema.columns    tables and columns of the upstream                  a new feed: SinkRefused
                                  types, NULL, primary key                            a warning

A server that is read-only is told before, by the first write of the feed's progress, and waited for.

Tables of a feed that goes on are as of its checkpoint.  Where the ledger has a DDL above it, or one that somebody is to
do by hand, the tables may be ahead, and are not compared.  What was altered on purpose, such as a wider column, goes on
with the warning; rows that do not fit end the feed with table and ts.

Grants by roles, and those of a TiDB, are not read: what is missing there is told by the statement that needs it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tidegate.expr.syntax.tokens import quote_name
from tidegate.model.errors import AccountRefused
from tidegate.model.name import lowered
from tidegate.model.pattern import like
from tidegate.model.table import TableInfo
from tidegate.mysql import server_sql as sent
from tidegate.sink.sql.connection import TargetSession
from tidegate.sink.sql.ddl.shape import type_in, type_shown
from tidegate.sink.sql.target import TargetServer

ROWS: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")
DDLS: Final = ("CREATE", "DROP", "ALTER", "INDEX")
MOST: Final = 5
"""Differences that a message names."""
_GRANT: Final = re.compile(r"GRANT (.+?) ON (\*|`(?:[^`]|``)+`)\.(\*|`(?:[^`]|``)+`) TO ")
_ROLE: Final = re.compile(r"GRANT [^ ]+ TO ")


def check_rights(session: TargetSession, target: TargetServer, tables: Sequence[TableInfo]) -> Iterator[str]:
    """Return warnings of rights that DDLs will miss. AccountRefused where a right to write rows is missing, with the
    statement that grants it."""
    if not target.traits.grants:
        return
    lines = [str(row[0]) for row in session.ask(sent.GRANTS)]
    if any(_ROLE.match(line) for line in lines):
        return
    grants = [found.groups() for found in map(_GRANT.match, lines) if found is not None]
    ((account,),) = session.ask(sent.ACCOUNT)
    user, _, host = str(account).rpartition("@")
    for schema in dict.fromkeys(table.name.schema for table in tables):
        names = [table.name.table for table in tables if table.name.schema == schema]
        rows, ddls = (
            [right for right in wanted if not all(_has(grants, right, schema, name) for name in names)]
            for wanted in (ROWS, DDLS)
        )
        statement = f"GRANT {', '.join([*rows, *ddls])} ON {quote_name(schema)}.* TO '{user}'@'{host}'"
        if rows:
            error = f"{session.options.place}: the account may not {', '.join(rows)} in database {schema}: {statement}"
            raise AccountRefused(error).at(table=schema)
        if ddls:
            yield f"DDLs of database {schema} will need rights that the account has not: {statement}"


def _has(grants: Iterable[Sequence[str]], right: str, schema: str, table: str) -> bool:
    for rights, database, name in grants:
        listed = {one.strip() for one in re.sub(r"\([^)]*\)", "", rights).split(",")}
        is_here = database == "*" or _fits(database[1:-1].replace("``", "`"), schema)
        if is_here and listed & {right, "ALL PRIVILEGES"} and name in ("*", quote_name(table)):
            return True
    return False


def _fits(pattern: str, name: str) -> bool:
    """Whether the name of a database in a GRANT, with % and _, means `name`."""
    return like(pattern).matches(name)


def missing(session: TargetSession, wanted: Sequence[TableInfo]) -> list[str]:
    """Return what the target lacks: tables and columns."""
    return [told for told, lacks in _unlike(session, None, wanted) if lacks]


def differences(session: TargetSession, target: TargetServer, wanted: Sequence[TableInfo]) -> list[str]:
    """Return where the tables of the target differ from `wanted`."""
    return [told for told, _ in _unlike(session, target, wanted)]


def shown(found: Sequence[str]) -> str:
    """Return differences as one text."""
    more = len(found) - MOST
    return "; ".join(found[:MOST]) + (f" and {more} more" if more > 0 else "")


def _unlike(
    session: TargetSession, target: TargetServer | None, wanted: Sequence[TableInfo]
) -> Iterator[tuple[str, bool]]:
    """What is unlike, and whether it lacks there; types are compared where `target` is given."""
    found: dict[tuple[str, str], dict[str, tuple[str, str]]] = defaultdict(dict)
    keys: dict[tuple[str, str], set[str]] = defaultdict(set)
    schemas = sorted({lowered(table.name.schema) for table in wanted})
    columns = session.ask(sent.MET_COLUMNS.format(places=", ".join(["%s"] * len(schemas))), values=schemas)
    for schema, table, column, kind, null, key in columns:
        own = (lowered(schema), lowered(table))
        found[own][lowered(column)] = (type_shown(str(kind)), str(null))
        if key == "PRI":
            keys[own].add(lowered(column))
    for table in wanted:
        there = found.get(table.name.key)
        if there is None:
            yield f"there is no table {table.name}", True
            continue
        lacking = [one.name for one in table.columns if lowered(one.name) not in there]
        if lacking:
            yield f"table {table.name} has no column {', '.join(lacking)}", True
        if target is None or table.inferred:
            continue
        for one in table.columns:
            meant = (type_in(one.type, target), "YES" if one.nullable else "NO")
            is_ = there.get(lowered(one.name), meant)
            if is_ != meant:
                yield f"column {one.name} of table {table.name} is {_said(is_)}, not {_said(meant)}", False
        key = {lowered(name) for index in table.indexes if index.primary for name in index.columns}
        if key != keys[table.name.key] and not lacking:
            yield (
                f"table {table.name} has not the primary key ({', '.join(sorted(key))})"
                if key
                else (f"table {table.name} has a primary key that the upstream has not"),
                False,
            )


def _said(column: tuple[str, str]) -> str:
    return column[0] + ("" if column[1] == "YES" else " not null")
