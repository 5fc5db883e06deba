"""A feed that is killed or told to stop, and started again, on a real broker and a Spark of its own."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.rig import Report, Running, Topic, cli, differences, feed, halves, recorded, running

pytestmark = pytest.mark.slow

SMALL = 2500
"""Messages a batch, so that the recording takes several rounds."""

MID_ROUND_S = 0.7
"""From the report that a round begins until some tables have committed and others have not."""


def later_round_at_work(report: Report) -> bool:
    return bool(report["rows"] and report["ddl"])


def applied_some(report: Report) -> bool:
    return bool(report["rows"])


def kill_driver(run: Running) -> None:
    """The Python process dies; its JVM lives on for a moment and may still commit."""
    os.kill(run.process.pid, signal.SIGKILL)


def kill_group(run: Running) -> None:
    run.signal_group(signal.SIGKILL)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kind", "kill"),
    [("open", kill_driver), ("canal", kill_group)],
)
def test_kill_half_way(bootstrap: str, tmp_path: Path, kind: str, kill: Callable[[Running], None]) -> None:
    """Killed in the middle of a round and started again at once, a feed loses nothing and applies nothing twice."""
    lake = tmp_path / "lake"
    before, after = halves(recorded(kind))
    done, torn = halves(before)
    topic = Topic.fed(bootstrap, f"killed-{kind}", kind, done)
    words = feed(topic.uri(max_messages_per_batch=SMALL), lake)

    with running(words, tmp_path / "first") as first:
        first.reach(applied_some)
        topic.send(torn)
        first.reach(later_round_at_work)
        time.sleep(MID_ROUND_S)
        kill(first)
        topic.send(after)
        with running(words, tmp_path / "second") as second:
            begun = second.reach(lambda report: report["checkpoint_ts"] is not None)
            status, last = second.end()
        orphans = first.left()

    assert status == 0, second.stderr.read_text()
    assert begun["rows"] == 0
    assert last["phase"] == "stopped"
    assert orphans == []
    assert differences(lake) == {}


@pytest.mark.more
@pytest.mark.usefixtures("spark")
def test_stop_signals(bootstrap: str, tmp_path: Path) -> None:
    """SIGTERM and Ctrl-C end a feed cleanly with status 0 and a published checkpoint, where the next run goes on."""
    lake = tmp_path / "lake"
    before, after = halves(recorded("open"))
    topic = Topic.fed(bootstrap, "stopped", "open", before)
    words = feed(topic.uri(max_messages_per_batch=SMALL), lake)

    with running(words, tmp_path / "first") as first:
        first.reach(applied_some)
        os.kill(first.process.pid, signal.SIGTERM)
        ended, stopped = first.end()
    topic.send(after)
    with running(words, tmp_path / "second") as second:
        resumed = second.reach(lambda report: report["checkpoint_ts"] is not None)
        second.reach(applied_some)
        second.signal_group(signal.SIGINT)  # as a terminal does
        interrupted, last = second.end()

    assert (ended, stopped["phase"]) == (0, "stopped"), first.stderr.read_text()
    said = [*first.stderr.read_text().splitlines(), *second.stderr.read_text().splitlines()]
    assert [line for line in said if "rewrites its values" not in line] == []
    assert resumed["checkpoint_ts"] == stopped["checkpoint_ts"]
    assert (interrupted, last["phase"]) == (0, "stopped"), second.stderr.read_text()
    assert last["checkpoint_ts"] > stopped["checkpoint_ts"]
    assert cli(*feed(topic.uri(), lake)).exit_code == 0
    assert differences(lake) == {}
