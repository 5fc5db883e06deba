"""MySQL columns as Delta columns: which type, and whole columns of values in both directions.

    TINYINT .. BIGINT            byte, short, int, int (MEDIUMINT), long
    the same UNSIGNED            short, int, int, long, decimal(20,0)
    DECIMAL(p<=38, s)            decimal(p,s); wider, or of unknown precision: string
    FLOAT, DOUBLE                float, double
    DATE, DATETIME, TIMESTAMP    date, timestamp_ntz, timestamp (UTC)       with zero-date=string: string
    TIME, JSON, VECTOR           string as TiDB prints it (TIME exceeds a day and may be negative)
    YEAR, BIT(n<64), BIT(64)     short, long, decimal(20,0)
    ENUM, SET                    string: names when the definition is known, else the number as text
    CHAR, VARCHAR, TEXT          string
    BINARY, VARBINARY, BLOB      binary

Values come as texts (engine/change.py), or typed as codecs and mounters make them, and are cast by Arrow, a column at a
time; both give the same.  Neutral values (expr/change.py) are for what a DDL does to stored rows.  Zero
dates ("0000-00-00", a zero year, month or day) have no Delta value: NULL by default, an error or text by policy.

`exact` is for columns of a key, where two values have to stay two: what several values become is refused there.

    zero dates                        NULL, with zero-date=null
    texts that are no UTF-8           U+FFFD
    ENUM 0 beside a name '', numbers  ''
    without a name; SET likewise
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar import as_texts
from tidegate.engine.change import encode_value
from tidegate.model.errors import SinkRefused
from tidegate.model.event import Value
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.conversion import enum_number, set_number

DECIMAL_DIGITS_MAX: Final = 38
WIDE_DIGITS_MAX: Final = 76
"""Digits of Arrow's wide decimals."""
UINT64: Final = "decimal(20,0)"
SIGNED: Final = {T.TINY: "byte", T.SHORT: "short", T.INT24: "integer", T.LONG: "integer", T.LONGLONG: "long"}
UNSIGNED: Final = {T.TINY: "short", T.SHORT: "integer", T.INT24: "integer", T.LONG: "long", T.LONGLONG: UINT64}
DATES: Final = {T.DATE: "date", T.NEWDATE: "date", T.DATETIME: "timestamp_ntz", T.TIMESTAMP: "timestamp"}
TEXTS: Final = frozenset(
    {T.VARCHAR, T.VAR_STRING, T.STRING, T.TINY_BLOB, T.MEDIUM_BLOB, T.LONG_BLOB, T.BLOB, T.GEOMETRY},
)
FIXED: Final = {T.FLOAT: "float", T.DOUBLE: "double", T.YEAR: "short"}
ARROW_TYPES: Final[Mapping[str, pa.DataType]] = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
ZERO_PART: Final = r"^(0000|[0-9]{4}-(00|[0-9]{2}-00))"
"""A year, month or day 0; of those Delta has not even the year."""
NUMBER: Final = re.compile(r"[0-9]{1,20}")
DECIMAL_TYPE: Final = re.compile(r"decimal\((\d+),(\d+)\)")


def delta_type(column: ColumnType, *, inferred: bool = False, zero_date: str = "null") -> str:
    """Return the Delta type of a column, as the schema spells it."""
    code = column.code
    if code in SIGNED:
        return (UNSIGNED if column.unsigned else SIGNED)[code]
    if code in DATES:
        return "string" if zero_date == "string" else DATES[code]
    if code in (T.DECIMAL, T.DECIMAL_OLD):
        return _decimal_type(column, inferred=inferred)
    if code is T.BIT:
        return "long" if 0 < column.flen < 64 or (column.flen < 0 and not inferred) else UINT64
    if code in TEXTS:
        return "binary" if column.charset == "binary" else "string"
    return FIXED.get(code, "string")


def _decimal_type(column: ColumnType, *, inferred: bool) -> str:
    if column.flen <= 0:
        return "string" if inferred else "decimal(10,0)"
    exact = column.decimal <= column.flen <= DECIMAL_DIGITS_MAX
    return f"decimal({column.flen},{max(column.decimal, 0)})" if exact else "string"


def arrow_type(delta: str) -> pa.DataType:
    """Return the Arrow type that a Delta type is read and written as."""
    if match := DECIMAL_TYPE.fullmatch(delta):
        return pa.decimal128(int(match[1]), int(match[2]))
    return ARROW_TYPES[delta]


def is_number(kind: pa.DataType) -> bool:
    """Return True for the types that Arrow casts among each other by value."""
    return any(fits(kind) for fits in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))


def from_image(
    values: Any, column: ColumnType, delta: str, *, time_zone: str, zero_date: str, exact: bool = False
) -> Any:
    """Return a column of an image, texts or typed (codec/columnar/rows.py), as its Delta type.

    Raises pa.ArrowInvalid for a value that the type cannot hold, or not `exact`ly; SinkRefused for a zero date where
    that is an error."""
    target = arrow_type(delta)
    if pa.types.is_integer(values.type) and column.code not in (T.ENUM, T.SET):
        if pa.types.is_integer(target) or delta == UINT64:
            return pc.cast(values, target)
    elif pa.types.is_floating(values.type) and pa.types.is_floating(target):
        return pc.cast(values, target)
    if not pa.types.is_string(values.type):
        values = as_texts(values)
    return from_text(values, column, delta, time_zone=time_zone, zero_date=zero_date, exact=exact)


def from_text(
    texts: pa.Array,
    column: ColumnType,
    delta: str,
    *,
    time_zone: str = "UTC",
    zero_date: str = "null",
    exact: bool = False,
) -> Any:
    """Return a column of texts (binary or UTF-8, null for NULL) as its Delta type. Raises pa.ArrowInvalid for a value
    that the type cannot hold, or not `exact`ly."""
    if delta == "binary":
        return pc.cast(texts, pa.binary())
    strings = _strings(texts, exact=exact)
    if column.code in (T.ENUM, T.SET) and column.elems is not None:
        return _named(strings, column, exact=exact)
    if delta == "string":
        return strings
    if column.code in DATES:
        strings = _without_zero_dates(strings, zero_date, exact=exact)
        if delta == "timestamp":
            naive = pc.cast(strings, pa.timestamp("us"))
            return pc.cast(
                pc.assume_timezone(naive, time_zone, ambiguous="earliest", nonexistent="latest"), arrow_type(delta)
            )
    if delta in {"float", "double"}:
        numbers = pc.cast(strings, pa.float64())
        if not pc.all(pc.is_finite(numbers)).as_py() and pc.count(numbers).as_py():
            raise pa.ArrowInvalid("a number that MySQL does not have")
        return pc.cast(numbers, arrow_type(delta))
    target = arrow_type(delta)
    return _exact(strings, target) if pa.types.is_decimal(target) else pc.cast(strings, target)


def _exact(strings: pa.Array, target: pa.Decimal128Type) -> pa.Array:
    """Texts as exact numbers. Arrow reads one of more digits than its type has as another number."""
    longest = pc.max(pc.binary_length(strings)).as_py() or 0
    if longest > WIDE_DIGITS_MAX:
        raise pa.ArrowInvalid(f"a number of {longest} characters")
    if longest > DECIMAL_DIGITS_MAX:
        strings = pc.cast(strings, pa.decimal256(WIDE_DIGITS_MAX, target.scale))
    return pc.cast(strings, target)


def _strings(texts: pa.Array, *, exact: bool = False) -> pa.Array:
    """UTF-8 text; bytes that are none (newer emitters send them raw) become U+FFFD."""
    try:
        return pc.cast(texts, pa.string())
    except pa.ArrowInvalid:
        if exact:
            raise
        return pa.array(
            [None if text is None else text.decode("utf-8", "replace") for text in texts.to_pylist()], pa.string()
        )


def _without_zero_dates(strings: pa.Array, zero_date: str, *, exact: bool) -> pa.Array:
    zero = pc.match_substring_regex(strings, ZERO_PART)
    if not pc.any(zero).as_py():
        return strings
    if zero_date == "error":
        raise SinkRefused(f"zero date {pc.filter(strings, zero)[0].as_py()!r}: set zero-date=null or zero-date=string")
    if exact:
        raise pa.ArrowInvalid(
            f"zero date {pc.filter(strings, zero)[0].as_py()!r} in the key, where NULL would make one row of several; "
            "set zero-date=string, which keeps dates as text"
        )
    return pc.if_else(zero, pa.scalar(None, pa.string()), strings)


def _named(strings: pa.Array, column: ColumnType, *, exact: bool) -> pa.Array:
    """ENUM indexes and SET masks as names; texts that are no number (official Canal) pass as they are."""
    render, number_of = (enum_name, enum_number) if column.code is T.ENUM else (set_names, set_number)
    elems = column.elems or ()

    def named(text: str) -> str:
        if not NUMBER.fullmatch(text):
            return text
        name = render(int(text), elems)
        if exact and number_of(elems, name) != int(text):
            raise pa.ArrowInvalid(
                f"number {text} of an {column.code.name} in the key, whose name {name!r} is that of another number, too"
            )
        return name

    return _by_distinct(strings, named, pa.string())


def _by_distinct(array: pa.Array, function: Callable[[Any], Any], result: pa.DataType) -> pa.Array:
    """`function` of every non-null value, called once per distinct value."""
    encoded = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    encoded = pc.dictionary_encode(encoded)
    values = pa.array([function(value) for value in encoded.dictionary.to_pylist()], result)
    return pc.take(values, encoded.indices)


def enum_name(index: int, elems: Sequence[str]) -> str:
    """Return the name of a 1-based index; 0 (an invalid value) is ''."""
    return elems[index - 1] if 0 < index <= len(elems) else ""


def set_names(mask: int, elems: Sequence[str]) -> str:
    """Return the names of a bit mask in definition order, joined by commas."""
    return ",".join(name for bit, name in enumerate(elems) if mask >> bit & 1)


def from_neutral(
    values: Sequence[Value], column: ColumnType, delta: str, *, time_zone: str, zero_date: str, exact: bool = False
) -> Any:
    """Return a column of neutral values (ENUM and SET as names) as its Delta type."""
    texts = pa.array([encode_value(value) for value in values], pa.binary())
    if column.code in (T.ENUM, T.SET):
        return _strings(texts)
    return from_text(texts, column, delta, time_zone=time_zone, zero_date=zero_date, exact=exact)


def to_neutral(array: Any, column: ColumnType, *, time_zone: str) -> list[Value]:
    """Return a Delta column as neutral values."""
    return [None if value is None else _neutral(value, column, time_zone) for value in array.to_pylist()]


def _neutral(value: Any, column: ColumnType, time_zone: str) -> Value:
    code = column.code
    if isinstance(value, Decimal):
        return int(value) if code in (T.LONGLONG, T.BIT) else f"{value:f}"
    if code in DATES and not isinstance(value, str):
        return _date_text(value, column, time_zone)
    result: Value = value
    return result


def _date_text(value: Any, column: ColumnType, time_zone: str) -> str:
    if column.code in (T.DATE, T.NEWDATE):
        return str(value.isoformat())
    if column.code is T.TIMESTAMP:
        value = value.astimezone(ZoneInfo(time_zone))
    fsp = max(column.decimal, 0)
    text = f"{value:%H:%M:%S}" + (f".{value.microsecond:06d}"[: fsp + 1] if fsp else "")
    return f"{value.year:04d}-{value.month:02d}-{value.day:02d} {text}"


def map_neutral(
    array: Any,
    old: ColumnType,
    new: ColumnType,
    delta: str,
    convert: Callable[[Value], Value],
    *,
    time_zone: str,
    zero_date: str,
    exact: bool = False,
) -> Any:
    """Return a stored column after `convert`, called once per distinct value."""
    whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    encoded = pc.dictionary_encode(whole)
    converted = [convert(value) for value in to_neutral(encoded.dictionary, old, time_zone=time_zone)]
    values = from_neutral(converted, new, delta, time_zone=time_zone, zero_date=zero_date, exact=exact)
    nulls = from_neutral([convert(None)], new, delta, time_zone=time_zone, zero_date=zero_date)
    return pc.if_else(pc.is_null(encoded.indices), nulls[0], pc.take(values, encoded.indices))
