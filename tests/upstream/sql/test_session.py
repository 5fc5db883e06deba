"""Sessions over a real cluster: transactions, savepoints, retries, the past, settings, and what errors leave behind."""

from collections.abc import Callable

import pytest

from tidegate.expr.scope import ResultSet
from tidegate.model.errors import SqlRefused, UpstreamError
from tidegate_upstream.errors import WriteConflict
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.dml import Outcome
from tidegate_upstream.tidb.session import Session
from tidegate_upstream.tidb.variables import GlobalVariables

Rows = list[tuple[object, ...]]


class Client:
    """A session with words of its own."""

    def __init__(self, cluster: Cluster, shared: GlobalVariables | None = None, node: str = "n1") -> None:
        self.session = Session(cluster.nodes[node], shared)
        self.session.execute("USE test")

    def run(self, sql: str) -> Outcome | ResultSet:
        """The last answer."""
        return self.session.execute(sql)[-1]

    def rows(self, sql: str) -> Rows:
        """The rows of the last answer."""
        answer = self.run(sql)
        assert isinstance(answer, ResultSet), sql
        return list(answer.rows)

    def one(self, sql: str) -> object:
        """The only value."""
        ((value,),) = self.rows(sql)
        return value

    def code(self, sql: str) -> int:
        """The number of the error."""
        with pytest.raises(UpstreamError) as refused:
            self.run(sql)
        return refused.value.mysql_code


@pytest.fixture
def cluster() -> Cluster:
    return Cluster.open()


@pytest.fixture
def client(cluster: Cluster) -> Client:
    made = Client(cluster)
    made.run("CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 10), (2, 20)")
    return made


# --- transactions ---


def test_autocommit(client: Client, cluster: Cluster) -> None:
    """A statement outside a transaction is there for others at once."""
    client.run("UPDATE t SET v = 11 WHERE id = 1")

    assert Client(cluster).rows("SELECT * FROM t") == [(1, 11), (2, 20)]
    assert not client.session.in_transaction


@pytest.mark.parametrize("begin", ["BEGIN", "START TRANSACTION", "BEGIN PESSIMISTIC", "SET autocommit = 0"])
def test_transactions(client: Client, cluster: Cluster, begin: str) -> None:
    """What a transaction writes is its own until COMMIT, and gone after ROLLBACK."""
    other = Client(cluster)
    client.run(begin)
    client.run("INSERT INTO t VALUES (3, 30)")

    assert (client.one("SELECT COUNT(*) FROM t"), other.one("SELECT COUNT(*) FROM t")) == (3, 2)
    client.run("ROLLBACK")
    assert client.one("SELECT COUNT(*) FROM t") == 2
    client.run(f"ROLLBACK; {begin}; INSERT INTO t VALUES (4, 40); COMMIT")
    assert other.one("SELECT COUNT(*) FROM t") == 3


def test_a_transaction_reads_its_begin(client: Client, cluster: Cluster) -> None:
    """What others commit after BEGIN is not seen until the transaction ends."""
    client.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    Client(cluster).run("DELETE FROM t")

    assert client.one("SELECT COUNT(*) FROM t") == 2
    client.run("COMMIT")
    assert client.one("SELECT COUNT(*) FROM t") == 0


def test_a_failed_statement_leaves_the_transaction(client: Client) -> None:
    """A statement that fails half-way has done nothing, and the transaction goes on."""
    client.run("BEGIN; INSERT INTO t VALUES (3, 30)")

    assert client.code("INSERT INTO t VALUES (4, 40), (1, 0), (5, 50)") == 1062
    client.run("COMMIT")
    assert client.rows("SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,)]


def test_savepoints(client: Client) -> None:
    """ROLLBACK TO undoes what came after, RELEASE forgets a savepoint and the later ones."""
    client.run("BEGIN; SAVEPOINT a; INSERT INTO t VALUES (3, 3); SAVEPOINT b; INSERT INTO t VALUES (4, 4)")
    client.run("ROLLBACK TO b")
    assert client.one("SELECT COUNT(*) FROM t") == 3
    client.run("ROLLBACK TO SAVEPOINT a")
    assert client.one("SELECT COUNT(*) FROM t") == 2
    assert client.code("ROLLBACK TO b") == 1305
    client.run("RELEASE SAVEPOINT a")
    assert client.code("ROLLBACK TO a") == 1305


def test_conflicts(client: Client, cluster: Cluster) -> None:
    """Of two transactions that change a row the later commit fails with 9007, and leaves nothing open."""
    other = Client(cluster)
    for one in (client, other):
        one.run("BEGIN; UPDATE t SET v = v + 1 WHERE id = 1")
    other.run("COMMIT")

    with pytest.raises(WriteConflict):
        client.run("COMMIT")
    assert not client.session.in_transaction
    assert client.one("SELECT v FROM t WHERE id = 1") == 11


def test_autocommit_tries_again(client: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """An autocommit statement that meets a conflict is run anew on what is there by then."""
    other = Client(cluster)
    begin, begun = client.session.node.begin, []

    def late() -> object:
        transaction = begin()
        if not begun:
            begun.append(transaction)
            other.run("UPDATE t SET v = 100 WHERE id = 1")
        return transaction

    monkeypatch.setattr(client.session.node, "begin", late)
    client.run("UPDATE t SET v = v + 1 WHERE id = 1")
    monkeypatch.undo()

    assert client.one("SELECT v FROM t WHERE id = 1") == 101


def test_for_update_locks_what_it_reads(client: Client, cluster: Cluster) -> None:
    """A row read FOR UPDATE that others change makes the commit fail; one that is only read does not."""
    for suffix, fails in (("", False), (" FOR UPDATE", True)):
        client.run(f"BEGIN; SELECT * FROM t WHERE id = 1{suffix}; INSERT INTO t VALUES ({3 + fails}, 0)")
        Client(cluster).run("UPDATE t SET v = v + 1 WHERE id = 1")
        if fails:
            assert client.code("COMMIT") == 9007
        else:
            client.run("COMMIT")


def test_read_only(client: Client) -> None:
    """A READ ONLY transaction refuses writes with 1792."""
    client.run("START TRANSACTION READ ONLY")

    assert client.code("DELETE FROM t") == 1792
    client.run("COMMIT; SET TRANSACTION READ ONLY; BEGIN")
    assert client.code("DELETE FROM t") == 1792


@pytest.mark.parametrize("sql", ["SET @a = 1 + 1", "SELECT 1", "SELECT @@version", "SHOW TABLES", "USE test"])
def test_what_reads_no_table_opens_nothing(client: Client, sql: str) -> None:
    """With autocommit off, a transaction begins with the first statement that needs one."""
    client.run(f"SET autocommit = 0; {sql}")
    assert not client.session.in_transaction
    client.run("SELECT * FROM t")
    assert client.session.in_transaction


def test_ddl_commits(client: Client, cluster: Cluster) -> None:
    """A DDL ends the transaction before it, even one that is then refused."""
    client.run("BEGIN; INSERT INTO t VALUES (3, 30)")

    assert client.code("CREATE TABLE t (id INT)") == 1050
    assert Client(cluster).one("SELECT COUNT(*) FROM t") == 3


# --- the past ---


def test_numbers_go_on_after_a_ddl(client: Client) -> None:
    """A DDL does not throw away the batch of numbers that a node holds, but for one that sets the counter."""
    client.run("CREATE TABLE n (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
    client.run("INSERT INTO n (v) VALUES (1); ALTER TABLE n ADD INDEX i (v); INSERT INTO n (v) VALUES (2)")
    client.run("ALTER TABLE n AUTO_INCREMENT = 90000, ADD COLUMN w INT; INSERT INTO n (v) VALUES (3)")

    assert [row[0] for row in client.rows("SELECT id FROM n ORDER BY id")] == [1, 2, 90000]


def test_snapshot(client: Client) -> None:
    """tidb_snapshot reads rows and definitions of its moment, refuses writes, and ends with the empty text."""
    client.run("SET @was = TIDB_CURRENT_TSO(); UPDATE t SET v = 0; ALTER TABLE t DROP COLUMN v")
    client.run("SET tidb_snapshot = @was")

    assert client.rows("SELECT * FROM t") == [(1, 10), (2, 20)]
    assert "`v` int(11)" in str(client.rows("SHOW CREATE TABLE t"))
    assert client.rows("SELECT column_name FROM information_schema.columns WHERE table_name = 't'") == [("id",), ("v",)]
    assert (client.code("DELETE FROM t"), client.code("DROP TABLE t")) == (1105, 1105)
    client.run("SET tidb_snapshot = ''")
    assert client.rows("SELECT * FROM t") == [(1,), (2,)]


def test_snapshot_refusals(client: Client, cluster: Cluster) -> None:
    """A snapshot to come, a moment that is none, and one that is collected are refused."""
    before = cluster.storage.oracle.next()
    assert client.code(f"SET tidb_snapshot = {before + (1 << 40)}") == 8128
    assert client.code("SET tidb_snapshot = 'yesterday'") == 1292

    cluster.storage.store.raise_safe_point(cluster.storage.oracle.next())
    assert client.code(f"SET tidb_snapshot = {before}") == 8055


def test_external_timestamp(cluster: Cluster) -> None:
    """Sessions that ask for it read at the moment that a replication says is complete, and write nothing."""
    shared = GlobalVariables()
    writer, reader = Client(cluster, shared), Client(cluster, shared)
    writer.run("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1)")
    assert writer.one("SELECT @@tidb_current_ts") == 0
    writer.run("BEGIN; SET GLOBAL tidb_external_ts = @@tidb_current_ts")
    known = writer.one("SELECT @@tidb_current_ts")
    writer.run("COMMIT; INSERT INTO t VALUES (2); ALTER TABLE t ADD COLUMN v INT")

    assert writer.one("SELECT @@global.tidb_external_ts") == known
    assert reader.rows("SELECT * FROM t") == [(1, None), (2, None)]
    reader.run("SET tidb_enable_external_ts_read = ON")
    assert reader.rows("SELECT * FROM t") == [(1,)]
    assert "`v`" not in str(reader.rows("SHOW CREATE TABLE t"))
    assert [reader.code(one) for one in ("DELETE FROM t", "DROP TABLE t")] == [1836, 1836]
    writer.run("SET GLOBAL tidb_external_ts = TIDB_CURRENT_TSO()")
    assert reader.rows("SELECT * FROM t") == [(1, None), (2, None)]
    reader.run("SET tidb_enable_external_ts_read = OFF; DELETE FROM t")


def test_external_timestamp_refusals(client: Client, cluster: Cluster) -> None:
    """The external timestamp is the server's, never goes back, and is no time to come."""
    client.run("SET @was = TIDB_CURRENT_TSO(); SET GLOBAL tidb_external_ts = @was")
    held = client.one("SELECT @@global.tidb_external_ts")

    assert client.code("SET tidb_external_ts = @was") == 1229
    assert client.code("SET GLOBAL tidb_external_ts = @was - 1") == 1105
    assert client.code(f"SET GLOBAL tidb_external_ts = {cluster.storage.oracle.next() + (1 << 40)}") == 1105
    assert client.one("SELECT @@global.tidb_external_ts") == held


# --- settings, counts, warnings ---


def test_use(client: Client) -> None:
    """USE chooses the database, one that is not there is 1049, and one that is dropped is left."""
    assert client.code("USE nope") == 1049
    client.run("CREATE DATABASE other CHARACTER SET gbk; USE other")
    assert client.rows("SELECT DATABASE(), @@character_set_database") == [("other", "gbk")]
    client.run("DROP DATABASE other")
    assert client.one("SELECT DATABASE()") is None
    assert client.code("SELECT * FROM t") in (1046, 1146)
    client.run("USE Information_Schema")
    assert client.one("SELECT COUNT(*) FROM schemata WHERE schema_name = 'test'") == 1


def test_settings(client: Client) -> None:
    """SET changes variables in order, user variables too, and what they mean for later statements."""
    client.run("SET @a = 1, @b := @a + 1, sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES'), time_zone = '+08:00'")

    assert client.rows('SELECT @a, @b, "v" FROM t WHERE id = 1') == [(1, 2, 10)]
    assert client.one("SELECT @@time_zone") == "+08:00"
    client.run("SET sql_mode = DEFAULT, @c = 10 * 3")
    assert str(client.one("SELECT @c")) == "30"
    assert client.code("SET max_sort_length = 7, nope = 1") == 1193


def test_global_settings(cluster: Cluster) -> None:
    """SET GLOBAL is for sessions that come later."""
    shared = GlobalVariables()
    client = Client(cluster, shared)
    client.run("SET GLOBAL max_sort_length = 77")

    assert client.rows("SELECT @@max_sort_length, @@global.max_sort_length") == [(1024, 77)]
    assert Client(cluster, shared).one("SELECT @@max_sort_length") == 77


def test_leaving_autocommit_off_commits(client: Client, cluster: Cluster) -> None:
    """Autocommit = 1 commits what autocommit = 0 left open."""
    client.run("SET autocommit = 0; DELETE FROM t; SET autocommit = 1")

    assert Client(cluster).one("SELECT COUNT(*) FROM t") == 0


def test_counts(client: Client) -> None:
    """ROW_COUNT, FOUND_ROWS and LAST_INSERT_ID tell of the statements before."""
    client.run("CREATE TABLE n (id INT PRIMARY KEY AUTO_INCREMENT, v INT)")
    outcome = client.run("INSERT INTO n (v) VALUES (1), (2), (3)")
    assert isinstance(outcome, Outcome)
    assert (outcome.affected, outcome.last_insert_id) == (3, 1)
    assert client.rows("SELECT ROW_COUNT(), LAST_INSERT_ID()") == [(3, 1)]
    client.run("SELECT * FROM n")
    assert client.one("SELECT FOUND_ROWS()") == 3


def test_warnings(client: Client) -> None:
    """A statement's warnings stay until the next one that is no question about them; an error is one of them."""
    client.run("DROP TABLE IF EXISTS nope")
    assert client.rows("SHOW WARNINGS") == [("Note", 1051, "Unknown table 'test.nope'")]
    client.run("SELECT 1")
    assert client.rows("SHOW WARNINGS") == []
    assert client.code("SELECT * FROM nope") == 1146
    assert client.rows("SHOW WARNINGS") == [("Error", 1146, "Table 'test.nope' doesn't exist")]


def test_a_syntax_error_runs_nothing(client: Client) -> None:
    """Text that cannot be read is 1064, and no statement of it runs."""
    assert client.code("DELETE FROM t; SELEC 1") == 1064
    assert client.code("ALTER TABLE t ADD") == 1064
    assert client.code("SHOW NOTHING") == 1064
    assert client.code("DO 1") == client.code("EXECUTE find") == 1064
    assert client.code("SELECT * FROM t AS OF TIMESTAMP '2024-01-31'") == 1064
    assert client.code("START TRANSACTION READ ONLY AS OF TIMESTAMP '2024-01-31'") == 1064


@pytest.mark.parametrize(
    "sql", ["ALTER TABLE t ADD INDEX (v)", "ADMIN CHECK TABLE t", "ANALYZE TABLE t", "UNLOCK TABLES"]
)
def test_accepted(client: Client, sql: str) -> None:
    """Statements without an answer are done or have nothing to do."""
    assert isinstance(client.run(sql), Outcome)


def test_views(client: Client) -> None:
    """A view is its SELECT in the database where it was made, views of views too."""
    client.run("CREATE VIEW big AS SELECT id, v FROM t WHERE v > 10; CREATE VIEW names (n) AS SELECT id FROM big")
    client.run("CREATE DATABASE elsewhere; USE elsewhere")

    assert client.rows("SELECT n FROM test.names") == [(2,)]
    assert client.code("INSERT INTO test.big VALUES (9, 9)") == 1288


def test_expression_indexes_keep_values_apart(client: Client) -> None:
    """An index on an expression has its type: decimals, doubles and dates are not kept as whole numbers or texts."""
    client.run(
        "CREATE TABLE e (id INT PRIMARY KEY, f DOUBLE, d DATETIME, "
        "UNIQUE KEY k ((id * 1.5)), UNIQUE KEY l ((ABS(f))), UNIQUE KEY m ((DATE(d))))"
    )
    client.run("INSERT INTO e VALUES (1, 1.2, '2024-01-02 03:04:05'), (2, -1.4, '2024-01-03 03:04:05')")

    assert client.code("INSERT INTO e VALUES (3, 1.4, NULL)") == 1062
    assert client.code("INSERT INTO e VALUES (3, NULL, '2024-01-03')") == 1062
    client.run("ADMIN CHECK TABLE e")


def test_interrupt(client: Client, cluster: Cluster) -> None:
    """A DDL that waits and is interrupted ends with 1317, its job taken back."""
    blocker = Client(cluster)
    blocker.run("BEGIN; UPDATE t SET v = 0")
    wait: Callable[..., object] = client.session.node.ddl_client.wait

    def interrupted(job_id: int, timeout_ms: int) -> object:
        client.session.interrupt()
        return wait(job_id, timeout_ms)

    client.session.node.ddl_client.wait = interrupted  # type: ignore[method-assign,assignment]
    assert client.code("ALTER TABLE t ADD COLUMN w INT") == 1317
    blocker.run("ROLLBACK")
    while cluster.tick():
        pass

    assert client.rows("ADMIN SHOW DDL JOBS 1")[0][-2] in ("rollback done", "cancelled")
    assert client.rows("SELECT * FROM t") == [(1, 10), (2, 20)]


def test_reset(client: Client, cluster: Cluster) -> None:
    """A reset rolls back and forgets variables and the database."""
    client.run("SET @a = 1, max_sort_length = 99; BEGIN; DELETE FROM t")
    client.session.reset()

    assert client.rows("SELECT @a, @@max_sort_length, DATABASE()") == [(None, 1024, None)]
    assert Client(cluster).one("SELECT COUNT(*) FROM t") == 2


def test_named_locks(client: Client, cluster: Cluster) -> None:
    """A lock that has a name is one session's, as often as it took it, until it lets go, is reset or ends."""
    other = Client(cluster)
    client.session.connection_id, other.session.connection_id = 7, 8
    assert client.rows("SELECT GET_LOCK('A', 0), GET_LOCK('a', -1), IS_USED_LOCK('a')") == [(1, 1, 7)]
    assert other.rows("SELECT GET_LOCK('a', 0), RELEASE_LOCK('a'), IS_FREE_LOCK('a')") == [(0, 0, 0)]
    assert other.rows("SELECT RELEASE_LOCK('b'), IS_USED_LOCK('b'), RELEASE_ALL_LOCKS()") == [(None, None, 0)]
    assert client.one("SELECT RELEASE_LOCK('a')") == 1
    assert other.one("SELECT GET_LOCK('a', 0)") == 0
    assert client.one("SELECT RELEASE_ALL_LOCKS()") == 1
    for end in (other.session.reset, other.session.close):
        assert other.one("SELECT GET_LOCK('a', 0)") == 1
        end()
        assert client.one("SELECT IS_FREE_LOCK('a')") == 1
    assert client.code("SELECT GET_LOCK('', 0)") == 3057


def test_kill_without_a_server(client: Client) -> None:
    """A session of no server knows no other clients."""
    with pytest.raises(SqlRefused) as refused:
        client.run("KILL 7")
    assert refused.value.mysql_code == 1094
