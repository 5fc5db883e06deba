"""Event lines are read as they were printed, and nothing but EncodeError comes of junk."""

import copy
import gzip
import json
import random
from typing import Any

import pytest

from tests.golden.codec_cases import DATA
from tidegate.codec import BatchEncoder, DecodeOptions, EncodeOptions, decode
from tidegate.codec.neutral import event_object, render
from tidegate.codec.neutral_read import EventReader
from tidegate.model.errors import EncodeError
from tidegate.model.event import Ddl, Delete, Event, Field, Insert, Resolved, Update

JUNK: tuple[Any, ...] = (
    None, True, -1, 0, 1 << 63, 1 << 64, 1 << 70, 1.5, "", "x", "\ud800", [], {}, {"i": 1}, {"s": "x"}, {"b": "AA=="},
    {"u": -1}, {"f64": 1e308}, ["a"],
)  # fmt: skip
FIELDS = (
    Field("id", 3, 11, binary=True, handle=True),
    Field("u", 8, 193, unsigned=True, binary=True),
    Field("f", 4, 65, binary=True),
    Field("d", 5, 65, binary=True),
    Field("s", 15, 64),
    Field("b", 252, 65, binary=True),
    Field("v", 225, 65, binary=True),
)
VALUES = (1, (1 << 64) - 1, 0.5, 1e300, "é\udcff", b"\xff", "[1]")
SHARED: dict[str, Any] = {"schema": "s", "table": "t", "fields": FIELDS, "commit_ts": 5, "row_id": -1}


@pytest.mark.parametrize(
    "event",
    [
        Insert(after=VALUES, **SHARED),
        Update(before=VALUES, after=(1, *[None] * 6), **SHARED),
        Delete(before=VALUES, partition_id=7, pk_names=("id",), handle_only=True, claim_check="x/y", **SHARED),
        Ddl(schema="s", table="", query="CREATE DATABASE s", commit_ts=5, type=1),
        Ddl(schema="s", table="t", query="q", es_ms=5, canal_type="CREATE"),
        Resolved((1 << 64) - 1),
    ],
)
def test_printed_events_are_read_back(event: Event) -> None:
    """A line that `neutral` prints gives the event that it was printed of."""
    found = EventReader().read(render(event_object(event)))
    assert found is not None
    assert found.event == event


def test_table_lines_describe_the_rows_that_name_them() -> None:
    """A row's types come from its table line; a line of another kind is no event."""
    reader = EventReader()
    column = {"name": "e", "type": 247, "flag": 64, "charset": "utf8mb4", "elems": ["a"], "tidb_flag": 0}
    hidden = {"name": "h", "type": 3, "flag": 65, "visible_to_cdc": False}
    assert reader.read(json.dumps({"kind": "table", "ref": "r", "columns": [column, hidden]})) is None
    assert reader.read('{"kind":"error"}') is None
    row = {"kind": "row", "op": "INSERT", "schema": "s", "table": "t", "table_ref": "r", "commit_ts": 1}
    values = [{"name": "e", "type": 247, "flag": 64, "value": {"u": 1}}]
    first, second = (reader.read(json.dumps({**row, "columns": values})) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.table is second.table
    assert first.table is not None
    assert first.table.columns[0].type.elems == ("a",)


def test_row_keys() -> None:
    """The key of a row in TiKV is made of its table and its handle."""
    line = {**json.loads(render(event_object(Insert(after=VALUES, **SHARED)))), "physical_table_id": 1}
    found = EventReader().read(json.dumps({**line, "handle_hex": "8000000000000001"}))
    assert found is not None
    assert found.row_key == b"t\x80" + bytes(6) + b"\x01_r\x80" + bytes(6) + b"\x01"
    with pytest.raises(EncodeError, match="handle"):
        EventReader().read(json.dumps({**line, "handle_hex": "x"}))


def test_junk_is_refused_and_all_else_decodes() -> None:
    """Of a damaged line comes EncodeError, or a message that every reader takes."""
    rng = random.Random(5)
    with gzip.open(DATA / "codec" / "types" / "events.jsonl.gz") as file:
        lines = [line for line in file if len(line) < 5000]
    reader = EventReader()
    for line in lines:
        reader.read(line)
    rows = [line for line in lines if b'"kind":"row"' in line]
    outcomes = [outcome(reader, damaged(rng, json.loads(rng.choice(rows)))) for _ in range(1500)]
    assert min(outcomes.count(True), outcomes.count(False)) > 100


def outcome(reader: EventReader, line: str) -> bool:
    """Whether the line gave messages; each is decoded."""
    try:
        found = reader.read(line)
        if found is None:
            return False
        for protocol in ("open-protocol", "canal-json"):
            encoder = BatchEncoder(EncodeOptions(protocol=protocol, enable_tidb_extension=True))
            for message in (*encoder.append(found.event, found.table), *encoder.flush()):
                assert decode(message.key, message.value, DecodeOptions(protocol=protocol))
    except EncodeError:
        return False
    return True


def damaged(rng: random.Random, line: dict[str, Any]) -> str:
    """A line with a member, anywhere, replaced by junk or taken away."""
    del line["sql"]
    place: Any = line
    while True:
        key = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if isinstance(place[key], dict | list) and place[key] and rng.random() < 0.8:
            place = place[key]
            continue
        if isinstance(place, dict) and rng.random() < 0.2:
            del place[key]
        else:
            place[key] = copy.deepcopy(rng.choice(JUNK))
        return json.dumps(line)
