"""The changes of a log as chunks of batches: whichever way rows are mounted, they are the same in the same order."""

import gc
import pickle
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.test_mount import record
from tests.kv.kv_recordings import STREAMS
from tests.sink.kafka.test_columns import TABLES, VERSIONS, made
from tests.source.tidb.kit import recorded_log
from tests.source.tidb.mounted import transactions
from tests.source.tidb.test_transactions import SPANS, Log
from tidegate.codec.columnar.encode.encoder import rows_of
from tidegate.codec.wire_table import table_of_fields, wire_table
from tidegate.engine.change import Chunk
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import EventRule, TableFilter
from tidegate.engine.mount import Mounted
from tidegate.kv import Row, encode_row
from tidegate.kv.keys import IntHandle, record_prefix
from tidegate.kv.rows import ChecksumForm, encode_raw_row
from tidegate.model.errors import CorruptedRow, KvDecodeError
from tidegate.model.event import RowChange
from tidegate.model.kv_change import KvChange, KvOp, LogType
from tidegate.model.table import TableName
from tidegate.schema.stored.definition import table_layout
from tidegate.source import tidb_changes
from tidegate.source.tidb_changes import CHUNK_ROWS, LogChanges, MountOptions, chunks, mounter_of
from tidegate.source.tidb_ddl import Timeline
from tidegate.source.tidb_land import next_batch
from tidegate.source.tidb_log import definition_of, name_of
from tidegate.source.tidb_segment import SegmentLog

HIGH = 1 << 60
FORCED = MountOptions(force_replicate=True)
NAMES = [name_of(version) for version in VERSIONS]
Told = list[tuple[RowChange, int, int]]
"""Rows: an event, its start_ts and the number of its transaction."""


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns for tables of three rows and more."""
    monkeypatch.setattr(tidb_changes, "FEW_ROWS", 3)


def told(found: list[Chunk]) -> Told:
    """The rows of some chunks by number; transactions are counted over all of them. Numbers have no gap."""
    every: Told = []
    for chunk in found:
        rows: dict[int, tuple[RowChange, int, int]] = {}
        before = every[-1][2] + 1 if every else 0
        for batch, numbers in chunk.parts:
            assert batch.definition is not None
            assert batch.rows == len(numbers) > 0
            assert (np.diff(numbers) > 0).all()
            table = table_of_fields(batch.fields, batch.pk_names)
            events = rows_of(batch, range(batch.rows), table, batch.row_ids)
            for number, event, start in zip(numbers.tolist(), events, batch.start_ts.to_pylist(), strict=True):
                rows[number] = event, start, int(chunk.transaction[number]) + before
        assert sorted(rows) == list(range(len(chunk)))
        assert sum(chunk.path_counts.by_path().values()) == len(chunk)
        every += [rows[number] for number in range(len(chunk))]
    assert all(after[2] - before[2] in {0, 1} for before, after in pairwise(every))
    return every


class Spanned(Log):
    """A log that heeds the spans that it is asked for."""

    def rows(self, low: int, high: int, spans: Any) -> Any:
        """Rows of the spans, in commit order."""
        return (row for row in super().rows(low, high, spans) if any(start <= row.key < end for start, end in spans))


def plain(log: Log, events: EventFilter | None = None) -> Told:
    """The same of the reference: rows mounted one by one, transaction by transaction."""
    chosen = (events or EventFilter()).rows(NAMES)
    starts = {(row.commit_ts, row.key): row.start_ts for row in log}
    rows: Told = []
    number = 0
    for transaction in transactions(log, (1, HIGH), SPANS, mounter_of(VERSIONS, 1, FORCED)):
        kept = transaction if chosen is None else chosen.kept(transaction)
        rows += [(one.row, starts[one.row.commit_ts or 0, _key(one)], number) for one in kept]
        number += bool(kept)
    return rows


def _key(mounted: Mounted) -> bytes:
    return record_prefix(mounted.table.physical_id) + mounted.handle.encoded


def chunks_with(log: Any, *, columns: bool, **given: Any) -> list[Chunk]:
    """All chunks of three tables of a log, by way of pickle."""
    options = given.pop("mount", FORCED)
    value = LogChanges(log, 1, HIGH, VERSIONS, options, columns=columns, **given)
    travelled: LogChanges = pickle.loads(pickle.dumps(value))
    return list(travelled.in_order(NAMES, 1, HIGH))


def decode_paths(found: list[Chunk]) -> set[str]:
    """The decode paths of all rows."""
    return {path for chunk in found for path in chunk.path_counts.by_path()}


def reasons(found: list[Chunk]) -> dict[str, str]:
    """Why rows were mounted one by one, with an example of each reason."""
    return {one.reason: one.example for chunk in found for one in chunk.path_counts.slow()}


def test_few_rows_are_mounted_one_by_one() -> None:
    """A table with few rows in a chunk says so."""
    log = Log(list(made(2))[:5])
    assert reasons(chunks_with(log, columns=True))["few-rows"] == "db.a: 1 row in a chunk, columns need 3"


@pytest.mark.parametrize("seed", range(6))
def test_columns_are_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tables in a transaction, rows twice, NULLs, old forms: the rows and the order of the reference, with
    start_ts, handles and transactions, by columns, row by row and mixed, however large chunks are."""
    monkeypatch.setitem(chunks.__kwdefaults__, "rows", (40, CHUNK_ROWS)[seed % 2])
    log = made(seed)
    by_columns, by_rows = (chunks_with(log, columns=columns) for columns in (True, False))

    assert told(by_columns) == told(by_rows) == plain(log)
    assert "mount/columns" in decode_paths(by_columns)
    assert decode_paths(by_rows) == {"mount/rows"}
    assert gc.isenabled()


def test_without_compiled_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no numba, all rows are mounted one by one, and say why."""
    monkeypatch.setattr(tidb_changes, "AVAILABLE", False)
    found = chunks_with(made(0), columns=True)
    assert told(found) == plain(made(0))
    assert set(reasons(found)) == {"switched-off"}
    assert "numba" in reasons(found)["switched-off"]


def test_a_part_of_the_range_and_of_the_tables() -> None:
    """Ranges and names narrow what is read, to nothing too; names count without case."""
    whole = LogChanges(Spanned(made(1)), 1, HIGH, VERSIONS, FORCED)
    every = told(list(whole.in_order(NAMES, 1, HIGH)))
    times = [row.commit_ts or 0 for row, _, _ in every]
    low, high = times[20], times[-20]
    inside = [row for row, _, _ in every if low < (row.commit_ts or 0) <= high]

    assert [row for row, _, _ in told(list(whole.in_order(NAMES, low, high)))] == inside
    one = told(list(whole.batches(TableName("DB", "A"), low, high)))
    assert [row for row, _, _ in one] == [row for row in inside if row.table == "a"]
    assert list(whole.in_order(NAMES, high, high)) == list(whole.batches(TableName("db", "x"), low, high)) == []


def test_event_filters_speak_of_single_tables() -> None:
    """Rows of a table with a rule are judged one by one; what is left out leaves no gap; the others go by columns."""
    log = made(2)
    events = EventFilter.of([EventRule(matcher=("db.b",), ignore_event=("update", "delete"))], None)
    found = chunks_with(log, columns=True, events=events)

    assert told(found) == plain(log, events)
    assert decode_paths(found) == {"mount/columns", "mount/rows"}
    assert reasons(found)["event-filter"] == "db.b: an event filter looks at each row"
    judged = [batch.op.unique().to_pylist() for chunk in found for batch, _ in chunk.parts if batch.table == "b"]
    assert judged == [["I"]] * len(judged) != []


def test_nothing_is_left_of_a_chunk() -> None:
    """A chunk whose rows are all left out is none; the last one counts them, and has no row."""
    events = EventFilter.of([EventRule(matcher=("db.*",), ignore_event=("all dml",))], None)
    (last,) = chunks_with(made(3), columns=True, events=events)
    assert (last.parts, len(last)) == ((), 0)
    assert last.path_counts.left_out == len(plain(made(3)))


def test_checksums() -> None:
    """With `verify` rows go one by one; those that a checksum contradicts are counted, or refused by name."""
    layout = table_layout(TABLES[0])
    key, value = encode_row(layout, Row(5, IntHandle(1), {1: 1, 2: 10}, (2,)), checksum=ChecksumForm(1))
    log = made(4)
    log.append(KvChange(LogType.COMMITTED, key, 900, 901, KvOp.PUT, value[:-1] + bytes([value[-1] ^ 1])))

    found = chunks_with(log, columns=True, mount=MountOptions(force_replicate=True, verify=True))
    assert (decode_paths(found), sum(chunk.corrupt for chunk in found)) == ({"mount/rows"}, 1)
    assert set(reasons(found)) == {"checksums"}
    with pytest.raises(CorruptedRow, match=rf"db\.a at commit_ts 901, key {key.hex()}") as raised:
        chunks_with(log, columns=True, mount=MountOptions(verify=True, refuse_corrupt=True))
    assert (raised.value.where.table, raised.value.where.commit_ts) == ("db.a", 901)
    assert gc.isenabled()


def test_the_first_error_in_commit_order() -> None:
    """Damaged rows of two tables, many rows of each: the earlier one is told, with table, timestamps and key."""
    log = made(5)
    keys = [record(TABLES[number], {1: 99, 2: 0, 3: None, 4: None})[0] for number in (2, 0)]
    for key, ts in zip(keys, (901, 905), strict=True):
        log.append(KvChange(LogType.COMMITTED, key, ts - 1, ts, KvOp.PUT, encode_raw_row({2: b"abc"})))

    with pytest.raises(KvDecodeError, match=rf"commit_ts 901, start_ts 900, key {keys[0].hex()}") as raised:
        chunks_with(log, columns=True)
    assert (raised.value.where.table, raised.value.where.commit_ts) == ("db.c", 901)


def stretches(log: SegmentLog) -> Iterator[LogChanges]:
    """The changes between the DDLs of a log."""
    timeline, at = Timeline(log, TableFilter.parse(("*.*",)), force=True), 0
    timeline.start(0)
    while parts := log.parts(at):
        timeline.read(parts[-1].high)
        batch = next_batch(timeline, at, parts, 1 << 30, 1)
        assert batch is not None
        for piece in batch.pieces:
            yield LogChanges(log, piece.low, piece.high, piece.tables, FORCED)
        at = batch.high


@pytest.mark.slow
@pytest.mark.parametrize("stream", [stream for stream in STREAMS if stream != "rename_swap"])
def test_recorded_streams(stream: str, tmp_path: Path) -> None:
    """What the log tells without reading bounds what is read, table by table; both ways read the same; each table has
    the layout and the definition that its rows have."""
    count = 0
    for one in stretches(SegmentLog(recorded_log(tmp_path, stream))):
        names = [name_of(version) for version in one.versions]
        found = list(one.in_order(names, one.after, one.upto))
        rows = told(found)
        rowwise = LogChanges(one.log, one.after, one.upto, one.versions, one.mount, columns=False)
        assert told(list(rowwise.in_order(names, one.after, one.upto))) == rows
        spans, waiting = one.tables(), list(one.row_ranges())
        by_table = sorted(((row.schema, row.table), row.commit_ts or 0) for row, _, _ in rows)
        for name, group in groupby(by_table, key=lambda row: row[0]):
            times = [ts for _, ts in group]
            span = spans[TableName(*name)]
            assert len(times) <= span.rows
            assert one.after < span.min_ts <= min(times) <= max(times) <= span.max_ts <= one.upto
            (layout,) = one.layouts(TableName(*name), one.after, one.upto)
            assert {row.fields for row, _, _ in rows if (row.schema, row.table) == name} == {layout.fields}
        assert sum(stretch.rows for stretch in waiting) == sum(span.rows for span in spans.values()) >= len(rows)
        assert all(stretch.size_bytes > 0 and stretch.first_ts > one.after for stretch in waiting)
        definitions = {name_of(version): definition_of(version) for version in one.versions}
        for chunk in found:
            for batch, _ in chunk.parts:
                assert batch.definition == definitions[TableName(batch.schema, batch.table)]
                assert wire_table(batch.definition).fields == batch.fields
        count += len(rows)

    assert count > 0
