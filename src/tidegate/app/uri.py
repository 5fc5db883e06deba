r"""Source and sink addresses.

    kafka://h1,h2:9093/orders,stock?protocol=open-protocol&dead-letter=skip     -> KafkaSource
            \________/ \__________/ \_____________________________________/
             brokers      topics      parameters of params.KAFKA_SOURCE

    delta:///srv/lake?schema-change=evolve      an absolute path                -> DeltaSink
    delta://./lake                              a path from the working directory
    delta+s3://bucket/prefix                    an object store (also gs, az, abfss)

Names and values are percent-encoded as in any URI.  A parameter given twice, an unknown one and one out of its range
are errors.  Passwords never leave this file in a message: `mask_uri` hides them, `Secret` prints as xxxxx.
"""

import posixpath
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote

import msgspec

from tidegate.app.params import DELTA_SINK, KAFKA_SOURCE, PROTOCOLS, Given, Param, nearest, read_all
from tidegate.codec.options import DecodeOptions
from tidegate.model.errors import KafkaConfigInvalid, ProtocolUnknown, UnsupportedError, UriInvalid
from tidegate.source.large.address import parse_address

__all__ = ["DeltaSink", "KafkaSource", "Secret", "mask_uri", "parse_sink", "parse_source"]

MASK: Final = "xxxxx"
_SECRET_NAME: Final = re.compile(
    r"passw(or)?d|pwd|secret|token|credential|(access|account|api|private|encryption|sas)[-_.]?key|signature|^sig$",
    re.IGNORECASE,
)
_USER_INFO: Final = re.compile(r"(?<=://)([^:/?#]*):([^?#]*)@")
_PARTS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#\s]*)([^?#\0-\x1f]*)(?:\?([^#\0-\x1f]*))?(?:#(.*))?")
"""RFC 3986, appendix B; the library's own parser takes several hosts with an IPv6 one among them for an error."""
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_HOST: Final = re.compile(r"(?P<name>[^\s:\[\]@]+|\[[0-9A-Fa-f:.%]+\])(?::(?P<port>[0-9]{1,5}))?")
_OBJECT_STORES: Final = ("s3", "gs", "az", "abfss")
_OTHER_SOURCES: Final = ("tidb", "mysql", "file", "s3", "gcs", "azblob", "pulsar")
_OTHER_SINKS: Final = (
    "kafka",
    "iceberg",
    "mysql",
    "tidb",
    "file",
    "s3",
    "gcs",
    "azblob",
    "pulsar",
    "redis",
    "blackhole",
)


class Secret(str):
    """A text that prints as xxxxx; `str()` of it is the text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(MASK) if self else "''"


class KafkaSource(msgspec.Struct, frozen=True, kw_only=True):
    """Topics to read, how their messages are written and how to reach the brokers."""

    bootstrap: tuple[str, ...]
    topics: tuple[str, ...]
    protocol: str
    enable_tidb_extension: bool = False
    order: str = "ts"
    time_zone: str | None = None
    dead_letter: str = "halt"
    start: tuple[tuple[str, int, int], ...] = ()
    """(topic, partition, offset) to begin at; partitions not named begin at their earliest offset."""
    max_messages_per_batch: int = 1_000_000
    max_message_bytes: int = 10 << 20
    partition_num: int | None = None
    compression: str = "none"
    claim_check_storage_uri: Secret = Secret()  # may carry keys of an object store
    claim_check_raw_value: bool = False
    claim_check_max_bytes: int = 64 << 20
    upstream_uri: Secret = Secret()
    client_id: str = "tidegate"
    max_retry: int = 5
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

    def decode_options(self) -> DecodeOptions:
        """What a decoder of these topics has to be told."""
        return DecodeOptions(
            protocol=self.protocol,
            compression=self.compression,
            claim_check_raw_value=self.claim_check_raw_value,
            claim_check_storage_uri=str(self.claim_check_storage_uri),
            claim_check_max_bytes=self.claim_check_max_bytes,
            upstream_uri=str(self.upstream_uri),
            time_zone=self.time_zone or "UTC",
        )

    def client_config(self) -> dict[str, str]:
        """The connection as librdkafka's configuration keys."""
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


class DeltaSink(msgspec.Struct, frozen=True, kw_only=True):
    """A lake of Delta tables. `path` is a file path or an object store address (s3://bucket/prefix)."""

    path: str
    mode: str = "replica"
    schema_change: str = "evolve"
    zero_date: str = "null"
    time_zone: str | None = None
    worker_count: int | None = None
    flush_interval_ms: int = 1000
    upkeep: str = "on"
    upkeep_interval_ms: int = 60_000
    snapshot_retention_ms: int = 7 * 86_400_000
    changelog_retention_ms: int = 3_600_000
    recover_retention_ms: int = 7 * 86_400_000
    ignored: tuple[str, ...] = ()


def mask_uri(uri: str) -> str:
    """`uri` with xxxxx for the password of its user and for every parameter whose name speaks of a secret."""
    uri = _USER_INFO.sub(lambda hit: f"{hit[1]}:{MASK}@", uri)
    base, mark, query = uri.partition("?")
    query, hash_, fragment = query.partition("#")
    return base + mark + "&".join(map(_mask_parameter, query.split("&"))) + hash_ + fragment


def _mask_parameter(text: str) -> str:
    name, equals, value = text.partition("=")
    if not value:
        return text
    if _SECRET_NAME.search(unquote(name)):
        return f"{name}={MASK}"
    inner = unquote(value)
    masked = mask_uri(inner) if "://" in inner else inner
    return text if masked == inner else f"{name}{equals}{quote(masked, safe='')}"


def parse_source(uri: str, options: Mapping[str, Given] | None = None) -> KafkaSource:
    """The source behind `uri`. `options` come from a file; the URI's own parameters win over them."""
    parts = _split(uri, "source-uri")
    if parts.scheme != "kafka":
        raise _wrong_scheme("source", parts.scheme, "kafka://host:9092/topic", _OTHER_SOURCES, uri)
    given = {**(options or {}), **_parameters(parts, "source-uri", KAFKA_SOURCE, uri)}
    _check_protocol(given)
    fields, ignored = read_all(KAFKA_SOURCE, given, KafkaConfigInvalid)
    fields |= {"bootstrap": _hosts(parts.netloc, uri), "topics": _topics(parts.path, uri), "ignored": ignored}
    for secret in ("sasl_password", "claim_check_storage_uri", "upstream_uri"):
        fields[secret] = Secret(fields.get(secret, ""))
    if fields.get("enable_tls") is False and (fields.get("ca") or fields.get("cert")):
        raise KafkaConfigInvalid("source-uri: ca and cert are given, but enable-tls is false")
    source = msgspec.convert(fields, KafkaSource, dec_hook=lambda kind, value: kind(value))
    return _checked(source)


def parse_sink(uri: str, options: Mapping[str, Given] | None = None) -> DeltaSink:
    """The sink behind `uri`. `options` come from a file; the URI's own parameters win over them."""
    parts = _split(uri, "sink-uri")
    scheme, _, store = parts.scheme.partition("+")
    if scheme != "delta":
        raise _wrong_scheme("sink", parts.scheme, "delta:///path/of/lake", _OTHER_SINKS, uri)
    given = {**(options or {}), **_parameters(parts, "sink-uri", DELTA_SINK, uri)}
    fields, ignored = read_all(DELTA_SINK, given, UriInvalid)
    return msgspec.convert({**fields, "path": _lake_path(parts, store, uri), "ignored": ignored}, DeltaSink)


def _split(uri: str, where: str) -> SplitResult:
    if not uri:
        raise UriInvalid(f"{where} is missing")
    found = _PARTS.fullmatch(uri)
    if found is None:
        raise UriInvalid(f"{where}: expected SCHEME://..., found {mask_uri(uri)}")
    scheme, netloc, path, query, fragment = (part or "" for part in found.groups())
    parts = SplitResult(scheme.lower(), netloc, path, query, fragment)
    if parts.fragment:
        raise UriInvalid(f"{where}: '#' must be written %23 in {mask_uri(uri)}")
    return parts


def _wrong_scheme(what: str, scheme: str, right: str, others: tuple[str, ...], uri: str) -> Exception:
    if scheme in others:
        return UnsupportedError(f"{what}-uri: this release has no {what} {scheme}://; use {right}")
    close = nearest(scheme, [right.partition(":")[0]])
    return UriInvalid(f'{what}-uri: unknown scheme "{scheme}" in {mask_uri(uri)}{close or f"; use {right}"}')


def _parameters(parts: SplitResult, where: str, params: Mapping[str, Param], uri: str) -> dict[str, Given]:
    given: dict[str, Given] = {}
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), max_num_fields=200)
    except ValueError as error:
        raise UriInvalid(f"{where}: parameters must be NAME=VALUE joined by '&': {mask_uri(uri)}") from error
    for name, value in pairs:
        if name not in params:
            raise UriInvalid(f'{where}: unknown parameter "{name}"{nearest(name, params)}')
        if name in given:
            raise UriInvalid(f'{where}: parameter "{name}" is given twice')
        given[name] = Given(f'{where} parameter "{name}"', value)
    return {name: item for name, item in given.items() if item.value}


def _hosts(netloc: str, uri: str) -> tuple[str, ...]:
    if "@" in netloc:
        raise UriInvalid(
            f"source-uri: give user and password as parameters sasl-user and sasl-password: {mask_uri(uri)}"
        )
    hosts = []
    for text in netloc.split(","):
        found = _HOST.fullmatch(text)
        if found is None or not 0 < int(found["port"] or 9092) < 1 << 16:
            raise UriInvalid(f"source-uri: {text!r} is not HOST or HOST:PORT in {mask_uri(uri)}")
        hosts.append(f"{found['name']}:{found['port'] or 9092}")
    return tuple(hosts)


def _topics(path: str, uri: str) -> tuple[str, ...]:
    names = tuple(unquote(path.removeprefix("/")).split(","))
    if names == ("",):
        raise UriInvalid(f"source-uri: no topic; write kafka://HOST/TOPIC, found {mask_uri(uri)}")
    for name in names:
        if not _TOPIC.fullmatch(name) or name in {".", ".."}:
            raise UriInvalid(f"source-uri: {name!r} is not a topic name (letters, digits, '.', '_', '-'; at most 249)")
    if len(set(names)) < len(names):
        raise UriInvalid(f"source-uri: a topic is named twice in {','.join(names)}")
    return names


def _check_protocol(given: Mapping[str, Given]) -> None:
    where, value = given.get("protocol", Given("source-uri", ""))
    choices = " or ".join(PROTOCOLS)
    if not value:
        raise ProtocolUnknown(f"source-uri: protocol is missing; add protocol={choices}")
    known = (*PROTOCOLS, *KAFKA_SOURCE["protocol"].known)
    if isinstance(value, str) and value.lower() not in known:
        raise ProtocolUnknown(f"{where}: {value!r} is no protocol; use {choices}{nearest(value, known)}")


def _checked(source: KafkaSource) -> KafkaSource:
    """`source` with what its parameters imply. Raises when they contradict one another."""
    if source.protocol == "canal-json" and not source.enable_tidb_extension and source.order == "ts":
        raise UnsupportedError(
            "source-uri: canal-json without the TiDB extension has no commit ts and no watermarks, so transactions "
            "cannot be kept whole; set enable-tidb-extension=true if the changefeed does, or choose order=offset"
        )
    if source.protocol == "open-protocol" and source.claim_check_raw_value:
        raise KafkaConfigInvalid("source-uri: claim-check-raw-value is for canal-json only")
    strange = [topic for topic, _, _ in source.start if topic not in source.topics]
    if strange:
        raise KafkaConfigInvalid(f"source-uri: start names the topic {strange[0]!r}, which is not read")
    if source.upstream_uri:
        parse_address(source.upstream_uri)
    if bool(source.cert) != bool(source.key):
        raise KafkaConfigInvalid("source-uri: cert and key go together")
    files = bool(source.ca or source.cert)
    mechanism = source.sasl_mechanism
    if source.sasl_user or source.sasl_password:
        mechanism = mechanism or "PLAIN"
    if mechanism and not source.sasl_user:
        raise KafkaConfigInvalid("source-uri: sasl-mechanism and sasl-password need sasl-user")
    return msgspec.structs.replace(source, enable_tls=source.enable_tls or files, sasl_mechanism=mechanism)


def _lake_path(parts: SplitResult, store: str, uri: str) -> str:
    path = unquote(parts.path)
    if "\0" in path:
        raise UriInvalid("sink-uri: the path holds a NUL byte")
    if store in _OBJECT_STORES:
        if not parts.netloc:
            raise UriInvalid(f"sink-uri: the bucket is missing in {mask_uri(uri)}")
        return f"{store}://{parts.netloc}{path.rstrip('/')}"
    if store not in {"", "file"}:
        raise UriInvalid(f"sink-uri: no object store {store!r}; use one of {', '.join(_OBJECT_STORES)}")
    if parts.netloc in {".", ".."}:
        return posixpath.normpath(parts.netloc + path)
    if parts.netloc:
        raise UriInvalid(
            f"sink-uri: write delta:///{parts.netloc}{parts.path} for an absolute path or "
            f"delta://./{parts.netloc}{parts.path} for one from here"
        )
    if not path.strip("/"):
        raise UriInvalid("sink-uri: the path of the lake is missing; write delta:///path/of/lake")
    return posixpath.normpath(path)
