"""The storage sink keeps the contract of tidegate.testing: files of a directory, of a real S3 server and of
Azurite."""

from pathlib import Path

import obstore
import pytest

from tests import azure, s3
from tests.contract.storage_reader import events_in
from tidegate.codec.csv import CsvOptions
from tidegate.codec.encoding import EncodeOptions
from tidegate.engine.checkpoints import StateFiles, checkpoints_in
from tidegate.engine.ports import Sink
from tidegate.objectstore.stores import store
from tidegate.sink.storage import StorageSink
from tidegate.sink.storage_bucket import Bucket
from tidegate.sink.storage_options import StorageOptions
from tidegate.testing.contract import ReadBack, SinkContract
from tidegate.testing.script import run_here

pytestmark = pytest.mark.slow


class TestCsv(SinkContract):
    """Files of csv in a directory."""

    run = staticmethod(run_here)
    guarantee = "exactly once"
    refuses = ("unreadable",)
    whole_rows = True
    protocol: CsvOptions | EncodeOptions = CsvOptions(include_commit_ts=True, output_old_value=True)
    extension = ".csv"

    def bucket(self, home: Path) -> Bucket:
        """Where files go."""
        return Bucket(str(home / "out"), "out")

    def sink(self, home: Path) -> Sink:
        """A sink whose progress lies beside its files."""
        bucket = self.bucket(home)
        options = StorageOptions(bucket.uri, bucket.shown, self.protocol, flush_s=0.0, file_bytes=64)
        return StorageSink(options, self.checkpoints(home))

    def checkpoints(self, home: Path) -> StateFiles:
        """Progress in a directory."""
        return checkpoints_in(str(home / "state"), "feed")

    def read(self, home: Path) -> ReadBack:
        """The files that indexes name."""
        bucket = self.bucket(home)
        paths = [one["path"] for page in obstore.list(store(bucket.uri)) for one in page]
        return ReadBack(log={"files": events_in(bucket, paths, self.extension)})


class TestCanal(TestCsv):
    """Files of canal-json in a directory."""

    protocol = EncodeOptions(protocol="canal-json", enable_tidb_extension=True)
    extension = ".json"


class InStore(TestCsv):
    """Files of csv in an object store."""

    __test__ = False
    place: str

    def bucket(self, home: Path) -> Bucket:
        """A prefix of its own."""
        uri = f"{self.place}/{home.name}"
        return Bucket(uri, uri)

    def checkpoints(self, home: Path) -> StateFiles:
        """Progress in the same store, which fences a run that another one has replaced."""
        return checkpoints_in(f"{self.place}/{home.name}-state", "feed")


@pytest.mark.more
@pytest.mark.slow
@pytest.mark.usefixtures("s3_server")
class TestS3(InStore):
    """Files of csv in a bucket of a real S3 server."""

    __test__ = True
    place = f"s3://{s3.BUCKET}"


@pytest.mark.soak
@pytest.mark.usefixtures("azurite")
class TestAzure(InStore):
    """Files of csv in a container of Azurite."""

    __test__ = True
    place = f"azure://{azure.CONTAINER}"
