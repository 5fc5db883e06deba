"""What a reader of the replica sees while it is written."""

import threading
from collections.abc import Iterator

import pymysql
import pytest

from tests.contract.test_sql_sink import emptied
from tests.mariadb import Server, running_server
from tidegate.engine.ports import LocalTasks
from tidegate.sink.sql.connection import Atomicity, SqlOptions
from tidegate.sink.sql.sink import SqlSink
from tidegate.sink.sql.sink import families as families_by
from tidegate.testing.script import Script, ScriptedSource, put, remove, run_here

pytestmark = pytest.mark.slow

TOTAL = 1000
MONEY = "SELECT SUM(money) FROM (SELECT money FROM bank.here UNION ALL SELECT money FROM bank.there) m"
PAIRS = 150


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A MariaDB for the tests of this file."""
    with running_server(tmp_path_factory.mktemp("mariadb")) as found:
        yield found


def bank() -> Script:
    """Money that goes from one table to another, and back, a transaction each; four rows of each table."""
    story = Script()
    story.ddl("bank", "CREATE DATABASE bank")
    for table in ("bank.here", "bank.there"):
        story.ddl(table, f"CREATE TABLE {table} (id INT PRIMARY KEY, money INT)")
    story.commit(*(put(f"bank.{table}", id=id_, money=TOTAL // 8) for table in ("here", "there") for id_ in range(4)))
    for number in range(PAIRS):
        id_, money = number % 4, TOTAL // 8 + (5 if number % 8 < 4 else 0)
        story.commit(
            put("bank.here", id=id_, money=money),
            put("bank.there", id=id_, money=TOTAL // 4 - money),
        )
    story.resolve()
    return story


class Reader(threading.Thread):
    """Adds the money up, again and again, in one statement: one state of the database."""

    def __init__(self, port: int, question: str = MONEY) -> None:
        super().__init__()
        self.port, self.question = port, question
        self.over, self.sums = threading.Event(), set[int]()

    def run(self) -> None:
        """Until it is over."""
        connection = pymysql.connect(host="127.0.0.1", port=self.port, user="root", autocommit=True)
        with connection, connection.cursor() as cursor:
            while not self.over.is_set():
                try:
                    cursor.execute(self.question)
                except pymysql.MySQLError:
                    continue  # the tables are not there yet
                ((found,),) = cursor.fetchall()
                if found is not None:
                    self.sums.add(int(found))


def seen(server: Server, atomicity: Atomicity) -> set[int]:
    """The totals that a reader saw."""
    emptied(server)
    reader = Reader(server.port)
    reader.start()
    story = bank()
    try:
        sink = SqlSink(SqlOptions("feed", "127.0.0.1", server.port, atomicity=atomicity, txn_rows=2))
        run_here(ScriptedSource(story), sink, until=story.ts)
    finally:
        reader.over.set()
        reader.join(30)
    return reader.sums


def families(*, tied: bool) -> Script:
    """Parents, and children that point to them, a transaction for each pair; then both go."""
    story = Script()
    story.ddl("home", "CREATE DATABASE home")
    story.ddl("home.parents", "CREATE TABLE home.parents (id INT PRIMARY KEY)")
    key = ", FOREIGN KEY (parent) REFERENCES home.parents (id)" if tied else ""
    story.ddl("home.children", f"CREATE TABLE home.children (id INT PRIMARY KEY, parent INT{key})")
    for number in range(PAIRS):
        story.commit(put("home.parents", id=number), put("home.children", id=number, parent=number))
    for number in range(PAIRS):
        story.commit(remove("home.children", id=number), remove("home.parents", id=number))
    story.resolve()
    return story


ORPHANS = "SELECT COUNT(*) FROM home.children c LEFT JOIN home.parents p ON p.id = c.parent WHERE p.id IS NULL"


def orphans(server: Server, *, tied: bool) -> set[int]:
    """How many children without their parents a reader saw, while tables were written by tasks of their own."""
    emptied(server)
    reader = Reader(server.port, ORPHANS)
    reader.start()
    story = families(tied=tied)
    try:
        sink = SqlSink(SqlOptions("feed", "127.0.0.1", server.port, atomicity="table", txn_rows=2))
        run_here(ScriptedSource(story), sink, until=story.ts, tasks=LocalTasks(7))
    finally:
        reader.over.set()
        reader.join(30)
    return reader.sums


def test_families(server: Server) -> None:
    """Tables that a foreign key ties together are written in order, though tables are written side by side: no child
    is seen without its parent."""
    assert orphans(server, tied=True) == {0}


def test_tables_that_nothing_ties(server: Server) -> None:
    """Without a foreign key such children are seen."""
    assert orphans(server, tied=False) > {0}


def test_names_of_families() -> None:
    """Keys that lead from table to table make one family, whatever their order; one to itself makes one, too."""
    a, b, c, d, e = (("s", name) for name in "abcde")
    for edges in ([(a, b), (c, d), (b, c), (e, e)], [(c, d), (b, c), (e, e), (b, a)]):
        assert families_by(edges) == {a: a, b: a, c: a, d: a, e: e}


def test_global(server: Server) -> None:
    """With transactions of the upstream the total is the same at every moment."""
    assert seen(server, "global") == {TOTAL}


@pytest.mark.parametrize("atomicity", ["table", "none"])
def test_half_a_transaction(server: Server, atomicity: Atomicity) -> None:
    """With transactions of tables, or of rows, a reader sees money in both tables, or in none of them."""
    assert len(seen(server, atomicity)) > 1
