"""schema-change policies on one table: a column is dropped, one renamed, one added and one changes its type."""

import pytest

from tests.sink.delta.lake import INT, TEXT, Rows, column, options, run, stored, table
from tidegate.engine.plan import Alter, Create
from tidegate.engine.plan import Rows as Apply
from tidegate.model.errors import SinkRefused
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType

OLD = table(column(1, "id"), column(2, "gone", TEXT), column(3, "label", TEXT), column(4, "n", TEXT))
NEW = table(column(1, "id"), column(3, "title", TEXT), column(4, "n", INT), column(5, "more"), version=30)


def after(tmp_path, policy: str) -> list[dict]:
    """The rows when the DDL lies between two inserts."""
    lake, rows = options(tmp_path, schema_change=policy), Rows()
    rows.insert(20, id=1, gone="g", label="a", n="7")
    rows.insert(40, id=2, title="b", n=300, more=5)
    run(lake, rows, Create(OLD, 10, 1), Apply(OLD, 10, 30), Alter(OLD, NEW, 30, 1), Apply(NEW, 30, 50))
    return stored(lake, "t-1")


@pytest.mark.parametrize("policy", ["evolve", "try_evolve"])
def test_evolve_follows(tmp_path, policy):
    """Every change is followed, old rows included."""
    assert after(tmp_path, policy) == [
        {"id": 1, "title": "a", "n": 7, "more": None},
        {"id": 2, "title": "b", "n": 300, "more": 5},
    ]


def test_lenient_only_adds(tmp_path):
    """A dropped column keeps its old values; new rows hold NULL there."""
    assert after(tmp_path, "lenient") == [
        {"id": 1, "title": "a", "n": 7, "more": None, "gone": "g"},
        {"id": 2, "title": "b", "n": 300, "more": 5, "gone": None},
    ]


def test_ignore_keeps_the_first_columns(tmp_path):
    """Columns stay as they were made; values still find theirs by the upstream's column, whatever its name now."""
    assert after(tmp_path, "ignore") == [
        {"id": 1, "gone": "g", "label": "a", "n": "7"},
        {"id": 2, "gone": None, "label": "b", "n": "300"},
    ]


def test_exception_stops(tmp_path):
    """The first DDL that changes columns ends the feed with its name."""
    with pytest.raises(SinkRefused, match="schema-change"):
        after(tmp_path, "exception")


def test_try_evolve_goes_on_where_values_cannot_be_converted(tmp_path):
    """Old values that have no conversion become NULL; the column has its new type."""
    day = ColumnType(MysqlType.DATE)
    old = table(column(1, "id"), column(2, "v", ColumnType(MysqlType.DECIMAL, 8, 2)))
    new = table(column(1, "id"), column(2, "v", day), version=30)
    lake, rows = options(tmp_path, schema_change="try_evolve"), Rows()
    rows.insert(20, id=1, v="1.50")
    run(lake, rows, Create(old, 10, 1), Apply(old, 10, 30), Alter(old, new, 30, 1))

    assert stored(lake, "t-1") == [{"id": 1, "v": None}]
