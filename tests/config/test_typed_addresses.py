"""What people write into addresses that belongs elsewhere, or is known of another address."""

import msgspec
import pytest

from tidegate.codec import decode
from tidegate.config.entry import SinkEntry, SourceEntry
from tidegate.config.kafka import parse_source
from tidegate.config.load import load
from tidegate.config.registry import SINKS, SOURCES
from tidegate.config.sql import parse_sql
from tidegate.model.errors import DecodeError, MysqlConfigInvalid, UriInvalid
from tidegate.model.event import Insert

SOURCE, SINK = "kafka://127.0.0.1:9092/t?protocol=canal-json", "delta:///srv/lake"
KEYS = [
    pytest.param(entry, key, id=f"{'from' if isinstance(entry, SourceEntry) else 'into'} {entry.scheme} {key}")
    for entry in (*SOURCES.values(), *SINKS.values())
    for key in sorted(entry.keys)
    if key.rpartition(".")[2] not in entry.params
]
"""Keys of a changefeed file that act at one end and are no parameters of its address."""


@pytest.mark.parametrize(("entry", "key"), KEYS)
def test_keys_of_a_file_in_an_address(entry: SourceEntry | SinkEntry, key: str) -> None:
    """A key of a changefeed file that stands in an address is told as what it is, not as another parameter."""
    name = key.rpartition(".")[2]
    uri = f"{entry.example}{'&' if '?' in entry.example else '?'}{name}=true"
    ends = (uri, SINK) if isinstance(entry, SourceEntry) else (SOURCE, uri)

    with pytest.raises(UriInvalid, match=rf"{name} is not a URI parameter; set \S*{name}"):
        load(None, source_uri=ends[0], sink_uri=ends[1])


def test_old_values_of_csv() -> None:
    """Of files that are written, old values of csv are told in the changefeed file."""
    with pytest.raises(UriInvalid, match=r"set sink\.csv\.output-old-value"):
        load(None, source_uri=SOURCE, sink_uri="file:///srv/out?protocol=csv&output-old-value=true")


@pytest.mark.parametrize(
    ("uri", "tls"),
    [
        ("mysql://h/", False),
        ("mysql://h/?enable-tls=true", True),
        ("tidb://h/?enable-tls=false", False),
        ("tidb+ssl://h/?enable-tls=true", True),
        ("tidb+ssl://h/", True),
        ("mysql://h/?ssl-ca=/ca.pem", True),
        ("mysql://h/?ssl-cert=/c&ssl-key=/k&enable-tls=true", True),
        ("tidb+ssl://h/?enable-tls=false", None),
        ("mysql://h/?ssl-ca=/ca.pem&enable-tls=false", None),
        ("mysql://h/?ssl-cert=/c&ssl-key=/k", None),
    ],
)
def test_tls_of_a_database(uri: str, tls: bool | None) -> None:  # noqa: FBT001
    """A database is reached by TLS where its scheme, ssl-ca or enable-tls says so; what contradicts is refused."""
    if tls is None:
        with pytest.raises(MysqlConfigInvalid, match=r"enable-tls is false|ssl-cert needs"):
            parse_sql(uri)
    else:
        assert parse_sql(uri).tls is tls


@pytest.mark.parametrize("legacy", [False, True])
def test_topics_of_canal(*, legacy: bool) -> None:
    """A topic of Alibaba's Canal, whose ENUM and SET come by name, is read by its address alone."""
    options = parse_source(
        f"kafka://h/t?protocol=canal-json&order=offset&legacy={str(legacy).lower()}"
    ).decode_options()
    row = {"id": "1", "e": "b", "s": "x,z"}
    types = {"id": "int", "e": "enum('a','b')", "s": "set('x','y','z')"}
    message = {"type": "INSERT", "isDdl": False, "database": "d", "table": "t", "mysqlType": types, "data": [row]}
    value = msgspec.json.encode(message)

    if legacy:
        (event,) = decode(None, value, options)
        assert isinstance(event, Insert)
        assert event.after == (1, 2, 5)
    else:
        with pytest.raises(DecodeError, match="'b' is not an integer"):
            decode(None, value, options)
