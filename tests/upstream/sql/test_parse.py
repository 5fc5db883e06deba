"""Text becomes statements: split, sorted, and read by the rules of sql_mode."""

import json
import lzma
from pathlib import Path

import pytest

from tidegate.expr.parse import Command, DdlText, Dml, parse_statements
from tidegate.model.errors import SqlRefused

KV = Path(__file__).parents[2] / "data" / "kv"
STREAMS = ("types", "partition", "ddl", "interleave", "rename_swap")
ANSI = frozenset({"ANSI_QUOTES"})
PLAIN = frozenset({"NO_BACKSLASH_ESCAPES"})


def statements(stream: str) -> list[str]:
    with lzma.open(KV / f"{stream}.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [line["sql"] for line in map(json.loads, lines) if line["kind"] == "sql"]


@pytest.mark.parametrize("stream", STREAMS)
def test_recorded_statements(stream: str) -> None:
    """Every statement that TiDB ran in the recordings is read here, as what it is, its text kept."""
    mode: frozenset[str] = frozenset()
    for sql in statements(stream):
        if "sql_mode" in sql:
            mode = ANSI if "ANSI" in sql else frozenset()
        [found] = parse_statements(sql, mode)

        assert found.text == sql
        words = {
            Dml: ("insert", "update", "delete"),
            Command: ("set", "use", "lock", "unlock", "create user", "drop user"),
        }
        assert sql.lower().startswith(
            words.get(type(found), ("create", "alter", "drop", "rename", "truncate", "recover", "flashback"))
        )


def test_split() -> None:
    """Semicolons part statements, but not inside strings, names and comments; empty statements are none."""
    found = parse_statements(" ;; SELECT ';', `a;b` /* ; */ FROM t; BEGIN;\nDROP TABLE `x;y` -- ;\n; ")

    assert [each.text for each in found] == ["SELECT ';', `a;b` /* ; */ FROM t", "BEGIN", "DROP TABLE `x;y`"]
    assert [type(each) for each in found] == [Dml, Command, DdlText]


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SHOW CREATE TABLE t", "SHOW"),
        ("set @@sql_mode = ''", "SET"),
        ("ADMIN SHOW DDL JOBS 5", "ADMIN"),
        ("admin cancel ddl jobs 1, 2", "ADMIN"),
        ("START TRANSACTION", "START"),
        ("begin pessimistic", "BEGIN"),
        ("SAVEPOINT `a b`", "SAVEPOINT"),
        ("use d", "USE"),
        ("EXPLAIN SELECT 1", "EXPLAIN"),
        ("KILL 5", "KILL"),
        ("create user u@'%'", "CREATE"),
    ],
)
def test_commands(sql: str, kind: str) -> None:
    """What sqlglot does not know goes on as words."""
    [found] = parse_statements(sql)

    assert isinstance(found, Command)
    assert (found.kind, found.text) == (kind, sql)


def test_executed_comments() -> None:
    """What stands in /*! */ and /*T! */ is read, and stays in the text of a DDL as it was written."""
    [ddl] = parse_statements("CREATE TABLE t (id BIGINT PRIMARY KEY AUTO_RANDOM) /*T! SHARD_ROW_ID_BITS=2 */")
    assert ddl.text.endswith("/*T! SHARD_ROW_ID_BITS=2 */")

    [query] = parse_statements("SELECT /*!40101 1 + */ 2")
    assert isinstance(query, Dml)
    assert query.node.sql() == "SELECT 1 + 2"

    [whole] = parse_statements("/*!40101 SET NAMES utf8 */")
    assert isinstance(whole, Command)
    assert whole.kind == "SET"


def test_quotes_and_backslashes() -> None:
    """Double quotes are texts, or names under ANSI_QUOTES; backslashes escape, but under NO_BACKSLASH_ESCAPES."""

    def item(sql: str, mode: frozenset[str] = frozenset()) -> tuple[str, str]:
        [found] = parse_statements(sql, mode)
        assert isinstance(found, Dml)
        node = found.node.expressions[0]
        return type(node).__name__, node.name

    assert item('SELECT "a"') == ("Literal", "a")
    assert item('SELECT "a"', ANSI) == ("Column", "a")
    assert item(r"SELECT 'a\nb\'\%\q'") == ("Literal", "a\nb'\\%q")
    assert item(r"SELECT 'a\nb'", PLAIN) == ("Literal", r"a\nb")
    assert item(r"SELECT 'it''s'", ANSI | PLAIN) == ("Literal", "it's")


def test_numbers_with_exponents() -> None:
    """A sign right behind an exponent is an operator, and the text of the item is as written."""
    [found] = parse_statements("SELECT 1e0+2, '1e0+2', 1e-2-1")
    assert isinstance(found, Dml)

    assert [node.meta["source"] for node in found.node.expressions] == ["1e0+2", "'1e0+2'", "1e-2-1"]
    assert [type(node).__name__ for node in found.node.expressions] == ["Add", "Literal", "Sub"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 +",
        "SELECT (1",
        "SELECT 'abc",
        "SELEC 1",
        "SELECT * FROM",
        "INSERT INTO",
        "SELECT 1 /* open",
        "SELECT INTERVAL",
        "SELECT @",
    ],
)
def test_syntax_errors(sql: str) -> None:
    """What is no statement is error 1064, and says near what."""
    with pytest.raises(SqlRefused, match=r"You have an error in your SQL syntax; .* near") as caught:
        parse_statements(sql)

    assert (caught.value.mysql_code, caught.value.sqlstate) == (1064, "42000")


def test_replace() -> None:
    """REPLACE is an INSERT that says so."""
    [found] = parse_statements("REPLACE INTO t (a) VALUES (1), (DEFAULT)")
    assert isinstance(found, Dml)

    assert type(found.node).__name__ == "Insert"
    assert found.node.meta["replace"]
