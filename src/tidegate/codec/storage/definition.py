r"""A schema file as the definition of a table, for rows whose bytes tell no types.

    {"ColumnName": "amt", "ColumnType": "DECIMAL", "ColumnPrecision": "10", "ColumnScale": "2"}      amt decimal(10,2)
    {"ColumnName": "st", "ColumnType": "ENUM", "ColumnElems": ["a", "b"]}                            st enum('a','b')
    {"ColumnName": "st", "ColumnType": "ENUM"}      classic: names without their numbers, so a text  st varchar

A schema file tells no index but the primary key, and not the order of its columns; it lists virtual columns like any
other, though rows lack them.  The DDLs of a place may tell more.

Source: TiCDC's storage sink document.
"""

from collections.abc import Mapping
from typing import Any, Final

from tidegate.codec.canal.types import NAMES
from tidegate.codec.storage.schema_file import Column, SchemaFile
from tidegate.model.errors import DecodeError
from tidegate.model.mysql import CHARS, FLOATS, STRINGS, sql_name
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnInfo, ColumnType, IndexInfo, TableInfo, TableName

_NAMED: Final = frozenset({T.ENUM, T.SET})
_TIMES: Final = frozenset({T.TIME, T.DATETIME, T.TIMESTAMP})


def table_of_file(file: SchemaFile) -> TableInfo:
    """Return the table of a schema file. DecodeError for columns that are none."""
    columns = tuple(_column(place, column) for place, column in enumerate(file.columns or (), start=1))
    primary = tuple(str(one["ColumnName"]) for one in file.columns or () if one.get("ColumnIsPk") == "true")
    indexes = (IndexInfo(1, "PRIMARY", primary, unique=True, primary=True),) if primary else ()
    return TableInfo(TableName(file.schema, file.table), "", file.version, columns, indexes)


def mysql_type(kind: ColumnType) -> str:
    """Return a type as SQL spells it, with all that is known of it."""
    name = sql_name(kind.code, binary=kind.charset == "binary" and kind.code in STRINGS)
    if kind.code in _NAMED and kind.elems is not None:
        return f"{name}({','.join(map(_quoted, kind.elems))})"
    sizes: tuple[int, ...] = ()
    if kind.code == T.DECIMAL or (kind.code in FLOATS and kind.decimal > 0):
        sizes = (kind.flen, max(kind.decimal, 0))
    elif kind.code in CHARS or kind.code == T.BIT:
        sizes = (kind.flen,)
    elif kind.code in _TIMES and kind.decimal > 0:
        sizes = (kind.decimal,)
    told = f"({','.join(map(str, sizes))})" if sizes and sizes[0] >= 0 else ""
    return f"{name}{told}{' unsigned' if kind.unsigned else ''}"


def _quoted(element: str) -> str:
    return "'" + element.replace("\\", "\\\\").replace("'", "''") + "'"


def _column(place: int, told: Column) -> ColumnInfo:
    name = str(told["ColumnName"])
    nullable = told.get("ColumnNullable") != "false" and told.get("ColumnIsPk") != "true"
    return ColumnInfo(place, name, _type(name, told), nullable=nullable, default=_default(told))


def _default(told: Mapping[str, Any]) -> str | None:
    value = told.get("ColumnDefault")
    return None if value is None else str(value)


def _type(column: str, told: Column) -> ColumnType:
    word = str(told.get("ColumnType", "")).lower()
    name = word.removesuffix(" unsigned")
    code = NAMES.get(name, T.VARCHAR)
    try:
        flen, decimal = int(told.get("ColumnPrecision") or -1), int(told.get("ColumnScale") or -1)
    except ValueError as error:
        raise DecodeError(f"column {column!r} with a size that is no number", "storage", 0) from error
    elems = told.get("ColumnElems")
    if code in _NAMED and not isinstance(elems, list):
        return ColumnType(T.VARCHAR)
    if code == T.DECIMAL and decimal < 0:
        decimal = 0
    return ColumnType(
        code,
        flen=-1 if code in _NAMED else flen,
        decimal=decimal,
        unsigned=name != word,
        charset="utf8mb4" if code in STRINGS | _NAMED and not ("binary" in name or "blob" in name) else "binary",
        elems=tuple(map(str, elems)) if code in _NAMED and elems is not None else None,
    )
