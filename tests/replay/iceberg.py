"""A lake's published versions as readers of Iceberg see them, beside what it says itself."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from tests.readers import Readers
from tidegate.lakes.lake import Lake
from tidegate.sink.delta.iceberg_projection import metadata_uri


def versions(root: Path) -> Iterator[tuple[Lake, str]]:
    """Each kept snapshot with each of its tables, a version of a table once."""
    seen = set()
    for one in Lake(str(root)).history():
        lake = Lake(str(root), one.checkpoint_ts)
        for name in lake.tables():
            if lake.location(name) not in seen:
                seen.add(lake.location(name))
                yield lake, name


def rows_of(table: pa.Table) -> list[str]:
    """The rows in some order that does not depend on the files."""
    return sorted(map(repr, table.to_pylist()))


def shown(table: pa.Table) -> pa.Table:
    """The rows as texts, which engines with other sizes of integers, texts and zones share."""
    return pa.table(
        {
            name: [None if one is None else text_of(one) for one in table.column(name).to_pylist()]
            for name in table.column_names
        }
    )


def text_of(value: object) -> str:
    """A value as a text, moments in UTC."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    return repr(value)


def different(root: Path, readers: Readers, reader: str = "pyiceberg") -> list[str]:
    """The published versions that a reader of Iceberg sees otherwise than the lake."""
    found = []
    for lake, name in versions(root):
        seen, told = readers.table(reader, metadata_uri(*lake.location(name))), lake.arrow(name)
        if seen.column_names != told.column_names or rows_of(seen) != rows_of(told):
            found.append(f"{name} at {lake.checkpoint_ts}: {seen.num_rows} rows, not {told.num_rows}")
    return found
