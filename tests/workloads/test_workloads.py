"""Seeded workloads: a database lives, a changefeed follows it through everything that goes wrong, a lake is the same.

                                 seeds of `Workload`                        seeds of `Real`
upstream, log, regions           the embedded TiDB; owners crash, nodes     the same
                                 die and lag, regions split and move
topics                           a real broker                              a real broker, killed and restarted
producer, encoder, loop          the product's                              the product's
tasks                            in this process, one after the other;      Spark's
                                 executors die, tasks outlive drivers
death of the driver              an exception at a failpoint                SIGKILL, of workers too
lake                             the product's landing and merging,         `tidegate run` with Spark
                                 without Spark

TIDEGATE_SEED=17 pytest -m "" tests/workloads/test_workloads.py       one seed again
make test 5 seeds and 1 real one     make test-more 5     make soak 200 in chunks of 20, and 12 real ones
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.upstream.worlds import seeds
from tests.workloads.setting import draw_setting
from tests.workloads.workload import Workload
from tidegate.engine import dispatch as route
from tidegate.engine.loop import Engine
from tidegate.engine.plan import Round
from tidegate.engine.ports import Changes, Saved, SinkPosition
from tidegate.model.errors import SinkError
from tidegate.model.event import Resolved
from tidegate.sink.kafka import KafkaSink
from tidegate.sink.kafka_topics import ClaimFiles, ControlWriter
from tidegate.testing.validators import event_text

pytestmark = pytest.mark.slow

SEEDS, CHUNK, HALF = 200, 20, 5
FIRED = (
    *("rows", "ddls", "moments", "broker", "executor", "straggler", "split", "merge", "leader", "writer"),
    *(f"driver at topic/{place}" for place in ("rows-queued", "rows-written", "ddl-sent", "resolved-sent", "advanced")),
    *("owner", "time", "kill", "revive", "freeze", "cancel", "gc", "committed", "died PREWRITTEN", "cut", "keyless"),
    *(f"job synced {action}" for action in (3, 4, 5, 6, 7, 8, 11, 12, 14, 20, 23, 42, 61, 64)),
)
"""What has to have happened in soak's seeds: faults of every kind, DDL of every family, rows cut and without a
key. In a chunk a fifth of it may be missing."""
OFTEN, EXCHANGE = 15, "job synced 42"
"""How often at least, in all seeds; but EXCHANGE PARTITION, which needs a table whose rows all fit, once."""
LIVED: dict[int, Counter[str]] = {}
"""What fired in each seed that came to its end in this process."""


def lived(seed: int, bootstrap: str, home: Path) -> Workload:
    """A workload that came to its end; an error says which seed, how to run it again, and what happened last."""
    work = Workload(seed, bootstrap, home / str(seed))
    again = f"seed {seed} (TIDEGATE_SEED={seed} pytest -m '' tests/workloads/test_workloads.py -k seeds)"
    try:
        work.run()
    except Exception as error:
        story = "\n".join(work.story.trace[-12:])
        raise AssertionError(f"{again}: {draw_setting(seed)}: {error}\n{story}") from error
    assert not work.problems, f"{again}: {draw_setting(seed)}: {len(work.problems)}: {work.problems[:3]}"
    LIVED[seed] = work.fired
    return work


@pytest.mark.parametrize("first", [0, pytest.param(HALF, marks=pytest.mark.soak)])
def test_ten_seeds(first: int, bootstrap: str, tmp_path: Path) -> None:
    """What arrives keeps every promise, and the lake is the database at every moment that is looked at."""
    chosen = seeds(first + HALF)[first:] or seeds(1)
    fired = sum((lived(seed, bootstrap, tmp_path).fired for seed in chosen), Counter[str]())

    wanted = ("moments", "broker", "executor", "split", "writer", "owner", "kill", "freeze", "cut", "keyless")
    assert fired["rows"]
    assert len(chosen) == 1 or not [what for what in wanted if not fired[what]]


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_two_hundred_seeds(first: int, bootstrap: str, tmp_path: Path) -> None:
    """The full count; together they have met every kind of fault. A chosen seed is run in its chunk only."""
    chosen = seeds(SEEDS)
    numbers = range(max(first, chosen.start), min(first + CHUNK, chosen.stop))
    fired = sum((lived(seed, bootstrap, tmp_path).fired for seed in numbers), Counter[str]())

    missing = [what for what in FIRED if not fired[what]]
    assert len(numbers) < CHUNK or len(missing) <= len(FIRED) // 5, missing


@pytest.mark.soak
def test_the_two_hundred_have_met_everything() -> None:
    """Of all seeds together nothing is missing, and nothing is rare."""
    if len(LIVED) < SEEDS:
        pytest.skip("not all chunks have run before")
    fired = sum(LIVED.values(), Counter[str]())

    rare = {what: fired[what] for what in FIRED if fired[what] < OFTEN}
    assert rare.keys() <= {EXCHANGE}, rare
    assert fired[EXCHANGE]


@pytest.mark.more
def test_the_same_seed_is_the_same_story(bootstrap: str, tmp_path: Path) -> None:
    """Upstream, faults, and what lies in the topics follow from the seed alone."""
    once, again = (lived(6, bootstrap, tmp_path / name) for name in ("once", "again"))

    assert once.story.digest == again.story.digest
    assert once.bench.disturbed == again.bench.disturbed
    assert topics(once) == topics(again)


def topics(work: Workload) -> list[list[object]]:
    """What the partitions hold, without the moments at which it was written."""
    held = sorted(work.arrived.items())
    return [[one.ts if isinstance(one, Resolved) else event_text(one) for one in events] for _, events in held]


Plant = Callable[[pytest.MonkeyPatch], None]


def resolves_first(patch: pytest.MonkeyPatch) -> None:
    """Resolved timestamps go out before the rows that they are about."""
    write = Engine.write

    def early(engine: Engine, planned: Round, changes: Changes) -> None:
        sink = engine.sink
        with sink._connected() as writer:
            sink._control(writer).resolved(planned.checkpoint.ts, sink._active(planned.state).topics)
        write(engine, planned, changes)

    patch.setattr(Engine, "write", early)


def forgets_rows(patch: pytest.MonkeyPatch) -> None:
    """Rows that fail are taken for written."""
    run = KafkaSink.run

    def forgetful(sink: KafkaSink, *given: object) -> object:
        try:
            return run(sink, *given)  # type: ignore[arg-type]
        except SinkError:
            return []

    patch.setattr(KafkaSink, "run", forgetful)


def one_partition_of_ddls(patch: pytest.MonkeyPatch) -> None:
    """DDLs go to the first partition alone, as canal-json's do."""
    patch.setattr(ControlWriter, "ddl", lambda *_: None)


def saves_too_early(patch: pytest.MonkeyPatch) -> None:
    """The checkpoint is saved before the rows are written."""
    write = Engine.write

    def early(engine: Engine, planned: Round, changes: Changes) -> None:
        notes = {"topics": list(engine.sink._known_topics.names)}
        engine.sink._checkpoints.save(Saved(SinkPosition(planned.checkpoint, planned.state), notes))
        write(engine, planned, changes)

    patch.setattr(Engine, "write", early)


def loses_files(patch: pytest.MonkeyPatch) -> None:
    """The files of claim checks are not written."""
    patch.setattr(ClaimFiles, "put", lambda *_: None)


def forgets_the_index(patch: pytest.MonkeyPatch) -> None:
    """Rows go by their handle, whatever index a dispatcher names."""
    names = route._hashed_names
    patch.setattr(route, "_hashed_names", lambda rule, *rest: names(msgspec.structs.replace(rule, index=""), *rest))


PLANTED: dict[Plant, int] = {
    **dict.fromkeys((resolves_first, forgets_rows, one_partition_of_ddls, saves_too_early, loses_files), 0),
    forgets_the_index: 10,
}
"""Mistake -> the seed to begin with: the one that found it last time; others follow when it no longer does."""


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_some_seed_finds_a_planted_fault(
    plant: Plant, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mistakes are found by some seed of twenty."""
    plant(monkeypatch)
    for seed in (PLANTED[plant], *range(20)):
        try:
            lived(seed, bootstrap, tmp_path)
        except AssertionError:
            return
    pytest.fail("nobody saw it")
