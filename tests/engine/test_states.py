"""What a feed says of itself: its state, the error in its way with its place, and that nothing was skipped."""

import json
import os
import re
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tests.failpoint import armed
from tests.promises import keep_promises, resolved, without_repeats
from tests.source.tidb.kit import Broker, changes, failing, feed, recorded_log, target, write_log
from tidegate.cli.main import main
from tidegate.engine import retry_policy
from tidegate.engine.progress import Progress, line
from tidegate.model.errors import (
    EnvironmentFault,
    KvDecodeError,
    MessageTooLarge,
    SourceError,
    TidegateError,
)
from tidegate.objectstore import local_files
from tidegate.source.tidb_log import LogPart
from tidegate.source.tidb_segment import SegmentLog
from tidegate.testing.validators import rows

pytestmark = pytest.mark.slow


def tries(seen: Sequence[Progress]) -> list[Progress]:
    """The first report of each try of an outage."""
    waiting = (each for each in seen if each.state == "warning" and each.error is not None)
    return [next(told) for _, told in groupby(waiting, key=lambda each: each.error)]


def status(state: Path, *more: str) -> dict[str, object]:
    """What `tidegate status` says of the feed."""
    result = CliRunner().invoke(main, ["status", "--state-dir", str(state), "--json", *more])
    assert result.exit_code == 0, result.stderr
    [found] = [json.loads(each) for each in result.stdout.splitlines()]
    return found


def calm(log: Path, directory: Path, protocol: str = "open-protocol") -> Broker:
    """What an untroubled feed writes."""
    broker = Broker()
    feed(log, target(broker, protocol), directory / "calm").run(idle_s=0)
    return broker


def same(broker: Broker, expected: Broker) -> None:
    """Nothing is missing or new, whatever was sent twice."""
    found = broker.events("open-protocol")
    for where, events in expected.events("open-protocol").items():
        assert without_repeats(found[where]) == without_repeats(events)


def test_an_outage_is_a_warning_until_it_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every try tells code, since when, how many and when the next is; then the state is normal, the error gone."""
    monkeypatch.setattr(retry_policy, "QUICK_S", 1.0)
    log, broker = recorded_log(tmp_path / "log", "types", 3), Broker()
    expected = calm(log, tmp_path)
    broker.refuse = failing((20, 21, 22))
    one = feed(log, target(broker, "open-protocol"), tmp_path / "state")
    one.run(idle_s=0)

    seen = one.reports
    warnings = tries(seen)
    errors = [each.error for each in warnings if each.error is not None]
    assert [(error.code, error.tries, error.next_try_s) for error in errors] == [
        ("CDC:ErrSink", 1, 1.0),
        ("CDC:ErrSink", 2, 2.0),
        ("CDC:ErrSink", 3, 4.0),
    ]
    assert len({error.since for error in errors}) == len({each.since for each in warnings}) == 1
    after = next(each for each in seen[seen.index(warnings[-1]) :] if each.state != "warning")
    assert (after.state, after.error) == ("normal", None)
    assert seen[-1].state == "stopped"
    text = line(warnings[0])
    assert text.startswith("warning  ")
    assert "  checkpoint 20" in text
    assert f"CDC:ErrSink since {errors[0].since}: the broker is away (next try in 1 s)" in text
    same(broker, expected)


def test_a_row_that_is_too_large_fails_the_feed_and_arrives_later(tmp_path: Path) -> None:
    """Failed, with code, table and timestamp, in the last report and afterwards; with room for the row the feed takes
    up its checkpoint, and the row is there."""
    log, broker = recorded_log(tmp_path / "log", "types", 6), Broker()
    expected = calm(log, tmp_path)
    one = feed(log, target(broker, "open-protocol", max_message_bytes="9000"), tmp_path / "state")
    with pytest.raises(MessageTooLarge):
        one.run(idle_s=0)

    told, kept = one.reports[-1], status(tmp_path / "state")
    assert told.error is not None
    assert (told.state, told.error.code, told.error.next_try_s) == ("failed", "CDC:ErrMessageTooLarge", None)
    large = {(f"{row.schema}.{row.table}", row.commit_ts) for row in _rows(expected)}
    assert (told.error.table, told.error.commit_ts) in large
    assert told.checkpoint_ts < told.error.commit_ts
    assert (kept["state"], kept["running"], kept["checkpoint_ts"]) == ("failed", False, told.checkpoint_ts)
    assert kept["error"] == msgspec.to_builtins(told.error)
    assert all(
        ts < told.error.commit_ts for events in broker.events("open-protocol").values() for ts in resolved(events)
    )

    again = feed(log, target(broker, "open-protocol"), tmp_path / "state").run(idle_s=0)
    assert (again.resumed, again.error) == (True, None)
    assert (told.error.table, told.error.commit_ts) in {
        (f"{row.schema}.{row.table}", row.commit_ts) for row in _rows(broker)
    }
    same(broker, expected)
    after = status(tmp_path / "state", "-c", "feed")
    assert (after["state"], after["checkpoint_ts"], "error" in after) == ("stopped", again.checkpoint_ts, False)


def _rows(broker: Broker):  # rows of any kind
    return [row for events in broker.events("open-protocol").values() for row in rows(events)]


def test_a_damaged_row_fails_the_feed_by_its_table(tmp_path: Path) -> None:
    """The bytes say no table; the error does, by the key. When the log is repaired the feed goes on, with the row."""
    found = changes("types")
    number = next(n for n in range(len(found) - 1, 0, -1) if found[n].key[9:11] == b"_r" and found[n].value)
    row = found[number]
    damaged = [*found]
    damaged[number] = type(row)(row.type, row.key, row.start_ts, row.commit_ts, row.op, b"\x80\x00\x01", row.old_value)
    log, broker = write_log(tmp_path / "log", damaged, (found[number // 2].commit_ts,)), Broker()
    with pytest.raises(KvDecodeError):
        feed(log, target(broker, "open-protocol"), tmp_path / "state").run(idle_s=0)

    kept = status(tmp_path / "state")
    error = kept["error"]
    assert isinstance(error, dict)
    assert (kept["state"], error["code"], error["commit_ts"]) == ("failed", "CDC:ErrDecodeRowToDatum", row.commit_ts)
    assert str(error["table"]).startswith("gt.t_")
    assert 0 < int(str(kept["checkpoint_ts"])) < row.commit_ts

    whole = write_log(tmp_path / "whole", found, (found[number // 2].commit_ts,))
    for path in whole.iterdir():
        (log / path.name).write_bytes(path.read_bytes())
    feed(log, target(broker, "open-protocol"), tmp_path / "state").run(idle_s=0)
    same(broker, calm(whole, tmp_path))


class Flaky(SegmentLog):
    """A log that cannot be read at some calls."""

    call = 0

    def parts(self, low: int, high: int | None = None) -> Sequence[LogPart]:
        """Those of the log, but now and then."""
        Flaky.call += 1
        if Flaky.call in {4, 5}:
            raise SourceError("the log cannot be read")
        return SegmentLog.parts(self, low, high)


def test_a_log_that_cannot_be_read_now(tmp_path: Path) -> None:
    """It is a warning until it can be read, though there is nothing new in it."""
    log, broker = recorded_log(tmp_path / "log", "types", 3), Broker()
    feed(log, target(broker, "open-protocol"), tmp_path / "state").run(idle_s=0)
    one = feed(log, target(broker, "open-protocol"), tmp_path / "state", open=Flaky)
    one.run(idle_s=0)

    states = [state for state, _ in groupby(one.reports, key=lambda each: each.state)]
    assert states == ["pending", "normal", "warning", "normal", "stopped"]
    errors = [each.error for each in tries(one.reports)]
    assert [(error.code, error.tries) for error in errors if error] == [("CDC:ErrSource", 1), ("CDC:ErrSource", 2)]


def full(patch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A disk without room for the checkpoint, and how to make room."""
    opened = local_files.private

    def full_for_checkpoints(path: str, flags: int) -> int:
        checkpoint = re.search(r"/state/\.feed\.(json|schema)", str(path))
        return os.open("/dev/full", os.O_WRONLY) if checkpoint else opened(path, flags)

    patch.setattr(local_files, "private", full_for_checkpoints)
    return lambda: patch.setattr(local_files, "private", opened)


def test_a_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint that finds no room is a warning that names its file; with room the same stretch advances, and no
    row is sent twice."""
    log, broker = recorded_log(tmp_path / "log", "types", 3), Broker()
    expected, free = calm(log, tmp_path), full(monkeypatch)
    one = feed(log, target(broker, "open-protocol"), tmp_path / "state")
    made = []

    def show(progress: Progress) -> None:
        if progress.error is not None and progress.error.tries == 2 and not made:
            made.append(free())

    one.show = show
    done = one.run(idle_s=0)

    [first, second] = [each.error for each in tries(one.reports)]
    assert first is not None
    assert second is not None
    assert first.code == "CDC:ErrMetaOpFailed"
    assert "feed.json cannot be written: No space left on device" in first.message
    keep_promises(broker.events("open-protocol"), "open-protocol")
    assert (done.state, done.error, len(made)) == ("stopped", None, 1)
    assert broker.messages == expected.messages


def test_a_disk_that_stays_full_fails_the_feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When patience is over the state is failed; the next run sends the rows again and goes on."""
    log, broker = recorded_log(tmp_path / "log", "types", 3), Broker()
    free = full(monkeypatch)
    with pytest.raises(TidegateError, match="No space left"):
        feed(log, target(broker, "open-protocol"), tmp_path / "state").run(idle_s=0)
    kept = status(tmp_path / "state")
    assert (kept["state"], kept["checkpoint_ts"]) == ("failed", 0)
    free()
    feed(log, target(broker, "open-protocol"), tmp_path / "state").run(idle_s=0)

    same(broker, calm(log, tmp_path))


def test_a_report_that_cannot_be_kept_stops_nothing(tmp_path: Path) -> None:
    """The state is a report; the checkpoint is what counts."""
    log, broker = recorded_log(tmp_path / "log", "types", 3), Broker()
    (tmp_path / "state" / "feed.state.json").mkdir(parents=True)
    done = feed(log, target(broker, "open-protocol"), tmp_path / "state").run(idle_s=0)

    assert done.error is None
    assert status(tmp_path / "state")["checkpoint_ts"] == done.checkpoint_ts
    assert broker.messages == calm(log, tmp_path).messages


def test_a_state_dir_that_is_none(tmp_path: Path) -> None:
    """A file in its place, or one where the lock should be, is told before anything is sent."""
    log, broker = recorded_log(tmp_path / "log", "types", 3), Broker()
    (tmp_path / "file").write_text("")
    (tmp_path / "state" / "feed.lock").mkdir(parents=True)
    for state in ("file", "state"):
        with pytest.raises(EnvironmentFault, match="cannot be"):
            feed(log, target(broker, "open-protocol"), tmp_path / state).run(idle_s=0)
    assert not broker.messages


def test_a_feed_that_is_killed_has_stopped(tmp_path: Path) -> None:
    """While it runs it says so; once it is dead its last words do not count as a state."""
    log = recorded_log(tmp_path / "log", "types", 3)
    one, found = feed(log, target(Broker(), "open-protocol"), tmp_path / "state"), []

    class Killed(BaseException):
        pass

    def die() -> None:
        found.append(status(tmp_path / "state"))
        raise Killed

    with armed({"topic/ddl-sent": die}), pytest.raises(Killed):
        one.run(idle_s=0)

    assert (found[0]["state"], found[0]["running"]) == ("normal", True)
    after = status(tmp_path / "state")
    assert (after["state"], after["running"]) == ("stopped", False)


def test_the_end_of_a_feed_is_a_state(tmp_path: Path) -> None:
    """Finished at its target, stopped when it is told to; the command says it in words as well."""
    log, target_ts = recorded_log(tmp_path / "log", "types", 3), changes("types")[-1].commit_ts
    feed(log, target(Broker(), "open-protocol"), tmp_path / "state", target_ts=target_ts).run()
    result = CliRunner().invoke(main, ["status", "--state-dir", str(tmp_path / "state")])

    assert status(tmp_path / "state")["state"] == "finished"
    assert result.stdout.startswith("feed: finished since 2")
    assert f"checkpoint {target_ts} (20" in result.stdout
    unknown = CliRunner().invoke(main, ["status", "--state-dir", str(tmp_path / "state"), "-c", "other"])
    assert (unknown.exit_code, "knows no changefeed" in unknown.stderr) == (1, True)
    nowhere = CliRunner().invoke(main, ["status", "--state-dir", str(tmp_path / "nowhere")])
    assert (nowhere.exit_code, "cannot be read" in nowhere.stderr) == (1, True)


NO_INDEX = ({"matcher": ["gt.t_int"], "partition": "index-value", "index": "nothing"},)


@pytest.mark.parametrize(
    ("stream", "given", "code", "table", "timed"),
    [
        ("types", (NO_INDEX, ("*.*",)), "CDC:ErrDispatcherFailed", "gt.t_int", False),
        ("rename_swap", ((), ("gs.s1",)), "CDC:ErrSyncRenameTableFailed", "gs.s2", True),
    ],
)
def test_places(
    tmp_path: Path,
    stream: str,
    given: tuple[Sequence[object], Sequence[str]],
    code: str,
    table: str,
    *,
    timed: bool,
) -> None:
    """Where an error happened, as far as it is known: the table no rule fits, the ts of a DDL that cannot be
    followed."""
    dispatchers, rules = given
    made = target(Broker(), "open-protocol", dispatchers)
    one = feed(recorded_log(tmp_path / "log", stream), made, tmp_path / "state", rules=rules)
    with pytest.raises(TidegateError) as told:
        one.run(idle_s=0)

    error = one.reports[-1].error
    assert error is not None
    assert (error.code, error.table, error.message) == (code, table, str(told.value))
    assert (error.commit_ts > one.checkpoint) == timed
