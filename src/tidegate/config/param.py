r"""One parameter of an address or a section: its kind, its range, and how its value is read.

    kafka://h1,h2:9093/shop?protocol=open-protocol&dead-letter=skip      [source]
                            \_______________________________/           dead-letter = "skip"
                              one Param each, by its name                max-retry = 3

A parameter is read by its kind, from text (addresses) or from a TOML value.  The tables stand beside the addresses
that they belong to: kafka_source.py, kafka_target.py, tidb_source.py, delta_sink.py.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidegate.config.local_name import Local, name_local
from tidegate.model.errors import ConfigError, UnsupportedError, UriInvalid


class Given(NamedTuple):
    """A value as it came and the words that name its place."""

    where: str
    value: object


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter: how to read it, what it fills, and its line in the documentation.

    `field` is the attribute of the parsed address that it fills; None: it is accepted without effect."""

    kind: str
    field: str | None
    default: str
    about: str
    choices: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    """Values that TiCDC or Flink CDC know and that this release does not."""
    low: int = 0
    high: int = 1 << 31
    local: Local = Local.NOTHING
    """What its text names on the machine that reads it."""
    called: bool = False
    """Its text is an address that is called, whose path is a secret."""


def idle(kind: str, default: str, about: str) -> Param:
    """Return a parameter that is accepted without effect."""
    return Param(kind, None, default, about)


TIME_MAX_MS: Final = 100 * 366 * 86_400_000
"""The longest time that a parameter may ask for: a hundred years."""
_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_UNIT_MS: Final = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6}
_START: Final = re.compile(r"([A-Za-z0-9._-]+)/(\d{1,9}):(\d{1,18})")
_TOPIC_ID: Final = re.compile(r"([A-Za-z0-9._-]+):([A-Za-z0-9_-]{22})(:same-offsets)?")
_WORDS: Final = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
_EXPECTED: Final = {
    "bool": "true or false",
    "int": "a whole number",
    "duration": 'a time such as "10s" or "1m30s"',
    "zone": 'a time zone such as "UTC" or "Asia/Shanghai"',
    "topic_ids": '"topic:id,..." with the ids that the broker gives (kafka-topics --describe)',
    "start": '"earliest" or "topic/partition:offset,..."',
}


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean "x"?` for the known word closest to `word`, or nothing."""
    close = difflib.get_close_matches(word.replace("_", "-").lower(), list(known), n=1, cutoff=0.6)
    return f'; did you mean "{close[0]}"?' if close else ""


def read_all(
    params: Mapping[str, Param], given: Mapping[str, Given], error: type[ConfigError]
) -> tuple[dict[str, object], tuple[str, ...]]:
    """(fields and their values, names accepted without effect).

    Unknown names raise UriInvalid, wrong values `error`, values that only other releases know UnsupportedError."""
    fields: dict[str, object] = {}
    ignored: list[str] = []
    for name, (where, value) in given.items():
        param = params.get(name)
        if param is None:
            raise UriInvalid(f'{where}: unknown parameter "{name}"{nearest(name, params)}')
        read = _read(param, where, value, error)
        if param.field is None:
            ignored.append(name)
        else:
            name_local(param.local, where, str(read))
            fields[param.field] = read
    return fields, tuple(ignored)


def _read(param: Param, where: str, value: object, error: type[ConfigError]) -> object:
    readers = {
        "bool": _read_bool,
        "int": _read_int,
        "duration": _read_duration,
        "start": _read_start,
        "topic_ids": _read_topic_ids,
    }
    reader = readers.get(param.kind)
    found = reader(value) if reader else value if isinstance(value, str) else None
    if found is None:
        expected = _EXPECTED.get(param.kind, "a text")
        raise error(f"{where}: expected {expected}, found {_shown(param, value)}")
    if param.choices:
        return _read_choice(param, where, str(found), error)
    if param.kind == "zone":
        return _read_zone(where, str(found))
    if isinstance(found, int) and not param.low <= found <= param.high:
        unit = " ms" if param.kind == "duration" else ""
        raise error(f"{where}: {found}{unit} is not between {param.low} and {param.high}")
    return found


def _shown(param: Param, value: object) -> str:
    return "a value of another type" if param.kind == "secret" else repr(value)


def _read_bool(value: object) -> object:
    return value if isinstance(value, bool) else _WORDS.get(value.lower()) if isinstance(value, str) else None


def _read_int(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,18}", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _read_duration(value: object) -> object:
    """Milliseconds of a Go duration."""
    if not isinstance(value, str):
        return None
    if value == "0":
        return 0
    parts = _DURATION.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        return None
    return round(sum(float(number) * _UNIT_MS[unit] for number, unit in parts))


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


def _read_choice(param: Param, where: str, text: str, error: type[ConfigError]) -> str:
    found = next((choice for choice in param.choices if choice.lower() == text.lower()), None)
    if found is not None:
        return found
    choices = ", ".join(param.choices)
    if text.lower() in (known.lower() for known in param.known):
        raise UnsupportedError(f"{where}: this release does not support {text!r}; choose one of {choices}")
    raise error(f"{where}: {text!r} is none of {choices}{nearest(text, param.choices)}")


def _read_zone(where: str, text: str) -> str:
    if text == "UTC":
        return text
    try:
        return ZoneInfo(text).key
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(f"{where}: no time zone {text!r}; use a name such as UTC or Asia/Shanghai") from error
