"""Read a changefeed's configuration, from a TOML file, from addresses, or from both.

    command line  >  parameters inside an address  >  the file  >  defaults

Which address is parsed how, which keys act and which are refused is said by the entries of SOURCES and SINKS
(config/registry.py); what two of them cannot do together, by the rules of pair.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from tidegate.config.document import Document, read_document
from tidegate.config.entry import SinkEntry, SourceEntry, refused_keys
from tidegate.config.feed import FeedConfig
from tidegate.config.pair import Pairing
from tidegate.config.param import TIME_MAX_MS, Given, Param, read_all
from tidegate.config.refused import refuse
from tidegate.config.registry import SINKS, SOURCES
from tidegate.config.uri import mask_uri, scheme_of, state_place, told, wrong_scheme
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import DEFAULT_RULES
from tidegate.model.errors import ConfigError, UriInvalid

Entry = TypeVar("Entry", SourceEntry, SinkEntry)
_FEED: Final[Mapping[str, Param]] = {
    "changefeed-error-stuck-duration": Param("duration", "stuck_ms", "30m", "see keys.py", high=TIME_MAX_MS),
}
"""Keys of the changefeed itself that are read by their kind."""
_WORKERS: Final = "worker-count"


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
) -> FeedConfig:
    """Return the changefeed that a file describes, with the given values in place of the file's.

    Raises a ConfigError or an UnsupportedError, under TiCDC's code where it has one, for what cannot be meant."""
    document = path if isinstance(path, Document) else read_document(path)
    source_uri, sink_uri = addresses(document, source_uri, sink_uri)
    pair, idle = _pair(document, source_uri, sink_uri, workers)
    if start_ts is not None and pair.source_entry.start_ts_refused:
        known = " or ".join(f"{entry.scheme}://" for entry in SOURCES.values() if not entry.start_ts_refused)
        raise ConfigError(f"start-ts is for {known}; {pair.source_entry.start_ts_refused}")
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
        state_dir=None if state_dir is None else state_place(str(state_dir)),
        **_stuck(document),
    )
    pair.check(config, document)
    since = (start_ts or 0) if pair.sink_entry.reads_changelog else 0
    events = EventFilter() if path is None else _events(document, time_zone, since)
    return replace(config, events=events, warnings=pair.warnings(config, document, idle))


def addresses(document: Document, source_uri: str | None, sink_uri: str | None) -> tuple[str, str]:
    """Return the addresses of source and sink, the file's where none is given. Raises UriInvalid if one is missing."""
    source = source_uri or str(document.flat.get("source.uri") or "")
    sink = sink_uri or str(document.flat.get("sink-uri") or "")
    for found, what, key in ((source, "source-uri", "uri under [source]"), (sink, "sink-uri", "sink-uri")):
        if not found:
            raise UriInvalid(f"{what} is missing: give --{what}, or {key} in the configuration file")
    return told(source, "source-uri"), told(sink, "sink-uri")


def _pair(document: Document, source_uri: str, sink_uri: str, workers: int | None) -> tuple[Pairing, list[str]]:
    """The two ends with their addresses, and the words that have no use. Raises for keys that one of them refuses."""
    source, sink = _entry(SOURCES, source_uri, "source-uri"), _entry(SINKS, sink_uri, "sink-uri")
    refuse(document.keys, refused_keys(source, sink))
    pair = Pairing(source, source.parse(source_uri, document), sink, sink.parse(sink_uri, document))
    if workers is None:
        return pair, []
    if _WORKERS not in sink.params:
        return pair, ["workers"]
    fields, _ = read_all(sink.params, {_WORKERS: Given("workers", workers)}, ConfigError)
    sized = msgspec.structs.replace(pair.sink, **fields)  # type: ignore[type-var]  # addresses are structs
    return replace(pair, sink=sized), []


def _entry(entries: Mapping[str, Entry], uri: str, where: str) -> Entry:
    """The entry of an address's scheme; what follows a "+" in it is the entry's own."""
    scheme = scheme_of(uri)
    if not scheme:
        raise UriInvalid(f"{where}: expected SCHEME://..., found {mask_uri(uri)}")
    kind = scheme.partition("+")[0]
    found = entries.get(kind) or next((entry for entry in entries.values() if kind in entry.aliases), None)
    if found is None:
        raise wrong_scheme(uri, where, list(entries))
    return found


def _stuck(document: Document) -> dict[str, Any]:
    given = {name: Given(name, document.flat[name]) for name in _FEED if name in document.flat}
    fields, _ = read_all(_FEED, given, ConfigError)
    return fields


def _events(document: Document, time_zone: str, since: int) -> EventFilter:
    """The event filters. EventTypeInvalid, FilterRuleInvalid, ExpressionParseFailed."""
    from tidegate.engine.event_expression import event_filter

    sensitive = document.case_sensitive
    return event_filter(document.tree, case_sensitive=sensitive, time_zone=time_zone, since=since)
