"""The registrations of a client of EventFeedV2, as rules without I/O: what to send, and what the events mean.

    add(span) ─► due ranges ─► PD ─► register ─► a range per region ─► its stream's queue ─► request, at most `window`
                     ▲                                                                       scans per stream
                     └── an error by its cure, a stream that ended ◄── receive(stream, messages) ──► rows, resolved ts

A registration is of one span, region and stream; (request_id, region_id) names it on the stream.  A span has one
request_id, under which TiKV groups its resolved ts.  A pair that was deregistered may still be in TiKV's queue, so the
region's next registration on that stream has another request_id: TiKV can then neither refuse it as a duplicate nor end
it by the answer to the first.  So has an older state of a region, at another range, beside its newest one.  Events of
a pair that is not registered are late and are skipped.

`CURES` tells for each error of an Event what follows: the region again, its range by what PD knows by then, or the end
of the feed.  An Event without rows and error ends its registration as an unknown error does.  Registrations of a range
that end without a resolved ts are repeated with back-off, and end the feed after `ATTEMPTS`.

A row may come again after a new registration: (commit_ts, start_ts, key) says that it is the same row.
Source: ticdc logservice/logpuller, tiflow cdc/kv (shared_client, shared_stream).
"""

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import numpy as np

from tidegate.model.errors import (
    ClusterMismatch,
    ClusterUnavailable,
    PrewriteNotMatch,
    ProtocolError,
    SourceError,
    TidegateError,
    VersionIncompatible,
    redacted,
)
from tidegate.model.tso import MAX_TS, physical_ms
from tidegate.tikv.matcher import ColumnMatcher, Room
from tidegate.tikv.regions import INFINITE, Range, SpanRanges, backoff_s
from tidegate.tikv.stubs import cdcpb_pb2 as cdcpb
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb
from tidegate.tikv.stubs import pdpb_pb2 as pdpb
from tidegate.tikv.versions import TICDC_VERSION
from tidegate.tikv.walk import ROWS, Batch, read

LOG: Final = logging.getLogger(__name__)
WORKERS: Final = 2
"""Streams per store."""
WINDOW: Final = 16
"""Registrations per stream whose initial scan is not complete."""
ATTEMPTS: Final = 60
RECONNECT_S: Final = 1.0
SILENCE_S: Final = 60.0
"""How long a stream may be silent that has initialized regions: TiKV sends their resolved ts every second."""
STALLED_S: Final = 600.0
"""How long a registration may have no event, neither rows nor a resolved ts, before another one takes its place: its
first scan may wait in TiKV for those of other clients."""
_LONGEST_BUSY_S: Final = 600.0
_AHEAD_MS: Final = 60_000
"""How far a resolved ts may be ahead of PD's clock, which is read now and then."""
_CLOSE_MS: Final = 600_000
"""Spans that were once so close to now are scanned first, as TiCDC asks for it."""

_PRIORITY: Final = cdcpb.ChangeDataRequest
StreamKey: TypeAlias = tuple[int, int]
"""A store and a number below WORKERS."""


class Cure(Enum):
    """The cure of a region's error."""

    REGION = "the region again"
    RANGE = "its range, by what PD knows"
    END = "the end of the feed"


CURES: Final[dict[str | None, tuple[Cure, bool]]] = {
    "not_leader": (Cure.REGION, True),
    "epoch_not_match": (Cure.RANGE, True),
    "region_not_found": (Cure.RANGE, True),
    "congested": (Cure.REGION, False),
    "server_is_busy": (Cure.REGION, False),
    "duplicate_request": (Cure.END, False),
    "compatibility": (Cure.END, False),
    "cluster_id_mismatch": (Cure.END, False),
    None: (Cure.REGION, False),
}
"""By the error: its cure, and whether the first attempt follows at once."""


@dataclass(frozen=True, slots=True)
class SpanRows:
    """Rows of a span in any order: a record batch of kv/change_columns.py."""

    span: int
    rows: Any


@dataclass(frozen=True, slots=True)
class SpanResolved:
    """No row of the span with commit_ts <= ts is still to come."""

    span: int
    ts: int


Output: TypeAlias = SpanRows | SpanResolved


@dataclass(slots=True, eq=False)
class Span:
    """A range of keys that is read from a checkpoint on."""

    number: int
    ranges: SpanRanges
    request_ids: list[int]
    filter_loop: bool
    sent_ts: int
    was_close: bool = False


@dataclass(slots=True, eq=False)
class Registration:
    """A region's part of a span, read on a stream."""

    span: Span
    region: pdpb.Region
    stream: "Stream"
    request_id: int = 0
    part: Range = field(init=False)
    number: int = -1
    live: bool = False
    last_event_s: float = 0.0

    @property
    def pair(self) -> tuple[int, int]:
        return self.request_id, self.region.region.id


@dataclass(slots=True, eq=False)
class Stream:
    """A stream to a store: its registrations, those that wait for the scans of others, and the requests to send."""

    key: StreamKey
    matcher: ColumnMatcher = field(default_factory=ColumnMatcher)
    registrations: dict[tuple[int, int], Registration] = field(default_factory=dict)
    numbers: dict[int, Registration] = field(default_factory=dict)
    scanning: list[Registration] = field(default_factory=list)
    waiting: deque[Registration] = field(default_factory=deque)
    deregistered: set[tuple[int, int]] = field(default_factory=set)
    requests: deque[cdcpb.ChangeDataRequest] = field(default_factory=deque)
    last_event_s: float = 0.0


class Registrations:
    """All spans of a feed. Times are seconds of any clock that does not fall."""

    def __init__(self, cluster_id: int, random: Random, *, window: int = WINDOW, spill: Path | None = None) -> None:
        self.cluster_id = cluster_id
        self._room = Room(spill)
        self.spans: dict[int, Span] = {}
        self.streams: dict[StreamKey, Stream] = {}
        self.clock = (0, 0.0)
        """PD's clock in ms, and when it was read; 0 before that."""
        self._random, self._window = random, window
        self._last_request_id = 0
        self.has_room = True
        """False while first scans are not to begin."""
        self.is_read = True
        """False while nothing is read from streams."""
        self.scans = 0
        """How many first scans are complete."""
        self._due: list[tuple[float, int, Span, bytes, bytes, pdpb.Region | None]] = []
        self._order = 0
        self._advanced: set[Span] = set()

    def add(self, number: int, start: bytes, end: bytes, checkpoint_ts: int, *, filter_loop: bool = False) -> None:
        """Read [start, end) of region keys from `checkpoint_ts` on, as span `number`."""
        assert number not in self.spans, number
        ranges = SpanRanges(start, end, checkpoint_ts)
        span = self.spans[number] = Span(number, ranges, [self._request_id()], filter_loop, checkpoint_ts)
        self._later(0.0, span, ranges.start, ranges.end)

    def remove(self, number: int) -> None:
        """Read a span no longer."""
        span = self.spans.pop(number)
        for stream in self.streams.values():
            for registration in [*stream.registrations.values(), *stream.waiting]:
                if registration.span is span:
                    self._forget(registration)
            for request_id in span.request_ids:
                self._deregister(stream, (request_id, 0))
            self._fill(stream)

    def due(self, now: float) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield the ranges, by their span, whose regions PD has to be asked for; regions to try again are placed."""
        while self._due and self._due[0][0] <= now:
            _when, _order, span, start, end, region = heappop(self._due)
            if span.number not in self.spans:
                continue
            if region is None:
                yield span.number, start, b"" if end == INFINITE else end
            else:
                self.register(span.number, [region], now)

    def register(self, number: int, regions: Sequence[pdpb.Region], now: float) -> None:
        """Register a span at regions that PD knows."""
        span = self.spans.get(number)
        if span is None:
            return
        for region in regions:
            own = region.region
            if own.start_key >= span.ranges.end or (own.end_key and own.end_key <= span.ranges.start):
                continue
            key = (region.leader.store_id, own.id % WORKERS)
            stream = self.streams.get(key) or Stream(key, ColumnMatcher(self._room), last_event_s=now)
            self.streams[key] = stream
            registration = Registration(span, region, stream)
            grant = span.ranges.take(own.start_key, own.end_key, own.region_epoch.version, registration)
            for displaced in grant.displaced:
                self._deregister(displaced.stream, displaced.pair)
                self._forget(displaced)
                self._fill(displaced.stream)
            for part in grant.free:
                wait_s = 0.0 if grant.range else self._backoff(part, "PD knows an older state of its region")
                self._later(now + wait_s, span, part.start, part.end)
            if grant.range:
                registration.part = grant.range
                stream.waiting.append(registration)
            self._fill(stream)

    def receive(self, key: StreamKey, messages: Sequence[bytes], now: float) -> list[Output]:
        """Return what messages of a stream complete. Raises what ends the feed."""
        stream, batch = self.streams[key], read(messages)
        stream.last_event_s = now
        outputs: list[Output] = []
        owners = np.full(len(batch.items), -1, np.int64)
        first = 0
        for index, (kind, region_id, request_id, *_) in enumerate(batch.items.tolist()):
            if kind == ROWS:
                if registration := stream.registrations.get((request_id, region_id)):
                    owners[index], registration.last_event_s = registration.number, now
                continue
            outputs += self._match(stream, batch, owners, (first, index), now)
            first = index + 1
            self._apply(stream, batch.parsed[index], now)
        outputs += self._match(stream, batch, owners, (first, len(batch.items)), now)
        self._fill(stream)
        for span in self._advanced:
            if span.ranges.resolved_ts > span.sent_ts:
                span.sent_ts = span.ranges.resolved_ts
                outputs.append(SpanResolved(span.number, span.sent_ts))
        self._advanced.clear()
        return outputs

    def silent(self, now: float) -> list[StreamKey]:
        """Return the streams that are to be ended: without registrations, or half open. None of them is silent while
        nothing is read."""
        for stream in self.streams.values():
            stream.last_event_s = stream.last_event_s if self.is_read else now

        def most_s(stream: Stream) -> float:
            scans = bool(stream.scanning) and len(stream.scanning) == len(stream.registrations)
            return STALLED_S if scans else SILENCE_S

        used = [(key, stream) for key, stream in self.streams.items() if stream.registrations or not stream.waiting]
        return [key for key, stream in used if now - stream.last_event_s > most_s(stream)]

    def renew(self, now: float) -> None:
        """Begin the registrations anew that have had no event for STALLED_S, while others of their stream have."""
        for stream in self.streams.values():
            for registration in list(stream.registrations.values()):
                since_s = registration.last_event_s or now
                registration.last_event_s = since_s if self.has_room else now
                if now - registration.last_event_s > STALLED_S:
                    reason = f"no event came for {STALLED_S:g} s"
                    who = registration.region.region.id, stream.key[0], registration.part.attempts + 1
                    LOG.warning("region %s at store %s is registered anew, try %s: %s", *who, reason)
                    self._deregister(stream, registration.pair)
                    self._again(registration, Cure.RANGE, now, reason)
            self._fill(stream)

    def ended(self, key: StreamKey, reason: str, now: float) -> None:
        """Take the end of a stream: the ranges that it read are placed by what PD knows a little later."""
        stream = self.streams.pop(key)
        for registration in [*stream.registrations.values(), *stream.waiting]:
            self._again(registration, Cure.RANGE, now + RECONNECT_S, reason)

    def _match(self, stream: Stream, batch: Batch, owners: Any, run: tuple[int, int], now: float) -> list[Output]:
        """Match the rows of a run of items, which have rows only."""
        first, stop = run
        if first == stop:
            return []
        begin, end = batch.items[first, 3], batch.items[stop - 1, 4]
        matched = stream.matcher.apply(Batch(batch.data, batch.items, batch.rows[begin:end], {}), owners)
        outputs: list[Output] = []
        for rows, numbers in matched.batches:
            by_span: dict[int, list[int]] = {}
            for number in np.unique(numbers).tolist():
                by_span.setdefault(stream.numbers[number].span.number, []).append(number)
            for span, own in by_span.items():
                part = rows if len(by_span) == 1 else rows.take(np.flatnonzero(np.isin(numbers, own)))
                outputs.append(SpanRows(span, part))
        for number, error in matched.failures:
            if not isinstance(error, PrewriteNotMatch):
                raise error
            registration = stream.numbers[number]
            self._deregister(stream, registration.pair)
            self._again(registration, Cure.REGION, now, str(error))
        for registration in list(stream.scanning):
            if stream.matcher.is_initialized(registration.number):
                registration.live = True
                self.scans += 1
                stream.scanning.remove(registration)
        return outputs

    def _apply(self, stream: Stream, item: Any, now: float) -> None:
        """Take an item without rows: a ResolvedTs or an Event."""
        if isinstance(item, cdcpb.ResolvedTs):
            self._resolve(stream, item.request_id, item.regions, item.ts, now)
            return
        kind = item.WhichOneof("event")
        registration = stream.registrations.get((item.request_id, item.region_id))
        if kind == "resolved_ts":
            self._resolve(stream, item.request_id, [item.region_id], item.resolved_ts, now)
        elif registration and kind != "long_txn":
            error = next((field.name for field, _ in item.error.ListFields()), None)
            self._fail(registration, error, item, now)

    def _resolve(self, stream: Stream, request_id: int, regions: Sequence[int], ts: int, now: float) -> None:
        clock_ms, read_s = self.clock
        if ts > MAX_TS:
            raise ProtocolError(f"store {stream.key[0]} sends the resolved ts {ts}, which is no timestamp")
        if clock_ms and physical_ms(ts) > clock_ms + 1000 * (now - read_s) + _AHEAD_MS:  # or this machine has slept
            raise SourceError(
                f"store {stream.key[0]} sends the resolved ts {ts}, which PD has not given yet; check whether the "
                "store is of this cluster, and PD's clock"
            )
        for region_id in regions:
            registration = stream.registrations.get((request_id, region_id))
            if registration and registration.live:
                registration.part.attempts, registration.last_event_s = 0, now
                if ts > registration.part.ts:
                    registration.span.ranges.advance(registration.part, ts)
                    self._advanced.add(registration.span)
                    stream.matcher.resolve(registration.number, ts)

    def _fail(self, registration: Registration, error: str | None, item: Any, now: float) -> None:
        """Cure an error of a region."""
        cure, at_once = CURES.get(error, CURES[None])
        if cure is Cure.END:
            raise _end(registration, error or "", item.error)
        if error is None:
            self._deregister(registration.stream, registration.pair)
        if error == "not_leader":
            leader = item.error.not_leader.leader
            if leader.store_id:
                registration.region = pdpb.Region(region=registration.region.region, leader=leader)
            else:
                cure = Cure.RANGE
        busy_s = min(item.error.server_is_busy.backoff_ms / 1000, _LONGEST_BUSY_S)
        self._again(registration, cure, now + busy_s, " ".join(str(item.error).split()) or "no error", at_once=at_once)

    def _again(self, part: Registration, cure: Cure, when: float, reason: str, *, at_once: bool = False) -> None:
        """End a registration, and begin another one of its range later."""
        self._forget(part)
        span, own = part.span, part.part
        span.ranges.release(own, reason)
        wait_s = self._backoff(own, reason, at_once=at_once)
        self._later(when + wait_s, span, own.start, own.end, part.region if cure is Cure.REGION else None)

    def _backoff(self, part: Range, reason: str, *, at_once: bool = False) -> float:
        if part.attempts > ATTEMPTS:
            keys = redacted(f"[{part.start.hex()}, {part.end.hex()})")
            raise ClusterUnavailable(
                f"the range {keys} of region keys was registered {part.attempts} times "
                f"without a resolved ts; last: {reason}; check the store and PD"
            )
        return 0.0 if at_once and part.attempts <= 1 else backoff_s(part.attempts, self._random)

    def _forget(self, registration: Registration) -> None:
        stream = registration.stream
        if stream.registrations.get(registration.pair) is registration:
            del stream.registrations[registration.pair], stream.numbers[registration.number]
            stream.matcher.end(registration.number)
            if registration in stream.scanning:
                stream.scanning.remove(registration)
        else:
            stream.waiting.remove(registration)

    def fill(self) -> None:
        """Register what waits on all streams, once there is room again."""
        for stream in self.streams.values():
            self._fill(stream)

    def _fill(self, stream: Stream) -> None:
        """Register what waits, up to the window."""
        while self.has_room and stream.waiting and len(stream.scanning) < self._window:
            registration = stream.waiting.popleft()
            span, own, part = registration.span, registration.region.region, registration.part
            pairs = ((number, own.id) for number in span.request_ids)
            fresh = (pair[0] for pair in pairs if pair not in stream.deregistered and pair not in stream.registrations)
            registration.request_id = next(fresh, 0) or self._request_id()
            if registration.request_id not in span.request_ids:
                span.request_ids.append(registration.request_id)
            registration.number = stream.matcher.begin(part.ts)
            stream.registrations[registration.pair] = stream.numbers[registration.number] = registration
            stream.scanning.append(registration)
            assert part.start < part.end, "TiKV panics"
            request = self._request(registration.pair)
            request.region_epoch.CopyFrom(own.region_epoch)
            request.checkpoint_ts, request.extra_op = part.ts, kvrpcpb.ReadOldValue
            request.start_key, request.end_key = part.start, b"" if part.end == INFINITE else part.end
            request.filter_loop = span.filter_loop
            span.was_close |= self.clock[0] - physical_ms(part.ts) <= _CLOSE_MS
            request.scan_priority = _PRIORITY.HIGH if span.was_close else _PRIORITY.LOW
            stream.requests.append(request)

    def _deregister(self, stream: Stream, pair: tuple[int, int]) -> None:
        if pair in stream.registrations or not pair[1]:
            request = self._request(pair)
            request.deregister.SetInParent()
            stream.requests.append(request)
            stream.deregistered.add(pair)

    def _request(self, pair: tuple[int, int]) -> cdcpb.ChangeDataRequest:
        header = cdcpb.Header(cluster_id=self.cluster_id, ticdc_version=TICDC_VERSION)
        return cdcpb.ChangeDataRequest(header=header, request_id=pair[0], region_id=pair[1])

    def _request_id(self) -> int:
        self._last_request_id += 1
        return self._last_request_id

    def _later(self, when: float, span: Span, start: bytes, end: bytes, region: pdpb.Region | None = None) -> None:
        self._order += 1
        heappush(self._due, (when, self._order, span, start, end, region))


def reason_of(part: Range, alive: object = None) -> str:
    """Return what holds a range whose ts does not move; `alive` is a transaction that has a lock there."""
    holder, before = part.holder, f" after {part.attempts} tries, last: {part.reason}" if part.attempts else ""
    if holder is None:
        return f"no region is registered{before}"
    if holder.live:
        doing = str(alive or "no resolved ts comes")
    else:
        doing = f"{'its scan has not ended' if holder.number >= 0 else 'waits for the scans of others'}{before}"
    return f"region {holder.region.region.id} at store {holder.stream.key[0]}: {doing}"


def _end(registration: Registration, error: str, what: cdcpb.Error) -> TidegateError:
    """Return the error that ends a feed."""
    who = f"store {registration.stream.key[0]}, region {registration.region.region.id}"
    if error == "cluster_id_mismatch":
        mismatch = what.cluster_id_mismatch
        return ClusterMismatch(f"{who}: the cluster id is {mismatch.current}, the feed is of {mismatch.request}")
    if error == "compatibility":
        return VersionIncompatible(f"{who}: TiKV requires version {what.compatibility.required_version} of its client")
    return ProtocolError(f"{who}: request {registration.request_id} is refused as registered already; report it")
