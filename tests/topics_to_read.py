"""Topics to read, for tests that have the decoder's options instead of an address."""

from typing import Any

from tidegate.codec.options import DecodeOptions
from tidegate.source.kafka_options import KafkaTopics


def topics_to_read(bootstrap: str, topics: tuple[str, ...], decode: DecodeOptions, **more: Any) -> KafkaTopics:
    """The topics of these brokers, a busy machine being given more time to answer."""
    protocol: Any = decode.protocol
    options = {"bootstrap": tuple(bootstrap.split(",")), "read_timeout_ms": 30_000, **more}
    return KafkaTopics(topics=topics, protocol=protocol, decoder=decode, **options)
