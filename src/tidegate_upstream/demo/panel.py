"""The demo on a terminal: a panel of the whole chain, which ends as the table of all comparisons.

It looks at the run four times a second, so reports that lines tell are not told.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tidegate.engine.display import Rates, panel_on
from tidegate.engine.panel import ComparedTable, DoneDdl, Panel, Stage
from tidegate.engine.reading import LoadProgress
from tidegate_upstream.demo.live import (
    Flow,
    MomentReport,
    Play,
    ReplicaFlow,
    Teller,
    Verdict,
    moment_lines,
    steps_words,
)
from tidegate_upstream.demo.upstream import DdlReport

_DONE: Final = 30


class PanelTeller(Teller):
    """Shows a run as a panel on stdout."""

    def __init__(self, *, color: bool) -> None:
        super().__init__(as_json=False)
        self._color, self._began_s = color, time.monotonic()
        self._commits = Rates()
        self._addresses: tuple[str, ...] = ()
        self._reports: tuple[MomentReport, ...] = ()
        self._loaded: set[str] = set()
        self._verdict: Verdict | None = None

    @contextmanager
    def showing(self, play: Play[Any]) -> Iterator[None]:
        """Show a run for the time of a block, and its verdict below what stays."""
        with panel_on(sys.stdout, lambda: self.panel(play), color=self._color):
            yield
        if self._verdict is not None:
            super().verdict(self._verdict)

    def address(self, name: str, address: str) -> None:
        """Show an address as long as there is room."""
        self._addresses = (*self._addresses, f"{name}: {address}")

    def ddl(self, at_s: float, report: DdlReport) -> None:
        """Nothing: the upstream has the report."""

    def flow(self, flow: Flow) -> None:
        """Nothing: the changefeeds have theirs."""

    def replica(self, flow: ReplicaFlow) -> None:
        """Nothing: the changefeed has its own."""

    def load(self, at_s: float, chain: str, load: LoadProgress) -> None:
        """Tell S once it is loaded; before, the changefeed has it."""
        if load.is_done and chain not in self._loaded:
            self._loaded.add(chain)
            super().load(at_s, chain, load)

    def moment(self, lake: str, report: MomentReport) -> None:  # noqa: ARG002
        """Add a timestamp to the table; differences are printed, too."""
        self._reports = (*self._reports, report)
        for line in () if report.equal else moment_lines(report):
            self.write(line)

    def verdict(self, verdict: Verdict) -> None:
        """Tell the result when the panel has ended."""
        self._verdict = verdict

    def panel(self, play: Play[Any]) -> Panel:
        """Return the panel of a run as of now."""
        now_ms, elapsed_s = time.time_ns() // 1_000_000, time.monotonic() - self._began_s
        title = f"tidegate demo · {'stopping' if play.stop.is_set() else play.step} · {elapsed_s:.0f} s"
        if not hasattr(play, "upstream"):
            return Panel(title, self._addresses)
        upstream = play.upstream
        self._commits.add(elapsed_s, {"commits": upstream.commits})
        feeds = [(feed.name, feed.panel(now_ms)) for chain in play.chains for feed in chain.feeds]
        first = Stage("upstream", upstream.commits, "commits", self._commits.of("commits"))
        tables = [table._replace(name=f"{name} {table.name}") for name, feed in feeds for table in feed.tables]
        waits = {
            f"waits for {what}": None
            for chain in play.chains
            for feed in chain.feeds
            if (what := feed.progress.waits_for)
        }
        return Panel(
            title,
            (*self._addresses, *waits),
            errors=tuple(error for _, feed in feeds for error in feed.errors),
            stages=(first, *(stage for _, feed in feeds for stage in feed.stages[1:])),
            loads=tuple((name, load) for name, feed in feeds for _, load in feed.loads),
            nodes=upstream.nodes,
            ddls=upstream.ddls.running(now_ms),
            timestamps=play.comparisons,
            compared=compared_tables(self._reports),
            tables=tuple(sorted(tables, key=lambda table: table.complete_ts or 0)) if not self._reports else (),
            done=tuple(
                DoneDdl(
                    f"{report.kind} {report.table}",
                    report.seconds,
                    f"{report.commits} commits meanwhile: {steps_words(report)}",
                )
                for report in reversed(upstream.reports[-_DONE:])
            ),
            warnings=tuple(warning for _, feed in feeds for warning in feed.warnings),
        )


def compared_tables(reports: Sequence[MomentReport]) -> tuple[ComparedTable, ...]:
    """Return the tables of some comparisons, with the outcome of each: None where a table did not exist."""
    outcomes = [{table.name: table for table in report.tables} for report in reports]
    return tuple(
        ComparedTable(
            name,
            next(tables[name].rows for tables in reversed(outcomes) if name in tables),
            tuple(tables[name].equal if name in tables else None for tables in outcomes),
        )
        for name in sorted({name for tables in outcomes for name in tables})
    )
