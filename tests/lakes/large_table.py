"""A table of many rows, made and not landed, in a process of its own: MiB before and at most, and its rows.

python -m tests.lakes.large_table DIRECTORY FILES ROWS_A_FILE
"""

import resource
import sys

import numpy as np
import pyarrow as pa

from tests.sink.delta.lake import TEXT, column, options, table
from tidegate.lakes.read import RowFilter, stored_rows
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType
from tidegate.objectstore import deltalog
from tidegate.sink.delta.columns import first_schema
from tidegate.sink.delta.files import write
from tidegate.sink.delta.iceberg_projection import project
from tidegate.sink.delta.merge import merge
from tidegate.sink.delta.rows import NetChanges

TABLE = table(column(1, "id", ColumnType(MysqlType.LONGLONG)), column(2, "v", TEXT))


def rows_of(ids: "np.ndarray", word: str) -> pa.Table:
    return pa.table({"id": pa.array(ids), "v": pa.repeat(word, len(ids))})


def mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main(home: str, files: int, rows: int) -> None:
    """Make the table, then merge, project, count and look up."""
    lake = options(home)
    uri, schema = lake.table_uri("t-1"), first_schema(TABLE, lake)
    deltalog.create(uri, schema.fields(), metadata={}, configuration=schema.configuration(lake))
    pieces = (rows_of(np.arange(at * rows, (at + 1) * rows), "a") for at in range(files))
    actions = [action for piece in pieces for action in write(uri, piece, schema.columns, ["id"])]
    deltalog.commit(uri, 1, actions, operation="WRITE", metadata={})
    project(uri, 1, TABLE)
    before = mib()

    touched = np.unique(np.random.default_rng(3).integers(0, files * rows, 1_000))
    snapshot = deltalog.load(uri)
    assert snapshot is not None
    changed = rows_of(touched, "b")
    actions = merge(uri, snapshot.files(), schema.columns, NetChanges(changed.select(["id"]), changed, len(touched)))
    deltalog.commit(uri, 2, actions, operation="MERGE", metadata={})
    project(uri, 2, TABLE, 1)
    snapshot = deltalog.load(uri)
    assert snapshot is not None
    for place, word in ((int(touched[0]), "b"), (files * rows - 1, None)):
        wanted = RowFilter.of({"id": place}, schema.columns, TABLE)
        [row] = stored_rows(snapshot, row_filter=wanted).to_pylist()
        assert row["v"] == word or word is None
    sys.stdout.write(f"{before} {mib()} {sum(file.rows for file in snapshot.files())}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
