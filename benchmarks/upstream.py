"""The embedded TiDB against SQLite: the same statements, one after the other, each its own transaction.

    python benchmarks/upstream.py [--rows 2000] [--json]

    INSERT of one row    UPDATE of one row by its key    ADD COLUMN    CREATE INDEX over all rows

    memory     an engine of dictionaries     against     SQLite in memory
    disk       a directory, durable          against     SQLite in a file, WAL, synchronous=FULL

Ours parses, plans, writes rows and index entries as TiDB's bytes, and commits by its transactions; a DDL goes through
the job table and all schema states of its operation.  Ratios of one run:

    insert_over_sqlite, update_over_sqlite       rows a second of ours ÷ those of SQLite         goal 0.1 on disk
    ddl_over_sqlite                              SQLite's time for a DDL ÷ ours

SQLite's ADD COLUMN changes one line of its schema, ours passes five schema versions.
"""

import json
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rig import arguments

from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.session import Session

CREATE: Final = "create table t (id int primary key, a int, b varchar(40))"
DDLS: Final = {"add_column": "alter table t add column c int", "create_index": "create index i on t (a)"}
WARM: Final = 100

Run = Callable[[str], object]


def seconds(run: Run, statements: list[str]) -> float:
    """How long they take."""
    begun = time.perf_counter()
    for statement in statements:
        run(statement)
    return time.perf_counter() - begun


def measure(run: Run, rows: int) -> dict[str, float]:
    """Rates a second, and seconds of each DDL."""
    run(CREATE)
    inserts = [f"insert into t values ({number}, {number * 7 % 100}, 'text {number}')" for number in range(rows + WARM)]
    updates = [f"update t set a = a + 1 where id = {number * 13 % rows}" for number in range(rows)]
    seconds(run, inserts[:WARM])
    return {
        "inserts_per_s": rows / seconds(run, inserts[WARM:]),
        "updates_per_s": rows / seconds(run, updates),
        **{f"{name}_s": seconds(run, [ddl]) for name, ddl in DDLS.items()},
    }


def sqlite(path: str, rows: int) -> dict[str, float]:
    """SQLite's figures."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")
    figures = measure(connection.execute, rows)
    connection.close()
    return figures


def run_embedded(directory: Path | None, rows: int) -> dict[str, float]:
    """The embedded TiDB's."""
    cluster = Cluster.open(directory)
    session = Session(cluster.node)
    session.execute("use test")
    figures = measure(session.execute, rows)
    cluster.close()
    return figures


def compared(embedded: dict[str, float], reference: dict[str, float]) -> dict[str, float]:
    """Both, and the ratios."""
    return {
        "insert_over_sqlite": embedded["inserts_per_s"] / reference["inserts_per_s"],
        "update_over_sqlite": embedded["updates_per_s"] / reference["updates_per_s"],
        **{f"{name}_over_sqlite": reference[f"{name}_s"] / embedded[f"{name}_s"] for name in DDLS},
        **embedded,
        **{f"sqlite_{name}": value for name, value in reference.items()},
    }


def main() -> None:
    """Print both stores."""
    options = arguments(__doc__, 2_000).parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch, "tidb")
        directory.mkdir()
        results = {
            "memory": compared(run_embedded(None, options.rows), sqlite(":memory:", options.rows)),
            "disk": compared(
                run_embedded(directory, options.rows), sqlite(str(Path(scratch, "sqlite.db")), options.rows)
            ),
        }
    if options.json:
        print(json.dumps(results, indent=2))
        return
    for store, figures in results.items():
        print(
            f"{store:7} {figures['inserts_per_s']:,.0f} inserts/s {figures['insert_over_sqlite']:.2f} x SQLite, "
            f"{figures['updates_per_s']:,.0f} updates/s {figures['update_over_sqlite']:.2f} x; add column "
            f"{figures['add_column_s'] * 1e3:.1f} ms {figures['add_column_over_sqlite']:.3f} x, index "
            f"{figures['create_index_s'] * 1e3:.0f} ms {figures['create_index_over_sqlite']:.3f} x"
        )


if __name__ == "__main__":
    main()
