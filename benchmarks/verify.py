"""`tidegate verify` of equal tables at rest beside the server's own client that reads both to nowhere: rows a second.

    python benchmarks/verify.py [--rows 10000000] [--case lake] [--table wide] [--json]

    mariadb    two MariaDBs, one table in each   ──  sums of both sides at once, in one process     ours
    lake       a lake that was loaded from the   ──  the same                                       ours
               first of them, and that one
               the two MariaDBs                  ──  mariadb --quick, one after the other           peer

Tables are those of full_load.py, of which `wide` has a quarter of the rows.  Both sides take turns in one run, warm,
the best of three; MiB are the most of our process.
"""

import json
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing
from multiprocessing import get_context
from pathlib import Path

from full_load import CASES as TABLES
from full_load import TIMES, best, options_of, quick, table
from full_load_lake import run_tidegate
from rig import arguments

from tidegate.cli.sink import session_of
from tidegate.source.load_sql import SqlReader
from tidegate.spark.session import session
from tidegate.verify.compare import TableReader, compare_sides
from tidegate.verify.database import upstream_at
from tidegate.verify.local import lake_at

CASES = ("mariadb", "lake")


def chosen(schema: str, _table: str) -> bool:
    """The table alone."""
    return schema == "load"


def verified(address: str, target: int | str) -> tuple[float, int, int]:
    """The seconds, rows and MiB at most of one comparison with a server or a lake."""
    begun = time.perf_counter()
    with ExitStack() as stack:

        def server(where: str) -> TableReader:
            return upstream_at(stack.enter_context(closing(session_of(where))), 0, chosen)

        lake = stack.enter_context(lake_at(target, None, chosen))[0] if isinstance(target, str) else None
        side = lake or server(f"mysql://root@127.0.0.1:{target}/?enable-tls=false")
        (report,) = compare_sides(server(address), side)
    assert report.equal, report
    took_s = time.perf_counter() - begun
    return took_s, report.rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def lake_of(port: int, home: Path) -> str:
    """A lake with the table of a server."""
    spark = session(cores=2)
    run_tidegate(spark, port, SqlReader(options_of(port)).plan(lambda name: name.schema == "load"), home)
    spark.stop()
    return str(home)


def measured(name: str, rows: int, cases: list[str]) -> dict[str, dict[str, float]]:
    """Rates of the cases of one table, in rows a second, and their ratios."""
    figures = {}
    with table(name, rows) as first, table(name, rows) as second, tempfile.TemporaryDirectory(dir="/dev/shm") as home:
        targets: dict[str, Callable[[], int | str]] = {
            "mariadb": lambda: second, "lake": lambda: lake_of(first, Path(home))
        }  # fmt: skip
        for case in cases:
            target = targets[case]()
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                address = f"mysql://root@127.0.0.1:{first}/?enable-tls=false"
                turns = [pool.submit(verified, address, target).result() for _ in range(TIMES + 1)]
            assert {found for _, found, _ in turns} == {rows}
            ours_s = min(took_s for took_s, *_ in turns[1:])
            peer_s = best(lambda: [*map(quick, (first, second))])
            figures[case] = {
                "ours": round(rows / ours_s), "peer": round(rows / peer_s), "ratio": round(peer_s / ours_s, 2),
                "mib": turns[-1][2],
            }  # fmt: skip
    return figures


def main() -> None:
    """Measure the cases."""
    parser = arguments(__doc__, 10_000_000)
    parser.add_argument("--case", choices=CASES, action="append", help="only these")
    parser.add_argument("--table", choices=TABLES, action="append", help="only these")
    options = parser.parse_args()
    results = {
        name: measured(name, options.rows // times, options.case or [*CASES])
        for name, times in TABLES.items()
        if name in (options.table or TABLES)
    }
    if options.json:
        print(json.dumps(results))
        return
    for name, cases in results.items():
        for case, rates in cases.items():
            print(
                f"{case:8} {name:7} {rates['ours']:>10,} rows/s  {rates['peer']:>10,} the client, both   "
                f"ratio {rates['ratio']:.2f}   {rates['mib']:,} MiB"
            )


if __name__ == "__main__":
    main()
