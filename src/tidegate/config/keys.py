"""Every key of a changefeed's TOML file: its type, whether it acts everywhere, and its line in the documentation.

    case-sensitive = true        "case-sensitive"                      a path is the keys joined by dots
    [filter]
    rules = ["shop.*"]           "filter.rules"
    [[filter.event-filters]]
    ignore-event = ["insert"]    "filter.event-filters[].ignore-event"  "[]" steps into a list of tables

All keys of TiCDC's own files are here, so that such a file is accepted as it stands.  A key that does not act
everywhere acts where the entry of a source or sink names it (config/registry.py), and has no effect elsewhere.

Source: TiCDC documentation, "CLI and Configuration Parameters of TiCDC Changefeeds".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidegate.config.changelog_source import CHANGELOG_SOURCE
from tidegate.config.delta_sink import DELTA_SINK
from tidegate.config.file_params import STORAGE_SOURCE
from tidegate.config.kafka_source import KAFKA_SOURCE
from tidegate.config.metrics_keys import METRICS_SECTION, METRICS_SINK, RULE_KEYS, RULES
from tidegate.config.tidb_source import TIDB_SOURCE
from tidegate.config.webhook_target import WEBHOOK_SINK


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `kind` is one of document.KINDS; `acts` says that it does so with every source and every sink."""

    kind: str
    about: str
    acts: bool = False
    default: str = ""


_OWN: Final = {
    "changefeed-id": Key("text", "name of the changefeed; its progress is kept under it", True, "from source and sink"),
    "case-sensitive": Key("bool", "whether filter rules tell A from a", True, "false"),
    "sink-uri": Key("text", "where to write; see the sink parameters", True, "required"),
    "changefeed-error-stuck-duration": Key(
        "text",
        "how long errors that may pass are waited out while nothing moves; `0` for the quick tries only",
        True,
        "30m",
    ),
    "sql-mode": Key("text", "SQL mode in which the expressions of event filters are read", True, "none"),
    "filter.rules": Key("texts", "which tables; see the filter rules", True, '["*.*"]'),
    "filter.ignore-txn-start-ts": Key("ints", "transactions that are left out, by their start_ts", True, "[]"),
    **{
        f"filter.event-filters[].{name}": Key(kind, about, True, "[]" if kind == "texts" else "none")
        for name, kind, about in (
            ("matcher", "texts", "tables of an event filter"),
            ("ignore-event", "texts", "kinds of rows and DDLs that are left out"),
            ("ignore-sql", "texts", "DDLs that are left out, by their text"),
            ("ignore-insert-value-expr", "text", "inserted rows that are left out"),
            ("ignore-update-new-value-expr", "text", "updated rows that are left out, by new values"),
            ("ignore-update-old-value-expr", "text", "updated rows that are left out, by old values"),
            ("ignore-delete-value-expr", "text", "deleted rows that are left out"),
            ("ignore-update-only-columns", "texts", "updates of these columns only that are left out"),
        )
    },
    "sink.ddl-text": Key("text", "`ticdc`: DDLs as TiCDC prints them; `raw`: as they were written", False, "ticdc"),
    "source.uri": Key("text", "where to read; see the source parameters", True, "required"),
}
_PARAMS: Final = {
    **{
        f"source.{name}": Key("param", param.about, acts=True)
        for name, param in {**STORAGE_SOURCE, **TIDB_SOURCE, **CHANGELOG_SOURCE, **KAFKA_SOURCE}.items()
    },
    **{f"sink.delta-config.{name}": Key("param", param.about) for name, param in DELTA_SINK.items()},
    **{f"sink.webhook-config.{name}": Key("param", param.about) for name, param in WEBHOOK_SINK.items()},
    **{f"{METRICS_SECTION}{name}": Key("param", param.about) for name, param in METRICS_SINK.items()},
    **{f"{RULES}{name}": Key(kind, about, default=default) for name, (kind, about, default) in RULE_KEYS.items()},
}

_TICDC: Final = """
memory-quota                                            int     memory of one changefeed in TiCDC
force-replicate                                         bool    replicate tables without a handle key, too
check-gc-safe-point                                     bool    check start-ts against the GC safe point
ignore-ineligible-table                                 bool    pass over tables that cannot be replicated
enable-sync-point                                       bool    sync points (database sinks)
sync-point-interval                                     text    time between sync points
sync-point-retention                                    text    how long sync points are kept
bdr-mode                                                bool    replicate in both directions
enable-table-monitor                                    bool    metrics of each table
filter.ignore-dml-event-filter                          texts   older spelling of event filters
mounter.worker-num                                      int     TiCDC's row decoding threads
sink.protocol                                           text    protocol of the messages that are written
sink.schema-registry                                    text    schema registry (avro)
sink.encoder-concurrency                                int     TiCDC's encoding threads
sink.terminator                                         text    line end in files
sink.date-separator                                     text    directories by date
sink.enable-partition-separator                         bool    directories by partition
sink.file-index-digit                                   int     digits in file names
sink.file-index-width                                   int     digits in file names
sink.enable-kafka-sink-v2                               bool    choice of TiCDC's producer
sink.only-output-updated-columns                        bool    UPDATE: old values of changed columns alone
sink.delete-only-output-handle-key-columns              bool    a DELETE carries its handle key alone
sink.content-compatible                                 bool    canal-json: the official format
sink.safe-mode                                          bool    REPLACE in place of INSERT (database sinks)
sink.transaction-atomicity                              text    splitting of big transactions
sink.send-bootstrap-interval-in-sec                     int     bootstrap messages (simple)
sink.send-bootstrap-in-msg-count                        int     bootstrap messages (simple)
sink.send-bootstrap-to-all-partition                    bool    bootstrap messages (simple)
sink.send-all-bootstrap-at-start                        bool    bootstrap messages (simple)
sink.debezium-disable-schema                            bool    debezium messages
sink.debezium.output-old-value                          bool    debezium messages
sink.advance-timeout-in-sec                             int     when TiCDC restarts a stuck sink
sink.dispatchers[].matcher                              texts   tables of a dispatcher
sink.dispatchers[].dispatcher                           text    older spelling of `partition`
sink.dispatchers[].partition                            text    what the partition of a row goes by
sink.dispatchers[].topic                                text    topic of a table
sink.dispatchers[].index                                text    index of the index-value dispatcher
sink.dispatchers[].columns                              texts   columns of the columns dispatcher
sink.dispatchers[].target-schema                        text    another name in the messages
sink.dispatchers[].target-table                         text    another name in the messages
sink.column-selectors[].matcher                         texts   tables of a column selector
sink.column-selectors[].columns                         texts   columns that are written or stored
sink.csv.delimiter                                      text    between fields
sink.csv.quote                                          text    around texts; empty: backslashes
sink.csv.null                                           text    stands for NULL
sink.csv.include-commit-ts                              bool    rows have their commit ts
sink.csv.binary-encoding-method                         text    bytes as `base64` or `hex`
sink.csv.output-old-value                               bool    an UPDATE is its old and its new row
sink.csv.output-handle-key                              bool    refused if true: rows have all columns
sink.csv.output-field-header                            bool    files begin with the names of columns
sink.open.output-old-value                              bool    open-protocol: messages carry old values
sink.kafka-config.partition-num                         int     partitions of a new topic, and how many are used
sink.kafka-config.replication-factor                    int     copies of a new topic
sink.kafka-config.kafka-version                         text    the client negotiates it
sink.kafka-config.max-message-bytes                     int     largest message that is written
sink.kafka-config.compression                           text    compression of what the producer sends at once
sink.kafka-config.kafka-client-id                       text    name of this client in the broker's logs
sink.kafka-config.auto-create-topic                     bool    make topics that are missing
sink.kafka-config.dial-timeout                          text    time to reach a broker
sink.kafka-config.write-timeout                         text    time for a write
sink.kafka-config.read-timeout                          text    time for a broker's answer
sink.kafka-config.required-acks                         int     acknowledgements of writes: all
sink.kafka-config.sasl-user                             text    SASL user
sink.kafka-config.sasl-password                         text    SASL password
sink.kafka-config.sasl-mechanism                        text    `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`
sink.kafka-config.sasl-gssapi-auth-type                 text    another login than PLAIN and SCRAM
sink.kafka-config.sasl-gssapi-keytab-path               text    another login than PLAIN and SCRAM
sink.kafka-config.sasl-gssapi-kerberos-config-path      text    another login than PLAIN and SCRAM
sink.kafka-config.sasl-gssapi-service-name              text    another login than PLAIN and SCRAM
sink.kafka-config.sasl-gssapi-user                      text    another login than PLAIN and SCRAM
sink.kafka-config.sasl-gssapi-password                  text    another login than PLAIN and SCRAM
sink.kafka-config.sasl-gssapi-realm                     text    another login than PLAIN and SCRAM
sink.kafka-config.sasl-gssapi-disable-pafxfast          bool    another login than PLAIN and SCRAM
sink.kafka-config.sasl-oauth-client-id                  text    another login than PLAIN and SCRAM
sink.kafka-config.sasl-oauth-client-secret              text    another login than PLAIN and SCRAM
sink.kafka-config.sasl-oauth-token-url                  text    another login than PLAIN and SCRAM
sink.kafka-config.sasl-oauth-scopes                     texts   another login than PLAIN and SCRAM
sink.kafka-config.sasl-oauth-grant-type                 text    another login than PLAIN and SCRAM
sink.kafka-config.sasl-oauth-audience                   text    another login than PLAIN and SCRAM
sink.kafka-config.enable-tls                            bool    use TLS
sink.kafka-config.ca                                    text    path of the CA certificate
sink.kafka-config.cert                                  text    path of the client certificate
sink.kafka-config.key                                   text    path of the client key
sink.kafka-config.insecure-skip-verify                  bool    TLS without checking the broker's certificate and name
sink.kafka-config.output-raw-change-event               bool    an UPDATE of a key stays one event
sink.kafka-config.codec-config.enable-tidb-extension    bool    canal-json: messages carry commit ts and watermarks
sink.kafka-config.codec-config.max-batch-size           int     open-protocol: most rows of a message
sink.kafka-config.codec-config.avro-enable-watermark    bool    avro messages
sink.kafka-config.codec-config.avro-decimal-handling-mode           text    avro messages
sink.kafka-config.codec-config.avro-bigint-unsigned-handling-mode   text    avro messages
sink.kafka-config.codec-config.encoding-format          text    simple messages
sink.kafka-config.large-message-handle.large-message-handle-option       text    what becomes of rows too large
sink.kafka-config.large-message-handle.large-message-handle-compression  text    compression inside each message value
sink.kafka-config.large-message-handle.claim-check-storage-uri           text    where claim-check files are put
sink.kafka-config.large-message-handle.claim-check-raw-value             bool    files of bare values (canal-json)
sink.cloud-storage-config.worker-count                  int     most tasks that write files side by side
sink.cloud-storage-config.flush-interval                text    shortest time between rounds while little comes
sink.cloud-storage-config.file-size                     int     a file ends behind the transaction that fills it
sink.cloud-storage-config.output-column-id              bool    schema files tell the numbers of columns
sink.cloud-storage-config.file-expiration-days          int     days after which files are deleted
sink.cloud-storage-config.file-cleanup-cron-spec        text    when files are deleted
sink.cloud-storage-config.flush-concurrency             int     parts of a file that are sent side by side
sink.cloud-storage-config.output-raw-change-event       bool    an UPDATE of a key stays one row
sink.mysql-config.worker-count                          int     MySQL sink
sink.mysql-config.max-txn-row                           int     MySQL sink
sink.mysql-config.max-multi-update-row-size             int     MySQL sink
sink.mysql-config.max-multi-update-row                  int     MySQL sink
sink.mysql-config.tidb-txn-mode                         text    MySQL sink
sink.mysql-config.ssl-ca                                text    MySQL sink
sink.mysql-config.ssl-cert                              text    MySQL sink
sink.mysql-config.ssl-key                               text    MySQL sink
sink.mysql-config.time-zone                             text    MySQL sink
sink.mysql-config.write-timeout                         text    MySQL sink
sink.mysql-config.read-timeout                          text    MySQL sink
sink.mysql-config.timeout                               text    MySQL sink
sink.mysql-config.enable-batch-dml                      bool    MySQL sink
sink.mysql-config.enable-multi-statement                bool    MySQL sink
sink.mysql-config.enable-cache-prepared-statement       bool    MySQL sink
scheduler.enable-table-across-nodes                     bool    TiCDC's placement of tables
scheduler.region-threshold                              int     TiCDC's placement of tables
scheduler.region-count-per-span                         int     TiCDC's placement of tables
scheduler.write-key-threshold                           int     TiCDC's placement of tables
scheduler.scheduling-task-count-per-node                int     TiCDC's placement of tables
scheduler.enable-splittable-check                       bool    TiCDC's placement of tables
integrity.integrity-check-level                         text    `correctness` compares the checksums of rows
integrity.corruption-handle-level                       text    `warn` or `error` for a row whose checksum is wrong
consistent.level                                        text    redo log
consistent.max-log-size                                 int     redo log
consistent.flush-interval                               int     redo log
consistent.meta-flush-interval                          int     redo log
consistent.encoding-worker-num                          int     redo log
consistent.flush-worker-num                             int     redo log
consistent.storage                                      text    redo log
consistent.use-file-backend                             bool    redo log
consistent.compression                                  text    redo log
consistent.flush-concurrency                            int     redo log
consistent.memory-usage.memory-quota-percentage         int     redo log
synced-status.synced-check-interval                     int     TiCDC's `synced` answer
synced-status.checkpoint-interval                       int     TiCDC's `synced` answer
"""


def _ticdc() -> dict[str, Key]:
    lines = (line.split(None, 2) for line in _TICDC.strip().splitlines())
    return {path: Key(kind, about) for path, kind, about in lines}


KEYS: Final[Mapping[str, Key]] = {**_OWN, **_PARAMS, **_ticdc()}
