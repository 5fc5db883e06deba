"""What an embedded TiDB knows of replication in both directions: its role, and which replication wrote a row."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.upstream.sql.test_session import Client
from tidegate.kv.keys import table_span
from tidegate.schema.parse_ddl import parse_ddl
from tidegate.source.tidb_segment import read_spans
from tidegate_upstream.change.plan import plan
from tidegate_upstream.change.role import check_role
from tidegate_upstream.change.session import DdlSession
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.log_writer import LogWriter, begin_log

FORBIDDEN = 8263
TABLE = "CREATE TABLE t (id INT PRIMARY KEY NONCLUSTERED, v INT DEFAULT 1, s VARCHAR(9), KEY old (v))"
SAFE = """
CREATE DATABASE d; CREATE TABLE u (id INT); CREATE TABLE u LIKE t; CREATE VIEW w AS SELECT id FROM t; DROP VIEW old_view
ALTER TABLE t ADD COLUMN c INT; ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 3; ALTER TABLE t ADD INDEX i (s)
ALTER TABLE t ADD COLUMN b BIT(3) NOT NULL DEFAULT b'1'; ALTER TABLE t ADD COLUMN c INT, ADD COLUMN d INT
CREATE INDEX i ON t (s); ALTER TABLE t DROP INDEX old; ALTER TABLE t RENAME INDEX old TO new; ALTER TABLE t COMMENT 'c'
ALTER TABLE t ALTER INDEX old INVISIBLE; ALTER TABLE t DROP PRIMARY KEY; ALTER TABLE t ALTER COLUMN v SET DEFAULT 9
ALTER TABLE t ALTER COLUMN v DROP DEFAULT; ALTER TABLE t MODIFY COLUMN v INT DEFAULT 4 COMMENT 'c'
ALTER TABLE t MODIFY COLUMN s VARCHAR(9) COMMENT 'c'; ALTER TABLE p ADD PARTITION (PARTITION p2 VALUES LESS THAN (20))
""".strip()
UNSAFE = """
DROP DATABASE test; DROP TABLE t; TRUNCATE TABLE t; RENAME TABLE t TO u; ALTER DATABASE test CHARACTER SET utf8
ALTER TABLE t ADD COLUMN c INT NOT NULL; ALTER TABLE t DROP COLUMN s; ALTER TABLE t ADD UNIQUE INDEX i (s)
CREATE UNIQUE INDEX i ON t (s); ALTER TABLE n ADD PRIMARY KEY (id); ALTER TABLE t MODIFY COLUMN s VARCHAR(10)
ALTER TABLE t MODIFY COLUMN v BIGINT DEFAULT 1; ALTER TABLE t MODIFY COLUMN v INT NOT NULL DEFAULT 1
ALTER TABLE t CHANGE COLUMN v w INT DEFAULT 1; ALTER TABLE t MODIFY COLUMN v INT DEFAULT 1 FIRST
ALTER TABLE t ADD COLUMN c INT, DROP COLUMN s; ALTER TABLE t AUTO_INCREMENT = 9; CREATE SEQUENCE q
ALTER TABLE t COLLATE utf8mb4_general_ci; ALTER TABLE p DROP PARTITION p0
ALTER TABLE p TRUNCATE PARTITION p0; ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE n; ALTER TABLE p REMOVE PARTITIONING
ALTER TABLE t RENAME COLUMN v TO w
""".strip()


def each(text: str) -> list[str]:
    """The statements of a text."""
    return [one for line in text.splitlines() for one in line.split("; ")]


@pytest.fixture
def client() -> Client:
    made = Client(Cluster.open())
    made.run(f"{TABLE}; CREATE TABLE n (id INT NOT NULL); CREATE VIEW old_view AS SELECT id FROM t")
    ranges = "PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (15)"
    made.run(f"CREATE TABLE p (id INT NOT NULL) PARTITION BY RANGE (id) ({ranges})")
    return made


def test_role(client: Client) -> None:
    """A cluster has no role until it is given one, and none when it is taken away."""
    assert client.rows("ADMIN SHOW BDR ROLE") == [("",)]
    for role in ("primary", "secondary"):
        client.run(f"ADMIN SET BDR ROLE {role.upper()}")
        assert client.rows("ADMIN SHOW BDR ROLE") == [(role,)]
    client.run("ADMIN UNSET BDR ROLE")
    assert client.rows("ADMIN SHOW BDR ROLE") == [("",)]
    assert client.code("ADMIN SET BDR ROLE TERTIARY") == 1064


@pytest.mark.parametrize("sql", each(SAFE))
def test_allowed(client: Client, sql: str) -> None:
    """On the primary a DDL is allowed that others can follow."""
    [statement] = parse_ddl(sql, "test")
    schema = client.session.node.schema
    requests = plan(statement, schema, DdlSession("test", sql)).requests

    assert requests
    for request in requests:
        table = schema.tables.get(request.table_id)
        check_role("primary", request, table and table.stored)


def test_forbidden(client: Client) -> None:
    """On the primary a DDL that others cannot follow is refused; without a role it runs, and is no primary's."""
    client.run("ADMIN SET BDR ROLE PRIMARY")
    assert {sql: client.code(sql) for sql in each(UNSAFE)} == dict.fromkeys(each(UNSAFE), FORBIDDEN)
    client.run(f"ADMIN UNSET BDR ROLE; {each(UNSAFE)[1]}")
    assert client.session.node.ddl_client.history()[0].bdr_role == ""


def test_jobs_of_the_primary(client: Client) -> None:
    """The job of a primary's DDL says so, also of one in several parts."""
    client.run("ADMIN SET BDR ROLE PRIMARY; ALTER TABLE t ADD COLUMN c INT, ADD COLUMN d INT; CREATE TABLE u (id INT)")
    jobs = client.session.node.ddl_client.history()[:2]

    assert [(job.bdr_role, job.cdc_write_source) for job in jobs] == [("primary", 0)] * 2


@pytest.mark.parametrize("sql", [each(SAFE)[0], each(SAFE)[5], each(UNSAFE)[1]])
def test_secondary(client: Client, sql: str) -> None:
    """On a secondary users run no DDL; what a replication runs is told apart from it."""
    client.run("ADMIN SET BDR ROLE SECONDARY")
    assert client.code(sql) == FORBIDDEN
    client.run(f"SET tidb_cdc_write_source = 3; {sql}")
    job = client.session.node.ddl_client.history()[0]

    assert (job.bdr_role, job.cdc_write_source) == ("secondary", 3)


def test_rows_of_a_secondary(client: Client) -> None:
    """A role forbids no row."""
    client.run("ADMIN SET BDR ROLE SECONDARY; INSERT INTO t VALUES (1, 1, 'a'); UPDATE t SET v = 2; DELETE FROM t")

    assert client.rows("SELECT * FROM t") == []


# --- rows ---


def written(client: Client) -> Iterator[int]:
    """Rows of each source, in each way a session commits; their keys, by which the source is told."""
    for source in (0, 1, 15):
        client.run(f"SET tidb_cdc_write_source = {source}; INSERT INTO n VALUES ({source})")
        client.run(f"BEGIN; INSERT INTO n VALUES ({source + 20}); COMMIT")
        client.run(f"SET autocommit = 0; INSERT INTO n VALUES ({source + 40}); SET autocommit = 1")
        yield source


def sources(directory: Path, client: Client) -> list[int]:
    """The write sources of the rows that segments hold, in commit order."""
    table = client.session.view().table("test", "n").stored.id
    files = sorted(directory.glob("*.seg"))
    low, high = int(files[0].stem[:20]), int(files[-1].stem[21:])
    return [row.txn_source for row in read_spans(directory, low, high, (table_span(table),))]


def test_write_source(client: Client, tmp_path: Path) -> None:
    """Each row of a log says which replication wrote it: heard at once, found later, or in a log that begins late."""
    storage = client.session.node.storage
    live = LogWriter(ChangeLog(storage.store, storage.oracle), tmp_path / "live", 0)
    live.write(empty=True)
    expected = [source for source in written(client) for _ in range(3)]
    live.write()
    later = LogWriter(ChangeLog(storage.store, storage.oracle), tmp_path / "later", 0)
    later.write()
    begin_log(storage, tmp_path / "begun")

    assert sources(tmp_path / "live", client) == expected == [0] * 3 + [1] * 3 + [15] * 3
    assert sources(tmp_path / "later", client) == expected
    assert sorted(sources(tmp_path / "begun", client)) == expected


def test_two_phases(client: Client, tmp_path: Path) -> None:
    """A transaction of many keys carries its source as well, and rewrites of a DDL leave it."""
    storage = client.session.node.storage
    values = ", ".join(f"({number})" for number in range(600))
    client.run(f"SET tidb_cdc_write_source = 2; INSERT INTO n VALUES {values}; SET tidb_cdc_write_source = 0")
    writer = LogWriter(ChangeLog(storage.store, storage.oracle), tmp_path / "whole", 0)
    writer.write()
    client.run("ALTER TABLE n MODIFY COLUMN id VARCHAR(9) NOT NULL")
    begin_log(storage, tmp_path / "begun")

    assert sources(tmp_path / "whole", client) == [2] * 600
    assert sources(tmp_path / "begun", client) == [2] * 600
