"""The columns at the waist: values as texts, layouts as JSON, DDLs once and in order."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.change import (
    EventPosition,
    Layout,
    SourceDdl,
    decode_layout,
    encode_layout,
    encode_row,
    encode_value,
    ordered_ddls,
)
from tidegate.model.event import Ddl, Delete, Field, Insert, Update

FIELDS = (Field("id", 3, 11, handle=True), Field("näme", 15, 64, "varchar"))


def placed(partition: int, offset: int, ts: int, query: str, table: str = "t", *, seq: int = 0) -> SourceDdl:
    return SourceDdl(
        EventPosition("a", partition, offset, seq), Ddl(schema="s", table=table, query=query, commit_ts=ts)
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (0, b"0"),
        (-(1 << 63), b"-9223372036854775808"),
        ((1 << 64) - 1, b"18446744073709551615"),
        (0.1, b"0.1"),
        (1e22, b"1e+22"),
        ("", b""),
        ("é", "é".encode()),
        ("\udcff", b"\xff"),
        (b"\x00\xff", b"\x00\xff"),
    ],
)
def test_values_as_texts(value, text):
    """Integers are decimal digits, floats shortest digits, text UTF-8, bytes themselves, NULL nothing."""
    assert encode_value(value) == text


@given(value=st.floats(allow_nan=False))
def test_floats_come_back(value):
    """The text of a float names that float and no other."""
    text = encode_value(value)

    assert text is not None
    assert float(text) == value
    assert math.copysign(1, float(text)) == math.copysign(1, value)


def test_rows_as_images():
    """Every kind of change has its letter and exactly the images that it has."""
    shared = {"schema": "s", "table": "t", "fields": FIELDS, "commit_ts": 5}

    assert encode_row(Insert(after=(1, "a"), **shared)) == ("I", None, [b"1", b"a"])
    assert encode_row(Update(before=(1, None), after=(2, "b"), **shared)) == ("U", [b"1", None], [b"2", b"b"])
    assert encode_row(Delete(before=(1, "a"), **shared)) == ("D", [b"1", b"a"], None)


def test_layouts_come_back():
    """A layout text holds the fields and the key names, and equal layouts have equal texts."""
    row = Insert(schema="s", table="t", fields=FIELDS, pk_names=("id",), after=(1, "a"))
    twin = Insert(schema="x", table="y", fields=tuple(FIELDS), pk_names=("id",), after=(2, "b"))

    assert decode_layout(encode_layout(row)) == Layout(FIELDS, ("id",))
    assert encode_layout(row) == encode_layout(twin)


def test_a_ddl_counts_once():
    """Partitions repeat a DDL and restarts send it again; it stays one, seen where its lowest place is."""
    seen = [placed(1, 7, 10, "create"), placed(0, 3, 10, "create"), placed(0, 90, 10, "create")]

    assert ordered_ddls(seen) == [placed(0, 3, 10, "create")]


def test_ddls_of_one_ts_keep_their_arrival():
    """RENAME TABLE of several tables sends events with one commit_ts, whose order matters."""
    seen = [placed(1, 5, 10, "r1", "a"), placed(1, 6, 10, "r2", "b"), placed(0, 8, 10, "r1", "a")]
    seen += [placed(0, 8, 10, "r2", "b", seq=1), placed(0, 2, 4, "z")]

    assert [one.ddl.query for one in ordered_ddls(reversed(seen))] == ["z", "r1", "r2"]


def test_a_place_says_where():
    """A place reads as topic, partition and offset; that of a change log has none of them."""
    assert str(EventPosition("shop", 2, 7041, 3)) == "topic shop partition 2 offset 7041"
    assert str(EventPosition(seq=3)) == "event 3 of the change log"
    assert EventPosition(seq=2) < EventPosition(seq=3) < EventPosition("a", 0, 0)
