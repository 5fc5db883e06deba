"""A changefeed's TOML file, every key of it known and of the right type.

    case-sensitive = true        "case-sensitive"                      a path is the keys joined by dots
    [filter]
    rules = ["shop.*"]           "filter.rules"
    [[filter.event-filters]]
    ignore-event = ["insert"]    "filter.event-filters[].ignore-event"  "[]" steps into a list of tables

All keys of TiCDC's own files are here, so that such a file is accepted as it stands.  A key that does not act
everywhere acts where the entry of a source or sink names it, and has no effect elsewhere.  An unknown key is an error
with the nearest right key; a wrong type is named with its path and the right type.

Source: TiCDC documentation, "CLI and Configuration Parameters of TiCDC Changefeeds".
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from tidegate.config.entry import Document, Key, SinkEntry, SourceEntry
from tidegate.config.registry import SINKS, SOURCES
from tidegate.config.uri import nearest
from tidegate.model.errors import ConfigError

_OWN: Final = {
    "changefeed-id": Key("text", "name of the changefeed; its progress is kept under it", True, "from source and sink"),
    "case-sensitive": Key("bool", "whether filter rules tell A from a", True, "false"),
    "sink-uri": Key("text", "where to write; see the sink parameters", True, "required"),
    "changefeed-error-stuck-duration": Key(
        "duration",
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

_TICDC: Final = r"""
memory-quota                                     int      1073741824 memory of one changefeed in TiCDC
force-replicate                                  bool     false      replicate tables without a handle key, too
check-gc-safe-point                              bool     true       check start-ts against the GC safe point
ignore-ineligible-table                          bool     false      pass over tables that cannot be replicated
bdr-mode                                         bool     false      replicate in both directions
enable-table-monitor                             bool     false      metrics of each table
filter.ignore-dml-event-filter                   texts    -          older spelling of event filters
mounter.worker-num                               int      16         TiCDC's row decoding threads
sink.protocol                                    text     -          protocol of the messages that are written
sink.schema-registry                             text     -          schema registry (avro)
sink.encoder-concurrency                         int      32         TiCDC's encoding threads
sink.terminator                                  text     "\r\n"     line end in files
sink.file-index-digit                            int      20         digits in file names
sink.file-index-width                            int      -          digits in file names
sink.enable-kafka-sink-v2                        bool     false      choice of TiCDC's producer
sink.delete-only-output-handle-key-columns       bool     -          a DELETE carries its handle key alone
sink.send-bootstrap-interval-in-sec              int      120        bootstrap messages (simple)
sink.send-bootstrap-in-msg-count                 int      10000      bootstrap messages (simple)
sink.send-bootstrap-to-all-partition             bool     true       bootstrap messages (simple)
sink.send-all-bootstrap-at-start                 bool     false      bootstrap messages (simple)
sink.debezium-disable-schema                     bool     false      debezium messages
sink.debezium.output-old-value                   bool     true       debezium messages
sink.advance-timeout-in-sec                      int      150        when TiCDC restarts a stuck sink
sink.dispatchers[].matcher                       texts    -          tables of a dispatcher
sink.dispatchers[].dispatcher                    text     -          older spelling of `partition`
sink.dispatchers[].partition                     text     -          what the partition of a row goes by
sink.dispatchers[].topic                         text     -          topic of a table
sink.dispatchers[].index                         text     -          index of the index-value dispatcher
sink.dispatchers[].columns                       texts    -          columns of the columns dispatcher
sink.dispatchers[].target-schema                 text     -          another name in the messages
sink.dispatchers[].target-table                  text     -          another name in the messages
sink.column-selectors[].matcher                  texts    -          tables of a column selector
sink.column-selectors[].columns                  texts    -          columns that are written or stored
sink.csv.delimiter                               text     ","        between fields
sink.csv.quote                                   text     "\""       around texts; empty: backslashes
sink.csv.null                                    text     "\\N"      stands for NULL
sink.csv.include-commit-ts                       bool     false      rows have their commit ts
sink.csv.binary-encoding-method                  text     "base64"   bytes as `base64` or `hex`
sink.csv.output-old-value                        bool     false      an UPDATE is its old and its new row
sink.csv.output-handle-key                       bool     false      refused if true: rows have all columns
sink.csv.output-field-header                     bool     false      files begin with the names of columns
sink.open.output-old-value                       bool     true       open-protocol: messages carry old values
sink.kafka-config.sasl-gssapi-auth-type          text     -          another login than PLAIN and SCRAM
sink.kafka-config.sasl-gssapi-keytab-path        text     -          another login than PLAIN and SCRAM
sink.kafka-config.sasl-gssapi-kerberos-config-path text     -          another login than PLAIN and SCRAM
sink.kafka-config.sasl-gssapi-service-name       text     -          another login than PLAIN and SCRAM
sink.kafka-config.sasl-gssapi-user               text     -          another login than PLAIN and SCRAM
sink.kafka-config.sasl-gssapi-password           text     -          another login than PLAIN and SCRAM
sink.kafka-config.sasl-gssapi-realm              text     -          another login than PLAIN and SCRAM
sink.kafka-config.sasl-gssapi-disable-pafxfast   bool     -          another login than PLAIN and SCRAM
sink.kafka-config.sasl-oauth-client-id           text     -          another login than PLAIN and SCRAM
sink.kafka-config.sasl-oauth-client-secret       text     -          another login than PLAIN and SCRAM
sink.kafka-config.sasl-oauth-token-url           text     -          another login than PLAIN and SCRAM
sink.kafka-config.sasl-oauth-scopes              texts    -          another login than PLAIN and SCRAM
sink.kafka-config.sasl-oauth-grant-type          text     -          another login than PLAIN and SCRAM
sink.kafka-config.sasl-oauth-audience            text     -          another login than PLAIN and SCRAM
sink.kafka-config.output-raw-change-event        bool     -          an UPDATE of a key stays one event
sink.kafka-config.codec-config.avro-enable-watermark bool     -          avro messages
sink.kafka-config.codec-config.avro-decimal-handling-mode text     -          avro messages
sink.kafka-config.codec-config.avro-bigint-unsigned-handling-mode text     -          avro messages
sink.kafka-config.codec-config.encoding-format   text     -          simple messages
sink.kafka-config.large-message-handle.large-message-handle-option text     -          what becomes of rows too large
scheduler.enable-table-across-nodes              bool     false      TiCDC's placement of tables
scheduler.region-threshold                       int      100000     TiCDC's placement of tables
scheduler.region-count-per-span                  int      -          TiCDC's placement of tables
scheduler.write-key-threshold                    int      0          TiCDC's placement of tables
scheduler.scheduling-task-count-per-node         int      -          TiCDC's placement of tables
scheduler.enable-splittable-check                bool     -          TiCDC's placement of tables
integrity.integrity-check-level                  text     "none"     `correctness` compares the checksums of rows
integrity.corruption-handle-level                text     "warn"     `warn` or `error` for a row whose checksum is wrong
consistent.level                                 text     "none"     redo log
consistent.max-log-size                          int      64         redo log
consistent.flush-interval                        int      2000       redo log
consistent.meta-flush-interval                   int      200        redo log
consistent.encoding-worker-num                   int      16         redo log
consistent.flush-worker-num                      int      8          redo log
consistent.storage                               text     -          redo log
consistent.use-file-backend                      bool     false      redo log
consistent.compression                           text     -          redo log
consistent.flush-concurrency                     int      -          redo log
consistent.memory-usage.memory-quota-percentage  int      50         redo log
synced-status.synced-check-interval              int      300        TiCDC's `synced` answer
synced-status.checkpoint-interval                int      15         TiCDC's `synced` answer
"""


def _options() -> dict[str, Key]:
    """The keys that sources and sinks declare."""
    entries: list[SourceEntry | SinkEntry] = [*SOURCES.values(), *SINKS.values()]
    found: dict[str, Key] = {}
    for entry in entries:
        acts = isinstance(entry, SourceEntry)
        for option in entry.params.values():
            if entry.section:
                found.setdefault(entry.section + option.name, Key("param", option.about, acts=acts))
            elif option.path:
                kind = option.kind if option.kind in {"bool", "int"} else "text"
                found.setdefault(option.path, Key(kind, option.about, default=option.default or ""))
        found |= entry.own_keys
    return found


KEYS: Final[Mapping[str, Key]] = {
    **_OWN,
    **_options(),
    **{
        path: Key(kind, about, shown=None if shown == "-" else msgspec.json.decode(shown))
        for path, kind, shown, about in (line.split(None, 3) for line in _TICDC.strip().splitlines())
    },
}


def read_document(path: str | Path | None) -> Document:
    """Return the file at `path`, or an empty one for None. Raises ConfigError for what no file can have."""
    if path is None:
        return Document()
    try:
        tree = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"no configuration file {path}") from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start})") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    return document_of(tree)


def document_of(tree: Mapping[str, Any]) -> Document:
    """Return what a file of these tables and keys says. Raises ConfigError for what no file can have."""
    keys = tuple(_walk(tree, ""))
    return Document(tree, keys, dict(keys))


def _walk(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        path = prefix + name
        if path in KEYS:
            yield path, _typed(path, value)
        elif _is_section(path + "."):
            if not isinstance(value, dict):
                raise ConfigError(f"{path}: expected a table [{path}], found {_kind_of(value)}")
            yield from _walk(value, path + ".")
        elif _is_section(path + "[]."):
            if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
                raise ConfigError(f"{path}: expected a list of tables [[{path}]], found {_kind_of(value)}")
            for item in value:
                yield from _walk(item, path + "[].")
        else:
            raise ConfigError(f"unknown key {path}{_nearest_path(prefix, name)}")


def _is_section(prefix: str) -> bool:
    return any(path.startswith(prefix) for path in KEYS)


def _is_list_of(kind: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(type(item) is kind for item in value)


KINDS: Final[Mapping[str, tuple[str, Callable[[object], bool]]]] = {
    "bool": ("true or false", lambda value: type(value) is bool),
    "int": ("a whole number", lambda value: type(value) is int),
    "text": ("a string", lambda value: type(value) is str),
    "duration": ("a string", lambda value: type(value) is str),
    "texts": ("a list of strings", _is_list_of(str)),
    "ints": ("a list of whole numbers", _is_list_of(int)),
    "number": ("a number", lambda value: type(value) in {int, float}),
    "numbers": ("a list of numbers", lambda value: isinstance(value, list) and {*map(type, value)} <= {int, float}),
    "param": ("a single value", lambda value: isinstance(value, bool | int | str)),
}


def _typed(path: str, value: object) -> object:
    expected, fits = KINDS[KEYS[path].kind]
    if not fits(value):
        raise ConfigError(f"{path}: expected {expected}, found {_kind_of(value)}")
    return value


def _kind_of(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return "a string"
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return f"a {type(value).__name__}"


def _nearest_path(prefix: str, name: str) -> str:
    """The words that point to the right key: a sibling, a section, or the same name elsewhere."""
    siblings = {
        path.removeprefix(prefix).partition(".")[0].removesuffix("[]") for path in KEYS if path.startswith(prefix)
    }
    close = nearest(name, siblings)
    if close:
        return close.replace('"', f'"{prefix}', 1)
    last = {path.rpartition(".")[2]: path for path in reversed(list(KEYS))}
    elsewhere = last.get(name.replace("_", "-").lower())
    return f'; did you mean "{elsewhere}"?' if elsewhere else ""
