"""What SHOW, ADMIN and information_schema tell beyond tests/scripts/show.txt: moments, jobs, every table."""

import pytest

from tests.upstream.sql.recorded import tables
from tests.upstream.sql.test_session import Client
from tidegate.schema.parse_ddl import parse_ddl
from tidegate.schema.stored.arguments import ARGUMENTS
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate_upstream.change.plan import plan
from tidegate_upstream.change.session import DdlSession
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.information_schema import TABLES, Facts, InformationSchema, type_name


@pytest.fixture(scope="module")
def client() -> Client:
    made = Client(Cluster.open())
    made.run(
        "CREATE DATABASE shop; USE shop; CREATE TABLE items (id INT PRIMARY KEY, price INT); "
        "CREATE TABLE plain (a INT UNIQUE); CREATE VIEW cheap AS SELECT id FROM items WHERE price < 5"
    )
    return made


def test_position(client: Client) -> None:
    """SHOW MASTER STATUS gives a timestamp of now: what is written later commits above it."""
    ((_, position, *_),) = client.rows("SHOW MASTER STATUS")
    client.run("INSERT INTO plain VALUES (1)")

    assert isinstance(position, int)
    assert position < client.session.node.storage.oracle.newest


def test_jobs(client: Client) -> None:
    """ADMIN SHOW DDL JOBS lists the newest jobs first, and the same as DDL_JOBS, which has their texts."""
    rows = client.rows("ADMIN SHOW DDL JOBS 2")

    assert [(row[1], row[2], row[3], row[-2]) for row in rows] == [
        ("shop", "cheap", "create view", "synced"),
        ("shop", "plain", "create table", "synced"),
    ]
    assert client.rows("SELECT query FROM information_schema.ddl_jobs LIMIT 1, 1") == [
        ("CREATE TABLE plain (a INT UNIQUE)",)
    ]
    assert client.rows("SELECT job_id FROM information_schema.ddl_jobs LIMIT 2") == [(row[0],) for row in rows]
    assert len(client.rows("ADMIN SHOW DDL JOBS 50 WHERE job_type = 'create schema'")) == 1


def test_jobs_are_named_by_their_actions() -> None:
    """Each action that a plan asks for has a name."""
    assert (type_name(39), type_name(40)) == ("modify auto id cache", "rebase auto_random ID")
    assert not [action for action in ARGUMENTS if type_name(action).startswith("unknown")]


def test_jobs_can_be_taken_back() -> None:
    """A job that runs is cancelled; one that is over or unknown is not found."""
    cluster = Cluster.open()
    client, blocker = Client(cluster), Client(cluster)
    client.run("CREATE TABLE t (id INT PRIMARY KEY)")
    job_id = client.session.node.ddl_client.history()[0].id
    blocker.run("BEGIN; INSERT INTO t VALUES (1)")
    node = client.session.node
    text = "ALTER TABLE t ADD INDEX i (id)"
    (statement,) = parse_ddl(text, "test")
    planned = plan(statement, node.schema, DdlSession(database="test", query=text))
    waiting = node.ddl_client.submit(planned.requests[0])
    for _ in range(3):
        cluster.tick()

    assert client.code(f"ADMIN PAUSE DDL JOBS {waiting}") == 1064
    answers = client.rows(f"ADMIN CANCEL DDL JOBS {waiting}, {job_id}, 999")
    blocker.run("ROLLBACK")
    while cluster.tick():
        pass

    assert [str(result)[:16] for _, result in answers] == ["successful", "error: [ddl:8224", "error: [ddl:8224"]
    assert client.rows("ADMIN SHOW DDL JOBS 1")[0][-2] in ("rollback done", "cancelled")


@pytest.mark.parametrize("name", TABLES)
def test_rows_fit_their_columns(client: Client, name: str) -> None:
    """Every row of every table has a value for each of its columns."""
    relation = client.session.information().relation("information_schema", name)

    assert all(len(row) == len(relation.columns) for row in relation.stored_rows)
    assert isinstance(client.one(f"SELECT COUNT(*) FROM information_schema.{name}"), int)


def test_recorded_definitions_have_rows() -> None:
    """All recorded definitions can be told: columns, keys, views."""
    held = {
        number: TableVersion(2, "d", stored, stored.update_timestamp)
        for number, stored in enumerate(one for one in tables())
    }
    schema = InformationSchema(Facts(StoredSnapshot(tables=held)))

    for name in TABLES:
        relation = schema.relation("information_schema", name)
        assert all(len(row) == len(relation.columns) for row in relation.stored_rows)
    listed = schema.relation("information_schema", "TABLES").stored_rows
    assert {row[3] for row in listed} == {"BASE TABLE", "VIEW", "SEQUENCE"}
