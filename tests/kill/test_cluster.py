"""Executors that die under a feed on a cluster: Spark tries their tasks again, and the feed needs no restart."""

import sys
from pathlib import Path

import pytest

from tests.e2e.rig import differences
from tests.kill.lives import Death, Lives, Paced
from tests.kill.seeds import chance
from tests.kill.victims import executor, worker

pytestmark = pytest.mark.slow

ON_CLUSTER = (sys.executable, str(Path(__file__).with_name("on_cluster.py")))
MOMENT = 4
EXECUTORS = ("landing/before-file", "landing/after-file", "apply/rows-written", "apply/ddl-written")
WORKERS = ("apply/rows-read", "apply/rows-committed")


@pytest.mark.more
def test_executors_die(bootstrap: str, tmp_path: Path) -> None:
    """SIGKILL to executors and Python workers while they land and apply: one life, and every snapshot equals TiDB's."""
    kind = chance("cluster").choice(("open", "canal"))
    plan = {**dict.fromkeys(EXECUTORS, Death(executor, 1)), **dict.fromkeys(WORKERS, Death(worker, 1))}
    paced = Paced(bootstrap, "on-cluster", kind, tmp_path / "lake", last=MOMENT)
    lives = Lives(tmp_path, paced, plan, program=ON_CLUSTER)

    lives.until_the_end()

    assert lives.lives == 1, lives.deaths
    assert lives.left() == []
    assert differences(tmp_path / "lake") == {}
