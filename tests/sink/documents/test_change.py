"""What a DDL does to rows that documents hold."""

import pytest

from tests.recorded_changes import recorded_changes
from tidegate.expr.change import converter
from tidegate.model.errors import SchemaError
from tidegate.model.event import Value
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnInfo, ColumnType, IndexInfo, TableInfo, TableName
from tidegate.mysql.conversion import shortest_single
from tidegate.sink.documents import altered, fields_of, json_objects, row_of_json

FLOAT, DOUBLE = ColumnType(T.FLOAT, charset="binary"), ColumnType(T.DOUBLE, charset="binary")


def table(kind: ColumnType) -> TableInfo:
    """A table with a key and a column of a type."""
    key = ColumnInfo(1, "id", ColumnType(T.LONG, charset="binary"), nullable=False)
    columns = (key, ColumnInfo(2, "c", kind))
    return TableInfo(TableName("d", "t"), "1", 1, columns, (IndexInfo(1, "PRIMARY", ("id",), primary=True),))


def document(kind: ColumnType, value: Value) -> bytes:
    """A row as a document, from a value as an event has it."""
    shown = float(shortest_single(value)) if kind.code is T.FLOAT and isinstance(value, float) else value
    return written(kind, shown)


def written(kind: ColumnType, value: Value) -> bytes:
    """A row as a document, from the value of a row that a sink has."""
    return json_objects(["id", "c"], fields_of(table(kind)), [[1], [value]])[0]


def changed(old: ColumnType, new: ColumnType, held: bytes) -> bytes:
    """A document after the column has changed its type."""
    before, after = table(old), table(new)
    change = altered(before, after, "UTC", 0, keeps_null=True)
    if change is None:
        return held
    return written(new, change(row_of_json(before, held))["c"])


@pytest.mark.parametrize(
    ("old", "new", "before", "after"),
    [
        (FLOAT, DOUBLE, b"1.1", b"1.100000023841858"),
        (FLOAT, ColumnType(T.DECIMAL, 20, 15, charset="binary"), b"1.1", b'"1.100000023841858"'),
        (FLOAT, ColumnType(T.VARCHAR, 20), b"1.1", b'"1.1"'),
        (DOUBLE, FLOAT, b"1.100000023841858", b"1.1"),
        (ColumnType(T.VARCHAR, 20), FLOAT, b'"16777217"', b"16777216.0"),
    ],
    ids=str,
)
def test_a_float_is_a_number_of_32_bits(old: ColumnType, new: ColumnType, before: bytes, after: bytes) -> None:
    """A document shows a FLOAT by its shortest digits; what it becomes follows from the number that they mean."""
    assert changed(old, new, b'{"id":1,"c":%s}' % before) == b'{"id":1,"c":%s}' % after


@pytest.mark.slow
def test_every_change_is_that_of_the_converter() -> None:
    """A document changes as the values of a lake and of a database do, whatever the types."""
    count = 0
    for old_sql, new_sql, old, new, zone, pairs in recorded_changes():
        if zone != "+00:00":
            continue
        rule = converter(old, new)
        for value, _ in pairs:
            if (old.code, value) == (T.JSON, "null"):
                continue  # a document has one null
            try:
                due = value if rule is None else rule(value)
            except SchemaError:
                continue
            found = changed(old, new, document(old, value))
            assert found == document(new, due), (old_sql, new_sql, value)
            count += 1
    assert count > 5_000
