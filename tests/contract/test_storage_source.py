"""Files as a source keep the contract of tidegate.testing: what the sink writes, in both protocols."""

from pathlib import Path

import pytest

from tests import azure, s3
from tests.source.storage.kit import ByHand
from tests.sources import files_to_read
from tidegate.changelog.changelog import changelog_uri
from tidegate.changelog.source import LandedSource
from tidegate.codec.csv import CsvOptions
from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.options import DecodeOptions
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.engine.ports import LocalTasks, Source
from tidegate.model.errors import Retry, TidegateError, Where
from tidegate.sink.storage import StorageSink
from tidegate.sink.storage_options import StorageOptions as Written
from tidegate.source.storage_listing import offset_of
from tidegate.source.storage_options import CanalDialect, CsvDialect, Dialect
from tidegate.testing import validators
from tidegate.testing.contract.sources import SourceContract, rows_of
from tidegate.testing.contract.stories import shop
from tidegate.testing.script import ScriptedSource, run_here

CSV = CsvOptions(include_commit_ts=True, output_old_value=True)


class TestCsv(SourceContract):
    """Csv."""

    protocol: CsvOptions | EncodeOptions = CSV
    dialect: Dialect = CsvDialect(CSV)
    cut: tuple[bytes, bytes] = (b",100\r\n", b",1x0\r\n")

    def uri(self, home: Path) -> str:
        """Where the files are."""
        return str(home / "in")

    def source(self, home: Path) -> Source:
        """The shop of scripts, in many small files."""
        if not (home / "state").exists():
            options = Written(self.uri(home), "in", self.protocol, flush_s=0.0, file_bytes=400)
            sink = StorageSink(options, DirectoryCheckpoints(home / "state", "feed"))
            run_here(ScriptedSource(shop()), sink, until=shop().ts)
        lake = str(home / "lake")
        read = files_to_read(self.uri(home), "in", self.dialect)
        return LandedSource(lambda: ByHand(read, lake, "feed", batch_bytes=1_000), changelog_uri(lake))

    def more(self, source: Source) -> bool:
        """Another batch."""
        assert isinstance(source, LandedSource)
        assert isinstance(source.landing, ByHand)
        return source.landing.land()

    def damaged(self, home: Path) -> tuple[Source, Where]:
        """A value of one row is none of its column."""
        source = self.source(home)
        path = next((home / "in" / "shop" / "accounts").rglob("CDC0*1.*"))
        good, bad = self.cut
        path.write_bytes(path.read_bytes().replace(good, bad, 1))
        stream = str(path.parent.relative_to(home / "in"))
        return source, Where(topic=stream, partition=0, offset=offset_of(1, 1))

    def away(self, home: Path) -> Source:
        """A directory that is not there yet."""
        read = files_to_read(str(home / "later"), "later", self.dialect)
        lake = str(home / "lake")
        return LandedSource(lambda: ByHand(read, lake, "feed"), changelog_uri(lake))

    def test_nothing_is_lost_nor_doubled(self, tmp_path: Path) -> None:
        """Each image of the script is there as often as it happened, and each DDL once."""
        walk, story = self.walk(self.source(tmp_path)), shop()
        found = [
            row
            for one in walk.segments
            for row in rows_of(one.changes.in_order(list(one.changes.tables()), 0, one.changes.upto))
        ]
        happened = validators.images_of(story.rows(story.ts))
        arrived = validators.images_of(found)
        assert not list(validators.untold(happened, arrived))
        assert not list(validators.untold(arrived, happened))
        assert walk.ddls() == [(ddl.commit_ts, ddl.query) for ddl in story.ddls(story.ts)]


@pytest.mark.slow
class TestCanal(TestCsv):
    """Canal-json."""

    protocol = EncodeOptions(protocol="canal-json", enable_tidb_extension=True)
    dialect = CanalDialect(DecodeOptions(protocol="canal-json"))
    cut = (b'"data":', b'"data:')


class InBucket(TestCsv):
    """Csv in a bucket."""

    __test__ = False
    place = f"s3://{s3.BUCKET}"

    def uri(self, home: Path) -> str:
        """A prefix of its own."""
        return f"{self.place}/{home.name}"


class InContainer(InBucket):
    """Csv in a container of Azurite."""

    __test__ = False
    place = f"azure://{azure.CONTAINER}"


def reads_files_of(kind: type[InBucket], home: Path) -> None:
    """What a sink puts there is read as from a directory; a bucket that is missing may come."""
    kind().test_nothing_is_lost_nor_doubled(home)
    uri = f"{kind.place.partition('://')[0]}://nowhere/x"
    read = files_to_read(uri, "nowhere", CsvDialect(CSV))
    with pytest.raises(TidegateError) as told:
        LandedSource(lambda: ByHand(read, str(home / "other"), "feed"), "x").start(LocalTasks(), None)
    assert told.value.retry is Retry.LATER


@pytest.mark.slow
@pytest.mark.usefixtures("s3_server")
def test_a_bucket(tmp_path: Path) -> None:
    """Files of a real S3 server are read as those of a directory; a bucket that is missing may come."""
    reads_files_of(InBucket, tmp_path)


@pytest.mark.soak
@pytest.mark.usefixtures("azurite")
def test_a_container(tmp_path: Path) -> None:
    """Files of Azurite are read as those of a directory; a container that is missing may come."""
    reads_files_of(InContainer, tmp_path)
