"""Read a changefeed's configuration, from a TOML file, from addresses, or from both.

    command line  >  parameters inside an address  >  the file  >  defaults

    case-sensitive = true        "case-sensitive"                      a path is the keys joined by dots
    [filter]
    rules = ["shop.*"]           "filter.rules"
    [[filter.event-filters]]
    ignore-event = ["insert"]    "filter.event-filters[].ignore-event"  "[]" steps into a list of tables

All keys of TiCDC's own files are known, so that such a file is accepted unchanged.  A key that does not act
everywhere acts where the entry of a source or sink names it (config/registry.py), and has no effect elsewhere.  An
unknown key is an error that suggests the nearest known key; a wrong type is reported with its path and expected type.

The rules of `Pairing` derive from the entries of a source and a sink what the two do not support together.  No rule
names a pair:

    state-dir             required if the sink stores no progress
    time-zone             given once, if both addresses accept the source's zone
    integrity             compares whole rows, so it excludes column selectors
    old values, types     event filters and encoder options that need what messages lack
    the source            is not also the target; a changelog does not land again
    dispatchers           checked where they act
    idle                  keys and words that neither of the two uses are named in one warning

A rule that needs a property of a source or a sink reads it from the entry; a new property is a field there.

Source: TiCDC documentation, "CLI and Configuration Parameters of TiCDC Changefeeds".
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec

from tidegate.codec.zone import hour_twice
from tidegate.config.entry import (
    Document,
    FeedConfig,
    Key,
    SinkAddress,
    SinkEntry,
    SourceAddress,
    SourceEntry,
    feed_id,
    is_landed,
    key_of,
    refusal,
    refuse,
    refused_keys,
)
from tidegate.config.full_load import ROWS, DatabaseRows, check_stream, full_load
from tidegate.config.option import options_of, read_all
from tidegate.config.registry import SINKS, SOURCES
from tidegate.config.ticdc import TicdcAddress, parse_ticdc
from tidegate.config.uri import (
    RawValue,
    mask_uri,
    name_file,
    nearest,
    resolve_uri,
    scheme_of,
    state_directory,
    wrong_scheme,
)
from tidegate.engine.dispatch import PARTITION_WORDS, DispatchRule, complaints, topic_pattern
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import DEFAULT_RULES, ColumnSelectors, EventRule, TableFilter
from tidegate.engine.upstream_feed import UpstreamFeed
from tidegate.model.errors import ConfigError, UriInvalid
from tidegate.model.option import TIME_MAX_MS, Option

_STUCK: Final = options_of(
    FeedConfig,
    stuck_ms=Option(
        "changefeed-error-stuck-duration",
        "how long transient errors are retried without progress; `0`: quick retries only",
        "duration",
        high=TIME_MAX_MS,
    ),
)
_OWN: Final = {
    "changefeed-id": Key(
        "text", "name of the changefeed, under which its progress is stored", True, "from source and sink"
    ),
    "case-sensitive": Key("bool", "whether filter rules are case-sensitive", True, "false"),
    "sink-uri": Key("text", "address to write; see the sink parameters", True, "required"),
    **{name: replace(key_of(option), acts=True) for name, option in _STUCK.items()},
    "sql-mode": Key("text", "SQL mode of event filter expressions", True, "none"),
    "filter.rules": Key("texts", "tables to replicate; see the filter rules", True, '["*.*"]'),
    "filter.ignore-txn-start-ts": Key("ints", "transactions to exclude, by start_ts", True, "[]"),
    **{
        f"filter.event-filters[].{name}": Key(kind, about, True, "[]" if kind == "texts" else "none")
        for name, kind, about in (
            ("matcher", "texts", "tables of an event filter"),
            ("ignore-event", "texts", "kinds of rows and DDLs to exclude"),
            ("ignore-sql", "texts", "DDLs to exclude, by their text"),
            ("ignore-insert-value-expr", "text", "inserted rows to exclude"),
            ("ignore-update-new-value-expr", "text", "updated rows to exclude, by new values"),
            ("ignore-update-old-value-expr", "text", "updated rows to exclude, by old values"),
            ("ignore-delete-value-expr", "text", "deleted rows to exclude"),
            ("ignore-update-only-columns", "texts", "updates of only these columns to exclude"),
        )
    },
    "sink.ddl-text": Key("text", "`ticdc`: DDLs as printed by TiCDC; `raw`: the original text", False, "ticdc"),
    "source.uri": Key("text", "address to read; see the source parameters", True, "required"),
    "source.load": Key("text", "`initial`, `never`, `only`, `done`: start with existing rows; `cancel`", True, "never"),
    "source.load-from": Key(
        "text", "the database with the rows, mysql://USER@HOST:4000/, or the files of Dumpling", True
    ),
    "source.load-ts": Key("int", "the TSO at which the rows are read", True, "now"),
    "source.ticdc": Key("text", "the changefeed that writes the topic: its address in TiCDC's API, or its file", True),
    "source.definitions-from": Key("text", "without rows: the database that knows the tables of the topic", True),
    "source.definitions-at": Key("text", "`start`: as of the topic's begin; `now`: as they are now", True, "start"),
    "source.load-number": Key("int", "a number above that of the last load: tables are loaded again, once", True, "0"),
    "source.load-tables": Key("texts", "rules of the tables that are loaded again", True, "all"),
}

_TICDC: Final = r"""
memory-quota                                     int      1073741824 a quarter of it bounds the waiting rows in memory
force-replicate                                  bool     false      also replicate tables without a handle key
check-gc-safe-point                              bool     true       check start-ts against the GC safe point
ignore-ineligible-table                          bool     false      skip tables that cannot be replicated
bdr-mode                                         bool     false      replicate in both directions
enable-table-monitor                             bool     false      metrics of each table
filter.ignore-dml-event-filter                   texts    -          older spelling of event filters
mounter.worker-num                               int      16         TiCDC's row decoding threads
sink.protocol                                    text     -          protocol of the written messages
sink.schema-registry                             text     -          schema registry (avro)
sink.encoder-concurrency                         int      32         TiCDC's encoding threads
sink.terminator                                  text     "\r\n"     line end in files
sink.file-index-digit                            int      20         digits in file names
sink.file-index-width                            int      -          digits in file names
sink.enable-kafka-sink-v2                        bool     false      choice of TiCDC's producer
sink.delete-only-output-handle-key-columns       bool     -          a DELETE contains only its handle key
sink.send-bootstrap-interval-in-sec              int      120        bootstrap messages (simple)
sink.send-bootstrap-in-msg-count                 int      10000      bootstrap messages (simple)
sink.send-bootstrap-to-all-partition             bool     true       bootstrap messages (simple)
sink.send-all-bootstrap-at-start                 bool     false      bootstrap messages (simple)
sink.debezium-disable-schema                     bool     false      debezium messages
sink.debezium.output-old-value                   bool     true       debezium messages
sink.advance-timeout-in-sec                      int      150        when TiCDC restarts a stuck sink
sink.dispatchers[].matcher                       texts    -          tables of a dispatcher
sink.dispatchers[].dispatcher                    text     -          older spelling of `partition`
sink.dispatchers[].partition                     text     -          rule for the partition of a row
sink.dispatchers[].topic                         text     -          topic of a table
sink.dispatchers[].index                         text     -          index of the index-value dispatcher
sink.dispatchers[].columns                       texts    -          columns of the columns dispatcher
sink.dispatchers[].target-schema                 text     -          another name in the messages
sink.dispatchers[].target-table                  text     -          another name in the messages
sink.column-selectors[].matcher                  texts    -          tables of a column selector
sink.column-selectors[].columns                  texts    -          columns to write or store
sink.csv.delimiter                               text     ","        between fields
sink.csv.quote                                   text     "\""       quote character of strings; empty: backslashes
sink.csv.null                                    text     "\\N"      stands for NULL
sink.csv.include-commit-ts                       bool     false      rows include the commit ts
sink.csv.binary-encoding-method                  text     "base64"   bytes as `base64` or `hex`
sink.csv.output-old-value                        bool     false      an UPDATE is its old and its new row
sink.csv.output-handle-key                       bool     false      refused if true: rows have all columns
sink.csv.output-field-header                     bool     false      files start with a header of column names
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
sink.kafka-config.large-message-handle.large-message-handle-option text     -          handling of too large rows
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
    keys: dict[str, Key] = {}
    for entry in entries:
        acts = isinstance(entry, SourceEntry)
        for option in entry.params.values():
            if entry.section:
                keys.setdefault(entry.section + option.name, Key("param", option.about, acts=acts))
            elif option.path:
                kind = option.kind if option.kind in {"bool", "int"} else "text"
                keys.setdefault(option.path, Key(kind, option.about, default=option.default or ""))
        keys |= entry.own_keys
    return keys


KEYS: Final[Mapping[str, Key]] = {
    **_OWN,
    **_options(),
    **{
        path: Key(kind, about, shown=None if shown == "-" else msgspec.json.decode(shown))
        for path, kind, shown, about in (line.split(None, 3) for line in _TICDC.strip().splitlines())
    },
}


def read_document(path: str | Path | None) -> Document:
    """Return the document at `path`, an empty one for None. Raises ConfigError for unknown keys and wrong types."""
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
    """Return the document of these tables and keys. Raises ConfigError for unknown keys and wrong types."""
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


Entry = TypeVar("Entry", SourceEntry, SinkEntry)
_WORKERS: Final = "worker-count"


_DISPATCHERS = "sink.dispatchers[].matcher"
_OLD_VALUES = "sink.open.output-old-value"
_SELECTORS = "sink.column-selectors[].matcher"


@dataclass(frozen=True, slots=True)
class Pairing:
    """The entries of a source and a sink, with the parsed addresses of one changefeed."""

    source_entry: SourceEntry
    source: SourceAddress
    sink_entry: SinkEntry
    sink: SinkAddress

    @property
    def keys(self) -> frozenset[str]:
        """Return the keys of a file that act in addition to those that act everywhere."""
        return self.source_entry.keys | self.sink_entry.keys

    def name(self, changefeed: object, sink_uri: str) -> str:
        """Return the changefeed's id: the given one, else one derived from the two addresses.

        Raises ChangefeedIdInvalid."""
        changefeed = changefeed or None
        both = f"{self.source.identity} {self.sink.identity}"
        if self.sink_entry.keeps_progress:
            return feed_id(changefeed, self.source.label, both)
        if self.source_entry.ordered:
            return feed_id(changefeed, self.sink.identity, both)
        # Positions of sources without an order have always been kept under the sink's address alone.
        return feed_id(changefeed, self.sink.identity, sink_uri.partition("?")[0])

    def time_zone(self) -> str:
        """Return the time zone of TIMESTAMPs. Raises ConfigError if it is given twice, or where it does not apply."""
        written = self.sink_entry.zone_of(self.sink)
        if self.source_entry.moments:
            if written not in {None, "UTC"} and not self.sink_entry.renders_times:
                scheme = self.source_entry.scheme
                raise ConfigError(
                    f"time-zone: rows of {scheme}:// contain UTC timestamps, which need no time zone; remove the "
                    f"parameter"
                )
            return written or "UTC"
        read = self.source_entry.zone_of(self.source)
        if self.sink_entry.renders_times:
            return read or "UTC"
        if read and written and read != written:
            raise ConfigError(f"time-zone is {read} for the source and {written} for the sink; set it only once")
        return read or written or "UTC"

    def check(self, config: FeedConfig, document: Document) -> None:
        """Raise an error if this pair cannot follow the file, or does not go together."""
        config.table_filter()  # bad rules are told now, not when the first row comes
        if _DISPATCHERS in self.keys:
            check_dispatchers(config.dispatchers)
        if config.selectors and _SELECTORS in self.keys:
            ColumnSelectors.of(config.selectors, case_sensitive=config.case_sensitive)
            if self.source_entry.verifies(self.source):
                raise ConfigError(
                    "integrity-check-level compares whole rows and cannot be combined with column-selectors"
                )
        if not self.source_entry.has_old_values(self.source):
            lacking = self.source_entry.lacks_old_values(self.source)
            check_old_values(document, config.event_rules, lacking)
            if not lacking and document.flat.get(_OLD_VALUES) is False:
                lacking = f"{_OLD_VALUES} = false"
            asks = self.sink_entry.needs_old_values(self.sink)
            if asks and lacking:
                raise ConfigError(f"{asks} needs old values, but {lacking} disables them")
        typed = self.sink_entry.needs_types(self.sink)
        if typed and not self.source_entry.has_types(self.source):
            raise ConfigError(
                f"{typed} needs the parameters of types, such as the 50 of varchar(50), which the source's messages "
                f"do not contain"
            )
        if self.source_entry.land is None and is_landed(self.source_entry, self.sink_entry):
            raise UriInvalid(
                f"source-uri: {self.source_entry.scheme}:// is already a changelog; into {self.sink_entry.scheme}:// "
                f"read its source instead"
            )
        check_stream(config, self.source_entry, self.sink_entry)
        both = sorted(self.source.addresses & self.sink.addresses)
        if both:
            raise UriInvalid(f"sink-uri: {both[0]} is also the source; a changefeed must not write what it reads")
        if not self.sink_entry.keeps_progress and config.state_dir is None:
            raise ConfigError(
                f"a changefeed into {self.sink_entry.scheme}:// stores its checkpoint in a directory: set --state-dir"
            )

    def warnings(self, config: FeedConfig, document: Document, words: Iterable[str]) -> tuple[str, ...]:
        """Return the warnings; `words` are parameters of the call without effect here."""
        notes = (*self.source_entry.warnings(self.source), *self.sink_entry.warnings(self.sink))
        zones = {self.source_entry.zone_of(self.source), self.sink_entry.zone_of(self.sink)}
        notes += tuple(note for zone in zones if zone is not None and (note := hour_twice(zone)))
        if _DISPATCHERS in self.keys:
            notes += complaints(config.dispatchers)
        idle = {*idle_keys(document, self.source_entry, self.sink_entry), *words}
        idle |= {f"source-uri {name}" for name in self.source.ignored}
        idle |= {f"sink-uri {name}" for name in self.sink.ignored}
        return (f"accepted without effect: {', '.join(sorted(idle))}", *notes) if idle else notes


def idle_keys(document: Document, source: SourceEntry, sink: SinkEntry) -> list[str]:
    """Return the keys of a file that neither of the two uses, without those that one of them refuses."""
    refused = refused_keys(source, sink)
    idle = [path for path in document.flat if not KEYS[path].acts and path not in source.keys | sink.keys]
    return sorted(path for path in idle if refusal(path, refused) is None)


def check_dispatchers(rules: Sequence[DispatchRule]) -> None:
    """Raise for a dispatcher with which TiCDC only warns and misroutes rows, and for a wrong topic."""
    for number, rule in enumerate(rules):
        word = rule.partition.lower()
        if word not in PARTITION_WORDS:
            words = ", ".join(word for word in PARTITION_WORDS if word)
            close = nearest(word, PARTITION_WORDS)
            raise ConfigError(
                f"sink.dispatchers[{number}]: partition = {rule.partition!r} is not one of {words}{close}"
            )
        if rule.topic:
            topic_pattern(rule.topic, "")
        TableFilter.parse(rule.matcher or DEFAULT_RULES)


def check_old_values(document: Document, rules: Sequence[EventRule], lacking: str = "") -> None:
    """Raise ConfigError for rules that distinguish INSERT from UPDATE if a source lacks old values (`lacking` is the
    reason) or the file disables them."""
    rules_used = {word for rule in rules for word in rule.ignore_event} & {"insert", "update"}
    rules_used |= {text for rule in rules for text in rule.expressions if text != rule.ignore_delete_value_expr}
    rules_used |= {name for rule in rules for name in rule.ignore_update_only_columns}
    if document.flat.get(_OLD_VALUES) is False:
        lacking = lacking or f"{_OLD_VALUES}=false"
    if rules_used and lacking:
        raise ConfigError(
            f"filter.event-filters: with {lacking} UPDATEs look like INSERTs, so rules cannot distinguish them; let "
            'TiCDC\'s changefeed send old values, or exclude both by ignore-event = ["all dml"]'
        )


def load(
    path: str | Path | Document | None = None,
    *,
    source_uri: str | None = None,
    sink_uri: str | None = None,
    name: str | None = None,
    rules: Sequence[str] = (),
    workers: int | None = None,
    start_ts: int | None = None,
    target_ts: int | None = None,
    state_dir: str | Path | None = None,
    load_mode: str | None = None,
    load_from: str | None = None,
    load_ts: int | None = None,
    definitions_from: str | None = None,
    definitions_at: str | None = None,
    ticdc: str | None = None,
) -> FeedConfig:
    """Return the changefeed that a file describes, with the given values in place of the file's.

    Raises a ConfigError or an UnsupportedError, under TiCDC's code where it has one, for a configuration that cannot be
    followed."""
    document = path if isinstance(path, Document) else read_document(path)
    only_definitions = definitions_from, definitions_at
    begins = full_load(document, load_mode, load_from, load_ts, only_definitions, source_uri=source_uri)
    if ticdc := ticdc or str(document.flat.get("source.ticdc") or ""):
        if begins is None or begins.mode not in {"initial", "done"}:
            raise ConfigError("ticdc is compared with a load, initial or done: give load-from")
        begins = begins._replace(ticdc=_upstream_feed(ticdc))
    address = load_from or str(document.flat.get("source.load-from") or "")
    if begins is not None and begins.mode == "only":
        if (source_uri or document.flat.get("source.uri") or address) != address:
            raise ConfigError("load = only takes no source: it ends once all rows are there; initial goes on with it")
        source_uri = address
    source_uri, sink_uri = addresses(document, source_uri, sink_uri)
    rows = ROWS if begins is not None and source_uri == address and begins.mode in {"only", "cancel"} else None
    pair, idle = _pair(document, source_uri, sink_uri, workers, rows)
    alone = isinstance(pair.source, DatabaseRows) and begins is not None and begins.mode in {"only", "cancel"}
    if alone and begins is not None:
        pair = replace(pair, source=DatabaseRows(load=begins))
    if start_ts is not None and pair.source_entry.start_ts_refused:
        schemes = " or ".join(f"{entry.scheme}://" for entry in SOURCES.values() if not entry.start_ts_refused)
        raise ConfigError(f"start-ts is for {schemes}; {pair.source_entry.start_ts_refused}")
    if state_dir is not None and pair.sink_entry.keeps_progress:
        idle.append("state-dir")
    time_zone = pair.time_zone()
    config = FeedConfig(
        name=pair.name(name or document.flat.get("changefeed-id"), sink_uri),
        source=pair.source,
        sink=pair.sink,
        rules=tuple(rules) or document.rules or DEFAULT_RULES,
        case_sensitive=document.case_sensitive,
        time_zone=time_zone,
        source_uri=mask_uri(source_uri),
        sink_uri=mask_uri(sink_uri),
        dispatchers=document.dispatchers,
        selectors=document.selectors,
        event_rules=document.event_rules,
        start_ts=start_ts,
        target_ts=target_ts,
        state_dir=None if state_dir is None else state_directory(str(state_dir)),
        load=None if alone else begins,
        **read_all(_STUCK, document.section("", _STUCK), ConfigError)[0],
    )
    pair.check(config, document)
    since = (start_ts or 0) if pair.sink_entry.reads_changelog else 0
    events = EventFilter() if path is None else _events(document, time_zone, since)
    return replace(config, events=events, warnings=pair.warnings(config, document, idle))


def _upstream_feed(text: str) -> TicdcAddress | UpstreamFeed:
    if "://" in text:
        return parse_ticdc(text)
    name_file("ticdc", text)
    return UpstreamFeed.of(f"the changefeed of {text}", read_document(text).tree)


def addresses(document: Document, source_uri: str | None, sink_uri: str | None) -> tuple[str, str]:
    """Return the addresses of source and sink, the file's where none is given. Raises UriInvalid if one is missing."""
    source = source_uri or str(document.flat.get("source.uri") or "")
    sink = sink_uri or str(document.flat.get("sink-uri") or "")
    for address, what, key in ((source, "source-uri", "uri under [source]"), (sink, "sink-uri", "sink-uri")):
        if not address:
            raise UriInvalid(f"{what} is missing: set --{what}, or {key} in the configuration file")
    return resolve_uri(source, "source-uri"), resolve_uri(sink, "sink-uri")


def _pair(
    document: Document, source_uri: str, sink_uri: str, workers: int | None, rows: SourceEntry | None
) -> tuple[Pairing, list[str]]:
    """Both entries with their addresses, that of `rows` for a load alone, and the parameters of the call without
    effect. Raises for keys that one of them refuses."""
    source, sink = rows or entry_at(SOURCES, source_uri, "source-uri"), entry_at(SINKS, sink_uri, "sink-uri")
    for entry, uri, where in ((source, source_uri, "source-uri"), (sink, sink_uri, "sink-uri")):
        _refuse_keys(entry, uri, where)
    refuse(document.keys, refused_keys(source, sink))
    pair = Pairing(source, source.parse(source_uri, document), sink, sink.parse(sink_uri, document))
    if workers is None:
        return pair, []
    if _WORKERS not in sink.params:
        return pair, ["workers"]
    fields, _ = read_all(sink.params, {_WORKERS: RawValue("workers", workers)}, ConfigError)
    resize: Callable[..., Any] = replace if is_dataclass(pair.sink) else msgspec.structs.replace
    return replace(pair, sink=resize(pair.sink, **fields)), []


def _refuse_keys(entry: SourceEntry | SinkEntry, uri: str, where: str) -> None:
    """Raise UriInvalid for a parameter that is none, but a key of a changefeed file that acts here."""
    unknown = {name for name, _ in parse_qsl(uri.partition("?")[2], keep_blank_values=True)} - entry.params.keys()
    for key in sorted(entry.keys):
        name = key.rpartition(".")[2]
        if name in unknown:
            raise UriInvalid(f"{where}: {name} is not a URI parameter; set {key} in the changefeed file")


def entry_at(entries: Mapping[str, Entry], uri: str, where: str) -> Entry:
    """Return the entry of an address's scheme; what follows a "+" in it is the entry's own. Raises UriInvalid."""
    scheme = scheme_of(uri)
    if not scheme:
        raise UriInvalid(f"{where}: expected SCHEME://..., found {mask_uri(uri)}")
    kind = scheme.partition("+")[0]
    match = entries.get(kind) or next((entry for entry in entries.values() if kind in entry.aliases), None)
    if match is None:
        raise wrong_scheme(uri, where, list(entries))
    return match


def _events(document: Document, time_zone: str, since: int) -> EventFilter:
    """The event filters. EventTypeInvalid, FilterRuleInvalid, ExpressionParseFailed."""
    from tidegate.engine.event_expression import event_filter

    sensitive = document.case_sensitive
    return event_filter(document.tree, case_sensitive=sensitive, time_zone=time_zone, since=since)
