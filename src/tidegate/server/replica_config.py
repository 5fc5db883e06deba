"""`replica_config`, a changefeed file as JSON: what TiCDC's API takes and shows, to and from the tree of a TOML file.

    {"filter": {"rules": ["shop.*"]},          parse            {"filter": {"rules": ["shop.*"]},
     "sync_point_interval": 600000000000,    ─────────►          "sync-point-interval": "10m"}    config/document.py
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

from tidegate.config.document import KEYS
from tidegate.config.option import duration_ns, duration_text
from tidegate.config.uri import mask_value
from tidegate.server.record import ApiParamInvalid

_ADDRESSES: Final = ("changefeed-id", "sink-uri")
"""Keys of a file that the API has beside `replica_config`."""
_JSON_NAMES: Final = {
    "sink.file-index-digit": "file_index_width",
    "sink.advance-timeout-in-sec": "advance_timeout",
    "sink.mysql-config.max-multi-update-row": "max_multi_update_row_count",
    "sink.send-all-bootstrap-at-start": "send-all-bootstrap-at-start",
    "sink.dispatchers[].target-schema": "target-schema",
    "sink.dispatchers[].target-table": "target-table",
}
"""Names in JSON that are not the file's with "_"."""
_OTHER_NAMES: Final = {
    "sink.advance-timeout-in-sec": "advance_timeout_in_sec",
    "sink.mysql-config.max-multi-update-row": "max_multi_update_row",
}
"""Names that are read, too."""
_UNUSED: Final = frozenset({"sink.file-index-width"})
"""Keys whose name in JSON is another one's."""
_DURATIONS: Final = frozenset({"sync-point-interval", "sync-point-retention", "changefeed-error-stuck-duration"})
_ALWAYS: Final = frozenset(
    {
        *("memory-quota", "case-sensitive", "force-replicate", "ignore-ineligible-table", "check-gc-safe-point"),
        *("filter", "sink", "sink.delete-only-output-handle-key-columns", "sink.content-compatible"),
        *("scheduler", "integrity"),
    }
)
"""What stands in every answer, null where it is not set."""
_DEFAULTS: Final[Mapping[str, object]] = {
    "memory-quota": 1 << 30,
    "case-sensitive": False,
    "force-replicate": False,
    "ignore-ineligible-table": False,
    "check-gc-safe-point": True,
    "enable-sync-point": False,
    "enable-table-monitor": False,
    "bdr-mode": False,
    "sync-point-interval": "10m",
    "sync-point-retention": "24h",
    "changefeed-error-stuck-duration": "30m",
    "filter.rules": ["*.*"],
    "mounter.worker-num": 16,
    "sink.csv.delimiter": ",",
    "sink.csv.quote": '"',
    "sink.csv.null": "\\N",
    "sink.csv.include-commit-ts": False,
    "sink.csv.binary-encoding-method": "base64",
    "sink.csv.output-old-value": False,
    "sink.csv.output-handle-key": False,
    "sink.csv.output-field-header": False,
    "sink.encoder-concurrency": 32,
    "sink.terminator": "\r\n",
    "sink.date-separator": "day",
    "sink.enable-partition-separator": True,
    "sink.file-index-digit": 20,
    "sink.enable-kafka-sink-v2": False,
    "sink.only-output-updated-columns": False,
    "sink.safe-mode": False,
    "sink.debezium-disable-schema": False,
    "sink.advance-timeout-in-sec": 150,
    "sink.send-bootstrap-interval-in-sec": 120,
    "sink.send-bootstrap-in-msg-count": 10_000,
    "sink.send-bootstrap-to-all-partition": True,
    "sink.send-all-bootstrap-at-start": False,
    "sink.debezium.output-old-value": True,
    "sink.open.output-old-value": True,
    "consistent.level": "none",
    "consistent.max-log-size": 64,
    "consistent.flush-interval": 2000,
    "consistent.meta-flush-interval": 200,
    "consistent.encoding-worker-num": 16,
    "consistent.flush-worker-num": 8,
    "consistent.use-file-backend": False,
    "consistent.memory-usage.memory-quota-percentage": 50,
    "scheduler.enable-table-across-nodes": False,
    "scheduler.region-threshold": 100_000,
    "scheduler.write-key-threshold": 0,
    "integrity.integrity-check-level": "none",
    "integrity.corruption-handle-level": "warn",
    "synced-status.synced-check-interval": 300,
    "synced-status.checkpoint-interval": 15,
}
_ZERO_IS_DEFAULT: Final = frozenset({"memory-quota"})
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1
_NS_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value: its path and name in the file, its name in JSON, its kind (document.KINDS, or "duration")."""

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
    always: bool = False
    many: bool = False
    fields: dict[str, "Leaf | Section"] = field(default_factory=dict)


def _table() -> Section:
    """Every key of a changefeed file in its section."""
    root = Section("", "replica_config", always=True)
    for path, key in KEYS.items():
        if path in _ADDRESSES or path in _UNUSED:
            continue
        place, walked = root, ""
        *sections, name = path.split(".")
        for each in sections:
            bare = each.removesuffix("[]")
            walked = f"{walked}.{bare}".lstrip(".")
            new = Section(bare, _snake(bare), walked in _ALWAYS, each != bare)
            found = place.fields.setdefault(new.json, new)
            assert isinstance(found, Section), path
            place = found
        kind = "duration" if path in _DURATIONS else key.kind
        leaf = Leaf(path, name, _JSON_NAMES.get(path, _snake(name)), kind, _DEFAULTS.get(path), path in _ALWAYS)
        for known in (leaf.json, _OTHER_NAMES.get(path, leaf.json)):
            place.fields[_snake(known)] = leaf
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


def _param(value: object) -> object:
    return _int(value) if type(value) is int else value if isinstance(value, bool | str) else None


KINDS: Final[Mapping[str, Callable[[object], Any]]] = {
    "bool": _only(bool),
    "int": _int,
    "text": _only(str),
    "texts": _list_of(_only(str)),
    "ints": _list_of(_int),
    "duration": _duration,
    "number": _number,
    "numbers": _list_of(_number),
    "param": _param,
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
        if value is not None or found.always:
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
