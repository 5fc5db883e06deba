"""Conversion of stored values by a DDL, where the target's result would differ from TiDB's.

    MODIFY, CHANGE    old type, new type ──► the target     its result is TiDB's (SAME)
                                         ──► here           by TiDB's rules (expr/change.py)
    ADD COLUMN        a default that the target would compute, or compute differently: here (schema/literal.py)

A TiDB computes the upstream's values, except that TIME depends on the day on which it runs the statement.  MySQL and
MariaDB differ in details: '12.5' is 12 as an INT where TiDB has 13, 1e15 is '1e15' as a text.  So SAME lists the
changes in which they are known to be equal; all others are computed here.  A charset without some characters replaces
them by '?', where TiDB keeps them: such values are written here, and the target refuses them by name.

    keep    tidegate.ddl_values_ID  n, k0 .. the key, o0 .. the old values, v0 ..   by one INSERT .. SELECT
            the statement, in which the target converts the values its own way
    write   n .. n + 1000: o ─► rule ─► v ─► table JOIN values BY key, then delete them      a transaction each
            the table of values is dropped

The table of values holds the remaining work, so the next run continues after a crash.  Until the statement is done the
values are saved anew; after it, a missing table of values means that all are written.  Old values and keys are copied
without conversion to text; computed values are stored as the widest type of their kind, in strict mode, so that
nothing is truncated without an error.  A table without a key is left to the target if its result is the same for each
value, which is tried on the copy; otherwise the DDL is refused.

A topic that is read from its middle has an ALTER TABLE without the CREATE TABLE before it.  The types of such a table
are read from the target before the DDL, and the ledger stores them with its plan:

    ("was", "d.t", "0003", "v", "varchar(20)", "utf8mb4")        the fourth column of d.t

`docs/databases.md` lists the changes.  Source: tests against a MariaDB, and recordings of a TiDB (tests/data/tidb_sql).
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import msgspec

from tidegate.engine.change import EventPosition, SourceDdl
from tidegate.engine.plan import plan_ddl
from tidegate.expr.change import Rule, converter, elems_of, family_of, keeps_values
from tidegate.expr.tokens import quote_name
from tidegate.model.errors import SchemaError, SqlError, TidegateError, redacted_value
from tidegate.model.event import Value
from tidegate.model.mysql import Family
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, ColumnType, TableInfo, TableName
from tidegate.mysql import server_sql as sent
from tidegate.mysql.conversion import enum_index, set_mask
from tidegate.objectstore.failpoint import failpoint
from tidegate.schema.columns import parse_type, render_type
from tidegate.schema.effects import TableAltered
from tidegate.schema.literal import stored_value
from tidegate.schema.statement import AlterTable
from tidegate.sink.sql.connection import DDL_MODES, ROW_MODES, DdlConnection, ServerKind, TargetServer
from tidegate.sink.sql.ddl_rewrite import quote_path
from tidegate.sink.sql.ddl_shape import WAS, Fact, Facts, fact_name
from tidegate.sink.sql.ddl_task import DdlTask, task_of


class Computes(Enum):
    """The side that computes the values of a column that changes."""

    TARGET = "the target"
    TIDEGATE = "Tidegate"


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
    """Return which side computes the values when a column of a target changes its type."""
    families = family_of(old), family_of(new)
    if target.kind is ServerKind.TIDB:
        return Computes.TIDEGATE if families == (Family.SPAN, Family.MOMENT) else Computes.TARGET
    same = keeps_values(old, new) or families[1] in SAME.get(families[0], ())
    narrows = families == (Family.TEXT, Family.TEXT) and new.charset not in (old.charset, "utf8mb4")
    return Computes.TARGET if same and not narrows else Computes.TIDEGATE


_NO_LITERAL: Final = re.compile("float|double|bit|enum|set|json|vector")
"""Types whose values are not equal to their texts."""


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column whose values are computed here, before and after the DDL."""

    old: ColumnInfo
    new: ColumnInfo
    rule: Rule


@dataclass(frozen=True, slots=True)
class ComputedValues:
    """The values of one table, called `old` before the DDL and `new` after it, that are computed here: changed
    columns, and values of added columns. `staying` are the columns whose values stay, old names (folded) to new
    ones."""

    old: TableName
    new: TableName
    columns: tuple[ComputedColumn, ...]
    fills: tuple[tuple[ColumnInfo, Value], ...]
    staying: Mapping[str, str]

    def key(self, facts: Facts, target: TargetServer) -> tuple[str, ...]:
        """Return the columns (folded) of a unique key of the target's table that does not change; () if it has none. In
        a TiDB, where rows are found by literals, only of values that equal theirs."""
        table, changed = fact_name(self.old), {lowered(column.old.name) for column in self.columns}
        own = [fact for fact in facts if fact[1] == table]
        required = [fact for fact in own if fact[0] == "column" and fact[4] == "NO"]
        fixed = {fact[2] for fact in required if target.kind is not ServerKind.TIDB or not _NO_LITERAL.match(fact[3])}
        keys = [(fact[2] != "primary", tuple(fact[4].split(","))) for fact in own if fact[0] == "index" and fact[3]]
        usable = [key for key in keys if set(key[1]) <= (fixed & self.staying.keys()) - changed]
        return min(usable)[1] if usable else ()


def computed_values(task: DdlTask, target: TargetServer) -> ComputedValues | None:
    """Return the values of a DDL that are computed here; None for none."""
    for effect in task.effects:
        if isinstance(effect, TableAltered) and (computed := _of_table(task, effect, target)) is not None:
            return computed
    return None


def _of_table(task: DdlTask, effect: TableAltered, target: TargetServer) -> ComputedValues | None:
    ts, session = task.ddl.commit_ts or 0, task.ddl.known_session
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
        elif old.type != new.type and computes(old.type, new.type, target) is Computes.TIDEGATE:
            rule = converter(old.type, new.type, commit_ts=ts, session=session.zone)
            columns.append(ComputedColumn(old, new, rule or _same))
    if not (columns or fills):
        return None
    name, later = (
        next(
            (table.name for table in state.tables.values() if table.incarnation == effect.old.incarnation),
            effect.old.name,
        )
        for state in (task.before, task.after)
    )
    return ComputedValues(name, later, tuple(columns), tuple(fills), staying)


def _is_filled(column: ColumnInfo, target: TargetServer) -> bool:
    """True if existing rows get another value from the target than from a TiDB when a column is added: it would
    compute the expression, and its documents that are not NULL begin as no document."""
    if target.kind is ServerKind.TIDB:
        return False
    if column.default_is_expr:
        return column.origin_default is None
    return column.type.code is T.JSON and not column.nullable


def _stays(old: ColumnType, new: ColumnType) -> bool:
    """Return True if values that were equal before the change stay equal."""
    return old.charset == new.charset and family_of(old) is family_of(new) and keeps_values(old, new)


def _same(value: Value) -> Value:
    return value


def unknown_columns(session: DdlConnection, task: DdlTask) -> Facts:
    """Return the columns of the tables that a DDL alters and schema/ does not know for certain."""
    return frozenset(fact for name in _unknown(task) for fact in _columns(session, name))


def _unknown(task: DdlTask) -> Iterator[TableName]:
    for statement in task.statements:
        if isinstance(statement, AlterTable):
            table = task.before.table(statement.table)
            if table is None or table.inferred:
                yield statement.table


def _columns(session: DdlConnection, name: TableName) -> Iterator[Fact]:
    for index, (column, kind, charset, _) in enumerate(session.ask(sent.TYPED_COLUMNS, name.key)):
        yield WAS, fact_name(name), f"{index:04}", column, kind, charset or "binary"


def with_target_columns(task: DdlTask, columns: Facts) -> DdlTask:
    """Return the task with the target's tables before the DDL."""
    if not columns:
        return task
    by_table = defaultdict[str, list[Fact]](list)
    for fact in sorted(columns):
        by_table[fact[1]].append(fact)
    state = task.before
    for name in _unknown(task):
        if fact_name(name) in by_table:
            state = state.with_table(_table(state.table(name), name, by_table[fact_name(name)]))
    return task_of(plan_ddl(state, SourceDdl(EventPosition(), task.ddl)))


def _table(table: TableInfo | None, name: TableName, facts: list[Fact]) -> TableInfo:
    value_columns = [
        value_column
        for position, fact in enumerate(facts, 1)
        if (value_column := _column(position, *fact[3:])) is not None
    ]
    if table is None:
        return TableInfo(name, "of the target", 0, tuple(value_columns), max_column_id=len(facts))
    types = {lowered(column.name): column.type for column in value_columns}
    columns = [
        column if column.type.code is T.JSON else msgspec.structs.replace(column, type=types.get(key, column.type))
        for column in table.columns
        for key in (lowered(column.name),)
    ]
    return msgspec.structs.replace(table, columns=tuple(columns))


def _column(position: int, name: str, kind: str, charset: str) -> ColumnInfo | None:
    try:
        return ColumnInfo(position, name, parse_type(kind, charset))
    except SqlError:
        return None


CHUNK_ROWS: Final = 1_000
LARGE_ROWS: Final = 20
"""Rows of a chunk where a value may have megabytes."""
FILL_ROWS: Final = 100_000
_LARGE: Final = frozenset({T.MEDIUM_BLOB, T.LONG_BLOB, T.JSON})
_READ: Final = {
    **dict.fromkeys((Family.INT, Family.BIT, Family.YEAR), "{} + 0"),
    Family.FLOAT: "{} + 0e0",
    **dict.fromkeys((Family.DECIMAL, Family.MOMENT, Family.SPAN), "CONCAT({})"),
}
"""The expression that reads a value in the form of events; other types are read directly."""
_WIDEST: Final = {
    **dict.fromkeys((Family.INT, Family.YEAR), "BIGINT"),
    **dict.fromkeys((Family.BIT, Family.ENUM, Family.SET), "BIGINT UNSIGNED"),
    Family.FLOAT: "DOUBLE",
    Family.BINARY: "LONGBLOB",
}
_TEXT: Final = "LONGTEXT CHARACTER SET utf8mb4"
Guard = Callable[[], None]
"""Raises inside a transaction where another writer has taken over."""


class ValueTable:
    """The values of one DDL at one target; `name` is that of their table."""

    def __init__(self, session: DdlConnection, target: TargetServer, computed: ComputedValues, name: TableName) -> None:
        self._session, self._target, self._computed = session, target, computed
        self._name, self._values = name, quote_path(name)
        self._table = quote_path(computed.new)

    def keep(self, facts: Facts) -> str:
        """Save the key and the old values of all rows that have some; return why the DDL is refused, else "". `facts`
        is the shape of the tables before the DDL."""
        key = self._computed.key(facts, self._target)
        self._check(on=False)
        if not self._computed.columns:
            return ""
        names = dict(zip(_names("k", key), key, strict=True))
        olds = dict(zip(self._olds, (column.old.name for column in self._computed.columns), strict=True))
        self._create(names | olds)
        self._session.ask(
            sent.KEEP_VALUES.format(
                values=self._values,
                names=", ".join(names | olds),
                columns=", ".join(map(quote_name, (names | olds).values())),
                table=quote_path(self._computed.old),
                some=" OR ".join(f"{quote_name(name)} IS NOT NULL" for name in olds.values()),
            )
        )
        failpoint("ddl/kept")
        return "" if key else self._difference()

    @property
    def _olds(self) -> list[str]:
        return _names("o", self._computed.columns)

    @property
    def _news(self) -> list[str]:
        return _names("v", self._computed.columns)

    def _create(self, columns: Mapping[str, str]) -> None:
        columns_there = {
            lowered(row[0]): row[1:] for row in self._session.ask(sent.TYPED_COLUMNS, self._computed.old.key)
        }
        for changed_column in self._computed.columns:
            _check_type(changed_column.old, *columns_there[lowered(changed_column.old.name)][:2])
        self._session.ask(sent.DROP_VALUES.format(values=self._values))
        parts = []
        for name, column in columns.items():
            kind, charset, collation = columns_there[lowered(column)]
            words = f" CHARACTER SET {charset} COLLATE {collation}" if charset else ""
            parts.append(f"{name} {kind}{words} NULL")
        parts += [f"{new} {_widest(column.new.type)} NULL" for new, column in self._pairs(self._news)]
        self._session.ask(sent.CREATE_VALUES.format(values=self._values, columns=", ".join(parts)))

    def _pairs(self, names: Sequence[str]) -> list[tuple[str, ComputedColumn]]:
        return list(zip(names, self._computed.columns, strict=True))

    def is_there(self) -> bool:
        """Return True if values are stored, some of which may still have to be written."""
        return bool(self._session.ask(sent.TYPED_COLUMNS, self._name.key))

    def write(self, facts: Facts, guard: Guard) -> None:
        """Write the values that are left."""
        key = self._computed.key(facts, self._target)
        self._check(on=True)
        for column, value in self._computed.fills:
            self._fill(column, value, guard)
        if self._computed.columns and self.is_there():
            self._mode([column.new for column in self._computed.columns])
            after = 0
            while key and (after := self._chunk(key, guard, after)):
                failpoint("ddl/amid-values")
            self._session.ask(sent.DROP_VALUES.format(values=self._values))

    def _fill(self, column: ColumnInfo, value: Value, guard: Guard) -> None:
        self._mode([column])
        name, left = quote_name(column.name), True
        shown = f"CAST({name} AS CHAR)" if column.type.code is T.JSON else name
        some = f"{name} IS NOT NULL" if value is None else f"NOT ({shown} <=> %s)"
        sets = f"{self._kept()}{name} = %s"
        values = [_stored(column.type, value)] * (1 if value is None else 2)
        while left:
            with self._session.transaction():
                guard()
                text = sent.FILL.format(table=self._table, sets=sets, some=some, rows=FILL_ROWS)
                left = self._session.changed(text, values) > 0

    def _chunk(self, key: Sequence[str], guard: Guard, after: int) -> int:
        """Write the next values behind a row, so that no rows that have gone are walked through; return the last of
        their rows, 0 for none."""
        with self._session.transaction():
            guard()
            numbers = self._compute(after)
            if not numbers:
                return 0
            self._put(key, numbers[0], numbers[-1])
            text = sent.FORGET_VALUES.format(values=self._values, first=numbers[0], last=numbers[-1])
            self._session.ask(text)
            failpoint("ddl/values-written")
        return numbers[-1]

    def _put(self, key: Sequence[str], first: int, last: int) -> None:
        """Write values into their rows; row by row in a TiDB, since the embedded one changes none by a join."""
        own = [quote_name(self._computed.staying[column]) for column in key]
        puts = [quote_name(column.new.name) for column in self._computed.columns]
        kept, news = _names("k", key), self._news
        names = {"table": self._table, "values": self._values, "first": first, "last": last}
        if self._target.kind is not ServerKind.TIDB:
            joined = " AND ".join(f"`t`.{name} = `s`.{k}" for name, k in zip(own, kept, strict=True))
            sets = ", ".join(f"`t`.{name} = `s`.{v}" for name, v in zip(puts, news, strict=True))
            self._session.ask(sent.WRITE_VALUES.format(joined=joined, sets=self._kept("`t`.") + sets, **names))
            return
        rows = self._session.ask(sent.VALUES_BETWEEN.format(columns=", ".join([*news, *kept]), **names))
        sets = self._kept() + ", ".join(f"{name} = %s" for name in puts)
        where = " AND ".join(f"{name} = %s" for name in own)
        self._session.ask_many(sent.WRITE_VALUE.format(table=self._table, sets=sets, key=where), rows)

    def _compute(self, after: int) -> list[int]:
        """Compute the next values behind a row, into the table of values; return the numbers of their rows."""
        columns, news = self._computed.columns, self._news
        rows = self._after(
            ", ".join(read_sql(column.old.type).format(old) for old, column in self._pairs(self._olds)), after
        )
        if rows:
            text = sent.COMPUTE_VALUES.format(
                values=self._values,
                names=", ".join(news),
                marks=", ".join(["%s"] * (1 + len(news))),
                sets=", ".join(sent.UPSERTED.format(column=new) for new in news),
            )
            self._session.ask_many(text, [(row[0], *map(_computed, columns, row[1:])) for row in rows])
        return [int(row[0]) for row in rows]

    def _after(self, columns: str, after: int) -> list[tuple[Any, ...]]:
        text = sent.VALUES_AFTER.format(columns=columns, values=self._values, rows=self._rows)
        return self._session.ask(text, (after,))

    def _difference(self) -> str:
        """Let the target change the values that it keeps; return what it makes otherwise, of the first one."""
        after = 0
        while numbers := self._compute(after):
            after = numbers[-1]
        for old, column in self._pairs(self._olds):
            kind = render_type(column.new.type) + _charset(column.new)
            self._session.ask(sent.CHANGE_VALUES.format(values=self._values, column=old, type=kind))
        both = ", ".join(
            f"{read_sql(column.new.type).format(old)}, {new}"
            for (old, column), new in zip(self._pairs(self._olds), self._news, strict=True)
        )
        after = 0
        while rows := self._after(both, after):
            after = rows[-1][0]
            for _, *answers in rows:
                mismatches = map(_mismatch, self._computed.columns, answers[::2], answers[1::2])
                if reason := next(filter(None, mismatches), ""):
                    self._session.ask(sent.DROP_VALUES.format(values=self._values))
                    return f"{reason}, and table {self._computed.old} has no key to find rows by"
        return ""

    @property
    def _rows(self) -> int:
        kinds = {kind.code for column in self._computed.columns for kind in (column.old.type, column.new.type)}
        return LARGE_ROWS if kinds & _LARGE else CHUNK_ROWS

    def _mode(self, columns: Sequence[ColumnInfo]) -> None:
        """An ENUM holds the name '' of no value only where the session is not strict."""
        mode = DDL_MODES if any(column.type.code is T.ENUM for column in columns) else ROW_MODES
        self._session.ask(sent.SETTING.format(name="sql_mode", value=f"'{mode}'"))

    def _check(self, *, on: bool) -> None:
        """Let a MariaDB look, or not, whether a text that it calls JSON is a document."""
        if self._target.kind is ServerKind.MARIADB:
            self._session.ask(sent.SETTING.format(name="check_constraint_checks", value=int(on)))

    def _kept(self, table: str = "") -> str:
        """Assignments that keep the values of ON UPDATE columns."""
        own = {lowered(column.new.name) for column in self._computed.columns}
        touched = [name for (name,) in self._session.ask(sent.TOUCHED_COLUMNS, self._computed.new.key)]
        names = [quote_name(name) for name in touched if lowered(name) not in own]
        return "".join(f"{table}{name} = {table}{name}, " for name in names)


def _names(letter: str, columns: Sequence[object]) -> list[str]:
    return [quote_name(f"{letter}{index}") for index in range(len(columns))]


def _check_type(column: ColumnInfo, kind: str, charset: str | None) -> None:
    """Raise SchemaError if the column has another kind of values in the target, as after an earlier change."""
    own = family_of(column.type)
    try:
        family = family_of(parse_type(kind, charset or "binary"))
    except TidegateError:
        family = None
    if family is not own and (own, family) != (Family.JSON, Family.TEXT):
        raise SchemaError(f"column {column.name} is {kind} in the target and {render_type(column.type)} upstream")


def _computed(column: ComputedColumn, answer: Any) -> Value:
    if answer is None:
        return None
    value = read_value(column.old.type, answer)
    try:
        return _stored(column.new.type, column.rule(value))
    except TidegateError as error:
        raise SchemaError(
            f"column {column.old.name} holds {redacted_value(value, 100)}, which cannot be converted to a "
            f"{render_type(column.new.type)}: {error}"
        ) from error


def _mismatch(column: ComputedColumn, stored: Any, expected: Any) -> str:
    """Describe a value that the target computed differently; "" if it did not."""
    value = None if stored is None else _stored(column.new.type, read_value(column.new.type, stored))
    if stored is None or value == expected:
        return ""
    upstream, own = redacted_value(expected, 100), redacted_value(value, 100)
    return f"column {column.new.name} of the upstream has {upstream}, but this server converts to {own}"


def _widest(kind: ColumnType) -> str:
    family = family_of(kind)
    return "BIGINT UNSIGNED" if family is Family.INT and kind.unsigned else _WIDEST.get(family, _TEXT)


def _charset(column: ColumnInfo) -> str:
    kind = column.type
    is_text = family_of(kind) in (Family.TEXT, Family.ENUM, Family.SET)
    return " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" if is_text else ""


def read_sql(kind: ColumnType) -> str:
    """Return the SQL that reads a value of a type, `{}` the column."""
    return _READ.get(family_of(kind), "{}")


def read_value(kind: ColumnType, answer: Any) -> Value:
    """Return the answer to `read_sql` as a value of events."""
    if family_of(kind) is Family.FLOAT:
        return float(answer)
    return int(answer) if family_of(kind) in (Family.INT, Family.BIT, Family.YEAR) else answer


def _stored(kind: ColumnType, value: Value) -> Value:
    """The form in which a value is written: ENUM and SET by number."""
    if value is None or kind.code not in (T.ENUM, T.SET):
        return value
    number = enum_index if kind.code is T.ENUM else set_mask
    return number(elems_of(kind))(str(value))
