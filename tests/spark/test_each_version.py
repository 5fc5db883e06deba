"""What runs on every supported version of Spark: `make test-spark SPARK=3.5` has it in an environment of its own.

both recorded protocols ──► lake, equal to the recording's truths, read by Spark, by Delta and as Iceberg
a topic ──► a topic ──► lake           the same truth
a database ──load──► lake              its rows

On a classic session; `test_all_over_connect` has it all once more, in a process whose only Spark is a Connect server.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import SparkContext

import tidegate
from tests.e2e.rig import PROTOCOLS, Topic, cli, differences, feed, recorded, truths
from tests.readers import Readers
from tests.source.load.kit import Loaded
from tests.spark.standalone import connect_server
from tidegate.config.changefeed import Changefeed
from tidegate.config.load import load
from tidegate.lakes.lake import Lake
from tidegate.lakes.read import collected, spark_rows
from tidegate.model.errors import EnvironmentFault
from tidegate.spark.session import find_python, is_connect, session
from tidegate.spark.versions import SPARKS, installed, is_3, minor
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.listener import Upstream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.more]

TABLE = "shop.orders"
SERVER = "TIDEGATE_TEST_CONNECT"
"""The environment variable that has the address of the Connect server."""
READ = (TABLE, "shop.customers", "shop.sessions", "shop.vouchers")
"""Tables that have a column of each type."""


@pytest.fixture(scope="module")
def spark() -> Iterator["SparkSession"]:
    """The Spark of this process, to the end."""
    server = os.environ.get(SERVER)
    started = session(conf={"spark.master": server} if server else None)
    yield started
    started.stop()
    assert (SparkContext._gateway is None) == (server is not None)


@pytest.fixture(scope="module", params=PROTOCOLS)
def topic(request: pytest.FixtureRequest, bootstrap: str) -> Topic:
    """A recorded topic."""
    return Topic.fed(bootstrap, f"each-{request.param}-{os.getpid()}", request.param, recorded(request.param))


@pytest.fixture(scope="module")
def lake(topic: Topic, spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake of a recorded topic."""
    root = tmp_path_factory.mktemp("each") / "lake"
    done = cli(*feed(topic.uri(), f"{root}?iceberg=on&changelog-retention=72h"))
    assert done.exit_code == 0, done.output
    return root


def sorted_rows(rows: object) -> list[str]:
    return sorted(map(repr, rows))


def test_the_version(spark: "SparkSession") -> None:
    """The session is of the kind that is wanted and of the version that is installed here, which the table has."""
    assert is_connect(spark) == (SERVER in os.environ)
    scala = spark.sql("SELECT reflect('scala.util.Properties', 'versionNumberString')").collect()[0][0]
    assert SPARKS[minor(spark.version), scala[:4]] is installed()


def test_a_lake_is_equal_and_read(lake: Path, spark: "SparkSession", readers: Readers) -> None:
    """Every table is the upstream's; Spark's frames of rows and Delta's own reader have the rows, columns and types of
    the files; Iceberg has the rows."""
    assert differences(lake) == {}
    found = Lake(str(lake))
    assert sorted(found.tables()) == sorted(truths()[-1].tables)
    for name in READ:
        arrow, stored = found.arrow(name), found.stored(name)
        for frame in (found.table(name, spark), spark_rows(spark, stored.uri, stored.version)):
            rows = collected(frame)
            assert rows.schema.types == arrow.schema.types, name
            assert sorted_rows(rows.to_pylist()) == sorted_rows(arrow.to_pylist()), name
    assert found.sql(f"select count(*) from {TABLE}", spark).collect()[0][0] == found.count(TABLE)
    metadata = next(Path(found.stored(TABLE).uri.removeprefix("file://"), "metadata").glob("v*.metadata.json"))
    rows = readers.table("spark", metadata.parents[1])
    assert sorted_rows(rows.to_pylist()) == sorted_rows(found.arrow(TABLE).to_pylist())


def test_a_topic_into_a_topic(topic: Topic, spark: "SparkSession", tmp_path: Path) -> None:
    """In the other protocol; a lake of the new topic is equal to the truth."""
    other = next(kind for kind in PROTOCOLS if kind != topic.kind)
    new = Topic(topic.bootstrap, f"{topic.name}-again", other)
    Changefeed(topic.uri(), f"{new.uri()}&partition-num=3", state_dir=tmp_path / "state").run(spark, idle_s=0.5)
    done = cli(*feed(new.uri(), tmp_path / "lake"))
    assert done.exit_code == 0, done.output
    assert differences(tmp_path / "lake", "--at", str(truths()[-1].ts)) == {}


def test_a_load_into_a_lake(spark: "SparkSession", tmp_path: Path) -> None:
    """A database's rows, at once."""
    with Upstream(Cluster.open(None, nodes=("n1",))) as database:
        client = Loaded(database.ports["n1"])
        client.run("CREATE DATABASE w")
        client.run(
            "CREATE TABLE w.t (id INT PRIMARY KEY, v VARCHAR(9), d DECIMAL(9,2), at DATETIME(3), b VARBINARY(9))"
        )
        values = ", ".join(f"({n}, 'é{n}', {n}.25, '2026-01-02 03:04:05.{n:03}', x'00ff{n:02x}')" for n in range(200))
        client.run(f"INSERT INTO w.t VALUES {values}")
        address = f"mysql://root@127.0.0.1:{client.port}/?enable-tls=false&chunk-rows=50"
        sink = f"delta://{tmp_path}/lake"
        config = load(load_mode="only", load_from=address, sink_uri=sink, rules=["w.*"], name="each")
        done = Changefeed(config).run(spark)
        assert done.state == "finished"
        expected = [tuple(row) for row in client.run("SELECT * FROM w.t ORDER BY id")]
        client.connection.close()
    frame = Lake(str(tmp_path / "lake")).table("w.t", spark).orderBy("id")
    assert [(row.id, row.v, row.d, row.at, bytes(row.b)) for row in frame.collect()] == expected


def test_formats_or_what_serves_instead(lake: Path, topic: Topic, spark: "SparkSession") -> None:
    """Python Data Sources begin with 4.0; `decode` works everywhere."""
    if is_3(spark):
        with pytest.raises(EnvironmentFault, match=r"Spark 3\.5.* begin with 4\.0.*lake\.table.*tidegate\.decode"):
            tidegate.register(spark)
    else:
        tidegate.register(spark)
        frame = spark.read.format("tidegate-lake").option("table", TABLE).load(str(lake))
        assert frame.count() == Lake(str(lake)).count(TABLE)
        changes = spark.read.format("tidegate").option("table", TABLE).option("starting", "0").load(str(lake))
        assert changes.count() > 0
    messages = [(bytearray(key), bytearray(value)) for key, value in recorded(topic.kind)[0][:50]]
    events = tidegate.decode(
        spark.createDataFrame(messages, "key binary, value binary"), protocol=PROTOCOLS[topic.kind]
    )
    kinds = {row.kind for row in events.collect()}
    assert kinds
    assert "error" not in kinds


def test_all_over_connect(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Every test above, in a process of its own."""
    words = ["-q", str(request.path), "--deselect", request.node.nodeid, "--basetemp", str(tmp_path / "run")]
    with connect_server(tmp_path / "server", find_python()) as address:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words],
            capture_output=True,
            text=True,
            check=False,
            cwd=request.config.rootpath,
            env={**os.environ, SERVER: address},
        )
    assert done.returncode == 0, done.stdout[-8000:]
