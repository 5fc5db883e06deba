"""The Redis sink: a cache of rows that is never older than what it has confirmed, a stream of changes, or invalidation.

    recover   become the writer: raise the epoch of the feed's progress
    run       by the mode: each table, or each stream, in a task of its own
    ddl       by the mode; a barrier for all tables
    advance   the checkpoint, if Redis is still the one that received the round

    mode          rows                                             DDLs
    hash, json    the last change of each key (redis_cache.py)     keys are moved, rewritten, removed
    invalidate    keys derived from them are dropped               all keys of their tables are dropped
    stream        an entry each, in commit order                   an entry

Guarantee: each row exactly as its last change left it.  A key stores the version of its content, and the script ignores
whatever is not newer.  Repeats, attempts whose answer was lost and outdated writers therefore change nothing, as long
as tombstones live (`tombstone-ttl`).  Transactions are not atomic for readers.  Progress is stored in Redis: a server
that lost its last writes has an older checkpoint with them, and the next run continues from there; one that restarts
during a round gets that round again.  Tables without a key are left out, with one warning: their rows have no names.

**stream**: `stream-template=changes:{schema}:{table}` gives one stream per table, a template without names one for all.

    470606747354005504-0                     type insert   table shop.orders   event {"kind":"row","op":"c",..}
    470606747354005504-1000000000000000000   type ddl      ..                  behind the rows of its ts
    └ commit_ts ─────┘ └ its number in the stream

A stream accepts only ids above its last one, so repeats add nothing, but nothing can be inserted before it either.
Hence a call is sent only after the previous one is answered, and a server accepts entries only in the run (`run_ids`)
in which it was asked whether it still has the progress; a restarted one refuses them until the round begins anew.  Rows
that a source without start_ts repeats within a commit_ts, alike in everything, are written once.

**invalidate**: `invalidate-keys=user:{id},shop.orders=orders:of:{customer_id}`

    UPDATE orders, customer_id 7 ─► 8       UNLINK orders:of:7, orders:of:8
    TRUNCATE TABLE orders                   UNLINK of all that SCAN finds for orders:of:*

Values are written into keys unescaped, as an application does; NULL makes no key.  A key dropped needlessly only costs
the application a query, so repeats and outdated writers are harmless.

Source: Redis documentation, XADD, "Entry IDs"; XINFO STREAM, "last-generated-id".
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

import msgspec

from tidegate.codec.batch import calls_of
from tidegate.codec.columnar import Batch, typed_batch
from tidegate.codec.columnar.encode.encoder import events_of
from tidegate.codec.neutral import event_object, render
from tidegate.engine.change import Chunk
from tidegate.engine.plan import PlannedDdl, Round, Rows, Segment
from tidegate.engine.ports import Changes, SinkPosition, Tasks, WithCheck, WithKeys, Written, converted
from tidegate.engine.reload import key_texts
from tidegate.model.errors import ConfigError, InputError, SchemaError, SinkError, SinkRefused, TidegateError
from tidegate.model.event import RowChange, Value
from tidegate.model.name import lowered, qualified
from tidegate.model.table import TableInfo, TableName
from tidegate.objectstore.failpoint import failpoint
from tidegate.schema import effects
from tidegate.schema.ddl_tables import subject_table
from tidegate.schema.effects import Effect
from tidegate.sink.calls import KeyedSink, write_batches
from tidegate.sink.documents import column_values
from tidegate.sink.redis_cache import KeptRows, RedisMode, rows_of
from tidegate.sink.redis_options import OWN, CacheTemplate, RedisOptions, parse_cache_keys, stream_of
from tidegate.sink.redis_server import APPEND, RedisProgress, RedisServers, ScriptCall, amid_ddl, writing

DDL_SEQ: Final = 10**18
"""Above the numbers of all rows of a ts, and below 2^63."""
CALL_BYTES: Final = 1 << 20
"""A call has about as much at most, but for a single entry."""
_TYPES: Final = {"Insert": "insert", "Update": "update", "Delete": "delete"}


class StreamEntry(NamedTuple):
    """An entry of a stream, in the order in which a script reads it."""

    id: str
    type: str
    table: str
    event: str


class ChangeStreams(RedisMode):
    """The mode `stream`."""

    needs_key = follows = False

    def filled(self, servers: RedisServers, tables: Sequence[TableInfo]) -> list[TableName]:
        streams = [stream_of(self.options.stream, table.name) for table in tables]
        present = servers.read(streams, lambda pipeline, key: pipeline.exists(key))
        return [table.name for table, exists in zip(tables, present, strict=True) if exists]

    def run(
        self, tasks: Tasks, changes: Changes, steps: Sequence[Rows], run_ids: Mapping[str, str]
    ) -> Sequence[Written]:
        streams: dict[bytes, list[Rows]] = {}
        for step in steps:
            streams.setdefault(stream_of(self.options.stream, step.table.name), []).append(step)
        add = partial(add_rows, self.options, changes, tuple(run_ids.values()))
        return tasks.run(add, list(streams.items()))

    def ddl(self, servers: RedisServers, planned: PlannedDdl, run_ids: Mapping[str, str]) -> None:
        values = chain.from_iterable(map(msgspec.structs.astuple, planned.effects))
        subject = subject_table(planned.ddl, planned.effects)
        names = [subject, *(table.name for table in values if isinstance(table, TableInfo))]
        number, event = DDL_SEQ + planned.number - 1, render(event_object(planned.ddl)).decode()
        entry = StreamEntry(f"{planned.commit_ts}-{number}", "ddl", _shown(subject), event)
        for stream in dict.fromkeys(stream_of(self.options.stream, name) for name in names):
            _append(servers, stream, [entry], tuple(run_ids.values()))
            amid_ddl()


def add_rows(
    options: RedisOptions, changes: Changes, run_ids: Sequence[str], stream: tuple[bytes, Sequence[Rows]]
) -> Written:
    """Add the rows of the steps of a stream; return when Redis has them."""
    key, steps = stream
    (after, upto), *others = {(step.after, step.upto) for step in steps}
    assert not others, "a DDL cuts all tables"
    names = [step.table.name for step in steps]
    done = Written(names[0] if len(names) == 1 else None)
    numbers = EntryNumbers()
    sizes = {"most": options.batch_rows, "most_bytes": CALL_BYTES}
    try:
        with closing(RedisServers(options)) as servers:
            for chunk in done.coming(changes.in_order(names, after, upto)):
                done.rows += len(chunk)
                for batch, _ in chunk.parts:
                    done.tables[TableName(batch.schema, batch.table)] += batch.rows
                for entries in calls_of(numbers.entries(chunk), lambda entry: len(entry.event), **sizes):
                    with writing():
                        done.size_bytes += _append(servers, key, entries, run_ids)
                    done.messages += len(entries)
    except TidegateError as error:
        raise error.at(table=str(done.name or ""), commit_ts=numbers.ts or after) from None
    return done


class EntryNumbers:
    """Numbers the rows of each commit_ts, those of one stream."""

    def __init__(self) -> None:
        self.ts = self._seq = 0
        self._seen: set[str] = set()

    def entries(self, chunk: Chunk) -> Iterator[StreamEntry]:
        """Return the entries of a chunk, in commit order. A source without start_ts may repeat rows."""
        rows: list[tuple[int, RowChange, bool]] = [
            (number, row, batch.start_ts is None)
            for batch, numbers in chunk.parts
            for number, row in zip(numbers.tolist(), events_of(batch), strict=True)
        ]
        for _, row, repeats in sorted(rows, key=itemgetter(0)):
            ts = row.commit_ts or 0
            if ts != self.ts:
                self.ts, self._seq = ts, 0
                self._seen.clear()
            event = render(event_object(row)).decode()
            if repeats:
                if event in self._seen:
                    continue
                self._seen.add(event)
            table = _shown(TableName(row.schema, row.table))
            yield StreamEntry(f"{ts}-{self._seq}", _TYPES[type(row).__name__], table, event)
            self._seq += 1


def _shown(name: TableName) -> str:
    return qualified(*filter(None, name)).encode("utf-8", "replace").decode()


def _append(servers: RedisServers, stream: bytes, entries: Sequence[StreamEntry], run_ids: Sequence[str]) -> int:
    packed = msgspec.msgpack.encode(entries)
    servers.call([ScriptCall(APPEND, [stream], [packed, servers.options.stream_entries, *run_ids])])
    return len(packed)


PACKET_KEYS: Final = 4096
"""Limit of the keys that are sent before answers are read."""


_Fitting: TypeAlias = tuple[CacheTemplate, tuple[tuple[str, ...], ...]]
"""A template and the columns of each of its names."""


class Invalidation(RedisMode):
    """The mode `invalidate`."""

    needs_key = False

    def check(self, tables: Sequence[TableInfo]) -> None:
        """Raise ConfigError for a template that is for none of the tables, where some are known."""
        for template in parse_cache_keys(self.options.invalidated):
            template.check(tables)

    def run(
        self,
        tasks: Tasks,
        changes: Changes,
        steps: Sequence[Rows],
        run_ids: Mapping[str, str],  # noqa: ARG002  what a server lost is dropped again
    ) -> Sequence[Written]:
        return tasks.run(partial(drop_keys, self.options, changes), steps)

    def ddl(self, servers: RedisServers, planned: PlannedDdl, run_ids: Mapping[str, str]) -> None:  # noqa: ARG002
        fitting = (
            template.pattern(table)
            for table in chain.from_iterable(map(_changed, planned.effects))
            for template in parse_cache_keys(self.options.invalidated)
            if template.columns(table) is not None
        )
        for pattern in dict.fromkeys(fitting):
            for keys in servers.scan(pattern):
                _drop(servers, [key for key in keys if not key.startswith(OWN)])
                amid_ddl()


def _changed(effect: Effect) -> tuple[TableInfo, ...]:
    """The tables, as they were and as they are, whose rows look otherwise or are others behind a DDL."""
    match effect:
        case effects.TableDropped(table) | effects.TableRecovered(table) | effects.TableTruncated(table, _):
            return (table,)
        case effects.PartitionsTruncated(table, _, _) | effects.PartitionsDropped(table, _, _):
            return (table,)
        case effects.TableRenamed(old, new):
            return (old, new)
        case effects.TableAltered(old, new) if (old.columns, old.handle_key) != (new.columns, new.handle_key):
            return (old, new)
        case effects.PartitionExchanged(partitioned, _, other, _, _):
            return (partitioned, other)
        case _:
            return ()


def drop_keys(options: RedisOptions, changes: Changes, step: Rows) -> Written:
    """Drop the keys derived from the rows of a step; return when Redis has none of them."""
    templates = [
        (template, columns)
        for template in parse_cache_keys(options.invalidated)
        if (columns := template.demand(step.table)) is not None
    ]

    def drop(batch: Batch) -> tuple[int, int]:
        keys = list(_keys(templates, step.table, converted(batch, typed_batch)))
        with writing():
            return len(keys), _drop(servers, keys)

    with closing(RedisServers(options)) as servers:
        return write_batches(changes, step, drop)


def _drop(servers: RedisServers, keys: Sequence[bytes]) -> int:
    for start in range(0, len(keys), PACKET_KEYS):
        servers.read(keys[start : start + PACKET_KEYS], lambda pipeline, key: pipeline.unlink(key))
    return sum(map(len, keys))


def _keys(templates: Iterable[_Fitting], table: TableInfo, typed: Batch) -> Iterable[bytes]:
    """The keys of all images, each once."""
    index_of = {lowered(field.name): index for index, field in enumerate(typed.fields)}
    images = [column_values(table, typed.fields, image) for image in (typed.before, typed.after)]
    keys: dict[bytes, None] = {}
    for template, columns in templates:
        missing = [name for name in chain.from_iterable(columns) if lowered(name) not in index_of]
        if missing:
            raise SinkRefused(
                f"rows of {table.name} lack column {missing[0]}, which invalidate-keys {template.text!r} needs"
            )
        for image in images:
            rows = len(image[0]) if image else 0
            texts = [
                [str(getattr(table.name, name)).encode("utf-8", "surrogatepass")] * rows
                if not own
                else _values([image[index_of[lowered(name)]] for name in own])
                for name, own in zip(template.names, columns, strict=True)
            ]
            befores = [text.encode() for text in template.befores]
            for values in zip(*texts, strict=True):
                if None not in values:
                    parts = chain.from_iterable(zip(befores, values, strict=False))
                    keys[b"".join((*parts, befores[-1]))] = None
    return keys


def _values(columns: Sequence[Sequence[Value]]) -> list[bytes | None]:
    """The texts of values, those of several columns joined by ':'; None where one is NULL."""
    texts = [list(map(_text, column)) for column in columns]
    if len(texts) == 1:
        return texts[0]
    return [None if None in row else b":".join(row) for row in zip(*texts, strict=True)]


def _text(value: Value) -> bytes | None:
    match value:
        case None | bytes():
            return value
        case str():
            return value.encode("utf-8", "surrogateescape")
        case _:
            return repr(value).encode()


LOGGER: Final = logging.getLogger(__name__)
_MODES: Final[Mapping[str, type[RedisMode]]] = {"invalidate": Invalidation, "stream": ChangeStreams}


@dataclass(slots=True)
class _Round:
    """The work since the checkpoint, which is repeated if a server lost it; `run_ids` are those of the
    servers then."""

    run_ids: Mapping[str, str]
    work: Callable[[Mapping[str, str]], Sequence[Written]]
    ddls: list[PlannedDdl] = field(default_factory=list)


class RedisSink(KeyedSink, WithCheck, WithKeys):
    """Writes to the servers of `options`."""

    def __init__(
        self, options: RedisOptions, *, run_lock: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        super().__init__(run_lock)
        self.options = options
        self._mode = _MODES.get(options.mode, KeptRows)(options)
        self._progress = RedisProgress(options.feed)
        self._servers: RedisServers | None = None
        self._round: _Round | None = None
        self._is_new = False
        self.truncates = self._mode.follows
        self.brings_again = "rows" if self._mode.needs_key else ""

    def recover(self) -> SinkPosition:
        with self._connected() as servers:
            position = self._progress.take(servers)
        self._is_new = position.is_new
        return position

    def open(self, position: SinkPosition) -> None:
        """Raise ConfigError for templates of a new feed that match no table."""
        try:
            self._mode.check(list(position.state.tables.values()))
        except ConfigError as error:
            if self._is_new:
                raise
            LOGGER.warning("%s; keys of this template are not deleted", error)
        self._state = position.state

    def filled(self, tables: Sequence[TableInfo]) -> Mapping[TableName, str]:
        with self._connected() as servers:
            filled = self._mode.filled(servers, tables)
        return {name: f"table {name} of {self.options.address} has rows" for name in filled}

    def keys(self, table: TableInfo) -> Iterator[tuple[str, ...]]:
        with closing(RedisServers(self.options)) as servers:
            for rows in rows_of(servers, table):
                yield from (key_texts(table, row.values) for row in rows)

    def run(self, tasks: Tasks, segment: Segment, changes: Changes) -> Sequence[Written]:
        self._state = self._state.with_unknown(segment.tables)
        steps = self._keyed(segment.steps) if self._mode.needs_key else segment.steps

        def work(run_ids: Mapping[str, str]) -> Sequence[Written]:
            return self._mode.run(tasks, changes, steps, run_ids) if steps else []

        with self._connected() as servers:
            self._round = _Round(servers.run_ids(), work)
            self._progress.check(servers)
        return work(self._round.run_ids)

    def ddl(self, planned: PlannedDdl) -> None:
        begun = self._round
        assert begun is not None, "a DDL comes behind the rows of its round"
        try:
            with self._connected() as servers:
                now = servers.run_ids()
                self._progress.check(servers)
            if now != begun.run_ids:
                self._again(begun, now)
            self._do(planned, now)
        except TidegateError as error:
            raise error.at(table=planned.table, commit_ts=planned.commit_ts) from None
        begun.ddls.append(planned)

    def _do(self, planned: PlannedDdl, run_ids: Mapping[str, str]) -> None:
        """Do a DDL behind those of its round that are done."""
        if planned.error is not None and self._mode.follows:
            raise planned.refused(planned.error) from planned.error
        try:
            with self._connected() as servers:
                self._mode.ddl(servers, planned, run_ids)
        except (InputError, SchemaError, SinkRefused) as error:
            raise planned.refused(error) from error
        if self._mode.needs_key:
            self._warn_of(planned)
        failpoint("redis/ddl-done")
        self._state = planned.after

    def advance(self, planned: Round, results: Sequence[Written]) -> SinkPosition:  # noqa: ARG002  Redis has their rows
        position = SinkPosition(planned.checkpoint, planned.state)
        failpoint("redis/before-advance")
        with self._connected() as servers:
            while self._round is not None and (now := servers.run_ids()) != self._round.run_ids:
                self._progress.check(servers)
                self._again(self._round, now)
            self._progress.advance(servers, position)
        self._state, self._round = planned.state, None
        return position

    def close(self) -> None:
        if self._servers is not None:
            self._servers.close()
            self._servers = None

    def _again(self, begun: _Round, run_ids: Mapping[str, str]) -> None:
        """Do a round again whose writes a server may have lost."""
        LOGGER.warning("%s was restarted: the rows since the last checkpoint are written again", self.options.address)
        begun.work(run_ids)
        for planned in begun.ddls:
            self._do(planned, run_ids)
        begun.run_ids = run_ids

    def check(self) -> bool:
        with self._connected() as servers:
            servers.run_ids()
        return True

    @contextmanager
    def _connected(self) -> Iterator[RedisServers]:
        """The driver's connections; after an error the next call makes new ones."""
        if self._servers is None:
            self._servers = RedisServers(self.options)
        try:
            yield self._servers
        except SinkError:
            self.close()
            raise
