r"""Schema files of a storage sink: what a table is like from a version on, and the DDL that made it so.

    {
        "Table": "orders",  "Schema": "shop",  "Version": 1,      the version of this format
        "TableVersion": 451,                                      the DDL's commit_ts
        "Query": "ALTER TABLE ..",  "Type": 5,                    "" and 0 where no DDL is told
        "TableColumns": [                                         null for a database
            {"ColumnName": "id", "ColumnType": "BIGINT UNSIGNED", "ColumnPrecision": "20", "ColumnNullable": "false",
             "ColumnIsPk": "true"},
            ..
        ],
        "TableColumnsTotal": 1
    }

    type                                    ColumnPrecision              ColumnScale
    integers, BIT, YEAR                     display width                -
    FLOAT, DOUBLE                           length, 12 or 22 by default  digits, if given
    DECIMAL                                 precision                    scale
    CHAR, BINARY, TEXT and BLOB families    length                       -
    TIME, DATETIME, TIMESTAMP               -                            digits of the fraction, if any
    DATE, JSON, ENUM, SET, VECTOR           -                            -

Go writes the JSON: four blanks deep, `<`, `>` and `&` as \u003c and the like.  The checksum in a file's name is the
CRC-32 of a JSON of this form with Version 0, without TableVersion, Query and Type, and with the columns by name.
ColumnElems, the names of ENUM and SET, are the new architecture's; they change the checksum.

Source: TiCDC's storage sink document; ticdc, pkg/cloudstorage/schema_file.go.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

from tidegate.codec.storage.layout import schema_directory, schema_name
from tidegate.model.errors import DecodeError
from tidegate.model.mysql import BLOBS, CHARS, INTEGERS, STRINGS, sql_name
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.table import ColumnInfo, ColumnType, TableInfo

FORMAT_VERSION: Final = 1
Column = Mapping[str, Any]

_LENGTHS: Final = {
    T.TINY: 4,
    T.SHORT: 6,
    T.INT24: 9,
    T.LONG: 11,
    T.LONGLONG: 20,
    T.BIT: 1,
    T.YEAR: 4,
    T.STRING: 1,
    T.FLOAT: 12,
    T.DOUBLE: 22,
    T.DECIMAL: 10,
    T.TINY_BLOB: 255,
    T.BLOB: 65535,
    T.MEDIUM_BLOB: 16777215,
    T.LONG_BLOB: 4294967295,
}
"""Lengths of types that tell none."""
_SIZED: Final = INTEGERS | CHARS | BLOBS | {T.BIT, T.YEAR, T.FLOAT, T.DOUBLE, T.DECIMAL}
_FRACTIONS: Final = {T.TIME, T.DATETIME, T.TIMESTAMP, T.FLOAT, T.DOUBLE}
_GO: Final = {
    **{ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"},
    **dict.fromkeys(range(0xD800, 0xE000), "\\ufffd"),
}
"""What Go's JSON escapes and Python's does not; texts that are not UTF-8 have surrogates."""


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """One schema file; `columns` is None for that of a database."""

    schema: str
    table: str
    version: int
    columns: tuple[Column, ...] | None
    query: str = ""
    action: int = 0

    @property
    def path(self) -> str:
        """Where the file stands."""
        return f"{schema_directory(self.schema, self.table)}/{schema_name(self.version, self.checksum)}"

    @property
    def checksum(self) -> int:
        """CRC-32 of the table's name and columns."""
        columns = sorted(self.columns or (), key=lambda column: str(column["ColumnName"]).encode("utf-8", "replace"))
        return crc32(_printed({**self._name(0), **_counted(columns)}))

    def render(self) -> bytes:
        """Return the bytes of the file."""
        told = {"TableVersion": self.version, "Query": self.query, "Type": self.action}
        return _printed({**self._name(FORMAT_VERSION), **told, **_counted(self.columns)})

    def _name(self, version: int) -> dict[str, Any]:
        return {"Table": self.table, "Schema": self.schema, "Version": version}


def parse_schema_file(body: bytes) -> SchemaFile:
    """Return what a schema file tells. DecodeError for a file that is none."""
    try:
        told = json.loads(body)
        columns = told["TableColumns"]
        return SchemaFile(
            schema=str(told["Schema"]),
            table=str(told["Table"]),
            version=int(told["TableVersion"]),
            columns=None
            if columns is None
            else tuple({**column, "ColumnName": column["ColumnName"]} for column in columns),
            query=str(told["Query"]),
            action=int(told["Type"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise DecodeError(f"no schema file: {error!r:.200}", "storage", 0) from error


def columns_of(table: TableInfo, *, ids: bool = False, elems: bool = True) -> tuple[Column, ...]:
    """Return what a schema file says of the columns of `table`, virtual ones included; `ids` adds their numbers
    (output-column-id), `elems` the names of ENUM and SET."""
    primary = next((index.columns for index in table.indexes if index.primary), ())
    keys = {lowered(name) for name in primary}
    return tuple(
        dict(_column(column, ids=ids, elems=elems, is_key=lowered(column.name) in keys)) for column in table.columns
    )


def _column(column: ColumnInfo, *, ids: bool, elems: bool, is_key: bool) -> Iterator[tuple[str, Any]]:
    kind = column.type
    if ids:
        yield "ColumnId", str(column.id)
    yield "ColumnName", column.name
    name = sql_name(kind.code, binary=kind.charset == "binary" and kind.code in STRINGS).upper()
    yield "ColumnType", f"{name} UNSIGNED" if kind.unsigned else name
    if column.default is not None:
        text = column.default
        yield "ColumnDefault", text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text
    precision, scale = _sizes(kind)
    if precision is not None:
        yield "ColumnPrecision", str(precision)
    if scale is not None:
        yield "ColumnScale", str(scale)
    if not column.nullable or is_key:
        yield "ColumnNullable", "false"
    if is_key:
        yield "ColumnIsPk", "true"
    if elems and kind.elems is not None:
        yield "ColumnElems", list(kind.elems)


def _sizes(kind: ColumnType) -> tuple[int | None, int | None]:
    """(precision, scale) of a type, None for what it has not or does not tell."""
    precision = None
    if kind.code in _SIZED:
        precision = kind.flen if kind.flen >= 0 else _LENGTHS.get(kind.code)
        if kind.flen < 0 and kind.unsigned and kind.code in INTEGERS - {T.LONGLONG} and precision is not None:
            precision -= 1
    if kind.code is T.DECIMAL:
        return precision, max(kind.decimal, 0)
    return precision, kind.decimal if kind.code in _FRACTIONS and kind.decimal > 0 else None


def _counted(columns: "tuple[Column, ...] | list[Column] | None") -> dict[str, Any]:
    return {"TableColumns": None if columns is None else list(columns), "TableColumnsTotal": len(columns or ())}


def _printed(told: Mapping[str, Any]) -> bytes:
    return json.dumps(told, indent=4, ensure_ascii=False).translate(_GO).encode()
