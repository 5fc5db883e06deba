"""Expressions and queries for tests: what a client would see."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from tidegate.expr.parse import Dml, parse_statements
from tidegate.expr.result_type import INT, decimal_type, text_type
from tidegate.expr.scope import FixedRelation, Relation, RelationColumn, ResultSet
from tidegate.model.errors import SqlRefused
from tidegate.model.table import ColumnType
from tidegate.mysql.values import Context, render
from tidegate_upstream.tidb.select import select

NOW = datetime(2026, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
EXPRESSIONS = Path(__file__).parents[1] / "data" / "sql" / "expressions.txt"
GENERAL = "utf8mb4_general_ci"


def column(name: str, kind: ColumnType, *, collation: str = "utf8mb4_bin", hidden: bool = False) -> RelationColumn:
    return RelationColumn(name, kind, hidden, collation)


class Tables:
    """Two small tables, and what was asked of them."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        rows = [
            (1, 10, "x", Decimal("1.50"), 1),
            (2, 20, "Y", Decimal("2.25"), 2),
            (3, None, "y", None, 3),
            (4, 20, None, Decimal("4.00"), 4),
        ]
        columns = (
            column("id", INT),
            column("a", INT),
            column("s", text_type(20), collation=GENERAL),
            column("d", decimal_type(10, 2)),
            column("_tidb_rowid", INT, hidden=True),
        )
        pairs = [(1, "one"), (2, "two"), (2, "zwei"), (9, "nine")]
        self.tables: dict[str, FixedRelation] = {
            "t": FixedRelation("t", columns, rows),
            "u": FixedRelation("u", (column("id", INT), column("b", text_type(20))), pairs),
        }

    def relation(self, schema: str, name: str) -> Relation:
        """The table; SqlRefused 1146."""
        if name.lower() not in self.tables:
            raise SqlRefused(1146, f"Table '{schema}.{name}' doesn't exist", "42S02")
        return Noting(self.tables[name.lower()], self.asked)


class Noting:
    """A relation that notes the hints it is given."""

    def __init__(self, below: FixedRelation, asked: list[dict[str, Any]]) -> None:
        self.name, self.columns, self.below, self.asked = below.name, below.columns, below, asked

    def rows(self, equal: Any, context: Context) -> Any:
        """All of them."""
        self.asked.append(dict(equal))
        return self.below.rows(equal, context)


def context(**given: Any) -> Context:
    return Context(NOW, database="d", **given)


def answer(sql: str, tables: Tables | None = None, used: Context | None = None) -> ResultSet:
    """The answer to one query."""
    [parsed] = parse_statements(sql)
    assert isinstance(parsed, Dml)
    return select(parsed.node, tables or Tables(), used or context())


def shown(found: ResultSet) -> list[tuple[str | None, ...]]:
    """The rows as a client sees them."""

    def text(value: Any, kind: ColumnType) -> str | None:
        rendered = render(value, kind)
        return rendered.decode("utf-8", "replace") if isinstance(rendered, bytes) else rendered

    kinds = [each.type for each in found.columns]
    return [tuple(text(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in found.rows]


def rows(sql: str) -> list[tuple[str | None, ...]]:
    """The rows of a query as a client sees them."""
    return shown(answer(sql))


def value(expression: str, used: Context | None = None) -> str | None:
    """What SELECT gives for an expression: text, None, or `error` with its number."""
    try:
        return shown(answer(f"SELECT {expression}", used=used))[0][0]
    except SqlRefused as error:
        return f"error {error.mysql_code}"


def recorded() -> list[tuple[str, str | None]]:
    """The expressions of the data file and their values."""
    lines = EXPRESSIONS.read_text(encoding="utf-8").split("\n")
    pairs = [line.split(" ==> ", 1) for line in lines if line and not line.startswith("# ")]
    return [(pair[0], None if pair[1] == "NULL" else pair[1]) for pair in pairs]
