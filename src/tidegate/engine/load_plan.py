"""The plan of a full load: what it makes and reads, at which timestamps, and the file that keeps it.

    commit_ts   S - N - M + 1  ..  D = S - N    D + 1      D + 2     ..     S
                DROP .. CREATE ..               chunk 0    chunk 1          N - 1

engine/load.py says what these timestamps are for.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

import msgspec

from tidegate.engine.filter import previous_name, renamed_together
from tidegate.expr.tokens import quote_names
from tidegate.model.errors import ConfigError
from tidegate.model.event import Ddl
from tidegate.model.kept_state import StateKind, decode_state, encode_state
from tidegate.model.left_out import LeftOut, without_key
from tidegate.model.mysql import ActionType
from tidegate.model.table import TableInfo, TableName
from tidegate.model.tso import shown_ts
from tidegate.objectstore.stores import STORE_ERRORS, Changed, VersionedFile

if TYPE_CHECKING:
    from tidegate.codec.columnar.rows import Batch
    from tidegate.schema.state import SchemaState

SILENT_NAMED: Final = 20
"""The most tables without an event that a report names."""
ROW_ID: Final = "_tidb_rowid"
"""The hidden number of a row whose table has no clustered key."""


class LoadTable(msgspec.Struct, frozen=True):
    """A table at S: its CREATE TABLE, the columns whose order cuts it into chunks (ROW_ID for the hidden number, () if
    there is nothing), and its partitions in their order. Rows and bytes are estimates, 0 where none is known."""

    name: TableName
    create: str
    key: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    estimated_rows: int = 0
    estimated_bytes: int = 0


class LoadChunk(msgspec.Struct, frozen=True):
    """A part of a table, of one partition where it has some: the rows from `lower` up to, without, `upper`, both
    literals of the key's columns; None for no bound. With `keys`: the rows of these handle keys, as texts
    (`reload.key_text`), and DELETEs of those that no row has."""

    number: int
    table: int
    partition: str = ""
    lower: tuple[str, ...] | None = None
    upper: tuple[str, ...] | None = None
    keys: tuple[tuple[str, ...], ...] = ()


class LoadPlan(msgspec.Struct, frozen=True):
    """All of a load: S, where it is read ("" for a cluster that does not tell its id), and each definition at S.

    Databases come with their CREATE DATABASE, views and sequences with theirs; `temporary` tables have no rows."""

    ts: int
    cluster: str = ""
    version: str = ""
    time_zone: str = ""
    databases: tuple[tuple[str, str], ...] = ()
    tables: tuple[LoadTable, ...] = ()
    views: tuple[tuple[TableName, str], ...] = ()
    sequences: tuple[tuple[TableName, str], ...] = ()
    temporary: tuple[TableName, ...] = ()
    chunks: tuple[LoadChunk, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    """Tables whose changes the stream does not carry."""
    made_sequences: tuple[tuple[TableName, str], ...] = ()
    """The sequences that the target gets, each with a definition that begins at its next value."""
    gc_life_time: tuple[str, ...] = ()
    """What tidb_gc_life_time was, and what the load sets it to; () where the load leaves it, or has set it back."""
    done: bool = False
    """True where somebody else has loaded the rows."""
    notes: tuple[str, ...] = ()
    """What whoever runs the feed is told once."""
    truncated: tuple[TableName, ...] = ()
    """Tables that held rows in the target, and are emptied before the first chunk."""
    over: bool = False
    """True where chunks are written over rows that the target holds."""
    number: int = 0
    """The number of a later load; 0 is the one that a feed begins with."""
    replaced: tuple[TableName, ...] = ()
    """Tables that are dropped first."""
    streams: bool = False
    """True where the stream comes up to the first definition."""
    unselected: tuple[TableName, ...] = ()
    """Tables with rows at S that the filter left out."""
    cancelled: bool = False
    """True where a user has ended the load: its tables are dropped; `ts` is 0 if nothing of it is in the target."""
    dropped_views: tuple[TableName, ...] = ()
    """Views that a load which was cancelled has made."""
    broken_from: int = 0
    """The TSO above which an earlier load, which was not done, has made tables; 0 where no table lacks rows of it."""
    safe_point: str = ""
    """The name of what keeps garbage collection from passing S; empty where it needs none."""

    def table_of(self, chunk: LoadChunk) -> LoadTable:
        """Return the table of a chunk."""
        return self.tables[chunk.table]


def schema_of(plan: LoadPlan) -> "SchemaState":
    """Return the databases and tables as the statements of a plan make them."""
    from tidegate.schema.state import SchemaState, apply_ddl

    state = SchemaState()
    for ddl in create_statements(plan):
        state, _ = apply_ddl(state, ddl, 1)
    return state


def defined_tables(plan: LoadPlan) -> list[TableInfo]:
    """Return the tables of a plan as its statements make them."""
    state = schema_of(plan)
    return [table for table in (state.table(loaded.name) for loaded in plan.tables) if table is not None]


def defined_ts(plan: LoadPlan) -> int:
    """Return the commit_ts of the last definition, one below that of the first chunk."""
    return plan.ts - len(plan.chunks)


def create_statements(plan: LoadPlan) -> list[Ddl]:
    """Return the statements that make the databases, sequences, tables and views of a plan, each at a commit_ts of its
    own."""
    statements = [(name, "", create, ActionType.CREATE_SCHEMA) for name, create in plan.databases]
    drops = (("VIEW", ActionType.DROP_VIEW, plan.dropped_views), ("TABLE", ActionType.DROP_TABLE, plan.replaced))
    statements += [
        (*name, f"DROP {kind} IF EXISTS {quote_names(*name)}", action)
        for kind, action, names in drops
        for name in names
    ]
    statements += [(*name, create, ActionType.CREATE_SEQUENCE) for name, create in plan.made_sequences]
    statements += [(*loaded.name, loaded.create, ActionType.CREATE_TABLE) for loaded in plan.tables]
    statements += [
        (*name, f"TRUNCATE TABLE {quote_names(*name)}", ActionType.TRUNCATE_TABLE) for name in plan.truncated
    ]
    statements += [(*name, create, ActionType.CREATE_VIEW) for name, create in plan.views]
    return [
        Ddl(schema=schema, table=table, query=query, commit_ts=ts, type=int(action))
        for ts, (schema, table, query, action) in enumerate(statements, defined_ts(plan) + 1 - len(statements))
    ]


def begin_ts(plan: LoadPlan) -> int:
    """Return the checkpoint of a load that has done nothing, one below the first definition; S where it is done."""
    return plan.ts if plan.done else defined_ts(plan) - len(create_statements(plan))


def is_done(plan: LoadPlan, checkpoint_ts: int | None) -> bool:
    """Return True where a target at its checkpoint has all rows of a load: none is to come, none was dropped."""
    return (checkpoint_ts or 0) >= plan.ts and not (plan.cancelled and plan.ts)


def is_unfinished(plan: LoadPlan | None, number: int, checkpoint_ts: int | None) -> bool:
    """Return True where the load of that number waits for its plan, or has one and is not done."""
    if plan is None:
        return number > 0 or not checkpoint_ts
    return number > plan.number or not is_done(plan, checkpoint_ts)


class LoadReader:
    """Where a load is read; here, where nobody tells what there is. It can be pickled, and each process that reads
    chunks has its own.

    Whatever a method raises is a TidegateError: HistoryLost where the upstream has collected S."""

    def plan(self, selects: Callable[[TableName], bool], ts: int | None = None) -> LoadPlan:  # noqa: ARG002
        """Return the plan of the tables that are selected, at `ts`, or at a timestamp of now."""
        return LoadPlan(ts or 0)

    def moment(self, ts: int | None) -> int | None:
        """Return S where it is known before it is taken: `ts`, or that of a reader of one timestamp."""
        return ts

    def newest_ts(self) -> int:
        """Return the newest timestamp at which it can read; 0 where nobody tells."""
        return self.moment(None) or 0

    @contextmanager
    def lock(self) -> Iterator[str]:
        """Have a lock of the upstream while the block runs, by which another address of it is recognized; its name is
        "" where there is none."""
        yield ""

    def batches(self, table: LoadTable, chunk: LoadChunk, ts: int) -> "Iterator[Batch]":  # noqa: ARG002
        """Return the rows of a chunk as INSERTs at `ts`. After an error all of the chunk is read again."""
        return iter(())

    def typed(self) -> "LoadReader":
        """Return a reader of the same rows, in which DECIMALs and times may be Arrow's own in place of texts."""
        return self

    def defined(self, names: Collection[TableName]) -> tuple[int, Mapping[TableName, str]]:  # noqa: ARG002
        """Return the last TSO of a millisecond that has just passed, and the CREATE TABLE of each table that is there
        then. Raises ConfigError where rows of one TSO are all that there is."""
        raise ConfigError("load-from has no rows of now: with the address of the database it has")

    def absent(self, table: LoadTable, keys: Sequence[tuple[str, ...]]) -> Sequence[tuple[str, ...]]:  # noqa: ARG002
        """Return the handle keys among some, as texts, that no row has now."""
        return ()

    def close(self) -> None:
        """Close what is open; the next method opens it again."""


class LoadGuard:
    """Keeps garbage collection from passing S while a load runs, and knows when it may read. This one does nothing: it
    is that of a database that keeps everything."""

    deadline_ms = 0
    """The time until which it does, Unix milliseconds; 0 for ever."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Let S go."""

    def check(self) -> None:
        """Raise HistoryLost if S is gone, or the last error if the upstream is not reached."""

    def brief(self) -> Self:
        """Return it, not entered yet, for a read that can begin again at another S: where nobody restores it, what it
        holds is let go soon."""
        return self

    def restore(self) -> None:
        """Set what the load has set in the upstream to what it was, entered or not."""

    def rests_until(self) -> str:
        """Return the time of the day until which no rows are to be read; "" if they may be."""
        return ""


class SilentTables(msgspec.Struct, frozen=True):
    """The loaded tables of which the stream has brought no event above the TSO `since`."""

    since: int
    tables: tuple[TableName, ...]

    def without(self, names: Collection[tuple[str, str]]) -> "SilentTables":
        """Return the rest once there were events of tables, or of databases: of (schema, "") all tables."""
        left = tuple(name for name in self.tables if name.key not in names and (name.key[0], "") not in names)
        return SilentTables(self.since, left)


def names_of(ddl: Ddl) -> set[tuple[str, str]]:
    """Return the keys of the tables that a DDL is about, under the names before and after it; (schema, "") for a
    database."""
    together, before = renamed_together(ddl) if "RENAME" in ddl.query.upper() else (), previous_name(ddl)
    return {name.key for name in (TableName(ddl.schema, ddl.table), *together, *([before] if before else ()))}


Kept = TypeVar("Kept", bound=msgspec.Struct)


class KeptStruct(Generic[Kept]):
    """A struct of a feed's load in a file of its home."""

    def __init__(self, home: str, path: str, kind: type[Kept], what: str) -> None:
        self._file, self._kind, self._what = VersionedFile(home, path), kind, what
        self._version: object = None

    def read(self) -> Kept | None:
        """Return what is there; None for no file. Raises ConfigError for a file that is none, StateTooNew."""
        stored = self._file.read()
        if stored is None:
            return None
        self._version, where = stored.version, f"{self._file.uri}/{self._file.path}"
        try:
            return decode_state(StateKind.LOAD, stored.body, self._kind, where)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{where} is no {self._what}: {error}") from error

    def write(self, value: Kept) -> Kept:
        """Write in place of what was read; return what is there, another run's if that was faster."""
        try:
            self._version = self._file.write(encode_state(StateKind.LOAD, value), version=self._version)
        except Changed:
            return self.read() or value
        return value


class KeptPlan(KeptStruct[LoadPlan]):
    """The file of a load's plan, in the home of its feed, and beside it that of the silent tables."""

    def __init__(self, home: str) -> None:
        super().__init__(home, "_tidegate/load.json", LoadPlan, "plan of a load")
        self._silent = KeptStruct(home, "_tidegate/load-silent.json", SilentTables, "list of silent tables")

    def silent(self) -> SilentTables | None:
        """Return the silent tables; None where none were written. Raises StateTooNew."""
        with suppress(ConfigError):  # what it tells comes again
            return self._silent.read()
        return None

    def write_silent(self, silent: SilentTables) -> None:
        """Replace the silent tables. Another run, or a store that is away, keeps those of before."""
        with suppress(*STORE_ERRORS):
            self.silent()
            self._silent.write(silent)

    def restored(self, plan: LoadPlan) -> LoadPlan:
        """Note that the upstream has its own tidb_gc_life_time again; return the plan. Another run's stays."""
        plan = msgspec.structs.replace(plan, gc_life_time=())
        with suppress(*STORE_ERRORS):
            self.write(plan)
        return plan


def unloaded(plan: LoadPlan, *, views: bool = True) -> Iterator[LeftOut]:
    """Return what the database has and the load does not make, `views` of a target that has none among it."""
    yield from plan.left_out
    yield from (LeftOut(str(name), "a view") for name, _ in plan.views if not views)
    created = {name for name, _ in plan.made_sequences}
    yield from (LeftOut(str(name), "a sequence") for name, _ in plan.sequences if name not in created)
    yield from (LeftOut(str(name), "a temporary table") for name in plan.temporary)


def without(plan: LoadPlan, left_out: Sequence[LeftOut], *, listed: bool = True) -> LoadPlan:
    """Return the plan without some tables, which it names if `listed`."""
    names = {item.table for item in left_out}
    kept = [index for index, item in enumerate(plan.tables) if str(item.name) not in names]
    new = {index: number for number, index in enumerate(kept)}
    chunks = [msgspec.structs.replace(item, table=new[item.table]) for item in plan.chunks if item.table in new]
    tables = tuple(plan.tables[index] for index in kept)
    named = (*plan.left_out, *left_out) if listed else plan.left_out
    return msgspec.structs.replace(plan, tables=tables, chunks=tuple(chunks), left_out=named)


def without_keyless(plan: LoadPlan) -> LoadPlan:
    """Return the plan without tables that have no handle key: a stream that leaves them out would never bring a change
    of theirs."""
    return without(plan, without_key(defined_tables(plan)))


def some_of(names: Sequence[object]) -> str:
    """Return the first names of tables, and how many there are."""
    more = f", .. ({len(names)} tables)" if len(names) > SILENT_NAMED else ""
    return ", ".join(map(str, names[:SILENT_NAMED])) + more


def begins_above(names: Iterable[object]) -> str:
    """Return what the users of a feed are told whose first rows of some tables have no CREATE TABLE before them."""
    return (
        f"{some_of(sorted(map(str, names)))}: the feed begins above their CREATE TABLE, so the target lacks rows from "
        "before. A feed with --load-from begins with them; `tidegate load start` loads them into a feed of a server"
    )


def warnings_of(
    plan: LoadPlan, accept: Callable[[str, str], bool], ts: int | None, *, lacks_rows: bool
) -> Iterator[str]:
    """Return what the users of a feed are told whose filter accepts tables that it left out when S was taken, or, while
    the load `lacks_rows`, leaves out others, or that asks for another S."""
    if plan.chunks and (names := [name for name in plan.unselected if accept(*name)]):
        yield (
            f"{some_of(names)}: the filter left them out of the load at {shown_ts(plan.ts)}, so the target lacks their "
            "rows of then. `tidegate load start` loads them into a feed of a server"
        )
    if ts not in {None, plan.ts} and not plan.cancelled:
        yield (
            f"load-ts is {ts} and has no effect: the load of this feed is of {plan.ts}, and another TSO is never taken "
            "for it. Leave load-ts out, or begin in a fresh target"
        )
    if lacks_rows and (names := [table.name for table in plan.tables if not accept(*table.name)]):
        yield (
            f"{some_of(names)}: the filter leaves them out since the load at {shown_ts(plan.ts)} has begun, so the "
            "target has no rows of theirs, or some. Let the filter take them until the load is done, or drop them there"
        )
