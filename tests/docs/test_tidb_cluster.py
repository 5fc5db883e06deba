"""The commands of docs/tidb-cluster.md, as printed but for ports and directories, against PD and TiKV of the wing."""

import re
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner

from tests.certificates import make_certificate
from tidegate.cli import run
from tidegate.cli.main import main
from tidegate.engine.ports import LocalTasks
from tidegate.tikv.pd import PdClient
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.session import Session
from tidegate_upstream.tikv.peer import TikvPeer

PAGE = (Path(__file__).parents[2] / "docs" / "tidb-cluster.md").read_text()
BLOCK = re.compile(r"^ *```console\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
ELSEWHERE = {"capture": "tests/upstream/tikv/test_capture_command.py"}
"""Commands that other tests carry out, and those that read what they write."""
MEMBERS = re.compile(r"tikv://pd1:2379(,pd2:2379)?")


def commands() -> list[list[str]]:
    """The words of each command of the page that takes a cluster."""
    text = "\n".join(BLOCK.findall(PAGE)).replace("\\\n", " ")
    lines = [line.strip().removeprefix("$ tidegate ") for line in text.splitlines() if "$ tidegate " in line]
    found = [shlex.split(line) for line in lines]
    return [words for words in found if words[0] not in ELSEWHERE and any("tikv://" in word for word in words)]


class Clusters:
    """A TiDB with a table, with a peer that asks for certificates and one that does not; files lie in `home`."""

    def __init__(self, home: Path, peers: tuple[TikvPeer, TikvPeer], cluster: Cluster) -> None:
        self.home, self.peers, self.cluster = home, peers, cluster

    def execute(self, *work: str) -> int:
        """Do work; return a ts above it."""
        session = Session(self.cluster.nodes["n1"])
        for sql in work:
            session.execute(sql)
        return self.cluster.storage.oracle.next()

    def run(self, words: list[str], **values: str) -> str:
        """What a command of the page prints, up to now where it would not end, which it must do well."""
        joined = "\0".join(words).replace("..", "--sink-uri\0sqlite:///srv/shop.db\0--state-dir\0/srv/state")
        peer = self.peers["ca-path" in joined.partition("--load-from")[0]]
        joined = MEMBERS.sub(f"tikv://{peer.pd}", joined).replace("/srv", f"{self.home}/srv")
        joined = joined.replace("&load-hours=22-6", "")  # a load would wait for them
        joined = joined.replace("mysql://tidegate@10.0.0.9:3306/", f"sqlite://{self.home}/srv/next.db")
        for name, value in values.items():
            joined = joined.replace(name, value)
        asked = joined.split("\0")
        if asked[0] == "run":
            until = [] if "--until" in asked else ["--until", str(self.cluster.storage.oracle.next())]
            asked += ["--no-color", *until]
        ran = CliRunner().invoke(main, asked)
        assert ran.exit_code == 0, (asked, ran.output, ran.exception)
        return ran.output

    def rows(self, name: str = "shop") -> list[int]:
        """The keys of the table in a target."""
        with closing(sqlite3.connect(self.home / "srv" / f"{name}.db")) as database:
            return [row[0] for row in database.execute('SELECT id FROM "shop.orders" ORDER BY id')]


async def report(*_: object) -> dict[str, int]:
    """PD's HTTP, which the wing does not have."""
    return {}


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clusters]:
    """A cluster, and the certificates of the page in the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(PdClient, "report", report)
    monkeypatch.setattr(run, "spark_tasks", lambda *_: LocalTasks(pickles=False))
    (tmp_path / "srv").mkdir()
    for name in ("ca", "server", "client"):
        make_certificate(tmp_path, name, None if name == "ca" else "ca")
    for name, pem in (("ca.crt", "ca.pem"), ("client.crt", "client.pem"), ("client.key", "client-key.pem")):
        (tmp_path / name).rename(tmp_path / pem)
    files = {path.name: path.read_bytes() for path in tmp_path.glob("*.*")}
    pair = (files["server.key"], files["server.crt"])
    credentials = grpc.ssl_server_credentials([pair], files["ca.pem"], require_client_auth=True)
    cluster = Cluster.open()
    with ExitStack() as stack:
        plain = stack.enter_context(TikvPeer(cluster.storage).in_thread())
        secure = stack.enter_context(TikvPeer(cluster.storage, credentials=credentials).in_thread())
        secure.service.url = f"https://{secure.pd}"
        made = Clusters(tmp_path, (plain, secure), cluster)
        made.execute("CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY)")
        made.execute("INSERT INTO shop.orders VALUES (1)")
        yield made


@pytest.mark.parametrize("words", commands(), ids=lambda words: " ".join(words)[:60])
def test_a_command_of_the_page(words: list[str], clusters: Clusters) -> None:
    """It ends well; a load brings the rows that are there."""
    printed = clusters.run(words, TSO=str(clusters.cluster.storage.oracle.next()))
    if words[0] == "doctor":
        assert "EventFeedV2 with stream-multiplexing" in printed
    if any(word.startswith("--load") for word in words):
        assert clusters.rows() == [1]


def test_other_commands_have_a_test() -> None:
    """What is not carried out here is elsewhere."""
    named = set(re.findall(r"\$ tidegate (\w+)", PAGE))
    assert {words[0] for words in commands()} >= named - ELSEWHERE.keys()
    for name in named & ELSEWHERE.keys():
        assert (Path(__file__).parents[2] / ELSEWHERE[name]).exists()


def test_a_changefeed_goes_on_where_one_of_another_source_ended(clusters: Clusters) -> None:
    """The steps from a topic to the cluster: what is committed after the TSO comes, and nothing before; a log stands in
    for the topic, and a file for the database."""
    begin = str(clusters.execute())
    (step,) = [words for words in commands() if "shop-cluster" in words]
    before = ["run", "--source-uri", "tikv://pd1:2379", "--start-ts", begin, "--changefeed-id", "shop", ".."]
    clusters.execute("INSERT INTO shop.orders VALUES (2)")
    clusters.run(before)
    clusters.execute("INSERT INTO shop.orders VALUES (3)")
    tso = str(clusters.execute())
    clusters.run([*before, "--until", tso])
    clusters.execute("INSERT INTO shop.orders VALUES (4)")
    clusters.run(step, TSO=tso)
    assert clusters.rows() == [2, 3]
    assert clusters.rows("next") == [4]
