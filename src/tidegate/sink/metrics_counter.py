"""Counting in tasks: the rows of a table evaluated by the rules and added up per series.

    chunk ─► batch ─► each row once ─► when ─► groups of equal labels ─► parts of tallies, folded to the limit of series

What comes in: a chunk of changes, whose images are aligned by row, null where a change has none.

    op   I  U  D          old   null  1  3          new   2  4  null          row   2  4  3

What goes out: per rule and series an amount.  A gauge subtracts the old rows of changes and adds the new ones.  A
source without start_ts may repeat rows: within a transaction each row is counted once.

Expressions run over whole columns where Arrow gives exactly what SQL gives:

    values       columns of integers and DECIMAL, numbers, NULL; DOUBLE where it is compared
    + - * %      signed integers of 64 bits; DECIMAL as far as 38 digits go, % by a whole number
    = <> < ..    of numbers; AND OR NOT of what is true, false or unknown

    old.k - new.k > 1000        k % 10        amount * 2 <= 7.5 AND NOT (state IS NULL)

Any other expression, and any value outside these ranges (`Mismatch` or an Arrow error), is evaluated value by value
(`RowText`), which also words SQL's errors.  Rows are then grouped by the columns that the expression references and it
is evaluated once per group, so a label by status costs as many calls as there are statuses.  Unsigned columns are
compared but not calculated with, because a result below zero is an error in SQL.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from decimal import Decimal
from functools import reduce
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidegate.codec.columnar import Batch, typed_batch
from tidegate.codec.columnar.values import Mismatch
from tidegate.engine.plan import Rows
from tidegate.engine.ports import Changes, Written
from tidegate.expr.cast import plain_text
from tidegate.model.errors import EncodeError, SinkRefused, UpstreamError
from tidegate.model.event import Value
from tidegate.model.mysql import INTEGERS, NAMED, MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType, TableInfo
from tidegate.mysql.conversion import zone_of
from tidegate.mysql.values import SqlValue
from tidegate.objectstore.failpoint import failpoint
from tidegate.schema.infer import infer_table
from tidegate.schema.partition import partition_of
from tidegate.sink.metrics_options import MetricsOptions
from tidegate.sink.metrics_rule import (
    EVENT_COLUMNS,
    ROW,
    MetricRule,
    Named,
    RowText,
    nearest_column,
    row_text,
)
from tidegate.sink.metrics_tally import EXACT, ZERO, Amounts, Limit, SeriesKey, TallyPart


class Images:
    """The images of a batch, by row."""

    def __init__(self, batch: Batch) -> None:
        self.batch, self.op = batch, batch.op.to_numpy(zero_copy_only=False)
        self.old_at, self.new_at = np.cumsum(self.op != "I") - 1, np.cumsum(self.op != "D") - 1

    def column(self, image: str, index: int, rows: Any) -> Any:
        """Return the values of a column in an image of some rows, null where there is none."""
        old, new = self.batch.before.column(index), self.batch.after.column(index)
        op = self.op[rows]
        if image == "old":
            return old.take(pa.array(self.old_at[rows], mask=op == "I"))
        if image == "new":
            return new.take(pa.array(self.new_at[rows], mask=op == "D"))
        if not (op == "D").any():
            return new.take(pa.array(self.new_at[rows]))
        both = pa.concat_arrays([new, old])
        return both.take(pa.array(np.where(op == "D", len(new) + self.old_at[rows], self.new_at[rows])))


class FirstRows:
    """Finds, part by part of a chunk, the rows that are no repeats within their transaction.

    A large transaction may be cut into parts anywhere: the next part of its layout then begins within it."""

    def __init__(self, table: TableInfo) -> None:
        self._table = table
        self._before: dict[pa.Schema, pa.Table] = {}
        """By their columns the rows of the transaction at which the parts before ended."""

    def of(self, images: Images, *, is_last: bool) -> Any:
        """Return the numbers of rows that occur for the first time; `is_last` for the last part of the chunk."""
        batch = images.batch
        index_of = {lowered(field.name): index for index, field in enumerate(batch.fields)}
        key = [index_of[lowered(name)] for name in self._table.handle_key if lowered(name) in index_of]
        every = np.arange(batch.rows)
        identity = {"ts": batch.commit_ts, "op": batch.op}
        if key and len(key) == len(self._table.handle_key):
            identity |= {f"k{index}": images.column(ROW, index, every) for index in key}
        else:
            for image in ("old", "new"):
                identity |= {
                    f"{image}{index}": images.column(image, index, every) for index in range(len(batch.fields))
                }
        rows = pa.table(identity)
        columns = rows.schema
        before = self._before.pop(columns, rows.slice(0, 0))
        rows_before = before.num_rows
        rows = pa.concat_tables([before, rows])
        if not is_last:
            self._before[columns] = rows.filter(pc.equal(rows["ts"], rows["ts"][-1]))
        rows = rows.append_column("row", pa.array(np.arange(-rows_before, batch.rows)))
        first = rows.group_by(columns.names, use_threads=False).aggregate([("row", "min")]).column("row_min").to_numpy()
        return np.sort(first[first >= 0])


def partition_columns(table: TableInfo) -> list[str]:
    """Return the columns that the partitions go by; perhaps others that are named like a word of the expression."""
    assert table.partition is not None
    if table.partition.columns:
        named = [table.column(name.strip("`")) for name in table.partition.columns]
        return [column.name for column in named if column is not None]
    text = lowered(table.partition.expr)
    if not text:
        return list(table.handle_key)
    return [column.name for column in table.columns if lowered(column.name) in text]


def rule_columns(
    rule: MetricRule, table: TableInfo, batch: Batch, ts: int
) -> tuple[dict[str, int], dict[Named, ColumnType]]:
    """Return the indexes of the columns that a rule names, and their types. SinkRefused for a missing column, or one
    whose members the messages do not have."""
    index_of = {lowered(field.name): index for index, field in enumerate(batch.fields)}
    named = {lowered(column.name): column for column in table.columns}
    indexes: dict[str, int] = {}
    types: dict[Named, ColumnType] = {("event", name): kind for name, kind in EVENT_COLUMNS.items()}
    names = [(image, name) for text in rule.texts for image, name in text.columns if image != "event"]
    if rule.kind == "gauge" and table.partition is not None:
        names += [(ROW, name) for name in partition_columns(table)]
    for image, name in names:
        index = index_of.get(lowered(name))
        if index is None:
            raise missing(rule, table, name, ts)
        column = named.get(lowered(name))
        if column is None or column.type.code != batch.fields[index].type:
            column = infer_table(table.name, (batch.fields[index],), None, 0).columns[0]
        kind = column.type
        if kind.code in NAMED and kind.elems is None:
            raise SinkRefused(
                f"the rule of {rule.metric} names {name} of {table.name}, which is {kind.code.name}, and the messages "
                f"do not contain its members; read the topic from a CREATE TABLE on, or have it written as canal-json "
                f"with content-compatible=true"
            ).at(table=str(table.name), commit_ts=ts)
        indexes[name] = index
        types[image, name] = kind
    return indexes, types


def missing(rule: MetricRule, table: TableInfo, name: str, ts: int) -> SinkRefused:
    """Return the error for a column that a rule references and a table does not have, or no longer."""
    names = [column.name for column in table.columns if not column.virtual]
    return SinkRefused(
        f"the rule of {rule.metric} names column {name}, which {table.name} does not have at commit_ts "
        f"{ts}{nearest_column(name, names)}. Change the rule, or exclude the table from its matcher"
    ).at(table=str(table.name), commit_ts=ts)


_DIGITS: Final = 38
_SUM_DIGITS: Final = 28
"""A DECIMAL of so many digits can be added up ten thousand million times in 38."""
_INT: Final = pa.decimal128(19, 0)
_SCALE_MAX: Final = 30
_COMPARE: Final[Mapping[type, Callable[..., Any]]] = {
    exp.EQ: pc.equal,
    exp.NEQ: pc.not_equal,
    exp.GT: pc.greater,
    exp.GTE: pc.greater_equal,
    exp.LT: pc.less,
    exp.LTE: pc.less_equal,
}
_CALCULATE: Final[Mapping[type, Callable[..., Any]]] = {
    exp.Add: pc.add_checked,
    exp.Sub: pc.subtract_checked,
    exp.Mul: pc.multiply_checked,
}
_JOIN: Final[Mapping[type, Callable[..., Any]]] = {exp.And: pc.and_kleene, exp.Or: pc.or_kleene}


class ColumnValues(NamedTuple):
    """Values of an expression, one a row, or a single one: `kind` is bool, int, unsigned, decimal or double."""

    kind: str
    values: Any


class ColumnScope(NamedTuple):
    """The columns on which an expression is evaluated."""

    column: Callable[[Named], Any]
    types: Mapping[Named, ColumnType]


def vector_of(text: RowText, columns: ColumnScope) -> ColumnValues:
    """Return the values of an expression. Raises Mismatch or ArrowException if it must be evaluated value by value."""
    return _value(text.node, columns)


def numbers_of(vector: ColumnValues) -> Any:
    """Return integers and decimals as decimals of 38 digits, for exact sums. Mismatch for others."""
    if vector.kind not in {"int", "unsigned", "decimal"}:
        raise Mismatch(vector.kind)
    if vector.kind == "decimal" and vector.values.type.precision > _SUM_DIGITS:
        raise Mismatch("too many digits to be added up")
    scale = vector.values.type.scale if vector.kind == "decimal" else 0
    return vector.values.cast(pa.decimal128(_DIGITS, scale))


def _value(node: Any, columns: ColumnScope) -> ColumnValues:
    kind = type(node)
    if kind is exp.Paren:
        return _value(node.this, columns)
    if kind is exp.Column:
        return _column(node, columns)
    if kind is exp.Literal and not node.is_string:
        return _number(node.this)
    if kind is exp.Neg and type(node.this) is exp.Literal and not node.this.is_string:
        return _number(f"-{node.this.this}")
    if kind is exp.Not:
        return ColumnValues("bool", pc.invert(_truth(node.this, columns)))
    if kind in _JOIN:
        return ColumnValues("bool", _JOIN[kind](_truth(node.this, columns), _truth(node.expression, columns)))
    if kind is exp.Is and type(node.expression) is exp.Null and type(node.this) is exp.Column:
        return ColumnValues("bool", pc.is_null(columns.column(_named(node.this))))
    if kind in _COMPARE:
        return _compared(_COMPARE[kind], _value(node.this, columns), _value(node.expression, columns))
    if kind in _CALCULATE:
        return _calculated(kind, _value(node.this, columns), _value(node.expression, columns))
    if kind is exp.Mod:
        return _remainder(_value(node.this, columns), _value(node.expression, columns))
    raise Mismatch(kind.__name__)


def _truth(node: Any, columns: ColumnScope) -> Any:
    value = _value(node, columns)
    if value.kind != "bool":
        raise Mismatch("a number as a truth")
    return value.values


def _named(node: Any) -> Named:
    image = node.table
    return image, lowered(node.name) if image == "event" else node.name


def _column(node: Any, columns: ColumnScope) -> ColumnValues:
    named = _named(node)
    kind = columns.types[named]
    if kind.code in INTEGERS:
        values = columns.column(named)
        return ColumnValues("unsigned", values) if kind.unsigned else ColumnValues("int", values.cast(pa.int64()))
    if kind.code is MysqlType.DECIMAL and kind.decimal >= 0 and 0 < kind.flen <= _DIGITS:
        return ColumnValues("decimal", columns.column(named).cast(pa.decimal128(kind.flen, kind.decimal)))
    if kind.code is MysqlType.DOUBLE:
        return ColumnValues("double", columns.column(named))
    raise Mismatch(kind.code.name)


def _number(text: str) -> ColumnValues:
    if "e" in text.lower():
        return ColumnValues("double", pa.scalar(float(text)))
    if "." in text:
        return ColumnValues("decimal", pa.scalar(Decimal(text)))
    return ColumnValues("int", pa.scalar(int(text), pa.int64()))


def _compared(compare: Callable[..., Any], first: ColumnValues, second: ColumnValues) -> ColumnValues:
    if "bool" in {first.kind, second.kind}:
        raise Mismatch("truths are compared")
    if "double" in {first.kind, second.kind}:
        return ColumnValues("bool", compare(_double(first), _double(second)))
    if first.kind == second.kind and first.kind != "decimal":
        return ColumnValues("bool", compare(first.values, second.values))
    return ColumnValues("bool", compare(_decimal(first), _decimal(second)))


def _double(vector: ColumnValues) -> Any:
    """A double for a comparison; decimals of columns are rounded otherwise by Arrow."""
    if vector.kind == "double":
        return vector.values
    if isinstance(vector.values, pa.Scalar):
        return pa.scalar(float(vector.values.as_py()))
    if vector.kind == "decimal":
        raise Mismatch("a DECIMAL beside a double")
    return vector.values.cast(pa.float64(), safe=False)


def _decimal(vector: ColumnValues) -> Any:
    if vector.kind == "decimal":
        return vector.values
    return vector.values.cast(pa.decimal128(20, 0) if vector.kind == "unsigned" else _INT)


def _calculated(kind: type, first: ColumnValues, second: ColumnValues) -> ColumnValues:
    if first.kind == second.kind == "int":
        return ColumnValues("int", _CALCULATE[kind](first.values, second.values))
    if {first.kind, second.kind} <= {"int", "decimal"}:
        left, right = _decimal(first), _decimal(second)
        if kind is exp.Mul and left.type.scale + right.type.scale > _SCALE_MAX:
            raise Mismatch("more decimals than SQL keeps")
        return ColumnValues("decimal", _CALCULATE[kind](left, right))
    raise Mismatch("no numbers to calculate with")


def _remainder(first: ColumnValues, second: ColumnValues) -> ColumnValues:
    """The remainder of a division by a whole number, which has the sign of the dividend."""
    divisor = second.values.as_py() if isinstance(second.values, pa.Scalar) else 0
    if first.kind != "int" or second.kind != "int" or not divisor or isinstance(first.values, pa.Scalar):
        raise Mismatch("no division of integers by a number")
    whole = first.values.fill_null(0).to_numpy(zero_copy_only=False)
    rest = pa.array(np.fmod(whole, divisor))
    return ColumnValues("int", pc.if_else(pc.is_null(first.values), None, rest) if first.values.null_count else rest)


WORDS: Final = {"I": "insert", "U": "update", "D": "delete"}
LABEL_MAX: Final = 200
"""Characters of a label; longer ones are cut."""
_TSO_LOGICAL: Final = 18
_ROW_AS_OLD: Final = {ROW: "old"}
_TABLE: Final = frozenset({("event", "table_schema"), ("event", "table_name")})
_LABEL_KINDS: Final = frozenset({"int", "unsigned", "decimal"})


class RuleCounter:
    """A rule applied to rows of one layout of a table. Raises SinkRefused for columns that it cannot evaluate."""

    def __init__(self, table: TableInfo, number: int, options: MetricsOptions, batch: Batch, ts: int) -> None:
        self.number, self._rule, self._table = number, options.rules[number], table
        clocks, time_zone = (UTC if name == "UTC" else zone_of(name) for name in (options.clocks, options.time_zone))
        self._zones: tuple[tzinfo, tzinfo] = clocks, time_zone
        self._indexes, self._types = rule_columns(self._rule, table, batch, ts)
        self._when = self._compiled(self._rule.when) if self._rule.when else None
        self._value = self._compiled(self._rule.value) if self._rule.value else None
        self._labels = [self._compiled(text) for _, text in self._rule.labels]
        self._locate: Callable[[Mapping[str, Value]], str | None] | None = None
        """The partition of a row, for a gauge: partitions go with their rows."""
        if self._rule.kind == "gauge" and table.partition is not None:
            self._locate = partition_of(
                table.partition, table.columns, time_zone=options.clocks, primary_key=table.handle_key
            )
        self._slow: set[str] = set()
        """Expressions that do not go over columns."""

    def count(self, images: Images, rows: Any, part: TallyPart) -> None:
        """Count some rows of a batch. SinkRefused for one that the rule cannot judge."""
        op = images.op[rows]
        if self._rule.kind == "gauge":
            self._groups(_Reading(images, rows[op != "I"], self._indexes, _ROW_AS_OLD), part, -1)
            self._groups(_Reading(images, rows[op != "D"], self._indexes, {}), part, 1)
            return
        if len(self._rule.ops) < len(WORDS):
            rows = rows[np.isin(op, list(self._rule.ops))]
        self._groups(_Reading(images, rows, self._indexes, {}), part, 1)

    def _groups(self, reading: "_Reading", part: TallyPart, sign: int) -> None:
        """Group some rows by what the rule looks at, and judge each group."""
        when = self._vector(self._when, reading)
        if when is not None and when.kind == "bool":
            reading = reading.where(when.values)
        if not len(reading.rows):
            return
        slot_ms, ts = self._rule.slot_ms, reading.commit_ts.to_numpy()
        plan = _Plan(pa.array((ts >> _TSO_LOGICAL) // slot_ms if slot_ms else np.zeros(len(ts), np.int64)))
        texts = [] if self._when is None or (when is not None and when.kind == "bool") else [self._when]
        for index, label in enumerate(self._labels):
            vector = self._vector(label, reading)
            if vector is not None and vector.kind in _LABEL_KINDS:
                plan.keys[f"label{index}"] = vector.values
            else:
                texts.append(label)
        if self._value is not None and not self._added(plan, self._vector(self._value, reading)):
            texts.append(self._value)
        named = dict.fromkeys(each for text in texts for each in text.columns if each not in _TABLE)
        if self._locate is not None:
            named |= dict.fromkeys((ROW, name) for name in partition_columns(self._table))
        plan.named = list(named)
        plan.keys |= {f"column{index}": reading.column(each) for index, each in enumerate(named)}
        for group in plan.groups(reading.commit_ts, asks_when=self._when in texts):
            try:
                self._judge(group, part, sign)
            except (UpstreamError, EncodeError) as error:
                raise SinkRefused(
                    f"the rule of {self._rule.metric} has no value for a row of it: {error}; table {self._table.name} "
                    f"at commit_ts {group.ts}"
                ).at(table=str(self._table.name), commit_ts=group.ts) from error

    def _judge(self, group: "_Group", part: TallyPart, sign: int) -> None:
        if group.asks_when and self._when is not None:
            judged = group.of(self._when)
            if not (isinstance(judged, int) and judged == 1):
                return
        amounts, skipped = self._amounts(group)
        part.skipped += skipped if sign > 0 else 0
        if amounts is None:
            return
        labels = tuple(self._label(group, index, label) for index, label in enumerate(self._labels))
        if self._rule.kind != "gauge":
            part.add(SeriesKey("", "", labels), amounts)
            if self._rule.slot_ms:
                amount = sum(amounts[1:], ZERO) if self._rule.kind == "histogram" else amounts[0]
                part.add_slot(labels, group.keyed["slot"], amount)
            return
        partition = ""
        if self._locate is not None:
            row = {name: value for (image, name), value in group.named() if image == ROW}
            partition = lowered(self._locate(row) or "")
        signed = amounts if sign > 0 else tuple(-amount for amount in amounts)
        part.add(SeriesKey(self._table.incarnation, partition, labels), signed)

    @staticmethod
    def _label(group: "_Group", index: int, label: "_Text") -> str:
        if label.of_table:
            return ""
        key = f"label{index}"
        text = plain_text(group.keyed[key] if key in group.keyed else group.of(label))
        shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return shown.encode("utf-8", "replace").decode()[:LABEL_MAX]

    def _amounts(self, group: "_Group") -> tuple[Amounts | None, int]:
        """The amount that a group adds, and the number of its rows with a value that does not count; NULL is none."""
        count = Decimal(group.rows)
        if group.adds:
            amounts = None if group.total is None else self._placed(group.total, group.keyed.get("bucket"), count)
            return amounts, group.below
        if self._value is None:
            return (count,), 0
        result = group.of(self._value)
        value = Decimal(repr(result)) if isinstance(result, float) else result
        value = Decimal(value) if isinstance(value, int) else value
        if not isinstance(value, Decimal) or (value < 0 and self._rule.kind == "counter"):
            return None, 0 if result is None else group.rows
        bucket = sum(value > bound for bound in self._rule.bounds)
        return self._placed(EXACT.multiply(value, count), bucket, count), 0

    def _placed(self, total: Decimal, bucket: int | None, count: Decimal) -> Amounts:
        """The amounts of rows whose values come to `total`, of a histogram all in one bucket."""
        if self._rule.kind != "histogram":
            return (total,)
        buckets = [ZERO] * (len(self._rule.bounds) + 1)
        buckets[bucket or 0] = count
        return (total, *buckets)

    def _vector(self, text: "_Text | None", reading: "_Reading") -> ColumnValues | None:
        """The values of an expression by columns; None if it must be evaluated value by value."""
        if text is None or text.text.text in self._slow or any(image == "event" for image, _ in text.columns):
            return None
        try:
            vector = vector_of(text.text, ColumnScope(reading.column, self._types))
        except Mismatch:
            self._slow.add(text.text.text)
            return None
        except pa.ArrowException:
            return None
        return vector if isinstance(vector.values, pa.Array) else None

    def _added(self, plan: "_Plan", vector: ColumnValues | None) -> bool:
        """Have a value added up by groups, of a histogram by buckets; False if it must be evaluated value by value."""
        if vector is None:
            return False
        try:
            numbers = numbers_of(vector)
        except (Mismatch, pa.ArrowException):
            return False
        below = pa.array(np.zeros(len(numbers), np.int64))
        if self._rule.kind == "counter":
            falls = pc.less(numbers, pa.scalar(0, numbers.type))
            numbers, below = pc.if_else(falls, None, numbers), falls.cast(pa.int64())
        if self._rule.kind == "histogram":
            above = [pc.greater(numbers, pa.scalar(bound)).cast(pa.int64()) for bound in self._rule.bounds]
            plan.keys["bucket"] = reduce(pc.add, above)
        plan.sums = numbers, below
        return True

    def _compiled(self, text: str) -> "_Text":
        parsed = row_text(text, self._rule.sql_mode)
        run = parsed.compiled(self._types, *self._zones)
        fixed = {("event", "table_schema"): self._table.name.schema, ("event", "table_name"): self._table.name.table}
        # a label of a gauge that is a name of its table is put in when it is shown
        of_table = self._rule.kind == "gauge" and parsed.single is not None and parsed.single[0] == "event"
        return _Text(parsed, run, fixed, of_table)


class _Reading:
    """Some rows of a batch, and their columns; `instead` says which image another one is."""

    def __init__(self, images: Images, rows: Any, indexes: Mapping[str, int], instead: Mapping[str, str]) -> None:
        self._images, self.rows, self._indexes, self._instead = images, rows, indexes, instead
        self._columns: dict[Named, Any] = {}

    def where(self, mask: Any) -> "_Reading":
        chosen = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
        return _Reading(self._images, self.rows[chosen], self._indexes, self._instead)

    @property
    def commit_ts(self) -> Any:
        every = self._images.batch.commit_ts
        return every if len(self.rows) == len(every) else every.take(pa.array(self.rows))

    def column(self, each: Named) -> Any:
        column = self._columns.get(each)
        if column is None:
            image, name = each
            if image == "event":
                column = self.commit_ts if name == "commit_ts" else self._images.batch.op.take(pa.array(self.rows))
            else:
                column = self._images.column(self._instead.get(image, image), self._indexes[name], self.rows)
            self._columns[each] = column
        return column


@dataclass(frozen=True, slots=True)
class _Text:
    """A compiled expression, and the columns that are the same for all rows of a table."""

    text: RowText
    run: Callable[[Sequence[Value]], SqlValue]
    fixed: Mapping[Named, str]
    of_table: bool

    @property
    def columns(self) -> tuple[Named, ...]:
        return self.text.columns


class _Group(NamedTuple):
    """Rows that are equal in what a rule looks at; `total` is what Arrow added up, without `below` rows."""

    keyed: Mapping[str, Any]
    named_columns: Sequence[Named]
    rows: int
    ts: int
    adds: bool
    total: Decimal | None
    below: int
    asks_when: bool

    def of(self, text: _Text) -> SqlValue:
        values = {**text.fixed, **dict(self.named())}
        if (op := values.get(("event", "op"))) is not None:
            values["event", "op"] = WORDS[str(op)]
        return text.run([values[each] for each in text.columns])

    def named(self) -> Iterator[tuple[Named, Value]]:
        return ((each, self.keyed[f"column{index}"]) for index, each in enumerate(self.named_columns))


@dataclass(slots=True)
class _Plan:
    """The keys by which rows are grouped, `named` those of expressions, and the amounts."""

    slots: Any
    keys: dict[str, Any] = field(default_factory=dict)
    named: list[Named] = field(default_factory=list)
    sums: tuple[Any, Any] | None = None

    def groups(self, commit_ts: Any, *, asks_when: bool) -> Iterator[_Group]:
        keys = {"slot": self.slots, **self.keys}
        aggregates: list[Any] = [([], "count_all"), ("ts", "min")]
        columns = {**keys, "ts": commit_ts}
        if self.sums is not None:
            columns["sum"], columns["below"] = self.sums
            aggregates += [("sum", "sum"), ("below", "sum")]
        groups = pa.table(columns).group_by(list(keys), use_threads=False).aggregate(aggregates)
        lists = {name: groups.column(name).to_pylist() for name in groups.column_names}
        adds = self.sums is not None
        for index in range(groups.num_rows):
            yield _Group(
                {name: lists[name][index] for name in keys},
                self.named,
                lists["count_all"][index],
                lists["ts_min"][index],
                adds,
                lists["sum_sum"][index] if adds else None,
                (lists["below_sum"][index] or 0) if adds else 0,
                asks_when,
            )


FOLD: Final = 10_000
"""The number of series above which a part is folded before all rows are counted."""


@dataclass(slots=True)
class CountedRows(Written):
    """The counts of a task, by rule index."""

    parts: dict[int, TallyPart] = field(default_factory=dict)


def count_tables(
    options: MetricsOptions, changes: Changes, steps: Sequence[tuple[Rows, Mapping[int, Limit]]]
) -> list[CountedRows]:
    """Count the rows of steps, each by the rules with these numbers and limits. SinkRefused with table and commit_ts
    for a row that a rule cannot judge."""
    return [_count_table(options, changes, step, limits) for step, limits in steps]


def _count_table(options: MetricsOptions, changes: Changes, step: Rows, limits: Mapping[int, Limit]) -> CountedRows:
    table = step.table
    done = CountedRows(table.name, parts={number: TallyPart() for number in limits})

    def fold(number: int) -> None:
        done.parts[number].fold(limits[number].labels, limits[number].room, options.rules[number].overflow)

    counters: dict[int, tuple[object, list[RuleCounter]]] = {}
    for chunk in done.coming(changes.batches(table.name, step.after, step.upto)):
        firsts, last = FirstRows(table), len(chunk.parts) - 1
        for index, (batch, _) in enumerate(chunk.parts):
            typed = typed_batch(batch)
            images = Images(typed)
            if (layout := id(batch.fields)) not in counters:
                first_ts = int(typed.commit_ts[0].as_py())
                rule_counters = [RuleCounter(table, number, options, typed, first_ts) for number in limits]
                counters[layout] = batch.fields, rule_counters
            rows = np.arange(typed.rows) if typed.start_ts is not None else firsts.of(images, is_last=index == last)
            for counter in counters[layout][1]:
                part = done.parts[counter.number]
                counter.count(images, rows, part)
                if len(part.series) > FOLD:
                    fold(counter.number)
            done.rows += typed.rows
    for number in done.parts:
        fold(number)
    failpoint("metrics/counted")
    return done
