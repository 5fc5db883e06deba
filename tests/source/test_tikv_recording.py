"""Recorded streams of a real TiKV through the capture: its segments hold the recorded rows, and tidb:// reads them."""

import asyncio
from contextlib import suppress
from functools import cache
from heapq import merge
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.tikv.playback import History, World, cluster_of, history
from tests.tikv.reading import TS, recorded_scans
from tests.tikv.recorded import DDL, LIVE
from tidegate.engine.filter import TableFilter
from tidegate.kv.keys import RecordKey, decode_table_key
from tidegate.model.kv_change import KvChange, KvOp, LogType
from tidegate.mysql.encoding import encode_bytes
from tidegate.schema.job import JOB_TABLE
from tidegate.schema.stored.history import DefinitionHistory, defined_by
from tidegate.source.tidb_ddl import Timeline
from tidegate.source.tidb_segment import (
    ROWS,
    SCHEMA,
    SegmentLog,
    SegmentWriter,
    encode_segment,
    in_order,
    publish,
    read_spans,
)
from tidegate.source.tidb_states import ShownLog
from tidegate.source.tikv_capture import Capture, CaptureOptions, KnownTables, Spans, Waiting
from tidegate.tikv import registrations
from tidegate.tikv.address import ClusterAddress
from tidegate.tikv.feed import EventFeed

EVERY = TableFilter.parse(("*.*",))
DEADLINE_S = 120


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams are opened again at once."""
    monkeypatch.setattr(registrations, "RECONNECT_S", 0.01)


@cache
def played() -> History:
    """The recorded changes of tables and of the schema, which were two streams."""
    tables, schema = history(LIVE), history(DDL)

    def timed(log: list[Any]) -> Any:
        return zip(accumulate((row.commit_ts or row.start_ts for row in log), max), log, strict=True)

    log = [row for _, row in merge(timed(tables.log), timed(schema.log), key=lambda item: item[0])]
    return History(log, [encode_bytes(row.key) for row in log], tables.truth | schema.truth)


def definitions() -> list[tuple[bytes, bytes]]:
    """The keys of databases and tables at TS."""
    pairs = [(pair.key, pair.value) for _, found in recorded_scans("meta-mid") for pair in found.pairs]
    return [pair for pair in pairs if defined_by(pair[0]) is not None]


class Held:
    """A PD that holds garbage collection."""

    async def hold(self, name: str, ttl_s: int, ts: int) -> None:
        assert (name, ttl_s > 0, ts >= TS - 1) == ("tidegate-f", True, True)


async def captured(world: World, log: Path) -> int:
    """Capture a world from TS to its end; the end of the log."""
    tables, final = KnownTables(EVERY.matches), world.bounds[-1] - 1000
    begin = [KvChange(LogType.COMMITTED, key, 1, TS, KvOp.PUT, value, None, 0) for key, value in definitions()]
    publish(log / f"{TS:020d}.base", encode_segment(TS, TS, begin))
    for row in begin:
        tables.apply(row.key, row.value)
    options = CaptureOptions(address=ClusterAddress(("",)), directory=log, feed="f", write_s=0.01, idle_s=0.01)
    writer = SegmentWriter(log, TS)
    async with (
        asyncio.timeout(DEADLINE_S),
        cluster_of(world) as cluster,
        EventFeed(cluster, random=Random(1)) as feed,
    ):
        capture = Capture(options, EVERY.matches)
        writing = asyncio.create_task(capture._work(Held(), feed, writer, Waiting(log), Spans(feed, tables, TS)))
        while writer.low < final:
            assert not writing.done(), writing.result()
            world.step()
            await asyncio.sleep(0.005)
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing
    writer.close()
    return writer.low


def in_scope(truth: frozenset[KvChange], high: int) -> set[KvChange]:
    """The recorded rows of tables from their definition on, of DDL jobs, and of the schema."""
    truth = frozenset(row for row in truth if TS < row.commit_ts <= high)
    schema = sorted((row for row in truth if row.key[:1] == b"m"), key=in_order)
    defined = DefinitionHistory(TS, definitions())
    since: dict[int, int] = {JOB_TABLE.id: TS}
    times = [TS]
    for row in schema:
        defined.change(row.key, row.value, row.commit_ts)
        times.append(row.commit_ts)
    for ts in sorted(set(times)):
        for version in defined.snapshot(ts).tables.values():
            for physical_id in version.stored.physical_ids if version.schema != "mysql" else ():
                since.setdefault(physical_id, ts - 1 if ts > TS else ts)
    rows = {
        row
        for row in truth
        if row.key[:1] == b"t"
        and isinstance(key := decode_table_key(row.key), RecordKey)
        and row.commit_ts > since.get(key.table_id, high)
    }
    return rows | set(schema)


@pytest.mark.more
def test_a_recorded_stream_becomes_a_log(tmp_path: Path) -> None:
    """Each row of a table in the filter is in its segments once, with all that defines tables, through splits, merges,
    leaders that move, and streams that end; a changefeed of tidb:// follows all its DDLs."""
    world = World(played(), 0, trouble=0.1)
    high = asyncio.run(captured(world, tmp_path))

    assert world.faults == []
    read, scope = list(read_spans(tmp_path, TS, high, (SCHEMA, ROWS))), in_scope(world.played.truth, high)
    assert len(scope) == 19_049
    assert len(read) == len(set(read))
    assert set(read) == scope
    timeline = Timeline(ShownLog(SegmentLog(tmp_path, "commit")), EVERY, force=True)
    timeline.start(TS)
    timeline.read(high)
    followed = 0
    while (stop := timeline.stop()) is not None:
        followed += len(timeline.walk(stop))
    assert followed == 81
