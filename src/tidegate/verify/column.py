"""How the values of a column are asked for, hashed and compared: one form for each group of types.

    types                    asked of a server                               hashed as        compared as
    integers, BIT, YEAR      c + 0                                           digits           int
    DECIMAL                  c                                               text             its digits, no zeros ahead
    FLOAT, DOUBLE            c + 0e0                                         text             the number, of 32 bits
    DATE, DATETIME, TIME ..  c                                               text             text with fsp digits, UTC
    CHAR, TEXT, ENUM, SET    CAST(CONVERT(c USING utf8mb4) AS BINARY)        length, UTF-8    text
    BINARY, BLOB             c                                               length, bytes    bytes
    JSON, VECTOR             CAST(CAST(c AS CHAR) AS BINARY)                 length, UTF-8    the document

Servers print some values in forms of their own (1e15, the order of a document's keys): their hashes differ, so such
rows are compared by meaning.  Equal hashes always mean equal values.

Source: the columns of MySQL, MariaDB and TiDB as information_schema names their types.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Final, TypeAlias

from tidegate.mysql.convert.number import float_text, nearest_single
from tidegate.verify.lake import Plain, is_date

Answer: TypeAlias = str | bytes
_WORD: Final = re.compile(r"[a-z_0-9]+")
_LEAST: Final = -(1 << 63)
_MOST: Final = 1 << 64
"""Between these a document may hold a whole number."""


def _same(value: Plain) -> Plain:
    return value


def _digits(value: Plain) -> bytes:
    return str(value).encode()


def _text(answer: Answer) -> str:
    return answer if isinstance(answer, str) else answer.decode("utf-8", "backslashreplace")


def _octets(answer: Answer) -> bytes:
    return answer if isinstance(answer, bytes) else answer.encode()


def _hashed(value: Plain) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


def _real(value: Plain) -> bytes:
    assert isinstance(value, float), value
    return float_text(value, single=False).encode()


def _single(value: Plain) -> Plain:
    """A number as a FLOAT holds it."""
    assert isinstance(value, float), value
    return nearest_single(value)


def _decimal(value: Plain) -> Plain:
    return format(Decimal(str(value)), "f")


def _document(value: Plain) -> Plain:
    """A document in one form: keys sorted, whole numbers without a fraction."""
    try:
        found = json.loads(str(value), parse_float=_number, parse_int=_number)
    except ValueError:
        return value
    return json.dumps(found, sort_keys=True, ensure_ascii=False)


def _number(text: str) -> int | float:
    exact = Decimal(text)
    return int(exact) if _LEAST <= exact < _MOST and exact == exact.to_integral_value() else float(exact)


@dataclass(frozen=True, slots=True)
class ComparedType:
    """One group of types. `sized`: a value's length is hashed before it, as it may hold a comma. `spreads`: a value has
    one text on all servers, so rows are put into chunks by it."""

    sql: str
    read: Callable[[Answer], Plain]
    hashed: Callable[[Plain], bytes]
    meaning: Callable[[Plain], Plain] = _same
    sized: bool = False
    spreads: bool = True
    is_day: bool = False
    is_document: bool = False


_INTEGER: Final = ComparedType("{} + 0", int, _digits)
_EXACT: Final = ComparedType("{}", _text, _digits, _decimal)
_DOUBLE: Final = ComparedType("{} + 0e0", float, _real, spreads=False)
_FLOAT: Final = ComparedType("{} + 0e0", float, _real, _single, spreads=False)
_MOMENT: Final = ComparedType("{}", _text, _digits, is_day=True)
_TIME: Final = ComparedType("{}", _text, _digits)
_TEXT: Final = ComparedType("CAST(CONVERT({} USING utf8mb4) AS BINARY)", _text, _hashed, sized=True)
_BYTES: Final = ComparedType("{}", _octets, _hashed, sized=True)
_JSON: Final = ComparedType(
    "CAST(CAST({} AS CHAR) AS BINARY)", _text, _hashed, _document, sized=True, spreads=False, is_document=True
)
_FORMS: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "bit", "year"), _INTEGER),
    **dict.fromkeys(("decimal", "numeric"), _EXACT),
    **dict.fromkeys(("double", "real"), _DOUBLE),
    "float": _FLOAT,
    **dict.fromkeys(("date", "datetime", "timestamp"), _MOMENT),
    "time": _TIME,
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _BYTES),
    **dict.fromkeys(("json", "vector"), _JSON),
}


def form_of(column_type: str) -> ComparedType:
    """Return the form of a type as information_schema prints it; what is not known is text."""
    found = _WORD.match(column_type.lower())
    return _FORMS.get(found[0] if found else "", _TEXT)


def meaning_of(expected: ComparedType, found: ComparedType, *, calendar: bool) -> Callable[[Plain], Plain]:
    """Return what makes values of one column comparable. A document may stand in a text column on one side; with
    `calendar` one side holds NULL for a day that no calendar has."""
    wanted = found if found.is_document else expected
    meaning = _dated if calendar and wanted.is_day else wanted.meaning
    return partial(_unless_null, meaning)


def _unless_null(meaning: Callable[[Plain], Plain], value: Plain) -> Plain:
    return None if value is None else meaning(value)


def _dated(value: Plain) -> Plain:
    return value if is_date(str(value)) else None
