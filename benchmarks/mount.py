"""Mounting on one core: a change log in segments to batches of columns, rows as people have them.

    python benchmarks/mount.py [--rows 40000] [--repeat 3] [--only 16] [--json]

    by columns   `LogChanges.in_order` as a task of a feed calls it: segments from memory, keys and values to columns
    row by row   the same without columns

Both read the same log in one run, taking turns, and the best of some rounds counts; what counts is CPU time.

    columns_over_rows    rows a second by columns ÷ row by row
    paths                the share of rows that were mounted by columns, and row by row
"""

import json
import os
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from backlog import CREATE, log_of, write_backlog
from rig import arguments
from shapes import CASES

from tidegate.source.tidb_changes import LogChanges
from tidegate.source.tidb_log import name_of

ROW_BY_ROW = 8
"""Row by row a log that is so many times shorter is read."""


def mounted(log: LogChanges) -> tuple[float, Counter[str]]:
    """Seconds of CPU to mount a log, and its rows by path."""
    paths: Counter[str] = Counter()
    names = list(map(name_of, log.versions))
    begun = time.process_time()
    for chunk in log.in_order(names, log.after, log.upto):
        paths.update(chunk.path_counts.by_path())
    return time.process_time() - begun, paths


def measure(home: Path, kind: str, rows: int, repeat: int) -> dict[str, Any]:
    """One kind of rows."""
    directories = home / "columns", home / "rows"
    for directory, count in zip(directories, (rows, rows // ROW_BY_ROW), strict=True):
        write_backlog(directory, kind, count)
    columns, singly = log_of(directories[0]), replace(log_of(directories[1]), columns=False)
    _, paths = mounted(columns)
    by_columns, by_rows = zip(*((mounted(columns), mounted(singly)) for _ in range(repeat)), strict=True)
    rate = paths.total() / min(took for took, _ in by_columns)
    row_rate = by_rows[0][1].total() / min(took for took, _ in by_rows)
    return {
        "columns_over_rows": rate / row_rate,
        "columns_rows_per_s": rate,
        "row_by_row_rows_per_s": row_rate,
        "paths": {path: count / paths.total() for path, count in paths.items()},
        "rows": paths.total(),
    }


def main() -> None:
    """Print each kind when it is done."""
    parser = arguments(__doc__, 40_000)
    parser.add_argument("--repeat", type=int, default=3, help="rounds, of which the best counts")
    parser.add_argument("--only", default="", help="the cases with this in their names")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    results: dict[str, dict[str, Any]] = {}
    for kind in (*CREATE, *(name for name, shape in CASES.items() if not shape.encode and shape.batched == 1)):
        if options.only not in kind:
            continue
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as home:
            results[kind] = result = measure(Path(home), kind, options.rows, options.repeat)
        if not options.json:
            paths = ", ".join(f"{share:.0%} {path}" for path, share in result["paths"].items())
            print(
                f"{kind:20} {result['columns_over_rows']:6.1f} x row by row: {result['columns_rows_per_s']:,.0f} "
                f"rows/s "
                f"and {result['row_by_row_rows_per_s']:,.0f} ({paths})",
                flush=True,
            )
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
