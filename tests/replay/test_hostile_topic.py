"""Topics with messages of every kind that nobody should send: what is good arrives, what is bad is told."""

import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.counts import SOAK, some
from tests.fuzz.mutation import mutated
from tests.replay.hostile import TABLES, Topic, claim_files, differences, kinds_of, topic
from tests.replay.hostile_kinds import KINDS
from tests.replay.stage import Stage
from tests.replay.test_streams import VARIANTS, recorded
from tidegate.app.cli.main import main
from tidegate.codec.options import DecodeOptions
from tidegate.lakes.lake import Lake
from tidegate.model.errors import TidegateError
from tidegate.source.kafka.message import TopicMessage


def staged(root: Path, claims: str, given: Topic, seed: int, *, skip: bool) -> Stage:
    """A life of a feed of the topic."""
    stage = Stage(root, given.protocol, {0: given.messages}, seed, skips_dead=skip)
    stage.decode = DecodeOptions(protocol=given.protocol, compression=given.compression, claim_check_storage_uri=claims)
    return stage


@pytest.mark.parametrize(
    ("protocol", "compression"),
    [("open-protocol", "none"), ("canal-json", "none"), pytest.param("canal-json", "lz4", marks=pytest.mark.slow)],
)
def test_skip(tmp_path: Path, protocol: str, compression: str) -> None:
    """Under dead-letter=skip every good row arrives, and every bad message is a dead letter with its reason."""
    given = topic(protocol, some(200, 2_000), 17, compression=compression)
    claims = claim_files(tmp_path / "claims")
    for life, end in enumerate((given.ts // 2, given.ts)):
        stage = staged(tmp_path / "lake", claims, given, life, skip=True)
        checkpoint, more = 0, True
        while checkpoint < end:
            assert more or checkpoint, stage.landing.exception()
            more = more and stage.land(300)
            checkpoint = stage.round(end)

    stage.log.refresh()
    letters = {letter.place.offset: letter for letter in stage.log.dead_letters()}
    assert {at: given.bad.get(at) for at in letters} == given.bad
    for at, letter in letters.items():
        assert letter.error_code in KINDS[given.bad[at]].codes, (given.bad[at], letter.error)
        assert letter.error
        assert (letter.raw_key, letter.raw_value) == given.messages[at][1:]
    assert differences(Lake(str(tmp_path / "lake")), given) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "first"), [("open-protocol", 0), ("canal-json", 1)])
def test_halt(tmp_path: Path, protocol: str, first: int) -> None:
    """Under dead-letter=halt each bad message ends the feed once: the error names it and what to type, and after
    `dlq skip`, or `dlq replay` with the right bytes, the feed goes on."""
    names = kinds_of(protocol) if SOAK else kinds_of(protocol)[first::3]
    given = topic(protocol, some(1, 4) * len(names) + 1, 18, names)
    claims, lake = claim_files(tmp_path / "claims"), tmp_path / "lake"
    met: list[int] = []
    while True:
        stage = staged(lake, claims, given, len(met), skip=False)
        error = ended(stage, given.ts)
        if error is None:
            break
        at = f"{error.where.topic}/{error.where.partition}/{error.where.offset}"
        offset = int(at.rpartition("/")[2])
        assert f"tidegate dlq skip {lake} --at {at}" in str(error)
        assert offset not in met, error
        assert at in typed("list", str(lake))
        assert at.rpartition("/")[2] in typed("show", str(lake), "--at", at)
        met.append(offset)
        if len(met) % 2:
            typed("skip", str(lake), "--at", at)
        else:
            (key, value), row = given.right[offset]
            (tmp_path / "key").write_bytes(key or b"")
            (tmp_path / "value").write_bytes(value)
            keyed = ["--key-file", str(tmp_path / "key")] if key else []
            typed("replay", str(lake), "--at", at, "--value-file", str(tmp_path / "value"), *keyed)
            given.truth[TABLES[0]].append(row)

    assert sorted(met) == sorted(given.bad)
    assert differences(Lake(str(lake)), given) == {}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(some(4, 200)))
def test_damaged_recordings(tmp_path: Path, seed: int) -> None:
    """Whatever becomes of some messages of a recording, the others are applied to its end, and the lake can be read."""
    chance = random.Random(seed)
    variant = chance.choice(sorted(VARIANTS))
    _, messages = recorded(chance.choice(["ddl", "interleave", "partition", "rename_swap", "types"]), variant)
    given = [damaged(one, chance) if chance.random() < 0.08 else one for one in messages[:200]]
    given[-1] = messages[199 if len(messages) > 199 else -1]
    stage = Stage(tmp_path, VARIANTS[variant], {0: given}, seed, skips_dead=True)
    while stage.land(100):
        stage.round()
    assert stage.landing.exception() is None
    stage.round()

    lake = Lake(str(tmp_path))
    assert lake.snapshot.checkpoint.ts == stage.log.frontier()
    for name in lake.tables():
        lake.arrow(name)


def damaged(message: TopicMessage, chance: random.Random) -> TopicMessage:
    """A message with a value that was changed at random, mostly behind its length."""
    value, head = message.value or b"", 8 if (message.value or b"")[:1] == b"\0" and chance.random() < 0.8 else 0
    body = mutated(value[head:], chance)
    return message._replace(value=len(body).to_bytes(8, "big") + body if head else body)


def ended(stage: Stage, ts: int) -> TidegateError | None:
    """The error that ends a life of the feed; None once it has reached `ts`."""
    more = True
    while True:
        more = more and stage.land(300)
        try:
            if stage.round(ts) == ts:
                return None
        except TidegateError as error:
            return error
        if not more:
            return stage.landing.exception()


def typed(*words: str) -> str:
    """What `tidegate dlq` prints, which must go well."""
    result = CliRunner().invoke(main, ["dlq", *words])
    assert result.exit_code == 0, result.output
    return result.output
