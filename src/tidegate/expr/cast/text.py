r"""Values as strings of columns: CHAR, VARCHAR, TEXT, their binary kin, ENUM and SET.

    CHAR(3)      'abcd' -> 'abc' TOO_LONG     'ab  ' -> 'ab'        blanks at the end go without a word
    VARCHAR(3)   'abcd' -> 'abc' TOO_LONG     'abc  ' -> 'abc'      cut blanks are a note
    BINARY(3)    'a' -> 61 00 00
    TEXT, BLOB   bounded in bytes, cut between characters
    ascii        'é' -> '?' INCORRECT         utf8*: bytes that are no UTF-8 likewise; latin1 takes any bytes
    ENUM         'b' -> 2, 2 -> 2, '2' -> 2 when no name is so; else 0 TRUNCATED
    SET          'x,z' -> 101b, 5 -> 101b; unknown names TRUNCATED

Names are equal as the column's collation says.

Source: TiDB pkg/types (ProduceStrWithSpecifiedTp, ParseEnum, ParseSet), pkg/table/column.go (validateStringDatum).
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from tidegate.expr.cast.problem import Converted, Problem
from tidegate.model.errors import EncodeError
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import all_digits
from tidegate.model.table import ColumnType
from tidegate.mysql.collation import sort_key
from tidegate.mysql.column_text import column_text
from tidegate.mysql.convert.number import float_text
from tidegate.mysql.convert.text import BLOB_LIMITS, CODECS, capacity
from tidegate.mysql.datum import Duration, JsonDatum, Unsigned, Vector
from tidegate.mysql.json.text import render_json
from tidegate.mysql.packed_time import Time, render_date, render_duration, render_time
from tidegate.mysql.value.kinds import Named, SqlValue

_FSP: Final = 6
_ANY_BYTES: Final = frozenset({"latin1"})


def plain_text(value: SqlValue) -> str | bytes:
    """Return what a value prints as; bytes stay."""
    match value:
        case str() | bytes():
            return value
        case Time():
            clock = value[3:] != (0, 0, 0, 0)
            return render_time(value, _FSP if value.microsecond else 0) if clock else render_date(value)
        case Duration():
            return render_duration(value, _FSP if value % 10**9 else 0)
        case Decimal():
            return format(value, "f")
        case float():
            return float_text(value, single=False)
        case JsonDatum():
            return render_json(value.document)
        case Vector():
            return column_text(ColumnType(T.VECTOR), value)
        case None:
            return ""
    return str(int(value))


def to_text(value: SqlValue, kind: ColumnType) -> Converted:
    """Return the value as a string column keeps it."""
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
    """The text in its charset; what it does not have becomes a question mark."""
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
    return {_name_key(collation, name): at for at, name in reversed(list(enumerate(names)))}


def to_enum(value: SqlValue, kind: ColumnType, collation: str) -> Converted:
    """Return the index of a name, from 1; 0 with a problem for what names nothing."""
    names = kind.elems or ()
    if isinstance(value, int | float | Decimal) and not isinstance(value, Duration):
        index = int(value)
        return _index(index, len(names))
    if isinstance(value, Named) and value in names:
        return Converted(Unsigned(names.index(value) + 1))
    text = _decoded(plain_text(value))
    at = _numbered(names, collation).get(_name_key(collation, text))
    if at is not None:
        return Converted(Unsigned(at + 1))
    return _index(int(text), len(names)) if all_digits(text) and len(text) < 6 else _index(0, 0)


def _decoded(plain: str | bytes) -> str:
    return plain if isinstance(plain, str) else plain.decode("utf-8", "replace")


def _index(index: int, count: int) -> Converted:
    return Converted(Unsigned(index)) if 1 <= index <= count else Converted(Unsigned(0), Problem.TRUNCATED)


def to_set(value: SqlValue, kind: ColumnType, collation: str) -> Converted:
    """Return the mask of names; those that are not known are left out, with a problem."""
    names = kind.elems or ()
    everything = (1 << len(names)) - 1
    if isinstance(value, int | float | Decimal) and not isinstance(value, Duration):
        return _mask(int(value), everything)
    text = _decoded(plain_text(value))
    if not text:
        return Converted(Unsigned(0))
    numbered = _numbered(names, collation)
    places = [numbered.get(_name_key(collation, part)) for part in text.split(",")]
    if None in places and all_digits(text) and len(text) <= 20:
        return _mask(int(text), everything)
    mask = 0
    for place in places:
        mask |= 0 if place is None else 1 << place
    return Converted(Unsigned(mask), Problem.TRUNCATED if None in places else None)


def _mask(mask: int, everything: int) -> Converted:
    return Converted(Unsigned(mask)) if 0 <= mask <= everything else Converted(Unsigned(0), Problem.TRUNCATED)
