"""A scripted database in memory, a source that reads it, and a run of that source into a sink.

    story = Script()
    story.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(9))")
    story.commit(put("shop.t", id=1, v="a"), put("shop.u", id=7))     one transaction over two tables
    story.commit(put("shop.t", id=1, v="b"), remove("shop.u", id=7))  `put` of a known key is an UPDATE
    story.resolve()

    story.events        row changes and DDLs in commit order, each with its commit_ts
    story.marks         the resolved timestamps
    story.tables(ts)    the rows of every table as they are at `ts`

Each call takes the next timestamp, one second after the previous; rows committed `along` a DDL have its commit_ts and
come before it.  Tables are followed by schema/state.py; a DDL that cannot be followed changes nothing.

Each `refresh` of a ScriptedSource makes one resolved timestamp, and the changes before it, available.  It can simulate
faults:

    repeats          every row is there twice, within its transaction
    back             each mark is followed by the previous one: a source that loses its position
    late             a DDL arrives only after its ts is resolved
    outages          {"refresh": 2}: the first two calls raise SourceError, which is transient; for `start`, `refresh`,
                     `ddls`, `changes`, and `failure`, which ends the reading until a restart
    tells_ddls       False: a topic that began after the DDLs of its tables

    run_here(source, sink)                 until the source has no more data, in this process, without Spark and pauses
    run_here(source, sink, until=ts)       until the checkpoint reaches ts
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from tidegate.changelog.files import Encoder, RowColumns, chunks_of
from tidegate.codec.columnar.rows import Batch
from tidegate.codec.wire_table import wire_table
from tidegate.engine.change import Chunk, EventPosition, Layout, SourceDdl
from tidegate.engine.event_filter import action_of_text
from tidegate.engine.filter import TableFilter
from tidegate.engine.load_plan import LoadChunk, LoadPlan, LoadReader, LoadTable, create_statements, defined_ts
from tidegate.engine.loop import Engine, Feed, Meter
from tidegate.engine.plan import Drops
from tidegate.engine.ports import LocalTasks, RowRange, Sink, Source, TableSpan, Tasks
from tidegate.engine.progress import Progress
from tidegate.engine.reading import Reading
from tidegate.engine.retry_policy import RetryPolicy
from tidegate.engine.stop_signals import NoPauseEvent
from tidegate.model.errors import InputError, SchemaError, SourceError, TidegateError
from tidegate.model.event import Ddl, Delete, Insert, RowChange, Update, Value, Values, images
from tidegate.model.table import TableInfo, TableName
from tidegate.model.tso import compose
from tidegate.schema import effects
from tidegate.schema.literal import stored_value
from tidegate.schema.partition import partition_of
from tidegate.schema.state import SchemaState, apply_ddl

Row: TypeAlias = Mapping[str, Value]
"""The values of a row by column name."""
BEGIN_MS: Final = 1_700_000_000_000
STEP_MS: Final = 1000
UNREAD: Final = 51
"""The action of a DDL whose text cannot be read: TiDB's CREATE PLACEMENT POLICY."""


def commit_time(event: RowChange | Ddl) -> int:
    """Return the event's commit_ts."""
    assert event.commit_ts is not None, event
    return event.commit_ts


class ScriptedWrite(NamedTuple):
    """A transaction's change of one row of `table`: `values` are its new values, or for a removal its key; with `bare`
    its DELETE has only these. `key` is the old key of a row that changes it."""

    table: str
    values: Row
    removes: bool = False
    bare: bool = False
    key: Row | None = None


def put(table: str, **values: Value) -> ScriptedWrite:
    """Insert a row, or change those columns of the row with its key. A new row has NULL in columns without a value."""
    return ScriptedWrite(table, values)


def move(table: str, key: Row, **values: Value) -> ScriptedWrite:
    """Change those columns of the row of that key, the key's among them, by one UPDATE."""
    return ScriptedWrite(table, values, key=key)


def remove(table: str, **key: Value) -> ScriptedWrite:
    """Delete the row with that key."""
    return ScriptedWrite(table, key, removes=True)


def remove_bare(table: str, **key: Value) -> ScriptedWrite:
    """Delete the row with that key by a DELETE that has only the handle columns, as TiCDC sends it with
    `delete-only-output-handle-key-columns`."""
    return ScriptedWrite(table, key, removes=True, bare=True)


class ScriptedTables:
    """The tables of a database and their rows, updated event by event."""

    def __init__(self) -> None:
        self.state = SchemaState()
        self._rows: dict[str, list[Row]] = {}
        self._seq, self._ts = 0, 0

    def rows(self) -> dict[str, list[Row]]:
        """Return the rows of every table by its name."""
        return {str(table.name): list(self._rows[table.incarnation]) for table in self.state.tables.values()}

    def of(self, name: str) -> TableInfo:
        """Return the current definition of a table."""
        table = self.state.table(TableName(*name.split(".", 1)))
        assert table is not None, name
        return table

    def find(self, table: TableInfo, values: Row) -> Row | None:
        """Return the row of `table` with the key of `values`; None for a table without a key."""
        key = table.handle_key
        same = (row for row in self._rows[table.incarnation] if all(row[name] == values[name] for name in key))
        return next(same, None) if key else None

    def apply(self, event: RowChange | Ddl) -> None:
        """Apply an event."""
        if isinstance(event, Ddl):
            self._ddl(event)
            return
        table = self.of(f"{event.schema}.{event.table}")
        rows = self._rows[table.incarnation]
        before, after = (_row(event, values) for values in images(event))
        if before is not None:
            is_bare = before.keys() == set(table.handle_key)
            rows.remove((self.find(table, before) if is_bare else None) or before)
        if after is not None:
            rows.append(after)

    def _ddl(self, ddl: Ddl) -> None:
        ts = ddl.commit_ts or 0
        self._seq, self._ts = (self._seq + 1 if ts == self._ts else 1), ts
        try:
            self.state, all_effects = apply_ddl(self.state, ddl, self._seq)
        except (InputError, SchemaError):
            return
        for effect in all_effects:
            match effect:
                case effects.TableCreated(table) | effects.TableTruncated(_, table):
                    self._rows[table.incarnation] = []
                case effects.TableAltered(old, new):
                    self._rows[new.incarnation] = [_altered(row, old, new) for row in self._rows[old.incarnation]]
                case effects.PartitionsTruncated(table, names, _) | effects.PartitionsDropped(table, names, _):
                    self._rows[table.incarnation] = [
                        row for row in self._rows[table.incarnation] if _partition(table, row) not in names
                    ]
                case effects.PartitionExchanged(partitioned, partition, other):
                    own_rows, other_rows = self._rows[partitioned.incarnation], self._rows[other.incarnation]
                    leaving = [row for row in own_rows if _partition(partitioned, row) == partition]
                    self._rows[partitioned.incarnation] = [row for row in own_rows if row not in leaving] + other_rows
                    self._rows[other.incarnation] = leaving


class Script:
    """The events of a database; see the module's example. `begin` is the timestamp before all of them."""

    def __init__(self) -> None:
        self.begin = int(compose(BEGIN_MS))
        self.ts = self.begin
        self.events: list[RowChange | Ddl] = []
        self.marks: list[int] = []
        self._now = ScriptedTables()

    def tick(self) -> int:
        """Return the next timestamp."""
        self.ts = int(compose((self.ts >> 18) + STEP_MS))
        return self.ts

    def commit(self, *writes: ScriptedWrite) -> int:
        """Commit one transaction; return its commit_ts."""
        ts = self.tick()
        for write in writes:
            self._add(self._change(ts, write))
        return ts

    def ddl(self, name: str, query: str, *, along: tuple[ScriptedWrite, ...] = (), again: bool = False) -> int:
        """Run a DDL; return its commit_ts. `name` is its table's name afterwards, or a database's.

        `along` has the same commit_ts and comes before it; `again` gives it the timestamp of the last transaction or
        DDL."""
        ts = self.ts if again else self.tick()
        for write in along:
            self._add(self._change(ts, write))
        schema, _, table = name.partition(".")
        action = action_of_text(query, schema) or UNREAD
        self._add(Ddl(schema=schema, table=table, query=query, commit_ts=ts, type=action))
        return ts

    def resolve(self) -> int:
        """Resolve everything so far; return the resolved ts, which is the last commit_ts."""
        self.marks.append(self.ts)
        return self.ts

    def definition(self, name: str) -> TableInfo:
        """Return the current definition of a table."""
        return self._now.of(name)

    def rows(self, upto: int) -> list[RowChange]:
        """Return the row changes with commit_ts <= upto, in commit order."""
        return [event for event in self.events if not isinstance(event, Ddl) and (event.commit_ts or 0) <= upto]

    def ddls(self, upto: int) -> list[Ddl]:
        """Return the DDLs with commit_ts <= upto, in order."""
        return [event for event in self.events if isinstance(event, Ddl) and (event.commit_ts or 0) <= upto]

    def tables(self, upto: int) -> dict[str, list[Row]]:
        """Return the rows of every table at `upto`, after the DDLs of that timestamp."""
        return self.moments(upto, upto)[-1]

    def moments(self, since: int, upto: int) -> list[dict[str, list[Row]]]:
        """Return the rows of every table at `since`, and after each transaction and DDL from there to `upto`."""
        tables, moments = ScriptedTables(), [dict[str, list[Row]]()]
        for event, then in zip_longest(self.events, self.events[1:]):
            ts = commit_time(event)
            if ts > upto:
                break
            tables.apply(event)
            if then is None or isinstance(event, Ddl) or isinstance(then, Ddl) or commit_time(then) > ts:
                moments = [*(moments if ts > since else ()), tables.rows()]
        return moments

    def _change(self, ts: int, write: ScriptedWrite) -> RowChange:
        table = self._now.of(write.table)
        wire = wire_table(table)
        names = [field.name for field in wire.fields]
        row = self._now.find(table, write.values if write.key is None else write.key)
        shared = {
            "schema": table.name.schema,
            "table": table.name.table,
            "fields": wire.fields,
            "pk_names": wire.pk_names,
            "commit_ts": ts,
        }
        before = None if row is None else tuple(row[name] for name in names)
        after = tuple({**(row or {}), **write.values}.get(name) for name in names)
        if write.removes:
            assert before is not None, write
            if write.bare:
                handles = [index for index, field in enumerate(wire.fields) if field.handle]
                shared["fields"] = tuple(wire.fields[index] for index in handles)
                before = tuple(before[index] for index in handles)
            return Delete(before=before, **shared)  # type: ignore[arg-type]
        if before is not None:
            return Update(before=before, after=after, **shared)  # type: ignore[arg-type]
        return Insert(after=after, **shared)  # type: ignore[arg-type]

    def _add(self, event: RowChange | Ddl) -> None:
        self._now.apply(event)
        self.events.append(event)


def _row(event: RowChange, values: Values | None) -> Row | None:
    if values is None:
        return None
    return {field.name: value for field, value in zip(event.fields, values, strict=True)}


def _altered(row: Row, old: TableInfo, new: TableInfo) -> Row:
    """Return a stored row under the next definition; new columns have their default."""
    names = {column.id: column.name for column in old.columns}
    return {
        column.name: row[names[column.id]] if column.id in names else stored_value(column) for column in new.columns
    }


def _partition(table: TableInfo, row: Row) -> str | None:
    assert table.partition is not None, table.name
    return partition_of(table.partition, table.columns, primary_key=table.handle_key)(row)


CHUNK_ROWS: Final = 3
"""So few that a range has many chunks."""
TOPIC: Final = "script"


@dataclass(frozen=True, slots=True)
class ScriptedChanges:
    """The row changes of a script with after < commit_ts <= upto, in commit order."""

    after: int
    upto: int
    rows: tuple[RowChange, ...]

    def tables(self) -> dict[TableName, TableSpan]:
        return {
            name: TableSpan(len(rows), commit_time(rows[0]), commit_time(rows[-1]))
            for name, rows in _by_table(self.rows).items()
        }

    def row_ranges(self) -> Iterator[RowRange]:
        return (RowRange(commit_time(row), commit_time(row), 1, 100) for row in self.rows)

    def layouts(self, name: TableName, after: int, upto: int) -> list[Layout]:
        return list(dict.fromkeys(Layout(row.fields, row.pk_names) for row in self._rows((name,), after, upto)))

    def batches(self, name: TableName, after: int, upto: int) -> Iterator[Chunk]:
        return self.in_order((name,), after, upto)

    def in_order(self, names: Collection[TableName], after: int, upto: int) -> Iterator[Chunk]:
        tables = _by_table(self._rows(names, after, upto))
        return chunks_of([landed(name, rows) for name, rows in tables.items()], CHUNK_ROWS)

    def _rows(self, names: Collection[TableName], after: int, upto: int) -> tuple[RowChange, ...]:
        keys = {name.key for name in names}
        inside = (row for row in self.rows if after < commit_time(row) <= upto)
        return tuple(row for row in inside if TableName(row.schema, row.table).key in keys)


class ScriptedSource(Source):
    """A source of the events of `script`; the module describes its troubles."""

    def __init__(
        self,
        script: Script,
        *,
        repeats: bool = False,
        back: bool = False,
        late: bool = False,
        tells_ddls: bool = True,
        outages: Mapping[str, int] | None = None,
    ) -> None:
        self.script = script
        self._repeats = 2 if repeats else 1
        self._tells_ddls = tells_ddls
        self._steps = list(_steps(script, back=back, late=late))
        self._outages = Counter(outages)
        self._position_ts = -1
        self._failure: TidegateError | None = None

    def start(self, tasks: Tasks, checkpoint_ts: int | None) -> int:  # noqa: ARG002  nothing is read beside the rounds
        self._trouble("start")
        self._failure, self._position_ts = None, -1
        return self.script.begin if checkpoint_ts is None else checkpoint_ts

    def stop(self) -> None:
        """Do nothing: nothing runs."""

    def failure(self) -> TidegateError | None:
        return self._failure

    def idle(self) -> bool:
        return self._position_ts >= len(self._steps) - 1

    def refresh(self) -> None:
        self._trouble("refresh")
        if self._failure is None and self._outages["failure"]:
            self._outages["failure"] -= 1
            self._failure = SourceError("the script has stopped")
        if self._failure is None:
            self._position_ts = min(self._position_ts + 1, len(self._steps) - 1)

    def frontier(self) -> int | None:
        return self._steps[self._position_ts].mark if self._position_ts >= 0 else None

    def definitions(self, ts: int) -> Sequence[TableInfo]:  # noqa: ARG002
        return ()

    def ddls(self, after: int, upto: int) -> list[SourceDdl]:
        self._trouble("ddls")
        hidden = self._steps[self._position_ts].hidden if self._position_ts >= 0 else None
        visible = self.script.ddls(upto) if self._tells_ddls else ()
        ddls = [(seq, ddl) for seq, ddl in enumerate(visible) if commit_time(ddl) >= after]
        return [SourceDdl(EventPosition(TOPIC, 0, seq), ddl) for seq, ddl in ddls if commit_time(ddl) != hidden]

    def changes(self, after: int, upto: int) -> ScriptedChanges:
        self._trouble("changes")
        rows = (row for row in self.script.rows(upto) if commit_time(row) > after)
        transactions = [list(some) for _, some in groupby(rows, key=commit_time)]
        return ScriptedChanges(after, upto, tuple(row for some in transactions for row in some * self._repeats))

    def release(self, checkpoint_ts: int) -> None:
        """Keep everything."""

    def reading(self) -> Reading:
        return Reading(messages=self._position_ts + 1)

    def _trouble(self, call: str) -> None:
        if self._outages[call]:
            self._outages[call] -= 1
            raise SourceError(f"the script is away: {call}")


class _Step(NamedTuple):
    """A resolved ts, and the timestamp whose DDLs come only after it."""

    mark: int
    hidden: int | None = None


def _steps(script: Script, *, back: bool, late: bool) -> Iterator[_Step]:
    stops = sorted({commit_time(ddl) for ddl in script.ddls(script.ts)}) if late else []
    before = script.begin
    for mark in script.marks:
        for stop in stops:
            if before < stop <= mark:
                yield _Step(stop, hidden=stop)
        yield _Step(mark)
        if back:
            yield _Step(before)
        before = mark
    if back and script.marks:
        yield _Step(before)


def _by_table(rows: Iterable[RowChange]) -> dict[TableName, list[RowChange]]:
    rows_by_table: dict[TableName, list[RowChange]] = {}
    for row in rows:
        rows_by_table.setdefault(TableName(row.schema, row.table), []).append(row)
    return rows_by_table


def landed(name: TableName, rows: Sequence[RowChange]) -> pa.Table:
    """Return rows of a table as a changelog stores them."""
    encoder, columns = Encoder(), RowColumns(TOPIC, 0, name)
    for seq, row in enumerate(rows):
        columns.add(0, encoder.encode(row, seq))
    return columns.table()


class ScriptedLoad(LoadReader):
    """A reader of a script's tables at `ts`, and `told`, the script that a feed with this load delivers: their
    definitions, their rows chunk by chunk, and the events above `ts`.

    Each table must have the definition of its CREATE TABLE at `ts`."""

    def __init__(self, script: Script, ts: int) -> None:
        now, creates = ScriptedTables(), dict[str, Ddl]()
        for event in script.events:
            if commit_time(event) <= ts:
                now.apply(event)
                if isinstance(event, Ddl):
                    creates[event.table and f"{event.schema}.{event.table}"] = event
        self._rows = now.rows()
        names = [TableName(*name.split(".", 1)) for name in self._rows]
        tables = tuple(LoadTable(name, creates[str(name)].query, tuple(now.of(str(name)).handle_key)) for name in names)
        starts = [
            (index, row) for index, rows in enumerate(self._rows.values()) for row in range(0, len(rows), CHUNK_ROWS)
        ]
        chunks = tuple(LoadChunk(number, index, lower=(str(row),)) for number, (index, row) in enumerate(starts))
        databases = tuple((name, f"CREATE DATABASE `{name}`") for name in dict.fromkeys(name.schema for name in names))
        self.load_plan = LoadPlan(ts, "", "", "UTC", databases, tables, (), (), (), chunks)
        self._state = now
        self.rest_script = Script()
        self.rest_script.events = [*create_statements(self.load_plan), *self._inserts()]
        self.rest_script.events += [event for event in script.events if commit_time(event) > ts]
        self.rest_script.marks, self.rest_script.ts = [mark for mark in script.marks if mark >= ts], script.ts

    def _inserts(self) -> Iterator[RowChange]:
        for commit_ts, chunk in enumerate(self.load_plan.chunks, defined_ts(self.load_plan) + 1):
            yield from self._of(self.load_plan.table_of(chunk), chunk, commit_ts)

    def _of(self, table: LoadTable, chunk: LoadChunk, commit_ts: int) -> Iterator[Insert]:
        wire = wire_table(self._state.of(str(table.name)))
        first = int((chunk.lower or "0")[0])
        for row in self._rows[str(table.name)][first : first + CHUNK_ROWS]:
            after = tuple(row[field.name] for field in wire.fields)
            yield Insert(
                schema=table.name.schema,
                table=table.name.table,
                fields=wire.fields,
                pk_names=wire.pk_names,
                commit_ts=commit_ts,
                after=after,
            )

    def plan(self, selects: Callable[[TableName], bool], ts: int | None = None) -> LoadPlan:  # noqa: ARG002
        """Return the plan of all tables."""
        return self.load_plan

    def batches(self, table: LoadTable, chunk: LoadChunk, ts: int) -> Iterator[Batch]:
        """Return the rows of a chunk, each in a batch of its own."""
        for row in self._of(table, chunk, ts):
            for some in chunks_of([landed(table.name, [row])], CHUNK_ROWS):
                yield from (part.batch for part in some.parts)


TRIES: Final = 10
"""So many errors in a row that may pass are waited out; the next one ends the run."""


def run_here(
    source: Source,
    sink: Sink[Any],
    *,
    until: int | None = None,
    tasks: Tasks | None = None,
    report: Callable[[Progress], None] = lambda _: None,
    rules: Sequence[str] = ("*.*",),
    drops: Drops | None = None,
) -> Progress:
    """Run until the checkpoint reaches `until`, or until the source has nothing more; return the last report.

    `rules` are filter rules of the tables that the run carries, `drops` says which DDLs of them it leaves out.

    Raises the error that ended the run."""
    tables, patience = TableFilter.parse(rules), RetryPolicy(quick=TRIES, stuck_s=None)
    feed = Feed("trial", source, sink, accept=tables.matches, takes=tables.takes_ddl, drops=drops, patience=patience)
    return Engine(feed, tasks or LocalTasks(), Meter(report), NoPauseEvent()).run(until=until, idle_s=0)
