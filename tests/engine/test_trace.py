"""A round is a span with its changefeed and rows, and what it did inside it; without OpenTelemetry it is nothing."""

import sys
from pathlib import Path

import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import tidegate
from tests.server.kit import ServerHome
from tidegate.engine import loop as trace
from tidegate.engine.ports import LocalTasks


def run(place: ServerHome) -> None:
    """A changefeed from the log of a place into a function."""
    uri = f"callback://tests.e2e.collected/into?home={place.home / 'got'}"
    feed = tidegate.Changefeed(f"tidb://{place.home / 'log'}", uri, name="one", state_dir=place.home / "state")
    feed.run(tasks=LocalTasks(), idle_s=0)


def test_a_round_is_a_span(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans of rounds tell their rows; writes, DDLs and publishing lie in them."""
    seen = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(seen))
    monkeypatch.setattr(api, "get_tracer", provider.get_tracer)
    trace._opener.cache_clear()
    try:
        run(ServerHome(tmp_path))
    finally:
        trace._opener.cache_clear()

    spans = seen.get_finished_spans()
    rounds = {one.context.span_id: one for one in spans if one.name == "tidegate.round"}
    inside = {one.name for one in spans if one.parent is not None and one.parent.span_id in rounds}
    assert sum(one.attributes["tidegate.rows"] for one in rounds.values()) > 0
    assert {one.attributes["tidegate.changefeed"] for one in rounds.values()} == {"one"}
    assert inside == {"tidegate.read", "tidegate.write", "tidegate.ddl", "tidegate.publish"}


def test_without_opentelemetry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changefeed runs where OpenTelemetry is not installed."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    trace._opener.cache_clear()
    try:
        run(ServerHome(tmp_path))
    finally:
        trace._opener.cache_clear()

    assert list((tmp_path / "got").iterdir())
