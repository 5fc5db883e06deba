"""Entries of the scheme registry: what is said once of a source or a sink, and what a pair of them follows from.

    SourceEntry   ordered?  tells start_ts?  old values?  types?          ─┐
                                                                           ├─► rules (pair.py), none for a pair by name
    SinkEntry     keeps its progress?  reads the changelog?  own zone?    ─┘

`config/registry.py` holds the entries: SOURCES and SINKS, by scheme.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tidegate.config.document import Document
from tidegate.config.feed import FeedConfig, SinkAddress, SourceAddress
from tidegate.config.param import Param
from tidegate.config.refused import NO_START_TS, NOWHERE, RefusedKey
from tidegate.model.left_out import Told

if TYPE_CHECKING:
    from tidegate.changelog.source import BatchLoop
    from tidegate.engine.ports import Sink, Source

Address = TypeVar("Address", bound=SourceAddress | SinkAddress)


def _silent(_: Any) -> tuple[str, ...]:
    return ()


def _none(_: Any) -> None:
    return None


def _true(_: Any) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Generic[Address]):
    """What is said of sources and sinks alike. The functions take the address that `parse` returns."""

    scheme: str
    about: str
    aliases: tuple[str, ...] = ()
    """Other schemes of the same addresses."""
    example: str
    params: Mapping[str, Param]
    parse: Callable[[str, Document], Address]
    address: type
    keys: frozenset[str] = frozenset()
    """Keys of a file that act because of this end."""
    refused: Mapping[str, RefusedKey] = field(default_factory=dict)
    """Keys of a file that it cannot follow."""
    zone_of: Callable[[Any], str | None] = _none
    """The zone that its address tells: of a source, that in which TIMESTAMPs come as texts."""
    tokens_go_to: Callable[[Any], frozenset[str]] = lambda _: frozenset()
    """HOST:PORT that get what token files or the environment of this machine hold, or what is signed with it."""
    warnings: Callable[[Any], tuple[str, ...]] = _silent
    """What a user should hear of an address that works, but perhaps not as meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEntry(Entry[SourceAddress]):
    """One kind of source."""

    land: Callable[[FeedConfig, str], "BatchLoop"] | None
    """Makes what appends the source's changes to the changelog of a home: a lake, or a feed's state; None: nothing
    lands again."""
    ordered: bool
    """It can be read by commit ts as it is; others land in the changelog first."""
    tells_start_ts: bool
    """It tells the start_ts of transactions."""
    moments: bool
    """TIMESTAMPs come as moments, not as texts on the clocks of a zone."""
    start_ts_refused: str = ""
    """Why start-ts is refused; empty where it says where a new changefeed begins."""
    has_old_values: Callable[[Any], bool] = _true
    """False where messages may lack old values, so that an UPDATE may come as an INSERT does."""
    lacks_old_values: Callable[[Any], str] = lambda _: ""
    """The setting by which messages lack old values for sure; empty where they may have them."""
    has_types: Callable[[Any], bool] = _true
    """False where a column's type comes without its parameters, such as the 50 of varchar(50)."""
    verifies: Callable[[Any], bool] = lambda _: False
    """True where the checksums of whole rows are compared."""
    brings_keyless: Callable[[Any], bool] = _true
    """It brings rows of tables without a key: whoever writes a topic has chosen them."""
    check: Callable[[FeedConfig], Told | None] = _none
    """Meets the source without a trace and tells its tables; None where they are told as it is read."""
    open: "Callable[[FeedConfig, str], Source] | None" = None
    """Makes the source that is read as it is, for a feed with this home; None where changes land first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkEntry(Entry[SinkAddress]):
    """One kind of sink."""

    open: "Callable[[FeedConfig], Sink[Any]]"
    """Makes the sink of a changefeed."""
    keeps_progress: bool
    """It keeps the checkpoint with the data; others need a state directory."""
    reads_changelog: bool
    """It reads what has landed, so that ordered sources land for it, too."""
    home: Callable[[Any], str] = lambda address: str(address.path)
    """Where a sink that keeps progress keeps it; the changelog lies there."""
    renders_times: bool = True
    """The zone of its address is the one in which it writes TIMESTAMPs; else the one in which they come."""
    needs_whole_tables: Callable[[Any], bool] = lambda _: False
    """It replicates tables, so that a new changefeed begins with the rows that they have."""
    keeps_keyless: bool = False
    """It keeps tables without a handle key, so that a source which leaves them out for others brings them."""
    check_tables: Callable[[Any, Any], None] = lambda *_: None
    """Raises what is wrong with a FeedConfig for tables (TableVersion) that its source knows at the start."""
    needs_old_values: Callable[[Any], str] = lambda _: ""
    """The parameter that needs the values before a change; empty where none does."""
    needs_types: Callable[[Any], str] = lambda _: ""
    """The parameter that needs the parameters of column types; empty where none does."""


def is_landed(source: SourceEntry, sink: SinkEntry) -> bool:
    """Return True if changes go through the changelog between these two."""
    return not source.ordered or sink.reads_changelog


def refused_keys(source: SourceEntry, sink: SinkEntry) -> Mapping[str, RefusedKey]:
    """Return the keys of a file that a changefeed between these two cannot follow."""
    told = {} if source.tells_start_ts else {"filter.ignore-txn-start-ts": NO_START_TS}
    return {**NOWHERE, **told, **source.refused, **sink.refused}
