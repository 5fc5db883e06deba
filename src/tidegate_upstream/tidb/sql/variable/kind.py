"""What values a variable takes: how each kind reads the value of SET, and how SHOW VARIABLES prints it.

    kind                   SET takes                         held        SHOW prints
    SWITCH                 ON OFF TRUE FALSE 1 0             1, 0        ON, OFF
    number(low, high)      whole numbers; others are cut     int         100
    REAL                   numbers                           float       0.8
    choice(A, B, ..)       a name, or its place from 0       text        A
    TEXT                   anything                          text        it
    CHARSET, COLLATION, ZONE, MODE                           text in the form that is usual here

A value cut to its bounds is a warning (1292), anything else that does not fit is 1231 or 1232.

Source: TiDB pkg/sessionctx/variable; MySQL manual, "SET Syntax for Variable Assignment".
"""

import re
from collections.abc import Callable
from datetime import UTC, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Final, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidegate.model.errors import SqlRefused
from tidegate.model.name import all_digits
from tidegate.mysql.value.kinds import SqlValue
from tidegate.schema.charset import charset_named, collation_named
from tidegate.schema.job import MODE_BITS

Setting: TypeAlias = int | float | str
"""What a variable holds."""
Warn: TypeAlias = Callable[[int, str], None]
Read: TypeAlias = Callable[[str, SqlValue, Warn], Setting]
SIGNED_MAX: Final = (1 << 63) - 1
UNSIGNED_MAX: Final = (1 << 64) - 1
_ON: Final = frozenset({"on", "true", "1"})
_OFF: Final = frozenset({"off", "false", "0"})
_WRONG_VALUE: Final = 1231
_WRONG_TYPE: Final = 1232
_TRUNCATED: Final = 1292
_UNKNOWN_ERROR: Final = 1105
"""In which a TiDB wraps the refusal of a mode that it does not know."""
_OFFSET: Final = re.compile(r"([+-])(\d{1,2}):(\d\d)")
_OFFSET_MAX: Final = timedelta(hours=14)
_OFFSET_MIN: Final = timedelta(hours=-12, minutes=-59)


class VariableKind(NamedTuple):
    """How values of a variable are read and printed.

    `read(variable, value, warn)` gives the value to hold; SqlRefused for one that does not fit."""

    read: Read
    show: Callable[[Setting], str] = str


def _wrong_value(name: str, value: object) -> SqlRefused:
    return SqlRefused(_WRONG_VALUE, f"Variable '{name}' can't be set to the value of '{_text(value)}'", "42000")


def _wrong_type(name: str) -> SqlRefused:
    return SqlRefused(_WRONG_TYPE, f"Incorrect argument type to variable '{name}'", "42000")


def _switch(name: str, value: SqlValue, _warn: Warn) -> Setting:
    word = _text(value).lower()
    if word not in _ON | _OFF:
        raise _wrong_value(name, value)
    return int(word in _ON)


def number(low: int = 0, high: int = UNSIGNED_MAX) -> VariableKind:
    """Return the kind of whole numbers between bounds."""

    def read(name: str, value: SqlValue, warn: Warn) -> Setting:
        if isinstance(value, float | Decimal) or value is None:
            raise _wrong_type(name)
        word = _text(value).strip()
        word = {"on": "1", "off": "0"}.get(word.lower(), word)
        try:
            found = int(word)
        except ValueError:
            raise _wrong_type(name) from None
        cut = min(max(found, low), high)
        if cut != found:
            warn(_TRUNCATED, f"Truncated incorrect {name} value: '{word}'")
        return cut

    return VariableKind(read)


def _real(name: str, value: SqlValue, _warn: Warn) -> Setting:
    try:
        return float(_text(value))
    except ValueError:
        raise _wrong_type(name) from None


def choice(*names: str) -> VariableKind:
    """Return the kind of a variable that takes one of several names."""

    def read(name: str, value: SqlValue, _warn: Warn) -> Setting:
        word = _text(value)
        if all_digits(word) and int(word) < len(names):
            return names[int(word)]
        found = next((known for known in names if known.lower() == word.lower()), None)
        if found is None:
            raise _wrong_value(name, value)
        return found

    return VariableKind(read)


def _worded(settle: Callable[[str], str]) -> VariableKind:
    """The kind of a text that `settle` brings into its usual form, or refuses."""
    return VariableKind(lambda _name, value, _warn: settle("" if value is None else _text(value)))


"""The modes that are known, and their bits in a DDL job."""
_ZERO_MODES: Final = "NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO"
_COMBINED: Final = {
    "ANSI": "REAL_AS_FLOAT,PIPES_AS_CONCAT,ANSI_QUOTES,IGNORE_SPACE,ONLY_FULL_GROUP_BY,ANSI",
    "TRADITIONAL": f"STRICT_TRANS_TABLES,STRICT_ALL_TABLES,{_ZERO_MODES},TRADITIONAL,NO_ENGINE_SUBSTITUTION",
}


def _mode(name: str, value: SqlValue, _warn: Warn) -> Setting:
    found: dict[str, None] = {}
    for part in _text(value).upper().rstrip(" ").split(","):
        if part in _COMBINED:
            found.update(dict.fromkeys(_COMBINED[part].split(",")))
        elif part in MODE_BITS:
            found[part] = None
        elif part:
            wrong = _wrong_value(name, part)
            raise SqlRefused(_UNKNOWN_ERROR, f"ERROR {_WRONG_VALUE} ({wrong.sqlstate}): {wrong.message}", "HY000")
    return ",".join(found)


def zone_named(name: str) -> tzinfo:
    """Return the zone of SYSTEM (which is UTC here), of an offset such as +08:00, or of a name; SqlRefused 1298."""
    if name.upper() in {"SYSTEM", "UTC", "+00:00"}:
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset:
        span = timedelta(hours=int(offset[2]), minutes=int(offset[3])) * (1 if offset[1] == "+" else -1)
        if _OFFSET_MIN <= span <= _OFFSET_MAX and int(offset[3]) < 60:
            return timezone(span)
    else:
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise SqlRefused(1298, f"Unknown or incorrect time zone: '{name}'", "HY000")


def _zone(word: str) -> str:
    zone_named(word)
    return word


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


SWITCH: Final = VariableKind(_switch, lambda value: "ON" if value else "OFF")
REAL: Final = VariableKind(_real, lambda value: f"{value:g}")
TEXT: Final = _worded(str)
CHARSET: Final = _worded(lambda word: charset_named(word) if word else word)
COLLATION: Final = _worded(collation_named)
ZONE: Final = _worded(_zone)
MODE: Final = VariableKind(_mode)
