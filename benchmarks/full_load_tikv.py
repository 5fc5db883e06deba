"""A full load into a lake from pages of TiKV beside the same rows over SQL: rows a second.

    python benchmarks/full_load_tikv.py [--rows 1000000] [--only narrow] [--json]

    a peer, prepared pages  ──  TikvReader.plan, KvScan, columns, files, commits  ──►  lake     ours
    MariaDB, one table      ──  SqlReader.plan, SELECTs, columns, files, commits  ──►  lake     sql

Tables and rows are those of full_load.py.  The peer is a process that serves PD and one store over gRPC: it has each
row as TiKV sends it, and joins those of a page.  Both loads run with one Spark, in turns, warm, the best of three.

    ratio     seconds over SQL ÷ seconds from TiKV, without the plans; at least 1.5 is the bar
    by CPU    the same of the seconds of CPU of all processes, the servers among them
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
from full_load import CASES, options_of, table
from full_load_lake import compared, run
from rig import arguments
from tests.tikv.reporting import ReportingPeer

from tidegate.engine.load import LoadingSource, NoStream
from tidegate.engine.load_plan import KeptPlan, LoadPlan, LoadReader
from tidegate.kv.keys import IntHandle, record_key, table_span
from tidegate.kv.rows import encode_raw_row
from tidegate.mysql.column_value import write_value
from tidegate.mysql.encoding import decode_int
from tidegate.mysql.packed_time import Time
from tidegate.schema.stored.definition import StoredTable, table_layout
from tidegate.schema.stored.history import DefinitionHistory
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink
from tidegate.source.load_sql import SqlReader
from tidegate.source.tidb_segment import SCHEMA
from tidegate.source.tikv_load import TikvReader
from tidegate.source.tikv_options import TikvLoadOptions
from tidegate.spark.tasks import SparkTasks
from tidegate.testing.script import run_here
from tidegate.tikv import rpc
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.session import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
TYPES = ("BIGINT", "VARCHAR(60)", "DECIMAL(12, 2)", "DATETIME")


class Prepared(ReportingPeer):
    """A cluster with one table, whose rows are sent as they were prepared; the first has handle 1."""

    def report(self, path: str) -> dict[str, Any]:
        regions = super().report(path)
        for region in regions["regions"]:
            region["approximate_keys"] = len(self.ends) - 1
        return dict(regions)

    def prepare(self, case: str, rows: int) -> None:
        """Make the table of a case and its rows."""
        columns = [f"c{number} {TYPES[number % len(TYPES)]}" for number in range(len(TYPES) * CASES[case])]
        columns[0] = "id BIGINT NOT NULL PRIMARY KEY"
        own = Session(self.cluster.nodes["n1"])
        own.execute(f"CREATE DATABASE `load`; CREATE TABLE `load`.t ({', '.join(columns)})")
        ts = self.log.oracle.next()
        snapshot = DefinitionHistory(ts, self.log.store.scan(*SCHEMA, ts)).snapshot(ts)
        (stored,) = (each.stored for each in snapshot.tables.values() if each.schema == "load")
        pairs = list(_pairs(stored, rows))
        self.pairs, self.ends = b"".join(pairs), np.cumsum([0, *map(len, pairs)]).tolist()
        self.span = table_span(stored.id)

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.storage, turn_s=10)
        self.cluster = cluster

    def _handlers(self, number: int) -> Any:
        handlers = super()._handlers(number)
        path = rpc.KV_SCAN.path
        if path in handlers:
            handlers[path] = grpc.unary_unary_rpc_method_handler(partial(self._scan, handlers[path]))
        return handlers

    async def _scan(self, plain: Any, raw: bytes, call: Any) -> bytes:
        request = kvrpcpb.ScanRequest.FromString(raw)
        if not self.span[0] <= request.start_key <= self.span[1]:
            answer: bytes = (await plain.unary_unary(request, call)).SerializeToString()
            return answer
        if request.reverse:
            return self.pairs[self.ends[-2] :]
        first, stop = self._position(request.start_key), self._position(request.end_key)
        return self.pairs[self.ends[first] : self.ends[min(first + request.limit, stop)]]

    def _position(self, key: bytes) -> int:
        if key >= self.span[1]:
            return len(self.ends) - 1
        return decode_int(key, 11)[0] - 1 + (len(key) > 19) if len(key) >= 19 else 0


def _pairs(stored: StoredTable, rows: int) -> Iterator[bytes]:
    """The rows of full_load.py as a store sends them."""
    columns = [(column.id, column.type) for column in table_layout(stored).by_id.values()]
    texts = [b"customer number %d" % number for number in range(100_000)]
    for seq in range(1, rows + 1):
        at = BEGIN + timedelta(seconds=seq)
        own = (
            write_value(columns[0][1], seq * 7919),
            texts[seq % 100_000],
            write_value(columns[2][1], Decimal(seq) / 100),
            write_value(columns[3][1], Time(at.year, at.month, at.day, at.hour, at.minute, at.second)),
        )
        value = encode_raw_row({column: own[number % 4] for number, (column, _) in enumerate(columns) if number})
        key = record_key(stored.id, IntHandle(seq))
        pair = b"\x12" + _sized(key) + b"\x1a" + _sized(value)
        yield b"\x12" + _sized(pair)


def _sized(data: bytes) -> bytes:
    """Bytes as protobuf writes them, behind their size."""
    size = len(data)
    return (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + data


def serve(case: str, rows: int) -> None:
    """Serve the table of a case until the input ends; print PD's address."""
    peer = Prepared(Cluster.open())
    peer.prepare(case, rows)
    with peer.in_thread():
        print(peer.pd, flush=True)
        sys.stdin.read()


@contextmanager
def served(case: str, rows: int) -> Iterator[str]:
    """PD of a process that serves a table."""
    command = [sys.executable, __file__, "--serve", case, "--rows", str(rows)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process.stdout.readline().strip()


def load(spark: "SparkSession", reader: LoadReader, plan: LoadPlan, home: Path) -> None:
    """A feed that ends with the load."""
    kept = KeptPlan(str(home))
    kept.write(plan)
    source = LoadingSource(reader, kept, lambda *_: True, NoStream(), ordered=True, keyless=True)
    run_here(source, DeltaSink(DeltaOptions(root=str(home), feed="load")), tasks=SparkTasks(spark))


def measured(spark: "SparkSession", case: str, rows: int) -> dict[str, Any]:
    """Rates of one case, in rows a second, and their ratio."""
    with table(case, rows) as port, served(case, rows) as pd:
        readers = TikvReader(TikvLoadOptions(pd=pd)), SqlReader(options_of(port))
        plans = [reader.plan(lambda name: name.schema == "load") for reader in readers]
        ours, sql = (partial(load, spark, reader, plan) for reader, plan in zip(readers, plans, strict=True))
        return {**compared(ours, sql, rows), "chunks": [len(plan.chunks) for plan in plans]}


def main() -> None:
    """Measure the cases."""
    parser = arguments(__doc__, 1_000_000)
    parser.add_argument("--serve", choices=CASES, help="serve the rows of a case")
    options, _ = parser.parse_known_args()
    if options.serve:
        serve(options.serve, options.rows)
    else:
        run(parser, measured, "over SQL")


if __name__ == "__main__":
    main()
