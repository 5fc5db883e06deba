"""The columns of a table that a rule names: where they stand in its rows, and what they are."""

from typing import Final

from tidegate.codec.columnar import Batch
from tidegate.model.errors import SinkRefused
from tidegate.model.mysql import MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType, TableInfo
from tidegate.schema.infer import infer_table
from tidegate.sink.metrics.row_text import EVENT_COLUMNS, ROW, Named
from tidegate.sink.metrics.rule import MetricRule, nearest_column

_NAMES: Final = frozenset({MysqlType.ENUM, MysqlType.SET})


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


def columns_of(
    rule: MetricRule, table: TableInfo, batch: Batch, ts: int
) -> tuple[dict[str, int], dict[Named, ColumnType]]:
    """Return the places of the columns that a rule names, and their types. SinkRefused for one that is not there, or
    whose values the messages do not tell."""
    at = {lowered(one.name): place for place, one in enumerate(batch.fields)}
    named = {lowered(column.name): column for column in table.columns}
    places: dict[str, int] = {}
    types: dict[Named, ColumnType] = {("event", name): kind for name, kind in EVENT_COLUMNS.items()}
    names = [(image, name) for text in rule.texts for image, name in text.columns if image != "event"]
    if rule.kind == "gauge" and table.partition is not None:
        names += [(ROW, name) for name in partition_columns(table)]
    for image, name in names:
        place = at.get(lowered(name))
        if place is None:
            raise missing(rule, table, name, ts)
        column = named.get(lowered(name))
        if column is None or column.type.code != batch.fields[place].type:
            column = infer_table(table.name, (batch.fields[place],), None, 0).columns[0]
        kind = column.type
        if kind.code in _NAMES and kind.elems is None:
            raise SinkRefused(
                f"the rule of {rule.metric} names {name} of {table.name}, which is {kind.code.name}, and the messages "
                "do not tell its members; read the topic from a CREATE TABLE on, or have it written as canal-json "
                "with content-compatible=true"
            ).at(table=str(table.name), commit_ts=ts)
        places[name] = place
        types[image, name] = kind
    return places, types


def missing(rule: MetricRule, table: TableInfo, name: str, ts: int) -> SinkRefused:
    """Return the error of a column that a rule names and a table has not, or not any more."""
    known = [column.name for column in table.columns if not column.virtual]
    found = SinkRefused(
        f"the rule of {rule.metric} names column {name}, which {table.name} does not have at commit_ts "
        f"{ts}{nearest_column(name, known)}. Change the rule, or leave the table out of its matcher"
    )
    return found.at(table=str(table.name), commit_ts=ts)
