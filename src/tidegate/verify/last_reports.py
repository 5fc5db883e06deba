"""The last comparisons of `tidegate verify` by this user, which `tidegate debug bundle` includes.

    CACHE/verify/TIME-PID.json    target, upstream, ts; of each table its rows, and its differences by kind and column

Neither values nor keys of rows are in it.  LAST files are kept, each of at most TABLES tables, those that differ first.
"""

import json
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from tidegate.model.errors import EnvironmentFault
from tidegate.objectstore.local_files import write_whole
from tidegate.spark.cache import cache_dir
from tidegate.verify.compare import TableReport

LAST: Final = 10
TABLES: Final = 1_000
COLUMNS: Final = 20


def summary(report: TableReport) -> dict[str, Any]:
    """Return the comparison of a table without what is in its rows."""
    shown: dict[str, Any] = {"table": report.name, "rows": report.rows, "equal": report.equal}
    if not report.equal:
        kinds = Counter(difference.kind for difference in report.differences)
        columns = Counter(difference.column for difference in report.differences if difference.column)
        shown |= {"whole": report.is_whole, "kinds": kinds, "columns": dict(columns.most_common(COLUMNS))}
    return shown | ({"left_out": True} if report.left_out else {})


def keep_report(comparison: dict[str, Any], tables: Sequence[dict[str, Any]]) -> None:
    """Store a comparison, and remove the oldest. A directory that cannot be written keeps none."""
    first = sorted(tables, key=lambda table: table["equal"])[:TABLES]
    text = json.dumps({**comparison, "compared": len(tables), "tables": first}, ensure_ascii=False)
    with suppress(OSError, EnvironmentFault):
        home = cache_dir("verify")
        write_whole(home / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{os.getpid()}.json", text)
        for path in sorted(home.glob("*.json"))[:-LAST]:
            path.unlink(missing_ok=True)


def last_reports() -> dict[str, Any]:
    """Return the stored comparisons by the time and the process of each, oldest first."""
    reports = {}
    for path in sorted(cache_dir("verify").glob("*.json")):
        with suppress(OSError, ValueError):  # another process removes it
            reports[path.stem] = json.loads(path.read_text("utf-8"))
    return reports
