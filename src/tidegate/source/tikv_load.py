"""A full load from TiKV: everything that a cluster had at one TSO, S, read region by region.

    plan      S ─► definitions at S from the m-prefix ─► regions of each table's rows
    chunk     KvScan pages of a region's part of a table at S ─► mounted by columns ─► Batch

The bounds of a chunk are (first key, id of the database) and (key behind the last, id of the table), keys as hex: a
task reads the definition at S itself, by these ids.  Rows are read at low priority, at the leader or at a follower, for
a resource group; locks are resolved as a transaction's reader does (tikv/snapshot.py).

`TikvGuard` holds garbage collection at S, under a name of its own, until the load is done.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import replace
from threading import Event
from typing import Any, Final, Self, TypeVar

import numpy as np
import pyarrow as pa

from tidegate.codec.columnar.rows import Batch
from tidegate.codec.columnar.values import MISMATCHES
from tidegate.engine.filter import is_system
from tidegate.engine.load_plan import LoadChunk, LoadGuard, LoadPlan, LoadReader, LoadTable
from tidegate.engine.mount import Mounter
from tidegate.engine.mount_columns import ColumnMounter, Records, batch_of_rows
from tidegate.kv.keys import table_span
from tidegate.model.errors import SchemaError, TidegateError, UnsupportedError
from tidegate.model.table import TableName
from tidegate.mysql.encoding import decode_bytes, decode_int, encode_bytes
from tidegate.schema.stored.create import render_create_schema, render_create_table
from tidegate.schema.stored.definition import StoredTable, parse_stored
from tidegate.schema.stored.history import DefinitionHistory, shown
from tidegate.schema.stored.meta import table_key
from tidegate.schema.stored.snapshot import SchemaHistory, StoredSnapshot, TableVersion
from tidegate.source.tidb_log import name_of
from tidegate.source.tidb_segment import SCHEMA
from tidegate.source.tikv_capture import capture_loop
from tidegate.source.tikv_options import TikvLoadOptions
from tidegate.source.upstream_address import rests_until
from tidegate.tikv.address import address_of
from tidegate.tikv.pd import PdClient
from tidegate.tikv.snapshot import Pair, ReadOptions, Snapshot

T = TypeVar("T")
BATCH_ROWS: Final = 4_096
_RENEW_S: Final = 60.0


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

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns in the loop of the captures."""
        return asyncio.run_coroutine_threadsafe(work, capture_loop()).result()

    def snapshot(self, ts: int) -> Snapshot:
        """Return the reader of `ts`."""
        read = ReadOptions(
            page_pairs=1024, replica_read=self.options.replica_read, resource_group=self.options.resource_group
        )
        return Snapshot(self.pd, ts, options=read)

    def close(self) -> None:
        """Close the client."""
        pd, self._pd = self._pd, None
        if pd is not None:
            self.call(pd.close())


class TikvReader(LoadReader):
    """Reads a load from TiKV."""

    def __init__(self, options: TikvLoadOptions) -> None:
        self.options = options
        self._cluster = _Cluster(options)
        self._versions: dict[tuple[str, str, int], TableVersion] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return TikvReader, (self.options,)

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
        if chunk.keys or chunk.lower is None or chunk.upper is None:
            raise UnsupportedError(
                f"{table.name}: load-from=tikv:// has no rows of single keys, load-from=mysql:// has them"
            )
        start, end = (bytes.fromhex(bound[0]) for bound in (chunk.lower, chunk.upper))
        version = self._cluster.call(self._version(table, chunk.lower[1], chunk.upper[1], ts))
        by_id = {version.stored.id: version}
        logical = dict.fromkeys(version.stored.physical_ids, version.stored.id)
        history = SchemaHistory(StoredSnapshot(ts=ts - 1, tables=by_id, logical=logical))
        mounter = Mounter(history, force_replicate=True, time_zone=self.options.time_zone)
        columns, physical_id = ColumnMounter(mounter), decode_int(start, 1)[0]
        limit, begun, rows = self.options.rows_per_s, time.monotonic(), 0
        pages = self._cluster.snapshot(ts).pages(start, end)

        async def some() -> list[Pair]:
            read: list[Pair] = []
            async for page in pages:
                read += page
                if len(read) >= BATCH_ROWS:
                    break
            return read

        while pairs := self._cluster.call(some()):
            yield _batch(columns, mounter, physical_id, pairs, ts)
            rows += len(pairs)
            if limit:
                time.sleep(max(begun + rows / limit - time.monotonic(), 0))

    def close(self) -> None:
        self._cluster.close()

    async def _version(self, table: LoadTable, schema_id: str, table_id: str, ts: int) -> TableVersion:
        """The definition of a table at `ts`."""
        key = schema_id, table_id, ts
        if key not in self._versions:
            value = await self._cluster.snapshot(ts).get(table_key(int(schema_id), int(table_id)))
            if value is None:
                raise SchemaError(f"{table.name}: the cluster has no table {table_id} at ts {ts}")
            stored = shown(parse_stored(value, StoredTable))
            self._versions[key] = TableVersion(int(schema_id), table.name.schema, stored, stored.update_timestamp)
        return self._versions[key]

    async def _schema(self, ts: int) -> StoredSnapshot:
        pairs = [pair async for page in self._cluster.snapshot(ts).pages(*SCHEMA) for pair in page]
        return DefinitionHistory(ts, pairs).snapshot(ts)

    async def _plan(self, selects: Callable[[TableName], bool], ts: int | None) -> LoadPlan:
        pd = self._cluster.pd
        ts = await pd.tso() if ts is None else ts
        snapshot = await self._schema(ts)
        every = [version for version in snapshot.tables.values() if not is_system(version.schema)]
        chosen = sorted((version for version in every if selects(name_of(version))), key=name_of)
        texts = {name_of(each): render_create_table(each.stored, schema=each.schema) for each in chosen}
        views = tuple((name_of(each), texts[name_of(each)]) for each in chosen if each.stored.is_view)
        sequences = tuple((name_of(each), texts[name_of(each)]) for each in chosen if each.stored.is_sequence)
        tables = [each for each in chosen if not each.stored.is_view and not each.stored.is_sequence]
        schemas = {each.schema for each in chosen}
        chunks: list[LoadChunk] = []
        for index, each in enumerate(tables):
            for partition, start, end in [part async for part in self._parts(each)] if self.options.whole else ():
                lower, upper = (start.hex(), str(each.schema_id)), (end.hex(), str(each.stored.id))
                chunks.append(LoadChunk(len(chunks), index, partition, lower, upper))
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
            tables=tuple(LoadTable(name_of(each), texts[name_of(each)], (), _partitions(each)) for each in tables),
            views=views,
            sequences=sequences,
            unselected=tuple(name_of(each) for each in every if not selects(name_of(each))),
            chunks=tuple(chunks),
        )

    async def _parts(self, version: TableVersion) -> AsyncIterator[tuple[str, bytes, bytes]]:
        """The partition and the keys of each region's part of a table."""
        names = _partitions(version) or ("",)
        for name, physical_id in zip(names, version.stored.physical_ids, strict=True):
            start, end = table_span(physical_id)
            for region in await self._cluster.pd.regions(encode_bytes(start), encode_bytes(end)):
                last = region.region.end_key
                bound = min(end, decode_bytes(last)[0]) if last else end
                yield name, start, bound
                start = bound


def _partitions(version: TableVersion) -> tuple[str, ...]:
    partition = version.stored.partition
    is_cut = partition is not None and partition.enable
    return tuple(each.name.original for each in partition.definitions or ()) if partition and is_cut else ()


def _batch(columns: ColumnMounter, mounter: Mounter, physical_id: int, pairs: list[Pair], ts: int) -> Batch:
    """Rows as INSERTs at `ts`, by columns where that is possible."""
    keys, values = (pa.array(column, pa.binary()) for column in zip(*pairs, strict=True))
    times = np.full(len(pairs), ts, np.int64)
    try:
        mounted = columns.mount(Records(physical_id, keys, values, pa.nulls(len(pairs), pa.binary()), times))
    except MISMATCHES:
        every = (mounter.mount(key, value, None, ts) for key, value in pairs)
        return replace(batch_of_rows([row for row in every if row is not None], [ts] * len(pairs)), start_ts=None)
    assert mounted is not None, "a row has a value"
    return mounted.batch


class TikvGuard(LoadGuard):
    """Holds garbage collection at S, renewed each minute; for gc-ttl behind `__exit__`, so that a load that is stopped
    can go on, and until `restore`."""

    def __init__(self, options: TikvLoadOptions, plan: LoadPlan) -> None:
        self._options, self._ts = options, plan.ts
        self._cluster = _Cluster(options)
        self._stop = Event()
        self._error: TidegateError | None = None

    def __enter__(self) -> Self:
        self._cluster.call(self._hold())
        asyncio.run_coroutine_threadsafe(self._renew(), capture_loop())
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._cluster.close()

    def restore(self) -> None:
        self._stop.set()
        try:
            self._cluster.call(self._cluster.pd.release(self._name))
        finally:
            self._cluster.close()

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def rests_until(self) -> str:
        return rests_until(self._options.load_hours, time.time())

    @property
    def _name(self) -> str:
        return f"tidegate-load-{self._ts}"

    async def _hold(self) -> None:
        await self._cluster.pd.hold(self._name, self._options.gc_ttl_s, self._ts)
        await self._cluster.pd.check_kept(self._ts)

    async def _renew(self) -> None:
        while not self._stop.is_set():
            await asyncio.sleep(min(_RENEW_S, self._options.gc_ttl_s / 3))
            try:
                if not self._stop.is_set():
                    await self._hold()
                    self._error = None
            except TidegateError as error:
                self._error = error
