"""What a feed finds at a server when it begins, and when it goes on: rights, tables, a server that is read-only."""

import logging
from collections.abc import Iterator

import pytest

from tests.failpoint import armed
from tests.mariadb import Server
from tidegate.engine.plan import Checkpoint
from tidegate.engine.ports import SinkPosition
from tidegate.model.errors import AccountRefused, Retry, SinkError, SinkRefused
from tidegate.sink.sql.connection import SqlOptions
from tidegate.sink.sql.sink import SqlSink
from tidegate.testing.contract import stories
from tidegate.testing.script import Script, ScriptedSource, put, run_here

pytestmark = pytest.mark.slow

TABLE = "CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(20), kind INT NOT NULL)"


def told() -> Script:
    """A feed with one table."""
    story = Script()
    story.ddl("shop", "CREATE DATABASE shop")
    story.ddl("shop.orders", TABLE)
    story.commit(put("shop.orders", id=1, note="a", kind=1))
    story.resolve()
    return story


def sink(server: Server, user: str = "root") -> SqlSink:
    """The sink, by an account without password."""
    return SqlSink(SqlOptions("feed", "127.0.0.1", server.port, user=user))


@pytest.fixture
def begun(server: Server) -> Script:
    """A feed that has done what it was told."""
    story = told()
    run_here(ScriptedSource(story), sink(server), until=story.ts)
    return story


def begin(server: Server, user: str = "root") -> None:
    """Begin again, as the engine does."""
    found = sink(server, user)
    found.open(found.recover())
    found.close()


def begin_new(server: Server) -> None:
    """Begin another feed with the tables of this one."""
    position, other = sink(server).recover(), SqlSink(SqlOptions("other", "127.0.0.1", server.port))
    other.recover()
    other.open(SinkPosition(Checkpoint(), position.state))
    other.close()


ALTERED = {
    "type": ("MODIFY note VARCHAR(3)", "column note of table shop.orders is varchar(3), not varchar(20)"),
    "null": ("MODIFY kind INT", "column kind of table shop.orders is int, not int not null"),
    "key": ("DROP PRIMARY KEY", "table shop.orders lacks the primary key (id)"),
    "column": ("DROP COLUMN note", "table shop.orders has no column note"),
    "table": ("RENAME TO shop.elsewhere", "table shop.orders does not exist"),
}


@pytest.mark.parametrize("kind", ALTERED)
def test_a_table_that_somebody_altered(
    server: Server, begun: Script, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A feed that goes on says where a table differs; a new one is refused without its columns."""
    assert begun
    change, says = ALTERED[kind]
    with caplog.at_level(logging.WARNING):
        begin(server)
    assert not caplog.messages
    server.run(f"ALTER TABLE shop.orders {change}")
    with caplog.at_level(logging.WARNING):
        begin(server)
    assert says in caplog.text
    if kind in ("column", "table"):
        with pytest.raises(SinkRefused, match="must start from a copy"):
            begin_new(server)
    else:
        caplog.clear()
        begin_new(server)
        assert says in caplog.text


def test_most_differences(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Five differences are named, the others counted."""
    story = Script()
    story.ddl("shop", "CREATE DATABASE shop")
    for number in range(7):
        story.ddl(f"shop.t{number}", f"CREATE TABLE shop.t{number} (id INT PRIMARY KEY)")
    story.resolve()
    run_here(ScriptedSource(story), sink(server), until=story.ts)
    server.run("DROP DATABASE shop")
    begin(server)
    assert caplog.text.count("does not exist") == 5
    assert "and 2 more" in caplog.text


class Died(BaseException):
    """Ends a run, as SIGKILL would."""


def test_amid_a_ddl(server: Server, begun: Script, caplog: pytest.LogCaptureFixture) -> None:
    """Tables that a DDL has altered, of which the checkpoint does not know, are not taken for somebody's work."""

    def die() -> None:
        raise Died

    begun.ddl("shop.orders", "ALTER TABLE shop.orders MODIFY note VARCHAR(50)")
    begun.resolve()
    for place in ("ddl/executed", "sql/before-advance"):
        with armed({place: die}), pytest.raises(Died):
            run_here(ScriptedSource(begun), sink(server), until=begun.ts)
        begin(server)
    run_here(ScriptedSource(begun), sink(server), until=begun.ts)
    assert "differ from the upstream's" not in caplog.text


@pytest.fixture
def account(server: Server) -> Iterator[str]:
    """An account that may write the progress."""
    server.run(
        "CREATE OR REPLACE USER writer@'127.0.0.1'",
        "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON tidegate.* TO writer@'127.0.0.1'",
    )
    yield "writer"
    server.run("DROP USER writer@'127.0.0.1'")


def test_rights(server: Server, begun: Script, account: str, caplog: pytest.LogCaptureFixture) -> None:
    """A right to write rows that is missing is named with the statement that grants it, and waited for; those that only
    DDLs need are said, and grants of patterns, tables and everything count."""
    assert begun
    server.run(rf"GRANT SELECT, INSERT ON `sh\_p`.* TO {account}@'127.0.0.1'")
    server.run(f"GRANT SELECT, INSERT, UPDATE ON `s_op`.* TO {account}@'127.0.0.1'")
    with pytest.raises(AccountRefused, match="lacks DELETE on database shop") as error:
        begin(server, account)
    assert error.value.retry is Retry.LATER
    server.run(f"GRANT DELETE ON shop.orders TO {account}@'127.0.0.1'")
    begin(server, account)
    assert "GRANT CREATE, DROP, ALTER, INDEX ON `shop`.* TO 'writer'@'127.0.0.1'" in caplog.text
    server.run(f"GRANT ALL ON *.* TO {account}@'127.0.0.1'")
    caplog.clear()
    begin(server, account)
    assert not caplog.messages


def test_read_only(server: Server, begun: Script, account: str) -> None:
    """A server that is read-only is told at the start, with the way out, and may be tried again."""
    assert begun
    server.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON shop.* TO {account}@'127.0.0.1'")
    server.run("SET GLOBAL read_only = ON")
    try:
        with pytest.raises(SinkError, match="read_only = OFF") as error:
            begin(server, account)
    finally:
        server.run("SET GLOBAL read_only = OFF")
    assert error.value.retry is Retry.LATER
    begin(server, account)


def test_the_stories_begin_again(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Tables that the feed itself has made are as they are meant, whatever made them; one without a key is told."""
    story = stories.shop()
    run_here(ScriptedSource(story), sink(server), until=story.ts)
    caplog.clear()
    begin(server)
    (message,) = caplog.messages
    assert message.startswith("shop.visits: no primary key")
