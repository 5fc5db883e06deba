"""Files of days that are over are deleted, and nothing else."""

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from tests.sink.storage.test_sink import bucket_of, orders, paths_of
from tidegate.codec.csv import CsvOptions
from tidegate.codec.storage import FileNames
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.engine.ports import LocalTasks
from tidegate.sink.storage import StorageSink
from tidegate.sink.storage_bucket import Bucket, expired_directory, sweep
from tidegate.sink.storage_options import StorageOptions
from tidegate.testing.script import ScriptedSource, run_here

NAMES = FileNames(".csv")
FILE = NAMES.data(1)


@pytest.mark.parametrize(
    ("path", "directory"),
    [
        (f"shop/orders/451/2026-08-19/{FILE}", "shop/orders/451/2026-08-19"),
        (f"shop/orders/451/105/2026-08-19/{FILE}", "shop/orders/451/105/2026-08-19"),
        ("shop/orders/451/2026-08-19/meta/CDC.index", "shop/orders/451/2026-08-19"),
        (f"shop/orders/451/2026-08-20/{FILE}", None),
        (f"shop/2026-08-19/451/{FILE}", None),
        (f"2026-08-19/orders/451/2026-08-20/{FILE}", None),
        (f"a/shop/orders/x/2026-08-19/{FILE}", None),
        ("shop/orders/meta/schema_451_0004192708.json", None),
        ("shop/orders/451/2026-08-19/notes.txt", None),
        ("metadata", None),
    ],
)
def test_what_expires(path: str, directory: str | None) -> None:
    """Data and index files of an earlier day do, by the date in its place of the path."""
    assert expired_directory(path, NAMES, date(2026, 8, 20)) == directory


def test_an_index_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No index ever names a file that is gone."""
    bucket, deleted = bucket_of(tmp_path), []
    for number in (1, 2):
        bucket.create(f"shop/orders/451/2026-08-19/{NAMES.data(number)}", b"x")
    bucket.create("shop/orders/451/2026-08-19/meta/CDC.index", NAMES.index(2))
    monkeypatch.setattr(Bucket, "delete", lambda _, paths: deleted.extend(paths))
    assert sum(sweep(bucket, NAMES, date(2026, 8, 20))) == 3
    assert deleted[0].endswith("/meta/CDC.index")
    assert len(deleted) == 3


def test_a_sink_tidies_up(tmp_path: Path) -> None:
    """At the time of the cron line the files of more than N days before the checkpoint go; then nothing until the next
    one."""
    clock = [datetime(2020, 1, 1, 12, tzinfo=UTC)]  # long before the checkpoints of the script
    options = StorageOptions(
        str(tmp_path / "out"), "out", CsvOptions(), flush_s=0.0, expiration_days=2, cleanup="0 0 2 * * *"
    )
    sink = StorageSink(options, DirectoryCheckpoints(tmp_path / "state", "feed"), now=lambda _: clock[0])
    story = orders()
    run_here(ScriptedSource(story), sink, until=story.ts)
    before = paths_of(tmp_path)
    sink.upkeep(LocalTasks(), None, lambda: False)
    assert paths_of(tmp_path) == before

    clock[0] = datetime(2020, 1, 2, 2, tzinfo=UTC)
    sink.upkeep(LocalTasks(), None, lambda: True)
    assert paths_of(tmp_path) == before
    sink.upkeep(LocalTasks(), None, lambda: False)
    assert paths_of(tmp_path) == [path for path in before if "/2020-01-01/" not in path]
    assert len(before) - len(paths_of(tmp_path)) == 2
