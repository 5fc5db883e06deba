"""Rules of the metrics sink: which changes count, by which value and under which labels.

    [[sink.metrics-config.rules]]
    metric = "withdrawals_total"                     its name; a counter's ends in _total
    type = "counter"                                 counter, gauge or histogram
    matcher = ["bank.accounts"]                      table filter rules
    events = ["update"]                              which changes; not for gauges
    when = "old.balance - new.balance > 1000"        SQL: changes for which it is the integer 1
    value = "old.balance - new.balance"              SQL: what is added or observed, else 1
    labels = ["branch", "day=date(new.at)"]          a column, or NAME=SQL
    alert-above = 10                                 an alert while it rose by more within alert-window

What expressions can reference:

    counter, histogram    per change: old.c, the row before; new.c, the row after; NULL where there is none; c is new.c,
                          or old.c for a DELETE; event.op (insert, update or delete), event.table_schema,
                          event.table_name, event.commit_ts
    gauge                 per live row: c; event.table_schema, event.table_name; the old row of a change is subtracted
                          and the new one added, and rows are removed with their table

An expression is parsed once and compiled for the columns of each table.  Functions whose value differs on each call
(NOW, RAND ..) are refused, since a restart could not count the same again.

Source: Prometheus, "Metric and label naming", "Data model".
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any, Final, Literal, TypeAlias

import msgspec
from sqlglot import exp

from tidegate.engine.filter import DEFAULT_RULES, TableFilter
from tidegate.expr.compiler import assumed_collation, compile_scalar, condition_node, value_reader, wide_bit
from tidegate.expr.scope import Scope, Slot
from tidegate.model.errors import ConfigError, ExpressionParseFailed, SqlRefused
from tidegate.model.event import Value
from tidegate.model.mysql import MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType, TableName
from tidegate.mysql.values import Context, SqlValue
from tidegate.sink.metrics_keys import RuleText

ROW: Final = "row"
IMAGES: Final = (ROW, "old", "new", "event")
EVENT_COLUMNS: Final[Mapping[str, ColumnType]] = {
    "op": ColumnType(MysqlType.VARCHAR, 6),
    "table_schema": ColumnType(MysqlType.VARCHAR, 64),
    "table_name": ColumnType(MysqlType.VARCHAR, 64),
    "commit_ts": ColumnType(MysqlType.LONGLONG, unsigned=True, charset="binary"),
}
Named: TypeAlias = tuple[str, str]
"""An image, and a column of it as it is written (of `event` in lower case)."""
_UNSTEADY: Final = frozenset(
    {
        *("NOW", "SYSDATE", "LOCALTIME", "LOCALTIMESTAMP", "CURDATE", "CURTIME", "CURRENT_DATE", "CURRENT_TIME"),
        *("CURRENT_TIMESTAMP", "UTC_DATE", "UTC_TIME", "UTC_TIMESTAMP", "RAND", "UUID", "CONNECTION_ID", "USER"),
        *("CURRENT_USER", "SESSION_USER", "DATABASE", "SCHEMA", "FOUND_ROWS", "ROW_COUNT", "LAST_INSERT_ID"),
    }
)
_OF_NOW: Final = "UNIX_TIMESTAMP"


@dataclass(frozen=True, slots=True)
class RowText:
    """A parsed expression. `columns`: the columns that it references. `single`: the column, if the expression is
    just that column."""

    text: str
    node: Any
    columns: tuple[Named, ...]
    single: Named | None
    sql_mode: frozenset[str]

    def compiled(
        self, types: Mapping[Named, ColumnType], clocks: tzinfo, zone: tzinfo
    ) -> Callable[[Sequence[Value]], SqlValue]:
        """Return a function of the values of `columns`; `types` are their types, `clocks` the time zone of TIMESTAMPs
        in them.

        Raises ExpressionParseFailed. The function raises UpstreamError, EncodeError.
        """
        slots = tuple(
            Slot(index, name, wide_bit(types[image, name]), assumed_collation(types[image, name]), image)
            for index, (image, name) in enumerate(self.columns)
        )
        try:
            run = compile_scalar(self.node, Scope(slots, clause="expression"))
        except SqlRefused as refused:
            raise ExpressionParseFailed(f"{self.text!r}: {refused.message}") from refused
        readers = [value_reader(slot.type, clocks, zone) for slot in slots]
        context = Context(datetime.fromtimestamp(0, UTC), zone, self.sql_mode)

        def value(values: Sequence[Value]) -> SqlValue:
            context.warnings.clear()
            return run([read(value) for read, value in zip(readers, values, strict=True)], context)

        return value


@lru_cache(maxsize=1024)
def row_text(text: str, sql_mode: frozenset[str] = frozenset()) -> RowText:
    """Return the parsed expression. Raises ExpressionParseFailed for an invalid one, or one whose value differs on
    each call."""
    node = condition_node(text, sql_mode).copy()
    if node.find(exp.Query) is not None:
        raise ExpressionParseFailed(f"{text!r}: an expression of a rule has no subqueries")
    for call in node.find_all(exp.Anonymous):
        name = call.name.upper()
        if name in _UNSTEADY or (name == _OF_NOW and not call.expressions):
            raise ExpressionParseFailed(
                f"{text!r}: {name}() is not deterministic, so a restart could not repeat the count"
            )
    named: dict[Named, None] = {}
    for column in node.find_all(exp.Column):
        image = lowered(column.table) or ROW
        if image not in IMAGES[1:] and column.table:
            raise ExpressionParseFailed(
                f"{text!r}: write old.{column.name}, new.{column.name} or {column.name}, not {column.sql()}"
            )
        column.set("table", exp.to_identifier(image))
        named[image, lowered(column.name) if image == "event" else column.name] = None
    columns = tuple(named)
    single = columns[0] if isinstance(node, exp.Column) else None
    return RowText(text, node, columns, single, sql_mode)


Kind = Literal["counter", "gauge", "histogram"]
KINDS: Final[tuple[Kind, ...]] = ("counter", "gauge", "histogram")
EVENTS: Final = {"insert": "I", "update": "U", "delete": "D"}
OTHER: Final = "_other"
"""The value of all labels of what is beyond max-series."""
_METRIC: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_RESERVED: Final = frozenset({"changefeed", "namespace", "le", "quantile"})
_OWN_PREFIXES: Final = ("tidegate_", "ticdc_", "process_", "python_")
_OF_TABLE: Final = frozenset({"table_schema", "table_name"})
_WINDOW_SLOTS: Final = 30
SERIES_MAX: Final = 10_000


class MetricRule(msgspec.Struct, frozen=True):
    """A checked rule, a value that is sent to tasks. Times in ms."""

    metric: str
    kind: Kind
    matcher: tuple[str, ...]
    case_sensitive: bool
    ops: frozenset[str]
    when: str
    value: str
    labels: tuple[tuple[str, str], ...]
    bounds: tuple[Decimal, ...]
    about: str
    max_series: int
    above: Decimal | None
    below: Decimal | None
    window_ms: int
    sql_mode: frozenset[str] = frozenset()

    def takes(self, name: TableName) -> bool:
        return _filter(self.matcher, self.case_sensitive).matches(*name)

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.labels)

    @property
    def texts(self) -> tuple[RowText, ...]:
        texts = filter(None, (self.when, self.value, *(text for _, text in self.labels)))
        return tuple(row_text(text, self.sql_mode) for text in texts)

    @property
    def columns(self) -> frozenset[str]:
        """The names of the table's columns that the rule references, as written."""
        return frozenset(name for text in self.texts for image, name in text.columns if image != "event")

    @property
    def is_watched(self) -> bool:
        return self.above is not None or self.below is not None

    @property
    def slot_ms(self) -> int:
        """The width of the slots in which an alert keeps the past; 0: it needs none."""
        return max(self.window_ms // _WINDOW_SLOTS, 1) if self.is_watched and self.kind != "gauge" else 0

    @property
    def form(self) -> list[object]:
        """The properties that must not change for stored values to be continued: type, labels, buckets."""
        return [self.kind, list(self.label_names), [str(bound) for bound in self.bounds]]

    @property
    def overflow(self) -> tuple[str, ...]:
        return (OTHER,) * len(self.labels)


@cache
def _filter(rules: tuple[str, ...], case_sensitive: bool) -> TableFilter:  # noqa: FBT001
    return TableFilter.parse(rules, case_sensitive=case_sensitive)


DEFAULT: Final = RuleText(
    metric="changes_total",
    labels=("table_schema=event.table_schema", "table_name=event.table_name", "op=event.op"),
    help="Row changes by table and kind",
)
"""The rule of a configuration without rules."""


def metric_rules(
    entries: object, window_ms: Sequence[int], *, case_sensitive: bool = False, sql_mode: frozenset[str] = frozenset()
) -> tuple[MetricRule, ...]:
    """Return the rules in the value of `sink.metrics-config.rules`, whose windows are read already.

    Raises ConfigError for invalid rules, FilterRuleInvalid, ExpressionParseFailed."""
    texts = rule_texts(entries)
    rules = []
    for number, (text, window) in enumerate(zip(texts, window_ms, strict=True)):
        where = f"sink.metrics-config.rules[{number}]" + (f" ({text.metric})" if text.metric else "")
        rules.append(_checked(text, window, where, case_sensitive=case_sensitive, sql_mode=sql_mode))
    for rule in rules:
        if sum(other.metric == rule.metric for other in rules) > 1:
            raise ConfigError(f"sink.metrics-config.rules: two rules define {rule.metric}; use different names")
    return tuple(rules)


def rule_texts(entries: object) -> tuple[RuleText, ...]:
    """Return the rules as they are written; the default where there are none. ConfigError for another shape."""
    try:
        return msgspec.convert(entries, tuple[RuleText, ...]) or (DEFAULT,)
    except msgspec.ValidationError as error:
        raise ConfigError(f"sink.metrics-config.rules: {error}") from error


def _checked(
    text: RuleText, window_ms: int, where: str, *, case_sensitive: bool, sql_mode: frozenset[str]
) -> MetricRule:
    if text.type not in KINDS:
        raise ConfigError(f"{where}: type {text.type!r} is none of {', '.join(KINDS)}{_near(text.type, KINDS)}")
    unknown = [word for word in text.events if word not in EVENTS]
    if unknown:
        raise ConfigError(f"{where}: {unknown[0]!r} is none of {', '.join(EVENTS)}{_near(unknown[0], EVENTS)}")
    _refuse(
        where,
        (not _METRIC.fullmatch(text.metric), f"metric = {text.metric!r} is not a metric name, such as orders_total"),
        (text.metric.startswith(_OWN_PREFIXES), f"{text.metric} has a reserved prefix; choose another name"),
        (
            text.type == "counter" and not text.metric.endswith("_total"),
            f'the name of a counter ends in _total; did you mean "{text.metric}_total"?',
        ),
    )
    try:
        labels = tuple(_label(each, sql_mode) for each in text.labels)
        _filter(text.matcher or DEFAULT_RULES, case_sensitive)
        rule = MetricRule(
            metric=text.metric,
            kind=text.type,
            matcher=text.matcher or DEFAULT_RULES,
            case_sensitive=case_sensitive,
            ops=frozenset(EVENTS[word] for word in text.events or EVENTS),
            when=text.when,
            value=text.value,
            labels=tuple((name, label.text) for name, label in labels),
            bounds=tuple(Decimal(repr(bound)) for bound in text.buckets),
            about=text.help or text.metric,
            max_series=text.max_series,
            above=None if text.alert_above is None else Decimal(repr(text.alert_above)),
            below=None if text.alert_below is None else Decimal(repr(text.alert_below)),
            window_ms=window_ms,
            sql_mode=sql_mode,
        )
        texts = rule.texts
    except ConfigError as error:
        raise type(error)(f"{where}: {error}") from error
    _check_rule(text, rule, texts, where)
    if not 1 <= text.max_series <= SERIES_MAX:
        raise ConfigError(f"{where}: max-series {text.max_series} is not between 1 and {SERIES_MAX}")
    return rule


def _refuse(where: str, *faults: tuple[bool, str]) -> None:
    """Raise ConfigError for the first fault that is there."""
    for is_there, text in faults:
        if is_there:
            raise ConfigError(f"{where}: {text}")


def _check_rule(text: RuleText, rule: MetricRule, texts: Sequence[RowText], where: str) -> None:
    names = rule.label_names
    for name in names:
        is_name = _LABEL.fullmatch(name) and not name.startswith("__")
        _refuse(
            where,
            (not is_name, f"{name!r} is not a label name; expected NAME=EXPRESSION"),
            (name in _RESERVED, f"the label {name} is reserved; use another NAME=EXPRESSION"),
            (names.count(name) > 1, f"the label {name} is defined twice"),
        )
    rising = list(rule.bounds) == sorted(set(rule.bounds)) and all(math.isfinite(bound) for bound in rule.bounds)
    _refuse(
        where,
        ((rule.kind == "histogram") != bool(rule.bounds), "buckets are for histograms, and a histogram needs them"),
        (rule.kind == "histogram" and not rule.value, "a histogram needs a value, such as value = 'amount'"),
        (not rising, "buckets must be ascending numbers"),
        (
            rule.above is not None and rule.below is not None,
            "set either alert-above or alert-below; a second rule may have the other one",
        ),
    )
    named = [(each, image, name) for each in texts for image, name in each.columns]
    for _, image, name in named:
        if image == "event" and name not in EVENT_COLUMNS:
            near = _near(name, EVENT_COLUMNS)
            raise ConfigError(f"{where}: event.{name} is none of {', '.join(EVENT_COLUMNS)}{near}")
    if rule.kind != "gauge":
        return
    if text.events:
        raise ConfigError(f"{where}: a gauge follows every change of a row; remove events, or use a counter")
    labels = [row_text(expression, rule.sql_mode) for _, expression in rule.labels]
    for each, image, name in named:
        if image == "event" and not (name in _OF_TABLE and each in labels and each.single is not None):
            raise ConfigError(
                f"{where}: a label of a gauge may only be event.table_name or event.table_schema, since tables are "
                f"renamed, not {each.text!r}"
            )
        if image in {"old", "new"}:
            raise ConfigError(
                f"{where}: a gauge measures current rows and has no {image}.{name}; name columns without old. and "
                f"new., or use a counter"
            )


def _label(text: str, sql_mode: frozenset[str]) -> tuple[str, RowText]:
    """A column by its own name, or NAME=SQL."""
    name, equals, expression = text.partition("=")
    if equals and _LABEL.fullmatch(name.strip()):
        return name.strip(), row_text(expression.strip(), sql_mode)
    column = row_text(text, sql_mode)
    if column.single is None:
        raise ConfigError(f"label {text!r} is neither a column nor NAME=EXPRESSION")
    return column.single[1], column


def _near(word: str, words: Iterable[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word.lower(), list(words), n=1, cutoff=0.5)
    return f'; did you mean "{close[0]}"?' if close else ""


def nearest_column(name: str, names: Sequence[str]) -> str:
    """Return a hint that names the nearest of some columns, or lists them."""
    return _near(name, names) or f"; it has {', '.join(names)}"
