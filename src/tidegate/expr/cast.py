"""Conversion on assignment: the value that a column stores when a statement assigns one to it.

    SqlValue ── convert(value, target, context) ──► Converted(KvValue, problem)        pure: reports, never raises
             ── assign(value, target, context, row) ──► KvValue                        strict mode raises, else warns

    problem        code   strict mode   otherwise                    message
    OUT_OF_RANGE   1264   refused       nearest bound                Out of range value for column 'a' at row 1
    TOO_LONG       1406   refused       cut                          Data too long for column 'a' at row 1
    INCORRECT      1366   refused       numeric prefix, or 0         Incorrect int value: 'x' for column 'a' at row 1
    NO_MOMENT      1292   refused       the zero date                Incorrect date value: 'x' for column 'a' at row 1
    TRUNCATED      1265   refused       the empty ENUM, fewer names  Data truncated for column 'a' at row 1
    ROUNDED        1265   a note        digits or blanks cut         the same
    NO_JSON        3140   refused       refused                      Invalid JSON text ..

    target      stores               rules
    numbers     int, Unsigned,       int and Decimal round halves away from zero, float to even; text counts as its
                float, Decimal       numeric prefix, x'..', b'..' and BIT as a big-endian number, dates as 20240131
    strings     bytes, UTF-8         cut to the length; see `to_text`
    ENUM, SET   Unsigned             by name as the collation compares, else by number
    DATE        Time                 the time of day is cut off, not rounded
    DATETIME(n) Time                 rounded half up to n digits, with carry
    TIMESTAMP   Time in UTC          1970-01-01 00:00:01 .. 2038-01-19 03:14:07; a wall clock that the session's zone
                                     skips is refused in strict mode, else moved to the end of the gap
    TIME(n)     Duration             text, numbers such as 101112, the clock of a date; clamped to 838:59:59
    JSON        JsonDatum            text is parsed

0000-00-00 is refused in strict mode under NO_ZERO_DATE, and a warning under NO_ZERO_DATE alone; 2024-00-10 likewise
under NO_ZERO_IN_DATE.  2024-02-30 is no date, except for a DATE or DATETIME under ALLOW_INVALID_DATES.

Strict means STRICT_TRANS_TABLES or STRICT_ALL_TABLES in sql_mode; IGNORE (`lenient`) makes warnings of errors anyway.
NULL into NOT NULL is error 1048 in strict mode and in an INSERT of one row; elsewhere the zero value and a warning.

`fitted` prepares a value of a statement, `recast` a stored value of a column whose type changes (see change.py).

    >>> from datetime import datetime
    >>> from tidegate.model.mysql import MysqlType
    >>> found = convert(300, Target("a", ColumnType(MysqlType.TINY)), Context(datetime(2024, 1, 31, tzinfo=UTC)))
    >>> found.value, found.problem.name
    (127, 'OUT_OF_RANGE')

Source: TiDB pkg/table/column.go (CastColumnValue, handleZeroDatetime), pkg/executor/insert_common.go, pkg/types
(Datum.ConvertTo, ProduceStrWithSpecifiedTp, ParseEnum, ParseSet, ParseYear); MySQL manual, "Server SQL Modes".
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Final, NamedTuple

from tidegate.expr.result_type import DOUBLE, as_member
from tidegate.model.errors import EncodeError, SqlRefused
from tidegate.model.mysql import BLOB_LIMITS, DATES, INTEGERS, STRINGS, TYPES, Family, sql_name
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import all_digits
from tidegate.model.table import ColumnType
from tidegate.mysql.collation import sort_key
from tidegate.mysql.column_value import KvValue, parse_value
from tidegate.mysql.conversion import (
    CODECS,
    MAX_FLOAT32,
    MAX_FLOAT64,
    SPAN_LIMIT,
    Number,
    capacity,
    decimal_writer,
    decode_bytes,
    encode_text,
    exact_number,
    float_writer,
    fsp_of,
    full_year,
    integer_bounds,
    moment_number,
    numeric_prefix,
    parse_moment,
    parse_moment_number,
    parse_span,
    round_at,
    round_moment,
    round_span,
    shift,
    span_number,
    span_of_moment,
    to_float,
    to_integer,
    valid_timestamp,
)
from tidegate.mysql.datum import Duration, JsonDatum, Unsigned, Vector
from tidegate.mysql.json_value import JsonDuration, JsonTime, JsonValue
from tidegate.mysql.packed_time import ZERO, Time, render_date, render_duration, render_time, to_utc
from tidegate.mysql.values import (
    Bits,
    Context,
    Named,
    SqlValue,
    SqlWarning,
    from_column,
    text_of,
)


class Problem(Enum):
    """Problems of a conversion: code, SQLSTATE, message, whether an error in every mode, whether only a note."""

    OUT_OF_RANGE = (1264, "22003", "Out of range value for column '{column}' at row {row}", False, False)
    TOO_LONG = (1406, "22001", "Data too long for column '{column}' at row {row}", False, False)
    INCORRECT = (1366, "HY000", "Incorrect {type} value: '{value}' for column '{column}' at row {row}", False, False)
    NO_MOMENT = (1292, "22007", "Incorrect {type} value: '{value}' for column '{column}' at row {row}", False, False)
    TRUNCATED = (1265, "01000", "Data truncated for column '{column}' at row {row}", False, False)
    ROUNDED = (1265, "01000", "Data truncated for column '{column}' at row {row} ", False, True)
    NO_JSON = (3140, "22032", "Invalid JSON text: The document '{value}' of column '{column}' is no JSON", True, False)
    BINARY_JSON = (3144, "22032", "Cannot create a JSON value from a string with CHARACTER SET 'binary'.", True, False)
    NO_VECTOR = (1105, "HY000", "Invalid vector text: {value}", True, False)
    DIMENSIONS = (1105, "HY000", "vector of '{value}' does not fit the dimensions of column '{column}'", True, False)

    def __init__(self, code: int, sqlstate: str, text: str, always: bool, note: bool) -> None:  # noqa: FBT001
        self.code, self.sqlstate, self.text, self.always, self.note = code, sqlstate, text, always, note


class Converted(NamedTuple):
    """The value that the column would store, and the problem of the conversion, if any."""

    value: KvValue
    problem: Problem | None = None


_WHOLE: Final = re.compile(r"\s*+[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?\s*+", re.ASCII)
_YEAR_LEAST, _YEAR_GREATEST = 1901, 2155
_FOUR: Final = len("0000")


def number_of(value: SqlValue, kind: ColumnType) -> tuple[Number, Problem | None]:
    """Return the number that a column of that type reads in a value; INCORRECT when part of the value is ignored."""
    match value:
        case Named():
            return value.number, None
        case str():
            return numeric_prefix(value), None if _WHOLE.fullmatch(value) else Problem.INCORRECT
        case Bits():
            return int.from_bytes(value[-8:], "big"), None
        case bytes():
            return number_of(value.decode("latin-1"), kind)
        case bool() | int() if not isinstance(value, Duration):
            return int(value), None
        case Decimal() | float():
            return value, None
        case Time() | Duration():
            fsp = 0 if kind.code in INTEGERS and not kind.unsigned else _FSP
            if isinstance(value, Time):
                return moment_number(round_moment(value, fsp), ColumnType(T.DATETIME, decimal=fsp)), None
            return span_number(round_span(int(value) // 1000, fsp), fsp), None
        case JsonDatum():
            return _json_number(value, kind)
    return 0, Problem.INCORRECT


def _json_number(value: JsonDatum, kind: ColumnType) -> tuple[Number, Problem | None]:
    document = value.document
    if isinstance(document, str):
        return number_of(document, kind)
    if isinstance(document, bool | int | float):
        return document, None
    return 0, Problem.INCORRECT


def _integer(value: SqlValue, kind: ColumnType) -> Converted:
    number, problem = number_of(value, kind)
    whole = to_integer(number)
    least, greatest = integer_bounds(kind)
    kept = min(max(whole, least), greatest)
    if kept != whole:
        problem = Problem.OUT_OF_RANGE
    return Converted(Unsigned(kept) if kind.unsigned else int(kept), problem)


def _bit(value: SqlValue, kind: ColumnType) -> Converted:
    greatest = (1 << max(kind.flen, 1)) - 1
    if isinstance(value, str | bytes) and not isinstance(value, Named):
        whole, problem = int.from_bytes(value.encode() if isinstance(value, str) else value, "big"), None
    else:
        number, problem = number_of(value, kind)
        whole = to_integer(number)
        if whole < 0:
            whole = whole & (1 << 64) - 1 if isinstance(number, int) else 0
            problem = Problem.OUT_OF_RANGE
    if whole > greatest:
        return Converted(Unsigned(greatest), Problem.TOO_LONG)
    return Converted(Unsigned(whole), problem)


def _year(value: SqlValue, kind: ColumnType) -> Converted:
    if isinstance(value, Time):
        return _full_year(value.year, None)
    number, problem = number_of(value, kind)
    year = to_integer(number)
    text = value.strip() if isinstance(value, str) else ""
    if year == 0 and text and len(text) != _FOUR and problem is None:
        return Converted(2000)
    return _full_year(year, problem)


def _full_year(year: int, problem: Problem | None) -> Converted:
    if year == 0:
        return Converted(0, problem)
    full = full_year(year)
    kept = 0 if full < 0 else min(max(full, _YEAR_LEAST), _YEAR_GREATEST)
    return Converted(kept, problem if kept == full else Problem.OUT_OF_RANGE)


def _float(value: SqlValue, kind: ColumnType) -> Converted:
    number, problem = number_of(value, kind)
    kept = float_writer(kind)(number)
    if _beyond(number, kind):
        problem = Problem.OUT_OF_RANGE
    return Converted(kept, problem)


def _beyond(number: Number, kind: ColumnType) -> bool:
    value = to_float(number)
    limit = MAX_FLOAT32 if kind.code is T.FLOAT else MAX_FLOAT64
    if kind.flen >= 0 and kind.decimal >= 0:
        limit = min(limit, 10.0 ** (kind.flen - kind.decimal) - 10.0**-kind.decimal)
        value = round_at(value, kind.decimal)
    huge = isinstance(number, Decimal) and abs(number) > Decimal(MAX_FLOAT64)
    return huge or abs(value) > limit or (kind.unsigned and value < 0)


def _decimal(value: SqlValue, kind: ColumnType) -> Converted:
    number, problem = number_of(value, kind)
    kept = Decimal(decimal_writer(kind)(number))
    exact = exact_number(number)
    step = Decimal(1).scaleb(-max(kind.decimal, 0))
    if (kind.unsigned and exact < 0) or abs(exact - kept) >= step:
        problem = Problem.OUT_OF_RANGE
    elif kept != exact and problem is None and not isinstance(number, float):
        problem = Problem.ROUNDED
    return Converted(kept, problem)


_NUMBERS: Final[Mapping[Family, Callable[[SqlValue, ColumnType], Converted]]] = {
    Family.INT: _integer,
    Family.BIT: _bit,
    Family.YEAR: _year,
    Family.FLOAT: _float,
    Family.DECIMAL: _decimal,
}
"""Conversions to numbers."""


_FSP: Final = 6
_ANY_BYTES: Final = frozenset({"latin1"})


def plain_text(value: SqlValue) -> str | bytes:
    """Return the printed text of a value; bytes stay bytes."""
    match value:
        case None:
            return ""
        case Time():
            clock = value[3:] != (0, 0, 0, 0)
            return render_time(value, _FSP if value.microsecond else 0) if clock else render_date(value)
        case Duration():
            return render_duration(value, _FSP if value % 10**9 else 0)
    text = text_of(value, DOUBLE)
    assert text is not None, value
    return text


def to_text(value: SqlValue, kind: ColumnType) -> Converted:
    """Return the value as a string column stores it.

        CHAR(3)      'abcd' -> 'abc' TOO_LONG     'ab  ' -> 'ab'        trailing blanks are dropped silently
        VARCHAR(3)   'abcd' -> 'abc' TOO_LONG     'abc  ' -> 'abc'      cut blanks are a note
        BINARY(3)    'a' -> 61 00 00
        TEXT, BLOB   limited in bytes, cut between characters
        ascii        'é' -> '?' INCORRECT         utf8*: bytes that are no UTF-8 likewise; latin1 takes any bytes

    Without a problem nothing is lost.
    """
    plain = plain_text(value)
    if kind.charset == "binary":
        return _bytes(plain if isinstance(plain, bytes) else _encoded(plain), kind)
    text, problem = _valid(plain, kind.charset)
    if isinstance(text, bytes):
        return Converted(text[: capacity(kind)], None if len(text) <= capacity(kind) else Problem.TOO_LONG)
    return _chars(text, kind, problem)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _bytes(data: bytes, kind: ColumnType) -> Converted:
    limit = capacity(kind)
    kept = data[:limit]
    if kind.code is T.STRING:
        kept = kept.ljust(limit, b"\0")
    return Converted(kept, Problem.TOO_LONG if len(data) > limit else None)


def _valid(plain: str | bytes, charset: str) -> tuple[str | bytes, Problem | None]:
    """Return the text with a question mark for each character that the charset lacks."""
    if isinstance(plain, str) and (charset in {"utf8mb4", "utf8", ""} or plain.isascii()):
        four_bytes = charset == "utf8" and any(ord(char) > 0xFFFF for char in plain)
        if not four_bytes and not any(0xDC80 <= ord(char) <= 0xDCFF for char in plain):
            return plain, None
    data = plain if isinstance(plain, bytes) else _encoded(plain)
    if charset in _ANY_BYTES:
        try:
            return data.decode("utf-8"), None
        except UnicodeDecodeError:
            return data, None
    codec = "ascii" if charset == "ascii" else CODECS.get(charset, "utf-8") if isinstance(plain, bytes) else "utf-8"
    try:
        text = data.decode(codec)
        if charset in CODECS:
            text.encode(CODECS[charset])
        if charset != "utf8" or all(ord(char) <= 0xFFFF for char in text):
            return text, None
    except UnicodeError:
        text = data.decode(codec, "replace").replace("\ufffd", "?")
    return "".join("?" if charset == "utf8" and ord(char) > 0xFFFF else char for char in text), Problem.INCORRECT


def _chars(text: str, kind: ColumnType, problem: Problem | None) -> Converted:
    limit = capacity(kind)
    if kind.code in BLOB_LIMITS:
        data = _encoded(text)
        if len(data) <= limit:
            return Converted(data, problem)
        return Converted(_encoded(data[:limit].decode("utf-8", "ignore")), Problem.TOO_LONG)
    if len(text) > limit:
        blanks = not text[limit:].strip(" ")
        problem = (problem if kind.code is T.STRING else Problem.ROUNDED) if blanks else Problem.TOO_LONG
        text = text[:limit]
    return Converted(_encoded(text.rstrip(" ") if kind.code is T.STRING else text), problem)


def _name_key(collation: str, name: str) -> bytes:
    data = _encoded(name)
    try:
        return sort_key(collation, data)
    except EncodeError:
        return data


def _numbered(names: tuple[str, ...], collation: str) -> Mapping[bytes, int]:
    return {_name_key(collation, name): index for index, name in reversed(list(enumerate(names)))}


def to_enum(value: SqlValue, kind: ColumnType, collation: str) -> Converted:
    """Return the index of an ENUM name, from 1; 0 with a problem for an unknown name.

    With names a and b: 'b' -> 2, 2 -> 2, and '2' -> 2, as no name is '2'."""
    names = kind.elems or ()
    if isinstance(value, int | float | Decimal) and not isinstance(value, Duration):
        index = int(value)
        return _index(index, len(names))
    if isinstance(value, Named) and value in names:
        return Converted(Unsigned(names.index(value) + 1))
    text = _decoded(plain_text(value))
    position = _numbered(names, collation).get(_name_key(collation, text))
    if position is not None:
        return Converted(Unsigned(position + 1))
    return _index(int(text), len(names)) if all_digits(text) and len(text) < 6 else _index(0, 0)


def _decoded(plain: str | bytes) -> str:
    return plain if isinstance(plain, str) else plain.decode("utf-8", "replace")


def _index(index: int, count: int) -> Converted:
    return Converted(Unsigned(index)) if 1 <= index <= count else Converted(Unsigned(0), Problem.TRUNCATED)


def to_set(value: SqlValue, kind: ColumnType, collation: str) -> Converted:
    """Return the bit mask of SET names; unknown names are left out, with a problem.

    With names x, y and z: 'x,z' -> 101b, 5 -> 101b."""
    names = kind.elems or ()
    everything = (1 << len(names)) - 1
    if isinstance(value, int | float | Decimal) and not isinstance(value, Duration):
        return _mask(int(value), everything)
    text = _decoded(plain_text(value))
    if not text:
        return Converted(Unsigned(0))
    numbered = _numbered(names, collation)
    bits = [numbered.get(_name_key(collation, part)) for part in text.split(",")]
    if None in bits and all_digits(text) and len(text) <= 20:
        return _mask(int(text), everything)
    mask = 0
    for bit in bits:
        mask |= 0 if bit is None else 1 << bit
    return Converted(Unsigned(mask), Problem.TRUNCATED if None in bits else None)


def _mask(mask: int, everything: int) -> Converted:
    return Converted(Unsigned(mask)) if 0 <= mask <= everything else Converted(Unsigned(0), Problem.TRUNCATED)


_ONLY_ZEROS: Final = re.compile(r"[\s:.T-]*+0[0\s:.T-]*+", re.ASCII)
_LARGEST_CLOCK: Final = 8385959


def to_moment(value: SqlValue, kind: ColumnType, context: Context) -> Converted:
    """Return the value as a DATE, DATETIME or TIMESTAMP column stores it; a TIMESTAMP in UTC."""
    read = _read(value, fsp_of(kind), context)
    if read is None:
        return Converted(ZERO, Problem.NO_MOMENT)
    moment = Time(*read[:3]) if kind.code is T.DATE else round_moment(read, fsp_of(kind))
    if moment == ZERO:
        return Converted(ZERO, Problem.NO_MOMENT if "NO_ZERO_DATE" in context.sql_mode else None)
    if not (moment.month and moment.day) and "NO_ZERO_IN_DATE" in context.sql_mode:
        return Converted(ZERO, Problem.NO_MOMENT)
    if kind.code is T.TIMESTAMP:
        valid = valid_timestamp(moment, context.zone)
        problem = None if valid == moment else Problem.NO_MOMENT
        return Converted(ZERO if valid == ZERO else to_utc(valid, context.zone), problem)
    return Converted(moment)


def _read(value: SqlValue, fsp: int, context: Context) -> Time | None:
    any_day = "ALLOW_INVALID_DATES" in context.sql_mode
    match value:
        case Time():
            return value
        case Duration():
            now = context.now.astimezone(context.zone)
            return shift(Time(now.year, now.month, now.day), timedelta(microseconds=int(value) // 1000))
        case int():
            moment = parse_moment_number(int(value), any_day=any_day)
            return moment if moment != ZERO or value == 0 else None
        case Decimal() | float():
            return _parsed(f"{value:f}", fsp, context.zone, any_day=any_day)
        case JsonDatum(document=str(text)):
            return _parsed(text, fsp, context.zone, any_day=any_day)
    return _parsed(_decoded(plain_text(value)), fsp, context.zone, any_day=any_day)


def _parsed(text: str, fsp: int, zone: tzinfo, *, any_day: bool = False) -> Time | None:
    moment = parse_moment(text, fsp, zone, any_day=any_day)
    return moment if moment != ZERO or _ONLY_ZEROS.fullmatch(text) else None


def to_duration(value: SqlValue, kind: ColumnType, context: Context) -> Converted:
    """Return the value as a TIME column stores it."""
    fsp = fsp_of(kind)
    if isinstance(value, Duration):
        return Converted(Duration(round_span(int(value) // 1000, fsp) * 1000))
    if isinstance(value, Time):
        return Converted(Duration(round_span(span_of_moment(value), fsp) * 1000))
    if isinstance(value, int | Decimal | float):
        number = to_integer(value)
        if number < -_LARGEST_CLOCK:
            return Converted(Duration(0), Problem.NO_MOMENT)
        if _LARGEST_CLOCK < number < 10**10:
            return Converted(Duration(SPAN_LIMIT * 1000), Problem.NO_MOMENT)
    shown = value.document if isinstance(value, JsonDatum) and isinstance(value.document, str) else value
    text = _decoded(plain_text(shown))
    span = parse_span(text, fsp)
    if span is not None:
        beyond = abs(span) == SPAN_LIMIT and not text.strip().lstrip("-").startswith("838")
        return Converted(Duration(span * 1000), Problem.NO_MOMENT if beyond else None)
    moment = _parsed(text, _FSP, context.zone)
    if moment is None:
        return Converted(Duration(0), Problem.NO_MOMENT)
    return Converted(Duration(round_span(span_of_moment(moment), fsp) * 1000))


def fitted(value: SqlValue, kind: ColumnType, target: ColumnType) -> SqlValue:
    """Return a value of a statement, of type `kind`, in the form that its assignment to `target` reads.

        value           of type       into text                into a number     into JSON
        Time            DATE          2024-01-31               20240131          a date
                        DATETIME(3)   2024-01-31 10:20:30.500  20240131102030.5  a date and time
        Duration        TIME(1)       10:20:30.5               102030.5          a time span
        float           FLOAT         0.1, not 0.10000000149   the double        the double
        int             INT(4) ZEROFILL, YEAR   0007, 0000     itself            itself

    Other values stay as they are.
    """
    if isinstance(value, Time | Duration):
        if target.code in STRINGS:
            return text_of(value, kind)
        if target.code is T.JSON:
            return JsonDatum(as_member(value, kind))
        family = TYPES[target.code].family
        if isinstance(value, Time) and kind.code in DATES and family in _NUMBERS and family is not Family.YEAR:
            return (value.year * 100 + value.month) * 100 + value.day
        return value
    if isinstance(value, float):
        text = text_of(value, kind)
        return text if target.code in STRINGS else Decimal(str(text)) if target.code is T.TIME else value
    if isinstance(value, int) and not isinstance(value, bool) and target.code in STRINGS:
        return text_of(value, kind)
    return value


def recast(value: KvValue, kind: ColumnType, target: ColumnType, zone: tzinfo) -> SqlValue:
    """Return a stored value of type `kind` in the form that its assignment to the column's new type reads.

    As `fitted`, but integers have no leading zeros, BIT is its number, and binary strings are read as text."""
    running = from_column(kind, value, zone)
    if isinstance(running, bytes) and target.code is T.JSON:
        return _document(running, kind)
    if isinstance(running, str) and kind.code in STRINGS and target.code in STRINGS and target.charset == "binary":
        return encode_text(running, kind.charset)
    if kind.code is T.BIT and isinstance(running, bytes):
        number = Unsigned(int.from_bytes(running, "big"))
        return str(int(number)) if target.code in STRINGS else number
    return running if isinstance(running, int) and not isinstance(running, Duration) else fitted(running, kind, target)


def _document(data: bytes, kind: ColumnType) -> SqlValue:
    """Read a binary string as the text of a document, BIT as a string inside one."""
    text = decode_bytes(data, "utf8mb4")
    return JsonDatum(text) if kind.code is T.BIT else text


_LONGEST_SHOWN: Final = 128


@dataclass(frozen=True, slots=True)
class Target:
    """The column of an assignment: its name, type, collation and nullability."""

    name: str
    type: ColumnType
    collation: str = "utf8mb4_bin"
    not_null: bool = False


def assign(value: SqlValue, target: Target, context: Context, row_number: int = 1, *, lenient: bool = False) -> KvValue:
    """Return the stored value of the column; SqlRefused where MySQL refuses, else at worst a warning in `context`.

    NULL stays NULL: `not_null` refuses it once the row is complete."""
    if value is None:
        return None
    converted = convert(value, target, context)
    if converted.problem is not None:
        report(converted.problem, value, target, context, row_number, lenient=lenient)
    return converted.value


def convert(value: SqlValue, target: Target, context: Context) -> Converted:
    """Return the value that the column would store, and the problem of the conversion; raises nothing."""
    if value is None:
        return Converted(None)
    family = TYPES[target.type.code].family
    if family in _NUMBERS:
        return _NUMBERS[family](value, target.type)
    return _OTHERS[family](value, target, context)


def report(
    problem: Problem, value: SqlValue, target: Target, context: Context, row_number: int, *, lenient: bool = False
) -> None:
    """Raise SqlRefused for a problem in strict mode, else add a warning or note to `context`."""
    shown = plain_text(value)
    text = shown if isinstance(shown, str) else "".join(f"\\x{byte:02X}" if byte > 126 else chr(byte) for byte in shown)
    message = problem.text.format(
        column=target.name,
        row=row_number,
        value=text[:_LONGEST_SHOWN],
        type="string" if target.type.code in STRINGS else sql_name(target.type.code),
    ).rstrip()
    if problem.note:
        context.warnings.append(SqlWarning("Note", problem.code, message))
    elif problem.always or (context.strict and not lenient):
        raise SqlRefused(problem.code, message, problem.sqlstate)
    else:
        context.warn(problem.code, message)


def not_null(target: Target, context: Context, *, lenient: bool) -> KvValue:
    """Return the value that a NOT NULL column stores for NULL, with a warning; SqlRefused 1048 unless `lenient`."""
    message = f"Column '{target.name}' cannot be null"
    if not lenient:
        raise SqlRefused(1048, message, "23000")
    context.warn(1048, message)
    return zero_of(target.type)


def zero_of(kind: ColumnType) -> KvValue:
    """Return the zero value of a type: 0, '', the zero date, the first name of an ENUM."""
    if kind.code in STRINGS:
        return b"\0" * kind.flen if kind.code is T.STRING and kind.charset == "binary" and kind.flen > 0 else b""
    family = TYPES[kind.code].family
    return _NUMBERS[family](0, kind).value if family in _NUMBERS else _ZEROS[family]


_ZEROS: Final[Mapping[Family, KvValue]] = {
    Family.MOMENT: ZERO,
    Family.SPAN: Duration(0),
    Family.ENUM: Unsigned(1),
    Family.SET: Unsigned(0),
    Family.JSON: JsonDatum(None),
    Family.VECTOR: Vector(()),
}


_DATE_CODE, _DATETIME_CODE = 0x0E, 0x0F


def _json(value: SqlValue, target: Target, _context: Context) -> Converted:
    match value:
        case JsonDatum():
            return Converted(value)
        case bytes():
            return Converted(None, Problem.BINARY_JSON)
        case str():
            try:
                return Converted(parse_value(target.type, value, UTC))
            except EncodeError:
                return Converted(None, Problem.NO_JSON)
        case Time():
            return Converted(JsonDatum(JsonTime(_DATETIME_CODE if any(value[3:]) else _DATE_CODE, value)))
        case Duration():
            return Converted(JsonDatum(JsonDuration(int(value), 6)))
        case Decimal():
            return Converted(JsonDatum(float(value)))
        case Vector():
            return Converted(JsonDatum(list[JsonValue](value)))
    document: JsonValue = value
    return Converted(JsonDatum(document))


def _vector(value: SqlValue, target: Target, _context: Context) -> Converted:
    vector = value if isinstance(value, Vector) else None
    if vector is None:
        try:
            parsed = parse_value(target.type, value if isinstance(value, str) else "", UTC)
        except EncodeError:
            return Converted(None, Problem.NO_VECTOR)
        assert isinstance(parsed, Vector), parsed
        vector = parsed
    fits = target.type.flen < 0 or len(vector) == target.type.flen
    return Converted(vector, None if fits else Problem.DIMENSIONS)


_OTHERS: Final[Mapping[Family, Callable[[SqlValue, Target, Context], Converted]]] = {
    Family.TEXT: lambda value, target, _context: to_text(value, target.type),
    Family.ENUM: lambda value, target, _context: to_enum(value, target.type, target.collation),
    Family.SET: lambda value, target, _context: to_set(value, target.type, target.collation),
    Family.MOMENT: lambda value, target, context: to_moment(value, target.type, context),
    Family.SPAN: lambda value, target, context: to_duration(value, target.type, context),
    Family.JSON: _json,
    Family.VECTOR: _vector,
}
