"""An address of files: TiCDC's parameters, defaults and ranges, and no key of a store in sight."""

from pathlib import Path

import pytest

from tidegate.codec.csv import CsvOptions
from tidegate.codec.encoding import EncodeOptions
from tidegate.config.entry import Document
from tidegate.config.load import load
from tidegate.config.storage import parse_storage
from tidegate.model.errors import ConfigError, SinkConfigInvalid, UnsupportedError, UriInvalid
from tidegate.sink.storage_options import StorageOptions

KEYS = "access-key=AK&secret-access-key=s%2Fk&region=us-east-1&endpoint=http%3A%2F%2Fh%3A9000"


def parsed(uri: str, **flat: object) -> StorageOptions:
    """The target of an address and the keys of a file, whose dots are written __ and whose hyphens _."""
    keys = {path.replace("__", ".").replace("_", "-"): value for path, value in flat.items()}
    return parse_storage(uri, Document({}, tuple(keys.items()), keys))


def test_defaults() -> None:
    """Without more an address has TiCDC's defaults."""
    found = parsed("file:///srv/out?protocol=csv")
    assert (found.address, str(found.uri), found.encoder) == ("/srv/out", "/srv/out", CsvOptions())
    assert (found.workers, found.flush_s, found.file_bytes, found.index_digits) == (16, 5.0, 67108864, 20)
    assert (found.date_separator, found.partition_separator, found.time_zone) == ("day", True, "UTC")
    assert (found.column_ids, found.raw_change_event) == (False, False)


def test_a_store() -> None:
    """Parameters of the store go to its client; printing shows none of its keys."""
    found = parsed(f"s3://bucket/prefix/?protocol=canal-json&enable-tidb-extension=true&{KEYS}")
    assert (found.address, found.identity) == ("s3://bucket/prefix", "s3://bucket/prefix")
    assert str(found.uri).startswith("s3://bucket/prefix?access-key=AK&secret-access-key=s%2Fk")
    assert isinstance(found.encoder, EncodeOptions)
    assert found.encoder.enable_tidb_extension
    assert "AK" not in repr(found)


def test_what_a_store_would_have_to_follow() -> None:
    """Encryption goes to the client of a store; grants, roles and scopes that it is not asked for are refused by name
    and with a way out; what changes no file is accepted without effect."""
    found = parsed("s3://b?protocol=csv&sse=aws:kms&sse-kms-key-id=k&provider=minio&storage-class=STANDARD_IA")
    assert str(found.uri) == "s3://b?sse=aws%3Akms&sse-kms-key-id=k"
    assert found.ignored == ("provider", "storage-class")
    assert parsed("azure://b?protocol=csv&access-tier=Cool").ignored == ("access-tier",)
    assert str(parsed("gs://b?protocol=csv&endpoint=http://h").uri) == "gs://b?endpoint=http%3A%2F%2Fh"
    for word, told in (
        ("s3://b?acl=public-read", "set them at the bucket"),
        ("s3://b?role-arn=arn:aws:iam::1:role/x", "set their keys"),
        ("gs://b?predefined-acl=private", "set them at the bucket"),
        ("azure://b?encryption-scope=x", "set a default scope"),
        ("azure://b?encryption-key=AK", "set a default scope"),
    ):
        with pytest.raises(UnsupportedError, match=told) as refused:
            parsed(f"{word}&protocol=csv")
        assert f'parameter "{word.partition("?")[2].partition("=")[0]}"' in str(refused.value)
        assert "AK" not in str(refused.value)


def test_file() -> None:
    """A changefeed file says the same under [sink], [sink.csv] and [sink.cloud-storage-config]; the address wins."""
    found = parsed(
        "file:///srv/out?protocol=csv&flush-interval=1s",
        sink__date_separator="month",
        sink__terminator="\n",
        sink__file_index_digit=6,
        sink__csv__delimiter="|",
        sink__csv__include_commit_ts=True,
        sink__cloud_storage_config__flush_interval="9s",
        sink__cloud_storage_config__file_size=2048,
        sink__cloud_storage_config__output_raw_change_event=True,
    )
    assert (found.flush_s, found.file_bytes, found.date_separator, found.index_digits) == (1.0, 2048, "month", 6)
    assert found.raw_change_event
    assert found.encoder == CsvOptions(delimiter="|", include_commit_ts=True, terminator="\n")
    assert found.warnings() == ()


@pytest.mark.parametrize(
    ("word", "field", "value"),
    [
        ("worker-count=0", "workers", 1),
        ("worker-count=513", "workers", 512),
        ("flush-interval=1ms", "flush_s", 0.1),
        ("flush-interval=11m", "flush_s", 600.0),
        ("file-size=1", "file_bytes", 1024),
        ("file-size=536870913", "file_bytes", 536870912),
    ],
)
def test_numbers_out_of_range(word: str, field: str, value: int) -> None:
    """A number out of its range becomes the nearest in it, with a warning."""
    found = parsed(f"file:///srv/out?protocol=canal-json&enable-tidb-extension=true&{word}")
    assert getattr(found, field) == value
    assert word.partition("=")[0] in found.warnings()[0]


def test_digits_out_of_range() -> None:
    """A width of numbers that TiCDC does not take is 20."""
    assert parsed("file:///srv/out?protocol=csv&file-index-width=5").index_digits == 20


@pytest.mark.parametrize(
    ("uri", "error"),
    [
        ("file:///srv/out", SinkConfigInvalid),
        ("file:///?protocol=csv", UriInvalid),
        ("file://srv/out?protocol=csv", UriInvalid),
        ("s3:///prefix?protocol=csv", UriInvalid),
        ("file:///srv/out?protocol=avro", UnsupportedError),
        ("file:///srv/out?protocol=xml", SinkConfigInvalid),
        ("file:///srv/out?protocol=csv&access-key=a", UriInvalid),
        ("gs://bucket?protocol=csv&access-key=a", UriInvalid),
        ("file:///srv/out?protocol=csv&flush-interval=soon", SinkConfigInvalid),
        ("file:///srv/out?protocol=csv&use-table-id-as-path=true", UnsupportedError),
        ("file:///srv/out?protocol=csv&enable-tidb-extension=true", SinkConfigInvalid),
        ("file:///srv/out?protocol=csv&unheard=1", UriInvalid),
    ],
)
def test_refused(uri: str, error: type[ConfigError]) -> None:
    """What is malformed, unknown, or not written here is refused under TiCDC's code."""
    with pytest.raises(error):
        parsed(uri)


@pytest.mark.parametrize("word", ["delimiter", "quote"])
def test_csv_that_cannot_be_read_back(word: str) -> None:
    """Options of csv that contradict each other are refused."""
    with pytest.raises(SinkConfigInvalid):
        parsed("file:///srv/out?protocol=csv", **{f"sink__csv__{word}": "\n"})


def test_a_changefeed(tmp_path: Path) -> None:
    """A changefeed into files keeps its checkpoint in a state directory, and warns where rows tell no commit_ts."""
    (tmp_path / "log").mkdir()
    uris = {"source_uri": f"tidb://{tmp_path}/log", "sink_uri": f"file://{tmp_path}/out?protocol=csv"}
    with pytest.raises(ConfigError, match="state-dir"):
        load(**uris)  # type: ignore[arg-type]
    found = load(**uris, state_dir=tmp_path)  # type: ignore[arg-type]
    assert any("include-commit-ts" in warning for warning in found.warnings)
