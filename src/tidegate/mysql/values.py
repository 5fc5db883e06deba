"""Values of running statements: conversion from stored values, to texts, numbers and times, and comparison.

    column                       stored (KvValue)         running (SqlValue)
    integers, YEAR               int, Unsigned            the same
    DECIMAL                      DecimalDatum             Decimal, with the column's decimals
    FLOAT, DOUBLE                float                    float
    text                         bytes (UTF-8)            str
    binary strings               bytes                    bytes
    BIT                          Unsigned                 Bits: bytes, big endian, as wide as the column
    ENUM, SET                    Unsigned                 Named: its text, and the number behind it
    DATE, DATETIME               Time                     Time
    TIMESTAMP                    Time in UTC              Time on the session's clocks
    TIME, JSON, VECTOR           Duration, JsonDatum, Vector    the same

The ColumnType of a value has the rest: whether a Time is a date, how many decimals it shows, by which collation a
text compares.  Truth values are the ints 1 and 0; NULL and unknown are None, and stay None as text, number or time.
`Context` holds the statement's moment, the session's settings and the warnings so far.

    text_of       for CONCAT, LIKE and comparisons with text: str, or bytes of binary strings
    render        the text protocol's: 1e20 is "1e20" there, "100000000000000000000" in text_of
    number_of     int | Unsigned | Decimal | float: '12abc' -> 12.0 and warning 1292, x'0a' -> 10, ENUM and SET by
                  number, dates 20240131 or 20240131235959[.5], TIME -102030[.5], JSON the number in it, true is 1
    integer_of    rounded: exact halves away from zero, doubles' halves to even
    decimal_of    exact; a double by its shortest digits
    truth_of      different from 0
    moment_of     text, number, date -> Time: '2024-1-5', 20240105, '24.01.05 10:20:30.5'; a TIME is today's
    span_of       text, number, TIME -> Duration: '10:20', 102030, '-1 02:03:04.5'; of a date and time its clock

An invalid date or time is None, with warning 1292.  `compare(a, b, ..)` returns -1, 0, 1, or None if one is NULL;
`sort_key_of(value, collation)` sorts, groups and hashes as `compare` does, within one type.

    both text           by the collation
    both numbers        exactly; as doubles when one is a double
    text, number        as doubles
    date, anything      as dates; TIME, anything: as spans; where the other is no date: as texts
    JSON, anything      as JSON documents: null < numbers < strings < objects < arrays < booleans < times
    x'..', number       as numbers

Source: MySQL manual, "Type Conversion in Expression Evaluation", "Date and Time Literals", "Comparison and Ordering of
JSON Values"; TiDB's types package (ToString) and server (dumpTextRow: exponents from 1e15 up and below 1e-15).
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import ROUND_HALF_UP, Decimal
from decimal import Context as DecimalContext
from functools import lru_cache
from typing import Any, Final, Literal, Protocol, Self, TypeAlias

from tidegate.model.errors import EncodeError, SqlRefused, redacted
from tidegate.model.mysql import DATES, STRINGS, UNSIGNED_TYPES
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.collation import sort_key
from tidegate.mysql.column_value import KvValue, column_text
from tidegate.mysql.conversion import (
    SPAN_LIMIT,
    Number,
    encode_text,
    exact_number,
    float_text,
    parse_moment,
    parse_moment_number,
    parse_span,
    round_moment,
    shortest_single,
    to_integer,
)
from tidegate.mysql.datum import DecimalDatum, Duration, JsonDatum, Unsigned, Vector
from tidegate.mysql.encoding import MAX_UINT, MIN_INT
from tidegate.mysql.json_value import JsonDuration, JsonTime, JsonValue, Opaque, render_json, scientific
from tidegate.mysql.packed_time import ZERO, Time, from_utc, render_date, render_duration, render_time

__all__ = ["Bits", "Duration", "JsonDatum", "Named", "SqlValue", "Time", "Unsigned", "Vector", "from_column"]


class Named(str):
    """A value of ENUM or SET: text among texts, its index or mask among numbers."""

    __slots__ = ("number",)
    number: int

    def __new__(cls, text: str, number: int) -> Self:
        """`number` is the index of an ENUM (from 1; 0 = none) or the mask of a SET."""
        named = super().__new__(cls, text)
        named.number = number
        return named

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        """Keep the number through pickle and copy."""
        return Named, (str(self), self.number)


class Bits(bytes):
    """BIT, x'..' and b'..': a binary string that is a number among numbers."""

    __slots__ = ()


SqlValue: TypeAlias = int | Unsigned | Decimal | float | str | bytes | Time | Duration | JsonDatum | Vector | None
"""Named is a str, Bits are bytes."""


def from_column(kind: ColumnType, value: KvValue, zone: tzinfo) -> SqlValue:
    """Return the running value of a stored one; `zone` is the session's, for TIMESTAMP."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return value if kind.charset == "binary" else value.decode("utf-8", "surrogateescape")
    if isinstance(value, DecimalDatum):
        return _scaled(value.value, kind.decimal)
    if isinstance(value, Decimal):
        return _scaled(value, kind.decimal)
    if isinstance(value, Time):
        return from_utc(value, zone) if kind.code is T.TIMESTAMP else value
    if isinstance(value, int) and kind.code in UNSIGNED_TYPES:
        return _numbered(kind, value)
    assert not isinstance(value, JsonDatum) or kind.code not in STRINGS, kind
    return value  # type: ignore[return-value]  # what is left is the same in both forms


def _scaled(value: Decimal, scale: int) -> Decimal:
    exponent = value.as_tuple().exponent
    if scale < 0 or exponent == -scale:
        return value
    return Decimal(f"{value:.{scale}f}")


def _numbered(kind: ColumnType, value: int) -> SqlValue:
    """BIT as bytes, ENUM and SET as their texts."""
    if kind.code is T.BIT:
        return Bits(value.to_bytes((max(kind.flen, 1) + 7) // 8, "big"))
    names = kind.elems or ()
    if kind.code is T.ENUM:
        return Named(names[value - 1] if 1 <= value <= len(names) else "", value)
    return Named(",".join(name for index, name in enumerate(names) if value >> index & 1), value)


DEFAULT_COLLATION: Final = "utf8mb4_bin"


@dataclass(frozen=True, slots=True)
class SqlWarning:
    """A line of SHOW WARNINGS."""

    level: Literal["Note", "Warning", "Error"]
    code: int
    message: str


class UserLocks(Protocol):
    """A port of user-level locks (GET_LOCK ..), for one session."""

    def take(self, name: str, wait_s: float) -> bool:
        """GET_LOCK."""
        ...

    def release(self, name: str) -> bool | None:
        """RELEASE_LOCK."""
        ...

    def release_all(self) -> int:
        """RELEASE_ALL_LOCKS."""
        ...

    def owner(self, name: str) -> int | None:
        """IS_USED_LOCK."""
        ...


@dataclass(slots=True)
class Context:
    """The context of a running statement: time, settings, warnings. `now` is in UTC and fixed for the statement."""

    now: datetime
    zone: tzinfo = UTC
    sql_mode: frozenset[str] = frozenset()
    database: str = ""
    variables: Mapping[str, SqlValue] = field(default_factory=dict)
    """Session variables by lower-case name; missing ones are looked up in `global_variables`."""
    global_variables: Mapping[str, SqlValue] = field(default_factory=dict)
    user_variables: dict[str, SqlValue] = field(default_factory=dict)
    """Lower-case names without @."""
    last_insert_id: int = 0
    connection_id: int = 0
    row_count: int = -1
    found_rows: int = 0
    user: str = "root@%"
    warnings: list[SqlWarning] = field(default_factory=list)
    new_timestamp: Callable[[], int] | None = None
    """The timestamp oracle, for functions that need it."""
    locks: UserLocks | None = None
    start_ts: int = 0
    writing: bool = False
    """True inside INSERT, UPDATE and DELETE, where strict mode makes errors of warnings."""

    def warn(self, code: int, message: str) -> None:
        self.warnings.append(SqlWarning("Warning", code, message))

    @property
    def strict(self) -> bool:
        """True if a statement that writes refuses values that it cannot store exactly."""
        return bool(self.sql_mode & {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"})


NO_CONTEXT: Final = Context(datetime(1970, 1, 1, tzinfo=UTC))
"""The context of literals, which ignore it."""


Text: TypeAlias = str | bytes
_VECTOR: Final = ColumnType(T.VECTOR)


def text_of(value: SqlValue, kind: ColumnType) -> Text | None:
    """Return `value` as text: str, or bytes of a binary string."""
    if value is None or isinstance(value, str | bytes):
        return value
    match value:
        case Time():
            return render_date(value) if kind.code in DATES else render_time(value, kind.decimal)
        case Duration():
            return render_duration(value, kind.decimal)
        case int():
            width = 4 if kind.code is T.YEAR else kind.flen if kind.zerofill else 0
            return str(int(value)).rjust(width, "0")
        case float():
            return float_text(value, single=kind.code is T.FLOAT)
        case Decimal():
            return format(value, "f")
        case JsonDatum():
            return render_json(value.document)
        case Vector():
            return column_text(_VECTOR, value)
    raise AssertionError(value)


def string_of(value: SqlValue, kind: ColumnType) -> str | None:
    """Return a value as text, bytes as characters; None for NULL."""
    text = text_of(value, kind)
    return text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text


def octets(value: SqlValue, kind: ColumnType) -> bytes | None:
    """Return the bytes of a text in its character set."""
    text = text_of(value, kind)
    return encode_text(text, kind.charset) if isinstance(text, str) else text


def same_kind(first: Text, second: Text) -> tuple[Text, Text]:
    """Return both texts as bytes if one of them is."""
    if isinstance(first, bytes) is isinstance(second, bytes):
        return first, second
    return _bytes(first), _bytes(second)


def _bytes(text: Text) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def render(value: SqlValue, kind: ColumnType) -> Text | None:
    """Return the text that a client receives; None for NULL."""
    if isinstance(value, float) and value != 0 and not 1e-15 <= abs(value) < 1e15:
        return scientific(shortest_single(value) if kind.code is T.FLOAT else repr(value))
    return text_of(value, kind)


EXACT: Final = DecimalContext(prec=400, rounding=ROUND_HALF_UP, Emax=10**6, Emin=-(10**6))
"""Room for every product of two DECIMAL(65,30)."""
_PREFIX: Final = re.compile(
    r"[ \t\n\v\f\r]*+([+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d{1,9})?)[ \t\n\v\f\r]*+", re.ASCII
)
_TRUNCATED: Final = 1292
_PLAIN: Final = frozenset({int, Unsigned, Decimal, float})


def number_of(value: SqlValue, kind: ColumnType, context: Context) -> Number | None:
    """Return `value` as a number for arithmetic."""
    if value is None or type(value) in _PLAIN:
        return value  # type: ignore[return-value]  # one of Number by the test
    match value:
        case Named():
            return value.number
        case str():
            return text_number(value, context)
        case Bits():
            return Unsigned(int.from_bytes(value[-8:], "big"))
        case bytes():
            return text_number(value.decode("latin-1"), context)
        case Time():
            return _time_number(value, kind)
        case Duration():
            return _span_number(value, kind)
        case JsonDatum():
            return _json_number(value, context)
        case Vector():
            raise SqlRefused(1105, "cannot use a vector as a number", "HY000")
        case int():
            return int(value)
    raise AssertionError(value)


def text_number(text: str, context: Context, what: str = "DOUBLE") -> float:
    """Return the double that `text` begins with; warns if more text follows."""
    match = _PREFIX.match(text)
    if match is None or match.end() < len(text):
        _truncated(text, what, context)
    return clamped(float(match[1])) if match else 0.0


def clamped(value: float) -> float:
    """Return `value`, with infinities replaced by the largest double."""
    return value if math.isfinite(value) else math.copysign(1.7976931348623157e308, value)


def _truncated(text: str, what: str, context: Context) -> None:
    message = f"Truncated incorrect {what} value: '{redacted(text[:128])}'"
    if context.writing and context.strict:
        raise SqlRefused(_TRUNCATED, message, "22007")
    context.warn(_TRUNCATED, message)


def _time_number(value: Time, kind: ColumnType) -> Number:
    date = (value.year * 100 + value.month) * 100 + value.day
    if kind.code in DATES:
        return date
    whole = ((date * 100 + value.hour) * 100 + value.minute) * 100 + value.second
    return _with_fraction(whole, value.microsecond, kind)


def _span_number(value: int, kind: ColumnType) -> Number:
    seconds, ns = divmod(abs(value), 10**9)
    whole = (seconds // 3600 * 100 + seconds // 60 % 60) * 100 + seconds % 60
    number = _with_fraction(whole, ns // 1000, kind)
    return -number if value < 0 else number


def _with_fraction(whole: int, micros: int, kind: ColumnType) -> Number:
    if kind.decimal <= 0:
        return whole
    return Decimal(f"{whole}.{micros:06}"[: len(str(whole)) + 1 + kind.decimal])


def _json_number(value: JsonDatum, context: Context) -> Number:
    document = value.document
    if isinstance(document, bool):
        return int(document)
    if isinstance(document, int | float):
        return document
    return text_number(document if isinstance(document, str) else "", context)


def float_of(value: SqlValue, kind: ColumnType, context: Context) -> float | None:
    """Return `value` as a double."""
    number = number_of(value, kind, context)
    return None if number is None else float(number)


def decimal_of(value: SqlValue, kind: ColumnType, context: Context) -> Decimal | None:
    """Return `value` as an exact number; text is read digit by digit."""
    if isinstance(value, str | bytes) and not isinstance(value, Named | Bits):
        text = value if isinstance(value, str) else value.decode("latin-1")
        match = _PREFIX.match(text)
        if match is None or match.end() < len(text):
            _truncated(text, "DECIMAL", context)
        return Decimal(match[1]) if match else Decimal(0)
    number = number_of(value, kind, context)
    return None if number is None else exact_number(number)


def integer_of(value: SqlValue, kind: ColumnType, context: Context) -> int | None:
    """Return `value` as an integer of any size, `Unsigned` where it was one."""
    if value is None or type(value) is int or type(value) is Unsigned:
        return value
    if isinstance(value, str) and not isinstance(value, Named):
        match = _PREFIX.match(value)
        if match is None or match.end() < len(value):
            _truncated(value, "INTEGER", context)
        return to_integer(exact_number(Decimal(match[1]))) if match else 0
    number = number_of(value, kind, context)
    return None if number is None else number if isinstance(number, Unsigned) else to_integer(number)


def truth_of(value: SqlValue, kind: ColumnType, context: Context) -> bool | None:
    """Return whether `value` counts as true; None when that is unknown."""
    if type(value) is int:
        return value != 0
    number = number_of(value, kind, context)
    return None if number is None else number != 0


def rounded(value: Decimal, scale: int) -> Decimal:
    """`value` with exactly `scale` decimals, halves away from zero, no negative zero."""
    result = value.quantize(Decimal(1).scaleb(-scale), context=EXACT)
    return result.copy_abs() if result.is_zero() else result


def wrapped(value: int) -> int:
    """Return the 64 bits of `value` as an unsigned number, clamped where there are more."""
    if value < 0:
        return max(value, MIN_INT) & MAX_UINT
    return min(value, MAX_UINT)


_INCORRECT: Final = 1292
_ZEROS: Final = re.compile(r"[\s:.\-/T]*+0[\s0:.\-/T]*+\Z")
_DATE_PART: Final = re.compile(
    r"\s*\d{1,4}[^\w\s:.]\d+[^\w\s:.]\d+|\s*\d{8}(?:\d{6})?(?:\.\d*)?\s*\Z|\s*\d{12}(?:\.\d*)?\s*\Z"
)
NS: Final = 1000


def wrong_value(what: str, text: object, context: Context) -> None:
    """Warn (1292) of a value that is no date or time; raise where a strict statement writes."""
    message = f"Incorrect {what} value: '{redacted(str(text))}'"
    if context.writing and context.strict:
        raise SqlRefused(_INCORRECT, message, "22007")
    context.warn(_INCORRECT, message)


@lru_cache(maxsize=4096)
def parse_time(text: str, fsp: int = 6) -> Time | None:
    """Return the date (and clock) in `text`; None when it holds none."""
    time = parse_moment(text, fsp)
    if any(time):
        return time
    return ZERO if _ZEROS.match(text) else None


def moment_of(value: SqlValue, kind: ColumnType, context: Context) -> Time | None:
    """Return `value` as a date and time."""
    if value is None or type(value) is Time:
        return value
    if isinstance(value, Duration):
        today = session_now(context)
        start = datetime(today.year, today.month, today.day)  # noqa: DTZ001 - a wall clock
        return clock(start + timedelta(microseconds=value // NS))
    if isinstance(value, str | bytes | JsonDatum):
        text = string_of(value, kind) or ""
        text = text.strip('"') if isinstance(value, JsonDatum) else text
        time = parse_time(text)
        if time is None:
            wrong_value("datetime", text, context)
        return time
    number = number_of(value, kind, context)
    assert number is not None, value
    whole = int(number)
    moment = parse_moment_number(whole)
    if not any(moment) and whole != 0:
        wrong_value("datetime", number, context)
        return None
    micros = int((Decimal(str(number)) % 1) * 10**6) if whole > 99991231 else 0
    return Time(*moment[:6], micros)


def span_of(value: SqlValue, kind: ColumnType, context: Context) -> Duration | None:
    """Return `value` as a time span."""
    if value is None or type(value) is Duration:
        return value
    if isinstance(value, Time):
        return Duration(0 if kind.code is T.DATE else span_of_clock(value))
    if isinstance(value, str | bytes | JsonDatum):
        text = (string_of(value, kind) or "").strip('"')
        if _DATE_PART.match(text):
            time = parse_time(text)
            return None if time is None else Duration(span_of_clock(time))
    else:
        number = number_of(value, kind, context)
        text = format(Decimal(str(number)), "f")
    span = parse_span(text, 6)
    if span is None:
        wrong_value("time", text, context)
        return None
    if abs(span) == SPAN_LIMIT and not re.match(r"-?8385959|-?838:59:59", text):
        wrong_value("time", text, context)
    return Duration(span * NS)


def span_of_clock(time: Time) -> int:
    """Return the clock of a date and time in nanoseconds."""
    return (((time.hour * 60 + time.minute) * 60 + time.second) * 10**6 + time.microsecond) * NS


def session_now(context: Context) -> datetime:
    """Return the statement's time in the session's time zone."""
    return context.now.astimezone(context.zone)


def clock(moment: datetime | date) -> Time:
    """Return the wall clock of a datetime."""
    if isinstance(moment, datetime):
        return Time(*moment.timetuple()[:6], moment.microsecond)
    return Time(*moment.timetuple()[:3])


def is_real(time: Time) -> bool:
    """Return whether the date is a valid calendar date, without zero parts."""
    return bool(time.year and time.month and time.day)


def to_datetime(time: Time) -> datetime | None:
    """Return the wall clock as a datetime; None if it is not a valid date."""
    try:
        return datetime(*time)  # noqa: DTZ001 - a wall clock
    except ValueError:
        return None


def round_time(time: Time, fsp: int) -> Time:
    """`time` with `fsp` decimals, halves up."""
    return round_moment(time, max(fsp, 0))


def round_span_ns(span: int, fsp: int) -> Duration:
    """Return a span with `fsp` decimals, halves up."""
    unit = 10 ** (9 - max(fsp, 0))
    return Duration((2 * span + unit) // (2 * unit) * unit)


def text_key(collation: str) -> Callable[[str], bytes]:
    """Return the bytes by which a text of that collation sorts; characters without a known weight come last, by
    code."""

    @lru_cache(maxsize=4096)
    def key(text: str) -> bytes:
        try:
            return sort_key(collation, text.encode("utf-8", "surrogateescape"))
        except EncodeError:
            return b"".join(_character_key(collation, char) for char in text.rstrip(" "))

    return _KEYS.setdefault(collation, key)


def _character_key(collation: str, char: str) -> bytes:
    try:
        width = len(_letter(collation))
        # Between two letters, so that a space keeps its weight where trailing ones have none.
        return sort_key(collation, f"a{char}a".encode("utf-8", "surrogateescape"))[width:-width]
    except EncodeError:
        return b"\xff\xff" + ord(char).to_bytes(4, "big")


@lru_cache(maxsize=64)
def _letter(collation: str) -> bytes:
    return sort_key(collation, b"a")


_KEYS: Final[dict[str, Callable[[str], bytes]]] = {}


def _order(first: Any, second: Any) -> int:
    return int(first > second) - int(first < second)


def compare(
    first: SqlValue, second: SqlValue, kinds: tuple[ColumnType, ColumnType], collation: str, context: Context
) -> int | None:
    """Return -1, 0 or 1 by MySQL's rules of comparison; None when one is NULL."""
    if first is None or second is None:
        return None
    if type(first) is int and type(second) is int:
        return _order(first, second)
    if isinstance(first, JsonDatum) or isinstance(second, JsonDatum):
        return json_order(_document(first, kinds[0]), _document(second, kinds[1]))
    if isinstance(first, Time | Duration) or isinstance(second, Time | Duration):
        order = _times(first, second, kinds, context)
        if order is not None:
            return order
    if _is_text(first) and _is_text(second):
        return _texts(first, second, kinds, collation)
    if isinstance(first, Vector) and isinstance(second, Vector):
        return _order(tuple(first), tuple(second))
    if isinstance(first, Time | Duration) or isinstance(second, Time | Duration):
        return _texts(first, second, kinds, "utf8mb4_bin")
    return _numbers(first, second, kinds, context)


def _is_text(value: SqlValue) -> bool:
    return isinstance(value, str | bytes)


def _texts(first: SqlValue, second: SqlValue, kinds: tuple[ColumnType, ColumnType], collation: str) -> int:
    left, right = text_of(first, kinds[0]), text_of(second, kinds[1])
    if isinstance(left, str) and isinstance(right, str) and collation != "binary":
        if left == right:
            return 0
        key = text_key(collation)
        return _order(key(left), key(right))
    return _order(_compare_bytes(left), _compare_bytes(right))


def _compare_bytes(text: str | bytes | None) -> bytes:
    assert text is not None
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def _times(first: SqlValue, second: SqlValue, kinds: tuple[ColumnType, ColumnType], context: Context) -> int | None:
    """Return the order of two values of which one is a date or span; None if the other is a text that is neither."""
    if isinstance(first, Time) or isinstance(second, Time):
        for value, kind in ((first, kinds[0]), (second, kinds[1])):
            if isinstance(value, str | bytes) and parse_time(str(text_of(value, kind))) is None:
                return None
        return _order(moment_of(first, kinds[0], context) or (), moment_of(second, kinds[1], context) or ())
    left, right = span_of(first, kinds[0], context), span_of(second, kinds[1], context)
    return None if left is None or right is None else _order(left, right)


def _numbers(first: SqlValue, second: SqlValue, kinds: tuple[ColumnType, ColumnType], context: Context) -> int:
    left, right = number_of(first, kinds[0], context), number_of(second, kinds[1], context)
    if isinstance(left, float) is not isinstance(right, float):
        left, right = float(left or 0), float(right or 0)
    return _order(left, right)


def _document(value: SqlValue, kind: ColumnType) -> JsonValue:
    if isinstance(value, JsonDatum):
        return value.document
    if value is None or (isinstance(value, int | float) and not isinstance(value, Duration)):
        return value
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, Time):
        return JsonTime(0x0F, value)
    if isinstance(value, Duration):
        return JsonDuration(int(value))
    text = text_of(value, kind)
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


_RANKS: Final[tuple[tuple[type, int], ...]] = (
    (bool, 6),
    (int, 2),
    (float, 2),
    (str, 3),
    (dict, 4),
    (list, 5),
    (JsonTime, 7),
    (JsonDuration, 8),
    (Opaque, 9),
)


def json_key(document: JsonValue) -> tuple[Any, ...]:
    """Return the key by which JSON documents sort, group and hash."""
    if document is None:
        return (1,)
    rank = next(rank for kind, rank in _RANKS if isinstance(document, kind))
    if isinstance(document, dict):
        return (rank, len(document), tuple((key, json_key(value)) for key, value in sorted(document.items())))
    if isinstance(document, list):
        return (rank, tuple(map(json_key, document)))
    if isinstance(document, str):
        return (rank, document.encode("utf-8", "surrogatepass"))
    if isinstance(document, JsonTime):
        return (rank, tuple(document.time))
    if isinstance(document, JsonDuration):
        return (rank, document.duration_ns)
    return (rank, document.data if isinstance(document, Opaque) else document)


def json_order(first: JsonValue, second: JsonValue) -> int:
    """Return -1, 0 or 1 by the order of JSON documents."""
    return _order(json_key(first), json_key(second))


def sort_key_of(value: SqlValue, collation: str) -> tuple[Any, ...]:
    """Return a key for ORDER BY, GROUP BY and DISTINCT; NULL comes first, then numbers, texts and the others."""
    if value is None:
        return (0,)
    if isinstance(value, Named):
        return (1, value.number)
    if isinstance(value, str):
        return (2, text_key(collation)(value) if collation != "binary" else value.encode("utf-8", "surrogateescape"))
    if isinstance(value, bytes):
        return (2, bytes(value))
    if isinstance(value, JsonDatum):
        return (3, json_key(value.document))
    if isinstance(value, Time | Vector):
        return (4, tuple(value))
    return (1, value)
