"""Schema files: their bytes, and the checksum in their names."""

from typing import Any

import pytest

from tidegate.codec.storage import SchemaFile, schema_file_columns
from tidegate.model.event import Ddl
from tidegate.model.table import TableInfo, TableName
from tidegate.schema.state import SchemaState, apply_ddl

TS = 451000000000000001
ORDERS = (
    "create table shop.orders (id bigint unsigned primary key, Amt decimal(10,2) not null default '0.00', "
    "st enum('a','b<c'), `at` timestamp(3))"
)


def table_of(query: str, name: str = "orders") -> TableInfo:
    """The table that a statement creates."""
    state, _ = apply_ddl(SchemaState(), Ddl(schema="shop", table=name, query=query, commit_ts=TS), 1)
    found = state.table(TableName("shop", name))
    assert found is not None
    return found


def test_the_checksum_of_a_published_table() -> None:
    """Two columns of the emitter's own test have its checksum."""
    columns: Any = (
        {"ColumnName": "col1", "ColumnType": "INT", "ColumnPrecision": "11"},
        {"ColumnName": "col2", "ColumnType": "VARCHAR", "ColumnPrecision": "5"},
    )
    assert SchemaFile("test", "table1", 1, columns).checksum == 4192708364


@pytest.mark.parametrize(
    ("elems", "path"),
    [
        (True, "shop/orders/meta/schema_451000000000000001_3502738059.json"),
        (False, "shop/orders/meta/schema_451000000000000001_3216046938.json"),
    ],
)
def test_paths_of_a_table(elems: bool, path: str) -> None:  # noqa: FBT001
    """The names of an ENUM are part of the checksum in the new architecture alone."""
    assert SchemaFile("shop", "orders", TS, schema_file_columns(table_of(ORDERS), elems=elems)).path == path


def test_a_database() -> None:
    """A database has no columns, and a checksum of its own."""
    file = SchemaFile("test", "", TS, None, "CREATE DATABASE `test`", 1)
    assert file.path == f"test/meta/schema_{TS}_3668434463.json"
    assert b'"TableColumns": null,\n    "TableColumnsTotal": 0\n}' in file.render()


def test_bytes() -> None:
    """A file is Go's JSON, four blanks deep, keys in their order, with its three escapes."""
    query = "create table shop.orders (id int primary key, e enum('b<c'))"
    file = SchemaFile("shop", "orders", 7, schema_file_columns(table_of(query), ids=True), "a & b", 3)
    assert file.render().decode() == (
        '{\n    "Table": "orders",\n    "Schema": "shop",\n    "Version": 1,\n    "TableVersion": 7,\n'
        '    "Query": "a \\u0026 b",\n    "Type": 3,\n    "TableColumns": [\n'
        '        {\n            "ColumnId": "1",\n            "ColumnName": "id",\n            "ColumnType": "INT",\n'
        '            "ColumnPrecision": "11",\n            "ColumnNullable": "false",\n'
        '            "ColumnIsPk": "true"\n        },\n'
        '        {\n            "ColumnId": "2",\n            "ColumnName": "e",\n            "ColumnType": "ENUM",\n'
        '            "ColumnElems": [\n                "b\\u003cc"\n            ]\n        }\n'
        '    ],\n    "TableColumnsTotal": 2\n}'
    )


@pytest.mark.parametrize(
    ("sql", "kind", "precision", "scale"),
    [
        ("tinyint", "TINYINT", "4", None),
        ("smallint unsigned", "SMALLINT UNSIGNED", "5", None),
        ("mediumint", "MEDIUMINT", "9", None),
        ("int unsigned", "INT UNSIGNED", "10", None),
        ("bigint", "BIGINT", "20", None),
        ("bit(7)", "BIT", "7", None),
        ("year", "YEAR", "4", None),
        ("float", "FLOAT", "12", None),
        ("double", "DOUBLE", "22", None),
        ("double(9,3)", "DOUBLE", "9", "3"),
        ("decimal(8)", "DECIMAL", "8", "0"),
        ("char(3)", "CHAR", "3", None),
        ("varchar(50)", "VARCHAR", "50", None),
        ("binary(3)", "BINARY", "3", None),
        ("varbinary(50)", "VARBINARY", "50", None),
        ("tinytext", "TINYTEXT", "255", None),
        ("text", "TEXT", "65535", None),
        ("mediumblob", "MEDIUMBLOB", "16777215", None),
        ("longblob", "LONGBLOB", "4294967295", None),
        ("date", "DATE", None, None),
        ("time(3)", "TIME", None, "3"),
        ("datetime", "DATETIME", None, None),
        ("timestamp(6) null", "TIMESTAMP", None, "6"),
        ("json", "JSON", None, None),
        ("set('a')", "SET", None, None),
    ],
)
def test_types(sql: str, kind: str, precision: str | None, scale: str | None) -> None:
    """Each type has the word, the length and the digits that the format says."""
    (column,) = schema_file_columns(table_of(f"create table shop.t (c {sql})", "t"))
    told = {"ColumnName": "c", "ColumnType": kind, "ColumnPrecision": precision, "ColumnScale": scale}
    found = {name: value for name, value in column.items() if name != "ColumnElems"}
    assert found == {name: value for name, value in told.items() if value is not None}
