"""Which stored values a DDL changes, and who computes what they become. Pure.

    MODIFY, CHANGE    old type, new type ──► the target     its result is TiDB's
                                         ──► here           by TiDB's rules (expr/cast/change.py), see values.py
    ADD COLUMN        a default that the target would compute, or has another of: here (schema/literal.py)

What a TiDB makes of values is right by itself, but for TIME, which it puts on the day when it runs the statement.  A
MySQL and a MariaDB differ in small things: '12.5' is 12 as an INT where TiDB has 13, 1e15 is '1e15' as a text.  So the
table names the changes in which they are known to be equal; all others are computed here.  A charset that lacks
characters takes '?' for them, where TiDB keeps them: such values are written here, which the target refuses by name.

`docs/databases.md` shows the table.  Source: tests against a MariaDB, and recordings of a TiDB (tests/data/tidb_sql).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidegate.expr.cast.change import Rule, converter, keeps_values
from tidegate.expr.cast.family import Family, family_of
from tidegate.model.event import Value
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, ColumnType, TableInfo, TableName
from tidegate.schema.effects import TableAltered
from tidegate.schema.literal import stored_value
from tidegate.sink.sql.ddl.shape import Facts, named
from tidegate.sink.sql.ddl.task import DdlTask
from tidegate.sink.sql.target import ServerKind, TargetServer


class Computes(Enum):
    """Who computes the values of a column that changes."""

    TARGET = "the target"
    HERE = "Tidegate"


_F: Final = Family
SAME: Final[Mapping[Family, frozenset[Family]]] = {
    _F.INT: frozenset({_F.INT, _F.DECIMAL, _F.TEXT, _F.BINARY}),
    _F.BIT: frozenset({_F.INT, _F.BIT}),
    _F.YEAR: frozenset({_F.INT, _F.DECIMAL}),
    _F.DECIMAL: frozenset({_F.INT, _F.DECIMAL, _F.TEXT, _F.BINARY}),
    _F.TEXT: frozenset({_F.TEXT}),
    _F.BINARY: frozenset({_F.BINARY}),
    _F.MOMENT: frozenset({_F.TEXT, _F.BINARY}),
    _F.SPAN: frozenset({_F.TEXT, _F.BINARY}),
    _F.ENUM: frozenset({_F.ENUM, _F.INT, _F.TEXT}),
    _F.SET: frozenset({_F.INT, _F.TEXT}),
}
"""The changes in which a MySQL and a MariaDB make what TiDB makes, by the families of both types."""


def computes(old: ColumnType, new: ColumnType, target: TargetServer) -> Computes:
    """Return who computes the values when a column of a target changes from one type to another."""
    families = family_of(old), family_of(new)
    if target.kind is ServerKind.TIDB:
        return Computes.HERE if families == (Family.SPAN, Family.MOMENT) else Computes.TARGET
    same = keeps_values(old, new) or families[1] in SAME.get(families[0], ())
    narrows = families == (Family.TEXT, Family.TEXT) and new.charset not in (old.charset, "utf8mb4")
    return Computes.TARGET if same and not narrows else Computes.HERE


_NO_LITERAL: Final = re.compile("float|double|bit|enum|set|json|vector")
"""Types whose values are not equal to what a client reads of them."""


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column whose values are computed here, before and after the DDL."""

    old: ColumnInfo
    new: ColumnInfo
    rule: Rule


@dataclass(frozen=True, slots=True)
class ComputedValues:
    """What is computed here of one table, called `old` before the DDL and `new` after it: columns that change, and the
    values of columns that come. `staying` are the columns whose values stay, old names (folded) to new ones."""

    old: TableName
    new: TableName
    columns: tuple[ComputedColumn, ...]
    fills: tuple[tuple[ColumnInfo, Value], ...]
    staying: Mapping[str, str]

    def key(self, facts: Facts, target: TargetServer) -> tuple[str, ...]:
        """Return the columns (folded) of a unique key of the target's table that stays as it is; () if it has none. In
        a TiDB, where rows are found by literals, only of values that equal theirs."""
        table, changed = named(self.old), {lowered(one.old.name) for one in self.columns}
        own = [fact for fact in facts if fact[1] == table]
        told = [fact for fact in own if fact[0] == "column" and fact[4] == "NO"]
        fixed = {fact[2] for fact in told if target.kind is not ServerKind.TIDB or not _NO_LITERAL.match(fact[3])}
        found = [(fact[2] != "primary", tuple(fact[4].split(","))) for fact in own if fact[0] == "index" and fact[3]]
        usable = [one for one in found if set(one[1]) <= (fixed & self.staying.keys()) - changed]
        return min(usable)[1] if usable else ()


def computed_values(task: DdlTask, target: TargetServer) -> ComputedValues | None:
    """Return what of the values of a DDL is computed here; None where there is nothing."""
    for effect in task.effects:
        if isinstance(effect, TableAltered) and (found := _of_table(task, effect, target)) is not None:
            return found
    return None


def _of_table(task: DdlTask, effect: TableAltered, target: TargetServer) -> ComputedValues | None:
    ts, session = task.ddl.commit_ts or 0, task.ddl.told
    was = {column.id: column for column in effect.old.columns}
    columns, fills, staying = list[ComputedColumn](), list[tuple[ColumnInfo, Value]](), dict[str, str]()
    for new in effect.new.columns:
        old = was.get(new.id)
        if old is not None and _stays(old.type, new.type):
            staying[lowered(old.name)] = new.name
        if new.generated is not None:
            continue
        if old is None:
            fills += [(new, stored_value(new, commit_ts=ts, session=session))] if _is_filled(new, target) else []
        elif old.type != new.type and computes(old.type, new.type, target) is Computes.HERE:
            rule = converter(old.type, new.type, commit_ts=ts, session=session.zone)
            columns.append(ComputedColumn(old, new, rule or _same))
    if not (columns or fills):
        return None
    name, later = (_name_in(tables, effect.old) for tables in (task.before.tables, task.after.tables))
    return ComputedValues(name, later, tuple(columns), tuple(fills), staying)


def _is_filled(column: ColumnInfo, target: TargetServer) -> bool:
    """Whether rows that are there get another value from the target than from a TiDB when a column comes: it would
    compute the expression, and its documents that are not NULL begin as no document."""
    if target.kind is ServerKind.TIDB:
        return False
    if column.default_is_expr:
        return column.origin_default is None
    return column.type.code is T.JSON and not column.nullable


def _stays(old: ColumnType, new: ColumnType) -> bool:
    """Whether equal values are equal still, one as it was and the other as it is now."""
    return old.charset == new.charset and family_of(old) is family_of(new) and keeps_values(old, new)


def _name_in(tables: Mapping[tuple[str, str], TableInfo], table: TableInfo) -> TableName:
    return next((one.name for one in tables.values() if one.incarnation == table.incarnation), table.name)


def _same(value: Value) -> Value:
    return value
