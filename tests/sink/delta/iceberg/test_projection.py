"""Iceberg metadata of tables and lakes in the cases that a recording does not bring."""

import json
import shutil
from pathlib import Path

import pytest

from tests.failpoint import armed
from tests.sink.delta.lake import TEXT, column, options, run, table
from tests.sink.delta.lake import Rows as Changes
from tests.sink.delta.small import Small
from tidegate.engine.plan import Create, Rows
from tidegate.engine.retention import Limits
from tidegate.objectstore import deltalog
from tidegate.sink.delta.iceberg_format import SNAPSHOTS_MAX, decode_list, decode_manifest
from tidegate.sink.delta.iceberg_projection import (
    COMMITS_MAX,
    begin_projection,
    is_projected,
    metadata_uri,
    project,
    projected,
)
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import Snapshot

T = table(column(1, "id"), column(2, "v", TEXT, comment="what it is worth"), comment="things")


def here(work, jobs):
    return [work(job) for job in jobs]


def metadata(uri: str, version: int) -> dict:
    return json.loads(Path(metadata_uri(uri, version).removeprefix("file://")).read_text())


def files(uri: str, version: int) -> set[str]:
    """The live data files that the metadata of a version leads to."""
    told = metadata(uri, version)
    snapshot = next(one for one in told["snapshots"] if one["snapshot-id"] == told["current-snapshot-id"])
    listed = decode_list(Path(snapshot["manifest-list"].removeprefix("file://")).read_bytes())
    manifests = (Path(one["manifest_path"].removeprefix("file://")).read_bytes() for one in listed)
    return {one.path for body in manifests for one in decode_manifest(body) if one.status != 2}


def truth(uri: str, version: int) -> set[str]:
    return {f"file://{uri}/{file.path}" for file in deltalog.load(uri, version).files()}


def filled(lake: DeltaOptions, commits: int) -> str:
    """A table with so many commits of a row each."""
    changes = Changes()
    steps = [Create(T, 10, 1)]
    for at in range(commits):
        changes.insert(20 + at, id=at, v="x")
        steps.append(Rows(T, 19 + at, 20 + at))
    run(lake, changes, *steps)
    return lake.table_uri(T.incarnation)


def test_what_metadata_says(tmp_path: Path) -> None:
    """The key is the sort order, comments are told, no file is Iceberg's to delete, and numbers are one above Delta's
    versions."""
    uri = filled(options(tmp_path, iceberg=True), 1)
    told = metadata(uri, 1)
    assert told["current-snapshot-id"] == told["last-sequence-number"] == 2
    assert told["properties"]["gc.enabled"] == "false"
    assert told["properties"]["comment"] == "things"
    assert told["properties"]["tidegate.key"] == '["id"]'
    assert [field.get("doc") for field in told["schemas"][-1]["fields"]] == [None, "what it is worth"]
    assert [one["source-id"] for one in told["sort-orders"][-1]["fields"]] == [1]
    assert told["default-sort-order-id"] == 1
    assert files(uri, 1) == truth(uri, 1) != set()


def test_a_table_of_before(tmp_path: Path) -> None:
    """A table that was never projected is, at once, at the version that is asked for and at none else."""
    uri = filled(options(tmp_path), 5)
    project(uri, 4, T)
    assert projected(uri) == {4}
    assert files(uri, 4) == truth(uri, 4)


@pytest.mark.slow
def test_a_log_that_was_cut(tmp_path: Path) -> None:
    """Where the log between two versions is gone, or long, the table is read as a whole."""
    uri = filled(options(tmp_path, iceberg=False), COMMITS_MAX + 25)
    project(uri, 2, T)
    project(uri, COMMITS_MAX + 20, T)
    for version in range(205, 210):
        Path(uri, "_delta_log", f"{version:020d}.json").unlink(missing_ok=True)
    project(uri, COMMITS_MAX + 24, T)
    for version in (COMMITS_MAX + 20, COMMITS_MAX + 24):
        assert files(uri, version) == truth(uri, version)


def test_again_is_nothing(tmp_path: Path) -> None:
    """A projection that is there is left as it is, and what a dead attempt left is no part of it."""
    lake = options(tmp_path, iceberg=True)
    uri = filled(lake, 1)
    before = {path: path.read_bytes() for path in Path(uri, "metadata").iterdir()}
    project(uri, 1, T)
    project(uri, 1, T, since=0)
    assert all(path.read_bytes() == body for path, body in before.items())
    assert files(uri, 1) == truth(uri, 1)


def test_killed_between(tmp_path: Path) -> None:
    """A feed that dies between its commit and the projection makes it up when it comes back."""
    lake = options(tmp_path, iceberg=True)
    for place in ("iceberg/before-manifests", "iceberg/before-metadata", "iceberg/after-metadata"):
        changes = Changes()
        changes.insert(20, id=1, v="x")
        home = tmp_path / place.replace("/", "-")
        lake = options(home, iceberg=True)
        with armed({place: _die}), pytest.raises(OSError, match="dead"):
            run(lake, changes, Create(T, 10, 1), Rows(T, 10, 20))
        run(lake, changes, Create(T, 10, 1), Rows(T, 10, 20))
        uri = lake.table_uri(T.incarnation)
        assert files(uri, 1) == truth(uri, 1)


def _die() -> None:
    raise OSError("dead")


def test_a_foreign_commit_is_named_and_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What somebody else committed under the next number is not built upon: a warning names it, and ours takes its
    place."""
    lake, changes = options(tmp_path, iceberg=True), Changes()
    uri = filled(lake, 1)
    foreign = metadata(uri, 1) | {"current-snapshot-id": 99}
    Path(uri, "metadata", "v3.metadata.json").write_text(json.dumps(foreign))
    changes.insert(30, id=7, v="y")
    run(lake, changes, Rows(T, 20, 30))
    assert "v3.metadata.json is a foreign commit" in caplog.text
    assert files(uri, 2) == truth(uri, 2)


def test_a_lake_that_was_moved(tmp_path: Path) -> None:
    """Addresses are whole, so a lake that lies elsewhere is projected anew, once; a lake whose feed does without
    projection promises nothing."""
    small = Small(tmp_path / "old", Limits(), iceberg=True)
    small.ddl(10, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
    small.rows.insert(20, id=1, v="a")
    small.round(20)
    begin_projection(small.options, small.sink.snapshot, here)
    assert is_projected(small.options)
    shutil.move(tmp_path / "old", tmp_path / "new")
    moved = options(tmp_path / "new", iceberg=True)
    (incarnation, published), *_ = small.sink.snapshot.tables.items()
    assert not is_projected(moved)
    assert "/old/" in metadata(moved.table_uri(incarnation), published.version)["location"]

    begin_projection(moved, small.sink.snapshot, here)
    assert is_projected(moved)
    uri = moved.table_uri(incarnation)
    assert files(uri, published.version) == truth(uri, published.version)
    begin_projection(options(tmp_path / "new"), Snapshot(), here)
    assert not is_projected(moved)


@pytest.mark.slow
def test_metadata_is_bounded(tmp_path: Path) -> None:
    """Of many commits the newest snapshots are named, and of those that upkeep has ended none beside them."""
    uri = filled(options(tmp_path), SNAPSHOTS_MAX + 30)
    for version in range(SNAPSHOTS_MAX + 20):
        project(uri, version, T, since=version - 1)
    told = metadata(uri, SNAPSHOTS_MAX + 19)
    assert len(told["snapshots"]) == len(told["snapshot-log"]) == SNAPSHOTS_MAX
    for version in range(SNAPSHOTS_MAX + 15):
        Path(uri, "metadata", f"v{version + 1}.metadata.json").unlink()
    project(uri, SNAPSHOTS_MAX + 20, T, since=SNAPSHOTS_MAX + 19)
    assert len(metadata(uri, SNAPSHOTS_MAX + 20)["snapshots"]) == 6
