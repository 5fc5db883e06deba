"""A large table and few changes all over it: our merge against Spark's MERGE on the same files.

    rows ids 0, 1, …   one Delta table each, made from the same rows        changes: a Parquet file, some ids at random

Ours runs in a process of its own, whose peak of memory is told beside what it had before; Spark's runs in the session
of the rig, with deletion vectors: it rewrites no untouched row, at the price of every later reader.
"""

import resource
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from peer import PeerTables, digest, merge_statement
from rig import Rig, seconds

from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnInfo, ColumnType, IndexInfo, TableInfo, TableName
from tidegate.objectstore import deltalog
from tidegate.sink.delta.columns import LakeColumn, first_schema
from tidegate.sink.delta.files import write
from tidegate.sink.delta.merge import merge
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.rows import NetChanges

__all__ = ["big"]

PIECE: Final = 500_000
OPTIONS: Final = DeltaOptions(root="", feed="bench")
TABLE: Final = TableInfo(
    TableName("bench", "big"),
    "big-1",
    1,
    (
        ColumnInfo(1, "id", ColumnType(MysqlType.LONGLONG)),
        ColumnInfo(2, "k", ColumnType(MysqlType.LONG)),
        ColumnInfo(3, "c", ColumnType(MysqlType.STRING, flen=120)),
        ColumnInfo(4, "pad", ColumnType(MysqlType.STRING, flen=60)),
    ),
    (IndexInfo(1, "PRIMARY", ("id",), unique=True, primary=True),),
)
SCHEMA: Final = pa.schema([("id", pa.int64()), ("k", pa.int32()), ("c", pa.string()), ("pad", pa.string())])


def columns() -> tuple[LakeColumn, ...]:
    """How the table is stored."""
    return first_schema(TABLE, OPTIONS).columns


def rows_of(ids: "np.ndarray[Any, Any]", seed: int) -> pa.Table:
    """Rows with texts that do not compress to nothing."""
    chance = np.random.default_rng(seed)
    digits = chance.integers(48, 58, 180 * 8192, np.uint8).tobytes().decode()
    pool = pa.array([digits[start : start + 180] for start in range(0, len(digits), 180)])
    texts = pool.take(pa.array(chance.integers(0, len(pool), len(ids))))
    k = pa.array(chance.integers(0, 10_000_000, len(ids)), pa.int32())
    c, pad = (pc.utf8_slice_codeunits(texts, *ends) for ends in ((0, 120), (120, 180)))
    return pa.Table.from_arrays([pa.array(ids), k, c, pad], schema=SCHEMA)


def make(uri: str, rows: int) -> None:
    """Our table, written as merges write."""
    schema, stored = first_schema(TABLE, OPTIONS), columns()
    deltalog.create(uri, schema.fields(), metadata={}, configuration=schema.configuration(OPTIONS))
    pieces = (rows_of(np.arange(start, min(start + PIECE, rows)), start) for start in range(0, rows, PIECE))
    actions = [action for piece in pieces for action in write(uri, piece, stored, ["id"])]
    deltalog.commit(uri, 1, actions, operation="WRITE", metadata={})


def merged(uri: str, changes: str) -> dict[str, float]:
    """Merge a file of changed rows; seconds, and megabytes of this process before and at most."""
    pq.read_table(changes).slice(0, 1).sort_by("id")  # what is loaded at first use is no part of it
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def run() -> None:
        rows = pq.read_table(changes, schema=SCHEMA)
        snapshot = deltalog.load(uri)
        assert snapshot is not None
        actions = merge(uri, snapshot.files(), columns(), NetChanges(rows.select(["id"]), rows, rows.num_rows))
        deltalog.commit(uri, snapshot.version + 1, actions, operation="MERGE", metadata={})

    took = seconds(run)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"ours_s": took, "ours_mb_before": before, "ours_mb_peak": peak}


def big(bench: Rig, rows: int, changes: int) -> dict[str, float]:
    """Both merges on tables of `rows` rows; the tables are equal afterwards."""
    uri, changed = str(bench.directory("big")), str(bench.directory("changes"))
    make(uri, rows)
    touched = np.sort(np.random.default_rng(7).choice(rows, changes, replace=False))
    pq.write_table(rows_of(touched, 1), changed)
    peer = PeerTables(bench.spark, bench.directory("peer-big"), ["big"])
    bench.spark.read.format("delta").load(uri).write.format("delta").mode("append").save(f"{peer.home}/big")
    source = bench.spark.read.parquet(changed).selectExpr("'U' as op", "*")
    source.createOrReplaceTempView("changes_big")
    statement = merge_statement(peer.sql_name("big"), "changes_big", tuple(SCHEMA.names))
    peer_s = seconds(lambda: bench.spark.sql(statement))
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:
        figures = alone.submit(merged, uri, changed).result()
    tidegate = bench.spark.read.format("delta").load(uri)
    assert digest(tidegate, SCHEMA.names) == digest(peer.frame("big"), SCHEMA.names)
    return {"peer_over_ours": peer_s / figures["ours_s"], "rows": rows, "changes": changes, "peer_s": peer_s, **figures}
