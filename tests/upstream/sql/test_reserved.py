"""What a TiDB refuses as no statement is refused here too, in its words, and nothing that it takes."""

import re

import pytest

from tests.recorded_tidb import CUT, recorded, reserved
from tidegate.expr.parse import DdlText
from tidegate.expr.tokens import RESERVED
from tidegate.model.errors import SqlError, SqlRefused
from tidegate.schema.parse_ddl import parse_ddl
from tidegate.sink.sql.connection import target_of
from tidegate.sink.sql.ddl_rewrite import StatementContext, statement_for
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.commands import StatementShapes
from tidegate_upstream.tidb.session import Session

SELDOM = re.compile(
    r"batch on |split table |create table tmp|.*set tiflash|.*(create|alter|drop) (placement|resource)", re.IGNORECASE
)
"""Statements that the embedded TiDB does not have."""


@pytest.fixture(scope="module")
def client() -> Session:
    """A session in a database."""
    found = Session(next(iter(Cluster.open().nodes.values())))
    found.execute("CREATE DATABASE d; USE d")
    return found


def refusal(client: Session, sql: str) -> list[object]:
    """The number and text of the error, as the recording has it."""
    with pytest.raises(SqlRefused) as caught:
        client.execute(sql)
    return [caught.value.mysql_code, caught.value.message[:CUT]]


def test_words(client: Session) -> None:
    """Each reserved word, as a column and as an alias, gets the number and the text of a real TiDB."""
    assert reserved() == RESERVED
    for one in recorded("words"):
        assert refusal(client, f"CREATE TABLE w ({one['word']} int)") == cut(one["column"]["error"])
        assert refusal(client, f"SELECT 1 {one['word']}") == cut(one["alias"]["error"])


def cut(error: list[object]) -> list[object]:
    """An error as far as its text was kept."""
    return [error[0], str(error[1])[:CUT]]


@pytest.mark.parametrize("word", ["until", "RANK", "Rows", "lead"])
def test_names(client: Session, word: str) -> None:
    """A reserved word is a name in backquotes and beside a dot, and none anywhere else."""
    client.execute("DROP DATABASE d; CREATE DATABASE d; USE d")
    client.execute(f"CREATE TABLE w (`{word}` int primary key); INSERT INTO w (`{word}`) VALUES (1)")
    for taken in (f"SELECT w.{word} FROM w", f"SELECT `{word}` AS `{word}` FROM d.w", f"CREATE TABLE d.{word} (a int)"):
        client.execute(taken)
    for refused in (
        *(
            f"SELECT {word} FROM w",
            f"INSERT INTO w ({word}) VALUES (2)",
            f"UPDATE w SET {word} = 2",
            f"INSERT INTO w SET {word} = 3",
            f"SELECT * FROM {word}",
        ),
        *(f"DELETE FROM w WHERE {word} = 1", f"ALTER TABLE w DROP COLUMN {word}", f"DROP TABLE {word}", f"USE {word}"),
    ):
        assert refusal(client, refused)[0] == 1064, refused


def test_functions_of_reserved_names(client: Session) -> None:
    """Words that are functions too are called as such."""
    client.execute("SELECT LEFT('ab', 1), RIGHT('ab', 1), REPLACE('a', 'a', 'b'), IF(1, 2, 3), MOD(5, 3), DATABASE()")
    client.execute("SELECT CURRENT_DATE, UTC_TIMESTAMP(6), CHAR(65), REPEAT('a', 2), CONVERT(1, CHAR)")
    client.execute(
        "CREATE TABLE f (a TIMESTAMP DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, b CHAR(1) CHARSET binary)"
    )
    client.execute("INSERT INTO f (b) VALUES (DEFAULT); REPLACE INTO f (b) VALUES ('x') ; DROP TABLE f")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 FROM DUAL WHERE 1 = 1",
        "INSERT INTO t SELECT 1 FROM dual",
        "SELECT * FROM t FORCE INDEX (PRIMARY)",
        "SELECT * FROM t USE INDEX FOR JOIN (primary, k) JOIN u ON t.id = u.id",
        "SELECT COUNT(DISTINCT v) FROM t GROUP BY v HAVING v > 1",
        "SELECT DISTINCT a DIV b, NOT a FROM t WHERE a BETWEEN 1 AND 2 AND b REGEXP 'x' FOR UPDATE",
        "INSERT INTO t VALUES (DEFAULT, 1) ON DUPLICATE KEY UPDATE v = VALUES(v)",
    ],
)
def test_words_in_their_places(sql: str) -> None:
    """Reserved words of the grammar, of hints and of the table without rows stay what they are."""
    assert StatementShapes().parse(sql, frozenset())


def test_taken_statements() -> None:
    """Statements that a real TiDB has run, or refused for another reason than their text, are read here."""
    shapes, read = StatementShapes(), 0
    for one in recorded("statements"):
        if SELDOM.match(one["sql"]):
            continue
        for statement in shapes.parse(one["sql"], frozenset()):
            if isinstance(statement, DdlText):
                parse_ddl(statement.text, "d", RESERVED)
        read += 1
    assert read > 400


@pytest.mark.slow
def test_printed_ddls() -> None:
    """DDLs that a real TiDB ran go out to a TiDB with their names in quotes, whatever words they are."""
    tables = [
        f"create table `{word}` (`{word}` int primary key, `v` int, key `{word}` (`v`))" for word in sorted(RESERVED)
    ]
    ran = [one["sql"] for one in recorded("statements") if "error" not in one]
    target, sent = target_of("8.0.11-TiDB-v8.5.4"), 0
    for sql in [*ran, *tables, "alter table `rank` rename to `rows`, change `lead` `of` int after `to`"]:
        try:
            parse_ddl(sql, "d")
        except SqlError:
            continue
        found = statement_for(target, sql, StatementContext(schema="d"))
        if found.text:
            parse_ddl(found.text, "d", RESERVED)
            sent += 1
    assert sent > 300


@pytest.mark.parametrize("mode", ["TIME_ROUND_FRACTIONAL", "EMPTY_STRING_IS_NULL", "NO_AUTO_VALUE_ON_ZERO, ANSI"])
def test_modes(client: Session, mode: str) -> None:
    """A mode that a TiDB does not have is 1105 with the refusal inside, as a real one answers."""
    wrong = mode.rpartition(",")[2]
    said = f"ERROR 1231 (42000): Variable 'sql_mode' can't be set to the value of '{wrong}'"
    assert refusal(client, f"SET SESSION sql_mode = '{mode}'") == [1105, said]
