"""Bounds of key columns in metadata hide no row: a reader that filters by a key finds it, whatever the key's type."""

from pathlib import Path

import pyarrow as pa
import pytest

from tests.readers import Readers
from tests.sink.delta.lake import INT, column, options, table
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.objectstore import deltalog
from tidegate.sink.delta.columns import first_schema
from tidegate.sink.delta.files import logical_schema, write
from tidegate.sink.delta.iceberg_projection import metadata_uri, project

KEYS = [
    (ColumnType(T.TINY), [-128, 0, 127], "{}"),
    (ColumnType(T.LONGLONG), [-(2**63), 0, 2**63 - 1], "{}"),
    (ColumnType(T.LONGLONG, unsigned=True), [0, 2**53 - 1, 2**53 + 1, 2**64 - 1], "{}"),
    (ColumnType(T.DECIMAL, flen=20, decimal=2), ["-12345678901234567.89", "0.00", "1.50", "99.00"], "{}"),
    (ColumnType(T.VARCHAR, flen=99), ["", "Z", "a", "é", "z" * 40], "'{}'"),
    (ColumnType(T.DATE), ["0001-01-01", "1969-12-31", "1970-01-01", "9999-12-31"], "'{}'"),
    (ColumnType(T.BLOB, charset="binary"), [b"\0", b"\xff" * 40], None),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "keys", "literal"), KEYS, ids=lambda one: getattr(one, "code", None) and one.code.name
)
def test_keys_are_found(
    tmp_path: Path, readers: Readers, kind: ColumnType, keys: list[object], literal: str | None
) -> None:
    """Each row is found by its key, in a table with a file for each."""
    lake, defined = options(tmp_path), table(column(1, "id", kind), column(2, "v", INT))
    uri, schema = lake.table_uri(defined.incarnation), first_schema(defined, lake)
    arrow = logical_schema(schema.columns)
    deltalog.create(uri, schema.fields(), metadata={}, configuration=schema.configuration(lake))
    actions = []
    for number, key in enumerate(keys):
        row = pa.table(
            {
                "id": pa.array([key if isinstance(key, bytes) else str(key)]).cast(arrow.field("id").type),
                "v": pa.array([number], pa.int32()),
            }
        )
        actions += write(uri, row, schema.columns, ["id"])
    deltalog.commit(uri, 1, actions, operation="WRITE", metadata={})
    project(uri, 1, defined)

    assert readers.table("pyiceberg", metadata_uri(uri, 1)).num_rows == len(keys)
    for number, key in enumerate(keys if literal else ()):
        found = readers.table("pyiceberg", metadata_uri(uri, 1), filter=f"id = {literal.format(key)}")
        assert found.column("v").to_pylist() == [number], key
