"""Tables and rows that are brought again through a running feed: `tidegate table add`, `reload`, and repairs.

    the stream            ......................B            R..............B'            R'.....
    a slice of chunks                           (B, R] chunks                (B', R'] chunks

Rule.  A slice is a small load (engine/load.py): R is the last tick of a millisecond, its n chunks take the timestamps
R - n + 1 .. R, the definitions of tables that the target lacks those before them.  The feed follows the stream up to B,
one below; the stream has nothing in (B, R], which is checked; the chunks come as rows read at R; and the stream goes on
above R.  So the sink's own exactly-once protocol has each chunk, and a change that comes meanwhile wins.  Between two
slices the feed follows its stream: other tables wait for a slice at most.

    reload    chunks of all rows, written over those of the target
              then the keys that the target has and the upstream lacks (WithKeys), as a repair
    resend    chunks of all rows, as INSERTs to readers that have had them: topics, webhooks and callbacks
    repair    chunks of keys: each row as it is at R, a DELETE where there is none

The request is a file in the home of the feed (`KeptReload`), with its plan, the chunks that are done, and the slice,
which is written down before its first row.

    the checkpoint, at a start     the slice
    below R                        goes on
    R and above                    begins again with another R: whether its rows are there is not known

Where R is collected amid a slice, or its upstream stays away, it begins again, too: the stream has nothing there, and
the rows are read anew.  A feed that is started without load-from follows its stream alone: the request waits, and says
so.  A reload of a lake, which shows no table amid it, is engine/reload.py.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from itertools import islice, takewhile
from typing import Final

import msgspec

from tidegate.engine import reload
from tidegate.engine.change import EventPosition, SourceDdl
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
from tidegate.engine.load_plan import (
    LoadChunk,
    LoadGuard,
    LoadPlan,
    LoadTable,
    begin_ts,
    create_statements,
    defined_tables,
    defined_ts,
    names_of,
    without,
)
from tidegate.engine.ports import Changes, Parked, SinkPosition, Tasks, WithKeys, WithParking, WithReload, parks
from tidegate.engine.reading import Reading, ReloadProgress
from tidegate.engine.reload import DONE, NOT_AGAIN, Begun, KeptReload, Reload, RepairKeys
from tidegate.model.errors import ConfigError, HistoryLost, Retry, SinkRefused, SourceBehind, SourceError, TidegateError
from tidegate.model.left_out import LeftOut
from tidegate.model.mysql import MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo, TableName
from tidegate.model.tso import physical_ms, shown_ts
from tidegate.objectstore.failpoint import failpoint
from tidegate.objectstore.threads import ContextPool
from tidegate.schema.state import SchemaState

SLICE_CHUNKS: Final = 4
KEYS_A_CHUNK: Final = 1000
NEAR_MS: Final = 60_000
"""How far a feed may be behind its upstream when a slice is planned."""
AGAIN_MAX: Final = 5
"""So many times a table begins again after DDLs."""
LOST_MAX: Final = 5
"""So many slices in a row whose R is collected end a request."""
SWEEP_S: Final = 1.0
"""The longest time in which keys of the target are read, or a plan is waited for, between two rounds."""


@dataclass(eq=False, repr=False)
class RefreshingSource(LoadingSource):
    """A source that brings tables and rows again, where that is requested."""

    _: KW_ONLY
    requests: KeptReload

    _request: Reload | None = field(default=None, init=False)
    _position: SinkPosition | None = field(default=None, init=False)
    _hold: LoadGuard | None = field(default=None, init=False)
    """What keeps R in the upstream while the chunks of the slice come; None while they do not."""
    _shown_ts: int = field(default=0, init=False)
    """The highest frontier that was shown."""
    _due_s: float = field(default=0.0, init=False)
    _lost: int = field(default=0, init=False)
    _waits: str = field(default="", init=False)
    _pool: ContextPool = field(default_factory=partial(ContextPool, 1, "tidegate-reload-plan"), init=False)
    _planning: Future[LoadPlan] | None = field(default=None, init=False)
    _stale: Iterator[Sequence[tuple[str, ...]]] | None = field(default=None, init=False)
    _stale_keys: list[tuple[str, ...]] = field(default_factory=list, init=False)
    _differs: dict[str, int] = field(default_factory=dict, init=False)
    """The TSO at which each table was first seen with columns that the feed does not know."""
    _sized: tuple[LoadPlan | None, Sequence[int]] = field(default=(None, ()), init=False)
    """A plan, and the bytes of its first chunks, by their number."""

    def start(self, tasks: Tasks, checkpoint_ts: int | None) -> int:
        begun = super().start(tasks, checkpoint_ts)
        self._stale, self._request = None, self.requests.look()
        if self._slice is not None and (begun >= self._slice.ts or not self.reads_rows):
            self._put(slice=None)
        return begun

    @property
    def _slice(self) -> LoadPlan | None:
        return self._request.slice if self._request is not None and not self._request.outcome else None

    @property
    def _is_open(self) -> bool:
        """True while the chunks of the slice come, of a stream that has nothing there."""
        return self._hold is not None

    def _close(self, *, done: bool) -> None:
        """No chunks come for now. R is let go if they are done, else a little later."""
        guard, self._hold = self._hold, None
        if guard is not None:
            with suppress(TidegateError):
                if done:
                    guard.restore()
            guard.__exit__(None, None, None)

    @property
    def _begin_ts(self) -> int:
        """B."""
        assert self._request is not None
        assert self._request.definitions is not None
        return begin_ts(self._request.definitions)

    def _put(self, **changes: object) -> None:
        """Write what changed of the request."""
        assert self._request is not None
        self._request = self.requests.write(msgspec.structs.replace(self._request, **changes))

    def _end(self, error: TidegateError | None, failed: Iterable[str] = ()) -> None:
        """Note the outcome; tables that were left out are an error."""
        assert self._request is not None
        failed = (*self._request.failed, *failed)
        if error is None and failed:
            error = SinkRefused(f"{'; '.join(failed)}; what else was requested is done")
        outcome = DONE if error is None else f"{error.code}: {error}"
        self._waits = "" if error is None else f"{self._request} has failed: {outcome}"
        self._close(done=True)
        self._put(slice=None, definitions=None, failed=failed, outcome=outcome)

    def at(self, position: SinkPosition) -> int | None:
        """Note the position; at R the slice is done. Return B, or R."""
        self._position, part = position, self._slice
        if part is None or position.checkpoint.ts < part.ts:
            return None if part is None else part.ts if self._is_open else self._begin_ts
        if not self._is_open:  # a round went past it
            self._put(slice=None)
            return None
        failpoint("refresh/slice-done")
        assert self._request is not None
        self._due_s, self._lost = 0.0, 0
        self._close(done=True)
        self._put(slice=None, done=self._request.done + len(part.chunks))
        self._leave_out({str(table.name): self._parked(table.name) for table in part.tables})
        return None

    def _parked(self, name: TableName) -> str:
        groups: Sequence[Parked] = self._sink.parked() if isinstance(self._sink, WithParking) else ()
        parked = any(str(name) in group.names for group in groups if not group.loads)
        return "it is parked: resume it first (`tidegate table resume`)" if parked else ""

    def _leave_out(self, reasons: Mapping[str, str]) -> bool:
        """Leave the tables that have a reason out of the plan; return whether there are some."""
        request = self._request
        assert request is not None
        assert request.plan is not None
        failed = {name: reason for name, reason in reasons.items() if reason}
        if failed:
            plan, done = _without(request.plan, failed.keys(), request.done)
            swept = sum(str(table.name) not in failed for table in request.plan.tables[: request.swept])
            texts = tuple(f"{name}: {reason}" for name, reason in failed.items())
            begun = {name: began for name, began in request.begun.items() if name not in failed}
            self._put(plan=plan, done=done, swept=swept, begun=begun, failed=(*request.failed, *texts))
        return bool(failed)

    def refresh(self) -> None:
        """Poll the stream; open the slice where the feed has come to it, or plan the next one."""
        super().refresh()
        if self._position is None or self._loads():
            return
        if self._hold is not None:
            self._hold.check()
        ts, part = self._position.checkpoint.ts, self._slice
        if part is None:
            if time.monotonic() >= self._due_s:
                self._look(ts)
        elif not self._is_open and ts >= self._begin_ts and (self.stream.frontier() or 0) >= part.ts:
            try:
                self._open(part, ts)
            except ConfigError:  # another R
                self._put(slice=None)

    def _open(self, part: LoadPlan, checkpoint_ts: int) -> None:
        """Let the chunks of a slice come. Raises ConfigError where the stream has something there, or had a DDL that
        the chunks do not know."""
        request, names = self._request, {str(table.name) for table in part.tables}
        assert request is not None
        if names.intersection(self._altered()):
            raise ConfigError("its tables have changed since they were planned")
        self._check_clear(checkpoint_ts, part.ts)
        try:
            self._hold = self.guard(part).brief().__enter__()
        except TidegateError as error:
            if self._gives_up(error):
                return
            raise
        if first := names.intersection(request.begun) - self._begun_before(request):
            begun = {name: Begun(part.ts, request.begun[name].tries) for name in first}
            self._put(begun=request.begun | begun)

    def _look(self, checkpoint_ts: int) -> None:
        self._due_s = time.monotonic() + self.requests.look_s
        if self._planning is None:
            self._request = self.requests.look()
        request = self._request
        if request is None or request.outcome or not self._is_own(request):
            return
        try:
            if reason := NOT_AGAIN.get((self._ability, request.kind)):
                raise ConfigError(reason)
            if not self.reads_rows:
                raise ConfigError(NO_ROWS) if request.plan is None else SourceBehind(WITHOUT_ROWS)
            self._step(request, checkpoint_ts)
            self._waits = ""
        except TidegateError as error:
            if error.retry is not Retry.LATER and not isinstance(error, SourceBehind):
                self._end(error)
                return
            self._stale = None
            self._due_s = time.monotonic() + reload.AGAIN_S
            self._waits = f"{request} waits: {error}"

    def _step(self, request: Reload, checkpoint_ts: int) -> None:
        """Make the plan, or a slice of it, or look for keys that the upstream lacks."""
        plan = request.plan
        self._due_s = 0.0
        if plan is None and request.repairs:
            plan, failed = self._plan_of_keys(request.repairs)
            self._put(plan=plan, failed=failed)
        elif plan is None:
            if new := self._planned_aside(TableFilter.parse(request.rules).matches, checkpoint_ts):
                self._put(plan=new, begun={str(table.name): Begun(new.ts, 0) for table in new.tables})
        elif altered := self._altered():
            self._stale = None
            self._plan_again(plan, altered, checkpoint_ts)
        elif request.done < len(plan.chunks):
            self._plan_slice(request, plan, checkpoint_ts)
        elif self._ability == "rows" and not request.repairs and request.swept < len(plan.tables):
            self._sweep(request, plan)
        else:
            self._end(None)

    def _planned_aside(self, selects: Callable[[str, str], bool], checkpoint_ts: int) -> LoadPlan | None:
        """Return the plan of tables, which a thread makes; None while it does."""
        if self._planning is None:
            self._planning = self._pool.submit(self.reload_plan(selects, checkpoint_ts)[1])
            wait([self._planning], SWEEP_S)
        if not self._planning.done():
            return None
        planning, self._planning = self._planning, None
        return planning.result()

    def stop(self) -> None:
        self._stale = None
        self._close(done=False)
        self._pool.shutdown(cancel_futures=True)
        super().stop()

    def _plan_of_keys(self, repairs: Sequence[RepairKeys]) -> tuple[LoadPlan, tuple[str, ...]]:
        """Return the plan of a repair, whose tables are as they are now, and the tables that are left out."""
        ts, creates = self.reader.defined(tuple(dict.fromkeys(rows.table for rows in repairs)))
        tables = [LoadTable(name, create) for name, create in creates.items()]
        chunks: list[LoadChunk] = []
        failed = {str(rows.table): "the upstream has no such table" for rows in repairs if rows.table not in creates}
        for info in defined_tables(LoadPlan(ts, tables=tuple(tables))):
            number = next(number for number, table in enumerate(tables) if table.name == info.name)
            for rows in (some for some in repairs if some.table == info.name):
                indexes = {lowered(column): index for index, column in enumerate(rows.columns)}
                if not info.handle_key or indexes.keys() != {lowered(column) for column in info.handle_key}:
                    failed[str(rows.table)] = (
                        f"its key is ({', '.join(info.handle_key)}), not ({', '.join(rows.columns)})"
                    )
                    continue
                order = [indexes[lowered(column)] for column in info.handle_key]
                chunks += _chunks_of(number, [tuple(key[index] for index in order) for key in rows.keys])
        plan = LoadPlan(ts, tables=tuple(tables), chunks=tuple(chunks))
        return plan, tuple(f"{name}: {reason}" for name, reason in failed.items())

    def _altered(self) -> list[str]:
        """Return the tables of which a DDL came since they were planned: it may have moved rows that were there before,
        or taken the partitions of chunks away."""
        request = self._request
        assert request is not None
        versions = {str(table.name): table.version for table in self._state.tables.values()}
        return [name for name, begun in request.begun.items() if 0 < begun.ts < versions.get(name, 0)]

    def _begun_before(self, request: Reload) -> set[str]:
        """Return the tables of which chunks are done."""
        plan = request.plan
        return {str(plan.table_of(chunk).name) for chunk in plan.chunks[: request.done]} if plan else set()

    def _plan_again(self, plan: LoadPlan, altered: Sequence[str], checkpoint_ts: int) -> None:
        """Begin the reload of tables again, with the definitions of now."""
        request = self._request
        assert request is not None
        begun_before = self._begun_before(request)
        tries = {name: request.begun[name].tries + (name in begun_before) for name in altered}
        if self._leave_out(
            {name: "DDLs come faster than its rows" for name, count in tries.items() if count > AGAIN_MAX}
        ):
            return
        new = self._planned_aside(lambda *name: str(TableName(*name)) in tries, checkpoint_ts)
        if new is None:
            return
        plan, done = _without(plan, tries, request.done)
        moved = [msgspec.structs.replace(chunk, table=chunk.table + len(plan.tables)) for chunk in new.chunks]
        plan = msgspec.structs.replace(plan, tables=(*plan.tables, *new.tables), chunks=(*plan.chunks, *moved))
        begun = request.begun | {name: Begun(new.ts, count) for name, count in tries.items()}
        self._put(plan=plan, done=done, swept=0, begun=begun)

    def _plan_slice(self, request: Reload, plan: LoadPlan, checkpoint_ts: int) -> None:
        """Write down the next slice, unless tables have to be left out first."""
        chunks = plan.chunks[request.done : request.done + SLICE_CHUNKS]
        last = defined_tables(LoadPlan(plan.ts, tables=(plan.table_of(chunks[-1]),)))
        if self._ability == "tables" and not all(info.handle_key for info in last):
            # without a key a row that is inserted between two slices, or a slice that begins again, would come twice
            table, rest = chunks[-1].table, plan.chunks[request.done + len(chunks) :]
            more = takewhile(lambda chunk: chunk.table == table, rest)
            chunks = (*chunks, *more)
        tables = {plan.table_of(chunk).name: plan.table_of(chunk) for chunk in chunks}
        ts, creates = self.reader.defined(tuple(tables))
        behind_ms = physical_ms(ts) - physical_ms(checkpoint_ts)
        if behind_ms > NEAR_MS:
            raise SourceBehind(
                f"the feed is {behind_ms // 1000} s behind the upstream, and reads rows once it is nearer"
            )
        tables = {
            name: msgspec.structs.replace(table, create=creates[name], estimated_rows=0, estimated_bytes=0)
            for name, table in tables.items()
            if name in creates
        }
        infos = defined_tables(LoadPlan(ts, tables=tuple(tables.values())))
        reasons = {str(table.name): "dropped or renamed meanwhile" for table in map(plan.table_of, chunks)}
        reasons |= {str(info.name): self._refused(info, request, ts) for info in infos}
        if self._leave_out(reasons):
            return
        numbers = {name: number for number, name in enumerate(tables)}
        part = LoadPlan(
            ts,
            time_zone=plan.time_zone,
            tables=tuple(tables.values()),
            chunks=tuple(
                msgspec.structs.replace(chunk, number=number, table=numbers[plan.table_of(chunk).name])
                for number, chunk in enumerate(chunks)
            ),
            over=True,
        )
        begun_before = self._begun_before(request)
        anew = [name for name in tables if self._ability == "tables" and str(name) not in begun_before]
        definitions = LoadPlan(
            defined_ts(part),
            databases=tuple(item for item in plan.databases if lowered(item[0]) not in self._state.databases),
            tables=tuple(table for name, table in tables.items() if self._state.table(name) is None or name in anew),
            replaced=tuple(name for name in anew if self._state.table(name) is not None),
        )
        if begin_ts(definitions) <= max(checkpoint_ts, self._shown_ts):
            raise SourceBehind(f"the database is at {shown_ts(ts)}, and the feed is there")
        failpoint("refresh/planned")
        self._put(slice=part, definitions=definitions)
        failpoint("refresh/plan-kept")

    def _refused(self, info: TableInfo, request: Reload, ts: int) -> str:
        """Return why a table, as it is at `ts`, cannot be brought again; "" if it can. Raises SourceBehind for one
        whose DDLs the feed has not come to."""
        table = self._state.table(info.name)
        if not self.accept(*info.name):
            return "the filter leaves it out"
        if not info.handle_key and (request.repairs or self._ability != "tables"):
            return "it has no key by which rows are written over"
        zoned = any(
            column.type.code is MysqlType.TIMESTAMP for name in info.handle_key if (column := info.column(name))
        )
        if zoned and not request.repairs and request.plan is not None and request.plan.time_zone != "UTC":
            return "its key has a TIMESTAMP, and the feed's time zone is not UTC"
        if table is None:
            return "the target does not have it" if request.repairs else ""
        if _shape(table, info, inferred=table.inferred) != _shape(info, info, inferred=table.inferred):
            differs_ts = self._differs.setdefault(str(info.name), ts)
            if self._position is not None and self._position.checkpoint.ts < differs_ts:
                raise SourceBehind(f"{info.name} has a DDL, to which the feed has not come at {shown_ts(differs_ts)}")
            return (
                f"its columns or its key are others in the feed at {shown_ts(self._position_ts)} than in the upstream"
            )
        self._differs.pop(str(info.name), None)
        return self._parked(info.name)

    def _sweep(self, request: Reload, plan: LoadPlan) -> None:
        """Look for a while for keys of a table that the upstream lacks; once all are known they are repaired."""
        assert isinstance(self._sink, WithKeys)
        table = plan.tables[request.swept]
        info, until_s = self._state.table(table.name), time.monotonic() + SWEEP_S
        if self._stale is None:
            keys = iter(self._sink.keys(info) if info is not None else ())
            pages = iter(lambda: tuple(islice(keys, KEYS_A_CHUNK)), ())
            self._stale, self._stale_keys = (self.reader.absent(table, page) for page in pages), []
        for stale in self._stale:
            self._stale_keys += stale
            if len(self._stale_keys) >= reload.REPAIR_MAX:
                break
            if time.monotonic() >= until_s:
                return
        else:
            self._put_swept(request.swept + 1)
            return
        self._put_swept(request.swept)

    def _put_swept(self, swept: int) -> None:
        assert self._request is not None
        assert self._request.plan is not None
        plan, number = self._request.plan, self._request.swept
        failpoint("refresh/swept")
        stale = tuple(_chunks_of(number, self._stale_keys))
        self._put(plan=msgspec.structs.replace(plan, chunks=(*plan.chunks, *stale)), swept=swept)
        self._stale = None

    def _is_own(self, request: Reload) -> bool:
        """Return False for the reload of a lake, which is not done here."""
        return bool(request.repairs) or not isinstance(self._sink, WithReload)

    @property
    def _ability(self) -> str:
        return "" if self._sink is None else self._sink.brings_again

    @property
    def _state(self) -> SchemaState:
        assert self._position is not None
        return self._position.state

    def frontier(self) -> int | None:
        """Return the stream's frontier up to B, and R once the stream has nothing between."""
        reached, part = super().frontier(), self._slice
        if part is not None and self._position is not None:
            if self._is_open:
                return part.ts
            reached = reached and min(reached, max(self._begin_ts, self._position.checkpoint.ts))
        self._shown_ts = max(self._shown_ts, reached or 0)
        return reached

    def ddls(self, after: int, upto: int) -> Sequence[SourceDdl]:
        ddls, request = super().ddls(after, upto), self._request
        if self._stale is not None and request is not None and request.plan is not None:
            name = request.plan.tables[request.swept].name.key
            if any(not {name, (name[0], "")}.isdisjoint(names_of(each.ddl)) for each in ddls):
                self._stale = None  # a target waits with a DDL while its table is read
        if not self._is_open or request is None or request.definitions is None:
            return ddls
        creates = [ddl for ddl in create_statements(request.definitions) if after <= (ddl.commit_ts or 0) <= upto]
        return [*ddls, *(SourceDdl(EventPosition(), ddl, needed=True) for ddl in creates)]

    def changes(self, after: int, upto: int) -> Changes:
        part = self._slice
        if not self._is_open or part is None or not self._begin_ts <= after < upto <= part.ts:
            return super().changes(after, upto)
        parts = tuple(each for each in parts_of(part) if after < each.commit_ts <= upto)
        return LoadChanges(self.reader, part.ts, after, upto, parts, self.events, over=True)

    def limited(self, tasks: Tasks) -> Tasks:
        return FewTasks(tasks, self.connections) if self.connections and self._is_open else super().limited(tasks)

    def refused(self, error: TidegateError) -> bool:
        return (self._is_open and self._gives_up(error)) or super().refused(error)

    def _gives_up(self, error: TidegateError) -> bool:
        """End a request whose rows cannot be read or written; a slice whose R is collected begins again. Return False
        for an error of something else."""
        is_lost = isinstance(error, HistoryLost)
        is_away = isinstance(error, SourceError) and error.retry is Retry.LATER
        if is_away or (is_lost and self._lost < LOST_MAX):  # the feed can go on without its rows
            self._lost += is_lost
            self._close(done=False)
            self._put(slice=None)
            return True
        if parks(error) or is_lost:
            self._end(error)
            return True
        return False

    def idle(self) -> bool:
        request = self._request
        runs = request is not None and request.plan and not request.outcome and not self._waits
        own = request is not None and self._is_own(request)
        return not (self._planning or (runs and own)) and super().idle()

    def reading(self) -> Reading:
        reading = super().reading()
        warnings = (*reading.warnings, *filter(None, [self._waits]))
        return replace(reading, reload=self._reload_progress(), warnings=warnings)

    def _reload_progress(self) -> ReloadProgress | None:
        request = self._request
        if request is None or not self._is_own(request):
            return None
        plan = None if request.outcome else request.plan
        if plan is None or request.done == len(plan.chunks):
            state = "waiting" if self._waits else "planning" if plan is None else "sweeping"
            return ReloadProgress(str(request), request.outcome or state)
        if plan is not self._sized[0]:
            self._sized = plan, sizes_of([*parts_of(plan)])
        load = load_progress(plan, request.done, self._sized[1])
        return ReloadProgress(str(request), "waiting" if self._waits else "loading", load)


def _chunks_of(table: int, keys: Sequence[tuple[str, ...]]) -> Iterator[LoadChunk]:
    """Return keys in chunks."""
    for number, first in enumerate(range(0, len(keys), KEYS_A_CHUNK)):
        yield LoadChunk(number, table, keys=tuple(keys[first : first + KEYS_A_CHUNK]))


def _without(plan: LoadPlan, names: Collection[str], done: int) -> tuple[LoadPlan, int]:
    """Return a plan without some tables, and how many of its first `done` chunks are left."""
    left = sum(str(plan.table_of(chunk).name) not in names for chunk in plan.chunks[:done])
    return without(plan, [LeftOut(name, "") for name in names], listed=False), left


def _shape(table: TableInfo, like: TableInfo, *, inferred: bool) -> tuple[object, ...]:
    """Return what rows of a table need to be the same in upstream and target: types only if messages told them not."""
    columns = {
        lowered(column.name): None if inferred else column.type.code for column in table.columns if not column.virtual
    }
    return columns, {lowered(name) for name in (like if inferred else table).handle_key}
