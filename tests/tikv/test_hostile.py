"""Hostile peers, over gRPC and through the whole client: each ends the feed with an error that names what is wrong, or
is survived without losing a row.

What a hostile PD answers is in test_pd.py, what it does to one rule alone in test_registrations.py and test_matcher.py.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest

from tests.tikv.test_feed_rim import BEGIN, REGION, Store, committed, error, resolved
from tidegate.kv.change_columns import changes_of
from tidegate.model.errors import (
    ClusterMismatch,
    ClusterUnavailable,
    DecodeError,
    ProtocolError,
    ResolvedTsBroken,
    SourceError,
    TidegateError,
    TsoFellBack,
    VersionIncompatible,
)
from tidegate.model.tso import compose
from tidegate.mysql.encoding import decode_bytes
from tidegate.tikv import feed as feed_module
from tidegate.tikv import regions, registrations
from tidegate.tikv.feed import EventFeed
from tidegate.tikv.registrations import SpanRows
from tidegate.tikv.stubs import cdcpb_pb2 as cdcpb
from tidegate.tikv.stubs import errorpb_pb2 as errorpb

Row, Event = cdcpb.Event.Row, cdcpb.Event
Answer = Callable[[Any], Iterable[Any]]
"""From a request to what is sent for it: messages, or their bytes."""
INITIALIZED = Row(type=Event.INITIALIZED)
END = BEGIN + 9


def rows(request: Any, *rows: Any, region: int = REGION, shift: int = 0) -> Any:
    """Rows for a request, or for another one."""
    entries = Event.Entries(entries=rows)
    return cdcpb.ChangeDataEvent(
        events=[Event(region_id=region, request_id=request.request_id + shift, entries=entries)]
    )


def refused(request: Any, **kind: Any) -> Any:
    message = error(**kind)
    message.events[0].request_id = request.request_id
    return message


def until(request: Any, ts: int) -> Any:
    message = resolved(ts)
    message.resolved_ts.request_id = request.request_id
    return message


def fine(request: Any) -> list[Any]:
    """What a store sends that is not hostile: one row, and the resolved ts behind it."""
    return [rows(request, committed(b"v"), INITIALIZED), until(request, END)]


class Hostile(Store):
    """A store that answers each request; from the time on that `answer` has been given `times` times it is as others
    are."""

    def __init__(self, answer: Answer, times: int = 1 << 30) -> None:
        super().__init__(self._nothing)
        self.answer, self.left = answer, times

    async def _nothing(self, _store: Store) -> AsyncIterator[Any]:
        yield cdcpb.ChangeDataEvent()

    async def _feed(self, requests: Any, _context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            if request.HasField("deregister"):
                continue
            self.left -= 1
            for message in self.answer(request) if self.left >= 0 else fine(request):
                if message is None:
                    return
                yield message


COMMIT = Row(type=Event.COMMIT, op_type=Row.PUT, start_ts=BEGIN + 1, commit_ts=BEGIN + 2, key=b"k")
BUSY = {"server_is_busy": errorpb.ServerIsBusy(reason="full")}
CONGESTED = {"congested": cdcpb.Congested(region_id=REGION)}
UNKNOWN_EVENT = b"\x0a\x08" + Event(region_id=REGION, request_id=1).SerializeToString() + b"\x7a\x02xx"

ENDS: dict[str, tuple[Answer, type[TidegateError], str]] = {
    "another cluster": (
        lambda request: [refused(request, cluster_id_mismatch=cdcpb.ClusterIDMismatch(current=5, request=7))],
        ClusterMismatch,
        "store 1, region 2: the cluster id is 5, the feed is of 7",
    ),
    "a newer protocol": (
        lambda request: [refused(request, compatibility=cdcpb.Compatibility(required_version="99.0.0"))],
        VersionIncompatible,
        "requires version 99.0.0",
    ),
    "a registration refused as a duplicate": (
        lambda request: [refused(request, duplicate_request=cdcpb.DuplicateRequest(region_id=REGION))],
        ProtocolError,
        "refused as registered already; report it",
    ),
    "bytes that are no message": (lambda _: [b"\x0a\xff"], DecodeError, "a malformed message"),
    "a number beyond timestamps": (
        lambda request: [rows(request, Row(type=Event.COMMITTED, commit_ts=1 << 63, key=b"k"))],
        DecodeError,
        r"a number of 2\^63 or above",
    ),
    "busy for ever": (
        lambda request: [refused(request, **BUSY)],
        ClusterUnavailable,
        "server_is_busy.*check the store",
    ),
    "congested for ever": (lambda request: [refused(request, **CONGESTED)], ClusterUnavailable, "last: congested"),
    "congested after each scan": (
        lambda request: [rows(request, INITIALIZED), refused(request, **CONGESTED)],
        ClusterUnavailable,
        "last: congested",
    ),
    "events without content for ever": (
        lambda request: [cdcpb.ChangeDataEvent(events=[Event(region_id=REGION, request_id=request.request_id)])],
        ClusterUnavailable,
        "last: no error",
    ),
    "streams that end for ever": (lambda _: [None], ClusterUnavailable, "store 1 ended the stream: StatusCode.OK"),
    "a COMMIT without PREWRITE in each scan": (
        lambda request: [rows(request, INITIALIZED, COMMIT)],
        ClusterUnavailable,
        "key 6b: .*: no prewrite",
    ),
    "a row of no known type": (
        lambda request: [rows(request, Row(type=9, op_type=Row.PUT, commit_ts=BEGIN + 2, key=b"k"))],
        ProtocolError,
        "a row that the protocol does not have",
    ),
    "a row without operation": (
        lambda request: [rows(request, Row(type=Event.COMMITTED, commit_ts=BEGIN + 2, key=b"k"))],
        ProtocolError,
        "a row that the protocol does not have",
    ),
    "a resolved ts that PD has not given": (
        lambda request: [rows(request, INITIALIZED), until(request, compose(2_000_000))],
        SourceError,
        "which PD has not given yet; check whether the store is of this cluster",
    ),
    "a resolved ts that is none": (
        lambda request: [rows(request, INITIALIZED), until(request, (1 << 64) - 1)],
        ProtocolError,
        "18446744073709551615",
    ),
    "a row below the resolved ts": (
        lambda request: [rows(request, INITIALIZED), until(request, BEGIN + 5), rows(request, committed(b"late"))],
        ResolvedTsBroken,
        "commit_ts 262144000002: not above resolved_ts 262144000005",
    ),
}

SURVIVED: dict[str, Answer] = {
    "a huge message": lambda request: [
        rows(request, committed(b"v"), committed(b"x" * (20 << 20), b"z"), INITIALIZED),
        until(request, END),
    ],
    "an event without content": lambda request: [
        cdcpb.ChangeDataEvent(events=[Event(region_id=REGION, request_id=request.request_id)])
    ],
    "an event of a type to come": lambda _: [UNKNOWN_EVENT],
    "a long transaction told": lambda request: [
        cdcpb.ChangeDataEvent(
            events=[Event(region_id=REGION, request_id=request.request_id, long_txn=Event.LongTxn())]
        ),
        *fine(request),
    ],
    "busy": lambda request: [refused(request, **BUSY)],
    "congested after the scan": lambda request: [rows(request, INITIALIZED), refused(request, **CONGESTED)],
    "a stream that ends": lambda _: [None],
    "rows that come twice": lambda request: [
        rows(request, committed(b"v"), committed(b"v")),
        rows(request, committed(b"v"), INITIALIZED),
        until(request, END),
    ],
    "a COMMIT without PREWRITE": lambda request: [rows(request, INITIALIZED, COMMIT)],
    "ROLLBACKs of nothing": lambda request: [
        rows(request, *[Row(type=Event.ROLLBACK, start_ts=BEGIN + 1, key=b"k", value=b"p")] * 2),
        *fine(request),
    ],
    "rows without type and key": lambda request: [rows(request, *[Row()] * 9), *fine(request)],
    "events of another region": lambda request: [
        rows(request, committed(b"foreign"), INITIALIZED, region=99),
        cdcpb.ChangeDataEvent(resolved_ts=cdcpb.ResolvedTs(regions=[99], ts=END, request_id=request.request_id)),
        *fine(request),
    ],
    "events of another request": lambda request: [
        rows(request, committed(b"foreign"), INITIALIZED, shift=50),
        *fine(request),
    ],
    "keys that were not asked for": lambda request: [
        rows(request, committed(b"foreign", b"0"), committed(b"foreign", b"zz")),
        *fine(request),
    ],
    "resolved ts before the scan has ended": lambda request: [until(request, END), *fine(request)],
    "a resolved ts that falls": lambda request: [
        rows(request, INITIALIZED),
        *(until(request, ts) for ts in (BEGIN + 1, 0, BEGIN, BEGIN + 1)),
        rows(request, committed(b"v")),
        until(request, END),
    ],
}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits are short, and five tries are enough."""
    monkeypatch.setattr(registrations, "ATTEMPTS", 5)
    monkeypatch.setattr(registrations, "RECONNECT_S", 0.01)
    monkeypatch.setattr(regions, "_LONGEST_WAIT_S", 0.01)


async def whole(feed: EventFeed) -> list[Any]:
    """The rows up to the resolved ts of all."""
    found = []
    async for event in feed.events():
        if isinstance(event, SpanRows):
            found += changes_of(event.rows)
        elif event.ts >= END:
            return found
    return found


@pytest.mark.parametrize("name", ENDS)
def test_ends(name: str) -> None:
    """What cannot be survived ends the feed by name, also where a peer repeats it for ever."""
    answer, kind, said = ENDS[name]
    with pytest.raises(kind, match=said) as found:
        Hostile(answer).run(whole)
    assert type(found.value) is kind
    assert found.value.code.startswith("CDC:Err")


@pytest.mark.parametrize("name", SURVIVED)
def test_survived(name: str) -> None:
    """The row arrives, and no row that was not asked for, whatever comes with it, before it or instead of it."""
    answer = SURVIVED[name]
    got = Hostile(answer, times=1).run(whole)
    assert {(row.key, row.value) for row in got} == {(b"k", b"v")}


def test_a_clock_that_falls() -> None:
    """A PD whose timestamps fall ends the feed, even if no row and no resolved ts comes."""
    store = Hostile(lambda _: [])

    async def tso() -> int:
        raise TsoFellBack("PD's clock fell back")

    store.tso = tso  # type: ignore[method-assign]
    with pytest.raises(TsoFellBack):
        store.run(whole)


def test_a_consumer_that_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """While rows wait to be taken no further scan begins, and all of them come later."""
    monkeypatch.setattr(feed_module, "FULL_BYTES", 1 << 20)
    asked: list[bytes] = []

    def answer(request: Any) -> list[Any]:
        asked.append(request.start_key)
        return [rows(request, committed(b"x" * (2 << 20), decode_bytes(request.start_key)[0]), INITIALIZED)]

    async def use(feed: EventFeed) -> int:
        while not asked:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        feed.add(2, b"zz", b"zzz", BEGIN)
        await asyncio.sleep(0.3)
        before = len(asked)
        async for event in feed.events():
            if event.span == 2:
                break
        return before

    assert Hostile(answer).run(use) == 1
    assert len(asked) == 2
