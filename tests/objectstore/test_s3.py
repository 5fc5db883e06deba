"""Lakes on S3: writers that race, stores that let two win, stores that say 503, and a whole feed."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tidegate
from tests.engine.test_chain import Upstream
from tests.s3 import BUCKET, proxy
from tests.s3_proxy import running
from tidegate.config.changefeed import Changefeed
from tidegate.engine.ports import LocalTasks
from tidegate.engine.progress import Progress
from tidegate.model.errors import SinkRefused
from tidegate.objectstore import deltalog, stores
from tidegate.objectstore.deltalog import CommitConflict
from tidegate.objectstore.stores import check_store, store, stored_files

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("client")]


def feed(home: Path, root: str) -> Progress:
    """Bring a lake to the end of the log."""
    return Changefeed(f"tidb://{home / 'log'}", f"delta+{root}?flush-interval=50ms").run(
        tasks=LocalTasks(pickles=False), idle_s=0.2
    )


def test_a_good_store_is_taken_and_left_clean() -> None:
    """One writer of each race wins; nothing of the probe stays."""
    check_store(f"s3://{BUCKET}/good")

    assert stored_files(f"s3://{BUCKET}/good") == []


def test_a_store_that_lets_two_writers_win_is_refused(
    unsigned: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that passes over If-None-Match: the feed ends before its first round, and says why."""

    def forget(_method: str, headers: dict[str, str]) -> None:
        for name in [name for name in headers if name.lower() == "if-none-match"]:
            del headers[name]

    Upstream(1, tmp_path / "log").writer.write(empty=True)
    with proxy(unsigned, forget) as bad:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{bad}")
        with pytest.raises(SinkRefused, match="8 of 8 writers could create one object"):
            feed(tmp_path, f"s3://{BUCKET}/bad")


def test_one_of_the_writers_of_a_version_wins() -> None:
    """Commits of one version race; the others meet a conflict."""
    uri = f"s3://{BUCKET}/raced"
    deltalog.create(uri, [deltalog.schema_field("id", "long")], [], metadata={}, configuration={}, name="raced")

    def commits(writer: int) -> bool:
        try:
            deltalog.commit(uri, 1, [deltalog.txn(f"w{writer}", 1)], operation="WRITE", metadata={})
        except CommitConflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(commits, range(8))) == 1


def test_a_commit_whose_answer_is_lost_is_known_again(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store has it, the connection ends, the client tries again: no conflict with ourselves."""
    first = iter(["lost"])
    with running(port, lambda request: next(first, None) if "1.json" in request.path else None) as (cut, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{cut}")
        uri = f"s3://{BUCKET}/lost"
        deltalog.create(uri, [deltalog.schema_field("id", "long")], [], metadata={}, configuration={}, name="lost")
        deltalog.commit(uri, 1, [deltalog.txn("w", 1)], operation="WRITE", metadata={})
    assert next(first, None) is None


FAULTS = ("lost", "cut", 503, "half", "torn")
"""Answers that never come, connections that end before or amid a request, a busy store, and answers cut in two."""


def test_a_feed(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and DDLs over several runs, every nineteenth request met by a fault, in turn: the lake is the database."""
    numbers, faults = itertools.count(1), itertools.cycle(FAULTS)
    upstream, root = Upstream(1, tmp_path / "log"), f"s3://{BUCKET}/shop"
    with running(port, lambda _: next(faults) if next(numbers) % 19 == 0 else None) as (tired, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{tired}")
        for number in range(3):
            upstream.run(f"INSERT INTO a (id, v, u) VALUES ({number}, 1, {number})")
            upstream.run(f"INSERT INTO b VALUES ({number}, 1, 1{number})")
            if number == 1:
                upstream.run("ALTER TABLE a ADD COLUMN more INT; UPDATE a SET more = 7; DELETE FROM b WHERE id = 0")
            upstream.writer.write(empty=True)
            feed(tmp_path, root)

    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    store.cache_clear()
    lake = tidegate.lake(root)
    for name in ("a", "b"):
        rows = {row["id"]: row for row in lake.arrow(f"test.{name}").to_pylist()}
        assert rows == upstream.rows(name)
        assert {row["id"]: row for row in lake.live().arrow(f"test.{name}").to_pylist()} == rows
    assert next(numbers) > 100


def test_a_busy_store_is_waited_out(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of tables that the store does not take fail no task: it is an error that passes, in one line."""
    monkeypatch.setattr(stores, "BACKOFF_MS", (1, 1))
    monkeypatch.setattr(stores, "RETRIES", 1)
    upstream, root = Upstream(1, tmp_path / "log"), f"s3://{BUCKET}/busy"
    upstream.run("INSERT INTO a (id, v, u) VALUES (1, 1, 1)")
    upstream.writer.write(empty=True)
    refusals, told = iter([503] * 4), []
    busy = f"/{BUCKET}/busy/tables/"
    with running(port, lambda one: next(refusals, None) if one.path.startswith(busy) else None) as (tired, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{tired}")
        feed = Changefeed(f"tidb://{tmp_path / 'log'}", f"delta+{root}?flush-interval=50ms")
        feed.run(tasks=LocalTasks(pickles=True), idle_s=0.2, on_progress=lambda one: told.append(one.error))
        assert len(tidegate.lake(root).arrow("test.a")) == 1
    errors = {str(error) for error in told if error is not None}
    assert any("503 Service Unavailable" in error or "503 Spoilt" in error for error in errors), errors
    assert all(error.startswith("CDC:ErrSink") and "\n" not in error for error in errors), errors
