"""Event JSON has the form of the recorded event lines."""

import json
from typing import Any

import pytest

from tests.golden.codec_cases import cases, events, variants
from tidegate.codec import decode
from tidegate.codec.neutral import error_object, event_object, render
from tidegate.model.errors import DecodeError
from tidegate.model.event import Ddl, Field, Insert, Resolved, Value

PLAIN = [path for path in variants() if path.name == "open_default.jsonl.gz" and path.parent.parent.name == "codec"]


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.parent.name)
def test_open_protocol_renders_as_recorded(path: Any) -> None:
    """Columns, flags, types and value objects are those of the recording, text as `s` where it is recorded as `b`."""
    for case in cases(path):
        for (key, value), name in zip(case.messages, case.events, strict=False):
            (event,) = decode(key, value, case.options)
            found, recorded = json.loads(render(event_object(event))), events(case.stream)[name]
            for member in ("kind", "op", "schema", "table", "commit_ts", "type", "query"):
                assert found.get(member) == recorded.get(member), (name, member)
            for image in ("columns", "pre_columns"):
                assert by_name(found.get(image)) == by_name(recorded.get(image)), name


def by_name(columns: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    """Columns by name, text and bytes both as the bytes in base64."""
    import base64

    if columns is None:
        return None
    shown = {}
    for column in columns:
        value = column["value"]
        if value is not None and "b" in value and not column["flag"] & 1:
            text = base64.b64decode(value["b"]).decode("utf-8", "replace")
            value = {"s": text}
        shown[column["name"]] = (column["type"], column["flag"], value)
    return shown


def value_of(field: Field, value: Value) -> Any:
    """The value object of one column."""
    row = Insert(schema="s", table="t", fields=(field,), after=(value,), commit_ts=1)
    return json.loads(render(event_object(row)))["columns"][0]["value"]


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        (Field("c", 3), 1, {"i": 1}),
        (Field("c", 8), 1 << 63, {"u": 1 << 63}),
        (Field("c", 8, unsigned=True), 1, {"u": 1}),
        (Field("c", 13, unsigned=True), 2024, {"i": 2024}),
        (Field("c", 16), 1, {"u": 1}),
        (Field("c", 4), 16777216.0, {"f32": 16777216.0, "s": "1.6777216e+07"}),
        (Field("c", 4), -0.10000000149011612, {"f32": -0.10000000149011612, "s": "-0.1"}),
        (Field("c", 4), 3.4028234663852886e38, {"f32": 3.4028234663852886e38, "s": "3.4028235e+38"}),
        (Field("c", 5), 1e20, {"f64": 1e20}),
        (Field("c", 15), "é\udcff", {"b": "w6n/"}),
        (Field("c", 15, binary=True), b"\0", {"b": "AA=="}),
        (Field("c", 225), "[1]", {"vec": "[1]"}),
        (Field("c", 225), "\udcff", {"b": "/w=="}),
        (Field("c", 15), None, None),
    ],
)
def test_value_objects(field: Field, value: Value, shown: Any) -> None:
    """Each kind of value has its object; text that is not UTF-8 keeps its bytes."""
    assert value_of(field, value) == shown


def test_lines_stay_lines() -> None:
    """Characters at which some readers break lines are escaped."""
    row = Insert(schema="s", table="t", fields=(Field("c", 15),), after=("a\x85b\u2028c\u2029d\ne",))
    (line,) = render(event_object(row)).decode().splitlines()
    assert json.loads(line)["columns"][0]["value"] == {"s": "a\x85b\u2028c\u2029d\ne"}


def test_lines_steer_no_terminal() -> None:
    """What a terminal obeys is escaped, in names and in values, and reads back as it was."""
    text = "\x1b[2J\x7f\x9b1m\u200f\u202e\u2066é表😀"
    row = Insert(schema=text, table="t", fields=(Field(text, 15),), after=(text,))
    line = render(event_object(row)).decode()
    assert line.isprintable()
    assert "é表😀" in line
    found = json.loads(line)
    assert (found["schema"], found["columns"][0]["name"], found["columns"][0]["value"]) == (text, text, {"s": text})


def test_absent_members_and_marks() -> None:
    """What a message did not carry is absent, marks stand only where they are set, all of it strict UTF-8 JSON."""
    row = Insert(schema="\udcff", table="t", fields=(), after=(), handle_only=True, claim_check="a", pk_names=("x",))
    assert json.loads(render(event_object(row)).decode("utf-8")) == {
        "kind": "row",
        "op": "INSERT",
        "schema": "\ufffd",
        "table": "t",
        "pk_names": ["x"],
        "only_handle_key": True,
        "claim_check": "a",
        "columns": [],
        "pre_columns": None,
    }
    assert event_object(Resolved(7)) == {"kind": "resolved", "ts": 7}
    assert event_object(Ddl(schema="", table="", query="q", canal_type="QUERY")) == {
        "kind": "ddl",
        "schema": "",
        "table": "",
        "canal_type": "QUERY",
        "query": "q",
    }
    assert error_object(3, DecodeError("bad \udcff", "x", 9)) == {
        "kind": "error",
        "message_index": 3,
        "offset": 9,
        "error": "x: bad \ufffd at byte 9",
        "code": "CDC:ErrDecodeFailed",
    }
