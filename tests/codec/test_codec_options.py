"""Options from a changefeed's configuration, and the dispatch by protocol."""

import json

import pytest

from tests.golden.codec_cases import lines, variants
from tidegate.codec import DecodeOptions, decode, from_config
from tidegate.codec.options import protocol_name
from tidegate.config.load import KEYS
from tidegate.config.registry import SINKS
from tidegate.model.errors import ConfigError
from tidegate.model.event import Resolved


def test_three_spellings_of_a_key() -> None:
    """A URI parameter, a TOML path, the end of one: all mean the same."""
    path = "sink.kafka-config.large-message-handle.large-message-handle-compression"
    for key in (path, "large-message-handle-compression", "uri.large-message-handle-compression"):
        assert from_config({key: "LZ4"}, "open") == DecodeOptions(protocol="open-protocol", compression="lz4")


def test_values_are_read_as_ticdc_reads_them() -> None:
    """Booleans come as such or as Go's words; empty compression is none."""
    config = {
        "uri.protocol": "canal-json",
        "uri.enable-tidb-extension": "true",
        "claim-check-raw-value": "T",
        "claim-check-storage-uri": "file:///x",
        "large-message-handle-compression": "",
        "legacy": False,
    }
    assert from_config(config) == DecodeOptions(
        protocol="canal-json", claim_check_raw_value=True, claim_check_storage_uri="file:///x"
    )


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"uri.protocl": "x"}, "'uri.protocol'"),
        ({"large-message-handle-compresion": "lz4"}, "'large-message-handle-compression'"),
        ({"large-message-handle-compression": "zstd"}, "none, snappy, lz4"),
        ({"claim-check-raw-value": "maybe"}, "true or false"),
        ({"claim-check-storage-uri": 1}, "must be a string"),
        ({"claim-check-raw-value": True, "uri.claim-check-raw-value": "false"}, "disagree"),
    ],
)
def test_wrong_configuration_says_what_is_right(config: dict[str, object], text: str) -> None:
    """Unknown keys, bad values and contradictions are errors that help."""
    with pytest.raises(ConfigError, match=text):
        from_config(config, "open-protocol")


def test_every_key_of_ticdc_is_accepted() -> None:
    """The keys of the changefeed documentation, as the application lists them, are all known here."""
    own = ("source.", *(entry.section for entry in SINKS.values() if entry.section))
    for key in KEYS:
        if not key.startswith(own):
            value = {"protocol": "open-protocol", "time-zone": "UTC"}.get(key.rpartition(".")[2], "")
            from_config({key: value}, "open-protocol")


def test_recorded_configurations_are_accepted() -> None:
    """Every configuration that was recorded reads, and agrees with the protocol of its messages."""
    for path in variants():
        line = lines(path)[0]
        assert from_config(line.get("config", {}), line["protocol"]).protocol == line["protocol"]


def test_protocols_and_their_other_names() -> None:
    """Short names work everywhere a protocol is named; others are configuration errors."""
    assert [protocol_name(name) for name in ("open", "Canal", "open-protocol")] == [
        "open-protocol",
        "canal-json",
        "open-protocol",
    ]
    watermark = json.dumps({"type": "TIDB_WATERMARK", "_tidb": {"watermarkTs": 7}}).encode()
    assert decode(None, watermark, DecodeOptions(protocol="canal")) == (Resolved(7),)
    with pytest.raises(ConfigError, match="avro"):
        decode(None, watermark, DecodeOptions(protocol="avro"))
    with pytest.raises(ConfigError, match="no protocol"):
        from_config({})
