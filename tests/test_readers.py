"""The readers of people without Tidegate, and what they answer."""

import json
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.readers import ReaderFault, Readers

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"]})


def metadata(home: Path) -> Path:
    """The metadata file of an Iceberg table without rows."""
    fields = [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "name", "required": False, "type": "string"},
    ]
    told = {
        "format-version": 2,
        "table-uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, "tidegate")),
        "location": str(home),
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": 2,
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {},
    }
    path = home / "v1.metadata.json"
    path.write_text(json.dumps(told))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["polars-delta", "duckdb-delta"])
def test_delta(readers: Readers, tmp_path: Path, reader: str) -> None:
    """A reader of Delta tells the rows that were written."""
    write_deltalake(tmp_path, ROWS)

    assert readers.table(reader, tmp_path).to_pylist() == ROWS.to_pylist()


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["pyiceberg", "polars", "spark"])
def test_iceberg(readers: Readers, tmp_path: Path, reader: str) -> None:
    """A reader of Iceberg tells the columns of a table without rows."""
    found = readers.table(reader, metadata(tmp_path))

    assert (found.column_names, found.num_rows) == (["id", "name"], 0)


@pytest.mark.slow
def test_faults(readers: Readers, tmp_path: Path) -> None:
    """What a reader cannot read is told by its own words, and the next question is answered."""
    for _ in range(2):
        with pytest.raises(ReaderFault, match="FileNotFoundError"):
            readers.table("pyiceberg", tmp_path / "v1.metadata.json")
    with pytest.raises(ReaderFault, match="No version was provided"):
        readers.table("duckdb", tmp_path)
