"""Metrics of a full load, by Debezium's words, as its changefeed is in each state."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tidegate.engine.progress import FeedError, Progress
from tidegate.engine.reading import CaptureProgress, LoadProgress
from tidegate.server.metrics import Metrics
from tidegate.server.record import FeedId, FeedRecord, FeedView

AMID = LoadProgress(1 << 40, 9, 3, 40, 12, duration_s=2.5)
DONE = LoadProgress(1 << 40, 9, 9, 40, 40, duration_s=7.5)
STATES = ("running", "paused", "aborted", "completed")


def numbers(state: str, load: LoadProgress | None, code: str = "") -> dict[str, float]:
    """The metrics of the load of a changefeed."""
    error = FeedError(code=code, message="", since="") if code else None
    record = FeedRecord(id=FeedId("default", "one"), sink_uri="x://", source_uri="", state=state, error=error)
    view = FeedView(record, Progress("running", load=load))
    families = text_string_to_metric_families(Metrics(lambda: [view], dict).text().decode())
    samples = [sample for family in families for sample in family.samples]
    return {one.name.removeprefix("tidegate_snapshot_"): one.value for one in samples if "_snapshot_" in one.name}


@pytest.mark.parametrize(
    ("state", "load", "code", "word"),
    [
        ("normal", AMID, "", "running"),
        ("warning", AMID, "CDC:ErrSourceUnreachable", "running"),
        ("stopped", AMID, "", "paused"),
        ("failed", AMID, "CDC:ErrSnapshotLostByGC", "aborted"),
        ("stopped", AMID, "CDC:ErrLoadCancelled", "aborted"),
        ("stopped", None, "CDC:ErrLoadCancelled", "aborted"),
        ("normal", DONE, "", "completed"),
        ("stopped", DONE, "", "completed"),
        ("failed", DONE, "CDC:ErrSinkRefused", "completed"),
        ("finished", DONE, "", "completed"),
        ("normal", None, "", ""),
    ],
)
def test_what_has_become_of_a_load(state: str, load: LoadProgress | None, code: str, word: str) -> None:
    """One of the four is 1, and none is there without a load."""
    found = numbers(state, load, code)

    assert {name: found.get(name) for name in STATES} == {
        name: float(name == word) if word else None for name in STATES
    }
    if load is not None:
        assert (found["duration_seconds"], found["remaining_table_count"]) == (
            load.duration_s,
            load.tables - load.tables_done,
        )


def test_what_a_capture_holds() -> None:
    """Bytes by where they are; changefeeds without a capture have none."""
    for capture, expected in (
        (None, {}),
        (CaptureProgress(1, 5, 6, 7, 8), {"waiting": 5.0, "spilled": 6.0, "uncommitted": 7.0, "log": 8.0}),
    ):
        record = FeedRecord(id=FeedId("default", "one"), sink_uri="x://", source_uri="", state="normal")
        view = FeedView(record, Progress("running", capture=capture))
        families = text_string_to_metric_families(Metrics(lambda view=view: [view], dict).text().decode())
        samples = [sample for family in families for sample in family.samples]
        found = {one.name: one.value for one in samples if re.fullmatch("tidegate_capture_.*_bytes", one.name)}
        assert found == {f"tidegate_capture_{name}_bytes": value for name, value in expected.items()}
