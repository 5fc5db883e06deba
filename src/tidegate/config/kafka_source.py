r"""A kafka:// address that is read: topics, how their messages are written, and how to reach the brokers.

    kafka://h1,h2:9093/orders,stock?protocol=open-protocol&dead-letter=skip
            \________/ \__________/ \_____________________________________/
             brokers      topics      parameters of KAFKA_SOURCE, those of KAFKA_CLIENT among them

Parameters of TiCDC's Kafka sink that say nothing to a reader of the topic are accepted without effect, so that a
changefeed's own sink-uri can be pasted here.

Source: TiCDC documentation, "Sink URI for Kafka".
"""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from tidegate.codec.options import DecodeOptions
from tidegate.config.local_name import Local, name_file
from tidegate.config.param import Given, Param, idle, nearest, read_all
from tidegate.config.uri import Parts, Secret, parameters, split
from tidegate.model.errors import KafkaConfigInvalid, ProtocolUnknown, UnsupportedError, UriInvalid
from tidegate.source.upstream_address import parse_address

SCHEME: Final = "kafka"
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_HOST: Final = re.compile(r"(?P<name>[^\s:\[\]@]+|\[[0-9A-Fa-f:.%]+\])(?::(?P<port>[0-9]{1,5}))?")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS: Final = ("open-protocol", "canal-json")
PROTOCOL: Final = Param(
    "choice",
    "protocol",
    "required",
    "`open-protocol` or `canal-json`",
    PROTOCOLS,
    known=("avro", "canal", "craft", "csv", "debezium", "maxwell", "simple"),
)

KAFKA_CLIENT: Final[Mapping[str, Param]] = {
    "kafka-client-id": Param("text", "client_id", "tidegate", "name of this client in the broker's logs"),
    "dial-timeout": Param("duration", "dial_timeout_ms", "10s", "time to reach a broker", low=1),
    "read-timeout": Param("duration", "read_timeout_ms", "10s", "time for a broker's answer", low=1),
    "enable-tls": Param("bool", "enable_tls", "false", "use TLS; implied by ca, cert and key"),
    "ca": Param("text", "ca", "", "path of the CA certificate", local=Local.FILE),
    "cert": Param("text", "cert", "", "path of the client certificate", local=Local.FILE),
    "key": Param("text", "key", "", "path of the client key", local=Local.FILE),
    "insecure-skip-verify": Param(
        "bool", "insecure_skip_verify", "false", "TLS without checking the broker's certificate and name"
    ),
    "sasl-user": Param("text", "sasl_user", "", "SASL user"),
    "sasl-password": Param("secret", "sasl_password", "", "SASL password"),
    "sasl-mechanism": Param(
        "mechanism",
        "sasl_mechanism",
        "PLAIN with a user",
        "`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`",
        _MECHANISMS,
        known=("GSSAPI", "OAUTHBEARER"),
    ),
}
"""How to reach the brokers, to read and to write."""

KAFKA_SOURCE: Final[Mapping[str, Param]] = {
    "protocol": PROTOCOL,
    "enable-tidb-extension": Param(
        "bool", "enable_tidb_extension", "false", "canal-json: messages carry `_tidb` with commit ts and watermarks"
    ),
    "order": Param(
        "choice",
        "order",
        "ts",
        "`ts`: by commit ts, complete up to the watermark; `offset`: as messages come, transactions may be cut",
        ("ts", "offset"),
    ),
    "time-zone": Param("zone", "time_zone", "UTC", "zone in which TiCDC wrote TIMESTAMP values (its `--tz`)"),
    "dead-letter": Param(
        "choice",
        "dead_letter",
        "halt",
        "a message that cannot be read stops the feed (`halt`) or is put aside (`skip`)",
        ("halt", "skip"),
    ),
    "start": Param(
        "start",
        "start",
        "earliest",
        "where a new changefeed begins: `earliest`, or a list such as `shop/0:120,shop/1:98` (topic/partition:offset)",
    ),
    "made-anew": Param(
        "topic_ids",
        "made_anew",
        "",
        "topics that were deleted and made again, and are read from their first message: a list such as "
        "`shop:GmQv0TnYQ3mC4uTPQ2VQ0A` (topic:id); with `:same-offsets` behind it, on from the offsets stored",
    ),
    "max-messages-per-batch": Param(
        "int", "max_messages_per_batch", "1000000", "most messages that one micro-batch takes", low=1
    ),
    "max-message-bytes": Param(
        "int",
        "max_message_bytes",
        "10485760",
        "largest message that the changefeed writes; above this and 32 MiB a message counts as one that cannot be read",
        low=1,
        high=1 << 30,
    ),
    "large-message-handle-compression": Param(
        "choice",
        "compression",
        "none",
        "compression inside each message value: `none`, `snappy` or `lz4`",
        ("none", "snappy", "lz4"),
    ),
    "claim-check-storage-uri": Param(
        "text", "claim_check_storage_uri", "", "where claim-check files lie", local=Local.PLACE
    ),
    "claim-check-raw-value": Param(
        "bool", "claim_check_raw_value", "false", "claim-check files hold the bare value (canal-json)"
    ),
    "claim-check-max-bytes": Param(
        "int",
        "claim_check_max_bytes",
        "67108864",
        "largest claim-check file that is fetched; above it a message counts as one that cannot be read",
        low=1,
        high=1 << 30,
    ),
    "large-message-upstream-uri": Param(
        "secret",
        "upstream_uri",
        "",
        "`mysql://USER:PASSWORD@HOST:PORT/` of the TiDB, from which rows are read of which only the handle key came",
    ),
    **KAFKA_CLIENT,
    "max-retry": Param(
        "int",
        "max_retry",
        "5",
        "quick tries of a failing step; then `changefeed-error-stuck-duration` decides",
        high=1000,
    ),
    "partition-num": Param(
        "int", "partition_num", "", "the changefeed writes to this many partitions of each topic (all)", low=1
    ),
    "replication-factor": idle("int", "1", "copies of a new topic"),
    "kafka-version": idle("text", "2.4.0", "the client negotiates it"),
    "max-batch-size": idle("int", "16", "rows a message"),
    "compression": idle("text", "none", "the producer's compression: the client sees it"),
    "auto-create-topic": idle("bool", "true", "create the topic"),
    "required-acks": idle("int", "-1", "acknowledgements of writes"),
    "write-timeout": idle("duration", "10s", "time for a write"),
    "only-output-updated-columns": idle("bool", "false", "recognised from the messages"),
    "content-compatible": idle("bool", "false", "recognised from the messages"),
    "output-row-key": idle("bool", "false", "recognised from the messages"),
}


class KafkaClient(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the brokers."""

    bootstrap: tuple[str, ...]
    client_id: str = "tidegate"
    dial_timeout_ms: int = 10_000
    read_timeout_ms: int = 10_000
    enable_tls: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""
    insecure_skip_verify: bool = False
    sasl_user: str = ""
    sasl_password: Secret = Secret()
    sasl_mechanism: str = ""
    ignored: tuple[str, ...] = ()
    """Parameters that were accepted without effect."""

    def warnings(self) -> tuple[str, ...]:
        """Return what a user should hear of a connection that works, but that others may read or answer."""
        host, *_ = self.bootstrap
        if self.sasl_mechanism == "PLAIN" and not self.enable_tls:
            return (f"{host}: the password of sasl-user goes to the broker in clear; use enable-tls=true, or SCRAM",)
        if self.insecure_skip_verify and self.enable_tls:
            return (f"{host}: insecure-skip-verify takes whoever answers for the broker; name its authority in ca",)
        return ()

    def client_config(self) -> dict[str, str]:
        """Return the connection as librdkafka's configuration keys."""
        config = {
            "bootstrap.servers": ",".join(self.bootstrap),
            "client.id": self.client_id,
            "socket.connection.setup.timeout.ms": str(min(max(self.dial_timeout_ms, 1000), 2**31 - 1)),
            "socket.timeout.ms": str(min(max(self.read_timeout_ms, 10), 300_000)),
            "security.protocol": ("SASL_" if self.sasl_mechanism else "") + ("SSL" if self.enable_tls else "PLAINTEXT"),
        }
        files = {"ssl.ca.location": self.ca, "ssl.certificate.location": self.cert, "ssl.key.location": self.key}
        config |= {key: path for key, path in files.items() if path}
        if self.enable_tls and self.insecure_skip_verify:
            config |= {"enable.ssl.certificate.verification": "false", "ssl.endpoint.identification.algorithm": "none"}
        if self.sasl_mechanism:
            config |= {
                "sasl.mechanism": self.sasl_mechanism,
                "sasl.username": self.sasl_user,
                "sasl.password": str(self.sasl_password),
            }
        return config


class KafkaSource(KafkaClient, frozen=True, kw_only=True):
    """Topics to read and how their messages are written."""

    topics: tuple[str, ...]
    protocol: str
    enable_tidb_extension: bool = False
    order: str = "ts"
    time_zone: str | None = None
    dead_letter: str = "halt"
    start: tuple[tuple[str, int, int], ...] = ()
    """(topic, partition, offset) to begin at; partitions not named begin at their earliest offset."""
    made_anew: tuple[tuple[str, str, bool], ...] = ()
    """(topic, id, whether its offsets are those of the one before)."""
    max_messages_per_batch: int = 1_000_000
    max_message_bytes: int = 10 << 20
    partition_num: int | None = None
    compression: str = "none"
    claim_check_storage_uri: Secret = Secret()  # may carry keys of an object store
    claim_check_raw_value: bool = False
    claim_check_max_bytes: int = 64 << 20
    upstream_uri: Secret = Secret()
    max_retry: int = 5

    def decode_options(self) -> DecodeOptions:
        """Return what a decoder of these topics has to be told."""
        return DecodeOptions(
            protocol=self.protocol,
            compression=self.compression,
            claim_check_raw_value=self.claim_check_raw_value,
            claim_check_storage_uri=str(self.claim_check_storage_uri),
            claim_check_max_bytes=self.claim_check_max_bytes,
            upstream_uri=str(self.upstream_uri),
            time_zone=self.time_zone or "UTC",
        )

    @property
    def label(self) -> str:
        """The words that begin a changefeed's name."""
        return self.topics[0]

    @property
    def identity(self) -> str:
        """What tells this source from others in the names of changefeeds."""
        return ",".join(sorted(self.topics))

    @property
    def places(self) -> frozenset[str]:
        """What is read: each topic at each broker."""
        return frozenset(f"{host}/{topic}" for host in self.bootstrap for topic in self.topics)

    def warnings(self) -> tuple[str, ...]:
        """Return what a user should hear of an address that works, but perhaps not as meant."""
        if self.order == "ts":
            return super().warnings()
        told = "order=offset: rows are applied as they come; transactions may be cut across partitions"
        return (told, *super().warnings())


def parse_source(uri: str, options: Mapping[str, Given] | None = None) -> KafkaSource:
    """Return the topics behind `uri`; its parameters win over `options`, which come from a file."""
    parts = split(uri, "source-uri", [SCHEME])
    given = {**(options or {}), **parameters(parts, KAFKA_SOURCE)}
    check_protocol(parts, given)
    fields, ignored = read_all(KAFKA_SOURCE, given, KafkaConfigInvalid)
    for secret in ("claim_check_storage_uri", "upstream_uri"):
        fields[secret] = Secret(fields.get(secret, ""))
    fields |= {**address_fields(parts, fields), "ignored": ignored}
    source = msgspec.convert(fields, KafkaSource, dec_hook=lambda kind, value: kind(value))
    _check(source)
    return source


def address_fields(parts: Parts, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return brokers, topics and login of an address as fields, with what its parameters imply.

    Raises UriInvalid, and KafkaConfigInvalid for parameters that contradict one another."""
    where = parts.where
    fields = {"bootstrap": _hosts(parts), "topics": _topics(parts)}
    if given.get("enable_tls") is False and (given.get("ca") or given.get("cert")):
        raise KafkaConfigInvalid(f"{where}: ca and cert are given, but enable-tls is false")
    if bool(given.get("cert")) != bool(given.get("key")):
        raise KafkaConfigInvalid(f"{where}: cert and key go together")
    user, password, mechanism = (given.get(f"sasl_{name}", "") for name in ("user", "password", "mechanism"))
    if (mechanism or password) and not user:
        raise KafkaConfigInvalid(f"{where}: sasl-mechanism and sasl-password need sasl-user")
    return {
        **fields,
        "enable_tls": bool(given.get("enable_tls") or given.get("ca") or given.get("cert")),
        "sasl_password": Secret(password),
        "sasl_mechanism": mechanism or ("PLAIN" if user else ""),
    }


def check_protocol(parts: Parts, given: Mapping[str, Given]) -> None:
    """Raise ProtocolUnknown for an address without a protocol, or with one that nobody knows."""
    where, value = given.get("protocol", Given(parts.where, ""))
    choices = " or ".join(PROTOCOLS)
    if not value:
        raise ProtocolUnknown(f"{where}: protocol is missing; add protocol={choices}")
    known = (*PROTOCOLS, *PROTOCOL.known)
    if isinstance(value, str) and value.lower() not in known:
        raise ProtocolUnknown(f"{where}: {value!r} is no protocol; use {choices}{nearest(value, known)}")


def _hosts(parts: Parts) -> tuple[str, ...]:
    where = parts.where
    if "@" in parts.netloc:
        raise UriInvalid(f"{where}: give user and password as parameters sasl-user and sasl-password: {parts.shown}")
    hosts = []
    for text in parts.netloc.split(","):
        found = _HOST.fullmatch(text)
        if found is None or not 0 < int(found["port"] or 9092) < 1 << 16:
            raise UriInvalid(f"{where}: {text!r} is not HOST or HOST:PORT in {parts.shown}")
        hosts.append(f"{found['name']}:{found['port'] or 9092}")
    return tuple(hosts)


def _topics(parts: Parts) -> tuple[str, ...]:
    where = parts.where
    names = tuple(unquote(parts.path.removeprefix("/")).split(","))
    if names == ("",):
        raise UriInvalid(f"{where}: no topic; write kafka://HOST/TOPIC, found {parts.shown}")
    for name in names:
        if not _TOPIC.fullmatch(name) or name in {".", ".."}:
            raise UriInvalid(f"{where}: {name!r} is not a topic name (letters, digits, '.', '_', '-'; at most 249)")
    if len(set(names)) < len(names):
        raise UriInvalid(f"{where}: a topic is named twice in {','.join(names)}")
    return names


def _check(source: KafkaSource) -> None:
    """Raise for parameters that contradict one another."""
    if source.protocol == "canal-json" and not source.enable_tidb_extension and source.order == "ts":
        raise UnsupportedError(
            "source-uri: canal-json without the TiDB extension has no commit ts and no watermarks, so transactions "
            "cannot be kept whole; set enable-tidb-extension=true if the changefeed does, or choose order=offset"
        )
    if source.protocol == "open-protocol" and source.claim_check_raw_value:
        raise KafkaConfigInvalid("source-uri: claim-check-raw-value is for canal-json only")
    for name, given in (("start", source.start), ("made-anew", source.made_anew)):
        strange = [topic for topic, *_ in given if topic not in source.topics]
        if strange:
            raise KafkaConfigInvalid(f"source-uri: {name} names the topic {strange[0]!r}, which is not read")
    if source.upstream_uri:
        upstream = parse_address(source.upstream_uri)
        for path in (upstream.ssl_ca, upstream.ssl_cert, upstream.ssl_key):
            name_file("large-message-upstream-uri", path)
