"""A kafka:// address that is written: the default topic, the encoder's options, and how topics are reached and made.

    kafka://h1:9092/shop?protocol=canal-json&enable-tidb-extension=true&partition-num=4
            └ brokers ┘ └ default topic      └ encoder (codec/encoding.py)  └ topics that are made

The same parameters stand in a changefeed file under [sink] and [sink.kafka-config]; those of the address win.

Source: TiCDC documentation, "Sink URI for Kafka" and "CLI and Configuration Parameters of TiCDC Changefeeds".
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tidegate.codec.encoding import EncodeOptions, encode_options
from tidegate.config.document import Document
from tidegate.config.kafka_source import KAFKA_CLIENT, PROTOCOL, SCHEME, KafkaClient, address_fields, check_protocol
from tidegate.config.keys import KEYS
from tidegate.config.local_name import Local, name_place
from tidegate.config.param import Given, Param, idle, read_all
from tidegate.config.refused import NO_DATABASE, RefusedKey
from tidegate.config.uri import Secret, parameters, split
from tidegate.model.errors import ConfigError, KafkaConfigInvalid, PartitionNumInvalid, UnsupportedError, UriInvalid
from tidegate.model.name import all_digits

_FILE: Final = "sink.kafka-config."
_RAW: Final = "sink.kafka-config.output-raw-change-event"
_OTHERS: Final = (
    *("sink.csv.", "sink.debezium", "sink.cloud-storage-config.", "sink.mysql-config.", "sink.delta-config."),
)
"""What belongs to other sinks and protocols, some of it under the names of ours."""
COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

KAFKA_TARGET: Final[Mapping[str, Param]] = {
    "protocol": PROTOCOL,
    "enable-tidb-extension": Param(
        "bool", "enable_tidb_extension", "false", "canal-json: messages carry `_tidb` with commit ts and watermarks"
    ),
    "time-zone": Param("zone", "time_zone", "UTC", "zone in which TIMESTAMP values are written, which come in UTC"),
    "max-message-bytes": Param(
        "int", "max_message_bytes", "10485760", "largest message; what a broker or topic takes lowers it", low=1
    ),
    "max-batch-size": Param("int", "max_batch_size", "16", "open-protocol: most rows of a message"),
    "only-output-updated-columns": Param(
        "bool", "only_output_updated_columns", "false", "old values of an UPDATE: of the columns alone that it changes"
    ),
    "content-compatible": Param(
        "bool", "content_compatible", "false", "canal-json: the official format; implies the parameter above"
    ),
    "output-row-key": Param("bool", "output_row_key", "false", "refused: rows are written without their keys of TiKV"),
    "large-message-handle-compression": Param(
        "choice",
        "compression",
        "none",
        "compression inside each message value: `none`, `snappy` or `lz4`",
        ("none", "snappy", "lz4"),
    ),
    "claim-check-storage-uri": Param(
        "secret", "claim_check_storage_uri", "", "where claim-check files are put", local=Local.PLACE
    ),
    "claim-check-raw-value": Param(
        "bool", "claim_check_raw_value", "false", "claim-check files hold the bare value (canal-json)"
    ),
    "partition-num": Param("int", "partition_num", "3, all", "partitions of a new topic, and how many are used", low=1),
    "replication-factor": Param("int", "replication_factor", "1", "copies of a new topic", low=1, high=1 << 15),
    "auto-create-topic": Param("bool", "auto_create_topic", "true", "make topics that are missing"),
    "compression": Param(
        "choice",
        "batch_compression",
        "none",
        "compression of what the producer sends at once: `none`, `gzip`, `snappy`, `lz4` or `zstd`",
        COMPRESSIONS,
    ),
    **KAFKA_CLIENT,
    "kafka-version": idle("text", "2.4.0", "the client negotiates it"),
    "required-acks": idle("int", "-1", "all replicas acknowledge every message"),
    "write-timeout": idle("duration", "10s", "time for a write"),
}

_ACTING: Final = (
    *("sink.protocol", "sink.only-output-updated-columns", "sink.delete-only-output-handle-key-columns"),
    *("sink.content-compatible", "sink.open.", "sink.dispatchers[].", "sink.column-selectors[].", _FILE),
)
_IDLE: Final = tuple(
    f"{_FILE}{name}"
    for name in (
        *(name for name, param in KAFKA_TARGET.items() if param.field is None),
        *("codec-config.avro-", "codec-config.encoding-format", "sasl-gssapi-", "sasl-oauth-"),
    )
)
KAFKA_KEYS: Final = frozenset(
    path for path in KEYS if path.startswith(_ACTING) and not path.startswith((*_IDLE, "sink.dispatchers[].target-"))
)
"""Keys of a changefeed file that act where a topic is written."""

_LOGIN: Final = RefusedKey(("", [], False), UnsupportedError, "the client logs in by PLAIN or SCRAM")
_NAMES: Final = RefusedKey(("",), UnsupportedError, "messages carry the upstream's names")
KAFKA_REFUSED: Final[Mapping[str, RefusedKey]] = {
    "bdr-mode": NO_DATABASE,
    "enable-sync-point": RefusedKey(
        (False,), ConfigError, "sync points are for databases; a topic has no place for them"
    ),
    "sink.transaction-atomicity": RefusedKey(("none", ""), UriInvalid, "a message queue has no transactions of tables"),
    "sink.schema-registry": RefusedKey(("",), UnsupportedError, "it is for avro, which is not written"),
    "sink.dispatchers[].target-schema": _NAMES,
    "sink.dispatchers[].target-table": _NAMES,
    f"{_FILE}sasl-gssapi-": _LOGIN,
    f"{_FILE}sasl-oauth-": _LOGIN,
}
"""Keys that a topic has no place for."""


class KafkaTarget(KafkaClient, frozen=True, kw_only=True):
    """Topics to write, and how. `partition_num` bounds the partitions that are used, and is that of new topics."""

    topic: str
    options: EncodeOptions
    partition_num: int | None = None
    replication_factor: int = 1
    auto_create_topic: bool = True
    batch_compression: str = "none"
    raw_change_event: bool = False
    """UPDATEs of keys stay one event (output-raw-change-event)."""

    @property
    def identity(self) -> str:
        """What tells this sink from others in the names of changefeeds."""
        return self.topic

    @property
    def places(self) -> frozenset[str]:
        """What is written: the default topic at each broker."""
        return frozenset(f"{host}/{self.topic}" for host in self.bootstrap)

    def needs_types(self) -> str:
        """Return the parameter that needs the parameters of column types; empty where none does."""
        needs = self.options.content_compatible and self.options.protocol == "canal-json"
        return "content-compatible" if needs else ""

    def warnings(self) -> tuple[str, ...]:
        """Return what a user should hear of an address that works, but perhaps not as meant."""
        if self.options.protocol == "canal-json" and not self.options.enable_tidb_extension:
            told = "canal-json without enable-tidb-extension has no watermarks and no commit_ts"
            return (told, *super().warnings())
        return super().warnings()

    def producer_config(self) -> dict[str, str]:
        """Return the connection of a producer as librdkafka's configuration keys."""
        return {**self.client_config(), "compression.type": self.batch_compression}


def parse_target(uri: str, document: Document | None = None) -> KafkaTarget:
    """Return the topics behind `uri` with the keys of a changefeed file. Raises ConfigErrors as TiCDC would."""
    document = document or Document()
    parts = split(uri, "sink-uri", [SCHEME])
    if not parts.path.strip("/"):
        raise KafkaConfigInvalid(f"sink-uri: no topic is named; write kafka://HOST:PORT/TOPIC, found {parts.shown}")
    told = parameters(parts, KAFKA_TARGET)
    given = {**_of_file(document), **told}
    _check_partitions(given)
    check_protocol(parts, given)
    read, ignored = read_all(KAFKA_TARGET, given, KafkaConfigInvalid)
    fields: dict[str, Any] = {**read, **address_fields(parts, read)}
    topic, *others = fields["topics"]
    if others:
        raise UriInvalid("sink-uri: name one topic, the default one; others come from dispatchers")
    return KafkaTarget(
        **{name: value for name, value in fields.items() if name in KafkaTarget.__struct_fields__},
        topic=topic,
        options=_options(document, told),
        raw_change_event=document.flat.get(_RAW) is True,
        ignored=ignored,
    )


def encoder_keys(document: Document) -> dict[str, object]:
    """Return the keys of a file that an encoder may look for by the end of their paths."""
    found = {key: value for key, value in document.flat.items() if key.startswith("sink.") or key == "force-replicate"}
    return {key: value for key, value in found.items() if "[]." not in key and not key.startswith(_OTHERS)}


def _of_file(document: Document) -> dict[str, Given]:
    """The parameters that the file gives."""
    places = {name: f"{_FILE}{name}" for name, param in KAFKA_TARGET.items() if param.field} | {
        "protocol": "sink.protocol"
    }
    found = {name: Given(path, document.flat.get(path)) for name, path in places.items()}
    return {name: given for name, given in found.items() if given.value not in {None, ""}}


def _options(document: Document, told: Mapping[str, Given]) -> EncodeOptions:
    """The encoder's options: what the address tells wins over the file, under any of its spellings."""
    below = {key: value for key, value in encoder_keys(document).items() if key.rpartition(".")[2] not in told}
    options = encode_options({**below, **{f"uri.{name}": given.value for name, given in told.items()}})
    if options.output_row_key:
        raise UnsupportedError("output-row-key: rows are written without their keys of TiKV; leave it out")
    name_place("claim-check-storage-uri", options.claim_check_storage_uri)
    return msgspec.structs.replace(options, claim_check_storage_uri=Secret(options.claim_check_storage_uri))


def _check_partitions(given: Mapping[str, Given]) -> None:
    word = str(given.get("partition-num", Given("", 1)).value)
    if all_digits(word.removeprefix("-")) and int(word) < 1:
        raise PartitionNumInvalid(f"partition-num is {word}; a topic is written to at least one partition")
