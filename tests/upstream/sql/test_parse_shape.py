"""Shapes give what parsing gives, whichever statements of a shape came before."""

import pytest

from tests.kv.kv_recordings import STREAMS, lines
from tests.upstream.sql.dml_generator import Generator
from tidegate.expr.parse import Dml, parse_statements
from tidegate.model.errors import SqlRefused
from tidegate_upstream.tidb import commands
from tidegate_upstream.tidb.commands import StatementShapes

MODE = frozenset({"STRICT_TRANS_TABLES"})
ODD = (
    "insert into t values (-5, 'a''b', 1.5e3), (.5, 'a' 'b', 0x41)",
    "insert into t values (-6, 'c\\'d', 2.5e-3), (.7, 'c' 'd', 0x42)",
    "update t set a = cast(b as decimal(10, 2)) + interval 3 day where c in (1, '1') limit 5",
    "update t set a = cast(b as decimal(12, 3)) + interval 4 day where c in (2, '2') limit 6",
    "delete from t where d = date '2024-01-01' and `select` = 1",
    "delete from t where d = date '2025-01-01' and `select` = 2",
    "insert into t select 1, a from u where b = 2",
    "insert into t select 3, a from u where b = 4",
    "update t set a = 1; update t set a = 2",
    "replace into t (a) values (1) /* one */",
    "replace into t (a) values (2) /* two */",
)


def same(shapes: StatementShapes, sql: str) -> None:
    expected, found = parse_statements(sql, MODE), shapes.parse(sql, MODE)
    assert [one.text for one in found] == [one.text for one in expected]
    for theirs, mine in zip(expected, found, strict=True):
        assert isinstance(mine, type(theirs))
        if isinstance(theirs, Dml):
            assert isinstance(mine, Dml)
            assert mine.node == theirs.node
            assert mine.node.sql(comments=False) == theirs.node.sql(comments=False)


@pytest.mark.slow
def test_random_changes() -> None:
    """Four hundred of a few shapes."""
    generator, shapes = Generator(1), StatementShapes()
    generator.table("t0")
    generator.table("t1")
    for _ in range(400):
        same(shapes, generator.statement())

    assert len(shapes._shapes) < 300


@pytest.mark.parametrize("sql", ODD)
def test_odd_literals(sql: str) -> None:
    """Literals that the grammar uses up, strings side by side, signs, queries and several statements."""
    shapes = StatementShapes()
    for one in (*ODD, sql, *ODD):
        same(shapes, one)


def test_recorded_statements() -> None:
    """All recorded texts, twice, with one memory."""
    shapes = StatementShapes()
    for sql in 2 * [line["sql"] for stream in STREAMS for line in lines(stream) if line["kind"] == "sql"]:
        same(shapes, sql)


def test_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shapes used last."""
    monkeypatch.setattr(commands, "_SHAPES_MAX", 3)
    shapes = StatementShapes()
    for number in range(10):
        same(shapes, f"delete from t{number} where a = {number}")

    assert len(shapes._shapes) == 3


def test_errors_are_those_of_parsing() -> None:
    """A statement that is none is refused, each time."""
    shapes = StatementShapes()
    for _ in range(2):
        with pytest.raises(SqlRefused):
            shapes.parse("update t set where", MODE)
