"""What a feed lives on without being killed itself: brokers, disks, partitions, retention and scratch directories."""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.e2e.rig import Running, Topic, cli, differences, feed, moment_ts, moved, recorded, running
from tests.kill.conftest import MOMENT
from tests.kill.lives import Death, Lives, Paced
from tests.kill.published import Undisturbed, Witness
from tidegate.config.changefeed import Changefeed
from tidegate.engine.progress import Progress
from tidegate_upstream.broker import Broker, start_broker, stop_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

AWAY_S = 4
EARLY = 3
"""A moment in the middle of a feed's life."""


class Outage:
    """A broker that gets SIGKILL and is started again on its port a little later."""

    def __init__(self, home: Path) -> None:
        self.broker: Broker = start_broker(home)
        self.port = int(self.broker.bootstrap.rpartition(":")[2])
        self.backs: list[threading.Thread] = []

    def strike(self, _run: Running, _pausing: int) -> None:
        """A victim for `live`."""
        os.kill(self.broker.pid, signal.SIGKILL)
        self.backs.append(threading.Thread(target=self._come_back))
        self.backs[-1].start()

    def _come_back(self) -> None:
        time.sleep(AWAY_S)
        self.broker = start_broker(self.broker.dir, self.port)

    def end(self) -> None:
        """Stop it for good."""
        for back in self.backs:
            back.join()
        stop_broker(self.broker)


@pytest.mark.more
def test_broker_killed_in_a_batch(tmp_path: Path) -> None:
    """SIGKILL to the broker between reading and committing a batch, and between rounds: the feed ends equal."""
    outage = Outage(tmp_path / "broker")
    try:
        paced = Paced(outage.broker.bootstrap, "mortal", "open", tmp_path / "lake", last=EARLY)
        plan = {place: Death(outage.strike, 1) for place in ("landing/before-file", "apply/rows-read")}
        lives = Lives(tmp_path, paced, plan, parameters={"read_timeout": "3s"})
        lives.until_the_end()
    finally:
        outage.end()

    assert lives.left() == []
    assert differences(tmp_path / "lake") == {}


def scratch_goes(run: Running, _pausing: int) -> None:
    """The files that Spark writes for itself are deleted under the running feed."""
    for path in run.stderr.parent.glob("tidegate-*"):
        shutil.rmtree(path, ignore_errors=True)


@pytest.mark.soak
def test_scratch_deleted(bootstrap: str, tmp_path: Path) -> None:
    """What Spark keeps for itself may go at any time: the feed goes on, or its next life does, and ends equal."""
    paced = Paced(bootstrap, "scratched", "canal", tmp_path / "lake", last=EARLY)
    lives = Lives(
        tmp_path, paced, {place: Death(scratch_goes, 2) for place in ("landing/before-commit", "round/planned")}
    )

    lives.until_the_end()

    assert lives.left() == []
    assert differences(tmp_path / "lake") == {}


@pytest.mark.soak
def test_partition_added(spark: "SparkSession", bootstrap: str, tmp_path: Path) -> None:
    """A partition that is added while the feed runs is read from its first message, and nothing overtakes it."""
    topic = Topic.fed(bootstrap, "growing", "open", recorded("open", EARLY))
    grown: list[str] = []

    def grow(progress: Progress) -> None:
        """The last partition's keys move to a new one; the old one only resolves from here on."""
        if (progress.checkpoint_ts or 0) >= moment_ts(EARLY) and not grown:
            grown.append("now")
            stay, move = moved("open", EARLY, MOMENT)
            topic.grow(len(move))
            topic.send(stay)
            topic.send(move)

    lake = tmp_path / "lake"
    Changefeed(topic.uri(), f"delta://{lake}").run(spark, until=moment_ts(MOMENT), on_progress=grow)

    assert grown
    assert Witness(lake, Undisturbed(tmp_path / "undisturbed", "open")).problems() == []
    assert differences(lake) == {}


@pytest.mark.more
@pytest.mark.usefixtures("spark")
def test_retention_passed_the_offset(bootstrap: str, tmp_path: Path) -> None:
    """A feed whose next message is gone ends at once, says so with the ways out, and changes nothing in the lake."""
    lake, words = tmp_path / "lake", ("--json",)
    topic = Topic.fed(bootstrap, "forgetful", "open", recorded("open", EARLY))
    assert cli(*feed(topic.uri(), lake, *words, moment=EARLY)).exit_code == 0
    rest = zip(recorded("open", EARLY), recorded("open", MOMENT), strict=True)
    topic.send([now[len(old) :] for old, now in rest])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    kept = len(recorded("open", EARLY)[1]) + 5
    for future in admin.delete_records([TopicPartition("forgetful", 1, kept)]).values():
        future.result()
    before = files_of(lake)

    ended = cli(*feed(topic.uri(), lake, *words, moment=MOMENT))

    assert ended.exit_code == 1
    for part in ("forgetful", "partition 1", "is gone", str(kept), "retention.ms", "new lake"):
        assert part in ended.stderr, ended.stderr
    assert files_of(lake) == before


def files_of(lake: Path) -> dict[str, bytes]:
    """All but what is kept of the feed's state, which tells the error."""
    files = (path for path in sorted(lake.rglob("*")) if path.is_file() and not path.name.endswith(".state.json"))
    return {str(path): path.read_bytes() for path in files}


@contextmanager
def small_disk(where: Path, size_kib: int) -> Iterator[Path]:
    """A file system of that size."""
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "none", str(where)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("nobody here may mount; test_disk_full_for_a_while does it by failpoints")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


def remount(where: Path, option: str) -> bool:
    """Whether the file system could be made read-only, or writable again: not while a file is being written."""
    return subprocess.run(["mount", "-o", f"remount,{option}", str(where)], check=False).returncode == 0


@pytest.mark.soak
def test_a_real_disk(bootstrap: str, tmp_path: Path) -> None:
    """A disk that is full, then read-only: each is told and tried again, and the feed goes on when it can write."""
    with small_disk(tmp_path / "disk", 64 << 10) as disk:
        ballast, lake = disk / "ballast", disk / "lake"
        paced = Paced(bootstrap, "on-a-small-disk", "open", lake, last=EARLY)
        steps = iter(_troubles(disk, ballast))
        waiting_for = next(steps)
        with running(feed(paced.topic.uri(), lake, moment=EARLY), tmp_path / "life") as run:
            for report in run.reports():
                paced()
                if waiting_for and waiting_for(report):
                    waiting_for = next(steps, None)
            status = run.process.wait()

        assert status == 0, run.stderr.read_text()[-2000:]
        assert waiting_for is None
        assert Witness(lake, Undisturbed(tmp_path / "undisturbed", "open")).problems() == []
        assert differences(lake) == {}


def _troubles(disk: Path, ballast: Path) -> Iterator:
    """What to wait for before the next trouble begins or ends."""
    yield lambda report: report["rows"]
    with ballast.open("wb") as file:
        try:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        except OSError:
            pass
    yield lambda report: any("No space left" in one for one in report["warnings"])
    ballast.unlink()
    yield lambda report: (report["checkpoint_ts"] or 0) >= moment_ts(1) and remount(disk, "ro")
    yield lambda report: any("Read-only" in one for one in report["warnings"])
    assert remount(disk, "rw")
