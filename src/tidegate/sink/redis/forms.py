"""Rows as values of a key, and back.

    mode    key holds                                                           NULL
    hash    id "7"  name "Ann"  _tidegate_version "0470..."                     the field is absent
    json    {"_tidegate_version":"0470...","id":7,"name":"Ann","mail":null}     null

    column                             hash                       json (documents/values.py)
    integers, YEAR, BIT                decimal digits             number
    FLOAT, DOUBLE                      shortest digits            number
    BINARY, VARBINARY, BLOB            themselves                 string, Base64
    JSON                               its text                   the document
    others                             as TiDB prints them        string

The fields of a script's entry are one value a name, None where the field is absent.
"""

from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any, Final, NamedTuple

from tidegate.model.event import Field, Value
from tidegate.model.mysql import FLOATS, INTEGERS, STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnInfo, TableInfo
from tidegate.sink.documents.values import Row, json_objects, row_of_json
from tidegate.sink.redis.options import Mode
from tidegate.sink.redis.version import FIELD

_NUMBERS: Final = INTEGERS | {T.YEAR, T.BIT}


class RawBytes:
    """Bytes that a script is handed beside its entries: its reader of msgpack has no type for them."""

    __slots__ = ("value",)

    def __init__(self, value: bytes) -> None:
        self.value = value


class ValueForm(NamedTuple):
    """How a mode keeps a row: `render` makes the columns of an image the fields of entries, `write` one row's values,
    and `read` makes a row of what a key holds."""

    names: Callable[[Sequence[str]], list[str]]
    render: Callable[[Sequence[Field], Sequence[list[Any]]], list[list[Any]]]
    read: Callable[[TableInfo, Any], Row]
    keeps_null: bool


def _hash_rows(_fields: Sequence[Field], columns: Sequence[list[Any]]) -> list[list[Any]]:
    return [list(row) for row in zip(*map(_texts, columns), strict=True)]


def _texts(column: list[Value]) -> list[Any]:
    kinds = set(map(type, column))
    if kinds <= {str, NoneType}:
        return column
    if bytes in kinds:
        return [RawBytes(value) if isinstance(value, bytes) else value for value in column]
    return [None if value is None else repr(value) for value in column]


def _hash_row(table: TableInfo, held: Mapping[bytes, bytes]) -> Row:
    row: dict[str, Value] = {}
    for column in table.columns:
        text = held.get(column.name.encode("utf-8", "surrogatepass"))
        row[column.name] = None if text is None else _hash_value(column, text)
    return row


def _hash_value(column: ColumnInfo, text: bytes) -> Value:
    kind = column.type
    if kind.code in STRINGS and kind.charset == "binary":
        return text
    if kind.code in _NUMBERS or (kind.code in (T.ENUM, T.SET) and kind.elems is None):
        return int(text)
    return float(text) if kind.code in FLOATS else text.decode("utf-8", "surrogateescape")


def _json_rows(fields: Sequence[Field], columns: Sequence[list[Any]]) -> list[list[Any]]:
    objects = json_objects([field.name for field in fields], fields, columns)
    return [[one[1:].decode()] for one in objects]


FORMS: Final[Mapping[Mode, ValueForm]] = {
    "hash": ValueForm(list, _hash_rows, _hash_row, keeps_null=False),
    "json": ValueForm(lambda _: [FIELD], _json_rows, row_of_json, keeps_null=True),
}
