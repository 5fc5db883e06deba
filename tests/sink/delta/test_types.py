"""Every MySQL type as a Delta column: extremes, NULL, and back again."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.engine.change import encode_value
from tidegate.engine.mount_columns import array_of
from tidegate.kv.row_columns import arrow_type as column_type
from tidegate.model.errors import SinkRefused
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.sink.delta.columns import (
    ARROW_TYPES,
    arrow_type,
    delta_type,
    from_image,
    from_neutral,
    from_text,
    map_neutral,
    to_neutral,
)

BINARY = {"charset": "binary"}
CASES = [
    (ColumnType(T.TINY), "byte", [-128, 127]),
    (ColumnType(T.TINY, unsigned=True), "short", [0, 255]),
    (ColumnType(T.SHORT), "short", [-32768, 32767]),
    (ColumnType(T.SHORT, unsigned=True), "integer", [65535]),
    (ColumnType(T.INT24), "integer", [-8388608, 8388607]),
    (ColumnType(T.INT24, unsigned=True), "integer", [16777215]),
    (ColumnType(T.LONG), "integer", [-(2**31), 2**31 - 1]),
    (ColumnType(T.LONG, unsigned=True), "long", [2**32 - 1]),
    (ColumnType(T.LONGLONG), "long", [-(2**63), 2**63 - 1]),
    (ColumnType(T.LONGLONG, unsigned=True), "decimal(20,0)", [0, 2**64 - 1]),
    (ColumnType(T.YEAR), "short", [0, 1901, 2155]),
    (ColumnType(T.BIT, 8), "long", [0, 255]),
    (ColumnType(T.BIT, 64), "decimal(20,0)", [2**64 - 1]),
    (ColumnType(T.FLOAT), "float", [0.10000000149011612, -3.4028234663852886e38]),
    (ColumnType(T.DOUBLE), "double", [1.7976931348623157e308, 5e-324, -0.5]),
    (ColumnType(T.DECIMAL, 10, 2), "decimal(10,2)", ["-99999999.99", "0.00"]),
    (ColumnType(T.DECIMAL, 38, 10), "decimal(38,10)", ["1234567890123456789012345678.0123456789"]),
    (ColumnType(T.DECIMAL, 65, 30), "string", ["9" * 35 + "." + "9" * 30]),
    (ColumnType(T.DATE), "date", ["0001-01-01", "9999-12-31"]),
    (ColumnType(T.DATETIME, decimal=6), "timestamp_ntz", ["0001-01-01 00:00:00.000001", "9999-12-31 23:59:59.999999"]),
    (ColumnType(T.DATETIME, decimal=0), "timestamp_ntz", ["1000-02-28 23:59:59"]),
    (ColumnType(T.TIMESTAMP, decimal=3), "timestamp", ["1970-01-01 00:00:01.000", "2038-01-19 03:14:07.999"]),
    (ColumnType(T.TIME, decimal=3), "string", ["-838:59:59.000", "838:59:59.000"]),
    (ColumnType(T.VARCHAR), "string", ["", "é 测 😀", " trailing "]),
    (ColumnType(T.BLOB), "string", ["a text"]),
    (ColumnType(T.BLOB, **BINARY), "binary", [b"", b"\x00\xff"]),
    (ColumnType(T.STRING, 4, **BINARY), "binary", [b"ab\x00\x00"]),
    (ColumnType(T.JSON), "string", ['{"a": 18446744073709551615}']),
    (ColumnType(T.VECTOR), "string", ["[1,2]"]),
]


@pytest.mark.parametrize(("column", "delta", "values"), CASES, ids=lambda value: str(value)[:40])
def test_values_survive(column, delta, values):
    """The extremes and NULL of each type come back as they went in."""
    assert delta_type(column) == delta
    texts = pa.array([encode_value(value) for value in [*values, None]], pa.binary())
    stored = from_text(texts, column, delta)

    assert stored.type == arrow_type(delta)
    assert to_neutral(stored, column, time_zone="UTC") == [*values, None]


@pytest.mark.parametrize(("column", "delta", "values"), CASES, ids=lambda value: str(value)[:40])
def test_typed_values_are_their_texts(column, delta, values):
    """Whatever a column is stored as, typed values give what their texts give, also where they do not fit."""
    typed = array_of([*values, None], column_type(column))
    texts = pa.array([encode_value(value) for value in [*values, None]], pa.binary())

    def stored(values, target):
        try:
            return from_image(values, column, target, time_zone="UTC", zero_date="null")
        except pa.ArrowInvalid:
            return None

    assert stored(typed, delta) is not None
    for target in (*ARROW_TYPES, "decimal(10,2)", "decimal(20,0)", "decimal(38,10)"):
        assert stored(typed, target) == stored(texts, target), target


def test_enum_and_set_become_names():
    """Numbers become names in definition order; 0 is the empty value; without a definition the number stays as text."""
    texts = pa.array([b"2", b"0", None], pa.binary())
    names = ColumnType(T.ENUM, elems=("a", "b,c"))

    assert from_text(texts, names, "string").to_pylist() == ["b,c", "", None]
    assert from_text(texts, ColumnType(T.ENUM), "string").to_pylist() == ["2", "0", None]
    flags = ColumnType(T.SET, elems=("x", "y", "z"))
    assert from_text(pa.array([b"5", b"0"]), flags, "string").to_pylist() == ["x,z", ""]
    typed = pa.array([2, 0, None], pa.uint64())
    assert from_image(typed, names, "string", time_zone="UTC", zero_date="null").to_pylist() == ["b,c", "", None]


ZEROS = pa.array([b"0000-00-00 00:00:00", b"2020-00-10 00:00:00", b"2020-10-00 00:00:00", b"2020-10-10 00:00:00"])


def test_zero_dates_follow_their_policy():
    """NULL, text or an error that names the ways out."""
    column = ColumnType(T.DATETIME, decimal=0)

    assert from_text(ZEROS, column, "timestamp_ntz").to_pylist() == [None, None, None, datetime(2020, 10, 10)]  # noqa: DTZ001
    assert from_text(ZEROS, column, delta_type(column, zero_date="string")).to_pylist()[0] == "0000-00-00 00:00:00"
    with pytest.raises(SinkRefused, match="zero-date"):
        from_text(ZEROS, column, "timestamp_ntz", zero_date="error")


@pytest.mark.parametrize(
    ("code", "delta", "text"),
    [(T.DATETIME, "timestamp_ntz", b"0000-05-05 10:00:00"), (T.DATE, "date", b"0000-05-05")],
)
def test_the_year_0_is_a_zero_date(code, delta, text):
    """Arrow has it, Delta has not."""
    column = ColumnType(code, decimal=0)
    texts = pa.array([text, None, text.replace(b"0000", b"0001")])

    assert from_text(texts, column, delta).is_valid().to_pylist() == [False, False, True]
    with pytest.raises(SinkRefused, match="zero-date"):
        from_text(texts, column, delta, zero_date="error")


def test_timestamps_are_read_in_the_changefeed_s_zone():
    """The wall clock of the message becomes UTC, also where clocks go back."""
    column = ColumnType(T.TIMESTAMP, decimal=0)
    texts = pa.array([b"2024-07-01 12:00:00", b"2024-10-27 02:30:00"])
    stored = from_text(texts, column, "timestamp", time_zone="Europe/Berlin")

    assert stored.to_pylist()[0] == datetime(2024, 7, 1, 10, tzinfo=UTC)
    assert to_neutral(stored, column, time_zone="Europe/Berlin") == ["2024-07-01 12:00:00", "2024-10-27 02:30:00"]


def test_bytes_that_are_no_text_lose_only_themselves():
    """A text column with raw bytes from a newer emitter keeps the rest of its text."""
    assert from_text(pa.array([b"a\xffb"]), ColumnType(T.VARCHAR), "string").to_pylist() == ["a\ufffdb"]


def test_inferred_types_promise_no_more_than_messages_tell():
    """A DECIMAL or BIT of unknown size takes the type that holds them all."""
    assert delta_type(ColumnType(T.DECIMAL), inferred=True) == "string"
    assert delta_type(ColumnType(T.BIT), inferred=True) == "decimal(20,0)"


@given(
    st.lists(
        st.none() | st.decimals(allow_nan=False, allow_infinity=False, places=3, max_value=10**9, min_value=-(10**9))
    )
)
def test_decimals_round_trip(values):
    """Any decimal of the column's scale is stored exactly."""
    column = ColumnType(T.DECIMAL, 18, 3)
    texts = [None if value is None else f"{value:.3f}" for value in values]

    assert to_neutral(
        from_neutral(texts, column, "decimal(18,3)", time_zone="UTC", zero_date="null"), column, time_zone="UTC"
    ) == [None if text is None else f"{Decimal(text):.3f}" for text in texts]


def test_conversions_run_once_a_value():
    """A rule sees each distinct stored value once, and NULL as itself."""
    seen = []

    def rule(value):
        seen.append(value)
        return None if value is None else value[:10]

    old, new = ColumnType(T.DATETIME, decimal=0), ColumnType(T.DATE)
    stored = from_text(pa.array([b"2020-01-02 03:04:05"] * 3 + [None]), old, "timestamp_ntz")
    turned = map_neutral(stored, old, new, "date", rule, time_zone="UTC", zero_date="null")

    assert turned.to_pylist() == [date(2020, 1, 2)] * 3 + [None]
    assert sorted(seen, key=str) == ["2020-01-02 03:04:05", None]


@pytest.mark.parametrize(
    ("delta", "text"),
    [
        *(("decimal(10,2)", "9" * digits) for digits in (9, 38, 39, 76, 400)),
        ("decimal(38,0)", "1" + "0" * 38),
        ("decimal(38,38)", "0." + "1" * 41),
        *(("double", text) for text in ("nan", "inf", "1e999")),
        ("float", "-1e999"),
    ],
)
def test_no_number_is_stored_as_another(delta, text):
    """A text of more digits than the type has, or of no number, is refused: Arrow would take it for another number."""
    with pytest.raises(pa.ArrowInvalid):
        from_text(pa.array(["1", None, text]), ColumnType(T.DECIMAL), delta)


def test_digits_of_other_scripts_are_no_number():
    """Where an ENUM comes as text, only digits that name an index do."""
    column = ColumnType(T.ENUM, elems=("x", "y"))
    found = from_text(pa.array(["2", "\u00b2", "\u0662", "9" * 5_000, None]), column, "string")
    assert found.to_pylist() == ["y", "\u00b2", "\u0662", "9" * 5_000, None]


@pytest.mark.parametrize(("flen", "decimal"), [(0, 0), (10, 20), (100, 2), (38, 39)])
def test_no_column_has_a_precision_that_delta_lacks(flen, decimal):
    """Messages may declare what no MySQL has; a lake with such a column could not be read any more."""
    for inferred in (True, False):
        kind = delta_type(ColumnType(T.DECIMAL, flen, decimal), inferred=inferred)
        assert kind in {"string", "decimal(10,0)"}
