"""A table with keys of every kind and rows of it, for the tests of dispatch and splitting."""

from collections.abc import Sequence

from tidegate.codec import encode_options
from tidegate.codec.columnar import Batch
from tidegate.codec.wire_table import wire_table
from tidegate.engine.dispatch import Router, TablePlan, dispatch_rules
from tidegate.engine.mount import Mounted
from tidegate.model.event import Delete, Insert, Update, Value
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnInfo, ColumnType, IndexInfo, TableInfo, TableName
from tidegate.sink.kafka_dispatch import Dispatcher, Sent

INT = ColumnType(MysqlType.LONG, charset="binary")
TEXT = ColumnType(MysqlType.VARCHAR, 20)
NAME = TableName("Shop", "Item")
INFO = TableInfo(
    name=NAME,
    incarnation="i",
    version=1,
    columns=(
        ColumnInfo(1, "Id", INT, nullable=False),
        ColumnInfo(2, "code", TEXT),
        ColumnInfo(3, "Day", TEXT),
        ColumnInfo(4, "price", ColumnType(MysqlType.DOUBLE, charset="binary")),
        ColumnInfo(5, "twice", INT, generated="`Id` * 2"),
    ),
    indexes=(
        IndexInfo(1, "PRIMARY", ("Id",), primary=True, unique=True),
        IndexInfo(2, "By_Code", ("code",), unique=True),
        IndexInfo(3, "by_day", ("Day",)),
        IndexInfo(4, "odd", ("code", "twice"), unique=True),
    ),
)
FIELDS = wire_table(INFO).fields
TS = 470606743881121792
ROW = (11, "x", "mon", 1e21)


def router(*entries: dict[str, object], protocol: str = "open-protocol", **settings: str) -> Router:
    """The router of these entries; settings with _ for -."""
    options = encode_options({key.replace("_", "-"): value for key, value in settings.items()}, protocol)
    return Router.of(dispatch_rules(list(entries)), "events", options)


def plan(settings: dict[str, str] | None = None, **entry: object) -> TablePlan:
    """The plan of the table under one rule for everything."""
    return router({"matcher": ["*.*"], **entry}, **(settings or {})).plan(NAME, FIELDS, INFO)


def insert(*values: Value) -> Insert:
    """A new row."""
    return Insert(schema="Shop", table="Item", fields=FIELDS, after=values or ROW, commit_ts=TS)


def delete(*values: Value) -> Delete:
    """A row that is gone."""
    return Delete(schema="Shop", table="Item", fields=FIELDS, before=values or ROW, commit_ts=TS)


def update(before: tuple[Value, ...], after: tuple[Value, ...]) -> Update:
    """A changed row."""
    return Update(schema="Shop", table="Item", fields=FIELDS, before=before, after=after, commit_ts=TS, row_id=7)


def dispatched(dispatcher: Dispatcher, rows: Sequence[Mounted]) -> list[Sent]:
    """What a task sends of a transaction, whose rows go table by table."""
    tables: dict[int, list[Mounted]] = {}
    for row in rows:
        tables.setdefault(row.table.physical_id, []).append(row)
    batches = [
        Batch(row.schema, row.table, row.fields, row.pk_names, *[None] * 7, definition=found[0].table.info)
        for found in tables.values()
        if (row := found[0].row)
    ]
    plans = [dispatcher.plan(batch) for batch in batches]
    return dispatcher.transaction(
        [(plan, [each.row for each in found]) for plan, found in zip(plans, tables.values(), strict=True)]
    )
