"""Texts of events as values of columns, and back."""

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.encode_kit import event_lines
from tests.kv.kv_recordings import STREAMS, lines, raw
from tests.kv.test_made_pairs import KINDS
from tidegate.engine.mount import Mounter
from tidegate.kv import Row, decode_row, encode_row
from tidegate.model.errors import EncodeError, SchemaError
from tidegate.model.event import images
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.column_value import column_text, parse_value, write_value
from tidegate.mysql.datum import Duration, JsonDatum, Unsigned, Vector
from tidegate.mysql.packed_time import Time
from tidegate.schema.job import decode_job_row
from tidegate.schema.stored.snapshot import SchemaHistory

LOST_IN_TEXT = "base64:type"
"""JSON text does not tell opaque bytes, dates and decimals from what they are printed as."""
TEXT_KINDS = ["decimal", "datetime", "date", "vector"]


def recorded_rows(stream):
    """Layout, key, value and event of every recorded row that has a value."""
    history = SchemaHistory()
    mounter = Mounter(history, force_replicate=True)
    for line in lines(stream):
        if line.get("ddl_done") and not line.get("mount_error"):
            history.apply(decode_job_row(raw(line, "key_b64"), raw(line, "value_b64")), line["commit_ts"])
        if line["kind"] == "record" and line.get("row") and line["value_b64"]:
            key, value = raw(line, "key_b64"), raw(line, "value_b64")
            mounted = mounter.mount(key, value, raw(line, "old_value_b64"), line["commit_ts"])
            yield mounted, key, value, event_lines(stream)[line["row"]["id"]].event


@pytest.mark.parametrize("stream", STREAMS)
def test_recorded_events_become_their_rows(stream):
    """The values of each recorded event, parsed and written as the row's columns, are the recorded bytes."""
    checked = 0
    for mounted, key, value, event in recorded_rows(stream):
        layout = mounted.table.layout
        row = decode_row(layout, key, value)
        after = dict(zip([plan.id for plan in mounted.table.plans], images(event)[1], strict=True))
        if any(isinstance(text, str) and LOST_IN_TEXT in text for text in after.values()):
            continue
        columns = {i: parse_value(layout.by_id[i].type, after[i]) for i in row.stored if i in after}
        hidden = {i: row.columns[i] for i in row.stored if i not in after}
        again = Row(row.table_id, row.handle, {**columns, **hidden}, row.stored, row.version, None, row.unknown)
        assert encode_row(layout, again) == (key, value)
        checked += 1

    assert checked >= 4


@pytest.mark.parametrize("name", TEXT_KINDS)
@given(data=st.data())
def test_texts_come_back(name, data):
    """What is printed parses to a value of the same bytes."""
    kind, values = KINDS[name]
    value = data.draw(values)
    text = column_text(kind, value)

    assert write_value(kind, parse_value(kind, text)) == write_value(kind, value)
    assert column_text(kind, parse_value(kind, text)) == text


@given(micros=st.integers(-(838 * 3600 * 10**6), 838 * 3600 * 10**6))
def test_spans(micros):
    """A TIME of whole microseconds comes back whole."""
    kind = ColumnType(T.TIME, decimal=6)

    assert parse_value(kind, column_text(kind, Duration(micros * 1000))) == Duration(micros * 1000)


def test_kinds():
    """Numbers take the sign of their column, strings are UTF-8, a TIMESTAMP goes to UTC, JSON numbers stay exact."""
    shanghai = ZoneInfo("Asia/Shanghai")

    assert type(parse_value(ColumnType(T.LONG, unsigned=True), 5)) is Unsigned
    assert type(parse_value(ColumnType(T.YEAR, unsigned=True), 2024)) is int
    assert type(parse_value(ColumnType(T.ENUM), 1)) is Unsigned
    assert parse_value(ColumnType(T.VARCHAR), "é\udcff") == b"\xc3\xa9\xff"
    assert parse_value(ColumnType(T.TIMESTAMP), "2020-01-02 04:00:00", shanghai) == Time(2020, 1, 1, 20)
    assert parse_value(ColumnType(T.TIMESTAMP), "0000-00-00 00:00:00", shanghai) == Time(0, 0, 0)
    assert parse_value(ColumnType(T.DATETIME), "2020-01-02 04:00:00", shanghai) == Time(2020, 1, 2, 4)
    assert parse_value(ColumnType(T.JSON), "[1, 1.0, 18446744073709551615, 18446744073709551616]") == JsonDatum(
        [1, 1.0, 18446744073709551615, 1.8446744073709552e19]
    )
    assert parse_value(ColumnType(T.VECTOR), "[]") == Vector()
    assert parse_value(ColumnType(T.JSON), None, UTC) is None


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (T.DATETIME, "2020-13-01 00:00:00"),
        (T.DATETIME, "yesterday"),
        (T.TIMESTAMP, "2020-02-30 00:00:00"),
        (T.TIME, "1:2:3"),
        (T.DECIMAL, "12,5"),
        (T.JSON, "{"),
        (T.JSON, "[1e999]"),
        (T.JSON, "[" * 100_000),
        (T.VECTOR, "[a]"),
        (T.LONG, "x"),
        (T.GEOMETRY, b""),
    ],
)
def test_what_no_column_holds(code, value):
    """A text that is no value of the type is an EncodeError that shows it, never another error."""
    with pytest.raises(EncodeError):
        parse_value(ColumnType(code), value, ZoneInfo("Asia/Shanghai"))
    assert not issubclass(EncodeError, SchemaError)
