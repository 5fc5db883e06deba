"""Schema files as definitions: types are read back from what the sink tells of them."""

import pytest

from tidegate.codec.storage import SchemaFile, mysql_type, parse_schema_file, schema_file_columns, table_of_file
from tidegate.model.errors import DecodeError
from tidegate.model.event import Ddl
from tidegate.model.table import TableName
from tidegate.schema.columns import parse_type
from tidegate.schema.state import SchemaState, apply_ddl

TYPES = (
    *("tinyint", "smallint unsigned", "mediumint", "int unsigned", "bigint unsigned", "bit(9)", "year"),
    *("float", "double", "double(8,3)", "decimal(12,4)", "decimal(20,0)", "date", "time", "time(6)", "datetime(3)"),
    *("timestamp", "char(7)", "varchar(50)", "binary(4)", "varbinary(9)", "tinytext", "text", "longblob", "json"),
    *("enum('a','b''c','d\\\\e')", "set('x','y')"),
)


def test_types() -> None:
    """A schema file of a table of all types gives their SQL back, and the primary key."""
    columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(TYPES))
    query = f"CREATE TABLE s.t (id INT, k VARCHAR(5), {columns}, PRIMARY KEY (k, id))"
    state, _ = apply_ddl(SchemaState(), Ddl(schema="s", table="t", query=query, commit_ts=7), 1)
    info = state.table(TableName("s", "t"))
    assert info is not None
    file = parse_schema_file(SchemaFile("s", "t", 7, schema_file_columns(info), query, 3).render())
    found = table_of_file(file)

    assert [mysql_type(column.type) for column in found.columns[2:]] == list(TYPES)
    assert [parse_type(mysql_type(column.type)) for column in found.columns[2:]] == [parse_type(kind) for kind in TYPES]
    assert found.handle_key == ("id", "k")
    assert [column.nullable for column in found.columns[:3]] == [False, False, True]
    assert (file.query, file.action, file.version) == (query, 3, 7)


def test_a_file_of_a_database() -> None:
    """It has no columns."""
    file = SchemaFile("s", "", 5, None, "CREATE DATABASE s", 1)
    assert parse_schema_file(file.render()) == file


@pytest.mark.parametrize("body", [b"", b"[]", b'{"Schema": "s"}', b"\xff", b'{"TableColumns": 5}'])
def test_no_schema_file(body: bytes) -> None:
    """Other bytes are a DecodeError."""
    with pytest.raises(DecodeError, match="no schema file"):
        parse_schema_file(body)
