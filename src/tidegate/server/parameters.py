"""Parameters of addresses and settings for the page: examples, effective values for people, and remedies as changes.

sink_kinds        the registry's sinks, each with an example of its address
sink_parameters   what a sink's address says, or the settings, or the default; 1 MiB beside 1048576
mend_of           "run with schema-change=evolve" as a parameter of the address that takes it
"""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from tidegate.config.load import KEYS, Entry, entry_at
from tidegate.config.option import TIMES, duration_ns, duration_text
from tidegate.config.registry import SINKS, SOURCES
from tidegate.config.uri import mask_uri, mask_value
from tidegate.model.errors import UriInvalid
from tidegate.server.record import FeedRecord
from tidegate.server.replica_config import TABLE, Section, masked

_REMEDY: Final = re.compile(r"\b(?:set|use|with) ([a-z][a-z-]*)=([A-Za-z0-9_.-]*[A-Za-z0-9])", re.IGNORECASE)
_DIGITS: Final = re.compile(r"[0-9]{1,20}")
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def sink_kinds() -> list[dict[str, str]]:
    """Return the kinds of sinks: scheme, what it is, an address."""
    return [{"scheme": entry.scheme, "about": entry.about, "example": entry.example} for entry in SINKS.values()]


def human(kind: str, about: str, value: str) -> str:
    """Return a value of an option or a key in units for people: "24h" for "86400s", "1 MiB" for "1048576".

    `about` is its name and documentation, which say bytes where a number is bytes."""
    if kind in TIMES:
        ns = int(value) if _DIGITS.fullmatch(value) else duration_ns(value)
        return value if ns is None else duration_text(ns)
    if kind != "int" or not _DIGITS.fullmatch(value) or "bytes" not in about:
        return value
    size, unit = float(value), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.4g} {_UNITS[unit]}"


def sink_parameters(record: FeedRecord) -> list[dict[str, Any]]:
    """Return the parameters of a changefeed's sink that have an effect, those that are not the default first."""
    entry = _entry(SINKS, record.sink_uri)
    if entry is None:
        return []
    settings = dict(leaves(masked(record.config)))
    said = dict(parse_qsl(mask_uri(record.sink_uri).partition("?")[2], keep_blank_values=True))
    rows = []
    for option in entry.params.values():
        if option.field is None:
            continue
        about, default = f"{option.field} {option.about}", option.default or ""
        path = f"{entry.section}{option.name}" if entry.section else option.path
        value = mask_value(option.name, said.get(option.name, settings.get(path) or default))
        shown = human(option.kind, about, value)
        rows.append(
            {
                "key": option.name,
                "shown": shown,
                "value": value,
                "default": default,
                "about": option.about,
                "changed": shown != human(option.kind, about, default),
            }
        )
    return sorted(rows, key=lambda row: not row["changed"])


def _entry(entries: Mapping[str, Entry], uri: str) -> Entry | None:
    """Return the entry of an address; None for one that this release does not have."""
    try:
        return entry_at(entries, uri, "")
    except UriInvalid:
        return None


def leaves(tree: Mapping[str, Any], above: str = "") -> list[tuple[str, str]]:
    """Return the values of a tree by their paths, as text."""
    rows: list[tuple[str, str]] = []
    for name, value in tree.items():
        key = f"{above}{name}"
        if isinstance(value, Mapping):
            rows += leaves(value, f"{key}.")
        else:
            rows.append((key, value if isinstance(value, str) else msgspec.json.encode(value).decode()))
    return rows


def mend_of(record: FeedRecord) -> dict[str, str] | None:
    """Return the parameter that the error of a changefeed advises to set, and the address that takes it."""
    entries = {"sink_uri": _entry(SINKS, record.sink_uri), "source_uri": _entry(SOURCES, record.source_uri)}
    for name, value in _REMEDY.findall(record.error.message if record.error else ""):
        for of, entry in entries.items():
            option = None if entry is None else entry.params.get(name)
            if option is not None and option.field is not None:
                return {"of": of, "name": name, "value": value}
    return None


def _kinds(section: Section, above: str = "") -> dict[str, tuple[str, str]]:
    kinds: dict[str, tuple[str, str]] = {}
    for entry in section.fields.values():
        if isinstance(entry, Section):
            kinds |= _kinds(entry, f"{above}{entry.json}.")
        else:
            kinds[f"{above}{entry.json}"] = (entry.kind, f"{entry.path} {KEYS[entry.path].about}")
    return kinds


SETTING_KINDS: Final = _kinds(TABLE)
"""Kind and documentation of a setting by its path in `replica_config`."""
