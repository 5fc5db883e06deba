"""What a client of EventFeedV2 sends, and what it does with each event and error: transcripts without I/O."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.tikv.recorded import received
from tidegate.kv.change_columns import changes_of
from tidegate.model.errors import (
    ClusterMismatch,
    ClusterUnavailable,
    DecodeError,
    ProtocolError,
    ResolvedTsBroken,
    SourceError,
    TidegateError,
    VersionIncompatible,
)
from tidegate.model.tso import compose, physical_ms
from tidegate.tikv.registrations import ATTEMPTS, SILENCE_S, STALLED_S, WORKERS, Registrations, SpanResolved, SpanRows
from tidegate.tikv.stubs import cdcpb_pb2 as cdcpb
from tidegate.tikv.stubs import errorpb_pb2 as errorpb
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb
from tidegate.tikv.stubs import metapb_pb2 as metapb
from tidegate.tikv.stubs import pdpb_pb2 as pdpb

SPAN, CHECKPOINT = 1, 100
Row, Error, Event = cdcpb.Event.Row, cdcpb.Error, cdcpb.Event
INITIALIZED = Row(type=cdcpb.Event.INITIALIZED)


def region(number: int = 2, start: bytes = b"", end: bytes = b"", *, version: int = 3, store: int = 1) -> pdpb.Region:
    """A region as PD tells it."""
    epoch = metapb.RegionEpoch(conf_ver=1, version=version)
    own = metapb.Region(id=number, start_key=start, end_key=end, region_epoch=epoch)
    return pdpb.Region(region=own, leader=metapb.Peer(id=9, store_id=store))


class Client:
    """Registrations of the span [b, y), and what they send."""

    def __init__(self, *regions: pdpb.Region, window: int = 16) -> None:
        self.machine = Registrations(77, Random(0), window=window)
        self.machine.add(SPAN, b"b", b"y", CHECKPOINT)
        assert list(self.machine.due(0.0)) == [(SPAN, b"b", b"y")]
        self.now = 0.0
        self.machine.register(SPAN, regions or [region()], 0.0)

    def sent(self) -> list[Any]:
        """The requests since the last call, by stream."""
        found = []
        for stream in self.machine.streams.values():
            found += stream.requests
            stream.requests.clear()
        return found

    def get(self, *events: Any, key: tuple[int, int] = (1, 0), resolved: Any = None) -> list[Any]:
        """Receive a message."""
        message = cdcpb.ChangeDataEvent(events=events, resolved_ts=resolved)
        return self.machine.receive(key, [message.SerializeToString()], self.now)

    def rows(self, *rows: Any, number: int = 2, request: int = 1) -> list[Any]:
        entries = Event.Entries(entries=rows)
        return self.get(Event(region_id=number, request_id=request, entries=entries), key=(1, number % WORKERS))

    def error(self, error: Any, number: int = 2, request: int = 1) -> list[Any]:
        return self.get(Event(region_id=number, request_id=request, error=error), key=(1, number % WORKERS))

    def resolve(self, ts: int, *numbers: int, request: int = 1) -> list[Any]:
        resolved = cdcpb.ResolvedTs(regions=numbers or [2], ts=ts, request_id=request)
        return self.get(key=(1, (numbers or [2])[0] % WORKERS), resolved=resolved)

    def due(self, after: float) -> list[tuple[int, bytes, bytes]]:
        """What PD is to be asked for after some seconds."""
        self.now += after
        return list(self.machine.due(self.now))


def committed(ts: int, key: bytes = b"k") -> Any:
    return Row(type=cdcpb.Event.COMMITTED, op_type=Row.PUT, start_ts=ts - 1, commit_ts=ts, key=key, value=b"v")


def test_request() -> None:
    """A registration: version 8.5.4, the cluster, the epoch, what region and span have in common, old values."""
    client = Client(region(2, b"", b"m"), region(3, b"m", b""))
    first, second = client.sent()

    assert (first.header.cluster_id, first.header.ticdc_version) == (77, "8.5.4")
    assert (first.region_id, first.region_epoch.version, first.request_id) == (2, 3, 1)
    assert (first.start_key, first.end_key, first.checkpoint_ts) == (b"b", b"m", CHECKPOINT)
    assert (second.start_key, second.end_key, second.request_id) == (b"m", b"y", 1)
    assert first.extra_op == kvrpcpb.ReadOldValue
    assert first.WhichOneof("request") is None
    assert (first.kv_api, first.filter_loop, first.scan_priority) == (0, False, first.HIGH)


def test_scan_priority() -> None:
    """A span is scanned last while it is far behind, and first from when it has come close, however far it falls."""
    machine, now = Registrations(77, Random(0)), compose(86_400_000)
    sent = []
    for ahead_ms, ts in ((0, 1), (0, now), (9_000_000, now)):
        machine.clock = physical_ms(now) + ahead_ms, 0.0
        if ts == 1:
            machine.add(SPAN, b"b", b"y", ts)
        else:
            part = machine.spans[SPAN].ranges.ranges[0]
            machine.spans[SPAN].ranges.advance(part, now)
            machine.ended((1, 0), "gone", 0.0)
        list(machine.due(9.0))
        machine.register(SPAN, [region()], 0.0)
        sent.append(machine.streams[1, 0].requests.pop().scan_priority)
    request = cdcpb.ChangeDataRequest
    assert sent == [request.LOW, request.HIGH, request.HIGH]


def test_inverted_span() -> None:
    """A range whose start is not below its end stops a TiKV: it is never sent."""
    machine = Registrations(77, Random(0))
    for start, end in [(b"b", b"b"), (b"c", b"b")]:
        with pytest.raises(AssertionError):
            machine.add(1, start, end, 5)


def test_resolved() -> None:
    """Resolved ts count behind INITIALIZED, for the regions that are listed; the least one is that of the span; 0 and a
    fall are ignored, and so are regions and requests that are not registered."""
    client = Client(region(2, b"", b"m"), region(4, b"m", b""))
    assert client.resolve(120, 2, 4) == []
    assert client.rows(committed(110), INITIALIZED)[0].span == SPAN
    assert client.resolve(130, 2, 4) == []
    assert client.rows(INITIALIZED, number=4) == []
    assert client.resolve(CHECKPOINT - 1, 2, 4) == []
    assert client.resolve(125, 2, 4) == [SpanResolved(SPAN, 125)]
    assert client.resolve(0, 2, 4) == client.resolve(110, 2, 4) == client.resolve(125, 2, 4, 99) == []
    assert client.resolve(150, 2, 4, request=9) == []
    assert client.resolve(150, 4) == [SpanResolved(SPAN, 130)]
    assert client.get(Event(region_id=2, request_id=1, resolved_ts=140)) == [SpanResolved(SPAN, 140)]


def test_rows_before_resolved() -> None:
    """Of one message, rows come first; rows at or below the checkpoint do not come."""
    client = Client()
    client.rows(INITIALIZED)
    entries = Event.Entries(entries=[committed(100, b"old"), committed(105)])
    event = Event(region_id=2, request_id=1, entries=entries)
    outputs = client.get(event, resolved=cdcpb.ResolvedTs(regions=[2], ts=110, request_id=1))

    assert [type(output) for output in outputs] == [SpanRows, SpanResolved]
    assert [row.key for row in changes_of(outputs[0].rows)] == [b"k"]


def leader(store: int) -> Any:
    return Error(not_leader=errorpb.NotLeader(region_id=2, leader=metapb.Peer(id=8, store_id=store)))


CURED: dict[str, tuple[Any, float, str]] = {
    "not_leader": (leader(5), 0.0, "region at store 5"),
    "not_leader, none": (Error(not_leader=errorpb.NotLeader(region_id=2)), 0.0, "range"),
    "epoch_not_match, split": (
        Error(epoch_not_match=errorpb.EpochNotMatch(current_regions=[region().region])),
        0.0,
        "range",
    ),
    "epoch_not_match, merge": (Error(epoch_not_match=errorpb.EpochNotMatch()), 0.0, "range"),
    "region_not_found": (Error(region_not_found=errorpb.RegionNotFound(region_id=2)), 0.0, "range"),
    "congested": (Error(congested=cdcpb.Congested(region_id=2)), 0.05, "region at store 1"),
    "server_is_busy": (Error(server_is_busy=errorpb.ServerIsBusy(backoff_ms=3000)), 3.05, "region at store 1"),
    "server_is_busy for a day": (
        Error(server_is_busy=errorpb.ServerIsBusy(backoff_ms=86_400_000)),
        600.05,
        "region at store 1",
    ),
    "none": (Error(), 0.05, "region at store 1"),
}


@pytest.mark.parametrize("name", CURED)
def test_error(name: str) -> None:
    """After an error the registration is over; its region, or its range by what PD knows, begins at the ts reached."""
    error, wait, cure = CURED[name]
    client = Client()
    client.rows(INITIALIZED)
    client.resolve(130)
    client.sent()
    assert client.error(error) == []
    assert client.rows(committed(140)) == client.resolve(150) == []

    if wait:
        assert client.due(wait / 2 - 0.001) == []
        client.sent()
    due = client.due(wait)
    requests = [request for request in client.sent() if request.WhichOneof("request") is None]
    if cure == "range":
        assert due == [(SPAN, b"b", b"y")]
        client.machine.register(SPAN, [region(version=4)], client.now)
        (request,) = client.sent()
        assert request.region_epoch.version == 4
    else:
        assert due == []
        (request,) = requests
        stream = next(key for key, stream in client.machine.streams.items() if stream.registrations)
        assert f"region at store {stream[0]}" == cure
    assert (request.checkpoint_ts, request.start_key, request.end_key) == (130, b"b", b"y")


ENDS: dict[str, tuple[Any, type[TidegateError], str]] = {
    "duplicate_request": (
        Error(duplicate_request=cdcpb.DuplicateRequest(region_id=2)),
        ProtocolError,
        "store 1, region 2: request 1 is refused as registered already",
    ),
    "compatibility": (
        Error(compatibility=cdcpb.Compatibility(required_version="6.2.0")),
        VersionIncompatible,
        "TiKV requires version 6.2.0",
    ),
    "cluster_id_mismatch": (
        Error(cluster_id_mismatch=cdcpb.ClusterIDMismatch(current=5, request=77)),
        ClusterMismatch,
        "the cluster id is 5, the feed is of 77",
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_error_that_ends_the_feed(name: str) -> None:
    """Errors that the client has made end the feed by name."""
    error, kind, text = ENDS[name]
    with pytest.raises(kind, match=text):
        Client().error(error)


@pytest.mark.parametrize("name", ["bytes", "resolved ts", "future", "row", "op", "type"])
def test_hostile(name: str) -> None:
    """Bytes that are no message, timestamps that are none or beyond PD's clock, a row that breaks a resolved ts, a row
    without operation, a row of no known type."""
    client = Client()
    client.machine.clock = 1, 0.0
    client.rows(INITIALIZED)
    client.resolve(130)
    tries: dict[str, tuple[type[TidegateError], Callable[[], Any]]] = {
        "bytes": (DecodeError, lambda: client.machine.receive((1, 0), [b"\x0a\xff"], 0.0)),
        "resolved ts": (ProtocolError, lambda: client.resolve((1 << 64) - 1)),
        "future": (SourceError, lambda: client.resolve(compose(70_000))),
        "row": (ResolvedTsBroken, lambda: client.rows(committed(130))),
        "op": (ProtocolError, lambda: client.rows(Row(type=cdcpb.Event.COMMITTED, commit_ts=140, key=b"k"))),
        "type": (ProtocolError, lambda: client.rows(Row(type=9, op_type=Row.PUT, commit_ts=140, key=b"k"))),
    }
    error, act = tries[name]
    with pytest.raises(error):
        act()


def test_event_without_content() -> None:
    """An event without rows and error ends its registration as an unknown error does; TiKV may still have it, so the
    client deregisters it, and its next request has another id, under which it is no duplicate."""
    client = Client()
    client.rows(INITIALIZED)
    client.sent()
    client.get(Event(region_id=2, request_id=1))
    client.due(1.0)
    first, second = client.sent()

    assert (first.WhichOneof("request"), first.request_id, first.region_id) == ("deregister", 1, 2)
    assert (second.WhichOneof("request"), second.request_id, second.region_id) == (None, 2, 2)
    assert client.error(Error(region_not_found=errorpb.RegionNotFound(region_id=2))) == []
    client.rows(INITIALIZED, request=2)
    assert client.resolve(150, request=2) == [SpanResolved(SPAN, 150)]


def test_commit_without_prewrite() -> None:
    """A COMMIT whose PREWRITE did not come has the region scanned anew: nothing is lost, and the feed goes on."""
    client = Client()
    client.rows(INITIALIZED)
    client.sent()
    lonely = Row(type=cdcpb.Event.COMMIT, op_type=Row.PUT, start_ts=150, commit_ts=160, key=b"k")
    assert client.rows(lonely) == client.rows(committed(170)) == []
    assert client.due(1.0) == []
    first, second = client.sent()
    assert (first.WhichOneof("request"), second.request_id, second.checkpoint_ts) == ("deregister", 2, CHECKPOINT)
    (rows,) = client.rows(committed(160), committed(170), INITIALIZED, request=2)
    assert rows.rows.num_rows == 2


def test_window() -> None:
    """At most so many scans at once on a stream; the next begins with INITIALIZED, or with an error."""
    regions = [region(2 * number, b"%c" % (97 + number), b"%c" % (98 + number)) for number in range(1, 6)]
    client = Client(*regions, window=2)
    assert [request.region_id for request in client.sent()] == [2, 4]
    client.rows(INITIALIZED, number=4)
    assert [request.region_id for request in client.sent()] == [6]
    client.error(Error(region_not_found=errorpb.RegionNotFound(region_id=2)))
    assert [request.region_id for request in client.sent()] == [8]


def test_room() -> None:
    """No scan begins while there is no room for its rows; those that run and live regions go on."""
    client = Client(region(2, b"", b"f"), region(4, b"f", b"m"), region(6, b"m", b""), window=2)
    client.sent()
    client.machine.has_room = False
    assert client.rows(committed(110), INITIALIZED)[0].rows.num_rows == 1
    client.machine.fill()
    assert client.sent() == []
    client.machine.has_room = True
    client.machine.fill()
    assert [request.region_id for request in client.sent()] == [6]


def test_merge() -> None:
    """Of a merged region whose halves are registered one waits: both are given up and registered as one, from the least
    ts; what TiKV still sends of them is late."""
    client = Client(region(2, b"", b"m"), region(4, b"m", b""))
    for number in (2, 4):
        client.rows(INITIALIZED, number=number)
    client.resolve(140, 2)
    client.resolve(150, 4)
    client.error(Error(epoch_not_match=errorpb.EpochNotMatch()), 2)
    client.sent()
    assert client.due(0.0) == [(SPAN, b"b", b"m")]
    client.machine.register(SPAN, [region(4, b"", b"", version=4)], client.now)
    first, second = client.sent()

    assert (first.WhichOneof("request"), first.region_id, first.request_id) == ("deregister", 4, 1)
    assert (second.region_id, second.request_id, second.checkpoint_ts) == (4, 2, 140)
    assert (second.start_key, second.end_key) == (b"b", b"y")
    assert client.rows(committed(160), number=4) == client.resolve(170, 4) == []


def test_late_knowledge() -> None:
    """A region that PD knows in an older state takes nothing from a newer one; PD is asked again for the rest."""
    client = Client(region(2, b"", b"m", version=5))
    client.machine.register(SPAN, [region(2, b"", b"", version=4)], 0.0)
    assert len(client.sent()) == 1
    assert client.due(2.0) == [(SPAN, b"m", b"y")]


def test_an_older_state_elsewhere() -> None:
    """A region that has moved beyond the range of an older state, by a merge and a split: that state, which PD or a
    registration that waits still knows, is asked for under another id, and its error ends it alone."""
    client = Client(region(2, b"m", b"", version=8), region(2, b"", b"m", version=5))
    newest, older = client.sent()
    assert (newest.request_id, newest.start_key, newest.end_key) == (1, b"m", b"y")
    assert (older.request_id, older.start_key, older.end_key) == (2, b"b", b"m")

    client.rows(INITIALIZED)
    client.error(Error(epoch_not_match=errorpb.EpochNotMatch()), request=2)
    assert client.due(0.0) == [(SPAN, b"b", b"m")]
    client.machine.register(SPAN, [region(4, b"", b"m", version=8)], client.now)
    client.rows(INITIALIZED, number=4)
    client.resolve(150, 4)
    assert client.resolve(150, 2) == [SpanResolved(SPAN, 150)]


def test_stream_ends() -> None:
    """With a stream all its registrations end, also those that wait; their ranges are placed a second later."""
    client = Client(region(2, b"", b"f"), region(4, b"f", b"m"), region(6, b"m", b""), window=1)
    client.rows(INITIALIZED)
    client.resolve(130)
    client.machine.ended((1, 0), "gone", 0.0)

    assert client.machine.streams == {}
    assert client.due(0.9) == []
    assert sorted(client.due(0.2)) == [(SPAN, b"b", b"f"), (SPAN, b"f", b"m"), (SPAN, b"m", b"y")]


def test_silent_stream() -> None:
    """A stream that has initialized regions is not silent for long, unless its connection is half open."""
    client = Client()
    assert client.machine.silent(STALLED_S) == []
    assert client.machine.silent(STALLED_S + 1) == [(1, 0)]
    client.rows(INITIALIZED)
    assert client.machine.silent(SILENCE_S - 1) == []
    assert client.machine.silent(SILENCE_S + 1) == [(1, 0)]


def test_a_stream_that_is_not_read_is_not_silent() -> None:
    """What a full backlog leaves unread is no silence, which begins with the next reading."""
    client = Client()
    client.rows(INITIALIZED)
    client.machine.is_read = False
    assert client.machine.silent(SILENCE_S + 1) == []
    client.machine.is_read = True
    assert client.machine.silent(2 * SILENCE_S) == []
    assert client.machine.silent(2 * SILENCE_S + 2) == [(1, 0)]


def test_a_registration_without_events() -> None:
    """A first scan that neither brings rows nor ends makes way for another registration of its range, and so does one
    that is through and whose resolved ts is not sent; each time it counts as a try. While there is no room for rows,
    none are missed."""
    client = Client(region(2, b"", b"m"), region(4, b"m", b""))
    machine, (stuck, moves) = client.machine, client.machine.spans[SPAN].ranges.ranges
    client.sent()
    machine.renew(1.0)
    client.now = STALLED_S
    client.rows(committed(200, b"n"), number=4)
    machine.renew(STALLED_S + 1)
    assert client.sent() == []
    machine.has_room = False
    machine.renew(STALLED_S + 2)
    machine.has_room = True
    machine.renew(STALLED_S + 3)
    assert client.sent() == []
    client.now = 2 * STALLED_S
    client.rows(INITIALIZED, number=4)
    machine.renew(2 * STALLED_S + 3)
    (request,) = client.sent()
    assert (request.region_id, request.WhichOneof("request")) == (2, "deregister")
    assert (stuck.attempts, stuck.reason, moves.attempts) == (1, "no event came for 600 s", 0)
    assert client.due(4) == [(SPAN, b"b", b"m")]
    machine.register(SPAN, [region(2, b"", b"m")], client.now)
    (request,) = client.sent()
    assert (request.region_id, request.request_id, request.WhichOneof("request")) == (2, 2, None)
    machine.renew(3 * STALLED_S + 1)
    assert [request.region_id for request in client.sent()] == [4]
    assert moves.attempts == 1


def test_scans_that_never_end() -> None:
    """They end the feed by name, and not by waiting."""
    client = Client()

    def wait() -> None:
        client.machine.renew(client.now + 1)
        client.now += STALLED_S + 2
        client.machine.renew(client.now)

    for _ in range(ATTEMPTS):
        wait()
        assert client.due(5.0) == [(SPAN, b"b", b"y")]
        client.machine.register(SPAN, [region()], client.now)
    with pytest.raises(ClusterUnavailable, match=rf"registered {ATTEMPTS + 1} times .* no event came for 600 s"):
        wait()


def test_idle_stream() -> None:
    """A stream that no region is read on any longer is closed after a while, unless one comes before."""
    client = Client()
    client.machine.remove(SPAN)
    assert client.machine.silent(SILENCE_S - 1) == []
    assert client.machine.silent(SILENCE_S + 1) == [(1, 0)]
    client.machine.add(7, b"b", b"y", CHECKPOINT)
    client.due(0.0)
    client.machine.register(7, [region()], client.now)
    assert client.machine.silent(SILENCE_S + 1) == []


@pytest.mark.parametrize("name", ["server_is_busy", "region_not_found", "none"])
def test_endless_errors(name: str) -> None:
    """A range that never brings a resolved ts ends the feed by name after a bounded time, with the last reason; one
    that does, even the same as before, may fail as often as it likes."""
    error = CURED[name][0]

    def repeat(client: Client, times: int, *, resolved: bool = False) -> None:
        for _ in range(times):
            request = client.machine.spans[SPAN].request_ids[-1]
            client.rows(INITIALIZED, request=request)
            if resolved:
                client.resolve(CHECKPOINT, request=request)
            client.error(error, request=request)
            if client.due(10.0):
                client.machine.register(SPAN, [region()], client.now)

    repeat(Client(), 2 * ATTEMPTS, resolved=True)
    client = Client()
    repeat(client, ATTEMPTS)
    with pytest.raises(ClusterUnavailable, match=f"registered {ATTEMPTS + 1} times without a resolved ts; last:"):
        repeat(client, 1)


def test_remove() -> None:
    """A span that is removed is deregistered, whatever its state, and its late events are nothing."""
    client = Client(region(2, b"", b"m"), region(4, b"m", b""), window=1)
    client.sent()
    client.machine.remove(SPAN)
    (request,) = client.sent()

    assert (request.WhichOneof("request"), request.request_id, request.region_id) == ("deregister", 1, 0)
    assert client.rows(INITIALIZED) == client.resolve(150) == []
    assert client.machine.streams[1, 0].matcher.stored == 0


def test_foreign_region() -> None:
    """A region that has no key of the span, by an answer that came late, takes nothing."""
    client = Client()
    client.sent()
    client.machine.register(SPAN, [region(6, b"", b"b", version=9), region(8, b"y", b"", version=9)], 0.0)
    assert client.sent() == []


def test_two_spans_of_a_region() -> None:
    """Two spans may read one region on one stream: rows and resolved ts of each are its own."""
    client = Client()
    client.machine.add(7, b"y", b"z", 90)
    assert client.due(0.0) == [(7, b"y", b"z")]
    client.machine.register(7, [region()], 0.0)
    assert [(request.request_id, request.checkpoint_ts) for request in client.sent()] == [(1, 100), (2, 90)]
    events = [
        Event(region_id=2, request_id=number, entries=Event.Entries(entries=[committed(110, key), INITIALIZED]))
        for number, key in ((1, b"k"), (2, b"yy"), (3, b"nobody"))
    ]
    outputs = client.get(*events)

    assert [(output.span, [row.key for row in changes_of(output.rows)]) for output in outputs] == [
        (1, [b"k"]),
        (7, [b"yy"]),
    ]
    assert client.resolve(120, request=2) == [SpanResolved(7, 120)]


def test_recorded_errors() -> None:
    """Each error that a real TiKV sent is in the table, or has no kind."""
    seen = set()
    for message in received("errors"):
        for event in cdcpb.ChangeDataEvent.FromString(message).events:
            if event.WhichOneof("event") == "error":
                seen |= {field.name for field, _ in event.error.ListFields()}
    client = Client()
    for name in seen:
        try:
            client.error(Error(**{name: {}}), request=client.machine.spans[SPAN].request_ids[-1])
        except TidegateError:
            assert name in ENDS

    assert seen >= {"duplicate_request", "region_not_found", "epoch_not_match", "cluster_id_mismatch", "compatibility"}
