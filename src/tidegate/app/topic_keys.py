"""The keys of a changefeed file on the way from tidb:// into a topic: which act, which do nothing, which are refused.

    acts       [filter], [integrity], force-replicate, case-sensitive, sql-mode, changefeed-error-stuck-duration,
               dispatchers, column-selectors, the encoder's options, [sink.kafka-config] without what is named below
    nothing    IDLE: knobs of TiCDC's own machinery, and of other sinks and protocols; told in one warning
    refused    what would change which events arrive, or in what form, and is not done here

A key that is refused has a value that asks for nothing (`false`, "none", ""), and that is accepted.

Source: TiCDC documentation, "CLI and Configuration Parameters of TiCDC Changefeeds"; TiCDC's checks of MQ sinks.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidegate.app.params import Given
from tidegate.model.errors import ConfigError, InputError, UnsupportedError, UriInvalid

__all__ = ["CLIENT_KEYS", "IDLE", "REFUSED", "Refused", "client_options", "idle_keys", "refuse_keys"]

IDLE: Final = (
    *(
        "memory-quota",
        "check-gc-safe-point",
        "ignore-ineligible-table",
        "enable-table-monitor",
        "mounter.",
        "scheduler.",
    ),
    *("synced-status.", "sync-point-interval", "sync-point-retention", "sink.encoder-concurrency", "sink.terminator"),
    *("sink.date-separator", "sink.enable-partition-separator", "sink.file-index-", "sink.enable-kafka-sink-v2"),
    *("sink.safe-mode", "sink.send-", "sink.debezium", "sink.advance-timeout-in-sec", "sink.csv."),
    *("sink.cloud-storage-config.", "sink.mysql-config.", "sink.delta-config.", "sink.kafka-config.kafka-version"),
    *("sink.kafka-config.required-acks", "sink.kafka-config.write-timeout", "sink.kafka-config.codec-config.avro-"),
    *("sink.kafka-config.codec-config.encoding-format", "consistent."),
)
"""Keys that are accepted without effect, by how they begin."""


class Refused(NamedTuple):
    """Why a key is refused, and by which error."""

    nothing: tuple[object, ...]
    """Values that ask for nothing."""
    error: type[InputError]
    why: str


_LOGIN: Final = Refused(("", [], False), UnsupportedError, "the client logs in by PLAIN or SCRAM")
REFUSED: Final[Mapping[str, Refused]] = {
    "enable-sync-point": Refused((False,), ConfigError, "sync points are for databases; a topic has no place for them"),
    "bdr-mode": Refused((False,), UnsupportedError, "changes that a replication wrote upstream are not told apart"),
    "consistent.level": Refused(("none", ""), UnsupportedError, "there is no redo log; the change log itself is kept"),
    "sink.transaction-atomicity": Refused(("none", ""), UriInvalid, "a message queue has no transactions of tables"),
    "sink.schema-registry": Refused(("",), UnsupportedError, "it is for avro, which is not written"),
    "sink.dispatchers[].target-schema": Refused(("",), UnsupportedError, "messages carry the upstream's names"),
    "sink.dispatchers[].target-table": Refused(("",), UnsupportedError, "messages carry the upstream's names"),
    "filter.ignore-dml-event-filter": Refused(([],), UnsupportedError, "write filter.event-filters in its place"),
    "sink.kafka-config.sasl-gssapi-": _LOGIN,
    "sink.kafka-config.sasl-oauth-": _LOGIN,
}
"""Keys, or how they begin, whose values are refused unless they ask for nothing."""

CLIENT_KEYS: Final = (
    *("partition-num", "kafka-client-id", "dial-timeout", "read-timeout", "enable-tls", "ca", "cert", "key"),
    *("insecure-skip-verify", "sasl-user", "sasl-password", "sasl-mechanism"),
)
"""Keys of [sink.kafka-config] that say how to reach the brokers; parameters of the sink-uri win over them."""


def refuse_keys(document: Mapping[str, object], refused: Mapping[str, Refused] = REFUSED) -> None:
    """Raises what TiCDC does for keys that do not go with a topic, and UnsupportedError for what is not done here."""
    for path, value in _paths(document, ""):
        for begin, (nothing, error, why) in refused.items():
            if path.startswith(begin) and not any(value == each for each in nothing):
                raise error(f"{path}: {why}; leave the key out")


def idle_keys(document: Mapping[str, object]) -> tuple[str, ...]:
    """The keys that are given and do nothing."""
    return tuple(sorted({path for path, _ in _paths(document, "") if path.startswith(IDLE) and path not in REFUSED}))


def client_options(settings: Mapping[str, object]) -> dict[str, Given]:
    """Parameters of the client that the file gives."""
    found = {name: Given(path := f"sink.kafka-config.{name}", settings.get(path)) for name in CLIENT_KEYS}
    return {name: given for name, given in found.items() if given.value not in {None, ""}}


def _paths(table: Mapping[str, object], prefix: str) -> list[tuple[str, object]]:
    """Every key by its path, those of each table in a list as well."""
    found: list[tuple[str, object]] = []
    for name, value in table.items():
        path = prefix + name
        if isinstance(value, dict):
            found += _paths(value, f"{path}.")
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            for item in value:
                found += _paths(item, f"{path}[].")
        else:
            found.append((path, value))
    return found
