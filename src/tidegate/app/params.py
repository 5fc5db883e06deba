r"""Parameters of source and sink: one table each, for URIs, for configuration files and for the documentation.

    kafka://h1,h2:9093/shop?protocol=open-protocol&dead-letter=skip      [source]
                            \_______________________________/           dead-letter = "skip"
                              one Param each, by its name                max-retry = 3

A parameter is read by its kind, from text (URIs) or from a TOML value.  `field` is the attribute of KafkaSource or
DeltaSink that it fills; None marks a parameter of TiCDC's Kafka *sink* that says nothing to a reader of the topic: it
is accepted, so that a changefeed's own sink-uri can be pasted as our source-uri, and named in a warning.

Source: TiCDC documentation, "Sink URI for Kafka".
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidegate.model.errors import ConfigError, UnsupportedError, UriInvalid

__all__ = ["DELTA_SINK", "FEED", "KAFKA_SOURCE", "Given", "Param", "nearest", "read_all"]


class Given(NamedTuple):
    """A value as it came and the words that name its place."""

    where: str
    value: object


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter: how to read it, what it fills, and its line in the documentation."""

    kind: str
    field: str | None
    default: str
    about: str
    choices: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    """Values that TiCDC or Flink CDC know and that this release does not."""
    low: int = 0
    high: int = 1 << 31


def _ignored(kind: str, default: str, about: str) -> Param:
    return Param(kind, None, default, about)


TIME_MAX_MS: Final = 100 * 366 * 86_400_000
PROTOCOLS: Final = ("open-protocol", "canal-json")
_OTHER_PROTOCOLS: Final = ("avro", "canal", "craft", "csv", "debezium", "maxwell", "simple")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

KAFKA_SOURCE: Final[Mapping[str, Param]] = {
    "protocol": Param(
        "choice", "protocol", "required", "`open-protocol` or `canal-json`", PROTOCOLS, known=_OTHER_PROTOCOLS
    ),
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
    "claim-check-storage-uri": Param("text", "claim_check_storage_uri", "", "where claim-check files lie"),
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
    "kafka-client-id": Param("text", "client_id", "tidegate", "name of this client in the broker's logs"),
    "max-retry": Param(
        "int",
        "max_retry",
        "5",
        "quick tries of a failing step; then `changefeed-error-stuck-duration` decides",
        high=1000,
    ),
    "dial-timeout": Param("duration", "dial_timeout_ms", "10s", "time to reach a broker", low=1),
    "read-timeout": Param("duration", "read_timeout_ms", "10s", "time for a broker's answer", low=1),
    "enable-tls": Param("bool", "enable_tls", "false", "use TLS; implied by ca, cert and key"),
    "ca": Param("text", "ca", "", "path of the CA certificate"),
    "cert": Param("text", "cert", "", "path of the client certificate"),
    "key": Param("text", "key", "", "path of the client key"),
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
    "partition-num": Param(
        "int", "partition_num", "", "the changefeed writes to this many partitions of each topic (all)", low=1
    ),
    "replication-factor": _ignored("int", "1", "copies of a new topic"),
    "kafka-version": _ignored("text", "2.4.0", "the client negotiates it"),
    "max-batch-size": _ignored("int", "16", "rows a message"),
    "compression": _ignored("text", "none", "the producer's compression: the client sees it"),
    "auto-create-topic": _ignored("bool", "true", "create the topic"),
    "required-acks": _ignored("int", "-1", "acknowledgements of writes"),
    "write-timeout": _ignored("duration", "10s", "time for a write"),
    "only-output-updated-columns": _ignored("bool", "false", "recognised from the messages"),
    "content-compatible": _ignored("bool", "false", "recognised from the messages"),
    "output-row-key": _ignored("bool", "false", "recognised from the messages"),
}

DELTA_SINK: Final[Mapping[str, Param]] = {
    "mode": Param(
        "choice",
        "mode",
        "replica",
        "`replica`: each table as upstream has it; `changelog`: every change; `history`: every version of every row",
        ("replica", "changelog", "history"),
        known=("append", "upsert"),
    ),
    "schema-change": Param(
        "choice",
        "schema_change",
        "evolve",
        "what a DDL does to the lake, in Flink CDC's words",
        ("exception", "evolve", "try_evolve", "lenient", "ignore"),
    ),
    "zero-date": Param(
        "choice",
        "zero_date",
        "null",
        "dates that no calendar has (0000-00-00): NULL, or the columns kept as text",
        ("null", "string"),
    ),
    "time-zone": Param("zone", "time_zone", "UTC", "the same as the source's `time-zone`"),
    "worker-count": Param("int", "worker_count", "one a core", "tables merged at the same time", low=1, high=1024),
    "flush-interval": Param("duration", "flush_interval_ms", "1s", "shortest time between two advances of the lake"),
    "upkeep": Param(
        "choice", "upkeep", "on", "`on`: delete what the following times allow; `off`: keep all", ("on", "off")
    ),
    "upkeep-interval": Param("duration", "upkeep_interval_ms", "1m", "time between two passes of the upkeep", low=1000),
    "snapshot-retention": Param(
        "duration",
        "snapshot_retention_ms",
        "168h",
        "how long snapshots stay: all for 10 minutes, then one a minute for a day, then one an hour",
        high=TIME_MAX_MS,
    ),
    "changelog-retention": Param(
        "duration",
        "changelog_retention_ms",
        "1h",
        "how long landed rows stay that the lake has already, measured back from the newest resolved ts",
        high=TIME_MAX_MS,
    ),
    "recover-retention": Param(
        "duration",
        "recover_retention_ms",
        "168h",
        "how long the rows of dropped tables stay for RECOVER TABLE and FLASHBACK TABLE",
        high=TIME_MAX_MS,
    ),
}

FEED: Final[Mapping[str, Param]] = {
    "changefeed-error-stuck-duration": Param("duration", "stuck_ms", "30m", "see keys.py", high=TIME_MAX_MS),
}
"""Keys of the changefeed itself that are read by their kind."""

_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_UNIT_MS: Final = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6}
_START: Final = re.compile(r"([A-Za-z0-9._-]+)/(\d{1,9}):(\d{1,18})")
_WORDS: Final = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
_EXPECTED: Final = {
    "bool": "true or false",
    "int": "a whole number",
    "duration": 'a time such as "10s" or "1m30s"',
    "zone": 'a time zone such as "UTC" or "Asia/Shanghai"',
    "start": '"earliest" or "topic/partition:offset,..."',
}


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean "x"?` for the known word closest to `word`, or nothing."""
    close = difflib.get_close_matches(word.replace("_", "-").lower(), list(known), n=1, cutoff=0.6)
    return f'; did you mean "{close[0]}"?' if close else ""


def read_all(
    params: Mapping[str, Param], given: Mapping[str, Given], error: type[ConfigError]
) -> tuple[dict[str, object], tuple[str, ...]]:
    """(fields and their values, names accepted without effect).

    Unknown names raise UriInvalid, wrong values `error`, values that only other releases know UnsupportedError."""
    fields: dict[str, object] = {}
    ignored: list[str] = []
    for name, (where, value) in given.items():
        param = params.get(name)
        if param is None:
            raise UriInvalid(f'{where}: unknown parameter "{name}"{nearest(name, params)}')
        read = _read(param, where, value, error)
        if param.field is None:
            ignored.append(name)
        else:
            fields[param.field] = read
    return fields, tuple(ignored)


def _read(param: Param, where: str, value: object, error: type[ConfigError]) -> object:
    readers = {"bool": _read_bool, "int": _read_int, "duration": _read_duration, "start": _read_start}
    reader = readers.get(param.kind)
    found = reader(value) if reader else value if isinstance(value, str) else None
    if found is None:
        expected = _EXPECTED.get(param.kind, "a text")
        raise error(f"{where}: expected {expected}, found {_shown(param, value)}")
    if param.choices:
        return _read_choice(param, where, str(found), error)
    if param.kind == "zone":
        return _read_zone(where, str(found))
    if isinstance(found, int) and not param.low <= found <= param.high:
        unit = " ms" if param.kind == "duration" else ""
        raise error(f"{where}: {found}{unit} is not between {param.low} and {param.high}")
    return found


def _shown(param: Param, value: object) -> str:
    return "a value of another type" if param.kind == "secret" else repr(value)


def _read_bool(value: object) -> object:
    return value if isinstance(value, bool) else _WORDS.get(value.lower()) if isinstance(value, str) else None


def _read_int(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,18}", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _read_duration(value: object) -> object:
    """Milliseconds of a Go duration."""
    if not isinstance(value, str):
        return None
    if value == "0":
        return 0
    parts = _DURATION.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        return None
    return round(sum(float(number) * _UNIT_MS[unit] for number, unit in parts))


def _read_start(value: object) -> object:
    """((topic, partition, offset), ...); empty for the earliest offsets."""
    if not isinstance(value, str):
        return None
    if value == "earliest":
        return ()
    parts = [_START.fullmatch(part.strip()) for part in value.split(",")]
    return tuple((part[1], int(part[2]), int(part[3])) for part in parts if part) if all(parts) else None


def _read_choice(param: Param, where: str, text: str, error: type[ConfigError]) -> str:
    found = next((choice for choice in param.choices if choice.lower() == text.lower()), None)
    if found is not None:
        return found
    choices = ", ".join(param.choices)
    if text.lower() in (known.lower() for known in param.known):
        raise UnsupportedError(f"{where}: this release does not support {text!r}; choose one of {choices}")
    raise error(f"{where}: {text!r} is none of {choices}{nearest(text, param.choices)}")


def _read_zone(where: str, text: str) -> str:
    if text == "UTC":
        return text
    try:
        return ZoneInfo(text).key
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(f"{where}: no time zone {text!r}; use a name such as UTC or Asia/Shanghai") from error
