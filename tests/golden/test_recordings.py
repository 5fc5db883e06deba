"""Every recorded message decodes to the event that went into the real encoder."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.codec_cases import DATA, Case, cases, events, expected, variants
from tidegate.codec import DecodeOptions, decode
from tidegate.codec.claim import claim_name, open_claim
from tidegate.codec.stream import read_frames
from tidegate.model.event import Ddl, Delete, Event, Insert, Resolved, Update, Values, images

OPS = {Insert: "INSERT", Update: "UPDATE", Delete: "DELETE"}


def ids(path: Path) -> str:
    """The name of a recording, such as codec/types/open_default."""
    return "/".join((*path.parts[-3:-1], path.name.split(".")[0]))


@pytest.mark.parametrize("path", variants(), ids=ids)
def test_recorded_messages_decode_to_recorded_events(path: Path) -> None:
    """Each message gives its events, equal in every field that its configuration carries."""
    for case in cases(path):
        got = [event for key, value in case.messages for event in decode(key, value, case.options)]
        if case.checkpoint_ts is not None:
            assert got == [Resolved(case.checkpoint_ts)] * len(case.messages), case.name
            continue
        sent = [name for name in case.events if name not in case.errors]
        assert len(got) == len(sent), case.name
        for event, name in zip(got, sent, strict=True):
            recorded = events(case.stream)[name]
            assert shown(event, case) == expected(case, recorded), (case.name, name)
            check_marks(event, case)


@pytest.mark.parametrize("path", [path for path in variants() if "claim_check" in path.name], ids=ids)
def test_claim_check_files_decode_to_the_whole_event(path: Path) -> None:
    """The file of a claim check, found by the base name of its location, holds the event with all columns."""
    opened = 0
    for case in cases(path):
        for key, value in case.messages:
            for event, name in zip(decode(key, value, case.options), case.events, strict=True):
                body = case.files[claim_name(event.claim_check or "")]
                (whole,) = decode(*open_claim(body, case.options), case.options)
                assert shown(whole, case) == expected(case, events(case.stream)[name], full=True), case.name
                opened += 1
    assert opened > 50


@pytest.mark.slow
@pytest.mark.parametrize("name", ["open", "open_table", "canal", "canal_table"])
def test_workload_counts(name: str) -> None:
    """The partitions of the workload hold as many rows, resolved and DDL events as its manifest says."""
    manifest = json.loads((DATA / "workload" / "manifest.json").read_text("utf-8"))["recordings"][name]
    options = DecodeOptions(protocol=manifest["protocol"])
    unique: set[object] = set()
    for number, part in enumerate(manifest["partitions"]):
        counted = count(DATA / "workload" / name / f"p{number}.bin.gz", options, unique)
        assert counted == {kind: part.get(kind, 0) for kind in ("messages", "rows", "resolved", "ddl")}
    assert len(unique) == manifest["counts"]["rows_unique"]


def count(path: Path, options: DecodeOptions, unique: set[object]) -> dict[str, int]:
    """Messages and events of one partition; the identities of its rows go to `unique`."""
    counted = {"messages": 0, "rows": 0, "resolved": 0, "ddl": 0}
    with gzip.open(path) as file:
        for key, value in read_frames(file):
            counted["messages"] += 1
            for event in decode(key, value, options):
                kind = {Resolved: "resolved", Ddl: "ddl"}.get(type(event), "rows")
                counted[kind] += 1
                if not isinstance(event, Ddl | Resolved):
                    unique.add((event.schema, event.table, event.commit_ts, type(event), images(event)))
    return counted


def shown(event: Event, case: Case) -> dict[str, Any]:
    """`event` in the form of `expected`."""
    assert not isinstance(event, Resolved)
    found: dict[str, Any] = {"schema": event.schema, "table": event.table, "commit_ts": event.commit_ts}
    if isinstance(event, Ddl):
        found["query"] = event.query
        return found | ({"type": event.type} if case.open_protocol else {"es_ms": event.es_ms})
    before, after = images(event)
    found |= {"op": OPS[type(event)], "before": image(event, before, case), "after": image(event, after, case)}
    if case.open_protocol:
        return found | {"row_id": event.row_id, "partition_id": event.partition_id}
    return found | {"pk_names": list(event.pk_names or ()), "es_ms": event.es_ms}


def image(row: Insert | Update | Delete, values: Values | None, case: Case) -> dict[str, tuple[Any, ...]] | None:
    """Name to (type, flag, value)."""
    if values is None:
        return None
    pairs = zip(row.fields, values, strict=True)
    stale = case.stale_flags
    return {field.name: (int(field.type), None if stale else field.flag, value) for field, value in pairs}


def check_marks(event: Event, case: Case) -> None:
    """What large-message handling leaves on a row, and that handle columns are known."""
    if isinstance(event, Ddl | Resolved):
        return
    assert event.handle_only == ("handle_key_only" in case.variant)
    assert (event.claim_check is not None) == ("claim_check" in case.variant)
    keys = {field.name for field in event.fields if field.handle}
    if case.open_protocol and case.emitter == "codec":
        assert keys == {field.name for field in event.fields if (field.flag or 0) & 2}
    elif not case.open_protocol:
        assert keys == set(event.pk_names or ())
