"""The frontier of a capture is the least resolved ts of its spans, whichever of them moves, comes or goes."""

import random
from typing import Any

from tidegate.kv.change_columns import change_batch
from tidegate.model.kv_change import KvChange, KvOp, LogType
from tidegate.mysql.encoding import decode_int
from tidegate.schema.job import JOB_TABLE
from tidegate.source.tikv_capture import META, KnownTables, Spans
from tidegate.tikv.feed import SlowRange


class Feed:
    """The spans that are registered."""

    def __init__(self) -> None:
        self.spans: dict[int, int] = {}
        self.slow: list[SlowRange] = []

    def add(self, number: int, start: bytes, _end: bytes, ts: int) -> None:
        assert number not in self.spans
        assert number == META or decode_int(start, 1)[0] == number
        self.spans[number] = ts

    def remove(self, number: int) -> None:
        del self.spans[number]


class Tables(KnownTables):
    """Tables whose keys are of the schema, and whose ids a test tells."""

    def __init__(self) -> None:
        self.now: set[int] = set()

    def apply(self, key: bytes, value: bytes | None) -> None:
        number = int(key.rpartition(b"#")[2])
        (self.now.add if value else self.now.discard)(number)

    def names(self) -> dict[int, str]:
        return {number: f"test.t{number}" for number in self.now}


def test_the_frontier_is_the_least_resolved_ts(monkeypatch: Any) -> None:
    """A table is read from below its definition on, and until the frontier has come to its end."""
    monkeypatch.setattr("tidegate.source.tikv_capture.defined_by", lambda key: key)
    chance, feed, tables = random.Random(7), Feed(), Tables()
    spans: Any = Spans(feed, tables, 10)  # type: ignore[arg-type]
    defined: dict[int, tuple[int, bool]] = {}
    frontier = 10
    for _ in range(3_000):
        number = chance.choice([*feed.spans, META])
        ts = spans.resolved[number] + chance.choice((0, 0, 1, 1, 2, 5))
        if number == META and ts > spans.resolved[META]:
            table = chance.randint(2_000, 2_020)
            is_there = not defined.get(table, (0, False))[1]
            defined[table] = ts, is_there
            row = KvChange(LogType.COMMITTED, b"m#%d" % table, ts - 1, ts, KvOp.PUT, b"x" if is_there else b"", None)
            spans.rows(META, change_batch([row]))
        spans.resolve(number, ts)
        last, frontier = frontier, spans.frontier()
        assert frontier == min([*spans.resolved.values(), spans.resolved[META]])
        assert frontier >= last
        assert feed.spans.keys() == spans.resolved.keys()
        read_ts = spans.resolved[JOB_TABLE.id]
        wanted = {table for table, (ts, is_there) in defined.items() if is_there and ts <= read_ts}
        assert wanted | {META, JOB_TABLE.id} <= feed.spans.keys()
        assert all(defined[table][0] > last for table in feed.spans.keys() - wanted - {META, JOB_TABLE.id})


def test_what_holds_a_capture() -> None:
    """The range that is the furthest behind is told with its table, the schema or the DDL jobs, and how many there are
    else."""
    feed, tables = Feed(), Tables()
    tables.now.add(45)
    spans: Any = Spans(feed, tables, 10)  # type: ignore[arg-type]
    assert spans.held_by() == ""
    slow = {
        number: SlowRange(number, b"k", 10, 61.7, "region 7 at store 3: no resolved ts comes") for number in feed.spans
    }
    said = "region 7 at store 3: no resolved ts comes, for 62 s at ts 10"
    feed.slow = [slow[45]]
    assert spans.held_by() == f"table test.t45: {said}"
    feed.slow = [slow[META], slow[45], slow[JOB_TABLE.id]]
    assert spans.held_by() == f"the schema: {said}; 2 more ranges stand still"
    feed.slow = [slow[JOB_TABLE.id]]
    assert spans.held_by() == f"the DDL jobs: {said}"
