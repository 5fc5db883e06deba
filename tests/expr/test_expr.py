"""Expressions have MySQL's values; each line of the data file was checked against a MariaDB, too."""

from datetime import timedelta, timezone

import pytest

from tests.expr.kit import answer, context, recorded, value
from tidegate.expr.compiler import compile_text
from tidegate.expr.result_type import INT, text_type
from tidegate.expr.scope import RelationColumn, Scope
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import MysqlType
from tidegate.mysql.values import Unsigned


def test_recorded_expressions() -> None:
    """Every expression of the data file has the value that stands behind it."""
    pairs = recorded()

    wrong = [(text, wanted, found) for text, wanted in pairs if (found := value(text)) != wanted]

    assert not wrong
    assert len(pairs) > 700


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x'0a' + 1", "11"),
        ("0.5 * 0.000000000000000000000000000001", "0.000000000000000000000000000001"),
        ("-0.5 * 0.000000000000000000000000000003", "-0.000000000000000000000000000002"),
        ("0.4 * 0.000000000000000000000000000001", "0.000000000000000000000000000000"),
        ("b'101' | 8", "13"),
        ("0x41 = 65", "1"),
        ("cast('2024-02-29 10:20:30.567' as datetime(2))", "2024-02-29 10:20:30.57"),
        ("cast('10:20:30.55' as time)", "10:20:31"),
        ("json_type('null')", "NULL"),
        ("1e20", "1e20"),
        ("concat(1e20)", "100000000000000000000"),
        ("1e15", "1e15"),
        ("1e14", "100000000000000"),
        ("upper('straße')", "STRAßE"),
        ("unhex('abc')", "\n\ufffd"),
        ("json_object('b', 1, 'a', null)", '{"a": null, "b": 1}'),
        ("cast('{\"a\": 1}' as json) = json_object('a', 1)", "1"),
        ("cast(5 as json) < cast('\"a\"' as json)", "1"),
        ("_binary'é' = x'c3a9'", "1"),
        ("_latin1 x'41'", "A"),
        ("N'n'", "n"),
        ("length(convert('中' using gbk))", "2"),
        ("cast('a' as binary(3))", "a\0\0"),
        ("nosuch(1)", "error 1305"),
        ("upper()", "error 1582"),
        ("sum(sum(1))", "error 1111"),
        ("(1, 2)", "error 1241"),
        ("1 = (1, 2)", "error 1241"),
        ("'a' collate nonsense", "error 1273"),
        ("convert('a' using nonsense)", "error 1115"),
        ("@@nosuch", "error 1193"),
        ("'a' rlike '('", "error 1139"),
        ("cast('{' as json)", "error 3140"),
        ("json_extract('{}', 'a')", "error 3143"),
        ("now(7)", "error 1426"),
        ("date 'abc'", "error 1525"),
    ],
)
def test_truths_of_tidb(text: str, wanted: str) -> None:
    """Where the databases differ, or other files have no say: TiDB's values and error numbers."""
    assert value(text) == wanted


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("'12abc' + 1", 1292, "Truncated incorrect DOUBLE value: '12abc'"),
        ("1 / 0", 1365, "Division by 0"),
        ("1 % 0", 1365, "Division by 0"),
        ("date('abc')", 1292, "Incorrect datetime value: 'abc'"),
        ("cast('x' as signed)", 1292, "Truncated incorrect INTEGER value: 'x'"),
    ],
)
def test_warnings(text: str, code: int, message: str) -> None:
    """What is lost on the way is told: a warning in SELECT, an error where a strict statement writes."""
    used = context()
    assert value(text, used) is not None or code in {1365, 1292}
    assert [(warning.code, warning.message) for warning in used.warnings] == [(code, message)]

    modes = frozenset({"STRICT_TRANS_TABLES", "ERROR_FOR_DIVISION_BY_ZERO"})
    strict = context(writing=True, sql_mode=modes)
    assert value(text, strict) == f"error {code}" or "as signed" in text


def test_overflow_names_the_expression() -> None:
    """An integer out of range is error 1690 with SQLSTATE 22003 and the operation."""
    with pytest.raises(SqlRefused, match=r"BIGINT value is out of range in '\(9223372036854775807 \+ 1\)'") as caught:
        answer("SELECT 9223372036854775807 + 1")

    assert (caught.value.mysql_code, caught.value.sqlstate) == (1690, "22003")


def test_unsigned_columns() -> None:
    """An unsigned value makes the result unsigned, unless NO_UNSIGNED_SUBTRACTION is set."""
    scope = Scope.of_columns([RelationColumn("u", INT)], "t")
    minus = compile_text("u - 2", scope)

    assert minus.run((Unsigned(5),), context()) == 3
    with pytest.raises(SqlRefused, match="BIGINT UNSIGNED"):
        minus.run((Unsigned(1),), context())
    assert minus.run((Unsigned(1),), context(sql_mode=frozenset({"NO_UNSIGNED_SUBTRACTION"}))) == -1


def test_compile_text() -> None:
    """The text of a generated column runs over rows; names count in any case, quoted or not."""
    columns = [RelationColumn("a", INT), RelationColumn("B c", text_type(10), collation="utf8mb4_general_ci")]
    scope = Scope.of_columns(columns, "t")

    assert compile_text("concat('v', `A` + 1)", scope).run((4, ""), context()) == "v5"
    assert compile_text("t.`b C` = 'X'", scope).run((0, "x"), context()) == 1
    with pytest.raises(SqlRefused, match="Unknown column 'z' in 'field list'"):
        compile_text("z + 1", scope)
    with pytest.raises(SqlRefused, match="1064"):
        compile_text("a +", scope)


def test_variables() -> None:
    """@x is the user's; @@x is the session's variable, then the global one."""
    used = context(variables={"autocommit": 1, "sql_mode": "ANSI"}, global_variables={"sql_mode": "", "x": "g"})

    used.user_variables["a"] = 5
    assert value("concat(@a, @a + 1, ifnull(@b, '-'))", used) == "56-"
    assert value("concat(@@autocommit, @@sql_mode, @@global.sql_mode, @@session.x)", used) == "1ANSIg"
    assert value("last_insert_id(7) + last_insert_id()", used) == "14"


def test_session_zone() -> None:
    """NOW is on the session's clocks, UTC_TIMESTAMP is not, UNIX_TIMESTAMP goes by the zone."""
    used = context(zone=timezone(timedelta(hours=8)))

    assert value("now()", used) == "2026-02-03 12:05:06"
    assert value("utc_timestamp(2)", used) == "2026-02-03 04:05:06.78"
    assert value("unix_timestamp('1970-01-01 08:00:01')", used) == "1"
    assert value("from_unixtime(0)", used) == "1970-01-01 08:00:00"


@pytest.mark.parametrize(
    ("text", "code", "flen", "decimal"),
    [
        ("1 + 1", MysqlType.LONGLONG, 20, 0),
        ("1 / 3", MysqlType.DECIMAL, 5, 4),
        ("1.5 * 2.25", MysqlType.DECIMAL, 5, 3),
        ("1 + 1e0", MysqlType.DOUBLE, -1, -1),
        ("now(3)", MysqlType.DATETIME, 23, 3),
        ("curdate()", MysqlType.DATE, 10, 0),
        ("cast(1 as decimal(7,2))", MysqlType.DECIMAL, 7, 2),
        ("if(1, 2, 'x')", MysqlType.VAR_STRING, 1, -1),
        ("coalesce(1, 1.5)", MysqlType.DECIMAL, 2, 1),
        ("json_array()", MysqlType.JSON, -1, -1),
        ("null", MysqlType.NULL, -1, -1),
    ],
)
def test_result_types(text: str, code: MysqlType, flen: int, decimal: int) -> None:
    """The type of a result is known before a row is read."""
    kind = answer(f"SELECT {text}").columns[0].type

    assert (code, flen, decimal) == (kind.code, kind.flen, kind.decimal)
