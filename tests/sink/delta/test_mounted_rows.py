"""Rows of TiKV that a load mounts with typed columns are in a lake what their texts are there."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.test_mount_columns import recorded
from tests.kv.kv_recordings import STREAMS
from tests.kv.test_made_pairs import KINDS
from tests.kv.test_totality import TIMES
from tidegate.engine import mount_columns
from tidegate.engine.mount import converter
from tidegate.engine.mount_columns import ColumnMounter
from tidegate.kv.row_columns import ReadValues, column_reader, exact_type, locate
from tidegate.kv.rows import encode_raw_row
from tidegate.kv.slices import slices
from tidegate.model.errors import SinkRefused
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.column_value import read_value, write_value
from tidegate.mysql.datum import DecimalDatum
from tidegate.mysql.encoding import DecimalForm
from tidegate.mysql.packed_time import Time
from tidegate.sink.delta.columns import delta_type, from_image

DAYS = st.datetimes(datetime(1, 1, 1)).map(lambda at: Time(*at.timetuple()[:6], at.microsecond))  # noqa: DTZ001
WIDTHS = st.tuples(st.integers(0, 30), st.integers(0, 65)).map(lambda two: DecimalForm(max(*two, 1), two[0]))


def column(kind: ColumnType, cells: list[bytes | None], *, typed: bool) -> ReadValues:
    """What a column of these values holds."""
    rows = slices(pa.array([encode_raw_row({1: raw}) for raw in cells], pa.binary()))
    found = locate(rows, [1])
    return column_reader(kind, lambda raw: converter(kind)(read_value(kind, raw)), typed=typed)(
        found.data, found.cells[1]
    )


def stored(
    array: Any, kind: ColumnType, zero_date: str, *, zone: str = "UTC", exact: bool = False, delta: str = ""
) -> Any:
    """The column of a lake, or why it has none; `delta` is its type where it has kept another one."""
    delta = delta or delta_type(kind, zero_date=zero_date)
    try:
        return from_image(array, kind, delta, time_zone=zone, zero_date=zero_date, exact=exact).to_pylist()
    except (pa.ArrowInvalid, SinkRefused) as error:
        return type(error), str(error)


def number(form: DecimalForm, digits: int) -> bytes:
    """A number of so many digits."""
    value = Decimal(f"{digits % 10**form.precision * (-1) ** (digits % 2)}E-{form.scale}")
    return write_value(ColumnType(T.DECIMAL), DecimalDatum(value, form))


@st.composite
def values(draw: st.DrawFn) -> tuple[ColumnType, list[bytes | None]]:
    """A type, and values of it: zero dates, days that no month has, numbers of another precision, bytes of any kind."""
    code = draw(st.sampled_from([T.DATE, T.DATETIME, T.TIMESTAMP, T.DECIMAL, None]))
    cells: st.SearchStrategy[bytes]
    if code is None:
        kind, plain = KINDS[draw(st.sampled_from(list(KINDS)))]
        cells = plain.map(lambda value: write_value(kind, value))
    elif code is T.DECIMAL:
        form = draw(WIDTHS)
        kind, odd = ColumnType(code, *form, charset="binary"), draw(st.just(form) | WIDTHS)
        cells = st.tuples(st.sampled_from([form, form, odd]), st.integers(0, 10**65)).map(lambda two: number(*two))
    else:
        kind = ColumnType(code, decimal=draw(st.integers(0, 6)), charset="binary")
        times = DAYS if draw(st.booleans()) else DAYS | TIMES | st.just(Time(0, 0, 0))
        cells = times.map(lambda time: write_value(kind, time))
    junk = st.nothing() if draw(st.booleans()) else st.binary(max_size=12)
    return kind, draw(st.lists(st.none() | cells | junk, min_size=1, max_size=8))


@pytest.mark.slow
@settings(deadline=None, max_examples=600)
@given(
    drawn=values(),
    zero_date=st.sampled_from(["null", "error", "string"]),
    zone=st.sampled_from(["UTC", "Europe/Berlin"]),
    exact=st.booleans(),
    delta=st.sampled_from(["", "", "string", "decimal(9,1)"]),
)
def test_values(drawn, zero_date, zone, exact, delta):
    """Of all types, policies, zones and forms; what cannot be read is the same, too."""
    kind, cells = drawn
    (texts, unread), (typed, odd) = (column(kind, cells, typed=each) for each in (False, True))

    assert odd.tolist() == unread.tolist()
    found, expected = (stored(each, kind, zero_date, zone=zone, exact=exact, delta=delta) for each in (typed, texts))
    assert repr(found) == repr(expected), "0.0 is not -0.0"


EXACT = [
    (ColumnType(T.DATE), [Time(2024, 2, 29), None, Time(1, 1, 1)], [date(2024, 2, 29), None, date(1, 1, 1)]),
    (ColumnType(T.DATETIME, decimal=0), [Time(1969, 12, 31, 23, 59, 59)], [datetime(1969, 12, 31, 23, 59, 59)]),  # noqa: DTZ001
    (ColumnType(T.TIMESTAMP, decimal=2), [Time(2038, 1, 19, 3, 14, 7, 129_999)], [datetime(2038, 1, 19, 3, 14, 7, 120_000)]),  # noqa: DTZ001, E501
    (ColumnType(T.DECIMAL, 36, 18), [Decimal("-" + "9" * 18 + "." + "9" * 18), None, Decimal(0)], ...),
    (ColumnType(T.DECIMAL, 4, 4), [Decimal("0.0001"), Decimal("-0.9999")], ...),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "plain", "expected"), EXACT)
def test_columns_are_typed(kind, plain, expected):
    """Where the type holds all values; one that it does not hold makes the column one of texts."""
    cells = [None if value is None else write_value(kind, value) for value in plain]
    odd = [Time(2023, 2, 29)] if kind.code is not T.DECIMAL else [DecimalDatum(Decimal(0), DecimalForm(4, 3))]

    array = column(kind, cells, typed=True).array

    assert array.type == exact_type(kind) != pa.string()
    assert array.to_pylist() == (plain if expected is ... else expected)
    assert column(kind, [*cells, write_value(kind, odd[0])], typed=True).array.type == pa.string()


@pytest.mark.slow
@pytest.mark.parametrize("stream", STREAMS)
def test_recorded_rows(stream, monkeypatch):
    """Whole rows as a cluster wrote them, old forms, origin defaults and columns of handles among them."""
    monkeypatch.setattr(mount_columns, "_UNREAD_SHARE", 1)
    count = 0
    for mounter, table_id, rows in recorded(stream):
        pairs = [(key, value) for key, value, *_ in rows if value]
        if not pairs:
            continue
        keys, stored_rows = (slices(pa.array(each, pa.binary())) for each in zip(*pairs, strict=True))
        ts = max(row[3] for row in rows)
        texts, typed = (
            ColumnMounter(mounter, typed=each).inserts(table_id, keys, stored_rows, ts) for each in (False, True)
        )
        assert texts.definition == typed.definition
        kinds = {each.name: each.type for each in texts.definition.columns}
        for name in texts.after.column_names:
            found, expected = (stored(each.after.column(name), kinds[name], "null") for each in (typed, texts))
            assert found == expected, (table_id, name)
        count += typed.rows

    assert count >= 4
