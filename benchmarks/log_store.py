"""Segments of a change log in S3 against segments on the local disk.

    python benchmarks/log_store.py [--rows 400000] [--segment 50000] [--delay 20] [--moto] [--json]

    rows of a change log ──► SegmentWriter ──► a directory                           disk
                                           ──► proxy, which waits ──► server          store
    segments             ──► windows of all rows, as a task of a changefeed reads them

Disk and store take turns, and the best of three counts.  The server is one in memory (memory_store.py), with --moto
that of the tests; it shares the cores.  ratio = rows/s of the store ÷ those of the disk.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from backlog import write_backlog
from object_store import BUCKET, running_store
from rig import arguments

from tidegate.kv.change_columns import SCHEMA as COLUMNS
from tidegate.objectstore.store_path import Location, location
from tidegate.source.tidb_segment import ROWS, SegmentWriter, read_windows, segments

TURNS = 3


def batches(rows: int, size: int) -> list[tuple[int, Any]]:
    """The rows of a backlog as record batches of about `size` rows, each with its last ts."""
    with tempfile.TemporaryDirectory() as home:
        log = Path(home, "log")
        made = write_backlog(log, "sysbench", rows)
        low = segments(log)[0][0]
        windows = [table for window in read_windows(log, low, made.high, (ROWS,)) for table in window]
    every = pa.Table.from_batches(windows, COLUMNS).sort_by("commit_ts").combine_chunks().to_batches()[0]
    times, cut, start = every.column("commit_ts").to_pylist(), [], 0
    while start < len(times):
        end = min(start + size, len(times))
        while end < len(times) and times[end] == times[end - 1]:
            end += 1
        cut.append((times[end - 1], every.slice(start, end - start)))
        start = end
    return cut


def measured(where: Location, rows: list[tuple[int, Any]]) -> tuple[float, float]:
    """Seconds to write the rows, and to read them."""
    writer, begun_s = SegmentWriter(where, 1, "bench"), time.perf_counter()
    for high, batch in rows:
        writer.write_columns(batch, high)
    written_s = time.perf_counter()
    count = sum(len(table) for window in read_windows(where, 1, writer.low, (ROWS,)) for table in window)
    assert count == sum(len(batch) for _, batch in rows)
    return written_s - begun_s, time.perf_counter() - written_s


def main() -> None:
    """Measure, and print rates and ratios."""
    parser = arguments(__doc__, 400_000)
    parser.add_argument("--segment", type=int, default=50_000, help="rows of a segment")
    parser.add_argument("--delay", type=float, default=20.0, help="ms that the store takes for a request")
    parser.add_argument("--moto", action="store_true", help="the S3 server of the tests")
    options = parser.parse_args()
    rows = batches(options.rows, options.segment)
    best: dict[str, tuple[float, float]] = {}
    with running_store(options.delay, moto=options.moto), tempfile.TemporaryDirectory() as home:
        for turn in range(TURNS):
            for name, uri in (("disk", f"{home}/{turn}"), ("store", f"s3://{BUCKET}/{turn}")):
                took = measured(location(uri), rows)
                best[name] = tuple(map(min, best.get(name, took), took))  # type: ignore[assignment]
    count = sum(len(batch) for _, batch in rows)
    told = {
        deed: {name: round(count / best[name][at]) for name in best}
        | {"ratio": round(best["disk"][at] / best["store"][at], 2)}
        for at, deed in enumerate(("write", "read"))
    }
    if options.json:
        json.dump({"rows": count, "segments": len(rows), "delay_ms": options.delay, **told}, sys.stdout)
        return
    print(f"{count:,} rows in {len(rows)} segments, {options.delay:.0f} ms a request")
    for deed, rates in told.items():
        print(
            f"{deed:>6}: {rates['disk']:>10,} rows/s disk {rates['store']:>10,} rows/s store   ratio {rates['ratio']}"
        )


if __name__ == "__main__":
    main()
