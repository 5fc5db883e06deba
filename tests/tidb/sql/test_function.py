"""Functions that the data file does not tell of: other names, the session's, TiDB's own; and none is left untold."""

import re
import uuid

import pytest

from tests.tidb.sql import test_expr, test_select
from tests.tidb.sql.expr_kit import EXPRESSIONS, answer, context, rows, value
from tidegate.expr.compiler import compile_text
from tidegate.expr.function.calls import AGGREGATES, FUNCTIONS
from tidegate.expr.operator.literal import constant
from tidegate.expr.result_type import TEXT
from tidegate.expr.scope import Scope
from tidegate.expr.value.kinds import Vector
from tidegate.model.errors import SqlRefused

TRUTHS = {
    "acos(1)": "0",
    "benchmark(5, 1 + 1)": "0",
    "ceiling(1.2)": "2",
    "character_length('é')": "1",
    "octet_length('é')": "2",
    "charset(1)": "binary",
    "charset('a')": "utf8mb4",
    "collation('a' collate utf8mb4_general_ci)": "utf8mb4_general_ci",
    "coercibility('a')": "4",
    "coercibility('a' collate utf8mb4_bin)": "0",
    "current_date": "2026-02-03",
    "current_time": "04:05:06",
    "localtime(1)": "2026-02-03 04:05:06.7",
    "localtimestamp": "2026-02-03 04:05:06",
    "sysdate()": "2026-02-03 04:05:06",
    "utc_time()": "04:05:06",
    "dayofmonth('2024-02-29')": "29",
    "lcase('A')": "a",
    "ucase('a')": "A",
    "substr('abc', 2)": "bc",
    "sha('abc')": "a9993e364706816aba3e25717850c26c9cd0d89d",
    "any_value(3)": "3",
    "regexp_like('Abc', 'a')": "0",
    "regexp_like('Abc', 'a', 'i')": "1",
    "json_merge('[1]', '[2]')": "[1, 2]",
    'json_pretty(\'{"b": [1], "a": {}}\')': '{\n  "a": {},\n  "b": [\n    1\n  ]\n}',
    "is_uuid('6ccd780c-baba-1026-9564-5b8c656024db')": "1",
    "is_uuid('6ccd')": "0",
    "bin_to_uuid(uuid_to_bin('6ccd780c-baba-1026-9564-5b8c656024db'))": "6ccd780c-baba-1026-9564-5b8c656024db",
    "uuid_to_bin('x')": "error 1411",
    "get_lock('l', 1) + release_lock('l')": "2",
    "sleep(100)": "0",
    "tidb_is_ddl_owner()": "1",
    "tidb_parse_tso(443852055297916932)": "2023-08-27 18:33:41.687000",
    "tidb_parse_tso_logical(443852055297916932)": "4",
    "vec_as_text('[1, 2.50]')": "[1,2.5]",
    "vec_as_text('[1, x]')": "error 1105",
    "vec_l2_norm('[3,4]')": "5",
    "vec_negative_inner_product('[1,2]', '[3,4]')": "-11",
    "1 member of ('[2,1]')": "1",
    "3 member of ('[2,1]')": "0",
}


@pytest.mark.parametrize("text", TRUTHS)
def test_truths(text: str) -> None:
    """Each function has the value that the manuals give it."""
    assert value(text) == TRUTHS[text]


def test_session_functions() -> None:
    """What the session knows is what they say."""
    used = context(user="me@here", connection_id=7, row_count=3, found_rows=4, start_ts=99)
    users = ("user", "current_user", "session_user", "system_user")
    names = (*users, "schema", "database", "connection_id", "row_count", "found_rows")
    wanted = [*["me@here"] * 4, "d", "d", "7", "3", "4"]

    assert [value(f"{name}()", used) for name in names] == wanted
    assert value("tidb_current_tso()", used) == "99"
    assert value("current_role()", used) == "NONE"
    assert str(value("version()", used)).startswith("8.0.11-TiDB-")
    assert str(value("version()", used)) in str(value("tidb_version()", used))


def test_chance() -> None:
    """RAND lies in [0, 1), and a seed brings the same again; UUIDs differ."""
    first, second = (answer("select rand(3), rand(3) from t").rows for _ in range(2))

    assert first == second
    assert len({row[0] for row in first}) == 4
    assert all(0 <= row[0] < 1 for row in answer("select rand() from t").rows)
    assert uuid.UUID(value("uuid()")) != uuid.UUID(value("uuid()"))


def test_spread() -> None:
    """The names of variance and deviation for all and for a sample."""
    calls = "stddev(id), stddev_pop(id), variance(id), var_pop(id), stddev_samp(id), approx_count_distinct(a)"

    assert rows(f"select {calls} from t") == [
        ("1.118033988749895", "1.118033988749895", "1.25", "1.25", "1.2909944487358056", "2")
    ]
    assert rows("select stddev_samp(id), var_samp(id), any_value(id) from t where id = 1") == [(None, None, "1")]


def test_group_concat_is_cut() -> None:
    """GROUP_CONCAT stops at group_concat_max_len bytes, between characters, and warns."""
    used = context(variables={"group_concat_max_len": 4})
    found = answer("select group_concat('é', 'x') from t", used=used).rows

    assert found == [("éx,",)]
    assert [warning.code for warning in used.warnings] == [1260]


def test_vectors_are_single() -> None:
    """Elements are 32-bit floats, and vectors compare element by element."""
    [(found,)] = answer("select vec_from_text('[0.1]')").rows

    assert found == Vector((0.10000000149011612,))
    assert value("vec_from_text('[1,3]') > vec_from_text('[1,2,9]')") == "1"


def test_values() -> None:
    """VALUES(c) is what the statement tells for the column, and unknown where none does."""
    scope = Scope(values=lambda name: constant(f"new {name}", TEXT))

    assert compile_text("values(c)", scope).run((), context()) == "new c"
    with pytest.raises(SqlRefused, match="1054"):
        compile_text("values(c)", Scope())


@pytest.mark.parametrize(
    "text", ["lower(1, 2)", "if(1, 2)", "now(1, 2)", "json_object('a')", "week()", "timestampdiff(day, 1)"]
)
def test_counts(text: str) -> None:
    """Too few or too many arguments are error 1582."""
    with pytest.raises(SqlRefused, match="Incorrect parameter count"):
        answer(f"select {text}")


def test_no_function_is_untold() -> None:
    """Every function is in the data file or in one of the tables of truths."""
    told = [EXPRESSIONS.read_text(encoding="utf-8"), *TRUTHS, *test_select.QUERIES]
    told += [str(mark.args) for mark in test_expr.test_truths_of_tidb.pytestmark]
    told += [str(function.__code__.co_consts) for function in (test_session_functions, test_chance, test_spread)]
    words = set(re.findall(r"\w+", "\n".join(told).upper()))
    elsewhere = {"JSON_MEMBEROF", "LAST_INSERT_ID", "VALUES"}

    assert {name.split()[0] for name in {*FUNCTIONS, *AGGREGATES}} - words == elsewhere
