"""What is sent to servers of MySQL's protocol is known, and no server takes a name in it for a word of its own."""

import ast
from pathlib import Path
from string import Formatter

import pytest

import tidegate
from tests.recorded_tidb import reserved
from tidegate.expr.tokens import TokenKind, lex
from tidegate.mysql import server_sql

SRC = Path(tidegate.__file__).parent
SENT = {name: text for name, text in vars(server_sql).items() if name.isupper() and isinstance(text, str)}
SENDERS = [
    SRC / "source/large.py",
    SRC / "source/load_sql.py",
    SRC / "cli/apply.py",
    SRC.parent / "tidegate_upstream/demo/replica.py",
]
SENDERS += sorted(path for folder in ("sink/sql", "verify") for path in SRC.glob(f"{folder}/**/*.py"))
PARTS = {"SETTING": {"name": "sql_mode"}, "VARIABLE": {"name": "sql_mode"}, "MOVE_SHARD": {"feed": "00"}}
WORDS = frozenset(
    """ADD ALL ALTER AND AS AUTO_INCREMENT BEGIN BETWEEN BIGINT BINARY BY CHAR CHARACTER COLLATE COMMIT CONSISTENT
    CREATE DATABASE DATETIME DEFAULT DELETE DESC DROP DUPLICATE EXISTS FOR FROM GLOBAL GRANTS GROUP HAVING
    IF IGNORE IN INDEX INSERT INT INTERVAL INTO IS ISOLATION JOIN JSON KEY KILL LEVEL LIKE LIMIT LONGBLOB MEDIUMTEXT
    MODIFY NOT NULL ON OR ORDER PRIMARY READ REPEATABLE REPLACE ROLLBACK SECOND SELECT SESSION SET SHOW SNAPSHOT
    START TABLE TEXT TIMESTAMP TINYINT TRANSACTION UNSIGNED UPDATE USE USING VALUES VARBINARY VARCHAR VARIABLES
    WHERE WITH DATABASES FULL MASTER LOG STATUS TABLES SEQUENCE RESOURCE PARTITION TABLESAMPLE REGIONS OFFSET
    NEXT_ROW_ID""".split()  # noqa: SIM905
)
"""The words of the grammar that our statements have."""
CALLED = frozenset(
    """CAST CONCAT CONCAT_WS CONNECTION_ID CONV CONVERT COUNT CRC32 CURRENT_TIMESTAMP CURRENT_USER GET_LOCK IFNULL
    IS_USED_LOCK LEFT LOWER MAX MD5 MIN RELEASE_LOCK SUM UTC_TIMESTAMP VERSION""".split()  # noqa: SIM905
)
CHARSETS = frozenset({"UTF8MB4", "UTF8MB4_BIN", "FILENAME"})
VARIABLES = frozenset(
    {"SQL_MODE", "TIDB_SNAPSHOT", "TIDB_EXTERNAL_TS", "TIDB_CURRENT_TS", "TIDB_REPLICA_READ", "TIME_ZONE"}
)


def filled(name: str) -> str:
    """A statement with a name in each of its places."""
    places = {place: "`p`" for _, place, _, _ in Formatter().parse(SENT[name]) if place}
    return SENT[name].format(**places | PARTS.get(name, {}))


@pytest.mark.parametrize("name", SENT)
def test_names_are_quoted(name: str) -> None:
    """What stands outside quotes is a word of the grammar, a function, a charset or a variable: no name, so that words
    that a server reserves, now or later, change nothing."""
    words = {token.word for token in lex(filled(name).replace("%s", "1")) if token.kind is TokenKind.WORD}
    if name == "DATABASE":
        assert words == {"TIDEGATE"}
    else:
        assert not words - WORDS - CALLED - CHARSETS - VARIABLES


def test_names_are_reserved_somewhere() -> None:
    """The rule is needed: columns of ours have names that a TiDB 8.5 does not take without quotes, and variables, which
    are not quoted, have none."""
    names = {token.text.upper() for name in SENT for token in lex(filled(name)) if token.kind is TokenKind.NAME}
    assert "UNTIL" in names & reserved()
    assert not VARIABLES & reserved()


@pytest.mark.parametrize("path", SENDERS, ids=lambda path: str(path.relative_to(SRC.parent)))
def test_all_are_listed(path: Path) -> None:
    """No module writes a statement where it sends it: all stand in the list, with their names."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    written = [
        (node.lineno, ast.unparse(value))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in {"ask", "changed", "stream", "execute", "query", "send", "_ask", "_query"}
        for value in node.args
        if isinstance(value, ast.JoinedStr)
        or (isinstance(value, ast.Constant) and isinstance(value.value, str | bytes))
    ]
    assert not written
