"""The text of `mysqlType`, and how the strings of `data` are read with it.

    int   int(11)   int(10) unsigned zerofill   decimal(10, 4)   enum('a','b)')   varchar(16)
    ^^^ name        ^^ parameters               (both spellings)  parameters may hold anything

    name                                       value
    tinyint smallint mediumint int bigint      int; BOOL arrives as tinyint
    bit year enum set                          int: number, year, index, mask
    float, double                              float
    any name with "binary" or "blob" in it     bytes: the code points U+0000 to U+00FF are the bytes
    all others                                 str, names that this table does not know included

An unknown name keeps its text and has the type VARCHAR: a type that is newer than this table loses no rows.
Official Canal sends ENUM and SET as names; with `legacy` those become numbers where mysqlType lists the elements, and
stay text where it does not.

Source: Canal-JSON document, "MySQL Type field" and "Binary and Blob types"; recordings.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import msgspec

from tidegate.codec.kept import kept, width
from tidegate.codec.values import INT_RANGES, double, float32, integer_range
from tidegate.model.errors import DecodeError
from tidegate.model.event import Value
from tidegate.model.mysql import STRINGS, MysqlType, sql_name

CODEC: Final = "canal-json"

Read: TypeAlias = Callable[[str], Value]

_OLD: Final = frozenset({MysqlType.DECIMAL_OLD, MysqlType.NEWDATE, MysqlType.NULL})
NAMES: Final[dict[str, MysqlType]] = {
    **{sql_name(code): code for code in MysqlType if code not in _OLD},
    **{sql_name(code, binary=True): code for code in STRINGS},
    "bool": MysqlType.TINY,
    "boolean": MysqlType.TINY,
    "integer": MysqlType.LONG,
    "real": MysqlType.DOUBLE,
    "numeric": MysqlType.DECIMAL,
}
"""The type code of each name; text and binary kinds share codes, as they do in TiDB."""

SET_MAX: Final = 64
"""Names of a SET: its value has a bit for each."""

_NAME: Final = re.compile(r"\s*([A-Za-z_]+)")
_INTEGER: Final = re.compile(r"-?[0-9]{1,30}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{0,1200})?(?:[eE][-+]?[0-9]{1,4})?")
_ELEMENT: Final = re.compile(r"'((?:[^'\\]|''|\\.)*+)('?)", re.DOTALL)
"""An element and its closing quote; what has none is matched too, so that no quote is looked at twice."""
_ESCAPE: Final = re.compile(r"''|\\(.)", re.DOTALL)


class ColumnKind(msgspec.Struct, frozen=True):
    """What a mysqlType says: type code, sign, whether the text is bytes, and the reader of non-null values."""

    code: MysqlType
    unsigned: bool
    binary: bool
    read: Read


@kept(lambda mysql_type, _legacy: width([mysql_type, mysql_type]))
def kind_of(mysql_type: str, legacy: bool) -> ColumnKind:  # noqa: FBT001 - by position, as `kept` wants it
    """Return the kind of column that `mysql_type` describes."""
    found = _NAME.match(mysql_type)
    name = found[1].lower() if found else ""
    code = NAMES.get(name, MysqlType.VARCHAR)
    unsigned = "unsigned" in mysql_type.rpartition(")")[2].lower()
    binary = "binary" in name or "blob" in name
    return ColumnKind(
        code, unsigned, binary, _reader(code, mysql_type, unsigned=unsigned, binary=binary, legacy=legacy)
    )


def _reader(code: MysqlType, mysql_type: str, *, unsigned: bool, binary: bool, legacy: bool) -> Read:
    if binary:
        return _latin1
    if legacy and code in {MysqlType.ENUM, MysqlType.SET}:
        return partial(_named, code, _numbered(_elements(mysql_type)))
    if code in INT_RANGES:
        return partial(_integer, *integer_range(code, unsigned=unsigned))
    return _READERS.get(code, str)


def _integer(low: int, high: int, text: str) -> Value:
    if _INTEGER.fullmatch(text):
        number = int(text)
        if low <= number <= high:
            return number
    raise DecodeError(f"{text!a:.60} is not an integer from {low} to {high}", CODEC, 0)


def _double(text: str) -> float:
    if _NUMBER.fullmatch(text):
        return double(float(text), CODEC)
    raise DecodeError(f"{text!a:.60} is not a number", CODEC, 0)


def _float(text: str) -> Value:
    return float32(_double(text), CODEC)


def _latin1(text: str) -> Value:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError as error:
        raise DecodeError(f"a binary value with the code point U+{ord(text[error.start]):04X}", CODEC, 0) from error


def _named(code: MysqlType, elements: dict[str, int], text: str) -> Value:
    """Official Canal's ENUM or SET: a number, or names."""
    if _INTEGER.fullmatch(text) and text not in elements:
        return _integer(*integer_range(code, unsigned=True), text)
    if code is MysqlType.ENUM:
        return elements[text] + 1 if text in elements else text
    names = set(text.split(",")) if text else set[str]()
    known = len(names) <= SET_MAX and all(elements.get(name, SET_MAX) < SET_MAX for name in names)
    return sum(1 << elements[name] for name in names) if known else text


def _numbered(elements: tuple[str, ...]) -> dict[str, int]:
    """The first place of each name."""
    return {name: len(elements) - 1 - back for back, name in enumerate(reversed(elements))}


def _elements(mysql_type: str) -> tuple[str, ...]:
    """The names of an ENUM or SET as SQL strings; () when none are given."""
    quoted = [text for text, end in _ELEMENT.findall(mysql_type) if end]
    return tuple(_ESCAPE.sub(lambda escape: escape[1] or "'", text) for text in quoted)


_READERS: Final[dict[MysqlType, Read]] = {MysqlType.FLOAT: _float, MysqlType.DOUBLE: _double}
"""Readers of the types that are neither integers nor text."""
