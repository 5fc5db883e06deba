"""Names of files in a storage sink's directory."""

from datetime import date
from pathlib import Path

import pytest

from tidegate.codec.storage import (
    METADATA,
    FileNames,
    data_directory,
    date_part,
    index_path,
    parse_data_path,
    parse_index,
    parse_index_path,
    parse_metadata,
    parse_schema_name,
    parse_schema_path,
    render_metadata,
    schema_directory,
    schema_name,
    version_directory,
)
from tidegate.model.errors import SinkRefused
from tidegate.model.table import TableName
from tidegate.sink.storage_bucket import Bucket

ORDERS = TableName("shop", "orders")
DAY = date(2026, 8, 20)


@pytest.mark.parametrize(
    ("separator", "partition", "path"),
    [
        ("none", None, "shop/orders/451/CDC00000000000000000001.csv"),
        ("year", None, "shop/orders/451/2026/CDC00000000000000000001.csv"),
        ("month", None, "shop/orders/451/2026-08/CDC00000000000000000001.csv"),
        ("day", None, "shop/orders/451/2026-08-20/CDC00000000000000000001.csv"),
        ("day", 105, "shop/orders/451/105/2026-08-20/CDC00000000000000000001.csv"),
        ("none", 105, "shop/orders/451/105/CDC00000000000000000001.csv"),
    ],
)
def test_data(separator: str, partition: int | None, path: str) -> None:
    """A data file lies below its table, version, partition and date; the index file one further down."""
    directory = data_directory(version_directory(ORDERS, 451), date_part(DAY, separator), partition)
    assert f"{directory}/{FileNames('.csv').data(1)}" == path
    assert index_path(directory) == path.replace("CDC00000000000000000001.csv", "meta/CDC.index")


def test_index() -> None:
    """An index file names the newest data file, and its number comes back."""
    assert FileNames(".csv").index(12) == b"CDC00000000000000000012.csv\n"
    assert FileNames(".json", 6).index(12) == b"CDC000012.json\n"
    assert FileNames(".csv").indexed(b"CDC00000000000000000012.csv\n") == 12


@pytest.mark.parametrize("name", ["", "CDC.csv", "CDC1.json", "meta", "CDC_d1_1.csv", "xCDC1.csv"])
def test_other_files(name: str) -> None:
    """What is no data file has the number 0."""
    assert FileNames(".csv").number(name) == 0


def test_schema_names() -> None:
    """The checksum has ten digits, the version as many as it needs; both come back."""
    name = schema_name(451, 4192708)
    assert name == "schema_451_0004192708.json"
    assert parse_schema_name(name) == (451, 4192708)
    assert parse_schema_name("schema_451_4192708.json") is None
    assert (schema_directory("shop"), schema_directory("shop", "orders")) == ("shop/meta", "shop/orders/meta")


def test_metadata() -> None:
    """The checkpoint stands in `metadata` and comes back; other bytes tell none."""
    assert render_metadata(451) == b'{"checkpoint-ts":451}'
    assert parse_metadata(b'{"checkpoint-ts":451}\n') == 451
    assert parse_metadata(b"{}") == -1


CHARACTERS = [*map(chr, (*range(1, 256), 0x2028, 0xFFFD, 0x1F600))]
"""Those that a name of TiDB may hold."""
NAMES = [*CHARACTERS, *(f"a{char}b" for char in CHARACTERS), "..", "...", "CDC", "meta", "metadata", "a#1", "451"]
LONG = ["a" * 64, "é" * 64, "表" * 64, "\U0001f600" * 63, "\U0001f600" * 64]


@pytest.mark.parametrize("kind", ["schema", "table"])
def test_names(tmp_path: Path, kind: str) -> None:
    """Files of any name that TiDB allows can be written, listed and read beside the checkpoint, or it is refused."""
    bucket, refused = Bucket(str(tmp_path), "out"), set[str]()
    bucket.create(METADATA, render_metadata(1))
    for name in [*NAMES, *LONG]:
        table = TableName(name, "t") if kind == "schema" else TableName("shop", name)
        try:
            paths = f"{version_directory(table, 1)}/CDC1.csv", f"{schema_directory(*table)}/{schema_name(1, 1)}"
        except SinkRefused as error:
            refused |= {name} if f"the name {name!r} of" in str(error) else set()
            continue
        for path in paths:
            bucket.create(path, b"1")
            assert bucket.names(path.rpartition("/")[0]) == [path.rpartition("/")[2]]
    wrong = {char for char in CHARACTERS if char == "/" or ord(char) < 32 or ord(char) == 127}
    expected = {*wrong, *(f"a{char}b" for char in wrong), ".", "..", LONG[-1]}
    assert refused == expected | ({METADATA} if kind == "schema" else set())


@pytest.mark.parametrize(
    ("path", "stream", "number"),
    [
        ("shop/t/1/2026-08-20/CDC00000000000000000007.csv", "shop/t/1/2026-08-20", 7),
        ("shop/t/1/CDC000012.json", "shop/t/1", 12),
        ("shop/t/1/CDC_6ab1-9f_00000000000000000003.csv", "shop/t/1/CDC_6ab1-9f", 3),
        ("shop/t/1/CDC_a_b_000003.csv", "shop/t/1/CDC_a_b", 3),
        ("shop/t/1/cdc000012.json", None, 0),
        ("shop/t/1/CDC000012.parquet", None, 0),
        ("shop/t/1/meta/CDC.index", None, 0),
    ],
)
def test_paths_of_data(path: str, stream: str | None, number: int) -> None:
    """A data file tells its stream, with its writer where it names one, and its number."""
    found = parse_data_path(path)
    assert ((None, 0) if found is None else (found.stream, found.number)) == (stream, number)


@pytest.mark.parametrize(
    ("path", "stream"),
    [
        ("shop/t/1/2026-08-20/meta/CDC.index", "shop/t/1/2026-08-20"),
        ("shop/t/1/meta/CDC_6ab1-9f.index", "shop/t/1/CDC_6ab1-9f"),
        ("shop/t/1/CDC.index", None),
        ("shop/t/1/meta/CDC.txt", None),
    ],
)
def test_paths_of_indexes(path: str, stream: str | None) -> None:
    """An index file stands in `meta` beside the files of its stream."""
    assert parse_index_path(path) == stream


def test_what_an_index_names() -> None:
    """The number of a file; 0 for one that names none."""
    assert [parse_index(body) for body in (b"CDC000007.csv\n", b"CDC_a_000008.json", b"", b"x\xff")] == [7, 8, 0, 0]


def test_paths_of_schema_files() -> None:
    """A schema file tells the directory of its table, its version and checksum."""
    assert parse_schema_path("shop/t/meta/schema_451_0004192708.json") == ("shop/t", 451, 4192708)
    assert parse_schema_path("shop/t/schema_451_0004192708.json") is None
