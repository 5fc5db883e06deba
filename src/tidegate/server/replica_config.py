"""`replica_config`, a changefeed file as JSON: what TiCDC's API takes and shows, to and from the tree of a TOML file.

    {"filter": {"rules": ["shop.*"]},          parse            {"filter": {"rules": ["shop.*"]},
     "sync_point_interval": 600000000000,    ─────────►          "sync-point-interval": "10m"}    config/load.py
     "memory_quota": 1073741824}             ◄─────────
                                               render           what equals TiCDC's default is not kept, and shown

Names have "_" where the file has "-"; either is read.  Unknown names are dropped and null means absent, as in TiCDC.
Absent means TiCDC's default, in a new changefeed and in a change of one.  Three times are nanoseconds in JSON.
Secrets are shown as xxxxx (`masked`), and one that comes back so stands for the text that is kept (`unmasked`).

Source: TiCDC's OpenAPI v2, `ReplicaConfig`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tidegate.config.load import KEYS
from tidegate.config.option import duration_ns, duration_text
from tidegate.config.uri import mask_value, nearest
from tidegate.server.record import ApiParamInvalid

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "changefeed-id": (),
    "sink-uri": (),
    "sink.file-index-width": (),
    "sink.file-index-digit": ("file_index_width",),
    "sink.advance-timeout-in-sec": ("advance_timeout", "advance_timeout_in_sec"),
    "sink.mysql-config.max-multi-update-row": ("max_multi_update_row_count", "max_multi_update_row"),
    "sink.send-all-bootstrap-at-start": ("send-all-bootstrap-at-start",),
    "sink.dispatchers[].target-schema": ("target-schema",),
    "sink.dispatchers[].target-table": ("target-table",),
}
"""Names in JSON that are not the file's with "_": the shown name, then other accepted ones; none for keys that
the API has outside `replica_config`, or under another name."""
_SHOWN: Final = (
    *("case-sensitive", "changefeed-error-stuck-duration", "filter.rules", "sink.date-separator", "sink.safe-mode"),
    *("sink.enable-partition-separator", "sink.only-output-updated-columns"),
)
"""Tidegate's own options whose default is shown."""
_NULL: Final = frozenset({"sink.delete-only-output-handle-key-columns", "sink.content-compatible"})
"""Keys that are shown as null if they are not set."""
_ZERO_IS_DEFAULT: Final = frozenset({"memory-quota"})
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1
_NS_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value: its path and name in the file, its name in JSON, its kind (load.KINDS)."""

    path: str
    toml: str
    json: str
    kind: str
    default: object = None
    always: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """An object, or a list of them if `many`. `fields` are by their names in JSON, with "_" for every "-"."""

    toml: str
    json: str
    many: bool = False
    fields: dict[str, "Leaf | Section"] = field(default_factory=dict)


def _table() -> Section:
    root = Section("", "replica_config")
    for path, key in KEYS.items():
        *sections, name = path.split(".")
        names = _NAMES.get(path, (_snake(name),))
        if not names:
            continue
        parent = root
        for each in sections:
            bare = each.removesuffix("[]")
            child = parent.fields.setdefault(_snake(bare), Section(bare, _snake(bare), each != bare))
            assert isinstance(child, Section), path
            parent = child
        default = key.shown
        if path in _SHOWN:
            default = key.default if key.kind in {"text", "duration"} else msgspec.json.decode(key.default)
        leaf = Leaf(path, name, names[0], key.kind, default, path in _NULL)
        parent.fields.update(dict.fromkeys(map(_snake, names), leaf))
    return root


def _snake(name: str) -> str:
    return name.replace("-", "_")


# From JSON to the file.


def parse_replica_config(value: object) -> dict[str, Any]:
    """Return a `replica_config` as the tree of a changefeed file. Raises ApiParamInvalid for a value of the wrong
    type."""
    return {} if value is None else _parse_section(TABLE, value, "replica_config")


def unknown_names(document: object, section: "Section | None" = None, where: str = "") -> Iterator[str]:
    """Yield the names of a `replica_config` that are not read, as TiCDC does not read them, each with the nearest."""
    section = section or TABLE
    for name, value in document.items() if isinstance(document, dict) else ():
        entry = section.fields.get(_snake(str(name)))
        if entry is None:
            yield f"{where}{name}{nearest(str(name), section.fields)}"
        elif isinstance(entry, Section):
            for item in value if isinstance(value, list) else [value]:
                yield from unknown_names(item, entry, f"{where}{name}.")


def _parse_section(section: Section, document: object, where: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise ApiParamInvalid(f"{where}: expected an object")
    tree: dict[str, Any] = {}
    for name, value in document.items():
        entry = section.fields.get(_snake(str(name)))
        if entry is None or value is None:
            continue
        read = _parse(entry, value, f"{where}.{name}")
        if read is not None and read not in ({}, []):
            tree[entry.toml] = read
    return tree


def _parse(entry: Leaf | Section, value: object, where: str) -> Any:
    """Return a value of the file; None for the default."""
    if isinstance(entry, Leaf):
        read = KINDS[entry.kind](value)
        if read is None:
            raise ApiParamInvalid(f"{where}: expected {_EXPECTED[entry.kind]}")
        absent = read == entry.default or (read == 0 and entry.path in _ZERO_IS_DEFAULT)
        return None if absent else read
    if not entry.many:
        return _parse_section(entry, value, where)
    if not isinstance(value, list):
        raise ApiParamInvalid(f"{where}: expected a list of objects")
    return [_parse_section(entry, item, f"{where}[{index}]") for index, item in enumerate(value)]


def _only(kind: type) -> Callable[[object], object]:
    return lambda value: value if type(value) is kind else None


def _list_of(read: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: value if isinstance(value, list) and all(read(item) is not None for item in value) else None


def _int(value: object) -> int | None:
    return value if type(value) is int and _INT_MIN <= value <= _INT_MAX else None


def _number(value: object) -> object:
    return value if type(value) is float else _int(value)


def _duration(value: object) -> str | None:
    """Return a Go duration, from nanoseconds or from a Go duration."""
    ns = value if type(value) is int else duration_ns(value) if isinstance(value, str) else None
    return None if ns is None or not 0 <= ns <= _NS_MAX else duration_text(ns)


KINDS: Final[Mapping[str, Callable[[object], Any]]] = {
    "bool": _only(bool),
    "int": _int,
    "text": _only(str),
    "texts": _list_of(_only(str)),
    "ints": _list_of(_int),
    "duration": _duration,
    "number": _number,
    "numbers": _list_of(_number),
    "param": lambda value: _int(value) if type(value) is int else value if isinstance(value, bool | str) else None,
}
"""Converts a value to that of the file, by kind; None for a value of another kind."""
_EXPECTED: Final = {
    "bool": "true or false",
    "int": "a whole number of 64 bits",
    "text": "a string",
    "texts": "a list of strings",
    "ints": "a list of whole numbers of 64 bits",
    "duration": 'nanoseconds, or a text such as "10m"',
    "number": "a number",
    "numbers": "a list of numbers",
    "param": "a single value",
}


# From the file to JSON.

TABLE: Final = _table()


def spelled(tree: Mapping[str, Any], section: Section = TABLE) -> dict[str, Any]:
    """Return the tree of a changefeed file with JSON's names, secrets included."""
    values: dict[str, Any] = {}
    for entry in section.fields.values():
        value = tree.get(entry.toml)
        if isinstance(entry, Section) and value is not None:
            value = [spelled(item, entry) for item in value] if entry.many else spelled(value, entry)
        elif isinstance(entry, Leaf) and entry.kind == "duration" and isinstance(value, str):
            ns = duration_ns(value)
            value = value if ns is None else ns
        if value is not None:
            values[entry.json] = value
    return values


def render(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree of a changefeed file as a `replica_config`, with TiCDC's defaults and secrets masked."""
    return _render_section(TABLE, masked(tree))


def _render_section(section: Section, tree: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for entry in section.fields.values():
        value = tree.get(entry.toml)
        if isinstance(entry, Leaf):
            value = entry.default if value is None else value
            value = duration_ns(value) if entry.kind == "duration" and isinstance(value, str) else value
        elif entry.many:
            value = None if value is None else [spelled(item, entry) for item in value]
        else:
            value = _render_section(entry, value or {}) or None
        if value is not None or (isinstance(entry, Leaf) and entry.always):
            shown[entry.json] = value
    return shown


def masked(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree with xxxxx for each text that is or contains a secret."""
    return {name: _masked(name, value) for name, value in tree.items()}


def _masked(name: str, value: Any) -> Any:
    match value:
        case dict():
            return masked(value)
        case list():
            return [_masked(name, item) for item in value]
        case str():
            return mask_value(name, value)
    return value


def unmasked(tree: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree with the stored text for each secret that is masked."""
    result: dict[str, Any] = {}
    for name, value in tree.items():
        before = stored.get(name)
        if isinstance(value, dict):
            result[name] = unmasked(value, before if isinstance(before, dict) else {})
        else:
            result[name] = before if before is not None and value == _masked(name, before) else value
    return result
