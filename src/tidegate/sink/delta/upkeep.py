"""Upkeep of a lake and its change log: forgetting snapshots, deleting unreachable files, compacting small ones.

    1 forget      snapshots beyond the limits
    2 retire      dropped tables that nobody can ask for: removed from the state, deleted once that is published
    3 sweep       of every table, data files and log that no snapshot, reader or worker needs
    4 compact     tables with many small files, in workers

A feed runs upkeep every upkeep-interval until the engine asks it to end, with compaction in tasks.  `tidegate lake
upkeep LAKE` runs it manually until nothing is left to do, in its own process.  The feed stores its limits in
`_tidegate/limits.json`; a manual run uses them unless others are given.  Removing dropped tables from the published
state is left to the feed, since only a writer may do it.

A file is deleted only when nothing that still exists names it: a snapshot goes before its files, a dropped table
leaves the published state before its rows are deleted.  So a pass may be killed at any time, and the next one finishes
its work.  A pass does what it can until `enough` says so and continues there the next time; a table that has not
changed since costs nothing.  Limits are decided in engine/retention.py, life spans of files in objectstore/deltalog.py.

    _tidegate/snapshots/N.json ──copied, then deleted──► _tidegate/forgotten/N.json ──after the grace──► deleted
                      readers find it                      readers that found it may finish              files go
    _tidegate/retired/<incarnation>                        an empty file: its time is when the table was first
                                                           seen to be dropped

The time of the copy is the time of forgetting.  Files that a forgotten snapshot names stay as long as the copy exists,
so a query that began just before can finish.  Killed between copy and deletion, both exist, and the next pass deletes
the original.

Compaction rewrites many small files of a table, sorted by key and with exact bounds, in one commit with
dataChange=false that keeps the table's position, so a step that is repeated afterwards still finds what is done.  The
first commit wins: a compaction that finds its version taken is dropped.  A table that is ahead of its published version
(a round died) is skipped, unless only compactions are ahead.
"""

import shutil
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import obstore
import pyarrow as pa
from deltalake.exceptions import DeltaError

from tidegate.changelog.changelog import ChangelogTrim, Trimmed
from tidegate.engine.retention import (
    PURGED,
    Limits,
    RetainedSnapshot,
    changelog_bound,
    forgettable,
    needed,
    purgeable,
    versions_kept,
)
from tidegate.model.errors import SinkError, TidegateError
from tidegate.model.table import TableInfo
from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import (
    LOG,
    Action,
    CommitConflict,
    DataFile,
    Lifespans,
    TableSnapshot,
    cut_log,
    sweep,
)
from tidegate.objectstore.failpoint import failpoint
from tidegate.objectstore.stores import (
    STORE_ERRORS,
    StoredFile,
    delete,
    first_line,
    read_file,
    store,
    stored_files,
    writable,
)
from tidegate.schema.state import SchemaState
from tidegate.sink.delta.columns import bounded, stored_columns
from tidegate.sink.delta.files import by_key, is_small, read, within, write
from tidegate.sink.delta.iceberg_projection import project, spans_of
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import Snapshot, decode_body

SMALL_FILES_MAX: Final = 16
"""Merges fold their own small files beyond eight; twice as many come only from appends."""
UPKEEP: Final = "upkeep"


class Compaction(msgspec.Struct, frozen=True):
    """A table to compact: its definition and its published version."""

    table: TableInfo
    version: int


def small_files(snapshot: TableSnapshot) -> tuple[DataFile, ...]:
    """Return the files worth compacting into one, the smallest first, at most as many as one task may hold; none if
    there are few."""
    small = sorted((file for file in snapshot.files() if is_small(file)), key=lambda file: (file.rows, file.path))
    chosen = tuple(small[index] for index in within(small)[0]) if small else ()
    return chosen if len(chosen) > SMALL_FILES_MAX else ()


def compact(job: Compaction, options: DeltaOptions) -> int:
    """Compact the table's small files if there are many; return the version that holds the published rows now."""
    uri = options.table_uri(job.table.incarnation)
    snapshot = deltalog.load(uri)
    if snapshot is None:
        return job.version
    since = range(job.version + 1, snapshot.version + 1)
    if not all(deltalog.user_metadata(uri, version).get(UPKEEP) for version in since):
        return job.version
    small = small_files(snapshot)
    if not small:
        return snapshot.version
    metadata = {"feed": options.feed, UPKEEP: True}
    actions = _folded(snapshot, small, job.table)
    failpoint("compact/before-commit")
    try:
        deltalog.commit(uri, snapshot.version + 1, actions, operation="OPTIMIZE", metadata=metadata)
    except CommitConflict:
        return job.version
    if options.iceberg:
        project(uri, snapshot.version + 1, job.table, snapshot.version)
    failpoint("compact/after-commit")
    return snapshot.version + 1


def _folded(snapshot: TableSnapshot, small: Sequence[DataFile], table: TableInfo) -> list[Action]:
    columns = stored_columns(snapshot)
    key = bounded(table, columns)
    rows = pa.concat_tables([read(snapshot.uri, file, columns) for file in small])
    rows = by_key(rows, key)
    added = [{"add": {**action["add"], "dataChange": False}} for action in write(snapshot.uri, rows, columns, key)]
    return [*(deltalog.remove(file, data_change=False) for file in small), *added]


Runner = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""Runs a function over some jobs, in workers or here."""
COMMITS_MAX: Final = 2_000
"""Commits of one table that a pass reads; a long log is taken up over several passes."""
COMPACTIONS_MAX: Final = 4
TABLES: Final = "tables/"


@dataclass(slots=True)
class Kept:
    """The result of a pass, or with dry_run of a simulated one."""

    snapshots: list[int] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)
    """Incarnations to be struck off the published state."""
    purged: list[str] = field(default_factory=list)
    files: int = 0
    size_bytes: int = 0
    log_files: int = 0
    compacted: dict[str, int] = field(default_factory=dict)
    """Incarnations and the versions that now hold their published rows."""
    unfinished: bool = False


@dataclass(frozen=True, slots=True)
class _Pass:
    """The input of one pass: `kept` versions of each table, `heads` from which on every version stays."""

    state: SchemaState
    kept: Mapping[str, AbstractSet[int]]
    heads: Mapping[str, int]
    retired: Mapping[str, int]
    now_ms: int
    enough: Callable[[], bool]
    done: Kept
    parked: AbstractSet[str]
    """Parked tables, those that are being loaded among them."""


class Upkeep:
    """The upkeep of one lake, pass by pass; it caches what it has read."""

    def __init__(self, options: DeltaOptions, limits: Limits, *, dry_run: bool = False) -> None:
        self._options, self._limits, self._dry_run = options, limits, dry_run
        self._shelf = Shelf(options, dry_run=dry_run)
        self._lifespans: dict[str, Lifespans] = {}
        self._settled: dict[str, tuple[object, ...]] = {}
        self._looked_at: dict[str, tuple[int, int]] = {}
        """Incarnation -> (pass, version) of the last look for small files."""
        self._passes = 0
        self._last = ""

    def run(self, snapshot: Snapshot, runner: Runner, enough: Callable[[], bool], *, now_ms: int | None = None) -> Kept:
        """Return the outcome of one pass. `snapshot` is the writer's newest; what `adopt` changes in it is published
        with the next one."""
        now_ms = int(time.time() * 1000) if now_ms is None else now_ms
        done = Kept()
        self._passes += 1
        self._shelf.refresh()
        newest = self._shelf.newest()
        if newest is None:
            return done
        done.snapshots = self._shelf.forget(now_ms, self._limits)
        self._shelf.drop_forgotten(now_ms - self._limits.reader_grace_ms)
        kept = versions_kept(self._shelf.moments())
        alive = {incarnation: version for incarnation, version in newest.retired.items() if version != PURGED}
        parked = frozenset(name for group in snapshot.parked for name in group.incarnations)
        now = _Pass(snapshot.state, kept, {**alive, **newest.versions}, newest.retired, now_ms, enough, done, parked)
        self._retire(now, alive.keys())
        self._sweep_all(now)
        self._purge(now)
        if not enough():
            self._compact(snapshot, runner, done)
        return done

    def _retire(self, now: _Pass, alive: AbstractSet[str]) -> None:
        since_ms = self._shelf.retired_since_ms(alive)
        recoverable = {table.incarnation for table in now.state.dropped}
        since = {incarnation: ms for incarnation, ms in since_ms.items() if incarnation in alive}
        now.done.retired = purgeable(since, recoverable, now.kept, now.now_ms, self._limits)
        now.done.retired += [name for name in now.retired if name not in alive and name not in recoverable]

    def _sweep_all(self, now: _Pass) -> None:
        names = sorted(now.kept.keys() | now.heads.keys())
        for incarnation in [name for name in names if name > self._last] + [
            name for name in names if name <= self._last
        ]:
            if now.enough():
                now.done.unfinished = True
                return
            self._sweep(incarnation, now)
            self._last = incarnation
        for gone in self._lifespans.keys() - set(names):
            del self._lifespans[gone]

    def _sweep(self, incarnation: str, now: _Pass) -> None:
        versions, newest = tuple(sorted(now.kept.get(incarnation, ()))), now.heads.get(incarnation)
        key = (versions, newest)
        if self._settled.get(incarnation) == key:
            return
        lowest = min((*versions, *(() if newest is None else (newest,))))
        uri, done, limits = self._options.table_uri(incarnation), now.done, self._limits
        readers_ms, orphans_ms = now.now_ms - limits.reader_grace_ms, now.now_ms - limits.orphan_grace_ms
        files = self._files(incarnation)
        lifespans = self._lifespans.setdefault(incarnation, Lifespans(uri))
        if not lifespans.advance(lowest, COMMITS_MAX):
            done.unfinished |= bool(files)
            return
        lifespans.spans |= spans_of(files)
        swept = sweep(
            lifespans,
            files,
            lambda span: needed(span.added, span.removed, versions, newest),
            removed_before_ms=readers_ms,
            orphans_before_ms=orphans_ms,
            dry_run=self._dry_run,
        )
        done.files += swept.files
        done.size_bytes += swept.size_bytes
        done.log_files += cut_log(uri, files, lowest, written_before_ms=readers_ms, dry_run=self._dry_run)
        if not swept.waiting and not self._dry_run:
            self._settled[incarnation] = key

    def _files(self, incarnation: str) -> list[StoredFile]:
        """The files of a table, by their paths inside it; listed from the root, since listing makes directories."""
        prefix = f"{TABLES}{incarnation}/"
        files = stored_files(self._options.root, prefix)
        return [file._replace(path=file.path.removeprefix(prefix)) for file in files]

    def _purge(self, now: _Pass) -> None:
        """Delete directories of tables that no state has: purged ones, and those of attempts that died early."""
        root = self._options.root
        if "://" not in root and not Path(root, TABLES).exists():
            return
        incarnations = (
            now.heads.keys() | now.kept.keys() | now.parked | {table.incarnation for table in now.state.tables.values()}
        )
        prefixes = obstore.list_with_delimiter(store(root), TABLES.rstrip("/"))["common_prefixes"]
        for incarnation in sorted({prefix.rstrip("/").rpartition("/")[2] for prefix in prefixes} - incarnations):
            files = self._files(incarnation)
            youngest_ms = max((file.written_ms for file in files), default=0)
            fresh = incarnation not in now.retired and youngest_ms > now.now_ms - self._limits.orphan_grace_ms
            if fresh or now.enough():
                continue
            now.done.purged.append(incarnation)
            now.done.files += len(files)
            now.done.size_bytes += sum(file.size_bytes for file in files)
            if not self._dry_run:
                self._delete_table(incarnation, files)

    def _delete_table(self, incarnation: str, files: Sequence[StoredFile]) -> None:
        """The log first, from its end: until its first commit goes, what is left is a table at an older version."""
        uri = self._options.table_uri(incarnation)
        log = sorted((file.path for file in files if file.path.startswith(LOG)), reverse=True)
        for path in sorted(log, key=lambda path: path.endswith(".json")):
            delete(uri, [path])
        failpoint("upkeep/table-half")
        delete(uri, [file.path for file in files if not file.path.startswith(LOG)])
        if "://" not in uri:
            shutil.rmtree(uri, ignore_errors=True)

    def _compact(self, snapshot: Snapshot, runner: Runner, done: Kept) -> None:
        jobs = [
            Compaction(table, snapshot.tables[table.incarnation].version)
            for table in snapshot.state.tables.values()
            if table.incarnation in snapshot.tables
        ]
        waiting = [job for job in jobs if self._look(job)[1] != job.version]
        chosen = sorted(waiting, key=self._look)[:COMPACTIONS_MAX]
        done.unfinished |= len(waiting) > len(chosen)
        if self._dry_run or not chosen:
            return
        for job, version in zip(chosen, runner(partial(compact, options=self._options), chosen), strict=True):
            self._looked_at[job.table.incarnation] = self._passes, version
            if version != job.version:
                done.compacted[job.table.incarnation] = version

    def _look(self, job: Compaction) -> tuple[int, int]:
        return self._looked_at.get(job.table.incarnation, (0, -1))


def adopt(snapshot: Snapshot, done: Kept) -> Snapshot:
    """Return the writer's newest snapshot with the result of a pass, to be published by its next advance."""
    tables = {
        incarnation: msgspec.structs.replace(table, version=done.compacted.get(incarnation, table.version))
        for incarnation, table in snapshot.tables.items()
    }
    recoverable = {table.incarnation for table in snapshot.state.dropped}
    retired = {
        incarnation: PURGED if incarnation in done.retired else version
        for incarnation, version in snapshot.retired.items()
        if incarnation not in done.retired or incarnation in recoverable
    }
    return replace(snapshot, tables=tables, retired=retired)


PUBLISHED: Final = "snapshots/"
FORGOTTEN: Final = "forgotten/"
RETIRED: Final = "retired/"
SCHEMAS: Final = "schemas/"


class _Table(msgspec.Struct, frozen=True):
    version: int


class _Parked(msgspec.Struct, frozen=True):
    schema: str


class _Body(msgspec.Struct, frozen=True):
    schema: str
    tables: dict[str, _Table]
    retired: dict[str, int]
    published_ms: int
    checkpoint_ts: int
    parked: tuple[_Parked, ...] = ()


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest snapshot, which stays whatever the limits are."""

    number: int
    checkpoint_ts: int
    versions: dict[str, int]
    retired: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Kept:
    """A snapshot in little memory: there are thousands, and a lake may have hundreds of tables."""

    number: int
    published_ms: int
    schemas: tuple[str, ...]
    names: tuple[str, ...]
    versions: "array[int]"

    def moment(self) -> RetainedSnapshot:
        return RetainedSnapshot(self.number, self.published_ms, dict(zip(self.names, self.versions, strict=True)))


class Shelf:
    """Snapshots by number; each is read once, however many passes there are."""

    def __init__(self, options: DeltaOptions, *, dry_run: bool = False) -> None:
        self._uri = options.control_uri
        self._dry_run = dry_run
        self._kept_files: dict[str, _Kept] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        """The sets of tables that snapshots have, each once."""
        self._newest: Newest | None = None

    def newest(self) -> Newest | None:
        """Return the newest snapshot of the last `refresh`; None for a lake without any."""
        return self._newest

    def refresh(self) -> None:
        """Read newly published snapshots, and drop deleted ones."""
        paths = sorted(file.path for prefix in (PUBLISHED, FORGOTTEN) for file in self._listed(prefix))
        self._kept_files = {path: kept for path in paths if (kept := self._kept(path)) is not None}
        self._names = {kept.names: kept.names for kept in self._kept_files.values()}
        published = [path for path in self._kept_files if path.startswith(PUBLISHED)]
        self._newest = None
        if published:
            body, moment = self._read(max(published)), self._kept_files[max(published)].moment()
            self._newest = Newest(moment.number, body.checkpoint_ts, dict(moment.versions), body.retired)

    def moments(self) -> Iterator[RetainedSnapshot]:
        """Return all snapshots whose tables must stay readable: published ones, and recently forgotten ones."""
        return (kept.moment() for kept in self._kept_files.values())

    def forget(self, now_ms: int, limits: Limits) -> list[int]:
        """Forget snapshots beyond the limits; return their numbers."""
        published = [
            RetainedSnapshot(kept.number, kept.published_ms, {})
            for path, kept in self._kept_files.items()
            if path.startswith(PUBLISHED)
        ]
        numbers = forgettable(published, now_ms, limits)
        for number in numbers:
            old, new = (f"{prefix}{number:020d}.json" for prefix in (PUBLISHED, FORGOTTEN))
            if not self._dry_run:
                self._move(old, new)
            self._kept_files[new] = self._kept_files.pop(old)
        return numbers

    def _move(self, old: str, new: str) -> None:
        body = read_file(self._uri, old)
        if body is None:  # another upkeep was faster
            return
        obstore.put(writable(self._uri), new, body)
        failpoint("upkeep/snapshot-copied")
        delete(self._uri, [old])

    def drop_forgotten(self, forgotten_before_ms: int) -> None:
        """Delete what was forgotten at or before a time, and schemas that no snapshot references any more."""
        if self._dry_run:
            return
        expired = [file.path for file in self._listed(FORGOTTEN) if file.written_ms <= forgotten_before_ms]
        delete(self._uri, expired)
        for path in expired:
            self._kept_files.pop(path, None)
        schemas = {f"{SCHEMAS}{schema}.json" for kept in self._kept_files.values() for schema in kept.schemas}
        unused = [
            file.path
            for file in self._listed(SCHEMAS)
            if file.path not in schemas and file.written_ms <= forgotten_before_ms
        ]
        if self._newest is not None:
            delete(self._uri, unused)

    def retired_since_ms(self, retired: AbstractSet[str]) -> dict[str, int]:
        """Return since when each of `retired` has been retired; recovered ones are removed from the record."""
        since_ms = {file.path.removeprefix(RETIRED): file.written_ms for file in self._listed(RETIRED)}
        if self._dry_run:
            return since_ms
        delete(self._uri, [f"{RETIRED}{incarnation}" for incarnation in since_ms if incarnation not in retired])
        for incarnation in retired - set(since_ms):
            obstore.put(writable(self._uri), f"{RETIRED}{incarnation}", b"")
        return since_ms

    def _listed(self, prefix: str) -> list[StoredFile]:
        return stored_files(self._uri, prefix)

    def _kept(self, path: str) -> _Kept | None:
        if path in self._kept_files:
            return self._kept_files[path]
        try:
            body = self._read(path)
        except FileNotFoundError:
            return None
        names = tuple(body.tables)
        names = self._names.setdefault(names, names)
        versions = array("q", (table.version for table in body.tables.values()))
        schemas = (body.schema, *(group.schema for group in body.parked))
        return _Kept(int(path.rpartition("/")[2].removesuffix(".json")), body.published_ms, schemas, names, versions)

    def _read(self, path: str) -> _Body:
        body = obstore.get(store(self._uri), path).bytes().to_bytes()
        return decode_body(body, f"{self._uri}/{path}", _Body)


FAILURES: Final = (TidegateError, *STORE_ERRORS, DeltaError)
"""Errors that end a pass and not the feed: the next pass begins where this one stopped."""
AGAIN_S: Final = 5.0
"""Time to the next pass if this one did not finish."""
LIMITS: Final = "limits.json"


@dataclass(frozen=True, slots=True)
class Pass:
    """The result of one pass over tables and changelog."""

    kept: Kept
    trimmed: Trimmed

    @property
    def unfinished(self) -> bool:
        return self.kept.unfinished or self.trimmed.unfinished


class LakeUpkeep:
    """The upkeep of one lake; `due` says when it is time for a pass. With `notes` the limits are stored in the lake."""

    def __init__(
        self,
        options: DeltaOptions,
        limits: Limits,
        *,
        interval_s: float = 0,
        dry_run: bool = False,
        notes: bool = False,
    ) -> None:
        self._options, self._limits, self._interval_s, self._notes = options, limits, interval_s, notes
        self._tables = Upkeep(options, limits, dry_run=dry_run)
        self._changelog = ChangelogTrim(options.changelog_uri, dry_run=dry_run)
        self._next_s = time.monotonic() + interval_s

    def due(self) -> bool:
        """Return True if it is time for a pass."""
        return time.monotonic() >= self._next_s

    def run(
        self, snapshot: Snapshot, frontier: int | None, runner: Runner, *, enough: Callable[[], bool] = lambda: False
    ) -> Pass:
        """Return the outcome of one pass over the lake whose writer's newest snapshot is `snapshot`."""
        self._next_s = time.monotonic() + self._interval_s
        if self._notes:
            note_limits(self._options, self._limits)
            self._notes = False
        trimmed = self._changelog.run(
            changelog_bound(snapshot.needed_ts, frontier, self._limits),
            runner,
            reader_grace_ms=self._limits.reader_grace_ms,
            orphan_grace_ms=self._limits.orphan_grace_ms,
        )
        done = Pass(self._tables.run(snapshot, runner, enough), trimmed)
        if done.unfinished:
            self._next_s = min(self._next_s, time.monotonic() + AGAIN_S)
        return done


def note_limits(options: DeltaOptions, limits: Limits) -> None:
    """Store the limits in the lake, for manual upkeep."""
    obstore.put(writable(options.control_uri), LIMITS, msgspec.json.encode(limits))


def noted_limits(options: DeltaOptions) -> Limits:
    """Return the limits stored by the lake's feed; the defaults for a lake without any."""
    body = read_file(options.control_uri, LIMITS)
    return Limits() if body is None else msgspec.json.decode(body, type=Limits)


def storing_errors(runner: Runner) -> Runner:
    """Return `runner` with errors of a store in its jobs as SinkError."""
    return lambda work, jobs: runner(partial(_storing, work), jobs)


def _storing(work: Callable[[Any], Any], job: Any) -> Any:
    try:
        return work(job)
    except STORE_ERRORS as error:
        raise SinkError(f"upkeep: {first_line(error)}") from error
