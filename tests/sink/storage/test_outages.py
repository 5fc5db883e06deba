"""A store that is killed and stays away for a while, amid a feed into files and amid a feed out of them."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest

from tests import s3
from tests.contract.storage_reader import events_in
from tests.failpoint import FILES_FAILPOINTS, STORAGE_FAILPOINTS, armed
from tests.sink.sql.test_exactly_once import times
from tests.source.storage.kit import Polled
from tests.sources import files_to_read
from tidegate.changelog.changelog import changelog_uri
from tidegate.changelog.source import LandedSource
from tidegate.codec.csv import CsvOptions
from tidegate.engine.checkpoints import DirectoryCheckpoints, checkpoints_in
from tidegate.engine.ports import Checkpoints
from tidegate.engine.progress import Progress
from tidegate.model.event import Ddl
from tidegate.objectstore import stores
from tidegate.objectstore.stores import store
from tidegate.sink.storage import StorageSink
from tidegate.sink.storage_bucket import Bucket
from tidegate.sink.storage_options import StorageOptions
from tidegate.source.storage_options import CsvDialect
from tidegate.testing import validators
from tidegate.testing.contract import stories
from tidegate.testing.script import ScriptedSource, run_here

pytestmark = pytest.mark.slow

CSV = CsvOptions(include_commit_ts=True, output_old_value=True)
QUICK = ("storage/saved", "files/read")


def marked(places: Iterable[str]) -> list[Any]:
    """Places; all but the quick ones are for a soak."""
    return [pytest.param(place, marks=[] if place in QUICK else pytest.mark.soak) for place in places]


@pytest.fixture(scope="module")
def server() -> Iterator[s3.S3Server]:
    """A store for the cases of this file."""
    with s3.running(s3.BUCKET) as found:
        yield found


@pytest.fixture(autouse=True)
def _client(server: s3.S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A client that finds it, and gives up at once."""
    for name, value in s3.environment(server.port).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(stores, "RETRIES", 0)
    store.cache_clear()
    yield
    store.cache_clear()


class Told:
    """Hears reports; the server comes back after a warning."""

    def __init__(self, server: s3.S3Server) -> None:
        self.server = server
        self.states: list[str] = []

    def __call__(self, progress: Progress) -> None:
        """Hear a report."""
        self.states.append(progress.state)
        if progress.state == "warning" and not self.server.is_up():
            self.server.start()


def sink_of(uri: str, state: Checkpoints) -> StorageSink:
    """A sink of small files."""
    return StorageSink(StorageOptions(uri, uri, CSV, flush_s=0.0, file_bytes=200), state)


def told_in(uri: str) -> tuple[list[str], dict[object, int]]:
    """DDLs and images of rows in the files of a place."""
    paths = [one["path"] for page in obstore.list(store(uri)) for one in page]
    found = events_in(Bucket(uri, uri), paths, ".csv")
    ddls = [event.query for event in found if isinstance(event, Ddl)]
    return ddls, dict(validators.images_of(event for event in found if not isinstance(event, Ddl)))  # type: ignore[arg-type]


def whole(home: Path) -> tuple[list[str], dict[object, int]]:
    """What files tell of the shop where nothing breaks."""
    story = stories.shop()
    run_here(ScriptedSource(story), sink_of(str(home / "whole"), DirectoryCheckpoints(home, "whole")), until=story.ts)
    return told_in(str(home / "whole"))


def with_an_outage(server: s3.S3Server, place: str, life: Callable[[Told], object]) -> None:
    """A life amid which the server is killed, and told as away before it is back."""
    told = Told(server)
    with armed({place: times(server.kill, 1)}):
        life(told)
    assert "warning" in told.states
    assert told.states[-1] == "finished"


@pytest.mark.parametrize("place", marked(STORAGE_FAILPOINTS))
def test_a_store_that_goes_amid_files(server: s3.S3Server, tmp_path: Path, place: str) -> None:
    """A feed into files waits for a store that is away at any place, warns, and goes on: each row is there once."""
    story, wanted = stories.shop(), whole(tmp_path)
    uri = f"s3://{s3.BUCKET}/{tmp_path.name}"
    sink = sink_of(uri, checkpoints_in(f"{uri}-state", "feed"))
    with_an_outage(server, place, lambda told: run_here(ScriptedSource(story), sink, until=story.ts, report=told))
    assert told_in(uri) == wanted


@pytest.mark.parametrize("place", marked(FILES_FAILPOINTS))
def test_a_store_that_goes_while_it_is_read(server: s3.S3Server, tmp_path: Path, place: str) -> None:
    """A feed out of files waits for their store, warns, and goes on: what it writes is what was written."""
    story, wanted = stories.shop(), whole(tmp_path)
    uri, lake = f"s3://{s3.BUCKET}/{tmp_path.name}", str(tmp_path / "lake")
    run_here(ScriptedSource(story), sink_of(uri, DirectoryCheckpoints(tmp_path, "in")), until=story.ts)
    read = files_to_read(uri, uri, CsvDialect(CSV))
    source = LandedSource(lambda: Polled(read, lake, "feed", batch_bytes=4_000), changelog_uri(lake))
    sink = sink_of(str(tmp_path / "out"), DirectoryCheckpoints(tmp_path, "out"))
    with_an_outage(server, place, lambda told: run_here(source, sink, until=story.ts, report=told))
    assert told_in(str(tmp_path / "out")) == wanted
