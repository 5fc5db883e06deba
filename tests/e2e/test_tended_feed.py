"""A real feed that tends its lake every second, from a real broker, with Spark."""

from pathlib import Path

import pytest

from tests.e2e.rig import LAST, Topic, cli, differences, feed, moment_ts, recorded
from tests.sink.delta.tended import data_files
from tidegate.lakes.lake import Lake

pytestmark = pytest.mark.slow

PARAMETERS = "?upkeep-interval=1s&changelog-retention=0&snapshot-retention=0&recover-retention=0"


@pytest.fixture(scope="module")
def topic(bootstrap: str) -> Topic:
    return Topic.fed(bootstrap, "shop-tended", "open", recorded("open"))


@pytest.mark.soak
def test_a_tended_run(topic: Topic, tmp_path: Path) -> None:
    """With upkeep every second, runs that stop at moments leave the right tables, and far fewer snapshots behind."""
    lake = tmp_path / "lake"
    for moment in (3, 6, 9, LAST):
        result = cli(*feed(topic.uri(max_messages_per_batch=300), Path(f"{lake}{PARAMETERS}"), moment=moment))
        assert result.exit_code == 0, result.stderr
        assert Lake(str(lake)).checkpoint_ts == moment_ts(moment)
        assert differences(lake) == {}

    forgotten = list((lake / "_tidegate" / "forgotten").iterdir())
    assert forgotten
    assert (lake / "_tidegate" / "limits.json").exists()
    assert data_files(lake)
