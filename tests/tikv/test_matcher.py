"""The matcher on columns makes the rows that the plain matcher makes, of recorded streams and of regions drawn."""

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.kv.test_match_region import Region, registered
from tidegate.kv.change_columns import changes_of
from tidegate.kv.match import Matcher
from tidegate.model.errors import PrewriteNotMatch, ProtocolError, ResolvedTsBroken, StoreUnavailable, TidegateError
from tidegate.model.kv_change import KvChange, KvOp, LogType
from tidegate.tikv import matcher as matching
from tidegate.tikv.matcher import ColumnMatcher, Room
from tidegate.tikv.stubs import cdcpb_pb2 as cdcpb
from tidegate.tikv.walk import REGION, read


def message(rows: Iterable[KvChange], region: int = 1) -> bytes:
    """An Event of some rows."""
    entries = [
        cdcpb.Event.Row(
            type=int(row.type),
            op_type=int(row.op),
            key=row.key,
            start_ts=row.start_ts,
            commit_ts=row.commit_ts,
            value=row.value or b"",
            old_value=row.old_value or b"",
            txn_source=row.txn_source,
            generation=row.generation,
        )
        for row in rows
    ]
    event = cdcpb.Event(region_id=region, request_id=7, entries=cdcpb.Event.Entries(entries=entries))
    data: bytes = cdcpb.ChangeDataEvent(events=[event]).SerializeToString()
    return data


def emitted(matcher: ColumnMatcher, messages: list[bytes], owners: dict[int, int]) -> list[tuple[int, KvChange]]:
    """The rows that messages complete, each with its registration. Raises what a registration failed with."""
    batch = read(messages)
    matched = matcher.apply(batch, np.array([owners.get(region, -1) for region in batch.items[:, REGION].tolist()]))
    for _registration, error in matched.failures:
        raise error
    return [
        (owner, row)
        for columns, numbers in matched.batches
        for owner, row in zip(numbers.tolist(), changes_of(columns), strict=True)
    ]


def tuple_of(row: KvChange) -> tuple[object, ...]:
    """A row as what sorts."""
    return row.commit_ts, row.start_ts, row.key, row.value or b"", row.old_value or b""


def stored_bytes(matcher: Matcher) -> int:
    """The bytes of the PREWRITEs that a plain matcher has stored."""
    stored = matcher._prewrites.values()
    return sum(len(row.key) + len(row.value or b"") + len(row.old_value or b"") for row in stored)


def cut(random: Random, rows: list[KvChange]) -> Iterable[list[KvChange]]:
    """Rows as the events of several messages."""
    while rows:
        size = random.randint(1, 9)
        yield rows[:size]
        rows = rows[size:]


@pytest.mark.parametrize("seed", range(60))
def test_regions(seed: int, tmp_path: Path) -> None:
    """Several regions on one stream: each gets the rows of its own plain matcher, however messages are cut, and whether
    the table is in memory or in files."""
    random = Random(seed)
    matcher, queues, plain = ColumnMatcher(Room(tmp_path, (1 << 30, 10_000, 0)[seed % 3])), {}, {}
    owners = {}
    for number in range(1, 6):
        region = Region(random)
        checkpoint_ts, rows = registered(random, region)
        queues[number] = [message(part, number) for part in cut(random, rows)]
        single = Matcher(checkpoint_ts)
        plain[number] = ([row for change in rows for row in single.apply(change)], stored_bytes(single))
        owners[number] = matcher.begin(checkpoint_ts)
    messages = []
    while any(queues.values()):
        messages.append(random.choice([queue for queue in queues.values() if queue]).pop(0))
    got: list[tuple[int, KvChange]] = []
    while messages:
        size = random.choice((1, 2, 50))
        got += emitted(matcher, messages[:size], owners)
        messages = messages[size:]

    for number, owner in owners.items():
        rows = plain[number][0]
        assert sorted((row for mine, row in got if mine == owner), key=tuple_of) == sorted(rows, key=tuple_of)
    assert matcher.stored == sum(stored for _, stored in plain.values())
    for owner in owners.values():
        matcher.end(owner)
    assert matcher.stored == 0


def row(
    kind: LogType, value: bytes = b"", *, at: int = 0, op: KvOp = KvOp.PUT, old: bytes = b"", **more: int
) -> KvChange:
    """A row of the key k and start_ts 5."""
    return KvChange(kind, b"k", 5, at, op, value, old, **more)


def committed(value: bytes | None, at: int, *, op: KvOp = KvOp.PUT, old: bytes | None = None) -> KvChange:
    """A row that is complete."""
    return KvChange(LogType.COMMITTED, b"k", 5, at, op, value, old)


PREWRITE, COMMIT, ROLLBACK, COMMITTED = LogType.PREWRITE, LogType.COMMIT, LogType.ROLLBACK, LogType.COMMITTED
INITIALIZED = KvChange(LogType.INITIALIZED, b"", 0)
UNKNOWN = cdcpb.ChangeDataEvent(
    events=[cdcpb.Event(region_id=1, entries=cdcpb.Event.Entries(entries=[cdcpb.Event.Row()] * 3))]
).SerializeToString()
"""Rows of keys with a write record of type Lock."""

TRANSCRIPTS = {
    "live": ([INITIALIZED, row(PREWRITE, b"1", old=b"0"), row(COMMIT, b"s", at=7)], [committed(b"1", 7, old=b"0")]),
    "before the end of the scan": ([row(PREWRITE, b"1"), row(COMMIT, at=7)], [committed(b"1", 7)]),
    "an early COMMIT waits": ([row(COMMIT, at=7), row(PREWRITE, b"1")], []),
    "and is matched at INITIALIZED": ([row(COMMIT, at=7), row(PREWRITE, b"1"), INITIALIZED], [committed(b"1", 7)]),
    "or forgotten": ([row(COMMIT, at=7), INITIALIZED], []),
    "for its COMMITTED": ([row(COMMIT, at=7), row(COMMITTED, b"1", at=7), INITIALIZED], [committed(b"1", 7)]),
    "a flush that is not the last waits": ([row(PREWRITE, b"1", generation=1), row(COMMIT, at=7)], []),
    "and gives way to a higher generation": (
        [row(PREWRITE, b"1", generation=1), row(COMMIT, at=7), row(PREWRITE, b"2", generation=2), INITIALIZED],
        [committed(b"2", 7)],
    ),
    "not to a lower one": (
        [INITIALIZED, row(PREWRITE, b"2", generation=2), row(PREWRITE, b"1", generation=1), row(COMMIT, at=7)],
        [committed(b"2", 7)],
    ),
    "a heartbeat takes nothing": (
        [INITIALIZED, row(PREWRITE, b"1"), row(PREWRITE, old=b"0"), row(COMMIT, at=7)],
        [committed(b"1", 7)],
    ),
    "the op is that of the COMMIT": (
        [INITIALIZED, row(PREWRITE, b"1"), row(COMMIT, at=7, op=KvOp.DELETE)],
        [committed(None, 7, op=KvOp.DELETE)],
    ),
    "a DELETE waits before INITIALIZED": (
        [row(PREWRITE, op=KvOp.DELETE, old=b"0"), row(COMMIT, at=7, op=KvOp.DELETE)],
        [],
    ),
    "and comes": (
        [row(PREWRITE, op=KvOp.DELETE, old=b"0"), row(COMMIT, at=7, op=KvOp.DELETE), INITIALIZED],
        [committed(None, 7, op=KvOp.DELETE, old=b"0")],
    ),
    "one phase": ([INITIALIZED, row(COMMITTED, b"1", at=7, old=b"0")], [committed(b"1", 7, old=b"0")]),
    "at the checkpoint": ([row(COMMITTED, b"1", at=3), row(PREWRITE, b"1"), row(COMMIT, at=3), INITIALIZED], []),
    "an unmatched ROLLBACK": ([row(ROLLBACK), INITIALIZED, row(ROLLBACK, b"p")], []),
    "a ROLLBACK that was put aside": ([row(ROLLBACK, b"p"), row(PREWRITE, b"1"), INITIALIZED], []),
    "a start_ts below the resolved ts": (
        [INITIALIZED, 6, row(PREWRITE, b"1"), row(COMMIT, at=7)],
        [committed(b"1", 7)],
    ),
}


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_transcript(name: str) -> None:
    """Each line of the rules, on a registration from ts 3, one message per row and all rows in one message."""
    rows, expected = TRANSCRIPTS[name]
    matcher = ColumnMatcher()
    owner = matcher.begin(3)
    got = []
    for step in rows:
        if isinstance(step, int):
            matcher.resolve(owner, step)
            continue
        got += emitted(matcher, [UNKNOWN, message([step])], {1: owner})
    joined = ColumnMatcher()
    assert joined.begin(3) == owner
    whole = [message([step for step in rows if not isinstance(step, int)])]

    assert [single for _, single in got] == expected
    assert emitted(joined, whole, {1: owner}) == got


def test_refused() -> None:
    """A COMMIT without PREWRITE, a row at or below the resolved ts, and a row of no type fail their registration alone:
    the rest of its rows is not taken, other regions go on."""
    cases: list[tuple[KvChange, type[TidegateError], str]] = [
        (row(COMMIT, at=9), PrewriteNotMatch, "key 6b: type 2, op 1, start_ts 5, commit_ts 9: no prewrite"),
        (row(COMMITTED, b"1", at=8), ResolvedTsBroken, "commit_ts 8: not above resolved_ts 8"),
        (row(COMMITTED, b"1", at=9, op=KvOp.UNKNOWN), ProtocolError, "a row that the protocol does not have"),
    ]
    for bad, error, text in cases:
        matcher = ColumnMatcher()
        owners = {1: matcher.begin(3), 2: matcher.begin(3)}
        assert emitted(matcher, [message([INITIALIZED], 1), message([INITIALIZED], 2)], owners) == []
        matcher.resolve(owners[1], 8)
        batch = read([message([bad, row(COMMITTED, b"2", at=10)], 1), message([row(COMMITTED, b"3", at=7)], 2)])
        matched = matcher.apply(batch, np.array([owners[1], owners[2]]))

        assert [(number, type(one)) for number, one in matched.failures] == [(owners[1], error)]
        assert text in str(matched.failures[0][1])
        assert [changes_of(columns) for columns, _ in matched.batches] == [[committed(b"3", 7)]]


def test_memory() -> None:
    """Stored PREWRITEs are counted, and their bytes are given back as they are committed, however many come by."""
    matcher = ColumnMatcher()
    owner = matcher.begin(0)
    emitted(matcher, [message([INITIALIZED])], {1: owner})
    emitted(matcher, [message([row(PREWRITE, b"x" * 1000)])], {1: owner})
    assert matcher.stored == 1001
    for ts in range(10, 400, 2):
        pair = [
            KvChange(PREWRITE, b"k%d" % ts, ts, 0, KvOp.PUT, b"y" * 500, b""),
            KvChange(COMMIT, b"k%d" % ts, ts, ts + 1, KvOp.PUT),
        ]
        assert len(emitted(matcher, [message([part]) for part in pair], {1: owner})) == 1

    assert matcher.stored == 1001
    assert emitted(matcher, [message([row(COMMIT, at=7)])], {1: owner}) == [(owner, committed(b"x" * 1000, 7))]
    assert matcher.stored == 0


def test_what_is_not_committed_lies_in_files(tmp_path: Path) -> None:
    """Matchers of one room have no more memory together than it gives; their files have no names."""
    room, most = Room(tmp_path, 1 << 20), 0
    matchers = [ColumnMatcher(room) for _ in range(3)]
    for matcher in matchers:
        owner = matcher.begin(0)
        emitted(matcher, [message([INITIALIZED])], {1: owner})
        for number in range(200):
            value = KvChange(PREWRITE, b"k%d" % number, 5, 0, KvOp.PUT, b"x" * 50_000, b"")
            emitted(matcher, [message([value])], {1: owner})
            most = max(most, room.used)
        assert matcher.stored > 10_000_000
    assert most <= 1 << 20
    assert not list(tmp_path.iterdir())
    for matcher in matchers:
        for number in range(200):
            commit = KvChange(COMMIT, b"k%d" % number, 5, 7, KvOp.PUT)
            assert len(emitted(matcher, [message([commit])], {1: 0})) == 1
        assert matcher.stored == 0


def test_files_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the transaction that needed them is through."""
    monkeypatch.setattr(matching, "ROOM_BYTES", 100_000)
    matcher = ColumnMatcher(Room(most=0))
    owner, size = matcher.begin(0), []
    emitted(matcher, [message([INITIALIZED])], {1: owner})
    for kind, commit_ts, value in ((PREWRITE, 0, b"x" * 50_000), (COMMIT, 7, None)):
        for number in range(100):
            row = KvChange(kind, b"k%d" % number, 5, commit_ts, KvOp.PUT, value, b"")
            emitted(matcher, [message([row])], {1: owner})
        size.append(len(matcher._arena))
    assert size[0] > 5_000_000
    assert size[1] < 1_000_000


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It ends the feed, and not the process."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StoreUnavailable, match=r"uncommitted rows need .* No space left on device"):
        ColumnMatcher(Room(tmp_path, 0)).apply(read([message([INITIALIZED])]), np.array([-1]))
