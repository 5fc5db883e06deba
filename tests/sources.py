"""What sources read, for tests that have a decoder's options instead of an address."""

from typing import Any

from tidegate.codec.options import DecodeOptions
from tidegate.model.option import Secret
from tidegate.source.kafka_options import KafkaTopics
from tidegate.source.storage_options import CsvDialect, Dialect, FilesToRead


def topics_to_read(bootstrap: str, topics: tuple[str, ...], decode: DecodeOptions, **more: Any) -> KafkaTopics:
    """The topics of these brokers, a busy machine being given more time to answer."""
    protocol: Any = decode.protocol
    options = {"bootstrap": tuple(bootstrap.split(",")), "read_timeout_ms": 30_000, **more}
    return KafkaTopics(topics=topics, protocol=protocol, decoder=decode, **options)


def files_to_read(uri: str, shown: str, dialect: Dialect, **more: Any) -> FilesToRead:
    """The files below a directory or an address, of one dialect."""
    if isinstance(dialect, CsvDialect):
        more |= {"protocol": "csv", "handle_key": dialect.handle_key}
    else:
        more |= {"protocol": "canal-json", "terminator": dialect.terminator}
    return FilesToRead(uri=Secret(uri), address=shown, decoder=dialect.options, **more)
