"""A message that nobody can read on its way from topic to topic: `tidegate dlq` at the feed's place of its own."""

import base64
import json
from pathlib import Path

import pytest

from tests.e2e.rig import Topic, cli, moment_ts, recorded
from tests.e2e.test_poison import JUNK, last_insert, letters
from tests.e2e.test_transcode import held, target, told_of, upto
from tidegate.engine.checkpoints import DirectoryCheckpoints

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]

MOMENT = 2


def words(source: str, sink: str, state: Path, moment: int = MOMENT) -> list[str]:
    """The words of a feed named `way` from topic to topic."""
    uris = ["--source-uri", source, "--sink-uri", sink]
    return ["run", *uris, "-c", "way", "--state-dir", str(state), "--until", str(moment_ts(moment))]


def arrived(bootstrap: str, name: str, kind: str) -> set[str]:
    """Rows and DDLs of a topic up to MOMENT."""
    return {told_of(e) for events in held(bootstrap, name, kind).values() for e in upto(events, moment_ts(MOMENT))}


def test_halt_then_skip_and_replay(bootstrap: str, tmp_path: Path) -> None:
    """The feed ends at each bad message with words that lead to the right place, and goes on as a person decided."""
    partitions = [list(messages) for messages in recorded("open", MOMENT)]
    calm = Topic.fed(bootstrap, "way-calm", "open", partitions)
    junk_at, torn_at = len(partitions[1]) // 2, len(partitions[2]) // 3
    partitions[1].insert(junk_at, (b"junk", JUNK))
    key, right = partitions[2][torn_at]
    partitions[2][torn_at] = key, right[:-1]
    topic = Topic.fed(bootstrap, "way-halt", "open", partitions)
    junk, torn = f"{topic.name}/1/{junk_at}", f"{topic.name}/2/{torn_at}"
    line, place = words(topic.uri(), target(bootstrap, "way-halted", "canal"), tmp_path / "state"), "state/way"
    (tmp_path / "right").write_bytes(right)

    halted = cli(*line)
    [told] = [json.loads(each) for each in cli("status", str(tmp_path / "state"), "--json").stdout.splitlines()]

    assert halted.exit_code == 1
    for part in ("CDC:ErrPoisonMessage", junk, f"tidegate dlq show {tmp_path / place} --at {junk}"):
        assert part in halted.stderr
    assert (told["state"], told["error"]["code"]) == ("failed", "CDC:ErrPoisonMessage")
    assert (told["error"]["topic"], told["error"]["partition"], told["error"]["offset"]) == (topic.name, 1, junk_at)
    found = {(one["state"], one["partition"], one["offset"]) for one in letters(tmp_path / place)}
    assert found == {("halted", 1, junk_at), ("halted", 2, torn_at)}
    shown = json.loads(cli("dlq", "show", str(tmp_path / place), "--at", junk, "--json").stdout)
    assert base64.b64decode(shown["value_b64"]) == JUNK

    skipped = cli("dlq", "skip", str(tmp_path / place), "--at", junk)
    still = cli(*line)
    replayed = cli("dlq", "replay", str(tmp_path / place), "--at", torn, "--value-file", str(tmp_path / "right"))
    done = cli(*line)

    assert (skipped.exit_code, still.exit_code) == (0, 1)
    assert torn in still.stderr
    assert junk not in still.stderr
    assert (replayed.exit_code, done.exit_code) == (0, 0), replayed.stderr + done.stderr
    assert arrived(bootstrap, "way-halted", "canal") == arrived(bootstrap, calm.name, "open")
    assert [(one["state"], one["offset"]) for one in letters(tmp_path / place)] == [("dead", junk_at)]


@pytest.mark.parametrize("in_time", [True, False], ids=["in-time", "late"])
def test_replay_of_what_was_left_out(bootstrap: str, tmp_path: Path, *, in_time: bool) -> None:
    """A letter's row above the checkpoint still arrives by replay; one below it is refused, with the way out, and so is
    a replay beside the running feed."""
    first, last = moment_ts(1), moment_ts(MOMENT)
    partitions = [list(messages) for messages in recorded("canal", MOMENT)]
    calm = Topic.fed(bootstrap, f"left-calm-{in_time}", "canal", partitions)
    at = last_insert(partitions[2], *((first, last) if in_time else (0, first)))
    (tmp_path / "right").write_bytes(partitions[2][at][1])
    partitions[2][at] = b"", JUNK
    topic = Topic.fed(bootstrap, f"left-out-{in_time}", "canal", partitions)
    state, sink = tmp_path / "state", target(bootstrap, f"left-to-{in_time}", "open")
    source = topic.uri(dead_letter="skip")
    replay = ["dlq", "replay", str(state / "way"), "--at", f"{topic.name}/2/{at}", "--value-file"]

    begun = cli(*words(source, sink, state, moment=1))
    with DirectoryCheckpoints(state, "way").run_lock():
        beside = cli(*replay, str(tmp_path / "right"))
    replayed = cli(*replay, str(tmp_path / "right"))
    done = cli(*words(source, sink, state))

    assert (begun.exit_code, beside.exit_code, done.exit_code) == (0, 1, 0), begun.stderr + done.stderr
    assert "way.lock" in beside.stderr
    missing = arrived(bootstrap, calm.name, "canal") - arrived(bootstrap, f"left-to-{in_time}", "open")
    if in_time:
        assert replayed.exit_code == 0, replayed.stderr
        assert not missing
        assert letters(state / "way") == []
        return
    assert replayed.exit_code == 1
    assert f"checkpoint {first}" in replayed.stderr
    assert "Update the row upstream" in replayed.stderr
    assert len(missing) == 1


def test_a_place_without_a_changelog(tmp_path: Path) -> None:
    """The state directory itself is no place: the words say what is."""
    (tmp_path / "way").mkdir()
    listed = cli("dlq", "list", str(tmp_path))
    assert listed.exit_code == 1
    assert "STATE-DIR/CHANGEFEED" in listed.stderr
