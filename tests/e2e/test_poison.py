"""A message in the middle of a topic that nobody can read: left out, halted at, skipped, replaced."""

import base64
import json
from pathlib import Path

import pytest

from tests.e2e.rig import Topic, cli, differences, feed, moment_ts, recorded
from tidegate.source.kafka.changelog import Changelog, changelog_uri

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


def test_late_replay_is_refused(bootstrap: str, tmp_path: Path) -> None:
    """A row that a letter held cannot be slipped in below a published checkpoint; the refusal names the way out."""
    lake = tmp_path / "lake"
    partitions = [list(messages) for messages in recorded("canal", 1)]
    at = max(at for at, (_, value) in enumerate(partitions[2]) if b'"type":"INSERT"' in value)
    right = partitions[2][at][1]
    partitions[2][at] = b"", JUNK
    topic = Topic.fed(bootstrap, "poison-late", "canal", partitions)
    assert cli(*feed(topic.uri(dead_letter="skip"), lake, moment=1)).exit_code == 0
    (tmp_path / "right").write_bytes(right)

    refused = cli("dlq", "replay", str(lake), "--at", f"{topic.name}/2/{at}", "--value-file", str(tmp_path / "right"))

    assert refused.exit_code == 1
    assert f"checkpoint {moment_ts(1)}" in refused.stderr
    assert "UPDATE" in refused.stderr
    assert sum(differences(lake).values()) == 1, "verify sees the row that is missing"


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
