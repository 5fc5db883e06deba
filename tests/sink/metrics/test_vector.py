"""Expressions over whole columns say what they say value by value, or say that they cannot."""

from collections.abc import Sequence
from datetime import UTC
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.counts import some
from tidegate.codec.columnar.values import Mismatch
from tidegate.model.errors import UpstreamError
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.sink.metrics_counter import ColumnScope, vector_of
from tidegate.sink.metrics_rule import row_text

TYPES = {
    "a": ColumnType(T.LONG, charset="binary"),
    "b": ColumnType(T.LONGLONG, charset="binary"),
    "u": ColumnType(T.LONGLONG, unsigned=True, charset="binary"),
    "p": ColumnType(T.DECIMAL, 12, 2, charset="binary"),
    "q": ColumnType(T.DECIMAL, 30, 10, charset="binary"),
    "x": ColumnType(T.DOUBLE, charset="binary"),
    "s": ColumnType(T.VARCHAR, 9),
}
ARROW = {"a": pa.int64(), "b": pa.int64(), "u": pa.uint64(), "p": pa.string(), "q": pa.string(), "x": pa.float64(),
         "s": pa.string()}  # fmt: skip
EDGES: dict[str, Sequence[Any]] = {
    "a": (0, 1, -1, 7, -(1 << 31), (1 << 31) - 1),
    "b": (0, 3, -5, 1 << 40, -(1 << 63), (1 << 63) - 1),
    "u": (0, 1, 1 << 63, (1 << 64) - 1),
    "p": ("0.00", "1.50", "-1.50", "9999999999.99", "-0.01"),
    "q": ("0.0000000000", "1.5000000000", "-12345678901234567890.0000000001"),
    "x": (0.0, 1.5, -2.25, 1e300, 0.1),
    "s": ("", "new", "5"),
}
LEAVES = ("a", "b", "u", "p", "q", "x", "s", "1", "-3", "0", "2.5", "1e2", "'5'", "NULL")


def expression(random: Random, depth: int) -> str:
    """A random expression."""
    if depth == 0 or random.random() < 0.15:
        return random.choice(LEAVES)
    one, other = expression(random, depth - 1), expression(random, depth - 1)
    form = random.choice(("({} + {})", "({} - {})", "({} * {})", "({} % {})", "({} > {})", "({} <= {})", "({} = {})",
                          "({} <> {})", "({} AND {})", "({} OR {})"))  # fmt: skip
    return random.choice((form.format(one, other), form.format(one, other), f"(NOT {one})", f"({one} IS NULL)"))


def value_by_value(text: str, rows: Sequence[dict[str, Any]]) -> list[Any] | None:
    """What an expression is for each row; None where it is an error for one."""
    found = row_text(text)
    run = found.compiled({each: TYPES[each[1]] for each in found.columns}, UTC, UTC)
    try:
        return [run([row[name] for _, name in found.columns]) for row in rows]
    except UpstreamError:
        return None


def by_columns(text: str, rows: Sequence[dict[str, Any]]) -> list[Any] | None:
    """The same from columns; None where they cannot say it."""
    found = row_text(text)
    columns = {name: pa.array([row[name] for row in rows], ARROW[name]) for name in TYPES}
    types = {("row", name): kind for name, kind in TYPES.items()}
    try:
        vector = vector_of(found, ColumnScope(lambda each: columns[each[1]], types))
    except (Mismatch, pa.ArrowException):
        return None
    if not isinstance(vector.values, pa.Array):
        return None
    values: list[Any] = vector.values.to_pylist()
    return [None if value is None else int(value) if vector.kind == "bool" else value for value in values]


@pytest.mark.slow
def test_any_expression() -> None:
    """A random expression over edges of its types has one value, whichever way it goes, down to the digits shown."""
    random = Random(7)
    went = 0
    for _ in range(some(1500, 40_000)):
        text = expression(random, random.randint(1, 3))
        if not row_text(text).columns:
            continue
        rows = [
            {name: None if random.random() < 0.2 else random.choice(edges) for name, edges in EDGES.items()}
            for _ in range(6)
        ]
        found = by_columns(text, rows)
        if found is None:
            continue
        went += 1
        wanted = value_by_value(text, rows)
        assert wanted is not None, text
        shown = [str(value) if isinstance(value, Decimal) else value for value in found]
        assert shown == [str(value) if isinstance(value, Decimal) else value for value in wanted], text
    assert went > some(150, 4000)


@pytest.mark.parametrize("text", ["a - b > 10", "p - 2 * p < 3.5", "a % 10", "x > 1", "NOT (a = 1 OR p IS NULL)"])
def test_what_goes_over_columns(text: str) -> None:
    """Conditions and labels as rules have them do."""
    rows = [{"a": 13, "b": 2, "u": 1, "p": "2.50", "q": "1.0000000000", "x": 1.5, "s": "new"}]
    assert by_columns(text, rows) == value_by_value(text, rows)
