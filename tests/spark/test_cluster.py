"""One feed, eight tables out of eight partitions, on every kind of Spark: each lake holds what the upstream held.

tidegate run --master    local[2]              workers of this machine, a lake in a directory
                         local-cluster[2,1,…]  two executor processes, a lake in a directory
                         spark://…             a master and two workers in directories of their own, without
                                               Tidegate and credentials; the lake is on S3; executors die
                         sc://…                a Connect server whose Python has PySpark alone
"""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner

from tests.e2e.rig import Running, running
from tests.kill.test_cluster import ON_CLUSTER
from tests.kill.victims import executor, live
from tests.s3 import environment, serving
from tests.spark.shop import Shop
from tests.spark.standalone import connect_server, standalone
from tidegate.cli.main import main
from tidegate.lakes.lake import Lake
from tidegate.spark.archive import cached_archive

pytestmark = pytest.mark.slow

TRANSACTIONS = 200
IDLE_S = 10
HANG_S = 480
PROGRAM = (sys.executable, "-m", "tidegate")
BY_FORMAT = """
import sys, tidegate
from tidegate.spark.session import session
spark = session(conf={"spark.master": sys.argv[1], "spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"},
                archive=sys.argv[2])
tidegate.register(spark)
print(spark.read.format("tidegate-lake").option("table", "test.a").load(sys.argv[3]).count())
"""


@pytest.fixture(scope="module")
def shop(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Shop, int]:
    """A topic of which all is resolved, and up to which ts."""
    made = Shop(bootstrap, "shop", tmp_path_factory.mktemp("shop"))
    return made, made.burst(TRANSACTIONS)


@pytest.fixture(scope="module")
def s3() -> Iterator[None]:
    """A server for all tests, since a process keeps its connections, and where it is."""
    with serving("lakes") as port, pytest.MonkeyPatch.context() as patch:
        for variable, value in environment(port).items():
            patch.setenv(variable, value)
        yield


def words(shop: Shop, lake: str, *more: str) -> list[str]:
    """The command of the feed."""
    sink = f"delta+s3://{lake[5:]}" if lake.startswith("s3://") else f"delta://{lake}"
    return ["run", "--source-uri", shop.uri, "--sink-uri", f"{sink}?flush-interval=200ms", *more]


@dataclass(frozen=True)
class Trouble:
    """What happens to a cluster: settings of Spark, what executors do at places, who dies when one pauses there."""

    settings: Mapping[str, str]
    deeds: str
    victim: str = ""
    bursts: int = 0
    """How often more comes to the topic after everything was there."""
    cores: Sequence[int] = (1, 1)
    """Of each worker."""

    def happened(self, events: Sequence[Mapping[str, Any]]) -> bool:
        """Whether Spark's own log tells of it."""
        names = Counter(event["Event"] for event in events)
        if "speculation" in self.settings:
            return any(event.get("Task Info", {}).get("Speculative") for event in events)
        added, lost = (names[f"SparkListenerExecutor{what}"] for what in ("Added", "Removed"))
        if not self.settings:
            return lost > 0 if self.victim else added == len(self.cores)
        return lost > 0 and added > len(self.cores)


IN_WORK = "landing/after-file=pause@1"
TROUBLES = {
    "none": Trouble({}, ""),
    "executor": Trouble({}, IN_WORK, "executor"),
    "executors": Trouble({}, f"{IN_WORK},apply/rows-read=pause@2,apply/rows-written=pause@1", "executor"),
    "machine": Trouble({}, "apply/rows-written=pause@2", "machine"),
    "speculation": Trouble(
        {
            "speculation": "true",
            "speculation.multiplier": "1.1",
            "speculation.quantile": "0.1",
            "speculation.interval": "50ms",
            "speculation.minTaskRuntime": "50ms",
            "speculation.task.duration.threshold": "1s",
        },
        "landing/after-file=sleep:20@2,apply/rows-written=sleep:20@2",
        cores=(2, 2),
    ),
    "allocation": Trouble(
        {
            "dynamicAllocation.enabled": "true",
            "dynamicAllocation.shuffleTracking.enabled": "true",
            "dynamicAllocation.executorIdleTimeout": "4s",
            "dynamicAllocation.schedulerBacklogTimeout": "1s",
        },
        "",
        bursts=1,
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak if name != "none" else pytest.mark.more) for name in TROUBLES]
)
@pytest.mark.usefixtures("s3")
def test_a_standalone_cluster(bootstrap: str, tmp_path: Path, name: str) -> None:
    """All that executors know of Tidegate is the archive and the store's credentials. One life of the feed survives
    what happens to them, and every snapshot on the way is right."""
    trouble, shop, marks = TROUBLES[name], Shop(bootstrap, name, tmp_path), tmp_path / "marks"
    lake = f"s3://lakes/{name}"
    until, told = shop.burst(TRANSACTIONS), tmp_path / "told"
    for directory in (marks, told):
        directory.mkdir()
    with (
        TemporaryDirectory(dir=tmp_path) as large,  # a gigabyte that is not kept
        standalone(Path(large, "cluster"), trouble.cores) as cluster,
    ):
        archive = Path(large, "tidegate.tar.gz")
        packed = CliRunner().invoke(main, ["pack", str(archive), "--json"])
        assert packed.exit_code == 0, packed.output
        settings = {
            "spark.executorEnv.TIDEGATE_FAILPOINTS": trouble.deeds,
            "spark.executorEnv.TIDEGATE_FAILPOINTS_DIR": str(marks),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{told}",
            "spark.eventLog.compress": "false",
            **{f"spark.{setting}": value for setting, value in trouble.settings.items()},
        }
        line = words(shop, lake, *cluster.words(**settings), "--archive", str(archive))
        bursts = trouble.bursts

        def die(run: Running, pausing: int) -> None:
            if trouble.victim == "machine":
                cluster.machine_of(pausing).kill()
            else:
                executor(run, pausing)

        def go_on() -> None:
            nonlocal bursts, until
            if bursts < 0 or (feed.last.get("checkpoint_ts") or 0) < until:
                return
            if bursts:
                time.sleep(IDLE_S)
                until = shop.burst(TRANSACTIONS // 4)
            else:
                feed.process.send_signal(signal.SIGINT)
            bursts -= 1

        with running(line, tmp_path / "run", PROGRAM, hang_s=HANG_S) as feed:
            status, deaths = live(feed, marks, lambda _place: die, go_on)
            assert status == 0, feed.stderr.read_text()[-2000:]
            feed.drained()
            assert feed.left() == []
        assert len(deaths) == trouble.deeds.count("pause")
        unpacked = [worker.home.glob("work/app-*/*/tidegate/bin/python") for worker in cluster.workers]
        assert all(map(list, unpacked)), "an executor had no part in it"
        assert list(shop.complaints(Lake(lake))) == []
        events = [json.loads(line) for log in told.rglob("events_*") for line in log.read_text().splitlines()]
        assert trouble.happened(events)
        if name == "allocation":
            read = [sys.executable, "-c", BY_FORMAT, cluster.url, str(archive), lake]
            done = subprocess.run(read, capture_output=True, text=True, timeout=HANG_S, check=False)
            assert done.returncode == 0, done.stderr[-2000:]
            assert int(done.stdout) == len(shop.upstream.rows("a")) > 0


@pytest.mark.soak
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_a_spark_of_this_machine(shop: tuple[Shop, int], tmp_path: Path, master: str) -> None:
    """In threads and in processes."""
    program, more = (ON_CLUSTER, []) if "cluster" in master else (PROGRAM, ["--master", master])
    with running(
        words(shop[0], str(tmp_path / "lake"), "--until", str(shop[1]), *more), tmp_path / "run", program, hang_s=HANG_S
    ) as feed:
        status, _last = feed.end()
        assert status == 0, feed.stderr.read_text()[-2000:]
    assert list(shop[0].complaints(Lake(str(tmp_path / "lake")))) == []


@pytest.mark.soak
def test_a_connect_server(shop: tuple[Shop, int], tmp_path: Path) -> None:
    """It is told what its Python lacks; with the line that is added its lake is like the others."""
    with TemporaryDirectory(dir=tmp_path) as large, connect_server(Path(large, "server")) as address:
        line = words(shop[0], str(tmp_path / "lake"), "--until", str(shop[1]), "--master", address)
        with running(line, tmp_path / "bare", PROGRAM, hang_s=HANG_S) as feed:
            assert feed.process.wait() != 0
        assert "--archive tidegate.tar.gz" in feed.stderr.read_text()
        with running([*line, "--archive", str(cached_archive())], tmp_path / "run", PROGRAM, hang_s=HANG_S) as feed:
            status, _last = feed.end()
            assert status == 0, feed.stderr.read_text()[-2000:]
    assert list(shop[0].complaints(Lake(str(tmp_path / "lake")))) == []
