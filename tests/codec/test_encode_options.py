"""The options of a sink, as an encoder reads them."""

import pytest

from tidegate.codec import EncodeOptions, encode_options
from tidegate.codec.encoding import FAULTS, ignored_keys, limited
from tidegate.model.errors import ConfigError

CANAL = {"protocol": "canal-json"}
OPEN = {"protocol": "open-protocol"}
EXTENSION = {"enable-tidb-extension": "true"}
CLAIM = {"large-message-handle-option": "claim-check", "claim-check-storage-uri": "file:///x"}


def test_defaults_are_those_of_ticdc() -> None:
    """10 MiB, 16 rows, old values, nothing else."""
    assert encode_options(OPEN) == EncodeOptions(protocol="open-protocol")
    assert (encode_options(OPEN).max_message_bytes, encode_options(OPEN).batch_limit) == (10 << 20, 10 << 20)


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        ({"uri.max-message-bytes": "2000"}, "max_message_bytes", 2000),
        ({"sink.kafka-config.max-message-bytes": 2000, "uri.max-message-bytes": "1000"}, "max_message_bytes", 1000),
        ({"sink.kafka-config.codec-config.max-batch-size": 3}, "max_batch_size", 3),
        ({"sink.open.output-old-value": False}, "output_old_value", False),
        ({"sink.csv.output-old-value": True, "sink.open.output-old-value": False}, "output_old_value", False),
        ({"sink.debezium.output-old-value": False}, "output_old_value", True),
        ({"large-message-handle-compression": "LZ4"}, "compression", "lz4"),
        ({"compression": "gzip"}, "compression", "none"),
        ({"time-zone": "Asia/Shanghai"}, "time_zone", "Asia/Shanghai"),
        ({"terminator": "\n"}, "terminator", "\n"),
        ({"dialect": "newarch", "newarch-faults": "all"}, "faults", frozenset(FAULTS)),
        ({"dialect": "newarch", "newarch-faults": "none"}, "faults", frozenset()),
        ({"dialect": "newarch", "newarch-faults": "raw-bytes, double-ohk"}, "faults", {"raw-bytes", "double-ohk"}),
    ],
)
def test_keys(config: dict[str, object], field: str, value: object) -> None:
    """A key is found in the URI first, by its path or by its end."""
    assert getattr(encode_options({**OPEN, **config}), field) == value


def test_content_compatible_implies_updated_columns_only() -> None:
    """For canal-json; Open Protocol does not know it."""
    assert encode_options({**CANAL, "uri.content-compatible": "true"}).only_output_updated_columns
    assert not encode_options({**OPEN, "uri.content-compatible": "true"}).only_output_updated_columns


@pytest.mark.parametrize(
    ("config", "code", "text"),
    [
        ({}, "CDC:ErrInvalidReplicaConfig", "no protocol"),
        ({"protocol": "avro"}, "CDC:ErrSinkUnknownProtocol", "avro"),
        ({**OPEN, "max-message-bytes": "0"}, "CDC:ErrCodecInvalidConfig", "above 0"),
        ({**OPEN, "max-message-bytes": "1M"}, "CDC:ErrCodecInvalidConfig", "number"),
        ({**OPEN, "max-batch-size": -1}, "CDC:ErrCodecInvalidConfig", "above 0"),
        ({**OPEN, "output-old-value": "maybe"}, "CDC:ErrInvalidReplicaConfig", "true or false"),
        ({**OPEN, "large-message-handle-compression": "zstd"}, "CDC:ErrInvalidReplicaConfig", "none, snappy, lz4"),
        ({**OPEN, "large-message-handle-option": "drop"}, "CDC:ErrInvalidReplicaConfig", "handle-key-only"),
        ({**OPEN, "large-message-handle-option": "claim-check"}, "CDC:ErrInvalidReplicaConfig", "storage-uri"),
        ({**OPEN, **CLAIM, "claim-check-raw-value": True}, "CDC:ErrInvalidReplicaConfig", "raw-value"),
        ({**CANAL, **CLAIM}, "CDC:ErrInvalidReplicaConfig", "enable-tidb-extension"),
        (
            {**OPEN, "large-message-handle-option": "handle-key-only", "force-replicate": True},
            "CDC:ErrCodecInvalidConfig",
            "force-replicate",
        ),
        ({**OPEN, **CLAIM, "force-replicate": True}, "CDC:ErrCodecInvalidConfig", "large-message-handle-option"),
        (
            {**OPEN, "delete-only-output-handle-key-columns": True, "force-replicate": "true"},
            "CDC:ErrCodecInvalidConfig",
            "force-replicate",
        ),
        ({**CANAL, **EXTENSION, "output-row-key": "true"}, "CDC:ErrInvalidReplicaConfig", "newarch"),
        ({**OPEN, "newarch-faults": "raw-bytes"}, "CDC:ErrInvalidReplicaConfig", "dialect=newarch"),
        ({**OPEN, "dialect": "newarch", "newarch-faults": "all,typo"}, "CDC:ErrInvalidReplicaConfig", "'all'"),
        ({**OPEN, "dialect": "old"}, "CDC:ErrInvalidReplicaConfig", "classic, newarch"),
        ({**OPEN, "time-zone": "Mars/Olympus"}, "CDC:ErrInvalidReplicaConfig", "time zone"),
        ({**OPEN, "max-batch-sice": 1}, "CDC:ErrInvalidReplicaConfig", "max-batch-size"),
        ({**OPEN, "sink.kafka-config.max-message-bytes": 1, "max-message-bytes": 2}, None, "disagree"),
        ({**OPEN, "claim-check-storage-uri": 5}, "CDC:ErrInvalidReplicaConfig", "string"),
    ],
)
def test_contradictions_are_refused(config: dict[str, object], code: str | None, text: str) -> None:
    """With TiCDC's code, and words that name the key."""
    with pytest.raises(ConfigError) as found:
        encode_options(config)
    assert text in str(found.value)
    assert found.value.code == (code or "CDC:ErrInvalidReplicaConfig")


def test_ignored_keys_have_reasons() -> None:
    """A key that looks as if it mattered is named with the reason why it does not."""
    assert list(ignored_keys({"sink.encoder-concurrency": 4, "uri.max-batch-size": 1})) == ["sink.encoder-concurrency"]


def test_limits_of_a_topic() -> None:
    """Classic lowers the limit to 128 below the topic's; newarch measures batches and single rows by different ones."""
    classic = limited(EncodeOptions(protocol="open-protocol", max_message_bytes=5000), 1000)
    assert (classic.max_message_bytes, classic.batch_limit) == (872, 872)
    newarch = limited(EncodeOptions(protocol="open-protocol", dialect="newarch", max_message_bytes=500), 1000)
    assert (newarch.max_message_bytes, newarch.batch_limit) == (1000, 500)
    with pytest.raises(ConfigError, match="no room"):
        limited(EncodeOptions(protocol="open-protocol"), 100)
