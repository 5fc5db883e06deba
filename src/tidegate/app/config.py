"""A changefeed's configuration, from a TOML file, from URIs, or from both.

    command line  >  parameters inside a URI  >  the file  >  defaults

Every key is checked against keys.KEYS: an unknown one is an error with the nearest right key, a wrong type names
the path and the type, and keys of TiCDC without effect here are listed in one warning.  A FeedConfig is a value:
nothing in it is looked up later, and printing it shows no password.
"""

import re
import tomllib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from tidegate.app.keys import KEYS
from tidegate.app.params import DELTA_SINK, FEED, Given, nearest, read_all
from tidegate.app.refused_keys import check_old_values, refuse_for_lake
from tidegate.app.tidb_address import ACTING, SCHEME, TidbSource, parse_tidb
from tidegate.app.uri import DeltaSink, KafkaSource, mask_uri, parse_sink, parse_source
from tidegate.feed.column_selector import ColumnSelectors, SelectorRule, selector_rules
from tidegate.feed.dispatch_rule import PARTITION_WORDS, DispatchRule, dispatch_rules, topic_pattern
from tidegate.feed.event_filter import EventFilter
from tidegate.feed.event_rule import EventRule, event_rules
from tidegate.feed.filter import DEFAULT_RULES, TableFilter
from tidegate.model.errors import ChangefeedIdInvalid, ConfigError, UriInvalid

__all__ = ["FeedConfig", "SinkFile", "addresses", "feed_id", "feed_name", "from_uris", "load", "sink_file"]

_ID: Final = re.compile(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*")
_ID_MAX: Final = 128


@dataclass(frozen=True, slots=True)
class FeedConfig:
    """One changefeed. `source_uri` and `sink_uri` are for people: passwords in them are masked."""

    name: str
    source: KafkaSource | TidbSource
    sink: DeltaSink
    rules: tuple[str, ...]
    case_sensitive: bool
    time_zone: str
    source_uri: str
    sink_uri: str
    warnings: tuple[str, ...] = ()
    stuck_ms: int = 1_800_000
    """How long errors that may pass are waited out while nothing moves."""
    dispatchers: tuple[DispatchRule, ...] = ()
    """Where TiCDC sends rows. A lake has no use for them; a topic that is written does."""

    events: EventFilter = field(default_factory=EventFilter, repr=False)
    event_rules: tuple[EventRule, ...] = ()
    """The rules of `events`."""
    selectors: tuple[SelectorRule, ...] = ()
    """Which columns a lake holds."""

    def table_filter(self) -> TableFilter:
        """The tables of this changefeed."""
        return TableFilter.parse(self.rules, case_sensitive=self.case_sensitive)


@dataclass(frozen=True, slots=True)
class SinkFile:
    """The part of a changefeed file that concerns a topic: options of the encoder by their paths, dispatchers and
    column selectors; `document` is the whole file."""

    settings: Mapping[str, object]
    dispatchers: tuple[DispatchRule, ...] = ()
    case_sensitive: bool = False
    selectors: tuple[SelectorRule, ...] = ()
    document: Mapping[str, object] = field(default_factory=dict, repr=False)

    def table_filter(self, given: Sequence[str] = ()) -> TableFilter:
        """The tables of `given` rules, else of the file's."""
        section = self.document.get("filter")
        rules = _texts(section.get("rules")) if isinstance(section, dict) else ()
        return TableFilter.parse(given or rules or DEFAULT_RULES, case_sensitive=self.case_sensitive)

    def source_keys(self) -> dict[str, Given]:
        """The parameters under [source]."""
        return _section(_flatten(self.document), "source.")


def load(
    path: str | Path,
    *,
    name: str | None = None,
    source_uri: str | None = None,
    sink_uri: str | None = None,
    rules: Sequence[str] = (),
    workers: int | None = None,
    start_ts: int | None = None,
) -> FeedConfig:
    """The changefeed that the file describes, with the given values in place of the file's."""
    document = _read_toml(Path(path))
    flat, rows = _flatten(document), _dispatchers(document)
    config = _build(flat, name=name, source_uri=source_uri, sink_uri=sink_uri, rules=rules, workers=workers)
    refuse_for_lake(document, messages=isinstance(config.source, KafkaSource))
    selectors = _selectors(document)
    ColumnSelectors.of(selectors, case_sensitive=config.case_sensitive)  # bad rules are told now
    return _with_events(replace(begun_at(config, start_ts), dispatchers=rows, selectors=selectors), document)


def _with_events(config: FeedConfig, document: Mapping[str, object]) -> FeedConfig:
    """The changefeed with its event filters. EventTypeInvalid, FilterRuleInvalid, ExpressionParseFailed."""
    from tidegate.app.event_expression import event_filter

    section = document.get("filter")
    rules = event_rules(section.get("event-filters", ())) if isinstance(section, dict) else ()
    since = 0 if isinstance(config.source, KafkaSource) else config.source.start_ts or 0
    if isinstance(config.source, KafkaSource) and config.source.protocol == "open-protocol":
        check_old_values(document, rules)
    events = event_filter(document, case_sensitive=config.case_sensitive, time_zone=config.time_zone, since=since)
    return replace(config, events=events, event_rules=rules)


def addresses(path: str | Path | None, source_uri: str | None, sink_uri: str | None) -> tuple[str, str]:
    """The two addresses of a changefeed, those of the file where none are given; empty where there is none at all."""
    flat = {} if path is None else _flatten(_read_toml(Path(path)))
    return source_uri or str(flat.get("source.uri") or ""), sink_uri or str(flat.get("sink-uri") or "")


def feed_name(path: str | Path | None, name: str | None, sink_uri: str) -> str:
    """The id of a changefeed into topics: the one that is given, the file's, else one made of the sink."""
    given = name or (None if path is None else _flatten(_read_toml(Path(path))).get("changefeed-id"))
    place = sink_uri.partition("?")[0]
    return feed_id(given, place.rpartition("/")[2], place)


def sink_file(path: str | Path) -> SinkFile:
    """What the file says of a topic that is to be written. ConfigError for any key or value that it cannot have."""
    document = _read_toml(Path(path))
    flat, rules = _flatten(document), _dispatchers(document)
    for number, rule in enumerate(rules):
        _check_dispatcher(f"sink.dispatchers[{number}]", rule)
    settings = {key: value for key, value in flat.items() if key.startswith("sink.") and not _elsewhere(key)}
    settings |= {key: flat[key] for key in ("force-replicate",) if key in flat}
    return SinkFile(settings, rules, flat.get("case-sensitive") is True, _selectors(document), document)


def _elsewhere(key: str) -> bool:
    return "[]." in key or key.startswith("sink.delta-config.")


def _selectors(document: Mapping[str, object]) -> tuple[SelectorRule, ...]:
    sink = document.get("sink")
    return selector_rules(sink.get("column-selectors", ())) if isinstance(sink, dict) else ()


def _dispatchers(document: Mapping[str, object]) -> tuple[DispatchRule, ...]:
    sink = document.get("sink")
    return dispatch_rules(sink.get("dispatchers", [])) if isinstance(sink, dict) else ()


def _check_dispatcher(where: str, rule: DispatchRule) -> None:
    """Raises ConfigError for a word of `partition` of which TiCDC only warns, sending rows elsewhere than meant."""
    word = rule.partition.lower()
    if word not in PARTITION_WORDS:
        known = ", ".join(word for word in PARTITION_WORDS if word)
        raise ConfigError(f"{where}: partition = {rule.partition!r} is none of {known}{nearest(word, PARTITION_WORDS)}")
    if rule.topic:
        topic_pattern(rule.topic, "")
    TableFilter.parse(rule.matcher or DEFAULT_RULES)


def from_uris(
    source_uri: str,
    sink_uri: str,
    *,
    name: str | None = None,
    rules: Sequence[str] = (),
    workers: int | None = None,
    start_ts: int | None = None,
) -> FeedConfig:
    """The changefeed between two URIs."""
    config = _build({}, name=name, source_uri=source_uri, sink_uri=sink_uri, rules=rules, workers=workers)
    return begun_at(config, start_ts)


def begun_at(config: FeedConfig, start_ts: int | None) -> FeedConfig:
    """The changefeed with a start-ts of its own; a topic has none, its `start` parameter tells offsets."""
    if start_ts is None:
        return config
    if isinstance(config.source, KafkaSource):
        raise ConfigError("start-ts is for tidb://; a topic begins at the offsets of source-uri parameter start")
    return replace(config, source=msgspec.structs.replace(config.source, start_ts=start_ts))


def _build(
    flat: Mapping[str, object],
    *,
    name: str | None,
    source_uri: str | None,
    sink_uri: str | None,
    rules: Sequence[str],
    workers: int | None,
) -> FeedConfig:
    source_uri = source_uri or _uri(flat.get("source.uri"), "source-uri", "uri under [source]")
    sink_uri = sink_uri or _uri(flat.get("sink-uri"), "sink-uri", "sink-uri")
    source = _source(source_uri, flat)
    sink = parse_sink(sink_uri, _section(flat, "sink.delta-config."))
    if workers is not None:
        sink = _with_workers(sink, workers)
    config = FeedConfig(
        name=_name(name or flat.get("changefeed-id"), source, sink),
        source=source,
        sink=sink,
        rules=tuple(rules) or _texts(flat.get("filter.rules")) or DEFAULT_RULES,
        case_sensitive=flat.get("case-sensitive") is True,
        time_zone=_time_zone(source, sink),
        source_uri=mask_uri(source_uri),
        sink_uri=mask_uri(sink_uri),
        warnings=_warnings(flat, source),
        **_feed(flat),
    )
    config.table_filter()  # bad rules are told now, not when the first row comes
    return config


def _source(uri: str, flat: Mapping[str, object]) -> KafkaSource | TidbSource:
    given = _section(flat, "source.")
    if not uri.startswith(SCHEME):
        return parse_source(uri, given)
    return parse_tidb(uri, given, flat)


def _with_workers(sink: DeltaSink, workers: int) -> DeltaSink:
    fields, _ = read_all(DELTA_SINK, {"worker-count": Given("workers", workers)}, ConfigError)
    return msgspec.structs.replace(sink, **fields)


def _uri(value: object, what: str, key: str) -> str:
    if isinstance(value, str) and value:
        return value
    raise UriInvalid(f"{what} is missing: give --{what}, or {key} in the configuration file")


def _section(flat: Mapping[str, object], prefix: str) -> dict[str, Given]:
    return {
        path.removeprefix(prefix): Given(path, value)
        for path, value in flat.items()
        if path.startswith(prefix) and KEYS[path].kind == "param"
    }


def _feed(flat: Mapping[str, object]) -> dict[str, Any]:
    """The times that belong to the changefeed itself, as fields of FeedConfig: whole milliseconds."""
    given = {name: Given(name, flat[name]) for name in FEED if name in flat}
    fields, _ = read_all(FEED, given, ConfigError)
    return fields


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _name(given: object, source: KafkaSource | TidbSource, sink: DeltaSink) -> str:
    """The id that was given, checked; else one that the same topics and lake always get."""
    read = source.topics if isinstance(source, KafkaSource) else (source.directory,)
    return feed_id(given or None, read[0], ",".join(sorted(read)) + " " + sink.path)


def feed_id(given: object, place: str, identity: str) -> str:
    """`given` if it may name a changefeed; for None a name made of the words of `place`, which `identity` makes one of
    its own. Raises ChangefeedIdInvalid."""
    if given is None:
        words = "-".join(re.findall(r"[A-Za-z0-9]+", place)) or "feed"
        return f"{words[:100].rstrip('-')}-{zlib.crc32(identity.encode()):08x}"
    if not isinstance(given, str) or not _ID.fullmatch(given) or len(given) > _ID_MAX:
        raise ChangefeedIdInvalid(
            f"changefeed-id {given!r}: letters and digits with single hyphens between them, at most {_ID_MAX}"
        )
    return given


def _time_zone(source: KafkaSource | TidbSource, sink: DeltaSink) -> str:
    if isinstance(source, TidbSource):
        if sink.time_zone not in {None, "UTC"}:
            raise ConfigError("time-zone: rows of tidb:// carry moments, which need no zone; leave the parameter out")
        return "UTC"
    if source.time_zone and sink.time_zone and source.time_zone != sink.time_zone:
        raise ConfigError(
            f"time-zone is {source.time_zone} for the source and {sink.time_zone} for the sink; give it once"
        )
    return source.time_zone or sink.time_zone or "UTC"


def _warnings(flat: Mapping[str, object], source: KafkaSource | TidbSource) -> tuple[str, ...]:
    if isinstance(source, TidbSource):
        idle = sorted(path for path in flat if not KEYS[path].acts and path not in ACTING)
        return (f"accepted without effect when writing a lake: {', '.join(idle)}",) if idle else ()
    idle = sorted({path for path in flat if not KEYS[path].acts} | {f"source-uri {name}" for name in source.ignored})
    warnings = [f"accepted without effect when reading a topic: {', '.join(idle)}"] if idle else []
    if source.order == "offset":
        warnings.append("order=offset: rows are applied as they come; transactions may be cut across partitions")
    return tuple(warnings)


# The file.


def _read_toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"no configuration file {path}") from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start})") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error


def _flatten(document: Mapping[str, object]) -> dict[str, object]:
    """{path: value} of every key. Raises ConfigError for unknown keys and wrong types."""
    return dict(_walk(document, ""))


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
    "texts": ("a list of strings", _is_list_of(str)),
    "ints": ("a list of whole numbers", _is_list_of(int)),
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
