r"""Reading options: their declarations in a struct, and values by kind, from text (addresses) or TOML.

kafka://h1,h2:9093/shop?protocol=open-protocol&dead-letter=skip      [source]
                        \_______________________________/           dead-letter = "skip"
                          one Option each, by its name              max-retry = 3
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from tidegate.config.uri import RawValue, name_local, nearest
from tidegate.model.errors import ConfigError, UnsupportedError, UriInvalid
from tidegate.model.option import Option, Secret

_START: Final = re.compile(r"([A-Za-z0-9._-]+)/(\d{1,9}):(\d{1,18})")
_TOPIC_ID: Final = re.compile(r"([A-Za-z0-9._-]+):([A-Za-z0-9_-]{22})(:same-offsets)?")
_WORDS: Final = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
_SWITCH: Final = {"on": True, "off": False}
_UNIT_NS: Final = {
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1000,
    "µs": 1000,
    "ns": 1,
}
_PIECE: Final = re.compile(r"(\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(ns|us|µs|ms|s|m|h)")
_KIND_OF_TYPE: Final = {bool: "bool", int: "int", float: "seconds", str: "text", Secret: "secret"}
TIMES: Final = frozenset({"duration", "seconds"})
"""Kinds whose texts are Go's durations."""


def options_of(declared: type, **notes: Option) -> dict[str, Option]:
    """Return the options of a dataclass or a Struct by their names: its own before those of its bases. They annotate
    its fields, or are `notes` by the fields, which are then all that there are."""
    if issubclass(declared, msgspec.Struct):
        fields, values = declared.__struct_fields__, declared.__struct_defaults__
        defaults = dict(zip(fields[len(fields) - len(values) :], values, strict=True))
    else:
        defaults = {field.name: field.default for field in dataclasses.fields(declared)}  # type: ignore[arg-type]
    options = {}
    hints: dict[str, Any] = {}
    for each in declared.__mro__:
        hints = {**hints, **getattr(each, "__annotations__", {})}
    for field, kind in hints.items():
        hint, *extras = get_args(kind) if get_origin(kind) is Annotated else (kind,)
        if notes:
            extras = [notes[field]] if field in notes else []
        for option in (extra for extra in extras if isinstance(extra, Option)):
            options[option.name] = _completed(option, field, hint, defaults.get(field))
    return options


def _completed(option: Option, field: str, kind: Any, default: object) -> Option:
    """The option with what its field says."""
    if get_origin(kind) in {Union, UnionType}:
        kind = next(each for each in get_args(kind) if each is not type(None))
    choices = option.choices or (get_args(kind) if get_origin(kind) is Literal else ())
    choices = tuple(_SWITCH) if option.kind == "switch" else choices
    kind = option.kind or ("choice" if choices else _KIND_OF_TYPE[kind])
    if option.default is not None:
        shown = option.default
    elif kind in TIMES and isinstance(default, int | float):
        shown = duration_text(round(default * _UNIT_NS["ms" if kind == "duration" else "s"]))
    elif isinstance(default, bool):
        shown = ("off", "on")[default] if kind == "switch" else str(default).lower()
    else:
        shown = "" if default in (None, msgspec.NODEFAULT, dataclasses.MISSING) else str(default)
    return dataclasses.replace(option, field=field, kind=kind, choices=choices, default=shown)


def read_all(
    options: Mapping[str, Option], raw_values: Mapping[str, RawValue], error: type[ConfigError]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(fields and their values, names accepted without effect).

    Unknown names raise UriInvalid, wrong values `error`, values that only other releases know UnsupportedError."""
    fields: dict[str, Any] = {}
    ignored: list[str] = []
    for name, (where, value) in raw_values.items():
        option = options.get(name)
        if option is None:
            raise UriInvalid(f'{where}: unknown parameter "{name}"{nearest(name, options)}')
        read = _read(option, where, value, error)
        if option.field is None:
            ignored.append(name)
        else:
            fields[option.field] = name_local(option.local, where, read)
    return fields, tuple(ignored)


def _read(option: Option, where: str, value: object, error: type[ConfigError]) -> Any:
    read, expected = _KINDS.get(option.kind, _TEXT)
    parsed = read(value)
    if parsed is None:
        shown = "a value of another type" if option.kind == "secret" else repr(value)
        raise error(f"{where}: expected {expected}, found {shown}")
    if option.choices:
        word = _read_choice(option, where, str(parsed), error)
        return _SWITCH[word] if option.kind == "switch" else word
    if option.kind == "zone":
        try:
            return "UTC" if parsed == "UTC" else ZoneInfo(str(parsed)).key
        except (ZoneInfoNotFoundError, ValueError, OSError) as unknown:
            raise ConfigError(
                f"{where}: unknown time zone {parsed!r}; use a name such as UTC or Asia/Shanghai"
            ) from unknown
    if isinstance(parsed, int) and not option.low <= parsed <= option.high:
        unit = " ms" if option.kind in TIMES else ""
        raise error(f"{where}: {parsed}{unit} is not between {option.low} and {option.high}")
    return parsed / 1000 if option.kind == "seconds" else parsed


def _read_int(value: object) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,18}", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _read_duration(value: object) -> int | None:
    """Milliseconds of a Go duration."""
    ns = duration_ns(value) if isinstance(value, str) else None
    return None if ns is None else round(ns / 1_000_000)


def duration_ns(text: str) -> int | None:
    """Return the nanoseconds of a Go duration such as "1h30m", of zero or more; None for another text."""
    if text == "0":
        return 0
    pieces = list(_PIECE.finditer(text))
    if not pieces or "".join(piece[0] for piece in pieces) != text:
        return None
    return int(sum(Fraction(piece[1].rstrip(".")) * _UNIT_NS[piece[2]] for piece in pieces))


def duration_text(ns: int) -> str:
    """Return the shortest Go duration in whole units, such as "24h" or "1h30m"; "0s" for none."""
    text = ""
    for unit in ("h", "m", "s", "ms", "us", "ns"):
        count, ns = divmod(ns, _UNIT_NS[unit])
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def _read_start(value: object) -> object:
    """((topic, partition, offset), ...); empty for the earliest offsets."""
    if not isinstance(value, str):
        return None
    if value == "earliest":
        return ()
    parts = [_START.fullmatch(part.strip()) for part in value.split(",")]
    return tuple((part[1], int(part[2]), int(part[3])) for part in parts if part) if all(parts) else None


def _read_topic_ids(value: object) -> object:
    """((topic, id, whether with the same offsets), ...)."""
    parts = [_TOPIC_ID.fullmatch(part.strip()) for part in value.split(",")] if isinstance(value, str) else []
    return tuple((part[1], part[2], bool(part[3])) for part in parts if part) if parts and all(parts) else None


def _read_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _read_choice(option: Option, where: str, text: str, error: type[ConfigError]) -> str:
    match = next((choice for choice in option.choices if choice.lower() == text.lower()), None)
    if match is not None:
        return match
    choices = ", ".join(option.choices)
    if text.lower() in (word.lower() for word in option.unsupported):
        raise UnsupportedError(f"{where}: this release does not support {text!r}; choose one of {choices}")
    raise error(f"{where}: {text!r} is not one of {choices}{nearest(text, option.choices)}")


_Read = tuple[Callable[[object], Any], str]
_TEXT: Final[_Read] = (_read_text, "a text")
_TIME: Final[_Read] = (_read_duration, 'a time such as "10s" or "1m30s"')
_KINDS: Final[Mapping[str, _Read]] = {
    "bool": (
        lambda value: value if isinstance(value, bool) else _WORDS.get(value.lower() if isinstance(value, str) else ""),
        "true or false",
    ),
    "int": (_read_int, "a whole number"),
    "duration": _TIME,
    "seconds": _TIME,
    "secret": (lambda value: Secret(value) if isinstance(value, str) else None, "a text"),
    "zone": (_read_text, 'a time zone such as "UTC" or "Asia/Shanghai"'),
    "topic_ids": (_read_topic_ids, '"topic:id,..." with the ids that the broker gives (kafka-topics --describe)'),
    "start": (_read_start, '"earliest" or "topic/partition:offset,..."'),
}
"""By the kind of an option: its reader (None for an invalid value), and the expected form."""


def by_name(options: Iterable[Option]) -> dict[str, Option]:
    """Return options by their names."""
    return {option.name: option for option in options}
