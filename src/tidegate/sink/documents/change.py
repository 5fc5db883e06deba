"""What a DDL makes of a stored row: pure functions of rows.

ALTER                altered       a column that is new has its default, one of another type is converted
partitions           inside        whether a row lies in one of them
EXCHANGE PARTITION   as_columns    rows under the other table's names
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tidegate.expr.change import Rule, converter
from tidegate.model.errors import SinkRefused
from tidegate.model.event import UNTOLD, ToldSession, Value
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, ColumnType, TableInfo
from tidegate.mysql.conversion import nearest_single, shortest_single
from tidegate.schema.literal import stored_value
from tidegate.schema.partition import partition_of
from tidegate.sink.documents.values import Row

Change: TypeAlias = Callable[[Row], Row]


def altered(
    old: TableInfo, new: TableInfo, zone: str, commit_ts: int, session: ToldSession = UNTOLD, *, keeps_null: bool
) -> Change | None:
    """Return what makes rows of `new` of rows of `old`, whose TIMESTAMPs are in `zone`, as a DDL of that session does;
    None where they look alike."""
    by_id = {column.id: column for column in old.columns if not column.virtual}
    makers: dict[str, Callable[[Row], Value]] = {}
    same = old.handle_key == new.handle_key
    for column in new.columns:
        if column.virtual:
            continue
        was = by_id.pop(column.id, None)
        if was is None:
            value = stored_value(column, time_zone=zone, commit_ts=commit_ts, session=session)
            same = same and value is None and not keeps_null
            makers[column.name] = _constant(value)
            continue
        made = converter(was.type, column.type, time_zone=zone, commit_ts=commit_ts, session=session.zone)
        rule = _shown(was.type, column.type, made)
        same = same and rule is None and was.name == column.name
        makers[column.name] = _taken(was, rule)
    if same and not by_id:
        return None
    return lambda row: {name: make(row) for name, make in makers.items()}


def _constant(value: Value) -> Callable[[Row], Value]:
    return lambda _: value


def _shown(old: ColumnType, new: ColumnType, rule: Rule | None) -> Rule | None:
    """The rule for values of documents, which show a FLOAT by the shortest digits of its 32 bits."""
    if T.FLOAT not in (old.code, new.code) or (rule is None and old.code is new.code):
        return rule

    def change(value: Value) -> Value:
        meant = nearest_single(value) if old.code is T.FLOAT and isinstance(value, float) else value
        found = meant if rule is None else rule(meant)
        return float(shortest_single(found)) if new.code is T.FLOAT and isinstance(found, float) else found

    return change


def _taken(column: ColumnInfo, rule: Callable[[Value], Value] | None) -> Callable[[Row], Value]:
    name = column.name
    return (lambda row: row[name]) if rule is None else (lambda row: rule(row[name]))


def inside(table: TableInfo, names: Sequence[str], zone: str) -> Callable[[Row], bool]:
    """Return what tells whether a row lies in one of the partitions."""
    if table.partition is None:
        raise SinkRefused(f"table {table.name} is not partitioned in the definition of ts {table.version}")
    locate = partition_of(table.partition, table.columns, time_zone=zone, primary_key=table.handle_key)
    wanted = {lowered(name) for name in names}
    return lambda row: lowered(locate(row) or "") in wanted


def as_columns(old: TableInfo, new: TableInfo) -> Change:
    """Return rows under the other table's names: an exchange demands equal columns, in any case."""
    pairs = [(column.name, same.name) for column in new.columns if (same := old.column(column.name)) is not None]
    return lambda row: {name: row[same] for name, same in pairs}
