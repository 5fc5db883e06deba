"""The changelog: landed changes as a Delta table that is read by timestamp, and its commits.

    LAKE/_tidegate/changelog/
      _delta_log/          one commit a batch; its userMetadata is the State
      part=rows/           Parquet, one table per row group, commit_ts ascending inside it
      part=control/        DDLs and dead letters

    Changelog.slice(after, upto)  ->  ChangeSlice  --pickle-->  executor: .batches(table) -> Chunks

A slice knows from footers alone which row groups hold which table and which timestamps; reading a table opens only the
files that have it.  Rows are stored as they arrived: a restart of the changefeed sends some again, with the same
commit_ts and content, and they are stored twice.  `refresh` reads new commits, one small file each; the whole log is
listed once.  Readers see a batch's rows, DDLs and positions together or not at all.  The messages in control files may
be large and many, so they are only read on request.

    version 0      the empty table
    version n      add files │ txn "<feed>/land" │ userMetadata = State: positions, frontier, epoch, halts

There is one writer at a time.  Every commit names its version, which must be free; if it is taken, the newest State is
read again:

    same epoch, positions and frontier    an append (a replayed dead letter) or upkeep: try the next version
    anything else                         another landing took over: Fenced

`claim` is a landing's first commit and raises the epoch, so a landing that outlived its driver is fenced at its next
commit even if the new one has not landed a row yet.  A source without partitions (a change log) has no positions: its
frontier is its position.
"""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import obstore
import pyarrow as pa
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
    Halt,
    LandedFile,
    State,
    TaskReport,
    groups_of,
)
from tidegate.codec.options import DecodeOptions
from tidegate.engine.change import CONTROL_SCHEMA, ROWS_SCHEMA, DeadLetter, Place, PlacedDdl, ordered_ddls
from tidegate.engine.frontier import Reached, Slowest, forward, frontier, larger, slowest
from tidegate.model.errors import ChangelogBroken, ConfigError, Fenced, SinkRefused, SourceError
from tidegate.model.event import Ddl, ToldSession
from tidegate.model.kept_state import StateKind, convert_state, stamped
from tidegate.objectstore import deltalog
from tidegate.objectstore.failpoint import reach
from tidegate.objectstore.stores import opened, read_file, store

PART: Final = "part"
DELTA_TYPES: Final[Mapping[pa.DataType, object]] = {
    pa.string(): "string",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.binary(): "binary",
    ROWS_SCHEMA.field("after").type: {"type": "array", "elementType": "binary", "containsNull": True},
}
TRIES: Final = 20
"""Appends come from people at a prompt; twenty in a row mean something else."""


def create(uri: str) -> None:
    """Make an empty changelog unless there is one."""
    columns = {entry.name: entry.type for schema in (ROWS_SCHEMA, CONTROL_SCHEMA) for entry in schema}
    fields = [deltalog.schema_field(name, DELTA_TYPES[kind]) for name, kind in columns.items()]
    fields.append(deltalog.schema_field(PART, "string"))
    try:
        deltalog.create(uri, fields, metadata=_metadata(State()), partition_columns=[PART], name="changelog")
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
            f"{uri}: a commit holds no positions; something else wrote to the changelog. Restore it to the "
            "version before, or start a fresh feed"
        ) from broken


def claim(uri: str, feed: str, decode: DecodeOptions | None, completed: Callable[[State], State]) -> State:
    """Take the changelog over for a new landing; `completed` completes the positions of the last State.

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
            raise ConfigError(f"{uri} was landed from a change log; start a fresh feed in a lake of its own")
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
    reach("landing/before-claim")
    claimed = _commit_over(uri, next_state, (), "CLAIM")
    reach("landing/after-claim")
    return claimed


def append(uri: str, files: Sequence[LandedFile], *, rows: int, ddls: int) -> State:
    """Add files outside any landing; positions, epoch and frontier stay what they are."""

    def next_state(state: State) -> State:
        return msgspec.structs.replace(state, messages=0, dead=0, rows=rows, ddls=ddls)

    return _commit_over(uri, next_state, files, "REPLAY")


def replace(uri: str, old: Sequence[LandedFile], new: Sequence[LandedFile], *, floor: int | None = None) -> bool:
    """Put `new` in the place of `old` in a commit that moves nothing but the floor; False if some of `old` is gone."""
    for _ in range(TRIES):
        snapshot = deltalog.load(uri)
        stored = {} if snapshot is None else {file.path: file for file in snapshot.files()}
        if snapshot is None or any(file.path not in stored for file in old):
            return False
        state = read_state(uri, snapshot.version)
        floor = larger(floor, state.floor)
        state = msgspec.structs.replace(state, floor=floor, messages=0, rows=0, ddls=0, dead=0)
        removed = [deltalog.remove(stored[file.path], data_change=False) for file in old]
        reach("trim/before-commit")
        try:
            _commit(uri, snapshot.version + 1, state, new, "UPKEEP", removed=removed)
        except deltalog.CommitConflict:
            continue
        reach("trim/after-commit")
        return True
    return False


def commit_batch(
    uri: str,
    known: State,
    reports: Sequence[TaskReport],
    *,
    order_by_offset: bool = False,
    gone: Collection[str] = (),
) -> State:
    """Make a batch that was read from `known` durable and visible; return the new State, without the positions of
    topics that are gone.

    Raises Fenced when another landing has moved the changelog on.
    """
    state = advance(known, reports, order_by_offset=order_by_offset)
    if gone:
        kept = {topic: partitions for topic, partitions in state.positions.items() if topic not in gone}
        state = msgspec.structs.replace(state, positions=kept)
    files = [file for report in reports for file in report.files]
    reach("landing/before-commit")
    for _ in range(TRIES):
        version, current = newest(uri)
        if _stands(current) != _stands(known):
            raise fenced(uri, known.epoch, current.epoch)
        state = msgspec.structs.replace(state, floor=current.floor)
        try:
            _commit(uri, version + 1, state, files, "LAND")
        except deltalog.CommitConflict:
            continue
        reach("landing/after-commit")
        return state
    raise SourceError(f"{uri}: {TRIES} commits in a row found their version taken; look for another writer")


def fenced(uri: str, epoch: int, later: int) -> Fenced:
    """Return the error of a landing that a later one has replaced."""
    return Fenced(f"{uri}: landing epoch {epoch} was replaced by epoch {later}; this one stops. Run one feed a lake")


def _stands(state: State) -> tuple[object, ...]:
    return state.epoch, state.positions, state.frontier


def advance(known: State, reports: Sequence[TaskReport], *, order_by_offset: bool = False) -> State:
    """Return the State after a batch. Raises Fenced when the batch does not begin where `known` stands."""
    positions = {topic: dict(partitions) for topic, partitions in known.positions.items()}
    landed = known.frontier
    for report in reports:
        if not report.topic:
            landed = _forward(known, report)
            continue
        before = positions.setdefault(report.topic, {}).get(report.partition, Reached(report.start))
        if before.offset != report.start:
            raise Fenced(
                f"topic {report.topic} partition {report.partition}: the batch begins at offset {report.start}, the "
                f"changelog stands at {before.offset}"
            )
        positions[report.topic][report.partition] = forward(before, report.position, report.resolved)
    if order_by_offset:
        latest = max((one.resolved or 0 for some in positions.values() for one in some.values()), default=0)
        positions = {
            topic: {number: forward(one, one.offset, latest) for number, one in some.items()}
            for topic, some in positions.items()
        }
    return msgspec.structs.replace(
        known,
        batch=known.batch + 1,
        positions=positions,
        frontier=frontier(positions, landed),
        halted=_halted(known, reports, positions),
        messages=sum(report.messages for report in reports),
        rows=sum(table.rows for report in reports for table in report.tables),
        ddls=sum(report.ddls for report in reports),
        dead=sum(report.dead for report in reports),
    )


def _forward(known: State, report: TaskReport) -> int:
    """The frontier behind a stretch of a change log."""
    if known.frontier not in {None, report.start}:
        raise Fenced(
            f"the batch begins at ts {report.start} of the change log, the changelog stands at {known.frontier}"
        )
    return report.position


def _halted(
    known: State, reports: Sequence[TaskReport], positions: Mapping[str, Mapping[int, Reached]]
) -> tuple[Halt, ...]:
    """Old halts that still stand, then new ones."""
    fresh = {report.halt.place: report.halt for report in reports if report.halt is not None}
    old = {
        halt.place: halt
        for halt in known.halted
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
    raise SourceError(f"{uri}: {TRIES} commits in a row found their version taken; look for another writer")


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
    deltalog.commit(uri, version, actions, operation=operation, metadata=_metadata(state))


def _add(file: LandedFile) -> deltalog.Action:
    stats: dict[str, object] = {"numRecords": file.rows}
    if file.min_ts is not None:
        stats |= {"minValues": {"commit_ts": file.min_ts}, "maxValues": {"commit_ts": file.max_ts}}
    return deltalog.add(file.path, file.size_bytes, stats, partition={PART: file.part})


def _metadata(state: State) -> dict[str, object]:
    return {"tidegate": stamped(StateKind.CHANGELOG, state)}


BODIES: Final = frozenset({"raw_key", "raw_value"})


@dataclass(frozen=True, slots=True)
class ControlFile:
    """What one file says."""

    ddls: tuple[PlacedDdl, ...]
    dead: tuple[DeadLetter, ...]
    halted: tuple[DeadLetter, ...]
    replayed: tuple[Place, ...]
    refused: tuple[DeadLetter, ...] = ()

    @property
    def has_letters(self) -> bool:
        """True if there are messages in it."""
        return bool(self.dead or self.halted or self.refused)


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
            PlacedDdl(_place(row), _ddl(row), kind == LEFT_OUT)
            for kind in (DDL, LEFT_OUT)
            for row in by_kind.get(kind, ())
        ),
        dead=tuple(_letter(row) for row in by_kind.get(DEAD, ())),
        halted=tuple(_letter(row) for row in by_kind.get(HALT, ())),
        replayed=tuple(_place(row) for row in by_kind.get(REPLAYED, ())),
        refused=tuple(_letter(row) for row in by_kind.get(REFUSED, ())),
    )


def _place(row: dict[str, Any]) -> Place:
    return Place(row["topic"] or "", row["partition"] or 0, row["offset"] or 0, row["seq"])


def _ddl(row: dict[str, Any]) -> Ddl:
    return Ddl(
        schema=row["schema"],
        table=row["table"],
        query=row["query"],
        commit_ts=row["commit_ts"],
        type=row["ddl_type"],
        written=UNSET if (written := row.get("written")) is None else written,
        session=UNSET if (told := row.get("session")) is None else msgspec.json.decode(told, type=ToldSession),
    )


def _letter(row: dict[str, Any]) -> DeadLetter:
    return DeadLetter(
        _place(row),
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
    """Return where a lake keeps its changelog."""
    return f"{lake.rstrip('/')}/_tidegate/changelog"


class Changelog:
    """A changelog as of its last `refresh`; before the first one it is empty."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.version = -1
        self._stood_s = 0.0
        """When that version was last seen in the log, on a steady clock."""
        self.state = State()
        self._files: dict[str, LandedFile] = {}
        self._controls: dict[str, ControlFile] = {}

    def refresh(self) -> bool:
        """Read what was committed since; True if there was anything."""
        before = self.version
        if self.version < 0:
            self._load()
        for version, actions in self._newer():
            for action in actions:
                self._take(action)
            self.version, self._stood_s = version, time.monotonic()
        return self.version != before

    def positions(self) -> Mapping[str, Mapping[int, Reached]]:
        """Return what is durable of every partition of every topic."""
        return self.state.positions

    def frontier(self) -> int | None:
        """Return the ts up to which everything has arrived, DDLs at that very ts excepted; None before there is one."""
        return self.state.frontier

    def floor(self) -> int:
        """Return the ts above which every landed row is still there; slices from below it may lack some."""
        return self.state.floor or 0

    def slowest(self) -> Slowest | None:
        """Return the partition that holds the frontier back."""
        return slowest(self.state.positions)

    def ddls(self, after: int, upto: int) -> list[PlacedDdl]:
        """Return each DDL with after <= commit_ts <= upto once, in order.

        Inclusive of `after`, because a DDL may arrive when its ts is resolved already; the caller knows which of
        those at `after` it has done."""
        seen = [placed for control in self.controls() for placed in control.ddls]
        return ordered_ddls(placed for placed in seen if after <= (placed.ddl.commit_ts or 0) <= upto)

    def slice(self, after: int, upto: int) -> ChangeSlice:
        """Return the row changes with after < commit_ts <= upto."""
        paths = [file.path for file in self._files.values() if file.part == "rows" and _touches(file, after, upto)]
        with ThreadPoolExecutor(FOOTER_THREADS) as pool:
            footers = list(pool.map(lambda path: groups_of(self.uri, path), paths))
        groups = tuple(group for footer in footers for group in footer if group.touches(after, upto))
        return ChangeSlice(self.uri, after, upto, groups)

    def dead_letters(self) -> list[DeadLetter]:
        """Messages that were left out, by place; those replayed since are no longer among them."""
        controls = self.controls()
        replayed = {place for control in controls for place in control.replayed}
        letters = {letter.place: letter for control in self._with_bodies() for letter in control.dead}
        return [letters[place] for place in sorted(letters) if place not in replayed]

    def refused(self) -> list[DeadLetter]:
        """Messages that landed and that a sink refused, by place, until somebody decides about them."""
        return sorted((one for control in self._with_bodies() for one in control.refused), key=lambda one: one.place)

    def halted(self) -> list[tuple[Halt, DeadLetter | None]]:
        """Return where the feed stands still, with the message if it was kept."""
        kept = {letter.place: letter for control in self._with_bodies() for letter in control.halted}
        return [(halt, kept.get(halt.place)) for halt in self.state.halted]

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
        """The commits behind `version`, each as its actions."""
        while self.version >= 0:
            version = self.version + 1
            body = read_file(self.uri, f"_delta_log/{version:020d}.json")
            if body is None:
                if self._was_cut():
                    self._load()
                if self.version < version:
                    return
                continue
            yield version, [json.loads(line) for line in body.splitlines() if line.strip()]

    def _was_cut(self) -> bool:
        """True if upkeep has cut the log above the version read last: what was missed is only in the newest one.

        A store is not asked for that at each look: the log stays for longer than CUT_S behind its end."""
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
                self._controls.pop(removed["path"], None)
            case {"commitInfo": told}:
                self.state = state_of(self.uri, json.loads(told.get("userMetadata") or "{}"))

    def _with_bodies(self) -> list[ControlFile]:
        """The control files that hold letters, messages included; not kept, as they may be large."""
        self.controls()
        lettered = [path for path in self._files if (one := self._controls.get(path)) and one.has_letters]
        return [read_control(self.uri, path, bodies=True) for path in lettered]

    def controls(self) -> list[ControlFile]:
        """Return what the control files say, without the messages of letters: these may be large, and this is kept."""
        paths = [file.path for file in self._files.values() if file.part == "control"]
        for path in paths:
            if path not in self._controls:
                self._controls[path] = read_control(self.uri, path)
        return [self._controls[path] for path in paths]


def _touches(file: LandedFile, after: int, upto: int) -> bool:
    if file.min_ts is None or file.max_ts is None:
        return True
    return file.max_ts > after and file.min_ts <= upto
