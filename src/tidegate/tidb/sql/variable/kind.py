"""What values a variable takes: how each kind reads the value of SET, and how SHOW VARIABLES prints it.

    kind                      SET takes                         held        SHOW prints
    Switch                    ON OFF TRUE FALSE 1 0             1, 0        ON, OFF
    Number(low, high)         whole numbers; others are cut     int         100
    Real(low, high)           numbers                           float       0.8
    Choice(A, B, ..)          a name, or its place from 0       text        A
    Text                      anything                          text        it
    CHARSET, COLLATION, ZONE, MODE, ..  what the function in `Text.check` returns

A value cut to its bounds is a warning (1292), anything else that does not fit is 1231 or 1232.

Source: TiDB pkg/sessionctx/variable; MySQL manual, "SET Syntax for Variable Assignment".
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Protocol, TypeAlias

from tidegate.expr.value.kinds import SqlValue
from tidegate.model.errors import SqlRefused
from tidegate.tidb.sql.variable.charset import charset_named, collation_named, zone_named

__all__ = [
    "CHARSET",
    "COLLATION",
    "MODE",
    "SIGNED_MAX",
    "TEXT",
    "UNSIGNED_MAX",
    "ZONE",
    "Choice",
    "Number",
    "Real",
    "Setting",
    "Switch",
    "Text",
    "VariableKind",
    "wrong_value",
]

Setting: TypeAlias = int | float | str
"""What a variable holds."""
Warn: TypeAlias = Callable[[int, str], None]
SIGNED_MAX: Final = (1 << 63) - 1
UNSIGNED_MAX: Final = (1 << 64) - 1
_ON: Final = frozenset({"on", "true", "1"})
_OFF: Final = frozenset({"off", "false", "0"})
_WRONG_VALUE: Final = 1231
_WRONG_TYPE: Final = 1232
_TRUNCATED: Final = 1292


def wrong_value(name: str, value: object) -> SqlRefused:
    """Error 1231."""
    return SqlRefused(_WRONG_VALUE, f"Variable '{name}' can't be set to the value of '{_text(value)}'", "42000")


class VariableKind(Protocol):
    """How values of a variable are read and printed."""

    def read(self, name: str, value: SqlValue, warn: Warn) -> Setting:
        """Return the value to hold; SqlRefused for one that does not fit."""
        ...

    def show(self, value: Setting) -> str:
        """As SHOW VARIABLES prints it."""
        ...


@dataclass(frozen=True, slots=True)
class Switch:
    """On or off."""

    def read(self, name: str, value: SqlValue, _warn: Warn) -> Setting:
        """1 or 0."""
        word = _text(value).lower()
        if word not in _ON | _OFF:
            raise wrong_value(name, value)
        return int(word in _ON)

    def show(self, value: Setting) -> str:
        """ON or OFF."""
        return "ON" if value else "OFF"


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number between bounds."""

    low: int = 0
    high: int = UNSIGNED_MAX

    def read(self, name: str, value: SqlValue, warn: Warn) -> Setting:
        """Return the number, cut to the bounds with a warning."""
        if isinstance(value, float | Decimal) or value is None:
            raise SqlRefused(_WRONG_TYPE, f"Incorrect argument type to variable '{name}'", "42000")
        word = _text(value).strip()
        word = {"on": "1", "off": "0"}.get(word.lower(), word)
        try:
            number = int(word)
        except ValueError:
            raise SqlRefused(_WRONG_TYPE, f"Incorrect argument type to variable '{name}'", "42000") from None
        cut = min(max(number, self.low), self.high)
        if cut != number:
            warn(_TRUNCATED, f"Truncated incorrect {name} value: '{word}'")
        return cut

    def show(self, value: Setting) -> str:
        """Return the number's digits."""
        return str(value)


@dataclass(frozen=True, slots=True)
class Real:
    """A number between bounds."""

    low: float = 0.0
    high: float = 1.0

    def read(self, name: str, value: SqlValue, warn: Warn) -> Setting:
        """Return the number, cut to the bounds with a warning."""
        try:
            number = float(_text(value))
        except ValueError:
            raise SqlRefused(_WRONG_TYPE, f"Incorrect argument type to variable '{name}'", "42000") from None
        cut = min(max(number, self.low), self.high)
        if cut != number:
            warn(_TRUNCATED, f"Truncated incorrect {name} value: '{_text(value)}'")
        return cut

    def show(self, value: Setting) -> str:
        """Return the number's shortest digits."""
        return f"{value:g}"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several names."""

    names: tuple[str, ...]

    def read(self, name: str, value: SqlValue, _warn: Warn) -> Setting:
        """Return the name as it is written here."""
        word = _text(value)
        if word.isdigit() and int(word) < len(self.names):
            return self.names[int(word)]
        found = next((known for known in self.names if known.lower() == word.lower()), None)
        if found is None:
            raise wrong_value(name, value)
        return found

    def show(self, value: Setting) -> str:
        """Return the name."""
        return str(value)


def _same(_name: str, word: str) -> str:
    return word


@dataclass(frozen=True, slots=True)
class Text:
    """A text; `check(variable, word)` returns it as it is held, or refuses it."""

    check: Callable[[str, str], str] = _same

    def read(self, name: str, value: SqlValue, _warn: Warn) -> Setting:
        """Return the text."""
        return self.check(name, "" if value is None else _text(value))

    def show(self, value: Setting) -> str:
        """Return the text."""
        return str(value)


MODES: Final = frozenset(
    {
        "ALLOW_INVALID_DATES",
        "ANSI_QUOTES",
        "ERROR_FOR_DIVISION_BY_ZERO",
        "HIGH_NOT_PRECEDENCE",
        "IGNORE_SPACE",
        "NO_AUTO_CREATE_USER",
        "NO_AUTO_VALUE_ON_ZERO",
        "NO_BACKSLASH_ESCAPES",
        "NO_DIR_IN_CREATE",
        "NO_ENGINE_SUBSTITUTION",
        "NO_FIELD_OPTIONS",
        "NO_KEY_OPTIONS",
        "NO_TABLE_OPTIONS",
        "NO_UNSIGNED_SUBTRACTION",
        "NO_ZERO_DATE",
        "NO_ZERO_IN_DATE",
        "ONLY_FULL_GROUP_BY",
        "PAD_CHAR_TO_FULL_LENGTH",
        "PIPES_AS_CONCAT",
        "REAL_AS_FLOAT",
        "STRICT_ALL_TABLES",
        "STRICT_TRANS_TABLES",
    }
)
_ZERO_MODES: Final = "NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO"
_COMBINED: Final = {
    "ANSI": "REAL_AS_FLOAT,PIPES_AS_CONCAT,ANSI_QUOTES,IGNORE_SPACE,ONLY_FULL_GROUP_BY,ANSI",
    "TRADITIONAL": f"STRICT_TRANS_TABLES,STRICT_ALL_TABLES,{_ZERO_MODES},TRADITIONAL,NO_ENGINE_SUBSTITUTION",
}


def _mode(name: str, word: str) -> str:
    found: dict[str, None] = {}
    for part in word.upper().replace(" ", "").split(","):
        if part in _COMBINED:
            found.update(dict.fromkeys(_COMBINED[part].split(",")))
        elif part in MODES:
            found[part] = None
        elif part:
            raise wrong_value(name, part)
    return ",".join(found)


def _charset(_name: str, word: str) -> str:
    return charset_named(word) if word else word


def _collation(_name: str, word: str) -> str:
    return collation_named(word)


def _zone(_name: str, word: str) -> str:
    zone_named(word)
    return word


TEXT: Final = Text()
CHARSET: Final = Text(_charset)
COLLATION: Final = Text(_collation)
ZONE: Final = Text(_zone)
MODE: Final = Text(_mode)


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
