"""DDLs as TiCDC prints them do what their users meant: another TiDB that gets the texts has the same tables.

random DDL ──► upstream TiDB ── job ──► restored text ──► downstream TiDB      SHOW CREATE TABLE of both is equal
└─► MariaDB              reads each text but those of NOT_MARIADB
"""

from collections.abc import Iterator
from random import Random

import pymysql
import pytest

from tests.counts import some
from tests.mariadb import Server, running_server
from tests.upstream.simulate.ddl import SETUP, Draw
from tests.upstream.worlds import seeds
from tidegate.expr.scope import ResultSet
from tidegate.model.errors import TidegateError
from tidegate.schema.restore_ddl import restore_ddl
from tidegate.schema.stored.definition import StoredTable
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.session import Session

pytestmark = pytest.mark.slow

STATEMENTS = 60
SYNTAX = 1064
NOT_MARIADB = frozenset({"recover_table", "expression_index"})
"""Kinds of statements of which MariaDB knows nothing: RECOVER and FLASHBACK TABLE, keys on expressions."""


class Database:
    """An embedded TiDB with one session in database gd."""

    def __init__(self) -> None:
        self.cluster = Cluster.open()
        self.session = Session(self.cluster.nodes["n1"])
        self.run("create database gd; use gd")

    def run(self, text: str) -> object:
        """The last answer."""
        return self.session.execute(text)[-1]

    def tables(self) -> dict[str, StoredTable]:
        """The definitions of gd by name."""
        found = self.cluster.nodes["n1"].schema.tables.values()
        return {each.stored.name.lower: each.stored for each in found if each.schema == "gd"}

    def definition(self, name: str) -> str:
        """What SHOW CREATE TABLE says."""
        answer = self.run(f"show create table `{name}`")
        assert isinstance(answer, ResultSet)
        return str(answer.rows[0][1])

    def definitions(self) -> dict[str, str]:
        """All tables by name."""
        return {name: self.definition(name) for name in sorted(self.tables())}


def story(seed: int) -> list[tuple[str, str]]:
    """(kind, restored text) of the DDLs of a seed that the upstream took; a downstream that ran them is the same."""
    random, upstream, downstream = Random(seed), Database(), Database()
    told: list[tuple[str, str]] = []
    dropped: list[str] = []
    drawn = iter([("create_table", text) for text in SETUP])
    for _ in range(STATEMENTS):
        kind, text = next(drawn, None) or Draw(random, upstream.tables(), dropped).statement()
        before = set(upstream.tables())
        try:
            upstream.run(text)
        except TidegateError:
            continue
        dropped += sorted(before - set(upstream.tables()))
        found = restore_ddl(text)
        assert not found.loses
        downstream.run(found.text)
        assert downstream.definitions() == upstream.definitions(), (text, found.text)
        told.append((kind, found.text))
    assert len(told) > STATEMENTS // 4
    return told


@pytest.mark.parametrize("seed", seeds(some(1, 50)))
def test_another_tidb_has_the_same_tables(seed: int) -> None:
    """After each DDL."""
    story(seed)


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all seeds."""
    with running_server(tmp_path_factory.mktemp("mariadb")) as found:
        yield found


def refusal(server: Server, text: str) -> int:
    """The number of the error that a text ends with, 0 for none."""
    try:
        server.run(text)
    except pymysql.err.Error as error:
        return int(error.args[0])
    return 0


@pytest.mark.parametrize("seed", seeds(some(1, 20)))
def test_mariadb_reads_the_texts(mariadb: Server, seed: int) -> None:
    """A text may be refused for what it asks for, never for how it is written."""
    mariadb.run("drop database if exists gd", "create database gd", "use gd")
    read = 0
    for kind, text in story(seed):
        error = refusal(mariadb, text)
        assert kind in NOT_MARIADB or error != SYNTAX, text
        read += error == 0
    assert read > STATEMENTS // 8
