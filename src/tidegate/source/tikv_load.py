"""A full load from TiKV: everything that a cluster had at one TSO, S, read range by range.

    plan      S ─► definitions at S from the m-prefix ─► regions of each table from PD, with their sizes ─► borders
    chunk     KvScan pages of a range at S ─► columns of keys and values ─► mounted by columns ─► Batch

A plan reads the first rows of each table and its last key, whatever lies between: regions are cut and joined to ranges
of about `chunk_rows`, or CHUNK_BYTES by the size of the first rows.  Where in a region its keys are is a guess, so that
a chunk has up to what a region has, or nothing.  The bounds of a chunk are (first key, id of the database) and (key
behind the last, id of the table), keys as hex: a task reads the definition at S itself, by these ids.  Rows are read at
low priority, at the leader or at a follower, for a resource group; locks are resolved as a transaction's reader does
(tikv/snapshot.py).

`TikvGuard` holds garbage collection at S, under a name of the plan's own, until the load is done; a plan does so before
it, and each slice of a repair or a reload (engine/refresh.py) at its own.  Loads at one S hold it each for itself.
"""

import asyncio
import secrets
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial, reduce
from itertools import pairwise
from typing import Any, Final, Self, TypeVar

import msgspec
import pyarrow as pa

from tidegate.codec.columnar.rows import Batch
from tidegate.codec.columnar.values import MISMATCHES
from tidegate.engine.chunk_size import CHUNK_BYTES
from tidegate.engine.filter import is_system
from tidegate.engine.load_plan import LoadChunk, LoadGuard, LoadPlan, LoadReader, LoadTable
from tidegate.engine.mount import Mounter
from tidegate.engine.mount_columns import ColumnMounter, batch_of_rows
from tidegate.kv.keys import table_span
from tidegate.kv.slices import Slices
from tidegate.model.errors import ClusterUnavailable, SchemaError, TidegateError
from tidegate.model.mysql import STRINGS
from tidegate.model.name import lowered
from tidegate.model.table import TableName
from tidegate.model.tso import LOGICAL_BITS
from tidegate.mysql.encoding import decode_int, encode_bytes
from tidegate.schema.stored.create import render_create_schema, render_create_table
from tidegate.schema.stored.definition import StoredTable, parse_stored
from tidegate.schema.stored.history import DefinitionHistory, shown
from tidegate.schema.stored.meta import counter_key, table_key
from tidegate.schema.stored.snapshot import SchemaHistory, StoredSnapshot, TableVersion
from tidegate.source.load_sql import deletes_of, keyed_layout, sequence_from
from tidegate.source.tidb_log import name_of
from tidegate.source.tidb_segment import SCHEMA
from tidegate.source.tikv_capture import ask_pd, capture_loop
from tidegate.source.tikv_keys import Key, KeyedTable
from tidegate.source.tikv_options import TikvLoadOptions
from tidegate.source.upstream_address import rests_until
from tidegate.tikv.address import address_of
from tidegate.tikv.pd import PdClient, RegionSize
from tidegate.tikv.snapshot import PAGE_PAIRS, Columns, ReadOptions, Snapshot, as_one, bound_of, columns_of

T = TypeVar("T")
BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 3 << 20
"""Of values: what is mounted at once stays in the caches of a core."""
_PAGE_ROWS: Final = 8_192
_PIECES: Final = 4
"""Ranges of which a chunk is joined."""
_JOINED: Final = 16
"""The most regions that a chunk is joined of: PD may not know yet what they hold."""
_DIGITS: Final = 8
"""Bytes behind those that two keys have in common that tell how far they are from each other."""
_RENEW_S: Final = 60.0
_BRIEF_TTL_S: Final = 600
"""How long GC waits for a plan or a repair that died, or for a load to begin."""


class _Cluster:
    """A client of PD whose calls wait for their answer."""

    def __init__(self, options: TikvLoadOptions) -> None:
        self.options = options
        self._pd: PdClient | None = None

    @property
    def pd(self) -> PdClient:
        """The client."""
        if self._pd is None:
            self._pd = PdClient(address_of(self.options))
        return self._pd

    def begin(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine in the loop of the captures."""
        return asyncio.run_coroutine_threadsafe(work, capture_loop())

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns in that loop."""
        return self.begin(work).result()

    def snapshot(self, ts: int, **options: Any) -> Snapshot:
        """Return the reader of `ts`."""
        replica_read, resource_group = self.options.replica_read, self.options.resource_group
        read = ReadOptions(replica_read=replica_read, resource_group=resource_group, **options)
        return Snapshot(self.pd, ts, options=read)

    def close(self) -> None:
        """Close the client."""
        pd, self._pd = self._pd, None
        if pd is not None:
            self.call(pd.close())


class TikvReader(LoadReader):
    """Reads a load from TiKV."""

    def __init__(self, options: TikvLoadOptions, *, typed: bool = False) -> None:
        self.options, self._typed = options, typed
        self._cluster = _Cluster(options)
        self._ids: dict[TableName, tuple[int, int]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(TikvReader, typed=self._typed), (self.options,)

    def typed(self) -> "TikvReader":
        return TikvReader(self.options, typed=True)

    def newest_ts(self) -> int:
        """Return a new timestamp."""
        return self._cluster.call(self._cluster.pd.tso())

    def schema(self, ts: int | None) -> StoredSnapshot:
        """Return the definitions at `ts`, at most at a timestamp of now, as those of None are. Raises HistoryLost."""
        now_ts = self.newest_ts()
        ts = now_ts if ts is None else min(ts, now_ts)
        self._cluster.call(self._cluster.pd.check_kept(ts))
        return self._cluster.call(self._schema(ts))

    def plan(self, selects: Callable[[TableName], bool], ts: int | None = None) -> LoadPlan:
        """Return the plan of the tables that are selected, at `ts`, or at a timestamp of now. Raises HistoryLost."""
        return self._cluster.call(self._plan(selects, ts))

    def batches(self, table: LoadTable, chunk: LoadChunk, ts: int) -> Iterator[Batch]:
        """Return the rows of a chunk as INSERTs at `ts`. Raises HistoryLost, SchemaError."""
        if chunk.keys:
            yield from self._of_keys(table, chunk.keys, ts)
            return
        assert chunk.lower is not None, chunk
        assert chunk.upper is not None, chunk
        start, end = (bytes.fromhex(bound[0]) for bound in (chunk.lower, chunk.upper))
        version = self._version(table.name, int(chunk.lower[1]), int(chunk.upper[1]), ts)
        if version is None:
            raise SchemaError(f"{table.name}: the cluster has no table {chunk.upper[1]} of that name at ts {ts}")
        mounting = _Mounting(version, ts, self.options.time_zone, typed=self._typed)
        physical_id = decode_int(start, 1)[0]
        limit, begun, rows = self.options.rows_per_s, time.monotonic(), 0
        for keys, values in self._pages(start, end, ts):
            yield mounting.batch(physical_id, keys, values)
            rows += len(keys)
            if limit:
                time.sleep(max(begun + rows / limit - time.monotonic(), 0))

    def _of_keys(self, table: LoadTable, keys: Sequence[Key], ts: int) -> Iterator[Batch]:
        """Return DELETEs of the keys that no row has, by their texts, and then the rows of the others."""
        batches, absent = self._keyed(table, keys, ts)
        if absent:
            yield deletes_of(keyed_layout(table, ts), absent, ts, self.options.time_zone)
        yield from batches

    def _keyed(self, table: LoadTable, keys: Sequence[Key], ts: int) -> tuple[list[Batch], list[Key]]:
        """The rows of some keys, and the keys that none has, by their texts. Raises HistoryLost."""
        version, info = self._named(table.name, ts), keyed_layout(table, ts).info
        kinds = {column.name: column.type for column in info.columns}
        is_text = [kinds[name].code in STRINGS and kinds[name].charset != "binary" for name in info.handle_key]
        texts = [(index, name) for index, name in enumerate(info.handle_key) if is_text[index]]
        keyed = KeyedTable(version.stored, info.handle_key)
        stored = self._cluster.call(keyed.rows(self._cluster.snapshot(ts), keys))
        self._cluster.call(self._cluster.pd.check_kept(ts))  # a collected version is not told from none
        mounting, batches, own = _Mounting(version, ts, self.options.time_zone), list[Batch](), dict[bytes, Key]()
        for physical_id in version.stored.physical_ids:
            values = {row.key: row.value for row in stored.values() if row.physical_id == physical_id}
            if values:
                batches.append(batch := mounting.batch(physical_id, *as_one([columns_of(values.items())])))
                shown = zip(*(batch.after.column(name).cast(pa.string()).to_pylist() for _, name in texts), strict=True)
                own.update(zip(values, shown if texts else [()] * len(values), strict=True))
        present = {key for key, row in stored.items() if own[row.key] == tuple(key[index] for index, _ in texts)}
        return batches, [key for key in keys if key not in present]

    def defined(self, names: Collection[TableName]) -> tuple[int, Mapping[TableName, str]]:
        ts = (self.newest_ts() >> LOGICAL_BITS << LOGICAL_BITS) - 1
        versions = self._cluster.call(self._schema(ts)).tables.values()
        creates = {name_of(each): render_create_table(each.stored, schema=each.schema) for each in versions}
        return ts, {name: creates[name] for name in names if name in creates}

    def absent(self, table: LoadTable, keys: Sequence[Key]) -> Sequence[Key]:
        return self._keyed(table, keys, self.newest_ts())[1]

    def close(self) -> None:
        self._cluster.close()

    def _pages(self, start: bytes, end: bytes, ts: int) -> Iterator[Columns]:
        """The pairs of a range, some pages at once, while the next ones are on their way."""
        most = min(self.options.rows_per_s or BATCH_ROWS, BATCH_ROWS)
        pages = self._cluster.snapshot(ts, page_pairs=min(most, _PAGE_ROWS)).columns(start, end)

        async def some() -> list[Columns]:
            read: list[Columns] = []
            rows = size = 0
            async for page in pages:
                read.append(page)
                rows, size = rows + len(page[0]), size + page[1].nbytes
                if rows >= most or size >= BATCH_BYTES:
                    break
            return read

        ahead = self._cluster.begin(some())
        try:
            while read := ahead.result():
                ahead = self._cluster.begin(some())
                yield as_one(read)
        finally:
            ahead.cancel()

    def _named(self, name: TableName, ts: int) -> TableVersion:
        """The definition of a table at `ts`, by its name; its ids are those of before where they still have it."""
        if name in self._ids and (version := self._version(name, *self._ids[name], ts)) is not None:
            return version
        for each in self._cluster.call(self._schema(ts)).tables.values():
            if name_of(each).key == name.key:
                self._ids[name] = each.schema_id, each.stored.id
                return each
        raise SchemaError(f"{name}: the cluster has no such table at ts {ts}")

    def _version(self, name: TableName, schema_id: int, table_id: int, ts: int) -> TableVersion | None:
        """The definition of a table at `ts`, by its ids; None where they are not its own."""
        value = self._cluster.call(self._cluster.snapshot(ts).get(table_key(schema_id, table_id)))
        stored = None if value is None else shown(parse_stored(value, StoredTable))
        if stored is None or lowered(stored.name.original) != lowered(name.table):
            return None
        return TableVersion(schema_id, name.schema, stored, stored.update_timestamp)

    async def _schema(self, ts: int) -> StoredSnapshot:
        """The definitions at `ts`."""
        pairs = [pair async for page in self._cluster.snapshot(ts).pages(*SCHEMA) for pair in page]
        return DefinitionHistory(ts, pairs).snapshot(ts)

    async def _plan(self, selects: Callable[[TableName], bool], ts: int | None) -> LoadPlan:
        pd = self._cluster.pd
        ts = await pd.tso() if ts is None else ts
        snapshot = await self._schema(ts)
        every = [version for version in snapshot.tables.values() if not is_system(version.schema)]
        chosen = sorted((version for version in every if selects(name_of(version))), key=name_of)
        texts = {name_of(each): render_create_table(each.stored, schema=each.schema) for each in chosen}
        sequences = [each for each in chosen if each.stored.is_sequence]
        temporary = [each for each in chosen if each.stored.temp_table_type]
        tables = [each for each in chosen if not (each.stored.is_view or each in sequences or each in temporary)]
        schemas = {each.schema for each in chosen}
        listed = [LoadTable(name_of(each), texts[name_of(each)], (), _partitions(each)) for each in tables]
        chunks: list[LoadChunk] = []
        safe_point = _own_name(ts)
        if tables and self.options.whole:
            async with _held(_SafePoint(pd, ts, _BRIEF_TTL_S, safe_point)):
                listed, chunks = await self._cut(tables, listed, ts)
        continued = [(name_of(each), await self._continued(each, ts)) for each in sequences if self.options.sequences]
        return LoadPlan(
            ts=ts,
            cluster=str(pd.cluster_id),
            version="TiKV",
            time_zone=self.options.time_zone,
            databases=tuple(
                (schema.name.original, render_create_schema(schema))
                for schema in snapshot.schemas.values()
                if schema.name.original in schemas
                or (not is_system(schema.name.original) and selects(TableName(schema.name.original, "")))
            ),
            tables=tuple(listed),
            views=tuple((name_of(each), texts[name_of(each)]) for each in chosen if each.stored.is_view),
            sequences=tuple((name_of(each), texts[name_of(each)]) for each in sequences),
            made_sequences=tuple((name, create) for name, create in continued if create),
            temporary=tuple(map(name_of, temporary)),
            unselected=tuple(name_of(each) for each in every if not selects(name_of(each))),
            chunks=tuple(chunks),
            safe_point=safe_point,
        )

    async def _continued(self, sequence: TableVersion, ts: int) -> str:
        """A sequence that begins at its next value; "" if it is used up."""
        create = render_create_table(sequence.stored, schema=sequence.schema)
        last = await self._cluster.snapshot(ts).get(counter_key("SID", sequence.schema_id, sequence.stored.id))
        return create if last is None else sequence_from(create, int(last) + 1)

    async def _cut(
        self, tables: Sequence[TableVersion], listed: Sequence[LoadTable], ts: int
    ) -> tuple[list[LoadTable], list[LoadChunk]]:
        """The tables with about what they hold, and their chunks."""
        cutting = _Cutting(self._cluster, ts)
        parts = [
            (index, partition, physical_id)
            for index, each in enumerate(tables)
            for partition, physical_id in zip(_partitions(each) or ("",), each.stored.physical_ids, strict=True)
        ]
        every = await asyncio.gather(
            *(
                cutting.pieces(physical_id, is_number=not tables[index].stored.is_common_handle)
                for index, _, physical_id in parts
            )
        )
        chunks: list[LoadChunk] = []
        rows, size = [0] * len(tables), [0] * len(tables)
        for (index, partition, physical_id), (pieces, row_bytes, most) in zip(parts, every, strict=True):
            start, end = table_span(physical_id)
            ids = str(tables[index].schema_id), str(tables[index].stored.id)
            joined = ((key, max(count, most // _JOINED)) for key, count in pieces)
            bounds = [start, *borders(joined, most), end]
            for first, stop in pairwise(bounds):
                chunks.append(LoadChunk(len(chunks), index, partition, (first.hex(), ids[0]), (stop.hex(), ids[1])))
            rows[index] += sum(count for _, count in pieces)
            size[index] += row_bytes * sum(count for _, count in pieces)
        change = msgspec.structs.replace
        estimates = zip(listed, rows, size, strict=True)
        return [change(each, estimated_rows=count, estimated_bytes=total) for each, count, total in estimates], chunks


class _Cutting:
    """Cuts tables at `ts` into pieces of chunks, as PD tells of their regions."""

    def __init__(self, cluster: _Cluster, ts: int) -> None:
        self._options, self._pd, self._snapshot = cluster.options, cluster.pd, cluster.snapshot(ts)
        self._few, self._is_told = asyncio.Semaphore(cluster.options.connections), True

    async def pieces(self, physical_id: int, *, is_number: bool) -> tuple[list[tuple[bytes, int]], int, int]:
        """Return keys of a table in their order with about the rows from each to the next, the bytes of a row, and the
        rows of a chunk. `is_number`: its handles are numbers."""
        start, end = table_span(physical_id)
        async with self._few:
            first = await anext(self._snapshot.columns(start, end), None)
            row_bytes = sum(column.nbytes for column in first) // len(first[0]) if first else 1
            most = max(min(self._options.chunk_rows, CHUNK_BYTES // row_bytes), 1)
            if first is None or len(first[0]) < min(PAGE_PAIRS, most):
                return [(start, len(first[0]) if first else 0)], row_bytes, most
            regions = await self._pd.regions(encode_bytes(start), encode_bytes(end))
            sizes, low = await self._sizes(start, end), first[0].to_pylist()[0]
            bounds = [bound_of(region, end) for region in regions[:-1]]
            behind = max([low, *bounds])
            bounds.append(await self._snapshot.last_key(behind, end) or behind)
        alphabet = range(256) if is_number else sorted({*b"".join(first[0].to_pylist())})
        pieces: list[tuple[bytes, int]] = []
        for region, bound in zip(regions, bounds, strict=True):
            size = sizes.get(region.region.id, RegionSize())
            rows = size.keys or (size.mebibytes << 20) // row_bytes or most
            if is_number:
                rows = min(rows, _number(bound) - _number(low) + 1)
            cuts = [low, *between(low, bound, -(-rows * _PIECES // most), alphabet)]
            pieces += [(cut, -(-rows // len(cuts))) for cut in cuts]
            low = bound
        return pieces, row_bytes, most

    async def _sizes(self, start: bytes, end: bytes) -> Mapping[int, RegionSize]:
        """The sizes of regions by their ids; none once PD has not told them."""
        try:
            return await self._pd.sizes(encode_bytes(start), encode_bytes(end)) if self._is_told else {}
        except ClusterUnavailable:
            self._is_told = False
            return {}


def _number(key: bytes) -> int:
    """The handle that is a number of a key, or where a shorter key stands among them."""
    return int.from_bytes(key[11:19].ljust(8, b"\0"))


def between(low: bytes, high: bytes, pieces: int, alphabet: Sequence[int] = range(256)) -> Sequence[bytes]:
    """Return keys that cut [low, high) into so many ranges, or fewer, as if its keys were spread evenly and made of the
    bytes of an alphabet.

    >>> [key[:3] for key in between(b"k01", b"k31", 3, b"0123456789")]
    [b'k11', b'k21']
    """
    pairs, base = enumerate(zip(low, high, strict=False)), len(alphabet)
    common = next((index for index, (byte, other) in pairs if byte != other), min(len(low), len(high)))

    def number(key: bytes) -> int:
        digits = (
            min(bisect_left(alphabet, byte), base - 1) for byte in key[common : common + _DIGITS].ljust(_DIGITS, b"\0")
        )
        return reduce(lambda total, digit: total * base + digit, digits)

    first, last = number(low), number(high)
    cuts = (first + (last - first) * index // pieces for index in range(1, pieces))
    weights = [base**exponent for exponent in reversed(range(_DIGITS))]
    keys = (low[:common] + bytes(alphabet[cut // weight % base] for weight in weights) for cut in dict.fromkeys(cuts))
    return [key for key in keys if low < key < high]


def borders(pieces: Iterable[tuple[bytes, int]], most: int) -> Iterator[bytes]:
    """Return keys that cut a table so that at least `most` rows lie between two; `pieces` are keys in their order,
    each with the rows from it to the next."""
    count = 0
    for key, rows in pieces:
        if count >= most:
            yield key
            count = 0
        count += rows


def _partitions(version: TableVersion) -> tuple[str, ...]:
    partition = version.stored.partition
    is_cut = partition is not None and partition.enable
    return tuple(each.name.original for each in partition.definitions or ()) if partition and is_cut else ()


class _Mounting:
    """Makes batches of a table's rows, all INSERTs at `ts`."""

    def __init__(self, version: TableVersion, ts: int, time_zone: str, *, typed: bool = False) -> None:
        logical = dict.fromkeys(version.stored.physical_ids, version.stored.id)
        history = SchemaHistory(StoredSnapshot(ts=ts - 1, tables={version.stored.id: version}, logical=logical))
        self._ts, self._mounter = ts, Mounter(history, force_replicate=True, time_zone=time_zone)
        self._columns = ColumnMounter(self._mounter, typed=typed)

    def batch(self, physical_id: int, keys: Slices, values: Slices) -> Batch:
        """Return the rows of a physical table, by columns where that is possible. Raises SchemaError."""
        try:
            return self._columns.inserts(physical_id, keys, values, self._ts)
        except MISMATCHES:
            pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
            every = (self._mounter.mount(key, value, None, self._ts) for key, value in pairs)
            rows = [row for row in every if row is not None]
            return replace(batch_of_rows(rows, [self._ts] * len(rows)), start_ts=None)


def _hold_name(ts: int) -> str:
    """The name of plans from releases in which loads at one S shared it."""
    return f"tidegate-load-{ts}"


def _own_name(ts: int) -> str:
    return f"{_hold_name(ts)}-{secrets.token_hex(4)}"


class _SafePoint:
    """What keeps garbage collection from passing S, for `ttl_s` after its last renewal."""

    def __init__(self, pd: PdClient, ts: int, ttl_s: int, name: str) -> None:
        self.error: TidegateError | None = None
        self._pd, self._ts, self._ttl_s, self._name = pd, ts, ttl_s, name
        self._turn, self._over = asyncio.Lock(), False

    async def take(self) -> None:
        """Hold S. Raises StartBeforeGc, HistoryLost."""
        await self._pd.hold(self._name, self._ttl_s, self._ts)
        await self._pd.check_kept(self._ts)

    async def renew(self) -> None:
        """Take it again and again, until cancelled or released."""
        while not self._over:
            await asyncio.sleep(min(_RENEW_S, self._ttl_s / 3))
            async with self._turn:
                try:
                    if not self._over:
                        await self.take()
                        self.error = None
                except TidegateError as error:
                    self.error = error

    async def release(self) -> None:
        """Let S go; no renewal follows."""
        async with self._turn:
            self._over = True
            await self._pd.release(self._name)


@asynccontextmanager
async def _held(safe_point: _SafePoint) -> AsyncIterator[None]:
    """Hold S while the block runs, and for a while behind it."""
    await safe_point.take()
    renewal = asyncio.create_task(safe_point.renew())
    try:
        yield
    finally:
        renewal.cancel()


class TikvGuard(LoadGuard):
    """Holds garbage collection at S, renewed each minute; for gc-ttl behind `__exit__`, so that a load that is stopped
    can go on, and until `restore`."""

    def __init__(self, options: TikvLoadOptions, plan: LoadPlan) -> None:
        self._options, self._cluster, self._ts = options, _Cluster(options), plan.ts
        self._name = plan.safe_point or _hold_name(plan.ts)
        self._safe_point = _SafePoint(self._cluster.pd, plan.ts, options.gc_ttl_s, self._name)
        self._renewal: Future[None] | None = None

    def brief(self) -> Self:
        self._safe_point = _SafePoint(self._cluster.pd, self._ts, _BRIEF_TTL_S, _own_name(self._ts))
        return self

    def __enter__(self) -> Self:
        self._cluster.call(self._safe_point.take())
        self._renewal = self._cluster.begin(self._safe_point.renew())
        return self

    def __exit__(self, *_error: object) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
        self._cluster.close()

    def restore(self) -> None:
        if self._renewal is None:  # not entered: a changefeed ends, and does not wait long for a PD that is away
            ask_pd(address_of(self._options), lambda pd: pd.release(self._name))
            return
        try:
            self._cluster.call(self._safe_point.release())
        finally:
            self.__exit__()

    def check(self) -> None:
        if self._safe_point.error is not None:
            raise self._safe_point.error

    def rests_until(self) -> str:
        return rests_until(self._options.load_hours, time.time())
