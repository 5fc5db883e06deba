r"""kafka:// addresses: topics to read, topics to write, and the connection to the brokers.

    kafka://h1,h2:9093/orders,stock?protocol=open-protocol&dead-letter=skip
            \________/ \__________/ \_____________________________________/
             brokers      topics      options of KafkaTopics, or of TopicTarget and the encoder (codec/encoding.py)

Parameters of TiCDC's Kafka sink that do not concern a reader of the topic are accepted without effect, so that a
changefeed's sink-uri can be pasted here.  A sink's parameters can also be in a changefeed file, under [sink] and
[sink.kafka-config]; those of the address win.

Source: TiCDC documentation, "Sink URI for Kafka" and "CLI and Configuration Parameters of TiCDC Changefeeds".
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec

from tidegate.codec.encoding import EncodeOptions, encode_options
from tidegate.codec.options import DecodeOptions
from tidegate.config.entry import Document, FeedConfig, RefusedKey, SinkEntry, SourceEntry, checkpoints_of
from tidegate.config.option import by_name, options_of, read_all
from tidegate.config.uri import (
    HOST,
    Parts,
    RawValue,
    name_file,
    nearest,
    parameters,
    report_directory,
    split,
    store_host,
)
from tidegate.engine.filter import ColumnSelectors
from tidegate.engine.kafka_brokers import SECTION, KafkaClient
from tidegate.model.errors import KafkaConfigInvalid, PartitionNumInvalid, ProtocolUnknown, UnsupportedError, UriInvalid
from tidegate.model.name import all_digits
from tidegate.model.option import Local, Option, Secret, idle
from tidegate.sink.kafka_target import TopicTarget
from tidegate.source.kafka_options import KafkaTopics
from tidegate.source.upstream_address import parse_address, with_absolute_files

if TYPE_CHECKING:
    from tidegate.changelog.source import BatchLoop
    from tidegate.engine.ports import Sink

SCHEME: Final = "kafka"
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_LARGE: Final = f"{SECTION}large-message-handle."
_OTHERS: Final = (
    "sink.csv.",
    "sink.debezium",
    "sink.cloud-storage-config.",
    "sink.mysql-config.",
    "sink.delta-config.",
)
"""Keys of other sinks and protocols, some of which have the names of options here."""
LOOKING: Final[Mapping[str, RawValue]] = {"order": RawValue("looking", "offset")}
"""Read-only commands accept any topic; the address's own order wins."""

PROTOCOLS: Final = ("open-protocol", "canal-json")


KAFKA_CLIENT: Final = options_of(KafkaClient)


KAFKA_SOURCE: Final[Mapping[str, Option]] = {
    **options_of(KafkaTopics),
    **by_name(
        (
            idle("replication-factor", "int", "copies of a new topic"),
            idle("kafka-version", "text", "the client negotiates it"),
            idle("max-batch-size", "int", "rows per message"),
            idle("compression", "text", "the producer's compression: detected by the client"),
            idle("auto-create-topic", "bool", "create the topic"),
            idle("required-acks", "int", "acknowledgements of writes"),
            idle("write-timeout", "duration", "time for a write"),
            idle("only-output-updated-columns", "bool", "recognised from the messages"),
            idle("content-compatible", "bool", "recognised from the messages"),
            idle("output-row-key", "bool", "recognised from the messages"),
        )
    ),
}


def parse_source(uri: str, options: Mapping[str, RawValue] | None = None) -> KafkaTopics:
    """Return the topics at `uri`; its parameters win over `options`, which come from a file."""
    parts = split(uri, "source-uri", [SCHEME])
    values = {**(options or {}), **parameters(parts, KAFKA_SOURCE)}
    check_protocol(parts, values)
    fields, ignored = read_all(KAFKA_SOURCE, values, KafkaConfigInvalid)
    source = KafkaTopics(**{**fields, **address_fields(parts, fields), "ignored": ignored})
    _check(source)
    return msgspec.structs.replace(source, upstream_uri=Secret(with_absolute_files(source.upstream_uri)))


def address_fields(parts: Parts, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return brokers, topics and login of an address as fields, with what its parameters imply.

    Raises UriInvalid, and KafkaConfigInvalid for parameters that contradict one another."""
    where = parts.where
    fields = {"bootstrap": _hosts(parts), "topics": _topics(parts)}
    if options.get("enable_tls") is False and (options.get("ca") or options.get("cert")):
        raise KafkaConfigInvalid(f"{where}: ca and cert are given, but enable-tls is false")
    if bool(options.get("cert")) != bool(options.get("key")):
        raise KafkaConfigInvalid(f"{where}: cert and key must be set together")
    user, password, mechanism = (options.get(f"sasl_{name}", "") for name in ("user", "password", "mechanism"))
    if (mechanism or password) and not user:
        raise KafkaConfigInvalid(f"{where}: sasl-mechanism and sasl-password need sasl-user")
    return {
        **fields,
        "enable_tls": bool(options.get("enable_tls") or options.get("ca") or options.get("cert")),
        "sasl_password": Secret(password),
        "sasl_mechanism": mechanism or ("PLAIN" if user else ""),
    }


def check_protocol(parts: Parts, options: Mapping[str, RawValue]) -> None:
    """Raise ProtocolUnknown for an address without a protocol, or with an unknown one."""
    where, value = options.get("protocol", RawValue(parts.where, ""))
    choices = " or ".join(PROTOCOLS)
    if not value:
        raise ProtocolUnknown(f"{where}: protocol is missing; add protocol={choices}")
    protocols = (*PROTOCOLS, *KAFKA_SOURCE["protocol"].unsupported)
    if isinstance(value, str) and value.lower() not in protocols:
        raise ProtocolUnknown(f"{where}: {value!r} is not a protocol; use {choices}{nearest(value, protocols)}")


def _hosts(parts: Parts) -> tuple[str, ...]:
    where = parts.where
    if "@" in parts.netloc:
        raise UriInvalid(f"{where}: give user and password as parameters sasl-user and sasl-password: {parts.shown}")
    hosts = []
    for text in parts.netloc.split(","):
        match = HOST.fullmatch(text)
        if match is None or not 0 < int(match["port"] or 9092) < 1 << 16:
            raise UriInvalid(f"{where}: {text!r} is not HOST or HOST:PORT in {parts.shown}")
        hosts.append(f"{match['name']}:{match['port'] or 9092}")
    return tuple(hosts)


def _topics(parts: Parts) -> tuple[str, ...]:
    where = parts.where
    names = tuple(unquote(parts.path.removeprefix("/")).split(","))
    if names == ("",):
        raise UriInvalid(f"{where}: no topic; expected kafka://HOST/TOPIC, found {parts.shown}")
    for name in names:
        if not _TOPIC.fullmatch(name) or name in {".", ".."}:
            raise UriInvalid(f"{where}: {name!r} is not a topic name (letters, digits, '.', '_', '-'; at most 249)")
    if len(set(names)) < len(names):
        raise UriInvalid(f"{where}: a topic is named twice in {','.join(names)}")
    return names


def _check(source: KafkaTopics) -> None:
    """Raise for parameters that contradict one another."""
    if source.protocol == "canal-json" and not source.enable_tidb_extension and source.order == "ts":
        raise UnsupportedError(
            "source-uri: canal-json without the TiDB extension has no commit ts and no watermarks, so transactions "
            "cannot be kept whole; set enable-tidb-extension=true if TiCDC's changefeed does, or choose order=offset"
        )
    if source.protocol == "open-protocol" and source.claim_check_raw_value:
        raise KafkaConfigInvalid("source-uri: claim-check-raw-value is for canal-json only")
    for name, positions in (("start", source.start), ("made-anew", source.made_anew)):
        strange = [topic for topic, *_ in positions if topic not in source.topics]
        if strange:
            raise KafkaConfigInvalid(f"source-uri: {name} names the topic {strange[0]!r}, which is not read")
    if source.upstream_uri:
        upstream = parse_address(source.upstream_uri)
        for path in (upstream.ssl_ca, upstream.ssl_cert, upstream.ssl_key):
            name_file("large-message-upstream-uri", path)


def kafka_topics(uri: str, decode: DecodeOptions | None = None) -> KafkaTopics:
    """Return the topics of `uri` for commands that only read. `decode` replaces the address's own protocol and
    options."""
    values = dict(LOOKING)
    if decode is not None:
        values["protocol"] = RawValue("--protocol", decode.protocol)
    return msgspec.structs.replace(parse_source(uri, values), decoder=decode)


KAFKA_TARGET: Final[Mapping[str, Option]] = {
    **options_of(
        EncodeOptions,
        protocol=KAFKA_SOURCE["protocol"],
        enable_tidb_extension=Option(
            "enable-tidb-extension",
            "canal-json: messages carry `_tidb` with commit ts and watermarks",
            key=f"{SECTION}codec-config.",
        ),
        time_zone=Option("time-zone", "time zone of written TIMESTAMP values", "zone"),
        max_message_bytes=Option(
            "max-message-bytes", "maximum message size; lowered to the broker's or topic's limit", low=1, key=SECTION
        ),
        max_batch_size=Option(
            "max-batch-size", "open-protocol: maximum rows of a message", key=f"{SECTION}codec-config."
        ),
        only_output_updated_columns=Option(
            "only-output-updated-columns", "old values of an UPDATE: only of the changed columns", key="sink."
        ),
        content_compatible=Option(
            "content-compatible", "canal-json: the official format; implies `only-output-updated-columns`", key="sink."
        ),
        output_row_key=Option("output-row-key", "refused: messages do not include TiKV keys"),
        compression=Option(
            "large-message-handle-compression",
            "compression inside each message value: `none`, `snappy` or `lz4`",
            choices=("none", "snappy", "lz4"),
            kind="choice",
            key=_LARGE,
        ),
        claim_check_storage_uri=Option(
            "claim-check-storage-uri", "location of claim-check files", "secret", local=Local.LOCATION, key=_LARGE
        ),
        claim_check_raw_value=Option(
            "claim-check-raw-value", "claim-check files contain only the value (canal-json)", key=_LARGE
        ),
    ),
    **options_of(TopicTarget),
    **by_name(
        (
            idle("kafka-version", "text", "the client negotiates it", key=SECTION),
            idle("required-acks", "int", "all replicas acknowledge every message", key=SECTION),
            idle("write-timeout", "duration", "time for a write", key=SECTION),
        )
    ),
}


_CLIENT_AND_TOPICS: Final = [each for each in KAFKA_TARGET.values() if each.key in {SECTION, "sink.protocol"}]
"""Options that a file has beside the keys of the encoder."""


def parse_target(uri: str, document: Document | None = None) -> TopicTarget:
    """Return the topics at `uri` with the keys of a changefeed file. Raises ConfigErrors as TiCDC would."""
    document = document or Document()
    parts = split(uri, "sink-uri", [SCHEME])
    if not parts.path.strip("/"):
        raise KafkaConfigInvalid(f"sink-uri: no topic; expected kafka://HOST:PORT/TOPIC, found {parts.shown}")
    parameter = parameters(parts, KAFKA_TARGET)
    values = {**document.options(_CLIENT_AND_TOPICS), **parameter}
    partitions = str(values.get("partition-num", RawValue("", 1)).value)
    if all_digits(partitions.removeprefix("-")) and int(partitions) < 1:
        raise PartitionNumInvalid(f"partition-num is {partitions}; a topic is written to at least one partition")
    check_protocol(parts, values)
    read, ignored = read_all(KAFKA_TARGET, values, KafkaConfigInvalid)
    fields: dict[str, Any] = {**read, **address_fields(parts, read)}
    topic, *others = fields["topics"]
    if others:
        raise UriInvalid("sink-uri: expected exactly one topic, the default topic; dispatchers name others")
    return TopicTarget(
        **{name: value for name, value in fields.items() if name in TopicTarget.__struct_fields__},
        topic=topic,
        options=_options(document, parameter),
        raw_change_event=document.flat.get(f"{SECTION}output-raw-change-event") is True,
        ignored=ignored,
    )


def encoder_keys(document: Document) -> dict[str, object]:
    """Return the keys of a file that an encoder may look for by the end of their paths."""
    keys = {key: value for key, value in document.flat.items() if key.startswith("sink.") or key == "force-replicate"}
    return {key: value for key, value in keys.items() if "[]." not in key and not key.startswith(_OTHERS)}


def _options(document: Document, in_address: Mapping[str, RawValue]) -> EncodeOptions:
    """The encoder's options: those of the address win over the file, in any spelling."""
    below = {key: value for key, value in encoder_keys(document).items() if key.rpartition(".")[2] not in in_address}
    options = encode_options({**below, **{f"uri.{name}": option.value for name, option in in_address.items()}})
    if options.output_row_key:
        raise UnsupportedError("output-row-key: messages do not include TiKV keys; remove the parameter")
    report_directory("claim-check-storage-uri", options.claim_check_storage_uri)
    return msgspec.structs.replace(options, claim_check_storage_uri=Secret(options.claim_check_storage_uri))


def _land(config: FeedConfig, home: str, _: SinkEntry) -> "BatchLoop":
    from tidegate.source.kafka_land import Landing

    assert isinstance(config.source, KafkaTopics)
    accept = config.table_filter().matches
    return Landing(config.source, home, config.name, accept=accept, events=config.events)


def _check_topics(config: FeedConfig, _: SinkEntry) -> None:
    from tidegate.source.kafka_client import described

    assert isinstance(config.source, KafkaTopics)
    described(config.source)


def _open(config: FeedConfig, source: SourceEntry) -> "Sink[Any]":
    from tidegate.sink.kafka import KafkaSink

    assert isinstance(config.sink, TopicTarget)
    target = msgspec.structs.replace(
        config.sink,
        rules=config.dispatchers,
        selectors=ColumnSelectors.of(config.selectors, case_sensitive=config.case_sensitive),
        case_sensitive=config.case_sensitive,
    )
    force = source.brings_keyless(config.source)
    return KafkaSink(target, checkpoints_of(config), rules=config.table_filter(), force=force)


SOURCE: Final = SourceEntry(
    scheme=SCHEME,
    about="topics that TiCDC writes",
    example="kafka://127.0.0.1:9092/shop?protocol=open-protocol",
    params=KAFKA_SOURCE,
    section="source.",
    parse=lambda uri, document: parse_source(uri, document.section("source.", KAFKA_SOURCE)),
    address=KafkaTopics,
    land=_land,
    check=_check_topics,
    ordered=False,
    lacks_commit_ts=lambda source: "order=offset" if source.order == "offset" else "",
    tells_start_ts=False,
    moments=False,
    zone_of=lambda source: source.time_zone,
    tokens_go_to=lambda source: store_host(source.claim_check_storage_uri),
    start_ts_refused="a topic starts at the offsets of the source-uri parameter start",
    has_old_values=lambda source: source.protocol != "open-protocol",
    has_types=lambda source: source.protocol != "open-protocol",
    warnings=KafkaTopics.warnings,
)
_LOGIN: Final = RefusedKey(("", [], False), UnsupportedError, "the client supports PLAIN and SCRAM only")
_NAMES: Final = RefusedKey(("",), UnsupportedError, "messages use the upstream's names")
SINK: Final = SinkEntry(
    scheme=SCHEME,
    about="topics, as TiCDC writes them",
    example="kafka://127.0.0.1:9092/shop-out?protocol=open-protocol",
    params=KAFKA_TARGET,
    parse=parse_target,
    address=TopicTarget,
    open=_open,
    sends=True,
    zone_of=lambda sink: sink.options.time_zone,
    acts=frozenset(
        {
            *(
                f"sink.dispatchers[].{name}"
                for name in ("matcher", "dispatcher", "partition", "topic", "index", "columns")
            ),
            *("sink.column-selectors[].matcher", "sink.column-selectors[].columns"),
            *("sink.delete-only-output-handle-key-columns", "sink.open.output-old-value"),
            *(f"{SECTION}output-raw-change-event", f"{_LARGE}large-message-handle-option"),
        }
    ),
    refuses={
        "sink.transaction-atomicity": RefusedKey(
            ("none", ""), UriInvalid, "a message queue has no transactions of tables"
        ),
        "sink.schema-registry": RefusedKey(("",), UnsupportedError, "for avro, which is not supported"),
        "sink.dispatchers[].target-schema": _NAMES,
        "sink.dispatchers[].target-table": _NAMES,
        f"{SECTION}sasl-gssapi-": _LOGIN,
        f"{SECTION}sasl-oauth-": _LOGIN,
    },
    tokens_go_to=lambda sink: store_host(sink.options.claim_check_storage_uri),
    needs_types=TopicTarget.needs_types,
    warnings=TopicTarget.warnings,
)
