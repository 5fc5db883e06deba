"""The expressions of PARTITION BY, one value each."""

import contextlib
from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.errors import InputError, SchemaError, SqlError, UnsupportedError
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnInfo, ColumnType
from tidegate.schema.expression import FUNCTIONS, compile_expression, integer_of


def columns(*names: str, code: T = T.LONGLONG) -> tuple[ColumnInfo, ...]:
    return tuple(ColumnInfo(number, name, ColumnType(code)) for number, name in enumerate(names, 1))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 4 - 3", 3),
        ("-7 DIV 2", -3),
        ("-7 % 3", -1),
        ("MOD(-7, 3)", -1),
        ("7 mod 4", 3),
        ("1 DIV 0", None),
        ("7 / 2", Decimal("3.5")),
        ("1 + NULL", None),
        ("- -5", 5),
        ("-5", -5),
        ("0x1F", b"\x1f"),
        ("x'1F' + 1", 32),
        ("b'101' + 0", 5),
        ("1.5", Decimal("1.5")),
        ("1e3", 1000.0),
        ("_UTF8MB4'it''s'", "it's"),
        (r"'a\nb\'c'", "a\nb'c"),
        ('"double"', "double"),
        ("TRUE", 1),
        ("ABS(-3)", 3),
        ("CEILING(1.2)", 2),
        ("FLOOR(-1.2)", -2),
        ("YEAR('2024-02-29')", 2024),
        ("YEAR(20240229)", 2024),
        ("MONTH('2024-02-29 10:00:00')", 2),
        ("DAY('2024-02-29')", 29),
        ("DAYOFWEEK('2024-02-29')", 5),
        ("DAYOFYEAR('2024-02-29')", 60),
        ("WEEKDAY('2024-02-29')", 3),
        ("QUARTER('2024-02-29')", 1),
        ("HOUR('10:20:30')", 10),
        ("HOUR('-100:20:30')", 100),
        ("MINUTE('2024-02-29 10:20:30.5')", 20),
        ("SECOND('10:20:30.5')", 30),
        ("MICROSECOND('10:20:30.5')", 500000),
        ("TO_DAYS('1970-01-01')", 719528),
        ("TO_DAYS('0000-00-00')", None),
        ("TO_SECONDS('1970-01-01 00:00:01')", 719528 * 86400 + 1),
        ("TIME_TO_SEC('-00:01:10')", -70),
        ("DATEDIFF('2024-03-01', '2024-02-01 23:00:00')", 29),
        ("UNIX_TIMESTAMP('1970-01-01 08:00:05')", 5),
        ("UNIX_TIMESTAMP('2024-01-01 00:00:00.25')", Decimal("1704038400.25")),
        ("UNIX_TIMESTAMP('0000-00-00 00:00:00')", 0),
        ("YEARWEEK('1987-01-01')", 198652),
        ("YEARWEEK('2024-12-30', 3)", 202501),
        ("YEARWEEK('2024-01-01', 1)", 202401),
        ("EXTRACT(YEAR_MONTH FROM '2024-02-29')", 202402),
        ("EXTRACT(DAY FROM '2024-02-29')", 29),
    ],
)
def test_value(text: str, value: object) -> None:
    """Literals, operators and functions have MySQL's values (zone Asia/Shanghai)."""
    assert compile_expression(text, (), time_zone="Asia/Shanghai")({}) == value


def test_columns() -> None:
    """Columns are found in any case, quoted or not, qualified or not."""
    evaluate = compile_expression("`My``Col` + t.OTHER * 2", columns("My`Col", "other"))
    assert evaluate({"My`Col": 1, "other": 3}) == 7
    assert evaluate({"My`Col": 1, "other": None}) is None


@pytest.mark.parametrize("text", ["", "1 +", "1 2", "(1", "'open", "ABS(1, 2)", "MOD(1)", "1 ? 2", "EXTRACT(YEAR)"])
def test_no_expression(text: str) -> None:
    """What is no expression is a SqlError that shows the text."""
    with pytest.raises(SqlError):
        compile_expression(text, ())


def test_refused() -> None:
    """Functions outside the list, unknown units, unknown columns and bottomless nesting are named."""
    with pytest.raises(UnsupportedError, match="RAND"):
        compile_expression("RAND()", ())
    with pytest.raises(UnsupportedError, match="CENTURY"):
        compile_expression("EXTRACT(CENTURY FROM 1)", ())
    with pytest.raises(SchemaError, match="nope"):
        compile_expression("nope + 1", columns("yes"))
    with pytest.raises(UnsupportedError, match="nested"):
        compile_expression("(" * 5000 + "1" + ")" * 5000, ())


@given(st.integers(), st.integers())
def test_integers(left: int, right: int) -> None:
    """Integers stay exact in sums and differences of any size that a BIGINT can reach."""
    left, right = left % (1 << 60), right % (1 << 60)
    row = {"l": left, "r": right}
    assert compile_expression("l + r", columns("l", "r"))(row) == left + right
    assert compile_expression("l - r", columns("l", "r"))(row) == left - right
    assert compile_expression("l * 8", columns("l", "r"))(row) == left * 8


@given(st.dates(min_value=date(1, 1, 2)))
def test_days_follow_each_other(day: date) -> None:
    """TO_DAYS of neighbouring days differs by one."""
    days = compile_expression("DATEDIFF(d, e)", columns("d", "e", code=T.DATE))
    assert days({"d": day.isoformat(), "e": (day - timedelta(days=1)).isoformat()}) == 1


SIGNS = ["+", "-", "*", "/", "%", "DIV", "MOD", "(", ")", ","]
LITERALS = ["1", "0", "1.5", "1e999", "1e-300", "NULL", "'2024-01-01'", "'0001-01-01'", "'9999-12-31'", "x'ff'"]
PIECES = [*SIGNS, *LITERALS, "EXTRACT", "FROM", "YEAR"]
CALLS = [f"{name}(" for name in sorted(FUNCTIONS)]


@given(st.text(max_size=30) | st.lists(st.sampled_from(PIECES + CALLS), max_size=12).map(" ".join))
def test_junk(text: str) -> None:
    """Whatever stands in a definition either compiles and has a value, or is an error of ours."""
    with contextlib.suppress(InputError, SchemaError):
        value = integer_of(compile_expression(text, ())({}))
        assert value is None or isinstance(value, int)
