"""Encode options: those of TiCDC's sink, read from a changefeed's configuration and checked.

    uri.KEY                  a parameter of the sink URI; it wins over the file
    sink.….KEY, KEY          the path in the TOML file, or the end of it

    option (last part of the key)                 open-protocol      canal-json
    max-message-bytes, max-batch-size             both               the first
    output-old-value                              yes                -
    only-output-updated-columns                   yes                yes
    delete-only-output-handle-key-columns         yes                yes
    enable-tidb-extension, content-compatible     -                  yes; the second implies the option above
    output-row-key                                -                  newarch, with enable-tidb-extension
    large-message-handle-option, -compression,    yes                with enable-tidb-extension
        claim-check-storage-uri
    claim-check-raw-value                         refused            yes
    terminator                                    -                  in files of a storage sink
    time-zone                                     TIMESTAMPs of events are UTC and are written in this zone
    dialect                                       classic (tiflow) or newarch (ticdc)
    newarch-faults                                which faults of newarch are copied, `FAULTS`; all or none as well

The last three are Tidegate's own.  An option that a protocol does not use is accepted and has no effect, as in TiCDC;
contradictory options are refused with TiCDC's error code.

Source: TiCDC's changefeed configuration and sink URI documents; its codec configuration.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from tidegate.codec.options import PROTOCOLS, from_config
from tidegate.model.errors import CodecConfigInvalid, ConfigError, ProtocolUnknown

CLASSIC: Final = "classic"
NEWARCH: Final = "newarch"
DIALECTS: Final = (CLASSIC, NEWARCH)
HANDLINGS: Final = ("none", "handle-key-only", "claim-check")

FAULTS: Final[Mapping[str, str]] = {
    "unnamed-null": "with only-output-updated-columns, a column that became NULL loses its name in `p`",
    "stale-flags": "rows of a partition keep the flags of its first row, whatever DDLs come; new columns have 0",
    "raw-bytes": "bytes that are not UTF-8 stand raw in the JSON, which then is not UTF-8",
    "double-ohk": "the key of a claim check has `ohk` twice, true and false",
}
"""Faults of newarch's Open Protocol that can be reproduced; by default messages are correct."""

KAFKA_MARGIN: Final = 128
"""Bytes that classic TiCDC leaves below the limit of a topic or broker."""


class EncodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of an encoder; `max_batched_bytes` 0 means `max_message_bytes`.

    >>> EncodeOptions(protocol="open-protocol", max_message_bytes=1 << 20).batch_limit
    1048576"""

    protocol: str
    dialect: str = CLASSIC
    faults: frozenset[str] = frozenset()
    output_old_value: bool = True
    only_output_updated_columns: bool = False
    delete_only_output_handle_key_columns: bool = False
    enable_tidb_extension: bool = False
    content_compatible: bool = False
    output_row_key: bool = False
    max_batch_size: int = 16
    max_message_bytes: int = 10 << 20
    max_batched_bytes: int = 0
    large_message_handle: str = "none"
    compression: str = "none"
    claim_check_storage_uri: str = ""
    claim_check_raw_value: bool = False
    terminator: str = "\r\n"
    time_zone: str = "UTC"
    force_replicate: bool = False

    @property
    def newarch(self) -> bool:
        return self.dialect == NEWARCH

    @property
    def batch_limit(self) -> int:
        """The bytes beyond which a batch is closed."""
        return self.max_batched_bytes or self.max_message_bytes


Read: TypeAlias = Callable[[str, object], object]

_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False", ""})


def _flag(key: str, value: object) -> object:
    text = str(value)
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ConfigError(f"{key} is {value!r}; it must be true or false")


def _positive(key: str, value: object) -> object:
    try:
        number = int(str(value))
    except ValueError as error:
        raise CodecConfigInvalid(f"invalid {key} {value!r}; it must be a number") from error
    if number <= 0:
        raise CodecConfigInvalid(f"invalid {key} {number}; it must be above 0")
    return number


def _text(key: str, value: object) -> object:
    if isinstance(value, str):
        return value
    raise ConfigError(f"{key} is {value!r}; it must be a string")


def _one_of(choices: tuple[str, ...]) -> Read:
    def read(key: str, value: object) -> object:
        name = str(value).lower() or choices[0]
        if name not in choices:
            raise ConfigError(f"{key} is {value!r}; it is one of {', '.join(choices)}")
        return name

    return read


def _faults(key: str, value: object) -> object:
    names = {name.strip() for name in str(value).split(",")} - {"", "none"}
    if names == {"all"}:
        names = set(FAULTS)
    unknown = names - FAULTS.keys()
    if unknown:
        raise ConfigError(f"{key} names {min(unknown)!r}; it lists {', '.join(FAULTS)}, or is all or none")
    return frozenset(names)


def _zone(key: str, value: object) -> object:
    try:
        ZoneInfo(str(value))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(f"{key} is {value!r}, which is no time zone; write one such as Asia/Shanghai") from error
    return str(value)


_OWN: Final[Mapping[str, tuple[str, Read]]] = {
    "dialect": ("dialect", _one_of(DIALECTS)),
    "newarch-faults": ("faults", _faults),
}
_OPTIONS: Final[Mapping[str, tuple[str, Read]]] = {
    "output-old-value": ("output_old_value", _flag),
    "only-output-updated-columns": ("only_output_updated_columns", _flag),
    "delete-only-output-handle-key-columns": ("delete_only_output_handle_key_columns", _flag),
    "enable-tidb-extension": ("enable_tidb_extension", _flag),
    "content-compatible": ("content_compatible", _flag),
    "output-row-key": ("output_row_key", _flag),
    "max-batch-size": ("max_batch_size", _positive),
    "max-message-bytes": ("max_message_bytes", _positive),
    "large-message-handle-option": ("large_message_handle", _one_of(HANDLINGS)),
    "large-message-handle-compression": ("compression", _one_of(("none", "snappy", "lz4"))),
    "claim-check-storage-uri": ("claim_check_storage_uri", _text),
    "claim-check-raw-value": ("claim_check_raw_value", _flag),
    "terminator": ("terminator", _text),
    "time-zone": ("time_zone", _zone),
    "force-replicate": ("force_replicate", _flag),
    **_OWN,
}
_OTHER_PROTOCOLS: Final = ("csv.", "debezium.")
"""Prefixes of keys that have the names of options here but belong to another protocol."""

IGNORED: Final[Mapping[str, str]] = {
    "encoder-concurrency": "one encoder writes all messages, so that their order is that of the events",
    "encoding-worker-num": "one encoder writes all messages, so that their order is that of the events",
    "column-selectors": "columns are left out before encoding: give rows without them",
    "dispatchers": "topics and partitions are chosen outside of the encoder",
    "rules": "events are filtered before they are encoded",
    "event-filters": "events are filtered before they are encoded",
    "compression": "that of Kafka, which its client does; of single values: large-message-handle-compression",
    "integrity-check-level": "neither protocol carries checksums",
    "tz": "events come with their times written; time-zone moves TIMESTAMPs from UTC",
    "timezone": "events come with their times written; time-zone moves TIMESTAMPs from UTC",
    "send-bootstrap-interval-in-sec": "only the simple protocol has bootstrap messages",
}
"""Keys that have no effect here, with the reason."""


def encode_options(config: Mapping[str, object], protocol: str | None = None) -> EncodeOptions:
    """Return the encode options of a changefeed.

    Parameters:
        config: its file, in TiCDC's form
        protocol: wins over that of the file

    Raises ConfigError: a value that TiCDC refuses; a subclass has TiCDC's code

    >>> encode_options({"max-message-bytes": 1048576, "protocol": "open-protocol"}).max_message_bytes
    1048576"""
    shared = {key: value for key, value in config.items() if key not in _OWN}
    configured = protocol or next((str(value) for key, value in shared.items() if key.endswith("protocol")), None)
    if configured is not None and configured.lower() not in PROTOCOLS:
        protocols = ", ".join(sorted(set(PROTOCOLS.values())))
        raise ProtocolUnknown(f"protocol {configured!r} is not one that can be encoded; these can: {protocols}")
    values: dict[str, object] = {"protocol": from_config(shared, protocol).protocol}
    for name, (field, read) in _OPTIONS.items():
        setting = _last(config, name)
        if setting is not None:
            values[field] = read(*setting)
    return _checked(msgspec.convert(values, EncodeOptions))


def ignored_keys(config: Mapping[str, object]) -> dict[str, str]:
    """Return the keys of IGNORED that are set, with the reason."""
    return {key: IGNORED[name] for key in config if (name := key.rpartition(".")[2]) in IGNORED}


def limited(options: EncodeOptions, topic_bytes: int) -> EncodeOptions:
    """`options` for a topic (or broker) that takes messages of up to `topic_bytes`.

    Classic TiCDC lowers max-message-bytes to 128 below it.  The new architecture measures single rows by the topic's
    limit, and batches by the smaller of both."""
    if options.newarch:
        batched = min(options.max_message_bytes, topic_bytes)
        return msgspec.structs.replace(options, max_message_bytes=topic_bytes, max_batched_bytes=batched)
    lowered = min(options.max_message_bytes, topic_bytes - KAFKA_MARGIN)
    if lowered <= 0:
        raise CodecConfigInvalid(f"a topic that takes {topic_bytes} bytes leaves no room for a message")
    return msgspec.structs.replace(options, max_message_bytes=lowered)


def check_marks(options: EncodeOptions) -> None:
    """Raise ConfigError, as TiCDC does, for a handling of large rows whose mark the messages could not carry."""
    canal = options.protocol == "canal-json"
    if options.large_message_handle != "none" and canal and not options.enable_tidb_extension:
        raise ConfigError(
            f"large-message-handle-option={options.large_message_handle} with canal-json needs "
            "enable-tidb-extension=true, where the mark of such rows stands"
        )


def _last(config: Mapping[str, object], name: str) -> tuple[str, object] | None:
    """The key and value of an option: those of the URI before those of the file."""
    setting: tuple[str, object] | None = None
    for key, value in config.items():
        section, _, last = f".{key}".rpartition(".")
        if last != name or f"{section}.".endswith(_OTHER_PROTOCOLS):
            continue
        if section == ".uri":
            return key, value
        if setting is not None and str(setting[1]).lower() != str(value).lower():
            shown = "" if name.endswith("-uri") else f": {setting[1]!r} and {value!r}"
            raise ConfigError(f"{setting[0]} and {key} disagree{shown}")
        setting = key, value
    return setting


class Contradiction(NamedTuple):
    """Two options that contradict each other, TiCDC's error for them, and the reason."""

    applies: Callable[[EncodeOptions], bool]
    error: type[ConfigError]
    why: str


_KEYLESS: Final = "force-replicate must be false with {}: rows of tables without a handle key have none"
CONTRADICTIONS: Final = (
    Contradiction(
        lambda options: options.force_replicate and options.large_message_handle != "none",
        CodecConfigInvalid,
        _KEYLESS.format("large-message-handle-option"),
    ),
    Contradiction(
        lambda options: options.force_replicate and options.delete_only_output_handle_key_columns,
        CodecConfigInvalid,
        _KEYLESS.format("delete-only-output-handle-key-columns=true"),
    ),
    Contradiction(
        lambda options: options.large_message_handle == "claim-check" and not options.claim_check_storage_uri,
        ConfigError,
        "large-message-handle-option=claim-check needs claim-check-storage-uri",
    ),
    Contradiction(
        lambda options: options.claim_check_raw_value and options.protocol != "canal-json",
        ConfigError,
        "claim-check-raw-value=true does not go with open-protocol, whose keys are needed too",
    ),
    Contradiction(
        lambda options: bool(options.faults) and not options.newarch,
        ConfigError,
        "newarch-faults needs dialect=newarch",
    ),
    Contradiction(
        lambda options: options.output_row_key and options.protocol == "canal-json" and not options.newarch,
        ConfigError,
        "output-row-key needs dialect=newarch: classic TiCDC does not know it",
    ),
)


def _checked(options: EncodeOptions) -> EncodeOptions:
    """`options` with implied values. Raises the error of a contradiction."""
    check_marks(options)
    for contradiction in CONTRADICTIONS:
        if contradiction.applies(options):
            raise contradiction.error(contradiction.why)
    if options.content_compatible and options.protocol == "canal-json":
        return msgspec.structs.replace(options, only_output_updated_columns=True)
    return options
