"""`tidegate verify` of a MariaDB and of an embedded TiDB beside an embedded TiDB."""

import threading
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager

import pymysql
import pytest

from tests.contract.test_sql_sink import asked
from tests.mariadb import Server
from tests.verify.shop import filled, note_point, now_ts, stand, verified
from tidegate.cli.sink import session_of
from tidegate.model.errors import SinkError
from tidegate.verify import compare as comparison
from tidegate.verify.compare import ChunkPlan, ComparedTable, Key, Watch, compare_sides, form_of
from tidegate.verify.database import DatabaseReader, RequestedMoment, replica_at, upstream_at
from tidegate.verify.sums import chunk_numbers, plain_column

pytestmark = pytest.mark.slow

ODD = "shop.`odd.t``a%sble`"
PLANTED = {
    "a missing row": ("DELETE FROM shop.customers WHERE id = 3", {"shop.customers": ["missing row [3]"]}),
    "an extra row": ("INSERT INTO shop.customers VALUES (9,'','')", {"shop.customers": ["extra row [9]"]}),
    "a value": (
        "UPDATE shop.customers SET name = 'bo' WHERE id = 2",
        {"shop.customers": ["value [2] name: 'bob' is 'bo'"]},
    ),
    "an empty text for NULL": (
        "UPDATE shop.customers SET note = '' WHERE id = 3",
        {"shop.customers": ["value [3] note: None is ''"]},
    ),
    "exchanged values": (
        "UPDATE shop.customers SET note = IF(id = 1, 'y', 'x') WHERE id < 3",
        {"shop.customers": ["value [1] note: 'x' is 'y'", "value [2] note: 'y' is 'x'"]},
    ),
    "a comma moved": (
        "UPDATE shop.customers SET name = ',a', note = 'b' WHERE id = 4",
        {"shop.customers": ["value [4] name: '' is ',a'", "value [4] note: 'a,b' is 'b'"]},
    ),
    "a twin": ("DELETE FROM shop.visits WHERE page = 'home' LIMIT 1", {"shop.visits": ["missing row ['home', 1]"]}),
    "twins for twins": (
        "UPDATE shop.visits SET page = 'home', n = 1 WHERE page = 'cart'",
        {"shop.visits": ["missing row ['cart', 2]"] * 2 + ["extra row ['home', 1]"] * 2},
    ),
    "case of a key": (
        "UPDATE shop.names SET name = 'B' WHERE n = 2",
        {"shop.names": ["missing row ['A', '2024-01-01']", "extra row ['B', '2024-01-01']"]},
    ),
    "a value under an odd name": (
        f"UPDATE {ODD} SET `select` = 'b' WHERE `c,``x%s` = 2",
        {ODD: ["value [2] select: '`' is 'b'"]},
    ),
    "a missing table": ("DROP TABLE shop.visits", {"shop.visits": ["missing table"]}),
    "an extra table": ("CREATE TABLE shop.more (id INT PRIMARY KEY)", {"shop.more": ["extra table"]}),
    "a missing column": ("ALTER TABLE shop.customers DROP COLUMN note", {"shop.customers": ["missing column note"]}),
    "an extra column": ("ALTER TABLE shop.visits ADD COLUMN m INT", {"shop.visits": ["extra column m"]}),
    "a FLOAT": (
        "UPDATE shop.kinds SET f = 0.5 WHERE id = 4",
        {"shop.kinds": ["value [4] f: 1.000000013351432e-10 is 0.5"]},
    ),
    "a document": (
        """UPDATE shop.kinds SET j = '{"aa": [2, 1], "b": 1.0}' WHERE id = 1""",
        {"shop.kinds": ["""value [1] j: '{"aa": [1, 2], "b": 1}' is '{"aa": [2, 1], "b": 1}'"""]},
    ),
    "bytes": (
        "UPDATE shop.kinds SET large = x'FFFE' WHERE id = 1",
        {"shop.kinds": ["value [1] large: '0xfffe00' is '0xfffe'"]},
    ),
}


@pytest.fixture
def moment(upstream: Server, replica: Server) -> int:
    """A ts at which both servers hold the shop, and at which the feed stands."""
    filled(upstream)
    filled(replica)
    ts = now_ts(upstream)
    stand(replica, ts)
    return ts


def address(server: Server) -> str:
    """The address of a server."""
    return f"tidb://root@127.0.0.1:{server.port}/"


@contextmanager
def sides(upstream: Server, replica: Server, ts: int | None) -> Iterator[tuple[DatabaseReader, DatabaseReader]]:
    """Both sides, as the command opens them."""
    with closing(session_of(address(upstream))) as ours, closing(session_of(address(replica))) as theirs:
        right, found = replica_at(theirs, "shop", RequestedMoment(ts, 10), passes)
        yield upstream_at(ours, found, passes), right


def passes(schema: str, _table: str) -> bool:
    """The shop alone."""
    return schema == "shop"


def unequal(left: DatabaseReader, right: DatabaseReader) -> list[str]:
    """Names of tables that differ."""
    return [report.name for report in compare_sides(left, right, lambda *_: None) if not report.equal]


def test_equal(upstream: Server, replica: Server, moment: int) -> None:
    """Servers that hold the same rows are equal, values of every kind among them, whatever text they print."""
    said = verified(replica, address(upstream))

    assert said.wrong == {}
    assert said.status == 0
    assert said.tables.keys() == {"shop.kinds", "shop.customers", "shop.visits", "shop.names", ODD}
    assert said.last.items() >= {"ts": moment, "tables": 5, "different": 0, "equal": True}.items()


@pytest.mark.parametrize("name", PLANTED)
def test_planted(upstream: Server, replica: Server, moment: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One difference that was planted is found and named, and no other, in tables of several chunks."""
    statement, expected = PLANTED[name]
    monkeypatch.setattr(comparison, "CHUNK_ROWS", 1)
    replica.run(statement)
    said = verified(replica, address(upstream), "--at", str(moment))

    assert {table: sorted(lines) for table, lines in said.wrong.items()} == {
        table: sorted(lines) for table, lines in expected.items()
    }
    assert said.status == 1
    assert said.last["different"] == 1


def test_other_texts(upstream: Server, mariadb: Server) -> None:
    """Documents and numbers of other texts and the same meaning are equal."""
    filled(upstream)
    filled(mariadb)
    stand(mariadb, now_ts(upstream))
    mariadb.run("""UPDATE shop.kinds SET j = '{"b":1,"aa":[1,2.0]}' WHERE id = 1""")

    assert verified(mariadb, address(upstream)).wrong == {}


def test_long_rows(upstream: Server, mariadb: Server) -> None:
    """Rows that are too long for a server to hash are compared all the same, with a key and without."""
    texts = "REPEAT('a', 9000), REPEAT('b', 9000)"
    for server in (upstream, mariadb):
        filled(server)
        server.run(
            "CREATE TABLE shop.pages (id INT PRIMARY KEY, a TEXT, b TEXT)", "CREATE TABLE shop.lines (a TEXT, b TEXT)"
        )
        server.run(f"INSERT INTO shop.pages SELECT 1, {texts}", f"INSERT INTO shop.lines SELECT {texts}")
    stand(mariadb, now_ts(upstream))
    mariadb.run("SET GLOBAL max_allowed_packet = 16384")
    try:
        equal = verified(mariadb, address(upstream))
        mariadb.run("UPDATE shop.pages SET b = REPEAT('c', 9000)", "UPDATE shop.lines SET b = REPEAT('c', 9000)")
        different = verified(mariadb, address(upstream))
    finally:
        mariadb.run("SET GLOBAL max_allowed_packet = 16777216")

    assert (equal.status, equal.wrong) == (0, {}), equal.error
    assert different.wrong.keys() == {"shop.pages", "shop.lines"}


def test_vectors(upstream: Server, replica: Server) -> None:
    """Vectors are compared by their numbers, as texts too, in which other servers hold them."""
    filled(upstream)
    filled(replica)
    kind = "LONGTEXT" if "MariaDB" in str(asked(replica, "SELECT VERSION()")) else "VECTOR(2)"
    for server, one in ((upstream, "VECTOR(2)"), (replica, kind)):
        server.run(f"CREATE TABLE shop.points (id INT PRIMARY KEY, v {one})")
        server.run("INSERT INTO shop.points VALUES (1, '[1,2.5]'), (2, NULL)")
    stand(replica, now_ts(upstream))

    assert verified(replica, address(upstream)).wrong == {}
    replica.run("UPDATE shop.points SET v = '[1,2.25]' WHERE id = 1")
    assert verified(replica, address(upstream)).wrong == {"shop.points": ["value [1] v: '[1, 2.5]' is '[1, 2.25]'"]}


def test_another_server(mariadb: Server, tidb: Server) -> None:
    """A MariaDB as upstream is compared as it is now."""
    filled(mariadb)
    filled(tidb)
    stand(tidb, 7)
    tidb.run("DELETE FROM shop.customers WHERE id = 1")
    address_now = f"mysql://root@127.0.0.1:{mariadb.port}/"

    assert verified(tidb, address_now).wrong == {"shop.customers": ["missing row [1]"]}
    mariadb.run("DELETE FROM shop.customers WHERE id = 1")
    assert verified(tidb, address_now).wrong == {}


def test_chunks(upstream: Server, replica: Server, moment: int) -> None:
    """Chunks of every server are those that are made here of its rows, and are sent in their order."""
    with sides(upstream, replica, moment) as both:
        for side in both:
            for name, shape in side.tables.items():
                columns = tuple(column.name for column in shape.columns if form_of(column.type).spreads)
                spread = {"shop.kinds": ("id",), "shop.names": ("name", "day")}.get(name, columns)
                plan = ChunkPlan(columns, spread, 3)
                numbers, rows = zip(*side.rows(shape, plan, range(3)), strict=True)
                texts = [plain_column(values) for values in zip(*rows, strict=True)]

                assert list(numbers) == sorted(numbers)
                assert chunk_numbers(texts, plan).tolist() == list(numbers), name
                assert side.sums(shape, plan).rows.tolist() == [numbers.count(chunk) for chunk in range(3)]


def test_few_rows_are_sent(upstream: Server, replica: Server, moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of different chunks alone are sent, of tables that differ alone."""
    filled_rows = ", ".join(f"({n}, 'n{n}', '')" for n in range(10, 400))
    for server in (upstream, replica):
        server.run(f"INSERT INTO shop.customers VALUES {filled_rows}")
    stand(replica, now_ts(upstream))
    replica.run("UPDATE shop.customers SET name = 'x' WHERE id = 77")
    monkeypatch.setattr(comparison, "CHUNK_ROWS", 20)
    sent: dict[str, int] = {}
    rows_of = DatabaseReader.rows

    def counted(
        side: DatabaseReader, shape: ComparedTable, plan: ChunkPlan, chunks: Collection[int], watch: Watch
    ) -> Iterator[tuple[int, Key]]:
        for one in rows_of(side, shape, plan, chunks, watch):
            sent[shape.name] = sent.get(shape.name, 0) + 1
            yield one

    monkeypatch.setattr(DatabaseReader, "rows", counted)
    assert verified(replica, address(upstream), "--filter", "shop.customers").wrong == {
        "shop.customers": ["value [77] name: 'n77' is 'x'"]
    }
    assert 0 < sent["shop.customers"] < 120


def test_both_go_on(upstream: Server, replica: Server, moment: int) -> None:
    """What is written once the moment is chosen is not seen on either side."""
    filled_after = "INSERT INTO shop.customers VALUES (50,'later','')"
    with sides(upstream, replica, None) as (left, right):
        upstream.run(filled_after, "UPDATE shop.visits SET n = 7")
        replica.run("DELETE FROM shop.names", "UPDATE shop.kinds SET i = 5")
        assert unequal(left, right) == []
    with sides(upstream, replica, moment) as (left, right):
        assert unequal(left, right) == ["shop.kinds", "shop.names"]


@pytest.mark.parametrize("ddl", ["DROP TABLE shop.customers", "ALTER TABLE shop.customers MODIFY note TEXT FIRST"])
def test_ddl_meanwhile(upstream: Server, mariadb: Server, ddl: str) -> None:
    """A table that a DDL changes once the moment is chosen cannot be read as it was, which an error says."""
    filled(upstream)
    filled(mariadb)
    stand(mariadb, now_ts(upstream))
    with sides(upstream, mariadb, None) as (left, right):
        mariadb.run(ddl)
        with pytest.raises(SinkError, match=r"a DDL changed table shop\.customers .* verify again"):
            unequal(left, right)


def test_writers_everywhere(upstream: Server, tidb: Server) -> None:
    """A sync point is compared while writers change both servers all the time."""
    filled(upstream)
    filled(tidb)
    primary, secondary = now_ts(upstream), now_ts(tidb)
    note_point(tidb, primary, secondary)
    stand(tidb, primary)
    halt = threading.Event()
    writers = [threading.Thread(target=write, args=(server, halt)) for server in (upstream, tidb)]
    for writer in writers:
        writer.start()
    try:
        found = [verified(tidb, address(upstream), "--at", at) for at in (str(primary), "latest")]
    finally:
        halt.set()
        for writer in writers:
            writer.join()

    assert [(one.status, one.wrong, one.last["ts"]) for one in found] == [(0, {}, primary)] * 2
    assert {one.last["target"] for one in found} == {f"127.0.0.1:{tidb.port} at a sync point"}
    stand(tidb, now_ts(upstream))
    assert "shop.customers" in verified(tidb, address(upstream), "--at", str(position(tidb))).wrong


def write(server: Server, halt: threading.Event) -> None:
    """Changes rows until it is told to stop."""
    connection = pymysql.connect(host="127.0.0.1", port=server.port, user="root", autocommit=True)
    with connection, connection.cursor() as cursor:
        n = 100 + server.port
        while not halt.wait(0.01):
            n += 1
            cursor.execute(f"INSERT INTO shop.customers VALUES ({n}, 'w', '')")
            cursor.execute("UPDATE shop.visits SET n = n + 1")


def position(server: Server) -> int:
    """Where the feed stands."""
    with server.connection.cursor() as cursor:
        cursor.execute("SELECT position FROM tidegate.progress WHERE shard = -1")
        ((found,),) = cursor.fetchall()
    return int(found)
