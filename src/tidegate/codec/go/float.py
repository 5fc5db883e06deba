"""Floats as Go prints them: the fewest digits that name the number, laid out in one of three ways.

                       1e-6 <= |x| < 1e21      smaller        larger
    JSON, classic      1.5  100000000          1e-7           1e+21        encoding/json shortens e-07 to e-7
    JSON, newarch      1.5  100000000          1e-07          1e+21        jsoniter leaves it
    positional         1.5  100000000          0.0000001      1000000000000000000000

    general            exponents below 1e-4 and from 1e6 on: 0.0001, 1e-05, 123456, 1e+06       fmt's %v, in csv

Both zeros keep their sign (-0), and no number ends in ".0".  NaN and the infinities, which no column can hold, become
0, as in TiCDC.  A 32-bit float comes as the double that equals it; its digits are the fewest that name the float.

Source: Go's strconv.FormatFloat(x, 'f' or 'e', -1, 32 or 64); encoding/json; recordings.
"""

from collections.abc import Callable
from math import frexp, isfinite
from struct import Struct
from typing import Final, TypeAlias

FloatText: TypeAlias = Callable[[float], str]

_LOW: Final = 1e-6
_HIGH: Final = 1e21
_FLOAT32: Final = Struct("<f")
_NORMAL32: Final = 2.0**-126
"""Floats from here on have 24 bits: six digits or fewer name one exactly when its six nearest digits do, and nine
digits name every one."""


def positional64(value: float) -> str:
    """Return the shortest digits of a DOUBLE without an exponent."""
    return _positional(repr(value)) if isfinite(value) else "0"


def positional32(value: float) -> str:
    """Return the shortest digits of a FLOAT without an exponent."""
    return _positional(_shortest32(value)) if isfinite(value) else "0"


def general64(value: float) -> str:
    """Return a DOUBLE as fmt's %v prints it."""
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return _positional(repr(value))
    return _scientific(repr(value)) if isfinite(value) else "0"


def general32(value: float) -> str:
    """Return a FLOAT as fmt's %v prints it."""
    text = _shortest32(value) if isfinite(value) else "0e+00"
    return _positional(text) if -4 <= int(text.partition("e")[2]) < 6 else text


def newarch_json64(value: float) -> str:
    """Return a DOUBLE as jsoniter writes it."""
    if value == 0 or _LOW <= abs(value) < _HIGH:
        return _positional(repr(value))
    return repr(value) if isfinite(value) else "0"


def newarch_json32(value: float) -> str:
    """Return a FLOAT as jsoniter writes it; the bounds are those of the 32-bit numbers."""
    if value == 0 or _LOW32 <= abs(value) < _HIGH32:
        return _positional(_shortest32(value))
    return _shortest32(value) if isfinite(value) else "0"


def json64(value: float) -> str:
    """Return a DOUBLE as encoding/json writes it."""
    return _one_digit_exponent(newarch_json64(value))


def json32(value: float) -> str:
    """Return a FLOAT as encoding/json writes it."""
    return _one_digit_exponent(newarch_json32(value))


def _one_digit_exponent(text: str) -> str:
    return text.replace("e-0", "e-") if "e-0" in text else text


def _positional(text: str) -> str:
    """A repr, or digits with an exponent, without exponent and trailing zeros."""
    if "e" not in text:
        return text.removesuffix(".0")
    mantissa, _, exponent = text.partition("e")
    sign = "-" if mantissa[0] == "-" else ""
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    digits, point = whole + fraction, len(whole) + int(exponent)
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits.rstrip('0')}" if digits.strip("0") else f"{sign}0"
    if point >= len(digits):
        return sign + digits + "0" * (point - len(digits))
    rest = digits[point:].rstrip("0")
    return f"{sign}{digits[:point]}.{rest}" if rest else sign + digits[:point]


def _scientific(text: str) -> str:
    """A repr above or below all plain numbers, with an exponent of two digits."""
    if "e" in text:
        return text
    sign, digits = ("-", text[1:]) if text[0] == "-" else ("", text)
    whole, _, fraction = digits.partition(".")
    rest = (whole[1:] + fraction).rstrip("0")
    return f"{sign}{whole[0]}{'.' if rest else ''}{rest}e+{len(whole) - 1:02d}"


def _shortest32(value: float) -> str:
    """The fewest digits that name the 32-bit float `value`, with an exponent of two digits: 1.5e+00."""
    text = f"{value:.7e}"
    if abs(value) < _NORMAL32 or abs(frexp(value)[0]) == 0.5:
        text = _searched32(value)
    elif _nearest32(float(text)) != value:
        text = f"{value:.8e}"
    elif _nearest32(float(fewer := f"{value:.6e}")) == value:
        text = fewer if _nearest32(float(fewest := f"{value:.5e}")) != value else fewest
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa.rstrip('0').removesuffix('.') if '.' in mantissa else mantissa}e{exponent}"


def _searched32(value: float) -> str:
    """The fewest digits of subnormal numbers, which may be a single one, and of powers of two, which may lie above."""
    for precision in range(8):
        text = f"{value:.{precision}e}"
        if _nearest32(float(text)) == value:
            return text
        if _nearest32(float(above := _away(text))) == value:
            return above
    return f"{value:.8e}"


def _away(text: str) -> str:
    """The next number of as many digits away from zero: the gap above a power of two is twice the gap below it."""
    mantissa, _, exponent = text.partition("e")
    last = mantissa.rstrip("9")
    if last and last[-1] in "0123456789":
        return f"{last[:-1]}{int(last[-1]) + 1}{'0' * (len(mantissa) - len(last))}e{exponent}"
    return text


def _nearest32(value: float) -> float:
    try:
        nearest: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except OverflowError:
        return float("inf")
    return nearest


_LOW32: Final = _nearest32(_LOW)
_HIGH32: Final = _nearest32(_HIGH)
