"""Conversion of values as TiDB does it: numbers, strings, ENUM and SET, dates and times, fitted to a column's type.

    value --reader--> Number = int | Decimal (exact) | float (approximate) --writer--> value

    writer      exact source                          approximate source        outside the range
    integer     half away from zero (2.5 -> 3)        half to even (2.5 -> 2)   nearest bound
    BIT(n)      the same; a negative INT keeps its 64 bits                      2**n - 1
    YEAR        as integer; 1..69 -> 2001.., 70..99 -> 1970..                   1901 or 2155; 0 below 0
    DECIMAL     half away from zero at the scale      shortest text, then so    +-99..9 of the precision
    FLOAT       nearest 32-bit number; (M,D) rounds half to even at D digits    +-3.4028235e38, +-99..9 of (M,D)

UNSIGNED makes 0 of everything negative.  In strict mode TiDB refuses a change that would leave the range, so the bounds
matter only for statements that ran without it.

    CHAR(n), VARCHAR(n)   n characters; CHAR drops trailing spaces
    TEXT family           255, 65535, 2**24 - 1, 2**32 - 1 bytes, cut between characters
    BINARY(n)             n bytes, padded with NUL
    VARBINARY(n), BLOB    n bytes; the family's limits as for TEXT
    ENUM                  a name; '' (index 0) for an unknown name
    SET                   names in definition order, each once

Text becomes bytes, and bytes text, in the column's character set; UTF-8 stands for all of TiDB's but GBK and GB18030.
Names are looked up exactly first, then without trailing spaces and case, then as a number.

- Fewer fractional digits round half up and carry: 23:59:59.999 -> the next day.  So does a negative TIME:
  -00:00:10.5 -> -00:00:10.
- DATETIME -> DATE cuts the time off without rounding (MySQL would round it first; TiDB does not).
- An invalid date becomes the zero date, which no rounding and no time zone ever moves.
- Two-digit years: 70..99 are 19xx, the others 20xx.
- TIMESTAMP text is wall clock of the session's zone, so TIMESTAMP <-> DATETIME keeps the text; only a wall clock that
  the zone skips (start of summer time) moves, to the end of the gap.
- A TIME is a signed count of microseconds within 838:59:59.  "-1 02:03:04.5" is day and clock, "10:20" hours and
  minutes, "1112" or 1112 is 00:11:12; of a DATETIME, also as 12 or 14 digits, it is the clock.

Source: TiDB's types package (RoundFloat, MyDecimal.Round ModeHalfUp, TruncateFloat, AdjustYear, getValidFloatPrefix,
ProduceStrWithSpecifiedTp, ParseEnum, ParseSet, parseDatetime, parseDateTimeFromNum, matchDuration, RoundFrac) and
table.CastValue (CHAR trims); MySQL manual, "Rounding Behavior".
"""

import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidegate.model.errors import ConfigError
from tidegate.model.mysql import BLOB_LIMITS, INTEGER_BITS, MysqlType
from tidegate.model.table import ColumnType
from tidegate.mysql.packed_time import ZERO, Time, render_duration

Number: TypeAlias = int | float | Decimal
"""int and Decimal are exact, float is approximate: they round differently."""

MAX_FLOAT32: Final = struct.unpack("<f", bytes.fromhex("ffff7f7f"))[0]
MAX_FLOAT64: Final = math.ldexp(2.0 - 2.0**-52, 1023)
MAX_DIGITS: Final = 100
HUGE: Final = 10**100
"""Larger than any MySQL number; larger values count as infinite and are never written out."""
WIDE: Final = Context(prec=400, rounding=ROUND_HALF_UP)
"""Room for every digit of a double or of DECIMAL(65,30)."""

_SINGLE: Final = struct.Struct("<f")
_NORMAL_SINGLE: Final = 2.0**-126
"""Floats from here on have 24 bits: six digits or fewer name one exactly when its six nearest digits do, and nine
digits identify every one."""

_PREFIX: Final = re.compile(r"[ \t\n\v\f\r]*+([+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d{1,9})?)", re.ASCII)


def numeric_prefix(text: str) -> Decimal:
    """Return the number that `text` starts with, garbage after it ignored; 0 when there is none."""
    match = _PREFIX.match(text)
    return Decimal(match[1]) if match else Decimal(0)


def round_exact(number: Decimal) -> int:
    """Return the nearest integer, halves away from zero; beyond 100 digits 10**100 with the number's sign."""
    if number.is_zero():
        return 0
    if number.adjusted() >= MAX_DIGITS:
        return -HUGE if number < 0 else HUGE
    if number.adjusted() < -1:
        return 0
    return int(number.quantize(Decimal(1), context=WIDE))


def to_integer(number: Number) -> int:
    """Return the integer nearest to `number`: floats round halves to even, exact numbers away from zero."""
    if isinstance(number, int):
        return number
    if isinstance(number, Decimal):
        return round_exact(number)
    if math.isfinite(number):
        return round(number)
    if math.isnan(number):
        return 0
    return -HUGE if number < 0 else HUGE


def integer_bounds(kind: ColumnType) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type."""
    bits = INTEGER_BITS[kind.code]
    return (0, (1 << bits) - 1) if kind.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)


def full_year(year: int) -> int:
    """Return a year in full: 0..69 is 2000.., 70..99 is 1970.., everything else stays."""
    if 0 <= year <= 69:
        return 2000 + year
    return 1900 + year if 70 <= year <= 99 else year


def to_float(number: Number) -> float:
    """Return the double nearest to `number`; too large becomes the largest double of that sign, NaN 0."""
    if isinstance(number, Decimal) and not number.is_zero() and number.adjusted() > 308:
        return math.copysign(MAX_FLOAT64, number)
    value = float(number)
    if math.isnan(value):
        return 0.0
    return value if math.isfinite(value) else math.copysign(MAX_FLOAT64, value)


def round_at(value: float, digits: int) -> float:
    """`value` rounded to `digits` decimals the way TiDB does it: scale in doubles, halves to even, scale back."""
    scaled = value * 10.0**digits
    return value if math.isinf(scaled) else round(scaled) / 10.0**digits


def float_writer(kind: ColumnType) -> Callable[[Number], float]:
    """Return a function that makes a FLOAT or DOUBLE of a number, rounded where the type has (M,D)."""
    single = kind.code is MysqlType.FLOAT
    rounds = kind.flen >= 0 and kind.decimal >= 0
    limit = MAX_FLOAT32 if single else MAX_FLOAT64
    if rounds:
        limit = min(limit, 10.0 ** (kind.flen - kind.decimal) - 10.0**-kind.decimal)

    def write(number: Number) -> float:
        value = to_float(number)
        if rounds:
            value = round_at(value, kind.decimal)
        if kind.unsigned and value < 0:
            return 0.0
        value = min(max(value, -limit), limit)
        return float(struct.unpack("<f", struct.pack("<f", value))[0]) if single else value

    return write


def decimal_writer(kind: ColumnType) -> Callable[[Number], str]:
    """Make the text of a DECIMAL: rounded and padded to its scale, clamped to its precision; zero has no sign."""
    precision = kind.flen if kind.flen >= 0 else 10
    scale = max(kind.decimal, 0)
    step = Decimal(1).scaleb(-scale)
    greatest = Decimal(10**precision - 1).scaleb(-scale, WIDE)

    def write(number: Number) -> str:
        exact = exact_number(number)
        if exact.is_zero() or (kind.unsigned and exact < 0):
            return format(Decimal(0).quantize(step), "f")
        if exact.adjusted() >= precision - scale + 1:
            rounded = greatest.copy_sign(exact)
        elif exact.adjusted() < -scale - 1:
            rounded = Decimal(0)
        else:
            rounded = exact.quantize(step, context=WIDE)
            if rounded.copy_abs() > greatest:
                rounded = greatest.copy_sign(exact)
        return format(rounded.copy_abs() if rounded.is_zero() else rounded, f".{scale}f")

    return write


def exact_number(number: Number) -> Decimal:
    """`number` as a Decimal; a float by the shortest digits that read back as it."""
    if isinstance(number, float):
        return Decimal(repr(number)) if math.isfinite(number) else Decimal(repr(to_float(number)))
    return Decimal(number)


def float_text(value: float, *, single: bool) -> str:
    """Return the shortest digits that read back as `value` (as a 32-bit float when `single`), never with an
    exponent."""
    digits = shortest_single(value) if single else repr(value)
    plain = format(Decimal(digits), "f")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def nearest_single(value: float) -> float:
    """Return the 32-bit float that is nearest; infinity for numbers beyond them all."""
    try:
        single: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return single


def shortest_single(value: float) -> str:
    """Return the fewest digits that identify the 32-bit float `value`, as Go does, with an exponent of at least two
    digits: 1.5e+00."""
    if not math.isfinite(value):
        return repr(value)
    text = f"{value:.7e}"
    if abs(value) < _NORMAL_SINGLE or abs(math.frexp(value)[0]) == 0.5:
        text = _searched_single(value)
    elif nearest_single(float(text)) != value:
        text = f"{value:.8e}"
    elif nearest_single(float(fewer := f"{value:.6e}")) == value:
        text = fewer if nearest_single(float(fewest := f"{value:.5e}")) != value else fewest
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa.rstrip('0').removesuffix('.') if '.' in mantissa else mantissa}e{exponent}"


def _searched_single(value: float) -> str:
    """The fewest digits of subnormal numbers, which may be a single one, and of powers of two, which may lie above."""
    for precision in range(8):
        text = f"{value:.{precision}e}"
        if nearest_single(float(text)) == value:
            return text
        if nearest_single(float(above := _away(text))) == value:
            return above
    return f"{value:.8e}"


def _away(text: str) -> str:
    """The next number of as many digits away from zero: the gap above a power of two is twice the gap below it."""
    mantissa, _, exponent = text.partition("e")
    last = mantissa.rstrip("9")
    if last and last[-1] in "0123456789":
        return f"{last[:-1]}{int(last[-1]) + 1}{'0' * (len(mantissa) - len(last))}e{exponent}"
    return text


UNLIMITED: Final = 1 << 32
CODECS: Final = {"gbk": "gbk", "gb18030": "gb18030"}


def capacity(kind: ColumnType) -> int:
    """Return the most characters (CHAR, VARCHAR) or bytes (all others) that the type holds."""
    if kind.code in BLOB_LIMITS:
        return BLOB_LIMITS[kind.code]
    if kind.flen >= 0:
        return kind.flen
    return 1 if kind.code is MysqlType.STRING else UNLIMITED


def encode_text(text: str, charset: str) -> bytes:
    """Return the bytes of `text` in a column's character set."""
    return text.encode(CODECS.get(charset, "utf-8"), "surrogateescape")


def decode_bytes(data: bytes, charset: str) -> str:
    """Return the text of `data` in a column's character set, '?' for invalid bytes."""
    codec = CODECS.get(charset, "utf-8")
    try:
        return data.decode(codec)
    except UnicodeDecodeError:
        return data.decode(codec, "replace").replace("\ufffd", "?")


def enum_index(elems: tuple[str, ...]) -> Callable[[str], int]:
    """Return the 1-based index of a name; 0 for the empty, invalid value."""
    indexes = {name: index for index, name in enumerate(elems, 1)}
    return lambda name: indexes.get(name, 0)


def set_mask(elems: tuple[str, ...]) -> Callable[[str], int]:
    """Return the bit mask of comma-joined names."""
    bits = {name: 1 << index for index, name in enumerate(elems)}
    return lambda text: sum({name: bits.get(name, 0) for name in text.split(",")}.values())


def enum_name(elems: tuple[str, ...], index: int) -> str:
    """Return the name at a 1-based index; '' if there is none."""
    return elems[index - 1] if 1 <= index <= len(elems) else ""


def enum_number(elems: tuple[str, ...], name: str) -> int:
    """Return the 1-based index of a name, spelled as defined; 0 for an unknown name."""
    return elems.index(name) + 1 if name in elems else 0


def set_number(elems: tuple[str, ...], names: str) -> int:
    """Return the bit mask of comma-joined names, spelled as they are defined."""
    parts = names.split(",") if names or "" in elems else []
    return sum(1 << elems.index(part) for part in parts if part in elems)


def set_names(elems: tuple[str, ...], mask: int) -> str:
    """Return the comma-joined names of a bit mask; bits without a name are dropped."""
    return ",".join(name for index, name in enumerate(elems) if mask >> index & 1)


DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
TIMESTAMP_MIN: Final = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
TIMESTAMP_END: Final = datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC)

_ZONE: Final = re.compile(
    r"(?P<rest>.*?\d)[^\w\s]*?(?:Z|(?P<sign>[+-])(?P<hour>\d\d)(?::?(?P<minute>\d\d))?)", re.ASCII
)
_FIELDS: Final = re.compile(r"\d+", re.ASCII)
_PUNCTUATED: Final = re.compile(r"\d+(?:(?:[^\w\s]|_|[T\s])+\d+)*", re.ASCII)
_COMPACT: Final = {14: 4, 12: 2, 11: 2, 10: 2, 9: 2, 8: 4, 7: 2, 6: 2, 5: 2}
"""Digits of a date without separators -> digits of its year; pairs follow, the last may be a single digit."""


def zone_of(name: str) -> tzinfo:
    """Return the time zone of that IANA name; raises ConfigError for any other."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ConfigError(f"no such time zone: {name!r}; use an IANA name such as UTC or Asia/Shanghai") from error


_OFFSET: Final = re.compile(r"([+-])(\d\d):(\d\d)")


def session_zone(name: str, otherwise: tzinfo) -> tzinfo:
    """Return the time zone of a session: an IANA name or an offset such as "+05:30"; `otherwise` if it is unknown."""
    if not name:
        return otherwise
    if (match := _OFFSET.fullmatch(name)) is None:
        return zone_of(name)
    east = timedelta(hours=int(match[2]), minutes=int(match[3]))
    return timezone(-east if match[1] == "-" else east)


def fsp_of(kind: ColumnType) -> int:
    """Return the number of fractional digits of a temporal type."""
    return max(kind.decimal, 0)


def checked(moment: Time, *, any_day: bool = False) -> Time:
    """`moment` if such a wall clock exists (month and day may be zero, and with `any_day` each month has 31), else the
    zero date."""
    in_range = moment.year <= 9999 and moment.month <= 12 and moment.hour < 24 and moment.minute < 60
    last = DAYS[moment.month - 1] if in_range and moment.month and not any_day else 31
    if not in_range or moment.second >= 60 or moment.day > last:
        return ZERO
    if any_day:
        return moment
    leap = moment.year % 4 == 0 and (moment.year % 100 != 0 or moment.year % 400 == 0)
    return ZERO if moment.month == 2 and moment.day == 29 and not leap else moment


def shift(moment: Time, delta: timedelta) -> Time:
    """Return `moment` + `delta`; `moment` itself where there is no such date (zero parts, the year 10000)."""
    if not (moment.year and moment.month and moment.day):
        return moment
    try:
        moved = datetime(*moment) + delta  # noqa: DTZ001 - a wall clock has no zone
    except (ValueError, OverflowError):
        return moment
    return Time(*moved.timetuple()[:6], moved.microsecond)


def round_moment(moment: Time, fsp: int) -> Time:
    """`moment` with `fsp` fractional digits, halves up with carry; at the end of the calendar it is cut instead."""
    unit = 10 ** (6 - fsp)
    rest = moment.microsecond % unit
    cut = moment._replace(microsecond=moment.microsecond - rest)
    return shift(cut, timedelta(microseconds=unit)) if rest * 2 >= unit else cut


def parse_moment(text: str, fsp: int, zone: tzinfo = UTC, *, any_day: bool = False) -> Time:
    """Return the wall clock that MySQL reads in `text` (any separators, two-digit years, none at all), rounded to
    `fsp`; `any_day` as for `checked`."""
    text = text.strip()
    body, offset = split_zone(text)
    if _PUNCTUATED.match(body) is None:
        return ZERO
    fields = _FIELDS.findall(body)
    if len(fields[0]) > 4 or (len(fields) == 1 and "." not in body):
        moment, timed = parse_compact(body, fsp, any_day=any_day)
    else:
        if len(fields) < 3 or any(len(field) > 4 for field in fields[1:6]):
            return ZERO
        numbers = [int(field) for field in fields[:6]]
        timed = len(numbers) == 6
        fraction = fraction_after(body, fields) if timed else ""
        if len(fields[0]) <= 2 and (any(numbers) or fraction):
            numbers[0] = full_year(numbers[0])
        moment = checked(Time(*numbers), any_day=any_day) if all(n <= 9999 for n in numbers) else ZERO
        if fraction and (moment != ZERO or not any(numbers)):
            moment = add_fraction(moment, fraction, fsp)
    if offset is None or moment == ZERO:
        return moment if timed or moment == ZERO else moment._replace(microsecond=0)
    return in_zone(moment, offset, zone) if timed else ZERO


def split_zone(text: str) -> tuple[str, timedelta | None]:
    """`text` without its trailing UTC offset (Z, +08, +0800, +08:00), and that offset if it has one."""
    match = _ZONE.fullmatch(text)
    if match is None:
        return text, None
    rest = match["rest"]
    if match["sign"] is None:
        return rest, timedelta(0)
    timed = len(_FIELDS.findall(rest)) >= 6 or re.fullmatch(r"\d{12}|\d{14}", rest.partition(".")[0]) is not None
    if not timed:
        return text, None
    offset = timedelta(hours=int(match["hour"]), minutes=int(match["minute"] or 0))
    return rest, -offset if match["sign"] == "-" else offset


def in_zone(moment: Time, offset: timedelta, zone: tzinfo) -> Time:
    """Return a wall clock at UTC + `offset` as the wall clock of `zone`; offsets beyond 14 hours make no date."""
    if abs(offset) > timedelta(hours=14):
        return ZERO
    try:
        moved = datetime(*moment, tzinfo=timezone(offset)).astimezone(zone)
    except (ValueError, OverflowError):
        return ZERO
    return Time(*moved.timetuple()[:6], moved.microsecond)


def fraction_after(body: str, fields: list[str]) -> str:
    """Return the digits after the point that follows the sixth field."""
    match = re.match(r"(?:\D*+\d++){6}\.(\d+)", body, re.ASCII) if len(fields) > 6 else None
    return match[1] if match else ""


def add_fraction(moment: Time, digits: str, fsp: int) -> Time:
    """`moment` with the fraction `digits`, rounded half up at `fsp` by the next digit; the zero date where that is
    the next second of a day that no calendar has, as TiDB counts seconds by the calendar."""
    kept = int(digits[:fsp].ljust(fsp, "0") or 0) + (1 if digits[fsp : fsp + 1] >= "5" else 0)
    if kept < 10**fsp:
        return moment._replace(microsecond=kept * 10 ** (6 - fsp))
    if not moment.month or not moment.day:
        return ZERO
    return shift(moment._replace(microsecond=0), timedelta(microseconds=kept * 10 ** (6 - fsp)))


def parse_compact(body: str, fsp: int, *, any_day: bool = False) -> tuple[Time, bool]:
    """(wall clock, whether it has seconds) of YYYYMMDD[HHMMSS] or YYMMDD[HHMMSS] with an optional fraction."""
    match = re.match(r"(\d+)(?:[^\w\s]*\.(\d*))?", body, re.ASCII)
    digits, fraction = (match[1], match[2] or "") if match else ("", "")
    width = _COMPACT.get(len(digits))
    if width is None:
        return ZERO, False
    rest = digits[width:]
    pairs = [int(rest[start : start + 2]) for start in range(0, len(rest), 2)]
    timed = len(pairs) == 5
    if not timed and fraction:
        pairs += [int(fraction[start : start + 2]) for start in range(0, min(len(fraction), 2 * (5 - len(pairs))), 2)]
    year = int(digits[:width])
    moment = checked(Time(full_year(year) if width == 2 else year, *pairs), any_day=any_day)
    return (
        add_fraction(moment, fraction, fsp) if timed and fraction and (moment != ZERO or not int(digits)) else moment
    ), timed


def parse_moment_number(number: int, *, any_day: bool = False) -> Time:
    """Return the wall clock of a number such as 20200101, 200101, 20200101123059; the zero date if it is invalid.
    `any_day` as for `checked`."""
    if number < 101 or 99991231 < number < 101000000 or number > 99991231235959:
        return ZERO
    if number <= 99991231:
        day, clock = number, 0
    else:
        day, clock = divmod(number, 10**6)
    if day <= 991231:
        day += 20000000 if day < 700101 else 19000000
    hour, rest = divmod(clock, 10**4)
    year, month_day = divmod(day, 10**4)
    return checked(Time(year, *divmod(month_day, 100), hour, *divmod(rest, 100)), any_day=any_day)


def moment_number(moment: Time, kind: ColumnType) -> Decimal:
    """Return a moment as a number: 20200131 for a DATE, 20200131235959.999 for other types."""
    if kind.code is MysqlType.DATE:
        return Decimal("{:04}{:02}{:02}".format(*moment[:3]))
    whole = "{:04}{:02}{:02}{:02}{:02}{:02}".format(*moment[:6])
    return Decimal(f"{whole}.{moment.microsecond:06}"[: len(whole) + 1 + fsp_of(kind)])


def span_of_moment(moment: Time) -> int:
    """Return the time of day in microseconds."""
    return ((moment.hour * 60 + moment.minute) * 60 + moment.second) * 10**6 + moment.microsecond


def valid_timestamp(moment: Time, zone: tzinfo) -> Time:
    """`moment` as a TIMESTAMP of `zone`: out of a summer-time gap, and the zero date outside 1970..2038."""
    try:
        local = datetime(*moment, tzinfo=zone)
        instant = local.astimezone(UTC)
    except (ValueError, OverflowError):
        return ZERO
    if not TIMESTAMP_MIN <= instant < TIMESTAMP_END:
        return ZERO
    back = instant.astimezone(zone)
    if back.replace(tzinfo=None) == local.replace(tzinfo=None):
        return moment
    return end_of_gap(instant, zone)


def end_of_gap(instant: datetime, zone: tzinfo) -> Time:
    """Return the first wall clock after the jump of `zone` that lies within three hours around `instant`."""
    low, high = instant - timedelta(hours=3), instant + timedelta(hours=3)
    before = low.astimezone(zone).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) / 2
        low, high = (middle, high) if middle.astimezone(zone).utcoffset() == before else (low, middle)
    first = high.replace(microsecond=0).astimezone(zone)
    return Time(*first.timetuple()[:6])


SPAN_LIMIT: Final = ((838 * 60 + 59) * 60 + 59) * 10**6
"""838:59:59, the end of TIME."""

_SPAN: Final = re.compile(
    r"(?P<sign>-?)\s*(?:(?P<day>\d+)\s+(?=\d))?"
    r"(?:(?P<hour>\d+)\s*(?P<colon>:)\s*(?P<minute>\d+)(?:\s*:\s*(?P<second>\d+))?|(?P<compact>\d+))"
    r"\s*(?:\.(?P<fraction>\d*))?",
    re.ASCII,
)

_DATED: Final = re.compile(r"(?:\d{12}|\d{14})(?!\d)|\d+[^\w\s]\d+[^\w\s]\d+[ T]", re.ASCII)


def clamp(span: int) -> int:
    """Return `span` clamped to the range of TIME."""
    return min(max(span, -SPAN_LIMIT), SPAN_LIMIT)


def round_span(span: int, fsp: int) -> int:
    """`span` with `fsp` fractional digits, halves towards plus infinity."""
    unit = 10 ** (6 - fsp)
    return clamp((2 * span + unit) // (2 * unit) * unit)


def parse_span(text: str, fsp: int) -> int | None:
    """Return the TIME that MySQL reads in `text`, rounded to `fsp`; None when it reads as no time."""
    text = text.strip()
    match = _SPAN.match(text)
    if match is None or (match.end() < len(text) and len(text.lstrip("-")) >= 12):
        return None
    if match["compact"] is not None and match["day"] is None:
        number = int(match["compact"][:20])
        hour, minute, second = number // 10**4, number // 100 % 100, number % 100
    else:
        hour = int((match["hour"] or match["compact"])[:9]) + 24 * int((match["day"] or "0")[:9])
        minute, second = int((match["minute"] or "0")[:9]), int((match["second"] or "0")[:9])
    if minute > 59 or second > 59 or (hour > 838 and _DATED.match(text)):
        return None
    digits = match["fraction"] or ""
    kept = int(digits[:fsp].ljust(fsp, "0") or 0) + (1 if digits[fsp : fsp + 1] >= "5" else 0)
    span = clamp(((hour * 60 + minute) * 60 + second) * 10**6 + kept * 10 ** (6 - fsp))
    return -span if match["sign"] else span


def span_number(span: int, fsp: int) -> Decimal:
    """Return a time span as a number: 102030.5 for 10:20:30.5."""
    return Decimal(render_duration(span * 1000, fsp).replace(":", ""))
