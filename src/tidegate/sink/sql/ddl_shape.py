"""The shape of tables as comparable facts: derived from schema/, and reported by a server.

    TableInfo          ─┐               ("table", "d.t")    ("named", "d.t", "a")
                        ├──► facts      ("column", "d.t", "a", "int unsigned", "YES")
    information_schema ─┘               ("order", "d.t", "id,a")    ("index", "d.t", "i", "unique", "a")
                                        ("partitions", "d.t", "p0,p1")
                                        ("id", "d.t", "p0", "1047")       the server's own number

A DDL removes some facts (`gone`) and adds others (`come`).  Whether it was done follows from `now`, the server's
facts, and `before`, those when the DDL was planned:

    now == before                          no
    come in now, nothing of gone in it     yes
    else                                   unclear: someone else altered the table

EXCHANGE PARTITION and a circular RENAME leave tables that look as before.  Their facts are the numbers under which the
server stores rows, which move with the rows.  A TiDB has neither partitions nor numbers here: its jobs show the
outcome.

A statement carries a mark in a comment, `ALTER /* tidegate:FEED:TS:ID:NONCE */ TABLE ..`, by which PROCESSLIST and a
TiDB's DDL_JOBS find it; each of several statements of one text has its number, `NONCE.0;`.

Source: MySQL manual, "INFORMATION_SCHEMA Tables" (INNODB_TABLES; INNODB_SYS_TABLES in MariaDB).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from tidegate.expr.tokens import quote_name
from tidegate.model.mysql import FLOATS, INTEGERS, NAMED, sql_name
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType, TableInfo, TableName
from tidegate.mysql import server_sql as sent
from tidegate.schema.effects import Effect, PartitionExchanged, TableRenamed
from tidegate.schema.snapshot import SchemaState
from tidegate.sink.sql.connection import DdlConnection, ServerKind, StatementFailed, TargetServer

Fact: TypeAlias = tuple[str, ...]
Facts: TypeAlias = frozenset[Fact]
WAS: Final = "was"
"""The first word of facts that are not current: a column before a DDL."""


class Executed(Enum):
    """The answer to whether a DDL was executed."""

    NO = "no"
    YES = "yes"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class ShapeChange:
    """The facts that a DDL removes and adds."""

    gone: Facts
    come: Facts

    def executed(self, before: Facts, now: Facts) -> Executed:
        """Return the outcome of the DDL by the server's facts `before` it and `now`."""
        if now == before:
            return Executed.NO
        return Executed.YES if self.stands(now) else Executed.UNCLEAR

    def stands(self, now: Facts) -> bool:
        """Return True if tables look as they do after the DDL, or if the DDL changes no fact."""
        return self.come <= now and not self.gone & now

    def remainder(self, now: Facts) -> str:
        """Describe which facts after the DDL are missing in `now`, and which of those before it are left."""
        missing, left = _summary(self.come - now), _summary(self.gone & now)
        return f"Missing: {missing or 'nothing'}; not removed: {left or 'nothing'}"


def fact_name(name: TableName) -> str:
    """Return the name of a table in facts."""
    return ".".join(name.key)


def known_facts(tables: Iterable[TableInfo], target: TargetServer) -> Facts:
    """Return the facts of tables as schema/ knows them and a target can have them."""
    facts: set[Fact] = set()
    for table in tables:
        name = fact_name(table.name)
        facts.add(("table", name))
        facts |= {("named", name, lowered(column.name)) for column in table.columns}
        if table.inferred:
            continue
        for column in table.columns:
            null = "YES" if column.nullable else "NO"
            facts.add(("column", name, lowered(column.name), type_in(column.type, target), null))
        facts.add(("order", name, ",".join(lowered(column.name) for column in table.columns)))
        for index in table.indexes:
            if "" not in index.columns:
                title = "primary" if index.primary else lowered(index.name)
                unique = "unique" if index.unique or index.primary else ""
                facts.add(("index", name, title, unique, ",".join(map(lowered, index.columns))))
        if table.partition is not None and target.kind is not ServerKind.TIDB:
            facts.add(
                ("partitions", name, ",".join(lowered(definition.name) for definition in table.partition.definitions))
            )
    return frozenset(facts)


def difference(
    before: SchemaState, after: SchemaState, effects: Sequence[Effect], target: TargetServer, ids: Facts
) -> ShapeChange:
    """Return the change that a DDL makes: by its tables before and after, and by the numbers `ids` that the target has
    for them."""
    keys = changed_tables(before, after)
    old = set(known_facts((before.tables[key] for key in keys if key in before.tables), target))
    new = set(known_facts((after.tables[key] for key in keys if key in after.tables), target))
    moved = _last(effects, ids)
    return ShapeChange(frozenset(old - new | (ids - moved)), frozenset(new - old | (moved - ids)))


def changed_tables(before: SchemaState, after: SchemaState) -> list[tuple[str, str]]:
    """Return the keys of the tables that differ between two states."""
    keys = dict.fromkeys([*before.tables, *after.tables])
    return [key for key in keys if before.tables.get(key) is not after.tables.get(key)]


def is_exchange(effects: Sequence[Effect]) -> bool:
    """Return True if rows change places between tables that may look alike, so that only their ids show the outcome."""
    renames = [effect for effect in effects if isinstance(effect, TableRenamed)]
    old = {effect.old.name.key for effect in renames}
    is_circle = any(effect.new.name.key in old for effect in renames)
    return is_circle or any(isinstance(effect, PartitionExchanged) for effect in effects)


def _moves(effect: Effect, ids: Facts) -> Iterable[tuple[Fact, Fact]]:
    match effect:
        case PartitionExchanged():
            part = (fact_name(effect.partitioned.name), lowered(effect.partition))
            other = (fact_name(effect.other.name), "")
            for kind, table, part_of, number in ids:
                if (table, part_of) == part:
                    yield (kind, table, part_of, number), (kind, *other, number)
                elif (table, part_of) == other:
                    yield (kind, table, part_of, number), (kind, *part, number)
        case TableRenamed():
            for kind, table, part_of, number in ids:
                if table == fact_name(effect.old.name):
                    yield (kind, table, part_of, number), (kind, fact_name(effect.new.name), part_of, number)
        case _:
            return


def _last(effects: Sequence[Effect], ids: Facts) -> Facts:
    """The facts after all effects."""
    for effect in effects:
        moves = dict(_moves(effect, ids))
        ids = frozenset(moves.get(fact, fact) for fact in ids)
    return ids


def ids_of(facts: Facts) -> Facts:
    """Return the numbers among facts."""
    return frozenset(fact for fact in facts if fact[0] == "id")


_WHOLE: Final = INTEGERS | FLOATS
_LENGTHS: Final = {T.STRING: 1, T.VARCHAR: 0, T.BIT: 1}
_MOMENTS: Final = {T.DATETIME, T.TIMESTAMP, T.TIME}
_BEYOND: Final = re.compile("[\U00010000-\U0010ffff]")
_ELEMENT: Final = re.compile(r"'((?:[^']|'')*)'")


def type_in(kind: ColumnType, target: TargetServer) -> str:
    """Return the type of a column as a target shows it, without widths that mean nothing."""
    name = sql_name(kind.code, binary=kind.charset == "binary").lower()
    sign = " unsigned" if kind.unsigned else ""
    if kind.code in _WHOLE:
        return name + sign
    if kind.code is T.DECIMAL:
        return f"{name}({10 if kind.flen < 0 else kind.flen},{max(kind.decimal, 0)}){sign}"
    if kind.code in _LENGTHS:
        return f"{name}({_LENGTHS[kind.code] if kind.flen < 0 else kind.flen})"
    if kind.code in _MOMENTS:
        return f"{name}({kind.decimal})" if kind.decimal > 0 else name
    if kind.code in NAMED:
        return _listed(name, kind.elems or ())
    is_text = (kind.code is T.JSON and target.kind is ServerKind.MARIADB) or (
        name == "vector" and target.kind is not ServerKind.TIDB
    )
    return "longtext" if is_text else name


def type_shown(column_type: str) -> str:
    """Return a COLUMN_TYPE of information_schema in the form of `type_in`."""
    name = re.split(r"[ (]", column_type, maxsplit=1)[0].lower()
    if name in ("enum", "set"):
        return _listed(name, [element.replace("''", "'") for element in _ELEMENT.findall(column_type)])
    text = column_type.lower().replace(" zerofill", "")
    if name in ("tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "year", "vector"):
        return name + (" unsigned" if " unsigned" in text else "")
    return text.split(" /*")[0]


def _listed(name: str, elements: Sequence[str]) -> str:
    """A list of members; information_schema of MariaDB shows a question mark for a character beyond U+FFFF."""
    return _BEYOND.sub("?", f"{name}({','.join(elements)})")


def _summary(facts: Iterable[Fact], most: int = 6) -> str:
    texts = [" ".join(filter(None, fact)) for fact in sorted(facts)]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


_NO_PRIVILEGE: Final = frozenset({1044, 1142, 1227})
_UNKNOWN: Final = frozenset({1054, 1109, 1146})
_DONE: Final = frozenset({"synced", "done"})
_ENDED: Final = frozenset({"cancelled", "rollback done"})


class RunningStatement(NamedTuple):
    """A statement that a server runs, for so many seconds."""

    connection_id: int
    seconds: int
    state: str


def read_facts(session: DdlConnection, keys: Iterable[tuple[str, str]], target: TargetServer) -> Facts:
    """Return the facts of tables by their folded names; without numbers where the account may not see them."""
    facts: set[Fact] = set()
    for schema, table in keys:
        facts |= _table(session, schema, table, target)
    return frozenset(facts)


def _table(session: DdlConnection, schema: str, table: str, target: TargetServer) -> set[Fact]:
    name = f"{schema}.{table}"
    own = (schema, table)
    columns = session.ask(sent.COLUMNS, own)
    if not columns:
        return set()
    facts: set[Fact] = {("table", name)}
    facts |= {("named", name, lowered(column)) for column, _, _ in columns}
    facts |= {("column", name, lowered(column), type_shown(kind), null) for column, kind, null in columns}
    facts.add(("order", name, ",".join(lowered(column) for column, _, _ in columns)))
    indexes: dict[tuple[str, str], list[str | None]] = defaultdict(list)
    for index, non_unique, column in session.ask(sent.KEYS, own):
        indexes[lowered(index), "" if int(non_unique) else "unique"].append(column)
    for (index, unique), parts in indexes.items():
        if None not in parts:
            facts.add(("index", name, index, unique, ",".join(lowered(part) for part in parts if part)))
    if not target.traits.numbers:
        return facts
    facts |= _partitions(session, name, own)
    return facts | _numbers(session, schema, table, target)


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
    facts: set[Fact] = set()
    for file_name, number in rows:
        part = lowered(file_name).partition("#p#")[2]
        if "@" in part:
            ((part,),) = session.ask(sent.PLAIN_NAME, (part,))
        facts.add(("id", f"{schema}.{table}", part, str(number)))
    return facts


def running_statement(session: DdlConnection, mark: str) -> RunningStatement | None:
    """Return the statement that carries a mark, if the server runs it now."""
    rows = session.ask(sent.RUNNING, (f"%{mark}%",))
    return RunningStatement(int(rows[0][0]), int(rows[0][1] or 0), str(rows[0][2] or "")) if rows else None


def job_state(session: DdlConnection, mark: str) -> Executed:
    """Return the outcome of a TiDB's job with a mark: UNCLEAR while it runs."""
    rows = session.ask(sent.JOB, (f"%{mark}%",))
    state = str(rows[0][0]).lower() if rows else "cancelled"
    return Executed.YES if state in _DONE else Executed.NO if state in _ENDED else Executed.UNCLEAR
