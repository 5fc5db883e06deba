"""What a server does with changefeeds: each verb, each state, each way of ending."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.failpoint import armed
from tests.replay.stage import Crash
from tests.server.kit import ServerHome, until
from tests.source.load.dumpling import Dumped, written
from tests.source.load.feeds import ordered
from tidegate.config.changefeed import Changefeed
from tidegate.config.registry import home_of
from tidegate.engine import checkpoints
from tidegate.engine.progress import Progress
from tidegate.engine.reading import LoadProgress
from tidegate.engine.reload import DONE, KeptReload
from tidegate.expr.scope import ResultSet
from tidegate.lakes.lake import Lake
from tidegate.model.errors import ConfigError, TidegateError, UriInvalid
from tidegate.objectstore.local_files import locked
from tidegate.server import changefeeds, running
from tidegate.server.answers import extension
from tidegate.server.changefeeds import Changefeeds
from tidegate.server.record import (
    ApiParamInvalid,
    ChangefeedExists,
    ChangefeedMissing,
    FeedChange,
    FeedId,
    NewFeed,
    TargetBelowStart,
    UpdateRefused,
)
from tidegate.server.server import Server
from tidegate.source.tidb_segment import safe_points
from tidegate_upstream.tidb.listener import Upstream
from tidegate_upstream.tidb.session import Session

pytestmark = pytest.mark.slow

ONE = FeedId("default", "one")


@pytest.fixture
def place(tmp_path: Path) -> ServerHome:
    """An upstream with some work behind it."""
    return ServerHome(tmp_path)


@pytest.fixture
def server(place: ServerHome) -> Iterator[Server]:
    """A server that owns."""
    server = place.server()
    until(lambda: server.changefeeds.is_owner)
    yield server
    server.stop()


@pytest.fixture
def feeds(server: Server) -> Changefeeds:
    """Its changefeeds."""
    return server.changefeeds


@contextmanager
def resting(
    feeds: Changefeeds, ddls: int = 1, more: Mapping[str, Callable[[], None]] = {}
) -> Iterator[threading.Event]:
    """A run that has done some DDLs of its load waits there until it is stopped, unless the event is set."""
    cancelling = threading.Event()

    def rest() -> None:
        run = feeds._feed(ONE).run
        if run and run.progress and run.progress.ddls >= ddls and not cancelling.is_set():
            run._stop.wait(20)

    with armed({"round/planned": rest, **more}):
        yield cancelling


def test_a_life(place: ServerHome, feeds: Changefeeds) -> None:
    """A changefeed is made, follows, rests while it is paused, goes on behind its checkpoint, and is forgotten."""
    made = feeds.create(place.wish("one"), "ann")
    assert (made.state, made.record.start_ts) == ("normal", 1)
    end = place.work()
    until(lambda: feeds.get(ONE).checkpoint_ts >= end)

    paused = feeds.pause(ONE, "bob")
    assert (paused.state, paused.running, paused.checkpoint_ts) == ("stopped", False, end)
    before, end = place.got("one"), place.work()
    assert feeds.resume(ONE, "cy").state == "normal"
    until(lambda: feeds.get(ONE).checkpoint_ts >= end)

    assert place.got("one") > before
    assert [each.changefeed for each in safe_points(place.home / "log")] == ["one"]
    assert feeds.remove(ONE, "ann") is not None
    assert not safe_points(place.home / "log")
    assert feeds.listed() == []
    assert feeds.remove(ONE, "ann") is None
    assert [(one.operation, one.who) for one in reversed(feeds.operations())][:3] == [
        ("create", "ann"),
        ("pause", "bob"),
        ("resume", "cy"),
    ]


@pytest.mark.parametrize("again", [False, True], ids=["", "and paused again"])
def test_resumed_amid_its_last_round(place: ServerHome, feeds: Changefeeds, *, again: bool) -> None:
    """A paused changefeed whose run has a round in flight is resumed at once, and goes on behind the end of that run,
    unless it is paused again."""
    feeds.create(place.wish("one"), "")
    end, held, go = place.work(), threading.Event(), threading.Event()
    until(lambda: feeds.get(ONE).checkpoint_ts >= end)
    with armed({"round/planned": lambda: held.set() or (go.wait(60) and None)}):
        place.work(1)
        assert held.wait(60)
        assert feeds.pause(ONE, "", 0.0).running
        begun_s = time.monotonic()
        assert feeds.resume(ONE, "").state == "normal"
        assert again == (again and feeds.pause(ONE, "", 0.0).state == "stopped")
        assert time.monotonic() - begun_s < 5
        go.set()
        end = place.work()
        until(lambda: not feeds.get(ONE).running if again else feeds.get(ONE).checkpoint_ts >= end)
    assert feeds.get(ONE).state == ("stopped" if again else "normal")


def test_a_run_of_an_earlier_time_as_the_owner(place: ServerHome, server: Server, feeds: Changefeeds) -> None:
    """A server that lost its changefeeds and has them again runs each once, although a run of before ends late."""
    feeds.create(place.wish("one"), "")
    end, held, go = place.work(), threading.Event(), threading.Event()
    until(lambda: feeds.get(ONE).checkpoint_ts >= end)
    with armed({"round/planned": lambda: held.set() or (go.wait(60) and None)}):
        place.work(1)
        assert held.wait(60)
        last = feeds._feed(ONE).run
        assert last is not None
        feeds.step_down(0.0)
        feeds.take_over(server.lease.epoch)
        go.set()
        assert last.join(60)
    assert sum(thread.name == str(ONE) for thread in threading.enumerate()) == 1
    end = place.work()
    until(lambda: feeds.get(ONE).checkpoint_ts >= end)


@pytest.mark.parametrize("sink", ["file://{}/files?protocol=canal-json", "sqlite://{}/rows.db"])
def test_one_begins_at_its_start(place: ServerHome, feeds: Changefeeds, sink: str) -> None:
    """What is behind the start of a changefeed is left out, although its sink has been opened once before."""
    begin = place.work(1)
    feeds.create(replace(place.wish("one"), start_ts=begin, sink_uri=sink.format(place.home)), "")
    until(lambda: (progress := feeds.get(ONE).progress) and progress.phase == "running")
    progress = feeds.get(ONE).progress
    assert progress is not None
    assert (progress.resumed, progress.ddls, progress.checkpoint_ts) == (False, 0, begin)


@pytest.mark.parametrize("mode", ["initial", "only"])
def test_one_begins_with_a_load(place: ServerHome, feeds: Changefeeds, mode: str) -> None:
    """load-from in its configuration: all rows, then the changes, or the end."""
    with Upstream(place.upstream.cluster) as sql:
        address = f"mysql://root:@127.0.0.1:{sql.ports['n1']}/?enable-tls=false"
        config = {"source": {"load": mode, "load-from": address}}
        wish = replace(place.wish("one"), start_ts=0, config=config)
        with pytest.raises(ApiParamInvalid, match="load-ts"):
            feeds.create(replace(wish, start_ts=1), "")
        feeds.create(wish, "ann")
        until(lambda: place.work(1) and (run := feeds.get(ONE).progress) and run.load and run.load.is_done)
        if mode == "only":
            until(lambda: feeds.get(ONE).state == "finished")
        else:
            end = place.work()
            until(lambda: feeds.get(ONE).checkpoint_ts >= end)
        view = feeds.get(ONE)
        assert view.progress is not None
        assert view.progress.rows_loaded > 0
        assert extension(view)["progress"]["load"]["tables"] == view.progress.load.tables
        assert "loaded" in extension(view)["loading"]


def test_one_loads_files_alone(place: ServerHome, feeds: Changefeeds, tmp_path: Path) -> None:
    """All rows of a directory of Dumpling, and the end. Another load is refused, since such rows never change."""
    uri = Dumped().uri(written(tmp_path / "dump", Dumped()))
    config = {"source": {"load": "only", "load-from": uri}}
    feeds.create(replace(place.wish("one"), start_ts=0, source_uri="", config=config), "ann")
    until(lambda: feeds.get(ONE).state == "finished")
    view = feeds.get(ONE)
    assert view.progress is not None
    assert view.progress.rows_loaded == 2
    with pytest.raises(ConfigError, match="with no dump"):
        feeds.start_load(ONE, "", (), "ann")
    assert feeds.get(ONE).state == "finished"


@pytest.mark.slow
def test_tables_are_loaded_beside_the_feed(place: ServerHome, feeds: Changefeeds) -> None:
    """A changefeed that began above rows is given its database, and loads tables while it runs. A
    target that readers have had says that it cannot. It equals the upstream where it stands."""
    begun = place.work()
    time.sleep(0.01)
    feeds.create(replace(place.wish("two"), start_ts=begun), "ann")
    with pytest.raises(ApiParamInvalid, match="load_from"):
        feeds.reload_tables(FeedId("default", "two"), "", (), "ann", adds=False)
    with pytest.raises(ConfigError, match="`resend` in the API"):
        feeds.reload_tables(FeedId("default", "two"), "mysql://root@127.0.0.1:1/", (), "ann", adds=False)
    feeds.remove(FeedId("default", "two"), "ann")
    config = {"filter": {"rules": ["*.*", "!nothing.*"]}}
    lake = replace(place.wish("one"), start_ts=begun, sink_uri=f"delta://{place.home / 'lake'}", config=config)
    feeds.create(lake, "ann")
    with pytest.raises(ApiParamInvalid, match="load_from"):
        feeds.reload_tables(ONE, "", (), "ann", adds=False)
    with Upstream(place.upstream.cluster) as sql:
        address = f"mysql://root:@127.0.0.1:{sql.ports['n1']}/?enable-tls=false&chunk-rows=1"
        for load_from in (address, ""):
            runs = feeds.get(ONE).record.config
            feeds.reload_tables(ONE, load_from, ("*.*",), "ann", adds=bool(load_from))
            assert (feeds.get(ONE).record.config == runs) is not bool(load_from)
            kept = KeptReload(home_of(feeds.config_of(feeds.get(ONE).record)))
            until(lambda kept=kept: place.work(1) and (found := kept.read()) and found.outcome, wait_s=120)
            last = kept.read()
            assert last is not None
            assert last.outcome == DONE
        assert feeds.get(ONE).state == "normal"
        end = place.work(1)  # no DDL is there, at whose own timestamp a snapshot does not have it yet
        until(lambda: feeds.get(ONE).checkpoint_ts >= end)
        feeds.pause(ONE, "ann")
        lake_now = Lake(str(place.home / "lake"))
        upstream = Session(place.upstream.cluster.node)
        upstream.execute(f"SET tidb_snapshot = '{lake_now.snapshot.checkpoint.ts}'")
        for name in lake_now.tables():
            (answer,) = upstream.execute(f"SELECT * FROM {name}")
            assert isinstance(answer, ResultSet)
            columns = [column.name for column in answer.columns]
            assert ordered(lake_now.arrow(name).to_pylist()) == ordered(
                dict(zip(columns, row, strict=True)) for row in answer.rows
            ), name


def test_loads_while_it_lives(place: ServerHome, feeds: Changefeeds) -> None:
    """A changefeed that began above rows loads them later; it is paused and goes on amid that, and a load that is
    cancelled leaves it stopped, with that reason, until another one is started."""
    begun = place.work()
    time.sleep(0.01)  # the upstream counts on within a millisecond, the server's clock does not
    feeds.create(replace(place.wish("one"), start_ts=begun), "ann")
    with pytest.raises(ApiParamInvalid, match="load_from"):
        feeds.start_load(ONE, "", (), "ann")
    with pytest.raises(UpdateRefused, match="no load"):
        feeds.cancel_load(ONE, "ann")
    with Upstream(place.upstream.cluster) as sql:
        address = f"mysql://root:@127.0.0.1:{sql.ports['n1']}/?enable-tls=false&chunk-rows=1"
        feeds.start_load(ONE, address, (), "ann")

        def loading() -> LoadProgress | None:
            place.work(1)
            view = feeds.get(ONE)
            assert view.error is None, view.error
            return view.progress and view.progress.load

        until(lambda: (load := loading()) and load.is_done and load.chunks)
        first = loading()
        assert first is not None
        feeds.start_load(ONE, "", (), "bob")
        until(lambda: (load := loading()) and load.ts > first.ts)
        feeds.pause(ONE, "bob")
        assert feeds.get(ONE).state == "stopped"
        feeds.resume(ONE, "bob")
        until(lambda: (load := loading()) and load.is_done)
        feeds.start_load(ONE, "", ("nothing.*",), "bob")
        until(lambda: place.work(1) and feeds.get(ONE).state == "failed")
        error = feeds.get(ONE).record.error
        assert error is not None
        assert "no table to load" in error.message

        with resting(feeds, 3) as cancelling:
            feeds.start_load(ONE, "", (), "cy")
            until(lambda: loading() and feeds.get(ONE).progress.ddls >= 3)
            cancelling.set()
            feeds.cancel_load(ONE, "dan")
            until(lambda: feeds.get(ONE).state == "stopped")
        for _ in range(2):
            error = feeds.get(ONE).record.error
            assert error is not None
            assert (error.code, "load start" in error.message) == ("CDC:ErrLoadCancelled", True)
            feeds.resume(ONE, "dan")
            until(lambda: feeds.get(ONE).state == "stopped")
        feeds.start_load(ONE, "", (), "cy")
        until(lambda: (load := loading()) and load.is_done and load.chunks)
        with pytest.raises(UpdateRefused, match="no load"):
            feeds.cancel_load(ONE, "dan")

        feeds.pause(ONE, "dan")
        feed = feeds._feed(ONE)  # cancelled by somebody who saw it unfinished
        feeds._replace(feed, msgspec.structs.replace(feed.record, cancels_load=True))
        feeds.resume(ONE, "dan")
        until(lambda: (load := loading()) and load.is_done)
        view = feeds.get(ONE)
        assert view.state == "normal"
        assert [text for text in view.progress.warnings if "before it could be cancelled" in text]
        feeds.start_load(ONE, "mysql://root@127.0.0.1:1/?enable-tls=false&timeout=1s", (), "cy")
        until(lambda: feeds.get(ONE).error)
        feeds.cancel_load(ONE, "dan")
        until(lambda: feeds.get(ONE).state == "stopped" and feeds.get(ONE).error)
        assert "go on without" in feeds.get(ONE).error.message
        feeds.resume(ONE, "dan")
        end = place.work()
        until(lambda: feeds.get(ONE).checkpoint_ts >= end)
        assert feeds.get(ONE).error is None


@pytest.mark.more
def test_a_load_alone_is_cancelled(place: ServerHome, feeds: Changefeeds) -> None:
    """A changefeed whose source is the database: it can be loaded again, and a load that is done is not cancelled."""
    with Upstream(place.upstream.cluster) as sql:
        address = f"mysql://root:@127.0.0.1:{sql.ports['n1']}/?enable-tls=false"
        with resting(feeds) as cancelling:
            feeds.create(replace(place.wish("one"), start_ts=0, source_uri=address), "ann")
            until(lambda: (run := feeds.get(ONE).progress) and run.load and run.ddls)
            cancelling.set()
            feeds.cancel_load(ONE, "dan")
            until(lambda: feeds.get(ONE).state == "stopped" and feeds.get(ONE).error)
        assert feeds.get(ONE).error.code == "CDC:ErrLoadCancelled"
        feeds.start_load(ONE, "", (), "ann")
        until(lambda: feeds.get(ONE).state == "finished")
        with pytest.raises(UpdateRefused, match="no load"):
            feeds.cancel_load(ONE, "dan")


def test_a_cancellation_outlives_its_server(place: ServerHome) -> None:
    """A server that dies between a cancellation and the run that carries it out leaves that to the next one."""
    server = place.server()
    until(lambda: server.changefeeds.is_owner)
    feeds = server.changefeeds

    with Upstream(place.upstream.cluster) as sql:
        address = f"mysql://root:@127.0.0.1:{sql.ports['n1']}/?enable-tls=false"
        with resting(feeds, more={"server/resume": _die}):
            feeds.create(replace(place.wish("one"), start_ts=0, source_uri=address), "")
            until(lambda: (run := feeds.get(ONE).progress) and run.load and run.ddls)
            with suppress(Crash):
                feeds.cancel_load(ONE, "")
            server.stop()
        again = place.server()
        until(lambda: again.changefeeds.is_owner)
        again.changefeeds.resume(ONE, "")
        until(lambda: again.changefeeds.get(ONE).state in {"stopped", "finished"})
        error = again.changefeeds.get(ONE).error
        again.stop()

    assert error is not None
    assert error.code == "CDC:ErrLoadCancelled"


def test_a_name_is_free_again(place: ServerHome, feeds: Changefeeds) -> None:
    """A changefeed made after another of its name was removed begins anew, not at the checkpoint of that one."""
    end = place.work()
    feeds.create(place.wish("one"), "")
    until(lambda: feeds.get(ONE).checkpoint_ts >= end)
    feeds.remove(ONE, "")
    first = place.got("one")
    feeds.create(place.wish("one"), "")
    until(lambda: feeds.get(ONE).checkpoint_ts >= end)

    assert place.got("one") > first


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"sink_uri": ""}, UriInvalid),
        ({"sink_uri": "mongo://h/x"}, UriInvalid),
        ({"start_ts": 1 << 62}, ApiParamInvalid),
        ({"start_ts": 9, "target_ts": 9}, TargetBelowStart),
        ({"config": {"filter": {"rules": ["a.b.c.["]}}}, ConfigError),
        ({"config": {"no-such-key": 1}}, ConfigError),
        ({"sink_uri": "callback://tests.nowhere/nothing"}, TidegateError),
    ],
)
def test_what_cannot_be_made(place: ServerHome, feeds: Changefeeds, change: dict[str, object], error: type) -> None:
    """What is wrong is told, and leaves nothing behind."""
    with pytest.raises(error):
        feeds.create(replace(place.wish("one"), **change), "")  # type: ignore[arg-type]

    assert feeds.listed() == []
    assert feeds.operations()[0].result == "failed"


def test_verbs_in_states(place: ServerHome, feeds: Changefeeds) -> None:
    """Each verb acts where TiCDC's does, and says what is missing elsewhere."""
    for verb in (feeds.get, lambda one: feeds.pause(one, ""), lambda one: feeds.resume(one, "")):
        with pytest.raises(ChangefeedMissing):
            verb(ONE)
    feeds.create(place.wish("one"), "")
    with pytest.raises(ChangefeedExists):
        feeds.create(place.wish("one"), "")
    with pytest.raises(UpdateRefused):
        feeds.update(ONE, FeedChange(target_ts=5), "")
    assert feeds.resume(ONE, "").state == "normal"
    feeds.pause(ONE, "")
    assert feeds.pause(ONE, "").state == "stopped"
    with pytest.raises(UpdateRefused):
        feeds.update(ONE, FeedChange(), "")
    with pytest.raises(ConfigError):
        feeds.update(ONE, FeedChange(config={"filter": {"rules": ["["]}}), "")
    changed = feeds.update(ONE, FeedChange(config={"filter": {"rules": ["test.*"]}}), "")
    assert changed.record.config == {"filter": {"rules": ["test.*"]}}
    with pytest.raises(ApiParamInvalid):
        feeds.resume(ONE, "", 1 << 62)


def test_a_target_is_reached(place: ServerHome, feeds: Changefeeds) -> None:
    """A changefeed with a target ends there as finished, and resumes to finish again."""
    end = place.work()
    feeds.create(place.wish("one", target_ts=end), "")
    until(lambda: feeds.get(ONE).state == "finished")
    assert feeds.get(ONE).checkpoint_ts == end

    feeds.resume(ONE, "")
    until(lambda: feeds.get(ONE).state == "finished")


def test_a_checkpoint_is_overwritten(place: ServerHome, feeds: Changefeeds) -> None:
    """A changefeed that resumes at an older ts brings what lies behind that once more."""
    middle = place.work()
    end = place.work()
    feeds.create(place.wish("one"), "")
    until(lambda: feeds.get(ONE).checkpoint_ts >= end)
    feeds.pause(ONE, "")
    once = place.got("one")
    feeds.resume(ONE, "", middle)
    until(lambda: feeds.get(ONE).checkpoint_ts >= end)

    assert place.got("one") > once


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_one_that_fails_harms_no_other(place: ServerHome, feeds: Changefeeds, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changefeed whose sink always refuses is failed with its error, one with a defect too; others go on."""
    refuses = "callback://tests.server.sinks/refusing"
    monkeypatch.setattr(running, "Changefeed", Broken)
    feeds.create(replace(place.wish("refuses"), sink_uri=refuses), "")
    feeds.create(place.wish("breaks"), "")
    feeds.create(place.wish("one"), "")
    end = place.work()
    until(lambda: feeds.get(ONE).checkpoint_ts >= end)

    for name, word in (("refuses", "no room"), ("breaks", "ZeroDivisionError")):
        until(lambda name=name: feeds.get(FeedId("default", name)).state == "failed", name)
        error = feeds.get(FeedId("default", name)).error
        assert error is not None
        assert word in error.message
    assert feeds.get(ONE).state == "normal"


class Broken(Changefeed):
    """A changefeed with a defect, if it is called so."""

    def run(self, *given: Any, **more: Any) -> Progress:
        """Run, or break."""
        assert self.config.name != "breaks" or 1 // 0
        return super().run(*given, **more)


def test_what_may_pass_is_waited_out(place: ServerHome, feeds: Changefeeds, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changefeed that another process runs is a warning with its next try, and normal once that process has ended."""
    monkeypatch.setattr(running.RetryPolicy, "pause_s", lambda *_, **__: 0.05)
    monkeypatch.setattr(checkpoints, "LOCK_WAIT_S", 0.05)
    feeds.create(place.wish("one"), "")
    feeds.pause(ONE, "")
    with locked(place.home / "data" / "state" / "default" / "one.lock", timeout_s=1):
        feeds.resume(ONE, "")
        until(lambda: feeds.get(ONE).state in {"warning", "failed"})
        shown = feeds.get(ONE)

    assert shown.state == "warning", shown.error
    assert shown.error is not None
    assert shown.error.next_try_s is not None
    until(lambda: feeds.get(ONE).state == "normal")


@pytest.mark.parametrize(
    ("at", "verb", "left"),
    [
        ("server/create", "create", None),
        ("server/created", "create", "normal"),
        ("server/pause", "pause", "normal"),
        ("server/resume", "resume", "stopped"),
        ("server/remove", "remove", "normal"),
        ("server/forgot-checkpoint", "remove", "removed"),
    ],
)
def test_dying_amid_a_verb(place: ServerHome, at: str, verb: str, left: str | None) -> None:
    """A verb that dies at any place is done or not done for the next owner, and the changefeed is whole."""
    server = place.server()
    until(lambda: server.changefeeds.is_owner)
    feeds = server.changefeeds
    if verb != "create":
        feeds.create(place.wish("one"), "")
    if verb == "resume":
        feeds.pause(ONE, "")
    act = {
        "create": lambda: feeds.create(place.wish("one"), ""),
        "pause": lambda: feeds.pause(ONE, ""),
        "resume": lambda: feeds.resume(ONE, ""),
        "remove": lambda: feeds.remove(ONE, ""),
    }
    with armed({at: _die}), suppress(Crash):
        act[verb]()
    server.stop()
    again = place.server()
    until(lambda: again.changefeeds.is_owner)
    end = place.work()

    found = {view.id: view for view in again.changefeeds.listed()}
    assert [(str(one), view.state) for one, view in found.items()] == (
        [] if left in {None, "removed"} else [("default/one", left)]
    )
    if left == "normal":
        until(lambda: again.changefeeds.get(ONE).checkpoint_ts >= end)
    again.stop()


def _die() -> None:
    raise Crash


def test_what_cannot_be_read_is_left_alone(place: ServerHome) -> None:
    """A record that is none is told and left alone, one whose source is gone has failed and can be removed; the others
    run."""
    server = place.server()
    until(lambda: server.changefeeds.is_owner)
    server.changefeeds.create(place.wish("one"), "")
    other = place.home / "other"
    other.mkdir()
    server.changefeeds.create(place.wish("gone", source_uri=f"tidb://{other}"), "")
    server._documents.write("feeds/default/odd.json", b"no record")
    server.stop()
    other.rmdir()
    again = place.server()
    until(lambda: again.changefeeds.is_owner and len(again.changefeeds.listed()) == 2)

    until(lambda: again.changefeeds.get(FeedId("default", "gone")).state == "failed")
    gone = again.changefeeds.get(FeedId("default", "gone"))
    assert gone.error is not None
    assert "is not a directory" in gone.error.message
    end = place.work()
    until(lambda: again.changefeeds.get(ONE).checkpoint_ts >= end)
    again.changefeeds.remove(FeedId("default", "gone"), "")
    assert [view.id for view in again.changefeeds.listed()] == [ONE]
    again.stop()


def test_a_sink_that_hangs(place: ServerHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go on, and requests about it are answered."""
    monkeypatch.setattr(changefeeds, "STOP_S", 0.2)
    server = place.server()
    until(lambda: server.changefeeds.is_owner)
    hung = FeedId("default", "hung")
    server.changefeeds.create(NewFeed(hung, "callback://tests.server.sinks/hanging", start_ts=1), "")
    server.changefeeds.create(place.wish("one"), "")
    for _ in range(3):
        end = place.work()
        until(lambda end=end: server.changefeeds.get(ONE).checkpoint_ts >= end)  # type: ignore[misc]
    assert server.changefeeds.get(hung).checkpoint_ts < end
    server.changefeeds.pause(hung, "")
    assert {view.id: view.state for view in server.changefeeds.listed()} == {hung: "stopped", ONE: "normal"}


def test_a_quota_from_before(place: ServerHome) -> None:
    """A changefeed of a release that took any memory-quota goes on without it."""
    server = place.server()
    until(lambda: server.changefeeds.is_owner)
    server.changefeeds.create(place.wish("one"), "")
    server.stop()
    (document,) = [server._documents.read(name) for name in server._documents.names("feeds/")]
    record = msgspec.json.decode(document.body)
    record["config"] = {"memory-quota": 1 << 29}
    server._documents.write(ONE.document, msgspec.json.encode(record), document.version)
    again = place.server()
    until(lambda: again.changefeeds.is_owner)
    end = place.work()
    until(lambda: again.changefeeds.get(ONE).checkpoint_ts >= end)
    assert "memory-quota" not in again.changefeeds.get(ONE).record.config
    again.stop()
