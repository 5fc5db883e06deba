"""What the files of a storage sink say, repeats and all: the rows that index files name, and the DDLs of schema files.

The source of files (tidegate/source/storage) reads up to `metadata` and knows repeats again; this does neither, so that
tests see what a sink has written twice, or too early.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from tidegate.codec import DecodeOptions, decode
from tidegate.codec.csv import CsvDecoder, CsvOptions, records
from tidegate.codec.storage import FileNames, parse_schema_file, parse_schema_path
from tidegate.model.event import Ddl, Delete, Event, Insert, RowChange
from tidegate.sink.storage_bucket import Bucket
from tidegate.source.storage_listing import FileDefinitions, FileLayout, table_of_stream

CSV = CsvOptions(include_commit_ts=True, output_old_value=True)


def events_in(bucket: Bucket, paths: Sequence[str], extension: str) -> list[Event]:
    """Return the DDLs and rows of all tables in commit order, rows of a DDL's commit_ts before it; csv needs commit-ts
    and old values."""
    schemas = {path: parse_schema_file(body(bucket, path)) for path in paths if parse_schema_path(path)}
    told = FileDefinitions.of(schemas)
    found: list[RowChange | Ddl] = [*told.ddls]
    for path in data_files(bucket, paths, "", extension):
        place = table_of_stream(path.rpartition("/")[0], told.directories)
        layout = None if place is None else told.layout(*place)
        assert layout is not None, path
        found += rows_of(body(bucket, path), layout, extension)
    return sorted(found, key=lambda event: (event.commit_ts or 0, isinstance(event, Ddl)))


def body(bucket: Bucket, path: str) -> bytes:
    """The bytes of a file that is there."""
    found = bucket.read(path)
    assert found is not None, path
    return found.body


def data_files(bucket: Bucket, paths: Sequence[str], top: str, extension: str) -> Iterator[str]:
    """The files below a version that its index files name, from 1 on; every one of them is there."""
    names = FileNames(extension)
    for index in sorted(path for path in paths if path.startswith(top) and path.endswith("/meta/CDC.index")):
        for number in range(1, names.indexed(body(bucket, index)) + 1):
            path = f"{index.removesuffix('meta/CDC.index')}{names.data(number)}"
            assert path in paths, f"{index} names {path}, which is not there"
            yield path


def rows_of(text: bytes, layout: FileLayout, extension: str) -> Iterator[RowChange]:
    """The rows of one file."""
    if extension == ".json":
        reading = DecodeOptions(protocol="canal-json")
        for line in text.split(b"\r\n")[:-1]:
            yield from decode(None, line, reading)  # type: ignore[misc]
        return
    name, wire, fields = layout
    decoder = CsvDecoder(name.schema, name.table, wire, CSV)
    for row in map(decoder.row, records(text, CSV)):
        place: dict[str, Any] = {"schema": name.schema, "table": name.table, "fields": fields}
        place["commit_ts"] = row.commit_ts
        yield Delete(before=row.values, **place) if row.op == "D" else Insert(after=row.values, **place)
