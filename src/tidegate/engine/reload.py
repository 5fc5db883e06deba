"""Tables that are loaded beside a running feed: `tidegate table add` and `tidegate table reload` of a lake.

    T of before    ...rows, DDLs............................................┤ readers see it until here
                                  S'                                        C
    T              planned ──────►├ parked ─ chunk 0 ─ chunk 1 ─ ... ─ rows of (S', C] ─► takes the name at C
    other tables   ...........................................................................

What stands.  S' is a TSO of now, at or above the checkpoint.  One round ends at S', where the state is known: with the
definitions of S' in place of those of before, its tables are a group of parked ones (engine/ports.py) that have no
name yet.  So the changelog keeps what is above S', and bringing them up to the checkpoint is resuming them.  A DDL of T
above S' is one of both tables meanwhile, also a DROP.  A thread plans and loads, rounds go on; where one reaches S'
before the tables are known, a group of none keeps S' and its state for them.

    file                     group in the snapshot      what is next
    rules                    none                       S' is taken, the thread plans; one round ends at S'
    rules                    none, checkpoint at S'     a group of no table is published
    rules                    there                      it goes where the thread does not plan: S' is taken anew
    rules, plan              none, checkpoint below S'  chunks are written by the thread; one round ends at S'
    rules, plan              none, checkpoint at S'     the group is published
    rules, plan              of no table                the group is published
    rules, plan              there                      once all chunks are in, the group is resumed
    rules, plan              none, checkpoint above S'  it is done
    rules, plan, outcome     there                      it failed: the group goes, T stays as it was

The chunks are those of a full load (engine/load.py); where a table stands is in its own commits.  With a plan that is
written down S' is never taken again: a feed that is started without load-from keeps the group, and says so.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, Final

import msgspec

from tidegate.engine.filter import TableFilter
from tidegate.engine.load import (
    NO_ROWS,
    WITHOUT_ROWS,
    FewTasks,
    LoadChanges,
    LoadingSource,
    load_progress,
    parts_of,
    sizes_of,
)
from tidegate.engine.load_plan import KeptStruct, LoadPlan, defined_tables, defined_ts, schema_of, some_of
from tidegate.engine.plan import Create, Rows, Unit
from tidegate.engine.ports import Parked, SinkPosition, Source, Tasks, WithReload
from tidegate.engine.reading import ReloadProgress
from tidegate.engine.retry_policy import Outage, RetryPolicy, retry
from tidegate.model.errors import ConfigError, Retry, SinkRefused, SourceBehind, TidegateError
from tidegate.model.mysql import STRINGS, MysqlType
from tidegate.model.table import ColumnType, TableInfo, TableName
from tidegate.model.tso import shown_ts
from tidegate.objectstore.failpoint import failpoint
from tidegate.objectstore.stores import STORE_ERRORS, store_error
from tidegate.objectstore.threads import ContextPool

LOOK_S: Final = 2.0
STORE_LOOK_S: Final = 10.0
"""The intervals at which a feed looks for a request, in a directory and in an object store, where each look is paid."""
AGAIN_S: Final = 30.0
"""That of its tries while it cannot plan."""
CHUNKS_A_SLOT: Final = 4
DONE: Final = "done"
REPAIR_MAX: Final = 100_000
"""The most rows of one repair."""
_ADDED: Final = {MysqlType.BIT: "0", MysqlType.FLOAT: "0e0"}
"""What makes a column the number that it holds: the text of a FLOAT has six digits."""
RESEND: Final = (
    "readers of this target have had the rows: ask with `--resend` (`resend` in the API), which sends each row of the "
    "upstream once more, as an INSERT, and deletes nothing"
)
GONE: Final = (
    "metrics, and a Redis with mode=stream or mode=invalidate, bring nothing again: what was counted, added or dropped "
    "stays. Another feed, with a load, begins with the rows of now"
)
NOT_AGAIN: Final = {
    ("tables", "repair"): "a table in files comes again as a whole: reload it instead",
    ("events", "repair"): f"no single rows come again: reload the table instead; {RESEND}",
    ("events", "reload"): RESEND,
    **dict.fromkeys([("", "repair"), ("", "reload"), ("", "resend")], GONE),
}
"""Why a sink does not bring again what is requested, by `Sink.brings_again` and `Reload.kind`."""


def check_resend(*, sends: bool, resend: bool) -> None:
    """Raise ConfigError unless `resend` is given where the target `sends` rows to readers, and nowhere else."""
    if sends != resend:
        raise ConfigError(RESEND if sends else "--resend is for topics, webhooks and callbacks; leave it out here")


class RepairKeys(msgspec.Struct, frozen=True):
    """Rows of a table to be read again: the columns of its handle key, and of each row the texts of their values as
    `key_text` writes them, whether the upstream has the row or not."""

    table: TableName
    columns: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]


def key_text(value: float | str | bytes) -> str:
    """Return the text of a key's value: numbers (also of BIT) in decimal, BINARY and BLOB in hex digits; DECIMAL, dates
    and times (TIMESTAMP in UTC), ENUM and SET as a server prints them."""
    return value.hex() if isinstance(value, bytes) else str(value)


def key_column(kind: ColumnType, quoted: str) -> str:
    """Return the expression of SQL that reads such a text of a column."""
    if kind.code in STRINGS and kind.charset == "binary":
        return f"LOWER(HEX({quoted}))"
    return f"{quoted} + {_ADDED[kind.code]}" if kind.code in _ADDED else quoted


def key_texts(table: TableInfo, row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the texts of a row's handle key; the row is by the names of the table's columns."""
    columns = (table.column(name) for name in table.handle_key)
    return tuple(key_text(row[column.name]) for column in columns if column is not None)


class Begun(msgspec.Struct, frozen=True):
    """The TSO behind which a DDL of a table lets it begin again, that of its plan and later of its first slice, and how
    often one did."""

    ts: int
    tries: int


class Reload(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to load the tables of some rules, later with its plan, or to repair some rows; `outcome` is "" until it
    has ended, then DONE or the error."""

    rules: tuple[str, ...] = ()
    plan: LoadPlan | None = None
    outcome: str = ""
    repairs: tuple[RepairKeys, ...] = ()
    slice: LoadPlan | None = None
    """The chunks that come next as rows of the feed (engine/refresh.py), without `definitions` below them."""
    definitions: LoadPlan | None = None
    done: int = 0
    """The chunks of the plan that are done."""
    begun: dict[str, Begun] = {}
    swept: int = 0
    """The tables of the plan whose rows that the upstream lacks are known."""
    failed: tuple[str, ...] = ()
    """Tables that were left out, and why."""
    resend: bool = False
    """Readers of topics, webhooks and callbacks may get rows that they have had."""

    def __str__(self) -> str:
        if self.repairs:
            return f"repair of {sum(len(rows.keys) for rows in self.repairs)} rows of " + some_of(
                list(dict.fromkeys(rows.table for rows in self.repairs))
            )
        if self.plan is None:
            return f"reload of {', '.join(self.rules)}"
        return f"reload of {some_of([table.name for table in self.plan.tables])} at {shown_ts(self.plan.ts)}"

    @property
    def kind(self) -> str:
        return "repair" if self.repairs else "resend" if self.resend else "reload"

    @property
    def progress(self) -> str:
        """Return how far it is: a lake's tables know that themselves."""
        if not (self.done or self.slice):
            return "loading"
        return f"{self.done} of {len(self.plan.chunks) if self.plan else 0} chunks are done"

    @property
    def runs(self) -> bool:
        """True between its plan, or its keys, and its end."""
        return not self.outcome and bool(self.plan or self.repairs)


class KeptReload(KeptStruct[Reload]):
    """The file of the last reload or repair of a feed."""

    def __init__(self, home: str) -> None:
        super().__init__(home, "_tidegate/reload.json", Reload, "reload")
        self._is_paid = "://" in home
        self._due_s = 0.0
        self._last: Reload | None = None

    @property
    def look_s(self) -> float:
        """The interval at which a feed looks for a request."""
        return STORE_LOOK_S if self._is_paid else LOOK_S

    def look(self) -> Reload | None:
        """Return what was there at most `look_s` ago, however many parts of a feed ask."""
        if time.monotonic() >= self._due_s:
            self._due_s, self._last = time.monotonic() + self.look_s, self.read()
        return self._last

    def write(self, value: Reload) -> Reload:
        self._last = super().write(value)
        return self._last

    def ask(self, rules: Sequence[str], *, resend: bool = False) -> None:
        """Request a reload. Raises ConfigError for rules that are none, and while another one is not done."""
        TableFilter.parse(rules)
        self._request(Reload(tuple(rules), resend=resend))

    def ask_repair(self, rows: Sequence[RepairKeys]) -> None:
        """Request that rows are read again, and written or deleted. Raises ConfigError for too many, for a table
        without a key, and while another request is not done."""
        if keyless := [str(some.table) for some in rows if not some.columns]:
            raise ConfigError(f"{', '.join(keyless)}: without a key no row can be repaired: reload the table instead")
        if (count := sum(len(some.keys) for some in rows)) > REPAIR_MAX:
            raise ConfigError(f"{count} rows are more than a repair takes ({REPAIR_MAX}): reload the table instead")
        if repairs := tuple(some for some in rows if some.keys):
            self._request(Reload(repairs=repairs))

    def _request(self, request: Reload) -> None:
        """Write a request, in place of one that waits for its plan if both are reloads."""
        before = self.read()
        waits = before if before is not None and not before.outcome and (before.runs or request.repairs) else None
        if waits is not None and (waits.rules, waits.repairs) == (request.rules, request.repairs):
            return
        if waits is not None or self.write(request) != request:
            raise ConfigError(f"{self.read()} is not done yet; wait for it: tidegate table status")


class Reloads:
    """The reload of a feed, step by step between its rounds; the chunks are written by a thread beside them."""

    def __init__(
        self, source: Source, sink: WithReload, tasks: Tasks, patience: RetryPolicy, warn: Callable[[str], None]
    ) -> None:
        self.sink = sink
        self._source, self._patience, self._warn = source, patience, warn
        self._loads = source if isinstance(source, LoadingSource) and source.reads_rows else None
        requests = source.requests if isinstance(source, LoadingSource) else None
        self._kept = requests if isinstance(requests, KeptReload) else KeptReload(sink.home)
        self._reload: Reload | None = None
        self._due_s = 0.0
        self._aside = tasks.aside("reload")
        self._pool = ContextPool(1, "tidegate-reload")
        self._ahead = 0
        """S' while it is planned."""
        self._planning: Future[LoadPlan] | None = None
        self._loading: Future[None] | None = None
        self._chunks_done = 0
        self._sizes: Sequence[int] = (0,)
        self._stop = threading.Event()

    @property
    def busy(self) -> bool:
        """True while the tables are planned or loaded, or have a group and wait for their names."""
        loads = self._loading is not None and (not self._loading.done() or self.group() is not None)
        return self._planning is not None or loads

    def bound(self, until: int | None, checkpoint_ts: int) -> int | None:
        """Return the end of a run, or S' where that comes first."""
        ts = self._ts
        return until if ts <= checkpoint_ts else min(ts, until or ts)

    @property
    def _ts(self) -> int:
        """S'; 0 before it is taken."""
        return self._ahead if self._plan is None else self._plan.ts

    @property
    def _plan(self) -> LoadPlan | None:
        return self._reload.plan if self._reload is not None and not self._reload.outcome else None

    def progress(self) -> ReloadProgress | None:
        """Return how far the last reload is."""
        last, plan = self._reload, self._plan
        if last is None:
            return None
        state = last.outcome or ("loading" if plan else "planning" if self._planning else "waiting")
        load = None if plan is None else load_progress(plan, self._chunks_done, self._sizes)
        return ReloadProgress(str(last), state, load)

    def group(self) -> Parked | None:
        """Return the parked tables of a reload; None before there are some."""
        return next((group for group in self.sink.parked() if group.loads), None)

    def step(self, checkpoint_ts: int) -> str:
        """Look where the reload is, and return what the feed is to do: "park" or "resume" its tables, "drop" them, or
        nothing."""
        group, planning = self.group(), self._planning
        due = planning is None and self._plan is None and time.monotonic() >= self._due_s
        if due:
            self._due_s = time.monotonic() + self._kept.look_s
            self._reload = self._kept.look()
            self._await()
        reload, plan = self._reload, self._plan
        if group is not None and self._ts != group.checkpoint.ts:
            return "drop"
        if reload is None or reload.outcome or reload.repairs:
            return ""
        if plan is None:
            if due or (planning is not None and planning.done()):
                self._make_plan(reload, checkpoint_ts)
            return "park" if group is None and 0 < self._ahead == checkpoint_ts else ""
        if self._source.whole_from() > plan.ts:
            self.end(SinkRefused(f"a load of the feed at {shown_ts(self._source.whole_from())} has begun behind it"))
        elif group is None and checkpoint_ts > plan.ts:
            self.end(None)
        elif group is not None and not group.incarnations:
            return "park"
        elif self._is_loaded(plan) and group is not None:
            return "resume"
        return "park" if group is None and checkpoint_ts == plan.ts and self._plan is not None else ""

    def _await(self) -> None:
        last = self._reload
        if last is None or last.repairs or last.outcome == DONE:
            self.sink.awaits = None
            return
        self.sink.awaits = TableFilter.parse(last.rules).matches
        if last.outcome:
            self._warn(f"{last} has failed; its tables stay as they were, or are missing: {last.outcome}")

    def _make_plan(self, reload: Reload, checkpoint_ts: int) -> None:
        """Begin to plan, or note the plan."""
        if self._source.whole_from(checkpoint_ts) > checkpoint_ts:  # the feed's own load comes first
            return
        try:
            if self._loads is None:
                raise ConfigError(NO_ROWS)
            if self._planning is None:
                matches = TableFilter.parse(reload.rules).matches
                self._ahead, make = self._loads.reload_plan(matches, checkpoint_ts)
                self._planning = self._pool.submit(make)
                return
            plan = self._planning.result()
        except TidegateError as error:
            self._planning, self._ahead = None, 0
            if error.retry is not Retry.LATER and not isinstance(error, SourceBehind):
                self.end(error)
                return
            self._due_s = time.monotonic() + AGAIN_S
            self._warn(f"{reload} waits: {error}")
            return
        failpoint("reload/planned")
        self._reload = self._kept.write(msgspec.structs.replace(reload, plan=plan))
        self._planning, self._ahead = None, 0
        failpoint("reload/plan-kept")

    def parts(self, position: SinkPosition) -> tuple[list[TableInfo], SinkPosition]:
        """Return the tables to park, and the position with them."""
        if (group := self.group()) is not None:
            position = SinkPosition(group.checkpoint, self.sink.state_of(group))
        if self._plan is None:
            return [], position
        state = position.state.with_unknown((), schema_of(self._plan).databases.values())
        tables = incarnations(self._plan)
        for table in tables:
            state = state.with_table(table)
        return tables, SinkPosition(position.checkpoint, state)

    def _is_loaded(self, plan: LoadPlan) -> bool:
        """Begin to load, and return True once all is there; an error that is final ends the reload."""
        if self._loads is None:
            self._warn(f"{self._reload} waits: {WITHOUT_ROWS}")
            return False
        if self._loading is None:
            self._sizes = sizes_of([*parts_of(plan)])
            self._loading = self._pool.submit(self._run, self._loads, plan)
        if not self._loading.done():
            return False
        error = self._loading.exception()
        if error is not None and not isinstance(error, TidegateError):
            raise error
        if error is not None:
            self.end(error)
        return error is None

    def _run(self, source: LoadingSource, plan: LoadPlan) -> None:
        outage = Outage(self._patience)

        def survive(error: TidegateError) -> None:
            if self._stop.wait(outage.pause_s(error)):
                raise error

        retry(partial(self._load, source, plan, outage), survive)
        failpoint("reload/loaded")

    def _load(self, source: LoadingSource, plan: LoadPlan, outage: Outage) -> None:
        limited = FewTasks(self._aside, source.connections) if source.connections else self._aside
        try:
            with source.guard(plan) as guard:
                for units, changes in slices(source, plan, CHUNKS_A_SLOT * limited.slots):
                    while guard.rests_until() and not self._stop.wait(1):
                        pass
                    if self._stop.is_set():
                        raise SourceBehind("the feed was stopped")
                    guard.check()
                    self.sink.load(limited, units, changes)
                    self._chunks_done = changes.parts[-1].chunk.number + 1
                    outage.recovered()
        except STORE_ERRORS as away:
            raise store_error(away) from away

    def end(self, error: TidegateError | None) -> None:
        """Note the outcome."""
        if self._reload is None or self._stop.is_set():
            return
        if self._loads is not None and self._plan is not None:
            try:
                self._loads.guard(self._plan).restore()
            except TidegateError as left:
                self._warn(f"{self._reload}: tidb_gc_life_time of the upstream is not as it was: {left}")
        outcome = DONE if error is None else f"{error.code}: {error}"
        self._reload = self._kept.write(msgspec.structs.replace(self._reload, outcome=outcome))
        self._loading, self._chunks_done, self._sizes = None, 0, (0,)
        self._await()

    def check(self, tables: frozenset[str]) -> None:
        """Raise SinkRefused for tables that a step ties to parked ones, which are behind them."""
        for group in self.sink.parked():
            if not group.loads and not tables.isdisjoint(group.incarnations):
                raise SinkRefused(
                    f"{', '.join(group.names)}: parked, and tied to a table that is loaded: resume it first, "
                    "or load both"
                )

    def wait(self, wait_s: float) -> None:
        """Wait for the plan, the chunks, or a source that is not at the checkpoint yet."""
        running: list[Future[Any]] = [future for future in (self._planning, self._loading) if future is not None]
        if all(future.done() for future in running):
            self._stop.wait(wait_s)
        wait(running, wait_s)

    def close(self) -> None:
        """End the thread; the next run goes on with what it has written."""
        self._stop.set()
        if self._loading is not None and not self._loading.done():
            self._aside.cancel()
        self._pool.shutdown()


def incarnations(plan: LoadPlan) -> list[TableInfo]:
    """Return the tables of a reload as they are made, with incarnations that no DDL has."""
    return [
        msgspec.structs.replace(table, incarnation=f"{plan.ts:x}-load-{number}")
        for number, table in enumerate(defined_tables(plan))
    ]


def slices(source: LoadingSource, plan: LoadPlan, chunks: int) -> Iterator[tuple[list[Unit], LoadChanges]]:
    """Return the chunks of a plan, some at a time, with the units that write them."""
    parts, tables = tuple(parts_of(plan)), incarnations(plan)
    for first in range(0, len(parts), chunks):
        some = parts[first : first + chunks]
        after, upto = some[0].commit_ts - 1, some[-1].commit_ts
        changes = LoadChanges(source.reader, plan.ts, after, upto, some, source.events)
        spans = {name.key: span for name, span in changes.tables().items()}
        units = [
            Unit((Create(table, defined_ts(plan), number), Rows(table, after, upto)), spans[table.name.key].rows)
            for number, table in enumerate(tables, 1)
            if table.name.key in spans
        ]
        yield units, changes
