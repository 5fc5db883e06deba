"""Laws that hold for every value."""

import json
import math
from decimal import ROUND_HALF_UP, Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.expr.change import Rule, converter, family_of
from tidegate.model.mysql import Family
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType as C
from tidegate.mysql.column_value import parse_document
from tidegate.mysql.conversion import float_text
from tidegate.mysql.json_value import render_json
from tidegate.schema.literal import cast_literal

BIGINT, VARCHAR, DOUBLE = C(T.LONGLONG), C(T.VARCHAR, 400), C(T.DOUBLE)
DATETIME6, DATETIME = C(T.DATETIME, decimal=6), C(T.DATETIME)
SIGNED = st.integers(-(1 << 63), (1 << 63) - 1)
TARGETS = [
    BIGINT,
    C(T.TINY, unsigned=True),
    C(T.YEAR),
    C(T.FLOAT),
    C(T.DOUBLE, 8, 3),
    C(T.DECIMAL, 12, 4),
    C(T.STRING, 3),
    C(T.STRING, 3, charset="binary"),
    C(T.DATE),
    DATETIME6,
    C(T.TIMESTAMP),
    C(T.TIME, decimal=1),
    C(T.ENUM, elems=("a", "b")),
    C(T.SET, elems=("a", "b")),
]


def rule(old: C, new: C) -> Rule:
    found = converter(old, new)
    assert found is not None
    return found


@given(SIGNED)
def test_integer_survives_text(number: int) -> None:
    """INT -> VARCHAR -> INT is the identity."""
    assert rule(VARCHAR, BIGINT)(rule(BIGINT, VARCHAR)(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_double_survives_text(number: float) -> None:
    """DOUBLE -> VARCHAR -> DOUBLE is the identity, and the text has no exponent."""
    text = rule(DOUBLE, VARCHAR)(number)
    assert isinstance(text, str)
    assert "e" not in text.lower()
    assert rule(VARCHAR, DOUBLE)(text) == number


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float_survives_text(number: float) -> None:
    """FLOAT -> VARCHAR -> FLOAT is the identity."""
    assert rule(VARCHAR, C(T.FLOAT))(float_text(number, single=True)) == number


@pytest.mark.parametrize(
    ("number", "digits"),
    [(math.ldexp(2 - 2.0**-23, 127), "3.4028235e38"), (2.0**87, "1.5474251e26"), (2.0**90, "1.2379401e27")],
)
def test_float_has_as_few_digits_as_in_go(number: float, digits: str) -> None:
    """The shortest digits of the largest FLOAT, and of powers of two, may lie above the number."""
    assert float_text(number, single=True) == format(Decimal(digits), "f")


@given(st.decimals(-(10**30), 10**30, allow_nan=False, places=8), st.integers(0, 10))
def test_decimal_rounds_like_the_decimal_module(number: Decimal, scale: int) -> None:
    """Fewer decimals are rounded half away from zero, more are padded."""
    text = rule(C(T.DECIMAL, 40, 8), C(T.DECIMAL, 41, scale))(format(number, "f")) if scale != 8 else None
    expected = number.quantize(Decimal(1).scaleb(-scale), context=Context(prec=80, rounding=ROUND_HALF_UP))
    if text is not None:
        assert Decimal(str(text)) == expected
        assert len(str(text).partition(".")[2]) == scale


@given(st.datetimes())
def test_rounding_a_clock_moves_it_by_half_a_second_at_most(moment: object) -> None:
    """DATETIME(6) -> DATETIME yields a nearest second, and rounding twice changes nothing more."""
    text = f"{moment:%Y-%m-%d %H:%M:%S.%f}".rjust(26, "0")
    once = rule(DATETIME6, DATETIME)(text)
    again = rule(DATETIME, DATETIME6)(once)
    assert rule(DATETIME6, DATETIME)(again) == once


@given(st.text(max_size=40), st.sampled_from(TARGETS))
def test_any_text_becomes_some_value(text: str, new: C) -> None:
    """Text that means nothing for the new type still becomes a value of it, and that value reads back as itself."""
    value = cast_literal(text, new)
    assert value is not None
    if family_of(new) not in {Family.YEAR, Family.INT, Family.FLOAT, Family.BINARY}:
        assert cast_literal(value if isinstance(value, str | bytes) else str(value), new) == value


JSONS = st.recursive(
    st.none() | st.booleans() | SIGNED | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSONS)
def test_json_text_is_canonical(document: object) -> None:
    """Printed JSON means the same document, and parsing and printing it again changes nothing."""
    text = render_json(parse_document(json.dumps(document)))
    assert json.loads(text) == document
    assert render_json(parse_document(text)) == text
