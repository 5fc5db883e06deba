"""Functions that the data file does not tell of: other names, the session's, TiDB's own; and none is left untold."""

import re
import uuid

import pytest

from tests.expr.kit import EXPRESSIONS, answer, context, value
from tests.scripts.test_scripts import SCRIPTS
from tests.upstream.sql.test_session import test_named_locks as of_locks
from tidegate.expr.arithmetic import constant
from tidegate.expr.compiler import AGGREGATES, FUNCTIONS, compile_text
from tidegate.expr.result_type import TEXT
from tidegate.expr.scope import Scope
from tidegate.model.errors import SqlRefused


def test_session_functions() -> None:
    """What the session knows is what they say."""
    used = context(user="me@here", connection_id=7, row_count=3, found_rows=4, start_ts=99)
    users = ("user", "current_user")
    names = (*users, "schema", "database", "connection_id", "row_count", "found_rows")
    wanted = [*["me@here"] * 2, "d", "d", "7", "3", "4"]

    assert [value(f"{name}()", used) for name in names] == wanted
    assert value("tidb_current_tso()", used) == "99"
    assert str(value("version()", used)).startswith("8.0.11-TiDB-")
    assert str(value("version()", used)) in str(value("tidb_version()", used))


def test_chance() -> None:
    """RAND lies in [0, 1), and a seed brings the same again; UUIDs differ."""
    first, second = (answer("select rand(3), rand(3) from t").rows for _ in range(2))

    assert first == second
    assert len({row[0] for row in first}) == 4
    assert all(0 <= row[0] < 1 for row in answer("select rand() from t").rows)
    assert uuid.UUID(value("uuid()")) != uuid.UUID(value("uuid()"))


def test_values() -> None:
    """VALUES(c) is what the statement tells for the column, and unknown where none does."""
    scope = Scope(values=lambda name: constant(f"new {name}", TEXT))

    assert compile_text("values(c)", scope).run((), context()) == "new c"
    with pytest.raises(SqlRefused, match="1054"):
        compile_text("values(c)", Scope())


def test_no_function_is_untold() -> None:
    """Every function is in the data file or in a script."""
    lines = [line for path in SCRIPTS for line in path.read_text(encoding="utf-8").splitlines()]
    told = [EXPRESSIONS.read_text(encoding="utf-8"), *(line for line in lines if "==>" in line or "> select" in line)]
    told += [str(function.__code__.co_consts) for function in (test_session_functions, test_chance, of_locks)]
    words = set(re.findall(r"\w+", "\n".join(told).upper()))
    elsewhere = {"LAST_INSERT_ID", "VALUES"}

    assert {name.split()[0] for name in {*FUNCTIONS, *AGGREGATES}} - words == elsewhere
