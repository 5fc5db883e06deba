"""Capture of a cluster: what EventFeed brings, as segments of a change log (source/tidb_segment.py).

    GC held ─► definitions at the begin ─► base ─► spans registered ─► rows ─► Waiting ─► segments ─► GC held above them
               KvScan of the m-prefix

A log begins at a ts with the keys of databases and tables; afterwards the m-prefix, the DDL jobs and the record ranges
of the tables in the filter are read, each under its number:

    0              m-prefix: its rows tell which tables there are; no index ranges are read
    id             rows of that physical id, of mysql.tidb_ddl_job among them

    meta          CREATE at 50                  resolved 60
    table 45      resolved 58
    table 51      registered from 49, at 60     resolved 49 .. 57
    frontier      48                            57           the least resolved ts of all, the m-prefix among them

A dropped table is read until the frontier has come to the end of the DDL jobs of then: transactions of nodes with the
schema from before may still write its rows, which RECOVER TABLE brings back.

Rows at or below the frontier are sorted, freed of those that came again, and written: every second if there are some,
or a feed may wait for the begin, else every five, so that readers see it move.  What is above waits in memory, beyond
`waiting_bytes` in files without a name.  A segment has about SEGMENT_ROWS rows, or SEGMENT_BYTES.

Until it is written, a row is in TiKV: GC is held at the last segment's end less one, as `tidegate-<feed>-<log>`, where
`<log>` tells the logs of feeds of one name apart.  The hold moves every minute, or ttl/3.  TiKV leaves out collected
versions silently, so PD is asked where GC is after each first scan, before a segment has rows of it, and after a time
without a hold (a machine that slept): rows are written only if none of them can lack.

    scan from c ──► GC up to g ──► PD: g ──► segment from w ≤ c       g ≤ w: the scan saw all versions
                                                                     else the capture ends, and writes nothing

After a crash the capture goes on at the end of the last segment.  The log's directory has a file with the cluster's id
and the filter of the capture: a log of another cluster or filter is refused, since it lacks rows.  While a capture runs
it locks the file `capture`, so that no other one writes the same rows again; in an object store two of them may run
until both have a segment for the same ts: the first one goes on, the other one is fenced (tidb_segment.py).  The log is
trimmed behind the slowest of the feeds that have read it within gc-ttl; without any, it keeps gc-ttl.

Files are written and read in threads, since an object store takes many milliseconds, and all captures share a loop.

Source: TiCDC's puller, sorter and GC manager; PD's service safe points.
"""

import asyncio
import fcntl
import logging
import mmap
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, Lock, Thread
from types import CoroutineType
from typing import Any, Final, TypeVar, cast

import msgspec
import numpy as np
import pyarrow as pa

from tidegate.engine.filter import is_system
from tidegate.engine.reading import CaptureProgress
from tidegate.kv.change_columns import SCHEMA as COLUMNS
from tidegate.kv.change_columns import changes_of, joined, numbers
from tidegate.kv.keys import table_span
from tidegate.model.errors import (
    ConfigError,
    EnvironmentFault,
    GcTtlExceeded,
    HistoryLost,
    SourceError,
    TidegateError,
)
from tidegate.model.kept_state import StateKind, encode_state
from tidegate.model.kv_change import KvChange, KvOp, LogType
from tidegate.model.tso import compose, physical_ms
from tidegate.objectstore.failpoint import failpoint
from tidegate.objectstore.local_files import PRIVATE_DIRECTORY
from tidegate.objectstore.store_path import Location, StorePath, size_of
from tidegate.objectstore.stores import check_store, disk_fault
from tidegate.schema.job import JOB_TABLE, JobState, decode_job_row
from tidegate.schema.stored.definition import ElementState, StoredSchema, StoredTable, parse_stored
from tidegate.schema.stored.history import defined_by
from tidegate.source.tidb_segment import (
    CAPTURE,
    SCHEMA,
    SegmentWriter,
    base_of,
    create,
    decode_segment,
    encode_segment,
    publish,
    read_spans,
    safe_point,
    segments,
    trim,
)
from tidegate.source.tikv_options import ORIGIN, CaptureOrigin, origin_of
from tidegate.tikv.address import ClusterAddress
from tidegate.tikv.feed import EventFeed
from tidegate.tikv.matcher import SPILL
from tidegate.tikv.pd import PdClient
from tidegate.tikv.registrations import SpanRows
from tidegate.tikv.snapshot import Snapshot
from tidegate.tikv.versions import Component, check_versions, row_stores

LOG: Final = logging.getLogger(__name__)
T = TypeVar("T")
META: Final = 0
_NAMES: Final = {META: "the schema", JOB_TABLE.id: "the DDL jobs"}
SPILL_BYTES: Final = 256 << 20
SEGMENT_ROWS: Final = 200_000
SEGMENT_BYTES: Final = 64 << 20
WRITE_S, IDLE_S, KEEP_S = 1.0, 5.0, 60.0
_CHECKS: Final = 10
"""How often in WRITE_S it is looked for what is complete."""
_ENDS_S: Final = 60.0
PATIENCE_S: Final = 5.0
"""How long PD is asked to end a hold, which ends by itself after gc-ttl."""
_AHEAD_S: Final = 60.0
"""How far the clock of start-ts may be ahead of PD's."""
_FIRST: Final = Lock()
Accept = Callable[[str, str], bool]


class CaptureOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is captured and where it is written. `rules` are those of the filter, `gc_ttl_ms` is how long GC is held for
    a capture that does not run, `waiting_bytes` how much of the rows above the frontier is in memory."""

    address: ClusterAddress
    directory: Location
    feed: str
    rules: tuple[str, ...] = ()
    case_sensitive: bool = False
    gc_ttl_ms: int = 86_400_000
    waiting_bytes: int = SPILL_BYTES
    force_version: bool = False
    write_s: float = WRITE_S
    idle_s: float = IDLE_S

    @property
    def ttl_s(self) -> int:
        return max(self.gc_ttl_ms // 1000, 1)


def _hold_name(feed: str, origin: CaptureOrigin) -> str:
    return "-".join(filter(None, ("tidegate", feed, origin.log)))


class Waiting:
    """Rows above the frontier, in any order; in files of `directory`, or of the machine's one for such files."""

    def __init__(self, directory: Path | None, spill_bytes: int = SPILL_BYTES) -> None:
        self._directory, self._spill_bytes = directory, spill_bytes
        self._fresh: list[Any] = []
        self._spilled: list[Any] = []
        self.size_bytes = self.spilled_bytes = 0

    def add(self, rows: Any) -> None:
        """Take rows; a record batch of kv/change_columns.py."""
        self._fresh.append(rows)
        self.size_bytes += rows.nbytes
        if self.size_bytes > self._spill_bytes:
            with TemporaryFile(dir=self._directory, prefix=SPILL) as file:
                with pa.ipc.new_file(file, COLUMNS) as writer:
                    writer.write_batch(_by_time(self._fresh))
                file.flush()
                spilled = pa.BufferReader(pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
                self._spilled.append(pa.ipc.open_file(spilled).get_batch(0))
            self.spilled_bytes += self.size_bytes
            self._fresh, self.size_bytes = [], 0

    def take(self, low: int, high: int) -> Iterator[tuple[int, Any]]:
        """Return the rows in (low, high] and forget them and those below, while more may be added: pieces of about
        SEGMENT_ROWS rows, or SEGMENT_BYTES, each with its end, in commit order and each row once."""
        runs, self._spilled, self._fresh, self.size_bytes = [*self._spilled, _by_time(self._fresh)], [], [], 0
        times = [numbers(run, "commit_ts") for run in runs]
        inside = np.sort(np.concatenate([each[(each > low) & (each <= high)] for each in times]))
        row_bytes = sum(run.nbytes for run in runs) / max(sum(map(len, runs)), 1)
        rows = min(SEGMENT_ROWS, int(SEGMENT_BYTES / max(row_bytes, 1)) + 1)
        ends = [*np.unique(inside[rows - 1 : -1 : rows]).tolist(), high]
        for end in dict.fromkeys(ends):
            bounds = [np.searchsorted(each, (low, end), "right").tolist() for each in times]
            pieces = (run.slice(first, stop - first) for run, (first, stop) in zip(runs, bounds, strict=True))
            yield end, in_commit_order(joined([piece for piece in pieces if len(piece)]))
            low = end
        above = [run.slice(int(np.searchsorted(each, high, "right"))) for run, each in zip(runs, times, strict=True)]
        self._spilled += [run for run in above[:-1] if len(run)]
        self._fresh += [above[-1].take(np.arange(len(above[-1])))] if len(above[-1]) else []
        self.size_bytes, self.spilled_bytes = (sum(run.nbytes for run in runs) for runs in (self._fresh, self._spilled))


def _by_time(batches: list[Any]) -> Any:
    rows = joined(batches)
    return rows.take(np.argsort(numbers(rows, "commit_ts"), kind="stable"))


def in_commit_order(rows: Any) -> Any:
    """Return rows, each once, in the order of tidb_segment.in_order."""
    rows = rows.sort_by([("commit_ts", "ascending"), ("key", "ascending")])
    if len(rows) > 1:
        keys, times = rows.column("key"), numbers(rows, "commit_ts")
        is_again = keys.slice(1).to_numpy(zero_copy_only=False) == keys.slice(0, len(rows) - 1).to_numpy(
            zero_copy_only=False
        )
        rows = rows.filter(pa.array(np.concatenate([[True], ~((times[1:] == times[:-1]) & is_again)])))
    has_old = rows.column("old_value").is_valid().to_numpy(zero_copy_only=False)
    rank = np.where(numbers(rows, "op") == int(KvOp.DELETE), 0, np.where(has_old, 1, 2))
    order = ("commit_ts", "start_ts", "rank", "key")
    ranked = rows.append_column("rank", pa.array(rank))
    return ranked.sort_by([(name, "ascending") for name in order]).drop_columns(["rank"])


class KnownTables:
    """The physical ids of the tables in a filter, by the keys of the schema; with those that are gone, while a DDL job
    of then runs."""

    def __init__(self, accept: Accept) -> None:
        self._accept = accept
        self._schemas: dict[int, str] = {}
        self._tables: dict[tuple[int, int], tuple[str, tuple[int, ...]]] = {}
        self._jobs: set[bytes] = set()
        self._gone: dict[int, tuple[str, str, set[bytes]]] = {}

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Follow a key of the schema or of a DDL job; None for one that was deleted."""
        if key[:1] == b"t":
            (self._jobs.add if value else self._jobs.discard)(key)
            self._gone = {number: gone for number, gone in self._gone.items() if gone[2] & self._jobs}
            return
        subject = defined_by(key)
        if subject is None:
            return
        schema_id, table_id = subject
        if self._jobs and (schema_name := self._schemas.get(schema_id)):
            leaving = [subject] if table_id else [each for each in self._tables if each[0] == schema_id]
            for name, physical_ids in (self._tables[each] for each in leaving if each in self._tables):
                self._gone.update((number, (schema_name, name, set(self._jobs))) for number in physical_ids)
        if not table_id:
            schema = parse_stored(value, StoredSchema) if value else None
            self._schemas.pop(schema_id, None)
            if schema is not None and schema.state == ElementState.PUBLIC:
                self._schemas[schema_id] = schema.name.original
            return
        self._tables.pop(subject, None)
        table = parse_stored(value, StoredTable) if value else None
        if table is not None and table.state == ElementState.PUBLIC and not (table.is_view or table.is_sequence):
            self._tables[subject] = table.name.original, table.physical_ids

    def names(self) -> dict[int, str]:
        """Return the tables of now by their physical ids."""
        tables = {number: (schema, name) for number, (schema, name, _) in self._gone.items()} | {
            number: (schema, name)
            for (schema_id, _), (name, physical_ids) in self._tables.items()
            if (schema := self._schemas.get(schema_id))
            for number in physical_ids
        }
        return {
            number: f"{schema}.{name}"
            for number, (schema, name) in tables.items()
            if not is_system(schema) and self._accept(schema, name)
        }


class Spans:
    """The spans that are read, up to which ts each is complete, and the schema rows that wait for the m-prefix."""

    def __init__(self, feed: EventFeed, tables: KnownTables, low: int) -> None:
        self._feed, self._tables = feed, tables
        self.resolved: dict[int, int] = {}
        self._leaving: dict[int, int] = {}
        self._meta: dict[tuple[int, bytes], bytes | None] = {}
        self._known_ts = self._frontier = low
        self._behind: set[int] = set()
        self._add(META, SCHEMA, low)
        self._add(JOB_TABLE.id, table_span(JOB_TABLE.id), low)
        self._move(low)

    def held_by(self) -> str:
        """Return what holds the range that is the furthest behind, and how many others stand still; from any thread."""
        slow = self._feed.slow
        if not slow:
            return ""
        name = _NAMES.get(slow[0].span) or f"table {self._names.get(slow[0].span, slow[0].span)}"
        more = f"; {len(slow) - 1} more ranges stand still" if len(slow) > 1 else ""
        return f"{name}: {slow[0]}{more}"

    def rows(self, span: int, rows: Any) -> None:
        """Take rows of the m-prefix and of DDL jobs."""
        if span in _NAMES:
            for row in changes_of(rows):
                if row.commit_ts > self._known_ts and (span == JOB_TABLE.id or defined_by(row.key) is not None):
                    self._meta[row.commit_ts, row.key] = row.value if row.op is KvOp.PUT else None

    def resolve(self, span: int, ts: int) -> None:
        """Take a resolved ts."""
        if ts > self.resolved.get(span, ts):
            self.resolved[span] = ts
            self._behind.discard(span)

    def frontier(self) -> int:
        """Follow the schema as far as it is complete; return the ts up to which all spans are, which stays the same
        until those that are at it have moved."""
        meta_ts = min(self.resolved[span] for span in _NAMES)
        if self._behind and meta_ts == self._known_ts:
            return self._frontier
        ready = sorted(key for key in self._meta if key[0] <= meta_ts)
        for index, (commit_ts, key) in enumerate(ready):
            self._tables.apply(key, self._meta.pop((commit_ts, key)))
            if index + 1 == len(ready) or ready[index + 1][0] > commit_ts:
                self._move(commit_ts - 1)
        self._known_ts = meta_ts
        frontier = min(self.resolved.values())
        left = [number for number, ts in self._leaving.items() if ts < frontier]
        for number in left:
            del self._leaving[number], self.resolved[number]
            self._feed.remove(number)
        self._frontier = frontier = min(self.resolved.values()) if left else frontier
        self._behind = {number for number, ts in self.resolved.items() if ts == frontier}
        return frontier

    def _move(self, ts: int) -> None:
        """Read the tables that there are above `ts`, and the others up to it."""
        tables = self._names = self._tables.names()
        for number in tables:
            self._leaving.pop(number, None)
            if number not in self.resolved:
                self._add(number, table_span(number), ts)
        for number in self.resolved.keys() - tables - {META, JOB_TABLE.id}:
            self._leaving.setdefault(number, ts)

    def _add(self, number: int, span: tuple[bytes, bytes], ts: int) -> None:
        self._feed.add(number, *span, ts)
        self.resolved[number] = ts


@contextmanager
def _alone(directory: Location) -> Iterator[None]:
    """Lock a log's directory for one capture; an object store has no locks. Raises SourceError if another one has it,
    and `disk_fault` for one that cannot be written."""
    if isinstance(directory, StorePath):
        yield
        return
    try:
        directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        mark = os.open(directory / CAPTURE, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as fault:
        raise disk_fault(
            f"the log {directory} cannot be written ({fault.strerror}): give a directory that may be written", fault
        ) from fault
    try:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            raise SourceError(
                f"another capture writes into the log {directory}; each changefeed of tikv:// has a log of its own"
            ) from taken
        except OSError as fault:  # a file system without locks
            LOG.warning("%s cannot be locked for one capture: %s", directory, fault.strerror)
        for left in directory.glob(f"{SPILL}*"):
            left.unlink(missing_ok=True)
        yield
    finally:
        os.close(mark)


_fits = cache(check_store)


async def _in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Do work on files in a thread, and wait for its end also when it is cancelled."""
    running = asyncio.get_running_loop().run_in_executor(None, partial(copy_context().run, work, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def capture_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of all captures of this process, in a thread: gRPC has one poller for all loops."""
    with _FIRST:  # feeds that a server starts at once would have one each
        return _loop()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="tidegate-capture", daemon=True).start()
    return loop


class Capture:
    """Captures a cluster beside the caller, between `start` and `stop`. `start_ts` is the begin of a new log; None:
    now."""

    def __init__(self, options: CaptureOptions, accept: Accept, start_ts: int | None = None) -> None:
        self.options, self._accept, self._start_ts = options, accept, start_ts
        self._tasks: list[asyncio.Task[None]] = []
        self._error: TidegateError | None = None
        self._ended = Event()
        self._ended.set()
        self._stops = False
        self._origin = CaptureOrigin(0, options.rules)
        self._held_s = 0.0
        self._waits_for = ""
        self._working: tuple[EventFeed, SegmentWriter, Waiting, Spans] | None = None
        self._log_bytes = 0
        self._name = secrets.token_hex(8) if isinstance(options.directory, StorePath) else ""

    def start(self, start_ts: int | None = None) -> None:
        """Begin, or begin again after an error, which is raised once; `start_ts` is that of a new log, if the feed has
        one."""
        if not self._ended.is_set():
            return
        error, self._error = self._error, None
        if error is not None:
            raise error
        self._start_ts = self._start_ts if start_ts is None else start_ts
        self._stops = False
        self._ended.clear()
        capture_loop().call_soon_threadsafe(self._begun)

    def stop(self) -> None:
        """End; rows that are not written yet come again. One that does not end is left behind, with an error."""
        self._stops = True
        if self._ended.is_set():
            return
        capture_loop().call_soon_threadsafe(lambda: [task.cancel() for task in self._tasks[:1]])
        if self._ended.wait(_ENDS_S):
            return
        places = list[str]()
        for task in [task for task in self._tasks if not task.done()]:
            names, waits = list[str](), cast("Any", task.get_coro())
            while isinstance(waits, CoroutineType):
                names.append(waits.__qualname__)
                waits = waits.cr_await
            places.append(" > ".join(names))
        self._error = SourceError(
            f"the capture {self.options.feed} into {self.options.directory} has not ended in {_ENDS_S:g} s: "
            f"it waits in {', '.join(places) or 'its begin'}; see whether disk and PD answer"
        )
        LOG.error("%s", self._error)

    @property
    def has_log(self) -> bool:
        """True once the log has begun, and goes on."""
        return self._working is not None

    def failure(self) -> TidegateError | None:
        """Return the error that has ended it; None while it runs."""
        return self._error

    def progress(self) -> CaptureProgress:
        """Return how far it is; from any thread."""
        if (working := self._working) is None:
            return CaptureProgress(waits_for=self._waits_for)
        feed, writer, waiting, spans = working
        return CaptureProgress(
            ts=writer.low,
            waiting_bytes=waiting.size_bytes,
            spilled_bytes=waiting.spilled_bytes,
            uncommitted_bytes=feed.stored_bytes,
            log_bytes=self._log_bytes,
            held_by=spans.held_by(),
            cluster=str(self._origin.cluster_id),
        )

    def _begun(self) -> None:
        self._tasks = [capture_loop().create_task(self.run())]
        self._tasks[0].add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        error: BaseException | None = asyncio.CancelledError() if task.cancelled() else task.exception()
        if task.cancelled() and self._stops:
            error = None
        if error is not None and not isinstance(error, TidegateError):
            LOG.error("the capture %s ended", self.options.feed, exc_info=error)
            error = SourceError(f"the capture {self.options.feed} ended: {error!r}")
        self._error = error
        self._ended.set()

    async def run(self) -> None:
        """Capture until it is cancelled. Raises what ends it."""
        with _alone(self.options.directory):
            await self._run()

    async def _run(self) -> None:
        self._origin = await _in_thread(self._kept)
        pd = PdClient(self.options.address, cluster_id=self._origin.cluster_id)
        try:
            await pd.connect()
            await self._check(pd)
            low, tables = await self._begin(pd)
            directory = self.options.directory
            writer = await _in_thread(SegmentWriter, directory, low, self._name)
            try:
                spill = directory if isinstance(directory, Path) else None
                async with EventFeed(pd, spill=spill) as feed:
                    waiting = Waiting(spill, self.options.waiting_bytes)
                    await self._work(pd, feed, writer, waiting, Spans(feed, tables, low))
            finally:
                self._working = None
                writer.close()
        finally:
            self._waits_for = ""
            await pd.close()

    async def _work(self, pd: PdClient, feed: EventFeed, writer: SegmentWriter, waiting: Waiting, spans: Spans) -> None:
        """Take and write until it is cancelled. Raises what ends it."""
        self._working = feed, writer, waiting, spans
        works = (
            self._take(feed, waiting, spans),
            self._write(pd, feed, writer, waiting, spans),
            self._keep(pd, writer),
        )
        tasks = [asyncio.create_task(work) for work in works]
        self._tasks += tasks
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _kept(self) -> CaptureOrigin:
        """The origin of an existing log, one without a cluster for a new log. ConfigError if its filter is another one,
        or if it is no capture's; StateTooNew."""
        directory, options = self.options.directory, self.options
        if isinstance(directory, StorePath):
            _fits(directory.uri)
        kept, is_new = origin_of(directory), not base_of(directory, fresh=True) and not segments(directory)
        if is_new:
            log = secrets.token_hex(4) if kept is None else kept.log
            return CaptureOrigin(0, options.rules, log, options.case_sensitive)
        if kept is None:
            raise ConfigError(
                f"the log {directory} is of another writer, or has lost {ORIGIN}: give another log directory"
            )
        if kept.tables != CaptureOrigin(0, options.rules, case_sensitive=options.case_sensitive).tables:
            raise ConfigError(
                f"the log {directory} has the tables of the filter {', '.join(kept.tables.rules)}, "
                f"not of {', '.join(options.rules) or '*.*'}: it may lack rows. Give back the filter and its "
                "case-sensitive, or another log directory, whose log begins at the feed's checkpoint"
            )
        return kept

    async def _check(self, pd: PdClient) -> None:
        """Raise VersionIncompatible for a component that is not accepted."""
        if self.options.force_version:
            return
        stores = [Component("TiKV", store.address, store.version) for store in row_stores(await pd.stores())]
        leader = (await pd.connect()).leader
        components = [*stores, Component("PD", leader, await pd.version())]
        check_versions(components)

    async def _begin(self, pd: PdClient) -> tuple[int, KnownTables]:
        """Hold GC; return the end of the log, which is begun if there is none, and the tables at it."""
        directory, tables = self.options.directory, KnownTables(self._accept)
        base, written = await _in_thread(lambda: (base_of(directory), segments(directory)))
        if base is None and not written:
            return await self._new(pd, tables), tables
        begin = 0 if base is None else base[0]
        low = written[-1][1] if written else begin
        self._log_bytes = sum(size_of(path) for _, _, path in written)
        await self._keep_above(pd, low)

        def learn() -> None:
            for row in decode_segment(base[1].read_bytes(), str(base[1]))[1] if base is not None else ():
                tables.apply(row.key, row.value)
            for row in read_spans(directory, begin, low, (SCHEMA, table_span(JOB_TABLE.id))) if low > begin else ():
                tables.apply(row.key, row.value if row.op is KvOp.PUT else None)

        await _in_thread(learn)
        return low, tables

    async def _new(self, pd: PdClient, tables: KnownTables) -> int:
        """Begin a log; return its begin."""
        directory = self.options.directory
        origin = self._origin = msgspec.structs.replace(self._origin, cluster_id=pd.cluster_id)
        path, body = directory / ORIGIN, encode_state(StateKind.CAPTURE, origin)
        await _in_thread(lambda: publish(path, body) if origin_of(directory) else create(path, body, self._name))
        failpoint("capture/origin")
        while True:
            now_ts = await pd.tso()
            ts = self._start_ts or now_ts
            ahead_s = (physical_ms(ts) - physical_ms(now_ts)) / 1000
            if ahead_s > _AHEAD_S:  # TiKV may not be read above PD's time
                raise ConfigError(f"start-ts {ts} is {ahead_s:.0f} s after the cluster's time, {now_ts}")
            if ts > now_ts:
                await asyncio.sleep(max(ahead_s, 0.001))
                continue
            await self._hold(pd, ts)
            failpoint("capture/held")
            snapshot = Snapshot(pd, ts)
            jobs = [pair async for page in snapshot.pages(*table_span(JOB_TABLE.id)) for pair in page]
            if not jobs:
                break
            running = [decode_job_row(*pair) for pair in jobs]
            named = ", ".join(f"{job.id} ({JobState(job.state).name.lower()})" for job in running)
            if self._start_ts:
                raise EnvironmentFault(
                    f"DDL jobs run at ts {ts}, where a log cannot begin: {named}; take another start-ts, or load-ts"
                )
            self._waits_for = f"the change log begins when these DDL jobs have ended: {named}"
            await asyncio.sleep(self.options.write_s)
        self._waits_for = ""
        pairs = [pair async for page in snapshot.pages(*SCHEMA) for pair in page]
        rows = [KvChange(LogType.COMMITTED, key, 1, ts, KvOp.PUT, value, None, 0) for key, value in pairs]
        rows = [row for row in rows if defined_by(row.key) is not None]
        base = directory / f"{ts if isinstance(directory, Path) else 0:020d}.base"
        await _in_thread(create, base, encode_segment(ts, ts, rows, self._name), self._name)
        failpoint("capture/base")
        for row in rows:
            tables.apply(row.key, row.value)
        return ts

    async def _hold(self, pd: PdClient, low: int) -> None:
        await pd.hold(_hold_name(self.options.feed, self._origin), self.options.ttl_s, low - 1)
        self._held_s = time.time()

    async def _keep_above(self, pd: PdClient, low: int) -> None:
        """Hold GC below what the log lacks. Raises GcTtlExceeded, or HistoryLost where it was collected sooner."""
        try:
            await self._hold(pd, low)
        except HistoryLost as gone:
            age_ms = physical_ms(await pd.tso()) - physical_ms(low)
            kind = GcTtlExceeded if age_ms > self.options.gc_ttl_ms else HistoryLost
            raise kind(
                f"the log {self.options.directory} ends at ts {low}, and the cluster keeps nothing of that time "
                f"({gone}); begin a new log and a new copy of the data; a longer gc-ttl avoids this"
            ) from gone

    async def _take(self, feed: EventFeed, waiting: Waiting, spans: Spans) -> None:
        """Take what comes."""
        async for event in feed.events():
            if isinstance(event, SpanRows):
                waiting.add(event.rows)
                spans.rows(event.span, event.rows)
            else:
                spans.resolve(event.span, event.ts)

    async def _write(
        self, pd: PdClient, feed: EventFeed, writer: SegmentWriter, waiting: Waiting, spans: Spans
    ) -> None:
        """Write what is complete, whether or not more comes."""
        begun_s, wrote_s, scans, idle_s = time.monotonic(), 0.0, 0, self.options.idle_s
        while True:
            await asyncio.sleep(self.options.write_s / _CHECKS)
            now_s = time.monotonic()
            if now_s - wrote_s < self.options.write_s or (high := spans.frontier()) <= writer.low:
                continue
            if scans != feed.scans or time.time() - self._held_s > self.options.ttl_s / 2:
                scans = feed.scans
                await self._keep_above(pd, writer.low)
            for end, rows in waiting.take(writer.low, high):
                if len(rows) or end < high or not begun_s + idle_s <= now_s < wrote_s + idle_s:
                    failpoint("capture/before-segment")
                    self._log_bytes += size_of(await _in_thread(writer.write_columns, rows, end))
                    failpoint("capture/after-segment")
                    wrote_s = now_s

    async def _keep(self, pd: PdClient, writer: SegmentWriter) -> None:
        """Move the hold on GC behind what is written, and trim what no feed needs."""
        while True:
            await asyncio.sleep(min(KEEP_S, self.options.ttl_s / 3))
            await self._keep_above(pd, writer.low)
            failpoint("capture/moved")
            await _in_thread(self._trim, writer.low)

    def _trim(self, low: int) -> None:
        directory, ttl_ms = self.options.directory, self.options.gc_ttl_ms
        bound = safe_point(directory, time.time_ns() // 1_000_000, ttl_ms)
        trim(directory, low - compose(ttl_ms) if bound is None else bound, lazily=True)
        self._log_bytes = sum(size_of(path) for _, _, path in segments(directory))


def ask_pd(address: ClusterAddress, ask: Callable[[PdClient], Awaitable[T]]) -> T:
    """Return what PD answers a request that somebody waits for. Raises ClusterUnavailable after PATIENCE_S."""

    async def answer() -> T:
        pd = PdClient(address, patience_s=PATIENCE_S)
        try:
            return await ask(pd)
        finally:
            await pd.close()

    return asyncio.run_coroutine_threadsafe(answer(), capture_loop()).result(2 * PATIENCE_S + _ENDS_S)


def captures_held(options: CaptureOptions) -> list[str] | None:
    """Return the names of the captures for whose log PD holds GC; None for a directory without a captured log. Raises
    ClusterUnavailable."""
    origin = origin_of(options.directory)
    if origin is None:
        return None
    before, _, behind = _hold_name("\n", origin).partition("\n")
    holds = [
        name for name in ask_pd(options.address, PdClient.holds) if name.startswith(before) and name.endswith(behind)
    ]
    return [name[len(before) : len(name) - len(behind)] for name in holds]


def release(options: CaptureOptions) -> None:
    """End the hold on GC of a capture that does not go on, if there is one. Raises ClusterUnavailable, SourceError for
    one that runs, which needs its hold."""
    origin = origin_of(options.directory)
    if origin is not None:
        with _alone(options.directory):
            ask_pd(options.address, lambda pd: pd.release(_hold_name(options.feed, origin)))
