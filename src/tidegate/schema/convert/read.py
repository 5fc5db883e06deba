"""Type families, and how a stored value of each family reads as a number, as text or as JSON.

    family    codes                              value   as number            as text
    INT       TINY .. LONGLONG                   int     itself               digits
    BIT       BIT                                int     itself               digits (not its bytes)
    YEAR      YEAR                               int     itself               digits
    FLOAT     FLOAT, DOUBLE                      float   approximate          shortest digits, no exponent
    DECIMAL   DECIMAL                            str     exact                itself, padded to the scale
    TEXT      CHAR, VARCHAR, TEXT                str     its numeric prefix   itself
    BINARY    BINARY, VARBINARY, BLOB            bytes   its numeric prefix   in the character set
    MOMENT    DATE, DATETIME, TIMESTAMP          str     20200131235959.9     itself
    SPAN      TIME                               str     102030.5             itself
    JSON      JSON                               str     the scalar's         itself
    ENUM      ENUM                               str     index                name
    SET       SET                                str     bit mask             names
    VECTOR    VECTOR                             str     -                    itself

Source: TiDB's types package (Datum.ConvertTo and its parts).
"""

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Final

from tidegate.model.errors import SchemaError, UnsupportedError
from tidegate.model.event import Value
from tidegate.model.mysql import STRINGS, MysqlType
from tidegate.model.table import ColumnType
from tidegate.schema.convert.json import Json, parse_json, quote_json, render_json
from tidegate.schema.convert.number import Number, float_text, numeric_prefix
from tidegate.schema.convert.span import read_span, render_span, round_span, span_number
from tidegate.schema.convert.text import decode_bytes, enum_index, set_mask
from tidegate.schema.convert.time import fsp_of, moment_number, read_moment, round_moment

__all__ = [
    "Family",
    "elems_of",
    "family_of",
    "int_value",
    "json_reader",
    "json_text",
    "number_reader",
    "text_reader",
    "text_value",
    "type_name",
]


class Family(Enum):
    """Types that convert by the same rules."""

    INT = "integer"
    BIT = "BIT"
    YEAR = "YEAR"
    FLOAT = "FLOAT or DOUBLE"
    DECIMAL = "DECIMAL"
    TEXT = "text"
    BINARY = "bytes"
    MOMENT = "date and time"
    SPAN = "TIME"
    JSON = "JSON"
    ENUM = "ENUM"
    SET = "SET"
    VECTOR = "VECTOR"


FAMILIES: Final = {
    MysqlType.TINY: Family.INT,
    MysqlType.SHORT: Family.INT,
    MysqlType.INT24: Family.INT,
    MysqlType.LONG: Family.INT,
    MysqlType.LONGLONG: Family.INT,
    MysqlType.BIT: Family.BIT,
    MysqlType.YEAR: Family.YEAR,
    MysqlType.FLOAT: Family.FLOAT,
    MysqlType.DOUBLE: Family.FLOAT,
    MysqlType.DECIMAL: Family.DECIMAL,
    MysqlType.DECIMAL_OLD: Family.DECIMAL,
    MysqlType.DATE: Family.MOMENT,
    MysqlType.NEWDATE: Family.MOMENT,
    MysqlType.DATETIME: Family.MOMENT,
    MysqlType.TIMESTAMP: Family.MOMENT,
    MysqlType.TIME: Family.SPAN,
    MysqlType.JSON: Family.JSON,
    MysqlType.ENUM: Family.ENUM,
    MysqlType.SET: Family.SET,
    MysqlType.VECTOR: Family.VECTOR,
}


def type_name(kind: ColumnType) -> str:
    """Return a type for error messages: DECIMAL(10,2) UNSIGNED."""
    sizes = [str(size) for size in (kind.flen, kind.decimal) if size >= 0]
    name = MysqlType(kind.code).name
    if kind.code in STRINGS and kind.charset == "binary":
        name += " BINARY"
    return f"{name}{'(' + ','.join(sizes) + ')' if sizes else ''}{' UNSIGNED' if kind.unsigned else ''}"


def family_of(kind: ColumnType) -> Family:
    """Return the family of a type; raises UnsupportedError for GEOMETRY and NULL."""
    if kind.code in STRINGS:
        return Family.BINARY if kind.charset == "binary" else Family.TEXT
    family = FAMILIES.get(kind.code)
    if family is None:
        raise UnsupportedError(f"values of type {type_name(kind)} cannot be converted; leave the table out by a filter")
    return family


def elems_of(kind: ColumnType) -> tuple[str, ...]:
    """Return the names of an ENUM or SET; raises UnsupportedError when the definition is not known."""
    if kind.elems is None:
        raise UnsupportedError(
            f"the names of a {type_name(kind)} column are not known; start from a CREATE TABLE or a schema file"
        )
    return kind.elems


def int_value(value: Value) -> int:
    """Return an integer value; raises SchemaError when it is something else."""
    if isinstance(value, int):
        return value
    raise SchemaError(f"an integer column holds {value!r}; the schema does not belong to this row")


def float_value(value: Value) -> float:
    """Return a float value; raises SchemaError when it is something else."""
    if isinstance(value, int | float):
        return float(value)
    raise SchemaError(f"a FLOAT or DOUBLE column holds {value!r}; the schema does not belong to this row")


def text_value(value: Value) -> str:
    """Return a text value; raises SchemaError when it is something else."""
    if isinstance(value, str):
        return value
    raise SchemaError(f"a column whose values are text holds {value!r}; the schema does not belong to this row")


def decimal_value(value: Value) -> Decimal:
    """Return a DECIMAL value; raises SchemaError when it is something else."""
    try:
        return Decimal(text_value(value))
    except InvalidOperation as error:
        raise SchemaError(f"a DECIMAL column holds {value!r}; the schema does not belong to this row") from error


def byte_value(value: Value) -> bytes:
    """Return a bytes value; raises SchemaError when it is something else."""
    if isinstance(value, bytes):
        return value
    raise SchemaError(f"a binary column holds {value!r}; the schema does not belong to this row")


def number_reader(old: ColumnType, new: ColumnType) -> Callable[[Value], Number]:
    """Return how a value of `old` counts as a number on its way into the number type `new`."""
    match family_of(old):
        case Family.INT | Family.BIT | Family.YEAR:
            return int_value
        case Family.FLOAT:
            return float_value
        case Family.DECIMAL:
            return decimal_value
        case Family.TEXT:
            return lambda value: numeric_prefix(text_value(value))
        case Family.BINARY:
            return lambda value: numeric_prefix(byte_value(value).decode("latin-1"))
        case Family.MOMENT | Family.SPAN:
            return _clock_number(old, rounds_clock=not new.unsigned and family_of(new) in {Family.INT, Family.YEAR})
        case Family.JSON:
            return lambda value: _json_number(parse_json(text_value(value)))
        case Family.ENUM:
            index = enum_index(elems_of(old))
            return lambda value: index(text_value(value))
        case Family.SET:
            mask = set_mask(elems_of(old))
            return lambda value: mask(text_value(value))
        case Family.VECTOR:
            raise UnsupportedError(f"{type_name(old)} has no number")


def _clock_number(old: ColumnType, *, rounds_clock: bool) -> Callable[[Value], Decimal]:
    """TiDB rounds the clock before it makes a signed integer of it (11:59:59.9 -> 120000), but the number before it
    makes an unsigned one (-> 115960)."""
    fsp = fsp_of(old)
    if family_of(old) is Family.SPAN:
        kept = 0 if rounds_clock else fsp
        return lambda value: span_number(round_span(read_span(text_value(value)), kept), kept)
    if rounds_clock:
        whole = ColumnType(old.code)
        return lambda value: moment_number(round_moment(read_moment(text_value(value)), 0), whole)
    return lambda value: moment_number(read_moment(text_value(value)), old)


def _json_number(document: Json) -> Number:
    """A scalar's number; objects, arrays and null count as 0."""
    if isinstance(document, str):
        return numeric_prefix(document)
    if isinstance(document, bool):
        return int(document)
    return document if isinstance(document, int | float) else 0


def text_reader(old: ColumnType, new: ColumnType) -> Callable[[Value], str]:
    """Return how a value of `old` prints on its way into the text type `new`."""
    match family_of(old):
        case Family.INT | Family.BIT | Family.YEAR:
            return lambda value: str(int_value(value))
        case Family.FLOAT:
            single = old.code is MysqlType.FLOAT
            return lambda value: float_text(float_value(value), single=single)
        case Family.BINARY:
            return lambda value: decode_bytes(byte_value(value), new.charset)
        case _:
            return text_value


def json_reader(old: ColumnType) -> Callable[[Value], str]:
    """Return the JSON text that a value of `old` becomes: strings are parsed, clocks become strings with six digits."""
    match family_of(old):
        case Family.INT | Family.YEAR:
            return lambda value: str(int_value(value))
        case Family.FLOAT:
            return lambda value: render_json(float_value(value))
        case Family.DECIMAL:
            return lambda value: render_json(float(decimal_value(value)))
        case Family.TEXT | Family.ENUM | Family.SET | Family.JSON:
            return lambda value: render_json(parse_json(text_value(value)))
        case Family.BINARY:
            return lambda value: render_json(parse_json(decode_bytes(byte_value(value), "utf8mb4")))
        case Family.SPAN:
            return lambda value: quote_json(render_span(read_span(text_value(value)), 6))
        case Family.MOMENT:
            return _clock_json(old)
        case Family.BIT:
            size = (max(old.flen, 1) + 7) // 8
            return lambda value: quote_json(decode_bytes(int_value(value).to_bytes(size, "big"), "utf8mb4"))
        case Family.VECTOR:
            return text_value


def _clock_json(old: ColumnType) -> Callable[[Value], str]:
    if old.code is MysqlType.DATE:
        return lambda value: quote_json(text_value(value))

    def write(value: Value) -> str:
        text = text_value(value)
        whole, _, fraction = text.partition(".")
        return quote_json(f"{whole}.{fraction:0<6}")

    return write


def json_text(value: Value) -> str:
    """Return a JSON value as other types read it: strings without their quotes."""
    text = text_value(value)
    document = parse_json(text)
    return document if isinstance(document, str) else text
