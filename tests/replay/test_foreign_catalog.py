"""The recorded shop in a REST catalog of somebody else's, through all of its DDLs."""

import logging
import random
from pathlib import Path
from typing import Any

import pytest

from tests.readers import Readers
from tests.replay.iceberg import rows_of
from tests.replay.stage import Crash, Stage, moments, partitions_of
from tests.sink.delta.iceberg.rest_server import RestTables, serving
from tests.sink.delta.tended import Tended
from tidegate.lakes.lake import Lake
from tidegate.sink.delta.iceberg_catalogs import COMMIT, REGISTER, TRANSACTION, RestCatalog, RestClient
from tidegate.sink.delta.options import DeltaOptions
from tidegate.verify.local import load_truth

pytestmark = pytest.mark.slow
WORKLOAD = Path(__file__).parents[1] / "data" / "workload"
TRUTHS = load_truth(WORKLOAD)
ASK = RestClient.ask


def equal(root: Path, there: RestTables, readers: Readers) -> bool:
    """Whether PyIceberg finds the tables of the lake in the catalog, with the lake's columns and rows."""
    lake, found = Lake(str(root)), {"type": "rest", "uri": there.uri}
    tables = sorted(map(str, lake.tables()))
    assert readers.names("pyiceberg", found) == tables
    for name, seen in zip(tables, readers.tables("pyiceberg", found, tables), strict=True):
        told = lake.arrow(name)
        assert seen.column_names == told.column_names, name
        assert rows_of(seen) == rows_of(told), name
    return True


@pytest.mark.parametrize(
    "without",
    [
        pytest.param((), id="all at once"),
        pytest.param((TRANSACTION, REGISTER), id="table by table", marks=pytest.mark.soak),
    ],
)
def test_the_shop(tmp_path: Path, readers: Readers, caplog: pytest.LogCaptureFixture, without: tuple[str, ...]) -> None:
    """At each truth PyIceberg finds exactly the lake's tables in the catalog, with the lake's columns and rows."""
    caplog.set_level(logging.INFO)
    with serving() as there:
        there.without = set(without)
        names = RestCatalog(DeltaOptions(root=str(tmp_path), feed="f"), RestClient(there.uri))
        messages = partitions_of(WORKLOAD / "open")
        stage = Stage(tmp_path, "open-protocol", messages, seed=2, iceberg=True, catalogs=[names])
        stage.sink.upkeep(stage.engine.tasks, None, lambda: True)
        for _ in moments(stage, TRUTHS):
            assert equal(tmp_path, there, readers)

    assert "catalog http" not in caplog.text
    assert there.calls.count(COMMIT if without else TRANSACTION) > 10
    assert set(without).isdisjoint(there.calls)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
def test_killed_again_and_again(tmp_path: Path, readers: Readers, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Killed at random places, requests to the catalog among them, with upkeep that has no mercy, the feed ends with
    the lake's tables in the catalog, and the files that the catalog wrote stay."""
    chance, messages, lives, calm = random.Random(seed), partitions_of(WORKLOAD / "open"), 0, False

    def crash(_place: str) -> None:
        if not calm and chance.random() < 0.04:
            raise Crash

    def ask(*args: Any, **more: Any) -> Any:
        crash("before a request")
        found = ASK(*args, **more)
        crash("after it")
        return found

    monkeypatch.setattr(RestClient, "ask", ask)
    with serving() as there:
        while True:
            lives += 1
            names = RestCatalog(DeltaOptions(root=str(tmp_path), feed="f"), RestClient(there.uri))
            more: dict[str, Any] = {"iceberg": True, "catalogs": [names]}
            stage = Tended(tmp_path, "open-protocol", messages, seed=seed * 1000 + lives, **more)
            stage.crash = crash
            try:
                stage.sink.upkeep(stage.engine.tasks, None, lambda: True)
                land = True
                while stage.sink.snapshot.checkpoint.ts < TRUTHS[-1].ts:
                    if land:
                        land = stage.land(chance.choice([300, 3000]))
                    stage.round(TRUTHS[-1].ts)
                calm = True
                stage.sink.upkeep(stage.engine.tasks, None, lambda: True)
                stage.tend()
                break
            except Crash:
                continue
        assert lives > 5
        assert equal(tmp_path, there, readers)
        assert [place for place in there.files.values() if not Path(place.removeprefix("file://")).exists()] == []
