"""What DDLs do to rules and their numbers. Pure.

    counters, histograms     nothing: they tell what happened
    gauges                   DROP, TRUNCATE, of databases too     its rows are of an incarnation that lives no more
                             RECOVER, FLASHBACK                   and one that lives again
                             RENAME                               stays; goes, out of the matcher; refused, into it
                             DROP, TRUNCATE PARTITION             the numbers of the partition go
                             EXCHANGE PARTITION                   those of partition and table change places
                             other changes of partitions          the table's stay as a whole; a DROP PARTITION behind
                                                                  it is refused, for nobody knows what lay where
                             a column of another type             refused, where that makes other texts or numbers
    any rule                 a column that it names goes          refused: rule, column, table and ts are told

So numbers of gauges stand by incarnation and partition, and what is shown is the sum over tables that live.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from tidegate.model.errors import SinkRefused
from tidegate.model.mysql import INTEGERS, STRINGS, MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType, TableInfo
from tidegate.schema.effects import (
    Effect,
    PartitionExchanged,
    PartitionsDropped,
    PartitionsTruncated,
    TableAltered,
    TableCreated,
    TableDropped,
    TableRecovered,
    TableRenamed,
    TableTruncated,
)
from tidegate.schema.state import SchemaState
from tidegate.sink.metrics.rule import MetricRule
from tidegate.sink.metrics.rule_columns import missing
from tidegate.sink.metrics.tally import SeriesKey, Tally

MIXED: Final = "?"
"""The partition of rows that lay in partitions which are others now."""
_SAME_TEXT: Final = (INTEGERS, frozenset({MysqlType.VARCHAR, MysqlType.VAR_STRING, MysqlType.STRING}))


def check_rules(rules: Iterable[MetricRule], tables: Iterable[TableInfo], ts: int) -> None:
    """Raise SinkRefused for a rule that names a column which a table that it takes has not."""
    every = list(tables)
    for rule in rules:
        for table in every:
            if rule.takes(table.name):
                check_columns(rule, table, ts)


def check_columns(rule: MetricRule, table: TableInfo, ts: int) -> None:
    """Raise SinkRefused for a column that a rule names and a table has not. Of a table that only rows have told the
    rows tell what it has."""
    if table.inferred:
        return
    for name in sorted(rule.columns):
        column = table.column(name)
        if column is None or column.virtual:
            raise missing(rule, table, name, ts)


def follow(tally: Tally, effects: Sequence[Effect], state: SchemaState, ts: int) -> None:
    """Do to a tally what a DDL did to tables; `state` is the schema behind it. SinkRefused for what cannot be told."""
    rule = tally.rule
    for effect in effects:
        match effect:
            case TableCreated(table) | TableRecovered(table):
                _check(rule, table, ts)
            case TableTruncated(_, new):
                _check(rule, new, ts)
            case TableRenamed(old, new):
                _check(rule, new, ts)
                _renamed(tally, old, new, ts)
            case TableAltered(old, new):
                _check(rule, new, ts)
                _altered(tally, old, new, ts)
            case PartitionsTruncated(old, names, new) | PartitionsDropped(old, names, new):
                _check(rule, new, ts)
                _without(tally, old, names, ts)
            case PartitionExchanged():
                _exchanged(tally, effect, ts)
            case TableDropped() | _:
                pass
    known = {table.incarnation for table in (*state.tables.values(), *state.dropped)} | {""}
    for key in [key for key in tally.series if key.table not in known]:
        del tally.series[key]


def _check(rule: MetricRule, table: TableInfo, ts: int) -> None:
    if rule.takes(table.name):
        check_columns(rule, table, ts)


def _mine(tally: Tally, incarnation: str) -> list[SeriesKey]:
    return [key for key in tally.series if key.table == incarnation]


def _renamed(tally: Tally, old: TableInfo, new: TableInfo, ts: int) -> None:
    rule = tally.rule
    if rule.kind != "gauge":
        return
    before, after = rule.takes(old.name), rule.takes(new.name)
    if after and not before:
        raise _refused(
            rule, new, ts, f"takes {new.name} and not {old.name}, so the rows that it has were never counted; let the "
            "matcher take both names or neither"
        )  # fmt: skip
    if before and not after:
        for key in _mine(tally, old.incarnation):
            del tally.series[key]


def _altered(tally: Tally, old: TableInfo, new: TableInfo, ts: int) -> None:
    rule = tally.rule
    if rule.kind != "gauge" or not rule.takes(new.name):
        return
    for name in sorted(rule.columns):
        one, other = old.column(name), new.column(name)
        if one is not None and other is not None and not _reads_same(one.type, other.type) and not old.inferred:
            raise _refused(
                rule, new, ts, f"counts rows by {name}, whose type changes: the rows that stand there are converted, "
                "and nobody says to what. Give the rule another name, or leave the table out of its matcher"
            )  # fmt: skip
    if old.partition == new.partition:
        return
    before, after = old.partition, new.partition
    grows = before is not None and after is not None and before.method == after.method and before.expr == after.expr
    bounded = grows and before is not None and before.method.upper().partition(" ")[0] in {"RANGE", "LIST"}
    if bounded and before is not None and after is not None and set(before.definitions) <= set(after.definitions):
        return
    for key in _mine(tally, old.incarnation):
        _move(tally, key, key._replace(partition=MIXED if after is not None else ""))


def _reads_same(one: ColumnType, other: ColumnType) -> bool:
    """Whether each stored value reads as before: what a strict server converts without loss within a family."""
    if one.code is MysqlType.ENUM and other.code is MysqlType.ENUM:
        return (other.elems or ())[: len(one.elems or ())] == (one.elems or ())
    if (one.charset == "binary") != (other.charset == "binary") and one.code in STRINGS:
        return False
    if one.code == other.code:
        return one.decimal == other.decimal and one.elems == other.elems
    return any(one.code in family and other.code in family for family in _SAME_TEXT)


def _without(tally: Tally, old: TableInfo, names: Sequence[str], ts: int) -> None:
    folded = {lowered(name) for name in names}
    for key in _mine(tally, old.incarnation):
        if key.partition == MIXED and any(tally.series[key]):
            raise _mixed(tally.rule, old, names, ts)
        if key.partition in folded:
            del tally.series[key]


def _exchanged(tally: Tally, effect: PartitionExchanged, ts: int) -> None:
    rule, partitioned, other = tally.rule, effect.partitioned, effect.other
    takes = rule.takes(partitioned.name), rule.takes(other.name)
    if rule.kind != "gauge" or not any(takes):
        return
    if not all(takes):
        raise _refused(
            rule, partitioned, ts, f"takes one of {partitioned.name} and {other.name}, which exchange rows; let the "
            "matcher take both or neither"
        )  # fmt: skip
    here, there = _mine(tally, partitioned.incarnation), _mine(tally, other.incarnation)
    if any(key.partition == MIXED and any(tally.series[key]) for key in (*here, *there)):
        raise _mixed(rule, partitioned, (effect.partition,), ts)
    folded = lowered(effect.partition)
    leaving = [(key, tally.series.pop(key)) for key in here if key.partition == folded]
    coming = [(key, tally.series.pop(key)) for key in there]
    for key, amounts in leaving:
        tally.series[key._replace(table=other.incarnation, partition="")] = amounts
    for key, amounts in coming:
        tally.series[key._replace(table=partitioned.incarnation, partition=folded)] = amounts


def _move(tally: Tally, key: SeriesKey, goal: SeriesKey) -> None:
    from tidegate.sink.metrics.tally import added

    if key == goal:
        return
    amounts, before = tally.series.pop(key), tally.series.get(goal)
    tally.series[goal] = amounts if before is None else added(before, amounts)


def _mixed(rule: MetricRule, table: TableInfo, names: Sequence[str], ts: int) -> SinkRefused:
    return _refused(
        rule,
        table,
        ts,
        f"cannot tell what it counted of partition {', '.join(names)}: partitions were made anew before. Give the rule "
        "another name, which begins anew, or leave the table out of its matcher",
    )


def _refused(rule: MetricRule, table: TableInfo, ts: int, what: str) -> SinkRefused:
    found = SinkRefused(f"the rule of {rule.metric}, a gauge, {what} (table {table.name}, ts {ts})")
    return found.at(table=str(table.name), commit_ts=ts)
