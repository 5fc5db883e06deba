"""Decode options: the options of a topic's encoder that its messages do not show.

`from_config` reads them out of a changefeed's configuration.  A key is written in any of three ways:

    uri.protocol                                                           a parameter of the sink URI
    sink.kafka-config.large-message-handle.large-message-handle-option     the path in the TOML file
    large-message-handle-option                                            an end of that path, the last part at least

Every key of TiCDC's is accepted, though only a few change what a decoder does (docs/formats/decoding.md); any other
key is an error with the nearest right one.

Source: TiCDC's changefeed configuration and sink URI documents.
"""

import difflib
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from tidegate.model.errors import ConfigError
from tidegate.model.name import all_digits

PROTOCOLS: Final[Mapping[str, str]] = {
    "open-protocol": "open-protocol",
    "open": "open-protocol",
    "default": "open-protocol",
    "canal-json": "canal-json",
    "canal": "canal-json",
}
"""Every spelling of a protocol, and its meaning."""

COMPRESSIONS: Final = ("none", "snappy", "lz4")


class DecodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a decoder.

    `compression` is large-message-handle-compression (none, snappy or lz4, per value); `legacy` reads VARCHAR as
    base64, as Open Protocol did before 2021, and official Canal's ENUM and SET names.  `upstream_uri` is the database
    for completing rows that came with only their handle key; it holds a password, as the address of a storage may.

    >>> DecodeOptions(protocol="canal-json", compression="lz4").time_zone
    'UTC'"""

    protocol: str
    compression: str = "none"
    legacy: bool = False
    claim_check_raw_value: bool = False
    claim_check_storage_uri: str = ""
    claim_check_max_bytes: int = 64 << 20
    upstream_uri: str = ""
    time_zone: str = "UTC"


# The keys by section, in TiCDC's spelling. A section holds its own keys, each of which may also be given alone.
_SECTIONS: Final[Mapping[str, str]] = {
    "uri": """protocol topic partition-num max-message-bytes max-batch-size replication-factor compression kafka-version
        kafka-client-id required-acks auto-create-topic ca cert key insecure-skip-verify enable-tls sasl-user
        sasl-password sasl-mechanism sasl-gssapi-auth-type sasl-gssapi-keytab-path sasl-gssapi-kerberos-config-path
        sasl-gssapi-service-name sasl-gssapi-user sasl-gssapi-password sasl-gssapi-realm sasl-gssapi-disable-pafxfast
        sasl-oauth-client-id sasl-oauth-client-secret sasl-oauth-token-url sasl-oauth-scopes sasl-oauth-grant-type
        sasl-oauth-audience dial-timeout read-timeout write-timeout enable-tidb-extension content-compatible
        only-output-updated-columns delete-only-output-handle-key-columns output-old-value output-row-key
        partition-key-columns avro-decimal-handling-mode avro-bigint-unsigned-handling-mode avro-enable-watermark
        time-zone tidb-txn-mode worker-count batch-size flush-interval file-size date-separator
        enable-partition-separator transaction-atomicity safe-mode enable-old-value force-replicate
        large-message-handle-option large-message-handle-compression claim-check-storage-uri claim-check-raw-value
        claim-check-max-bytes large-message-upstream-uri include-commit-ts""",
    "": """case-sensitive enable-old-value force-replicate enable-sync-point sync-point-interval sync-point-retention
        check-gc-safe-point memory-quota ignore-ineligible-table bdr-mode changefeed-error-stuck-duration sql-mode
        synced-status start-ts target-ts tz timezone changefeed-id sink-uri enable-table-monitor legacy""",
    "filter": """rules ignore-txn-start-ts ignore-dml-event-filter event-filters do-dbs do-tables ignore-dbs
        ignore-tables""",
    "filter.event-filters": """matcher ignore-event ignore-sql ignore-insert-value-expr ignore-update-new-value-expr
        ignore-update-old-value-expr ignore-delete-value-expr ignore-update-only-columns""",
    "mounter": "worker-num",
    "scheduler": """enable-table-across-nodes region-threshold region-count-per-span write-key-threshold
        region-count-refresh-interval enable-splittable-check scheduling-task-count-per-node""",
    "integrity": "integrity-check-level corruption-handle-level",
    "consistent": """level max-log-size flush-interval meta-flush-interval encoding-worker-num flush-worker-num storage
        use-file-backend compression flush-concurrency memory-usage memory-usage.memory-quota-percentage""",
    "synced-status": "synced-check-interval checkpoint-interval",
    "sink": """ddl-text protocol dispatchers column-selectors schema-registry encoder-concurrency terminator
        enable-partition-separator date-separator file-index-width file-index-digit enable-kafka-sink-v2
        only-output-updated-columns delete-only-output-handle-key-columns content-compatible
        send-bootstrap-interval-in-sec send-bootstrap-in-msg-count send-bootstrap-to-all-partition
        send-all-bootstrap-at-start debezium-disable-schema debezium-output-old-value output-old-value
        advance-timeout-in-sec transaction-atomicity safe-mode""",
    "sink.dispatchers": "matcher dispatcher partition topic index columns target-schema target-table",
    "sink.column-selectors": "matcher columns",
    "sink.csv": """delimiter quote null include-commit-ts binary-encoding-method output-old-value output-field-header
        output-handle-key""",
    "sink.open": "output-old-value",
    "sink.debezium": "output-old-value",
    "sink.kafka-config": """partition-num replication-factor kafka-version max-message-bytes compression kafka-client-id
        auto-create-topic dial-timeout write-timeout read-timeout required-acks sasl-user sasl-password sasl-mechanism
        sasl-gssapi-auth-type sasl-gssapi-keytab-path sasl-gssapi-kerberos-config-path sasl-gssapi-service-name
        sasl-gssapi-user sasl-gssapi-password sasl-gssapi-realm sasl-gssapi-disable-pafxfast sasl-oauth-client-id
        sasl-oauth-client-secret sasl-oauth-token-url sasl-oauth-scopes sasl-oauth-grant-type sasl-oauth-audience
        enable-tls ca cert key insecure-skip-verify codec-config large-message-handle glue-schema-registry-config
        output-raw-change-event""",
    "sink.kafka-config.large-message-handle": """large-message-handle-option large-message-handle-compression
        claim-check-storage-uri claim-check-raw-value""",
    "sink.kafka-config.codec-config": """enable-tidb-extension max-batch-size avro-enable-watermark
        avro-decimal-handling-mode avro-bigint-unsigned-handling-mode encoding-format""",
    "sink.cloud-storage-config": """worker-count flush-interval file-size output-column-id file-expiration-days
        file-cleanup-cron-spec flush-concurrency output-raw-change-event""",
    "sink.mysql-config": """worker-count max-txn-row max-multi-update-row max-multi-update-row-size
        max-multi-update-row-count tidb-txn-mode ssl-ca ssl-cert ssl-key time-zone write-timeout read-timeout timeout
        enable-batch-dml enable-multi-statement enable-cache-prepared-statement""",
}
_FULL: Final = {f"{section}.{key}".lstrip(".") for section, keys in _SECTIONS.items() for key in keys.split()}
_KEYS: Final = frozenset(".".join(key.split(".")[start:]) for key in _FULL for start in range(key.count(".") + 1))
"""Every key, in full and by its last parts."""
_SECRETS: Final = frozenset({"claim-check-storage-uri", "large-message-upstream-uri"})
"""Keys whose values may hold keys and passwords."""
_INDEX: Final = re.compile(r"\[\d*\]")
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False", ""})


def protocol_name(name: str) -> str:
    """Return the protocol that `name` means. Raises ConfigError for an unknown one."""
    protocol = PROTOCOLS.get(name.lower())
    if protocol is None:
        raise ConfigError(f"protocol {name!r} is not one of {', '.join(sorted(set(PROTOCOLS.values())))}")
    return protocol


def from_config(config: Mapping[str, object], protocol: str | None = None) -> DecodeOptions:
    """Return the decode options of a changefeed.

    Parameters:
        config: its file, in TiCDC's form
        protocol: wins over that of the file

    Raises ConfigError: an unknown key, or a value that TiCDC refuses

    >>> from_config({"large-message-handle-compression": "snappy"}, "open-protocol").compression
    'snappy'"""
    last: dict[str, tuple[str, object]] = {}
    for key, value in config.items():
        _check_known(key)
        name = key.rpartition(".")[2]
        if name in last and name in DECODE_KEYS and _text(last[name][1]) != _text(value):
            shown = "" if name in _SECRETS else f": {last[name][1]!r} and {value!r}"
            raise ConfigError(f"{last[name][0]} and {key} disagree{shown}")
        last[name] = key, value
    values = {field: read(*last[name]) for name, (field, read) in DECODE_KEYS.items() if name in last}
    configured = values.pop("protocol", None)
    if protocol is None and configured is None:
        raise ConfigError("no protocol; add protocol=open-protocol or protocol=canal-json")
    return msgspec.convert({"protocol": protocol_name(protocol or str(configured)), **values}, DecodeOptions)


def _check_known(key: str) -> None:
    if _INDEX.sub("", key) in _KEYS:
        return
    pool = _FULL if "." in key else _KEYS
    near = difflib.get_close_matches(key, sorted(pool), n=1, cutoff=0.0)
    raise ConfigError(
        f"unknown configuration key {key!r}; did you mean {near[0]!r}?" if near else f"unknown key {key!r}"
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _string(key: str, value: object) -> object:
    if isinstance(value, str):
        return value
    raise ConfigError(f"{key} is {value!r}; it must be a string")


def _flag(key: str, value: object) -> object:
    text = _text(value)
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ConfigError(f"{key} is {value!r}; it must be true or false")


def _positive(key: str, value: object) -> object:
    text = str(value)
    if all_digits(text) and int(text) > 0:
        return int(text)
    raise ConfigError(f"{key} is {value!r}; it must be a whole number above 0")


def _compression(key: str, value: object) -> object:
    name = str(value).lower() or "none"
    if name not in COMPRESSIONS:
        raise ConfigError(f"{key} is {value!r}; it is one of {', '.join(COMPRESSIONS)}")
    return name


DECODE_KEYS: Final = {
    "protocol": ("protocol", _string),
    "large-message-handle-compression": ("compression", _compression),
    "claim-check-raw-value": ("claim_check_raw_value", _flag),
    "claim-check-storage-uri": ("claim_check_storage_uri", _string),
    "claim-check-max-bytes": ("claim_check_max_bytes", _positive),
    "large-message-upstream-uri": ("upstream_uri", _string),
    "time-zone": ("time_zone", _string),
    "legacy": ("legacy", _flag),
}
"""The keys that a decoder needs: the field that each fills and how it is read."""
