"""Column descriptions of Open Protocol, and how the value of each is read.

    {"t": type code, "h": true if handle, "f": flags, "v": value}

    t                       v                                              value
    1 2 3 8 9 13 16 247 248 number                                         int
    4, 5                    number                                         float
    7 10 11 12 14 245 246 225  text                                        str
    15 253 254              text; quoted by Go's rules when f has BINARY   str, or bytes
    249 250 251 252         base64, TEXT too                               str; bytes when f has BINARY or is absent
    any other               any scalar                                     as it is

Rows of a table repeat the same descriptions, so those are checked and turned into fields once per shape: `layout_of`
remembers the last ones.

Source: Open Protocol document, "Column Type Code" and "Bit flags of columns"; recordings.
"""

import binascii
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final, TypeAlias

import msgspec

from tidegate.codec.go.quote import unquote
from tidegate.codec.kept import kept, width
from tidegate.codec.values import INT_RANGES, ColumnForm, Form, check_columns, double, float32, integer_range
from tidegate.model.errors import DecodeError
from tidegate.model.event import Field, Value
from tidegate.model.mysql import BLOBS, CHARS, FLOATS, PRINTED_TYPES, ColumnFlag, MysqlType

CODEC: Final = "open-protocol"

Read: TypeAlias = Callable[[object], Value]
Shape: TypeAlias = tuple[tuple[str, int, int | None, bool], ...]
"""(name, type, flag, handle) of each column, in message order."""


_PRINTED: Final = PRINTED_TYPES | {MysqlType.DECIMAL_OLD, MysqlType.NEWDATE, MysqlType.JSON}


class OpenColumn(msgspec.Struct, gc=False):
    """One column of an image as the wire has it."""

    t: int
    v: int | float | str | None = None
    f: int | None = None
    h: bool = False


class WireLayout(msgspec.Struct, frozen=True):
    """A shape, made ready: its fields and the reader of each column's values."""

    fields: tuple[Field, ...]
    reads: tuple[Read, ...]


def shape_of(columns: dict[str, OpenColumn]) -> Shape:
    """Return what `layout_of` knows rows by."""
    return tuple([(name, column.t, column.f, column.h) for name, column in columns.items()])


@kept(lambda shape, _legacy: width(column[0] for column in shape))
def layout_of(shape: Shape, legacy: bool) -> WireLayout:  # noqa: FBT001 - by position, as `kept` wants it
    """Fields and readers of a shape; DecodeError for columns, a type code or a flag that cannot be."""
    check_columns([column[0] for column in shape], CODEC)
    fields = tuple(_field(*column) for column in shape)
    return WireLayout(fields, tuple(_reader(field, legacy=legacy) for field in fields))


def _field(name: str, code: int, flag: int | None, handle: bool) -> Field:  # noqa: FBT001 - a row of Shape
    if not 0 <= code <= 0xFF:
        raise DecodeError(f"column {name!r} has type code {code}", CODEC, 0)
    if flag is None:
        return Field(name, code, handle=handle)
    if not 0 <= flag < 1 << 31:
        raise DecodeError(f"column {name!r} has flag {flag}", CODEC, 0)
    unsigned, binary = bool(flag & ColumnFlag.UNSIGNED), bool(flag & ColumnFlag.BINARY)
    return Field(name, code, flag, unsigned=unsigned, binary=binary, handle=handle)


@lru_cache(maxsize=4096)
def form_of(field: Field, *, legacy: bool) -> ColumnForm | None:
    """Return how a column's values stand on the wire; None for types that hold any scalar."""
    if field.type in INT_RANGES:
        return ColumnForm(Form.INTEGER, *integer_range(field.type, unsigned=field.unsigned))
    if field.type in CHARS:
        coded = legacy and field.flag is None
        return ColumnForm(Form.BASE64_TEXT if coded else Form.QUOTED if field.binary else Form.TEXT)
    if field.type in BLOBS:
        return ColumnForm(Form.BASE64 if field.binary or field.flag is None else Form.BASE64_TEXT)
    if field.type in FLOATS:
        return ColumnForm(Form.FLOAT if field.type == MysqlType.FLOAT else Form.DOUBLE)
    return ColumnForm(Form.TEXT) if field.type in _PRINTED else None


def _reader(field: Field, *, legacy: bool) -> Read:
    column = form_of(field, legacy=legacy)
    if column is None:
        return _scalar
    if column.form is Form.INTEGER:
        return partial(_integer, column.low, column.high)
    return _READERS[column.form]


def _integer(low: int, high: int, value: object) -> Value:
    if type(value) is int and low <= value <= high:
        return value
    raise DecodeError(f"{value!r:.60} is not an integer from {low} to {high}", CODEC, 0)


def _float(value: object) -> Value:
    if type(value) is float or type(value) is int:
        return float32(double(value, CODEC), CODEC)
    raise _not_a("number", value)


def _double(value: object) -> Value:
    if type(value) is float or type(value) is int:
        return double(value, CODEC)
    raise _not_a("number", value)


def _text(value: object) -> Value:
    if type(value) is str:
        return value
    raise _not_a("string", value)


def _quoted(value: object) -> Value:
    if type(value) is str:
        return unquote(value, CODEC)
    raise _not_a("string", value)


def _base64(value: object) -> bytes:
    if type(value) is not str:
        raise _not_a("string", value)
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except ValueError as error:
        raise DecodeError(f"not base64: {error}", CODEC, 0) from error


def _base64_text(value: object) -> Value:
    return _base64(value).decode("utf-8", "surrogateescape")


def _scalar(value: object) -> Value:
    """A value of a type that is newer than this table, or of the type NULL."""
    if type(value) is str or (type(value) is int and -(1 << 63) <= value < 1 << 64):
        return value
    if type(value) is float:
        return double(value, CODEC)
    raise _not_a("scalar", value)


def _not_a(kind: str, value: object) -> DecodeError:
    return DecodeError(f"{value!a:.60} is not a {kind}", CODEC, 0)


_READERS: Final[dict[Form, Read]] = {
    Form.FLOAT: _float,
    Form.DOUBLE: _double,
    Form.TEXT: _text,
    Form.QUOTED: _quoted,
    Form.BASE64: _base64,
    Form.BASE64_TEXT: _base64_text,
}
