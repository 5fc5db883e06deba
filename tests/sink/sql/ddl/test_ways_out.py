"""A DDL that ends a feed into a database names ways out: each of them is taken here, as people take it."""

import re
from contextlib import suppress
from typing import Any

import pymysql
import pytest
from click.testing import CliRunner

from tests.failpoint import armed
from tests.sink.sql.ddl.world import World, follow
from tidegate.cli.main import main
from tidegate.engine.change import SourceDdl
from tidegate.model.errors import SinkRefused
from tidegate_upstream.tidb.listener import Upstream

pytestmark = pytest.mark.slow


class Died(Exception):
    """What a failpoint raises in place of a SIGKILL."""


def die(_: object = None) -> None:
    """Dies."""
    raise Died


@pytest.fixture
def filled(maria: World) -> World:
    """A target with tables."""
    for text in (
        "create database d",
        "create table t (id int primary key, a int)",
        "create table r (id int primary key, a int) partition by range (id) (partition p0 values less than (100))",
        "create table x (id int primary key, a int)",
    ):
        maria.ddl(text)
    return maria


def refused(world: World, placed: SourceDdl, connect: Any = None) -> str:
    """What the error says."""
    with pytest.raises(SinkRefused) as error:
        follow(world.runner(connect=connect), placed, world.state)
    return str(error.value)


def command(world: World, told: str, *, again: bool = False) -> None:
    """The command that an error names, given."""
    words = re.findall(r"`tidegate (sink ddl [^`]*)`", told)[0]
    words = words.replace("SINK-URI", f"mysql://root@127.0.0.1:{world.port}/")
    words = words.replace("--done", "--again") if again else words
    assert CliRunner().invoke(main, words.split()).exit_code == 0


def goes_on(world: World, placed: SourceDdl, connect: Any = None) -> None:
    """The feed does this DDL and another, and the target has what the upstream has."""
    world.state = follow(world.runner(connect=connect), placed, world.state)
    world.ddl("create table behind (id int primary key)")
    assert world.meant() == world.looks()


@pytest.mark.parametrize("way", ["mended", "by hand"])
def test_what_stands_in_its_way_is_mended(filled: World, way: str) -> None:
    """Somebody's table has the name: it is taken away, or made what it should be and the DDL said to be done."""
    filled.ask("CREATE TABLE d.u (id INT PRIMARY KEY, b INT)")
    placed = filled.placed("create table u (id int primary key, a int)")
    told = refused(filled, placed)
    assert "Fix the cause and resume the changefeed" in told

    if way == "mended":
        filled.ask("DROP TABLE d.u")
    else:
        filled.ask("ALTER TABLE d.u CHANGE b a INT")
        command(filled, told)
    goes_on(filled, placed)


def test_another_table_stood_there(filled: World) -> None:
    """IF NOT EXISTS over another table: brought to the shape of the upstream, and said to be done."""
    filled.ask("CREATE TABLE d.u (id INT PRIMARY KEY, b INT)")
    placed = filled.placed("create table if not exists u (id int primary key, a int)")
    told = refused(filled, placed)
    assert "bring it to the definition of the upstream" in told

    filled.ask("ALTER TABLE d.u CHANGE b a INT")
    command(filled, told)
    goes_on(filled, placed)


def test_altered_amid_a_ddl(filled: World) -> None:
    """A table is neither in the state before nor after: brought to the shape after the DDL, and said to be done."""
    placed = filled.placed("alter table t drop column a, add column b int, add column c int")
    with armed({"ddl/running": die}), suppress(Died):
        follow(filled.runner(), placed, filled.state)
    filled.ask("ALTER TABLE d.t ADD COLUMN b INT")
    told = refused(filled, placed)
    assert "neither in the state before nor after" in told

    filled.ask("ALTER TABLE d.t DROP COLUMN a, ADD COLUMN c INT")
    command(filled, told)
    goes_on(filled, placed)


@pytest.mark.parametrize("way", ["done", "again"])
def test_an_exchange_that_nobody_can_tell(filled: World, way: str) -> None:
    """An account that may not see the numbers of tables: who looks says whether it was done, or that it runs again."""
    filled.ask("INSERT INTO d.r VALUES (1, 1)")
    filled.ask("CREATE OR REPLACE USER writer@'127.0.0.1'")
    for grant in ("ON d.*", "ON tidegate.*"):
        filled.ask(f"GRANT ALL {grant} TO writer@'127.0.0.1'")

    def connect() -> Any:
        return pymysql.connect(host="127.0.0.1", port=filled.port, user="writer", autocommit=True)

    placed = filled.placed("alter table r exchange partition p0 with table x")
    with armed({"ddl/executed" if way == "done" else "ddl/running": die}), suppress(Died):
        follow(filled.runner(connect=connect), placed, filled.state)
    told = refused(filled, placed, connect)
    assert "it is unknown whether" in told

    command(filled, told, again=way == "again")
    goes_on(filled, placed, connect)
    assert filled.ask("SELECT id FROM d.x") == [(1,)]


def test_a_default_that_a_tidb_refuses(tidb: Upstream) -> None:
    """ADD COLUMN with a default that a function computes is refused by name, not sent again and again; done by hand the
    feed goes on."""
    world = World(tidb.ports["n1"])
    world.ddl("create database d")
    world.ddl("create table t (id int primary key)")
    placed = world.placed("alter table t add column u varchar(40) default (uuid())")
    told = refused(world, placed)
    assert "cannot run this DDL: a default that a function computes, in a column that is added" in told
    world.ask("ALTER TABLE d.t ADD COLUMN u VARCHAR(40)")
    command(world, told)
    goes_on(world, placed)
    assert world.looks() == world.meant()
    world.close()
