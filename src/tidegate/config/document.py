"""A changefeed's TOML file, every key of it known and of the right type.

    document.flat["sink.kafka-config.partition-num"]       a key by its path
    document.section("source.")                            the parameters under [source]
    document.dispatchers, .selectors, .event_rules         what the lists of tables say

An unknown key is an error with the nearest right key; a wrong type is named with its path and the right type.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tidegate.config.keys import KEYS
from tidegate.config.param import Given, nearest
from tidegate.engine.dispatch import DispatchRule, dispatch_rules
from tidegate.engine.event_filter import EventRule, event_rules
from tidegate.engine.filter import SelectorRule, selector_rules
from tidegate.model.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Document:
    """What a file holds; without a file, nothing. Its lists of tables raise what is wrong with a rule."""

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
        """`filter.rules`."""
        found = self.flat.get("filter.rules")
        return tuple(map(str, found)) if isinstance(found, list) else ()

    @property
    def case_sensitive(self) -> bool:
        """`case-sensitive`."""
        return self.flat.get("case-sensitive") is True

    def section(self, prefix: str) -> dict[str, Given]:
        """Return the parameters of a section, such as those under "source."."""
        return {
            path.removeprefix(prefix): Given(path, value)
            for path, value in self.flat.items()
            if path.startswith(prefix) and KEYS[path].kind == "param"
        }

    def _tables(self, section: str, name: str) -> object:
        return self.tree.get(section, {}).get(name, ())


def read_document(path: str | Path | None) -> Document:
    """Return the file at `path`, or an empty one for None. Raises ConfigError for what no file can have."""
    return Document() if path is None else document_of(_read_toml(Path(path)))


def document_of(tree: Mapping[str, Any]) -> Document:
    """Return what a file of these tables and keys says. Raises ConfigError for what no file can have."""
    keys = tuple(_walk(tree, ""))
    return Document(tree, keys, dict(keys))


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
