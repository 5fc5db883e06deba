"""What ALTER TABLE .. MODIFY or CHANGE COLUMN makes of the values already stored.

Rows carry no trace of a column change: whoever keeps a copy has to convert it.  A change is a pair of type families;
its rule joins a reader of the old family with a writer of the new one.

    from / to    INT BIT YEAR FLOAT DECIMAL   TEXT BINARY   MOMENT   SPAN   JSON   ENUM SET
    INT, YEAR     n   n/- n    n     n         t    t        m        s      j      n/-  n/-
    BIT           n   n   n    n     n         t    t        -        -      j      -    -
    FLOAT,DECIMAL n   n   n    n     n         t    t        -        s      j      -    -
    TEXT, BINARY  n   -   n    n     n         t    t        m        s      j      t    t
    MOMENT, SPAN  n   -   n    n     n         t    t        m        s      j      -    -
    JSON          n   -   n    n     n         t    t        m        s      =      -    -
    ENUM, SET     n   n   n    n     n         t    t        -        -      j      t    t

    n through a number, t through text, m through a wall clock, s through a time span, j into a document;
    MOMENT = DATE, DATETIME, TIMESTAMP; SPAN = TIME; "n/-" where INT may and YEAR may not.
    "-": TiDB refuses the statement (checkTypeChangeSupported), so it cannot arrive; VECTOR changes into nothing.

`converter` answers None where the value stays the same (longer VARCHAR, wider INT, appended ENUM names, NULL or NOT
NULL, character set).  ENUM and SET values are names here, not numbers.  NULL stays NULL.
Source: TiDB's Datum.ConvertTo, with which the reorganisation of a column change casts each row; the
`rewrites_values_of` moments of the workload recording.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta, tzinfo
from itertools import product
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidegate.model.errors import ConfigError, UnsupportedError
from tidegate.model.event import Value
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType
from tidegate.model.tso import to_datetime
from tidegate.schema.convert.keep import keeps_values
from tidegate.schema.convert.number import (
    Number,
    bit_writer,
    decimal_writer,
    float_writer,
    integer_writer,
    year_writer,
)
from tidegate.schema.convert.read import (
    Family,
    elems_of,
    family_of,
    int_value,
    json_reader,
    json_text,
    number_reader,
    text_reader,
    text_value,
    type_name,
)
from tidegate.schema.convert.span import SPAN_LIMIT, parse_span, read_span, render_span, round_span
from tidegate.schema.convert.text import (
    byte_writer,
    encode_text,
    enum_name,
    enum_writer,
    set_names,
    set_writer,
    text_writer,
)
from tidegate.schema.convert.time import (
    WallClock,
    fsp_of,
    moment_writer,
    parse_moment,
    parse_moment_number,
    read_moment,
    shift,
    span_of_moment,
)

__all__ = ["Rule", "converter", "zone_of"]

Rule: TypeAlias = Callable[[Value], Value]
"""One stored value in, the value after the change out; None (NULL) stays None."""


@dataclass(frozen=True, slots=True)
class _When:
    """When and where a change runs: TIME becomes DATETIME on that day."""

    zone: tzinfo
    today: WallClock


def zone_of(name: str) -> tzinfo:
    """Return the time zone of that IANA name; raises ConfigError for any other."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ConfigError(f"no such time zone: {name!r}; use an IANA name such as UTC or Asia/Shanghai") from error


def converter(old: ColumnType, new: ColumnType, *, time_zone: str = "UTC", commit_ts: int = 0) -> Rule | None:
    """Return what a column change from `old` to `new` makes of a stored value; None when values stay as they are.

    `time_zone` is the zone of TIMESTAMP values and of the session, `commit_ts` the statement's (its day is the date
    part when TIME becomes DATETIME).  Raises UnsupportedError for the changes that TiDB refuses.
    """
    if keeps_values(old, new):
        return None
    make = _RULES.get((family_of(old), family_of(new)))
    if make is None:
        raise UnsupportedError(
            f"TiDB changes no column from {type_name(old)} to {type_name(new)}, so its stored values have no rule; "
            "check the schema that the statement was read against, or leave the table out by a filter"
        )
    zone = zone_of(time_zone)
    day = to_datetime(commit_ts).astimezone(zone)
    rule = make(old, new, _When(zone, WallClock(day.year, day.month, day.day)))
    return lambda value: None if value is None else rule(value)


def _through_number(old: ColumnType, new: ColumnType, _when: _When) -> Rule:
    source = number_reader(old, new)
    write = _number_writer(new)
    return lambda value: write(source(value))


def _number_writer(new: ColumnType) -> Callable[[Number], Value]:
    match family_of(new):
        case Family.BIT:
            return bit_writer(new)
        case Family.FLOAT:
            return float_writer(new)
        case Family.DECIMAL:
            return decimal_writer(new)
        case _:
            return integer_writer(new)


def _to_year(old: ColumnType, new: ColumnType, _when: _When) -> Rule:
    write = year_writer()
    if family_of(old) is Family.MOMENT:
        return lambda value: write(read_moment(text_value(value)).year)
    source = number_reader(old, new)
    if family_of(old) not in {Family.TEXT, Family.BINARY}:
        return lambda value: write(source(value))
    from_zero = year_writer(keep_zero=False)
    text = text_reader(old, ColumnType(MysqlType.VARCHAR))

    def rule(value: Value) -> Value:
        spelled = text(value)
        number = source(value)
        means_2000 = number == 0 and len(spelled) != len("0000") and spelled.strip().startswith("0")
        return from_zero(number) if means_2000 else write(number)

    return rule


def _to_text(old: ColumnType, new: ColumnType, _when: _When) -> Rule:
    source, write = text_reader(old, new), text_writer(new)
    return lambda value: write(source(value))


def _to_bytes(old: ColumnType, new: ColumnType, _when: _When) -> Rule:
    write = byte_writer(new)
    if family_of(old) is Family.BINARY:
        return lambda value: write(value) if isinstance(value, bytes) else write(text_value(value).encode())
    source = text_reader(old, new)
    charset = old.charset if family_of(old) is Family.TEXT else "utf8mb4"
    return lambda value: write(encode_text(source(value), charset))


def _to_moment(old: ColumnType, new: ColumnType, when: _When) -> Rule:
    write = moment_writer(new, when.zone)
    source = _moment_reader(old, new, when)
    return lambda value: write(source(value))


def _moment_reader(old: ColumnType, new: ColumnType, when: _When) -> Callable[[Value], WallClock]:
    fsp = fsp_of(new)
    match family_of(old):
        case Family.INT | Family.YEAR:
            return lambda value: parse_moment_number(int_value(value))
        case Family.SPAN:
            return lambda value: shift(when.today, timedelta(microseconds=read_span(text_value(value))))
        case Family.JSON:
            return lambda value: parse_moment(json_text(value), fsp, when.zone)
        case Family.MOMENT:
            return lambda value: read_moment(text_value(value))
        case _:
            text = text_reader(old, ColumnType(MysqlType.VARCHAR))
            return lambda value: parse_moment(text(value), fsp, when.zone)


def _to_span(old: ColumnType, new: ColumnType, when: _When) -> Rule:
    fsp = fsp_of(new)
    source = _span_reader(old, fsp, when.zone)
    return lambda value: render_span(round_span(source(value), fsp), fsp)


def _span_reader(old: ColumnType, fsp: int, zone: tzinfo) -> Callable[[Value], int]:
    match family_of(old):
        case Family.MOMENT:
            return lambda value: span_of_moment(read_moment(text_value(value)))
        case Family.SPAN:
            return lambda value: read_span(text_value(value))
        case Family.JSON:
            return lambda value: _span_in(json_text(value), fsp, zone)
        case Family.TEXT | Family.BINARY:
            text = text_reader(old, ColumnType(MysqlType.VARCHAR))
            return lambda value: _span_in(text(value), fsp, zone)
        case _:
            return _span_of_number(old, fsp, zone)


def _span_of_number(old: ColumnType, fsp: int, zone: tzinfo) -> Callable[[Value], int]:
    whole = integer_writer(ColumnType(MysqlType.LONGLONG))
    number, text = number_reader(old, ColumnType(MysqlType.LONGLONG)), text_reader(old, old)

    def read(value: Value) -> int:
        size = whole(number(value))
        if size < -_LARGEST_CLOCK:
            return 0
        if _LARGEST_CLOCK < size < 10**10:
            return SPAN_LIMIT
        return _span_in(text(value), fsp, zone)

    return read


def _span_in(text: str, fsp: int, zone: tzinfo) -> int:
    """The TIME in `text`: a time of its own, or the clock of a date and time; 0 when it is neither."""
    span = parse_span(text, fsp)
    return span_of_moment(parse_moment(text, fsp, zone)) if span is None else span


def _to_json(old: ColumnType, _new: ColumnType, _when: _When) -> Rule:
    return json_reader(old)


def _to_enum(old: ColumnType, new: ColumnType, _when: _When) -> Rule:
    elems = elems_of(new)
    if family_of(old) is Family.INT:
        return lambda value: enum_name(elems, int_value(value))
    source, write = text_reader(old, new), enum_writer(elems)
    return lambda value: write(source(value))


def _to_set(old: ColumnType, new: ColumnType, _when: _When) -> Rule:
    elems = elems_of(new)
    if family_of(old) is Family.INT:
        return lambda value: set_names(elems, max(int_value(value), 0))
    source, write = text_reader(old, new), set_writer(elems)
    return lambda value: write(source(value))


_LARGEST_CLOCK: Final = 8385959
_Make: TypeAlias = Callable[[ColumnType, ColumnType, _When], Rule]
_TARGETS: Final[Mapping[Family, _Make]] = {
    Family.INT: _through_number,
    Family.BIT: _through_number,
    Family.FLOAT: _through_number,
    Family.DECIMAL: _through_number,
    Family.YEAR: _to_year,
    Family.TEXT: _to_text,
    Family.BINARY: _to_bytes,
    Family.MOMENT: _to_moment,
    Family.SPAN: _to_span,
    Family.JSON: _to_json,
    Family.ENUM: _to_enum,
    Family.SET: _to_set,
}
_WORDS: Final = (Family.TEXT, Family.BINARY, Family.JSON)
_CLOCKS: Final = (Family.YEAR, Family.MOMENT, Family.SPAN)
_NAMES: Final = (Family.ENUM, Family.SET)
_FRACTIONS: Final = (Family.DECIMAL, Family.FLOAT)
_REFUSED: Final = frozenset(
    {
        *product((*_CLOCKS, *_WORDS), (Family.BIT,)),
        *product((*_CLOCKS, *_FRACTIONS, Family.JSON, Family.BIT), _NAMES),
        *product((*_NAMES, *_FRACTIONS, Family.BIT), (Family.MOMENT,)),
        *product((*_NAMES, Family.BIT), (Family.SPAN,)),
        *product((Family.VECTOR,), Family),
    }
)
"""TiDB's checkTypeChangeSupported."""
_RULES: Final[Mapping[tuple[Family, Family], _Make]] = {
    (old, new): make for old in Family for new, make in _TARGETS.items() if (old, new) not in _REFUSED
}
