"""Drivers with their defaults, which turn autocommit off: what they send, what status they hear, what others see.

Each line of a transcript is a statement and the status in its answer; those of mysqlclient were recorded from
version 1.4.6 with libmariadb 3.3."""

from collections.abc import Iterator
from contextlib import closing

import pymysql
import pytest
from pymysql.constants import SERVER_STATUS

from tests.upstream.server.hostile import GOOD, Hostile
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.listener import Upstream

COMMITS, OPEN = SERVER_STATUS.SERVER_STATUS_AUTOCOMMIT, SERVER_STATUS.SERVER_STATUS_IN_TRANS
TRANSFER = (
    ("UPDATE bank.a SET v = v - 10", OPEN),
    ("UPDATE bank.b SET v = v + 10", OPEN),
    ("COMMIT", 0),
    ("UPDATE bank.a SET v = v - 20", OPEN),
    ("UPDATE bank.b SET v = v + 20", OPEN),
    ("ROLLBACK", 0),
)
GREETED, LOGGED_IN = ("", COMMITS), ("login", COMMITS)
TRANSCRIPTS = {
    "PyMySQL": (GREETED, LOGGED_IN, ("SET NAMES utf8mb4", COMMITS), ("SET AUTOCOMMIT = 0", 0), *TRANSFER),
    "mysqlclient": (GREETED, LOGGED_IN, ("SET autocommit=0", 0), *TRANSFER),
}
COM_QUERY = b"\3"


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream(Cluster.open(None, nodes=("n1",))) as made:
        with closing(connect(made, autocommit=True)) as client, client.cursor() as cursor:
            cursor.execute("CREATE DATABASE bank")
            for table in "ab":
                cursor.execute(f"CREATE TABLE bank.{table} (v INT)")
                cursor.execute(f"INSERT INTO bank.{table} VALUES (100)")
        yield made


def connect(upstream: Upstream, **options: object) -> "pymysql.Connection[pymysql.cursors.Cursor]":
    return pymysql.connect(host="127.0.0.1", port=upstream.ports["n1"], user="root", **options)  # type: ignore[arg-type]


def status_of(packet: bytes) -> int:
    """The status of a greeting, behind version, number, 8 bytes, a zero, capabilities and charset; or of an OK, behind
    two counts of a byte each."""
    if packet[0] == 10:
        at = packet.index(b"\0") + 1 + 4 + 8 + 1 + 2 + 1
        return int.from_bytes(packet[at : at + 2], "little")
    assert packet[0] == 0, packet
    return int.from_bytes(packet[3:5], "little")


@pytest.mark.parametrize("driver", TRANSCRIPTS)
def test_a_transfer_is_one(upstream: Upstream, driver: str) -> None:
    """The status is TiDB's at each line, and another client never sees the money of one account without the other's."""
    with (
        closing(connect(upstream, autocommit=True)) as other,
        other.cursor() as cursor,
        Hostile(upstream.ports["n1"]) as client,
    ):
        heard, seen = [("", status_of(client.read()))], set()
        for said, _ in TRANSCRIPTS[driver][1:]:
            if said == "login":
                client.send(GOOD, 1)
            else:
                client.send(COM_QUERY + said.encode())
            heard.append((said, status_of(client.read())))
            cursor.execute("SELECT bank.a.v, bank.b.v FROM bank.a, bank.b")
            seen.add(cursor.fetchall())

    assert tuple(heard) == TRANSCRIPTS[driver]
    assert seen == {((100, 100),), ((90, 110),)}


class Overheard(pymysql.Connection):  # type: ignore[type-arg]
    """PyMySQL, which tells what it sends after the login."""

    def __init__(self, **options: object) -> None:
        self.sent: list[str] = []
        super().__init__(**options)

    def _execute_command(self, command: int, sql: str | bytes) -> None:
        self.sent.append(sql if isinstance(sql, str) else sql.decode())
        super()._execute_command(command, sql)


def test_pymysql_says_what_its_transcript_says(upstream: Upstream) -> None:
    """With its defaults, and nothing said of autocommit, PyMySQL turns it off here as it does at a TiDB."""
    with closing(Overheard(host="127.0.0.1", port=upstream.ports["n1"], user="root")) as client:
        ends = {"COMMIT": client.commit, "ROLLBACK": client.rollback}
        for said, _ in TRANSFER:
            ends.get(said, lambda said=said: client.cursor().execute(said))()  # type: ignore[misc]

        assert client.sent == [said for said, _ in TRANSCRIPTS["PyMySQL"][2:]]
