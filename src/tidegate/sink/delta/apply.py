"""Running a unit in a worker: each step becomes one commit of its table, which carries the new position.

    for each step:   table's position >= step's ──► done before, skip
                     else read, compute, write files, commit at version + 1
                          version taken ──► somebody was faster: read again, decide again

The somebody is an earlier try of the same steps (a worker that outlived its driver); steps give the same result
whoever runs them, so losing the race is no loss.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from tidegate.engine.change import Chunk
from tidegate.engine.plan import Alter, Create, Exchange, Position, Rows, Step, Trim, Unit, position_of
from tidegate.engine.ports import Changes
from tidegate.model.errors import SinkError, TidegateError
from tidegate.model.roads import RoadCounts
from tidegate.model.table import TableInfo, TableName
from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import Action, CommitConflict, TableSnapshot
from tidegate.objectstore.failpoint import reach
from tidegate.sink.delta.alter import alter, dates_as_text, seen_since
from tidegate.sink.delta.columns import first_schema, stored_columns
from tidegate.sink.delta.iceberg.move import read_ahead
from tidegate.sink.delta.iceberg.project import project
from tidegate.sink.delta.mode_steps import ROW_STEPS, inherited
from tidegate.sink.delta.modes import MODE, check_mode, form_of
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.partitions import exchange, trim
from tidegate.sink.delta.position import no_rows, position, progress
from tidegate.sink.delta.rows import if_any

TRIES_MAX: Final = 5


@dataclass(slots=True)
class TableResult:
    """What a unit did to one stored table; `version` is its Delta version afterwards."""

    incarnation: str
    name: TableName
    version: int
    rows: int = 0
    ahead: int = 0
    """Where the table stood already when a step was found done; above the round's end if a longer one was cut off."""
    messages: int = 0
    corrupt: int = 0
    roads: RoadCounts = field(default_factory=RoadCounts)


def run_unit(unit: Unit, changes: Changes, options: DeltaOptions) -> list[TableResult]:
    """Bring the unit's tables to the end of its steps; the result tells each table once."""
    results: dict[str, TableResult] = {}
    last: dict[str, TableInfo] = {}
    since: dict[str, int] = {}
    for step in unit.steps:
        for nth, table in enumerate(_tables_of(step)):
            done = _retrying(lambda step=step, table=table: _run(step, table, changes, options))  # type: ignore[misc]
            if isinstance(step, Exchange) and nth == 0:
                reach("apply/exchange-half")
            result = results.setdefault(table.incarnation, TableResult(table.incarnation, table.name, 0))
            result.name, result.version = table.name, done.version
            result.rows += done.tally.rows
            result.corrupt += done.tally.corrupt
            result.roads.update(done.tally.roads)
            result.ahead = max(result.ahead, done.ahead)
            last[table.incarnation] = table
            since.setdefault(table.incarnation, done.before)
    if options.iceberg:
        for incarnation, result in results.items():
            project(options.table_uri(incarnation), result.version, last[incarnation], since[incarnation])
    return list(results.values())


def _tables_of(step: Step) -> tuple[TableInfo, ...]:
    match step:
        case Rows() | Create():
            return (step.table,)
        case Alter() | Trim():
            return (step.new,)
        case Exchange():
            return step.partitioned, step.other


T = TypeVar("T")


def _retrying(work: Callable[[], T]) -> T:
    for _ in range(TRIES_MAX):
        try:
            return work()
        except CommitConflict as conflict:
            last = conflict
    raise SinkError(f"{last}: another run keeps committing to this table; run one changefeed per lake") from last


@dataclass(slots=True)
class _Tally:
    """Counts the rows of chunks while a step reads them."""

    rows: int = 0
    corrupt: int = 0
    roads: RoadCounts = field(default_factory=RoadCounts)

    def passing(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            self.rows += len(chunk)
            self.corrupt += chunk.corrupt
            self.roads.update(chunk.roads)
            yield chunk


class _Done(NamedTuple):
    before: int
    """The table's version before the step."""
    version: int
    tally: _Tally = _Tally()
    ahead: int = 0


def _run(step: Step, table: TableInfo, changes: Changes, options: DeltaOptions) -> _Done:
    """Do one step for one table, unless it is done."""
    uri = options.table_uri(table.incarnation)
    snapshot = deltalog.load(uri)
    if snapshot is not None:
        check_mode(options.mode, snapshot.configuration.get(MODE, "replica"), f"table {table.name} in {options.root}")
    if isinstance(step, Create):
        return _create(step, snapshot, uri, options)
    if snapshot is None:
        raise no_rows(table, uri)
    at = position(snapshot, options.feed)
    if at >= position_of(step):
        return _Done(snapshot.version, snapshot.version, ahead=at[0])
    if isinstance(step, Rows):
        if options.iceberg:
            read_ahead(uri, snapshot.version)
        late = seen_since(snapshot, step.table, options)
        if actions := late or dates_as_text(snapshot, step.table, options):
            deltalog.commit(uri, snapshot.version + 1, actions, operation="ALTER", metadata={"feed": options.feed})
            return _run(step, table, changes, options)
        return _rows(step, at, snapshot, changes, options)
    try:
        actions = _ddl_actions(step, table, snapshot, options)
    except TidegateError as error:
        raise _located(error, step, table) from error
    reach("apply/ddl-written")
    _commit(snapshot, actions, step, options, type(step).__name__.upper())
    reach("apply/ddl-committed")
    return _Done(snapshot.version, snapshot.version + 1)


def _located(error: TidegateError, step: Step, table: TableInfo) -> TidegateError:
    ts, _ = position_of(step)
    query = getattr(step, "query", "")
    located = type(error)(f"table {table.name} at ts {ts}: {error}. DDL: {query}")
    return located.at(table=str(table.name), commit_ts=ts)


def _commit(
    snapshot: TableSnapshot, actions: Sequence[Action], step: Step, options: DeltaOptions, operation: str
) -> None:
    at = position_of(step)
    metadata: Mapping[str, Any] = {"feed": options.feed, "ts": at[0], "seq": at[1], "ddl": getattr(step, "query", "")}
    moved = progress(options.feed, at)
    deltalog.commit(snapshot.uri, snapshot.version + 1, [*actions, *moved], operation=operation, metadata=metadata)


def _create(step: Create, snapshot: TableSnapshot | None, uri: str, options: DeltaOptions) -> _Done:
    if snapshot is not None:
        return _Done(snapshot.version, snapshot.version, ahead=position(snapshot, options.feed)[0])
    reach("apply/before-create")
    past = inherited(step.old, uri, (step.ts, step.seq), options) if step.old is not None else None
    schema, kept = past or (first_schema(step.table, options), [])
    deltalog.create(
        uri,
        schema.fields(),
        [*progress(options.feed, (step.ts, step.seq)), *kept],
        metadata={"feed": options.feed, "ts": step.ts, "seq": step.seq, "table": str(step.table.name)},
        configuration=schema.configuration(options),
        name=str(step.table.name),
    )
    reach("apply/after-create")
    return _Done(-1, 0)


def _rows(
    step: Rows,
    at: Position,
    snapshot: TableSnapshot,
    changes: Changes,
    options: DeltaOptions,
) -> _Done:
    chunks = if_any(changes.batches(step.table.name, max(step.after, at[0]), step.upto))
    if chunks is None:
        return _Done(snapshot.version, snapshot.version)
    reach("apply/rows-read")
    columns, tally = stored_columns(snapshot), _Tally()
    how = ROW_STEPS[form_of(step.table, options.mode)]
    actions = how.write(snapshot, columns, how.read(tally.passing(chunks), step.table, columns, options))
    reach("apply/rows-written")
    _commit(snapshot, actions, step, options, how.operation)
    reach("apply/rows-committed")
    return _Done(snapshot.version, snapshot.version + 1, tally)


def _ddl_actions(
    step: Alter | Trim | Exchange, table: TableInfo, snapshot: TableSnapshot, options: DeltaOptions
) -> list[Action]:
    match step:
        case Alter():
            reach("apply/before-alter")
            return alter(step, snapshot, options)
        case Trim():
            reach("apply/before-trim")
            return trim(step, snapshot, options)
        case Exchange():
            return exchange(step, table, snapshot, options)
