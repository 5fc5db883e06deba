"""Messages that landed and do not fit their table: put aside, skipped, replayed, and gone once they are decided."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.replay.hostile import TABLES, Topic, differences, topic
from tests.replay.hostile_kinds import written
from tests.replay.stage import Stage
from tidegate.cli.main import main
from tidegate.engine.change import EventPosition
from tidegate.lakes.lake import Lake
from tidegate.model.errors import ConfigError, SchemaError, SqlError, UnsupportedError
from tidegate.model.event import Ddl, Resolved
from tidegate.source.kafka_replay import Bytes, find, listed, opened_changelog, replay, skip

pytestmark = pytest.mark.slow

UNFIT, DDL = "value_that_is_no_time", "unreadable_ddl"


def begun(root: Path, given: Topic, **how: bool) -> Stage:
    """A life of the feed with everything landed."""
    stage = Stage(root, given.protocol, {0: given.messages}, **how)
    while stage.land(1_000):
        pass
    return stage


def states(lake: Path, checkpoint_ts: int = 0) -> list[tuple[int, str]]:
    """What `dlq list` would show."""
    return [(letter.position.offset, state) for letter, state in listed(opened_changelog(str(lake)), checkpoint_ts)]


def test_replay_with_bytes_that_do_not_fit_either(tmp_path: Path) -> None:
    """The feed halts there again, and skipping still leads on; then the letter is what was replayed."""
    given = topic("canal-json", 1, 3, [UNFIT])
    ((offset, ((_, right), row)),) = given.right.items()
    place, lake = EventPosition("shop", 0, offset), str(tmp_path)
    with pytest.raises(SchemaError, match=f"dlq skip {lake} --at shop/0/{offset}"):
        begun(tmp_path, given).round()
    assert states(tmp_path) == [(offset, "refused")]

    with pytest.raises(ConfigError, match="replace its bytes"):
        replay(lake, place, Bytes(), checkpoint_ts=0)
    replay(lake, place, Bytes(value=right.replace(b"2026-01", b"someday")), checkpoint_ts=0)
    assert states(tmp_path) == []
    with pytest.raises(SchemaError, match="someday"):
        begun(tmp_path, given).round()
    assert states(tmp_path) == [(offset, "refused")]
    skip(lake, place, checkpoint_ts=0)
    assert states(tmp_path) == [(offset, "dead")]
    with pytest.raises(ConfigError, match="already skipped"):
        skip(lake, place, checkpoint_ts=0)

    assert begun(tmp_path, given).round() == given.ts
    assert differences(Lake(lake), given) == {}
    with pytest.raises(UnsupportedError, match="at or below the changefeed's checkpoint"):
        replay(lake, place, Bytes(value=right), checkpoint_ts=given.ts)
    given.truth[TABLES[0]].append(row)
    assert differences(Lake(lake), given) != {}


def test_replay_of_what_was_put_aside(tmp_path: Path) -> None:
    """A letter that is replayed in time with bytes that do not fit is a letter again; with the right ones, a row."""
    given = topic("canal-json", 1, 3, [UNFIT])
    ((offset, ((_, right), row)),) = given.right.items()
    place, lake = EventPosition("shop", 0, offset), str(tmp_path)
    stage = begun(tmp_path, given, skips_dead=True)
    assert stage.engine.round(None), "the message is put aside"
    assert states(tmp_path) == [(offset, "dead")]

    replay(lake, place, Bytes(value=right.replace(b"2026-01", b"someday")), checkpoint_ts=0)
    assert states(tmp_path) == []
    assert stage.engine.round(None), "it is put aside again"
    assert states(tmp_path) == [(offset, "dead")]
    letter, _ = find(opened_changelog(lake), place, 0)
    assert letter.raw_value == given.messages[offset].value, "the topic's bytes are kept"

    replay(lake, place, Bytes(value=right), checkpoint_ts=0)
    assert stage.round() == given.ts
    given.truth[TABLES[0]].append(row)
    assert differences(Lake(lake), given) == {}
    assert states(tmp_path) == []


@pytest.mark.parametrize("skips", [True, False])
def test_a_ddl_goes_with_its_repeats(tmp_path: Path, *, skips: bool) -> None:
    """Each partition has the DDL that nobody can read; it is one letter, and nobody meets it again."""
    given = topic("open-protocol", 1, 3, [DDL])
    ((offset, _),) = given.right.items()
    other = Topic("open-protocol", "none")
    other.put((given.messages[offset].key, given.messages[offset].value or b""))
    other.tell(Resolved(given.ts))

    def life() -> Stage:
        partitions = {0: given.messages, 1: other.messages}
        stage = Stage(tmp_path, "open-protocol", partitions, skips_dead=skips)
        while stage.land(1_000):
            pass
        return stage

    if not skips:
        with pytest.raises(SqlError, match="dlq skip"):
            life().round()
        skip(str(tmp_path), EventPosition("shop", 0, offset), checkpoint_ts=0)
    assert life().round() == given.ts
    assert states(tmp_path) == [(offset, "dead")]
    assert differences(Lake(str(tmp_path)), given) == {}


def test_replay_of_a_ddl(tmp_path: Path) -> None:
    """The right text comes in the place of the one that nobody can read."""
    given = topic("canal-json", 1, 3, [DDL])
    ((offset, _),) = given.right.items()
    with pytest.raises(SqlError):
        begun(tmp_path, given).round()
    ddl = Ddl(schema="s", table="t", query="ALTER TABLE t ADD COLUMN z INT", type=5, commit_ts=given.ts)
    _, value = written("canal-json", ddl)
    done = replay(str(tmp_path), EventPosition("shop", 0, offset), Bytes(value=value), checkpoint_ts=0)
    assert (done.rows, done.ddls) == (0, 1)
    assert begun(tmp_path, given).round() == given.ts
    assert "z" in Lake(str(tmp_path)).arrow("s.t").column_names


@pytest.mark.parametrize("skips", [True, False])
def test_no_table_is_parked_for_a_message(tmp_path: Path, *, skips: bool) -> None:
    """With table-error=park what a message holds is still dead-letter's to decide, and its table goes on."""
    given = topic("canal-json", 1, 3, [UNFIT])
    (offset,) = given.bad
    if not skips:
        with pytest.raises(SchemaError, match="dlq skip"):
            begun(tmp_path, given, parks=True).round()
        result = CliRunner().invoke(main, ["dlq", "skip", str(tmp_path), "--at", f"shop/0/{offset}"])
        assert result.exit_code == 0, result.output
    stage = begun(tmp_path, given, parks=True, skips_dead=skips)
    assert stage.round() == given.ts
    assert stage.sink.parked() == ()
    assert states(tmp_path) == [(offset, "dead")]
    assert differences(Lake(str(tmp_path)), given) == {}
