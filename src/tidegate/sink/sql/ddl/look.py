"""What a server says: the shape of its tables, the statements that it runs, the jobs of a TiDB.

    facts(session, ..)     information_schema.COLUMNS, STATISTICS, PARTITIONS, INNODB_TABLES ──► shape.py
    running(session, mark) PROCESSLIST: the statement that carries a mark, whoever sent it
    job(session, mark)     DDL_JOBS of a TiDB: whether the statement with that mark was done

A mark is a comment in the statement, `ALTER /* tidegate:FEED:TS:ID:NONCE */ TABLE ..`: one DDL as it was planned
once; of a text of several statements each has its number, `NONCE.0;`.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from tidegate.expr.syntax.tokens import quote_name
from tidegate.model.name import lowered
from tidegate.mysql import server_sql as sent
from tidegate.sink.sql.ddl.session import DdlConnection, StatementFailed
from tidegate.sink.sql.ddl.shape import Executed, Fact, Facts, type_shown
from tidegate.sink.sql.target import TargetServer

_NO_PRIVILEGE: Final = frozenset({1044, 1142, 1227})
_UNKNOWN: Final = frozenset({1054, 1109, 1146})
_DONE: Final = frozenset({"synced", "done"})
_OVER: Final = frozenset({"cancelled", "rollback done"})
Keys = Iterable[tuple[str, str]]


class RunningStatement(NamedTuple):
    """A statement that a server runs, for so many seconds."""

    connection_id: int
    seconds: int
    state: str


def facts(session: DdlConnection, keys: Keys, target: TargetServer) -> Facts:
    """Return the facts of tables by their folded names; without numbers where the account may not see them."""
    found: set[Fact] = set()
    for schema, table in keys:
        found |= _table(session, schema, table, target)
    return frozenset(found)


def _table(session: DdlConnection, schema: str, table: str, target: TargetServer) -> set[Fact]:
    name = f"{schema}.{table}"
    own = (schema, table)
    columns = session.ask(sent.COLUMNS, own)
    if not columns:
        return set()
    found: set[Fact] = {("table", name)}
    found |= {("named", name, lowered(column)) for column, _, _ in columns}
    found |= {("column", name, lowered(column), type_shown(kind), null) for column, kind, null in columns}
    found.add(("order", name, ",".join(lowered(column) for column, _, _ in columns)))
    indexes: dict[tuple[str, str], list[str | None]] = defaultdict(list)
    for index, non_unique, column in session.ask(sent.KEYS, own):
        indexes[lowered(index), "" if int(non_unique) else "unique"].append(column)
    for (index, unique), parts in indexes.items():
        if None not in parts:
            found.add(("index", name, index, unique, ",".join(lowered(part) for part in parts if part)))
    if not target.traits.numbers:
        return found
    found |= _partitions(session, name, own)
    return found | _numbers(session, schema, table, target)


def _partitions(session: DdlConnection, name: str, own: tuple[str, str]) -> set[Fact]:
    names = [lowered(row[0]) for row in session.ask(sent.PARTITIONS, own) if row[0] is not None]
    return {("partitions", name, ",".join(names))} if names else set()


def _numbers(session: DdlConnection, schema: str, table: str, target: TargetServer) -> set[Fact]:
    files = session.ask(sent.FILES, (schema, table))
    if not files:
        return set()
    whole = "/".join(bytes(part).decode("ascii") for part in files[0])
    try:
        rows = session.ask(
            sent.FILE_NUMBERS.format(relation=quote_name(target.traits.numbers)),
            (whole, whole.replace("_", r"\_").replace("%", r"\%") + "#p#%"),
        )
    except StatementFailed as error:
        if error.number not in _NO_PRIVILEGE | _UNKNOWN:
            raise
        return set()
    found: set[Fact] = set()
    for file_name, number in rows:
        part = lowered(file_name).partition("#p#")[2]
        if "@" in part:
            ((part,),) = session.ask(sent.PLAIN_NAME, (part,))
        found.add(("id", f"{schema}.{table}", part, str(number)))
    return found


def running(session: DdlConnection, mark: str) -> RunningStatement | None:
    """Return the statement that carries a mark, if the server runs it now."""
    rows = session.ask(sent.RUNNING, (f"%{mark}%",))
    return RunningStatement(int(rows[0][0]), int(rows[0][1] or 0), str(rows[0][2] or "")) if rows else None


def job(session: DdlConnection, mark: str) -> Executed:
    """Return whether a TiDB's job with a mark was done: UNCLEAR while it runs."""
    rows = session.ask(sent.JOB, (f"%{mark}%",))
    state = str(rows[0][0]).lower() if rows else "cancelled"
    return Executed.YES if state in _DONE else Executed.NO if state in _OVER else Executed.UNCLEAR
