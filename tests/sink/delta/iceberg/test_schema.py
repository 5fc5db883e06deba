"""Bounds as Iceberg's bytes, by the table of the specification."""

from datetime import date
from decimal import Decimal

import pytest

from tidegate.sink.delta.iceberg_format import iceberg_bounds, iceberg_type

BOUNDS = [
    ("byte", -1, "ffffffff"),
    ("integer", 258, "02010000"),
    ("long", -2, "feffffffffffffff"),
    ("date", "1970-01-02", "01000000"),
    ("date", date(1969, 12, 31), "ffffffff"),
    ("string", "é", "c3a9"),
    ("decimal(20,0)", 2**53, "20000000000000"),
    ("decimal(20,0)", 127, "7f"),
    ("decimal(20,0)", 128, "0080"),
    ("decimal(20,0)", -128, "80"),
    ("decimal(20,0)", -129, "ff7f"),
    ("decimal(10,2)", 3, "012c"),
    ("decimal(10,2)", Decimal("-1.50"), "ff6a"),
]


@pytest.mark.parametrize(("delta", "value", "told"), BOUNDS)
def test_bytes(delta: str, value: object, told: str) -> None:
    """Little endian numbers, days, UTF-8, and decimals as the fewest bytes that hold their unscaled number."""
    assert iceberg_bounds({"c": value}, {"c": (7, iceberg_type(delta))}) == {7: bytes.fromhex(told)}


def test_what_has_no_bound() -> None:
    """A NULL, a column that is gone and a type without order of ours are left out."""
    kinds = {"a": (1, "int"), "b": (2, "timestamptz")}
    assert iceberg_bounds({"a": None, "b": "2026-01-01", "gone": 3}, kinds) == {}
