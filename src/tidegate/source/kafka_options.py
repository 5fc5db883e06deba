"""The topics that a feed reads, as one value: the options of a kafka:// source, and those of its clients."""

from typing import Annotated, Final, Literal

from tidegate.codec.options import DecodeOptions
from tidegate.engine.kafka_brokers import KafkaClient
from tidegate.model.errors import ConfigError
from tidegate.model.option import DEAD_LETTER, MAX_RETRY, SOURCE_ZONE, Local, Option, Secret

FETCH_BYTES: Final = 8 << 20
"""The size of one fetch of a partition, compressed as sent; a larger message still comes whole."""
RESPONSE_BYTES: Final = 100_000_000
"""The client library's default limit for a response."""
MESSAGE_BYTES: Final = 32 << 20
"""Larger messages are put aside unread: decoding takes some eight times their size. TiCDC's own limit is 10 MiB unless
its max-message-bytes says otherwise."""

Compression = Literal["none", "snappy", "lz4"]
Protocol = Annotated[
    Literal["open-protocol", "canal-json"],
    Option(
        "protocol",
        "`open-protocol` or `canal-json`",
        default="required",
        unsupported=("avro", "canal", "craft", "csv", "debezium", "maxwell", "simple"),
        key="sink.protocol",
    ),
]
TidbExtension = Annotated[
    bool, Option("enable-tidb-extension", "canal-json: messages carry `_tidb` with commit ts and watermarks")
]


class KafkaTopics(KafkaClient, frozen=True, kw_only=True):
    """Topics to read, and the options of their messages; a value that is sent to tasks.

    A batch holds at most `max_messages_per_batch` messages, limited to what takes a few seconds; a task writes its rows
    whenever it holds `max_bytes_per_flush`.  `decoder` replaces the address's message options, for read-only commands.
    `made_anew` names topics that are read although another of that name was read before (kafka_land.py)."""

    topics: tuple[str, ...]
    protocol: Protocol
    enable_tidb_extension: TidbExtension = False
    order: Annotated[
        Literal["ts", "offset"],
        Option(
            "order",
            "`ts`: by commit ts, complete up to the watermark; `offset`: in message order, transactions may be split",
        ),
    ] = "ts"
    time_zone: Annotated[str | None, SOURCE_ZONE] = None
    dead_letter: Annotated[Literal["halt", "skip"], DEAD_LETTER] = "halt"
    start: Annotated[
        tuple[tuple[str, int, int], ...],
        Option(
            "start",
            "where a new changefeed begins: `earliest`, or a list such as `shop/0:120,shop/1:98` "
            "(topic/partition:offset)",
            "start",
            default="earliest",
        ),
    ] = ()
    """(topic, partition, offset) to begin at; partitions not named begin at their earliest offset."""
    made_anew: Annotated[
        tuple[tuple[str, str, bool], ...],
        Option(
            "made-anew",
            "topics that were deleted and recreated, to be read from their first message: a list such as "
            "`shop:GmQv0TnYQ3mC4uTPQ2VQ0A` (topic:id); with the suffix `:same-offsets`, from the stored offsets",
            "topic_ids",
            default="",
        ),
    ] = ()
    """(topic, id, whether its offsets are those of the one before)."""
    max_messages_per_batch: Annotated[
        int, Option("max-messages-per-batch", "maximum messages of a micro-batch", low=1)
    ] = 1_000_000
    max_message_bytes: Annotated[
        int,
        Option(
            "max-message-bytes",
            "maximum message size that TiCDC writes; above this and 32 MiB a message counts as one that cannot be read",
            low=1,
            high=1 << 30,
        ),
    ] = 10 << 20
    compression: Annotated[
        Compression,
        Option("large-message-handle-compression", "compression inside each message value: `none`, `snappy` or `lz4`"),
    ] = "none"
    legacy: Annotated[
        bool,
        Option(
            "legacy",
            "canal-json: ENUM and SET by name, as in Alibaba's Canal; open-protocol: VARCHAR in base64",
        ),
    ] = False
    claim_check_storage_uri: Annotated[
        Secret, Option("claim-check-storage-uri", "location of claim-check files", local=Local.LOCATION)
    ] = Secret()  # may carry keys of an object store
    claim_check_raw_value: Annotated[
        bool, Option("claim-check-raw-value", "claim-check files contain only the value (canal-json)")
    ] = False
    claim_check_max_bytes: Annotated[
        int,
        Option(
            "claim-check-max-bytes",
            "maximum size of a claim-check file; beyond it a message counts as one that cannot be read",
            low=1,
            high=1 << 30,
        ),
    ] = 64 << 20
    upstream_uri: Annotated[
        Secret,
        Option(
            "large-message-upstream-uri",
            "`mysql://USER:PASSWORD@HOST:PORT/` of the TiDB, from which rows are read of which only the handle key "
            "came; `?enable-tls=false` behind it for a TiDB without TLS, its default",
        ),
    ] = Secret()
    max_retry: Annotated[int, MAX_RETRY] = 5
    partition_num: Annotated[
        int | None,
        Option("partition-num", "number of partitions of each topic that the changefeed writes (all)", low=1),
    ] = None

    decoder: DecodeOptions | None = None
    max_bytes_per_flush: int = 32 << 20

    def __post_init__(self) -> None:
        for name, allowed in (("dead_letter", ("halt", "skip")), ("order", ("ts", "offset"))):
            value = getattr(self, name)
            if value not in allowed:
                raise ConfigError(f"{name.replace('_', '-')}: {value!r} is not one of {', '.join(allowed)}")
        if not self.topics or "" in self.topics:
            raise ConfigError("a Kafka source needs at least one topic")
        if self.max_messages_per_batch < 1 or self.max_bytes_per_flush < 1:
            raise ConfigError("max-messages-per-batch and max-bytes-per-flush must be at least 1")

    def __repr__(self) -> str:
        return f"KafkaTopics({','.join(self.topics)} at {self.brokers})"

    @property
    def brokers(self) -> str:
        """The brokers, for messages and clients."""
        return ",".join(self.bootstrap)

    @property
    def timeout_s(self) -> float:
        return max(self.read_timeout_ms / 1000, 1.0)

    @property
    def message_bytes(self) -> int:
        """The largest message that is read; a larger one counts as one that cannot be read."""
        return max(self.max_message_bytes, MESSAGE_BYTES)

    @property
    def connection(self) -> tuple[tuple[str, str], ...]:
        """The configuration of librdkafka as a dictionary key."""
        room = max(RESPONSE_BYTES, self.message_bytes + FETCH_BYTES)
        return tuple(sorted({**self.client_config(), "receive.message.max.bytes": str(room)}.items()))

    def decode_options(self) -> DecodeOptions:
        """Return the decoder's options for these topics."""
        return self.decoder or DecodeOptions(
            protocol=self.protocol,
            compression=self.compression,
            legacy=self.legacy,
            claim_check_raw_value=self.claim_check_raw_value,
            claim_check_storage_uri=str(self.claim_check_storage_uri),
            claim_check_max_bytes=self.claim_check_max_bytes,
            upstream_uri=str(self.upstream_uri),
            time_zone=self.time_zone or "UTC",
        )

    @property
    def label(self) -> str:
        return self.topics[0]

    @property
    def identity(self) -> str:
        return ",".join(sorted(self.topics))

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset(f"{host}/{topic}" for host in self.bootstrap for topic in self.topics)

    def warnings(self) -> tuple[str, ...]:
        """Return warnings about an address that works, but perhaps not as intended."""
        if self.order == "ts":
            return super().warnings()
        note = "order=offset: rows are applied as they come; transactions may be cut across partitions"
        return (note, *super().warnings())
