"""Displays of a changefeed's reports, chosen by where they go.

                      +- panel   panel.py's lines, drawn four times a second    (a terminal)
    Progress -> Show -+- lines   a line at intervals                            (a pipe, a log)
                      +- json    one JSON object per report                     (--json)

Panel and lines go to stderr, so that stdout stays free for results; JSON goes to stdout.  The panel is drawn on the
terminal's second screen, each time as a whole and for the size that the terminal has then, and its last state stays on
the first one.  What the program prints meanwhile is the panel's last section, and is printed when the panel ends.
"""

import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from io import TextIOBase
from threading import Event
from typing import IO, Final

from rich.console import Console, Group
from rich.live import Live

from tidegate.engine.panel import DoneDdl, LateTable, Panel, RunningDdl, Stage, draw
from tidegate.engine.progress import (
    Progress,
    Show,
    capture_words,
    json_lines,
    left_out_words,
    lines,
    reload_words,
    slow_words,
    state_words,
    undecodable_words,
    when_words,
)
from tidegate.model.tso import physical_ms

_SAMPLE_S: Final = 1.0
_LINES: Final = 200


class Rates:
    """The rates of counters in the last minute, from their values at some times."""

    def __init__(self) -> None:
        self._sampled_s = float("-inf")
        self._counts: dict[str, int] = {}
        self._rates: dict[str, deque[float]] = {}

    def add(self, now_s: float, counts: Mapping[str, int]) -> None:
        """Take the values of counters; those of less than a second after the last ones are ignored."""
        if now_s - self._sampled_s < _SAMPLE_S:
            return
        for name, count in self._counts.items():
            rate = max(counts[name] - count, 0) / (now_s - self._sampled_s)
            self._rates.setdefault(name, deque(maxlen=60)).append(rate)
        self._sampled_s, self._counts = now_s, dict(counts)

    def of(self, name: str) -> tuple[float, ...]:
        """Return the rates of a counter per second, the newest last."""
        return tuple(self._rates.get(name, ()))


class FeedPanel:
    """The panel of a changefeed, from its reports; `source` and `sink` are addresses without secrets."""

    def __init__(self, name: str, source: str, sink: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self._clock, self._shown_s = clock, clock()
        self.source, self.sink = (uri.partition("?")[0] for uri in (source, sink))
        self.progress = Progress("starting")
        self.rates = Rates()
        self._began_s = 0.0
        self._done: deque[DoneDdl] = deque(maxlen=20)

    def show(self, progress: Progress) -> None:
        """Take a report."""
        before, self.progress = self.progress, progress
        self._shown_s = self._clock()
        if progress.ddl != before.ddl:
            if before.ddl and progress.ddls > before.ddls:
                self._done.appendleft(DoneDdl(before.ddl, progress.elapsed_s - self._began_s))
            self._began_s = progress.elapsed_s

    def stages(self, now_ms: int) -> tuple[Stage, ...]:
        """Return the stages at a time, the source first."""
        progress = self.progress.at(now_ms)
        counts = {"read": progress.messages, "landed": progress.rows_landed, "written": progress.rows}
        self.rates.add(now_ms / 1000, counts)
        lags = [part.lag_ms for part in progress.partitions if part.lag_ms is not None]
        frontier_ms = now_ms - physical_ms(progress.frontier_ts) if progress.frontier_ts else None
        source = Stage(
            self.source, progress.messages, "messages", self.rates.of("read"), max(lags, default=frontier_ms)
        )
        landed = Stage("→ changelog", progress.rows_landed, "rows", self.rates.of("landed"), frontier_ms)
        written = Stage(f"→ {self.sink}", progress.rows, "rows", self.rates.of("written"), progress.lag_ms)
        return (source, landed, written) if progress.lands else (source, written)

    def panel(self, now_ms: int, *, stops: bool = False) -> Panel:
        """Return the panel at a time; `stops` once a stop was requested, which a report tells behind the round."""
        progress = self.progress.at(now_ms)
        if stops and progress.phase in {"starting", "running"}:
            what = "the DDL" if progress.ddl else "the round" if progress.phase == "running" else "the start"
            progress = replace(progress, phase="stopping", waits_for=progress.waits_for or f"{what} in flight")
        elapsed_s = progress.elapsed_s + self._clock() - self._shown_s
        complete = progress.complete_ts()
        reasons = {error.table: error.code for error in progress.parked}
        return Panel(
            title=f"{self.name} · {state_words(progress)} · {elapsed_s:.0f} s · {progress.ddls} DDLs · "
            f"checkpoint {when_words(progress.checkpoint_ts)}",
            notes=tuple(filter(None, _notes(progress))),
            errors=() if progress.error is None else (str(progress.error),),
            stages=self.stages(now_ms),
            loads=(("", progress.load),) if progress.load is not None and not progress.load.is_done else (),
            nodes=("upstream",) if progress.jobs else (),
            ddls=tuple(_ddls(progress, elapsed_s - self._began_s, now_ms)),
            tables=tuple(
                LateTable(table.name, table.lag_ms, table.rows, complete(table.name), reasons.get(table.name, ""))
                for table in sorted(
                    progress.tables, key=lambda table: (complete(table.name) or 0, table.applied_ts or 0, table.name)
                )
            ),
            done=tuple(self._done),
            warnings=progress.warnings,
            partitions=tuple(sorted(progress.partitions, key=lambda part: part.resolved_ts or 0)),
        )


def _ddls(progress: Progress, seconds: float, now_ms: int) -> Iterator[RunningDdl]:
    """Yield the DDL that the sink executes, and those that run upstream."""
    if progress.ddl:
        yield RunningDdl(progress.ddl, seconds, ("done",) if progress.jobs else ())
    for job in progress.jobs:
        yield RunningDdl(job.query, max(now_ms - physical_ms(job.start_ts), 0) / 1000, (job.state,))


def _notes(progress: Progress) -> Iterator[str]:
    counts = {
        "messages behind": progress.behind,
        "dead letters": progress.dead_letters,
        "rows with a wrong checksum": progress.corrupt,
    }
    yield ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    yield reload_words(progress.reload)
    yield capture_words(progress.capture)
    yield undecodable_words(progress.undecodable)
    yield left_out_words(progress)
    yield f"slow paths: {slow}" if (slow := slow_words(progress.seen)) else ""


class _Printed(TextIOBase):
    """The last lines that were written."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque([""], maxlen=_LINES)

    def write(self, text: str) -> int:
        first, *more = text.split("\n")
        self.lines[-1] += first
        self.lines.extend(more)
        return len(text)


@contextmanager
def panel_on(stream: IO[str], panel: Callable[[], Panel], *, color: bool = True) -> Iterator[None]:
    """Draw a panel on a terminal for the time of a `with` block; without colors also if NO_COLOR is set."""
    console = Console(file=stream, no_color=None if color else True)
    printed = _Printed()

    def frame() -> Group:
        output = tuple(filter(None, printed.lines))
        return Group(*draw(replace(panel(), output=output), *console.size))

    try:
        with ExitStack() as stack:
            for handler in logging.getLogger().handlers:
                if isinstance(handler, logging.StreamHandler) and handler.stream is stream:
                    handler.setStream(printed)
                    stack.callback(handler.setStream, stream)
            if sys.stdout.isatty():
                stack.enter_context(redirect_stdout(printed))
            stack.enter_context(redirect_stderr(printed))
            stack.enter_context(
                Live(
                    console=console,
                    screen=True,
                    redirect_stdout=False,
                    redirect_stderr=False,
                    get_renderable=frame,
                )
            )
            yield
    finally:
        for text in filter(None, printed.lines):
            stream.write(f"{text}\n")
        console.print(Group(*draw(panel(), console.width, console.height - 1)))


@contextmanager
def display(feed: FeedPanel, stop: Event, *, json: bool, color: bool, out: IO[str], err: IO[str]) -> Iterator[Show]:
    """The display that suits the streams: JSON on `out` if requested, else on `err` a panel or lines. `stop` ends the
    changefeed once it is set."""
    if json or not is_drawn(err):
        with json_lines(out) if json else lines(err) as show:
            yield show
        return
    with panel_on(err, lambda: feed.panel(time.time_ns() // 1_000_000, stops=stop.is_set()), color=color):
        yield feed.show


def is_drawn(stream: IO[str]) -> bool:
    """Return whether a stream is a terminal that can show a panel."""
    return stream.isatty() and not Console(file=stream).is_dumb_terminal
