"""The recorded shop in a REST catalog of somebody else's, through all of its DDLs."""

import logging
from pathlib import Path

import pytest

from tests.readers import Readers
from tests.replay.iceberg import rows_of
from tests.replay.stage import Stage, moments, partitions_of
from tests.sink.delta.iceberg.rest_server import serving
from tidegate.app.verify import load_truth
from tidegate.lakes.lake import Lake
from tidegate.sink.delta.iceberg.foreign import RestCatalog
from tidegate.sink.delta.iceberg.rest import COMMIT, REGISTER, TRANSACTION, RestClient
from tidegate.sink.delta.options import DeltaOptions

pytestmark = pytest.mark.slow
WORKLOAD = Path(__file__).parents[1] / "data" / "workload"
TRUTHS = load_truth(WORKLOAD)


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
        found = {"type": "rest", "uri": there.uri}
        for _ in moments(stage, TRUTHS):
            lake = Lake(str(tmp_path))
            tables = sorted(map(str, lake.tables()))
            assert readers.names("pyiceberg", found) == tables
            for name, seen in zip(tables, readers.tables("pyiceberg", found, tables), strict=True):
                told = lake.arrow(name)
                assert seen.column_names == told.column_names, name
                assert rows_of(seen) == rows_of(told), name

    assert "catalog http" not in caplog.text
    assert there.calls.count(COMMIT if without else TRANSACTION) > 10
    assert set(without).isdisjoint(there.calls)
