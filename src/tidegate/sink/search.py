"""The search sink: every row a document found by its words, and never older than its last change.

    recover   become the writer: earlier writers are shut out
    run       each table in a task of its own: the last change of each key, in bulks
    ddl       where rows or mapping change, the next index is filled from the last one, in tasks; barrier for all tables
    advance   publish checkpoint and indexes in one step; then the aliases of readers move, and old indexes are removed

Guarantee: each row exactly as its last change left it.  Repeated or late rows change nothing: a search server compares
versions (search_server.py), the embedded index keeps its position in the commit of its rows (search_embedded.py).
Readers search by alias, so an index is complete when they first see it.  Transactions are not atomic for readers.
Progress is stored beside the indexes.  Tables without a key are left out, with one warning, since their rows have no
names.

    CREATE, TRUNCATE                     a new index, empty
    DROP                                 the table no longer has an index
    RENAME                               the index stays, under another alias
    ALTER, where rows or mapping change  a new index, filled from the old one
    DROP and TRUNCATE PARTITION          a new index, filled with the other rows
    EXCHANGE PARTITION                   two new indexes, filled from the two old ones

An index that a DDL replaces gets no more rows, so the DDL can be repeated from its start.  Readers use it until the
checkpoint is past the DDL; then the alias moves and the index is removed.

Tasks write the rows of a round into their index, or fill one index from others:

    changes  ─► parts   ─► the last change of each key ─► documents ─► writer        write_table
    pages    ─► rows    ─► as the DDL makes them       ─► documents ─► writer        fill_index

Parts of a chunk have no common order: rows of one layout may lie between those of another, and a large transaction is
cut anywhere.  A part therefore leaves out rows of which an earlier part of its chunk wrote a newer version; within one
commit_ts a put row wins over a DELETE.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec
import numpy as np

from tidegate.codec.columnar import Batch, typed_batch
from tidegate.engine.plan import Checkpoint, PlannedDdl, Round, Rows, Segment
from tidegate.engine.ports import Changes, SinkPosition, Tasks, WithKeys, Written, converted, refused_rows
from tidegate.engine.reload import key_texts
from tidegate.model.errors import InputError, SchemaError, SinkRefused, TidegateError
from tidegate.model.event import NO_SESSION, DdlSession, Value
from tidegate.model.table import TableInfo, TableName
from tidegate.objectstore.failpoint import failpoint
from tidegate.schema import effects
from tidegate.schema.effects import Effect
from tidegate.schema.state import SchemaState
from tidegate.sink.calls import KeyedSink, rows_gone
from tidegate.sink.documents import altered, as_columns, fields_of, inside, json_objects, last_changes, row_of_json
from tidegate.sink.search_mapping import IndexRule, alias_of, document_id, field_name, index_name, mapping_of


class TableIndex(msgspec.Struct, frozen=True):
    """The index of a table, and its mapping as text."""

    schema: str
    table: str
    index: str
    mapping: str

    @property
    def name(self) -> TableName:
        return TableName(self.schema, self.table)


Indexes: TypeAlias = Mapping[tuple[str, str], TableIndex]
"""By the key of the table's name."""


class Part(msgspec.Struct, frozen=True):
    """Rows of an old index that go into a new one.

    `how`: as they are, as ALTER makes them, or under the columns of the new table. With `partitions`, those rows alone
    that lie in them, or that do not (`within`)."""

    index: str
    old: TableInfo
    how: Literal["copy", "alter", "columns"] = "copy"
    partitions: tuple[str, ...] = ()
    within: bool = True


class Filling(msgspec.Struct, frozen=True):
    """A new index and the source of its documents."""

    target: TableIndex
    table: TableInfo
    parts: tuple[Part, ...] = ()


class Follower:
    """Follows the effects of one DDL; `name` makes the name of a table's next index."""

    def __init__(
        self,
        indexes: Indexes,
        rules: Sequence[IndexRule],
        name: Callable[[TableInfo], str],
        *,
        time_zone: str,
        commit_ts: int,
        session: DdlSession = NO_SESSION,
    ) -> None:
        self.indexes = dict(indexes)
        self._rules, self._name = rules, name
        self._zone, self._ts, self._session = time_zone, commit_ts, session

    def follow(self, effects_of_ddl: Sequence[Effect]) -> Iterator[Filling]:
        """Return the indexes to be filled, in order. SinkRefused for rows that no index has any more."""
        for effect in effects_of_ddl:
            match effect:
                case effects.TableCreated(table):
                    yield from self._filling(table)
                case effects.TableDropped(old):
                    self.indexes.pop(old.name.key, None)
                case effects.TableTruncated(old, new):
                    self.indexes.pop(old.name.key, None)
                    yield from self._filling(new)
                case effects.TableRenamed(old, new):
                    yield from self._renamed(old, new)
                case effects.TableAltered(old, new):
                    yield from self._altered(old, new)
                case effects.PartitionsTruncated(old, names, new) | effects.PartitionsDropped(old, names, new):
                    yield from self._kept(new, Part("", old, partitions=names, within=False))
                case effects.PartitionExchanged():
                    yield from self._exchanged(effect)
                case effects.TableRecovered(table):
                    raise rows_gone(table, "the index")

    def ensure(self, table: TableInfo) -> Iterator[Filling]:
        """Give a table an index of its mapping, filled from another one that it has."""
        index = self.indexes.get(table.name.key)
        if index is None or index.mapping != mapping_of(table, self._rules).text:
            yield from self._kept(table, Part("", table))
            if table.name.key not in self.indexes:
                yield from self._filling(table)

    def _filling(self, table: TableInfo, *parts: Part) -> Iterator[Filling]:
        self.indexes.pop(table.name.key, None)
        if table.handle_key:
            index = TableIndex(*table.name, self._name(table), mapping_of(table, self._rules).text)
            self.indexes[table.name.key] = index
            yield Filling(index, table, parts)

    def _renamed(self, old: TableInfo, new: TableInfo) -> Iterator[Filling]:
        index = self.indexes.pop(old.name.key, None)
        if index is not None:
            self.indexes[new.name.key] = msgspec.structs.replace(index, schema=new.name.schema, table=new.name.table)
            yield from self.ensure(new)

    def _altered(self, old: TableInfo, new: TableInfo) -> Iterator[Filling]:
        if not old.handle_key or not new.handle_key:
            yield from self._filling(new)
        elif altered(old, new, self._zone, self._ts, self._session, keeps_null=True) is not None:
            yield from self._kept(new, Part("", old, "alter"))
        else:
            yield from self.ensure(new)

    def _kept(self, new: TableInfo, part: Part) -> Iterator[Filling]:
        """A new index of `new` from that of the part's table."""
        if (index := self.indexes.get(part.old.name.key)) is not None:
            yield from self._filling(new, msgspec.structs.replace(part, index=index.index))

    def _exchanged(self, effect: effects.PartitionExchanged) -> Iterator[Filling]:
        partitioned, other = (self.indexes.get(table.name.key) for table in (effect.partitioned, effect.other))
        if partitioned is None or other is None:
            return
        chosen = (effect.partition,)
        yield from self._filling(effect.new_other, Part(partitioned.index, effect.partitioned, "columns", chosen))
        stays = Part(partitioned.index, effect.partitioned, "columns", chosen, within=False)
        yield from self._filling(effect.new_partitioned, stays, Part(other.index, effect.other, "columns"))


class RowDocument(NamedTuple):
    """The JSON object that an index holds under `id` from `commit_ts` on; None: the document is deleted."""

    id: str
    commit_ts: int
    source: bytes | None


class Hit(NamedTuple):
    """A hit of a search."""

    id: str
    score: float
    source: bytes


class PublishedIndexes(msgspec.Struct, frozen=True):
    """The progress of a feed, beside its indexes; `epoch` is that of its writer."""

    epoch: int = 0
    checkpoint: Checkpoint | None = None
    schema: str = ""
    indexes: tuple[TableIndex, ...] = ()

    @property
    def position(self) -> SinkPosition:
        if self.checkpoint is None:
            return SinkPosition(Checkpoint(), SchemaState(), is_new=True)
        return SinkPosition(self.checkpoint, SchemaState.from_json(self.schema.encode()))


class IndexWriter(Protocol):
    """Writes one index, in a task."""

    def write(self, documents: Sequence[RowDocument]) -> int:
        """Write documents, no two of them under one id; return the bytes sent."""

    def finish(self, upto: int) -> None:
        """Make all writes durable: the index has all changes up to a ts."""


class SearchStore(Protocol):
    """The indexes that one feed writes: a value that travels to tasks."""

    @property
    def address(self) -> str:
        """The store's address, for messages."""

    def take(self) -> PublishedIndexes:
        """Become the writer; return the published progress, with this writer's own epoch."""

    def check(self, epoch: int) -> None:
        """Raise Fenced where another writer began."""

    def keep(self, published: PublishedIndexes) -> None:
        """Publish, and let aliases and indexes follow. Fenced where another writer began."""

    def create(self, index: TableIndex, epoch: int) -> None:
        """Make an empty index; no two have one name."""

    def writer(self, index: TableIndex, epoch: int) -> AbstractContextManager[IndexWriter]:
        """Return a writer of an index."""

    def settle(self, index: str) -> None:
        """See that `pages` finds all that was written."""

    def shares(self, slots: int) -> int:
        """Return in how many shares an index is read and written at the same time, by so many tasks."""

    def pages(self, index: str, share: int, shares: int) -> Iterator[list[tuple[str, bytes]]]:
        """Return one share of an index's documents, some at a time: id and source."""

    def search(self, alias: str, words: str, limit: int) -> tuple[int, list[Hit]]:
        """Return the number of matching documents, and the best ones. InputError for an invalid query or an unknown
        table."""

    def close(self) -> None:
        """Close connections."""


_Newest: TypeAlias = dict[str, tuple[int, bool]]
"""By the id of a document the commit_ts that was written, and whether a row came with it."""


@dataclass(frozen=True, slots=True)
class FillJob:
    """The documents that a new index begins with, as a DDL of `commit_ts` makes them, in `shares`."""

    filling: Filling
    store: SearchStore
    epoch: int
    time_zone: str
    commit_ts: int
    session: DdlSession
    shares: int


def write_table(store: SearchStore, changes: Changes, epoch: int, step: tuple[Rows, TableIndex]) -> Written:
    """Write the rows of a step; return when the index has stored them. Raises errors of reading and writing."""
    rows, index = step
    done = Written(rows.table.name)
    with closing(store), store.writer(index, epoch) as writer:
        for chunk in done.coming(changes.batches(rows.table.name, rows.after, rows.upto)):
            written: _Newest = {}
            for batch, _ in chunk.parts:
                _write_batch(writer, rows.table, batch, done, written if len(chunk.parts) > 1 else None)
        writer.finish(rows.upto)
        failpoint("search/after-write")
    return done


def _write_batch(writer: IndexWriter, table: TableInfo, batch: Batch, done: Written, written: _Newest | None) -> None:
    try:
        documents = converted(batch, partial(_documents, table))
        failpoint("search/before-write")
        done.size_bytes += writer.write(documents if written is None else list(_newer(documents, written)))
    except SinkRefused as error:
        rows = np.flatnonzero(batch.commit_ts.to_numpy() == error.where.commit_ts).tolist()
        if error.messages or not rows:
            raise error.at(table=str(table.name), commit_ts=batch.commit_ts[0].as_py()) from None
        raise refused_rows(batch, rows, str(error), kind=SinkRefused) from error
    except TidegateError as error:
        raise error.at(table=str(table.name), commit_ts=batch.commit_ts[0].as_py()) from None
    done.rows += batch.rows
    done.messages += len(documents)


def _documents(table: TableInfo, batch: Batch) -> list[RowDocument]:
    """The last change of each key, as its document."""
    typed = typed_batch(batch)
    last = last_changes(table, typed, document_id)
    names = [field_name(field.name) for field in typed.fields]
    objects = json_objects(names, typed.fields, last.columns)
    sources = [None if row is None else objects[row] for row in last.rows]
    return [RowDocument(*fields) for fields in zip(last.keys, last.commit_ts.to_pylist(), sources, strict=True)]


def _newer(documents: Sequence[RowDocument], written: _Newest) -> Iterator[RowDocument]:
    """The documents that are newer than what was written under their ids; they are noted there."""
    for document in documents:
        order = document.commit_ts, document.source is not None
        if order >= written.get(document.id, order):
            written[document.id] = order
            yield document


def fill_index(job: FillJob, share: int) -> Written:
    """Write a share of a new index's initial documents; return when the index has stored it."""
    filling = job.filling
    done = Written(filling.table.name)
    with closing(job.store), job.store.writer(filling.target, job.epoch) as writer:
        for part in filling.parts:
            for page in job.store.pages(part.index, share, job.shares):
                documents = list(_filled(job, part, page))
                writer.write(documents)
                done.messages += len(documents)
                failpoint("search/amid-fill")
        writer.finish(job.commit_ts)
    return done


def _filled(job: FillJob, part: Part, page: list[tuple[str, bytes]]) -> Iterator[RowDocument]:
    """The documents of a page that the new index gets."""
    ts, table, fields = job.commit_ts, job.filling.table, fields_of(job.filling.table)
    if part.partitions:
        lies = inside(part.old, part.partitions, job.time_zone)
        page = [each for each in page if lies(row_of_json(part.old, each[1], field_name)) == part.within]
    if part.how == "copy":
        yield from (RowDocument(name, ts, source) for name, source in page)
        return
    change = as_columns(part.old, table)
    if part.how == "alter":
        conversion = altered(part.old, table, job.time_zone, ts, job.session, keeps_null=True)
        assert conversion is not None, "rows that stay as they are get copied"
        change = conversion
    rows = [change(row_of_json(part.old, source, field_name)) for _, source in page]
    columns: list[list[Value]] = [[row[field.name] for row in rows] for field in fields]
    objects = json_objects([field_name(field.name) for field in fields], fields, columns)
    key = [column.name for name in table.handle_key if (column := table.column(name)) is not None]
    for row, source in zip(rows, objects, strict=True):
        yield RowDocument(document_id([row[name] for name in key]), ts, source)


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Rules and settings of the sink: `prefix` begins the names that readers search."""

    rules: tuple[IndexRule, ...] = ()
    prefix: str = ""
    time_zone: str = "UTC"
    """The zone in which TIMESTAMPs come as texts."""


def published_alone() -> None:
    """Mark that a checkpoint names new indexes while aliases name the old ones."""
    failpoint("search/published")


class SearchSink(KeyedSink, WithKeys):
    """Writes to a store."""

    brings_again = "rows"

    def __init__(
        self,
        store: SearchStore,
        options: SearchOptions = SearchOptions(),
        *,
        run_lock: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        super().__init__(run_lock)
        self.store, self.options = store, options
        self._epoch = self._numbered = 0
        self._checkpoint_ts = 0
        self._indexes: Indexes = {}
        self._tasks: Tasks | None = None

    def recover(self) -> SinkPosition:
        published = self.store.take()
        self._epoch, self._indexes = published.epoch, {index.name.key: index for index in published.indexes}
        return published.position

    def open(self, position: SinkPosition) -> None:
        self._checkpoint_ts, self._state = position.checkpoint.ts, position.state

    def keys(self, table: TableInfo) -> Iterator[tuple[str, ...]]:
        if (index := self._indexes.get(table.name.key)) is not None:
            self.store.settle(index.index)
            for page in self.store.pages(index.index, 0, 1):
                yield from (key_texts(table, row_of_json(table, source, field_name)) for _, source in page)

    def run(self, tasks: Tasks, segment: Segment, changes: Changes) -> Sequence[Written]:
        self._tasks = tasks
        self.store.check(self._epoch)
        self._state = self._state.with_unknown(segment.tables)
        steps = self._keyed(segment.steps)
        follower = self._follower(self._checkpoint_ts, "rows")
        for step in steps:
            self._fill(follower.ensure(step.table), self._checkpoint_ts, NO_SESSION)
        self._indexes = follower.indexes
        write = partial(write_table, self.store, changes, self._epoch)
        return tasks.run(write, [(step, self._indexes[step.table.name.key]) for step in steps]) if steps else []

    def ddl(self, planned: PlannedDdl) -> None:
        session, ts = planned.ddl.known_session, planned.commit_ts
        if planned.error is not None:
            raise planned.refused(planned.error) from planned.error
        try:
            self.store.check(self._epoch)
            follower = self._follower(ts, str(planned.number - 1), session)
            self._fill(follower.follow(planned.effects), ts, session)
        except (InputError, SchemaError, SinkRefused) as error:
            raise planned.refused(error) from error
        except TidegateError as error:
            raise error.at(table=planned.table, commit_ts=ts) from None
        self._warn_of(planned)
        failpoint("search/ddl-done")
        self._state, self._indexes = planned.after, follower.indexes

    def advance(self, planned: Round, results: Sequence[Written]) -> SinkPosition:  # noqa: ARG002  the indexes have them
        position = SinkPosition(planned.checkpoint, planned.state)
        failpoint("search/before-advance")
        schema, indexes = self._schema_text(planned.state), tuple(self._indexes.values())
        self.store.keep(PublishedIndexes(self._epoch, planned.checkpoint, schema, indexes))
        self._checkpoint_ts, self._state = planned.checkpoint.ts, planned.state
        return position

    def close(self) -> None:
        self.store.close()

    def _follower(self, ts: int, begin: str, session: DdlSession = NO_SESSION) -> Follower:
        def name(table: TableInfo) -> str:
            self._numbered += 1
            alias = alias_of(table.name, self.options.prefix)
            return index_name(alias, f"{ts}.{begin}.{self._numbered}", self._epoch)

        zone = self.options.time_zone
        return Follower(self._indexes, self.options.rules, name, time_zone=zone, commit_ts=ts, session=session)

    def _fill(self, fillings: Iterable[Filling], ts: int, session: DdlSession) -> None:
        for filling in fillings:
            self.store.create(filling.target, self._epoch)
            if not filling.parts:
                continue
            assert self._tasks is not None, "a DDL comes behind the rows of its round"
            for part in filling.parts:
                self.store.settle(part.index)
            shares = self.store.shares(self._tasks.slots)
            job = FillJob(filling, self.store, self._epoch, self.options.time_zone, ts, session, shares)
            self._tasks.run(partial(fill_index, job), list(range(shares)))
