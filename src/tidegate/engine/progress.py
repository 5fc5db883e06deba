"""Progress of a changefeed: its reports, as lines and as JSON; display.py chooses, and shows them on a terminal.

An error in a report is a FeedError.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import IO, Final, NamedTuple, Protocol

import msgspec

from tidegate.codec.neutral import render
from tidegate.engine.ports import Parked
from tidegate.engine.reading import CaptureProgress, DdlJob, LoadProgress, ReloadProgress
from tidegate.model.errors import TidegateError
from tidegate.model.left_out import LeftOut
from tidegate.model.name import printable
from tidegate.model.path_counts import SlowRows
from tidegate.model.tso import compose, physical_ms, to_datetime


class FeedError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A TidegateError as reports show it: an outage, or the end of the feed; `error` of a changefeed in TiCDC's OpenAPI
    v2.

    `topic`, `partition` and `offset`, or `file`, say where the error lies, `table` and `commit_ts` in which row.
    `next_try_s` is None when there is no next try."""

    code: str
    message: str
    since: str
    table: str = ""
    commit_ts: int = 0
    topic: str = ""
    partition: int | None = None
    offset: int | None = None
    file: str = ""
    tries: int = 1
    next_try_s: float | None = None

    @classmethod
    def of(cls, error: TidegateError, *, since: str, tries: int = 1, next_try_s: float | None = None) -> "FeedError":
        """Return `error` as reports show it."""
        where = msgspec.structs.asdict(error.where)
        return cls(code=error.code, message=str(error), since=since, tries=tries, next_try_s=next_try_s, **where)

    @classmethod
    def of_parked(cls, group: Parked, name: str) -> "FeedError":
        """Return the error for which the table `name` is parked."""
        since = to_datetime(compose(group.since_ms)).isoformat(timespec="milliseconds")
        return cls(code=group.code, message=group.message, since=since, table=name, commit_ts=group.commit_ts)

    def __str__(self) -> str:
        where = f" in {self.table}" if self.table else ""
        where += f" at commit_ts {self.commit_ts}" if self.commit_ts else ""
        times = f", {self.tries} tries" if self.tries > 1 else ""
        again = "" if self.next_try_s is None else f" (next try in {self.next_try_s:.0f} s)"
        return f"{self.code}{where} since {self.since}{times}: {' '.join(self.message.split())}{again}"


def now() -> str:
    """Return the current time in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


SHARE_MIN: Final = 0.1
ROWS_MIN: Final = 1_000
"""A slow path is reported where it takes at least this many rows, and a tenth of its stage's: a quiet feed has few
rows at a time, and is quick enough."""


class PathsSeen(NamedTuple):
    """The decode paths in a report: all rows by path, and those of slow paths."""

    paths: Mapping[str, int] = {}
    slow: Sequence[SlowRows] = ()


NO_PATHS: Final = PathsSeen()


def slow_words(now: PathsSeen, before: PathsSeen = NO_PATHS) -> str:
    """Return the shares of rows that took slower decode paths between two reports, by stage, with an example of the
    largest.

        62% land/rows (shop.t17: 1 row in a chunk, a template is learned from 2), 30% encode/rows (…)

    The text is empty where the shares are too small to mention."""
    earlier = {(slow.path, slow.reason): slow.rows for slow in before.slow}
    stages: dict[str, int] = {}
    for path, rows in now.paths.items():
        stages[_stage(path)] = stages.get(_stage(path), 0) + rows - before.paths.get(path, 0)
    slow: dict[str, tuple[int, int, str]] = {}
    for count in now.slow:
        rows = count.rows - earlier.get((count.path, count.reason), 0)
        total, most, example = slow.get(count.path, (0, 0, ""))
        slow[count.path] = (total + rows, *((rows, count.example) if rows > most else (most, example)))
    shares = []
    for path, (rows, _, example) in slow.items():
        every = max(rows, stages.get(_stage(path), 0))
        if rows >= max(ROWS_MIN, SHARE_MIN * every):
            shares.append(f"{rows / every:.0%} {path} ({example})")
    return ", ".join(shares)


def _stage(path: str) -> str:
    return path.partition("/")[0]


LINE_EVERY_S: Final = 5.0
NAMED: Final = 5
"""The most left-out tables, or columns with texts that are no UTF-8, that one line names."""


class LeavesOut(Protocol):
    """A report's tables, rows and DDLs that are left out."""

    @property
    def left_out(self) -> tuple[LeftOut, ...]: ...
    @property
    def rows_left_out(self) -> int: ...
    @property
    def ddls_left_out(self) -> int: ...


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """One partition: `offset` is the next message to land, `high` the one after the topic's last."""

    topic: str
    partition: int
    offset: int
    high: int | None = None
    resolved_ts: int | None = None
    lag_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TableProgress:
    """One table of the lake, with rows since the start; `applied_ts` is the end of the round that brought the last."""

    name: str
    rows: int
    applied_ts: int | None = None
    lag_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """A report of a changefeed; counts are since its start.

    `state` is TiCDC's: pending (not begun), normal, warning (an error is waited out), failed, stopped, finished (the
    target is reached); `phase` is starting, running, stopping or stopped."""

    phase: str
    state: str = "pending"
    since: str = ""
    """The time at which the state began, in UTC."""
    checkpoint_ts: int | None = None
    frontier_ts: int | None = None
    begin_ts: int = 0
    """The ts up to which the retention of a topic has removed messages; 0: nothing, or it is unknown."""
    resumed: bool = False
    """True if the run began at a checkpoint."""
    lag_ms: int | None = None
    """How old the checkpoint is at this report; None before there is one."""
    waits_for: str = ""
    """What the run is waiting for, such as the start of Spark."""
    load: LoadProgress | None = None
    """The full load of a feed that began with one."""
    reload: ReloadProgress | None = None
    """The last reload of tables beside the feed."""
    capture: CaptureProgress | None = None
    """The capture of a cluster beside the feed."""
    rows_loaded: int = 0
    """Rows of the load that the sink has written in this run."""
    undecodable: Mapping[str, int] = field(default_factory=dict)
    """Texts among them that are not UTF-8, by table and column; they are written unchanged."""
    lands: bool = False
    """True if changes land in a changelog before the sink reads them."""
    rows_landed: int = 0
    rows: int = 0
    """Row changes that the sink has written; repeats after a restart count again."""
    rows_per_s: float = 0.0
    bytes_written: int = 0
    """Bytes of messages, statements or documents that the sink has written; 0 where it does not count them."""
    bytes_per_s: float = 0.0
    messages: int = 0
    """Messages read."""
    messages_written: int = 0
    ddls: int = 0
    watermarks: int = 0
    dead_letters: int = 0
    left_out: tuple[LeftOut, ...] = ()
    """Tables that the filter takes and the feed does not carry, with the reason."""
    rows_left_out: int = 0
    """Rows that filters removed; for topics and files with those of tables outside the filter."""
    ddls_left_out: int = 0
    """DDLs that filters removed, or that concern none of the feed's tables."""
    corrupt: int = 0
    """Rows whose checksum contradicts their values."""
    roads: Mapping[str, int] = field(default_factory=dict)
    """Rows by decode path and stage: docs/performance.md lists them."""
    slow_roads: tuple[SlowRows, ...] = ()
    """Rows of slow paths by reason, most rows first."""
    spent_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the rounds by phase: read, write, ddl, publish, upkeep, wait."""
    partitions: tuple[PartitionProgress, ...] = ()
    tables: tuple[TableProgress, ...] = ()
    table_ids: Sequence[int] = ()
    """Physical ids of the tables of the source; none if that has names only."""
    parked: tuple[FeedError, ...] = ()
    """Parked tables, each with the error that stopped it."""
    ddl: str | None = None
    """The DDL that is being executed."""
    jobs: tuple[DdlJob, ...] = ()
    """DDLs that run upstream, where the source tells of them."""
    warnings: tuple[str, ...] = ()
    error: FeedError | None = None
    """The error that is retried, or that ended the feed."""
    elapsed_s: float = 0.0

    @property
    def seen(self) -> PathsSeen:
        """The decode paths that rows took."""
        return PathsSeen(self.roads, self.slow_roads)

    @property
    def history_left_ms(self) -> int | None:
        """The time until the retention of the topics passes what was read; None where that is unknown."""
        return history_left_ms(self.begin_ts, self.frontier_ts or 0)

    @property
    def behind(self) -> int:
        return sum(max(part.high - part.offset, 0) for part in self.partitions if part.high is not None)

    def complete_ts(self) -> Callable[[str], int | None]:
        """Return up to which ts a table is complete, by its name: the checkpoint, but for those that are parked."""
        parked = {table.table: table.commit_ts or None for table in self.parked}
        return lambda name: parked.get(name, self.checkpoint_ts)

    def at(self, now_ms: int) -> "Progress":
        """Return the report with all lags as they are at a moment."""

        def lag(ts: int | None) -> int | None:
            return None if ts is None else now_ms - physical_ms(ts)

        complete = self.complete_ts()
        tables = ((table.name, table.rows, table.applied_ts, lag(complete(table.name))) for table in self.tables)
        return replace(
            self,
            lag_ms=lag(self.checkpoint_ts),
            partitions=tuple(replace(partition, lag_ms=lag(partition.resolved_ts)) for partition in self.partitions),
            tables=tuple(TableProgress(*table) for table in tables),
        )


def history_left_ms(begin_ts: int, ts: int) -> int | None:
    """Return how far `ts` is above the begin of a history; None where one of them is unknown, 0."""
    return max(physical_ms(ts) - physical_ms(begin_ts), 0) if begin_ts and ts else None


Show = Callable[[Progress], None]


# Words for numbers.


def _count(number: float) -> str:
    return f"{number:,.0f}"


def when_words(ts: int | None) -> str:
    """Return the time of a ts in UTC, to the second."""
    if ts is None:
        return "-"
    return f"{to_datetime(ts):%Y-%m-%d %H:%M:%S}"


def lag_words(ms: int | None) -> str:
    """Return a lag with one unit: 340 ms, 2.5 s, 14 min, 3 h, 5 d."""
    if ms is None:
        return "-"
    for limit, unit_ms, unit, digits in ((1e3, 1, "ms", 0), (6e4, 1e3, "s", 1), (3.6e6, 6e4, "min", 0)):
        if ms < limit:
            return f"{ms / unit_ms:.{digits}f} {unit}"
    return f"{ms / 3.6e6:.0f} h" if ms < 1.728e8 else f"{ms / 8.64e7:.0f} d"


def load_words(load: LoadProgress | None) -> str:
    """Return how far a full load is; "" without one.

    loading shop.t, 12 of 40 chunks, 3 of 9 tables, 30%, S 2026-11-27 12:57:38, 41.2 MiB/s, about 9 min left,
    GC deadline 2026-11-28 12:57:38"""
    if load is None:
        return ""
    if load.is_done:
        how = f"loaded {{}} in {_count(load.chunks)} chunks" if load.chunks else "definitions of {}"
        words = f"{how.format(f'{_count(load.tables)} tables')}, S {when_words(load.ts)}"
        names = ", ".join(load.silent_tables[:NAMED]) + (", .." if load.silent > NAMED else "")
        silent = f", {_count(load.silent)} tables without an event since {when_words(load.silent_since)} ({names})"
        return words + (silent if load.silent else "")
    words = (
        f"loading {load.table}, {_count(load.chunks_done)} of {_count(load.chunks)} chunks, {_count(load.tables_done)} "
        f"of {_count(load.tables)} tables, {load.chunks_done / load.chunks:.0%}, S {when_words(load.ts)}"
    )
    if load.bytes_per_s:
        words += f", {load.bytes_per_s / (1 << 20):,.1f} MiB/s, about {lag_words(int(load.left_s * 1000))} left"
    words += f", rests until {load.rests_until}" if load.rests_until else ""
    return words + (f", GC deadline {when_words(compose(load.guarded_until_ms))}" if load.guarded_until_ms else "")


def reload_words(reload: ReloadProgress | None) -> str:
    """Return how far a reload is; "" without one."""
    return "" if reload is None else f"{reload.about}: {load_words(reload.load) or reload.state}"


def capture_words(capture: CaptureProgress | None) -> str:
    """Return what a capture holds, and what holds it; "" without one."""
    if capture is None:
        return ""
    sizes = {
        "waiting": capture.waiting_bytes + capture.spilled_bytes,
        "uncommitted": capture.uncommitted_bytes,
        "log": capture.log_bytes,
    }
    parts = [f"{name} {size / (1 << 20):.1f} MiB" for name, size in sizes.items() if size]
    parts += filter(None, [capture.waits_for, capture.held_by])
    return f"capture: {', '.join(parts)}" if parts else ""


def _loading(progress: Progress) -> str:
    return "" if progress.load is None or progress.load.is_done else load_words(progress.load)


def line(progress: Progress, before: PathsSeen = NO_PATHS) -> str:
    """Return one line for a log; `before` are the decode paths of the line before it."""
    written = _count(progress.rows)
    parts = [
        state_words(progress),
        f"{progress.elapsed_s:.0f} s",
        *filter(None, [_loading(progress)]),
        f"landed {_count(progress.rows_landed)}  applied {written}" if progress.lands else f"written {written}",
        f"{_count(progress.rows_per_s)} rows/s",
        f"DDLs {progress.ddls}",
        f"checkpoint {when_words(progress.checkpoint_ts)}",
        f"lag {lag_words(progress.lag_ms)}",
    ]
    if progress.behind:
        parts.append(f"behind {_count(progress.behind)} messages")
    if progress.messages_written:
        parts.append(f"wrote {_count(progress.messages_written)} messages")
    if progress.corrupt:
        parts.append(f"{_count(progress.corrupt)} rows with a wrong checksum")
    if odd := undecodable_words(progress.undecodable):
        parts.append(odd)
    if capturing := capture_words(progress.capture):
        parts.append(_one_line(capturing, 300))
    if progress.dead_letters:
        parts.append(f"dead letters {_count(progress.dead_letters)}")
    if left := left_out_words(progress):
        parts.append(left)
    if slow := slow_words(progress.seen, before):
        parts.append(f"slow paths: {slow}")
    if progress.ddl:
        parts.append(f"doing {_one_line(progress.ddl, 80)}")
    if progress.error:
        parts.append(_one_line(str(progress.error), 300))
    return "  ".join(parts)


def undecodable_words(counts: Mapping[str, int]) -> str:
    """Return how many texts of a load are not UTF-8, by table and column; "" if none.

    loaded texts that are no UTF-8: shop.t.note 3"""
    named = [f"{name} {_count(counts[name])}" for name in sorted(counts)[:NAMED]] + [".."] * (len(counts) > NAMED)
    return f"loaded texts that are no UTF-8: {', '.join(named)}" if counts else ""


def left_out_words(report: "LeavesOut") -> str:
    """Return a summary of what filters left out; "" if nothing."""
    counts = (len(report.left_out), "tables"), (report.ddls_left_out, "DDLs"), (report.rows_left_out, "rows")
    some = ", ".join(f"{_count(number)} {what}" for number, what in counts if number)
    names = "; ".join(map(str, report.left_out[:NAMED])) + ("; .." if report.left_out[NAMED:] else "")
    return f"left out {some}" + (f" ({names})" if names else "") if some else ""


def state_words(progress: Progress) -> str:
    """Return what a changefeed does: its phase, or its state where that says more."""
    tells = progress.phase == "stopping" or progress.state in {"pending", "normal", "stopped"}
    state = progress.phase if tells else progress.state
    return f"{state} (waits for {progress.waits_for})" if progress.waits_for else state


def _one_line(text: str, width: int) -> str:
    joined = printable(" ".join(text.split()))
    return joined if len(joined) <= width else joined[: max(width - 3, 0)] + "..."


# The displays.


@contextmanager
def lines(stream: IO[str], *, every_s: float = LINE_EVERY_S) -> Iterator[Show]:
    """A display that prints a line when the phase changes, else one every `every_s` seconds; warnings once each."""
    phase = ""
    last = time.monotonic()
    printed: set[str] = set()
    paths = NO_PATHS
    loads = False

    def show(progress: Progress) -> None:
        nonlocal phase, last, paths, loads
        if loads and progress.load is not None and progress.load.is_done:
            notes = filter(None, [load_words(progress.load), undecodable_words(progress.undecodable)])
            stream.write(f"{'; '.join(notes)}: complete\n")
        loads = bool(_loading(progress))
        for warning in progress.warnings:
            if warning not in printed and not (progress.error and progress.error.message in warning):
                printed.add(warning)
                stream.write(f"warning: {printable(warning)}\n")
        now = time.monotonic()
        state = progress.phase + progress.state + progress.waits_for + (progress.error.code if progress.error else "")
        if progress.state == "failed":  # the error itself is told by whoever runs the feed
            return
        if state != phase or now - last >= every_s:
            phase, last = state, now
            stream.write(line(progress, paths) + "\n")
            paths = progress.seen
            stream.flush()

    yield show


@contextmanager
def json_lines(stream: IO[str]) -> Iterator[Show]:
    """A display that prints every report as one JSON object."""

    def show(progress: Progress) -> None:
        stream.write(render(progress).decode() + "\n")
        stream.flush()

    yield show
