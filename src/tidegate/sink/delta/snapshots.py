"""The published states of a lake: which version of every table belongs to a resolved ts.

    _tidegate/
      snapshots/00000000000000000042.json    {"checkpoint": {ts, done}, "schema": "<digest>", "tables": {...}}
      schemas/<digest>.json                  the schema state, written when it changes
      resume/<incarnation>                   an empty file: a request to resume this parked table
      changelog/                             the change log (changelog/changelog.py)
    tables/<incarnation>/                    one Delta table each

A snapshot is written once, under the next number, only if that number is free: the newest number is the lake's state.
Of two runs the one whose landing claimed last continues (`epoch`): it finds a number taken and adopts what is there
(`Overtaken`), and the other one stops (`Fenced`).

After a crash tables may be ahead of the last snapshot.  Each table keeps its position in its own commits, so the next
round continues from there:

    txn "<feed>"       the ts of the position              readable from every version of the table,
    txn "<feed>/seq"   its number among the DDLs of it     log checkpoints included

`tidegate table resume LAKE shop.orders` creates `_tidegate/resume/<incarnation>`, which the running feed or its next
run reads.  The file is deleted once the outcome is published, so a feed that dies in between finds it again.

Column selectors are checked before anything is done:

    the rules changed since the last run           are the stored columns of each known table those chosen now?
    a round creates or changes a table             does the key stay, do any columns stay?
    a round renames a table, or brings it back     are the same columns chosen under both names?

A renamed table keeps its columns.  A different choice under the new name would leave values missing, or keep values
that are no longer wanted, so it ends the changefeed.
"""

import hashlib
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import msgspec
import obstore

from tidegate.engine.filter import EventRule, SelectorRule, TableFilter
from tidegate.engine.plan import Alter, Checkpoint, Create, Position, Round, SkippedDdl
from tidegate.engine.ports import Parked
from tidegate.engine.retention import PURGED
from tidegate.model.errors import (
    ColumnSelectorFailed,
    ConfigError,
    EnvironmentFault,
    Fenced,
    Overtaken,
    SinkRefused,
    TableParked,
)
from tidegate.model.kept_state import StateKind, decode_state, encode_state
from tidegate.model.name import lowered, table_key
from tidegate.model.table import ColumnInfo, TableInfo, TableName
from tidegate.objectstore import deltalog
from tidegate.objectstore.deltalog import Action, TableSnapshot
from tidegate.objectstore.failpoint import failpoint
from tidegate.objectstore.stores import (
    Changed,
    VersionedFile,
    delete,
    listed,
    read_file,
    store,
    stored_files,
    storing,
    writable,
)
from tidegate.schema.state import SchemaState
from tidegate.sink.delta.columns import stored_columns
from tidegate.sink.delta.options import (
    ColumnMapping,
    DeltaOptions,
    Mode,
    SchemaChange,
    ZeroDate,
    chosen_ids,
    stored_definition,
)

T = TypeVar("T")
Schemas: TypeAlias = Callable[[DeltaOptions, str], SchemaState]


class PublishedTable(msgspec.Struct, frozen=True):
    """One table of a snapshot: its name, the location of its rows and its Delta version."""

    schema: str
    table: str
    version: int

    @property
    def name(self) -> TableName:
        return TableName(self.schema, self.table)


class _Followed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The options of the feed by which readers of the changelog continue from a snapshot as it would."""

    time_zone: str = "UTC"
    zero_date: ZeroDate = "null"
    schema_change: SchemaChange = "evolve"
    mode: Mode = "replica"
    column_mapping: ColumnMapping = "auto"
    rules: tuple[str, ...] = ()
    case_sensitive: bool = False
    event_rules: tuple[EventRule, ...] = ()
    events_since: int = 0
    selectors: tuple[SelectorRule, ...] = ()


class SnapshotBody(msgspec.Struct, frozen=True):
    """A snapshot's file."""

    checkpoint_ts: int
    done: tuple[str, ...]
    schema: str
    tables: dict[str, PublishedTable]
    retired: dict[str, int]
    feed: str
    published_ms: int
    options: _Followed = _Followed()
    left_out: tuple[SkippedDdl, ...] = ()
    parked: tuple[Parked, ...] = ()
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The lake at one checkpoint; `tables` by incarnation, `retired` (dropped, recoverable) with their versions."""

    number: int = -1
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    state: SchemaState = field(default_factory=SchemaState)
    tables: Mapping[str, PublishedTable] = field(default_factory=dict)
    retired: Mapping[str, int] = field(default_factory=dict)
    options: DeltaOptions | None = None
    """Options of the feed that published it; None for a new lake and before publishing."""
    published_ms: int = 0
    parked: tuple[Parked, ...] = ()
    """Parked tables: their versions here are of an earlier ts."""
    digest: str = ""
    """Of `state`, if it is kept already."""
    epoch: int = 0
    """Of the run that published it."""

    @property
    def needed_ts(self) -> int:
        """Landed changes above it are still needed."""
        return min((self.checkpoint.ts, *(group.checkpoint.ts for group in self.parked)))

    def group(self, incarnation: str) -> Parked | None:
        """Return the group of tables parked together with a table, if it is parked."""
        return next((group for group in self.parked if incarnation in group.incarnations), None)

    def check_not_parked(self, table: TableInfo, root: str) -> None:
        """Raise TableParked for a parked table, whose rows are not of this checkpoint."""
        group = self.group(table.incarnation)
        if group is not None:
            raise TableParked(
                f"table {table.name} is parked: its rows are of ts {group.checkpoint.ts}, not {self.checkpoint.ts} "
                f"({group.code}: {group.message}). The lake at({group.checkpoint.ts}) shows them; once the cause is "
                f"fixed, `tidegate table resume {root} {table.name}` resumes it"
            ).at(table=str(table.name), commit_ts=group.commit_ts)


@dataclass(frozen=True, slots=True)
class Published:
    """One entry of a lake's history: a snapshot without its schema."""

    number: int
    checkpoint_ts: int
    published_ms: int
    tables: Mapping[str, PublishedTable]


def published(options: DeltaOptions, number: int) -> Published:
    """Return the published state of that number, without its schema."""
    body = _body(options, number)
    return Published(number, body.checkpoint_ts, body.published_ms, body.tables)


def kept_snapshots(options: DeltaOptions) -> Iterator[Snapshot]:
    """Return every published state with its schema, the oldest first."""
    return (numbered(options, number) for number in numbers(options))


def latest(options: DeltaOptions) -> Snapshot:
    """Return the newest published state; an empty one for a new lake."""
    newest_numbers = numbers(options)
    return numbered(options, newest_numbers[-1]) if newest_numbers else Snapshot()


def published_at(options: DeltaOptions, ts: int) -> Snapshot:
    """Return the newest published state whose checkpoint is not above `ts`; an empty one when there is none."""
    number = number_at(options, ts)
    return numbered(options, number) if number >= 0 else Snapshot()


def number_at(options: DeltaOptions, ts: int) -> int:
    """Return the number of the newest published state whose checkpoint is not above `ts`; -1 when there is none."""
    newest_numbers = numbers(options)
    index = bisect_right(newest_numbers, ts, key=lambda number: _body(options, number).checkpoint_ts)
    return newest_numbers[index - 1] if index else -1


def numbered(options: DeltaOptions, number: int, schemas: Schemas | None = None) -> Snapshot:
    """Return the published state of that number.

    Raises FileNotFoundError if it does not exist, or no longer. `schemas` returns the schema of a digest, for callers
    that read many states and cache it.
    """
    body = _body(options, number)
    if options.feed and body.feed != options.feed:
        raise SinkRefused(
            f"lake {options.root} belongs to changefeed {body.feed!r}, not {options.feed!r}: "
            "give --changefeed-id or another sink directory",
        )
    checkpoint = Checkpoint(body.checkpoint_ts, body.done, body.left_out)
    state = (schemas or kept_schema)(options, body.schema)
    followed = DeltaOptions(root=options.root, feed=body.feed, **msgspec.structs.asdict(body.options))
    return Snapshot(
        number,
        checkpoint,
        state,
        body.tables,
        body.retired,
        followed,
        body.published_ms,
        body.parked,
        body.schema,
        body.epoch,
    )


def kept_schema(options: DeltaOptions, digest: str) -> SchemaState:
    """Return the schema state of that digest."""
    return SchemaState.from_json(obstore.get(store(options.control_uri), f"schemas/{digest}.json").bytes().to_bytes())


def keep_schema(options: DeltaOptions, state: SchemaState) -> str:
    """Write a schema state under its digest, which is returned."""
    schema = state.to_json()
    digest = hashlib.sha256(schema).hexdigest()[:32]
    with storing(options.control_uri):
        failpoint("publish/before-schema")
        obstore.put(writable(options.control_uri), f"schemas/{digest}.json", schema)
    return digest


def _body(options: DeltaOptions, number: int) -> SnapshotBody:
    raw = read_file(options.control_uri, _path(number))
    if raw is None:  # upkeep forgot it between listing and reading, and keeps what it names for a while
        raw = obstore.get(store(options.control_uri), _path(number, "forgotten")).bytes().to_bytes()
    return decode_body(raw, f"{options.control_uri}/{_path(number)}")


def decode_body(raw: bytes, where: str, kind: type[T] = SnapshotBody) -> T:  # type: ignore[assignment]
    """Return the content of a snapshot's file, or a part of it. Raises StateTooNew, EnvironmentFault for a damaged
    one."""
    try:
        return decode_state(StateKind.SNAPSHOT, raw, kind, where)
    except msgspec.DecodeError as broken:
        raise EnvironmentFault(f"{where} is damaged: {broken}") from broken


def publish(options: DeltaOptions, snapshot: Snapshot) -> str:
    """Write `snapshot` under its number; return the digest of its schema.

    If another run took the number, raises Fenced, or Overtaken if that run is an earlier one.
    """
    digest = snapshot.digest or keep_schema(options, snapshot.state)
    checkpoint = snapshot.checkpoint
    now_ms = int(time.time() * 1000)
    tables, retired = dict(snapshot.tables), dict(snapshot.retired)
    followed = msgspec.convert(options, _Followed, from_attributes=True)
    body = SnapshotBody(
        checkpoint.ts,
        checkpoint.done,
        digest,
        tables,
        retired,
        options.feed,
        now_ms,
        followed,
        checkpoint.left_out,
        snapshot.parked,
        snapshot.epoch,
    )
    encoded = encode_state(StateKind.SNAPSHOT, body)
    try:
        with storing(options.control_uri):
            failpoint("publish/before-snapshot")
            VersionedFile(options.control_uri, _path(snapshot.number)).write(encoded)
    except Changed as changed:
        where = f"lake {options.root}: snapshot {snapshot.number}"
        if changed.current is not None and decode_body(changed.current.body, where).epoch < snapshot.epoch:
            raise Overtaken(f"{where} was published by a run before this one") from changed
        raise Fenced(f"{where} was published by another run; run one changefeed per lake") from changed
    failpoint("publish/after-snapshot")
    return digest


def _path(number: int, shelf: str = "snapshots") -> str:
    return f"{shelf}/{number:020d}.json"


def numbers(options: DeltaOptions, at_least: int = 0) -> list[int]:
    """Return the numbers of the published states, ascending: all, or those from `at_least` on."""
    after = _path(at_least - 1) if at_least else None
    paths = [entry["path"] for entry in listed(options.control_uri, "snapshots", offset=after)]
    return sorted(int(path.rsplit("/", 1)[-1].removesuffix(".json")) for path in paths if path.endswith(".json"))


def position(snapshot: TableSnapshot, feed: str) -> Position:
    """Return the position of a stored table."""
    ts, seq = snapshot.txns(feed, f"{feed}/seq")
    return ts or 0, seq or 0


def no_rows(table: TableInfo, uri: str) -> SinkRefused:
    """Return the error for a table that the lake should have and has not; waiting does not bring it back."""
    return SinkRefused(
        f"table {table.name}: the lake has no rows of it at {uri}: the filter excluded it until now, or they were "
        f"removed. Exclude it by a filter rule, or create a new lake"
    ).at(table=str(table.name))


def progress(feed: str, position: Position) -> list[Action]:
    """Return the actions that move a table to `position`."""
    return [deltalog.txn(feed, position[0]), deltalog.txn(f"{feed}/seq", position[1])]


RESUME: Final = "resume/"
LOOK_S: Final = 1.0
"""The interval at which the feed polls for requests while tables are parked."""


class Requests:
    """Requests to resume parked tables of one lake, as its feed reads them."""

    def __init__(self, options: DeltaOptions) -> None:
        self._uri = options.control_uri
        self._looked_s = float("-inf")
        self._answered: set[str] = set()

    def read(self) -> frozenset[str]:
        """Return the requested incarnations; none when it is too early to look again."""
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_S:
            return frozenset()
        self._looked_s = now_s
        return frozenset(file.path.removeprefix(RESUME) for file in stored_files(self._uri, RESUME))

    def answer(self, group: Parked) -> None:
        """Note that the next snapshot has the outcome of the requests for these tables."""
        self._answered |= set(group.incarnations)

    def withdraw(self) -> None:
        """Delete the requests whose outcome is published."""
        if self._answered:
            delete(self._uri, [f"{RESUME}{incarnation}" for incarnation in sorted(self._answered)])
            self._answered = set()


def ask(options: DeltaOptions, snapshot: Snapshot, names: Collection[str]) -> list[Parked]:
    """Request to resume the parked tables of these names, or all if none is given; return those resumed with them.

    Raises ConfigError for a table that is not parked.
    """
    every = [group for group in snapshot.parked if not group.loads]
    chosen = [group for name in names for group in _parked(snapshot, name)] or every
    with storing(options.control_uri):
        for group in chosen:
            obstore.put(writable(options.control_uri), f"{RESUME}{group.incarnations[0]}", b"")
    return chosen


def _parked(snapshot: Snapshot, name: str) -> list[Parked]:
    groups = [group for group in snapshot.parked if table_key(name) in map(lowered, group.names)]
    if groups:
        return groups
    parked = ", ".join(name for group in snapshot.parked for name in group.names) or "none"
    raise ConfigError(f"table {name} is not parked; parked tables are: {parked}")


def check_rules(snapshot: Snapshot, options: DeltaOptions) -> None:
    """Raise ColumnSelectorFailed when the rules differ from those of the snapshot, and the stored columns of some
    table are not those that are chosen now."""
    before = snapshot.options
    if before is None or _rules(before) == _rules(options):
        return
    for table in snapshot.state.tables.values():
        published = snapshot.tables.get(table.incarnation)
        if published is None or not accepted(table.name, options):
            continue
        was, now = chosen_ids(table, before), chosen_ids(stored_definition(table, options), options)
        if was != now:
            stored = _stored_ids(table, published.version, options)
            _refuse(table.name, [column for column in table.columns if column.id in (was ^ now) & (now ^ stored)], now)


def check_round(snapshot: Snapshot, planned: Round, options: DeltaOptions) -> None:
    """Raise ColumnSelectorFailed for a round after the snapshot that a lake with these selectors cannot follow."""
    if not options.selectors:
        return
    names = {table.incarnation: table.name for table in (*snapshot.state.dropped, *snapshot.state.tables.values())}
    for unit in planned.units:
        for step in unit.steps:
            if isinstance(step, Create):
                stored_definition(step.table, options)
                names[step.table.incarnation] = step.table.name
            elif isinstance(step, Alter):
                stored_definition(step.new, options)
    for table in planned.state.tables.values():
        name = names.get(table.incarnation, table.name)
        if name != table.name and accepted(table.name, options):
            before, after = (chosen_ids(msgspec.structs.replace(table, name=x), options) for x in (name, table.name))
            differing = [column.name for column in table.columns if column.id in before ^ after]
            if differing:
                raise ColumnSelectorFailed(
                    f"table {name} becomes {table.name} at ts {table.version}, and column selectors select other "
                    f"columns of it under its new name ({', '.join(differing)}); select the same under both names"
                )
    if options.schema_change in ("lenient", "ignore"):  # these keep other columns than those of the definition
        return
    incarnations = {table.incarnation for table in planned.state.tables.values()}
    for table in snapshot.state.dropped:
        version = snapshot.retired.get(table.incarnation, PURGED)
        if version != PURGED and table.incarnation in incarnations:
            chosen = chosen_ids(table, options)
            stored = _stored_ids(table, version, options)
            _refuse(
                table.name,
                [column for column in table.columns if column.id in chosen ^ stored and not column.virtual],
                chosen,
            )


def _refuse(name: TableName, differing: Iterable[ColumnInfo], chosen: frozenset[int]) -> None:
    differences = [f"{column.name} is {'not ' if column.id in chosen else ''}stored" for column in differing]
    if differences:
        raise ColumnSelectorFailed(
            f"table {name}: column selectors select other columns than the lake has ({', '.join(differences)}); use "
            f"the selectors that it was written with, or create a new lake"
        )


def _stored_ids(table: TableInfo, version: int, options: DeltaOptions) -> frozenset[int]:
    table_now = deltalog.load(options.table_uri(table.incarnation), version)
    return frozenset() if table_now is None else frozenset(column.upstream_id for column in stored_columns(table_now))


def accepted(name: TableName, options: DeltaOptions) -> bool:
    """Return True if the lake's filter rules match a table."""
    return TableFilter.parse(options.rules, case_sensitive=options.case_sensitive).matches(*name)


def _rules(options: DeltaOptions) -> tuple[object, ...]:
    return options.selectors, options.case_sensitive and bool(options.selectors)
