"""What a lake on S3 asks its store, by kind: lists are dear, and nothing is asked twice."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import obstore
import pytest

from tests.engine.test_chain import Upstream
from tests.s3 import BUCKET, environment
from tests.s3_proxy import Request, running
from tidegate.changelog.changelog import Changelog, changelog_uri
from tidegate.config.changefeed import Changefeed
from tidegate.engine.ports import LocalTasks
from tidegate.objectstore import deltalog
from tidegate.objectstore.stores import delete, store, stored_files

pytestmark = pytest.mark.slow


@pytest.fixture
def seen(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Request]]:
    """The requests of this process."""
    store.cache_clear()
    with running(port) as (counted, made):
        for name, value in environment(counted).items():
            monkeypatch.setenv(name, value)
        yield made.requests


def kinds(seen: list[Request]) -> Counter[str]:
    """How often what was asked; forgets it."""
    asked = Counter("LIST" if "list-type" in request.path else request.method for request in seen)
    seen.clear()
    return asked


def test_a_log_is_listed_once(seen: list[Request]) -> None:
    """However many commits a table has, loading it lists its log once."""
    uri = f"s3://{BUCKET}/listed"
    deltalog.create(uri, [deltalog.schema_field("id", "long")], [], metadata={}, configuration={}, name="listed")
    for version in range(1, deltalog.CHECKPOINT_EVERY + 3):
        deltalog.commit(uri, version, [deltalog.txn("w", version)], operation="WRITE", metadata={})
    seen.clear()

    assert deltalog.load(uri) is not None

    assert kinds(seen)["LIST"] == 1


def test_many_files_are_deleted_with_few_requests(seen: list[Request]) -> None:
    """Upkeep deletes in bulk: 500 names a request."""
    uri = f"s3://{BUCKET}/deleted"
    for number in range(20):
        obstore.put(store(uri), f"{number}", b"")
    seen.clear()

    delete(uri, [str(number) for number in range(1020)])

    assert kinds(seen) == {"POST": 3}
    assert stored_files(uri) == []


def awaited(wanted: Callable[[], bool]) -> None:
    """Wait for it."""
    until_s = time.monotonic() + 60
    while not wanted():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def test_a_feed(seen: list[Request], tmp_path: Path) -> None:
    """An idle feed asks for the next commit of its changelog, every ten seconds for a reload, and tells its state; a
    round without DDLs lists each log that it writes, once a commit, and writes no schema."""
    upstream, root = Upstream(1, tmp_path / "log"), f"s3://{BUCKET}/counted"
    stop, rows = threading.Event(), [0]
    upstream.run("INSERT INTO a (id, v, u) VALUES (1, 1, 1)")
    upstream.writer.write(empty=True)
    feed = Changefeed(f"tidb://{tmp_path / 'log'}", f"delta+{root}?flush-interval=50ms&upkeep=off")
    given = {"tasks": LocalTasks(pickles=False), "stop": stop, "on_progress": lambda told: rows.append(told.rows)}
    run = threading.Thread(target=feed.run, kwargs=given)
    run.start()
    try:
        awaited(lambda: rows[-1] == 1)
        time.sleep(1)
        seen.clear()
        time.sleep(2)
        home = f"/{BUCKET}/counted/_tidegate"
        asked = [request.path for request in seen if request.method == "GET"]
        assert {path.rpartition("/")[0] for path in asked} - {home} == {f"{home}/changelog/_delta_log"}
        assert {path for path in asked if path.rpartition("/")[0] == home} <= {f"{home}/reload.json"}
        assert asked.count(f"{home}/reload.json") <= 1
        idle = kinds(seen)
        assert set(idle) <= {"GET", "PUT"}
        assert idle["PUT"] <= 1

        upstream.run("INSERT INTO a (id, v, u) VALUES (2, 1, 2)")
        upstream.writer.write(empty=True)
        awaited(lambda: rows[-1] == 2)
        time.sleep(1)
        commits = [request for request in seen if request.method == "PUT" and "/_delta_log/" in request.path]
        assert len(commits) >= 2
        assert not [request.path for request in seen if "/schemas/" in request.path]
        assert kinds(seen)["LIST"] == len(commits)
    finally:
        stop.set()
        run.join()


def test_a_cut_log_is_noticed(seen: list[Request], monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that was away for long asks whether its version still stands; one that looks often does not."""
    uri = changelog_uri(f"s3://{BUCKET}/away")
    deltalog.create(
        uri, [deltalog.schema_field("id", "long")], [], metadata={"tidegate": {}}, configuration={}, name=""
    )
    log = Changelog(uri)
    log.refresh()
    seen.clear()
    log.refresh()
    assert kinds(seen) == {"GET": 1}
    monkeypatch.setattr("tidegate.changelog.changelog.CUT_S", 0.0)
    log.refresh()
    assert kinds(seen) == {"GET": 1, "HEAD": 1}
