"""Second chances: resolutions for a feed that stands, replays for letters that were left out."""

import base64
import json

import pytest
from click.testing import CliRunner

from tests.source.kit import TOPIC, begin, insert, land_batch, open_message, resolved
from tidegate.changelog.changelog import Changelog, changelog_uri
from tidegate.cli.dlq import dlq
from tidegate.engine.change import EventPosition
from tidegate.model.errors import ConfigError, DecodeError, UnsupportedError
from tidegate.model.table import TableName
from tidegate.source.kafka_messages import Resolution, TopicMessage, parse_position, record, recorded
from tidegate.source.kafka_replay import Bytes, replay, skip

PLACE = EventPosition(TOPIC, 0, 1)
FIXED = open_message(1, insert(7, 9))
GOOD = Bytes(FIXED.key, FIXED.value)


@pytest.fixture
def lake(tmp_path):
    return str(tmp_path / "lake")


def land(lake: str, *, skip_dead: bool = False):
    messages = [open_message(0, insert(5, 1), resolved(5)), TopicMessage(1, b"k", b"v"), open_message(2, resolved(8))]
    uri = changelog_uri(lake)
    return land_batch(uri, begin(uri), {0: messages}, skip_dead=skip_dead)


def go_on(lake: str):
    uri = changelog_uri(lake)
    state = begin(uri)
    mine = {place.offset: one for place, one in recorded(lake).items()}
    rest = [TopicMessage(1, b"k", b"v"), open_message(2, resolved(8))]
    return land_batch(uri, state, {0: rest[state.positions[TOPIC][0].offset - 1 :]}, resolutions=mine)


def read(lake: str) -> Changelog:
    changelog = Changelog(changelog_uri(lake))
    changelog.refresh()
    return changelog


def test_skip_lets_a_halted_feed_pass(lake):
    """After `skip` the feed goes on, the message is a dead letter, and no halt is left."""
    land(lake)
    skip(lake, PLACE)
    state = go_on(lake)

    assert (state.frontier, state.halted) == (8, ())
    assert [letter.position for letter in read(lake).dead_letters()] == [PLACE]


def test_replay_gives_a_halted_feed_other_bytes(lake):
    """After `replay` with good bytes the feed lands those in the message's place."""
    land(lake)
    done = replay(lake, PLACE, GOOD, checkpoint_ts=0)
    go_on(lake)
    rows = read(lake).slice(0, 99).read(TableName("shop", "orders"))

    assert done.resolution == f"_tidegate/resolutions/{TOPIC}-0-1.json"
    assert rows.column("offset").to_pylist() == [0, 1]
    assert read(lake).dead_letters() == []


def test_bytes_that_are_no_better_are_refused(lake):
    """A replay is tried before it is recorded; what still cannot be read changes nothing."""
    land(lake)

    with pytest.raises(DecodeError, match="still cannot be landed"):
        replay(lake, PLACE, Bytes(), checkpoint_ts=0)
    assert recorded(lake) == {}


def test_a_skipped_letter_is_appended(lake):
    """A letter left out earlier lands in a commit of its own and is a dead letter no more."""
    land(lake, skip_dead=True)
    done = replay(lake, PLACE, GOOD, checkpoint_ts=6)
    changelog = read(lake)

    assert (done.rows, done.resolution) == (1, None)
    assert changelog.slice(6, 99).read(TableName("shop", "orders")).column("after").to_pylist() == [[b"9", b"n9"]]
    assert changelog.dead_letters() == []
    assert changelog.frontier() == 8
    with pytest.raises(ConfigError, match="neither a dead letter"):
        replay(lake, PLACE, GOOD, checkpoint_ts=6)


def test_a_letter_that_comes_too_late_is_refused(lake):
    """What the lake has passed cannot be added to it; the text says which row, and what to do instead."""
    land(lake, skip_dead=True)

    with pytest.raises(UnsupportedError, match=r"shop\.orders at ts 7 .* checkpoint 7.*Update"):
        replay(lake, PLACE, GOOD, checkpoint_ts=7)
    assert len(read(lake).dead_letters()) == 1


def test_places_that_are_fine_are_refused(lake):
    """Only a dead letter or the place of a halt can be decided about."""
    land(lake)

    with pytest.raises(ConfigError, match="neither a dead letter"):
        skip(lake, EventPosition(TOPIC, 0, 0))


@pytest.mark.parametrize("text", ["", "a", "a/1", "a/1/x", "a/-1/2", "/1/2", "a/1/2/x"])
def test_places_are_read_strictly(text):
    """A place is TOPIC/PARTITION/OFFSET and nothing else."""
    with pytest.raises(ConfigError, match="TOPIC/PARTITION/OFFSET"):
        parse_position(text)


def test_places_of_files():
    """Of files, the topic is a directory."""
    assert parse_position("shop/t/1/2026-08-20/0/4294967299") == EventPosition("shop/t/1/2026-08-20", 0, 4294967299)


def test_resolutions_come_back(lake):
    """A resolution is read as it was recorded, under a name that no topic can turn into a path."""
    one = Resolution(topic="a/../b", partition=1, offset=2, action="replace", options={"compression": "lz4"})
    path = record(lake, one)

    assert path == "_tidegate/resolutions/a_.._b-1-2.json"
    assert recorded(lake) == {one.position: one}


@pytest.mark.parametrize("body", ["{", '{"topic":"a"}', '{"topic":"a","partition":0,"offset":1,"action":"drop"}'])
def test_broken_resolutions_are_named(lake, body, tmp_path):
    """A resolution file that cannot be followed stops the start of a feed with its path."""
    folder = tmp_path / "lake" / "_tidegate" / "resolutions"
    folder.mkdir(parents=True)
    (folder / "a-0-1.json").write_text(body)

    with pytest.raises(ConfigError, match=r"a-0-1\.json"):
        recorded(lake)


def test_list_show_skip_by_command(lake):
    """The commands show the halted message with its bytes and record what is decided."""
    land(lake)
    run = CliRunner()

    listed = json.loads(run.invoke(dlq, ["list", lake, "--json"]).output)
    shown = run.invoke(dlq, ["show", lake, "--at", f"{TOPIC}/0/1"]).output
    skipped = run.invoke(dlq, ["skip", lake, "--at", f"{TOPIC}/0/1"])

    assert [(one["state"], one["offset"], base64.b64decode(one["value_b64"])) for one in listed] == [
        ("halted", 1, b"v")
    ]
    assert "value: 1 bytes" in shown
    assert skipped.exit_code == 0
    assert recorded(lake)[PLACE].action == "skip"


def test_replay_by_command(lake, tmp_path):
    """`dlq replay` takes bytes from files and appends what was skipped."""
    land(lake, skip_dead=True)
    (tmp_path / "k").write_bytes(FIXED.key or b"")
    (tmp_path / "v").write_bytes(FIXED.value or b"")
    words = ["replay", lake, "--at", f"{TOPIC}/0/1", "--key-file", str(tmp_path / "k")]

    done = CliRunner().invoke(dlq, [*words, "--value-file", str(tmp_path / "v")])

    assert "1 rows" in done.output
    assert "no dead letters" in CliRunner().invoke(dlq, ["list", lake]).output
