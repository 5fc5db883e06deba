"""The change log of the store: the events that TiKV's CDC sends to a client registered at a region, and the regions.

    register(region, span, checkpoint_ts)
      scan   COMMITTED of every version above checkpoint_ts, PREWRITE of every lock ──┐ one queue, in any mixture
      live   PREWRITE, COMMIT, ROLLBACK, COMMITTED of one phase ──────────────────────┤
      then   INITIALIZED behind the last row of the scan ─────────────────────────────┤
      then   ResolvedSpan, whenever `advance` is called ──────────────────────────────┘
      until  RegionFault: a split, a merge, another leader, a reader too slow; nothing follows it

- The scan is of the moment of the registration, at which the live events begin, too: a commit may be received twice, or
  before its prewrite, but is never missed.  `kv/match.py` makes rows of the events.
- resolved ts = min(a new timestamp, start_ts of each lock in the span - 1), taken with the store locked.  A transaction
  that is not prewritten by then gets a commit_ts above it.  The resolved ts never decreases within a registration; the
  next registration begins at its own checkpoint_ts and repeats what is above.
- Not sent: locks and writes of kind LOCK, rollbacks of keys that were never locked, and the rewrites by which a DDL
  changes a column's bytes (LOSSY_DDL).

Regions are ranges of the key space, each with an epoch by which a client learns that its view is out of date:

    split at m        1 [ ........ ) v3      ->    1 [ ... m ) v4    2 [ m ... ) v4
    merge             1 [ ... m ) v4  2 [ m ... ) v4      ->    1 [ ........ ) v5
    leader moves      1 [ ... m ) v4 term 1      ->    1 [ ... m ) v4 term 2

The left half of a split keeps its id; a merge keeps the left one's.  Versions only grow, so no epoch is reused.

Source: TiKV's cdc component (delegate, initializer, resolver), region epochs, terms of leaders; kvproto cdcpb.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from tidegate.kv.keys import split_mvcc_key
from tidegate.model.errors import HistoryLost
from tidegate.model.kv_change import LOSSY_DDL, FaultKind, KvChange, KvEvent, KvOp, LogType, RegionFault, ResolvedSpan
from tidegate.mysql.encoding import encode_bytes
from tidegate_upstream.tidb.engine import ColumnFamily
from tidegate_upstream.tidb.store_mvcc import Store, Write, WriteKind, bound, decode_write, value_at, value_of
from tidegate_upstream.tidb.transaction import Oracle


@dataclass(frozen=True, slots=True)
class Region:
    """A range [start, end) of raw keys; an empty `end` is no bound."""

    id: int
    start: bytes
    end: bytes
    version: int
    term: int

    def overlap(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """Return the part of [start, end) in this region, None if there is none."""
        low = max(start, self.start)
        high = min(self.end, end) if self.end and end else self.end or end
        return (low, high) if not high or low < high else None


class RegionMap:
    """All regions in the order of their keys; at first there is one."""

    def __init__(self) -> None:
        self._regions = [Region(1, b"", b"", 1, 1)]
        self._last_id = 1

    def __iter__(self) -> Iterator[Region]:
        """Iterate over a copy of the current regions."""
        return iter(tuple(self._regions))

    def find(self, region_id: int) -> Region | None:
        """Return the region with an id."""
        return next((region for region in self._regions if region.id == region_id), None)

    def split(self, key: bytes) -> Region | None:
        """Split the region of `key` there; return the old region, None if one starts at `key` already."""
        index = bisect_right(self._regions, key, key=lambda region: region.start) - 1
        old = self._regions[index]
        if old.start == key:
            return None
        self._last_id += 1
        left = replace(old, end=key, version=old.version + 1)
        self._regions[index : index + 1] = [left, replace(left, id=self._last_id, start=key, end=old.end)]
        return old

    def merge(self, region_id: int) -> tuple[Region, Region] | None:
        """Merge a region with its right neighbour; return the two old regions, None if there is no neighbour."""
        index = next(
            (index for index, region in enumerate(self._regions) if region.id == region_id), len(self._regions)
        )
        if index + 1 >= len(self._regions):
            return None
        left, right = self._regions[index : index + 2]
        version = max(left.version, right.version) + 1
        self._regions[index : index + 2] = [replace(left, end=right.end, version=version)]
        return left, right

    def move_leader(self, region_id: int) -> Region | None:
        """Transfer a region's leader; return the old region."""
        for index, region in enumerate(self._regions):
            if region.id == region_id:
                self._regions[index] = replace(region, term=region.term + 1)
                return region
        return None


QUEUE_EVENTS: Final = 1 << 20
"""Maximal number of live events queued for one reader; beyond it the reader is congested and must scan again."""

_OPS: Final = {WriteKind.PUT: KvOp.PUT, WriteKind.DELETE: KvOp.DELETE}


class Registration:
    """A reader's registration for one region: events of keys in [start, end) with commit_ts above `checkpoint_ts`."""

    def __init__(self, region: Region, start: bytes, end: bytes, checkpoint_ts: int) -> None:
        self.region, self.start, self.end = region, start, end
        self.resolved_ts = checkpoint_ts
        self.open = True
        self.initialized = False
        self.queue: deque[KvEvent] = deque()
        self.scanned: deque[KvChange] = deque()

    def covers(self, key: bytes) -> bool:
        """Return whether a key is in the span."""
        return self.start <= key and (not self.end or key < self.end)


class ChangeLog:
    """The change log of a store; past changes are read from the store's versions."""

    def __init__(self, store: Store, oracle: Oracle, regions: RegionMap | None = None) -> None:
        self.store, self.oracle, self.regions = store, oracle, regions or RegionMap()
        self._readers: list[Registration] = []
        store.observers.append(self._hear)

    def register(self, region: Region, start: bytes, end: bytes, checkpoint_ts: int) -> Registration:
        """Register for the part [start, end) of a region, as the caller knows the region.

        If the region has changed since, the reader gets the fault. Raises HistoryLost below the GC safe point.
        """
        with self.store.guard:
            reader = Registration(region, start, end, checkpoint_ts)
            if kind := self._fault_of(region):
                self._end(reader, kind)
                return reader
            if checkpoint_ts < self.store.safe_point:
                raise HistoryLost(
                    f"cannot read changes after ts {checkpoint_ts}: the GC safe point is "
                    f"{self.store.safe_point}; start at or above it, with a new copy of the data"
                )
            reader.scanned.extend(self._scan(start, end, checkpoint_ts))
            self._readers.append(reader)
        return reader

    def poll(self, reader: Registration, scan_rows: int = 1024) -> list[KvEvent]:
        """Return the events since the last call, with at most `scan_rows` rows of the scan; the last event may be a
        fault."""
        with self.store.guard:
            if reader.open and not reader.initialized:
                for _ in range(min(scan_rows, len(reader.scanned))):
                    reader.queue.append(reader.scanned.popleft())
                if not reader.scanned:
                    reader.initialized = True
                    reader.queue.append(KvChange(LogType.INITIALIZED, b"", 0))
            events = list(reader.queue)
            reader.queue.clear()
        return events

    def advance(self) -> None:
        """Send the resolved ts to every initialized reader."""
        with self.store.guard:
            now = self.oracle.next()
            locks = self.store.locks()
            for reader in self._readers:
                if not reader.initialized:
                    continue
                locked_ts = [lock.start_ts - 1 for key, lock in locks if reader.covers(key)]
                ts = min([now, *locked_ts])
                if ts > reader.resolved_ts:
                    reader.resolved_ts = ts
                    reader.queue.append(ResolvedSpan(reader.start, reader.end, ts))

    def deregister(self, reader: Registration) -> None:
        """End a registration."""
        with self.store.guard:
            reader.open = False
            self._readers = [other for other in self._readers if other is not reader]

    # --- regions ---

    def split(self, key: bytes) -> None:
        """Split the region of `key` there."""
        with self.store.guard:
            if old := self.regions.split(key):
                self._fault({old.id}, FaultKind.EPOCH_NOT_MATCH)

    def merge(self, region_id: int) -> None:
        """Merge a region with its right neighbour, if it has one."""
        with self.store.guard:
            if pair := self.regions.merge(region_id):
                self._fault({region.id for region in pair}, FaultKind.EPOCH_NOT_MATCH)

    def move_leader(self, region_id: int) -> None:
        """Transfer a region's leader."""
        with self.store.guard:
            if self.regions.move_leader(region_id):
                self._fault({region_id}, FaultKind.NOT_LEADER)

    def _fault_of(self, region: Region) -> FaultKind | None:
        current = self.regions.find(region.id)
        if current is None:
            return FaultKind.REGION_NOT_FOUND
        if current.version != region.version:
            return FaultKind.EPOCH_NOT_MATCH
        return FaultKind.NOT_LEADER if current.term != region.term else None

    def _fault(self, region_ids: set[int], kind: FaultKind) -> None:
        for reader in [reader for reader in self._readers if reader.region.id in region_ids]:
            self._end(reader, kind)

    def _end(self, reader: Registration, kind: FaultKind) -> None:
        self.deregister(reader)
        reader.scanned.clear()
        reader.queue.append(RegionFault(kind, reader.region.id))

    # --- events ---

    def _hear(self, changes: Sequence[KvChange]) -> None:
        for reader in list(self._readers):
            mine = [change for change in changes if reader.covers(change.key) and change.txn_source < LOSSY_DDL]
            for change in mine:
                late = change.commit_ts and change.commit_ts <= reader.resolved_ts and reader.initialized
                assert not late, (change, reader.resolved_ts)
            reader.queue.extend(mine)
            if len(reader.queue) > QUEUE_EVENTS:
                self._end(reader, FaultKind.CONGESTED)

    def _scan(self, start: bytes, end: bytes, checkpoint_ts: int) -> Iterator[KvChange]:
        """Return locks and versions above `checkpoint_ts` of keys in [start, end), each version with the one before
        it."""
        engine = self.store.engine
        for key, lock in self.store.locks(start, end):
            if lock.source >= LOSSY_DDL:
                continue
            old = value_at(engine, key, lock.start_ts)
            value = value_of(engine, key, Write(lock.kind, lock.start_ts, lock.short))
            yield KvChange(LogType.PREWRITE, key, lock.start_ts, 0, _OPS[lock.kind], value, old, lock.source)
        stored = engine.scan(ColumnFamily.WRITE, encode_bytes(start), bound(end))
        split = ((split_mvcc_key(index), record) for index, record in stored)
        for key, group in groupby(split, key=lambda item: item[0][0]):
            versions = ((commit_ts or 0, decode_write(record)) for (_, commit_ts), record in group)
            data = [(commit_ts, write) for commit_ts, write in versions if write.kind in _OPS]
            for index, (commit_ts, write) in enumerate(data):
                if commit_ts <= checkpoint_ts:
                    break
                if write.source >= LOSSY_DDL:
                    continue
                old = value_of(engine, key, data[index + 1][1]) if index + 1 < len(data) else None
                fields = (_OPS[write.kind], value_of(engine, key, write), old, write.source)
                yield KvChange(LogType.COMMITTED, key, write.start_ts, commit_ts, *fields)
