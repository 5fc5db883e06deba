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

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tidegate.config.load import KEYS
from tidegate.config.option import duration_ns, duration_text
from tidegate.config.uri import mask_value
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
"""Names in JSON that are not the file's with "_": the one that is shown, and others that are read; none for keys that
the API has beside `replica_config`, or under another one's name."""
_SHOWN: Final = (
    *("case-sensitive", "changefeed-error-stuck-duration", "filter.rules", "sink.date-separator", "sink.safe-mode"),
    *("sink.enable-partition-separator", "sink.only-output-updated-columns"),
)
"""Options of ours whose default TiCDC's API shows, too."""
_NULL: Final = frozenset({"sink.delete-only-output-handle-key-columns", "sink.content-compatible"})
"""Keys that are shown as null where they are not set."""
_ZERO_IS_DEFAULT: Final = frozenset({"memory-quota"})
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1
_NS_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value: its path and name in the file, its name in JSON, its kind (document.KINDS)."""

    path: str
    toml: str
    json: str
    kind: str
    default: object = None
    always: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """An object; of `many`, a list of them. `fields` are by their names in JSON, with "_" for every "-"."""

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
        place = root
        for each in sections:
            bare = each.removesuffix("[]")
            found = place.fields.setdefault(_snake(bare), Section(bare, _snake(bare), each != bare))
            assert isinstance(found, Section), path
            place = found
        default = key.shown
        if path in _SHOWN:
            default = key.default if key.kind in {"text", "duration"} else msgspec.json.decode(key.default)
        leaf = Leaf(path, name, names[0], key.kind, default, path in _NULL)
        place.fields.update(dict.fromkeys(map(_snake, names), leaf))
    return root


def _snake(name: str) -> str:
    return name.replace("-", "_")


# From JSON to the file.


def parse(given: object) -> dict[str, Any]:
    """Return the tree of a changefeed file that `replica_config` asks for. ApiParamInvalid for a value of another type
    than its key has."""
    return {} if given is None else _parse_section(TABLE, given, "replica_config")


def _parse_section(section: Section, given: object, where: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ApiParamInvalid(f"{where}: expected an object")
    tree: dict[str, Any] = {}
    for name, value in given.items():
        found = section.fields.get(_snake(str(name)))
        if found is None or value is None:
            continue
        read = _parse(found, value, f"{where}.{name}")
        if read is not None and read not in ({}, []):
            tree[found.toml] = read
    return tree


def _parse(found: Leaf | Section, value: object, where: str) -> Any:
    """A value of the file; None for one that says what holds anyway."""
    if isinstance(found, Leaf):
        read = KINDS[found.kind](value)
        if read is None:
            raise ApiParamInvalid(f"{where}: expected {_EXPECTED[found.kind]}")
        absent = read == found.default or (read == 0 and found.path in _ZERO_IS_DEFAULT)
        return None if absent else read
    if not found.many:
        return _parse_section(found, value, where)
    if not isinstance(value, list):
        raise ApiParamInvalid(f"{where}: expected a list of objects")
    return [_parse_section(found, item, f"{where}[{at}]") for at, item in enumerate(value)]


def _only(kind: type) -> Callable[[object], object]:
    return lambda value: value if type(value) is kind else None


def _list_of(read: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: value if isinstance(value, list) and all(read(item) is not None for item in value) else None


def _int(value: object) -> int | None:
    return value if type(value) is int and _INT_MIN <= value <= _INT_MAX else None


def _number(value: object) -> object:
    return value if type(value) is float else _int(value)


def _duration(value: object) -> str | None:
    """A Go duration of nanoseconds or of a Go duration."""
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
"""By the kind of a value: what it is in the file, None where it is of another kind."""
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
    """Return what the tree of a changefeed file says, secrets and all, in the words of JSON."""
    said: dict[str, Any] = {}
    for found in section.fields.values():
        value = tree.get(found.toml)
        if isinstance(found, Section) and value is not None:
            value = [spelled(item, found) for item in value] if found.many else spelled(value, found)
        elif isinstance(found, Leaf) and found.kind == "duration" and isinstance(value, str):
            ns = duration_ns(value)
            value = value if ns is None else ns
        if value is not None:
            said[found.json] = value
    return said


def render(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return `replica_config` of the tree of a changefeed file, with TiCDC's defaults and without a secret."""
    return _render_section(TABLE, masked(tree))


def _render_section(section: Section, tree: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for found in section.fields.values():
        value = tree.get(found.toml)
        if isinstance(found, Leaf):
            value = found.default if value is None else value
            value = duration_ns(value) if found.kind == "duration" and isinstance(value, str) else value
        elif found.many:
            value = None if value is None else [spelled(item, found) for item in value]
        else:
            value = _render_section(found, value or {}) or None
        if value is not None or (isinstance(found, Leaf) and found.always):
            shown[found.json] = value
    return shown


def masked(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree with xxxxx for each text that is a secret or part of one."""
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


def unmasked(tree: Mapping[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree with the kept text of each secret that came back as it is shown."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        before = kept.get(name)
        if isinstance(value, dict):
            found[name] = unmasked(value, before if isinstance(before, dict) else {})
        else:
            found[name] = before if before is not None and value == _masked(name, before) else value
    return found
