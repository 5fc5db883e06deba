"""Topics with messages of every kind that nobody should send: what is good arrives, what is bad is told."""

import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.counts import SOAK, some
from tests.fuzz.mutation import mutated
from tests.recorded import RecordedLanding
from tests.replay.hostile import TABLES, Topic, claim_files, differences, kinds_of, topic
from tests.replay.hostile_kinds import DDL, KINDS
from tests.replay.stage import Stage
from tests.replay.test_streams import VARIANTS, recorded
from tests.sink.kafka.topics import Feed
from tidegate.changelog.source import LandedSource
from tidegate.cli.main import main
from tidegate.codec.options import DecodeOptions
from tidegate.engine.ports import LocalTasks, Tasks
from tidegate.lakes.lake import Lake
from tidegate.model.errors import TidegateError
from tidegate.model.event import Insert
from tidegate.source.kafka_messages import TopicMessage
from tidegate.testing.script import run_here

pytestmark = pytest.mark.slow


def staged(root: Path, claims: str, given: Topic, seed: int, *, skip: bool) -> Stage:
    """A life of a feed of the topic."""
    stage = Stage(root, given.protocol, {0: given.messages}, seed, skips_dead=skip)
    stage.decode = DecodeOptions(protocol=given.protocol, compression=given.compression, claim_check_storage_uri=claims)
    return stage


@pytest.mark.parametrize(
    ("protocol", "compression"),
    [
        ("open-protocol", "none"),
        ("canal-json", "none"),
        pytest.param("canal-json", "lz4", marks=[pytest.mark.slow, pytest.mark.more]),
    ],
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
    letters = {letter.position.offset: letter for letter in stage.log.dead_letters()}
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
    given = topic(protocol, some(1, 2) * len(names) + 1, 18, names)
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


class Landed(RecordedLanding):
    """A landing that lands all that there is when it starts."""

    def start(self, tasks: Tasks) -> None:
        """Land it."""
        super().start(tasks)
        while not self.idle():
            self.land(300)


@pytest.mark.parametrize(("protocol", "into"), [("open-protocol", "canal-json"), ("canal-json", "open-protocol")])
def test_into_a_topic(tmp_path: Path, protocol: str, into: str) -> None:
    """On the way to a topic every good row arrives too; what does not fit a lake is handed on as it came, but a DDL
    that the other protocol cannot say is a dead letter."""
    given = topic(protocol, some(100, 1_000), 21)
    options = DecodeOptions(protocol=protocol, claim_check_storage_uri=claim_files(tmp_path / "claims"))
    uri, topics = str(tmp_path / "changelog"), Feed(into)
    source = LandedSource(lambda: Landed(uri, "feed", options, {0: given.messages}, skip_dead=True), uri)

    done = run_here(source, topics.sink(), tasks=LocalTasks(pickles=False))

    letters = {letter.position.offset: letter for letter in source.changelog.dead_letters()}
    lost = {at for at, name in given.bad.items() if DDL in KINDS[name].codes and protocol == "canal-json"}
    fits = {at for at, name in given.bad.items() if KINDS[name].in_lakes_alone} - lost
    assert set(letters) == set(given.bad) - fits
    assert all(letters[at].error_code == "CDC:ErrEncodeFailed" for at in lost)
    assert done.dead_letters == len(letters)
    sent = [event for held in topics.events().values() for event in held if isinstance(event, Insert)]
    found = {
        (event.schema, event.table, dict(zip(names_of(event), event.after, strict=True)).get("id")) for event in sent
    }
    assert found >= {(*name, row[0]) for name, rows in given.truth.items() for row in rows}


def names_of(row: Insert) -> list[str]:
    """The names of a row's columns."""
    return [column.name for column in row.fields]


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
