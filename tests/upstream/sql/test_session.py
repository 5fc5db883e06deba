"""Sessions over a real cluster beyond tests/scripts: retries, interrupts, resets, locks, what a snapshot may not be."""

from collections.abc import Callable

import pytest

from tidegate.expr.scope import ResultSet
from tidegate.model.errors import UpstreamError
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


@pytest.mark.parametrize("sql", ["SET @a = 1 + 1", "SELECT 1", "SELECT @@version", "SHOW TABLES", "USE test"])
def test_what_reads_no_table_opens_nothing(client: Client, sql: str) -> None:
    """With autocommit off, a transaction begins with the first statement that needs one."""
    client.run(f"SET autocommit = 0; {sql}")
    assert not client.session.in_transaction
    client.run("SELECT * FROM t")
    assert client.session.in_transaction


# --- the past ---


def test_snapshot_refusals(client: Client, cluster: Cluster) -> None:
    """A snapshot to come, and one that is collected are refused; so is an external timestamp to come."""
    before = cluster.storage.oracle.next()
    assert client.code(f"SET tidb_snapshot = {before + (1 << 40)}") == 8128
    assert client.code(f"SET GLOBAL tidb_external_ts = {before + (1 << 40)}") == 1105

    cluster.storage.store.raise_safe_point(cluster.storage.oracle.next())
    assert client.code(f"SET tidb_snapshot = {before}") == 8055


# --- settings, counts, warnings ---


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
