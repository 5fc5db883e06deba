"""A recording as a cluster for `tikv://`: PD and two stores over gRPC, which play what a real cluster said.

    messages of both streams, by time ─► log of rows, with the recorded errors and splits where they came
    KvScan of the begin               ─► KvScan and KvGet at any timestamp: the begin, and what has been played
    the log's position                ─► TSO of PD, resolved timestamps

The player goes on to a timestamp when it is told to (`play_to`); beside the recorded troubles it moves leaders, refuses
registrations and cuts streams where a seed says.
"""

import asyncio
import lzma
import struct
from base64 import b64decode
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from threading import Thread
from typing import Any

import grpc

from tests.source.tidb import modify_recording
from tests.tikv.playback import History, Mark, Region, World, history_of, stores_of
from tests.tikv.reading import recorded_scans
from tests.tikv.recorded import CLUSTER_ID, DDL, LIVE, TS0, lines
from tests.tikv.scripted import Answer, Scripted
from tidegate.kv.keys import table_span
from tidegate.model.kv_change import KvOp
from tidegate.mysql.encoding import decode_bytes, encode_bytes
from tidegate.schema.job import JOB_TABLE, JobState, decode_job_row
from tidegate.schema.stored.snapshot import REPLICATED
from tidegate.tikv import rpc
from tidegate.tikv.stubs import cdcpb_pb2 as cdcpb
from tidegate.tikv.stubs import errorpb_pb2 as errorpb
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb
from tidegate.tikv.stubs import metapb_pb2 as metapb
from tidegate.tikv.stubs import pdpb_pb2 as pdpb

VERSION = "9.0.0-beta.2"
END = 470735809757052930
"""The last timestamp of tests/data/tikv."""
_BEHIND = 1 << 14
"""How far PD's timestamps are below what has been played, so that each is above the last one."""
_SETTLES_S = 60
_SILENCE = 4000
"""Steps for which resolved timestamps go on, by one each, when nothing is played."""
_QUEUED = 40
"""Messages that may wait in a stream before more are made."""
_WAITS = 40
"""Steps for which a recorded error waits until a registration can get it; ten times as long for a kind that none has
got."""
Frame = tuple[int, str, bool, bytes]
"""Milliseconds, the stream, whether the server sent it, and the message."""
Placed = tuple[int, int, bytes, bytes]
"""A region: its id, version and bounds."""


@dataclass(frozen=True)
class Recording:
    """What was recorded: the keys at the begin, and what came after it."""

    ts0: int
    end: int
    base: dict[bytes, bytes]
    history: History


@cache
def workload(end: int = END, until_ms: int = 1 << 40) -> Recording:
    """Transactions of all kinds, about a hundred DDLs, splits and a merge: tests/data/tikv; or its begin, which was
    received until `until_ms`, up to `end`."""
    base = {pair.key: pair.value for _, found in recorded_scans("meta-ts0") for pair in found.pairs}
    return Recording(TS0, end, base, _history(_lines(until_ms), TS0))


@cache
def modify() -> Recording:
    """71 DDLs under writers: tests/data/tikv_modify."""
    rows = modify_recording.recorded("base")
    base = {row.key: row.value or b"" for row in rows}
    return Recording(rows[0].commit_ts, modify_recording.END, base, _history(_framed(), rows[0].commit_ts))


def _lines(until_ms: int) -> Iterator[Frame]:
    for name in (LIVE, DDL):
        for line in lines(name):
            if line["ms"] > until_ms:
                break
            if line["dir"] in {"send", "recv"}:
                yield line["ms"], name, line["dir"] == "recv", b64decode(line["b64"])


def _framed() -> Iterator[Frame]:
    data, at = lzma.decompress((modify_recording.DATA / "streams.xz").read_bytes()), 0
    while at < len(data):
        ms, stream, is_received, size = struct.unpack_from(">IBBI", data, at)
        at += 10
        yield ms, (LIVE if stream == 1 else DDL), bool(is_received), data[at : at + size]
        at += size


def _history(frames: Iterator[Frame], ts0: int) -> History:
    """The log of both streams, with the regions of the first one."""
    ordered = sorted(frames, key=lambda frame: frame[0])
    sends: list[tuple[int, Placed]] = []
    for index, (_, stream, is_received, message) in enumerate(ordered):
        if stream == LIVE and not is_received:
            request = cdcpb.ChangeDataRequest.FromString(message)
            bounds = request.region_id, request.region_epoch.version, request.start_key, request.end_key
            sends.append((index, bounds))
    known, position = dict[int, Placed](), 0

    def messages() -> Iterator[tuple[str, bytes]]:
        nonlocal position
        requests = dict(sends)
        for position, (_, stream, is_received, message) in enumerate(ordered):
            if position in requests:
                known[requests[position][0]] = requests[position]
            if is_received:
                yield stream, message

    def place(region: int) -> tuple[Placed, ...]:
        """The regions that were registered next where that one was."""
        if region not in known:
            return ()
        _, _, low, end = known[region]
        found: list[Placed] = []
        for index, placed in sends:
            if index > position and placed[2] < end and placed[3] > low:
                found.append(placed)
                reached = low
                for _, _, start, stop in sorted(found, key=lambda each: each[2]):
                    reached = max(reached, stop) if start <= reached else reached
                if reached >= end:
                    break
        return tuple(found)

    history = history_of(messages(), ts0, place)
    first = next(index for index, frame in enumerate(ordered) if frame[2])
    begin = Mark(0, cdcpb.Error(), tuple(placed for index, placed in sends if index < first))
    history.marks.setdefault(0, []).insert(0, begin)
    return history


def kinds(error: Any) -> str:
    """The kind of an error, and how many regions it names."""
    (field, *_) = [field.name for field, _ in error.ListFields()] or ["unknown"]
    named = len(error.epoch_not_match.current_regions) if field == "epoch_not_match" else None
    return field if named is None else f"{field} of {named}"


class Player(World):
    """A world that follows a recording up to `goal`, with its splits, merges and errors."""

    def __init__(self, recording: Recording, seed: int, *, trouble: float) -> None:
        self._recalled, self._waited, self._stops = (0, 0), 0, sorted(recording.history.marks)
        """`_recalled`: a position, and how many of its marks have been."""
        self._still = 0
        """Steps without a row."""
        self.recalled = Counter[tuple[str, bool]]()
        """Recorded errors that were repeated, by their kind and whether a registration got them."""
        super().__init__(recording.history, seed, trouble=trouble, last_ts=recording.end + _BEHIND)
        self.recording, self.goal = recording, 0
        self.base = sorted(recording.base)
        self.hit = Counter[str]()
        self.last_ts = recording.ts0
        self.last_region = 1 << 40

    def fail(self, stream: Any, pair: tuple[int, int], error: Any) -> None:
        self.hit[kinds(error)] += 1
        super().fail(stream, pair, error)

    def advance(self, count: int) -> None:
        """Play rows up to the next mark, which waits for a registration of its region; marks come one by one, as one
        may be of a region that came with the one before."""
        due = self.played.marks.get(self.position, [])
        begun = self._recalled[1] if self._recalled[0] == self.position else 0
        for index, mark in enumerate(due[begun:], begun):
            is_seen = any(pair[1] == mark.region for stream in self.streams for pair in stream.readers)
            self._waited += 1
            longest = _WAITS if self.recalled[kinds(mark.error), True] else 10 * _WAITS
            if mark.region and not is_seen and self._waited <= longest:
                return
            self.recall(mark, seen=is_seen)
            self._recalled, self._waited = (self.position, index + 1), 0
        later = bisect_right(self._stops, self.position)
        stops = self._stops[later : later + 1]
        super().advance(min([count, *(stop - self.position for stop in stops)]))

    def recall(self, mark: Mark, *, seen: bool) -> None:
        """Let happen what happened to a region."""
        region = next((one for one in self.regions if one.id == mark.region), None)
        if region is not None and not mark.regions:
            self.end_readers(region, lambda: mark.error)
        for number, version, start, end in mark.regions:
            self.carve(Region(number, start, end, version, region.leader if region else 1), mark)
        if mark.region:
            self.recalled[kinds(mark.error), seen] += 1

    def carve(self, new: Region, mark: Mark) -> None:
        """Put a region where others are."""
        old = [one for one in self.regions if one.start < new.end and (not one.end or one.end > new.start)]
        if [(one.id, one.start, one.end, one.version) for one in old] == [(new.id, new.start, new.end, new.version)]:
            return
        made, first, last = [new], old[0], old[-1]
        if first.start < new.start:
            made.insert(0, Region(first.id, first.start, new.start, first.version + 1, first.leader))
        if not last.end or last.end > new.end:
            made.append(Region(last.id, new.end, last.end, last.version + 1, last.leader))
        others = {one.id for one in self.regions if one not in old} | {new.id}
        for one in made:
            if one is not new:
                if one.id in others:
                    self.last_region += 1
                    one.id = self.last_region
                others.add(one.id)
        for one in self.regions:
            if one not in old and one.id == new.id:
                self.end_readers(one, lambda: cdcpb.Error(region_not_found=errorpb.RegionNotFound(region_id=new.id)))
                self.last_region += 1
                one.id = self.last_region
        self.change(old, made, merged=len(old) > 1, mark=mark)

    def trouble_now(self) -> None:
        """What a cluster may do at any time."""
        self.random.choice((self.split, self.move, self.refuse, self.cut))()

    def resolved_ts(self) -> int:
        """They go on while nothing happens, as those of a cluster do."""
        return super().resolved_ts() - max(_SILENCE - self._still, 0)

    def step(self) -> None:
        before = self.position
        self._still += 1
        if self.bounds[self.position] < self.goal + 2 * _SILENCE:
            self.advance(self.random.choice((20, 200, 1000)))
            if self.position > before:
                self._still = 0
            if self.position > before and self.random.random() < self.trouble:
                self.trouble_now()
        for stream in self.streams:
            if stream.messages.qsize() < _QUEUED:
                self.flush(stream)

    # --- reads ---

    def timestamp(self, count: int) -> int:
        """The last of some new timestamps; before the play begins they are those of the begin."""
        played = self.bounds[self.position] - _BEHIND if self.position else 0
        self.last_ts = max(self.last_ts + count, played)
        return self.last_ts

    def value_at(self, key: bytes, ts: int) -> bytes | None:
        """What a key held."""
        for row in reversed(self.versions.get(key, ())):
            if row.commit_ts <= ts:
                return row.value if row.op_type == KvOp.PUT else None
        return self.recording.base.get(key)

    def region_error(self, context: Any) -> errorpb.Error | None:
        """Why a read does not find its region, if so."""
        region = next((one for one in self.regions if one.id == context.region_id), None)
        if region is None:
            return errorpb.Error(region_not_found=errorpb.RegionNotFound(region_id=context.region_id))
        if region.version != context.region_epoch.version:
            return errorpb.Error(epoch_not_match=errorpb.EpochNotMatch(current_regions=[region.meta()]))
        if context.peer.store_id != region.leader:
            return errorpb.Error(not_leader=self.not_leader(region))
        return None

    def scan(self, request: Any) -> Any:
        """A page."""
        if error := self.region_error(request.context):
            return kvrpcpb.ScanResponse(region_error=error)
        low, high = (request.start_key, request.end_key)[:: -1 if request.reverse else 1]
        last = self.region_of(encode_bytes(low)).end
        high = min(high, decode_bytes(last)[0]) if last else high
        inside = self.base[bisect_left(self.base, low) : bisect_left(self.base, high)]
        played = bisect_left(self.keys, encode_bytes(low), key=lambda item: item[0])
        for place, key in self.keys[played:]:
            if place >= encode_bytes(high):
                break
            inside.append(key)
        keys = sorted(set(inside), reverse=request.reverse)
        found = ((key, self.value_at(key, request.version)) for key in keys)
        held = ((key, b"" if request.key_only else value) for key, value in found if value is not None)
        chosen = islice(held, request.limit)
        return kvrpcpb.ScanResponse(pairs=[kvrpcpb.KvPair(key=key, value=value) for key, value in chosen])

    def get(self, request: Any) -> Any:
        """A value."""
        if error := self.region_error(request.context):
            return kvrpcpb.GetResponse(region_error=error)
        value = self.value_at(request.key, request.version)
        return kvrpcpb.GetResponse(value=value or b"", not_found=value is None)


class RecordedCluster:
    """PD and the stores of a recording; `pd` is PD's HOST:PORT."""

    def __init__(self, recording: Recording, seed: int = 0, *, trouble: float = 0.1) -> None:
        self.recording = recording
        self.world = Player(recording, seed, trouble=trouble)
        self.pd = ""
        self.addresses: dict[int, str] = {}
        self.held: dict[str, int] = {}
        self.calls = Counter[str]()

    def play_to(self, ts: int) -> None:
        """Let the cluster come to a timestamp; from any thread."""
        self.world.goal = ts

    @contextmanager
    def running(self) -> Iterator["RecordedCluster"]:
        """Serve in a thread."""
        loop = asyncio.new_event_loop()
        thread = Thread(target=loop.run_forever, name="recorded-cluster", daemon=True)
        thread.start()
        ready: asyncio.Event = asyncio.Event()
        task = asyncio.run_coroutine_threadsafe(self._serve(ready), loop)
        try:
            asyncio.run_coroutine_threadsafe(ready.wait(), loop).result(_SETTLES_S)
            yield self
            if task.done():
                task.result()
        finally:
            loop.call_soon_threadsafe(task.cancel)
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0.05), loop).result(_SETTLES_S)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_SETTLES_S)
            loop.close()

    async def _serve(self, ready: asyncio.Event) -> None:
        reads = Scripted(
            {rpc.KV_SCAN.path: self._unary(rpc.KV_SCAN, self.world.scan)}
            | {rpc.KV_GET.path: self._unary(rpc.KV_GET, self.world.get)}
        )
        server = grpc.aio.server(options=rpc.SERVER_OPTIONS)
        server.add_generic_rpc_handlers((Scripted(self._pd()),))
        self.pd = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        async with stores_of(self.world, self.addresses, reads):
            await server.start()
            ready.set()
            try:
                while True:
                    self.world.step()
                    await asyncio.sleep(0.005)
            finally:
                await server.stop(None)

    def _header(self) -> Any:
        return pdpb.ResponseHeader(cluster_id=CLUSTER_ID)

    def _unary(self, method: rpc.Method[Any, Any], answer: Callable[[Any], Any]) -> Answer:
        async def once(raw: bytes, _: Any) -> bytes:
            self.calls[method.path.rpartition("/")[2]] += 1
            return bytes(answer(method.request.FromString(raw)).SerializeToString())

        return once

    def _pd(self) -> dict[str, Answer]:
        answers = (
            (rpc.GET_MEMBERS, self._members),
            (rpc.TSO, self._tso),
            (
                rpc.GET_STORE,
                lambda asked: pdpb.GetStoreResponse(header=self._header(), store=self._store(asked.store_id)),
            ),
            (
                rpc.GET_ALL_STORES,
                lambda _: pdpb.GetAllStoresResponse(
                    header=self._header(), stores=[self._store(number) for number in self.addresses]
                ),
            ),
            (rpc.BATCH_SCAN_REGIONS, self._regions),
            (rpc.SET_GC_BARRIER, self._hold),
            (rpc.DELETE_GC_BARRIER, self._release),
            (rpc.GET_GC_STATE, lambda _: pdpb.GetGCStateResponse(header=self._header(), gc_state=pdpb.GCState())),
        )
        return {method.path: self._unary(method, answer) for method, answer in answers}

    def _members(self, _: Any) -> Any:
        member = pdpb.Member(name="pd", member_id=1, client_urls=[f"http://{self.pd}"], binary_version=f"v{VERSION}")
        return pdpb.GetMembersResponse(header=self._header(), members=[member], leader=member, etcd_leader=member)

    def _tso(self, request: Any) -> Any:
        last = self.world.timestamp(request.count)
        stamp = pdpb.Timestamp(physical=last >> 18, logical=last & ((1 << 18) - 1))
        return pdpb.TsoResponse(header=self._header(), count=request.count, timestamp=stamp)

    def _store(self, number: int) -> Any:
        return metapb.Store(id=number, address=self.addresses[number], version=VERSION)

    def _regions(self, request: Any) -> Any:
        world, (wanted,) = self.world, request.ranges
        layout = world.layouts[-1 if world.random.random() < 0.7 else -2 :][0]
        regions = []
        for one in layout:
            if (not one.end or one.end > wanted.start_key) and (not wanted.end_key or one.start < wanted.end_key):
                peer = metapb.Peer(id=100 * one.id + one.leader, store_id=one.leader)
                regions.append(pdpb.Region(region=one.meta(), leader=peer))
        return pdpb.BatchScanRegionsResponse(header=self._header(), regions=regions)

    def _hold(self, request: Any) -> Any:
        self.held[request.barrier_id] = request.barrier_ts
        return pdpb.SetGCBarrierResponse(header=self._header())

    def _release(self, request: Any) -> Any:
        self.held.pop(request.barrier_id, None)
        return pdpb.DeleteGCBarrierResponse(header=self._header())


def recorded_ddls(recording: Recording) -> list[int]:
    """The kinds of the DDLs that a changefeed follows, in the order in which they were done."""
    low, high = table_span(JOB_TABLE.id)
    rows = sorted(recording.history.truth, key=lambda row: row.commit_ts)
    jobs = [decode_job_row(row.key, row.value) for row in rows if low <= row.key < high and row.value]
    return [
        job.type
        for job in jobs
        if job.state == JobState.DONE and job.type in REPLICATED and job.binlog and job.binlog.schema_version
    ]
