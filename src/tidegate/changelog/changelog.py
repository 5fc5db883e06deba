"""The changelog: landed changes as a Delta table that is read by timestamp, its commits and its upkeep.

    LAKE/_tidegate/changelog/
      _delta_log/          one commit a batch; its userMetadata is the State
      part=rows/           Parquet, one table per row group, commit_ts ascending inside it
      part=control/        DDLs and dead letters

    Changelog.slice(after, upto)  ->  ChangeSlice  --pickle-->  executor: .batches(table) -> Chunks

A slice knows from footers alone which row groups hold which table and which timestamps; reading a table opens only the
files that have it.  Rows are stored as they arrived: a restart of the changefeed sends some again, with the same
commit_ts and content, and they are stored twice.  `refresh` reads new commits, one small file each; the whole log is
listed once.  Readers see a batch's rows, DDLs and positions together or not at all.  Messages in control files can be
large and numerous, so they are read only on request.

    version 0      the empty table
    version n      add files │ txn "<feed>/land" │ userMetadata = State: positions, frontier, epoch, halts

There is one writer at a time.  Every commit names its version, which must be free; if it is taken, the newest State is
read again:

    same epoch, positions and frontier    an append (a replayed dead letter) or upkeep: try the next version
    anything else                         another landing took over: Fenced

`claim` is a landing's first commit and raises the epoch, so a landing that outlived its driver is fenced at its next
commit even if the new one has not landed a row yet.  A source without partitions (a change log) has no positions: its
frontier is its position.

Upkeep (ChangelogTrim) drops merged rows and folds small files:

    commit_ts   ──────────────┬───────────────────┬──────────────►
    row files   │a│b│ c │d│e│ │ f │g│h│ i │j│k│l│ │ ...
                └─ dropped ─┘ bound   └─ folded ─┘ checkpoint          bound: engine/retention.py, changelog_bound

    1 drop      row files whose last commit_ts is at or below the bound
    2 drop      control files that are no longer needed: DDLs below the bound, replayed dead letters
    3 fold      many small row files into one, still one table per row group; many small control files into one
    4 sweep     delete files that left the log a grace period ago, and those that no commit ever named

Steps 1 to 3 are commits that leave positions, epoch and frontier as they were, so a landing continues after them as it
does after an append; only the floor rises, which tells readers how far back they can go.  A fold is only committed if
all files that it replaces still exist, so it never adds rows twice.  Earlier slices find their files until the sweep.
Dead letters are kept until they are replayed, and messages at which the feed halts until it continues.

A plan or a sink may refuse a landed message: a value that its column cannot hold, an unreadable DDL.  The error
has `messages`:

    dead-letter=skip   put_aside: one commit removes their rows and DDLs from the changelog and makes them dead letters;
                       the round is planned again
    dead-letter=halt   note: they can be listed and shown; the feed ends, and a user skips or replays them

A message is removed as it landed: complete, with its rows of other tables, and a DDL with its repeats.
"""

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from functools import partial
from itertools import groupby
from typing import Any, Final, TypeAlias

import msgspec
import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import UNSET

from tidegate.changelog.files import (
    DDL,
    DEAD,
    HALT,
    LEFT_OUT,
    REFUSED,
    REPLAYED,
    ChangeSlice,
    ControlFiles,
    Halt,
    LandedFile,
    RowFiles,
    RowGroup,
    State,
    TaskReport,
    groups_of,
)
from tidegate.codec.options import DecodeOptions
from tidegate.engine.change import (
    CONTROL_SCHEMA,
    ROWS_SCHEMA,
    DeadLetter,
    EventPosition,
    SourceDdl,
    ordered_ddls,
    rest_of,
)
from tidegate.engine.frontier import Reached, Slowest, forward, frontier, larger, slowest
from tidegate.engine.plan import identity
from tidegate.model.errors import ChangelogBroken, ConfigError, Fenced, SinkRefused, SourceError
from tidegate.model.event import Ddl, DdlSession
from tidegate.model.kept_state import StateKind, convert_state, stamped
from tidegate.model.table import TableName
from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import Lifespans, cut_log, sweep
from tidegate.objectstore.failpoint import failpoint
from tidegate.objectstore.stores import opened, read_file, store, stored_files
from tidegate.objectstore.threads import ContextPool

PART: Final = "part"
DELTA_TYPES: Final[Mapping[pa.DataType, object]] = {
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.binary(): "binary",
    ROWS_SCHEMA.field("after").type: {"type": "array", "elementType": "binary", "containsNull": True},
}
TRIES: Final = 20
"""Attempts to append before giving up: users append by hand, so more conflicts have another cause."""


def create(uri: str) -> None:
    """Make an empty changelog unless there is one."""
    columns = {entry.name: entry.type for schema in (ROWS_SCHEMA, CONTROL_SCHEMA) for entry in schema}
    fields = [deltalog.schema_field(name, DELTA_TYPES[kind]) for name, kind in columns.items()]
    fields.append(deltalog.schema_field(PART, "string"))
    try:
        deltalog.create(
            uri,
            fields,
            metadata={"tidegate": stamped(StateKind.CHANGELOG, State())},
            partition_columns=[PART],
            name="changelog",
        )
    except deltalog.CommitConflict:
        return


def newest(uri: str) -> tuple[int, State]:
    """Return the newest version of the changelog and its State; (-1, State()) when there is none."""
    snapshot = deltalog.load(uri)
    if snapshot is None:
        return -1, State()
    return snapshot.version, read_state(uri, snapshot.version)


def read_state(uri: str, version: int) -> State:
    """Return the State in one commit. Raises ChangelogBroken when the commit has none."""
    return state_of(uri, deltalog.user_metadata(uri, version))


def state_of(uri: str, metadata: Mapping[str, Any]) -> State:
    """Return the State in a commit's userMetadata. Raises ChangelogBroken when it holds none, StateTooNew."""
    try:
        return convert_state(StateKind.CHANGELOG, metadata["tidegate"], State, uri)
    except (KeyError, msgspec.ValidationError) as broken:
        raise ChangelogBroken(
            f"{uri}: a commit has no positions: another program wrote to the changelog. Restore the version before "
            f"it, or start a new changefeed"
        ) from broken


def claim(uri: str, feed: str, decode: DecodeOptions | None, completed: Callable[[State], State]) -> State:
    """Take the changelog over for a new landing; `completed` adds missing positions to the last State.

    Raises SinkRefused when it belongs to another changefeed, ConfigError when a change log has landed there and
    `completed` names partitions."""
    shown = decode and msgspec.structs.replace(decode, claim_check_storage_uri="", upstream_uri="")

    def next_state(state: State) -> State:
        if state.feed not in {"", feed}:
            raise SinkRefused(
                f"{uri} belongs to changefeed {state.feed!r}, not {feed!r}: "
                "give --changefeed-id or another sink directory"
            )
        begun = completed(state)
        if begun.positions and not state.positions and state.frontier is not None:
            raise ConfigError(f"{uri} was landed from a change log; start a new changefeed in a separate lake")
        return State(
            feed=feed,
            epoch=state.epoch + 1,
            batch=state.batch,
            decode=shown,
            positions=begun.positions,
            identities=begun.identities,
            frontier=state.frontier,
            halted=begun.halted,
            floor=state.floor,
        )

    create(uri)
    failpoint("landing/before-claim")
    claimed = _commit_over(uri, next_state, (), "CLAIM")
    failpoint("landing/after-claim")
    return claimed


def append(uri: str, files: Sequence[LandedFile], *, rows: int, ddls: int) -> State:
    """Add files outside any landing; positions, epoch and frontier do not change."""

    def next_state(state: State) -> State:
        return msgspec.structs.replace(state, messages=0, dead=0, rows=rows, ddls=ddls)

    return _commit_over(uri, next_state, files, "REPLAY")


def replace(uri: str, old: Sequence[LandedFile], new: Sequence[LandedFile], *, floor: int | None = None) -> bool:
    """Replace the files `old` by `new` in a commit that moves only the floor; return False if some of `old` is gone."""
    for _ in range(TRIES):
        snapshot = deltalog.load(uri)
        stored = {} if snapshot is None else {file.path: file for file in snapshot.files()}
        if snapshot is None or any(file.path not in stored for file in old):
            return False
        state = read_state(uri, snapshot.version)
        floor = larger(floor, state.floor)
        state = msgspec.structs.replace(state, floor=floor, messages=0, rows=0, ddls=0, dead=0)
        removed = [deltalog.remove(stored[file.path], data_change=False) for file in old]
        failpoint("trim/before-commit")
        try:
            _commit(uri, snapshot.version + 1, state, new, "UPKEEP", removed=removed)
        except deltalog.CommitConflict:
            continue
        failpoint("trim/after-commit")
        return True
    return False


def commit_batch(
    uri: str,
    before: State,
    reports: Sequence[TaskReport],
    *,
    order_by_offset: bool = False,
    gone: Collection[str] = (),
) -> State:
    """Commit a batch that was read from `known`; return the new State, without the positions of deleted topics.

    Raises Fenced when another landing has moved the changelog on.
    """
    state = advance(before, reports, order_by_offset=order_by_offset)
    if gone:
        kept = {topic: partitions for topic, partitions in state.positions.items() if topic not in gone}
        state = msgspec.structs.replace(state, positions=kept)

    def next_state(current: State) -> State:
        if (current.epoch, current.positions, current.frontier) != (before.epoch, before.positions, before.frontier):
            raise fenced(uri, before.epoch, current.epoch)
        return msgspec.structs.replace(state, floor=current.floor)

    failpoint("landing/before-commit")
    committed = _commit_over(uri, next_state, [file for report in reports for file in report.files], "LAND")
    failpoint("landing/after-commit")
    return committed


def fenced(uri: str, epoch: int, later: int) -> Fenced:
    """Return the error for a landing that a later one has fenced."""
    return Fenced(
        f"{uri}: landing epoch {epoch} was superseded by epoch {later} and stops. Run one changefeed per lake"
    )


def advance(state: State, reports: Sequence[TaskReport], *, order_by_offset: bool = False) -> State:
    """Return the State after a batch. Raises Fenced when the batch does not start at the position of `known`."""
    positions = {topic: dict(partitions) for topic, partitions in state.positions.items()}
    landed = state.frontier
    for report in reports:
        if not report.topic:
            if state.frontier not in {None, report.start}:
                raise Fenced(
                    f"the batch starts at ts {report.start} of the change log, but the changelog is at {state.frontier}"
                )
            landed = report.position
            continue
        before = positions.setdefault(report.topic, {}).get(report.partition, Reached(report.start))
        if before.offset != report.start:
            raise Fenced(
                f"topic {report.topic} partition {report.partition}: the batch begins at offset {report.start}, but "
                f"the changelog is at {before.offset}"
            )
        positions[report.topic][report.partition] = forward(before, report.position, report.resolved)
    if order_by_offset:
        latest = max((reached.resolved or 0 for some in positions.values() for reached in some.values()), default=0)
        positions = {
            topic: {number: forward(reached, reached.offset, latest) for number, reached in some.items()}
            for topic, some in positions.items()
        }
    return msgspec.structs.replace(
        state,
        batch=state.batch + 1,
        positions=positions,
        frontier=frontier(positions, landed),
        halted=_halted(state, reports, positions),
        messages=sum(report.messages for report in reports),
        rows=sum(table.rows for report in reports for table in report.tables),
        ddls=sum(report.ddls for report in reports),
        dead=sum(report.dead for report in reports),
    )


def _halted(
    state: State, reports: Sequence[TaskReport], positions: Mapping[str, Mapping[int, Reached]]
) -> tuple[Halt, ...]:
    fresh = {report.halt.position: report.halt for report in reports if report.halt is not None}
    old = {
        halt.position: halt
        for halt in state.halted
        if positions.get(halt.topic, {}).get(halt.partition, Reached(0)).offset == halt.offset
    }
    return tuple({**old, **fresh}.values())


def _commit_over(uri: str, next_state: Callable[[State], State], files: Sequence[LandedFile], operation: str) -> State:
    for _ in range(TRIES):
        version, current = newest(uri)
        state = next_state(current)
        try:
            _commit(uri, version + 1, state, files, operation)
        except deltalog.CommitConflict:
            continue
        return state
    raise SourceError(f"{uri}: {TRIES} consecutive commits found their version taken; another writer is active")


def _commit(
    uri: str,
    version: int,
    state: State,
    files: Sequence[LandedFile],
    operation: str,
    *,
    removed: Sequence[deltalog.Action] = (),
) -> None:
    actions = [deltalog.txn(f"{state.feed}/land", state.batch), *removed, *map(_add, files)]
    metadata = {"tidegate": stamped(StateKind.CHANGELOG, state)}
    deltalog.commit(uri, version, actions, operation=operation, metadata=metadata)


def _add(file: LandedFile) -> deltalog.Action:
    stats: dict[str, object] = {"numRecords": file.rows}
    if file.min_ts is not None:
        stats |= {"minValues": {"commit_ts": file.min_ts}, "maxValues": {"commit_ts": file.max_ts}}
    return deltalog.add(file.path, file.size_bytes, stats, partition={PART: file.part})


BODIES: Final = frozenset({"raw_key", "raw_value"})


@dataclass(frozen=True, slots=True)
class ControlFile:
    """The content of one control file."""

    ddls: tuple[SourceDdl, ...]
    dead: tuple[DeadLetter, ...]
    halted: tuple[DeadLetter, ...]
    replayed: tuple[EventPosition, ...]
    refused: tuple[DeadLetter, ...] = ()


def read_control(uri: str, path: str, *, bodies: bool = False) -> ControlFile:
    """Return the control file at `path` of the changelog at `uri`; letters have their messages only with `bodies`."""
    names = [name for name in CONTROL_SCHEMA.names if bodies or name not in BODIES]
    with opened(uri, path) as source:
        rows = pq.ParquetFile(source).read(columns=names).to_pylist()
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_kind.setdefault(row["kind"], []).append(row)
    return ControlFile(
        ddls=tuple(
            SourceDdl(_position(row), _ddl(row), kind == LEFT_OUT, rows_follow=bool(row.get("rows_follow")))
            for kind in (DDL, LEFT_OUT)
            for row in by_kind.get(kind, ())
        ),
        dead=tuple(_letter(row) for row in by_kind.get(DEAD, ())),
        halted=tuple(_letter(row) for row in by_kind.get(HALT, ())),
        replayed=tuple(_position(row) for row in by_kind.get(REPLAYED, ())),
        refused=tuple(_letter(row) for row in by_kind.get(REFUSED, ())),
    )


def _position(row: dict[str, Any]) -> EventPosition:
    return EventPosition(row["topic"] or "", row["partition"] or 0, row["offset"] or 0, row["seq"])


def _ddl(row: dict[str, Any]) -> Ddl:
    return Ddl(
        schema=row["schema"],
        table=row["table"],
        query=row["query"],
        commit_ts=row["commit_ts"],
        type=row["ddl_type"],
        written=UNSET if (written := row.get("written")) is None else written,
        session=UNSET if (session := row.get("session")) is None else msgspec.json.decode(session, type=DdlSession),
    )


def _letter(row: dict[str, Any]) -> DeadLetter:
    return DeadLetter(
        _position(row),
        row["error_code"],
        row["error"],
        row["error_offset"],
        row.get("raw_key"),
        row.get("raw_value"),
        row["commit_ts"],
    )


FOOTER_THREADS: Final = 8
CUT_S: Final = 10.0


def changelog_uri(lake: str) -> str:
    """Return the address of a lake's changelog."""
    return f"{lake.rstrip('/')}/_tidegate/changelog"


class Changelog:
    """A changelog as of its last `refresh`; before the first one it is empty."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.version = -1
        self._stood_s = 0.0
        """The time at which that version was last seen in the log, on a monotonic clock."""
        self.state = State()
        self._files: dict[str, LandedFile] = {}
        self._controls: dict[LandedFile, ControlFile] = {}

    def refresh(self) -> bool:
        """Read new commits; return True if there were any."""
        before = self.version
        if self.version < 0:
            self._load()
        for version, actions in self._newer():
            for action in actions:
                self._take(action)
            self.version, self._stood_s = version, time.monotonic()
        return self.version != before

    def positions(self) -> Mapping[str, Mapping[int, Reached]]:
        """Return the durable position of every partition of every topic."""
        return self.state.positions

    def frontier(self) -> int | None:
        """Return the ts up to which everything has arrived, except DDLs at exactly that ts; None if there is none
        yet. It is below a DDL as long as rows that belong to it follow."""
        frontier = self.state.frontier
        return frontier if frontier is None or self.rests_at(frontier) == frontier else frontier - 1

    def rests_at(self, ts: int) -> int:
        """Return what `Source.rests_at` does."""
        return rest_of((source_ddl for control in self.controls().values() for source_ddl in control.ddls), ts)

    def floor(self) -> int:
        """Return the ts above which all landed rows are kept; slices from below it may lack rows."""
        return self.state.floor or 0

    def slowest(self) -> Slowest | None:
        """Return the partition that holds the frontier back."""
        return slowest(self.state.positions)

    def ddls(self, after: int, upto: int) -> list[SourceDdl]:
        """Return each DDL with after <= commit_ts <= upto once, in order.

        Inclusive of `after`, because a DDL may arrive when its ts is resolved already; the caller knows which DDLs at
        `after` it has applied."""
        seen = [source_ddl for control in self.controls().values() for source_ddl in control.ddls]
        return ordered_ddls(source_ddl for source_ddl in seen if after <= (source_ddl.ddl.commit_ts or 0) <= upto)

    def slice(self, after: int, upto: int) -> ChangeSlice:
        """Return the row changes with after < commit_ts <= upto."""
        paths = [
            file.path
            for file in self._files.values()
            if file.part == "rows"
            and (file.min_ts is None or file.max_ts is None or (file.max_ts > after and file.min_ts <= upto))
        ]
        with ContextPool(FOOTER_THREADS) as pool:
            footers = list(pool.map(lambda path: groups_of(self.uri, path), paths))
        groups = tuple(group for footer in footers for group in footer if group.touches(after, upto))
        return ChangeSlice(self.uri, after, upto, groups)

    def dead_letters(self) -> list[DeadLetter]:
        """Messages that were skipped, by position, without those replayed since."""
        replayed = {position for control in self.controls().values() for position in control.replayed}
        letters = {letter.position: letter for control in self._with_bodies() for letter in control.dead}
        return [letters[position] for position in sorted(letters) if position not in replayed]

    def refused(self) -> list[DeadLetter]:
        """Messages that a sink refused after they landed, by position, until they are skipped or replayed."""
        return sorted(
            (letter for control in self._with_bodies() for letter in control.refused),
            key=lambda letter: letter.position,
        )

    def halted(self) -> list[tuple[Halt, DeadLetter | None]]:
        """Return the positions at which the feed is halted, with the message if it was stored."""
        kept = {letter.position: letter for control in self._with_bodies() for letter in control.halted}
        return [(halt, kept.get(halt.position)) for halt in self.state.halted]

    def files(self) -> list[LandedFile]:
        """Return the files that make up the changelog."""
        return list(self._files.values())

    def frame(self, spark: Any, after: int | None = None, upto: int | None = None) -> Any:
        """Return the row changes as a Spark DataFrame of ROWS_SCHEMA's columns. Needs Delta's jars in the session."""
        from tidegate.engine.change import ROWS_SCHEMA

        frame = spark.read.format("delta").load(self.uri).where("part = 'rows'")
        if after is not None:
            frame = frame.where(f"commit_ts > {after:d}")
        if upto is not None:
            frame = frame.where(f"commit_ts <= {upto:d}")
        return frame.select(*ROWS_SCHEMA.names)

    def _load(self) -> None:
        snapshot = deltalog.load(self.uri)
        if snapshot is None:
            return
        self._files = {
            file.path: LandedFile(
                file.path,
                file.partition[PART] or "",
                file.size_bytes,
                file.rows,
                file.lows.get("commit_ts"),
                file.highs.get("commit_ts"),
            )
            for file in snapshot.files()
        }
        self.state = read_state(self.uri, snapshot.version)
        self.version, self._stood_s = snapshot.version, time.monotonic()

    def _newer(self) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        while self.version >= 0:
            version = self.version + 1
            path = f"_delta_log/{version:020d}.json"
            body = read_file(self.uri, path)
            if body is None:
                if self._was_cut():
                    self._load()
                if self.version < version:
                    return
                continue
            yield version, deltalog.decode_commit(body, f"{self.uri}/{path}")

    def _was_cut(self) -> bool:
        """True if upkeep has cut the log above the version read last, so that only the newest version has the missed
        commits. Object stores are not asked each time: the log stays for longer than CUT_S behind its end."""
        if "://" in self.uri and time.monotonic() - self._stood_s < CUT_S:
            return False
        try:
            obstore.head(store(self.uri), f"_delta_log/{self.version:020d}.json")
        except FileNotFoundError:
            return True
        self._stood_s = time.monotonic()
        return False

    def _take(self, action: Mapping[str, Any]) -> None:
        match action:
            case {"add": added}:
                stats = json.loads(added.get("stats") or "{}")
                self._files[added["path"]] = LandedFile(
                    added["path"],
                    added["partitionValues"][PART],
                    added["size"],
                    stats.get("numRecords", 0),
                    stats.get("minValues", {}).get("commit_ts"),
                    stats.get("maxValues", {}).get("commit_ts"),
                )
            case {"remove": removed}:
                self._files.pop(removed["path"], None)
            case {"commitInfo": commit_info}:
                self.state = state_of(self.uri, json.loads(commit_info.get("userMetadata") or "{}"))

    def _with_bodies(self) -> list[ControlFile]:
        return [
            read_control(self.uri, file.path, bodies=True)
            for file, control in self.controls().items()
            if control.dead or control.halted or control.refused
        ]

    def controls(self) -> Mapping[LandedFile, ControlFile]:
        """Return the control files, without the messages of letters, which may be large; the result is cached."""
        by_file = self._controls
        self._controls = {
            file: by_file.get(file) or read_control(self.uri, file.path)
            for file in self._files.values()
            if file.part == "control"
        }
        return self._controls


SMALL_BYTES: Final = 2 << 20
SMALL_FILES_MAX: Final = 32
FOLD_BYTES_MAX: Final = 16 << 20
FOLD_ROWS_MAX: Final = 500_000
"""What one fold takes, on disk."""
FOLDS_MAX: Final = 4
"""The most folds of one pass; the next pass continues."""
FOLD_FLUSH_BYTES: Final = 64 << 20
"""The bytes that a fold holds in memory at once."""
COMMITS_MAX: Final = 2_000
NOTHING: Final = ControlFile((), (), (), ())

Runner: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""Runs a function over some jobs, in workers or here."""


@dataclass(slots=True)
class Trimmed:
    """The outcome of one pass, or with dry_run of a simulated one."""

    dropped: int = 0
    folded: int = 0
    files: int = 0
    size_bytes: int = 0
    log_files: int = 0
    unfinished: bool = False


class ChangelogTrim:
    """The upkeep of one changelog, pass by pass."""

    def __init__(self, uri: str, *, dry_run: bool = False) -> None:
        self._uri, self._dry_run = uri, dry_run
        self._log = Changelog(uri)
        self._lifespans = Lifespans(uri)

    def run(
        self,
        bound: int,
        runner: Runner,
        *,
        reader_grace_ms: int,
        orphan_grace_ms: int,
        now_ms: int | None = None,
    ) -> Trimmed:
        """Run one pass, which drops everything at or below `bound`; `runner` runs folds."""
        done = Trimmed()
        self._log.refresh()
        if self._log.version < 0:
            return done
        self._drop(bound, done)
        if not self._dry_run:
            self._fold(runner, done)
        now_ms = int(time.time() * 1000) if now_ms is None else now_ms
        self._sweep(now_ms - reader_grace_ms, now_ms - orphan_grace_ms, done)
        return done

    def _drop(self, bound: int, done: Trimmed) -> None:
        expired = [
            file
            for file in self._log.files()
            if file.part == "rows" and file.max_ts is not None and file.max_ts <= bound
        ]
        left = _left(self._log.controls(), bound, {halt.position for halt in self._log.state.halted})
        empty = [file for file, control in left.items() if control == NOTHING]
        small = [file for file in left if file not in empty and file.size_bytes <= SMALL_BYTES]
        small = small if len(small) > SMALL_FILES_MAX else []
        done.dropped = len(expired) + len(empty)
        if self._dry_run or not (expired or empty or small):
            return
        new_files = rewritten(self._uri, [(file, left[file]) for file in small]) if small else ()
        if replace(self._uri, [*expired, *empty, *small], new_files, floor=bound if expired else None):
            done.folded += len(small)
            self._log.refresh()

    def _fold(self, runner: Runner, done: Trimmed) -> None:
        folds = _folds(self._log.files())
        done.unfinished = len(folds) > FOLDS_MAX
        folds = folds[:FOLDS_MAX]
        for files, new_files in zip(folds, runner(partial(fold, self._uri), folds) if folds else (), strict=True):
            if replace(self._uri, files, new_files):
                done.folded += len(files)

    def _sweep(self, readers_ms: int, orphans_ms: int, done: Trimmed) -> None:
        files = stored_files(self._uri)
        if not self._lifespans.advance(self._log.version, COMMITS_MAX):
            done.unfinished = True
            return
        swept = sweep(
            self._lifespans,
            files,
            lambda _: False,
            removed_before_ms=readers_ms,
            orphans_before_ms=orphans_ms,
            dry_run=self._dry_run,
        )
        done.files, done.size_bytes = swept.files, swept.size_bytes
        lowest = self._lifespans.version
        done.log_files = cut_log(self._uri, files, lowest, written_before_ms=readers_ms, dry_run=self._dry_run)


def fold(uri: str, files: Sequence[LandedFile]) -> tuple[LandedFile, ...]:
    """Write the rows of some files as one file (more, if they are large), not yet committed."""
    folded = RowFiles(uri, flush_bytes=FOLD_FLUSH_BYTES)
    for some in portions(group for file in files for group in groups_of(uri, file.path)):
        low, high = min(group.min_ts for group in some), max(group.max_ts for group in some)
        name = some[0].name
        folded.add([(name, ChangeSlice(uri, low - 1, high, some).read(name))])
    return folded.close()


def portions(groups: Iterable[RowGroup], most_bytes: int = FOLD_FLUSH_BYTES) -> Iterator[tuple[RowGroup, ...]]:
    """Group the row groups to read together: those of one table, in commit_ts order, up to `most_bytes` in memory,
    which may be a thousand times the size on disk."""
    run: list[RowGroup] = []
    size_bytes = 0
    for group in sorted(groups, key=lambda group: (group.name.key, group.min_ts, group.path, group.number)):
        size_bytes += group.size_bytes
        if run and (group.name.key != run[0].name.key or size_bytes > most_bytes):
            yield tuple(run)
            run, size_bytes = [], group.size_bytes
        run.append(group)
    if run:
        yield tuple(run)


def _folds(files: Sequence[LandedFile]) -> list[list[LandedFile]]:
    """Groups of small row files that are adjacent in commit_ts, each for one task; none when there are few."""
    small = [file for file in files if file.part == "rows" and file.size_bytes <= SMALL_BYTES]
    if len(small) <= SMALL_FILES_MAX:
        return []
    heaps: list[list[LandedFile]] = [[]]
    size_bytes = rows = 0
    for file in sorted(small, key=lambda file: (file.max_ts or 0, file.path)):
        size_bytes, rows = size_bytes + file.size_bytes, rows + file.rows
        if size_bytes > FOLD_BYTES_MAX or rows > FOLD_ROWS_MAX:
            heaps.append([])
            size_bytes, rows = file.size_bytes, file.rows
        heaps[-1].append(file)
    return [heap for heap in heaps if len(heap) > 1]


def _left(
    controls: Mapping[LandedFile, ControlFile], bound: int, halts: Collection[EventPosition]
) -> dict[LandedFile, ControlFile]:
    """The part of each control file that is still needed. A mark "replayed" stays as long as any file has its dead
    letter, which is therefore removed first."""
    replayed = {position for control in controls.values() for position in control.replayed}
    letters = {letter.position for control in controls.values() for letter in control.dead}
    return {
        file: ControlFile(
            ddls=tuple(source_ddl for source_ddl in control.ddls if (source_ddl.ddl.commit_ts or 0) >= bound),
            dead=tuple(letter for letter in control.dead if letter.position not in replayed),
            halted=tuple(letter for letter in control.halted if letter.position in halts),
            replayed=tuple(position for position in control.replayed if position in letters),
            refused=tuple(letter for letter in control.refused if (letter.commit_ts or 0) > bound),
        )
        for file, control in controls.items()
    }


def rewritten(uri: str, controls: Sequence[tuple[LandedFile, ControlFile]]) -> tuple[LandedFile, ...]:
    """Write the remaining entries of some control files as one file (more, if letters are large), not yet committed."""
    files = ControlFiles(uri, FOLD_FLUSH_BYTES)
    for file, control in controls:
        left = {letter.position for letter in (*control.dead, *control.halted, *control.refused)}
        whole = read_control(uri, file.path, bodies=True) if left else control  # only the file has the messages
        kinds = ((DEAD, whole.dead), (HALT, whole.halted), (REFUSED, whole.refused))
        letters = [(kind, letter) for kind, some in kinds for letter in some if letter.position in left]
        marks = [(REPLAYED, DeadLetter(position, "", "", 0, None, None)) for position in control.replayed]
        files.add(control.ddls, [*letters, *marks])
    return files.close()


FLUSH_BYTES: Final = 64 << 20
NOTED_MAX: Final = 100
"""The most messages to keep of one error that ends a feed."""
PUT_ASIDE_TRIES: Final = 5

Instead = tuple[dict[TableName, pa.Table], Sequence[SourceDdl]]


def note(changelog: Changelog, letters: Sequence[DeadLetter]) -> None:
    """Store refused messages that are not stored yet."""
    noted = {letter.position for control in changelog.controls().values() for letter in control.refused}
    fresh = [letter for letter in letters[:NOTED_MAX] if letter.position not in noted]
    if fresh:
        files = ControlFiles(changelog.uri, FLUSH_BYTES)
        files.add((), [(REFUSED, letter) for letter in fresh])
        append(changelog.uri, files.close(), rows=0, ddls=0)


def put_aside(changelog: Changelog, letters: Sequence[DeadLetter], instead: Instead | None = None) -> bool:
    """Remove the landed rows of the messages of `letters`, which become dead letters or are replaced by rows and DDLs;
    return False if none of them has landed."""
    for _ in range(PUT_ASIDE_TRIES):
        changelog.refresh()
        old_rows = _holders(changelog, letters)
        old_controls = _without(changelog, {letter.position for letter in letters})
        if not old_rows and not any(left.ddls != control.ddls for _, control, left in old_controls):
            return False
        rows, controls = RowFiles(changelog.uri, flush_bytes=FLUSH_BYTES), ControlFiles(changelog.uri, FLUSH_BYTES)
        for group in (group for file in old_rows for group in groups_of(changelog.uri, file.path)):
            kept = _kept(_read(changelog.uri, group), letters)
            if kept.num_rows:
                rows.add([(group.name, kept)])
        if instead is None:
            controls.add((), [(DEAD, letter) for letter in letters])
        else:
            rows.add(instead[0].items())
            controls.add(instead[1], ())
        left = rewritten(changelog.uri, [(file, left) for file, _, left in old_controls])
        old = [*old_rows, *(file for file, *_ in old_controls)]
        if replace(changelog.uri, old, (*rows.close(), *controls.close(), *left)):
            changelog.refresh()
            return True
    raise SourceError(
        f"{changelog.uri}: files went {PUT_ASIDE_TRIES} times in a row while messages were moved to the dead letters"
    )


def _holders(changelog: Changelog, letters: Sequence[DeadLetter]) -> list[LandedFile]:
    times = [letter.commit_ts for letter in letters if letter.commit_ts is not None]
    low, high = min(times, default=0), max(times, default=(1 << 63) - 1)
    holders = []
    for file in changelog.files():
        groups = groups_of(changelog.uri, file.path) if file.part == "rows" else ()
        near = (_read(changelog.uri, group) for group in groups if group.touches(low - 1, high))
        if any(_kept(rows, letters).num_rows < rows.num_rows for rows in near):
            holders.append(file)
    return holders


def _read(uri: str, group: RowGroup) -> pa.Table:
    return ChangeSlice(uri, group.min_ts - 1, group.max_ts, (group,)).read(group.name)


def _kept(rows: pa.Table, letters: Iterable[DeadLetter]) -> pa.Table:
    """The rows of other messages."""
    for (topic, partition), some in groupby(
        sorted(letter.position for letter in letters), lambda position: (position.topic, position.partition)
    ):
        of_partition = pc.and_(pc.equal(rows["topic"], topic), pc.equal(rows["partition"], partition))
        resolved: Any = pc.and_(
            of_partition, pc.is_in(rows["offset"], pa.array([position.offset for position in some], pa.int64()))
        )
        rows = rows.filter(pc.invert(pc.fill_null(resolved, fill_value=False)))
    return rows


def _without(
    changelog: Changelog, positions: Collection[EventPosition]
) -> list[tuple[LandedFile, ControlFile, ControlFile]]:
    """The control files with DDLs of the messages or marks about them, before and after their removal."""
    controls = changelog.controls()
    gone = {
        _ddl_key(source_ddl)
        for control in controls.values()
        for source_ddl in control.ddls
        if EventPosition(source_ddl.position.topic, source_ddl.position.partition, source_ddl.position.offset)
        in positions
    }
    pairs = []
    for file, control in controls.items():
        left = changed(
            control,
            ddls=tuple(source_ddl for source_ddl in control.ddls if _ddl_key(source_ddl) not in gone),
            replayed=tuple(position for position in control.replayed if position not in positions),
            refused=tuple(letter for letter in control.refused if letter.position not in positions),
        )
        if left != control:
            pairs.append((file, control, left))
    return pairs


def _ddl_key(source_ddl: SourceDdl) -> tuple[int | None, str]:
    return source_ddl.ddl.commit_ts, identity(source_ddl.ddl)
