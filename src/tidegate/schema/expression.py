"""Expressions that MySQL allows in PARTITION BY, evaluated by the package expr.

    text --parse, check--> node --compile, columns of the table--> row by name --> int | Decimal | str | .. | None

Values of rows are those of events; each column that the expression references is parsed as its type.  A function that
is not in the list is refused: its result for a row is not known.
Source: MySQL manual, "Partitioning Limitations Relating to Functions".
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypeAlias

from sqlglot import exp

from tidegate.expr.compiler import compile_scalar
from tidegate.expr.dialect import Node
from tidegate.expr.parse import parse_expression
from tidegate.expr.scope import Scope, Slot
from tidegate.expr.tokens import UNITS
from tidegate.model.errors import EncodeError, SchemaError, SqlError, SqlRefused, UnsupportedError
from tidegate.model.event import Value
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo
from tidegate.mysql.column_value import parse_value
from tidegate.mysql.conversion import numeric_prefix, round_exact, session_zone, to_integer
from tidegate.mysql.values import Context, SqlValue, from_column

Row: TypeAlias = Mapping[str, Value]
Evaluate: TypeAlias = Callable[[Row], SqlValue]

FUNCTIONS: Final = frozenset(
    """ABS CEIL CEILING FLOOR MOD YEAR QUARTER MONTH DAY DAYOFMONTH DAYOFWEEK DAYOFYEAR WEEKDAY HOUR MINUTE SECOND
    MICROSECOND TO_DAYS TO_SECONDS TIME_TO_SEC DATEDIFF UNIX_TIMESTAMP YEARWEEK EXTRACT""".split()  # noqa: SIM905
)
LONGEST_NUMBER: Final = 100
"""DECIMAL has 65 digits."""
_FORMS: Final = frozenset(
    """Add Sub Mul Div IntDiv Mod Neg Paren Anonymous Var Column Identifier Literal HexString BitString Introducer Null
    Boolean""".split()  # noqa: SIM905
)
"""Nodes that an expression may consist of."""
_NOW: Final = datetime(2000, 1, 1, tzinfo=UTC)
_UNKNOWN_COLUMN: Final = 1054
_NESTED: Final = "the partition expression {!r} is nested too deeply"


def compile_expression(text: str, columns: Sequence[ColumnInfo], *, time_zone: str = "UTC") -> Evaluate:
    """Return a function from a row (values by column name) to the value of the SQL expression `text`.

    Raises SqlError when the text is no expression, SchemaError for a column that is not in `columns`, and
    UnsupportedError for a function that is not allowed in partitioning.
    """
    zone = session_zone(time_zone, UTC)
    slots = tuple(Slot(index, column.name, column.type) for index, column in enumerate(columns))
    try:
        node = parse_expression(text)
        _check(node, text)
        named = {_unqualified(column) for column in node.find_all(exp.Column)}
        compiled = compile_scalar(node, Scope(slots, clause="partition function"))
    except SqlRefused as refused:
        if refused.mysql_code == _UNKNOWN_COLUMN:
            raise SchemaError(
                f"the partition expression {text!r} names a column that the table lacks: {refused.message}"
            ) from refused
        if "nested" in refused.message:
            raise UnsupportedError(_NESTED.format(text[:80])) from refused
        raise SqlError(f"cannot read the partition expression {text!r}: {refused.message}") from refused
    except RecursionError as error:
        raise UnsupportedError(_NESTED.format(text[:80])) from error
    used = [
        (index, column, column_reader(column.name))
        for index, column in enumerate(columns)
        if lowered(column.name) in named
    ]

    def evaluate(row: Row) -> SqlValue:
        values: list[SqlValue] = [None] * len(columns)
        try:
            for index, column, read in used:
                values[index] = from_column(column.type, parse_value(column.type, read(row), zone), zone)
            return compiled(values, Context(_NOW, zone))
        except (SqlRefused, EncodeError, ArithmeticError) as error:
            raise SchemaError(f"the partition expression {text!r} has no value for a row: {error}") from error

    return evaluate


def integer_of(value: SqlValue) -> int | None:
    """Return a partition expression's value as TiDB compares it: an integer or NULL."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, bytes):
        return int.from_bytes(value[-8:], "big")
    return to_integer(value) if isinstance(value, float) else round_exact(numeric_prefix(str(value)))


def column_reader(name: str) -> Callable[[Row], Value]:
    """Return the value of a column; raises SchemaError when the row does not carry it."""

    def read(row: Row) -> Value:
        try:
            return row[name]
        except KeyError:
            raise SchemaError(f"the row does not carry the column {name!r}, which decides its partition") from None

    return read


def _check(node: Node, text: str) -> None:
    """Raise UnsupportedError for an expression that PARTITION BY does not allow."""
    for part in node.walk():
        if isinstance(part, exp.Literal) and not part.is_string and len(part.this) > LONGEST_NUMBER:
            raise SqlError(f"the number {part.this[:20]}.. in a partition expression is longer than any of MySQL's")
        if isinstance(part, exp.Anonymous) and part.this not in FUNCTIONS:
            raise UnsupportedError(
                f"the function {part.this} is not known in partition expressions ({text!r}); known are "
                + ", ".join(sorted(FUNCTIONS))
            )
        if isinstance(part, exp.Var) and part.name not in UNITS:
            raise UnsupportedError(f"EXTRACT({part.name} ..) is not allowed in a partition expression")
        if type(part).__name__ not in _FORMS:
            raise UnsupportedError(f"{part.meta.get('source', text)!r} is not allowed in a partition expression")


def _unqualified(column: Node) -> str:
    """Drop schema and table of a column reference; return its name in lower case."""
    column.set("table", None)
    column.set("db", None)
    name: str = column.name
    return lowered(name)
