"""One run of a source into a sink in this process, without Spark and without pauses: for tests of adapters.

    run_here(source, sink)                 until nothing comes any more
    run_here(source, sink, until=ts)       until the checkpoint is there

The contract suites of tidegate.testing are handed this function: that floor does not know the engine.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from tidegate.engine.filter import TableFilter
from tidegate.engine.local_tasks import HereTasks, Hurried
from tidegate.engine.loop import Engine, Feed
from tidegate.engine.meter import Meter
from tidegate.engine.plan import Drops
from tidegate.engine.ports import Sink, Source, Tasks
from tidegate.engine.progress import Progress
from tidegate.engine.retry_policy import RetryPolicy

TRIES: Final = 10
"""So many errors in a row that may pass are waited out; the next one ends the run."""


def run_here(
    source: Source,
    sink: Sink[Any],
    *,
    until: int | None = None,
    tasks: Tasks | None = None,
    report: Callable[[Progress], None] = lambda _: None,
    rules: Sequence[str] = ("*.*",),
    drops: Drops | None = None,
) -> Progress:
    """Run until the checkpoint reaches `until`, or until the source has nothing more; return the last report.

    `rules` are filter rules of the tables that the run carries, `drops` says which DDLs of them it leaves out.

    Raises the error that ended the run."""
    tables, patience = TableFilter.parse(rules), RetryPolicy(quick=TRIES, stuck_s=None)
    feed = Feed("trial", source, sink, accept=tables.matches, takes=tables.takes_ddl, drops=drops, patience=patience)
    return Engine(feed, tasks or HereTasks(), Meter(report), Hurried()).run(until=until, idle_s=0)
