"""The modes `hash` and `json` of the Redis sink: each row of a table in its own key, with look-ups by unique index.

    chunk ─► the last change of each key (sink/documents.py) ─► entries ─► by slot ─► calls of batch_rows ─► packets

    mode    key holds                                                           NULL
    hash    id "7"  name "Ann"  _tidegate_version "0470..."                     the field is absent
    json    {"_tidegate_version":"0470...","id":7,"name":"Ann","mail":null}     null

    column                             hash                       json (sink/documents.py)
    integers, YEAR, BIT                decimal digits             number
    FLOAT, DOUBLE                      shortest digits            number
    BINARY, VARBINARY, BLOB            the bytes                  string, Base64
    JSON                               its text                   the document
    others                             as TiDB prints them        string

On one server all keys count as one slot; in a cluster a call has the entries of one of 16384 slots.

A look-up maps a value of a unique index to the row's key, and is stored as rows are, as a hash or a document:

    shop:users:17                    the row
    shop:users:by:mail:ann@x         key "shop:users:17"

It has a version and tombstones and is written by the script of rows, beside its row.  A value that moves from one row
to another within a transaction is removed first and put afterwards.  On one server, and in a cluster whose template
keeps a table in one slot, row and look-ups change in one step; in other slots each look-up changes by itself, a moment
before or after.  The primary key, indexes with expressions or virtual columns, and values with NULL have no look-ups.

    DROP, TRUNCATE, DROP PARTITION ..    the rows' keys are removed
    RENAME                               each row gets its new key, the old one is removed
    ALTER, where rows look different     each row is written anew, under another key where the primary key changes
    EXCHANGE PARTITION                   other ─► aside,  partition ─► other,  aside ─► partitioned

A DDL finds keys by a SCAN of the table's prefix, which reads all keys of the servers.  DDLs are rare; a set of keys
would cost every row a second write and memory, and in a cluster it lies in another slot than the row.  Each step has a
version above those of all rows before the DDL and leaves tombstones where keys are removed.  A DDL repeated from its
start therefore changes only what is left, and nothing of an older writer returns.  Readers may see a table half way.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import NoneType
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from tidegate.codec.columnar import Batch, typed_batch
from tidegate.engine.plan import Rows
from tidegate.engine.ports import Changes, Tasks, Written
from tidegate.engine.refused_rows import converted
from tidegate.model.errors import SinkRefused, TidegateError
from tidegate.model.event import Ddl, Field, ToldSession, Value
from tidegate.model.mysql import FLOATS, INTEGERS, STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, TableInfo, TableName
from tidegate.schema import effects
from tidegate.schema.effects import Effect
from tidegate.sink.documents import (
    Change,
    Row,
    altered,
    as_columns,
    columns_of,
    fields_of,
    inside,
    json_objects,
    key_places,
    last_changes,
    row_of_json,
)
from tidegate.sink.redis_options import (
    LOOKUP_PREFIX,
    Mode,
    RedisOptions,
    channel_of,
    lookup_key,
    parse_template,
    row_key,
    tombstone_key,
)
from tidegate.sink.redis_server import (
    FIELD,
    OPENING,
    VERSION_BYTES,
    WRITE,
    RedisServers,
    ScriptCall,
    amid_ddl,
    ddl_version,
    row_versions,
    writing,
)


class DdlWork(NamedTuple):
    """A DDL, the `number`th (from 0) of its ts, with what it did to tables; `run_ids` are those of the servers that got
    what lies before it."""

    ddl: Ddl
    effects: Sequence[Effect]
    commit_ts: int
    number: int
    run_ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TableJob:
    """The rows of a step."""

    changes: Changes
    step: Rows
    options: RedisOptions


_NUMBERS: Final = INTEGERS | {T.YEAR, T.BIT}


class RawBytes:
    """Bytes that a script is handed beside its entries: its reader of msgpack has no type for them."""

    __slots__ = ("value",)

    def __init__(self, value: bytes) -> None:
        self.value = value


class ValueForm(NamedTuple):
    """How a mode keeps a row: `render` makes the columns of an image the fields of entries, `write` one row's values,
    and `read` makes a row of what a key holds."""

    names: Callable[[Sequence[str]], list[str]]
    render: Callable[[Sequence[Field], Sequence[list[Any]]], list[list[Any]]]
    read: Callable[[TableInfo, Any], Row]
    keeps_null: bool


def _texts(column: list[Value]) -> list[Any]:
    kinds = set(map(type, column))
    if kinds <= {str, NoneType}:
        return column
    if bytes in kinds:
        return [RawBytes(value) if isinstance(value, bytes) else value for value in column]
    return [None if value is None else repr(value) for value in column]


def _hash_row(table: TableInfo, held: Mapping[bytes, bytes]) -> Row:
    row: dict[str, Value] = {}
    for column in table.columns:
        text = held.get(column.name.encode("utf-8", "surrogatepass"))
        row[column.name] = None if text is None else _hash_value(column, text)
    return row


def _hash_value(column: ColumnInfo, text: bytes) -> Value:
    kind = column.type
    if kind.code in STRINGS and kind.charset == "binary":
        return text
    if kind.code in _NUMBERS or (kind.code in (T.ENUM, T.SET) and kind.elems is None):
        return int(text)
    return float(text) if kind.code in FLOATS else text.decode("utf-8", "surrogateescape")


def _json_rows(fields: Sequence[Field], columns: Sequence[list[Any]]) -> list[list[Any]]:
    objects = json_objects([field.name for field in fields], fields, columns)
    return [[one[1:].decode()] for one in objects]


FORMS: Final[Mapping[Mode, ValueForm]] = {
    "hash": ValueForm(
        list,
        lambda _, columns: [list(row) for row in zip(*map(_texts, columns), strict=True)],
        _hash_row,
        keeps_null=False,
    ),
    "json": ValueForm(lambda _: [FIELD], _json_rows, row_of_json, keeps_null=True),
}


PACKET_BYTES: Final = 4 << 20
"""About as much is on its way before answers are read."""


ROW, LOOKUP = 0, 1
LOOKUP_FIELDS: Final = ("key",)
"""The field of a look-up: its row's key."""


class KeyEntry(NamedTuple):
    """The content of a key from `version` on; `fields` None: deleted.

    `kind` is ROW or LOOKUP. Consecutive entries with the same `beside` in one slot belong to one call.
    """

    key: bytes
    version: str
    fields: list[Any] | None
    kind: int = ROW
    beside: bytes = b""


def write(servers: RedisServers, names: Sequence[str], entries: Iterable[KeyEntry], channel: bytes = b"") -> int:
    """Write entries, those of a key in their order; return how many bytes were sent. Rows that change are announced on
    the channel, if there is one."""
    sent = 0
    packet: list[ScriptCall] = []
    size = 0
    for call, call_bytes in _calls(servers, names, list(entries), channel):
        if packet and size + call_bytes > PACKET_BYTES:
            servers.call(packet)
            sent, packet, size = sent + size, [], 0
        packet.append(call)
        size += call_bytes
    if packet:
        servers.call(packet)
    return sent + size


def _calls(
    servers: RedisServers, names: Sequence[str], entries: list[KeyEntry], channel: bytes
) -> Iterator[tuple[ScriptCall, int]]:
    options = servers.options
    script, ttl_ms = WRITE[options.mode], max(1, round(options.tombstone_s * 1000))
    groups: dict[int, list[KeyEntry]] = {}
    for slot, entry in zip(servers.slots_of([entry.key for entry in entries]), entries, strict=True):
        groups.setdefault(slot, []).append(entry)
    for group in groups.values():
        for part in _parts(group, options.batch_rows):
            keys = [name for entry in part for name in (entry.key, tombstone_key(entry.key))]
            given: list[Any] = [b"", ttl_ms, channel]
            told = [(entry.version, entry.fields, entry.kind) for entry in part]
            given[0] = _encoded(((names, LOOKUP_FIELDS), told), given)
            yield ScriptCall(script, keys, given), sum(map(len, (given[0], *keys, *given[3:])))


def _parts(group: list[KeyEntry], most: int) -> Iterator[list[KeyEntry]]:
    """The entries of a call each: `most` of them, and those beside the last one."""
    start = 0
    while start < len(group):
        end = min(start + most, len(group))
        while end < len(group) and group[end].beside and group[end].beside == group[end - 1].beside:
            end += 1
        yield group[start:end]
        start = end


def _encoded(told: object, given: list[Any]) -> bytes:
    """Msgpack with the place among `given`, from 1, for each RawBytes."""

    def place(blob: RawBytes) -> int:
        given.append(blob.value)
        return len(given)

    return msgspec.msgpack.encode(told, enc_hook=place)


class StoredRow(NamedTuple):
    """A row under its key."""

    key: bytes
    version: str
    values: Row


def keys_of(servers: RedisServers, table: TableInfo) -> Iterator[list[bytes]]:
    """Return the keys under the prefix of a table that are no look-ups, some at a time; one may come twice."""
    template = parse_template(servers.options.template)
    lookups = template.prefix(table.name) + LOOKUP_PREFIX
    for keys in servers.scan(template.pattern(table.name)):
        yield [key for key in dict.fromkeys(keys) if not key.startswith(lookups)]


def rows_of(servers: RedisServers, table: TableInfo) -> Iterator[list[StoredRow]]:
    """Return the rows of a table, some at a time. Keys under its prefix that hold no version are not the feed's."""
    mode = servers.options.mode
    for once in keys_of(servers, table):
        held = servers.read(once, _ASK[mode])
        read = FORMS[mode].read
        yield [
            StoredRow(key, version, read(table, value))
            for key, value in zip(once, held, strict=True)
            if value and (version := _VERSION[mode](value))
        ]


def owners_of(servers: RedisServers, lookups: Sequence[bytes]) -> list[bytes | None]:
    """Return the key of the row that each look-up names; None where there is none."""
    if servers.options.mode == "hash":
        return servers.read(lookups, lambda pipeline, key: pipeline.hget(key, LOOKUP_FIELDS[0]))
    held = servers.read(lookups, _ask_json)
    return [None if one is None else str(msgspec.json.decode(one)[LOOKUP_FIELDS[0]]).encode() for one in held]


def rows_at(servers: RedisServers, table: TableInfo, keys: Sequence[bytes]) -> list[Row | None]:
    """Return the rows under keys; None where there is none."""
    mode = servers.options.mode
    held = servers.read(keys, _ASK[mode])
    return [FORMS[mode].read(table, value) if value and _VERSION[mode](value) else None for value in held]


def versions_of(servers: RedisServers, keys: Sequence[bytes]) -> list[str]:
    """Return the versions of keys, or of their tombstones; empty where there is neither."""
    mode = servers.options.mode
    rows = servers.read(keys, _ASK[mode])
    gone = servers.read([tombstone_key(key) for key in keys], _ask_json)
    return [
        max((_VERSION[mode](row) if row else ""), (left or b"").decode()) for row, left in zip(rows, gone, strict=True)
    ]


def _json_version(held: bytes) -> str:
    start = len(OPENING)
    return held[start : start + VERSION_BYTES].decode() if held.startswith(OPENING.encode()) else ""


def _ask_json(pipeline: Any, key: bytes) -> object:
    return pipeline.get(key)


_ASK: Final[Mapping[Mode, Callable[[Any, bytes], object]]] = {
    "hash": lambda pipeline, key: pipeline.hgetall(key),
    "json": _ask_json,
}
_VERSION: Final[Mapping[Mode, Callable[[Any], str]]] = {
    "hash": lambda held: held.get(FIELD.encode(), b"").decode(),
    "json": _json_version,
}


class UniqueLookup(NamedTuple):
    """A unique index by which rows are found."""

    name: str
    columns: tuple[str, ...]

    def key(self, prefix: bytes, values: Sequence[Value]) -> bytes | None:
        """Return the key for values of its columns; None where one is NULL."""
        return None if None in values else lookup_key(prefix, self.name, values)


def lookups_of(table: TableInfo) -> list[UniqueLookup]:
    """Return the unique indexes of a table except the one that names its rows."""
    stored = {lowered(column.name) for column in table.columns if not column.virtual}
    key = [lowered(name) for name in table.handle_key]
    return [
        UniqueLookup(index.name, index.columns)
        for index in table.indexes
        if index.unique and not index.primary and stored.issuperset(map(lowered, index.columns))
        if [lowered(name) for name in index.columns] != key
    ]


def content_of(mode: Mode, key: bytes) -> list[Any]:
    """Return the content of a look-up: the fields of a script's entry."""
    if mode == "hash":
        return [RawBytes(key)]
    return [msgspec.json.encode({LOOKUP_FIELDS[0]: key.decode("utf-8", "replace")})[1:].decode()]


def lookup_entries(table: TableInfo, typed: Batch, prefix: bytes, mode: Mode) -> Iterator[KeyEntry]:
    """Return the look-ups that the rows of a batch change. SinkRefused for rows without a column of theirs."""
    at = {lowered(field.name): place for place, field in enumerate(typed.fields)}
    own = key_places(table, typed.fields)
    for lookup in lookups_of(table):
        missing = [name for name in lookup.columns if lowered(name) not in at]
        if missing:
            raise SinkRefused(
                f"table {table.name}: its rows come without {missing[0]}, of which lookups=true makes keys"
            )
        places = [at[lowered(name)] for name in lookup.columns]
        made = partial(lookup.key, prefix)
        last = last_changes(table, typed, made, places)
        left = columns_of(table, typed.fields, typed.before)
        owners = {
            key: row_key(prefix, values)
            for columns in (left, last.columns)
            for key, values in zip(map(made, _rows(columns, places)), _rows(columns, own), strict=True)
        }
        versions = row_versions(last.commit_ts, pa.array([row is not None for row in last.rows], pa.bool_()))
        for key, version, row in zip(last.keys, versions, last.rows, strict=True):
            if key is not None:
                content = None if row is None else content_of(mode, owners[key])
                yield KeyEntry(key, version, content, LOOKUP, owners[key])


def _rows(columns: Sequence[Sequence[Value]], places: Sequence[int]) -> Iterator[tuple[Value, ...]]:
    return zip(*(columns[at] for at in places), strict=True)


def lookup_keys(table: TableInfo, prefix: bytes, row: Row) -> list[bytes]:
    """Return the keys of the look-ups of a stored row."""
    made = (one.key(prefix, [_value(table, row, name) for name in one.columns]) for one in lookups_of(table))
    return [key for key in made if key is not None]


def _value(table: TableInfo, row: Row, name: str) -> Value:
    column = table.column(name)
    assert column is not None, name
    return row[column.name]


_ASIDE: Final = "\0aside"
"""Behind the name of a table whose rows change places; no table has it in its name."""


class KeyMove(NamedTuple):
    """Rows of `old` for which `inside` holds become rows of `new`, as `change` converts them; None: they are
    removed."""

    old: TableInfo
    new: TableInfo | None = None
    change: Change = dict
    inside: Callable[[Row], bool] | None = None


def moves_of(found: Sequence[Effect], options: RedisOptions, commit_ts: int, session: ToldSession) -> Iterator[KeyMove]:
    """Return what the effects of a DDL move, in order. SinkRefused for rows that Redis does not have any more."""
    time_zone, keeps_null = options.time_zone, FORMS[options.mode].keeps_null
    for effect in found:
        match effect:
            case effects.TableDropped(old) | effects.TableTruncated(old):
                yield KeyMove(old)
            case effects.TableRenamed(old, new):
                yield KeyMove(old, new)
            case effects.TableAltered(old, new) if not new.handle_key:
                yield KeyMove(old)
            case effects.TableAltered(old, new):
                change = altered(old, new, time_zone, commit_ts, session, keeps_null=keeps_null)
                if change is not None or (options.lookups and lookups_of(old) != lookups_of(new)):
                    yield KeyMove(old, new, change or dict)
            case effects.PartitionsTruncated(old, names) | effects.PartitionsDropped(old, names):
                yield KeyMove(old, inside=inside(old, names, time_zone))
            case effects.PartitionExchanged():
                yield from _exchanged(effect, time_zone)
            case effects.TableRecovered(table):
                raise SinkRefused(
                    f"table {table.name} came back with rows that Redis does not have any more; begin a new changefeed "
                    "with them, or leave the DDL out by an event filter"
                )


def run_moves(servers: RedisServers, moves: Sequence[KeyMove], commit_ts: int, number: int) -> None:
    """Do the moves of a DDL, the `number`th of its ts."""
    for step, move in enumerate(moves):
        if not move.old.handle_key:
            continue
        version = ddl_version(commit_ts, number, step)
        for rows in rows_of(servers, move.old):
            chosen = [row for row in rows if row.version < version and (move.inside is None or move.inside(row.values))]
            names, entries, lookups = _entries(servers, move, chosen, version)
            write(servers, (), lookups)  # while the rows still tell which ones there are
            write(servers, names, entries, channel_of(servers.options, (move.new or move.old).name))
            amid_ddl()


def _entries(
    servers: RedisServers, move: KeyMove, rows: Sequence[StoredRow], version: str
) -> tuple[list[str], list[KeyEntry], list[KeyEntry]]:
    """The names of fields, the entries of rows, and those of look-ups."""
    options, new = servers.options, move.new
    form, template = FORMS[options.mode], parse_template(options.template)
    gone = {key: b"" for row in rows for key in _lookups(options, move.old, row.values)}
    if new is None:
        lookups = [KeyEntry(key, version, None, LOOKUP) for key in gone]
        return [], [KeyEntry(row.key, version, None) for row in rows], lookups
    prefix = template.prefix(new.name)
    key = [column.name for name in new.handle_key if (column := new.column(name)) is not None]
    changed = [move.change(row.values) for row in rows]
    keys = [row_key(prefix, [row[name] for name in key]) for row in changed]
    fields = fields_of(new)
    columns: list[list[Value]] = [[row[field.name] for row in changed] for field in fields]
    contents = form.render(fields, columns)
    left = {row.key for row in rows} - set(keys)
    found = [KeyEntry(key, version, content) for key, content in zip(keys, contents, strict=True)]
    owners = gone | {one: key for key, row in zip(keys, changed, strict=True) for one in _lookups(options, new, row)}
    lookups = [
        KeyEntry(one, version, content_of(options.mode, owner) if owner else None, LOOKUP)
        for one, owner in owners.items()
    ]
    names = form.names([field.name for field in fields])
    return names, [*found, *(KeyEntry(one, version, None) for one in left)], lookups


def _lookups(options: RedisOptions, table: TableInfo, row: Row) -> list[bytes]:
    return lookup_keys(table, parse_template(options.template).prefix(table.name), row) if options.lookups else []


def _exchanged(effect: effects.PartitionExchanged, zone: str) -> Iterator[KeyMove]:
    other, partitioned = effect.other, effect.partitioned
    name = TableName(other.name.schema, other.name.table + _ASIDE)
    aside = msgspec.structs.replace(other, name=name)
    yield KeyMove(other, aside)
    in_it = inside(partitioned, (effect.partition,), zone)
    yield KeyMove(partitioned, effect.new_other, as_columns(partitioned, effect.new_other), in_it)
    yield KeyMove(aside, effect.new_partitioned, as_columns(other, effect.new_partitioned))


class KeptRows:
    """The modes hash and json."""

    needs_key = follows = True

    def __init__(self, options: RedisOptions) -> None:
        self._options = options

    def check(self, tables: Sequence[TableInfo]) -> None:
        """Take any tables."""

    def run(
        self,
        tasks: Tasks,
        changes: Changes,
        steps: Sequence[Rows],
        run_ids: Mapping[str, str],  # noqa: ARG002  what a server lost is written again
    ) -> Sequence[Written]:
        return tasks.run(write_table, [TableJob(changes, step, self._options) for step in steps])

    def ddl(self, servers: RedisServers, work: DdlWork) -> None:
        """Move keys. Raises SinkRefused for rows that Redis no longer has."""
        moves = list(moves_of(work.effects, self._options, work.commit_ts, work.ddl.told))
        run_moves(servers, moves, work.commit_ts, work.number)


def write_table(job: TableJob) -> Written:
    """Write the job's rows; return when Redis has them. Raises what reading and writing do."""
    step = job.step
    done = Written(step.table.name)
    servers = RedisServers(job.options)
    try:
        for chunk in done.coming(job.changes.batches(step.table.name, step.after, step.upto)):
            for batch, _ in chunk.parts:
                _write_batch(servers, job, batch, done)
    finally:
        servers.close()
    return done


def _write_batch(servers: RedisServers, job: TableJob, batch: Batch, done: Written) -> None:
    try:
        entries = converted(batch, partial(_row_entries, job.options, job.step.table))
        names = FORMS[job.options.mode].names([field.name for field in batch.fields])
        with writing():
            done.size_bytes += write(servers, names, entries, channel_of(job.options, job.step.table.name))
    except TidegateError as error:
        raise error.at(table=str(job.step.table.name), commit_ts=batch.commit_ts[0].as_py()) from None
    done.rows += batch.rows
    done.messages += len(entries)


def _row_entries(options: RedisOptions, table: TableInfo, batch: Batch) -> list[KeyEntry]:
    """The last change of each key, with the look-ups beside it."""
    typed = typed_batch(batch)
    prefix = parse_template(options.template).prefix(table.name)
    last = last_changes(table, typed, lambda values: row_key(prefix, values))
    rows = FORMS[options.mode].render(typed.fields, last.columns)
    versions = row_versions(last.commit_ts, pa.array([row is not None for row in last.rows], pa.bool_()))
    found = [
        KeyEntry(key, version, None if row is None else rows[row], ROW, key)
        for key, version, row in zip(last.keys, versions, last.rows, strict=True)
    ]
    if not options.lookups:
        return found
    groups: dict[bytes, list[KeyEntry]] = {}
    for entry in chain(found, lookup_entries(table, typed, prefix, options.mode)):
        groups.setdefault(entry.beside, []).append(entry)
    return list(chain.from_iterable(groups.values()))
