"""An address of files that are read: how csv is written, and what a writer's address may say."""

from pathlib import Path
from typing import Any

import pytest

from tidegate.codec.csv import CsvOptions
from tidegate.codec.options import DecodeOptions
from tidegate.config.entry import Document
from tidegate.config.load import document_of, load
from tidegate.config.storage import parse_files
from tidegate.model.errors import ConfigError, SinkConfigInvalid, UnsupportedError, UriInvalid
from tidegate.source.storage_options import CanalDialect, CsvDialect, FilesToRead

CSV = "file:///srv/in?protocol=csv"


def parsed(uri: str, tree: dict[str, Any] | None = None) -> FilesToRead:
    """The source of an address and of a file."""
    return parse_files(uri, Document() if tree is None else document_of(tree))


def test_defaults() -> None:
    """Rows of csv have their commit ts; canal-json is told nothing more."""
    found = parsed(CSV)
    assert (found.address, found.dead_letter, found.poll_ms, found.has_old_values) == ("/srv/in", "halt", 1000, False)
    assert found.dialect == CsvDialect(CsvOptions(include_commit_ts=True))
    found = parsed("file:///srv/in?protocol=canal-json&time-zone=Asia/Shanghai")
    assert found.dialect == CanalDialect(DecodeOptions(protocol="canal-json", time_zone="Asia/Shanghai"))
    assert (found.extension, found.by_index) == (".json", True)
    assert not parsed(f"{CSV}&index-files=ignore").by_index
    assert found.has_old_values


def test_words_of_a_writer() -> None:
    """What says how a store keeps files is nothing to a reader; a role that it would have to assume is refused."""
    found = parsed("s3://b/p?protocol=csv&sse=AES256&acl=private&storage-class=STANDARD&region=r")
    assert (found.ignored, str(found.uri)) == (("sse", "acl", "storage-class"), "s3://b/p?region=r")
    with pytest.raises(UnsupportedError, match="set their keys"):
        parsed("s3://b/p?protocol=csv&role-arn=x")


def test_how_csv_is_written() -> None:
    """The file of the changefeed that writes says it under [sink.csv]; [source] and the address win over it."""
    written = {"sink": {"terminator": "\n", "csv": {"delimiter": "|", "quote": "", "include-commit-ts": True}}}
    found = parsed(CSV, written)
    assert found.decoder == CsvOptions(delimiter="|", quote="", include_commit_ts=True, terminator="\n")
    found = parsed(f"{CSV}&delimiter=;", {**written, "source": {"quote": "'", "output-old-value": True}})
    assert found.decoder == CsvOptions(
        delimiter=";", quote="'", include_commit_ts=True, output_old_value=True, terminator="\n"
    )
    found = parsed(f"{CSV}&output-handle-key=true&binary-encoding-method=hex&output-field-header=true&null=NULL")
    assert found.dialect == CsvDialect(
        CsvOptions(binary_encoding_method="hex", output_field_header=True, null="NULL", include_commit_ts=True),
        handle_key=True,
    )


def test_the_zone_of_timestamps() -> None:
    """TIMESTAMPs come as texts of a zone, which the address tells; a lake reads them so."""
    assert load(source_uri=f"{CSV}&time-zone=Asia/Shanghai", sink_uri="delta:///srv/lake").time_zone == "Asia/Shanghai"


def test_a_writers_own_address() -> None:
    """Parameters of a writer are accepted without effect, and a store's keys show nowhere."""
    uri = "s3://bucket/prefix?protocol=csv&flush-interval=5s&file-size=1024&date-separator=month&worker-count=3"
    found = parsed(f"{uri}&access-key=AK&secret-access-key=SK&endpoint=http%3A%2F%2Fh%3A9000")
    assert found.ignored == ("flush-interval", "file-size", "date-separator", "worker-count")
    assert (found.address, found.identity, found.addresses) == ("s3://bucket/prefix",) * 2 + ({"s3://bucket/prefix"},)
    assert str(found.uri).startswith("s3://bucket/prefix?access-key=AK&secret-access-key=SK")
    assert "AK" not in repr(found)
    assert "AK" not in repr(found)


@pytest.mark.parametrize(
    ("uri", "error", "words"),
    [
        ("file:///srv/in", ConfigError, "set protocol=csv or protocol=canal-json"),
        ("file:///srv/in?protocol=avro", UnsupportedError, "choose one of csv, canal-json"),
        (f"{CSV}&include-commit-ts=false", SinkConfigInvalid, r"include-commit-ts = true under \[sink.csv\]"),
        (f"{CSV}&delimiter=%22", SinkConfigInvalid, "must not be the same"),
        (f"{CSV}&dilimiter=x", UriInvalid, 'did you mean "delimiter"'),
        (f"{CSV}&poll-interval=1ms", ConfigError, "is not between 50"),
        (f"{CSV}&region=x", UriInvalid, 'unknown parameter "region"'),
    ],
)
def test_what_is_wrong(uri: str, error: type[Exception], words: str) -> None:
    """It is told with the way out."""
    with pytest.raises(error, match=words):
        parsed(uri)


def test_what_is_read_is_not_written() -> None:
    """A changefeed does not write the place that it reads; start-ts is for sources with a time."""
    with pytest.raises(UriInvalid, match="must not write what it reads"):
        load(source_uri=CSV, sink_uri="file:///srv/in?protocol=csv", state_dir="state")
    with pytest.raises(ConfigError, match="files are read from the begin of their directory"):
        load(source_uri=CSV, sink_uri="delta:///srv/lake", start_ts=5)


def test_filters_that_need_old_values(tmp_path: Path) -> None:
    """In csv without old values an UPDATE is an INSERT, so rules that tell them apart are refused."""
    file = tmp_path / "feed.toml"
    file.write_text('[[filter.event-filters]]\nmatcher = ["*.*"]\nignore-event = ["update"]\n')
    with pytest.raises(ConfigError, match="with output-old-value=false UPDATEs look like INSERTs"):
        load(file, source_uri=CSV, sink_uri="delta:///srv/lake")
    load(file, source_uri=f"{CSV}&output-old-value=true", sink_uri="delta:///srv/lake")
