"""SHOW, DESC, ADMIN and information_schema over the definitions of a cluster."""

import pytest

from tests.upstream.sql.recorded import tables
from tests.upstream.sql.test_session import Client
from tidegate.expr.scope import ResultSet
from tidegate.schema.parse_ddl import parse
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
        "CREATE DATABASE shop; USE shop; CREATE TABLE items (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, "
        "name VARCHAR(20) NOT NULL DEFAULT 'x' COMMENT 'what', price DECIMAL(8,2), "
        "made TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), "
        "twice DECIMAL(9,2) AS (price * 2) STORED, PRIMARY KEY (id), KEY by_price (price, name(3)), "
        "KEY by_low ((LOWER(name)))) COMMENT='things' PARTITION BY HASH (id) PARTITIONS 2; "
        "CREATE TABLE plain (a INT UNIQUE); CREATE VIEW cheap AS SELECT id FROM items WHERE price < 5"
    )
    return made


def heads(client: Client, sql: str) -> list[str]:
    answer = client.run(sql)
    assert isinstance(answer, ResultSet)
    return [column.name for column in answer.columns]


def test_columns(client: Client) -> None:
    """SHOW COLUMNS and DESC tell names, types, keys, defaults and what else there is."""
    rows = client.rows("SHOW COLUMNS FROM items")

    assert rows == client.rows("DESC shop.items") == client.rows("SHOW FIELDS IN items IN shop")
    assert heads(client, "DESC items") == ["Field", "Type", "Null", "Key", "Default", "Extra"]
    assert rows == [
        ("id", "bigint(20) unsigned", "NO", "PRI", None, "auto_increment"),
        ("name", "varchar(20)", "NO", "", "x", ""),
        ("price", "decimal(8,2)", "YES", "MUL", None, ""),
        (
            *("made", "timestamp(3)", "YES", "", "CURRENT_TIMESTAMP(3)"),
            "DEFAULT_GENERATED on update CURRENT_TIMESTAMP(3)",
        ),
        ("twice", "decimal(9,2)", "YES", "", None, "STORED GENERATED"),
    ]
    assert client.rows("SHOW FULL COLUMNS FROM items WHERE Comment <> ''") == [
        ("name", "varchar(20)", "utf8mb4_bin", "NO", "", "x", "", "select,insert,update,references", "what")
    ]


def test_indexes(client: Client) -> None:
    """SHOW INDEX tells every part of every key, the handle's first, expressions and prefixes included."""
    rows = [(row[1], row[2], row[3], row[4], row[7], row[14]) for row in client.rows("SHOW INDEX FROM items")]

    assert rows == [
        (0, "PRIMARY", 1, "id", None, None),
        (1, "by_price", 1, "price", None, None),
        (1, "by_price", 2, "name", 3, None),
        (1, "by_low", 1, None, None, "lower(`name`)"),
    ]


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SHOW TABLES", [("cheap",), ("items",), ("plain",)]),
        ("SHOW FULL TABLES FROM shop LIKE 'c%'", [("cheap", "VIEW")]),
        ("SHOW TABLES IN shop WHERE Tables_in_shop > 'j'", [("plain",)]),
        ("SHOW DATABASES LIKE 's%'", [("shop",), ("sys",)]),
        ("SHOW VARIABLES LIKE 'tidb_row_format%'", [("tidb_row_format_version", "2")]),
        ("SHOW SESSION VARIABLES WHERE Variable_name = 'autocommit'", [("autocommit", "ON")]),
        ("SHOW CREATE DATABASE shop", [("shop", "CREATE DATABASE `shop` /*!40100 DEFAULT CHARACTER SET utf8mb4 */")]),
        ("SHOW TRIGGERS", []),
        ("SHOW PROCEDURE STATUS WHERE Db = 'shop'", []),
    ],
)
def test_lists(client: Client, sql: str, rows: list[tuple[object, ...]]) -> None:
    """Lists hold what is there, chosen by LIKE and WHERE."""
    assert client.rows(sql) == rows


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SHOW COLUMNS FROM nope", 1146),
        ("SHOW CREATE TABLE nope", 1146),
        ("SHOW TABLES FROM nope", 1049),
        ("SHOW CREATE DATABASE nope", 1049),
        ("SHOW SOMETHING", 1064),
        ("SHOW TABLES EXTRA", 1064),
        ("ADMIN DANCE", 1064),
        ("ADMIN CHECK TABLE nope", 1146),
    ],
)
def test_refusals(client: Client, sql: str, code: int) -> None:
    """What is not there is refused with MySQL's numbers."""
    assert client.code(sql) == code


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
    (statement,) = parse(text, "test")
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


def test_keys_between_tables() -> None:
    """KEY_COLUMN_USAGE tells the columns of primary, unique and foreign keys, and what the last lead to."""
    made = Client(Cluster.open())
    made.run(
        "CREATE DATABASE d; USE d; CREATE TABLE p (a INT, b INT, PRIMARY KEY (a, b)); "
        "CREATE TABLE c (id INT UNIQUE, x INT, y INT, KEY (x), CONSTRAINT k FOREIGN KEY (x, y) REFERENCES p (a, b))"
    )
    asked = (
        "SELECT constraint_name, table_name, column_name, ordinal_position, referenced_table_schema, "
        "referenced_table_name, referenced_column_name FROM information_schema.key_column_usage "
        "WHERE table_schema = 'd' ORDER BY 2, 1, 4"
    )
    assert made.rows(asked) == [
        ("id", "c", "id", 1, None, None, None),
        ("k", "c", "x", 1, "d", "p", "a"),
        ("k", "c", "y", 2, "d", "p", "b"),
        ("PRIMARY", "p", "a", 1, None, None, None),
        ("PRIMARY", "p", "b", 2, None, None, None),
    ]


def test_information(client: Client) -> None:
    """information_schema answers joins, conditions in any case of letters, and counts."""
    assert client.rows(
        "SELECT t.table_name, COUNT(*) FROM information_schema.tables t JOIN information_schema.columns c "
        "ON c.table_schema = t.table_schema AND c.table_name = t.table_name "
        "WHERE t.TABLE_SCHEMA = 'SHOP' GROUP BY t.table_name ORDER BY 1"
    ) == [("cheap", 1), ("items", 5), ("plain", 1)]


@pytest.mark.parametrize("name", TABLES)
def test_rows_fit_their_columns(client: Client, name: str) -> None:
    """Every row of every table has a value for each of its columns."""
    relation = client.session.information().relation("information_schema", name)

    assert all(len(row) == len(relation.columns) for row in relation.held)
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
        assert all(len(row) == len(relation.columns) for row in relation.held)
    listed = schema.relation("information_schema", "TABLES").held
    assert {row[3] for row in listed} == {"BASE TABLE", "VIEW", "SEQUENCE"}
