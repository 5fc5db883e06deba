"""Every source into every sink ends equal to what the database held, however often the feed is killed on its way."""

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_sql_sink import emptied, tidb
from tests.contract.test_sql_sink import server as mysql
from tests.counts import some
from tests.e2e.pairs import DATABASES, SINKS, SOURCES, Pair, World, recorded_world, seeded_world
from tests.e2e.rig import EXTENSION, LAST, Topic, running
from tests.e2e.rig import recorded as partitions
from tests.failpoint import armed
from tests.mariadb import Server
from tidegate.config.changefeed import Changefeed

__all__ = ["mysql", "tidb"]

ROOT = Path(__file__).parents[2]
SEEDS = (11, 12, 13)
EVERY = [(source, sink) for source in SOURCES for sink in SINKS]
BY_CHANGEFEED = {
    *(("canal", "kafka-open"), ("tidb", "kafka-canal"), ("open", "callback"), ("tidb", "files")),
    *(("open", "replica"), ("canal", "changelog"), ("tidb", "history"), ("files", "mysql")),
}
"""Pairs whose feed of the API is run: each source, each sink and each protocol on both sides."""
BEHIND = {("canal", "kafka-open"), ("tidb", "kafka-canal"), ("open", "callback"), ("tidb", "files")}
"""Those of them that `make test-more` runs."""
BY_COMMAND = {("open", "kafka-canal")}
"""The pair whose command is killed in `make test`; tests/kill and test_delta.py kill those into lakes."""
MOMENT = some(6, LAST)
"""How far the shop is told: far enough for every kind of DDL but the last few."""
DEEDS = ("round/planned=kill", "round/applied=kill", "")[some(1, 0) :]


def ways(tested: Collection[tuple[str, str]]) -> list[Any]:
    """Every pair: these in `make test` or behind it, the others in the soak."""
    marks = [pytest.mark.slow, pytest.mark.more]
    return [
        pytest.param(way, marks=marks[: 1 + (way in BEHIND)] if way in tested else pytest.mark.soak, id="-".join(way))
        for way in EVERY
    ]


class Killed(BaseException):
    """Ends a run as SIGKILL would: nothing in the code is there to catch it."""


@pytest.fixture(scope="module")
def recorded(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The recorded shop."""
    topics = {kind: Topic.fed(bootstrap, f"pairs-{kind}", kind, partitions(kind, MOMENT)) for kind in EXTENSION}
    return recorded_world(topics, tmp_path_factory.mktemp("recorded"), MOMENT)


@pytest.fixture(scope="module", params=[pytest.param(seed, marks=pytest.mark.soak) for seed in SEEDS])
def seeded(
    request: pytest.FixtureRequest, spark: Any, bootstrap: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """A life of the embedded TiDB."""
    return seeded_world(request.param, bootstrap, tmp_path_factory.mktemp("seeded"))


@pytest.fixture
def paired(
    request: pytest.FixtureRequest, way: tuple[str, str], bootstrap: str, tmp_path: Path
) -> Callable[[World], Pair]:
    """The pair of a world, its database, if it has one, empty."""
    server: Server | None = None
    if way[1] in DATABASES:
        server = request.getfixturevalue(way[1])
        emptied(server)
    return lambda world: Pair(world, *way, bootstrap, tmp_path, server)


def killed_at(places: dict[str, int]) -> Any:
    """What ends the run when a place was passed so often."""

    def passing(place: str) -> None:
        places[place] -= 1
        if not places[place]:
            raise Killed(place)

    return armed({place: (lambda place=place: passing(place)) for place in places})


def live(pair: Pair, spark: Any) -> None:
    """A feed that is killed between a round and its checkpoint, and one that goes on."""
    feed = Changefeed(pair.source_uri, pair.sink_uri, name="pair", state_dir=pair.state_dir)
    with killed_at({"round/applied": 1}), pytest.raises(Killed):
        feed.run(spark, until=pair.world.end_ts)
    again = Changefeed(pair.source_uri, pair.sink_uri, name="pair", state_dir=pair.state_dir)
    done = again.run(spark, until=pair.world.end_ts)

    assert (done.state, done.error) == ("finished", None)
    assert (done.checkpoint_ts or 0) >= pair.world.end_ts


@pytest.mark.parametrize("way", ways(BY_CHANGEFEED))
def test_changefeed(paired: Callable[[World], Pair], recorded: World, spark: Any) -> None:
    """The recorded shop through `tidegate.Changefeed`, killed between a round and its checkpoint."""
    pair = paired(recorded)
    live(pair, spark)

    assert pair.differences() == []


@pytest.mark.slow
@pytest.mark.parametrize("way", EVERY, ids="-".join)
def test_seeded(paired: Callable[[World], Pair], seeded: World, spark: Any) -> None:
    """A seeded life through `tidegate.Changefeed`, killed between a round and its checkpoint."""
    pair = paired(seeded)
    live(pair, spark)

    assert pair.differences() == []


@pytest.mark.parametrize("way", ways(BY_COMMAND))
def test_run(paired: Callable[[World], Pair], recorded: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded shop through `tidegate run`, whose process gets SIGKILL behind a round, in the soak also before."""
    pair = paired(recorded)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    statuses = []
    for number, deed in enumerate(DEEDS):
        monkeypatch.setenv("TIDEGATE_FAILPOINTS", deed)
        with running([*pair.words(), "-c", "pair"], tmp_path / f"life-{number}") as run:
            run.unread()
            statuses.append(run.process.wait(300))

    assert statuses == [-9] * (len(DEEDS) - 1) + [0]
    assert pair.differences() == []
