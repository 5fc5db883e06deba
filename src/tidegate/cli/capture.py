"""`tidegate capture`: the change log of a TiDB cluster, for the changefeeds that read it with tidb://DIR.

$ tidegate capture tikv://pd1:2379 --log /srv/log --filter 'shop.*'
captured up to 470735690717175809 (2026-03-17 09:31:06.250)  lag 1.2 s  log 12.5 MiB  slowest changefeed: orders at ..
$ tidegate run --source-uri 'tidb:///srv/log?ddl-ts=commit' --sink-uri sqlite:///srv/shop.db --state-dir /srv/state

SIGINT and SIGTERM end it; the next run goes on at the end of the log.  Transient errors are retried, at the start for
some seconds only.  `--release` ends the hold on garbage collection of a capture that does not go on.
"""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click
import msgspec

from tidegate.cli.output import echo, echo_json
from tidegate.config.entry import Document
from tidegate.config.tikv import capture_options, parse_tikv
from tidegate.config.uri import state_directory
from tidegate.engine.filter import DEFAULT_RULES, TableFilter
from tidegate.engine.loop import START_S
from tidegate.engine.progress import LINE_EVERY_S, FeedError, capture_words, now
from tidegate.engine.reading import CaptureProgress
from tidegate.engine.retry_policy import Outage, RetryPolicy
from tidegate.engine.stop_signals import stop_on_signals
from tidegate.model.errors import ConfigError, SourceError, TidegateError
from tidegate.model.tso import parse_ts, physical_ms, shown_ts
from tidegate.objectstore.store_path import location

if TYPE_CHECKING:
    from tidegate.source.tidb_segment import LogSafePoint
    from tidegate.source.tikv_capture import Capture

LOOK_S: Final = 1.0


class Slowest(msgspec.Struct, frozen=True):
    """The changefeed behind which the log is trimmed."""

    changefeed: str
    checkpoint_ts: int


class CaptureReport(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a capture; `state` is pending, normal, warning or stopped."""

    state: str
    capture: CaptureProgress
    lag_ms: int | None = None
    slowest: Slowest | None = None
    error: FeedError | None = None

    def line(self) -> str:
        """Return it for people."""
        ts = self.capture.ts
        parts = [f"captured up to {shown_ts(ts)}" if ts else "nothing is captured yet"]
        parts += [] if self.lag_ms is None else [f"lag {self.lag_ms / 1000:.1f} s"]
        parts += [capture_words(self.capture)]
        if self.slowest is not None:
            parts.append(f"slowest changefeed: {self.slowest.changefeed} at {shown_ts(self.slowest.checkpoint_ts)}")
        parts += [] if self.error is None else [str(self.error)]
        return "  ".join(filter(None, parts))


@click.command()
@click.argument("uri", metavar="tikv://PD:PORT,..")
@click.option("--log", "log", metavar="DIR|URI", required=True, help="Where to: a directory, or s3://BUCKET/PREFIX.")
@click.option("--filter", "rules", multiple=True, metavar="RULE", help="Tables, such as 'shop.*'; default: all.")
@click.option("-c", "--name", default="capture", show_default=True, help="Name of the hold on garbage collection.")
@click.option("--start-ts", metavar="TSO|TIME", help="Where a new log begins; default: now.")
@click.option("--release", "releases", is_flag=True, help="End the hold on garbage collection, and exit.")
@click.option("--json", "as_json", is_flag=True, help="CaptureReport progress as JSON lines on stdout.")
def capture(
    uri: str,
    *,
    log: str,
    rules: tuple[str, ...],
    name: str,
    start_ts: str | None,
    releases: bool,
    as_json: bool,
) -> None:
    """Write the changes of a TiDB cluster into a log, which changefeeds read with tidb://DIR, or tidb+s3://…."""
    from tidegate.cli import options as logging

    logging.configure(json=as_json)
    source = parse_tikv(uri, Document())
    if source.log:
        raise ConfigError("give the directory of the log with --log alone")
    chosen = TableFilter.parse(rules or DEFAULT_RULES)
    begin_ts = None if start_ts in {None, "now"} else parse_ts(start_ts, now_ms=time.time_ns() // 1_000_000)
    directory = location(state_directory(log, "--log"))
    options = capture_options(source, directory, name, rules=chosen.rules)
    from tidegate.source.tikv_capture import Capture, captures_held, release

    if releases:
        names = captures_held(options)
        if names is None:
            raise ConfigError(f"{directory} has no captured log")
        if name not in names:
            raise ConfigError(
                f"PD has no hold of a capture {name} of the log {directory}, nothing was released: "
                + (f"it has that of {', '.join(names)}; name it with -c" if names else "it has none of this log")
            )
        release(options)
        echo(f"{directory}: the hold on garbage collection is released")
        return

    def tell(report: CaptureReport) -> None:
        if as_json:
            echo_json(report)
            sys.stdout.flush()
        else:
            echo(report.line(), err=True)

    with stop_on_signals() as stop:
        running = Capture(options, chosen.matches, begin_ts)
        try:
            follow(running, stop, tell, every_s=LOOK_S if as_json else LINE_EVERY_S)
        finally:
            running.stop()


def follow(running: "Capture", stop: threading.Event, tell: Callable[[CaptureReport], None], *, every_s: float) -> None:
    """Run a capture until `stop`. Raises the error that ends it."""
    from tidegate.source.tidb_segment import safe_points

    outage, told_s, high = Outage(RetryPolicy(stuck_s=None, most_s=START_S)), -every_s, 0
    feeds, read_s = list["LogSafePoint"](), -LINE_EVERY_S

    def report(state: str, error: FeedError | None = None) -> CaptureReport:
        nonlocal feeds, read_s
        now_ms, captured = time.time_ns() // 1_000_000, running.progress()
        if time.monotonic() - read_s >= LINE_EVERY_S:
            read_s = time.monotonic()
            with suppress(SourceError):  # an object store that is away: the capture ends, and says so
                feeds = safe_points(running.options.directory)
        live = [each for each in feeds if each.lives(now_ms, running.options.gc_ttl_ms)]
        slowest = min(live, key=lambda each: each.checkpoint_ts, default=None)
        return CaptureReport(
            state=state,
            capture=captured,
            lag_ms=max(now_ms - physical_ms(captured.ts), 0) if captured.ts else None,
            slowest=None if slowest is None else Slowest(slowest.changefeed, slowest.checkpoint_ts),
            error=error,
        )

    while not stop.is_set():
        try:
            running.start()
        except TidegateError as error:
            pause_s = outage.pause_s(error)
            tell(report("warning", FeedError.of(error, since=now(), tries=outage.errors, next_try_s=pause_s)))
            stop.wait(pause_s)
            continue
        captured = running.progress()
        if captured.ts > high:
            high, outage.policy = captured.ts, RetryPolicy()
            outage.recovered()
        if time.monotonic() - told_s >= every_s:
            told_s = time.monotonic()
            tell(report("normal" if captured.ts else "pending"))
        stop.wait(LOOK_S)
    tell(report("stopped"))
