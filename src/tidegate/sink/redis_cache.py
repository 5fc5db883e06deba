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

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import itemgetter
from os.path import commonprefix
from types import NoneType
from typing import Any, ClassVar, Final, NamedTuple

import msgspec
import pyarrow as pa

from tidegate.codec.batch import calls_of
from tidegate.codec.columnar import Batch, typed_batch
from tidegate.engine.plan import PlannedDdl, Rows
from tidegate.engine.ports import Changes, Tasks, Written, converted
from tidegate.model.errors import SinkRefused
from tidegate.model.event import Field, Value
from tidegate.model.mysql import FLOATS, INTEGERS, NAMED, STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, TableInfo, TableName
from tidegate.schema import effects
from tidegate.sink.calls import rows_gone, write_batches
from tidegate.sink.documents import (
    Change,
    Row,
    altered,
    as_columns,
    column_values,
    fields_of,
    inside,
    json_objects,
    last_changes,
    row_of_json,
)
from tidegate.sink.redis_options import (
    LOOKUP_PREFIX,
    Mode,
    RedisOptions,
    channel_of,
    escaped_pattern,
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
from tidegate.sink.row_id import key_indexes


@dataclass(frozen=True, slots=True)
class RedisMode(ABC):
    """The handling of rows and DDLs in a mode; `run_ids` are those of the servers that got what lies before them."""

    options: RedisOptions
    needs_key: ClassVar[bool] = True
    """Rows have their keys' names."""
    follows: ClassVar[bool] = True
    """A DDL changes what is stored, so that its effects must be known."""

    def check(self, tables: Sequence[TableInfo]) -> None:  # noqa: B027  a mode may have nothing to check
        """Raise ConfigError where the mode fits none of the tables."""

    def filled(self, servers: RedisServers, tables: Sequence[TableInfo]) -> list[TableName]:  # noqa: ARG002
        """Return the tables of which Redis holds rows or entries."""
        return []

    @abstractmethod
    def run(
        self, tasks: Tasks, changes: Changes, steps: Sequence[Rows], run_ids: Mapping[str, str]
    ) -> Sequence[Written]:
        """Write the rows; return what the tasks report."""

    @abstractmethod
    def ddl(self, servers: RedisServers, planned: PlannedDdl, run_ids: Mapping[str, str]) -> None:
        """Change the stored rows as the DDL does."""


_NUMBERS: Final = INTEGERS | {T.YEAR, T.BIT}


class RawBytes:
    """Bytes passed to a script beside its entries: its msgpack reader has no type for them."""

    __slots__ = ("value",)

    def __init__(self, value: bytes) -> None:
        self.value = value


class ValueForm(NamedTuple):
    """The form in which a mode stores a row: `names` and `render` make the fields of entries of column names and
    values, `get` is the command that reads a key on a pipeline, `read` makes a row of its answer, and `version` takes
    its version."""

    names: Callable[[Sequence[str]], list[str]]
    render: Callable[[Sequence[Field], Sequence[list[Any]]], list[list[Any]]]
    get: Callable[[Any, bytes], object]
    read: Callable[[TableInfo, Any], Row]
    version: Callable[[Any], str]
    keeps_null: bool


def _texts(column: list[Value]) -> list[Any]:
    kinds = set(map(type, column))
    if kinds <= {str, NoneType}:
        return column
    if bytes in kinds:
        return [RawBytes(value) if isinstance(value, bytes) else value for value in column]
    return [None if value is None else repr(value) for value in column]


def _hash_value(column: ColumnInfo, fields: Mapping[bytes, bytes]) -> Value:
    kind, text = column.type, fields.get(column.name.encode("utf-8", "surrogatepass"))
    if text is None or (kind.code in STRINGS and kind.charset == "binary"):
        return text
    if kind.code in _NUMBERS or (kind.code in NAMED and kind.elems is None):
        return int(text)
    return float(text) if kind.code in FLOATS else text.decode("utf-8", "surrogateescape")


FORMS: Final[Mapping[Mode, ValueForm]] = {
    "hash": ValueForm(
        list,
        lambda _, columns: [list(row) for row in zip(*map(_texts, columns), strict=True)],
        lambda pipeline, key: pipeline.hgetall(key),
        lambda table, fields: {column.name: _hash_value(column, fields) for column in table.columns},
        lambda fields: fields.get(FIELD.encode(), b"").decode(),
        keeps_null=False,
    ),
    "json": ValueForm(
        lambda _: [FIELD],
        lambda fields, columns: [
            [text[1:].decode()] for text in json_objects([field.name for field in fields], fields, columns)
        ],
        lambda pipeline, key: pipeline.get(key),
        row_of_json,
        lambda text: text[len(OPENING) :][:VERSION_BYTES].decode() if text.startswith(OPENING.encode()) else "",
        keeps_null=True,
    ),
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
    for packet in calls_of(_calls(servers, names, list(entries), channel), itemgetter(1), most_bytes=PACKET_BYTES):
        servers.call([call for call, _ in packet])
        sent += sum(size for _, size in packet)
    return sent


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
            values: list[Any] = [b"", ttl_ms, channel]
            contents = [(entry.version, entry.fields, entry.kind) for entry in part]
            values[0] = _encoded(((names, LOOKUP_FIELDS), contents), values)
            yield ScriptCall(script, keys, values), sum(map(len, (values[0], *keys, *values[3:])))


def _parts(group: list[KeyEntry], most: int) -> Iterator[list[KeyEntry]]:
    """The entries of a call each: `most` of them, and those beside the last one."""
    start = 0
    while start < len(group):
        end = min(start + most, len(group))
        while end < len(group) and group[end].beside and group[end].beside == group[end - 1].beside:
            end += 1
        yield group[start:end]
        start = end


def _encoded(contents: object, values: list[Any]) -> bytes:
    """Msgpack in which each RawBytes is its number, from 1, among `values`."""

    def number_of(blob: RawBytes) -> int:
        values.append(blob.value)
        return len(values)

    return msgspec.msgpack.encode(contents, enc_hook=number_of)


class StoredRow(NamedTuple):
    """A row under its key."""

    key: bytes
    version: str
    values: Row


def keys_of(servers: RedisServers, table: TableInfo) -> Iterator[list[bytes]]:
    """Return the keys under the prefix of a table that are no look-ups, in pages; keys may be repeated."""
    template = parse_template(servers.options.template)
    lookups = template.prefix(table.name) + LOOKUP_PREFIX
    for keys in servers.scan(template.pattern(table.name)):
        yield [key for key in dict.fromkeys(keys) if not key.startswith(lookups)]


def _stored(servers: RedisServers, table: TableInfo, keys: Sequence[bytes]) -> list[StoredRow | None]:
    form = FORMS[servers.options.mode]
    return [
        StoredRow(key, version, form.read(table, value)) if value and (version := form.version(value)) else None
        for key, value in zip(keys, servers.read(keys, form.get), strict=True)
    ]


def rows_of(servers: RedisServers, table: TableInfo) -> Iterator[list[StoredRow]]:
    """Return the rows of a table, some at a time. Keys under its prefix that hold no version are not the feed's."""
    for keys in keys_of(servers, table):
        yield [row for row in _stored(servers, table, keys) if row is not None]


def rows_at(servers: RedisServers, table: TableInfo, keys: Sequence[bytes]) -> list[Row | None]:
    """Return the rows under keys; None where there is none."""
    return [None if row is None else row.values for row in _stored(servers, table, keys)]


def owners_of(servers: RedisServers, lookups: Sequence[bytes]) -> list[bytes | None]:
    """Return the key of the row that each look-up names; None where there is none."""
    if servers.options.mode == "hash":
        return servers.read(lookups, lambda pipeline, key: pipeline.hget(key, LOOKUP_FIELDS[0]))
    texts = servers.read(lookups, FORMS["json"].get)
    return [None if text is None else str(msgspec.json.decode(text)[LOOKUP_FIELDS[0]]).encode() for text in texts]


def versions_of(servers: RedisServers, keys: Sequence[bytes]) -> list[str]:
    """Return the versions of keys, or of their tombstones; empty where there is neither."""
    form = FORMS[servers.options.mode]
    tombstones = servers.read([tombstone_key(key) for key in keys], FORMS["json"].get)
    pairs = zip(servers.read(keys, form.get), tombstones, strict=True)
    return [max((form.version(row) if row else ""), (tombstone or b"").decode()) for row, tombstone in pairs]


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
    """Return the look-ups that the rows of a batch change. SinkRefused for rows that lack one of their columns."""
    index_of = {lowered(field.name): index for index, field in enumerate(typed.fields)}
    own = key_indexes(table, typed.fields)
    for lookup in lookups_of(table):
        missing = [name for name in lookup.columns if lowered(name) not in index_of]
        if missing:
            raise SinkRefused(f"table {table.name}: its rows lack column {missing[0]}, which lookups=true needs")
        indexes = [index_of[lowered(name)] for name in lookup.columns]
        key_of = partial(lookup.key, prefix)
        last = last_changes(table, typed, key_of, indexes)
        left = column_values(table, typed.fields, typed.before)
        owners = {
            key: row_key(prefix, values)
            for columns in (left, last.columns)
            for key, values in zip(map(key_of, _rows(columns, indexes)), _rows(columns, own), strict=True)
        }
        versions = row_versions(last.commit_ts, pa.array([row is not None for row in last.rows], pa.bool_()))
        for key, version, row in zip(last.keys, versions, last.rows, strict=True):
            if key is not None:
                content = None if row is None else content_of(mode, owners[key])
                yield KeyEntry(key, version, content, LOOKUP, owners[key])


def _rows(columns: Sequence[Sequence[Value]], indexes: Sequence[int]) -> Iterator[tuple[Value, ...]]:
    return zip(*(columns[index] for index in indexes), strict=True)


def lookup_keys(table: TableInfo, prefix: bytes, row: Row) -> list[bytes]:
    """Return the keys of the look-ups of a stored row."""
    keys = (
        lookup.key(prefix, [row[column.name] for name in lookup.columns if (column := table.column(name)) is not None])
        for lookup in lookups_of(table)
    )
    return [key for key in keys if key is not None]


_ASIDE: Final = "\0aside"
"""Behind the name of a table whose rows change places; no table has it in its name."""


class KeyMove(NamedTuple):
    """Rows of `old` for which `inside` holds become rows of `new`, as `change` converts them; None: they are
    removed."""

    old: TableInfo
    new: TableInfo | None = None
    change: Change = dict
    inside: Callable[[Row], bool] | None = None


def moves_of(planned: PlannedDdl, options: RedisOptions) -> Iterator[KeyMove]:
    """Return the moves of keys that the effects of a DDL require, in order. SinkRefused for rows that Redis no longer
    has."""
    time_zone, keeps_null = options.time_zone, FORMS[options.mode].keeps_null
    for effect in planned.effects:
        match effect:
            case effects.TableDropped(old) | effects.TableTruncated(old):
                yield KeyMove(old)
            case effects.TableRenamed(old, new):
                yield KeyMove(old, new)
            case effects.TableAltered(old, new) if not new.handle_key:
                yield KeyMove(old)
            case effects.TableAltered(old, new):
                session = planned.ddl.known_session
                change = altered(old, new, time_zone, planned.commit_ts, session, keeps_null=keeps_null)
                if change is not None or (options.lookups and lookups_of(old) != lookups_of(new)):
                    yield KeyMove(old, new, change or dict)
            case effects.PartitionsTruncated(old, names) | effects.PartitionsDropped(old, names):
                yield KeyMove(old, inside=inside(old, names, time_zone))
            case effects.PartitionExchanged():
                yield from _exchanged(effect, time_zone)
            case effects.TableRecovered(table):
                raise rows_gone(table, "Redis")


def _entries(
    servers: RedisServers, move: KeyMove, rows: Sequence[StoredRow], version: str
) -> tuple[list[str], list[KeyEntry], list[KeyEntry]]:
    """The names of fields, the entries of rows, and those of look-ups."""
    options, new = servers.options, move.new
    form, template = FORMS[options.mode], parse_template(options.template)
    removed = {key: b"" for row in rows for key in _lookups(options, move.old, row.values)}
    if new is None:
        lookups = [KeyEntry(key, version, None, LOOKUP) for key in removed]
        return [], [KeyEntry(row.key, version, None) for row in rows], lookups
    prefix = template.prefix(new.name)
    key = [column.name for name in new.handle_key if (column := new.column(name)) is not None]
    changed = [move.change(row.values) for row in rows]
    keys = [row_key(prefix, [row[name] for name in key]) for row in changed]
    fields = fields_of(new)
    columns: list[list[Value]] = [[row[field.name] for row in changed] for field in fields]
    contents = form.render(fields, columns)
    left = {row.key for row in rows} - set(keys)
    moved = [KeyEntry(key, version, content) for key, content in zip(keys, contents, strict=True)]
    owners = removed | {
        entry: key for key, row in zip(keys, changed, strict=True) for entry in _lookups(options, new, row)
    }
    lookups = [
        KeyEntry(entry, version, content_of(options.mode, owner) if owner else None, LOOKUP)
        for entry, owner in owners.items()
    ]
    names = form.names([field.name for field in fields])
    return names, [*moved, *(KeyEntry(entry, version, None) for entry in left)], lookups


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


class KeptRows(RedisMode):
    """The modes `hash` and `json`."""

    def filled(self, servers: RedisServers, tables: Sequence[TableInfo]) -> list[TableName]:
        form, template = FORMS[self.options.mode], parse_template(self.options.template)
        left = {template.prefix(table.name): table.name for table in tables}
        lengths, filled = {len(prefix) for prefix in left}, set[TableName]()
        common = escaped_pattern(commonprefix([*left]) or b"") + b"*"  # noqa: RUF071  they are no paths
        for page in servers.scan(common) if left else ():
            owners = {key: key[:length] for key in page for length in lengths if key[:length] in left}
            keys = [key for key, prefix in owners.items() if not key.startswith(prefix + LOOKUP_PREFIX)]
            values = zip(keys, servers.read(keys, form.get), strict=True)
            filled |= {left[owners[key]] for key, value in values if value and form.version(value)}
            left = {prefix: name for prefix, name in left.items() if name not in filled}
            if not left:
                break
        return [table.name for table in tables if table.name in filled]

    def run(
        self,
        tasks: Tasks,
        changes: Changes,
        steps: Sequence[Rows],
        run_ids: Mapping[str, str],  # noqa: ARG002  what a server lost is written again
    ) -> Sequence[Written]:
        return tasks.run(partial(write_table, self.options, changes), steps)

    def ddl(self, servers: RedisServers, planned: PlannedDdl, run_ids: Mapping[str, str]) -> None:  # noqa: ARG002
        """Move keys. Raises SinkRefused for rows that Redis no longer has."""
        for step, move in enumerate(list(moves_of(planned, self.options))):
            if not move.old.handle_key:
                continue
            version = ddl_version(planned.commit_ts, planned.number - 1, step)
            for rows in rows_of(servers, move.old):
                older = [row for row in rows if row.version < version]
                chosen = [row for row in older if move.inside is None or move.inside(row.values)]
                names, entries, lookups = _entries(servers, move, chosen, version)
                write(servers, (), lookups)  # while the rows still tell which ones there are
                write(servers, names, entries, channel_of(self.options, (move.new or move.old).name))
                amid_ddl()


def write_table(options: RedisOptions, changes: Changes, step: Rows) -> Written:
    """Write the rows of a step; return when Redis has stored them. Raises errors of reading and writing."""
    table = step.table

    def write_batch(batch: Batch) -> tuple[int, int]:
        entries = converted(batch, partial(_row_entries, options, table))
        names = FORMS[options.mode].names([field.name for field in batch.fields])
        with writing():
            return len(entries), write(servers, names, entries, channel_of(options, table.name))

    with closing(RedisServers(options)) as servers:
        return write_batches(changes, step, write_batch)


def _row_entries(options: RedisOptions, table: TableInfo, batch: Batch) -> list[KeyEntry]:
    """The last change of each key, with the look-ups beside it."""
    typed = typed_batch(batch)
    prefix = parse_template(options.template).prefix(table.name)
    last = last_changes(table, typed, lambda values: row_key(prefix, values))
    rows = FORMS[options.mode].render(typed.fields, last.columns)
    versions = row_versions(last.commit_ts, pa.array([row is not None for row in last.rows], pa.bool_()))
    entries = [
        KeyEntry(key, version, None if row is None else rows[row], ROW, key)
        for key, version, row in zip(last.keys, versions, last.rows, strict=True)
    ]
    if not options.lookups:
        return entries
    groups: dict[bytes, list[KeyEntry]] = {}
    for entry in chain(entries, lookup_entries(table, typed, prefix, options.mode)):
        groups.setdefault(entry.beside, []).append(entry)
    return list(chain.from_iterable(groups.values()))
