"""What a task lands: the same rows, whichever way they take and however the log is cut into pieces."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kv.kv_recordings import STREAMS
from tests.source.tidb.kit import recorded_log
from tidegate.engine.change import ROWS_SCHEMA
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import EventRule, TableFilter
from tidegate.engine.mount_columns import ColumnMounter, Records
from tidegate.model.errors import RenameRefused
from tidegate.source.tidb_changes import LogChanges, MountOptions
from tidegate.source.tidb_ddl import Timeline
from tidegate.source.tidb_land import LogBatch, land_split, next_batch
from tidegate.source.tidb_segment import SegmentLog

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _as_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns however few the rows."""
    monkeypatch.setattr("tidegate.source.tidb_changes.FEW_ROWS", 1)


SWAP = "rename_swap"
"""Ends with a RENAME of s1 and s2 in a circle."""
ORDER = [(name, "ascending") for name in ("commit_ts", "schema", "table", "seq")]


def batches(log: SegmentLog, rows: int, tasks: int) -> list[LogBatch]:
    """All batches of a log."""
    timeline, at, found = Timeline(log, TableFilter.parse(("*.*",)), force=True), 0, list[LogBatch]()
    timeline.start(0)
    while parts := log.parts(at):
        timeline.read(parts[-1].high)
        batch = next_batch(timeline, at, parts, rows, tasks)
        assert batch is not None
        found.append(batch)
        at = batch.high
    return found


def landed(
    log: SegmentLog, place: Path, some: list[LogBatch], *, columns: bool, events: EventFilter | None = None
) -> list[dict[str, Any]]:
    """The rows of all pieces in the order in which a slice gives them, without their numbers."""
    options = MountOptions(force_replicate=True)
    plan = LogChanges(log, 0, 0, (), options, events or EventFilter(), columns=columns)
    place.mkdir()
    reports = [land_split(str(place), plan, one) for batch in some for one in batch.pieces]
    files = [pq.read_table(place / file.path, schema=ROWS_SCHEMA) for report in reports for file in report.files]
    rows = pa.concat_tables([ROWS_SCHEMA.empty_table(), *files]).sort_by(ORDER)
    assert sum(table.rows for report in reports for table in report.tables) == rows.num_rows
    assert {rows.column(name).null_count for name in ("topic", "partition", "offset")} == {rows.num_rows}
    return rows.drop_columns(["seq"]).to_pylist()


@pytest.mark.parametrize("stream", STREAMS)
def test_as_columns_and_row_by_row(tmp_path: Path, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways land the same columns of every recorded stream, in small pieces and in large ones."""
    monkeypatch.setattr("tidegate.source.tidb_land.SHARE_ROWS", 3)
    log = SegmentLog(recorded_log(tmp_path / "log", stream))
    large, small = batches(log, 1 << 30, 1), batches(log, 1, 4)
    plain = landed(log, tmp_path / "plain", large, columns=False)

    assert len(plain) > 0
    assert landed(log, tmp_path / "columns", large, columns=True) == plain
    assert landed(log, tmp_path / "small", small, columns=True) == plain
    events = [event for batch in large for event in batch.events]
    assert events == [event for batch in small for event in batch.events]


def test_what_comes_before_a_ddl_that_cannot_be_followed(tmp_path: Path) -> None:
    """The rows and DDLs before it are a batch; the next one raises."""
    log = SegmentLog(recorded_log(tmp_path / "log", SWAP))
    timeline = Timeline(log, TableFilter.parse(("gs.s1",)), force=True)
    timeline.start(0)
    parts = log.parts(0)
    timeline.read(parts[-1].high)
    first = next_batch(timeline, 0, parts, 1 << 30, 1)

    assert first is not None
    assert timeline.stop() == first.high + 1 <= parts[-1].high
    assert sum(one.rows for one in first.pieces) > 0
    with pytest.raises(RenameRefused, match="rename table s1"):
        next_batch(timeline, first.high, log.parts(first.high), 1 << 30, 1)


def test_event_filters_take_rows_of_their_tables_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a table with a rule the rows that it leaves in land, one by one; tables beside it still go as columns."""
    seen: list[int] = []
    by_columns = ColumnMounter.mount

    def counted(self: ColumnMounter, records: Records) -> object:
        seen.append(len(records.keys))
        return by_columns(self, records)

    monkeypatch.setattr(ColumnMounter, "mount", counted)
    log = SegmentLog(recorded_log(tmp_path / "log", "types"))
    some = batches(log, 1 << 30, 1)
    whole = landed(log, tmp_path / "whole", some, columns=True)
    every = sum(seen)
    seen.clear()
    rule = EventRule(matcher=("gt.t_int",), ignore_event=("update",))
    left = landed(log, tmp_path / "left", some, columns=True, events=EventFilter.of([rule], None))

    assert left == [row for row in whole if (row["table"], row["op"]) != ("t_int", "U")]
    assert 0 < len(left) < len(whole)
    assert 0 < sum(seen) < every
