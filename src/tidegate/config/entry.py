"""The parts of a configuration: a changefeed's file, its settings as one value, and the entry of a source or a sink.

    SourceEntry   ordered?  has start_ts?  old values?  types?            ─┐
                                                                           ├─► rules (load.py), none names a pair
    SinkEntry     stores its progress?  reads the changelog?  own zone?   ─┘

Each source and sink is a module here that exports its entry; config/registry.py lists them.  Keys of FOR_SOME_SINKS are
refused by every sink that does not list them in `acts`, or in `accepts` if they have no effect there.
"""

import re
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from tidegate.config.uri import RawValue
from tidegate.engine.dispatch import DispatchRule, dispatch_rules
from tidegate.engine.event_filter import EventFilter, event_rules
from tidegate.engine.filter import EventRule, SelectorRule, TableFilter, selector_rules
from tidegate.model.errors import ChangefeedIdInvalid, ConfigError, InputError, UnsupportedError
from tidegate.model.left_out import KnownTables
from tidegate.model.option import Option
from tidegate.model.tso import compose

if TYPE_CHECKING:
    from tidegate.changelog.source import BatchLoop
    from tidegate.config.ticdc import TicdcAddress
    from tidegate.engine.checkpoints import StateFiles
    from tidegate.engine.ports import Sink, Source
    from tidegate.engine.upstream_feed import UpstreamFeed
    from tidegate.source.dump_options import DumpOptions
    from tidegate.source.tikv_options import TikvLoadOptions
    from tidegate.source.upstream_address import SqlLoadOptions

_ID: Final = re.compile(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*")
_ID_MAX: Final = 128
STUCK_MS: Final = 1_800_000


class SinkAddress(Protocol):
    """A parsed sink-uri, as far as every sink has one."""

    @property
    def identity(self) -> str:
        """The part of generated changefeed names that identifies the sink."""

    @property
    def addresses(self) -> frozenset[str]:
        """Addresses of the targets, to compare with those of sources."""

    @property
    def ignored(self) -> tuple[str, ...]:
        """Parameters that were accepted without effect."""


class SourceAddress(Protocol):
    """A parsed source-uri, as far as every source has one."""

    @property
    def identity(self) -> str:
        """The part of generated changefeed names that identifies the source."""

    @property
    def label(self) -> str:
        """The words of generated changefeed names."""

    @property
    def addresses(self) -> frozenset[str]:
        """Addresses of the origins, to compare with those of sinks."""

    @property
    def ignored(self) -> tuple[str, ...]:
        """Parameters that were accepted without effect."""

    @property
    def max_retry(self) -> int:
        """Quick tries of a failing step."""


class FullLoad(NamedTuple):
    """The load with which a changefeed begins (config/full_load.py); printing it shows no password. `ts` is the TSO to
    read at, None: the current one. `force_replicate`: tables without a handle key, too. `definitions`: only these, of
    "start" or "now". `ticdc` is the changefeed that writes the stream. `number` and `tables` are those
    of a later load."""

    mode: str
    options: "SqlLoadOptions | DumpOptions | TikvLoadOptions | None"
    ts: int | None = None
    force_replicate: bool = False
    definitions: str = ""
    ticdc: "TicdcAddress | UpstreamFeed | None" = None
    number: int = 0
    tables: TableFilter | None = None

    @property
    def begins(self) -> bool:
        """True if the changefeed begins with rows, its own or somebody else's."""
        return self.mode not in {"never", "definitions"}


@dataclass(frozen=True, slots=True)
class FeedConfig:
    """One changefeed. It is a value: nothing in it is looked up later, and printing it shows no password.

    `source_uri` and `sink_uri` are for people: passwords in them are masked."""

    name: str
    source: SourceAddress
    sink: SinkAddress
    rules: tuple[str, ...]
    case_sensitive: bool
    time_zone: str
    """The zone on whose clocks event filters see TIMESTAMPs, and a lake reads those that come as texts."""
    source_uri: str
    sink_uri: str
    warnings: tuple[str, ...] = ()
    stuck_ms: int = STUCK_MS
    """The longest time for which transient errors are retried without progress."""
    dispatchers: tuple[DispatchRule, ...] = ()
    selectors: tuple[SelectorRule, ...] = ()
    events: EventFilter = field(default_factory=EventFilter, repr=False)
    event_rules: tuple[EventRule, ...] = ()
    """The rules of `events`."""
    start_ts: int | None = None
    """The ts from which a new changefeed reads; None: from the begin of its source."""
    target_ts: int | None = None
    """The ts at which the changefeed ends; None: it does not."""
    state_dir: str | None = None
    """The directory or object store with the checkpoint of a feed whose sink keeps none."""
    load: FullLoad | None = None
    """The rows that a new changefeed begins with; None: those that the source brings."""

    def table_filter(self) -> TableFilter:
        """Return the filter of the tables that the changefeed carries."""
        return TableFilter.parse(self.rules, case_sensitive=self.case_sensitive)


def feed_id(changefeed: object, address: str, identity: str) -> str:
    """Return `changefeed` if it may name a changefeed; for None a name of the words of `address`, made unique by
    `identity`. Raises ChangefeedIdInvalid."""
    if changefeed is None:
        words = "-".join(re.findall(r"[A-Za-z0-9]+", address)) or "feed"
        return f"{words[:100].rstrip('-')}-{zlib.crc32(identity.encode()):08x}"
    if not isinstance(changefeed, str) or not _ID.fullmatch(changefeed) or len(changefeed) > _ID_MAX:
        raise ChangefeedIdInvalid(
            f"changefeed-id {changefeed!r}: expected letters and digits separated by single hyphens, at most {_ID_MAX}"
        )
    return changefeed


@dataclass(frozen=True, slots=True)
class Document:
    """Content of a file; empty without one. Its lists of tables raise the error of a wrong rule."""

    tree: Mapping[str, Any] = field(default_factory=dict, repr=False)
    keys: tuple[tuple[str, object], ...] = field(default=(), repr=False)
    """Every key by its path, those of each table in a list as well."""
    flat: Mapping[str, object] = field(default_factory=dict, repr=False)
    """The values by path; of a list of tables the last one's."""

    @property
    def dispatchers(self) -> tuple[DispatchRule, ...]:
        """The rules of `sink.dispatchers`."""
        return dispatch_rules(self._tables("sink", "dispatchers"))

    @property
    def selectors(self) -> tuple[SelectorRule, ...]:
        """The rules of `sink.column-selectors`."""
        return selector_rules(self._tables("sink", "column-selectors"))

    @property
    def event_rules(self) -> tuple[EventRule, ...]:
        """The rules of `filter.event-filters`."""
        return event_rules(self._tables("filter", "event-filters"))

    @property
    def rules(self) -> tuple[str, ...]:
        rules = self.flat.get("filter.rules")
        return tuple(map(str, rules)) if isinstance(rules, list) else ()

    @property
    def case_sensitive(self) -> bool:
        return self.flat.get("case-sensitive") is True

    def section(self, prefix: str, names: Iterable[str]) -> dict[str, RawValue]:
        """Return the values of a section, such as "source."."""
        paths = {name: prefix + name for name in names}
        return {name: RawValue(path, self.flat[path]) for name, path in paths.items() if path in self.flat}

    def options(self, options: Iterable[Option]) -> dict[str, RawValue]:
        """Return the values under the keys of acting options, without empty ones."""
        acting = [option for option in options if option.path in self.flat and option.field is not None]
        values = {option.name: RawValue(option.path, self.flat[option.path]) for option in acting}
        return {name: value for name, value in values.items() if value.value not in {None, ""}}

    def _tables(self, section: str, name: str) -> object:
        return self.tree.get(section, {}).get(name, ())


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a file. `kind` is one of load.KINDS; `acts`: with every source and every sink."""

    kind: str
    about: str
    acts: bool = False
    default: str = ""
    """The default as the documentation shows it."""
    shown: object = None
    """The value that TiCDC's API shows for an absent key; None: the API shows none."""


def key_of(option: Option, *, shown: object = None) -> Key:
    """Return an option that only a file has as its key; `shown` as Key has it."""
    return Key(option.kind, option.about, default=option.default or "", shown=shown)


class RefusedKey(NamedTuple):
    """The error and the reason for which a key is refused. Its path is that of one key, or a prefix that ends in "." or
    "-"."""

    nothing: tuple[object, ...]
    """Values that are accepted, as they change nothing."""
    error: type[InputError]
    why: str


NOWHERE: Final[Mapping[str, RefusedKey]] = {
    "consistent.level": RefusedKey(
        ("none", ""), UnsupportedError, "there is no redo log: tidegate apply reads the topic or the changelog"
    ),
    "filter.ignore-dml-event-filter": RefusedKey(([],), UnsupportedError, "use filter.event-filters instead"),
}
"""Keys that no pair of source and sink follows."""
FOR_SOME_SINKS: Final[Mapping[str, RefusedKey]] = {
    "bdr-mode": RefusedKey((False,), ConfigError, "replication in both directions is between databases"),
    "enable-sync-point": RefusedKey((False,), ConfigError, "sync points are for databases"),
    "sink.column-selectors[].": RefusedKey((), UnsupportedError, "this sink writes whole rows"),
    "sink.dispatchers[].": RefusedKey((), UnsupportedError, "this sink has no topics and no partitions"),
}
"""Keys that a sink refuses unless its entry lists them."""
MEMORY_QUOTA: Final = 1 << 30
"""TiCDC's default."""
FOR_SOME_SOURCES: Final[Mapping[str, RefusedKey]] = {
    "bdr-mode": RefusedKey((False,), UnsupportedError, "the source does not record who wrote a row; a TiDB's log does"),
    "memory-quota": RefusedKey(
        (0, MEMORY_QUOTA),
        UnsupportedError,
        "it bounds rows of tikv:// alone; what each part of this changefeed holds has its own bound (docs/limits.md), "
        "and --conf spark.driver.memory is the heap of Spark",
    ),
}
"""Keys that a source refuses unless it acts on them."""
NO_START_TS: Final = RefusedKey(
    ([],), ConfigError, "messages do not contain the start_ts of their transaction; set it where the topic is written"
)
"""`filter.ignore-txn-start-ts`, from a source without the start_ts of transactions."""


def refuse(keys: Iterable[tuple[str, object]], refused: Mapping[str, RefusedKey]) -> None:
    """Raise for the first of `keys` (path, value) that is refused and has an effect."""
    for path, value in keys:
        reason = refusal(path, refused)
        if reason is not None and not any(value == each for each in reason.nothing):
            raise reason.error(f"{path}: {reason.why}; remove the key")


def refusal(path: str, refused: Mapping[str, RefusedKey]) -> RefusedKey | None:
    """Return why a key is refused, whatever its value; None when it is not."""
    begins = ((key, each) for key, each in refused.items() if path.startswith(key))
    return next((each for key, each in begins if path == key or key.endswith((".", "-"))), None)


Address = TypeVar("Address", bound=SourceAddress | SinkAddress)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Generic[Address]):
    """Properties that sources and sinks have in common. The functions take the address that `parse` returns."""

    scheme: str
    about: str
    aliases: tuple[str, ...] = ()
    """Other schemes of the same addresses."""
    example: str
    params: Mapping[str, Option]
    parse: Callable[[str, Document], Address]
    address: type
    section: str = ""
    """The table of a file, such as `sink.delta-config.`, with all options by their names; empty if
    `Option.key` has the path of each."""
    acts: frozenset[str] = frozenset()
    """Further keys of a changefeed file that take effect for this source or sink."""
    own_keys: Mapping[str, "Key"] = field(default_factory=dict)
    """Keys of a file that are its own and no options."""
    zone_of: Callable[[Any], str | None] = lambda _: None
    """The time zone in its address: of a source, that of TIMESTAMPs in its texts."""
    tokens_go_to: Callable[[Any], frozenset[str]] = lambda _: frozenset()
    """HOST:PORT that receive tokens of this machine's files or environment, or requests signed with them."""
    warnings: Callable[[Any], tuple[str, ...]] = lambda _: ()
    """Warnings about an address that works, but perhaps not as intended."""

    @property
    def keys(self) -> frozenset[str]:
        """Keys of a changefeed file that take effect for this source or sink."""
        if self.section:
            return self.acts | self.own_keys.keys() | {self.section + name for name in self.params}
        acting = (option for option in self.params.values() if option.field is not None)
        return self.acts | self.own_keys.keys() | {option.path for option in acting if option.path}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEntry(Entry[SourceAddress]):
    """One kind of source."""

    land: "Callable[[FeedConfig, str, SinkEntry], BatchLoop] | None"
    """Creates the landing that writes this source into the changelog at a home, a lake or a feed's state; None for what
    has landed already."""
    ordered: bool
    """It can be read by commit_ts directly; others land in the changelog first."""
    tells_start_ts: bool
    """It has the start_ts of transactions."""
    once: bool = False
    """It brings rows once, and no changes."""
    moments: bool
    """TIMESTAMPs come as instants in UTC, not as texts of a time zone."""
    start_ts_refused: str = ""
    """Why start-ts is refused; empty where it says where a new changefeed begins."""
    has_old_values: Callable[[Any], bool] = lambda _: True
    """False where messages may lack old values, so that an UPDATE may come as an INSERT does."""
    lacks_old_values: Callable[[Any], str] = lambda _: ""
    """The setting by which messages lack old values for sure; empty where they may have them."""
    lacks_commit_ts: Callable[[Any], str] = lambda _: ""
    """The setting by which messages come without their commit_ts; empty where they have it."""
    has_types: Callable[[Any], bool] = lambda _: True
    """False where a column's type comes without its parameters, such as the 50 of varchar(50)."""
    verifies: Callable[[Any], bool] = lambda _: False
    """True where the checksums of whole rows are compared."""
    brings_keyless: Callable[[Any], bool] = lambda _: True
    """It has rows of tables without a key: the writer of the topic has chosen them."""
    check: "Callable[[FeedConfig, SinkEntry], KnownTables | None]" = lambda *_: None
    """Connects to the source without changing anything and returns its tables; None if they are known only as it is
    read."""
    now: Callable[[Any], int] = lambda _: compose(time.time_ns() // 1_000_000)
    """Returns a timestamp of now from the upstream at an address; one that is not asked has this machine's clock."""
    forget: "Callable[[FeedConfig, str], None]" = lambda *_: None
    """Ends what the source, or its upstream, keeps for a changefeed with this home, which does not go on."""
    open: "Callable[[FeedConfig, str, SinkEntry], Source] | None" = None
    """Makes the source to read directly, for a feed with this home; None if changes land first."""

    @property
    def refused(self) -> Mapping[str, RefusedKey]:
        """Keys of a file that it cannot follow."""
        return {key: each for key, each in FOR_SOME_SOURCES.items() if key not in self.acts}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkEntry(Entry[SinkAddress]):
    """One kind of sink."""

    open: Callable[[FeedConfig, SourceEntry], "Sink[Any]"]
    """Makes the sink of a changefeed from such a source."""
    accepts: frozenset[str] = frozenset()
    """Keys of FOR_SOME_SINKS that it accepts although it does not act on them."""
    refuses: Mapping[str, RefusedKey] = field(default_factory=dict)
    """Other keys of a file that it cannot follow."""
    keeps_progress: bool = False
    """It keeps the checkpoint with the data; others need a state directory."""
    keeps_position: bool = False
    """It stores the checkpoint in its target, so that the one in the state directory is not read."""
    reads_changelog: bool = False
    """It reads the changelog, so that ordered sources land for it, too."""
    home: Callable[[Any], str] = lambda address: str(address.identity)
    """The directory or store of a sink that keeps progress; it holds the changelog, too."""
    renders_times: bool = True
    """The zone of its address is that of written TIMESTAMPs; otherwise that of incoming ones."""
    needs_whole_tables: Callable[[Any], bool] = lambda _: False
    """It replicates tables, so that a new changefeed begins with the rows that they have."""
    keeps_keyless: bool = False
    """It keeps tables without a handle key, so that a source which leaves them out for others brings them."""
    sends: bool = False
    """Its readers have had what it sent, so that rows come again only where that is asked (`Reload.resend`)."""
    makes_sequences: bool = False
    """Its targets may have sequences, so that a load brings those of the upstream."""
    check_tables: Callable[[Any, Any], None] = lambda *_: None
    """Raises an error for a FeedConfig that does not fit tables (TableVersion) that its source knows at the start."""
    needs_old_values: Callable[[Any], str] = lambda _: ""
    """The parameter that needs the values before a change; empty where none does."""
    needs_types: Callable[[Any], str] = lambda _: ""
    """The parameter that needs the parameters of column types; empty where none does."""

    @property
    def refused(self) -> Mapping[str, RefusedKey]:
        """Keys of a file that it cannot follow."""
        listed = self.keys | self.accepts
        unlisted = {
            key: each for key, each in FOR_SOME_SINKS.items() if not any(path.startswith(key) for path in listed)
        }
        return {**unlisted, **self.refuses}


def is_landed(source: SourceEntry, sink: SinkEntry) -> bool:
    """Return True if changes go through the changelog between these two."""
    return not source.ordered or (sink.reads_changelog and not source.once)


def state_of(config: FeedConfig) -> str:
    """Return the directory below the state directory that is a changefeed's own."""
    assert config.state_dir is not None
    return f"{config.state_dir}/{config.name}"


def checkpoints_of(config: FeedConfig) -> "StateFiles":
    """Return the checkpoint store of a changefeed whose sink keeps none."""
    from tidegate.engine.checkpoints import checkpoints_in

    assert config.state_dir is not None
    identity = config.sink.identity
    return checkpoints_in(config.state_dir, config.name, source=config.source_uri, target=identity)


def refused_keys(source: SourceEntry, sink: SinkEntry) -> Mapping[str, RefusedKey]:
    """Return the keys of a file that a changefeed between these two cannot follow."""
    of_source = {} if source.tells_start_ts else {"filter.ignore-txn-start-ts": NO_START_TS}
    return {**NOWHERE, **of_source, **source.refused, **sink.refused}
