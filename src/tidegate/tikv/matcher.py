"""PREWRITE and COMMIT of many registrations joined on columns: the rules of kv/match.py, compiled.

    batch (walk.py)  ──►  table by (registration, start_ts, key)  ──►  record batches of committed rows
    rows as offsets       stored PREWRITEs, COMMITs and ROLLBACKs      (kv/change_columns.py)
                          put aside; their bytes in an arena

kv/match.py states the rules and serves the embedded log, whose events are objects.  This matcher holds all
registrations of a stream, because a message mixes their rows: a compiled call per batch, no object per row.  It adds
three rules:

- A row of type UNKNOWN is skipped: TiKV sends it, without a key, for records of type Lock.
- After INITIALIZED, a row with checkpoint_ts < commit_ts <= resolved_ts fails its registration with ResolvedTsBroken.
- An old value without bytes is none, and so is the value of a DELETE.

A registration that failed takes no more rows.  PREWRITEs are dropped only by COMMIT, ROLLBACK and the end of their
registration, never by start_ts; `stored` counts their bytes.

The table is an open-addressing hash table.  It does not grow within a call: before each one, `_rebuild` makes room for
all rows of the batch, and leaves out free entries, unused bytes, and the entries of registrations that have ended.
What the tables of all matchers of a feed need beyond ROOM_BYTES lies in files without a name, which the system writes
and reads by pages (`Room`): transactions may be larger than memory.
"""

import mmap
import os
import weakref
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from tidegate.codec.columnar.scan import MIX, same_bytes, text_hash
from tidegate.kv.change_columns import SCHEMA
from tidegate.model.compiled import compiled, copy, windows
from tidegate.model.errors import (
    PrewriteNotMatch,
    ProtocolError,
    ResolvedTsBroken,
    StoreUnavailable,
    TidegateError,
    redacted,
)
from tidegate.model.kv_change import KvOp, LogType
from tidegate.tikv.walk import (
    BEHIND,
    COMMIT_TS,
    GENERATION,
    ITEM,
    KEY,
    OLD_VALUE,
    OP,
    START_TS,
    TXN_SOURCE,
    TYPE,
    VALUE,
)
from tidegate.tikv.walk import Batch as Walked

_PREWRITE, _COMMIT, _ROLLBACK, _COMMITTED, _INITIALIZED = (int(kind) for kind in LogType)
_PUT, _DELETE = int(KvOp.PUT), int(KvOp.DELETE)

(_STATE, _CHECKPOINT, _RESOLVED, _HEAD, _STORED, _REASON, _ROW) = range(7)
"""Columns of registrations. _HEAD begins the list of entries that INITIALIZED looks at; _ROW is the row that failed."""
_FREE, _ENDED, _SCANNING, _LIVE, _FAILED = range(5)

_OWNER, _NEXT, _HASH, _FLAGS = ITEM, TYPE, 14, 15
"""Columns of entries. An entry has the columns of a row, with offsets into the arena, but for ITEM and TYPE."""
_ENTRY: Final = 16
_HAS_PREWRITE, _HAS_COMMIT, _HAS_ROLLBACK, _LISTED = 1, 2, 4, 8

(_ENTRIES, _UNUSED, _SLOTS, _BYTES, _ASIDE, _ROWS, _FAILURES) = range(7)
"""Counts: entries ever used, the first of the free ones, slots ever used, bytes of the arena, listed entries, rows of
the output, registrations that failed."""

_NOT_MATCHED, _NOT_RESOLVED, _UNEXPECTED = range(1, 4)
_BATCH_BYTES: Final = 64 << 20
"""Bytes of a record batch, whose offsets have 31 bits."""
ROOM_BYTES: Final = 64 << 20
SPILL: Final = ".spill-"
"""Of files that have a name only while they are made, where the file system has no others."""
_TEXTS: Final = [KEY, VALUE, OLD_VALUE]


class Matched(msgspec.Struct, frozen=True):
    """Rows that became complete: a record batch and the registration of each row. `failures` ended registrations."""

    batches: list[tuple[Any, Any]]
    failures: list[tuple[int, TidegateError]]


class Room:
    """Arrays: up to `most` bytes in memory, beyond it in files of `directory`, the machine's own by default."""

    def __init__(self, directory: Path | None = None, most: int = ROOM_BYTES) -> None:
        self.used = 0
        self._directory, self._most = directory, most

    def zeros(self, shape: tuple[int, ...], kind: type) -> Any:
        """Return an array of zeros. Raises StoreUnavailable when the disk refuses."""
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        if self.used + size <= self._most or not size:
            array: Any = np.zeros(shape, kind)
            self._add(size)
            weakref.finalize(array, self._add, -size)
            return array
        try:
            with TemporaryFile(dir=self._directory, prefix=SPILL) as file:
                os.posix_fallocate(file.fileno(), 0, size)  # a page without a place on disk would end the process
                return np.frombuffer(mmap.mmap(file.fileno(), size), kind).reshape(shape)
        except OSError as error:
            raise StoreUnavailable(f"uncommitted rows need {size} bytes of {self._directory}: {error}") from error

    def _add(self, size: int) -> None:
        self.used += size


class ColumnMatcher:
    """The matcher of all registrations of a stream; `room` may be that of other ones, too."""

    def __init__(self, room: Room | None = None) -> None:
        self._room = room or Room()
        self._registrations = np.zeros((64, _ROW + 1), np.int64)
        self._counts = np.zeros(7, np.int64)
        self._entries = np.zeros((0, _ENTRY), np.int64)
        self._slots = np.zeros(2, np.int32)
        self._arena = np.zeros(8, np.uint8)

    @property
    def stored(self) -> int:
        """Bytes of stored rows."""
        return int(self._registrations[:, _STORED].sum())

    def begin(self, checkpoint_ts: int) -> int:
        """Return the number of a new registration, which stays the same until it ends."""
        free = np.flatnonzero(self._registrations[:, _STATE] == _FREE)
        if not len(free):
            free = np.arange(len(self._registrations), 2 * len(self._registrations))
            self._registrations = np.concatenate([self._registrations, np.zeros_like(self._registrations)])
        self._registrations[free[0]] = (_SCANNING, checkpoint_ts, checkpoint_ts, -1, 0, 0, 0)
        return int(free[0])

    def resolve(self, registration: int, ts: int) -> None:
        """Take a resolved ts: rows with commit_ts at or below it are refused from now on."""
        own = self._registrations[registration]
        own[_RESOLVED] = max(own[_RESOLVED], ts)

    def is_initialized(self, registration: int) -> bool:
        """Return whether the initial scan of a registration is complete."""
        return bool(self._registrations[registration, _STATE] == _LIVE)

    def end(self, registration: int) -> None:
        """Forget a registration and what it has stored."""
        self._registrations[registration, [_STATE, _STORED]] = _ENDED, 0

    def apply(self, batch: Walked, owners: Any) -> Matched:
        """Take the rows of a batch; `owners` has the registration of each item, -1 for rows that nobody awaits."""
        rows = batch.rows
        data = np.frombuffer(batch.data, np.uint8)
        self._make_room(len(rows), len(data))
        counts = self._counts
        counts[_ROWS] = counts[_FAILURES] = 0
        output = self._room.zeros((len(rows) + int(counts[_ASIDE]), _ENTRY), np.int64)
        table = (self._entries, self._slots, windows(self._arena), counts)
        _match(windows(data), rows, owners, self._registrations, table, output)
        output = output[: counts[_ROWS]]
        failures = self._failures(batch) if counts[_FAILURES] else []
        sizes = _sizes(output).cumsum()
        cuts = [0, *np.flatnonzero(np.diff(sizes // _BATCH_BYTES)) + 1, len(output)] if len(output) else []
        parts = [output[first:stop] for first, stop in pairwise(cuts)]
        return Matched([(self._batch(windows(data), part), part[:, _OWNER].copy()) for part in parts], failures)

    def _failures(self, batch: Walked) -> list[tuple[int, TidegateError]]:
        own = self._registrations
        failures: list[tuple[int, TidegateError]] = []
        for registration in np.flatnonzero((own[:, _STATE] == _FAILED) & (own[:, _REASON] > 0)).tolist():
            row = batch.rows[own[registration, _ROW]]
            key = redacted(batch.data[row[KEY] : row[KEY + BEHIND]].hex())
            what = f"key {key}: type {row[TYPE]}, op {row[OP]}, start_ts {row[START_TS]}, commit_ts {row[COMMIT_TS]}"
            reason = own[registration, _REASON]
            own[registration, _REASON] = 0
            if reason == _NOT_MATCHED:
                failures.append((registration, PrewriteNotMatch(f"{what}: no prewrite; register the region anew")))
            elif reason == _NOT_RESOLVED:
                resolved_ts = own[registration, _RESOLVED]
                failures.append((registration, ResolvedTsBroken(f"{what}: not above resolved_ts {resolved_ts}")))
            else:
                failures.append((registration, ProtocolError(f"{what}: a row that the protocol does not have")))
        return failures

    def _make_room(self, rows: int, size: int) -> None:
        counts = self._counts
        has_room = counts[_ENTRIES] + rows <= len(self._entries) and counts[_BYTES] + size + 8 <= len(self._arena)
        is_idle = len(self._arena) > ROOM_BYTES and 8 * (self.stored + size) < len(self._arena)
        if has_room and not is_idle and 2 * (counts[_SLOTS] + rows) <= len(self._slots):
            return
        owners = self._registrations
        stored = self._entries[: counts[_ENTRIES]]
        kept = np.flatnonzero((stored[:, _FLAGS] != 0) & (owners[stored[:, _OWNER], _STATE] >= _SCANNING))
        entries = self._room.zeros((2 * (len(kept) + rows), _ENTRY), np.int64)
        slots = self._room.zeros((1 << (4 * (len(kept) + rows) + 1).bit_length(),), np.int32)
        arena = self._room.zeros((2 * (self.stored + size) + 16,), np.uint8)
        owners[owners[:, _STATE] == _ENDED] = 0
        owners[:, _HEAD] = -1
        counts[:] = 0
        counts[_UNUSED] = -1
        _rebuild(windows(self._arena), stored, kept, owners, (entries, slots, windows(arena), counts))
        self._entries, self._slots, self._arena = entries, slots, arena

    def _batch(self, data_words: Any, rows: Any) -> Any:
        count = len(rows)
        arena_words = windows(self._arena)
        texts = []
        for column in _TEXTS:
            offsets = np.zeros(count + 1, np.int32)
            np.cumsum(rows[:, column + BEHIND] - rows[:, column], out=offsets[1:])
            target = self._room.zeros((int(offsets[-1]) + 8,), np.uint8)
            _gather(data_words, arena_words, rows, column, offsets, windows(target))
            nulls = {KEY: None, VALUE: rows[:, OP] == _DELETE, OLD_VALUE: offsets[1:] == offsets[:-1]}[column]
            valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
            buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(target)]
            texts.append(pa.Array.from_buffers(pa.binary(), count, buffers))
        starts, commits, sources = (pa.array(rows[:, column]) for column in (START_TS, COMMIT_TS, TXN_SOURCE))
        ops = pa.array(rows[:, OP].astype(np.int8))
        columns = [texts[0], starts, commits, ops, texts[1], texts[2], sources]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _sizes(rows: Any) -> Any:
    """Return the bytes of each row."""
    return (rows[:, [column + BEHIND for column in _TEXTS]] - rows[:, _TEXTS]).sum(axis=1)


@compiled
def _find(words: Any, row: Any, owner: int, mark: Any, table: Any) -> int:
    """Return the entry of the owner, start_ts and key of a row, else -1. `mark` is their hash."""
    entries, slots, arena_words, _counts = table
    size = row[KEY + BEHIND] - row[KEY]
    slot = mark & (len(slots) - 1)
    while slots[slot] != 0:
        index = slots[slot] - 1
        if index >= 0:
            entry = entries[index]
            is_same = entry[_HASH] == mark and entry[_OWNER] == owner and entry[START_TS] == row[START_TS]
            if is_same and entry[KEY + BEHIND] - entry[KEY] == size:  # noqa: SIM102  compiled code has no use for `and`
                if same_bytes(words, row[KEY], arena_words, entry[KEY], size):
                    return int(index)
        slot = (slot + 1) & (len(slots) - 1)
    return -1


@compiled
def _keep(words: Any, row: Any, entry: Any, column: int, own: Any, table: Any) -> None:
    """Copy the bytes of a field to the arena."""
    _entries, _slots, arena_words, counts = table
    entry[column] = counts[_BYTES]
    counts[_BYTES] = copy(words, row[column], row[column + BEHIND], arena_words, counts[_BYTES])
    entry[column + BEHIND] = counts[_BYTES]
    own[_STORED] += entry[column + BEHIND] - entry[column]


@compiled
def _drop(entry: Any, column: int, own: Any) -> None:
    """Forget the bytes of a field."""
    own[_STORED] -= entry[column + BEHIND] - entry[column]
    entry[column] = entry[column + BEHIND] = 0


@compiled
def _insert(words: Any, row: Any, owner: int, mark: Any, own: Any, table: Any) -> int:
    """Return a new entry, without flags, for the owner, start_ts and key of a row."""
    entries, slots, _arena_words, counts = table
    index = counts[_UNUSED]
    if index >= 0:
        counts[_UNUSED] = entries[index, _NEXT]
    else:
        index = counts[_ENTRIES]
        counts[_ENTRIES] += 1
    entry = entries[index]
    entry[:] = 0
    entry[_OWNER], entry[_HASH], entry[START_TS] = owner, mark, row[START_TS]
    _keep(words, row, entry, KEY, own, table)
    slot = mark & (len(slots) - 1)
    while slots[slot] > 0:
        slot = (slot + 1) & (len(slots) - 1)
    if slots[slot] == 0:
        counts[_SLOTS] += 1
    slots[slot] = index + 1
    return int(index)


@compiled
def _take_prewrite(index: int, own: Any, table: Any) -> None:
    """Forget the PREWRITE of an entry, and the entry if it has nothing else."""
    entries, slots, _arena_words, counts = table
    entry = entries[index]
    if entry[_FLAGS] & _HAS_PREWRITE:
        entry[_FLAGS] &= ~_HAS_PREWRITE
        _drop(entry, VALUE, own)
        _drop(entry, OLD_VALUE, own)
    if entry[_FLAGS] == 0:
        _drop(entry, KEY, own)
        slot = entry[_HASH] & (len(slots) - 1)
        while slots[slot] != index + 1:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = -1
        entry[_NEXT] = counts[_UNUSED]
        counts[_UNUSED] = index


@compiled
def _put_aside(index: int, flag: int, row: Any, own: Any, table: Any) -> None:
    """Keep a COMMIT or ROLLBACK until INITIALIZED."""
    entries, _slots, _arena_words, counts = table
    entry = entries[index]
    if flag == _HAS_COMMIT and not entry[_FLAGS] & _HAS_COMMIT:
        entry[COMMIT_TS], entry[OP], entry[TXN_SOURCE] = row[COMMIT_TS], row[OP], row[TXN_SOURCE]
    if not entry[_FLAGS] & _LISTED:
        entry[_NEXT], own[_HEAD] = own[_HEAD], index
        counts[_ASIDE] += 1
    entry[_FLAGS] |= flag | _LISTED


@compiled
def _emit(texts: Any, commit: Any, owner: int, is_stored: int, own: Any, table: Any, output: Any) -> None:
    """Write a row that is complete: the bytes of a row or an entry, the rest of its COMMIT."""
    counts = table[3]
    if commit[COMMIT_TS] <= own[_CHECKPOINT]:
        return
    target = output[counts[_ROWS]]
    counts[_ROWS] += 1
    for column in range(START_TS, OLD_VALUE + BEHIND + 1):
        target[column] = texts[column]
    target[_OWNER], target[TYPE] = owner, is_stored
    target[COMMIT_TS], target[OP], target[TXN_SOURCE] = commit[COMMIT_TS], commit[OP], commit[TXN_SOURCE]
    if commit[OP] == _DELETE:
        target[VALUE + BEHIND] = target[VALUE]


@compiled
def _initialize(owner: int, own: Any, table: Any, output: Any) -> None:
    """Match or forget what was put aside."""
    entries, _slots, _arena_words, counts = table
    own[_STATE] = _LIVE
    index, own[_HEAD] = own[_HEAD], -1
    while index >= 0:
        entry = entries[index]
        following, flags = entry[_NEXT], entry[_FLAGS]
        counts[_ASIDE] -= 1
        entry[_FLAGS] &= _HAS_PREWRITE
        if flags & _HAS_COMMIT and flags & _HAS_PREWRITE:
            _emit(entry, entry, owner, 1, own, table, output)
        if flags & (_HAS_COMMIT | _HAS_ROLLBACK) or flags == _LISTED:
            _take_prewrite(index, own, table)
        index = following


@compiled
def _prewrite(words: Any, row: Any, index: int, own: Any, table: Any) -> None:
    """Store a PREWRITE, unless it has no value or a lower generation than the stored one."""
    entry = table[0][index]
    if entry[_FLAGS] & _HAS_PREWRITE:
        if row[VALUE] == row[VALUE + BEHIND] or row[GENERATION] < entry[GENERATION]:
            return
        _drop(entry, VALUE, own)
        _drop(entry, OLD_VALUE, own)
    else:
        entry[_FLAGS] |= _HAS_PREWRITE
    entry[GENERATION] = row[GENERATION]
    _keep(words, row, entry, VALUE, own, table)
    _keep(words, row, entry, OLD_VALUE, own, table)


@compiled
def _commit(words: Any, row: Any, index: int, mark: Any, owner: int, own: Any, table: Any, output: Any) -> int:
    """Complete the row of a COMMIT or put it aside; return the reason if it is refused."""
    entries, is_live = table[0], own[_STATE] == _LIVE
    if index >= 0:
        entry = entries[index]
        has_prewrite = entry[_FLAGS] & _HAS_PREWRITE != 0
        is_full = entry[VALUE] < entry[VALUE + BEHIND] and entry[GENERATION] == 0
        if has_prewrite and (is_live or is_full):
            _emit(entry, row, owner, 1, own, table, output)
            _take_prewrite(index, own, table)
            return 0
    if is_live:
        return _NOT_MATCHED
    if index < 0:
        index = _insert(words, row, owner, mark, own, table)
    _put_aside(index, _HAS_COMMIT, row, own, table)
    return 0


@compiled
def _change(words: Any, row: Any, owner: int, own: Any, table: Any, output: Any) -> int:
    """Take a row with a key; return the reason if it is refused."""
    kind, has_scan = row[TYPE], own[_STATE] == _SCANNING
    if kind == _COMMIT or kind == _COMMITTED:
        if row[OP] != _PUT and row[OP] != _DELETE:
            return _UNEXPECTED
        if not has_scan and own[_CHECKPOINT] < row[COMMIT_TS] <= own[_RESOLVED]:
            return _NOT_RESOLVED
        if kind == _COMMITTED and own[_HEAD] < 0:
            _emit(row, row, owner, 0, own, table, output)
            return 0
    elif kind != _PREWRITE and kind != _ROLLBACK:
        return _UNEXPECTED
    start = np.uint64(row[START_TS] + (owner << 56))
    mark = np.int64((text_hash(words, row[KEY], row[KEY + BEHIND]) ^ start) * MIX >> np.uint64(20))
    index = _find(words, row, owner, mark, table)
    if kind == _COMMIT:
        return _commit(words, row, index, mark, owner, own, table, output)
    if kind == _COMMITTED:
        if index >= 0 and table[0][index, _FLAGS] & _HAS_COMMIT:
            table[0][index, _FLAGS] &= ~_HAS_COMMIT
            _take_prewrite(index, own, table)
        _emit(row, row, owner, 0, own, table, output)
        return 0
    if kind == _ROLLBACK and not has_scan:
        if index >= 0:
            _take_prewrite(index, own, table)
        return 0
    if index < 0:
        index = _insert(words, row, owner, mark, own, table)
    if kind == _PREWRITE:
        _prewrite(words, row, index, own, table)
    else:
        _put_aside(index, _HAS_ROLLBACK, row, own, table)
    return 0


@compiled
def _match(words: Any, rows: Any, owners: Any, registrations: Any, table: Any, output: Any) -> None:
    """Take the rows of a batch."""
    counts = table[3]
    for index in range(len(rows)):
        row = rows[index]
        owner = owners[row[ITEM]]
        if owner < 0 or row[TYPE] == 0 or registrations[owner, _STATE] == _FAILED:
            continue
        own = registrations[owner]
        if row[TYPE] == _INITIALIZED:
            _initialize(owner, own, table, output)
            continue
        reason = _change(words, row, owner, own, table, output)
        if reason:
            own[_STATE], own[_REASON], own[_ROW] = _FAILED, reason, index
            counts[_FAILURES] += 1


@compiled
def _rebuild(words: Any, stored: Any, kept: Any, registrations: Any, table: Any) -> None:
    """Insert the entries that are kept, whose bytes are in another arena, into an empty table."""
    for number in range(len(kept)):
        row = stored[kept[number]]
        own = registrations[row[_OWNER]]
        for column in (KEY, VALUE, OLD_VALUE):
            own[_STORED] -= row[column + BEHIND] - row[column]
        index = _insert(words, row, row[_OWNER], row[_HASH], own, table)
        entry = table[0][index]
        for column in (COMMIT_TS, OP, TXN_SOURCE, GENERATION, _FLAGS):
            entry[column] = row[column]
        _keep(words, row, entry, VALUE, own, table)
        _keep(words, row, entry, OLD_VALUE, own, table)
        if entry[_FLAGS] & _LISTED:
            entry[_NEXT], own[_HEAD] = own[_HEAD], index
            table[3][_ASIDE] += 1


@compiled
def _gather(data_words: Any, arena_words: Any, rows: Any, column: int, offsets: Any, target_words: Any) -> None:
    """Copy the bytes of a field of each row to its offset."""
    for index in range(len(rows)):
        row = rows[index]
        words = arena_words if row[TYPE] else data_words
        copy(words, row[column], row[column + BEHIND], target_words, offsets[index])
