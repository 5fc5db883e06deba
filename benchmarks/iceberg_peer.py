"""PyIceberg's own way through what iceberg.py measures; runs in build/readers and prints seconds.

overwrite HOME FILES             replace one file of a table with so many, by a transaction's `overwrite`: the median
upsert HOME METADATA CHANGES     `upsert` of a Parquet file of changes into a copy of the table of a metadata file
"""

import random
import statistics
import struct
import sys
import time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

COMMITS: Final = 10


def catalog(home: str) -> SqlCatalog:
    """A new catalog below `home`."""
    Path(home).mkdir(parents=True, exist_ok=True)
    result = SqlCatalog("peer", uri=f"sqlite:///{home}/peer.db", warehouse=f"file://{home}/peer")
    result.create_namespace("bench")
    return result


def file(location: str, low: int) -> Any:
    """A data file that need not exist, with bounds of the key."""
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{location}/part-{low}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1000,
        file_size_in_bytes=100_000,
        column_sizes={},
        value_counts={1: 1000},
        null_value_counts={1: 0},
        nan_value_counts={},
        lower_bounds={1: struct.pack("<q", low * 1000)},
        upper_bounds={1: struct.pack("<q", low * 1000 + 999)},
        split_offsets=None,
        key_metadata=None,
        equality_ids=None,
        sort_order_id=None,
        spec_id=0,
    )
    data_file.spec_id = 0
    return data_file


def overwrite(home: str, files: str) -> float:
    """Median seconds of a commit."""
    schema = Schema(NestedField(1, "id", LongType()))
    table = catalog(home).create_table("bench.big", schema)
    data_files = [file(table.location(), number) for number in range(int(files))]
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
        for data_file in data_files:
            snapshot.append_data_file(data_file)
    chance, took_s = random.Random(1), []
    for number in range(COMMITS):
        old = data_files.pop(chance.randrange(len(data_files)))
        data_files.append(file(table.location(), 1_000_000 + number))
        begun_s = time.perf_counter()
        with table.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
            snapshot.append_data_file(data_files[-1])
            snapshot.delete_data_file(old)
        took_s.append(time.perf_counter() - begun_s)
    return statistics.median(took_s)


def upsert(home: str, metadata: str, changes: str) -> float:
    """Seconds of the upsert; the rows are right afterwards."""
    rows = StaticTable.from_metadata(metadata).scan().to_arrow()
    table = catalog(home).create_table("bench.big", rows.schema)
    table.append(rows)
    changed = pq.read_table(changes)
    begun_s = time.perf_counter()
    table.upsert(changed, join_cols=["id"])
    took_s = time.perf_counter() - begun_s
    now = table.scan().to_arrow().sort_by("id")
    assert now.num_rows == rows.num_rows
    assert pa.compute.sum(now.column("k")).as_py() != pa.compute.sum(rows.column("k")).as_py()
    return took_s


if __name__ == "__main__":
    print(overwrite(*sys.argv[2:]) if sys.argv[1] == "overwrite" else upsert(*sys.argv[2:]))
