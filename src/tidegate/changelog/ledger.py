"""The changelog's commits: positions and data together, by one writer at a time.

    version 0      the empty table
    version n      add files │ txn "<feed>/land" │ userMetadata = State: positions, frontier, epoch, halts

Every commit names its version, and the version must be free.  Whoever finds it taken reads the newest State again:

    same epoch, same positions    somebody appended (a dead letter was replayed): try the next version
    and frontier                  (or upkeep took old files out)
    anything else                 another landing took over: Fenced

A source without partitions (a change log) has no positions: the frontier is how far it has landed.

`claim` is a landing's first commit and raises the epoch, so a landing that outlived its driver is fenced at its next
commit even if the new one has not landed a row yet.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from tidegate.changelog.report import Halt, LandedFile, State, TaskReport
from tidegate.codec.options import DecodeOptions
from tidegate.engine.change import CONTROL_SCHEMA, ROWS_SCHEMA
from tidegate.engine.frontier import Reached, forward, frontier, larger
from tidegate.model.errors import ChangelogBroken, ConfigError, Fenced, SinkRefused, SourceError
from tidegate.model.kept_state import StateKind, convert_state, stamped
from tidegate.objectstore import deltalog
from tidegate.objectstore.failpoint import reach

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
