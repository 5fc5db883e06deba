"""A message in the middle of a topic that nobody can read: left out, halted at, skipped, replaced."""

import base64
import json
from pathlib import Path

import pytest

from tests.e2e.rig import Topic, cli, differences, feed, moment_ts, recorded
from tidegate.changelog.changelog import Changelog, changelog_uri
from tidegate_upstream.demo.recorded import Frame

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]

MOMENT = 3
JUNK = b'{"id":0,"database":"shop","table":"orders","type":"INS\xff\x00'


def letters(lake: Path) -> list[dict[str, object]]:
    listed = cli("dlq", "list", str(lake), "--json")
    assert listed.exit_code == 0, listed.stderr
    found: list[dict[str, object]] = json.loads(listed.stdout)
    return found


def test_skip(bootstrap: str, tmp_path: Path) -> None:
    """Under dead-letter=skip everything else arrives, and the letter is kept with its place, reason and bytes."""
    lake = tmp_path / "lake"
    partitions = [list(messages) for messages in recorded("canal", MOMENT)]
    at = len(partitions[1]) // 2
    partitions[1].insert(at, (b"", JUNK))
    topic = Topic.fed(bootstrap, "poison-skip", "canal", partitions)

    done = cli(*feed(topic.uri(dead_letter="skip"), lake, "--json", moment=MOMENT))

    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["dead_letters"] == 1
    assert differences(lake) == {}
    (letter,) = letters(lake)
    assert (letter["state"], letter["topic"], letter["partition"], letter["offset"]) == ("dead", topic.name, 1, at)
    assert letter["reason"]
    assert base64.b64decode(str(letter["value_b64"])) == JUNK


def last_insert(messages: list[Frame], after: int, upto: int) -> int:
    """The offset of the last INSERT with after < commit_ts <= upto."""
    events = enumerate(json.loads(value) for _, value in messages)
    return max(at for at, one in events if one["type"] == "INSERT" and after < one["_tidb"]["commitTs"] <= upto)


@pytest.mark.parametrize("in_time", [True, False], ids=["in-time", "late"])
def test_replay_of_what_was_left_out(bootstrap: str, tmp_path: Path, *, in_time: bool) -> None:
    """A letter's row above the checkpoint still arrives by replay; one below it is refused, with the way out."""
    lake, right = tmp_path / "lake", tmp_path / "right"
    first, last = moment_ts(1), moment_ts(2)
    partitions = [list(messages) for messages in recorded("canal", 2)]
    at = last_insert(partitions[2], *((first, last) if in_time else (0, first)))
    right.write_bytes(partitions[2][at][1])
    partitions[2][at] = b"", JUNK
    topic = Topic.fed(bootstrap, f"poison-replay-{in_time}", "canal", partitions)
    source = topic.uri(dead_letter="skip")

    begun = cli(*feed(source, lake, moment=1))
    replayed = cli("dlq", "replay", str(lake), "--at", f"{topic.name}/2/{at}", "--value-file", str(right))
    done = cli(*feed(source, lake, moment=2))

    assert (begun.exit_code, done.exit_code) == (0, 0)
    if in_time:
        assert replayed.exit_code == 0, replayed.stderr
        assert differences(lake) == {}
        assert letters(lake) == []
        return
    assert replayed.exit_code == 1
    assert f"checkpoint {first}" in replayed.stderr
    assert "Update the row upstream" in replayed.stderr
    assert sum(differences(lake, "--at", "1").values()) > 0, "verify sees the row that is missing"


def test_halt_then_skip_and_replay(bootstrap: str, tmp_path: Path) -> None:
    """Under halt the feed stands before each bad message, names it, and goes on once a person decided about it."""
    lake = tmp_path / "lake"
    partitions = [list(messages) for messages in recorded("open", MOMENT)]
    junk_at, torn_at = len(partitions[1]) // 2, len(partitions[2]) // 3
    partitions[1].insert(junk_at, (b"junk", JUNK))
    key, right = partitions[2][torn_at]
    partitions[2][torn_at] = key, right[:-1]
    topic = Topic.fed(bootstrap, "poison-halt", "open", partitions)
    junk, torn = f"{topic.name}/1/{junk_at}", f"{topic.name}/2/{torn_at}"
    words = feed(topic.uri(), lake, moment=MOMENT)
    (tmp_path / "right").write_bytes(right)

    halted = cli(*words)
    positions = {number: one.offset for number, one in opened(lake).positions()[topic.name].items()}

    assert halted.exit_code == 1
    assert "CDC:ErrPoisonMessage" in halted.stderr
    assert junk in halted.stderr
    assert positions == {0: len(partitions[0]), 1: junk_at, 2: torn_at}, "everything before has landed"
    assert {(letter["state"], letter["partition"], letter["offset"]) for letter in letters(lake)} == {
        ("halted", 1, junk_at),
        ("halted", 2, torn_at),
    }

    assert cli("dlq", "skip", str(lake), "--at", junk).exit_code == 0
    still = cli(*words)

    assert still.exit_code == 1
    assert torn in still.stderr
    assert junk not in still.stderr

    wrong = cli("dlq", "replay", str(lake), "--at", torn)
    replayed = cli("dlq", "replay", str(lake), "--at", torn, "--value-file", str(tmp_path / "right"))
    done = cli(*words)

    assert wrong.exit_code == 1, "the bytes are still torn"
    assert replayed.exit_code == 0, replayed.stderr
    assert done.exit_code == 0, done.stderr
    assert differences(lake) == {}
    assert [(letter["state"], letter["offset"]) for letter in letters(lake)] == [("dead", junk_at)]


def opened(lake: Path) -> Changelog:
    changelog = Changelog(changelog_uri(str(lake)))
    assert changelog.refresh()
    return changelog
