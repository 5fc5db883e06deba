"""State directories on S3: what keeps a feed's checkpoint there, who may replace it, and what is told of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.contract.adapters import Journal
from tests.e2e.rig import cli
from tests.engine.test_chain import Upstream
from tests.s3 import BUCKET
from tests.s3_proxy import Request, running
from tidegate.config.changefeed import Changefeed
from tidegate.engine.checkpoints import StoreCheckpoints
from tidegate.engine.plan import Checkpoint
from tidegate.engine.ports import LocalTasks, Saved, SinkPosition
from tidegate.engine.progress import Progress
from tidegate.model.errors import ConfigError, Fenced, SinkRefused, StateUnwritable
from tidegate.objectstore.stores import check_store, delete, stored_files
from tidegate.schema.snapshot import Database
from tidegate.schema.state import SchemaState

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("client")]


def at(ts: int, state: SchemaState | None = None) -> Saved:
    """A checkpoint."""
    return Saved(SinkPosition(Checkpoint(ts), state or SchemaState()), {"ts": ts})


def names(uri: str) -> list[str]:
    """What lies there."""
    return sorted(file.path for file in stored_files(uri))


def test_a_checkpoint_is_kept() -> None:
    """The next run takes up what was saved last, with its notes and schema; a schema that nobody names is removed."""
    uri, later = f"s3://{BUCKET}/kept", SchemaState({"shop": Database("shop")})
    one, two = (StoreCheckpoints(uri, "feed", target="topic") for _ in range(2))
    with one.run_lock():
        assert one.load() is None
        one.save(at(5))
        first = names(uri)
        one.save(at(7, later))

    with two.run_lock():
        found = two.load()
        assert found is not None
        assert (found.position.checkpoint.ts, found.position.state, found.notes) == (7, later, {"ts": 7})
    assert first != names(uri)
    assert [len(first), len(names(uri))] == [2, 2]


def test_another_target_is_refused_and_not_taken_over() -> None:
    """A run into another topic ends, and the run that owns the checkpoint goes on."""
    one, other = (StoreCheckpoints(f"s3://{BUCKET}/target", "feed", target=target) for target in ("a", "b"))
    with one.run_lock(), other.run_lock():
        assert one.load() is None
        one.save(at(5))
        with pytest.raises(ConfigError, match="a changefeed into a, not b"):
            other.load()
        one.save(at(6))


@pytest.mark.parametrize("begun", [False, True])
def test_the_run_that_began_last_goes_on(*, begun: bool) -> None:
    """The one before it is fenced at its next checkpoint, and when it loads again; of two new ones the slower is."""
    one, two = (StoreCheckpoints(f"s3://{BUCKET}/fenced-{begun}", "feed") for _ in range(2))
    with one.run_lock(), two.run_lock():
        one.load()
        if begun:
            one.save(at(5))
        two.load()
        if not begun:
            two.save(at(5))
        for deed in (lambda: one.save(at(6)), one.load, lambda: one.save(at(6))):
            with pytest.raises(Fenced, match="another run of changefeed feed"):
                deed()
        two.save(at(7))
        found = two.kept()
        assert found is not None
        assert found.checkpoint_ts == 7


def test_a_lost_answer_is_known_again(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store has a checkpoint and the connection ends: it is ours, the first and the next ones."""
    lost: list[str] = []

    def spoil(request: Request) -> str | None:
        whole = request.method == "PUT" and request.path.endswith("/feed.json")
        lost.append(request.path if whole and len(lost) % 2 == 0 else "")
        return "lost" if lost[-1] else None

    with running(port, spoil) as (cut, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{cut}")
        one = StoreCheckpoints(f"s3://{BUCKET}/lost", "feed")
        for ts in range(1, 7):
            one.save(at(ts))
        found = one.kept()
    assert sum(map(bool, lost)) >= 2
    assert found is not None
    assert found.checkpoint_ts == 6


def test_a_removed_checkpoint_is_not_written_again() -> None:
    """Who removes the file of a feed that runs ends it."""
    uri = f"s3://{BUCKET}/removed"
    one = StoreCheckpoints(uri, "feed")
    one.save(at(5))
    delete(uri, ["feed.json"])
    with pytest.raises(Fenced, match="it was removed"):
        one.save(at(6))


def test_a_store_that_refuses_is_told() -> None:
    """A bucket that is not there: StateUnwritable names the checkpoint."""
    with pytest.raises(StateUnwritable, match=r"s3://nobody/state/feed\.json cannot be written"):
        StoreCheckpoints("s3://nobody/state", "feed").save(at(5))


def test_a_store_that_overwrites_what_has_changed_is_refused(unsigned: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that passes over If-Match may have a lake, and no state directory."""

    def forget(request: Request) -> None:
        request.headers.pop("if-match", None)

    with running(unsigned, forget) as (bad, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{bad}")
        check_store(f"s3://{BUCKET}/half-good-lake")
        one = StoreCheckpoints(f"s3://{BUCKET}/half-good", "feed")
        with one.run_lock(), pytest.raises(SinkRefused, match="8 of 8 writers could replace one version"):
            one.load()


def test_a_bucket_that_is_not_there_is_told() -> None:
    """A feed does not begin without one, and says so."""
    one = StoreCheckpoints("s3://nobody/state", "feed")
    with one.run_lock(), pytest.raises(SinkRefused, match="no such bucket"):
        one.load()


def test_a_feed_into_functions(tmp_path: Path) -> None:
    """A feed whose state is on S3 goes on where it ended, and `status` and `dlq` find it there."""
    upstream, journal = Upstream(1, tmp_path / "log"), Journal(tmp_path / "journal", "nothing")
    uri = f"s3://{BUCKET}/state"

    def run() -> Progress:
        feed = Changefeed(f"tidb://{tmp_path / 'log'}", journal.callback(), name="told", state_dir=uri)
        return feed.run(tasks=LocalTasks(pickles=False), idle_s=0.2)

    def status() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(cli("status", "--state-dir", f"{uri}/", "--json").stdout)
        return found

    upstream.run("INSERT INTO a (id, v, u) VALUES (1, 1, 1)")
    upstream.writer.write(empty=True)
    first = run()
    told = status()
    assert (told["changefeed"], told["state"], told["running"]) == ("told", "stopped", False)
    assert told["checkpoint_ts"] == first.checkpoint_ts > 0
    begun = len(journal.read())

    upstream.run("INSERT INTO a (id, v, u) VALUES (2, 1, 2)")
    upstream.writer.write(empty=True)
    second = run()
    assert second.resumed
    assert [second.rows, status()["checkpoint_ts"]] == [1, second.checkpoint_ts]
    assert len(journal.read()) - begun == 2
    assert names(uri)[:1] == ["told.json"]
