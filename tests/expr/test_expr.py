"""Expressions have MySQL's values; each line of the data file was checked against a MariaDB, too."""

from datetime import timedelta, timezone

import pytest

from tests.expr.kit import answer, context, recorded, value
from tidegate.expr.compiler import compile_text
from tidegate.expr.result_type import INT, text_type
from tidegate.expr.scope import RelationColumn, Scope
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import MysqlType


def test_recorded_expressions() -> None:
    """Every expression of the data file has the value that stands behind it."""
    pairs = recorded()

    wrong = [(text, wanted, found) for text, wanted in pairs if (found := value(text)) != wanted]

    assert not wrong
    assert len(pairs) > 700


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
