"""The values of rows as documents have them, and rows of JSON objects and back. Pure.

    column                             JSON
    integers, YEAR, BIT                number
    FLOAT, DOUBLE                      number, with the shortest digits
    DECIMAL                            string, as TiDB prints it: exact
    DATE, DATETIME, TIMESTAMP, TIME    string, as TiDB prints it
    ENUM, SET                          names; digits where the definition is not known
    CHAR, VARCHAR, TEXT, VECTOR        string
    BINARY, VARBINARY, BLOB            string, Base64
    JSON                               the document
    NULL                               null

Values here are those of model/event.py, with the names of ENUM and SET: what expr/change.py converts when a DDL
changes a column.
"""

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.model.errors import SinkRefused
from tidegate.model.event import Field, Value
from tidegate.model.mysql import FLOATS, STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, TableInfo
from tidegate.mysql.conversion import enum_name, enum_number, set_names, set_number
from tidegate.sink.documents.row_id import RawText

Row: TypeAlias = Mapping[str, Value]


def columns_of(table: TableInfo, fields: Sequence[Field], image: Any) -> list[list[Value]]:
    """Return the values of each column of an image (an Arrow record batch)."""
    return [_values(table.column(field.name), field, image.column(at)) for at, field in enumerate(fields)]


def _values(column: ColumnInfo | None, field: Field, values: Any) -> list[Value]:
    if field.type == T.FLOAT:
        return [None if text is None else float(text) for text in _digits(values)]
    if field.type in STRINGS and not field.binary and not pa.types.is_string(values.type):
        return [_text(value) for value in values.to_pylist()]
    if field.type in (T.ENUM, T.SET) and column is not None and column.type.elems is not None:
        name = partial(_named, T(field.type), column.type.elems)
        encoded = pc.dictionary_encode(values)
        names = pa.array([name(value) for value in encoded.dictionary.to_pylist()], pa.string())
        values = names.take(encoded.indices)
    found: list[Value] = values.to_pylist()
    return found


def _text(value: str | bytes | None) -> Value:
    """A text of a column in which one is no UTF-8."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return RawText(value)


def check_names(table: TableInfo, field: Field, values: Any) -> None:
    """Raise SinkRefused for a number of an ENUM or SET in a key whose name is that of another number, too."""
    column = table.column(field.name)
    if field.type not in (T.ENUM, T.SET) or column is None or column.type.elems is None:
        return
    elems, kind = column.type.elems, T(field.type)
    number_of = enum_number if kind is T.ENUM else set_number
    for number in pc.unique(values).to_pylist():
        name = _named(kind, elems, number)
        if isinstance(number, int) and number_of(elems, name or "") != number:
            raise SinkRefused(
                f"table {table.name}: number {number} of the {kind.name} {column.name} in the key, whose name {name!r} "
                "is that of another number, too: rows could not be told apart; leave the table out by a filter"
            )


def _digits(values: Any) -> list[str | None]:
    """The shortest digits that tell a 32-bit number apart."""
    found: list[str | None] = values.cast(pa.float32(), safe=False).cast(pa.string()).to_pylist()
    return found


def _named(kind: T, elems: tuple[str, ...], value: Any) -> str | None:
    if not isinstance(value, int):
        return None if value is None else str(value)
    return enum_name(elems, value) if kind is T.ENUM else set_names(elems, value)


def json_objects(names: Sequence[str], fields: Sequence[Field], columns: Sequence[list[Any]]) -> list[bytes]:
    """Return a JSON object of each row, with these names for its fields."""
    typed = [_json_values(field, column) for field, column in zip(fields, columns, strict=True)]
    encode = msgspec.json.Encoder().encode
    return [encode(dict(zip(names, row, strict=True))) for row in zip(*typed, strict=True)]


def _json_values(field: Field, column: list[Any]) -> list[Any]:
    if field.type == T.JSON:
        return [None if text is None else msgspec.Raw(text.encode()) for text in column]
    if field.type in STRINGS and not field.binary:  # bytes here are a text that is no UTF-8
        return [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in column]
    return column


def row_of_json(table: TableInfo, held: bytes, name: Callable[[str], str] = str) -> Row:
    """Return the row in a JSON object, whose columns have there the names that `name` gives them."""
    found = msgspec.json.decode(held)
    return {column.name: _json_value(column, found.get(name(column.name))) for column in table.columns}


def _json_value(column: ColumnInfo, value: Any) -> Value:
    kind = column.type
    if value is None:
        return None
    if kind.code == T.JSON:
        return msgspec.json.encode(value).decode()
    if kind.code in STRINGS and kind.charset == "binary":
        return b64decode(value)
    result: Value = float(value) if kind.code in FLOATS else value
    return result


def key_places(table: TableInfo, fields: Sequence[Field]) -> list[int]:
    """Return the places of the key's columns among `fields`. SinkRefused for rows that lack one."""
    at = {lowered(field.name): place for place, field in enumerate(fields)}
    missing = [name for name in table.handle_key if lowered(name) not in at]
    if missing:
        raise SinkRefused(f"table {table.name}: its rows come without {', '.join(missing)}, a column of its key")
    return [at[lowered(name)] for name in table.handle_key]


def fields_of(table: TableInfo) -> list[Field]:
    """Return the fields of a table's rows as they are stored."""
    return [
        Field(column.name, column.type.code, binary=column.type.charset == "binary")
        for column in table.columns
        if not column.virtual
    ]
