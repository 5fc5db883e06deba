"""One rule on the rows of one table: columns to groups, groups to amounts.

    rows ─► when ─► groups of equal labels, counted and added up ─► amounts of series
             old   1  null  3        (paid)  412 rows  sum 17.50
             new   2  4     null

An expression goes over whole columns where it can (vector.py).  Where not, rows are grouped by the columns that it
names, and it is asked once for each group: a label by status costs as many calls as there are statuses.

A gauge takes the old rows of changes off and adds the new ones.
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

from tidegate.codec.columnar import Batch
from tidegate.codec.columnar.values import Misfit
from tidegate.expr.cast import plain_text
from tidegate.model.errors import EncodeError, SinkRefused, UpstreamError
from tidegate.model.event import Value
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo
from tidegate.mysql.conversion import zone_of
from tidegate.mysql.values import SqlValue
from tidegate.schema.partition import partition_of
from tidegate.sink.metrics.images import Images
from tidegate.sink.metrics.options import MetricsOptions
from tidegate.sink.metrics.row_text import ROW, Named, RowText, row_text
from tidegate.sink.metrics.rule import MetricRule
from tidegate.sink.metrics.rule_columns import columns_of, partition_columns
from tidegate.sink.metrics.tally import EXACT, ZERO, Amounts, SeriesKey, TallyPart
from tidegate.sink.metrics.vector import ColumnScope, ColumnValues, numbers_of, vector_of

WORDS: Final = {"I": "insert", "U": "update", "D": "delete"}
LABEL_MAX: Final = 200
"""Characters of a label; longer ones are cut."""
_TSO_LOGICAL: Final = 18
_ROW_AS_OLD: Final = {ROW: "old"}
_TABLE: Final = frozenset({("event", "table_schema"), ("event", "table_name")})
_LABEL_KINDS: Final = frozenset({"int", "unsigned", "decimal"})


class RuleCounter:
    """A rule on rows of one layout of a table. SinkRefused for columns that it cannot look at."""

    def __init__(self, table: TableInfo, number: int, options: MetricsOptions, batch: Batch, ts: int) -> None:
        self.number, self._rule, self._table, self._options = number, options.rules[number], table, options
        self._zones = zone(options.clocks), zone(options.time_zone)
        self._places, self._types = columns_of(self._rule, table, batch, ts)
        self._when = self._compiled(self._rule.when) if self._rule.when else None
        self._value = self._compiled(self._rule.value) if self._rule.value else None
        self._labels = [self._compiled(text) for _, text in self._rule.labels]
        self._locate = self._partitions()
        self._slow: set[str] = set()
        """Expressions that do not go over columns."""

    def count(self, images: Images, rows: Any, part: TallyPart) -> None:
        """Count some rows of a batch. SinkRefused for one that the rule cannot judge."""
        op = images.op[rows]
        if self._rule.kind == "gauge":
            self._groups(_Reading(images, rows[op != "I"], self._places, _ROW_AS_OLD), part, -1)
            self._groups(_Reading(images, rows[op != "D"], self._places, {}), part, 1)
            return
        if len(self._rule.ops) < len(WORDS):
            rows = rows[np.isin(op, list(self._rule.ops))]
        self._groups(_Reading(images, rows, self._places, {}), part, 1)

    def _groups(self, reading: "_Reading", part: TallyPart, sign: int) -> None:
        """Group some rows by what the rule looks at, and judge each group."""
        when = self._vector(self._when, reading)
        if when is not None and when.kind == "bool":
            reading = reading.where(when.values)
        if not len(reading.rows):
            return
        plan = _Plan(self._slots(reading.commit_ts))
        texts = [] if self._when is None or (when is not None and when.kind == "bool") else [self._when]
        for at, label in enumerate(self._labels):
            found = self._vector(label, reading)
            if found is not None and found.kind in _LABEL_KINDS:
                plan.keys[f"label{at}"] = found.values
            else:
                texts.append(label)
        if self._value is not None and not self._added(plan, self._vector(self._value, reading)):
            texts.append(self._value)
        named = dict.fromkeys(each for text in texts for each in text.columns if each not in _TABLE)
        if self._locate is not None:
            named |= dict.fromkeys((ROW, name) for name in partition_columns(self._table))
        plan.named = list(named)
        plan.keys |= {f"column{at}": reading.column(each) for at, each in enumerate(named)}
        for group in plan.groups(reading.commit_ts, asks_when=self._when in texts):
            try:
                self._judge(group, part, sign)
            except (UpstreamError, EncodeError) as error:
                raise self._refused(f"has no value for a row of it: {error}", group.ts) from error

    def _judge(self, group: "_Group", part: TallyPart, sign: int) -> None:
        if group.asks_when and self._when is not None:
            judged = group.of(self._when)
            if not (isinstance(judged, int) and judged == 1):
                return
        amounts, skipped = self._amounts(group)
        part.skipped += skipped if sign > 0 else 0
        if amounts is None:
            return
        labels = tuple(self._label(group, at, label) for at, label in enumerate(self._labels))
        if self._rule.kind != "gauge":
            part.add(SeriesKey("", "", labels), amounts)
            if self._rule.slot_ms:
                amount = sum(amounts[1:], ZERO) if self._rule.kind == "histogram" else amounts[0]
                part.add_slot(labels, group.keyed["slot"], amount)
            return
        signed = amounts if sign > 0 else tuple(-amount for amount in amounts)
        part.add(SeriesKey(self._table.incarnation, self._partition(group), labels), signed)

    @staticmethod
    def _label(group: "_Group", at: int, label: "_Text") -> str:
        if label.of_table:
            return ""
        key = f"label{at}"
        return label_text(group.keyed[key] if key in group.keyed else group.of(label))

    def _amounts(self, group: "_Group") -> tuple[Amounts | None, int]:
        """What a group adds, and how many of its rows have a value that does not count; NULL is none."""
        count = Decimal(group.rows)
        if group.adds:
            found = None if group.total is None else self._placed(group.total, group.keyed.get("bucket"), count)
            return found, group.below
        if self._value is None:
            return (count,), 0
        asked = group.of(self._value)
        value = number(asked)
        if value is None or (value < 0 and self._rule.kind == "counter"):
            return None, 0 if asked is None else group.rows
        at = sum(value > bound for bound in self._rule.bounds)
        return self._placed(EXACT.multiply(value, count), at, count), 0

    def _placed(self, total: Decimal, bucket: int | None, count: Decimal) -> Amounts:
        """The amounts of rows whose values come to `total`, of a histogram all in one bucket."""
        if self._rule.kind != "histogram":
            return (total,)
        buckets = [ZERO] * (len(self._rule.bounds) + 1)
        buckets[bucket or 0] = count
        return (total, *buckets)

    def _partition(self, group: "_Group") -> str:
        if self._locate is None:
            return ""
        row = {name: value for (image, name), value in group.named() if image == ROW}
        return lowered(self._locate(row) or "")

    # Whole columns

    def _vector(self, text: "_Text | None", reading: "_Reading") -> ColumnValues | None:
        """The values of an expression by columns; None where it goes value by value."""
        if text is None or text.text.text in self._slow or any(image == "event" for image, _ in text.columns):
            return None
        try:
            found = vector_of(text.text, ColumnScope(reading.column, self._types))
        except Misfit:
            self._slow.add(text.text.text)
            return None
        except pa.ArrowException:
            return None
        return found if isinstance(found.values, pa.Array) else None

    def _added(self, plan: "_Plan", found: ColumnValues | None) -> bool:
        """Have a value added up by groups, of a histogram by buckets; False where it goes value by value."""
        try:
            numbers = None if found is None else numbers_of(found)
        except (Misfit, pa.ArrowException):
            numbers = None
        if numbers is None:
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

    def _slots(self, commit_ts: Any) -> Any:
        if not self._rule.slot_ms:
            return pa.array(np.zeros(len(commit_ts), np.int64))
        return pa.array((commit_ts.to_numpy() >> _TSO_LOGICAL) // self._rule.slot_ms)

    # What is asked of a group

    def _compiled(self, text: str) -> "_Text":
        found = row_text(text, self._rule.sql_mode)
        run = found.compiled(self._types, *self._zones)
        fixed = {("event", "table_schema"): self._table.name.schema, ("event", "table_name"): self._table.name.table}
        return _Text(found, run, fixed, _is_of_table(self._rule, found))

    def _partitions(self) -> Callable[[Mapping[str, Value]], str | None] | None:
        """What names the partition of a row, for a gauge: partitions go with their rows."""
        table = self._table
        if self._rule.kind != "gauge" or table.partition is None:
            return None
        return partition_of(
            table.partition, table.columns, time_zone=self._options.clocks, primary_key=table.handle_key
        )

    def _refused(self, what: str, ts: int) -> SinkRefused:
        found = SinkRefused(f"the rule of {self._rule.metric} {what}; table {self._table.name} at commit_ts {ts}")
        return found.at(table=str(self._table.name), commit_ts=ts)


class _Reading:
    """Some rows of a batch, and their columns; `instead` says which image another one is."""

    def __init__(self, images: Images, rows: Any, places: Mapping[str, int], instead: Mapping[str, str]) -> None:
        self._images, self.rows, self._places, self._instead = images, rows, places, instead
        self._found: dict[Named, Any] = {}

    def where(self, mask: Any) -> "_Reading":
        """Return the rows for which `mask` is true."""
        chosen = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
        return _Reading(self._images, self.rows[chosen], self._places, self._instead)

    @property
    def commit_ts(self) -> Any:
        """Their commit_ts."""
        every = self._images.batch.commit_ts
        return every if len(self.rows) == len(every) else every.take(pa.array(self.rows))

    def column(self, each: Named) -> Any:
        """Return a column."""
        found = self._found.get(each)
        if found is None:
            image, name = each
            if image == "event":
                found = self.commit_ts if name == "commit_ts" else self._images.batch.op.take(pa.array(self.rows))
            else:
                found = self._images.column(self._instead.get(image, image), self._places[name], self.rows)
            self._found[each] = found
        return found


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
    places: Sequence[Named]
    rows: int
    ts: int
    adds: bool
    total: Decimal | None
    below: int
    asks_when: bool

    def of(self, text: _Text) -> SqlValue:
        """Return what an expression is for the group."""
        values = {**text.fixed, **dict(self.named())}
        return text.run([_worded(each, values[each]) for each in text.columns])

    def named(self) -> Iterator[tuple[Named, Value]]:
        """Return the values by name."""
        return ((each, self.keyed[f"column{at}"]) for at, each in enumerate(self.places))


@dataclass(slots=True)
class _Plan:
    """What rows are grouped by, `named` of it columns that expressions are asked with, and what is added up."""

    slots: Any
    keys: dict[str, Any] = field(default_factory=dict)
    named: list[Named] = field(default_factory=list)
    sums: tuple[Any, Any] | None = None

    def groups(self, commit_ts: Any, *, asks_when: bool) -> Iterator[_Group]:
        """Return the groups."""
        keys = {"slot": self.slots, **self.keys}
        asked: list[Any] = [([], "count_all"), ("ts", "min")]
        columns = {**keys, "ts": commit_ts}
        if self.sums is not None:
            columns["sum"], columns["below"] = self.sums
            asked += [("sum", "sum"), ("below", "sum")]
        found = pa.table(columns).group_by(list(keys), use_threads=False).aggregate(asked)
        lists = {name: found.column(name).to_pylist() for name in found.column_names}
        adds = self.sums is not None
        for at in range(found.num_rows):
            yield _Group(
                {name: lists[name][at] for name in keys},
                self.named,
                lists["count_all"][at],
                lists["ts_min"][at],
                adds,
                lists["sum_sum"][at] if adds else None,
                (lists["below_sum"][at] or 0) if adds else 0,
                asks_when,
            )


def _worded(each: Named, value: Value) -> Value:
    return WORDS[str(value)] if each == ("event", "op") else value


def number(value: SqlValue) -> Decimal | None:
    """Return the number that a value is, exactly; None where it is none."""
    if isinstance(value, Decimal):
        return value
    if isinstance(value, float):
        return Decimal(repr(value))
    return Decimal(value) if isinstance(value, int) else None


def label_text(value: SqlValue) -> str:
    """Return the text of a label, cut where it is long; NULL is none."""
    text = plain_text(value)
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return shown.encode("utf-8", "replace").decode()[:LABEL_MAX]


def _is_of_table(rule: MetricRule, text: RowText) -> bool:
    """Whether a label of a gauge is a name of its table, which is put in when it is shown."""
    return rule.kind == "gauge" and text.single is not None and text.single[0] == "event"


def zone(name: str) -> tzinfo:
    """Return the zone of a name."""
    return UTC if name == "UTC" else zone_of(name)
