"""`tidegate status PLACE` of a lake and of a state directory: pending, running, stopped, failed, finished, killed."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.rig import Topic, cli, moment_ts, recorded
from tests.e2e.test_poison import JUNK
from tests.e2e.test_transcode import target
from tests.failpoint import armed
from tests.s3 import BUCKET, environment, serving
from tests.source.tidb.kit import recorded_log
from tidegate.config.changefeed import Changefeed
from tidegate.engine.ports import LocalTasks
from tidegate.engine.progress import Progress
from tidegate.model.errors import PoisonMessage

pytestmark = pytest.mark.slow


class End(NamedTuple):
    """A sink, and the place that `status` is asked for."""

    uri: str
    place: str
    state: str | None


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """An object store that clients of this process find."""
    with serving(BUCKET) as port, pytest.MonkeyPatch.context() as patch:
        for name, value in environment(port).items():
            patch.setenv(name, value)
        yield f"s3://{BUCKET}"


@pytest.fixture(params=["lake", "directory", "store"])
def sink(request: pytest.FixtureRequest, bootstrap: str, tmp_path: Path) -> End:
    """One that keeps its progress, and one whose checkpoint lies in a state directory, on a disk and on S3."""
    if request.param == "lake":
        return End(f"delta://{tmp_path / 'lake'}", str(tmp_path / "lake"), None)
    name = "status-" + "".join(each for each in tmp_path.name if each.isalnum())
    state = str(tmp_path / "state")
    if request.param == "store":
        state = f"{request.getfixturevalue('bucket')}/{name}"
    return End(target(bootstrap, name, "canal", partition_num=1), state, state)


@pytest.fixture(scope="module")
def topic(bootstrap: str) -> Topic:
    """The begin of the recording."""
    return Topic.fed(bootstrap, "status-of", "open", recorded("open", 1))


def status(place: str, *more: str) -> dict[str, Any]:
    """What the command says of the only feed."""
    result = cli("status", place, "--json", *more)
    assert result.exit_code == 0, result.stderr
    [found] = map(json.loads, result.stdout.splitlines())
    return found


def run(source: str, sink: End, **given: Any) -> Progress:
    """The feed, whose tasks run in this process."""
    feed = Changefeed(source, sink.uri, name="told", state_dir=sink.state)
    return feed.run(tasks=LocalTasks(pickles=False), **given)


@contextmanager
def running(source: str, sink: End) -> Iterator[None]:
    """A feed that goes on beside the block."""
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(source, sink), kwargs={"stop": stop})
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def awaited(place: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The status once it is `wanted`."""
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        if cli("status", place).stdout and wanted(found := status(place)):
            return found
        time.sleep(0.1)
    pytest.fail(f"it never came: {status(place)}")


def test_pending(sink: End, tmp_path: Path) -> None:
    """A feed whose source does not reach the checkpoint yet runs, is pending, and stops when it is told to."""
    log = tmp_path / "log"
    log.mkdir()
    with running(f"tidb://{log}", sink):
        found = awaited(sink.place, lambda found: bool(found.get("warnings")))
        assert (found["state"], found["running"], found["checkpoint_ts"]) == ("pending", True, 0)
        assert "the change log is empty" in found["warnings"][0]
        recorded_log(tmp_path / "made", "types", 3)
        for path in sorted((tmp_path / "made").iterdir()):
            path.rename(log / path.name)
        found = awaited(sink.place, lambda found: found["state"] != "pending")
        assert (found["state"], found["running"]) == ("normal", True)
        assert not any("the change log" in text for text in found.get("warnings", []))
    found = status(sink.place)
    assert (found["state"], found["running"]) == ("stopped", False)


def test_stopped_and_finished(sink: End, topic: Topic) -> None:
    """What ended says how: by a silence it stopped, at its target it has finished; the checkpoint is what was saved."""
    stopped = run(topic.uri(), sink, idle_s=0.5)
    found = status(sink.place, "-c", "told")
    assert (found["state"], found["running"], found["checkpoint_ts"]) == ("stopped", False, stopped.checkpoint_ts)
    assert (found["changefeed"], found["rows"], found["ddls"]) == ("told", stopped.rows, stopped.ddls)
    assert (found["source"], found["sink"]) == (topic.uri(), sink.uri)

    run(topic.uri(), sink, until=moment_ts(1))
    assert status(sink.place)["state"] == "finished"
    words = cli("status", sink.place).stdout
    assert words.startswith("told: finished since 2")
    assert "it is not running, and goes on behind its checkpoint when it is run" in words


def test_failed(sink: End, bootstrap: str, tmp_path: Path) -> None:
    """The error that ended it, with its place; the next run begins anew."""
    partitions = [list(messages) for messages in recorded("open", 1)]
    partitions[0].append((b"junk", JUNK))
    name = "poisoned-" + "".join(each for each in tmp_path.name if each.isalnum())
    bad = Topic.fed(bootstrap, name, "open", partitions)
    with pytest.raises(PoisonMessage):
        run(bad.uri(), sink, idle_s=0.5)

    found = status(sink.place)
    error = found["error"]
    assert (found["state"], found["running"], error["code"]) == ("failed", False, "CDC:ErrPoisonMessage")
    assert (error["topic"], error["partition"], error["offset"]) == (bad.name, 0, len(partitions[0]) - 1)
    assert "CDC:ErrPoisonMessage since 2" in cli("status", sink.place).stdout

    done = run(bad.uri(dead_letter="skip"), sink, until=moment_ts(1))
    assert done.error is None
    found = status(sink.place)
    assert (found["state"], "error" in found, found["checkpoint_ts"]) == ("finished", False, done.checkpoint_ts)


def test_killed(sink: End, topic: Topic) -> None:
    """While it runs it says so; whoever died without a word has stopped, and no error is made up."""
    found: list[dict[str, Any]] = []

    class Killed(BaseException):
        """As SIGKILL would."""

    def die() -> None:
        found.append(status(sink.place))
        raise Killed

    with armed({"round/applied": die}), pytest.raises(Killed):
        run(topic.uri(), sink, idle_s=0.5)

    assert (found[0]["state"], found[0]["running"]) == ("normal", True)
    if sink.state is not None and "://" not in sink.state:
        after = status(sink.place)
        assert (after["state"], after["running"], "error" in after) == ("stopped", False, False)
