"""The Delta sink: a lake of tables that replicate the upstream, or keep its changes, or every version of its rows.

What comes in.  The engine plans a batch of changes up to one checkpoint and hands it over as units: the tables that
depend on each other, each with its steps in order.  A step creates a table, applies the rows of a range of commit
timestamps, or applies one DDL.  Rows are not part of the plan; the task that runs a unit reads them from the changelog.

A full load brings chunks that share no key.  Tasks write them as files side by side, several tasks a table and nothing
merged; the step of the table is then one commit that names these files.  Its snapshots are published from S on, or with
`load-publish=table` before that with the tables that are whole: these are as of S, and the others do not appear.

What is kept.  Each table is a Delta table of its own, in a directory named by the table's incarnation, never by its
name.  A step is one commit to that table's log: the data files it adds and removes, the new columns if a DDL changes
them, and the table's position, all or nothing.  Only files that hold a changed key are rewritten (merge.py), so the
cost follows the changes and not the table.

What goes out.  When all units have ended, a snapshot names the version of every table at the checkpoint, the schema and
the parked tables (snapshots.py).  It is one file, created only if its number is free.  Readers begin at a snapshot and
never see a table that is ahead of the others.  Iceberg metadata and names in catalogs are derived from it.

Why a crash needs no repair.  Nothing is ever half done, because everything that counts is one conditional write of one
file: a commit of a table, or a snapshot.  Killed before a commit, a task leaves data files that no log names, which
upkeep deletes.  Killed after it, the next run plans the same steps from the last snapshot, finds the position of each
table and skips what is done.  Two workers with the same step race for one version number; the loser reads again and
finds the step done.  Two runs race for one snapshot number; the run with the higher epoch goes on, the other is fenced.

A unit that is refused for good ends the feed, or with `table-error=park` stops its own tables alone (engine/ports.py).
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec

from tidegate.engine.load import LoadChanges
from tidegate.engine.plan import Create, Round, Rows, Unit, position_of
from tidegate.engine.ports import (
    DEFECTS,
    Changes,
    FlushPolicy,
    Parked,
    Refused,
    RoundLimit,
    SinkPosition,
    Tasks,
    UnitSink,
    WithAdmission,
    WithCheck,
    WithReload,
    WithUpkeep,
    blamed,
    known_to,
    parked_after,
    parks,
    refused_again,
    tasks_at_once,
)
from tidegate.engine.retention import PURGED
from tidegate.model.errors import SinkError, SinkRefused, TidegateError
from tidegate.model.table import TableInfo
from tidegate.objectstore import deltalog
from tidegate.objectstore.failpoint import failpoint
from tidegate.objectstore.stores import STORE_ERRORS, check_store, first_line
from tidegate.objectstore.threads import ContextPool
from tidegate.schema.state import SchemaState
from tidegate.sink.delta.apply import TableResult, WrittenLoad, WrittenPart, run_unit, write_part
from tidegate.sink.delta.iceberg_projection import begin_projection
from tidegate.sink.delta.options import DeltaOptions, check_mode
from tidegate.sink.delta.snapshots import (
    PublishedTable,
    Requests,
    Snapshot,
    accepted,
    check_round,
    check_rules,
    keep_schema,
    kept_schema,
    latest,
    position,
    publish,
)
from tidegate.sink.delta.upkeep import FAILURES, LakeUpkeep, adopt, storing_errors

LOGGER: Final = logging.getLogger(__name__)
IDLE_PUBLISH_S: Final = 5.0
"""With nothing to apply, how often a mere advance of the checkpoint is published."""


class NameCatalog(Protocol):
    """Names for the lake's tables in a catalog: possibly late, but never wrong about the rows."""

    def publish(self, snapshot: Snapshot) -> None:
        """Name exactly the tables of a published snapshot, all at once where the catalog can. Raises SinkError, to
        be retried."""


@dataclass(frozen=True, slots=True)
class UnitFailure:
    """An error as a value, so that the other units of its task run too, with the tables that it stops."""

    error: TidegateError
    incarnations: frozenset[str]


T = TypeVar("T")
UnitWork: TypeAlias = Callable[[Unit, Changes, DeltaOptions], list[T]]

LOAD_ROUND: Final = RoundLimit(rows=20_000_000, size_bytes=4 << 30)
"""The limit of a round of a full load, whose chunks become files one by one: a task holds one file's rows."""
ALONE_ROWS: Final = 20_000
DECKS_A_CORE: Final = 4
UNITS_AT_ONCE: Final = 4
"""Of one task, in an object store: a unit mostly waits for its requests, a dozen one behind the other."""
CREATES_AT_ONCE: Final = 32
"""The same where each makes an empty table, and holds no file in memory."""


def bins(units: Sequence[Unit], workers: int | None, cores: int) -> list[list[Unit]]:
    """Return the units of each task, the longest first; a task costs tens of milliseconds, more than most units do.

    At most `workers` tasks; if that is open, each large unit has a task of its own."""
    ordered = sorted(units, key=lambda unit: -unit.rows)
    alone = 0 if workers else sum(unit.rows >= ALONE_ROWS for unit in ordered)
    count = min(workers or cores * DECKS_A_CORE, len(ordered) - alone)
    return [[unit] for unit in ordered[:alone]] + [ordered[alone + index :: count] for index in range(count)]


class DeltaSink(UnitSink[TableResult], WithAdmission, WithCheck, WithReload, WithUpkeep):
    """A lake. Without `upkeep` nothing is ever deleted, whatever the `options`.

    A second run is not locked out: the one whose source has the higher epoch continues (snapshots.py)."""

    fences = makes_views = False
    brings_again = "keys"

    def __init__(
        self,
        options: DeltaOptions,
        *,
        upkeep: LakeUpkeep | None = None,
        catalogs: Sequence[NameCatalog] = (),
    ) -> None:
        self.options = options
        self.flush_policy = FlushPolicy(
            load_limit=LOAD_ROUND,
            idle_s=IDLE_PUBLISH_S,
            flush_s=options.flush_s,
            rests=True,
            each_ddl=options.publish == "each",
        )
        self.snapshot = Snapshot()
        self._upkeep = upkeep
        self._begun = False
        self._catalogs = catalogs
        self._position = SinkPosition(self.snapshot.checkpoint, self.snapshot.state)
        self._refused: list[Refused] = []
        self._lacking: frozenset[tuple[str, str]] | None = None
        """The tables that are hidden at the end of this round of a load; None for all."""
        self._requests = Requests(options)

    def recover(self) -> SinkPosition:
        """Return the last published state of the lake.

        Raises SinkRefused if that was in another mode, ColumnSelectorFailed if it was with other columns."""
        self.snapshot, self._refused = latest(self.options), []
        if self.snapshot.options is not None:
            check_mode(self.options.mode, self.snapshot.options.mode, f"lake {self.options.root}")
            check_rules(self.snapshot, self.options)
        failpoint("start/recovered")
        return SinkPosition(self.snapshot.checkpoint, self.snapshot.state, self.snapshot.number < 0)

    def check(self) -> bool:
        """Read the lake's position, if it exists. Raises as `recover` does."""
        if "://" in self.options.root or Path(self.options.root).exists():
            self.recover()
        return True

    def open(self, position: SinkPosition) -> None:
        """Remember where the first round begins, and check that an object store keeps conditional writes.

        Raises SinkRefused for one that does not.
        """
        self._position = position
        if "://" in self.options.root:
            check_store(self.options.control_uri)

    def run(self, tasks: Tasks, units: Sequence[Unit], changes: Changes) -> list[TableResult]:
        """Run every unit in a task, the longest first, except those of parked tables. Raises the first error that
        does not park its tables, after all have ended."""
        self._lacking = changes.lacking if isinstance(changes, LoadChanges) else None
        parked = {incarnation for group in self.snapshot.parked for incarnation in group.incarnations}
        stored = self.snapshot.tables.keys() | self.snapshot.retired.keys()

        def awaited(unit: Unit) -> bool:
            """Return True for steps of tables that the lake has not, and is to have by a reload."""
            if self.awaits is None or any(isinstance(step, Create) and step.old is None for step in unit.steps):
                return False
            return all(table.incarnation not in stored and self.awaits(*table.name) for table in unit.tables)

        going: list[Unit] = []
        resting: list[Unit] = []
        for unit in units:
            (going if parked.isdisjoint(unit.incarnations) and not awaited(unit) else resting).append(unit)
        results, failures = self._run(tasks, going, changes)
        for failure in failures:
            if self.options.table_error != "park" or not parks(failure.error):
                raise failure.error
        self._refused = [Refused(unit.incarnations) for unit in resting]
        self._refused += [Refused(failure.incarnations, failure.error) for failure in failures]
        return results

    def _run(
        self, tasks: Tasks, units: Sequence[Unit], changes: Changes
    ) -> tuple[list[TableResult], list[UnitFailure]]:
        if not units:
            return [], []
        workers = self.options.worker_count
        if self.flush_policy.rests:
            workers = tasks_at_once(sum(unit.rows for unit in units), tasks.slots, workers)
        if isinstance(changes, LoadChanges) and not changes.over:
            changes = self._written(tasks, units, changes, workers)
        creates = all(isinstance(step, Create) and step.old is None for unit in units for step in unit.steps)
        at_once = CREATES_AT_ONCE if creates else UNITS_AT_ONCE
        at_once = at_once if "://" in self.options.root and self.options.worker_count is None else 1
        dealt = bins(units, workers if at_once == 1 else workers or tasks.slots, tasks.slots)
        return self._each(tasks, run_unit, dealt, changes, at_once)

    def _written(self, tasks: Tasks, units: Sequence[Unit], load: LoadChanges, workers: int | None) -> WrittenLoad:
        """Make the tables that the units make, and write the rows of a load as files, several tasks a table: the units
        are then left with one commit each."""
        creates = [Unit(tuple(step for step in unit.steps if not isinstance(step, Rows))) for unit in units]
        self._each(tasks, run_unit, bins([unit for unit in creates if unit.steps], workers, tasks.slots), load)
        parts = [part for unit in units for step in unit.row_steps for part in load.split(step)]
        results, failures = self._each(tasks, write_part, bins(parts, workers, tasks.slots), load.typed())
        written: defaultdict[str, list[WrittenPart | TidegateError]] = defaultdict(list)
        for part in sorted(results, key=lambda part: part.after):
            written[part.table.incarnation].append(part)
        for failure in failures:
            for incarnation in failure.incarnations:
                written[incarnation].append(failure.error)
        return WrittenLoad(load.reader, load.ts, load.after, load.upto, (), written=dict(written))

    def _each(
        self,
        tasks: Tasks,
        work: UnitWork[T],
        dealt: Sequence[Sequence[Unit]],
        changes: Changes,
        at_once: int = 1,
    ) -> tuple[list[T], list[UnitFailure]]:
        run = partial(_run_bin, work=work, changes=changes, options=self.options, at_once=at_once)
        outcomes = [outcome for one_bin in tasks.run(run, dealt) for outcome in one_bin] if dealt else []
        failures = [outcome for outcome in outcomes if isinstance(outcome, UnitFailure)]
        return [result for outcome in outcomes if isinstance(outcome, list) for result in outcome], failures

    def admit(self, planned: Round) -> None:
        """Raise SinkRefused for a round that brings back a dropped table whose rows are purged, ColumnSelectorFailed
        for one that the column selectors do not fit."""
        check_round(self.snapshot, planned, self.options)
        for table in planned.state.tables.values():
            if self.snapshot.retired.get(table.incarnation) == PURGED and accepted(table.name, self.options):
                raise SinkRefused(
                    f"table {table.name} comes back at ts {table.version} (RECOVER or FLASHBACK TABLE), but its rows "
                    f"were deleted from the lake: it had been dropped for longer than recover-retention. Exclude the "
                    f"table by [filter] rules, or start a new changefeed with an empty lake; a larger "
                    f"recover-retention keeps the rows of dropped tables longer"
                )

    def advance(self, planned: Round, results: Sequence[TableResult]) -> SinkPosition:
        """Publish the round: its checkpoint, its schema, the version of every table and which of them are parked."""
        self.admit(planned)
        before, position = self.snapshot, self._position
        parked = before.parked
        if self._refused:
            newly = any(refused.error is not None for refused in self._refused)
            schema = keep_schema(self.options, position.state) if newly else ""
            parked = parked_after(parked, self._refused, position.checkpoint, schema, _now_ms())
        versions = {incarnation: table.version for incarnation, table in before.tables.items()}
        versions |= before.retired
        versions |= {result.incarnation: result.version for result in results}
        tables = {
            table.incarnation: PublishedTable(table.name.schema, table.name.table, versions[table.incarnation])
            for table in planned.state.tables.values()
            if versions.get(table.incarnation, PURGED) != PURGED
        }
        retired = {incarnation: version for incarnation, version in versions.items() if incarnation not in tables}
        if position.checkpoint.ts < self.whole_from:  # what a load drops is not resumed
            old, new = ({table.incarnation for table in of.tables.values()} for of in (position.state, planned.state))
            parked = tuple(group for group in parked if not (old - new).issuperset(group.incarnations))
        parked = known_to(parked, planned.state)
        published = Snapshot(
            before.number + 1,
            planned.checkpoint,
            planned.state,
            tables,
            retired,
            parked=parked,
            digest=before.digest if planned.state is before.state else "",
            epoch=self.epoch,
        )
        loads = planned.checkpoint.ts < self.whole_from  # tables lack rows
        if loads and self._lacking is not None:  # these have their versions from the rounds that end them
            whole = {key: table for key, table in published.tables.items() if table.name.key not in self._lacking}
            published = replace(published, tables=whole)
        elif loads:
            self.snapshot = replace(published, number=before.number)
            self._position = SinkPosition(planned.checkpoint, planned.state)
            return self._position
        self.snapshot, self._refused = replace(published, digest=publish(self.options, published)), []
        self._position = SinkPosition(planned.checkpoint, planned.state)
        self._requests.withdraw()
        try:
            self._name()
        except TidegateError as error:  # the round is published; upkeep tries again and tells
            LOGGER.info("lake %s: %s", self.options.root, error)
        return self._position

    def parked(self) -> Sequence[Parked]:
        return self.snapshot.parked

    def resuming(self) -> Sequence[tuple[Parked, SchemaState]]:
        if not self.snapshot.parked:
            return ()
        requested = self._requests.read()
        groups = [group for group in self.snapshot.parked if not requested.isdisjoint(group.incarnations)]
        return [(group, self.state_of(group)) for group in groups if not group.loads]

    def state_of(self, group: Parked) -> SchemaState:
        return kept_schema(self.options, group.schema)

    @property
    def home(self) -> str:
        return self.options.root

    def load(self, tasks: Tasks, units: Sequence[Unit], changes: Changes) -> None:
        def is_done(unit: Unit) -> bool:
            (incarnation,) = unit.incarnations
            stored = deltalog.load(self.options.table_uri(incarnation))
            return stored is not None and position(stored, self.options.feed) >= position_of(unit.steps[-1])

        self.resume(tasks, [unit for unit in units if not is_done(unit)], changes)

    def await_tables(self, tables: Sequence[TableInfo], position: SinkPosition) -> None:
        keys, checkpoint = {table.name.key for table in tables}, position.checkpoint
        left_out = tuple(mark for mark in checkpoint.left_out if mark.name.key not in keys)
        group = Parked(
            tuple(table.incarnation for table in tables),
            (),
            msgspec.structs.replace(checkpoint, left_out=left_out),
            keep_schema(self.options, position.state),
            *("", ""),
            since_ms=_now_ms(),
            loads=True,
        )
        others = (parked for parked in self.snapshot.parked if not parked.loads)
        self.snapshot = replace(self.snapshot, parked=(*others, group))

    def resume(self, tasks: Tasks, units: Sequence[Unit], changes: Changes) -> list[TableResult]:
        """Run units of parked tables; raises the first error after all have ended."""
        results, failures = self._run(tasks, units, changes)
        for failure in failures:
            raise failure.error
        return results

    def resumed(self, group: Parked, error: TidegateError | None) -> None:
        """Resume the tables of a group, or keep them parked with another error; the next advance publishes it."""
        others = tuple(parked for parked in self.snapshot.parked if parked.incarnations != group.incarnations)
        stays = () if error is None or group.loads else (refused_again(group, error, _now_ms()),)
        self.snapshot = replace(self.snapshot, parked=(*others, *stays))
        if not group.loads:
            self._requests.answer(group)
        elif error is None:
            loaded = ((name, deltalog.load(self.options.table_uri(name))) for name in group.incarnations)
            versions = {name: table.version for name, table in loaded if table is not None}
            self.snapshot = replace(self.snapshot, retired={**versions, **self.snapshot.retired})

    def upkeep(self, tasks: Tasks, frontier: int | None, enough: Callable[[], bool]) -> None:
        """Begin the requested projection; then, if it is due, forget, delete and compact what the lake's limits
        allow. Raises SinkError for errors of a store."""
        if not self._begun:
            begin_projection(self.options, self.snapshot, storing_errors(tasks.run))
            self._begun = True
        try:
            self._name()
        finally:  # a catalog that is away holds up no upkeep
            self._tidy(tasks, frontier, enough)

    def _tidy(self, tasks: Tasks, frontier: int | None, enough: Callable[[], bool]) -> None:
        if self._upkeep is None or not self._upkeep.due():
            return
        try:
            done = self._upkeep.run(self.snapshot, frontier, storing_errors(tasks.run), enough=enough)
        except TidegateError:
            raise
        except FAILURES as failure:
            raise SinkError(f"lake {self.options.root}: {failure}") from failure
        failpoint("upkeep/before-adopt")
        self.snapshot = adopt(self.snapshot, done.kept)

    def _name(self) -> None:
        if self._begun and self.snapshot.number >= 0:
            failpoint("iceberg/before-names")
            for catalog in self._catalogs:
                catalog.publish(self.snapshot)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _run_bin(
    dealt: Sequence[Unit], *, work: UnitWork[T], changes: Changes, options: DeltaOptions, at_once: int
) -> list[list[T] | UnitFailure]:
    with ContextPool(min(at_once, len(dealt))) as pool:
        return list(pool.map(lambda unit: _run(unit, work, changes, options), dealt))


def _run(unit: Unit, work: UnitWork[T], changes: Changes, options: DeltaOptions) -> list[T] | UnitFailure:
    tables = ", ".join(sorted({str(table.name) for table in unit.tables}))
    try:
        return work(unit, changes, options)
    except TidegateError as error:
        return UnitFailure(blamed(error.at(table=tables), unit.row_steps, changes), unit.incarnations)
    except STORE_ERRORS as error:
        return UnitFailure(SinkError(f"lake {options.root}: {first_line(error)}"), unit.incarnations)
    except DEFECTS as defect:
        refused = SinkRefused(f"table {tables}: {type(defect).__name__}: {defect}").at(table=tables)
        return UnitFailure(blamed(refused, unit.row_steps, changes), unit.incarnations)
