"""A kafka:// address as the thing that reads it."""

from tidegate.codec.options import DecodeOptions
from tidegate.config.kafka_source import KafkaSource, parse_source
from tidegate.config.param import Given
from tidegate.source.kafka.client import MESSAGE_BYTES, KafkaTopics

LOOKING: dict[str, Given] = {"order": Given("looking", "offset")}
"""Commands that only look take topics as they are; the address's own order wins."""


def kafka_topics(uri: str, decode: DecodeOptions | None = None) -> KafkaTopics:
    """Return what `uri` names, to be looked at. `decode` stands for the address's own protocol and options."""
    given = dict(LOOKING)
    if decode is not None:
        given["protocol"] = Given("--protocol", decode.protocol)
    return topics_of(parse_source(uri, given), decode)


def topics_of(source: KafkaSource, decode: DecodeOptions | None = None) -> KafkaTopics:
    """Return a parsed address as the reader's own struct."""
    return KafkaTopics(
        bootstrap=",".join(source.bootstrap),
        topics=source.topics,
        decode=decode or source.decode_options(),
        client_config=source.client_config(),
        start=source.start,
        made_anew=source.made_anew,
        dead_letter=source.dead_letter,
        order=source.order,
        partition_num=source.partition_num,
        max_messages_per_batch=source.max_messages_per_batch,
        max_message_bytes=max(source.max_message_bytes, MESSAGE_BYTES),
        timeout_s=max(source.read_timeout_ms / 1000, 1.0),
    )
