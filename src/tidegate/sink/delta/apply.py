"""Running a unit in a worker: each step becomes one commit of its table, which carries the new position.

    for each step:   table's position >= step's ──► done before, skip
                     else read, compute, write files, commit at version + 1
                          version taken ──► somebody was faster: read again, decide again

The somebody is an earlier try of the same steps (a worker that outlived its driver); steps give the same result
whoever runs them, so losing the race is no loss.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.feed.step import Alter, Create, Exchange, Position, Rows, Step, Trim, Unit, position_of
from tidegate.model.errors import Fenced, SinkError, TidegateError
from tidegate.model.event import Value
from tidegate.model.table import TableInfo, TableName
from tidegate.schema.convert import converter
from tidegate.schema.literal import stored_value
from tidegate.schema.partition import partition_of
from tidegate.sink.delta.columns import (
    Convert,
    Evolution,
    StoredColumn,
    configuration,
    evolve,
    first_columns,
    logical_key,
    stored_columns,
)
from tidegate.sink.delta.files import read
from tidegate.sink.delta.merge import append, merge, rewrite
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.rows import log_rows, net_changes
from tidegate.sink.delta.types import arrow_type, from_neutral, is_number, map_neutral, to_neutral
from tidegate.spark import deltalog
from tidegate.spark.deltalog import Action, CommitConflict, Snapshot

__all__ = ["ChangeReader", "TableResult", "run_unit"]

TRIES_MAX: Final = 5


class ChangeReader(Protocol):
    """Reads the row changes of one table out of a landed range; picklable."""

    def read(self, name: TableName, after: int, upto: int) -> pa.Table:
        """The changes with after < commit_ts <= upto, as ROWS_SCHEMA."""


@dataclass(slots=True)
class TableResult:
    """What a unit did to one stored table; `version` is its Delta version afterwards."""

    incarnation: str
    name: TableName
    version: int
    rows: int = 0
    ddls: int = 0
    warnings: list[str] = field(default_factory=list)


def run_unit(unit: Unit, reader: ChangeReader, options: DeltaOptions) -> list[TableResult]:
    """Bring the unit's tables to the end of its steps; the result tells each table once."""
    results: dict[str, TableResult] = {}
    for step in unit.steps:
        for table in _tables_of(step):
            snapshot, rows = _retrying(lambda step=step, table=table: _run(step, table, reader, options))  # type: ignore[misc]
            result = results.setdefault(table.incarnation, TableResult(table.incarnation, table.name, 0))
            result.name, result.version = table.name, snapshot
            result.rows += rows
            result.ddls += not isinstance(step, Rows)
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
    raise Fenced(f"{last}: another writer keeps committing to this table; run one changefeed per lake") from last


def _run(step: Step, table: TableInfo, reader: ChangeReader, options: DeltaOptions) -> tuple[int, int]:
    """Do one step for one table; give its version and the number of row changes applied."""
    uri = options.table_uri(table.incarnation)
    snapshot = deltalog.load(uri)
    if isinstance(step, Create):
        return _create(step, snapshot, uri, options), 0
    if snapshot is None:
        raise SinkError(f"table {table.name}: its stored rows at {uri} are gone; start the feed anew in an empty lake")
    at = position(snapshot, options.feed)
    if at >= position_of(step):
        return snapshot.version, 0
    if isinstance(step, Rows):
        return _rows(step, at, snapshot, reader, options)
    try:
        actions = _ddl_actions(step, table, snapshot, options)
    except TidegateError as error:
        raise _located(error, step, table) from error
    _commit(snapshot, actions, step, options, type(step).__name__.upper())
    return snapshot.version + 1, 0


def _located(error: TidegateError, step: Step, table: TableInfo) -> TidegateError:
    ts, _ = position_of(step)
    query = getattr(step, "query", "")
    return type(error)(f"table {table.name} at ts {ts}: {error}. DDL: {query}")


def position(snapshot: Snapshot, feed: str) -> Position:
    """Where a stored table stands."""
    return snapshot.txn(feed) or 0, snapshot.txn(f"{feed}/seq") or 0


def _progress(feed: str, at: Position) -> list[Action]:
    return [deltalog.txn(feed, at[0]), deltalog.txn(f"{feed}/seq", at[1])]


def _commit(snapshot: Snapshot, actions: Sequence[Action], step: Step, options: DeltaOptions, operation: str) -> None:
    at = position_of(step)
    metadata: Mapping[str, Any] = {"feed": options.feed, "ts": at[0], "seq": at[1], "ddl": getattr(step, "query", "")}
    progress = _progress(options.feed, at)
    deltalog.commit(snapshot.uri, snapshot.version + 1, [*actions, *progress], operation=operation, metadata=metadata)


def _create(step: Create, snapshot: Snapshot | None, uri: str, options: DeltaOptions) -> int:
    if snapshot is not None:
        return snapshot.version
    columns = first_columns(step.table, options)
    deltalog.create(
        uri,
        [column.field() for column in columns],
        _progress(options.feed, (step.ts, step.seq)),
        metadata={"feed": options.feed, "ts": step.ts, "seq": step.seq, "table": str(step.table.name)},
        configuration=configuration(max((column.mapping_id for column in columns), default=0)),
        name=str(step.table.name),
    )
    return 0


def _rows(
    step: Rows,
    at: Position,
    snapshot: Snapshot,
    reader: ChangeReader,
    options: DeltaOptions,
) -> tuple[int, int]:
    slice_ = reader.read(step.table.name, max(step.after, at[0]), step.upto)
    if slice_.num_rows == 0:
        return snapshot.version, 0
    columns = stored_columns(snapshot)
    if step.table.handle_key:
        changes = net_changes(slice_, step.table, columns, options)
        actions = merge(snapshot.uri, snapshot.files(), columns, changes)
    else:
        actions = append(snapshot.uri, log_rows(slice_, step.table, columns, options), columns)
    _commit(snapshot, actions, step, options, "MERGE" if step.table.handle_key else "WRITE")
    return snapshot.version + 1, slice_.num_rows


def _ddl_actions(
    step: Alter | Trim | Exchange, table: TableInfo, snapshot: Snapshot, options: DeltaOptions
) -> list[Action]:
    match step:
        case Alter():
            return _alter(step, snapshot, options)
        case Trim():
            return _trim(step, snapshot, options)
        case Exchange():
            return _exchange(step, table, snapshot, options)


def _alter(step: Alter, snapshot: Snapshot, options: DeltaOptions) -> list[Action]:
    change = evolve(snapshot, step.old, step.new, options)
    described = deltalog.describe(
        snapshot.table_id,
        [column.field() for column in change.columns],
        snapshot.partition_columns,
        {**snapshot.configuration, **configuration(change.max_id)},
        str(step.new.name),
    )
    if not change.rewrites:
        return [described]
    try:
        return [described, *_rewritten(snapshot, change, step, options)]
    except TidegateError:
        if options.schema_change != "try_evolve":
            raise
        return [described, *_rewritten(snapshot, replace(change, conversions=()), step, options)]


def _rewritten(snapshot: Snapshot, change: Evolution, step: Alter, options: DeltaOptions) -> list[Action]:
    files = snapshot.files()
    before = stored_columns(snapshot)
    rows = (_changed(read(snapshot.uri, file, before), before, change, step, options) for file in files)
    return rewrite(snapshot.uri, files, rows, change.columns, logical_key(step.new, change.columns))


def _changed(
    rows: pa.Table,
    before: Sequence[StoredColumn],
    change: Evolution,
    step: Alter,
    options: DeltaOptions,
) -> pa.Table:
    """Stored rows after a change of columns."""
    have = {column.mapping_id: rows.column(at) for at, column in enumerate(before)}
    zone, zero_date = options.time_zone, options.zero_date
    for fill in change.fills:
        value = [stored_value(fill.column, time_zone=zone, commit_ts=step.ts)]
        one = from_neutral(value, fill.column.type, fill.target.delta, time_zone=zone, zero_date=zero_date)
        have[fill.target.mapping_id] = pa.repeat(one[0], rows.num_rows)
    for turn in change.conversions:
        have[turn.target.mapping_id] = _converted(have[turn.source.mapping_id], turn, step, options)
    arrays = [
        have.get(column.mapping_id, pa.nulls(rows.num_rows, arrow_type(column.delta))) for column in change.columns
    ]
    return pa.Table.from_arrays(arrays, names=[column.name for column in change.columns])


def _converted(stored: Any, turn: Convert, step: Alter, options: DeltaOptions) -> Any:
    """A stored column after its change of type; plain widening of numbers is one cast."""
    zone = options.time_zone
    rule = converter(turn.old.type, turn.new.type, time_zone=zone, commit_ts=step.ts)
    numbers = all(is_number(arrow_type(side.delta)) for side in (turn.source, turn.target))
    if rule is None and numbers:
        return stored.cast(arrow_type(turn.target.delta))
    return map_neutral(
        stored,
        turn.old.type,
        turn.new.type,
        turn.target.delta,
        rule or _same,
        time_zone=zone,
        zero_date=options.zero_date,
    )


def _same(value: Value) -> Value:
    return value


def _trim(step: Trim, snapshot: Snapshot, options: DeltaOptions) -> list[Action]:
    columns = stored_columns(snapshot)
    return _filtered(snapshot, columns, step.old, frozenset(step.partitions), options, keep_inside=False)


def _exchange(step: Exchange, table: TableInfo, snapshot: Snapshot, options: DeltaOptions) -> list[Action]:
    """The rows of `table` after the swap; the partner is read as it was just before its own half of it."""
    inside = frozenset({step.partition})
    mine = stored_columns(snapshot)
    partner_info = step.other if table.incarnation == step.partitioned.incarnation else step.partitioned
    partner = _before(step, partner_info, options)
    theirs = stored_columns(partner)
    if table.incarnation == step.partitioned.incarnation:
        outside = _partition_rows(snapshot, mine, step.partitioned, inside, options, keep_inside=False)
        coming = [read(partner.uri, file, theirs) for file in partner.files()]
    else:
        outside = []
        coming = _partition_rows(partner, theirs, step.partitioned, inside, options, keep_inside=True)
    names = [column.name for column in mine]
    incoming = [rows.rename_columns(names) for rows in coming]
    return rewrite(snapshot.uri, snapshot.files(), [*outside, *incoming], mine, logical_key(table, mine))


def _before(step: Exchange, table: TableInfo, options: DeltaOptions) -> Snapshot:
    """A partner's snapshot just before its half of the exchange, done or not."""
    uri = options.table_uri(table.incarnation)
    snapshot = deltalog.load(uri)
    while snapshot is not None and position(snapshot, options.feed) >= position_of(step):
        snapshot = deltalog.load(uri, snapshot.version - 1)
    if snapshot is None:
        raise SinkError(f"table {table.name}: its stored rows at {uri} are gone; start the feed anew in an empty lake")
    return snapshot


def _filtered(
    snapshot: Snapshot,
    columns: Sequence[StoredColumn],
    table: TableInfo,
    partitions: frozenset[str],
    options: DeltaOptions,
    *,
    keep_inside: bool,
) -> list[Action]:
    rows = _partition_rows(snapshot, columns, table, partitions, options, keep_inside=keep_inside)
    return rewrite(snapshot.uri, snapshot.files(), rows, columns, logical_key(table, columns))


def _partition_rows(
    snapshot: Snapshot,
    columns: Sequence[StoredColumn],
    table: TableInfo,
    partitions: Iterable[str],
    options: DeltaOptions,
    *,
    keep_inside: bool,
) -> list[pa.Table]:
    """The rows that lie inside (or outside) the named partitions."""
    if table.partition is None:
        raise SinkError(f"table {table.name} is not partitioned in the definition of ts {table.version}")
    zone = options.time_zone
    locate = partition_of(table.partition, table.columns, time_zone=zone, primary_key=table.handle_key)
    named = {name.lower() for name in partitions}
    by_id = {column.upstream_id: column for column in columns}
    parts: list[pa.Table] = []
    for file in snapshot.files():
        rows = read(snapshot.uri, file, columns)
        values = {
            column.name: to_neutral(rows.column(by_id[column.id].name), column.type, time_zone=zone)
            for column in table.columns
            if column.id in by_id
        }
        inside = [
            (locate(dict(zip(values, row, strict=True))) or "").lower() in named
            for row in zip(*values.values(), strict=True)
        ]
        mask = pa.array(inside, pa.bool_())
        parts.append(rows.filter(mask if keep_inside else pc.invert(mask)))
    return parts
