"""A Kafka sink as a changefeed's sink-uri and file describe it: address and file to a TopicTarget.

    kafka://h1:9092/shop?protocol=canal-json&enable-tidb-extension=true&partition-num=4
            └ brokers ┘ └ default topic      └ encoder (codec/encoding.py)  └ topics that are made

Values of the address win over the file's.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from tidegate.app.config import SinkFile
from tidegate.app.params import Given
from tidegate.app.topic_keys import client_options
from tidegate.app.topics import LOOKING
from tidegate.app.uri import mask_uri, parse_source
from tidegate.codec import encode_options
from tidegate.feed.column_selector import ColumnSelectors
from tidegate.feed.split import SplitPolicy
from tidegate.model.errors import ConfigError, KafkaConfigInvalid, UnsupportedError, UriInvalid
from tidegate.model.feed_errors import PartitionNumInvalid
from tidegate.sink.kafka.target import TopicTarget
from tidegate.sink.kafka.writer import NewTopics

__all__ = ["new_topics", "topic_target"]

_OFF: Final = frozenset({"false", "0", "f"})
_COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_RAW: Final = "sink.kafka-config.output-raw-change-event"


def topic_target(uri: str, file: SinkFile) -> TopicTarget:
    """The sink of an address and a changefeed file. Raises ConfigErrors as TiCDC would."""
    if not urlsplit(uri).path.strip("/"):
        raise KafkaConfigInvalid(f"sink-uri: no topic is named; write kafka://HOST:PORT/TOPIC, found {mask_uri(uri)}")
    _check_partitions({**_topic_settings(file), **dict(parse_qsl(urlsplit(uri).query))})
    sink = parse_source(uri, {**LOOKING, **_protocol_of(file), **client_options(file.settings)})
    if len(sink.topics) != 1:
        raise UriInvalid("sink-uri: name one topic, the default one; others come from dispatchers")
    query = {f"uri.{name}": value for name, value in parse_qsl(urlsplit(uri).query) if value}
    told = {key.rpartition(".")[2] for key in query}
    below = {key: value for key, value in file.settings.items() if key.rpartition(".")[2] not in told}
    options = encode_options({**below, **query})
    if options.output_row_key:
        raise UnsupportedError("output-row-key: rows are written without their keys of TiKV; leave it out")
    return TopicTarget(
        topic=sink.topics[0],
        options=options,
        client={**sink.client_config(), "compression.type": _compression(query, file)},
        rules=file.dispatchers,
        case_sensitive=file.case_sensitive,
        split=SplitPolicy(unique_keys=str(file.settings.get(_RAW, "false")).lower() != "true", newarch=options.newarch),
        new_topics=new_topics({**_topic_settings(file), **dict(parse_qsl(urlsplit(uri).query))}),
        partition_num=sink.partition_num,
        selectors=ColumnSelectors.of(file.selectors, case_sensitive=file.case_sensitive),
    )


def _check_partitions(query: Mapping[str, str]) -> None:
    word = query.get("partition-num", "1")
    if word.removeprefix("-").isdecimal() and int(word) < 1:
        raise PartitionNumInvalid(f"partition-num is {word}; a topic is written to at least one partition")


def _protocol_of(file: SinkFile) -> dict[str, Given]:
    """The protocol that the file gives, for an address without one."""
    word = file.settings.get("sink.protocol")
    return {"protocol": Given("sink.protocol", word)} if word else {}


def _topic_settings(file: SinkFile) -> dict[str, str]:
    """What the file says of topics that are made."""
    names = ("auto-create-topic", "partition-num", "replication-factor")
    found = {name: file.settings.get(f"sink.kafka-config.{name}") for name in names}
    return {name: str(value).lower() for name, value in found.items() if value is not None}


def _compression(query: Mapping[str, str], file: SinkFile) -> str:
    """What the producer packs its batches with."""
    word = str(query.get("uri.compression") or file.settings.get("sink.kafka-config.compression") or "none").lower()
    if word not in _COMPRESSIONS:
        raise KafkaConfigInvalid(f"sink-uri: compression is {word!r}; it is one of {', '.join(_COMPRESSIONS)}")
    return word


def new_topics(query: Mapping[str, str]) -> NewTopics | None:
    """Return what topics that are missing are made of, by TiCDC's parameters of a sink-uri; None: they are not made."""
    if query.get("auto-create-topic", "true").lower() in _OFF:
        return None
    try:
        return NewTopics(int(query.get("partition-num", 3)), int(query.get("replication-factor", 1)))
    except ValueError as error:
        raise ConfigError(f"sink-uri: partition-num and replication-factor are whole numbers: {error}") from error
