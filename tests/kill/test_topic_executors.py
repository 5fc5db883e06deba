"""Executors whose JVM gets SIGKILL under a changefeed into topics, on a cluster of two: the feed needs no restart.

Story, whole ──► segments ──► one life on local-cluster[2,1,1024] ──► topics ──► validators

topic/rows-queued   a worker has queued a stretch's rows: its executor dies, the worker itself may outlive it
topic/rows-written  the driver has the answers and sends DDLs: one of the executors dies between two stretches
at any moment       one of the executors, a time by the seed after the first
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.e2e.rig import Running, running
from tests.kill.seeds import chance
from tests.kill.test_cluster import ON_CLUSTER
from tests.kill.victims import LIFE_S, POLL_S, armed_processes
from tests.workloads.real import Real
from tidegate_upstream.broker import running_broker

pytestmark = pytest.mark.slow

SEEDS = 6
BACKEND = "CoarseGrainedExecutorBackend"
IN_TASK, BETWEEN = "topic/rows-queued", "topic/rows-written"


def executors(run: Running) -> list[psutil.Process]:
    """The JVMs of a feed that run tasks."""
    found = []
    with suppress(psutil.Error):
        for child in psutil.Process(run.process.pid).children(recursive=True):
            with suppress(psutil.Error):
                if any(BACKEND in word for word in child.cmdline()) and "java" in child.name():
                    found.append(child)
    return found


def executor_of(worker: int) -> psutil.Process | None:
    """The JVM whose task a Python worker runs; None for a worker that has outlived it."""
    with suppress(psutil.Error):
        for ancestor in psutil.Process(worker).parents():
            if any(BACKEND in word for word in ancestor.cmdline()):
                return ancestor
    return None


class OnCluster(Real):
    """One seed on a cluster. `deaths` says who died where, by process id."""

    def __init__(self, seed: int, broker: object, home: Path) -> None:
        super().__init__(seed, broker, home)  # type: ignore[arg-type]  # its address is all that is asked of it
        self.deaths: dict[int, str] = {}
        self.at_s = sorted(self.random.uniform(1, 8) for _ in range(2))

    def live(self) -> int:
        """The one life, its exit status."""
        nth, other = self.random.randint(1, 3), self.random.randint(3, 9)  # a worker does but a few tasks
        marks = self.home / "marks"
        with (
            armed_processes([f"{IN_TASK}=pause@{nth}", f"{BETWEEN}=pause@{other}"], marks),
            running(self._words(), self.home / "life", ON_CLUSTER, hang_s=LIFE_S) as run,
        ):
            run.reach(lambda report: report["watermarks"] > 0)
            run.unread()
            began_s = None
            while run.process.poll() is None:
                self._at_places(run, marks)
                if began_s is None and IN_TASK in self.deaths.values():  # before it, its executor may be the one to die
                    began_s = time.monotonic()
                if self.at_s and began_s is not None and time.monotonic() - began_s > self.at_s[0]:
                    self.at_s.pop(0)
                    self._kill(self.random.choice(executors(run) or [None]), "any moment")
                time.sleep(POLL_S)
            return run.process.returncode

    def _at_places(self, run: Running, marks: Path) -> None:
        for mark in sorted(marks.glob("*.paused")):
            if not (text := mark.read_text()):
                continue
            if mark.stem == IN_TASK.replace("/", "."):
                self._kill(executor_of(int(text)), IN_TASK)
            elif living := executors(run):
                self._kill(self.random.choice(living), BETWEEN)
            else:
                continue
            mark.unlink()

    def _kill(self, victim: psutil.Process | None, where: str) -> None:
        if victim is not None:
            os.kill(victim.pid, signal.SIGKILL)
            self.deaths[victim.pid] = where


@pytest.mark.soak
@pytest.mark.parametrize("number", range(SEEDS))
def test_executors_die_under_a_feed_into_topics(number: int, tmp_path: Path) -> None:
    """Nothing is lost, the order and every promise hold, rows come twice only where an executor died, and it is one
    life: Spark tries the tasks of the dead again elsewhere."""
    seed = chance("executors of topics", number).randrange(1 << 20)
    with running_broker() as broker:
        one = OnCluster(seed, broker, tmp_path)
        status = one.live()
        one.troubles = len(one.deaths)
        problems = one.complaints()

    assert status == 0, (tmp_path / "life" / "stderr").read_text()[-2000:]
    assert {IN_TASK, BETWEEN} <= set(one.deaths.values()), one.deaths
    assert not problems, f"seed {seed}: {one.setting}: {one.deaths}: {len(problems)}: {problems[:3]}"
